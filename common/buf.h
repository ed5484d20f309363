/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf: a growable run of bytes with a bound.
 *
 * Why:     every body, document and table is built somewhere, and none may grow without end.
 * Promise: 1   size never exceeds limit; an append that would is CAIRN_TOO_LARGE and changes
 *              nothing.
 *          2   data is followed by one NUL that size does not count (when anything was ever
 *              appended), so text can be handed to C.
 * Limits:  limit 0 means CAIRN_BUF_LIMIT_DEFAULT (16 MiB).
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
/* Forget the bytes, keep the memory. */
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
