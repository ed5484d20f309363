/* SPDX-License-Identifier: Apache-2.0 */
/* Counting a save's failures at the server. */
#include "uploader/server/trouble.h"

#include <inttypes.h>

#include "common/log.h"

#define PAUSE_MS_MIN 200
#define PAUSE_MS_MAX 30000

/* What a proxy says of a request that it will never let through: refusals of the API itself never
 * come here. */
static bool is_forbidden_form(int status) {
    return status == 400 || status == 405 || status == 411 || status == 413 || status == 414 ||
           status == 415 || status == 431;
}

bool cairn_up_is_trouble(const struct cairn_error *why) {
    int status = why->http_status;
    bool failed = status >= 500 && status != 502 && status != 503 && status != 504;
    return failed || is_forbidden_form(status);
}

bool cairn_up_server_fails(struct cairn_up *up, const struct cairn_error *why) {
    if (why->http_status) return true;
    CAIRN_HOLD(&up->lock);
    bool is_first = !up->locked.server_away_logged;
    up->locked.server_away_logged = true;
    return is_first;
}

void cairn_up_server_answers(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    up->locked.server_away_logged = false;
}

void cairn_up_trouble_add_locked(struct cairn_up_save *save, const struct cairn_error *why) {
    struct cairn_up_trouble *trouble = &save->trouble;
    uint64_t pause_ms = PAUSE_MS_MIN;
    for (uint32_t i = 0; i < trouble->tries && pause_ms < PAUSE_MS_MAX; i++) pause_ms *= 2;
    trouble->next_ms = cairn_mono_ms() + cairn_min_u64(pause_ms, PAUSE_MS_MAX);
    trouble->why = *why;
    if (++trouble->tries != CAIRN_UP_TROUBLE_TRIES) return;
    cairn_log(ERROR, "save.server_fails",
              "run=%s step=%" PRIu64 " rank=%u version=%s tries=%u cause=\"%s\"",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
              trouble->tries, why->message);
}

void cairn_up_trouble_end_locked(struct cairn_up_save *save) {
    if (cairn_up_trouble_is_long_locked(save))
        cairn_log(INFO, "save.server_took", "run=%s step=%" PRIu64 " rank=%u version=%s tries=%u",
                  save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
                  save->trouble.tries);
    save->trouble = (struct cairn_up_trouble){0};
}

bool cairn_up_trouble_pauses_locked(const struct cairn_up_save *save) {
    return save->trouble.tries && cairn_mono_ms() < save->trouble.next_ms;
}

bool cairn_up_trouble_is_long_locked(const struct cairn_up_save *save) {
    return save->trouble.tries >= CAIRN_UP_TROUBLE_TRIES;
}
