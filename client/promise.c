/* SPDX-License-Identifier: Apache-2.0 */
/* A broken promise inside libcairn: a training run is worth more than a save, so the process
 * continues and libcairn refuses all further work. Linked into libcairn only; Cairn's own programs,
 * which may abort, use common/base.c. */
#include <stdatomic.h>
#include <stdio.h>

#include "common/base.h"

static atomic_flag taken = ATOMIC_FLAG_INIT;
static char text[256];
static _Atomic(const char *) place;

void cairn_promise_broken(const char *condition, const char *origin) {
    if (atomic_flag_test_and_set(&taken)) return; /* the first failure explains later ones */
    snprintf(text, sizeof text, "%s: %s", origin, condition);
    atomic_store(&place, text);
}

const char *cairn_promise_place(void) {
    return atomic_load(&place);
}
