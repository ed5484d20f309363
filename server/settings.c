/* SPDX-License-Identifier: Apache-2.0 */
/* The settings table of cairn-server and the relations between its rows; see settings.h. */
#include "server/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cairn/cairn.h>

#include "common/log.h"
#include "common/text.h"
#include "server/catalog/catalog.h"

static const struct cairn_config_row rows[] = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_CONFIG_ROW(cairn_srv_settings, type, name, fallback, min, max, why)
#include "server/settings.def"
#undef CONFIG
};

static bool is_loopback(const char *address) {
    return cairn_text_starts(address, "127.") || cairn_text_starts(address, "[::1]:") ||
           cairn_text_starts(address, "localhost:");
}

static enum cairn_code check(struct cairn_config *config, struct cairn_srv_settings *settings,
                             struct cairn_error *err) {
    if (!settings->store[0])
        return cairn_fail(err, CAIRN_INVALID,
                          "store is not set: give --store FOLDER or --store s3://BUCKET/PREFIX");
    if (!is_loopback(settings->listen) && !settings->allow_remote)
        return cairn_fail(err, CAIRN_INVALID,
                          "listen is %s, beyond loopback: this version has neither TLS nor login; "
                          "say allow-remote=true if something in front of it has",
                          settings->listen);
    if (!settings->data_dir[0]) {
        bool system_wide = !access("/var/lib/cairn", W_OK | X_OK);
        CAIRN_TRY(cairn_config_set(
            config, "data_dir", system_wide ? "/var/lib/cairn" : "./cairn-data", "default", err));
    }
    enum cairn_log_level level;
    return cairn_log_level_parse(settings->log_level, &level, err);
}

static bool has_flag(int argc, char **argv, const char *flag) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], flag)) return true;
    }
    return false;
}

/* Takes the flag out of argv; the new argc. */
static int without_flag(int argc, char **argv, const char *flag) {
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], flag)) argv[kept++] = argv[i];
    }
    return kept;
}

/* The table of docs/config.md, as this build has it. */
static enum cairn_code print_docs(struct cairn_config *config, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_config_docs(config, &text, err));
    printf("%s", text.data ? text.data : "");
    return CAIRN_OK;
}

static enum cairn_code print_help(struct cairn_config *config, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_config_help(config, &text, err));
    printf("cairn-server: keeps the checkpoints of training jobs; REST API of Cairn.\n\n"
           "Usage: cairn-server --store FOLDER|s3://BUCKET/PREFIX [settings]\n"
           "       cairn-server --print-config | --print-docs | --version | --help\n\n%s",
           text.data ? text.data : "");
    return CAIRN_OK;
}

enum cairn_code cairn_srv_settings_load(int argc, char **argv, struct cairn_config *config,
                                        struct cairn_srv_settings *ret, bool *ret_done,
                                        struct cairn_error *err) {
    *ret_done = true;
    if (has_flag(argc, argv, "--version")) {
        printf("cairn-server %s, catalog schema %u\n", CAIRN_VERSION, cairn_srv_catalog_schema());
        return CAIRN_OK;
    }
    CAIRN_TRY(cairn_config_init(config, rows, CAIRN_COUNT(rows), ret, err));
    if (has_flag(argc, argv, "--help")) return print_help(config, err);
    if (has_flag(argc, argv, "--print-docs")) return print_docs(config, err);
    bool print = has_flag(argc, argv, "--print-config");
    if (print) argc = without_flag(argc, argv, "--print-config");
    int used = 0;
    CAIRN_TRY(cairn_config_load(config, argc, argv, &used, err));
    if (used + 1 < argc)
        return cairn_fail(err, CAIRN_INVALID, "unknown argument \"%s\"; see --help",
                          argv[used + 1]);
    if (print) {
        CAIRN_AUTO(buf) text = {0};
        CAIRN_TRY(cairn_config_print(config, &text, err));
        printf("%s", text.data ? text.data : "");
        return CAIRN_OK;
    }
    *ret_done = false;
    return check(config, ret, err);
}
