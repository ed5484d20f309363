/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the catalog after new events, and writes a copy if its bytes changed; see said_copy.h. */
#include "server/guard/said_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "server/access/access.h"
#include "server/guard/identity.h"
#include "server/guard/jobs.h"

struct srv_piece {
    char sha256[2 * CAIRN_SHA256_BYTES + 1];
    uint64_t bytes, rows;
};
struct srv_pieces {
    struct srv_piece *items;
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

struct copying {
    struct srv *server;
    struct cairn_store_worker *worker;
    struct srv_said said;
    struct srv_pieces pieces, there; /* of this copy; in the store */
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

static void srv_pieces_release(struct srv_pieces *pieces) {
    free(pieces->items);
    *pieces = (struct srv_pieces){0};
}

static enum cairn_code add(struct srv_pieces *pieces, const struct srv_piece *piece,
                           struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(pieces->items, pieces->count, pieces->capacity, LISTED_MAX,
                               "pieces of what was said", err));
    pieces->items[pieces->count++] = *piece;
    return CAIRN_OK;
}

static int compare(const void *a, const void *b) {
    return strcmp(((const struct srv_piece *)a)->sha256, ((const struct srv_piece *)b)->sha256);
}

static const struct srv_piece *find(const struct srv_pieces *sorted,
                                    const struct srv_piece *piece) {
    if (!sorted->count) return NULL;
    return bsearch(piece, sorted->items, sorted->count, sizeof(*piece), compare);
}

static void sort(struct srv_pieces *pieces) {
    if (pieces->count) qsort(pieces->items, pieces->count, sizeof(*pieces->items), compare);
}

/* ---- pieces in the store, sorted ---- */

static enum cairn_code list_all(struct cairn_store_worker *worker, struct srv_pieces *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST, .key = PIECES_PREFIX}};
    while (!pages.ended) {
        CAIRN_TRY(cairn_store_pages_next(&pages, worker, err));
        for (size_t i = 0; i < pages.listing.count; i++) {
            const struct cairn_store_entry *entry = &pages.listing.entries[i];
            const char *name = entry->key + strlen(PIECES_PREFIX);
            struct srv_piece piece = {.bytes = entry->size_bytes};
            if (strlen(name) != 2 * CAIRN_SHA256_BYTES + strlen(".json")) continue;
            snprintf(piece.sha256, sizeof(piece.sha256), "%.*s", 2 * CAIRN_SHA256_BYTES, name);
            CAIRN_TRY(add(ret, &piece, err));
        }
    }
    sort(ret);
    return CAIRN_OK;
}

/* Deletes the pieces in the store that neither list names. */
static void drop_pieces_of_neither(struct cairn_store_worker *worker,
                                   const struct srv_pieces *newest,
                                   const struct srv_pieces *before) {
    SRV_AUTO(pieces) there = {0};
    SRV_AUTO(pieces) kept = {0};
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
}

/* ---- writing pieces ---- */

static enum cairn_code raise_once(struct copying *copying, struct cairn_error *err) {
    if (copying->raised) return CAIRN_OK;
    CAIRN_TRY(srv_identity_raise(copying->server, copying->worker, err));
    copying->raised = true;
    return CAIRN_OK;
}

/* Writes the piece of the prefix `number`, printed with `digits` digits. */
static enum cairn_code write_piece(struct copying *copying, unsigned number, unsigned digits,
                                   struct cairn_buf *text, struct cairn_error *err) {
    uint8_t digest[CAIRN_SHA256_BYTES];
    struct srv_piece piece = {0};
    char from[64], to[80];
    snprintf(from, sizeof(from), ID_BEGINS "%0*x", (int)(digits % 8), number);
    snprintf(to, sizeof(to), "%sg", from); /* after every hex digit */
    SRV_LOOK(look, copying->server->catalog, err);
    CAIRN_TRY(srv_said_piece(look.tx, from, to, text, &piece.rows, err));
    srv_look_release(&look);
    if (!piece.rows) return CAIRN_OK;
    cairn_sha256_of(cairn_buf_view(text), digest);
    cairn_hex_encode(digest, sizeof(digest), piece.sha256);
    piece.bytes = text->size;
    const struct srv_piece *there = find(&copying->there, &piece);
    if (!there || there->bytes != piece.bytes) {
        struct cairn_key key;
        CAIRN_TRY(raise_once(copying, err));
        cairn_key_catalog_piece(piece.sha256, &key);
        CAIRN_TRY(cairn_store_put_same(copying->worker, key.text, cairn_buf_view(text), err));
    }
    return add(&copying->pieces, &piece, err);
}

/* Reads the metadata of all versions and puts missing pieces. */
static enum cairn_code write_pieces(struct copying *copying, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = SRV_SAID_BYTES_MAX};
    uint64_t rows = copying->versions;
    unsigned count = 16, digits = 1;
    for (; digits < DIGITS_MAX && rows > (uint64_t)count * ROWS_OF_A_PIECE; digits++) count *= 16;
    CAIRN_TRY(list_all(copying->worker, &copying->there, err));
    for (unsigned i = 0; i < count; i++) {
        if (copying->server->leaving && rows > LEAVING_ROWS)
            return cairn_fail(err, CAIRN_CANCELLED, "the next start goes on with %" PRIu64 " rows",
                              rows);
        CAIRN_TRY(write_piece(copying, i, digits, &text, err));
    }
    return CAIRN_OK;
}

/* ---- pieces named in a copy ---- */

static enum cairn_code print_pieces(const struct srv_pieces *pieces, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append_text(ret, "\"pieces\":[", err));
    for (size_t i = 0; i < pieces->count; i++)
        CAIRN_TRY(cairn_buf_printf(
            ret, err, "%s{\"bytes\":%" PRIu64 ",\"rows\":%" PRIu64 ",\"sha256\":\"%s\"}",
            i ? "," : "", pieces->items[i].bytes, pieces->items[i].rows, pieces->items[i].sha256));
    return cairn_buf_append_text(ret, "],", err);
}

static enum cairn_code read_pieces(const json_t *document, struct srv_pieces *ret,
                                   struct cairn_error *err) {
    const json_t *pieces = json_object_get(document, "pieces");
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        const json_t *item = json_array_get(pieces, i);
        const char *sha256 = json_string_value(json_object_get(item, "sha256"));
        uint8_t digest[CAIRN_SHA256_BYTES];
        struct srv_piece piece = {
            .bytes = (uint64_t)json_integer_value(json_object_get(item, "bytes")),
            .rows = (uint64_t)json_integer_value(json_object_get(item, "rows"))};
        if (!sha256 || !cairn_text_copy(piece.sha256, sizeof(piece.sha256), sha256) ||
            cairn_hex_decode(cairn_view_of(sha256), digest, sizeof(digest), NULL) ||
            piece.bytes > SRV_SAID_BYTES_MAX)
            return cairn_fail(err, CAIRN_CORRUPT, "piece %zu is none", i);
        CAIRN_TRY(add(ret, &piece, err));
    }
    return CAIRN_OK;
}

/* Reads a piece and compares it with the digest in its name; CAIRN_CORRUPT: differs or missing. */
static enum cairn_code get_piece(struct cairn_store_worker *worker, const struct srv_piece *piece,
                                 json_t **ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = SRV_SAID_BYTES_MAX};
    struct cairn_json_limits limits = {.bytes = SRV_SAID_BYTES_MAX, .nodes = PIECE_VALUES_MAX};
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

static enum cairn_code read_all(struct copying *copying, struct cairn_error *err) {
    uint64_t first = 0;
    SRV_LOOK(look, copying->server->catalog, err);
    CAIRN_TRY(srv_events_bounds(look.tx, &first, &copying->event, err));
    CAIRN_TRY(srv_value_get(look.tx, WRITTEN, copying->written, sizeof(copying->written), err));
    CAIRN_TRY(srv_said_count(look.tx, &copying->versions, err));
    copying->whole = copying->versions <= WHOLE_ROWS;
    enum cairn_code code = srv_said_make(look.tx, copying->whole, &copying->said, err);
    if (code == CAIRN_TOO_LARGE && copying->whole) {
        copying->whole = false;
        code = srv_said_make(look.tx, false, &copying->said, err);
    }
    return code;
}

/* The digest covers the copy and its pieces. */
static enum cairn_code see_to_pieces(struct copying *copying, struct cairn_buf *ret_list,
                                     struct cairn_error *err) {
    uint8_t digests[2][CAIRN_SHA256_BYTES];
    if (!copying->whole) {
        CAIRN_TRY(write_pieces(copying, err));
        CAIRN_TRY(print_pieces(&copying->pieces, ret_list, err));
    }
    memcpy(digests[0], copying->said.sha256, sizeof(digests[0]));
    cairn_sha256_of(cairn_buf_view(ret_list), digests[1]);
    if (!copying->whole)
        cairn_sha256_of((struct cairn_view){digests, sizeof(digests)}, copying->said.sha256);
    cairn_hex_encode(copying->said.sha256, sizeof(copying->said.sha256), copying->digest);
    return CAIRN_OK;
}

SRV_CHANGE(keep_written, const struct copying *copying) {
    return srv_value_put(tx, WRITTEN, copying->digest, err);
}

/* ---- copies in the store ---- */

struct copies {
    uint64_t numbers[SEEN_MAX];
    int64_t written_ms[SEEN_MAX]; /* by the store's clock */
    size_t count;
};

static enum cairn_code find_copies(struct cairn_store_worker *worker, struct copies *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST, .key = PREFIX}};
    ret->count = 0;
    while (!pages.ended) {
        CAIRN_TRY(cairn_store_pages_next(&pages, worker, err));
        for (size_t i = 0; i < pages.listing.count && ret->count < SEEN_MAX; i++) {
            const struct cairn_store_entry *entry = &pages.listing.entries[i];
            struct cairn_key key;
            uint64_t number = strtoull(entry->key + strlen(PREFIX), NULL, 10);
            cairn_key_catalog(number, &key);
            if (strcmp(key.text, entry->key) != 0) continue;
            ret->written_ms[ret->count] = entry->modified_ms;
            ret->numbers[ret->count++] = number;
        }
    }
    return CAIRN_OK;
}

static enum cairn_code get_copy(struct cairn_store_worker *worker, const char *key, json_t **ret,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = SRV_SAID_BYTES_MAX + CAIRN_KIB};
    struct cairn_json_limits limits = {.bytes = SRV_SAID_BYTES_MAX + CAIRN_KIB,
                                       .nodes = VALUES_MAX};
    CAIRN_TRY(cairn_store_get_small(worker, key, &text, err));
    if (cairn_json_parse(cairn_buf_view(&text), limits, ret, err))
        return cairn_within(err, CAIRN_CORRUPT, "%s", key);
    return CAIRN_OK;
}

/* said_copy.h#8 */
static void drop_pieces(const struct copying *copying, const struct copies *copies) {
    CAIRN_AUTO_JSON json_t *document = NULL;
    SRV_AUTO(pieces) before = {0};
    struct cairn_error why = {0};
    struct cairn_key key;
    enum cairn_code code = CAIRN_OK;
    if (copies->count > 1) {
        cairn_key_catalog(copies->numbers[copies->count - 2], &key);
        code = get_copy(copying->worker, key.text, &document, &why);
        if (!code) code = read_pieces(document, &before, &why);
    }
    if (!code) drop_pieces_of_neither(copying->worker, &copying->pieces, &before);
    if (code) cairn_log(DEBUG, "catalog.pieces_unread", "cause=\"%s\"", why.message);
}

/* Failed deletions are retried with the next copy. A kept copy was read after an older one was
 * written, so no kept copy has a token that was revoked before that. */
static void drop_older(const struct copying *copying) {
    struct cairn_store_worker *worker = copying->worker;
    struct copies copies;
    struct cairn_error why = {0};
    if (find_copies(worker, &copies, &why)) return;
    drop_pieces(copying, &copies);
    if (copies.count <= KEPT) return;
    int64_t older_ms = copies.written_ms[copies.count - KEPT - 1] - CLOCKS_APART_MS;
    int64_t kept_ms = copies.written_ms[copies.count - 1] - SRV_REVOKED_KEPT_MS;
    srv_revoked_drop(worker, older_ms < kept_ms ? older_ms : kept_ms);
    for (size_t i = 0; i + KEPT < copies.count; i++) {
        struct cairn_key key;
        cairn_key_catalog(copies.numbers[i], &key);
        if (cairn_store_delete(worker, key.text, &why) != CAIRN_OK)
            cairn_log(DEBUG, "catalog.copy_left", "key=%s cause=\"%s\"", key.text, why.message);
    }
}

/* ---- writing a copy ---- */

static enum cairn_code put(struct srv *server, struct cairn_store_worker *worker,
                           struct copying *copying, const char *pieces, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = SRV_SAID_BYTES_MAX + CAIRN_KIB};
    struct cairn_key key;
    CAIRN_TRY(raise_once(copying, err));
    uint64_t number = server->raising_to;
    cairn_key_catalog(number, &key);
    CAIRN_TRY(srv_said_print(&copying->said, number, pieces, &text, err));
    CAIRN_TRY(cairn_store_put_same(worker, key.text, cairn_buf_view(&text), err));
    CAIRN_TRY(srv_catalog_write(server->catalog, keep_written, copying, err));
    cairn_log(INFO, "catalog.copied", "key=%s bytes=%zu pieces=%zu", key.text, text.size,
              copying->pieces.count);
    drop_older(copying);
    return CAIRN_OK;
}

static enum cairn_code write(struct srv_said_copy *copy, struct srv *server,
                             struct cairn_store_worker *worker, struct copying *copying,
                             struct cairn_error *err) {
    uint64_t first = 0;
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_events_bounds(look.tx, &first, &copying->event, err));
    srv_look_release(&look);
    if (copy->event && copying->event == copy->event) return CAIRN_OK;
    CAIRN_AUTO(buf) pieces = {0};
    enum cairn_code code = read_all(copying, err);
    if (!code) code = see_to_pieces(copying, &pieces, err);
    if (code == CAIRN_TOO_LARGE && !copy->too_large)
        cairn_log(WARN, "catalog.uncopied",
                  "cause=\"tokens, aliases, policies, labels of runs and the like are more than "
                  "%llu bytes\"",
                  (unsigned long long)SRV_SAID_BYTES_MAX);
    copy->too_large = code == CAIRN_TOO_LARGE;
    server->uncopied = copy->too_large;
    if (code == CAIRN_TOO_LARGE) return CAIRN_OK;
    CAIRN_TRY(code);
    bool never = !copying->said.rows && !copying->pieces.count && !copying->written[0];
    if (!never && strcmp(copying->digest, copying->written) != 0)
        CAIRN_TRY(put(server, worker, copying, pieces.data ? pieces.data : "", err));
    copy->event = copying->event;
    return CAIRN_OK;
}

enum cairn_code srv_said_copy_write(struct srv_said_copy *copy, struct srv *server,
                                    struct cairn_store_worker *worker, struct cairn_error *err) {
    uint64_t now_ms = srv_mono_ms(server);
    uint64_t every_ms = server->settings->catalog_copy_interval_ms;
    if (copy->rest_ms > every_ms) every_ms = copy->rest_ms;
    if (copy->looked_ms && now_ms - copy->looked_ms < every_ms) return CAIRN_OK;
    copy->looked_ms = now_ms;
    struct copying copying = {.server = server, .worker = worker};
    struct srv_lease lease;
    srv_lease_init(&lease, server, "catalog-copy", "");
    enum cairn_code code = srv_lease_take(&lease, err);
    if (code == CAIRN_BUSY) return CAIRN_OK;
    if (!code) code = write(copy, server, worker, &copying, err);
    srv_lease_end(&lease);
    srv_said_release(&copying.said);
    srv_pieces_release(&copying.pieces);
    srv_pieces_release(&copying.there);
    copy->rest_ms = LOOK_SHARE * cairn_passed_ms(srv_mono_ms(server), now_ms);
    return code;
}

/* ---- import by a reindex ---- */

struct taking {
    const json_t *document;
    const struct srv_revoked *revoked; /* NULL: of pieces, which have no tokens */
    uint64_t rows;
};

SRV_CHANGE(take, struct taking *taking) {
    CAIRN_TRY(srv_said_take(tx, taking->document, &taking->rows, err));
    uint64_t dropped = 0;
    if (taking->revoked) CAIRN_TRY(srv_revoked_rows(tx, taking->revoked, true, &dropped, err));
    taking->rows -= dropped;
    return CAIRN_OK;
}

static enum cairn_code take_pieces(struct srv *server, struct cairn_store_worker *worker,
                                   const struct srv_pieces *pieces, uint64_t *rows,
                                   struct cairn_error *err) {
    for (size_t i = 0; i < pieces->count; i++) {
        CAIRN_AUTO_JSON json_t *piece = NULL;
        CAIRN_TRY(get_piece(worker, &pieces->items[i], &piece, err));
        struct taking taking = {.document = piece};
        CAIRN_TRY(srv_catalog_write(server->catalog, take, &taking, err));
        *rows += taking.rows;
    }
    return CAIRN_OK;
}

enum cairn_code srv_said_copy_take(struct srv *server, struct cairn_store_worker *worker,
                                   size_t before, struct cairn_key *ret_key, uint64_t *ret_rows,
                                   struct cairn_error *err) {
    struct copies copies;
    CAIRN_AUTO_JSON json_t *document = NULL;
    SRV_AUTO(pieces) pieces = {0};
    SRV_AUTO(revoked) revoked = {0};
    ret_key->text[0] = '\0';
    *ret_rows = 0;
    CAIRN_TRY(find_copies(worker, &copies, err));
    if (copies.count <= before) return CAIRN_OK;
    cairn_key_catalog(copies.numbers[copies.count - 1 - before], ret_key);
    CAIRN_TRY(get_copy(worker, ret_key->text, &document, err));
    struct taking taking = {.document = document, .revoked = &revoked};
    CAIRN_TRY(read_pieces(document, &pieces, err));
    for (size_t i = 0; i < pieces.count; i++) { /* all pieces, before any import */
        CAIRN_AUTO_JSON json_t *piece = NULL;
        CAIRN_TRY(get_piece(worker, &pieces.items[i], &piece, err));
    }
    CAIRN_TRY(srv_revoked_list(worker, &revoked, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, take, &taking, err));
    CAIRN_TRY(take_pieces(server, worker, &pieces, &taking.rows, err));
    *ret_rows = taking.rows;
    return CAIRN_OK;
}
