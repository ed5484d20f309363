/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array: room for further items in an array that grows.
 *
 * Why:     an array that doubles is three lines with three traps: the bound, the overflow of the
 *          size in bytes, and the old array when memory is short.
 * Promise: 1   the array's pointer and its capacity change together or not at all; the items that
 *              it has stay.
 *          2   more than `max` items are CAIRN_TOO_LARGE, named by `what`, before any memory is
 *              asked for.
 * Limits:  the caller's `max`.
 * Threads: one owner.
 * Next:    common/buf.h for bytes.
 */
#pragma once

#include "common/error.h"

/* items: the address of the array's pointer. what: "versions of a run", for the error. */
enum cairn_code cairn_array_room(void *items, size_t item_bytes, size_t count, size_t more,
                                 size_t *capacity, size_t max, const char *what,
                                 struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_ARRAY_ROOM_FOR(items, count, more, capacity, max, what, err)                         \
    cairn_array_room(&(items), sizeof *(items), (count), (more), &(capacity), (max), (what), (err))
#define CAIRN_ARRAY_ROOM(items, count, capacity, max, what, err)                                   \
    CAIRN_ARRAY_ROOM_FOR(items, count, 1, capacity, max, what, err)
