/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Rank tables, the proof over them, and the layout object (Q33, P1). */
#include "tests/server/world.h"

/* One flat fragment of the tensor "w" (F32, 100 elements), as this rank's table. */
struct piece {
    uint32_t rank;
    uint64_t start, count;
    enum cairn_tensor_kind kind;
};

static bool make_table(const struct piece *piece, const char *shard_name, struct cairn_buf *ret,
                       char ret_hex[65]) {
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    if (cairn_table_builder_new(piece->rank, &builder, NULL)) return false;
    struct cairn_table_shard shard = {cairn_view_of(shard_name), piece->count * 4, false};
    uint32_t index = 0;
    if (cairn_table_add_shard(builder, &shard, &index, NULL)) return false;
    struct cairn_tensor tensor = {.name = CAIRN_VIEW("w"),
                                  .dtype = CAIRN_DTYPE_F32,
                                  .dimension_count = 1,
                                  .shape = {100},
                                  .kind = piece->kind};
    struct cairn_fragment fragment = {.form = CAIRN_FRAGMENT_FLAT,
                                      .start = {piece->start},
                                      .count = {piece->count},
                                      .shard = index,
                                      .size_bytes = piece->count * 4};
    if (cairn_table_add_tensor(builder, &tensor, &fragment, 1, NULL) ||
        cairn_table_finish(builder, ret, NULL))
        return false;
    uint8_t digest[32];
    cairn_table_digest(cairn_buf_view(ret), digest);
    cairn_hex_encode(digest, 32, ret_hex);
    return true;
}

/* A save of "w" by two ranks with these pieces; tables are sent when the server wants them. */
static enum cairn_code send_pieces(struct cairn_hand *hand, uint64_t step,
                                   const struct piece pieces[2], const char *const crcs[2],
                                   struct cairn_hand_save *save) {
    struct cairn_error *err = &hand->world->err;
    CAIRN_TRY(hand_begin(hand, step, 1, "error", save));
    for (uint32_t rank = 0; rank < 2; rank++) {
        CAIRN_AUTO(buf) table = {0};
        char hex[65];
        static uint8_t bytes[400];
        uint64_t size = pieces[rank].count * 4;
        const char *name = TEXT("r%u", rank);
        if (!make_table(&pieces[rank], name, &table, hex))
            return cairn_fail(err, CAIRN_INTERNAL, "no table");
        json_t *seal = hand_seal(rank, hex, name, size);
        if (crcs)
            json_object_set_new(seal, "replicated",
                                json_pack("[{s:s, s:s}]", "name", "w", "crc32c", crcs[rank]));
        CAIRN_TRY(hand_register(save, name, rank, (struct cairn_view){bytes, size}));
        enum cairn_code code = hand_send(save, NULL, json_pack("[O]", seal), NULL);
        if (code == CAIRN_TABLE_UNKNOWN) {
            if (hand_table(hand, cairn_buf_view(&table), hex) != 201)
                return cairn_fail(err, CAIRN_INTERNAL, "the table was not taken");
            code = hand_send(save, NULL, json_pack("[O]", seal), NULL);
        }
        json_decref(seal);
        CAIRN_TRY(code);
    }
    return CAIRN_OK;
}

static enum cairn_code save_pieces(struct cairn_hand *hand, uint64_t step,
                                   const struct piece pieces[2], const char *const crcs[2],
                                   struct cairn_hand_save *save, json_t **ret_version) {
    CAIRN_TRY(send_pieces(hand, step, pieces, crcs, save));
    return hand_wait(save, ret_version);
}

static const struct piece halves[2] = {{0, 0, 50, CAIRN_TENSOR_SHARDED},
                                       {1, 50, 50, CAIRN_TENSOR_SHARDED}};

static bool find_layout(struct cairn_world *world, const struct cairn_hand_save *save,
                        struct cairn_key *ret_key) {
    struct cairn_version_place place = hand_place(save);
    CAIRN_AUTO(buf) text = {0};
    CAIRN_AUTO(manifest) manifest = {0};
    KEY(key, manifest, save);
    if (cairn_store_get_small(world->worker, key.text, &text, NULL) ||
        cairn_manifest_decode(cairn_buf_view(&text), &manifest, NULL) || !manifest.has_layout)
        return false;
    cairn_key_layout(&place.name, manifest.layout_digest, &manifest.layout_writer, ret_key);
    return true;
}

#define err world.err /* of the macros */

TEST(a_layout_is_proven_written_once_and_shared_by_the_next_step) { /* Q33 */
    WORLD();
    struct cairn_hand_save first, second;
    CAIRN_AUTO_JSON json_t *one = NULL, *two = NULL;
    HAND(2);
    REQUIRE_OK(save_pieces(&hand, 1, halves, NULL, &first, &one));
    EXPECT_EQ_TEXT(world_text(one, "state"), "committed");
    REQUIRE_OK(save_pieces(&hand, 2, halves, NULL, &second, &two));
    EXPECT_EQ_TEXT(world_text(one, "layout"), world_text(two, "layout"));
    struct cairn_key first_key, second_key;
    REQUIRE(find_layout(&world, &first, &first_key));
    REQUIRE(find_layout(&world, &second, &second_key));
    EXPECT_EQ_TEXT(first_key.text, second_key.text);
    EXPECT(strstr(first_key.text, ".layout"));
    GOT(tensors, TEXT("%s/tensors?q=w", second.path));
    EXPECT_SHOWS(tensors, "items.0.dtype", "F32", "items.0.fragments", "2", "items.0.bytes", "400");
}

TEST(a_hole_in_a_tensor_aborts_the_version_and_names_tensor_and_region) { /* Q22, P1 */
    WORLD();
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *version = NULL;
    static const struct piece hole[2] = {{0, 0, 50, CAIRN_TENSOR_SHARDED},
                                         {1, 60, 40, CAIRN_TENSOR_SHARDED}};
    HAND(2);
    REQUIRE_OK(save_pieces(&hand, 1, hole, NULL, &save, &version));
    EXPECT(strcmp(world_text(version, "state"), "committed"));
    EXPECT(strstr(world_text(version, "reason"), "w"));
    EXPECT(strstr(world_text(version, "reason"), "50"));
}

TEST(replicated_tensors_that_differ_are_committed_and_reported) { /* commit.h#4 */
    WORLD();
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *version = NULL;
    static const struct piece whole[2] = {{0, 0, 100, CAIRN_TENSOR_REPLICATED},
                                          {1, 0, 100, CAIRN_TENSOR_REPLICATED}};
    static const char *const crcs[2] = {"00000001", "00000002"};
    HAND(2);
    REQUIRE_OK(save_pieces(&hand, 1, whole, crcs, &save, &version));
    EXPECT_EQ_TEXT(world_text(version, "state"), "committed");
    const char *warning =
        json_string_value(json_array_get(json_object_get(version, "warnings"), 0));
    REQUIRE(warning);
    EXPECT(strstr(warning, "tensor w differs: rank 0 has checksum 00000001, rank 1 has 00000002"));
}

TEST(tables_are_only_taken_whole_sound_and_with_a_grant) {
    JOB(2);
    char hex[65];
    WITH(buf, table, make_table(&halves[0], "r0", &table, hex));
    const char *path = TEXT(WORLD_RUN "/tables/%s", hex);
    EXPECT_CODE(
        cairn_rest_bytes(world.rest, "HEAD", path, NULL, (struct cairn_view){0}, NULL, NULL, &err),
        CAIRN_NOT_FOUND);
    EXPECT(hand_table(&hand, cairn_buf_view(&table), hex) == 201);
    EXPECT(hand_table(&hand, cairn_buf_view(&table), hex) == 200);
    EXPECT_CODE(
        cairn_rest_bytes(world.rest, "HEAD", path, NULL, (struct cairn_view){0}, NULL, NULL, &err),
        CAIRN_OK);
    table.data[0] ^= 1;
    EXPECT(hand_table(&hand, cairn_buf_view(&table), hex) == 422); /* not that digest */
    uint8_t digest[32];
    cairn_table_digest(cairn_buf_view(&table), digest);
    cairn_hex_encode(digest, 32, hex);
    EXPECT(hand_table(&hand, cairn_buf_view(&table), hex) == 422); /* its digest, but no table */
    struct cairn_hand stranger = hand;
    stranger.grant[strlen(stranger.grant) - 1] ^= 1;
    EXPECT(hand_table(&stranger, cairn_buf_view(&table), hex) == 401);
}

/* Part number `part` of `of`, of half of its bytes each; more: of the query. */
static int put_part_for(const struct cairn_hand *hand, const struct cairn_buf *table,
                        const char *hex, unsigned part, unsigned of, const char *more) {
    size_t half = table->size / 2, size = part == 1 ? half : table->size - half;
    struct cairn_buf piece = {.data = table->data + (part == 1 ? 0 : half), .size = size};
    const char *target = TEXT("%s?part=%u&of=%u%s", hex, part, of, more);
    return hand_table(hand, cairn_buf_view(&piece), target);
}
static int put_part(const struct cairn_hand *hand, const struct cairn_buf *table, const char *hex,
                    unsigned part, unsigned of) {
    return put_part_for(hand, table, hex, part, of, "");
}

TEST(a_table_in_parts_is_one_with_its_last_part_and_parts_that_make_none_are_dropped) {
    JOB(2);
    char hex[65];
    WITH(buf, table, make_table(&halves[0], "r0", &table, hex));
    const char *path = TEXT(WORLD_RUN "/tables/%s", hex);
    EXPECT(put_part(&hand, &table, hex, 2, 2) == 409); /* the first one is not there */
    EXPECT(put_part(&hand, &table, hex, 1, 2) == 202);
    EXPECT(put_part(&hand, &table, hex, 1, 2) == 202);
    EXPECT_CODE(
        cairn_rest_bytes(world.rest, "HEAD", path, NULL, (struct cairn_view){0}, NULL, NULL, &err),
        CAIRN_NOT_FOUND);
    table.data[0] ^= 1;
    EXPECT(put_part(&hand, &table, hex, 1, 2) == 202);
    EXPECT(put_part(&hand, &table, hex, 2, 2) == 422); /* not that digest */
    table.data[0] ^= 1;
    EXPECT(put_part(&hand, &table, hex, 2, 2) == 409); /* the wrong one has gone, too */
    EXPECT(put_part(&hand, &table, hex, 1, 2) == 202);
    EXPECT(put_part(&hand, &table, hex, 2, 2) == 201);
    EXPECT_CODE(
        cairn_rest_bytes(world.rest, "HEAD", path, NULL, (struct cairn_view){0}, NULL, NULL, &err),
        CAIRN_OK);
    EXPECT(put_part(&hand, &table, hex, 1, 2) == 200); /* of another rank with the same table */
    EXPECT(put_part(&hand, &table, hex, 3, 2) == 400);
    EXPECT(put_part(&hand, &table, hex, 0, 2) == 400);
    EXPECT(put_part(&hand, &table, hex, 1, 100000) == 400);
    struct cairn_hand stranger = hand;
    stranger.grant[strlen(stranger.grant) - 1] ^= 1;
    EXPECT(put_part(&stranger, &table, hex, 1, 2) == 401);
}

TEST(a_body_that_was_sent_in_parts_counts_as_if_it_had_come_with_its_call) {
    static const uint8_t bytes[100];
    JOB(1);
    BEGUN(save, 1);
    json_t *shard = hand_shard(&save, "x", 0, (struct cairn_view){bytes, sizeof(bytes)});
    CAIRN_AUTO_JSON json_t *json =
        json_pack("{s:s, s:s, s:[o], s:[o]}", "grant", hand.grant, "node", "node-a", "shards",
                  shard, "seals", hand_seal(0, NULL, "x", sizeof(bytes)));
    CAIRN_AUTO(buf) body = {0};
    REQUIRE(json && !cairn_json_dump(json, &body, NULL));
    uint8_t digest[32];
    char hex[65];
    cairn_table_digest(cairn_buf_view(&body), digest);
    cairn_hex_encode(digest, 32, hex);
    const char *path = TEXT("%s/shards?digest=%s&of=2", save.path, hex);
    EXPECT(put_part_for(&hand, &body, hex, 1, 2, "&for=shards") == 202);
    EXPECT_REFUSED(CAIRN_TABLE_UNKNOWN, "POST", path, json_object());
    EXPECT(put_part_for(&hand, &body, hex, 2, 2, "&for=shards") == 202);
    EXPECT_CODE(world_call(&world, "POST", path, json_object(), NULL), CAIRN_OK);
    EXPECT_WAITED(&save, "state", "committed");
    /* its parts have gone */
    EXPECT_REFUSED(CAIRN_TABLE_UNKNOWN, "POST", path, json_object());
    EXPECT(put_part_for(&hand, &body, hex, 1, 2, "&for=tables") == 400);
    EXPECT_REFUSED(CAIRN_INVALID, "POST", TEXT("%s/shards?digest=%s", save.path, hex),
                   json_object());
}

TEST(a_server_killed_after_the_layout_object_goes_on) {
    WORLD_IN("CAIRN_CRASH_AT=server.commit.after_layout");
    struct cairn_hand_save save;
    HAND(2);
    (void)!save_pieces(&hand, 1, halves, NULL, &save, NULL);
    REQUIRE(cairn_daemon_ended(&world.server, HANG_MS));
    EXPECT(WIFSIGNALED(world.server.status) && WTERMSIG(world.server.status) == SIGKILL);
    REQUIRE(world_restart(&world, NULL, NULL));
    EXPECT_WAITED(&save, "state", "committed");
}

/* Two versions with one layout, which the first of them wrote. */
static bool saved_twice(struct cairn_world *world, struct cairn_hand *hand,
                        struct cairn_hand_save saves[2], struct cairn_key *ret_key) {
    for (uint64_t i = 0; i < 2; i++) {
        CAIRN_AUTO_JSON json_t *version = NULL;
        if (save_pieces(hand, i + 1, halves, NULL, &saves[i], &version) ||
            strcmp(world_text(version, "state"), "committed"))
            return false;
    }
    struct cairn_key of_first;
    return find_layout(world, &saves[0], &of_first) && find_layout(world, &saves[1], ret_key) &&
           !strcmp(of_first.text, ret_key->text);
}

#define TWICE(...)                                                                                 \
    JOB_INSIDE(__VA_ARGS__);                                                                       \
    struct cairn_hand_save saves[2];                                                               \
    struct cairn_key key;                                                                          \
    REQUIRE(saved_twice(&world, &hand, saves, &key))

TEST(a_layout_is_swept_only_when_no_version_names_it_any_more) { /* Q33, V20 */
    TWICE(2, "--trash-grace=1h");
    inside_pass(&world.inside, 60 * HOUR_MS);
    EXPECT(world_holds(&world, &key));
    ASK("DELETE", saves[0].path, NULL);
    inside_pass(&world.inside, 60 * HOUR_MS);
    EXPECT(world_holds(&world, &key));
    ASK("DELETE", saves[1].path, NULL);
    inside_pass(&world.inside, 24 * HOUR_MS);
    EXPECT(world_holds(&world, &key));
    inside_pass(&world.inside, 30 * HOUR_MS);
    EXPECT(!world_holds(&world, &key));
}

TEST(a_layout_object_that_somebody_removed_is_written_again_by_the_next_save) { /* Q33 */
    INSIDE();
    struct cairn_hand_save saves[2], third;
    struct cairn_key key;
    CAIRN_AUTO_JSON json_t *version = NULL;
    HAND(2);
    REQUIRE(saved_twice(&world, &hand, saves, &key));
    REQUIRE(!cairn_store_delete(world.worker, key.text, NULL));
    REQUIRE_OK(save_pieces(&hand, 3, halves, NULL, &third, &version));
    EXPECT_EQ_TEXT(world_text(version, "state"), "committed");
    EXPECT(world_holds(&world, &key));
}

TEST(a_layout_outlives_the_version_that_wrote_it) { /* Q33 */
    TWICE(2, "--trash-grace=1h");
    ASK("DELETE", saves[0].path, NULL);
    inside_pass(&world.inside, 2 * HOUR_MS);
    EXPECT_REFUSED(CAIRN_DELETED, "GET", saves[0].path, NULL);
    EXPECT(world_holds(&world, &key));
    EXPECT_GET(TEXT("%s/tensors", saves[1].path), "items.#", "1");
}

/* A backup from before the second save: it knows of nobody who names the layout. */
static bool forget_second(struct cairn_world *world) {
    return world_sql(world, "DELETE FROM version_ranks WHERE version IN (SELECT version FROM "
                            "versions WHERE step = 2)") &&
           world_sql(world, "DELETE FROM versions WHERE step = 2");
}

TEST(d07_no_layout_of_a_frozen_run_is_swept_since_the_store_knows_who_names_it) { /* Q33, Q36 */
    TWICE(2, "--trash-grace=1h");
    ASK("DELETE", saves[0].path, NULL);
    inside_pass(&world.inside, 2 * HOUR_MS);
    REQUIRE(forget_second(&world));
    REQUIRE_OK(inside_restart(&world.inside));
    inside_pass(&world.inside, 50 * HOUR_MS); /* nobody reconciles: a store is away, say */
    EXPECT_REFUSED(CAIRN_CATALOG_BEHIND, "GET", WORLD_RUN, NULL);
    EXPECT(world_holds(&world, &key));
    (void)!world_call(&world, "POST", WORLD_RUN "/reconcile", NULL, NULL);
    inside_pass(&world.inside, HOUR_MS);
    EXPECT_GET(TEXT("%s/tensors", saves[1].path), "items.#", "1");
}

TEST(a_layout_object_of_other_tables_is_damage) { /* P3, P14 */
    static const struct piece others[2] = {{0, 0, 40, CAIRN_TENSOR_SHARDED},
                                           {1, 40, 60, CAIRN_TENSOR_SHARDED}};
    INSIDE();
    struct cairn_hand_save one, two;
    struct cairn_key own, foreign;
    CAIRN_AUTO_JSON json_t *first = NULL, *second = NULL;
    HAND(2);
    REQUIRE_OK(save_pieces(&hand, 1, halves, NULL, &one, &first));
    REQUIRE_OK(save_pieces(&hand, 2, others, NULL, &two, &second));
    REQUIRE(find_layout(&world, &one, &own) && find_layout(&world, &two, &foreign));
    WITH_OK(buf, bytes, cairn_store_get_small(world.worker, foreign.text, &bytes, &err));
    PERFORMED(put, world.worker,
              {.op = CAIRN_STORE_PUT, .key = own.text, .body = cairn_buf_view(&bytes)});
    EXPECT_REFUSED(CAIRN_CORRUPT, "GET", TEXT("%s/tensors", one.path), NULL);
    EXPECT(strstr(err.message, own.text + strlen(own.text) - 30));
}

/* ---- a manifest of a life that the catalog has forgotten (Q53) ---- */

static bool drop_object(struct cairn_world *world, const struct cairn_key *key) {
    return !cairn_store_delete(world->worker, key->text, NULL);
}

/* As if the server had died between manifest and transaction, and a backup of the catalog from
 * before the two saves had been put back: their layout, manifests and checksums are in the store.
 * The shards go too, since these tests send the bytes of a save again with its report. */
static bool forget_both(struct cairn_world *world, const struct cairn_hand_save saves[2]) {
    for (int i = 0; i < 2; i++) {
        struct cairn_version_place place = hand_place(&saves[i]);
        struct cairn_key record, shards[2];
        cairn_key_committed(&place, &record);
        cairn_key_shard(&place, CAIRN_VIEW("r0"), &shards[0]);
        cairn_key_shard(&place, CAIRN_VIEW("r1"), &shards[1]);
        if (!drop_object(world, &record) || !drop_object(world, &shards[0]) ||
            !drop_object(world, &shards[1]))
            return false;
    }
    return world_sql(world, "DELETE FROM versions") && world_sql(world, "DELETE FROM layouts") &&
           !inside_restart(&world->inside);
}

static void expect_told_again(struct cairn_hand *hand, const struct cairn_hand_save *before,
                              const struct cairn_key *layout) {
    struct cairn_world *world = hand->world;
    struct cairn_hand_save again;
    struct cairn_key key = {0};
    CAIRN_AUTO_JSON json_t *version = NULL, *tensors = NULL;
    EXPECT(!save_pieces(hand, before->step, halves, NULL, &again, &version));
    EXPECT_ALL_TEXT(again.id.text, before->id.text, world_text(version, "state"), "committed");
    EXPECT(find_layout(world, &again, &key));
    EXPECT_EQ_TEXT(key.text, layout->text);
    EXPECT(world_holds(world, layout));
    EXPECT(!world_call(world, "GET", TEXT("%s/tensors", before->path), NULL, &tensors));
    EXPECT_EQ_U64(json_array_size(json_object_get(tensors, "items")), 1);
}

TEST(a_save_whose_manifest_a_forgotten_life_wrote_commits_with_the_layout_object_it_names_V37) {
    INSIDE();
    struct cairn_hand_save saves[2], later;
    struct cairn_key key, of_later;
    CAIRN_AUTO_JSON json_t *version = NULL;
    HAND(2);
    REQUIRE(saved_twice(&world, &hand, saves, &key));
    REQUIRE(forget_both(&world, saves));
    /* Another save is the first that this catalog sees with the layout. */
    REQUIRE_OK(save_pieces(&hand, 3, halves, NULL, &later, &version));
    REQUIRE(find_layout(&world, &later, &of_later));
    EXPECT(strcmp(of_later.text, key.text) != 0);
    expect_told_again(&hand, &saves[1], &key);
    expect_told_again(&hand, &saves[0], &key);
    inside_pass(&world.inside, 60 * HOUR_MS);
    EXPECT(world_holds(&world, &key) && world_holds(&world, &of_later));
}

TEST(a_layout_object_that_gave_way_to_a_forgotten_lifes_is_swept_Q33) {
    TWICE(2);
    REQUIRE(forget_both(&world, saves));
    /* It writes an object of its own before it finds its manifest, which names the first one's. */
    expect_told_again(&hand, &saves[1], &key);
    expect_told_again(&hand, &saves[0], &key);
    uint64_t own = world_count(&world, "SELECT count(*) FROM layouts WHERE deleted = 0");
    EXPECT_EQ_U64(own, 2);
    inside_pass(&world.inside, 60 * HOUR_MS);
    EXPECT(world_holds(&world, &key));
    EXPECT_ROWS(1, "layouts WHERE deleted = 2");
}

TEST(a_save_whose_manifest_names_a_layout_object_that_was_swept_is_not_committed) { /* V20, Q53 */
    struct cairn_hand_save again;
    TWICE(2);
    REQUIRE(world_sql(&world, "CREATE TABLE swept AS SELECT * FROM layouts"));
    REQUIRE(forget_both(&world, saves));
    REQUIRE(world_sql(&world, "UPDATE swept SET deleted = 2"));
    REQUIRE(world_sql(&world, "INSERT INTO layouts SELECT * FROM swept"));
    REQUIRE_OK(send_pieces(&hand, saves[1].step, halves, NULL, &again));
    EXPECT_EQ_TEXT(again.id.text, saves[1].id.text);
    inside_round(&world.inside);
    EXPECT_GET(again.path, "state", "open");
}

/* The store freezes the run once the commit has begun: here when it keeps which object holds the
 * layout. */
TEST(a_run_that_is_frozen_while_a_save_is_committed_gets_no_version) { /* Q36 */
    if (cairn_postgres_wanted()) SKIP("the trigger is SQLite's");
    struct cairn_hand_save save;
    JOB_INSIDE(2);
    REQUIRE(world_sql(
        &world, "CREATE TRIGGER freezes AFTER UPDATE OF layout_writer ON versions BEGIN INSERT "
                "INTO frozen_runs(run_id, cause, since_ms) VALUES(NEW.run_id, 'more', 1); END"));
    (void)!send_pieces(&hand, 1, halves, NULL, &save);
    inside_round(&world.inside);
    KEY(manifest, manifest, &save);
    EXPECT(world_holds(&world, &manifest)); /* it came that far */
    EXPECT_ROWS(0, "versions WHERE committed_ms > 0");
}

/* The layout objects of the run; *ret: one of them. */
static size_t layouts_there(struct cairn_world *world, struct cairn_key *ret) {
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = {
        .op = CAIRN_STORE_LIST, .key = "llm/seven/", .listing = &listing};
    size_t count = 0;
    if (cairn_store_perform(world->worker, &list, NULL)) return 999;
    for (size_t i = 0; i < listing.count; i++) {
        if (!strstr(listing.entries[i].key, ".layout")) continue;
        snprintf(ret->text, sizeof(ret->text), "%s", listing.entries[i].key);
        count++;
    }
    cairn_store_listing_release(&listing);
    return count;
}

TEST(a_layout_object_goes_with_a_version_that_was_given_up_also_when_it_comes_late) { /* Q30 */
    struct cairn_key key, other;
    JOB_INSIDE(2);
    BEGUN(save, 1);
    KEY(manifest, manifest, &save); /* the commit stops there, behind the layout */
    REQUIRE_OK(cairn_store_put_small(world.worker, manifest.text, CAIRN_VIEW("{}"), true, &err));
    REQUIRE_OK(send_pieces(&hand, 1, halves, NULL, &save));
    REQUIRE_AWAIT((inside_round(&world.inside), layouts_there(&world, &key) == 1));
    WITH_OK(buf, bytes, cairn_store_get_small(world.worker, key.text, &bytes, &err));
    ASK("POST", TEXT("%s/abort", save.path), NULL);
    inside_pass(&world.inside, HOUR_MS / 2);
    EXPECT_EQ_U64(layouts_there(&world, &other), 0);
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&bytes), true, &err));
    EXPECT_EQ_U64(layouts_there(&world, &other), 1);
    inside_pass(&world.inside, HOUR_MS);
    EXPECT_EQ_U64(layouts_there(&world, &other), 0);
}
