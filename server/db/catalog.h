/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog: transactions over the database, notifications to other servers, actors of changes.
 *
 * Why:     only this room knows which database runs a transaction. Notifications spare requests
 *          that wait for another server's change from polling, which costs a query each and is
 *          late. The actor belongs to the thread, so no call between handler and event row passes
 *          it on.
 * Promise: 1   a change is durable when cairn_srv_catalog_write returns CAIRN_OK, and has no effect
 *              otherwise. If the outcome of COMMIT stays unknown, the message says so.
 *          2   changes of all servers run one after the other, those of this server on one thread;
 *              changes queued during a commit share the next one, each in its own savepoint.
 *          3   while the catalog is not writable (disk full, I/O error) each change fails with the
 *              reason, reads continue, and cairn_srv_catalog_writable reports it.
 *          4   a read sees one state of the whole catalog and can neither write nor checkpoint.
 *          5   open refuses a network file system, a standby, a newer schema, a weaker durability
 *              setting, and a second process on the same SQLite file.
 *          6   a change's notifications reach each other listening server once the change is
 *              committed and visible; those of an undone change reach none.
 *          7   while hears() is true a session listens and was alive within the last 10 s. When it
 *              is lost or restored, changed() is called with CAIRN_SRV_NOTIFY_ALL.
 *          8   a server's own notifications do not call its changed().
 *          9   a change carries the actor of the thread that requested it.
 * Limits:  4,096 queued changes; 256 changes a commit, all begun within a second; 16 connections
 *          for reads, for which further reads wait (so a read must not start another).
 *          Notifications are hints: a waiting request also polls (server/http/http.c); 400 keys a
 *          transaction, more become ALL.
 * Threads: any thread (in memory: one); a struct cairn_srv_tx lives inside its callback; changed()
 *          runs on the listener's thread; an actor belongs to the thread that sets it.
 * Next:    server/db/sql.h; server/db/engine.h; server/http/waiters.h; E2 in server/README.md.
 */
#pragma once

#include "api/documents/keys.h"

struct cairn_srv_catalog;
struct cairn_srv_tx;

/* where: a folder for SQLite, or postgresql://... as libpq takes it. */
enum cairn_code cairn_srv_catalog_open(const char *where, struct cairn_srv_catalog **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Password file, read for each session; "" or NULL: none. Call before threads start. */
void cairn_srv_catalog_password_from(const char *path);
/* The migration that opening has run. */
struct cairn_srv_migrated {
    unsigned from;     /* schema before; 0: new catalog, or no migration */
    char before[1100]; /* backup of the file as it was; "": PostgreSQL has none */
};
const struct cairn_srv_migrated *
cairn_srv_catalog_migrated(const struct cairn_srv_catalog *catalog);
/* True when the folder holds a catalog; always true for PostgreSQL. */
bool cairn_srv_catalog_is_there(const char *where);
/* One in-memory connection, for simulations: changes and reads run on the calling thread. */
enum cairn_code cairn_srv_catalog_open_memory(struct cairn_srv_catalog **ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_catalog_free(struct cairn_srv_catalog *catalog); /* no caller may be inside */
/* This server process's id in the table servers. */
const char *cairn_srv_catalog_server(const struct cairn_srv_catalog *catalog);
/* Increases with each transaction of this server, before its notifications. A read that began after
 * the count had a value is current while it stays, unless another server writes. Never 0. */
uint64_t cairn_srv_catalog_changes(const struct cairn_srv_catalog *catalog);
/* is_shareable: several processes may change it. is_shared: another one has since open. */
bool cairn_srv_catalog_is_shareable(const struct cairn_srv_catalog *catalog);
bool cairn_srv_catalog_is_shared(const struct cairn_srv_catalog *catalog);
/* A PostgreSQL database that has lost commits which this process has seen. */
bool cairn_srv_catalog_is_behind(const struct cairn_srv_catalog *catalog);
/* Size of the log beside the catalog's file; 0: none, or the database manages it. */
uint64_t cairn_srv_catalog_log_bytes(const struct cairn_srv_catalog *catalog);
/* Until unlisten, changed() is called for notifications of other servers. */
enum cairn_code cairn_srv_catalog_listen(struct cairn_srv_catalog *catalog,
                                         void (*changed)(void *owner, uint64_t key), void *owner,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_catalog_unlisten(struct cairn_srv_catalog *catalog);
/* True while their notifications arrive (#7). */
bool cairn_srv_catalog_hears(const struct cairn_srv_catalog *catalog);
const struct cairn_srv_engine *cairn_srv_engine_of(const char *where);

/* Runs change() on the writing thread; a code other than CAIRN_OK undoes it. It must not wait, log
 * or do other I/O: every other change waits for it. */
enum cairn_code cairn_srv_catalog_write(struct cairn_srv_catalog *catalog,
                                        enum cairn_code (*change)(struct cairn_srv_tx *tx,
                                                                  void *argument,
                                                                  struct cairn_error *err),
                                        void *argument, struct cairn_error *err) CAIRN_MUST_USE;
/* Clock for event times, the system's by default; set it before the first change. */
struct cairn_clock;
void cairn_srv_catalog_set_clock(struct cairn_srv_catalog *catalog,
                                 const struct cairn_clock *clock);
/* happened() is called on the writing thread after each commit with events (events.h), and may only
 * wake another thread. NULL removes it; call that only while no change is under way. */
void cairn_srv_catalog_set_watcher(struct cairn_srv_catalog *catalog, void (*happened)(void *owner),
                                   void *owner);
/* Called on the thread that sees a transaction rejected by the database, or a read that could not
 * begin or that the database broke off. Set once; it may only wake another thread. */
typedef void cairn_srv_catalog_failed(void *owner, const struct cairn_error *why);
void cairn_srv_catalog_set_failed(struct cairn_srv_catalog *catalog,
                                  cairn_srv_catalog_failed *failed, void *owner);
enum cairn_srv_query { CAIRN_SRV_QUERY_LOOK, CAIRN_SRV_QUERY_CHANGE, CAIRN_SRV_QUERIES };
/* Counts durations there, with the kind of query as first label. */
struct cairn_metrics;
void cairn_srv_catalog_set_metrics(struct cairn_srv_catalog *catalog, struct cairn_metrics *metrics,
                                   size_t family);
/* Integrity check. ret: "ok" or a description (engine.h). False: damaged and read-only. */
bool cairn_srv_catalog_checked(const struct cairn_srv_catalog *catalog, char *ret, size_t capacity);
/* CAIRN_OK, or why the last change could not be written. */
enum cairn_code cairn_srv_catalog_writable(struct cairn_srv_catalog *catalog,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Runs look() on the calling thread over a snapshot. */
enum cairn_code cairn_srv_catalog_read(struct cairn_srv_catalog *catalog,
                                       enum cairn_code (*look)(struct cairn_srv_tx *tx,
                                                               void *argument,
                                                               struct cairn_error *err),
                                       void *argument, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- notifications ---- */

#define CAIRN_SRV_NOTIFY_ALL UINT64_C(0)
#define CAIRN_SRV_NOTIFY_EVENTS UINT64_C(1) /* new rows of events */

/* The key by which all servers know a text. */
uint64_t cairn_srv_key_of(const char *text);
uint64_t cairn_srv_key_of_run(const struct cairn_run_name *name);

/* Inside a change: wakes requests at other servers that wait for it. */
void cairn_srv_notify_events(struct cairn_srv_tx *tx);
void cairn_srv_notify_text(struct cairn_srv_tx *tx, const char *text);
void cairn_srv_notify_run(struct cairn_srv_tx *tx, const struct cairn_run_name *name);
/* Notifies of a version and of its run. */
void cairn_srv_notify_version(struct cairn_srv_tx *tx, const struct cairn_version_id *id,
                              const struct cairn_run_name *name);

struct cairn_srv_engine;
struct cairn_srv_listener;

/* ---- actors ---- */

struct cairn_srv_idempotency;

struct cairn_srv_actor {
    const char *who; /* "" if unknown */
    const char *from;
    const struct cairn_srv_idempotency *idempotency; /* of a POST with a key; else NULL */
};
/* NULL, the default of a thread: the server itself. The struct must live until the next call. */
void cairn_srv_actor_set(const struct cairn_srv_actor *actor);
const struct cairn_srv_actor *cairn_srv_actor_get(void);
