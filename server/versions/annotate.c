/* SPDX-License-Identifier: Apache-2.0 */
/* PATCH {R} and PATCH {C}: labels, metrics, note and pin, merged as RFC 7396 says: a member that is
 * null is taken away, what is not named stays. */
#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "api/wire/policy.h"
#include "common/log.h"
#include "server/ledger/aliases.h"
#include "server/ledger/frozen.h"
#include "server/ledger/lineage.h"
#include "server/versions/runs_json.h"
#include "server/versions/versions_json.h"

struct patch {
    struct cairn_srv_request *request;
    const json_t *body;
    struct cairn_buf labels, metrics;
    struct cairn_version_id id;
    json_t *shown;
};

static void release(struct patch *patch) {
    cairn_buf_release(&patch->labels);
    cairn_buf_release(&patch->metrics);
    json_decref(patch->shown);
}

/* `stored` with what `changes` says of its members; changes NULL: as it is; null: none is left. */
static enum cairn_code merge(const char *stored, const json_t *changes, json_t **ret,
                             struct cairn_error *err) {
    json_t *merged = json_is_null(changes) ? json_object() : json_loads(stored, 0, NULL);
    json_t *value = NULL;
    const char *key = NULL;
    bool failed = !merged;
    json_object_foreach((json_t *)(uintptr_t)changes, key, value) {
        if (json_is_null(value))
            (void)json_object_del(merged, key);
        else
            failed = json_object_set(merged, key, value) || failed;
    }
    *ret = merged;
    return failed ? cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change") : CAIRN_OK;
}

static enum cairn_code merge_labels(const char *stored, const json_t *changes,
                                    struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *merged = NULL;
    CAIRN_TRY(cairn_label_changes_check(changes, "/labels", err));
    CAIRN_TRY(merge(stored, changes, &merged, err));
    cairn_buf_clear(ret);
    /* One that an earlier release took is not in the way of others. */
    return cairn_meta_check(merged, "/labels", false, ret, err);
}

static enum cairn_code merge_metrics(const char *stored, const json_t *changes,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *merged = NULL;
    CAIRN_TRY(merge(stored, changes, &merged, err));
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(merged, key, value) {
        enum cairn_code code = cairn_metric_name_check(cairn_view_of(key), err);
        if (code) return cairn_within(err, code, "/metrics");
        if (!json_is_number(value))
            return cairn_fail(err, CAIRN_INVALID, "/metrics/%s: wanted a number, or null", key);
    }
    cairn_buf_clear(ret);
    return cairn_meta_check(merged, "/metrics", false, ret, err);
}

/* Absent: as it was; null: none. */
static const char *note_of(const json_t *body, const char *was) {
    const json_t *note = json_object_get(body, "note");
    if (!note) return was;
    return json_is_string(note) ? json_string_value(note) : "";
}

/* ---- a version ---- */

static enum cairn_code judge(const struct cairn_srv_version *version, const json_t *labels,
                             bool pin, struct cairn_error *err) {
    const char *id = version->id.text;
    CAIRN_TRY(cairn_srv_version_there(version, err));
    if (version->state != CAIRN_STATE_OPEN && version->state != CAIRN_STATE_COMMITTED)
        return cairn_fail(err, CAIRN_ABORTED, "%s was given up: %s", id, version->reason);
    if (labels && version->state == CAIRN_STATE_OPEN)
        return cairn_fail(err, CAIRN_NOT_COMMITTED,
                          "%s is open, and its labels are those of its save until it is committed",
                          id);
    if (pin && version->trashed)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "%s is in the trash: undelete it before it is pinned", id);
    return CAIRN_OK;
}

static enum cairn_code show(struct cairn_srv_tx *tx, struct patch *patch, const char *ref,
                            struct cairn_srv_version *ret, struct cairn_error *err) {
    struct cairn_srv_ref place = {&patch->request->params.run_name, ref, true};
    json_decref(patch->shown);
    patch->shown = NULL;
    CAIRN_TRY(cairn_srv_version_find(tx, &place, ret, err));
    patch->id = ret->id;
    return cairn_srv_version_json(tx, ret, &patch->shown, err);
}

static enum cairn_code keep_metrics(struct cairn_srv_tx *tx,
                                    const struct cairn_srv_version *version, const char *text,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *metrics = json_loads(text, 0, NULL);
    if (!metrics) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
    return cairn_srv_metrics_put(tx, version, metrics, err);
}

static enum cairn_code patch_version(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct patch *patch = argument;
    CAIRN_AUTO(srv_version) version = {0}, after = {0};
    struct cairn_msg_checkpoint_patch said = {0};
    char tag[CAIRN_SRV_TAG_BYTES], id[CAIRN_VERSION_ID_BYTES + 2];
    CAIRN_TRY(cairn_msg_checkpoint_patch_read(patch->body, "", &said, err));
    CAIRN_TRY(show(tx, patch, patch->request->params.ref, &version, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, version.run_id, err));
    CAIRN_TRY(cairn_srv_version_tag(patch->shown, tag, err));
    snprintf(id, sizeof(id), "\"%s\"", version.id.text);
    CAIRN_TRY(cairn_srv_must_match(patch->request, tag, id, err));
    const json_t *pin = json_object_get(patch->body, "pinned");
    const json_t *labels = json_object_get(patch->body, "labels");
    const json_t *metrics = json_object_get(patch->body, "metrics");
    CAIRN_TRY(judge(&version, labels, json_is_true(pin), err));
    CAIRN_TRY(merge_labels(version.labels, labels, &patch->labels, err));
    CAIRN_TRY(merge_metrics(version.metrics, metrics, &patch->metrics, err));
    struct cairn_srv_annotations wanted = {
        .labels = labels ? patch->labels.data : version.labels,
        .metrics = patch->metrics.data,
        .note = note_of(patch->body, version.note),
        .pinned = pin ? json_is_true(pin) : version.pinned,
    };
    CAIRN_TRY(cairn_srv_version_annotate(tx, &version, &wanted, err));
    if (metrics) CAIRN_TRY(keep_metrics(tx, &version, patch->metrics.data, err));
    return show(tx, patch, version.id.text, &after, err);
}

enum cairn_code cairn_srv_on_checkpoint_patch(struct cairn_srv_request *request,
                                              struct cairn_srv_reply *reply,
                                              struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(cairn_srv_body(request, 10000, &body, err));
    struct patch patch = {.request = request, .body = body};
    enum cairn_code code =
        cairn_srv_catalog_write(request->server->catalog, patch_version, &patch, err);
    if (!code) {
        cairn_log(INFO, "checkpoint.annotated", "version=%s", patch.id.text);
        code = cairn_srv_reply_version(reply, 200, CAIRN_TAKE(patch.shown), err);
    }
    release(&patch);
    return code;
}

/* ---- a run ---- */

static enum cairn_code show_run(struct cairn_srv_tx *tx, struct patch *patch,
                                const struct cairn_srv_run *run, struct cairn_error *err) {
    json_decref(patch->shown);
    patch->shown = NULL;
    return cairn_srv_run_json(tx, patch->request, run, &patch->shown, err);
}

/* "project/run@ref"; NULL: none. What it means is kept, whatever the name means later. */
static enum cairn_code keep_origin(struct cairn_srv_tx *tx, const struct patch *patch,
                                   int64_t run_id, const char *from, struct cairn_error *err) {
    char text[2 * CAIRN_NAME_BYTES_MAX + 2] = "";
    const char *at = from ? strchr(from, '@') : NULL;
    struct cairn_run_name name;
    CAIRN_AUTO(srv_version) version = {0};
    if (!from) return cairn_srv_run_set_origin(tx, run_id, NULL, err);
    if (!at || (size_t)(at - from) >= sizeof(text))
        return cairn_fail(err, CAIRN_INVALID, "/from: want project/run@step, or @ and an id");
    memcpy(text, from, (size_t)(at - from));
    enum cairn_code code = cairn_run_name_parse(text, &name, err);
    if (code) return cairn_within(err, code, "/from");
    struct cairn_srv_ref ref = {&name, at + 1, true};
    if (!cairn_srv_caller_may(&patch->request->caller, CAIRN_SCOPE_READ, name.project))
        return cairn_fail(err, CAIRN_NOT_FOUND, "/from: there is no run %s/%s", name.project,
                          name.run);
    code = cairn_srv_version_find(tx, &ref, &version, err);
    if (code) return cairn_within(err, code, "/from");
    if (version.state == CAIRN_STATE_COMMITTED && version.recorded)
        return cairn_srv_run_set_origin(tx, run_id, &version, err);
    return cairn_fail(err, CAIRN_NOT_COMMITTED, "/from: %s is %s", version.id.text,
                      cairn_state_text(cairn_srv_version_shown(&version)));
}

/* GET says behind the tag, and a dot, what else there is of a run (changes.h): a commit meanwhile
 * is nobody's conflict. */
static enum cairn_code run_must_match(const struct cairn_srv_request *request, const char *tag,
                                      struct cairn_error *err) {
    size_t size = strlen(tag) - 1; /* without the last quote */
    const char *at = request->if_match;
    char whole[CAIRN_SRV_RUN_TAG_BYTES + 17] = "";
    for (; *at && !whole[0]; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        size_t one = strcspn(at, ",");
        if (one < sizeof(whole) && one > size && !memcmp(at, tag, size) && at[size] == '.')
            snprintf(whole, sizeof(whole), "%.*s", (int)one, at);
    }
    return cairn_srv_must_match(request, tag, whole[0] ? whole : NULL, err);
}

static enum cairn_code patch_run(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct patch *patch = argument;
    const struct cairn_run_name *name = &patch->request->params.run_name;
    struct cairn_msg_run_patch said = {0};
    char tag[CAIRN_SRV_RUN_TAG_BYTES];
    CAIRN_AUTO(srv_run) run = {0}, after = {0};
    CAIRN_TRY(cairn_msg_run_patch_read(patch->body, "", &said, err));
    CAIRN_TRY(cairn_srv_run_get(tx, name, &run, err));
    CAIRN_TRY(cairn_srv_run_there(&run, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, run.id, err));
    CAIRN_TRY(show_run(tx, patch, &run, err));
    CAIRN_TRY(cairn_srv_run_tag(patch->shown, tag, err));
    CAIRN_TRY(run_must_match(patch->request, tag, err));
    CAIRN_TRY(merge_labels(run.labels, json_object_get(patch->body, "labels"), &patch->labels,
                           err));
    if (json_object_get(patch->body, "from"))
        CAIRN_TRY(keep_origin(tx, patch, run.id, said.from, err));
    CAIRN_TRY(cairn_srv_run_annotate(tx, run.id, patch->labels.data, note_of(patch->body, run.note),
                                     err));
    CAIRN_TRY(cairn_srv_run_get(tx, name, &after, err));
    return show_run(tx, patch, &after, err);
}

enum cairn_code cairn_srv_on_run_patch(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(cairn_srv_body(request, 10000, &body, err));
    struct patch patch = {.request = request, .body = body};
    enum cairn_code code =
        cairn_srv_catalog_write(request->server->catalog, patch_run, &patch, err);
    if (!code) {
        cairn_log(INFO, "run.annotated", "run=%s/%s", request->params.run_name.project,
                  request->params.run_name.run);
        code = cairn_srv_reply_run(reply, 200, CAIRN_TAKE(patch.shown), err);
    }
    release(&patch);
    return code;
}
