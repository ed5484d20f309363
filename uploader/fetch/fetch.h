/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch: committed versions, proven, and verified reads of their shards into a trainer's window.
 *
 * Why:     the store bounds a restore, so many ranges are read at once, each once for all ranks of
 *          the node; and no byte reaches a trainer before its block's checksum was compared.
 * Promise: P3   a read ends with all its bytes verified and in place, or with CAIRN_CORRUPT that
 *               names run, step, shard, byte range, expected and found. Wrong bytes are read once
 *               more over another connection before they count (store/range.h). Documents are
 *               proven as api/documents/committed.h says.
 *          Q29  a version is leased from the server until its last user leaves it (inside.h); a
 *               look at its documents takes no lease and reads no shard.
 *          1    whole blocks are read directly into the window and counted once all were compared;
 *               parts of blocks go through a bounded pool.
 *          2    a block that several ranges or several ranks of the node want (inside.h) is read
 *               once, if the ranks are no further apart than restore_cache.
 *          3    with peers, nodes of one attempt divide what they restore: one reads a piece from
 *               the store, the others from that node; peers' bytes are compared like the store's.
 *          4    bytes that a slab of this node still holds (uploader/saves/slabs.h) are copied and
 *               compared like the store's; if they differ the store is read.
 *          5    only the store is trusted; the server names the version, unless the attempt did.
 *          6    stores are tried from the nearest while documents cannot be had.
 *          7    another node with an attempt that this node holds gets blocks of committed versions
 *               of its run, compared with their checksums, and nothing else. Missing blocks are
 *               read from the store, not from a third node; while this node waits for one it
 *               answers 409. A version for other nodes alone is released ten seconds after use.
 * Limits:  65,536 ranges a read; the pool is reserved with the first window. An answer to another
 *          node has one cell's range; answers hold at most half of the cells.
 * Threads: its own threads, locked by uploader_fetch, call done(). A version is immutable after
 *          load; its count of users is locked by uploader_fetch.
 * Next:    uploader/trainers/requests.c; api/documents/committed.h; docs/peers.md.
 */
#pragma once

#include "api/documents/manifest.h"
#include "common/memory.h"
#include "plan/divide.h"
#include "store/range.h"
#include "uploader/mail.h"
#include "uploader/port/peers.h"
#include "uploader/up.h"

/* The nodes among which a version's pieces are divided (divide.c). */
struct cairn_up_division {
    uint64_t looked_ms; /* mono clock */
    struct cairn_up_roster roster;
    uint64_t *hashes;  /* of the members, then this node; owned */
    size_t count;      /* nodes that divide pieces now; 0: no division */
    bool asks_keepers; /* nodes with the version in memory are asked in any case */
    enum cairn_plan_choice choice;
    uint64_t answers, shared;           /* answers of and to other nodes; those that saved a read */
    uint64_t waited_ms, waits_since_ms; /* waits for cells held for other nodes; 0: no wait now */
    uint32_t asking;                    /* requests in flight to other nodes */
    uint64_t asked_bytes, asked_us, asking_since_us; /* while `asking` was above 0 */
};
struct cairn_up_version {
    struct cairn_up_fetch *fetch;
    struct cairn_up_version *next;
    uint32_t users;   /* holders, readings, answers to other nodes, requests into cells */
    uint32_t holders; /* open restores */
    bool loading;     /* one thread loads, the others wait */
    bool apart;       /* of a look: not in the list of versions */
    struct cairn_version_place place;
    struct cairn_manifest manifest;
    uint8_t *checksums;            /* u32le a block; owned */
    struct cairn_store_tags *tags; /* by store, then shard */
    size_t store;                  /* index in up->reads: the nearest with proven documents */
    struct cairn_up_lease *lease;  /* NULL: no lease */
    int documents_fd;              /* sealed memfd: manifest, then layout */
    uint64_t manifest_bytes, layout_bytes;
    /* locked by uploader_fetch, as are users and holders */
    uint32_t expected;       /* ranks of this node that may restore the version */
    uint64_t peers_until_ms; /* mono clock: kept as a user for other nodes; 0: not kept */
    struct cairn_up_division division;
    struct {
        uint64_t store_bytes;  /* read from the store */
        uint64_t shared_bytes; /* saved reads: ranks used blocks already read for this node */
        uint64_t peer_bytes;   /* got from other nodes */
        uint64_t memory_bytes; /* copied from a slab of this node */
        uint64_t served_bytes; /* sent to other nodes */
    } counts, told;            /* told: values of the last note (uploader/up.h) */
};
struct cairn_up_version_request {
    const struct cairn_run_name *name;
    const char *ref;           /* "latest", "best", an alias, a step or a version id */
    const char *known_version; /* "", or the version id that the attempt resumes, and its step: */
    uint64_t known_step;
    bool look;             /* documents only: without lease and checksums, and not shared */
    uint64_t answer_by_ms; /* from cairn_up_answer_by_ms() */
};
/* Loads or shares a version, on a helper thread; _leave gives it back. */
enum cairn_code cairn_up_version_load(struct cairn_up_helper *helper,
                                      const struct cairn_up_version_request *request,
                                      struct cairn_up_version **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_version_leave(struct cairn_up_version *version);
/* A version for another node, in use until _unuse; NULL: not loaded yet. The lock is held. */
struct cairn_up_version *cairn_up_version_find_locked(struct cairn_up_fetch *fetch,
                                                      const struct cairn_version_place *place,
                                                      bool *ret_loading);
/* Releases a version kept only for other nodes, which then read from the store. */
void cairn_up_version_let_go(struct cairn_up_fetch *fetch, const char *version);
/* Releases versions without recent requests of other nodes; all: at the end. */
void cairn_up_version_tick(struct cairn_up_fetch *fetch, bool all);
/* Gives back one use, of a reading, an answer or a request. */
void cairn_up_version_unuse(struct cairn_up_version *version);
/* Writes "llm/7b step 100 shard x", the start of messages about a shard. */
void cairn_up_version_shard_text(const struct cairn_up_version *version, uint32_t shard,
                                 char ret_text[900]);

#define CAIRN_UP_RANGES_MAX 65536

/* Memory that the uploader writes and one trainer reads. */
struct cairn_up_window {
    struct cairn_up *up;
    uint32_t users; /* locked by uploader_fetch: the session, and its reads in flight */
    struct cairn_slab memory;
    bool writable; /* its trainer may write into it, and spoils its own reads only */
};
/* Smaller than `bytes` where each of this node's `ranks` ranks could not have as much. */
enum cairn_code cairn_up_window_new(struct cairn_up *up, uint64_t bytes, uint32_t ranks,
                                    bool writable, struct cairn_up_window **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_window_leave(struct cairn_up_window *window);

enum cairn_code cairn_up_fetch_new(struct cairn_up *up, struct cairn_up_fetch **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_fetch_stop(struct cairn_up_fetch *fetch);
void cairn_up_fetch_free(struct cairn_up_fetch *fetch);

struct cairn_up_range {
    uint32_t shard; /* index into the manifest */
    uint64_t offset, bytes, at;
};
struct cairn_up_reading;
/* Checks ranges against manifest and window. Calls done exactly once, later. */
enum cairn_code cairn_up_fetch_read(struct cairn_up_fetch *fetch, struct cairn_up_version *version,
                                    struct cairn_up_window *window,
                                    const struct cairn_up_range *ranges, size_t count,
                                    void (*done)(void *owner, enum cairn_code code,
                                                 const struct cairn_error *why),
                                    void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* Waits, at most until until_ms, for the version's ended leases to be given back, for a removal. */
void cairn_up_leases_settle(struct cairn_up_fetch *fetch, const char *version, uint64_t until_ms);
