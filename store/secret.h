/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret: a key or token in memory that is wiped when it is no longer needed.
 *
 * Why:     a secret in a plain string ends up in a log line, a core file or a freed page.
 * Promise: 1   the bytes are overwritten before their memory is given back.
 *          2   there is no printing form; whoever needs the bytes asks for a view.
 * Limits:  64 KiB a secret.
 * Threads: one owner.
 * Next:    store/keys/credentials.h.
 */
#pragma once

#include "common/error.h"

#define CAIRN_SECRET_BYTES_MAX (64 * CAIRN_KIB)

struct cairn_secret {
    char *private_bytes; /* NUL-terminated */
    size_t size;
};
/* Replaces what was there. An empty text gives an empty secret. */
enum cairn_code cairn_secret_set(struct cairn_secret *secret, struct cairn_view text,
                                 struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_secret_copy(struct cairn_secret *to, const struct cairn_secret *from,
                                  struct cairn_error *err) CAIRN_MUST_USE;
void cairn_secret_release(struct cairn_secret *secret);
static inline struct cairn_view cairn_secret_view(const struct cairn_secret *secret) {
    return (struct cairn_view){secret->private_bytes ? secret->private_bytes : "", secret->size};
}
bool cairn_secret_equal(const struct cairn_secret *a, const struct cairn_secret *b);
