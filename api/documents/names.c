/* SPDX-License-Identifier: Apache-2.0 */
/* An open-addressing hash table, at most half full. Shard names use two: names, and folders. */
#include "api/documents/names.h"

#include <stdlib.h>

#define BLOCK_BYTES (64 * CAIRN_KIB)
#define NAMES_MAX (UINT32_C(1) << 31)

struct cairn_names_block {
    struct cairn_names_block *next;
    size_t used, size;
    char bytes[];
};

int cairn_view_compare(struct cairn_view a, struct cairn_view b) {
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common ? memcmp(a.data, b.data, common) : 0;
    if (order) return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

void cairn_names_release(struct cairn_names *names) {
    while (names->blocks) {
        struct cairn_names_block *next = names->blocks->next;
        free(names->blocks);
        names->blocks = next;
    }
    free(names->views);
    free(names->hashes);
    free(names->slots);
    *names = (struct cairn_names){.copy = names->copy};
}

/* FNV-1a over 8 bytes at a time, finished with a multiply and shift. Names come from the job's own
 * code; a bad case only costs time. */
static uint64_t hash_of(struct cairn_view name) {
    const uint8_t *at = name.data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ name.size;
    size_t left = name.size;
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (; left > 0; at++, left--) hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    hash ^= hash >> 32;
    return hash * UINT64_C(0xd6e8feb86659fd93) ^ hash >> 29;
}

static void slot_insert(struct cairn_names *names, uint32_t number) {
    uint64_t at = names->hashes[number] & (names->slot_count - 1);
    while (names->slots[at]) at = (at + 1) & (names->slot_count - 1);
    names->slots[at] = number + 1;
}

static enum cairn_code grow(struct cairn_names *names, struct cairn_error *err) {
    if (names->capacity >= NAMES_MAX) return cairn_fail(err, CAIRN_TOO_LARGE, "too many names");
    uint32_t capacity = names->capacity ? names->capacity * 2 : 64;
    struct cairn_view *views = realloc(names->views, capacity * sizeof *views);
    if (views) names->views = views;
    uint64_t *hashes = realloc(names->hashes, capacity * sizeof *hashes);
    if (hashes) names->hashes = hashes;
    uint32_t *slots = calloc((size_t)capacity * 2, sizeof *slots);
    if (!views || !hashes || !slots) {
        free(slots);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %u names", capacity);
    }
    free(names->slots);
    names->slots = slots;
    names->slot_count = (uint64_t)capacity * 2;
    names->capacity = capacity;
    for (uint32_t i = 0; i < names->count; i++) slot_insert(names, i);
    return CAIRN_OK;
}

static enum cairn_code keep(struct cairn_names *names, struct cairn_view name,
                            struct cairn_view *ret, struct cairn_error *err) {
    struct cairn_names_block *block = names->blocks;
    if (!block || block->size - block->used < name.size) {
        size_t size = name.size > BLOCK_BYTES ? name.size : BLOCK_BYTES;
        block = malloc(sizeof *block + size);
        if (!block) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
        *block = (struct cairn_names_block){.next = names->blocks, .size = size};
        names->blocks = block;
    }
    char *to = block->bytes + block->used;
    if (name.size) memcpy(to, name.data, name.size);
    block->used += name.size;
    *ret = (struct cairn_view){to, name.size};
    return CAIRN_OK;
}

static bool find(const struct cairn_names *names, struct cairn_view name, uint64_t hash,
                 uint32_t *ret_number) {
    if (!names->slot_count) return false;
    uint64_t mask = names->slot_count - 1;
    for (uint64_t at = hash & mask; names->slots[at]; at = (at + 1) & mask) {
        uint32_t number = names->slots[at] - 1;
        if (names->hashes[number] != hash) continue;
        if (cairn_view_compare(names->views[number], name) != 0) continue;
        *ret_number = number;
        return true;
    }
    return false;
}

bool cairn_names_find(const struct cairn_names *names, struct cairn_view name,
                      uint32_t *ret_number) {
    return find(names, name, hash_of(name), ret_number);
}

bool cairn_names_has(const struct cairn_names *names, struct cairn_view name) {
    uint32_t number;
    return cairn_names_find(names, name, &number);
}

enum cairn_code cairn_names_add(struct cairn_names *names, struct cairn_view name,
                                uint32_t *ret_number, struct cairn_error *err) {
    if (names->count == names->capacity) CAIRN_TRY(grow(names, err));
    uint64_t hash = hash_of(name);
    if (find(names, name, hash, ret_number)) return CAIRN_OK;
    struct cairn_view kept = name;
    if (names->copy) CAIRN_TRY(keep(names, name, &kept, err));
    names->views[names->count] = kept;
    names->hashes[names->count] = hash;
    slot_insert(names, names->count);
    *ret_number = names->count++;
    return CAIRN_OK;
}

static int order_by_name(const void *a, const void *b, void *views) {
    const struct cairn_view *all = views;
    return cairn_view_compare(all[*(const uint32_t *)a], all[*(const uint32_t *)b]);
}

void cairn_names_order(const struct cairn_names *names, uint32_t *ret_order, uint32_t *ret_rank) {
    for (uint32_t i = 0; i < names->count; i++) ret_order[i] = i;
    if (names->count)
        qsort_r(ret_order, names->count, sizeof *ret_order, order_by_name, names->views);
    for (uint32_t i = 0; i < names->count; i++) ret_rank[ret_order[i]] = i;
}

/* ---- names of shards ---- */

bool cairn_shard_name_folder(struct cairn_view name, struct cairn_view *folder) {
    const char *text = name.data;
    size_t from = folder->size ? folder->size + 1 : 0;
    const char *slash = from < name.size ? memchr(text + from, '/', name.size - from) : NULL;
    if (!slash) return false;
    *folder = (struct cairn_view){text, (size_t)(slash - text)};
    return true;
}

void cairn_shard_names_release(struct cairn_shard_names *set) {
    cairn_names_release(&set->names);
    cairn_names_release(&set->folders);
}

static enum cairn_code refuse(struct cairn_view folder, struct cairn_view name,
                              struct cairn_error *err) {
    bool same = folder.size == name.size; /* the name is a folder of an earlier shard */
    return cairn_fail(err, CAIRN_INVALID,
                      same ? "shard \"%.*s\" cannot stand beside shards of the folder \"%.*s\""
                           : "shard \"%.*s\" cannot be the folder of shard \"%.*s\"",
                      (int)folder.size, (const char *)folder.data, (int)name.size,
                      (const char *)name.data);
}

enum cairn_code cairn_shard_names_add(struct cairn_shard_names *set, struct cairn_view name,
                                      struct cairn_error *err) {
    uint32_t number = 0;
    set->names.copy = set->folders.copy = true;
    if (cairn_names_has(&set->folders, name)) return refuse(name, name, err);
    struct cairn_view folder = {name.data, 0};
    while (cairn_shard_name_folder(name, &folder))
        if (cairn_names_has(&set->names, folder)) return refuse(folder, name, err);
    CAIRN_TRY(cairn_names_add(&set->names, name, &number, err));
    folder = (struct cairn_view){name.data, 0};
    while (cairn_shard_name_folder(name, &folder))
        CAIRN_TRY(cairn_names_add(&set->folders, folder, &number, err));
    return CAIRN_OK;
}
