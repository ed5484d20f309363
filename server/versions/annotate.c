/* SPDX-License-Identifier: Apache-2.0 */
/* PATCH {R} and PATCH {C}: labels, metrics, note and pin, merged by RFC 7396. {R}/aliases: names
 * that people set, which protect their version; `latest` and `best` are computed. */
#include <stdio.h>

#include "common/log.h"
#include "server/versions/versions.h"

struct patch {
    struct srv_request *request;
    json_t *body;
    struct cairn_buf labels, metrics;
    struct cairn_version_id id;
    json_t *shown;
};

static void release_patch(struct patch *patch) {
    cairn_buf_release(&patch->labels);
    cairn_buf_release(&patch->metrics);
    json_decref(patch->body);
    json_decref(patch->shown);
}

/* Merges `changes` into `stored`; changes NULL: no change; null: removes all members. */
static enum cairn_code merge_patch(const char *stored, const json_t *changes, json_t **ret,
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
    CAIRN_TRY(merge_patch(stored, changes, &merged, err));
    cairn_buf_clear(ret);
    /* Not strict: a label that an earlier release accepted must not block other changes. */
    return cairn_meta_check(merged, "/labels", false, ret, err);
}

static enum cairn_code merge_metrics(const char *stored, const json_t *changes,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *merged = NULL;
    CAIRN_TRY(merge_patch(stored, changes, &merged, err));
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

/* Absent: unchanged; null: none. */
static const char *note_of(const json_t *body, const char *was) {
    const json_t *note = json_object_get(body, "note");
    if (!note) return was;
    return json_is_string(note) ? json_string_value(note) : "";
}

/* ---- a version ---- */

static enum cairn_code judge_change(const struct srv_version *version, const json_t *labels,
                                    bool pin, struct cairn_error *err) {
    const char *id = version->id.text;
    CAIRN_TRY(srv_version_there(version, err));
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

static enum cairn_code show_version(struct srv_tx *tx, struct patch *patch, const char *ref,
                                    struct srv_version *ret, struct cairn_error *err) {
    struct srv_ref place = {&patch->request->params.run_name, ref, true};
    json_decref(patch->shown);
    patch->shown = NULL;
    CAIRN_TRY(srv_version_find(tx, &place, ret, err));
    patch->id = ret->id;
    return srv_version_json(tx, ret, NULL, &patch->shown, err);
}

static enum cairn_code keep_metrics(struct srv_tx *tx, const struct srv_version *version,
                                    const char *text, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *metrics = json_loads(text, 0, NULL);
    if (!metrics) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a change");
    return srv_metrics_put(tx, version, metrics, err);
}

/* False: a repeat, which writes no event. */
static bool changes(const struct srv_version *was, const struct srv_annotations *is) {
    return strcmp(was->labels, is->labels) || strcmp(was->metrics, is->metrics) ||
           strcmp(was->note, is->note) || was->pinned != is->pinned;
}

SRV_CHANGE(patch_version, struct patch *patch) {
    SRV_AUTO(version) version = {0}, after = {0};
    struct cairn_msg_checkpoint_patch said = {0};
    char tag[SRV_TAG_BYTES], id[CAIRN_VERSION_ID_BYTES + 2];
    CAIRN_TRY(cairn_msg_checkpoint_patch_read(patch->body, "", &said, err));
    CAIRN_TRY(show_version(tx, patch, patch->request->params.ref, &version, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, version.run_id, err));
    CAIRN_TRY(srv_version_tag(patch->shown, tag, err));
    snprintf(id, sizeof(id), "\"%s\"", version.id.text);
    CAIRN_TRY(srv_must_match(patch->request, tag, id, err));
    const json_t *pin = json_object_get(patch->body, "pinned");
    const json_t *labels = json_object_get(patch->body, "labels");
    const json_t *metrics = json_object_get(patch->body, "metrics");
    CAIRN_TRY(judge_change(&version, labels, json_is_true(pin), err));
    CAIRN_TRY(merge_labels(version.labels, labels, &patch->labels, err));
    CAIRN_TRY(merge_metrics(version.metrics, metrics, &patch->metrics, err));
    struct srv_annotations wanted = {
        .labels = labels ? patch->labels.data : version.labels,
        .metrics = patch->metrics.data,
        .note = note_of(patch->body, version.note),
        .pinned = pin ? json_is_true(pin) : version.pinned,
    };
    if (!changes(&version, &wanted)) return CAIRN_OK;
    CAIRN_TRY(srv_version_annotate(tx, &version, &wanted, err));
    if (metrics) CAIRN_TRY(keep_metrics(tx, &version, patch->metrics.data, err));
    return show_version(tx, patch, version.id.text, &after, err);
}

/* ---- a run ---- */

static enum cairn_code show_run(struct srv_tx *tx, struct patch *patch, const struct srv_run *run,
                                struct cairn_error *err) {
    json_decref(patch->shown);
    patch->shown = NULL;
    return srv_run_json(tx, patch->request, run, &patch->shown, err);
}

/* from: "project/run@ref"; NULL: none. Stores the version that the ref names now. */
static enum cairn_code keep_origin(struct srv_tx *tx, const struct patch *patch, int64_t run_id,
                                   const char *from, struct cairn_error *err) {
    char text[2 * CAIRN_NAME_BYTES_MAX + 2] = "";
    const char *at = from ? strchr(from, '@') : NULL;
    struct cairn_run_name name;
    SRV_AUTO(version) version = {0};
    if (!from) return srv_run_set_origin(tx, run_id, NULL, err);
    if (!at || (size_t)(at - from) >= sizeof(text))
        return cairn_fail(err, CAIRN_INVALID, "/from: want project/run@step, or @ and an id");
    memcpy(text, from, (size_t)(at - from));
    enum cairn_code code = cairn_run_name_parse(text, &name, err);
    if (code) return cairn_within(err, code, "/from");
    CAIRN_TRY(cairn_ref_check(at + 1, "/from", err));
    struct srv_ref ref = {&name, at + 1, true};
    if (!srv_caller_may(&patch->request->caller, CAIRN_SCOPE_READ, name.project))
        return cairn_fail(err, CAIRN_NOT_FOUND, "/from: there is no run %s/%s", name.project,
                          name.run);
    code = srv_version_find(tx, &ref, &version, err);
    if (code) return cairn_within(err, code, "/from");
    if (version.state == CAIRN_STATE_COMMITTED && version.recorded)
        return srv_run_set_origin(tx, run_id, &version, err);
    return cairn_fail(err, CAIRN_NOT_COMMITTED, "/from: %s is %s", version.id.text,
                      cairn_state_text(srv_version_shown(&version)));
}

/* GET appends a dot and a hash of the body to the run's tag; a commit since then changes the hash
 * and is no conflict, so only the part before the dot must match (server/versions/versions.h#2). */
static enum cairn_code run_must_match(const struct srv_request *request, const char *tag,
                                      struct cairn_error *err) {
    size_t size = strlen(tag) - 1; /* without the last quote */
    const char *at = request->if_match;
    char whole[SRV_TAG_BYTES + 17] = "";
    for (; *at && !whole[0]; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        size_t one = strcspn(at, ",");
        if (one < sizeof(whole) && one > size && !memcmp(at, tag, size) && at[size] == '.')
            snprintf(whole, sizeof(whole), "%.*s", (int)one, at);
    }
    return srv_must_match(request, tag, whole[0] ? whole : NULL, err);
}

SRV_CHANGE(patch_run, struct patch *patch) {
    const struct cairn_run_name *name = &patch->request->params.run_name;
    struct cairn_msg_run_patch said = {0};
    char tag[SRV_TAG_BYTES];
    SRV_AUTO(run) run = {0}, after = {0};
    CAIRN_TRY(cairn_msg_run_patch_read(patch->body, "", &said, err));
    CAIRN_TRY(srv_run_get(tx, name, &run, err));
    CAIRN_TRY(srv_run_there(&run, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, run.id, err));
    CAIRN_TRY(show_run(tx, patch, &run, err));
    CAIRN_TRY(srv_run_tag(patch->shown, tag, err));
    CAIRN_TRY(run_must_match(patch->request, tag, err));
    CAIRN_TRY(
        merge_labels(run.labels, json_object_get(patch->body, "labels"), &patch->labels, err));
    const char *note = note_of(patch->body, run.note);
    bool begins = json_object_get(patch->body, "from") != NULL;
    if (!begins && !strcmp(run.labels, patch->labels.data) && !strcmp(run.note, note))
        return CAIRN_OK;
    if (begins) CAIRN_TRY(keep_origin(tx, patch, run.id, said.from, err));
    CAIRN_TRY(srv_run_annotate(tx, run.id, patch->labels.data, note, err));
    CAIRN_TRY(srv_run_get(tx, name, &after, err));
    return show_run(tx, patch, &after, err);
}

/* ---- the calls ---- */

/* Makes one change in one transaction; patch->shown is the answer. */
static enum cairn_code change_shown(struct patch *patch,
                                    enum cairn_code (*change)(struct srv_tx *tx, void *argument,
                                                              struct cairn_error *err),
                                    struct cairn_error *err) {
    struct srv *server = patch->request->server;
    CAIRN_TRY(srv_thawed(server, err));
    CAIRN_TRY(srv_body(patch->request, 10000, &patch->body, err));
    return srv_catalog_write(server->catalog, change, patch, err);
}

SRV_HANDLER(checkpoint_patch) {
    CAIRN_RELEASED(release_patch) struct patch patch = {.request = request};
    CAIRN_TRY(change_shown(&patch, patch_version, err));
    cairn_log(INFO, "checkpoint.annotated", "version=%s", patch.id.text);
    return srv_reply_version(reply, 200, CAIRN_TAKE(patch.shown), err);
}

SRV_HANDLER(run_patch) {
    CAIRN_RELEASED(release_patch) struct patch patch = {.request = request};
    CAIRN_TRY(change_shown(&patch, patch_run, err));
    cairn_log(INFO, "run.annotated", "run=%s/%s", request->params.run_name.project,
              request->params.run_name.run);
    return srv_reply_run(reply, 200, CAIRN_TAKE(patch.shown), err);
}

/* ---- aliases ---- */

struct alias_call {
    struct srv_request *request;
    const char *to;        /* PUT: the ref to point at */
    bool drop, made, same; /* same: nothing to change */
    struct cairn_version_id id;
};

static enum cairn_code check_name(const char *alias, struct cairn_error *err) {
    if (!strcmp(alias, "latest") || !strcmp(alias, "best"))
        return cairn_fail(err, CAIRN_CONFLICT, "`%s` is computed: nobody sets it", alias);
    if (alias[0] >= 'a' && alias[0] <= 'z' && strlen(alias) <= SRV_ALIAS_BYTES_MAX &&
        !cairn_text_starts(alias, "ckpt_"))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "alias: want [a-z][a-z0-9-]*, at most %d bytes",
                      SRV_ALIAS_BYTES_MAX);
}

/* If-Match names the version that the alias points at now; a new alias needs none. */
static enum cairn_code judge_match(const struct alias_call *call,
                                   const struct cairn_version_id *now, struct cairn_error *err) {
    const struct srv_request *request = call->request;
    char tag[CAIRN_VERSION_ID_BYTES + 2];
    snprintf(tag, sizeof(tag), "\"%s\"", now->text);
    if (now->text[0] && request->if_none_match[0] &&
        srv_tag_listed(request->if_none_match, tag, true))
        return cairn_fail(err, CAIRN_PRECONDITION, "%s is there already: it is %s",
                          request->params.ref, now->text);
    if (now->text[0]) return srv_must_match(request, tag, NULL, err);
    if (!request->if_match[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_PRECONDITION, "there is no alias %s", request->params.ref);
}

/* A repeat after a lost answer succeeds, whatever its If-Match says of the state before (RFC 9110,
 * 13.1.1). With If-None-Match an existing alias fails the call. */
static enum cairn_code point_alias(struct srv_tx *tx, struct alias_call *call,
                                   const struct srv_run *run, const struct cairn_version_id *now,
                                   struct cairn_error *err) {
    struct srv_ref ref = {&run->name, call->to, false};
    SRV_GET(version, version, srv_version_find(tx, &ref, &version, err));
    if (version.state != CAIRN_STATE_COMMITTED || !version.recorded)
        return cairn_fail(err, CAIRN_NOT_COMMITTED,
                          "%s is %s: an alias points at what is committed", version.id.text,
                          cairn_state_text(srv_version_shown(&version)));
    if (version.trashed)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is in the trash: undelete it first",
                          version.id.text);
    call->id = version.id;
    call->same = !strcmp(now->text, version.id.text) && !call->request->if_none_match[0];
    if (call->same) return CAIRN_OK;
    CAIRN_TRY(judge_match(call, now, err));
    return srv_alias_put(tx, run->id, call->request->params.ref, version.id.text,
                         srv_wall_ms(call->request->server), err);
}

SRV_CHANGE(change_alias, struct alias_call *call) {
    const char *alias = call->request->params.ref;
    struct cairn_version_id now;
    SRV_GET(run, run, srv_run_get(tx, &call->request->params.run_name, &run, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, run.id, err));
    CAIRN_TRY(srv_alias_get(tx, run.id, alias, &now, err));
    call->made = !call->drop && !now.text[0];
    call->id = now;
    if (!call->drop) return point_alias(tx, call, &run, &now, err);
    call->same = !now.text[0];
    if (call->same) return CAIRN_OK;
    CAIRN_TRY(judge_match(call, &now, err));
    return srv_alias_drop(tx, run.id, alias, err);
}

static enum cairn_code answer_alias(struct alias_call *call, int status, struct srv_reply *reply,
                                    struct cairn_error *err) {
    CAIRN_TRY(srv_reply_json(reply, status,
                             CAIRN_PACK(alias_row, .alias = call->request->params.ref,
                                        .version = call->id.text, .step = CAIRN_MESSAGE_NONE),
                             err));
    srv_reply_header(reply, "ETag", "\"%s\"", call->id.text);
    return CAIRN_OK;
}

static enum cairn_code serve_change(struct alias_call *call, struct srv_reply *reply,
                                    struct cairn_error *err) {
    struct srv *server = call->request->server;
    CAIRN_TRY(srv_thawed(server, err));
    CAIRN_TRY(check_name(call->request->params.ref, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, change_alias, call, err));
    if (call->same && call->drop) {
        reply->status = 204;
        return CAIRN_OK;
    }
    if (call->same) return answer_alias(call, 200, reply, err);
    cairn_log(INFO, "alias.changed", "run=%s/%s alias=%s version=%s dropped=%d",
              call->request->params.run_name.project, call->request->params.run_name.run,
              call->request->params.ref, call->id.text, call->drop);
    return answer_alias(call, call->made ? 201 : 200, reply, err);
}

SRV_HANDLER(alias_put) {
    SRV_BODY(body, alias_put, said, 100);
    CAIRN_TRY(cairn_ref_check(said.ref, "/ref", err));
    struct alias_call call = {.request = request, .to = said.ref};
    return serve_change(&call, reply, err);
}

SRV_HANDLER(alias_delete) {
    struct alias_call call = {.request = request, .drop = true};
    return serve_change(&call, reply, err);
}

SRV_HANDLER(alias_get) {
    struct alias_call call = {.request = request};
    CAIRN_TRY(srv_thawed(request->server, err));
    if (request->params.ref[0] < 'a' || request->params.ref[0] > 'z' ||
        cairn_text_starts(request->params.ref, "ckpt_"))
        return check_name(request->params.ref, err);
    {
        struct srv_ref ref = {&request->params.run_name, request->params.ref, true};
        SRV_LOOK(look, request->server->catalog, err);
        SRV_GET(version, version, srv_version_find(look.tx, &ref, &version, err));
        call.id = version.id;
    }
    return answer_alias(&call, 200, reply, err);
}

SRV_HANDLER(alias_list) {
    CAIRN_TRY(srv_thawed(request->server, err));
    json_t *items = NULL;
    {
        SRV_LOOK(look, request->server->catalog, err);
        SRV_GET(run, run, srv_run_get(look.tx, &request->params.run_name, &run, err));
        CAIRN_TRY(srv_aliases_of_run(look.tx, run.id, &items, err));
    }
    return srv_reply_page(reply, items, NULL, err);
}
