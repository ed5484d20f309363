/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roles that other keys assume: a responder plays STS, container endpoint and instance metadata. It
 * computes every signature anew and knows which keys may assume which role.
 */
#include "store/keys/sigv4.h"
#include "store/time.h"
#include "tests/support/key_stage.h"

#define err (stage.error)

/* ---- STS ---- */

struct pair {
    const char *access, *secret, *token, *role; /* role: the one that gives these keys */
};
static const struct pair pairs[] = {
    {"AKIDBASE", "canary/base+secret", "", NULL},
    {"ASIAHOST", "canary-host", "host-token", NULL},
    {"ASIAONE", "canary-one", "one/token==", "arn:aws:iam::1:role/one"},
    {"ASIATWO", "canary-two", "two-token", "arn:aws:iam::1:role/two"},
};

struct sts {
    _Atomic int64_t ahead_ms; /* of its clock */
    const struct cairn_clock *clock;
    atomic_uint served, refused;
    char bodies[8][2048]; /* of the requests that were good */
};

static void header_of(const struct cairn_responder_request *request, const char *name,
                      char ret[512]) {
    ret[0] = '\0';
    (void)cairn_responder_header(request, name, ret);
}

/* The signature that these keys would make of this request; signed_names is cut apart. */
static bool sign_again(const struct cairn_responder_request *request, const struct pair *keys,
                       char *signed_names, const char *time, char ret_hex[65]) {
    static char values[8][512];
    struct cairn_sigv4_pair headers[8];
    CAIRN_AUTO(buf) canonical = {0}, names = {0}, text = {0};
    uint8_t digest[CAIRN_SHA256_BYTES], key[CAIRN_SHA256_BYTES];
    char hash[2 * CAIRN_SHA256_BYTES + 1];
    size_t count = 0;
    char *rest = signed_names;
    for (char *name = strsep(&rest, ";"); name && count < 8; name = strsep(&rest, ";"), count++) {
        header_of(request, name, values[count]);
        headers[count] = (struct cairn_sigv4_pair){name, values[count]};
    }
    cairn_sha256_of(request->body, digest);
    cairn_hex_encode(digest, sizeof digest, hash);
    struct cairn_sigv4_request again = {.method = request->method,
                                        .path = request->target,
                                        .headers = headers,
                                        .header_count = count,
                                        .payload = hash};
    struct cairn_sigv4_scope scope = {.region = "eu-west-1", .service = "sts"};
    snprintf(scope.time, sizeof scope.time, "%.16s", time);
    if (cairn_sigv4_canonical(&again, &canonical, &names, NULL) != CAIRN_OK ||
        cairn_sigv4_string_to_sign(&scope, cairn_buf_view(&canonical), &text, NULL) != CAIRN_OK)
        return false;
    cairn_sigv4_key(&scope, cairn_view_of(keys->secret), key);
    cairn_sigv4_signature(key, cairn_buf_view(&text), ret_hex);
    return true;
}

/* NULL: not signed by anybody we know. */
static const struct pair *signer_of(const struct cairn_responder_request *request) {
    char line[512], date[512], token[512], access[64] = "", names[200] = "", signature[80] = "";
    header_of(request, "Authorization", line);
    header_of(request, "X-Amz-Date", date);
    header_of(request, "X-Amz-Security-Token", token);
    if (sscanf(line,
               "AWS4-HMAC-SHA256 Credential=%63[A-Z]/%*8[0-9]/eu-west-1/sts/aws4_request, "
               "SignedHeaders=%199[a-z0-9;-], Signature=%79[0-9a-f]",
               access, names, signature) != 3)
        return NULL;
    bool all = strstr(names, "host") && strstr(names, "x-amz-date") &&
               (!*token || strstr(names, "x-amz-security-token"));
    for (size_t i = 0; i < CAIRN_COUNT(pairs) && all; i++) {
        char hex[65];
        if (strcmp(access, pairs[i].access) != 0 || strcmp(token, pairs[i].token) != 0) continue;
        if (sign_again(request, &pairs[i], names, date, hex) && !strcmp(hex, signature))
            return &pairs[i];
        return NULL;
    }
    return NULL;
}

static void date_line(const struct sts *sts, char ret[64]) {
    time_t seconds = (time_t)((sts->clock->wall_ms(sts->clock) + sts->ahead_ms) / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    strftime(ret, 64, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
}

static void refuse(struct cairn_responder_request *request, struct sts *sts, const char *code) {
    char date[64];
    atomic_fetch_add(&sts->refused, 1);
    date_line(sts, date);
    cairn_responder_reply(
        request, 403, date,
        TEXT("<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>"
             "Sender</Type><Code>%s</Code><Message>canary message</Message></Error>"
             "</ErrorResponse>",
             code));
}

/* "20300101T120000Z" */
static bool is_now(const struct sts *sts, const char *date) {
    int64_t then = 0;
    const char *iso = TEXT("%.4s-%.2s-%.2sT%.2s:%.2s:%.2sZ", date, date + 4, date + 6, date + 9,
                           date + 11, date + 13);
    if (strlen(date) != 16 || cairn_s3_time_iso(iso, &then, NULL) != CAIRN_OK) return false;
    int64_t off = then - (sts->clock->wall_ms(sts->clock) + sts->ahead_ms);
    return off < 15 * 60000 && off > -15 * 60000;
}

static void give_keys(struct cairn_responder_request *request, struct sts *sts,
                      const struct pair *keys) {
    char until[32];
    cairn_time_text(sts->clock->wall_ms(sts->clock) + 3600000, false, until);
    const char *body =
        TEXT("<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>%s</AccessKeyId>"
             "<SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s"
             "</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>",
             keys->access, keys->secret, keys->token, until);
    unsigned index = atomic_fetch_add(&sts->served, 1);
    if (index < 8)
        snprintf(sts->bodies[index], sizeof sts->bodies[0], "%.*s", (int)request->body.size,
                 (const char *)request->body.data);
    cairn_responder_reply(request, 200, "Content-Type: text/xml\r\n", body);
}

static void answer_sts(struct cairn_responder_request *request) {
    struct sts *sts = request->owner;
    char date[512];
    const struct pair *by = signer_of(request);
    header_of(request, "X-Amz-Date", date);
    if (!is_now(sts, date)) {
        refuse(request, sts, "RequestExpired");
        return;
    }
    if (!by) {
        refuse(request, sts, "SignatureDoesNotMatch");
        return;
    }
    for (size_t i = 0; i < CAIRN_COUNT(pairs); i++) {
        CAIRN_AUTO(buf) field = {0};
        if (!pairs[i].role) continue;
        bool made = !cairn_buf_append_text(&field, "&RoleArn=", NULL) &&
                    !cairn_percent_encode(cairn_view_of(pairs[i].role), false, &field, NULL) &&
                    !cairn_buf_append_text(&field, "&", NULL);
        if (!made || !strstr(request->body.data, field.data)) continue;
        give_keys(request, sts, &pairs[i]);
        return;
    }
    refuse(request, sts, "AccessDenied");
}

/* ---- the host's own keys ---- */

static const char host_keys[] = "{\"AccessKeyId\":\"ASIAHOST\",\"SecretAccessKey\":\"canary-host\","
                                "\"Token\":\"host-token\",\"Expiration\":\"2031-01-01T00:00:00Z\"}";

static void answer_all(struct cairn_responder_request *request) {
    const char *target = request->target;
    if (!strcmp(target, "/latest/api/token"))
        cairn_responder_reply(request, 200, "", "session");
    else if (!strcmp(target, "/latest/meta-data/iam/security-credentials/"))
        cairn_responder_reply(request, 200, "", "host");
    else if (!strcmp(target, "/latest/meta-data/iam/security-credentials/host") ||
             !strcmp(target, "/container"))
        cairn_responder_reply(request, 200, "", host_keys);
    else
        answer_sts(request);
}

/* ---- a stage with STS ---- */

struct play {
    struct sts sts;
    struct cairn_clock_virtual clock;
    struct cairn_credentials_options options;
};

static bool begin(struct cairn_stage *stage, struct play *play, const char *config) {
    cairn_stage_clear();
    if (!stage->server && !cairn_stage_serve(stage, answer_all, &play->sts)) return false;
    cairn_clock_virtual_init(&play->clock, CAIRN_STAGE_NOON);
    play->sts.clock = &play->clock.clock;
    play->options = (struct cairn_credentials_options){
        .profile = "p", .region = "eu-west-1", .clock = &play->clock.clock};
    SET("AWS_ENDPOINT_URL_STS", cairn_responder_url(stage->server), "AWS_CONFIG_FILE",
        cairn_stage_file("config", config), "AWS_SHARED_CREDENTIALS_FILE",
        cairn_stage_file("credentials", "[base]\naws_access_key_id = AKIDBASE\n"
                                        "aws_secret_access_key = canary/base+secret\n"));
    return true;
}

#define ONE "[profile p]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = base\n"
#define BEGUN(config)                                                                              \
    struct play play = {0};                                                                        \
    WITH(stage, stage, begin(&stage, &play, config))

TEST(a_role_is_assumed_with_the_keys_of_another_profile) {
    BEGUN(ONE "role_session_name = run 7\nexternal_id = a&b=c\nduration_seconds = 7200\n");
    REQUIRE_OK(cairn_stage_get(&stage, &play.options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAONE");
    EXPECT_EQ_TEXT(cairn_stage_secret(&stage), "canary-one");
    EXPECT_EQ_TEXT(cairn_stage_token(&stage), "one/token==");
    char text[224];
    cairn_credentials_describe(&stage.keys, text);
    EXPECT_ALL_TEXT(text, "role of profile p, until 2030-01-01T13:00:00Z", play.sts.bodies[0],
                    "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole"
                    "%2Fone&RoleSessionName=run%207&ExternalId=a%26b%3Dc&DurationSeconds=7200");
    EXPECT_EQ_U64(atomic_load(&play.sts.refused), 0);
}

TEST(roles_that_lead_to_each_other_are_assumed_in_their_order) {
    BEGUN("[profile p]\nrole_arn = arn:aws:iam::1:role/two\nsource_profile = middle\n"
          "[profile middle]\nrole_arn=arn:aws:iam::1:role/one\nsource_profile=base\n");
    REQUIRE_OK(cairn_stage_get(&stage, &play.options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIATWO");
    EXPECT(strstr(play.sts.bodies[0], "role%2Fone&RoleSessionName=cairn"));
    EXPECT(strstr(play.sts.bodies[1], "role%2Ftwo&"));
    EXPECT_EQ_U64(atomic_load(&play.sts.served), 2);
    /* Where only keys are wanted, a profile's own come before its role. */
    REQUIRE(begin(&stage, &play,
                  "[profile p]\nrole_arn = arn:aws:iam::1:role/two\nsource_profile = base\n"
                  "[profile base]\nrole_arn=arn:aws:iam::1:role/one\nsource_profile=p\n"));
    REQUIRE_OK(cairn_stage_get(&stage, &play.options));
    EXPECT_EQ_U64(atomic_load(&play.sts.served), 3);
}

TEST(a_profile_may_be_its_own_source_and_a_program_may_be_one) {
    BEGUN("[profile p]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = p\n"
          "aws_access_key_id = AKIDBASE\naws_secret_access_key = canary/base+secret\n");
    REQUIRE_OK(cairn_stage_get(&stage, &play.options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAONE");
    REQUIRE(
        begin(&stage, &play,
              TEXT("[profile p]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = tool\n"
                   "[profile tool]\ncredential_process = \"%s\"\n",
                   cairn_stage_program("tool", "#!/bin/sh\necho '{\"Version\":1,\"AccessKeyId\":"
                                               "\"ASIAHOST\",\"SecretAccessKey\":\"canary-host\","
                                               "\"SessionToken\":\"host-token\"}'\n"))));
    REQUIRE_OK(cairn_stage_get(&stage, &play.options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAONE");
    EXPECT_EQ_U64(atomic_load(&play.sts.refused), 0);
}

TEST(a_role_is_assumed_with_keys_of_the_environment_a_container_or_the_machine) {
    CAIRN_AUTO(stage) stage = {0};
    struct play play = {0};
    EACH_TEXT(text, "Environment", "EcsContainer", "Ec2InstanceMetadata") {
        REQUIRE(
            begin(&stage, &play,
                  TEXT("[profile p]\nrole_arn = arn:aws:iam::1:role/one\ncredential_source = %s\n",
                       text)));
        EXPECT_CODE(cairn_stage_get(&stage, &play.options), CAIRN_UNAUTHORIZED);
        EXPECT(strstr(err.message, text)); /* nothing there yet */
        const char *url = TEXT("%s/container", cairn_responder_url(stage.server));
        if (AT_OF(text) == 0) {
            SET("AWS_ACCESS_KEY_ID", "AKIDBASE", "AWS_SECRET_ACCESS_KEY", "canary/base+secret");
        } else if (AT_OF(text) == 1) {
            setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
        } else {
            unsetenv("AWS_EC2_METADATA_DISABLED");
            play.options.metadata_url = cairn_responder_url(stage.server);
        }
        REQUIRE_OK(cairn_stage_get(&stage, &play.options));
        EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAONE");
    }
    EXPECT_EQ_U64(atomic_load(&play.sts.refused), 0);
}

TEST(chains_that_lead_nowhere_are_refused_by_name) {
    CAIRN_AUTO(stage) stage = {0};
    struct play play = {0};
    EACH(
        row, FIELDS(const char *config, *told; enum cairn_code code),
        {"source_profile = b\n[profile b]\nrole_arn = y\nsource_profile = c\n"
         "[profile c]\nrole_arn = z\nsource_profile = b\n",
         "in a circle: p -> b -> c -> b", CAIRN_INVALID},
        {"source_profile = p\n", "in a circle: p -> p", CAIRN_INVALID},
        {"source_profile = nobody\n", "names source_profile \"nobody\"", CAIRN_INVALID},
        {"source_profile = empty\n[profile empty]\nregion = x\n", "\"empty\" holds no keys",
         CAIRN_UNAUTHORIZED},
        {"source_profile = half\n[profile half]\naws_access_key_id = x\n", "one of its two keys",
         CAIRN_UNAUTHORIZED},
        {"source_profile = base\ncredential_source = Environment\n", "both", CAIRN_INVALID},
        {"credential_source = Wallet\n", "\"Wallet\"", CAIRN_INVALID},
        {"", "neither source_profile", CAIRN_INVALID},
        {"source_profile = base\nmfa_serial = arn:x\n", "mfa_serial", CAIRN_UNSUPPORTED},
        {"source_profile = base\nduration_seconds = 60\n", "duration_seconds is 60", CAIRN_INVALID},
        {"source_profile = base\nduration_seconds = long\n", "long", CAIRN_INVALID},
        {"source_profile = sso\n[profile sso]\nsso_session = x\n", "SSO", CAIRN_UNSUPPORTED},
        {"source_profile = base\n", "AssumeRole answered 403 AccessDenied", CAIRN_UNAUTHORIZED}) {
        REQUIRE(begin(&stage, &play, TEXT("[profile p]\nrole_arn = arn:other\n%s", row->config)));
        EXPECT_CODE(cairn_stage_get(&stage, &play.options), row->code);
        if (!EXPECT(strstr(err.message, row->told)))
            fprintf(stderr, "%s: %s\n", row->config, err.message);
        EXPECT_HAS(err.message, "profile \"p\"", "!canary");
    }
}

TEST(a_chain_has_an_end) {
    struct play play = {0};
    char config[2000] = "[profile p]\nrole_arn = x\nsource_profile = q0\n";
    size_t used = strlen(config);
    for (int i = 0; i < 20; i++)
        used += (size_t)snprintf(config + used, sizeof config - used,
                                 "[profile q%d]\nrole_arn = x\nsource_profile = q%d\n", i, i + 1);
    WITH(stage, stage, begin(&stage, &play, config));
    EXPECT_FAILS(cairn_stage_get(&stage, &play.options), CAIRN_INVALID, "more than 8 profiles");
    EXPECT_EQ_U64(cairn_responder_requests(stage.server), 0);
}

TEST(keys_of_a_role_are_renewed_before_they_end) { /* credentials.h#2 */
    BEGUN(ONE);
    REQUIRE_OK(cairn_stage_get(&stage, &play.options));
    cairn_clock_virtual_advance(&play.clock, 50 * 60 * 1000);
    EXPECT(cairn_credentials_current(stage.provider, stage.keys.generation));
    cairn_clock_virtual_advance(&play.clock, 6 * 60 * 1000);
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_U64(atomic_load(&play.sts.served), 2);
    EXPECT(stage.keys.expires_ms > CAIRN_STAGE_NOON + 3600000);
}

TEST(a_clock_that_is_off_does_not_keep_a_role_away) { /* S11 */
    static const int64_t ahead_ms[] = {3600000, -3600000};
    for (size_t i = 0; i < CAIRN_COUNT(ahead_ms); i++) {
        BEGUN(ONE);
        atomic_store(&play.sts.ahead_ms, ahead_ms[i]);
        REQUIRE_OK(cairn_stage_get(&stage, &play.options));
        EXPECT_ALL_U64(atomic_load(&play.sts.refused), 1, atomic_load(&play.sts.served), 1);
    }
}

TEST(sts_is_asked_in_the_clear_on_this_machine_alone) { /* credentials.h#4 */
    CAIRN_AUTO(stage) stage = {0};
    struct play play = {0};
    EACH_TEXT(text, "http://sts.example.com", "http://192.0.2.1:8000",
              "http://127.0.0.1@192.0.2.1/", "ftp://127.0.0.1") {
        REQUIRE(begin(&stage, &play, ONE));
        setenv("AWS_ENDPOINT_URL_STS", text, 1);
        EXPECT_CODE(cairn_stage_get(&stage, &play.options), CAIRN_FORBIDDEN);
    }
    /* As with the store itself, a trusted network may be allowed. */
    play.options.allow_plain_http = true;
    setenv("AWS_ENDPOINT_URL_STS", "http://x.invalid", 1);
    enum cairn_code code = cairn_stage_get(&stage, &play.options);
    EXPECT(code != CAIRN_OK);
    EXPECT(code != CAIRN_FORBIDDEN);
}

TEST(no_variable_says_where_the_role_of_a_profile_that_is_alone_is_assumed) { /* credentials.h#6 */
    BEGUN(ONE);
    play.options.profile_alone = true;
    play.options.sts_url = cairn_responder_url(stage.server);
    setenv("AWS_ENDPOINT_URL_STS", "http://192.0.2.1", 1); /* would be refused */
    setenv("AWS_ENDPOINT_URL", "http://192.0.2.1", 1);
    REQUIRE_OK(cairn_stage_get(&stage, &play.options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAONE");
    EXPECT_EQ_U64(atomic_load(&play.sts.served), 1);
}
