/* SPDX-License-Identifier: Apache-2.0 */
/* cairn-uploader: settings, signals, exit status. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/config.h"
#include "common/file.h"
#include "common/process.h"
#include "uploader/daemon.h"
#include "uploader/journal/journal.h"

#define DESCRIPTORS_MAX 1048576

static const char usage[] =
    "cairn-uploader: takes the checkpoints of this node's trainers and brings them to the store\n"
    "\n"
    "  cairn-uploader --store s3://checkpoints/prod --server http://cairn:7420\n"
    "  cairn-uploader --store /mnt/checkpoints --memory-budget 200GiB\n"
    "  cairn-uploader --print-config\n"
    "  cairn-uploader --print-docs                     (the settings as docs/config.md has them)\n"
    "  cairn-uploader --store ... --print-journal      (what a stopped one has not finished)\n"
    "\n"
    "SIGTERM: nothing new is taken, what was staged is sent within drain_timeout, the rest stays "
    "in\n"
    "the journal for the next start.\n\n";

static enum cairn_code serve(struct cairn_up *up, int stop_fd, struct cairn_error *err) {
    CAIRN_TRY(cairn_up_start(up, err));
    if (*up->settings.ready_file) {
        char text[32];
        int size = snprintf(text, sizeof(text), "%d\n", (int)getpid());
        CAIRN_TRY(cairn_file_replace(up->settings.ready_file,
                                     (struct cairn_view){text, (size_t)size}, 0644, err));
    }
    cairn_manager_tell("READY=1");
    return cairn_up_run(up, stop_fd, err);
}

/* A save of a thousand files holds a thousand descriptors. The soft limit is for programs with
 * select(), unlike this one; some containers' hard limit, 2^30, is too much. */
static void raise_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    rlim_t most = limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
    if (limit.rlim_cur >= most) return;
    limit.rlim_cur = most;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* on failure the limit stays as it is */
}

static int exit_status(enum cairn_code code) {
    if (code == CAIRN_OK) return 0;
    int status = cairn_code_info(code)->exit_status;
    return status ? status : 1;
}

static void say_failed(const struct cairn_up *up, const struct cairn_error *error) {
    cairn_log_failed("cairn-uploader", up->settings.log_format, error->message);
}

static enum cairn_code serve_and_stop(struct cairn_up *up, int stop_fd) {
    struct cairn_error error = {0};
    enum cairn_code code = serve(up, stop_fd, &error);
    if (code != CAIRN_OK) say_failed(up, &error);
    cairn_up_stop(up, exit_status(code));
    return code;
}

static int run(struct cairn_up *up, bool journal_only) {
    struct cairn_error error = {0};
    enum cairn_code code = cairn_up_settings_derive(&up->settings, &up->places, &error);
    if (code == CAIRN_OK && journal_only) {
        code = cairn_up_show_journal(&up->places, &error);
    } else if (code == CAIRN_OK) {
        cairn_log_write_as(up->places.log_format);
        cairn_log_start("cairn-uploader", up->places.log_level, STDERR_FILENO);
        /* Blocked in all threads, which inherit the mask: only the descriptor reports signals. */
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        cairn_start_signals();
        CAIRN_AUTO_FD stop_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        raise_descriptors();
        code = cairn_up_cores_apply(&up->settings, &error);
        if (code == CAIRN_OK) code = cairn_parent_follow(up->settings.parent, &error);
        if (code == CAIRN_OK && !up->settings.core_dumps) code = cairn_start_hide_memory(&error);
        if (code == CAIRN_OK) return exit_status(serve_and_stop(up, stop_fd));
    }
    if (code != CAIRN_OK) say_failed(up, &error);
    return exit_status(code);
}

int main(int argc, char **argv) {
    struct cairn_error error = {0};
    static struct cairn_up up;
    struct cairn_config config = {0};
    bool journal_only = cairn_config_take(&argc, argv, "--print-journal"), done = false;
    const struct cairn_start start = {.version = "cairn-uploader " CAIRN_UP_VERSION,
                                      .usage = usage,
                                      .rows = cairn_up_settings_rows,
                                      .row_count = cairn_up_settings_row_count,
                                      .values = &up.settings};
    cairn_json_watch_memory();
    enum cairn_code code = cairn_start_settings(&start, argc, argv, &config, &done, &error);
    if (code != CAIRN_OK) say_failed(&up, &error);
    int status = code != CAIRN_OK || done ? exit_status(code) : run(&up, journal_only);
    cairn_config_release(&config);
    return status;
}
