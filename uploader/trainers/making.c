/* SPDX-License-Identifier: Apache-2.0 */
/* A list that is walked: large frames are few, and each is far dearer than the walk. */
#include "uploader/trainers/making.h"

#define FRAME_BYTES_MAX (CAIRN_FRAME_JSON_BYTES_MAX + CAIRN_FRAME_BLOB_BYTES_MAX + CAIRN_KIB)

void cairn_up_makings_init(struct cairn_up_makings *makings, uint64_t budget_bytes) {
    uint64_t bytes = cairn_min_u64(budget_bytes / 8, CAIRN_UP_FRAMES_BYTES_MAX);
    *makings = (struct cairn_up_makings){.bytes_max = cairn_max_u64(bytes, FRAME_BYTES_MAX)};
}

void cairn_up_making_add(struct cairn_up_makings *makings, struct cairn_up_making *making,
                         uid_t uid, void *owner) {
    *making = (struct cairn_up_making){.uid = uid, .owner = owner, .next = makings->first};
    makings->first = making;
}

void cairn_up_making_remove(struct cairn_up_makings *makings, struct cairn_up_making *making) {
    struct cairn_up_making **at = &makings->first;
    while (*at && *at != making) at = &(*at)->next;
    if (*at) *at = making->next;
}

/* Nobody of that user who began before it waits, and it fits beside those that are read. */
static bool may_begin(const struct cairn_up_makings *makings,
                      const struct cairn_up_making *making) {
    uint64_t bytes = making->wanted_bytes;
    for (const struct cairn_up_making *at = makings->first; at; at = at->next) {
        if (at == making || at->uid != making->uid) continue;
        if (at->wanted_bytes && at->turn < making->turn) return false;
        bytes += at->reserved_bytes;
    }
    return bytes <= makings->bytes_max;
}

static bool take(const struct cairn_up_makings *makings, struct cairn_up_making *making) {
    if (!may_begin(makings, making)) return false;
    making->reserved_bytes = making->wanted_bytes;
    making->wanted_bytes = 0;
    return true;
}

bool cairn_up_making_begin(struct cairn_up_makings *makings, struct cairn_up_making *making,
                           uint64_t frame_bytes) {
    CAIRN_ASSERT(frame_bytes <= FRAME_BYTES_MAX);
    if (frame_bytes <= CAIRN_UP_SMALL_FRAME_BYTES || making->reserved_bytes) return true;
    if (!making->wanted_bytes) making->turn = ++makings->turns;
    making->wanted_bytes = frame_bytes;
    return take(makings, making);
}

void cairn_up_making_end(struct cairn_up_making *making) {
    making->reserved_bytes = making->wanted_bytes = 0;
}

struct cairn_up_making *cairn_up_making_next(struct cairn_up_makings *makings) {
    for (struct cairn_up_making *at = makings->first; at; at = at->next)
        if (at->wanted_bytes && take(makings, at)) return at;
    return NULL;
}

bool cairn_up_making_look(struct cairn_up_making *making, bool under_way) {
    if (!under_way || making->wanted_bytes) making->quiet_looks = 0;
    return under_way && !making->wanted_bytes &&
           ++making->quiet_looks > CAIRN_UP_FRAME_QUIET_LOOKS;
}
