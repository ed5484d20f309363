/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify: what the changes of one server tell the others that share its catalog, and who hears it.
 *
 * Why:     a request waits at one server for what another one changes. To look again and again
 *          meanwhile costs a look a moment of each that waits, and is late all the same.
 * Promise: 1   what a change tells is heard by each other server that listens, when the change is
 *              committed and can be seen; what an undone change tells, by nobody.
 *          2   while hears() is true a session listens, and has said something within 10 s. When it
 *              is lost, and when there is one again, changed() is called with CAIRN_SRV_NOTIFY_ALL:
 *              anything may have been told meanwhile.
 *          3   nobody is called for what his own server told.
 * Limits:  a hint, not a record: who waits looks at the catalog, and looks again after a time
 *          without being told (http/http.c). 400 keys a transaction; more are told as ALL.
 * Threads: tell inside a change; changed() on the listener's own thread; hears() on any.
 * Next:    server/db/engine_postgres.c; server/http/waiters.h; E2 in server/README.md.
 */
#pragma once

#include "api/keys.h"
#include "server/db/catalog.h"

#define CAIRN_SRV_NOTIFY_ALL UINT64_C(0)
#define CAIRN_SRV_NOTIFY_EVENTS UINT64_C(1) /* there are new rows of events */

/* What a text is known by, here and to other servers. */
uint64_t cairn_srv_key_of(const char *text);
uint64_t cairn_srv_key_of_run(const struct cairn_run_name *name);

/* Inside a change: who waits for it at another server looks again. */
void cairn_srv_notify_events(struct cairn_srv_tx *tx);
void cairn_srv_notify_text(struct cairn_srv_tx *tx, const char *text);
void cairn_srv_notify_run(struct cairn_srv_tx *tx, const struct cairn_run_name *name);
/* Of a version, and of its run. */
void cairn_srv_notify_version(struct cairn_srv_tx *tx, const struct cairn_version_id *id,
                              const struct cairn_run_name *name);

struct cairn_srv_engine;
struct cairn_srv_listener;
/* *ret stays NULL where nobody else changes the catalog. */
enum cairn_code cairn_srv_listener_new(const struct cairn_srv_engine *engine, void *place,
                                       void (*changed)(void *owner, uint64_t key), void *owner,
                                       struct cairn_srv_listener **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Nobody is called any more; others may still ask hears(). NULL is fine here and below. */
void cairn_srv_listener_stop(struct cairn_srv_listener *listener);
void cairn_srv_listener_free(struct cairn_srv_listener *listener);
bool cairn_srv_listener_hears(const struct cairn_srv_listener *listener); /* NULL: false */
