/* SPDX-License-Identifier: Apache-2.0 */
/* Codes and their table, and the helpers that fill a caller's struct without allocating. */
#include "common/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct cairn_code_info code_infos[CAIRN_CODE_COUNT] = {
#define CODE_INFO(name, slug, http, retry, exit, meaning) {#name, slug, http, retry, exit, meaning},
    CAIRN_CODES(CODE_INFO)
#undef CODE_INFO
};

const struct cairn_code_info *cairn_code_info(enum cairn_code code) {
    /* A number from elsewhere (a newer peer, a broken struct) must not read past the table. */
    unsigned index = (unsigned)code;
    return &code_infos[index < CAIRN_CODE_COUNT ? index : CAIRN_INTERNAL];
}

enum cairn_code cairn_code_from_slug(const char *slug) {
    for (unsigned i = 0; slug && i < CAIRN_CODE_COUNT; i++) {
        if (!strcmp(code_infos[i].slug, slug)) return (enum cairn_code)i;
    }
    return CAIRN_INTERNAL;
}

enum cairn_code cairn_code_from_errno(int os_errno) {
    switch (os_errno) {
    case ENOSPC:
    case EDQUOT:
        return CAIRN_NO_SPACE;
    case ENOMEM:
        return CAIRN_NO_MEMORY;
    default:
        return CAIRN_IO;
    }
}

/* A message is one line whatever its parts held. */
static void keep_one_line(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f) *p = ' ';
    }
}

/* Put "..." at the end of a full text of capacity bytes, without leaving half a UTF-8 sequence. */
static void mark_cut(char *text, size_t capacity) {
    size_t end = capacity - sizeof("...");
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
    memcpy(text + end, "...", sizeof("..."));
}

/* Append formatted text at *used, cut with "..." at capacity. */
static void append_format(char *text, size_t capacity, size_t *used, const char *format,
                          va_list arguments) {
    if (*used + 1 >= capacity) return;
    int size = vsnprintf(text + *used, capacity - *used, format, arguments);
    if (size < 0) {
        text[*used] = '\0';
    } else if ((size_t)size >= capacity - *used) {
        mark_cut(text, capacity);
        *used = capacity - 1; /* full: nothing may follow the dots */
    } else {
        *used += (size_t)size;
    }
}

static void CAIRN_PRINTF(4, 5)
    append_text(char *text, size_t capacity, size_t *used, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    append_format(text, capacity, used, format, arguments);
    va_end(arguments);
}

enum cairn_code cairn_fail_at(struct cairn_error *err, enum cairn_code code, int os_errno,
                              const char *origin, const char *format, ...) {
    if (!err) return code;
    int saved_errno = errno;
    /* Built aside, because the arguments may point into *err. */
    struct cairn_error made = {.code = code, .os_errno = os_errno, .origin = origin};
    size_t used = 0;
    va_list arguments;
    va_start(arguments, format);
    append_format(made.message, sizeof(made.message), &used, format, arguments);
    va_end(arguments);
    if (os_errno) {
        char room[128];
        append_text(made.message, sizeof(made.message), &used, ": %s",
                    strerror_r(os_errno, room, sizeof(room)));
    }
    keep_one_line(made.message);
    *err = made;
    errno = saved_errno;
    return code;
}

enum cairn_code cairn_within(struct cairn_error *err, enum cairn_code code, const char *format,
                             ...) {
    if (!err || code == CAIRN_OK) return code;
    int saved_errno = errno;
    char message[sizeof(err->message)] = "";
    size_t used = 0;
    va_list arguments;
    va_start(arguments, format);
    append_format(message, sizeof(message), &used, format, arguments);
    va_end(arguments);
    append_text(message, sizeof(message), &used, ": %s", err->message);
    keep_one_line(message);
    memcpy(err->message, message, sizeof(message));
    errno = saved_errno;
    return code;
}

_Noreturn void cairn_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "cairn: %s:%d: broken promise: %s\n", file, line, condition);
    abort();
}
