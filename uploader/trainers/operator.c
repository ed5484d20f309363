/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator asks over the socket: how this uploader stands, and that it drains. */
#include <inttypes.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/trainers/inside.h"
#include "uploader/trainers/socket.h"

#define SAVES_NAMED_MAX 64
#define SILENCE_MS 10000 /* longer than a part takes on a link that is worth waiting for */
#define SILENCE "requests are under way, and the store has answered none of them"

static void measure(struct cairn_up *up, const struct cairn_up_save *save,
                    struct cairn_up_progress *sum) {
    for (size_t i = 0; i < save->state.shard_count; i++)
        cairn_up_shard_progress(up->queue, save->shards[i], sum);
}

/* Its trainer has not sealed it, and is there or awaited: nothing can be finished yet. */
static bool is_staging(const struct cairn_up_save *save) {
    return save->state.phase == CAIRN_UP_PHASE_BEGINNING ||
           save->state.phase == CAIRN_UP_PHASE_OPEN || save->state.phase == CAIRN_UP_PHASE_SEALING;
}

static const char *error_of(const struct cairn_up_save *save) {
    if (save->store_error[0] && cairn_utf8_valid(cairn_view_of(save->store_error)))
        return save->store_error;
    return save->trouble.tries ? save->trouble.why.message : NULL;
}

static bool add_save(struct cairn_up *up, const struct cairn_up_save *save, json_t *saves,
                     struct cairn_up_progress *sum) {
    struct cairn_up_progress own = {0};
    measure(up, save, &own);
    sum->bytes += own.bytes;
    sum->shards += own.shards;
    sum->parts_done += own.parts_done;
    sum->parts_total += own.parts_total;
    if (json_array_size(saves) == SAVES_NAMED_MAX) return true;
    return !json_array_append_new(
        saves, CAIRN_PACK(report_save, .project = save->attempt->grant.name.project,
                          .run = save->attempt->grant.name.run, .step = save->place.step,
                          .rank = save->rank, .version = save->place.id.text,
                          .phase = cairn_up_phase_text(save->state.phase),
                          .done_bytes = own.bytes, .total_bytes = save->total_bytes,
                          .shards_done = own.shards, .shards_total = save->state.shard_count,
                          .parts_done = own.parts_done, .parts_total = own.parts_total,
                          .error = error_of(save), .copy_threads = save->copy_threads,
                          .copy_bytes_per_s = save->copy_rate));
}

struct sums {
    struct cairn_up_progress done;
    uint64_t staging, unfinished, open, bytes_total, shards_total, slab_count, slab_bytes,
        slab_held_bytes;
};

static bool sum_saves(struct cairn_up *up, struct sums *sums, json_t *saves) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        sums->staging += is_staging(save);
        sums->unfinished += cairn_up_save_state_is_unfinished(&save->state);
        sums->open++;
        if (save->state.phase == CAIRN_UP_PHASE_OVER) continue;
        sums->bytes_total += save->total_bytes;
        sums->shards_total += save->state.shard_count;
        if (!add_save(up, save, saves, &sums->done)) return false;
    }
    for (const struct cairn_up_slab *slab = up->locked.slabs; slab; slab = slab->next) {
        sums->slab_count++;
        sums->slab_bytes += slab->bytes;
        if (slab->state.owner) sums->slab_held_bytes += slab->bytes;
    }
    return true;
}

static const char *plain(const char *text) {
    return cairn_utf8_valid(cairn_view_of(text)) ? text : "see this uploader's log";
}

/* A request is repeated for minutes before it fails, so a store that is cut off says nothing of
 * itself: silence does. */
static uint64_t silence_ms(struct cairn_up *up, uint64_t now_ms) {
    uint64_t answered_ms = atomic_load_explicit(&up->answered_ms, memory_order_relaxed);
    uint64_t silent_ms = answered_ms ? cairn_passed_ms(now_ms, answered_ms) : 0;
    return silent_ms >= SILENCE_MS ? silent_ms : 0;
}

/* The frame's text is made while the lock is held: it holds texts that live under it. */
static json_t *report(struct cairn_up *up) {
    struct cairn_error broken = {0};
    struct sums sums = {0};
    uint64_t now_ms = cairn_mono_ms(), sessions = cairn_up_socket_sessions(up->socket);
    uint64_t free_bytes = cairn_budget_free_bytes(&up->budget);
    CAIRN_AUTO_JSON json_t *saves = json_array();
    (void)!cairn_up_journal_trouble(up->journal, &broken);
    CAIRN_HOLD(&up->lock);
    if (!saves || !sum_saves(up, &sums, saves)) return NULL;
    bool waits = up->locked.store_waits[0], away = up->locked.server_away[0];
    uint64_t silent_ms = silence_ms(up, now_ms);
    return CAIRN_PACK(
        report, .node = up->places.node, .uploader = CAIRN_UP_VERSION, .pid = (uint64_t)getpid(),
        .server = up->settings.server, .store = cairn_store_url(up->store),
        .draining = up->locked.draining, .sessions = sessions, .staging = sums.staging,
        .unfinished = sums.unfinished, .open = sums.open, .done_bytes = sums.done.bytes,
        .total_bytes = sums.bytes_total, .shards_done = sums.done.shards,
        .shards_total = sums.shards_total, .parts_done = sums.done.parts_done,
        .parts_total = sums.done.parts_total,
        .sent_bytes = atomic_load_explicit(&up->sent_bytes, memory_order_relaxed),
        .budget_bytes = up->budget.total_bytes, .budget_free_bytes = free_bytes,
        .slabs = sums.slab_count, .slab_bytes = sums.slab_bytes,
        .slab_held_bytes = sums.slab_held_bytes, .saves = saves,
        .store_waits = !waits && silent_ms ? SILENCE : plain(up->locked.store_waits),
        .store_waits_ms =
            waits ? cairn_passed_ms(now_ms, up->locked.store_waits_since_ms) : silent_ms,
        .server_away = plain(up->locked.server_away),
        .server_away_ms = away ? cairn_passed_ms(now_ms, up->locked.server_away_since_ms) : 0,
        .journal = plain(broken.message));
}

static enum cairn_code answer(struct cairn_up_session *session,
                              const struct cairn_up_request *request, struct cairn_error *err) {
    json_t *message = report(session->up);
    if (!message) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a report");
    cairn_up_mail_answer(session->up->mail, session->conn, request->id, message);
    return CAIRN_OK;
}

enum cairn_code cairn_up_on_status(struct cairn_up_session *session,
                                   const struct cairn_up_request *request,
                                   struct cairn_error *err) {
    return answer(session, request, err);
}

/* A trainer may save here, and not keep others from it. */
enum cairn_code cairn_up_on_drain(struct cairn_up_session *session,
                                  const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_up *up = session->up;
    bool first = false;
    if (session->uid != 0 && session->uid != geteuid())
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "user %u may not drain it: root may, and the uploader's own user",
                          (unsigned)session->uid);
    {
        CAIRN_HOLD(&up->lock);
        first = !up->locked.draining;
        up->locked.draining = true;
        cairn_condition_broadcast(&up->changed);
    }
    if (first)
        cairn_log(INFO, "uploader.drain_asked", "uid=%u pid=%d", (unsigned)session->uid,
                  (int)session->pid);
    return answer(session, request, err);
}
