/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: a wall clock that is wrong, and that jumps while the process runs.
 *
 *   LIBCLOCK_AHEAD=FILE  its first 8 bytes say by how many seconds, as a signed number in the
 *                        machine's order; who writes there moves the clock of all that have it
 *
 * Clocks that count from the machine's start are left alone, and so are waits: nobody here waits
 * until a time of the wall clock. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

/* The next function of this name behind ours, found once: the library's, or a sanitizer's. */
#define NEXT(name)                                                                                 \
    static __typeof__(&name) next_##name;                                                          \
    if (!next_##name) *(void **)(&next_##name) = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LIBCLOCK_AHEAD");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (mapped != MAP_FAILED) ahead_s = mapped;
}

static int64_t ahead(void) {
    return ahead_s ? *ahead_s : 0;
}

int clock_gettime(clockid_t id, struct timespec *ret) {
    NEXT(clock_gettime);
    int result = next_clock_gettime(id, ret);
    if (!result && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI))
        ret->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone) {
    NEXT(gettimeofday);
    int result = next_gettimeofday(ret, zone);
    if (!result && ret) ret->tv_sec += ahead();
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
