/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* What would fail the first save is found before it, and named with its node and rank. */
#include <glob.h>
#include <malloc.h>

#include "tests/client/rank.h"
#include "tests/support/raw.h"
#include "tests/support/world.h"

#define RANKS 3 /* on as many nodes */

struct job {
    struct cairn_session *sessions[RANKS];
};
static void cairn_job_release(struct job *job) {
    for (uint32_t i = 0; i < RANKS; i++) (void)cairn_close(job->sessions[i], NULL);
}

static enum cairn_code job_open(const struct cairn_world *world, struct job *ret,
                                struct cairn_error *err) {
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct cairn_open_options options =
            SIZED(cairn_open_options, .run = "llm/7b", .job = "job-1", .rank = rank,
                  .world_size = RANKS, .bytes = CAIRN_MIB, .socket = world->sockets[rank],
                  .wait_staged_ms = 2000, .timeout_ms = HANG_MS);
        CAIRN_TRY(cairn_open(&options, &ret->sessions[rank], NULL, err));
    }
    return CAIRN_OK;
}

/* A folder that says that it is the same store, as a copy or a wrong mount does. */
static enum cairn_code make_twin(const struct cairn_world *world, const char *name, char ret[400],
                                 struct cairn_error *err) {
    char path[1200];
    CAIRN_AUTO(buf) said = {0};
    snprintf(path, sizeof path, "%s/.cairn/store.json", world->store);
    CAIRN_TRY(cairn_file_load(path, &said, err));
    snprintf(ret, 400, "%s/%s", cairn_test_folder(), name);
    if (mkdir(ret, 0700)) return cairn_fail_errno(err, "making %s", ret);
    snprintf(path, sizeof path, "%s/.cairn", ret);
    if (mkdir(path, 0700)) return cairn_fail_errno(err, "making %s", path);
    snprintf(path, sizeof path, "%s/.cairn/store.json", ret);
    return cairn_file_replace(path, cairn_buf_view(&said), 0600, err);
}

/* Its uploader has another store than the server from here on. */
static enum cairn_code move_node(struct cairn_world *world, uint32_t node, const char *store,
                                 struct cairn_error *err) {
    char before[sizeof world->store];
    memcpy(before, world->store, sizeof before);
    cairn_world_uploader_kill(world, node);
    snprintf(world->store, sizeof world->store, "%s", store);
    enum cairn_code code = cairn_world_uploader_start(world, node, NULL, err);
    memcpy(world->store, before, sizeof before);
    return code;
}

static size_t probes_left(const char *store) {
    glob_t found = {0};
    const char *pattern = TEXT("%s/llm/7b/*/*/data/probe/*", store);
    size_t count = glob(pattern, 0, NULL, &found) ? 0 : found.gl_pathc;
    globfree(&found);
    return count;
}

/* The answer comes before the probe is removed. */

static void expect_names(const struct cairn_error *err, const char *node, const char *rank) {
    EXPECT(strstr(err->message, node) != NULL);
    EXPECT(strstr(err->message, rank) != NULL);
}

/* Whoever asks the server sees all ranks. */
static void expect_listed(const struct cairn_world *world) {
    static const char ask[] = "GET /v1/runs/llm/7b/probes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    CAIRN_AUTO(buf) answer = {0};
    EXPECT_EQ_U64(cairn_raw_exchange(world->server.port, ask, sizeof ask - 1, &answer), 200);
    const char *body = answer.size ? strstr(answer.data, "{\"") : NULL;
    CAIRN_AUTO_JSON json_t *page = body ? json_loads(body, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *items = json_object_get(page, "items");
    EXPECT_EQ_U64(json_array_size(items), RANKS);
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        const char *code = json_string_value(json_object_get(item, "code"));
        const char *node = json_string_value(json_object_get(item, "node"));
        EXPECT_EQ_U64(json_is_true(json_object_get(item, "ok")), i == 0);
        EXPECT(json_is_string(json_object_get(item, "probed_at")));
        EXPECT(node && node[strlen(node) - 1] == (char)('0' + i));
        EXPECT_EQ_U64(code != NULL, i > 0);
        if (i == 1) EXPECT_EQ_TEXT(code, "not-found");
    }
}

TEST(a_node_that_cannot_save_is_named_before_the_first_save_and_others_are_well) {
    OPEN_WORLD(.nodes = RANKS);
    __attribute__((cleanup(cairn_job_release))) struct job job = {0};
    char twin[400], full[400], blocked[460];
    REQUIRE_OK(make_twin(&world, "twin", twin, &err));
    REQUIRE_OK(make_twin(&world, "full", full, &err));
    snprintf(blocked, sizeof blocked, "%s/llm", full); /* no folder can be made there */
    REQUIRE_OK(cairn_file_replace(blocked, cairn_view_of("a file"), 0600, &err));
    REQUIRE_OK(move_node(&world, 1, twin, &err));
    REQUIRE_OK(move_node(&world, 2, full, &err));
    REQUIRE_OK(job_open(&world, &job, &err));
    const struct cairn_warmup_options options = {.size = sizeof options, .timeout_ms = HANG_MS};
    EXPECT_CODE(cairn_warmup(job.sessions[0], &options, &err), CAIRN_OK);
    EXPECT_CODE(cairn_warmup(job.sessions[1], &options, &err), CAIRN_NOT_FOUND);
    expect_names(&err, "node node-1", "rank 1");
    EXPECT(strstr(err.message, "does not find") != NULL);
    EXPECT(cairn_warmup(job.sessions[2], NULL, &err) != CAIRN_OK);
    expect_names(&err, "node node-2", "rank 2");
    EXPECT_CODE(cairn_warmup(job.sessions[0], NULL, &err), CAIRN_OK);
    expect_listed(&world);
    AWAIT(!probes_left(world.store));
    AWAIT(!probes_left(twin));
}

TEST(a_server_that_is_away_is_found_by_a_warm_up) {
    OPEN_WORLD(.nodes = RANKS);
    __attribute__((cleanup(cairn_job_release))) struct job job = {0};
    REQUIRE_OK(job_open(&world, &job, &err));
    cairn_world_server_kill(&world);
    const struct cairn_warmup_options options = {.size = sizeof options, .timeout_ms = HANG_MS};
    EXPECT(cairn_warmup(job.sessions[0], &options, &err) != CAIRN_OK);
    expect_names(&err, "rank 0", "server");
}

TEST(options_of_a_warm_up_are_checked) {
    RANK(1);
    struct cairn_warmup_options options = {.size = sizeof options, .memory = 7};
    EXPECT_CODE(cairn_warmup(rank.session, &options, &err), CAIRN_INVALID);
    options = (struct cairn_warmup_options){0};
    EXPECT_CODE(cairn_warmup(rank.session, &options, &err), CAIRN_INVALID);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "warmup"), 0);
    EXPECT_CODE(cairn_warmup(rank.session, NULL, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "warmup"), 1);
    cairn_fake_uploader_script(rank.fake, "warmup", "forbidden");
    EXPECT_CODE(cairn_warmup(rank.session, NULL, &err), CAIRN_FORBIDDEN);
}

TEST(weights_are_those_of_the_attempt_and_equal_where_it_has_none) {
    const uint32_t ranks[] = {3, 0, 1}, beyond[] = {4};
    EACH(one, FIELDS(const char *told; uint32_t wanted[3]), {"8158", {8, 8, 1}}, {"", {1, 1, 1}},
         {"88", {1, 1, 1}}, {"8x18", {1, 1, 1}}) {
        RANK_UPLOADER(1);
        uint32_t weights[3] = {0};
        cairn_fake_uploader_weigh(rank.fake, one->told);
        RANK_OPENS();
        EXPECT_CODE(cairn_session_weights(rank.session, ranks, 3, weights, &err), CAIRN_OK);
        for (size_t k = 0; k < 3; k++) EXPECT_EQ_U64(weights[k], one->wanted[k]);
        EXPECT_CODE(cairn_session_weights(rank.session, beyond, 1, weights, &err), CAIRN_INVALID);
    }
}

static void expect_weights(struct cairn_session *session, uint32_t first, uint32_t second) {
    static const uint32_t ranks[] = {0, 1};
    struct cairn_error err = {0};
    uint32_t weights[2] = {0};
    EXPECT_CODE(cairn_session_weights(session, ranks, 2, weights, &err), CAIRN_OK);
    EXPECT_ALL_U64(weights[0], first, weights[1], second);
}

TEST(weights_are_those_of_the_last_attempt_when_a_try_lost_its_link_and_when_the_world_is_another) {
    RANK_UPLOADER(1);
    cairn_fake_uploader_weigh(rank.fake, "8158");
    cairn_fake_uploader_script(rank.fake, "slabs", "drop");
    RANK_OPENS();
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "attempt"), 2);
    expect_weights(rank.session, 8, 1);
    options.job = "job-2", options.rank = 0, options.world_size = 2;
    cairn_fake_uploader_weigh(rank.fake, "28");
    EXPECT_CODE(cairn_session_renew(rank.session, &options, NULL, &err), CAIRN_OK);
    expect_weights(rank.session, 2, 8);
    options.job = "job-3";
    cairn_fake_uploader_weigh(rank.fake, "8158"); /* of another world: none are better */
    EXPECT_CODE(cairn_session_renew(rank.session, &options, NULL, &err), CAIRN_OK);
    expect_weights(rank.session, 1, 1);
}

#define MANY_RANKS 60000 /* so many bytes of weights are told from what else a session holds */

static enum cairn_code open_and_close(const struct cairn_rank *rank, struct cairn_error *err) {
    struct cairn_session *session = NULL;
    struct cairn_open_options options = rank_options(rank);
    options.world_size = MANY_RANKS;
    CAIRN_TRY(cairn_open(&options, &session, NULL, err));
    return cairn_close(session, err);
}

/* Under AddressSanitizer the C library counts nothing, and LeakSanitizer looks at it instead. */
TEST(a_session_that_is_opened_at_the_second_try_keeps_no_weights_of_the_first, err) {
    CAIRN_AUTO(rank) rank = {0};
    static char weights[MANY_RANKS + 1];
    memset(weights, '3', MANY_RANKS);
    REQUIRE_OK(rank_uploader(&rank, 1, &err));
    cairn_fake_uploader_weigh(rank.fake, weights);
    EXPECT_CODE(open_and_close(&rank, &err), CAIRN_OK);
    size_t before = mallinfo2().uordblks;
    cairn_fake_uploader_script(rank.fake, "slabs", "drop");
    EXPECT_CODE(open_and_close(&rank, &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "attempt"), 3);
    EXPECT(mallinfo2().uordblks < before + MANY_RANKS / 2);
}
