/* SPDX-License-Identifier: Apache-2.0 */
/*
 * version: what is needed to read one committed version, loaded once and proven.
 *
 * Why:     ranks of a node restore the same version; its documents are read and checked once.
 * Promise: P3   documents are proven as api/documents/committed.h says; anything else is CAIRN_CORRUPT
 *               naming run, step and document.
 *          Q29  it is leased from the server until the last user leaves it (leases.h).
 *          2    the nearest store is asked first; where its documents are missing, damaged or not
 *               answered, the next one is.
 *          1    the store alone is believed; the server only says which version is meant, and is
 *               not needed when the attempt already said it.
 * Limits:  those of api/documents/committed.h.
 * Threads: immutable after load; the count of users is locked by uploader_fetch.
 * Next:    uploader/fetch/fetch.h; api/documents/committed.h.
 */
#pragma once

#include "api/documents/manifest.h"
#include "plan/divide.h"
#include "store/range.h"
#include "uploader/peers/members.h"
#include "uploader/tasks.h"

/* Among which nodes its pieces are divided (divide.c). */
struct cairn_up_division {
    uint64_t looked_ms; /* mono clock */
    struct cairn_up_roster roster;
    uint64_t *hashes; /* of its members, and of this node behind them; owned */
    size_t count;     /* members among which pieces are divided now; 0: they are not */
    bool asks_keepers; /* those that have it in memory are asked, divided or not */
    enum cairn_plan_choice choice;
    uint64_t answers, shared; /* of other nodes and to them; those of bytes that others had, too */
    uint64_t waited_ms, waits_since_ms; /* for cells that are kept for others; 0: it does not now */
    uint32_t asking; /* requests to other nodes that are under way */
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
    } counts, told;            /* told: as it was noted last (uploader/restores.h) */
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
/* What a reading, an answer or a request used. */
void cairn_up_version_unuse(struct cairn_up_version *version);
/* "llm/7b step 100 shard x": the start of every sentence about it. */
void cairn_up_version_shard_text(const struct cairn_up_version *version, uint32_t shard,
                                 char ret_text[900]);
