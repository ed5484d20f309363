/* SPDX-License-Identifier: Apache-2.0 */

#include "tests/harness.h"

static const char *text_of(struct cairn_view view) {
    static char text[80];
    snprintf(text, sizeof text, "%.*s", (int)view.size, (const char *)view.data);
    return text;
}

TEST(a_url_is_cut_where_its_host_ends_U1) {
    EACH(one, FIELDS(const char *url, *scheme, *host, *origin, *path, *short_host),
         {"https://h/p?q", "https", "h", "https://h", "/p?q", "h"},
         {"http://h:80", "http", "h:80", "http://h:80", "", "h"},
         {"https://h:443/", "https", "h:443", "https://h:443", "/", "h"},
         {"https://h:80/", "https", "h:80", "https://h:80", "/", "h:80"},
         {"http://[::1]:7420?x=/y", "http", "[::1]:7420", "http://[::1]:7420", "?x=/y",
          "[::1]:7420"},
         {"http://evil#@good/", "http", "evil", "http://evil", "#@good/", "evil"},
         {"http://user@h/", "http", "user@h", "http://user@h", "/", "user@h"},
         {"s3://bucket/a://b", "s3", "bucket", "s3://bucket", "/a://b", "bucket"}) {
        struct cairn_url url;
        REQUIRE(cairn_url_split(one->url, &url));
        EXPECT_EQ_TEXT(text_of(url.scheme), one->scheme);
        EXPECT_EQ_TEXT(text_of(url.host), one->host);
        EXPECT_EQ_TEXT(text_of(url.origin), one->origin);
        EXPECT_EQ_TEXT(url.path, one->path);
        EXPECT_EQ_TEXT(text_of(cairn_url_host(&url)), one->short_host);
        EXPECT(cairn_url_is(&url, one->scheme) && !cairn_url_is(&url, "htt"));
    }
}

TEST(what_has_no_scheme_or_no_host_is_no_url_U2) {
    struct cairn_url url;
    EACH_TEXT(text, "", "h/p", "://h", "http:/h", "http://", "http:///p", "/x")
        EXPECT(!cairn_url_split(text, &url));
}

TEST(an_http_url_is_one_whose_scheme_is_http_or_https_and_no_other) {
    struct cairn_url url = {.path = "before"};
    EACH_TEXT(text, "s3://h", "httpx://h", "HTTP://h", "http:///p", "ftp://h/") {
        EXPECT(!cairn_url_split_http(text, &url));
        EXPECT_EQ_TEXT(url.path, "before");
    }
    EACH_TEXT(one, "http://h", "https://h:443/p") {
        REQUIRE(cairn_url_split_http(one, &url));
        EXPECT(cairn_url_is(&url, AT_OF(one) ? "https" : "http"));
    }
}
