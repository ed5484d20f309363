/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that sleeps until it is stopped, or until the next line is due. */
#include "cli/shell/wait_notice.h"

#include <stdio.h>

#include "common/clock.h"

#define FIRST_MS 5000
#define EVERY_MS 30000

static void *watch(void *argument) {
    struct cairn_cli_wait_notice *notice = argument;
    uint64_t next_ms = notice->started_ms + FIRST_MS;
    CAIRN_HOLD(&notice->lock);
    while (!notice->locked.stop) {
        if (cairn_condition_wait(&notice->stopped, &notice->lock, next_ms)) continue;
        fprintf(stderr, "waiting for the %s %s, %llu s so far; --timeout TIME gives up sooner\n",
                notice->kind, notice->name,
                (unsigned long long)(cairn_mono_ms() - notice->started_ms) / 1000);
        next_ms += EVERY_MS;
    }
    return NULL;
}

void cairn_cli_wait_notice_start(struct cairn_cli_wait_notice *notice, const char *kind,
                                 const char *name) {
    *notice = (struct cairn_cli_wait_notice){
        .kind = kind, .name = name, .started_ms = cairn_mono_ms()};
    cairn_lock_init(&notice->lock, CAIRN_LOCK_client_session);
    cairn_condition_init(&notice->stopped);
    notice->running = !pthread_create(&notice->thread, NULL, watch, notice);
}

void cairn_cli_wait_notice_stop(struct cairn_cli_wait_notice *notice) {
    cairn_lock_take(&notice->lock);
    notice->locked.stop = true;
    cairn_condition_signal(&notice->stopped);
    cairn_lock_give(&notice->lock);
    if (notice->running) pthread_join(notice->thread, NULL);
    cairn_condition_release(&notice->stopped);
    cairn_lock_release(&notice->lock);
}
