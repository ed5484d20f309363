/* SPDX-License-Identifier: Apache-2.0 */
/* Attempt records and their copies (rule Q5); see attempt_records.h. */
#include "server/jobs/attempt_records.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/manifest.h"
#include "common/crashpoint.h"
#include "common/text.h"
#include "server/catalog/attempts.h"
#include "server/jobs/freeze.h"

struct owed {
    const struct cairn_run_name *name;
    bool found;
    int64_t run_id;
    struct cairn_attempt_record record;
};

static enum cairn_code find_owed(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct owed *owed = argument;
    return cairn_srv_attempt_unrecorded(tx, owed->name, &owed->found, &owed->run_id, &owed->record,
                                        err);
}

static enum cairn_code mark_recorded(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    const struct owed *owed = argument;
    return cairn_srv_attempt_set_recorded(tx, owed->run_id, owed->record.attempt, err);
}

static enum cairn_code put(struct cairn_srv *server, struct cairn_store_worker *worker,
                           const struct owed *owed, const struct cairn_buf *text, bool copy,
                           struct cairn_error *err) {
    struct cairn_key key;
    if (copy)
        cairn_key_attempt_copy(owed->name, owed->record.attempt, &key);
    else
        cairn_key_attempt(owed->name, owed->record.attempt, &key);
    enum cairn_code code = cairn_store_put_same(worker, key.text, cairn_buf_view(text), err);
    if (code == CAIRN_CONFLICT) {
        char why[96];
        snprintf(why, sizeof(why), "the store already has another attempt %" PRIu64,
                 owed->record.attempt);
        return cairn_srv_run_freeze(server, owed->name, why, err);
    }
    return code ? cairn_within(err, code, "record of attempt %" PRIu64, owed->record.attempt)
                : CAIRN_OK;
}

static enum cairn_code write_one(struct cairn_srv *server, struct cairn_store_worker *worker,
                                 struct owed *owed, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_owed, owed, err));
    if (!owed->found) return CAIRN_OK;
    CAIRN_CRASHPOINT("server.attempt.after_transaction");
    CAIRN_TRY(cairn_attempt_record_encode(&owed->record, &text, err));
    CAIRN_TRY(put(server, worker, owed, &text, false, err));
    CAIRN_TRY(put(server, worker, owed, &text, true, err));
    CAIRN_CRASHPOINT("server.attempt.after_record");
    return cairn_srv_catalog_write(server->catalog, mark_recorded, owed, err);
}

enum cairn_code cairn_srv_attempt_records_write(struct cairn_srv *server,
                                                struct cairn_store_worker *worker,
                                                const struct cairn_run_name *name,
                                                struct cairn_error *err) {
    bool more = true;
    while (more) {
        struct owed owed = {.name = name};
        enum cairn_code code = write_one(server, worker, &owed, err);
        more = owed.found;
        cairn_attempt_record_release(&owed.record);
        if (code) return code;
    }
    return CAIRN_OK;
}
