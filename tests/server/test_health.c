/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What readyz says is what can be done: a row and an object are written and read (health.h#1,
 * health.h#2). */
#include "server/health.h"
#include "tests/server/world.h"

#define err world.err /* of the macros */

/* readyz until it says so, for at most wait_ms; what it said last. */
static bool ready_is(struct cairn_world *world, bool wanted, uint64_t wait_ms, json_t **ret) {
    uint64_t until_ms = cairn_mono_ms() + wait_ms;
    for (;;) {
        json_t *said = NULL;
        (void)!world_call(world, "GET", "/readyz", NULL, &said);
        bool ready = said && json_is_true(json_object_get(said, "ready"));
        if (!said) said = json_incref((json_t *)(uintptr_t)cairn_rest_problem(world->rest));
        json_decref(*ret);
        *ret = said;
        if (ready == wanted || cairn_mono_ms() > until_ms) return ready == wanted;
        cairn_test_pause_ms(20); /* step of a poll */
    }
}

static const char *check(const json_t *said, const char *name) {
    return world_text(json_object_get(said, "checks"), name);
}

TEST(a_store_that_cannot_be_written_makes_the_server_not_ready) { /* health.h#1 */
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *said = NULL;
    REQUIRE(world_start(&world, NULL, WORLD_ARGS("CAIRN_CHECK_INTERVAL=100ms")));
    EXPECT(ready_is(&world, true, 5000, &said));
    EXPECT(json_is_integer(json_object_get(json_object_get(said, "age_ms"), "store")));
    /* store.json is there and can be read; nothing can be put beside it under that name. */
    const char *path = TEXT("%s/.cairn/health.json", world.store_path);
    REQUIRE_AWAIT(!access(path, F_OK));
    REQUIRE(!unlink(path) || errno == ENOENT);
    for (int i = 0; i < 100 && mkdir(path, 0700); i++) (void)unlink(path);
    EXPECT(ready_is(&world, false, 10000, &said));
    /* The folder may have come between a write and its reading back; the next check writes. */
    AWAIT(EXPECT(ready_is(&world, false, 0, &said)) &&
          strstr(check(said, "store"), "it cannot be written"));
    EXPECT_EQ_TEXT(check(said, "catalog"), "ok");
    REQUIRE(!rmdir(path));
    EXPECT(ready_is(&world, true, 10000, &said));
}

TEST(a_server_that_stops_says_so_in_its_sign) {
    struct srv_sign first = {0}, sign = {0}, last = {0};
    struct cairn_store_record record;
    struct cairn_error none;
    WORLD_IN("CAIRN_CHECK_INTERVAL=100ms");
    REQUIRE_AWAIT(!srv_sign_read(world.worker, &first, &none));
    EXPECT_ALL_U64(first.interval_ms, 100, first.stopped_at, 0);
    AWAIT(!srv_sign_read(world.worker, &sign, &none) && sign.mark[0] &&
          strcmp(sign.mark, first.mark) != 0); /* another one each time */
    REQUIRE(!kill(world.server.pid, SIGTERM) && cairn_daemon_ended(&world.server, HANG_MS));
    REQUIRE_OK(srv_sign_read(world.worker, &last, &err));
    REQUIRE_OK(cairn_store_record_get(world.worker, 0, &record, &err));
    EXPECT_EQ_U64(last.stopped_at, record.generation);
}

/* health.h#1, health.h#2 */
TEST(a_catalog_that_takes_no_change_makes_the_server_not_ready_and_readyz_answers) {
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *said = NULL;
    struct srv_tx *shell = NULL;
    REQUIRE(world_start(&world, NULL, WORLD_ARGS("CAIRN_CHECK_INTERVAL=100ms")));
    EXPECT(ready_is(&world, true, 5000, &said));
    REQUIRE_OK(srv_sqlite_open(TEXT("%s/catalog.db", world.data_path), false, &shell, &err));
    REQUIRE_OK(srv_sqlite_exec(shell, "BEGIN IMMEDIATE", &err));
    EXPECT(ready_is(&world, false, 30000, &said));
    EXPECT(strcmp(check(said, "catalog"), "ok"));
    REQUIRE_OK(srv_sqlite_exec(shell, "ROLLBACK", &err));
    srv_sqlite_free(shell);
    EXPECT(ready_is(&world, true, 15000, &said));
}

TEST(a_transaction_that_fails_makes_the_server_not_ready_at_once) { /* health.h#3 */
    NEED_SQLITE;
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *said = NULL;
    struct srv_tx *shell = NULL;
    REQUIRE(world_start(&world, NULL, WORLD_ARGS("CAIRN_CHECK_INTERVAL=1h")));
    EXPECT(ready_is(&world, true, 5000, &said));
    REQUIRE_OK(srv_sqlite_open(TEXT("%s/catalog.db", world.data_path), false, &shell, &err));
    REQUIRE_OK(srv_sqlite_exec(shell, "BEGIN IMMEDIATE", &err));
    EXPECT(world_call(&world, "PUT", "/v1/runs/a/b", json_object(), NULL));
    EXPECT(ready_is(&world, false, 0, &said));
    REQUIRE_OK(srv_sqlite_exec(shell, "ROLLBACK", &err));
    srv_sqlite_free(shell);
    EXPECT(ready_is(&world, true, 15000, &said)); /* it is looked at again by itself */
}

static uint64_t notice_ms(const char *catalog, const char *more) {
    char *argv[] = {(char[]){"cairn-server"}, (char[]){"--store=/srv"}, (char *)(uintptr_t)catalog,
                    (char *)(uintptr_t)more, NULL};
    struct srv_settings settings = {0};
    struct cairn_config config = {0};
    bool done = false;
    int argc = more ? 4 : catalog ? 3 : 2;
    bool read = !srv_settings_load(argc, argv, &config, &settings, &done, NULL);
    uint64_t ms = settings.stop_notice_ms;
    if (read) cairn_config_release(&config);
    return read ? ms : UINT64_MAX;
}

TEST(servers_that_may_share_a_catalog_announce_their_stop_for_five_seconds_unless_told_otherwise) {
    unsetenv("CAIRN_STOP_NOTICE"); /* which programs of tests are started with */
    EXPECT_EQ_U64(notice_ms(NULL, NULL), 0);
    EXPECT_EQ_U64(notice_ms("--catalog=postgresql://db/cairn", NULL), 5000);
    EXPECT_EQ_U64(notice_ms("--catalog=postgresql://db/cairn", "--stop-notice=0ms"), 0);
}
