/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for milestones, and reports problems that arose while no call waited. */

#include <cairn/poll.h>
#include <cairn/stage.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/save/save.h"
#include "client/save/stager.h"
#include "common/text.h"

#define VERSION_OF_WHY 7 /* socket version that introduced `save_why` */

/* ---- progress ---- */

static void read_status(const struct cairn_save *save, struct cairn_save_status *ret) {
    bool staged = save->state.reached >= CAIRN_CLIENT_REACHED_STAGED;
    bool durable = save->state.reached >= CAIRN_CLIENT_REACHED_DURABLE;
    uint64_t sent_bytes = save->sent_bytes; /* files may be sent before everything is staged */
    if (staged) sent_bytes = cairn_min_u64(sent_bytes, save->total_bytes);
    *ret =
        (struct cairn_save_status){.step = save->step,
                                   .reached = (enum cairn_milestone)save->state.reached,
                                   .away = save->state.phase == CAIRN_CLIENT_PHASE_COPIED,
                                   .total_bytes = save->total_bytes,
                                   .staged_bytes = staged ? save->total_bytes : save->staged_bytes,
                                   .sent_bytes = sent_bytes,
                                   .durable_bytes = durable ? save->total_bytes : 0,
                                   .stall_us = save->stall_us,
                                   .wait_us = save->wait_us};
    memcpy(ret->version, save->version, sizeof ret->version);
}

/* durable_bytes follows reached and total_bytes; times are not progress. */
static bool is_news(const struct cairn_save_status *now, const struct cairn_save_status *told) {
    return now->reached != told->reached || now->away != told->away ||
           now->total_bytes != told->total_bytes || now->staged_bytes != told->staged_bytes ||
           now->sent_bytes != told->sent_bytes;
}

void cairn_client_progress_tell(struct cairn_save *save, uint64_t until_ms) {
    struct cairn_session *session = save->session;
    struct cairn_save_status now;
    if (!save->progress) return;
    do {
        read_status(save, &now);
        if (!is_news(&now, &save->told)) return;
        save->told = now;
        cairn_lock_give(&session->lock);
        save->progress(save->progress_owner, &now);
        cairn_lock_take(&session->lock);
    } while (cairn_mono_ms() < until_ms);
}

/* ---- the error of a wait that times out ---- */

static bool is_reached(const struct cairn_save *save, enum cairn_milestone milestone) {
    bool committed = save->state.reached == CAIRN_CLIENT_REACHED_COMMITTED;
    if (milestone == CAIRN_PARTNERED) return save->partnered || committed;
    if (milestone == CAIRN_COPIED)
        return save->copied || save->state.reached >= CAIRN_CLIENT_REACHED_STAGED;
    if (milestone == CAIRN_DECIDED) return save->decided || committed;
    return (enum cairn_milestone)save->state.reached >= milestone;
}

static const char *milestone_text(enum cairn_milestone milestone) {
    if (milestone == CAIRN_STAGED) return "staged";
    if (milestone == CAIRN_PARTNERED) return "partnered";
    if (milestone == CAIRN_COPIED) return "copied";
    if (milestone == CAIRN_DECIDED) return "decided";
    return milestone == CAIRN_DURABLE ? "durable" : "committed";
}

/* True: err already includes the cause. */
static bool is_said(const struct cairn_error *err, const struct cairn_error *cause) {
    struct cairn_view said = cairn_view_of(err->message), text = cairn_view_of(cause->message);
    return text.size && memmem(said.data, said.size, text.data, text.size);
}

/* Appends "; the store is away for 12.0 s: <cause>". */
static void add_trouble(const struct cairn_client_trouble *trouble, const char *what,
                        struct cairn_error *err) {
    if (!trouble->why.code || is_said(err, &trouble->why)) return;
    (void)cairn_fail(err, CAIRN_TIMEOUT, "%s; %s for %.1f s: %s", err->message, what,
                     (double)(cairn_mono_ms() - trouble->since_ms) / 1000, trouble->why.message);
}

/* For a sealed save that the store has not fully acknowledged. */
static void say_sent(const struct cairn_save *save, enum cairn_milestone milestone,
                     struct cairn_error *err) {
    const struct cairn_client_sent *first = NULL;
    size_t missing = 0;
    for (size_t i = 0; i < save->sent_count; i++) {
        if (save->sent[i].released_bytes >= save->sent[i].bytes) continue;
        if (!missing++) first = &save->sent[i];
    }
    (void)cairn_fail(err, CAIRN_TIMEOUT,
                     "not %s yet: the store has %" PRIu64 " of %" PRIu64 " bytes",
                     milestone_text(milestone), cairn_min_u64(save->sent_bytes, save->total_bytes),
                     save->total_bytes);
    if (first)
        (void)cairn_fail(err, CAIRN_TIMEOUT,
                         "%s; not whole: %zu of %s, the first is %s with %" PRIu64 " of %" PRIu64
                         " bytes",
                         err->message, missing, cairn_counted(save->sent_count, "shard").text,
                         cairn_short(first->name).text, first->released_bytes, first->bytes);
}

static enum cairn_code not_copied(const struct cairn_save *save, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_TIMEOUT, "not copied yet: %" PRIu64 " of %" PRIu64 " bytes are",
                      save->staged_bytes, save->total_bytes);
}

/* The lock is held. pinged_ms 0: whether the uploader answers is not known. */
static enum cairn_code not_yet(const struct cairn_save *save, enum cairn_milestone milestone,
                               uint64_t pinged_ms, struct cairn_error *err) {
    const struct cairn_session *session = save->session;
    const struct cairn_client_saves *all = session->saves;
    struct cairn_error own = {0}, *why = err ? err : &own;
    if (session->locked.received_ms < pinged_ms)
        return cairn_client_timed_out(session, milestone_text(milestone), pinged_ms, err);
    if (cairn_client_save_reads(save))
        (void)not_copied(save, why);
    else if (milestone == CAIRN_DECIDED)
        (void)cairn_fail(why, CAIRN_TIMEOUT, "not decided yet: rank 0 has not sealed its part");
    else if (save->state.reached < CAIRN_CLIENT_REACHED_STAGED)
        (void)cairn_fail(why, CAIRN_TIMEOUT, "not staged yet: the uploader has no seal of it");
    else if (milestone == CAIRN_PARTNERED)
        (void)cairn_fail(why, CAIRN_TIMEOUT,
                         "not partnered yet: no other node has all of it, and it is not committed");
    else if (save->state.reached < CAIRN_CLIENT_REACHED_DURABLE)
        say_sent(save, milestone, why);
    else /* waits_for is known if there was time to ask */
        (void)cairn_fail(
            why, CAIRN_TIMEOUT, "not committed yet: this rank's shards are durable; %s",
            save->waits_for ? save->waits_for : "the server has not said that every rank's are");
    if (save->state.reached < CAIRN_CLIENT_REACHED_DURABLE && milestone != CAIRN_DECIDED)
        add_trouble(&all->store, "the store is away", why);
    add_trouble(&save->trouble, "the server has failed at it", why);
    if (milestone == CAIRN_COMMITTED || milestone == CAIRN_DECIDED)
        add_trouble(&all->server, "the server is away", why);
    return CAIRN_TIMEOUT;
}

struct waiting {
    struct cairn_save *save;
    enum cairn_milestone milestone;
    uint64_t ping_ms, deadline_ms, pinged_ms; /* pinged_ms 0: no ping yet */
    bool asked;
    struct cairn_client_pending why;
};

/* Frees the reason that another thread's wait for this save has received meanwhile. */
static void keep_why(struct cairn_save *save, const char *why) {
    free(save->waits_for);
    save->waits_for = strdup(why);
}

/* Keeps the server's reason, or its refusal's message (such as a frozen run). A server that does
 * not answer is reported as a trouble. */
static void take_why(void *subject, const struct cairn_frame *answer) {
    struct cairn_save *save = subject;
    struct cairn_msg_save_waits told = {0};
    struct cairn_msg_error refused = {0};
    if (strcmp(answer->name, "why") == 0) {
        if (cairn_msg_save_waits_read(answer->message, "", &told, NULL) == CAIRN_OK &&
            told.reason[0])
            keep_why(save, told.reason);
    } else if (cairn_msg_error_read(answer->message, "", &refused, NULL) == CAIRN_OK &&
               refused.http_status) {
        keep_why(save, refused.message);
    }
}

/* The lock is released while the messages are queued. */
static void ping(struct waiting *waiting) {
    struct cairn_save *save = waiting->save;
    struct cairn_session *session = save->session;
    bool asks = waiting->milestone == CAIRN_COMMITTED && save->id &&
                save->state.reached >= CAIRN_CLIENT_REACHED_DURABLE &&
                session->locked.version >= VERSION_OF_WHY;
    waiting->pinged_ms = cairn_mono_ms();
    free(CAIRN_TAKE(save->waits_for)); /* an earlier wait's */
    cairn_lock_give(&session->lock);
    cairn_client_ping(session);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(save_why, .save = (uint32_t)save->id,
                             .timeout_ms = cairn_client_left_ms(waiting->deadline_ms)),
        .on_answer = take_why, .subject = save, .deadline_ms = waiting->pinged_ms};
    if (!asks)
        json_decref(request.take_message);
    else
        waiting->asked = cairn_client_post(session, &request, &waiting->why, NULL) == CAIRN_OK;
    cairn_lock_take(&session->lock);
}

/* Waits for a change, the time of the ping, or the deadline. The ping precedes the deadline, so
 * that a timeout can say whether the uploader answers. */
static enum cairn_code look_again(struct waiting *waiting, struct cairn_error *err) {
    struct cairn_session *session = waiting->save->session;
    uint64_t deadline_ms = waiting->deadline_ms, now_ms = cairn_mono_ms();
    uint32_t epoch = 0;
    if (session->locked.state != CAIRN_CLIENT_UP)
        return cairn_client_reach(session, false, deadline_ms, &epoch, err);
    if (now_ms >= deadline_ms) {
        /* A wait of a few milliseconds shows nothing of the uploader. */
        bool had_time = deadline_ms - waiting->pinged_ms >= CAIRN_CLIENT_ANSWER_MS_MIN;
        return not_yet(waiting->save, waiting->milestone, had_time ? waiting->pinged_ms : 0, err);
    }
    if (!waiting->pinged_ms && now_ms >= waiting->ping_ms) {
        ping(waiting);
        return CAIRN_OK;
    }
    uint64_t until_ms = waiting->pinged_ms ? deadline_ms : waiting->ping_ms;
    enum cairn_code code = cairn_client_pause(session, until_ms, err);
    return code == CAIRN_TIMEOUT ? CAIRN_OK : code;
}

/* The lock is held. */
static enum cairn_code wait_until(struct cairn_save *save, enum cairn_milestone milestone,
                                  uint64_t deadline_ms, struct cairn_error *err) {
    uint64_t now_ms = cairn_mono_ms();
    uint64_t left_ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0;
    struct waiting waiting = {.save = save,
                              .milestone = milestone,
                              .ping_ms =
                                  deadline_ms - cairn_min_u64(CAIRN_CLIENT_PING_MS, left_ms / 2),
                              .deadline_ms = deadline_ms};
    enum cairn_code code = CAIRN_OK;
    for (;;) {
        cairn_client_progress_tell(save, deadline_ms);
        if (is_reached(save, milestone)) break;
        if (save->problem.code) {
            code = cairn_client_save_problem(save, err);
            break;
        }
        code = look_again(&waiting, err);
        if (!code || is_reached(save, milestone) || save->problem.code) continue;
        code = cairn_client_save_named(save, code, err);
        break;
    }
    if (!waiting.asked) return code;
    cairn_lock_give(&save->session->lock);
    cairn_client_abandon(save->session, &waiting.why); /* drops a late answer */
    cairn_lock_take(&save->session->lock);
    return code;
}

/* ---- fences ---- */

/* The lock is held. */
static enum cairn_code check_begun(const struct cairn_save *save, struct cairn_error *err) {
    bool begun = save->copied || save->behind.busy ||
                 save->state.reached >= CAIRN_CLIENT_REACHED_STAGED || cairn_client_save_over(save);
    if (begun) return CAIRN_OK;
    return CAIRN_CLIENT_REFUSE(save, err, "nothing is being copied");
}

/* Waits until no source is read, or done(save). The lock is held. */
static enum cairn_code await(struct cairn_save *save, bool (*done)(const struct cairn_save *save),
                             uint64_t deadline_ms, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    for (;;) {
        cairn_client_progress_tell(save, deadline_ms);
        if (!cairn_client_save_reads(save) || done(save)) return CAIRN_OK;
        enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
        if (code == CAIRN_TIMEOUT) code = not_copied(save, err);
        if (code) return cairn_client_save_named(save, code, err);
    }
}

static bool never(const struct cairn_save *save) {
    CAIRN_UNUSED const struct cairn_save *any = save;
    return false;
}

static bool is_queued(const struct cairn_save *save) {
    return save->behind.queued;
}

enum cairn_code cairn_save_fence(struct cairn_save *save, uint32_t timeout_ms,
                                 struct cairn_error *err) {
    uint64_t started_us = cairn_mono_us();
    CAIRN_CLIENT_SAVE_CALL(save, err);
    struct cairn_session *session = save->session;
    CAIRN_HOLD(&session->lock);
    CAIRN_TRY(check_begun(save, err));
    if (!save->behind.fenced) {
        save->behind.fenced = true;
        cairn_client_changed(session);
    }
    enum cairn_code code = await(save, never, cairn_client_deadline(session, timeout_ms), err);
    save->stall_us += cairn_mono_us() - started_us;
    if (code) return code;
    return save->problem.code ? cairn_client_save_problem(save, err) : CAIRN_OK;
}

enum cairn_code cairn_save_fence_stream(struct cairn_save *save, void *stream,
                                        struct cairn_error *err) {
    uint64_t started_us = cairn_mono_us();
    CAIRN_CLIENT_SAVE_CALL(save, err);
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    enum cairn_code code = check_begun(save, err);
    if (!code && save->verify_sources)
        code = cairn_fail(err, CAIRN_INVALID,
                          "sources that are verified are read until cairn_save_fence");
    struct cairn_device_job *job = NULL;
    if (!code && save->behind.stager && save->behind.stager->job)
        code = await(save, is_queued, cairn_client_deadline(session, 0), err);
    if (!code && save->behind.stager) job = save->behind.stager->job;
    if (!code && save->problem.code) code = cairn_client_save_problem(save, err);
    if (job && !code) save->behind.users++;
    cairn_lock_give(&session->lock);
    if (job && !code) {
        code = session->device.plugin->fence(job, stream, err);
        CAIRN_HOLD(&session->lock);
        save->behind.users--;
        cairn_client_changed(session);
    }
    save->stall_us += cairn_mono_us() - started_us;
    return code;
}

/* ---- the descriptor: holds 1 from a change until the next poll, so that no call blocks ---- */

static void mark_looked_at(struct cairn_save *save) {
    eventfd_t count;
    if (!save->changed || cairn_client_save_over(save)) return; /* stays readable */
    save->changed = false;
    if (save->fd >= 0) (void)!eventfd_read(save->fd, &count);
}

int cairn_save_fd(struct cairn_save *save) {
    if (cairn_client_save_enter(save, NULL)) return -1;
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    if (save->fd < 0) {
        save->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (save->fd >= 0 && save->changed) (void)!eventfd_write(save->fd, 1);
    }
    int fd = save->fd;
    cairn_lock_give(&session->lock);
    cairn_client_leave(session);
    return fd;
}

/* ---- milestones ---- */

static enum cairn_code check_milestone(const struct cairn_save *save,
                                       enum cairn_milestone milestone, struct cairn_error *err) {
    if (milestone == CAIRN_DECIDED && !save->follows)
        return CAIRN_CLIENT_REFUSE(save, err, "it was begun without `follow`");
    if (milestone >= CAIRN_STAGED && milestone <= CAIRN_DECIDED) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "no such milestone: %d", (int)milestone);
}

enum cairn_code cairn_save_wait(struct cairn_save *save, enum cairn_milestone milestone,
                                uint32_t timeout_ms, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_CALL(save, err);
    CAIRN_TRY(check_milestone(save, milestone, err));
    if (milestone == CAIRN_COPIED) return cairn_save_fence(save, timeout_ms, err);
    CAIRN_HOLD(&save->session->lock);
    if (milestone == CAIRN_DECIDED)
        return wait_until(save, milestone, cairn_client_deadline(save->session, timeout_ms), err);
    if (save->kept) return CAIRN_CLIENT_REFUSE(save, err, "it is not sealed yet");
    if (save->state.phase == CAIRN_CLIENT_PHASE_COUNTED)
        return CAIRN_CLIENT_REFUSE(save, err, "nothing was staged yet");
    return wait_until(save, milestone, cairn_client_deadline(save->session, timeout_ms), err);
}

enum cairn_code cairn_save_poll(struct cairn_save *save, enum cairn_milestone milestone,
                                struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_CALL(save, err);
    struct cairn_session *session = save->session;
    uint32_t epoch = 0;
    CAIRN_TRY(check_milestone(save, milestone, err));
    CAIRN_HOLD(&session->lock);
    mark_looked_at(save);
    if (milestone == CAIRN_COPIED && cairn_client_save_reads(save))
        return cairn_client_save_named(save, not_copied(save, err), err);
    if (is_reached(save, milestone)) return CAIRN_OK;
    if (save->problem.code) return cairn_client_save_problem(save, err);
    enum cairn_code code = cairn_client_reach(session, false, 0, &epoch, err);
    if (!code) code = not_yet(save, milestone, 0, err);
    return cairn_client_save_named(save, code, err);
}

static void take_notice(struct cairn_error *notice, struct cairn_error *err) {
    if (err) *err = *notice;
    *notice = (struct cairn_error){0};
}

enum cairn_code cairn_session_problem(struct cairn_session *session, struct cairn_error *err) {
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_HOLD(&session->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &session->saves->all, place) {
        if (!save->problem.code || save->problem_returned) continue;
        enum cairn_code code = cairn_client_save_problem(save, err);
        cairn_client_saves_sweep(session);
        return code;
    }
    TAILQ_FOREACH(save, &session->saves->all, place) {
        if (!save->notice.code || cairn_client_save_over(save)) continue;
        take_notice(&save->notice, err);
        return cairn_client_save_named(save, CAIRN_UNAVAILABLE, err);
    }
    if (!session->saves->notice.code) return CAIRN_OK;
    take_notice(&session->saves->notice, err);
    return cairn_client_named(session, CAIRN_UNAVAILABLE, err);
}

void cairn_save_status(const struct cairn_save *save, struct cairn_save_status *ret) {
    if (!ret) return;
    if (!save) {
        *ret = (struct cairn_save_status){0};
        return;
    }
    struct cairn_session *session = save->session;
    bool lock = session && session->pid == getpid();
    if (lock) cairn_lock_take(&session->lock);
    read_status(save, ret);
    if (lock) cairn_lock_give(&session->lock);
}

int cairn_save_over(const struct cairn_save *save, enum cairn_code *ret) {
    struct cairn_session *session = save ? save->session : NULL;
    enum cairn_code code = CAIRN_INVALID;
    bool over = true;
    bool lock = session && session->pid == getpid();
    if (lock) cairn_lock_take(&session->lock);
    if (save && save->state.phase == CAIRN_CLIENT_PHASE_COMMITTED) {
        code = CAIRN_OK;
    } else if (save && save->problem.code) {
        code = save->problem.code;
        over = save->state.phase != CAIRN_CLIENT_PHASE_CANCELLED;
    } else if (session) {
        bool away = session->locked.state == CAIRN_CLIENT_AWAY;
        code = away ? CAIRN_UPLOADER_GONE : CAIRN_TIMEOUT;
        over = false;
    }
    if (lock) cairn_lock_give(&session->lock);
    if (ret) *ret = code;
    return over;
}
