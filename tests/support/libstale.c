/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: a mount whose file handles went stale, as those of NFS do when its server was set up
 * anew, or of any mount whose helper is gone.
 *
 *   LIBSTALE_ROOT=DIR    files and folders below it, and itself, are on that mount
 *   LIBSTALE_WHILE=FILE  while this exists every call on them fails with ESTALE
 *
 * Descriptors that were opened before fail like names do, and are good again afterwards. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char root[PATH_MAX];
static size_t root_size;
static const char *during;

/* The next function of this name behind ours, found once: the library's, or a sanitizer's. */
#define NEXT(name)                                                                                 \
    static __typeof__(&name) next_##name;                                                          \
    if (!next_##name) *(void **)(&next_##name) = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("LIBSTALE_ROOT");
    during = getenv("LIBSTALE_WHILE");
    if (below && realpath(below, root)) root_size = strlen(root);
}

static int is_below(const char *path) {
    return root_size && !strncmp(path, root, root_size) &&
           (path[root_size] == '/' || path[root_size] == '\0' || path[root_size] == ' ');
}

/* Is this on the mount, and is the mount away? */
static int stale(int fd, const char *path) {
    int before = errno;
    char link[64], at[PATH_MAX];
    if (!root_size || !during) return 0;
    if (!path || path[0] != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = fd < 0 ? -1 : syscall(SYS_readlinkat, AT_FDCWD, link, at, sizeof at - 1);
        at[size > 0 ? size : 0] = '\0';
        path = at;
    }
    int away = is_below(path) && syscall(SYS_faccessat, AT_FDCWD, during, F_OK) == 0;
    errno = away ? ESTALE : before;
    return away;
}

int open(const char *path, int flags, ...) {
    NEXT(open);
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return stale(-1, path) ? -1 : next_open(path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
    NEXT(openat);
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return stale(at, path) ? -1 : next_openat(at, path, flags, mode);
}

/* openat2 has no function of its own. */
long syscall(long number, ...) {
    static long (*next)(long, ...);
    if (!next) *(void **)(&next) = dlsym(RTLD_NEXT, "syscall");
    va_list arguments;
    va_start(arguments, number);
    long of[6];
    for (int i = 0; i < 6; i++) of[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_openat2 && stale((int)of[0], (const char *)of[1])) return -1;
    return next(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}

int stat(const char *path, struct stat *ret) {
    NEXT(stat);
    return stale(-1, path) ? -1 : next_stat(path, ret);
}

int fstat(int fd, struct stat *ret) {
    NEXT(fstat);
    return stale(fd, NULL) ? -1 : next_fstat(fd, ret);
}

int fstatat(int at, const char *path, struct stat *ret, int flags) {
    NEXT(fstatat);
    return stale(at, path) ? -1 : next_fstatat(at, path, ret, flags);
}

ssize_t pwrite(int fd, const void *from, size_t size, off_t at) {
    NEXT(pwrite);
    return stale(fd, NULL) ? -1 : next_pwrite(fd, from, size, at);
}

ssize_t pread(int fd, void *to, size_t size, off_t at) {
    NEXT(pread);
    return stale(fd, NULL) ? -1 : next_pread(fd, to, size, at);
}

int fsync(int fd) {
    NEXT(fsync);
    return stale(fd, NULL) ? -1 : next_fsync(fd);
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    return stale(fd, NULL) ? -1 : next_fdatasync(fd);
}

int mkdirat(int at, const char *path, mode_t mode) {
    NEXT(mkdirat);
    return stale(at, path) ? -1 : next_mkdirat(at, path, mode);
}

int unlinkat(int at, const char *path, int flags) {
    NEXT(unlinkat);
    return stale(at, path) ? -1 : next_unlinkat(at, path, flags);
}

int linkat(int from_at, const char *from, int at, const char *path, int flags) {
    NEXT(linkat);
    return stale(at, path) ? -1 : next_linkat(from_at, from, at, path, flags);
}
