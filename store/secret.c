/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that allocates and wipes secrets. */
#include "store/secret.h"

#include <stdlib.h>

#include "common/hash/hash.h"

enum cairn_code cairn_secret_set(struct cairn_secret *secret, struct cairn_view text,
                                 struct cairn_error *err) {
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

enum cairn_code cairn_secret_copy(struct cairn_secret *to, const struct cairn_secret *from,
                                  struct cairn_error *err) {
    return cairn_secret_set(to, cairn_secret_view(from), err);
}

void cairn_secret_release(struct cairn_secret *secret) {
    if (secret->private_bytes) cairn_wipe(secret->private_bytes, secret->size);
    free(secret->private_bytes);
    *secret = (struct cairn_secret){0};
}

bool cairn_secret_equal(const struct cairn_secret *a, const struct cairn_secret *b) {
    struct cairn_view left = cairn_secret_view(a), right = cairn_secret_view(b);
    return left.size == right.size && cairn_equal_secret(left.data, right.data, left.size);
}
