/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the catalog after new events, and writes a copy if its bytes changed; see said_copy.h. */
#include "server/guard/said_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/keys.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "server/access/access.h"
#include "server/db/sql.h"
#include "server/guard/identity.h"
#include "server/guard/jobs.h"
#include "server/ledger/events.h"
#include "server/ledger/said.h"

struct cairn_srv_piece {
    char sha256[2 * CAIRN_SHA256_BYTES + 1];
    uint64_t bytes, rows;
};
struct cairn_srv_pieces {
    struct cairn_srv_piece *items;
    size_t count, capacity;
};

#define PREFIX ".cairn/catalog/"
#define KEPT 2
#define SEEN_MAX 1000
#define WRITTEN "said_copy" /* key in meta: digest of the last written copy */
#define VALUES_MAX 30000000
#define CLOCKS_APART_MS INT64_C(3600000) /* upper bound between machines of a store */

#define WHOLE_ROWS 4096 /* of versions, stored in the copy itself */
#define LOOK_SHARE 20

struct look {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    struct cairn_srv_said said;
    struct cairn_srv_pieces pieces;
    uint64_t versions;
    bool whole, raised;
    uint64_t event;
    char digest[2 * CAIRN_SHA256_BYTES + 1], written[2 * CAIRN_SHA256_BYTES + 1];
};

/* ---- pieces ---- */

/* A piece has the rows of versions whose ids share a prefix; ids are hashes, so sizes are even. */

#define PIECES_PREFIX ".cairn/catalog/versions/"
#define ID_BEGINS "ckpt_"
#define DIGITS_MAX 3         /* hex digits of the prefix: at most 4,096 pieces */
#define ROWS_OF_A_PIECE 2048 /* on average, up to the maximal number of pieces */
#define LEAVING_ROWS 100000  /* with more, a stopping server writes no pieces */
#define LISTED_MAX 100000
#define PIECE_VALUES_MAX 10000000

static void cairn_srv_pieces_release(struct cairn_srv_pieces *pieces) {
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

/* ---- pieces in the store, sorted ---- */

static enum cairn_code list_all(struct cairn_store_worker *worker, struct cairn_srv_pieces *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    do {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request list = {
            .op = CAIRN_STORE_LIST, .key = PIECES_PREFIX, .page = page, .listing = &listing};
        CAIRN_TRY(cairn_store_perform(worker, &list, err));
        for (size_t i = 0; i < listing.count; i++) {
            const char *name = listing.entries[i].key + strlen(PIECES_PREFIX);
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

/* Deletes the pieces in the store that neither list names. */
static void drop_pieces_of_neither(struct cairn_store_worker *worker,
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

/* ---- writing pieces ---- */

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

/* Writes the piece of the prefix `number`, printed with `digits` digits. */
static enum cairn_code write_piece(struct writing *writing, unsigned number, unsigned digits,
                                   struct cairn_srv_pieces *ret, struct cairn_error *err) {
    uint8_t digest[CAIRN_SHA256_BYTES];
    writing->piece = (struct cairn_srv_piece){0};
    snprintf(writing->from, sizeof(writing->from), ID_BEGINS "%0*x", (int)(digits % 8), number);
    snprintf(writing->to, sizeof(writing->to), "%sg", writing->from); /* after every hex digit */
    CAIRN_TRY(cairn_srv_catalog_read(writing->server->catalog, read_piece, writing, err));
    if (!writing->piece.rows) return CAIRN_OK;
    cairn_sha256_of(cairn_buf_view(&writing->text), digest);
    cairn_hex_encode(digest, sizeof(digest), writing->piece.sha256);
    writing->piece.bytes = writing->text.size;
    CAIRN_TRY(put_piece(writing, err));
    return add(ret, &writing->piece, err);
}

/* Reads the metadata of all versions, `rows` in total, and puts missing pieces; calls raise()
 * before the first put. */
static enum cairn_code write_pieces(struct cairn_srv *server, struct cairn_store_worker *worker,
                                    uint64_t rows,
                                    enum cairn_code (*raise)(void *owner, struct cairn_error *err),
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
                   ? cairn_fail(err, CAIRN_CANCELLED,
                                "the next start goes on with %" PRIu64 " rows", rows)
                   : write_piece(&writing, i, digits, ret, err);
    cairn_srv_pieces_release(&writing.there);
    cairn_buf_release(&writing.text);
    return code;
}

/* ---- pieces named in a copy ---- */

static enum cairn_code print_pieces(const struct cairn_srv_pieces *pieces, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append_text(ret, "\"pieces\":[", err));
    for (size_t i = 0; i < pieces->count; i++)
        CAIRN_TRY(cairn_buf_printf(
            ret, err, "%s{\"bytes\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"sha256\":\"%s\"}",
            i ? "," : "", pieces->items[i].bytes, pieces->items[i].rows, pieces->items[i].sha256));
    return cairn_buf_append_text(ret, "],", err);
}

static enum cairn_code read_pieces(const json_t *document, struct cairn_srv_pieces *ret,
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

/* Reads a piece and compares it with the digest in its name; CAIRN_CORRUPT: differs or missing. */
static enum cairn_code get_piece(struct cairn_store_worker *worker,
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

/* ---- the copy ---- */

static enum cairn_code find_event(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct look *look = argument;
    uint64_t first = 0;
    return cairn_srv_events_bounds(tx, &first, &look->event, err);
}

static enum cairn_code read_all(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct look *look = argument;
    CAIRN_TRY(find_event(tx, look, err));
    CAIRN_TRY(cairn_srv_value_get(tx, WRITTEN, look->written, sizeof(look->written), err));
    CAIRN_TRY(cairn_srv_said_count(tx, &look->versions, err));
    look->whole = look->versions <= WHOLE_ROWS;
    enum cairn_code code = cairn_srv_said_make(tx, look->whole, &look->said, err);
    if (code == CAIRN_TOO_LARGE && look->whole) {
        look->whole = false;
        code = cairn_srv_said_make(tx, false, &look->said, err);
    }
    return code;
}

static enum cairn_code raise_once(void *owner, struct cairn_error *err) {
    struct look *look = owner;
    if (look->raised) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_identity_raise(look->server, look->worker, err));
    look->raised = true;
    return CAIRN_OK;
}

/* The digest covers the copy and its pieces. */
static enum cairn_code see_to_pieces(struct look *look, struct cairn_buf *ret_list,
                                     struct cairn_error *err) {
    uint8_t digests[2][CAIRN_SHA256_BYTES];
    if (!look->whole) {
        CAIRN_TRY(write_pieces(look->server, look->worker, look->versions, raise_once, look,
                               &look->pieces, err));
        CAIRN_TRY(print_pieces(&look->pieces, ret_list, err));
    }
    memcpy(digests[0], look->said.sha256, sizeof(digests[0]));
    cairn_sha256_of(cairn_buf_view(ret_list), digests[1]);
    if (!look->whole)
        cairn_sha256_of((struct cairn_view){digests, sizeof(digests)}, look->said.sha256);
    cairn_hex_encode(look->said.sha256, sizeof(look->said.sha256), look->digest);
    return CAIRN_OK;
}

static enum cairn_code keep_written(struct cairn_srv_tx *tx, void *argument,
                                    struct cairn_error *err) {
    const struct look *look = argument;
    return cairn_srv_value_put(tx, WRITTEN, look->digest, err);
}

/* ---- copies in the store ---- */

struct copies {
    uint64_t numbers[SEEN_MAX];
    int64_t written_ms[SEEN_MAX]; /* by the store's clock */
    size_t count;
};

static enum cairn_code find_copies(struct cairn_store_worker *worker, struct copies *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    ret->count = 0;
    do {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request list = {
            .op = CAIRN_STORE_LIST, .key = PREFIX, .page = page, .listing = &listing};
        CAIRN_TRY(cairn_store_perform(worker, &list, err));
        for (size_t i = 0; i < listing.count && ret->count < SEEN_MAX; i++) {
            struct cairn_key key;
            uint64_t number = strtoull(listing.entries[i].key + strlen(PREFIX), NULL, 10);
            cairn_key_catalog(number, &key);
            if (strcmp(key.text, listing.entries[i].key) != 0) continue;
            ret->written_ms[ret->count] = listing.entries[i].modified_ms;
            ret->numbers[ret->count++] = number;
        }
        free(page);
        page = CAIRN_TAKE(listing.next_page);
    } while (page);
    return CAIRN_OK;
}

static enum cairn_code get_copy(struct cairn_store_worker *worker, const char *key, json_t **ret,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_SRV_SAID_BYTES_MAX + CAIRN_KIB};
    struct cairn_json_limits limits = {.bytes = CAIRN_SRV_SAID_BYTES_MAX + CAIRN_KIB,
                                       .nodes = VALUES_MAX};
    CAIRN_TRY(cairn_store_get_small(worker, key, &text, err));
    if (cairn_json_parse(cairn_buf_view(&text), limits, ret, err))
        return cairn_within(err, CAIRN_CORRUPT, "%s", key);
    return CAIRN_OK;
}

/* said_copy.h#8 */
static void drop_pieces(const struct look *look, const struct copies *copies) {
    CAIRN_AUTO_JSON json_t *document = NULL;
    struct cairn_srv_pieces before = {0};
    struct cairn_error why = {0};
    struct cairn_key key;
    enum cairn_code code = CAIRN_OK;
    if (copies->count > 1) {
        cairn_key_catalog(copies->numbers[copies->count - 2], &key);
        code = get_copy(look->worker, key.text, &document, &why);
        if (!code) code = read_pieces(document, &before, &why);
    }
    if (!code) drop_pieces_of_neither(look->worker, &look->pieces, &before);
    cairn_srv_pieces_release(&before);
    if (code) cairn_log(DEBUG, "catalog.pieces_unread", "cause=\"%s\"", why.message);
}

/* Failed deletions are retried with the next copy. A kept copy was read after an older one was
 * written, so no kept copy has a token that was revoked before that. */
static void drop_older(const struct look *look) {
    struct cairn_store_worker *worker = look->worker;
    struct copies copies;
    struct cairn_error why = {0};
    if (find_copies(worker, &copies, &why)) return;
    drop_pieces(look, &copies);
    if (copies.count <= KEPT) return;
    int64_t older_ms = copies.written_ms[copies.count - KEPT - 1] - CLOCKS_APART_MS;
    int64_t kept_ms = copies.written_ms[copies.count - 1] - CAIRN_SRV_REVOKED_KEPT_MS;
    cairn_srv_revoked_drop(worker, older_ms < kept_ms ? older_ms : kept_ms);
    for (size_t i = 0; i + KEPT < copies.count; i++) {
        struct cairn_key key;
        cairn_key_catalog(copies.numbers[i], &key);
        if (cairn_store_delete(worker, key.text, &why) != CAIRN_OK)
            cairn_log(DEBUG, "catalog.copy_left", "key=%s cause=\"%s\"", key.text, why.message);
    }
}

/* ---- writing a copy ---- */

static enum cairn_code put(struct cairn_srv *server, struct cairn_store_worker *worker,
                           struct look *look, const char *pieces, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_SRV_SAID_BYTES_MAX + CAIRN_KIB};
    struct cairn_key key;
    CAIRN_TRY(raise_once(look, err));
    uint64_t number = server->raising_to;
    cairn_key_catalog(number, &key);
    CAIRN_TRY(cairn_srv_said_print(&look->said, number, pieces, &text, err));
    CAIRN_TRY(cairn_store_put_same(worker, key.text, cairn_buf_view(&text), err));
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, keep_written, look, err));
    cairn_log(INFO, "catalog.copied", "key=%s bytes=%zu pieces=%zu", key.text, text.size,
              look->pieces.count);
    drop_older(look);
    return CAIRN_OK;
}

static enum cairn_code write(struct cairn_srv_said_copy *copy, struct cairn_srv *server,
                             struct cairn_store_worker *worker, struct look *look,
                             struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_catalog_read(server->catalog, find_event, look, err));
    if (copy->event && look->event == copy->event) return CAIRN_OK;
    CAIRN_AUTO(buf) pieces = {0};
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, read_all, look, err);
    if (!code) code = see_to_pieces(look, &pieces, err);
    if (code == CAIRN_TOO_LARGE && !copy->too_large)
        cairn_log(WARN, "catalog.uncopied",
                  "cause=\"tokens, aliases, policies, labels of runs and the like are more than "
                  "%llu bytes\"",
                  (unsigned long long)CAIRN_SRV_SAID_BYTES_MAX);
    copy->too_large = code == CAIRN_TOO_LARGE;
    server->uncopied = copy->too_large;
    if (code == CAIRN_TOO_LARGE) return CAIRN_OK;
    CAIRN_TRY(code);
    bool never = !look->said.rows && !look->pieces.count && !look->written[0];
    if (!never && strcmp(look->digest, look->written) != 0)
        CAIRN_TRY(put(server, worker, look, pieces.data ? pieces.data : "", err));
    copy->event = look->event;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_said_copy_write(struct cairn_srv_said_copy *copy,
                                          struct cairn_srv *server,
                                          struct cairn_store_worker *worker,
                                          struct cairn_error *err) {
    uint64_t now_ms = cairn_srv_mono_ms(server);
    uint64_t every_ms = server->settings->catalog_copy_interval_ms;
    if (copy->rest_ms > every_ms) every_ms = copy->rest_ms;
    if (copy->looked_ms && now_ms - copy->looked_ms < every_ms) return CAIRN_OK;
    copy->looked_ms = now_ms;
    struct look look = {.server = server, .worker = worker};
    struct cairn_srv_lease lease;
    cairn_srv_lease_init(&lease, server, "catalog-copy", "");
    enum cairn_code code = cairn_srv_lease_take(&lease, err);
    if (code == CAIRN_BUSY) return CAIRN_OK;
    if (!code) code = write(copy, server, worker, &look, err);
    cairn_srv_lease_end(&lease);
    cairn_srv_said_release(&look.said);
    cairn_srv_pieces_release(&look.pieces);
    copy->rest_ms = LOOK_SHARE * cairn_passed_ms(cairn_srv_mono_ms(server), now_ms);
    return code;
}

/* ---- import by a reindex ---- */

struct taking {
    const json_t *document;
    struct cairn_srv_revoked revoked;
    uint64_t rows;
};

static enum cairn_code take(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct taking *taking = argument;
    CAIRN_TRY(cairn_srv_said_take(tx, taking->document, &taking->rows, err));
    uint64_t dropped = 0;
    CAIRN_TRY(cairn_srv_revoked_take(tx, &taking->revoked, &dropped, err));
    taking->rows -= dropped;
    return CAIRN_OK;
}

/* Checks all pieces before any import. */
static enum cairn_code look_at_pieces(struct cairn_store_worker *worker,
                                      const struct cairn_srv_pieces *pieces,
                                      struct cairn_error *err) {
    for (size_t i = 0; i < pieces->count; i++) {
        CAIRN_AUTO_JSON json_t *piece = NULL;
        CAIRN_TRY(get_piece(worker, &pieces->items[i], &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code take_pieces(struct cairn_srv *server, struct cairn_store_worker *worker,
                                   const struct cairn_srv_pieces *pieces, uint64_t *rows,
                                   struct cairn_error *err) {
    for (size_t i = 0; i < pieces->count; i++) {
        CAIRN_AUTO_JSON json_t *piece = NULL;
        struct taking taking = {0};
        CAIRN_TRY(get_piece(worker, &pieces->items[i], &piece, err));
        taking.document = piece;
        CAIRN_TRY(cairn_srv_catalog_write(server->catalog, take, &taking, err));
        *rows += taking.rows;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_srv_said_copy_take(struct cairn_srv *server,
                                         struct cairn_store_worker *worker, size_t before,
                                         struct cairn_key *ret_key, uint64_t *ret_rows,
                                         struct cairn_error *err) {
    struct copies copies;
    CAIRN_AUTO_JSON json_t *document = NULL;
    struct cairn_srv_pieces pieces = {0};
    struct taking taking = {0};
    ret_key->text[0] = '\0';
    *ret_rows = 0;
    CAIRN_TRY(find_copies(worker, &copies, err));
    if (copies.count <= before) return CAIRN_OK;
    cairn_key_catalog(copies.numbers[copies.count - 1 - before], ret_key);
    CAIRN_TRY(get_copy(worker, ret_key->text, &document, err));
    taking.document = document;
    enum cairn_code code = read_pieces(document, &pieces, err);
    if (!code) code = look_at_pieces(worker, &pieces, err);
    if (!code) code = cairn_srv_revoked_list(worker, &taking.revoked, err);
    if (!code) code = cairn_srv_catalog_write(server->catalog, take, &taking, err);
    if (!code) code = take_pieces(server, worker, &pieces, &taking.rows, err);
    cairn_srv_pieces_release(&pieces);
    cairn_srv_revoked_release(&taking.revoked);
    if (!code) *ret_rows = taking.rows;
    return code;
}
