/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split: tensors that a replica group's members hold alike: shares, checks, and descriptions.
 *
 * Why:     replicas that each save everything multiply the bytes written; this rank's share of a
 *          tensor is looked up while a save is described. A begin carries one digest of a list of
 *          up to a million tensors; only if two lists differ does the server look for the tensor.
 * Promise: 1   every member that describes the same tensors computes the same shares, without a
 *              message. The plan is made once, on first use; nothing can be added later.
 *          2   a save stores exactly its share of a listed tensor; a listed tensor that was not
 *              described fails the stage, by name.
 *          3   every begin carries the groups' digests; the first four of a split carry the marks,
 *              too, so that ranks with different lists learn where they differ.
 *          4   a list can be looked at until its save is forgotten, even after the caller freed the
 *              split. A look requests CAIRN_PLAN_SPLIT_PARTS digests, or one name.
 *          5   a described piece lies within its tensor and fills whole bytes.
 * Limits:  as plan/split.h and include/cairn/cairn.h.
 * Threads: one thread until a begin plans it; immutable afterwards, so the session's thread may
 *          look at it under the session's lock. It stays until its saves are staged.
 * Next:    plan/split.h; client/save/pieces.c takes shares, uploader/server/outbox.h sends looks.
 */
#pragma once

#include "client/save/save.h"
#include "plan/split.h"

/* ---- checks of a piece that the caller describes ---- */

enum cairn_code cairn_client_piece_name(const char *name, struct cairn_error *err) CAIRN_MUST_USE;
/* Checks dtype, shape and tensor bytes; _form checks form, place and piece bytes. */
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
    struct cairn_client_piece *pieces; /* owned, with names; bytes: of the region */
    size_t count, capacity;
    bool planned;
    struct cairn_plan_split plan;
    uint32_t *sorted; /* owned: piece indexes by name */
    uint32_t *share;  /* owned: per piece, 1 + index in the plan of this rank's share; 0: none */
    uint32_t begins;
    _Atomic uint32_t users; /* the caller, and saves whose failure may cause a look */
};

/* ---- the groups of a save ---- */

void cairn_client_shares_release(struct cairn_client_shares *shares);
/* Plans the splits; *ret_json is field `splits` of a begin. finer: looks are supported. */
enum cairn_code cairn_client_shares_open(struct cairn_client_shares *shares,
                                         struct cairn_split *const *splits, size_t count,
                                         bool finer, json_t **ret_json,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_listed: a group lists the tensor, and ret holds *ret_count pieces to save in its place, with
 * form, fragment and bytes set, sources and file offsets moved, the rest as in `piece`.
 * CAIRN_INVALID: described twice, or not the listed part. */
enum cairn_code
cairn_client_shares_cut(struct cairn_client_shares *shares, const struct cairn_client_piece *piece,
                        bool *ret_listed,
                        struct cairn_client_piece ret[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX],
                        unsigned *ret_count, struct cairn_error *err) CAIRN_MUST_USE;
/* Marks the tensors of known pieces as described, by the same splits. CAIRN_INVALID: one already
 * is, or the save has other splits. */
enum cairn_code cairn_client_shares_join(struct cairn_client_shares *shares,
                                         const struct cairn_client_shares *known,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* A call that describes begins; _undo marks the tensors that it described as not described. */
void cairn_client_shares_call(struct cairn_client_shares *shares);
void cairn_client_shares_undo(struct cairn_client_shares *shares);
/* True: a group lists the named tensor. */
bool cairn_client_shares_list(const struct cairn_client_shares *shares, const char *name);
/* CAIRN_INVALID: a tensor with a share of this rank was not described. */
enum cairn_code cairn_client_shares_complete(const struct cairn_client_shares *shares,
                                             struct cairn_error *err) CAIRN_MUST_USE;

/* ---- looks at parts of a list (Q10) ---- */

/* True: the uploader's release supports looks. */
bool cairn_client_can_look(struct cairn_session *session);
/* Keeps the splits of save->shares until lists_drop. */
enum cairn_code cairn_client_lists_keep(struct cairn_save *save,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_lists_drop(struct cairn_save *save);
/* Answers the event `look`. */
void cairn_client_look(struct cairn_save *save, const json_t *message);
