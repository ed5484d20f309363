/* SPDX-License-Identifier: Apache-2.0 */
/* cairn events: what has happened to runs and checkpoints, and who changed what; or as it
 * happens. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/patience.h"
#include "common/clock.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX 1000

static const struct cairn_cli_flag events_flags[] = {
    {"follow", 'f', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(follow), 0, NULL, "Go on as they happen."},
    {"since", 0, CAIRN_CLI_NUMBER, CAIRN_CLI_AT(since), CAIRN_CLI_AT(since_given), "ID",
     "Begin behind that event; 0: with the oldest that is kept."},
    {"limit", 'n', CAIRN_CLI_COUNT, CAIRN_CLI_AT(limit), 0, "N",
     "How many, at most 1000 (100 by default)."},
};

static enum cairn_code print_event(const struct cairn_cli *cli, const json_t *item,
                                   struct cairn_error *err) {
    struct cairn_msg_event_row row = {0};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_row, item, &row, err));
    if (cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL)
        return cairn_cli_print_json(item, false, err);
    if (cli->output == CAIRN_CLI_NAME) {
        printf("%" PRIu64 "\n", row.id);
        return CAIRN_OK;
    }
    char line[1200], what[300] = "";
    if (row.version && row.version[0])
        snprintf(what, sizeof what, " %s/%s@%" PRIu64 " %s", row.project, row.run, row.step,
                 row.version);
    else if (row.run && row.run[0])
        snprintf(what, sizeof what, " %s/%s", row.project, row.run);
    else if (row.project && row.project[0])
        snprintf(what, sizeof what, " %s", row.project);
    const char *who = row.actor && row.actor[0] ? row.actor : row.address;
    snprintf(line, sizeof line, "%s %s%s%s%s%s%s%s%s", row.at, row.event, what,
             row.code && row.code[0] ? " " : "", row.code ? row.code : "",
             row.reason && row.reason[0] ? ": " : "", row.reason ? row.reason : "",
             who && who[0] ? " by " : "", who ? who : "");
    cairn_cli_clean(line);
    puts(line);
    return CAIRN_OK;
}

/* One page; *since is what the next one begins behind. */
static enum cairn_code one_page(struct cairn_cli_patience *patience, const struct cairn_cli *cli,
                                const struct cairn_cli_ref *ref, uint64_t limit, bool *since_given,
                                uint64_t *since, bool *ret_full, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_event_page page = {0};
    char tail[120];
    size_t index = 0;
    json_t *item = NULL;
    if (*since_given)
        snprintf(tail, sizeof tail, "/events?limit=%" PRIu64 "&since=%" PRIu64, limit, *since);
    else
        snprintf(tail, sizeof tail, "/events?limit=%" PRIu64, limit);
    struct cairn_cli_call call = {
        .tail = tail, .wait_ms = cli->follow && *since_given ? CAIRN_CLI_LONG_POLL_MS : 0};
    CAIRN_TRY(cairn_cli_patient_call(patience, cli, ref, call, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_event_page, json, &page, err));
    json_array_foreach(page.items, index, item) CAIRN_TRY(print_event(cli, item, err));
    *since = page.since;
    *ret_full = *since_given && json_array_size(page.items) == limit;
    *since_given = true;
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code run_events(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref = {0}, *of = NULL;
    uint64_t limit = cli->limit ? cli->limit : LIMIT_DEFAULT, since = cli->since;
    bool since_given = cli->since_given, full = false;
    if (limit > LIMIT_MAX)
        return cairn_fail(err, CAIRN_INVALID, "--limit is at most %d", LIMIT_MAX);
    if (cli->argument_count) {
        CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
        of = &ref;
    }
    struct cairn_cli_patience patience = {0}; /* a list is not waited for */
    if (cli->follow)
        patience.deadline = cli->timeout_ms
                                ? cairn_deadline_in(&cairn_clock_real, cli->timeout_ms)
                                : UINT64_MAX;
    if (cli->follow) cli->timeout_ms = 0; /* of the whole, not of each request */
    bool more = true;
    while (more) {
        CAIRN_TRY(one_page(&patience, cli, of, limit, &since_given, &since, &full, err));
        more = cli->follow ? cairn_deadline_left_ms(&cairn_clock_real, patience.deadline) > 0
                           : full && !cli->limit;
    }
    return CAIRN_OK;
}

const struct cairn_cli_verb cairn_cli_verb_events = {
    .name = "events",
    .synopsis = "cairn events [flags] [project/run[@step]]",
    .purpose = "What has happened, why, and who changed what.",
    .examples = "  cairn events llm/7b\n  cairn events llm/7b@1200\n"
                "  cairn events --follow --json\n",
    .flags = events_flags,
    .flag_count = CAIRN_COUNT(events_flags),
    .arguments_max = 1,
    .run = run_events,
};
