/* SPDX-License-Identifier: Apache-2.0 */
/* Store by store, then row by row; see mend_copies.h. */
#include "server/recovery/mend_copies.h"

#include "common/text.h"
#include "server/copies/copying_now.h"
#include "server/ledger/copies.h"
#include "server/ledger/versions.h"
#include "server/recovery/mend_read.h"

/* ---- what a store says ---- */

static bool has_record(const struct cairn_srv_run_store *store,
                       const struct cairn_srv_mend_version *one) {
    const struct cairn_srv_seen *seen =
        cairn_srv_run_objects_find(&store->objects, one->place.id.text);
    return seen && seen->step == one->place.step;
}

/* Readers look for the record: without one there is no copy. */
static enum cairn_srv_copy_seen by_listing(const struct cairn_srv_run_store *store,
                                           const struct cairn_srv_mend_version *one) {
    if (has_record(store, one)) return CAIRN_SRV_SEEN_RECORD;
    return cairn_srv_run_objects_touch(&store->objects, one->place.id.text)
               ? CAIRN_SRV_SEEN_OBJECTS
               : CAIRN_SRV_SEEN_NOTHING;
}

static void tell(const struct cairn_srv_mend *mend, size_t index,
                 const struct cairn_srv_mend_version *one, const struct cairn_error *why) {
    struct cairn_key key;
    cairn_key_committed(&one->place, &key);
    if (mend->tell)
        mend->tell(mend->owner, mend->stores.stores[index].name, key.text, why->code,
                   why->message);
}

/* The first whole copy gives record and manifest; a further one has to be of the same. digest: NULL
 * or the catalog's. */
static enum cairn_code read_copy(const struct cairn_srv_mend *mend,
                                 struct cairn_srv_mend_version *one, size_t index,
                                 const uint8_t digest[32], struct cairn_error *err) {
    CAIRN_AUTO(manifest) manifest = {0};
    struct cairn_record record = {0};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_srv_mend_verify(mend->stores.stores[index].worker, &one->place,
                                                 &record, &manifest, &why);
    if (one->verified) digest = one->record.manifest_sha256;
    if (!code && digest && memcmp(digest, record.manifest_sha256, 32) != 0)
        code = cairn_fail(&why, CAIRN_CORRUPT, "its record is of another manifest than %s",
                          one->verified ? "a nearer store's" : "the catalog's");
    if (!code && !one->verified) {
        one->record = record;
        one->manifest = manifest;
        manifest = (struct cairn_manifest){0};
        one->verified = true;
    }
    bool newer = code == CAIRN_UNSUPPORTED, wrong = code == CAIRN_CORRUPT || newer;
    one->copies[index] = code == CAIRN_OK        ? CAIRN_SRV_SEEN_WHOLE
                         : code == CAIRN_CORRUPT ? CAIRN_SRV_SEEN_DAMAGED
                         : newer                 ? CAIRN_SRV_SEEN_NEWER
                                                 : CAIRN_SRV_SEEN_REMAINS;
    one->damaged |= code == CAIRN_CORRUPT;
    one->newer |= newer;
    if (wrong) tell(mend, index, one, &why);
    if (code && (wrong || !one->cause[0]))
        (void)cairn_text_copy(one->cause, sizeof(one->cause), why.message);
    if (!code || wrong || code == CAIRN_NOT_FOUND) return CAIRN_OK;
    if (err) *err = why;
    return cairn_srv_run_store_within(&mend->stores, index, code, err);
}

enum cairn_code cairn_srv_mend_look_at_copies(const struct cairn_srv_mend *mend,
                                              struct cairn_srv_mend_version *one,
                                              struct cairn_error *err) {
    for (size_t i = 0; i < mend->stores.count; i++) {
        one->copies[i] = by_listing(&mend->stores.stores[i], one);
        if (one->copies[i] == CAIRN_SRV_SEEN_RECORD) CAIRN_TRY(read_copy(mend, one, i, NULL, err));
    }
    return CAIRN_OK;
}

/* ---- rows ---- */

static bool is_there(enum cairn_srv_copy_seen seen) {
    return seen == CAIRN_SRV_SEEN_WHOLE || seen == CAIRN_SRV_SEEN_DAMAGED ||
           seen == CAIRN_SRV_SEEN_NEWER || seen == CAIRN_SRV_SEEN_RECORD;
}

/* row: NULL where there is none, which says whole of the main store alone (copies.h#1). False: it
 * stays as it is. */
static bool wanted(const struct cairn_srv_copy *row, enum cairn_srv_copy_seen seen, bool main,
                   enum cairn_srv_copy_state *ret) {
    bool whole = row ? row->state == CAIRN_SRV_COPY_WHOLE : main;
    bool begun = seen == CAIRN_SRV_SEEN_OBJECTS && !main;
    if (is_there(seen)) {
        *ret = CAIRN_SRV_COPY_WHOLE;
        return !whole;
    }
    *ret = begun && !row ? CAIRN_SRV_COPY_MAKING : CAIRN_SRV_COPY_GONE;
    return whole || (!row && seen != CAIRN_SRV_SEEN_NOTHING);
}

struct rows {
    const struct cairn_srv_mend *mend;
    struct cairn_srv_mend_version *one;
    struct cairn_srv_version version;
    struct cairn_srv_copies copies;
    struct cairn_srv_copy_hold hold;
};

static enum cairn_code put(struct cairn_srv_tx *tx, const struct rows *rows,
                           struct cairn_error *err) {
    const struct cairn_srv_mend *mend = rows->mend;
    const char *id = rows->one->place.id.text;
    for (size_t i = 0; i < mend->stores.count; i++) {
        const char *store = mend->stores.stores[i].name;
        const struct cairn_srv_copy *row = cairn_srv_copies_find(&rows->copies, store);
        struct cairn_srv_copy copy = {.changed_ms = cairn_srv_wall_ms(mend->server)};
        if (!wanted(row, rows->one->copies[i], i == 0, &copy.state)) continue;
        if (row) copy.by_policy = row->by_policy;
        (void)cairn_text_copy(copy.store, sizeof(copy.store), store);
        CAIRN_TRY(cairn_srv_copy_put(tx, id, &copy, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_mend_put_copies(struct cairn_srv_tx *tx,
                                          const struct cairn_srv_mend *mend,
                                          const struct cairn_srv_mend_version *one,
                                          struct cairn_error *err) {
    struct cairn_srv_mend_version copy = *one;
    struct rows rows = {.mend = mend, .one = &copy};
    CAIRN_ASSERT(one->verified); /* it lies whole somewhere */
    return put(tx, &rows, err);
}

/* ---- of a version that is known ---- */

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct rows *rows = argument;
    cairn_srv_version_release(&rows->version);
    CAIRN_TRY(cairn_srv_version_get(tx, rows->one->place.id.text, &rows->version, err));
    return cairn_srv_copies_get(tx, rows->one->place.id.text, &rows->copies, err);
}

/* Whose record is there is asked no more where the row says whole. *ret: something differs. */
static enum cairn_code compare(struct rows *rows, bool verify, bool *ret, struct cairn_error *err) {
    const struct cairn_srv_mend *mend = rows->mend;
    struct cairn_srv_mend_version *one = rows->one;
    const struct cairn_srv_version *version = &rows->version;
    const uint8_t *digest = version->has_manifest ? version->manifest_sha256 : NULL;
    bool differs = false, there = false;
    for (size_t i = 0; i < mend->stores.count; i++) {
        enum cairn_srv_copy_state state;
        const struct cairn_srv_copy *row =
            cairn_srv_copies_find(&rows->copies, mend->stores.stores[i].name);
        bool whole = row && row->state == CAIRN_SRV_COPY_WHOLE;
        one->copies[i] = by_listing(&mend->stores.stores[i], one);
        if (one->copies[i] == CAIRN_SRV_SEEN_RECORD && !whole && verify)
            CAIRN_TRY(read_copy(mend, one, i, digest, err));
        there |= is_there(one->copies[i]);
        differs |= wanted(row, one->copies[i], i == 0, &state);
    }
    *ret = differs && there && version->state == CAIRN_STATE_COMMITTED;
    return CAIRN_OK;
}

static enum cairn_code put_right(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct rows *rows = argument;
    CAIRN_TRY(cairn_srv_lease_check(tx, &rows->hold.lease, err));
    CAIRN_TRY(look(tx, rows, err));
    return rows->version.state == CAIRN_STATE_COMMITTED ? put(tx, rows, err) : CAIRN_OK;
}

static enum cairn_code settle(struct rows *rows, struct cairn_error *err) {
    struct cairn_srv *server = rows->mend->server;
    bool differs = false;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, look, rows, err));
    CAIRN_TRY(compare(rows, true, &differs, err));
    return differs ? cairn_srv_catalog_write(server->catalog, put_right, rows, err) : CAIRN_OK;
}

static enum cairn_code look_and_compare(struct rows *rows, bool *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_catalog_read(rows->mend->server->catalog, look, rows, err));
    return compare(rows, false, ret, err);
}

enum cairn_code cairn_srv_mend_copies_differ(const struct cairn_srv_mend *mend,
                                             struct cairn_srv_mend_version *one, bool *ret,
                                             struct cairn_error *err) {
    struct rows rows = {.mend = mend, .one = one};
    enum cairn_code code = look_and_compare(&rows, ret, err);
    cairn_srv_version_release(&rows.version);
    return code;
}

enum cairn_code cairn_srv_mend_settle_copies(const struct cairn_srv_mend *mend,
                                             struct cairn_srv_mend_version *one,
                                             struct cairn_error *err) {
    struct rows rows = {.mend = mend, .one = one};
    bool differs = false;
    one->copies[0] = CAIRN_SRV_SEEN_RECORD;
    if (mend->stores.count < 2) return CAIRN_OK;
    enum cairn_code code = look_and_compare(&rows, &differs, err);
    if (!code && differs) {
        code = cairn_srv_copy_hold_take(&rows.hold, mend->server, one->place.id.text, err);
        if (!code) code = settle(&rows, err);
        cairn_srv_copy_hold_end(&rows.hold);
    }
    cairn_manifest_release(&one->manifest);
    one->manifest = (struct cairn_manifest){0};
    one->verified = false; /* it is known: there is nothing to take */
    cairn_srv_version_release(&rows.version);
    return code;
}
