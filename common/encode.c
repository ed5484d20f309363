/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder that finds a wrong byte removes what it has appended, so a refusal changes nothing. */
#include "common/encode.h"

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
    if (text.size / 2 != size || text.size % 2) {
        return cairn_fail(err, CAIRN_INVALID, "%zu hexadecimal digits expected, %zu bytes found",
                          2 * size, text.size);
    }
    for (size_t i = 0; i < text.size; i++) {
        if (hex_value(digits[i]) == INVALID) {
            return cairn_fail(err, CAIRN_INVALID, "byte %zu is not a lower-case hexadecimal digit",
                              i);
        }
    }
    uint8_t *to = ret_data;
    for (size_t i = 0; i < size; i++) {
        to[i] = (uint8_t)(hex_value(digits[2 * i]) << 4 | hex_value(digits[2 * i + 1]));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_base64_encode(struct cairn_view data, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = data.data;
    if (data.size > SIZE_MAX / 4 * 3 - 3) {
        return cairn_fail(err, CAIRN_TOO_LARGE, "%zu bytes are too many to encode", data.size);
    }
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

/* Four digits into up to three bytes; returns how many, 0 when they are not what was encoded. */
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
        if (ret_bytes[i]) return 0; /* bits that the encoder leaves zero */
    }
    return 3 - padding;
}

enum cairn_code cairn_base64_decode(struct cairn_view text, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    const char *digits = text.data;
    if (text.size % 4) {
        return cairn_fail(err, CAIRN_INVALID, "base64 of %zu bytes is not a multiple of 4",
                          text.size);
    }
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
    for (size_t i = 0; i < text.size; i++) {
        size += is_unreserved(from[i]) || (keep_slash && from[i] == '/') ? 1 : 3;
    }
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
