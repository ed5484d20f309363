/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret: a key or token in memory that is wiped when it is no longer needed.
 *
 * Why:     a secret in a plain string ends up in a log line, a core file or a freed page.
 * Promise: 1   the bytes are overwritten before their memory is freed.
 *          2   there is no printing form; code that needs the bytes takes a view.
 * Limits:  64 KiB a secret.
 * Threads: one owner.
 * Next:    store/keys/credentials.h.
 */
#pragma once

#include <stdlib.h>

#include "common/error.h"
#include "common/hash/hash.h"

#define CAIRN_SECRET_BYTES_MAX (64 * CAIRN_KIB)

struct cairn_secret {
    char *private_bytes; /* NUL-terminated */
    size_t size;
};
static inline struct cairn_view cairn_secret_view(const struct cairn_secret *secret) {
    return (struct cairn_view){secret->private_bytes ? secret->private_bytes : "", secret->size};
}
static inline void cairn_secret_release(struct cairn_secret *secret) {
    if (secret->private_bytes) cairn_wipe(secret->private_bytes, secret->size);
    free(secret->private_bytes);
    *secret = (struct cairn_secret){0};
}
/* Replaces the secret. An empty text gives an empty secret. */
CAIRN_MUST_USE static inline enum cairn_code
cairn_secret_set(struct cairn_secret *secret, struct cairn_view text, struct cairn_error *err) {
    if (text.size > CAIRN_SECRET_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a secret of more than 64 KiB");
    char *bytes = malloc(text.size + 1);
    if (!bytes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a secret");
    if (text.size) memcpy(bytes, text.data, text.size);
    bytes[text.size] = '\0';
    cairn_secret_release(secret);
    *secret = (struct cairn_secret){bytes, text.size};
    return CAIRN_OK;
}
CAIRN_MUST_USE static inline enum cairn_code cairn_secret_copy(struct cairn_secret *to,
                                                               const struct cairn_secret *from,
                                                               struct cairn_error *err) {
    return cairn_secret_set(to, cairn_secret_view(from), err);
}
static inline bool cairn_secret_equal(const struct cairn_secret *a, const struct cairn_secret *b) {
    return a->size == b->size &&
           cairn_equal_secret(cairn_secret_view(a).data, cairn_secret_view(b).data, a->size);
}
