/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* ctest: as=world_behind env=CAIRN_TEST_BEHIND=1 races="full: as client/behind" */
/* End to end: real server, real uploaders, a folder as the store. */
#include "tests/client/model.h"
#include "tests/client/stage.h"
#include "tests/support/world.h"

#define RANKS 4

static struct cairn_model model;

struct job { /* the ranks of one job, in this process */
    struct cairn_session *sessions[8];
    struct cairn_resume resumes[8];
    struct cairn_save *saves[8];
    uint32_t ranks;
};
static void cairn_job_release(struct job *job) {
    for (uint32_t i = 0; i < job->ranks; i++) cairn_save_free(job->saves[i]);
    for (uint32_t i = 0; i < job->ranks; i++) (void)cairn_close(job->sessions[i], NULL);
    *job = (struct job){0};
}
#define AUTO_JOB __attribute__((cleanup(cairn_job_release))) struct job
/* The model is that of seed 5. */
#define NODES(count)                                                                               \
    OPEN_WORLD(.nodes = (count));                                                                  \
    cairn_model_fill(&model, 5)

#define JOB(nodes, job, name, ranks)                                                               \
    NODES(nodes);                                                                                  \
    AUTO_JOB job = {0};                                                                            \
    REQUIRE_OK(job_open(&world, name, ranks, &job, &err))

static enum cairn_code job_open(const struct cairn_world *world, const char *name, uint32_t ranks,
                                struct job *ret, struct cairn_error *err) {
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const struct cairn_open_options options =
            SIZED(cairn_open_options, .run = "llm/7b", .job = name, .rank = rank,
                  .world_size = ranks, .local_rank = rank / world->nodes,
                  .local_world_size = (ranks + world->nodes - 1) / world->nodes,
                  .bytes = MODEL_RANK_BYTES, .socket = world->sockets[rank % world->nodes],
                  .wait_staged_ms = 2000, .timeout_ms = HANG_MS);
        CAIRN_TRY(cairn_open(&options, &ret->sessions[rank], &ret->resumes[rank], err));
        ret->ranks = rank + 1;
    }
    return CAIRN_OK;
}

static enum cairn_code job_save(struct job *job, uint64_t step, struct cairn_error *err) {
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        cairn_save_free(job->saves[rank]);
        job->saves[rank] = NULL;
        CAIRN_TRY(cairn_model_save(&model, job->sessions[rank], step, rank, job->ranks,
                                   &job->saves[rank], err));
    }
    return CAIRN_OK;
}

static enum cairn_code job_commit(struct job *job, struct cairn_error *err) {
    for (uint32_t rank = 0; rank < job->ranks; rank++)
        CAIRN_TRY(cairn_test_reach(job->saves[rank], CAIRN_COMMITTED, err));
    return CAIRN_OK;
}

static enum cairn_code job_saved(struct job *job, uint64_t step, struct cairn_error *err) {
    CAIRN_TRY(job_save(job, step, err));
    return job_commit(job, err);
}

/* Until each session has found the new uploader: a verdict may have come from the old one. */
static enum cairn_code heal(const struct job *job, struct cairn_error *err) {
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        AUTO_LIST *list = NULL;
        enum cairn_code code;
        (void)COMES((code = cairn_list(job->sessions[rank], &list, &(size_t){0}, err)) !=
                    CAIRN_UPLOADER_GONE);
        CAIRN_TRY(code);
    }
    return CAIRN_OK;
}

/* Read everything in the split of `readers` ranks and compare. */
static enum cairn_code check_all(const struct cairn_world *world, const char *ref, uint32_t readers,
                                 uint32_t saved_by, struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (uint32_t rank = 0; !code && rank < readers; rank++) {
        const struct cairn_open_options options = SIZED(
            cairn_open_options, .run = "llm/7b", .rank = rank, .world_size = readers,
            .socket = world->sockets[rank % world->nodes], .timeout_ms = HANG_MS, .read_only = 1);
        const struct cairn_restore_options restore_options =
            SIZED(cairn_restore_options, .ref = ref);
        struct cairn_session *session = NULL;
        struct cairn_restore *restore = NULL;
        CAIRN_TRY(cairn_open(&options, &session, NULL, err));
        code = cairn_restore_open(session, &restore_options, &restore, NULL, err);
        if (!code) code = cairn_model_check(&model, restore, rank, readers, saved_by, err);
        cairn_restore_free(restore);
        (void)cairn_close(session, NULL);
    }
    return code;
}

TEST(four_ranks_on_two_nodes_save_and_three_restore_in_another_split) {
    JOB(2, job, "job-1", RANKS);
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    EXPECT_EQ_U64(job.resumes[3].attempt, 1);
    EXPECT(!job.resumes[0].found);
    REQUIRE_OK(job_saved(&job, 100, &err));
    for (uint32_t rank = 0; rank < RANKS; rank++)
        EXPECT_CODE(cairn_session_problem(job.sessions[rank], &err), CAIRN_OK);
    REQUIRE_OK(cairn_list(job.sessions[0], &list, &count, &err));
    EXPECT_EQ_U64(count, 1);
    if (count == 1) EXPECT_EQ_U64(list[0].step, 100);
    if (count == 1) EXPECT_EQ_TEXT(list[0].state, "committed");
    cairn_list_free(list);
    EXPECT_CODE(check_all(&world, "latest", 3, RANKS, &err), CAIRN_OK);
    EXPECT_CODE(check_all(&world, "100", 1, RANKS, &err), CAIRN_OK);
}

TEST(many_saves_reuse_the_slabs_and_each_step_keeps_its_own_bytes) {
    JOB(1, job, "job-1", 2);
    for (uint64_t step = 1; step <= 5; step++) {
        cairn_model_fill(&model, step);
        REQUIRE_OK(job_save(&job, step, &err));
    }
    REQUIRE_OK(job_commit(&job, &err));
    for (uint64_t step = 1; step <= 5; step++) {
        const char *ref = TEXT("%" PRIu64, step);
        cairn_model_fill(&model, step);
        enum cairn_code code; /* the last one's commit may come before another one's */
        (void)AWAIT((code = check_all(&world, ref, 1, 2, &err)) != CAIRN_NOT_COMMITTED);
        EXPECT_CODE(code, CAIRN_OK);
    }
}

TEST(a_restarted_job_resumes_from_what_was_committed) {
    NODES(1);
    {
        AUTO_JOB first = {0};
        REQUIRE_OK(job_open(&world, "job-1", 2, &first, &err));
        REQUIRE_OK(job_saved(&first, 70, &err));
    }
    AUTO_JOB second = {0};
    struct cairn_restore *restore = NULL;
    struct cairn_restore_info info;
    REQUIRE_OK(job_open(&world, "job-2", 3, &second, &err));
    EXPECT_EQ_U64(second.resumes[2].attempt, 2);
    EXPECT(second.resumes[2].found);
    EXPECT_EQ_U64(second.resumes[2].step, 70);
    for (uint32_t rank = 0; rank < 3; rank++) {
        REQUIRE_OK(cairn_restore_open(second.sessions[rank], NULL, &restore, &info, &err));
        EXPECT_EQ_U64(info.step, 70);
        EXPECT_CODE(cairn_model_check(&model, restore, rank, 3, 2, &err), CAIRN_OK);
        cairn_restore_free(restore);
    }
}

TEST(a_server_that_is_down_costs_no_stall_and_no_save) { /* P9 */
    JOB(1, job, "job-1", 2);
    struct cairn_save_status status;
    cairn_world_server_kill(&world);
    REQUIRE_OK(job_save(&job, 5, &err));
    EXPECT_CODE(cairn_test_reach(job.saves[0], CAIRN_DURABLE, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_wait(job.saves[0], CAIRN_COMMITTED, 100, &err), CAIRN_TIMEOUT);
    cairn_save_status(job.saves[0], &status);
    EXPECT_EQ_U64(status.durable_bytes, status.total_bytes);
    REQUIRE_OK(cairn_world_server_start(&world, &err));
    REQUIRE_OK(job_commit(&job, &err));
    EXPECT_CODE(check_all(&world, "latest", 1, 2, &err), CAIRN_OK);
}

TEST(a_wait_that_times_out_says_that_the_server_is_away_and_since_when) {
    JOB(1, job, "job-1", 1);
    cairn_world_server_kill(&world);
    REQUIRE_OK(job_save(&job, 5, &err));
    AWAIT(cairn_save_wait(job.saves[0], CAIRN_COMMITTED, 500, &err) == CAIRN_TIMEOUT &&
          strstr(err.message, "the server is away for"));
    EXPECT(strstr(err.message, "shards are durable") != NULL);
    EXPECT_CODE(cairn_session_problem(job.sessions[0], &err), CAIRN_OK);
    REQUIRE_OK(cairn_world_server_start(&world, &err));
    REQUIRE_OK(job_commit(&job, &err));
}

TEST(an_uploader_that_is_stopped_is_named_within_the_deadline_of_each_call) {
    JOB(1, job, "job-1", 1);
    struct cairn_session *second = NULL;
    struct cairn_save *save = NULL;
    REQUIRE_OK(job_saved(&job, 5, &err));
    const char *process = TEXT("(process %d) does not answer", (int)world.uploaders[0].pid);
    kill(world.uploaders[0].pid, SIGSTOP);
    const struct cairn_open_options options =
        SIZED(cairn_open_options, .run = "llm/7b", .socket = world.sockets[0], .read_only = 1,
              .timeout_ms = 500);
    EXPECT_CODE(cairn_open(&options, &second, NULL, &err), CAIRN_TIMEOUT);
    EXPECT(strstr(err.message, process) && strstr(err.message, world.sockets[0]));
    const struct cairn_save_options soon = {.size = sizeof soon, .timeout_ms = 500};
    REQUIRE_OK(cairn_save_begin(job.sessions[0], 6, &soon, &save, &err)); /* there is memory */
    EXPECT_CODE(cairn_save_fail(save, "not wanted", &err), CAIRN_UPLOADER_GONE);
    EXPECT(strstr(err.message, world.sockets[0]));
    cairn_save_free(save);
    kill(world.uploaders[0].pid, SIGCONT);
    REQUIRE_OK(job_saved(&job, 7, &err));
}

TEST(an_uploader_killed_after_the_seal_finishes_with_the_slabs_that_are_offered) { /* K04 */
    JOB(1, job, "job-1", 2);
    REQUIRE_OK(job_save(&job, 5, &err));
    REQUIRE_OK(cairn_world_uploader_again(&world, 0, &err));
    REQUIRE_OK(job_commit(&job, &err));
    EXPECT_CODE(check_all(&world, "latest", 3, 2, &err), CAIRN_OK);
    REQUIRE_OK(heal(&job, &err));
    REQUIRE_OK(job_saved(&job, 6, &err));
}

/* The uploader dies at a named point of the save of step 5; step 6 is saved by the next one. */
static void die_at(const char *point) {
    NODES(1);
    AUTO_JOB job = {0};
    cairn_world_uploader_kill(&world, 0);
    REQUIRE_OK(cairn_world_uploader_start(&world, 0, point, &err));
    REQUIRE_OK(job_open(&world, "job-1", 1, &job, &err));
    EXPECT_CODE(job_save(&job, 5, &err), CAIRN_OK);
    EXPECT(cairn_test_away(job.saves[0]));
    EXPECT(cairn_daemon_ended(&world.uploaders[0], HANG_MS));
    REQUIRE_OK(cairn_world_uploader_start(&world, 0, NULL, &err));
    enum cairn_code code;
    (void)AWAIT((code = job_save(&job, 6, &err)) != CAIRN_UPLOADER_GONE);
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT_CODE(job_commit(&job, &err), CAIRN_OK);
    EXPECT_CODE(check_all(&world, "latest", 1, 1, &err), CAIRN_OK);
}

/* A job may keep its handles, and the next uploader numbers saves anew. */
TEST(v27_a_save_after_a_restart_is_told_although_older_handles_are_kept) { /* Q43 */
    JOB(1, first, "job-1", 1);
    struct cairn_save *saves[4] = {0};
    for (uint64_t step = 0; step < 4; step++) {
        if (step == 2) {
            REQUIRE_OK(cairn_world_uploader_again(&world, 0, &err));
        }
        struct cairn_save_options options = {.size = sizeof options, .timeout_ms = HANG_MS};
        REQUIRE_OK(cairn_save_begin(first.sessions[0], 10 + step, &options, &saves[step], &err));
        REQUIRE_OK(cairn_save_raw(saves[step], "state", "bytes", 5, &err));
        enum cairn_code code = cairn_test_stage(saves[step], &err);
        EXPECT_CODE(code, CAIRN_OK);
        EXPECT(step == 2 || !cairn_test_away(saves[step])); /* not met yet */
        AWAIT((code = cairn_save_wait(saves[step], CAIRN_COMMITTED, HANG_MS, &err)) !=
              CAIRN_UPLOADER_GONE);
        EXPECT_CODE(code, CAIRN_OK);
    }
    for (size_t i = 0; i < 4; i++) cairn_save_free(saves[i]);
}

CASE(an_uploader_that_dies_at_begin_harms_no_later_save, die_at("uploader.begin.journaled"));
CASE(an_uploader_that_dies_at_seal_harms_no_later_save, die_at("uploader.seal.journaled"));

struct restart {
    struct cairn_world *world;
    struct cairn_error err;
    enum cairn_code code;
    uint64_t took_ms;
};
static void *restart_when_dead(void *argument) {
    struct restart *restart = argument;
    (void)cairn_daemon_ended(&restart->world->uploaders[0], HANG_MS);
    uint64_t died_ms = cairn_mono_ms();
    restart->code = cairn_world_uploader_start(restart->world, 0, NULL, &restart->err);
    restart->took_ms = cairn_mono_ms() - died_ms;
    return NULL;
}

/* It dies at the point and is back at once: the save goes on as if nothing had been. */
static void survive(const char *point) {
    NODES(1);
    AUTO_JOB job = {0};
    struct restart restart = {.world = &world};
    pthread_t thread;
    cairn_world_uploader_kill(&world, 0);
    REQUIRE_OK(cairn_world_uploader_start(&world, 0, point, &err));
    REQUIRE_OK(job_open(&world, "job-1", 1, &job, &err));
    REQUIRE(pthread_create(&thread, NULL, restart_when_dead, &restart) == 0);
    enum cairn_code code = job_save(&job, 5, &err);
    pthread_join(thread, NULL);
    bool away = cairn_test_away(job.saves[0]);
    if (away && restart.took_ms > 600)
        SKIP("this machine is too busy to restart an uploader within a second");
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT(!away);
    EXPECT_CODE(restart.code, CAIRN_OK);
    EXPECT_CODE(code ? code : job_commit(&job, &err), CAIRN_OK);
    EXPECT_CODE(check_all(&world, "latest", 1, 1, &err), CAIRN_OK);
}

CASE(a_seal_whose_answer_was_lost_is_not_repeated, survive("uploader.seal.journaled"));
CASE(a_save_of_which_something_was_sent_before_its_seal_goes_on,
     survive("uploader.part.done")); /* K04 */
CASE(a_save_whose_intent_was_journaled_before_its_seal_goes_on,
     survive("uploader.send.journaled"));                                             /* K04 */
CASE(a_begin_whose_answer_was_lost_is_repeated, survive("uploader.begin.journaled")); /* Q8 */

TEST(a_save_that_was_copied_while_the_uploader_was_away_commits) { /* K04 */
    JOB(1, job, "job-1", 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        REQUIRE_OK(cairn_save_begin(job.sessions[rank], 5, NULL, &job.saves[rank], &err));
        REQUIRE_OK(cairn_model_describe(&model, job.saves[rank], rank, 2, &err));
    }
    cairn_world_uploader_kill(&world, 0);
    for (uint32_t rank = 0; rank < 2; rank++) EXPECT_STAGED_AWAY(job.saves[rank]);
    REQUIRE_OK(cairn_world_uploader_start(&world, 0, NULL, &err));
    REQUIRE_OK(job_commit(&job, &err));
    EXPECT_CODE(check_all(&world, "latest", 3, 2, &err), CAIRN_OK);
    REQUIRE_OK(job_saved(&job, 6, &err));
}

/* However long its uploader takes to start, a rank leaves no step out that others have staged. */
TEST(v25_a_step_that_begins_while_one_of_two_uploaders_is_away_is_committed) { /* Q43 */
    JOB(2, job, "job-1", 2);
    cairn_world_uploader_kill(&world, 1);
    EXPECT_CODE(job_save(&job, 5, &err), CAIRN_OK);
    EXPECT(!cairn_test_away(job.saves[0]) && cairn_test_away(job.saves[1]));
    cairn_test_pause_ms(1500); /* pause of a stand-in: so long it takes to start */
    REQUIRE_OK(cairn_world_uploader_start(&world, 1, NULL, &err));
    REQUIRE_OK(job_commit(&job, &err));
    EXPECT_CODE(check_all(&world, "latest", 3, 2, &err), CAIRN_OK);
    REQUIRE_OK(job_saved(&job, 6, &err));
}

/* The version ends, and its entry leaves the journal, between the ranks' offers and their taking:
 * the server stands still until both offers are there, and answers before they are taken. */
TEST(ranks_that_come_back_while_their_version_ends_hear_that_it_is_committed) { /* Q40 */
    NODES(1);
    AUTO_JOB job = {0};
    cairn_world_uploader_kill(&world, 0);
    REQUIRE_OK(cairn_world_uploader_start(&world, 0, "uploader.over.before_close", &err));
    REQUIRE_OK(job_open(&world, "job-1", 2, &job, &err));
    REQUIRE_OK(job_save(&job, 5, &err));
    EXPECT(cairn_daemon_ended(&world.uploaders[0], HANG_MS));
    kill(world.server.pid, SIGSTOP);
    enum cairn_code code =
        cairn_world_uploader_start(&world, 0, "uploader.offer.checked:0:delay=2000", &err);
    cairn_test_pause_ms(1000); /* pause of chaos: the server stands still */
    kill(world.server.pid, SIGCONT);
    REQUIRE_OK(code);
    EXPECT_CODE(job_commit(&job, &err), CAIRN_OK);
    REQUIRE_OK(heal(&job, &err));
    for (uint64_t step = 6; step < 9; step++) { /* the memory is free again */
        REQUIRE_OK(job_saved(&job, step, &err));
    }
    EXPECT_CODE(check_all(&world, "latest", 1, 2, &err), CAIRN_OK);
}

TEST(a_save_that_was_begun_goes_on_with_the_next_uploader) {
    JOB(1, job, "job-1", 1);
    REQUIRE_OK(cairn_save_begin(job.sessions[0], 5, NULL, &job.saves[0], &err));
    REQUIRE_OK(cairn_world_uploader_again(&world, 0, &err));
    REQUIRE_OK(heal(&job, &err));
    REQUIRE_OK(cairn_model_describe(&model, job.saves[0], 0, 1, &err));
    REQUIRE_OK(cairn_test_stage(job.saves[0], &err));
    REQUIRE_OK(job_commit(&job, &err));
    EXPECT_CODE(check_all(&world, "latest", 1, 1, &err), CAIRN_OK);
}

TEST(a_step_that_exists_is_refused_or_superseded_as_asked) { /* Q11 */
    NODES(1);
    AUTO_JOB job = {0};
    struct cairn_save *save = NULL;
    struct cairn_save_options supersede =
        SIZED(cairn_save_options, .on_exists = CAIRN_EXISTS_SUPERSEDE);
    REQUIRE_OK(job_open(&world, "job-1", 1, &job, &err));
    REQUIRE_OK(job_saved(&job, 5, &err));
    enum cairn_code code = cairn_model_save(&model, job.sessions[0], 5, 0, 1, &save, &err);
    if (!code) code = cairn_test_reach(save, CAIRN_COMMITTED, &err);
    EXPECT_EQ_U64(code, CAIRN_STEP_EXISTS);
    cairn_save_free(save);
    REQUIRE_OK(cairn_save_begin(job.sessions[0], 5, &supersede, &save, &err));
    REQUIRE_OK(cairn_model_describe(&model, save, 0, 1, &err));
    REQUIRE_OK(cairn_test_stage(save, &err));
    EXPECT_CODE(cairn_test_reach(save, CAIRN_COMMITTED, &err), CAIRN_OK);
    cairn_save_free(save);
}

TEST(one_rank_that_gives_up_ends_the_save_for_all) { /* Q12, Q26 */
    JOB(2, job, "job-1", 2);
    REQUIRE_OK(cairn_model_save(&model, job.sessions[0], 5, 0, 2, &job.saves[0], &err));
    REQUIRE_OK(cairn_save_begin(job.sessions[1], 5, NULL, &job.saves[1], &err));
    EXPECT_CODE(cairn_save_fail(job.saves[1], "loss is NaN", &err), CAIRN_OK);
    EXPECT_FAILS(cairn_test_reach(job.saves[0], CAIRN_COMMITTED, &err), CAIRN_ABORTED,
                 "loss is NaN");
    REQUIRE_OK(job_saved(&job, 6, &err));
}

TEST(a_trainer_that_dies_after_staging_leaves_a_committed_save) { /* K03 */
    NODES(1);
    pid_t trainer = fork();
    REQUIRE(trainer >= 0);
    if (trainer == 0) {
        struct job job = {0};
        bool fine = job_open(&world, "job-1", 2, &job, &err) == CAIRN_OK &&
                    job_save(&job, 5, &err) == CAIRN_OK;
        if (fine) raise(SIGKILL);
        _exit(1);
    }
    int status = 0;
    REQUIRE(waitpid(trainer, &status, 0) == trainer);
    EXPECT(WIFSIGNALED(status));
    AUTO_JOB next = {0};
    REQUIRE_OK(job_open(&world, "job-2", 2, &next, &err)); /* Q3: waits for what was staged */
    EXPECT(next.resumes[0].found);
    EXPECT_EQ_U64(next.resumes[0].step, 5);
    EXPECT_CODE(check_all(&world, "5", 1, 2, &err), CAIRN_OK);
}

TEST(a_job_string_that_another_process_used_is_refused) { /* Q2 */
    JOB(1, job, "job-1", 1);
    int status = 0;
    pid_t other = fork();
    if (other == 0) {
        struct job second = {0};
        _exit(job_open(&world, "job-1", 1, &second, &err) == CAIRN_JOB_REUSED ? 0 : 1);
    }
    REQUIRE(waitpid(other, &status, 0) == other);
    EXPECT_EQ_U64(status, 0);
}

TEST(an_older_attempt_is_told_that_it_is_over) { /* P6 */
    NODES(1);
    AUTO_JOB old = {0};
    AUTO_JOB new = {0};
    REQUIRE_OK(job_open(&world, "job-1", 1, &old, &err));
    REQUIRE_OK(job_open(&world, "job-2", 1, &new, &err));
    enum cairn_code code = job_save(&old, 5, &err);
    if (!code) code = cairn_test_reach(old.saves[0], CAIRN_COMMITTED, &err);
    EXPECT_EQ_U64(code, CAIRN_STALE_ATTEMPT);
    REQUIRE_OK(job_saved(&new, 5, &err));
}

TEST(files_are_saved_from_their_descriptor_without_memory) {
    NODES(1);
    char path[400], buffer[8192];
    const size_t size = 3 * 1024 * 1024 + 5;
    snprintf(path, sizeof path, "%s/big.pt", cairn_test_folder());
    CAIRN_AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    CAIRN_AUTO_HEAP uint8_t *bytes = malloc(size), *got = malloc(size);
    REQUIRE(bytes && got);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(i * 31 + i / 4099);
    REQUIRE(pwrite(fd, bytes, size, 0) == (ssize_t)size);
    const struct cairn_open_options options =
        SIZED(cairn_open_options, .run = "llm/7b", .job = "put", .socket = world.sockets[0],
              .resume = "keep", .timeout_ms = HANG_MS);
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    struct cairn_restore *restore = NULL;
    REQUIRE_OK(cairn_open(&options, &session, NULL, &err));
    enum cairn_code code = cairn_save_begin(session, 1, NULL, &save, &err);
    if (!code) code = cairn_save_file(save, "tree/big.pt", fd, size, &err);
    if (!code) code = cairn_test_stage(save, &err);
    if (!code) code = cairn_test_reach(save, CAIRN_COMMITTED, &err);
    EXPECT_CODE(code, CAIRN_OK);
    cairn_save_free(save);
    const struct cairn_restore_options latest = {.size = sizeof latest, .ref = "latest"};
    const struct cairn_read whole = {sizeof whole, .shard = "tree/big.pt", .bytes = UINT64_MAX,
                                     .into = got, .into_bytes = size},
                            part = {sizeof part,  .shard = "tree/big.pt", .offset = 1000,
                                    .bytes = 100, .into = buffer,         .into_bytes = 100};
    const struct cairn_read reads[] = {whole, part};
    code = cairn_restore_open(session, &latest, &restore, NULL, &err);
    if (!code) code = cairn_restore_read(restore, reads, 2, 0, &err);
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT(memcmp(got, bytes, size) == 0);
    EXPECT(memcmp(buffer, bytes + 1000, 100) == 0);
    cairn_restore_free(restore);
    (void)cairn_close(session, NULL);
}

static enum cairn_code save_with_meta(struct cairn_session *session, uint64_t step,
                                      const char *meta, struct cairn_error *err) {
    const struct cairn_save_options options = {.size = sizeof options, .meta_json = meta};
    struct cairn_save *save = NULL;
    CAIRN_TRY(cairn_save_begin(session, step, &options, &save, err));
    enum cairn_code code = cairn_save_raw(save, "state.bin", "raw", 4, err);
    if (!code) code = cairn_test_stage(save, err);
    if (!code) code = cairn_test_reach(save, CAIRN_COMMITTED, err);
    cairn_save_free(save);
    return code;
}

TEST(a_list_that_one_frame_cannot_hold_comes_in_pages_and_the_open_save_lives) {
    NODES(1);
    AUTO_JOB job = {0};
    struct cairn_checkpoint *list = NULL;
    AUTO_SAVE *open_save = NULL;
    size_t count = 0;
    static char meta[60 * 1024];
    int head = snprintf(meta, sizeof(meta), "{\"note\":\"");
    memset(meta + head, 'x', sizeof(meta) - (size_t)head - 3);
    memcpy(meta + sizeof(meta) - 3, "\"}", 3);
    REQUIRE_OK(job_open(&world, "job-1", 1, &job, &err));
    for (uint64_t step = 1; step <= 20; step++)
        REQUIRE_OK(save_with_meta(job.sessions[0], step, meta, &err));
    REQUIRE_OK(cairn_save_begin(job.sessions[0], 21, NULL, &open_save, &err));
    REQUIRE_OK(cairn_list(job.sessions[0], &list, &count, &err));
    EXPECT(count == 20 || count == 21); /* the begin may be on its way */
    uint64_t steps = 0;
    for (size_t i = 0; i < count; i++) steps += list[i].step <= 20 ? list[i].step : 0;
    EXPECT_EQ_U64(steps, 210); /* each once */
    cairn_list_free(list);
    EXPECT_CODE(cairn_save_raw(open_save, "state.bin", "raw", 4, &err), CAIRN_OK);
    EXPECT_CODE(cairn_test_stage(open_save, &err), CAIRN_OK);
    EXPECT_CODE(cairn_test_reach(open_save, CAIRN_COMMITTED, &err), CAIRN_OK);
}
