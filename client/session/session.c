/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call queues its frame, sends the queue, and reads the socket until its answer arrives; if
 * another thread is reading (wire.h), the call waits for its answer under the session's lock.
 */
#include "client/session/session.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/session/wire.h"
#include "common/text.h"

enum cairn_code cairn_client_enter(const struct cairn_session *session, struct cairn_error *err) {
    if (!session)
        return cairn_fail(err, CAIRN_INVALID, "the session is NULL; cairn_open makes one");
    if (session->pid != getpid())
        return cairn_fail(err, CAIRN_INVALID,
                          "%s: the session belongs to process %d; a forked child must open its own",
                          session->run, (int)session->pid);
    struct cairn_session *own = (struct cairn_session *)(uintptr_t)session;
    const char *place = cairn_promise_place();
    if (place)
        return cairn_fail(err, CAIRN_BROKEN,
                          "%s: libcairn broke a promise of its own at %s; it does nothing more in "
                          "this process",
                          session->run, place);
    CAIRN_HOLD(&own->lock);
    if (own->locked.leaving)
        return cairn_fail(err, CAIRN_INVALID, "%s: the session is being closed", session->run);
    own->locked.calls++;
    return CAIRN_OK;
}

void cairn_client_leave(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    session->locked.calls--;
    if (session->locked.stop) cairn_client_changed(session);
}

enum cairn_code cairn_client_sound(const struct cairn_session *session, struct cairn_error *err) {
    const char *place = cairn_promise_place();
    if (!place) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INTERNAL, "%s: libcairn broke a promise of its own at %s",
                      session->run, place);
}

enum cairn_code cairn_client_about(const struct cairn_session *session, enum cairn_code code,
                                   struct cairn_error *err) {
    const struct cairn_error_subject subject = {
        .run = session->run_number, .has_rank = true, .rank = session->rank};
    if (code) cairn_error_note(err, &subject);
    return code;
}

enum cairn_code cairn_client_named(const struct cairn_session *session, enum cairn_code code,
                                   struct cairn_error *err) {
    char name[sizeof session->run + 16];
    snprintf(name, sizeof name, "%s rank %u: ", session->run, session->rank);
    /* An error that was kept, and is returned by another call, has it already. */
    if (!err || !cairn_text_starts(err->message, name))
        (void)cairn_within(err, code, "%s rank %u", session->run, session->rank);
    return cairn_client_about(session, code, err);
}

enum cairn_code cairn_client_need_run(const struct cairn_session *session,
                                      struct cairn_error *err) {
    if (session->has_run) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "the session was opened without a run, and the call names none");
}

enum cairn_code cairn_client_speaks(struct cairn_session *session, uint32_t version,
                                    const char *what, struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    if (session->locked.version >= version) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "%s: the uploader at %s is of a release that does not have it (version %u of "
                      "the socket, %u is needed)",
                      what, session->socket, session->locked.version, version);
}

uint64_t cairn_client_deadline(const struct cairn_session *session, uint32_t timeout_ms) {
    return cairn_deadline_in(&cairn_clock_real, timeout_ms ? timeout_ms : session->timeout_ms);
}

uint64_t cairn_client_left_ms(uint64_t deadline_ms) {
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
    return cairn_min_u64(cairn_max_u64(left_ms, 1), UINT32_MAX);
}

/* ---- waiting ---- */

/* poll, because any signal handler ends it with EINTR, also one with SA_RESTART;
 * pthread_cond_timedwait would continue. */
static enum cairn_code sleep_on(struct cairn_session *session, int fd, uint64_t until_ms) {
    struct cairn_client_sleeper own = {.fd = fd};
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    LIST_INSERT_HEAD(&session->locked.sleepers, &own, place);
    cairn_lock_give(&session->lock);
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, until_ms);
    int found = cairn_client_poll(&wanted, left_ms, session->open_signals);
    bool signalled = found < 0 && errno == EINTR;
    cairn_lock_take(&session->lock);
    LIST_REMOVE(&own, place);
    if (signalled) return CAIRN_INTERRUPTED;
    return found == 0 && cairn_mono_ms() >= until_ms ? CAIRN_TIMEOUT : CAIRN_OK;
}

/* The lock is held. */
static bool is_stoppable(const struct cairn_session *session) {
    return session->locked.stoppable.stopped &&
           pthread_equal(session->locked.stoppable.thread, pthread_self());
}

static bool is_stopped(const struct cairn_session *session) {
    return is_stoppable(session) &&
           session->locked.stoppable.stopped(session->locked.stoppable.owner);
}

void cairn_client_stoppable(struct cairn_session *session, bool (*stopped)(const void *owner),
                            const void *owner) {
    CAIRN_HOLD(&session->lock);
    session->locked.stoppable.thread = pthread_self();
    session->locked.stoppable.stopped = stopped;
    session->locked.stoppable.owner = owner;
}

enum cairn_code cairn_client_pause(struct cairn_session *session, uint64_t until_ms,
                                   struct cairn_error *err) {
    if (is_stopped(session)) return cairn_fail(err, CAIRN_CANCELLED, "it was cancelled");
    CAIRN_AUTO_FD fd = session->interruptible ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    enum cairn_code code = CAIRN_OK;
    if (fd >= 0)
        code = sleep_on(session, fd, until_ms);
    else if (!cairn_condition_wait(&session->changed, &session->lock, until_ms))
        code = CAIRN_TIMEOUT;
    if (code != CAIRN_INTERRUPTED) return code;
    return cairn_fail(err, code, "a signal came while libcairn waited");
}

void cairn_client_changed(struct cairn_session *session) {
    const uint64_t one = 1;
    const struct cairn_client_sleeper *at;
    cairn_condition_broadcast(&session->changed);
    LIST_FOREACH(at, &session->locked.sleepers, place)
        if (write(at->fd, &one, sizeof one) < 0) continue; /* already woken */
}

static void say_process(const struct cairn_session *session, char text[static 40]) {
    text[0] = '\0';
    if (session->locked.uploader_pid > 0)
        snprintf(text, 40, " (process %d)", session->locked.uploader_pid);
}

enum cairn_code cairn_client_timed_out(const struct cairn_session *session, const char *wanted,
                                       uint64_t since_ms, struct cairn_error *err) {
    char process[40];
    say_process(session, process);
    /* Without any frame so far, silence counts from the request, not from the machine's start. */
    uint64_t heard_ms = session->locked.received_ms ? session->locked.received_ms : since_ms;
    if (session->locked.received_ms && session->locked.received_ms >= since_ms)
        return cairn_fail(err, CAIRN_TIMEOUT, "the uploader at %s%s did not send %s in time",
                          session->socket, process, wanted);
    return cairn_fail(err, CAIRN_TIMEOUT,
                      "the uploader at %s%s does not answer: nothing came from it for %.1f s, %s "
                      "was due",
                      session->socket, process, (double)(cairn_mono_ms() - heard_ms) / 1000,
                      wanted);
}

/* ---- silence: an uploader that holds its socket and answers nothing ---- */

struct listening {
    uint64_t look_ms, pinged_ms, deadline_ms; /* pinged_ms 0: no ping is unanswered */
};

static struct listening listen_from_now(uint64_t deadline_ms) {
    uint64_t now_ms = cairn_mono_ms(), left_ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0;
    return (struct listening){.look_ms =
                                  now_ms + cairn_min_u64(CAIRN_CLIENT_SILENT_MS, left_ms / 2),
                              .deadline_ms = deadline_ms};
}

static enum cairn_code say_silent(const struct cairn_session *session, struct cairn_error *err) {
    char process[40];
    say_process(session, process);
    return cairn_fail(err, CAIRN_UPLOADER_GONE,
                      "the uploader at %s%s does not answer: nothing came from it for %.1f s",
                      session->socket, process,
                      (double)(cairn_mono_ms() - session->locked.silent_since_ms) / 1000);
}

/* CAIRN_OK: a change, or time to look. CAIRN_UPLOADER_GONE: the uploader is silent. The lock is
 * held, and released for a ping. */
static enum cairn_code listen_on(struct cairn_session *session, struct listening *at,
                                 struct cairn_error *err) {
    if (session->locked.silent_since_ms) return say_silent(session, err);
    uint64_t until_ms = cairn_min_u64(at->look_ms, at->deadline_ms);
    enum cairn_code code = cairn_client_pause(session, until_ms, err);
    uint64_t now_ms = cairn_mono_ms();
    if (code != CAIRN_TIMEOUT || session->locked.state != CAIRN_CLIENT_UP)
        return code == CAIRN_TIMEOUT && now_ms < at->deadline_ms ? CAIRN_OK : code;
    bool unanswered = at->pinged_ms && session->locked.received_ms < at->pinged_ms;
    if (unanswered && now_ms - at->pinged_ms >= CAIRN_CLIENT_ANSWER_MS_MIN) {
        session->locked.silent_since_ms = cairn_max_u64(session->locked.received_ms, 1);
        return say_silent(session, err);
    }
    if (now_ms >= at->deadline_ms) return CAIRN_TIMEOUT;
    if (now_ms < at->look_ms) return CAIRN_OK;
    at->look_ms = now_ms + CAIRN_CLIENT_SILENT_MS;
    if (at->pinged_ms && !unanswered) {
        at->pinged_ms = 0;
        return CAIRN_OK;
    }
    at->pinged_ms = now_ms;
    cairn_lock_give(&session->lock);
    cairn_client_ping(session);
    cairn_lock_take(&session->lock);
    return CAIRN_OK;
}

enum cairn_code cairn_client_late_await(struct cairn_session *session,
                                        struct cairn_client_late *late, const char *wanted,
                                        uint64_t deadline_ms, struct cairn_error *err) {
    struct listening at = listen_from_now(deadline_ms);
    uint64_t since_ms = cairn_mono_ms();
    enum cairn_code code = CAIRN_OK;
    CAIRN_HOLD(&session->lock);
    while (late->id && !code) code = listen_on(session, &at, err);
    if (late->id && code == CAIRN_TIMEOUT)
        return cairn_client_timed_out(session, wanted, since_ms, err);
    if (late->id) return code;
    if (!late->answered)
        return cairn_fail(err, CAIRN_UPLOADER_GONE, "the uploader went away before it answered");
    code = late->why.code;
    if (code && err) *err = late->why;
    *late = (struct cairn_client_late){0};
    return code;
}

bool cairn_client_heard(struct cairn_session *session, uint64_t until_ms) {
    while (session->locked.silent_since_ms)
        if (cairn_client_pause(session, until_ms, NULL)) break;
    return !session->locked.silent_since_ms;
}

void cairn_client_finish_soon(struct cairn_session *session) {
    session->locked.heard = true;
    cairn_client_wake(session);
}

bool cairn_client_stopping(const struct cairn_session *session) {
    return session->locked.stopping_epoch &&
           session->locked.stopping_epoch == session->locked.epoch;
}

void cairn_client_stopping_note(struct cairn_session *session, const struct cairn_frame *answer) {
    if (cairn_client_answer_check(answer, "begun", NULL) == CAIRN_UNAVAILABLE)
        session->locked.stopping_epoch = session->locked.epoch;
}

enum cairn_code cairn_client_reach_next(struct cairn_session *session, uint64_t deadline_ms,
                                        uint32_t *ret_epoch, struct cairn_error *err) {
    while (cairn_client_stopping(session) && session->locked.state == CAIRN_CLIENT_UP) {
        enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
        if (code == CAIRN_TIMEOUT)
            return cairn_fail(err, CAIRN_UPLOADER_GONE,
                              "the uploader at %s is stopping, and the next one has not come",
                              session->socket);
        CAIRN_TRY(code);
    }
    if (!cairn_client_stopping(session))
        return cairn_client_reach(session, false, deadline_ms, ret_epoch, err);
    uint64_t back_ms = session->locked.away_since_ms + CAIRN_CLIENT_RESTART_MS;
    return cairn_client_reach(session, true, cairn_min_u64(deadline_ms, back_ms), ret_epoch, err);
}

static enum cairn_code say_away(const struct cairn_session *session, struct cairn_error *err) {
    double s = (double)(cairn_mono_ms() - session->locked.away_since_ms) / 1000;
    if (session->locked.stop || session->locked.leaving)
        return cairn_fail(err, CAIRN_UPLOADER_GONE, "%s: the session was closed meanwhile",
                          session->run);
    const char *why = session->locked.away_why;
    if (session->locked.turned_away)
        return cairn_fail(err, CAIRN_UPLOADER_GONE,
                          "the uploader at %s is back and does not take this session (tried for "
                          "%.1f s): %s",
                          session->socket, s, why);
    return cairn_fail(err, CAIRN_UPLOADER_GONE,
                      "the uploader at %s is away since %.1f s; it is tried again in the "
                      "background%s%s",
                      session->socket, s, *why ? "; " : "", why);
}

enum cairn_code cairn_client_reach(struct cairn_session *session, bool waits, uint64_t deadline_ms,
                                   uint32_t *ret_epoch, struct cairn_error *err) {
    while (session->locked.state == CAIRN_CLIENT_AWAY) {
        uint64_t until_ms = deadline_ms, gone_ms = session->locked.away_since_ms;
        if (!waits) until_ms = cairn_min_u64(deadline_ms, gone_ms + CAIRN_CLIENT_GONE_MS);
        if (session->locked.stop || session->locked.leaving || cairn_mono_ms() >= until_ms)
            return say_away(session, err);
        enum cairn_code code = cairn_client_pause(session, until_ms, err);
        if (code == CAIRN_INTERRUPTED || code == CAIRN_CANCELLED) return code;
    }
    if (session->locked.state == CAIRN_CLIENT_REFUSED) {
        if (err) *err = session->locked.refusal;
        return session->locked.refusal.code;
    }
    *ret_epoch = session->locked.epoch;
    return CAIRN_OK;
}

/* ---- requests and answers ---- */

void cairn_client_wake(struct cairn_session *session) {
    uint64_t one = 1;
    if (session->wake_fd >= 0 && write(session->wake_fd, &one, sizeof one) < 0) return;
}

void cairn_client_enqueue(struct cairn_session *session, struct cairn_client_message *message) {
    STAILQ_INSERT_TAIL(&session->locked.queue, message, place);
}

static enum cairn_code queue(struct cairn_session *session,
                             const struct cairn_client_request *request,
                             struct cairn_client_message **message,
                             struct cairn_client_pending *pending, struct cairn_error *err) {
    uint32_t epoch = 0;
    CAIRN_HOLD(&session->lock);
    CAIRN_TRY(cairn_client_reach(session, request->waits, request->deadline_ms, &epoch, err));
    if (request->epoch && request->epoch != epoch)
        return cairn_fail(err, CAIRN_UPLOADER_GONE,
                          "the uploader was restarted meanwhile, and this call is not repeated");
    if (request->goes_on && session->locked.silent_since_ms) return say_silent(session, err);
    if (pending) LIST_INSERT_HEAD(&session->locked.pending, pending, place);
    cairn_client_enqueue(session, CAIRN_TAKE(*message));
    return CAIRN_OK;
}

static enum cairn_code encode(struct cairn_session *session,
                              const struct cairn_client_request *request,
                              struct cairn_client_pending *pending,
                              struct cairn_client_message **ret, struct cairn_error *err) {
    if (!request->take_message) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a frame");
    if (pending) {
        *pending = (struct cairn_client_pending){.id = session->next_id++,
                                                 .since_ms = cairn_mono_ms(),
                                                 .on_answer = request->on_answer,
                                                 .subject = request->subject};
        if (json_object_set_new(request->take_message, "id",
                                json_integer((json_int_t)pending->id)) != 0)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a frame");
    }
    return cairn_client_message_new(request->take_message, request->blob, request->fds,
                                    request->fd_count, ret, err);
}

enum cairn_code cairn_client_post(struct cairn_session *session,
                                  const struct cairn_client_request *request,
                                  struct cairn_client_pending *pending, struct cairn_error *err) {
    CAIRN_AUTO_PTR(client_message) message = NULL;
    enum cairn_code code = encode(session, request, pending, &message, err);
    json_decref(request->take_message);
    if (code) return code;
    CAIRN_TRY(queue(session, request, &message, pending, err));
    if (!request->held && cairn_client_wire_send(session)) cairn_client_wake(session);
    return CAIRN_OK;
}

enum cairn_code cairn_client_await(struct cairn_session *session,
                                   const struct cairn_client_request *request,
                                   struct cairn_client_pending *pending, struct cairn_frame *ret,
                                   struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    struct listening at = listen_from_now(request->deadline_ms);
    cairn_lock_take(&session->lock);
    if (!is_stoppable(session))
        code = cairn_client_wire_await(session, pending, request->deadline_ms, err);
    while (!pending->done && !code)
        code = request->goes_on ? listen_on(session, &at, err)
                                : cairn_client_pause(session, request->deadline_ms, err);
    bool done = pending->done;
    if (!done) LIST_REMOVE(pending, place);
    if (!done && request->late) *request->late = (struct cairn_client_late){.id = pending->id};
    if (!done && code == CAIRN_TIMEOUT)
        code = cairn_client_timed_out(session, request->wanted, pending->since_ms, err);
    cairn_lock_give(&session->lock);
    if (!done) return code;
    if (pending->os_errno)
        return cairn_fail_at(err, pending->code, pending->os_errno, CAIRN_ORIGIN,
                             "the uploader's answer could not be read");
    if (pending->code)
        return cairn_fail(err, pending->code, "the uploader went away before it answered");
    code = cairn_client_answer_check(&pending->answer, request->wanted, err);
    if (code || !ret) {
        cairn_frame_release(&pending->answer);
        return code;
    }
    *ret = pending->answer;
    pending->answer = (struct cairn_frame){0};
    return CAIRN_OK;
}

void cairn_client_abandon(struct cairn_session *session, struct cairn_client_pending *pending) {
    cairn_lock_take(&session->lock);
    if (!pending->done) LIST_REMOVE(pending, place);
    cairn_lock_give(&session->lock);
    if (pending->done) cairn_frame_release(&pending->answer);
}

enum cairn_code cairn_client_call(struct cairn_session *session,
                                  const struct cairn_client_request *request,
                                  struct cairn_frame *ret, struct cairn_error *err) {
    struct cairn_client_pending pending;
    if (!request->wanted) return cairn_client_post(session, request, NULL, err);
    CAIRN_TRY(cairn_client_post(session, request, &pending, err));
    return cairn_client_await(session, request, &pending, ret, err);
}

/* Restore ids start at 1, so every uploader answers `not-found` to id 0 at once. */
void cairn_client_ping(struct cairn_session *session) {
    struct cairn_client_pending pending;
    const struct cairn_client_request request = {CAIRN_CLIENT_REQUEST(release, .restore = 0),
                                                 .deadline_ms = cairn_mono_ms()};
    if (cairn_client_post(session, &request, &pending, NULL) == CAIRN_OK)
        cairn_client_abandon(session, &pending);
}

/* ---- threads ---- */

/* Blocks signals before pthread_create, so that the new thread never receives one. */
int cairn_client_thread(pthread_t *ret, const pthread_attr_t *attributes, void *(*run)(void *owner),
                        void *owner) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(ret, attributes, run, owner);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

bool cairn_client_detached(struct cairn_session *session, void *(*run)(void *owner), void *owner) {
    pthread_attr_t attributes;
    pthread_t thread;
    cairn_lock_take(&session->lock);
    session->locked.calls++;
    cairn_lock_give(&session->lock);
    bool ready = !pthread_attr_init(&attributes), started = false;
    if (ready) {
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        started = !cairn_client_thread(&thread, &attributes, run, owner);
        pthread_attr_destroy(&attributes);
    }
    if (!started) cairn_client_leave(session);
    return started;
}
