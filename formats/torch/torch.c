/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a torch file and describes its tensors; every number is checked against the file. */
#include "formats/torch/torch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/torch/torch_ranks.h"

#define PICKLE_ENTRY "/data.pkl"
#define FIRST_BYTES 16
#define WRAPPERS_MAX 8 /* nested parameters */

/* A storage, from its persistent id. */
struct storage_id {
    struct cairn_view key;
    unsigned dtype; /* CAIRN_DTYPE_NONE: bytes */
    uint64_t elements;
};

static bool is_text(struct cairn_view view, const char *text) {
    return view.size == strlen(text) && memcmp(view.data, text, view.size) == 0;
}

static const struct cairn_pickle_value *
item_at(const struct cairn_pickle *values, const struct cairn_pickle_value *of, uint32_t index) {
    bool has =
        (of->kind == CAIRN_PICKLE_TUPLE || of->kind == CAIRN_PICKLE_LIST) && index < of->count;
    return cairn_pickle_at(values, has ? of->items[index] : 0);
}

static const struct cairn_torch_name *name_of(const struct cairn_pickle_value *value) {
    return value->kind == CAIRN_PICKLE_GLOBAL ? cairn_torch_name_at(value->global) : NULL;
}

static cairn_pickle_ref ref_of(const struct cairn_pickle *values,
                               const struct cairn_pickle_value *value) {
    return (cairn_pickle_ref)(value - values->values);
}

/* ("storage", class, key, location, elements[, view of another storage]) */
static enum cairn_code storage_id(const struct cairn_pickle *values, cairn_pickle_ref ref,
                                  struct storage_id *ret, struct cairn_error *err) {
    const struct cairn_pickle_value *value = cairn_pickle_at(values, ref);
    const struct cairn_pickle_value *id = cairn_pickle_at(values, value->arguments);
    const struct cairn_pickle_value *kind = item_at(values, id, 0), *key = item_at(values, id, 2);
    const struct cairn_torch_name *type = name_of(item_at(values, id, 1));
    const struct cairn_pickle_value *elements = item_at(values, id, 4);
    if (value->kind == CAIRN_PICKLE_PERSISTENT && id->kind == CAIRN_PICKLE_TEXT)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "written with pickle protocol 0, which torch.load does not take either");
    if (value->kind != CAIRN_PICKLE_PERSISTENT || id->kind != CAIRN_PICKLE_TUPLE ||
        kind->kind != CAIRN_PICKLE_TEXT || !is_text(kind->text, "storage") || !type ||
        type->meaning != CAIRN_TORCH_STORAGE || key->kind != CAIRN_PICKLE_TEXT ||
        key->text.size > 256 || elements->kind != CAIRN_PICKLE_INTEGER || elements->integer < 0)
        return cairn_fail(err, CAIRN_INVALID, "a storage is not described as torch does it");
    if (item_at(values, id, 5)->kind != CAIRN_PICKLE_NONE)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "storage %.*s is a view of another storage",
                          (int)key->text.size, (const char *)key->text.data);
    *ret = (struct storage_id){
        .key = key->text, .dtype = type->dtype, .elements = (uint64_t)elements->integer};
    return CAIRN_OK;
}

/* ---- the form before 1.6: magic, protocol, machine, object, storage keys; storages ---- */

struct cairn_torch_legacy_storage {
    struct cairn_view key;
    unsigned width; /* of an element, in bytes */
    uint64_t elements, offset_bytes;
    bool placed;
};

#define FIRST_WINDOW_BYTES CAIRN_MIB
#define STORAGES_MAX 16000000
#define PROTOCOL 1001

/* 0x1950a86a20f9469cfc6c as Python stores it: lowest byte first. */
static const uint8_t magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

/* As protocols 0 and 1 write it. */
static const char magic_text[] = "L119547037146038801333356L\n";

/* PROTO, FRAME from protocol 4 on, LONG1 of ten bytes; before protocol 2 a line of digits. */
static bool legacy_begins(struct cairn_view first) {
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

static const struct cairn_torch_legacy_storage *find_legacy(const struct cairn_torch *file,
                                                            struct cairn_view key) {
    const struct cairn_torch_legacy_storage wanted = {.key = key};
    if (file->storage_count == 0) return NULL;
    return bsearch(&wanted, file->storages, file->storage_count, sizeof wanted, by_key);
}

static enum cairn_code read_next(struct cairn_view bytes, bool strict, size_t *at,
                                 struct cairn_pickle *ret, struct cairn_error *err) {
    struct cairn_view rest = {(const char *)bytes.data + *at, bytes.size - *at};
    if (rest.size > CAIRN_PICKLE_BYTES_MAX) rest.size = CAIRN_PICKLE_BYTES_MAX;
    CAIRN_TRY(cairn_torch_read_pickle(rest, strict, ret, err));
    *at += ret->read_bytes;
    return CAIRN_OK;
}

/* Reads a small pickle: an integer, or a dict with an entry. */
static enum cairn_code read_integer(struct cairn_view bytes, size_t *at, int64_t *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO(pickle) pickle = {0};
    CAIRN_TRY(read_next(bytes, true, at, &pickle, err));
    const struct cairn_pickle_value *value = cairn_pickle_at(&pickle, pickle.root);
    *ret = value->kind == CAIRN_PICKLE_INTEGER ? value->integer : -1;
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
    CAIRN_AUTO(pickle) pickle = {0};
    cairn_pickle_ref little;
    CAIRN_TRY(read_next(bytes, true, ret_at, &pickle, err));
    if (cairn_pickle_find(&pickle, pickle.root, "little_endian", &little) &&
        cairn_pickle_at(&pickle, little)->kind == CAIRN_PICKLE_BOOL &&
        !cairn_pickle_at(&pickle, little)->truth)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it was written on a big-endian machine");
    CAIRN_TRY(read_next(bytes, file->strict, ret_at, &file->values, err));
    return read_next(bytes, true, ret_at, keys, err);
}

/* No length precedes the pickles: the window grows until they fit, at most to the whole file. */
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

/* Lists the storages of the object: each id once, however many tensors share it. */
static enum cairn_code list_storages(struct cairn_torch *file, struct cairn_error *err) {
    size_t capacity = 0, kept = 0;
    for (size_t i = 0; i < file->values.count; i++) {
        struct storage_id id;
        if (file->values.values[i].kind != CAIRN_PICKLE_PERSISTENT) continue;
        CAIRN_TRY(storage_id(&file->values, (cairn_pickle_ref)i, &id, err));
        CAIRN_TRY(CAIRN_ARRAY_ROOM(file->storages, file->storage_count, capacity, STORAGES_MAX,
                                   "storages of a torch file", err));
        unsigned bits = cairn_dtype_bits(id.dtype);
        file->storages[file->storage_count++] = (struct cairn_torch_legacy_storage){
            .key = id.key, .width = bits ? bits / 8 : 1, .elements = id.elements};
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

static enum cairn_code open_legacy(struct cairn_torch *file, struct cairn_error *err) {
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
        /* The file has the storage's length at `at`, then its bytes. */
        struct cairn_torch_legacy_storage *storage =
            (struct cairn_torch_legacy_storage *)(uintptr_t)find_legacy(file, key->text);
        char length[8];
        uint64_t bytes;
        if (!storage || storage->placed)
            return cairn_fail(err, CAIRN_INVALID, "storage %.*s %s", (int)key->text.size,
                              (const char *)key->text.data,
                              storage ? "is there twice" : "belongs to no tensor");
        CAIRN_TRY(cairn_input_read(file->input, at, length, sizeof length, err));
        if (cairn_load_u64le(length) != storage->elements ||
            cairn_mul_overflows(storage->elements, (uint64_t)storage->width, &bytes) ||
            bytes > file->input->size_bytes - at - sizeof length)
            return cairn_fail(err, CAIRN_INVALID,
                              "storage %.*s of %" PRIu64 " elements has %" PRIu64
                              " in the file, or leaves it",
                              (int)key->text.size, (const char *)key->text.data, storage->elements,
                              cairn_load_u64le(length));
        storage->offset_bytes = at + sizeof length;
        storage->placed = true;
        at = storage->offset_bytes + bytes;
    }
    return CAIRN_OK;
}

bool cairn_torch_begins(struct cairn_view first) {
    return cairn_zip_begins(first) || legacy_begins(first);
}

/* Finds the folder of all entries: data.pkl's. */
static enum cairn_code find_stem(struct cairn_torch *file, struct cairn_error *err) {
    size_t tail = strlen(PICKLE_ENTRY);
    for (size_t i = 0; i < file->zip.count; i++) {
        struct cairn_view name = file->zip.entries[i].name;
        const char *slash = memchr(name.data, '/', name.size);
        if (!slash || name.size - (size_t)(slash - (const char *)name.data) != tail ||
            memcmp(slash, PICKLE_ENTRY, tail) != 0)
            continue;
        size_t stem = name.size - tail;
        memcpy(file->stem, name.data, stem);
        file->stem[stem] = '\0';
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "a zip archive without NAME/data.pkl: torch.save did not write it");
}

static const struct cairn_zip_entry *find_entry(const struct cairn_torch *file, const char *folder,
                                                struct cairn_view key) {
    CAIRN_AUTO(buf) name = {0};
    if (cairn_buf_printf(&name, NULL, "%s/%s", file->stem, folder) != CAIRN_OK ||
        cairn_buf_append(&name, key.data, key.size, NULL) != CAIRN_OK)
        return NULL;
    return cairn_zip_find(&file->zip, cairn_buf_view(&name));
}

static enum cairn_code check_byte_order(struct cairn_torch *file, struct cairn_error *err) {
    const struct cairn_zip_entry *entry = find_entry(file, "", CAIRN_VIEW("byteorder"));
    CAIRN_AUTO(buf) order = {.limit = 64};
    if (!entry) return CAIRN_OK;
    CAIRN_TRY(cairn_zip_load(file->input, entry, &order, err));
    if (is_text(cairn_buf_view(&order), "little")) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED, "its byte order is not little-endian");
}

static enum cairn_code open_zip(struct cairn_torch *file, struct cairn_error *err) {
    CAIRN_TRY(cairn_zip_open(file->input, &file->zip, err));
    CAIRN_TRY(find_stem(file, err));
    CAIRN_TRY(check_byte_order(file, err));
    bool deflated = false;
    for (size_t i = 0; i < file->zip.count; i++) deflated |= file->zip.entries[i].deflated;
    if (deflated) CAIRN_TRY(cairn_unpacked_new(file->input, &file->zip, &file->unpacked, err));
    if (find_entry(file, "", CAIRN_VIEW("constants.pkl")))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "a TorchScript archive, a program and not a file of torch.save: save the "
                          "state_dict() of what torch.jit.load gives");
    const struct cairn_zip_entry *entry = find_entry(file, "", CAIRN_VIEW("data.pkl"));
    if (!entry) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the name of an entry");
    file->pickled.limit = CAIRN_PICKLE_BYTES_MAX + 1;
    CAIRN_TRY(cairn_zip_load(file->input, entry, &file->pickled, err));
    return cairn_torch_read_pickle(cairn_buf_view(&file->pickled), file->strict, &file->values,
                                   err);
}

enum cairn_code cairn_torch_open(const struct cairn_input *input, bool strict,
                                 struct cairn_torch *ret, struct cairn_error *err) {
    char first[FIRST_BYTES];
    struct cairn_view begin = {first, sizeof first};
    *ret = (struct cairn_torch){.input = input, .strict = strict};
    CAIRN_TRY(cairn_input_read(input, 0, first, sizeof first, err));
    enum cairn_code code;
    if (cairn_zip_begins(begin))
        code = open_zip(ret, err);
    else if (legacy_begins(begin))
        code = open_legacy(ret, err);
    else
        code = first[8] == '{'
                   ? cairn_fail(err, CAIRN_UNSUPPORTED,
                                "safetensors, where a file of torch.save is expected")
                   : cairn_fail(err, CAIRN_INVALID, "neither form of torch.save begins like this");
    if (code != CAIRN_OK) cairn_torch_release(ret);
    return code;
}

void cairn_torch_release(struct cairn_torch *file) {
    cairn_pickle_release(&file->values);
    cairn_buf_release(&file->pickled);
    cairn_unpacked_free(file->unpacked);
    cairn_zip_release(&file->zip);
    free(file->storages);
    *file = (struct cairn_torch){0};
}

/* Bytes of a storage in the file. */
static enum cairn_code storage_bytes(const struct cairn_torch *file, const struct storage_id *id,
                                     uint64_t *ret, struct cairn_error *err) {
    unsigned bits = cairn_dtype_bits(id->dtype);
    uint64_t width = bits ? bits / 8 : 1;
    if (cairn_mul_overflows(id->elements, width, ret))
        return cairn_fail(err, CAIRN_INVALID, "storage %.*s: its size cannot be represented",
                          (int)id->key.size, (const char *)id->key.data);
    if (file->legacy) {
        const struct cairn_torch_legacy_storage *storage = find_legacy(file, id->key);
        if (storage && storage->placed) return CAIRN_OK;
    } else {
        const struct cairn_zip_entry *entry = find_entry(file, "data/", id->key);
        if (entry && entry->size_bytes >= *ret) return CAIRN_OK;
        if (entry)
            return cairn_fail(err, CAIRN_INVALID,
                              "storage %.*s has %" PRIu64 " bytes where %" PRIu64
                              " are described: the file is damaged",
                              (int)id->key.size, (const char *)id->key.data, entry->size_bytes,
                              *ret);
    }
    return cairn_fail(err, CAIRN_INVALID, "storage %.*s is not in the file", (int)id->key.size,
                      (const char *)id->key.data);
}

const struct cairn_input *cairn_torch_data(const struct cairn_torch *file) {
    return file->unpacked ? cairn_unpacked_input(file->unpacked) : file->input;
}

enum cairn_code cairn_torch_need_ranges(const struct cairn_torch *file, struct cairn_error *err) {
    if (!file->unpacked) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "its zip is compressed, which is read of single files of torch.save and of "
                      "pytorch_model*.bin alone: unpack it and zip it again with -0");
}

enum cairn_code cairn_torch_storage_at(const struct cairn_torch *file,
                                       const struct cairn_torch_tensor *tensor,
                                       uint64_t *ret_offset, struct cairn_error *err) {
    if (file->legacy) {
        *ret_offset = find_legacy(file, tensor->storage)->offset_bytes;
        return CAIRN_OK;
    }
    const struct cairn_zip_entry *entry = find_entry(file, "data/", tensor->storage);
    if (!file->unpacked) return cairn_zip_data_at(file->input, entry, ret_offset, err);
    *ret_offset = cairn_unpacked_at(file->unpacked, entry);
    return CAIRN_OK;
}

bool cairn_torch_seal(const struct cairn_torch *file, const struct cairn_torch_tensor *tensor,
                      uint64_t offset, struct cairn_seal *ret, struct cairn_view *ret_name) {
    const struct cairn_zip_entry *entry =
        file->legacy ? NULL : find_entry(file, "data/", tensor->storage);
    if (!entry) return false;
    *ret = (struct cairn_seal){
        .crc32 = entry->crc32, .offset_bytes = offset, .size_bytes = entry->size_bytes};
    *ret_name = entry->name;
    return true;
}

enum cairn_code cairn_torch_seal_all(const struct cairn_torch *file, uint32_t input,
                                     struct cairn_seals *ret, struct cairn_error *err) {
    for (size_t i = 0; i < file->zip.count; i++) {
        const struct cairn_zip_entry *entry = &file->zip.entries[i];
        struct cairn_seal seal = {
            .input = input, .crc32 = entry->crc32, .size_bytes = entry->size_bytes};
        if (file->unpacked)
            seal.offset_bytes = cairn_unpacked_at(file->unpacked, entry);
        else
            CAIRN_TRY(cairn_zip_data_at(file->input, entry, &seal.offset_bytes, err));
        CAIRN_TRY(cairn_seals_add(ret, &seal, entry->name, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_torch_storage(const struct cairn_torch *file, cairn_pickle_ref ref,
                                    struct cairn_torch_storage *ret, struct cairn_error *err) {
    const struct cairn_pickle *values = &file->values;
    const struct cairn_pickle_value *value = cairn_pickle_at(values, ref);
    struct cairn_torch_tensor whole = {0};
    struct storage_id id;
    CAIRN_TRY(storage_id(values, ref, &id, err));
    CAIRN_TRY(storage_bytes(file, &id, &whole.storage_bytes, err));
    whole.storage = id.key;
    CAIRN_TRY(cairn_torch_storage_at(file, &whole, &ret->offset_bytes, err));
    ret->key = id.key;
    ret->type = name_of(item_at(values, cairn_pickle_at(values, value->arguments), 1));
    ret->elements = id.elements;
    ret->size_bytes = whole.storage_bytes;
    return CAIRN_OK;
}

struct call {
    enum cairn_torch_meaning meaning;
    const struct cairn_pickle_value *arguments;
};

/* False for a storage of unknown element type, whose bytes have no meaning. */
static bool has_storage(const struct cairn_pickle *values,
                        const struct cairn_pickle_value *arguments) {
    const struct cairn_pickle_value *storage = item_at(values, arguments, 0);
    if (storage->kind != CAIRN_PICKLE_PERSISTENT) return true; /* an error names the tensor later */
    const struct cairn_pickle_value *id = cairn_pickle_at(values, storage->arguments);
    return !cairn_pickle_unknown_at(values, item_at(values, id, 1));
}

/* The call that makes a tensor, without wrappers; whole: also a sharded tensor's only piece. */
static bool find_call_of(const struct cairn_torch *file, cairn_pickle_ref ref, bool whole,
                         struct call *ret) {
    const struct cairn_pickle *values = &file->values;
    const struct cairn_pickle_value *value = cairn_pickle_at(values, ref);
    if (value->kind != CAIRN_PICKLE_OBJECT) return false;
    const struct cairn_torch_name *name = name_of(cairn_pickle_at(values, value->callable));
    const struct cairn_pickle_value *arguments = cairn_pickle_at(values, value->arguments);
    for (int i = 0; name && i < WRAPPERS_MAX; i++) {
        *ret = (struct call){name->meaning, arguments};
        switch (name->meaning) {
        case CAIRN_TORCH_TENSOR_V2:
            return has_storage(values, arguments);
        case CAIRN_TORCH_TENSOR_V3:
            return has_storage(values, arguments) &&
                   !cairn_pickle_unknown_at(values, item_at(values, arguments, 6));
        case CAIRN_TORCH_FROM_TYPE:
            if (!name_of(item_at(values, arguments, 1))) return false; /* meaning unknown */
            if (name_of(item_at(values, arguments, 1))->meaning == CAIRN_TORCH_SHARDED)
                return whole && cairn_torch_sharded_whole(file, ref_of(values, value), &ref) &&
                       find_call_of(file, ref, false, ret);
            name = name_of(item_at(values, arguments, 0));
            arguments = item_at(values, arguments, 2);
            break;
        case CAIRN_TORCH_PARAMETER:
            value = item_at(values, arguments, 0);
            if (value->kind != CAIRN_PICKLE_OBJECT) return false;
            name = name_of(cairn_pickle_at(values, value->callable));
            arguments = cairn_pickle_at(values, value->arguments);
            break;
        default:
            return false;
        }
    }
    return false;
}

bool cairn_torch_is_tensor(const struct cairn_torch *file, cairn_pickle_ref ref) {
    struct call call;
    return find_call_of(file, ref, true, &call);
}

bool cairn_torch_is_plain_tensor(const struct cairn_torch *file, cairn_pickle_ref ref) {
    struct call call;
    return find_call_of(file, ref, false, &call);
}

bool cairn_torch_is_any_tensor(const struct cairn_torch *file, cairn_pickle_ref ref) {
    const struct cairn_torch_name *maker =
        cairn_torch_maker(&file->values, cairn_pickle_at(&file->values, ref));
    static const char rebuild[] = "_rebuild_"; /* sparse, quantised, of the meta device */
    return maker &&
           (maker->meaning == CAIRN_TORCH_TENSOR_V2 || maker->meaning == CAIRN_TORCH_TENSOR_V3 ||
            maker->meaning == CAIRN_TORCH_PARAMETER || maker->meaning == CAIRN_TORCH_FROM_TYPE ||
            strncmp(maker->name, rebuild, sizeof rebuild - 1) == 0);
}

struct reach {
    cairn_pickle_ref *stack;
    size_t count, capacity;
    uint8_t *seen;
};

static enum cairn_code reach_to(struct reach *reach, cairn_pickle_ref ref,
                                struct cairn_error *err) {
    if (reach->seen[ref]) return CAIRN_OK;
    reach->seen[ref] = 1;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(reach->stack, reach->count, reach->capacity, UINT32_MAX / 2,
                               "values of a file", err));
    reach->stack[reach->count++] = ref;
    return CAIRN_OK;
}

static enum cairn_code reach_from(struct reach *reach, const struct cairn_pickle_value *value,
                                  struct cairn_error *err) {
    if (value->kind >= CAIRN_PICKLE_TUPLE && value->kind != CAIRN_PICKLE_GLOBAL)
        for (uint32_t i = 0; i < value->count; i++)
            CAIRN_TRY(reach_to(reach, value->items[i], err));
    if (value->kind != CAIRN_PICKLE_OBJECT) return CAIRN_OK;
    CAIRN_TRY(reach_to(reach, value->callable, err));
    CAIRN_TRY(reach_to(reach, value->arguments, err));
    return reach_to(reach, value->state, err);
}

enum cairn_code cairn_torch_count_tensors(const struct cairn_torch *file, cairn_pickle_ref ref,
                                          uint8_t *seen, uint64_t *ret, struct cairn_error *err) {
    struct reach reach = {.seen = seen};
    enum cairn_code code = reach_to(&reach, ref, err);
    *ret = 0;
    while (code == CAIRN_OK && reach.count) {
        cairn_pickle_ref next = reach.stack[--reach.count];
        bool tensor = cairn_torch_is_tensor(file, next);
        *ret += tensor;
        if (!tensor) code = reach_from(&reach, cairn_pickle_at(&file->values, next), err);
    }
    free(reach.stack);
    return code;
}

static const struct cairn_pickle_value *sequence_items(const struct cairn_pickle *values,
                                                       const struct cairn_pickle_value *value) {
    if (value->kind != CAIRN_PICKLE_OBJECT) return value;
    return item_at(values, cairn_pickle_at(values, value->arguments), 0); /* torch.Size((2, 3)) */
}

static enum cairn_code read_numbers(const struct cairn_pickle *values,
                                    const struct cairn_pickle_value *list,
                                    uint64_t ret[CAIRN_DIMENSIONS_MAX], unsigned *ret_count,
                                    struct cairn_error *err) {
    list = sequence_items(values, list);
    if (list->kind != CAIRN_PICKLE_TUPLE && list->kind != CAIRN_PICKLE_LIST)
        return cairn_fail(err, CAIRN_INVALID, "shape or strides are no tuple");
    if (list->count > CAIRN_DIMENSIONS_MAX)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "%u dimensions, at most %d are supported",
                          list->count, CAIRN_DIMENSIONS_MAX);
    for (uint32_t d = 0; d < list->count; d++) {
        const struct cairn_pickle_value *number = item_at(values, list, d);
        if (number->kind != CAIRN_PICKLE_INTEGER || number->integer < 0)
            return cairn_fail(err, CAIRN_INVALID, "shape or strides hold a value that is no size");
        ret[d] = (uint64_t)number->integer;
    }
    *ret_count = list->count;
    return CAIRN_OK;
}

enum cairn_code cairn_torch_sizes(const struct cairn_torch *file, cairn_pickle_ref ref,
                                  uint64_t ret[CAIRN_DIMENSIONS_MAX], unsigned *ret_count,
                                  struct cairn_error *err) {
    return read_numbers(&file->values, cairn_pickle_at(&file->values, ref), ret, ret_count, err);
}

/* Bytes from the first to the end of the last element; false: overflow. */
static bool extent_of(const struct cairn_torch_tensor *tensor, uint64_t width, uint64_t *ret) {
    uint64_t last = 0, step;
    *ret = 0;
    if (tensor->elements == 0) return true;
    for (unsigned d = 0; d < tensor->dimension_count; d++)
        if (cairn_mul_overflows(tensor->shape[d] - 1, tensor->stride[d], &step) ||
            cairn_add_overflows(last, step, &last))
            return false;
    return !cairn_add_overflows(last, (uint64_t)1, &last) && !cairn_mul_overflows(last, width, ret);
}

static bool is_contiguous(const struct cairn_torch_tensor *tensor) {
    uint64_t expected = 1;
    for (unsigned d = tensor->dimension_count; d > 0 && tensor->elements; d--) {
        if (tensor->shape[d - 1] == 1) continue;
        if (tensor->stride[d - 1] != expected) return false;
        expected *= tensor->shape[d - 1];
    }
    return true;
}

/* A tensor's last dict argument changes the meaning of its bytes: unknown entries are refused. */
static enum cairn_code read_metadata(const struct cairn_pickle *values,
                                     const struct cairn_pickle_value *metadata,
                                     struct cairn_torch_tensor *ret, struct cairn_error *err) {
    if (metadata->kind == CAIRN_PICKLE_NONE) return CAIRN_OK;
    if (metadata->kind != CAIRN_PICKLE_DICT)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "its metadata is no dict");
    for (uint32_t i = 0; i + 2 <= metadata->count; i += 2) {
        const struct cairn_pickle_value *key = cairn_pickle_at(values, metadata->items[i]);
        const struct cairn_pickle_value *value = cairn_pickle_at(values, metadata->items[i + 1]);
        bool text = key->kind == CAIRN_PICKLE_TEXT;
        bool *known = text && is_text(key->text, "conj")  ? &ret->conjugated
                      : text && is_text(key->text, "neg") ? &ret->negated
                                                          : NULL;
        if (!known || value->kind != CAIRN_PICKLE_BOOL)
            return cairn_fail(err, CAIRN_UNSUPPORTED, "its metadata has an unknown entry: %.*s",
                              text ? (int)cairn_min_u64(key->text.size, 100) : 14,
                              text ? (const char *)key->text.data : "a key, no text");
        *known = value->truth;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_torch_tensor(const struct cairn_torch *file, cairn_pickle_ref ref,
                                   struct cairn_torch_tensor *ret, struct cairn_error *err) {
    const struct cairn_pickle *values = &file->values;
    struct storage_id id;
    struct call call;
    unsigned strides = 0;
    *ret = (struct cairn_torch_tensor){0};
    if (!find_call_of(file, ref, true, &call))
        return cairn_fail(err, CAIRN_INVALID, "not a tensor");
    const struct cairn_pickle_value *storage = item_at(values, call.arguments, 0);
    const struct cairn_pickle_value *offset = item_at(values, call.arguments, 1);
    CAIRN_TRY(storage_id(values, ref_of(values, storage), &id, err));
    CAIRN_TRY(storage_bytes(file, &id, &ret->storage_bytes, err));
    ret->storage = id.key;
    ret->dtype = id.dtype;
    if (call.meaning == CAIRN_TORCH_TENSOR_V3) {
        const struct cairn_torch_name *dtype = name_of(item_at(values, call.arguments, 6));
        ret->dtype = dtype && dtype->meaning == CAIRN_TORCH_DTYPE ? dtype->dtype : 0;
    }
    if (ret->dtype == CAIRN_DTYPE_NONE)
        return cairn_fail(err, CAIRN_INVALID, "a tensor without an element type");
    CAIRN_TRY(read_numbers(values, item_at(values, call.arguments, 2), ret->shape,
                           &ret->dimension_count, err));
    CAIRN_TRY(read_numbers(values, item_at(values, call.arguments, 3), ret->stride, &strides, err));
    if (strides != ret->dimension_count || offset->kind != CAIRN_PICKLE_INTEGER ||
        offset->integer < 0)
        return cairn_fail(err, CAIRN_INVALID, "%u dimensions with %u strides", ret->dimension_count,
                          strides);
    unsigned metadata = call.meaning == CAIRN_TORCH_TENSOR_V3 ? 7 : 6;
    CAIRN_TRY(read_metadata(values, item_at(values, call.arguments, metadata), ret, err));
    uint64_t width = cairn_dtype_bits(ret->dtype) / 8, extent, end;
    if (!cairn_tensor_size(ret->dtype, ret->dimension_count, ret->shape, &ret->elements,
                           &ret->size_bytes))
        return cairn_fail(err, CAIRN_INVALID, "its size cannot be represented");
    if (cairn_mul_overflows((uint64_t)offset->integer, width, &ret->offset_bytes) ||
        !extent_of(ret, width, &extent) || cairn_add_overflows(ret->offset_bytes, extent, &end) ||
        end > ret->storage_bytes)
        return cairn_fail(
            err, CAIRN_INVALID, "its elements leave storage %.*s of %" PRIu64 " bytes",
            (int)ret->storage.size, (const char *)ret->storage.data, ret->storage_bytes);
    ret->contiguous = is_contiguous(ret);
    return CAIRN_OK;
}
