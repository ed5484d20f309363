/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* Descriptors of saves: what makes them readable, over a scripted uploader and over a real one. */
#include <dirent.h>
#include <sys/epoll.h>

#include "tests/client/rank.h"
#include "tests/client/team.h"

#define LONG_MS (int)HANG_MS
#define SOON_MS 200 /* what must not come has time to */

static bool readable(int fd, int timeout_ms) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    return poll(&wanted, 1, timeout_ms) == 1 && wanted.revents == POLLIN;
}

static size_t descriptors(void) {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

/* As a loop of events does it: poll the descriptor, look, until it is something else than "not
 * yet". */
static enum cairn_code follow(struct cairn_save *save, enum cairn_milestone milestone,
                              struct cairn_error *err) {
    enum cairn_code code;
    do code = cairn_save_poll(save, milestone, err);
    while ((code == CAIRN_TIMEOUT || code == CAIRN_UPLOADER_GONE) &&
           readable(cairn_save_fd(save), LONG_MS));
    return code;
}

/* ---- a scripted uploader ---- */

static json_t *about(const char *name) {
    return json_pack("{s:s, s:i}", "t", name, "save", 1);
}

TEST(each_milestone_makes_it_readable_until_it_was_looked_at) { /* client/save/save.h#1 */
    RANK(1);
    BEGUN(save, 1);
    int fd = cairn_save_fd(save);
    REQUIRE(fd >= 0);
    EXPECT(!readable(fd, 0));
    EXPECT_FAILS(cairn_save_poll(save, CAIRN_STAGED, &err), CAIRN_TIMEOUT,
                 "llm/7b step 1 rank 3: not staged yet");
    REQUIRE_OK(cairn_save_raw(save, "state.bin", "bytes", 5, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
    EXPECT(readable(fd, 0));
    EXPECT(readable(fd, 0)); /* the level, not the edge */
    EXPECT_CODE(cairn_save_poll(save, CAIRN_STAGED, &err), CAIRN_OK);
    EXPECT(!readable(fd, 0));
    cairn_fake_uploader_event(rank.fake, about("partnered"));
    EXPECT(readable(fd, LONG_MS));
    EXPECT_CODE(cairn_save_poll(save, CAIRN_PARTNERED, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_DURABLE, &err), CAIRN_TIMEOUT);
    EXPECT(!readable(fd, 0));
    cairn_fake_uploader_event(rank.fake, about("durable"));
    EXPECT(readable(fd, LONG_MS));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_DURABLE, 0, &err), CAIRN_OK);
    EXPECT(readable(fd, 0)); /* it is cairn_save_poll that looks */
    EXPECT_FAILS(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_TIMEOUT, "not committed yet");
    EXPECT(!readable(fd, SOON_MS));
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT(readable(fd, LONG_MS));
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_OK);
    EXPECT(readable(fd, 0)); /* for good */
    EXPECT_EQ_U64((uint64_t)cairn_save_fd(save), (uint64_t)fd);
    EXPECT_CODE(cairn_save_poll(save, (enum cairn_milestone)9, &err), CAIRN_INVALID);
}

TEST(what_happened_before_it_is_asked_for_makes_it_readable_at_once) { /* client/save/save.h#1 */
    RANK(2);
    struct cairn_save *save = NULL;
    REQUIRE_OK(rank_save(rank.session, 1, &save, &err));
    int fd = cairn_save_fd(save);
    EXPECT(readable(fd, 0));
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_TIMEOUT);
    EXPECT(!readable(fd, 0));
    cairn_save_free(save);
    save = NULL;
    REQUIRE_OK(rank_save(rank.session, 2, &save, &err));
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_TIMEOUT);
    EXPECT(!readable(cairn_save_fd(save), 0)); /* it was looked at */
    cairn_save_free(save);
}

TEST(a_failure_makes_it_readable_for_good_and_poll_says_which) {
    RANK(1);
    SAVED(save, 1);
    int fd = cairn_save_fd(save);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_STAGED, &err), CAIRN_OK);
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "aborted", "no-space"));
    EXPECT(readable(fd, LONG_MS));
    for (int i = 0; i < 2; i++) {
        EXPECT_FAILS(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_NO_SPACE,
                     "the server says so");
        EXPECT(readable(fd, 0));
    }
    EXPECT_CODE(cairn_save_poll(save, CAIRN_STAGED, &err), CAIRN_OK); /* that was reached */
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK); /* it was returned */
}

static void *cancel(void *save) {
    (void)COMES(cairn_test_thread_sleeps(getpid())); /* the main thread waits */
    (void)cairn_save_cancel(save, "no longer wanted", NULL);
    return NULL;
}

TEST(a_cancel_by_another_thread_makes_it_readable_and_a_commit_that_wins_is_found) { /* Q40 */
    RANK(1);
    pthread_t thread;
    SAVED(save, 1);
    int fd = cairn_save_fd(save);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_STAGED, &err), CAIRN_OK);
    cairn_fake_uploader_script(rank.fake, "fail", "late"); /* it is not decided yet */
    REQUIRE(!pthread_create(&thread, NULL, cancel, save));
    EXPECT(readable(fd, LONG_MS));
    EXPECT_FAILS(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_CANCELLED, "no longer wanted");
    pthread_join(thread, NULL);
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    enum cairn_code code = CAIRN_CANCELLED;
    (void)AWAIT((code = cairn_save_poll(save, CAIRN_COMMITTED, &err)) != CAIRN_CANCELLED);
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT(readable(fd, 0));
}

TEST(a_save_has_no_descriptor_before_it_is_asked_for_and_none_after_it_is_freed) { /* save.h#5 */
    RANK(2);
    struct cairn_save *save = NULL;
    struct cairn_save *other = NULL;
    REQUIRE_OK(rank_save(rank.session, 1, &other, &err));
    size_t before = descriptors();
    REQUIRE_OK(rank_save(rank.session, 2, &save, &err));
    EXPECT_CODE(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_TIMEOUT);
    EXPECT_EQ_U64(descriptors(), before);
    int fd = cairn_save_fd(save);
    EXPECT_ALL_U64((uint64_t)cairn_save_fd(save), (uint64_t)fd, descriptors(), before + 1);
    cairn_save_free(save); /* the save itself goes on */
    EXPECT_ALL_U64(descriptors(), before, cairn_fake_uploader_count(rank.fake, "fail"), 0);
    EXPECT(cairn_save_fd(other) >= 0);
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT_CODE(follow(other, CAIRN_COMMITTED, &err), CAIRN_OK);
    cairn_save_free(other);
    EXPECT_EQ_U64(descriptors(), before);
}

static void be_child(void *argument) {
    struct cairn_save *save = argument;
    if (cairn_save_fd(save) != -1) _exit(1);
    if (cairn_save_poll(save, CAIRN_STAGED, NULL) != CAIRN_INVALID) _exit(2);
    cairn_save_free(save);
}

TEST(a_forked_child_and_a_closed_session_are_refused_and_the_descriptor_stays) {
    RANK(1);
    struct cairn_save *save = NULL;
    REQUIRE_OK(rank_save(rank.session, 1, &save, &err));
    int fd = cairn_save_fd(save);
    EXPECT_CODE(cairn_save_poll(save, CAIRN_STAGED, &err), CAIRN_OK);
    EXPECT_EQ_U64((uint64_t)cairn_test_in_child(be_child, save, NULL, 0), 0);
    EXPECT(!readable(fd, 0)); /* the child has not touched it */
    EXPECT_CODE(cairn_close(rank.session, &err), CAIRN_OK);
    rank.session = NULL;
    for (int i = 0; i < 2; i++) {
        EXPECT(readable(fd, 0));
        EXPECT_CODE(cairn_save_poll(save, CAIRN_STAGED, &err), CAIRN_INVALID);
        EXPECT_EQ_U64((uint64_t)cairn_save_fd(save), (uint64_t)-1);
    }
    cairn_save_free(save);
    EXPECT(fcntl(fd, F_GETFD) < 0); /* closed */
    EXPECT_EQ_U64((uint64_t)cairn_save_fd(NULL), (uint64_t)-1);
    EXPECT_CODE(cairn_save_poll(NULL, CAIRN_STAGED, &err), CAIRN_INVALID);
}

/* ---- a real one ---- */

static enum cairn_code stage(struct cairn_save *save, struct cairn_error *err) {
    static const uint8_t bytes[64 * CAIRN_KIB] = {7};
    CAIRN_TRY(cairn_save_raw(save, "state.bin", bytes, sizeof bytes, err));
    return cairn_save_stage(save, err);
}

TEST(a_loop_of_events_follows_a_save_to_its_commit) {
    TEAM(2);
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    int fd = cairn_save_fd(team.saves[0]);
    EXPECT(!readable(fd, 0));
    REQUIRE_OK(stage(team.saves[0], &err));
    EXPECT(readable(fd, 0));
    EXPECT_CODE(follow(team.saves[0], CAIRN_DURABLE, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_poll(team.saves[0], CAIRN_COMMITTED, &err), CAIRN_TIMEOUT);
    EXPECT(!readable(fd, SOON_MS)); /* the other rank has staged nothing */
    REQUIRE_OK(stage(team.saves[1], &err));
    EXPECT(readable(fd, LONG_MS));
    EXPECT_CODE(cairn_save_poll(team.saves[0], CAIRN_COMMITTED, &err), CAIRN_OK);
    EXPECT_CODE(follow(team.saves[1], CAIRN_COMMITTED, &err), CAIRN_OK);
    EXPECT_CODE(follow(team.saves[1], CAIRN_PARTNERED, &err), CAIRN_OK); /* with the commit */
}

TEST(a_rank_that_gives_up_makes_the_others_readable) {
    TEAM(2);
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    REQUIRE_OK(stage(team.saves[0], &err));
    EXPECT_CODE(follow(team.saves[0], CAIRN_DURABLE, &err), CAIRN_OK);
    REQUIRE_OK(cairn_save_fail(team.saves[1], "its loss is not a number", &err));
    EXPECT_FAILS(follow(team.saves[0], CAIRN_COMMITTED, &err), CAIRN_ABORTED,
                 "its loss is not a number");
    EXPECT(readable(cairn_save_fd(team.saves[0]), 0));
    EXPECT_CODE(cairn_save_poll(team.saves[1], CAIRN_COMMITTED, &err), CAIRN_CANCELLED);
    EXPECT(readable(cairn_save_fd(team.saves[1]), 0));
}

TEST(an_uploader_that_is_killed_and_comes_back_makes_it_readable_each_time) { /* Q40 */
    TEAM(2);
    REQUIRE_OK(team_begin(&team, 1, NULL, &err));
    struct cairn_save *save = team.saves[0];
    REQUIRE_OK(stage(save, &err));
    EXPECT_CODE(follow(save, CAIRN_DURABLE, &err), CAIRN_OK);
    int fd = cairn_save_fd(save);
    EXPECT(!readable(fd, SOON_MS));
    cairn_world_uploader_kill(&team.world, 0); /* by SIGKILL */
    EXPECT(readable(fd, LONG_MS));
    EXPECT_FAILS(cairn_save_poll(save, CAIRN_COMMITTED, &err), CAIRN_UPLOADER_GONE,
                 "is away since");
    EXPECT_CODE(cairn_save_poll(save, CAIRN_DURABLE, &err), CAIRN_OK);
    EXPECT(!readable(fd, SOON_MS));
    REQUIRE_OK(cairn_world_uploader_start(&team.world, 0, NULL, &err));
    EXPECT(readable(fd, LONG_MS));
    EXPECT_CODE(stage(team.saves[1], &err), CAIRN_OK); /* its link may come back later */
    EXPECT_CODE(follow(save, CAIRN_COMMITTED, &err), CAIRN_OK);
    EXPECT_CODE(follow(team.saves[1], CAIRN_COMMITTED, &err), CAIRN_OK);
}

#define STEPS 24

struct loop {
    int fd;
    struct cairn_save *saves[2][STEPS];
    size_t durable, committed;
};

static bool add(struct loop *loop, struct cairn_save **save) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = save};
    return !epoll_ctl(loop->fd, EPOLL_CTL_ADD, cairn_save_fd(*save), &event);
}

/* One round of the loop; false: nothing came, or a save has failed. Those of rank 0 leave it when
 * they are durable until the second half, `whole`. */
static bool turn(struct loop *loop, bool whole, struct cairn_error *err) {
    struct epoll_event events[8];
    int count = epoll_wait(loop->fd, events, 8, LONG_MS);
    for (int i = 0; i < count; i++) {
        struct cairn_save **at = events[i].data.ptr;
        enum cairn_milestone milestone = whole ? CAIRN_COMMITTED : CAIRN_DURABLE;
        enum cairn_code code = cairn_save_poll(*at, milestone, err);
        if (code == CAIRN_TIMEOUT) continue;
        if (code) return false;
        epoll_ctl(loop->fd, EPOLL_CTL_DEL, cairn_save_fd(*at), NULL);
        (*(whole ? &loop->committed : &loop->durable))++;
    }
    return count > 0;
}

static enum cairn_code save_all(struct cairn_team *team, struct loop *loop, uint32_t rank,
                                struct cairn_error *err) {
    for (uint64_t i = 0; i < STEPS; i++) {
        struct cairn_save **save = &loop->saves[rank][i];
        CAIRN_TRY(cairn_save_begin(team->sessions[rank], i, NULL, save, err));
        if (!add(loop, save)) return cairn_fail_errno(err, "add a save to the loop");
        CAIRN_TRY(stage(*save, err));
    }
    return CAIRN_OK;
}

TEST(one_epoll_hears_of_many_saves_under_way) {
    TEAM(2);
    struct loop loop = {.fd = epoll_create1(EPOLL_CLOEXEC)};
    REQUIRE(loop.fd >= 0);
    REQUIRE_OK(save_all(&team, &loop, 0, &err));
    while (loop.durable < STEPS && turn(&loop, false, &err)) continue;
    EXPECT_EQ_U64(loop.durable, STEPS); /* all of them wait for rank 1 */
    for (size_t i = 0; i < STEPS; i++) EXPECT(add(&loop, &loop.saves[0][i]));
    EXPECT_EQ_U64((uint64_t)epoll_wait(loop.fd, &(struct epoll_event){0}, 1, SOON_MS), 0);
    EXPECT_CODE(save_all(&team, &loop, 1, &err), CAIRN_OK);
    while (loop.committed < 2 * STEPS && turn(&loop, true, &err)) continue;
    EXPECT_EQ_U64(loop.committed, 2 * STEPS);
    for (size_t i = 0; i < STEPS; i++)
        for (int rank = 0; rank < 2; rank++) cairn_save_free(loop.saves[rank][i]);
    close(loop.fd);
}

/* ---- is it over? ---- */

static enum cairn_code code_of(struct cairn_save *save, bool over) {
    enum cairn_code code = CAIRN_INTERNAL;
    EXPECT((cairn_save_over(save, &code) != 0) == over);
    return code;
}

TEST(a_save_is_over_when_it_is_committed_or_has_failed_and_not_before) {
    RANK(2);
    BEGUN(save, 1);
    EXPECT_CODE(code_of(save, false), CAIRN_TIMEOUT);
    REQUIRE_OK(cairn_save_raw(save, "state.bin", "bytes", 5, &err));
    REQUIRE_OK(cairn_save_stage(save, &err));
    EXPECT_CODE(code_of(save, false), CAIRN_TIMEOUT);
    cairn_fake_uploader_down(rank.fake);
    AWAIT(cairn_save_poll(save, CAIRN_COMMITTED, &err) == CAIRN_UPLOADER_GONE);
    EXPECT_CODE(code_of(save, false), CAIRN_UPLOADER_GONE);
    REQUIRE_OK(cairn_fake_uploader_up(rank.fake, &err));
    AWAIT(code_of(save, false) == CAIRN_TIMEOUT); /* the session has met the next one */
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    AWAIT(cairn_save_over(save, NULL));
    EXPECT_CODE(code_of(save, true), CAIRN_OK);
    BEGUN(other, 2);
    EXPECT_CODE(cairn_save_cancel(other, "enough", &err), CAIRN_OK);
    EXPECT_CODE(code_of(other, true), CAIRN_CANCELLED);
}
