/* SPDX-License-Identifier: Apache-2.0 */
/* share: a piece that is listed in a group is cut to this rank's share of it. */
#include "client/save/share.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/text.h"

#define GROUPS_MAX 64 /* of one rank: server/versions/groups.h */

void cairn_client_shares_release(struct cairn_client_shares *shares) {
    for (size_t i = 0; shares->seen && i < shares->count; i++) free(shares->seen[i]);
    free(shares->seen);
    *shares = (struct cairn_client_shares){0};
}

/* ---- what a begin says of them ---- */

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
    if (split->begins++ >= CAIRN_CLIENT_MARKED_BEGINS)
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
    *shares = (struct cairn_client_shares){splits, count, calloc(count, sizeof *shares->seen)};
    bool short_of_memory = !all || !shares->seen;
    for (size_t i = 0; i < count && !short_of_memory; i++) {
        if (!splits[i]) return cairn_fail(err, CAIRN_INVALID, "split %zu of the save is NULL", i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(splits[k]->group, splits[i]->group) == 0)
                return cairn_fail(err, CAIRN_INVALID, "two splits of the save are of group \"%s\"",
                                  splits[i]->group);
        CAIRN_TRY(cairn_client_split_plan(splits[i], err));
        shares->seen[i] = calloc(splits[i]->count + 1, sizeof **shares->seen);
        short_of_memory =
            !shares->seen[i] || json_array_append_new(all, split_json(splits[i], finer)) != 0;
    }
    if (short_of_memory) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the save's splits");
    *ret_json = CAIRN_TAKE(all);
    return CAIRN_OK;
}

/* ---- cutting ---- */

static bool find(const struct cairn_split *split, const char *name, uint32_t *ret) {
    size_t low = 0, high = split->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(split->pieces[split->sorted[middle]].name, name);
        if (order == 0) {
            *ret = split->sorted[middle];
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static bool same_part(const struct cairn_client_piece *a, const struct cairn_client_piece *b) {
    return a->dtype == b->dtype && a->dimension_count == b->dimension_count && a->form == b->form &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->fragment.start, b->fragment.start, sizeof a->fragment.start) == 0 &&
           memcmp(a->fragment.count, b->fragment.count, sizeof a->fragment.count) == 0;
}

/* From byte `from` of the piece on. */
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
    CAIRN_PROMISE(split->share[of], return 0); /* 0: this rank has none of it */
    const struct cairn_plan_share *share = &split->plan.shares[split->share[of] - 1];
    uint64_t from = share->start * cairn_dtype_bits(piece->dtype) / 8;
    const struct cairn_plan_split_item item = {.dimension_count = piece->dimension_count,
                                               .form = (enum cairn_plan_form)piece->form,
                                               .start = piece->fragment.start,
                                               .count = piece->fragment.count};
    unsigned count = cairn_plan_share_fragments(&item, share, fragments);
    if (!count ||
        (!share->start && piece->form == CAIRN_WHOLE && share->count == piece->fragment.count[0])) {
        ret[0] = *piece; /* all of it, or a tensor without elements: as it was described */
        ret[0].kind = CAIRN_TENSOR_SHARDED;
        return 1;
    }
    for (unsigned i = 0; i < count; i++) {
        ret[i] = part_of(piece, &fragments[i], from);
        from += ret[i].bytes;
    }
    CAIRN_PROMISE(from <= piece->bytes, return 0); /* else bytes beyond the source are read */
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
        if (!find(split, piece->name, &at)) continue;
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
        shares->seen[i][at] = *ret_listed = true;
        if (split->share[at]) *ret_count = cut(split, at, piece, ret);
    }
    return CAIRN_OK;
}

bool cairn_client_shares_list(const struct cairn_client_shares *shares, const char *name) {
    uint32_t at;
    for (size_t i = 0; i < shares->count; i++)
        if (find(shares->splits[i], name, &at)) return true;
    return false;
}

void cairn_client_shares_forget(struct cairn_client_shares *shares, const char *name) {
    uint32_t at;
    for (size_t i = 0; i < shares->count; i++)
        if (find(shares->splits[i], name, &at)) shares->seen[i][at] = false;
}

/* ---- known pieces ---- */

static enum cairn_code join_one(const struct cairn_split *split, bool *seen, const bool *more,
                                struct cairn_error *err) {
    for (size_t k = 0; k < split->count; k++)
        if (seen[k] && more[k])
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor %s is described twice, and is of group \"%s\"",
                              split->pieces[k].name, split->group);
    for (size_t k = 0; k < split->count; k++) seen[k] = seen[k] || more[k];
    return CAIRN_OK;
}

enum cairn_code cairn_client_shares_join(struct cairn_client_shares *shares,
                                         const struct cairn_client_shares *known,
                                         struct cairn_error *err) {
    bool same = shares->count == known->count;
    for (size_t i = 0; i < known->count && same; i++)
        same = shares->splits[i] == known->splits[i];
    if (!same)
        return cairn_fail(err, CAIRN_INVALID,
                          "the save was begun with other splits than its pieces were described "
                          "with");
    for (size_t i = 0; i < known->count; i++)
        CAIRN_TRY(join_one(shares->splits[i], shares->seen[i], known->seen[i], err));
    return CAIRN_OK;
}

void cairn_client_shares_part(struct cairn_client_shares *shares,
                              const struct cairn_client_shares *known) {
    for (size_t i = 0; i < shares->count && i < known->count; i++)
        for (size_t k = 0; k < shares->splits[i]->count; k++)
            if (known->seen[i][k]) shares->seen[i][k] = false;
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
