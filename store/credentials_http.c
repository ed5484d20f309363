/* SPDX-License-Identifier: Apache-2.0 */
/* The three sources that answer over HTTP. Each asks its own address and nobody else. */
#include <stdio.h>
#include <stdlib.h>

#include "common/encode.h"
#include "common/file.h"
#include "common/http.h"
#include "common/json.h"
#include "common/text.h"
#include "store/credentials_source.h"
#include "store/s3_time.h"
#include "store/xml.h"

#define ANSWER_BYTES_MAX (256 * CAIRN_KIB)
#define ANSWER_MS 5000
/* Where there is no instance metadata its address is a black hole: find out soon. */
#define METADATA_MS 1000

struct fetch {
    const char *method, *url;
    const char *headers[3];
    size_t header_count;
    struct cairn_view body;
    uint32_t ms;
    const char *ca_bundle;
};

/* 200 and a body, or a failure that names the source. */
static enum cairn_code fetch(const struct fetch *fetch, const char *source, struct cairn_buf *ret,
                             struct cairn_error *err) {
    struct cairn_http_engine *engine = NULL;
    struct cairn_http_options options = {
        .connections_max = 1, .connect_ms = fetch->ms, .ca_bundle = fetch->ca_bundle};
    CAIRN_TRY(cairn_http_engine_new(&options, &engine, err));
    struct cairn_http_request request = {
        .method = fetch->method,
        .url = fetch->url,
        .headers = fetch->headers,
        .header_count = fetch->header_count,
        .body = fetch->body,
        .has_body = !strcmp(fetch->method, "POST") || !strcmp(fetch->method, "PUT"),
        .reply_buf = ret,
        .total_ms = fetch->ms,
        .stall_ms = fetch->ms,
    };
    enum cairn_code code = cairn_http_perform(engine, &request, err);
    cairn_http_engine_free(engine);
    if (code) return cairn_within(err, code, "%s", source);
    if (request.status == 200) return CAIRN_OK;
    struct cairn_xml_problem problem = {0};
    if (!cairn_xml_problem_read(cairn_buf_view(ret), &problem)) problem.code[0] = '\0';
    bool later = request.status >= 500 || request.status == 429;
    code = cairn_fail(err, later ? CAIRN_UNAVAILABLE : CAIRN_UNAUTHORIZED, "%s answered %d%s%s",
                      source, request.status, problem.code[0] ? " " : "", problem.code);
    if (err) err->http_status = request.status;
    return code;
}

static enum cairn_code add_header(struct fetch *fetch, struct cairn_buf *line, const char *name,
                                  const char *value, struct cairn_error *err) {
    if (strpbrk(value, "\r\n"))
        return cairn_fail(err, CAIRN_INVALID, "the value for %s holds a line break", name);
    CAIRN_TRY(cairn_buf_printf(line, err, "%s: %s", name, value));
    fetch->headers[fetch->header_count++] = line->data;
    return CAIRN_OK;
}

static void wipe_buf(struct cairn_buf *buf) {
    if (buf->data) explicit_bzero(buf->data, buf->capacity);
    cairn_buf_release(buf);
}
#define SECRET_BUF __attribute__((cleanup(wipe_buf))) struct cairn_buf

/* A file with one token; white space at its end is no part of it. */
static enum cairn_code load_token(const char *path, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_file_load(path, ret, err));
    while (ret->size && strchr(" \t\r\n", ret->data[ret->size - 1])) ret->data[--ret->size] = '\0';
    if (!ret->size) return cairn_fail(err, CAIRN_UNAUTHORIZED, "%s is empty", path);
    return CAIRN_OK;
}

/* ---- STS ---- */

static enum cairn_code sts_url(const struct cairn_credentials_options *options,
                               struct cairn_buf *ret, struct cairn_error *err) {
    const char *named = cairn_credentials_variable("AWS_ENDPOINT_URL_STS");
    if (!named) named = cairn_credentials_variable("AWS_ENDPOINT_URL");
    if (named) return cairn_buf_printf(ret, err, "%s", named);
    if (!options->region) return cairn_buf_append_text(ret, "https://sts.amazonaws.com", err);
    return cairn_buf_printf(ret, err, "https://sts.%s.amazonaws.com%s", options->region,
                            cairn_text_starts(options->region, "cn-") ? ".cn" : "");
}

static enum cairn_code sts_body(const struct cairn_web_identity *identity, struct cairn_buf *ret,
                                struct cairn_error *err) {
    SECRET_BUF token = {.limit = CAIRN_SECRET_BYTES_MAX};
    const char *session = identity->session_name ? identity->session_name : "cairn";
    CAIRN_TRY(load_token(identity->token_file, &token, err));
    CAIRN_TRY(cairn_buf_append_text(
        ret, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=", err));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(identity->role_arn), false, ret, err));
    CAIRN_TRY(cairn_buf_append_text(ret, "&RoleSessionName=", err));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(session), false, ret, err));
    CAIRN_TRY(cairn_buf_append_text(ret, "&WebIdentityToken=", err));
    return cairn_percent_encode(cairn_buf_view(&token), false, ret, err);
}

static enum cairn_code take_session(const struct cairn_xml_session *session,
                                    struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_credentials_set(ret, session->access_key,
                                    cairn_secret_view(&session->secret).data,
                                    cairn_secret_view(&session->token).data, err));
    if (!session->expiration[0]) return CAIRN_OK;
    return cairn_s3_time_iso(session->expiration, &ret->expires_ms, err);
}

enum cairn_code cairn_credentials_assume(const struct cairn_credentials_options *options,
                                         const struct cairn_web_identity *identity,
                                         struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    SECRET_BUF body = {.limit = 4 * CAIRN_SECRET_BYTES_MAX};
    SECRET_BUF answer = {.limit = ANSWER_BYTES_MAX};
    CAIRN_AUTO(xml_session) session = {0};
    CAIRN_TRY(sts_url(options, &url, err));
    enum cairn_code code = sts_body(identity, &body, err);
    if (code) return cairn_within(err, code, "web identity");
    struct fetch ask = {.method = "POST",
                        .url = url.data,
                        .headers = {"Content-Type: application/x-www-form-urlencoded"},
                        .header_count = 1,
                        .body = cairn_buf_view(&body),
                        .ms = ANSWER_MS,
                        .ca_bundle = options->ca_bundle};
    CAIRN_TRY(fetch(&ask, "web identity", &answer, err));
    code = cairn_xml_session_read(cairn_buf_view(&answer), &session, err);
    if (!code) code = take_session(&session, ret, err);
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

/* ---- the JSON that the container endpoint and instance metadata answer with ---- */

static enum cairn_code take_json(struct cairn_view text, struct cairn_credentials *ret,
                                 struct cairn_error *err) {
    const char *access_key = NULL, *secret = NULL, *token = NULL, *expiration = NULL;
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_json_field fields[] = {
        {"AccessKeyId", CAIRN_JSON_TEXT, true, &access_key, 0},
        {"SecretAccessKey", CAIRN_JSON_TEXT, true, &secret, 0},
        {"Token", CAIRN_JSON_TEXT, false, &token, CAIRN_SECRET_BYTES_MAX},
        {"Expiration", CAIRN_JSON_TEXT, false, &expiration, 0},
    };
    CAIRN_TRY(cairn_json_parse(text, (struct cairn_json_limits){0}, &json, err));
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    CAIRN_TRY(cairn_credentials_set(ret, access_key, secret, token, err));
    return expiration ? cairn_s3_time_iso(expiration, &ret->expires_ms, err) : CAIRN_OK;
}

/* ---- container endpoint ---- */

/* http only where nobody else can listen: this machine and the addresses AWS gives to it (A4). */
static bool may_be_plain(const char *url) {
    static const char *const hosts[] = {"127.",          "localhost",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    if (!cairn_text_starts(url, "http://")) return cairn_text_starts(url, "https://");
    const char *host = url + strlen("http://");
    size_t size = strcspn(host, "/?#");
    if (memchr(host, '@', size)) return false;
    for (size_t i = 0; i < CAIRN_COUNT(hosts); i++) {
        size_t wanted = strlen(hosts[i]);
        if (strncmp(host, hosts[i], wanted) != 0) continue;
        if (!i) return strspn(host, "0123456789.") == strcspn(host, ":/?#");
        if (!host[wanted] || strchr(":/?#", host[wanted])) return true;
    }
    return false;
}

static enum cairn_code container_url(const struct cairn_credentials_options *options,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    const char *relative = cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *base = options->container_url ? options->container_url : "http://169.254.170.2";
    if (relative && relative[0] != '/')
        return cairn_fail(err, CAIRN_INVALID,
                          "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with /");
    if (relative) return cairn_buf_printf(ret, err, "%s%s", base, relative);
    if (!may_be_plain(full))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of "
                          "this machine");
    return cairn_buf_printf(ret, err, "%s", full);
}

static enum cairn_code container_token(struct cairn_buf *ret, struct cairn_error *err) {
    const char *file = cairn_credentials_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = cairn_credentials_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (file) return load_token(file, ret, err);
    return token ? cairn_buf_append_text(ret, token, err) : CAIRN_OK;
}

static enum cairn_code ask_container(const struct cairn_credentials_options *options,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    SECRET_BUF token = {.limit = CAIRN_SECRET_BYTES_MAX};
    SECRET_BUF line = {.limit = CAIRN_SECRET_BYTES_MAX};
    SECRET_BUF answer = {.limit = ANSWER_BYTES_MAX};
    CAIRN_TRY(container_url(options, &url, err));
    CAIRN_TRY(container_token(&token, err));
    struct fetch ask = {
        .method = "GET", .url = url.data, .ms = ANSWER_MS, .ca_bundle = options->ca_bundle};
    if (token.size) CAIRN_TRY(add_header(&ask, &line, "Authorization", token.data, err));
    CAIRN_TRY(fetch(&ask, "its server", &answer, err));
    return take_json(cairn_buf_view(&answer), ret, err);
}

enum cairn_code cairn_credentials_container(const struct cairn_credentials_options *options,
                                            struct cairn_credentials *ret, bool *ret_found,
                                            struct cairn_error *err) {
    if (!cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") &&
        !cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
        return CAIRN_OK;
    *ret_found = true;
    enum cairn_code code = ask_container(options, ret, err);
    if (code) return cairn_within(err, code, "container endpoint");
    snprintf(ret->source, sizeof ret->source, "container endpoint");
    return CAIRN_OK;
}

/* ---- instance metadata, version 2 ---- */

#define ROLES_PATH "/latest/meta-data/iam/security-credentials/"

static enum cairn_code ask_role(const char *base, const char *token_line,
                                struct cairn_buf *ret_role, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s" ROLES_PATH, base));
    struct fetch ask = {.method = "GET",
                        .url = url.data,
                        .headers = {token_line},
                        .header_count = 1,
                        .ms = METADATA_MS};
    CAIRN_TRY(fetch(&ask, "instance metadata", ret_role, err));
    if (ret_role->data) ret_role->data[strcspn(ret_role->data, "\r\n")] = '\0';
    return CAIRN_OK;
}

static enum cairn_code ask_role_keys(const char *base, const char *token_line,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) role = {.limit = 1024};
    CAIRN_AUTO(buf) url = {0};
    SECRET_BUF answer = {.limit = ANSWER_BYTES_MAX};
    CAIRN_TRY(ask_role(base, token_line, &role, err));
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s" ROLES_PATH, base));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(role.data ? role.data : ""), false, &url, err));
    struct fetch ask = {.method = "GET",
                        .url = url.data,
                        .headers = {token_line},
                        .header_count = 1,
                        .ms = ANSWER_MS};
    CAIRN_TRY(fetch(&ask, "instance metadata", &answer, err));
    CAIRN_TRY(take_json(cairn_buf_view(&answer), ret, err));
    snprintf(ret->source, sizeof ret->source, "instance metadata, role %.80s", role.data);
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_metadata(const struct cairn_credentials_options *options,
                                           struct cairn_credentials *ret, bool *ret_found,
                                           struct cairn_error *err) {
    const char *disabled = cairn_credentials_variable("AWS_EC2_METADATA_DISABLED");
    if (disabled && (!strcmp(disabled, "true") || !strcmp(disabled, "1"))) return CAIRN_OK;
    const char *base = options->metadata_url;
    if (!base) base = cairn_credentials_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (!base) base = "http://169.254.169.254";
    CAIRN_AUTO(buf) url = {0};
    SECRET_BUF token = {.limit = 8192};
    SECRET_BUF line = {.limit = 8192};
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s/latest/api/token", base));
    struct fetch ask = {.method = "PUT",
                        .url = url.data,
                        .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
                        .header_count = 1,
                        .ms = METADATA_MS};
    /* No metadata service is the common case outside of AWS, and no fault. */
    if (fetch(&ask, "instance metadata", &token, NULL) != CAIRN_OK || !token.size) return CAIRN_OK;
    *ret_found = true;
    ask.header_count = 0;
    CAIRN_TRY(add_header(&ask, &line, "X-aws-ec2-metadata-token", token.data, err));
    enum cairn_code code = ask_role_keys(base, line.data, ret, err);
    return code ? cairn_within(err, code, "credentials") : CAIRN_OK;
}
