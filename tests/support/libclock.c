/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: a wall clock that is wrong, and time that passes when a test says so.
 *
 *   LIBCLOCK_AHEAD=FILE  two signed numbers of 8 bytes in the machine's order; who writes there
 *                        moves the clocks of all that have it, while they run
 *     the first     by how many seconds the wall clock is ahead of the machine's; it may jump back
 *     the second    how many milliseconds have passed on every clock beyond those that have really
 *                   passed; it only grows. A file of 8 bytes has none, and waits are left alone
 *
 * A wait of a process for which time passes ends when its deadline has come by that time: waits of
 * conditions, poll and epoll_wait are made in slices of SLICE_MS, after each of which the file is
 * looked at. Those that sleep (nanosleep) last as long as they do. To the process it is as if the
 * machine had been suspended for so long: what was under way with a deadline is late. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SLICE_MS 10

static const _Atomic int64_t *ahead_s, *passed_ms; /* NULL: this clock is the machine's */

/* The next function of this name behind ours, found once: the library's, or a sanitizer's. */
#define NEXT(name)                                                                                 \
    static __typeof__(&name) next_##name;                                                          \
    if (!next_##name) *(void **)(&next_##name) = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LIBCLOCK_AHEAD");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    struct stat file = {0};
    bool passes = !fstat(fd, &file) && file.st_size >= (off_t)(2 * sizeof *ahead_s);
    void *mapped = mmap(NULL, 2 * sizeof *ahead_s, PROT_READ, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (mapped == MAP_FAILED) return;
    ahead_s = mapped;
    if (passes) passed_ms = ahead_s + 1;
}

static int64_t passed(void) {
    return passed_ms ? *passed_ms : 0;
}

static int64_t ahead(void) {
    return (ahead_s ? *ahead_s : 0) + passed() / 1000;
}

static bool is_wall(clockid_t id) {
    return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI;
}

static bool counts_from_start(clockid_t id) {
    return id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE || id == CLOCK_MONOTONIC_RAW ||
           id == CLOCK_BOOTTIME;
}

static void add_ms(struct timespec *time, int64_t ms) {
    int64_t ns = time->tv_nsec + ms % 1000 * 1000000;
    time->tv_sec += ms / 1000 + ns / 1000000000 - (ns % 1000000000 < 0);
    time->tv_nsec = (ns % 1000000000 + 1000000000) % 1000000000;
}

int clock_gettime(clockid_t id, struct timespec *ret) {
    NEXT(clock_gettime);
    int result = next_clock_gettime(id, ret);
    if (!result && is_wall(id)) ret->tv_sec += ahead();
    if (!result && counts_from_start(id) && passed_ms) add_ms(ret, passed());
    return result;
}

/* ---- waits ---- */

static int64_t real_ms(void) {
    NEXT(clock_gettime);
    struct timespec now = {0};
    (void)next_clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What is left of a wait that has begun at began_ms of this clock, at most a slice; -1: no end. */
static int slice_of(int timeout, int64_t began_ms) {
    if (timeout < 0) return -1;
    int64_t left = timeout - (real_ms() + passed() - began_ms);
    return left <= 0 ? 0 : left < SLICE_MS ? (int)left : SLICE_MS;
}

int poll(struct pollfd *fds, nfds_t count, int timeout) {
    NEXT(poll);
    int64_t began_ms = passed_ms && timeout > 0 ? real_ms() + passed() : 0;
    for (;;) {
        int slice = passed_ms && timeout > 0 ? slice_of(timeout, began_ms) : timeout;
        int result = next_poll(fds, count, slice);
        if (result || slice == timeout || slice <= 0) return result;
    }
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    NEXT(epoll_wait);
    int64_t began_ms = passed_ms && timeout > 0 ? real_ms() + passed() : 0;
    for (;;) {
        int slice = passed_ms && timeout > 0 ? slice_of(timeout, began_ms) : timeout;
        int result = next_epoll_wait(fd, events, most, slice);
        if (result || slice == timeout || slice <= 0) return result;
    }
}

/* Conditions of Cairn count from the machine's start. One of a library that counts wall time has a
 * deadline far beyond that clock, and is left alone. A slice that ends is a wake without a reason,
 * which whoever waits has to stand anyway. */
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
    NEXT(pthread_cond_timedwait);
    const int64_t years_ms = INT64_C(10) * 365 * 86400 * 1000;
    int64_t wanted_ms = (int64_t)deadline->tv_sec * 1000 + deadline->tv_nsec / 1000000;
    int64_t left_ms = wanted_ms - passed() - real_ms();
    if (!passed_ms || left_ms > years_ms)
        return next_pthread_cond_timedwait(condition, mutex, deadline);
    struct timespec until = *deadline;
    add_ms(&until, -passed());
    if (left_ms > SLICE_MS) add_ms(&until, SLICE_MS - left_ms);
    int result = next_pthread_cond_timedwait(condition, mutex, &until);
    return result == ETIMEDOUT && left_ms > SLICE_MS ? 0 : result;
}

/* ---- the wall clock's other names ---- */

int gettimeofday(struct timeval *restrict ret, void *restrict zone) {
    NEXT(gettimeofday);
    int result = next_gettimeofday(ret, zone);
    if (!result) ret->tv_sec += ahead();
    return result;
}

time_t time(time_t *ret) {
    NEXT(time);
    time_t now = next_time(NULL) + ahead();
    if (ret) *ret = now;
    return now;
}

int timespec_get(struct timespec *ret, int base) {
    NEXT(timespec_get);
    int result = next_timespec_get(ret, base);
    if (result == TIME_UTC) ret->tv_sec += ahead();
    return result;
}
