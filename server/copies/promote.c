/* SPDX-License-Identifier: Apache-2.0 */
/* From one whole copy to one more; see promote.h. */
#include "server/copies/promote.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/crashpoint.h"
#include "common/log.h"
#include "common/text.h"
#include "server/copies/copy_look.h"
#include "server/copies/copy_shard.h"
#include "server/copies/copying_now.h"
#include "server/guard/identity.h"
#include "server/http/waiters.h"
#include "server/ledger/runs.h"
#include "server/metrics.h"

#define TELL_MS 500

/* ---- rows ---- */

static enum cairn_code is_copied(const struct cairn_srv_version *version,
                                 struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_version_there(version, err));
    bool good = version->state == CAIRN_STATE_COMMITTED && version->recorded && !version->trashed;
    if (good) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_COMMITTED,
                      "%s is %s: what is committed and not in the trash is copied",
                      version->id.text,
                      version->trashed ? "in the trash"
                                       : cairn_state_text(cairn_srv_version_shown(version)));
}

enum cairn_code cairn_srv_promote_want(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version,
                                       const struct cairn_srv_promote_wish *wish, bool *ret_whole,
                                       struct cairn_error *err) {
    struct cairn_srv_copies copies;
    CAIRN_TRY(is_copied(version, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, version->run_id, err));
    CAIRN_TRY(cairn_srv_copies_get(tx, version->id.text, &copies, err));
    const struct cairn_srv_copy *there = cairn_srv_copies_find(&copies, wish->store);
    *ret_whole = there && there->state == CAIRN_SRV_COPY_WHOLE;
    struct cairn_srv_copy copy = {.state = CAIRN_SRV_COPY_MAKING,
                                  .by_policy = wish->by_policy,
                                  .changed_ms = wish->wall_ms};
    if (there && there->state == CAIRN_SRV_COPY_REMOVING)
        return cairn_fail(err, CAIRN_IN_USE, "the copy of %s in %s is being removed",
                          version->id.text, wish->store);
    /* What somebody asks for by hand is no longer the policy's to remove. */
    bool same = there && there->by_policy <= wish->by_policy;
    if (*ret_whole) {
        copy.state = CAIRN_SRV_COPY_WHOLE;
        copy.damaged = there->damaged;
        copy.damaged_ms = there->damaged_ms;
    }
    if (there && there->state != CAIRN_SRV_COPY_GONE && same) return CAIRN_OK;
    if (copies.count == CAIRN_SRV_COPIES_MAX && !there)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%s lies in %d stores already", version->id.text,
                          CAIRN_SRV_COPIES_MAX);
    (void)cairn_text_copy(copy.store, sizeof(copy.store), wish->store);
    return cairn_srv_copy_put(tx, version->id.text, &copy, err);
}

struct run {
    struct cairn_srv_promote *promote;
    struct cairn_srv_tier *to;
    struct cairn_store_worker *target;
    struct cairn_srv_copy_hold hold;
    struct cairn_srv_version version;
    struct cairn_srv_copies copies;
    struct cairn_srv_where where;
    struct cairn_committed documents;
    uint64_t done, total, told_ms;
    bool whole, wanted;
    struct cairn_error unwanted; /* why the copy ended in its middle, unless it was cancelled */
};

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct run *run = argument;
    const char *id = run->promote->version;
    CAIRN_TRY(cairn_srv_lease_check(tx, &run->hold.lease, err));
    cairn_srv_version_release(&run->version);
    CAIRN_TRY(cairn_srv_version_get(tx, id, &run->version, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, run->version.run_id, err));
    CAIRN_TRY(cairn_srv_copies_get(tx, id, &run->copies, err));
    const struct cairn_srv_copy *copy = cairn_srv_copies_find(&run->copies, run->promote->store);
    bool there = !is_copied(&run->version, NULL);
    run->whole = copy && copy->state == CAIRN_SRV_COPY_WHOLE;
    run->wanted = there && copy && copy->state == CAIRN_SRV_COPY_MAKING;
    return CAIRN_OK;
}

static enum cairn_code look_again(struct run *run, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(run->promote->server, err));
    CAIRN_TRY(cairn_srv_catalog_read(run->promote->server->catalog, look, run, err));
    if (run->wanted || run->whole) return CAIRN_OK;
    return cairn_fail(err, CAIRN_ABORTED, "nobody wants the copy of %s in %s any more",
                      run->promote->version, run->promote->store);
}

static enum cairn_code finish(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct run *run = argument;
    CAIRN_TRY(look(tx, run, err));
    if (!run->wanted)
        return cairn_fail(err, CAIRN_ABORTED, "nobody wants the copy of %s in %s any more",
                          run->promote->version, run->promote->store);
    struct cairn_srv_copy copy = *cairn_srv_copies_find(&run->copies, run->promote->store);
    copy.state = CAIRN_SRV_COPY_WHOLE;
    copy.changed_ms = cairn_srv_wall_ms(run->promote->server);
    return cairn_srv_copy_put(tx, run->promote->version, &copy, err);
}

/* ---- shards ---- */

static bool goes_on(void *owner, uint64_t bytes) {
    struct run *run = owner;
    const struct cairn_srv *server = run->promote->server;
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

/* A shard ends with CAIRN_CANCELLED where goes_on() was false; a demote that came is the reason. */
static enum cairn_code say_unwanted(const struct run *run, enum cairn_code code,
                                    struct cairn_error *err) {
    if (code != CAIRN_CANCELLED || !run->unwanted.code) return code;
    if (err) *err = run->unwanted;
    return run->unwanted.code;
}

static enum cairn_code copy_shards(struct run *run, struct cairn_error *err) {
    struct cairn_srv *server = run->promote->server;
    const struct cairn_manifest *manifest = &run->documents.manifest;
    struct cairn_srv_shard_copy copy = {.server = server,
                                        .worker = run->promote->worker,
                                        .where = &run->where,
                                        .to = run->to,
                                        .target = run->target,
                                        .version = &run->documents,
                                        .goes_on = goes_on,
                                        .owner = run};
    size_t tags = cairn_srv_tier_tags(manifest->shard_count);
    uint64_t before = 0;
    enum cairn_code code = cairn_store_tags_new(tags, &copy.tags, err);
    for (size_t i = 0; i < manifest->shard_count && !code; i++) {
        code = cairn_srv_shard_copy(&copy, i, err);
        before += manifest->shards[i].size_bytes;
        run->done = before; /* also of one that was there */
        if (!code && !goes_on(run, 0)) code = cairn_fail(err, CAIRN_CANCELLED, "it was ended");
        if (!code) CAIRN_CRASHPOINT("server.promote.after_shard");
    }
    run->promote->within_bytes = copy.within_bytes;
    cairn_srv_shard_copy_release(&copy);
    cairn_store_tags_free(copy.tags);
    return say_unwanted(run, code, err);
}

/* ---- documents ---- */

static void tell_read_again(const char *key, const struct cairn_error *why) {
    cairn_log(WARN, "copy.document_again", "key=%s cause=\"%s\"", key, why->message);
}

static enum cairn_code load_documents(struct run *run, struct cairn_error *err) {
    struct cairn_srv_tier_documents from = {run->promote->server, run->promote->worker,
                                            &run->where};
    struct cairn_document_source source = cairn_srv_tier_documents(&from, tell_read_again);
    const struct cairn_srv_version *version = &run->version;
    run->documents.place = cairn_srv_version_place(version);
    run->documents.has_digest = true;
    memcpy(run->documents.manifest_sha256, version->manifest_sha256,
           sizeof(run->documents.manifest_sha256));
    CAIRN_TRY(cairn_committed_load(&run->documents, &source,
                                   CAIRN_DOCUMENT_BIT(RECORD) | CAIRN_DOCUMENT_BIT(MANIFEST) |
                                       CAIRN_DOCUMENT_BIT(CHECKSUMS) | CAIRN_DOCUMENT_BIT(LAYOUT),
                                   err));
    const struct cairn_manifest *manifest = &run->documents.manifest;
    for (size_t i = 0; i < manifest->shard_count; i++)
        run->total += manifest->shards[i].size_bytes;
    return CAIRN_OK;
}

static enum cairn_code put(struct run *run, const struct cairn_key *key,
                           const struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_lease_still(&run->hold.lease, err));
    return cairn_store_put_same(run->target, key->text, cairn_buf_view(text), err);
}

/* Without an attempt's record a version is read all the same (docs/format.md); a reindex from this
 * store alone needs it. Where it is lost in the original it is lost here. */
static enum cairn_code put_attempt(struct run *run, struct cairn_error *err) {
    struct cairn_srv_where main = {.count = 0};
    struct cairn_srv_tier_documents from = {run->promote->server, run->promote->worker, &main};
    struct cairn_document_source source = cairn_srv_tier_documents(&from, tell_read_again);
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
    if (code) {
        if (err) *err = why;
        return code;
    }
    cairn_key_attempt(&run->version.name, manifest->origin.attempt, &key);
    CAIRN_TRY(put(run, &key, &run->documents.attempt_text, err));
    cairn_key_attempt_copy(&run->version.name, manifest->origin.attempt, &key);
    return put(run, &key, &run->documents.attempt_text, err);
}

/* promote.h#2: all but the record. */
static enum cairn_code put_documents(struct run *run, struct cairn_error *err) {
    const struct cairn_committed *documents = &run->documents;
    struct cairn_key key;
    if (documents->manifest.has_layout) {
        cairn_committed_key(documents, CAIRN_DOCUMENT_LAYOUT, &key);
        CAIRN_TRY(put(run, &key, &documents->layout_text, err));
    }
    CAIRN_TRY(put_attempt(run, err));
    cairn_committed_key(documents, CAIRN_DOCUMENT_CHECKSUMS, &key);
    CAIRN_TRY(put(run, &key, &documents->checksums, err));
    CAIRN_CRASHPOINT("server.promote.after_checksums");
    cairn_committed_key(documents, CAIRN_DOCUMENT_MANIFEST, &key);
    CAIRN_TRY(put(run, &key, &documents->manifest_text, err));
    CAIRN_CRASHPOINT("server.promote.after_manifest");
    return CAIRN_OK;
}

/* ---- the whole ---- */

/* Of what is written into the target, and nothing else: another disk may be full, too. */
static enum cairn_code say_full(const struct run *run, enum cairn_code code,
                                struct cairn_error *err) {
    return cairn_srv_copy_say_full(code, run->promote->store,
                                   "make room, and it goes on by itself", err);
}

static enum cairn_code copy(struct run *run, struct cairn_error *err) {
    CAIRN_AUTO(buf) record = {0};
    struct cairn_key key;
    struct cairn_version_place place = cairn_srv_version_place(&run->version);
    CAIRN_TRY(cairn_srv_copy_end_uploads(run->to, run->target, &place, err));
    CAIRN_TRY(load_documents(run, err));
    enum cairn_code code = copy_shards(run, err);
    if (!code) code = put_documents(run, err);
    if (code) return say_full(run, code, err);
    CAIRN_TRY(cairn_srv_copy_look(run->target, &run->documents, false, err));
    CAIRN_TRY(look_again(run, err)); /* promote.h#3 */
    CAIRN_TRY(cairn_record_encode(&run->documents.record, &record, err));
    cairn_committed_key(&run->documents, CAIRN_DOCUMENT_RECORD, &key);
    code = put(run, &key, &record, err);
    if (code) return say_full(run, code, err);
    CAIRN_CRASHPOINT("server.promote.after_record");
    return cairn_srv_catalog_write(run->promote->server->catalog, finish, run, err);
}

static void tell_made(struct run *run) {
    struct cairn_srv *server = run->promote->server;
    cairn_metrics_add(server->metrics,
                      (struct cairn_metric_at){.family = CAIRN_SRV_METRIC_copies_made_total}, 1);
    cairn_metrics_add(server->metrics,
                      (struct cairn_metric_at){.family = CAIRN_SRV_METRIC_copied_bytes_total},
                      run->promote->copied_bytes);
    cairn_log(INFO, "copy.made",
              "version=%s step=%" PRIu64 " store=%s bytes=%" PRIu64 " within=%" PRIu64,
              run->promote->version, run->version.step, run->promote->store,
              run->promote->copied_bytes, run->promote->within_bytes);
    cairn_srv_waiters_wake_version(server->waiters, &run->version.id, &run->version.name);
}

static enum cairn_code run_held(struct run *run, struct cairn_error *err) {
    struct cairn_srv_promote *promote = run->promote;
    CAIRN_TRY(look_again(run, err));
    if (run->whole) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_where_of(promote->server, promote->version, promote->store, &run->where,
                                 err));
    CAIRN_TRY(cairn_srv_tier_borrow(promote->server, run->to, &run->target, err));
    enum cairn_code code = cairn_srv_tier_ready(promote->server, run->to, run->target, err);
    cairn_srv_copy_asked(promote->server, promote->store, code);
    if (code) return say_full(run, code, err);
    CAIRN_TRY(copy(run, err));
    tell_made(run);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_promote_run(struct cairn_srv_promote *promote,
                                      struct cairn_error *err) {
    struct cairn_srv *server = promote->server;
    struct run run = {.promote = promote, .to = cairn_srv_tier_find(server, promote->store)};
    struct cairn_error why = {0};
    if (!run.to)
        return cairn_fail(err, CAIRN_NOT_FOUND, "the setting stores names no store %s",
                          promote->store);
    CAIRN_TRY(cairn_srv_copy_hold_take(&run.hold, server, promote->version, err));
    enum cairn_code code = run_held(&run, &why);
    cairn_srv_tier_return(server, run.to, run.target);
    cairn_srv_copy_failed(server, promote->version, promote->store,
                          code && code != CAIRN_CANCELLED && code != CAIRN_ABORTED);
    cairn_srv_copy_hold_end(&run.hold);
    cairn_committed_release(&run.documents);
    cairn_srv_version_release(&run.version);
    if (code && err) *err = why;
    return code;
}
