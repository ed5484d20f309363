/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leases: what is restored on this node is leased from the server for as long.
 *
 * Why:     retention goes on while ranks read, and a version that goes in the middle of a restore
 *          fails the restart of the whole job.
 * Promise: Q29  a version that the server named is leased before anything of it is handed out; one
 *               that the attempt resumes as soon as the server answers (it is protected till its
 *               first commit anyway, and a restore does not wait for a server that is away).
 *          1    a lease is renewed three times in its life, and given back when the node's last
 *               restore of the version ends. Nobody waits for either.
 *          2    want of a lease fails no read: what is gone fails by itself, and is named.
 * Limits:  one lease for each version that is loaded; 1,000 that are still to be given back, the
 *          others end by themselves.
 * Threads: one of its own, which alone talks to the server; `leases` by uploader_fetch.
 * Next:    uploader/fetch/version.c; api/wire/rest.h.
 */
#pragma once

#include "api/wire/rest.h"
#include "common/process.h"

struct cairn_up_fetch;

struct cairn_up_lease {
    struct cairn_up_lease *next;
    struct cairn_read_lease lease; /* its id by the thread alone, once it is in the list */
    uint64_t due_ms;               /* mono clock */
    bool over;                     /* to be given back */
    bool logged;                   /* that it could not be had */
};
struct cairn_up_leases {
    struct cairn_thread thread;
    struct cairn_rest *rest;      /* the thread's */
    struct cairn_up_lease *first; /* locked by uploader_fetch */
    size_t over_count;
    uint64_t count; /* of all that ever were; in their names */
};
enum cairn_code cairn_up_leases_start(struct cairn_up_fetch *fetch,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_leases_stop(struct cairn_up_fetch *fetch);
/* Of a version that is being loaded, by a helper thread. rest NULL: the thread takes it by and by.
 * CAIRN_DELETED, CAIRN_ABORTED: it is too late. */
enum cairn_code cairn_up_lease_begin(struct cairn_up_fetch *fetch,
                                     const struct cairn_version_place *place,
                                     struct cairn_rest *rest, struct cairn_up_lease **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Waits until what is over of this version is given back, at most until that time: a removal comes
 * behind the end of a restore. */
void cairn_up_leases_settle(struct cairn_up_fetch *fetch, const char *version, uint64_t until_ms);
void cairn_up_lease_end(struct cairn_up_fetch *fetch, struct cairn_up_lease *lease);
