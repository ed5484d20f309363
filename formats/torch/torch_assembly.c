/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a torch file: ranges of it, or strided views. */
#include "formats/torch/torch.h"

#include <stdlib.h>

#include "api/documents/names.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/assembly/models.h"
#include "formats/torch/torch_ranks.h"
#include "formats/torch/torch_write.h"

struct gather {
    const struct cairn_torch *file;
    struct cairn_assembly *assembly;
    const char *prefix;
    uint32_t input;
    struct cairn_torch_list *list;
    size_t first; /* number of the list's first tensor in the assembly */
};

/* ---- tensors with the same elements ---- */

static int by_number(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int by_elements(const struct cairn_torch_tensor *a, const struct cairn_torch_tensor *b) {
    size_t size = a->storage.size < b->storage.size ? a->storage.size : b->storage.size;
    int order = memcmp(a->storage.data, b->storage.data, size);
    if (!order) order = by_number(a->storage.size, b->storage.size);
    if (!order) order = by_number(a->offset_bytes, b->offset_bytes);
    if (!order) order = by_number(a->dtype, b->dtype);
    if (!order) order = by_number(a->dimension_count, b->dimension_count);
    if (!order) order = memcmp(a->shape, b->shape, sizeof a->shape);
    if (!order) order = (a->conjugated > b->conjugated) - (a->conjugated < b->conjugated);
    if (!order) order = (a->negated > b->negated) - (a->negated < b->negated);
    return order ? order : memcmp(a->stride, b->stride, sizeof a->stride);
}

static int by_elements_then_place(const void *a, const void *b) {
    const struct cairn_torch_listed *x = *(struct cairn_torch_listed *const *)a;
    const struct cairn_torch_listed *y = *(struct cairn_torch_listed *const *)b;
    int order = by_elements(&x->tensor, &y->tensor);
    return order ? order : (x > y) - (x < y);
}

enum cairn_code cairn_torch_list_add(struct cairn_torch_list *list, const struct cairn_torch *file,
                                     const char *name, cairn_pickle_ref ref,
                                     struct cairn_error *err) {
    struct cairn_torch_listed listed = {.first = list->count};
    CAIRN_TRY(cairn_torch_tensor(file, ref, &listed.tensor, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(list->items, list->count, list->capacity, UINT32_MAX / 2,
                               "tensors of a file", err));
    listed.name = strdup(name);
    if (!listed.name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    list->items[list->count++] = listed;
    return CAIRN_OK;
}

/* An empty tensor is no alias. */
enum cairn_code cairn_torch_list_join(struct cairn_torch_list *list, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_torch_listed **sorted = calloc(list->count + 1, sizeof *sorted);
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the tensors of a file");
    for (size_t i = 0; i < list->count; i++) sorted[i] = &list->items[i];
    if (list->count) qsort(sorted, list->count, sizeof *sorted, by_elements_then_place);
    for (size_t i = 1; i < list->count; i++)
        if (sorted[i]->tensor.size_bytes &&
            by_elements(&sorted[i - 1]->tensor, &sorted[i]->tensor) == 0)
            sorted[i]->first = sorted[i - 1]->first;
    return CAIRN_OK;
}

void cairn_torch_list_release(struct cairn_torch_list *list) {
    for (size_t i = 0; i < list->count; i++) free(list->items[i].name);
    free(list->items);
    *list = (struct cairn_torch_list){0};
}

/* ---- the tensors as an assembly ---- */

static enum cairn_code add_tensor(struct gather *gather, size_t number, struct cairn_error *err) {
    const struct cairn_torch_listed *listed = &gather->list->items[number];
    const struct cairn_torch_tensor *tensor = &listed->tensor;
    uint64_t storage = 0;
    if (listed->first != number)
        return cairn_assembly_add_alias(gather->assembly, listed->name,
                                        gather->first + listed->first, err);
    CAIRN_TRY(cairn_torch_storage_at(gather->file, tensor, &storage, err));
    CAIRN_TRY(cairn_assembly_add_tensor(gather->assembly, listed->name, tensor->dtype,
                                        tensor->dimension_count, tensor->shape, err));
    struct cairn_assembly_piece piece = {.input = gather->input,
                                         .offset_bytes = storage + tensor->offset_bytes,
                                         .size_bytes = tensor->size_bytes};
    struct cairn_box box = {0};
    unsigned flip;
    CAIRN_TRY(cairn_assembly_flips(tensor->dtype, tensor->conjugated, tensor->negated, &flip, err));
    /* Adds its storage's checksum, which is compared when all of the storage is read. */
    struct cairn_seal seal;
    struct cairn_view name;
    if (cairn_torch_seal(gather->file, tensor, storage, &seal, &name)) {
        seal.input = gather->input;
        CAIRN_TRY(cairn_seals_add(&gather->assembly->seals, &seal, name, err));
    }
    if (tensor->elements == 0) return CAIRN_OK;
    if (tensor->contiguous && !flip)
        return cairn_assembly_add_piece(gather->assembly, gather->input, piece.offset_bytes,
                                        piece.size_bytes, err);
    piece.flip = flip & 3u;
    memcpy(box.count, tensor->shape, sizeof box.count);
    return cairn_assembly_add_view(gather->assembly, &piece, tensor->stride, &box, err);
}

static enum cairn_code visit_tensor(void *context, const char *path, enum cairn_torch_kind kind,
                                    cairn_pickle_ref ref, struct cairn_error *err) {
    struct gather *gather = context;
    size_t size = strlen(gather->prefix);
    if (kind != CAIRN_TORCH_LEAF_TENSOR || strncmp(path, gather->prefix, size) != 0)
        return CAIRN_OK;
    enum cairn_code code = cairn_torch_list_add(gather->list, gather->file, path + size, ref, err);
    return cairn_within(err, code, "tensor %s", cairn_short(path).text);
}

enum cairn_code cairn_torch_assemble(const struct cairn_torch *file, const char *prefix,
                                     struct cairn_assembly *assembly, struct cairn_error *err) {
    CAIRN_AUTO(torch_list) list = {0};
    struct gather gather = {.file = file,
                            .assembly = assembly,
                            .prefix = prefix,
                            .list = &list,
                            .first = assembly->tensor_count};
    CAIRN_TRY(cairn_assembly_add_input(assembly, cairn_torch_data(file), &gather.input, err));
    CAIRN_TRY(cairn_torch_walk(file, visit_tensor, &gather, err));
    CAIRN_TRY(cairn_torch_list_join(&list, err));
    for (size_t i = 0; i < list.count; i++) {
        enum cairn_code code = add_tensor(&gather, i, err);
        if (code) return cairn_within(err, code, "tensor %s", cairn_short(list.items[i].name).text);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_torch_read_file(const struct cairn_reading *reading,
                                      struct cairn_error *err) {
    CAIRN_TRY(cairn_torch_open(reading->input, reading->strict, reading->torch, err));
    return cairn_torch_assemble(reading->torch, "", reading->assembly, err);
}

/* ---- items other than tensors, each with a small archive ---- */

#define QUANTISED                                                                                  \
    "a quantised tensor, whose integers mean nothing without its scales and zero points, for "     \
    "which "                                                                                       \
    "no form has a place"
#define ARCHIVES_BYTES_MAX (256 * CAIRN_MIB)
/* Of all values together, since values with shared parts can be of any size. */
#define PICKLED_BYTES_MAX (128 * CAIRN_MIB)
#define PICKLED_BYTES_MIN CAIRN_MIB
#define PICKLED_BYTES_EACH 64 /* for each byte of the file's own pickle */
/* Values that share a storage each have a copy, as DCP's own: of all of them together. */
#define STORAGES_BYTES_MIN (256 * CAIRN_MIB)
#define STORAGES_BYTES_EACH 4 /* for each byte of the file */
#define STORAGES_MAX 262144
#define ENTRY_BYTES 512     /* at most, of an archive for each entry of fixed name */
#define APART_ROWS_MAX 1000 /* values with tensors that are no objects, by name */

/* A part of an object: of the archives' text, or of a storage. */
struct part {
    size_t object;
    bool of_text;
    struct cairn_assembly_piece piece;
};
struct plain_gather {
    const struct cairn_torch_plain *plain;
    struct cairn_assembly *assembly;
    struct cairn_names names;     /* of objects */
    struct cairn_torch_plan plan; /* texts, with room for storages */
    struct part *parts;
    size_t part_count, part_capacity;
    uint32_t data;                     /* input of the file's storages */
    uint8_t *seen;                     /* values already searched for tensors; made on demand */
    size_t pickled_bytes, whole_bytes; /* of plain values, and of tries of those with tensors */
    uint64_t storage_bytes;
    size_t storage_count, apart_count;
};
/* The storages of one object, numbered as in its archive. */
struct storages {
    const struct plain_gather *gather;
    struct cairn_names keys;
    struct cairn_safetensors_entry *entries; /* name: key in the file; tag: offset there */
    size_t count, capacity;
    uint64_t bytes;
};

static void release_storages(struct storages *storages) {
    cairn_names_release(&storages->keys);
    free(storages->entries);
}

static struct cairn_pickle_global global_of(uint32_t number) {
    const struct cairn_torch_name *name = cairn_torch_name_at(number);
    return (struct cairn_pickle_global){.module = name->module,
                                        .name = name->name,
                                        .pairs = name->meaning == CAIRN_TORCH_MAP,
                                        .bare = name->meaning == CAIRN_TORCH_RECORD,
                                        .refused = cairn_torch_is_foreign(name)};
}

/* A rank's piece of a tensor means nothing without the other ranks' pieces. */
static struct cairn_pickle_global global_of_whole(uint32_t number) {
    struct cairn_pickle_global global = global_of(number);
    global.refused |= cairn_torch_name_at(number)->meaning == CAIRN_TORCH_SHARDED;
    return global;
}

static enum cairn_code put_storage(void *context, struct cairn_buf *ret, cairn_pickle_ref ref,
                                   struct cairn_error *err) {
    struct storages *storages = context;
    const struct plain_gather *gather = storages->gather;
    const struct cairn_torch *file = gather->plain->file;
    struct cairn_torch_storage storage;
    uint32_t number = (uint32_t)storages->count;
    uint64_t most = STORAGES_BYTES_MIN + STORAGES_BYTES_EACH * cairn_torch_data(file)->size_bytes;
    CAIRN_TRY(cairn_torch_storage(file, ref, &storage, err));
    CAIRN_TRY(cairn_names_add(&storages->keys, storage.key, &number, err));
    if (number == storages->count) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(storages->entries, storages->count, storages->capacity,
                                   STORAGES_MAX - gather->storage_count, "storages in objects",
                                   err));
        storages->entries[storages->count++] =
            (struct cairn_safetensors_entry){.name = storage.key, .tag = storage.offset_bytes};
    }
    struct cairn_safetensors_entry *entry = &storages->entries[number];
    if (storage.size_bytes > entry->size_bytes) {
        storages->bytes += storage.size_bytes - entry->size_bytes;
        entry->size_bytes = storage.size_bytes;
    }
    if (storages->bytes > most || gather->storage_bytes > most - storages->bytes)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "the storages of all such values would have more than %llu MiB, since "
                          "each value has its own copy",
                          (unsigned long long)(most / CAIRN_MIB));
    return cairn_pickle_put_storage(ret, storage.type, number, storage.elements, err);
}

/* Runs without archives too: items that cannot be archived are named in every form. */
static enum cairn_code pickle_of(const struct plain_gather *gather, cairn_pickle_ref ref,
                                 bool whole, struct storages *storages, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    const struct cairn_torch *file = gather->plain->file;
    struct cairn_pickle_writing how = {.from = &file->values, .global_of = global_of};
    if (whole) how.global_of = global_of_whole;
    /* DCP takes a sparse tensor for a tensor, which no object of its name would be. */
    if (!cairn_torch_is_any_tensor(file, ref)) how.put_outside = put_storage;
    how.context = storages;
    CAIRN_TRY(cairn_buf_append(ret, "\x80\x02", 2, err));
    CAIRN_TRY(cairn_pickle_put_value(ret, &how, ref, err));
    return cairn_buf_append(ret, ".", 1, err);
}

static enum cairn_code add_part(struct plain_gather *gather, bool of_text, uint64_t offset,
                                uint64_t size, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(gather->parts, gather->part_count, gather->part_capacity, SIZE_MAX,
                               "parts of objects", err));
    gather->parts[gather->part_count++] =
        (struct part){.object = gather->assembly->object_count - 1,
                      .of_text = of_text,
                      .piece = {.offset_bytes = offset, .size_bytes = size}};
    return CAIRN_OK;
}

/* Adds the last object's archive: texts, and between them its storages where they lie. */
static enum cairn_code archive_value(struct plain_gather *gather, struct cairn_view pickle,
                                     struct storages *storages, struct cairn_error *err) {
    struct cairn_torch_plan *plan = &gather->plan;
    uint64_t at, size;
    if (!gather->plain->archives) return CAIRN_OK;
    CAIRN_TRY(cairn_torch_write_value(pickle, storages->entries, storages->count, plan, &at, err));
    gather->storage_bytes += storages->bytes;
    gather->storage_count += storages->count;
    uint64_t text = plan->head.size - (plan->file_bytes - at - storages->bytes);
    for (size_t i = 0; i < storages->count; i++) {
        const struct cairn_safetensors_entry *entry = &storages->entries[i];
        const struct cairn_torch_tensor tensor = {.storage = entry->name};
        struct cairn_seal seal;
        struct cairn_view name;
        if (cairn_torch_seal(gather->plain->file, &tensor, entry->tag, &seal, &name)) {
            seal.input = gather->data;
            CAIRN_TRY(cairn_seals_add(&gather->assembly->seals, &seal, name, err));
        }
        size = entry->offset_bytes - at;
        CAIRN_TRY(add_part(gather, true, text, size, err));
        CAIRN_TRY(add_part(gather, false, entry->tag, entry->size_bytes, err));
        text += size;
        at += size + entry->size_bytes;
    }
    CAIRN_TRY(add_part(gather, true, text, plan->file_bytes - at, err));
    if (plan->head.size <= ARCHIVES_BYTES_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "plain values need more than %llu MiB as DCP",
                      (unsigned long long)(ARCHIVES_BYTES_MAX / CAIRN_MIB));
}

/* True for a value of an unlisted class, or such a class. */
static bool is_unknown(const struct cairn_pickle *values, cairn_pickle_ref ref) {
    const struct cairn_pickle_value *value = cairn_pickle_at(values, ref);
    if (value->kind != CAIRN_PICKLE_OBJECT) return cairn_pickle_unknown_at(values, value) != NULL;
    const struct cairn_torch_name *maker = cairn_torch_maker(values, value);
    return !maker || maker->meaning == CAIRN_TORCH_MEMBER ||
           maker->meaning == CAIRN_TORCH_FROM_TYPE || maker->meaning == CAIRN_TORCH_TENSOR_V2 ||
           maker->meaning == CAIRN_TORCH_TENSOR_V3;
}

static bool is_quantised(const struct cairn_pickle *values, cairn_pickle_ref ref) {
    const struct cairn_torch_name *maker = cairn_torch_maker(values, cairn_pickle_at(values, ref));
    return maker && strcmp(maker->name, "_rebuild_qtensor") == 0;
}

/* A tensor of the meta device, or such a parameter. */
static bool is_meta(const struct cairn_pickle *values, cairn_pickle_ref ref) {
    const struct cairn_pickle_value *value = cairn_pickle_at(values, ref);
    const struct cairn_torch_name *maker = cairn_torch_maker(values, value);
    if (maker && maker->meaning == CAIRN_TORCH_PARAMETER) {
        const struct cairn_pickle_value *arguments = cairn_pickle_at(values, value->arguments);
        if (!arguments->count) return false;
        maker = cairn_torch_maker(values, cairn_pickle_at(values, arguments->items[0]));
    }
    return maker && strcmp(maker->name, "_rebuild_meta_tensor_no_storage") == 0;
}

/* The reason for which a value is left out by its kind or its place alone; NULL: none. */
static const char *why_passed(const struct cairn_pickle *values, enum cairn_torch_kind kind,
                              cairn_pickle_ref ref) {
    if (kind == CAIRN_TORCH_LEAF_AGAIN) return "a value that holds itself: it comes here again";
    if (kind == CAIRN_TORCH_LEAF_NUL)
        return "a value whose name has a NUL byte, here a question mark";
    return is_meta(values, ref) ? "a tensor of the meta device, of which the file has no data"
                                : NULL;
}

static enum cairn_code leave_out_deep(struct plain_gather *gather, const char *path,
                                      cairn_pickle_ref ref, struct cairn_error *err) {
    const struct cairn_torch *file = gather->plain->file;
    CAIRN_AUTO(buf) why = {0};
    uint64_t tensors;
    CAIRN_AUTO_HEAP uint8_t *seen = calloc(file->values.count, 1);
    if (!seen) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a file's values");
    CAIRN_TRY(cairn_torch_count_tensors(file, ref, seen, &tensors, err));
    CAIRN_TRY(cairn_buf_printf(&why, err,
                               "its values lie deeper than is looked, with %llu %s among them",
                               (unsigned long long)tensors, tensors == 1 ? "tensor" : "tensors"));
    return cairn_assembly_leave_out(gather->assembly, path, why.data, err);
}

static enum cairn_code leave_out_unknown(struct plain_gather *gather, const char *path,
                                         cairn_pickle_ref ref, struct cairn_error *err) {
    const struct cairn_torch *file = gather->plain->file;
    char class[CAIRN_TORCH_CLASS_BYTES];
    CAIRN_AUTO(buf) why = {0};
    uint64_t tensors;
    if (!gather->seen) gather->seen = calloc(file->values.count, 1);
    if (!gather->seen) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a file's values");
    cairn_torch_class_text(&file->values, ref, class);
    CAIRN_TRY(cairn_torch_count_tensors(file, ref, gather->seen, &tensors, err));
    bool taken = cairn_torch_is_member(&file->values, cairn_pickle_at(&file->values, ref));
    CAIRN_TRY(cairn_buf_printf(
        &why, err,
        taken ? "a method or a member of %s" : "a value of %s, a class that is not known", class));
    if (tensors)
        CAIRN_TRY(cairn_buf_printf(&why, err, ", with %llu %s in it", (unsigned long long)tensors,
                                   tensors == 1 ? "tensor" : "tensors"));
    return cairn_assembly_leave_out_opaque(gather->assembly, path, class, why.data, err);
}

/* A buffer for a pickle, of what `used` leaves of the bound. */
static struct cairn_buf pickle_within(const struct plain_gather *gather, size_t used) {
    uint64_t most =
        PICKLED_BYTES_MIN + PICKLED_BYTES_EACH * (uint64_t)gather->plain->file->values.read_bytes;
    size_t left = (size_t)cairn_min_u64(PICKLED_BYTES_MAX, most);
    left -= (size_t)cairn_min_u64(left, used);
    return (struct cairn_buf){.limit = left + 1}; /* 0 would mean no limit */
}

static bool has_name(const struct plain_gather *gather, const char *path) {
    size_t at;
    return cairn_names_has(&gather->names, cairn_view_of(path)) ||
           cairn_assembly_find(gather->assembly, path, &at);
}

static enum cairn_code add_object(struct plain_gather *gather, const char *path,
                                  struct cairn_view pickle, struct storages *storages, bool tensors,
                                  struct cairn_error *err) {
    uint32_t number;
    CAIRN_TRY(cairn_names_add(&gather->names, cairn_view_of(path), &number, err));
    CAIRN_TRY(cairn_assembly_add_object(gather->assembly, path, tensors, err));
    return archive_value(gather, pickle, storages, err);
}

/* Codes by which a value cannot be written again. */
static bool is_unwritten(enum cairn_code code) {
    return code == CAIRN_UNSUPPORTED || code == CAIRN_TOO_LARGE || code == CAIRN_INVALID;
}

static enum cairn_code pickle_plain(struct plain_gather *gather, const char *path,
                                    cairn_pickle_ref ref, struct storages *storages,
                                    struct cairn_error *err) {
    CAIRN_AUTO(buf) pickle = pickle_within(gather, gather->pickled_bytes);
    struct cairn_error why = {0};
    enum cairn_code code = pickle_of(gather, ref, false, storages, &pickle, &why);
    gather->pickled_bytes += pickle.size;
    if (is_unwritten(code)) {
        CAIRN_AUTO(buf) text = {0};
        if (is_quantised(&gather->plain->file->values, ref))
            CAIRN_TRY(cairn_buf_printf(&text, err, QUANTISED));
        else
            CAIRN_TRY(cairn_buf_printf(&text, err, "a value that cannot be written again: %s",
                                       why.message));
        return cairn_assembly_leave_out(gather->assembly, path, text.data, err);
    }
    if (code != CAIRN_OK) return cairn_pass(err, code, &why);
    return add_object(gather, path, cairn_buf_view(&pickle), storages, false, err);
}

static enum cairn_code add_plain(struct plain_gather *gather, const char *path,
                                 cairn_pickle_ref ref, struct cairn_error *err) {
    struct storages storages = {.gather = gather};
    if (has_name(gather, path))
        return cairn_assembly_leave_out(gather->assembly, path,
                                        "a plain value; another value has this name, too", err);
    if (is_unknown(&gather->plain->file->values, ref))
        return leave_out_unknown(gather, path, ref, err);
    if (strlen(path) > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_assembly_leave_out(gather->assembly, path,
                                        "a plain value with a name of more than 1,024 bytes", err);
    enum cairn_code code = pickle_plain(gather, path, ref, &storages, err);
    release_storages(&storages);
    return code;
}

static bool is_taken(const struct plain_gather *gather, const char *path) {
    for (const char *const *key = gather->plain->taken; key && *key; key++) {
        size_t size = strlen(*key);
        if (strncmp(path, *key, size) == 0 && (!path[size] || path[size] == '.')) return true;
    }
    return false;
}

/* Of a value that is taken: its tensor is no tensor of its own where objects are kept. A tensor of
 * this name from another file stays. */
static void hide_tensor(struct plain_gather *gather, const char *path) {
    struct cairn_assembly *assembly = gather->assembly;
    size_t at;
    if (!gather->plain->own_tensors || !cairn_assembly_find(assembly, path, &at)) return;
    struct cairn_assembly_tensor *tensor = &assembly->tensors[at];
    const struct cairn_assembly_tensor *source =
        tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS ? tensor : &assembly->tensors[tensor->alias_of];
    const struct cairn_input *input = cairn_torch_data(gather->plain->file);
    tensor->in_object = !source->piece_count ||
                        assembly->inputs[assembly->pieces[source->piece_first].input] == input;
}

static enum cairn_code visit_named(struct plain_gather *gather, const char *path,
                                   enum cairn_torch_kind kind, cairn_pickle_ref ref,
                                   struct cairn_error *err) {
    bool tensor = kind == CAIRN_TORCH_LEAF_TENSOR;
    if (kind == CAIRN_TORCH_LEAF_EMPTY || is_taken(gather, path)) return CAIRN_OK;
    if (kind == CAIRN_TORCH_INSIDE) {
        hide_tensor(gather, path);
        return CAIRN_OK;
    }
    if (!tensor && cairn_torch_is_sharded(gather->plain->file, ref)) {
        char class[CAIRN_TORCH_CLASS_BYTES];
        if (gather->plain->ranks) return CAIRN_OK;
        cairn_torch_class_text(&gather->plain->file->values, ref, class);
        return cairn_assembly_leave_out_opaque(
            gather->assembly, path, class,
            "one rank's piece of a tensor: give the folder with the files of all ranks, each named "
            "by its rank (model_rank_0.pt)",
            err);
    }
    const char *why = tensor ? NULL : why_passed(&gather->plain->file->values, kind, ref);
    if (why) return cairn_assembly_leave_out(gather->assembly, path, why, err);
    if (kind == CAIRN_TORCH_LEAF_DEEP) return leave_out_deep(gather, path, ref, err);
    if (tensor && !gather->plain->tensors_too) return CAIRN_OK;
    if (tensor)
        return cairn_assembly_leave_out(gather->assembly, path,
                                        "a tensor that is no parameter's and no buffer's", err);
    return add_plain(gather, path, ref, err);
}

static enum cairn_code visit_plain(void *context, const char *path, enum cairn_torch_kind kind,
                                   cairn_pickle_ref ref, struct cairn_error *err) {
    struct plain_gather *gather = context;
    CAIRN_AUTO(buf) name = {0};
    if (!gather->plain->prefix) return visit_named(gather, path, kind, ref, err);
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s%s", gather->plain->prefix, path));
    return visit_named(gather, name.data, kind, ref, err);
}

/* The value's pickle, or the reason for which it is no object: *ret_why is not empty. */
static enum cairn_code pickle_whole(struct plain_gather *gather, const char *path,
                                    cairn_pickle_ref ref, struct storages *storages,
                                    struct cairn_buf *ret, struct cairn_error *ret_why) {
    if (has_name(gather, path))
        return cairn_fail(ret_why, CAIRN_UNSUPPORTED, "another value has this name, too");
    if (strlen(path) > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_fail(ret_why, CAIRN_UNSUPPORTED, "its name has more than 1,024 bytes");
    CAIRN_TRY(pickle_of(gather, ref, true, storages, ret, ret_why));
    uint64_t text = ret->size + ENTRY_BYTES * (storages->count + 8);
    /* Half of the room, so that plain values have the rest. */
    if (gather->plan.head.size + text <= ARCHIVES_BYTES_MAX / 2) return CAIRN_OK;
    return cairn_fail(ret_why, CAIRN_TOO_LARGE, "all such values would need more than %llu MiB",
                      (unsigned long long)(ARCHIVES_BYTES_MAX / 2 / CAIRN_MIB));
}

static enum cairn_code note_apart(struct plain_gather *gather, const char *path, const char *why,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) row = {0};
    if (gather->apart_count++ >= APART_ROWS_MAX) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(&row, err,
                               "one object for torch.distributed.checkpoint; here its tensors and "
                               "values have names of their own: %s",
                               why));
    return cairn_assembly_leave_out(gather->assembly, path, row.data, err);
}

static enum cairn_code take_named(struct plain_gather *gather, const char *path,
                                  cairn_pickle_ref ref, bool *ret_taken, struct cairn_error *err) {
    struct storages storages = {.gather = gather};
    struct cairn_error why = {0};
    if (is_taken(gather, path)) return CAIRN_OK;
    CAIRN_AUTO(buf) pickle = pickle_within(gather, gather->whole_bytes);
    enum cairn_code code = pickle_whole(gather, path, ref, &storages, &pickle, &why);
    gather->whole_bytes += pickle.size;
    *ret_taken = code == CAIRN_OK;
    if (is_unwritten(code))
        code = note_apart(gather, path, why.message, err);
    else if (code != CAIRN_OK)
        code = cairn_pass(err, code, &why);
    else
        code = add_object(gather, path, cairn_buf_view(&pickle), &storages, true, err);
    release_storages(&storages);
    return code;
}

static enum cairn_code take_whole(void *context, const char *path, cairn_pickle_ref ref,
                                  bool *ret_taken, struct cairn_error *err) {
    struct plain_gather *gather = context;
    CAIRN_AUTO(buf) name = {0};
    *ret_taken = false;
    if (!gather->plain->prefix) return take_named(gather, path, ref, ret_taken, err);
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s%s", gather->plain->prefix, path));
    return take_named(gather, name.data, ref, ret_taken, err);
}

static enum cairn_code gather_all(struct plain_gather *gather, struct cairn_error *err) {
    struct cairn_assembly *assembly = gather->assembly;
    const struct cairn_torch *file = gather->plain->file;
    bool archives = gather->plain->archives;
    uint32_t texts, number;
    gather->names.copy = true;
    if (archives)
        CAIRN_TRY(cairn_assembly_add_input(assembly, cairn_torch_data(file), &gather->data, err));
    for (size_t i = 0; i < assembly->object_count; i++)
        CAIRN_TRY(cairn_names_add(&gather->names, cairn_view_of(assembly->objects[i].name), &number,
                                  err));
    CAIRN_TRY(cairn_torch_walk_items(file, visit_plain, archives ? take_whole : NULL, gather, err));
    if (gather->apart_count > APART_ROWS_MAX)
        CAIRN_TRY(cairn_assembly_leave_out(assembly, "*",
                                           "of more values with tensors, each of "
                                           "which is one object for torch.distributed.checkpoint, "
                                           "tensors and values have names of their own",
                                           err));
    if (!gather->part_count) return CAIRN_OK;
    CAIRN_TRY(cairn_assembly_add_memory(assembly, &gather->plan.head, &texts, err));
    if (!assembly->seals.sorted) cairn_seals_sort(&assembly->seals);
    for (size_t i = 0; i < gather->part_count; i++) {
        struct part *part = &gather->parts[i];
        part->piece.input = part->of_text ? texts : gather->data;
        CAIRN_TRY(cairn_assembly_add_object_piece(assembly, part->object, &part->piece, err));
    }
    return cairn_assembly_retie(assembly, err);
}

enum cairn_code cairn_torch_plain_add(const struct cairn_torch_plain *plain,
                                      struct cairn_assembly *assembly, struct cairn_error *err) {
    struct plain_gather gather = {.plain = plain, .assembly = assembly};
    enum cairn_code code = gather_all(&gather, err);
    free(gather.seen);
    free(gather.parts);
    cairn_names_release(&gather.names);
    cairn_torch_plan_release(&gather.plan);
    return code;
}
