/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* A job that goes on in the same processes with another world: real server, real uploaders. */
#include "tests/client/model.h"
#include "tests/client/stage.h"
#include "tests/support/world.h"

#define RANKS 4
#define LEFT 3 /* ranks that the second world has */
#define NODES 2

static struct cairn_model model;

struct elastic {
    struct cairn_world world;
    struct cairn_session *sessions[RANKS];
    struct cairn_save *saves[RANKS];
};
static void cairn_elastic_release(struct elastic *elastic) {
    for (uint32_t i = 0; i < RANKS; i++) cairn_save_free(elastic->saves[i]);
    for (uint32_t i = 0; i < RANKS; i++) (void)cairn_close(elastic->sessions[i], NULL);
    cairn_world_release(&elastic->world);
}
#define AUTO_ELASTIC __attribute__((cleanup(cairn_elastic_release))) struct elastic

/* The session of index i lives on node i % NODES, whichever rank it is. */
static struct cairn_open_options options_of(const struct elastic *elastic, const char *job,
                                            uint32_t index, uint32_t rank, uint32_t ranks) {
    return SIZED(cairn_open_options, .run = "llm/7b", .job = job, .rank = rank, .world_size = ranks,
                 .local_rank = index / NODES, .local_world_size = 2, .bytes = MODEL_RANK_BYTES,
                 .socket = elastic->world.sockets[index % NODES], .wait_staged_ms = 8000,
                 .timeout_ms = HANG_MS);
}

static enum cairn_code elastic_open(struct elastic *ret, struct cairn_error *err) {
    const struct cairn_world_options world = {.nodes = NODES};
    CAIRN_TRY(cairn_world_open(&world, &ret->world, err));
    for (uint32_t i = 0; i < RANKS; i++) {
        const struct cairn_open_options options = options_of(ret, "job-1", i, i, RANKS);
        CAIRN_TRY(cairn_open(&options, &ret->sessions[i], NULL, err));
    }
    return CAIRN_OK;
}

static enum cairn_code save_as(struct elastic *elastic, uint64_t step, uint32_t index,
                               uint32_t rank, uint32_t ranks, struct cairn_error *err) {
    cairn_save_free(elastic->saves[index]);
    elastic->saves[index] = NULL;
    return cairn_model_save(&model, elastic->sessions[index], step, rank, ranks,
                            &elastic->saves[index], err);
}

#define OPEN_ELASTIC                                                                               \
    struct cairn_error err = {0};                                                                  \
    AUTO_ELASTIC elastic = {0};                                                                    \
    if (!cairn_world_possible()) SKIP("cairn-server and cairn-uploader are not built here");       \
    cairn_model_fill(&model, 9);                                                                   \
    REQUIRE_OK(elastic_open(&elastic, &err))

/* Each rank of a job renews by itself, all at about the same time: memory of the former attempt is
 * waited for on each node until all have left it. */
struct renewal {
    struct cairn_session *session;
    struct cairn_open_options options;
    struct cairn_resume resume;
    struct cairn_error err;
    enum cairn_code code;
};
static void *renew_one(void *argument) {
    struct renewal *renewal = argument;
    renewal->code =
        cairn_session_renew(renewal->session, &renewal->options, &renewal->resume, &renewal->err);
    return NULL;
}

static void renew_all(struct renewal *renewals, uint32_t count) {
    pthread_t threads[RANKS];
    for (uint32_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, renew_one, &renewals[i])) abort();
    for (uint32_t i = 0; i < count; i++) (void)pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < count; i++)
        if (renewals[i].code) printf("renewal %u: %s\n", i, renewals[i].err.message);
}

/* Which rank the session of an index is in the second world: none is what it was. */
static uint32_t second_rank(uint32_t index) {
    return (index + 1) % LEFT;
}

TEST(ranks_that_are_left_go_on_in_their_processes_from_what_all_had_staged) {
    OPEN_ELASTIC;
    for (uint32_t i = 0; i < RANKS; i++) REQUIRE_OK(save_as(&elastic, 20, i, i, RANKS, &err));
    REQUIRE_OK(cairn_close(elastic.sessions[LEFT], &err)); /* its process goes */
    elastic.sessions[LEFT] = NULL;
    struct renewal renewals[LEFT] = {0};
    for (uint32_t i = 0; i < LEFT; i++)
        renewals[i] =
            (struct renewal){.session = elastic.sessions[i],
                             .options = options_of(&elastic, "job-2", i, second_rank(i), LEFT)};
    renew_all(renewals, LEFT);
    for (uint32_t i = 0; i < LEFT; i++) {
        AUTO_RESTORE *restore = NULL;
        REQUIRE(renewals[i].code == CAIRN_OK);
        EXPECT_EQ_U64(renewals[i].resume.attempt, 2);
        EXPECT(renewals[i].resume.found);
        EXPECT_EQ_U64(renewals[i].resume.step, 20);
        EXPECT_CODE(cairn_session_problem(elastic.sessions[i], &err), CAIRN_OK);
        EXPECT_CODE(cairn_save_wait(elastic.saves[i], CAIRN_COMMITTED, HANG_MS, &err),
                    CAIRN_INVALID);
        REQUIRE_OK(cairn_restore_open(elastic.sessions[i], NULL, &restore, NULL, &err));
        EXPECT_CODE(cairn_model_check(&model, restore, second_rank(i), LEFT, RANKS, &err),
                    CAIRN_OK);
    }
    cairn_model_fill(&model, 10);
    for (uint32_t i = 0; i < LEFT; i++)
        REQUIRE_OK(save_as(&elastic, 30, i, second_rank(i), LEFT, &err));
    for (uint32_t i = 0; i < LEFT; i++)
        EXPECT_CODE(cairn_save_wait(elastic.saves[i], CAIRN_COMMITTED, 0, &err), CAIRN_OK);
    AUTO_RESTORE *restore = NULL;
    const struct cairn_restore_options newest = {.size = sizeof newest, .ref = "latest"};
    REQUIRE_OK(cairn_restore_open(elastic.sessions[0], &newest, &restore, NULL, &err));
    EXPECT_CODE(cairn_model_check(&model, restore, 0, 1, LEFT, &err), CAIRN_OK);
}

TEST(what_was_begun_and_not_staged_when_a_session_is_renewed_is_failed_and_holds_nothing_up) {
    OPEN_ELASTIC;
    struct cairn_save *begun = NULL;
    REQUIRE_OK(cairn_save_begin(elastic.sessions[0], 20, NULL, &begun, &err));
    struct renewal renewals[RANKS] = {0};
    for (uint32_t i = 0; i < RANKS; i++)
        renewals[i] = (struct renewal){.session = elastic.sessions[i],
                                       .options = options_of(&elastic, "job-2", i, i, RANKS)};
    renew_all(renewals, RANKS);
    for (uint32_t i = 0; i < RANKS; i++) {
        REQUIRE(renewals[i].code == CAIRN_OK);
        EXPECT(!renewals[i].resume.found);
    }
    EXPECT_CODE(cairn_save_stage(begun, &err), CAIRN_INVALID);
    cairn_save_free(begun);
    for (uint64_t step = 20; step <= 22; step++)
        for (uint32_t i = 0; i < RANKS; i++) REQUIRE_OK(save_as(&elastic, step, i, i, RANKS, &err));
    for (uint32_t i = 0; i < RANKS; i++)
        EXPECT_CODE(cairn_save_wait(elastic.saves[i], CAIRN_COMMITTED, 0, &err), CAIRN_OK);
}

TEST(a_renewal_with_wrong_options_is_refused_and_the_session_goes_on) {
    OPEN_ELASTIC;
    struct cairn_session *session = elastic.sessions[0];
    struct cairn_open_options wrong[] = {
        options_of(&elastic, "job-1", 0, 0, RANKS), /* the present attempt's */
        options_of(&elastic, "job-2", 0, RANKS, RANKS), options_of(&elastic, "job-2", 0, 0, RANKS),
        options_of(&elastic, "job-2", 0, 0, RANKS), options_of(&elastic, "job-2", 0, 0, RANKS)};
    wrong[2].run = "llm/another";
    wrong[3].socket = "/tmp/another.sock";
    wrong[4].read_only = 1;
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++)
        EXPECT_CODE(cairn_session_renew(session, &wrong[i], NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_session_renew(NULL, &wrong[0], NULL, &err), CAIRN_INVALID);
    for (uint32_t i = 0; i < RANKS; i++) REQUIRE_OK(save_as(&elastic, 20, i, i, RANKS, &err));
    for (uint32_t i = 0; i < RANKS; i++)
        EXPECT_CODE(cairn_save_wait(elastic.saves[i], CAIRN_COMMITTED, 0, &err), CAIRN_OK);
}

TEST(a_renewal_that_finds_no_uploader_may_be_repeated_once_there_is_one) {
    OPEN_ELASTIC;
    struct cairn_save *save = NULL;
    struct renewal renewals[RANKS] = {0};
    for (uint32_t i = 0; i < RANKS; i++)
        renewals[i] = (struct renewal){.session = elastic.sessions[i],
                                       .options = options_of(&elastic, "job-2", i, i, RANKS)};
    cairn_world_uploader_kill(&elastic.world, 0);
    renewals[0].options.timeout_ms = 500;
    renew_all(renewals, 1);
    EXPECT_EQ_U64(renewals[0].code, CAIRN_UPLOADER_GONE);
    EXPECT(strstr(renewals[0].err.message, "llm/7b rank 0") != NULL);
    EXPECT_CODE(cairn_save_begin(elastic.sessions[0], 20, NULL, &save, &err), CAIRN_UPLOADER_GONE);
    REQUIRE_OK(cairn_world_uploader_start(&elastic.world, 0, NULL, &err));
    renewals[0].options.timeout_ms = HANG_MS;
    renew_all(renewals, RANKS);
    for (uint32_t i = 0; i < RANKS; i++) REQUIRE(renewals[i].code == CAIRN_OK);
    for (uint32_t i = 0; i < RANKS; i++) REQUIRE_OK(save_as(&elastic, 20, i, i, RANKS, &err));
    for (uint32_t i = 0; i < RANKS; i++)
        EXPECT_CODE(cairn_save_wait(elastic.saves[i], CAIRN_COMMITTED, 0, &err), CAIRN_OK);
}
