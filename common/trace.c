/* SPDX-License-Identifier: Apache-2.0 */
/* Every call reads random bytes from the kernel: no state that a fork could repeat. A traceparent
 * is version "-" trace-id "-" parent-id "-" trace-flags. */
#include "common/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/text.h"

void cairn_random(void *ret_data, size_t size) {
    uint8_t *at = ret_data;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno == EINTR) continue;
        CAIRN_PROMISE(got > 0, memset(at, 0, size); return );
        at += got;
        size -= (size_t)got;
    }
}

static void uuid_text(const uint8_t bytes[16], unsigned version,
                      char ret_text[CAIRN_UUID_TEXT_BYTES]) {
    uint8_t marked[16];
    memcpy(marked, bytes, sizeof(marked));
    marked[6] = (uint8_t)((marked[6] & 0x0f) | version << 4);
    marked[8] = (uint8_t)((marked[8] & 0x3f) | 0x80);
    char hex[33];
    cairn_hex_encode(marked, sizeof(marked), hex);
    size_t to = 0;
    for (size_t from = 0; from < 32; from++) {
        if (from == 8 || from == 12 || from == 16 || from == 20) ret_text[to++] = '-';
        ret_text[to++] = hex[from];
    }
    ret_text[to] = '\0';
}

void cairn_uuid_random(char ret_text[CAIRN_UUID_TEXT_BYTES]) {
    uint8_t bytes[16];
    cairn_random(bytes, sizeof(bytes));
    uuid_text(bytes, 4, ret_text);
}

void cairn_uuid_from_digest(const uint8_t digest[16], char ret_text[CAIRN_UUID_TEXT_BYTES]) {
    uuid_text(digest, 8, ret_text);
}

bool cairn_uuid_text_valid(struct cairn_view text) {
    const char *data = text.data;
    if (text.size != CAIRN_UUID_TEXT_BYTES - 1) return false;
    for (size_t i = 0; i < text.size; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        bool digit = (data[i] >= '0' && data[i] <= '9') || (data[i] >= 'a' && data[i] <= 'f');
        if (dash ? data[i] != '-' : !digit) return false;
    }
    return true;
}

/* ---- traces ---- */

#define ID_DIGITS 32
#define PARENT_DIGITS 16
#define PARENT_AT 36
#define FLAGS_AT 53
#define TEXT_BYTES 55

static _Thread_local const struct cairn_trace *current;

/* Lower-case digits only, as W3C Trace Context requires. */
static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool all_hex(const char *text, size_t size, bool *ret_zero) {
    *ret_zero = true;
    for (size_t i = 0; i < size; i++) {
        if (digit_of(text[i]) < 0) return false;
        *ret_zero = *ret_zero && text[i] == '0';
    }
    return true;
}

bool cairn_trace_parse(struct cairn_view text, struct cairn_trace *ret) {
    const char *at = text.data;
    bool zero = false, no_trace = false, no_parent = false;
    *ret = (struct cairn_trace){0};
    if (text.size < TEXT_BYTES || at[2] != '-' || at[35] != '-' || at[52] != '-') return false;
    if (!all_hex(at, 2, &zero) || !memcmp(at, "ff", 2)) return false;
    /* Version 00 ends there; later versions append fields after a dash, which are ignored. */
    if (text.size > TEXT_BYTES && (zero || at[TEXT_BYTES] != '-')) return false;
    if (!all_hex(at + 3, ID_DIGITS, &no_trace) || no_trace) return false;
    if (!all_hex(at + PARENT_AT, PARENT_DIGITS, &no_parent) || no_parent) return false;
    if (!all_hex(at + FLAGS_AT, 2, &zero)) return false;
    memcpy(ret->id, at + 3, ID_DIGITS);
    memcpy(ret->parent, at + PARENT_AT, PARENT_DIGITS);
    ret->flags = (uint8_t)(16 * digit_of(at[FLAGS_AT]) + digit_of(at[FLAGS_AT + 1]));
    return true;
}

void cairn_trace_of_environment(char ret[CAIRN_TRACE_TEXT_BYTES]) {
    const char *text = getenv("TRACEPARENT");
    struct cairn_trace trace;
    ret[0] = '\0';
    if (text && cairn_trace_parse(cairn_view_of(text), &trace))
        snprintf(ret, CAIRN_TRACE_TEXT_BYTES, "00-%s-%s-%02x", trace.id, trace.parent, trace.flags);
}

_Static_assert(PARENT_DIGITS <= ID_DIGITS, "digits are drawn at once");

/* Random hexadecimal digits, not all 0; at most ID_DIGITS. */
static void random_digits(char *ret, size_t count) {
    uint8_t bytes[ID_DIGITS / 2];
    cairn_random(bytes, sizeof(bytes));
    bytes[0] |= 1;
    for (size_t i = 0; i < count / 2; i++) snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

void cairn_trace_new(struct cairn_trace *ret) {
    *ret = (struct cairn_trace){0};
    random_digits(ret->id, ID_DIGITS);
    random_digits(ret->parent, PARENT_DIGITS);
}

void cairn_trace_of_version(const char *version, struct cairn_trace *ret) {
    size_t count = 0;
    *ret = (struct cairn_trace){0};
    if (strncmp(version, "ckpt_", 5)) return;
    for (const char *c = version + 5; *c && count <= ID_DIGITS; c++) {
        if (*c == '-') continue;
        if (digit_of(*c) < 0 || count == ID_DIGITS) count = ID_DIGITS + 1;
        if (count < ID_DIGITS) ret->id[count] = *c;
        count++;
    }
    if (count != ID_DIGITS) {
        *ret = (struct cairn_trace){0};
        return;
    }
    random_digits(ret->parent, PARENT_DIGITS);
}

void cairn_trace_set(const struct cairn_trace *trace) {
    current = trace && trace->id[0] ? trace : NULL;
}

const struct cairn_trace *cairn_trace_get(void) {
    return current;
}

void cairn_trace_header(char ret[CAIRN_TRACE_HEADER_BYTES]) {
    char own[PARENT_DIGITS + 1];
    ret[0] = '\0';
    if (!current) return;
    random_digits(own, PARENT_DIGITS);
    /* Version 00 defines no flag but "sampled". */
    snprintf(ret, CAIRN_TRACE_HEADER_BYTES, "traceparent: 00-%s-%s-%02x", current->id, own,
             current->flags & CAIRN_TRACE_SAMPLED);
}
