/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S28: names that do not resolve, addresses that are dead, and certificates that are wrong. */
#include <netinet/in.h>

#include "tests/s3faults/cases.h"
#include "tests/support/certificate.h"

static enum cairn_code head(struct cairn_s3world *world) {
    struct cairn_store_request request = {.op = CAIRN_STORE_HEAD, .key = "k"};
    return cairn_store_perform(world->worker, &request, &world->error);
}

TEST(s28_a_name_that_does_not_resolve_is_waited_for_within_the_deadline) {
    WORLD(.s3 = {.endpoint = "http://no-such-host.invalid:9",
                 .allow_plain_http = true,
                 .connect_ms = 300,
                 .deadline_ms = 1200});
    uint64_t began = cairn_mono_ms();
    enum cairn_code code = head(&world);
    EXPECT(code == CAIRN_TIMEOUT || code == CAIRN_UNAVAILABLE);
    EXPECT(strstr(err.message, "no-such-host.invalid") != NULL);
    EXPECT(cairn_mono_ms() - began < 60000);
}

TEST(s28_a_dead_address_of_a_name_is_passed_over) {
    WORLD(.host = "localhost"); /* also ::1, where nobody listens */
    EXPECT(cairn_case_is_durable(&world, "", "shard"));
}

TEST(s28_a_refused_connection_is_waited_for_within_the_deadline) {
    WORLD(.s3 = {.deadline_ms = 1000});
    cairn_daemon_release(&world.daemon);
    uint64_t began = cairn_mono_ms();
    enum cairn_code code = head(&world);
    EXPECT(code == CAIRN_TIMEOUT || code == CAIRN_UNAVAILABLE);
    EXPECT(cairn_mono_ms() - began < 60000);
}

/* What is tried again is so for this long, and ends with TIMEOUT; other answers come at once. */
#define PATIENCE_MS 60000

/* A server with this certificate; what a client says that trusts only `trusted`. */
static enum cairn_code head_over_tls(const struct cairn_certificate *tls, const char *trusted,
                                     const char *rules, char ret_message[320]) {
    CAIRN_AUTO(s3world) world = {0};
    struct cairn_s3world_options options = {
        .tls_certificate = tls->certificate,
        .tls_key = tls->key,
        .rules = rules,
        .s3 = {.ca_bundle = trusted, .deadline_ms = PATIENCE_MS, .stall_ms = PATIENCE_MS}};
    if (!EXPECT(cairn_s3world_start(&world, &options) == CAIRN_OK)) return CAIRN_INTERNAL;
    enum cairn_code code = head(&world);
    snprintf(ret_message, 320, "%s", err.message);
    return code;
}
#undef err

TEST(s28_a_wrong_certificate_fails_closed_and_at_once) {
    struct cairn_certificate good, ended, later, other;
    struct cairn_error err = {0};
    cairn_certificate_make("good", "IP:127.0.0.1", -3600, 3600, &good);
    cairn_certificate_make("ended", "IP:127.0.0.1", -7200, -3600, &ended);
    cairn_certificate_make("later", "IP:127.0.0.1", 7200, 14400, &later);
    cairn_certificate_make("other", "DNS:s3.example", -3600, 3600, &other);
    /* of another host */
    EACH(one,
         FIELDS(const struct cairn_certificate *tls; const char *trusted; enum cairn_code code),
         {&good, good.certificate, CAIRN_NOT_FOUND},  /* it works, and the key is absent */
         {&good, other.certificate, CAIRN_FORBIDDEN}, /* self-signed, not trusted */
         {&good, NULL, CAIRN_FORBIDDEN}, {&ended, ended.certificate, CAIRN_FORBIDDEN},
         {&later, later.certificate, CAIRN_FORBIDDEN},
         {&other, other.certificate, CAIRN_FORBIDDEN}) {
        enum cairn_code code = head_over_tls(one->tls, one->trusted, "", err.message);
        EXPECT_CODE(code, one->code);
    }
}

TEST(s28_a_certificate_that_is_not_believed_names_the_setting_and_what_is_wrong_with_its_file) {
    struct cairn_certificate good, other;
    char message[320];
    cairn_certificate_make("good", "IP:127.0.0.1", -3600, 3600, &good);
    cairn_certificate_make("other", "IP:127.0.0.1", -3600, 3600, &other);
    EXPECT(head_over_tls(&good, other.certificate, "", message) == CAIRN_FORBIDDEN);
    EXPECT(strstr(message, "ca_bundle"));
    EXPECT(head_over_tls(&good, "/nowhere/ca.pem", "", message) == CAIRN_INVALID);
    EXPECT_HAS(message, "/nowhere/ca.pem", "No such file");
    EXPECT(head_over_tls(&good, "/dev/null", "", message) == CAIRN_INVALID);
    EXPECT(strstr(message, "no certificate in PEM form"));
}

TEST(s28_a_cut_handshake_is_tried_again) {
    struct cairn_certificate tls;
    struct cairn_error err = {0};
    cairn_certificate_make("good", "IP:127.0.0.1", -3600, 3600, &tls);
    EACH_TEXT(text, "op=connect nth=1 : rst@0", "op=connect nth=1 : rst@1",
              "op=connect nth=1 : fin@1", "op=head nth=1 : rst@h10") {
        enum cairn_code code = head_over_tls(&tls, tls.certificate, text, err.message);
        EXPECT_CODE(code, CAIRN_NOT_FOUND);
    }
}
#define err (world.error)

TEST(s28_tls_carries_a_whole_shard_and_a_cut_reply_without_close_notify_is_no_success) {
    struct cairn_certificate tls;
    cairn_certificate_make("good", "IP:127.0.0.1", -3600, 3600, &tls);
    WORLD(.tls_certificate = tls.certificate, .tls_key = tls.key,
          .s3 = {.ca_bundle = tls.certificate});
    ALL_BECOME_DURABLE("op=complete nth=1 : fin@50%", "op=part nth=2 : req-fin@50%",
                       "op=complete nth=1 : drop-header=Content-Length, fin@-5");
}

TEST(s28_from_https_nothing_leads_to_plain_http) {
    struct cairn_certificate tls;
    cairn_certificate_make("good", "IP:127.0.0.1", -3600, 3600, &tls);
    WORLD(.tls_certificate = tls.certificate, .tls_key = tls.key,
          .s3 = {.ca_bundle = tls.certificate});
    EXPECT(cairn_case_fails(&world, "op=part : redirect=http://127.0.0.1:9/x/307", CAIRN_STORE));
    EXPECT(cairn_s3world_acted(&world, 0) <= 3);
}

/* A port of this machine; `talks`: it answers whatever comes as web servers answer what they do not
 * understand, else it says nothing for ever. */
struct cairn_plain_peer {
    int listener;
    pthread_t thread;
    bool talks;
    char endpoint[64];
};
static void cairn_plain_peer_release(struct cairn_plain_peer *peer) {
    shutdown(peer->listener, SHUT_RDWR);
    if (peer->talks) pthread_join(peer->thread, NULL);
    close(peer->listener);
}

static void *refuse_all(void *argument) {
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n"
                                 "Content-Length: 11\r\nConnection: close\r\n\r\nBad Request";
    const struct cairn_plain_peer *peer = argument;
    int fd;
    while ((fd = accept(peer->listener, NULL, NULL)) >= 0) {
        char said[4096];
        if (recv(fd, said, sizeof said, 0) > 0) (void)send(fd, answer, sizeof answer - 1, 0);
        shutdown(fd, SHUT_WR);
        while (recv(fd, said, sizeof said, 0) > 0) continue;
        close(fd);
    }
    return NULL;
}

static bool start_peer(struct cairn_plain_peer *peer) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    peer->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(peer->listener, (struct sockaddr *)&address, size) != 0 ||
        listen(peer->listener, 16) != 0 ||
        getsockname(peer->listener, (struct sockaddr *)&address, &size) != 0)
        return false;
    snprintf(peer->endpoint, sizeof peer->endpoint, "https://127.0.0.1:%u",
             ntohs(address.sin_port));
    return !peer->talks || pthread_create(&peer->thread, NULL, refuse_all, peer) == 0;
}

TEST(s28_a_port_that_answers_in_the_clear_where_tls_is_due_is_refused_at_once) {
    CAIRN_AUTO(plain_peer) peer = {.talks = true};
    REQUIRE(start_peer(&peer));
    WORLD(.s3 = {.endpoint = peer.endpoint, .deadline_ms = PATIENCE_MS});
    EXPECT_CODE(head(&world), CAIRN_INVALID); /* TIMEOUT where it is tried again */
    EXPECT(strstr(err.message, "https://127.0.0.1") != NULL);
}

TEST(s28_a_port_that_says_nothing_where_tls_is_due_is_given_up) {
    WITH(plain_peer, peer, start_peer(&peer));
    WORLD(.s3 = {.endpoint = peer.endpoint, .connect_ms = 300, .deadline_ms = 1200});
    uint64_t began = cairn_mono_ms();
    EXPECT_CODE(head(&world), CAIRN_TIMEOUT);
    EXPECT(cairn_mono_ms() - began >= 300);
    EXPECT(strstr(err.message, "127.0.0.1") != NULL);
}
