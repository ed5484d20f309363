/* SPDX-License-Identifier: Apache-2.0 */
/* cairn reindex: becomes cairn-server --reindex, which has the databases' libraries. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/shell/verb.h"
#include "common/text.h"

#define ARGUMENTS_MAX 24
#define NAMES_MAX 512

static const struct cairn_cli_flag reindex_flags[] = {
    {"catalog", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(catalog), 0, "NEW",
     "The new catalog: a data_dir without one, or postgresql://..."},
    {"data-dir", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(data_dir), 0, "DIR",
     "With postgresql://: where grant.key is; default as the server's."},
    {"config", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(config), 0, "FILE",
     "The server's settings, as for the store's endpoint."},
    {"stores", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(stores), 0, "NAME=URL,...",
     "Further stores, as the server's setting: main,archive=URL,..."},
    {"without", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(without), 0, "NAME,...",
     "Go on without a further store that is away: versions that lie there alone are not had."},
    {"new-grant-key", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(new_grant_key), 0, NULL,
     "grant.key is lost for good: make one, which ends all saves under way."},
    {"force", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(force), 0, NULL,
     "Do not look whether a server still works on the store."},
    {"dry-run", 'n', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(dry_run), 0, NULL,
     "Say what the store holds; write nothing, neither there nor in a catalog."},
};

static enum cairn_code run_reindex(struct cairn_cli *cli, struct cairn_error *err) {
    char path[PATH_MAX], without[NAMES_MAX];
    const char *arguments[ARGUMENTS_MAX];
    size_t count = 0;
    bool database = cli->catalog && (cairn_text_starts(cli->catalog, "postgresql://") ||
                                     cairn_text_starts(cli->catalog, "postgres://"));
    if (!cli->catalog && !cli->dry_run)
        return cairn_fail(err, CAIRN_INVALID,
                          "name the new catalog: --catalog DIR, or --catalog postgresql://...; or "
                          "say --dry-run");
    if (cli->data_dir && !database)
        return cairn_fail(err, CAIRN_INVALID,
                          "--data-dir goes with --catalog postgresql://...; a folder is its own");
    if (cli->without && strlen(cli->without) >= sizeof without - sizeof "--without=")
        return cairn_fail(err, CAIRN_INVALID, "--without names at most a few stores");
    snprintf(without, sizeof without, "--without=%s", cli->without ? cli->without : "");
    snprintf(path, sizeof path, "%s/cairn-server", cli->program_folder);
    arguments[count++] = "cairn-server";
    arguments[count++] = "--reindex";
    arguments[count++] = "--store";
    arguments[count++] = cli->arguments[0];
    arguments[count++] = "--catalog";
    arguments[count++] = database ? cli->catalog : "";
    const char *data_dir = database ? cli->data_dir : cli->catalog;
    if (data_dir) arguments[count++] = "--data-dir";
    if (data_dir) arguments[count++] = data_dir;
    if (cli->config) arguments[count++] = "--config";
    if (cli->config) arguments[count++] = cli->config;
    if (cli->stores) arguments[count++] = "--stores";
    if (cli->stores) arguments[count++] = cli->stores;
    if (cli->without) arguments[count++] = without;
    if (cli->new_grant_key) arguments[count++] = "--new-grant-key=true";
    if (cli->dry_run) arguments[count++] = "--dry-run";
    if (cli->force) arguments[count++] = "--force";
    if (cli->progress == CAIRN_CLI_PROGRESS_NONE) arguments[count++] = "--progress=none";
    if (cli->progress == CAIRN_CLI_PROGRESS_JSON) arguments[count++] = "--progress=json";
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        arguments[count++] = "--json";
    arguments[count] = NULL;
    CAIRN_ASSERT(count < ARGUMENTS_MAX);
    execv(path, (char *const *)(uintptr_t)arguments);
    return cairn_fail_errno(err, "cannot run %s", path);
}

const struct cairn_cli_verb cairn_cli_verb_reindex = {
    .name = "reindex",
    .synopsis = "cairn reindex [flags] STORE --catalog NEW",
    .purpose = "Make a lost catalog again from its stores alone.",
    .examples = "  cairn reindex /srv/cairn/store --catalog /var/lib/cairn-new\n"
                "  cairn reindex /nvme/cairn --stores main,archive=s3://bucket/cairn \\\n"
                "    --catalog postgresql://cairn@db/cairn\n"
                "  cairn reindex s3://bucket/prefix --dry-run --json\n",
    .flags = reindex_flags,
    .flag_count = CAIRN_COUNT(reindex_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_reindex,
};
