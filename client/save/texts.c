/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks in a list; what is larger than one gets a chunk of its own. */
#include "client/save/texts.h"

#include <stdlib.h>

#define CHUNK_BYTES (64 * CAIRN_KIB)

struct cairn_client_text {
    struct cairn_client_text *before;
    size_t used, capacity;
    uint64_t data[]; /* aligned as such */
};

static struct cairn_client_text *chunk_with(struct cairn_client_texts *texts, size_t bytes) {
    struct cairn_client_text *newest = texts->newest;
    if (newest && bytes <= newest->capacity - newest->used) return newest;
    size_t capacity = (size_t)cairn_max_u64(CHUNK_BYTES, bytes);
    struct cairn_client_text *made = malloc(sizeof *made + capacity);
    if (!made) return NULL;
    *made = (struct cairn_client_text){.before = newest, .capacity = capacity};
    return texts->newest = made;
}

void *cairn_client_texts_keep_bytes(struct cairn_client_texts *texts, const void *data,
                                    size_t bytes) {
    size_t room = (size_t)cairn_round_up(bytes, sizeof(uint64_t));
    struct cairn_client_text *chunk = chunk_with(texts, room);
    if (!chunk) return NULL;
    uint8_t *at = (uint8_t *)chunk->data + chunk->used;
    chunk->used += room;
    memcpy(at, data, bytes);
    return at;
}

char *cairn_client_texts_keep(struct cairn_client_texts *texts, const char *text) {
    return cairn_client_texts_keep_bytes(texts, text, strlen(text) + 1);
}

void cairn_client_texts_release(struct cairn_client_texts *texts) {
    while (texts->newest) {
        struct cairn_client_text *before = texts->newest->before;
        free(texts->newest);
        texts->newest = before;
    }
}
