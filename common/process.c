/* SPDX-License-Identifier: Apache-2.0 */
/* Background threads, messages to the service manager, and a memory budget: a counter under a lock,
 * which also covers the numbers of a refusal. */
#include "common/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"
#include "common/text.h"

static void *enter(void *argument) {
    struct cairn_thread *thread = argument;
    pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread, thread->owner);
    return NULL;
}

enum cairn_code cairn_thread_start(struct cairn_thread *thread, struct cairn_error *err) {
    CAIRN_ASSERT(!thread->started);
    CAIRN_ASSERT(strlen(thread->name) < 16);
    cairn_lock_init(&thread->lock, CAIRN_LOCK_thread_bell);
    cairn_condition_init(&thread->bell);
    thread->locked.woken = thread->locked.stopping = false;
    thread->started = true; /* before it runs, since its work may wake it */
    if (!pthread_create(&thread->id, NULL, enter, thread)) return CAIRN_OK;
    thread->started = false;
    cairn_condition_release(&thread->bell);
    cairn_lock_release(&thread->lock);
    return cairn_fail(err, CAIRN_NO_MEMORY, "no thread %s", thread->name);
}

bool cairn_thread_wait(struct cairn_thread *thread, uint64_t until_ms) {
    CAIRN_HOLD(&thread->lock);
    while (!thread->locked.woken && !thread->locked.stopping)
        if (!cairn_condition_wait(&thread->bell, &thread->lock, until_ms)) break;
    thread->locked.woken = false;
    return !thread->locked.stopping;
}

void cairn_thread_wake(struct cairn_thread *thread) {
    CAIRN_HOLD(&thread->lock);
    thread->locked.woken = true;
    cairn_condition_signal(&thread->bell);
}

void cairn_thread_stop(struct cairn_thread *thread) {
    if (!thread->started) return;
    {
        CAIRN_HOLD(&thread->lock);
        thread->locked.stopping = true;
        cairn_condition_signal(&thread->bell);
    }
    pthread_join(thread->id, NULL);
    cairn_condition_release(&thread->bell);
    cairn_lock_release(&thread->lock);
    thread->started = false;
}

void cairn_late_tell(const char *wait) {
    cairn_log(WARN, "wait.late", "wait=%s hint=\"a wake was forgotten: please report it\"", wait);
}

/* ---- the service manager ---- */

#define ALIVE_EVERY_MS 1000

void cairn_manager_tell(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t size = path ? strlen(path) : 0;
    if (size < 2 || size >= sizeof(to.sun_path) || (*path != '/' && *path != '@')) return;
    memcpy(to.sun_path, path, size);
    if (*path == '@') to.sun_path[0] = '\0'; /* abstract: its length counts, not a NUL */
    CAIRN_AUTO_FD fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to, bytes);
}

void cairn_manager_alive(void) {
    static uint64_t told_ms; /* the owner is the one loop that calls this */
    uint64_t now_ms = cairn_mono_ms();
    if (now_ms < told_ms + ALIVE_EVERY_MS || !getenv("WATCHDOG_USEC")) return;
    told_ms = now_ms;
    cairn_manager_tell("WATCHDOG=1");
}

/* ---- the parent ---- */

enum cairn_code cairn_parent_follow(uint64_t parent_pid, struct cairn_error *err) {
    if (!parent_pid) return CAIRN_OK;
    if (prctl(PR_SET_PDEATHSIG, SIGTERM)) return cairn_fail_errno(err, "parent-death signal");
    /* The parent may have died before prctl; then the process has another parent now. */
    if ((uint64_t)getppid() != parent_pid)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "process %llu, which started this one, has ended",
                          (unsigned long long)parent_pid);
    return CAIRN_OK;
}

/* ---- other processes ---- */

int cairn_process_fd(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* ---- memory ---- */

void cairn_budget_init(struct cairn_budget *budget, uint64_t total_bytes) {
    cairn_lock_init(&budget->lock, CAIRN_LOCK_memory_budget);
    budget->total_bytes = cairn_min_u64(total_bytes, UINT64_C(1) << 62);
    budget->locked.reserved_bytes = 0;
    budget->locked.highest_bytes = 0;
}

void cairn_budget_release(struct cairn_budget *budget) {
    cairn_lock_release(&budget->lock);
}

enum cairn_code cairn_budget_take(struct cairn_budget *budget, uint64_t bytes, const char *what,
                                  struct cairn_error *err) {
    uint64_t in_use;
    {
        CAIRN_HOLD(&budget->lock);
        in_use = budget->locked.reserved_bytes;
        CAIRN_ASSERT(in_use <= budget->total_bytes); /* process.h#7 */
        /* Compares with the free part, so that no sum can wrap. */
        if (bytes <= budget->total_bytes - in_use) {
            budget->locked.reserved_bytes += bytes;
            budget->locked.highest_bytes =
                cairn_max_u64(budget->locked.highest_bytes, budget->locked.reserved_bytes);
            return CAIRN_OK;
        }
    }
    char asked[24], used[24], total[24];
    cairn_size_text(bytes, asked);
    cairn_size_text(in_use, used);
    cairn_size_text(budget->total_bytes, total);
    return cairn_fail(err, CAIRN_NO_MEMORY, "%s asks for %s, but %s of %s are in use", what, asked,
                      used, total);
}

void cairn_budget_give(struct cairn_budget *budget, uint64_t bytes) {
    CAIRN_HOLD(&budget->lock);
    CAIRN_ASSERT(bytes <= budget->locked.reserved_bytes);
    budget->locked.reserved_bytes -= bytes;
}

uint64_t cairn_budget_free_bytes(struct cairn_budget *budget) {
    CAIRN_HOLD(&budget->lock);
    return budget->total_bytes - budget->locked.reserved_bytes;
}

/* ---- what the machine and its control groups allow ---- */

struct group { /* this process's control group in one hierarchy */
    char path[1024];
    char mount[1024], mount_root[1024];
};

static uint64_t read_limit(const char *root, const char *folder, const char *file) {
    char path[4096];
    CAIRN_AUTO(buf) text = {.limit = 4096};
    int size = snprintf(path, sizeof path, "%s%s/%s", root, folder, file);
    if (size < 0 || (size_t)size >= sizeof path || cairn_file_load(path, &text, NULL))
        return UINT64_MAX;
    char *end = NULL;
    unsigned long long bytes = strtoull(text.data, &end, 10); /* "max" is not a number */
    return end == text.data || !bytes ? UINT64_MAX : bytes;
}

/* Smallest limit of the group and its ancestors, up to the mount. A group outside the mount (a
 * container without a cgroup namespace) counts as the mount itself. */
static uint64_t smallest_limit(const char *root, const struct group *group, const char *file) {
    char folder[2048];
    const char *inner = group->path;
    size_t above = strcmp(group->mount_root, "/") ? strlen(group->mount_root) : 0;
    bool inside = !strncmp(inner, group->mount_root, above) &&
                  (inner[above] == '/' || inner[above] == '\0') && !strstr(inner, "/..");
    inner = inside ? inner + above : "";
    uint64_t limit = UINT64_MAX;
    if (!group->mount[0]) return limit;
    snprintf(folder, sizeof folder, "%s%s", group->mount, strcmp(inner, "/") ? inner : "");
    for (;;) {
        limit = cairn_min_u64(limit, read_limit(root, folder, file));
        char *slash = strrchr(folder, '/');
        if (!slash || strlen(folder) <= strlen(group->mount)) return limit;
        *slash = '\0';
    }
}

static bool names_memory(const char *list, const char *end) {
    for (const char *at = list; at < end; at++)
        if ((at == list || at[-1] == ',') && !strncmp(at, "memory", 6) &&
            (at + 6 == end || at[6] == ','))
            return true;
    return false;
}

/* Lines of /proc/self/cgroup: "0::PATH" of v2, "NUMBER:CONTROLLERS:PATH" of v1. */
static void find_paths(const char *text, struct group *v1, struct group *v2) {
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) continue;
        struct group *group = path == list + 1 ? v2 : names_memory(list + 1, path) ? v1 : NULL;
        size_t size = strcspn(path + 1, "\n");
        if (!group || size >= sizeof group->path) continue;
        memcpy(group->path, path + 1, size);
        group->path[size] = '\0';
    }
}

/* Lines of /proc/self/mountinfo:
 * "ID PARENT DEVICE ROOT MOUNT OPTIONS ... - TYPE SOURCE OPTIONS". */
static void find_mounts(const char *text, struct group *v1, struct group *v2) {
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char own[4096], root[1024], mount[1024], type[32], options[1024];
        snprintf(own, sizeof own, "%.*s", (int)strcspn(line, "\n"), line);
        const char *behind = strstr(own, " - ");
        if (!behind || sscanf(own, "%*s %*s %*s %1023s %1023s", root, mount) != 2 ||
            sscanf(behind, " - %31s %*s %1023s", type, options) != 2)
            continue;
        bool first = !strcmp(type, "cgroup") && names_memory(options, options + strlen(options));
        struct group *group = first ? v1 : !strcmp(type, "cgroup2") ? v2 : NULL;
        if (!group || group->mount[0]) continue;
        memcpy(group->mount, mount, sizeof group->mount);
        memcpy(group->mount_root, root, sizeof group->mount_root);
    }
}

uint64_t cairn_memory_limit(const char *root) {
    char path[4096];
    CAIRN_AUTO(buf) groups = {.limit = CAIRN_MIB};
    CAIRN_AUTO(buf) mounts = {.limit = 16 * CAIRN_MIB};
    struct group v1 = {0}, v2 = {0};
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
    uint64_t limit =
        pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 4 * CAIRN_GIB;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (cairn_file_load(path, &groups, NULL)) return limit;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    if (cairn_file_load(path, &mounts, NULL)) return limit;
    find_paths(groups.data, &v1, &v2);
    find_mounts(mounts.data, &v1, &v2);
    limit = cairn_min_u64(limit, smallest_limit(root, &v1, "memory.limit_in_bytes"));
    return cairn_min_u64(limit, smallest_limit(root, &v2, "memory.max"));
}
