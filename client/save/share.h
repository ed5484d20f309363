/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share: a replica group's tensors as its members listed them, and which part of each is this
 * rank's to save.
 *
 * Why:     trainers hold whole tensors; which elements of them this rank saves is looked up here
 *          while a save is described, so that no trainer cuts by itself.
 * Promise: 1   the plan is made once, when it is first asked for; nothing can be added afterwards.
 *          2   what a save gets of a listed tensor is its share and nothing else; a tensor that is
 *              listed and was not described fails the stage, by name.
 *          3   every begin says the groups' digests; the first CAIRN_CLIENT_MARKED_BEGINS say the
 *              marks, too, so that ranks whose lists differ learn where.
 * Limits:  as plan/split.h.
 * Threads: a split belongs to one thread at a time, and stays until the saves begun with it are
 *          staged.
 * Next:    plan/split.h; client/save/pieces.c asks for shares.
 */
#pragma once

#include "client/save/split.h"

void cairn_client_shares_release(struct cairn_client_shares *shares);
/* Plans the splits; *ret_json is the field `splits` of a begin. finer: looks at them can be asked
 * for (client/save/look.h). */
enum cairn_code cairn_client_shares_open(struct cairn_client_shares *shares,
                                         struct cairn_split *const *splits, size_t count,
                                         bool finer, json_t **ret_json,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_listed: it is one of a group's tensors, and ret holds *ret_count pieces to save instead of
 * it, with form, fragment and bytes set and the rest as in `piece`; sources and offsets in files
 * are moved. CAIRN_INVALID: it was described twice, or is not the part that was listed. */
enum cairn_code
cairn_client_shares_cut(struct cairn_client_shares *shares, const struct cairn_client_piece *piece,
                        bool *ret_listed,
                        struct cairn_client_piece ret[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX],
                        unsigned *ret_count, struct cairn_error *err) CAIRN_MUST_USE;
/* The tensors of known pieces are described, by the same splits. CAIRN_INVALID: one is described
 * already, or the save has other splits. */
enum cairn_code cairn_client_shares_join(struct cairn_client_shares *shares,
                                         const struct cairn_client_shares *known,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* They are not, after all. */
void cairn_client_shares_part(struct cairn_client_shares *shares,
                              const struct cairn_client_shares *known);
/* The tensor of that name is not described, after all. */
void cairn_client_shares_forget(struct cairn_client_shares *shares, const char *name);
/* Is the tensor of that name in one of the groups? */
bool cairn_client_shares_list(const struct cairn_client_shares *shares, const char *name);
/* Was each tensor described of which this rank has a share? */
enum cairn_code cairn_client_shares_complete(const struct cairn_client_shares *shares,
                                             struct cairn_error *err) CAIRN_MUST_USE;
