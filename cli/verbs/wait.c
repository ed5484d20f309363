/* SPDX-License-Identifier: Apache-2.0 */
/* cairn wait: until a checkpoint is committed, aborted or the time is over; or until the run has a
 * newer one. */
#include <poll.h>
#include <stdio.h>

#include "cli/output.h"
#include "common/clock.h"

#define TIMEOUT_DEFAULT_MS 600000
#define LONG_POLL_MS 30000 /* below the time after which proxies close an idle connection */
#define RETRY_MS 500       /* while there is no such checkpoint */

static const struct cairn_cli_flag flags[] = {
    {"for", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(wait_for), 0, "STATE", "committed (the default)."},
    {"newer-than", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(newer_than), 0, "STEP|ID",
     "Of a run: until its latest checkpoint is of a later step, or another than this version."},
};

static enum cairn_code wait_once(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                 uint64_t left_ms, json_t **ret, struct cairn_error *err) {
    struct cairn_cli_call call = {.tail = "?for=committed",
                                  .wait_ms = (uint32_t)cairn_min_u64(left_ms, LONG_POLL_MS)};
    return cairn_cli_call(cli, ref, call, ret, err);
}

/* ---- the next one ---- */

static enum cairn_code wait_newer(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                  uint64_t deadline, struct cairn_error *err) {
    char tail[120];
    snprintf(tail, sizeof tail, "?newer_than=%s", cli->newer_than);
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline);
        struct cairn_cli_call call = {.tail = tail,
                                      .wait_ms = (uint32_t)cairn_min_u64(left_ms, LONG_POLL_MS)};
        enum cairn_code code = cairn_cli_call(cli, ref, call, &json, err);
        if (!code) return cairn_cli_print_version(cli, json, err);
        if (code != CAIRN_NOT_FOUND) return code;
        if (!left_ms)
            return cairn_fail(err, CAIRN_TIMEOUT, "%s has no checkpoint newer than %s yet",
                              cli->arguments[0], cli->newer_than);
    }
}

static enum cairn_code check_newer(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                   struct cairn_error *err) {
    const char *text = cli->newer_than;
    if (strcmp(ref->version, "latest"))
        return cairn_fail(err, CAIRN_INVALID, "--newer-than: name the run alone, or run@latest");
    if (*text && strlen(text) < 64 && !text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz_-")])
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "--newer-than takes a step or a version id");
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    if (cli->wait_for && strcmp(cli->wait_for, "committed"))
        return cairn_fail(err, CAIRN_INVALID, "--for takes committed, not %s", cli->wait_for);
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : TIMEOUT_DEFAULT_MS;
    uint64_t deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    cli->timeout_ms = 0; /* of the whole wait, not of each request */
    if (cli->newer_than) CAIRN_TRY(check_newer(cli, &ref, err));
    if (cli->newer_than) return wait_newer(cli, &ref, deadline, err);
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_version_row version = {0};
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, deadline);
        enum cairn_code code = wait_once(cli, &ref, left_ms, &json, err);
        if (code == CAIRN_NOT_FOUND && left_ms) { /* it may be begun yet */
            (void)poll(NULL, 0, (int)cairn_min_u64(left_ms, RETRY_MS));
            continue;
        }
        if (code == CAIRN_NOT_FOUND)
            return cairn_fail(err, CAIRN_TIMEOUT,
                              "there is no checkpoint %s, and none was begun while waiting",
                              cli->arguments[0]);
        CAIRN_TRY(code);
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, json, &version, err));
        if (!strcmp(version.state, "committed")) return cairn_cli_print_version(cli, json, err);
        if (strcmp(version.state, "open"))
            return cairn_fail(err, CAIRN_ABORTED, "%s is %s and will not be committed: %s",
                              cli->arguments[0], version.state,
                              version.reason ? version.reason : "no reason is given");
        if (!left_ms)
            return cairn_fail(err, CAIRN_TIMEOUT, "%s is still open; ranks sealed: %llu of %llu",
                              cli->arguments[0], (unsigned long long)version.ranks_sealed,
                              (unsigned long long)version.world_size);
    }
}

const struct cairn_cli_verb cairn_cli_verb_wait = {
    .name = "wait",
    .synopsis = "cairn wait [flags] project/run[@step]",
    .purpose = "Wait until a checkpoint is committed, or for the next one.",
    .examples = "  cairn wait llm/7b@1200 --timeout 10min\n"
                "  cairn wait llm/7b@ckpt_... --for committed\n"
                "  cairn wait llm/7b --newer-than 1200 --json\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};
