/* SPDX-License-Identifier: Apache-2.0 */
/* cairn reconcile: end the freeze of a run by what its store says. */
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/patience.h"
#include "common/clock.h"

#define CALL_MS 60000
#define TIMEOUT_DEFAULT_MS 3600000

static enum cairn_code run_reconcile(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    CAIRN_TRY(cairn_cli_ref_run("reconcile", cli->arguments[0], &ref, err));
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : TIMEOUT_DEFAULT_MS;
    struct cairn_cli_patience patience = {
        .deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms)};
    struct cairn_cli_call call = {.method = "POST", .tail = "/reconcile", .timeout_ms = CALL_MS};
    cli->timeout_ms = 0; /* of the whole, not of each request */
    do {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_reconciled answer = {0};
        CAIRN_TRY(cairn_cli_patient_call(&patience, cli, &ref, call, &json, err));
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
    } while (cairn_deadline_left_ms(&cairn_clock_real, patience.deadline));
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
    .run = run_reconcile,
};
