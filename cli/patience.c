/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that sleeps until it is no longer needed, or there is something to say. */
#include "cli/patience.h"

#include <stdio.h>

#include "common/clock.h"

#define FIRST_MS 5000
#define EVERY_MS 30000

static void *watch(void *argument) {
    struct cairn_cli_patience *patience = argument;
    uint64_t next_ms = patience->started_ms + FIRST_MS;
    CAIRN_HOLD(&patience->lock);
    while (!patience->locked.over) {
        if (cairn_condition_wait(&patience->ended, &patience->lock, next_ms)) continue;
        fprintf(stderr, "waiting for the %s %s, %llu s so far; --timeout TIME gives up sooner\n",
                patience->kind, patience->name,
                (unsigned long long)(cairn_mono_ms() - patience->started_ms) / 1000);
        next_ms += EVERY_MS;
    }
    return NULL;
}

void cairn_cli_patience_start(struct cairn_cli_patience *patience, const char *kind,
                              const char *name) {
    *patience =
        (struct cairn_cli_patience){.kind = kind, .name = name, .started_ms = cairn_mono_ms()};
    cairn_lock_init(&patience->lock, CAIRN_LOCK_client_session);
    cairn_condition_init(&patience->ended);
    patience->running = !pthread_create(&patience->thread, NULL, watch, patience);
}

void cairn_cli_patience_end(struct cairn_cli_patience *patience) {
    cairn_lock_take(&patience->lock);
    patience->locked.over = true;
    cairn_condition_signal(&patience->ended);
    cairn_lock_give(&patience->lock);
    if (patience->running) pthread_join(patience->thread, NULL);
    cairn_condition_release(&patience->ended);
    cairn_lock_release(&patience->lock);
}
