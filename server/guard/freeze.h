/* SPDX-License-Identifier: Apache-2.0 */
/*
 * freeze: runs of which the store knows more than the catalog are stopped, each for itself.
 *
 * Why:     a catalog that is behind its store in one run must not answer, resume or delete there,
 *          and must not stop the others; nor may a restart forget that.
 * Promise: Q36  a frozen run answers CAIRN_CATALOG_BEHIND wherever a write or a `latest` is asked
 *               for; its bytes are read by version id. It ends with a reconcile alone.
 *          1   a run is frozen once and logged once, with the reason; other runs go on.
 * Limits:  reasons of CAIRN_SRV_CAUSE_BYTES.
 * Threads: any.
 * Next:    server/recovery/recovery.h finds them, and ends them.
 */
#pragma once

#include "server/ledger/frozen.h"
#include "server/server.h"

/* At start: how many there are. */
enum cairn_code cairn_srv_frozen_start(struct cairn_srv *server,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Makes the run's row if need be, and fails: CAIRN_CATALOG_BEHIND, or that it could not be
 * written. */
enum cairn_code cairn_srv_run_freeze(struct cairn_srv *server, const struct cairn_run_name *name,
                                     const char *why, struct cairn_error *err) CAIRN_MUST_USE;
/* The same, and a reconcile is requested: who started this server has asked for that. */
enum cairn_code cairn_srv_run_freeze_asked(struct cairn_srv *server,
                                           const struct cairn_run_name *name, const char *why,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* In how many seconds to ask again after CAIRN_CATALOG_BEHIND of this run, whose reconcile was
 * requested; 0: it waits for an operator, or the whole server does. */
uint32_t cairn_srv_run_thaws_in_s(struct cairn_srv *server, const struct cairn_run_name *name);
/* CAIRN_CATALOG_BEHIND when the server or this run is frozen. */
enum cairn_code cairn_srv_run_thawed(struct cairn_srv *server, const struct cairn_run_name *name,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* For people: how many runs are frozen, and the first of them. */
#define CAIRN_SRV_FROZEN_BYTES 720
uint64_t cairn_srv_frozen_text(struct cairn_srv *server, char ret[CAIRN_SRV_FROZEN_BYTES]);
