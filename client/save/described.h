/* SPDX-License-Identifier: Apache-2.0 */
/*
 * described: what a save consists of, in bytes that are equal when its layout is.
 *
 * Why:     most saves of a job have the layout of the one before. Its pieces need no sorting, its
 *          header and table no building, and its table is known to the uploader.
 * Promise: 1   equal bytes mean the same header, the same table and the same place of every byte.
 *              Sources, strides and devices are not in them: they may change from save to save.
 * Limits:  CAIRN_CLIENT_DESCRIBED_BYTES_MAX; a larger one is not kept, and every save is new.
 * Threads: pure.
 * Next:    client/save/arrange.h.
 */
#pragma once

#include "client/save/save.h"

#define CAIRN_CLIENT_DESCRIBED_BYTES_MAX (2 * CAIRN_TABLE_BYTES_MAX)

/* Empty where it is too large, or there is no memory. */
void cairn_client_described(const struct cairn_save *save, struct cairn_buf *ret);
/* Is that what this save consists of? Compared piece by piece, without a copy. */
bool cairn_client_described_is(const struct cairn_save *save, struct cairn_view known);
