/* SPDX-License-Identifier: Apache-2.0 */
/* Flags that only print are taken out of argv first; what is left are settings. */
#include "common/start.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

void cairn_start_signals(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* A limit of 0 for core files does not hold where the kernel hands them to a program. */
enum cairn_code cairn_start_hide_memory(struct cairn_error *err) {
    return prctl(PR_SET_DUMPABLE, 0) ? cairn_fail_errno(err, "PR_SET_DUMPABLE") : CAIRN_OK;
}

static enum cairn_code print(enum cairn_code (*write)(const struct cairn_config *config,
                                                      struct cairn_buf *ret,
                                                      struct cairn_error *err),
                             const struct cairn_config *config, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(write(config, &text, err));
    fputs(text.size ? text.data : "", stdout);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

enum cairn_code cairn_start_settings(const struct cairn_start *start, int argc, char **argv,
                                     struct cairn_config *config, bool *ret_done,
                                     struct cairn_error *err) {
    bool version = cairn_config_take(&argc, argv, "--version");
    bool help = cairn_config_take(&argc, argv, "--help");
    bool docs = cairn_config_take(&argc, argv, "--print-docs");
    bool shown = cairn_config_take(&argc, argv, "--print-config");
    int used = 0;
    *ret_done = true;
    CAIRN_TRY(cairn_config_init(config, start->rows, start->row_count, start->values, err));
    if (version)
        return puts(start->version) < 0 ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
    if (help) fputs(start->usage, stdout);
    if (help) return print(cairn_config_help, config, err);
    if (docs) return print(cairn_config_docs, config, err);
    CAIRN_TRY(cairn_config_load(config, argc, argv, &used, err));
    if (used + 1 < argc)
        return cairn_fail(err, CAIRN_INVALID, "unknown argument \"%s\"; see --help",
                          argv[used + 1]);
    if (shown) return print(cairn_config_print, config, err);
    *ret_done = false;
    return CAIRN_OK;
}
