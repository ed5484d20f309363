/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net: Unix sockets with descriptors, TCP listeners. All sockets are non-blocking and
 * close-on-exec; only cairn_net_send (up to its deadline) and a claim (a tenth of a second) wait.
 */
#include "common/net.h"

#include <arpa/inet.h>
#include <limits.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"

#define SOCKET_FLAGS (SOCK_CLOEXEC | SOCK_NONBLOCK)
#define CLAIM_TRIES 10
#define GONE_IN_A_ROW_MAX 16
#define CLAIM_PAUSE_MS 10

/* ---- Unix sockets ---- */

static enum cairn_code unix_address(const char *path, struct sockaddr_un *ret,
                                    struct cairn_error *err) {
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (*path == '\0' || !cairn_text_copy(ret->sun_path, sizeof ret->sun_path, path))
        return cairn_fail(err, CAIRN_INVALID, "socket path \"%s\": 1 to %zu bytes are possible",
                          path, sizeof ret->sun_path - 1);
    return CAIRN_OK;
}

static enum cairn_code unix_socket(int *ret_fd, struct cairn_error *err) {
    *ret_fd = socket(AF_UNIX, SOCK_STREAM | SOCKET_FLAGS, 0);
    return *ret_fd < 0 ? cairn_fail_errno(err, "create a Unix socket") : CAIRN_OK;
}

/* net.h#2: only a socket that refuses connections is stale. Links and files are never removed. */
static enum cairn_code remove_stale(const char *path, struct cairn_error *err) {
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? CAIRN_OK : cairn_fail_errno(err, "look at %s", path);
    if (!S_ISSOCK(status.st_mode))
        return cairn_fail(err, CAIRN_CONFLICT, "%s exists and is no socket", path);
    CAIRN_AUTO_FD probe = -1;
    struct cairn_error why = {0};
    enum cairn_code code = cairn_net_connect_unix(path, &probe, &why);
    bool answers = code == CAIRN_OK || (code == CAIRN_BUSY && !why.os_errno);
    if (answers) return cairn_fail(err, CAIRN_CONFLICT, "another process answers on %s", path);
    if (code != CAIRN_UNAVAILABLE && code != CAIRN_NOT_FOUND) return cairn_pass(err, code, &why);
    if (unlink(path) != 0 && errno != ENOENT)
        return cairn_fail_errno(err, "remove the stale socket %s", path);
    return CAIRN_OK;
}

enum cairn_code cairn_net_listen_unix(const char *path, unsigned mode, int *ret_fd,
                                      struct cairn_error *err) {
    struct sockaddr_un address;
    CAIRN_TRY(unix_address(path, &address, err));
    CAIRN_TRY(remove_stale(path, err));
    CAIRN_AUTO_FD fd = -1;
    CAIRN_TRY(unix_socket(&fd, err));
    /* bind creates the name with the descriptor's mode less umask, so no stranger can ever connect;
     * chmod then adds the bits that umask removed. */
    if (fchmod(fd, mode) != 0) return cairn_fail_errno(err, "mode of the socket %s", path);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return cairn_fail_errno(err, "bind %s", path);
    if (chmod(path, mode) != 0) return cairn_fail_errno(err, "mode of the socket %s", path);
    if (listen(fd, SOMAXCONN) != 0) return cairn_fail_errno(err, "listen on %s", path);
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

enum cairn_code cairn_net_connect_unix(const char *path, int *ret_fd, struct cairn_error *err) {
    struct sockaddr_un address;
    CAIRN_TRY(unix_address(path, &address, err));
    CAIRN_AUTO_FD fd = -1;
    CAIRN_TRY(unix_socket(&fd, err));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        if (errno == EAGAIN)
            return cairn_fail(err, CAIRN_BUSY, "too many callers wait on %s", path);
        if (errno == ENOENT || errno == ENOTDIR)
            return cairn_fail(err, CAIRN_NOT_FOUND, "there is no socket %s", path);
        if (errno == ECONNREFUSED)
            return cairn_fail(err, CAIRN_UNAVAILABLE, "nothing listens on %s", path);
        return cairn_fail_errno(err, "connect to %s", path);
    }
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* ---- names ---- */

/* Checks the user of the process that listens at the name. CAIRN_BUSY: no process listens, since
 * the name is being claimed or released, or its holder never listens. */
static enum cairn_code claim_holder(const char *name, const struct sockaddr_un *address,
                                    socklen_t size, struct cairn_error *err) {
    CAIRN_AUTO_FD probe = -1;
    uid_t uid = 0;
    pid_t pid = 0;
    CAIRN_TRY(unix_socket(&probe, err));
    if (connect(probe, (const struct sockaddr *)address, size) != 0)
        return cairn_fail(err, errno == ECONNREFUSED ? CAIRN_BUSY : CAIRN_FORBIDDEN,
                          "%s is held by a process that does not say who it is", name);
    CAIRN_TRY(cairn_net_peer_uid(probe, &uid, &pid, err));
    return cairn_fail(err, uid == geteuid() || uid == 0 ? CAIRN_CONFLICT : CAIRN_FORBIDDEN,
                      "%s is held by process %d of user %u", name, (int)pid, uid);
}

enum cairn_code cairn_net_claim(const char *name, int *ret_fd, struct cairn_error *err) {
    enum cairn_code code = CAIRN_BUSY;
    /* An abstract name needs no shared folder and vanishes with its socket. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!cairn_text_copy(address.sun_path + 1, sizeof address.sun_path - 1, name))
        return cairn_fail(err, CAIRN_INVALID, "the name \"%s\" is too long", name);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    for (int i = 0; i < CLAIM_TRIES && code == CAIRN_BUSY; i++) {
        CAIRN_AUTO_FD fd = -1;
        CAIRN_TRY(unix_socket(&fd, err));
        if (bind(fd, (struct sockaddr *)&address, size) == 0) {
            if (listen(fd, SOMAXCONN) != 0) return cairn_fail_errno(err, "listen on %s", name);
            *ret_fd = fd;
            fd = -1;
            return CAIRN_OK;
        }
        if (errno != EADDRINUSE) return cairn_fail_errno(err, "claim the name %s", name);
        if (i) (void)poll(NULL, 0, CLAIM_PAUSE_MS);
        code = claim_holder(name, &address, size, err);
    }
    if (code == CAIRN_BUSY && err) err->code = CAIRN_FORBIDDEN;
    return code == CAIRN_BUSY ? CAIRN_FORBIDDEN : code;
}

void cairn_net_claim_clear(int fd) {
    for (int asked; (asked = accept4(fd, NULL, NULL, SOCKET_FLAGS)) >= 0;) close(asked);
}

enum cairn_code cairn_net_accept(int listen_fd, int *ret_fd, struct cairn_error *err) {
    for (int gone = 0;;) {
        *ret_fd = accept4(listen_fd, NULL, NULL, SOCKET_FLAGS);
        if (*ret_fd >= 0 || errno == EAGAIN) return CAIRN_OK;
        if (errno == EINTR) continue;
        if (errno == ECONNABORTED && ++gone < GONE_IN_A_ROW_MAX) continue;
        return cairn_fail_errno(err, "accept a connection");
    }
}

enum cairn_code cairn_net_peer_uid(int fd, uid_t *ret_uid, pid_t *ret_pid,
                                   struct cairn_error *err) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return cairn_fail_errno(err, "read the peer's user");
    if (ret_uid) *ret_uid = peer.uid;
    if (ret_pid) *ret_pid = peer.pid;
    return CAIRN_OK;
}

static bool is_listed(const char *list, uid_t uid) {
    if (!strcmp(list, "any")) return true;
    for (const char *at = list; *at;) {
        size_t size = strcspn(at, ",");
        uint64_t listed = 0;
        if (!cairn_parse_u64((struct cairn_view){at, size}, &listed, NULL) && listed == uid)
            return true;
        at += size + (at[size] == ',');
    }
    return false;
}

/* Can only this user and root create names in the folder? */
static bool is_only(const char *folder, uid_t uid) {
    struct stat status;
    return !stat(folder, &status) && (status.st_uid == uid || status.st_uid == 0) &&
           !(status.st_mode & (S_IWGRP | S_IWOTH));
}

/* Does the folder of the path belong to this user, and every folder above it to root only? */
static bool is_given(const char *path, uid_t uid) {
    char folder[PATH_MAX], above[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || (size_t)(slash - path) >= sizeof folder) return false;
    memcpy(above, path, (size_t)(slash - path));
    above[slash - path] = '\0';
    if (!realpath(above, folder) || !is_only(folder, uid)) return false;
    for (char *end; (end = strrchr(folder, '/'));) {
        *end = '\0';
        if (!is_only(folder[0] ? folder : "/", 0)) return false;
    }
    return true;
}

enum cairn_code cairn_net_listener_check(int fd, const char *path, const char *allowed,
                                         const char *setting, struct cairn_error *err) {
    uid_t uid = 0;
    CAIRN_TRY(cairn_net_peer_uid(fd, &uid, NULL, err));
    if (uid == 0 || uid == geteuid() || is_listed(allowed ? allowed : "", uid)) return CAIRN_OK;
    if (is_given(path, uid)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "user %u listens there, who is neither root nor this user (%u): set %s=%u if "
                      "that is the uploader's user",
                      (unsigned)uid, (unsigned)geteuid(), setting, (unsigned)uid);
}

int cairn_net_peer_process(int fd) {
    int process = -1;
    socklen_t size = sizeof process;
    return getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) ? -1 : process;
}

/* ---- TCP ---- */

static enum cairn_code listen_on(const struct addrinfo *info, const char *address, int *ret_fd,
                                 struct cairn_error *err) {
    CAIRN_AUTO_FD fd = socket(info->ai_family, SOCK_STREAM | SOCKET_FLAGS, 0);
    if (fd < 0) return cairn_fail_errno(err, "create a socket for %s", address);
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        return cairn_fail_errno(err, "SO_REUSEADDR for %s", address);
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0) {
        if (errno == EADDRINUSE)
            return cairn_fail(err, CAIRN_CONFLICT,
                              "%s is taken by another process; choose another port (0 picks one)",
                              address);
        return cairn_fail_errno(err, "bind %s", address);
    }
    if (listen(fd, SOMAXCONN) != 0) return cairn_fail_errno(err, "listen on %s", address);
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

static enum cairn_code port_of(int fd, uint16_t *ret_port, struct cairn_error *err) {
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &size) != 0)
        return cairn_fail_errno(err, "ask for the port");
    *ret_port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)&bound)->sin_port);
    return CAIRN_OK;
}

enum cairn_code cairn_net_listen_tcp(const char *address, int *ret_fd, uint16_t *ret_port,
                                     struct cairn_error *err) {
    char host[256], port[8];
    const char *colon = strrchr(address, ':');
    const char *start = address, *end = colon;
    if (colon && *address == '[' && colon > address + 1 && colon[-1] == ']') {
        start = address + 1;
        end = colon - 1;
    }
    size_t size = colon ? (size_t)(end - start) : 0;
    uint64_t number = 0;
    bool bare_v6 = colon && start == address && memchr(start, ':', size) != NULL;
    if (size == 0 || size > 255 || bare_v6 || !cairn_text_copy(port, 8, colon + 1) ||
        cairn_parse_u64(cairn_view_of(port), &number, NULL) != CAIRN_OK || number > 65535)
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%s\" is no address to listen on; wanted \"127.0.0.1:7420\" or "
                          "\"[::1]:7420\"",
                          address);
    memcpy(host, start, size);
    host[size] = '\0';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int problem = getaddrinfo(host, port, &hints, &list);
    if (problem != 0)
        return cairn_fail(err, CAIRN_INVALID, "%s: %s", address, gai_strerror(problem));
    int fd = -1;
    enum cairn_code code = listen_on(list, address, &fd, err);
    freeaddrinfo(list);
    CAIRN_TRY(code);
    uint16_t bound = 0;
    code = port_of(fd, &bound, err);
    if (code != CAIRN_OK) {
        close(fd);
        return code;
    }
    if (ret_port) *ret_port = bound;
    *ret_fd = fd;
    return CAIRN_OK;
}

/* ---- bytes and descriptors ---- */

/* Aligned as cmsghdr requires, with room for exactly CAIRN_NET_FDS_MAX. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int) * CAIRN_NET_FDS_MAX)];
};

static void attach_fds(struct msghdr *message, union control *control, const int *fds,
                       size_t fd_count) {
    memset(control, 0, sizeof *control);
    message->msg_control = control->bytes;
    message->msg_controllen = (socklen_t)CMSG_SPACE(sizeof(int) * fd_count);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = (socklen_t)CMSG_LEN(sizeof(int) * fd_count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
}

enum cairn_code cairn_net_send(int fd, struct cairn_view bytes, const int *fds, size_t fd_count,
                               uint64_t deadline_ms, struct cairn_error *err) {
    if (fd_count > CAIRN_NET_FDS_MAX || (fd_count > 0 && bytes.size == 0))
        return cairn_fail(err, CAIRN_INVALID, "%zu descriptors with %zu bytes cannot be sent",
                          fd_count, bytes.size);
    union control control;
    size_t sent = 0;
    while (sent < bytes.size) {
        struct iovec rest = {(char *)(uintptr_t)bytes.data + sent, bytes.size - sent};
        struct msghdr message = {.msg_iov = &rest, .msg_iovlen = 1};
        if (sent == 0 && fd_count > 0) attach_fds(&message, &control, fds, fd_count);
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            sent += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline_ms);
            if (left_ms == 0) return cairn_fail(err, CAIRN_TIMEOUT, "the peer does not read");
            struct pollfd wanted = {.fd = fd, .events = POLLOUT};
            /* Capped so that a distant deadline fits poll's int; the caller calls again. */
            if (poll(&wanted, 1, (int)cairn_min_u64(left_ms, 60000)) < 0 && errno != EINTR)
                return cairn_fail_errno(err, "wait for room in a socket");
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return cairn_fail(err, CAIRN_UNAVAILABLE, "the peer closed the connection");
        } else if (errno != EINTR) {
            return cairn_fail_errno(err, "send");
        }
    }
    return CAIRN_OK;
}

/* Collects every descriptor of a message: those not handed out must be closed. */
static size_t collect_fds(struct msghdr *message, int ret_fds[CAIRN_NET_FDS_MAX]) {
    size_t count = 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    for (; header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
            if (count < CAIRN_NET_FDS_MAX)
                ret_fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

enum cairn_code cairn_net_receive(int fd, void *ret_data, size_t capacity, size_t *ret_size,
                                  int *ret_fds, size_t *ret_fd_count, struct cairn_error *err) {
    union control control;
    struct iovec room = {ret_data, capacity};
    struct msghdr message = {.msg_iov = &room,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        *ret_size = 0;
        return cairn_fail(err, CAIRN_BUSY, "nothing to receive yet");
    }
    /* A peer that died with unread bytes of ours sends a reset: treat as its end. */
    if (n < 0 && errno != ECONNRESET) return cairn_fail_errno(err, "receive");
    int fds[CAIRN_NET_FDS_MAX];
    size_t count = n < 0 ? 0 : collect_fds(&message, fds);
    if (n > 0 && (message.msg_flags & MSG_CTRUNC)) {
        for (size_t i = 0; i < count; i++) close(fds[i]);
        if (count < CAIRN_NET_FDS_MAX) /* not CAIRN_BUSY: the message is lost */
            return cairn_fail_at(err, CAIRN_IO, EMFILE, CAIRN_ORIGIN, "receive descriptors");
        return cairn_fail(err, CAIRN_PROTOCOL, "a message with more than %d descriptors",
                          CAIRN_NET_FDS_MAX);
    }
    memcpy(ret_fds, fds, count * sizeof(int));
    *ret_fd_count = count;
    *ret_size = n < 0 ? 0 : (size_t)n;
    return CAIRN_OK;
}

/* ---- addresses of metadata services ---- */

static bool is_metadata_v4(const uint8_t v4[4]) {
    static const uint8_t alone[][4] = {{100, 100, 100, 200} /* Alibaba */,
                                       {192, 0, 0, 192} /* Oracle */};
    for (size_t i = 0; i < CAIRN_COUNT(alone); i++)
        if (!memcmp(v4, alone[i], 4)) return true;
    return v4[0] == 169 && v4[1] == 254;
}

/* The IPv4 address embedded in an IPv6 address; NULL: none. */
static const uint8_t *v4_within(const uint8_t v6[16]) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, compatible[12] = {0};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b}, sixtofour[2] = {0x20, 0x02};
    if (!memcmp(v6, mapped, 12) || !memcmp(v6, compatible, 12) || !memcmp(v6, nat64, 12))
        return v6 + 12;
    return memcmp(v6, sixtofour, 2) ? NULL : v6 + 2;
}

static bool is_metadata_v6(const uint8_t v6[16]) {
    static const uint8_t amazon[4] = {0xfd, 0x00, 0x0e, 0xc2};
    const uint8_t *v4 = v4_within(v6);
    if (v4 && is_metadata_v4(v4)) return true;
    return !memcmp(v6, amazon, 4) || (v6[0] == 0xfe && (v6[1] & 0xc0) == 0x80);
}

bool cairn_net_is_metadata(const struct sockaddr *address) {
    const void *any = address;
    if (address->sa_family == AF_INET)
        return is_metadata_v4((const void *)&((const struct sockaddr_in *)any)->sin_addr);
    if (address->sa_family != AF_INET6) return false;
    return is_metadata_v6(((const struct sockaddr_in6 *)any)->sin6_addr.s6_addr);
}

bool cairn_net_is_metadata_host(struct cairn_view host) {
    static const char *const names[] = {"metadata.google.internal", "metadata.goog",
                                        "instance-data.ec2.internal"};
    char text[256];
    struct in_addr v4;
    struct in6_addr v6;
    const char *from = host.data;
    size_t size = host.size;
    if (size && from[0] == '[') from++, size--;
    while (size && (from[size - 1] == '.' || from[size - 1] == ']')) size--;
    if (size >= sizeof text) return false;
    memcpy(text, from, size);
    text[size] = '\0';
    for (size_t i = 0; i < CAIRN_COUNT(names); i++)
        if (!strcasecmp(text, names[i])) return true;
    if (inet_aton(text, &v4)) return is_metadata_v4((const void *)&v4);
    text[strcspn(text, "%")] = '\0'; /* cuts the interface of a link-local address */
    return inet_pton(AF_INET6, text, &v6) == 1 && is_metadata_v6(v6.s6_addr);
}

bool cairn_net_times(int fd, struct cairn_net_times *ret) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size)) return false;
    if (size < offsetof(struct tcp_info, tcpi_sndbuf_limited)) return false; /* an old kernel */
    *ret = (struct cairn_net_times){info.tcpi_busy_time, info.tcpi_rwnd_limited,
                                    info.tcpi_bytes_acked};
    return true;
}

/* ---- addresses counted as one caller ---- */

#define PREFIX_BYTES 8 /* a /64 */

static bool is_mapped(const uint8_t address[16]) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return !memcmp(address, mapped, sizeof mapped);
}

void cairn_net_caller(const struct sockaddr *address, uint8_t ret[16]) {
    memset(ret, 0, 16);
    if (address && address->sa_family == AF_INET6) {
        memcpy(ret, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
        if (!is_mapped(ret)) memset(ret + PREFIX_BYTES, 0, 16 - PREFIX_BYTES);
    } else if (address && address->sa_family == AF_INET) {
        memset(ret + 10, 0xff, 2);
        memcpy(ret + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    }
}

void cairn_net_caller_text(const char *address, char *ret, size_t capacity) {
    uint8_t bytes[16];
    char text[INET6_ADDRSTRLEN];
    bool six = inet_pton(AF_INET6, address, bytes) == 1 && !is_mapped(bytes);
    if (six) memset(bytes + PREFIX_BYTES, 0, 16 - PREFIX_BYTES);
    if (six && inet_ntop(AF_INET6, bytes, text, sizeof text))
        snprintf(ret, capacity, "%s/64", text);
    else
        snprintf(ret, capacity, "%s", address);
}
