/* SPDX-License-Identifier: Apache-2.0 */
/* Well-formedness as in table 3-7 of the Unicode standard. */
#include "common/utf8.h"

#define CHARACTER_BYTES_MAX 4
#define DOTS "..."
#define DOTS_BYTES (sizeof(DOTS) - 1)

size_t cairn_utf8_size(const char *at, size_t left) {
    const unsigned char *p = (const unsigned char *)at;
    if (!left) return 0;
    if (p[0] < 0x80) return 1;
    size_t size = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    /* 0x80-0xc1 never start one; after 0xf4 lies nothing of Unicode. */
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

bool cairn_utf8_valid(struct cairn_view text) {
    const char *bytes = text.data;
    for (size_t i = 0; i < text.size;) {
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
    return continues(text[border]) ? at : border; /* it is no UTF-8, so one place is as good */
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
    while (continues(from[tail])) tail++; /* the NUL ends it */
    memcpy(to, from, head);
    memcpy(to + head, DOTS, DOTS_BYTES);
    memcpy(to + head + DOTS_BYTES, from + tail, size - tail + 1);
}

struct cairn_short cairn_short(const char *name) {
    struct cairn_short ret;
    cairn_utf8_shorten(ret.text, sizeof(ret.text), name);
    return ret;
}
