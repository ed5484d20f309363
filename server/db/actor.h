/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actor: who asks for the changes of a thread.
 *
 * Why:     every event says who asked and from where, and no call between a handler and the row has
 *          to carry that along.
 * Promise: 1   a change bears the actor that its thread had when it asked for it.
 * Limits:  one actor a thread.
 * Threads: of the thread that sets it.
 * Next:    server/ledger/events.h, server/handle.c.
 */
#pragma once

struct cairn_srv_idempotency;

struct cairn_srv_actor {
    const char *who;  /* "" where nobody said */
    const char *from; /* an address */
    const struct cairn_srv_idempotency *idempotency; /* of a POST that has a key; else NULL */
};
/* NULL: the server itself, which is how a thread begins. It must live until it is set anew. */
void cairn_srv_actor_set(const struct cairn_srv_actor *actor);
const struct cairn_srv_actor *cairn_srv_actor_get(void);
