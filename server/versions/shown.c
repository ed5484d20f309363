/* SPDX-License-Identifier: Apache-2.0 */
/* The REST forms of versions and runs; see versions.h. */

#include <inttypes.h>
#include <stdio.h>

#include "server/http/waiters.h"
#include "server/ledger/attempts.h"
#include "server/ledger/copies.h"
#include "server/ledger/shards.h"
#include "server/nodes/nodes.h"
#include "server/versions/versions.h"

/* ---- versions ---- */

/* The text of a nullable member of messages.def. */
struct shown {
    char text[65];
};

static const char *time_of(int64_t wall_ms, struct shown *ret) {
    cairn_time_text(wall_ms, true, ret->text);
    return wall_ms ? ret->text : NULL;
}

static const char *hex_of(bool there, const uint8_t digest[32], struct shown *ret) {
    cairn_hex_encode(digest, 32, ret->text);
    return there ? ret->text : NULL;
}

static const char *text_of(const char *text) {
    return text[0] ? text : NULL;
}

/* Only a shown version (Q25) can be the latest. */
static enum cairn_code is_latest(struct srv_tx *tx, const struct srv_version *version,
                                 struct srv_newest *newest, bool *ret, struct cairn_error *err) {
    uint64_t step = 0;
    *ret = false;
    if (version->state != CAIRN_STATE_COMMITTED || !version->recorded || version->superseded ||
        version->trashed)
        return CAIRN_OK;
    if (!newest->looked)
        CAIRN_TRY(srv_latest(tx, version->run_id, &newest->found, &newest->id, &step, err));
    newest->looked = true;
    *ret = newest->found && !strcmp(newest->id.text, version->id.text);
    return CAIRN_OK;
}

static enum cairn_code count_progress(struct srv_tx *tx, const struct srv_version *version,
                                      struct srv_progress *ret, struct cairn_error *err) {
    *ret = (struct srv_progress){.shards = version->shards,
                                 .registered = version->shards,
                                 .ranks_sealed = version->world_size,
                                 .bytes = version->bytes};
    return version->committed_ms ? CAIRN_OK : srv_version_progress(tx, version->id.text, ret, err);
}

/* Most versions have one copy, in main, and need no look at rows. */
static enum cairn_code copies_of(struct srv_tx *tx, const struct srv_version *version, json_t **ret,
                                 struct cairn_error *err) {
    struct srv_copies copies = {.copies = {{.store = SRV_TIER_MAIN, .state = SRV_COPY_WHOLE}}};
    if (version->copied)
        CAIRN_TRY(srv_copies_get(tx, version->id.text, &copies, err));
    else
        copies.count = srv_version_shown(version) == CAIRN_STATE_COMMITTED;
    return srv_copies_json(&copies, ret, err);
}

json_t *srv_not_freed_json(const struct srv_not_freed *kept) {
    struct shown found, tried;
    (void)time_of(kept->since_ms, &found);
    (void)time_of(kept->tried_ms, &tried);
    return CAIRN_PACK(not_freed, .objects = kept->left.objects, .bytes = kept->left.bytes,
                      .counted = kept->left.counted, .code = cairn_code_info(kept->left.code)->slug,
                      .reason = kept->left.reason, .found_at = found.text, .tried_at = tried.text,
                      .tries = kept->tries);
}

/* *ret NULL: not deleted, or nothing is left in the store. */
static enum cairn_code not_freed_of(struct srv_tx *tx, const struct srv_version *version,
                                    json_t **ret, struct cairn_error *err) {
    struct srv_not_freed kept;
    *ret = NULL;
    if (version->state == CAIRN_STATE_OPEN || version->state == CAIRN_STATE_COMMITTED)
        return CAIRN_OK;
    CAIRN_TRY(srv_not_freed_get(tx, version->id.text, &kept, err));
    if (!kept.there) return CAIRN_OK;
    *ret = srv_not_freed_json(&kept);
    return *ret ? CAIRN_OK : srv_no_memory(err);
}

enum cairn_code srv_version_json(struct srv_tx *tx, const struct srv_version *version,
                                 struct srv_newest *newest, json_t **ret, struct cairn_error *err) {
    struct srv_progress progress = {0};
    struct srv_newest own = {0};
    bool latest = false;
    CAIRN_AUTO_JSON json_t *aliases = NULL, *copies = NULL, *kept = NULL;
    CAIRN_TRY(not_freed_of(tx, version, &kept, err));
    CAIRN_TRY(is_latest(tx, version, newest ? newest : &own, &latest, err));
    CAIRN_TRY(count_progress(tx, version, &progress, err));
    if (version->aliased)
        CAIRN_TRY(srv_aliases_of_version(tx, version->id.text, &aliases, err));
    else
        aliases = json_array();
    CAIRN_TRY(copies_of(tx, version, &copies, err));
    /* This JSON was written into the row by the server itself. */
    CAIRN_AUTO_JSON json_t *labels = json_loads(version->labels, 0, NULL);
    CAIRN_AUTO_JSON json_t *meta = json_loads(version->meta, 0, NULL);
    CAIRN_AUTO_JSON json_t *metrics = json_loads(version->metrics, 0, NULL);
    CAIRN_AUTO_JSON json_t *warnings = json_loads(version->warnings, 0, NULL);
    struct shown layout, manifest, created, staged, durable, committed;
    (void)time_of(version->created_ms, &created);
    *ret = CAIRN_PACK(
        version_row, .version = version->id.text, .project = version->name.project,
        .run = version->name.run, .step = version->step, .n = version->n,
        .line = version->line ? version->line : version->attempt, .attempt = version->attempt,
        .state = cairn_state_text(srv_version_shown(version)), .recorded = version->recorded,
        .superseded = version->superseded, .trashed = version->trashed, .latest = latest,
        .aliases = aliases, .world_size = version->world_size, .format = version->format,
        .labels = labels, .meta = meta, .metrics = metrics, .note = text_of(version->note),
        .pinned = version->pinned, .bytes = progress.bytes, .shards = progress.shards,
        .shards_registered = progress.registered, .ranks_sealed = progress.ranks_sealed,
        .layout = hex_of(version->has_layout, version->layout, &layout), .created_at = created.text,
        .staged_at = time_of(version->staged_ms, &staged),
        .durable_at = time_of(version->durable_ms, &durable),
        .stall_ms = version->stall_ms < 0 ? CAIRN_MESSAGE_NONE : (uint64_t)version->stall_ms,
        .committed_at = time_of(version->recorded ? version->committed_ms : 0, &committed),
        .reason = text_of(version->reason),
        .code = version->code ? cairn_code_info(version->code)->slug : NULL,
        .http_status = version->http_status ? (uint32_t)version->http_status : UINT32_MAX,
        .request_id = text_of(version->request_id), .warnings = warnings,
        .manifest_sha256 = hex_of(version->has_manifest, version->manifest_sha256, &manifest),
        .copies = copies, .not_freed = kept);
    return *ret ? CAIRN_OK : srv_no_memory(err);
}

struct cairn_msg_brief srv_version_brief_of(const struct srv_version *version,
                                            struct cairn_error *ret_why) {
    struct cairn_error *why = ret_why;
    *why = (struct cairn_error){0};
    if (version->code) {
        why->http_status = version->http_status;
        (void)cairn_text_copy(why->message, sizeof(why->message), version->reason);
        (void)cairn_text_copy(why->request_id, sizeof(why->request_id), version->request_id);
    }
    return (struct cairn_msg_brief){
        .version = version->id.text,
        .step = version->step,
        .n = (uint32_t)version->n,
        .state = cairn_state_text(srv_version_shown(version)),
        .recorded = version->recorded,
        .reason = why->message,
        .code = version->code ? cairn_code_info(version->code)->slug : NULL,
        .http_status = (uint32_t)why->http_status,
        .request_id = why->request_id,
    };
}

json_t *srv_version_brief(const struct srv_version *version) {
    struct cairn_error why;
    struct cairn_msg_brief brief = srv_version_brief_of(version, &why);
    return cairn_msg_brief_pack(&brief);
}

enum cairn_code srv_version_tag(const json_t *shown, char ret[SRV_TAG_BYTES],
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    CAIRN_TRY(cairn_json_dump(shown, &text, err));
    snprintf(ret, SRV_TAG_BYTES, "\"%016" PRIx64 "\"", srv_key_of(text.data));
    return CAIRN_OK;
}

static enum cairn_code reply_tagged(struct srv_reply *reply, int status, json_t *shown,
                                    const char *tag, struct cairn_error *err) {
    CAIRN_TRY(srv_reply_json(reply, status, json_incref(shown), err));
    srv_reply_header(reply, "ETag", "%s", tag);
    return CAIRN_OK;
}

enum cairn_code srv_reply_version(struct srv_reply *reply, int status, json_t *take_shown,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shown = take_shown;
    char tag[SRV_TAG_BYTES];
    CAIRN_TRY(srv_version_tag(shown, tag, err));
    return reply_tagged(reply, status, shown, tag, err);
}

/* ---- runs ---- */

/* The most recent heartbeat of the newest attempt's nodes; CAIRN_MESSAGE_NONE: none. */
static enum cairn_code look_at_nodes(struct srv_tx *tx, struct srv *server,
                                     const struct srv_run *run, uint64_t *ret_ms,
                                     struct cairn_error *err) {
    uint64_t nearest_ms = UINT64_MAX, tick = srv_tick(tx);
    SRV_GET(rows, rows, srv_attempt_nodes(tx, run->id, run->attempt, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_node_mark node = srv_row_node_mark(&rows);
        nearest_ms = cairn_min_u64(nearest_ms, srv_node_silent_ms(server, &node, tick));
    }
    *ret_ms = nearest_ms == UINT64_MAX ? CAIRN_MESSAGE_NONE : nearest_ms;
    return CAIRN_OK;
}

static enum cairn_code look_at_latest(struct srv_tx *tx, const struct srv_run *run, json_t **ret,
                                      struct cairn_error *err) {
    bool found = false;
    struct cairn_version_id latest;
    uint64_t step = 0;
    CAIRN_TRY(srv_latest(tx, run->id, &found, &latest, &step, err));
    if (!found) return CAIRN_OK;
    *ret = CAIRN_PACK(run_latest, .version = latest.text, .step = step);
    return *ret ? CAIRN_OK : srv_no_memory(err);
}

/* P16: an origin in a project that the caller may not read is left out; lineage ends there, too. */
static enum cairn_code look_at_origin(struct srv_tx *tx, const struct srv_request *request,
                                      const struct srv_run *run, json_t **ret,
                                      struct cairn_error *err) {
    struct srv_origin from;
    CAIRN_TRY(srv_run_origin(tx, run->id, &from, err));
    if (!from.version.text[0] ||
        !srv_caller_may(&request->caller, CAIRN_SCOPE_READ, from.name.project))
        return CAIRN_OK;
    *ret = CAIRN_PACK(run_from, .project = from.name.project, .run = from.name.run,
                      .version = from.version.text, .step = from.step);
    return *ret ? CAIRN_OK : srv_no_memory(err);
}

/* Time since a run's last commit or attempt; an open save means that the run is in use. */
struct idle {
    char committed_at[32]; /* "": no commit */
    uint64_t seconds;      /* CAIRN_MESSAGE_NONE: a save is open */
};

static enum cairn_code look_at_commits(struct srv_tx *tx, const struct srv *server,
                                       const struct srv_run *run, struct idle *ret,
                                       struct cairn_error *err) {
    int64_t times[SRV_COMMITS_LOOKED_AT], last_ms = 0, opened_ms = 0;
    size_t count = 0;
    bool saving = false;
    CAIRN_TRY(srv_run_commits(tx, run->id, times, CAIRN_COUNT(times), &count, err));
    CAIRN_TRY(srv_run_opened(tx, run->id, run->attempt, &opened_ms, &saving, err));
    for (size_t i = 0; i < count; i++)
        if (times[i] > last_ms) last_ms = times[i];
    ret->committed_at[0] = '\0';
    if (last_ms) cairn_time_text(last_ms, true, ret->committed_at);
    if (opened_ms > last_ms) last_ms = opened_ms;
    if (run->created_ms > last_ms) last_ms = run->created_ms;
    int64_t age_ms = srv_wall_ms(server) - last_ms;
    ret->seconds = age_ms > 0 ? (uint64_t)age_ms / 1000 : 0;
    if (saving) ret->seconds = CAIRN_MESSAGE_NONE;
    return CAIRN_OK;
}

enum cairn_code srv_run_json(struct srv_tx *tx, const struct srv_request *request,
                             const struct srv_run *run, json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *latest = NULL, *from = NULL;
    CAIRN_AUTO_JSON json_t *labels = json_loads(run->labels, 0, NULL);
    uint64_t versions = 0, bytes = 0, heard_ms = CAIRN_MESSAGE_NONE;
    char created[32];
    struct idle idle;
    CAIRN_TRY(look_at_latest(tx, run, &latest, err));
    CAIRN_TRY(srv_run_totals(tx, run->id, &versions, &bytes, err));
    CAIRN_TRY(look_at_origin(tx, request, run, &from, err));
    CAIRN_TRY(look_at_nodes(tx, request->server, run, &heard_ms, err));
    CAIRN_TRY(look_at_commits(tx, request->server, run, &idle, err));
    cairn_time_text(run->created_ms, true, created);
    *ret = CAIRN_PACK(run_row, .project = run->name.project, .run = run->name.run, .labels = labels,
                      .note = run->note[0] ? run->note : NULL, .from = from, .created_at = created,
                      .attempt = run->attempt, .nodes_silent_ms = heard_ms, .committed = versions,
                      .bytes = bytes, .latest = latest,
                      .last_commit_at = idle.committed_at[0] ? idle.committed_at : NULL,
                      .idle_s = idle.seconds);
    return *ret ? CAIRN_OK : srv_no_memory(err);
}

enum cairn_code srv_run_there(const struct srv_run *run, struct cairn_error *err) {
    if (!run->removed) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "run %s/%s was removed", run->name.project,
                      run->name.run);
}

enum cairn_code srv_run_tag(const json_t *shown, char ret[SRV_TAG_BYTES], struct cairn_error *err) {
    /* Only hashed, never sent: no row of messages.def. */
    CAIRN_AUTO_JSON json_t *said =
        json_pack("{s:O, s:O, s:O, s:O}", "from", json_object_get(shown, "from"), "labels",
                  json_object_get(shown, "labels"), "note", json_object_get(shown, "note"),
                  "created_at", json_object_get(shown, "created_at"));
    if (!said) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a tag");
    return srv_version_tag(said, ret, err);
}

enum cairn_code srv_reply_run(struct srv_reply *reply, int status, json_t *take_shown,
                              struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shown = take_shown;
    char tag[SRV_TAG_BYTES];
    CAIRN_TRY(srv_run_tag(shown, tag, err));
    return reply_tagged(reply, status, shown, tag, err);
}
