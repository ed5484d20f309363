/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save" */
/* The catalog and the store's identity: what is refused at start, what a change means. */
#include "tests/server/world.h"

static const struct srv_statement insert = {"insert", "t",
                                            "INSERT INTO meta(name, value) VALUES(?1, 'x')"};
static const struct srv_statement counting = {"count", "", "SELECT count(*) FROM meta"};
static const struct srv_statement clear = {"clear", "", "DELETE FROM meta"};

static enum cairn_code add(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    const int *value = argument;
    CAIRN_TRY(srv_sql_run(tx, NULL, err, &insert, SQL_T(*value % 2 ? "odd" : "even")));
    return *value < 0 ? cairn_fail(err, CAIRN_CONFLICT, "on purpose") : CAIRN_OK;
}

TEST(a_change_that_fails_leaves_nothing_and_its_neighbours_stay, err) /* catalog.h#1, catalog.h#2 */
{
    CATALOG(catalog, cairn_test_folder());
    int good = 2, bad = -3;
    EXPECT_CODE(srv_catalog_write(catalog, add, &bad, &err), CAIRN_CONFLICT);
    EXPECT_CODE(srv_catalog_write(catalog, add, &good, &err), CAIRN_OK);
    int64_t rows = 0;
    bool found = false;
    SRV_AUTO(look) look = {0};
    EXPECT_CODE(srv_look_begin(catalog, &look, &err), CAIRN_OK);
    EXPECT_CODE(srv_sql_number(look.tx, &found, &rows, &err, &counting), CAIRN_OK);
    EXPECT_EQ_U64(rows, 1);
    EXPECT(srv_sql_run(look.tx, NULL, &err, &clear) != CAIRN_OK); /* catalog.h#4 */
    srv_look_release(&look);
}

static void look_in_a_look(void *argument) {
    struct srv_look outer = {0}, inner = {0};
    (void)!srv_look_begin(argument, &outer, NULL);
    (void)!srv_look_begin(argument, &inner, NULL);
}

static void change_in_a_look(void *argument) {
    struct srv_look look = {0};
    int even = 2;
    (void)!srv_look_begin(argument, &look, NULL);
    (void)!srv_catalog_write(argument, add, &even, NULL);
}

static bool aborts(void (*function)(void *), struct srv_catalog *catalog) {
    char text[512];
    int status = cairn_test_in_child(function, catalog, text, sizeof(text));
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

TEST(a_look_has_no_look_and_no_change_within_it, err) { /* catalog.h#10 */
    struct srv_catalog *catalog = NULL;
    int even = 2;
    REQUIRE_OK(srv_catalog_open_memory(&catalog, &err));
    EXPECT(aborts(look_in_a_look, catalog));
    EXPECT(aborts(change_in_a_look, catalog));
    for (int i = 0; i < 2; i++) { /* one after the other */
        SRV_AUTO(look) look = {0};
        EXPECT_CODE(srv_look_begin(catalog, &look, &err), CAIRN_OK);
    }
    EXPECT_CODE(srv_catalog_write(catalog, add, &even, &err), CAIRN_OK);
    srv_catalog_free(catalog);
}

TEST(d01_a_second_process_on_the_catalog_is_refused, err) { /* D06 */
    NEED_SQLITE;
    WORLD();
    struct srv_catalog *catalog = NULL;
    EXPECT_CODE(srv_catalog_open(world.data_path, &catalog, &err), CAIRN_CONFLICT);
}

static bool make_newer(const struct cairn_world *world) {
    if (world->catalog[0])
        return cairn_postgres_run(world->catalog, "UPDATE cairn_catalog SET schema = 99");
    const char *path = TEXT("%s/catalog.db", world->data_path);
    /* user_version: a big-endian number at byte 60 of the database header. */
    static const uint8_t number[4] = {0, 0, 0, 99};
    CAIRN_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && pwrite(fd, number, sizeof(number), 60) == sizeof(number);
}

TEST(k12_a_catalog_of_a_newer_schema_is_refused_by_its_number) { /* K12 */
    WORLD();
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(make_newer(&world));
    EXPECT(!world_restart(&world, NULL, NULL));
    EXPECT(strstr(world.err.message, "schema 99"));
}

/* Of the file of SQLite; 0: it has no tables. */
static unsigned schema_of(const struct cairn_world *world) {
    uint8_t number[4] = {0};
    CAIRN_AUTO_FD fd = open(TEXT("%s/catalog.db", world->data_path), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || pread(fd, number, sizeof(number), 60) != sizeof(number)) return 0;
    return (unsigned)number[2] << 8 | number[3];
}

TEST(k12_a_migration_that_is_killed_midway_leaves_the_catalog_as_it_was) {
    unsigned last = srv_catalog_schema();
    EXPECT(last > 1);
    for (unsigned at = 1; at <= last; at += at < last && at + 6 > last ? last - at : 6) {
        CAIRN_AUTO(world) world = {0};
        struct cairn_hand hand;
        struct cairn_hand_save save;
        REQUIRE(world_forget(cairn_test_folder()));
        EXPECT(!world_start(
            &world, NULL, WORLD_ARGS(TEXT("CAIRN_CRASH_AT=server.catalog.migrated:%u:kill", at))));
        if (!world.catalog[0]) EXPECT_EQ_U64(schema_of(&world), 0);
        REQUIRE(world_restart(&world, NULL, NULL));
        struct cairn_store_options store = {.url = world.store_path};
        REQUIRE(!cairn_store_open(&store, &world.store, &world.err));
        REQUIRE(!cairn_store_worker_new(world.store, &world.worker, &world.err));
        REQUIRE(!hand_open(&world, &hand, "j1", 0, "latest", 1));
        EXPECT(!hand_save_all(&hand, 1, 1, "error", 10, &save));
    }
}

TEST(a_store_with_the_uuid_of_another_catalog_is_refused, err) {
    WORLD();
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    struct cairn_store_record record = {.owner = "stranger", .format = 1, .generation = 1};
    cairn_uuid_random(record.uuid);
    struct cairn_key key;
    cairn_key_store_json(&key);
    WITH_OK(buf, text, cairn_store_record_encode(&record, &text, &err));
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&text), false, &err));
    EXPECT(!world_restart(&world, NULL, NULL));
    EXPECT(strstr(world.err.message, "stranger"));
}

TEST(d07_a_lost_catalog_is_noticed_and_nothing_is_opened_or_deleted, err) { /* D07, Q36, V4 */
    JOB(1);
    SAVED(save, 1);
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(world_lose_catalog(&world));
    REQUIRE(world_restart(&world, NULL, NULL));
    EXPECT_REFUSED(CAIRN_CATALOG_BEHIND, "GET", "/v1/runs", NULL);
    EXPECT_CODE(hand_open(&world, &hand, "j2", 0, "latest", 1), CAIRN_CATALOG_BEHIND);
    /* Taken over by hand: the attempt's record in the store is still in the way of number 1. */
    REQUIRE(world_restart(&world, WORLD_ARGS("--adopt-store=true"), NULL));
    EXPECT_CODE(hand_open(&world, &hand, "j2", 0, "latest", 1), CAIRN_CATALOG_BEHIND);
}

TEST(a_generation_that_another_server_raised_stops_attempts_at_once, err) { /* Q35 */
    WORLD();
    struct cairn_key key;
    struct cairn_hand hand;
    struct cairn_store_record record = {0};
    cairn_key_store_json(&key);
    WITH_OK(buf, text, cairn_store_get_small(world.worker, key.text, &text, &err));
    REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&text), &record, &err));
    record.generation++;
    cairn_buf_clear(&text);
    REQUIRE_OK(cairn_store_record_encode(&record, &text, &err));
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&text), false, &err));
    EXPECT_CODE(hand_open(&world, &hand, "j1", 0, "latest", 1), CAIRN_CATALOG_BEHIND);
    EXPECT_REFUSED(CAIRN_CATALOG_BEHIND, "GET", "/v1/runs", NULL);
}

TEST(the_generation_rises_with_every_start, err) {
    CAIRN_AUTO(world) world = {0};
    for (uint64_t wanted = 1; wanted <= 3; wanted++) {
        REQUIRE(wanted == 1 ? world_start(&world, NULL, NULL) : world_restart(&world, NULL, NULL));
        struct cairn_key key;
        struct cairn_store_record record = {0};
        cairn_key_store_json(&key);
        WITH_OK(buf, text, cairn_store_get_small(world.worker, key.text, &text, &err));
        REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&text), &record, &err));
        EXPECT_EQ_U64(record.generation, wanted);
    }
}

TEST(the_grant_key_is_private_and_a_readable_one_is_refused) {
    WORLD();
    const char *path = TEXT("%s/grant.key", world.data_path);
    struct stat status;
    REQUIRE(!stat(path, &status));
    EXPECT_EQ_U64(status.st_mode & 0777, 0600);
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(!chmod(path, 0644));
    EXPECT(!world_restart(&world, NULL, NULL));
    EXPECT(strstr(world.err.message, "can be read by others"));
}

TEST(a_server_whose_catalog_has_runs_does_not_start_without_its_grant_key, err) { /* Q49, Q38 */
    WORLD();
    const char *path = TEXT("%s/grant.key", world.data_path);
    const char *aside = TEXT("%s/aside", world.data_path);
    /* Without runs there is nothing that an old key has signed. */
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(!unlink(path));
    REQUIRE(world_restart(&world, NULL, NULL));
    HAND(1);
    BEGUN(save, 1);
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(!rename(path, aside));
    EXPECT(!world_restart(&world, NULL, NULL));
    EXPECT_HAS(world.err.message, "grant.key", "new-grant-key");
    struct stat status;
    EXPECT(stat(path, &status) != 0); /* and none was made in silence */
    /* Put back, everything goes on. */
    REQUIRE(!rename(aside, path));
    REQUIRE(world_restart(&world, NULL, NULL));
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 10, &save));
    /* Lost for good: a new one is made when an operator says so, and old grants are refused. */
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(!unlink(path));
    REQUIRE(world_restart(&world, WORLD_ARGS("--new-grant-key=true"), NULL));
    EXPECT(cairn_daemon_logged(&world.server, "grant.key_made"));
    EXPECT_CODE(hand_save_all(&hand, 3, 1, "error", 10, &save), CAIRN_UNAUTHORIZED);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    REQUIRE_OK(hand_save_all(&hand, 3, 1, "error", 10, &save));
}
