/* SPDX-License-Identifier: Apache-2.0 */
/* cairn reconcile: end the freeze of a run by what its store says. */
#include <stdio.h>

#include "cli/options.h"
#include "cli/output.h"

#define CALL_MS 60000
#define CALLS_MAX 120 /* of at most 30 s each at the server */

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_AUTO(buf) path = {0};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_TRY(cairn_cli_ref_run("reconcile", cli->arguments[0], &ref, err));
    CAIRN_TRY(cairn_cli_path(&ref, "/reconcile", &path, err));
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    for (int i = 0; i < CALLS_MAX; i++) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_reconciled answer = {0};
        CAIRN_TRY(cairn_rest_call(rest, "POST", path.data, NULL, CALL_MS, &json, err));
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_reconciled, json, &answer, err));
        if (!answer.frozen) {
            if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(json, true, err);
            printf("%s/%s is not frozen: attempts, latest and saves go on\n", answer.project,
                   answer.run);
            return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
        }
        cairn_cli_note("note: %s/%s is still frozen: %s", answer.project, answer.run,
                       answer.note    ? answer.note
                       : answer.cause ? answer.cause
                                      : "no reason is given");
    }
    return cairn_fail(err, CAIRN_TIMEOUT, "%s/%s is still frozen; the server's log says why",
                      ref.name.project, ref.name.run);
}

const struct cairn_cli_verb cairn_cli_verb_reconcile = {
    .name = "reconcile",
    .synopsis = "cairn reconcile [flags] project/run",
    .purpose = "End the freeze of a run: take over what its store says (catalog-behind).",
    .examples = "  cairn reconcile llm/7b\n"
                "  cairn reconcile llm/7b --json\n"
                "  cairn reconcile llm/7b --server http://cairn:7420\n",
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};
