/* SPDX-License-Identifier: Apache-2.0 */
/* All parsers share one reader of decimal digits; arithmetic is on integers. UTF-8 is well-formed
 * by table 3-7 of the Unicode standard. A decoder that refuses its input removes its output. */
#include "common/text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Length to quote of a malformed text: enough to recognise it, never a whole body. */
static int shown(struct cairn_view text) {
    return text.size < 64 ? (int)text.size : 64;
}

/* Reads digits from *at on into *value; false: no digit, or above COUNT_MAX. */
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
    if (!take_digits(text, &at, &value) || at != text.size)
        return cairn_fail(err, CAIRN_INVALID, "\"%.*s\" is not a whole number from 0 to 2^63-1",
                          shown(text), (const char *)text.data);
    *ret = value;
    return CAIRN_OK;
}

/* Parses number[.fraction]unit and multiplies; *inexact: a fraction of a byte or ms was dropped. */
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
        if (has_fraction && size == 0) return false; /* a fraction of a byte */
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
    bool inexact = false; /* "0.1GiB" is rounded down to a byte, which is close enough */
    if (!parse_with_unit(text, size_units, CAIRN_COUNT(size_units), ret_bytes, &inexact))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.*s\" is not a size like 4096, 64MiB or 1.5GiB (below 2^63)",
                          shown(text), (const char *)text.data);
    return CAIRN_OK;
}

enum cairn_code cairn_parse_duration(struct cairn_view text, uint64_t *ret_ms,
                                     struct cairn_error *err) {
    bool inexact = false;
    uint64_t ms = 0;
    /* Rounding down could turn a short wait into none, so only whole milliseconds are accepted. */
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

/* For a value with at most 15 digits %g finds the shortest text, since two such texts never denote
 * the same double. Below DBL_MIN doubles lie further apart, so fewer digits are tried. */
struct cairn_real cairn_real(double value) {
    struct cairn_real ret;
    int digits = fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    do snprintf(ret.text, sizeof ret.text, "%.*g", digits, value);
    while (digits++ < DBL_DECIMAL_DIG && strtod(ret.text, NULL) != value);
    /* "1e+05" and "1e-05" become "1e5" and "1e-5", as JSON writers print them. */
    char *to = strchr(ret.text, 'e');
    if (to) {
        const char *from = ++to;
        if (*from == '-') to++;
        from += strspn(from, "+-");
        from += strspn(from, "0");
        memmove(to, from, strlen(from) + 1);
    }
    return ret;
}

bool cairn_text_starts(const char *text, const char *start) {
    return !strncmp(text, start, strlen(start));
}

bool cairn_text_ends(const char *text, const char *end) {
    size_t size = strlen(text), tail = strlen(end);
    return size > tail && !strcmp(text + size - tail, end);
}

bool cairn_text_ends_uncased(const char *text, const char *end) {
    size_t size = strlen(text), tail = strlen(end);
    return size > tail && !strcasecmp(text + size - tail, end);
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

/* ---- UTF-8 ---- */

#define CHARACTER_BYTES_MAX 4
#define DOTS "..."
#define DOTS_BYTES (sizeof(DOTS) - 1)

size_t cairn_utf8_size(const char *at, size_t left) {
    const unsigned char *p = (const unsigned char *)at;
    if (!left) return 0;
    if (p[0] < 0x80) return 1;
    size_t size = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    /* 0x80-0xc1 start no character; those after 0xf4 would be above U+10FFFF. */
    if (p[0] < 0xc2 || p[0] > 0xf4 || size > left) return 0;
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
    }
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;  /* overlong */
    if (p[0] == 0xed && p[1] >= 0xa0) return 0; /* surrogates */
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;  /* overlong */
    if (p[0] == 0xf4 && p[1] >= 0x90) return 0; /* above U+10FFFF */
    return size;
}

/* True: none of the next eight bytes is part of a longer character. */
static bool is_ascii(const char *at) {
    uint64_t eight;
    memcpy(&eight, at, sizeof(eight));
    return !(eight & UINT64_C(0x8080808080808080));
}

bool cairn_utf8_valid(struct cairn_view text) {
    const char *bytes = text.data;
    for (size_t i = 0; i < text.size;) {
        if (text.size - i >= 8 && is_ascii(bytes + i)) {
            i += 8;
            continue;
        }
        size_t size = cairn_utf8_size(bytes + i, text.size - i);
        if (size == 0) return false;
        i += size;
    }
    return true;
}

static bool continues(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t cairn_utf8_border(const char *text, size_t at) {
    size_t border = at;
    while (border > 0 && at - border < CHARACTER_BYTES_MAX && continues(text[border])) border--;
    return continues(text[border]) ? at : border; /* no valid UTF-8: any border will do */
}

void cairn_utf8_shorten(char *to, size_t capacity, const char *from) {
    CAIRN_PROMISE(capacity > DOTS_BYTES, return );
    size_t size = strlen(from);
    if (size < capacity) {
        memcpy(to, from, size + 1);
        return;
    }
    size_t room = capacity - 1 - DOTS_BYTES;
    size_t head = cairn_utf8_border(from, room / 2);
    size_t tail = size - (room - room / 2);
    while (continues(from[tail])) tail++; /* ends at the NUL */
    memcpy(to, from, head);
    memcpy(to + head, DOTS, DOTS_BYTES);
    memcpy(to + head + DOTS_BYTES, from + tail, size - tail + 1);
}

struct cairn_short cairn_short(const char *name) {
    struct cairn_short ret;
    cairn_utf8_shorten(ret.text, sizeof(ret.text), name);
    return ret;
}

/* ---- hexadecimal, base64, percent-encoding ---- */

#define INVALID 0xff /* not in the alphabet */

void cairn_hex_encode(const void *data, size_t size, char *ret_text) {
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        ret_text[2 * i] = digits[bytes[i] >> 4];
        ret_text[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret_text[2 * size] = '\0';
}

static uint8_t hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return (uint8_t)(digit - '0');
    if (digit >= 'a' && digit <= 'f') return (uint8_t)(digit - 'a' + 10);
    return INVALID;
}

int cairn_hex_digit(char digit) {
    uint8_t value = hex_value(digit >= 'A' && digit <= 'F' ? (char)(digit - 'A' + 'a') : digit);
    return value == INVALID ? -1 : value;
}

enum cairn_code cairn_hex_decode(struct cairn_view text, void *ret_data, size_t size,
                                 struct cairn_error *err) {
    const char *digits = text.data;
    if (text.size / 2 != size || text.size % 2)
        return cairn_fail(err, CAIRN_INVALID, "%zu hexadecimal digits expected, %zu bytes found",
                          2 * size, text.size);
    for (size_t i = 0; i < text.size; i++) {
        if (hex_value(digits[i]) == INVALID)
            return cairn_fail(err, CAIRN_INVALID, "byte %zu is not a lower-case hexadecimal digit",
                              i);
    }
    uint8_t *to = ret_data;
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)(hex_value(digits[2 * i]) << 4 | hex_value(digits[2 * i + 1]));
    return CAIRN_OK;
}

enum cairn_code cairn_base64_encode(struct cairn_view data, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = data.data;
    if (data.size > SIZE_MAX / 4 * 3 - 3)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%zu bytes are too many to encode", data.size);
    CAIRN_TRY(cairn_buf_reserve(ret, (data.size + 2) / 3 * 4, err));
    char *to = ret->data + ret->size;
    for (size_t i = 0; i < data.size; i += 3, to += 4) {
        size_t left = data.size - i;
        uint32_t three = (uint32_t)bytes[i] << 16;
        if (left > 1) three |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2) three |= bytes[i + 2];
        to[0] = digits[three >> 18];
        to[1] = digits[three >> 12 & 63];
        to[2] = left > 1 ? digits[three >> 6 & 63] : '=';
        to[3] = left > 2 ? digits[three & 63] : '=';
    }
    *to = '\0';
    ret->size = (size_t)(to - ret->data);
    return CAIRN_OK;
}

static uint8_t base64_value(char digit) {
    if (digit >= 'A' && digit <= 'Z') return (uint8_t)(digit - 'A');
    if (digit >= 'a' && digit <= 'z') return (uint8_t)(digit - 'a' + 26);
    if (digit >= '0' && digit <= '9') return (uint8_t)(digit - '0' + 52);
    if (digit == '+') return 62;
    return digit == '/' ? 63 : INVALID;
}

/* Decodes four digits into up to three bytes; returns how many, 0 if no encoder writes them. */
static size_t base64_decode_four(const char *digits, bool last, uint8_t ret_bytes[3]) {
    size_t padding = 0;
    if (last && digits[3] == '=') padding = digits[2] == '=' ? 2 : 1;
    uint32_t four = 0;
    for (size_t i = 0; i < 4; i++) {
        uint8_t value = i < 4 - padding ? base64_value(digits[i]) : 0;
        if (value == INVALID) return 0;
        four = four << 6 | value;
    }
    for (size_t i = 0; i < 3; i++) ret_bytes[i] = (uint8_t)(four >> (16 - 8 * i));
    for (size_t i = 3 - padding; i < 3; i++) {
        if (ret_bytes[i]) return 0; /* bits that an encoder leaves zero */
    }
    return 3 - padding;
}

enum cairn_code cairn_base64_decode(struct cairn_view text, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    const char *digits = text.data;
    if (text.size % 4)
        return cairn_fail(err, CAIRN_INVALID, "base64 of %zu bytes is not a multiple of 4",
                          text.size);
    CAIRN_TRY(cairn_buf_reserve(ret, text.size / 4 * 3, err));
    size_t size = ret->size;
    for (size_t i = 0; i < text.size; i += 4) {
        uint8_t bytes[3];
        size_t count = base64_decode_four(digits + i, i + 4 == text.size, bytes);
        if (count == 0) {
            ret->data[ret->size] = '\0';
            return cairn_fail(err, CAIRN_INVALID, "bytes %zu to %zu are not base64", i, i + 3);
        }
        memcpy(ret->data + size, bytes, count);
        size += count;
    }
    ret->data[size] = '\0';
    ret->size = size;
    return CAIRN_OK;
}

static bool is_unreserved(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

enum cairn_code cairn_percent_encode(struct cairn_view text, bool keep_slash, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    static const char digits[] = "0123456789ABCDEF";
    const char *from = text.data;
    size_t size = 0;
    for (size_t i = 0; i < text.size; i++)
        size += is_unreserved(from[i]) || (keep_slash && from[i] == '/') ? 1 : 3;
    CAIRN_TRY(cairn_buf_reserve(ret, size, err));
    char *to = ret->data + ret->size;
    for (size_t i = 0; i < text.size; i++) {
        if (is_unreserved(from[i]) || (keep_slash && from[i] == '/')) {
            *to++ = from[i];
        } else {
            *to++ = '%';
            *to++ = digits[(uint8_t)from[i] >> 4];
            *to++ = digits[(uint8_t)from[i] & 15];
        }
    }
    *to = '\0';
    ret->size += size;
    return CAIRN_OK;
}

int cairn_percent_byte(struct cairn_view text, size_t at) {
    const char *digits = (const char *)text.data + at + 1;
    if (text.size - at < 3) return -1;
    int high = cairn_hex_digit(digits[0]), low = cairn_hex_digit(digits[1]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

enum cairn_code cairn_percent_decode(struct cairn_view text, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    const char *from = text.data;
    CAIRN_TRY(cairn_buf_reserve(ret, text.size, err));
    size_t size = ret->size;
    for (size_t i = 0; i < text.size; i++) {
        char c = from[i];
        if (c == '%') {
            int byte = cairn_percent_byte(text, i);
            if (byte < 0) {
                ret->data[ret->size] = '\0';
                return cairn_fail(err, CAIRN_INVALID, "the %% at byte %zu is not an escape", i);
            }
            c = (char)byte;
            i += 2;
        }
        if (c == '\0') {
            ret->data[ret->size] = '\0';
            return cairn_fail(err, CAIRN_INVALID, "byte %zu is a NUL", i);
        }
        ret->data[size++] = c;
    }
    ret->data[size] = '\0';
    ret->size = size;
    return CAIRN_OK;
}

/* ---- URLs ---- */

bool cairn_url_split(const char *url, struct cairn_url *ret) {
    const char *mark = strstr(url, "://");
    if (!mark || mark == url) return false;
    const char *host = mark + 3;
    size_t size = strcspn(host, "/?#");
    if (!size) return false;
    *ret = (struct cairn_url){.scheme = {url, (size_t)(mark - url)},
                              .host = {host, size},
                              .origin = {url, (size_t)(host + size - url)},
                              .path = host + size};
    return true;
}

bool cairn_url_split_http(const char *url, struct cairn_url *ret) {
    struct cairn_url parts;
    if (!cairn_url_split(url, &parts)) return false;
    if (!cairn_url_is(&parts, "http") && !cairn_url_is(&parts, "https")) return false;
    *ret = parts;
    return true;
}

bool cairn_url_is(const struct cairn_url *url, const char *scheme) {
    return url->scheme.size == strlen(scheme) &&
           !memcmp(url->scheme.data, scheme, url->scheme.size);
}

struct cairn_view cairn_url_host(const struct cairn_url *url) {
    const char *port = cairn_url_is(url, "http") ? ":80" : ":443";
    size_t size = url->host.size, port_size = strlen(port);
    const char *end = (const char *)url->host.data + size;
    bool own = size > port_size && !memcmp(end - port_size, port, port_size);
    return (struct cairn_view){url->host.data, own ? size - port_size : size};
}
