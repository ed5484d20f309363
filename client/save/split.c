/* SPDX-License-Identifier: Apache-2.0 */
/* Checks described pieces; plans and queries lists of tensors; cuts listed pieces to shares. */
#include "client/save/split.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "client/session/options.h"
#include "common/buf.h"
#include "common/text.h"

#define MARKED_BEGINS 4 /* per split */
#define GROUP_NAME_BYTES_MAX 256
#define GROUPS_MAX 64      /* per rank: server/versions/groups.h */
#define VERSION_OF_LOOKS 6 /* socket version that introduced them */
#define DIGEST_TEXT 16

/* ---- checking a piece, field by field ---- */

enum cairn_code cairn_client_piece_name(const char *name, struct cairn_error *err) {
    size_t size = name ? strlen(name) : 0;
    if (!size || size > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "a tensor name of %s; 1 to %d are allowed",
                          cairn_counted(size, "byte").text, CAIRN_TENSOR_NAME_BYTES_MAX);
    if (!cairn_utf8_valid(cairn_view_of(name)))
        return cairn_fail(err, CAIRN_INVALID, "a tensor name is not UTF-8");
    return CAIRN_OK;
}

enum cairn_code cairn_client_piece_shape(const struct cairn_tensor_piece *from,
                                         struct cairn_client_piece *ret, uint64_t *ret_elements,
                                         struct cairn_error *err) {
    if (!from->dtype || !cairn_dtype_parse(cairn_view_of(from->dtype), &ret->dtype))
        return cairn_fail(err, CAIRN_INVALID,
                          "unknown dtype %.16s; names are such as F32, BF16 or I64",
                          from->dtype ? from->dtype : "(none)");
    if (from->dimension_count > CAIRN_DIMENSIONS_MAX || (from->dimension_count && !from->shape))
        return cairn_fail(err, CAIRN_INVALID, "%s, at most %d with their shape are taken",
                          cairn_counted(from->dimension_count, "dimension").text,
                          CAIRN_DIMENSIONS_MAX);
    ret->dimension_count = from->dimension_count;
    for (unsigned d = 0; d < ret->dimension_count; d++) ret->shape[d] = from->shape[d];
    if (!cairn_tensor_size(ret->dtype, ret->dimension_count, ret->shape, ret_elements,
                           &ret->tensor_bytes))
        return cairn_fail(err, CAIRN_INVALID, "shape and dtype give no size that can be stored");
    if (ret->dtype == CAIRN_DTYPE_ITEM && ret->dimension_count != 1)
        return cairn_fail(err, CAIRN_INVALID, "an item has one dimension, not %u",
                          ret->dimension_count);
    return CAIRN_OK;
}

static enum cairn_code read_flat(uint64_t start, uint64_t count, uint64_t elements,
                                 struct cairn_client_piece *ret, struct cairn_error *err) {
    uint64_t start_bits, bits;
    unsigned width = cairn_dtype_bits(ret->dtype);
    if (start > elements || count > elements - start)
        return cairn_fail(err, CAIRN_INVALID,
                          "elements %" PRIu64 " + %" PRIu64 " of a tensor of %" PRIu64, start,
                          count, elements);
    if (cairn_mul_overflows(start, width, &start_bits) ||
        cairn_mul_overflows(count, width, &bits) || start_bits % 8 || bits % 8)
        return cairn_fail(err, CAIRN_INVALID, "a flat piece must begin and end at a whole byte");
    ret->fragment.form = CAIRN_FRAGMENT_FLAT;
    ret->fragment.start[0] = start;
    ret->fragment.count[0] = count;
    ret->bytes = bits / 8;
    return CAIRN_OK;
}

static enum cairn_code read_box(const struct cairn_tensor_piece *from,
                                struct cairn_client_piece *ret, struct cairn_error *err) {
    uint64_t elements;
    ret->fragment.form = CAIRN_FRAGMENT_BOX;
    for (unsigned d = 0; d < ret->dimension_count; d++) {
        uint64_t start = from->start[d], count = from->count[d];
        if (start > ret->shape[d] || count > ret->shape[d] - start)
            return cairn_fail(err, CAIRN_INVALID,
                              "dimension %u: %" PRIu64 " + %" PRIu64 " of %" PRIu64, d, start,
                              count, ret->shape[d]);
        ret->fragment.start[d] = start;
        ret->fragment.count[d] = count;
    }
    if (!cairn_tensor_size(ret->dtype, ret->dimension_count, ret->fragment.count, &elements,
                           &ret->bytes))
        return cairn_fail(err, CAIRN_INVALID, "a box must fill whole bytes");
    return CAIRN_OK;
}

enum cairn_code cairn_client_piece_form(const struct cairn_tensor_piece *from, uint64_t elements,
                                        struct cairn_client_piece *ret, struct cairn_error *err) {
    ret->form = from->form;
    if (from->form == CAIRN_FLAT || (from->form == CAIRN_BOX && from->dimension_count)) {
        if (!from->start || !from->count)
            return cairn_fail(err, CAIRN_INVALID, "start and count are missing");
        if (from->form == CAIRN_FLAT)
            return read_flat(from->start[0], from->count[0], elements, ret, err);
        return read_box(from, ret, err);
    }
    if (from->form != CAIRN_WHOLE && from->form != CAIRN_BOX)
        return cairn_fail(err, CAIRN_INVALID, "form %d is none of enum cairn_form",
                          (int)from->form);
    ret->form = CAIRN_WHOLE;
    return read_flat(0, elements, elements, ret, err);
}

static bool ready(const struct cairn_split_options *options, struct cairn_split *split) {
    split->group = strdup(options->group);
    if (!options->weights) return split->group != NULL;
    split->weights = calloc(options->members, sizeof *split->weights);
    if (!split->group || !split->weights) return false;
    memcpy(split->weights, options->weights, options->members * sizeof *split->weights);
    return true;
}

enum cairn_code cairn_split_new(const struct cairn_split_options *given, struct cairn_split **ret,
                                struct cairn_error *err) {
    struct cairn_split_options own, *options = &own;
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(given, options, err));
    if (!options->group || !options->group[0] || strlen(options->group) > GROUP_NAME_BYTES_MAX ||
        !cairn_utf8_valid(cairn_view_of(options->group)))
        return cairn_fail(err, CAIRN_INVALID,
                          "a replica group has a name of 1 to %d bytes of UTF-8",
                          GROUP_NAME_BYTES_MAX);
    if (!options->members || options->members > CAIRN_PLAN_SPLIT_MEMBERS_MAX ||
        options->member >= options->members)
        return cairn_fail(
            err, CAIRN_INVALID,
            "group \"%s\": member %u of %u; members count from 0, and there are 1 to %u",
            options->group, options->member, options->members, CAIRN_PLAN_SPLIT_MEMBERS_MAX);
    struct cairn_split *split = calloc(1, sizeof *split);
    if (split) {
        split->users = 1;
        split->member = options->member;
        split->members = options->members;
        split->by = (enum cairn_plan_split_by)options->by;
    }
    if (!split || !ready(options, split)) {
        cairn_split_free(split);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a split");
    }
    *ret = split;
    return CAIRN_OK;
}

void cairn_split_free(struct cairn_split *split) {
    if (!split || atomic_fetch_sub(&split->users, 1) > 1) return;
    for (size_t i = 0; i < split->count; i++) free(split->pieces[i].name);
    cairn_plan_split_release(&split->plan);
    free(split->pieces);
    free(split->sorted);
    free(split->share);
    free(split->weights);
    free(split->group);
    free(split);
}

enum cairn_code cairn_split_by_of(const struct cairn_parallel_write *config,
                                  enum cairn_split_by *ret, struct cairn_error *err) {
    struct cairn_parallel_write own;
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(config, &own, err));
    *ret = own.tensor_slice     ? CAIRN_SPLIT_SLICE
           : own.pipeline_stage ? CAIRN_SPLIT_LAYER
                                : CAIRN_SPLIT_FIRST;
    return CAIRN_OK;
}

enum cairn_code cairn_split_add(struct cairn_split *split, const struct cairn_tensor_piece *piece,
                                struct cairn_error *err) {
    struct cairn_client_piece made = {0};
    struct cairn_tensor_piece own;
    if (!split || !piece) return cairn_fail(err, CAIRN_INVALID, "no split, or no piece");
    if (split->planned)
        return cairn_fail(err, CAIRN_INVALID, "group \"%s\": its shares were asked for already",
                          split->group);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(piece, &own, err));
    uint64_t elements = 0;
    CAIRN_TRY(cairn_client_piece_name(own.name, err));
    enum cairn_code code = cairn_client_piece_shape(&own, &made, &elements, err);
    if (!code) code = cairn_client_piece_form(&own, elements, &made, err);
    if (code) return cairn_within(err, code, "tensor %s", own.name);
    if (own.kind == CAIRN_ALIAS) return CAIRN_OK; /* no bytes to share */
    if (own.region_count > 1)
        return cairn_fail(err, CAIRN_INVALID, "tensor %s: a split lists one region of it",
                          own.name);
    CAIRN_TRY(CAIRN_ARRAY_ROOM(split->pieces, split->count, split->capacity,
                               CAIRN_PLAN_SPLIT_ITEMS_MAX, "tensors of a group", err));
    made.name = strdup(own.name);
    if (!made.name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    split->pieces[split->count++] = made;
    return CAIRN_OK;
}

/* ---- planning ---- */

static struct cairn_plan_split_item item_of(const struct cairn_client_piece *piece) {
    return (struct cairn_plan_split_item){.name = cairn_view_of(piece->name),
                                          .dtype = piece->dtype,
                                          .dimension_count = piece->dimension_count,
                                          .shape = piece->shape,
                                          .form = (enum cairn_plan_form)piece->form,
                                          .start = piece->fragment.start,
                                          .count = piece->fragment.count};
}

static int by_name(const void *a, const void *b, void *split) {
    const struct cairn_client_piece *pieces = ((struct cairn_split *)split)->pieces;
    return strcmp(pieces[*(const uint32_t *)a].name, pieces[*(const uint32_t *)b].name);
}

static enum cairn_code index_pieces(struct cairn_split *split, struct cairn_error *err) {
    split->sorted = calloc(split->count + 1, sizeof *split->sorted);
    split->share = calloc(split->count + 1, sizeof *split->share);
    if (!split->sorted || !split->share)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a split");
    for (uint32_t i = 0; i < split->count; i++) split->sorted[i] = i;
    qsort_r(split->sorted, split->count, sizeof *split->sorted, by_name, split);
    const struct cairn_plan_split *plan = &split->plan;
    for (uint32_t s = plan->first[split->member]; s < plan->first[split->member + 1]; s++)
        split->share[plan->shares[s].item] = s + 1;
    return CAIRN_OK;
}

static enum cairn_code plan_split(struct cairn_split *split, struct cairn_error *err) {
    if (split->planned) return CAIRN_OK;
    CAIRN_AUTO_HEAP struct cairn_plan_split_item *items = calloc(split->count + 1, sizeof *items);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a split");
    for (size_t i = 0; i < split->count; i++) items[i] = item_of(&split->pieces[i]);
    const struct cairn_plan_group group = {split->by, split->members, split->weights, items,
                                           split->count};
    cairn_plan_split_release(&split->plan);
    enum cairn_code code = cairn_plan_split(&group, &split->plan, err);
    if (!code) code = index_pieces(split, err);
    if (code) return cairn_within(err, code, "replica group \"%s\"", split->group);
    split->planned = true;
    return CAIRN_OK;
}

enum cairn_code cairn_split_bytes(struct cairn_split *split, uint32_t member, uint64_t *ret,
                                  struct cairn_error *err) {
    if (!split || member >= split->members)
        return cairn_fail(err, CAIRN_INVALID, "no split, or no such member of it");
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(plan_split(split, err));
    *ret = split->plan.bytes[member];
    return CAIRN_OK;
}

enum cairn_code cairn_split_share_at(struct cairn_split *split, uint32_t member, uint32_t index,
                                     struct cairn_split_share *ret, struct cairn_error *err) {
    if (!split || member >= split->members)
        return cairn_fail(err, CAIRN_INVALID, "no split, or no such member of it");
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(plan_split(split, err));
    const struct cairn_plan_split *plan = &split->plan;
    if (index >= plan->first[member + 1] - plan->first[member])
        return cairn_fail(err, CAIRN_NOT_FOUND, "member %u has %u shares", member,
                          plan->first[member + 1] - plan->first[member]);
    const struct cairn_plan_share *share = &plan->shares[plan->first[member] + index];
    *ret = (struct cairn_split_share){split->pieces[share->item].name, share->start, share->count};
    return CAIRN_OK;
}

/* ---- the groups of a save ---- */

void cairn_client_shares_release(struct cairn_client_shares *shares) {
    for (size_t i = 0; shares->seen && i < shares->count; i++) free(shares->seen[i]);
    free(shares->seen);
    *shares = (struct cairn_client_shares){0};
}

/* ---- the splits in a begin ---- */

static json_t *marks_json(const struct cairn_split *split) {
    json_t *marks = json_array();
    for (uint32_t i = 0; i < split->plan.mark_count; i++) {
        const struct cairn_plan_mark *mark = &split->plan.marks[i];
        char digest[17];
        snprintf(digest, sizeof digest, "%016" PRIx64, mark->digest);
        json_t *one =
            CAIRN_PACK(split_mark, .tensor = split->pieces[mark->item].name, .digest = digest);
        if (json_array_append_new(marks, one)) {
            json_decref(marks);
            return NULL;
        }
    }
    return marks;
}

static json_t *split_json(struct cairn_split *split, bool finer) {
    char digest[2 * sizeof split->plan.digest + 1], how[17];
    cairn_hex_encode(split->plan.digest, sizeof split->plan.digest, digest);
    if (split->begins++ >= MARKED_BEGINS)
        return CAIRN_PACK(begin_split, .group = split->group, .digest = digest, .finer = finer);
    snprintf(how, sizeof how, "%016" PRIx64, split->plan.how);
    CAIRN_AUTO_JSON json_t *marks = marks_json(split);
    if (!marks) return NULL;
    return CAIRN_PACK(begin_split, .group = split->group, .digest = digest, .how = how,
                      .marks = marks, .finer = finer);
}

enum cairn_code cairn_client_shares_open(struct cairn_client_shares *shares,
                                         struct cairn_split *const *splits, size_t count,
                                         bool finer, json_t **ret_json, struct cairn_error *err) {
    if (!count) return CAIRN_OK;
    if (count > GROUPS_MAX || !splits)
        return cairn_fail(err, CAIRN_INVALID, "a save has at most %d splits, not %zu", GROUPS_MAX,
                          count);
    CAIRN_AUTO_JSON json_t *all = json_array();
    *shares = (struct cairn_client_shares){splits, count, calloc(count, sizeof *shares->seen), 0};
    bool short_of_memory = !all || !shares->seen;
    for (size_t i = 0; i < count && !short_of_memory; i++) {
        if (!splits[i]) return cairn_fail(err, CAIRN_INVALID, "split %zu of the save is NULL", i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(splits[k]->group, splits[i]->group) == 0)
                return cairn_fail(err, CAIRN_INVALID, "two splits of the save are of group \"%s\"",
                                  splits[i]->group);
        CAIRN_TRY(plan_split(splits[i], err));
        shares->seen[i] = calloc(splits[i]->count + 1, sizeof **shares->seen);
        short_of_memory =
            !shares->seen[i] || json_array_append_new(all, split_json(splits[i], finer)) != 0;
    }
    if (short_of_memory) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the save's splits");
    *ret_json = CAIRN_TAKE(all);
    return CAIRN_OK;
}

/* ---- cutting ---- */

struct listed { /* search key */
    const struct cairn_split *split;
    const char *name;
};

static int listed_order(const void *wanted, const void *index) {
    const struct listed *key = wanted;
    return strcmp(key->name, key->split->pieces[*(const uint32_t *)index].name);
}

static bool find_listed(const struct cairn_split *split, const char *name, uint32_t *ret) {
    const struct listed wanted = {split, name};
    const uint32_t *found =
        bsearch(&wanted, split->sorted, split->count, sizeof *split->sorted, listed_order);
    if (found) *ret = *found;
    return found != NULL;
}

static bool same_part(const struct cairn_client_piece *a, const struct cairn_client_piece *b) {
    return a->dtype == b->dtype && a->dimension_count == b->dimension_count && a->form == b->form &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->fragment.start, b->fragment.start, sizeof a->fragment.start) == 0 &&
           memcmp(a->fragment.count, b->fragment.count, sizeof a->fragment.count) == 0;
}

/* The part of the piece that starts at byte `from`. */
static struct cairn_client_piece part_of(const struct cairn_client_piece *piece,
                                         const struct cairn_fragment *fragment, uint64_t from) {
    struct cairn_client_piece part = *piece;
    uint64_t elements = 1;
    bool flat = fragment->form == CAIRN_FRAGMENT_FLAT;
    part.kind = CAIRN_TENSOR_SHARDED;
    part.form = flat ? CAIRN_FLAT : CAIRN_BOX;
    part.fragment = *fragment;
    for (unsigned d = 0; d < (flat ? 1 : piece->dimension_count); d++)
        elements *= fragment->count[d];
    part.bytes = elements * cairn_dtype_bits(piece->dtype) / 8;
    uint64_t in_source = from; /* whole elements */
    if (piece->source_dtype != piece->dtype)
        in_source = from / (cairn_dtype_bits(piece->dtype) / 8) *
                    (cairn_dtype_bits(piece->source_dtype) / 8);
    if (piece->source && !piece->strided)
        part.source = (const uint8_t *)piece->source + in_source;
    else
        part.source_from = in_source;
    part.file_offset += from;
    return part;
}

static unsigned cut(const struct cairn_split *split, uint32_t of,
                    const struct cairn_client_piece *piece,
                    struct cairn_client_piece ret[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX]) {
    struct cairn_fragment fragments[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX];
    CAIRN_PROMISE(split->share[of], return 0); /* 0: this rank has no share */
    const struct cairn_plan_share *share = &split->plan.shares[split->share[of] - 1];
    uint64_t from = share->start * cairn_dtype_bits(piece->dtype) / 8;
    const struct cairn_plan_split_item item = {.dimension_count = piece->dimension_count,
                                               .form = (enum cairn_plan_form)piece->form,
                                               .start = piece->fragment.start,
                                               .count = piece->fragment.count};
    unsigned count = cairn_plan_share_fragments(&item, share, fragments);
    if (!count ||
        (!share->start && piece->form == CAIRN_WHOLE && share->count == piece->fragment.count[0])) {
        ret[0] = *piece; /* the whole tensor, or an empty one: as described */
        ret[0].kind = CAIRN_TENSOR_SHARDED;
        return 1;
    }
    for (unsigned i = 0; i < count; i++) {
        ret[i] = part_of(piece, &fragments[i], from);
        from += ret[i].bytes;
    }
    CAIRN_PROMISE(from <= piece->bytes, return 0); /* else bytes beyond the source would be read */
    return count;
}

enum cairn_code
cairn_client_shares_cut(struct cairn_client_shares *shares, const struct cairn_client_piece *piece,
                        bool *ret_listed,
                        struct cairn_client_piece ret[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX],
                        unsigned *ret_count, struct cairn_error *err) {
    *ret_listed = false;
    *ret_count = 0;
    if (piece->kind != CAIRN_TENSOR_SHARDED && piece->kind != CAIRN_TENSOR_REPLICATED)
        return CAIRN_OK;
    for (size_t i = 0; i < shares->count; i++) {
        struct cairn_split *split = shares->splits[i];
        uint32_t at;
        if (!find_listed(split, piece->name, &at)) continue;
        if (*ret_listed)
            return cairn_fail(err, CAIRN_INVALID,
                              "it is listed in the replica groups of two splits");
        if (shares->seen[i][at])
            return cairn_fail(err, CAIRN_INVALID, "it is described twice, and is of group \"%s\"",
                              split->group);
        if (!same_part(&split->pieces[at], piece))
            return cairn_fail(err, CAIRN_INVALID,
                              "dtype, shape or part are not those that group \"%s\" has listed",
                              split->group);
        shares->seen[i][at] = shares->call;
        *ret_listed = true;
        if (split->share[at]) *ret_count = cut(split, at, piece, ret);
    }
    return CAIRN_OK;
}

bool cairn_client_shares_list(const struct cairn_client_shares *shares, const char *name) {
    uint32_t at;
    for (size_t i = 0; i < shares->count; i++)
        if (find_listed(shares->splits[i], name, &at)) return true;
    return false;
}

void cairn_client_shares_call(struct cairn_client_shares *shares) {
    if (!++shares->call) shares->call = 1; /* 0: not described */
}

void cairn_client_shares_undo(struct cairn_client_shares *shares) {
    for (size_t i = 0; i < shares->count; i++)
        for (size_t k = 0; k < shares->splits[i]->count; k++)
            if (shares->seen[i][k] == shares->call) shares->seen[i][k] = 0;
}

/* ---- known pieces ---- */

static enum cairn_code join_one(const struct cairn_split *split, uint32_t *seen,
                                const uint32_t *more, uint32_t call, struct cairn_error *err) {
    for (size_t k = 0; k < split->count; k++)
        if (seen[k] && more[k])
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor %s is described twice, and is of group \"%s\"",
                              split->pieces[k].name, split->group);
    for (size_t k = 0; k < split->count; k++)
        if (more[k]) seen[k] = call;
    return CAIRN_OK;
}

enum cairn_code cairn_client_shares_join(struct cairn_client_shares *shares,
                                         const struct cairn_client_shares *known,
                                         struct cairn_error *err) {
    bool same = shares->count == known->count;
    for (size_t i = 0; i < known->count && same; i++) same = shares->splits[i] == known->splits[i];
    if (!same)
        return cairn_fail(err, CAIRN_INVALID,
                          "the save was begun with other splits than its pieces were described "
                          "with");
    for (size_t i = 0; i < known->count; i++)
        CAIRN_TRY(join_one(shares->splits[i], shares->seen[i], known->seen[i], shares->call, err));
    return CAIRN_OK;
}

enum cairn_code cairn_client_shares_complete(const struct cairn_client_shares *shares,
                                             struct cairn_error *err) {
    for (size_t i = 0; i < shares->count; i++) {
        const struct cairn_split *split = shares->splits[i];
        for (size_t k = 0; k < split->count; k++)
            if (split->share[k] && !shares->seen[i][k])
                return cairn_fail(err, CAIRN_INVALID,
                                  "tensor %.300s of group \"%s\" was not described, and this rank "
                                  "saves a share of it",
                                  split->pieces[k].name, split->group);
    }
    return CAIRN_OK;
}

/* ---- looks; a group without a list in this save is answered without digests ---- */

bool cairn_client_can_look(struct cairn_session *session) {
    return cairn_client_speaks(session, VERSION_OF_LOOKS, "looks at lists", NULL) == CAIRN_OK;
}

enum cairn_code cairn_client_lists_keep(struct cairn_save *save, struct cairn_error *err) {
    size_t count = save->shares.count;
    save->lists = calloc(count + 1, sizeof(struct cairn_split *));
    if (!save->lists) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the save's splits");
    for (size_t i = 0; i < count; i++) {
        save->lists[i] = save->shares.splits[i];
        atomic_fetch_add(&save->lists[i]->users, 1);
    }
    save->list_count = count;
    return CAIRN_OK;
}

void cairn_client_lists_drop(struct cairn_save *save) {
    for (size_t i = 0; i < save->list_count; i++) cairn_split_free(save->lists[i]);
    free(save->lists);
    save->lists = NULL;
    save->list_count = 0;
}

static const struct cairn_split *list_of(const struct cairn_save *save, const char *group) {
    for (size_t i = 0; i < save->list_count; i++)
        if (strcmp(save->lists[i]->group, group) == 0) return save->lists[i];
    return NULL;
}

static struct cairn_plan_split_item item_at(const void *owner, size_t place) {
    const struct cairn_split *split = owner;
    return item_of(&split->pieces[split->sorted[place]]);
}

void cairn_client_look(struct cairn_save *save, const json_t *message) {
    struct cairn_msg_look told = {0};
    char digests[DIGEST_TEXT * CAIRN_PLAN_SPLIT_PARTS + 1] = "";
    const char *tensor = NULL;
    if (cairn_msg_look_read(message, "", &told, NULL) != CAIRN_OK || told.from >= told.to) return;
    const struct cairn_split *split = list_of(save, told.group);
    bool one = told.to - told.from == 1;
    if (split && !one) {
        const struct cairn_plan_split_list list = {split->count, item_at, split};
        uint64_t found[CAIRN_PLAN_SPLIT_PARTS];
        unsigned count = cairn_plan_split_look(&list, told.from, told.to, found);
        for (unsigned i = 0; i < count; i++)
            snprintf(digests + (size_t)DIGEST_TEXT * i, DIGEST_TEXT + 1, "%016" PRIx64, found[i]);
    }
    if (split && one && told.from < split->count)
        tensor = split->pieces[split->sorted[told.from]].name;
    CAIRN_AUTO_JSON json_t *body =
        CAIRN_PACK(looked, .save = told.save, .group = told.group, .from = told.from, .to = told.to,
                   .digests = digests[0] ? digests : NULL, .tensor = tensor);
    struct cairn_client_message *made = NULL;
    const struct cairn_view none = {0};
    if (!body || cairn_client_message_new(body, none, NULL, 0, &made, NULL) != CAIRN_OK) return;
    cairn_client_enqueue(save->session, made);
    cairn_client_wake(save->session);
}
