/* SPDX-License-Identifier: Apache-2.0 */
/* Attempt records and their copies (rule Q5); see attempt_records.h. */
#include "server/guard/attempt_records.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "common/clock.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "server/guard/freeze.h"
#include "server/ledger/attempts.h"

#define COPY_MS 2000 /* that an attempt call waits for copies, all of them together */

struct missing {
    const struct cairn_run_name *name;
    enum cairn_srv_recorded state; /* of the attempt that is looked for */
    uint64_t copies_until_ms;
    bool found;
    int64_t run_id;
    struct cairn_attempt_record record;
};

static enum cairn_code find_missing(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    struct missing *missing = argument;
    return cairn_srv_attempt_unrecorded(tx, missing->name, missing->state, &missing->found,
                                        &missing->run_id, &missing->record, err);
}

static enum cairn_code mark(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct missing *missing = argument;
    return cairn_srv_attempt_set_recorded(tx, missing->run_id, missing->record.attempt,
                                          missing->state, err);
}

/* Another content under that key (Q36). */
static enum cairn_code judge(struct cairn_srv *server, const struct missing *missing,
                             enum cairn_code code, struct cairn_error *err) {
    if (code == CAIRN_CONFLICT) {
        char why[96];
        snprintf(why, sizeof(why), "the store already has another attempt %" PRIu64,
                 missing->record.attempt);
        return cairn_srv_run_freeze(server, missing->name, why, err);
    }
    return code ? cairn_within(err, code, "record of attempt %" PRIu64, missing->record.attempt)
                : CAIRN_OK;
}

static enum cairn_code put_record(struct cairn_srv *server, struct cairn_store_worker *worker,
                                  const struct missing *missing, const struct cairn_buf *text,
                                  struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_attempt(missing->name, missing->record.attempt, &key);
    return judge(server, missing, cairn_store_put_same(worker, key.text, cairn_buf_view(text), err),
                 err);
}

/* CAIRN_OK: the same bytes are there. CAIRN_CONFLICT: others are. */
static enum cairn_code compare_copy(struct cairn_store_worker *worker, const char *key,
                                    const struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_AUTO(buf) there = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    enum cairn_code code = cairn_store_get_small(worker, key, &there, err);
    if (code && code != CAIRN_TOO_LARGE) return code;
    if (!code && there.size == text->size && !memcmp(there.data, text->data, text->size))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT, "object %s is there with other content", key);
}

/* *ret_late: an object store did not take it in time, and nothing else is wrong. */
static enum cairn_code put_copy(struct cairn_srv *server, struct cairn_store_worker *worker,
                                const struct missing *missing, const struct cairn_buf *text,
                                bool *ret_late, struct cairn_error *err) {
    const struct cairn_store_profile *profile = cairn_store_profile(worker->store);
    struct cairn_key key;
    struct cairn_error why = {0};
    uint64_t until_ms = missing->copies_until_ms;
    cairn_key_attempt_copy(missing->name, missing->record.attempt, &key);
    if (!profile->over_network || !profile->create_only_put)
        return judge(server, missing,
                     cairn_store_put_same(worker, key.text, cairn_buf_view(text), err), err);
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = key.text,
                                      .body = cairn_buf_view(text),
                                      .create = true,
                                      .deadline_ms = until_ms};
    enum cairn_code code = cairn_store_perform(worker, &put, &why);
    if (code == CAIRN_PRECONDITION || code == CAIRN_CONFLICT) /* of ours, by a lost answer? */
        code = compare_copy(worker, key.text, text, &why);
    *ret_late = code && (code == CAIRN_NOT_FOUND || cairn_code_info(code)->retryable);
    if (code && err) *err = why;
    return *ret_late ? CAIRN_OK : judge(server, missing, code, err);
}

/* Writes one record or copy that is missing, and its row says so then. */
static enum cairn_code write_one(struct cairn_srv *server, struct cairn_store_worker *worker,
                                 struct missing *missing, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    bool late = false;
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_missing, missing, err));
    if (!missing->found) return CAIRN_OK;
    CAIRN_CRASHPOINT("server.attempt.after_transaction");
    CAIRN_TRY(cairn_attempt_record_encode(&missing->record, &text, err));
    if (missing->state == CAIRN_SRV_RECORD_MISSING)
        CAIRN_TRY(put_record(server, worker, missing, &text, err));
    CAIRN_TRY(put_copy(server, worker, missing, &text, &late, err));
    CAIRN_CRASHPOINT("server.attempt.after_record");
    if (late) {
        server->copies_missing = true;
        if (missing->state == CAIRN_SRV_RECORD_MISSING)
            cairn_log(WARN, "attempt.copy_late", "run=%s/%s attempt=%" PRIu64,
                      missing->name->project, missing->name->run, missing->record.attempt);
        missing->found &=
            missing->state == CAIRN_SRV_RECORD_MISSING; /* the others are tried again later */
    }
    if (!late && missing->state == CAIRN_SRV_RECORD_COPY_MISSING)
        cairn_log(INFO, "attempt.copy_there", "run=%s/%s attempt=%" PRIu64, missing->name->project,
                  missing->name->run, missing->record.attempt);
    missing->state = late ? CAIRN_SRV_RECORD_COPY_MISSING : CAIRN_SRV_RECORD_THERE;
    return cairn_srv_catalog_write(server->catalog, mark, missing, err);
}

static enum cairn_code write_all(struct cairn_srv *server, struct cairn_store_worker *worker,
                                 const struct cairn_run_name *name, enum cairn_srv_recorded state,
                                 struct cairn_error *err) {
    uint64_t until_ms = cairn_mono_ms() + COPY_MS;
    bool more = true;
    while (more) {
        struct missing missing = {.name = name, .state = state, .copies_until_ms = until_ms};
        enum cairn_code code = write_one(server, worker, &missing, err);
        more = missing.found;
        cairn_attempt_record_release(&missing.record);
        if (code) return code;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_attempt_records_write(struct cairn_srv *server,
                                                struct cairn_store_worker *worker,
                                                const struct cairn_run_name *name,
                                                struct cairn_error *err) {
    return write_all(server, worker, name, CAIRN_SRV_RECORD_MISSING, err);
}

struct run_of_copy {
    bool found;
    struct cairn_run_name name;
};
static enum cairn_code find_run(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct run_of_copy *run = argument;
    return cairn_srv_attempt_copy_missing(tx, &run->found, &run->name, err);
}

enum cairn_code cairn_srv_attempt_copies_write(struct cairn_srv *server,
                                               struct cairn_store_worker *worker,
                                               struct cairn_error *err) {
    struct run_of_copy run = {0};
    if (!server->copies_missing) return CAIRN_OK;
    server->copies_missing = false;
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, find_run, &run, err);
    if (!code && run.found)
        code = write_all(server, worker, &run.name, CAIRN_SRV_RECORD_COPY_MISSING, err);
    if (code || run.found) server->copies_missing = true; /* there may be more */
    return code;
}
