/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes frames in turns (two flags under the session's lock). While no call reads, the
 * session's thread sleeps on an epoll descriptor. It reconnects when the socket ends, never after a
 * time-out: a slow uploader still reads from the slabs (Q15).
 */
#include "client/session/wire.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "client/session/process.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"
#include "common/trace.h"

#define STOP_LOOK_MS 100
#define RETRY_MS_MIN 20
#define RETRY_MS_MAX 1000
#define HELLO_MS 10000
/* As long as the server waits for a silent node. An uploader that is frozen meanwhile takes the
 * offer when it goes on; the end of its link behind that would fail what is not sealed. */
#define OFFER_MS 600000
#define VERSION_OF_NO_RUN 8 /* socket version that introduced it */

/* ---- messages and the link ---- */

void cairn_client_message_free(struct cairn_client_message *message) {
    if (!message) return;
    for (size_t i = 0; i < message->fd_count; i++)
        if (message->fds[i] >= 0) close(message->fds[i]);
    cairn_buf_release(&message->bytes);
    free(message);
}

enum cairn_code cairn_client_message_new(const json_t *message, struct cairn_view blob,
                                         const int *fds, size_t fd_count,
                                         struct cairn_client_message **ret,
                                         struct cairn_error *err) {
    CAIRN_AUTO_PTR(client_message) made = calloc(1, sizeof *made);
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a frame");
    made->bytes.limit = CAIRN_FRAME_JSON_BYTES_MAX + CAIRN_FRAME_BLOB_BYTES_MAX + 64;
    CAIRN_TRY(cairn_frame_encode(message, blob, &made->bytes, err));
    if (fd_count > CAIRN_NET_FDS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s in one frame",
                          cairn_counted(fd_count, "descriptor").text);
    for (size_t i = 0; i < fd_count; i++) {
        made->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (made->fds[i] < 0) return cairn_fail_errno(err, "duplicate descriptor %d", fds[i]);
        made->fd_count++;
    }
    *ret = CAIRN_TAKE(made);
    return CAIRN_OK;
}

enum cairn_code cairn_client_link_open(const char *path, struct cairn_client_link *ret,
                                       bool *ret_left, struct cairn_error *err) {
    int fd = -1;
    enum cairn_code code = cairn_net_connect_unix(path, &fd, err);
    *ret_left = code == CAIRN_UNAVAILABLE || code == CAIRN_BUSY;
    if (code == CAIRN_UNAVAILABLE || code == CAIRN_BUSY || code == CAIRN_NOT_FOUND)
        return cairn_within(err, CAIRN_UPLOADER_GONE, "no uploader");
    if (code) return cairn_within(err, code, "uploader");
    /* Another user could have put its own socket there, and would receive all staged bytes. */
    const char *users = getenv("CAIRN_UPLOADER_USERS");
    code = cairn_net_listener_check(fd, path, users, "CAIRN_UPLOADER_USERS", err);
    if (code) {
        close(fd);
        return cairn_within(err, code, "%s", path);
    }
    uid_t uid = 0;
    pid_t pid = 0;
    if (cairn_net_peer_uid(fd, &uid, &pid, NULL) != CAIRN_OK) pid = 0;
    *ret = (struct cairn_client_link){.fd = fd, .pid = (int)pid};
    cairn_client_process_watch(fd);
    return CAIRN_OK;
}

void cairn_client_link_close(struct cairn_client_link *link) {
    if (link->fd >= 0) {
        cairn_client_process_unwatch(link->fd);
        close(link->fd);
    }
    link->fd = -1;
    cairn_frame_reader_release(&link->reader);
}

static ssize_t send_some(int fd, struct cairn_client_message *message) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(CAIRN_NET_FDS_MAX * sizeof(int))];
    } control = {0};
    struct iovec part = {message->bytes.data + message->sent, message->bytes.size - message->sent};
    struct msghdr out = {.msg_iov = &part, .msg_iovlen = 1};
    if (message->sent == 0 && message->fd_count) {
        out.msg_control = control.bytes;
        out.msg_controllen = CMSG_SPACE(message->fd_count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&out);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(message->fd_count * sizeof(int));
        memcpy(CMSG_DATA(rights), message->fds, message->fd_count * sizeof(int));
    }
    return sendmsg(fd, &out, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends as much of one message as the socket takes, without waiting, so that the session's thread
 * keeps reading while the uploader reads slowly. *ret_done: the message is sent. */
static enum cairn_code flush_message(const struct cairn_client_link *link,
                                     struct cairn_client_message *message, bool *ret_done,
                                     struct cairn_error *err) {
    while (message->sent < message->bytes.size) {
        ssize_t sent = send_some(link->fd, message);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (sent < 0)
            return cairn_fail_at(err, CAIRN_UPLOADER_GONE, errno, CAIRN_ORIGIN,
                                 "the uploader's socket ended");
        message->sent += (size_t)sent;
    }
    *ret_done = message->sent == message->bytes.size;
    return CAIRN_OK;
}

/* *ret_ready: a whole frame had arrived. CAIRN_UPLOADER_GONE: the peer ended the link. */
static enum cairn_code next_frame(struct cairn_client_link *link, struct cairn_frame *ret,
                                  bool *ret_ready, struct cairn_error *err) {
    CAIRN_TRY(cairn_frame_next(&link->reader, ret, ret_ready, err));
    if (*ret_ready) return CAIRN_OK;
    bool closed = false;
    CAIRN_TRY(cairn_frame_fill(&link->reader, link->fd, &closed, err));
    CAIRN_TRY(cairn_frame_next(&link->reader, ret, ret_ready, err));
    if (closed && !*ret_ready)
        return cairn_fail(err, CAIRN_UPLOADER_GONE, "the uploader ended the connection");
    return CAIRN_OK;
}

int cairn_client_poll(struct pollfd *wanted, uint64_t ms, const sigset_t *signals) {
    ms = cairn_min_u64(ms, INT_MAX);
    if (!signals) return poll(wanted, 1, (int)ms);
    const struct timespec most = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    return ppoll(wanted, 1, &most, signals);
}

bool cairn_client_u64_of(const json_t *message, const char *field, uint64_t *ret) {
    const json_t *value = json_object_get(message, field);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

enum cairn_code cairn_client_answer_check(const struct cairn_frame *answer, const char *wanted,
                                          struct cairn_error *err) {
    if (strcmp(answer->name, wanted) == 0) return CAIRN_OK;
    if (strcmp(answer->name, "error") != 0)
        return cairn_fail(err, CAIRN_PROTOCOL, "the uploader answered %.32s where %s was due",
                          answer->name, wanted);
    struct cairn_error why = {0};
    cairn_failure_get(answer->message, "message", &why);
    if (!why.code) why.code = CAIRN_PROTOCOL;
    if (!why.message[0]) (void)cairn_fail(&why, why.code, "the uploader gave no reason");
    if (err) *err = why;
    return why.code;
}

/* ---- dispatching frames: answers by their `id`, events to the sink ---- */

/* False: no call awaits this answer. */
static bool take_answer(struct cairn_session *session, struct cairn_frame *frame, uint64_t id) {
    struct cairn_client_pending *pending;
    LIST_FOREACH(pending, &session->locked.pending, place)
        if (pending->id == id) break;
    if (!pending) return false;
    LIST_REMOVE(pending, place);
    if (pending->on_answer) pending->on_answer(pending->subject, frame);
    pending->answer = *frame;
    *frame = (struct cairn_frame){0};
    pending->done = true;
    return true;
}

/* False: the uploader broke the protocol. The lock is held. */
static bool dispatch(struct cairn_session *session, struct cairn_frame *frame) {
    uint64_t id = 0;
    bool fine = true;
    session->locked.received_ms = cairn_mono_ms();
    if (session->locked.silent_since_ms) cairn_client_finish_soon(session);
    session->locked.silent_since_ms = 0;
    const char *uuid = json_string_value(json_object_get(frame->message, "session"));
    bool ours = !uuid || strcmp(uuid, session->uuid) == 0 ||
                strcmp(uuid, session->locked.welcome_uuid) == 0; /* K11 */
    if (cairn_client_u64_of(frame->message, "id", &id)) {
        if (!take_answer(session, frame, id)) session->sink->answer(session, frame, id);
    } else if (ours) {
        fine = session->sink->event(session, frame);
    }
    cairn_client_changed(session);
    return fine;
}

/* Ends pending calls with CAIRN_UPLOADER_GONE and sets the state AWAY. The lock is held. */
static void note_link_ended(struct cairn_session *session) {
    struct cairn_client_pending *pending;
    struct cairn_client_message *message;
    while ((pending = LIST_FIRST(&session->locked.pending))) {
        LIST_REMOVE(pending, place);
        pending->code = CAIRN_UPLOADER_GONE;
        pending->os_errno = session->locked.cut_errno;
        pending->done = true;
    }
    while ((message = STAILQ_FIRST(&session->locked.queue))) {
        STAILQ_REMOVE_HEAD(&session->locked.queue, place);
        cairn_client_message_free(message);
    }
    session->sink->link_ended(session);
    session->locked.state = CAIRN_CLIENT_AWAY;
    session->locked.silent_since_ms = 0;
    session->locked.heard = session->locked.cut = false;
    session->locked.cut_errno = 0;
    session->locked.away_since_ms = cairn_mono_ms();
    cairn_client_changed(session);
}

/* ---- turns; the lock is held ---- */

/* Adds the socket to the session thread's epoll set, or removes it. */
static enum cairn_code set_heard(struct cairn_session *session, bool heard,
                                 struct cairn_error *err) {
    struct epoll_event event = {.events = EPOLLIN};
    if (!epoll_ctl(session->heard_fd, heard ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, session->link.fd,
                   &event))
        return CAIRN_OK;
    return cairn_fail_errno(err, "the uploader's socket in epoll");
}

static bool is_usable(const struct cairn_session *session) {
    return session->locked.state == CAIRN_CLIENT_UP && !session->locked.cut &&
           !session->locked.stop;
}

/* The thread that closes the link waits for the turns. */
static void turn_given(struct cairn_session *session) {
    if (is_usable(session)) return;
    cairn_client_changed(session);
    cairn_client_wake(session);
}

static bool take_reading(struct cairn_session *session, bool by_call) {
    if (!is_usable(session) || session->locked.reading) return false;
    if (by_call && set_heard(session, false, NULL)) return false;
    session->locked.reading = true;
    return true;
}

static void give_reading(struct cairn_session *session, bool by_call, bool broken) {
    CAIRN_PROMISE(session->locked.reading, return );
    session->locked.reading = false;
    if (broken) session->locked.cut = true;
    if (by_call && set_heard(session, true, NULL)) session->locked.cut = true; /* no reader */
    turn_given(session);
}

/* ---- reading ---- */

/* Handles all frames that have arrived, up to that answer. */
static enum cairn_code receive(struct cairn_session *session,
                               const struct cairn_client_pending *answer) {
    for (;;) {
        CAIRN_AUTO(frame) frame = {0};
        struct cairn_error why = {0};
        bool ready = false;
        enum cairn_code code = next_frame(&session->link, &frame, &ready, &why);
        if (!code && !ready) return CAIRN_OK;
        CAIRN_HOLD(&session->lock);
        if (code) session->locked.cut_errno = why.os_errno;
        if (code) return code;
        if (!dispatch(session, &frame)) return CAIRN_PROTOCOL; /* unknown event */
        if (answer && answer->done) return CAIRN_OK;
    }
}

/* CAIRN_TIMEOUT, CAIRN_INTERRUPTED, or CAIRN_OK: data may be there. */
static enum cairn_code wait_for_frame(struct cairn_session *session, uint64_t until_ms) {
    struct pollfd wanted = {.fd = session->link.fd, .events = POLLIN};
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, until_ms);
    int found = cairn_client_poll(&wanted, left_ms, NULL);
    if (found < 0 && errno == EINTR && session->interruptible) return CAIRN_INTERRUPTED;
    return found == 0 ? CAIRN_TIMEOUT : CAIRN_OK;
}

enum cairn_code cairn_client_wire_await(struct cairn_session *session,
                                        const struct cairn_client_pending *pending,
                                        uint64_t deadline_ms, struct cairn_error *err) {
    uint64_t until_ms = cairn_min_u64(deadline_ms, cairn_mono_ms() + CAIRN_CLIENT_SELF_MS);
    enum cairn_code code = CAIRN_OK;
    if (pending->done || !take_reading(session, true)) return CAIRN_OK;
    while (!code && !pending->done && is_usable(session)) {
        cairn_lock_give(&session->lock);
        code = wait_for_frame(session, until_ms);
        if (!code) code = receive(session, pending);
        cairn_lock_take(&session->lock);
    }
    bool late = code == CAIRN_TIMEOUT, interrupted = code == CAIRN_INTERRUPTED;
    give_reading(session, true, code && !late && !interrupted);
    if (!interrupted) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INTERRUPTED, "a signal came while libcairn waited");
}

/* ---- writing ---- */

bool cairn_client_wire_send(struct cairn_session *session) {
    struct cairn_client_message *message;
    enum cairn_code code = CAIRN_OK;
    bool done = true;
    CAIRN_HOLD(&session->lock);
    if (!is_usable(session) || session->locked.writing) return false;
    session->locked.writing = true;
    while (done && (message = STAILQ_FIRST(&session->locked.queue))) {
        cairn_lock_give(&session->lock);
        code = flush_message(&session->link, message, &done, NULL);
        cairn_lock_take(&session->lock);
        done = done && !code;
        if (!done) break;
        STAILQ_REMOVE_HEAD(&session->locked.queue, place);
        cairn_client_message_free(message);
    }
    session->locked.writing = false;
    if (code) session->locked.cut = true;
    turn_given(session);
    return !done;
}

/* Waits for the turns and closes the link; `cut` prevents new turns until the state changes. */
static void close_link(struct cairn_session *session) {
    cairn_lock_take(&session->lock);
    session->locked.cut = true;
    /* Ends the poll of a call that reads. */
    if (session->locked.reading) (void)shutdown(session->link.fd, SHUT_RDWR);
    while (session->locked.reading || session->locked.writing)
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    cairn_lock_give(&session->lock);
    if (session->link.fd >= 0 && session->heard_fd >= 0) (void)set_heard(session, false, NULL);
    cairn_client_link_close(&session->link);
}

/* ---- calls over a link that this thread has exclusively ---- */

struct wait {
    const char *wanted;
    uint64_t since_ms, deadline_ms;
};

/* CAIRN_OK: keep waiting. */
static enum cairn_code check_deadline(struct cairn_session *session, const struct wait *wait,
                                      struct cairn_error *err) {
    CAIRN_HOLD(&session->lock);
    if (cairn_mono_ms() >= wait->deadline_ms)
        return cairn_client_timed_out(session, wait->wanted, wait->since_ms, err);
    if (session->locked.stop) return cairn_fail(err, CAIRN_CANCELLED, "the session is closed");
    return CAIRN_OK;
}

/* CAIRN_OK: the socket may be ready. Checks `stop` every STOP_LOOK_MS: closing does not wake it. */
static enum cairn_code await_socket(struct cairn_session *session, const struct wait *wait,
                                    short events, struct cairn_error *err) {
    const struct cairn_client_link *link = &session->link;
    struct pollfd wanted = {.fd = link->fd, .events = events};
    const sigset_t *signals = link->interruptible ? link->signals : NULL;
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, wait->deadline_ms);
    left_ms = cairn_min_u64(left_ms, STOP_LOOK_MS);
    int found = left_ms ? cairn_client_poll(&wanted, left_ms, signals) : 0;
    if (found > 0) return CAIRN_OK;
    if (!found) return check_deadline(session, wait, err);
    if (errno != EINTR) return cairn_fail_errno(err, "poll the uploader's socket");
    if (!link->interruptible) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INTERRUPTED, "a signal came while libcairn waited");
}

static enum cairn_code send_alone(struct cairn_session *session, const struct wait *wait,
                                  struct cairn_client_message *message, struct cairn_error *err) {
    for (;;) {
        bool done = false;
        CAIRN_TRY(flush_message(&session->link, message, &done, err));
        if (done) return CAIRN_OK;
        CAIRN_TRY(await_socket(session, wait, POLLOUT, err));
    }
}

static enum cairn_code next_alone(struct cairn_session *session, const struct wait *wait,
                                  struct cairn_frame *ret, struct cairn_error *err) {
    for (;;) {
        bool ready = false;
        CAIRN_TRY(next_frame(&session->link, ret, &ready, err));
        if (ready) return CAIRN_OK;
        CAIRN_TRY(await_socket(session, wait, POLLIN, err));
    }
}

/* An `error` without an id: the uploader's reason for ending the connection. */
static bool is_refusal(const struct cairn_frame *frame) {
    return strcmp(frame->name, "error") == 0 && !json_object_get(frame->message, "id");
}

/* The connection ended; a refusal received before that is the better error. */
static enum cairn_code ended(struct cairn_session *session, enum cairn_code code,
                             struct cairn_error *err) {
    for (bool ready = true; ready;) {
        CAIRN_AUTO(frame) frame = {0};
        if (next_frame(&session->link, &frame, &ready, NULL) != CAIRN_OK) break;
        if (ready && is_refusal(&frame)) return cairn_client_answer_check(&frame, "", err);
    }
    return code;
}

enum cairn_code cairn_client_call_alone(struct cairn_session *session,
                                        const struct cairn_client_request *request,
                                        struct cairn_frame *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *body = request->take_message;
    CAIRN_AUTO_PTR(client_message) message = NULL;
    uint64_t id = session->next_id++, answered = 0;
    const struct wait wait = {request->wanted ? request->wanted : "room for a message",
                              cairn_mono_ms(), request->deadline_ms};
    if (!body ||
        (request->wanted && json_object_set_new(body, "id", json_integer((json_int_t)id)) != 0))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a frame");
    CAIRN_TRY(cairn_client_message_new(body, request->blob, request->fds, request->fd_count,
                                       &message, err));
    enum cairn_code code = send_alone(session, &wait, message, err);
    if (code == CAIRN_UPLOADER_GONE) return ended(session, code, err);
    CAIRN_TRY(code);
    while (request->wanted) {
        CAIRN_AUTO(frame) frame = {0};
        CAIRN_TRY(next_alone(session, &wait, &frame, err));
        if (is_refusal(&frame)) return cairn_client_answer_check(&frame, request->wanted, err);
        if (cairn_client_u64_of(frame.message, "id", &answered) && answered == id) {
            cairn_lock_take(&session->lock);
            session->locked.received_ms = cairn_mono_ms();
            cairn_lock_give(&session->lock);
            CAIRN_TRY(cairn_client_answer_check(&frame, request->wanted, err));
            *ret = frame;
            frame = (struct cairn_frame){0};
            return CAIRN_OK;
        }
        CAIRN_HOLD(&session->lock);
        if (!dispatch(session, &frame))
            return cairn_fail(err, CAIRN_PROTOCOL, "the uploader sent an unknown event");
    }
    return CAIRN_OK;
}

/* The journal is keyed by the node's name, so a renamed node does not find its saves. */
static void note_node(struct cairn_session *session, const char *node) {
    char *now = session->locked.node, *before = session->locked.renamed;
    if (strcmp(now, node) == 0) return;
    (void)cairn_text_copy(before, sizeof session->locked.renamed, now);
    (void)cairn_text_copy(now, sizeof session->locked.node, node);
}

enum cairn_code cairn_client_hello(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    cairn_lock_take(&session->lock);
    session->locked.uploader_pid = session->link.pid;
    cairn_lock_give(&session->lock);
    uint64_t bytes = session->bytes ? session->bytes + CAIRN_CLIENT_HEADER_BYTES : 0;
    uint64_t node_bytes =
        session->bytes ? session->node_bytes + session->local_world_size * CAIRN_CLIENT_HEADER_BYTES
                       : 0;
    CAIRN_AUTO_FD process = session->read_only ? -1 : cairn_client_process_fd();
    char trace[CAIRN_TRACE_TEXT_BYTES];
    cairn_trace_of_environment(trace);
    int numa_node = session->read_only ? -1 : cairn_numa_node(CAIRN_NUMA_FOLDER);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(
            hello, .min = session->has_run ? CAIRN_SOCKET_VERSION_MIN : VERSION_OF_NO_RUN,
            .max = CAIRN_SOCKET_VERSION_MAX, .run = session->has_run ? session->run : "",
            .rank = session->rank, .world_size = session->world_size,
            .local_world_size = session->local_world_size, .bytes = bytes, .node_bytes = node_bytes,
            .read_only = session->read_only, .proc = session->proc,
            .client = "libcairn " CAIRN_VERSION, .pid = (uint64_t)getpid(),
            .local_rank = session->local_rank, .traceparent = trace[0] ? trace : NULL,
            .numa_node = numa_node < 0 ? (uint32_t)CAIRN_MESSAGE_NONE : (uint32_t)numa_node),
        .fds = &process, .fd_count = process >= 0, .deadline_ms = deadline_ms};
    enum cairn_code code = cairn_client_call_alone(session, &request, &answer, err);
    if (code == CAIRN_INVALID && !session->has_run) /* it wants the name of a run */
        return cairn_within(err, CAIRN_UNSUPPORTED,
                            "a session without a run: the uploader is of an older release");
    CAIRN_TRY(code);
    struct cairn_msg_welcome told = {0};
    if (cairn_msg_welcome_read(answer.message, "", &told, err) != CAIRN_OK ||
        told.version < CAIRN_SOCKET_VERSION_MIN || told.version > CAIRN_SOCKET_VERSION_MAX ||
        !cairn_uuid_text_valid(cairn_view_of(told.session)))
        return cairn_fail(err, CAIRN_PROTOCOL, "welcome without a version and a session");
    CAIRN_HOLD(&session->lock);
    session->locked.version = told.version;
    memcpy(session->locked.welcome_uuid, told.session, CAIRN_UUID_TEXT_BYTES);
    note_node(session, told.node);
    if (!session->uuid[0]) memcpy(session->uuid, told.session, CAIRN_UUID_TEXT_BYTES);
    return CAIRN_OK;
}

/* ---- the session's thread ---- */

/* Reads what has arrived, sends the queue. *ret_more: not all was sent. False: the link broke. */
static bool serve_link(struct cairn_session *session, bool *ret_more) {
    cairn_lock_take(&session->lock);
    bool mine = take_reading(session, false);
    cairn_lock_give(&session->lock);
    enum cairn_code code = mine ? receive(session, NULL) : CAIRN_OK;
    cairn_lock_take(&session->lock);
    if (mine) give_reading(session, false, code != CAIRN_OK);
    cairn_lock_give(&session->lock);
    *ret_more = cairn_client_wire_send(session);
    CAIRN_HOLD(&session->lock);
    return !session->locked.cut;
}

/* more: also wakes when the socket is writable. */
static void sleep_until_woken(struct cairn_session *session, bool more, int timeout_ms) {
    uint64_t woken;
    struct pollfd wanted[2] = {{.fd = session->heard_fd, .events = POLLIN},
                               {.fd = session->link.fd, .events = POLLOUT}};
    if (poll(wanted, more ? 2 : 1, timeout_ms) > 0 && wanted[0].revents)
        if (read(session->wake_fd, &woken, sizeof woken) < 0) return;
}

static void serve_until_woken(struct cairn_session *session) {
    bool more = false;
    if (serve_link(session, &more)) {
        sleep_until_woken(session, more, -1);
        return;
    }
    close_link(session);
    CAIRN_HOLD(&session->lock);
    note_link_ended(session);
}

/* K05: true for a refusal that a retry would get again; a full journal disk is transient (Q45). */
static bool is_final(enum cairn_code code) {
    return code != CAIRN_OK && code != CAIRN_UPLOADER_GONE && code != CAIRN_CANCELLED &&
           code != CAIRN_PROTOCOL && code != CAIRN_IO && code != CAIRN_NO_MEMORY &&
           code != CAIRN_NO_SPACE && !cairn_code_info(code)->retryable;
}

static enum cairn_code connect_again(struct cairn_session *session, struct cairn_error *err) {
    bool left = false;
    CAIRN_TRY(cairn_client_link_open(session->socket, &session->link, &left, err));
    CAIRN_TRY(cairn_client_hello(session, cairn_deadline_in(&cairn_clock_real, HELLO_MS), err));
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, OFFER_MS);
    if (!session->read_only) CAIRN_TRY(session->sink->offer(session, deadline_ms, err));
    return set_heard(session, true, err);
}

/* CAIRN_OK: the state is UP again, or REFUSED. */
static enum cairn_code reconnect(struct cairn_session *session) {
    struct cairn_error why = {0};
    enum cairn_code code = connect_again(session, &why);
    if (code) cairn_client_link_close(&session->link);
    CAIRN_HOLD(&session->lock);
    /* An absent uploader is expected, so no reason is kept; a lack of descriptors, or an uploader
     * that refuses the session, is reported. */
    session->locked.turned_away = code && !why.os_errno && code != CAIRN_UPLOADER_GONE;
    snprintf(session->locked.away_why, sizeof(session->locked.away_why), "%s",
             code && (why.os_errno || session->locked.turned_away) ? why.message : "");
    if (code && !is_final(code)) return code;
    if (code) {
        session->locked.refusal = why;
        session->locked.refusal.code = code;
        session->locked.state = CAIRN_CLIENT_REFUSED;
        session->sink->refused(session);
    } else {
        session->locked.state = CAIRN_CLIENT_UP;
        session->locked.epoch++;
        session->sink->up(session);
    }
    cairn_client_changed(session);
    return CAIRN_OK;
}

static void *session_main(void *argument) {
    struct cairn_session *session = argument;
    uint64_t retry_ms = RETRY_MS_MIN;
    for (;;) {
        cairn_lock_take(&session->lock);
        enum cairn_client_state state = session->locked.state;
        bool stop = session->locked.stop, leaving = session->locked.leaving;
        bool heard = session->locked.heard && state == CAIRN_CLIENT_UP;
        if (heard) session->locked.heard = false;
        cairn_lock_give(&session->lock);
        if (stop) return NULL;
        if (heard) session->sink->finish(session);
        if (state == CAIRN_CLIENT_UP) {
            retry_ms = RETRY_MS_MIN;
            serve_until_woken(session);
        } else if (state == CAIRN_CLIENT_REFUSED || leaving) {
            sleep_until_woken(session, false, -1);
        } else if (reconnect(session) == CAIRN_OK) {
            session->sink->finish(session);
        } else {
            sleep_until_woken(session, false, (int)retry_ms);
            retry_ms = cairn_min_u64(retry_ms * 2, RETRY_MS_MAX);
        }
    }
}

enum cairn_code cairn_client_thread_start(struct cairn_session *session, struct cairn_error *err) {
    struct epoll_event event = {.events = EPOLLIN};
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->heard_fd = epoll_create1(EPOLL_CLOEXEC);
    if (session->wake_fd < 0 || session->heard_fd < 0 ||
        epoll_ctl(session->heard_fd, EPOLL_CTL_ADD, session->wake_fd, &event))
        return cairn_fail_errno(err, "create an eventfd and an epoll descriptor");
    CAIRN_TRY(set_heard(session, true, err));
    int failed = cairn_client_thread(&session->thread, NULL, session_main, session);
    if (failed)
        return cairn_fail_at(err, CAIRN_NO_MEMORY, failed, CAIRN_ORIGIN,
                             "start the session's thread");
    session->thread_started = true;
    return CAIRN_OK;
}

void cairn_client_session_stop(struct cairn_session *session) {
    cairn_lock_take(&session->lock);
    session->locked.stop = true;
    cairn_client_changed(session);
    cairn_lock_give(&session->lock);
    cairn_client_wake(session);
    if (session->thread_started) pthread_join(session->thread, NULL);
    session->thread_started = false;
    close_link(session);
    cairn_lock_take(&session->lock);
    note_link_ended(session);
    while (session->locked.calls) /* none of them waits any more; one may still copy */
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    cairn_lock_give(&session->lock);
    if (session->wake_fd >= 0) close(session->wake_fd); /* no call can wake the thread any more */
    if (session->heard_fd >= 0) close(session->heard_fd);
    session->wake_fd = session->heard_fd = -1;
}
