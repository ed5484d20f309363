/* SPDX-License-Identifier: Apache-2.0 */
/* Settings and small rules of the S3 store that need no server. */
#include "store/s3_config.h"

#include "store/s3_codes.h"
#include "store/s3_hedge.h"
#include "tests/harness.h"

TEST(the_limit_of_waiting_follows_the_usual_time_and_stops_at_five_seconds) {
    struct cairn_s3_hedge hedge = {0};
    EXPECT(cairn_s3_hedge_limit_us(&hedge) == UINT64_MAX);
    for (int i = 0; i < 10; i++) cairn_s3_hedge_answer(&hedge, 200000);
    EXPECT_EQ_U64(cairn_s3_hedge_limit_us(&hedge), 1000000);
    for (int i = 0; i < 2000; i++) cairn_s3_hedge_answer(&hedge, 200000);
    EXPECT_EQ_U64(cairn_s3_hedge_limit_us(&hedge), 900000);
    for (int i = 0; i < 3; i++) cairn_s3_hedge_resent(&hedge);
    EXPECT_EQ_U64(cairn_s3_hedge_limit_us(&hedge), 1000000); /* 3 of 2,003 */
    for (int i = 0; i < 200; i++) cairn_s3_hedge_resent(&hedge);
    EXPECT(cairn_s3_hedge_limit_us(&hedge) == UINT64_MAX);
}

TEST(codes_of_stores_win_over_the_status_and_unknown_ones_do_not) {
    EXPECT_EQ_U64(cairn_s3_meaning_of("SlowDown", 200).policy, CAIRN_S3_SLOW_DOWN);
    EXPECT_EQ_U64(cairn_s3_meaning_of("ExpiredToken", 400).policy, CAIRN_S3_KEYS);
    EXPECT_EQ_U64(cairn_s3_meaning_of("NeverHeardOf", 503).policy, CAIRN_S3_SLOW_DOWN);
    EXPECT_EQ_U64(cairn_s3_meaning_of("", 599).policy, CAIRN_S3_REPEAT);
    EXPECT_EQ_U64(cairn_s3_meaning_of("", 200).code, CAIRN_PROTOCOL);
    EXPECT_EQ_U64(cairn_s3_meaning_of("", 451).code, CAIRN_STORE);
}

/* ---- where requests may go ---- */

TEST(endpoints_that_must_not_be_are_refused) { /* G02, C1 */
    static const char *const bad[] = {"ftp://h",
                                      "file:///x",
                                      "http://example.com",
                                      "http://user:pw@127.0.0.1",
                                      "https://h/?q=1",
                                      "https://h#f",
                                      "http://169.254.169.254",
                                      "https://169.254.169.254",
                                      "https://[fd00:ec2::254]",
                                      "https://",
                                      "https://a b",
                                      "http://127.0.0.1.evil.com"};
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        struct cairn_s3_config config = {0};
        struct cairn_error error = {0};
        struct cairn_store_s3_options options = {.endpoint = bad[i]};
        enum cairn_code code = cairn_s3_config_init(&config, "s3://bucket", &options, &error);
        cairn_s3_config_release(&config);
        EXPECT_EQ_U64(code, CAIRN_INVALID);
        EXPECT(!strstr(error.message, "pw"));
    }
    static const char *const urls[] = {"s3://",        "s3://a",   "s3://b@d",
                                       "s3://buc ket", "http://x", "s3://bucket/a?b"};
    for (size_t i = 0; i < CAIRN_COUNT(urls); i++) {
        struct cairn_s3_config config = {0};
        enum cairn_code code = cairn_s3_config_init(&config, urls[i], NULL, NULL);
        cairn_s3_config_release(&config);
        EXPECT_EQ_U64(code, CAIRN_INVALID);
    }
}

TEST(hosts_and_paths_follow_style_endpoint_and_region) {
    static const struct {
        const char *endpoint, *url;
        enum cairn_store_s3_style style;
        const char *host, *path;
    } cases[] = {
        {NULL, "s3://bucket/p", 0, "bucket.s3.eu-west-1.amazonaws.com", "/p/k"},
        {NULL, "s3://buc.ket", 0, "s3.eu-west-1.amazonaws.com", "/buc.ket/k"},
        {NULL, "s3://bucket", CAIRN_S3_STYLE_PATH, "s3.eu-west-1.amazonaws.com", "/bucket/k"},
        {"https://H:443/base/", "s3://bucket/a/b/", 0, "h", "/base/bucket/a/b/k"},
        {"http://127.0.0.1:80", "s3://bucket", 0, "127.0.0.1", "/bucket/k"},
        {"http://localhost:9000", "s3://bucket", CAIRN_S3_STYLE_VIRTUAL, "bucket.localhost:9000",
         "/k"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        struct cairn_s3_config config = {0};
        struct cairn_s3_host host;
        CAIRN_AUTO(buf) path = {0};
        struct cairn_store_s3_options options = {
            .endpoint = cases[i].endpoint, .region = "eu-west-1", .style = cases[i].style};
        unsetenv("AWS_ENDPOINT_URL");
        EXPECT(cairn_s3_config_init(&config, cases[i].url, &options, NULL) == CAIRN_OK);
        cairn_s3_config_host(&config, config.region, &host);
        EXPECT(cairn_s3_config_path(&config, "k", &path, NULL) == CAIRN_OK);
        EXPECT_EQ_TEXT(host.text, cases[i].host);
        EXPECT_EQ_TEXT(path.data, cases[i].path);
        cairn_s3_config_release(&config);
    }
}
