/* SPDX-License-Identifier: Apache-2.0 */
/* PUT and HEAD {R}/tables/{digest}: rank tables are kept by their digest, so that a rank whose
 * layout did not change sends 32 bytes (rule Q33). A large one comes in parts, which any proxy lets
 * through and any server of the catalog takes; the last of them makes it a table. */
#include <inttypes.h>

#include "api/documents/digest.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "common/text.h"
#include "server/intake/saves.h"
#include "server/ledger/layouts.h"

#define PART_BYTES_MAX CAIRN_MIB
#define PARTS_MAX 4096

struct put {
    struct cairn_srv_request *request;
    struct cairn_grant grant;
    uint8_t digest[32];
    struct cairn_srv_table_part part; /* of 0: it comes whole */
    bool is_body; /* its parts are those of another call's body, which names them */
    struct cairn_buf whole;           /* of all parts */
    bool there;
};

static enum cairn_code keep(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct put *put = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_admit(tx, &put->grant, &run, err));
    bool made = false;
    struct cairn_view bytes =
        put->part.of ? cairn_buf_view(&put->whole) : put->request->body;
    CAIRN_TRY(cairn_srv_table_keep(tx, put->digest, bytes, &made, err));
    put->there = !made;
    return put->part.of ? cairn_srv_table_parts_drop(tx, &put->part, err) : CAIRN_OK;
}

static enum cairn_code keep_part(struct cairn_srv_tx *tx, void *argument,
                                 struct cairn_error *err) {
    struct put *put = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_admit(tx, &put->grant, &run, err));
    CAIRN_TRY(cairn_srv_table_there(tx, put->digest, &put->there, err));
    if (put->there && !put->is_body) return CAIRN_OK; /* another rank's parts were there first */
    return cairn_srv_table_part_keep(tx, &put->part, put->request->body, err);
}

static enum cairn_code gather(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct put *put = argument;
    put->whole.size = 0;
    return cairn_srv_table_parts_get(tx, &put->part, &put->whole, err);
}

static enum cairn_code drop(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct put *put = argument;
    return cairn_srv_table_parts_drop(tx, &put->part, err);
}

static enum cairn_code check(const struct put *put, struct cairn_view bytes,
                             struct cairn_error *err) {
    uint8_t found[32];
    cairn_table_digest(bytes, found);
    if (memcmp(found, put->digest, 32)) {
        char hex[65];
        cairn_hex_encode(found, 32, hex);
        return cairn_fail(err, CAIRN_TABLE_INVALID, "the body's SHA-256 is %s", hex);
    }
    struct cairn_table table;
    enum cairn_code code = cairn_table_open(bytes, &table, err);
    return code ? cairn_within(err, CAIRN_TABLE_INVALID, "the table") : CAIRN_OK;
}

static enum cairn_code read_number(const struct cairn_srv_request *request, const char *name,
                                   uint32_t *ret, struct cairn_error *err) {
    const char *text = cairn_query_get(&request->query, name);
    uint64_t number = 0;
    enum cairn_code code = cairn_parse_u64(cairn_view_of(text ? text : ""), &number, err);
    if (code || !number || number > PARTS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s: want a number from 1 to %d", name, PARTS_MAX);
    *ret = (uint32_t)number;
    return CAIRN_OK;
}

static enum cairn_code read_part(struct put *put, struct cairn_error *err) {
    const struct cairn_srv_request *request = put->request;
    if (!cairn_query_get(&request->query, "part") && !cairn_query_get(&request->query, "of"))
        return CAIRN_OK;
    CAIRN_TRY(read_number(request, "part", &put->part.part, err));
    CAIRN_TRY(read_number(request, "of", &put->part.of, err));
    put->part.table = put->digest;
    const char *what = cairn_query_get(&request->query, "for");
    put->is_body = what != NULL;
    if (what && strcmp(what, "shards") != 0)
        return cairn_fail(err, CAIRN_INVALID, "for: want shards");
    if (put->part.part > put->part.of)
        return cairn_fail(err, CAIRN_INVALID, "part %u of %u", put->part.part, put->part.of);
    if (request->body.size > PART_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a part has %zu bytes, and may have %" PRIu64,
                          request->body.size, (uint64_t)PART_BYTES_MAX);
    return CAIRN_OK;
}

/* The last part makes it a table; parts that make none are dropped. */
static enum cairn_code take_part(struct put *put, struct cairn_error *err) {
    struct cairn_srv_catalog *catalog = put->request->server->catalog;
    struct cairn_error ignored = {0};
    CAIRN_TRY(cairn_srv_catalog_write(catalog, keep_part, put, err));
    if (put->is_body) return CAIRN_OK;
    if (put->there || put->part.part < put->part.of) return CAIRN_OK;
    put->whole = (struct cairn_buf){.limit = CAIRN_TABLE_BYTES_MAX};
    enum cairn_code code = cairn_srv_catalog_read(catalog, gather, put, err);
    if (!code) code = check(put, cairn_buf_view(&put->whole), err);
    if (code == CAIRN_TABLE_INVALID || code == CAIRN_TOO_LARGE)
        (void)!cairn_srv_catalog_write(catalog, drop, put, &ignored);
    if (!code) code = cairn_srv_catalog_write(catalog, keep, put, err);
    cairn_buf_release(&put->whole);
    return code;
}

enum cairn_code cairn_srv_on_table_put(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    struct put put = {.request = request};
    CAIRN_TRY(cairn_srv_grant_read(request, request->grant, &put.grant, err));
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(request->params.digest), put.digest, 32, err));
    CAIRN_TRY(read_part(&put, err));
    if (put.part.of) {
        CAIRN_TRY(take_part(&put, err));
    } else {
        CAIRN_TRY(check(&put, request->body, err));
        CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, keep, &put, err));
    }
    int status = put.is_body ? 202 : put.there ? 200 : put.part.part < put.part.of ? 202 : 201;
    return cairn_srv_reply_json(reply, status,
                                CAIRN_PACK(table_kept, .digest = request->params.digest), err);
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct put *put = argument;
    return cairn_srv_table_there(tx, put->digest, &put->there, err);
}

enum cairn_code cairn_srv_on_table_head(struct cairn_srv_request *request,
                                        struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct put put = {.request = request};
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(request->params.digest), put.digest, 32, err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, look, &put, err));
    reply->status = 200;
    if (put.there) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "no table %s", request->params.digest);
}
