/* SPDX-License-Identifier: Apache-2.0 */
/* Three passes over a listing of versions: they are deleted; what is left is counted; and if
 * nothing is, the markers go. */
#include "store/purge.h"

#include <stdlib.h>

#include "common/text.h"

#define PAGES_MAX 1000000

enum pass { PASS_VERSIONS, PASS_COUNT, PASS_MARKERS };

static void note_left(struct cairn_store_purge *purge, enum cairn_code why, const char *reason) {
    if (purge->why) return;
    purge->why = why;
    (void)cairn_text_copy(purge->reason, sizeof purge->reason, reason);
}

/* A listing of a key lists all that begins with it. */
static bool is_meant(const struct cairn_store_purge *purge,
                     const struct cairn_store_entry *entry) {
    bool young = !entry->modified_ms || entry->modified_ms >= purge->before_ms;
    if (purge->before_ms && young) return false;
    if (purge->spares && purge->spares(entry->key)) return false;
    return entry->version_id && (!purge->is_key || !strcmp(entry->key, purge->prefix));
}

static enum cairn_code delete_batch(struct cairn_store_worker *worker,
                                    struct cairn_store_purge *purge,
                                    struct cairn_store_deletion *batch, size_t count,
                                    struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = cairn_store_delete_many(worker, purge->prefix, batch, count, &why);
    bool each_told = true;
    for (size_t i = 0; i < count; i++) {
        each_told &= batch[i].deleted || batch[i].code;
        if (!batch[i].deleted && batch[i].code) note_left(purge, batch[i].code, batch[i].reason);
    }
    if (code && !each_told && err) *err = why;
    return code && !each_told ? code : CAIRN_OK;
}

static enum cairn_code delete_page(struct cairn_store_worker *worker,
                                   struct cairn_store_purge *purge,
                                   const struct cairn_store_listing *listing, bool markers,
                                   struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_store_deletion *batch =
        calloc(CAIRN_STORE_DELETIONS_MAX, sizeof *batch);
    size_t count = 0;
    if (!batch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a purge");
    for (size_t i = 0; i < listing->count; i++) {
        const struct cairn_store_entry *entry = &listing->entries[i];
        if (!is_meant(purge, entry) || entry->is_marker != markers) continue;
        purge->freed_objects += !markers;
        purge->freed_bytes += entry->size_bytes;
        batch[count++] = (struct cairn_store_deletion){.key = entry->key,
                                                       .version_id = entry->version_id};
        if (count < CAIRN_STORE_DELETIONS_MAX) continue;
        CAIRN_TRY(delete_batch(worker, purge, batch, count, err));
        count = 0;
    }
    return delete_batch(worker, purge, batch, count, err);
}

static void count_page(struct cairn_store_purge *purge, const struct cairn_store_listing *listing) {
    for (size_t i = 0; i < listing->count; i++) {
        const struct cairn_store_entry *entry = &listing->entries[i];
        if (!is_meant(purge, entry) || entry->is_marker) continue;
        purge->left_objects++;
        purge->left_bytes += entry->size_bytes;
    }
}

static enum cairn_code take_page(struct cairn_store_worker *worker,
                                 struct cairn_store_purge *purge, enum pass pass,
                                 struct cairn_store_request *list, struct cairn_error *err) {
    CAIRN_TRY(cairn_store_perform(worker, list, err));
    /* store/ has compared it; once more, since one wrong key deletes somebody's checkpoint. */
    for (size_t i = 0; i < list->listing->count; i++)
        if (!cairn_text_starts(list->listing->entries[i].key, purge->prefix))
            return cairn_fail(err, CAIRN_STORE, "%s was listed, which is not below %s",
                              list->listing->entries[i].key, purge->prefix);
    if (pass != PASS_COUNT)
        return delete_page(worker, purge, list->listing, pass == PASS_MARKERS, err);
    count_page(purge, list->listing);
    return CAIRN_OK;
}

static enum cairn_code run_pass(struct cairn_store_worker *worker, struct cairn_store_purge *purge,
                                enum pass pass, struct cairn_error *err) {
    char *page = NULL;
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < PAGES_MAX && !code; i++) {
        struct cairn_store_listing listing = {0};
        struct cairn_store_request list = {.op = CAIRN_STORE_VERSIONS,
                                           .key = purge->prefix,
                                           .page = page,
                                           .listing = &listing};
        code = take_page(worker, purge, pass, &list, err);
        free(page);
        page = CAIRN_TAKE(listing.next_page);
        cairn_store_listing_release(&listing);
        if (!page) break;
    }
    if (!code && page)
        code = cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d pages of versions",
                          purge->prefix, PAGES_MAX);
    free(page);
    return code;
}

/* Refusals that the next try meets again, unless somebody gives a right. */
static bool is_refusal(enum cairn_code code) {
    return code == CAIRN_FORBIDDEN || code == CAIRN_UNSUPPORTED || code == CAIRN_INVALID;
}

enum cairn_code cairn_store_purge(struct cairn_store_worker *worker,
                                  struct cairn_store_purge *purge, struct cairn_error *err) {
    struct cairn_error why = {0};
    CAIRN_ASSERT(*purge->prefix); /* a listing of the whole store is asked for by nobody */
    if (!cairn_store_keeps_versions(worker->store)) return CAIRN_OK;
    enum cairn_code code = run_pass(worker, purge, PASS_VERSIONS, &why);
    if (!code) code = run_pass(worker, purge, PASS_COUNT, &why);
    purge->freed_objects -= cairn_min_u64(purge->left_objects, purge->freed_objects);
    purge->freed_bytes -= cairn_min_u64(purge->left_bytes, purge->freed_bytes);
    purge->uncounted = is_refusal(code);
    if (purge->uncounted) {
        note_left(purge, code, why.message);
        return CAIRN_OK;
    }
    if (!code && purge->left_objects) {
        note_left(purge, CAIRN_STORE, "the store says that it deleted them, and lists them still");
        return CAIRN_OK;
    }
    if (!code) {
        purge->why = CAIRN_OK; /* what was refused went by itself meanwhile, or came late */
        code = run_pass(worker, purge, PASS_MARKERS, &why);
    }
    if (code && err) *err = why;
    return code;
}
