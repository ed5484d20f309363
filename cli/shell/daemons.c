/* SPDX-License-Identifier: Apache-2.0 */
/* Daemons that live as long as one command. */
#include "cli/shell/daemons.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"

#define ARGUMENTS_MAX 24
#define STOP_TIMEOUT_MS 30000
#define POLL_MS 10

extern char **environ;

static void pause_ms(int ms) {
    (void)poll(NULL, 0, ms);
}

static enum cairn_code spawn(const char *path, char *const *argv, pid_t *ret_pid,
                             struct cairn_error *err) {
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    /* Its own group: Ctrl-C reaches this process alone, which then stops its daemons in order. */
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

bool cairn_cli_daemon_ended(struct cairn_cli_daemon *daemon, int *ret_status) {
    pid_t pid = daemon->pid; /* an interrupt's thread may stop it meanwhile */
    if (pid <= 0) return true;
    pid_t ended = waitpid(pid, ret_status, WNOHANG);
    if (ended != pid && !(ended < 0 && errno == ECHILD)) return false;
    daemon->pid = 0;
    return true;
}

static enum cairn_code wait_ready(struct cairn_cli_daemon *daemon, uint32_t timeout_ms,
                                  struct cairn_error *err) {
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    int status = 0;
    while (access(daemon->ready_file, F_OK)) {
        if (cairn_cli_daemon_ended(daemon, &status)) {
            int exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
            bool usage = exit_status == cairn_code_info(CAIRN_INVALID)->exit_status;
            return cairn_fail(err, usage ? CAIRN_INVALID : CAIRN_UNAVAILABLE,
                              "%s did not start (status %d); its last line above says why",
                              daemon->name, exit_status);
        }
        if (!cairn_deadline_left_ms(&cairn_clock_real, deadline))
            return cairn_fail(err, CAIRN_TIMEOUT, "%s was started and is not ready after %u ms",
                              daemon->name, timeout_ms);
        pause_ms(POLL_MS);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_cli_daemon_spawn(struct cairn_cli_daemon *daemon, const char *folder,
                                       const char *program, const char *const *arguments,
                                       const char *ready_file, struct cairn_error *err) {
    char path[PATH_MAX];
    char *argv[ARGUMENTS_MAX + 2];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/%s", folder, program);
    *daemon = (struct cairn_cli_daemon){0};
    cairn_text_copy(daemon->name, sizeof daemon->name, program);
    cairn_text_copy(daemon->ready_file, sizeof daemon->ready_file, ready_file);
    if (unlink(ready_file) && errno != ENOENT) return cairn_fail_errno(err, "%s", ready_file);
    argv[count++] = path;
    for (; *arguments; arguments++) {
        CAIRN_ASSERT(count <= ARGUMENTS_MAX);
        argv[count++] = (char *)(uintptr_t)*arguments;
    }
    argv[count] = NULL;
    return spawn(path, argv, &daemon->pid, err);
}

enum cairn_code cairn_cli_daemon_await(struct cairn_cli_daemon *daemon, uint32_t timeout_ms,
                                       struct cairn_error *err) {
    enum cairn_code code = wait_ready(daemon, timeout_ms, err);
    if (code != CAIRN_OK) cairn_cli_daemon_stop(daemon);
    return code;
}

enum cairn_code cairn_cli_daemon_start(struct cairn_cli_daemon *daemon, const char *folder,
                                       const char *program, const char *const *arguments,
                                       const char *ready_file, uint32_t timeout_ms,
                                       struct cairn_error *err) {
    CAIRN_TRY(cairn_cli_daemon_spawn(daemon, folder, program, arguments, ready_file, err));
    return cairn_cli_daemon_await(daemon, timeout_ms, err);
}

void cairn_cli_daemon_stop(struct cairn_cli_daemon *daemon) {
    int status = 0;
    pid_t pid = daemon->pid;
    if (pid <= 0) return;
    kill(pid, SIGTERM);
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, STOP_TIMEOUT_MS);
    while (!cairn_cli_daemon_ended(daemon, &status)) {
        if (!cairn_deadline_left_ms(&cairn_clock_real, deadline)) {
            fprintf(stderr, "cairn: %s did not stop within 30 s; killing it\n", daemon->name);
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            daemon->pid = 0;
            return;
        }
        pause_ms(POLL_MS);
    }
}
