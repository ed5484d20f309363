/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the command `cairn` for an operation: posix_spawn, two pipes and poll; its arguments and
 * environment. A command that reads foreign files may fail, exhaust its memory or be killed without
 * harm to the server.
 *  1  The child has the given environment, descriptors 0 to 2, and the folder as 3.
 *  2  Its standard error is passed on by lines (64 KiB; longer ones are dropped); 1 MiB of its
 *     standard output is kept. It is reaped.
 *  3  Address, token and store settings go by the environment, never by arguments, which every user
 *     of the machine can read. Of the server's environment the child gets `passed`; the AWS
 *     variables only for an import, which uploads by itself. No profile of the server's user is
 *     read.
 *  4  It ends with the thread that started it (CAIRN_PARENT); the setting operation-memory limits
 *     its address space (CAIRN_MEMORY). */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/operations/operations.h"

#define FOLDER_FD 3
#define OUTPUT_BYTES_MAX (1024 * 1024)
#define LINE_BYTES_MAX (64 * 1024)
#define ARGUMENTS_MAX 64
#define VARIABLES_MAX 10000

extern char **environ;

struct child_start {
    const char *program;
    char *const *arguments, *const *environment; /* NULL-terminated */
    int folder_fd;                               /* becomes descriptor 3 */
    bool inside;                                 /* working directory: the folder; otherwise / */
};

static int add_actions(posix_spawn_file_actions_t *actions, const struct child_start *start,
                       int output, int error) {
    int failed = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (!failed) failed = posix_spawn_file_actions_adddup2(actions, output, 1);
    if (!failed) failed = posix_spawn_file_actions_adddup2(actions, error, 2);
    if (!failed) failed = posix_spawn_file_actions_adddup2(actions, start->folder_fd, FOLDER_FD);
    if (!failed && start->inside)
        failed = posix_spawn_file_actions_addfchdir_np(actions, FOLDER_FD);
    if (!failed && !start->inside) failed = posix_spawn_file_actions_addchdir_np(actions, "/");
    return failed;
}

static enum cairn_code spawn_child(const struct child_start *start, int output, int error,
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

/* Moves both ends above the child's own descriptors, so that dup2 overwrites none. */
static enum cairn_code make_pipe(int ret[2], struct cairn_error *err) {
    int ends[2];
    ret[0] = ret[1] = -1;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) return cairn_fail_errno(err, "pipe");
    for (int i = 0; i < 2; i++) {
        ret[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, FOLDER_FD + 1);
        close(ends[i]);
    }
    if (ret[0] >= 0 && ret[1] >= 0) {
        (void)fcntl(ret[1], F_SETFL, 0); /* the child's end blocks */
        return CAIRN_OK;
    }
    return cairn_fail_errno(err, "pipe");
}

static void close_end(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static enum cairn_code start_child(const struct child_start *start, struct srv_child *ret,
                                   struct cairn_error *err) {
    int output[2] = {-1, -1}, error[2] = {-1, -1};
    *ret = (struct srv_child){.output_fd = -1,
                              .error_fd = -1,
                              .output.limit = OUTPUT_BYTES_MAX,
                              .line.limit = LINE_BYTES_MAX};
    enum cairn_code code = make_pipe(output, err);
    if (!code) code = make_pipe(error, err);
    if (!code) code = spawn_child(start, output[1], error[1], &ret->pid, err);
    close_end(&output[1]);
    close_end(&error[1]);
    ret->output_fd = output[0];
    ret->error_fd = error[0];
    if (code) srv_child_release(ret);
    return code;
}

static void take_lines(struct srv_child *child, const char *data, size_t size,
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

/* Reads both pipes without blocking. */
static void take_in(struct srv_child *child, void (*line)(void *owner, struct cairn_view text),
                    void *owner) {
    char data[4096];
    for (ssize_t size; (size = read(child->error_fd, data, sizeof data)) > 0;)
        take_lines(child, data, (size_t)size, line, owner);
    for (ssize_t size; (size = read(child->output_fd, data, sizeof data)) > 0;)
        (void)!cairn_buf_append(&child->output, data, (size_t)size, NULL);
}

/* Waits for the child, not for the pipes' end: its own children may keep a pipe open. */
bool srv_child_listen(struct srv_child *child, int timeout_ms,
                      void (*line)(void *owner, struct cairn_view text), void *owner) {
    struct pollfd ends[2] = {{.fd = child->error_fd, .events = POLLIN},
                             {.fd = child->output_fd, .events = POLLIN}};
    bool ended = child->pid && waitpid(child->pid, &child->status, WNOHANG) == child->pid;
    if (!ended) (void)poll(ends, 2, timeout_ms);
    /* The child closed its pipes but has not exited yet. */
    if (!ended && ((ends[0].revents | ends[1].revents) & (POLLHUP | POLLIN)) == POLLHUP)
        (void)poll(NULL, 0, 5);
    take_in(child, line, owner);
    if (ended) child->pid = 0;
    return !ended;
}

void srv_child_signal(const struct srv_child *child, int signal) {
    if (child->pid > 0) (void)kill(signal == SIGKILL ? -child->pid : child->pid, signal);
}

void srv_child_release(struct srv_child *child) {
    if (child->pid > 0) {
        srv_child_signal(child, SIGKILL);
        while (waitpid(child->pid, &child->status, 0) < 0 && errno == EINTR) {
        }
        child->pid = 0;
    }
    close_end(&child->output_fd);
    close_end(&child->error_fd);
    cairn_buf_release(&child->output);
    cairn_buf_release(&child->line);
}

void srv_place_release(struct srv_place *place) {
    if (place->folder_fd >= 0) close(place->folder_fd);
    place->folder_fd = -1;
}

void srv_operation_command_release(struct srv_operation_command *command) {
    json_decref(command->arguments);
    srv_place_release(&command->place);
    free(command->path);
    *command = (struct srv_operation_command){.place.folder_fd = -1};
}

/* ---- its environment ---- */

struct variables {
    char **items;
    size_t count, capacity;
};

static void release_variables(struct variables *variables) {
    for (size_t i = 0; i < variables->count; i++) {
        if (!variables->items[i]) continue;
        cairn_wipe(variables->items[i], strlen(variables->items[i]));
        free(variables->items[i]);
    }
    free(variables->items);
}

static enum cairn_code add_variable(struct variables *variables, struct cairn_error *err,
                                    const char *name, const char *value) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(CAIRN_ARRAY_ROOM(variables->items, variables->count, variables->capacity,
                               VARIABLES_MAX, "variables of the environment", err));
    for (const char *at = name; *at; at++) {
        char upper = (char)toupper((unsigned char)*at);
        CAIRN_TRY(cairn_buf_append(&text, &upper, 1, err));
    }
    CAIRN_TRY(cairn_buf_printf(&text, err, "=%s", value));
    char *copy = strdup(text.data);
    cairn_wipe(text.data, text.size);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an environment");
    variables->items[variables->count++] = copy;
    return CAIRN_OK;
}

static enum cairn_code add_number(struct variables *variables, struct cairn_error *err,
                                  const char *name, uint64_t value, const char *unit) {
    char text[32];
    snprintf(text, sizeof text, "%llu%s", (unsigned long long)value, unit);
    return add_variable(variables, err, name, text);
}

static enum cairn_code add_text(struct variables *variables, struct cairn_error *err,
                                const char *name, const char *value) {
    return value && value[0] ? add_variable(variables, err, name, value) : CAIRN_OK;
}

/* The store's settings in effect, whatever their origin. */
#define ADD_TEXT(name) add_text(variables, err, "cairn_" #name, settings->name)
#define ADD_BOOL(name) add_text(variables, err, "cairn_" #name, settings->name ? "true" : "false")
#define ADD_COUNT(name) add_number(variables, err, "cairn_" #name, settings->name, "")
#define ADD_SIZE(name) add_number(variables, err, "cairn_" #name, settings->name##_bytes, "")
#define ADD_TIME(name) add_number(variables, err, "cairn_" #name, settings->name##_ms, "ms")
static enum cairn_code add_store(const struct srv_settings *settings, struct variables *variables,
                                 struct cairn_error *err) {
#define CONFIG(type, name, fallback, min, max, why) CAIRN_TRY(ADD_##type(name));
#include "store/s3/settings.def"
#undef CONFIG
    return CAIRN_OK;
}

/* Variables needed to start a program, to find a temporary folder and to trust peers. */
static const char *const passed[] = {
    "LD_LIBRARY_PATH", "TMPDIR",       "SSL_CERT_FILE", "SSL_CERT_DIR",
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    "ASAN_OPTIONS",    "TSAN_OPTIONS", "UBSAN_OPTIONS",
#endif
};

static bool has_name(const char *variable, const char *name) {
    size_t size = strlen(name);
    return !strncmp(variable, name, size) && variable[size] == '=';
}

/* HOME locates the AWS profile, which without AWS_* may be the only source of credentials. */
static bool is_passed(const char *variable, bool sends) {
    bool aws = cairn_text_starts(variable, "AWS") && variable[3] == '_';
    if (sends && (aws || has_name(variable, "HOME"))) return true;
    for (size_t i = 0; i < CAIRN_COUNT(passed); i++)
        if (has_name(variable, passed[i])) return true;
    return false;
}

static enum cairn_code make_environment(const struct srv *server, bool sends, const char *token,
                                        struct variables *variables, struct cairn_error *err) {
    for (char **at = environ; *at; at++) {
        if (!is_passed(*at, sends)) continue;
        CAIRN_TRY(CAIRN_ARRAY_ROOM(variables->items, variables->count, variables->capacity,
                                   VARIABLES_MAX, "variables of the environment", err));
        if (!(variables->items[variables->count] = strdup(*at)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an environment");
        variables->count++;
    }
    CAIRN_TRY(add_store(server->settings, variables, err));
    CAIRN_TRY(add_variable(variables, err, "cairn_profiles", "/proc/self/no-profiles"));
    CAIRN_TRY(add_text(variables, err, "cairn_token", token));
    CAIRN_TRY(add_text(variables, err, "cairn_ca_file", server->settings->ca_file));
    CAIRN_TRY(add_number(variables, err, "cairn_parent", (uint64_t)getpid(), ""));
    CAIRN_TRY(
        add_number(variables, err, "cairn_memory", server->settings->operation_memory_bytes, ""));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(variables->items, variables->count, variables->capacity,
                               VARIABLES_MAX, "variables of the environment", err));
    variables->items[variables->count] = NULL;
    return CAIRN_OK;
}

/* ---- its arguments ---- */

static enum cairn_code find_program(char *ret, size_t capacity, struct cairn_error *err) {
    ssize_t size = readlink("/proc/self/exe", ret, capacity - sizeof "/cairn");
    if (size < 0) return cairn_fail_errno(err, "/proc/self/exe");
    ret[size] = '\0';
    char *slash = strrchr(ret, '/');
    if (slash) snprintf(slash, capacity - (size_t)(slash - ret), "/cairn");
    if (!access(ret, X_OK)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "the command cairn is not installed beside cairn-server (%s)", ret);
}

/* The address at which the command reaches this server; loopback if it listens on all addresses. */
static enum cairn_code find_url(const struct srv *server, uint16_t port, struct cairn_buf *ret,
                                struct cairn_error *err) {
    const struct srv_settings *settings = server->settings;
    const char *listen = settings->listen, *colon = strrchr(listen, ':');
    int size = colon ? (int)(colon - listen) : (int)strlen(listen);
    if (settings->operations_url[0])
        return cairn_buf_append_text(ret, settings->operations_url, err);
    const char *scheme = settings->tls_cert[0] ? "https" : "http";
    if (!size || cairn_text_starts(listen, "0.0.0.0:") || cairn_text_starts(listen, "*:"))
        return cairn_buf_printf(ret, err, "%s://127.0.0.1:%u", scheme, port);
    if (cairn_text_starts(listen, "[::]:"))
        return cairn_buf_printf(ret, err, "%s://[::1]:%u", scheme, port);
    return cairn_buf_printf(ret, err, "%s://%.*s:%u", scheme, size, listen, port);
}

enum cairn_code srv_operation_command_start(struct srv *server, uint16_t port,
                                            const struct srv_operation_command *command,
                                            const char *token, struct srv_child *ret,
                                            struct cairn_error *err) {
    char program[PATH_MAX];
    CAIRN_AUTO(buf) url = {0};
    const char *arguments[ARGUMENTS_MAX + 8];
    size_t count = 0, wanted = json_array_size(command->arguments);
    struct variables variables = {0};
    *ret = (struct srv_child){.output_fd = -1, .error_fd = -1};
    CAIRN_ASSERT(wanted > 0);
    CAIRN_ASSERT(wanted <= ARGUMENTS_MAX);
    CAIRN_TRY(find_program(program, sizeof program, err));
    CAIRN_TRY(find_url(server, port, &url, err));
    arguments[count++] = "cairn";
    arguments[count++] = json_string_value(json_array_get(command->arguments, 0));
    arguments[count++] = "--json";
    arguments[count++] = "--progress=json";
    arguments[count++] = "--server";
    arguments[count++] = url.data;
    for (size_t i = 1; i < wanted; i++)
        arguments[count++] = json_string_value(json_array_get(command->arguments, i));
    arguments[count] = NULL;
    enum cairn_code code = make_environment(server, command->sends, token, &variables, err);
    struct child_start start = {.program = program,
                                .arguments = (char *const *)(uintptr_t)arguments,
                                .environment = variables.items,
                                .folder_fd = command->place.folder_fd,
                                .inside = command->inside};
    if (!code) code = start_child(&start, ret, err);
    release_variables(&variables);
    return code;
}

enum cairn_code srv_operation_command_say(const struct srv_operation_command *command,
                                          const char *text, struct cairn_buf *ret,
                                          struct cairn_error *err) {
    for (const char *found; (found = strstr(text, SRV_OPERATION_FOLDER));) {
        CAIRN_TRY(cairn_buf_append(ret, text, (size_t)(found - text), err));
        CAIRN_TRY(cairn_buf_append_text(ret, command->path, err));
        text = found + sizeof(SRV_OPERATION_FOLDER) - 1;
    }
    return cairn_buf_append_text(ret, text, err);
}
