/* SPDX-License-Identifier: Apache-2.0 */
/* Read where it is right, written over what is not, and read again; see repair.h. */
#include "server/jobs/repair.h"

#include <inttypes.h>

#include "common/crashpoint.h"
#include "common/log.h"
#include "common/text.h"
#include "server/jobs/copy_shard.h"
#include "server/jobs/record.h"

#define TRIES 3 /* of a shard whose answer was lost: what is there is the old object still */

/* ---- shards ---- */

/* Bytes of a shard that no copy has right, by ranges of whole blocks; cut where there are many. */
static enum cairn_code name_lost(const struct cairn_srv_repair *repair,
                                 const struct cairn_srv_shard_copy *copy, size_t shard,
                                 struct cairn_buf *ret, struct cairn_error *err) {
    const struct cairn_manifest_shard *one = &repair->version->manifest.shards[shard];
    const uint8_t *checksums =
        (const uint8_t *)repair->version->checksums.data + 4 * one->first_block;
    struct cairn_key key;
    uint64_t from = 0, lost = 0;
    cairn_key_shard(&repair->version->place, cairn_view_of(one->name), &key);
    for (uint64_t at = 0; at <= one->size_bytes; at += CAIRN_BLOCK_BYTES) {
        struct cairn_error why = {0};
        struct cairn_srv_tier_range range = {
            .key = key.text,
            .offset = at,
            .length = cairn_min_u64(CAIRN_BLOCK_BYTES, one->size_bytes - at),
            .into = repair->buffer,
            .tags = copy->tags,
            .object = shard,
            .object_count = repair->version->manifest.shard_count,
            .object_bytes = one->size_bytes,
            .checksums = checksums + 4 * (at / CAIRN_BLOCK_BYTES)};
        bool end = !range.length;
        enum cairn_code code =
            end ? CAIRN_OK
                : cairn_srv_tier_read(repair->server, repair->worker, repair->where, &range, &why);
        if (code && code != CAIRN_CORRUPT) {
            if (err) *err = why;
            return code;
        }
        if (code && !lost) from = at;
        if (code) lost += range.length;
        if (!code && lost && ret->size < 150)
            CAIRN_TRY(cairn_buf_printf(ret, err, "%s%" PRIu64 "-%" PRIu64, ret->size ? ", " : "",
                                       from, from + lost - 1));
        if (!code) lost = 0;
        if (end) break;
        if (!repair->goes_on(repair->owner, 0))
            return cairn_fail(err, CAIRN_CANCELLED, "it was ended");
    }
    return CAIRN_OK;
}

static enum cairn_code say_lost(const struct cairn_srv_repair *repair,
                                const struct cairn_srv_shard_copy *copy, size_t shard,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) ranges = {0};
    CAIRN_TRY(name_lost(repair, copy, shard, &ranges, err));
    if (!ranges.size) /* each block was right somewhere, this time */
        return cairn_fail(err, CAIRN_UNAVAILABLE, "a copy answers now so and now so: try again");
    return cairn_fail(err, CAIRN_CORRUPT, "no copy has it whole; bytes that are lost: %s",
                      ranges.data);
}

/* What is missing is made as a copy is (copy_shard.h#2); what is there and wrong is replaced. */
static enum cairn_code is_there(const struct cairn_srv_repair *repair, size_t shard, bool *ret,
                                struct cairn_error *err) {
    const struct cairn_manifest_shard *one = &repair->version->manifest.shards[shard];
    struct cairn_key key;
    struct cairn_error why = {0};
    cairn_key_shard(&repair->version->place, cairn_view_of(one->name), &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(repair->target, &head, &why);
    *ret = !code;
    if (!code || code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (err) *err = why;
    return code;
}

static enum cairn_code write_shard(struct cairn_srv_repair *repair, size_t shard,
                                   struct cairn_error *err) {
    struct cairn_srv_shard_copy copy = {.server = repair->server,
                                        .worker = repair->worker,
                                        .where = repair->where,
                                        .to = repair->tier,
                                        .target = repair->target,
                                        .version = repair->version,
                                        .goes_on = repair->goes_on,
                                        .owner = repair->owner};
    struct cairn_error why = {0};
    enum cairn_code code = is_there(repair, shard, &copy.replaces, &why);
    if (!code)
        code = cairn_store_tags_new(cairn_srv_tier_tags(repair->version->manifest.shard_count),
                                    &copy.tags, &why);
    for (int i = 0; !code && i < TRIES; i++) {
        code = cairn_srv_shard_copy(&copy, shard, &why);
        if (code != CAIRN_CONFLICT || !copy.replaces || i + 1 == TRIES) break;
        code = CAIRN_OK;
    }
    if (code == CAIRN_CORRUPT) code = say_lost(repair, &copy, shard, &why);
    cairn_srv_shard_copy_release(&copy);
    cairn_store_tags_free(copy.tags);
    if (code && err) *err = why;
    return code;
}

enum cairn_code cairn_srv_repair_shard(struct cairn_srv_repair *repair, size_t shard,
                                       struct cairn_error *err) {
    const struct cairn_srv_shard_check check = {.version = repair->version,
                                                .worker = repair->target,
                                                .buffer = repair->buffer,
                                                .goes_on = repair->goes_on,
                                                .owner = repair->owner};
    CAIRN_TRY(cairn_srv_lease_still(&repair->hold->lease, err));
    if (!repair->uploads_ended)
        CAIRN_TRY(
            cairn_srv_copy_end_uploads(repair->tier, repair->target, &repair->version->place, err));
    repair->uploads_ended = true;
    CAIRN_TRY(write_shard(repair, shard, err));
    CAIRN_CRASHPOINT("server.repair.after_shard");
    enum cairn_code code = cairn_srv_shard_check(&check, shard, err);
    return code ? cairn_within(err, code, "written anew it is not right") : CAIRN_OK;
}

/* ---- documents ---- */

/* *ret is in the documents, or in *record, which is a pure function of the row. */
static enum cairn_code text_of(const struct cairn_srv_repair *repair, enum cairn_document document,
                               struct cairn_buf *record, struct cairn_view *ret,
                               struct cairn_error *err) {
    const struct cairn_committed *version = repair->version;
    const struct cairn_buf *from = &version->attempt_text; /* its copy has the same bytes */
    if (document == CAIRN_DOCUMENT_RECORD) {
        CAIRN_TRY(cairn_srv_record_text(repair->row, record, err));
        from = record;
    }
    if (document == CAIRN_DOCUMENT_MANIFEST) from = &version->manifest_text;
    if (document == CAIRN_DOCUMENT_CHECKSUMS) from = &version->checksums;
    if (document == CAIRN_DOCUMENT_LAYOUT) from = &version->layout_text;
    *ret = cairn_buf_view(from);
    bool known = ret->size || document == CAIRN_DOCUMENT_CHECKSUMS; /* without blocks: 0 bytes */
    return known ? CAIRN_OK : cairn_fail(err, CAIRN_CORRUPT, "no copy has it right");
}

static enum cairn_code compare(const struct cairn_srv_repair *repair, const char *key,
                               struct cairn_view text, struct cairn_error *err) {
    CAIRN_AUTO(buf) found = {.limit = text.size + 1};
    CAIRN_TRY(cairn_store_get_small(repair->target, key, &found, err));
    bool same =
        found.size == text.size && (!text.size || !memcmp(found.data, text.data, text.size));
    return same ? CAIRN_OK : cairn_fail(err, CAIRN_CORRUPT, "written anew it is not right");
}

enum cairn_code cairn_srv_repair_document(struct cairn_srv_repair *repair,
                                          enum cairn_document document, struct cairn_error *err) {
    CAIRN_AUTO(buf) record = {0};
    struct cairn_view text = {0};
    struct cairn_key key;
    cairn_committed_key(repair->version, document, &key);
    CAIRN_TRY(text_of(repair, document, &record, &text, err));
    CAIRN_TRY(cairn_srv_lease_still(&repair->hold->lease, err));
    CAIRN_TRY(cairn_store_put_small(repair->target, key.text, text, false, err));
    return compare(repair, key.text, text, err);
}
