/* SPDX-License-Identifier: Apache-2.0 */
/* lists: a row of the version keeps what is asked, and what the first of the two has said of it. */
#include "server/versions/list_calls.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "plan/split.h"
#include "server/http/request.h"
#include "server/intake/saves.h"

#define DIGEST_TEXT 16
#define SHOWN 120 /* bytes of a tensor's name in a reason */

struct dispute {
    json_t *words; /* owned: group, first, second, from, to; by the rank, its look */
    const char *group;
    json_int_t first, second, from, to;
};
struct call {
    struct cairn_srv_request *request;
    struct cairn_msg_lists_look msg;
    struct cairn_msg_list_look look;
    struct cairn_grant grant;
    struct cairn_srv_version version;
    struct dispute dispute; /* words NULL: it is settled */
};

static void cairn_call_release(struct call *call) {
    cairn_srv_version_release(&call->version);
    json_decref(call->dispute.words);
}

void cairn_srv_lists_first(const char *group, const char *tensor,
                           char ret[CAIRN_SRV_REASON_BYTES]) {
    snprintf(ret, CAIRN_SRV_REASON_BYTES,
             "the tensors of the replica group \"%.64s\", first in \"%.*s\"", group, SHOWN, tensor);
}

void cairn_srv_differ_text(uint64_t first, uint64_t second, const char *what,
                           char ret[CAIRN_SRV_REASON_BYTES]) {
    snprintf(ret, CAIRN_SRV_REASON_BYTES, "rank %" PRIu64 " and rank %" PRIu64 " differ in %.440s",
             first, second, what);
}

/* ---- the row ---- */

static enum cairn_code write_row(struct cairn_srv_tx *tx, const char *version, const json_t *words,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    if (!words) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a dispute");
    CAIRN_TRY(cairn_json_dump(words, &text, err));
    return cairn_srv_dispute_put(tx, version, text.data, err);
}

enum cairn_code cairn_srv_lists_dispute(struct cairn_srv_tx *tx, const char *version,
                                        const struct cairn_srv_parties *parties,
                                        struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *words =
        json_pack("{s:s, s:I, s:I, s:I, s:I}", "group", parties->group, "first",
                  (json_int_t)parties->first, "second", (json_int_t)parties->second, "from",
                  (json_int_t)0, "to", (json_int_t)CAIRN_PLAN_SPLIT_ITEMS_MAX);
    return write_row(tx, version, words, err);
}

static enum cairn_code read_row(struct cairn_srv_tx *tx, const char *version, struct dispute *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_srv_dispute_get(tx, version, &text, err));
    json_decref(ret->words);
    *ret = (struct dispute){0};
    if (!text.size) return CAIRN_OK;
    CAIRN_TRY(
        cairn_json_parse(cairn_buf_view(&text), (struct cairn_json_limits){0}, &ret->words, err));
    if (json_unpack(ret->words, "{s:s, s:I, s:I, s:I, s:I}", "group", &ret->group, "first",
                    &ret->first, "second", &ret->second, "from", &ret->from, "to", &ret->to) ||
        ret->from < 0 || ret->from >= ret->to || ret->to > CAIRN_PLAN_SPLIT_ITEMS_MAX)
        return cairn_fail(err, CAIRN_INTERNAL, "the row of a dispute cannot be read");
    return CAIRN_OK;
}

/* ---- comparing ---- */

static const char *said(const json_t *look, const char *what) {
    const char *text = json_string_value(json_object_get(look, what));
    return text ? text : "";
}

/* lists.h#2; "": lists.h#3 */
static const char *lesser(const char *a, const char *b) {
    if (!a[0] || !b[0]) return a[0] ? a : b;
    return strcmp(a, b) <= 0 ? a : b;
}

/* False: nothing is to be looked at any more, and *ret_tensor is the tensor, or "". */
static bool narrow(struct dispute *dispute, const json_t *first, const json_t *second,
                   const char **ret_tensor) {
    const char *a = said(first, "digests"), *b = said(second, "digests");
    uint32_t from = (uint32_t)dispute->from, to = (uint32_t)dispute->to;
    uint32_t part = cairn_plan_split_part(from, to);
    size_t size = (size_t)DIGEST_TEXT * ((to - from + part - 1) / part);
    *ret_tensor = "";
    if (to - from == 1) *ret_tensor = lesser(said(first, "tensor"), said(second, "tensor"));
    if (to - from == 1 || strlen(a) != size || strlen(b) != size) return false;
    for (size_t at = 0; at < size; at += DIGEST_TEXT, from += part) {
        if (!memcmp(a + at, b + at, DIGEST_TEXT)) continue;
        dispute->from = from;
        dispute->to = (json_int_t)cairn_min_u64((uint64_t)from + part, to);
        return true;
    }
    return false;
}

static enum cairn_code settle(struct cairn_srv_tx *tx, struct call *call, const char *tensor,
                              struct cairn_error *err) {
    struct cairn_srv_version *version = &call->version;
    char what[CAIRN_SRV_REASON_BYTES];
    if (tensor[0]) {
        cairn_srv_lists_first(call->dispute.group, tensor, what);
        cairn_srv_differ_text((uint64_t)call->dispute.first, (uint64_t)call->dispute.second, what,
                              version->reason);
    }
    CAIRN_TRY(cairn_srv_dispute_settle(tx, version->id.text, version->reason, err));
    json_decref(CAIRN_TAKE(call->dispute.words));
    return CAIRN_OK;
}

static enum cairn_code take_look(struct cairn_srv_tx *tx, struct call *call,
                                 struct cairn_error *err) {
    struct dispute *dispute = &call->dispute;
    const struct cairn_msg_list_look *look = &call->look;
    bool is_first = call->msg.rank == dispute->first, is_second = call->msg.rank == dispute->second;
    if (!call->msg.look || (!is_first && !is_second) || look->from != dispute->from ||
        look->to != dispute->to || strcmp(look->group, dispute->group) != 0)
        return CAIRN_OK;
    json_object_set(dispute->words, is_first ? "of_first" : "of_second", call->msg.look);
    const json_t *first = json_object_get(dispute->words, "of_first");
    const json_t *second = json_object_get(dispute->words, "of_second");
    const char *tensor = "";
    if (first && second) {
        if (!narrow(dispute, first, second, &tensor)) return settle(tx, call, tensor, err);
        json_object_del(dispute->words, "of_first");
        json_object_del(dispute->words, "of_second");
        json_object_set_new(dispute->words, "from", json_integer(dispute->from));
        json_object_set_new(dispute->words, "to", json_integer(dispute->to));
    }
    return write_row(tx, call->version.id.text, dispute->words, err);
}

/* ---- POST {R}/checkpoints/{ref}/lists ---- */

static enum cairn_code look_in(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    cairn_srv_version_release(&call->version);
    CAIRN_TRY(cairn_srv_save_version(tx, call->request, &call->version, err));
    CAIRN_TRY(cairn_srv_save_admit(tx, &call->grant, &call->version, err));
    CAIRN_TRY(read_row(tx, call->version.id.text, &call->dispute, err));
    return call->dispute.words ? take_look(tx, call, err) : CAIRN_OK;
}

static json_t *seen_json(const struct call *call) {
    const struct dispute *dispute = &call->dispute;
    if (!dispute->words)
        return CAIRN_PACK(lists_seen, .settled = true, .reason = call->version.reason,
                          .first = CAIRN_MESSAGE_NONE, .second = CAIRN_MESSAGE_NONE,
                          .from = CAIRN_MESSAGE_NONE, .to = CAIRN_MESSAGE_NONE);
    return CAIRN_PACK(lists_seen, .reason = call->version.reason, .group = dispute->group,
                      .first = (uint64_t)dispute->first, .second = (uint64_t)dispute->second,
                      .from = (uint64_t)dispute->from, .to = (uint64_t)dispute->to);
}

enum cairn_code cairn_srv_on_lists_look(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    __attribute__((cleanup(cairn_call_release))) struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 100, &body, err));
    CAIRN_TRY(cairn_msg_lists_look_read(body, "", &call.msg, err));
    if (call.msg.look) CAIRN_TRY(cairn_msg_list_look_read(call.msg.look, "/look", &call.look, err));
    CAIRN_TRY(cairn_srv_grant_read(request, call.msg.grant, &call.grant, err));
    CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, look_in, &call, err));
    return cairn_srv_reply_json(reply, 200, seen_json(&call), err);
}
