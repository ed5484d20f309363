/* SPDX-License-Identifier: Apache-2.0 */
/* daemons: own process groups, ended by pid. Command and uploader each lock the uploader's folder;
 * locks end with their process, so a folder without one is abandoned. */
#include "cli/shell/daemons.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

#define SETTINGS_MAX 12
#define STOP_TIMEOUT_MS 30000
#define POLL_MS 10

extern char **environ;

static enum cairn_code spawn(const char *path, char *const *argv, pid_t *ret_pid,
                             struct cairn_error *err) {
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    /* Own process group: Ctrl-C reaches only this process, which stops its daemons in order. */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int failed = posix_spawn(ret_pid, path, NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    errno = failed;
    return failed ? cairn_fail_errno(err, "cannot start %s", path) : CAIRN_OK;
}

bool cli_daemon_ended(struct cli_daemon *daemon, int *ret_status) {
    pid_t pid = daemon->pid; /* the signal thread may stop it meanwhile */
    if (pid <= 0) return true;
    pid_t ended = waitpid(pid, ret_status, WNOHANG);
    if (ended != pid && !(ended < 0 && errno == ECHILD)) return false;
    daemon->pid = 0;
    return true;
}

static enum cairn_code wait_ready(struct cli_daemon *daemon, uint32_t timeout_ms,
                                  struct cairn_error *err) {
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    int status = 0;
    while (access(daemon->ready_file, F_OK)) {
        if (cli_daemon_ended(daemon, &status)) {
            int exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
            bool usage = exit_status == cairn_code_info(CAIRN_INVALID)->exit_status;
            return cairn_fail(err, usage ? CAIRN_INVALID : CAIRN_UNAVAILABLE,
                              "%s did not start (status %d); its last line above says why",
                              daemon->name, exit_status);
        }
        if (!cairn_deadline_left_ms(&cairn_clock_real, deadline))
            return cairn_fail(err, CAIRN_TIMEOUT, "%s was started and is not ready after %u ms",
                              daemon->name, timeout_ms);
        (void)poll(NULL, 0, POLL_MS);
    }
    return CAIRN_OK;
}

static enum cairn_code spawn_daemon(struct cli_daemon *daemon, const char *folder,
                                    const char *program, const char *const (*settings)[2],
                                    const char *ready_file, struct cairn_error *err) {
    char path[PATH_MAX];
    char parent[16], *argv[2 * SETTINGS_MAX + 4];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/%s", folder, program);
    *daemon = (struct cli_daemon){0};
    cairn_text_copy(daemon->name, sizeof daemon->name, program);
    cairn_text_copy(daemon->ready_file, sizeof daemon->ready_file, ready_file);
    if (unlink(ready_file) && errno != ENOENT) return cairn_fail_errno(err, "%s", ready_file);
    argv[count++] = path;
    for (; settings[0][0]; settings++) {
        CAIRN_ASSERT(count < 2 * SETTINGS_MAX);
        argv[count++] = (char *)(uintptr_t)settings[0][0];
        argv[count++] = (char *)(uintptr_t)settings[0][1];
    }
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    argv[count++] = (char *)(uintptr_t) "--parent";
    argv[count++] = parent;
    argv[count] = NULL;
    return spawn(path, argv, &daemon->pid, err);
}

/* Stops a daemon that is not ready in time. */
static enum cairn_code await_daemon(struct cli_daemon *daemon, uint32_t timeout_ms,
                                    struct cairn_error *err) {
    enum cairn_code code = wait_ready(daemon, timeout_ms, err);
    if (code != CAIRN_OK) cli_daemon_stop(daemon);
    return code;
}

enum cairn_code cli_daemon_start(struct cli_daemon *daemon, const char *folder, const char *program,
                                 const char *const (*settings)[2], const char *ready_file,
                                 uint32_t timeout_ms, struct cairn_error *err) {
    CAIRN_TRY(spawn_daemon(daemon, folder, program, settings, ready_file, err));
    return await_daemon(daemon, timeout_ms, err);
}

void cli_daemon_stop(struct cli_daemon *daemon) {
    int status = 0;
    pid_t pid = daemon->pid;
    if (pid <= 0) return;
    kill(pid, SIGTERM);
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, STOP_TIMEOUT_MS);
    while (!cli_daemon_ended(daemon, &status)) {
        if (!cairn_deadline_left_ms(&cairn_clock_real, deadline)) {
            fprintf(stderr, "cairn: %s did not stop within 30 s; killing it\n", daemon->name);
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            daemon->pid = 0;
            return;
        }
        (void)poll(NULL, 0, POLL_MS);
    }
}

/* ---- the command's own uploader ---- */

#define PREFIX "cairn-put-"
#define TEMPLATE PREFIX "XXXXXX"
#define READY_MS 20000
#define NODE_FILE "node" /* holds the uploader's node name */
#define NODE_BYTES 64
#define TELL_MS 2000
/* From this age a folder without a lock was left by a command killed before it took one. */
#define UNLOCKED_MS 60000

/* ---- folders that killed commands left ---- */

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)status, (void)kind, (void)at;
    return remove(path);
}

static void remove_folder(const char *path) {
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* A lock that cannot be tried counts as held. */
static bool is_held(int folder_fd, const char *lock) {
    CAIRN_AUTO_FD fd = openat(folder_fd, lock, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0;
}

/* A folder of this user in which no process holds a lock. Closes take_folder_fd. */
static bool is_abandoned(int take_folder_fd) {
    struct stat status;
    DIR *stream = take_folder_fd < 0 ? NULL : fdopendir(take_folder_fd);
    if (!stream) {
        if (take_folder_fd >= 0) close(take_folder_fd);
        return false;
    }
    bool readable = !fstat(dirfd(stream), &status), locks = false, held = false;
    for (struct dirent *entry; readable && !held && (entry = readdir(stream));) {
        if (!cairn_text_ends(entry->d_name, ".lock")) continue;
        locks = true;
        held = is_held(dirfd(stream), entry->d_name);
    }
    closedir(stream);
    if (!readable || held || status.st_uid != geteuid()) return false;
    int64_t age_ms = cairn_clock_real.wall_ms(&cairn_clock_real) - 1000 * (int64_t)status.st_mtime;
    return locks || age_ms > UNLOCKED_MS;
}

/* Reports the end of the folder's uploader to the server, so that nothing waits for its node. If
 * the server is away, the next command reports it. */
static void tell_ended(const struct cli *cli, const char *folder) {
    char path[PATH_MAX], node[NODE_BYTES] = "";
    int size = snprintf(path, sizeof path, "%s/" NODE_FILE, folder);
    CAIRN_AUTO_FD fd = size < (int)sizeof path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    ssize_t got = fd < 0 ? -1 : read(fd, node, sizeof node - 1);
    if (got <= 0 || !cairn_name_valid(cairn_view_of(node))) return;
    CAIRN_AUTO_JSON json_t *uploader = json_object(), *none = json_array();
    CAIRN_AUTO_JSON json_t *body =
        CAIRN_PACK(node_put, .uploader = uploader, .attempts = none, .versions = none,
                   .ended = none, .leaving = true, .one_shot = true);
    CAIRN_AUTO(buf) tail = {0};
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_error why = {0};
    if (!body || cairn_buf_printf(&tail, NULL, "/nodes/%s", node)) return;
    const struct cli_call call = {
        .method = "PUT", .tail = tail.data, .body = body, .timeout_ms = TELL_MS};
    if (cli_call(cli, NULL, call, &reply, &why))
        cli_note("note: the server was not told that node %s has ended: %s", node, why.message);
}

static void remove_abandoned(const struct cli *cli, const char *temporary) {
    DIR *stream = opendir(temporary);
    if (!stream) return;
    for (struct dirent *entry; (entry = readdir(stream));) {
        char path[PATH_MAX];
        if (strlen(entry->d_name) != strlen(TEMPLATE) || !cairn_text_starts(entry->d_name, PREFIX))
            continue;
        int fd =
            openat(dirfd(stream), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int size = snprintf(path, sizeof path, "%s/%s", temporary, entry->d_name);
        if (!is_abandoned(fd) || size < 0 || (size_t)size >= sizeof path) continue;
        tell_ended(cli, path);
        remove_folder(path);
        cli_note("note: removed %s, which a killed cairn put had left", path);
    }
    closedir(stream);
}

/* ---- start and stop ---- */

/* Protects a start from _stop, which a signal may call before the uploader's pid is known. */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static bool is_over; /* guarded by guard: _stop was called */

static enum cairn_code make_folder(struct cli_own_uploader *uploader, const char *temporary,
                                   struct cairn_error *err) {
    char lock[128];
    uploader->lock_fd = -1;
    snprintf(uploader->folder, sizeof uploader->folder, "%s/" TEMPLATE, temporary);
    if (!mkdtemp(uploader->folder)) {
        enum cairn_code code = cairn_fail_errno(
            err, "cannot make the folder %s; set TMPDIR to a folder that exists", uploader->folder);
        uploader->folder[0] = '\0'; /* nothing to remove */
        return code;
    }
    snprintf(lock, sizeof lock, "%s/put.lock", uploader->folder);
    return cairn_file_lock(lock, &uploader->lock_fd, err);
}

static enum cairn_code make(const struct cli *cli, const char *store, const char *temporary,
                            struct cli_own_uploader *uploader, struct cairn_error *err) {
    char ready[128], node[NODE_BYTES];
    if (is_over) return cairn_fail(err, CAIRN_INTERRUPTED, "it was interrupted");
    CAIRN_TRY(make_folder(uploader, temporary, err));
    snprintf(uploader->socket, sizeof uploader->socket, "%s/uploader.sock", uploader->folder);
    snprintf(ready, sizeof ready, "%s/ready", uploader->folder);
    snprintf(node, sizeof node, "put-%d-%s", (int)getpid(),
             uploader->folder + strlen(uploader->folder) - strlen("XXXXXX"));
    char path[128];
    snprintf(path, sizeof path, "%s/" NODE_FILE, uploader->folder);
    CAIRN_AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, node, strlen(node)) != (ssize_t)strlen(node))
        return cairn_fail_errno(err, "%s", path);
    struct cli_server server;
    cli_server_of(cli, &server);
    const char *const settings[][2] = {
        {"--node", node},
        {"--server", server.url},
        {"--token-file", server.token_file ? server.token_file : ""},
        {"--ca-file", server.ca_file ? server.ca_file : ""},
        {"--store", store},
        {"--socket", uploader->socket},
        {"--state-dir", uploader->folder},
        {"--ready-file", ready},
        {"--log-level", "warn"},
        {NULL, NULL},
    };
    return spawn_daemon(&uploader->daemon, cli->program_folder, "cairn-uploader", settings, ready,
                        err);
}

enum cairn_code cli_own_uploader_start(const struct cli *cli, const char *store,
                                       struct cli_own_uploader *uploader, struct cairn_error *err) {
    const char *temporary = getenv("TMPDIR");
    bool fits =
        temporary && *temporary &&
        strlen(temporary) + sizeof "/" TEMPLATE <= sizeof(((struct cli_own_uploader *)0)->folder);
    if (!fits) temporary = "/tmp";
    remove_abandoned(cli, temporary);
    pthread_mutex_lock(&guard);
    enum cairn_code code = make(cli, store, temporary, uploader, err);
    pthread_mutex_unlock(&guard);
    return code ? code : await_daemon(&uploader->daemon, READY_MS, err);
}

void cli_own_uploader_stop(struct cli_own_uploader *uploader) {
    pthread_mutex_lock(&guard);
    is_over = true;
    if (uploader->folder[0]) {
        cli_daemon_stop(&uploader->daemon);
        remove_folder(uploader->folder);
        if (uploader->lock_fd >= 0) close(uploader->lock_fd);
        uploader->folder[0] = '\0';
    }
    pthread_mutex_unlock(&guard);
}
