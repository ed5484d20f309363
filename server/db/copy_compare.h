/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_compare: the same table read from both ends of a copy, side by side.
 *
 * Why:     that a database took rows does not say that it gives the same ones back.
 * Promise: 1   CAIRN_OK means that all rows and all columns are equal, bit by bit, and none is on
 *              one side alone.
 *          2   the first row that differs is named by its key, with the column and both values, as
 *              CAIRN_CORRUPT.
 * Limits:  as server/db/copy_page.h; values are shown with at most 48 bytes.
 * Threads: one.
 * Next:    server/db/copy.c.
 */
#pragma once

#include "common/hash/hash.h"
#include "server/db/copy_page.h"

struct cairn_srv_copy_compared {
    void (*counted)(void *owner, uint64_t rows); /* as they were compared; or NULL */
    void *owner;
    uint64_t rows; /* set */
    uint8_t sha256[CAIRN_SHA256_BYTES];
};
/* behind: from behind the row with this key on; NULL: all. */
enum cairn_code cairn_srv_copy_compare(struct cairn_srv_copy_end *from,
                                       struct cairn_srv_copy_end *to, size_t table,
                                       const char *behind, struct cairn_srv_copy_compared *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
