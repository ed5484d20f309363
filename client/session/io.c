/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session's own thread: it alone reads and writes the socket, takes answers and events in, and
 * when the uploader goes away it tries again until it is back. Signals are blocked here, so that
 * the trainer's handlers run on the trainer's threads.
 */
#include "client/session/session.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/failure.h"
#include "client/save/save.h"

#define RETRY_MS_MIN 20
#define RETRY_MS_MAX 1000
#define STOP_LOOK_MS 100

void cairn_client_wake(struct cairn_session *session) {
    uint64_t one = 1;
    if (session->wake_fd >= 0 && write(session->wake_fd, &one, sizeof one) < 0) return;
}

/* ---- taking in ---- */

static void verdict(struct cairn_save *save, const json_t *message) {
    const char *state = cairn_client_text_of(message, "state");
    if (!state) return;
    if (strcmp(state, "committed") == 0) {
        cairn_client_save_event(save, CAIRN_CLIENT_EVENT_COMMIT);
        return;
    }
    struct cairn_error why = {0};
    cairn_failure_get(message, "message", &why);
    if (!why.code) why.code = strcmp(state, "skipped") == 0 ? CAIRN_SKIPPED : CAIRN_ABORTED;
    if (!why.message[0]) (void)cairn_fail(&why, why.code, "%s", state);
    cairn_client_save_end(save, &why);
}

/* Q41: only the word about the owner that is known here frees a generation. */
static void take_free(struct cairn_session *session, const json_t *message) {
    uint64_t slab = 0, owner = 0;
    if (!cairn_client_u64_of(message, "slab", &slab) || slab >= session->slab_count ||
        !cairn_client_u64_of(message, "owner", &owner))
        return;
    struct cairn_client_generation *at = &session->locked.generations[slab];
    if (at->owner != owner) return;
    at->lent = false;
    if (!at->held) at->owner = 0;
}

/* One about the node goes when it is over before anybody asked. */
static void take_problem(struct cairn_session *session, struct cairn_save *save,
                         const json_t *message) {
    struct cairn_error *notice = save ? &save->notice : &session->locked.notice;
    if (!save && json_object_get(message, "save")) return; /* it is gone */
    *notice = (struct cairn_error){0};
    cairn_failure_get(message, "message", notice);
}

static bool take_event(struct cairn_session *session, const struct cairn_frame *frame) {
    const char *uuid = cairn_client_text_of(frame->message, "session");
    if (uuid && strcmp(uuid, session->uuid) != 0 && strcmp(uuid, session->locked.welcome_uuid) != 0)
        return true; /* K11 */
    uint64_t id = 0, bytes = 0;
    if (strcmp(frame->name, "free") == 0) {
        take_free(session, frame->message);
        return true;
    }
    struct cairn_save *save = cairn_client_u64_of(frame->message, "save", &id)
                                  ? cairn_client_save_find(session, id)
                                  : NULL;
    if (strcmp(frame->name, "released") == 0) {
        if (save && cairn_client_u64_of(frame->message, "bytes", &bytes))
            save->durable_bytes = cairn_min_u64(save->durable_bytes + bytes, save->total_bytes);
        return true;
    }
    if (strcmp(frame->name, "durable") == 0) {
        if (save) cairn_client_save_event(save, CAIRN_CLIENT_EVENT_DURABLE);
        return true;
    }
    if (strcmp(frame->name, "problem") == 0) {
        take_problem(session, save, frame->message);
        return true;
    }
    if (strcmp(frame->name, "verdict") != 0) return false;
    if (save) verdict(save, frame->message);
    return true;
}

static void settle_cancel(struct cairn_session *session, const struct cairn_client_tell *tell,
                          enum cairn_code code) {
    enum cairn_client_event event =
        code == CAIRN_ALREADY_COMMITTED ? CAIRN_CLIENT_EVENT_COMMIT : CAIRN_CLIENT_EVENT_ANSWER;
    for (struct cairn_save *save = session->locked.saves; save; save = save->next)
        if (save->state.phase == CAIRN_CLIENT_PHASE_CANCELLED && save->step == tell->step &&
            save->n == tell->n)
            cairn_client_save_event(save, event);
}

/* An answer to what was told: journaled, or refused for good; a retryable refusal is told again
 * with the next tell or link. */
static bool take_told(struct cairn_session *session, const struct cairn_frame *frame, uint64_t id) {
    for (struct cairn_client_tell **at = &session->locked.tells; *at; at = &(*at)->next) {
        struct cairn_client_tell *tell = *at;
        if (tell->request != id) continue;
        enum cairn_code code = cairn_client_answer_check(frame, "ok", NULL);
        if (code && cairn_code_info(code)->retryable) {
            tell->request = 0;
            return true;
        }
        settle_cancel(session, tell, code);
        *at = tell->next;
        free(tell);
        return true;
    }
    return false;
}

bool cairn_client_dispatch(struct cairn_session *session, struct cairn_frame *frame) {
    uint64_t id = 0;
    bool fine = true;
    if (!cairn_client_u64_of(frame->message, "id", &id)) {
        fine = take_event(session, frame);
        cairn_client_saves_sweep(session);
    } else if (!take_told(session, frame, id)) {
        struct cairn_client_request **at = &session->locked.requests;
        while (*at && (*at)->id != id) at = &(*at)->next;
        if (*at) {
            struct cairn_client_request *request = *at;
            *at = request->next;
            if (request->begins && strcmp(frame->name, "begun") == 0)
                cairn_client_save_begun(request->begins, frame->message);
            request->answer = *frame;
            *frame = (struct cairn_frame){0};
            request->done = true;
        }
    }
    cairn_condition_broadcast(&session->changed);
    return fine;
}

void cairn_client_link_lost(struct cairn_session *session) {
    for (struct cairn_client_request *at = session->locked.requests; at; at = at->next) {
        at->code = CAIRN_UPLOADER_GONE;
        at->done = true;
    }
    session->locked.requests = NULL;
    while (session->locked.first) {
        struct cairn_client_message *message = session->locked.first;
        session->locked.first = message->next;
        cairn_client_message_free(message);
    }
    session->locked.last = NULL;
    for (struct cairn_client_tell *tell = session->locked.tells; tell; tell = tell->next)
        tell->request = 0;
    session->locked.state = CAIRN_CLIENT_AWAY;
    session->locked.away_since_ms = cairn_mono_ms();
    cairn_condition_broadcast(&session->changed);
}

/* ---- a link that only one thread uses: opening and offering ---- */

static enum cairn_code next_alone(struct cairn_session *session, uint64_t deadline_ms,
                                  struct cairn_frame *ret, struct cairn_error *err) {
    for (;;) {
        uint64_t slice_ms = cairn_min_u64(deadline_ms, cairn_mono_ms() + STOP_LOOK_MS);
        enum cairn_code code = cairn_client_link_wait(&session->link, slice_ms, ret, err);
        if (code != CAIRN_TIMEOUT || cairn_mono_ms() >= deadline_ms) return code;
        CAIRN_HOLD(&session->lock);
        if (session->locked.stop) return cairn_fail(err, CAIRN_CANCELLED, "the session is closed");
    }
}

enum cairn_code cairn_client_ask_alone(struct cairn_session *session,
                                       const struct cairn_client_ask *ask, struct cairn_frame *ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = ask->take_message;
    CAIRN_AUTO_PTR(client_message) message = NULL;
    uint64_t id = session->next_id++, answered = 0;
    if (!body ||
        (ask->wanted && json_object_set_new(body, "id", json_integer((json_int_t)id)) != 0))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a frame");
    CAIRN_TRY(cairn_client_message_new(body, ask->blob, ask->fds, ask->fd_count, &message, err));
    enum cairn_code code = cairn_net_send(session->link.fd, cairn_buf_view(&message->bytes),
                                          message->fds, message->fd_count, ask->deadline_ms, err);
    if (code && code != CAIRN_TIMEOUT)
        return cairn_fail(err, CAIRN_UPLOADER_GONE, "the uploader's socket ended");
    CAIRN_TRY(code);
    while (ask->wanted) {
        CAIRN_AUTO(frame) frame = {0};
        CAIRN_TRY(next_alone(session, ask->deadline_ms, &frame, err));
        if (cairn_client_u64_of(frame.message, "id", &answered) && answered == id) {
            CAIRN_TRY(cairn_client_answer_check(&frame, ask->wanted, err));
            *ret = frame;
            frame = (struct cairn_frame){0};
            return CAIRN_OK;
        }
        CAIRN_HOLD(&session->lock);
        if (!cairn_client_dispatch(session, &frame))
            return cairn_fail(err, CAIRN_PROTOCOL, "the uploader sent an unknown event");
    }
    return CAIRN_OK;
}

/* ---- the thread ---- */

/* Send what is queued as far as the socket takes it; *ret_more when something is left. */
static enum cairn_code send_queued(struct cairn_session *session, bool *ret_more,
                                   struct cairn_error *err) {
    for (;;) {
        cairn_lock_take(&session->lock);
        struct cairn_client_message *message = session->locked.first;
        cairn_lock_give(&session->lock);
        *ret_more = message != NULL;
        if (!message) return CAIRN_OK;
        bool done = false;
        CAIRN_TRY(cairn_client_link_flush(&session->link, message, &done, err));
        if (!done) return CAIRN_OK;
        cairn_lock_take(&session->lock);
        session->locked.first = message->next;
        if (!message->next) session->locked.last = NULL;
        cairn_lock_give(&session->lock);
        cairn_client_message_free(message);
    }
}

static enum cairn_code receive(struct cairn_session *session, struct cairn_error *err) {
    for (;;) {
        CAIRN_AUTO(frame) frame = {0};
        bool ready = false;
        CAIRN_TRY(cairn_client_link_next(&session->link, &frame, &ready, err));
        if (!ready) return CAIRN_OK;
        CAIRN_HOLD(&session->lock);
        if (!cairn_client_dispatch(session, &frame))
            return cairn_fail(err, CAIRN_PROTOCOL, "the uploader sent an unknown event");
    }
}

static void sleep_until_woken(struct cairn_session *session, short events, int timeout_ms) {
    uint64_t woken;
    struct pollfd wanted[2] = {{.fd = session->wake_fd, .events = POLLIN},
                               {.fd = session->link.fd, .events = events}};
    if (poll(wanted, events ? 2 : 1, timeout_ms) > 0 && wanted[0].revents)
        if (read(session->wake_fd, &woken, sizeof woken) < 0) return;
}

static void serve(struct cairn_session *session) {
    bool more = false;
    enum cairn_code code = receive(session, NULL);
    if (!code) code = send_queued(session, &more, NULL);
    if (!code) {
        sleep_until_woken(session, (short)(POLLIN | (more ? POLLOUT : 0)), -1);
        return;
    }
    cairn_client_link_close(&session->link);
    CAIRN_HOLD(&session->lock);
    cairn_client_link_lost(session);
}

static void *run(void *argument) {
    struct cairn_session *session = argument;
    uint64_t retry_ms = RETRY_MS_MIN;
    for (;;) {
        cairn_lock_take(&session->lock);
        enum cairn_client_state state = session->locked.state;
        bool stop = session->locked.stop, leaving = session->locked.leaving;
        cairn_lock_give(&session->lock);
        if (stop) return NULL;
        if (state == CAIRN_CLIENT_UP) {
            retry_ms = RETRY_MS_MIN;
            serve(session);
        } else if (state == CAIRN_CLIENT_REFUSED || leaving) {
            sleep_until_woken(session, 0, -1);
        } else if (cairn_client_reoffer(session, NULL) != CAIRN_OK) {
            sleep_until_woken(session, 0, (int)retry_ms);
            retry_ms = cairn_min_u64(retry_ms * 2, RETRY_MS_MAX);
        }
    }
}

enum cairn_code cairn_client_thread_start(struct cairn_session *session, struct cairn_error *err) {
    sigset_t all, before;
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->wake_fd < 0) return cairn_fail_errno(err, "create an eventfd");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&session->thread, NULL, run, session);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return cairn_fail_at(err, CAIRN_NO_MEMORY, failed, CAIRN_ORIGIN,
                             "start the session's thread");
    session->thread_started = true;
    return CAIRN_OK;
}

void cairn_client_thread_stop(struct cairn_session *session) {
    cairn_lock_take(&session->lock);
    session->locked.stop = true;
    cairn_condition_broadcast(&session->changed);
    cairn_lock_give(&session->lock);
    cairn_client_wake(session);
    if (session->thread_started) pthread_join(session->thread, NULL);
    session->thread_started = false;
    if (session->wake_fd >= 0) close(session->wake_fd);
    session->wake_fd = -1;
}
