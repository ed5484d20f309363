/* SPDX-License-Identifier: Apache-2.0 */
/*
 * array: room for one more item in an array that grows.
 *
 * Why:     an array that doubles is written in three lines, and each of the copies of those forgot
 *          another thing: the bound, the overflow, the old array when memory is short.
 * Promise: 1   the array's pointer and its capacity change together or not at all; what was there
 *              stays.
 *          2   more than `max` items is CAIRN_TOO_LARGE naming them, before anything is asked for.
 * Limits:  the caller's `max`.
 * Threads: one owner.
 * Next:    common/buf.h for bytes.
 */
#pragma once

#include "common/error.h"

/* items: the address of the array's pointer. what: "versions of a run", for the error. */
enum cairn_code cairn_array_room(void *items, size_t item_bytes, size_t count, size_t *capacity,
                                 size_t max, const char *what,
                                 struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_ARRAY_ROOM(items, count, capacity, max, what, err)                                   \
    cairn_array_room(&(items), sizeof *(items), (count), &(capacity), (max), (what), (err))
