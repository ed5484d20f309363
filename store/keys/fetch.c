/* SPDX-License-Identifier: Apache-2.0 */
/* Asking over HTTP, and reading what came; see fetch.h. */
#include "store/keys/fetch.h"

#include <strings.h>

#include "common/file.h"
#include "common/http/http.h"
#include "common/text.h"
#include "store/keys/keys.h"
#include "store/time.h"
#include "store/xml/xml.h"

void cairn_credentials_wipe(struct cairn_buf *buf) {
    if (buf->data) explicit_bzero(buf->data, buf->capacity);
    cairn_buf_release(buf);
}

static void keep_date(struct cairn_http_request *request, struct cairn_view name,
                      struct cairn_view value) {
    struct cairn_credentials_call *call = request->owner;
    if (name.size != 4 || strncasecmp(name.data, "Date", 4) != 0 || value.size >= sizeof call->date)
        return;
    memcpy(call->date, value.data, value.size);
    call->date[value.size] = '\0';
}

enum cairn_code cairn_credentials_fetch(struct cairn_credentials_call *call, struct cairn_buf *ret,
                                        struct cairn_error *err) {
    struct cairn_http_engine *engine = NULL;
    struct cairn_http_options options = {
        .connections_max = 1, .connect_ms = call->ms, .ca_bundle = call->ca_bundle};
    CAIRN_TRY(cairn_http_engine_new(&options, &engine, err));
    struct cairn_http_request request = {
        .method = call->method,
        .url = call->url,
        .headers = call->headers,
        .header_count = call->header_count,
        .body = call->body,
        .has_body = !strcmp(call->method, "POST") || !strcmp(call->method, "PUT"),
        .reply_buf = ret,
        .total_ms = call->ms,
        .stall_ms = call->ms,
        .on_header = keep_date,
        .owner = call,
    };
    enum cairn_code code = cairn_http_perform(engine, &request, err);
    cairn_http_engine_free(engine);
    call->status = request.status;
    call->reached = request.reached;
    if (code) return cairn_within(err, code, "%s", call->source);
    if (request.status == 200) return CAIRN_OK;
    struct cairn_xml_problem problem = {0};
    if (!cairn_xml_problem_read(cairn_buf_view(ret), &problem)) problem.code[0] = '\0';
    bool later = request.status >= 500 || request.status == 429;
    code = cairn_fail(err, later ? CAIRN_UNAVAILABLE : CAIRN_UNAUTHORIZED, "%s answered %d%s%s",
                      call->source, request.status, problem.code[0] ? " " : "", problem.code);
    if (err) err->http_status = request.status;
    return code;
}

enum cairn_code cairn_credentials_add_header(struct cairn_credentials_call *call,
                                             struct cairn_buf *line, const char *name,
                                             const char *value, struct cairn_error *err) {
    CAIRN_ASSERT(call->header_count < CAIRN_CREDENTIALS_HEADERS_MAX);
    if (strpbrk(value, "\r\n"))
        return cairn_fail(err, CAIRN_INVALID, "the value for %s holds a line break", name);
    CAIRN_TRY(cairn_buf_printf(line, err, "%s: %s", name, value));
    call->headers[call->header_count++] = line->data;
    return CAIRN_OK;
}

bool cairn_credentials_may_go_to(const char *url) {
    static const char *const hosts[] = {"127.",          "localhost",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    struct cairn_url parts;
    if (!cairn_url_split(url, &parts)) return false;
    if (!cairn_url_is(&parts, "http")) return cairn_url_is(&parts, "https");
    const char *host = parts.host.data;
    if (memchr(host, '@', parts.host.size)) return false;
    for (size_t i = 0; i < CAIRN_COUNT(hosts); i++) {
        size_t wanted = strlen(hosts[i]);
        if (strncmp(host, hosts[i], wanted) != 0) continue;
        if (!i) return strspn(host, "0123456789.") == strcspn(host, ":/?#");
        if (!host[wanted] || strchr(":/?#", host[wanted])) return true;
    }
    return false;
}

enum cairn_code cairn_credentials_load_token(const char *path, struct cairn_buf *ret,
                                             struct cairn_error *err) {
    CAIRN_TRY(cairn_file_load_line(path, ret, err));
    if (!ret->size) return cairn_fail(err, CAIRN_UNAUTHORIZED, "%s is empty", path);
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_parse(struct cairn_view text, json_t **ret_json,
                                        struct cairn_error *err) {
    if (cairn_json_parse(text, (struct cairn_json_limits){0}, ret_json, NULL) == CAIRN_OK)
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "what it answered is no JSON document");
}

enum cairn_code cairn_credentials_take_json(const json_t *json, const char *token_name,
                                            struct cairn_credentials *ret,
                                            struct cairn_error *err) {
    const char *access_key = NULL, *secret = NULL, *token = NULL, *expiration = NULL;
    struct cairn_json_field fields[] = {
        {"AccessKeyId", CAIRN_JSON_TEXT, true, &access_key, 0},
        {"SecretAccessKey", CAIRN_JSON_TEXT, true, &secret, 0},
        {token_name, CAIRN_JSON_TEXT, false, &token, CAIRN_SECRET_BYTES_MAX},
        {"Expiration", CAIRN_JSON_TEXT, false, &expiration, 0},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    CAIRN_TRY(cairn_credentials_set(ret, access_key, secret, token, err));
    if (!expiration || cairn_s3_time_any(expiration, &ret->expires_ms)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_PROTOCOL, "\"%.40s\" is no time", expiration);
}
