/* SPDX-License-Identifier: Apache-2.0 */
/* The copies by the catalog, the documents by whichever store has them, then copy by copy; see
 * verify.h. */
#include "server/copies/verify.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/copies/damage.h"
#include "server/copies/verify_copy.h"
#include "server/guard/identity.h"
#include "server/ledger/events.h"
#include "server/ledger/frozen.h"
#include "server/metrics.h"

#define TELL_MS 500
#define FINDINGS_MAX 1000   /* of one answer; all are counted */
#define FINDING_BYTES 40000 /* of what is kept in the row of an operation */

struct answer {
    json_t *copies, *findings;
    uint64_t damaged, mended, strays, newer, told_bytes;
    bool listed, record_rewritten, ok;
    size_t looked;
    struct cairn_error problem; /* of the last copy that was not looked at to its end */
};

/* ---- what the catalog says ---- */

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct cairn_srv_verifying *all = argument;
    const struct cairn_srv_verify *verify = all->verify;
    struct cairn_srv_version *row = &all->row;
    if (all->hold.held) CAIRN_TRY(cairn_srv_lease_check(tx, &all->hold.lease, err));
    cairn_srv_version_release(row);
    CAIRN_TRY(cairn_srv_version_get(tx, verify->version, row, err));
    bool there = row->state == CAIRN_STATE_COMMITTED && row->recorded;
    all->gone = !there || (verify->repairs && row->trashed);
    if (verify->repairs) CAIRN_TRY(cairn_srv_tx_run_thawed(tx, row->run_id, err));
    if (!all->gone) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s: what is committed%s is %s", row->id.text,
                      there ? "in the trash" : cairn_state_text(cairn_srv_version_shown(row)),
                      verify->repairs ? " and not in the trash" : "",
                      verify->repairs ? "repaired" : "verified");
}

static bool goes_on(void *owner, uint64_t bytes) {
    struct cairn_srv_verifying *all = owner;
    const struct cairn_srv_verify *verify = all->verify;
    struct cairn_error why = {0};
    all->done += bytes;
    if (verify->server->stopping || all->gone) return false;
    if (!verify->reads || cairn_mono_ms() < all->told_ms + TELL_MS) return true;
    all->told_ms = cairn_mono_ms();
    if (verify->tell &&
        !verify->tell(verify->owner, cairn_min_u64(all->done, all->total), all->total))
        return false;
    /* What is deleted meanwhile must not be called damaged, and gets no object any more. */
    return !cairn_srv_catalog_read(verify->server->catalog, look, all, &why) || !all->gone;
}

/* ---- documents ---- */

static enum cairn_code borrow(const struct cairn_srv_verifying *all, struct cairn_srv_tier *tier,
                              struct cairn_store_worker **ret, struct cairn_error *err) {
    struct cairn_srv *server = all->verify->server;
    *ret = all->verify->worker;
    if (!tier || cairn_srv_tier_is_main(server, tier)) return CAIRN_OK;
    *ret = NULL;
    return cairn_srv_tier_borrow(server, tier, ret, err);
}

static void give(const struct cairn_srv_verifying *all, struct cairn_srv_tier *tier,
                 struct cairn_store_worker *worker) {
    if (worker != all->verify->worker) cairn_srv_tier_return(all->verify->server, tier, worker);
}

static size_t copy_count(const struct cairn_srv_verifying *all) {
    return all->where.count ? all->where.count : 1;
}

static struct cairn_srv_tier *tier_at(const struct cairn_srv_verifying *all, size_t index) {
    if (all->where.count) return all->where.tiers[index];
    return cairn_srv_tier_find(all->verify->server, CAIRN_SRV_TIER_MAIN);
}

/* By the first store that has it right; what is wrong elsewhere is that copy's finding. */
static bool load(struct cairn_srv_verifying *all, enum cairn_document document) {
    for (size_t i = 0; i < copy_count(all); i++) {
        struct cairn_srv_tier *tier = tier_at(all, i);
        struct cairn_store_worker *worker = NULL;
        struct cairn_error why = {0};
        enum cairn_code code = borrow(all, tier, &worker, &why);
        struct cairn_document_source source = cairn_store_documents(worker, NULL);
        if (!code) code = cairn_committed_read(&all->documents, &source, document, &why);
        give(all, tier, worker);
        if (!code) return true;
    }
    return false;
}

static enum cairn_code load_documents(struct cairn_srv_verifying *all, struct cairn_error *err) {
    struct cairn_committed *documents = &all->documents;
    documents->place = cairn_srv_version_place(&all->row);
    documents->has_digest = true;
    memcpy(documents->manifest_sha256, all->row.manifest_sha256,
           sizeof(documents->manifest_sha256));
    if (!all->verify->reads) return CAIRN_OK;
    all->buffer = malloc(CAIRN_SRV_CHECK_BYTES);
    if (!all->buffer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to read shards");
    if (!load(all, CAIRN_DOCUMENT_MANIFEST)) return CAIRN_OK;
    all->proven = load(all, CAIRN_DOCUMENT_CHECKSUMS);
    if (documents->manifest.has_layout) (void)load(all, CAIRN_DOCUMENT_LAYOUT);
    if (!load(all, CAIRN_DOCUMENT_ATTEMPT)) (void)load(all, CAIRN_DOCUMENT_ATTEMPT_COPY);
    for (size_t i = 0; all->proven && i < documents->manifest.shard_count; i++)
        if (cairn_srv_verify_chosen(all->verify, i))
            all->total += copy_count(all) * documents->manifest.shards[i].size_bytes;
    return CAIRN_OK;
}

/* ---- the answer ---- */

static enum cairn_code add_findings(struct answer *answer,
                                    const struct cairn_srv_verified_copy *copy, const char *store,
                                    struct cairn_error *err) {
    for (size_t i = 0; i < copy->count; i++) {
        const struct cairn_srv_finding *finding = &copy->findings[i];
        answer->strays += finding->what == CAIRN_STORE_FINDING_STRAY;
        answer->told_bytes += strlen(finding->key) + strlen(finding->detail) + 100;
        bool cut = copy->all->verify->reads && answer->told_bytes > FINDING_BYTES;
        if (cut || json_array_size(answer->findings) >= FINDINGS_MAX) continue;
        json_t *item = CAIRN_PACK(finding, .what = cairn_store_finding_text(finding->what),
                                  .key = finding->key, .detail = finding->detail, .store = store,
                                  .mended = finding->mended);
        if (json_array_append_new(answer->findings, item))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
    return CAIRN_OK;
}

static enum cairn_code add_copy(struct answer *answer, const struct cairn_srv_verified_copy *copy,
                                const struct cairn_error *problem, struct cairn_error *err) {
    const char *store = copy->tier ? copy->tier->name : CAIRN_SRV_TIER_MAIN;
    uint64_t damaged = cairn_srv_verified_copy_damaged(copy);
    uint64_t newer = cairn_srv_verified_copy_newer(copy);
    bool whole = !damaged && !newer && !problem->code;
    CAIRN_TRY(add_findings(answer, copy, store, err));
    json_t *item =
        CAIRN_PACK(verified_copy, .store = store, .ok = whole, .damaged = damaged,
                   .mended = copy->mended, .problem = problem->code ? problem->message : NULL);
    if (json_array_append_new(answer->copies, item))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
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

static enum cairn_code pack(const struct cairn_srv_verifying *all, struct answer *answer,
                            json_t **ret, struct cairn_error *err) {
    size_t shards = 0;
    for (size_t i = 0; all->proven && i < all->documents.manifest.shard_count; i++)
        shards += cairn_srv_verify_chosen(all->verify, i);
    *ret = CAIRN_PACK(verified, .version = all->row.id.text, .step = all->row.step,
                      .ok = answer->ok, .damaged = answer->damaged,
                      .newer = answer->newer, .strays = answer->strays, .listed = answer->listed,
                      .record_rewritten = answer->record_rewritten,
                      .mended = answer->mended, .shards = shards, .read_bytes = all->read_bytes,
                      .copies = answer->copies, .findings = answer->findings);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

/* ---- copy by copy ---- */

struct mended {
    const struct cairn_srv_verifying *all;
    const char *store;
};
static enum cairn_code tell_mended(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    const struct mended *mended = argument;
    return cairn_srv_event_of_version(tx, CAIRN_SRV_EVENT_COPY_MENDED, mended->all->row.id.text,
                                      CAIRN_OK, mended->store, err);
}

static enum cairn_code note_mended(const struct cairn_srv_verified_copy *copy,
                                   struct cairn_error *err) {
    struct cairn_srv *server = copy->all->verify->server;
    struct mended mended = {copy->all, copy->tier ? copy->tier->name : CAIRN_SRV_TIER_MAIN};
    if (!copy->mended) return CAIRN_OK;
    cairn_metrics_add(server->metrics,
                      (struct cairn_metric_at){.family = CAIRN_SRV_METRIC_objects_mended_total},
                      copy->mended);
    return cairn_srv_catalog_write(server->catalog, tell_mended, &mended, err);
}

/* What was looked at in part says what is wrong, and never that nothing is. */
static void note_damage(const struct cairn_srv_verified_copy *copy, size_t index, bool to_its_end) {
    const struct cairn_srv_verifying *all = copy->all;
    const struct cairn_srv_verify *verify = all->verify;
    const struct cairn_srv_damage found = {
        .version = verify->version,
        .store = copy->tier ? copy->tier->name : CAIRN_SRV_TIER_MAIN,
        .objects = cairn_srv_verified_copy_needed(copy),
        .all = to_its_end && verify->reads && !verify->parts && all->proven,
        .changed_ms = all->where.changed_ms[index]};
    if (!all->gone) cairn_srv_damage_note(verify->server, &found);
}

static enum cairn_code verify_one(struct cairn_srv_verifying *all, size_t index,
                                  struct answer *answer, struct cairn_error *err) {
    struct cairn_srv_tier *tier = tier_at(all, index);
    struct cairn_srv_verified_copy copy = {.all = all, .tier = tier};
    struct cairn_error problem = {0}, why = {0};
    enum cairn_code code = borrow(all, tier, &copy.worker, &problem);
    if (!code) code = cairn_srv_verify_copy(&copy, &problem);
    give(all, tier, copy.worker);
    if (code == CAIRN_CANCELLED && all->gone)
        code = cairn_fail(&problem, CAIRN_ABORTED, "%s was deleted meanwhile", all->row.id.text);
    bool ends = code == CAIRN_CANCELLED || code == CAIRN_ABORTED || code == CAIRN_NO_MEMORY;
    note_damage(&copy, index, !code);
    enum cairn_code noted = note_mended(&copy, &why); /* also of one that was not mended whole */
    if (!noted && !ends) noted = add_copy(answer, &copy, &problem, &why);
    cairn_srv_verified_copy_release(&copy);
    if (ends && err) *err = problem;
    if (!ends && noted && err) *err = why;
    return ends ? code : noted;
}

static enum cairn_code verify_all(struct cairn_srv_verifying *all, json_t **ret,
                                  struct cairn_error *err) {
    const struct cairn_srv_verify *verify = all->verify;
    CAIRN_AUTO_JSON json_t *copies = json_array();
    CAIRN_AUTO_JSON json_t *findings = json_array();
    struct answer answer = {.copies = copies, .findings = findings, .listed = true, .ok = true};
    if (!copies || !findings) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    CAIRN_TRY(cairn_srv_catalog_read(verify->server->catalog, look, all, err));
    if (verify->repairs) {
        CAIRN_TRY(cairn_srv_thawed(verify->server, err));
        CAIRN_TRY(cairn_srv_identity_compare(verify->server, verify->worker, err)); /* Q35 */
    }
    CAIRN_TRY(cairn_srv_where_of(verify->server, verify->version, NULL, &all->where, err));
    CAIRN_TRY(load_documents(all, err));
    for (size_t i = 0; i < copy_count(all); i++) CAIRN_TRY(verify_one(all, i, &answer, err));
    if (answer.looked) return pack(all, &answer, ret, err);
    if (err) *err = answer.problem; /* nothing is known */
    return answer.problem.code;
}

enum cairn_code cairn_srv_verify_run(const struct cairn_srv_verify *verify, json_t **ret,
                                     struct cairn_error *err) {
    struct cairn_srv_verifying all = {.verify = verify, .goes_on = goes_on};
    bool alone = verify->reads && verify->server->tiers;
    CAIRN_ASSERT(verify->reads || !verify->repairs);
    if (alone) CAIRN_TRY(cairn_srv_copy_hold_take(&all.hold, verify->server, verify->version, err));
    enum cairn_code code = verify_all(&all, ret, err);
    if (alone) cairn_srv_copy_hold_end(&all.hold);
    cairn_committed_release(&all.documents);
    cairn_srv_version_release(&all.row);
    free(all.buffer);
    return code;
}
