/* SPDX-License-Identifier: Apache-2.0 */
/* Verifies every copy of a version in its own store; on request reads all blocks, and repairs.
 *  P14  Each copy that the catalog says is WHOLE is checked separately, and each finding names its
 *     store; an unreachable store is reported and does not stop the check of the others.
 *  1  The check reads the documents and sends a HEAD for each object; `reads` also reads every
 *     block of the chosen shards of every copy.
 *  2  `repairs` writes damaged or missing objects anew: manifest, shards, other documents,
 *     committed.json last. Good objects are not touched, and nothing is deleted.
 *  3  A missing committed.json is written again from the catalog (Q24).
 *  4  Damage is recorded with its copy (damage.h), also when the run is cancelled.
 *  5  A repair writes only proven bytes: blocks by checksums.bin, each from any copy where it is
 *     right; a document by the manifest's digest, the record from the catalog.
 *  6  One request replaces an object (S3 put or complete, or rename): never a gap; if it fails, the
 *     old object stays.
 *  7  An object counts as repaired only after it was read back from its store and compared.
 *  8  Nothing is written if a block is right in no copy: CAIRN_CORRUPT names the lost bytes.
 * Copies are checked one after another, one range in flight, one finding an object; `reads` holds
 * the version (srv_copy_hold). */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/log.h"
#include "server/copies/copies.h"
#include "server/copies/damage.h"
#include "server/guard/identity.h"
#include "server/guard/records.h"
#include "server/metrics.h"
#include "server/reads/shard_calls.h"
#include "server/sweep/sweep_objects.h"

#define TELL_MS 500
#define FINDINGS_MAX 1000   /* in one answer; the counts cover all */
#define FINDING_BYTES 40000 /* stored in the row of an operation */
#define RANGES_BYTES 120    /* of lost ranges in a message, before the last one */
#define TRIES 3             /* for a shard whose answer was lost: the old object still matches */
#define FINDINGS_KEPT 1000000
#define NO_SHARD SIZE_MAX

struct finding {
    enum cairn_store_finding what;
    char *key, *detail;
    size_t shard; /* NO_SHARD: a document */
    bool mended;
};
struct verifying {
    const struct srv_verify *verify;
    struct srv_copy_hold hold;
    struct srv_version row;
    struct srv_where where;
    struct cairn_committed documents; /* each proven by some store's copy */
    bool proven;
    uint8_t *buffer; /* SRV_CHECK_BYTES, if blocks are read */
    uint64_t done, total, read_bytes, told_ms;
    bool gone;
};
struct verified_copy {
    struct verifying *all;
    const struct srv_tier *tier; /* NULL: the main store of a server without `stores` */
    struct cairn_store_worker *worker;
    struct finding *findings;
    size_t count, capacity;
    uint64_t mended;
    bool listed, record_rewritten, uploads_ended;
    enum cairn_code failed;
};

static const char *store_name(const struct verified_copy *copy) {
    return copy->tier ? copy->tier->name : SRV_TIER_MAIN;
}

static bool is_chosen(const struct srv_verify *verify, size_t shard) {
    return !verify->parts || shard % verify->parts == verify->part - 1;
}

static enum cairn_code read_row(struct verifying *all, struct cairn_error *err) {
    const struct srv_verify *verify = all->verify;
    struct srv_version *row = &all->row;
    SRV_LOOK(look, verify->server->catalog, err);
    if (all->hold.held) CAIRN_TRY(srv_lease_check(look.tx, &all->hold.lease, err));
    srv_version_release(row);
    CAIRN_TRY(srv_version_get(look.tx, verify->version, row, err));
    bool there = row->state == CAIRN_STATE_COMMITTED && row->recorded;
    all->gone = !there || (verify->repairs && row->trashed);
    if (verify->repairs) CAIRN_TRY(srv_tx_run_thawed(look.tx, row->run_id, err));
    if (!all->gone) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s: what is committed%s is %s", row->id.text,
                      there ? "in the trash" : cairn_state_text(srv_version_shown(row)),
                      verify->repairs ? " and not in the trash" : "",
                      verify->repairs ? "repaired" : "verified");
}

static bool goes_on(void *owner, uint64_t bytes) {
    struct verifying *all = owner;
    const struct srv_verify *verify = all->verify;
    struct cairn_error why = {0};
    all->done += bytes;
    if (verify->server->stopping || all->gone) return false;
    if (!verify->reads || cairn_mono_ms() < all->told_ms + TELL_MS) return true;
    all->told_ms = cairn_mono_ms();
    if (verify->tell &&
        !verify->tell(verify->owner, cairn_min_u64(all->done, all->total), all->total))
        return false;
    /* A version deleted meanwhile must not be reported damaged, and gets no new object. */
    return !read_row(all, &why) || !all->gone;
}

/* ---- writing a shard anew ---- */

/* Bytes of a shard that are right in no copy: the first ranges as text, the others as a count. */
struct lost {
    struct cairn_buf ranges;
    uint64_t from, to; /* the open range that the next lost block may extend; to 0: none */
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

static enum cairn_code read_block(const struct verified_copy *copy,
                                  const struct srv_shard_copy *shard_copy, size_t shard,
                                  uint64_t at, struct cairn_error *err) {
    const struct cairn_manifest_shard *one = &copy->all->documents.manifest.shards[shard];
    const uint8_t *checksums = (const uint8_t *)copy->all->documents.checksums.data;
    struct cairn_key key;
    cairn_key_shard(&copy->all->documents.place, cairn_view_of(one->name), &key);
    const struct srv_tier_range range = {
        .key = key.text,
        .offset = at,
        .length = cairn_min_u64(CAIRN_BLOCK_BYTES, one->size_bytes - at),
        .into = copy->all->buffer,
        .tags = shard_copy->tags,
        .object = shard,
        .object_count = copy->all->documents.manifest.shard_count,
        .object_bytes = one->size_bytes,
        .checksums = checksums + 4 * (one->first_block + at / CAIRN_BLOCK_BYTES)};
    return srv_tier_read(copy->all->verify->server, copy->all->verify->worker, &copy->all->where,
                         &range, err);
}

static enum cairn_code find_lost(const struct verified_copy *copy,
                                 const struct srv_shard_copy *shard_copy, size_t shard,
                                 struct lost *lost, struct cairn_error *err) {
    uint64_t size = copy->all->documents.manifest.shards[shard].size_bytes;
    for (uint64_t at = 0; at < size; at += CAIRN_BLOCK_BYTES) {
        struct cairn_error why = {0};
        enum cairn_code code = read_block(copy, shard_copy, shard, at, &why);
        if (code && code != CAIRN_CORRUPT) return cairn_pass(err, code, &why);
        if (!code) CAIRN_TRY(end_range(lost, err));
        if (code && !lost->to) lost->from = at;
        if (code) lost->to = cairn_min_u64(at + CAIRN_BLOCK_BYTES, size);
        if (!goes_on(copy->all, 0)) return cairn_fail(err, CAIRN_CANCELLED, "it was ended");
    }
    return end_range(lost, err);
}

/* An unreachable store may still have the blocks that the others lost. */
static const struct srv_tier *silent_store(const struct verified_copy *copy) {
    for (size_t i = 0; i < copy->all->where.count; i++)
        if (srv_tier_is_away(copy->all->where.tiers[i])) return copy->all->where.tiers[i];
    return NULL;
}

static enum cairn_code say_lost(const struct verified_copy *copy,
                                const struct srv_shard_copy *shard_copy, size_t shard,
                                struct cairn_error *err) {
    uint64_t size = copy->all->documents.manifest.shards[shard].size_bytes;
    const struct srv_tier *silent = silent_store(copy);
    struct lost lost = {0};
    enum cairn_code code = find_lost(copy, shard_copy, shard, &lost, err);
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
        code =
            cairn_fail(err, CAIRN_CORRUPT,
                       "no copy has it whole; bytes that are lost: %s%s, %" PRIu64 " of %" PRIu64,
                       lost.ranges.data, more, lost.bytes, size);
    cairn_buf_release(&lost.ranges);
    return code;
}

/* A missing shard is uploaded as in promote.c, 6; a damaged one is replaced. */
static enum cairn_code is_there(const struct verified_copy *copy, size_t shard, bool *ret,
                                struct cairn_error *err) {
    const struct cairn_manifest_shard *one = &copy->all->documents.manifest.shards[shard];
    struct cairn_key key;
    struct cairn_error why = {0};
    cairn_key_shard(&copy->all->documents.place, cairn_view_of(one->name), &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(copy->worker, &head, &why);
    *ret = !code;
    if (!code || code == CAIRN_NOT_FOUND) return CAIRN_OK;
    return cairn_pass(err, code, &why);
}

static enum cairn_code write_shard(struct verified_copy *copy, size_t shard,
                                   struct cairn_error *err) {
    struct srv_shard_copy shard_copy = {.server = copy->all->verify->server,
                                        .worker = copy->all->verify->worker,
                                        .where = &copy->all->where,
                                        .to = copy->tier,
                                        .target = copy->worker,
                                        .version = &copy->all->documents,
                                        .goes_on = goes_on,
                                        .owner = copy->all};
    struct cairn_error why = {0};
    enum cairn_code code = is_there(copy, shard, &shard_copy.replaces, &why);
    if (!code)
        code = cairn_store_tags_new(srv_tier_tags(copy->all->documents.manifest.shard_count),
                                    &shard_copy.tags, &why);
    for (int i = 0; !code && i < TRIES; i++) {
        code = srv_shard_copy(&shard_copy, shard, &why);
        if (code != CAIRN_CONFLICT || !shard_copy.replaces || i + 1 == TRIES) break;
        code = CAIRN_OK;
    }
    if (code == CAIRN_CORRUPT) code = say_lost(copy, &shard_copy, shard, &why);
    srv_shard_copy_release(&shard_copy);
    cairn_store_tags_free(shard_copy.tags);
    return cairn_pass(err, code, &why);
}

static enum cairn_code repair_shard(struct verified_copy *copy, size_t shard,
                                    struct cairn_error *err) {
    const struct srv_shard_check check = {.version = &copy->all->documents,
                                          .worker = copy->worker,
                                          .buffer = copy->all->buffer,
                                          .goes_on = goes_on,
                                          .owner = copy->all};
    CAIRN_TRY(srv_lease_still(&copy->all->hold.lease, err));
    if (!copy->uploads_ended)
        CAIRN_TRY(srv_sweep_end_uploads(copy->worker, &copy->all->documents.place, err));
    copy->uploads_ended = true;
    CAIRN_TRY(write_shard(copy, shard, err));
    CAIRN_CRASHPOINT("server.repair.after_shard");
    enum cairn_code code = srv_shard_check(&check, shard, err);
    return code ? cairn_within(err, code, "written anew it is not right") : CAIRN_OK;
}

/* ---- writing a document anew ---- */

/* *ret points into the loaded documents, or into *record, which is computed from the row. */
static enum cairn_code text_of(const struct verified_copy *copy, enum cairn_document document,
                               struct cairn_buf *record, struct cairn_view *ret,
                               struct cairn_error *err) {
    const struct cairn_committed *version = &copy->all->documents;
    const struct cairn_buf *from = &version->attempt_text; /* byte-identical in a copy */
    if (document == CAIRN_DOCUMENT_RECORD) {
        CAIRN_TRY(srv_record_text(&copy->all->row, record, err));
        from = record;
    }
    if (document == CAIRN_DOCUMENT_MANIFEST) from = &version->manifest_text;
    if (document == CAIRN_DOCUMENT_CHECKSUMS) from = &version->checksums;
    if (document == CAIRN_DOCUMENT_LAYOUT) from = &version->layout_text;
    *ret = cairn_buf_view(from);
    /* empty for a version without blocks */
    bool known = ret->size || document == CAIRN_DOCUMENT_CHECKSUMS;
    return known ? CAIRN_OK : cairn_fail(err, CAIRN_CORRUPT, "no copy has it right");
}

static enum cairn_code compare_written(const struct verified_copy *copy, const char *key,
                                       struct cairn_view text, struct cairn_error *err) {
    CAIRN_AUTO(buf) found = {.limit = text.size + 1};
    CAIRN_TRY(cairn_store_get_small(copy->worker, key, &found, err));
    bool same =
        found.size == text.size && (!text.size || !memcmp(found.data, text.data, text.size));
    return same ? CAIRN_OK : cairn_fail(err, CAIRN_CORRUPT, "written anew it is not right");
}

static enum cairn_code repair_document(struct verified_copy *copy, enum cairn_document document,
                                       struct cairn_error *err) {
    CAIRN_AUTO(buf) record = {0};
    struct cairn_view text = {0};
    struct cairn_key key;
    cairn_committed_key(&copy->all->documents, document, &key);
    CAIRN_TRY(text_of(copy, document, &record, &text, err));
    CAIRN_TRY(srv_lease_still(&copy->all->hold.lease, err));
    CAIRN_TRY(cairn_store_put_small(copy->worker, key.text, text, false, err));
    return compare_written(copy, key.text, text, err);
}

/* ---- findings of one copy ---- */

static void release_findings(struct verified_copy *copy) {
    for (size_t i = 0; i < copy->count; i++) {
        free(copy->findings[i].key);
        free(copy->findings[i].detail);
    }
    free(copy->findings);
    copy->findings = NULL;
    copy->count = copy->capacity = 0;
}

/* A stray object is harmless, and documents of a newer release are not judged. */
static bool is_damage(const struct finding *finding) {
    return finding->what != CAIRN_STORE_FINDING_STRAY &&
           finding->what != CAIRN_STORE_FINDING_NEWER && !finding->mended;
}

static int by_name(const void *name, const void *shard) {
    return strcmp(name, ((const struct cairn_manifest_shard *)shard)->name);
}

/* The index of the shard with this key: a manifest lists shards in order. */
static size_t shard_of(const struct verifying *all, const char *key) {
    const struct cairn_manifest *manifest = &all->documents.manifest;
    struct cairn_key prefix;
    char data[sizeof(prefix.text) + 5];
    cairn_key_version_prefix(&all->documents.place, &prefix);
    snprintf(data, sizeof(data), "%sdata/", prefix.text);
    if (!manifest->shard_count || !cairn_text_starts(key, data)) return NO_SHARD;
    const struct cairn_manifest_shard *found =
        bsearch(key + strlen(data), manifest->shards, manifest->shard_count,
                sizeof(*manifest->shards), by_name);
    return found ? (size_t)(found - manifest->shards) : NO_SHARD;
}

static struct finding *find(const struct verified_copy *copy, const char *key) {
    for (size_t i = 0; i < copy->count; i++)
        if (!strcmp(copy->findings[i].key, key)) return &copy->findings[i];
    return NULL;
}

static enum cairn_code keep_finding(struct verified_copy *copy, enum cairn_store_finding what,
                                    const char *key, const char *detail, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(copy->findings, copy->count, copy->capacity, FINDINGS_KEPT,
                               "findings", err));
    struct finding *finding = &copy->findings[copy->count++];
    *finding = (struct finding){.what = what,
                                .key = strdup(key),
                                .detail = strdup(detail),
                                .shard = shard_of(copy->all, key)};
    if (finding->key && finding->detail) return CAIRN_OK;
    free(finding->key);
    free(finding->detail);
    copy->count--;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for findings");
}

static void take_finding(void *owner, enum cairn_store_finding what, const char *key,
                         const char *text) {
    struct verified_copy *copy = owner;
    if (!copy->failed && !find(copy, key)) copy->failed = keep_finding(copy, what, key, text, NULL);
}

static enum cairn_code say_not_mended(struct finding *finding, const struct cairn_error *why,
                                      struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_buf_printf(&text, err, "%s; not mended: %s", finding->detail, why->message));
    char *detail = strdup(text.data);
    if (!detail) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for findings");
    free(finding->detail);
    finding->detail = detail;
    return CAIRN_OK;
}

/* ---- checking ---- */

static enum cairn_code audit(struct verified_copy *copy, bool *ret_record_missing,
                             struct cairn_error *err) {
    CAIRN_AUTO(committed) committed = srv_committed_of(&copy->all->row);
    struct cairn_store_audit audit = {
        .committed = &committed, .ask_each = true, .found = take_finding, .owner = copy};
    CAIRN_TRY(cairn_store_audit_look(&audit, copy->worker, err));
    copy->listed = audit.listed;
    *ret_record_missing = audit.record_missing;
    return copy->failed ? cairn_fail(err, copy->failed, "too much is wrong to be listed")
                        : CAIRN_OK;
}

static bool reads_on(void *owner, uint64_t bytes) {
    struct verifying *all = owner;
    all->read_bytes += bytes;
    return goes_on(all, bytes);
}

static enum cairn_code read_shards(struct verified_copy *copy, struct cairn_error *err) {
    struct verifying *all = copy->all;
    const struct srv_shard_check check = {.version = &all->documents,
                                          .worker = copy->worker,
                                          .buffer = all->buffer,
                                          .goes_on = reads_on,
                                          .owner = all};
    for (size_t i = 0; i < all->documents.manifest.shard_count; i++) {
        struct cairn_error why = {0};
        struct cairn_key key;
        uint64_t before = all->done, size = all->documents.manifest.shards[i].size_bytes;
        if (!is_chosen(all->verify, i)) continue;
        cairn_key_shard(&all->documents.place,
                        cairn_view_of(all->documents.manifest.shards[i].name), &key);
        enum cairn_code code = CAIRN_OK;
        if (!find(copy, key.text)) code = srv_shard_check(&check, i, &why);
        all->done = before + size; /* counts a shard that was left at its first wrong block, too */
        if (code == CAIRN_CORRUPT)
            code = keep_finding(copy, CAIRN_STORE_FINDING_OBJECT, key.text, why.message, &why);
        if (!code) continue;
        return cairn_pass(err, code, &why);
    }
    return CAIRN_OK;
}

/* ---- repairing ---- */

static bool document_of(const struct verified_copy *copy, const char *key,
                        enum cairn_document *ret) {
    for (int i = 0; i < CAIRN_DOCUMENT_COUNT; i++) {
        struct cairn_key own;
        bool layout = i == CAIRN_DOCUMENT_LAYOUT;
        if (layout && !copy->all->documents.manifest.has_layout) continue;
        cairn_committed_key(&copy->all->documents, (enum cairn_document)i, &own);
        if (strcmp(own.text, key) != 0) continue;
        *ret = (enum cairn_document)i;
        return true;
    }
    return false;
}

static uint64_t count_needed(const struct verified_copy *copy) {
    uint64_t needed = 0;
    for (size_t i = 0; i < copy->count; i++) {
        const struct finding *finding = &copy->findings[i];
        enum cairn_document document = CAIRN_DOCUMENT_RECORD;
        bool known = document_of(copy, finding->key, &document);
        bool attempts = known && (document == CAIRN_DOCUMENT_ATTEMPT ||
                                  document == CAIRN_DOCUMENT_ATTEMPT_COPY);
        needed += is_damage(finding) && !attempts;
    }
    return needed;
}

static enum cairn_code mend_one(struct verified_copy *copy, struct finding *finding,
                                struct cairn_error *err) {
    struct verifying *all = copy->all;
    enum cairn_document document = CAIRN_DOCUMENT_RECORD;
    struct cairn_error why = {0};
    enum cairn_code code;
    if (finding->shard != NO_SHARD) {
        all->total += 2 * all->documents.manifest.shards[finding->shard].size_bytes;
        code = repair_shard(copy, finding->shard, &why);
    } else if (document_of(copy, finding->key, &document)) {
        code = repair_document(copy, document, &why);
    } else {
        return CAIRN_OK;
    }
    if (code == CAIRN_CANCELLED || code == CAIRN_NO_MEMORY) return cairn_pass(err, code, &why);
    finding->mended = !code;
    copy->mended += !code;
    (void)srv_copy_say_full(code, store_name(copy), "make room, and repair again", &why);
    if (code) return say_not_mended(finding, &why, err);
    cairn_log(WARN, "copy.mended", "version=%s step=%" PRIu64 " store=%s key=%s cause=\"%s\"",
              all->row.id.text, all->row.step, store_name(copy), finding->key, finding->detail);
    return CAIRN_OK;
}

enum turn { MANIFEST, SHARDS, DOCUMENTS, RECORD, TURNS };

/* 2: the order in which objects are written anew. */
static enum turn turn_of(const struct verified_copy *copy, const struct finding *finding) {
    enum cairn_document document = CAIRN_DOCUMENT_ATTEMPT;
    if (finding->shard != NO_SHARD) return SHARDS;
    (void)document_of(copy, finding->key, &document);
    if (document == CAIRN_DOCUMENT_MANIFEST) return MANIFEST;
    return document == CAIRN_DOCUMENT_RECORD ? RECORD : DOCUMENTS;
}

static enum cairn_code mend(struct verified_copy *copy, enum turn from, enum turn to,
                            struct cairn_error *err) {
    for (int turn = (int)from; turn <= (int)to; turn++)
        for (size_t i = 0; i < copy->count; i++) {
            struct finding *finding = &copy->findings[i];
            if (!is_damage(finding) || (int)turn_of(copy, finding) != turn) continue;
            CAIRN_TRY(mend_one(copy, finding, err));
            if (!goes_on(copy->all, 0)) return cairn_fail(err, CAIRN_CANCELLED, "it was ended");
        }
    return CAIRN_OK;
}

static enum cairn_code rewrite_record(struct verified_copy *copy, struct cairn_error *err) {
    const struct srv_version *row = &copy->all->row;
    struct cairn_version_place place = srv_version_place(row);
    struct cairn_key key;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(srv_record_text(row, &text, err));
    cairn_key_committed(&place, &key);
    CAIRN_TRY(cairn_store_put_same(copy->worker, key.text, cairn_buf_view(&text), err));
    cairn_log(WARN, "record.rewritten", "version=%s step=%" PRIu64 " key=%s", row->id.text,
              row->step, key.text);
    copy->record_rewritten = true;
    struct finding *finding = find(copy, key.text);
    if (finding) finding->mended = true;
    return CAIRN_OK;
}

/* An unreachable store must not be reported as one that lost every object. */
static enum cairn_code is_mounted(const struct verified_copy *copy, struct cairn_error *err) {
    struct srv *server = copy->all->verify->server;
    bool main = !copy->tier || srv_tier_is_main(server, copy->tier);
    struct cairn_key key;
    if (!main) return srv_tier_ready(server, copy->tier, copy->worker, err);
    cairn_key_store_json(&key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(copy->worker, &head, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "%s has no .cairn/store.json: is it mounted?",
                          cairn_store_url(server->store));
    return code;
}

static enum cairn_code verify_copy(struct verified_copy *copy, struct cairn_error *err) {
    const struct verifying *all = copy->all;
    bool record_missing = false, repairs = all->verify->repairs && all->proven && copy->tier;
    CAIRN_TRY(is_mounted(copy, err));
    CAIRN_TRY(audit(copy, &record_missing, err));
    if (repairs) {
        CAIRN_TRY(mend(copy, MANIFEST, MANIFEST, err));
        /* checks what the repaired manifest names */
        if (copy->mended) CAIRN_TRY(audit(copy, &record_missing, err));
    }
    if (all->verify->reads && all->proven) CAIRN_TRY(read_shards(copy, err));
    if (repairs) CAIRN_TRY(mend(copy, SHARDS, RECORD, err));
    return record_missing && !repairs ? rewrite_record(copy, err) : CAIRN_OK;
}

/* ---- documents of the version ---- */

static enum cairn_code borrow(const struct verifying *all, struct srv_tier *tier,
                              struct cairn_store_worker **ret, struct cairn_error *err) {
    struct srv *server = all->verify->server;
    *ret = all->verify->worker;
    if (!tier || srv_tier_is_main(server, tier)) return CAIRN_OK;
    *ret = NULL;
    return srv_tier_borrow(server, tier, ret, err);
}

static void give_back(const struct verifying *all, struct srv_tier *tier,
                      struct cairn_store_worker *worker) {
    if (worker != all->verify->worker) srv_tier_return(all->verify->server, tier, worker);
}

static size_t copy_count(const struct verifying *all) {
    return all->where.count ? all->where.count : 1;
}

static struct srv_tier *tier_at(const struct verifying *all, size_t index) {
    if (all->where.count) return all->where.tiers[index];
    return srv_tier_find(all->verify->server, SRV_TIER_MAIN);
}

/* Loads the document from the first store where it is right. */
static bool load_document(struct verifying *all, enum cairn_document document) {
    for (size_t i = 0; i < copy_count(all); i++) {
        struct srv_tier *tier = tier_at(all, i);
        struct cairn_store_worker *worker = NULL;
        struct cairn_error why = {0};
        enum cairn_code code = borrow(all, tier, &worker, &why);
        struct cairn_document_source source = cairn_store_documents(worker, NULL);
        if (!code) code = cairn_committed_read(&all->documents, &source, document, &why);
        give_back(all, tier, worker);
        if (!code) return true;
    }
    return false;
}

static enum cairn_code load_documents(struct verifying *all, struct cairn_error *err) {
    struct cairn_committed *documents = &all->documents;
    *documents = srv_committed_of(&all->row);
    if (!all->verify->reads) return CAIRN_OK;
    all->buffer = malloc(SRV_CHECK_BYTES);
    if (!all->buffer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to read shards");
    if (!load_document(all, CAIRN_DOCUMENT_MANIFEST)) return CAIRN_OK;
    all->proven = load_document(all, CAIRN_DOCUMENT_CHECKSUMS);
    if (documents->manifest.has_layout) (void)load_document(all, CAIRN_DOCUMENT_LAYOUT);
    if (!load_document(all, CAIRN_DOCUMENT_ATTEMPT))
        (void)load_document(all, CAIRN_DOCUMENT_ATTEMPT_COPY);
    for (size_t i = 0; all->proven && i < documents->manifest.shard_count; i++)
        if (is_chosen(all->verify, i))
            all->total += copy_count(all) * documents->manifest.shards[i].size_bytes;
    return CAIRN_OK;
}

/* ---- the answer ---- */

struct answer {
    json_t *copies, *findings;
    uint64_t damaged, mended, strays, newer, told_bytes;
    bool listed, record_rewritten, ok;
    size_t looked;
    struct cairn_error problem; /* of the last copy whose check did not finish */
};

static enum cairn_code add_findings(struct answer *answer, const struct verified_copy *copy,
                                    const char *store, struct cairn_error *err) {
    for (size_t i = 0; i < copy->count; i++) {
        const struct finding *finding = &copy->findings[i];
        answer->strays += finding->what == CAIRN_STORE_FINDING_STRAY;
        answer->told_bytes += strlen(finding->key) + strlen(finding->detail) + 100;
        bool cut = copy->all->verify->reads && answer->told_bytes > FINDING_BYTES;
        if (cut || json_array_size(answer->findings) >= FINDINGS_MAX) continue;
        CAIRN_TRY(
            cairn_json_append(answer->findings,
                              CAIRN_PACK(finding, .what = cairn_store_finding_text(finding->what),
                                         .key = finding->key, .detail = finding->detail,
                                         .store = store, .mended = finding->mended),
                              "the answer", err));
    }
    return CAIRN_OK;
}

static enum cairn_code add_copy(struct answer *answer, const struct verified_copy *copy,
                                const struct cairn_error *problem, struct cairn_error *err) {
    const char *store = store_name(copy);
    uint64_t damaged = 0, newer = 0; /* newer: documents of a newer release, not judged */
    for (size_t i = 0; i < copy->count; i++) {
        damaged += is_damage(&copy->findings[i]);
        newer += copy->findings[i].what == CAIRN_STORE_FINDING_NEWER;
    }
    bool whole = !damaged && !newer && !problem->code;
    CAIRN_TRY(add_findings(answer, copy, store, err));
    CAIRN_TRY(cairn_json_append(answer->copies,
                                CAIRN_PACK(verified_copy, .store = store, .ok = whole,
                                           .damaged = damaged, .mended = copy->mended,
                                           .problem = problem->code ? problem->message : NULL),
                                "the answer", err));
    answer->damaged += damaged;
    answer->newer += newer;
    answer->mended += copy->mended;
    answer->listed &= copy->listed;
    answer->record_rewritten |= copy->record_rewritten;
    answer->ok &= whole;
    answer->looked += !problem->code;
    if (problem->code) answer->problem = *problem;
    return CAIRN_OK;
}

static enum cairn_code pack_answer(const struct verifying *all, struct answer *answer, json_t **ret,
                                   struct cairn_error *err) {
    size_t shards = 0;
    for (size_t i = 0; all->proven && i < all->documents.manifest.shard_count; i++)
        shards += is_chosen(all->verify, i);
    *ret =
        CAIRN_PACK(verified, .version = all->row.id.text, .step = all->row.step, .ok = answer->ok,
                   .damaged = answer->damaged, .newer = answer->newer, .strays = answer->strays,
                   .listed = answer->listed, .record_rewritten = answer->record_rewritten,
                   .mended = answer->mended, .shards = shards, .read_bytes = all->read_bytes,
                   .copies = answer->copies, .findings = answer->findings);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

struct mended {
    const struct verifying *all;
    const char *store;
};
SRV_CHANGE(tell_mended, const struct mended *mended) {
    return srv_event_of_version(tx, SRV_EVENT_COPY_MENDED, mended->all->row.id.text, CAIRN_OK,
                                mended->store, err);
}

static enum cairn_code note_mended(const struct verified_copy *copy, struct cairn_error *err) {
    struct srv *server = copy->all->verify->server;
    struct mended mended = {copy->all, store_name(copy)};
    if (!copy->mended) return CAIRN_OK;
    cairn_metrics_add(server->metrics, SRV_METRIC(objects_mended_total), copy->mended);
    return srv_catalog_write(server->catalog, tell_mended, &mended, err);
}

/* Only a complete check may clear known damage; a partial one may only add some. */
static void note_damage(const struct verified_copy *copy, size_t index, bool to_its_end) {
    const struct verifying *all = copy->all;
    const struct srv_verify *verify = all->verify;
    const struct srv_damage found = {.version = verify->version,
                                     .store = store_name(copy),
                                     .objects = count_needed(copy),
                                     .all = to_its_end && verify->reads && !verify->parts &&
                                            all->proven,
                                     .changed_ms = all->where.changed_ms[index]};
    if (!all->gone) srv_damage_note(verify->server, &found);
}

static enum cairn_code verify_one(struct verifying *all, size_t index, struct answer *answer,
                                  struct cairn_error *err) {
    struct srv_tier *tier = tier_at(all, index);
    struct verified_copy copy = {.all = all, .tier = tier};
    struct cairn_error problem = {0}, why = {0};
    enum cairn_code code = borrow(all, tier, &copy.worker, &problem);
    if (!code) code = verify_copy(&copy, &problem);
    give_back(all, tier, copy.worker);
    if (code == CAIRN_CANCELLED && all->gone)
        code = cairn_fail(&problem, CAIRN_ABORTED, "%s was deleted meanwhile", all->row.id.text);
    bool ends = code == CAIRN_CANCELLED || code == CAIRN_ABORTED || code == CAIRN_NO_MEMORY;
    note_damage(&copy, index, !code);
    enum cairn_code noted = note_mended(&copy, &why); /* also after a partial repair */
    if (!noted && !ends) noted = add_copy(answer, &copy, &problem, &why);
    release_findings(&copy);
    if (ends && err) *err = problem;
    if (!ends && noted && err) *err = why;
    return ends ? code : noted;
}

static enum cairn_code verify_all(struct verifying *all, json_t **ret, struct cairn_error *err) {
    const struct srv_verify *verify = all->verify;
    CAIRN_AUTO_JSON json_t *copies = json_array();
    CAIRN_AUTO_JSON json_t *findings = json_array();
    struct answer answer = {.copies = copies, .findings = findings, .listed = true, .ok = true};
    if (!copies || !findings) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    CAIRN_TRY(read_row(all, err));
    if (verify->repairs) {
        CAIRN_TRY(srv_thawed(verify->server, err));
        CAIRN_TRY(srv_identity_compare(verify->server, verify->worker, err)); /* Q35 */
    }
    CAIRN_TRY(srv_where_of(verify->server, verify->version, NULL, &all->where, err));
    CAIRN_TRY(load_documents(all, err));
    for (size_t i = 0; i < copy_count(all); i++) CAIRN_TRY(verify_one(all, i, &answer, err));
    if (answer.looked) return pack_answer(all, &answer, ret, err);
    if (err) *err = answer.problem;
    return answer.problem.code;
}

enum cairn_code srv_verify_run(const struct srv_verify *verify, json_t **ret,
                               struct cairn_error *err) {
    struct verifying all = {.verify = verify};
    bool alone = verify->reads && verify->server->tiers;
    CAIRN_ASSERT(verify->reads || !verify->repairs);
    if (alone) CAIRN_TRY(srv_copy_hold_take(&all.hold, verify->server, verify->version, err));
    enum cairn_code code = verify_all(&all, ret, err);
    if (alone) srv_copy_hold_end(&all.hold);
    cairn_committed_release(&all.documents);
    srv_version_release(&all.row);
    free(all.buffer);
    return code;
}

/* ---- POST {C}/verify ---- */

static enum cairn_code verify_work(struct srv *server, struct cairn_store_worker *worker,
                                   const json_t *arguments, void *owner, json_t **ret_result,
                                   struct cairn_error *err) {
    struct srv_verify verify = {
        .server = server,
        .worker = worker,
        .version = json_string_value(json_object_get(arguments, "version")),
        .reads = true,
        .repairs = json_is_true(json_object_get(arguments, "repair")),
        .part = (uint64_t)json_integer_value(json_object_get(arguments, "part")),
        .parts = (uint64_t)json_integer_value(json_object_get(arguments, "parts")),
        .tell = owner ? srv_operation_tell : NULL,
        .owner = owner};
    return srv_verify_run(&verify, ret_result, err);
}

static enum cairn_code judge_question(const struct srv_request *request,
                                      const struct cairn_msg_verify *said,
                                      struct cairn_error *err) {
    const char *project = request->params.run_name.project;
    bool whole = !said->part && !said->parts;
    if (!whole && (said->part < 1 || said->part > said->parts))
        return cairn_fail(err, CAIRN_INVALID, "part and parts: want 1 <= part <= parts");
    if (!whole && said->repair)
        return cairn_fail(err, CAIRN_INVALID, "repair reads every shard: leave part and parts out");
    if (!said->repair) return CAIRN_OK;
    CAIRN_TRY(srv_thawed(request->server, err));
    if (srv_caller_may(&request->caller, CAIRN_SCOPE_WRITE, project)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN, "the token %s lacks the scope write",
                      request->caller.who);
}

static enum cairn_code begin_verify(struct srv_request *request, const struct srv_version *version,
                                    json_t *body, struct srv_reply *reply,
                                    struct cairn_error *err) {
    struct srv *server = request->server;
    char id[SRV_OPERATION_BYTES];
    bool made = false;
    struct srv_operation_wish wish = {.kind = "verify",
                                      .reads = !json_is_true(json_object_get(body, "repair")),
                                      .work = verify_work,
                                      .name = &version->name,
                                      .caller = &request->caller,
                                      .path = version->id.text,
                                      .request = body,
                                      .arguments = body,
                                      .place.folder_fd = -1};
    if (json_object_set_new(body, "version", json_string(version->id.text)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to verify a version");
    if (!server->operations) { /* in tests */
        json_t *result = NULL;
        CAIRN_TRY(verify_work(server, request->store, body, NULL, &result, err));
        return srv_reply_json(reply, 200, result, err);
    }
    CAIRN_TRY(srv_operation_begin(server, &wish, id, &made, err));
    if (made) cairn_log(INFO, "verify.begun", "operation=%s version=%s", id, version->id.text);
    return srv_reply_begun(request, id, reply, err);
}

static enum cairn_code look_at_once(struct srv_request *request, const struct srv_version *version,
                                    struct srv_reply *reply, struct cairn_error *err) {
    const struct srv_verify verify = {
        .server = request->server, .worker = request->store, .version = version->id.text};
    json_t *found = NULL;
    CAIRN_TRY(srv_verify_run(&verify, &found, err));
    return srv_reply_json(reply, 200, found, err);
}

SRV_HANDLER(verify) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_verify said = {0};
    if (request->body.size) {
        CAIRN_TRY(srv_body(request, 10, &body, err));
        CAIRN_TRY(cairn_msg_verify_read(body, "", &said, err));
        CAIRN_TRY(judge_question(request, &said, err));
    }
    SRV_GET(version, version, srv_readable(request, &version, err));
    return said.read || said.repair ? begin_verify(request, &version, body, reply, err)
                                    : look_at_once(request, &version, reply, err);
}
