/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* What a trainer hears of a quota: real server, real uploaders, a folder as the store. */
#include "api/wire/rest.h"
#include "tests/client/model.h"
#include "tests/client/stage.h"
#include "tests/support/world.h"

#define RANKS 2

static struct cairn_model model;

struct job {
    struct cairn_session *sessions[RANKS];
    struct cairn_save *saves[RANKS];
};
static void cairn_job_release(struct job *job) {
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        cairn_save_free(job->saves[rank]);
        (void)cairn_close(job->sessions[rank], NULL);
    }
}
#define AUTO_JOB __attribute__((cleanup(cairn_job_release))) struct job

static enum cairn_code open_job(const struct cairn_world *world, struct job *ret,
                                struct cairn_error *err) {
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct cairn_open_options options =
            SIZED(cairn_open_options, .run = "llm/7b", .job = "job-1", .rank = rank,
                  .world_size = RANKS, .local_world_size = 1, .bytes = MODEL_RANK_BYTES,
                  .socket = world->sockets[rank], .wait_staged_ms = 2000, .timeout_ms = HANG_MS);
        CAIRN_TRY(cairn_open(&options, &ret->sessions[rank], NULL, err));
    }
    return CAIRN_OK;
}

/* What rank 0 hears in the end, once all have begun; the others into errs. */
static enum cairn_code save_all(struct job *job, uint64_t step, struct cairn_error errs[RANKS]) {
    enum cairn_code codes[RANKS] = {CAIRN_OK};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        cairn_save_free(job->saves[rank]);
        job->saves[rank] = NULL;
        errs[rank] = (struct cairn_error){0};
        codes[rank] = cairn_model_save(&model, job->sessions[rank], step, rank, RANKS,
                                       &job->saves[rank], &errs[rank]);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (codes[rank]) continue;
        codes[rank] = cairn_test_reach(job->saves[rank], CAIRN_COMMITTED, &errs[rank]);
    }
    return codes[0];
}

TEST(a_save_beyond_the_quota_fails_at_every_rank_with_507_and_the_numbers) { /* policies.h#5 */
    OPEN_WORLD(.nodes = RANKS);
    struct cairn_error errs[RANKS];
    cairn_model_fill(&model, 5);
    AUTO_JOB job = {0};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    struct cairn_rest_options options = {.url = world.server.url};
    CAIRN_AUTO_JSON json_t *quota = json_pack("{s:i}", "versions", 1);
    REQUIRE_OK(open_job(&world, &job, &err));
    EXPECT_CODE(save_all(&job, 5, errs), CAIRN_OK);
    REQUIRE_OK(cairn_rest_new(&options, &rest, &err));
    REQUIRE_OK(cairn_rest_call(rest, "PUT", "/v1/quota", quota, 0, NULL, &err));
    EXPECT_CODE(save_all(&job, 6, errs), CAIRN_QUOTA_EXCEEDED);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        EXPECT_EQ_U64(errs[rank].code, CAIRN_QUOTA_EXCEEDED);
        EXPECT_EQ_U64(errs[rank].http_status, 507);
        EXPECT(strstr(errs[rank].message, "quota of versions: limit 1, used 1, asked 1") != NULL);
    }
    REQUIRE_OK(cairn_rest_call(rest, "DELETE", "/v1/quota", NULL, 0, NULL, &err));
    EXPECT_CODE(save_all(&job, 7, errs), CAIRN_OK); /* the job goes on */
}
