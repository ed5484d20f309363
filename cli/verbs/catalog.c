/* SPDX-License-Identifier: Apache-2.0 */
/* cairn catalog copy: becomes cairn-server --copy-catalog, which has the databases' libraries. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/verb.h"

static const char *progress_of(const struct cairn_cli *cli) {
    if (cli->progress == CAIRN_CLI_PROGRESS_NONE) return "none";
    return cli->progress == CAIRN_CLI_PROGRESS_JSON ? "json" : "plain";
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    char path[PATH_MAX];
    if (strcmp(cli->arguments[0], "copy") != 0)
        return cairn_fail(err, CAIRN_INVALID, "catalog takes copy FROM TO, not %s",
                          cli->arguments[0]);
    snprintf(path, sizeof path, "%s/cairn-server", cli->program_folder);
    bool json = cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL;
    execl(path, "cairn-server", "--copy-catalog", cli->arguments[1], cli->arguments[2],
          "--progress", progress_of(cli), json ? "--json" : NULL, (char *)NULL);
    return cairn_fail_errno(err, "cannot run %s", path);
}

const struct cairn_cli_verb cairn_cli_verb_catalog = {
    .name = "catalog",
    .synopsis = "cairn catalog copy [flags] FROM TO",
    .purpose = "Copy a catalog whole, from SQLite to PostgreSQL or back.",
    .examples = "  cairn catalog copy /var/lib/cairn postgresql://cairn@db.example/cairn\n"
                "  cairn catalog copy postgresql:///cairn /var/lib/cairn-sqlite --json\n"
                "  cairn catalog copy /var/lib/cairn /mnt/new-disk/cairn\n",
    .arguments_min = 3,
    .arguments_max = 3,
    .run = run,
};
