/* SPDX-License-Identifier: Apache-2.0 */
/* What people have said of very many versions is in the store, too, in pieces that change alone. */
#include "server/ledger/said.h"
#include "tests/server/world.h"

#define PIECES ".cairn/catalog/versions/"
#define COPIES ".cairn/catalog/0"

/* Committed versions with a note each, as a year of saves leaves them. */
#define FILL(count, note)                                                                          \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " count ") INSERT "  \
    "INTO versions(version, run_id, attempt, step, n, nonce, state, recorded, world_size, "        \
    "on_exists, skip, format, labels, meta, note, annotated, created_ms, committed_ms, "           \
    "opened_tick) SELECT printf('ckpt_%08x-0000-8000-8000-%012x', (i * 2654435761) % 4294967296, " \
    "i), (SELECT max(run_id) FROM runs), 1, i, 1, 'n', 1, 1, 1, 0, 0, 'opaque', '{}', '{}', " note \
    ", 1, 1, 1, 1 FROM n"

static size_t count_keys(struct cairn_world *world, const char *prefix, char ret_last[200]) {
    size_t count = 0;
    char *page = NULL;
    do {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request list = {
            .op = CAIRN_STORE_LIST, .key = prefix, .page = page, .listing = &listing};
        if (cairn_store_perform(world->worker, &list, &world->err)) return SIZE_MAX;
        count += listing.count;
        if (listing.count && ret_last)
            snprintf(ret_last, 200, "%s", listing.entries[listing.count - 1].key);
        free(page);
        page = CAIRN_TAKE(listing.next_page);
    } while (page);
    return count;
}

static enum cairn_code copy_now(struct cairn_world *world) {
    struct srv_said_copy copy = {0}; /* as of a server that has just started */
    return srv_said_copy_write(&copy, &world->inside.server, world->worker, &world->err);
}

#define err world.err /* of the macros */

TEST(what_was_said_of_thousands_of_versions_is_in_pieces_and_a_change_writes_one_of_them) {
    struct cairn_key key;
    char last[200] = "";
    uint64_t rows = 0;
    INSIDE();
    struct srv *server = &world.inside.server;
    ASK("PUT", WORLD_RUN, json_object());
    REQUIRE(world_sql(&world, FILL("5000", "'said ' || i")));
    REQUIRE_OK(copy_now(&world));
    EXPECT_EQ_U64(count_keys(&world, PIECES, NULL), 16);
    REQUIRE_OK(copy_now(&world)); /* nothing has changed */
    EXPECT_EQ_U64(count_keys(&world, COPIES, NULL), 1);
    REQUIRE(world_sql(&world, "UPDATE versions SET note = 'other' WHERE step = 7"));
    REQUIRE_OK(copy_now(&world));
    EXPECT_EQ_U64(count_keys(&world, PIECES, NULL), 17);
    REQUIRE(world_sql(&world, "UPDATE versions SET note = 'third' WHERE step = 7"));
    REQUIRE_OK(copy_now(&world)); /* the first copy goes, and the piece that it alone names */
    EXPECT_ALL_U64(count_keys(&world, COPIES, NULL), 2, count_keys(&world, PIECES, NULL), 17);
    REQUIRE(world_sql(&world, "UPDATE versions SET note = ''"));
    REQUIRE_OK(srv_said_copy_take(server, world.worker, 0, &key, &rows, &err));
    EXPECT_EQ_U64(rows, 5000);
    EXPECT_ROWS(5000, "versions WHERE note <> ''");
    EXPECT_ROWS(1, "versions WHERE note = 'third'");
    /* a piece that is gone: nothing is taken of a copy that names it */
    REQUIRE(world_sql(&world, "UPDATE versions SET note = ''"));
    REQUIRE(count_keys(&world, PIECES, last) == 17);
    for (int i = 0; i < 2; i++) { /* the last by name, and another: each copy lacks one of them */
        REQUIRE_OK(cairn_store_delete(world.worker, last, &err));
        REQUIRE(count_keys(&world, PIECES, last) < 17);
    }
    EXPECT_CODE(srv_said_copy_take(server, world.worker, 0, &key, &rows, &err), CAIRN_CORRUPT);
    EXPECT_ROWS(0, "versions WHERE note <> ''");
}

TEST(tokens_and_policies_are_in_the_store_however_much_was_said_of_versions) {
    INSIDE();
    CAIRN_AUTO(buf) text = {.limit = 8 * CAIRN_MIB};
    char last[200] = "";
    ASK("PUT", WORLD_RUN, json_object());
    ASK("POST", "/v1/tokens", json_pack("{s:[s], s:s}", "scopes", "read", "name", "year"));
    /* 72 MiB of notes */
    REQUIRE(world_sql(&world, FILL("18000", "hex(zeroblob(2048))")));
    REQUIRE_OK(copy_now(&world));
    EXPECT(count_keys(&world, PIECES, NULL) == 16 && !world.inside.server.uncopied);
    REQUIRE(count_keys(&world, COPIES, last) == 1);
    REQUIRE_OK(cairn_store_get_small(world.worker, last, &text, &err));
    EXPECT(strstr(text.data, "\"name\":\"year\"") && strstr(text.data, "\"pieces\":[{"));
    EXPECT(text.size < 64 * CAIRN_KIB);
}
