/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options: the structs that a program passes, whatever release of the header it was compiled with.
 *
 * Why:     libcairn.so is replaced under programs that stay; a struct that grew must not be read
 *          past the end of the one that they have, and no option may be ignored in silence.
 * Promise: 1   what the caller's struct is too short for is zero, which is each option's default.
 *          2   what it has beyond this library's must be zero, or it is CAIRN_UNSUPPORTED.
 *          3   a struct that does not say its size is CAIRN_INVALID.
 *          4   so is a call that has nowhere to write its answer, before it does anything.
 * Limits:  the size is the first member of each such struct.
 * Threads: stateless.
 * Next:    include/cairn/cairn.h.
 */
#pragma once

#include "common/error.h"

/* Copies `given` into the ret_bytes at ret. NULL: all defaults, ret->size included. */
enum cairn_code cairn_client_options(const void *given, void *ret, size_t ret_bytes,
                                     const char *what, struct cairn_error *err) CAIRN_MUST_USE;
/* ret is a pointer to a struct of the same kind as given's. */
#define CAIRN_CLIENT_OPTIONS(given, ret, err)                                                      \
    cairn_client_options(1 ? (given) : (ret), (ret), sizeof *(ret), #given, (err))
#define CAIRN_CLIENT_RET(ret, err)                                                                 \
    do {                                                                                           \
        if (!(ret))                                                                                \
            return cairn_fail((err), CAIRN_INVALID,                                                \
                              "%s is NULL; the call needs a place for its answer", #ret);          \
    } while (0)
