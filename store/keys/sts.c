/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys from STS: for a token of somebody else's (web identity), or for other keys (AssumeRole,
 * signed with them).
 */
#include <stdio.h>

#include "common/text.h"
#include "store/keys/aws.h"
#include "store/keys/fetch.h"
#include "store/keys/keys.h"
#include "store/keys/sigv4.h"
#include "store/time.h"
#include "store/xml/xml.h"

#define FORM "application/x-www-form-urlencoded"
/* As in store/s3/reply.c: below this a refusal is not about the clock. */
#define SKEW_MS_MIN (4 * 60 * 1000)
#define LIFE_S_MIN 900
#define LIFE_S_MAX 43200

/* ---- where STS is ---- */

static enum cairn_code sts_url(const struct cairn_credentials_options *options,
                               struct cairn_buf *ret, struct cairn_error *err) {
    bool alone = options->profile_alone;
    const char *named =
        alone ? options->sts_url : cairn_credentials_variable("AWS_ENDPOINT_URL_STS");
    if (!named && !alone) named = cairn_credentials_variable("AWS_ENDPOINT_URL");
    if (named && !options->allow_plain_http && !cairn_credentials_may_go_to(named))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "the endpoint of STS is neither https nor on this machine");
    if (named) return cairn_buf_printf(ret, err, "%s", named);
    if (!options->region) return cairn_buf_append_text(ret, "https://sts.amazonaws.com", err);
    /* Those of the government's regions are validated under their usual names. */
    bool other_name = options->fips && !cairn_text_starts(options->region, "us-gov-");
    return cairn_buf_printf(ret, err, "https://sts%s.%s.%s", other_name ? "-fips" : "",
                            options->region, cairn_aws_domain(options->region));
}

/* The parts of the URL that are signed. The host is as libcurl writes it: without the scheme's own
 * port. */
struct place {
    char host[300], path[256];
};

static enum cairn_code take_url(const char *url, struct place *ret, struct cairn_error *err) {
    struct cairn_url parts;
    bool good = cairn_url_split_http(url, &parts) && parts.host.size < sizeof ret->host &&
                !strpbrk(url, "?#@%\\ \t\r\n") && strlen(parts.path) < sizeof ret->path;
    if (!good)
        return cairn_fail(err, CAIRN_INVALID,
                          "the endpoint of STS must be http(s)://host[:port][/path]");
    struct cairn_view host = cairn_url_host(&parts);
    snprintf(ret->path, sizeof ret->path, "%s", *parts.path ? parts.path : "/");
    snprintf(ret->host, sizeof ret->host, "%.*s", (int)host.size, (const char *)host.data);
    return CAIRN_OK;
}

/* ---- questions and answers ---- */

static enum cairn_code add_field(struct cairn_buf *body, const char *name, const char *value,
                                 struct cairn_error *err) {
    if (!value) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(body, err, "&%s=", name));
    return cairn_percent_encode(cairn_view_of(value), false, body, err);
}

static enum cairn_code read_session(const struct cairn_buf *answer, const char *root,
                                    struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(xml_session) session = {0};
    CAIRN_TRY(cairn_xml_session_read(cairn_buf_view(answer), root, &session, err));
    CAIRN_TRY(cairn_credentials_set(ret, session.access_key,
                                    cairn_secret_view(&session.secret).data,
                                    cairn_secret_view(&session.token).data, err));
    if (!session.expiration[0]) return CAIRN_OK;
    return cairn_s3_time_iso(session.expiration, &ret->expires_ms, err);
}

/* ---- web identity ---- */

static enum cairn_code identity_body(const struct cairn_web_identity *identity,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_SECRET_BUF token = {.limit = CAIRN_SECRET_BYTES_MAX};
    CAIRN_TRY(cairn_credentials_load_token(identity->token_file, &token, err));
    CAIRN_TRY(
        cairn_buf_append_text(ret, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15", err));
    CAIRN_TRY(add_field(ret, "RoleArn", identity->role_arn, err));
    CAIRN_TRY(add_field(ret, "RoleSessionName",
                        identity->session_name ? identity->session_name : "cairn", err));
    return add_field(ret, "WebIdentityToken", token.data, err);
}

enum cairn_code cairn_credentials_assume(const struct cairn_credentials_options *options,
                                         const struct cairn_web_identity *identity,
                                         struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_SECRET_BUF body = {.limit = 4 * CAIRN_SECRET_BYTES_MAX};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    CAIRN_TRY(sts_url(options, &url, err));
    enum cairn_code code = identity_body(identity, &body, err);
    if (code) return cairn_within(err, code, "web identity");
    struct cairn_credentials_call call = {.source = "web identity",
                                          .method = "POST",
                                          .url = url.data,
                                          .headers = {"Content-Type: " FORM},
                                          .header_count = 1,
                                          .body = cairn_buf_view(&body),
                                          .ms = CAIRN_CREDENTIALS_ANSWER_MS,
                                          .ca_bundle = options->ca_bundle};
    CAIRN_TRY(cairn_credentials_fetch(&call, &answer, err));
    code = read_session(&answer, "AssumeRoleWithWebIdentityResponse", ret, err);
    if (code) return cairn_within(err, code, "web identity");
    snprintf(ret->source, sizeof ret->source, "web identity");
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_web_identity(const struct cairn_credentials_options *options,
                                               struct cairn_credentials *ret, bool *ret_found,
                                               struct cairn_error *err) {
    struct cairn_web_identity identity = {cairn_credentials_variable("AWS_ROLE_ARN"),
                                          cairn_credentials_variable("AWS_WEB_IDENTITY_TOKEN_FILE"),
                                          cairn_credentials_variable("AWS_ROLE_SESSION_NAME")};
    if (!identity.token_file) return CAIRN_OK;
    *ret_found = true;
    if (!identity.role_arn)
        return cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "AWS_WEB_IDENTITY_TOKEN_FILE is set but AWS_ROLE_ARN is not");
    return cairn_credentials_assume(options, &identity, ret, err);
}

/* ---- AssumeRole ---- */

static enum cairn_code role_body(const struct cairn_role *role, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    uint64_t life_s = LIFE_S_MIN;
    if (role->duration_s) CAIRN_TRY(cairn_parse_u64(cairn_view_of(role->duration_s), &life_s, err));
    if (life_s < LIFE_S_MIN || life_s > LIFE_S_MAX)
        return cairn_fail(err, CAIRN_INVALID, "duration_seconds is %s; it is from %d to %d",
                          role->duration_s, LIFE_S_MIN, LIFE_S_MAX);
    CAIRN_TRY(cairn_buf_append_text(ret, "Action=AssumeRole&Version=2011-06-15", err));
    CAIRN_TRY(add_field(ret, "RoleArn", role->arn, err));
    CAIRN_TRY(
        add_field(ret, "RoleSessionName", role->session_name ? role->session_name : "cairn", err));
    CAIRN_TRY(add_field(ret, "ExternalId", role->external_id, err));
    return add_field(ret, "DurationSeconds", role->duration_s, err);
}

static enum cairn_code signer_of(const struct cairn_credentials_options *options,
                                 const struct cairn_credentials *by, struct cairn_sigv4_signer *ret,
                                 struct cairn_error *err) {
    snprintf(ret->service, sizeof ret->service, "sts");
    snprintf(ret->region, sizeof ret->region, "%s",
             options->region ? options->region : "us-east-1");
    memcpy(ret->access_key, by->access_key, sizeof ret->access_key);
    CAIRN_TRY(cairn_secret_copy(&ret->secret, &by->secret, err));
    return cairn_secret_copy(&ret->token, &by->token, err);
}

/* One question, signed as of wall_ms. */
static enum cairn_code ask_signed(struct cairn_credentials_call *call, const struct place *place,
                                  struct cairn_sigv4_signer *signer, int64_t wall_ms,
                                  struct cairn_buf *ret, struct cairn_error *err) {
    char time[CAIRN_SIGV4_TIME_BYTES], hash[2 * CAIRN_SHA256_BYTES + 1];
    uint8_t digest[CAIRN_SHA256_BYTES];
    CAIRN_AUTO(buf) authorization = {0};
    CAIRN_AUTO(buf) date_line = {0};
    CAIRN_AUTO(buf) line = {0};
    CAIRN_SECRET_BUF token_line = {0};
    const char *token = cairn_secret_view(&signer->token).data;
    cairn_sha256_of(call->body, digest);
    cairn_hex_encode(digest, sizeof digest, hash);
    cairn_sigv4_time(wall_ms, time);
    struct cairn_sigv4_pair headers[] = {{"content-type", FORM},
                                         {"host", place->host},
                                         {"x-amz-date", time},
                                         {"x-amz-security-token", token}};
    struct cairn_sigv4_request request = {.method = "POST",
                                          .path = place->path,
                                          .headers = headers,
                                          .header_count = *token ? 4 : 3,
                                          .payload = hash};
    CAIRN_TRY(cairn_sigv4_authorize(signer, time, &request, &authorization, err));
    call->header_count = 1; /* Content-Type */
    CAIRN_TRY(cairn_credentials_add_header(call, &date_line, "X-Amz-Date", time, err));
    CAIRN_TRY(cairn_credentials_add_header(call, &line, "Authorization", authorization.data, err));
    if (*token)
        CAIRN_TRY(
            cairn_credentials_add_header(call, &token_line, "X-Amz-Security-Token", token, err));
    cairn_buf_clear(ret);
    return cairn_credentials_fetch(call, ret, err);
}

/* How far STS's clock is ahead of ours, when that may be why it refused. */
static int64_t skew_of(const struct cairn_credentials_call *call, int64_t wall_ms) {
    int64_t theirs = 0;
    if ((call->status != 400 && call->status != 403) ||
        cairn_s3_time_http(call->date, &theirs, NULL) != CAIRN_OK)
        return 0;
    int64_t ahead = theirs - wall_ms;
    return ahead < SKEW_MS_MIN && ahead > -SKEW_MS_MIN ? 0 : ahead;
}

enum cairn_code cairn_credentials_assume_role(const struct cairn_credentials_options *options,
                                              const struct cairn_role *role,
                                              const struct cairn_credentials *by,
                                              struct cairn_credentials *ret,
                                              struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_AUTO(buf) body = {0};
    CAIRN_AUTO(sigv4_signer) signer = {0};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    struct cairn_error why = {0};
    struct place place;
    CAIRN_TRY(sts_url(options, &url, err));
    CAIRN_TRY(take_url(url.data, &place, err));
    CAIRN_TRY(role_body(role, &body, err));
    CAIRN_TRY(signer_of(options, by, &signer, err));
    struct cairn_credentials_call call = {.source = "AssumeRole",
                                          .method = "POST",
                                          .url = url.data,
                                          .headers = {"Content-Type: " FORM},
                                          .body = cairn_buf_view(&body),
                                          .ms = CAIRN_CREDENTIALS_ANSWER_MS,
                                          .ca_bundle = options->ca_bundle};
    int64_t now = options->clock->wall_ms(options->clock);
    enum cairn_code code = ask_signed(&call, &place, &signer, now, &answer, &why);
    int64_t skew = code ? skew_of(&call, now) : 0;
    if (skew) code = ask_signed(&call, &place, &signer, now + skew, &answer, &why);
    if (code && err) *err = why;
    if (code) return code;
    return read_session(&answer, "AssumeRoleResponse", ret, err);
}
