/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_look: is a copy whole in its store, as far as a look at its objects tells?
 *
 * Why:     before a copy gets its record, and before another one is removed since this one is
 *          there, the store itself is asked and not the row.
 * Promise: 1   every shard and checksums.bin with their sizes, manifest, layout, and, where asked
 *              for, the record; a HEAD of its own before anything is called missing.
 * Limits:  as store/presence.h.
 * Threads: one owner of the worker.
 * Next:    server/copies/promote.c, server/copies/demote.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "store/store.h"

/* version: with its manifest. CAIRN_CORRUPT names what is missing. */
enum cairn_code cairn_srv_copy_look(struct cairn_store_worker *worker,
                                    const struct cairn_committed *version, bool with_record,
                                    struct cairn_error *err) CAIRN_MUST_USE;
