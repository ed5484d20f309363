/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: what a process asks of files and sockets is written down in the order it happens.
 *
 *   LIBRECORD_LOG=FILE  events are appended there, by all processes that have it; one event is one
 *                       write, so their order in the file is an order in time
 *   LIBRECORD_ROOT=DIR  of files and folders only those below it count; sockets always do
 *
 * What changes a file or folder is told when it has happened, what leaves by a socket before it
 * does: whatever stands above a SEND was done when it went out. A sync is told twice, since what
 * is written while it runs may not be in it. tests/e2e/recording.py reads the log. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC 0x31524543u /* "CER1" */
#define LOG_FD_MIN 900    /* out of the way of the numbers that the process counts on */
#define SENDS_PARTS_MAX 64

enum kind {
    CREATE = 1,
    WRITE,
    TRUNCATE,
    XATTR,
    SYNC,
    SYNCED,
    LINK,
    RENAME,
    UNLINK,
    MKDIR,
    SEND,
    SENT
};

/* A number of an inode may be used again, so the time of birth belongs to the name. */
struct file {
    uint64_t inode, born_ns;
};
struct event {
    uint32_t magic, kind;
    int32_t pid, tid;
    struct file file, other; /* other: the second folder of a move, or what was made */
    int64_t at;              /* offset, length, result, or ports */
    uint32_t name_bytes, other_name_bytes, data_bytes, family;
};

static int log_fd = -1;
/* Held over the making or taking of a name and its event, and for the begin of a sync: another
 * thread may see the name and sync its folder before this one has told of it. */
static pthread_mutex_t names = PTHREAD_MUTEX_INITIALIZER;

/* Before the log is open a sanitizer may be starting, whose own locks are not there yet. */
static void take_names(void) {
    if (log_fd >= 0) pthread_mutex_lock(&names);
}
static void give_names(void) {
    if (log_fd >= 0) pthread_mutex_unlock(&names);
}
static char root[PATH_MAX];
static size_t root_size;

/* The next function of this name behind ours, found once: the library's, or a sanitizer's. */
#define NEXT(name)                                                                                 \
    static __typeof__(&name) next_##name;                                                          \
    if (!next_##name) *(void **)(&next_##name) = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LIBRECORD_LOG"), *below = getenv("LIBRECORD_ROOT");
    if (!path || !below || !realpath(below, root)) return;
    root_size = strlen(root);
    int fd =
        (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD_MIN);
    syscall(SYS_close, fd);
}

static void give_up(const char *why) {
    fprintf(stderr, "librecord: %s: %m\n", why);
    abort();
}

/* name, other name and data follow the head of the event. */
static void put(struct event *event, const char *name, const char *other, const struct iovec *data,
                size_t parts) {
    int before = errno;
    struct iovec all[3 + SENDS_PARTS_MAX] = {{event, sizeof *event}};
    event->magic = MAGIC;
    event->pid = getpid();
    event->tid = (int32_t)syscall(SYS_gettid);
    event->name_bytes = name ? (uint32_t)strlen(name) : 0;
    event->other_name_bytes = other ? (uint32_t)strlen(other) : 0;
    memcpy(&all[1].iov_base, &name, sizeof name);
    all[1].iov_len = event->name_bytes;
    memcpy(&all[2].iov_base, &other, sizeof other);
    all[2].iov_len = event->other_name_bytes;
    if (parts > SENDS_PARTS_MAX) give_up("too many parts");
    size_t wanted = sizeof *event + event->name_bytes + event->other_name_bytes;
    for (size_t i = 0; i < parts; i++) {
        all[3 + i] = data[i];
        event->data_bytes += (uint32_t)data[i].iov_len;
    }
    wanted += event->data_bytes;
    if (syscall(SYS_writev, log_fd, all, 3 + parts) != (long)wanted) give_up("writing the log");
    errno = before;
}

/* ---- which file ---- */

static struct file identify(int at, const char *name) {
    struct statx status;
    int flags = *name ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
    if (statx(at, name, flags, STATX_BASIC_STATS | STATX_BTIME, &status)) return (struct file){0};
    return (struct file){status.stx_ino, (uint64_t)status.stx_btime.tv_sec * 1000000000u +
                                             status.stx_btime.tv_nsec};
}

/* Is this descriptor's file or folder one of those that count? */
static int is_below(int fd) {
    char link[64], path[PATH_MAX + 16];
    if (log_fd < 0 || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < (ssize_t)root_size || memcmp(path, root, root_size)) return 0;
    path[size] = '\0';
    return path[root_size] == '/' || path[root_size] == '\0' || path[root_size] == ' ';
}

/* The folder of a path and the name in it. False: it is none of those that count. */
struct place {
    struct file folder;
    char name[NAME_MAX + 1];
};
static int place_of(int at, const char *path, struct place *ret) {
    if (log_fd < 0) return 0;
    int before = errno, counts = 0;
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int size = slash ? (int)(slash - path) + 1 : 1;
    snprintf(folder, sizeof folder, "%.*s", size, slash ? path : ".");
    int fd = (int)syscall(SYS_openat, at, folder, O_PATH | O_CLOEXEC);
    if (fd >= 0 && is_below(fd)) {
        ret->folder = identify(fd, "");
        snprintf(ret->name, sizeof ret->name, "%s", slash ? slash + 1 : path);
        counts = 1;
    }
    if (fd >= 0) syscall(SYS_close, fd);
    errno = before;
    return counts;
}

/* ---- names ---- */

static int may_make(int flags) {
    return log_fd >= 0 && flags & (O_CREAT | O_TRUNC) && (flags & O_TMPFILE) != O_TMPFILE;
}

static void opening(int flags) {
    if (may_make(flags)) take_names();
}

/* Told whenever O_CREAT was asked for: the reader knows whether the name was there. */
static int opened(int at, const char *path, int flags, int fd) {
    struct place place;
    if (!may_make(flags)) return fd;
    if (fd >= 0 && is_below(fd) && place_of(at, path, &place)) {
        struct event event = {.kind = CREATE,
                              .file = place.folder,
                              .other = identify(fd, ""),
                              .at = flags & O_TRUNC ? 0 : -1};
        put(&event, place.name, NULL, NULL, 0);
    }
    give_names();
    return fd;
}

#define MODE_OF(flags, mode)                                                                       \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                         \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    NEXT(open);
    opening(flags);
    return opened(AT_FDCWD, path, flags, next_open(path, flags, mode));
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    NEXT(open64);
    opening(flags);
    return opened(AT_FDCWD, path, flags, next_open64(path, flags, mode));
}

int openat(int at, const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    NEXT(openat);
    opening(flags);
    return opened(at, path, flags, next_openat(at, path, flags, mode));
}

int openat64(int at, const char *path, int flags, ...) {
    MODE_OF(flags, mode)
    NEXT(openat64);
    opening(flags);
    return opened(at, path, flags, next_openat64(at, path, flags, mode));
}

static int made(int at, const char *path, int result) {
    struct place place;
    if (!result && place_of(at, path, &place)) {
        struct event event = {.kind = MKDIR, .file = place.folder, .other = identify(at, path)};
        put(&event, place.name, NULL, NULL, 0);
    }
    give_names();
    return result;
}

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    take_names();
    return made(AT_FDCWD, path, next_mkdir(path, mode));
}

int mkdirat(int at, const char *path, mode_t mode) {
    NEXT(mkdirat);
    take_names();
    return made(at, path, next_mkdirat(at, path, mode));
}

static int moved(enum kind kind, const struct place *from, const struct place *to, int result) {
    struct event event = {.kind = kind, .file = from->folder, .other = to->folder};
    if (!result) put(&event, from->name, to->name, NULL, 0);
    return result;
}

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    NEXT(linkat);
    struct place a, b;
    int counts = place_of(from_at, from, &a) && place_of(to_at, to, &b);
    if (!counts) return next_linkat(from_at, from, to_at, to, flags);
    take_names();
    int result = moved(LINK, &a, &b, next_linkat(from_at, from, to_at, to, flags));
    give_names();
    return result;
}

int link(const char *from, const char *to) {
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_at, const char *from, int to_at, const char *to) {
    NEXT(renameat);
    struct place a, b;
    int counts = place_of(from_at, from, &a) && place_of(to_at, to, &b);
    if (!counts) return next_renameat(from_at, from, to_at, to);
    take_names();
    int result = moved(RENAME, &a, &b, next_renameat(from_at, from, to_at, to));
    give_names();
    return result;
}

int rename(const char *from, const char *to) {
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlinkat(int at, const char *path, int flags) {
    NEXT(unlinkat);
    struct place place;
    if (!place_of(at, path, &place)) return next_unlinkat(at, path, flags);
    struct event event = {.kind = UNLINK, .file = place.folder};
    take_names();
    int result = next_unlinkat(at, path, flags);
    if (!result) put(&event, place.name, NULL, NULL, 0);
    give_names();
    return result;
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- bytes ---- */

static void wrote(int fd, const void *data, ssize_t size, off_t offset) {
    if (size <= 0 || !is_below(fd)) return;
    struct event event = {.kind = WRITE, .file = identify(fd, ""), .at = offset};
    struct iovec part = {.iov_len = (size_t)size};
    memcpy(&part.iov_base, &data, sizeof data);
    put(&event, NULL, NULL, &part, 1);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    NEXT(pwrite);
    ssize_t result = next_pwrite(fd, data, size, offset);
    wrote(fd, data, result, offset);
    return result;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    NEXT(pwrite64);
    ssize_t result = next_pwrite64(fd, data, size, offset);
    wrote(fd, data, result, offset);
    return result;
}

static int length_set(int fd, off_t length, int result) {
    if (result || !is_below(fd)) return result;
    struct event event = {.kind = TRUNCATE, .file = identify(fd, ""), .at = length};
    put(&event, NULL, NULL, NULL, 0);
    return result;
}

int ftruncate(int fd, off_t length) {
    NEXT(ftruncate);
    return length_set(fd, length, next_ftruncate(fd, length));
}

int ftruncate64(int fd, off_t length) {
    NEXT(ftruncate64);
    return length_set(fd, length, next_ftruncate64(fd, length));
}

int fsetxattr(int fd, const char *name, const void *value, size_t size, int flags) {
    NEXT(fsetxattr);
    int result = next_fsetxattr(fd, name, value, size, flags);
    if (result || !is_below(fd)) return result;
    struct event event = {.kind = XATTR, .file = identify(fd, "")};
    struct iovec part = {.iov_len = size};
    memcpy(&part.iov_base, &value, sizeof value);
    put(&event, name, NULL, &part, 1);
    return result;
}

static int synced(int fd, int whole, int (*sync)(int fd)) {
    if (!is_below(fd)) return sync(fd);
    struct event event = {.kind = SYNC, .file = identify(fd, ""), .at = whole};
    take_names();
    put(&event, NULL, NULL, NULL, 0);
    give_names();
    int result = sync(fd);
    if (result) return result;
    event.kind = SYNCED;
    put(&event, NULL, NULL, NULL, 0);
    return result;
}

int fsync(int fd) {
    NEXT(fsync);
    return synced(fd, 1, next_fsync);
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    return synced(fd, 0, next_fdatasync);
}

/* A sync of a file system is one of each file and folder below the root. */
struct found {
    struct file *files;
    size_t count, capacity;
};

/* Past the functions that are recorded here. */
static int open_past(int at, const char *path, int flags) {
    return (int)syscall(SYS_openat, at, path, flags);
}

static void find_below(int fd, struct found *found) {
    struct stat status;
    if (fstat(fd, &status) || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return;
    int own = open_past(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = own < 0 ? NULL : fdopendir(own);
    if (found->count == found->capacity) {
        found->capacity = found->capacity ? 2 * found->capacity : 256;
        found->files = realloc(found->files, found->capacity * sizeof *found->files);
        if (!found->files) abort();
    }
    found->files[found->count++] = identify(fd, "");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        int at = open_past(own, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (at >= 0) find_below(at, found);
        if (at >= 0) close(at);
    }
    if (folder) closedir(folder);
}

int syncfs(int fd) {
    NEXT(syncfs);
    struct found found = {0};
    int below = log_fd >= 0 ? open_past(AT_FDCWD, root, O_PATH | O_CLOEXEC) : -1;
    take_names();
    if (below >= 0) find_below(below, &found);
    for (size_t i = 0; i < found.count; i++) {
        struct event event = {.kind = SYNC, .file = found.files[i], .at = 1};
        put(&event, NULL, NULL, NULL, 0);
    }
    give_names();
    int result = next_syncfs(fd);
    for (size_t i = 0; i < found.count && !result; i++) {
        struct event event = {.kind = SYNCED, .file = found.files[i], .at = 1};
        put(&event, NULL, NULL, NULL, 0);
    }
    free(found.files);
    if (below >= 0) close(below);
    return result;
}

/* ---- what leaves ---- */

static uint16_t port_of(const struct sockaddr_storage *address) {
    struct sockaddr_in internet;
    memcpy(&internet, address, sizeof internet);
    return ntohs(internet.sin_port);
}

/* The number by which the socket is known, its family (0: it is none), and the ports of a
 * connection, own and other, by which its two ends are put together. */
static struct event leaving(int fd) {
    struct event event = {.kind = SEND};
    struct stat status;
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    int before = errno;
    if (log_fd >= 0 && !fstat(fd, &status) && S_ISSOCK(status.st_mode) &&
        !getsockname(fd, (struct sockaddr *)&own, &own_size)) {
        event.file.inode = status.st_ino;
        event.family = own.ss_family;
        if (own.ss_family == AF_INET && !getpeername(fd, (struct sockaddr *)&peer, &peer_size))
            event.at = (int64_t)port_of(&own) << 16 | port_of(&peer);
    }
    errno = before;
    return event;
}

static ssize_t left(struct event *event, ssize_t result) {
    event->kind = SENT;
    event->at = result;
    event->data_bytes = 0;
    put(event, NULL, NULL, NULL, 0);
    return result;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    NEXT(sendmsg);
    struct event event = leaving(fd);
    if (!event.family) return next_sendmsg(fd, message, flags);
    put(&event, NULL, NULL, message->msg_iov, message->msg_iovlen);
    return left(&event, next_sendmsg(fd, message, flags));
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to,
               socklen_t to_size) {
    NEXT(sendto);
    struct event event = leaving(fd);
    if (!event.family) return next_sendto(fd, data, size, flags, to, to_size);
    struct iovec part = {.iov_len = size};
    memcpy(&part.iov_base, &data, sizeof data);
    put(&event, NULL, NULL, &part, 1);
    return left(&event, next_sendto(fd, data, size, flags, to, to_size));
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    return sendto(fd, data, size, flags, NULL, 0);
}

/* A file at its own place, or a socket. */
ssize_t write(int fd, const void *data, size_t size) {
    NEXT(write);
    struct event event = leaving(fd);
    struct iovec part = {.iov_len = size};
    memcpy(&part.iov_base, &data, sizeof data);
    if (event.family) {
        put(&event, NULL, NULL, &part, 1);
        return left(&event, next_write(fd, data, size));
    }
    ssize_t result = next_write(fd, data, size);
    if (result > 0 && is_below(fd)) wrote(fd, data, result, lseek(fd, 0, SEEK_CUR) - result);
    return result;
}
