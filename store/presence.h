/* SPDX-License-Identifier: Apache-2.0 */
/*
 * presence: are these objects of one prefix there, with these sizes, and what else is?
 *
 * Why:     a commit and a check of what was committed ask the same question of the store, and both
 *          would be wrong in the same expensive way if they took a listing for proof of absence.
 * Promise: 1   an object is called missing or of another size only after a HEAD of its own said so;
 *              a listing alone proves presence, never absence. An object whose HEAD was not sent
 *              or not answered is never called missing: the look fails, or every object is known.
 *          2   one listing of the prefix, 1,000 keys a page (on a folder that is a stat of each);
 *              where the keys of this process may not list, a HEAD of each object, 32 at a time.
 *          3   what else the prefix holds is told only by a listing, so only when asked for.
 *          4   between start and finish the worker may do other requests: the first page of the
 *              listing is on its way meanwhile, so that a commit does not wait for it alone.
 * Limits:  one page of a listing in memory; 65,536 pages.
 * Threads: one owner of the worker.
 * Next:    server/commit/commit_objects.c, server/recovery/mend.c, store/audit.c.
 */
#pragma once

#include "store/store.h"

struct cairn_store_object {
    char *key; /* the caller's; sorted by strcmp over the whole list */
    uint64_t size_bytes;
    /* set by the look */
    bool known; /* a listing showed it with its size, or a HEAD was answered; else neither of the
                   next two says anything */
    bool there; /* with this size */
    bool found; /* an object is there, maybe with another size */
    uint64_t found_bytes;
    bool has_crc32c; /* the store keeps one with it, and it was asked for by a HEAD */
    uint32_t crc32c;
};
struct cairn_store_presence {
    const char *prefix; /* all keys begin with it; ends with '/' */
    struct cairn_store_object *objects;
    size_t count;
    bool ask_each; /* a HEAD of each as well, for the CRC32C that is kept with an object */
    /* Hears each key under the prefix that is none of the objects; NULL: nobody asks. */
    void (*stray)(void *owner, const char *key, uint64_t size_bytes);
    void *owner;
    /* set by the look */
    bool listed;        /* else strays are not known: these keys may not list */
    uint32_t requests;  /* that were sent */
    size_t there_count; /* objects that are there with their size */
    /* the look's own, between start and finish; it must not move */
    struct cairn_store_request list;
    struct cairn_store_listing listing;
    char *page; /* that was asked for; NULL: the first */
    bool list_ready;
};
/* After a look that was CAIRN_OK, which leaves every object known. CAIRN_CORRUPT: "it is missing"
 * or "it has N bytes, not M", where N and M differ. */
enum cairn_code cairn_store_object_check(const struct cairn_store_object *object,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Every start has one finish, on the same worker; `presence` stays where it is until then. */
void cairn_store_presence_start(struct cairn_store_presence *presence,
                                struct cairn_store_worker *worker);
enum cairn_code cairn_store_presence_finish(struct cairn_store_presence *presence,
                                            struct cairn_store_worker *worker,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Both at once. */
enum cairn_code cairn_store_presence_look(struct cairn_store_presence *presence,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) CAIRN_MUST_USE;
