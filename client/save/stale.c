/* SPDX-License-Identifier: Apache-2.0 */
/* The checksums of a save's blocks beside those of the save before. */
#include "client/save/stale.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPARED_MIN 2 /* comparisons that make a habit of a block's change */

void cairn_client_stale_release(struct cairn_client_stale *stale) {
    free(stale->blocks);
    free(stale->follows);
    *stale = (struct cairn_client_stale){0};
}

/* Without memory nothing is compared. */
static void begin(struct cairn_client_stale *stale, uint64_t step, const uint32_t *blocks,
                  size_t count) {
    cairn_client_stale_release(stale);
    stale->blocks = malloc((count + 1) * sizeof *blocks);
    stale->follows = malloc(count + 1);
    if (!stale->blocks || !stale->follows) {
        cairn_client_stale_release(stale);
        return;
    }
    if (count) memcpy(stale->blocks, blocks, count * sizeof *blocks);
    memset(stale->follows, 1, count + 1);
    stale->count = count;
    stale->step = step;
}

void cairn_client_stale_look(struct cairn_save *save, const uint32_t *blocks, size_t count,
                             char ret_text[CAIRN_CLIENT_STALE_TEXT_BYTES]) {
    ret_text[0] = '\0';
    CAIRN_HOLD(&save->session->lock);
    struct cairn_client_saves *saves = save->session->saves;
    struct cairn_client_stale *stale = &saves->stale;
    size_t follow = 0, same = 0;
    if (!stale->blocks || stale->count != count) {
        begin(stale, save->step, blocks, count);
        return;
    }
    if (save->step == stale->step) return; /* the same step again: it is to be the same */
    for (size_t i = 0; i < count; i++) {
        follow += stale->follows[i];
        same += stale->follows[i] && blocks[i] == stale->blocks[i];
    }
    bool is_stale = stale->compared >= COMPARED_MIN && follow && 2 * same >= follow;
    if (is_stale)
        snprintf(ret_text, CAIRN_CLIENT_STALE_TEXT_BYTES,
                 "of %zu MiB that had changed in every save before, %zu are those of step %" PRIu64,
                 follow, same, stale->step);
    if (is_stale && !stale->is_stale)
        (void)cairn_fail(&saves->stale_warning, CAIRN_UNAVAILABLE,
                         "step %" PRIu64 " may be stale: %s; does the state that is saved follow "
                         "the training, or is it a copy that is not renewed?",
                         save->step, ret_text);
    for (size_t i = 0; i < count && !is_stale; i++)
        stale->follows[i] &= blocks[i] != stale->blocks[i];
    if (!is_stale) stale->compared++;
    stale->is_stale = is_stale;
    stale->step = save->step;
    if (count) memcpy(stale->blocks, blocks, count * sizeof *blocks);
}
