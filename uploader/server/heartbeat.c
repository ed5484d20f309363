/* SPDX-License-Identifier: Apache-2.0 */
/* One PUT of what this node holds, and what the answer says about it. */
#include "uploader/server/heartbeat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "store/store.h"
#include "uploader/journal/journal.h"
#include "uploader/partner/partner.h"
#include "uploader/peers/peers.h"
#include "uploader/saves/ended.h"
#include "uploader/saves/kept.h"
#include "uploader/saves/slabs.h"
#include "uploader/server/abandoned.h"
#include "uploader/server/inside.h"
#include "uploader/server/outcome.h"
#include "uploader/server/trouble.h"
#include "uploader/shards/queue.h"

#define LAST_MS 2000 /* a stopping uploader does not wait long for a server that is away */

/* ---- the report ---- */

static uint64_t unsent_of(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    uint64_t count = 0;
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        if (save->attempt == attempt && cairn_up_save_state_is_unsent(&save->state)) count++;
    }
    return count;
}

/* The node's row says why nothing is sent for now, and why the journal cannot be written: nothing
 * of this node outlives a restart then. */
static bool is_sending(const struct cairn_up *up) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        for (size_t k = 0; k < save->state.shard_count; k++)
            if (save->shards[k]->phase == CAIRN_UP_SHARD_SENDING) return true;
    }
    return false;
}

/* Between two heartbeats that both found something to send; one that found no further part
 * acknowledged counts into the time of the next. What is told changes by a tenth or not at all,
 * since each change is a write of the server's. */
static void measure_rate(struct cairn_up_watch *watch) {
    struct cairn_up_rate *rate = &watch->rate;
    uint64_t now_ms = cairn_mono_ms(), bytes = watch->up->sent_bytes;
    uint64_t passed_ms = now_ms - rate->beat_ms, more = bytes - rate->bytes;
    bool busy = is_sending(watch->up);
    if (busy && rate->busy && !more) return;
    if (busy && rate->busy && passed_ms) {
        uint64_t sample = more * 1000 / passed_ms;
        rate->per_second = rate->per_second ? (3 * rate->per_second + sample) / 4 : sample;
    }
    uint64_t apart = rate->per_second > rate->told ? rate->per_second - rate->told
                                                   : rate->told - rate->per_second;
    if (apart > rate->told / 10) rate->told = rate->per_second;
    rate->beat_ms = now_ms;
    rate->bytes = bytes;
    rate->busy = busy;
}

/* Each change of what is told is a write of the server's, so in steps: to and from nothing, and
 * where it is at least that step away from what was told last. */
static uint64_t tell_in_steps(uint64_t *told, uint64_t now, uint64_t step) {
    uint64_t apart = now > *told ? now - *told : *told - now;
    if (apart >= cairn_max_u64(step, 1) || !now != !*told) *told = now;
    return *told;
}

struct use {
    uint64_t slab_bytes, slab_held_bytes, queue_depth;
};

/* Slabs in quarters of all of them; the queue by half of what it was. */
static struct use measure_use(struct cairn_up_watch *watch) {
    struct cairn_up *up = watch->up;
    struct use use = {0};
    uint64_t held_bytes = 0, depth = 0;
    for (const struct cairn_up_slab *slab = up->locked.slabs; slab; slab = slab->next) {
        use.slab_bytes += slab->bytes;
        if (slab->state.owner) held_bytes += slab->bytes;
    }
    {
        CAIRN_HOLD(&up->queue->lock);
        depth = up->queue->locked.depth;
    }
    use.slab_held_bytes =
        tell_in_steps(&watch->told.slab_held_bytes, held_bytes, use.slab_bytes / 4);
    use.queue_depth =
        tell_in_steps(&watch->told.queue_depth, depth, watch->told.queue_depth / 2 + 1);
    return use;
}

/* What a save of this node is answered again and again; NULL: nothing. */
static const char *server_fails(const struct cairn_up *up) {
    for (size_t i = 0; i < up->locked.save_count; i++)
        if (cairn_up_trouble_is_long_locked(up->locked.saves[i]))
            return up->locked.saves[i]->trouble.why.message;
    return NULL;
}

static json_t *uploader_of(struct cairn_up_watch *watch) {
    const struct cairn_up *up = watch->up;
    struct cairn_error broken = {0};
    struct use use = measure_use(watch);
    int64_t keys_until_ms = cairn_store_keys_until_ms(up->store);
    char keys_end_at[32] = "";
    if (keys_until_ms) cairn_time_text(keys_until_ms, false, keys_end_at);
    (void)!cairn_up_journal_trouble(up->journal, &broken);
    const char *waits = up->locked.store_waits;
    if (!cairn_utf8_valid(cairn_view_of(waits))) /* a path in it */
        waits = "see store.not_ready in the log of this uploader";
    return CAIRN_PACK(node_uploader, .version = CAIRN_UP_VERSION, .pid = (uint64_t)getpid(),
                      .uuid = up->uuid, .store_waits = waits, .journal = broken.message,
                      .server_fails = server_fails(up),
                      .peer = up->peers ? cairn_up_port_address(up->peers->port) : NULL,
                      .draining = up->locked.draining,
                      .kept_bytes = cairn_up_kept_bytes_locked(up),
                      .upload_bytes_per_s = watch->rate.told, .slab_bytes = use.slab_bytes,
                      .slab_held_bytes = use.slab_held_bytes, .queue_depth = use.queue_depth,
                      .keys_end_at = keys_end_at,
                      .failure_domain = up->settings.failure_domain,
                      .partner_memory_bytes = up->settings.partner_memory_bytes);
}

static bool add_attempts(struct cairn_up *up, json_t *array) {
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (!cairn_up_ended_holds_locked(up, at)) continue;
        bool asks = up->peers && cairn_up_members_name(&up->peers->members, at->text);
        CAIRN_AUTO_JSON json_t *copies = cairn_up_partner_copies_locked(up->partner, at);
        CAIRN_AUTO_JSON json_t *kept =
            up->peers ? cairn_up_kept_json_locked(up, at->run_text) : NULL;
        json_t *item = CAIRN_PACK(node_attempt, .grant = at->text, .unsent = unsent_of(up, at),
                                  .peers = asks, .copies = copies, .kept = kept);
        if (json_array_append_new(array, item)) return false;
    }
    uint64_t now_ms = cairn_mono_ms();
    if (up->peers && now_ms > CAIRN_UP_MEMBERS_KEPT_MS)
        cairn_up_members_forget(&up->peers->members, now_ms - CAIRN_UP_MEMBERS_KEPT_MS);
    return true;
}

static bool is_reported(const struct cairn_up_save *save) {
    return save->state.phase != CAIRN_UP_PHASE_OVER &&
           save->state.reported != CAIRN_UP_REPORTED_NOTHING;
}

static bool reported_before(struct cairn_up *up, size_t index) {
    for (size_t i = 0; i < index; i++) {
        const struct cairn_up_save *at = up->locked.saves[i];
        if (is_reported(at) && !strcmp(at->place.id.text, up->locked.saves[index]->place.id.text))
            return true;
    }
    return false;
}

/* The newest of all its ranks here; the others are in the uploader's log. */
static json_t *errors_of(struct cairn_up *up, const char *version) {
    const struct cairn_up_shard_error *newest[CAIRN_UP_ERRORS_MAX] = {NULL};
    uint32_t ranks[CAIRN_UP_ERRORS_MAX] = {0};
    uint64_t now_ms = cairn_mono_ms();
    size_t count = 0;
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.phase == CAIRN_UP_PHASE_OVER || strcmp(save->place.id.text, version) != 0)
            continue;
        for (size_t k = 0; k < save->errors.count; k++) {
            const struct cairn_up_shard_error *one = &save->errors.items[k];
            size_t at = count;
            while (at && newest[at - 1]->at_ms < one->at_ms) at--;
            if (at == CAIRN_UP_ERRORS_MAX) continue;
            count += count < CAIRN_UP_ERRORS_MAX;
            memmove(&newest[at + 1], &newest[at], (count - 1 - at) * sizeof(newest[0]));
            memmove(&ranks[at + 1], &ranks[at], (count - 1 - at) * sizeof(ranks[0]));
            newest[at] = one;
            ranks[at] = save->rank;
        }
    }
    json_t *array = count ? json_array() : NULL;
    for (size_t i = 0; i < count; i++) /* one that has no JSON is left out */
        (void)json_array_append_new(
            array, CAIRN_PACK(node_error, .shard = newest[i]->shard, .part = newest[i]->part,
                              .rank = ranks[i], .error = newest[i]->text,
                              .tries = newest[i]->tries, .age_ms = now_ms - newest[i]->at_ms));
    return array;
}

static bool add_version(struct cairn_up *up, size_t index, json_t *array) {
    const char *version = up->locked.saves[index]->place.id.text;
    const struct cairn_run_name *name = &up->locked.saves[index]->attempt->grant.name;
    struct cairn_up_progress done = {0};
    uint64_t total = 0, shards = 0;
    const char *error = NULL;
    for (size_t i = index; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        if (save->state.phase == CAIRN_UP_PHASE_OVER || strcmp(save->place.id.text, version) != 0)
            continue;
        total += save->total_bytes;
        if (!error && save->store_error[0]) error = save->store_error;
        if (!error && save->trouble.tries) error = save->trouble.why.message;
        shards += save->state.shard_count;
        for (size_t k = 0; k < save->state.shard_count; k++)
            cairn_up_shard_progress(up->queue, save->shards[k], &done);
    }
    CAIRN_AUTO_JSON json_t *errors = errors_of(up, version);
    return !json_array_append_new(array,
                                  CAIRN_PACK(node_version, .version = version, .errors = errors,
                                             .project = name->project, .run = name->run,
                                             .done_bytes = done.bytes, .total_bytes = total,
                                             .shards_done = done.shards, .shards_total = shards,
                                             .parts_done = done.parts_done,
                                             .parts_total = done.parts_total, .error = error));
}

static bool add_versions(struct cairn_up *up, json_t *array) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        if (!is_reported(save) || reported_before(up, i)) continue;
        if (!add_version(up, i, array)) return false;
    }
    return true;
}

/* NULL: there were none. */
static json_t *restores_of(struct cairn_up *up) {
    struct cairn_up_restore_note notes[CAIRN_UP_RESTORES_TOLD];
    size_t count = cairn_up_restores_get(&up->restores, notes);
    json_t *array = count ? json_array() : NULL;
    for (size_t i = 0; i < count; i++) {
        const struct cairn_up_restore_note *note = &notes[i];
        struct cairn_run_name name;
        if (cairn_run_name_parse(note->run, &name, NULL)) continue;
        (void)json_array_append_new(
            array, CAIRN_PACK(node_restore, .version = note->version.text,
                              .project = name.project, .run = name.run,
                              .choice = note->choice, .store_bytes = note->store_bytes,
                              .shared_bytes = note->shared_bytes, .peer_bytes = note->peer_bytes,
                              .memory_bytes = note->memory_bytes));
    }
    return array;
}

/* Everything was told and nobody is connected: the server need not wait for this node. */
static bool nothing_left(struct cairn_up *up) {
    for (size_t i = 0; i < up->locked.save_count; i++)
        if (up->locked.saves[i]->state.phase != CAIRN_UP_PHASE_OVER) return false;
    return true;
}

static json_t *report(struct cairn_up_watch *watch, bool last) {
    struct cairn_up *up = watch->up;
    bool knows = watch->heard.known; /* of which catalog what is said here was told (Q56) */
    CAIRN_AUTO_JSON json_t *heard = knows ? CAIRN_PACK(node_heard, .catalog = watch->heard.catalog,
                                                       .generation = watch->heard.generation)
                                          : NULL;
    CAIRN_AUTO_JSON json_t *attempts = json_array(), *versions = json_array();
    CAIRN_AUTO_JSON json_t *restores = restores_of(up);
    CAIRN_HOLD(&up->lock);
    measure_rate(watch);
    CAIRN_AUTO_JSON json_t *uploader = uploader_of(watch),
                           *ended = cairn_up_ended_report_locked(up);
    if ((knows && !heard) || !add_attempts(up, attempts) || !add_versions(up, versions))
        return NULL;
    CAIRN_AUTO_JSON json_t *body = CAIRN_PACK(node_put, .uploader = uploader, .attempts = attempts,
                                              .versions = versions, .ended = ended, .heard = heard,
                                              .restores = restores);
    bool leaves = last && nothing_left(up);
    if (!body || (last && json_object_set_new(body, "leaving", json_boolean(leaves)))) return NULL;
    /* A name that a command made up for its own uploader. */
    if (leaves && up->settings.parent && json_object_set_new(body, "one_shot", json_true()))
        return NULL;
    return CAIRN_TAKE(body);
}

/* A node that has an attempt is heard, also when its token has ended. */
static enum cairn_code show_grant(struct cairn_up_watch *watch, const json_t *body,
                                  struct cairn_error *err) {
    const json_t *first = json_array_get(json_object_get(body, "attempts"), 0);
    return cairn_rest_set_grant(watch->rest, json_string_value(json_object_get(first, "grant")),
                                err);
}

/* ---- the answer ---- */

static void apply_fenced(struct cairn_up *up, const json_t *fenced) {
    for (size_t i = 0; i < json_array_size(fenced); i++) {
        struct cairn_msg_node_fenced told = {0};
        if (cairn_msg_node_fenced_read(json_array_get(fenced, i), "/fenced", &told, NULL)) continue;
        char run[2 * CAIRN_NAME_BYTES_MAX + 2];
        snprintf(run, sizeof(run), "%s/%s", told.project, told.run);
        CAIRN_HOLD(&up->lock);
        /* `attempt` is the fenced one: all up to it are stale. */
        cairn_up_outcome_fence_locked(up, run, told.attempt + 1);
    }
}

static void apply_versions(struct cairn_up *up, const json_t *versions) {
    for (size_t i = 0; i < json_array_size(versions); i++) {
        const json_t *item = json_array_get(versions, i);
        struct cairn_msg_brief told = {0};
        struct cairn_up_version_status found;
        if (cairn_msg_brief_read(item, "/versions", &told, NULL) != CAIRN_OK) continue;
        cairn_up_version_status_read(item, &found);
        CAIRN_HOLD(&up->lock);
        cairn_up_outcome_version_locked(up, told.version, &found);
    }
}

/* Q57: told again with the next answer where it cannot be begun now. */
static void apply_finish(struct cairn_up *up, const json_t *finish) {
    for (size_t i = 0; i < json_array_size(finish); i++) {
        struct cairn_msg_node_finish told = {0};
        if (cairn_msg_node_finish_read(json_array_get(finish, i), "/finish", &told, NULL)) continue;
        (void)!cairn_up_partner_finish(up->partner, told.version, told.rank, NULL);
    }
}

static void apply_unknown(struct cairn_up *up, const json_t *unknown, bool all) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        bool staged = cairn_up_save_state_is_sealed(&save->state) ||
                      cairn_up_save_state_is_failing(&save->state);
        bool named = all && (staged || !CAIRN_RULE(Q47));
        for (size_t k = 0; !named && k < json_array_size(unknown); k++) {
            const char *version = json_string_value(json_array_get(unknown, k));
            named = version && !strcmp(version, save->place.id.text);
        }
        if (named) cairn_up_save_report_again_locked(up, save);
    }
}

/* Q49: a grant that the server does not take for its own ends alone, and loudly. */
static void apply_foreign(struct cairn_up *up, const json_t *foreign, const json_t *sent) {
    for (size_t i = 0; i < json_array_size(foreign); i++) {
        struct cairn_msg_node_foreign told = {0};
        struct cairn_msg_node_attempt attempt = {0};
        struct cairn_error why = {0};
        if (cairn_msg_node_foreign_read(json_array_get(foreign, i), "/foreign", &told, NULL) ||
            cairn_msg_node_attempt_read(json_array_get(sent, told.index), "", &attempt, NULL))
            continue;
        cairn_fail(&why, cairn_code_from_slug(told.code), "the server does not take this grant: %s",
                   told.detail);
        CAIRN_HOLD(&up->lock);
        cairn_up_outcome_foreign_locked(up, attempt.grant, &why);
    }
}

static void read_kept(const json_t *kept, uint32_t member, struct cairn_up_roster *roster) {
    for (size_t i = 0; i < json_array_size(kept); i++) {
        struct cairn_msg_node_kept told = {0};
        if (cairn_msg_node_kept_read(json_array_get(kept, i), "/kept", &told, NULL)) continue;
        for (size_t k = 0; k < json_array_size(told.ranks); k++)
            cairn_up_roster_keep(roster, member, told.version,
                                 json_integer_value(json_array_get(told.ranks, k)));
    }
}

static size_t read_members(const struct cairn_up *up, const json_t *nodes,
                           struct cairn_up_roster *roster) {
    struct cairn_up_member *ret = roster->members;
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(nodes) && count < CAIRN_UP_MEMBERS_MAX; i++) {
        struct cairn_msg_node_peer told = {0};
        if (cairn_msg_node_peer_read(json_array_get(nodes, i), "/peers", &told, NULL)) continue;
        if (!strcmp(told.node, up->places.node)) continue;
        (void)cairn_text_copy(ret[count].node, sizeof(ret[count].node), told.node);
        (void)cairn_text_copy(ret[count].address, sizeof(ret[count].address), told.address);
        read_kept(told.kept, (uint32_t)count, roster);
        count++;
    }
    return count;
}

/* Once an attempt, as a rule. */
static void log_list(const char *grant_text, const struct cairn_up_roster *list) {
    struct cairn_grant grant = {0};
    if (cairn_grant_parse(grant_text, &grant, NULL)) return;
    cairn_log(INFO, "peers.listed", "run=%s/%s attempt=%" PRIu64 " others=%zu kept=%zu",
              grant.name.project, grant.name.run, grant.attempt, list->count, list->keeper_count);
}

static void apply_peers(struct cairn_up *up, const json_t *peers, const json_t *sent) {
    for (size_t i = 0; up->peers && i < json_array_size(peers); i++) {
        struct cairn_msg_node_peers told = {0};
        struct cairn_msg_node_attempt attempt = {0};
        if (cairn_msg_node_peers_read(json_array_get(peers, i), "/peers", &told, NULL) ||
            cairn_msg_node_attempt_read(json_array_get(sent, told.index), "", &attempt, NULL))
            continue;
        struct cairn_up_roster list = {
            .members = calloc(json_array_size(told.nodes) + 1, sizeof(*list.members)),
            .complete = told.complete};
        if (!list.members) continue; /* the next heartbeat asks again */
        (void)cairn_text_copy(list.partner, sizeof(list.partner), told.partner ? told.partner : "");
        list.count = read_members(up, told.nodes, &list);
        if (list.complete) log_list(attempt.grant, &list);
        cairn_up_members_hear(&up->peers->members, attempt.grant, &list);
        cairn_up_partner_listed(up, attempt.grant);
    }
}

/* Was anything told by this process yet? The outbox waits for the first heartbeat's end. */
static bool has_reported(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++)
        if (up->locked.saves[i]->state.reported != CAIRN_UP_REPORTED_NOTHING) return true;
    return false;
}

static void note_beaten(struct cairn_up *up) {
    bool first = false;
    {
        CAIRN_HOLD(&up->lock);
        first = !up->locked.beaten;
        up->locked.beaten = true;
    }
    if (first) cairn_up_wakeup_raise(&up->outbox_work);
}

/* True when the catalog is not the one that was told before, or may not be it: what was told before
 * any answer was heard may have been told to the life of the server before, and a backup of its
 * catalog put back since (Q19). */
static bool catalog_changed(struct cairn_up_watch *watch, const struct cairn_msg_node_told *told) {
    bool unknown = !watch->heard.known && has_reported(watch->up);
    bool changed = watch->heard.known && (strcmp(told->catalog, watch->heard.catalog) != 0 ||
                                          told->generation != watch->heard.generation);
    watch->heard.known = true;
    watch->heard.generation = told->generation;
    (void)cairn_text_copy(watch->heard.catalog, sizeof(watch->heard.catalog), told->catalog);
    if (changed)
        cairn_log(WARN, "heartbeat.catalog_changed", "catalog=%s generation=%" PRIu64,
                  told->catalog, told->generation);
    return changed || unknown;
}

void cairn_up_heartbeat(struct cairn_up_watch *watch, bool last) {
    struct cairn_up *up = watch->up;
    struct cairn_error error = {0};
    struct cairn_msg_node_told told = {0};
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO_JSON json_t *body = report(watch, last);
    CAIRN_AUTO(buf) path = {0};
    enum cairn_code code = cairn_buf_printf(&path, &error, "/v1/nodes/%s", up->places.node);
    if (code == CAIRN_OK && !body)
        code = cairn_fail(&error, CAIRN_NO_MEMORY, "no memory for a heartbeat");
    if (code == CAIRN_OK) code = show_grant(watch, body, &error);
    if (code == CAIRN_OK)
        code = cairn_rest_call(watch->rest, "PUT", path.data, body, last ? LAST_MS : 0, &reply,
                               &error);
    if (code == CAIRN_OK) code = cairn_msg_node_told_read(reply, "", &told, &error);
    if (code != CAIRN_OK) {
        if (!watch->heard.complained && cairn_up_server_fails(up, &error))
            cairn_log(WARN, "heartbeat.unanswered", "server=%s cause=\"%s\"", up->settings.server,
                      error.message);
        watch->heard.complained = true;
        note_beaten(up);
        return;
    }
    bool first = !watch->heard.known;
    watch->heard.complained = false;
    cairn_up_server_answers(up);
    bool changed = catalog_changed(watch, &told);
    cairn_up_ended_taken(up, json_object_get(body, "ended"), told.ended);
    if (changed || first) cairn_up_ended_again(up);
    apply_foreign(up, told.foreign, json_object_get(body, "attempts"));
    apply_fenced(up, told.fenced);
    apply_peers(up, told.peers, json_object_get(body, "attempts"));
    apply_versions(up, told.versions);
    apply_finish(up, told.finish);
    apply_unknown(up, told.unknown, changed);
    cairn_up_abandoned_look(up, told.versions, &watch->missed);
    note_beaten(up);
    cairn_up_wakeup_raise(&up->outbox_work);
}
