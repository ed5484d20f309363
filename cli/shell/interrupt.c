/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that waits for signals; see interrupt.h. */
#include "cli/shell/interrupt.h"

#include <pthread.h>
#include <stdio.h>
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

void cairn_cli_interrupt_block(sigset_t *ret) {
    *ret = wanted();
    pthread_sigmask(SIG_BLOCK, ret, NULL);
}

enum cairn_code cairn_cli_interrupt_start(struct cairn_cli_interrupt *interrupt,
                                          struct cairn_error *err) {
    pthread_t thread;
    sigset_t set;
    cairn_cli_interrupt_block(&set);
    int failed = pthread_create(&thread, NULL, watch, interrupt);
    if (failed) return cairn_fail(err, CAIRN_NO_MEMORY, "no thread for signals (error %d)", failed);
    pthread_detach(thread);
    return CAIRN_OK;
}

static void say_and_exit(void *owner, int signal) {
    const char *const *text = owner;
    fputs(*text, stderr);
    cairn_cli_interrupt_exit(signal);
}

enum cairn_code cairn_cli_interrupt_says(const char *text, struct cairn_error *err) {
    static const char *said;
    static struct cairn_cli_interrupt interrupt = {.take = say_and_exit, .owner = &said};
    said = text;
    return cairn_cli_interrupt_start(&interrupt, err);
}

void cairn_cli_interrupt_exit(int signal) {
    _exit(128 + signal);
}
