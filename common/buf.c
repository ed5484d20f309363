/* SPDX-License-Identifier: Apache-2.0 */
/* A buffer is one doubling allocation with room for the final NUL. Arrays double from 64 items. */
#include "common/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CAPACITY_MIN 64

void cairn_buf_release(struct cairn_buf *buf) {
    free(buf->data);
    *buf = (struct cairn_buf){.limit = buf->limit};
}

void cairn_buf_clear(struct cairn_buf *buf) {
    buf->size = 0;
    if (buf->data) buf->data[0] = '\0';
}

enum cairn_code cairn_buf_reserve(struct cairn_buf *buf, size_t more, struct cairn_error *err) {
    size_t limit = buf->limit ? buf->limit : CAIRN_BUF_LIMIT_DEFAULT;
    size_t needed = 0;
    if (cairn_add_overflows(buf->size, more, &needed) || needed > limit || needed == SIZE_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "%zu more than %zu bytes would pass the limit of %zu", more, buf->size,
                          limit);
    if (needed < buf->capacity) return CAIRN_OK;
    size_t capacity = 0;
    if (cairn_mul_overflows(buf->capacity, (size_t)2, &capacity) || capacity > limit)
        capacity = limit < SIZE_MAX ? limit + 1 : SIZE_MAX;
    if (capacity < CAPACITY_MIN) capacity = CAPACITY_MIN;
    if (capacity < needed + 1) capacity = needed + 1;
    char *data = realloc(buf->data, capacity);
    if (!data) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %zu bytes", capacity);
    data[buf->size] = '\0';
    buf->data = data;
    buf->capacity = capacity;
    return CAIRN_OK;
}

enum cairn_code cairn_buf_append(struct cairn_buf *buf, const void *data, size_t size,
                                 struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_reserve(buf, size, err));
    if (size) memcpy(buf->data + buf->size, data, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
    return CAIRN_OK;
}

enum cairn_code cairn_buf_append_text(struct cairn_buf *buf, const char *text,
                                      struct cairn_error *err) {
    return cairn_buf_append(buf, text, strlen(text), err);
}

/* Prints into the free room first; grows and prints again if the text did not fit. */
enum cairn_code cairn_buf_printf(struct cairn_buf *buf, struct cairn_error *err, const char *format,
                                 ...) {
    va_list arguments, again;
    size_t room = buf->capacity - buf->size;
    va_start(arguments, format);
    va_copy(again, arguments);
    int size = vsnprintf(room ? buf->data + buf->size : NULL, room, format, arguments);
    va_end(arguments);
    bool fits = size >= 0 && (size_t)size < room;
    enum cairn_code code = CAIRN_OK;
    if (room && !fits) buf->data[buf->size] = '\0';
    if (size < 0)
        code = cairn_fail(err, CAIRN_INTERNAL, "the format \"%s\" cannot be printed", format);
    else
        code = cairn_buf_reserve(buf, (size_t)size, err);
    if (code == CAIRN_OK && !fits)
        vsnprintf(buf->data + buf->size, (size_t)size + 1, format, again);
    if (code == CAIRN_OK)
        buf->size += (size_t)size;
    else if (room)
        buf->data[buf->size] = '\0';
    va_end(again);
    return code;
}

enum cairn_code cairn_buf_append_u32le(struct cairn_buf *buf, uint32_t value,
                                       struct cairn_error *err) {
    uint8_t bytes[4];
    cairn_store_u32le(bytes, value);
    return cairn_buf_append(buf, bytes, sizeof(bytes), err);
}

enum cairn_code cairn_buf_append_u64le(struct cairn_buf *buf, uint64_t value,
                                       struct cairn_error *err) {
    uint8_t bytes[8];
    cairn_store_u64le(bytes, value);
    return cairn_buf_append(buf, bytes, sizeof(bytes), err);
}

#define FIRST_CAPACITY 64

enum cairn_code cairn_array_room(void *items, size_t item_bytes, size_t count, size_t more,
                                 size_t *capacity, size_t max, const char *what,
                                 struct cairn_error *err) {
    void *now = NULL;
    CAIRN_PROMISE(count <= *capacity,
                  return cairn_fail(err, CAIRN_INTERNAL, "%zu of %zu %s", count, *capacity, what));
    if (count > max || more > max - count)
        return cairn_fail(err, CAIRN_TOO_LARGE, "more than %zu %s", max, what);
    if (more <= *capacity - count) return CAIRN_OK;
    size_t doubled = *capacity > max / 2 ? max : 2 * *capacity;
    size_t wanted =
        cairn_max_u64(cairn_max_u64(doubled, count + more), cairn_min_u64(FIRST_CAPACITY, max));
    memcpy(&now, items, sizeof now); /* works for any pointer type */
    void *grown = wanted > PTRDIFF_MAX / item_bytes ? NULL : realloc(now, wanted * item_bytes);
    if (!grown) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %zu %s", wanted, what);
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return CAIRN_OK;
}
