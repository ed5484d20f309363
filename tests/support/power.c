/* SPDX-License-Identifier: Apache-2.0 */
/* fsync, fdatasync and syncfs of libc are replaced for the whole process, libraries included. */
#include "tests/support/power.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES_MAX 1024
#define NAMES_MAX 256

/* An inode number may be used again, so the time of birth belongs to the name. */
struct identity {
    uint64_t inode, device;
    int64_t born_s;
    uint32_t born_ns;
};
struct name {
    char text[256];
    struct identity identity;
    bool folder;
};
struct synced {
    struct identity identity;
    bool folder;
    char *data; /* of a file */
    size_t size;
    struct name *names; /* of a folder */
    size_t count;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct synced all[FILES_MAX];
static size_t all_count;
static bool started;
static int fails_after = -1; /* so many syncs from now; below 0: none does */
static int fails_with;

static bool identify(int at, const char *path, struct identity *ret, bool *ret_folder) {
    struct statx st;
    int flags = *path ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
    if (statx(at, path, flags, STATX_BASIC_STATS | STATX_BTIME, &st)) return false;
    *ret = (struct identity){st.stx_ino, ((uint64_t)st.stx_dev_major << 32) | st.stx_dev_minor,
                             st.stx_btime.tv_sec, st.stx_btime.tv_nsec};
    *ret_folder = S_ISDIR(st.stx_mode);
    return true;
}

static bool is_same(const struct identity *a, const struct identity *b) {
    return a->inode == b->inode && a->device == b->device && a->born_s == b->born_s &&
           a->born_ns == b->born_ns;
}

static struct synced *find(const struct identity *identity) {
    for (size_t i = 0; i < all_count; i++)
        if (is_same(&all[i].identity, identity)) return &all[i];
    return NULL;
}

static int open_again(int fd, int flags) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

static void read_names(int fd, struct synced *one) {
    int own = open_again(fd, O_RDONLY | O_DIRECTORY);
    DIR *folder = own >= 0 ? fdopendir(own) : NULL;
    free(one->names);
    one->names = calloc(NAMES_MAX, sizeof(*one->names));
    one->count = 0;
    for (struct dirent *entry; folder && one->names && (entry = readdir(folder));) {
        struct name *name = &one->names[one->count];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (one->count == NAMES_MAX) abort();
        if (!identify(dirfd(folder), entry->d_name, &name->identity, &name->folder)) continue;
        snprintf(name->text, sizeof(name->text), "%s", entry->d_name);
        one->count++;
    }
    if (folder) closedir(folder);
}

static void read_bytes(int fd, struct synced *one) {
    struct stat st;
    int own = open_again(fd, O_RDONLY);
    if (own < 0 || fstat(own, &st)) abort();
    free(one->data);
    one->data = malloc((size_t)st.st_size + 1);
    one->size = 0;
    for (ssize_t got = 1; got > 0; one->size += (size_t)got) {
        got = pread(own, one->data + one->size, (size_t)st.st_size - one->size, (off_t)one->size);
        if (got < 0) abort();
    }
    close(own);
}

/* With the mutex held. */
static void keep(int fd) {
    struct identity identity;
    bool folder;
    if (started && identify(fd, "", &identity, &folder)) {
        struct synced *one = find(&identity);
        if (!one) {
            if (all_count == FILES_MAX) abort();
            one = &all[all_count++];
            *one = (struct synced){.identity = identity, .folder = folder};
        }
        if (folder)
            read_names(fd, one);
        else
            read_bytes(fd, one);
    }
}

/* What lies in another file system is left out. */
static void keep_below(int fd) {
    int own = open_again(fd, O_RDONLY | O_DIRECTORY);
    DIR *folder = own >= 0 ? fdopendir(own) : NULL;
    struct stat root, st;
    if (fstat(fd, &root)) abort();
    keep(fd);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        int at = openat(dirfd(folder), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        bool here = at >= 0 && fstat(at, &st) == 0 && st.st_dev == root.st_dev;
        if (here && S_ISDIR(st.st_mode))
            keep_below(at);
        else if (here)
            keep(at);
        if (at >= 0) close(at);
    }
    if (folder) closedir(folder);
}

static bool note(int fd, void (*kept)(int fd)) {
    pthread_mutex_lock(&mutex);
    bool fails = fails_after == 0;
    if (fails_after >= 0) fails_after--;
    if (!fails) kept(fd);
    pthread_mutex_unlock(&mutex);
    errno = fails_with;
    return !fails;
}

/* What is synced is noted first: another thread may write on meanwhile, which then counts as not
 * synced. */
__attribute__((visibility("default"))) int fsync(int fd) {
    return note(fd, keep) ? (int)syscall(SYS_fsync, fd) : -1;
}

__attribute__((visibility("default"))) int fdatasync(int fd) {
    return note(fd, keep) ? (int)syscall(SYS_fdatasync, fd) : -1;
}

__attribute__((visibility("default"))) int syncfs(int fd) {
    return note(fd, keep_below) ? (int)syscall(SYS_syncfs, fd) : -1;
}

static void begin(bool recording) {
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < all_count; i++) {
        free(all[i].data);
        free(all[i].names);
    }
    all_count = 0;
    started = recording;
    pthread_mutex_unlock(&mutex);
}

void cairn_power_start(void) {
    begin(true);
}

void cairn_power_stop(int *recorded) {
    (void)recorded;
    begin(false);
}

void cairn_power_fail_once_with(unsigned after, int os_errno) {
    pthread_mutex_lock(&mutex);
    fails_after = (int)after;
    fails_with = os_errno;
    pthread_mutex_unlock(&mutex);
}

void cairn_power_fail_once(unsigned after) {
    cairn_power_fail_once_with(after, EIO);
}

static bool write_file(const struct synced *one, const char *to) {
    FILE *file = fopen(to, "wx");
    if (!file) return false;
    bool ok = !one || !one->size || fwrite(one->data, one->size, 1, file) == 1;
    return fclose(file) == 0 && ok;
}

static bool write_folder(const struct identity *identity, const char *to) {
    const struct synced *one = find(identity);
    if (mkdir(to, 0700)) return false;
    for (size_t i = 0; one && i < one->count; i++) {
        const struct name *name = &one->names[i];
        char path[2048];
        snprintf(path, sizeof(path), "%s/%s", to, name->text);
        bool ok = name->folder ? write_folder(&name->identity, path)
                               : write_file(find(&name->identity), path);
        if (!ok) return false;
    }
    return true;
}

bool cairn_power_cut(const char *folder, const char *to) {
    struct identity identity;
    bool is_folder;
    pthread_mutex_lock(&mutex);
    bool ok = identify(AT_FDCWD, folder, &identity, &is_folder) && is_folder &&
              write_folder(&identity, to);
    pthread_mutex_unlock(&mutex);
    return ok;
}
