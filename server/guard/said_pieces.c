/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by how their versions' ids begin, which are hashes: pieces of one size; said_pieces.h. */
#include "server/guard/said_pieces.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/keys.h"
#include "common/buf.h"
#include "common/log.h"
#include "common/text.h"

#define PREFIX ".cairn/catalog/versions/"
#define ID_BEGINS "ckpt_"
#define DIGITS_MAX 3          /* of an id: CAIRN_SRV_SAID_PIECES_MAX ways to begin */
#define ROWS_OF_A_PIECE 2048  /* about, until there are no more pieces */
#define LEAVING_ROWS 100000   /* more keep no server from ending */
#define LISTED_MAX 100000
#define PIECE_VALUES_MAX 10000000

void cairn_srv_pieces_release(struct cairn_srv_pieces *pieces) {
    free(pieces->items);
    *pieces = (struct cairn_srv_pieces){0};
}

static enum cairn_code add(struct cairn_srv_pieces *pieces, const struct cairn_srv_piece *piece,
                           struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(pieces->items, pieces->count, pieces->capacity, LISTED_MAX,
                               "pieces of what was said", err));
    pieces->items[pieces->count++] = *piece;
    return CAIRN_OK;
}

static int compare(const void *a, const void *b) {
    return strcmp(((const struct cairn_srv_piece *)a)->sha256,
                  ((const struct cairn_srv_piece *)b)->sha256);
}

static const struct cairn_srv_piece *find(const struct cairn_srv_pieces *sorted,
                                          const struct cairn_srv_piece *piece) {
    if (!sorted->count) return NULL;
    return bsearch(piece, sorted->items, sorted->count, sizeof(*piece), compare);
}

static void sort(struct cairn_srv_pieces *pieces) {
    if (pieces->count) qsort(pieces->items, pieces->count, sizeof(*pieces->items), compare);
}

/* ---- those that are in the store, sorted ---- */

static enum cairn_code list_all(struct cairn_store_worker *worker, struct cairn_srv_pieces *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    do {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request list = {
            .op = CAIRN_STORE_LIST, .key = PREFIX, .page = page, .listing = &listing};
        CAIRN_TRY(cairn_store_perform(worker, &list, err));
        for (size_t i = 0; i < listing.count; i++) {
            const char *name = listing.entries[i].key + strlen(PREFIX);
            struct cairn_srv_piece piece = {.bytes = listing.entries[i].size_bytes};
            if (strlen(name) != 2 * CAIRN_SHA256_BYTES + strlen(".json")) continue;
            snprintf(piece.sha256, sizeof(piece.sha256), "%.*s", 2 * CAIRN_SHA256_BYTES, name);
            CAIRN_TRY(add(ret, &piece, err));
        }
        free(page);
        page = CAIRN_TAKE(listing.next_page);
    } while (page);
    sort(ret);
    return CAIRN_OK;
}

void cairn_srv_pieces_drop(struct cairn_store_worker *worker,
                           const struct cairn_srv_pieces *newest,
                           const struct cairn_srv_pieces *before) {
    struct cairn_srv_pieces there = {0}, kept = {0};
    struct cairn_error why = {0};
    enum cairn_code code = list_all(worker, &there, &why);
    for (size_t i = 0; i < newest->count && !code; i++) code = add(&kept, &newest->items[i], &why);
    for (size_t i = 0; i < before->count && !code; i++) code = add(&kept, &before->items[i], &why);
    sort(&kept);
    for (size_t i = 0; i < there.count && !code; i++) {
        struct cairn_key key;
        if (find(&kept, &there.items[i])) continue;
        cairn_key_catalog_piece(there.items[i].sha256, &key);
        code = cairn_store_delete(worker, key.text, &why);
    }
    if (code) cairn_log(DEBUG, "catalog.pieces_left", "cause=\"%s\"", why.message);
    cairn_srv_pieces_release(&there);
    cairn_srv_pieces_release(&kept);
}

/* ---- writing ---- */

struct writing {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    struct cairn_srv_pieces there;
    struct cairn_buf text;
    struct cairn_srv_piece piece;
    char from[64], to[80];
    enum cairn_code (*raise)(void *owner, struct cairn_error *err);
    void *owner;
    bool raised;
};

static enum cairn_code read_piece(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct writing *writing = argument;
    return cairn_srv_said_piece(tx, writing->from, writing->to, &writing->text,
                                &writing->piece.rows, err);
}

static enum cairn_code put_piece(struct writing *writing, struct cairn_error *err) {
    struct cairn_key key;
    const struct cairn_srv_piece *there = find(&writing->there, &writing->piece);
    if (there && there->bytes == writing->piece.bytes) return CAIRN_OK;
    if (!writing->raised) CAIRN_TRY(writing->raise(writing->owner, err));
    writing->raised = true;
    cairn_key_catalog_piece(writing->piece.sha256, &key);
    return cairn_store_put_same(writing->worker, key.text, cairn_buf_view(&writing->text), err);
}

/* Of the versions whose ids begin with that number, of so many digits. */
static enum cairn_code write_piece(struct writing *writing, unsigned number, unsigned digits,
                                   struct cairn_srv_pieces *ret, struct cairn_error *err) {
    uint8_t digest[CAIRN_SHA256_BYTES];
    writing->piece = (struct cairn_srv_piece){0};
    snprintf(writing->from, sizeof(writing->from), ID_BEGINS "%0*x", (int)(digits % 8), number);
    snprintf(writing->to, sizeof(writing->to), "%sg", writing->from); /* behind each digit */
    CAIRN_TRY(cairn_srv_catalog_read(writing->server->catalog, read_piece, writing, err));
    if (!writing->piece.rows) return CAIRN_OK;
    cairn_sha256_of(cairn_buf_view(&writing->text), digest);
    cairn_hex_encode(digest, sizeof(digest), writing->piece.sha256);
    writing->piece.bytes = writing->text.size;
    CAIRN_TRY(put_piece(writing, err));
    return add(ret, &writing->piece, err);
}

enum cairn_code cairn_srv_pieces_write(struct cairn_srv *server, struct cairn_store_worker *worker,
                                       uint64_t rows,
                                       enum cairn_code (*raise)(void *owner,
                                                                struct cairn_error *err),
                                       void *owner, struct cairn_srv_pieces *ret,
                                       struct cairn_error *err) {
    struct writing writing = {.server = server, .worker = worker, .raise = raise, .owner = owner};
    unsigned count = 16;
    unsigned digits = 1;
    writing.text.limit = CAIRN_SRV_SAID_BYTES_MAX;
    for (; digits < DIGITS_MAX && rows > (uint64_t)count * ROWS_OF_A_PIECE; digits++) count *= 16;
    enum cairn_code code = list_all(worker, &writing.there, err);
    for (unsigned i = 0; i < count && !code; i++)
        code = server->leaving && rows > LEAVING_ROWS
                   ? cairn_fail(err, CAIRN_CANCELLED, "the next start goes on with %" PRIu64
                                " rows", rows)
                   : write_piece(&writing, i, digits, ret, err);
    cairn_srv_pieces_release(&writing.there);
    cairn_buf_release(&writing.text);
    return code;
}

/* ---- in a copy ---- */

enum cairn_code cairn_srv_pieces_print(const struct cairn_srv_pieces *pieces,
                                       struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append_text(ret, "\"pieces\":[", err));
    for (size_t i = 0; i < pieces->count; i++)
        CAIRN_TRY(cairn_buf_printf(ret, err,
                                   "%s{\"bytes\":%" PRIu64 ",\"rows\":%" PRIu64
                                   ",\"sha256\":\"%s\"}",
                                   i ? "," : "", pieces->items[i].bytes, pieces->items[i].rows,
                                   pieces->items[i].sha256));
    return cairn_buf_append_text(ret, "],", err);
}

enum cairn_code cairn_srv_pieces_of(const json_t *document, struct cairn_srv_pieces *ret,
                                    struct cairn_error *err) {
    const json_t *pieces = json_object_get(document, "pieces");
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        const json_t *item = json_array_get(pieces, i);
        const char *sha256 = json_string_value(json_object_get(item, "sha256"));
        uint8_t digest[CAIRN_SHA256_BYTES];
        struct cairn_srv_piece piece = {
            .bytes = (uint64_t)json_integer_value(json_object_get(item, "bytes")),
            .rows = (uint64_t)json_integer_value(json_object_get(item, "rows"))};
        if (!sha256 || !cairn_text_copy(piece.sha256, sizeof(piece.sha256), sha256) ||
            cairn_hex_decode(cairn_view_of(sha256), digest, sizeof(digest), NULL) ||
            piece.bytes > CAIRN_SRV_SAID_BYTES_MAX)
            return cairn_fail(err, CAIRN_CORRUPT, "piece %zu is none", i);
        CAIRN_TRY(add(ret, &piece, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_piece_get(struct cairn_store_worker *worker,
                                    const struct cairn_srv_piece *piece, json_t **ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_SRV_SAID_BYTES_MAX};
    struct cairn_json_limits limits = {.bytes = CAIRN_SRV_SAID_BYTES_MAX,
                                       .nodes = PIECE_VALUES_MAX};
    uint8_t digest[CAIRN_SHA256_BYTES];
    char found[2 * CAIRN_SHA256_BYTES + 1];
    struct cairn_key key;
    cairn_key_catalog_piece(piece->sha256, &key);
    enum cairn_code code = cairn_store_get_small(worker, key.text, &text, err);
    if (code == CAIRN_NOT_FOUND) return cairn_fail(err, CAIRN_CORRUPT, "there is no %s", key.text);
    CAIRN_TRY(code);
    cairn_sha256_of(cairn_buf_view(&text), digest);
    cairn_hex_encode(digest, sizeof(digest), found);
    if (strcmp(found, piece->sha256) != 0)
        return cairn_fail(err, CAIRN_CORRUPT, "%s has other bytes than its name says", key.text);
    if (cairn_json_parse(cairn_buf_view(&text), limits, ret, err))
        return cairn_within(err, CAIRN_CORRUPT, "%s", key.text);
    return CAIRN_OK;
}
