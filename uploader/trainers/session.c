/* SPDX-License-Identifier: Apache-2.0 */
/* A session: finds the handler of each frame; reports problems to its rank; status and drain. */
#include "uploader/trainers/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/saves/save.h"
#include "uploader/server/outbox.h"
#include "uploader/server/watch.h"
#include "uploader/trainers/inside.h"
#include "uploader/trainers/socket.h"

#define SAVES_NAMED_MAX 64
#define SILENCE_MS 10000 /* longer than a part takes on any useful link */
#define SILENCE "requests are under way, and the store has answered none of them"

/* True when its trainer, present or awaited, has not sealed it: it cannot be finished yet. */
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
    for (size_t i = 0; i < save->state.shard_count; i++)
        cairn_up_shard_progress(up->queue, save->shards[i], &own);
    sum->bytes += own.bytes;
    sum->shards += own.shards;
    sum->parts_done += own.parts_done;
    sum->parts_total += own.parts_total;
    if (json_array_size(saves) == SAVES_NAMED_MAX) return true;
    return !json_array_append_new(
        saves, CAIRN_PACK(report_save, .project = save->attempt->grant.name.project,
                          .run = save->attempt->grant.name.run, .step = save->place.step,
                          .rank = save->rank, .version = save->place.id.text,
                          .phase = cairn_up_phase_text(save->state.phase), .done_bytes = own.bytes,
                          .total_bytes = save->total_bytes, .shards_done = own.shards,
                          .shards_total = save->state.shard_count, .parts_done = own.parts_done,
                          .parts_total = own.parts_total, .error = error_of(save),
                          .copy_threads = save->copy_threads, .copy_bytes_per_s = save->copy_rate));
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

/* NULL: no memory. The lock is held. */
static json_t *slab_nodes(const struct cairn_up *up) {
    CAIRN_AUTO_JSON json_t *nodes = json_array();
    for (const struct cairn_up_slab *slab = up->locked.slabs; slab; slab = slab->next) {
        uint64_t bytes = 0;
        bool first = slab->memory.numa != 0;
        for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next) {
            if (at->memory.numa != slab->memory.numa) continue;
            if (!bytes) first = first && at == slab;
            bytes += at->bytes;
        }
        if (first && json_array_append_new(nodes, CAIRN_PACK(report_slab_node,
                                                             .numa_node = slab->memory.numa - 1,
                                                             .slab_bytes = bytes)))
            return NULL;
    }
    return CAIRN_TAKE(nodes);
}

static const char *plain(const char *text) {
    return cairn_utf8_valid(cairn_view_of(text)) ? text : "see this uploader's log";
}

/* Encodes under the lock, because the frame borrows texts guarded by it. */
static json_t *report(struct cairn_up *up) {
    struct cairn_error broken = {0};
    struct sums sums = {0};
    uint64_t now_ms = cairn_mono_ms(), sessions = cairn_up_socket_sessions(up->socket);
    uint64_t free_bytes = cairn_budget_free_bytes(&up->budget);
    CAIRN_AUTO_JSON json_t *saves = json_array();
    (void)!cairn_up_journal_trouble(up->journal, &broken);
    CAIRN_HOLD(&up->lock);
    if (!saves || !sum_saves(up, &sums, saves)) return NULL;
    CAIRN_AUTO_JSON json_t *nodes = slab_nodes(up);
    if (!nodes) return NULL;
    bool waits = up->locked.store_waits[0], away = up->locked.server_away[0];
    /* Requests are retried for minutes before they fail: an unreachable store shows by silence. */
    uint64_t answered_ms = atomic_load_explicit(&up->answered_ms, memory_order_relaxed);
    uint64_t quiet_ms = answered_ms ? cairn_passed_ms(now_ms, answered_ms) : 0;
    uint64_t silent_ms = quiet_ms >= SILENCE_MS ? quiet_ms : 0;
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
        .journal = plain(broken.message), .slab_nodes = json_array_size(nodes) ? nodes : NULL);
}

static enum cairn_code on_status(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    json_t *message = report(session->up);
    if (!message) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a report");
    cairn_up_mail_answer(session->up->mail, session->conn, request->id, message);
    return CAIRN_OK;
}

/* Drain stops the saves of all trainers: only root and the uploader's own user may. */
static enum cairn_code on_drain(struct cairn_up_session *session,
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
    return on_status(session, request, err);
}

/* ---- problems ---- */

#define VERSION_OF_PROBLEMS 3
#define VERSION_OF_PARTNERED 5
#define SILENT_MS 4000 /* a request without an answer: the server is slow or hangs */
#define AWAY_MS 2000   /* shorter absences are not reported */

/* save 0: a problem of the session, `about`. */
static void report_problem(struct cairn_up_session *session, uint32_t save, const char *about,
                           const struct cairn_error *why) {
    cairn_up_mail_post(
        session->up->mail, session->conn,
        CAIRN_PACK(problem, .save = save, .about = about, CAIRN_PACK_WHY(why, message)));
}

static void say_partnered(struct cairn_up_session *session, struct cairn_up_save *save) {
    if (session->version < VERSION_OF_PARTNERED || !save->partner.node[0] ||
        save->partner.told_conn == session->conn)
        return;
    save->partner.told_conn = session->conn;
    cairn_up_mail_post(session->up->mail, session->conn,
                       CAIRN_PACK(partnered, .save = save->number));
}

/* Q55 */
static void say_store(struct cairn_up_session *session) {
    const struct cairn_up *up = session->up;
    struct cairn_error why = {0};
    bool waits =
        up->locked.store_waits[0] && cairn_mono_ms() - up->locked.store_waits_since_ms >= AWAY_MS;
    if (waits == session->store_wait_reported || (!waits && up->locked.store_waits[0])) return;
    if (waits)
        (void)!cairn_fail(&why, CAIRN_UNAVAILABLE, "the uploader of node %s %s: %s",
                          up->places.node,
                          up->locked.store_fails ? "gets on with no save"
                                                 : "sends nothing, since its store is not there",
                          up->locked.store_waits);
    report_problem(session, 0, "store", &why);
    session->store_wait_reported = waits;
}

static void say_server(struct cairn_up_session *session) {
    const struct cairn_up *up = session->up;
    struct cairn_error why = {0};
    uint64_t asked_ms = up->locked.server_asked_ms;
    bool silent = asked_ms && cairn_mono_ms() - asked_ms >= SILENT_MS;
    bool failed = up->locked.server_away[0];
    bool away = silent || (failed && cairn_mono_ms() - up->locked.server_away_since_ms >= AWAY_MS);
    if (away == session->server_away_reported || (!away && failed)) return;
    if (away)
        (void)!cairn_fail(&why, CAIRN_UNAVAILABLE, "%s%s",
                          failed ? up->locked.server_away : up->settings.server,
                          failed ? "" : " has a request and does not answer");
    report_problem(session, 0, "server", &why);
    session->server_away_reported = away;
}

void cairn_up_session_tick(struct cairn_up_session *session) {
    struct cairn_up *up = session->up;
    if (session->version < VERSION_OF_PROBLEMS) return;
    CAIRN_HOLD(&up->lock);
    if (!session->read_only) say_store(session);
    if (!session->read_only) say_server(session);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (save->conn != session->conn) continue;
        if (cairn_up_trouble_is_long_locked(save) && !save->trouble.reported) {
            struct cairn_error why = save->trouble.why;
            why.code = CAIRN_UNAVAILABLE;
            (void)cairn_within(&why, CAIRN_UNAVAILABLE,
                               "the server has failed %u times to take it, and is asked on",
                               save->trouble.tries);
            report_problem(session, save->number, NULL, &why);
            save->trouble.reported = true;
        }
        say_partnered(session, save);
    }
}

static enum cairn_code check_hello(const struct cairn_up_session *session, uint64_t min,
                                   uint64_t max, struct cairn_error *err) {
    if (min > CAIRN_SOCKET_VERSION_MAX || max < CAIRN_SOCKET_VERSION_MIN)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "the trainer speaks socket versions %" PRIu64 " to %" PRIu64
                          ", this uploader %d to %d",
                          min, max, CAIRN_SOCKET_VERSION_MIN, CAIRN_SOCKET_VERSION_MAX);
    if (!session->world_size || session->rank >= session->world_size || !session->local_world_size)
        return cairn_fail(err, CAIRN_INVALID, "rank %u of world size %u, %u on this node",
                          session->rank, session->world_size, session->local_world_size);
    if (!session->read_only && !cairn_uuid_text_valid(cairn_view_of(session->proc)))
        return cairn_fail(err, CAIRN_INVALID, "proc is not a UUID");
    return CAIRN_OK;
}

/* A read-only session's process is not watched: no rank waits for it. */
static void watch_process(struct cairn_up_session *session, struct cairn_frame *frame) {
    struct cairn_up_process_names names = {session->process, session->pid, -1};
    session->process = -1;
    if (session->read_only) {
        if (names.peer >= 0) close(names.peer);
        return;
    }
    if (frame->fd_count) {
        names.told = frame->fds[0];
        frame->fds[0] = -1;
    }
    session->process = cairn_up_process_watch(&names);
    cairn_up_process_name(session->pid, session->process_name);
}

static enum cairn_code on_hello(struct cairn_up_session *session,
                                const struct cairn_up_request *request, struct cairn_error *err) {
    if (session->greeted) return cairn_fail(err, CAIRN_PROTOCOL, "a second hello");
    struct cairn_msg_hello told = {.world_size = 1,
                                   .local_world_size = 1,
                                   .proc = "",
                                   .numa_node = (uint32_t)CAIRN_MESSAGE_NONE};
    CAIRN_TRY(cairn_msg_hello_read(request->frame->message, "", &told, err));
    session->rank = told.rank;
    session->world_size = told.world_size;
    session->local_world_size = told.local_world_size;
    session->bytes = told.bytes;
    session->node_bytes = told.node_bytes;
    session->read_only = told.read_only;
    session->numa_node = told.numa_node == (uint32_t)CAIRN_MESSAGE_NONE ? -1 : (int)told.numa_node;
    (void)cairn_text_copy(session->proc, sizeof(session->proc), told.proc);
    (void)cairn_text_copy(session->trace, sizeof(session->trace),
                          told.traceparent ? told.traceparent : "");
    if (told.run[0] || !told.read_only) /* a session that only reads names a run in each request */
        CAIRN_TRY(cairn_run_name_parse(told.run, &session->name, err));
    (void)cairn_text_copy(session->run_text, sizeof(session->run_text), told.run);
    CAIRN_TRY(check_hello(session, told.min, told.max, err));
    CAIRN_TRY(cairn_up_admits(session->up, err));
    session->greeted = true;
    session->version = (uint32_t)cairn_min_u64(told.max, CAIRN_SOCKET_VERSION_MAX);
    watch_process(session, request->frame);
    cairn_log(DEBUG, "session.hello", "conn=%" PRIu64 " run=%s rank=%u pid=%d", session->conn,
              told.run, session->rank, (int)session->pid);
    cairn_up_mail_answer(session->up->mail, session->conn, request->id,
                         CAIRN_PACK(welcome, .version = session->version, .session = session->uuid,
                                    .node = session->up->places.node,
                                    .uploader = CAIRN_UP_VERSION));
    return CAIRN_OK;
}

static struct cairn_up_reply reply_of(const struct cairn_up_session *session,
                                      const struct cairn_up_request *request) {
    return (struct cairn_up_reply){session->conn, request->id};
}

static enum cairn_code read_begin(struct cairn_up_session *session, const json_t *message,
                                  struct cairn_up_begin *ret, struct cairn_error *err) {
    *ret = (struct cairn_up_begin){.attempt = session->attempt,
                                   .conn = session->conn,
                                   .session = session->uuid,
                                   .proc = session->proc,
                                   .trace = session->trace,
                                   .rank = session->rank,
                                   .world_size = session->world_size};
    CAIRN_TRY(cairn_up_begin_read(message, "", ret, err));
    if (!session->attempt)
        return cairn_fail(err, CAIRN_PROTOCOL, "a save before the attempt was opened");
    return CAIRN_OK;
}

/* Begins of this step that the rank has counted; 0: unknown. */
static uint32_t counted_before(struct cairn_up_session *session, uint64_t step) {
    CAIRN_HOLD(&session->up->lock);
    return cairn_up_counted_of(cairn_up_attempt_counted(session->attempt, session->rank), step);
}

/* Q12: fails begins that the rank has abandoned without a report. */
static void fail_abandoned(struct cairn_up_session *session, const struct cairn_up_begin *begin,
                           uint32_t before) {
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_CANCELLED, "the rank went on without this save");
    if (!CAIRN_RULE(Q12)) return;
    for (uint32_t n = before + 1; before && n < begin->told.n && n < before + 64; n++) {
        struct cairn_up_begin abandoned = *begin;
        struct cairn_error error = {0};
        abandoned.told.n = n;
        abandoned.conn = 0;
        if (cairn_up_save_count(session->up, &abandoned, &why, (struct cairn_up_reply){0},
                                &error) != CAIRN_OK)
            cairn_up_abandoned_unreported(begin->told.step, n, &error);
    }
}

/* Replaces retryable codes, which would tell the other ranks that the save is not over. */
static void read_why(const json_t *message, const char *fallback, struct cairn_error *ret) {
    cairn_failure_get(message, "reason", ret);
    if (ret->code == CAIRN_OK || cairn_code_info(ret->code)->retryable) ret->code = CAIRN_CANCELLED;
    if (!ret->message[0]) (void)cairn_fail(ret, ret->code, "%s", fallback);
}

static enum cairn_code on_begin(struct cairn_up_session *session,
                                const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_up_begin begin = {0};
    CAIRN_TRY(read_begin(session, request->frame->message, &begin, err));
    begin.number = ++session->save_last;
    fail_abandoned(session, &begin, counted_before(session, begin.told.step));
    return cairn_up_save_begin(session->up, &begin, reply_of(session, request), err);
}

static enum cairn_code on_count(struct cairn_up_session *session,
                                const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_up_begin begin = {0};
    struct cairn_error why;
    CAIRN_TRY(read_begin(session, request->frame->message, &begin, err));
    read_why(request->frame->message, "the save could not be begun", &why);
    begin.conn = 0; /* no events */
    return cairn_up_save_count(session->up, &begin, &why, reply_of(session, request), err);
}

static enum cairn_code answer_ok(struct cairn_up_session *session,
                                 const struct cairn_up_request *request) {
    cairn_up_mail_answer(session->up->mail, session->conn, request->id, CAIRN_PACK(ok, 0));
    return CAIRN_OK;
}

static enum cairn_code on_stage(struct cairn_up_session *session,
                                const struct cairn_up_request *request, struct cairn_error *err) {
    CAIRN_TRY(cairn_up_save_stage(session->up, session->conn, request->frame->message, err));
    return answer_ok(session, request);
}

static enum cairn_code take_descriptor(const struct cairn_up_request *request, const char *what,
                                       int *ret, struct cairn_error *err) {
    if (request->frame->fd_count != 1)
        return cairn_fail(err, CAIRN_PROTOCOL, "%s: %s came, one is due", what,
                          cairn_counted(request->frame->fd_count, "descriptor").text);
    *ret = request->frame->fds[0];
    request->frame->fds[0] = -1;
    return CAIRN_OK;
}

static enum cairn_code on_stream(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    int fd = -1;
    CAIRN_TRY(take_descriptor(request, "stream", &fd, err));
    CAIRN_TRY(cairn_up_save_stream(session->up, session->conn, request->frame->message,
                                   cairn_buf_view(&request->frame->blob), fd, err));
    return answer_ok(session, request);
}

static enum cairn_code on_file(struct cairn_up_session *session,
                               const struct cairn_up_request *request, struct cairn_error *err) {
    int fd = -1;
    CAIRN_TRY(take_descriptor(request, "file", &fd, err));
    CAIRN_TRY(cairn_up_save_file(session->up, session->conn, request->frame->message, fd, err));
    return answer_ok(session, request);
}

static enum cairn_code on_staged(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    enum cairn_code code = cairn_up_save_staged(session->up, session->conn, request->frame->message,
                                                cairn_buf_view(&request->frame->blob), err);
    /* `staged` has no answer for an error. */
    if (code != CAIRN_OK) return cairn_fail(err, CAIRN_PROTOCOL, "staged is wrong");
    return CAIRN_OK;
}

static enum cairn_code on_looked(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_looked told = {0};
    if (cairn_msg_looked_read(request->frame->message, "", &told, err) != CAIRN_OK)
        return cairn_within(err, CAIRN_PROTOCOL, "looked is wrong");
    cairn_up_lists_looked(session->up, session->conn, &told);
    return CAIRN_OK;
}

static enum cairn_code on_seal(struct cairn_up_session *session,
                               const struct cairn_up_request *request, struct cairn_error *err) {
    return cairn_up_save_seal(session->up, request->frame->message,
                              cairn_buf_view(&request->frame->blob), &session->table,
                              reply_of(session, request), err);
}

static enum cairn_code on_fail(struct cairn_up_session *session,
                               const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_fail told = {0};
    struct cairn_error why;
    CAIRN_TRY(cairn_msg_fail_read(request->frame->message, "", &told, err));
    read_why(request->frame->message, "given up by the trainer", &why);
    return cairn_up_save_fail(session->up, told.save, &why, reply_of(session, request), err);
}

static enum cairn_code on_mapped(struct cairn_up_session *session,
                                 const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_up *up = session->up;
    cairn_lock_take(&up->lock);
    enum cairn_code code = CAIRN_OK;
    for (uint32_t i = 0; code == CAIRN_OK && i < CAIRN_UP_GENERATIONS_MAX; i++) {
        struct cairn_up_slab *slab = cairn_up_slab_of_locked(up, session->conn, i);
        if (slab && slab->memory.writable) code = cairn_slab_freeze(&slab->memory, err);
    }
    cairn_lock_give(&up->lock);
    return code == CAIRN_OK ? answer_ok(session, request) : code;
}

static enum cairn_code on_bye(struct cairn_up_session *session,
                              const struct cairn_up_request *request, struct cairn_error *err) {
    (void)err;
    session->leaving = session->said_bye = true;
    CAIRN_TRY(answer_ok(session, request));
    cairn_up_mail_hang_up(session->up->mail, session->conn);
    return CAIRN_OK;
}

static cairn_up_handler *const handlers[CAIRN_MESSAGE_COUNT] = {
    [CAIRN_MESSAGE_hello] = on_hello,
    [CAIRN_MESSAGE_attempt] = cairn_up_on_attempt,
    [CAIRN_MESSAGE_slabs] = cairn_up_on_slabs,
    [CAIRN_MESSAGE_mapped] = on_mapped,
    [CAIRN_MESSAGE_begin] = on_begin,
    [CAIRN_MESSAGE_stage] = on_stage,
    [CAIRN_MESSAGE_file] = on_file,
    [CAIRN_MESSAGE_stream] = on_stream,
    [CAIRN_MESSAGE_staged] = on_staged,
    [CAIRN_MESSAGE_seal] = on_seal,
    [CAIRN_MESSAGE_fail] = on_fail,
    [CAIRN_MESSAGE_count] = on_count,
    [CAIRN_MESSAGE_bye] = on_bye,
    [CAIRN_MESSAGE_offer] = cairn_up_on_offer,
    [CAIRN_MESSAGE_warmup] = cairn_up_on_warmup,
    [CAIRN_MESSAGE_restore] = cairn_up_on_restore,
    [CAIRN_MESSAGE_window] = cairn_up_on_window,
    [CAIRN_MESSAGE_read] = cairn_up_on_read,
    [CAIRN_MESSAGE_release] = cairn_up_on_release,
    [CAIRN_MESSAGE_list] = cairn_up_on_list,
    [CAIRN_MESSAGE_status] = on_status,
    [CAIRN_MESSAGE_drain] = on_drain,
    [CAIRN_MESSAGE_remove] = cairn_up_on_remove,
    [CAIRN_MESSAGE_annotate] = cairn_up_on_annotate,
    [CAIRN_MESSAGE_alias] = cairn_up_on_alias,
    [CAIRN_MESSAGE_looked] = on_looked,
    [CAIRN_MESSAGE_save_why] = cairn_up_on_why,
};

/* Operators' requests need no hello, which names rank and run. */
static bool needs_hello(enum cairn_message message) {
    return message != CAIRN_MESSAGE_hello && message != CAIRN_MESSAGE_status &&
           message != CAIRN_MESSAGE_drain;
}

enum cairn_code cairn_up_session_frame(struct cairn_up_session *session, struct cairn_frame *frame,
                                       struct cairn_error *err) {
    enum cairn_message message = cairn_message_of(frame->name);
    if (!message) return cairn_fail(err, CAIRN_PROTOCOL, "unknown message \"%.64s\"", frame->name);
    if (session->leaving) return cairn_fail(err, CAIRN_PROTOCOL, "%s after bye", frame->name);
    CAIRN_ASSERT(handlers[message]);
    struct cairn_up_request request = {.frame = frame};
    bool answered = cairn_message_form(message)->group == CAIRN_MESSAGE_REQUEST;
    uint64_t number = 0;
    const struct cairn_json_field id = {"id", CAIRN_JSON_U64, answered, &number, INT64_MAX >> 1};
    if (cairn_json_read(frame->message, "", &id, 1, true, err) != CAIRN_OK)
        return cairn_fail(err, CAIRN_PROTOCOL, "%s without an id", frame->name);
    request.id = (int64_t)number;
    if (!session->greeted && needs_hello(message))
        return cairn_fail(err, CAIRN_PROTOCOL, "%s before hello", frame->name);
    struct cairn_error error = {0};
    enum cairn_code code = handlers[message](session, &request, &error);
    if (code == CAIRN_OK) return CAIRN_OK;
    if (answered) cairn_up_mail_refuse(session->up->mail, session->conn, request.id, &error);
    if (code != CAIRN_PROTOCOL) return CAIRN_OK;
    /* Sends the error, then ends the connection. */
    uint64_t unsaid = 0;
    if (cairn_log_limit_allows(&session->up->log_limit, error.message, cairn_mono_ms(), &unsaid))
        cairn_log(WARN, "session.protocol",
                  "conn=%" PRIu64 " message=%s cause=\"%s\" unsaid=%" PRIu64, session->conn,
                  frame->name, error.message, unsaid);
    session->leaving = true;
    cairn_up_mail_hang_up(session->up->mail, session->conn);
    return CAIRN_OK;
}

enum cairn_code cairn_up_session_new(struct cairn_up *up, uint64_t conn, uid_t uid, pid_t pid,
                                     struct cairn_up_session **ret, struct cairn_error *err) {
    struct cairn_up_session *session = calloc(1, sizeof(*session));
    if (!session) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a session");
    session->up = up;
    session->conn = conn;
    session->uid = uid;
    session->pid = pid;
    session->process = session->numa_node = -1;
    cairn_uuid_random(session->uuid);
    *ret = session;
    return CAIRN_OK;
}

void cairn_up_session_end(struct cairn_up_session *session) {
    if (!session) return;
    struct cairn_up *up = session->up;
    cairn_up_session_drop_restores(session);
    cairn_lock_take(&up->lock);
    if (!up->locked.ending) { /* at a stop the journal keeps all for the next start */
        cairn_up_save_orphan_locked(up, session->conn, session->said_bye);
        cairn_up_slabs_orphan_locked(up, session->conn);
        cairn_up_table_leave_locked(up, &session->table);
    }
    if (session->attempt) session->attempt->sessions--;
    if (session->attempt && !up->locked.ending) {
        const struct cairn_up_rank rank = {
            session->attempt,      session->rank,  session->world_size, session->proc,
            session->process_name, session->entry, session->process,    false};
        cairn_up_ended_add_locked(up, &rank, session->said_bye);
        session->process = -1;
    } else {
        cairn_up_attempt_leave(up, session->attempt);
    }
    cairn_lock_give(&up->lock);
    if (session->process >= 0) close(session->process);
    free(session);
}
