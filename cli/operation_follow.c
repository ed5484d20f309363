/* SPDX-License-Identifier: Apache-2.0 */
/* Short long polls, and a meter from the first size that is told; see operation_follow.h. */
#include "cli/operation_follow.h"

#include <stdio.h>

#include "api/wire/messages.h"
#include "cli/output.h"
#include "cli/patience.h"
#include "common/clock.h"
#include "common/text.h"

#define TIMEOUT_DEFAULT_MS 3600000
#define POLL_MS 1000

struct wait {
    struct cairn_cli cli; /* deadlines are of the whole wait, not of each request */
    const char *job, *id;
    struct cairn_cli_patience patience;
    struct cairn_cli_meter meter;
    char unit[24]; /* of the meter: the row's text is gone when it is shown again */
    bool metered;
};

static void show(struct wait *wait, const struct cairn_msg_operation_row *row) {
    struct cairn_msg_operation_progress at = {0};
    if (cairn_msg_operation_progress_read(row->progress, "", &at, NULL) || !at.total) return;
    if (!wait->metered) cairn_cli_meter_init(&wait->meter, &wait->cli, wait->job, at.total, 0);
    wait->metered = true;
    if (strcmp(at.unit, "bytes") != 0) {
        (void)cairn_text_copy(wait->unit, sizeof wait->unit, at.unit);
        wait->meter.unit = wait->unit;
    }
    wait->meter.total_bytes = at.total; /* it grows with what is found */
    cairn_cli_meter_set(&wait->meter, at.done, NULL);
}

static enum cairn_code end_of(const struct cairn_msg_operation_row *row, struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!strcmp(row->state, "done")) return CAIRN_OK;
    if (row->problem) cairn_failure_get(row->problem, "detail", &why);
    return cairn_fail(err, why.code ? why.code : CAIRN_CANCELLED, "%s %s: %s", row->id, row->state,
                      why.message);
}

static enum cairn_code to_its_end(struct wait *wait, json_t **ret, struct cairn_error *err) {
    char tail[100];
    snprintf(tail, sizeof tail, "/operations/%.64s", wait->id);
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_operation_row row = {0};
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, wait->patience.deadline);
        struct cairn_cli_call call = {.tail = tail, .wait_ms = POLL_MS};
        CAIRN_TRY(cairn_cli_patient_call(&wait->patience, &wait->cli, NULL, call, &json, err));
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_operation_row, json, &row, err));
        show(wait, &row);
        bool over = strcmp(row.state, "queued") != 0 && strcmp(row.state, "running") != 0;
        if (over) {
            CAIRN_TRY(end_of(&row, err));
            if (ret) *ret = CAIRN_TAKE(json);
            return CAIRN_OK;
        }
        if (!left_ms)
            return cairn_fail(err, CAIRN_TIMEOUT, "%s is %s yet; the server goes on", row.id,
                              row.state);
    }
}

enum cairn_code cairn_cli_operation_follow(const struct cairn_cli *cli, const char *job,
                                           const char *id, json_t **ret, struct cairn_error *err) {
    /* The server has been heard: it gave the operation its name. */
    struct wait wait = {.cli = *cli, .job = job, .id = id, .patience.answered = true};
    uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : TIMEOUT_DEFAULT_MS;
    wait.cli.timeout_ms = 0;
    wait.patience.deadline = cairn_deadline_in(&cairn_clock_real, timeout_ms);
    enum cairn_code code = to_its_end(&wait, ret, err);
    if (wait.metered) cairn_cli_meter_end(&wait.meter, !code);
    return code;
}
