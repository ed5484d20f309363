/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again races="full: as server/save" */
/* The catalog and the store's identity: what is refused at start, what a change means. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "server/db/sql.h"
#include "store/open.h"
#include "tests/server/world.h"

static const struct cairn_srv_statement insert = {"insert", "t",
                                                  "INSERT INTO meta(name, value) VALUES(?1, 'x')"};
static const struct cairn_srv_statement counting = {"count", "", "SELECT count(*) FROM meta"};
static const struct cairn_srv_statement clear = {"clear", "", "DELETE FROM meta"};

static enum cairn_code add(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const int *value = argument;
    CAIRN_TRY(cairn_srv_sql_run(tx, NULL, err, &insert, SQL_T(*value % 2 ? "odd" : "even")));
    return *value < 0 ? cairn_fail(err, CAIRN_CONFLICT, "on purpose") : CAIRN_OK;
}

static enum cairn_code count(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    bool found = false;
    return cairn_srv_sql_number(tx, &found, argument, err, &counting);
}

static enum cairn_code write_in_a_look(struct cairn_srv_tx *tx, void *argument,
                                       struct cairn_error *err) {
    (void)argument;
    return cairn_srv_sql_run(tx, NULL, err, &clear);
}

TEST(a_change_that_fails_leaves_nothing_and_its_neighbours_stay) /* catalog.h#1, catalog.h#2 */
{
    struct cairn_error err = {0};
    struct cairn_srv_catalog *catalog = NULL;
    REQUIRE_OK(cairn_srv_catalog_open(cairn_test_folder(), &catalog, &err));
    int good = 2, bad = -3;
    EXPECT_CODE(cairn_srv_catalog_write(catalog, add, &bad, &err), CAIRN_CONFLICT);
    EXPECT_CODE(cairn_srv_catalog_write(catalog, add, &good, &err), CAIRN_OK);
    int64_t rows = 0;
    EXPECT_CODE(cairn_srv_catalog_read(catalog, count, &rows, &err), CAIRN_OK);
    EXPECT_EQ_U64(rows, 1);
    EXPECT(cairn_srv_catalog_read(catalog, write_in_a_look, NULL, &err) !=
           CAIRN_OK); /* catalog.h#4 */
    cairn_srv_catalog_free(catalog);
}

TEST(d01_a_second_process_on_the_catalog_is_refused) /* D06 */
{
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_error err = {0};
    struct cairn_srv_catalog *catalog = NULL;
    EXPECT_CODE(cairn_srv_catalog_open(world.data_path, &catalog, &err), CAIRN_CONFLICT);
}

static bool make_newer(const struct cairn_world *world) {
    if (world->catalog[0])
        return cairn_postgres_run(world->catalog, "UPDATE cairn_catalog SET schema = 99");
    char path[400];
    snprintf(path, sizeof(path), "%s/catalog.db", world->data_path);
    /* user_version: a big-endian number at byte 60 of the database header. */
    static const uint8_t number[4] = {0, 0, 0, 99};
    CAIRN_AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && pwrite(fd, number, sizeof(number), 60) == sizeof(number);
}

TEST(k12_a_catalog_of_a_newer_schema_is_refused_by_its_number) /* K12 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    (void)cairn_daemon_stop(&world.server, SIGTERM, 10000);
    REQUIRE(make_newer(&world));
    EXPECT(!cairn_world_restart(&world, NULL, NULL));
    EXPECT(strstr(world.err.message, "schema 99"));
}

/* Of the file of SQLite; 0: it has no tables. */
static unsigned schema_of(const struct cairn_world *world) {
    char path[400];
    uint8_t number[4] = {0};
    snprintf(path, sizeof(path), "%s/catalog.db", world->data_path);
    CAIRN_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || pread(fd, number, sizeof(number), 60) != sizeof(number)) return 0;
    return (unsigned)number[2] << 8 | number[3];
}

TEST(k12_a_migration_that_is_killed_midway_leaves_the_catalog_as_it_was) {
    unsigned last = cairn_srv_catalog_schema();
    EXPECT(last > 1);
    for (unsigned at = 1; at <= last; at += at < last && at + 6 > last ? last - at : 6) {
        CAIRN_AUTO(world) world = {0};
        struct cairn_hand hand;
        struct cairn_hand_save save;
        char point[80];
        REQUIRE(cairn_world_forget(cairn_test_folder()));
        snprintf(point, sizeof(point), "CAIRN_CRASH_AT=server.catalog.migrated:%u:kill", at);
        EXPECT(!cairn_world_start(&world, NULL, WORLD_ARGS(point)));
        if (!world.catalog[0]) EXPECT_EQ_U64(schema_of(&world), 0);
        REQUIRE(cairn_world_restart(&world, NULL, NULL));
        struct cairn_store_options store = {.url = world.store_path};
        REQUIRE(!cairn_store_open(&store, &world.store, &world.err));
        REQUIRE(!cairn_store_worker_new(world.store, &world.worker, &world.err));
        REQUIRE(!cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
        EXPECT(!cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    }
}

TEST(a_store_with_the_uuid_of_another_catalog_is_refused) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    (void)cairn_daemon_stop(&world.server, SIGTERM, 10000);
    struct cairn_store_record record = {.owner = "stranger", .format = 1, .generation = 1};
    cairn_uuid_random(record.uuid);
    struct cairn_key key;
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0};
    cairn_key_store_json(&key);
    REQUIRE_OK(cairn_store_record_encode(&record, &text, &err));
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&text), false, &err));
    EXPECT(!cairn_world_restart(&world, NULL, NULL));
    EXPECT(strstr(world.err.message, "stranger"));
}

TEST(d07_a_lost_catalog_is_noticed_and_nothing_is_opened_or_deleted) /* D07, Q36, V4 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_error err = {0};
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    (void)cairn_daemon_stop(&world.server, SIGTERM, 10000);
    REQUIRE(cairn_world_lose_catalog(&world));
    REQUIRE(cairn_world_restart(&world, NULL, NULL));
    EXPECT_CODE(cairn_world_call(&world, "GET", "/v1/runs", NULL, NULL), CAIRN_CATALOG_BEHIND);
    EXPECT_CODE(cairn_hand_open(&world, &hand, "j2", 0, "latest", 1), CAIRN_CATALOG_BEHIND);
    /* Taken over by hand: the attempt's record in the store is still in the way of number 1. */
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--adopt-store=true"), NULL));
    EXPECT_CODE(cairn_hand_open(&world, &hand, "j2", 0, "latest", 1), CAIRN_CATALOG_BEHIND);
}

TEST(a_generation_that_another_server_raised_stops_attempts_at_once) /* Q35 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_key key;
    struct cairn_hand hand;
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0};
    struct cairn_store_record record = {0};
    cairn_key_store_json(&key);
    REQUIRE_OK(cairn_store_get_small(world.worker, key.text, &text, &err));
    REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&text), &record, &err));
    record.generation++;
    cairn_buf_clear(&text);
    REQUIRE_OK(cairn_store_record_encode(&record, &text, &err));
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&text), false, &err));
    EXPECT_CODE(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1), CAIRN_CATALOG_BEHIND);
    EXPECT_CODE(cairn_world_call(&world, "GET", "/v1/runs", NULL, NULL), CAIRN_CATALOG_BEHIND);
}

TEST(the_generation_rises_with_every_start) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_error err = {0};
    for (uint64_t wanted = 1; wanted <= 3; wanted++) {
        REQUIRE(wanted == 1 ? cairn_world_start(&world, NULL, NULL)
                            : cairn_world_restart(&world, NULL, NULL));
        struct cairn_key key;
        CAIRN_AUTO(buf) text = {0};
        struct cairn_store_record record = {0};
        cairn_key_store_json(&key);
        REQUIRE_OK(cairn_store_get_small(world.worker, key.text, &text, &err));
        REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&text), &record, &err));
        EXPECT_EQ_U64(record.generation, wanted);
    }
}

TEST(the_grant_key_is_private_and_a_readable_one_is_refused) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    char path[400];
    snprintf(path, sizeof(path), "%s/grant.key", world.data_path);
    struct stat status;
    REQUIRE(!stat(path, &status));
    EXPECT_EQ_U64(status.st_mode & 0777, 0600);
    (void)cairn_daemon_stop(&world.server, SIGTERM, 10000);
    REQUIRE(!chmod(path, 0644));
    EXPECT(!cairn_world_restart(&world, NULL, NULL));
    EXPECT(strstr(world.err.message, "can be read by others"));
}

TEST(a_server_whose_catalog_has_runs_does_not_start_without_its_grant_key) /* Q49, Q38 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    char path[400], aside[400];
    snprintf(path, sizeof(path), "%s/grant.key", world.data_path);
    snprintf(aside, sizeof(aside), "%s/aside", world.data_path);
    /* Without runs there is nothing that an old key has signed. */
    (void)cairn_daemon_stop(&world.server, SIGTERM, 10000);
    REQUIRE(!unlink(path));
    REQUIRE(cairn_world_restart(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_error err = {0};
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    (void)cairn_daemon_stop(&world.server, SIGTERM, 10000);
    REQUIRE(!rename(path, aside));
    EXPECT(!cairn_world_restart(&world, NULL, NULL));
    EXPECT(strstr(world.err.message, "grant.key"));
    EXPECT(strstr(world.err.message, "new-grant-key"));
    struct stat status;
    EXPECT(stat(path, &status) != 0); /* and none was made in silence */
    /* Put back, everything goes on. */
    REQUIRE(!rename(aside, path));
    REQUIRE(cairn_world_restart(&world, NULL, NULL));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &save));
    /* Lost for good: a new one is made when an operator says so, and old grants are refused. */
    (void)cairn_daemon_stop(&world.server, SIGTERM, 10000);
    REQUIRE(!unlink(path));
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--new-grant-key=true"), NULL));
    EXPECT(cairn_daemon_logged(&world.server, "grant.key_made"));
    EXPECT_CODE(cairn_hand_save_all(&hand, 3, 1, "error", 10, &save), CAIRN_UNAUTHORIZED);
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j2", 1, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 3, 1, "error", 10, &save));
}
