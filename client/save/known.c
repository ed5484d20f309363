/* SPDX-License-Identifier: Apache-2.0 */
/* What they hold, and the arrays that saves give back. */
#include "client/save/known.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "client/save/split.h"

uint64_t cairn_client_known_number(void) {
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

void cairn_client_known_hold(struct cairn_pieces *known) {
    atomic_fetch_add(&known->users, 1);
}

static void free_splits(struct cairn_client_shares *shares) {
    for (size_t i = 0; i < shares->count; i++) {
        if (shares->seen) free(shares->seen[i]);
        if (shares->splits) cairn_split_free(shares->splits[i]);
    }
    free(shares->seen);
    free((void *)(uintptr_t)shares->splits);
}

void cairn_pieces_free(struct cairn_pieces *known) {
    if (!known || atomic_fetch_sub(&known->users, 1) > 1) return;
    for (size_t i = 0; i < known->count; i++) free(known->pieces[i].strided);
    for (size_t i = 0; i < known->raw_count; i++) free(known->raws[i].name);
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES; i++) free(known->spares[i]);
    cairn_client_texts_release(&known->texts);
    free_splits(&known->shares);
    free(known->pieces);
    free(known->raws);
    free(known);
}

void cairn_client_known_give(struct cairn_pieces *known, struct cairn_client_piece *take_pieces) {
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES && take_pieces; i++) {
        struct cairn_client_piece *none = NULL;
        if (atomic_compare_exchange_strong(&known->spares[i], &none, take_pieces)) return;
    }
    free(take_pieces);
}

struct cairn_client_piece *cairn_client_known_take(struct cairn_pieces *known) {
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES; i++) {
        struct cairn_client_piece *found = atomic_exchange(&known->spares[i], NULL);
        if (found) return found;
    }
    struct cairn_client_piece *made = malloc((known->count + 1) * sizeof *made);
    if (made && known->count) memcpy(made, known->pieces, known->count * sizeof *made);
    return made;
}

/* ---- what a save consisted of ---- */

static bool is_repeatable(const struct cairn_save *save) {
    for (size_t i = 0; i < save->raw_count; i++)
        if (save->raws[i].file) return false;
    return !save->owned_count;
}

/* The splits are the caller's, who may free them. */
static bool take_shares(struct cairn_client_shares *shares, struct cairn_client_shares *ret) {
    if (!shares->count) return true;
    struct cairn_split **splits = malloc(shares->count * sizeof *splits);
    if (!splits) return false;
    for (size_t i = 0; i < shares->count; i++) {
        splits[i] = shares->splits[i];
        atomic_fetch_add(&splits[i]->users, 1);
    }
    *ret = (struct cairn_client_shares){splits, shares->count, CAIRN_TAKE(shares->seen)};
    return true;
}

struct cairn_pieces *cairn_client_known_of(struct cairn_save *save) {
    struct cairn_pieces *known = save->known;
    if (!is_repeatable(save)) return NULL;
    if (known) {
        if (save->piece_count != known->count || save->raw_count != known->raw_count) return NULL;
        cairn_client_known_hold(known);
        return known;
    }
    struct cairn_pieces *made = calloc(1, sizeof *made);
    if (!made || !take_shares(&save->shares, &made->shares)) {
        free(made);
        return NULL;
    }
    made->users = 1;
    made->number = save->number;
    made->count = save->piece_count;
    made->raw_count = save->raw_count;
    made->source_count = save->source_count;
    made->texts = save->texts;
    made->pieces = CAIRN_TAKE(save->pieces);
    made->raws = CAIRN_TAKE(save->raws);
    for (size_t i = 0; i < made->count; i++) made->pieces[i].late = false;
    save->texts = (struct cairn_client_texts){0};
    save->piece_count = save->piece_capacity = save->raw_count = save->raw_capacity = 0;
    return made;
}
