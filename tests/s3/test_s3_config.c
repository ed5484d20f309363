/* SPDX-License-Identifier: Apache-2.0 */
/* Settings and small rules of the S3 store that need no server. */
#include "store/s3/config.h"

#include "store/s3/inside.h"
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

TEST(g02_endpoints_that_must_not_be_are_refused) { /* G02, config.h#1 */
    EACH_TEXT(text, "ftp://h", "file:///x", "http://example.com", "http://user:pw@127.0.0.1",
              "https://h/?q=1", "https://h#f", "http://169.254.169.254", "https://169.254.169.254",
              "https://[fd00:ec2::254]", "https://2852039166", "https://0xa9fea9fe:9000/x",
              "https://0251.0376.0251.0376", "https://[::ffff:a9fe:a9fe]:443",
              "https://METADATA.google.internal.", "https://", "https://a b",
              "http://127.0.0.1.evil.com") {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_error error = {0};
        struct cairn_store_s3_options options = {.endpoint = text};
        enum cairn_code code = cairn_s3_config_init(&config, "s3://bucket", &options, &error);
        EXPECT_EQ_U64(code, CAIRN_INVALID);
        EXPECT(!strstr(error.message, "pw"));
    }
    EACH_TEXT(one, "s3://", "s3://a", "s3://b@d", "s3://buc ket", "http://x", "s3://bucket/a?b") {
        CAIRN_AUTO(s3_config) config = {0};
        enum cairn_code code = cairn_s3_config_init(&config, one, NULL, NULL);
        EXPECT_EQ_U64(code, CAIRN_INVALID);
    }
}

TEST(an_interface_that_is_not_there_is_refused_by_its_name, err) {
    static const char *const good[] = {"lo"}, *const bad[] = {"lo", "nosuchcard7"};
    struct cairn_store_s3_options options = {.interfaces = good, .interface_count = 1};
    CAIRN_AUTO(s3_config) config = {0};
    unsetenv("AWS_ENDPOINT_URL");
    EXPECT_CODE(cairn_s3_config_init(&config, "s3://bucket", &options, &err), CAIRN_OK);
    cairn_s3_config_release(&config);
    options = (struct cairn_store_s3_options){.interfaces = bad, .interface_count = 2};
    EXPECT_FAILS(cairn_s3_config_init(&config, "s3://bucket", &options, &err), CAIRN_INVALID,
                 "nosuchcard7");
}

TEST(hosts_and_paths_follow_style_endpoint_and_region) {
    EACH(one,
         FIELDS(const char *endpoint, *url; enum cairn_store_s3_style style;
                const char *host, *path),
         {NULL, "s3://bucket/p", 0, "bucket.s3.eu-west-1.amazonaws.com", "/p/k"},
         {NULL, "s3://buc.ket", 0, "s3.eu-west-1.amazonaws.com", "/buc.ket/k"},
         {NULL, "s3://bucket", CAIRN_S3_STYLE_PATH, "s3.eu-west-1.amazonaws.com", "/bucket/k"},
         {"https://H:443/base/", "s3://bucket/a/b/", 0, "h", "/base/bucket/a/b/k"},
         {"http://127.0.0.1:80", "s3://bucket", 0, "127.0.0.1", "/bucket/k"},
         {"http://localhost:9000", "s3://bucket", CAIRN_S3_STYLE_VIRTUAL, "bucket.localhost:9000",
          "/k"}) {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_s3_host host;
        CAIRN_AUTO(buf) path = {0};
        struct cairn_store_s3_options options = {
            .endpoint = one->endpoint, .region = "eu-west-1", .style = one->style};
        unsetenv("AWS_ENDPOINT_URL");
        EXPECT(cairn_s3_config_init(&config, one->url, &options, NULL) == CAIRN_OK);
        cairn_s3_config_host(&config, config.region, &host);
        EXPECT(cairn_s3_config_path(&config, "k", &path, NULL) == CAIRN_OK);
        EXPECT_ALL_TEXT(host.text, one->host, path.data, one->path);
    }
}

/* ---- what wins ---- */

static const char *const variables[] = {
    "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
    "AWS_REGION",          "AWS_DEFAULT_REGION",
    "AWS_CA_BUNDLE",       "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"};

/* "NAME=value NAME=value": these are set, the others are not. */
static void set_variables(const char *assignments) {
    char text[400], *rest = text;
    for (size_t i = 0; i < CAIRN_COUNT(variables); i++) unsetenv(variables[i]);
    snprintf(text, sizeof text, "%s", assignments);
    for (char *word = strsep(&rest, " "); word; word = strsep(&rest, " ")) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value++ = '\0';
        setenv(word, value, 1);
    }
}

static void write_profiles(void) {
    const char *path = TEXT("%s/aws-config", cairn_test_folder());
    FILE *file = fopen(path, "w");
    EXPECT(file && fputs("[default]\nregion = default-1\nendpoint_url = https://default\n"
                         "ca_bundle = /default.pem\n"
                         "[profile other]\nregion = other-1\nendpoint_url = https://other\n"
                         "ca_bundle = /other.pem\n"
                         "[profile deaf]\nregion = deaf-1\nendpoint_url = https://deaf\n"
                         "ignore_configured_endpoint_urls = True\n"
                         "[sso-session bare]\nregion = sso-1\nendpoint_url = https://sso\n"
                         "[services bare]\ns3 =\n  endpoint_url = https://foreign\n"
                         "[profile bare]\noutput = json\n",
                         file) >= 0);
    if (file) EXPECT(fclose(file) == 0);
    setenv("AWS_CONFIG_FILE", path, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
}

/* A setting without a value is "", not NULL. */
static void say_nothing_as_programs_do(struct cairn_store_s3_options *options) {
    const char **const texts[] = {&options->endpoint, &options->region, &options->profile,
                                  &options->ca_bundle};
    for (size_t i = 0; i < CAIRN_COUNT(texts); i++)
        if (!*texts[i]) *texts[i] = "";
}

TEST(option_goes_before_variable_before_profile_before_what_is_usual) {
    static const struct {
        const char *set;
        struct cairn_store_s3_options options;
        const char *host, *region, *ca_bundle; /* host "": AWS itself */
    } cases[] = {
        /* clang-format off */
        {"", {0}, "default", "default-1", "/default.pem"},
        {"AWS_PROFILE=other", {0}, "other", "other-1", "/other.pem"},
        {"AWS_PROFILE=bare", {0}, "", "us-east-1", ""},
        {"AWS_DEFAULT_PROFILE=other AWS_PROFILE=bare", {0}, "", "us-east-1", ""},
        {"AWS_DEFAULT_PROFILE=other", {0}, "other", "other-1", "/other.pem"},
        {"AWS_PROFILE=", {0}, "default", "default-1", "/default.pem"},
        {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true AWS_ENDPOINT_URL=https://any", {0}, "",
         "default-1", "/default.pem"},
        {"AWS_PROFILE=deaf AWS_ENDPOINT_URL_S3=https://s3", {0}, "", "deaf-1", ""},
        {"AWS_PROFILE=deaf", {.endpoint = "https://mine"}, "mine", "deaf-1", ""},
        {"AWS_PROFILE=other", {.profile = "bare"}, "", "us-east-1", ""},
        {"AWS_PROFILE=bare", {.profile = "other"}, "other", "other-1", "/other.pem"},
        {"AWS_ENDPOINT_URL=https://any", {0}, "any", "default-1", "/default.pem"},
        {"AWS_ENDPOINT_URL=https://any AWS_ENDPOINT_URL_S3=https://s3", {0}, "s3", "default-1",
         "/default.pem"},
        {"AWS_ENDPOINT_URL_S3=https://s3 AWS_PROFILE=other", {0}, "s3", "other-1", "/other.pem"},
        {"AWS_ENDPOINT_URL_S3=https://s3 AWS_ENDPOINT_URL=https://any",
         {.endpoint = "https://mine"}, "mine", "default-1", "/default.pem"},
        {"AWS_ENDPOINT_URL_S3= AWS_ENDPOINT_URL=https://any", {0}, "any", "default-1",
         "/default.pem"}, /* an empty one is none */
        {"AWS_REGION=first-1", {0}, "default", "first-1", "/default.pem"},
        {"AWS_DEFAULT_REGION=second-1", {0}, "default", "second-1", "/default.pem"},
        {"AWS_DEFAULT_REGION=second-1 AWS_REGION=first-1", {0}, "default", "first-1",
         "/default.pem"},
        {"AWS_DEFAULT_REGION=second-1 AWS_PROFILE=other", {0}, "other", "second-1", "/other.pem"},
        {"AWS_REGION=first-1 AWS_DEFAULT_REGION=second-1", {.region = "mine-1"}, "default",
         "mine-1", "/default.pem"},
        {"AWS_CA_BUNDLE=/variable.pem", {0}, "default", "default-1", "/variable.pem"},
        {"AWS_CA_BUNDLE=/variable.pem AWS_PROFILE=other", {.ca_bundle = "/mine.pem"}, "other",
         "other-1", "/mine.pem"},
        /* clang-format on */
    };
    write_profiles();
    for (size_t i = 0; i < 2 * CAIRN_COUNT(cases); i++) {
        struct cairn_store_s3_options options = cases[i / 2].options;
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_error err = {0};
        set_variables(cases[i / 2].set);
        if (i % 2) say_nothing_as_programs_do(&options);
        EXPECT_CODE(cairn_s3_config_init(&config, "s3://bucket", &options, &err), CAIRN_OK);
        const char *bundle = config.options.ca_bundle ? config.options.ca_bundle : "";
        EXPECT_EQ_TEXT(config.host, cases[i / 2].host);
        EXPECT(config.is_aws == !*cases[i / 2].host);
        EXPECT_EQ_TEXT(config.region, cases[i / 2].region);
        if (!EXPECT(!strcmp(bundle, cases[i / 2].ca_bundle)))
            fprintf(stderr, "\"%s\": %s\n", cases[i / 2].set, bundle);
    }
    set_variables("");
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
}

TEST(a_profile_or_services_section_that_is_nowhere_is_refused_by_its_name) {
    static const char *const wrong[][2] = {{"AWS_PROFILE=nowhere", "nowhere"},
                                           {"AWS_PROFILE=served", "\"absent\""}};
    const char *path = TEXT("%s/aws-config", cairn_test_folder());
    FILE *file = fopen(path, "w");
    EXPECT(file && fputs("[profile served]\nservices = absent\n", file) >= 0);
    if (file) EXPECT(fclose(file) == 0);
    setenv("AWS_CONFIG_FILE", path, 1);
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++) {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_error err = {0};
        set_variables(wrong[i][0]);
        EXPECT_FAILS(cairn_s3_config_init(&config, "s3://bucket", NULL, &err), CAIRN_INVALID,
                     wrong[i][1]);
    }
    set_variables("");
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
}

TEST(what_the_url_says_wins_and_what_it_leaves_open_comes_from_the_options) {
    struct cairn_store_s3_options options = {.endpoint = "https://mine",
                                             .region = "mine-1",
                                             .profile = "other",
                                             .ca_bundle = "/mine.pem"};
    write_profiles();
    set_variables("AWS_ENDPOINT_URL=https://any AWS_REGION=first-1 AWS_CA_BUNDLE=/variable.pem");
    EACH(one, FIELDS(const char *url, *host, *region, *ca_bundle),
         {"s3://bucket", "mine", "mine-1", "/mine.pem"},
         {"s3://bucket?region=url-1", "mine", "url-1", "/mine.pem"},
         {"s3://bucket?endpoint=https%3A%2F%2Furl", "url", "mine-1", "/mine.pem"},
         {"s3://bucket?ca_bundle=/url.pem&region=url-1&endpoint=https://url", "url", "url-1",
          "/url.pem"}) {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_error err = {0};
        EXPECT_CODE(cairn_s3_config_init(&config, one->url, &options, &err), CAIRN_OK);
        EXPECT_ALL_TEXT(config.host, one->host, config.region, one->region,
                        config.options.ca_bundle, one->ca_bundle, config.options.profile, "other");
        EXPECT(!config.profile_alone);
    }
    set_variables("");
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
}

TEST(a_url_says_for_its_own_store_how_objects_are_kept_and_encrypted) {
    struct cairn_store_s3_options options = {
        .sse = "aws:kms", .sse_kms_key_id = "mine", .storage_class = "STANDARD_IA"};
    set_variables("");
    EACH(one,
         FIELDS(const char *url, *storage_class, *sse,
                *key /* "": none; url's NULL: it is refused */),
         {"s3://bucket", "STANDARD_IA", "aws:kms", "mine"},
         {"s3://bucket?storage_class=ONEZONE_IA", "ONEZONE_IA", "aws:kms", "mine"},
         {"s3://bucket?storage_class=none&sse=none", "", "", ""},
         {"s3://bucket?sse=AES256", "STANDARD_IA", "AES256", ""},
         {"s3://bucket?sse=aws%3Akms:dsse&sse_kms_key_id=arn%3Aaws:kms:x", "STANDARD_IA",
          "aws:kms:dsse", "arn:aws:kms:x"},
         {"s3://bucket?sse_kms_key_id=other", "STANDARD_IA", "aws:kms", "other"},
         {"s3://bucket?sse=CANARY", NULL, "sse is none of AES256", NULL},
         {"s3://bucket?sse=AES256&sse_kms_key_id=CANARY", NULL, "sse is AES256", NULL},
         {"s3://bucket?sse=none&sse_kms_key_id=CANARY", NULL, "sse is not", NULL},
         {"s3://bucket?storage_class=CAN%C3%84RY", NULL, "storage_class", NULL}) {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_error err = {0};
        enum cairn_code code = cairn_s3_config_init(&config, one->url, &options, &err);
        EXPECT_CODE(code, one->storage_class ? CAIRN_OK : CAIRN_INVALID);
        if (code) {
            if (!EXPECT(strstr(err.message, one->sse))) fprintf(stderr, "%s\n", err.message);
            EXPECT(!strstr(err.message, "CANARY"));
        } else {
            const struct cairn_store_s3_options *got = &config.options;
            EXPECT_EQ_TEXT(got->storage_class ? got->storage_class : "", one->storage_class);
            EXPECT_EQ_TEXT(got->sse ? got->sse : "", one->sse);
            EXPECT_EQ_TEXT(got->sse_kms_key_id ? got->sse_kms_key_id : "", one->key);
        }
    }
}

TEST(with_a_profile_in_the_url_neither_options_nor_variables_say_where_it_is) { /* config.h#3 */
    struct cairn_store_s3_options options = {.endpoint = "https://mine",
                                             .region = "mine-1",
                                             .profile = "bare",
                                             .ca_bundle = "/mine.pem"};
    write_profiles();
    EACH(one, FIELDS(const char *set, *url, *host, *region, *ca_bundle, *sts /* "": AWS's */),
         {"", "s3://bucket?profile=other", "other", "other-1", "/other.pem", "https://other"},
         {"AWS_ENDPOINT_URL=https://any AWS_ENDPOINT_URL_S3=https://s3 AWS_REGION=first-1 "
          "AWS_CA_BUNDLE=/variable.pem AWS_PROFILE=deaf",
          "s3://bucket?profile=other", "other", "other-1", "/other.pem", "https://other"},
         /* A variable may not turn the keys of another store to AWS, either. */
         {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true", "s3://bucket?profile=other", "other",
          "other-1", "/other.pem", "https://other"},
         {"AWS_ENDPOINT_URL=https://any AWS_REGION=first-1 AWS_CA_BUNDLE=/variable.pem",
          "s3://bucket?profile=bare", "", "us-east-1", "", ""},
         {"AWS_ENDPOINT_URL=https://any", "s3://bucket?profile=deaf", "", "deaf-1", "", ""},
         {"AWS_ENDPOINT_URL=https://any",
          "s3://bucket?profile=bare&endpoint=https://url&region=u-1", "url", "u-1", "", ""},
         {"AWS_ENDPOINT_URL=https://any", "s3://bucket?profile=other&ca_bundle=/url.pem", "other",
          "other-1", "/url.pem", "https://other"}) {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_error err = {0};
        set_variables(one->set);
        EXPECT_CODE(cairn_s3_config_init(&config, one->url, &options, &err), CAIRN_OK);
        EXPECT_EQ_TEXT(config.host, one->host);
        EXPECT(config.is_aws == !*one->host);
        EXPECT_EQ_TEXT(config.region, one->region);
        EXPECT_EQ_TEXT(config.options.ca_bundle ? config.options.ca_bundle : "", one->ca_bundle);
        EXPECT_EQ_TEXT(config.sts_endpoint ? config.sts_endpoint : "", one->sts);
        EXPECT(config.profile_alone);
        EXPECT(strstr(one->url, config.options.profile));
    }
    set_variables("");
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
}

TEST(an_endpoint_of_a_url_must_be_one_that_an_option_may_name) { /* config.h#1 */
    EACH_TEXT(text, "http://example.com", "https://169.254.169.254", "https%3A%2F%2Fuser:CANARY@h",
              "ftp://h", "https://h/?q=1", "https://h%0d%0ax") {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_error err = {0};
        EXPECT_CODE(
            cairn_s3_config_init(&config, TEXT("s3://bucket?endpoint=%s", text), NULL, &err),
            CAIRN_INVALID);
        EXPECT(!strstr(err.message, "CANARY"));
    }
}

TEST(an_acl_that_would_show_checkpoints_to_strangers_is_refused, err) {
    EACH_TEXT(text, "public-read", "public-read-write", "authenticated-read", "full") {
        EXPECT_FAILS(cairn_s3_sharing_check(text, NULL, &err), CAIRN_INVALID,
                     "bucket-owner-full-control");
    }
    EXPECT_FAILS(cairn_s3_sharing_check("", "owner", &err), CAIRN_INVALID, "request_payer");
    REQUIRE_OK(cairn_s3_sharing_check("bucket-owner-full-control", "requester", &err));
    REQUIRE_OK(cairn_s3_sharing_check(NULL, NULL, &err));
}

TEST(regions_of_every_partition_and_aws_s_switches_lead_to_the_names_of_their_endpoints) {
    set_variables("");
    EACH(one, FIELDS(const char *region, *fips, *dual, *host /* host NULL: refused */),
         {"eu-west-1", "", "", "bucket.s3.eu-west-1.amazonaws.com"},
         {"cn-north-1", "", "", "bucket.s3.cn-north-1.amazonaws.com.cn"},
         {"eusc-de-east-1", "", "", "bucket.s3.eusc-de-east-1.amazonaws.eu"},
         {"us-iso-east-1", "", "", "bucket.s3.us-iso-east-1.c2s.ic.gov"},
         {"us-isob-east-1", "", "", "bucket.s3.us-isob-east-1.sc2s.sgov.gov"},
         {"us-gov-west-1", "true", "", "bucket.s3-fips.us-gov-west-1.amazonaws.com"},
         {"us-east-1", "", "true", "bucket.s3.dualstack.us-east-1.amazonaws.com"},
         {"us-east-1", "true", "true", "bucket.s3-fips.dualstack.us-east-1.amazonaws.com"},
         {"us-iso-east-1", "", "true", NULL}) {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_s3_host host;
        struct cairn_error err = {0};
        struct cairn_store_s3_options options = {.region = one->region};
        setenv("AWS_USE_FIPS_ENDPOINT", one->fips, 1);
        setenv("AWS_USE_DUALSTACK_ENDPOINT", one->dual, 1);
        enum cairn_code code = cairn_s3_config_init(&config, "s3://bucket/p", &options, &err);
        EXPECT_EQ_U64(code, one->host ? CAIRN_OK : CAIRN_INVALID);
        if (!code) {
            cairn_s3_config_host(&config, config.region, &host);
            EXPECT_EQ_TEXT(host.text, one->host);
        }
    }
    unsetenv("AWS_USE_FIPS_ENDPOINT");
    unsetenv("AWS_USE_DUALSTACK_ENDPOINT");
}

TEST(a_switch_for_validated_endpoints_is_never_passed_over_in_silence, err) {
    CAIRN_AUTO(s3_config) config = {0};
    struct cairn_store_s3_options options = {.endpoint = "https://s3.example.com"};
    set_variables("");
    setenv("AWS_USE_FIPS_ENDPOINT", "true", 1);
    EXPECT_FAILS(cairn_s3_config_init(&config, "s3://bucket/p", &options, &err), CAIRN_INVALID,
                 "AWS_USE_FIPS_ENDPOINT");
    cairn_s3_config_release(&config);
    options.endpoint = "https://s3-fips.example.com";
    REQUIRE_OK(cairn_s3_config_init(&config, "s3://bucket/p", &options, &err));
    unsetenv("AWS_USE_FIPS_ENDPOINT");
}

TEST(buckets_of_kinds_that_cairn_does_not_speak_are_refused_by_name) {
    set_variables("");
    EACH(one, FIELDS(const char *url, *says), {"s3://fast--use1-az4--x-s3/p", "S3 Express"},
         {"s3://point-abc--op-s3/p", "Outposts"},
         {"s3://arn:aws:s3:us-east-1:1:accesspoint/x", "alias"}) {
        CAIRN_AUTO(s3_config) config = {0};
        struct cairn_error err = {0};
        EXPECT(cairn_s3_config_init(&config, one->url, NULL, &err) != CAIRN_OK);
        if (!EXPECT(strstr(err.message, one->says))) fprintf(stderr, "%s\n", err.message);
    }
}
