/* SPDX-License-Identifier: Apache-2.0 */
/* Every source against a real responder or real files, and the renewal with a clock of our own. */
#include "store/credentials.h"

#include <pthread.h>
#include <time.h>

#include "tests/harness.h"
#include "tests/support/http_responder.h"

static const char *const variables[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_CONFIG_FILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_ROLE_SESSION_NAME",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_STS",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_DISABLED",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT"};

/* An empty environment, a home of this test alone, and a responder. */
struct cairn_stage {
    struct cairn_credentials_provider *provider;
    struct cairn_credentials keys;
    struct cairn_responder *server;
    struct cairn_error error;
};
static void clear_variables(void) {
    for (size_t i = 0; i < CAIRN_COUNT(variables); i++) unsetenv(variables[i]);
    setenv("HOME", cairn_test_folder(), 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
}
static void cairn_stage_release(struct cairn_stage *stage) {
    cairn_credentials_provider_free(stage->provider);
    cairn_credentials_release(&stage->keys);
    cairn_responder_stop(stage->server);
    clear_variables();
}
#define err (stage.error)

static enum cairn_code get(struct cairn_stage *stage,
                           const struct cairn_credentials_options *options) {
    cairn_credentials_provider_free(stage->provider);
    stage->provider = NULL;
    enum cairn_code code = cairn_credentials_provider_new(options, &stage->provider, &stage->error);
    if (code) return code;
    return cairn_credentials_get(stage->provider, 0, &stage->keys, &stage->error);
}
static const struct cairn_credentials_options plain;

static const char *write_file(const char *name, const char *text) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", cairn_test_folder(), name);
    FILE *file = fopen(path, "w");
    EXPECT(file && fputs(text, file) >= 0);
    if (file) fclose(file);
    return path;
}

static const char *secret_of(const struct cairn_stage *stage) {
    return cairn_secret_view(&stage->keys.secret).data;
}
static const char *token_of(const struct cairn_stage *stage) {
    return cairn_secret_view(&stage->keys.token).data;
}

TEST(the_environment_comes_first) {
    CAIRN_AUTO(stage) stage = {0};
    clear_variables();
    setenv("AWS_ACCESS_KEY_ID", "AKIDENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret-env", 1);
    setenv("AWS_PROFILE", "absent", 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDENV");
    EXPECT_EQ_TEXT(secret_of(&stage), "secret-env");
    EXPECT_EQ_TEXT(token_of(&stage), "");
    EXPECT_EQ_TEXT(stage.keys.source, "environment");
    setenv("AWS_SESSION_TOKEN", "token-env", 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(token_of(&stage), "token-env");
}

TEST(half_a_pair_in_the_environment_is_an_error_and_not_passed_over) { /* A1 */
    CAIRN_AUTO(stage) stage = {0};
    clear_variables();
    setenv("AWS_ACCESS_KEY_ID", "AKIDENV", 1);
    EXPECT_CODE(get(&stage, &plain), CAIRN_UNAUTHORIZED);
    EXPECT(strstr(err.message, "AWS_SECRET_ACCESS_KEY is not"));
}

TEST(profiles_come_from_both_files_and_the_credentials_file_wins) {
    CAIRN_AUTO(stage) stage = {0};
    clear_variables();
    setenv("AWS_CONFIG_FILE",
           write_file("config", "[default]\naws_access_key_id = CFG\naws_secret_access_key = cfg\n"
                                "region = eu-west-1\n\n[profile ml]\n# comment\nregion=us-west-2\n"
                                "s3 =\n  addressing_style = path\nendpoint_url = http://h\n"
                                "[services x]\nregion = wrong\n"),
           1);
    setenv("AWS_SHARED_CREDENTIALS_FILE",
           write_file("credentials", "[default]\naws_access_key_id=AKIDFILE\n"
                                     "aws_secret_access_key=file/secret+=\r\n"
                                     "[ml]\n aws_access_key_id = AKIDML\n"
                                     "aws_secret_access_key = ml\naws_session_token = mltok\n"),
           1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDFILE");
    EXPECT_EQ_TEXT(secret_of(&stage), "file/secret+=");
    EXPECT_EQ_TEXT(stage.keys.source, "profile default");
    setenv("AWS_PROFILE", "ml", 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "AKIDML");
    EXPECT_EQ_TEXT(token_of(&stage), "mltok");
    CAIRN_AUTO(profile) profile = {0};
    REQUIRE_OK(cairn_profile_load(NULL, &profile, &err));
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "region"), "us-west-2");
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "s3.addressing_style"), "path");
    EXPECT_EQ_TEXT(cairn_profile_get(&profile, "endpoint_url"), "http://h");
    EXPECT(!cairn_profile_get(&profile, "addressing_style"));
}

TEST(a_profile_that_is_absent_or_not_supported_is_named) {
    CAIRN_AUTO(stage) stage = {0};
    clear_variables();
    struct cairn_credentials_options options = {.profile = "nobody"};
    EXPECT_CODE(get(&stage, &options), CAIRN_INVALID);
    EXPECT(strstr(err.message, "nobody"));
    setenv("AWS_CONFIG_FILE",
           write_file("config", "[profile sso]\nsso_start_url = https://x\n"
                                "[profile role]\nrole_arn = a\nsource_profile = default\n"),
           1);
    options.profile = "sso";
    EXPECT_CODE(get(&stage, &options), CAIRN_UNSUPPORTED);
    options.profile = "role";
    EXPECT_CODE(get(&stage, &options), CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "source_profile"));
}

TEST(nothing_at_all_lists_what_was_looked_for) {
    CAIRN_AUTO(stage) stage = {0};
    clear_variables();
    EXPECT_CODE(get(&stage, &plain), CAIRN_UNAUTHORIZED);
    EXPECT(strstr(err.message, "AWS_ACCESS_KEY_ID"));
}

/* ---- web identity ---- */

static void answer_sts(struct cairn_responder_request *request) {
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

static bool start_server(struct cairn_stage *stage,
                         void (*answer)(struct cairn_responder_request *), void *owner) {
    struct cairn_responder_options options = {.answer = answer, .owner = owner};
    stage->server = cairn_responder_start(&options);
    return stage->server != NULL;
}

TEST(a_web_identity_is_traded_for_keys) {
    CAIRN_AUTO(stage) stage = {0};
    clear_variables();
    REQUIRE(start_server(&stage, answer_sts, NULL));
    setenv("AWS_ENDPOINT_URL_STS", cairn_responder_url(stage.server), 1);
    setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/x", 1);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", write_file("token", "jwt.canary\n"), 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIASTS");
    EXPECT_EQ_TEXT(secret_of(&stage), "sts-secret");
    EXPECT_EQ_TEXT(token_of(&stage), "sts-token");
    char text[224];
    cairn_credentials_describe(&stage.keys, text);
    EXPECT_EQ_TEXT(text, "web identity, until 2030-01-01T00:00:00Z");
    setenv("AWS_ROLE_ARN", "arn:other", 1);
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
    CAIRN_AUTO(stage) stage = {0};
    clear_variables();
    REQUIRE(start_server(&stage, answer_container, NULL));
    struct cairn_credentials_options options = {.container_url = cairn_responder_url(stage.server)};
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/creds?id=1", 1);
    REQUIRE_OK(get(&stage, &options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAC");
    EXPECT_EQ_TEXT(stage.keys.source, "container endpoint");
    unsetenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    char url[128];
    snprintf(url, sizeof url, "%s/full", cairn_responder_url(stage.server));
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    EXPECT_CODE(get(&stage, &plain), CAIRN_UNAUTHORIZED);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write_file("pod", "pod-token\n"), 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_EQ_TEXT(token_of(&stage), "c-token");
}

TEST(a_container_token_goes_to_no_foreign_host_in_the_clear) { /* A4 */
    static const char *const bad[] = {
        "http://example.com/c", "http://127.0.0.1.example.com/", "http://127.0.0.1@example.com/",
        "ftp://127.0.0.1/",     "http://localhost.example.com/", "http://169.254.170.20/"};
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        CAIRN_AUTO(stage) stage = {0};
        clear_variables();
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", bad[i], 1);
        setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "canary", 1);
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
    CAIRN_AUTO(stage) stage = {0};
    clear_variables();
    unsetenv("AWS_EC2_METADATA_DISABLED");
    REQUIRE(start_server(&stage, answer_metadata, NULL));
    struct cairn_credentials_options options = {.metadata_url = cairn_responder_url(stage.server)};
    REQUIRE_OK(get(&stage, &options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAC");
    EXPECT_EQ_TEXT(stage.keys.source, "instance metadata, role trainer");
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1", 1);
    EXPECT_CODE(get(&stage, &plain), CAIRN_UNAUTHORIZED); /* nothing there: no source */
}

/* ---- renewal ---- */

struct scripted_keys {
    _Atomic int64_t expires_ms;
    atomic_uint served;
    atomic_bool broken, slow;
};

static void answer_scripted(struct cairn_responder_request *request) {
    struct scripted_keys *script = request->owner;
    if (atomic_load(&script->slow)) {
        struct timespec time = {0, 100000000};
        nanosleep(&time, NULL);
    }
    if (atomic_load(&script->broken)) {
        cairn_responder_reply(request, 500, "", "");
        return;
    }
    char body[512], until[32];
    cairn_time_text(atomic_load(&script->expires_ms), false, until);
    snprintf(body, sizeof body,
             "{\"AccessKeyId\":\"ASIA%u\",\"SecretAccessKey\":\"s\",\"Expiration\":\"%s\"}",
             atomic_fetch_add(&script->served, 1) + 1, until);
    cairn_responder_reply(request, 200, "", body);
}

#define NOON INT64_C(1893499200000)

static bool start_scripted(struct cairn_stage *stage, struct scripted_keys *script,
                           struct cairn_clock_virtual *clock) {
    clear_variables();
    cairn_clock_virtual_init(clock, NOON);
    atomic_store(&script->expires_ms, NOON + 3600000);
    if (!start_server(stage, answer_scripted, script)) return false;
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/", 1);
    struct cairn_credentials_options options = {.container_url = cairn_responder_url(stage->server),
                                                .clock = &clock->clock};
    return get(stage, &options) == CAIRN_OK;
}

TEST(keys_are_renewed_before_they_end) { /* A2 */
    CAIRN_AUTO(stage) stage = {0};
    struct scripted_keys script = {0};
    struct cairn_clock_virtual clock;
    REQUIRE(start_scripted(&stage, &script, &clock));
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
    CAIRN_AUTO(stage) stage = {0};
    struct scripted_keys script = {0};
    struct cairn_clock_virtual clock;
    REQUIRE(start_scripted(&stage, &script, &clock));
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

TEST(refused_keys_are_replaced_once_and_those_without_replacement_are_final) { /* A3, S10 */
    CAIRN_AUTO(stage) stage = {0};
    struct scripted_keys script = {0};
    struct cairn_clock_virtual clock;
    REQUIRE(start_scripted(&stage, &script, &clock));
    uint64_t first = stage.keys.generation;
    REQUIRE_OK(cairn_credentials_get(stage.provider, first, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA2");
    REQUIRE_OK(cairn_credentials_get(stage.provider, first, &stage.keys, &err)); /* a late thread */
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA2");
    clear_variables();
    setenv("AWS_ACCESS_KEY_ID", "AKIDENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "canary", 1);
    REQUIRE_OK(get(&stage, &plain));
    EXPECT_CODE(cairn_credentials_get(stage.provider, stage.keys.generation, &stage.keys, &err),
                CAIRN_UNAUTHORIZED);
    EXPECT(strstr(err.message, "environment has no others"));
    EXPECT(!strstr(err.message, "canary"));
}

static void *get_on_thread(void *provider) {
    struct cairn_credentials keys = {0};
    enum cairn_code code = cairn_credentials_get(provider, 1, &keys, NULL);
    bool renewed = code == CAIRN_OK && !strcmp(keys.access_key, "ASIA2");
    cairn_credentials_release(&keys);
    return renewed ? provider : NULL;
}

TEST(of_many_threads_one_renews) { /* A2 */
    CAIRN_AUTO(stage) stage = {0};
    struct scripted_keys script = {0};
    struct cairn_clock_virtual clock;
    REQUIRE(start_scripted(&stage, &script, &clock));
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
