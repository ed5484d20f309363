/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatches to implementations and waits for small objects; open.c opens stores. */
#include "store/store.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/text.h"

/* Retries after an unknown outcome, on top of the workers' own. */
#define SMALL_TRIES_MAX 3
#define SMALL_FIRST_BYTES (64u << 10) /* nearly all documents of a version are shorter */

static const struct {
    const char *word, *verb;
    bool writes;
} ops[] = {
#define OP(name, word, verb, writes) {word, verb, writes},
#include "store/ops.def"
#undef OP
};
_Static_assert(CAIRN_COUNT(ops) == CAIRN_STORE_OP_COUNT, "the last row of ops.def");

const char *cairn_store_op_word(enum cairn_store_op op) {
    CAIRN_ASSERT((int)op < CAIRN_STORE_OP_COUNT);
    return ops[op].word;
}

const char *cairn_store_op_verb(enum cairn_store_op op) {
    CAIRN_ASSERT((int)op < CAIRN_STORE_OP_COUNT);
    return ops[op].verb;
}

bool cairn_store_op_writes(enum cairn_store_op op) {
    CAIRN_ASSERT((int)op < CAIRN_STORE_OP_COUNT);
    return ops[op].writes;
}

void cairn_store_set_failed(struct cairn_store *store, cairn_store_failed *failed, void *owner) {
    store->failed_owner = owner;
    atomic_store(&store->failed, failed);
}

void cairn_store_free(struct cairn_store *store) {
    if (store) store->vtable->free(store);
}

const struct cairn_store_profile *cairn_store_profile(const struct cairn_store *store) {
    return &store->profile;
}

const char *cairn_store_url(const struct cairn_store *store) {
    return store->url;
}

bool cairn_store_is_away(int os_errno) {
    /* NFS; FUSE without its helper; Lustre after an eviction; a server that is down. */
    return os_errno == ESTALE || os_errno == ENOTCONN || os_errno == ESHUTDOWN ||
           os_errno == EHOSTDOWN;
}

bool cairn_store_may_move(const struct cairn_store *store) {
    return store->vtable->moved != NULL;
}

bool cairn_store_moved(const struct cairn_store *store) {
    return store->vtable->moved && store->vtable->moved(store);
}

enum cairn_code cairn_store_follow(struct cairn_store *store, struct cairn_error *err) {
    return store->vtable->follow ? store->vtable->follow(store, err) : CAIRN_OK;
}

enum cairn_code cairn_store_keys(struct cairn_store *store, char ret_text[224],
                                 struct cairn_error *err) {
    ret_text[0] = '\0';
    return store->vtable->keys ? store->vtable->keys(store, ret_text, err) : CAIRN_OK;
}

bool cairn_store_keys_exposed(struct cairn_store *store, char ret_text[540]) {
    return store->vtable->keys_exposed && store->vtable->keys_exposed(store, ret_text);
}

int64_t cairn_store_keys_until_ms(struct cairn_store *store) {
    return store->vtable->keys_until_ms ? store->vtable->keys_until_ms(store) : 0;
}

enum cairn_code cairn_store_probe(struct cairn_store *store, const char *by, bool may_list,
                                  char ret_from[160], struct cairn_error *err) {
    ret_from[0] = '\0';
    return store->vtable->probe ? store->vtable->probe(store, by, may_list, ret_from, err)
                                : CAIRN_OK;
}

enum cairn_code cairn_store_profile_save(struct cairn_store *store, bool *ret_written,
                                         struct cairn_error *err) {
    *ret_written = false;
    return store->vtable->profile_save ? store->vtable->profile_save(store, ret_written, err)
                                       : CAIRN_OK;
}

void cairn_store_health(struct cairn_store *store, struct cairn_store_health *ret) {
    *ret = (struct cairn_store_health){0};
    if (store->vtable->health) store->vtable->health(store, ret);
}

bool cairn_store_misstates(struct cairn_store *store) {
    return store->vtable->misstates && store->vtable->misstates(store);
}

bool cairn_store_keeps_versions(struct cairn_store *store) {
    return store->vtable->keeps_versions && store->vtable->keeps_versions(store);
}

enum cairn_code cairn_store_tidy(struct cairn_store *store, struct cairn_error *err) {
    return store->vtable->tidy ? store->vtable->tidy(store, err) : CAIRN_OK;
}

bool cairn_store_copies_from(struct cairn_store *store, struct cairn_store *source) {
    bool (*copies_from)(struct cairn_store *, struct cairn_store *) = store->vtable->copies_from;
    return copies_from && copies_from(store, source);
}

enum cairn_code cairn_store_presign(struct cairn_store *store, const char *key, uint32_t expires_s,
                                    struct cairn_buf *ret_url, uint32_t *ret_expires_s,
                                    struct cairn_error *err) {
    if (!store->vtable->presign)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "store %s has no URLs of its own", store->url);
    return store->vtable->presign(store, key, expires_s, ret_url, ret_expires_s, err);
}

enum cairn_code cairn_store_worker_new(struct cairn_store *store, struct cairn_store_worker **ret,
                                       struct cairn_error *err) {
    return store->vtable->worker_new(store, ret, err);
}

void cairn_store_worker_free(struct cairn_store_worker *worker) {
    if (worker) worker->store->vtable->worker_free(worker);
}

void cairn_store_submit(struct cairn_store_worker *worker, struct cairn_store_request *request) {
    CAIRN_ASSERT(request->key && request->done);
    request->code = CAIRN_OK;
    request->ambiguous = false;
    request->object_bytes = 0;
    request->object_token[0] = '\0';
    request->object_has_crc32c = false;
    request->object_crc32c = 0;
    request->tries = 0;
    memset(request->retried, 0, sizeof(request->retried));
    request->error = (struct cairn_error){0};
    if (worker->patience_ms && !request->deadline_ms)
        request->deadline_ms = cairn_mono_ms() + worker->patience_ms;
    worker->store->vtable->submit(worker, request);
}

void cairn_store_cancel(struct cairn_store_worker *worker, struct cairn_store_request *request) {
    worker->store->vtable->cancel(worker, request);
}

enum cairn_code cairn_store_poll(struct cairn_store_worker *worker, uint32_t timeout_ms,
                                 struct cairn_error *err) {
    return worker->store->vtable->poll(worker, timeout_ms, err);
}

void cairn_store_wake(struct cairn_store_worker *worker) {
    worker->store->vtable->wake(worker);
}

uint32_t cairn_store_appetite(const struct cairn_store_worker *worker) {
    return worker->store->vtable->appetite(worker);
}

void cairn_store_listing_release(struct cairn_store_listing *listing) {
    for (size_t i = 0; i < listing->count; i++) {
        free(listing->entries[i].key);
        free(listing->entries[i].upload_id);
        free(listing->entries[i].version_id);
    }
    free(listing->entries);
    free(listing->next_page);
    *listing = (struct cairn_store_listing){0};
}

enum cairn_code cairn_store_pages_next(struct cairn_store_pages *pages,
                                       struct cairn_store_worker *worker, struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = CAIRN_TAKE(pages->listing.next_page);
    cairn_store_listing_release(&pages->listing);
    struct cairn_store_request list = pages->list;
    list.page = page;
    list.listing = &pages->listing;
    CAIRN_TRY(cairn_store_perform(worker, &list, err));
    pages->count++;
    pages->ended = !pages->listing.next_page;
    return CAIRN_OK;
}

void cairn_store_pages_release(struct cairn_store_pages *pages) {
    cairn_store_listing_release(&pages->listing);
}

enum cairn_code cairn_store_listed_check(const char *prefix, const struct cairn_store_entry *entry,
                                         struct cairn_error *err) {
    if (cairn_text_starts(entry->key, prefix)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_STORE,
                      "the store is broken: asked for %s below \"%.200s\", it listed \"%.200s\"",
                      entry->upload_id ? "uploads" : "objects", prefix, entry->key);
}

/* ---- blocking helpers ---- */

static void mark_finished(struct cairn_store_request *request) {
    *(bool *)request->owner = true;
}

enum cairn_code cairn_store_perform(struct cairn_store_worker *worker,
                                    struct cairn_store_request *request, struct cairn_error *err) {
    bool finished = false;
    request->done = mark_finished;
    request->owner = &finished;
    cairn_store_submit(worker, request);
    while (!finished) {
        enum cairn_code code = cairn_store_poll(worker, 1000, err);
        if (code == CAIRN_OK) continue;
        cairn_store_cancel(worker, request);
        return code;
    }
    request->owner = NULL;
    struct cairn_store *store = worker->store;
    cairn_store_failed *failed = request->code ? atomic_load(&store->failed) : NULL;
    if (failed) failed(store->failed_owner, &request->error);
    if (request->code != CAIRN_OK && err) *err = request->error;
    return request->code;
}

struct small_put {
    const char *key;
    struct cairn_view body;
    bool create, makes_room;
};

static enum cairn_code put_once(struct cairn_store_worker *worker, const struct small_put *put,
                                bool *ret_ambiguous, struct cairn_error *err) {
    struct cairn_store_request request = {.op = CAIRN_STORE_PUT,
                                          .key = put->key,
                                          .body = put->body,
                                          .create = put->create,
                                          .makes_room = put->makes_room};
    enum cairn_code code = cairn_store_perform(worker, &request, err);
    *ret_ambiguous = code != CAIRN_OK && request.ambiguous;
    return code;
}

/* CAIRN_OK: equal. CAIRN_CONFLICT: another content. CAIRN_NOT_FOUND: no object. */
static enum cairn_code compare_small(struct cairn_store_worker *worker, const char *key,
                                     struct cairn_view body, struct cairn_error *err) {
    CAIRN_AUTO(buf) there = {.limit = body.size ? body.size : 1};
    enum cairn_code code = cairn_store_get_small(worker, key, &there, err);
    if (code != CAIRN_OK && code != CAIRN_TOO_LARGE) return code;
    if (code == CAIRN_OK && there.size == body.size &&
        (body.size == 0 || memcmp(there.data, body.data, body.size) == 0))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT, "object %s is there with other content", key);
}

static enum cairn_code put_small(struct cairn_store_worker *worker, const struct small_put *put,
                                 struct cairn_error *err) {
    bool was_ambiguous = false, ambiguous = false;
    enum cairn_code code = CAIRN_OK;
    for (int i = 0; i < SMALL_TRIES_MAX; i++) {
        code = put_once(worker, put, &ambiguous, err);
        if (!ambiguous) break;
        was_ambiguous = true;
    }
    /* The existing object may be our own, from a try whose reply was lost. */
    if (!was_ambiguous || code == CAIRN_OK || !put->create) return code;
    if (code != CAIRN_PRECONDITION && !ambiguous) return code;
    struct cairn_error look = {0};
    return compare_small(worker, put->key, put->body, &look) == CAIRN_OK ? CAIRN_OK : code;
}

enum cairn_code cairn_store_put_small(struct cairn_store_worker *worker, const char *key,
                                      struct cairn_view body, bool create,
                                      struct cairn_error *err) {
    return put_small(worker, &(struct small_put){key, body, .create = create}, err);
}

/* Compares; makes equal bytes durable, since their writer may have died before its sync. */
static enum cairn_code found_same(struct cairn_store_worker *worker, const char *key,
                                  struct cairn_view body, struct cairn_error *err) {
    CAIRN_TRY(compare_small(worker, key, body, err));
    if (worker->store->profile.read_is_durable) return CAIRN_OK;
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key, .token = ""};
    return cairn_store_perform(worker, &head, err);
}

static enum cairn_code put_same(struct cairn_store_worker *worker, const struct small_put *put,
                                struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    bool look_first = !worker->store->profile.create_only_put;
    for (int i = 0; i < SMALL_TRIES_MAX; i++) {
        if (look_first) {
            code = found_same(worker, put->key, put->body, err);
            if (code != CAIRN_NOT_FOUND) return code;
        }
        bool ambiguous = false;
        code = put_once(worker, put, &ambiguous, err);
        if (code == CAIRN_OK && worker->store->profile.create_only_put) return CAIRN_OK;
        /* S3's 409: another conditional request. Only the content decides a conflict. */
        if (code != CAIRN_OK && code != CAIRN_PRECONDITION && code != CAIRN_CONFLICT && !ambiguous)
            return code;
        /* Compare: a lost reply of ours, another server's equal bytes, or a conflict. */
        look_first = true;
    }
    enum cairn_code looked = found_same(worker, put->key, put->body, err);
    if (looked != CAIRN_NOT_FOUND || code == CAIRN_OK) return looked;
    return code == CAIRN_CONFLICT
               ? cairn_fail(err, CAIRN_BUSY, "put %s: refused with 409", put->key)
               : code;
}

enum cairn_code cairn_store_put_same(struct cairn_store_worker *worker, const char *key,
                                     struct cairn_view body, struct cairn_error *err) {
    return put_same(worker, &(struct small_put){key, body, .create = true}, err);
}

enum cairn_code cairn_store_put_to_free(struct cairn_store_worker *worker, const char *key,
                                        struct cairn_view body, bool replaces,
                                        struct cairn_error *err) {
    const struct small_put put = {key, body, .create = !replaces, .makes_room = true};
    return replaces ? put_small(worker, &put, err) : put_same(worker, &put, err);
}

/* Reads up to `most` bytes from `*at` on into *ret, with the ETag of the first request. */
static enum cairn_code get_some(struct cairn_store_worker *worker, struct cairn_store_request *get,
                                uint64_t most, struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_reserve(ret, (size_t)most, err));
    get->length = most;
    get->into = ret->data + ret->size;
    CAIRN_TRY(cairn_store_perform(worker, get, err));
    get->offset += get->length;
    ret->size += (size_t)get->length;
    ret->data[ret->size] = '\0';
    return CAIRN_OK;
}

static enum cairn_code too_large(const char *key, uint64_t bytes, uint64_t room,
                                 struct cairn_error *err) {
    return cairn_fail(err, CAIRN_TOO_LARGE,
                      "object %s has %llu bytes, more than the %llu that are taken here", key,
                      (unsigned long long)bytes, (unsigned long long)room);
}

/* Nearly every document takes one request; a HEAD before it would double the time. */
static enum cairn_code get_whole(struct cairn_store_worker *worker, const char *key,
                                 uint64_t deadline_ms, uint64_t room, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    struct cairn_store_request get = {
        .op = CAIRN_STORE_GET, .key = key, .up_to = true, .deadline_ms = deadline_ms};
    enum cairn_code code = CAIRN_RANGE;
    if (room) code = get_some(worker, &get, cairn_min_u64(SMALL_FIRST_BYTES, room), ret, err);
    if (code == CAIRN_RANGE) { /* the object is empty: no byte range fits */
        struct cairn_store_request head = {
            .op = CAIRN_STORE_HEAD, .key = key, .deadline_ms = deadline_ms};
        CAIRN_TRY(cairn_store_perform(worker, &head, err));
        if (head.object_bytes > room) return too_large(key, head.object_bytes, room, err);
        return head.object_bytes == 0 ? CAIRN_OK : code;
    }
    CAIRN_TRY(code);
    if (get.object_bytes > room) return too_large(key, get.object_bytes, room, err);
    if (get.object_bytes == get.offset) return CAIRN_OK;
    get.up_to = false;
    return get_some(worker, &get, get.object_bytes - get.offset, ret, err);
}

enum cairn_code cairn_store_get_small(struct cairn_store_worker *worker, const char *key,
                                      struct cairn_buf *ret, struct cairn_error *err) {
    return cairn_store_get_small_by(worker, key, 0, ret, err);
}

enum cairn_code cairn_store_get_small_by(struct cairn_store_worker *worker, const char *key,
                                         uint64_t deadline_ms, struct cairn_buf *ret,
                                         struct cairn_error *err) {
    uint64_t limit = ret->limit ? ret->limit : CAIRN_BUF_LIMIT_DEFAULT;
    size_t before = ret->size;
    enum cairn_code code = CAIRN_PRECONDITION; /* the object was replaced between two requests */
    for (int i = 0; i < SMALL_TRIES_MAX && code == CAIRN_PRECONDITION; i++) {
        code = get_whole(worker, key, deadline_ms, limit - cairn_min_u64(limit, before), ret, err);
        if (code != CAIRN_OK) ret->size = before;
    }
    return code;
}

enum cairn_code cairn_store_delete(struct cairn_store_worker *worker, const char *key,
                                   struct cairn_error *err) {
    struct cairn_store_request request = {.op = CAIRN_STORE_DELETE, .key = key};
    for (int i = 0;; i++) {
        enum cairn_code code = cairn_store_perform(worker, &request, err);
        if (code == CAIRN_OK || !request.ambiguous || i + 1 == SMALL_TRIES_MAX) return code;
    }
}

enum cairn_code cairn_store_delete_many(struct cairn_store_worker *worker, const char *common,
                                        struct cairn_store_deletion *deletions, size_t count,
                                        struct cairn_error *err) {
    CAIRN_ASSERT(count <= CAIRN_STORE_DELETIONS_MAX);
    struct cairn_store_request request = {.op = CAIRN_STORE_DELETE_MANY,
                                          .key = common,
                                          .deletions = deletions,
                                          .deletion_count = count};
    return count ? cairn_store_perform(worker, &request, err) : CAIRN_OK;
}

/* ---- deleted versions ---- */

/* Three passes over a listing of versions: delete; count the rest; if none, delete markers. */
#define VERSION_PAGES_MAX 1000000

enum pass { PASS_VERSIONS, PASS_COUNT, PASS_MARKERS };

static void note_left(struct cairn_store_purge *purge, enum cairn_code why, const char *reason) {
    if (purge->why) return;
    purge->why = why;
    (void)cairn_text_copy(purge->reason, sizeof purge->reason, reason);
}

/* A listing for a key also lists longer keys. */
static bool is_meant(const struct cairn_store_purge *purge, const struct cairn_store_entry *entry) {
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

static enum cairn_code purge_page(struct cairn_store_worker *worker,
                                  struct cairn_store_purge *purge, enum pass pass,
                                  const struct cairn_store_listing *listing,
                                  struct cairn_error *err) {
    /* Checked again after store/: one wrong key deletes a user's checkpoint. */
    for (size_t i = 0; i < listing->count; i++)
        if (!cairn_text_starts(listing->entries[i].key, purge->prefix))
            return cairn_fail(err, CAIRN_STORE, "%s was listed, which is not below %s",
                              listing->entries[i].key, purge->prefix);
    if (pass != PASS_COUNT) {
        bool markers = pass == PASS_MARKERS;
        CAIRN_AUTO_HEAP struct cairn_store_deletion *batch =
            calloc(CAIRN_STORE_DELETIONS_MAX, sizeof *batch);
        size_t count = 0;
        if (!batch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a purge");
        for (size_t i = 0; i < listing->count; i++) {
            const struct cairn_store_entry *entry = &listing->entries[i];
            if (!is_meant(purge, entry) || entry->is_marker != markers) continue;
            purge->freed_objects += !markers;
            purge->freed_bytes += entry->size_bytes;
            batch[count++] =
                (struct cairn_store_deletion){.key = entry->key, .version_id = entry->version_id};
            if (count < CAIRN_STORE_DELETIONS_MAX) continue;
            CAIRN_TRY(delete_batch(worker, purge, batch, count, err));
            count = 0;
        }
        return delete_batch(worker, purge, batch, count, err);
    }
    for (size_t i = 0; i < listing->count; i++) {
        const struct cairn_store_entry *entry = &listing->entries[i];
        if (!is_meant(purge, entry) || entry->is_marker) continue;
        purge->left_objects++;
        purge->left_bytes += entry->size_bytes;
    }
    return CAIRN_OK;
}

static enum cairn_code run_pass(struct cairn_store_worker *worker, struct cairn_store_purge *purge,
                                enum pass pass, struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_VERSIONS, .key = purge->prefix}};
    while (!pages.ended && pages.count < VERSION_PAGES_MAX) {
        CAIRN_TRY(cairn_store_pages_next(&pages, worker, err));
        CAIRN_TRY(purge_page(worker, purge, pass, &pages.listing, err));
    }
    if (pages.ended) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d pages of versions", purge->prefix,
                      VERSION_PAGES_MAX);
}

/* Refusals that recur until an administrator grants a permission. */
static bool is_refusal(enum cairn_code code) {
    return code == CAIRN_FORBIDDEN || code == CAIRN_UNSUPPORTED || code == CAIRN_INVALID;
}

enum cairn_code cairn_store_purge(struct cairn_store_worker *worker,
                                  struct cairn_store_purge *purge, struct cairn_error *err) {
    struct cairn_error why = {0};
    CAIRN_ASSERT(*purge->prefix); /* never lists the whole store */
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
        purge->why = CAIRN_OK; /* the refused versions have disappeared meanwhile */
        code = run_pass(worker, purge, PASS_MARKERS, &why);
    }
    return cairn_pass(err, code, &why);
}
