/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fetch: committed versions, proven, and verified reads of their shards into a trainer's window.
 *
 * Why:     a restore is bound by the store, so many ranges are read at once, each once for all
 *          ranks of the node; and no byte may reach a trainer before the checksum of its block was
 *          compared.
 * Promise: P3   a read ends with all its bytes verified and in place, or with CAIRN_CORRUPT that
 *               names run, step, shard, byte range, expected and found. What came wrong is read
 *               once more over another connection before it counts (store/range.h). Documents are
 *               proven as api/documents/committed.h says.
 *          Q29  a version is leased from the server until its last user leaves it (inside.h).
 *          1    whole blocks are read into the window itself and only counted when all of them
 *               were compared; parts of blocks go through a bounded pool.
 *          2    a block that several ranges touch is read once; so is one that several ranks of
 *               the node want (inside.h), where they are not further apart than restore_cache.
 *          3    with peers, nodes of one attempt divide what they restore: one reads a piece from
 *               the store, the others from it; what comes so is compared like the store's.
 *          4    what a slab of this node still holds of the version (uploader/saves/slabs.h) is
 *               copied from there and compared like what the store sends; if it differs the store
 *               is asked.
 *          5    the store alone is believed; the server only says which version is meant, and is
 *               not needed when the attempt already said it.
 *          6    the nearest store is asked first; where its documents are missing, damaged or not
 *               answered, the next one is.
 *          7    another node of an attempt that this node holds gets blocks of committed versions
 *               of its run, compared with their checksums, and nothing else. What this node does
 *               not have it reads from the store; it asks no third node, and says 409 where it is
 *               waiting for one. A version that only others restore is let go of ten seconds after
 *               they last asked.
 * Limits:  65,536 ranges a read; the pool is reserved with the first window. One cell's range an
 *          answer to another node; half of the cells at most are held by answers.
 * Threads: threads of its own, locked by uploader_fetch; done() is called on one of them. A version
 *          is immutable after load; its count of users is locked by uploader_fetch.
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
    uint64_t *hashes;  /* of its members, and of this node behind them; owned */
    size_t count;      /* members among which pieces are divided now; 0: they are not */
    bool asks_keepers; /* those that have it in memory are asked, divided or not */
    enum cairn_plan_choice choice;
    uint64_t answers, shared; /* of other nodes and to them; those of bytes that others had, too */
    uint64_t waited_ms, waits_since_ms; /* for cells that are kept for others; 0: it does not now */
    uint32_t asking;                    /* requests to other nodes that are under way */
    uint64_t asked_bytes, asked_us, asking_since_us; /* while there were some */
};
struct cairn_up_version {
    struct cairn_up_fetch *fetch;
    struct cairn_up_version *next;
    uint32_t users;   /* holders, readings, answers to other nodes, requests into cells */
    uint32_t holders; /* restores that are open */
    bool loading;     /* by somebody; others wait */
    struct cairn_version_place place;
    struct cairn_manifest manifest;
    uint8_t *checksums;            /* u32le a block; owned */
    struct cairn_store_tags *tags; /* by store, then shard */
    size_t store;                  /* in up->reads: the nearest whose documents are proven */
    struct cairn_up_lease *lease;  /* NULL: none was begun */
    int documents_fd;              /* sealed memfd: manifest, then layout */
    uint64_t manifest_bytes, layout_bytes;
    /* locked by uploader_fetch, as are users and holders */
    uint32_t expected;       /* ranks of this node that may want the same */
    uint64_t peers_until_ms; /* mono clock: kept for other nodes; one of the users. 0: not */
    struct cairn_up_division division;
    struct {
        uint64_t store_bytes;  /* read from the store */
        uint64_t shared_bytes; /* wanted by ranks, read for others of this node */
        uint64_t peer_bytes;   /* got from other nodes */
        uint64_t memory_bytes; /* out of a slab of this node that still holds them */
        uint64_t served_bytes; /* given to them */
    } counts, told;            /* told: as it was noted last (uploader/up.h) */
};
struct cairn_up_version_request {
    const struct cairn_run_name *name;
    const char *ref;           /* "latest", "best", an alias, a step or a version id */
    const char *known_version; /* "" or the version that the attempt resumes, with its step: */
    uint64_t known_step;
    uint64_t answer_by_ms; /* as cairn_up_answer_by_ms() */
};
/* On a helper thread. Shared: give it back with _leave. */
enum cairn_code cairn_up_version_load(struct cairn_up_helper *helper,
                                      const struct cairn_up_version_request *request,
                                      struct cairn_up_version **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_version_leave(struct cairn_up_version *version);
/* For other nodes: the one that is loaded, used until _unuse; NULL: it is not, or not yet. The lock
 * is held. */
struct cairn_up_version *cairn_up_version_find_locked(struct cairn_up_fetch *fetch,
                                                      const struct cairn_version_place *place,
                                                      bool *ret_loading);
/* Lets go of that version where nothing but requests of other nodes might still want it; they read
 * from the store. */
void cairn_up_version_let_go(struct cairn_up_fetch *fetch, const char *version);
/* Lets go of versions that other nodes have not asked for in a while; all: at the end. */
void cairn_up_version_tick(struct cairn_up_fetch *fetch, bool all);
/* Gives back the use that a reading, an answer or a request holds. */
void cairn_up_version_unuse(struct cairn_up_version *version);
/* Writes "llm/7b step 100 shard x", with which messages about a shard begin. */
void cairn_up_version_shard_text(const struct cairn_up_version *version, uint32_t shard,
                                 char ret_text[900]);

#define CAIRN_UP_RANGES_MAX 65536

/* Memory that the uploader writes and one trainer reads. */
struct cairn_up_window {
    struct cairn_up *up;
    uint32_t users; /* locked by uploader_fetch: the session and its reads under way */
    struct cairn_slab memory;
};
enum cairn_code cairn_up_window_new(struct cairn_up *up, uint64_t bytes,
                                    struct cairn_up_window **ret,
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
/* ranges are checked against the manifest and the window. done is called exactly once, later. */
enum cairn_code cairn_up_fetch_read(struct cairn_up_fetch *fetch, struct cairn_up_version *version,
                                    struct cairn_up_window *window,
                                    const struct cairn_up_range *ranges, size_t count,
                                    void (*done)(void *owner, enum cairn_code code,
                                                 const struct cairn_error *why),
                                    void *owner, struct cairn_error *err) CAIRN_MUST_USE;
/* Waits until what is over of this version is given back, at most until that time: a removal comes
 * behind the end of a restore. */
void cairn_up_leases_settle(struct cairn_up_fetch *fetch, const char *version, uint64_t until_ms);
