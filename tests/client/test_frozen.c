/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* ctest: as=frozen_behind env=CAIRN_TEST_BEHIND=1 races="full: as client/behind" */
/* The uploader is frozen, as by SIGSTOP: it keeps its socket, and answers nothing. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/model.h"
#include "tests/client/stage.h"
#include "tests/support/world.h"

#define BEGIN_MS 1500    /* a freeze is longer */
#define SESSION_MS 20000 /* of calls that a busy machine must not end */
#define STEPS 2          /* as many as a rank has generations */

static struct cairn_model model;

struct frozen {
    struct cairn_world *world;
    struct cairn_session *session;
    struct cairn_save *saves[STEPS];
    uint64_t before; /* the first step is the next */
    bool stopped;
};

/* Returns once no thread of it runs. */
static void signal_to(struct frozen *frozen, int number) {
    const pid_t pid = frozen->world->uploaders[0].pid;
    siginfo_t stopped;
    kill(pid, number);
    frozen->stopped = number == SIGSTOP;
    if (frozen->stopped) (void)waitid(P_PID, (id_t)pid, &stopped, WSTOPPED);
}

static void cairn_frozen_release(struct frozen *frozen) {
    if (frozen->stopped) signal_to(frozen, SIGCONT);
    for (size_t i = 0; i < STEPS; i++) cairn_save_free(frozen->saves[i]);
    (void)cairn_close(frozen->session, NULL);
}

static enum cairn_code open_rank(struct frozen *ret, struct cairn_world *world,
                                 struct cairn_error *err) {
    const struct cairn_open_options options =
        SIZED(cairn_open_options, .run = "llm/7b", .job = "job-1", .bytes = MODEL_RANK_BYTES,
              .socket = world->sockets[0], .timeout_ms = SESSION_MS);
    ret->world = world;
    cairn_model_fill(&model, 5);
    return cairn_open(&options, &ret->session, NULL, err);
}

#define FROZEN                                                                                     \
    OPEN_WORLD(.nodes = 1);                                                                        \
    __attribute__((cleanup(cairn_frozen_release))) struct frozen frozen = {0};                     \
    REQUIRE_OK(open_rank(&frozen, &world, &err))

/* The freeze is over, or the uploader dies of it, before it reads a frame, and the next starts. */
static enum cairn_code end_freeze(struct frozen *frozen, bool dies, struct cairn_error *err) {
    signal_to(frozen, dies ? SIGKILL : SIGCONT);
    return dies ? cairn_world_uploader_again(frozen->world, 0, err) : CAIRN_OK;
}

/* Read by a session that has time. */
static enum cairn_code check(const struct frozen *frozen, uint64_t step, struct cairn_error *err) {
    struct cairn_session *session = NULL;
    struct cairn_restore *restore = NULL;
    const char *ref = TEXT("%" PRIu64, frozen->before + step);
    const struct cairn_open_options reads =
        SIZED(cairn_open_options, .run = "llm/7b", .socket = frozen->world->sockets[0],
              .read_only = 1, .timeout_ms = HANG_MS);
    const struct cairn_restore_options options = SIZED(cairn_restore_options, .ref = ref);
    CAIRN_TRY(cairn_open(&reads, &session, NULL, err));
    enum cairn_code code = cairn_restore_open(session, &options, &restore, NULL, err);
    if (!code) code = cairn_model_check(&model, restore, 0, 1, 1, err);
    cairn_restore_free(restore);
    (void)cairn_close(session, NULL);
    return code;
}

static const struct cairn_save_options soon = {.size = sizeof(soon), .timeout_ms = BEGIN_MS};

static enum cairn_code begin(struct frozen *frozen, uint64_t step, struct cairn_error *err) {
    struct cairn_save **save = &frozen->saves[step - 1];
    CAIRN_TRY(cairn_save_begin(frozen->session, frozen->before + step, &soon, save, err));
    return cairn_model_describe(&model, *save, 0, 1, err);
}

enum point { BEFORE_BEGIN, BEFORE_STAGE, BEFORE_SEAL, POINTS };

/* Two saves; the uploader freezes at that point of the first. */
static enum cairn_code save_frozen(struct frozen *frozen, enum point point,
                                   struct cairn_error *err) {
    if (point == BEFORE_BEGIN) signal_to(frozen, SIGSTOP);
    CAIRN_TRY(begin(frozen, 1, err));
    if (point == BEFORE_STAGE) signal_to(frozen, SIGSTOP);
    if (point == BEFORE_SEAL) {
        CAIRN_TRY(cairn_save_copy(frozen->saves[0], err));
        signal_to(frozen, SIGSTOP);
        CAIRN_TRY(cairn_save_raw(frozen->saves[0], "late", "later", 5, err));
        CAIRN_TRY(cairn_save_seal(frozen->saves[0], err));
    } else {
        CAIRN_TRY(cairn_test_stage(frozen->saves[0], err));
    }
    CAIRN_TRY(begin(frozen, 2, err));
    return cairn_test_stage(frozen->saves[1], err);
}

static void survives(enum point point, bool dies) {
    FROZEN;
    frozen.before = 10 * (uint64_t)point;
    REQUIRE_OK(save_frozen(&frozen, point, &err));
    for (size_t i = 0; i < STEPS; i++) EXPECT(cairn_test_away(frozen.saves[i]));
    REQUIRE_OK(end_freeze(&frozen, dies, &err));
    for (uint64_t step = 1; step <= STEPS; step++) {
        EXPECT_CODE(cairn_test_reach(frozen.saves[step - 1], CAIRN_COMMITTED, &err), CAIRN_OK);
        EXPECT(!cairn_test_away(frozen.saves[step - 1]));
        EXPECT_CODE(check(&frozen, step, &err), CAIRN_OK);
    }
    EXPECT_CODE(cairn_session_problem(frozen.session, &err), CAIRN_OK);
}

TEST(what_is_saved_while_the_uploader_is_frozen_is_committed_once_it_goes_on) { /* K35, Q43 */
    for (enum point point = BEFORE_BEGIN; point < POINTS; point++) survives(point, false);
}

TEST(what_is_saved_while_the_uploader_is_frozen_is_committed_by_the_next_if_it_dies) { /* K35 */
    for (enum point point = BEFORE_BEGIN; point < POINTS; point++) survives(point, true);
}

/* One that is only starved would fail the step for all ranks, so the begin uses its time. */
TEST(a_begin_without_memory_waits_for_the_frozen_uploader_until_its_deadline_and_names_it) {
    FROZEN;
    AUTO_SAVE *third = NULL;
    REQUIRE_OK(save_frozen(&frozen, BEFORE_STAGE, &err));
    uint64_t began_ms = cairn_mono_ms();
    EXPECT_CODE(cairn_save_begin(frozen.session, 3, &soon, &third, &err), CAIRN_UPLOADER_GONE);
    EXPECT(cairn_mono_ms() - began_ms >= BEGIN_MS);
    EXPECT(strstr(err.message, TEXT("(process %d) does not answer", (int)world.uploaders[0].pid)));
    signal_to(&frozen, SIGCONT);
    for (size_t i = 0; i < STEPS; i++)
        EXPECT_CODE(cairn_test_reach(frozen.saves[i], CAIRN_COMMITTED, &err), CAIRN_OK);
}

/* The answers that come late are taken by saves that are over. */
TEST(a_save_that_is_cancelled_while_the_uploader_is_frozen_gives_its_memory_back) {
    FROZEN;
    REQUIRE_OK(save_frozen(&frozen, BEFORE_BEGIN, &err));
    for (size_t i = 0; i < STEPS; i++) {
        EXPECT_CODE(cairn_save_cancel(frozen.saves[i], "not wanted", &err), CAIRN_OK);
        cairn_save_free(frozen.saves[i]);
        frozen.saves[i] = NULL;
    }
    signal_to(&frozen, SIGCONT);
    for (uint64_t step = 3; step < 6; step++) {
        AUTO_SAVE *save = NULL;
        REQUIRE_OK(cairn_model_save(&model, frozen.session, step, 0, 1, &save, &err));
        EXPECT_CODE(cairn_test_reach(save, CAIRN_COMMITTED, &err), CAIRN_OK);
        EXPECT_CODE(check(&frozen, step, &err), CAIRN_OK);
    }
}

/* The same uploader reads them. */
TEST(files_that_a_frozen_uploader_was_given_are_committed_with_the_save) {
    FROZEN;
    struct cairn_save **save = &frozen.saves[0];
    CAIRN_AUTO_FD fd = open(cairn_test_folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    REQUIRE(write(fd, "12345", 5) == 5);
    REQUIRE_OK(begin(&frozen, 1, &err));
    REQUIRE_OK(cairn_save_file(*save, "extra", fd, 5, &err));
    signal_to(&frozen, SIGSTOP);
    EXPECT_STAGED_AWAY(*save);
    signal_to(&frozen, SIGCONT);
    EXPECT_CODE(cairn_test_reach(*save, CAIRN_COMMITTED, &err), CAIRN_OK);
    EXPECT_CODE(check(&frozen, 1, &err), CAIRN_OK);
}
