/* SPDX-License-Identifier: Apache-2.0 */
/* cairn catalog copy, backup: becomes cairn-server --copy-catalog or --backup-catalog, which has
 * the databases' libraries. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/shell/verb.h"

static const struct cairn_cli_flag catalog_flags[] = {
    {"data-dir", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(data_dir), 0, "DIR",
     "Of a backup: the server's data_dir; default /var/lib/cairn."},
};

static const char *progress_of(const struct cairn_cli *cli) {
    if (cli->progress == CAIRN_CLI_PROGRESS_NONE) return "none";
    return cli->progress == CAIRN_CLI_PROGRESS_JSON ? "json" : "plain";
}

static enum cairn_code run_catalog(struct cairn_cli *cli, struct cairn_error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cairn-server", cli->program_folder);
    const char *json =
        cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL ? "--json" : NULL;
    bool copies = !strcmp(cli->arguments[0], "copy");
    if (!copies && strcmp(cli->arguments[0], "backup") != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "catalog takes copy FROM TO or backup FILE, not %s", cli->arguments[0]);
    if (copies ? !cli->arguments[2] || cli->data_dir : cli->arguments[2] != NULL)
        return cairn_fail(err, CAIRN_INVALID, copies ? "catalog copy takes FROM and TO, a data_dir "
                                                       "or postgresql://... each"
                                                     : "catalog backup takes one FILE");
    if (copies)
        execl(path, "cairn-server", "--copy-catalog", cli->arguments[1], cli->arguments[2],
              "--progress", progress_of(cli), json, (char *)NULL);
    else
        execl(path, "cairn-server", "--backup-catalog",
              cli->data_dir ? cli->data_dir : "/var/lib/cairn", cli->arguments[1], json,
              (char *)NULL);
    return cairn_fail_errno(err, "cannot run %s", path);
}

const struct cairn_cli_verb cairn_cli_verb_catalog = {
    .name = "catalog",
    .synopsis = "cairn catalog copy [flags] FROM TO | cairn catalog backup [flags] FILE",
    .purpose = "Back a catalog up while its server runs, or copy it to another database.",
    .examples = "  cairn catalog backup /backup/catalog-$(date +%F).db\n"
                "  cairn catalog copy /var/lib/cairn postgresql://cairn@db.example/cairn\n"
                "  cairn catalog copy postgresql:///cairn /var/lib/cairn-sqlite --json\n",
    .flags = catalog_flags,
    .flag_count = CAIRN_COUNT(catalog_flags),
    .arguments_min = 2,
    .arguments_max = 3,
    .run = run_catalog,
};
