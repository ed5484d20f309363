/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of one command; see workers.h. */
#include "cli/shell/workers.h"

#include <pthread.h>

#define WORKERS_DEFAULT 4

void cairn_cli_workers_take_locked(struct cairn_cli_workers *workers) {
    workers->locked.taken++;
}

void cairn_cli_workers_done(struct cairn_cli_workers *workers) {
    CAIRN_HOLD(&workers->lock);
    workers->locked.done++;
    CAIRN_ASSERT(workers->locked.done <= workers->locked.taken);
}

void cairn_cli_workers_failed(struct cairn_cli_workers *workers, enum cairn_code code,
                              const struct cairn_error *why) {
    CAIRN_ASSERT(code != CAIRN_OK);
    CAIRN_HOLD(&workers->lock);
    if (workers->locked.code != CAIRN_OK) return;
    workers->locked.code = code;
    workers->locked.error = *why;
}

enum cairn_code cairn_cli_workers_run(struct cairn_cli_workers *workers, uint64_t count,
                                      void *(*work)(void *argument), void *argument,
                                      struct cairn_error *err) {
    pthread_t threads[CAIRN_CLI_WORKERS_MAX];
    uint64_t wanted = cairn_min_u64(count ? count : WORKERS_DEFAULT, CAIRN_CLI_WORKERS_MAX);
    uint64_t started = 0;
    cairn_lock_init(&workers->lock, CAIRN_LOCK_client_session);
    while (started < wanted && !pthread_create(&threads[started], NULL, work, argument)) started++;
    for (uint64_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    cairn_lock_release(&workers->lock);
    if (!started) return cairn_fail(err, CAIRN_NO_MEMORY, "no thread could be started");
    CAIRN_ASSERT(workers->locked.code || workers->locked.done == workers->locked.taken);
    if (workers->locked.code != CAIRN_OK && err) *err = workers->locked.error;
    return workers->locked.code;
}
