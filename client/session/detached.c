/* SPDX-License-Identifier: Apache-2.0 */
/* Signals are blocked before the thread is made, so that it never has one to take. */
#include "client/session/detached.h"

#include <signal.h>

static bool start(void *(*run)(void *owner), void *owner) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes)) return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = !pthread_create(&thread, &attributes, run, owner);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

bool cairn_client_detached(struct cairn_session *session, void *(*run)(void *owner), void *owner) {
    cairn_lock_take(&session->lock);
    session->locked.calls++;
    cairn_lock_give(&session->lock);
    if (start(run, owner)) return true;
    cairn_client_leave(session);
    return false;
}
