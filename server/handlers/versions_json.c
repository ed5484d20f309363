/* SPDX-License-Identifier: Apache-2.0 */
/* The REST form of a version; see versions.h. */
#include <stdio.h>

#include "api/failure.h"
#include "common/clock.h"
#include "common/encode.h"
#include "common/text.h"
#include "server/catalog/versions.h"

static json_t *time_or_null(int64_t wall_ms) {
    if (!wall_ms) return json_null();
    char text[32];
    cairn_time_text(wall_ms, true, text);
    return json_string(text);
}

static json_t *hex_or_null(bool there, const uint8_t digest[32]) {
    if (!there) return json_null();
    char hex[65];
    cairn_hex_encode(digest, 32, hex);
    return json_string(hex);
}

/* JSON that we wrote ourselves into a row. */
static json_t *stored(const char *text) {
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    return json ? json : json_null();
}

static json_t *text_or_null(const char *text) {
    return text[0] ? json_string(text) : json_null();
}

struct counts {
    uint64_t shards, registered, sealed, bytes;
    bool latest;
};

static enum cairn_code count(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                             struct counts *ret, struct cairn_error *err) {
    struct cairn_version_id latest = {""};
    uint64_t step = 0;
    CAIRN_TRY(cairn_srv_latest(tx, version->run_id, &ret->latest, &latest, &step, err));
    ret->latest = ret->latest && !strcmp(latest.text, version->id.text);
    *ret = (struct counts){.shards = version->shards,
                           .registered = version->shards,
                           .sealed = version->world_size,
                           .bytes = version->bytes,
                           .latest = ret->latest};
    if (version->committed_ms) return CAIRN_OK;
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(version_counts), SQL_T(version->id.text)));
    bool more = false;
    CAIRN_TRY(cairn_srv_rows_next(&rows, &more, err));
    ret->shards = cairn_srv_rows_u64(&rows, 0);
    ret->registered = cairn_srv_rows_u64(&rows, 1);
    ret->bytes = cairn_srv_rows_u64(&rows, 2);
    ret->sealed = cairn_srv_rows_u64(&rows, 3);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_version_json(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version, json_t **ret,
                                       struct cairn_error *err) {
    struct counts counts = {0};
    CAIRN_TRY(count(tx, version, &counts, err));
    enum cairn_state shown = cairn_srv_version_shown(version);
    json_t *json = json_object();
    bool failed = !json;
    struct {
        const char *name;
        json_t *value;
    } members[] = {
        {"version", json_string(version->id.text)},
        {"project", json_string(version->name.project)},
        {"run", json_string(version->name.run)},
        {"step", json_integer((json_int_t)version->step)},
        {"n", json_integer(version->n)},
        {"attempt", json_integer((json_int_t)version->attempt)},
        {"state", json_string(cairn_state_text(shown))},
        {"recorded", json_boolean(version->recorded)},
        {"superseded", json_boolean(version->superseded)},
        {"trashed", json_boolean(version->trashed)},
        {"latest", json_boolean(counts.latest)},
        {"world_size", json_integer(version->world_size)},
        {"format", json_string(version->format)},
        {"labels", stored(version->labels)},
        {"meta", stored(version->meta)},
        {"bytes", json_integer((json_int_t)counts.bytes)},
        {"shards", json_integer((json_int_t)counts.shards)},
        {"shards_registered", json_integer((json_int_t)counts.registered)},
        {"ranks_sealed", json_integer((json_int_t)counts.sealed)},
        {"layout", hex_or_null(version->has_layout, version->layout)},
        {"created_at", time_or_null(version->created_ms)},
        {"committed_at", time_or_null(version->recorded ? version->committed_ms : 0)},
        {"reason", text_or_null(version->reason)},
        {"code", version->code ? json_string(cairn_code_info(version->code)->slug) : json_null()},
        {"http_status", version->http_status ? json_integer(version->http_status) : json_null()},
        {"request_id", text_or_null(version->request_id)},
        {"warnings", stored(version->warnings)},
        {"manifest_sha256", hex_or_null(version->has_manifest, version->manifest_sha256)},
    };
    for (size_t i = 0; i < CAIRN_COUNT(members); i++)
        failed |= json_object_set_new(json, members[i].name, members[i].value) != 0;
    if (failed) {
        json_decref(json);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    }
    *ret = json;
    return CAIRN_OK;
}

json_t *cairn_srv_version_brief(const struct cairn_srv_version *version) {
    json_t *json = json_pack("{s:s, s:s, s:b}", "version", version->id.text, "state",
                             cairn_state_text(cairn_srv_version_shown(version)), "recorded",
                             (int)version->recorded);
    if (!json || !version->code) return json;
    struct cairn_error why = {.code = version->code, .http_status = version->http_status};
    (void)cairn_text_copy(why.message, sizeof(why.message), version->reason);
    (void)cairn_text_copy(why.request_id, sizeof(why.request_id), version->request_id);
    if (cairn_failure_put(json, "reason", &why)) return json;
    json_decref(json);
    return NULL;
}
