/* SPDX-License-Identifier: Apache-2.0 */
/* The struct's own size, then its bytes, then what is missing or must not be there. */
#include "client/session/options.h"

/* A struct of options is a few hundred bytes; a larger size is not one. */
#define OPTIONS_BYTES_MAX (4 * CAIRN_KIB)

enum cairn_code cairn_client_options(const void *given, void *ret, size_t ret_bytes,
                                     const char *what, struct cairn_error *err) {
    size_t size = ret_bytes;
    memset(ret, 0, ret_bytes);
    memcpy(ret, &size, sizeof size);
    if (!given) return CAIRN_OK;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > OPTIONS_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s: its size, %zu, is not that of a struct; set .size to its sizeof",
                          what, size);
    for (size_t i = ret_bytes; i < size; i++)
        if (((const uint8_t *)given)[i])
            return cairn_fail(err, CAIRN_UNSUPPORTED,
                              "%s: it sets an option that this libcairn does not have; it is older "
                              "than the header that the program was compiled with",
                              what);
    memcpy(ret, given, cairn_min_u64(size, ret_bytes));
    memcpy(ret, &ret_bytes, sizeof ret_bytes);
    return CAIRN_OK;
}
