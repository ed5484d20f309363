/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan,postgresql */
/* Two servers over one catalog in PostgreSQL and one store (E2 of server/README.md). */
#include "tests/server/servers.h"

#define LEASE "--job-lease=1s", "--sweep-interval=100ms"

/* What the other server is asked with. */
static struct cairn_hand_save over(const struct cairn_hand_save *save, struct cairn_hand *hand,
                                   struct cairn_world *world) {
    struct cairn_hand_save other = *save;
    *hand = *save->hand;
    hand->world = world;
    other.hand = hand;
    return other;
}

static const char *why_of(const struct cairn_world *world) {
    return world->err.message;
}

static struct cairn_error *err_of(struct cairn_world *world) {
    return &world->err;
}

#define err failure /* of the macros */
static struct cairn_error failure;

TEST(what_one_server_begins_the_other_goes_on_with_and_both_show_it) {
    TWO_SERVERS();
    struct cairn_hand hand, other;
    struct cairn_hand_save save;
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    for (uint64_t step = 1; step <= 4; step++) {
        struct cairn_world *first = step % 2 ? &one : &two, *second = step % 2 ? &two : &one;
        hand.world = first;
        REQUIRE_OK(hand_begin(&hand, step, 1, "error", &save));
        hand.world = &one; /* which has the store open */
        json_t *shard = hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
        struct cairn_hand_save there = over(&save, &other, second);
        REQUIRE_OK(hand_send(&there, json_pack("[o]", shard), NULL, NULL));
        hand.world = first;
        save.hand = &hand;
        REQUIRE_OK(hand_seal_alone(&save, 0, "x", 3));
        EXPECT_WAITED(&there, "state", "committed");
        for (int i = 0; i < 2; i++) {
            struct cairn_world *world = i ? &two : &one;
            CAIRN_AUTO_JSON json_t *latest = NULL;
            REQUIRE_OK(world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
            EXPECT_EQ_U64(world_number(latest, "step"), step);
        }
    }
    EXPECT(!cairn_daemon_logged(&one.server, "catalog.behind"));
    EXPECT(!cairn_daemon_logged(&two.server, "catalog.behind"));
}

TEST(a_server_without_the_others_grant_key_is_refused_with_what_to_do) { /* Q38 */
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(servers_first(&one, NULL, NULL));
    REQUIRE(servers_place(&one, &two));
    EXPECT(!world_restart(&two, NULL, NULL));
    EXPECT(strstr(why_of(&two), "copy grant.key from the data_dir of one of them"));
    uint8_t key[CAIRN_GRANT_KEY_BYTES] = {1};
    REQUIRE_OK(cairn_file_replace(TEXT("%s/grant.key", two.data_path),
                                  (struct cairn_view){key, sizeof(key)}, 0600, &err));
    EXPECT(!world_restart(&two, NULL, NULL));
    EXPECT(strstr(why_of(&two), "is not the key that the other servers"));
    REQUIRE(servers_copy_key(&one, &two));
    EXPECT(world_restart(&two, NULL, NULL));
}

/* ---- a server that is stopped in the middle of a job ---- */

static bool is_stopped(const struct cairn_world *world) {
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)world->server.pid);
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file) fclose(file);
    const char *state = size ? strrchr(text, ')') : NULL;
    return state && state[2] == 'T';
}

/* By its row: what is gone is not shown. */
static bool becomes(const struct cairn_world *world, const char *condition) {
    const char *sql = TEXT("SELECT count(*) FROM versions WHERE %s", condition);
    return AWAIT(cairn_postgres_number(world->catalog, sql) == 1);
}

static unsigned count_in_log(const struct cairn_world *world, const char *text) {
    CAIRN_AUTO(buf) log = {.limit = 16 * CAIRN_MIB};
    struct cairn_error ignored = {0};
    unsigned count = 0;
    if (cairn_file_load(world->server.log, &log, &ignored) || !log.size) return 0;
    for (const char *at = log.data; (at = strstr(at, text)); at++) count++;
    return count;
}

/* Leases of versions: other jobs of a living server, such as comparing a run with the store, hold
 * some for moments. */
static bool versions_held_become(const struct cairn_world *world, int64_t count) {
    static const char sql[] = "SELECT count(*) FROM leases WHERE job LIKE 'version/%'";
    return AWAIT(cairn_postgres_number(world->catalog, sql) == count);
}

/* Takes over, and what comes back finishes nothing: one line says committed, of both. */
static void stop_in_commit(const char *point) {
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(
        servers_first(&one, WORLD_ARGS(LEASE), WORLD_ARGS(TEXT("CAIRN_CRASH_AT=%s:stop", point))));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    CAIRN_AUTO(calling) sealing = {0};
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_begin(&hand, 1, 1, "error", &save));
    REQUIRE_OK(hand_register(&save, "x", 0, CAIRN_VIEW("abc")));
    REQUIRE(hand_send_begin(&save, json_pack("[o]", hand_seal(0, NULL, "x", 3)), &sealing));
    AWAIT(is_stopped(&one));
    bool started = servers_second(&one, &two, WORLD_ARGS(LEASE));
    EXPECT(started && becomes(&two, "recorded = 1"));
    kill(one.server.pid, SIGCONT);
    (void)calling_end(&sealing);
    EXPECT(cairn_daemon_stop(&one.server, SIGTERM, HANG_MS) == 0); /* its jobs have ended */
    EXPECT_EQ_U64(
        count_in_log(&one, "checkpoint.committed") + count_in_log(&two, "checkpoint.committed"), 1);
    EXPECT(!world_call(&two, "POST", TEXT("%s/verify", save.path), NULL, NULL));
    EXPECT(versions_held_become(&one, 0));
}

TEST(a_server_stopped_at_any_point_of_a_commit_finishes_nothing_that_another_took_over) {
    NEED_POSTGRES;
    EACH_TEXT(text, "server.commit.before_proof", "server.commit.after_checksums",
              "server.commit.after_manifest", "server.commit.after_transaction",
              "server.commit.before_record", "server.commit.after_record",
              "server.commit.after_recorded") {
        printf("    %s\n", text);
        stop_in_commit(text);
        REQUIRE(world_forget(cairn_test_folder()));
    }
}

/* A server that is stopped inside a transaction counts as dead as soon as PostgreSQL has ended its
 * session (engine_postgres.h#2), and its jobs are free. A crash point stops all threads, wherever
 * they are. */
static bool is_stopped_in_a_transaction(const struct cairn_world *one) {
    return cairn_postgres_number(
               one->catalog,
               "SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid WHERE "
               "l.locktype = 'advisory' AND l.classid = CAST(CAST(hashtext('cairn ' || "
               "current_schema()) AS BIGINT) & 4294967295 AS OID) AND a.xact_start IS NOT NULL") >
           0;
}

TEST(a_job_that_another_server_holds_keeps_none_of_the_others_waiting) { /* as SKIP LOCKED would */
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(
        servers_first(&one, NULL, WORLD_ARGS("CAIRN_CRASH_AT=server.commit.before_proof:stop")));
    struct cairn_hand hand, other;
    struct cairn_hand_save saves[2];
    CAIRN_AUTO(calling) sealing = {0};
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    for (uint64_t i = 0; i < 2; i++) {
        REQUIRE_OK(hand_begin(&hand, i + 1, 1, "error", &saves[i]));
        REQUIRE_OK(hand_register(&saves[i], "x", 0, CAIRN_VIEW("abc")));
    }
    REQUIRE(hand_send_begin(&saves[0], json_pack("[o]", hand_seal(0, NULL, "x", 3)), &sealing));
    AWAIT(is_stopped(&one));
    bool lives = !is_stopped_in_a_transaction(&one);
    bool started = servers_second(&one, &two, NULL);
    EXPECT(started);
    struct cairn_hand_save there = over(&saves[1], &other, &two);
    CAIRN_AUTO_JSON json_t *version = NULL;
    EXPECT_CODE(hand_seal_alone(&there, 0, "x", 3), CAIRN_OK);
    EXPECT_CODE(hand_wait(&there, &version), CAIRN_OK);
    EXPECT_EQ_TEXT(world_text(version, "state"), "committed");
    if (lives) {
        EXPECT(versions_held_become(&one, 1));
        EXPECT_EQ_U64(
            cairn_postgres_number(one.catalog, "SELECT state FROM versions WHERE step = 1"), 0);
    }
    kill(one.server.pid, SIGCONT);
    (void)calling_end(&sealing);
    EXPECT(becomes(&one, "recorded = 1 AND step = 1"));
    if (!lives) return; /* the other one may have committed both */
    /* Said after the catalog has it. */
    EXPECT(AWAIT(count_in_log(&one, "checkpoint.committed") == 1));
    EXPECT(AWAIT(count_in_log(&two, "checkpoint.committed") == 1));
}

static void stop_in_sweep(const char *point) {
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(servers_first(&one, WORLD_ARGS(LEASE, "--trash-grace=0ms"),
                          WORLD_ARGS(TEXT("CAIRN_CRASH_AT=%s:stop", point))));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_save_all(&hand, 3, 1, "error", 100, &save));
    REQUIRE_OK(world_call(&one, "DELETE", save.path, NULL, NULL));
    AWAIT(is_stopped(&one));
    bool started = servers_second(&one, &two, WORLD_ARGS(LEASE, "--trash-grace=0ms"));
    EXPECT(started && becomes(&two, "state = 4"));
    kill(one.server.pid, SIGCONT);
    EXPECT(cairn_daemon_stop(&one.server, SIGTERM, HANG_MS) == 0); /* its jobs have ended */
    EXPECT_EQ_U64(count_in_log(&one, "version.gone") + count_in_log(&two, "version.gone"), 1);
    EXPECT_EQ_U64(cairn_postgres_number(one.catalog, "SELECT sum(sweeps) FROM versions"), 1);
}

TEST(a_server_stopped_at_any_point_of_a_sweep_finishes_nothing_that_another_took_over) {
    NEED_POSTGRES;
    EACH_TEXT(text, "server.sweep.after_record", "server.sweep.after_manifest",
              "server.sweep.before_gone") {
        printf("    %s\n", text);
        stop_in_sweep(text);
        REQUIRE(world_forget(cairn_test_folder()));
    }
}

/* ---- rules of time, of two servers under clocks of the test ---- */

static bool start_both_inside(struct cairn_world *one, struct cairn_world *two,
                              const char *const *extra) {
    const char *before = getenv("CAIRN_TEST_CATALOG");
    if (!before) setenv("CAIRN_TEST_CATALOG", "postgresql", 1);
    bool good = world_start_inside(one, extra);
    memcpy(two->catalog, one->catalog, sizeof(two->catalog));
    good = good && world_start_inside(two, extra);
    if (!before) unsetenv("CAIRN_TEST_CATALOG");
    if (!good) fprintf(stderr, "%s%s\n", why_of(one), why_of(two));
    return good;
}

/* Both go on, and run their rounds one after the other. */
struct both {
    struct cairn_world *worlds[2];
    uint64_t round_ms, since_ms; /* the last round */
};
static void pass_both(struct both *both, uint64_t ms) {
    bool due = (both->since_ms += ms) >= both->round_ms;
    for (int i = 0; i < 2; i++) {
        struct cairn_inside *inside = &both->worlds[i]->inside;
        inside->clock.mono_ms += ms;
        inside->clock.boot_ms += ms;
        inside->clock.wall_ms += (int64_t)ms;
        srv_nodes_awake(&inside->server);
    }
    for (int i = 0; i < 2 && due; i++) inside_round(&both->worlds[i]->inside);
    if (due) both->since_ms = 0;
}

/* The node talks to the second server alone, and the save is the first one's to judge. */
static void talk_to_the_other(const char *silence, uint64_t silence_ms, uint64_t beat_ms,
                              uint64_t round_ms) {
    CAIRN_AUTO(world) one = {0}, two = {0};
    struct both both = {.worlds = {&one, &two}, .round_ms = round_ms};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *living = NULL, *ended = NULL;
    REQUIRE(start_both_inside(&one, &two, WORLD_ARGS(silence)));
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    struct cairn_hand there = hand;
    there.world = &two;
    REQUIRE_OK(hand_beat(&there, "node-a"));
    REQUIRE_OK(hand_begin(&hand, 1, 1, "error", &save));
    uint64_t tick = world_tick(&one), passed_ms = 0;
    for (; passed_ms < 3 * silence_ms + 2 * round_ms; passed_ms += beat_ms) {
        pass_both(&both, beat_ms);
        EXPECT_CODE(hand_beat(&there, "node-a"), CAIRN_OK);
    }
    REQUIRE_OK(world_call(&one, "GET", save.path, NULL, &living));
    EXPECT_EQ_TEXT(world_text(living, "state"), "open");
    uint64_t added_ms = world_tick(&two) - tick;
    EXPECT(added_ms <= passed_ms);
    EXPECT(added_ms + 2 * round_ms >= passed_ms);
    for (uint64_t ms = 0; ms < silence_ms + silence_ms / 4 + 3 * MINUTE_MS; ms += beat_ms)
        pass_both(&both, beat_ms);
    REQUIRE_OK(world_call(&one, "GET", save.path, NULL, &ended));
    EXPECT(strstr(world_text(ended, "reason"), "node-a was not heard"));
}

TEST(a_node_that_talks_to_one_server_is_not_silent_to_another_and_no_second_counts_twice) /* V23 */
{
    NEED_POSTGRES;
    talk_to_the_other("--silence-max=10min", 10 * MINUTE_MS, MINUTE_MS / 2, MINUTE_MS / 2);
    REQUIRE(world_forget(cairn_test_folder()));
    talk_to_the_other("--silence-max=20s", 20000, 5000, 5000);
    REQUIRE(world_forget(cairn_test_folder()));
    talk_to_the_other("--silence-max=20s", 20000, 5000, MINUTE_MS / 2);
}

/* ---- a resume at one server, of a node that talks to another ---- */

TEST(a_resume_waits_for_what_a_node_has_told_another_server_and_no_longer) { /* Q3 */
    TWO_SERVERS();
    struct cairn_hand hand;
    CAIRN_AUTO(calling) resuming = {0};
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    struct cairn_hand there = hand;
    there.world = &two;
    json_t *body = json_pack("{s:s, s:i, s:s, s:i, s:i, s:[{s:i, s:s}], s:s}", "job", "j2",
                             "world_size", 1, "resume", "latest", "after", 1, "wait_staged_ms",
                             55000, "ranks", "rank", 0, "proc", "p2", "node", "node-b");
    REQUIRE_OK(hand_unsent(&there, "node-a", 1, NULL));
    REQUIRE(calling_begin(&resuming, &one, "POST", WORLD_RUN "/attempts", body));
    for (int i = 0; i < 15; i++) { /* as long as something is unsent there */
        cairn_test_pause_ms(200);  /* pause of a stand-in: a node that still sends, for 3 s */
        EXPECT_CODE(hand_unsent(&there, "node-a", 1, NULL), CAIRN_OK);
        EXPECT(!resuming.done);
    }
    uint64_t from_ms = cairn_mono_ms();
    AWAIT((EXPECT(!hand_beat(&there, "node-a")), resuming.done));
    EXPECT(cairn_mono_ms() - from_ms < 50000); /* it would wait for 55 s in all */
    EXPECT_CODE(calling_end(&resuming), CAIRN_OK);
}

/* ---- what one has acknowledged the other one shows ---- */

static void note_at(struct cairn_world *world, const struct cairn_hand_save *save, int number) {
    const char *note = TEXT("note %d", number);
    EXPECT_CODE(cairn_rest_set_if_match(world->rest, "*", err_of(world)), CAIRN_OK);
    EXPECT_CODE(world_call(world, "PATCH", save->path, json_pack("{s:s}", "note", note), NULL),
                CAIRN_OK);
    EXPECT_CODE(cairn_rest_set_if_match(world->rest, NULL, err_of(world)), CAIRN_OK);
}

static void expect_note(struct cairn_world *world, const char *path, int number) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    const char *note = TEXT("note %d", number);
    EXPECT_CODE(world_call(world, "GET", path, NULL, &version), CAIRN_OK);
    EXPECT_EQ_TEXT(world_text(version, "note"), note);
}

TEST(no_server_answers_older_than_what_another_has_acknowledged) { /* E2 */
    TWO_SERVERS();
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE_OK(hand_save_all(&hand, i + 1, 1, "error", 100, &saves[i]));
    const char *undelete = TEXT("%s/undelete", saves[1].path);
    const char *manifest = TEXT("%s/manifest", saves[1].path);
    for (int i = 0; i < 50; i++) {
        struct cairn_world *writes = i % 2 ? &one : &two, *looks = i % 2 ? &two : &one;
        CAIRN_AUTO_JSON json_t *latest = NULL, *back = NULL;
        note_at(writes, &saves[1], i);
        expect_note(looks, saves[1].path, i);
        expect_note(looks, WORLD_RUN "/checkpoints/latest", i);
        /* A manifest that is in the memory of both is not served when its version is away. */
        EXPECT_CODE(world_call(looks, "GET", manifest, NULL, NULL), CAIRN_OK);
        EXPECT_CODE(world_call(writes, "DELETE", saves[1].path, NULL, NULL), CAIRN_OK);
        EXPECT_CODE(world_call(looks, "GET", WORLD_RUN "/checkpoints/2", NULL, NULL),
                    CAIRN_NOT_FOUND);
        EXPECT_CODE(world_call(looks, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest),
                    CAIRN_OK);
        EXPECT_EQ_U64(world_number(latest, "step"), 1);
        EXPECT_CODE(world_call(writes, "POST", undelete, NULL, NULL), CAIRN_OK);
        EXPECT_CODE(world_call(looks, "GET", WORLD_RUN "/checkpoints/latest", NULL, &back),
                    CAIRN_OK);
        EXPECT_EQ_U64(world_number(back, "step"), 2);
    }
}

/* One GET with an If-None-Match; the status, and the answer's tag. */
static int ask_unless(const struct cairn_world *world, const char *path, const char *tag,
                      char ret_tag[80]) {
    CAIRN_AUTO(buf) reply = {0};
    char request[600];
    int size = snprintf(request, sizeof(request),
                        "GET %s HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: %s\r\n\r\n", path,
                        tag[0] ? tag : "\"none\"");
    int status = cairn_raw_exchange(world->server.port, request, (size_t)size, &reply);
    const char *at = reply.size ? strstr(reply.data, "\r\nETag: ") : NULL;
    snprintf(ret_tag, 80, "%.*s", at ? (int)strcspn(at + 8, "\r") : 0, at ? at + 8 : "");
    return status;
}

TEST(the_tag_of_before_an_acknowledged_change_is_no_servers_304_afterwards) { /* E2b */
    TWO_SERVERS();
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char before[80] = "", tag[80], again[80];
    REQUIRE_OK(hand_open(&one, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 100, &save));
    const char *const paths[] = {save.path, WORLD_RUN "/checkpoints/latest",
                                 WORLD_RUN "/checkpoints/1"};
    for (int i = 0; i < 60; i++) {
        struct cairn_world *writes = i % 2 ? &one : &two, *looks = i % 2 ? &two : &one;
        note_at(writes, &save, i);
        for (size_t k = 0; k < CAIRN_COUNT(paths); k++) {
            EXPECT_EQ_U64(ask_unless(looks, paths[k], before, tag), 200);
            EXPECT_EQ_U64(ask_unless(writes, paths[k], tag, again), 304);
            EXPECT_EQ_TEXT(again, tag); /* of both servers alike */
        }
        snprintf(before, sizeof(before), "%s", tag);
    }
}
