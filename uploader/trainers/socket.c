/* SPDX-License-Identifier: Apache-2.0 */
/* The socket's thread: connections, incoming frames, outgoing mail. */
#include "uploader/trainers/socket.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/file.h"
#include "uploader/trainers/inside.h"

#define EVENTS_MAX 64
#define FRAMES_MAX 64
#define SWEEP_MS 1000

struct out { /* one outgoing frame */
    struct out *next;
    struct cairn_buf bytes;
    size_t sent;
    int fds[CAIRN_NET_FDS_MAX];
    size_t fd_count;
};
struct conn {
    struct conn *next;
    uint64_t number;
    int fd;
    struct cairn_frame_reader reader;
    struct cairn_up_making making;
    struct cairn_up_session *session;
    struct out *first, **last;
    size_t out_bytes;
    uint64_t stalled_since_ms; /* 0: no stall */
    bool writing;              /* EPOLLOUT is requested */
    bool waiting;              /* no EPOLLIN: its frame waits for room (socket.h#4) */
    bool hanging_up, dead;
};
struct cairn_up_socket {
    struct cairn_up *up;
    int epoll_fd, listen_fd;
    struct cairn_up_thread thread;
    struct conn *conns;
    struct cairn_up_makings makings;
    size_t conn_count;
    uint64_t numbered;
    uint64_t accept_again_ms; /* after a failure; 0: accepting */
    uint64_t look_ms, frames_look_ms;
    struct cairn_lock lock; /* uploader_mail */
    struct {
        bool stopping, not_accepting;
    } locked;
};

static void out_free(struct out *out) {
    cairn_buf_release(&out->bytes);
    for (size_t i = 0; i < out->fd_count; i++) close(out->fds[i]);
    free(out);
}

static void watch_for(struct cairn_up_socket *box, struct conn *conn, bool writing, bool waiting) {
    if (conn->writing == writing && conn->waiting == waiting) return;
    struct epoll_event event = {.events = (waiting ? 0 : EPOLLIN) | (writing ? EPOLLOUT : 0),
                                .data.ptr = conn};
    if (epoll_ctl(box->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event)) return;
    conn->writing = writing;
    conn->waiting = waiting;
}

static void watch(struct cairn_up_socket *box, struct conn *conn, bool writing) {
    watch_for(box, conn, writing, conn->waiting);
}

static ssize_t send_some(struct conn *conn, struct out *out) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * CAIRN_NET_FDS_MAX)];
    } control;
    memset(&control, 0, sizeof(control));
    struct iovec part = {out->bytes.data + out->sent, out->bytes.size - out->sent};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (out->fd_count && !out->sent) {
        size_t size = out->fd_count * sizeof(int);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = (socklen_t)CMSG_LEN(size);
        memcpy(CMSG_DATA(&control.header), out->fds, size);
        message.msg_control = control.bytes;
        message.msg_controllen = (socklen_t)CMSG_SPACE(size);
    }
    return sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void flush(struct cairn_up_socket *box, struct conn *conn) {
    while (conn->first && !conn->dead) {
        struct out *out = conn->first;
        ssize_t sent = send_some(conn, out);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) {
            conn->dead = true;
            return;
        }
        if (sent < 0) {
            if (!conn->stalled_since_ms) conn->stalled_since_ms = cairn_mono_ms();
            watch(box, conn, true);
            return;
        }
        conn->stalled_since_ms = 0;
        out->sent += (size_t)sent;
        conn->out_bytes -= (size_t)sent;
        if (out->sent < out->bytes.size) continue;
        conn->first = out->next;
        if (!conn->first) conn->last = &conn->first;
        out_free(out);
    }
    watch(box, conn, false);
    if (conn->hanging_up) conn->dead = true;
}

static enum cairn_code encode(const json_t *message, struct out *out, struct cairn_error *err) {
    if (!out) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a frame");
    out->bytes.limit = CAIRN_FRAME_JSON_BYTES_MAX + 64;
    return cairn_frame_encode(message, (struct cairn_view){NULL, 0}, &out->bytes, err);
}

/* A too large answer fails its request, not the session, where a save may await its seal. */
static enum cairn_code encode_refusal(const json_t *message, struct out *out,
                                      struct cairn_error *err) {
    json_t *id = json_object_get(message, "id");
    if (!id) return err->code;
    json_t *refusal = CAIRN_PACK(error, CAIRN_PACK_WHY(err, message), .retryable = false);
    enum cairn_code code = refusal && json_object_set(refusal, "id", id) == 0
                               ? encode(refusal, out, err)
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a refusal");
    json_decref(refusal);
    return code;
}

/* Queues the frame; its descriptors are closed after sending. */
static void queue(struct cairn_up_socket *box, struct conn *conn,
                  struct cairn_up_message *message) {
    struct out *out = calloc(1, sizeof(*out));
    struct cairn_error error = {0};
    enum cairn_code code = encode(message->message, out, &error);
    if (code == CAIRN_TOO_LARGE) code = encode_refusal(message->message, out, &error);
    if (code != CAIRN_OK) {
        cairn_log(ERROR, "socket.encode", "conn=%" PRIu64 " cause=\"%s\"", conn->number,
                  error.message);
        conn->dead = true;
        if (out) out_free(out);
        return;
    }
    memcpy(out->fds, message->fds, sizeof(out->fds));
    out->fd_count = message->fd_count;
    message->fd_count = 0;
    conn->out_bytes += out->bytes.size;
    *conn->last = out;
    conn->last = &out->next;
    if (conn->out_bytes > CAIRN_UP_OUT_BYTES_MAX) conn->dead = true;
    flush(box, conn);
}

static void conn_end(struct cairn_up_socket *box, struct conn *conn) {
    cairn_up_session_end(conn->session);
    cairn_up_making_remove(&box->makings, &conn->making);
    epoll_ctl(box->epoll_fd, EPOLL_CTL_DEL, conn->fd, NULL);
    close(conn->fd);
    cairn_frame_reader_release(&conn->reader);
    for (struct out *out = conn->first, *next; out; out = next) {
        next = out->next;
        out_free(out);
    }
    free(conn);
    box->conn_count--;
}

static struct conn *conn_find(struct cairn_up_socket *box, uint64_t number) {
    for (struct conn *at = box->conns; at; at = at->next) {
        if (at->number == number && !at->dead) return at;
    }
    return NULL;
}

static bool uid_allowed(const struct cairn_up_places *places, uid_t uid) {
    for (size_t i = 0; i < places->uid_count; i++) {
        if (places->uids[i] == uid) return true;
    }
    return places->any_uid;
}

static enum cairn_code conn_new(struct cairn_up_socket *box, int fd, struct cairn_error *err) {
    uid_t uid = 0;
    pid_t pid = 0;
    CAIRN_TRY(cairn_net_peer_uid(fd, &uid, &pid, err));
    if (!uid_allowed(&box->up->places, uid))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "user %u may not connect to the uploader of node %s: its setting "
                          "allow_uids does not name that user",
                          uid, box->up->places.node);
    if (box->conn_count >= box->up->settings.connections_max)
        return cairn_fail(err, CAIRN_BUSY,
                          "trainers connected: %zu, which is all (connections_max)",
                          box->conn_count);
    struct conn *conn = calloc(1, sizeof(*conn));
    if (!conn) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a connection");
    conn->number = ++box->numbered;
    conn->last = &conn->first;
    conn->fd = -1;
    enum cairn_code code =
        cairn_up_session_new(box->up, conn->number, uid, pid, &conn->session, err);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (code == CAIRN_OK && epoll_ctl(box->epoll_fd, EPOLL_CTL_ADD, fd, &event))
        code = cairn_fail_errno(err, "epoll");
    if (code != CAIRN_OK) {
        cairn_up_session_end(conn->session);
        free(conn);
        return code;
    }
    conn->fd = fd;
    conn->session->process = cairn_net_peer_process(fd);
    conn->reader.bytes_max = CAIRN_UP_SMALL_FRAME_BYTES;
    cairn_up_making_add(&box->makings, &conn->making, uid, conn);
    conn->next = box->conns;
    box->conns = conn;
    box->conn_count++;
    return CAIRN_OK;
}

static void accept_all(struct cairn_up_socket *box) {
    for (;;) {
        int fd = -1;
        struct cairn_error error = {0};
        if (cairn_net_accept(box->listen_fd, &fd, &error) != CAIRN_OK) {
            /* K08: callers remain queued, and epoll would report them without a pause. */
            uint64_t now_ms = cairn_mono_ms(), unsaid = 0;
            if (cairn_log_limit_allows(&box->up->log_limit, error.message, now_ms, &unsaid))
                cairn_log(WARN, "socket.accept", "cause=\"%s\" unsaid=%" PRIu64, error.message,
                          unsaid);
            box->accept_again_ms = now_ms + CAIRN_NET_ACCEPT_PAUSE_MS;
            struct epoll_event event = {.events = 0, .data.ptr = &box->listen_fd};
            epoll_ctl(box->epoll_fd, EPOLL_CTL_MOD, box->listen_fd, &event);
            return;
        }
        if (fd < 0) return;
        if (conn_new(box, fd, &error) == CAIRN_OK) continue;
        uint64_t unsaid = 0;
        if (cairn_log_limit_allows(&box->up->log_limit, error.message, cairn_mono_ms(), &unsaid))
            cairn_log(WARN, "socket.refused", "cause=\"%s\" unsaid=%" PRIu64, error.message,
                      unsaid);
        /* Sends the reason before closing. Reading what the caller sent would take memory. */
        CAIRN_AUTO(buf) bytes = {.limit = CAIRN_FRAME_JSON_BYTES_MAX + 64};
        CAIRN_AUTO_JSON json_t *message =
            CAIRN_PACK(error, CAIRN_PACK_WHY(&error, message),
                       .retryable = cairn_code_info(error.code)->retryable);
        const struct cairn_view none = {NULL, 0};
        if (message && cairn_frame_encode(message, none, &bytes, NULL) == CAIRN_OK)
            (void)!cairn_net_send(fd, cairn_buf_view(&bytes), NULL, 0, cairn_mono_ms(), NULL);
        close(fd);
    }
}

/* ---- frames ---- */

static void carry_out(struct cairn_up_socket *box, struct cairn_up_message *message,
                      struct conn *conn) {
    if (conn && message->hang_up) {
        conn->hanging_up = true;
        flush(box, conn);
    } else if (conn) {
        queue(box, conn, message);
    }
    cairn_up_message_free(message);
}

static void carry_out_all(struct cairn_up_socket *box, struct cairn_up_mail_item *item) {
    for (struct cairn_up_mail_item *next; item; item = next) {
        next = item->next;
        struct conn *conn = conn_find(box, item->conn);
        if (item->run)
            item->run(item->owner, conn ? conn->session : NULL); /* run takes the item */
        else
            carry_out(box, (struct cairn_up_message *)item, conn);
    }
}

static void read_mail(struct cairn_up_socket *box) {
    struct cairn_up_mail_item *item = cairn_up_mail_take(box->up->mail);
    if (cairn_up_mail_was_woken(box->up->mail)) box->look_ms = 0;
    carry_out_all(box, item);
    struct cairn_up_undelivered undelivered;
    cairn_up_mail_undelivered(box->up->mail, &undelivered);
    for (struct conn *conn = box->conns; conn && (undelivered.all || undelivered.count);
         conn = conn->next) {
        bool named = undelivered.all;
        for (size_t i = 0; i < undelivered.count; i++)
            named |= undelivered.conns[i] == conn->number;
        if (!named || conn->dead) continue;
        cairn_log(ERROR, "socket.untold", "conn=%" PRIu64 " cause=\"no memory for a message\"",
                  conn->number);
        conn->dead = true;
    }
}

/* Runs on another thread while the socket's thread sleeps (U11). */
static bool speak(void *owner) {
    struct cairn_up_socket *box = owner;
    struct cairn_up_mail_item *item = cairn_up_mail_take_spoken(box->up->mail);
    bool fine = item != NULL;
    for (struct cairn_up_mail_item *next; item; item = next) {
        next = item->next;
        struct conn *conn = conn_find(box, item->conn);
        carry_out(box, (struct cairn_up_message *)item, conn);
        fine &= !conn || !conn->dead; /* the socket's thread frees dead connections */
    }
    return fine;
}

static void break_off(struct cairn_up_socket *box, struct conn *conn,
                      const struct cairn_error *why) {
    uint64_t unsaid = 0;
    conn->dead = true;
    if (cairn_log_limit_allows(&box->up->log_limit, why->message, cairn_mono_ms(), &unsaid))
        cairn_log(WARN, "session.broken", "conn=%" PRIu64 " cause=\"%s\" unsaid=%" PRIu64,
                  conn->number, why->message, unsaid);
}

/* Reads more of a frame, as far as memory for large frames allows. */
static enum cairn_code fill_frame(struct cairn_up_socket *box, struct conn *conn, bool *ret_closed,
                                  struct cairn_error *err) {
    size_t had = conn->reader.bytes.size;
    CAIRN_TRY(cairn_frame_fill(&conn->reader, conn->fd, ret_closed, err));
    if (conn->reader.bytes.size != had) conn->making.quiet_looks = 0;
    size_t size = cairn_frame_under_way(&conn->reader);
    if (size <= conn->reader.bytes_max) return CAIRN_OK;
    if (!conn->session->greeted)
        return cairn_fail(err, CAIRN_PROTOCOL, "a frame of more than %u KiB before hello",
                          (unsigned)(CAIRN_UP_SMALL_FRAME_BYTES / CAIRN_KIB));
    bool fits = cairn_up_making_begin(&box->makings, &conn->making, size);
    if (fits) conn->reader.bytes_max = size;
    watch_for(box, conn, conn->writing, !fits);
    return fits ? cairn_frame_fill(&conn->reader, conn->fd, ret_closed, err) : CAIRN_OK;
}

/* Its frame was carried out, or its connection ended: waiting frames may begin. */
static void let_others(struct cairn_up_socket *box) {
    for (struct cairn_up_making *making; (making = cairn_up_making_next(&box->makings));) {
        struct conn *conn = making->owner;
        conn->reader.bytes_max = making->reserved_bytes;
        watch_for(box, conn, conn->writing, false);
    }
}

static void frame_over(struct cairn_up_socket *box, struct conn *conn) {
    conn->reader.bytes_max = CAIRN_UP_SMALL_FRAME_BYTES;
    if (!conn->making.reserved_bytes) return;
    cairn_up_making_end(&conn->making);
    let_others(box);
}

/* Handles a bounded number of frames, so that a busy trainer does not delay others. */
static void read_conn(struct cairn_up_socket *box, struct conn *conn) {
    bool closed = false, ready = true;
    struct cairn_error error = {0};
    cairn_up_mail_begin(box->up->mail); /* the answers are sent at the end below */
    for (int i = 0; i < FRAMES_MAX && !closed && !conn->dead && ready; i++) {
        enum cairn_code code = fill_frame(box, conn, &closed, &error);
        CAIRN_AUTO(frame) frame = {0};
        if (code == CAIRN_OK) code = cairn_frame_next(&conn->reader, &frame, &ready, &error);
        if (code == CAIRN_OK && ready) code = cairn_up_session_frame(conn->session, &frame, &error);
        if (code == CAIRN_OK && ready) frame_over(box, conn);
        if (code != CAIRN_OK) break_off(box, conn, &error);
    }
    carry_out_all(box, cairn_up_mail_end_own(box->up->mail));
    cairn_up_queue_wake_due(box->up->queue);
    if (closed) conn->dead = true;
}

uint64_t cairn_up_socket_sessions(const struct cairn_up_socket *box) {
    uint64_t count = 0;
    for (const struct conn *at = box->conns; at; at = at->next)
        count += !at->dead && at->session->greeted;
    return count;
}

/* U03: in a folder that others may write to, they could replace the socket. */
static enum cairn_code check_folder(const char *path, struct cairn_error *err) {
    char folder[108] = ".";
    const char *slash = strrchr(path, '/');
    if (slash) {
        size_t length = slash == path ? 1 : (size_t)(slash - path);
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    CAIRN_TRY(cairn_dir_make(folder, 0755, err));
    struct stat status;
    if (stat(folder, &status)) return cairn_fail_errno(err, "the socket's folder %s", folder);
    bool ours = status.st_uid == geteuid() || status.st_uid == 0;
    bool open_to_all = (status.st_mode & S_IWOTH) && !(status.st_mode & S_ISVTX);
    if (!ours || open_to_all)
        return cairn_fail(
            err, CAIRN_FORBIDDEN,
            "the socket's folder %s must belong to this user and not be writable by all", folder);
    return CAIRN_OK;
}

static enum cairn_code listen_at_name(struct cairn_up_socket *box, struct cairn_error *err) {
    const char *path = box->up->places.socket_path;
    CAIRN_AUTO_FD fd = -1;
    CAIRN_TRY(check_folder(path, err));
    CAIRN_TRY(cairn_net_listen_unix(path, 0666, &fd, err));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &box->listen_fd};
    if (epoll_ctl(box->epoll_fd, EPOLL_CTL_ADD, fd, &event)) return cairn_fail_errno(err, "epoll");
    box->listen_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* U06: a cleanup deletes temporary files. Callers queued at the old socket are served first. */
static void look_at_name(struct cairn_up_socket *box) {
    struct stat status;
    struct cairn_error error = {0};
    uint64_t unsaid = 0;
    if (box->listen_fd < 0 || lstat(box->up->places.socket_path, &status) == 0 || errno != ENOENT)
        return;
    accept_all(box);
    int old_fd = box->listen_fd;
    if (listen_at_name(box, &error) != CAIRN_OK) {
        if (cairn_log_limit_allows(&box->up->log_limit, error.message, cairn_mono_ms(), &unsaid))
            cairn_log(ERROR, "socket.gone", "path=%s cause=\"%s\" unsaid=%" PRIu64,
                      box->up->places.socket_path, error.message, unsaid);
        return;
    }
    close(old_fd); /* also removes it from epoll */
    box->accept_again_ms = 0;
    cairn_log(WARN, "socket.made_again", "path=%s", box->up->places.socket_path);
}

/* socket.h#5 */
static void look_at_frame(struct cairn_up_socket *box, struct conn *conn) {
    struct cairn_error why = {0};
    bool greeted = conn->session->greeted;
    if (!cairn_up_making_look(&conn->making, !greeted || conn->reader.bytes.size)) return;
    (void)cairn_fail(&why, CAIRN_PROTOCOL,
                     greeted ? "nothing more of a frame came in %d s" : "no hello came in %d s",
                     CAIRN_UP_FRAME_QUIET_LOOKS * SWEEP_MS / 1000);
    break_off(box, conn, &why);
}

static void sweep(struct cairn_up_socket *box) {
    uint64_t now_ms = cairn_mono_ms();
    size_t before = box->conn_count;
    bool look = now_ms >= box->look_ms, looks_at_frames = now_ms >= box->frames_look_ms;
    if (look) box->look_ms = now_ms + SWEEP_MS;
    if (looks_at_frames) box->frames_look_ms = now_ms + SWEEP_MS;
    if (look) look_at_name(box);
    struct conn **at = &box->conns;
    while (*at) {
        struct conn *conn = *at;
        if (conn->stalled_since_ms && now_ms - conn->stalled_since_ms > CAIRN_UP_OUT_STALL_MS)
            conn->dead = true;
        if (!conn->dead && looks_at_frames) look_at_frame(box, conn);
        if (!conn->dead) {
            if (look) cairn_up_session_tick(conn->session);
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        conn_end(box, conn);
    }
    if (box->conn_count < before) let_others(box);
    if (box->accept_again_ms && now_ms >= box->accept_again_ms && box->listen_fd >= 0) {
        box->accept_again_ms = 0;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &box->listen_fd};
        epoll_ctl(box->epoll_fd, EPOLL_CTL_MOD, box->listen_fd, &event);
    }
}

static bool stopping(struct cairn_up_socket *box) {
    CAIRN_HOLD(&box->lock);
    if (box->locked.not_accepting && box->listen_fd >= 0) {
        epoll_ctl(box->epoll_fd, EPOLL_CTL_DEL, box->listen_fd, NULL);
        close(box->listen_fd);
        box->listen_fd = -1;
    }
    return box->locked.stopping;
}

static void *socket_main(void *argument) {
    struct cairn_up_socket *box = argument;
    struct epoll_event events[EVENTS_MAX];
    while (!stopping(box)) {
        cairn_up_mail_sleeps(box->up->mail);
        int count = epoll_wait(box->epoll_fd, events, EVENTS_MAX,
                               box->accept_again_ms ? CAIRN_NET_ACCEPT_PAUSE_MS : SWEEP_MS);
        cairn_up_mail_is_awake(box->up->mail);
        for (int i = 0; i < count; i++) {
            void *which = events[i].data.ptr;
            if (which == &box->listen_fd) {
                accept_all(box);
            } else if (which == box->up->mail) {
                read_mail(box);
            } else {
                struct conn *conn = which;
                if (events[i].events & EPOLLOUT) flush(box, conn);
                if (conn->waiting && (events[i].events & (EPOLLHUP | EPOLLERR))) {
                    /* Reads what an ended trainer left in the kernel's buffer, which is small. */
                    cairn_up_making_end(&conn->making);
                    conn->reader.bytes_max = cairn_frame_under_way(&conn->reader);
                    watch_for(box, conn, conn->writing, false);
                }
                if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_conn(box, conn);
            }
        }
        sweep(box);
    }
    for (struct conn *conn = box->conns, *next; conn; conn = next) {
        next = conn->next;
        conn_end(box, conn);
    }
    box->conns = NULL;
    return NULL;
}

enum cairn_code cairn_up_socket_new(struct cairn_up *up, struct cairn_up_socket **ret,
                                    struct cairn_error *err) {
    struct cairn_up_socket *box = calloc(1, sizeof(*box));
    if (!box) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the socket");
    cairn_lock_init(&box->lock, CAIRN_LOCK_uploader_mail);
    box->up = up;
    box->listen_fd = -1;
    cairn_up_makings_init(&box->makings, up->budget.total_bytes);
    box->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = up->mail};
    if (box->epoll_fd < 0 ||
        epoll_ctl(box->epoll_fd, EPOLL_CTL_ADD, cairn_up_mail_fd(up->mail), &event)) {
        enum cairn_code code = cairn_fail_errno(err, "epoll");
        cairn_up_socket_free(box);
        return code;
    }
    cairn_up_mail_speaker(up->mail, speak, box);
    *ret = box;
    return CAIRN_OK;
}

enum cairn_code cairn_up_socket_start(struct cairn_up_socket *box, struct cairn_error *err) {
    CAIRN_TRY(listen_at_name(box, err));
    return cairn_up_thread_start(&box->thread, socket_main, box, "the socket", err);
}

void cairn_up_socket_stop_accepting(struct cairn_up_socket *box) {
    cairn_lock_take(&box->lock);
    box->locked.not_accepting = true;
    cairn_lock_give(&box->lock);
    cairn_up_mail_wake(box->up->mail);
}

void cairn_up_socket_stop(struct cairn_up_socket *box) {
    if (!box || !box->thread.started) return;
    cairn_lock_take(&box->lock);
    box->locked.stopping = true;
    cairn_lock_give(&box->lock);
    cairn_up_mail_wake(box->up->mail);
    cairn_up_thread_join(&box->thread);
    unlink(box->up->places.socket_path);
}

void cairn_up_socket_free(struct cairn_up_socket *box) {
    if (!box) return;
    cairn_up_socket_stop(box);
    if (box->listen_fd >= 0) close(box->listen_fd);
    if (box->epoll_fd >= 0) close(box->epoll_fd);
    cairn_lock_release(&box->lock);
    free(box);
}

/* ---- incomplete frames ---- */

/* A linear list: large frames are few, and each costs far more than the scan. */

#define FRAME_BYTES_MAX (CAIRN_FRAME_JSON_BYTES_MAX + CAIRN_FRAME_BLOB_BYTES_MAX + CAIRN_KIB)

void cairn_up_makings_init(struct cairn_up_makings *makings, uint64_t budget_bytes) {
    uint64_t bytes = cairn_min_u64(budget_bytes / 8, CAIRN_UP_FRAMES_BYTES_MAX);
    *makings = (struct cairn_up_makings){.bytes_max = cairn_max_u64(bytes, FRAME_BYTES_MAX)};
}

void cairn_up_making_add(struct cairn_up_makings *makings, struct cairn_up_making *making,
                         uid_t uid, void *owner) {
    *making = (struct cairn_up_making){.uid = uid, .owner = owner, .next = makings->first};
    makings->first = making;
}

void cairn_up_making_remove(struct cairn_up_makings *makings, struct cairn_up_making *making) {
    struct cairn_up_making **at = &makings->first;
    while (*at && *at != making) at = &(*at)->next;
    if (*at) *at = making->next;
}

/* True when no earlier frame of the user waits, and this one fits beside those being read. */
static bool may_begin(const struct cairn_up_makings *makings,
                      const struct cairn_up_making *making) {
    uint64_t bytes = making->wanted_bytes;
    for (const struct cairn_up_making *at = makings->first; at; at = at->next) {
        if (at == making || at->uid != making->uid) continue;
        if (at->wanted_bytes && at->turn < making->turn) return false;
        bytes += at->reserved_bytes;
    }
    return bytes <= makings->bytes_max;
}

static bool reserve_frame(const struct cairn_up_makings *makings, struct cairn_up_making *making) {
    if (!may_begin(makings, making)) return false;
    making->reserved_bytes = making->wanted_bytes;
    making->wanted_bytes = 0;
    return true;
}

bool cairn_up_making_begin(struct cairn_up_makings *makings, struct cairn_up_making *making,
                           uint64_t frame_bytes) {
    CAIRN_ASSERT(frame_bytes <= FRAME_BYTES_MAX);
    if (frame_bytes <= CAIRN_UP_SMALL_FRAME_BYTES || making->reserved_bytes) return true;
    if (!making->wanted_bytes) making->turn = ++makings->turns;
    making->wanted_bytes = frame_bytes;
    return reserve_frame(makings, making);
}

void cairn_up_making_end(struct cairn_up_making *making) {
    making->reserved_bytes = making->wanted_bytes = 0;
}

struct cairn_up_making *cairn_up_making_next(struct cairn_up_makings *makings) {
    for (struct cairn_up_making *at = makings->first; at; at = at->next)
        if (at->wanted_bytes && reserve_frame(makings, at)) return at;
    return NULL;
}

bool cairn_up_making_look(struct cairn_up_making *making, bool under_way) {
    if (!under_way || making->wanted_bytes) making->quiet_looks = 0;
    return under_way && !making->wanted_bytes && ++making->quiet_looks > CAIRN_UP_FRAME_QUIET_LOOKS;
}
