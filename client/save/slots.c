/* SPDX-License-Identifier: Apache-2.0 */
/* Places in the slab that the caller fills itself: a pinned copy of its own, a kernel, a reader. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/save/stage.h"
#include "client/save/stager.h"
#include "client/session/options.h"

/* By index, in the order in which they were described. */
static enum cairn_code list_slots(struct cairn_client_stager *stager, struct cairn_error *err) {
    struct cairn_save *save = stager->save;
    if (stager->slots) return CAIRN_OK;
    stager->slots = calloc(save->piece_count + 1, sizeof(struct cairn_client_piece *));
    if (!stager->slots) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list of slots");
    for (size_t i = 0; i < save->piece_count; i++)
        if (save->pieces[i].by_caller) stager->slots[stager->slot_count++] = &save->pieces[i];
    return CAIRN_OK;
}

static enum cairn_code slot(struct cairn_save *save, uint32_t index,
                            struct cairn_client_piece **ret, struct cairn_error *err) {
    struct cairn_client_stager *stager = save->kept;
    if (stager && stager->copied)
        return cairn_fail(err, CAIRN_INVALID, "%s step %" PRIu64 ": it is copied already",
                          save->session->run, save->step);
    if (!stager) CAIRN_TRY(cairn_client_save_describable(save, err));
    CAIRN_TRY(cairn_client_stage_place(save, err));
    stager = save->kept;
    CAIRN_TRY(list_slots(stager, err));
    if (index >= stager->slot_count) return cairn_fail(err, CAIRN_NOT_FOUND, "no slot %u", index);
    *ret = stager->slots[index];
    return CAIRN_OK;
}

enum cairn_code cairn_save_slot_at(struct cairn_save *save, uint32_t index,
                                   struct cairn_save_slot *ret, struct cairn_error *err) {
    struct cairn_client_piece *piece = NULL;
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(slot(save, index, &piece, err));
    const struct cairn_client_stager *stager = save->kept;
    *ret = (struct cairn_save_slot){.name = piece->name, .bytes = piece->bytes};
    if (!piece->bytes) return CAIRN_OK;
    const struct cairn_client_shard *shard = &stager->arrangement.shards[0];
    CAIRN_PROMISE(shard->tensors && stager->slab &&
                      piece->fragment.offset_bytes + piece->bytes <= shard->bytes,
                  return cairn_fail(err, CAIRN_BROKEN, "a slot outside of its shard"));
    ret->to = stager->slab + shard->offset + piece->fragment.offset_bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_save_written(struct cairn_save *save, uint32_t index,
                                   struct cairn_error *err) {
    struct cairn_client_piece *piece = NULL;
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(slot(save, index, &piece, err));
    piece->written = true;
    return CAIRN_OK;
}
