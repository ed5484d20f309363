/* SPDX-License-Identifier: Apache-2.0 */
/* Path, connection, answer. */
#include "cli/call.h"

#include <stdio.h>

#include <cairn/cairn.h>

#include "api/wire/messages.h"
#include "cli/options.h"
#include "common/text.h"

#define PAGE_ITEMS 1000

enum cairn_code cairn_cli_call(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                               struct cairn_cli_call call, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    if (ref)
        CAIRN_TRY(cairn_cli_path(ref, call.tail ? call.tail : "", &path, err));
    else
        CAIRN_TRY(cairn_buf_printf(&path, err, "/v1%s", call.tail));
    if (call.wait_ms) return cairn_rest_wait(rest, path.data, call.wait_ms, ret, err);
    CAIRN_TRY(cairn_rest_set_if_match(rest, call.if_match, err));
    return cairn_rest_call(rest, call.method ? call.method : "GET", path.data, call.body,
                           call.timeout_ms, ret, err);
}

enum cairn_code cairn_cli_version_or_failed(const struct cairn_cli *cli,
                                            const struct cairn_cli_ref *ref, json_t **ret,
                                            struct cairn_error *err) {
    uint64_t step;
    struct cairn_error why = {0};
    enum cairn_code code = cairn_cli_call(cli, ref, (struct cairn_cli_call){0}, ret, &why);
    bool of_step = cairn_parse_u64(cairn_view_of(ref->version), &step, NULL) == CAIRN_OK;
    if (code == CAIRN_NOT_FOUND && of_step) {
        struct cairn_cli_call failed = {.tail = "?for=committed"}; /* without a wait for it */
        if (cairn_cli_call(cli, ref, failed, ret, NULL) == CAIRN_OK) {
            json_object_del(*ret, "awaited");
            return CAIRN_OK;
        }
    }
    if (code && err) *err = why;
    return code;
}

enum cairn_code cairn_cli_reply_read(enum cairn_message form, const json_t *json, void *ret,
                                     struct cairn_error *err) {
    enum cairn_code code = cairn_message_read(form, json, "", ret, err);
    return code ? cairn_within(err, CAIRN_PROTOCOL, "the server's answer") : CAIRN_OK;
}

enum cairn_code cairn_cli_list(const struct cairn_cli *cli, const char *path, uint64_t limit,
                               json_t *items, bool *ret_more, struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO(buf) url = {0}, cursor = {0}, next = {0};
    bool more = true;
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    while (more && json_array_size(items) < limit) {
        CAIRN_AUTO_JSON json_t *reply = NULL;
        struct cairn_msg_page page = {0};
        uint64_t some = cairn_min_u64(PAGE_ITEMS, limit - json_array_size(items));
        cairn_buf_clear(&url);
        CAIRN_TRY(cairn_buf_printf(&url, err, "%s%climit=%llu", path, strchr(path, '?') ? '&' : '?',
                                   (unsigned long long)some));
        if (cursor.size) CAIRN_TRY(cairn_buf_printf(&url, err, "&cursor=%s", cursor.data));
        CAIRN_TRY(cairn_rest_call(rest, "GET", url.data, NULL, 0, &reply, err));
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_page, reply, &page, err));
        if (json_array_extend(items, page.items))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
        /* A page may be empty and not the last one, where few of many are meant. */
        more = page.next_cursor && *page.next_cursor;
        if (!more) break;
        cairn_buf_clear(&next);
        CAIRN_TRY(cairn_percent_encode(cairn_view_of(page.next_cursor), false, &next, err));
        if (cursor.size == next.size && !strcmp(cursor.data, next.data))
            return cairn_fail(err, CAIRN_PROTOCOL, "the list goes in circles");
        cairn_buf_clear(&cursor);
        CAIRN_TRY(cairn_buf_append(&cursor, next.data, next.size, err));
    }
    if (ret_more) *ret_more = more;
    return CAIRN_OK;
}

/* ---- a server of another release ---- */

/* As a server refuses a path, a method, a parameter or a member that it does not have, and as this
 * command refuses an answer that lacks one. The codes have other reasons, too, so whether it is
 * this one is for people to say. */
static bool may_be_of_releases(const struct cairn_cli *cli, enum cairn_code code,
                               const struct cairn_error *err) {
    bool refused = (code == CAIRN_NOT_FOUND || code == CAIRN_INVALID) && err->http_status;
    return !cli->store && (refused || code == CAIRN_METHOD || code == CAIRN_PROTOCOL);
}

void cairn_cli_name_older_server(const struct cairn_cli *cli, enum cairn_code code,
                                 struct cairn_error *err) {
    CAIRN_AUTO_PTR(rest) rest = NULL;
    if (may_be_of_releases(cli, code, err) && cairn_cli_connect(cli, &rest, NULL) == CAIRN_OK)
        cairn_rest_name_older(rest, "this command", cairn_version(), err);
}

enum cairn_code cairn_cli_ref_latest(const struct cairn_cli *cli, struct cairn_cli_ref *ret,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], ret, err));
    if (!ret->version[0]) cairn_text_copy(ret->version, sizeof ret->version, "latest");
    return CAIRN_OK;
}
