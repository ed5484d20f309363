/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* The HTTP client against a server that is wrong in every way a test can write down. */
#include "common/http/http.h"

#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "common/http/inside.h"
#include "tests/harness.h"
#include "tests/support/http_responder.h"

#define BODY_BYTES (8 * CAIRN_MIB)

/* A server, an engine and one request, released together. */
struct cairn_bench {
    struct cairn_responder *server;
    struct cairn_http_engine *engine;
    struct cairn_http_request request;
    char url[512];
    struct cairn_buf reply;
    struct cairn_error error;
};
static void cairn_bench_release(struct cairn_bench *bench) {
    cairn_http_engine_free(bench->engine);
    cairn_responder_stop(bench->server);
    cairn_buf_release(&bench->reply);
}

static bool open_bench(struct cairn_bench *bench, void (*answer)(struct cairn_responder_request *),
                       const char *path) {
    struct cairn_responder_options options = {.answer = answer, .owner = bench};
    if (!bench->server) bench->server = cairn_responder_start(&options);
    if (!bench->server) return false;
    snprintf(bench->url, sizeof bench->url, "%s%s", cairn_responder_url(bench->server), path);
    bench->request = (struct cairn_http_request){.method = "GET",
                                                 .url = bench->url,
                                                 .reply_buf = &bench->reply,
                                                 .direct = getenv("CAIRN_TEST_DIRECT") != NULL,
                                                 .owner = bench};
    struct cairn_http_options http = {.connections_max = 4};
    return bench->engine || cairn_http_engine_new(&http, &bench->engine, NULL) == CAIRN_OK;
}

/* The server answers before it has read the body. */
static bool open_early(struct cairn_bench *bench,
                       void (*answer)(struct cairn_responder_request *)) {
    struct cairn_responder_options options = {.answer = answer, .early = true};
    bench->server = cairn_responder_start(&options);
    return open_bench(bench, NULL, "/");
}

static enum cairn_code perform(struct cairn_bench *bench) {
    bench->error = (struct cairn_error){0};
    cairn_buf_clear(&bench->reply);
    return cairn_http_perform(bench->engine, &bench->request, &bench->error);
}
#define err (bench.error)
/* The reply goes to so many of eight bytes. */
#define INTO(bytes, capacity)                                                                      \
    char bytes[8] = "........";                                                                    \
    bench.request.reply_data = bytes;                                                              \
    bench.request.reply_capacity = capacity
/* The request is a PUT of so many zeros. */
#define PUTS(body, size)                                                                           \
    CAIRN_AUTO_HEAP char *body = calloc(1, size);                                                  \
    REQUIRE(body);                                                                                 \
    bench.request.method = "PUT";                                                                  \
    bench.request.has_body = true;                                                                 \
    bench.request.body = (struct cairn_view) {                                                     \
        body, size                                                                                 \
    }

static void say_hello(struct cairn_responder_request *request) {
    cairn_responder_reply(request, 200, "X-Word: hello\r\n", "hello");
}

TEST(a_reply_goes_to_the_callers_memory) {
    WITH(bench, bench, open_bench(&bench, say_hello, "/a?b=c"));
    INTO(bytes, 5);
    REQUIRE_OK(perform(&bench));
    EXPECT_ALL_U64((uint64_t)bench.request.status, 200, bench.request.reply_bytes, 5,
                   bench.request.content_length, 5);
    EXPECT(bench.request.first_byte_us > 0);
    EXPECT(!memcmp(bytes, "hello...", 8));
    EXPECT_EQ_U64(bench.reply.size, 0);
}

TEST(a_reply_longer_than_asked_for_is_refused_and_overruns_nothing) {
    WITH(bench, bench, open_bench(&bench, say_hello, "/"));
    INTO(bytes, 4);
    EXPECT_CODE(perform(&bench), CAIRN_PROTOCOL);
    EXPECT(!memcmp(bytes + 4, "....", 4));
    EXPECT_EQ_U64(err.http_status, 200);
}

static void echo(struct cairn_responder_request *request) {
    cairn_responder_reply(request, 200, "",
                          TEXT("%s %.400s %zu%s%s", request->method, request->target,
                               request->body.size,
                               strstr(request->head, "Expect") ? " expects" : "",
                               strstr(request->head, "Content-Type") ? " typed" : ""));
}

TEST(paths_methods_and_bodies_are_sent_as_they_are) {
    WITH(bench, bench, open_bench(&bench, echo, "/a/../b//c%2Fd/./e?z=1&a=%20"));
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_TEXT(bench.reply.data, "GET /a/../b//c%2Fd/./e?z=1&a=%20 0");
    PUTS(body, BODY_BYTES);
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_TEXT(bench.reply.data, "PUT /a/../b//c%2Fd/./e?z=1&a=%20 8388608");
    EXPECT_EQ_U64(bench.request.sent_bytes, BODY_BYTES);
    EXPECT(bench.request.sent_at_us > 0);
    EXPECT(bench.request.reply_at_us >= bench.request.sent_at_us);
    bench.request.method = "DELETE";
    bench.request.has_body = false;
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_TEXT(bench.reply.data, "DELETE /a/../b//c%2Fd/./e?z=1&a=%20 0");
}

static void answer_empty_body(struct cairn_responder_request *request) {
    char length[512];
    bool said = cairn_responder_header(request, "Content-Length", length);
    cairn_responder_reply(request, 200, "", said ? length : "none");
}

TEST(an_empty_body_announces_its_length) {
    WITH(bench, bench, open_bench(&bench, answer_empty_body, "/"));
    bench.request.method = "POST";
    bench.request.has_body = true;
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_TEXT(bench.reply.data, "0");
}

static void answer_head(struct cairn_responder_request *request) {
    cairn_responder_say(request, "HTTP/1.1 200 OK\r\nContent-Length: 1234567\r\n\r\n");
}

TEST(a_head_has_a_length_and_no_body) {
    WITH(bench, bench, open_bench(&bench, answer_head, "/"));
    bench.request.method = "HEAD";
    REQUIRE_OK(perform(&bench));
    EXPECT_ALL_U64(bench.request.content_length, 1234567, bench.request.reply_bytes, 0);
}

static void answer_redirect(struct cairn_responder_request *request) {
    char to[100]; /* libcurl would send x-amz-security-token to that other origin, too */
    const char *port = strrchr(cairn_responder_url(request->responder), ':');
    snprintf(to, sizeof to, "Location: http://localhost%s/\r\n", port);
    cairn_responder_reply(request, 307, to, "moved");
}

TEST(a05_a_redirect_is_an_answer_and_is_not_followed) {
    WITH(bench, bench, open_bench(&bench, answer_redirect, "/"));
    char bytes[8] = "........";
    bench.request.headers = (const char *[]){"x-amz-security-token: x"};
    bench.request.header_count = 1;
    bench.request.reply_data = bytes;
    bench.request.reply_capacity = 8;
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_U64(bench.request.status, 307);
    EXPECT_EQ_TEXT(bench.reply.data, "moved");
    EXPECT(!memcmp(bytes, "........", 8)); /* error bodies never touch the destination */
    EXPECT_EQ_U64(cairn_responder_requests(bench.server), 1);
}

#define SAYS_AND_CLOSES(name, text)                                                                \
    static void name(struct cairn_responder_request *request) {                                    \
        cairn_responder_say(request, "%s", text);                                                  \
        request->close = true;                                                                     \
    }
SAYS_AND_CLOSES(cut_short, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
SAYS_AND_CLOSES(two_lengths,
                "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nhalf!")
SAYS_AND_CLOSES(bad_length, "HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\nhalf")
SAYS_AND_CLOSES(no_length, "HTTP/1.1 200 OK\r\n\r\nhalf")
SAYS_AND_CLOSES(cut_chunk, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
static void no_answer(struct cairn_responder_request *request) {
    request->close = true;
}
static void reset_connection(struct cairn_responder_request *request) {
    request->reset = true;
}
SAYS_AND_CLOSES(no_http, "SSH-2.0-OpenSSH_9.2p1\r\n\r\n")
static void endless_header(struct cairn_responder_request *request) {
    cairn_responder_say(request, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 2000; i++) cairn_responder_say(request, "X-Header-%d: %0100d\r\n", i, 1);
    cairn_responder_say(request, "Content-Length: 0\r\n\r\n");
}
static void flood_of_1xx(struct cairn_responder_request *request) {
    for (int i = 0; i < 10000; i++) cairn_responder_say(request, "HTTP/1.1 102 W\r\nX: y\r\n\r\n");
    cairn_responder_reply(request, 200, "", "late");
}

TEST(cut_wrong_and_endless_replies_are_failures_of_the_right_kind) {
    EACH(one, FIELDS(void (*answer)(struct cairn_responder_request *); enum cairn_code code),
         {cut_short, CAIRN_UNAVAILABLE}, {two_lengths, CAIRN_PROTOCOL},
         {bad_length, CAIRN_PROTOCOL}, {cut_chunk, CAIRN_UNAVAILABLE},
         {no_answer, CAIRN_UNAVAILABLE}, {reset_connection, CAIRN_UNAVAILABLE},
         {endless_header, CAIRN_PROTOCOL}, {flood_of_1xx, CAIRN_PROTOCOL},
         {no_http, CAIRN_PROTOCOL}) {
        WITH(bench, bench, open_bench(&bench, one->answer, "/x?secret=1"));
        EXPECT_CODE(perform(&bench), one->code);
        EXPECT_HAS(err.message, "!secret", "GET http://127.0.0.1");
    }
}

TEST(a_reply_without_a_length_says_so) {
    WITH(bench, bench, open_bench(&bench, no_length, "/"));
    REQUIRE_OK(perform(&bench));
    EXPECT(bench.request.content_length == UINT64_MAX);
    EXPECT_EQ_U64(bench.request.reply_bytes, 4);
}

static void early_1xx(struct cairn_responder_request *request) {
    cairn_responder_say(request,
                        "HTTP/1.1 103 Early\r\nX-Word: wrong\r\nContent-Length: 3\r\n\r\n");
    say_hello(request);
}
static void keep_word(struct cairn_http_request *request, struct cairn_view name,
                      struct cairn_view value) {
    struct cairn_bench *bench = request->owner;
    if (name.size == 6 && !memcmp(name.data, "X-Word", 6))
        snprintf(bench->url, sizeof bench->url, "%.*s", (int)value.size, (const char *)value.data);
}

TEST(only_headers_of_the_final_reply_are_handed_over) {
    WITH(bench, bench, open_bench(&bench, early_1xx, "/"));
    char url[512];
    memcpy(url, bench.url, sizeof url);
    bench.request.url = url;
    bench.request.on_header = keep_word;
    REQUIRE_OK(perform(&bench));
    EXPECT_ALL_TEXT(bench.url, "hello", bench.reply.data, "hello");
}

static enum cairn_code refuse(struct cairn_http_request *request, struct cairn_error *ret_err) {
    return cairn_fail(ret_err, CAIRN_RANGE, "status %d is not what was asked", request->status);
}

TEST(a_refused_reply_never_touches_the_destination) {
    WITH(bench, bench, open_bench(&bench, say_hello, "/"));
    INTO(bytes, 8);
    bench.request.on_reply = refuse;
    EXPECT_CODE(perform(&bench), CAIRN_RANGE);
    EXPECT(!memcmp(bytes, "........", 8));
    EXPECT(strstr(err.message, "status 200 is not"));
}

TEST(connections_are_kept_and_a_fresh_one_is_made_when_asked) {
    WITH(bench, bench, open_bench(&bench, say_hello, "/"));
    for (int i = 0; i < 5; i++) REQUIRE_OK(perform(&bench));
    EXPECT_EQ_U64(cairn_responder_connections(bench.server), 1);
    bench.request.fresh_connection = true;
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_U64(cairn_responder_connections(bench.server), 2);
}

static void close_after_first(struct cairn_responder_request *request) {
    cairn_responder_reply(request, 200, "", TEXT("%zu", request->body.size));
    request->close = request->connection == 0;
}

TEST(a_kept_connection_that_died_is_replaced_and_the_body_goes_out_whole) {
    WITH(bench, bench, open_bench(&bench, close_after_first, "/"));
    PUTS(body, BODY_BYTES);
    REQUIRE_OK(perform(&bench));
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_TEXT(bench.reply.data, "8388608");
    EXPECT_EQ_U64(cairn_responder_connections(bench.server), 2);
}

static void hang(struct cairn_responder_request *request) {
    char byte;
    if (recv(request->fd, &byte, 1, 0) <= 0) request->close = true;
}

TEST(a_stall_ends_in_time_and_says_so) {
    WITH(bench, bench, open_bench(&bench, hang, "/"));
    bench.request.stall_ms = 100;
    uint64_t start = cairn_mono_ms();
    EXPECT_CODE(perform(&bench), CAIRN_TIMEOUT);
    EXPECT(cairn_mono_ms() - start >= 95);
    EXPECT(strstr(err.message, "no byte in either direction for 100 ms"));
}

static void trickle(struct cairn_responder_request *request) {
    cairn_responder_say(request, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n");
    for (int i = 0; i < 8; i++) {
        cairn_test_pause_ms(300); /* pause of a stand-in: it trickles */
        cairn_responder_say(request, "x");
    }
}

TEST(a_slow_link_that_lives_is_not_a_stall_but_the_total_holds) {
    WITH(bench, bench, open_bench(&bench, trickle, "/"));
    bench.request.stall_ms = 2000; /* of 2.4 s */
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_U64(bench.reply.size, 8);
    bench.request.total_ms = 150;
    EXPECT_FAILS(perform(&bench), CAIRN_TIMEOUT, "within 150 ms");
}

/* Reads a little of the body, then answers, and resets once the answer was taken. */
static atomic_bool refusal_taken;
static void answer_early(struct cairn_responder_request *request) {
    cairn_responder_drain(request, 100000);
    cairn_responder_reply(request, 503, "Connection: close\r\n", "<Error/>");
    (void)COMES(atomic_load(&refusal_taken));
    request->reset = true;
}
static void note_taken(struct cairn_http_request *request) {
    (void)request;
    atomic_store(&refusal_taken, true);
}

TEST(an_early_refusal_is_reported_although_the_body_was_not_taken) { /* S09 */
    CAIRN_AUTO(bench) bench = {0};
    REQUIRE(open_early(&bench, answer_early));
    PUTS(body, 8 * BODY_BYTES);
    bench.request.done = note_taken;
    atomic_store(&refusal_taken, false);
    enum cairn_code code = perform(&bench);
    atomic_store(&refusal_taken, true); /* the responder ends in any case */
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT_EQ_U64(bench.request.status, 503);
    EXPECT_EQ_TEXT(bench.reply.data, "<Error/>");
}

/* What arrived of a body, and how it ended: -1 while open, 0 = clean end, else errno. */
static atomic_ullong arrived;
static atomic_int ended_as;
static atomic_bool may_read;
static void watch_body(struct cairn_responder_request *request) {
    char bytes[65536];
    uint64_t sum = 0;
    while (sum < CAIRN_MIB) {
        ssize_t got = recv(request->fd, bytes, sizeof bytes, 0);
        if (got <= 0) break;
        sum += (uint64_t)got;
    }
    atomic_store(&arrived, sum);
    (void)COMES(atomic_load(&may_read));
    for (;;) {
        ssize_t got = recv(request->fd, bytes, sizeof bytes, 0);
        if (got <= 0) {
            atomic_store(&ended_as, got < 0 ? errno : 0);
            break;
        }
        atomic_fetch_add(&arrived, (unsigned long long)got);
    }
    request->close = true;
}
static void count_done(struct cairn_http_request *request) {
    struct cairn_bench *bench = request->owner;
    bench->reply.limit++;
}

TEST(a_cancelled_upload_is_reset_at_once_and_cannot_complete) { /* http.h#3, http.h#4 */
    CAIRN_AUTO(bench) bench = {0};
    atomic_store(&arrived, 0);
    atomic_store(&ended_as, -1);
    atomic_store(&may_read, false);
    REQUIRE(open_early(&bench, watch_body));
    PUTS(body, 2 * BODY_BYTES);
    bench.request.done = count_done;
    size_t before = bench.reply.limit;
    REQUIRE_OK(cairn_http_submit(bench.engine, &bench.request, &err));
    for (int i = 0; i < 200 && atomic_load(&arrived) < CAIRN_MIB; i++)
        REQUIRE_OK(cairn_http_poll(bench.engine, 5, &err));
    EXPECT_EQ_U64(cairn_http_in_flight(bench.engine), 1);
    cairn_http_cancel(bench.engine, &bench.request);
    EXPECT_ALL_U64(bench.reply.limit - before, 1, bench.request.code, CAIRN_CANCELLED);
    EXPECT_EQ_U64(cairn_http_in_flight(bench.engine), 0);
    atomic_store(&may_read, true);
    AWAIT(atomic_load(&ended_as) >= 0);
    EXPECT_EQ_U64(atomic_load(&ended_as), ECONNRESET);
    EXPECT(atomic_load(&arrived) < 2 * BODY_BYTES);
    cairn_http_cancel(bench.engine, &bench.request); /* over: does nothing */
    EXPECT_EQ_U64(bench.reply.limit - before, 1);
}

TEST(more_requests_than_connections_wait_their_turn_and_all_end) {
    WITH(bench, bench, open_bench(&bench, say_hello, "/"));
    struct cairn_http_request many[40];
    bench.reply.limit = 4096;
    for (size_t i = 0; i < CAIRN_COUNT(many); i++) {
        many[i] = bench.request;
        many[i].done = count_done;
        many[i].reply_buf = NULL;
        REQUIRE_OK(cairn_http_submit(bench.engine, &many[i], &err));
    }
    EXPECT_EQ_U64(cairn_http_in_flight(bench.engine), 40);
    for (int i = 0; i < 1000 && cairn_http_in_flight(bench.engine); i++)
        REQUIRE_OK(cairn_http_poll(bench.engine, 100, &err));
    EXPECT_EQ_U64(bench.reply.limit, 4096 + 40);
    EXPECT(cairn_responder_connections(bench.server) <= 4);
    for (size_t i = 0; i < CAIRN_COUNT(many); i++) EXPECT_EQ_U64(many[i].status, 200);
}

static void *wake_soon(void *engine) {
    (void)COMES(cairn_test_thread_sleeps(getpid())); /* it waits for something to happen */
    cairn_http_wake(engine);
    return NULL;
}

TEST(a_wake_from_another_thread_ends_the_wait) {
    WITH(bench, bench, open_bench(&bench, hang, "/"));
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, wake_soon, bench.engine) == 0);
    uint64_t start = cairn_mono_ms();
    REQUIRE_OK(cairn_http_poll(bench.engine, HANG_MS, &err));
    EXPECT(cairn_mono_ms() - start < HANG_MS);
    pthread_join(thread, NULL);
    start = cairn_mono_ms();
    REQUIRE_OK(cairn_http_poll(bench.engine, 60, &err));
    EXPECT(cairn_mono_ms() - start >= 59); /* the wake was used up */
}

TEST(a_unix_socket_is_spoken_to) {
    CAIRN_AUTO(bench) bench = {0};
    const char *path = TEXT("%s/http.sock", cairn_test_folder());
    struct cairn_responder_options options = {.answer = say_hello, .unix_socket = path};
    bench.server = cairn_responder_start(&options);
    REQUIRE(bench.server);
    REQUIRE(open_bench(&bench, NULL, ""));
    bench.request.url = "http://localhost/";
    bench.request.unix_socket = path;
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_TEXT(bench.reply.data, "hello");
}

TEST(proxy_variables_are_ignored) { /* http.h#2 */
    WITH(bench, bench, open_bench(&bench, say_hello, "/"));
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    enum cairn_code code = perform(&bench);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
    EXPECT_EQ_U64(code, CAIRN_OK);
}

TEST(what_cannot_be_reached_or_spoken_is_named) {
    WITH(bench, bench, open_bench(&bench, say_hello, "/"));
    bench.request.url = "http://127.0.0.1:1/path?X-Amz-Signature=abc";
    EXPECT_FAILS(perform(&bench), CAIRN_UNAVAILABLE, "http://127.0.0.1:1");
    EXPECT(!strstr(err.message, "X-Amz"));
    bench.request.url = "file:///etc/passwd";
    EXPECT_CODE(perform(&bench), CAIRN_INVALID);
}

TEST(g02_a_link_local_address_is_refused_before_anything_is_sent) { /* G02 */
    WITH(bench, bench, open_bench(&bench, say_hello, "/"));
    cairn_http_engine_free(bench.engine);
    struct cairn_http_options http = {.connect_ms = 2000, .refuses_link_local = true};
    REQUIRE_OK(cairn_http_engine_new(&http, &bench.engine, NULL));
    EACH_TEXT(text, "http://169.254.169.254/latest", "http://[fe80::1]/",
              "http://[::ffff:169.254.169.254]/", "http://2852039166/latest",
              "http://0xa9fea9fe/latest", "http://0251.0376.0251.0376/",
              "http://[64:ff9b::a9fe:a9fe]/", "http://[fd00:ec2::254]/") {
        bench.request.url = text;
        EXPECT_FAILS(perform(&bench), CAIRN_FORBIDDEN, "link-local");
        EXPECT(!bench.request.reached);
    }
    bench.request.url = bench.url;
    REQUIRE_OK(perform(&bench)); /* loopback is another thing */
}

static _Atomic bool is_silent;
static _Atomic int filter_errno; /* why a socket takes no filter; some containers may not set one */

static bool is_acknowledged(int fd) {
    int unacknowledged = 1;
    return !ioctl(fd, SIOCOUTQ, &unacknowledged) && !unacknowledged;
}

/* From now on packets of so many bytes and more are not acknowledged, and nobody is told. */
static void go_silent(int fd, uint32_t bytes) {
    struct sock_filter larger[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, bytes, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
    struct sock_fprog drop = {CAIRN_COUNT(larger), larger};
    (void)COMES(is_acknowledged(fd));
    int failed = setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &drop, sizeof drop);
    atomic_store(&filter_errno, failed ? errno : 0);
    atomic_store(&is_silent, true);
}

static void say_hello_and_go_silent(struct cairn_responder_request *request) {
    say_hello(request);
    if (!request->index) go_silent(request->fd, 0);
}

TEST(a_kept_connection_whose_peer_is_gone_costs_seconds_and_not_its_deadline) { /* E1 */
    static char body[300000];
    WITH(bench, bench, open_bench(&bench, say_hello_and_go_silent, "/"));
    bench.request.total_ms = HANG_MS;
    atomic_store(&is_silent, false);
    REQUIRE_OK(perform(&bench));
    REQUIRE_AWAIT(atomic_load(&is_silent));
    int refused = atomic_load(&filter_errno);
    if (refused) SKIP(TEXT("a socket takes no filter here: %s", strerror(refused)));
    bench.request.method = "PUT";
    bench.request.has_body = true;
    bench.request.body = (struct cairn_view){body, sizeof body};
    REQUIRE_OK(perform(&bench));
    EXPECT_EQ_TEXT(bench.reply.data, "hello");
    EXPECT_ALL_U64(bench.request.starts, 2, cairn_responder_connections(bench.server), 2);
}

/* As a peer whose kernel waits for a core with the socket's lock: it has acknowledged the head, and
 * takes the body later. */
static void take_the_body_late(struct cairn_responder_request *request) {
    int nothing = 0;
    if (request->index) {
        cairn_test_pause_ms(1200); /* pause of a stand-in: it is late */
        (void)setsockopt(request->fd, SOL_SOCKET, SO_DETACH_FILTER, &nothing, sizeof nothing);
        (void)cairn_responder_drain(request, request->body_bytes);
    }
    say_hello(request);
    if (request->index) return;
    const int at_once = 1;
    (void)setsockopt(request->fd, IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof at_once);
    go_silent(request->fd, 4000);
}

TEST(a_request_whose_head_was_acknowledged_at_once_is_not_sent_twice) { /* inside.h#10 */
    EACH_OF(bool, direct, false, true) {
        WITH(bench, bench, open_early(&bench, take_the_body_late));
        bench.request.direct = direct;
        atomic_store(&is_silent, false);
        REQUIRE_OK(perform(&bench));
        REQUIRE_AWAIT(atomic_load(&is_silent));
        int refused = atomic_load(&filter_errno);
        if (refused) SKIP(TEXT("a socket takes no filter here: %s", strerror(refused)));
        PUTS(body, BODY_BYTES);
        REQUIRE_OK(perform(&bench));
        EXPECT_ALL_U64(bench.request.starts, 1, cairn_responder_requests(bench.server), 2,
                       cairn_responder_connections(bench.server), 1);
    }
}

static void say_hello_late(struct cairn_responder_request *request) {
    if (request->index) cairn_test_pause_ms(2500); /* pause of a stand-in: it is late */
    say_hello(request);
}

TEST(a_slow_answer_over_a_kept_connection_is_waited_for) { /* E2 */
    WITH(bench, bench, open_bench(&bench, say_hello_late, "/"));
    REQUIRE_OK(perform(&bench));
    REQUIRE_OK(perform(&bench));
    EXPECT_ALL_U64(bench.request.starts, 1, cairn_responder_requests(bench.server), 2,
                   cairn_responder_connections(bench.server), 1);
}

TEST(an_error_body_beyond_its_bound_keeps_the_status) { /* S29 */
    CAIRN_AUTO(bench) bench = {.reply.limit = 4};
    REQUIRE(open_bench(&bench, answer_redirect, "/"));
    EXPECT_CODE(perform(&bench), CAIRN_PROTOCOL);
    EXPECT_EQ_U64(err.http_status, 307);
    EXPECT(bench.reply.size <= 4);
}

TEST(traces_show_listed_headers_and_parameters_only) { /* http.h#5 */
    EACH(one, FIELDS(const char *line, *shown),
         {"PUT /b/k?partNumber=3&uploadId=ab HTTP/1.1",
          "PUT /b/k?partNumber=3&uploadId=ab HTTP/1.1"},
         {"GET /b/k?X-Amz-Signature=abc&X-Amz-Expires=3 HTTP/1.1",
          "GET /b/k?X-Amz-Signature=<hidden>&X-Amz-Expires=<hidden> HTTP/1.1"},
         {"HTTP/1.1 200 OK", "HTTP/1.1 200 OK"},
         {"authorization: AWS4-HMAC-SHA256 Signature=ff", "authorization: <hidden>"},
         {"X-Amz-Security-Token: tok", "X-Amz-Security-Token: <hidden>"},
         {"X-Amz-Security-Token: /tok", "X-Amz-Security-Token: <hidden>"},
         {"authorization: /tok HTTP/1.1", "authorization: <hidden>"},
         {" /tok of a folded line", "<hidden>"}, {"to /ken", "<hidden>"},
         {"Location: http://x/?X-Amz-Signature=1", "Location: <hidden>"},
         {"X-Cairn-Grant: g", "X-Cairn-Grant: <hidden>"}, {"range: bytes=0-1", "range: bytes=0-1"},
         {"Set-Cookie : s", "<hidden>"}, {"", ""}) {
        CAIRN_AUTO(buf) text = {0};
        struct cairn_error error = {0};
        EXPECT(cairn_http_trace_redact(cairn_view_of(one->line), &text, &error) == CAIRN_OK);
        EXPECT_EQ_TEXT(text.data ? text.data : "", one->shown);
    }
}
