/* SPDX-License-Identifier: Apache-2.0 */
/* Five pickles in a row (magic, protocol, machine, object, keys of storages), then the storages. */
#include "formats/torch_legacy.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "formats/torch_inside.h"

#define FIRST_WINDOW_BYTES CAIRN_MIB
#define STORAGES_MAX 16000000
#define PROTOCOL 1001

/* 0x1950a86a20f9469cfc6c, as Python keeps it: lowest byte first. */
static const uint8_t magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

/* The same as protocols 0 and 1 write it. */
static const char magic_text[] = "L119547037146038801333356L\n";

/* PROTO, from protocol 4 on FRAME with its length, then LONG1 of ten bytes; before protocol 2 a
 * line of digits. */
bool cairn_torch_legacy_begins(struct cairn_view first) {
    const uint8_t *bytes = first.data;
    if (first.size < 14) return false;
    if (memcmp(bytes, magic_text, cairn_min_u64(first.size, sizeof magic_text - 1)) == 0)
        return true;
    size_t at = bytes[2] == 0x95 ? 11 : 2;
    if (bytes[0] != 0x80 || bytes[at] != 0x8a || bytes[at + 1] != sizeof magic) return false;
    at += 2;
    return memcmp(bytes + at, magic, cairn_min_u64(first.size - at, sizeof magic)) == 0;
}

static int by_key(const void *a, const void *b) {
    const struct cairn_view x = ((const struct cairn_torch_legacy_storage *)a)->key,
                            y = ((const struct cairn_torch_legacy_storage *)b)->key;
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

const struct cairn_torch_legacy_storage *cairn_torch_legacy_find(const struct cairn_torch *file,
                                                                 struct cairn_view key) {
    const struct cairn_torch_legacy_storage wanted = {.key = key};
    if (file->storage_count == 0) return NULL;
    return bsearch(&wanted, file->storages, file->storage_count, sizeof wanted, by_key);
}

/* ---- the pickles ---- */

static enum cairn_code read_next(struct cairn_view bytes, bool strict, size_t *at,
                                 struct cairn_pickle *ret, struct cairn_error *err) {
    struct cairn_view rest = {(const char *)bytes.data + *at, bytes.size - *at};
    if (rest.size > CAIRN_PICKLE_BYTES_MAX) rest.size = CAIRN_PICKLE_BYTES_MAX;
    CAIRN_TRY(cairn_torch_read_pickle(rest, strict, ret, err));
    *at += ret->read_bytes;
    return CAIRN_OK;
}

/* A small pickle that is looked at once: an integer, or a dict with an entry. */
static enum cairn_code read_integer(struct cairn_view bytes, size_t *at, int64_t *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO(pickle) pickle = {0};
    CAIRN_TRY(read_next(bytes, true, at, &pickle, err));
    const struct cairn_pickle_value *value = cairn_pickle_at(&pickle, pickle.root);
    *ret = value->kind == CAIRN_PICKLE_INTEGER ? value->integer : -1;
    return CAIRN_OK;
}
static enum cairn_code read_machine(struct cairn_view bytes, size_t *at, struct cairn_error *err) {
    CAIRN_AUTO(pickle) pickle = {0};
    cairn_pickle_ref little;
    CAIRN_TRY(read_next(bytes, true, at, &pickle, err));
    if (cairn_pickle_find(&pickle, pickle.root, "little_endian", &little) &&
        cairn_pickle_at(&pickle, little)->kind == CAIRN_PICKLE_BOOL &&
        !cairn_pickle_at(&pickle, little)->truth)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it was written on a big-endian machine");
    return CAIRN_OK;
}

static enum cairn_code read_pickles(struct cairn_torch *file, struct cairn_view bytes,
                                    struct cairn_pickle *keys, size_t *ret_at,
                                    struct cairn_error *err) {
    int64_t number;
    *ret_at = 0;
    CAIRN_TRY(read_integer(bytes, ret_at, &number, err)); /* the magic: longer than 64 bits */
    CAIRN_TRY(read_integer(bytes, ret_at, &number, err));
    if (number != PROTOCOL)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "torch file protocol %" PRId64 ", %d is known",
                          number, PROTOCOL);
    CAIRN_TRY(read_machine(bytes, ret_at, err));
    CAIRN_TRY(read_next(bytes, file->strict, ret_at, &file->values, err));
    return read_next(bytes, true, ret_at, keys, err);
}

/* The pickles' length stands nowhere. The window grows until they fit, at most to the file. */
static enum cairn_code load_pickles(struct cairn_torch *file, struct cairn_pickle *keys,
                                    size_t *ret_at, struct cairn_error *err) {
    uint64_t most = file->input->size_bytes, window = FIRST_WINDOW_BYTES;
    if (most > 2 * CAIRN_PICKLE_BYTES_MAX) most = 2 * CAIRN_PICKLE_BYTES_MAX;
    file->pickled.limit = (size_t)most + 1;
    for (;; window *= 8) {
        if (window > most) window = most;
        struct cairn_buf *bytes = &file->pickled;
        CAIRN_TRY(cairn_buf_reserve(bytes, (size_t)window - bytes->size, err));
        CAIRN_TRY(cairn_input_read(file->input, bytes->size, bytes->data + bytes->size,
                                   (size_t)window - bytes->size, err));
        bytes->size = (size_t)window;
        enum cairn_code code = read_pickles(file, cairn_buf_view(bytes), keys, ret_at, err);
        if (code != CAIRN_INVALID || window == most) return code;
        cairn_pickle_release(&file->values);
    }
}

/* ---- the storages ---- */

static enum cairn_code add_storage(struct cairn_torch *file, size_t *capacity,
                                   const struct cairn_torch_storage_id *id,
                                   struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(file->storages, file->storage_count, *capacity, STORAGES_MAX,
                               "storages of a torch file", err));
    unsigned bits = cairn_dtype_bits(id->dtype);
    file->storages[file->storage_count++] = (struct cairn_torch_legacy_storage){
        .key = id->key, .width = bits ? bits / 8 : 1, .elements = id->elements};
    return CAIRN_OK;
}

/* Which storages the object refers to: each id once, however many tensors share it. */
static enum cairn_code list_storages(struct cairn_torch *file, struct cairn_error *err) {
    size_t capacity = 0, kept = 0;
    for (size_t i = 0; i < file->values.count; i++) {
        struct cairn_torch_storage_id id;
        if (file->values.values[i].kind != CAIRN_PICKLE_PERSISTENT) continue;
        CAIRN_TRY(cairn_torch_storage_id(&file->values, (cairn_pickle_ref)i, &id, err));
        CAIRN_TRY(add_storage(file, &capacity, &id, err));
    }
    struct cairn_torch_legacy_storage *all = file->storages;
    if (file->storage_count) qsort(all, file->storage_count, sizeof *all, by_key);
    for (size_t i = 0; i < file->storage_count; i++) {
        bool again = kept && by_key(&all[kept - 1], &all[i]) == 0;
        if (again &&
            (all[kept - 1].width != all[i].width || all[kept - 1].elements != all[i].elements))
            return cairn_fail(err, CAIRN_INVALID, "storage %.*s is described in two ways",
                              (int)all[i].key.size, (const char *)all[i].key.data);
        if (!again) all[kept++] = all[i];
    }
    file->storage_count = kept;
    return CAIRN_OK;
}

/* The storage of one key: its length at `*at`, its bytes behind; `*at` is stepped past them. */
static enum cairn_code place(struct cairn_torch *file, struct cairn_view key, uint64_t *at,
                             struct cairn_error *err) {
    struct cairn_torch_legacy_storage *storage =
        (struct cairn_torch_legacy_storage *)(uintptr_t)cairn_torch_legacy_find(file, key);
    char length[8];
    uint64_t bytes;
    if (!storage || storage->placed)
        return cairn_fail(err, CAIRN_INVALID, "storage %.*s %s", (int)key.size,
                          (const char *)key.data,
                          storage ? "is there twice" : "belongs to no tensor");
    CAIRN_TRY(cairn_input_read(file->input, *at, length, sizeof length, err));
    if (cairn_load_u64le(length) != storage->elements ||
        cairn_mul_overflows(storage->elements, (uint64_t)storage->width, &bytes) ||
        bytes > file->input->size_bytes - *at - sizeof length)
        return cairn_fail(
            err, CAIRN_INVALID,
            "storage %.*s of %" PRIu64 " elements has %" PRIu64 " in the file, or leaves it",
            (int)key.size, (const char *)key.data, storage->elements, cairn_load_u64le(length));
    storage->offset_bytes = *at + sizeof length;
    storage->placed = true;
    *at = storage->offset_bytes + bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_torch_legacy_open(struct cairn_torch *file, struct cairn_error *err) {
    CAIRN_AUTO(pickle) keys = {0};
    size_t pickled = 0;
    file->legacy = true;
    CAIRN_TRY(load_pickles(file, &keys, &pickled, err));
    CAIRN_TRY(list_storages(file, err));
    const struct cairn_pickle_value *list = cairn_pickle_at(&keys, keys.root);
    uint64_t at = pickled;
    if (list->kind != CAIRN_PICKLE_LIST)
        return cairn_fail(err, CAIRN_INVALID, "the keys of the storages are no list");
    for (uint32_t i = 0; i < list->count; i++) {
        const struct cairn_pickle_value *key = cairn_pickle_at(&keys, list->items[i]);
        if (key->kind != CAIRN_PICKLE_TEXT)
            return cairn_fail(err, CAIRN_INVALID, "key %u of the storages is no text", i);
        CAIRN_TRY(place(file, key->text, &at, err));
    }
    return CAIRN_OK;
}
