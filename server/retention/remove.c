/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/trash: many versions at once. Each is judged and moved by itself, in transactions of its
 * own (Q27); what cannot go is named. */
#include "api/wire/messages.h"
#include "server/intake/verdicts.h"

#define REFS_MAX 1000

static enum cairn_code add_result(json_t *items, const char *ref, enum cairn_code code,
                                  const struct cairn_srv_trashed *gone,
                                  const struct cairn_error *why, struct cairn_error *err) {
    json_t *item = code ? CAIRN_PACK(trashed_row, .ref = ref, .code = cairn_code_info(code)->slug,
                                     .detail = why->message)
                        : CAIRN_PACK(trashed_row, .ref = ref, .version = gone->id.text,
                                     .trashed = true, .bytes = gone->bytes);
    if (!json_array_append_new(items, item)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

/* What is about one version is in the answer; what is about all ends the call. */
static bool is_its_own(enum cairn_code code) {
    return code == CAIRN_NOT_FOUND || code == CAIRN_IN_USE || code == CAIRN_NOT_COMMITTED ||
           code == CAIRN_DELETED || code == CAIRN_INVALID || code == CAIRN_ABORTED;
}

static enum cairn_code trash_all(struct cairn_srv_request *request, const json_t *refs,
                                 json_t *items, uint64_t *ret_bytes, struct cairn_error *err) {
    size_t index = 0;
    json_t *ref = NULL;
    json_array_foreach((json_t *)(uintptr_t)refs, index, ref) {
        struct cairn_srv_trashed gone = {0};
        struct cairn_error why = {0};
        const char *text = json_string_value(ref);
        if (!text || strlen(text) > CAIRN_REF_BYTES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "/versions/%zu: wanted a step or an id", index);
        const struct cairn_srv_trash_one one = {.server = request->server,
                                                .worker = request->store,
                                                .name = &request->params.run_name,
                                                .ref = text,
                                                .reason = "by hand"};
        enum cairn_code code = !strcmp(text, "latest") || !strcmp(text, "best")
                                   ? cairn_fail(&why, CAIRN_INVALID,
                                                "`%s` means another one after each removal", text)
                                   : cairn_srv_trash_one(&one, &gone, &why);
        if (code && !is_its_own(code)) {
            if (err) *err = why;
            return cairn_within(err, code, "/versions/%zu", index);
        }
        *ret_bytes += gone.bytes;
        CAIRN_TRY(add_result(items, text, code, &gone, &why, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_trash(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL, *items = json_array();
    struct cairn_msg_trash said = {0};
    uint64_t bytes = 0;
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_body(request, 2 * REFS_MAX, &body, err));
    CAIRN_TRY(cairn_msg_trash_read(body, "", &said, err));
    if (!json_array_size(said.versions) || json_array_size(said.versions) > REFS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/versions: 1 to %d of them", REFS_MAX);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    CAIRN_TRY(trash_all(request, said.versions, items, &bytes, err));
    return cairn_srv_reply_json(reply, 200, CAIRN_PACK(trashed, .items = items, .bytes = bytes),
                                err);
}
