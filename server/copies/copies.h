/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: copies of a version in several stores: wished for, made, removed, compared, mended.
 *
 * Why:     the fast store is small and the durable one slow; one store alone can be lost, and a
 *          copy that nobody looks at is found damaged when the last good one is.
 * Promise: 1   a wish for a copy is a row (MAKING) before its first object; any server finishes it.
 *          2   a copy that reads as whole is whole: its committed.json is written last.
 *          3   the last copy that is whole and not known to be damaged is never removed.
 *          P14 each copy is compared by itself, in its own store, and each finding names its store.
 *          The numbered promises stand in copying.c, promote.c, demote.c, damage.c, tiering.c and
 *          verify.c.
 * Limits:  CAIRN_SRV_COPIES_LOOK_MAX rows of each store a round; one part of a shard in memory
 *          (CAIRN_SRV_COPY_PART_BYTES, more beyond 10,000 such parts).
 * Threads: each function says which; a hold belongs to one thread.
 * Next:    server/ledger/copies.h for the rows, server/guard/stores.h for the stores;
 *          docs/tiers.md.
 */
#pragma once

#include "server/guard/jobs.h"
#include "server/ledger/versions.h"
#include "server/operations/operations.h"
#include "server/reads/tier_reads.h"

#define CAIRN_SRV_COPIES_LOOK_MAX 1000
#define CAIRN_SRV_COPY_PART_BYTES (16 * CAIRN_MIB)
#define CAIRN_SRV_TIERING_ROUND 1000
#define CAIRN_SRV_TIERED_MAX 64

/* ---- wishes and rounds (copying.c) ---- */

/* The operation that makes a copy, or the one that is under way. */
struct cairn_srv_copy_begin {
    const struct cairn_run_name *name;
    /* The caller who wishes for it; NULL: the server goes on with a row in state MAKING. */
    const struct cairn_srv_caller *caller;
    const char *version, *store;
};
/* On any thread. CAIRN_ABORTED: the wish was fulfilled or taken back meanwhile. Codes of a caller's
 * wish: as cairn_srv_promote_want. A server without operations (a test's) writes the row alone, and
 * *ret_id is empty. */
enum cairn_code cairn_srv_copies_begin(struct cairn_srv *server,
                                       const struct cairn_srv_copy_begin *begin,
                                       char ret_id[CAIRN_SRV_OPERATION_BYTES],
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* raise: called before the first removal of a round (Q35). */
struct cairn_srv_copies_round {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    enum cairn_code (*raise)(void *owner, struct cairn_error *err);
    void *owner;
};
/* Begins what is MAKING and removes what is REMOVING; on the sweeping thread. */
enum cairn_code cairn_srv_copies_look(const struct cairn_srv_copies_round *round,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- rows, holds and pauses (damage.c), on any thread ---- */

/* One thread of all servers of a catalog works on the copies of a version at a time. */
struct cairn_srv_copy_hold {
    struct cairn_srv *server;
    struct cairn_srv_lease lease;
    char version[CAIRN_VERSION_ID_BYTES];
    bool held;
    struct cairn_srv_copy_hold *next;
};
/* CAIRN_BUSY: another thread or server holds the version. */
enum cairn_code cairn_srv_copy_hold_take(struct cairn_srv_copy_hold *hold, struct cairn_srv *server,
                                         const char *version,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_copy_hold_end(struct cairn_srv_copy_hold *hold);
/* Does this process hold it? */
bool cairn_srv_copy_is_held(struct cairn_srv *server, const char *version);
/* After a try: a failure makes the sweep pause before the next one. */
void cairn_srv_copy_failed(struct cairn_srv *server, const char *version, const char *store,
                           bool failed);
/* Inside a change: the row of a copy gets this state, as of now. */
enum cairn_code cairn_srv_copy_turn(struct cairn_srv_tx *tx, const struct cairn_srv *server,
                                    const char *version, const struct cairn_srv_copy *copy,
                                    enum cairn_srv_copy_state state,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* May the sweep try again? */
bool cairn_srv_copy_may_try(struct cairn_srv *server, const char *version, const char *store);
/* What the store answered, or CAIRN_OK where a caller says that it is back. */
void cairn_srv_copy_asked(struct cairn_srv *server, const char *store, enum cairn_code code);
/* False: the store is away, and is asked for another version. */
bool cairn_srv_copy_may_ask(struct cairn_srv *server, const char *version, const char *store);
/* Before the stores are freed. */
void cairn_srv_copies_forget_failures(struct cairn_srv *server);

/* ---- making a copy (promote.c) ---- */

/* Inside a change: puts the row of a wish. *ret_whole: the copy is there. CAIRN_NOT_COMMITTED,
 * CAIRN_IN_USE: it is being removed there. */
struct cairn_srv_promote_wish {
    const char *store;
    bool by_policy;
    int64_t wall_ms;
};
enum cairn_code cairn_srv_promote_want(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version,
                                       const struct cairn_srv_promote_wish *wish, bool *ret_whole,
                                       struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_srv_promote {
    struct cairn_srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version, *store;
    /* Now and then, in bytes; false: end here (CAIRN_CANCELLED), and the row stays as it is. */
    bool (*tell)(void *owner, uint64_t done, uint64_t total);
    void *owner;
    /* set */
    uint64_t copied_bytes; /* that were not there before */
    uint64_t within_bytes; /* of them, that one S3 has copied by itself */
};
/* Makes the copy that a row wants. CAIRN_OK also where it is whole already; CAIRN_ABORTED: the wish
 * was taken back; CAIRN_BUSY: the version is held. */
enum cairn_code cairn_srv_promote_run(struct cairn_srv_promote *promote,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* One shard into another store; the struct has one owner. */
struct cairn_srv_shard_copy {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;   /* of the main store */
    const struct cairn_srv_where *where; /* to read from */
    const struct cairn_srv_tier *to;
    struct cairn_store_worker *target;
    const struct cairn_committed *version; /* with manifest and checksums */
    struct cairn_store_tags *tags;
    bool replaces; /* the object under the key is known to be damaged (verify.c) */
    /* After each part, with how many bytes were copied; false: end here, by CAIRN_CANCELLED. */
    bool (*goes_on)(void *owner, uint64_t bytes);
    void *owner;
    uint64_t within_bytes; /* set: of all shards, that the store has copied itself */
    /* the copy's own; cairn_srv_shard_copy_release */
    uint8_t *buffer;
    size_t buffer_bytes;
};
enum cairn_code cairn_srv_shard_copy(struct cairn_srv_shard_copy *copy, size_t shard,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_shard_copy_release(struct cairn_srv_shard_copy *copy);
/* After a write into a store of copies failed by CAIRN_NO_SPACE: puts the store and what is to be
 * done before the end of the cause. Other codes pass. */
enum cairn_code cairn_srv_copy_say_full(enum cairn_code code, const char *store, const char *to_do,
                                        struct cairn_error *err);
/* Its place, and the digest of its manifest: what the catalog proves its documents by. */
struct cairn_committed cairn_srv_committed_of(const struct cairn_srv_version *version);
/* Are all objects of the version in this store, with their sizes, and those of its documents that
 * `heads` names (bits; the layout where the manifest has one)? One listing, and a HEAD of its own
 * before anything is called missing. version: with its manifest. CAIRN_CORRUPT names what is
 * missing. */
enum cairn_code cairn_srv_copy_look(struct cairn_store_worker *worker,
                                    const struct cairn_committed *version, unsigned heads,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* ---- removing a copy (demote.c; what is known to be damaged: damage.h) ---- */

struct cairn_srv_demote {
    struct cairn_srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version, *store;
    bool by_policy; /* only what a policy made, or what was saved to main */
};
/* Sets the row REMOVING; a second time changes nothing; on any thread. CAIRN_IN_USE: it is held, or
 * the last one. CAIRN_NOT_FOUND: there is no copy. */
enum cairn_code cairn_srv_demote_ask(const struct cairn_srv_demote *demote,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Deletes the objects of a copy in state REMOVING, then sets it GONE; on the sweeping thread. */
enum cairn_code cairn_srv_demote_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     const char *version, const char *store,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- copies by policies (tiering.c) ---- */

struct cairn_srv_tiered; /* how far runs were settled */
enum cairn_code cairn_srv_tiered_new(struct cairn_srv_tiered **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_tiered_free(struct cairn_srv_tiered *tiered); /* NULL is fine */
/* Carries out the `copies` of the run's policy; a failure is logged, and comes again. On any thread
 * with a worker of the main store. Returns how many versions were read. */
size_t cairn_srv_tiering_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                             const struct cairn_run_name *name);

/* ---- comparing and mending (verify.c) ---- */

struct cairn_srv_verify {
    struct cairn_srv *server;
    struct cairn_store_worker *worker; /* of the main store */
    const char *version;
    bool reads, repairs;  /* a repair reads */
    uint64_t part, parts; /* the N-th of T equal groups of shards is read; 0 of 0: all */
    /* Now and then, in bytes; false: end here, by CAIRN_CANCELLED. NULL: none. */
    bool (*tell)(void *owner, uint64_t done, uint64_t total);
    void *owner;
};
/* CAIRN_OK whatever was found; *ret: verified (api/messages.def). CAIRN_BUSY: a copy of it is being
 * made or removed. */
enum cairn_code cairn_srv_verify_run(const struct cairn_srv_verify *verify, json_t **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
