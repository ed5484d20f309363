/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a copy of a version in another store, under that store's own keys.
 *  1  The row (MAKING) precedes the copy's first object: if the server dies, another finds the row
 *     and finishes the copy.
 *  2  Order: shards, layout, the attempt's records, checksums.bin, manifest.json, a check of them
 *     all, committed.json: a copy that reads as whole is whole, whenever this process ends.
 *  3  The version's row is read again before each important step: a version that was trashed or
 *     deleted, or whose copy is to be removed, gets no committed.json.
 *  4  A repeated call sends only the objects that are missing.
 *  P3 Each block read is compared with checksums.bin; what is sent bears its checksum, which the
 *     store verifies or this process sums: damage must not spread into a copy.
 *  5  A shard appears whole or not at all (store/multipart.h); its upload token derives from
 *     version, store and shard, so a later attempt recognizes and keeps what an earlier one sent.
 *  6  A different object under a shard's key is never replaced (CAIRN_CONFLICT), unless it was
 *     found damaged (`replaces`); then one request replaces it.
 *  7  Within one S3 the store copies parts server-side, conditional on the source's first ETag. A
 *     part counts if the store reports a CRC32C that equals the one of checksums.bin; any other
 *     part is sent through this process. */

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/hooks.h"
#include "common/log.h"
#include "common/memory.h"
#include "server/copies/copies.h"
#include "server/guard/identity.h"
#include "server/http/waiters.h"
#include "server/metrics.h"
#include "server/sweep/sweep_objects.h"
#include "store/multipart.h"

#define TELL_MS 500
#define CAUSE_BYTES 200 /* leaves room for the store's name and the remedy */
#define READ_MS_MAX 60000
#define AGAIN_MS 200

enum cairn_code srv_copy_say_full(enum cairn_code code, const char *store, const char *to_do,
                                  struct cairn_error *err) {
    if (code != CAIRN_NO_SPACE || !err) return code;
    char cause[CAUSE_BYTES]; /* shortened in its middle, by its keys: the end states the reason */
    cairn_utf8_shorten(cause, sizeof(cause), err->message);
    snprintf(err->message, sizeof(err->message), "no room left in store %s; %s: %s", store, to_do,
             cause);
    return code;
}

void srv_shard_copy_release(struct srv_shard_copy *copy) {
    cairn_pages_unmap(copy->buffer, copy->buffer_bytes);
    copy->buffer = NULL;
    copy->buffer_bytes = 0;
}

struct shard_run {
    struct srv_shard_copy *copy;
    const struct cairn_manifest_shard *shard;
    size_t index;
    struct cairn_key key;
    struct cairn_multipart mp;
    struct cairn_store_part *parts;
    struct cairn_store *source;
    char source_etag[128];
};

/* 5. */
static void make_token(const struct shard_run *run, char ret[CAIRN_UUID_TEXT_BYTES]) {
    const struct srv_shard_copy *copy = run->copy;
    uint8_t digest[CAIRN_SHA256_BYTES];
    CAIRN_AUTO(buf) text = {0};
    if (cairn_buf_printf(&text, NULL, "cairn-copy-1\n%s\n%s\n%s", copy->version->place.id.text,
                         copy->to->name, run->shard->name) != CAIRN_OK)
        cairn_buf_clear(&text); /* a resent shard is not recognized, and refused */
    cairn_sha256_of(cairn_buf_view(&text), digest);
    cairn_uuid_from_digest(digest, ret);
}

static enum cairn_code reserve(struct srv_shard_copy *copy, uint64_t bytes,
                               struct cairn_error *err) {
    uint64_t wanted = cairn_max_u64(bytes, CAIRN_MULTIPART_READ_BYTES);
    if (copy->buffer_bytes >= wanted) return CAIRN_OK;
    srv_shard_copy_release(copy);
    copy->buffer = cairn_pages_map((size_t)wanted);
    if (!copy->buffer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a shard");
    copy->buffer_bytes = (size_t)wanted;
    return CAIRN_OK;
}

static const uint8_t *checksums_of(const struct shard_run *run, uint64_t offset) {
    uint64_t block = run->shard->first_block + offset / CAIRN_BLOCK_BYTES;
    return (const uint8_t *)run->copy->version->checksums.data + 4 * block;
}

static enum cairn_code prepare_upload(struct shard_run *run, struct cairn_error *err) {
    struct srv_shard_copy *copy = run->copy;
    char token[CAIRN_UUID_TEXT_BYTES];
    enum cairn_code code = CAIRN_OK;
    uint64_t size = run->shard->size_bytes, count = cairn_div_up(size, CAIRN_BLOCK_BYTES);
    uint64_t part_bytes = cairn_multipart_part_bytes(cairn_store_profile(copy->to->store), size,
                                                     SRV_COPY_PART_BYTES, 1);
    CAIRN_TRY(reserve(copy, cairn_min_u64(part_bytes, size), err));
    CAIRN_AUTO_HEAP uint32_t *blocks = calloc((size_t)count + 1, sizeof(*blocks));
    if (!blocks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a shard");
    for (uint64_t i = 0; i < count; i++)
        blocks[i] = cairn_load_u32le(checksums_of(run, i * CAIRN_BLOCK_BYTES));
    if (copy->replaces)
        cairn_uuid_random(token); /* the damaged object must not be recognized as our upload */
    else
        make_token(run, token);
    CAIRN_TRY(cairn_multipart_init(&run->mp, size, part_bytes, token, err));
    if (copy->replaces)
        code = cairn_multipart_ready(&run->mp, size, blocks, 0, count, err);
    else
        code = cairn_multipart_recover(&run->mp, NULL, blocks, err);
    if (code) return code;
    if (!copy->replaces) cairn_multipart_source(&run->mp);
    run->parts = calloc(run->mp.part_count + 1, sizeof(*run->parts));
    return run->parts ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a shard");
}

/* ---- one action ---- */

static void log_again(void *owner, const struct cairn_error *why) {
    const struct shard_run *run = owner;
    cairn_log(WARN, "copy.read_again", "key=%s cause=\"%s\"", run->key.text, why->message);
}

static enum cairn_code read_part(struct shard_run *run, const struct cairn_multipart_action *action,
                                 struct cairn_error *err) {
    const struct srv_shard_copy *copy = run->copy;
    struct srv_tier_range range = {.key = run->key.text,
                                   .offset = action->offset,
                                   .length = action->length,
                                   .into = copy->buffer,
                                   .tags = copy->tags,
                                   .object = run->index,
                                   .object_count = copy->version->manifest.shard_count,
                                   .object_bytes = run->shard->size_bytes,
                                   .checksums = checksums_of(run, action->offset),
                                   .wait_ms = READ_MS_MAX,
                                   .again = log_again,
                                   .owner = run};
    if (!action->length) return CAIRN_OK;
    CAIRN_ASSERT(action->length <= copy->buffer_bytes);
    return srv_tier_read(copy->server, copy->worker, copy->where, &range, err);
}

static enum cairn_store_op op_of(enum cairn_multipart_kind kind) {
    static const enum cairn_store_op ops[] = {
        [CAIRN_MULTIPART_PUT] = CAIRN_STORE_PUT,
        [CAIRN_MULTIPART_CREATE] = CAIRN_STORE_UPLOAD_CREATE,
        [CAIRN_MULTIPART_PART] = CAIRN_STORE_UPLOAD_PART,
        [CAIRN_MULTIPART_COMPLETE] = CAIRN_STORE_UPLOAD_COMPLETE,
        [CAIRN_MULTIPART_HEAD] = CAIRN_STORE_HEAD,
        [CAIRN_MULTIPART_LIST_PARTS] = CAIRN_STORE_UPLOAD_PARTS,
        [CAIRN_MULTIPART_READ] = CAIRN_STORE_GET,
        [CAIRN_MULTIPART_ABORT] = CAIRN_STORE_UPLOAD_ABORT,
    };
    CAIRN_ASSERT((size_t)kind < CAIRN_COUNT(ops)); /* the other actions send no request */
    return ops[kind];
}

static void fill_request(struct shard_run *run, const struct cairn_multipart_action *action,
                         struct cairn_store_request *ret) {
    const struct cairn_multipart *mp = &run->mp;
    bool publishes =
        action->kind == CAIRN_MULTIPART_PUT || action->kind == CAIRN_MULTIPART_COMPLETE;
    bool carries = action->kind == CAIRN_MULTIPART_PUT || action->kind == CAIRN_MULTIPART_PART;
    bool reads = action->kind == CAIRN_MULTIPART_READ;
    bool lists = action->kind == CAIRN_MULTIPART_LIST_PARTS;
    *ret = (struct cairn_store_request){
        .op = op_of(action->kind),
        .key = run->key.text,
        .token = mp->token,
        .upload_id_in = mp->upload_id,
        .part_number = action->part_number,
        .create = publishes && !run->copy->replaces,
        .has_crc32c = publishes || carries,
        .crc32c = action->kind == CAIRN_MULTIPART_PART ? action->crc32c : mp->crc32c,
        .offset = action->offset,
        .length = carries || reads || lists ? action->length : mp->size_bytes,
        .into = reads ? run->copy->buffer : NULL,
        .wants_crc32c = reads,
        .settles = carries,
        .parts = lists ? run->parts : NULL,
        .part_count = lists ? mp->part_count : 0};
    if (carries) ret->body = (struct cairn_view){run->copy->buffer, (size_t)action->length};
    if (action->kind != CAIRN_MULTIPART_COMPLETE) return;
    for (uint32_t i = 0; i < mp->part_count; i++) run->parts[i] = mp->parts[i].sent;
    ret->parts = run->parts;
    ret->part_count = mp->part_count;
}

/* ---- server-side copies within one S3 ---- */

/* Finds the nearest copy that the target can copy from, and its current ETag. */
static void find_source(struct shard_run *run) {
    const struct srv_shard_copy *copy = run->copy;
    for (size_t i = 0; i < copy->where->count && !run->source && !copy->replaces; i++) {
        struct srv_tier *tier = copy->where->tiers[i];
        bool main = srv_tier_is_main(copy->server, tier);
        struct cairn_store_worker *worker = copy->worker;
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = run->key.text};
        if (!cairn_store_copies_from(copy->to->store, tier->store)) continue;
        if (!main && srv_tier_borrow(copy->server, tier, &worker, NULL)) continue;
        enum cairn_code code = cairn_store_perform(worker, &head, NULL);
        if (!main) srv_tier_return(copy->server, tier, worker);
        if (code || head.object_bytes != run->shard->size_bytes || !head.etag[0]) continue;
        run->source = tier->store;
        memcpy(run->source_etag, head.etag, sizeof(run->source_etag));
    }
}

/* 7. False: this part and the shard's remaining ones are sent through this process. */
static bool copy_within(struct shard_run *run, const struct cairn_multipart_action *action,
                        struct cairn_store_request *request) {
    struct cairn_error why = {0};
    if (!run->source || action->kind != CAIRN_MULTIPART_PART) return false;
    *request = (struct cairn_store_request){.op = CAIRN_STORE_UPLOAD_PART,
                                            .key = run->key.text,
                                            .upload_id_in = run->mp.upload_id,
                                            .part_number = action->part_number,
                                            .offset = action->offset,
                                            .length = action->length,
                                            .copy_store = run->source,
                                            .copy_key = run->key.text,
                                            .copy_etag = run->source_etag};
    enum cairn_code code = cairn_store_perform(run->copy->target, request, &why);
    if (!code && !request->object_has_crc32c)
        code = cairn_fail(&why, CAIRN_UNSUPPORTED, "the store does not say what it has copied");
    if (!code && request->object_crc32c != action->crc32c)
        code = cairn_fail(&why, CAIRN_CORRUPT, "what it copied has CRC32C %08x, wanted is %08x",
                          request->object_crc32c, action->crc32c);
    if (!code) {
        run->copy->within_bytes += action->length;
        return true;
    }
    run->source = NULL;
    cairn_log(WARN, "copy.through_server", "key=%s part=%u cause=\"%s\"", run->key.text,
              action->part_number, why.message);
    return false;
}

/* Pauses before the next request. False: the copy was stopped meanwhile. */
static bool wait_before_next(struct shard_run *run, bool failed) {
    uint64_t left_ms = cairn_max_u64(run->mp.pause_ms, failed ? AGAIN_MS : 0);
    while (left_ms) {
        uint64_t step_ms = cairn_min_u64(left_ms, AGAIN_MS);
        (void)poll(NULL, 0, (int)step_ms);
        left_ms -= step_ms;
        if (left_ms && !run->copy->goes_on(run->copy->owner, 0)) return false;
    }
    return true;
}

static void perform_action(struct shard_run *run, const struct cairn_multipart_action *action) {
    struct srv_shard_copy *copy = run->copy;
    struct cairn_store_request request;
    struct cairn_error why = {0};
    bool carries = action->kind == CAIRN_MULTIPART_PUT || action->kind == CAIRN_MULTIPART_PART;
    bool within = copy_within(run, action, &request);
    enum cairn_code code = carries && !within ? read_part(run, action, &why) : CAIRN_OK;
    if (code) {
        cairn_multipart_unsent(&run->mp, action);
        cairn_multipart_give_up(&run->mp, &why);
        return;
    }
    if (!within) {
        fill_request(run, action, &request);
        code = cairn_store_perform(copy->target, &request, &why);
        if (code && !request.code) request.code = code;
    }
    cairn_multipart_result(&run->mp, action, &request);
    bool goes_on = wait_before_next(run, request.code && request.code != CAIRN_NOT_FOUND);
    if (carries) CAIRN_CRASHPOINT("server.promote.after_part");
    uint64_t bytes = carries && !request.code ? action->length : 0;
    if (goes_on && copy->goes_on(copy->owner, bytes)) return;
    (void)cairn_fail(&why, CAIRN_CANCELLED, "it was ended");
    cairn_multipart_give_up(&run->mp, &why);
}

static enum cairn_code run_to_its_end(struct shard_run *run, struct cairn_error *err) {
    for (;;) {
        struct cairn_multipart_action action = {0};
        cairn_multipart_next(&run->mp, &action);
        if (action.kind == CAIRN_MULTIPART_DURABLE) return CAIRN_OK;
        if (action.kind == CAIRN_MULTIPART_FAILED) {
            if (err) *err = run->mp.error;
            return run->mp.error.code;
        }
        CAIRN_ASSERT(action.kind != CAIRN_MULTIPART_WAIT); /* requests are sent one at a time */
        CAIRN_ASSERT(action.kind != CAIRN_MULTIPART_NEED_SOURCE);
        perform_action(run, &action);
    }
}

enum cairn_code srv_shard_copy(struct srv_shard_copy *copy, size_t shard, struct cairn_error *err) {
    struct shard_run run = {
        .copy = copy, .shard = &copy->version->manifest.shards[shard], .index = shard};
    cairn_key_shard(&copy->version->place, cairn_view_of(run.shard->name), &run.key);
    enum cairn_code code = prepare_upload(&run, err);
    if (!code && run.mp.part_count > 1) find_source(&run);
    if (!code) code = run_to_its_end(&run, err);
    cairn_multipart_release(&run.mp);
    free(run.parts);
    return code ? cairn_within(err, code, "%s", run.key.text) : CAIRN_OK;
}

/* ---- check that a copy is whole ---- */

struct cairn_committed srv_committed_of(const struct srv_version *version) {
    struct cairn_committed ret = {.place = srv_version_place(version), .has_digest = true};
    memcpy(ret.manifest_sha256, version->manifest_sha256, sizeof(ret.manifest_sha256));
    return ret;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const struct cairn_store_object *)a)->key,
                  ((const struct cairn_store_object *)b)->key);
}

/* Lists shards and checksums.bin with their sizes, sorted by key. */
static enum cairn_code name_objects(const struct cairn_committed *version,
                                    struct cairn_store_object *ret, size_t *ret_count,
                                    struct cairn_error *err) {
    const struct cairn_manifest *manifest = &version->manifest;
    struct cairn_key key;
    for (size_t i = 0; i <= manifest->shard_count; i++) {
        bool shard = i < manifest->shard_count;
        if (shard)
            cairn_key_shard(&version->place, cairn_view_of(manifest->shards[i].name), &key);
        else
            cairn_key_checksums(&version->place, &key);
        ret[i] = (struct cairn_store_object){.key = strdup(key.text),
                                             .size_bytes = shard ? manifest->shards[i].size_bytes
                                                                 : 4 * manifest->block_count};
        if (!ret[i].key) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at a copy");
        *ret_count = i + 1;
    }
    qsort(ret, *ret_count, sizeof(*ret), by_key);
    return CAIRN_OK;
}

static enum cairn_code look_at_objects(struct cairn_store_worker *worker,
                                       const struct cairn_committed *version,
                                       struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_store_object *objects =
        calloc(version->manifest.shard_count + 1, sizeof(*objects));
    struct cairn_error why = {0};
    struct cairn_key prefix;
    if (!objects) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at a copy");
    cairn_key_version_prefix(&version->place, &prefix);
    struct cairn_store_presence presence = {.prefix = prefix.text, .objects = objects};
    enum cairn_code code = name_objects(version, objects, &presence.count, err);
    size_t named = presence.count;
    if (!code) code = cairn_store_presence_look(&presence, worker, err);
    for (size_t i = 0; i < named && !code; i++)
        if (cairn_store_object_check(&objects[i], &why))
            code = cairn_fail(err, CAIRN_CORRUPT, "%s: %s", objects[i].key, why.message);
    for (size_t i = 0; i < named; i++) free(objects[i].key);
    return code;
}

enum cairn_code srv_copy_look(struct cairn_store_worker *worker,
                              const struct cairn_committed *version, unsigned heads,
                              struct cairn_error *err) {
    static const enum cairn_document documents[] = {CAIRN_DOCUMENT_MANIFEST, CAIRN_DOCUMENT_LAYOUT,
                                                    CAIRN_DOCUMENT_RECORD};
    CAIRN_TRY(look_at_objects(worker, version, err));
    for (size_t i = 0; i < CAIRN_COUNT(documents); i++) {
        struct cairn_key key;
        bool none = documents[i] == CAIRN_DOCUMENT_LAYOUT && !version->manifest.has_layout;
        if (none || !(heads & 1u << documents[i])) continue;
        cairn_committed_key(version, documents[i], &key);
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
        enum cairn_code code = cairn_store_perform(worker, &head, err);
        if (code == CAIRN_NOT_FOUND)
            return cairn_fail(err, CAIRN_CORRUPT, "%s is missing", key.text);
        CAIRN_TRY(code);
    }
    return CAIRN_OK;
}

/* ---- rows ---- */

static enum cairn_code is_copied(const struct srv_version *version, struct cairn_error *err) {
    CAIRN_TRY(srv_version_there(version, err));
    bool good = version->state == CAIRN_STATE_COMMITTED && version->recorded && !version->trashed;
    if (good) return CAIRN_OK;
    return cairn_fail(
        err, CAIRN_NOT_COMMITTED, "%s is %s: what is committed and not in the trash is copied",
        version->id.text,
        version->trashed ? "in the trash" : cairn_state_text(srv_version_shown(version)));
}

enum cairn_code srv_promote_want(struct srv_tx *tx, const struct srv_version *version,
                                 const struct srv_promote_wish *wish, bool *ret_whole,
                                 struct cairn_error *err) {
    struct srv_copies copies;
    CAIRN_TRY(is_copied(version, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, version->run_id, err));
    CAIRN_TRY(srv_copies_get(tx, version->id.text, &copies, err));
    const struct srv_copy *there = srv_copies_find(&copies, wish->store);
    *ret_whole = there && there->state == SRV_COPY_WHOLE;
    struct srv_copy copy = {
        .state = SRV_COPY_MAKING, .by_policy = wish->by_policy, .changed_ms = wish->wall_ms};
    if (there && there->state == SRV_COPY_REMOVING)
        return cairn_fail(err, CAIRN_IN_USE, "the copy of %s in %s is being removed",
                          version->id.text, wish->store);
    /* A caller's request overrides the policy's: the policy then no longer removes the copy. */
    bool same = there && there->by_policy <= wish->by_policy;
    if (*ret_whole) {
        copy.state = SRV_COPY_WHOLE;
        copy.damaged = there->damaged;
        copy.damaged_ms = there->damaged_ms;
    }
    if (there && there->state != SRV_COPY_GONE && same) return CAIRN_OK;
    if (copies.count == SRV_COPIES_MAX && !there)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%s lies in %d stores already", version->id.text,
                          SRV_COPIES_MAX);
    (void)cairn_text_copy(copy.store, sizeof(copy.store), wish->store);
    return srv_copy_put(tx, version->id.text, &copy, err);
}

struct run {
    struct srv_promote *promote;
    struct srv_tier *to;
    struct cairn_store_worker *target;
    struct srv_copy_hold hold;
    struct srv_version version;
    struct srv_copies copies;
    struct srv_where where;
    struct cairn_committed documents;
    uint64_t done, total, told_ms;
    bool whole, wanted;
    struct cairn_error unwanted; /* why the copy stopped early, unless it was cancelled */
};

static enum cairn_code read_wish(struct srv_tx *tx, struct run *run, struct cairn_error *err) {
    const char *id = run->promote->version;
    CAIRN_TRY(srv_lease_check(tx, &run->hold.lease, err));
    srv_version_release(&run->version);
    CAIRN_TRY(srv_version_get(tx, id, &run->version, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, run->version.run_id, err));
    CAIRN_TRY(srv_copies_get(tx, id, &run->copies, err));
    const struct srv_copy *copy = srv_copies_find(&run->copies, run->promote->store);
    bool there = !is_copied(&run->version, NULL);
    run->whole = copy && copy->state == SRV_COPY_WHOLE;
    run->wanted = there && copy && copy->state == SRV_COPY_MAKING;
    return CAIRN_OK;
}

static enum cairn_code look_again(struct run *run, struct cairn_error *err) {
    CAIRN_TRY(srv_thawed(run->promote->server, err));
    SRV_LOOK(look, run->promote->server->catalog, err);
    CAIRN_TRY(read_wish(look.tx, run, err));
    if (run->wanted || run->whole) return CAIRN_OK;
    return cairn_fail(err, CAIRN_ABORTED, "nobody wants the copy of %s in %s any more",
                      run->promote->version, run->promote->store);
}

SRV_CHANGE(set_whole, struct run *run) {
    CAIRN_TRY(read_wish(tx, run, err));
    if (!run->wanted)
        return cairn_fail(err, CAIRN_ABORTED, "nobody wants the copy of %s in %s any more",
                          run->promote->version, run->promote->store);
    return srv_copy_turn(tx, run->promote->server, run->promote->version,
                         srv_copies_find(&run->copies, run->promote->store), SRV_COPY_WHOLE, err);
}

/* ---- shards ---- */

static bool goes_on(void *owner, uint64_t bytes) {
    struct run *run = owner;
    const struct srv *server = run->promote->server;
    run->done += bytes;
    run->promote->copied_bytes += bytes;
    if (server->stopping) return false;
    if (cairn_mono_ms() < run->told_ms + TELL_MS) return true;
    run->told_ms = cairn_mono_ms();
    if (run->promote->tell && !run->promote->tell(run->promote->owner, run->done, run->total))
        return false;
    struct cairn_error why = {0};
    if (look_again(run, &why) != CAIRN_ABORTED) return true;
    run->unwanted = why;
    return false;
}

/* Replaces CAIRN_CANCELLED by the real reason if the copy is no longer wanted. */
static enum cairn_code say_unwanted(const struct run *run, enum cairn_code code,
                                    struct cairn_error *err) {
    if (code != CAIRN_CANCELLED || !run->unwanted.code) return code;
    if (err) *err = run->unwanted;
    return run->unwanted.code;
}

static enum cairn_code copy_shards(struct run *run, struct cairn_error *err) {
    struct srv *server = run->promote->server;
    const struct cairn_manifest *manifest = &run->documents.manifest;
    struct srv_shard_copy copy = {.server = server,
                                  .worker = run->promote->worker,
                                  .where = &run->where,
                                  .to = run->to,
                                  .target = run->target,
                                  .version = &run->documents,
                                  .goes_on = goes_on,
                                  .owner = run};
    size_t tags = srv_tier_tags(manifest->shard_count);
    uint64_t before = 0;
    enum cairn_code code = cairn_store_tags_new(tags, &copy.tags, err);
    for (size_t i = 0; i < manifest->shard_count && !code; i++) {
        code = srv_shard_copy(&copy, i, err);
        before += manifest->shards[i].size_bytes;
        run->done = before; /* counts a shard that was there, too */
        if (!code && !goes_on(run, 0)) code = cairn_fail(err, CAIRN_CANCELLED, "it was ended");
        if (!code) CAIRN_CRASHPOINT("server.promote.after_shard");
    }
    run->promote->within_bytes = copy.within_bytes;
    srv_shard_copy_release(&copy);
    cairn_store_tags_free(copy.tags);
    return say_unwanted(run, code, err);
}

/* ---- documents ---- */

static void tell_read_again(const char *key, const struct cairn_error *why) {
    cairn_log(WARN, "copy.document_again", "key=%s cause=\"%s\"", key, why->message);
}

static enum cairn_code load_documents(struct run *run, struct cairn_error *err) {
    struct srv_tier_documents from = {run->promote->server, run->promote->worker, &run->where};
    struct cairn_document_source source = srv_tier_documents(&from, tell_read_again);
    run->documents = srv_committed_of(&run->version);
    CAIRN_TRY(cairn_committed_load(&run->documents, &source,
                                   CAIRN_DOCUMENT_BIT(RECORD) | CAIRN_DOCUMENT_BIT(MANIFEST) |
                                       CAIRN_DOCUMENT_BIT(CHECKSUMS) | CAIRN_DOCUMENT_BIT(LAYOUT),
                                   err));
    const struct cairn_manifest *manifest = &run->documents.manifest;
    for (size_t i = 0; i < manifest->shard_count; i++) run->total += manifest->shards[i].size_bytes;
    return CAIRN_OK;
}

static enum cairn_code put_document(struct run *run, const struct cairn_key *key,
                                    const struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_TRY(srv_lease_still(&run->hold.lease, err));
    return cairn_store_put_same(run->target, key->text, cairn_buf_view(text), err);
}

/* Reads do not need the attempt's record (docs/format.md), but a reindex from this store alone
 * does. If the original has lost it, the copy is made without it. */
static enum cairn_code put_attempt(struct run *run, struct cairn_error *err) {
    struct srv_where main = {.count = 0};
    struct srv_tier_documents from = {run->promote->server, run->promote->worker, &main};
    struct cairn_document_source source = srv_tier_documents(&from, tell_read_again);
    const struct cairn_manifest *manifest = &run->documents.manifest;
    struct cairn_error why = {0};
    struct cairn_key key;
    enum cairn_code code =
        cairn_committed_read(&run->documents, &source, CAIRN_DOCUMENT_ATTEMPT, &why);
    if (code == CAIRN_NOT_FOUND || code == CAIRN_CORRUPT) {
        cairn_log(WARN, "copy.attempt_left_out", "version=%s cause=\"%s\"", run->promote->version,
                  why.message);
        return CAIRN_OK;
    }
    CAIRN_TRY(cairn_pass(err, code, &why));
    cairn_key_attempt(&run->version.name, manifest->origin.attempt, &key);
    CAIRN_TRY(put_document(run, &key, &run->documents.attempt_text, err));
    cairn_key_attempt_copy(&run->version.name, manifest->origin.attempt, &key);
    return put_document(run, &key, &run->documents.attempt_text, err);
}

/* 2. Writes all documents but committed.json. */
static enum cairn_code put_documents(struct run *run, struct cairn_error *err) {
    const struct cairn_committed *documents = &run->documents;
    struct cairn_key key;
    if (documents->manifest.has_layout) {
        cairn_committed_key(documents, CAIRN_DOCUMENT_LAYOUT, &key);
        CAIRN_TRY(put_document(run, &key, &documents->layout_text, err));
    }
    CAIRN_TRY(put_attempt(run, err));
    cairn_committed_key(documents, CAIRN_DOCUMENT_CHECKSUMS, &key);
    CAIRN_TRY(put_document(run, &key, &documents->checksums, err));
    CAIRN_CRASHPOINT("server.promote.after_checksums");
    cairn_committed_key(documents, CAIRN_DOCUMENT_MANIFEST, &key);
    CAIRN_TRY(put_document(run, &key, &documents->manifest_text, err));
    CAIRN_CRASHPOINT("server.promote.after_manifest");
    return CAIRN_OK;
}

/* ---- the whole copy ---- */

/* For writes into the target only: CAIRN_NO_SPACE may also come from a local disk. */
static enum cairn_code say_target_full(const struct run *run, enum cairn_code code,
                                       struct cairn_error *err) {
    return srv_copy_say_full(code, run->promote->store, "make room, and it goes on by itself", err);
}

static enum cairn_code copy_version(struct run *run, struct cairn_error *err) {
    CAIRN_AUTO(buf) record = {0};
    struct cairn_key key;
    struct cairn_version_place place = srv_version_place(&run->version);
    CAIRN_TRY(srv_sweep_end_uploads(run->target, &place, err));
    CAIRN_TRY(load_documents(run, err));
    enum cairn_code code = copy_shards(run, err);
    if (!code) code = put_documents(run, err);
    if (code) return say_target_full(run, code, err);
    CAIRN_TRY(srv_copy_look(run->target, &run->documents,
                            CAIRN_DOCUMENT_BIT(MANIFEST) | CAIRN_DOCUMENT_BIT(LAYOUT), err));
    CAIRN_TRY(look_again(run, err)); /* 3 */
    CAIRN_TRY(cairn_record_encode(&run->documents.record, &record, err));
    cairn_committed_key(&run->documents, CAIRN_DOCUMENT_RECORD, &key);
    code = put_document(run, &key, &record, err);
    if (code) return say_target_full(run, code, err);
    CAIRN_CRASHPOINT("server.promote.after_record");
    return srv_catalog_write(run->promote->server->catalog, set_whole, run, err);
}

static void tell_made(struct run *run) {
    struct srv *server = run->promote->server;
    cairn_metrics_add(server->metrics, SRV_METRIC(copies_made_total), 1);
    cairn_metrics_add(server->metrics, SRV_METRIC(copied_bytes_total), run->promote->copied_bytes);
    cairn_log(INFO, "copy.made",
              "version=%s step=%" PRIu64 " store=%s bytes=%" PRIu64 " within=%" PRIu64,
              run->promote->version, run->version.step, run->promote->store,
              run->promote->copied_bytes, run->promote->within_bytes);
    srv_waiters_wake_version(server->waiters, &run->version.id, &run->version.name);
}

static enum cairn_code run_held(struct run *run, struct cairn_error *err) {
    struct srv_promote *promote = run->promote;
    CAIRN_TRY(look_again(run, err));
    if (run->whole) return CAIRN_OK;
    CAIRN_TRY(srv_where_of(promote->server, promote->version, promote->store, &run->where, err));
    CAIRN_TRY(srv_tier_borrow(promote->server, run->to, &run->target, err));
    enum cairn_code code = srv_tier_ready(promote->server, run->to, run->target, err);
    srv_copy_asked(promote->server, promote->store, code);
    if (code) return say_target_full(run, code, err);
    CAIRN_TRY(copy_version(run, err));
    tell_made(run);
    return CAIRN_OK;
}

enum cairn_code srv_promote_run(struct srv_promote *promote, struct cairn_error *err) {
    struct srv *server = promote->server;
    struct run run = {.promote = promote, .to = srv_tier_find(server, promote->store)};
    struct cairn_error why = {0};
    if (!run.to)
        return cairn_fail(err, CAIRN_NOT_FOUND, "the setting stores names no store %s",
                          promote->store);
    CAIRN_TRY(srv_copy_hold_take(&run.hold, server, promote->version, err));
    enum cairn_code code = run_held(&run, &why);
    srv_tier_return(server, run.to, run.target);
    srv_copy_failed(server, promote->version, promote->store,
                    code && code != CAIRN_CANCELLED && code != CAIRN_ABORTED);
    srv_copy_hold_end(&run.hold);
    cairn_committed_release(&run.documents);
    srv_version_release(&run.version);
    return cairn_pass(err, code, &why);
}
