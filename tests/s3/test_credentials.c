/* SPDX-License-Identifier: Apache-2.0 */
/* Every source against a real responder or real files, and the renewal with a clock of our own. */
#include "store/keys/profile.h"
#include "tests/support/key_stage.h"

#define err (stage.error)
#define secret_of cairn_stage_secret
#define token_of cairn_stage_token
#define NOON CAIRN_STAGE_NOON

static enum cairn_code get(struct cairn_stage *stage,
                           const struct cairn_credentials_options *options) {
    return cairn_stage_get(stage, options);
}
static const struct cairn_credentials_options plain;

TEST(the_environment_comes_first) {
    FRESH("AWS_ACCESS_KEY_ID", "AKIDENV", "AWS_SECRET_ACCESS_KEY", "secret-env", "AWS_PROFILE",
          "absent");
    WITH_OK(stage, stage, get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDENV");
    EXPECT_EQ_TEXT(secret_of(&stage), "secret-env");
    EXPECT_EQ_TEXT(token_of(&stage), "");
    EXPECT_EQ_TEXT(stage.keys.source, "environment");
    setenv("AWS_SESSION_TOKEN", "token-env", 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(token_of(&stage), "token-env");
}

TEST(half_a_pair_in_the_environment_is_an_error_and_not_passed_over) { /* credentials.h#1 */
    CAIRN_AUTO(stage) stage = {0};
    FRESH("AWS_ACCESS_KEY_ID", "AKIDENV");
    EXPECT_FAILS(get(&stage, &plain), CAIRN_UNAUTHORIZED, "AWS_SECRET_ACCESS_KEY is not");
}

TEST(profiles_come_from_both_files_and_the_credentials_file_wins) {
    FRESH("AWS_CONFIG_FILE",
          cairn_stage_file("config",
                           "[default]\naws_access_key_id = CFG\naws_secret_access_key = cfg\n"
                           "region = eu-west-1\n\n[profile ml]\n# comment\nregion=us-west-2\n"
                           "s3 =\n  addressing_style = path\nendpoint_url = http://h\n"
                           "[services x]\nregion = wrong\n"),
          "AWS_SHARED_CREDENTIALS_FILE",
          cairn_stage_file("credentials",
                           "[default]\naws_access_key_id=AKIDFILE\n"
                           "aws_secret_access_key=file/secret+=\r\n"
                           "[ml]\n aws_access_key_id = AKIDML\n"
                           "aws_secret_access_key = ml\naws_session_token = mltok\n"));
    WITH_OK(stage, stage, get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDFILE");
    EXPECT_EQ_TEXT(secret_of(&stage), "file/secret+=");
    EXPECT_EQ_TEXT(stage.keys.source, "profile default");
    setenv("AWS_PROFILE", "ml", 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDML");
    EXPECT_EQ_TEXT(token_of(&stage), "mltok");
    WITH_OK(profile, profile, cairn_profile_load(NULL, &profile, &err));
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "region"), "us-west-2");
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "s3.addressing_style"), "path");
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "endpoint_url"), "http://h");
    EXPECT(!cairn_profile_get(&profile, "addressing_style"));
}

TEST(a_quoted_name_and_a_services_section_are_read_as_the_sdks_read_them) {
    CAIRN_AUTO(stage) stage = {0};
    FRESH("AWS_CONFIG_FILE",
          cairn_stage_file("config", "[services lab]\ns3 =\n  endpoint_url = http://s3.lab\n"
                                     "sts =\n  endpoint_url = http://sts.lab\n"
                                     "[services other]\ns3 =\n  endpoint_url = http://wrong\n"
                                     "[profile \"my ml\"]\nservices = lab\nregion = lab-1\n"
                                     "endpoint_url = http://all\n"));
    WITH_OK(profile, profile, cairn_profile_load("my ml", &profile, &err));
    EXPECT(profile.found);
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "region"), "lab-1");
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "services.s3.endpoint_url"), "http://s3.lab");
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "endpoint_url"), "http://all");
}

TEST(a_profile_that_is_absent_or_signs_in_by_sso_is_named) {
    CAIRN_AUTO(stage) stage = {0};
    cairn_stage_clear();
    struct cairn_credentials_options options = {.profile = "nobody"};
    EXPECT_FAILS(get(&stage, &options), CAIRN_INVALID, "nobody");
    setenv("AWS_CONFIG_FILE",
           cairn_stage_file("config", "[profile sso]\nsso_start_url = https://x\n"
                                      "[profile new]\nsso_session = mine\n"),
           1);
    options.profile = "sso";
    EXPECT_FAILS(get(&stage, &options), CAIRN_UNSUPPORTED, "export-credentials --profile sso");
    options.profile = "new";
    EXPECT_CODE(get(&stage, &options), CAIRN_UNSUPPORTED);
}

TEST(a_profile_that_the_options_name_comes_before_the_environment) { /* credentials.h#1 */
    FRESH("AWS_ACCESS_KEY_ID", "AKIDENV", "AWS_SECRET_ACCESS_KEY", "secret-env",
          "AWS_SHARED_CREDENTIALS_FILE",
          cairn_stage_file("credentials", "[ml]\naws_access_key_id = AKIDML\n"
                                          "aws_secret_access_key = ml\n[empty]\nregion = x\n"));
    struct cairn_credentials_options options = {.profile = "ml"};
    WITH_OK(stage, stage, get(&stage, &options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDML");
    setenv("AWS_PROFILE", "ml", 1); /* as in the SDKs: only a profile that was named in words */
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDENV");
    options.profile = "empty"; /* it may be there for its region alone */
    REQUIRE_OK(get(&stage, &options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDENV");
}

TEST(a_profile_that_is_alone_gives_its_own_keys_or_none) { /* credentials.h#6 */
    FRESH("AWS_ACCESS_KEY_ID", "AKIDENV", "AWS_SECRET_ACCESS_KEY", "secret-env", "AWS_ROLE_ARN",
          "arn:aws:iam::1:role/x", "AWS_WEB_IDENTITY_TOKEN_FILE", "/dev/null",
          "AWS_SHARED_CREDENTIALS_FILE",
          cairn_stage_file("credentials", "[ml]\naws_access_key_id = AKIDML\n"
                                          "aws_secret_access_key = ml\n[empty]\nregion = x\n"));
    struct cairn_credentials_options options = {.profile = "ml", .profile_alone = true};
    WITH_OK(stage, stage, get(&stage, &options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDML");
    options.profile = "empty";
    EXPECT_FAILS(get(&stage, &options), CAIRN_UNAUTHORIZED, "profile \"empty\"");
    options.profile = "absent";
    EXPECT_CODE(get(&stage, &options), CAIRN_INVALID);
}

TEST(nothing_at_all_lists_what_was_looked_for) {
    CAIRN_AUTO(stage) stage = {0};
    cairn_stage_clear();
    EXPECT_FAILS(get(&stage, &plain), CAIRN_UNAUTHORIZED, "AWS_ACCESS_KEY_ID");
}

/* ---- web identity ---- */

static char asked_of_sts[2000]; /* the newest body */

static void answer_sts(struct cairn_responder_request *request) {
    snprintf(asked_of_sts, sizeof asked_of_sts, "%.*s", (int)request->body.size,
             request->body.data ? (const char *)request->body.data : "");
    bool right = request->body.data && !strcmp(request->method, "POST") &&
                 strstr(request->body.data, "Action=AssumeRoleWithWebIdentity&") &&
                 strstr(request->body.data, "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx") &&
                 strstr(request->body.data, "WebIdentityToken=jwt.canary");
    if (!right) {
        cairn_responder_reply(request, 400, "",
                              "<ErrorResponse><Error><Code>Bad</Code></Error></ErrorResponse>");
        return;
    }
    cairn_responder_reply(
        request, 200, "Content-Type: text/xml\r\n",
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
        "<AccessKeyId>ASIASTS</AccessKeyId><SecretAccessKey>sts-secret</SecretAccessKey>"
        "<SessionToken>sts-token</SessionToken><Expiration>2030-01-01T00:00:00Z</Expiration>"
        "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>");
}

TEST(a_web_identity_is_traded_for_keys) {
    cairn_stage_clear();
    WITH(stage, stage, cairn_stage_serve(&stage, answer_sts, NULL));
    SET("AWS_ENDPOINT_URL_STS", cairn_responder_url(stage.server), "AWS_ROLE_ARN",
        "arn:aws:iam::1:role/x", "AWS_WEB_IDENTITY_TOKEN_FILE",
        cairn_stage_file("token", "jwt.canary\n"));
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIASTS");
    EXPECT_EQ_TEXT(secret_of(&stage), "sts-secret");
    EXPECT_EQ_TEXT(token_of(&stage), "sts-token");
    char text[224];
    cairn_credentials_describe(&stage.keys, text);
    EXPECT_EQ_TEXT(text, "web identity, until 2030-01-01T00:00:00Z");
    setenv("AWS_ROLE_SESSION_NAME", "run 7", 1); /* who it is in the provider's log */
    REQUIRE_OK(get(&stage, &plain));
    EXPECT(strstr(asked_of_sts, "RoleSessionName=run%207"));
    SET("AWS_ROLE_SESSION_NAME", NULL, "AWS_ROLE_ARN", "arn:other");
    EXPECT_CODE(get(&stage, &plain), CAIRN_UNAUTHORIZED);
    EXPECT(!strstr(err.message, "canary"));
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token", 1);
    EXPECT(get(&stage, &plain) != CAIRN_OK);
    EXPECT(strstr(err.message, "web identity"));
}

/* ---- container endpoint ---- */

static const char json_keys[] =
    "{\"RoleArn\":\"x\",\"AccessKeyId\":\"ASIAC\",\"SecretAccessKey\":\"c-secret\","
    "\"Token\":\"c-token\",\"Expiration\":\"2030-01-01T00:00:00Z\",\"LastUpdated\":\"x\"}";

static void answer_container(struct cairn_responder_request *request) {
    char authorization[512] = "";
    cairn_responder_header(request, "Authorization", authorization);
    bool right = !strcmp(request->target, "/v2/creds?id=1") || !strcmp(authorization, "pod-token");
    cairn_responder_reply(request, right ? 200 : 403, "", right ? json_keys : "{}");
}

TEST(a_container_endpoint_is_asked_by_relative_and_full_address) {
    cairn_stage_clear();
    WITH(stage, stage, cairn_stage_serve(&stage, answer_container, NULL));
    struct cairn_credentials_options options = {.container_url = cairn_responder_url(stage.server)};
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/creds?id=1", 1);
    REQUIRE_OK(get(&stage, &options));
    EXPECT_ALL_TEXT(stage.keys.access_key, "ASIAC", stage.keys.source, "container endpoint");
    SET("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", NULL, "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        TEXT("%s/full", cairn_responder_url(stage.server)));
    EXPECT_CODE(get(&stage, &plain), CAIRN_UNAUTHORIZED);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", cairn_stage_file("pod", "pod-token\n"), 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(token_of(&stage), "c-token");
}

TEST(a_container_token_goes_to_no_foreign_host_in_the_clear) { /* credentials.h#4 */
    EACH_TEXT(text, "http://example.com/c", "http://127.0.0.1.example.com/",
              "http://127.0.0.1@example.com/", "ftp://127.0.0.1/", "http://localhost.example.com/",
              "http://169.254.170.20/") {
        CAIRN_AUTO(stage) stage = {0};
        FRESH("AWS_CONTAINER_CREDENTIALS_FULL_URI", text, "AWS_CONTAINER_AUTHORIZATION_TOKEN",
              "canary");
        EXPECT_CODE(get(&stage, &plain), CAIRN_FORBIDDEN);
        EXPECT(!strstr(err.message, "canary"));
    }
}

/* ---- instance metadata ---- */

static void answer_metadata(struct cairn_responder_request *request) {
    char token[512] = "", life[512] = "";
    cairn_responder_header(request, "X-aws-ec2-metadata-token", token);
    cairn_responder_header(request, "X-aws-ec2-metadata-token-ttl-seconds", life);
    if (!strcmp(request->method, "PUT") && !strcmp(request->target, "/latest/api/token") && *life)
        cairn_responder_reply(request, 200, "", "session");
    else if (strcmp(token, "session") != 0)
        cairn_responder_reply(request, 401, "", "");
    else if (!strcmp(request->target, "/latest/meta-data/iam/security-credentials/"))
        cairn_responder_reply(request, 200, "", "trainer\n");
    else if (!strcmp(request->target, "/latest/meta-data/iam/security-credentials/trainer"))
        cairn_responder_reply(request, 200, "", json_keys);
    else
        cairn_responder_reply(request, 404, "", "");
}

TEST(instance_metadata_is_asked_by_version_2_only) {
    FRESH("AWS_EC2_METADATA_DISABLED", NULL);
    WITH(stage, stage, cairn_stage_serve(&stage, answer_metadata, NULL));
    struct cairn_credentials_options options = {.metadata_url = cairn_responder_url(stage.server)};
    REQUIRE_OK(get(&stage, &options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAC");
    EXPECT_EQ_TEXT(stage.keys.source, "instance metadata, role trainer");
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1", 1);
    EXPECT_CODE(get(&stage, &plain), CAIRN_UNAUTHORIZED); /* nothing there: no source */
}

/* How the service behaves; what is not said is as AWS has it. */
struct metadata {
    unsigned failures; /* of the first requests, by 500 */
    int token_status;  /* 0: a token is given */
    const char *role;  /* what it says instead of keys */
    bool silent;
};

static void answer_oddly(struct cairn_responder_request *request) {
    const struct metadata *metadata = request->owner;
    if (metadata->silent)
        (void)cairn_responder_drain(request, 1); /* until the client goes */
    else if (request->index < metadata->failures)
        cairn_responder_reply(request, 500, "", "");
    else if (metadata->token_status && !strcmp(request->method, "PUT"))
        cairn_responder_reply(request, metadata->token_status, "", "");
    else if (metadata->role && strstr(request->target, "/trainer"))
        cairn_responder_reply(request, 200, "", metadata->role);
    else
        answer_metadata(request);
}

static enum cairn_code ask_metadata(struct cairn_stage *stage, struct metadata *metadata) {
    FRESH("AWS_EC2_METADATA_DISABLED", NULL);
    if (!EXPECT(cairn_stage_serve(stage, answer_oddly, metadata))) return CAIRN_INTERNAL;
    struct cairn_credentials_options options = {.metadata_url = cairn_responder_url(stage->server)};
    return get(stage, &options);
}

TEST(instance_metadata_that_fails_once_is_asked_again) {
    struct metadata metadata = {.failures = 2};
    WITH_OK(stage, stage, ask_metadata(&stage, &metadata));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAC");
}

TEST(instance_metadata_that_gives_no_session_token_is_named_with_what_it_answered) {
    CAIRN_AUTO(stage) stage = {0};
    struct metadata metadata = {.token_status = 404};
    EXPECT_FAILS(ask_metadata(&stage, &metadata), CAIRN_UNAUTHORIZED, "404");
    EXPECT(strstr(err.message, "session token"));
}

TEST(instance_metadata_that_is_silent_names_the_hop_limit) {
    CAIRN_AUTO(stage) stage = {0};
    struct metadata metadata = {.silent = true};
    EXPECT_FAILS(ask_metadata(&stage, &metadata), CAIRN_UNAVAILABLE, "hop limit");
}

TEST(a_role_that_may_not_be_assumed_is_told_in_the_services_own_words) {
    CAIRN_AUTO(stage) stage = {0};
    struct metadata metadata = {.role = "{\"Code\":\"AssumeRoleUnauthorizedAccess\",\"Message\":"
                                        "\"EC2 cannot assume the role trainer.\"}"};
    EXPECT_FAILS(ask_metadata(&stage, &metadata), CAIRN_UNAUTHORIZED,
                 "AssumeRoleUnauthorizedAccess: EC2 cannot assume the role");
}

TEST(a_profile_that_signs_in_by_aws_login_is_named_with_what_to_do) {
    EACH_TEXT(text, "[default]\nlogin_session = arn:aws:iam::1:user/ann\n",
              "[profile a]\nlogin_session = arn:aws:iam::1:user/ann\n[default]\nrole_arn = "
              "arn:aws:iam::1:role/x\nsource_profile = a\n") {
        CAIRN_AUTO(stage) stage = {0};
        FRESH("AWS_CONFIG_FILE", cairn_stage_file("config", text));
        EXPECT_FAILS(get(&stage, &plain), CAIRN_UNSUPPORTED, "`aws login`");
        EXPECT(strstr(err.message, "credential_process"));
    }
}

/* ---- renewal ---- */

struct scripted_keys {
    _Atomic int64_t expires_ms;
    atomic_uint served;
    atomic_bool broken, slow;
};

static void answer_scripted(struct cairn_responder_request *request) {
    struct scripted_keys *script = request->owner;
    if (atomic_load(&script->slow)) cairn_test_pause_ms(100); /* pause of a stand-in: it is slow */
    if (atomic_load(&script->broken)) {
        cairn_responder_reply(request, 500, "", "");
        return;
    }
    char until[32];
    cairn_time_text(atomic_load(&script->expires_ms), false, until);
    cairn_responder_reply(
        request, 200, "",
        TEXT("{\"AccessKeyId\":\"ASIA%u\",\"SecretAccessKey\":\"s\",\"Expiration\":\"%s\"}",
             atomic_fetch_add(&script->served, 1) + 1, until));
}

static bool start_scripted(struct cairn_stage *stage, struct scripted_keys *script,
                           struct cairn_clock_virtual *clock) {
    cairn_stage_clear();
    cairn_clock_virtual_init(clock, NOON);
    atomic_store(&script->expires_ms, NOON + 3600000);
    if (!cairn_stage_serve(stage, answer_scripted, script)) return false;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/", 1);
    struct cairn_credentials_options options = {.container_url = cairn_responder_url(stage->server),
                                                .clock = &clock->clock};
    return get(stage, &options) == CAIRN_OK;
}

TEST(keys_are_renewed_before_they_end) { /* credentials.h#2 */
    struct scripted_keys script = {0};
    struct cairn_clock_virtual clock;
    WITH(stage, stage, start_scripted(&stage, &script, &clock));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA1");
    EXPECT(cairn_credentials_current(stage.provider, stage.keys.generation));
    cairn_clock_virtual_advance(&clock, 54 * 60 * 1000);
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA1");
    cairn_clock_virtual_advance(&clock, 2 * 60 * 1000);
    EXPECT(!cairn_credentials_current(stage.provider, stage.keys.generation));
    atomic_store(&script.expires_ms, NOON + 7200000);
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA2");
}

TEST(a_failed_renewal_goes_on_with_keys_that_still_hold_and_fails_after_their_end) {
    struct scripted_keys script = {0};
    struct cairn_clock_virtual clock;
    WITH(stage, stage, start_scripted(&stage, &script, &clock));
    atomic_store(&script.broken, true);
    cairn_clock_virtual_advance(&clock, 56 * 60 * 1000);
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA1");
    uint32_t asked = cairn_responder_requests(stage.server);
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_U64(cairn_responder_requests(stage.server), asked); /* not at once again */
    cairn_clock_virtual_advance(&clock, 5 * 60 * 1000);
    EXPECT_CODE(cairn_credentials_get(stage.provider, 0, &stage.keys, &err), CAIRN_UNAVAILABLE);
}

/* credentials.h#3, S10 */
TEST(refused_keys_are_replaced_once_and_those_without_replacement_are_final) {
    struct scripted_keys script = {0};
    struct cairn_clock_virtual clock;
    WITH(stage, stage, start_scripted(&stage, &script, &clock));
    uint64_t first = stage.keys.generation;
    REQUIRE_OK(cairn_credentials_get(stage.provider, first, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA2");
    REQUIRE_OK(cairn_credentials_get(stage.provider, first, &stage.keys, &err)); /* a late thread */
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA2");
    FRESH("AWS_ACCESS_KEY_ID", "AKIDENV", "AWS_SECRET_ACCESS_KEY", "canary");
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_FAILS(cairn_credentials_get(stage.provider, stage.keys.generation, &stage.keys, &err),
                 CAIRN_UNAUTHORIZED,
                 "environment has no others; a token in AWS_SESSION_TOKEN ends");
    EXPECT_HAS(err.message, "restart it", "!canary");
}

static void *get_on_thread(void *provider) {
    struct cairn_credentials keys = {0};
    enum cairn_code code = cairn_credentials_get(provider, 1, &keys, NULL);
    bool renewed = code == CAIRN_OK && !strcmp(keys.access_key, "ASIA2");
    cairn_credentials_release(&keys);
    return renewed ? provider : NULL;
}

TEST(of_many_threads_one_renews) { /* credentials.h#2 */
    struct scripted_keys script = {0};
    struct cairn_clock_virtual clock;
    WITH(stage, stage, start_scripted(&stage, &script, &clock));
    atomic_store(&script.slow, true);
    pthread_t threads[8];
    for (size_t i = 0; i < CAIRN_COUNT(threads); i++)
        REQUIRE(!pthread_create(&threads[i], NULL, get_on_thread, stage.provider));
    for (size_t i = 0; i < CAIRN_COUNT(threads); i++) {
        void *renewed = NULL;
        pthread_join(threads[i], &renewed);
        EXPECT(renewed != NULL);
    }
    EXPECT_EQ_U64(atomic_load(&script.served), 2);
}

/* ---- files that change ---- */

static void write_keys(const char *access_key) {
    setenv(
        "AWS_SHARED_CREDENTIALS_FILE",
        cairn_stage_file("credentials",
                         TEXT("[default]\naws_access_key_id = %s\naws_secret_access_key = of-%s\n",
                              access_key, access_key)),
        1);
}

static bool start_with_file(struct cairn_stage *stage, struct cairn_clock_virtual *clock) {
    cairn_stage_clear();
    cairn_clock_virtual_init(clock, NOON);
    write_keys("AKIDONE");
    struct cairn_credentials_options options = {.clock = &clock->clock};
    return get(stage, &options) == CAIRN_OK && !strcmp(stage->keys.access_key, "AKIDONE");
}

/* credentials.h#3, S10 */
TEST(refused_keys_of_a_file_are_read_again_each_time_until_there_are_others) {
    struct cairn_clock_virtual clock;
    WITH(stage, stage, start_with_file(&stage, &clock));
    uint64_t first = stage.keys.generation;
    for (int i = 0; i < 2; i++) {
        EXPECT_FAILS(cairn_credentials_get(stage.provider, first, &stage.keys, &err),
                     CAIRN_UNAUTHORIZED, "profile default has no others; the files are read again");
        EXPECT(!strstr(err.message, "of-AKID"));
    }
    write_keys("AKIDTWO");
    REQUIRE_OK(cairn_credentials_get(stage.provider, first, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDTWO");
    EXPECT_EQ_TEXT(secret_of(&stage), "of-AKIDTWO");
}

TEST(a_changed_file_is_read_again_before_anything_is_refused) { /* credentials.h#3 */
    struct cairn_clock_virtual clock;
    WITH(stage, stage, start_with_file(&stage, &clock));
    EXPECT(cairn_credentials_current(stage.provider, stage.keys.generation));
    write_keys("AKIDTWO");
    cairn_clock_virtual_advance(&clock, 1000);
    EXPECT(!cairn_credentials_current(stage.provider, stage.keys.generation));
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDTWO");
    EXPECT(cairn_credentials_current(stage.provider, stage.keys.generation));
    cairn_clock_virtual_advance(&clock, 1000);
    EXPECT(cairn_credentials_current(stage.provider, stage.keys.generation)); /* the same file */
}

TEST(a_file_that_is_half_written_leaves_the_keys_that_hold) { /* credentials.h#2 */
    struct cairn_clock_virtual clock;
    WITH(stage, stage, start_with_file(&stage, &clock));
    cairn_stage_file("credentials", "[default]\naws_access_key_id = AKIDTWO\n");
    cairn_clock_virtual_advance(&clock, 1000);
    EXPECT(!cairn_credentials_current(stage.provider, stage.keys.generation));
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDONE");
    write_keys("AKIDTWO");
    cairn_clock_virtual_advance(&clock, 11000);
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDTWO");
}

TEST(a_file_that_others_may_read_is_named_with_its_mode) {
    struct cairn_clock_virtual clock;
    char text[CAIRN_CREDENTIALS_EXPOSED_BYTES] = "", path[512];
    WITH(stage, stage, start_with_file(&stage, &clock));
    EXPECT(!cairn_credentials_exposed(stage.provider, text));
    snprintf(path, sizeof path, "%s/credentials", cairn_test_folder());
    EACH_OF(mode_t, one, 0640, 0604, 0602, 0610) {
        const char *mode = TEXT("mode %04o", (unsigned)one);
        EXPECT(chmod(path, one) == 0);
        EXPECT(cairn_credentials_exposed(stage.provider, text));
        EXPECT_HAS(text, mode, path);
    }
    setenv("AWS_ACCESS_KEY_ID", "AKIDENV", 1); /* then the file is not where keys come from */
    setenv("AWS_SECRET_ACCESS_KEY", "env", 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT(!cairn_credentials_exposed(stage.provider, text));
}

TEST(a_config_file_is_exposed_only_when_keys_are_in_it) {
    char text[CAIRN_CREDENTIALS_EXPOSED_BYTES] = "", path[512];
    cairn_stage_clear();
    snprintf(path, sizeof path, "%s",
             cairn_stage_file("config", "[default]\naws_access_key_id = AKIDCFG\n"
                                        "aws_secret_access_key = cfg\n"));
    setenv("AWS_CONFIG_FILE", path, 1);
    EXPECT(chmod(path, 0644) == 0);
    WITH_OK(stage, stage, get(&stage, &plain));
    EXPECT(cairn_credentials_exposed(stage.provider, text));
    EXPECT(strstr(text, "config has mode 0644"));
    cairn_stage_file("config", "[default]\nregion = x\n");
    EXPECT(chmod(path, 0644) == 0);
    write_keys("AKIDONE");
    REQUIRE_OK(get(&stage, &plain));
    EXPECT(!cairn_credentials_exposed(stage.provider, text));
}
