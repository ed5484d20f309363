/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Opening and joining attempts, and what a resume does to what was there (Q1-Q7). */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include "common/clock.h"
#include "tests/server/world.h"

static json_t *body_of(const char *job, uint64_t after, const char *resume, uint32_t world_size,
                       uint32_t rank, const char *proc) {
    return json_pack("{s:s, s:i, s:s, s:I, s:i, s:[{s:i, s:s}], s:s}", "job", job, "world_size",
                     world_size, "resume", resume, "after", (json_int_t)after, "wait_staged_ms", 0,
                     "ranks", "rank", rank, "proc", proc, "node", "node-b");
}

static uint64_t newest_said(struct cairn_world *world) {
    return cairn_world_number(cairn_rest_problem(world->rest), "newest");
}

#define err world.err /* of the macros */

TEST(ranks_of_one_job_join_one_attempt_and_get_the_same_answer) /* Q2 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    CAIRN_AUTO_JSON json_t *first = NULL, *second = NULL, *again = NULL;
    const char *path = WORLD_RUN "/attempts";
    REQUIRE_OK(
        cairn_world_call(&world, "POST", path, body_of("j", 0, "latest", 2, 0, "p0"), &first));
    REQUIRE_OK(
        cairn_world_call(&world, "POST", path, body_of("j", 0, "latest", 2, 1, "p1"), &second));
    REQUIRE_OK(
        cairn_world_call(&world, "POST", path, body_of("j", 7, "latest", 2, 1, "p1"), &again));
    EXPECT_EQ_U64(cairn_world_number(first, "attempt"), 1);
    EXPECT_EQ_TEXT(cairn_world_text(first, "grant"), cairn_world_text(second, "grant"));
    EXPECT_EQ_TEXT(cairn_world_text(first, "grant"), cairn_world_text(again, "grant"));
    EXPECT(json_is_null(json_object_get(first, "resume_version")));
}

TEST(a_job_string_used_by_two_incarnations_is_refused) /* V2 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    const char *path = WORLD_RUN "/attempts";
    REQUIRE_OK(cairn_world_call(&world, "POST", path, body_of("j", 0, "latest", 2, 0, "p0"), NULL));
    EXPECT_CODE(cairn_world_call(&world, "POST", path, body_of("j", 1, "latest", 2, 0, "q0"), NULL),
                CAIRN_JOB_REUSED);
    EXPECT_CODE(cairn_world_call(&world, "POST", path, body_of("j", 1, "latest", 3, 1, "p1"), NULL),
                CAIRN_ATTEMPT_DIFFERS);
    EXPECT_CODE(cairn_world_call(&world, "POST", path, body_of("j", 1, "none", 2, 1, "p1"), NULL),
                CAIRN_ATTEMPT_DIFFERS);
}

TEST(a_call_that_lists_ranks_takes_all_of_them_or_none) /* Q2, Q54 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    const char *path = WORLD_RUN "/attempts";
    json_t *many = body_of("j", 0, "latest", 3, 0, "p0");
    json_array_append_new(json_object_get(many, "ranks"),
                          json_pack("{s:i, s:s}", "rank", 3, "proc", "p3"));
    EXPECT_CODE(cairn_world_call(&world, "POST", path, many, NULL), CAIRN_INVALID);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM attempt_ranks"), 0);
    many = body_of("j", 0, "latest", 3, 0, "p0");
    json_array_append_new(json_object_get(many, "ranks"),
                          json_pack("{s:i, s:s}", "rank", 2, "proc", "p2"));
    REQUIRE_OK(cairn_world_call(&world, "POST", path, many, NULL));
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM attempt_ranks"), 2);
    EXPECT_CODE(cairn_world_call(&world, "POST", path, body_of("j", 1, "latest", 3, 2, "q2"), NULL),
                CAIRN_JOB_REUSED);
    many = body_of("j", 1, "latest", 3, 1, "p1"); /* rank 1 is new, rank 2 another process */
    json_array_append_new(json_object_get(many, "ranks"),
                          json_pack("{s:i, s:s}", "rank", 2, "proc", "q2"));
    EXPECT_CODE(cairn_world_call(&world, "POST", path, many, NULL), CAIRN_JOB_REUSED);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM attempt_ranks"), 2);
}

TEST(ended_ranks_of_a_larger_world_are_taken_by_the_call_of_a_smaller_one) /* Q54 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    const char *path = WORLD_RUN "/attempts";
    REQUIRE_OK(cairn_world_call(&world, "POST", path, body_of("j", 0, "latest", 4, 3, "p"), NULL));
    json_t *smaller = body_of("k", 1, "latest", 1, 0, "q");
    json_object_set_new(smaller, "ended", json_pack("[i, i]", 3, -1));
    EXPECT_CODE(cairn_world_call(&world, "POST", path, smaller, NULL), CAIRN_INVALID);
    smaller = body_of("k", 1, "latest", 1, 0, "q");
    json_object_set_new(smaller, "ended", json_pack("[i]", 3));
    CAIRN_AUTO_JSON json_t *opened = NULL;
    REQUIRE_OK(cairn_world_call(&world, "POST", path, smaller, &opened));
    EXPECT_EQ_U64(cairn_world_number(opened, "attempt"), 2);
}

TEST(a_delayed_call_of_a_dead_job_does_not_fence_the_living_one) /* V5 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    const char *path = WORLD_RUN "/attempts";
    REQUIRE_OK(cairn_world_call(&world, "POST", path, body_of("j1", 0, "latest", 1, 0, "p"), NULL));
    EXPECT_CODE(cairn_world_call(&world, "POST", path, body_of("j0", 0, "latest", 1, 0, "p"), NULL),
                CAIRN_ATTEMPT_MOVED);
    EXPECT_EQ_U64(newest_said(&world), 1);
}

TEST(c01_an_older_attempt_can_neither_begin_register_nor_join) /* P6, C01 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand old, fresh;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &old, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&old, 5, 1, "error", &save));
    REQUIRE_OK(cairn_hand_open(&world, &fresh, "j2", 1, "latest", 1));
    EXPECT_CODE(cairn_world_call(&world, "POST", WORLD_RUN "/checkpoints",
                                 cairn_hand_begin_body(&old, 6, 1, 0, "error"), NULL),
                CAIRN_STALE_ATTEMPT);
    EXPECT_EQ_U64(newest_said(&world), 2);
    EXPECT_CODE(cairn_world_call(&world, "POST", WORLD_RUN "/attempts",
                                 body_of("j1", 2, "latest", 1, 0, "j1-0"), NULL),
                CAIRN_STALE_ATTEMPT);
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(
        cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(0, NULL, "x", 1)), &reply));
    EXPECT(strcmp(cairn_world_text(reply, "state"), "open"));
    EXPECT_EQ_TEXT(cairn_world_text(reply, "code"), "stale-attempt");
    CAIRN_AUTO_JSON json_t *body = cairn_hand_begin_body(&fresh, 6, 1, 0, "error");
    char broken[600];
    snprintf(broken, sizeof(broken), "%s", fresh.grant);
    broken[strlen(broken) - 1] ^= 1;
    json_object_set_new(body, "grant", json_string(broken));
    EXPECT_CODE(cairn_world_call(&world, "POST", WORLD_RUN "/checkpoints", json_incref(body), NULL),
                CAIRN_UNAUTHORIZED);
}

TEST(c08_a_rollback_supersedes_what_lies_beyond_and_a_later_save_is_latest) /* C08, P7, V6 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save at_1615, at_1800, at_1620;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1615, 1, "error", 10, &at_1615));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1800, 1, "error", 10, &at_1800));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j2", 1, "1615", 1));
    EXPECT_EQ_TEXT(hand.resumed, at_1615.id.text);
    CAIRN_AUTO_JSON json_t *latest = NULL, *old = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), at_1615.id.text);
    REQUIRE_OK(cairn_world_call(&world, "GET", at_1800.path, NULL, &old)); /* readable by id */
    EXPECT(json_is_true(json_object_get(old, "superseded")));
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/1800", NULL, NULL),
                CAIRN_NOT_FOUND);
    REQUIRE_OK(cairn_hand_save_all(&hand, 1620, 1, "error", 10, &at_1620));
    CAIRN_AUTO_JSON json_t *run = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN, NULL, &run));
    EXPECT_EQ_TEXT(cairn_world_text(json_object_get(run, "latest"), "version"), at_1620.id.text);
    /* A superseded version that is named is revived, and what lay beyond it goes (V6). */
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j3", 2, at_1800.id.text, 1));
    CAIRN_AUTO_JSON json_t *now = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &now));
    EXPECT_EQ_TEXT(cairn_world_text(now, "version"), at_1800.id.text);
}

TEST(resume_none_supersedes_everything_and_keep_nothing) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j2", 1, "keep", 1));
    EXPECT_EQ_TEXT(hand.resumed, "(none)");
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j3", 2, "none", 1));
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, NULL),
                CAIRN_NOT_FOUND);
    EXPECT_CODE(cairn_hand_open(&world, &hand, "j4", 3, "99", 1), CAIRN_NOT_FOUND);
}

TEST(a_resume_gives_up_a_save_that_is_not_whole_when_its_wait_is_over) /* Q3 (a) */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand, next;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 9, 1, "error", &save));
    REQUIRE_OK(
        cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(0, NULL, "x", 4)), NULL));
    /* Not whole within the wait of 2 s: it is given up, and the wait was kept. */
    uint64_t from_ms = cairn_mono_ms();
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT(cairn_mono_ms() - from_ms >= 1900);
    CAIRN_AUTO_JSON json_t *version = NULL;
    REQUIRE_OK(cairn_hand_wait(&save, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "code"), "stale-attempt");
}

TEST(a_resume_waits_until_a_living_node_has_sent_everything) /* Q3 (b) */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand, next;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    json_t *beat = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                             "attempts", "grant", hand.grant, "unsent", 1, "versions");
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a", beat, &answer));
    EXPECT_EQ_U64(cairn_world_number(answer, "generation"), 1);
    uint64_t from_ms = cairn_mono_ms();
    REQUIRE_OK(cairn_hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT(cairn_mono_ms() - from_ms >= 1900);
    json_t *late = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[{s:s}]}", "uploader", "version", "1",
                             "attempts", "grant", hand.grant, "unsent", 0, "versions", "version",
                             "ckpt_00000000-0000-8000-8000-000000000000");
    CAIRN_AUTO_JSON json_t *fenced = NULL;
    REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a", late, &fenced));
    const json_t *first = json_array_get(json_object_get(fenced, "fenced"), 0);
    EXPECT_EQ_TEXT(cairn_world_text(first, "project"), "llm");
    EXPECT_EQ_TEXT(cairn_world_text(first, "run"), "seven");
    EXPECT_EQ_U64(json_array_size(json_object_get(fenced, "unknown")), 1);
}

/* The node would be waited for 30 s: its last heartbeat was before the call, and no other comes. */
TEST(a_call_that_says_that_its_own_node_has_sent_everything_waits_for_no_heartbeat) /* Q3 (b) */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    json_t *beat = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                             "attempts", "grant", hand.grant, "unsent", 1, "versions");
    REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a", beat, NULL));
    json_t *body = body_of("j2", 1, "keep", 1, 0, "p0");
    json_object_set_new(body, "node", json_string("node-a"));
    json_object_set_new(body, "wait_staged_ms", json_integer(30000));
    json_object_set_new(body, "said", json_pack("{s:i, s:b}", "unsent", 0, "holds", 0));
    CAIRN_AUTO_JSON json_t *opened = NULL;
    uint64_t from_ms = cairn_mono_ms();
    REQUIRE_OK(cairn_world_call(&world, "POST", WORLD_RUN "/attempts", body, &opened));
    EXPECT(cairn_mono_ms() - from_ms < 15000);
    EXPECT_EQ_U64(cairn_world_number(opened, "attempt"), 2);
}

TEST(a_call_that_says_that_trainers_of_its_node_hold_the_attempt_is_refused_what_keeps_everything) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    json_t *known = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                              "attempts", "grant", hand.grant, "unsent", 0, "versions");
    json_t *later =
        json_pack("{s:{s:s}, s:[], s:[]}", "uploader", "version", "1", "attempts", "versions");
    REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a", known, NULL));
    REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a", later, NULL));
    json_t *body = body_of("j2", 1, "keep", 1, 0, "p0");
    json_object_set_new(body, "node", json_string("node-a"));
    json_object_set_new(body, "said", json_pack("{s:i, s:b}", "unsent", 0, "holds", 1));
    EXPECT_CODE(cairn_world_call(&world, "POST", WORLD_RUN "/attempts", body, NULL),
                CAIRN_RUN_BUSY);
}

TEST(grants_outlive_a_restart_of_the_server) /* Q38 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE(cairn_world_restart(&world, NULL, NULL));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
}

TEST(what_keeps_everything_is_refused_while_a_node_still_trains_and_may_be_forced) /* Q7 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand, put;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    json_t *beat = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                             "attempts", "grant", hand.grant, "unsent", 0, "versions");
    REQUIRE_OK(cairn_world_call(&world, "PUT", "/v1/nodes/node-a", beat, NULL));
    EXPECT_CODE(cairn_hand_open(&world, &put, "put", 1, "keep", 1), CAIRN_RUN_BUSY);
    /* The training goes on: its attempt is still the newest. */
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    json_t *forced = json_pack("{s:s, s:i, s:s, s:i, s:i, s:[{s:i, s:s}], s:s, s:b}", "job", "put",
                               "world_size", 1, "resume", "keep", "after", 1, "wait_staged_ms", 0,
                               "ranks", "rank", 0, "proc", "p", "node", "node-b", "force", 1);
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(cairn_world_call(&world, "POST", WORLD_RUN "/attempts", forced, &reply));
    EXPECT_EQ_U64(cairn_world_number(reply, "attempt"), 2);
}

/* ---- weights ---- */

static enum cairn_code beat_of(struct cairn_world *world, const char *node, const char *grant,
                               uint64_t rate) {
    char path[64], uuid[40];
    snprintf(path, sizeof(path), "/v1/nodes/%s", node);
    snprintf(uuid, sizeof(uuid), "00000000-0000-4000-8000-%012x", (unsigned)node[5]);
    json_t *body =
        json_pack("{s:{s:s, s:i, s:s, s:I}, s:[{s:s, s:i}], s:[], s:[]}", "uploader", "version",
                  "1", "pid", 1, "uuid", uuid, "upload_bytes_per_s", (json_int_t)rate, "attempts",
                  "grant", grant, "unsent", 0, "versions", "ended");
    return cairn_world_call(world, "PUT", path, body, NULL);
}

/* Ranks 0 and 1 on node-a, 2 and 3 on node-b; what the answers say of weights, "" for null. */
static bool open_on_two(struct cairn_world *world, const char *job, uint64_t after,
                        char ret_grant[CAIRN_GRANT_BYTES_MAX], char ret[16]) {
    char said[2][16];
    for (int node = 0; node < 2; node++) {
        CAIRN_AUTO_JSON json_t *answer = NULL;
        json_t *body =
            json_pack("{s:s, s:i, s:s, s:I, s:i, s:[{s:i, s:s}, {s:i, s:s}], s:s}", "job", job,
                      "world_size", 4, "resume", "latest", "after", (json_int_t)after,
                      "wait_staged_ms", 0, "ranks", "rank", 2 * node, "proc", "p", "rank",
                      2 * node + 1, "proc", "q", "node", node ? "node-b" : "node-a");
        if (cairn_world_call(world, "POST", WORLD_RUN "/attempts", body, &answer)) return false;
        const char *weights = json_string_value(json_object_get(answer, "weights"));
        snprintf(said[node], sizeof(said[node]), "%s", weights ? weights : "");
        snprintf(ret_grant, CAIRN_GRANT_BYTES_MAX, "%s", cairn_world_text(answer, "grant"));
    }
    snprintf(ret, 16, "%s", said[0]);
    return !strcmp(said[0], said[1]);
}

TEST(ranks_of_a_slow_node_weigh_less_in_the_next_attempt_and_all_ranks_hear_the_same) {
    CAIRN_AUTO(world) world = {0};
    char grant[CAIRN_GRANT_BYTES_MAX], weights[16];
    static const struct {
        uint64_t a, b;
        const char *wanted;
    } cases[] = {{0, 0, ""},                  /* nothing is known */
                 {1000000000, 0, ""},         /* of one node */
                 {1000000000, 900000000, ""}, /* noise */
                 {1000000000, 420000000, "8844"},
                 {100000000, 1000000000, "1188"}};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    REQUIRE(open_on_two(&world, "j", 0, grant, weights));
    EXPECT_EQ_TEXT(weights, "");
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        char job[8];
        snprintf(job, sizeof(job), "j%zu", i);
        REQUIRE_OK(beat_of(&world, "node-a", grant, cases[i].a));
        REQUIRE_OK(beat_of(&world, "node-b", grant, cases[i].b));
        REQUIRE(open_on_two(&world, job, i + 1, grant, weights));
        EXPECT_EQ_TEXT(weights, cases[i].wanted);
    }
    /* What an attempt has been told stays, whatever is measured later. */
    REQUIRE_OK(beat_of(&world, "node-a", grant, 1000000000));
    REQUIRE_OK(beat_of(&world, "node-b", grant, 1000000000));
    REQUIRE(open_on_two(&world, "j4", 5, grant, weights));
    EXPECT_EQ_TEXT(weights, "1188");
}

/* ---- nodes that say nothing (Q3) ---- */

static enum cairn_code beat_unsent(struct cairn_world *world, const char *node, const char *grant,
                                   int unsent) {
    char path[64];
    snprintf(path, sizeof(path), "/v1/nodes/%s", node);
    json_t *body = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                             "attempts", "grant", grant, "unsent", unsent, "versions");
    return cairn_world_call(world, "PUT", path, body, NULL);
}

struct resuming {
    struct cairn_world *world;
    const char *resume;
    int wait_ms;
    uint64_t after;
    _Atomic bool done;
    enum cairn_code code;
};

static void *resume(void *argument) {
    struct resuming *own = argument;
    struct cairn_rest *rest = NULL;
    struct cairn_rest_options options = {.url = own->world->server.url};
    char job[16];
    snprintf(job, sizeof(job), "next-%d", (int)own->after);
    json_t *body =
        json_pack("{s:s, s:i, s:s, s:I, s:i, s:[{s:i, s:s}], s:s, s:b}", "job", job, "world_size",
                  1, "resume", own->resume, "after", (json_int_t)own->after, "wait_staged_ms",
                  own->wait_ms, "ranks", "rank", 0, "proc", "n", "node", "node-c", "force", 1);
    own->code = cairn_rest_new(&options, &rest, NULL);
    if (!own->code)
        own->code = cairn_rest_call(rest, "POST", WORLD_RUN "/attempts", body, 10000, NULL, NULL);
    own->done = true;
    cairn_rest_free(rest);
    json_decref(body);
    return NULL;
}

/* How long a call waits of which node-a says `unsent` after it came in, and node-b nothing. */
static uint64_t resume_waits_ms(struct cairn_world *world, struct resuming resuming,
                                const char *grant, int unsent) {
    pthread_t thread;
    uint64_t from_ms = cairn_mono_ms();
    if (pthread_create(&thread, NULL, resume, &resuming)) return 0;
    while (!resuming.done && cairn_mono_ms() - from_ms < 10000) {
        if (unsent >= 0) EXPECT(beat_unsent(world, "node-a", grant, unsent) == CAIRN_OK);
        cairn_test_pause_ms(50); /* pause of a stand-in: between two heartbeats */
    }
    pthread_join(thread, NULL);
    EXPECT(resuming.code == CAIRN_OK);
    return cairn_mono_ms() - from_ms;
}

TEST(a_resume_does_not_wait_for_a_silent_node_once_another_one_says_that_nothing_is_open) {
    static const struct {
        const char *resume;
        int unsent; /* of node-a; -1: it says nothing */
        bool open, waits;
    } cases[] = {{"latest", 0, false, false},
                 {"none", 0, false, false},
                 {"keep", 0, false, true}, /* Q7: it is about who still trains */
                 {"latest", 1, false, true},
                 {"latest", -1, false, true}, /* its own last word is of any time before */
                 {"latest", 0, true, true}};
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        char grant[CAIRN_GRANT_BYTES_MAX], weights[16], job[8];
        struct resuming call = {&world,    cases[i].resume, cases[i].waits ? 1000 : 60000,
                                2 * i + 1, false,           CAIRN_OK};
        snprintf(job, sizeof(job), "j%zu", i);
        REQUIRE(open_on_two(&world, job, 2 * i, grant, weights));
        REQUIRE_OK(beat_unsent(&world, "node-a", grant, 0));
        REQUIRE_OK(beat_unsent(&world, "node-b", grant, 0));
        json_t *begin =
            json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:b, s:s, s:{}, s:{}}", "grant", grant,
                      "node", "node-a", "step", 1, "n", 1, "rank", 0, "world_size", 4, "on_exists",
                      "error", "skip", 0, "format", "", "labels", "meta");
        if (cases[i].open)
            REQUIRE_OK(cairn_world_call(&world, "POST", WORLD_RUN "/checkpoints", begin, NULL));
        else
            json_decref(begin);
        uint64_t ms = resume_waits_ms(&world, call, grant, cases[i].unsent);
        EXPECT(cases[i].waits ? ms >= 900 : ms < 10000);
    }
}

TEST(a_resume_waits_for_silent_nodes_as_long_as_resume_silence_says) {
    CAIRN_AUTO(world) world = {0};
    char grant[CAIRN_GRANT_BYTES_MAX], weights[16];
    CAIRN_AUTO(passing) passing = {0};
    REQUIRE(cairn_passing_open(&passing));
    REQUIRE(cairn_world_start(&world, WORLD_ARGS("--resume-silence=1s"), passing.env));
    REQUIRE(open_on_two(&world, "j", 0, grant, weights));
    REQUIRE_OK(beat_unsent(&world, "node-a", grant, 1));
    REQUIRE_OK(beat_unsent(&world, "node-b", grant, 1));
    cairn_passing_pass(&passing, 1100);
    struct resuming call = {&world, "latest", 60000, 1, false, CAIRN_OK};
    EXPECT(resume_waits_ms(&world, call, grant, -1) < 10000);
}
