/* SPDX-License-Identifier: Apache-2.0 */
/* store/multipart.h decides what is next; here it is read, compared and sent. See copy_shard.h. */
#include "server/copies/copy_shard.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/hash/hash.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/text.h"
#include "store/multipart.h"

#define CAUSE_BYTES 200 /* behind the name of a store and what is to be done */
#define READ_MS_MAX 60000
#define AGAIN_MS 200
#define PAGES_MAX 1000000

enum cairn_code cairn_srv_copy_say_full(enum cairn_code code, const char *store, const char *to_do,
                                        struct cairn_error *err) {
    if (code != CAIRN_NO_SPACE || !err) return code;
    char cause[CAUSE_BYTES]; /* keys are left out of its middle: its end says what is missing */
    cairn_utf8_shorten(cause, sizeof(cause), err->message);
    snprintf(err->message, sizeof(err->message), "no room left in store %s; %s: %s", store, to_do,
             cause);
    return code;
}

void cairn_srv_shard_copy_release(struct cairn_srv_shard_copy *copy) {
    cairn_pages_unmap(copy->buffer, copy->buffer_bytes);
    copy->buffer = NULL;
    copy->buffer_bytes = 0;
}

struct run {
    struct cairn_srv_shard_copy *copy;
    const struct cairn_manifest_shard *shard;
    size_t index;
    struct cairn_key key;
    struct cairn_multipart mp;
    struct cairn_store_part *parts; /* of a listing */
    struct cairn_store *source;     /* that its store copies from by itself; NULL: none */
    char source_etag[128];
};

/* copy_shard.h#1 */
static void make_token(const struct run *run, char ret[CAIRN_UUID_TEXT_BYTES]) {
    const struct cairn_srv_shard_copy *copy = run->copy;
    uint8_t digest[CAIRN_SHA256_BYTES];
    CAIRN_AUTO(buf) text = {0};
    if (cairn_buf_printf(&text, NULL, "cairn-copy-1\n%s\n%s\n%s", copy->version->place.id.text,
                         copy->to->name, run->shard->name) != CAIRN_OK)
        cairn_buf_clear(&text); /* then a resend is not known, and refused */
    cairn_sha256_of(cairn_buf_view(&text), digest);
    cairn_uuid_from_digest(digest, ret);
}

static enum cairn_code reserve(struct cairn_srv_shard_copy *copy, uint64_t bytes,
                               struct cairn_error *err) {
    uint64_t wanted = cairn_max_u64(bytes, CAIRN_MULTIPART_READ_BYTES);
    if (copy->buffer_bytes >= wanted) return CAIRN_OK;
    cairn_srv_shard_copy_release(copy);
    copy->buffer = cairn_pages_map((size_t)wanted);
    if (!copy->buffer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a shard");
    copy->buffer_bytes = (size_t)wanted;
    return CAIRN_OK;
}

static const uint8_t *checksums_of(const struct run *run, uint64_t offset) {
    uint64_t block = run->shard->first_block + offset / CAIRN_BLOCK_BYTES;
    return (const uint8_t *)run->copy->version->checksums.data + 4 * block;
}

static enum cairn_code prepare(struct run *run, struct cairn_error *err) {
    struct cairn_srv_shard_copy *copy = run->copy;
    char token[CAIRN_UUID_TEXT_BYTES];
    enum cairn_code code = CAIRN_OK;
    uint64_t size = run->shard->size_bytes, count = cairn_div_up(size, CAIRN_BLOCK_BYTES);
    uint64_t part_bytes = cairn_multipart_part_bytes(cairn_store_profile(copy->to->store), size,
                                                     CAIRN_SRV_COPY_PART_BYTES, 1);
    CAIRN_TRY(reserve(copy, cairn_min_u64(part_bytes, size), err));
    CAIRN_AUTO_HEAP uint32_t *blocks = calloc((size_t)count + 1, sizeof(*blocks));
    if (!blocks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to copy a shard");
    for (uint64_t i = 0; i < count; i++)
        blocks[i] = cairn_load_u32le(checksums_of(run, i * CAIRN_BLOCK_BYTES));
    if (copy->replaces)
        cairn_uuid_random(token); /* the object that is there must not be taken for ours */
    else
        make_token(run, token);
    CAIRN_TRY(cairn_multipart_init(&run->mp, size, part_bytes, token, err));
    /* What an earlier try has made is looked for first. */
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
    const struct run *run = owner;
    cairn_log(WARN, "copy.read_again", "key=%s cause=\"%s\"", run->key.text, why->message);
}

static enum cairn_code read_part(struct run *run, const struct cairn_multipart_action *action,
                                 struct cairn_error *err) {
    const struct cairn_srv_shard_copy *copy = run->copy;
    struct cairn_srv_tier_range range = {.key = run->key.text,
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
    return cairn_srv_tier_read(copy->server, copy->worker, copy->where, &range, err);
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
    CAIRN_ASSERT((size_t)kind < CAIRN_COUNT(ops)); /* nothing else is a request */
    return ops[kind];
}

static void fill(struct run *run, const struct cairn_multipart_action *action,
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

/* ---- within one S3 ---- */

/* The nearest copy that the target can take its bytes from, as it is now. */
static void find_source(struct run *run) {
    const struct cairn_srv_shard_copy *copy = run->copy;
    for (size_t i = 0; i < copy->where->count && !run->source && !copy->replaces; i++) {
        struct cairn_srv_tier *tier = copy->where->tiers[i];
        bool main = cairn_srv_tier_is_main(copy->server, tier);
        struct cairn_store_worker *worker = copy->worker;
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = run->key.text};
        if (!cairn_store_copies_from(copy->to->store, tier->store)) continue;
        if (!main && cairn_srv_tier_borrow(copy->server, tier, &worker, NULL)) continue;
        enum cairn_code code = cairn_store_perform(worker, &head, NULL);
        if (!main) cairn_srv_tier_return(copy->server, tier, worker);
        if (code || head.object_bytes != run->shard->size_bytes || !head.etag[0]) continue;
        run->source = tier->store;
        memcpy(run->source_etag, head.etag, sizeof(run->source_etag));
    }
}

/* copy_shard.h#3. False: its bytes go through here, and those of the shard's other parts. */
static bool copy_within(struct run *run, const struct cairn_multipart_action *action,
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

/* Before the next request. False: the copy was ended meanwhile. */
static bool wait_before_next(struct run *run, bool failed) {
    uint64_t left_ms = cairn_max_u64(run->mp.pause_ms, failed ? AGAIN_MS : 0);
    while (left_ms) {
        uint64_t step_ms = cairn_min_u64(left_ms, AGAIN_MS);
        (void)poll(NULL, 0, (int)step_ms);
        left_ms -= step_ms;
        if (left_ms && !run->copy->goes_on(run->copy->owner, 0)) return false;
    }
    return true;
}

static void perform(struct run *run, const struct cairn_multipart_action *action) {
    struct cairn_srv_shard_copy *copy = run->copy;
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
        fill(run, action, &request);
        code = cairn_store_perform(copy->target, &request, &why);
        if (code && !request.code) request.code = code; /* it was not even sent */
    }
    cairn_multipart_result(&run->mp, action, &request);
    bool goes_on = wait_before_next(run, request.code && request.code != CAIRN_NOT_FOUND);
    if (carries) CAIRN_CRASHPOINT("server.promote.after_part");
    uint64_t bytes = carries && !request.code ? action->length : 0;
    if (goes_on && copy->goes_on(copy->owner, bytes)) return;
    (void)cairn_fail(&why, CAIRN_CANCELLED, "it was ended");
    cairn_multipart_give_up(&run->mp, &why);
}

/* ---- the whole ---- */

static enum cairn_code run_to_its_end(struct run *run, struct cairn_error *err) {
    for (;;) {
        struct cairn_multipart_action action = {0};
        cairn_multipart_next(&run->mp, &action);
        if (action.kind == CAIRN_MULTIPART_DURABLE) return CAIRN_OK;
        if (action.kind == CAIRN_MULTIPART_FAILED) {
            if (err) *err = run->mp.error;
            return run->mp.error.code;
        }
        CAIRN_ASSERT(action.kind != CAIRN_MULTIPART_WAIT); /* nothing is under way */
        CAIRN_ASSERT(action.kind != CAIRN_MULTIPART_NEED_SOURCE);
        perform(run, &action);
    }
}

enum cairn_code cairn_srv_shard_copy(struct cairn_srv_shard_copy *copy, size_t shard,
                                     struct cairn_error *err) {
    struct run run = {
        .copy = copy, .shard = &copy->version->manifest.shards[shard], .index = shard};
    cairn_key_shard(&copy->version->place, cairn_view_of(run.shard->name), &run.key);
    enum cairn_code code = prepare(&run, err);
    if (!code && run.mp.part_count > 1) find_source(&run);
    if (!code) code = run_to_its_end(&run, err);
    cairn_multipart_release(&run.mp);
    free(run.parts);
    return code ? cairn_within(err, code, "%s", run.key.text) : CAIRN_OK;
}

/* ---- what an earlier try left ---- */

enum cairn_code cairn_srv_copy_end_uploads(const struct cairn_srv_tier *tier,
                                           struct cairn_store_worker *worker,
                                           const struct cairn_version_place *place,
                                           struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    struct cairn_key prefix;
    if (!cairn_store_profile(tier->store)->lists_uploads) return CAIRN_OK;
    cairn_key_version_prefix(place, &prefix);
    for (size_t pages = 0; pages < PAGES_MAX; pages++) {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request list = {
            .op = CAIRN_STORE_UPLOADS, .key = prefix.text, .page = page, .listing = &listing};
        CAIRN_TRY(cairn_store_perform(worker, &list, err));
        for (size_t i = 0; i < listing.count; i++) {
            struct cairn_store_request end = {.op = CAIRN_STORE_UPLOAD_ABORT,
                                              .key = listing.entries[i].key,
                                              .upload_id_in = listing.entries[i].upload_id};
            CAIRN_TRY(cairn_store_perform(worker, &end, err));
        }
        free(page);
        page = CAIRN_TAKE(listing.next_page);
        if (!page) return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d pages of uploads", prefix.text,
                      PAGES_MAX);
}
