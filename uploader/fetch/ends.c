/* SPDX-License-Identifier: Apache-2.0 */
/* How readings, wants and requests end, by whatever thread that is. */
#include <stdlib.h>

#include "common/clock.h"
#include "uploader/fetch/inside.h"

/* ---- readings ---- */

void cairn_up_piece_over(struct cairn_up_fetch *fetch, struct cairn_up_reading *reading,
                         enum cairn_code code, const struct cairn_error *why) {
    cairn_lock_take(&fetch->lock);
    if (code != CAIRN_OK && reading->code == CAIRN_OK) {
        reading->code = code;
        reading->error = *why;
    }
    reading->finished++;
    bool failed = reading->code != CAIRN_OK;
    bool last = reading->finished == (failed ? reading->taken : reading->piece_count);
    if (last) {
        struct cairn_up_reading **at = &fetch->locked.first;
        while (*at && *at != reading) at = &(*at)->next;
        if (*at) *at = reading->next;
        for (fetch->locked.last = &fetch->locked.first; *fetch->locked.last;)
            fetch->locked.last = &(*fetch->locked.last)->next;
    }
    cairn_lock_give(&fetch->lock);
    if (!last) return;
    reading->end(reading);
}

/* ---- answers to other nodes ---- */

/* The answer may have been given up meanwhile. */
void cairn_up_serve_over_locked(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                                struct cairn_up_cell *cell, enum cairn_code code) {
    struct cairn_up_serve *serve = want->serve;
    CAIRN_ASSERT(!serve->over);
    serve->over = true;
    serve->code = code;
    serve->cell = cell;
    cairn_condition_broadcast(&fetch->changed);
    if (!serve->abandoned) return;
    if (cell) cell->users--;
    fetch->locked.serving--;
    if (serve->version->peers_until_ms) /* somebody else's use, too */
        serve->version->users--;
    else
        serve->version->peers_until_ms = 1; /* the tick's */
    free(serve);
}

/* ---- wants and requests ---- */

void cairn_up_readers_wake(struct cairn_up_fetch *fetch) {
    cairn_late_ring(&fetch->bell);
    for (size_t i = 0; fetch->readers && i < fetch->reader_count; i++)
        if (fetch->readers[i].stores[0]) cairn_store_wake(fetch->readers[i].stores[0]);
}

void cairn_up_want_add_locked(struct cairn_up_fetch *fetch, struct cairn_up_want *want) {
    want->next = NULL;
    *fetch->locked.ready_last = want;
    fetch->locked.ready_last = &want->next;
}

void cairn_up_want_fail(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                        enum cairn_code code, const struct cairn_error *why) {
    CAIRN_ASSERT(code != CAIRN_OK);
    if (want->reading) {
        cairn_up_piece_over(fetch, want->reading, code, why);
    } else {
        CAIRN_HOLD(&fetch->lock);
        cairn_up_serve_over_locked(fetch, want, NULL, code);
    }
    free(want);
}

void cairn_up_meter_begin(struct cairn_up_meter *meter) {
    if (!meter->flying++) meter->since_us = cairn_mono_us();
}

/* Older measures count half with each ten seconds. */
void cairn_up_meter_end(struct cairn_up_meter *meter, uint64_t bytes) {
    uint64_t now_us = cairn_mono_us();
    CAIRN_ASSERT(meter->flying > 0);
    meter->flying--;
    meter->us += now_us - meter->since_us;
    meter->since_us = now_us;
    meter->bytes += bytes;
    if (meter->us < 20000000) return;
    meter->us /= 2;
    meter->bytes /= 2;
}

/* Everybody who waits at the cell looks again; those fail whose blocks did not come. */
void cairn_up_run_over(struct cairn_up_fetch *fetch, struct cairn_up_get *get, enum cairn_code code,
                       const struct cairn_error *why) {
    struct cairn_up_want *failed = NULL;
    struct cairn_up_version *version = get->version;
    {
        CAIRN_HOLD(&fetch->lock);
        struct cairn_up_cell *cell = get->cell;
        CAIRN_ASSERT((cell->flying & get->run) == get->run);
        cell->flying &= (uint8_t)~get->run;
        cell->asked &= (uint8_t)~get->run;
        if (!code) cell->present |= get->run;
        cell->elsewhere |= get->kept;
        CAIRN_ASSERT(cell->users > 0);
        cell->users--;
        struct cairn_up_want *waiters = CAIRN_TAKE(cell->waiters);
        bool of_rank = false; /* else another node wants it, and nothing is restored here */
        for (struct cairn_up_want *want = waiters; want; want = want->next)
            of_rank |= want->reading != NULL;
        if (get->kept && of_rank) version->counts.memory_bytes += get->bytes;
        while (waiters) {
            struct cairn_up_want *want = waiters;
            waiters = want->next;
            uint8_t mask = cairn_up_cell_mask(want->piece->offset, want->piece->bytes);
            /* Nobody had to read it for that node. */
            if (get->kept && want->serve) want->serve->shared = true;
            if (!code || !(mask & get->run)) {
                cairn_up_want_add_locked(fetch, want);
                continue;
            }
            want->next = failed;
            failed = want;
        }
    }
    free(get);
    while (failed) {
        struct cairn_up_want *want = failed;
        failed = want->next;
        cairn_up_want_fail(fetch, want, code, why);
    }
    cairn_up_version_unuse(version);
    cairn_up_readers_wake(fetch);
}
