/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys that a program prints ("credential_process" of a profile). It is started by posix_spawn (R8)
 * with nothing of ours open but its output; what it says on standard error is dropped, since it may
 * be a secret and our log is not where secrets go.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "store/keys/fetch.h"

#define WORDS_MAX 64
#define OUTPUT_BYTES_MAX (64 * CAIRN_KIB)
#define RUN_MS 60000
/* How often a program is looked at: one that has closed its output ends soon. */
#define LOOK_MS 100
#define LOOK_ENDING_MS 10

extern char **environ;

/* ---- words ---- */

/* One word from *text to *to, which are parts of one buffer: a word never grows. false: a quote
 * has no end. */
static bool read_word(const char **text, char **to) {
    const char *from = *text;
    char *at = *to;
    for (char quote = '\0'; *from && (quote || !strchr(" \t\r\n", *from)); from++) {
        if (quote == '\'' || (quote && *from == quote)) {
            if (*from == quote)
                quote = '\0';
            else
                *at++ = *from;
        } else if (!quote && (*from == '\'' || *from == '"')) {
            quote = *from;
        } else if (*from == '\\' && from[1] && (!quote || from[1] == '"' || from[1] == '\\')) {
            *at++ = *++from;
        } else {
            *at++ = *from;
        }
        if (quote && !from[1]) return false;
    }
    *text = from;
    *at++ = '\0';
    *to = at;
    return true;
}

/* As Python's shlex and with it the AWS command line: no variables, no ~, no globs. */
static enum cairn_code split(const char *command, char *memory, char *ret_words[WORDS_MAX + 1],
                             struct cairn_error *err) {
    size_t count = 0;
    for (;;) {
        command += strspn(command, " \t\r\n");
        if (!*command) break;
        if (count == WORDS_MAX)
            return cairn_fail(err, CAIRN_INVALID, "it has more than %d words", WORDS_MAX);
        ret_words[count++] = memory;
        if (!read_word(&command, &memory))
            return cairn_fail(err, CAIRN_INVALID, "a quote in it has no end");
    }
    ret_words[count] = NULL;
    if (!count || !*ret_words[0]) return cairn_fail(err, CAIRN_INVALID, "it names no program");
    return CAIRN_OK;
}

/* ---- the child ---- */

struct child {
    pid_t pid; /* 0: not started, or reaped */
    int output;
    int status;
};
static void child_release(struct child *child) {
    if (child->pid > 0) {
        kill(-child->pid, SIGKILL); /* its group: what it started, too */
        waitpid(child->pid, NULL, 0);
    }
    if (child->output >= 0) close(child->output);
}

/* A group of its own, so that all of it can be ended; signals as a fresh program expects them. */
static int set_attributes(posix_spawnattr_t *attributes) {
    static const int signals[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE,
                                  SIGTERM, SIGCHLD, SIGUSR1, SIGXFSZ};
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (size_t i = 0; i < CAIRN_COUNT(signals); i++) sigaddset(&usual, signals[i]);
    posix_spawnattr_setpgroup(attributes, 0);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &usual);
    return posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
}

static int spawn_words(char *const *words, int output, pid_t *ret_pid) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&files)) return ENOMEM;
    if (posix_spawnattr_init(&attributes)) {
        posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    int failed = set_attributes(&attributes);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!failed) failed = posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!failed) failed = posix_spawnp(ret_pid, words[0], &files, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

/* Pipe ends above the standard three, so that none of them is moved onto itself and stays
 * close-on-exec. */
static enum cairn_code make_pipe(int ret_ends[2], struct cairn_error *err) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return cairn_fail_errno(err, "a pipe");
    for (int i = 0; i < 2; i++) ret_ends[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 2; i++) close(ends[i]);
    if (ret_ends[0] >= 0 && ret_ends[1] >= 0) return CAIRN_OK;
    for (int i = 0; i < 2; i++)
        if (ret_ends[i] >= 0) close(ret_ends[i]);
    return cairn_fail_errno(err, "a pipe");
}

static enum cairn_code start(struct child *child, char *const *words, struct cairn_error *err) {
    int ends[2] = {-1, -1};
    CAIRN_TRY(make_pipe(ends, err));
    child->output = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    int failed = spawn_words(words, ends[1], &child->pid);
    close(ends[1]);
    if (!failed) return CAIRN_OK;
    child->pid = 0;
    errno = failed;
    return cairn_fail_errno(err, "start %.100s", words[0]);
}

/* true: it has ended. One that somebody else has reaped counts as one that ended well; what it
 * printed tells. */
static bool has_ended(struct child *child) {
    if (!child->pid) return true;
    pid_t pid = waitpid(child->pid, &child->status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) return false;
    if (pid < 0) child->status = 0;
    child->pid = 0;
    return true;
}

/* Reads what is there. *ret_open: there may be more. */
static enum cairn_code read_some(struct child *child, struct cairn_buf *ret, bool *ret_open,
                                 struct cairn_error *err) {
    char piece[4096];
    ssize_t size;
    enum cairn_code code = CAIRN_OK;
    while (!code && (size = read(child->output, piece, sizeof piece)) > 0)
        code = cairn_buf_append(ret, piece, (size_t)size, NULL);
    explicit_bzero(piece, sizeof piece);
    if (code) return cairn_fail(err, CAIRN_TOO_LARGE, "it printed more than 64 KiB");
    *ret_open = size < 0 && (errno == EAGAIN || errno == EINTR);
    return CAIRN_OK;
}

/* Until it has ended and all is read. Who keeps the output open after that is not waited for. */
static enum cairn_code collect(struct child *child, uint32_t timeout_ms, struct cairn_buf *ret,
                               struct cairn_error *err) {
    uint64_t until = cairn_mono_ms() + timeout_ms;
    for (bool open = true;;) {
        bool ended = has_ended(child); /* before reading: then nothing comes after it */
        if (open) CAIRN_TRY(read_some(child, ret, &open, err));
        if (ended) return CAIRN_OK;
        if (cairn_mono_ms() >= until)
            return cairn_fail(err, CAIRN_TIMEOUT, "it did not end within %u s", timeout_ms / 1000);
        struct pollfd output = {.fd = open ? child->output : -1, .events = POLLIN};
        poll(&output, 1, open ? LOOK_MS : LOOK_ENDING_MS);
    }
}

/* ---- its answer ---- */

static enum cairn_code check_end(const struct child *child, struct cairn_error *err) {
    if (WIFSIGNALED(child->status))
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "it was ended by signal %d",
                          WTERMSIG(child->status));
    if (WEXITSTATUS(child->status))
        return cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "it ended with status %d; run it by hand to see what it says",
                          WEXITSTATUS(child->status));
    return CAIRN_OK;
}

static enum cairn_code take_answer(const struct cairn_buf *answer, struct cairn_credentials *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    uint64_t version = 0;
    struct cairn_json_field field = {"Version", CAIRN_JSON_U64, true, &version, 0};
    CAIRN_TRY(cairn_credentials_parse(cairn_buf_view(answer), &json, err));
    CAIRN_TRY(cairn_json_read(json, "", &field, 1, true, err));
    if (version != 1)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it answers in version %llu; known is 1",
                          (unsigned long long)version);
    return cairn_credentials_take_json(json, "SessionToken", ret, err);
}

enum cairn_code cairn_credentials_process(const char *command, uint32_t timeout_ms,
                                          struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_SECRET_BUF answer = {.limit = OUTPUT_BYTES_MAX};
    __attribute__((cleanup(child_release))) struct child child = {.output = -1};
    /* Each word ends where a blank stood or behind the text. */
    CAIRN_AUTO_HEAP char *memory = malloc(strlen(command) + 1);
    char *words[WORDS_MAX + 1];
    if (!memory) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a command");
    CAIRN_TRY(split(command, memory, words, err));
    CAIRN_TRY(start(&child, words, err));
    CAIRN_TRY(collect(&child, timeout_ms ? timeout_ms : RUN_MS, &answer, err));
    CAIRN_TRY(check_end(&child, err));
    return take_answer(&answer, ret, err);
}
