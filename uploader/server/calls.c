/* SPDX-License-Identifier: Apache-2.0 */
/* Builds, sends and applies the requests of the outbox; what answers mean for a save. */
#include "uploader/server/calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/digest.h"
#include "api/wire/messages.h"
#include "api/wire/words.h"
#include "common/hooks.h"
#include "common/text.h"
#include "common/trace.h"
#include "uploader/mail.h"
#include "uploader/partner/partner.h"
#include "uploader/server/outbox.h"

/* ---- the meaning of answers ---- */

enum cairn_code cairn_up_heard(const struct cairn_rest *rest, enum cairn_code code,
                               struct cairn_error *err) {
    if (code == CAIRN_OK || err->http_status < 400 || cairn_rest_spoke(rest) || !CAIRN_RULE(Q48))
        return code;
    err->code = CAIRN_UNAVAILABLE;
    return cairn_within(err, CAIRN_UNAVAILABLE, "not an answer of cairn-server");
}

enum cairn_up_refusal cairn_up_refusal_of(enum cairn_code code, int http_status, bool about_run) {
    /* Refused before it was sent: no retry makes it smaller. */
    if (http_status == 0 && code == CAIRN_TOO_LARGE) return CAIRN_UP_MUST_FAIL;
    if (http_status == 0 || http_status == 401 || http_status == 429 || http_status >= 500)
        return CAIRN_UP_PASSING;
    switch (code) {
    case CAIRN_STALE_ATTEMPT:
        return CAIRN_UP_OVER_STALE;
    case CAIRN_NOT_FOUND:
    case CAIRN_NOT_YET: /* about a step, never requested here: an unknown version */
        return about_run ? CAIRN_UP_OVER_RUN : CAIRN_UP_UNKNOWN;
    case CAIRN_DELETED:
        return about_run ? CAIRN_UP_OVER_RUN : CAIRN_UP_ENDED;
    case CAIRN_ABORTED:
    case CAIRN_NOT_OPEN:
    case CAIRN_ALREADY_COMMITTED:
        return CAIRN_UP_ENDED;
    case CAIRN_TABLE_UNKNOWN:
        return CAIRN_UP_TABLE;
    case CAIRN_TIMEOUT:
    case CAIRN_BUSY:
    case CAIRN_UNAVAILABLE:
    case CAIRN_CATALOG_BEHIND:
        return CAIRN_UP_PASSING;
    default:
        return http_status >= 400 ? CAIRN_UP_MUST_FAIL : CAIRN_UP_PASSING;
    }
}

static bool is_whole(const json_t *version) {
    const json_t *shards = json_object_get(version, "shards");
    const json_t *ranks = json_object_get(version, "world_size");
    return shards && ranks && json_equal(shards, json_object_get(version, "shards_registered")) &&
           json_equal(ranks, json_object_get(version, "ranks_sealed"));
}

void cairn_up_version_status_read(const json_t *version, struct cairn_up_version_status *ret) {
    const char *state = json_string_value(json_object_get(version, "state"));
    *ret = (struct cairn_up_version_status){
        .state = state ? state : "",
        .recorded = json_is_true(json_object_get(version, "recorded")),
        .was_committed = json_is_string(json_object_get(version, "committed_at")),
        .whole = is_whole(version),
    };
    cairn_failure_get(version, "reason", &ret->why);
}

static enum cairn_up_end end_of(enum cairn_code code) {
    if (code == CAIRN_SKIPPED) return CAIRN_UP_SKIPPED;
    if (code == CAIRN_STEP_EXISTS || code == CAIRN_QUOTA_EXCEEDED) return CAIRN_UP_REFUSED;
    return CAIRN_UP_ABORTED;
}

/* False when our fail may follow from another's abort (its sweep deletes our files). */
static bool is_ours(const struct cairn_up_save *save, const char *reason) {
    char start[64];
    (void)cairn_text_copy(start, sizeof(start), save->why.message);
    return !reason[0] || strstr(reason, start);
}

/* Applies a version's state to one save; true: the save is over now. */
static bool apply_outcome_locked(struct cairn_up *up, struct cairn_up_save *save,
                                 const struct cairn_up_version_status *found) {
    bool committed = !strcmp(found->state, "committed") && found->recorded;
    bool left = !strcmp(found->state, "deleting") || !strcmp(found->state, "gone");
    if (committed || !strcmp(found->state, "deleting") ||
        (left && (found->was_committed || found->recorded))) {
        cairn_up_save_over_locked(up, save, CAIRN_UP_COMMITTED, CAIRN_OK, "");
        return true;
    }
    if (!left && strcmp(found->state, "aborting") != 0) return false;
    if (cairn_up_save_state_is_failing(&save->state) && is_ours(save, found->why.message)) {
        cairn_up_save_end_locked(up, save, CAIRN_UP_FAILED, &save->why);
        return true;
    }
    struct cairn_error why = found->why;
    if (why.code == CAIRN_OK || why.code == CAIRN_INTERNAL) why.code = CAIRN_ABORTED;
    if (!why.message[0]) cairn_fail(&why, why.code, "the version was given up");
    if (cairn_up_lists_hold_locked(up, save, end_of(why.code), &why)) return false;
    cairn_up_save_end_locked(up, save, end_of(why.code), &why);
    return true;
}

void cairn_up_outcome_version_locked(struct cairn_up *up, const char *version,
                                     const struct cairn_up_version_status *found) {
    if (found->state[0] && strcmp(found->state, "open") != 0)
        cairn_up_partner_over_locked(up->partner, version, !strcmp(found->state, "committed"));
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.phase != CAIRN_UP_PHASE_OVER && !strcmp(save->place.id.text, version))
            (void)apply_outcome_locked(up, save, found);
    }
}

bool cairn_up_version_decided(const json_t *version) {
    const char *outcome = json_string_value(json_object_get(version, "awaited"));
    return outcome && !strcmp(outcome, cairn_outcome_text(CAIRN_OUTCOME_REACHED));
}

void cairn_up_outcome_decided_locked(struct cairn_up *up, const char *version) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!cairn_up_save_awaits_decision(save) || strcmp(save->place.id.text, version) != 0)
            continue;
        save->decided = true;
        cairn_up_mail_post(up->mail, save->conn, CAIRN_PACK(decided, .save = save->number));
    }
}

/* Fails a save that is unknown to this node's journal and incomplete at the server. */
static void fail_unknown(struct cairn_up *up, struct cairn_up_save *save) {
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_SOURCE_GONE,
                     "the uploader came back without its journal, or under another node name: it "
                     "is of node %s now, on host %s%s",
                     up->places.node, up->places.host,
                     *up->settings.node ? ""
                                        : "; the setting node is not set, so that the node's name "
                                          "changes with the host name");
    cairn_up_save_fail_for_locked(up, save, &why);
}

void cairn_up_outcome_forgotten_locked(struct cairn_up *up, const char *version,
                                       const struct cairn_up_version_status *found) {
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.phase != CAIRN_UP_PHASE_IN_DOUBT ||
            strcmp(save->place.id.text, version) != 0)
            continue;
        if (!found)
            cairn_up_save_over_locked(up, save, CAIRN_UP_FAILED, CAIRN_SOURCE_GONE,
                                      "neither the uploader's journal nor the server knows it");
        else if (!strcmp(found->state, "open") && !found->whole)
            fail_unknown(up, save);
    }
}

void cairn_up_outcome_fence_locked(struct cairn_up *up, const char *run_text, uint64_t newest) {
    for (struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (!strcmp(at->run_text, run_text) && at->grant.attempt < newest) at->stale = true;
    }
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.phase == CAIRN_UP_PHASE_OVER || !save->attempt->stale ||
            cairn_up_save_state_may_be_committed(&save->state))
            continue;
        cairn_up_save_over_locked(up, save, CAIRN_UP_ABORTED, CAIRN_STALE_ATTEMPT,
                                  "a newer attempt of the run has taken over");
    }
}

void cairn_up_outcome_foreign_locked(struct cairn_up *up, const char *grant,
                                     const struct cairn_error *why) {
    struct cairn_up_attempt *attempt = up->locked.attempts;
    while (attempt && strcmp(attempt->text, grant) != 0) attempt = attempt->next;
    if (!attempt) return;
    if (attempt->foreign.code == CAIRN_OK)
        cairn_log(ERROR, "attempt.foreign", "run=%s attempt=%" PRIu64 " cause=\"%s\"",
                  attempt->run_text, attempt->grant.attempt, why->message);
    attempt->foreign = *why;
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        /* Also a save counted since: no server takes it from this node. */
        if (save->attempt == attempt && save->state.phase != CAIRN_UP_PHASE_OVER)
            cairn_up_save_end_locked(up, save, CAIRN_UP_ABORTED, why);
    }
}

#define SHARDS_MAX 4096
/* Default limit of proxies is 1 MiB a body. A larger item is uploaded in parts. */
#define BODY_BYTES (512 * CAIRN_KIB)
#define REGISTER_BYTES_MAX (32 * CAIRN_MIB)
#define BLOCK_BYTES_MAX (16 * CAIRN_MIB) /* of base64, of one shard */
#define SEALED_ITEM_BYTES 48
#define ITEM_BYTES 160 /* of an item without its texts: field names, numbers, a token */
#define TABLE_ROUNDS_MAX 3

void cairn_up_due_fill(const struct cairn_up_save *save, struct cairn_up_due_save *ret) {
    *ret = (struct cairn_up_due_save){.entry = save->entry, .rank = save->rank};
    (void)cairn_text_copy(ret->version, sizeof(ret->version), save->place.id.text);
    (void)cairn_text_copy(ret->run_text, sizeof(ret->run_text), save->attempt->run_text);
    (void)cairn_text_copy(ret->grant, sizeof(ret->grant), save->attempt->text);
    ret->why = save->why;
}

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a request to the server");
}

/* Keeps the time of the first of consecutive unanswered requests. */
static void note_asked(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    if (!up->locked.server_asked_ms) up->locked.server_asked_ms = cairn_mono_ms();
}

static void note_answered(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    up->locked.server_asked_ms = 0;
}

/* The trace of the save's begin, or of the path's version; a batch has its first save's. */
static void trace_of(const struct cairn_up_batch *batch, const char *path,
                     struct cairn_trace *ret) {
    const char *named = strstr(path, "/checkpoints/ckpt_");
    char version[CAIRN_VERSION_ID_BYTES] = "";
    if (named) {
        named += strlen("/checkpoints/");
        size_t size = cairn_min_u64(strcspn(named, "/?"), sizeof(version) - 1);
        memcpy(version, named, size);
        version[size] = '\0';
    }
    if (batch->count) {
        CAIRN_HOLD(&batch->up->lock);
        const struct cairn_up_save *save = cairn_up_save_find_locked(batch->up, batch->entries[0]);
        if (save && (!named || !strcmp(version, save->place.id.text))) {
            cairn_up_save_trace(save, ret);
            return;
        }
    }
    cairn_trace_of_version(version, ret);
}

static enum cairn_code call(struct cairn_up_batch *batch, const char *method, const char *tail,
                            const json_t *body, json_t **ret_reply, struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s%s", batch->due->run_text, tail));
    note_asked(batch->up);
    /* The grant authorises the request even when the token has expired. */
    CAIRN_TRY(cairn_rest_set_grant(batch->rest, batch->due->grant, err));
    struct cairn_trace trace;
    trace_of(batch, path.data, &trace);
    cairn_trace_set(&trace);
    enum cairn_code code = cairn_rest_call(batch->rest, method, path.data, body, 0, ret_reply, err);
    cairn_trace_set(NULL);
    code = cairn_up_heard(batch->rest, code, err);
    batch->unreachable = code != CAIRN_OK && err->http_status == 0;
    if (!batch->unreachable) note_answered(batch->up);
    return code;
}

/* ---- refusals of a whole request ---- */

/* Names an older server as the cause: it refuses a member or parameter that it does not know. */
static void name_older(const struct cairn_up_batch *batch, struct cairn_error *err) {
    if (err->code == CAIRN_INVALID || err->code == CAIRN_METHOD)
        cairn_rest_name_older(batch->rest, "this uploader", CAIRN_UP_VERSION, err);
}

static void over_all(struct cairn_up_batch *batch, enum cairn_up_end end,
                     const struct cairn_error *why) {
    struct cairn_up *up = batch->up;
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < batch->count; i++) {
        struct cairn_up_save *save = cairn_up_save_find_locked(up, batch->entries[i]);
        if (!save) continue;
        if (why->code == CAIRN_STALE_ATTEMPT) save->attempt->stale = true;
        cairn_up_save_end_locked(up, save, end, why);
    }
}

static void unknown_all(struct cairn_up_batch *batch) {
    CAIRN_HOLD(&batch->up->lock);
    for (size_t i = 0; i < batch->count; i++) {
        struct cairn_up_save *save = cairn_up_save_find_locked(batch->up, batch->entries[i]);
        if (save) cairn_up_save_report_again_locked(batch->up, save);
    }
}

static void fail_all(struct cairn_up_batch *batch, const struct cairn_error *why) {
    CAIRN_HOLD(&batch->up->lock);
    for (size_t i = 0; i < batch->count; i++) {
        struct cairn_up_save *save = cairn_up_save_find_locked(batch->up, batch->entries[i]);
        if (save) cairn_up_save_fail_for_locked(batch->up, save, why);
    }
}

/* Asks the server how the version ended. */
static enum cairn_code ask_end(struct cairn_up_batch *batch, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) tail = {0};
    CAIRN_TRY(cairn_buf_printf(&tail, err, "/checkpoints/%s", batch->due->version));
    enum cairn_code code = call(batch, "GET", tail.data, NULL, &reply, err);
    enum cairn_up_refusal refusal =
        code == CAIRN_OK ? CAIRN_UP_ENDED : cairn_up_refusal_of(code, err->http_status, false);
    struct cairn_up_version_status found;
    cairn_up_version_status_read(reply, &found);
    if (refusal == CAIRN_UP_PASSING) return code;
    if (refusal == CAIRN_UP_UNKNOWN) {
        unknown_all(batch);
    } else if (code == CAIRN_OK) {
        CAIRN_HOLD(&batch->up->lock);
        cairn_up_outcome_version_locked(batch->up, batch->due->version, &found);
    } else { /* only committed versions can be deleted */
        over_all(batch, code == CAIRN_DELETED ? CAIRN_UP_COMMITTED : CAIRN_UP_ABORTED, err);
    }
    return CAIRN_OK;
}

/* Sends each save of the batch alone, to find the one that the server refuses. */
static enum cairn_code one_by_one(struct cairn_up_batch *batch,
                                  enum cairn_code (*tell)(struct cairn_up_batch *batch,
                                                          struct cairn_error *err),
                                  struct cairn_error *err) {
    enum cairn_code result = CAIRN_OK;
    for (size_t i = 0; i < batch->count; i++) {
        struct cairn_up_batch single = {
            .up = batch->up, .rest = batch->rest, .due = batch->due, .count = 1};
        single.entries[0] = batch->entries[i];
        enum cairn_code code = tell(&single, err);
        if (code != CAIRN_OK) result = code;
        batch->unreachable |= single.unreachable;
        if (single.unreachable) return code;
    }
    return result;
}

static enum cairn_code begins_body(struct cairn_up_batch *batch, json_t **ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *begins = json_array();
    CAIRN_HOLD(&batch->up->lock);
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct cairn_up_save *save = cairn_up_save_find_locked(batch->up, batch->entries[i]);
        if (!save || save->state.phase == CAIRN_UP_PHASE_OVER) continue;
        if (json_array_append_new(begins, json_deep_copy(save->begin))) return no_memory(err);
        batch->entries[kept++] = batch->entries[i];
    }
    batch->count = kept;
    *ret = CAIRN_PACK(begins, .grant = batch->due->grant, .node = batch->up->places.node,
                      .begins = begins);
    return *ret ? CAIRN_OK : no_memory(err);
}

static void apply_begin(struct cairn_up *up, struct cairn_up_save *save, const json_t *json,
                        const struct cairn_msg_begin_result *result) {
    struct cairn_up_version_status found;
    cairn_up_version_status_read(json, &found);
    cairn_up_save_state_answered(&save->state, CAIRN_UP_REPORTED_BEGIN);
    if (result->problem) {
        bool detailed = json_is_string(json_object_get(result->problem, "detail"));
        cairn_failure_get(result->problem, detailed ? "detail" : "title", &found.why);
        if (found.why.code == CAIRN_QUOTA_EXCEEDED) found.why.http_status = (int)result->status;
        /* no row, and no retry will make one */
        if (!result->state && result->status >= 400 && result->status < 500) {
            found.why.http_status = (int)result->status;
            if (!found.why.code) found.why.code = CAIRN_INVALID;
            cairn_up_save_end_locked(up, save, CAIRN_UP_REFUSED, &found.why);
            return;
        }
    }
    if (!strcmp(found.state, "committed")) found.recorded = true; /* shown only then */
    (void)apply_outcome_locked(up, save, &found);
}

/* A batch with one unreadable result counts as unanswered. */
static enum cairn_code apply_begins(struct cairn_up_batch *batch, const json_t *reply,
                                    struct cairn_error *err) {
    struct cairn_msg_begin_results told = {0};
    struct cairn_msg_begin_result results[CAIRN_COUNT(batch->entries)] = {0};
    if (cairn_msg_begin_results_read(reply, "", &told, err) != CAIRN_OK)
        return cairn_within(err, CAIRN_PROTOCOL, "the server's answer to begins");
    if (json_array_size(told.results) != batch->count)
        return cairn_fail(err, CAIRN_PROTOCOL, "the server answered %zu of %zu begins",
                          json_array_size(told.results), batch->count);
    for (size_t i = 0; i < batch->count; i++)
        if (cairn_msg_begin_result_read(json_array_get(told.results, i), "", &results[i], err))
            return cairn_within(err, CAIRN_PROTOCOL, "the server's answer to begin %zu", i);
    CAIRN_HOLD(&batch->up->lock);
    for (size_t i = 0; i < batch->count; i++) {
        struct cairn_up_save *save = cairn_up_save_find_locked(batch->up, batch->entries[i]);
        if (save) apply_begin(batch->up, save, json_array_get(told.results, i), &results[i]);
    }
    return CAIRN_OK;
}

static enum cairn_code begins_refused(struct cairn_up_batch *batch, enum cairn_code code,
                                      struct cairn_error *err) {
    switch (cairn_up_refusal_of(code, err->http_status, true)) {
    case CAIRN_UP_OVER_STALE:
    case CAIRN_UP_OVER_RUN:
        over_all(batch, CAIRN_UP_ABORTED, err);
        return CAIRN_OK;
    case CAIRN_UP_MUST_FAIL:
    case CAIRN_UP_ENDED:
        if (batch->count > 1) return one_by_one(batch, cairn_up_report_begins, err);
        name_older(batch, err);
        over_all(batch, CAIRN_UP_REFUSED, err);
        return CAIRN_OK;
    default:
        return code;
    }
}

enum cairn_code cairn_up_report_begins(struct cairn_up_batch *batch, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_TRY(begins_body(batch, &body, err));
    if (!batch->count) return CAIRN_OK;
    enum cairn_code code = call(batch, "POST", "/checkpoints", body, &reply, err);
    CAIRN_CRASHPOINT("uploader.begin.told");
    if (code != CAIRN_OK) return begins_refused(batch, code, err);
    return apply_begins(batch, reply, err);
}

static void fail_answered(struct cairn_up_batch *batch, const json_t *reply) {
    struct cairn_up *up = batch->up;
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, batch->due->entry);
    if (!save) return;
    cairn_up_save_state_answered(&save->state, CAIRN_UP_REPORTED_FAIL);
    struct cairn_up_version_status found;
    cairn_up_version_status_read(reply, &found);
    (void)apply_outcome_locked(up, save, &found);
}

enum cairn_code cairn_up_report_fail(struct cairn_up_batch *batch, struct cairn_error *err) {
    const struct cairn_up_due_save *due = batch->due;
    batch->entries[0] = due->entry;
    batch->count = 1;
    CAIRN_AUTO_JSON json_t *body =
        CAIRN_PACK(rank_fail, .grant = due->grant, .node = batch->up->places.node,
                   .rank = due->rank, CAIRN_PACK_WHY(&due->why, reason));
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) tail = {0};
    if (!body) return no_memory(err);
    CAIRN_TRY(cairn_buf_printf(&tail, err, "/checkpoints/%s/fail", due->version));
    enum cairn_code code = call(batch, "POST", tail.data, body, &reply, err);
    if (code == CAIRN_OK) {
        fail_answered(batch, reply);
        return CAIRN_OK;
    }
    switch (cairn_up_refusal_of(code, err->http_status, false)) {
    case CAIRN_UP_PASSING:
        return code;
    case CAIRN_UP_UNKNOWN:
        unknown_all(batch);
        return CAIRN_OK;
    case CAIRN_UP_ENDED:
        fail_answered(batch, NULL); /* the watchers poll the outcome */
        return ask_end(batch, err);
    case CAIRN_UP_OVER_STALE:
    case CAIRN_UP_OVER_RUN:
        over_all(batch, CAIRN_UP_ABORTED, err);
        return CAIRN_OK;
    default: /* no retry would succeed: reports to the rank, so that later saves proceed */
        over_all(batch, CAIRN_UP_FAILED, &due->why);
        return CAIRN_OK;
    }
}

/* ---- seals and registrations ---- */

struct listing {            /* the body of one request */
    json_t *shards, *seals; /* borrowed */
    size_t bytes;           /* estimate of the body */
    struct {
        uint64_t entry;
        uint32_t index;
    } listed[SHARDS_MAX];
    size_t count;
    uint64_t sealed[256];
    size_t sealed_count;
    bool more; /* something did not fit */
};

static size_t seal_bytes(const struct cairn_up_save *save) {
    size_t bytes = ITEM_BYTES;
    for (size_t i = 0; i < save->state.shard_count; i++)
        bytes += strlen(save->shards[i]->name) + SEALED_ITEM_BYTES;
    return bytes;
}

/* True when another item would exceed the limit of proxies; the present items are sent first. */
static bool is_full(struct listing *listing, size_t more_bytes) {
    bool empty = !listing->count && !listing->sealed_count;
    bool full = listing->count == SHARDS_MAX ||
                listing->sealed_count == CAIRN_COUNT(listing->sealed) ||
                (!empty && listing->bytes + more_bytes > BODY_BYTES);
    listing->more |= full;
    return full;
}

static enum cairn_code list_seal(struct listing *listing, const struct cairn_up_save *save,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shards = json_array();
    for (size_t i = 0; i < save->state.shard_count; i++) {
        if (json_array_append_new(shards, CAIRN_PACK(sealed_shard, .name = save->shards[i]->name,
                                                     .bytes = save->shards[i]->size_bytes)))
            return no_memory(err);
    }
    CAIRN_AUTO_JSON json_t *none = json_array();
    json_t *seal =
        CAIRN_PACK(rank_seal, .rank = save->rank, .table = save->table ? save->table->hex : NULL,
                   .shards = shards, .bytes = save->total_bytes,
                   .replicated = save->replicated ? save->replicated : none, .labels = save->labels,
                   .meta = save->meta, .stall_ms = save->stall_ms,
                   .stale = save->stale[0] ? save->stale : NULL);
    if (json_array_append_new(listing->seals, seal)) return no_memory(err);
    listing->bytes += seal_bytes(save);
    listing->sealed[listing->sealed_count++] = save->entry;
    return CAIRN_OK;
}

static enum cairn_code list_shard(struct cairn_up *up, struct listing *listing,
                                  const struct cairn_up_save *save,
                                  const struct cairn_up_shard *shard, struct cairn_error *err) {
    CAIRN_AUTO(up_shard_proof) proof = {0};
    CAIRN_AUTO(buf) blocks = {.limit = 2 * BLOCK_BYTES_MAX};
    char crc[9];
    CAIRN_TRY(cairn_up_shard_prove(up->queue, shard, &proof, err));
    CAIRN_TRY(cairn_base64_encode(cairn_buf_view(&proof.blocks_le), &blocks, err));
    snprintf(crc, sizeof(crc), "%08x", proof.crc32c);
    json_t *item = CAIRN_PACK(registration, .name = shard->name, .rank = save->rank,
                              .bytes = shard->size_bytes, .crc32c = crc,
                              .blocks = blocks.size ? blocks.data : "",
                              .part_bytes = proof.part_bytes, .token = proof.token);
    if (json_array_append_new(listing->shards, item)) return no_memory(err);
    listing->bytes += blocks.size + strlen(shard->name) + ITEM_BYTES;
    listing->listed[listing->count].entry = save->entry;
    listing->listed[listing->count++].index = shard->index;
    return CAIRN_OK;
}

static enum cairn_code list_save(struct cairn_up *up, struct listing *listing,
                                 const struct cairn_up_save *save, struct cairn_error *err) {
    if (save->state.reported < CAIRN_UP_REPORTED_SEAL) {
        if (is_full(listing, seal_bytes(save))) return CAIRN_OK;
        CAIRN_TRY(list_seal(listing, save, err));
    }
    for (size_t i = 0; i < save->state.shard_count; i++) {
        const struct cairn_up_shard *shard = save->shards[i];
        if (shard->phase != CAIRN_UP_SHARD_DURABLE) continue;
        uint64_t block_bytes = shard->size_bytes / CAIRN_MIB * 6; /* 4 bytes a block, in base64 */
        if (is_full(listing, block_bytes + strlen(shard->name) + ITEM_BYTES)) return CAIRN_OK;
        CAIRN_TRY(list_shard(up, listing, save, shard, err));
    }
    return CAIRN_OK;
}

static enum cairn_code list_all(struct cairn_up_batch *batch, struct listing *listing,
                                struct cairn_error *err) {
    CAIRN_HOLD(&batch->up->lock);
    for (size_t i = 0; i < batch->count && !listing->more; i++) {
        const struct cairn_up_save *save = cairn_up_save_find_locked(batch->up, batch->entries[i]);
        if (!save || cairn_up_save_state_report_due(&save->state) != CAIRN_UP_REPORT_SHARDS)
            continue;
        CAIRN_TRY(list_save(batch->up, listing, save, err));
    }
    return CAIRN_OK;
}

static void apply_listing(struct cairn_up_batch *batch, const struct listing *listing,
                          const json_t *reply) {
    struct cairn_up *up = batch->up;
    struct cairn_up_version_status found;
    cairn_up_version_status_read(reply, &found);
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < listing->sealed_count; i++) {
        struct cairn_up_save *save = cairn_up_save_find_locked(up, listing->sealed[i]);
        if (save) cairn_up_save_state_answered(&save->state, CAIRN_UP_REPORTED_SEAL);
    }
    for (size_t i = 0; i < listing->count; i++) {
        struct cairn_up_save *save = cairn_up_save_find_locked(up, listing->listed[i].entry);
        if (!save) continue;
        struct cairn_up_shard *shard = save->shards[listing->listed[i].index];
        (void)cairn_up_save_state_shard_move(&save->state, &shard->phase,
                                             CAIRN_UP_SHARD_EVENT_REGISTERED);
    }
    cairn_up_outcome_version_locked(up, batch->due->version, &found);
}

/* ---- tables (Q33) ---- */

static enum cairn_code put_bytes(struct cairn_up_batch *batch, const char *path,
                                 struct cairn_view bytes, struct cairn_error *err) {
    enum cairn_code code = cairn_rest_bytes(batch->rest, "PUT", path, "application/octet-stream",
                                            bytes, NULL, NULL, err);
    code = cairn_up_heard(batch->rest, code, err);
    batch->unreachable = code != CAIRN_OK && err->http_status == 0;
    return code;
}

static size_t parts_of(size_t bytes) {
    return (bytes + BODY_BYTES - 1) / BODY_BYTES;
}

/* what: "" for a table, otherwise the call whose body is uploaded. */
static enum cairn_code put_parts(struct cairn_up_batch *batch, const char *path, const char *what,
                                 struct cairn_view table, struct cairn_error *err) {
    size_t count = parts_of(table.size);
    if (count <= 1) return put_bytes(batch, path, table, err);
    for (size_t i = 0; i < count; i++) {
        CAIRN_AUTO(buf) tail = {0};
        size_t from = i * BODY_BYTES;
        struct cairn_view part = {(const char *)table.data + from,
                                  cairn_min_u64(table.size - from, BODY_BYTES)};
        CAIRN_TRY(cairn_buf_printf(&tail, err, "%s?part=%zu&of=%zu%s", path, i + 1, count, what));
        CAIRN_TRY(put_bytes(batch, tail.data, part, err));
    }
    return CAIRN_OK;
}

static enum cairn_code send_table(struct cairn_up_batch *batch, uint64_t entry,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) table = {.limit = 64 * CAIRN_MIB};
    CAIRN_AUTO(buf) path = {0};
    cairn_lock_take(&batch->up->lock);
    const struct cairn_up_save *save = cairn_up_save_find_locked(batch->up, entry);
    enum cairn_code code = CAIRN_OK;
    if (save && save->table) {
        const struct cairn_buf *bytes = &save->table->bytes;
        code = cairn_buf_append(&table, bytes->data, bytes->size, err);
        if (code == CAIRN_OK)
            code = cairn_buf_printf(&path, err, "/v1/runs/%s/tables/%s", batch->due->run_text,
                                    save->table->hex);
    }
    cairn_lock_give(&batch->up->lock);
    if (code != CAIRN_OK || !path.size) return code;
    CAIRN_TRY(cairn_rest_set_grant(batch->rest, batch->due->grant, err));
    return put_parts(batch, path.data, "", cairn_buf_view(&table), err);
}

static enum cairn_code send_tables(struct cairn_up_batch *batch, struct cairn_error *err) {
    for (size_t i = 0; i < batch->count; i++) {
        enum cairn_code code = send_table(batch, batch->entries[i], err);
        if (code == CAIRN_OK) continue;
        if (cairn_up_refusal_of(code, err->http_status, false) != CAIRN_UP_MUST_FAIL) return code;
        struct cairn_up_batch single = {.up = batch->up, .due = batch->due, .count = 1};
        single.entries[0] = batch->entries[i];
        name_older(batch, err);
        fail_all(&single, err); /* only this rank's table is wrong */
    }
    return CAIRN_OK;
}

static enum cairn_code shards_refused(struct cairn_up_batch *batch, enum cairn_code code,
                                      unsigned round, struct cairn_error *err) {
    switch (cairn_up_refusal_of(code, err->http_status, false)) {
    case CAIRN_UP_OVER_STALE:
    case CAIRN_UP_OVER_RUN:
        over_all(batch, CAIRN_UP_ABORTED, err);
        return CAIRN_OK;
    case CAIRN_UP_UNKNOWN:
        unknown_all(batch);
        return CAIRN_OK;
    case CAIRN_UP_ENDED:
        return ask_end(batch, err);
    case CAIRN_UP_TABLE:
        return round < TABLE_ROUNDS_MAX ? send_tables(batch, err) : code;
    case CAIRN_UP_MUST_FAIL:
        if (batch->count > 1) return one_by_one(batch, cairn_up_report_shards, err);
        name_older(batch, err);
        fail_all(batch, err);
        return CAIRN_OK;
    default:
        return code;
    }
}

/* Uploads an oversized body in parts first; the call then names its digest. */
static enum cairn_code send_ahead(struct cairn_up_batch *batch, json_t **body,
                                  struct cairn_buf *tail, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = REGISTER_BYTES_MAX};
    CAIRN_AUTO(buf) path = {0};
    uint8_t digest[32];
    char hex[65];
    CAIRN_TRY(cairn_json_dump(*body, &text, err));
    if (parts_of(text.size) <= 1) return CAIRN_OK;
    cairn_table_digest(cairn_buf_view(&text), digest);
    cairn_hex_encode(digest, sizeof(digest), hex);
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/tables/%s", batch->due->run_text, hex));
    CAIRN_TRY(cairn_rest_set_grant(batch->rest, batch->due->grant, err));
    CAIRN_TRY(put_parts(batch, path.data, "&for=shards", cairn_buf_view(&text), err));
    json_decref(*body);
    *body = json_object();
    return cairn_buf_printf(tail, err, "?digest=%s&of=%zu", hex, parts_of(text.size));
}

static enum cairn_code tell_round(struct cairn_up_batch *batch, struct listing *listing,
                                  json_t **ret_reply, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shards = json_array(), *seals = json_array();
    CAIRN_AUTO(buf) tail = {0};
    listing->shards = shards;
    listing->seals = seals;
    CAIRN_TRY(list_all(batch, listing, err));
    if (!listing->count && !listing->sealed_count) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *body =
        CAIRN_PACK(register, .grant = batch->due->grant, .node = batch->up->places.node,
                   .shards = shards, .seals = seals);
    if (!body) return no_memory(err);
    CAIRN_TRY(cairn_buf_printf(&tail, err, "/checkpoints/%s/shards", batch->due->version));
    if (listing->bytes > BODY_BYTES) CAIRN_TRY(send_ahead(batch, &body, &tail, err));
    CAIRN_CRASHPOINT("uploader.shards.before_told");
    enum cairn_code code = call(batch, "POST", tail.data, body, ret_reply, err);
    CAIRN_CRASHPOINT("uploader.shards.told");
    return code;
}

enum cairn_code cairn_up_report_shards(struct cairn_up_batch *batch, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct listing *listing = NULL;
    for (unsigned round = 0;; round++) {
        free(listing);
        listing = calloc(1, sizeof(*listing));
        if (!listing) return no_memory(err);
        CAIRN_AUTO_JSON json_t *reply = NULL;
        struct cairn_error error = {0};
        enum cairn_code code = tell_round(batch, listing, &reply, &error);
        if (code == CAIRN_OK) {
            if (reply) apply_listing(batch, listing, reply);
            if (!listing->more) return CAIRN_OK;
            round = 0;
            continue;
        }
        if (err) *err = error;
        bool table = cairn_up_refusal_of(code, error.http_status, false) == CAIRN_UP_TABLE;
        code = shards_refused(batch, code, round, err);
        if (!table || code != CAIRN_OK) return code;
    }
}
