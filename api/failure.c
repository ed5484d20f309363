/* SPDX-License-Identifier: Apache-2.0 */
/* Only what another process can use travels. */
#include "api/failure.h"

#define STATUS_MAX 999

bool cairn_failure_put(json_t *object, const char *text_key, const struct cairn_error *why) {
    int refused =
        json_object_set_new(object, "code", json_string(cairn_code_info(why->code)->slug)) |
        json_object_set_new(object, text_key, json_string(why->message));
    if (why->http_status)
        refused |= json_object_set_new(object, "http_status", json_integer(why->http_status));
    if (why->request_id[0])
        refused |= json_object_set_new(object, "request_id", json_string(why->request_id));
    return !refused;
}

void cairn_failure_get(const json_t *object, const char *text_key, struct cairn_error *ret) {
    const char *slug = json_string_value(json_object_get(object, "code"));
    const char *text = json_string_value(json_object_get(object, text_key));
    const char *request_id = json_string_value(json_object_get(object, "request_id"));
    json_int_t status = json_integer_value(json_object_get(object, "http_status"));
    struct cairn_error made = {0};
    cairn_fail(&made, slug ? cairn_code_from_slug(slug) : CAIRN_OK, "%s", text ? text : "");
    if (status > 0 && status <= STATUS_MAX) made.http_status = (int)status;
    if (request_id) cairn_error_request_id(&made, request_id);
    *ret = made;
}
