/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"

#include <stdio.h>

#include "tests/harness.h"

static const char *text_of(struct cairn_view view) {
    static char text[80];
    snprintf(text, sizeof text, "%.*s", (int)view.size, (const char *)view.data);
    return text;
}

TEST(a_url_is_cut_where_its_host_ends_U1) {
    static const struct {
        const char *url, *scheme, *host, *origin, *path, *short_host;
    } cases[] = {
        {"https://h/p?q", "https", "h", "https://h", "/p?q", "h"},
        {"http://h:80", "http", "h:80", "http://h:80", "", "h"},
        {"https://h:443/", "https", "h:443", "https://h:443", "/", "h"},
        {"https://h:80/", "https", "h:80", "https://h:80", "/", "h:80"},
        {"http://[::1]:7420?x=/y", "http", "[::1]:7420", "http://[::1]:7420", "?x=/y",
         "[::1]:7420"},
        {"http://evil#@good/", "http", "evil", "http://evil", "#@good/", "evil"},
        {"http://user@h/", "http", "user@h", "http://user@h", "/", "user@h"},
        {"s3://bucket/a://b", "s3", "bucket", "s3://bucket", "/a://b", "bucket"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        struct cairn_url url;
        REQUIRE(cairn_url_split(cases[i].url, &url));
        EXPECT_EQ_TEXT(text_of(url.scheme), cases[i].scheme);
        EXPECT_EQ_TEXT(text_of(url.host), cases[i].host);
        EXPECT_EQ_TEXT(text_of(url.origin), cases[i].origin);
        EXPECT_EQ_TEXT(url.path, cases[i].path);
        EXPECT_EQ_TEXT(text_of(cairn_url_host(&url)), cases[i].short_host);
        EXPECT(cairn_url_is(&url, cases[i].scheme) && !cairn_url_is(&url, "htt"));
    }
}

TEST(what_has_no_scheme_or_no_host_is_no_url_U2) {
    static const char *const none[] = {"", "h/p", "://h", "http:/h", "http://", "http:///p", "/x"};
    struct cairn_url url;
    for (size_t i = 0; i < CAIRN_COUNT(none); i++) EXPECT(!cairn_url_split(none[i], &url));
}

TEST(an_http_url_is_one_whose_scheme_is_http_or_https_and_no_other) {
    static const char *const good[] = {"http://h", "https://h:443/p"};
    static const char *const bad[] = {"s3://h", "httpx://h", "HTTP://h", "http:///p", "ftp://h/"};
    struct cairn_url url = {.path = "before"};
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        EXPECT(!cairn_url_split_http(bad[i], &url));
        EXPECT_EQ_TEXT(url.path, "before");
    }
    for (size_t i = 0; i < CAIRN_COUNT(good); i++) {
        REQUIRE(cairn_url_split_http(good[i], &url));
        EXPECT(cairn_url_is(&url, i ? "https" : "http"));
    }
}
