/* SPDX-License-Identifier: Apache-2.0 */
/* Labels and meta: read, checked as the server will check them, and kept for the seal. */
#include "client/save/meta.h"

#include "api/wire/messages.h"

#define META_TEXT_BYTES_MAX (4 * CAIRN_META_BYTES_MAX) /* as written, with its spaces */
#define VERSION_OF_SEALED_META 4

static enum cairn_code parse_object(const char *what, const char *text, bool of_text, json_t **ret,
                                    struct cairn_error *err) {
    if (!text) return CAIRN_OK;
    const struct cairn_json_limits limits = {META_TEXT_BYTES_MAX, 0};
    CAIRN_AUTO_JSON json_t *value = NULL;
    enum cairn_code code = cairn_json_parse(cairn_view_of(text), limits, &value, err);
    if (code) return cairn_within(err, code, "%s", what);
    CAIRN_TRY(cairn_meta_check(value, what, of_text, NULL, err));
    *ret = CAIRN_TAKE(value);
    return CAIRN_OK;
}

enum cairn_code cairn_client_meta_read(const struct cairn_client_meta_text *text,
                                       json_t **ret_labels, json_t **ret_meta,
                                       struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *labels = NULL;
    CAIRN_TRY(parse_object("labels", text->labels, true, &labels, err));
    CAIRN_TRY(parse_object("meta", text->meta, false, ret_meta, err));
    *ret_labels = CAIRN_TAKE(labels);
    return CAIRN_OK;
}

/* client/session/origin.h#1, #2 */
enum cairn_code cairn_client_meta_origin(const struct cairn_session *session, json_t **meta,
                                         struct cairn_error *err) {
    if (!session->origin || json_object_get(*meta, "origin")) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *both = *meta ? json_copy(*meta) : json_object();
    if (!both || json_object_set(both, "origin", session->origin))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the begin");
    if (cairn_meta_check(both, "meta", false, NULL, NULL)) return CAIRN_OK;
    json_decref(*meta);
    *meta = CAIRN_TAKE(both);
    return CAIRN_OK;
}

enum cairn_code cairn_client_meta_can_be_sealed(struct cairn_session *session,
                                                struct cairn_error *err) {
    return cairn_client_speaks(session, VERSION_OF_SEALED_META, "labels and meta after the begin",
                               err);
}

static void take(json_t **kept, json_t **given) {
    if (!*given) return;
    json_decref(*kept);
    *kept = CAIRN_TAKE(*given);
}

enum cairn_code cairn_save_set_meta(struct cairn_save *save, const char *labels_json,
                                    const char *meta_json, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    const struct cairn_client_meta_text text = {labels_json, meta_json};
    CAIRN_AUTO_JSON json_t *labels = NULL, *meta = NULL;
    CAIRN_TRY(cairn_client_meta_read(&text, &labels, &meta, err));
    if (save->session->rank != 0) return CAIRN_OK;
    if (meta) CAIRN_TRY(cairn_client_meta_origin(save->session, &meta, err));
    CAIRN_TRY(cairn_client_meta_can_be_sealed(save->session, err));
    take(&save->labels, &labels);
    take(&save->meta, &meta);
    return CAIRN_OK;
}
