/* SPDX-License-Identifier: Apache-2.0 */
/* The small stored documents; version numbers, digests and ids of all stored JSON. */
#include "api/documents/records.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"

static const struct cairn_json_limits small = {DOCUMENT_BYTES_MAX, 100000};

/* ---- committed.json ---- */

#define RECORD_KIND "cairn_committed"

enum cairn_code cairn_record_encode(const struct cairn_record *record, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    json_t *json =
        json_pack("{si ss so sI sI sI ss}", RECORD_KIND, DOCUMENT_MAJOR, "version", record->id.text,
                  "manifest_sha256", cairn_document_hex(record->manifest_sha256, 32), "attempt",
                  (json_int_t)record->attempt, "step", (json_int_t)record->step, "n",
                  (json_int_t)record->n, "committed_at", record->committed_at);
    if (record->line && json &&
        json_object_set_new(json, "line", json_integer((json_int_t)record->line))) {
        json_decref(json);
        return cairn_fail(err, CAIRN_NO_MEMORY, "a record cannot be built");
    }
    return cairn_document_dump(json, ret, err);
}

static enum cairn_code record_read(const json_t *json, struct cairn_record *ret,
                                   struct cairn_error *err) {
    const char *version = NULL, *digest = NULL, *at = NULL;
    const struct cairn_json_field fields[] = {
        {"version", CAIRN_JSON_TEXT, true, &version, 0},
        {"manifest_sha256", CAIRN_JSON_TEXT, true, &digest, 0},
        {"attempt", CAIRN_JSON_U64, true, &ret->attempt, 0},
        {"step", CAIRN_JSON_U64, true, &ret->step, CAIRN_STEP_MAX},
        {"n", CAIRN_JSON_U32, true, &ret->n, 0},
        {"line", CAIRN_JSON_U64, false, &ret->line, 0},
        {"committed_at", CAIRN_JSON_TEXT, true, &at, sizeof ret->committed_at - 1},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    if (ret->line > ret->attempt)
        return cairn_fail(err, CAIRN_INVALID, "/line: %llu, of a later attempt than its own, %llu",
                          (unsigned long long)ret->line, (unsigned long long)ret->attempt);
    CAIRN_TRY(cairn_document_id(version, &ret->id, err));
    CAIRN_TRY(cairn_document_digest(digest, ret->manifest_sha256, err));
    cairn_text_copy(ret->committed_at, sizeof ret->committed_at, at);
    return CAIRN_OK;
}

enum cairn_code cairn_record_decode(struct cairn_view text, struct cairn_record *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_record record = {0};
    enum cairn_code code = cairn_document_parse(text, RECORD_KIND, small, &json, err);
    if (code == CAIRN_OK) code = record_read(json, &record, err);
    if (code != CAIRN_OK) return cairn_document_bad(err, code, "committed.json");
    *ret = record;
    return CAIRN_OK;
}

/* ---- attempts/<number>.json ---- */

/* Large, since a rollback to the beginning supersedes every version of the run. */
static const struct cairn_json_limits attempt_limits = {CAIRN_MANIFEST_BYTES_MAX, 2000000};

#define ATTEMPT_KIND "cairn_attempt"

void cairn_attempt_record_release(struct cairn_attempt_record *record) {
    free(record->superseded);
    free(record->weights);
    *record = (struct cairn_attempt_record){0};
}

enum cairn_code cairn_attempt_record_encode(const struct cairn_attempt_record *record,
                                            struct cairn_buf *ret, struct cairn_error *err) {
    if (ret->limit == 0) ret->limit = CAIRN_MANIFEST_BYTES_MAX;
    CAIRN_AUTO_JSON json_t *superseded = json_array();
    for (size_t i = 0; i < record->superseded_count; i++) {
        if (json_array_append_new(superseded, json_string(record->superseded[i].text)) != 0)
            return cairn_fail(err, CAIRN_NO_MEMORY, "an attempt record cannot be built");
    }
    const char *resume = record->has_resume ? record->resume_version.text : NULL;
    json_t *json = json_pack("{si ss ss sI ss ss sI ss? sO}", ATTEMPT_KIND, DOCUMENT_MAJOR,
                             "project", record->name.project, "run", record->name.run, "attempt",
                             (json_int_t)record->attempt, "nonce", record->nonce, "job",
                             record->job, "world_size", (json_int_t)record->world_size,
                             "resume_version", resume, "superseded", superseded);
    if ((record->weights && record->weights[0] &&
         json_object_set_new(json, "weights", json_string(record->weights))) ||
        (record->joins && json && json_object_set_new(json, "joins", json_true()))) {
        json_decref(json);
        return cairn_fail(err, CAIRN_NO_MEMORY, "an attempt record cannot be built");
    }
    return cairn_document_dump(json, ret, err);
}

static enum cairn_code superseded_read(const json_t *list, struct cairn_attempt_record *ret,
                                       struct cairn_error *err) {
    size_t count = json_array_size(list);
    ret->superseded = calloc(count + 1, sizeof *ret->superseded);
    if (!ret->superseded) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %zu ids", count);
    for (; ret->superseded_count < count; ret->superseded_count++) {
        const char *text = json_string_value(json_array_get(list, ret->superseded_count));
        CAIRN_TRY(
            cairn_document_id(text ? text : "", &ret->superseded[ret->superseded_count], err));
    }
    return CAIRN_OK;
}

static enum cairn_code attempt_read(const json_t *json, struct cairn_attempt_record *ret,
                                    struct cairn_error *err) {
    const char *project = NULL, *run = NULL, *nonce = NULL, *job = NULL, *resume = NULL;
    const char *weights = NULL;
    json_t *superseded = NULL;
    const struct cairn_json_field fields[] = {
        {"project", CAIRN_JSON_TEXT, true, &project, 0},
        {"run", CAIRN_JSON_TEXT, true, &run, 0},
        {"attempt", CAIRN_JSON_U64, true, &ret->attempt, 0},
        {"nonce", CAIRN_JSON_TEXT, true, &nonce, 0},
        {"job", CAIRN_JSON_TEXT, true, &job, sizeof ret->job - 1},
        {"world_size", CAIRN_JSON_U32, true, &ret->world_size, 0},
        {"resume_version", CAIRN_JSON_TEXT, false, &resume, 0},
        {"superseded", CAIRN_JSON_ARRAY, true, &superseded, 0},
        {"weights", CAIRN_JSON_TEXT, false, &weights, 65536},
        {"joins", CAIRN_JSON_BOOL, false, &ret->joins, 0},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    CAIRN_TRY(cairn_document_run(project, run, &ret->name, err));
    CAIRN_TRY(cairn_document_nonce(nonce, ret->nonce, err));
    cairn_text_copy(ret->job, sizeof ret->job, job);
    ret->has_resume = resume != NULL;
    if (resume) CAIRN_TRY(cairn_document_id(resume, &ret->resume_version, err));
    if (weights && !(ret->weights = strdup(weights)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt record");
    return superseded_read(superseded, ret, err);
}

enum cairn_code cairn_attempt_record_decode(struct cairn_view text,
                                            struct cairn_attempt_record *ret,
                                            struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_AUTO(attempt_record) record = {0};
    enum cairn_code code = cairn_document_parse(text, ATTEMPT_KIND, attempt_limits, &json, err);
    if (code == CAIRN_OK) code = attempt_read(json, &record, err);
    if (code != CAIRN_OK) return cairn_document_bad(err, code, "attempt record");
    *ret = record;
    record = (struct cairn_attempt_record){0};
    return CAIRN_OK;
}

/* ---- .cairn/store.json ---- */

#define STORE_KIND "cairn_store"

enum cairn_code cairn_store_record_encode(const struct cairn_store_record *record,
                                          struct cairn_buf *ret, struct cairn_error *err) {
    if (record->format != DOCUMENT_MAJOR)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "store.json: format %u, only %d can be written",
                          record->format, DOCUMENT_MAJOR);
    json_t *json = json_pack("{si ss ss sI}", STORE_KIND, (int)record->format, "uuid", record->uuid,
                             "owner", record->owner, "generation", (json_int_t)record->generation);
    if (json && record->copies_of[0])
        json_object_set_new(json, "copies_of", json_string(record->copies_of));
    return cairn_document_dump(json, ret, err);
}

static enum cairn_code store_read(const json_t *json, struct cairn_store_record *ret,
                                  struct cairn_error *err) {
    const char *uuid = NULL, *owner = NULL, *copies_of = "";
    const struct cairn_json_field fields[] = {
        {"uuid", CAIRN_JSON_TEXT, true, &uuid, 0},
        {"copies_of", CAIRN_JSON_TEXT, false, &copies_of, 0},
        {"owner", CAIRN_JSON_TEXT, true, &owner, sizeof ret->owner - 1},
        {"generation", CAIRN_JSON_U64, true, &ret->generation, 0},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    if (!cairn_uuid_text_valid(cairn_view_of(uuid)) ||
        (*copies_of && !cairn_uuid_text_valid(cairn_view_of(copies_of)))) {
        return cairn_fail(err, CAIRN_INVALID, "malformed uuid");
    }
    memcpy(ret->uuid, uuid, CAIRN_UUID_TEXT_BYTES);
    cairn_text_copy(ret->copies_of, sizeof ret->copies_of, copies_of);
    cairn_text_copy(ret->owner, sizeof ret->owner, owner);
    ret->format = DOCUMENT_MAJOR;
    return CAIRN_OK;
}

enum cairn_code cairn_store_record_decode(struct cairn_view text, struct cairn_store_record *ret,
                                          struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_store_record record = {0};
    enum cairn_code code = cairn_document_parse(text, STORE_KIND, small, &json, err);
    if (code == CAIRN_OK) code = store_read(json, &record, err);
    if (code != CAIRN_OK) return cairn_document_bad(err, code, "store.json");
    *ret = record;
    return CAIRN_OK;
}

/* ---- what stored documents share ---- */

#define NEEDS_BYTES_MAX 32

enum cairn_code cairn_newer(struct cairn_error *err, const char *format, ...) {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cairn_fail(err, CAIRN_UNSUPPORTED, "written by a newer release, needs %s", text);
}

/* A document of a newer release names in `needs` the release that reads it; messages quote it. */
static enum cairn_code newer_document(const json_t *json, uint64_t major, struct cairn_error *err) {
    const char *needs = json_string_value(json_object_get(json, "needs"));
    bool said = needs && *needs && strlen(needs) <= NEEDS_BYTES_MAX;
    return cairn_newer(err, "%s%s that knows its format %llu (this one: %d)",
                       said ? "release " : "one", said ? needs : "", (unsigned long long)major,
                       DOCUMENT_MAJOR);
}

enum cairn_code cairn_document_bad(struct cairn_error *err, enum cairn_code code,
                                   const char *kind) {
    if (code == CAIRN_OK) return code;
    bool ours = code != CAIRN_NO_MEMORY && code != CAIRN_UNSUPPORTED;
    if (ours) code = CAIRN_CORRUPT;
    return cairn_within(err, code, "%s", kind);
}

enum cairn_code cairn_document_parse(struct cairn_view text, const char *kind,
                                     struct cairn_json_limits limits, json_t **ret_json,
                                     struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    uint64_t major = 0;
    CAIRN_TRY(cairn_json_parse(text, limits, &json, err));
    const struct cairn_json_field fields[] = {
        {.name = kind, .kind = CAIRN_JSON_U64, .required = true, .ret = &major},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    if (major == 0) return cairn_fail(err, CAIRN_CORRUPT, "format 0, which no release has written");
    if (major > DOCUMENT_MAJOR) return newer_document(json, major, err);
    *ret_json = CAIRN_TAKE(json);
    return CAIRN_OK;
}

enum cairn_code cairn_document_dump(json_t *take_json, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = take_json;
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "a stored document cannot be built");
    return cairn_json_dump(json, ret, err);
}

json_t *cairn_document_hex(const uint8_t *data, size_t size) {
    char text[65];
    CAIRN_PROMISE(size <= 32, return NULL);
    cairn_hex_encode(data, size, text);
    return json_string(text);
}

enum cairn_code cairn_document_digest(const char *text, uint8_t ret_digest[32],
                                      struct cairn_error *err) {
    return cairn_hex_decode(cairn_view_of(text), ret_digest, 32, err);
}

enum cairn_code cairn_document_id(const char *text, struct cairn_version_id *ret,
                                  struct cairn_error *err) {
    if (!cairn_version_id_valid(cairn_view_of(text)))
        return cairn_fail(err, CAIRN_INVALID, "malformed version id");
    memcpy(ret->text, text, CAIRN_VERSION_ID_BYTES);
    return CAIRN_OK;
}

enum cairn_code cairn_document_run(const char *project, const char *run, struct cairn_run_name *ret,
                                   struct cairn_error *err) {
    if (!cairn_name_valid(cairn_view_of(project)) || !cairn_name_valid(cairn_view_of(run)))
        return cairn_fail(err, CAIRN_INVALID, "malformed project or run name");
    memset(ret, 0, sizeof *ret);
    memcpy(ret->project, project, strlen(project) + 1);
    memcpy(ret->run, run, strlen(run) + 1);
    return CAIRN_OK;
}

enum cairn_code cairn_document_nonce(const char *text, char ret[CAIRN_NONCE_TEXT_BYTES],
                                     struct cairn_error *err) {
    uint8_t nonce[(CAIRN_NONCE_TEXT_BYTES - 1) / 2];
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(text), nonce, sizeof nonce, err));
    memcpy(ret, text, CAIRN_NONCE_TEXT_BYTES);
    return CAIRN_OK;
}
