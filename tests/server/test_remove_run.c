/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* A run is removed with all that it has, in rounds, whatever meets it on its way; as an operation
 * that is looked at, cancelled, killed and begun again. */
#include "server/retention/remove_run.h"
#include "tests/server/world.h"

#define VERSIONS 6

static const struct cairn_run_name name = {"llm", "seven"};

struct scene {
    struct cairn_world world;
    struct cairn_hand hand;
    struct cairn_hand_save saves[VERSIONS];
};

static bool set_up(struct scene *scene) {
    if (!world_start_inside(&scene->world, WORLD_ARGS("--trash-grace=1h"))) return false;
    if (hand_open(&scene->world, &scene->hand, "j1", 0, "latest", 1)) return false;
    return !hand_saves(&scene->hand, scene->saves, VERSIONS);
}

/* What comes when so many are gone; false cancels. */
struct meeting {
    struct scene *scene;
    uint64_t at, done, total, told;
    unsigned later; /* that it is told of so many before */
    bool (*meet)(struct scene *scene);
    enum cairn_code (*check)(struct srv_tx *tx, void *owner, struct cairn_error *err);
    unsigned checks;
};

static bool tell(void *owner, uint64_t done, uint64_t total) {
    struct meeting *meeting = owner;
    EXPECT(done >= meeting->done); /* it never goes back */
    meeting->done = done;
    meeting->total = total;
    meeting->told++;
    if (done != meeting->at || !meeting->meet || meeting->later-- > 0) return true;
    bool (*meet)(struct scene *) = meeting->meet;
    meeting->meet = NULL; /* once */
    return meet(meeting->scene);
}

static enum cairn_code remove_run(struct scene *scene, struct meeting *meeting, json_t **ret) {
    struct cairn_world *world = &scene->world;
    const struct srv_remove_run wish = {.server = &world->inside.server,
                                        .worker = world->inside.worker,
                                        .name = &name,
                                        .attempt = 1,
                                        .versions = VERSIONS,
                                        .who = "ops/1",
                                        .from = "10.0.0.9",
                                        .tell = tell,
                                        .check = meeting->check,
                                        .owner = meeting};
    meeting->scene = scene;
    world->err = (struct cairn_error){0};
    return srv_remove_run(&wish, ret, &world->err);
}

static uint64_t trashed(struct scene *scene) {
    return world_count(&scene->world,
                       "SELECT count(*) FROM versions WHERE trashed_tick IS NOT NULL");
}

#define err scene.world.err /* of the macros */

/* ---- what comes meanwhile ---- */

static bool pin_a_later_one(struct scene *scene) {
    return world_sql(&scene->world, "UPDATE versions SET pinned = 1 WHERE step = 5");
}

static bool name_a_later_one(struct scene *scene) {
    return !world_call(&scene->world, "PUT", WORLD_RUN "/aliases/prod",
                       json_pack("{s:s}", "ref", "5"), NULL);
}

static bool lease_a_later_one(struct scene *scene) {
    const char *path = TEXT("%s/leases", scene->saves[4].path);
    return !world_call(&scene->world, "POST", path, json_pack("{s:s}", "job", "eval"), NULL);
}

static bool open_an_attempt(struct scene *scene) {
    struct cairn_hand next;
    return !hand_open(&scene->world, &next, "j2", 1, "none", 1);
}

static bool cancel(struct scene *scene) {
    (void)scene;
    return false;
}

static const struct {
    bool (*meet)(struct scene *scene);
    enum cairn_code code;
    uint64_t removed;
    const char *says;
} comes[] = {
    {pin_a_later_one, CAIRN_IN_USE, 4, "is pinned"},
    {name_a_later_one, CAIRN_IN_USE, 4, "the alias prod"},
    {lease_a_later_one, CAIRN_IN_USE, 4, "is being read"},
    {open_an_attempt, CAIRN_RUN_BUSY, 2, "attempt 2 was opened meanwhile"},
    {cancel, CAIRN_CANCELLED, 2, "it was cancelled"},
};

TEST(what_comes_while_a_run_is_removed_ends_it_with_what_was_done_and_all_else_stays) {
    for (size_t i = 0; i < CAIRN_COUNT(comes); i++) {
        struct scene scene = {0};
        struct meeting meeting = {.at = 2, .meet = comes[i].meet};
        CAIRN_AUTO_JSON json_t *result = NULL, *run = NULL;
        REQUIRE(set_up(&scene));
        EXPECT_FAILS(
            remove_run(&scene, &meeting, &result), comes[i].code,
            TEXT("%u of %u versions are gone", (unsigned)comes[i].removed, (unsigned)VERSIONS));
        EXPECT(strstr(err.message, comes[i].says) != NULL);
        EXPECT_EQ_U64(world_number(result, "removed"), comes[i].removed);
        EXPECT_EQ_U64(world_number(result, "bytes"), comes[i].removed * 10);
        EXPECT_EQ_U64(trashed(&scene), comes[i].removed);
        REQUIRE_OK(world_call(&scene.world, "GET", WORLD_RUN, NULL, &run)); /* not hidden */
        EXPECT_EQ_U64(meeting.total, VERSIONS);
        REQUIRE(world_end(&scene.world));
    }
}

/* ---- to its end ---- */

static bool forget_a_record(struct scene *scene) {
    return world_sql(&scene->world, "UPDATE versions SET recorded = 0 WHERE step = 6");
}

static bool it_is_recorded(struct scene *scene) {
    return world_sql(&scene->world, "UPDATE versions SET recorded = 1 WHERE step = 6");
}

TEST(a_version_whose_record_is_being_written_is_waited_for_and_goes_with_its_run) {
    struct scene scene = {0};
    struct meeting meeting = {.at = VERSIONS - 1, .later = 2, .meet = it_is_recorded};
    CAIRN_AUTO_JSON json_t *result = NULL;
    REQUIRE(set_up(&scene));
    REQUIRE(forget_a_record(&scene));
    REQUIRE_OK(remove_run(&scene, &meeting, &result));
    EXPECT_ALL_U64(world_number(result, "removed"), VERSIONS, trashed(&scene), VERSIONS);
    REQUIRE(world_end(&scene.world));
}

TEST(a_run_that_is_held_by_the_time_its_removal_begins_loses_nothing) {
    struct scene scene = {0};
    struct meeting meeting = {0};
    CAIRN_AUTO_JSON json_t *result = NULL;
    REQUIRE(set_up(&scene));
    REQUIRE(pin_a_later_one(&scene));
    EXPECT_CODE(remove_run(&scene, &meeting, &result), CAIRN_IN_USE);
    EXPECT_ALL_U64(world_number(result, "removed"), 0, trashed(&scene), 0);
    REQUIRE(world_end(&scene.world));
}

/* When all are gone: the look that finds nothing, and then the transaction that hides the run. */
static enum cairn_code bring_one_back(struct srv_tx *tx, void *owner, struct cairn_error *ret) {
    struct meeting *meeting = owner;
    const struct cairn_hand_save *saves = meeting->scene->saves;
    SRV_AUTO(version) last = {0}, version = {0};
    CAIRN_TRY(srv_version_get(tx, saves[VERSIONS - 1].id.text, &last, ret));
    if (!last.trashed || ++meeting->checks != 2) return CAIRN_OK;
    CAIRN_TRY(srv_version_get(tx, saves[2].id.text, &version, ret));
    return srv_version_untrash(tx, &version, ret);
}

TEST(a_version_that_is_back_when_its_run_is_to_be_hidden_goes_before_it) { /* remove_run.h#2 */
    struct scene scene = {0};
    struct meeting meeting = {.check = bring_one_back};
    CAIRN_AUTO_JSON json_t *result = NULL;
    REQUIRE(set_up(&scene));
    REQUIRE_OK(remove_run(&scene, &meeting, &result));
    EXPECT(meeting.checks > 2);
    EXPECT_ALL_U64(world_number(result, "removed"), VERSIONS + 1, trashed(&scene), VERSIONS);
    EXPECT_CODE(world_call(&scene.world, "GET", WORLD_RUN, NULL, NULL), CAIRN_NOT_FOUND);
    REQUIRE(world_end(&scene.world));
}

static bool trash_one_by_hand(struct scene *scene) {
    const struct srv_actor *remover = srv_actor_get(); /* the call is on its thread */
    enum cairn_code code = world_call(&scene->world, "DELETE", scene->saves[4].path, NULL, NULL);
    srv_actor_set(remover);
    return !code;
}

#define MANY 110 /* two rounds */

TEST(a_run_of_many_versions_goes_whole_in_one_removal_and_its_events_name_who_asked) {
    struct scene scene = {0};
    struct meeting meeting = {.at = 3, .meet = trash_one_by_hand};
    CAIRN_AUTO_JSON json_t *result = NULL;
    struct cairn_hand_save more, open;
    REQUIRE(set_up(&scene));
    for (uint64_t step = VERSIONS + 1; step <= MANY; step++)
        REQUIRE_OK(hand_save_all(&scene.hand, step, 1, "error", 10, &more));
    REQUIRE_OK(hand_begin(&scene.hand, MANY + 1, 1, "error", &open));
    REQUIRE_OK(remove_run(&scene, &meeting, &result));
    EXPECT_EQ_U64(world_number(result, "removed"), MANY - 1); /* one went by hand */
    EXPECT_ALL_U64(world_number(result, "bytes"), (MANY - 1) * 10, world_number(result, "aborted"),
                   1, trashed(&scene), MANY);
    EXPECT_CODE(world_call(&scene.world, "GET", WORLD_RUN, NULL, NULL), CAIRN_NOT_FOUND);
    EXPECT_ALL_U64(
        world_count(&scene.world, "SELECT count(*) FROM events WHERE who = 'ops/1' AND origin = "
                                  "'10.0.0.9' AND event = 'checkpoint.trashed' AND reason = "
                                  "'with its run'"),
        MANY - 1,
        world_count(&scene.world, "SELECT count(*) FROM events WHERE who = 'ops/1' AND event IN "
                                  "('run.removed', 'checkpoint.aborted')"),
        2);
    REQUIRE(world_end(&scene.world));
}

/* ---- what would go ---- */

TEST(a_dry_run_shows_what_would_go_and_what_is_in_its_way_and_changes_nothing) {
    struct scene scene = {0};
    CAIRN_AUTO_JSON json_t *plan = NULL, *again = NULL;
    struct cairn_hand_save open;
    static const char *const asked[] = {WORLD_RUN "?dry_run=true",
                                        WORLD_RUN "?dry_run=true&confirm=seven"};
    REQUIRE(set_up(&scene));
    REQUIRE_OK(hand_begin(&scene.hand, 9, 1, "error", &open));
    REQUIRE_OK(world_call(&scene.world, "DELETE", scene.saves[0].path, NULL, NULL));
    for (size_t i = 0; i < CAIRN_COUNT(asked); i++) {
        json_decref(plan);
        plan = NULL;
        REQUIRE_OK(world_call(&scene.world, "DELETE", asked[i], NULL, &plan));
        EXPECT_EQ_U64(world_number(plan, "versions"), VERSIONS - 1);
        EXPECT_EQ_U64(world_number(plan, "bytes"), (VERSIONS - 1) * 10);
        EXPECT_SHOWS(plan, "open", "1", "code", "null");
    }
    REQUIRE(pin_a_later_one(&scene));
    REQUIRE_OK(world_call(&scene.world, "DELETE", asked[0], NULL, &again));
    EXPECT_EQ_TEXT(world_text(again, "code"), "in-use");
    EXPECT(strstr(world_text(again, "detail"), "is pinned") != NULL);
    EXPECT_CODE(
        world_call(&scene.world, "DELETE", WORLD_RUN "?dry_run=true&confirm=six", NULL, NULL),
        CAIRN_INVALID);
    EXPECT_CODE(world_call(&scene.world, "DELETE", WORLD_RUN "?dry_run=yes", NULL, NULL),
                CAIRN_INVALID);
    EXPECT_EQ_U64(trashed(&scene), 1);
    EXPECT_EQ_U64(world_count(&scene.world, "SELECT count(*) FROM runs WHERE removed = 1"), 0);
    REQUIRE(world_end(&scene.world));
}

/* ---- as an operation ---- */

#define SLOW 40

struct ward {
    struct cairn_world world;
    struct cairn_hand hand;
    struct cairn_hand_save saves[SLOW];
};

/* A removal that stands for a while at each version. */
static bool set_up_slow(struct ward *ward) {
    static const char *const slow[] = {"CAIRN_CRASH_AT=server.trash.after_mark:0:delay=500", NULL};
    if (!world_start(&ward->world, WORLD_ARGS("--sweep-interval=50ms"), slow)) return false;
    if (hand_open(&ward->world, &ward->hand, "j1", 0, "latest", 1)) return false;
    return !hand_saves(&ward->hand, ward->saves, SLOW);
}

static bool look(struct ward *ward, const char *id, json_t **ret) {
    const char *path = TEXT("/v1/operations/%s", id);
    json_decref(*ret);
    *ret = NULL;
    return !world_call(&ward->world, "GET", path, NULL, ret);
}

static uint64_t done_of(const json_t *operation) {
    return world_number(json_object_get(operation, "progress"), "done");
}

/* Until some are gone, and long before all are. */
static bool await_some(struct ward *ward, const char *id, json_t **ret) {
    bool looked = true;
    return COMES(!(looked = look(ward, id, ret)) || done_of(*ret) >= 2) && looked;
}

static bool await_end(struct ward *ward, const char *id, const char *state, json_t **ret) {
    bool looked = true;
    return COMES(!(looked = look(ward, id, ret)) ||
                 !json_is_null(json_object_get(*ret, "ended_at"))) &&
           looked && !strcmp(world_text(*ret, "state"), state);
}

static uint64_t left_of(struct ward *ward) {
    CAIRN_AUTO_JSON json_t *plan = NULL;
    if (world_call(&ward->world, "DELETE", WORLD_RUN "?dry_run=true", NULL, &plan))
        return UINT64_MAX;
    return world_number(plan, "versions");
}

#undef err
#define err ward.world.err

TEST(a_removal_is_an_operation_that_says_what_it_frees_and_the_same_call_joins_it_and_goes_on) {
    struct ward ward = {0};
    CAIRN_AUTO_JSON json_t *begun = NULL, *same = NULL, *seen = NULL, *next = NULL;
    REQUIRE(set_up_slow(&ward));
    REQUIRE_OK(world_call(&ward.world, "DELETE", WORLD_RUN "?confirm=seven", NULL, &begun));
    const char *id = TEXT("%s", world_text(begun, "id"));
    const json_t *asked = json_object_get(begun, "request");
    EXPECT_ALL_TEXT(world_text(begun, "kind"), "remove", world_text(asked, "confirm"), "seven");
    EXPECT_ALL_U64(world_number(asked, "versions"), SLOW, world_number(asked, "bytes"), SLOW * 10,
                   world_number(asked, "open"), 0);
    REQUIRE(await_some(&ward, id, &seen));
    const json_t *progress = json_object_get(seen, "progress");
    EXPECT_EQ_U64(world_number(progress, "total"), SLOW);
    EXPECT_EQ_TEXT(world_text(progress, "unit"), "versions");
    REQUIRE_OK(world_call(&ward.world, "DELETE", WORLD_RUN "?confirm=seven", NULL, &same));
    EXPECT_EQ_TEXT(world_text(same, "id"), id);
    REQUIRE_OK(world_call(&ward.world, "DELETE", TEXT("/v1/operations/%s", id), NULL, NULL));
    REQUIRE(await_end(&ward, id, "cancelled", &seen));
    uint64_t removed = world_number(json_object_get(seen, "result"), "removed");
    EXPECT(removed >= 2);
    EXPECT(removed < SLOW);
    EXPECT_EQ_U64(left_of(&ward), SLOW - removed);
    REQUIRE(world_restart(&ward.world, NULL, NULL)); /* not slow any more */
    REQUIRE_OK(world_call(&ward.world, "DELETE", WORLD_RUN "?confirm=seven", NULL, &next));
    EXPECT(strcmp(world_text(next, "id"), id) != 0);
    REQUIRE(await_end(&ward, world_text(next, "id"), "done", &seen));
    EXPECT_EQ_U64(world_number(json_object_get(seen, "result"), "removed"), SLOW - removed);
    EXPECT_CODE(world_call(&ward.world, "GET", WORLD_RUN, NULL, NULL), CAIRN_NOT_FOUND);
    cairn_world_release(&ward.world);
}

TEST(a_removal_whose_server_is_killed_is_interrupted_and_the_next_one_ends_it) {
    struct ward ward = {0};
    CAIRN_AUTO_JSON json_t *begun = NULL, *seen = NULL, *next = NULL, *back = NULL;
    REQUIRE(set_up_slow(&ward));
    REQUIRE_OK(world_call(&ward.world, "DELETE", WORLD_RUN "?confirm=seven", NULL, &begun));
    const char *id = TEXT("%s", world_text(begun, "id"));
    REQUIRE(await_some(&ward, id, &seen));
    REQUIRE(world_restart(&ward.world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    REQUIRE(await_end(&ward, id, "interrupted", &seen));
    uint64_t left = left_of(&ward);
    EXPECT(left > 0);
    EXPECT(left <= SLOW - 2);
    REQUIRE_OK(world_call(&ward.world, "DELETE", WORLD_RUN "?confirm=seven", NULL, &next));
    REQUIRE(await_end(&ward, world_text(next, "id"), "done", &seen));
    EXPECT_EQ_U64(world_number(json_object_get(seen, "result"), "removed"), left);
    EXPECT_CODE(world_call(&ward.world, "GET", WORLD_RUN, NULL, NULL), CAIRN_NOT_FOUND);
    for (size_t i = 0; i < SLOW; i++) { /* nothing is lost */
        REQUIRE_OK(
            world_call(&ward.world, "POST", TEXT("%s/undelete", ward.saves[i].path), NULL, NULL));
    }
    REQUIRE_OK(world_call(&ward.world, "GET", WORLD_RUN, NULL, &back));
    EXPECT_EQ_U64(world_number(back, "committed"), SLOW);
    cairn_world_release(&ward.world);
}

TEST(what_is_in_the_way_of_a_removal_is_said_before_anything_is_begun) {
    struct ward ward = {0};
    CAIRN_AUTO_JSON json_t *all = NULL;
    REQUIRE(world_start(&ward.world, NULL, NULL));
    REQUIRE_OK(hand_open(&ward.world, &ward.hand, "j1", 0, "latest", 1));
    REQUIRE_OK(hand_save_all(&ward.hand, 1, 1, "error", 10, &ward.saves[0]));
    REQUIRE_OK(world_call(&ward.world, "PUT", WORLD_RUN "/aliases/prod",
                          json_pack("{s:s}", "ref", "1"), NULL));
    EXPECT_FAILS(world_call(&ward.world, "DELETE", WORLD_RUN "?confirm=six", NULL, NULL),
                 CAIRN_INVALID, "the run's name is seven");
    EXPECT_FAILS(world_call(&ward.world, "DELETE", WORLD_RUN, NULL, NULL), CAIRN_INVALID,
                 "confirm=seven removes it");
    EXPECT_FAILS(world_call(&ward.world, "DELETE", WORLD_RUN "?confirm=seven", NULL, NULL),
                 CAIRN_IN_USE, "nothing was removed");
    REQUIRE_OK(hand_beat(&ward.hand, "node-a"));
    EXPECT_CODE(world_call(&ward.world, "DELETE", WORLD_RUN "?confirm=seven", NULL, NULL),
                CAIRN_RUN_BUSY);
    REQUIRE_OK(world_call(&ward.world, "GET", "/v1/operations", NULL, &all));
    EXPECT_EQ_U64(json_array_size(json_object_get(all, "items")), 0);
    cairn_world_release(&ward.world);
}
