/* SPDX-License-Identifier: Apache-2.0 */
/* Which failures pass, and the loop around a call; see patience.h. */
#include "cli/shell/patience.h"

#include <poll.h>

#include "cli/shell/output.h"
#include "common/clock.h"

#define AGAIN_MS 500

static bool passes(enum cairn_code code) {
    switch (code) {
    case CAIRN_UNAVAILABLE:
    case CAIRN_TIMEOUT:
    case CAIRN_BUSY:
    case CAIRN_RATE_LIMITED:
        return true;
    default:
        return false;
    }
}

bool cairn_cli_failure_passes(bool answered, enum cairn_code code, const struct cairn_error *why) {
    return passes(code) && (answered || why->http_status >= 500);
}

/* Does it pass, and is there time? Then a pause is over when this returns. */
static bool bears(struct cairn_cli_patience *patience, enum cairn_code code,
                  const struct cairn_error *why) {
    uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, patience->deadline);
    if (!left_ms || !cairn_cli_failure_passes(patience->answered, code, why)) return false;
    if (!patience->away) cairn_cli_note("note: %s; waiting for it", why->message);
    patience->away = true;
    (void)poll(NULL, 0, (int)cairn_min_u64(left_ms, AGAIN_MS));
    return true;
}

enum cairn_code cairn_cli_patient_call(struct cairn_cli_patience *patience,
                                       const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                       struct cairn_cli_call call, json_t **ret,
                                       struct cairn_error *err) {
    uint64_t most_ms = cairn_min_u64(call.wait_ms, CAIRN_CLI_LONG_POLL_MS);
    for (;;) {
        struct cairn_error why = {0};
        uint64_t left_ms = cairn_deadline_left_ms(&cairn_clock_real, patience->deadline);
        call.wait_ms = (uint32_t)cairn_min_u64(left_ms, most_ms);
        enum cairn_code code = cairn_cli_call(cli, ref, call, ret, &why);
        if (code && bears(patience, code, &why)) continue;
        /* Also what it refuses in its own words. */
        if (!passes(code)) {
            if (patience->away) cairn_cli_note("note: the server answers again");
            patience->answered = true;
            patience->away = false;
        }
        if (code && err) *err = why;
        return code;
    }
}
