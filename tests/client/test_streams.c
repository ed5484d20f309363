/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan seconds=20 */
/* ctest: as=streams_behind env=CAIRN_TEST_BEHIND=1 seconds=20 races="full: as client/behind" */
/* Streams that the session's memory does not hold, over uploaders that die. */
#include <cairn/items.h>
#include <cairn/poll.h>
#include <dirent.h>
#include <sys/resource.h>

#include "tests/client/rank.h"
#include "tests/client/team.h"

#define STREAMS 33 /* more than a frame has descriptors */

static size_t size_of(uint32_t number) {
    return 1 + number * 97001u % (CAIRN_MIB + 77);
}

static uint8_t byte_of(uint32_t number, size_t at) {
    return (uint8_t)(number * 31 + at * 7 + (at >> 12));
}

static uint8_t *bytes_of(uint32_t number) {
    uint8_t *bytes = malloc(size_of(number));
    for (size_t i = 0; bytes && i < size_of(number); i++) bytes[i] = byte_of(number, i);
    return bytes;
}

static enum cairn_code write_stream(struct cairn_save *save, uint32_t number,
                                    struct cairn_error *err) {
    CAIRN_AUTO_HEAP uint8_t *bytes = bytes_of(number);
    struct cairn_stream *stream = NULL;
    if (!bytes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory");
    enum cairn_code code =
        cairn_save_stream(save, TEXT("stream %u", number), CAIRN_LOCAL, &stream, err);
    size_t half = size_of(number) / 3;
    if (!code) code = cairn_stream_write(stream, bytes, half, err);
    if (!code) code = cairn_stream_write(stream, bytes + half, size_of(number) - half, err);
    if (!code) code = cairn_stream_close(stream, err);
    cairn_stream_free(stream);
    return code;
}

/* Takes the session's whole memory, until it is freed. */
static enum cairn_code fill(struct cairn_save *save, struct cairn_stream **ret,
                            struct cairn_error *err) {
    static const uint8_t zeros[TEAM_BYTES];
    CAIRN_TRY(cairn_save_stream(save, "full", CAIRN_LOCAL, ret, err));
    return cairn_stream_write(*ret, zeros, sizeof zeros, err);
}

static enum cairn_code write_streams(struct cairn_save *save, uint32_t first, uint32_t end,
                                     struct cairn_error *err) {
    struct cairn_stream *full = NULL;
    enum cairn_code code = fill(save, &full, err);
    for (uint32_t i = first; i < end && !code; i++) code = write_stream(save, i, err);
    cairn_stream_free(full);
    return code;
}

static void expect_streams(struct cairn_team *team, uint32_t count) {
    struct cairn_error err = {0};
    REQUIRE_OK(team_restore(team, NULL, &err));
    for (uint32_t i = 0; i < count; i++) {
        CAIRN_AUTO_HEAP uint8_t *wanted = bytes_of(i), *found = malloc(size_of(i));
        REQUIRE(wanted && found);
        const struct cairn_read read = SIZED(cairn_read, .tensor = TEXT("stream %u", i),
                                             .into = found, .into_bytes = size_of(i));
        REQUIRE_OK(cairn_restore_read(team->restore, &read, 1, 0, &err));
        EXPECT(!memcmp(found, wanted, size_of(i)));
    }
    cairn_restore_free(CAIRN_TAKE(team->restore));
}

/* Memfds of streams that this process holds open. */
static size_t held(void) {
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;
    for (const struct dirent *at; folder && (at = readdir(folder));) {
        char target[64] = "";
        ssize_t size = readlinkat(dirfd(folder), at->d_name, target, sizeof target - 1);
        count += size > 0 && strstr(target, "memfd:cairn-stream") != NULL;
    }
    if (folder) closedir(folder);
    return count;
}

/* The uploader dies at its first passing of the point, and another one is started after that. */
static enum cairn_code mortal(struct cairn_team *team, const char *crash_at,
                              struct cairn_error *err) {
    cairn_world_uploader_kill(&team->world, 0);
    return cairn_world_uploader_start(&team->world, 0, crash_at, err);
}

static enum cairn_code begin_patiently(struct cairn_team *team, uint64_t step,
                                       struct cairn_error *err) {
    enum cairn_code code;
    (void)AWAIT((code = team_begin(team, step, NULL, err)) != CAIRN_UPLOADER_GONE);
    return code;
}

/* ---- a real uploader ---- */

TEST(k01_streams_beyond_the_sessions_memory_outlive_the_uploader_at_each_point) { /* K01, Q43 */
#ifndef CAIRN_CRASHPOINTS
    SKIP("this build has no crash points");
#endif
    static const char *const points[] = {
        "uploader.send.journaled:1:kill", "uploader.part.answered:3:kill",
        "uploader.part.done:20:kill",     "uploader.seal.journaled:1:kill",
        "uploader.shards.told:1:kill",    "uploader.over.before_close:1:kill"};
    TEAM(1);
    for (uint64_t i = 0; i < CAIRN_COUNT(points); i++) {
        REQUIRE_OK(mortal(&team, points[i], &err));
        REQUIRE_OK(begin_patiently(&team, 1 + i, &err));
        REQUIRE_OK(write_streams(team.saves[0], 0, STREAMS, &err));
        REQUIRE_OK(cairn_save_raw(team.saves[0], "state", "in the slab", 11, &err));
        EXPECT_CODE(cairn_test_stage(team.saves[0], &err), CAIRN_OK);
        REQUIRE(AWAIT(cairn_daemon_ended(&team.world.uploaders[0], 0)));
        REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
        REQUIRE_OK(team_commit(&team, &err));
        AWAIT(held() == 0);
        expect_streams(&team, STREAMS);
    }
}

TEST(a_save_of_streams_alone_outlives_uploaders_that_die_while_it_is_written) {
    TEAM(1);
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    for (uint32_t i = 0; i < 8; i++) {
        REQUIRE_OK(write_streams(team.saves[0], i, i + 1, &err));
        if (i == 3) cairn_world_uploader_kill(&team.world, 0); /* those that follow meet none */
        if (i == 6) REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
    }
    AWAIT(held() == 8);
    EXPECT_CODE(cairn_test_stage(team.saves[0], &err), CAIRN_OK);
    REQUIRE_OK(team_commit(&team, &err));
    AWAIT(held() == 0);
    expect_streams(&team, 8);
}

TEST(v25_streams_of_several_saves_under_way_keep_their_bytes_when_the_uploader_is_killed) {
    enum { SAVES = 4 };
    TEAM(1);
    struct cairn_save *saves[SAVES] = {0};
    for (uint32_t round = 0; round < SAVES; round++) {
        struct cairn_error why = {0};
        enum cairn_code code;
        (void)AWAIT((code = cairn_save_begin(team.sessions[0], 1 + round, NULL, &saves[round],
                                             &why)) != CAIRN_UPLOADER_GONE);
        REQUIRE_OK(code);
        REQUIRE_OK(write_streams(saves[round], round, round + 5, &err));
        EXPECT_CODE(cairn_test_stage(saves[round], &err), CAIRN_OK);
        REQUIRE_OK(mortal(&team, NULL, &err));
    }
    for (uint32_t round = 0; round < SAVES; round++) {
        REQUIRE_OK(cairn_test_reach(saves[round], CAIRN_COMMITTED, &err));
        REQUIRE_OK(team_restore(&team, TEXT("%u", 1 + round), &err));
        for (uint32_t i = round; i < round + 5; i++) {
            CAIRN_AUTO_HEAP uint8_t *wanted = bytes_of(i), *found = malloc(size_of(i));
            const struct cairn_read read = SIZED(cairn_read, .tensor = TEXT("stream %u", i),
                                                 .into = found, .into_bytes = size_of(i));
            REQUIRE_OK(cairn_restore_read(team.restore, &read, 1, 0, &err));
            EXPECT(!memcmp(found, wanted, size_of(i)));
        }
        cairn_save_free(CAIRN_TAKE(saves[round]));
    }
    AWAIT(held() == 0);
}

/* ---- a scripted uploader ---- */

TEST(streams_are_sent_again_after_each_offer_until_the_save_is_durable) {
    RANK(1);
    BEGUN(save, 1);
    struct cairn_fake_message stream;
    REQUIRE_OK(write_streams(save, 1, 4, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "stream", 3, &stream));
    EXPECT_ALL_U64(stream.blob.size, 4, cairn_fake_uploader_count(rank.fake, "file"), 0);
    REQUIRE_OK(cairn_test_stage(save, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stream"), 3);
    cairn_fake_uploader_offer_state(rank.fake, "continues+sealed");
    for (size_t again = 1; again < 3; again++) {
        REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
        EXPECT(cairn_fake_uploader_saw(rank.fake, "stream", 3 + 3 * again, NULL));
    }
    cairn_fake_uploader_event(rank.fake,
                              json_pack("{s:s, s:I}", "t", "durable", "save", (json_int_t)1));
    REQUIRE_OK(cairn_test_reach(save, CAIRN_DURABLE, &err));
    AWAIT(held() == 0);
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "offer", 3, NULL));
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    REQUIRE_OK(cairn_test_reach(save, CAIRN_COMMITTED, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stream"), 9);
}

/* An uploader that found every shard in the store and the version committed has no use for the
 * bytes, and would refuse them; it asks the server, whose verdict follows. */
TEST(streams_of_a_save_that_is_over_are_not_sent_to_the_next_uploader) { /* Q43 */
    static const char *const states[] = {"ended", "durable"};
    for (size_t i = 0; i < CAIRN_COUNT(states); i++) {
        RANK(1);
        BEGUN(save, 1);
        struct cairn_checkpoint *list = NULL;
        size_t count = 0;
        REQUIRE_OK(write_streams(save, 1, 4, &err));
        REQUIRE_OK(cairn_test_stage(save, &err));
        cairn_fake_uploader_offer_state(rank.fake, states[i]);
        cairn_fake_uploader_script(rank.fake, "stream", "invalid");
        cairn_fake_uploader_down(rank.fake);
        REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
        enum cairn_code code; /* behind all that is sent again */
        (void)AWAIT((code = cairn_list(rank.session, &list, &count, &err)) != CAIRN_UPLOADER_GONE);
        REQUIRE_OK(code);
        cairn_list_free(list);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "offer"), 1);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stream"), 3);
        EXPECT_CODE(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_TIMEOUT);
        cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
        EXPECT_CODE(cairn_test_reach(save, CAIRN_COMMITTED, &err), CAIRN_OK);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "fail"), 0);
        AWAIT(held() == 0);
    }
}

TEST(streams_that_the_next_uploader_refuses_end_their_save_which_is_reported) {
    RANK(1);
    BEGUN(save, 1);
    struct cairn_fake_message fail;
    REQUIRE_OK(write_streams(save, 1, 3, &err));
    REQUIRE_OK(cairn_test_stage(save, &err));
    cairn_fake_uploader_offer_state(rank.fake, "continues+sealed");
    cairn_fake_uploader_script(rank.fake, "stream", "source-changed");
    REQUIRE_OK(cairn_fake_uploader_again(rank.fake, &err));
    REQUIRE(cairn_fake_uploader_saw(rank.fake, "fail", 1, &fail));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(fail.message, "code")), "source-changed");
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_SOURCE_CHANGED);
    AWAIT(held() == 0);
}

TEST(an_uploader_that_dies_at_a_stream_hears_it_again) {
    static const char *const states[] = {"continues", "unknown"};
    for (size_t i = 0; i < 2; i++) {
        RANK(1);
        BEGUN(save, 1);
        cairn_fake_uploader_offer_state(rank.fake, states[i]);
        cairn_fake_uploader_script(rank.fake, "stream", "drop");
        REQUIRE_OK(write_streams(save, 1, 3, &err));
        REQUIRE_OK(cairn_test_stage(save, &err));
        REQUIRE_OK(cairn_test_reach(save, CAIRN_STAGED, &err));
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "begin"), 1 + i);
        EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stream"), 3);
    }
}

TEST(a_link_that_ends_before_it_is_up_has_brought_no_stream) {
    RANK(1);
    BEGUN(save, 1);
    REQUIRE_OK(write_streams(save, 1, 3, &err));
    REQUIRE_OK(cairn_save_raw(save, "state", "in the slab", 11, &err));
    cairn_fake_uploader_offer_state(rank.fake, "continues");
    cairn_fake_uploader_down(rank.fake);
    EXPECT_STAGED_AWAY(save);
    cairn_fake_uploader_script(rank.fake, "stage", "drop"); /* behind the streams */
    REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
    REQUIRE_OK(cairn_test_reach(save, CAIRN_STAGED, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "offer"), 2);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stream"), 6);
}

TEST(an_older_uploader_gets_streams_as_files) {
    RANK_UPLOADER(1);
    cairn_fake_uploader_speaks(rank.fake, 8);
    RANK_OPENS();
    BEGUN(save, 1);
    REQUIRE_OK(write_streams(save, 1, 4, &err));
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "file"), 3);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stream"), 0);
    AWAIT(held() == 0);
    REQUIRE_OK(cairn_test_stage(save, &err));
}

TEST(streams_beyond_a_quarter_of_the_descriptors_are_given_away) {
    RANK(1);
    BEGUN(save, 1);
    struct rlimit before, few;
    REQUIRE(!getrlimit(RLIMIT_NOFILE, &before));
    few = before;
    few.rlim_cur = 64;
    REQUIRE(!setrlimit(RLIMIT_NOFILE, &few));
    enum cairn_code code = write_streams(save, 1, 21, &err);
    REQUIRE(!setrlimit(RLIMIT_NOFILE, &before));
    REQUIRE_OK(code);
    AWAIT(held() == 16);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "stream"), 16);
    EXPECT_EQ_U64(cairn_fake_uploader_count(rank.fake, "file"), 4);
}

static void *write_slowly(void *owner) {
    struct cairn_error err = {0};
    return write_streams(owner, 10, 20, &err) ? NULL : owner;
}

/* Two handles in two threads, while the session's thread offers. */
TEST(streams_are_written_in_one_thread_while_another_saves_and_uploaders_come_and_go) {
    RANK(2);
    BEGUN(first, 1);
    BEGUN(second, 2);
    pthread_t thread;
    void *done = NULL;
    cairn_fake_uploader_offer_state(rank.fake, "continues");
    REQUIRE(!pthread_create(&thread, NULL, write_slowly, second));
    for (uint32_t i = 1; i < 6; i++) {
        EXPECT_CODE(write_streams(first, i, i + 1, &err), CAIRN_OK);
        cairn_fake_uploader_down(rank.fake);
        EXPECT_CODE(cairn_fake_uploader_up(rank.fake, &err), CAIRN_OK);
    }
    EXPECT(!pthread_join(thread, &done) && done);
    AWAIT(held() == 15);
}

TEST(a_session_that_is_closed_closes_the_streams_of_its_saves) {
    RANK(2);
    BEGUN(save, 1);
    BEGUN(other, 2);
    REQUIRE_OK(write_streams(save, 1, 4, &err));
    AWAIT(held() == 3);
    REQUIRE_OK(cairn_save_cancel(save, "no more", &err));
    AWAIT(held() == 0);
    REQUIRE_OK(write_streams(other, 1, 4, &err));
    cairn_rank_leave(&rank);
    AWAIT(held() == 0);
}
