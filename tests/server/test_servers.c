/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan,postgresql */
/* Two servers over one catalog in PostgreSQL and one store (E2 of server/README.md). */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "server/nodes/nodes.h"
#include "tests/server/servers.h"
#include "tests/support/raw.h"

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
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(cairn_servers_first(&one, NULL, NULL));
    REQUIRE(cairn_servers_second(&one, &two, NULL));
    struct cairn_hand hand, other;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&one, &hand, "j1", 0, "latest", 1));
    for (uint64_t step = 1; step <= 4; step++) {
        struct cairn_world *first = step % 2 ? &one : &two, *second = step % 2 ? &two : &one;
        hand.world = first;
        REQUIRE_OK(cairn_hand_begin(&hand, step, 1, "error", &save));
        hand.world = &one; /* which has the store open */
        json_t *shard = cairn_hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
        struct cairn_hand_save there = over(&save, &other, second);
        REQUIRE_OK(cairn_hand_send(&there, json_pack("[o]", shard), NULL, NULL));
        hand.world = first;
        save.hand = &hand;
        REQUIRE_OK(
            cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(0, NULL, "x", 3)), NULL));
        CAIRN_AUTO_JSON json_t *version = NULL;
        REQUIRE_OK(cairn_hand_wait(&there, &version));
        EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "committed");
        for (int i = 0; i < 2; i++) {
            struct cairn_world *world = i ? &two : &one;
            CAIRN_AUTO_JSON json_t *latest = NULL;
            REQUIRE_OK(
                cairn_world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
            EXPECT_EQ_U64(cairn_world_number(latest, "step"), step);
        }
    }
    EXPECT(!cairn_daemon_logged(&one.server, "catalog.behind"));
    EXPECT(!cairn_daemon_logged(&two.server, "catalog.behind"));
}

TEST(a_server_without_the_others_grant_key_is_refused_with_what_to_do) /* Q38 */
{
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(cairn_servers_first(&one, NULL, NULL));
    REQUIRE(cairn_servers_place(&one, &two));
    EXPECT(!cairn_world_restart(&two, NULL, NULL));
    EXPECT(strstr(why_of(&two), "copy grant.key from the data_dir of one of them"));
    char path[400];
    uint8_t key[CAIRN_GRANT_KEY_BYTES] = {1};
    snprintf(path, sizeof(path), "%s/grant.key", two.data_path);
    REQUIRE_OK(cairn_file_replace(path, (struct cairn_view){key, sizeof(key)}, 0600, &err));
    EXPECT(!cairn_world_restart(&two, NULL, NULL));
    EXPECT(strstr(why_of(&two), "is not the key that the other servers"));
    REQUIRE(cairn_servers_copy_key(&one, &two));
    EXPECT(cairn_world_restart(&two, NULL, NULL));
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

struct sending {
    const struct cairn_hand_save *save;
    json_t *seal;
};
static void *send_seal(void *argument) {
    struct sending *sending = argument;
    (void)!cairn_hand_send(sending->save, NULL, json_pack("[o]", sending->seal), NULL);
    return NULL;
}

/* By its row: what is gone is not shown. */
static bool becomes(const struct cairn_world *world, const char *condition) {
    char sql[200];
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM versions WHERE %s", condition);
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
    char variable[128], path[300];
    snprintf(variable, sizeof(variable), "CAIRN_CRASH_AT=%s:stop", point);
    REQUIRE(cairn_servers_first(&one, WORLD_ARGS(LEASE), WORLD_ARGS(variable)));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    pthread_t thread;
    REQUIRE_OK(cairn_hand_open(&one, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    json_t *shard = cairn_hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard), NULL, NULL));
    struct sending sending = {&save, cairn_hand_seal(0, NULL, "x", 3)};
    REQUIRE(!pthread_create(&thread, NULL, send_seal, &sending));
    AWAIT(is_stopped(&one));
    bool started = cairn_servers_second(&one, &two, WORLD_ARGS(LEASE));
    EXPECT(started && becomes(&two, "recorded = 1"));
    kill(one.server.pid, SIGCONT);
    pthread_join(thread, NULL);
    EXPECT(cairn_daemon_stop(&one.server, SIGTERM, 60000) == 0); /* its jobs have ended */
    EXPECT_EQ_U64(
        count_in_log(&one, "checkpoint.committed") + count_in_log(&two, "checkpoint.committed"), 1);
    snprintf(path, sizeof(path), "%s/verify", save.path);
    EXPECT(!cairn_world_call(&two, "POST", path, NULL, NULL));
    EXPECT(versions_held_become(&one, 0));
}

TEST(a_server_stopped_at_any_point_of_a_commit_finishes_nothing_that_another_took_over) {
    NEED_POSTGRES;
    static const char *const points[] = {
        "server.commit.before_proof",   "server.commit.after_checksums",
        "server.commit.after_manifest", "server.commit.after_transaction",
        "server.commit.before_record",  "server.commit.after_record",
        "server.commit.after_recorded",
    };
    for (size_t i = 0; i < CAIRN_COUNT(points); i++) {
        printf("    %s\n", points[i]);
        stop_in_commit(points[i]);
        REQUIRE(cairn_world_forget(cairn_test_folder()));
    }
}

TEST(a_job_that_another_server_holds_keeps_none_of_the_others_waiting) /* as SKIP LOCKED would */
{
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(cairn_servers_first(&one, NULL,
                                WORLD_ARGS("CAIRN_CRASH_AT=server.commit.before_proof:stop")));
    struct cairn_hand hand, other;
    struct cairn_hand_save saves[2];
    pthread_t thread;
    REQUIRE_OK(cairn_hand_open(&one, &hand, "j1", 0, "latest", 1));
    for (uint64_t i = 0; i < 2; i++) {
        REQUIRE_OK(cairn_hand_begin(&hand, i + 1, 1, "error", &saves[i]));
        json_t *shard = cairn_hand_shard(&saves[i], "x", 0, CAIRN_VIEW("abc"));
        REQUIRE_OK(cairn_hand_send(&saves[i], json_pack("[o]", shard), NULL, NULL));
    }
    struct sending sending = {&saves[0], cairn_hand_seal(0, NULL, "x", 3)};
    REQUIRE(!pthread_create(&thread, NULL, send_seal, &sending));
    AWAIT(is_stopped(&one));
    bool started = cairn_servers_second(&one, &two, NULL);
    EXPECT(started);
    struct cairn_hand_save there = over(&saves[1], &other, &two);
    CAIRN_AUTO_JSON json_t *version = NULL;
    json_t *seals = json_pack("[o]", cairn_hand_seal(0, NULL, "x", 3));
    EXPECT_CODE(cairn_hand_send(&there, NULL, seals, NULL), CAIRN_OK);
    EXPECT_CODE(cairn_hand_wait(&there, &version), CAIRN_OK);
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "committed");
    EXPECT(versions_held_become(&one, 1));
    EXPECT_EQ_U64(cairn_postgres_number(one.catalog, "SELECT state FROM versions WHERE step = 1"),
                  0);
    kill(one.server.pid, SIGCONT);
    pthread_join(thread, NULL);
    EXPECT(becomes(&one, "recorded = 1 AND step = 1"));
    /* Said after the catalog has it. */
    EXPECT(AWAIT(count_in_log(&one, "checkpoint.committed") == 1));
    EXPECT(AWAIT(count_in_log(&two, "checkpoint.committed") == 1));
}

static void stop_in_sweep(const char *point) {
    CAIRN_AUTO(world) one = {0}, two = {0};
    char variable[128];
    snprintf(variable, sizeof(variable), "CAIRN_CRASH_AT=%s:stop", point);
    REQUIRE(
        cairn_servers_first(&one, WORLD_ARGS(LEASE, "--trash-grace=0ms"), WORLD_ARGS(variable)));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&one, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 3, 1, "error", 100, &save));
    REQUIRE_OK(cairn_world_call(&one, "DELETE", save.path, NULL, NULL));
    AWAIT(is_stopped(&one));
    bool started = cairn_servers_second(&one, &two, WORLD_ARGS(LEASE, "--trash-grace=0ms"));
    EXPECT(started && becomes(&two, "state = 4"));
    kill(one.server.pid, SIGCONT);
    EXPECT(cairn_daemon_stop(&one.server, SIGTERM, 60000) == 0); /* its jobs have ended */
    EXPECT_EQ_U64(count_in_log(&one, "version.gone") + count_in_log(&two, "version.gone"), 1);
    EXPECT_EQ_U64(cairn_postgres_number(one.catalog, "SELECT sum(sweeps) FROM versions"), 1);
}

TEST(a_server_stopped_at_any_point_of_a_sweep_finishes_nothing_that_another_took_over) {
    NEED_POSTGRES;
    static const char *const points[] = {"server.sweep.after_record", "server.sweep.after_manifest",
                                         "server.sweep.before_gone"};
    for (size_t i = 0; i < CAIRN_COUNT(points); i++) {
        printf("    %s\n", points[i]);
        stop_in_sweep(points[i]);
        REQUIRE(cairn_world_forget(cairn_test_folder()));
    }
}

/* ---- rules of time, of two servers under clocks of the test ---- */

#define MINUTE_MS UINT64_C(60000)

static bool start_both_inside(struct cairn_world *one, struct cairn_world *two,
                              const char *const *extra) {
    const char *before = getenv("CAIRN_TEST_CATALOG");
    if (!before) setenv("CAIRN_TEST_CATALOG", "postgresql", 1);
    bool good = cairn_world_start_inside(one, extra);
    memcpy(two->catalog, one->catalog, sizeof(two->catalog));
    good = good && cairn_world_start_inside(two, extra);
    if (!before) unsetenv("CAIRN_TEST_CATALOG");
    if (!good) fprintf(stderr, "%s%s\n", why_of(one), why_of(two));
    return good;
}

static enum cairn_code heartbeat(struct cairn_world *world, const struct cairn_hand *hand,
                                 unsigned unsent) {
    return cairn_world_call(world, "PUT", "/v1/nodes/node-a",
                            json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                                      "attempts", "grant", hand->grant, "unsent", unsent,
                                      "versions"),
                            NULL);
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
        cairn_srv_nodes_awake(&inside->server);
    }
    for (int i = 0; i < 2 && due; i++) cairn_inside_round(&both->worlds[i]->inside);
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
    REQUIRE_OK(cairn_hand_open(&one, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(heartbeat(&two, &hand, 0));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    uint64_t tick = cairn_world_tick(&one), passed_ms = 0;
    for (; passed_ms < 3 * silence_ms + 2 * round_ms; passed_ms += beat_ms) {
        pass_both(&both, beat_ms);
        EXPECT_CODE(heartbeat(&two, &hand, 0), CAIRN_OK);
    }
    REQUIRE_OK(cairn_world_call(&one, "GET", save.path, NULL, &living));
    EXPECT_EQ_TEXT(cairn_world_text(living, "state"), "open");
    uint64_t added_ms = cairn_world_tick(&two) - tick;
    EXPECT(added_ms <= passed_ms);
    EXPECT(added_ms + 2 * round_ms >= passed_ms);
    for (uint64_t ms = 0; ms < silence_ms + silence_ms / 4 + 3 * MINUTE_MS; ms += beat_ms)
        pass_both(&both, beat_ms);
    REQUIRE_OK(cairn_world_call(&one, "GET", save.path, NULL, &ended));
    EXPECT(strstr(cairn_world_text(ended, "reason"), "node-a was not heard"));
}

TEST(a_node_that_talks_to_one_server_is_not_silent_to_another_and_no_second_counts_twice) /* V23 */
{
    NEED_POSTGRES;
    talk_to_the_other("--silence-max=10min", 10 * MINUTE_MS, MINUTE_MS / 2, MINUTE_MS / 2);
    REQUIRE(cairn_world_forget(cairn_test_folder()));
    talk_to_the_other("--silence-max=20s", 20000, 5000, 5000);
    REQUIRE(cairn_world_forget(cairn_test_folder()));
    talk_to_the_other("--silence-max=20s", 20000, 5000, MINUTE_MS / 2);
}

/* ---- a resume at one server, of a node that talks to another ---- */

struct resuming {
    const struct cairn_world *world;
    enum cairn_code code;
    atomic_bool done;
};
static void *resume_there(void *argument) {
    struct resuming *resuming = argument;
    struct cairn_rest_options options = {.url = resuming->world->server.url};
    struct cairn_error why = {0};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    CAIRN_AUTO_JSON json_t *body =
        json_pack("{s:s, s:i, s:s, s:i, s:i, s:[{s:i, s:s}], s:s}", "job", "j2", "world_size", 1,
                  "resume", "latest", "after", 1, "wait_staged_ms", 20000, "ranks", "rank", 0,
                  "proc", "p2", "node", "node-b");
    resuming->code = cairn_rest_new(&options, &rest, &why);
    if (!resuming->code)
        resuming->code =
            cairn_rest_call(rest, "POST", WORLD_RUN "/attempts", body, 30000, NULL, &why);
    resuming->done = true;
    return NULL;
}

TEST(a_resume_waits_for_what_a_node_has_told_another_server_and_no_longer) /* Q3 */
{
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(cairn_servers_first(&one, NULL, NULL));
    REQUIRE(cairn_servers_second(&one, &two, NULL));
    struct cairn_hand hand;
    pthread_t thread;
    struct resuming resuming = {.world = &one};
    REQUIRE_OK(cairn_hand_open(&one, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(heartbeat(&two, &hand, 1));
    REQUIRE(!pthread_create(&thread, NULL, resume_there, &resuming));
    for (int i = 0; i < 15; i++) { /* as long as something is unsent there */
        cairn_test_pause_ms(200);  /* pause of a stand-in: a node that still sends, for 3 s */
        EXPECT_CODE(heartbeat(&two, &hand, 1), CAIRN_OK);
        EXPECT(!resuming.done);
    }
    uint64_t from_ms = cairn_mono_ms();
    AWAIT((EXPECT(!heartbeat(&two, &hand, 0)), resuming.done));
    EXPECT(cairn_mono_ms() - from_ms < 17000); /* it would wait for 20 s in all */
    pthread_join(thread, NULL);
    EXPECT_CODE(resuming.code, CAIRN_OK);
}

/* ---- what one has acknowledged the other one shows ---- */

static void note_at(struct cairn_world *world, const struct cairn_hand_save *save, int number) {
    char note[32];
    snprintf(note, sizeof(note), "note %d", number);
    EXPECT_CODE(cairn_rest_set_if_match(world->rest, "*", err_of(world)), CAIRN_OK);
    EXPECT_CODE(
        cairn_world_call(world, "PATCH", save->path, json_pack("{s:s}", "note", note), NULL),
        CAIRN_OK);
    EXPECT_CODE(cairn_rest_set_if_match(world->rest, NULL, err_of(world)), CAIRN_OK);
}

static void expect_note(struct cairn_world *world, const char *path, int number) {
    char note[32];
    CAIRN_AUTO_JSON json_t *version = NULL;
    snprintf(note, sizeof(note), "note %d", number);
    EXPECT_CODE(cairn_world_call(world, "GET", path, NULL, &version), CAIRN_OK);
    EXPECT_EQ_TEXT(cairn_world_text(version, "note"), note);
}

TEST(no_server_answers_older_than_what_another_has_acknowledged) /* E2 */
{
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(cairn_servers_first(&one, NULL, NULL));
    REQUIRE(cairn_servers_second(&one, &two, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    char undelete[256], manifest[256];
    REQUIRE_OK(cairn_hand_open(&one, &hand, "j1", 0, "latest", 1));
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE_OK(cairn_hand_save_all(&hand, i + 1, 1, "error", 100, &saves[i]));
    snprintf(undelete, sizeof(undelete), "%s/undelete", saves[1].path);
    snprintf(manifest, sizeof(manifest), "%s/manifest", saves[1].path);
    for (int i = 0; i < 50; i++) {
        struct cairn_world *writes = i % 2 ? &one : &two, *looks = i % 2 ? &two : &one;
        CAIRN_AUTO_JSON json_t *latest = NULL, *back = NULL;
        note_at(writes, &saves[1], i);
        expect_note(looks, saves[1].path, i);
        expect_note(looks, WORLD_RUN "/checkpoints/latest", i);
        /* A manifest that is in the memory of both is not served when its version is away. */
        EXPECT_CODE(cairn_world_call(looks, "GET", manifest, NULL, NULL), CAIRN_OK);
        EXPECT_CODE(cairn_world_call(writes, "DELETE", saves[1].path, NULL, NULL), CAIRN_OK);
        EXPECT_CODE(cairn_world_call(looks, "GET", WORLD_RUN "/checkpoints/2", NULL, NULL),
                    CAIRN_NOT_FOUND);
        EXPECT_CODE(cairn_world_call(looks, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest),
                    CAIRN_OK);
        EXPECT_EQ_U64(cairn_world_number(latest, "step"), 1);
        EXPECT_CODE(cairn_world_call(writes, "POST", undelete, NULL, NULL), CAIRN_OK);
        EXPECT_CODE(cairn_world_call(looks, "GET", WORLD_RUN "/checkpoints/latest", NULL, &back),
                    CAIRN_OK);
        EXPECT_EQ_U64(cairn_world_number(back, "step"), 2);
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

TEST(the_tag_of_before_an_acknowledged_change_is_no_servers_304_afterwards) /* E2b */
{
    NEED_POSTGRES;
    CAIRN_AUTO(world) one = {0}, two = {0};
    REQUIRE(cairn_servers_first(&one, NULL, NULL));
    REQUIRE(cairn_servers_second(&one, &two, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char before[80] = "", tag[80], again[80];
    REQUIRE_OK(cairn_hand_open(&one, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 100, &save));
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
