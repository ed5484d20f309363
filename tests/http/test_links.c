/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/*
 * Links (common/http/inside.h) against a peer that a test writes itself, plain and over TLS: one
 * that closes, stops, or says more than it was asked.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "common/http/inside.h"
#include "tests/harness.h"
#include "tests/support/certificate.h"

#define BODY_BYTES (4 * CAIRN_MIB)
#define OK_HEAD "HTTP/1.1 200 OK\r\nContent-Length: "

/* ---- the peer ---- */

struct wire {
    int fd;
    SSL *tls; /* NULL: plain */
    BIO *out; /* gathers until it is flushed */
};

struct cairn_peer {
    void (*speak)(struct cairn_peer *peer, struct wire *wire); /* a connection's whole life */
    int listener;
    SSL_CTX *context;
    struct cairn_certificate certificate;
    pthread_t thread;
    struct cairn_http_engine *engine;
    char url[64];
    atomic_uint connections;
    atomic_ullong ended_at_us; /* when the client's end was seen */
};

/* Each in records of its own; all of it leaves in one call. */
static void add(struct wire *wire, const char *text) {
    if (wire->tls)
        (void)SSL_write(wire->tls, text, (int)strlen(text));
    else
        (void)BIO_write(wire->out, text, (int)strlen(text));
}
static void flush(struct wire *wire) {
    (void)BIO_flush(wire->out);
}
static void say(struct wire *wire, const char *text) {
    add(wire, text);
    flush(wire);
}
static long hear(struct wire *wire, char *into, size_t room) {
    return wire->tls ? SSL_read(wire->tls, into, (int)room) : recv(wire->fd, into, room, 0);
}
/* Reads a head and drops so many body bytes; false at the client's end. */
static bool hear_request(struct wire *wire, uint64_t body_bytes) {
    static _Thread_local char text[65536];
    size_t size = 0;
    char *end = NULL;
    while (!end && size < sizeof text - 1) {
        long got = hear(wire, text + size, sizeof text - 1 - size);
        if (got <= 0) return false;
        size += (size_t)got;
        text[size] = '\0';
        end = strstr(text, "\r\n\r\n");
    }
    if (!end) return false;
    uint64_t body = size - (size_t)(end + 4 - text);
    while (body < body_bytes) {
        long got = hear(wire, text, sizeof text);
        if (got <= 0) return false;
        body += (uint64_t)got;
    }
    return true;
}

static void serve_one(struct cairn_peer *peer, int fd) {
    BIO *gather = BIO_new(BIO_f_buffer());
    BIO_set_write_buffer_size(gather, 65536);
    struct wire wire = {.fd = fd,
                        .tls = peer->context ? SSL_new(peer->context) : NULL,
                        .out = BIO_push(gather, BIO_new_socket(fd, BIO_NOCLOSE))};
    bool met = !wire.tls || (SSL_set_fd(wire.tls, fd) == 1 && SSL_accept(wire.tls) == 1);
    if (wire.tls) SSL_set0_wbio(wire.tls, wire.out);
    if (met) peer->speak(peer, &wire);
    if (wire.tls)
        SSL_free(wire.tls);
    else
        BIO_free_all(wire.out);
    close(fd);
}

static void *peer_main(void *argument) {
    struct cairn_peer *peer = argument;
    for (;;) {
        int fd = accept(peer->listener, NULL, NULL);
        if (fd < 0) return NULL;
        atomic_fetch_add(&peer->connections, 1);
        serve_one(peer, fd);
    }
}

static void cairn_peer_release(struct cairn_peer *peer) {
    cairn_http_engine_free(peer->engine);
    if (peer->thread) {
        shutdown(peer->listener, SHUT_RDWR);
        pthread_join(peer->thread, NULL);
    }
    close(peer->listener);
    SSL_CTX_free(peer->context);
}

static bool open_tls(struct cairn_peer *peer) {
    cairn_certificate_make("links", "IP:127.0.0.1", -3600, 3600, &peer->certificate);
    peer->context = SSL_CTX_new(TLS_server_method());
    return peer->context &&
           SSL_CTX_use_certificate_chain_file(peer->context, peer->certificate.certificate) == 1 &&
           SSL_CTX_use_PrivateKey_file(peer->context, peer->certificate.key, SSL_FILETYPE_PEM) == 1;
}

static bool open_peer(struct cairn_peer *peer, void (*speak)(struct cairn_peer *, struct wire *),
                      bool tls) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    peer->speak = speak;
    signal(SIGPIPE, SIG_IGN); /* of the peer's side */
    peer->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (tls && !open_tls(peer)) return false;
    if (bind(peer->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(peer->listener, 16) != 0 ||
        getsockname(peer->listener, (struct sockaddr *)&at, &size) != 0)
        return false;
    snprintf(peer->url, sizeof peer->url, "%s://127.0.0.1:%u/x", tls ? "https" : "http",
             ntohs(at.sin_port));
    struct cairn_http_options options = {.ca_bundle = tls ? peer->certificate.certificate : NULL};
    return cairn_http_engine_new(&options, &peer->engine, NULL) == CAIRN_OK &&
           pthread_create(&peer->thread, NULL, peer_main, peer) == 0;
}

/* ---- requests ---- */

static struct cairn_http_request get_of(const struct cairn_peer *peer, struct cairn_buf *reply) {
    return (struct cairn_http_request){
        .method = "GET", .url = peer->url, .reply_buf = reply, .direct = true, .stall_ms = HANG_MS};
}

static void puts_body(struct cairn_http_request *request, struct cairn_view body) {
    request->method = "PUT";
    request->has_body = true;
    request->body = body;
}

/* A peer that speaks so, and a request of it. */
#define LINK(speak, tls)                                                                           \
    CAIRN_AUTO(peer) peer = {0};                                                                   \
    CAIRN_AUTO(buf) reply = {0};                                                                   \
    REQUIRE(open_peer(&peer, speak, tls));                                                         \
    struct cairn_http_request request = get_of(&peer, &reply)

static void run_for(struct cairn_http_engine *engine, uint32_t ms) {
    uint64_t until = cairn_mono_ms() + ms;
    struct cairn_error error;
    while (cairn_mono_ms() < until) EXPECT(!cairn_http_poll(engine, 10, &error));
}

/* ---- kept ones ---- */

static void answer_all(struct cairn_peer *peer, struct wire *wire) {
    (void)peer;
    while (hear_request(wire, 0)) say(wire, OK_HEAD "5\r\n\r\nhello");
}

TEST(requests_one_after_another_go_over_one_link) {
    for (int tls = 0; tls < 2; tls++) {
        CAIRN_AUTO(peer) peer = {0};
        CAIRN_AUTO(buf) reply = {0};
        struct cairn_error err = {0};
        REQUIRE(open_peer(&peer, answer_all, tls));
        for (int i = 0; i < 4; i++) {
            struct cairn_http_request request = get_of(&peer, &reply);
            request.headers = (const char *const[]){"Authorization: canary-of-a-test"};
            request.header_count = 1;
            cairn_buf_clear(&reply);
            REQUIRE_OK(cairn_http_perform(peer.engine, &request, &err));
            EXPECT_EQ_TEXT(reply.data, "hello");
            run_for(peer.engine, 20); /* session tickets come in between */
        }
        EXPECT_EQ_U64(atomic_load(&peer.connections), 1);
        /* What signed the request is not kept behind it. */
        const struct cairn_buf *head = &TAILQ_FIRST(&peer.engine->idle)->head;
        REQUIRE(head->data && head->capacity > 60);
        EXPECT(!memmem(head->data, head->capacity, "canary", 6));
    }
}

/* ---- whom it believes ---- */

/* A request of a new engine, to which the caller names this bundle. */
static enum cairn_code ask(struct cairn_peer *peer, const char *bundle,
                           enum cairn_http_tls_fault *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) reply = {0};
    struct cairn_http_request request = get_of(peer, &reply);
    const struct cairn_http_options options = {.ca_bundle = bundle};
    cairn_http_engine_free(peer->engine);
    peer->engine = NULL;
    CAIRN_TRY(cairn_http_engine_new(&options, &peer->engine, err));
    enum cairn_code code = cairn_http_perform(peer->engine, &request, err);
    *ret = request.tls_fault;
    return code;
}

TEST(without_a_bundle_a_peer_is_believed_by_the_file_that_ssl_cert_file_names, err) {
    struct cairn_certificate other;
    enum cairn_http_tls_fault fault;
    CAIRN_AUTO(peer) peer = {0};
    REQUIRE(open_peer(&peer, answer_all, true));
    cairn_certificate_make("other", "IP:127.0.0.1", -3600, 3600, &other);
    const char *named = getenv("SSL_CERT_FILE"), *before = named ? TEXT("%s", named) : NULL;
    setenv("SSL_CERT_FILE", peer.certificate.certificate, 1);
    EXPECT_CODE(ask(&peer, NULL, &fault, &err), CAIRN_OK);
    EXPECT_CODE(ask(&peer, other.certificate, &fault, &err), CAIRN_FORBIDDEN);
    EXPECT_EQ_U64(fault, CAIRN_HTTP_TLS_AUTHORITY);
    setenv("SSL_CERT_FILE", other.certificate, 1);
    EXPECT_CODE(ask(&peer, NULL, &fault, &err), CAIRN_FORBIDDEN);
    EXPECT_CODE(ask(&peer, peer.certificate.certificate, &fault, &err), CAIRN_OK);
    setenv("SSL_CERT_FILE", "/nonexistent/ca.pem", 1);
    EXPECT_CODE(ask(&peer, NULL, &fault, &err), CAIRN_INVALID);
    EXPECT_EQ_U64(fault, CAIRN_HTTP_TLS_FILE);
    unsetenv("SSL_CERT_FILE");
    EXPECT_CODE(ask(&peer, NULL, &fault, &err), CAIRN_FORBIDDEN);
    if (before) setenv("SSL_CERT_FILE", before, 1);
}

/* A thread whose folder of the system's certificates has the peer's. */
struct believer {
    struct cairn_peer *peer;
    const char *bundle, *folder;
    bool mounted;
    enum cairn_code code;
};

static void *ask_with_folder(void *owner) {
    struct believer *believer = owner;
    enum cairn_http_tls_fault fault;
    struct cairn_error err = {0};
    const char *system = curl_version_info(CURLVERSION_NOW)->capath;
    believer->mounted = system && unshare(CLONE_NEWNS) == 0 &&
                        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                        mount(believer->folder, system, NULL, MS_BIND, NULL) == 0;
    if (believer->mounted) believer->code = ask(believer->peer, believer->bundle, &fault, &err);
    return NULL;
}

static bool believes(struct believer *believer) {
    pthread_t thread;
    return pthread_create(&thread, NULL, ask_with_folder, believer) == 0 &&
           pthread_join(thread, NULL) == 0 && believer->mounted;
}

/* As c_rehash makes them: a link by the hash of the subject. */
static bool link_by_subject(const char *certificate, const char *folder) {
    FILE *file = fopen(certificate, "re");
    X509 *found = file ? PEM_read_X509(file, NULL, NULL, NULL) : NULL;
    unsigned long hash = found ? X509_subject_name_hash(found) : 0;
    if (file) fclose(file);
    X509_free(found);
    return found && symlink(certificate, TEXT("%s/%08lx.0", folder, hash)) == 0;
}

TEST(with_a_bundle_the_systems_folder_is_believed_no_more, err) {
    CAIRN_AUTO(peer) peer = {0};
    CAIRN_AUTO(buf) authorities = {0};
    REQUIRE(open_peer(&peer, answer_all, true));
    const char *folder = TEXT("%s/folder", cairn_test_folder());
    const char *bundle = TEXT("%s/bundle.pem", cairn_test_folder());
    const char *all = curl_version_info(CURLVERSION_NOW)->cainfo;
    if (!all || cairn_file_load(all, &authorities, &err) != CAIRN_OK)
        SKIP("libcurl has no file of the system's authorities");
    REQUIRE(mkdir(folder, 0755) == 0 && link_by_subject(peer.certificate.certificate, folder));
    /* The folder hides Debian's file, which lies in it. */
    REQUIRE_OK(cairn_file_replace(bundle, cairn_buf_view(&authorities), 0644, &err));
    REQUIRE(symlink(bundle, TEXT("%s/%s", folder, strrchr(all, '/') + 1)) == 0);
    struct believer believer = {&peer, NULL, folder, false, CAIRN_OK};
    if (!believes(&believer)) SKIP("mounting needs root, and libcurl a folder of certificates");
    EXPECT_EQ_U64(believer.code, CAIRN_OK);
    believer.bundle = bundle;
    REQUIRE(believes(&believer));
    EXPECT_EQ_U64(believer.code, CAIRN_FORBIDDEN);
}

TEST(where_libcurl_has_no_file_of_certificates_the_first_of_the_systems_is_taken) {
    struct cairn_certificate made;
    cairn_certificate_make("made", "IP:127.0.0.1", -3600, 3600, &made);
    const char *const files[] = {"/nonexistent/a.pem", made.certificate, made.key};
    const char *named = getenv("SSL_CERT_FILE"), *before = named ? TEXT("%s", named) : NULL;
    unsetenv("SSL_CERT_FILE");
    EXPECT(cairn_http_system_ca("/nonexistent/b.pem", files, 3) == files[1]);
    EXPECT(cairn_http_system_ca(NULL, files, 3) == files[1]);
    EXPECT(cairn_http_system_ca(made.key, files, 3) == NULL); /* libcurl's own is there */
    EXPECT(cairn_http_system_ca("/nonexistent/b.pem", files, 1) == NULL);
    setenv("SSL_CERT_FILE", "", 1);
    EXPECT(cairn_http_system_ca(NULL, files, 3) == files[1]);
    if (before)
        setenv("SSL_CERT_FILE", before, 1);
    else
        unsetenv("SSL_CERT_FILE");
}

/* ---- replies that nobody asked for ---- */

#define TALK_BYTES 20000

/* Both at once and, over TLS, in records of their own: the second waits within OpenSSL when the
 * first is whole, and the socket shows nothing of it. */
static void answer_twice(struct cairn_peer *peer, struct wire *wire) {
    static _Thread_local char text[2][TALK_BYTES + 200];
    (void)peer;
    for (int i = 0; i < 2; i++) {
        int head = snprintf(text[i], sizeof text[i], OK_HEAD "%d\r\n\r\n", TALK_BYTES);
        memset(text[i] + head, "hw"[i], TALK_BYTES);
        text[i][head + TALK_BYTES] = '\0';
    }
    while (hear_request(wire, 0)) {
        add(wire, text[0]);
        add(wire, text[1]);
        flush(wire);
    }
}

/* common/http/inside.h#13, #5 */
TEST(a_reply_that_nobody_asked_for_answers_no_later_request) {
    for (int tls = 0; tls < 2; tls++) {
        struct cairn_error err = {0};
        WITH(peer, peer, open_peer(&peer, answer_twice, tls));
        for (int i = 0; i < 4; i++) {
            CAIRN_AUTO(buf) reply = {0};
            struct cairn_http_request request = get_of(&peer, &reply);
            REQUIRE_OK(cairn_http_perform(peer.engine, &request, &err));
            EXPECT_EQ_U64(reply.size, TALK_BYTES);
            EXPECT(reply.data[0] == 'h' && reply.data[TALK_BYTES - 1] == 'h');
        }
    }
}

static void answer_and_close(struct cairn_peer *peer, struct wire *wire) {
    char rest[64];
    if (!hear_request(wire, 0)) return;
    say(wire, OK_HEAD "5\r\n\r\nhello");
    shutdown(wire->fd, SHUT_WR);
    while (recv(wire->fd, rest, sizeof rest, 0) > 0) continue;
    atomic_store(&peer->ended_at_us, cairn_mono_us());
}

TEST(what_the_peer_has_closed_does_not_stay_open_here, err) {
    LINK(answer_and_close, false);
    REQUIRE_OK(cairn_http_perform(peer.engine, &request, &err));
    AWAIT((run_for(peer.engine, 10), atomic_load(&peer.ended_at_us)));
}

/* ---- stalls ---- */

static _Atomic bool is_heard, is_answered, nobody_looks;

static void answer_unseen(struct cairn_peer *peer, struct wire *wire) {
    (void)peer;
    while (hear_request(wire, 0)) {
        is_heard = true;
        (void)COMES(nobody_looks);
        say(wire, OK_HEAD "5\r\n\r\nhello");
        is_answered = true;
    }
}

TEST(a_reply_that_came_while_nobody_looked_is_no_stall, err) {
    is_heard = is_answered = nobody_looks = false;
    LINK(answer_unseen, false);
    request.stall_ms = 500;
    REQUIRE_OK(cairn_http_submit(peer.engine, &request, &err));
    while (!is_heard && request.engine_private) REQUIRE_OK(cairn_http_poll(peer.engine, 1, &err));
    nobody_looks = true;
    REQUIRE_AWAIT(is_answered);
    cairn_test_pause_ms(900); /* pause of a stand-in: an owner who has something else to do */
    while (request.engine_private) REQUIRE_OK(cairn_http_poll(peer.engine, 100, &err));
    EXPECT(request.code == CAIRN_OK);
    EXPECT_EQ_U64(request.status, 200);
}

static void take_and_be_silent(struct cairn_peer *peer, struct wire *wire) {
    char rest[64];
    (void)peer;
    if (hear_request(wire, BODY_BYTES)) (void)hear(wire, rest, sizeof rest);
}

TEST(a_peer_that_takes_all_and_says_nothing_is_given_up_in_time) { /* S14 */
    CAIRN_AUTO_HEAP char *body = calloc(1, BODY_BYTES);
    REQUIRE(body);
    for (int tls = 0; tls < 2; tls++) {
        struct cairn_error err = {0};
        LINK(take_and_be_silent, tls);
        puts_body(&request, (struct cairn_view){body, BODY_BYTES});
        request.stall_ms = 2000;
        uint64_t from = cairn_mono_ms();
        EXPECT(cairn_http_perform(peer.engine, &request, &err) == CAIRN_TIMEOUT);
        EXPECT(cairn_mono_ms() - from >= 2000);
        EXPECT_HAS(err.message, "2000 ms");
    }
}

#define SLOW_BYTES 240000

static _Atomic uint64_t longest_ms; /* between two pieces that it takes */

static void take_slowly(struct cairn_peer *peer, struct wire *wire) {
    (void)peer;
    char text[8192];
    for (size_t got = 0; got < SLOW_BYTES;) {
        uint64_t since_ms = cairn_mono_ms();
        cairn_test_pause_ms(80); /* pause of a stand-in: it takes slowly */
        long more = hear(wire, text, sizeof text);
        longest_ms = cairn_max_u64(longest_ms, cairn_mono_ms() - since_ms);
        if (more <= 0) return;
        got += (size_t)more;
    }
    say(wire, OK_HEAD "5\r\n\r\nhello");
    (void)hear_request(wire, 0);
}

/* All of the body is with the kernel at once; only its queue tells that the peer lives. */
TEST(a_peer_that_takes_slowly_what_was_sent_is_no_stall) { /* S14 */
    CAIRN_AUTO_HEAP char *body = calloc(1, SLOW_BYTES);
    for (int tls = 0, tries = 0; tls < 2;) {
        CAIRN_AUTO(peer) peer = {0};
        CAIRN_AUTO(buf) reply = {0};
        struct cairn_error err = {0};
        int small = 4096;
        longest_ms = 0;
        REQUIRE(body && open_peer(&peer, take_slowly, tls));
        REQUIRE(setsockopt(peer.listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
        struct cairn_http_request request = get_of(&peer, &reply);
        puts_body(&request, (struct cairn_view){body, SLOW_BYTES});
        request.stall_ms = 1000;
        enum cairn_code code = cairn_http_perform(peer.engine, &request, &err);
        /* Of a peer that a busy machine keeps from taking anything nothing is shown. */
        if (code == CAIRN_TIMEOUT && longest_ms > 500 && tries++ < 20) continue;
        REQUIRE_OK(code);
        tls++;
        EXPECT(request.reply_at_us - request.sent_at_us > 1500000); /* else nothing was shown */
    }
}

/* Asks for a new handshake when the request is there, and answers after it. */
static void answer_after_renegotiation(struct cairn_peer *peer, struct wire *wire) {
    char byte;
    (void)peer;
    if (!hear_request(wire, 0) || SSL_renegotiate(wire->tls) != 1) return;
    (void)SSL_do_handshake(wire->tls); /* asks */
    flush(wire);
    struct timeval patience = {.tv_usec = 50000};
    setsockopt(wire->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (int i = 0; i < 60 && SSL_renegotiate_pending(wire->tls); i++) {
        if (SSL_peek(wire->tls, &byte, 1) <= 0 && SSL_get_error(wire->tls, -1) == SSL_ERROR_SSL)
            return;
        flush(wire);
    }
    if (!SSL_renegotiate_pending(wire->tls)) say(wire, OK_HEAD "5\r\n\r\nhello");
}

TEST(a_handshake_in_the_middle_of_a_request_is_answered, err) {
    CAIRN_AUTO(peer) peer = {0};
    CAIRN_AUTO(buf) reply = {0};
    REQUIRE(open_peer(&peer, answer_after_renegotiation, true));
    SSL_CTX_set_max_proto_version(peer.context, TLS1_2_VERSION);
    struct cairn_http_request request = get_of(&peer, &reply);
    REQUIRE_OK(cairn_http_perform(peer.engine, &request, &err));
    EXPECT_EQ_TEXT(reply.data, "hello");
}

/* ---- no busy waiting ---- */

static void answer_early_and_leave(struct cairn_peer *peer, struct wire *wire) {
    (void)peer;
    if (hear_request(wire, 0)) say(wire, OK_HEAD "5\r\n\r\nhello");
}

static uint64_t cpu_us(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST(a_peer_that_left_in_the_middle_of_a_paced_body_costs_no_cpu, err) {
    CAIRN_AUTO_HEAP char *body = calloc(1, BODY_BYTES);
    REQUIRE(body);
    LINK(answer_early_and_leave, false);
    puts_body(&request, (struct cairn_view){body, BODY_BYTES});
    request.send_bytes_per_s = 400000;
    uint64_t before = cpu_us(), from = cairn_mono_us();
    enum cairn_code code = cairn_http_perform(peer.engine, &request, &err);
    EXPECT(code == CAIRN_OK || code == CAIRN_UNAVAILABLE);
    uint64_t took = cairn_mono_us() - from;
    EXPECT(cpu_us() - before < 60000 + took / 10);
}

#define PACED_BYTES 150000
static void take_body(struct cairn_peer *peer, struct wire *wire) {
    (void)peer;
    while (hear_request(wire, PACED_BYTES)) say(wire, OK_HEAD "5\r\n\r\nhello");
}

TEST(a_pace_slower_than_the_stall_is_no_stall, err) {
    CAIRN_AUTO_HEAP char *body = calloc(1, BODY_BYTES);
    REQUIRE(body);
    LINK(take_body, false);
    puts_body(&request, (struct cairn_view){body, PACED_BYTES});
    request.send_bytes_per_s = 50000;
    request.stall_ms = 1000;
    uint64_t from = cairn_mono_ms();
    REQUIRE_OK(cairn_http_perform(peer.engine, &request, &err));
    EXPECT_EQ_U64(request.sent_bytes, PACED_BYTES);
    EXPECT(cairn_mono_ms() - from >= 2000); /* and the pace was kept */
}
