/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over decimal digits serves all parsers; all arithmetic is on integers. */
#include "common/text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/utf8.h"

#define COUNT_MAX ((uint64_t)INT64_MAX)
/* 10^6 times the largest unit (2^40) still fits 64 bits. */
#define FRACTION_DIGITS_MAX 6

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"KB", UINT64_C(1000)},
    {"MB", UINT64_C(1000000)},
    {"GB", UINT64_C(1000000000)},
    {"TB", UINT64_C(1000000000000)},
};

static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000},
};

/* What is quoted of a wrong text: enough to recognise it, never a whole body. */
static int shown(struct cairn_view text) {
    return text.size < 64 ? (int)text.size : 64;
}

/* Digits from *at on into *value. False: no digit, or above COUNT_MAX. */
static bool take_digits(struct cairn_view text, size_t *at, uint64_t *value) {
    const char *data = text.data;
    size_t start = *at;
    *value = 0;
    while (*at < text.size && data[*at] >= '0' && data[*at] <= '9') {
        uint64_t digit = (uint64_t)(data[*at] - '0');
        if (cairn_mul_overflows(*value, UINT64_C(10), value)) return false;
        if (cairn_add_overflows(*value, digit, value)) return false;
        if (*value > COUNT_MAX) return false;
        (*at)++;
    }
    return *at > start;
}

enum cairn_code cairn_parse_u64(struct cairn_view text, uint64_t *ret, struct cairn_error *err) {
    size_t at = 0;
    uint64_t value = 0;
    if (!take_digits(text, &at, &value) || at != text.size) {
        return cairn_fail(err, CAIRN_INVALID, "\"%.*s\" is not a whole number from 0 to 2^63-1",
                          shown(text), (const char *)text.data);
    }
    *ret = value;
    return CAIRN_OK;
}

/* number[.fraction]unit, times the unit's factor; *inexact when a part below one was dropped. */
static bool parse_with_unit(struct cairn_view text, const struct unit *units, size_t unit_count,
                            uint64_t *ret, bool *inexact) {
    const char *data = text.data;
    size_t at = 0;
    uint64_t whole = 0, fraction = 0, scale = 1;
    bool has_fraction = false;
    if (!take_digits(text, &at, &whole)) return false;
    if (at < text.size && data[at] == '.') {
        size_t start = ++at;
        if (!take_digits(text, &at, &fraction) || at - start > FRACTION_DIGITS_MAX) return false;
        for (size_t i = start; i < at; i++) scale *= 10;
        has_fraction = true;
    }
    for (size_t i = 0; i < unit_count; i++) {
        size_t size = strlen(units[i].name);
        if (size != text.size - at || (size && memcmp(units[i].name, data + at, size))) continue;
        if (has_fraction && size == 0) return false; /* half a byte */
        uint64_t product = fraction * units[i].factor;
        uint64_t value = 0;
        if (cairn_mul_overflows(whole, units[i].factor, &value)) return false;
        if (cairn_add_overflows(value, product / scale, &value)) return false;
        if (value > COUNT_MAX) return false;
        *inexact = product % scale != 0;
        *ret = value;
        return true;
    }
    return false;
}

enum cairn_code cairn_parse_size(struct cairn_view text, uint64_t *ret_bytes,
                                 struct cairn_error *err) {
    bool inexact = false; /* "0.1GiB" is rounded down to a byte; people mean about that much. */
    if (!parse_with_unit(text, size_units, CAIRN_COUNT(size_units), ret_bytes, &inexact)) {
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.*s\" is not a size like 4096, 64MiB or 1.5GiB (below 2^63)",
                          shown(text), (const char *)text.data);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_parse_duration(struct cairn_view text, uint64_t *ret_ms,
                                     struct cairn_error *err) {
    bool inexact = false;
    uint64_t ms = 0;
    /* Rounding down could turn a short wait into none, so the text must be whole milliseconds. */
    if (!parse_with_unit(text, duration_units, CAIRN_COUNT(duration_units), &ms, &inexact) ||
        inexact) {
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.*s\" is not a duration like 250ms, 30s, 10min, 24h or 7d",
                          shown(text), (const char *)text.data);
    }
    *ret_ms = ms;
    return CAIRN_OK;
}

static void size_text(uint64_t bytes, uint64_t base, const char *const names[6],
                      char ret_text[24]) {
    if (bytes < base) {
        snprintf(ret_text, 24, "%u B", (unsigned)bytes);
        return;
    }
    size_t index = 0;
    uint64_t unit = base;
    while (index < 5 && bytes / unit >= base) {
        unit *= base;
        index++;
    }
    uint64_t whole = bytes / unit;
    uint64_t tenths = (bytes % unit * 10 + unit / 2) / unit;
    if (tenths == 10) {
        tenths = 0;
        whole++;
    }
    if (whole == base && index < 5) { /* 1023.96 KiB is 1.0 MiB */
        whole = 1;
        index++;
    }
    snprintf(ret_text, 24, "%u.%u %s", (unsigned)whole, (unsigned)tenths, names[index]);
}

void cairn_size_text(uint64_t bytes, char ret_text[24]) {
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_text(bytes, 1024, names, ret_text);
}

void cairn_size_text_si(uint64_t bytes, char ret_text[24]) {
    static const char *const names[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    size_text(bytes, 1000, names, ret_text);
}

void cairn_duration_text(uint64_t ms, char ret_text[24]) {
    uint64_t hundredths = ms / 10 + (ms % 10 >= 5);
    uint64_t seconds = ms / 1000 + (ms % 1000 >= 500);
    uint64_t minutes = seconds / 60 + (seconds % 60 >= 30);
    if (hundredths < 6000) {
        snprintf(ret_text, 24, "%u.%02us", (unsigned)(hundredths / 100),
                 (unsigned)(hundredths % 100));
    } else if (seconds < 3600) {
        snprintf(ret_text, 24, "%um%02us", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
    } else {
        snprintf(ret_text, 24, "%lluh%02um", (unsigned long long)(minutes / 60),
                 (unsigned)(minutes % 60));
    }
}

struct cairn_counted cairn_counted(uint64_t count, const char *thing) {
    struct cairn_counted ret;
    snprintf(ret.text, sizeof(ret.text), "%llu %s%s", (unsigned long long)count, thing,
             count == 1 ? "" : "s");
    return ret;
}

/* "1e+05" and "1e-05" as JSON's writers have them: "1e5", "1e-5". */
static void shorten_exponent(char *text) {
    char *to = strchr(text, 'e');
    if (!to) return;
    const char *from = ++to;
    if (*from == '-') to++;
    from += strspn(from, "+-");
    from += strspn(from, "0");
    memmove(to, from, strlen(from) + 1);
}

/* What a text of 15 digits stands for has no shorter one that %g does not find, since two such
 * texts never stand for one double. Below DBL_MIN doubles lie further apart than that. */
struct cairn_real cairn_real(double value) {
    struct cairn_real ret;
    int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    do snprintf(ret.text, sizeof ret.text, "%.*g", digits, value);
    while (digits++ < DBL_DECIMAL_DIG && strtod(ret.text, NULL) != value);
    shorten_exponent(ret.text);
    return ret;
}

bool cairn_text_starts(const char *text, const char *start) {
    return !strncmp(text, start, strlen(start));
}

struct cairn_view cairn_text_trimmed(struct cairn_view text) {
    const char *from = text.data, *to = from + text.size;
    while (from < to && memchr(" \t", *from, 2)) from++;
    while (to > from && memchr(" \t\r\n", to[-1], 4)) to--;
    return (struct cairn_view){from, (size_t)(to - from)};
}

char *cairn_text_trim(char *text) {
    struct cairn_view left = cairn_text_trimmed(cairn_view_of(text));
    size_t skipped = (size_t)((const char *)left.data - text);
    text[skipped + left.size] = '\0';
    return text + skipped;
}

bool cairn_text_copy(char *to, size_t capacity, const char *from) {
    if (capacity == 0) return false;
    size_t size = strlen(from);
    size_t copied = size < capacity ? size : cairn_utf8_border(from, capacity - 1);
    memcpy(to, from, copied);
    to[copied] = '\0';
    return copied == size;
}
