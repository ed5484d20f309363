/* SPDX-License-Identifier: Apache-2.0 */
/* GET {C}?wait=60s&for=STATE: each state is answered when it comes, and at once when it cannot. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "api/wire/words.h"
#include "common/clock.h"
#include "tests/server/world.h"
#include "tests/support/raw.h"

#define err (world.err)
/* Whoever is woken by nobody is answered after CAIRN_WAIT_MS_MAX. */
#define WAIT_MS 60000
#define WOKEN_MS 55000

/* ---- one who waits ---- */

struct cairn_waits {
    const struct cairn_world *world;
    char path[300];
    enum cairn_code code;
    struct cairn_error why;
    json_t *version;
    uint64_t took_ms;
    pthread_t thread;
    bool started;
    _Atomic int id; /* of the thread */
};
static void cairn_waits_release(struct cairn_waits *waits) {
    if (waits->started) pthread_join(waits->thread, NULL);
    json_decref(waits->version);
    *waits = (struct cairn_waits){0};
}

static void *wait_there(void *argument) {
    struct cairn_waits *waits = argument;
    waits->id = gettid();
    struct cairn_rest_options options = {.url = waits->world->server.url};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    uint64_t from_ms = cairn_mono_ms();
    waits->code = cairn_rest_new(&options, &rest, &waits->why);
    if (!waits->code)
        waits->code = cairn_rest_wait(rest, waits->path, WAIT_MS, &waits->version, &waits->why);
    waits->took_ms = cairn_mono_ms() - from_ms;
    return NULL;
}

/* They sleep, and the server has read all requests. */
static bool is_held(const struct cairn_world *world, struct cairn_waits *const *waits) {
    for (; *waits; waits++)
        if (!(*waits)->id || !cairn_test_thread_sleeps((*waits)->id)) return false;
    return cairn_raw_all_read(world->server.port);
}

static bool begin_wait(struct cairn_waits *ret, const struct cairn_world *world, const char *path,
                       const char *state) {
    *ret = (struct cairn_waits){.world = world};
    snprintf(ret->path, sizeof(ret->path), "%s?for=%s", path, state);
    ret->started = !pthread_create(&ret->thread, NULL, wait_there, ret);
    return EXPECT(ret->started);
}

static void expect_outcome(struct cairn_waits *waits, const char *outcome, const char *state) {
    pthread_join(waits->thread, NULL);
    waits->started = false;
    EXPECT_EQ_U64(waits->code, CAIRN_OK);
    bool good = !strcmp(cairn_world_text(waits->version, "awaited"), outcome) &&
                (!state || !strcmp(cairn_world_text(waits->version, "state"), state)) &&
                waits->took_ms < WOKEN_MS;
    cairn_test_check(good, __FILE__, __LINE__, "%s: %s, state %s, after %llu ms; %s", waits->path,
                     cairn_world_text(waits->version, "awaited"),
                     cairn_world_text(waits->version, "state"), (unsigned long long)waits->took_ms,
                     waits->why.message);
}

/* What is said at once. */
static void expect_now(struct cairn_world *world, const char *path, const char *state,
                       const char *outcome) {
    char asked[300];
    CAIRN_AUTO_JSON json_t *version = NULL;
    snprintf(asked, sizeof(asked), "%s?for=%s", path, state);
    EXPECT_EQ_U64(cairn_world_call(world, "GET", asked, NULL, &version), CAIRN_OK);
    cairn_test_check(!strcmp(cairn_world_text(version, "awaited"), outcome), __FILE__, __LINE__,
                     "%s: %s, not %s", asked, cairn_world_text(version, "awaited"), outcome);
}

/* ---- a world with a further store ---- */

static bool start(struct cairn_world *world, const char *grace) {
    char stores[400], given[64];
    snprintf(stores, sizeof(stores), "--stores=slow=%s/slow", cairn_test_folder());
    snprintf(given, sizeof(given), "--trash-grace=%s", grace);
    return cairn_world_start(world, WORLD_ARGS(stores, given, "--sweep-interval", "50ms"), NULL);
}

TEST(each_state_of_a_save_ends_the_wait_for_it_and_none_before_it) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(waits) begun = {0}, staged = {0}, durable = {0}, committed = {0}, promoted = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(start(&world, "1h"));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    const char *step = WORLD_RUN "/checkpoints/5"; /* nobody has begun it */
    REQUIRE(begin_wait(&begun, &world, step, "begun"));
    REQUIRE(begin_wait(&committed, &world, step, "committed"));
    REQUIRE_AWAIT(is_held(&world, (struct cairn_waits *[]){&begun, &committed, NULL}));
    REQUIRE_OK(cairn_hand_begin(&hand, 5, 1, "error", &save));
    expect_outcome(&begun, "reached", "open");
    expect_now(&world, save.path, "staged", "not_yet");
    REQUIRE(begin_wait(&staged, &world, step, "staged"));
    REQUIRE(begin_wait(&durable, &world, save.path, "durable"));
    REQUIRE(begin_wait(&promoted, &world, save.path, "promoted:slow"));
    REQUIRE_AWAIT(
        is_held(&world, (struct cairn_waits *[]){&committed, &staged, &durable, &promoted, NULL}));
    json_t *seals = json_pack("[o]", cairn_hand_seal(0, NULL, "x", 3));
    REQUIRE_OK(cairn_hand_send(&save, NULL, seals, NULL));
    expect_outcome(&staged, "reached", "open");
    expect_now(&world, save.path, "durable", "not_yet");
    expect_now(&world, save.path, "committed", "not_yet");
    json_t *shard = cairn_hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard), NULL, NULL));
    expect_outcome(&durable, "reached", NULL);
    expect_outcome(&committed, "reached", "committed");
    expect_now(&world, save.path, "promoted:slow", "not_yet");
    expect_now(&world, save.path, "promoted:main", "reached");
    char path[300];
    snprintf(path, sizeof(path), "%s/promote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), NULL));
    expect_outcome(&promoted, "reached", "committed");
    static const char *const past[] = {"begun", "staged", "durable", "committed"};
    for (size_t i = 0; i < CAIRN_COUNT(past); i++) expect_now(&world, step, past[i], "reached");
    expect_now(&world, step, "aborted", "never");
}

TEST(the_seal_of_rank_0_alone_ends_the_wait_for_the_decision) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(waits) decided = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(start(&world, "1h"));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 5, 1, "error", &save));
    REQUIRE(begin_wait(&decided, &world, save.path, "decided"));
    REQUIRE_OK(
        cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(1, NULL, "y", 3)), NULL));
    expect_now(&world, save.path, "decided", "not_yet");
    REQUIRE_OK(
        cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(0, NULL, "x", 3)), NULL));
    expect_outcome(&decided, "reached", "open");
    expect_now(&world, save.path, "decided", "reached");
}

TEST(a_version_that_is_given_up_ends_all_waits_for_it_and_says_so) {
    static const char *const never[] = {"decided",       "staged",  "durable", "committed",
                                        "promoted:slow", "trashed", "deleted"};
    CAIRN_AUTO(world) world = {0};
    struct cairn_waits waits[CAIRN_COUNT(never)] = {0};
    CAIRN_AUTO(waits) aborted = {0}, gone = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(start(&world, "1h"));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 5, 1, "error", &save));
    for (size_t i = 0; i < CAIRN_COUNT(never); i++) {
        expect_now(&world, save.path, never[i], "not_yet");
        EXPECT(begin_wait(&waits[i], &world, save.path, never[i]));
    }
    EXPECT(begin_wait(&aborted, &world, save.path, "aborted"));
    EXPECT(begin_wait(&gone, &world, save.path, "gone"));
    for (size_t i = 0; i < CAIRN_COUNT(never); i++)
        REQUIRE_AWAIT(is_held(&world, (struct cairn_waits *[]){&waits[i], NULL}));
    REQUIRE_AWAIT(is_held(&world, (struct cairn_waits *[]){&aborted, &gone, NULL}));
    char path[300];
    snprintf(path, sizeof(path), "%s/abort", save.path);
    EXPECT_CODE(
        cairn_world_call(&world, "POST", path, json_pack("{s:s}", "reason", "no use"), NULL),
        CAIRN_OK);
    for (size_t i = 0; i < CAIRN_COUNT(never); i++) {
        expect_outcome(&waits[i], "never", NULL);
        EXPECT(strstr(cairn_world_text(waits[i].version, "reason"), "no use"));
        cairn_waits_release(&waits[i]);
    }
    expect_outcome(&aborted, "reached", NULL);
    expect_outcome(&gone, "reached", "gone");
    expect_now(&world, save.path, "begun", "reached");
}

/* Removes step, for which three wait by that number. false: one of them came when it was gone. */
static bool remove_awaited(struct cairn_world *world, const struct cairn_hand_save *save) {
    static const char *const states[] = {"trashed", "deleted", "gone"};
    struct cairn_waits waits[CAIRN_COUNT(states)] = {0};
    char step[100];
    bool late = false;
    snprintf(step, sizeof(step), WORLD_RUN "/checkpoints/%llu", (unsigned long long)save->step);
    for (size_t i = 0; i < CAIRN_COUNT(states); i++) {
        expect_now(world, step, states[i], "not_yet");
        EXPECT(begin_wait(&waits[i], world, step, states[i]));
    }
    for (size_t i = 0; i < CAIRN_COUNT(states); i++)
        AWAIT(is_held(world, (struct cairn_waits *[]){&waits[i], NULL}));
    EXPECT_EQ_U64(cairn_world_call(world, "DELETE", save->path, NULL, NULL), CAIRN_OK);
    for (size_t i = 0; i < CAIRN_COUNT(states); i++) {
        if (waits[i].started) pthread_join(waits[i].thread, NULL);
        waits[i].started = false;
        late = late || waits[i].code == CAIRN_NOT_FOUND;
    }
    for (size_t i = 0; i < CAIRN_COUNT(states) && !late; i++) {
        EXPECT_EQ_TEXT(cairn_world_text(waits[i].version, "awaited"), "reached");
        EXPECT_EQ_TEXT(cairn_world_text(waits[i].version, "version"), save->id.text);
        EXPECT(waits[i].took_ms < WOKEN_MS);
    }
    if (!late) EXPECT_EQ_TEXT(cairn_world_text(waits[2].version, "state"), "gone");
    for (size_t i = 0; i < CAIRN_COUNT(states); i++) cairn_waits_release(&waits[i]);
    return !late;
}

TEST(a_removal_is_told_at_each_of_its_steps_by_the_step_that_it_had) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[6];
    REQUIRE(start(&world, "1s"));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (size_t i = 0; i < CAIRN_COUNT(saves); i++)
        REQUIRE_OK(cairn_hand_save_all(&hand, i + 1, 1, "error", 100, &saves[i]));
    size_t done = 0;
    /* On a slow machine a wait may come late, which proves nothing. */
    while (done < 5 && !remove_awaited(&world, &saves[done])) done++;
    REQUIRE(done < 5);
    expect_now(&world, saves[done].path, "deleted", "reached");
    char path[300];
    snprintf(path, sizeof(path), "%s?for=durable&wait=60s", saves[done].path); /* at once */
    EXPECT_CODE(cairn_world_call(&world, "GET", path, NULL, NULL), CAIRN_DELETED);
}

TEST(what_cannot_be_waited_for_is_refused_and_what_does_not_come_is_not_yet_there_or_of_no_run) {
    static const char *const wrong[] = {
        "whole",    "",          "commit",        "committed:slow",
        "promoted", "promoted:", "promoted:Slow", "promoted:nowhere"};
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    char path[300];
    REQUIRE(start(&world, "1h"));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++) {
        snprintf(path, sizeof(path), WORLD_RUN "/checkpoints/5?wait=60s&for=%s", wrong[i]);
        EXPECT_CODE(cairn_world_call(&world, "GET", path, NULL, NULL), CAIRN_INVALID);
    }
    static const char *const at_once[] = {
        "seven/checkpoints/5?wait=60s",
        "seven/checkpoints/5?wait=60s&for=trashed",
        "seven/checkpoints/5?wait=60s&for=gone",
        "none/checkpoints/5?wait=60s&for=committed",
        "none/checkpoints/latest?wait=60s&newer_than=1",
        "seven/checkpoints/ckpt_00000000-0000-8000-8000-000000000000?wait=60s&for=committed"};
    for (size_t i = 0; i < CAIRN_COUNT(at_once); i++) {
        uint64_t from_ms = cairn_mono_ms();
        snprintf(path, sizeof(path), "/v1/runs/llm/%s", at_once[i]);
        EXPECT_CODE(cairn_world_call(&world, "GET", path, NULL, NULL), CAIRN_NOT_FOUND);
        EXPECT(cairn_mono_ms() - from_ms < WOKEN_MS);
    }
    static const char *const not_yet[] = {"5?wait=500ms&for=begun",
                                          "latest?wait=500ms&newer_than=1"};
    for (size_t i = 0; i < CAIRN_COUNT(not_yet); i++) {
        uint64_t from_ms = cairn_mono_ms();
        snprintf(path, sizeof(path), WORLD_RUN "/checkpoints/%s", not_yet[i]);
        EXPECT_CODE(cairn_world_call(&world, "GET", path, NULL, NULL), CAIRN_NOT_YET);
        EXPECT(cairn_mono_ms() - from_ms >= 500);
    }
    snprintf(path, sizeof(path), WORLD_RUN "/checkpoints/5?for=begun"); /* nobody waits */
    EXPECT_CODE(cairn_world_call(&world, "GET", path, NULL, NULL), CAIRN_NOT_YET);
}
