/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf: bytes and arrays that grow up to a bound.
 *
 * Why:     every body, document and table is built in memory and needs a bound. Growing an array
 *          is easy to get wrong: the bound, the overflow of the byte size, the old array when
 *          memory is short.
 * Promise: 1   a buffer's size never exceeds its limit; an append beyond it is CAIRN_TOO_LARGE and
 *              changes nothing.
 *          2   after the first append, data is followed by one NUL that size does not count.
 *          3   an array's pointer and its capacity change together or not at all; its items stay.
 *          4   more than `max` items are CAIRN_TOO_LARGE, named by `what`, before any allocation.
 * Limits:  limit 0 means CAIRN_BUF_LIMIT_DEFAULT (16 MiB); the caller bounds arrays.
 * Threads: one owner.
 * Next:    common/base.h for views.
 */
#pragma once

#include "common/error.h"

#define CAIRN_BUF_LIMIT_DEFAULT (16 * CAIRN_MIB)

struct cairn_buf {
    char *data;
    size_t size;
    size_t capacity;
    size_t limit;
};

void cairn_buf_release(struct cairn_buf *buf);
/* Sets the size to 0 and keeps the allocation. */
void cairn_buf_clear(struct cairn_buf *buf);
enum cairn_code cairn_buf_reserve(struct cairn_buf *buf, size_t more,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_buf_append(struct cairn_buf *buf, const void *data, size_t size,
                                 struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_buf_append_text(struct cairn_buf *buf, const char *text,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_buf_printf(struct cairn_buf *buf, struct cairn_error *err, const char *format,
                                 ...) CAIRN_PRINTF(3, 4) CAIRN_MUST_USE;
/* Little-endian integers, for stored and sent bytes. */
enum cairn_code cairn_buf_append_u32le(struct cairn_buf *buf, uint32_t value,
                                       struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_buf_append_u64le(struct cairn_buf *buf, uint64_t value,
                                       struct cairn_error *err) CAIRN_MUST_USE;
static inline struct cairn_view cairn_buf_view(const struct cairn_buf *buf) {
    return (struct cairn_view){buf->data, buf->size};
}
static inline uint32_t cairn_load_u32le(const void *at) {
    const uint8_t *p = at;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t cairn_load_u64le(const void *at) {
    return cairn_load_u32le(at) | (uint64_t)cairn_load_u32le((const uint8_t *)at + 4) << 32;
}
static inline void cairn_store_u32le(void *at, uint32_t value) {
    uint8_t *p = at;
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(value >> (8 * i));
}
static inline void cairn_store_u64le(void *at, uint64_t value) {
    uint8_t *p = at;
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(value >> (8 * i));
}

/* ---- arrays ---- */

/* items: address of the array's pointer. what: names the items in errors ("versions of a run"). */
enum cairn_code cairn_array_room(void *items, size_t item_bytes, size_t count, size_t more,
                                 size_t *capacity, size_t max, const char *what,
                                 struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_ARRAY_ROOM_FOR(items, count, more, capacity, max, what, err)                         \
    cairn_array_room(&(items), sizeof *(items), (count), (more), &(capacity), (max), (what), (err))
#define CAIRN_ARRAY_ROOM(items, count, capacity, max, what, err)                                   \
    CAIRN_ARRAY_ROOM_FOR(items, count, 1, capacity, max, what, err)
