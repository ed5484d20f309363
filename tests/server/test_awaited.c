/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}?wait=60s&for=STATE: each state is answered when it comes, and at once when it cannot. */
#include "tests/server/world.h"

#define err (world.err)
/* Whoever is woken by nobody is answered after CAIRN_WAIT_MS_MAX. */
#define WAIT_MS 60000
#define WOKEN_MS 55000

/* ---- one who waits ---- */

/* They sleep, and the server has read all requests. */
static bool is_held(struct cairn_calling *const *waits) {
    for (; *waits; waits++)
        if (!calling_is_held(*waits)) return false;
    return true;
}

static bool begin_wait(struct cairn_calling *ret, const struct cairn_world *world, const char *path,
                       const char *state) {
    return EXPECT(calling_wait(ret, world, TEXT("%s?for=%s", path, state), WAIT_MS));
}

static void expect_outcome(struct cairn_calling *waits, const char *outcome, const char *state) {
    EXPECT_EQ_U64(calling_end(waits), CAIRN_OK);
    bool good = !strcmp(world_text(waits->reply, "awaited"), outcome) &&
                (!state || !strcmp(world_text(waits->reply, "state"), state)) &&
                waits->took_ms < WOKEN_MS;
    cairn_test_check(good, __FILE__, __LINE__, "%s: %s, state %s, after %llu ms; %s", waits->path,
                     world_text(waits->reply, "awaited"), world_text(waits->reply, "state"),
                     (unsigned long long)waits->took_ms, waits->why.message);
}

/* What is said at once. */
static void expect_now(struct cairn_world *world, const char *path, const char *state,
                       const char *outcome) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    const char *asked = TEXT("%s?for=%s", path, state);
    EXPECT_EQ_U64(world_call(world, "GET", asked, NULL, &version), CAIRN_OK);
    cairn_test_check(!strcmp(world_text(version, "awaited"), outcome), __FILE__, __LINE__,
                     "%s: %s, not %s", asked, world_text(version, "awaited"), outcome);
}

/* ---- a world with a further store ---- */

static bool start(struct cairn_world *world, const char *grace) {
    const char *given = TEXT("--trash-grace=%s", grace);
    return world_start(world, WORLD_ARGS(SLOW_STORE, given, "--sweep-interval", "50ms"), NULL);
}

TEST(each_state_of_a_save_ends_the_wait_for_it_and_none_before_it) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(calling) begun = {0}, staged = {0}, durable = {0}, committed = {0}, promoted = {0};
    REQUIRE(start(&world, "1h"));
    HAND(1);
    const char *step = WORLD_RUN "/checkpoints/5"; /* nobody has begun it */
    REQUIRE(begin_wait(&begun, &world, step, "begun"));
    REQUIRE(begin_wait(&committed, &world, step, "committed"));
    REQUIRE_AWAIT(is_held((struct cairn_calling *[]){&begun, &committed, NULL}));
    BEGUN(save, 5);
    expect_outcome(&begun, "reached", "open");
    expect_now(&world, save.path, "staged", "not_yet");
    REQUIRE(begin_wait(&staged, &world, step, "staged"));
    REQUIRE(begin_wait(&durable, &world, save.path, "durable"));
    REQUIRE(begin_wait(&promoted, &world, save.path, "promoted:slow"));
    REQUIRE_AWAIT(
        is_held((struct cairn_calling *[]){&committed, &staged, &durable, &promoted, NULL}));
    REQUIRE_OK(hand_seal_alone(&save, 0, "x", 3));
    expect_outcome(&staged, "reached", "open");
    expect_now(&world, save.path, "durable", "not_yet");
    expect_now(&world, save.path, "committed", "not_yet");
    REQUIRE_OK(hand_register(&save, "x", 0, CAIRN_VIEW("abc")));
    expect_outcome(&durable, "reached", NULL);
    expect_outcome(&committed, "reached", "committed");
    expect_now(&world, save.path, "promoted:slow", "not_yet");
    expect_now(&world, save.path, "promoted:main", "reached");
    ASK("POST", TEXT("%s/promote", save.path), json_pack("{s:s}", "to", "slow"));
    expect_outcome(&promoted, "reached", "committed");
    EACH_TEXT(text, "begun", "staged", "durable", "committed")
        expect_now(&world, step, text, "reached");
    expect_now(&world, step, "aborted", "never");
}

TEST(the_seal_of_rank_0_alone_ends_the_wait_for_the_decision) {
    WITH(world, world, start(&world, "1h"));
    HAND(2);
    BEGUN(save, 5);
    WITH(calling, decided, begin_wait(&decided, &world, save.path, "decided"));
    REQUIRE_OK(hand_seal_alone(&save, 1, "y", 3));
    expect_now(&world, save.path, "decided", "not_yet");
    REQUIRE_OK(hand_seal_alone(&save, 0, "x", 3));
    expect_outcome(&decided, "reached", "open");
    expect_now(&world, save.path, "decided", "reached");
}

TEST(a_version_that_is_given_up_ends_all_waits_for_it_and_says_so) {
    static const char *const never[] = {"decided",       "staged",  "durable", "committed",
                                        "promoted:slow", "trashed", "deleted"};
    CAIRN_AUTO(world) world = {0};
    struct cairn_calling waits[CAIRN_COUNT(never)] = {0};
    CAIRN_AUTO(calling) aborted = {0}, gone = {0};
    REQUIRE(start(&world, "1h"));
    HAND(1);
    BEGUN(save, 5);
    for (size_t i = 0; i < CAIRN_COUNT(never); i++) {
        expect_now(&world, save.path, never[i], "not_yet");
        EXPECT(begin_wait(&waits[i], &world, save.path, never[i]));
    }
    EXPECT(begin_wait(&aborted, &world, save.path, "aborted"));
    EXPECT(begin_wait(&gone, &world, save.path, "gone"));
    for (size_t i = 0; i < CAIRN_COUNT(never); i++)
        REQUIRE_AWAIT(is_held((struct cairn_calling *[]){&waits[i], NULL}));
    REQUIRE_AWAIT(is_held((struct cairn_calling *[]){&aborted, &gone, NULL}));
    EXPECT_CODE(world_call(&world, "POST", TEXT("%s/abort", save.path),
                           json_pack("{s:s}", "reason", "no use"), NULL),
                CAIRN_OK);
    for (size_t i = 0; i < CAIRN_COUNT(never); i++) {
        expect_outcome(&waits[i], "never", NULL);
        EXPECT(strstr(world_text(waits[i].reply, "reason"), "no use"));
        cairn_calling_release(&waits[i]);
    }
    expect_outcome(&aborted, "reached", NULL);
    expect_outcome(&gone, "reached", "gone");
    expect_now(&world, save.path, "begun", "reached");
}

/* Removes step, for which three wait by that number. false: one of them came when it was gone. */
static bool remove_awaited(struct cairn_world *world, const struct cairn_hand_save *save) {
    static const char *const states[] = {"trashed", "deleted", "gone"};
    struct cairn_calling waits[CAIRN_COUNT(states)] = {0};
    bool late = false;
    const char *step = TEXT(WORLD_RUN "/checkpoints/%llu", (unsigned long long)save->step);
    for (size_t i = 0; i < CAIRN_COUNT(states); i++) {
        expect_now(world, step, states[i], "not_yet");
        EXPECT(begin_wait(&waits[i], world, step, states[i]));
    }
    for (size_t i = 0; i < CAIRN_COUNT(states); i++)
        AWAIT(is_held((struct cairn_calling *[]){&waits[i], NULL}));
    EXPECT_EQ_U64(world_call(world, "DELETE", save->path, NULL, NULL), CAIRN_OK);
    for (size_t i = 0; i < CAIRN_COUNT(states); i++) {
        late = calling_end(&waits[i]) == CAIRN_NOT_FOUND || late;
    }
    for (size_t i = 0; i < CAIRN_COUNT(states) && !late; i++) {
        EXPECT_EQ_TEXT(world_text(waits[i].reply, "awaited"), "reached");
        EXPECT_EQ_TEXT(world_text(waits[i].reply, "version"), save->id.text);
        EXPECT(waits[i].took_ms < WOKEN_MS);
    }
    if (!late) EXPECT_EQ_TEXT(world_text(waits[2].reply, "state"), "gone");
    for (size_t i = 0; i < CAIRN_COUNT(states); i++) cairn_calling_release(&waits[i]);
    return !late;
}

TEST(a_removal_is_told_at_each_of_its_steps_by_the_step_that_it_had) {
    struct cairn_hand_save saves[6];
    WITH(world, world, start(&world, "1s"));
    HAND(1);
    for (size_t i = 0; i < CAIRN_COUNT(saves); i++)
        REQUIRE_OK(hand_save_all(&hand, i + 1, 1, "error", 100, &saves[i]));
    size_t done = 0;
    /* On a slow machine a wait may come late, which proves nothing. */
    while (done < 5 && !remove_awaited(&world, &saves[done])) done++;
    REQUIRE(done < 5);
    expect_now(&world, saves[done].path, "deleted", "reached");
    const char *path = TEXT("%s?for=durable&wait=60s", saves[done].path); /* at once */
    EXPECT_REFUSED(CAIRN_DELETED, "GET", path, NULL);
}

TEST(what_cannot_be_waited_for_is_refused_and_what_does_not_come_is_not_yet_there_or_of_no_run) {
    char path[300];
    WITH(world, world, start(&world, "1h"));
    HAND(1);
    EACH_TEXT(text, "whole", "", "commit", "committed:slow", "promoted",
              "promoted:", "promoted:Slow", "promoted:nowhere") {
        snprintf(path, sizeof(path), WORLD_RUN "/checkpoints/5?wait=60s&for=%s", text);
        EXPECT_REFUSED(CAIRN_INVALID, "GET", path, NULL);
    }
    EACH_TEXT(
        one, "seven/checkpoints/5?wait=60s", "seven/checkpoints/5?wait=60s&for=trashed",
        "seven/checkpoints/5?wait=60s&for=gone", "none/checkpoints/5?wait=60s&for=committed",
        "none/checkpoints/latest?wait=60s&newer_than=1",
        "seven/checkpoints/ckpt_00000000-0000-8000-8000-000000000000?wait=60s&for=committed") {
        uint64_t from_ms = cairn_mono_ms();
        snprintf(path, sizeof(path), "/v1/runs/llm/%s", one);
        EXPECT_REFUSED(CAIRN_NOT_FOUND, "GET", path, NULL);
        EXPECT(cairn_mono_ms() - from_ms < WOKEN_MS);
    }
    EACH_TEXT(name, "5?wait=500ms&for=begun", "latest?wait=500ms&newer_than=1") {
        uint64_t from_ms = cairn_mono_ms();
        snprintf(path, sizeof(path), WORLD_RUN "/checkpoints/%s", name);
        EXPECT_REFUSED(CAIRN_NOT_YET, "GET", path, NULL);
        EXPECT(cairn_mono_ms() - from_ms >= 500);
    }
    snprintf(path, sizeof(path), WORLD_RUN "/checkpoints/5?for=begun"); /* nobody waits */
    EXPECT_REFUSED(CAIRN_NOT_YET, "GET", path, NULL);
}
