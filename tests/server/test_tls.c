/* SPDX-License-Identifier: Apache-2.0 */
/* HTTPS: certificates that are believed, changed and refused (G02). */
#include "tests/server/world.h"
#include "tests/support/certificate.h"

#define DAY 86400
static struct cairn_error err;

static bool copy_file(const char *from, const char *to, unsigned mode) {
    CAIRN_AUTO(buf) text = {0};
    return !cairn_file_load(from, &text, &err) &&
           !cairn_file_replace(to, cairn_buf_view(&text), mode, &err);
}

/* A server with a certificate of its own. */
struct site {
    struct cairn_world world;
    char certificate[400], key[400]; /* that the server reads */
    struct cairn_certificate one, two;
};
static void site_release(struct site *site) {
    cairn_world_release(&site->world);
}
#define AUTO_SITE __attribute__((cleanup(site_release))) struct site

static bool use(struct site *site, const struct cairn_certificate *certificate,
                const struct cairn_certificate *key) {
    return copy_file(certificate->certificate, site->certificate, 0644) &&
           copy_file(key->key, site->key, 0600);
}

static bool open_site(struct site *site, const struct cairn_certificate *key, unsigned mode) {
    snprintf(site->certificate, sizeof(site->certificate), "%.200s/tls.crt", cairn_test_folder());
    snprintf(site->key, sizeof(site->key), "%.200s/tls.key", cairn_test_folder());
    const char *certificate = TEXT("--tls-cert=%s", site->certificate);
    const char *key_flag = TEXT("--tls-key=%s", site->key);
    cairn_certificate_make("one", "IP:127.0.0.1", -DAY, DAY, &site->one);
    cairn_certificate_make("two", "IP:127.0.0.1", -DAY, DAY, &site->two);
    return use(site, &site->one, key ? key : &site->one) && !chmod(site->key, mode) &&
           world_start(&site->world, WORLD_ARGS(certificate, key_flag), NULL);
}

/* With the certificate's file as what is believed; NULL: the system's. */
static enum cairn_code ask(const struct site *site, const char *scheme, const char *ca) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    struct cairn_rest_options options = {
        .url = TEXT("%s://127.0.0.1:%u", scheme, site->world.server.port),
        .ca_bundle = ca,
        .timeout_ms = 5000};
    CAIRN_TRY(cairn_rest_new(&options, &rest, &err));
    return cairn_rest_call(rest, "GET", "/v1/runs", NULL, 0, NULL, &err);
}

TEST(with_a_certificate_only_https_is_spoken_and_only_who_believes_it_is_served) {
    AUTO_SITE site = {0};
    REQUIRE(open_site(&site, NULL, 0600));
    EXPECT_CODE(ask(&site, "https", site.one.certificate), CAIRN_OK);
    EXPECT(ask(&site, "https", NULL) != CAIRN_OK);
    EXPECT(ask(&site, "https", site.two.certificate) != CAIRN_OK);
    EXPECT(ask(&site, "http", NULL) != CAIRN_OK);
    /* A save over it, with what waits and what has a body. */
    struct cairn_rest_options options = {.url =
                                             TEXT("https://127.0.0.1:%u", site.world.server.port),
                                         .ca_bundle = site.one.certificate};
    cairn_rest_free(site.world.rest);
    site.world.rest = NULL;
    REQUIRE_OK(cairn_rest_new(&options, &site.world.rest, &err));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(hand_open(&site.world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_save_all(&hand, 100, 1, "error", 3000000, &save));
    WITH_OK(buf, bytes,
            cairn_rest_bytes(site.world.rest, "GET", TEXT("%s/shards/rank-00000/x/data", save.path),
                             NULL, CAIRN_VIEW(""), NULL, &bytes, &err));
    EXPECT_EQ_U64(bytes.size, 3000000);
}

/* The library answers that by itself, and we before it (http/reply.c). */
TEST(what_the_library_refuses_is_a_problem_over_tls_too) {
    AUTO_SITE site = {0};
    static char path[40000];
    CAIRN_AUTO_PTR(rest) rest = NULL;
    REQUIRE(open_site(&site, NULL, 0600));
    memset(path, 'a', sizeof(path) - 1);
    path[0] = '/';
    struct cairn_rest_options options = {.url =
                                             TEXT("https://127.0.0.1:%u", site.world.server.port),
                                         .ca_bundle = site.one.certificate};
    REQUIRE_OK(cairn_rest_new(&options, &rest, &err));
    EXPECT_CODE(cairn_rest_call(rest, "GET", path, NULL, 0, NULL, &err), CAIRN_INVALID);
    EXPECT(cairn_rest_spoke(rest));
    EXPECT_CODE(ask(&site, "https", site.one.certificate), CAIRN_OK);
}

TEST(a_hangup_makes_it_read_certificate_and_key_again_and_bad_ones_are_not_taken) {
    AUTO_SITE site = {0};
    REQUIRE(open_site(&site, NULL, 0600));
    EXPECT_CODE(ask(&site, "https", site.one.certificate), CAIRN_OK);
    REQUIRE(use(&site, &site.two, &site.one)); /* no pair */
    REQUIRE(!kill(site.world.server.pid, SIGHUP));
    AWAIT(cairn_daemon_logged(&site.world.server, "tls.kept"));
    EXPECT(cairn_daemon_logged(&site.world.server, "is not the key of the certificate"));
    EXPECT_CODE(ask(&site, "https", site.one.certificate), CAIRN_OK);
    REQUIRE(use(&site, &site.two, &site.two));
    REQUIRE(!kill(site.world.server.pid, SIGHUP));
    AWAIT(cairn_daemon_logged(&site.world.server, "changed=1"));
    EXPECT_CODE(ask(&site, "https", site.two.certificate), CAIRN_OK);
    EXPECT(ask(&site, "https", site.one.certificate) != CAIRN_OK);
}

TEST(a_key_that_everybody_reads_or_that_is_anothers_ends_the_start) {
    struct cairn_certificate other;
    AUTO_SITE open = {0}, wrong = {0}, half = {0}, absent = {0};
    cairn_certificate_make("other", "IP:127.0.0.1", -DAY, DAY, &other);
    EXPECT(!open_site(&open, NULL, 0644));
    EXPECT(strstr(open.world.err.message, "chmod 600"));
    EXPECT(!open_site(&wrong, &other, 0600));
    EXPECT(strstr(wrong.world.err.message, "is not the key of the certificate"));
    EXPECT(!world_start(&half.world, WORLD_ARGS("--tls-cert=/x"), NULL));
    EXPECT(strstr(half.world.err.message, "give both or none"));
    EXPECT(!world_start(&absent.world,
                        WORLD_ARGS("--tls-cert=/nowhere/tls.crt", "--tls-key=/nowhere/tls.key"),
                        NULL));
    EXPECT(strstr(absent.world.err.message, "tls-cert: open /nowhere/tls.crt"));
}
