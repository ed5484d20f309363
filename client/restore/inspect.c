/* SPDX-License-Identifier: Apache-2.0 */
/* What an opened version holds, out of its layout: cursors count names, and (listing, fragment). */
#include <cairn/inspect.h>

#include "api/table/dtype.h"
#include "client/restore/restore.h"
#include "common/text.h"
#include "plan/reads.h"

static struct cairn_text text_of(struct cairn_view view) {
    return (struct cairn_text){(const char *)view.data, view.size};
}

/* One rank's listing of a tensor. */
static void listing_at(const struct cairn_restore *restore, uint32_t ref,
                       const struct cairn_table **ret_table, struct cairn_tensor *ret) {
    uint32_t table = 0, row = 0;
    cairn_layout_ref_at(&restore->layout, ref, &table, &row);
    *ret_table = &restore->layout.tables[table];
    cairn_table_tensor_at(*ret_table, row, ret);
}

static enum cairn_code size_of(const struct cairn_tensor *tensor, uint64_t *ret_bytes,
                               struct cairn_error *err) {
    uint64_t elements = 0;
    if (cairn_tensor_size(tensor->dtype, tensor->dimension_count, tensor->shape, &elements,
                          ret_bytes))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "tensor %.*s has no size",
                      (int)cairn_min_u64(tensor->name.size, 300), (const char *)tensor->name.data);
}

/* ---- tensors ---- */

/* The name by which a stored one is known; its memory is the restore's. */
static struct cairn_text known_text(const struct cairn_restore *restore, struct cairn_view stored) {
    char known[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    const char *kept = restore->names.rule_count &&
                               cairn_client_names_known(&restore->names, stored, known)
                           ? cairn_client_names_kept(&restore->names, cairn_view_of(known))
                           : NULL;
    return kept ? text_of(cairn_view_of(kept)) : text_of(stored);
}

enum cairn_code cairn_restore_next(struct cairn_restore *restore, uint64_t *cursor,
                                   struct cairn_tensor_view *ret, struct cairn_error *err) {
    if (!restore || !cursor || !ret) return cairn_fail(err, CAIRN_INVALID, "no restore or cursor");
    if (!restore->has_layout || *cursor >= restore->layout.name_count) return CAIRN_NOT_FOUND;
    uint32_t index = cairn_client_names_at(&restore->names, (uint32_t)*cursor);
    uint32_t first = 0, count = 0;
    const struct cairn_table *table;
    struct cairn_view name;
    struct cairn_tensor tensor;
    cairn_layout_name_at(&restore->layout, index, &name, &first, &count);
    listing_at(restore, first, &table, &tensor);
    struct cairn_tensor_view made = {.name = known_text(restore, name),
                                     .dtype = cairn_dtype_text(tensor.dtype),
                                     .dimension_count = tensor.dimension_count,
                                     .kind = (enum cairn_kind)tensor.kind,
                                     .holder_count = count};
    CAIRN_TRY(size_of(&tensor, &made.bytes, err));
    if (tensor.kind == CAIRN_TENSOR_ALIAS) made.alias_of = known_text(restore, tensor.alias_of);
    memcpy(made.shape, tensor.shape, sizeof made.shape);
    *ret = made;
    ++*cursor;
    return CAIRN_OK;
}

/* ---- holders and pieces ---- */

/* The listings [*ret_first, + *ret_count) of the tensor that the name stands for. */
static enum cairn_code find_listings(const struct cairn_restore *restore, const char *tensor,
                                     uint32_t *ret_first, uint32_t *ret_count,
                                     struct cairn_error *err) {
    struct cairn_view name;
    uint32_t index = 0;
    if (!restore || !tensor) return cairn_fail(err, CAIRN_INVALID, "no restore, or no name");
    if (!cairn_client_restore_find(restore, tensor, &index))
        return cairn_fail(err, CAIRN_NOT_FOUND, "no tensor %s", cairn_short(tensor).text);
    cairn_layout_name_at(&restore->layout, index, &name, ret_first, ret_count);
    CAIRN_TRY(cairn_plan_resolve(&restore->layout, name, &index, err));
    cairn_layout_name_at(&restore->layout, index, &name, ret_first, ret_count);
    return CAIRN_OK;
}

enum cairn_code cairn_restore_holder_next(struct cairn_restore *restore, const char *tensor,
                                          uint64_t *cursor, struct cairn_holder *ret,
                                          struct cairn_error *err) {
    uint32_t first = 0, count = 0;
    const struct cairn_table *table;
    struct cairn_tensor listed;
    if (!cursor || !ret) return cairn_fail(err, CAIRN_INVALID, "no cursor");
    CAIRN_TRY(find_listings(restore, tensor, &first, &count, err));
    if (*cursor >= count) return CAIRN_NOT_FOUND;
    listing_at(restore, first + (uint32_t)*cursor, &table, &listed);
    struct cairn_holder made = {.rank = table->rank,
                                .dtype = cairn_dtype_text(listed.dtype),
                                .dimension_count = listed.dimension_count,
                                .piece_count = listed.fragment_count};
    CAIRN_TRY(size_of(&listed, &made.bytes, err));
    memcpy(made.shape, listed.shape, sizeof made.shape);
    *ret = made;
    ++*cursor;
    return CAIRN_OK;
}

enum cairn_code cairn_restore_piece_next(struct cairn_restore *restore, const char *tensor,
                                         uint64_t *cursor, struct cairn_stored_piece *ret,
                                         struct cairn_error *err) {
    uint32_t first = 0, count = 0;
    if (!cursor || !ret) return cairn_fail(err, CAIRN_INVALID, "no cursor");
    CAIRN_TRY(find_listings(restore, tensor, &first, &count, err));
    uint32_t at = (uint32_t)(*cursor >> 32), fragment = (uint32_t)*cursor;
    for (; at < count; at++, fragment = 0) {
        const struct cairn_table *table;
        struct cairn_tensor listed;
        struct cairn_table_shard shard;
        struct cairn_fragment found;
        listing_at(restore, first + at, &table, &listed);
        if (fragment >= listed.fragment_count) continue;
        cairn_table_fragment_at(table, listed.fragment_first + fragment, &found);
        cairn_table_shard_at(table, found.shard, &shard);
        *ret = (struct cairn_stored_piece){.rank = table->rank,
                                           .shard = text_of(shard.name),
                                           .offset = found.offset_bytes,
                                           .bytes = found.size_bytes,
                                           .form = found.form == CAIRN_FRAGMENT_FLAT ? CAIRN_FLAT
                                                                                     : CAIRN_BOX};
        memcpy(ret->start, found.start, sizeof ret->start);
        memcpy(ret->count, found.count, sizeof ret->count);
        *cursor = (uint64_t)at << 32 | (fragment + 1);
        return CAIRN_OK;
    }
    return CAIRN_NOT_FOUND;
}
