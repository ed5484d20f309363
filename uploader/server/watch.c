/* SPDX-License-Identifier: Apache-2.0 */
/* The heartbeat: one PUT of this node's state, and its answer; the watchers, which poll the ends of
 * versions; and saves that a rank of this node has abandoned. */
#include "uploader/server/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/documents/digest.h"
#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/text.h"
#include "common/trace.h"
#include "uploader/journal/journal.h"
#include "uploader/partner/partner.h"
#include "uploader/port/port.h"
#include "uploader/send/shards.h"
#include "uploader/server/calls.h"
#include "uploader/server/outbox.h"

#define CAIRN_UP_MISSED_MAX 256

/* Versions that the last answer called open, without a save of this node. */
struct cairn_up_missed {
    struct {
        char version[CAIRN_VERSION_ID_BYTES];
        uint32_t rank;
    } at[CAIRN_UP_MISSED_MAX];
    size_t count;
};

#define CAIRN_UP_HURRY_MS 100

struct cairn_up_watcher {
    struct cairn_up_watch *watch;
    struct cairn_up_thread thread;
    struct cairn_rest *rest;
    char version[CAIRN_VERSION_ID_BYTES]; /* "": none */
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    char grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_trace trace;
    bool is_new;  /* the watcher's first poll of this version */
    bool decides; /* a save of it awaits the seal of rank 0 */
};
struct cairn_up_watch {
    struct cairn_up *up;
    struct cairn_rest *rest; /* the heartbeat's */
    struct cairn_up_thread thread;
    struct cairn_up_watcher watchers[CAIRN_UP_WATCHERS];
    struct {
        bool known;
        char catalog[CAIRN_UUID_TEXT_BYTES];
        uint64_t generation;
        bool complained;
    } heard;               /* the heartbeat's thread */
    struct cairn_up_rate { /* this node's upload rate; the heartbeat's thread */
        struct cairn_up_sent measured;
        uint64_t per_second, told;
    } rate;
    struct { /* last reported slabs and queue; the heartbeat's thread */
        uint64_t slab_held_bytes, queue_depth;
    } told;
    struct cairn_up_missed missed; /* the heartbeat's thread */
    struct cairn_late_bell bell;
    struct cairn_lock lock; /* uploader_watch */
    struct cairn_condition stop;
    struct {
        bool stopping, beat_now;
        uint32_t hurrying;
        uint64_t pokes;
    } locked;
};

#define LAST_MS 2000 /* a stopping uploader waits no longer for the last heartbeat */

#define RATE_BYTES CAIRN_MIB /* fewer tell how long a store takes to answer, not a rate */

/* Measures while requests with bytes of shards are in flight, so that a save that ends before the
 * next heartbeat counts, too. Reports changes of a tenth, as each costs a write. */
static void measure_rate(struct cairn_up_watch *watch) {
    struct cairn_up_rate *rate = &watch->rate;
    struct cairn_up_sent all = cairn_up_queue_sent(watch->up->queue);
    uint64_t us = all.us - rate->measured.us, bytes = all.bytes - rate->measured.bytes;
    if (bytes < RATE_BYTES && all.sending) return; /* counts with what the next one finds */
    rate->measured = all;
    if (bytes < RATE_BYTES) return;
    uint64_t sample = bytes * 1000 / cairn_max_u64(1, us / 1000);
    rate->per_second = rate->per_second ? (3 * rate->per_second + sample) / 4 : sample;
    uint64_t apart = rate->per_second > rate->told ? rate->per_second - rate->told
                                                   : rate->told - rate->per_second;
    if (apart > rate->told / 10) rate->told = rate->per_second;
}

/* Reports in steps, as each costs the server a write: to and from 0, else at least `step`. */
static uint64_t tell_in_steps(uint64_t *told, uint64_t now, uint64_t step) {
    uint64_t apart = now > *told ? now - *told : *told - now;
    if (apart >= cairn_max_u64(step, 1) || !now != !*told) *told = now;
    return *told;
}

struct use {
    uint64_t slab_bytes, slab_held_bytes, queue_depth;
};

/* Reports slabs in steps of a quarter of all, the queue in steps of half its last value. */
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

/* The message of a save in long trouble; NULL: none. */
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
    if (!cairn_utf8_valid(cairn_view_of(waits))) /* it may contain a path */
        waits = "see store.not_ready in the log of this uploader";
    return CAIRN_PACK(node_uploader, .version = CAIRN_UP_VERSION, .pid = (uint64_t)getpid(),
                      .uuid = up->uuid, .store_waits = waits, .journal = broken.message,
                      .server_fails = server_fails(up),
                      .peer = up->peers ? cairn_up_port_address(up->peers->port) : NULL,
                      .draining = up->locked.draining, .kept_bytes = cairn_up_kept_bytes_locked(up),
                      .upload_bytes_per_s = watch->rate.told, .slab_bytes = use.slab_bytes,
                      .slab_held_bytes = use.slab_held_bytes, .queue_depth = use.queue_depth,
                      .keys_end_at = keys_end_at, .failure_domain = up->settings.failure_domain,
                      .partner_memory_bytes = up->settings.partner_memory_bytes);
}

static bool add_attempts(struct cairn_up *up, json_t *array) {
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (!cairn_up_ended_holds_locked(up, at)) continue;
        bool asks = up->peers && cairn_up_members_name(&up->peers->members, at->text);
        CAIRN_AUTO_JSON json_t *copies = cairn_up_partner_copies_locked(up->partner, at);
        CAIRN_AUTO_JSON json_t *kept =
            up->peers ? cairn_up_kept_json_locked(up, at->run_text) : NULL;
        uint64_t count = 0;
        for (size_t i = 0; i < up->locked.save_count; i++) {
            const struct cairn_up_save *save = up->locked.saves[i];
            if (save->attempt == at && cairn_up_save_state_is_unsent(&save->state)) count++;
        }
        json_t *item = CAIRN_PACK(node_attempt, .grant = at->text, .unsent = count, .peers = asks,
                                  .copies = copies, .kept = kept);
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

/* The newest store errors of all its ranks on this node; the log has older ones. */
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
    for (size_t i = 0; i < count; i++) /* omits errors that cannot be encoded */
        (void)json_array_append_new(
            array, CAIRN_PACK(node_error, .shard = newest[i]->shard, .part = newest[i]->part,
                              .rank = ranks[i], .error = newest[i]->text, .tries = newest[i]->tries,
                              .age_ms = now_ms - newest[i]->at_ms));
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
    return !json_array_append_new(
        array,
        CAIRN_PACK(node_version, .version = version, .errors = errors, .project = name->project,
                   .run = name->run, .done_bytes = done.bytes, .total_bytes = total,
                   .shards_done = done.shards, .shards_total = shards,
                   .parts_done = done.parts_done, .parts_total = done.parts_total, .error = error));
}

static bool add_versions(struct cairn_up *up, json_t *array) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        if (!is_reported(save) || reported_before(up, i)) continue;
        if (!add_version(up, i, array)) return false;
    }
    return true;
}

static json_t *restores_of(struct cairn_up *up) {
    struct cairn_up_restore_note notes[CAIRN_UP_RESTORES_TOLD];
    size_t count = cairn_up_restores_get(&up->restores, notes);
    json_t *array = count ? json_array() : NULL;
    for (size_t i = 0; i < count; i++) {
        const struct cairn_up_restore_note *note = &notes[i];
        struct cairn_run_name name;
        if (cairn_run_name_parse(note->run, &name, NULL)) continue;
        (void)json_array_append_new(
            array, CAIRN_PACK(node_restore, .version = note->version.text, .project = name.project,
                              .run = name.run, .choice = note->choice,
                              .store_bytes = note->store_bytes, .shared_bytes = note->shared_bytes,
                              .peer_bytes = note->peer_bytes, .memory_bytes = note->memory_bytes));
    }
    return array;
}

/* True when no save is open, so that the server need not wait for this node. */
static bool nothing_left(struct cairn_up *up) {
    for (size_t i = 0; i < up->locked.save_count; i++)
        if (up->locked.saves[i]->state.phase != CAIRN_UP_PHASE_OVER) return false;
    return true;
}

static json_t *heartbeat_body(struct cairn_up_watch *watch, bool last) {
    struct cairn_up *up = watch->up;
    bool knows = watch->heard.known; /* the catalog that this state was reported to (Q56) */
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
    CAIRN_AUTO_JSON json_t *body =
        CAIRN_PACK(node_put, .uploader = uploader, .attempts = attempts, .versions = versions,
                   .ended = ended, .heard = heard, .restores = restores);
    bool leaves = last && nothing_left(up);
    if (!body || (last && json_object_set_new(body, "leaving", json_boolean(leaves)))) return NULL;
    /* The name of a command's own uploader. */
    if (leaves && up->settings.parent && json_object_set_new(body, "one_shot", json_true()))
        return NULL;
    return CAIRN_TAKE(body);
}

/* Presents a grant, so that the server accepts the report when the token has expired. */
static enum cairn_code show_grant(struct cairn_up_watch *watch, const json_t *body,
                                  struct cairn_error *err) {
    const json_t *first = json_array_get(json_object_get(body, "attempts"), 0);
    return cairn_rest_set_grant(watch->rest, json_string_value(json_object_get(first, "grant")),
                                err);
}

static bool is_version_of(const struct cairn_up_attempt *attempt,
                          const struct cairn_msg_brief *open) {
    struct cairn_version_id id;
    cairn_up_attempt_version(attempt, open->step, open->n, &id);
    return !strcmp(id.text, open->version);
}

static bool was_missed(const struct cairn_up_missed *missed, const struct cairn_msg_brief *open,
                       uint32_t rank) {
    for (size_t i = 0; i < missed->count; i++)
        if (missed->at[i].rank == rank && !strcmp(missed->at[i].version, open->version))
            return true;
    return false;
}

static void note_missed(struct cairn_up_missed *missed, const struct cairn_msg_brief *open,
                        uint32_t rank) {
    if (missed->count == CAIRN_COUNT(missed->at)) return;
    if (!cairn_text_copy(missed->at[missed->count].version,
                         sizeof(missed->at[missed->count].version), open->version))
        return;
    missed->at[missed->count++].rank = rank;
}

void cairn_up_abandoned_unreported(uint64_t step, uint32_t n, const struct cairn_error *why) {
    cairn_log(WARN, "session.abandoned", "step=%" PRIu64 " n=%u cause=\"%s\"", step, n,
              why->message);
}

static void fail_missed(struct cairn_up *up, struct cairn_up_attempt *attempt,
                        const struct cairn_up_counted *counted,
                        const struct cairn_msg_brief *open) {
    const struct cairn_up_begin begin = {.attempt = attempt,
                                         .rank = counted->rank,
                                         .world_size = counted->world_size,
                                         .told = {.step = open->step, .n = open->n}};
    struct cairn_error why = {0}, error = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "the rank went on without this save");
    cairn_log(WARN, "save.missed", "run=%s step=%" PRIu64 " n=%u rank=%u version=%s",
              attempt->run_text, open->step, open->n, counted->rank, open->version);
    if (cairn_up_save_abandoned_locked(up, &begin, &why, &error) != CAIRN_OK)
        cairn_up_abandoned_unreported(open->step, open->n, &error);
}

static void fail_abandoned(struct cairn_up *up, const struct cairn_msg_brief *open,
                           const struct cairn_up_missed *before, struct cairn_up_missed *now) {
    struct cairn_up_attempt *attempt = up->locked.attempts;
    while (attempt && (!attempt->counted || !is_version_of(attempt, open))) attempt = attempt->next;
    if (!attempt || attempt->stale || attempt->foreign.code != CAIRN_OK) return;
    for (const struct cairn_up_counted *at = attempt->counted; at; at = at->next) {
        if (cairn_up_counted_of(at, open->step) < open->n) continue;
        if (cairn_up_save_known_locked(up, open->version, at->rank)) continue;
        if (was_missed(before, open, at->rank))
            fail_missed(up, attempt, at, open);
        else
            note_missed(now, open, at->rank);
    }
}

/* versions: from the answer; NULL is allowed. */
static void abandoned_look(struct cairn_up *up, const json_t *versions,
                           struct cairn_up_missed *missed) {
    struct cairn_up_missed now = {.count = 0};
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; CAIRN_RULE(Q12) && i < json_array_size(versions); i++) {
        struct cairn_msg_brief open = {0};
        if (cairn_msg_brief_read(json_array_get(versions, i), "/versions", &open, NULL) ||
            strcmp(open.state, "open") != 0 || !open.n)
            continue;
        fail_abandoned(up, &open, missed, &now);
    }
    *missed = now;
}

/* ---- the answer ---- */

static void apply_fenced(struct cairn_up *up, const json_t *fenced) {
    for (size_t i = 0; i < json_array_size(fenced); i++) {
        struct cairn_msg_node_fenced told = {0};
        if (cairn_msg_node_fenced_read(json_array_get(fenced, i), "/fenced", &told, NULL)) continue;
        char run[2 * CAIRN_NAME_BYTES_MAX + 2];
        snprintf(run, sizeof(run), "%s/%s", told.project, told.run);
        CAIRN_HOLD(&up->lock);
        /* `attempt` is the fenced attempt: all up to it are stale. */
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

/* Q57: after a failure the server's next answer repeats the order. */
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

/* Q49: a grant that the server disowns ends alone, with an ERROR. */
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

/* Logged once an attempt, as a rule. */
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
        if (!list.members) continue; /* the next heartbeat requests it again */
        (void)cairn_text_copy(list.partner, sizeof(list.partner), told.partner ? told.partner : "");
        list.count = read_members(up, told.nodes, &list);
        if (list.complete) log_list(attempt.grant, &list);
        cairn_up_members_hear(&up->peers->members, attempt.grant, &list);
        cairn_up_partner_listed(up, attempt.grant);
    }
}

/* True when this process has reported anything; the outbox waits for the first heartbeat's end. */
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

/* True when the catalog is not the one reported to, or may not be: an earlier server may have got
 * the reports, before its catalog was restored from a backup (Q19). */
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

/* last: the uploader stops; the heartbeat says whether reports remain. */
static void beat(struct cairn_up_watch *watch, bool last) {
    struct cairn_up *up = watch->up;
    struct cairn_error error = {0};
    struct cairn_msg_node_told told = {0};
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO_JSON json_t *body = heartbeat_body(watch, last);
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
    abandoned_look(up, told.versions, &watch->missed);
    note_beaten(up);
    cairn_up_wakeup_raise(&up->outbox_work);
}

#define IDLE_MS 1000       /* watchers poll without a poke, too */
#define OWN_WAIT_MS 2000   /* of a poll when each version has a watcher */
#define SHARED_WAIT_MS 100 /* when versions take turns */
#define FAILED_PAUSE_MS 500
#define CALL_TIMEOUT_MS 10000

/* Watchers share the list of waiting versions; each takes the one polled longest ago. */

static bool is_watched(const struct cairn_up_watch *watch, const char *version) {
    for (size_t i = 0; i < CAIRN_UP_WATCHERS; i++) {
        if (!strcmp(watch->watchers[i].version, version)) return true;
    }
    return false;
}

/* True for saves whose version a watcher polls. */
static bool is_due(const struct cairn_up_save *save) {
    if (save->held) return false;
    return cairn_up_save_state_awaits_end(&save->state) || cairn_up_save_awaits_decision(save);
}

static size_t choose_version(struct cairn_up_watch *watch, struct cairn_up_watcher *watcher) {
    struct cairn_up *up = watch->up;
    CAIRN_HOLD(&up->lock);
    size_t waiting = 0;
    struct cairn_up_save *chosen = NULL;
    watcher->version[0] = '\0';
    watcher->is_new = watcher->decides = false;
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!is_due(save)) continue;
        waiting++;
        if (is_watched(watch, save->place.id.text)) continue;
        if (!chosen || save->polled_ms < chosen->polled_ms) chosen = save;
    }
    if (!chosen) return waiting;
    /* Not new after a short pause between two polls. */
    watcher->is_new = true;
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (strcmp(save->place.id.text, chosen->place.id.text) != 0) continue;
        watcher->is_new &= !save->polled_ms;
        watcher->decides |= cairn_up_save_awaits_decision(save);
        save->polled_ms = cairn_mono_ms();
    }
    (void)cairn_text_copy(watcher->version, sizeof(watcher->version), chosen->place.id.text);
    (void)cairn_text_copy(watcher->run_text, sizeof(watcher->run_text), chosen->attempt->run_text);
    (void)cairn_text_copy(watcher->grant, sizeof(watcher->grant), chosen->attempt->text);
    cairn_up_save_trace(chosen, &watcher->trace);
    return waiting;
}

static void forget_choice(struct cairn_up_watcher *watcher) {
    CAIRN_HOLD(&watcher->watch->up->lock);
    watcher->version[0] = '\0';
}

static void unknown_version(struct cairn_up *up, const char *version) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!strcmp(save->place.id.text, version)) cairn_up_save_report_again_locked(up, save);
    }
    cairn_up_outcome_forgotten_locked(up, version, NULL);
}

static enum cairn_code poll_version(struct cairn_up_watcher *watcher, uint64_t wait_ms,
                                    struct cairn_error *err) {
    struct cairn_up *up = watcher->watch->up;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_buf_printf(&path, err, "/v1/runs/%s/checkpoints/%s?for=%s", watcher->run_text,
                               watcher->version, watcher->decides ? "decided" : "committed"));
    CAIRN_TRY(cairn_rest_set_grant(watcher->rest, watcher->grant, err));
    cairn_trace_set(&watcher->trace);
    enum cairn_code code =
        cairn_rest_wait(watcher->rest, path.data, (uint32_t)wait_ms, &reply, err);
    cairn_trace_set(NULL);
    code = cairn_up_heard(watcher->rest, code, err);
    if (code == CAIRN_OK) {
        struct cairn_up_version_status found;
        cairn_up_version_status_read(reply, &found);
        bool decided = watcher->decides && cairn_up_version_decided(reply);
        CAIRN_HOLD(&up->lock);
        cairn_up_outcome_version_locked(up, watcher->version, &found);
        if (decided) cairn_up_outcome_decided_locked(up, watcher->version);
        cairn_up_outcome_forgotten_locked(up, watcher->version, &found);
        return CAIRN_OK;
    }
    enum cairn_up_refusal refusal = cairn_up_refusal_of(code, err->http_status, false);
    if (refusal == CAIRN_UP_UNKNOWN) {
        unknown_version(up, watcher->version);
        return CAIRN_OK;
    }
    if (refusal != CAIRN_UP_ENDED) return code;
    /* Only committed versions can be deleted. */
    struct cairn_up_version_status found = {
        .state = code == CAIRN_DELETED ? "deleting" : "aborting", .why = *err};
    CAIRN_HOLD(&up->lock);
    cairn_up_outcome_version_locked(up, watcher->version, &found);
    return CAIRN_OK;
}

/* Waits until time is up or a poke since *pokes; false: stop. */
static bool pause_watch(struct cairn_up_watch *watch, uint64_t ms, bool backing_off,
                        uint64_t *pokes) {
    CAIRN_HOLD(&watch->lock);
    uint64_t until_ms = cairn_mono_ms() + ms;
    while (ms && !watch->locked.stopping && (backing_off || watch->locked.pokes == *pokes)) {
        if (!cairn_condition_wait(&watch->stop, &watch->lock, until_ms)) break;
    }
    *pokes = watch->locked.pokes;
    return !watch->locked.stopping;
}

void cairn_up_watch_poke(struct cairn_up_watch *watch) {
    if (!watch) return;
    CAIRN_HOLD(&watch->lock);
    watch->locked.pokes++;
    cairn_late_ring(&watch->bell);
    cairn_condition_broadcast(&watch->stop);
}

static void *watcher_main(void *argument) {
    struct cairn_up_watcher *watcher = argument;
    struct cairn_late late = {0};
    uint64_t pause_ms = 0, pokes = 0, from_ms = cairn_mono_ms();
    bool failed = false;
    while (pause_watch(watcher->watch, pause_ms, failed, &pokes)) {
        uint64_t now_ms = cairn_mono_ms();
        late.timed_out = pause_ms == IDLE_MS && now_ms >= from_ms + IDLE_MS;
        if (cairn_late_before(&late, &watcher->watch->bell, now_ms))
            cairn_up_metrics_late(watcher->watch->up->metrics, CAIRN_UP_WAIT_WATCHERS);
        size_t waiting = choose_version(watcher->watch, watcher);
        cairn_late_after(&late, &watcher->watch->bell, watcher->is_new, now_ms);
        from_ms = now_ms;
        pause_ms = IDLE_MS;
        failed = false;
        if (!watcher->version[0]) continue;
        struct cairn_error error = {0};
        bool own = waiting <= CAIRN_UP_WATCHERS; /* each version has a watcher */
        failed = poll_version(watcher, own ? OWN_WAIT_MS : SHARED_WAIT_MS, &error) != CAIRN_OK;
        pause_ms = failed ? FAILED_PAUSE_MS : 0; /* the outbox reports an unreachable server */
        forget_choice(watcher);
    }
    return NULL;
}

/* Waits until the next heartbeat is due; false: stop. */
static bool wait_beat(struct cairn_up_watch *watch, uint64_t last_ms) {
    CAIRN_HOLD(&watch->lock);
    while (!watch->locked.stopping) {
        uint64_t period_ms =
            watch->locked.hurrying ? CAIRN_UP_HURRY_MS : watch->up->settings.heartbeat_ms;
        if (watch->locked.beat_now || cairn_mono_ms() >= last_ms + period_ms) break;
        (void)cairn_condition_wait(&watch->stop, &watch->lock, last_ms + period_ms);
    }
    watch->locked.beat_now = false;
    return !watch->locked.stopping;
}

void cairn_up_watch_beat(struct cairn_up_watch *watch) {
    if (!watch) return;
    CAIRN_HOLD(&watch->lock);
    watch->locked.beat_now = true;
    cairn_condition_broadcast(&watch->stop);
}

static void *heart_main(void *argument) {
    struct cairn_up_watch *watch = argument;
    uint64_t last_ms = 0;
    pthread_setname_np(pthread_self(), "heart"); /* for top, and for tests that count its turns */
    while (wait_beat(watch, last_ms)) {
        last_ms = cairn_mono_ms();
        beat(watch, false);
    }
    beat(watch, true); /* reports what remains */
    return NULL;
}

void cairn_up_watch_hurry(struct cairn_up_watch *watch, bool begins) {
    CAIRN_HOLD(&watch->lock);
    if (begins)
        watch->locked.hurrying++;
    else
        watch->locked.hurrying--;
    cairn_condition_broadcast(&watch->stop);
}

enum cairn_code cairn_up_watch_new(struct cairn_up *up, struct cairn_up_watch **ret,
                                   struct cairn_error *err) {
    struct cairn_up_watch *watch = calloc(1, sizeof(*watch));
    if (!watch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the watchers");
    watch->up = up;
    cairn_lock_init(&watch->lock, CAIRN_LOCK_uploader_watch);
    cairn_condition_init(&watch->stop);
    enum cairn_code code = cairn_up_rest_new(up, CALL_TIMEOUT_MS, &watch->rest, err);
    for (size_t i = 0; code == CAIRN_OK && i < CAIRN_UP_WATCHERS; i++) {
        watch->watchers[i].watch = watch;
        code = cairn_up_rest_new(up, CALL_TIMEOUT_MS, &watch->watchers[i].rest, err);
    }
    if (code != CAIRN_OK) {
        cairn_up_watch_free(watch);
        return code;
    }
    *ret = watch;
    return CAIRN_OK;
}

enum cairn_code cairn_up_watch_start(struct cairn_up_watch *watch, struct cairn_error *err) {
    CAIRN_TRY(cairn_up_thread_start(&watch->thread, heart_main, watch, "the heartbeat", err));
    for (size_t i = 0; i < CAIRN_UP_WATCHERS; i++) {
        struct cairn_up_watcher *watcher = &watch->watchers[i];
        CAIRN_TRY(cairn_up_thread_start(&watcher->thread, watcher_main, watcher, "a watcher", err));
    }
    return CAIRN_OK;
}

void cairn_up_watch_stop(struct cairn_up_watch *watch) {
    if (!watch) return;
    cairn_lock_take(&watch->lock);
    watch->locked.stopping = true;
    cairn_condition_broadcast(&watch->stop);
    cairn_lock_give(&watch->lock);
    cairn_up_thread_join(&watch->thread);
    for (size_t i = 0; i < CAIRN_UP_WATCHERS; i++) cairn_up_thread_join(&watch->watchers[i].thread);
}

void cairn_up_watch_free(struct cairn_up_watch *watch) {
    if (!watch) return;
    cairn_up_watch_stop(watch);
    for (size_t i = 0; i < CAIRN_UP_WATCHERS; i++) {
        if (watch->watchers[i].rest) cairn_rest_free(watch->watchers[i].rest);
    }
    if (watch->rest) cairn_rest_free(watch->rest);
    cairn_condition_release(&watch->stop);
    cairn_lock_release(&watch->lock);
    free(watch);
}
