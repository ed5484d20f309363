/* SPDX-License-Identifier: Apache-2.0 */
/* cairn up: server and uploader on one folder, in the foreground, until Ctrl-C. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/shell/daemons.h"
#include "cli/shell/interrupt.h"
#include "cli/shell/output.h"
#include "common/file.h"
#include "common/text.h"

#define READY_MS 30000
#define LOOK_EVERY_MS 200
#define SOCKET_PATH_MAX 107

static const struct cairn_cli_flag up_flags[] = {
    {"listen", 'l', CAIRN_CLI_TEXT, CAIRN_CLI_AT(listen), 0, "ADDRESS",
     "Where the server listens; default 127.0.0.1:7420; port 0 picks one."},
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Keep the bytes there instead of in DIR/store: another folder or s3://bucket/prefix."},
    {"memory", 'm', CAIRN_CLI_SIZE, CAIRN_CLI_AT(bytes), 0, "SIZE",
     "The uploader's memory budget; default a quarter of this machine's."},
};

struct up {
    char folder[PATH_MAX - 64];
    char store[PATH_MAX], data_dir[PATH_MAX], state_dir[PATH_MAX];
    char port_file[PATH_MAX], ready_file[PATH_MAX], socket[PATH_MAX];
    char url[64], memory[32];
    struct cairn_cli_daemon server, uploader;
};

/* The path of the folder is too long for a socket: a short one, in a folder that is this user's
 * alone, since anybody could put a socket of that name into $TMPDIR or /tmp itself. */
static enum cairn_code place_socket_elsewhere(struct up *up, struct cairn_error *err) {
    char folder[64];
    struct stat status;
    const char *given = getenv("TMPDIR");
    const char *above = given && *given && strlen(given) < 40 ? given : "/tmp";
    snprintf(folder, sizeof folder, "%s/cairn-%u", above, (unsigned)geteuid());
    if (mkdir(folder, 0700) && errno != EEXIST) return cairn_fail_errno(err, "make %s", folder);
    if (lstat(folder, &status)) return cairn_fail_errno(err, "%s", folder);
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "%s must be a folder of this user that nobody else may enter, for the "
                          "uploader's socket, since the path of %s is too long for one: remove it, "
                          "or give a folder with a shorter path",
                          folder, up->folder);
    /* Two that run at a time have two sockets: the folder's own number tells them apart. */
    if (stat(up->folder, &status)) return cairn_fail_errno(err, "%s", up->folder);
    snprintf(up->socket, sizeof up->socket, "%s/%llx-%llx.sock", folder,
             (unsigned long long)status.st_dev, (unsigned long long)status.st_ino);
    return CAIRN_OK;
}

static enum cairn_code place(const struct cairn_cli *cli, struct up *up, struct cairn_error *err) {
    CAIRN_TRY(cairn_dir_make(cli->arguments[0], 0755, err));
    char *real = realpath(cli->arguments[0], NULL);
    if (!real) return cairn_fail_errno(err, "%s", cli->arguments[0]);
    bool fits = cairn_text_copy(up->folder, sizeof up->folder, real);
    free(real);
    if (!fits)
        return cairn_fail(err, CAIRN_INVALID, "the path of %s is too long", cli->arguments[0]);
    snprintf(up->store, sizeof up->store, "%s/store", up->folder);
    snprintf(up->data_dir, sizeof up->data_dir, "%s/server", up->folder);
    snprintf(up->state_dir, sizeof up->state_dir, "%s/uploader", up->folder);
    snprintf(up->port_file, sizeof up->port_file, "%s/server.port", up->folder);
    snprintf(up->ready_file, sizeof up->ready_file, "%s/uploader.ready", up->folder);
    snprintf(up->socket, sizeof up->socket, "%s/uploader.sock", up->folder);
    if (strlen(up->socket) > SOCKET_PATH_MAX) CAIRN_TRY(place_socket_elsewhere(up, err));
    if (cli->store) {
        if (!cairn_text_copy(up->store, sizeof up->store, cli->store))
            return cairn_fail(err, CAIRN_INVALID, "--store is too long");
    } else {
        CAIRN_TRY(cairn_dir_make(up->store, 0755, err));
    }
    CAIRN_TRY(cairn_dir_make(up->data_dir, 0700, err));
    return cairn_dir_make(up->state_dir, 0700, err);
}

static enum cairn_code start_server(const struct cairn_cli *cli, struct up *up,
                                    struct cairn_error *err) {
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *arguments[] = {"--listen",    cli->listen ? cli->listen : "127.0.0.1:7420",
                               "--store",     up->store,
                               "--data-dir",  up->data_dir,
                               "--port-file", up->port_file,
                               "--parent",    parent,
                               NULL};
    CAIRN_TRY(cairn_cli_daemon_start(&up->server, cli->program_folder, "cairn-server", arguments,
                                     up->port_file, READY_MS, err));
    CAIRN_AUTO(buf) text = {.limit = 64};
    uint64_t port = 0;
    CAIRN_TRY(cairn_file_load(up->port_file, &text, err));
    struct cairn_view digits = {text.data, strcspn(text.data, "\n")};
    CAIRN_TRY(cairn_parse_u64(digits, &port, err));
    snprintf(up->url, sizeof up->url, "http://127.0.0.1:%llu", (unsigned long long)port);
    return CAIRN_OK;
}

static enum cairn_code start_uploader(const struct cairn_cli *cli, struct up *up,
                                      struct cairn_error *err) {
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(up->memory, sizeof up->memory, "%llu", (unsigned long long)cli->bytes);
    const char *arguments[] = {"--server",
                               up->url,
                               "--store",
                               up->store,
                               "--socket",
                               up->socket,
                               "--state-dir",
                               up->state_dir,
                               "--ready-file",
                               up->ready_file,
                               "--parent",
                               parent,
                               cli->bytes ? "--memory-budget" : NULL,
                               up->memory,
                               NULL};
    return cairn_cli_daemon_start(&up->uploader, cli->program_folder, "cairn-uploader", arguments,
                                  up->ready_file, READY_MS, err);
}

static enum cairn_code tell_up(const struct cairn_cli *cli, const struct up *up,
                               struct cairn_error *err) {
    if (cli->output != CAIRN_CLI_TABLE) {
        CAIRN_AUTO_JSON json_t *answer =
            json_pack("{s:s, s:s, s:s}", "url", up->url, "socket", up->socket, "store", up->store);
        if (!answer) return cairn_fail(err, CAIRN_INVALID, "the folder's name is not UTF-8");
        return cairn_cli_print_json(answer, false, err);
    }
    printf("Cairn is up on %s\n\n"
           "  export CAIRN_URL=%s\n"
           "  export CAIRN_SOCKET=%s\n\n"
           "  cairn put ./model demo/first@1     keep a directory\n"
           "  cairn ls demo/first                see it\n"
           "  curl -s %s/v1/runs                 the same over HTTP\n\n"
           "Ctrl-C stops both.\n",
           up->folder, up->url, up->socket, up->url);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* Until a signal comes (CAIRN_OK) or one of them ends by itself. */
static enum cairn_code watch_daemons(struct up *up, int signals, struct cairn_error *err) {
    struct pollfd wait = {.fd = signals, .events = POLLIN};
    for (;;) {
        int status = 0;
        if (poll(&wait, 1, LOOK_EVERY_MS) > 0) return CAIRN_OK;
        if (cairn_cli_daemon_ended(&up->server, &status))
            return cairn_fail(err, CAIRN_UNAVAILABLE, "the server ended by itself (status %d)",
                              WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        if (cairn_cli_daemon_ended(&up->uploader, &status))
            return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader ended by itself (status %d)",
                              WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
}

static enum cairn_code run_up(struct cairn_cli *cli, struct cairn_error *err) {
    static struct up up; /* several long paths: kept off the stack */
    sigset_t stop;
    cairn_cli_interrupt_block(&stop);
    CAIRN_AUTO_FD signals = signalfd(-1, &stop, SFD_CLOEXEC);
    if (signals < 0) return cairn_fail_errno(err, "signals");
    CAIRN_TRY(place(cli, &up, err));
    enum cairn_code code = start_server(cli, &up, err);
    if (code == CAIRN_OK) code = start_uploader(cli, &up, err);
    if (code == CAIRN_OK) code = tell_up(cli, &up, err);
    if (code == CAIRN_OK) code = watch_daemons(&up, signals, err);
    /* The uploader first: it finishes what was staged while the server can still commit it. */
    if (up.uploader.pid || up.server.pid) fprintf(stderr, "stopping\n");
    cairn_cli_daemon_stop(&up.uploader);
    cairn_cli_daemon_stop(&up.server);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_up = {
    .name = "up",
    .synopsis = "cairn up [flags] DIR",
    .purpose = "Run server and uploader on a folder, in the foreground.",
    .examples = "  cairn up ./cairn\n"
                "  cairn up ./cairn --listen 127.0.0.1:0 --json\n"
                "  cairn up ./cairn --store s3://bucket/cairn\n",
    .flags = up_flags,
    .flag_count = CAIRN_COUNT(up_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_up,
};
