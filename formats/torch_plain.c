/* SPDX-License-Identifier: Apache-2.0 */
/* Items of a torch file that are no tensors, each with a small archive of its own. */
#include "formats/torch_plain.h"

#include <stdlib.h>

#include "api/documents/names.h"
#include "formats/pickle_write.h"
#include "formats/torch_sharded.h"
#include "formats/torch_tree.h"
#include "formats/torch_write.h"

#define QUANTISED                                                                                  \
    "a quantised tensor, whose integers mean nothing without its scales and zero points, for "     \
    "which "                                                                                       \
    "no form has a place"
#define ARCHIVES_BYTES_MAX (256 * CAIRN_MIB)
/* Of all values together, since values that share parts can be of any size. */
#define PICKLED_BYTES_MAX (128 * CAIRN_MIB)
#define PICKLED_BYTES_MIN CAIRN_MIB
#define PICKLED_BYTES_EACH 64 /* for each byte of the file's own pickle */

struct gather {
    const struct cairn_torch_plain *plain;
    struct cairn_assembly *assembly;
    struct cairn_names names;     /* of objects */
    struct cairn_torch_plan plan; /* all of its bytes are text */
    size_t first;                 /* object of this file */
    uint8_t *seen; /* values that were looked through for tensors; made when needed */
    size_t pickled_bytes;
};

static struct cairn_pickle_global global_of(uint32_t number) {
    const struct cairn_torch_name *name = cairn_torch_name_at(number);
    return (struct cairn_pickle_global){.module = name->module,
                                        .name = name->name,
                                        .pairs = name->meaning == CAIRN_TORCH_MAP,
                                        .bare = name->meaning == CAIRN_TORCH_RECORD,
                                        .refused = cairn_torch_is_foreign(name)};
}

/* Also where no archive is wanted: what cannot be one is named as such in every form. */
static enum cairn_code pickle_of(const struct gather *gather, cairn_pickle_ref ref,
                                 struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "\x80\x02", 2, err));
    CAIRN_TRY(cairn_pickle_put_value(ret, &gather->plain->file->values, ref, global_of, err));
    return cairn_buf_append(ret, ".", 1, err);
}

static enum cairn_code archive(struct gather *gather, struct cairn_view pickle,
                               struct cairn_assembly_piece *ret, struct cairn_error *err) {
    if (!gather->plain->archives) return CAIRN_OK;
    CAIRN_TRY(cairn_torch_write_value(pickle, &gather->plan, &ret->offset_bytes, err));
    ret->size_bytes = gather->plan.file_bytes - ret->offset_bytes;
    if (gather->plan.file_bytes <= ARCHIVES_BYTES_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "plain values need more than %llu MiB as DCP",
                      (unsigned long long)(ARCHIVES_BYTES_MAX / CAIRN_MIB));
}

/* Is it of a class that the list lacks, or such a class itself? */
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

static enum cairn_code leave_out_unknown(struct gather *gather, const char *path,
                                         cairn_pickle_ref ref, struct cairn_error *err) {
    const struct cairn_torch *file = gather->plain->file;
    char class[CAIRN_TORCH_CLASS_BYTES];
    CAIRN_AUTO(buf) why = {0};
    uint64_t tensors;
    if (!gather->seen) gather->seen = calloc(file->values.count, 1);
    if (!gather->seen) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a file's values");
    cairn_torch_class_text(&file->values, ref, class);
    CAIRN_TRY(cairn_torch_count_tensors(file, ref, gather->seen, &tensors, err));
    CAIRN_TRY(cairn_buf_printf(&why, err, "a value of %s, a class that is not known", class));
    if (tensors)
        CAIRN_TRY(cairn_buf_printf(&why, err, ", with %llu %s in it", (unsigned long long)tensors,
                                   tensors == 1 ? "tensor" : "tensors"));
    return cairn_assembly_leave_out_opaque(gather->assembly, path, class, why.data, err);
}

static enum cairn_code add(struct gather *gather, const char *path, cairn_pickle_ref ref,
                           struct cairn_error *err) {
    uint64_t most =
        PICKLED_BYTES_MIN + PICKLED_BYTES_EACH * (uint64_t)gather->plain->file->values.read_bytes;
    size_t left = (size_t)cairn_min_u64(PICKLED_BYTES_MAX, most);
    left -= (size_t)cairn_min_u64(left, gather->pickled_bytes);
    CAIRN_AUTO(buf) pickle = {.limit = left + 1}; /* 0 would be no limit of its own */
    struct cairn_assembly_piece piece = {0};
    struct cairn_error why = {0};
    uint32_t number;
    size_t at;
    if (cairn_names_has(&gather->names, cairn_view_of(path)) ||
        cairn_assembly_find(gather->assembly, path, &at))
        return cairn_assembly_leave_out(gather->assembly, path,
                                        "a plain value; another value has this name, too", err);
    if (is_unknown(&gather->plain->file->values, ref))
        return leave_out_unknown(gather, path, ref, err);
    enum cairn_code code = pickle_of(gather, ref, &pickle, &why);
    gather->pickled_bytes += pickle.size;
    if (code == CAIRN_UNSUPPORTED || code == CAIRN_TOO_LARGE) {
        CAIRN_AUTO(buf) text = {0};
        if (is_quantised(&gather->plain->file->values, ref))
            CAIRN_TRY(cairn_buf_printf(&text, err, QUANTISED));
        else
            CAIRN_TRY(cairn_buf_printf(&text, err, "a value that cannot be written again: %s",
                                       why.message));
        return cairn_assembly_leave_out(gather->assembly, path, text.data, err);
    }
    if (code != CAIRN_OK) {
        if (err) *err = why;
        return code;
    }
    CAIRN_TRY(archive(gather, cairn_buf_view(&pickle), &piece, err));
    CAIRN_TRY(cairn_names_add(&gather->names, cairn_view_of(path), &number, err));
    return cairn_assembly_add_object(gather->assembly, path, &piece, false, err);
}

static bool is_taken(const struct gather *gather, const char *path) {
    for (const char *const *key = gather->plain->taken; key && *key; key++) {
        size_t size = strlen(*key);
        if (strncmp(path, *key, size) == 0 && (!path[size] || path[size] == '.')) return true;
    }
    return false;
}

static enum cairn_code leave_out_piece(struct gather *gather, const char *path,
                                       cairn_pickle_ref ref, struct cairn_error *err) {
    char class[CAIRN_TORCH_CLASS_BYTES];
    if (gather->plain->ranks) return CAIRN_OK;
    cairn_torch_class_text(&gather->plain->file->values, ref, class);
    return cairn_assembly_leave_out_opaque(
        gather->assembly, path, class,
        "one rank's piece of a tensor: give the folder with the files of all ranks, each named "
        "by its rank (model_rank_0.pt)",
        err);
}

static enum cairn_code visit_named(struct gather *gather, const char *path,
                                   enum cairn_torch_kind kind, cairn_pickle_ref ref,
                                   struct cairn_error *err) {
    bool tensor = kind == CAIRN_TORCH_LEAF_TENSOR;
    if (kind == CAIRN_TORCH_LEAF_EMPTY || is_taken(gather, path)) return CAIRN_OK;
    if (!tensor && cairn_torch_is_sharded(gather->plain->file, ref))
        return leave_out_piece(gather, path, ref, err);
    if (tensor && !gather->plain->tensors_too) return CAIRN_OK;
    if (tensor)
        return cairn_assembly_leave_out(gather->assembly, path,
                                        "a tensor that is no parameter's and no buffer's", err);
    return add(gather, path, ref, err);
}

static enum cairn_code visit(void *context, const char *path, enum cairn_torch_kind kind,
                             cairn_pickle_ref ref, struct cairn_error *err) {
    struct gather *gather = context;
    CAIRN_AUTO(buf) name = {0};
    if (!gather->plain->prefix) return visit_named(gather, path, kind, ref, err);
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s%s", gather->plain->prefix, path));
    return visit_named(gather, name.data, kind, ref, err);
}

static enum cairn_code gather_all(struct gather *gather, struct cairn_error *err) {
    struct cairn_assembly *assembly = gather->assembly;
    uint32_t input, number;
    gather->first = assembly->object_count;
    gather->names.copy = true;
    for (size_t i = 0; i < assembly->object_count; i++)
        CAIRN_TRY(cairn_names_add(&gather->names, cairn_view_of(assembly->objects[i].name), &number,
                                  err));
    CAIRN_TRY(cairn_torch_walk_items(gather->plain->file, visit, gather, err));
    if (!gather->plain->archives || gather->first == assembly->object_count) return CAIRN_OK;
    CAIRN_ASSERT(gather->plan.text_count == 1);
    CAIRN_TRY(cairn_assembly_add_memory(assembly, &gather->plan.head, &input, err));
    for (size_t i = gather->first; i < assembly->object_count; i++)
        assembly->objects[i].piece.input = input;
    return CAIRN_OK;
}

enum cairn_code cairn_torch_plain_add(const struct cairn_torch_plain *plain,
                                      struct cairn_assembly *assembly, struct cairn_error *err) {
    struct gather gather = {.plain = plain, .assembly = assembly};
    enum cairn_code code = gather_all(&gather, err);
    free(gather.seen);
    cairn_names_release(&gather.names);
    cairn_torch_plan_release(&gather.plan);
    return code;
}
