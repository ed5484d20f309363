/* SPDX-License-Identifier: Apache-2.0 */
/* cairn promote and demote: a copy of a checkpoint in a further store is made, or removed. */
#include <poll.h>
#include <stdio.h>

#include "cli/shell/operation_follow.h"
#include "cli/shell/output.h"
#include "cli/shell/patience.h"
#include "common/clock.h"
#include "common/text.h"

#define TIMEOUT_DEFAULT_MS 3600000
#define LOOK_MS 200

static const struct cairn_cli_flag promote_flags[] = {
    {"to", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(to), 0, "STORE",
     "The store, by its name in the server's setting `stores`; or main."},
    {"detach", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(detach), 0, NULL,
     "Return once it has begun; cairn operation shows how far it is."},
};
static const struct cairn_cli_flag demote_flags[] = {
    {"from", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(from), 0, "STORE",
     "The store, by its name in the server's setting `stores`; or main."},
    {"detach", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(detach), 0, NULL,
     "Return once it is to be removed; the server goes on."},
};

static enum cairn_code post_copy(struct cairn_cli *cli, struct cairn_cli_ref *ref, const char *verb,
                                 const char *word, const char *store, json_t **ret,
                                 struct cairn_error *err) {
    if (!store) return cairn_fail(err, CAIRN_INVALID, "cairn %s wants --%s STORE", verb, word);
    CAIRN_TRY(cairn_cli_ref_latest(cli, ref, err));
    char tail[16];
    snprintf(tail, sizeof tail, "/%s", verb);
    CAIRN_AUTO_JSON json_t *body = json_pack("{s:s}", word, store);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the call");
    struct cairn_cli_call call = {.method = "POST", .tail = tail, .body = body};
    return cairn_cli_call(cli, ref, call, ret, err);
}

static enum cairn_code print_copied(struct cairn_cli *cli, const json_t *json, const char *what,
                                    const char *store, struct cairn_error *err) {
    struct cairn_msg_version_row version = {0};
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_version(cli, json, err);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
    printf("%s %s %s\n", version.version, what, store);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* Deadlines are of the whole wait, not of each request. */
static uint64_t begin_wait(struct cairn_cli *cli) {
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : TIMEOUT_DEFAULT_MS;
    cli->timeout_ms = 0;
    return cairn_deadline_in(&cairn_clock_real, timeout_ms);
}

/* ---- promote ---- */

static enum cairn_code run_promote(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *begun = NULL, *version = NULL;
    struct cairn_msg_operation_row row = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(post_copy(cli, &ref, "promote", "to", cli->to, &begun, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_operation_row, begun, &row, err));
    const char *id = json_string_value(json_object_get(row.request, "version"));
    /* By its id: another version may be the latest by now. */
    if (id) (void)cairn_text_copy(ref.version, sizeof ref.version, id);
    if (!cli->detach) CAIRN_TRY(cairn_cli_operation_follow(cli, "promote", row.id, NULL, err));
    cli->timeout_ms = 0; /* it was of the wait */
    CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &version, err));
    return print_copied(cli, version, cli->detach ? "is being copied to" : "is whole in", cli->to,
                        err);
}

/* ---- demote ---- */

/* "whole", ...; NULL: it does not lie there. */
static const char *state_in(const json_t *version, const char *store) {
    struct cairn_msg_version_row row = {0};
    size_t index = 0;
    const json_t *item = NULL;
    if (cairn_msg_version_row_read(version, "", &row, NULL)) return NULL;
    json_array_foreach(row.copies, index, item) {
        struct cairn_msg_copy_row copy = {0};
        if (!cairn_msg_copy_row_read(item, "", &copy, NULL) && !strcmp(copy.store, store))
            return copy.state;
    }
    return NULL;
}

static enum cairn_code run_demote(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    struct cairn_msg_version_row row = {0};
    struct cairn_cli_ref ref;
    CAIRN_TRY(post_copy(cli, &ref, "demote", "from", cli->from, &version, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, version, &row, err));
    (void)cairn_text_copy(ref.version, sizeof ref.version, row.version);
    struct cairn_cli_patience patience = {.deadline = begin_wait(cli), .answered = true};
    for (const char *state; !cli->detach && (state = state_in(version, cli->from));) {
        if (!strcmp(state, "whole"))
            return cairn_fail(err, CAIRN_IN_USE,
                              "the copy in %s stays: the others were found damaged meanwhile; "
                              "cairn verify --repair mends them",
                              cli->from);
        if (!cairn_deadline_left_ms(&cairn_clock_real, patience.deadline))
            return cairn_fail(err, CAIRN_TIMEOUT,
                              "the copy in %s is not removed yet; the server "
                              "goes on",
                              cli->from);
        (void)poll(NULL, 0, LOOK_MS);
        json_decref(version);
        version = NULL;
        CAIRN_TRY(cairn_cli_patient_call(&patience, cli, &ref, (struct cairn_cli_call){0}, &version,
                                         err));
    }
    return print_copied(cli, version, cli->detach ? "is being removed from" : "is no longer in",
                        cli->from, err);
}

const struct cairn_cli_verb cairn_cli_verb_promote = {
    .name = "promote",
    .synopsis = "cairn promote [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Copy a checkpoint to a further store of the server.",
    .examples = "  cairn promote llm/7b@1200 --to archive\n"
                "  cairn promote llm/7b --to archive --detach\n"
                "  cairn promote llm/7b@best --to main --json\n",
    .flags = promote_flags,
    .flag_count = CAIRN_COUNT(promote_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_promote,
};
const struct cairn_cli_verb cairn_cli_verb_demote = {
    .name = "demote",
    .synopsis = "cairn demote [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Remove a checkpoint's copy from one store; never the last one.",
    .examples = "  cairn demote llm/7b@1200 --from main\n"
                "  cairn demote llm/7b@1200 --from archive --detach\n"
                "  cairn demote llm/7b@ckpt_... --from main --json\n",
    .flags = demote_flags,
    .flag_count = CAIRN_COUNT(demote_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_demote,
};
