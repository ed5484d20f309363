/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the whole that every room may call. */
#include "uploader/up.h"

enum cairn_code cairn_up_admits(struct cairn_up *up, struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    if (!up->locked.draining) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader of node %s is stopping",
                      up->places.node);
}
