/* SPDX-License-Identifier: Apache-2.0 */
/* What the URL of a store in S3 may say, what it must not, and what then comes from where. */
#include "store/s3/config.h"

#include "store/store.h"
#include "tests/harness.h"

TEST(a_url_is_taken_apart_and_its_values_are_decoded) {
    EACH(
        one, FIELDS(const char *text; struct cairn_s3_url wanted /* query aside */),
        {"s3://bucket", {.bucket = "bucket"}},
        {"s3://bucket/a/b//", {.bucket = "bucket", .prefix = "a/b/"}},
        {"s3://bucket?region=eu-1", {.bucket = "bucket", .region = "eu-1"}},
        {"s3://bucket/?region=eu-1", {.bucket = "bucket", .region = "eu-1"}},
        {"s3://bucket/a%20b?profile=cold%2Cold&endpoint=https%3A%2F%2Fh:9000/base&region=x_1"
         "&ca_bundle=/etc/a%20b%26c.pem",
         {.bucket = "bucket",
          .prefix = "a%20b/",
          .profile = "cold,old",
          .endpoint = "https://h:9000/base",
          .region = "x_1",
          .ca_bundle = "/etc/a b&c.pem"}},
        {"s3://bucket/p?endpoint=https://h/?x=1", /* the endpoint's own check comes later */
         {.bucket = "bucket", .prefix = "p/", .endpoint = "https://h/?x=1"}},
        {"s3://bucket/p?profile=a+b=c", {.bucket = "bucket", .prefix = "p/", .profile = "a+b=c"}}) {
        struct cairn_s3_url url = {0};
        struct cairn_error err = {0};
        const struct cairn_s3_url *wanted = &one->wanted;
        EXPECT_CODE(cairn_s3_url_parse(one->text, &url, &err), CAIRN_OK);
        EXPECT_ALL_TEXT(url.bucket, wanted->bucket, url.prefix, wanted->prefix);
#define OPTION(name, bytes, what) EXPECT_EQ_TEXT(url.name, wanted->name);
#include "store/s3/url.def"
#undef OPTION
        const char *sign = strchr(one->text, '?');
        EXPECT_EQ_TEXT(url.query, sign ? sign + 1 : "");
        EXPECT_EQ_U64(cairn_s3_url_place_size(one->text),
                      sign ? (size_t)(sign - one->text) : strlen(one->text));
    }
}

TEST(an_option_that_is_wrong_is_refused_by_its_name_with_those_that_are_known) { /* config.h#4 */
    static const char *const wrong[][2] = {
        {"endpiont=https://h", "endpiont is not known"},
        {"region=a&region=b", "region is given twice"},
        {"region=a&profile=p&region=a", "region is given twice"},
        {"region=", "region has no value"},
        {"region=&region=x", "region has no value"},
        {"region", "an option has no \"=\""},
        {"", "an option has no \"=\""},
        {"region=a&", "an option has no \"=\""},
        {"region=a&&profile=b", "an option has no \"=\""},
        {"=x", "an option is not known"},
        {"Region=a", "an option is not known"},
        {"%72egion=a", "an option is not known"},
        {"region=%", "region has a % that begins no escape"},
        {"region=%4", "region has a % that begins no escape"},
        {"region=%4g", "region has a % that begins no escape"},
        {"region=%00", "region has a % that begins no escape"},
        {"profile=a%0ab", "profile has a byte that it cannot hold"},
        {"profile=a\x7f", "profile has a byte that it cannot hold"},
        {"region=0123456789012345678901234567890123456789012345678901234567890123",
         "region is too long"},
        {"aws_secret_access_key=CANARY", "aws_secret_access_key is not known"},
        {"secret_key=CANARY&region=x", "secret_key is not known"},
        {"CANARY=x", "an option is not known"},
        {"region=x&CANARY", "an option has no \"=\""},
        {"profile=CANARY%zz", "profile has a % that begins no escape"},
        {"checksum=md5", "checksum is not known"}, /* a setting, and of all stores */
    };
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++) {
        struct cairn_s3_url url = {.region = "untouched"};
        struct cairn_error err = {0};
        EXPECT_CODE(cairn_s3_url_parse(TEXT("s3://bucket/p?%s", wrong[i][0]), &url, &err),
                    CAIRN_INVALID);
        if (!EXPECT(strstr(err.message, wrong[i][1]))) fprintf(stderr, "%s\n", err.message);
        EXPECT(cairn_text_starts(err.message, "store \"s3://bucket/p\": "));
        EXPECT(strstr(err.message, "known are profile, endpoint, region, ca_bundle"));
        EXPECT(!strstr(err.message, "CANARY")); /* config.h#5 */
        EXPECT_EQ_TEXT(url.region, "untouched");
    }
}

TEST(keys_before_a_bucket_s_name_are_refused_and_not_repeated, err) { /* config.h#5 */
    struct cairn_s3_url url;
    EXPECT_CODE(cairn_s3_url_parse("s3://AKID:CANARY@bucket/p", &url, &err), CAIRN_INVALID);
    EXPECT_HAS(err.message, "!CANARY", "@bucket/p");
}

TEST(a_url_has_at_most_1000_bytes, err) {
    struct cairn_s3_url url;
    char text[CAIRN_S3_URL_BYTES_MAX + 2];
    int used = snprintf(text, sizeof text, "s3://bucket/p?ca_bundle=/");
    memset(text + used, 'x', sizeof text - (size_t)used);
    text[CAIRN_S3_URL_BYTES_MAX] = '\0';
    EXPECT_CODE(cairn_s3_url_parse(text, &url, &err), CAIRN_OK);
    text[CAIRN_S3_URL_BYTES_MAX] = 'x';
    text[CAIRN_S3_URL_BYTES_MAX + 1] = '\0';
    EXPECT_FAILS(cairn_s3_url_parse(text, &url, &err), CAIRN_INVALID, "longer than 1,000 bytes");
}

/* ---- an opened store ---- */

static void clear_environment(void) {
    EACH_TEXT(text, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION",
              "AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_DEFAULT_PROFILE")
        unsetenv(text);
}

static struct cairn_store *open_store(const char *url, const char *profile) {
    struct cairn_store *store = NULL;
    struct cairn_error err = {0};
    struct cairn_store_s3_options s3 = {.profile = profile};
    struct cairn_store_options options = {.url = url, .s3 = &s3};
    EXPECT_CODE(cairn_store_s3_open(&options, &store, &err), CAIRN_OK);
    return store;
}

TEST(a_store_is_opened_again_by_the_url_that_it_tells) {
    static const char *const told[] = {"s3://bucket/", "s3://bucket/a/b/",
                                       "s3://bucket/?region=eu-1",
                                       "s3://bucket/a/?region=eu-1&endpoint=https%3A%2F%2Fh"};
    clear_environment();
    EACH_TEXT(text, "s3://bucket", "s3://bucket/a/b", "s3://bucket?region=eu-1",
              "s3://bucket/a?region=eu-1&endpoint=https%3A%2F%2Fh") {
        struct cairn_store *store = open_store(text, NULL);
        REQUIRE(store);
        EXPECT_EQ_TEXT(cairn_store_url(store), told[AT_OF(text)]);
        struct cairn_store *again = open_store(cairn_store_url(store), NULL);
        REQUIRE(again);
        EXPECT_EQ_TEXT(cairn_store_url(again), told[AT_OF(text)]);
        cairn_store_free(again);
        cairn_store_free(store);
    }
}

TEST(a_store_copies_from_another_of_one_endpoint_region_and_source_of_keys_alone) {
    clear_environment();
    const char *path = TEXT("%s/aws-config", cairn_test_folder());
    FILE *file = fopen(path, "w");
    REQUIRE(file);
    EXPECT(fputs("[profile cold]\nregion = us-east-1\n[profile warm]\nregion = us-east-1\n",
                 file) >= 0);
    EXPECT(fclose(file) == 0);
    setenv("AWS_CONFIG_FILE", path, 1);
    EACH(row, FIELDS(const char *from, *from_profile, *to, *to_profile; bool copies),
         {"s3://one/a", NULL, "s3://two/b", NULL, true},
         {"s3://one/a?profile=cold", NULL, "s3://two/b?profile=cold", NULL, true},
         {"s3://one/a?profile=cold", "warm", "s3://two/b?profile=cold", NULL, true},
         {"s3://one/a", "cold", "s3://two/b", "cold", true},
         {"s3://one/a?region=us-east-1", NULL, "s3://two/b", NULL, true},
         {"s3://one/a?profile=cold", NULL, "s3://two/b?profile=warm", NULL, false},
         {"s3://one/a", "cold", "s3://two/b?profile=cold", NULL, false},
         {"s3://one/a", NULL, "s3://two/b?profile=cold", NULL, false},
         {"s3://one/a?region=eu-1", NULL, "s3://two/b", NULL, false},
         {"s3://one/a?endpoint=https://h", NULL, "s3://two/b", NULL, false}) {
        struct cairn_store *from = open_store(row->from, row->from_profile);
        struct cairn_store *to = open_store(row->to, row->to_profile);
        REQUIRE(from && to);
        if (!EXPECT(cairn_store_copies_from(to, from) == row->copies))
            fprintf(stderr, "case %zu\n", AT(row));
        cairn_store_free(from);
        cairn_store_free(to);
    }
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
}
