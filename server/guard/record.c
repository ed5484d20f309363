/* SPDX-License-Identifier: Apache-2.0 */
/* committed.json and `recorded` (rules Q24, Q52); see record.h. */
#include "server/guard/record.h"

#include <inttypes.h>

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "common/clock.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "server/guard/freeze.h"
#include "server/guard/marks.h"
#include "server/http/waiters.h"
#include "server/ledger/shards.h"
#include "server/ledger/version_lists.h"
#include "server/sweep/sweep_objects.h"

#define MISSING_MAX 1000 /* of one run, at once */

enum cairn_code cairn_srv_record_text(const struct cairn_srv_version *version,
                                      struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_record record = {
        .id = version->id, .attempt = version->attempt, .step = version->step, .n = version->n,
        .line = version->line};
    memcpy(record.manifest_sha256, version->manifest_sha256, 32);
    cairn_time_text(version->committed_ms, false, record.committed_at);
    return cairn_record_encode(&record, ret, err);
}

enum cairn_code cairn_srv_record_supersede(struct cairn_srv_tx *tx,
                                           const struct cairn_srv_version *version,
                                           struct cairn_error *err) {
    if (version->on_exists != CAIRN_SRV_EXISTS_SUPERSEDE) return CAIRN_OK;
    return cairn_srv_versions_supersede_step(tx, version, err);
}

struct recording {
    const struct cairn_srv_version *version;
    struct cairn_srv_lease *lease; /* NULL: of nobody's job */
    bool first;                    /* the row did not say so yet */
};

static enum cairn_code mark_recorded(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct recording *recording = argument;
    const struct cairn_srv_version *version = recording->version;
    bool changed = false;
    CAIRN_TRY(cairn_srv_lease_check_expect(tx, recording->lease, err));
    CAIRN_TRY(cairn_srv_version_set_recorded_expect(tx, version->id.text, err));
    CAIRN_TRY(cairn_srv_lease_check(tx, recording->lease, err));
    CAIRN_TRY(cairn_srv_version_set_recorded(tx, version, &changed, err));
    CAIRN_TRY(cairn_srv_lease_drop_in(tx, recording->lease, err));
    recording->first = changed;
    return changed && CAIRN_RULE(Q52) ? cairn_srv_record_supersede(tx, version, err) : CAIRN_OK;
}

enum cairn_code cairn_srv_record_write(struct cairn_srv *server, struct cairn_store_worker *worker,
                                       const struct cairn_srv_version *version,
                                       struct cairn_srv_lease *lease, struct cairn_error *err) {
    struct recording recording = {version, lease, false};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_ASSERT(version->state == CAIRN_STATE_COMMITTED);
    CAIRN_ASSERT(version->has_manifest);
    CAIRN_ASSERT(version->committed_ms); /* the record would say 1970 for good */
    CAIRN_TRY(cairn_srv_record_text(version, &text, err));
    struct cairn_version_place place = cairn_srv_version_place(version);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    CAIRN_CRASHPOINT("server.commit.before_record");
    CAIRN_TRY(cairn_srv_lease_still(lease, err));
    enum cairn_code code = cairn_store_put_same(worker, key.text, cairn_buf_view(&text), err);
    if (code == CAIRN_CONFLICT)
        return cairn_srv_run_freeze(server, &version->name,
                                    "the store holds another committed.json of a version", err);
    if (code) return code;
    CAIRN_CRASHPOINT("server.commit.after_record");
    CAIRN_TRY(cairn_srv_mark_superseded(server, worker, version, err));
    /* Before the row says recorded: a server that dies here is followed by one that does both. */
    cairn_srv_sweep_uploads(server, worker, version);
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, mark_recorded, &recording, err));
    if (lease) lease->dropped = true;
    CAIRN_CRASHPOINT("server.commit.after_recorded");
    if (!recording.first) return CAIRN_OK; /* another server has said it */
    cairn_log(INFO, "checkpoint.committed", "version=%s run=%s/%s step=%" PRIu64 " bytes=%" PRIu64,
              version->id.text, version->name.project, version->name.run, version->step,
              version->bytes);
    cairn_srv_waiters_wake_version(server->waiters, &version->id, &version->name);
    return CAIRN_OK;
}

/* ---- rows ---- */

static enum cairn_code drop_rows(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const char *id = argument;
    return cairn_srv_shards_drop(tx, id, err);
}

void cairn_srv_record_drop_rows(struct cairn_srv *server, const struct cairn_srv_version *version) {
    struct cairn_version_id id = version->id;
    struct cairn_error why = {0};
    if (cairn_srv_catalog_write(server->catalog, drop_rows, id.text, &why) != CAIRN_OK)
        cairn_log(INFO, "commit.rows_left", "version=%s cause=\"%s\"", id.text, why.message);
}

/* ---- those of one run ---- */

struct missing {
    const struct cairn_run_name *name;
    struct cairn_srv_ids ids;
    const char *id;
    struct cairn_srv_version version;
};

static enum cairn_code find_missing(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct missing *missing = argument;
    return cairn_srv_versions_unrecorded(tx, missing->name, MISSING_MAX, &missing->ids, err);
}

static enum cairn_code get_missing(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct missing *missing = argument;
    cairn_srv_version_release(&missing->version);
    return cairn_srv_version_get(tx, missing->id, &missing->version, err);
}

enum cairn_code cairn_srv_record_write_missing(struct cairn_srv *server,
                                               struct cairn_store_worker *worker,
                                               const struct cairn_run_name *name,
                                               struct cairn_error *err) {
    struct missing missing = {.name = name};
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, find_missing, &missing, err);
    for (size_t i = 0; i < missing.ids.count && !code; i++) {
        missing.id = missing.ids.ids[i].text;
        code = cairn_srv_catalog_read(server->catalog, get_missing, &missing, err);
        if (code || missing.version.state != CAIRN_STATE_COMMITTED || missing.version.recorded)
            continue;
        code = cairn_srv_record_write(server, worker, &missing.version, NULL, err);
        if (!code) cairn_srv_record_drop_rows(server, &missing.version);
        if (code) (void)cairn_within(err, code, "the record of %s is missing", missing.id);
    }
    cairn_srv_ids_release(&missing.ids);
    cairn_srv_version_release(&missing.version);
    return code;
}
