/* SPDX-License-Identifier: Apache-2.0 */
/* cairn reconcile: end the freeze of a run by what its store says. */
#include <stdio.h>

#include "cli/output.h"
#include "cli/ref.h"
#include "cli/verb.h"

#define CALL_MS 60000
#define CALLS_MAX 120 /* of at most 30 s each at the server */

static enum cairn_code print(const struct cairn_cli *cli, const json_t *answer,
                             struct cairn_error *err) {
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(answer, true, err);
    printf("%s/%s is not frozen: attempts, latest and saves go on\n",
           json_string_value(json_object_get(answer, "project")),
           json_string_value(json_object_get(answer, "run")));
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_run_name name;
    char path[2 * CAIRN_NAME_BYTES_MAX + 40];
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_TRY(cairn_run_name_parse(cli->arguments[0], &name, err));
    CAIRN_TRY(cairn_cli_connect(cli, &rest, err));
    snprintf(path, sizeof path, "/v1/runs/%s/%s/reconcile", name.project, name.run);
    for (int i = 0; i < CALLS_MAX; i++) {
        CAIRN_AUTO_JSON json_t *answer = NULL;
        CAIRN_TRY(cairn_rest_call(rest, "POST", path, NULL, CALL_MS, &answer, err));
        if (!json_is_true(json_object_get(answer, "frozen"))) return print(cli, answer, err);
        const char *note = json_string_value(json_object_get(answer, "note"));
        const char *cause = json_string_value(json_object_get(answer, "cause"));
        cairn_cli_note("cairn: still at it: %s", note ? note : cause ? cause : "no reason given");
    }
    return cairn_fail(err, CAIRN_TIMEOUT, "%s/%s is still frozen; the server's log says why",
                      name.project, name.run);
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
