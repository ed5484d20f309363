/* SPDX-License-Identifier: Apache-2.0 */
/* Who asks for the changes of this thread; see actor.h. A handler and all that it calls run on one
 * thread from begin to end, and its changes are carried out on another one, to which the catalog
 * hands this. */
#include "server/db/actor.h"

#include <stddef.h>

static _Thread_local const struct cairn_srv_actor *acting;

void cairn_srv_actor_set(const struct cairn_srv_actor *actor) {
    acting = actor;
}

const struct cairn_srv_actor *cairn_srv_actor_get(void) {
    return acting;
}
