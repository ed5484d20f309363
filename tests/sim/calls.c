/* SPDX-License-Identifier: Apache-2.0 */
/* What the product calls instead of libc, by the linker's --wrap (the list is in
 * tests/entries.cmake). Files, sockets and memory are the kernel's own; time, threads, waiting,
 * random bytes and the identity of processes are the simulation's. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "common/error.h"
#include "common/hooks.h"
#include "common/net.h"
#include "common/trace.h"
#include "tests/sim/kernel.h"
#include "uploader/saves/ranks.h"

#define PID_BASE 1000
#define CONNECTS_MAX 256
#define FDS_MAX 4096
#define DATABASES_MAX 256
#define WALL_START_S UINT64_C(1790000000)

/* The linker asks for these names; nobody else calls them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

struct sim_calls sim_calls;

/* ---- threads ---- */

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument) {
    int detached = PTHREAD_CREATE_JOINABLE;
    if (attributes) (void)pthread_attr_getdetachstate(attributes, &detached);
    *ret = 0;
    if (detached == PTHREAD_CREATE_DETACHED)
        sim_spawn_alone(sim_self(), run, argument);
    else
        *ret = (pthread_t)sim_spawn(sim_self(), run, argument);
    return 0;
}

/* It would be that of the one thread that plays all. */
int __wrap_setpriority(int which, id_t who, int priority) {
    (void)which, (void)who, (void)priority;
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **ret) {
    void *result = sim_join((struct sim_fiber *)thread);
    if (ret) *ret = result;
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name) {
    (void)thread, (void)name;
    return 0;
}

/* ---- time ---- */

int __wrap_clock_gettime(clockid_t id, struct timespec *ret) {
    sim_looked_at_clock();
    uint64_t us = sim_now_us();
    struct sim_process *self = sim_self();
    if (id == CLOCK_REALTIME) {
        int64_t offset = self ? self->wall_offset_ms : 0;
        us = (uint64_t)((int64_t)(us + WALL_START_S * 1000000) + offset * 1000);
    }
    *ret =
        (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    return 0;
}

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left) {
    (void)left;
    sim_sleep_us((uint64_t)wanted->tv_sec * 1000000 + (uint64_t)wanted->tv_nsec / 1000);
    return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    return sim_poll(fds, count, timeout_ms);
}

int __real_epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    (void)sim_poll(&polled, 1, timeout_ms);
    return __real_epoll_wait(fd, events, most, 0);
}

int __wrap_sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *wanted) {
    (void)set, (void)info;
    sim_sleep_us((uint64_t)wanted->tv_sec * 1000000 + (uint64_t)wanted->tv_nsec / 1000);
    errno = EAGAIN;
    return -1;
}

/* ---- who is who ---- */

ssize_t __wrap_getrandom(void *into, size_t size, unsigned flags) {
    (void)flags;
    for (size_t i = 0; i < size; i++) ((uint8_t *)into)[i] = (uint8_t)(sim_random() >> 24);
    return (ssize_t)size;
}

pid_t __wrap_getpid(void) {
    return sim_self() ? PID_BASE + sim_self()->pid : 1;
}

_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status) {
    if (!sim_self()) __real__exit(status);
    for (;;) sim_kill(sim_self());
}

int __wrap_cairn_process_fd(pid_t pid) {
    struct sim_process *process = sim_process_of(pid - PID_BASE);
    if (!process || !process->alive || process->ended_count == CAIRN_COUNT(process->ended_fds)) {
        errno = ESRCH;
        return -1;
    }
    int fd = sim_fd_mine(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    process->ended_fds[process->ended_count++] = dup(fd);
    sim_fd_closed(process->ended_fds[process->ended_count - 1]);
    return fd;
}

/* libcairn's descriptor is of the whole process, in which several ranks are; they have numbers. */
int __wrap_cairn_client_process_fd(void) {
    return -1;
}

/* What the journal calls a process: numbers are not used twice here. */
void __wrap_cairn_up_process_name(pid_t pid, char ret[CAIRN_UP_PROCESS_BYTES]) {
    snprintf(ret, CAIRN_UP_PROCESS_BYTES, "%d", (int)pid);
}

enum cairn_up_process __wrap_cairn_up_process_find(const char *name, int *ret_fd) {
    pid_t pid = (pid_t)strtol(name, NULL, 10);
    const struct sim_process *process = sim_process_of(pid - PID_BASE);
    *ret_fd = -1;
    if (!process || !process->alive) return CAIRN_UP_PROCESS_ENDED;
    *ret_fd = __wrap_cairn_process_fd(pid);
    return *ret_fd < 0 ? CAIRN_UP_PROCESS_UNSEEN : CAIRN_UP_PROCESS_LIVES;
}

/* libcairn's is of the whole process; here several ranks are in one. */
void __wrap_cairn_client_process_nonce(char ret_text[CAIRN_UUID_TEXT_BYTES]) {
    struct sim_process *self = sim_self();
    if (!self->nonce[0]) cairn_uuid_random(self->nonce);
    memcpy(ret_text, self->nonce, CAIRN_UUID_TEXT_BYTES);
}

/* ---- disks ---- */

static void disk_takes_time(void) {
    /* The world's own copies take none: nobody else may run in between. */
    struct sim_process *self = sim_self();
    if (self && self->kind != SIM_WORLD) sim_sleep_us(sim_below(sim_calls.fsync_us_max));
}

int __wrap_fdatasync(int fd) {
    (void)fd;
    disk_takes_time();
    return 0;
}

int __wrap_fsync(int fd) {
    (void)fd;
    disk_takes_time();
    return 0;
}

static bool is_full(int fd) {
    struct stat status;
    return sim_self() && sim_self()->disk_full && !fstat(fd, &status) && S_ISREG(status.st_mode);
}

ssize_t __real_write(int fd, const void *from, size_t size);
ssize_t __wrap_write(int fd, const void *from, size_t size) {
    if (fd == STDERR_FILENO && sim_self()) {
        const char *text = from;
        if (size > 25) sim_note("| %.*s", (int)(size - 26), text + 25); /* the time stands there */
        return (ssize_t)size;
    }
    if (!is_full(fd)) return __real_write(fd, from, size);
    errno = ENOSPC;
    return -1;
}

ssize_t __real_pwrite(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at) {
    if (!is_full(fd)) return __real_pwrite(fd, from, size, at);
    if (size > 1 && sim_chance(300)) return __real_pwrite(fd, from, size / 2, at);
    errno = ENOSPC;
    return -1;
}

/* ---- descriptors ---- */

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol) {
    return sim_fd_mine(__real_socket(domain, type, protocol));
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return sim_fd_mine(__real_open(path, flags, mode));
}

int __real_openat(int from, const char *path, int flags, ...);
int __wrap_openat(int from, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return sim_fd_mine(__real_openat(from, path, flags, mode));
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags) {
    return sim_fd_mine(__real_memfd_create(name, flags));
}

int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags) {
    return sim_fd_mine(__real_eventfd(count, flags));
}

int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags) {
    return sim_fd_mine(__real_epoll_create1(flags));
}

int __real_dup(int fd);
int __wrap_dup(int fd) {
    return sim_fd_mine(__real_dup(fd));
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    int result = __real_fcntl(fd, command, argument);
    return command == F_DUPFD_CLOEXEC || command == F_DUPFD ? sim_fd_mine(result) : result;
}

int __real_close(int fd);
int __wrap_close(int fd) {
    sim_fd_closed(fd);
    return __real_close(fd);
}

ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags) {
    ssize_t got = __real_recvmsg(fd, message, flags);
    if (got < 0) return got;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int passed;
            memcpy(&passed, CMSG_DATA(at) + i * sizeof passed, sizeof passed);
            (void)sim_fd_mine(passed);
        }
    }
    return got;
}

/* ---- who is at the other end of a Unix socket ---- */

/* Connections that were made and not accepted yet, in order, as the kernel keeps them. */
static struct {
    char path[108];
    int pid;
} connects[CONNECTS_MAX];
static size_t connect_count;
static int peers[FDS_MAX];

static void forget_connect(size_t index) {
    memmove(&connects[index], &connects[index + 1], (--connect_count - index) * sizeof connects[0]);
}

pid_t __real_getpid(void);
/* Names outside of the file system are for all of the machine; several simulations run on it. */
static socklen_t own_name(const struct sockaddr *address, socklen_t size, struct sockaddr_un *ret) {
    size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
    memset(ret, 0, sizeof *ret);
    memcpy(ret, address, cairn_min_u64(size, sizeof *ret));
    if (address->sa_family != AF_UNIX || size <= head || ret->sun_path[0]) return size;
    int used =
        snprintf(ret->sun_path + 1, sizeof ret->sun_path - 1, "sim/%d/%.*s", (int)__real_getpid(),
                 (int)(size - head), ((const struct sockaddr_un *)address)->sun_path + 1);
    return (socklen_t)(head + cairn_min_u64((uint64_t)used, sizeof ret->sun_path - 2));
}

int __real_bind(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size) {
    struct sockaddr_un name;
    size = own_name(address, size, &name);
    if (address->sa_family != AF_UNIX) return __real_bind(fd, address, size);
    for (size_t i = connect_count; i > 0; i--)
        if (!strcmp(connects[i - 1].path, name.sun_path)) forget_connect(i - 1);
    return __real_bind(fd, (const struct sockaddr *)&name, size);
}

int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size) {
    struct sockaddr_un name;
    size = own_name(address, size, &name);
    bool local = address->sa_family == AF_UNIX;
    int failed = __real_connect(fd, local ? (const struct sockaddr *)&name : address, size);
    if (failed || !local || !name.sun_path[0] || connect_count == CONNECTS_MAX) return failed;
    snprintf(connects[connect_count].path, sizeof connects[0].path, "%s", name.sun_path);
    connects[connect_count++].pid = PID_BASE + sim_self()->pid;
    return 0;
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags) {
    struct sockaddr_un own = {0};
    socklen_t own_size = sizeof own;
    int accepted = sim_fd_mine(__real_accept4(fd, address, size, flags));
    if (accepted < 0 || getsockname(fd, (struct sockaddr *)&own, &own_size)) return accepted;
    if (accepted < FDS_MAX) peers[accepted] = 0;
    for (size_t i = 0; i < connect_count; i++) {
        if (strcmp(connects[i].path, own.sun_path)) continue;
        if (accepted < FDS_MAX) peers[accepted] = connects[i].pid;
        forget_connect(i);
        break;
    }
    return accepted;
}

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size) {
    if (level == SOL_SOCKET && name == SO_PEERPIDFD) { /* it would be the simulation's own */
        errno = ENOPROTOOPT;
        return -1;
    }
    int failed = __real_getsockopt(fd, level, name, value, size);
    if (!failed && level == SOL_SOCKET && name == SO_PEERCRED && fd < FDS_MAX)
        ((struct ucred *)value)->pid = peers[fd];
    return failed;
}

/* ---- looks at a catalog: fibers share their thread's variables ---- */

bool *__wrap_srv_sql_looking(void);
bool *__wrap_srv_sql_looking(void) {
    return sim_looking();
}

/* ---- copying: a rank with much memory, or on a busy machine, takes its time ---- */

uint32_t __real_cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size);
uint32_t __wrap_cairn_crc32c_copy(uint32_t crc, void *to, const void *from, size_t size) {
    crc = __real_cairn_crc32c_copy(crc, to, from, size);
    if (sim_self() && sim_self()->kind == SIM_TRAINER)
        sim_sleep_us(sim_below(sim_calls.copy_us_max));
    return crc;
}

/* ---- memory: nobody waits for huge pages here ---- */

int __real_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice) {
    enum { COLLAPSE = 25 };
    if (advice != COLLAPSE) return __real_madvise(at, size, advice);
    errno = EINVAL;
    return -1;
}

/* ---- SQLite: what is open when its process is killed ---- */

static struct {
    sqlite3 *database;
    int pid;
} databases[DATABASES_MAX];

int __real_sqlite3_open_v2(const char *path, sqlite3 **ret, int flags, const char *vfs);
int __wrap_sqlite3_open_v2(const char *path, sqlite3 **ret, int flags, const char *vfs) {
    int result = __real_sqlite3_open_v2(path, ret, flags, vfs);
    for (size_t i = 0; *ret && sim_self() && i < DATABASES_MAX; i++) {
        if (databases[i].database) continue;
        databases[i].database = *ret;
        databases[i].pid = sim_self()->pid;
        break;
    }
    return result;
}

static void forget_database(const sqlite3 *database) {
    for (size_t i = 0; i < DATABASES_MAX; i++)
        if (databases[i].database == database) databases[i].database = NULL;
}

int __real_sqlite3_close(sqlite3 *database);
int __wrap_sqlite3_close(sqlite3 *database) {
    if (database) forget_database(database);
    return __real_sqlite3_close(database);
}

int __real_sqlite3_close_v2(sqlite3 *database);
int __wrap_sqlite3_close_v2(sqlite3 *database) {
    if (database) forget_database(database);
    return __real_sqlite3_close_v2(database);
}

/* What a dead process had not committed is gone; its log is not checkpointed on the way. */
void sim_calls_kill(struct sim_process *process) {
    for (size_t i = 0; i < DATABASES_MAX; i++) {
        sqlite3 *database = databases[i].database;
        if (!database || databases[i].pid != process->pid) continue;
        databases[i].database = NULL;
        (void)sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        for (sqlite3_stmt *at = NULL; (at = sqlite3_next_stmt(database, NULL));)
            sqlite3_finalize(at);
        (void)__real_sqlite3_close(database);
    }
}

/* ---- common/hooks.h ---- */

bool __wrap_cairn_crashpoint_pass(const char *name) {
    struct sim_process *self = sim_self();
    bool chosen = self && sim_calls.dies_at && sim_calls.dies_at(name);
    if (!self || (!chosen && (!sim_calls.crash_points || !sim_chance(self->kill_chance))))
        return false;
    sim_note("at %s", name);
    sim_kill(self);
    return false;
}
