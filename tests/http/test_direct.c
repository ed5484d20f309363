/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/*
 * The direct path reads replies by itself, so libcurl is the oracle: the same bytes are given to
 * both, cut at any place. What libcurl refuses must be refused, and what both accept must be the
 * same reply; the direct path may be stricter.
 */
#include "common/http/http.h"
#include "tests/harness.h"
#include "tests/support/http_responder.h"

#define MUTANTS 1500
#define REPLY_BYTES_MAX 4096
#define ASKED_MAX 200 /* of one responder, which takes 256 connections */

/* What every request of one responder is answered with. */
struct script {
    char bytes[REPLY_BYTES_MAX];
    size_t size, cut; /* cut: the first piece; 0: all at once */
};

/* What the responder's threads read; one of them may still be sending an earlier reply, to a
 * connection that was closed, while the next script is made. */
struct served {
    pthread_mutex_t lock;
    struct script script;
};

struct cairn_pair {
    struct script script;
    struct served served;
    struct cairn_responder *server;
    struct cairn_http_engine *engine;
    uint32_t asked;
};
static void cairn_pair_release(struct cairn_pair *pair) {
    cairn_http_engine_free(pair->engine);
    cairn_responder_stop(pair->server);
}

static void answer(struct cairn_responder_request *request) {
    struct served *served = request->owner;
    pthread_mutex_lock(&served->lock);
    const struct script script = served->script;
    pthread_mutex_unlock(&served->lock);
    if (script.cut && script.cut < script.size) {
        cairn_responder_send(request, script.bytes, script.cut);
        cairn_test_pause_ms(1); /* pause of a stand-in: its pieces are read one by one */
        cairn_responder_send(request, script.bytes + script.cut, script.size - script.cut);
    } else {
        cairn_responder_send(request, script.bytes, script.size);
    }
    request->close = true;
}

static bool open_pair(struct cairn_pair *pair) {
    struct cairn_responder_options options = {.answer = answer, .owner = &pair->served};
    struct cairn_http_options http = {.connections_max = 4};
    pair->asked = 0;
    pair->served.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pair->server = cairn_responder_start(&options);
    return pair->server && cairn_http_engine_new(&http, &pair->engine, NULL) == CAIRN_OK;
}

struct outcome {
    enum cairn_code code;
    int status;
    uint64_t length;
    char body[REPLY_BYTES_MAX], message[256];
    size_t size;
};

static struct outcome ask(struct cairn_pair *pair, bool direct) {
    struct cairn_buf body = {.limit = REPLY_BYTES_MAX};
    struct outcome outcome = {0};
    struct cairn_error error = {0};
    if (pair->asked++ == ASKED_MAX) {
        cairn_pair_release(pair);
        if (!EXPECT(open_pair(pair))) abort();
    }
    pthread_mutex_lock(&pair->served.lock);
    pair->served.script = pair->script;
    pthread_mutex_unlock(&pair->served.lock);
    struct cairn_http_request request = {.method = "GET",
                                         .url = TEXT("%s/x", cairn_responder_url(pair->server)),
                                         .reply_buf = &body,
                                         .stall_ms = 60000, /* the peer closes */
                                         .fresh_connection = true,
                                         .direct = direct};
    outcome.code = cairn_http_perform(pair->engine, &request, &error);
    outcome.status = request.status;
    outcome.length = request.content_length;
    outcome.size = body.size;
    if (body.size) memcpy(outcome.body, body.data, body.size);
    snprintf(outcome.message, sizeof outcome.message, "%.250s", error.message);
    cairn_buf_release(&body);
    return outcome;
}

static void show(const struct script *script, const struct outcome *curl,
                 const struct outcome *direct) {
    fprintf(stderr,
            "libcurl: %s %d %zu bytes (%s)\ndirect:  %s %d %zu bytes (%s)\ncut %zu of %zu:\n",
            cairn_code_info(curl->code)->name, curl->status, curl->size, curl->message,
            cairn_code_info(direct->code)->name, direct->status, direct->size, direct->message,
            script->cut, script->size);
    for (size_t i = 0; i < script->size; i++) {
        unsigned char c = (unsigned char)script->bytes[i];
        fprintf(stderr, c < 0x20 || c > 0x7e ? "<%02x>" : "%c", c);
    }
    fputs("\n", stderr);
}

static bool same(const struct outcome *a, const struct outcome *b) {
    return a->code == b->code && a->status == b->status && a->size == b->size &&
           !memcmp(a->body, b->body, a->size);
}

static void set_script(struct cairn_pair *pair, const char *text, size_t cut) {
    pair->script.size = strlen(text);
    memcpy(pair->script.bytes, text, pair->script.size);
    pair->script.cut = cut;
}

#define OK_HEAD "HTTP/1.1 200 OK\r\n"
static const char *const good[] = {
    OK_HEAD "Content-Length: 5\r\n\r\nhello",
    OK_HEAD "content-length:5\r\n\r\nhello",
    OK_HEAD "Content-Length: 5  \r\nContent-Length: 5\r\n\r\nhello",
    OK_HEAD "Content-Length: 0\r\n\r\n",
    OK_HEAD "Connection: close\r\n\r\nuntil the end",
    "HTTP/1.0 200 OK\r\n\r\nuntil the end",
    "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: Chunked\r\n\r\n00005\r\nhello\r\n0\r\nX: y\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n" OK_HEAD "Content-Length: 5\r\n\r\nhello",
    "HTTP/1.1 103 Early\r\nContent-Length: 9\r\n\r\n" OK_HEAD "Content-Length: 5\r\n\r\nhello",
    OK_HEAD "X-Empty:\r\nX-Spaces: \t a b \r\nContent-Length: 5\r\n\r\nhello",
};

TEST(good_replies_are_read_as_libcurl_reads_them_wherever_they_are_cut) {
    WITH(pair, pair, open_pair(&pair));
    for (size_t i = 0; i < CAIRN_COUNT(good); i++) {
        set_script(&pair, good[i], 0);
        struct outcome curl = ask(&pair, false);
        EXPECT(curl.code == CAIRN_OK);
        for (size_t cut = 0; cut < pair.script.size; cut++) {
            pair.script.cut = cut;
            struct outcome direct = ask(&pair, true);
            if (!EXPECT(same(&curl, &direct))) {
                show(&pair.script, &curl, &direct);
                break;
            }
        }
    }
}

/* Each is a way to say two things at once, or half of one. */
static const char *const bad[] = {
    "HTTP/2 200\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1200 OK\r\n\r\nhello",
    "ICY 200 OK\r\n\r\nhello",
    "\r\n" OK_HEAD "Content-Length: 5\r\n\r\nhello",
    OK_HEAD "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    OK_HEAD "Content-Length: -5\r\n\r\nhello",
    OK_HEAD "Content-Length: 0x5\r\n\r\nhello",
    OK_HEAD "Content-Length: 5, 5\r\n\r\nhello",
    OK_HEAD "Content-Length: 99999999999999999999\r\n\r\nhello",
    OK_HEAD "Content-Length: 5\r\n\r\nhel",
    OK_HEAD "Content-Length: 5\r\n X: folded\r\n\r\nhello",
    OK_HEAD "no colon\r\nContent-Length: 5\r\n\r\nhello",
    OK_HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
    OK_HEAD
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    OK_HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    OK_HEAD "Content-Length: 5\n\nhello",
    "HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello",
    OK_HEAD,
    "HTTP/1.1 100 Continue\r\n\r\n",
    "",
};

TEST(replies_that_could_be_read_in_two_ways_are_refused_wherever_they_are_cut) {
    WITH(pair, pair, open_pair(&pair));
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        set_script(&pair, bad[i], 0);
        for (size_t cut = 0; cut <= pair.script.size; cut += 3) {
            pair.script.cut = cut;
            struct outcome direct = ask(&pair, true);
            bool refused = direct.code == CAIRN_PROTOCOL || direct.code == CAIRN_UNAVAILABLE;
            if (!EXPECT(refused)) {
                show(&pair.script, &direct, &direct);
                break;
            }
        }
    }
}

/* ---- mutants ---- */

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void mutate(struct script *script, uint32_t *state) {
    static const char tokens[] = "\r\n\r\n:;, 0123456789abcdefHTTP/.chunked\t\x00\xff";
    uint32_t times = 1 + next_random(state) % 3;
    for (uint32_t i = 0; i < times && script->size > 4; i++) {
        size_t at = next_random(state) % script->size;
        char token = tokens[next_random(state) % (sizeof tokens - 1)];
        switch (next_random(state) % 3) {
        case 0:
            script->bytes[at] = token;
            break;
        case 1:
            memmove(script->bytes + at, script->bytes + at + 1, script->size - at - 1);
            script->size--;
            break;
        default:
            memmove(script->bytes + at + 1, script->bytes + at, script->size - at);
            script->bytes[at] = token;
            script->size++;
        }
    }
}

/* inside.h#4: the direct path may refuse what libcurl takes, never the other way round, and never
 * reads another body. Its own answers are the same however the bytes are cut. libcurl is asked
 * about what was accepted only: of the rest some make 7.88 read memory that it has freed (folded
 * headers). */
TEST(no_mutant_is_accepted_that_libcurl_refuses_or_reads_otherwise) {
    WITH(pair, pair, open_pair(&pair));
    uint32_t state = 20240607, accepted = 0, refused = 0;
    for (uint32_t i = 0; i < MUTANTS; i++) {
        set_script(&pair, good[next_random(&state) % CAIRN_COUNT(good)], 0);
        mutate(&pair.script, &state);
        struct outcome whole = ask(&pair, true), curl = {0};
        pair.script.cut = next_random(&state) % (pair.script.size + 1);
        struct outcome direct = ask(&pair, true);
        pair.script.cut = 0;
        bool steady = same(&whole, &direct) || (whole.code && direct.code);
        if (!direct.code) curl = ask(&pair, false);
        if (!EXPECT(steady && (direct.code || same(&curl, &direct)))) {
            show(&pair.script, &curl, &direct);
            return;
        }
        if (direct.code)
            refused++;
        else
            accepted++;
    }
    EXPECT(accepted > MUTANTS / 8 && refused > MUTANTS / 8); /* else the mutants say nothing */
}
