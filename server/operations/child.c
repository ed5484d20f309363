/* SPDX-License-Identifier: Apache-2.0 */
/* posix_spawn, two pipes and poll; see child.h. */
#include "server/operations/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER_FD 3
#define OUTPUT_BYTES_MAX (1024 * 1024)
#define LINE_BYTES_MAX (64 * 1024)

static int add_actions(posix_spawn_file_actions_t *actions,
                       const struct cairn_srv_child_start *start, int output, int error) {
    int failed = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (!failed) failed = posix_spawn_file_actions_adddup2(actions, output, 1);
    if (!failed) failed = posix_spawn_file_actions_adddup2(actions, error, 2);
    if (!failed) failed = posix_spawn_file_actions_adddup2(actions, start->folder_fd, FOLDER_FD);
    if (!failed && start->inside)
        failed = posix_spawn_file_actions_addfchdir_np(actions, FOLDER_FD);
    if (!failed && !start->inside) failed = posix_spawn_file_actions_addchdir_np(actions, "/");
    return failed;
}

static enum cairn_code spawn(const struct cairn_srv_child_start *start, int output, int error,
                             pid_t *ret_pid, struct cairn_error *err) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int failed = add_actions(&actions, start, output, error);
    if (!failed)
        failed = posix_spawn(ret_pid, start->program, &actions, &attributes, start->arguments,
                             start->environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    errno = failed;
    return failed ? cairn_fail_errno(err, "cannot start %s", start->program) : CAIRN_OK;
}

/* Both ends above the numbers that the child's own get, so that none is overwritten. */
static enum cairn_code make_pipe(int ret[2], struct cairn_error *err) {
    int ends[2];
    ret[0] = ret[1] = -1;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) return cairn_fail_errno(err, "pipe");
    for (int i = 0; i < 2; i++) {
        ret[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, FOLDER_FD + 1);
        close(ends[i]);
    }
    if (ret[0] >= 0 && ret[1] >= 0) {
        (void)fcntl(ret[1], F_SETFL, 0); /* the child's end may wait */
        return CAIRN_OK;
    }
    return cairn_fail_errno(err, "pipe");
}

static void close_end(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

enum cairn_code cairn_srv_child_start(const struct cairn_srv_child_start *start,
                                      struct cairn_srv_child *ret, struct cairn_error *err) {
    int output[2] = {-1, -1}, error[2] = {-1, -1};
    *ret = (struct cairn_srv_child){.output_fd = -1,
                                    .error_fd = -1,
                                    .output.limit = OUTPUT_BYTES_MAX,
                                    .line.limit = LINE_BYTES_MAX};
    enum cairn_code code = make_pipe(output, err);
    if (!code) code = make_pipe(error, err);
    if (!code) code = spawn(start, output[1], error[1], &ret->pid, err);
    close_end(&output[1]);
    close_end(&error[1]);
    ret->output_fd = output[0];
    ret->error_fd = error[0];
    if (code) cairn_srv_child_release(ret);
    return code;
}

static void take_lines(struct cairn_srv_child *child, const char *data, size_t size,
                       void (*line)(void *owner, struct cairn_view text), void *owner) {
    while (size) {
        const char *end = memchr(data, '\n', size);
        size_t part = end ? (size_t)(end - data) : size;
        if (cairn_buf_append(&child->line, data, part, NULL)) cairn_buf_clear(&child->line);
        if (end) {
            if (child->line.size) line(owner, cairn_buf_view(&child->line));
            cairn_buf_clear(&child->line);
            part++;
        }
        data += part;
        size -= part;
    }
}

/* What is there now. */
static void take_in(struct cairn_srv_child *child,
                    void (*line)(void *owner, struct cairn_view text), void *owner) {
    char data[4096];
    for (ssize_t size; (size = read(child->error_fd, data, sizeof data)) > 0;)
        take_lines(child, data, (size_t)size, line, owner);
    for (ssize_t size; (size = read(child->output_fd, data, sizeof data)) > 0;)
        (void)!cairn_buf_append(&child->output, data, (size_t)size, NULL);
}

/* A pipe may stay open in what the child has started, so its end is not waited for. */
bool cairn_srv_child_listen(struct cairn_srv_child *child, int timeout_ms,
                            void (*line)(void *owner, struct cairn_view text), void *owner) {
    struct pollfd ends[2] = {{.fd = child->error_fd, .events = POLLIN},
                             {.fd = child->output_fd, .events = POLLIN}};
    bool ended = child->pid && waitpid(child->pid, &child->status, WNOHANG) == child->pid;
    if (!ended) (void)poll(ends, 2, timeout_ms);
    /* Closed by the child, which has not been waited for yet. */
    if (!ended && ((ends[0].revents | ends[1].revents) & (POLLHUP | POLLIN)) == POLLHUP)
        (void)poll(NULL, 0, 5);
    take_in(child, line, owner);
    if (ended) child->pid = 0;
    return !ended;
}

void cairn_srv_child_signal(const struct cairn_srv_child *child, int signal) {
    if (child->pid > 0) (void)kill(signal == SIGKILL ? -child->pid : child->pid, signal);
}

void cairn_srv_child_release(struct cairn_srv_child *child) {
    if (child->pid > 0) {
        cairn_srv_child_signal(child, SIGKILL);
        while (waitpid(child->pid, &child->status, 0) < 0 && errno == EINTR) {}
        child->pid = 0;
    }
    close_end(&child->output_fd);
    close_end(&child->error_fd);
    cairn_buf_release(&child->output);
    cairn_buf_release(&child->line);
}
