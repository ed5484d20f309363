/* SPDX-License-Identifier: Apache-2.0 */
/* A broken promise ends the process, except in libcairn, which links client/promise.c instead. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base.h"

_Noreturn void cairn_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "cairn: %s:%d: broken promise: %s\n", file, line, condition);
    abort();
}

void cairn_promise_broken(const char *condition, const char *origin) {
    fprintf(stderr, "cairn: %s: broken promise: %s\n", origin, condition);
    abort();
}

const char *cairn_promise_place(void) {
    return NULL;
}
