/* SPDX-License-Identifier: Apache-2.0 */
/* One set of keys: filled, checked, wiped. What every source of keys calls, and what calls none. */
#include "store/keys/keys.h"

#include <stdlib.h>

#include "common/text.h"
#include "store/keys/inside.h"

void cairn_credentials_release(struct cairn_credentials *credentials) {
    cairn_secret_release(&credentials->secret);
    cairn_secret_release(&credentials->token);
    *credentials = (struct cairn_credentials){0};
}

const char *cairn_credentials_variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

enum cairn_code cairn_credentials_set(struct cairn_credentials *ret, const char *access_key,
                                      const char *secret, const char *token,
                                      struct cairn_error *err) {
    if (!cairn_text_copy(ret->access_key, sizeof ret->access_key, access_key))
        return cairn_fail(err, CAIRN_INVALID, "the access key id is longer than 255 bytes");
    for (const char *at = access_key; *at; at++)
        if (*at <= ' ' || *at > '~' || *at == '/' || *at == ',')
            return cairn_fail(err, CAIRN_INVALID, "the access key id holds a byte it cannot hold");
    for (const char *at = token ? token : ""; *at; at++)
        if (*at <= ' ' || *at > '~')
            return cairn_fail(err, CAIRN_INVALID, "the session token holds a byte it cannot hold");
    if (strlen(secret) > 256)
        return cairn_fail(err, CAIRN_INVALID, "the secret access key is longer than 256 bytes");
    CAIRN_TRY(cairn_secret_set(&ret->secret, cairn_view_of(secret), err));
    return cairn_secret_set(&ret->token, cairn_view_of(token ? token : ""), err);
}
