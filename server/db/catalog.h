/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalog: the server's database behind transactions, without its name; who asks for a change, and
 * what it tells other servers.
 *
 * Why:     a version is committed by one transaction and by nothing else, so every rule of the
 *          server is written as a function over a transaction; which database runs it is decided
 *          here and nowhere above. A request waits at one server for what another one changes: to
 *          look again and again meanwhile costs a look a moment of each that waits, and is late all
 *          the same. Every event says who asked and from where, and no call between a handler and
 *          the row has to carry that along.
 * Promise: 1   a change is durable when cairn_srv_catalog_write returns CAIRN_OK, and has no effect
 *              at all when it returns anything else. Where a database was lost at COMMIT for so
 *              long that nobody knows, the message says so.
 *          2   changes of all servers run one after the other, those of this one on one thread;
 *              what queued during the last commit shares the next one, each in a savepoint of its
 *              own.
 *          3   while it cannot be written (disk full, I/O error) each change says so and looks go
 *              on; cairn_srv_catalog_writable tells.
 *          4   a look sees one state of the whole catalog and can neither write nor checkpoint.
 *          5   a network file system, a standby, a newer schema, a weaker durability setting, and a
 *              second process on the same file of SQLite, are refused at open.
 *          6   what a change tells is heard by each other server that listens, when the change is
 *              committed and can be seen; what an undone change tells, by nobody.
 *          7   while hears() is true a session listens, and has said something within 10 s. When it
 *              is lost, and when there is one again, changed() is called with CAIRN_SRV_NOTIFY_ALL:
 *              anything may have been told meanwhile.
 *          8   nobody is called for what his own server told.
 *          9   a change bears the actor that its thread had when it asked for it.
 * Limits:  4,096 changes waiting; 256 changes, begun within a second, a commit; 16 connections for
 *          looks, on which further ones wait (so a look does not look again inside). What is told
 *          is a hint, not a record: who waits looks at the catalog, and looks again after a time
 *          without being told (server/http/http.c); 400 keys a transaction, more are told as ALL.
 *          One actor a thread.
 * Threads: any thread (one in memory: one thread); a struct cairn_srv_tx lives inside its callback;
 *          changed() on the listener's own thread; an actor is of the thread that sets it.
 * Next:    server/db/sql.h for what is done inside; server/db/engine.h for what a database does for
 *          it; server/http/waiters.h; E2 in server/README.md.
 */
#pragma once

#include "api/documents/keys.h"

struct cairn_srv_catalog;
struct cairn_srv_tx;

/* A folder, for SQLite, or postgresql://... as libpq takes it. */
enum cairn_code cairn_srv_catalog_open(const char *where, struct cairn_srv_catalog **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The file that holds a database's password, read anew for each session; "" or NULL: none. Called
 * once, before there are threads; the text stays. */
void cairn_srv_catalog_password_from(const char *path);
/* What opening it did to bring it to this program's schema. */
struct cairn_srv_migrated {
    unsigned from;     /* its schema before; 0: nothing was done, or it is a new catalog */
    char before[1100]; /* the file with the catalog as it was; "": there is none, of a database */
};
const struct cairn_srv_migrated *
cairn_srv_catalog_migrated(const struct cairn_srv_catalog *catalog);
/* Is there a catalog in the folder? Of a database only a connection tells: true. */
bool cairn_srv_catalog_is_there(const char *where);
/* One connection in memory, for simulations: changes and looks run on the calling thread. */
enum cairn_code cairn_srv_catalog_open_memory(struct cairn_srv_catalog **ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_catalog_free(struct cairn_srv_catalog *catalog); /* no caller may be inside */
/* This life of the server, as others know it in the table servers. */
const char *cairn_srv_catalog_server(const struct cairn_srv_catalog *catalog);
/* Another number with each transaction of this server, before anybody is told of it. What was
 * looked at after it had a value is not older than what was acknowledged while it has it still, as
 * long as no other server changes the catalog. Never 0. */
uint64_t cairn_srv_catalog_changes(const struct cairn_srv_catalog *catalog);
/* May several processes change it, and has another one since it was opened? */
bool cairn_srv_catalog_is_shareable(const struct cairn_srv_catalog *catalog);
bool cairn_srv_catalog_is_shared(const struct cairn_srv_catalog *catalog);
/* A database of PostgreSQL that has lost commits which this process has seen. */
bool cairn_srv_catalog_is_behind(const struct cairn_srv_catalog *catalog);
/* Of the log beside the catalog's file; 0: there is none, or the database sees to it. */
uint64_t cairn_srv_catalog_log_bytes(const struct cairn_srv_catalog *catalog);
/* From here on, until unlisten, changed() is called for what changes of other servers tell
 * (catalog.h). */
enum cairn_code cairn_srv_catalog_listen(struct cairn_srv_catalog *catalog,
                                         void (*changed)(void *owner, uint64_t key), void *owner,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_catalog_unlisten(struct cairn_srv_catalog *catalog);
/* What they tell is heard at this moment. */
bool cairn_srv_catalog_hears(const struct cairn_srv_catalog *catalog);
/* The engine that knows that place. */
const struct cairn_srv_engine *cairn_srv_engine_of(const char *where);

/* Run change() on the writing thread; a code other than CAIRN_OK undoes what it did. It must not
 * wait, log or do I/O of its own: every other change waits for it. */
enum cairn_code cairn_srv_catalog_write(struct cairn_srv_catalog *catalog,
                                        enum cairn_code (*change)(struct cairn_srv_tx *tx,
                                                                  void *argument,
                                                                  struct cairn_error *err),
                                        void *argument, struct cairn_error *err) CAIRN_MUST_USE;
/* The clock by which events are dated; the system's until it is set, before the first change. */
struct cairn_clock;
void cairn_srv_catalog_set_clock(struct cairn_srv_catalog *catalog,
                                 const struct cairn_clock *clock);
/* happened() is called on the writing thread after each commit that made events (events.h); it only
 * wakes somebody. NULL: nobody any more, which holds when no change is under way. */
void cairn_srv_catalog_set_watcher(struct cairn_srv_catalog *catalog, void (*happened)(void *owner),
                                   void *owner);
/* Called, by the thread that met it, after each transaction that the database did not take, and
 * after each look that could not begin or that a failure of the database ended. It is set once, and
 * only wakes somebody. */
typedef void cairn_srv_catalog_failed(void *owner, const struct cairn_error *why);
void cairn_srv_catalog_set_failed(struct cairn_srv_catalog *catalog,
                                  cairn_srv_catalog_failed *failed, void *owner);
enum cairn_srv_query { CAIRN_SRV_QUERY_LOOK, CAIRN_SRV_QUERY_CHANGE, CAIRN_SRV_QUERIES };
/* From now on durations are counted there, by kind of query on the first axis. */
struct cairn_metrics;
void cairn_srv_catalog_set_metrics(struct cairn_srv_catalog *catalog, struct cairn_metrics *metrics,
                                   size_t family);
/* Is the database known to be whole? ret: "ok", or what there is to say (engine.h). False: it is
 * damaged, and takes no change. */
bool cairn_srv_catalog_checked(const struct cairn_srv_catalog *catalog, char *ret, size_t capacity);
/* CAIRN_OK, or why the last change could not be written. */
enum cairn_code cairn_srv_catalog_writable(struct cairn_srv_catalog *catalog,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Run look() on the calling thread over a snapshot. */
enum cairn_code cairn_srv_catalog_read(struct cairn_srv_catalog *catalog,
                                       enum cairn_code (*look)(struct cairn_srv_tx *tx,
                                                               void *argument,
                                                               struct cairn_error *err),
                                       void *argument, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what other servers are told ---- */

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

/* ---- who asks for the changes of a thread ---- */

struct cairn_srv_idempotency;

struct cairn_srv_actor {
    const char *who;                                 /* "" where nobody said */
    const char *from;                                /* an address */
    const struct cairn_srv_idempotency *idempotency; /* of a POST that has a key; else NULL */
};
/* NULL: the server itself, which is how a thread begins. It must live until it is set anew. */
void cairn_srv_actor_set(const struct cairn_srv_actor *actor);
const struct cairn_srv_actor *cairn_srv_actor_get(void);
