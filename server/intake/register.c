/* SPDX-License-Identifier: Apache-2.0 */
/* POST {C}/shards: a node's batch of durable shards and seals (rules Q16, Q19, Q33), all or nothing
 * in one transaction; a refusal names the item.
 *
 * PUT and HEAD {R}/tables/{digest}: rank tables are stored by digest, so that a rank with an
 * unchanged layout sends 32 bytes (Q33). A large table, or body of POST {C}/shards, comes in parts,
 * small enough for any proxy and through any server of the catalog; the last part completes it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/digest.h"
#include "api/documents/names.h"
#include "server/events/feed.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/intake/intake.h"
#include "server/ledger/layouts.h"
#include "server/ledger/shards.h"
#include "server/versions/versions.h"

#define SHARDS_MAX 4096
#define BODY_BYTES_MAX (32 * CAIRN_MIB)
#define PARTS_MAX 4096
#define PART_BYTES_MAX CAIRN_MIB
#define SEALED_MAX 65536
#define SIZE_MAX_BYTES (UINT64_C(1) << 62)

struct registration_batch {
    struct srv_request *request;
    struct cairn_grant grant;
    const char *node;
    int64_t wall_ms;
    struct srv_shard_said *shards;
    size_t shard_count;
    struct srv_seal_said *seals;
    size_t seal_count;
    /* the answer */
    struct srv_version version;
    bool whole;
    bool told; /* rank 0 or all ranks have sealed, or the version is whole: wakes waiters */
};

static void release_batch(struct registration_batch *batch) {
    for (size_t i = 0; i < batch->shard_count; i++) cairn_buf_release(&batch->shards[i].blocks);
    for (size_t i = 0; i < batch->seal_count; i++) {
        cairn_buf_release(&batch->seals[i].replicated_text);
        cairn_buf_release(&batch->seals[i].labels_text);
        cairn_buf_release(&batch->seals[i].meta_text);
    }
    free(batch->shards);
    free(batch->seals);
    srv_version_release(&batch->version);
}

/* ---- reading ---- */

static enum cairn_code parse_crc(const char *text, const char *pointer, uint32_t *ret,
                                 struct cairn_error *err) {
    uint8_t bytes[4];
    enum cairn_code code = cairn_hex_decode(cairn_view_of(text), bytes, sizeof(bytes), err);
    if (code) return cairn_within(err, CAIRN_INVALID, "%s/crc32c", pointer);
    *ret = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    return CAIRN_OK;
}

/* Block checksums must match the size in number and combine to the shard's checksum. */
static enum cairn_code parse_blocks(struct srv_shard_said *shard, const char *pointer,
                                    struct cairn_error *err) {
    shard->blocks.limit = 32 * CAIRN_MIB;
    enum cairn_code code =
        cairn_base64_decode(cairn_view_of(shard->msg.blocks), &shard->blocks, err);
    if (code) return cairn_within(err, CAIRN_INVALID, "%s/blocks", pointer);
    uint64_t count = cairn_block_count(shard->msg.bytes);
    if (shard->blocks.size % 4 || shard->blocks.size / 4 != count)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s/blocks: it holds %zu bytes; %" PRIu64 " blocks of 4 are due", pointer,
                          shard->blocks.size, count);
    CAIRN_AUTO_HEAP uint32_t *blocks = calloc((size_t)count + 1, sizeof(*blocks));
    if (!blocks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for block checksums");
    for (size_t i = 0; i < count; i++) blocks[i] = cairn_load_u32le(shard->blocks.data + 4 * i);
    uint32_t combined = cairn_blocks_combine(blocks, shard->msg.bytes);
    if (combined != shard->crc32c)
        return cairn_fail(err, CAIRN_INVALID, "%s/crc32c is %08x, its blocks combine to %08x",
                          pointer, shard->crc32c, combined);
    return CAIRN_OK;
}

static enum cairn_code parse_shard(const json_t *item, const char *pointer,
                                   struct srv_shard_said *shard, struct cairn_error *err) {
    CAIRN_TRY(cairn_msg_registration_read(item, pointer, &shard->msg, err));
    enum cairn_code code = cairn_shard_name_check(cairn_view_of(shard->msg.name), err);
    if (code) return cairn_within(err, CAIRN_INVALID, "%s/name", pointer);
    if (!cairn_uuid_text_valid(cairn_view_of(shard->msg.token)))
        return cairn_fail(err, CAIRN_INVALID, "%s/token: wanted a UUID", pointer);
    CAIRN_TRY(parse_crc(shard->msg.crc32c, pointer, &shard->crc32c, err));
    return parse_blocks(shard, pointer, err);
}

static enum cairn_code parse_replicated(const json_t *replicated, const char *pointer,
                                        struct cairn_error *err) {
    for (size_t i = 0; i < json_array_size(replicated); i++) {
        struct cairn_msg_replicated msg = {0};
        uint32_t value = 0;
        CAIRN_TRY(cairn_msg_replicated_read(json_array_get(replicated, i), pointer, &msg, err));
        CAIRN_TRY(parse_crc(msg.crc32c, pointer, &value, err));
    }
    return CAIRN_OK;
}

static enum cairn_code parse_sealed(const struct cairn_msg_rank_seal *seal, const char *pointer,
                                    struct cairn_error *err) {
    uint64_t sum = 0;
    CAIRN_AUTO(shard_names) names = {0};
    if (json_array_size(seal->shards) > SEALED_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s/shards: more than %d", pointer, SEALED_MAX);
    for (size_t i = 0; i < json_array_size(seal->shards); i++) {
        struct cairn_msg_sealed_shard shard = {0};
        CAIRN_TRY(
            cairn_msg_sealed_shard_read(json_array_get(seal->shards, i), pointer, &shard, err));
        CAIRN_TRY(cairn_shard_name_check(cairn_view_of(shard.name), err));
        CAIRN_TRY(cairn_shard_names_add(&names, cairn_view_of(shard.name), err));
        if (cairn_add_overflows(sum, shard.bytes, &sum) || sum > SIZE_MAX_BYTES)
            return cairn_fail(err, CAIRN_INVALID, "%s/shards: the sizes overflow", pointer);
    }
    if (sum == seal->bytes) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s/bytes: it is %" PRIu64 ", the shards have %" PRIu64,
                      pointer, seal->bytes, sum);
}

/* Q50: checked like the labels and meta of a begin. */
static enum cairn_code parse_meta(const char *pointer, struct srv_seal_said *seal,
                                  struct cairn_error *err) {
    char labels[48], meta[48];
    snprintf(labels, sizeof(labels), "%s/labels", pointer);
    snprintf(meta, sizeof(meta), "%s/meta", pointer);
    CAIRN_TRY(cairn_meta_check(seal->msg.labels, labels, true, &seal->labels_text, err));
    return cairn_meta_check(seal->msg.meta, meta, false, &seal->meta_text, err);
}

static enum cairn_code parse_seal(const json_t *item, const char *pointer,
                                  struct srv_seal_said *seal, struct cairn_error *err) {
    const struct cairn_msg_rank_seal *msg = &seal->msg;
    seal->msg.stall_ms = CAIRN_MESSAGE_NONE;
    CAIRN_TRY(cairn_msg_rank_seal_read(item, pointer, &seal->msg, err));
    if (msg->table) {
        enum cairn_code code = cairn_hex_decode(cairn_view_of(msg->table), seal->table, 32, err);
        if (code) return cairn_within(err, CAIRN_INVALID, "%s/table", pointer);
    }
    CAIRN_TRY(parse_sealed(msg, pointer, err));
    CAIRN_TRY(parse_replicated(msg->replicated, pointer, err));
    CAIRN_TRY(parse_meta(pointer, seal, err));
    seal->replicated_text.limit = 32 * CAIRN_MIB;
    if (!msg->replicated) return cairn_buf_append_text(&seal->replicated_text, "[]", err);
    return cairn_json_dump(msg->replicated, &seal->replicated_text, err);
}

static enum cairn_code parse_lists(struct registration_batch *batch, const json_t *shards,
                                   const json_t *seals, struct cairn_error *err) {
    size_t shard_count = json_array_size(shards), seal_count = json_array_size(seals);
    if (shard_count > SHARDS_MAX || seal_count > SHARDS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "at most %d shards and seals in one call",
                          SHARDS_MAX);
    batch->shards = calloc(shard_count + 1, sizeof(*batch->shards));
    batch->seals = calloc(seal_count + 1, sizeof(*batch->seals));
    if (!batch->shards || !batch->seals)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the batch");
    char pointer[32];
    for (size_t i = 0; i < shard_count; i++) {
        snprintf(pointer, sizeof(pointer), "/shards/%zu", i);
        batch->shard_count++;
        CAIRN_TRY(parse_shard(json_array_get(shards, i), pointer, &batch->shards[i], err));
    }
    for (size_t i = 0; i < seal_count; i++) {
        snprintf(pointer, sizeof(pointer), "/seals/%zu", i);
        batch->seal_count++;
        CAIRN_TRY(parse_seal(json_array_get(seals, i), pointer, &batch->seals[i], err));
    }
    return CAIRN_OK;
}

/* ---- the call ---- */

static enum cairn_code look_how_far(struct srv_tx *tx, struct registration_batch *batch,
                                    struct cairn_error *err) {
    char key[SRV_EVENTS_KEY_BYTES];
    const struct cairn_version_id *id = &batch->version.id;
    if (batch->seal_count) CAIRN_TRY(srv_version_whole_expect(tx, id->text, err));
    if (batch->seal_count) CAIRN_TRY(srv_version_sealed_expect(tx, id->text, err));
    CAIRN_TRY(srv_version_whole(tx, &batch->version, &batch->whole, err));
    if (batch->whole) CAIRN_TRY(srv_version_set_durable(tx, id->text, batch->wall_ms, err));
    if (batch->seal_count) CAIRN_TRY(srv_version_sealed(tx, id->text, &batch->told, err));
    for (size_t i = 0; i < batch->seal_count; i++)
        batch->told = batch->told || batch->seals[i].msg.rank == 0;
    batch->told = batch->told || batch->whole;
    srv_events_key_of_version(id, key);
    if (batch->told) srv_notify_text(tx, key);
    return CAIRN_OK;
}

SRV_CHANGE(apply, struct registration_batch *batch) {
    const char *version = batch->request->params.ref;
    CAIRN_TRY(srv_version_expect(tx, version, err));
    CAIRN_TRY(srv_run_expect(tx, &batch->grant.name, err));
    CAIRN_TRY(srv_shards_expect(tx, version, batch->shards, batch->shard_count, err));
    srv_version_release(&batch->version);
    batch->whole = batch->told = false; /* the transaction may be retried */
    CAIRN_TRY(srv_save_version(tx, batch->request, &batch->version, err));
    /* A version that has ended takes no shards and compares none; the answer is its end. */
    if (batch->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    CAIRN_TRY(srv_save_admit(tx, &batch->grant, &batch->version, err));
    struct srv_registration registration = {.version = &batch->version,
                                            .node = batch->node,
                                            .wall_ms = batch->wall_ms,
                                            .shards = batch->shards,
                                            .shard_count = batch->shard_count,
                                            .seals = batch->seals,
                                            .seal_count = batch->seal_count};
    CAIRN_TRY(srv_shards_register(tx, &registration, err));
    return look_how_far(tx, batch, err);
}

/* ---- bodies sent in parts ---- */

struct parts {
    uint8_t digest[32];         /* of the whole body */
    struct srv_table_part part; /* the last part, or the current one; of 0: no parts */
    struct cairn_buf bytes;     /* all parts */
};

static enum cairn_code gather_parts(struct srv_catalog *catalog, struct parts *parts,
                                    struct cairn_error *err) {
    SRV_LOOK(look, catalog, err);
    return srv_table_parts_get(look.tx, &parts->part, &parts->bytes, err);
}

SRV_CHANGE(drop_parts, const struct parts *parts) {
    return srv_table_parts_drop(tx, &parts->part, err);
}

static enum cairn_code take_parts(struct srv_request *request, struct parts *parts,
                                  struct cairn_error *err) {
    const struct cairn_query *query = &request->query;
    const char *digest = cairn_query_get(query, "digest"), *of = cairn_query_get(query, "of");
    uint8_t found[32];
    uint64_t count = 0;
    if (!digest && !of) return CAIRN_OK;
    if (!digest || !of || cairn_parse_u64(cairn_view_of(of), &count, NULL) || !count ||
        count > PARTS_MAX || cairn_hex_decode(cairn_view_of(digest), parts->digest, 32, NULL))
        return cairn_fail(err, CAIRN_INVALID,
                          "digest, of: want the SHA-256 of a body and the number of its parts");
    parts->part = (struct srv_table_part){parts->digest, (uint32_t)count, (uint32_t)count};
    CAIRN_TRY(gather_parts(request->server->catalog, parts, err));
    cairn_table_digest(cairn_buf_view(&parts->bytes), found);
    request->body = cairn_buf_view(&parts->bytes);
    if (!memcmp(found, parts->digest, 32)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TABLE_UNKNOWN,
                      "the parts of this body are not those that it was cut into: send them again");
}

static enum cairn_code serve_register(struct srv_request *request, struct srv_reply *reply,
                                      struct cairn_error *err) {
    struct srv *server = request->server;
    CAIRN_TRY(srv_thawed(server, err));
    CAIRN_AUTO_JSON json_t *body = NULL;
    CAIRN_TRY(srv_body(request, 600000, &body, err));
    CAIRN_RELEASED(release_batch)
    struct registration_batch batch = {.request = request, .wall_ms = srv_wall_ms(server)};
    struct cairn_msg_register msg = {0};
    CAIRN_TRY(cairn_msg_register_read(body, "", &msg, err));
    batch.node = msg.node;
    if (!cairn_name_valid(cairn_view_of(batch.node)))
        return cairn_fail(err, CAIRN_INVALID, "/node: " CAIRN_NAME_WANTED);
    CAIRN_TRY(srv_grant_read(request, msg.grant, &batch.grant, err));
    CAIRN_TRY(parse_lists(&batch, msg.shards, msg.seals, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, apply, &batch, err));
    const struct srv_version *version = &batch.version;
    char key[SRV_EVENTS_KEY_BYTES];
    srv_events_key_of_version(&version->id, key);
    /* Wakes calls that wait for `decided`, `staged` or `durable`, none of which has an event. */
    if (batch.told) srv_waiters_wake(server->waiters, key);
    bool unrecorded = version->state == CAIRN_STATE_COMMITTED && !version->recorded;
    if (batch.whole || unrecorded) srv_jobs_commit(server, version->id.text);
    return srv_reply_json(reply, 200, srv_version_brief(version), err);
}

SRV_HANDLER(shard_register) {
    struct parts parts = {.bytes = {.limit = BODY_BYTES_MAX}};
    struct cairn_error ignored = {0};
    enum cairn_code code = take_parts(request, &parts, err);
    if (!code) code = serve_register(request, reply, err);
    if (!code && parts.part.of) /* else a sweep drops them as unused */
        (void)!srv_catalog_write(request->server->catalog, drop_parts, &parts, &ignored);
    if (parts.part.of) request->body = (struct cairn_view){0};
    cairn_buf_release(&parts.bytes);
    return code;
}

/* ---- tables ---- */

struct table_put {
    struct srv_request *request;
    struct cairn_grant grant;
    struct parts parts;
    bool is_body; /* parts of the body of POST {C}/shards, which names their digest */
    bool there;
};

SRV_CHANGE(keep_table, struct table_put *put) {
    SRV_GET(run, run, srv_admit(tx, &put->grant, &run, err));
    bool made = false;
    struct cairn_view bytes =
        put->parts.part.of ? cairn_buf_view(&put->parts.bytes) : put->request->body;
    CAIRN_TRY(srv_table_keep(tx, put->parts.digest, bytes, &made, err));
    put->there = !made;
    return put->parts.part.of ? srv_table_parts_drop(tx, &put->parts.part, err) : CAIRN_OK;
}

SRV_CHANGE(keep_part, struct table_put *put) {
    SRV_GET(run, run, srv_admit(tx, &put->grant, &run, err));
    CAIRN_TRY(srv_table_there(tx, put->parts.digest, &put->there, err));
    if (put->there && !put->is_body) return CAIRN_OK; /* another rank has completed the table */
    return srv_table_part_keep(tx, &put->parts.part, put->request->body, err);
}

static enum cairn_code check_table(const struct table_put *put, struct cairn_view bytes,
                                   struct cairn_error *err) {
    uint8_t found[32];
    cairn_table_digest(bytes, found);
    if (memcmp(found, put->parts.digest, 32)) {
        char hex[65];
        cairn_hex_encode(found, 32, hex);
        return cairn_fail(err, CAIRN_TABLE_INVALID, "the body's SHA-256 is %s", hex);
    }
    struct cairn_table table;
    enum cairn_code code = cairn_table_open(bytes, &table, err);
    return code ? cairn_within(err, CAIRN_TABLE_INVALID, "the table") : CAIRN_OK;
}

static enum cairn_code read_number(const struct srv_request *request, const char *name,
                                   uint32_t *ret, struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, name);
    uint64_t number = 0;
    enum cairn_code code = cairn_parse_u64(cairn_view_of(text ? text : ""), &number, err);
    if (code || !number || number > PARTS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s: want a number from 1 to %d", name, PARTS_MAX);
    *ret = (uint32_t)number;
    return CAIRN_OK;
}

static enum cairn_code read_part(struct table_put *put, struct cairn_error *err) {
    const struct srv_request *request = put->request;
    if (!cairn_query_get(&request->query, "part") && !cairn_query_get(&request->query, "of"))
        return CAIRN_OK;
    CAIRN_TRY(read_number(request, "part", &put->parts.part.part, err));
    CAIRN_TRY(read_number(request, "of", &put->parts.part.of, err));
    put->parts.part.table = put->parts.digest;
    const char *what = cairn_query_get(&request->query, "for");
    put->is_body = what != NULL;
    if (what && strcmp(what, "shards") != 0)
        return cairn_fail(err, CAIRN_INVALID, "for: want shards");
    if (put->parts.part.part > put->parts.part.of)
        return cairn_fail(err, CAIRN_INVALID, "part %u of %u", put->parts.part.part,
                          put->parts.part.of);
    if (request->body.size > PART_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a part has %zu bytes, and may have %" PRIu64,
                          request->body.size, (uint64_t)PART_BYTES_MAX);
    return CAIRN_OK;
}

/* The last part completes the table; parts that do not match the digest are dropped. */
static enum cairn_code take_part(struct table_put *put, struct cairn_error *err) {
    struct srv_catalog *catalog = put->request->server->catalog;
    struct cairn_error ignored = {0};
    CAIRN_TRY(srv_catalog_write(catalog, keep_part, put, err));
    if (put->is_body) return CAIRN_OK;
    if (put->there || put->parts.part.part < put->parts.part.of) return CAIRN_OK;
    put->parts.bytes = (struct cairn_buf){.limit = CAIRN_TABLE_BYTES_MAX};
    enum cairn_code code = gather_parts(catalog, &put->parts, err);
    if (!code) code = check_table(put, cairn_buf_view(&put->parts.bytes), err);
    if (code == CAIRN_TABLE_INVALID || code == CAIRN_TOO_LARGE)
        (void)!srv_catalog_write(catalog, drop_parts, &put->parts, &ignored);
    if (!code) code = srv_catalog_write(catalog, keep_table, put, err);
    cairn_buf_release(&put->parts.bytes);
    return code;
}

SRV_HANDLER(table_put) {
    CAIRN_TRY(srv_thawed(request->server, err));
    struct table_put put = {.request = request};
    CAIRN_TRY(srv_grant_read(request, request->grant, &put.grant, err));
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(request->params.digest), put.parts.digest, 32, err));
    CAIRN_TRY(read_part(&put, err));
    if (put.parts.part.of) {
        CAIRN_TRY(take_part(&put, err));
    } else {
        CAIRN_TRY(check_table(&put, request->body, err));
        CAIRN_TRY(srv_catalog_write(request->server->catalog, keep_table, &put, err));
    }
    int status = put.is_body                               ? 202
                 : put.there                               ? 200
                 : put.parts.part.part < put.parts.part.of ? 202
                                                           : 201;
    return srv_reply_json(reply, status, CAIRN_PACK(table_kept, .digest = request->params.digest),
                          err);
}

SRV_HANDLER(table_head) {
    uint8_t digest[32];
    bool there = false;
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(request->params.digest), digest, 32, err));
    SRV_LOOK(look, request->server->catalog, err);
    CAIRN_TRY(srv_table_there(look.tx, digest, &there, err));
    reply->status = 200;
    if (there) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "no table %s", request->params.digest);
}
