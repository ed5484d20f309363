/* SPDX-License-Identifier: Apache-2.0 */
/* The container endpoint and instance metadata. Each asks its own address and nobody else. */
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "store/keys/fetch.h"
#include "store/keys/keys.h"

/* How long each try for an answer of instance metadata waits. Where there is none its address is a
 * black hole, which shall be found out soon: only one that takes connections is given more. */
static const uint32_t metadata_ms[] = {1000, 2000, 4000};

static enum cairn_code ask_metadata(struct cairn_credentials_call *call, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < CAIRN_COUNT(metadata_ms); i++) {
        call->ms = metadata_ms[call->reached ? i : 0];
        cairn_buf_clear(ret);
        code = cairn_credentials_fetch(call, ret, err);
        bool passes = !call->status || call->status == 429 || call->status >= 500;
        if (!code || !passes) break;
    }
    return code;
}

static enum cairn_code take_json(const struct cairn_buf *text, struct cairn_credentials *ret,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_credentials_parse(cairn_buf_view(text), &json, err));
    return cairn_credentials_take_json(json, "Token", ret, err);
}

/* ---- container endpoint ---- */

static enum cairn_code container_url(const struct cairn_credentials_options *options,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    const char *relative = cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *base = options->container_url ? options->container_url : "http://169.254.170.2";
    if (relative && relative[0] != '/')
        return cairn_fail(err, CAIRN_INVALID,
                          "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with /");
    if (relative) return cairn_buf_printf(ret, err, "%s%s", base, relative);
    if (!cairn_credentials_may_go_to(full))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of "
                          "this machine");
    return cairn_buf_printf(ret, err, "%s", full);
}

static enum cairn_code container_token(struct cairn_buf *ret, struct cairn_error *err) {
    const char *file = cairn_credentials_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = cairn_credentials_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (file) return cairn_credentials_load_token(file, ret, err);
    return token ? cairn_buf_append_text(ret, token, err) : CAIRN_OK;
}

static enum cairn_code ask_container(const struct cairn_credentials_options *options,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_SECRET_BUF token = {.limit = CAIRN_SECRET_BYTES_MAX};
    CAIRN_SECRET_BUF line = {.limit = CAIRN_SECRET_BYTES_MAX};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    CAIRN_TRY(container_url(options, &url, err));
    CAIRN_TRY(container_token(&token, err));
    struct cairn_credentials_call call = {.source = "its server",
                                          .method = "GET",
                                          .url = url.data,
                                          .ms = CAIRN_CREDENTIALS_ANSWER_MS,
                                          .ca_bundle = options->ca_bundle};
    if (token.size)
        CAIRN_TRY(cairn_credentials_add_header(&call, &line, "Authorization", token.data, err));
    CAIRN_TRY(cairn_credentials_fetch(&call, &answer, err));
    return take_json(&answer, ret, err);
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

/* Of version 2: a session token first. What answers in another way is told, since a person sees
 * only that there are no keys; *ret_there false: nobody takes connections there. */
static enum cairn_code ask_session(const char *base, struct cairn_buf *ret_token, bool *ret_there,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s/latest/api/token", base));
    struct cairn_credentials_call call = {
        .source = "instance metadata",
        .method = "PUT",
        .url = url.data,
        .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
        .header_count = 1,
    };
    enum cairn_code code = ask_metadata(&call, ret_token, &why);
    *ret_there = call.reached || call.status;
    if (!code && ret_token->size) return CAIRN_OK;
    if (!call.status)
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "%.100s takes connections and does not answer, %zu times: in a container "
                          "its hop limit must be 2 (aws ec2 modify-instance-metadata-options "
                          "--http-put-response-hop-limit 2), and no proxy may stand before it",
                          base, CAIRN_COUNT(metadata_ms));
    return cairn_fail(err, CAIRN_UNAUTHORIZED,
                      "%.100s answered %d where a session token was asked for (PUT "
                      "/latest/api/token); only version 2 of the service is used",
                      base, call.status);
}

static enum cairn_code ask_role(const char *base, const char *token_line,
                                struct cairn_buf *ret_role, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s" ROLES_PATH, base));
    struct cairn_credentials_call call = {.source = "it",
                                          .method = "GET",
                                          .url = url.data,
                                          .headers = {token_line},
                                          .header_count = 1};
    enum cairn_code code = ask_metadata(&call, ret_role, err);
    if (code && call.status == 404)
        return cairn_fail(err, code, "it answered 404: this instance has no role");
    CAIRN_TRY(code);
    if (ret_role->data) ret_role->data[strcspn(ret_role->data, "\r\n")] = '\0';
    return CAIRN_OK;
}

/* In a 200, too: {"Code": "AssumeRoleUnauthorizedAccess", "Message": ...}, which holds no key. */
static enum cairn_code take_role_json(const struct cairn_buf *text, const char *role,
                                      struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_credentials_parse(cairn_buf_view(text), &json, err));
    const char *code = json_string_value(json_object_get(json, "Code"));
    const char *message = json_string_value(json_object_get(json, "Message"));
    if (code && strcmp(code, "Success") != 0)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "role %.80s: %.80s%s%.200s", role, code,
                          message ? ": " : "", message ? message : "");
    return cairn_credentials_take_json(json, "Token", ret, err);
}

static enum cairn_code ask_role_keys(const char *base, const char *token_line,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) role = {.limit = 1024};
    CAIRN_AUTO(buf) url = {0};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    CAIRN_TRY(ask_role(base, token_line, &role, err));
    const char *name = role.data ? role.data : "";
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s" ROLES_PATH, base));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(name), false, &url, err));
    struct cairn_credentials_call call = {.source = "it",
                                          .method = "GET",
                                          .url = url.data,
                                          .headers = {token_line},
                                          .header_count = 1};
    CAIRN_TRY(ask_metadata(&call, &answer, err));
    CAIRN_TRY(take_role_json(&answer, name, ret, err));
    snprintf(ret->source, sizeof ret->source, "instance metadata, role %.80s", name);
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
    CAIRN_SECRET_BUF token = {.limit = 8192};
    CAIRN_SECRET_BUF line = {.limit = 8192};
    struct cairn_error why = {0};
    enum cairn_code code = ask_session(base, &token, ret_found, &why);
    /* No metadata service is the common case outside of AWS, and no fault. */
    if (!*ret_found) return CAIRN_OK;
    if (code && err) *err = why;
    if (code) return cairn_within(err, code, "instance metadata");
    struct cairn_credentials_call call = {0};
    CAIRN_TRY(
        cairn_credentials_add_header(&call, &line, "X-aws-ec2-metadata-token", token.data, err));
    code = ask_role_keys(base, line.data, ret, err);
    return code ? cairn_within(err, code, "instance metadata") : CAIRN_OK;
}
