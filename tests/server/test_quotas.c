/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Quotas of projects: what counts, what is refused and how it is told, who sets them, and that the
 * rows they are judged by are what a recount finds (server/ledger/policies.h). */
#include "tests/server/office.h"

#define QUOTA "/v1/projects/llm/quota"

static enum cairn_code begin(struct cairn_hand *hand, uint64_t step, uint32_t n, uint32_t rank,
                             json_t **ret) {
    return world_call(hand->world, "POST", WORLD_RUN "/checkpoints",
                      hand_begin_body(hand, step, n, rank, "new-version"), ret);
}

static uint64_t used(struct cairn_world *world, const char *what) {
    CAIRN_AUTO_JSON json_t *row = NULL;
    EXPECT(!cairn_say(world, "GET", QUOTA, NULL, &row));
    return world_number(row, what);
}

/* The members of the last problem of a world inside: "versions 2 2 1". */
static const char *numbers(const struct cairn_world *world) {
    static char text[200];
    const json_t *extra = world->inside.extra;
    snprintf(text, sizeof(text), "%s %" PRIu64 " %" PRIu64 " %" PRIu64,
             world_text(extra, "resource"), world_number(extra, "limit"),
             world_number(extra, "used"), world_number(extra, "asked"));
    return text;
}

#define err world.err /* of the macros */

TEST(a_save_beyond_the_projects_versions_is_refused_with_the_numbers_for_all_ranks_for_ever) {
    struct cairn_hand_save saves[2];
    JOB_INSIDE(2, "--trash-grace=1h");
    REQUIRE_OK(hand_saves(&hand, saves, 2));
    SAY("PUT", QUOTA, "{\"versions\":2}");
    EXPECT_CODE(begin(&hand, 3, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    EXPECT_EQ_TEXT(numbers(&world), "versions 2 2 1");
    EXPECT(strstr(err.message, "limit 2, used 2, asked 1; project llm") != NULL);
    EXPECT_EQ_U64(cairn_code_info(CAIRN_QUOTA_EXCEEDED)->http_status, 507);
    EXPECT_EQ_U64(used(&world, "used_versions"), 2); /* what was refused is none */
    /* The trash counts until it is emptied. */
    SAY("DELETE", saves[0].path, NULL);
    EXPECT_CODE(begin(&hand, 4, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    inside_pass(&world.inside, 65 * MINUTE_MS);
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
    struct cairn_hand_save save;
    const uint64_t day_ms = 24 * 60 * MINUTE_MS;
    JOB_INSIDE(1);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 100, &save));
    inside_pass(&world.inside, day_ms);
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 900, &save));
    inside_pass(&world.inside, 11 * MINUTE_MS);
    GOT(two, QUOTA);
    const json_t *days = json_object_get(two, "days");
    REQUIRE(json_array_size(days) == 2);
    EXPECT_SHOWS(days, "0.bytes", "100", "1.bytes", "1000", "1.versions", "2");
    for (int day = 0; day < 31; day++) {
        world.inside.clock.wall_ms += (int64_t)day_ms; /* as a clock that is set */
        inside_pass(&world.inside, 11 * MINUTE_MS);
    }
    GOT(many, "/v1/quotas");
    days = json_object_get(json_array_get(json_object_get(many, "items"), 0), "days");
    EXPECT_EQ_U64(json_array_size(days), 30); /* the two above are not among them */
    EXPECT_EQ_U64(world_number(json_array_get(days, 0), "bytes"), 1000);
}

TEST(a_save_that_has_begun_ends_and_the_next_is_refused_for_its_bytes) {
    struct cairn_hand_save save, next;
    JOB_INSIDE(1);
    SAY("PUT", QUOTA, "{\"bytes\":100,\"versions\":null}");
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 99, &save));
    EXPECT_EQ_U64(used(&world, "used_bytes"), 99);
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 5000, &next));
    EXPECT_EQ_U64(used(&world, "used_bytes"), 5099);
    EXPECT_CODE(begin(&hand, 3, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    EXPECT_EQ_TEXT(numbers(&world), "bytes 100 5099 0");
    /* What is sealed counts before it is committed. */
    SAY("PUT", QUOTA, "{\"bytes\":6000}");
    REQUIRE_OK(hand_begin(&hand, 4, 1, "error", &save));
    REQUIRE_OK(hand_seal_alone(&save, 0, "x", 901));
    EXPECT_EQ_U64(used(&world, "used_bytes"), 6000);
    EXPECT_CODE(begin(&hand, 5, 1, 0, NULL), CAIRN_QUOTA_EXCEEDED);
    EXPECT_EQ_TEXT(numbers(&world), "bytes 6000 6000 0");
}

TEST(a_projects_own_quota_holds_before_the_default_and_nothing_is_allowed_to_one_of_0) {
    JOB_INSIDE(1);
    EACH(it, FIELDS(const char *method, *path, *body, *from; enum cairn_code begins),
         {"GET", QUOTA, NULL, NULL, CAIRN_OK},
         {"PUT", "/v1/quota", "{\"versions\":0}", "server", CAIRN_QUOTA_EXCEEDED},
         {"GET", QUOTA, NULL, "server", CAIRN_QUOTA_EXCEEDED},
         {"PUT", QUOTA, "{\"bytes\":1}", "project", CAIRN_OK}, /* without a bound of versions */
         {"PUT", QUOTA, "{\"bytes\":0}", "project", CAIRN_QUOTA_EXCEEDED},
         {"PUT", QUOTA, "{\"versions\":100}", "project", CAIRN_OK},
         {"DELETE", QUOTA, NULL, "server", CAIRN_QUOTA_EXCEEDED},
         {"DELETE", "/v1/quota", NULL, NULL, CAIRN_OK}) {
        SAID(shown, it->method, it->path, it->body);
        const char *from = json_string_value(json_object_get(shown, "from"));
        EXPECT_EQ_TEXT(from ? from : "", it->from ? it->from : "");
        EXPECT_CODE(begin(&hand, AT(it) + 1, 1, 0, NULL), it->begins);
    }
    EACH_TEXT(text, "{}", "{\"versions\":null}", "{\"versions\":-1}", "{\"bytes\":\"1GiB\"}",
              "{\"files\":3}")
        EXPECT_CODE(cairn_say(&world, "PUT", QUOTA, text, NULL), CAIRN_INVALID);
    EXPECT_ROWS(0, "project_quotas");
    EXPECT_ROWS(4, "events WHERE event = 'quota.set'");
}

TEST(a_batch_of_begins_has_the_numbers_in_the_problem_of_each_that_is_refused) {
    JOB_INSIDE(1);
    SAY("PUT", QUOTA, "{\"versions\":1}");
    json_t *begins = json_array();
    for (uint64_t step = 1; step <= 2; step++) {
        json_t *one = hand_begin_body(&hand, step, 1, 0, "error");
        (void)(json_object_del(one, "grant") | json_object_del(one, "node"));
        json_array_append_new(begins, one);
    }
    ASKED(reply, "POST", WORLD_RUN "/checkpoints",
          json_pack("{s:s, s:s, s:o}", "grant", hand.grant, "node", "node-a", "begins", begins));
    const json_t *results = json_object_get(reply, "results"), *second = json_array_get(results, 1);
    const json_t *problem = json_object_get(second, "problem");
    EXPECT_EQ_U64(world_number(json_array_get(results, 0), "status"), 201);
    EXPECT_EQ_U64(world_number(second, "status"), 507);
    EXPECT_SHOWS(problem, "code", "quota-exceeded", "resource", "versions", "limit", "1", "used",
                 "1", "asked", "1");
}

/* ---- the rows are what a recount finds ---- */

/* From the rows of versions and shards, and not by what the server adds up. */
static void expect_recounted(struct cairn_world *world, uint64_t step) {
    uint64_t versions =
        world_count(world, "SELECT count(*) FROM versions WHERE state IN (0, 1, 2)");
    uint64_t kept = world_count(
        world,
        "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM versions WHERE state IN (1, 2)");
    uint64_t sealed = world_count(
        world, "SELECT CAST(coalesce(sum(s.size), 0) AS BIGINT) FROM shards s JOIN versions v ON "
               "v.version = s.version WHERE v.state IN (0, 3) AND s.sealed = 1");
    uint64_t of_runs = world_count(world, "SELECT count(*) FROM project_usage");
    uint64_t held =
        world_count(world, "SELECT CAST(coalesce(sum(versions), 0) AS BIGINT) FROM project_usage");
    uint64_t bytes =
        world_count(world, "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM project_usage");
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
    (void)!world_call(save->hand->world, "POST", TEXT("%s%s", save->path, tail), NULL, NULL);
}

static void seal_some(struct history *history, const struct cairn_hand_save *save) {
    json_t *seals = json_array();
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (!draw(history, 3)) continue;
        json_array_append_new(
            seals, hand_seal(rank, NULL, TEXT("rank-%u/x", rank), 1 + draw(history, 5000)));
    }
    if (json_array_size(seals))
        (void)!hand_send(save, NULL, seals, NULL);
    else
        json_decref(seals);
}

static void attempt_next(struct history *history) {
    const char *job = TEXT("j%" PRIu64, history->attempts);
    struct cairn_hand next = {0};
    if (!hand_open(history->world, &next, job, history->attempts, "latest", 2)) {
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
        if (!hand_begin(&history->hand, step, n, exists, next)) history->count++;
    } else if (what < 9) {
        if (!hand_save_all(&history->hand, step, n, exists, 1 + draw(history, 3000), next))
            history->count++;
    } else if (what < 12) {
        seal_some(history, some);
    } else if (what < 14) {
        do_post(some, "/abort");
    } else if (what < 16) {
        (void)!world_call(history->world, "DELETE", some->path, NULL, NULL);
    } else if (what == 16) {
        do_post(some, "/undelete");
    } else if (what == 17) {
        attempt_next(history);
    } else if (what == 18) {
        (void)!world_call(history->world, "DELETE", WORLD_RUN "?confirm=llm/seven", NULL, NULL);
    } else {
        inside_pass(&history->world->inside, draw(history, 90) * MINUTE_MS);
    }
}

TEST(after_any_history_the_row_of_a_project_is_what_a_recount_of_its_versions_finds) {
    INSIDE("--trash-grace=30min");
    struct history *history = calloc(1, sizeof(*history));
    REQUIRE(history != NULL);
    history->world = &world;
    history->random = cairn_test_seed();
    attempt_next(history);
    for (uint64_t i = 0; i < 600 && history->count < SAVES_MAX - 1; i++) {
        if (i == 200)
            EXPECT_CODE(cairn_say(&world, "PUT", QUOTA, "{\"versions\":9}", NULL), CAIRN_OK);
        act(history);
        expect_recounted(&world, i);
    }
    EXPECT(history->count > 20);
    EXPECT(history->attempts > 1);
    EXPECT(world_count(&world, "SELECT count(*) FROM versions WHERE state = 4") > 0);
    free(history);
}

TEST(a_seal_of_an_absurd_size_is_counted_up_to_a_bound_and_ends_nothing) {
    JOB_INSIDE(4);
    BEGUN(save, 1);
    json_t *seals = json_array(); /* 2^64 bytes */
    for (uint32_t rank = 0; rank < 4; rank++) {
        json_array_append_new(seals, hand_seal(rank, NULL, TEXT("r%u", rank), UINT64_C(1) << 62));
    }
    REQUIRE_OK(hand_send(&save, NULL, seals, NULL));
    EXPECT_EQ_U64(used(&world, "used_bytes"), UINT64_C(1) << 50);
    do_post(&save, "/abort");
    EXPECT_EQ_U64(used(&world, "used_versions"), 0);
    inside_pass(&world.inside, 10 * MINUTE_MS);
    EXPECT_EQ_U64(used(&world, "used_bytes"), 0);
}

TEST(a_reconcile_finds_what_a_lost_catalog_had_and_counts_it_for_the_quota) {
    static const char *const args[] = {"--adopt-store=true", "--reconcile-wait=0ms",
                                       "--sweep-interval=50ms", NULL};
    STARTED(saves, 3);
    uint64_t bytes = used(&world, "used_bytes");
    EXPECT_EQ_U64(used(&world, "used_versions"), 3);
    EXPECT(bytes > 0);
    (void)cairn_daemon_stop(&world.server, SIGTERM, HANG_MS);
    REQUIRE(world_lose_catalog(&world));
    REQUIRE(world_restart(&world, args, NULL));
    (void)!cairn_say(&world, "GET", WORLD_RUN, NULL, NULL); /* it is compared with its store */
    for (int i = 0; i < 200 && used(&world, "used_versions") != 3; i++) {
        (void)!world_call(&world, "POST", WORLD_RUN "/reconcile?wait=1s", NULL, NULL);
        (void)!cairn_say(&world, "POST", WORLD_RUN "/reconcile", NULL, NULL);
    }
    EXPECT_ALL_U64(used(&world, "used_versions"), 3, used(&world, "used_bytes"), bytes);
    EXPECT(!cairn_daemon_logged(&world.server, "usage.differed")); /* also before the recount */
}

TEST(a_reconcile_puts_right_what_somebody_changed_in_the_database) { /* policies.h#2 */
    JOB_INSIDE(1, "--reconcile-wait=0ms");
    SAVED(save, 1);
    REQUIRE(world_sql(&world, "UPDATE project_usage SET versions = -5, bytes = 77"));
    EXPECT_EQ_U64(used(&world, "used_versions"), 0); /* never a number that wraps */
    REQUIRE(world_sql(&world, "INSERT INTO frozen_runs(run_id, cause, since_ms) SELECT "
                              "run_id, 'a test', 1 FROM runs"));
    world.inside.server.frozen_runs = 1;
    ASK("POST", WORLD_RUN "/reconcile", NULL);
    inside_pass(&world.inside, 2 * MINUTE_MS);
    EXPECT_ALL_U64(world.inside.server.frozen_runs, 0, used(&world, "used_versions"), 1,
                   used(&world, "used_bytes"), 10);
}

#undef err

/* ---- who may ---- */

TEST(a_quota_is_set_by_who_rules_all_projects_and_seen_by_who_reads_that_one) { /* A02 */
    OFFICE();
    MADE(bound, "read,admin", "llm");
    MADE(reader, "read", "llm");
    MADE(other, "read,admin", "other");
    SAYS(&office, office.admin, "200 PUT " QUOTA " {\"versions\":5}",
         "200 PUT /v1/projects/other/quota {\"versions\":5}");
    SAYS(&office, bound.text, "403 PUT " QUOTA " {\"versions\":5}", "403 DELETE " QUOTA,
         "403 PUT /v1/quota {\"versions\":5}");
    SAYS(&office, reader.text, "403 PUT " QUOTA " {\"versions\":5}", "200 GET " QUOTA);
    SAYS(&office, other.text, "404 GET " QUOTA, "404 PUT " QUOTA " {\"versions\":5}");
    SAYS(&office, NULL, "401 GET /v1/quotas");
    EXPECT_HAS(ANSWER(&office, office.admin, "200 GET /v1/quotas"), "\"llm\"", "\"other\"");
    EXPECT_HAS(ANSWER(&office, other.text, "200 GET /v1/quotas"), "!\"llm\"", "\"other\"");
}

TEST(what_is_told_of_a_quota_is_read_again_as_the_same_numbers) { /* api/wire/words.h#1 */
    struct cairn_quota_excess read = {0}, told = {"bytes", UINT64_C(1) << 62, INT64_MAX, 0};
    char text[400];
    cairn_quota_excess_text(&told, "llm", text, sizeof(text));
    REQUIRE(cairn_quota_excess_read(text, &read));
    EXPECT_EQ_TEXT(read.resource, "bytes");
    EXPECT_ALL_U64(read.limit, told.limit, read.used, told.used, read.asked, told.asked);
    EACH_TEXT(one, "", "quota of ", "quota of files: limit 1, used 1, asked 1; ",
              "quota of bytes: limit , used 1, asked 1;",
              "quota of bytes: limit 1, used 1, asked 1",
              "quota of bytes: limit 99999999999999999999, used 1, asked 1;")
        EXPECT(!cairn_quota_excess_read(one, &read));
}
