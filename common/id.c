/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes come from the kernel at every call; nothing is kept that a fork could repeat. */
#include "common/id.h"

#include <sys/random.h>

#include "common/encode.h"

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
