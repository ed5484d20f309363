/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: makes, removes, verifies and repairs copies of a version in several stores.
 *
 * Why:     the fast store is small and the durable one slow; a single store can be lost; damage of
 *          a copy that is never verified is found only when the last good copy fails.
 * Promise: 1   a requested copy is a row (MAKING) before its first object; any server finishes it.
 *          2   a copy that reads as whole is whole: its committed.json is written last.
 *          3   the last copy that is whole and not known to be damaged is never removed.
 *          P14 each copy is verified separately, in its own store; each finding names its store.
 *          Each source of this folder numbers promises of its own.
 * Limits:  SRV_COPIES_LOOK_MAX rows of each store a round; one part of a shard in memory
 *          (SRV_COPY_PART_BYTES, more beyond 10,000 such parts).
 * Threads: stated at each function; a hold belongs to one thread.
 * Next:    server/ledger/copies.h (rows), server/guard/stores.h (stores); docs/tiers.md.
 */
#pragma once

#include "server/guard/jobs.h"
#include "server/operations/operations.h"
#include "server/reads/tier_reads.h"

#define SRV_COPIES_LOOK_MAX 1000
#define SRV_COPY_PART_BYTES (16 * CAIRN_MIB)
#define SRV_TIERING_ROUND 1000
#define SRV_TIERED_MAX 64

/* ---- copy requests and sweep rounds (copying.c) ---- */

/* Begins the operation that makes a copy, or returns the id of the one already running. */
struct srv_copy_begin {
    const struct cairn_run_name *name;
    /* The caller who requests the copy; NULL: the server resumes a row in state MAKING. */
    const struct srv_caller *caller;
    const char *version, *store;
};
/* On any thread. CAIRN_ABORTED: the row is no longer MAKING; for a caller also
 * srv_promote_want's codes. Without operations (in tests) only the row is written, and
 * *ret_id is empty. */
enum cairn_code srv_copies_begin(struct srv *server, const struct srv_copy_begin *begin,
                                 char ret_id[SRV_OPERATION_BYTES],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* raise: raises the store's generation; called before the first removal of a round (Q35). */
struct srv_copies_round {
    struct srv *server;
    struct cairn_store_worker *worker;
    enum cairn_code (*raise)(void *owner, struct cairn_error *err);
    void *owner;
};
/* Starts the copies in state MAKING and deletes those in state REMOVING; on the sweeping thread. */
enum cairn_code srv_copies_look(const struct srv_copies_round *round,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- holds, pauses, unreachable stores (damage.c), on any thread ---- */

/* A lock on all copies of one version, exclusive among the threads and servers of a catalog. */
struct srv_copy_hold {
    struct srv *server;
    struct srv_lease lease;
    char version[CAIRN_VERSION_ID_BYTES];
    bool held;
    struct srv_copy_hold *next;
};
/* CAIRN_BUSY: another thread or server holds the version. */
enum cairn_code srv_copy_hold_take(struct srv_copy_hold *hold, struct srv *server,
                                   const char *version, struct cairn_error *err) CAIRN_MUST_USE;
void srv_copy_hold_end(struct srv_copy_hold *hold);
bool srv_copy_is_held(struct srv *server, const char *version);
/* Records the result of an attempt; after a failure the sweep pauses before it retries. */
void srv_copy_failed(struct srv *server, const char *version, const char *store, bool failed);
/* In a transaction: sets the state of a copy's row and its time of change to now. */
enum cairn_code srv_copy_turn(struct srv_tx *tx, const struct srv *server, const char *version,
                              const struct srv_copy *copy, enum srv_copy_state state,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* False during the pause after a failure. */
bool srv_copy_may_try(struct srv *server, const char *version, const char *store);
/* Records whether a store answered; CAIRN_OK also if a caller's request implies it. */
void srv_copy_asked(struct srv *server, const char *store, enum cairn_code code);
/* False: the store is unreachable, and another version is probing it. */
bool srv_copy_may_ask(struct srv *server, const char *version, const char *store);
/* Call before the stores are freed. */
void srv_copies_forget_failures(struct srv *server);

/* In a transaction: writes the row of a requested copy. *ret_whole: the copy exists already.
 * CAIRN_NOT_COMMITTED: the version is not committed. CAIRN_IN_USE: the copy is being removed. */
struct srv_promote_wish {
    const char *store;
    bool by_policy;
    int64_t wall_ms;
};
enum cairn_code srv_promote_want(struct srv_tx *tx, const struct srv_version *version,
                                 const struct srv_promote_wish *wish, bool *ret_whole,
                                 struct cairn_error *err) CAIRN_MUST_USE;

struct srv_promote {
    struct srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version, *store;
    /* Progress in bytes, at intervals; false: stop (CAIRN_CANCELLED) and leave the row as it is. */
    bool (*tell)(void *owner, uint64_t done, uint64_t total);
    void *owner;
    uint64_t copied_bytes; /* sent to the target, which did not have them */
    uint64_t within_bytes; /* the part of copied_bytes that S3 copied server-side */
};
/* Makes the copy that a row requests. CAIRN_OK also if it is whole already; CAIRN_ABORTED: the
 * request was withdrawn; CAIRN_BUSY: the version is held. */
enum cairn_code srv_promote_run(struct srv_promote *promote,
                                struct cairn_error *err) CAIRN_MUST_USE;

struct srv_shard_copy {
    struct srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const struct srv_where *where;
    const struct srv_tier *to;
    struct cairn_store_worker *target;
    const struct cairn_committed *version;
    struct cairn_store_tags *tags;
    bool replaces; /* overwrite: the present object is known to be damaged (verify.c) */
    /* After each part, with the bytes copied; false: stop with CAIRN_CANCELLED. */
    bool (*goes_on)(void *owner, uint64_t bytes);
    void *owner;
    uint64_t within_bytes; /* result, over all shards: copied server-side */
    uint8_t *buffer;
    size_t buffer_bytes;
};
enum cairn_code srv_shard_copy(struct srv_shard_copy *copy, size_t shard,
                               struct cairn_error *err) CAIRN_MUST_USE;
void srv_shard_copy_release(struct srv_shard_copy *copy);
/* If a write into a store of copies failed with CAIRN_NO_SPACE, puts the store's name and the
 * remedy before the error's cause. Returns `code` unchanged. */
enum cairn_code srv_copy_say_full(enum cairn_code code, const char *store, const char *to_do,
                                  struct cairn_error *err);
/* The version's place and the catalog's digest of its manifest, to verify documents by. */
struct cairn_committed srv_committed_of(const struct srv_version *version);
/* Checks that the store has each object of the version with its size, and the documents in `heads`
 * (bits; the layout if the manifest has one). Sends one listing, and a HEAD before an object counts
 * as missing. version: with its manifest. CAIRN_CORRUPT names the missing object. */
enum cairn_code srv_copy_look(struct cairn_store_worker *worker,
                              const struct cairn_committed *version, unsigned heads,
                              struct cairn_error *err) CAIRN_MUST_USE;

/* ---- removing a copy (demote.c) ---- */

struct srv_demote {
    struct srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version, *store;
    bool by_policy; /* remove only copies made by a policy or saved to the main store */
};
/* Sets the row REMOVING; idempotent; on any thread. CAIRN_IN_USE: the copy is held, or is the last
 * one. CAIRN_NOT_FOUND: there is no copy. */
enum cairn_code srv_demote_ask(const struct srv_demote *demote,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Deletes the objects of a copy in state REMOVING, then sets it GONE; on the sweeping thread. */
enum cairn_code srv_demote_run(struct srv *server, struct cairn_store_worker *worker,
                               const char *version, const char *store,
                               struct cairn_error *err) CAIRN_MUST_USE;

/* ---- copies by policies (tiering.c) ---- */

struct srv_tiered; /* which versions of each run need no further work */
enum cairn_code srv_tiered_new(struct srv_tiered **ret, struct cairn_error *err) CAIRN_MUST_USE;
void srv_tiered_free(struct srv_tiered *tiered);
/* Applies the `copies` of the run's policy; a failure is logged and retried later. On any thread
 * with a worker of the main store. Returns the number of versions read. */
size_t srv_tiering_run(struct srv *server, struct cairn_store_worker *worker,
                       const struct cairn_run_name *name);

/* ---- verifying and repairing (verify.c) ---- */

struct srv_verify {
    struct srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version;
    bool reads, repairs; /* repairs implies reads */
    /* group `part` of `parts` equal groups of shards to read; 0 of 0: all */
    uint64_t part, parts;
    /* Progress in bytes, at intervals; false: stop with CAIRN_CANCELLED. May be NULL. */
    bool (*tell)(void *owner, uint64_t done, uint64_t total);
    void *owner;
};
/* CAIRN_OK whatever damage was found; *ret: message `verified` (api/messages.def). CAIRN_BUSY: a
 * copy of the version is being made or removed. */
enum cairn_code srv_verify_run(const struct srv_verify *verify, json_t **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
