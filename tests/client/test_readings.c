/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Reads in the background: real server, real uploader. */

#include "common/hooks.h"
#include "tests/client/team.h"

#define TENSORS 12
#define BYTES (256 * CAIRN_KIB)

static uint8_t content[TENSORS][BYTES], found[TENSORS][BYTES];

static void name_of(int number, char ret[32]) {
    snprintf(ret, 32, "tensor.%02d", number);
}

/* One version with all tensors, opened by rank 0. */
static enum cairn_code open_version(struct cairn_team *team, struct cairn_error *err) {
    const uint64_t shape = BYTES;
    CAIRN_TRY(team_begin(team, 5, NULL, err));
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        name_of(i, name);
        for (size_t k = 0; k < BYTES; k++)
            content[i][k] = (uint8_t)((size_t)i * 17 + k * 31 + k / 999);
        const struct cairn_tensor_piece piece = SIZED(
            cairn_tensor_piece, .name = name, .dtype = "U8", .dimension_count = 1, .shape = &shape,
            .kind = CAIRN_LOCAL, .source = content[i], .source_bytes = BYTES);
        CAIRN_TRY(cairn_save_tensor(team->saves[0], &piece, err));
    }
    CAIRN_TRY(team_finish(team, err));
    memset(found, 0, sizeof found);
    return team_restore(team, NULL, err);
}

/* The whole of tensor `number`; what the call points to is gone when it returns. */
static enum cairn_code begin(struct cairn_team *team, int number, uint32_t timeout_ms,
                             struct cairn_reading **ret, struct cairn_error *err) {
    char name[32];
    name_of(number, name);
    const uint64_t start = 0, count = BYTES;
    const struct cairn_read read =
        SIZED(cairn_read, .tensor = name, .form = CAIRN_FLAT, .start = &start, .count = &count,
              .into = found[number % TENSORS], .into_bytes = BYTES);
    return cairn_read_begin(team->restore, &read, 1, timeout_ms, ret, err);
}

static bool is_whole(int number) {
    return !memcmp(found[number], content[number], BYTES);
}

static bool is_readable(struct cairn_reading *reading, int timeout_ms) {
    struct pollfd wanted = {.fd = cairn_read_fd(reading), .events = POLLIN};
    return poll(&wanted, 1, timeout_ms) == 1;
}

TEST(reads_are_begun_together_and_each_is_done_on_its_own) {
    TEAM(1);
    struct cairn_reading *all[TENSORS + 1] = {NULL};
    enum cairn_code code = CAIRN_INTERNAL;
    REQUIRE_OK(open_version(&team, &err));
    for (int i = 0; i <= TENSORS; i++) /* the last is of no tensor */
        REQUIRE_OK(begin(&team, i, 0, &all[i], &err));
    for (int i = 0; i < TENSORS; i++) {
        REQUIRE(is_readable(all[i], (int)HANG_MS));
        EXPECT(cairn_read_poll(all[i], &code));
        EXPECT_EQ_U64(code, CAIRN_OK);
        EXPECT_CODE(cairn_read_wait(all[i], 0, &err), CAIRN_OK);
        EXPECT(is_whole(i));
    }
    EXPECT_FAILS(cairn_read_wait(all[TENSORS], 0, &err), CAIRN_NOT_FOUND, "tensor.12");
    EXPECT(strstr(err.message, "llm/7b step 5") != NULL);
    EXPECT(is_readable(all[TENSORS], 0));
    for (int i = 0; i <= TENSORS; i++) cairn_read_free(all[i]);
}

struct reader {
    struct cairn_restore *restore;
    int number;
    enum cairn_code code;
};

static void *read_often(void *argument) {
    struct reader *reader = argument;
    char name[32];
    name_of(reader->number, name);
    for (int i = 0; i < 20 && !reader->code; i++) {
        const struct cairn_read read =
            SIZED(cairn_read, .tensor = name, .into = found[reader->number], .into_bytes = BYTES);
        reader->code = cairn_restore_read(reader->restore, &read, 1, 0, NULL);
    }
    return NULL;
}

TEST(threads_read_through_one_handle_beside_reads_in_the_background) {
    TEAM(1);
    struct reader readers[4] = {0};
    pthread_t threads[4];
    struct cairn_reading *reading = NULL;
    REQUIRE_OK(open_version(&team, &err));
    for (int i = 0; i < 4; i++) {
        readers[i] = (struct reader){.restore = team.restore, .number = i};
        REQUIRE(!pthread_create(&threads[i], NULL, read_often, &readers[i]));
    }
    for (int i = 4; i < TENSORS; i++) {
        REQUIRE_OK(begin(&team, i, 0, &reading, &err));
        EXPECT_CODE(cairn_read_wait(reading, 0, &err), CAIRN_OK);
        cairn_read_free(reading);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) EXPECT_EQ_U64(readers[i].code, CAIRN_OK);
    for (int i = 0; i < TENSORS; i++) EXPECT(is_whole(i));
}

TEST(a_read_that_is_cancelled_or_late_ends_and_the_others_go_on) {
    TEAM(1);
    struct cairn_reading *first = NULL, *late = NULL, *dropped = NULL, *good = NULL;
    REQUIRE_OK(open_version(&team, &err));
    kill(team.world.uploaders[0].pid, SIGSTOP);
    REQUIRE_OK(begin(&team, 0, 2 * HANG_MS, &first, &err));
    REQUIRE_OK(begin(&team, 1, 300, &late, &err));
    REQUIRE_OK(begin(&team, 2, 2 * HANG_MS, &dropped, &err));
    REQUIRE_OK(begin(&team, 3, 0, &good, &err));
    EXPECT_CODE(cairn_read_wait(good, 100, &err), CAIRN_TIMEOUT);
    EXPECT(!cairn_read_poll(good, NULL));
    cairn_read_cancel(first);
    EXPECT_CODE(cairn_read_wait(first, HANG_MS, &err), CAIRN_CANCELLED);
    cairn_read_free(dropped); /* waits until nothing writes to its destination */
    EXPECT_CODE(cairn_read_wait(late, HANG_MS, &err), CAIRN_TIMEOUT);
    EXPECT(cairn_read_poll(late, NULL)); /* its own deadline, not the wait's */
    memset(found, 0, sizeof found);
    kill(team.world.uploaders[0].pid, SIGCONT);
    EXPECT_CODE(cairn_read_wait(good, 0, &err), CAIRN_OK);
    EXPECT(is_whole(3));
    for (int i = 0; i < 3; i++) EXPECT(!is_whole(i)); /* nothing was written after they ended */
    cairn_read_free(first);
    cairn_read_free(late);
    cairn_read_free(good);
}

TEST(reads_go_on_with_the_uploader_that_comes_back) { /* P9 */
    TEAM(1);
    AUTO_READING *reading = NULL;
    REQUIRE_OK(open_version(&team, &err));
    cairn_world_uploader_kill(&team.world, 0);
    REQUIRE_OK(begin(&team, 0, 0, &reading, &err));
    REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
    EXPECT_CODE(cairn_read_wait(reading, 0, &err), CAIRN_OK);
    EXPECT(is_whole(0));
}

TEST(closing_a_session_ends_its_reads_and_their_handles_stay) {
    TEAM(1);
    struct cairn_reading *readings[3] = {NULL}, *more = NULL;
    enum cairn_code code = CAIRN_OK;
    REQUIRE_OK(open_version(&team, &err));
    kill(team.world.uploaders[0].pid, SIGSTOP);
    for (int i = 0; i < 3; i++) REQUIRE_OK(begin(&team, i, 0, &readings[i], &err));
    struct pollfd wanted = {.fd = cairn_read_fd(readings[2]), .events = POLLIN};
    kill(team.world.uploaders[0].pid, SIGCONT);
    (void)cairn_close(team.sessions[0], NULL);
    team.sessions[0] = NULL;
    for (int i = 0; i < 3; i++) {
        EXPECT(cairn_read_poll(readings[i], &code));
        EXPECT(code == CAIRN_OK || code == CAIRN_CANCELLED);
        EXPECT_CODE(cairn_read_wait(readings[i], 0, &err), code);
    }
    EXPECT_EQ_U64((uint64_t)poll(&wanted, 1, 0), 1);
    EXPECT_CODE(begin(&team, 0, 0, &more, &err), CAIRN_INVALID);
    for (int i = 0; i < 3; i++) cairn_read_free(readings[i]);
}

#ifdef CAIRN_CRASHPOINTS
/* The thread that reads is held where it has taken the read, until the session is closed; the call
 * that it goes on with is refused, as of a session that is closed. */
TEST(a_read_that_meets_the_close_of_its_session_is_cancelled) { /* restore.h#6 */
    TEAM(1);
    AUTO_READING *reading = NULL;
    enum cairn_code code = CAIRN_OK;
    REQUIRE_OK(open_version(&team, &err));
    const char *passed = TEXT("%s/passed", cairn_test_folder());
    REQUIRE(setenv("CAIRN_CRASH_LIST", passed, 1) == 0);
    cairn_crashpoint_arm("client.reading.taken:1:delay=2000");
    enum cairn_code begun = begin(&team, 0, 0, &reading, &err);
    if (!begun) (void)AWAIT(access(passed, F_OK) == 0); /* it is taken */
    unsetenv("CAIRN_CRASH_LIST");
    if (!begun) (void)cairn_close(team.sessions[0], NULL);
    cairn_crashpoint_arm("");
    REQUIRE_OK(begun);
    team.sessions[0] = NULL;
    EXPECT(cairn_read_poll(reading, &code));
    EXPECT_EQ_U64(code, CAIRN_CANCELLED);
    EXPECT_CODE(cairn_read_wait(reading, 0, &err), CAIRN_CANCELLED);
}
#endif
