/* SPDX-License-Identifier: Apache-2.0 */
/* The REST form of a version; see versions_json.h. */
#include "server/handlers/versions_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/messages.h"
#include "common/clock.h"
#include "common/encode.h"
#include "common/text.h"
#include "server/catalog/aliases.h"
#include "server/catalog/shard_lists.h"
#include "server/catalog/shards.h"
#include "server/waiters.h"

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

/* Only what is shown (Q25) can be the latest. */
static enum cairn_code is_latest(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                                 struct cairn_srv_newest *newest, bool *ret,
                                 struct cairn_error *err) {
    uint64_t step = 0;
    *ret = false;
    if (version->state != CAIRN_STATE_COMMITTED || !version->recorded || version->superseded ||
        version->trashed)
        return CAIRN_OK;
    if (!newest->looked)
        CAIRN_TRY(cairn_srv_latest(tx, version->run_id, &newest->found, &newest->id, &step, err));
    newest->looked = true;
    *ret = newest->found && !strcmp(newest->id.text, version->id.text);
    return CAIRN_OK;
}

static enum cairn_code count(struct cairn_srv_tx *tx, const struct cairn_srv_version *version,
                             struct cairn_srv_progress *ret, struct cairn_error *err) {
    *ret = (struct cairn_srv_progress){.shards = version->shards,
                                       .registered = version->shards,
                                       .ranks_sealed = version->world_size,
                                       .bytes = version->bytes};
    return version->committed_ms ? CAIRN_OK
                                 : cairn_srv_version_progress(tx, version->id.text, ret, err);
}

enum cairn_code cairn_srv_version_json(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_version *version, json_t **ret,
                                       struct cairn_error *err) {
    return cairn_srv_version_json_among(tx, version, NULL, ret, err);
}

enum cairn_code cairn_srv_version_json_among(struct cairn_srv_tx *tx,
                                             const struct cairn_srv_version *version,
                                             struct cairn_srv_newest *newest, json_t **ret,
                                             struct cairn_error *err) {
    struct cairn_srv_progress progress = {0};
    struct cairn_srv_newest own = {0};
    bool latest = false;
    json_t *aliases = NULL;
    CAIRN_TRY(is_latest(tx, version, newest ? newest : &own, &latest, err));
    CAIRN_TRY(count(tx, version, &progress, err));
    if (version->aliased)
        CAIRN_TRY(cairn_srv_aliases_of_version(tx, version->id.text, &aliases, err));
    else
        aliases = json_array();
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
        {"latest", json_boolean(latest)},
        {"aliases", aliases},
        {"world_size", json_integer(version->world_size)},
        {"format", json_string(version->format)},
        {"labels", stored(version->labels)},
        {"meta", stored(version->meta)},
        {"metrics", stored(version->metrics)},
        {"note", text_or_null(version->note)},
        {"pinned", json_boolean(version->pinned)},
        {"bytes", json_integer((json_int_t)progress.bytes)},
        {"shards", json_integer((json_int_t)progress.shards)},
        {"shards_registered", json_integer((json_int_t)progress.registered)},
        {"ranks_sealed", json_integer((json_int_t)progress.ranks_sealed)},
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
    struct cairn_error why = {0};
    if (version->code) {
        why.http_status = version->http_status;
        (void)cairn_text_copy(why.message, sizeof(why.message), version->reason);
        (void)cairn_text_copy(why.request_id, sizeof(why.request_id), version->request_id);
    }
    return CAIRN_PACK(
        brief, .version = version->id.text, .step = version->step, .n = (uint32_t)version->n,
        .state = cairn_state_text(cairn_srv_version_shown(version)), .recorded = version->recorded,
        .reason = why.message, .code = version->code ? cairn_code_info(version->code)->slug : NULL,
        .http_status = (uint32_t)why.http_status, .request_id = why.request_id);
}

enum cairn_code cairn_srv_version_tag(const json_t *shown, char ret[CAIRN_SRV_TAG_BYTES],
                                      struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    CAIRN_TRY(cairn_json_dump(shown, &text, err));
    snprintf(ret, CAIRN_SRV_TAG_BYTES, "\"%016" PRIx64 "\"", cairn_srv_key_of(text.data));
    return CAIRN_OK;
}

enum cairn_code cairn_srv_reply_version(struct cairn_srv_reply *reply, int status,
                                        json_t *take_shown, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shown = take_shown;
    char tag[CAIRN_SRV_TAG_BYTES];
    CAIRN_TRY(cairn_srv_version_tag(shown, tag, err));
    CAIRN_TRY(cairn_srv_reply_json(reply, status, json_incref(shown), err));
    cairn_srv_reply_header(reply, "ETag", "%s", tag);
    return CAIRN_OK;
}
