/* SPDX-License-Identifier: Apache-2.0 */
/* Sending without waiting is done here and not by cairn_net_send, which waits for room: the I/O
 * thread must go on reading while the uploader is slow to read. */
#include "client/session/link.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "client/session/process.h"
#include "common/clock.h"
#include "common/text.h"

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
    /* Another user could have put a socket of its own there, and would get all that is staged. */
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

enum cairn_code cairn_client_link_flush(struct cairn_client_link *link,
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

enum cairn_code cairn_client_link_next(struct cairn_client_link *link, struct cairn_frame *ret,
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

/* CAIRN_OK: look again. */
static enum cairn_code await(struct cairn_client_link *link, short events, uint64_t deadline_ms,
                             struct cairn_error *err) {
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
    if (!left_ms) return cairn_fail(err, CAIRN_TIMEOUT, "the uploader did not answer in time");
    struct pollfd wanted = {.fd = link->fd, .events = events};
    const sigset_t *signals = link->interruptible ? link->signals : NULL;
    if (cairn_client_poll(&wanted, cairn_min_u64(left_ms, 60000), signals) >= 0) return CAIRN_OK;
    if (errno != EINTR) return cairn_fail_errno(err, "poll the uploader's socket");
    if (link->interruptible)
        return cairn_fail(err, CAIRN_INTERRUPTED, "a signal came while libcairn waited");
    return CAIRN_OK;
}

enum cairn_code cairn_client_link_send(struct cairn_client_link *link,
                                       struct cairn_client_message *message, uint64_t deadline_ms,
                                       struct cairn_error *err) {
    for (;;) {
        bool done = false;
        CAIRN_TRY(cairn_client_link_flush(link, message, &done, err));
        if (done) return CAIRN_OK;
        CAIRN_TRY(await(link, POLLOUT, deadline_ms, err));
    }
}

enum cairn_code cairn_client_link_wait(struct cairn_client_link *link, uint64_t deadline_ms,
                                       struct cairn_frame *ret, struct cairn_error *err) {
    for (;;) {
        bool ready = false;
        CAIRN_TRY(cairn_client_link_next(link, ret, &ready, err));
        if (ready) return CAIRN_OK;
        CAIRN_TRY(await(link, POLLIN, deadline_ms, err));
    }
}

const char *cairn_client_text_of(const json_t *message, const char *field) {
    return json_string_value(json_object_get(message, field));
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
