/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split: tensors that the members of a replica group hold alike, who saves what of them, and what
 * is said of a piece.
 *
 * Why:     replicas that each save the whole write everything as often as there are of them; which
 *          elements of a whole tensor this rank saves is looked up while a save is described. A
 *          begin says one digest of a list of up to a million tensors; only where two lists differ
 *          is it worth asking which tensor it is.
 * Promise: 1   every member that describes the same tensors plans the same shares, without a
 *              message. The plan is made once, when it is first asked for; nothing can be added
 *              then.
 *          2   what a save gets of a listed tensor is its share and nothing else; a tensor that is
 *              listed and was not described fails the stage, by name.
 *          3   every begin says the groups' digests; the first four of a split say the marks, too,
 *              so that ranks whose lists differ learn where.
 *          4   a list can be looked at until its save is forgotten, also when its caller has freed
 *              the split. A look asks for CAIRN_PLAN_SPLIT_PARTS digests, or one name.
 *          5   a described piece lies within its tensor and fills whole bytes.
 * Limits:  as plan/split.h and include/cairn/cairn.h.
 * Threads: one thread's until a begin plans it; fixed from then on, so that the session's thread
 *          may look at it with the session's lock. It stays until the saves begun with it are
 *          staged.
 * Next:    plan/split.h; client/save/pieces.c asks for shares, uploader/server/outbox.h for looks.
 */
#pragma once

#include "client/save/save.h"
#include "plan/split.h"

/* ---- what a caller says of a piece of a tensor, checked ---- */

enum cairn_code cairn_client_piece_name(const char *name, struct cairn_error *err) CAIRN_MUST_USE;
/* dtype, shape and the tensor's bytes; then form, place and the piece's bytes. */
enum cairn_code cairn_client_piece_shape(const struct cairn_tensor_piece *from,
                                         struct cairn_client_piece *ret, uint64_t *ret_elements,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_client_piece_form(const struct cairn_tensor_piece *from, uint64_t elements,
                                        struct cairn_client_piece *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* ---- a list of tensors ---- */

struct cairn_split {
    char *group; /* owned */
    uint32_t member, members;
    enum cairn_plan_split_by by;
    uint32_t *weights;                 /* owned; NULL: equal */
    struct cairn_client_piece *pieces; /* owned, with their names; bytes: of the region */
    size_t count, capacity;
    bool planned;
    struct cairn_plan_split plan;
    uint32_t *sorted; /* owned: pieces by name */
    uint32_t *share;  /* owned: 1 + place in the plan of this rank's share of a piece; 0: none */
    uint32_t begins;
    _Atomic uint32_t users; /* its caller, and saves whose end may ask for a look at it */
};

/* ---- the groups of a save ---- */

void cairn_client_shares_release(struct cairn_client_shares *shares);
/* Plans the splits; *ret_json is the field `splits` of a begin. finer: looks at them can be asked
 * for (client/save/split.h). */
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
/* Undoes cairn_client_shares_join. */
void cairn_client_shares_part(struct cairn_client_shares *shares,
                              const struct cairn_client_shares *known);
/* The tensor of that name counts as not described. */
void cairn_client_shares_forget(struct cairn_client_shares *shares, const char *name);
/* True: a group has listed the tensor of that name. */
bool cairn_client_shares_list(const struct cairn_client_shares *shares, const char *name);
/* CAIRN_INVALID: a tensor of which this rank has a share was not described. */
enum cairn_code cairn_client_shares_complete(const struct cairn_client_shares *shares,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what a list has at some places of it (Q10) ---- */

/* True: the uploader is of a release that asks for looks. */
bool cairn_client_can_look(struct cairn_session *session);
/* Keeps the splits of save->shares until lists_drop. */
enum cairn_code cairn_client_lists_keep(struct cairn_save *save,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_lists_drop(struct cairn_save *save);
/* Answers the event `look`. */
void cairn_client_look(struct cairn_save *save, const json_t *message);
