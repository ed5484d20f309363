/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Quotas of projects: what counts, what is refused and how it is told, who sets them, and that the
 * rows they are judged by are what a recount finds (server/ledger/policies.h). */
#include <signal.h>
#include <stdio.h>

#include "api/wire/words.h"
#include "tests/server/office.h"

#define QUOTA "/v1/projects/llm/quota"
#define MINUTE_MS UINT64_C(60000)

static enum cairn_code call(struct cairn_world *world, const char *method, const char *path,
                            const char *body, json_t **ret) {
    return cairn_world_call(world, method, path, body ? json_loads(body, 0, NULL) : NULL, ret);
}

static enum cairn_code begin(struct cairn_hand *hand, uint64_t step, uint32_t n, uint32_t rank,
                             json_t **ret) {
    return cairn_world_call(hand->world, "POST", WORLD_RUN "/checkpoints",
                            cairn_hand_begin_body(hand, step, n, rank, "new-version"), ret);
}

static uint64_t used(struct cairn_world *world, const char *what) {
    CAIRN_AUTO_JSON json_t *row = NULL;
    EXPECT(!call(world, "GET", QUOTA, NULL, &row));
    return cairn_world_number(row, what);
}

/* The members of the last problem of a world inside: "versions 2 2 1". */
static const char *numbers(const struct cairn_world *world) {
    static char text[200];
    const json_t *extra = world->inside.extra;
    snprintf(text, sizeof(text), "%s %" PRIu64 " %" PRIu64 " %" PRIu64,
             cairn_world_text(extra, "resource"), cairn_world_number(extra, "limit"),
             cairn_world_number(extra, "used"), cairn_world_number(extra, "asked"));
    return text;
}

#define err world.err /* of the macros */

TEST(a_save_beyond_the_projects_versions_is_refused_with_the_numbers_for_all_ranks_for_ever) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[2];
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=1h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    for (uint64_t i = 0; i < 2; i++)
        REQUIRE_OK(cairn_hand_save_all(&hand, i + 1, 1, "error", 10, &saves[i]));
    REQUIRE_OK(call(&world, "PUT", QUOTA, "{\"versions\":2}", NULL));
    EXPECT_CODE(begin(&hand, 3, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    EXPECT_EQ_TEXT(numbers(&world), "versions 2 2 1");
    EXPECT(strstr(err.message, "limit 2, used 2, asked 1; project llm") != NULL);
    EXPECT_EQ_U64(cairn_code_info(CAIRN_QUOTA_EXCEEDED)->http_status, 507);
    EXPECT_EQ_U64(used(&world, "used_versions"), 2); /* what was refused is none */
    /* The trash counts until it is emptied. */
    REQUIRE_OK(call(&world, "DELETE", saves[0].path, NULL, NULL));
    EXPECT_CODE(begin(&hand, 4, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    cairn_inside_pass(&world.inside, 65 * MINUTE_MS);
    EXPECT_EQ_U64(used(&world, "used_versions"), 1);
    /* There is room, and what was refused stays so. */
    EXPECT_CODE(begin(&hand, 3, 1, 1, NULL), CAIRN_QUOTA_EXCEEDED);
    EXPECT_EQ_TEXT(numbers(&world), "versions 2 2 1");
    EXPECT_CODE(begin(&hand, 3, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    EXPECT_CODE(begin(&hand, 5, 1, 0, NULL), CAIRN_OK);
    EXPECT_CODE(begin(&hand, 5, 1, 1, NULL), CAIRN_OK); /* it joins, and is not judged */
    EXPECT_CODE(begin(&hand, 6, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
}

TEST(what_a_project_takes_up_is_there_for_each_of_thirty_days) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    const uint64_t day_ms = 24 * 60 * MINUTE_MS;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 100, &save));
    cairn_inside_pass(&world.inside, day_ms);
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 900, &save));
    cairn_inside_pass(&world.inside, 11 * MINUTE_MS);
    CAIRN_AUTO_JSON json_t *two = NULL;
    REQUIRE_OK(call(&world, "GET", QUOTA, NULL, &two));
    const json_t *days = json_object_get(two, "days");
    REQUIRE(json_array_size(days) == 2);
    EXPECT_EQ_U64(cairn_world_number(json_array_get(days, 0), "bytes"), 100);
    EXPECT_EQ_U64(cairn_world_number(json_array_get(days, 1), "bytes"), 1000);
    EXPECT_EQ_U64(cairn_world_number(json_array_get(days, 1), "versions"), 2);
    for (int day = 0; day < 31; day++) {
        world.inside.clock.wall_ms += (int64_t)day_ms; /* as a clock that is set */
        cairn_inside_pass(&world.inside, 11 * MINUTE_MS);
    }
    CAIRN_AUTO_JSON json_t *many = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", "/v1/quotas", NULL, &many));
    days = json_object_get(json_array_get(json_object_get(many, "items"), 0), "days");
    EXPECT_EQ_U64(json_array_size(days), 30); /* the two above are not among them */
    EXPECT_EQ_U64(cairn_world_number(json_array_get(days, 0), "bytes"), 1000);
}

TEST(a_save_that_has_begun_ends_and_the_next_is_refused_for_its_bytes) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, next;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(call(&world, "PUT", QUOTA, "{\"bytes\":100,\"versions\":null}", NULL));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 99, &save));
    EXPECT_EQ_U64(used(&world, "used_bytes"), 99);
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 5000, &next));
    EXPECT_EQ_U64(used(&world, "used_bytes"), 5099);
    EXPECT_CODE(begin(&hand, 3, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    EXPECT_EQ_TEXT(numbers(&world), "bytes 100 5099 0");
    /* What is sealed counts before it is committed. */
    REQUIRE_OK(call(&world, "PUT", QUOTA, "{\"bytes\":6000}", NULL));
    REQUIRE_OK(cairn_hand_begin(&hand, 4, 1, "error", &save));
    REQUIRE_OK(
        cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(0, NULL, "x", 901)), NULL));
    EXPECT_EQ_U64(used(&world, "used_bytes"), 6000);
    EXPECT_CODE(begin(&hand, 5, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    EXPECT_EQ_TEXT(numbers(&world), "bytes 6000 6000 0");
}

TEST(a_projects_own_quota_holds_before_the_default_and_nothing_is_allowed_to_one_of_0) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    static const struct {
        const char *method, *path, *body, *from;
        enum cairn_code begins;
    } steps[] = {
        {"GET", QUOTA, NULL, NULL, CAIRN_OK},
        {"PUT", "/v1/quota", "{\"versions\":0}", "server", CAIRN_QUOTA_EXCEEDED},
        {"GET", QUOTA, NULL, "server", CAIRN_QUOTA_EXCEEDED},
        {"PUT", QUOTA, "{\"bytes\":1}", "project", CAIRN_OK}, /* without a bound of versions */
        {"PUT", QUOTA, "{\"bytes\":0}", "project", CAIRN_QUOTA_EXCEEDED},
        {"PUT", QUOTA, "{\"versions\":100}", "project", CAIRN_OK},
        {"DELETE", QUOTA, NULL, "server", CAIRN_QUOTA_EXCEEDED},
        {"DELETE", "/v1/quota", NULL, NULL, CAIRN_OK},
    };
    for (size_t i = 0; i < CAIRN_COUNT(steps); i++) {
        CAIRN_AUTO_JSON json_t *shown = NULL;
        REQUIRE_OK(call(&world, steps[i].method, steps[i].path, steps[i].body, &shown));
        const char *from = json_string_value(json_object_get(shown, "from"));
        EXPECT_EQ_TEXT(from ? from : "", steps[i].from ? steps[i].from : "");
        EXPECT_CODE(begin(&hand, i + 1, 1, 0, NULL), steps[i].begins);
    }
    static const char *const bad[] = {"{}", "{\"versions\":null}", "{\"versions\":-1}",
                                      "{\"bytes\":\"1GiB\"}", "{\"files\":3}"};
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++)
        EXPECT_CODE(call(&world, "PUT", QUOTA, bad[i], NULL), CAIRN_INVALID);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM project_quotas"), 0);
    EXPECT_EQ_U64(
        cairn_world_count(&world, "SELECT count(*) FROM events WHERE event = 'quota.set'"), 4);
}

TEST(a_batch_of_begins_has_the_numbers_in_the_problem_of_each_that_is_refused) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(call(&world, "PUT", QUOTA, "{\"versions\":1}", NULL));
    json_t *begins = json_array();
    for (uint64_t step = 1; step <= 2; step++) {
        json_t *one = cairn_hand_begin_body(&hand, step, 1, 0, "error");
        (void)(json_object_del(one, "grant") | json_object_del(one, "node"));
        json_array_append_new(begins, one);
    }
    REQUIRE_OK(cairn_world_call(
        &world, "POST", WORLD_RUN "/checkpoints",
        json_pack("{s:s, s:s, s:o}", "grant", hand.grant, "node", "node-a", "begins", begins),
        &reply));
    const json_t *results = json_object_get(reply, "results"), *second = json_array_get(results, 1);
    const json_t *problem = json_object_get(second, "problem");
    EXPECT_EQ_U64(cairn_world_number(json_array_get(results, 0), "status"), 201);
    EXPECT_EQ_U64(cairn_world_number(second, "status"), 507);
    EXPECT_EQ_TEXT(cairn_world_text(problem, "code"), "quota-exceeded");
    EXPECT_EQ_TEXT(cairn_world_text(problem, "resource"), "versions");
    EXPECT_EQ_U64(cairn_world_number(problem, "limit"), 1);
    EXPECT_EQ_U64(cairn_world_number(problem, "used"), 1);
    EXPECT_EQ_U64(cairn_world_number(problem, "asked"), 1);
}

/* ---- the rows are what a recount finds ---- */

/* From the rows of versions and shards, and not by what the server adds up. */
static void expect_recounted(struct cairn_world *world, uint64_t step) {
    uint64_t versions =
        cairn_world_count(world, "SELECT count(*) FROM versions WHERE state IN (0, 1, 2)");
    uint64_t kept = cairn_world_count(
        world,
        "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM versions WHERE state IN (1, 2)");
    uint64_t sealed = cairn_world_count(
        world, "SELECT CAST(coalesce(sum(s.size), 0) AS BIGINT) FROM shards s JOIN versions v ON "
               "v.version = s.version WHERE v.state IN (0, 3) AND s.sealed = 1");
    uint64_t of_runs = cairn_world_count(world, "SELECT count(*) FROM project_usage");
    uint64_t held = cairn_world_count(
        world, "SELECT CAST(coalesce(sum(versions), 0) AS BIGINT) FROM project_usage");
    uint64_t bytes = cairn_world_count(
        world, "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM project_usage");
    cairn_test_check(held == versions && bytes == kept + sealed && of_runs <= 1, __FILE__, __LINE__,
                     "step %" PRIu64 ": %" PRIu64 " versions and %" PRIu64
                     " bytes, counted %" PRIu64 " and %" PRIu64,
                     step, held, bytes, versions, kept + sealed);
}

#define SAVES_MAX 400
struct history {
    struct cairn_world *world;
    uint64_t random;
    struct cairn_hand hand;
    struct cairn_hand_save saves[SAVES_MAX];
    size_t count;
    uint64_t attempts;
};

static uint64_t draw(struct history *history, uint64_t below) {
    return cairn_test_random(&history->random) % below;
}

static void do_post(const struct cairn_hand_save *save, const char *tail) {
    char path[300];
    snprintf(path, sizeof(path), "%s%s", save->path, tail);
    (void)!cairn_world_call(save->hand->world, "POST", path, NULL, NULL);
}

static void seal_some(struct history *history, const struct cairn_hand_save *save) {
    json_t *seals = json_array();
    char name[40];
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (!draw(history, 3)) continue;
        snprintf(name, sizeof(name), "rank-%u/x", rank);
        json_array_append_new(seals, cairn_hand_seal(rank, NULL, name, 1 + draw(history, 5000)));
    }
    if (json_array_size(seals))
        (void)!cairn_hand_send(save, NULL, seals, NULL);
    else
        json_decref(seals);
}

static void attempt_next(struct history *history) {
    char job[32];
    snprintf(job, sizeof(job), "j%" PRIu64, history->attempts);
    struct cairn_hand next = {0};
    if (!cairn_hand_open(history->world, &next, job, history->attempts, "latest", 2)) {
        history->hand = next;
        history->attempts++;
    }
}

/* What it does may be refused: then it is nothing that counts. */
static void act(struct history *history) {
    struct cairn_hand_save *next = &history->saves[history->count];
    size_t which = history->count ? draw(history, history->count) : 0;
    struct cairn_hand_save *some = history->count ? &history->saves[which] : NULL;
    uint64_t step = 1 + draw(history, 30);
    uint32_t n = (uint32_t)(1 + history->count);
    static const char *const words[] = {"error", "error", "supersede", "new-version"};
    const char *exists = words[draw(history, CAIRN_COUNT(words))];
    uint64_t what = some ? draw(history, 20) : 0;
    if (what < 5) {
        if (!cairn_hand_begin(&history->hand, step, n, exists, next)) history->count++;
    } else if (what < 9) {
        if (!cairn_hand_save_all(&history->hand, step, n, exists, 1 + draw(history, 3000), next))
            history->count++;
    } else if (what < 12) {
        seal_some(history, some);
    } else if (what < 14) {
        do_post(some, "/abort");
    } else if (what < 16) {
        (void)!cairn_world_call(history->world, "DELETE", some->path, NULL, NULL);
    } else if (what == 16) {
        do_post(some, "/undelete");
    } else if (what == 17) {
        attempt_next(history);
    } else if (what == 18) {
        (void)!cairn_world_call(history->world, "DELETE", WORLD_RUN "?confirm=llm/seven", NULL,
                                NULL);
    } else {
        cairn_inside_pass(&history->world->inside, draw(history, 90) * MINUTE_MS);
    }
}

TEST(after_any_history_the_row_of_a_project_is_what_a_recount_of_its_versions_finds) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=30min")));
    struct history *history = calloc(1, sizeof(*history));
    REQUIRE(history != NULL);
    history->world = &world;
    history->random = cairn_test_seed();
    attempt_next(history);
    for (uint64_t i = 0; i < 600 && history->count < SAVES_MAX - 1; i++) {
        if (i == 200) EXPECT_CODE(call(&world, "PUT", QUOTA, "{\"versions\":9}", NULL), CAIRN_OK);
        act(history);
        expect_recounted(&world, i);
    }
    EXPECT(history->count > 20);
    EXPECT(history->attempts > 1);
    EXPECT(cairn_world_count(&world, "SELECT count(*) FROM versions WHERE state = 4") > 0);
    free(history);
}

TEST(a_seal_of_an_absurd_size_is_counted_up_to_a_bound_and_ends_nothing) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 4));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    json_t *seals = json_array(); /* 2^64 bytes */
    for (uint32_t rank = 0; rank < 4; rank++) {
        char name[20];
        snprintf(name, sizeof(name), "r%u", rank);
        json_array_append_new(seals, cairn_hand_seal(rank, NULL, name, UINT64_C(1) << 62));
    }
    REQUIRE_OK(cairn_hand_send(&save, NULL, seals, NULL));
    EXPECT_EQ_U64(used(&world, "used_bytes"), UINT64_C(1) << 50);
    do_post(&save, "/abort");
    EXPECT_EQ_U64(used(&world, "used_versions"), 0);
    cairn_inside_pass(&world.inside, 10 * MINUTE_MS);
    EXPECT_EQ_U64(used(&world, "used_bytes"), 0);
}

TEST(a_reconcile_finds_what_a_lost_catalog_had_and_counts_it_for_the_quota) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save saves[3];
    static const char *const args[] = {"--adopt-store=true", "--reconcile-wait=0ms",
                                       "--sweep-interval=50ms", NULL};
    REQUIRE(cairn_hand_start(&world, &hand, saves, 3));
    uint64_t bytes = used(&world, "used_bytes");
    EXPECT_EQ_U64(used(&world, "used_versions"), 3);
    EXPECT(bytes > 0);
    (void)cairn_daemon_stop(&world.server, SIGTERM, 10000);
    REQUIRE(cairn_world_lose_catalog(&world));
    REQUIRE(cairn_world_restart(&world, args, NULL));
    (void)!call(&world, "GET", WORLD_RUN, NULL, NULL); /* it is compared with its store */
    for (int i = 0; i < 200 && used(&world, "used_versions") != 3; i++) {
        (void)!cairn_world_call(&world, "POST", WORLD_RUN "/reconcile?wait=1s", NULL, NULL);
        (void)!call(&world, "POST", WORLD_RUN "/reconcile", NULL, NULL);
    }
    EXPECT_EQ_U64(used(&world, "used_versions"), 3);
    EXPECT_EQ_U64(used(&world, "used_bytes"), bytes);
    EXPECT(!cairn_daemon_logged(&world.server, "usage.differed")); /* also before the recount */
}

TEST(a_reconcile_puts_right_what_somebody_changed_in_the_database) { /* policies.h#2 */
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--reconcile-wait=0ms")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE(cairn_world_sql(&world, "UPDATE project_usage SET versions = -5, bytes = 77"));
    EXPECT_EQ_U64(used(&world, "used_versions"), 0); /* never a number that wraps */
    REQUIRE(cairn_world_sql(&world, "INSERT INTO frozen_runs(run_id, cause, since_ms) SELECT "
                                    "run_id, 'a test', 1 FROM runs"));
    world.inside.server.frozen_runs = 1;
    REQUIRE_OK(cairn_world_call(&world, "POST", WORLD_RUN "/reconcile", NULL, NULL));
    cairn_inside_pass(&world.inside, 2 * MINUTE_MS);
    EXPECT_EQ_U64(world.inside.server.frozen_runs, 0);
    EXPECT_EQ_U64(used(&world, "used_versions"), 1);
    EXPECT_EQ_U64(used(&world, "used_bytes"), 10);
}

#undef err

/* ---- who may ---- */

TEST(a_quota_is_set_by_who_rules_all_projects_and_seen_by_who_reads_that_one) /* A02 */
{
    AUTO_OFFICE office = {0};
    struct made bound, reader, other;
    static const char put[] = "{\"versions\":5}";
    CAIRN_AUTO(buf) all = {.limit = CAIRN_MIB}, some = {.limit = CAIRN_MIB};
    REQUIRE(cairn_office_open(&office));
    REQUIRE(cairn_office_make(&office, "read,admin", "llm", 0, &bound));
    REQUIRE(cairn_office_make(&office, "read", "llm", 0, &reader));
    REQUIRE(cairn_office_make(&office, "read,admin", "other", 0, &other));
    EXPECT_SAID(200, &office, office.admin, "PUT", QUOTA, put);
    EXPECT_SAID(200, &office, office.admin, "PUT", "/v1/projects/other/quota", put);
    EXPECT_SAID(403, &office, bound.text, "PUT", QUOTA, put);
    EXPECT_SAID(403, &office, bound.text, "DELETE", QUOTA, NULL);
    EXPECT_SAID(403, &office, bound.text, "PUT", "/v1/quota", put);
    EXPECT_SAID(403, &office, reader.text, "PUT", QUOTA, put);
    EXPECT_SAID(200, &office, reader.text, "GET", QUOTA, NULL);
    EXPECT_SAID(404, &office, other.text, "GET", QUOTA, NULL);
    EXPECT_SAID(404, &office, other.text, "PUT", QUOTA, put);
    EXPECT_SAID(401, &office, NULL, "GET", "/v1/quotas", NULL);
    EXPECT_EQ_U64(cairn_office_say(&office, office.admin, "GET", "/v1/quotas", NULL, NULL, &all),
                  200);
    EXPECT_EQ_U64(cairn_office_say(&office, other.text, "GET", "/v1/quotas", NULL, NULL, &some),
                  200);
    EXPECT(strstr(all.data, "\"llm\"") && strstr(all.data, "\"other\""));
    EXPECT(!strstr(some.data, "\"llm\"") && strstr(some.data, "\"other\""));
}

TEST(what_is_told_of_a_quota_is_read_again_as_the_same_numbers) { /* api/wire/words.h#1 */
    struct cairn_quota_excess read = {0}, told = {"bytes", UINT64_C(1) << 62, INT64_MAX, 0};
    char text[400];
    cairn_quota_excess_text(&told, "llm", text, sizeof(text));
    REQUIRE(cairn_quota_excess_read(text, &read));
    EXPECT_EQ_TEXT(read.resource, "bytes");
    EXPECT_EQ_U64(read.limit, told.limit);
    EXPECT_EQ_U64(read.used, told.used);
    EXPECT_EQ_U64(read.asked, told.asked);
    static const char *const others[] = {
        "",
        "quota of ",
        "quota of files: limit 1, used 1, asked 1; ",
        "quota of bytes: limit , used 1, asked 1;",
        "quota of bytes: limit 1, used 1, asked 1",
        "quota of bytes: limit 99999999999999999999, used 1, asked 1;"};
    for (size_t i = 0; i < CAIRN_COUNT(others); i++)
        EXPECT(!cairn_quota_excess_read(others[i], &read));
}
