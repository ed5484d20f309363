/* SPDX-License-Identifier: Apache-2.0 */
/* The container endpoint and instance metadata. Each asks its own address and nobody else. */
#include <stdio.h>
#include <stdlib.h>

#include "common/encode.h"
#include "common/text.h"
#include "store/keys/fetch.h"
#include "store/keys/keys.h"

/* Where there is no instance metadata its address is a black hole: find out soon. */
#define METADATA_MS 1000

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

static enum cairn_code ask_role(const char *base, const char *token_line,
                                struct cairn_buf *ret_role, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s" ROLES_PATH, base));
    struct cairn_credentials_call call = {.source = "instance metadata",
                                          .method = "GET",
                                          .url = url.data,
                                          .headers = {token_line},
                                          .header_count = 1,
                                          .ms = METADATA_MS};
    CAIRN_TRY(cairn_credentials_fetch(&call, ret_role, err));
    if (ret_role->data) ret_role->data[strcspn(ret_role->data, "\r\n")] = '\0';
    return CAIRN_OK;
}

static enum cairn_code ask_role_keys(const char *base, const char *token_line,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) role = {.limit = 1024};
    CAIRN_AUTO(buf) url = {0};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    CAIRN_TRY(ask_role(base, token_line, &role, err));
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s" ROLES_PATH, base));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(role.data ? role.data : ""), false, &url, err));
    struct cairn_credentials_call call = {.source = "instance metadata",
                                          .method = "GET",
                                          .url = url.data,
                                          .headers = {token_line},
                                          .header_count = 1,
                                          .ms = CAIRN_CREDENTIALS_ANSWER_MS};
    CAIRN_TRY(cairn_credentials_fetch(&call, &answer, err));
    CAIRN_TRY(take_json(&answer, ret, err));
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
    CAIRN_SECRET_BUF token = {.limit = 8192};
    CAIRN_SECRET_BUF line = {.limit = 8192};
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s/latest/api/token", base));
    struct cairn_credentials_call call = {
        .source = "instance metadata",
        .method = "PUT",
        .url = url.data,
        .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
        .header_count = 1,
        .ms = METADATA_MS,
    };
    /* No metadata service is the common case outside of AWS, and no fault. */
    if (cairn_credentials_fetch(&call, &token, NULL) != CAIRN_OK || !token.size) return CAIRN_OK;
    *ret_found = true;
    call.header_count = 0;
    CAIRN_TRY(
        cairn_credentials_add_header(&call, &line, "X-aws-ec2-metadata-token", token.data, err));
    enum cairn_code code = ask_role_keys(base, line.data, ret, err);
    return code ? cairn_within(err, code, "credentials") : CAIRN_OK;
}
