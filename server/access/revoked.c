/* SPDX-License-Identifier: Apache-2.0 */
/* Small objects of one prefix; see revoked.h. */
#include "server/access/revoked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/keys.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/text.h"
#include "server/access/access.h"
#include "store/record.h"

#define PREFIX ".cairn/revoked/"

enum cairn_code cairn_srv_revoked_put(struct cairn_store_worker *worker, const char *token,
                                      struct cairn_error *err) {
    struct cairn_key key;
    char text[128];
    cairn_key_revoked(token, &key);
    int size = snprintf(text, sizeof(text), "{\"cairn_revoked\":1,\"token\":\"%s\"}", token);
    enum cairn_code code =
        cairn_store_put_same(worker, key.text, (struct cairn_view){text, (size_t)size}, err);
    return code ? cairn_within(err, code, "%s", key.text) : CAIRN_OK;
}

void cairn_srv_revoked_release(struct cairn_srv_revoked *revoked) {
    free(revoked->items);
    *revoked = (struct cairn_srv_revoked){0};
}

/* What nobody here writes is passed over. */
static enum cairn_code add(struct cairn_srv_revoked *ret, const struct cairn_store_entry *entry,
                           struct cairn_error *err) {
    const char *name = entry->key + strlen(PREFIX);
    char token[CAIRN_TOKEN_ID_BYTES];
    struct cairn_key key;
    snprintf(token, sizeof(token), "%.*s", (int)strcspn(name, "."), name);
    if (!cairn_name_valid(cairn_view_of(token))) return CAIRN_OK;
    cairn_key_revoked(token, &key);
    if (strcmp(key.text, entry->key) != 0) return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(ret->items, ret->count, ret->capacity, CAIRN_SRV_REVOKED_MAX,
                               "revoked tokens", err));
    (void)cairn_text_copy(ret->items[ret->count].token, sizeof(token), token);
    ret->items[ret->count++].modified_ms = entry->modified_ms;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_revoked_list(struct cairn_store_worker *worker,
                                       struct cairn_srv_revoked *ret, struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    ret->count = 0;
    do {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request list = {
            .op = CAIRN_STORE_LIST, .key = PREFIX, .page = page, .listing = &listing};
        CAIRN_TRY(cairn_store_perform(worker, &list, err));
        for (size_t i = 0; i < listing.count; i++) CAIRN_TRY(add(ret, &listing.entries[i], err));
        free(page);
        page = CAIRN_TAKE(listing.next_page);
    } while (page);
    return CAIRN_OK;
}

/* ---- rows ---- */

struct look {
    const struct cairn_srv_revoked *revoked;
    uint64_t count; /* of rows that are there */
};

static enum cairn_code each(struct cairn_srv_tx *tx, const struct cairn_srv_revoked *revoked,
                            bool drops, uint64_t *ret_count, struct cairn_error *err) {
    *ret_count = 0;
    for (size_t i = 0; i < revoked->count; i++) {
        struct cairn_srv_token token;
        struct cairn_error why = {0};
        enum cairn_code code = cairn_srv_token_get(tx, revoked->items[i].token, &token, &why);
        if (code == CAIRN_NOT_FOUND) continue;
        if (code && err) *err = why;
        if (code) return code;
        if (drops) CAIRN_TRY(cairn_srv_token_drop(tx, &token, err));
        (*ret_count)++;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_revoked_take(struct cairn_srv_tx *tx,
                                       const struct cairn_srv_revoked *revoked, uint64_t *ret_count,
                                       struct cairn_error *err) {
    return each(tx, revoked, true, ret_count, err);
}

static enum cairn_code count_rows(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct look *look = argument;
    return each(tx, look->revoked, false, &look->count, err);
}

static enum cairn_code drop_rows(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct look *look = argument;
    return cairn_srv_revoked_take(tx, look->revoked, &look->count, err);
}

static enum cairn_code apply(struct cairn_srv *server, struct cairn_store_worker *worker,
                             struct cairn_error *err) {
    CAIRN_AUTO(srv_revoked) revoked = {0};
    struct look look = {.revoked = &revoked};
    struct cairn_store_record record; /* a folder that is not mounted lists nothing */
    CAIRN_TRY(cairn_store_record_get(worker, 0, &record, err));
    CAIRN_TRY(cairn_srv_revoked_list(worker, &revoked, err));
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, count_rows, &look, err));
    if (!look.count) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, drop_rows, &look, err));
    if (server->access) cairn_srv_access_reload(server->access);
    cairn_log(WARN, "token.revoked_again", "tokens=%" PRIu64, look.count);
    return CAIRN_OK;
}

void cairn_srv_revoked_look(struct cairn_srv *server, struct cairn_store_worker *worker) {
    struct cairn_error why = {0};
    if (server->revocations == CAIRN_SRV_REVOCATIONS_READ) return;
    enum cairn_code code = apply(server, worker, &why);
    if (code && server->revocations == CAIRN_SRV_REVOCATIONS_UNREAD)
        cairn_log(WARN, "token.revocations_unread", "cause=\"%s\"", why.message);
    server->revocations = code ? CAIRN_SRV_REVOCATIONS_MISSED : CAIRN_SRV_REVOCATIONS_READ;
}

void cairn_srv_revoked_drop(struct cairn_store_worker *worker, int64_t before_ms) {
    CAIRN_AUTO(srv_revoked) revoked = {0};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_srv_revoked_list(worker, &revoked, &why);
    for (size_t i = 0; i < revoked.count && !code; i++) {
        struct cairn_key key;
        if (!revoked.items[i].modified_ms || revoked.items[i].modified_ms >= before_ms) continue;
        cairn_key_revoked(revoked.items[i].token, &key);
        code = cairn_store_delete(worker, key.text, &why);
    }
    if (code) cairn_log(DEBUG, "token.revocations_left", "cause=\"%s\"", why.message);
}
