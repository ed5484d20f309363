/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls of splits: a list is built, planned once, and asked. */
#include "client/save/split.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "api/documents/names.h"
#include "client/save/describe.h"
#include "client/session/options.h"
#include "common/buf.h"
#include "common/text.h"

#define GROUP_NAME_BYTES_MAX 256

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
    CAIRN_TRY(cairn_client_piece_read(&own, &made, err));
    if (own.kind == CAIRN_ALIAS) return CAIRN_OK; /* it has no bytes that could be shared out */
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

struct cairn_plan_split_item cairn_client_split_item(const struct cairn_client_piece *piece) {
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

enum cairn_code cairn_client_split_plan(struct cairn_split *split, struct cairn_error *err) {
    if (split->planned) return CAIRN_OK;
    CAIRN_AUTO_HEAP struct cairn_plan_split_item *items = calloc(split->count + 1, sizeof *items);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a split");
    for (size_t i = 0; i < split->count; i++) items[i] = cairn_client_split_item(&split->pieces[i]);
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
    CAIRN_TRY(cairn_client_split_plan(split, err));
    *ret = split->plan.bytes[member];
    return CAIRN_OK;
}

enum cairn_code cairn_split_share_at(struct cairn_split *split, uint32_t member, uint32_t index,
                                     struct cairn_split_share *ret, struct cairn_error *err) {
    if (!split || member >= split->members)
        return cairn_fail(err, CAIRN_INVALID, "no split, or no such member of it");
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(cairn_client_split_plan(split, err));
    const struct cairn_plan_split *plan = &split->plan;
    if (index >= plan->first[member + 1] - plan->first[member])
        return cairn_fail(err, CAIRN_NOT_FOUND, "member %u has %u shares", member,
                          plan->first[member + 1] - plan->first[member]);
    const struct cairn_plan_share *share = &plan->shares[plan->first[member] + index];
    *ret = (struct cairn_split_share){split->pieces[share->item].name, share->start, share->count};
    return CAIRN_OK;
}
