/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep_temporaries: what small puts that died left in a folder store.
 *
 * Why:     a version's sweep looks below the version; records, layouts and generations are written
 *          beside it, and a file that was never published there stays for ever.
 * Promise: 1   deleted is only what was there, unpublished, at two looks an hour apart.
 * Limits:  1,000 of them an hour; folder stores only (an object store keeps nothing of a put that
 *          did not end).
 * Threads: the sweeping thread.
 * Next:    server/sweep/sweep.c.
 */
#pragma once

#include "server/server.h"

struct cairn_srv_temporaries;
enum cairn_code cairn_srv_temporaries_new(struct cairn_srv_temporaries **ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_temporaries_free(struct cairn_srv_temporaries *temporaries); /* NULL is fine */
/* One look; to be called once an hour. */
enum cairn_code cairn_srv_temporaries_sweep(struct cairn_srv_temporaries *temporaries,
                                            struct cairn_srv *server,
                                            struct cairn_store_worker *worker,
                                            struct cairn_error *err) CAIRN_MUST_USE;
