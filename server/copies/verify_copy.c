/* SPDX-License-Identifier: Apache-2.0 */
/* Its documents and what is there, its blocks, what is written anew; see verify_copy.h. */
#include "server/copies/verify_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/array.h"
#include "common/log.h"
#include "common/text.h"
#include "server/copies/copy_shard.h"
#include "server/guard/identity.h"
#include "server/guard/records.h"

void cairn_srv_verified_copy_release(struct cairn_srv_verified_copy *copy) {
    for (size_t i = 0; i < copy->count; i++) {
        free(copy->findings[i].key);
        free(copy->findings[i].detail);
    }
    free(copy->findings);
    copy->findings = NULL;
    copy->count = copy->capacity = 0;
}

/* A stray harms nothing, and what a newer release wrote is not judged here. */
static bool is_damage(const struct cairn_srv_finding *finding) {
    return finding->what != CAIRN_STORE_FINDING_STRAY &&
           finding->what != CAIRN_STORE_FINDING_NEWER && !finding->mended;
}

uint64_t cairn_srv_verified_copy_damaged(const struct cairn_srv_verified_copy *copy) {
    uint64_t damaged = 0;
    for (size_t i = 0; i < copy->count; i++) damaged += is_damage(&copy->findings[i]);
    return damaged;
}

uint64_t cairn_srv_verified_copy_newer(const struct cairn_srv_verified_copy *copy) {
    uint64_t newer = 0;
    for (size_t i = 0; i < copy->count; i++)
        newer += copy->findings[i].what == CAIRN_STORE_FINDING_NEWER;
    return newer;
}

/* ---- findings ---- */

static int by_name(const void *name, const void *shard) {
    return strcmp(name, ((const struct cairn_manifest_shard *)shard)->name);
}

/* A manifest names its shards in order. */
static size_t shard_of(const struct cairn_srv_verifying *all, const char *key) {
    const struct cairn_manifest *manifest = &all->documents.manifest;
    struct cairn_key prefix;
    char data[sizeof(prefix.text) + 5];
    cairn_key_version_prefix(&all->documents.place, &prefix);
    snprintf(data, sizeof(data), "%sdata/", prefix.text);
    if (!manifest->shard_count || !cairn_text_starts(key, data)) return CAIRN_SRV_NO_SHARD;
    const struct cairn_manifest_shard *found =
        bsearch(key + strlen(data), manifest->shards, manifest->shard_count,
                sizeof(*manifest->shards), by_name);
    return found ? (size_t)(found - manifest->shards) : CAIRN_SRV_NO_SHARD;
}

static struct cairn_srv_finding *find(const struct cairn_srv_verified_copy *copy, const char *key) {
    for (size_t i = 0; i < copy->count; i++)
        if (!strcmp(copy->findings[i].key, key)) return &copy->findings[i];
    return NULL;
}

static enum cairn_code keep(struct cairn_srv_verified_copy *copy, enum cairn_store_finding what,
                            const char *key, const char *detail, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(copy->findings, copy->count, copy->capacity, CAIRN_SRV_FINDINGS_MAX,
                               "findings", err));
    struct cairn_srv_finding *finding = &copy->findings[copy->count++];
    *finding = (struct cairn_srv_finding){.what = what,
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
    struct cairn_srv_verified_copy *copy = owner;
    if (!copy->failed && !find(copy, key)) copy->failed = keep(copy, what, key, text, NULL);
}

static enum cairn_code say(struct cairn_srv_finding *finding, const struct cairn_error *why,
                           struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_buf_printf(&text, err, "%s; not mended: %s", finding->detail, why->message));
    char *detail = strdup(text.data);
    if (!detail) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for findings");
    free(finding->detail);
    finding->detail = detail;
    return CAIRN_OK;
}

/* ---- looking ---- */

static enum cairn_code audit(struct cairn_srv_verified_copy *copy, bool *ret_record_missing,
                             struct cairn_error *err) {
    const struct cairn_srv_version *row = &copy->all->row;
    CAIRN_AUTO(committed)
    committed = {.place = cairn_srv_version_place(row), .has_digest = true};
    memcpy(committed.manifest_sha256, row->manifest_sha256, sizeof(committed.manifest_sha256));
    struct cairn_store_audit audit = {
        .committed = &committed, .ask_each = true, .found = take_finding, .owner = copy};
    CAIRN_TRY(cairn_store_audit_look(&audit, copy->worker, err));
    copy->listed = audit.listed;
    *ret_record_missing = audit.record_missing;
    return copy->failed ? cairn_fail(err, copy->failed, "too much is wrong to be listed")
                        : CAIRN_OK;
}

static bool reads_on(void *owner, uint64_t bytes) {
    struct cairn_srv_verifying *all = owner;
    all->read_bytes += bytes;
    return all->goes_on(all, bytes);
}

static enum cairn_code read_shards(struct cairn_srv_verified_copy *copy, struct cairn_error *err) {
    struct cairn_srv_verifying *all = copy->all;
    const struct cairn_srv_shard_check check = {.version = &all->documents,
                                                .worker = copy->worker,
                                                .buffer = all->buffer,
                                                .goes_on = reads_on,
                                                .owner = all};
    for (size_t i = 0; i < all->documents.manifest.shard_count; i++) {
        struct cairn_error why = {0};
        struct cairn_key key;
        uint64_t before = all->done, size = all->documents.manifest.shards[i].size_bytes;
        if (!cairn_srv_verify_chosen(all->verify, i)) continue;
        cairn_key_shard(&all->documents.place,
                        cairn_view_of(all->documents.manifest.shards[i].name), &key);
        enum cairn_code code = CAIRN_OK;
        if (!find(copy, key.text)) code = cairn_srv_shard_check(&check, i, &why);
        all->done = before + size; /* also of one that was left at its first wrong block */
        if (code == CAIRN_CORRUPT)
            code = keep(copy, CAIRN_STORE_FINDING_OBJECT, key.text, why.message, &why);
        if (!code) continue;
        if (err) *err = why;
        return code;
    }
    return CAIRN_OK;
}

/* ---- mending ---- */

static const char *store_name(const struct cairn_srv_verified_copy *copy) {
    return copy->tier ? copy->tier->name : CAIRN_SRV_TIER_MAIN;
}

static bool document_of(const struct cairn_srv_verified_copy *copy, const char *key,
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

uint64_t cairn_srv_verified_copy_needed(const struct cairn_srv_verified_copy *copy) {
    uint64_t needed = 0;
    for (size_t i = 0; i < copy->count; i++) {
        const struct cairn_srv_finding *finding = &copy->findings[i];
        enum cairn_document document = CAIRN_DOCUMENT_RECORD;
        bool known = document_of(copy, finding->key, &document);
        bool attempts = known && (document == CAIRN_DOCUMENT_ATTEMPT ||
                                  document == CAIRN_DOCUMENT_ATTEMPT_COPY);
        needed += is_damage(finding) && !attempts;
    }
    return needed;
}

static enum cairn_code mend_one(struct cairn_srv_verified_copy *copy,
                                struct cairn_srv_repair *repair, struct cairn_srv_finding *finding,
                                struct cairn_error *err) {
    struct cairn_srv_verifying *all = copy->all;
    enum cairn_document document = CAIRN_DOCUMENT_RECORD;
    struct cairn_error why = {0};
    enum cairn_code code;
    if (finding->shard != CAIRN_SRV_NO_SHARD) {
        /* It is written, and read again. */
        all->total += 2 * all->documents.manifest.shards[finding->shard].size_bytes;
        code = cairn_srv_repair_shard(repair, finding->shard, &why);
    } else if (document_of(copy, finding->key, &document)) {
        code = cairn_srv_repair_document(repair, document, &why);
    } else {
        return CAIRN_OK;
    }
    if (code == CAIRN_CANCELLED || code == CAIRN_NO_MEMORY) {
        if (err) *err = why;
        return code;
    }
    finding->mended = !code;
    copy->mended += !code;
    (void)cairn_srv_copy_say_full(code, store_name(copy), "make room, and repair again", &why);
    if (code) return say(finding, &why, err);
    cairn_log(WARN, "copy.mended", "version=%s step=%" PRIu64 " store=%s key=%s cause=\"%s\"",
              all->row.id.text, all->row.step, store_name(copy), finding->key, finding->detail);
    return CAIRN_OK;
}

enum turn { MANIFEST, SHARDS, DOCUMENTS, RECORD, TURNS };

/* verify.h#2 */
static enum turn turn_of(const struct cairn_srv_verified_copy *copy,
                         const struct cairn_srv_finding *finding) {
    enum cairn_document document = CAIRN_DOCUMENT_ATTEMPT;
    if (finding->shard != CAIRN_SRV_NO_SHARD) return SHARDS;
    (void)document_of(copy, finding->key, &document);
    if (document == CAIRN_DOCUMENT_MANIFEST) return MANIFEST;
    return document == CAIRN_DOCUMENT_RECORD ? RECORD : DOCUMENTS;
}

static enum cairn_code mend(struct cairn_srv_verified_copy *copy, struct cairn_srv_repair *repair,
                            enum turn from, enum turn to, struct cairn_error *err) {
    for (int turn = (int)from; turn <= (int)to; turn++)
        for (size_t i = 0; i < copy->count; i++) {
            struct cairn_srv_finding *finding = &copy->findings[i];
            if (!is_damage(finding) || (int)turn_of(copy, finding) != turn) continue;
            CAIRN_TRY(mend_one(copy, repair, finding, err));
            if (!copy->all->goes_on(copy->all, 0))
                return cairn_fail(err, CAIRN_CANCELLED, "it was ended");
        }
    return CAIRN_OK;
}

static enum cairn_code rewrite_record(struct cairn_srv_verified_copy *copy,
                                      struct cairn_error *err) {
    const struct cairn_srv_version *row = &copy->all->row;
    struct cairn_version_place place = cairn_srv_version_place(row);
    struct cairn_key key;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_srv_record_text(row, &text, err));
    cairn_key_committed(&place, &key);
    CAIRN_TRY(cairn_store_put_same(copy->worker, key.text, cairn_buf_view(&text), err));
    cairn_log(WARN, "record.rewritten", "version=%s step=%" PRIu64 " key=%s", row->id.text,
              row->step, key.text);
    copy->record_rewritten = true;
    struct cairn_srv_finding *finding = find(copy, key.text);
    if (finding) finding->mended = true;
    return CAIRN_OK;
}

/* ---- the whole ---- */

/* A store that is away must not be taken for one that lost everything. */
static enum cairn_code is_mounted(const struct cairn_srv_verified_copy *copy,
                                  struct cairn_error *err) {
    struct cairn_srv *server = copy->all->verify->server;
    bool main = !copy->tier || cairn_srv_tier_is_main(server, copy->tier);
    struct cairn_key key;
    if (!main) return cairn_srv_tier_ready(server, copy->tier, copy->worker, err);
    cairn_key_store_json(&key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(copy->worker, &head, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "%s has no .cairn/store.json: is it mounted?",
                          cairn_store_url(server->store));
    return code;
}

enum cairn_code cairn_srv_verify_copy(struct cairn_srv_verified_copy *copy,
                                      struct cairn_error *err) {
    struct cairn_srv_verifying *all = copy->all;
    struct cairn_srv_repair repair = {.server = all->verify->server,
                                      .worker = all->verify->worker,
                                      .where = &all->where,
                                      .tier = copy->tier,
                                      .target = copy->worker,
                                      .row = &all->row,
                                      .version = &all->documents,
                                      .hold = &all->hold,
                                      .goes_on = copy->all->goes_on,
                                      .owner = all,
                                      .buffer = all->buffer};
    bool record_missing = false, repairs = all->verify->repairs && all->proven && copy->tier;
    CAIRN_TRY(is_mounted(copy, err));
    CAIRN_TRY(audit(copy, &record_missing, err));
    if (repairs) {
        CAIRN_TRY(mend(copy, &repair, MANIFEST, MANIFEST, err));
        if (copy->mended) CAIRN_TRY(audit(copy, &record_missing, err)); /* of what it names */
    }
    if (all->verify->reads && all->proven) CAIRN_TRY(read_shards(copy, err));
    if (repairs) CAIRN_TRY(mend(copy, &repair, SHARDS, RECORD, err));
    return record_missing && !repairs ? rewrite_record(copy, err) : CAIRN_OK;
}
