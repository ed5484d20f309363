/* SPDX-License-Identifier: Apache-2.0 */
/* PUT and HEAD {R}/tables/{digest}: rank tables are kept by their digest, so that a rank whose
 * layout did not change sends 32 bytes (rule Q33). */
#include "api/digest.h"
#include "api/messages.h"
#include "api/table.h"
#include "common/encode.h"
#include "server/catalog/layouts.h"
#include "server/handlers/saves.h"

struct put {
    struct cairn_srv_request *request;
    struct cairn_grant grant;
    uint8_t digest[32];
    bool with_grant, there;
};

static enum cairn_code keep(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct put *put = argument;
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_admit(tx, &put->grant, &run, err));
    bool made = false;
    CAIRN_TRY(cairn_srv_table_keep(tx, put->digest, put->request->body, &made, err));
    put->there = !made;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_on_table_put(struct cairn_srv_request *request,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    struct put put = {.request = request};
    CAIRN_TRY(cairn_srv_grant_read(request, request->grant, &put.grant, err));
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(request->params.digest), put.digest, 32, err));
    uint8_t found[32];
    cairn_table_digest(request->body, found);
    if (memcmp(found, put.digest, 32)) {
        char hex[65];
        cairn_hex_encode(found, 32, hex);
        return cairn_fail(err, CAIRN_TABLE_INVALID, "the body's SHA-256 is %s", hex);
    }
    struct cairn_table table;
    enum cairn_code code = cairn_table_open(request->body, &table, err);
    if (code) return cairn_within(err, CAIRN_TABLE_INVALID, "the table");
    CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, keep, &put, err));
    return cairn_srv_reply_json(reply, put.there ? 200 : 201,
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
