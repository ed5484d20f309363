/* SPDX-License-Identifier: Apache-2.0 */
/* Raise, wait, list the stores for their runs, then run by run what a reconcile does; see
 * reindex.h. */
#include "server/recovery/reindex.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/array.h"
#include "common/crashpoint.h"
#include "common/text.h"
#include "server/guard/identity.h"
#include "server/guard/said_copy.h"
#include "server/ledger/runs.h"
#include "server/recovery/mend_read.h"
#include "store/record.h"

#define PAGES_MAX 1000000
#define RUNS_MAX 1000000
#define TAKEN_AT_ONCE 64
#define UNREAD_IN_A_ROW_MAX 16 /* then the store is away, and each further run would wait for it */
#define COPIES_MAX 1000 /* of what was said; two are there, mostly */

/* ---- which runs there are ---- */

/* A folder of somebody else's in the same bucket makes no run: it has no record of ours. */
static bool run_of(const char *key, struct cairn_run_name *ret) {
    const char *rest = NULL;
    struct cairn_key_parts parts;
    if (!cairn_key_run(key, ret, &rest)) return false;
    cairn_key_read(rest, &parts);
    return parts.kind == CAIRN_KEY_ATTEMPT || parts.kind == CAIRN_KEY_ATTEMPT_COPY ||
           parts.kind == CAIRN_KEY_COMMITTED;
}

static int by_name(const void *a, const void *b) {
    const struct cairn_run_name *left = a, *right = b;
    int order = strcmp(left->project, right->project);
    return order ? order : strcmp(left->run, right->run);
}

/* A store lists by key, so the keys of a run follow each other; where one does not, sorting finds
 * the run's further names. */
static enum cairn_code add_run(struct cairn_srv_run_names *names, const struct cairn_run_name *name,
                               struct cairn_error *err) {
    if (names->count && !by_name(&names->names[names->count - 1], name)) return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(names->names, names->count, names->capacity, RUNS_MAX,
                               "runs of a bucket", err));
    names->names[names->count++] = *name;
    return CAIRN_OK;
}

static void sort(struct cairn_srv_run_names *names) {
    size_t kept = 0;
    if (names->count) qsort(names->names, names->count, sizeof(*names->names), by_name);
    for (size_t i = 0; i < names->count; i++)
        if (!kept || by_name(&names->names[kept - 1], &names->names[i]))
            names->names[kept++] = names->names[i];
    names->count = kept;
}

static enum cairn_code list_one(struct cairn_srv_reindex *reindex,
                                struct cairn_store_worker *worker, struct cairn_srv_run_names *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    for (size_t pages = 0; pages < PAGES_MAX; pages++) {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request list = {
            .op = CAIRN_STORE_LIST, .key = "", .page = page, .listing = &listing};
        CAIRN_TRY(cairn_store_perform(worker, &list, err));
        for (size_t i = 0; i < listing.count; i++) {
            struct cairn_run_name name;
            if (run_of(listing.entries[i].key, &name)) CAIRN_TRY(add_run(ret, &name, err));
        }
        free(page);
        page = CAIRN_TAKE(listing.next_page);
        reindex->progress(reindex->owner, NULL, 0, ret->count);
        if (!page) return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_TOO_LARGE, "the store has more than %d pages", PAGES_MAX);
}

static enum cairn_code list_runs(struct cairn_srv_reindex *reindex,
                                 const struct cairn_srv_run_stores *stores,
                                 struct cairn_srv_run_names *ret, struct cairn_error *err) {
    for (size_t i = 0; i < stores->count; i++) {
        enum cairn_code code = list_one(reindex, stores->stores[i].worker, ret, err);
        if (code) return cairn_srv_run_store_within(stores, i, code, err);
        sort(ret);
    }
    return CAIRN_OK;
}

/* ---- one run ---- */

static void tell(struct cairn_srv_reindex *reindex, const char *key, enum cairn_code code,
                 const char *cause) {
    reindex->problem(reindex->owner, key, code, cause);
    if (code == CAIRN_CORRUPT)
        reindex->done.damaged++;
    else if (code == CAIRN_UNSUPPORTED)
        reindex->done.newer++;
    else
        reindex->done.unread++;
}

struct making {
    struct cairn_srv *server;
    const struct cairn_run_name *name;
};
static enum cairn_code make_run(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct making *making = argument;
    CAIRN_AUTO(srv_run) run = {0};
    return cairn_srv_run_take(tx, making->name, cairn_srv_wall_ms(making->server), &run, err);
}

/* One of several stores is named before the key. */
static void tell_wrong(void *owner, const char *store, const char *key, enum cairn_code code,
                       const char *cause) {
    struct cairn_srv_reindex *reindex = owner;
    char text[CAIRN_KEY_BYTES_MAX + CAIRN_SRV_TIER_NAME_BYTES + 4];
    bool several = reindex->done.store_count > 1;
    snprintf(text, sizeof(text), "%s%s%s", several ? store : "", several ? ": " : "", key);
    tell(reindex, text, code, cause);
}

static void count_copies(struct cairn_srv_reindex *reindex,
                         const struct cairn_srv_mend_version *one, size_t stores) {
    size_t whole = 0;
    for (size_t i = 0; i < stores; i++)
        whole += one->copies[i] == CAIRN_SRV_SEEN_WHOLE || one->copies[i] == CAIRN_SRV_SEEN_RECORD;
    for (size_t i = 0; i < stores; i++) {
        struct cairn_srv_reindexed_store *store = &reindex->done.stores[i];
        enum cairn_srv_copy_seen seen = one->copies[i];
        bool there = seen == CAIRN_SRV_SEEN_WHOLE || seen == CAIRN_SRV_SEEN_RECORD;
        store->whole += there;
        store->alone += there && whole == 1;
        store->unfinished += seen == CAIRN_SRV_SEEN_OBJECTS;
        store->damaged += seen == CAIRN_SRV_SEEN_DAMAGED;
        store->remains += seen == CAIRN_SRV_SEEN_REMAINS;
    }
}

static void count_version(struct cairn_srv_reindex *reindex, const struct cairn_srv_mend *mend,
                          const struct cairn_srv_mend_version *one) {
    reindex->done.found += one->known;
    reindex->done.versions += !one->known && one->verified;
    reindex->done.remains += !one->known && !one->verified && !one->damaged && !one->newer;
    count_copies(reindex, one, mend->stores.count);
}

/* Taken over as they are verified: only so many manifests are in memory. */
static enum cairn_code take_versions(struct cairn_srv_reindex *reindex, struct cairn_srv_mend *mend,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_mend_versions_new(mend, err));
    for (size_t from = 0; from < mend->version_count; from += TAKEN_AT_ONCE) {
        size_t to = cairn_min_u64(from + TAKEN_AT_ONCE, mend->version_count);
        for (size_t i = from; i < to; i++) {
            CAIRN_TRY(cairn_srv_mend_read_version(mend, i, err));
            count_version(reindex, mend, &mend->versions[i]);
        }
        CAIRN_TRY(cairn_srv_mend_take(mend, from, to, err));
    }
    return CAIRN_OK;
}

static enum cairn_code take_attempts(struct cairn_srv_reindex *reindex, struct cairn_srv_mend *mend,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_mend_read_attempts(mend, err));
    for (size_t i = 0; i < mend->attempt_count; i++) {
        struct cairn_key key;
        cairn_key_attempt(&mend->objects.name, mend->attempts[i].number, &key);
        if (!mend->attempts[i].readable)
            tell(reindex, key.text, mend->attempts[i].newer ? CAIRN_UNSUPPORTED : CAIRN_CORRUPT,
                 mend->attempts[i].cause);
    }
    reindex->done.attempts += mend->attempt_count;
    return CAIRN_OK;
}

static enum cairn_code take_run(struct cairn_srv_reindex *reindex,
                                struct cairn_store_worker *worker,
                                const struct cairn_run_name *name, struct cairn_error *err) {
    struct making making = {reindex->server, name};
    struct cairn_srv_mend mend = {.server = reindex->server,
                                  .objects.name = *name,
                                  .tell = tell_wrong,
                                  .owner = reindex};
    enum cairn_code code =
        cairn_srv_catalog_write(reindex->server->catalog, make_run, &making, err);
    if (!code) code = cairn_srv_mend_open(&mend, worker, err);
    if (!code) code = take_attempts(reindex, &mend, err);
    if (!code) code = take_versions(reindex, &mend, err);
    if (!code) code = cairn_srv_mend_apply(&mend, err);
    cairn_srv_mend_release(&mend);
    return code;
}

/* ---- all of it ---- */

static enum cairn_code take_runs(struct cairn_srv_reindex *reindex,
                                 struct cairn_store_worker *worker,
                                 const struct cairn_srv_run_names *names, struct cairn_error *err) {
    unsigned in_a_row = 0;
    for (size_t i = 0; i < names->count; i++) {
        const struct cairn_run_name *name = &names->names[i];
        struct cairn_error why = {0};
        char text[2 * CAIRN_NAME_BYTES_MAX + 2];
        reindex->progress(reindex->owner, name, i + 1, names->count);
        enum cairn_code code = take_run(reindex, worker, name, &why);
        reindex->done.runs += code == CAIRN_OK;
        in_a_row = code ? in_a_row + 1 : 0;
        CAIRN_CRASHPOINT("server.reindex.after_run");
        if (!code) continue;
        CAIRN_TRY(cairn_srv_catalog_writable(reindex->server->catalog, err));
        snprintf(text, sizeof(text), "%s/%s", name->project, name->run);
        bool of_document = code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED;
        tell(reindex, text, of_document ? CAIRN_STORE : code, why.message);
        if (in_a_row < UNREAD_IN_A_ROW_MAX) continue;
        return cairn_fail(err, code, "%u runs one after the other could not be read, the last: %s",
                          in_a_row, why.message);
    }
    return CAIRN_OK;
}

/* After the versions that it speaks of. In the place of a copy that is damaged stands the one
 * before: what was said between the two is lost, and the rest is had. */
static enum cairn_code take_said(struct cairn_srv_reindex *reindex,
                                 struct cairn_store_worker *worker, struct cairn_error *err) {
    for (size_t before = 0; before < COPIES_MAX; before++) {
        struct cairn_key key;
        struct cairn_error why = {0};
        enum cairn_code code = cairn_srv_said_copy_take(reindex->server, worker, before, &key,
                                                        &reindex->done.said, &why);
        if (!code) return CAIRN_OK;
        CAIRN_TRY(cairn_srv_catalog_writable(reindex->server->catalog, err));
        tell(reindex, key.text[0] ? key.text : ".cairn/catalog/", code, why.message);
        if (code != CAIRN_CORRUPT) return CAIRN_OK;
    }
    return CAIRN_OK;
}

/* An empty folder or bucket would get a store.json of its own, and look like a store that lost all
 * of its runs. */
static enum cairn_code must_be_store(struct cairn_srv_reindex *reindex,
                                     struct cairn_store_worker *worker, struct cairn_error *err) {
    struct cairn_store_record record = {0};
    struct cairn_srv *server = reindex->server;
    const char *url = cairn_store_url(server->store);
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, code,
                          "%s has no .cairn/store.json: is it the right folder or bucket, with its "
                          "prefix, and is it mounted?",
                          url);
    if (code) return cairn_within(err, code, "store.json of %s", url);
    (void)cairn_text_copy(server->store_uuid, sizeof(server->store_uuid), record.uuid);
    return CAIRN_OK;
}

static void add_store(struct cairn_srv_reindex *reindex, const char *name,
                      const struct cairn_store *store, bool left_out) {
    CAIRN_ASSERT(reindex->done.store_count < CAIRN_SRV_TIERS_MAX);
    reindex->done.stores[reindex->done.store_count++] = (struct cairn_srv_reindexed_store){
        .name = name, .url = cairn_store_url(store), .left_out = left_out};
}

/* reindex.h#3. Those that are read have the places that they have in run_stores. */
static enum cairn_code must_be_ours(struct cairn_srv_reindex *reindex, struct cairn_error *err) {
    struct cairn_srv *server = reindex->server;
    struct cairn_srv_tiers *tiers = server->tiers;
    add_store(reindex, CAIRN_SRV_TIER_MAIN, server->store, false);
    for (int left_out = 0; left_out < 2; left_out++)
        for (size_t i = 0; tiers && i < tiers->count; i++)
            if (i != tiers->main && tiers->tiers[i].left_out == (left_out != 0))
                add_store(reindex, tiers->tiers[i].name, tiers->tiers[i].store, left_out);
    for (size_t i = 0; tiers && i < tiers->count; i++) {
        struct cairn_srv_tier *tier = &tiers->tiers[i];
        struct cairn_store_worker *worker = NULL;
        struct cairn_error why = {0};
        if (i == tiers->main || tier->left_out) continue;
        enum cairn_code code = cairn_srv_tier_borrow(server, tier, &worker, &why);
        if (!code) code = cairn_srv_tier_is_ours(server, tier, worker, &why);
        cairn_srv_tier_return(server, tier, worker);
        if (code == CAIRN_FORBIDDEN) return cairn_fail(err, code, "%s", why.message);
        if (code)
            return cairn_fail(err, code,
                              "%s cannot be read; with --without %s a reindex goes on, and what "
                              "lies there alone is not had: %s",
                              tier->name, tier->name, why.message);
    }
    return CAIRN_OK;
}

/* Q35: what the server of the old catalog has on the wire ends meanwhile. */
static void wait_for_others(const struct cairn_srv *server) {
    uint64_t wait_ms = server->settings->reconcile_wait_ms;
    struct timespec left = {.tv_sec = (time_t)(wait_ms / 1000),
                            .tv_nsec = (long)(wait_ms % 1000) * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

static enum cairn_code take_all(struct cairn_srv_reindex *reindex,
                                struct cairn_store_worker *worker,
                                struct cairn_srv_run_stores *stores, struct cairn_error *err) {
    CAIRN_AUTO(srv_run_names) names = {0};
    CAIRN_TRY(cairn_srv_run_stores_open(stores, reindex->server, worker, err));
    CAIRN_TRY(list_runs(reindex, stores, &names, err));
    CAIRN_TRY(take_runs(reindex, worker, &names, err));
    return take_said(reindex, worker, err);
}

enum cairn_code cairn_srv_reindex(struct cairn_srv_reindex *reindex,
                                  struct cairn_store_worker *worker, struct cairn_error *err) {
    struct cairn_srv_run_stores stores = {0};
    reindex->done = (struct cairn_srv_reindexed){0};
    CAIRN_TRY(must_be_store(reindex, worker, err));
    CAIRN_TRY(must_be_ours(reindex, err));
    if (!reindex->dry) {
        CAIRN_ASSERT(reindex->server->settings->adopt_store); /* its generation is ahead of none */
        CAIRN_TRY(cairn_srv_identity_start(reindex->server, worker, err));
        wait_for_others(reindex->server);
    }
    enum cairn_code code = take_all(reindex, worker, &stores, err);
    cairn_srv_run_stores_release(&stores);
    return code;
}
