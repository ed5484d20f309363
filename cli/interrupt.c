/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that waits for signals; see interrupt.h. */
#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static const int taken[] = {SIGINT, SIGTERM, SIGHUP};

static sigset_t wanted(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < CAIRN_COUNT(taken); i++) {
        struct sigaction now;
        if (sigaction(taken[i], NULL, &now) || now.sa_handler == SIG_IGN) continue;
        sigaddset(&set, taken[i]);
    }
    return set;
}

static void *watch(void *argument) {
    const struct cairn_cli_interrupt *interrupt = argument;
    sigset_t set = wanted();
    for (int number = 0;;)
        if (!sigwait(&set, &number)) interrupt->take(interrupt->owner, number);
    return NULL;
}

enum cairn_code cairn_cli_interrupt_start(struct cairn_cli_interrupt *interrupt,
                                          struct cairn_error *err) {
    pthread_t thread;
    sigset_t set = wanted();
    int failed = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (!failed) failed = pthread_create(&thread, NULL, watch, interrupt);
    if (failed) return cairn_fail(err, CAIRN_NO_MEMORY, "no thread for signals (error %d)", failed);
    pthread_detach(thread);
    return CAIRN_OK;
}

void cairn_cli_interrupt_exit(int signal) {
    _exit(128 + signal);
}
