/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Opening and joining attempts, and what a resume does to what was there (Q1-Q7). */
#include "tests/server/world.h"

static json_t *body_of(const char *job, uint64_t after, const char *resume, uint32_t world_size,
                       uint32_t rank, const char *proc) {
    return json_pack("{s:s, s:i, s:s, s:I, s:i, s:[{s:i, s:s}], s:s}", "job", job, "world_size",
                     world_size, "resume", resume, "after", (json_int_t)after, "wait_staged_ms", 0,
                     "ranks", "rank", rank, "proc", proc, "node", "node-b");
}

static uint64_t newest_said(struct cairn_world *world) {
    return world_number(cairn_rest_problem(world->rest), "newest");
}

#define err world.err /* of the macros */

TEST(ranks_of_one_job_join_one_attempt_and_get_the_same_answer) { /* Q2 */
    WORLD();
    const char *path = WORLD_RUN "/attempts";
    ASKED(first, "POST", path, body_of("j", 0, "latest", 2, 0, "p0"));
    ASKED(second, "POST", path, body_of("j", 0, "latest", 2, 1, "p1"));
    ASKED(again, "POST", path, body_of("j", 7, "latest", 2, 1, "p1"));
    EXPECT_SHOWS(first, "attempt", "1", "grant", world_text(second, "grant"), "grant",
                 world_text(again, "grant"), "resume_version", "null");
}

TEST(a_job_string_used_by_two_incarnations_is_refused) { /* V2 */
    WORLD();
    const char *path = WORLD_RUN "/attempts";
    ASK("POST", path, body_of("j", 0, "latest", 2, 0, "p0"));
    EXPECT_REFUSED(CAIRN_JOB_REUSED, "POST", path, body_of("j", 1, "latest", 2, 0, "q0"));
    EXPECT_REFUSED(CAIRN_ATTEMPT_DIFFERS, "POST", path, body_of("j", 1, "latest", 3, 1, "p1"));
    EXPECT_REFUSED(CAIRN_ATTEMPT_DIFFERS, "POST", path, body_of("j", 1, "none", 2, 1, "p1"));
}

TEST(a_call_that_lists_ranks_takes_all_of_them_or_none) { /* Q2, Q54 */
    INSIDE();
    const char *path = WORLD_RUN "/attempts";
    json_t *many = body_of("j", 0, "latest", 3, 0, "p0");
    json_array_append_new(json_object_get(many, "ranks"),
                          json_pack("{s:i, s:s}", "rank", 3, "proc", "p3"));
    EXPECT_REFUSED(CAIRN_INVALID, "POST", path, many);
    EXPECT_ROWS(0, "attempt_ranks");
    many = body_of("j", 0, "latest", 3, 0, "p0");
    json_array_append_new(json_object_get(many, "ranks"),
                          json_pack("{s:i, s:s}", "rank", 2, "proc", "p2"));
    ASK("POST", path, many);
    EXPECT_ROWS(2, "attempt_ranks");
    EXPECT_REFUSED(CAIRN_JOB_REUSED, "POST", path, body_of("j", 1, "latest", 3, 2, "q2"));
    many = body_of("j", 1, "latest", 3, 1, "p1"); /* rank 1 is new, rank 2 another process */
    json_array_append_new(json_object_get(many, "ranks"),
                          json_pack("{s:i, s:s}", "rank", 2, "proc", "q2"));
    EXPECT_REFUSED(CAIRN_JOB_REUSED, "POST", path, many);
    EXPECT_ROWS(2, "attempt_ranks");
}

TEST(ended_ranks_of_a_larger_world_are_taken_by_the_call_of_a_smaller_one) { /* Q54 */
    WORLD();
    const char *path = WORLD_RUN "/attempts";
    ASK("POST", path, body_of("j", 0, "latest", 4, 3, "p"));
    json_t *smaller = body_of("k", 1, "latest", 1, 0, "q");
    json_object_set_new(smaller, "ended", json_pack("[i, i]", 3, -1));
    EXPECT_REFUSED(CAIRN_INVALID, "POST", path, smaller);
    smaller = body_of("k", 1, "latest", 1, 0, "q");
    json_object_set_new(smaller, "ended", json_pack("[i]", 3));
    ASKED(opened, "POST", path, smaller);
    EXPECT_EQ_U64(world_number(opened, "attempt"), 2);
}

TEST(a_delayed_call_of_a_dead_job_does_not_fence_the_living_one) { /* V5 */
    WORLD();
    const char *path = WORLD_RUN "/attempts";
    ASK("POST", path, body_of("j1", 0, "latest", 1, 0, "p"));
    EXPECT_REFUSED(CAIRN_ATTEMPT_MOVED, "POST", path, body_of("j0", 0, "latest", 1, 0, "p"));
    EXPECT_EQ_U64(newest_said(&world), 1);
}

TEST(c01_an_older_attempt_can_neither_begin_register_nor_join) { /* P6, C01 */
    WORLD();
    struct cairn_hand old, fresh;
    struct cairn_hand_save save;
    REQUIRE_OK(hand_open(&world, &old, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_begin(&old, 5, 1, "error", &save));
    REQUIRE_OK(hand_open(&world, &fresh, "j2", 1, "latest", 1));
    EXPECT_REFUSED(CAIRN_STALE_ATTEMPT, "POST", WORLD_RUN "/checkpoints",
                   hand_begin_body(&old, 6, 1, 0, "error"));
    EXPECT_EQ_U64(newest_said(&world), 2);
    EXPECT_REFUSED(CAIRN_STALE_ATTEMPT, "POST", WORLD_RUN "/attempts",
                   body_of("j1", 2, "latest", 1, 0, "j1-0"));
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE_OK(hand_send(&save, NULL, json_pack("[o]", hand_seal(0, NULL, "x", 1)), &reply));
    EXPECT(strcmp(world_text(reply, "state"), "open"));
    EXPECT_EQ_TEXT(world_text(reply, "code"), "stale-attempt");
    CAIRN_AUTO_JSON json_t *body = hand_begin_body(&fresh, 6, 1, 0, "error");
    char broken[600];
    snprintf(broken, sizeof(broken), "%s", fresh.grant);
    broken[strlen(broken) - 1] ^= 1;
    json_object_set_new(body, "grant", json_string(broken));
    EXPECT_REFUSED(CAIRN_UNAUTHORIZED, "POST", WORLD_RUN "/checkpoints", json_incref(body));
}

TEST(c08_a_rollback_supersedes_what_lies_beyond_and_a_later_save_is_latest) { /* C08, P7, V6 */
    JOB(1);
    SAVED(at_1615, 1615);
    SAVED(at_1800, 1800);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "1615", 1));
    EXPECT_EQ_TEXT(hand.resumed, at_1615.id.text);
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", at_1615.id.text);
    GOT(old, at_1800.path); /* readable by id */
    EXPECT(json_is_true(json_object_get(old, "superseded")));
    EXPECT_REFUSED(CAIRN_NOT_FOUND, "GET", WORLD_RUN "/checkpoints/1800", NULL);
    SAVED(at_1620, 1620);
    EXPECT_GET(WORLD_RUN, "latest.version", at_1620.id.text);
    /* A superseded version that is named is revived, and what lay beyond it goes (V6). */
    REQUIRE_OK(hand_open(&world, &hand, "j3", 2, at_1800.id.text, 1));
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", at_1800.id.text);
}

TEST(resume_none_supersedes_everything_and_keep_nothing) {
    JOB(1);
    SAVED(save, 1);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "keep", 1));
    EXPECT_EQ_TEXT(hand.resumed, "(none)");
    ASK("GET", WORLD_RUN "/checkpoints/latest", NULL);
    REQUIRE_OK(hand_open(&world, &hand, "j3", 2, "none", 1));
    EXPECT_REFUSED(CAIRN_NOT_FOUND, "GET", WORLD_RUN "/checkpoints/latest", NULL);
    EXPECT_CODE(hand_open(&world, &hand, "j4", 3, "99", 1), CAIRN_NOT_FOUND);
}

TEST(a_resume_gives_up_a_save_that_is_not_whole_when_its_wait_is_over) { /* Q3 (a) */
    struct cairn_hand next;
    JOB(1);
    BEGUN(save, 9);
    REQUIRE_OK(hand_seal_alone(&save, 0, "x", 4));
    /* Not whole within the wait of 2 s: it is given up, and the wait was kept. */
    uint64_t from_ms = cairn_mono_ms();
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT(cairn_mono_ms() - from_ms >= 1900);
    EXPECT_WAITED(&save, "code", "stale-attempt");
}

TEST(a_resume_waits_until_a_living_node_has_sent_everything) { /* Q3 (b) */
    struct cairn_hand next;
    JOB(1);
    CAIRN_AUTO_JSON json_t *answer = NULL;
    REQUIRE_OK(hand_unsent(&hand, "node-a", 1, &answer));
    EXPECT_SHOWS(answer, "generation", "1");
    uint64_t from_ms = cairn_mono_ms();
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    EXPECT(cairn_mono_ms() - from_ms >= 1900);
    json_t *late = json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[{s:s}]}", "uploader", "version", "1",
                             "attempts", "grant", hand.grant, "unsent", 0, "versions", "version",
                             "ckpt_00000000-0000-8000-8000-000000000000");
    ASKED(fenced, "PUT", "/v1/nodes/node-a", late);
    EXPECT_SHOWS(fenced, "fenced.0.project", "llm", "fenced.0.run", "seven", "unknown.#", "1");
}

/* The node would be waited for 60 s: its last heartbeat was before the call, and no other comes. */
TEST(a_call_that_says_that_its_own_node_has_sent_everything_waits_for_no_heartbeat) { /* Q3 (b) */
    JOB(1);
    REQUIRE_OK(hand_unsent(&hand, "node-a", 1, NULL));
    json_t *body = body_of("j2", 1, "keep", 1, 0, "p0");
    json_object_set_new(body, "node", json_string("node-a"));
    json_object_set_new(body, "wait_staged_ms", json_integer(60000));
    json_object_set_new(body, "said", json_pack("{s:i, s:b}", "unsent", 0, "holds", 0));
    uint64_t from_ms = cairn_mono_ms();
    ASKED(opened, "POST", WORLD_RUN "/attempts", body);
    EXPECT(cairn_mono_ms() - from_ms < 55000);
    EXPECT_EQ_U64(world_number(opened, "attempt"), 2);
}

TEST(a_call_that_says_that_trainers_of_its_node_hold_the_attempt_is_refused_what_keeps_everything) {
    JOB(1);
    REQUIRE_OK(hand_beat(&hand, "node-a"));
    SAY("PUT", "/v1/nodes/node-a",
        "{\"uploader\":{\"version\":\"1\"},\"attempts\":[],\"versions\":[]}");
    json_t *body = body_of("j2", 1, "keep", 1, 0, "p0");
    json_object_set_new(body, "node", json_string("node-a"));
    json_object_set_new(body, "said", json_pack("{s:i, s:b}", "unsent", 0, "holds", 1));
    EXPECT_REFUSED(CAIRN_RUN_BUSY, "POST", WORLD_RUN "/attempts", body);
}

TEST(grants_outlive_a_restart_of_the_server) { /* Q38 */
    JOB(1);
    REQUIRE(world_restart(&world, NULL, NULL));
    SAVED(save, 1);
}

TEST(what_keeps_everything_is_refused_while_a_node_still_trains_and_may_be_forced) { /* Q7 */
    struct cairn_hand put;
    JOB(1);
    REQUIRE_OK(hand_beat(&hand, "node-a"));
    EXPECT_CODE(hand_open(&world, &put, "put", 1, "keep", 1), CAIRN_RUN_BUSY);
    /* The training goes on: its attempt is still the newest. */
    SAVED(save, 1);
    json_t *forced = body_of("put", 1, "keep", 1, 0, "p");
    json_object_set_new(forced, "force", json_true());
    ASKED(reply, "POST", WORLD_RUN "/attempts", forced);
    EXPECT_EQ_U64(world_number(reply, "attempt"), 2);
}

/* ---- weights ---- */

static enum cairn_code beat_of(struct cairn_world *world, const char *node, const char *grant,
                               uint64_t rate) {
    const char *path = TEXT("/v1/nodes/%s", node);
    json_t *body = json_pack(
        "{s:{s:s, s:i, s:s, s:I}, s:[{s:s, s:i}], s:[], s:[]}", "uploader", "version", "1", "pid",
        1, "uuid", TEXT("00000000-0000-4000-8000-%012x", (unsigned)node[5]), "upload_bytes_per_s",
        (json_int_t)rate, "attempts", "grant", grant, "unsent", 0, "versions", "ended");
    return world_call(world, "PUT", path, body, NULL);
}

/* Ranks 0 and 1 on node-a, 2 and 3 on node-b; what the answers say of weights, "" for null. */
static bool open_on_two(struct cairn_world *world, const char *job, uint64_t after,
                        struct cairn_hand *ret_hand, char ret[16]) {
    char said[2][16];
    for (int node = 0; node < 2; node++) {
        CAIRN_AUTO_JSON json_t *answer = NULL;
        json_t *body =
            json_pack("{s:s, s:i, s:s, s:I, s:i, s:[{s:i, s:s}, {s:i, s:s}], s:s}", "job", job,
                      "world_size", 4, "resume", "latest", "after", (json_int_t)after,
                      "wait_staged_ms", 0, "ranks", "rank", 2 * node, "proc", "p", "rank",
                      2 * node + 1, "proc", "q", "node", node ? "node-b" : "node-a");
        if (world_call(world, "POST", WORLD_RUN "/attempts", body, &answer)) return false;
        const char *weights = json_string_value(json_object_get(answer, "weights"));
        snprintf(said[node], sizeof(said[node]), "%s", weights ? weights : "");
        *ret_hand = (struct cairn_hand){.world = world, .world_size = 4};
        snprintf(ret_hand->grant, sizeof(ret_hand->grant), "%s", world_text(answer, "grant"));
    }
    snprintf(ret, 16, "%s", said[0]);
    return !strcmp(said[0], said[1]);
}

TEST(ranks_of_a_slow_node_weigh_less_in_the_next_attempt_and_all_ranks_hear_the_same) {
    struct cairn_hand hand;
    char weights[16];
    WORLD();
    REQUIRE(open_on_two(&world, "j", 0, &hand, weights));
    EXPECT_EQ_TEXT(weights, "");
    EACH(row, FIELDS(uint64_t a, b; const char *wanted), {0, 0, ""}, /* nothing is known */
         {1000000000, 0, ""},                                        /* of one node */
         {1000000000, 900000000, ""},                                /* noise */
         {1000000000, 420000000, "8844"}, {100000000, 1000000000, "1188"}) {
        const char *job = TEXT("j%zu", AT(row));
        REQUIRE_OK(beat_of(&world, "node-a", hand.grant, row->a));
        REQUIRE_OK(beat_of(&world, "node-b", hand.grant, row->b));
        REQUIRE(open_on_two(&world, job, AT(row) + 1, &hand, weights));
        EXPECT_EQ_TEXT(weights, row->wanted);
    }
    /* What an attempt has been told stays, whatever is measured later. */
    REQUIRE_OK(beat_of(&world, "node-a", hand.grant, 1000000000));
    REQUIRE_OK(beat_of(&world, "node-b", hand.grant, 1000000000));
    REQUIRE(open_on_two(&world, "j4", 5, &hand, weights));
    EXPECT_EQ_TEXT(weights, "1188");
}

/* ---- nodes that say nothing (Q3) ---- */

/* What a resume asks for, and how long it waits: of one of which node-a says `unsent` after it came
 * in, and node-b nothing. */
struct resuming {
    const char *resume;
    int wait_ms;
    uint64_t after;
};
static uint64_t resume_waits_ms(const struct cairn_hand *hand, struct resuming resuming,
                                int unsent) {
    CAIRN_AUTO(calling) call = {0};
    const char *job = TEXT("next-%d", (int)resuming.after);
    json_t *body = body_of(job, resuming.after, resuming.resume, 1, 0, "n");
    json_object_set_new(body, "wait_staged_ms", json_integer(resuming.wait_ms));
    json_object_set_new(body, "node", json_string("node-c"));
    json_object_set_new(body, "force", json_true());
    /* A heartbeat in the millisecond in which the call arrives counts as one after it. */
    uint64_t said_ms = cairn_mono_ms();
    AWAIT(cairn_mono_ms() > said_ms);
    if (!calling_begin(&call, hand->world, "POST", WORLD_RUN "/attempts", body)) return 0;
    for (uint64_t from_ms = cairn_mono_ms(); !call.done && cairn_mono_ms() - from_ms < 55000;) {
        if (unsent >= 0) EXPECT(hand_unsent(hand, "node-a", unsent, NULL) == CAIRN_OK);
        cairn_test_pause_ms(50); /* pause of a stand-in: between two heartbeats */
    }
    EXPECT(calling_end(&call) == CAIRN_OK);
    return call.took_ms;
}

TEST(a_resume_does_not_wait_for_a_silent_node_once_another_one_says_that_nothing_is_open) {
    WORLD();
    EACH(one,
         FIELDS(const char *resume; int unsent;
                /* of node-a; -1: it says nothing */ bool open, waits),
         {"latest", 0, false, false}, {"none", 0, false, false},
         {"keep", 0, false, true}, /* Q7: it is about who still trains */
         {"latest", 1, false, true},
         {"latest", -1, false, true}, /* its own last word is of any time before */
         {"latest", 0, true, true}) {
        struct cairn_hand hand;
        char weights[16];
        struct resuming call = {one->resume, one->waits ? 1000 : 60000, 2 * AT(one) + 1};
        REQUIRE(open_on_two(&world, TEXT("j%zu", AT(one)), 2 * AT(one), &hand, weights));
        REQUIRE_OK(hand_beat(&hand, "node-a"));
        REQUIRE_OK(hand_beat(&hand, "node-b"));
        if (one->open)
            ASK("POST", WORLD_RUN "/checkpoints", hand_begin_body(&hand, 1, 1, 0, "error"));
        uint64_t ms = resume_waits_ms(&hand, call, one->unsent);
        cairn_test_check(one->waits ? ms >= 900 : ms < 55000, __FILE__, __LINE__,
                         "case %zu waited for %" PRIu64 " ms", AT(one), ms);
    }
}

TEST(a_resume_waits_for_silent_nodes_as_long_as_resume_silence_says) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    char weights[16];
    WITH(passing, passing, cairn_passing_open(&passing));
    REQUIRE(world_start(&world, WORLD_ARGS("--resume-silence=1s"), passing.env));
    REQUIRE(open_on_two(&world, "j", 0, &hand, weights));
    REQUIRE_OK(hand_unsent(&hand, "node-a", 1, NULL));
    REQUIRE_OK(hand_unsent(&hand, "node-b", 1, NULL));
    cairn_passing_pass(&passing, 1100);
    EXPECT(resume_waits_ms(&hand, (struct resuming){"latest", 60000, 1}, -1) < 55000);
}
