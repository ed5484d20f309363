/* SPDX-License-Identifier: Apache-2.0 */
/* A name is "boot namespace number start": the start time of /proc/N/stat tells two processes of
 * one number apart, the boot id two boots, the namespace's inode whose numbers they are. */
#include "uploader/saves/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __has_include(<sys/pidfd.h>) /* glibc's, from 2.36 on */
#include <sys/pidfd.h>
#else
static int pidfd_open(pid_t pid, unsigned flags) {
    return (int)syscall(SYS_pidfd_open, pid, flags);
}
static int pidfd_send_signal(int fd, int number, siginfo_t *info, unsigned flags) {
    return (int)syscall(SYS_pidfd_send_signal, fd, number, info, flags);
}
#endif

#include "common/buf.h"
#include "common/file.h"

#define BOOT_BYTES 40
#define START_FIELD 22 /* of /proc/N/stat, from 1 */

/* A descriptor of a process, and not of something else that becomes readable. The kernel refuses to
 * send signals into another namespace, but only after it has found the process. */
static bool is_process(int fd) {
    return fd >= 0 && (pidfd_send_signal(fd, 0, NULL, 0) == 0 || errno != EBADF);
}

int cairn_up_process_watch(struct cairn_up_process_names *take_names) {
    struct cairn_up_process_names names = *take_names;
    take_names->peer = take_names->told = -1;
    int process = names.peer;
    if (process < 0 && names.pid > 0) process = pidfd_open(names.pid, 0);
    if (process < 0 && is_process(names.told)) process = names.told;
    if (names.told >= 0 && names.told != process) close(names.told);
    return process;
}

/* "boot namespace", whose numbers mean the same processes. */
static bool place_of(char *ret, size_t capacity) {
    CAIRN_AUTO(buf) boot = {.limit = 4096};
    struct stat status;
    if (cairn_file_load("/proc/sys/kernel/random/boot_id", &boot, NULL)) return false;
    if (stat("/proc/self/ns/pid", &status)) return false;
    int bytes = (int)strcspn(boot.data, "\n ");
    if (!bytes || bytes >= BOOT_BYTES) return false;
    int size =
        snprintf(ret, capacity, "%.*s %llu", bytes, boot.data, (unsigned long long)status.st_ino);
    return size > 0 && (size_t)size < capacity;
}

/* The second field is the program's name in brackets, which may hold anything. */
static bool start_of(pid_t pid, unsigned long long *ret) {
    char path[40];
    CAIRN_AUTO(buf) text = {.limit = 4096};
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (cairn_file_load(path, &text, NULL)) return false;
    const char *at = strrchr(text.data, ')');
    for (int field = 2; at && field < START_FIELD; field++) at = strchr(at + 1, ' ');
    char *end = NULL;
    if (!at) return false;
    *ret = strtoull(at + 1, &end, 10);
    return end != at + 1;
}

void cairn_up_process_name(pid_t pid, char ret[CAIRN_UP_PROCESS_BYTES]) {
    char place[BOOT_BYTES + 24];
    unsigned long long start = 0;
    ret[0] = 0;
    if (pid > 0 && place_of(place, sizeof(place)) && start_of(pid, &start))
        snprintf(ret, CAIRN_UP_PROCESS_BYTES, "%s %d %llu", place, (int)pid, start);
}

static bool has_ended(int process) {
    struct pollfd ended = {.fd = process, .events = POLLIN};
    return poll(&ended, 1, 0) > 0;
}

enum cairn_up_process cairn_up_process_find(const char *name, int *ret_fd) {
    char here[BOOT_BYTES + 24], boot[BOOT_BYTES] = "", now[CAIRN_UP_PROCESS_BYTES];
    unsigned long long space = 0;
    int pid = 0;
    *ret_fd = -1;
    if (sscanf(name, "%39s %llu %d", boot, &space, &pid) != 3 || pid <= 0)
        return CAIRN_UP_PROCESS_UNSEEN;
    if (!place_of(here, sizeof(here))) return CAIRN_UP_PROCESS_UNSEEN;
    size_t boot_size = strlen(boot), here_size = strlen(here);
    if (strncmp(here, boot, boot_size) || here[boot_size] != ' ') return CAIRN_UP_PROCESS_ENDED;
    if (strncmp(here, name, here_size) || name[here_size] != ' ') return CAIRN_UP_PROCESS_UNSEEN;
    int process = pidfd_open(pid, 0);
    if (process < 0) return errno == ESRCH ? CAIRN_UP_PROCESS_ENDED : CAIRN_UP_PROCESS_UNSEEN;
    /* The descriptor came first: what is named now is what it is of, or that has ended. */
    cairn_up_process_name(pid, now);
    if (!strcmp(now, name)) {
        *ret_fd = process;
        return CAIRN_UP_PROCESS_LIVES;
    }
    bool ended = now[0] || has_ended(process);
    cairn_fd_close_at(&process);
    return ended ? CAIRN_UP_PROCESS_ENDED : CAIRN_UP_PROCESS_UNSEEN;
}
