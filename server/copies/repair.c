/* SPDX-License-Identifier: Apache-2.0 */
/* Read where it is right, written over what is not, and read again; see repair.h. */
#include "server/copies/repair.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/crashpoint.h"
#include "common/log.h"
#include "common/text.h"
#include "server/copies/copy_shard.h"
#include "server/guard/records.h"

#define RANGES_BYTES 120 /* of a message that names lost bytes, before the last range */
#define TRIES 3 /* of a shard whose answer was lost: what is there is the old object still */

/* ---- shards ---- */

/* Bytes of a shard that no copy has right: the first ranges of them in words, the rest counted. */
struct lost {
    struct cairn_buf ranges;
    uint64_t from, to; /* of the range that the last block continues; to 0: none */
    uint64_t more, bytes;
};

static enum cairn_code end_range(struct lost *lost, struct cairn_error *err) {
    if (!lost->to) return CAIRN_OK;
    lost->bytes += lost->to - lost->from;
    if (lost->ranges.size >= RANGES_BYTES)
        lost->more++;
    else
        CAIRN_TRY(cairn_buf_printf(&lost->ranges, err, "%s%" PRIu64 "-%" PRIu64,
                                   lost->ranges.size ? ", " : "", lost->from, lost->to - 1));
    lost->to = 0;
    return CAIRN_OK;
}

static enum cairn_code read_block(const struct cairn_srv_repair *repair,
                                  const struct cairn_srv_shard_copy *copy, size_t shard,
                                  uint64_t at, struct cairn_error *err) {
    const struct cairn_manifest_shard *one = &repair->version->manifest.shards[shard];
    const uint8_t *checksums = (const uint8_t *)repair->version->checksums.data;
    struct cairn_key key;
    cairn_key_shard(&repair->version->place, cairn_view_of(one->name), &key);
    const struct cairn_srv_tier_range range = {
        .key = key.text,
        .offset = at,
        .length = cairn_min_u64(CAIRN_BLOCK_BYTES, one->size_bytes - at),
        .into = repair->buffer,
        .tags = copy->tags,
        .object = shard,
        .object_count = repair->version->manifest.shard_count,
        .object_bytes = one->size_bytes,
        .checksums = checksums + 4 * (one->first_block + at / CAIRN_BLOCK_BYTES)};
    return cairn_srv_tier_read(repair->server, repair->worker, repair->where, &range, err);
}

static enum cairn_code find_lost(const struct cairn_srv_repair *repair,
                                 const struct cairn_srv_shard_copy *copy, size_t shard,
                                 struct lost *lost, struct cairn_error *err) {
    uint64_t size = repair->version->manifest.shards[shard].size_bytes;
    for (uint64_t at = 0; at < size; at += CAIRN_BLOCK_BYTES) {
        struct cairn_error why = {0};
        enum cairn_code code = read_block(repair, copy, shard, at, &why);
        if (code && code != CAIRN_CORRUPT) {
            if (err) *err = why;
            return code;
        }
        if (!code) CAIRN_TRY(end_range(lost, err));
        if (code && !lost->to) lost->from = at;
        if (code) lost->to = cairn_min_u64(at + CAIRN_BLOCK_BYTES, size);
        if (!repair->goes_on(repair->owner, 0))
            return cairn_fail(err, CAIRN_CANCELLED, "it was ended");
    }
    return end_range(lost, err);
}

/* The copy in a store that does not answer may have what the others have lost. */
static const struct cairn_srv_tier *silent_store(const struct cairn_srv_repair *repair) {
    for (size_t i = 0; i < repair->where->count; i++)
        if (cairn_srv_tier_is_away(repair->where->tiers[i])) return repair->where->tiers[i];
    return NULL;
}

static enum cairn_code say_lost(const struct cairn_srv_repair *repair,
                                const struct cairn_srv_shard_copy *copy, size_t shard,
                                struct cairn_error *err) {
    uint64_t size = repair->version->manifest.shards[shard].size_bytes;
    const struct cairn_srv_tier *silent = silent_store(repair);
    struct lost lost = {0};
    enum cairn_code code = find_lost(repair, copy, shard, &lost, err);
    char more[48] = "";
    if (lost.more) snprintf(more, sizeof(more), " and %" PRIu64 " ranges more", lost.more);
    if (!code && !lost.bytes)
        code = cairn_fail(err, CAIRN_UNAVAILABLE,
                          "each block was right in a copy the second time: repair again");
    else if (!code && silent)
        code = cairn_fail(err, CAIRN_UNAVAILABLE,
                          "store %s does not answer, and no other has bytes %s%s: bring it back, "
                          "and repair again",
                          silent->name, lost.ranges.data, more);
    else if (!code)
        code = cairn_fail(err, CAIRN_CORRUPT,
                          "no copy has it whole; bytes that are lost: %s%s, %" PRIu64
                          " of %" PRIu64,
                          lost.ranges.data, more, lost.bytes, size);
    cairn_buf_release(&lost.ranges);
    return code;
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
