/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* ctest: as=descriptors_behind env=CAIRN_TEST_BEHIND=1 races="full: as client/behind" */
/* K08: a trainer that may open no file more, as where data loaders have taken all. */
#include <sys/resource.h>

#include "tests/client/stage.h"
#include "tests/support/world.h"

#define NEEDS_WORLD()                                                                              \
    if (!cairn_world_possible()) SKIP("cairn-server and cairn-uploader are not built here")

/* This process may have as many as it has and `spare` more; -1: as many as ever. */
static bool spare_files(int spare) {
    struct rlimit limit;
    int taken[64], count = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return false;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit)) return false;
    if (spare < 0) return true;
    while (count <= spare) taken[count++] = fcntl(0, F_DUPFD_CLOEXEC, 0);
    limit.rlim_cur = (rlim_t)taken[count - 1];
    while (count) close(taken[--count]);
    return !setrlimit(RLIMIT_NOFILE, &limit);
}

static enum cairn_code open_rank(const struct cairn_world *world, struct cairn_session **ret,
                                 struct cairn_error *err) {
    const struct cairn_open_options options = SIZED(
        cairn_open_options, .run = "llm/7b", .job = "job-1", .world_size = 1, .bytes = CAIRN_MIB,
        .socket = world->sockets[0], .wait_staged_ms = 2000, .timeout_ms = HANG_MS);
    return cairn_open(&options, ret, NULL, err);
}

static enum cairn_code save_one(struct cairn_session *session, uint64_t step,
                                struct cairn_save **ret, struct cairn_error *err) {
    static const char bytes[] = "all that this rank has";
    enum cairn_code code = cairn_save_begin(session, step, NULL, ret, err);
    if (!code) code = cairn_save_raw(*ret, "state.bin", bytes, sizeof(bytes), err);
    return code ? code : cairn_test_stage(*ret, err);
}

/* A session is a socket, an eventfd and two slabs: each number of descriptors fails elsewhere. */
TEST(k08_a_rank_that_opens_without_descriptors_is_told_the_limit_and_opens_when_it_has_some) {
    OPEN_WORLD(0);
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    unsigned refused = 0;
    for (int spare = 0; spare < 12 && !session; spare++) {
        REQUIRE(spare_files(spare));
        enum cairn_code code = open_rank(&world, &session, &err);
        REQUIRE(spare_files(-1));
        if (!code) break;
        refused++;
        printf("    %d descriptors: %s\n", spare, err.message);
        EXPECT(strstr(err.message, "RLIMIT_NOFILE") != NULL);
    }
    EXPECT(refused >= 3);
    REQUIRE(session != NULL);
    REQUIRE(spare_files(0)); /* a save of tensors opens nothing */
    EXPECT_CODE(save_one(session, 1, &save, &err), CAIRN_OK);
    EXPECT_CODE(cairn_test_reach(save, CAIRN_COMMITTED, &err), CAIRN_OK);
    REQUIRE(spare_files(-1));
    cairn_save_free(save);
    EXPECT_CODE(cairn_close(session, NULL), CAIRN_OK);
}

/* The slabs of the answer are descriptors. */
TEST(k08_memory_of_another_size_without_descriptors_is_refused_by_the_limit_and_had_afterwards) {
    OPEN_WORLD(0);
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    struct rlimit limit;
    REQUIRE_OK(open_rank(&world, &session, &err));
    REQUIRE(!getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 3; /* those of the slabs that are given back are of no use */
    REQUIRE(!setrlimit(RLIMIT_NOFILE, &limit));
    enum cairn_code code = cairn_session_reserve(session, 2 * CAIRN_MIB, 0, HANG_MS, &err);
    REQUIRE(spare_files(-1));
    EXPECT_EQ_U64(code, CAIRN_UPLOADER_GONE);
    if (!EXPECT(strstr(err.message, "RLIMIT_NOFILE") != NULL)) printf("%s\n", err.message);
    EXPECT_CODE(cairn_session_reserve(session, 2 * CAIRN_MIB, 0, HANG_MS, &err), CAIRN_OK);
    EXPECT_CODE(save_one(session, 1, &save, &err), CAIRN_OK);
    EXPECT_CODE(cairn_test_reach(save, CAIRN_COMMITTED, &err), CAIRN_OK);
    cairn_save_free(save);
    EXPECT_CODE(cairn_close(session, NULL), CAIRN_OK);
}

struct pipes {
    int to_child, to_parent, from_child, from_parent;
};

/* The trainer: 0 when all went as it should, else the number of what did not. */
static int live(const struct cairn_world *world, const struct pipes *pipes) {
    struct cairn_error err = {0};
    struct cairn_session *session = NULL;
    struct cairn_save *staged = NULL, *away = NULL, *later = NULL;
    char word = 'x';
    if (open_rank(world, &session, &err)) return 1;
    if (!spare_files(0)) return 2;
    if (save_one(session, 1, &staged, &err)) return 3;
    if (write(pipes->to_parent, &word, 1) != 1 || read(pipes->from_parent, &word, 1) != 1) return 4;
    /* By now there is another uploader, which cannot be reached from here. */
    enum cairn_code code = save_one(session, 2, &away, &err);
    if (code || !cairn_test_away(away)) return 5; /* its bytes are copied all the same */
    code = cairn_save_wait(away, CAIRN_COMMITTED, 1000, &err);
    printf("    %s\n", err.message);
    if (code != CAIRN_UPLOADER_GONE || !strstr(err.message, "RLIMIT_NOFILE")) return 6;
    if (!spare_files(-1)) return 7;
    if (cairn_test_reach(staged, CAIRN_COMMITTED, &err) ||
        cairn_test_reach(away, CAIRN_COMMITTED, &err))
        return 8; /* nothing was lost */
    if (save_one(session, 3, &later, &err) || cairn_test_reach(later, CAIRN_COMMITTED, &err))
        return 9;
    cairn_save_free(away);
    cairn_save_free(staged);
    cairn_save_free(later);
    return cairn_close(session, NULL) ? 10 : 0;
}

TEST(k08_a_rank_that_has_no_descriptor_for_a_new_uploader_goes_on_when_it_has_one) { /* Q8, Q40 */
    OPEN_WORLD(0);
    int down[2], up[2], status = -1;
    char word;
    REQUIRE(pipe(down) == 0 && pipe(up) == 0);
    struct pipes pipes = {
        .to_child = down[1], .to_parent = up[1], .from_child = up[0], .from_parent = down[0]};
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int failed = live(&world, &pipes);
        fflush(stdout);
        _exit(failed);
    }
    REQUIRE(child > 0);
    close(up[1]); /* an end of the child ends the read */
    if (read(pipes.from_child, &word, 1) == 1) {
        cairn_world_uploader_kill(&world, 0);
        EXPECT_CODE(cairn_world_uploader_start(&world, 0, NULL, &err), CAIRN_OK);
        EXPECT(write(pipes.to_child, &word, 1) == 1);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status));
    EXPECT_EQ_U64((uint64_t)WEXITSTATUS(status), 0);
    close(up[0]);
    close(down[0]);
    close(down[1]);
}
