/* SPDX-License-Identifier: Apache-2.0 */
/* A rank whose process ends, alone on its node: the uploader reports it until the server has taken
 * it, and nothing stays open for it (Q56, V41). Rank 1 is of another node, played by requests. */
#include <sys/pidfd.h>

#include "tests/uploader/other.h"
#include "tests/uploader/trainer.h"
#include "uploader/saves/ranks.h"

static const struct trainer_options *opened(struct cairn_up_world *world, uint32_t rank) {
    static struct trainer_options options;
    options = (struct trainer_options){
        .socket = world->socket_path, .job = "job-1", .world_size = 2, .rank = rank};
    return &options;
}

/* ---- rank 0: a process of its own, which does what it is told by a byte ---- */

struct child {
    pid_t pid;
    int told, says;
};

/* 's' saves step 1, 'b' says bye, 'o' opens again; each is answered by a byte. */
static void live(const struct trainer_options *options, int told, int says) {
    struct cairn_trainer trainer = {0};
    struct trainer_save save;
    bool good = trainer_open(&trainer, options);
    for (char byte = 0; good && write(says, &byte, 1) == 1 && read(told, &byte, 1) == 1;) {
        if (byte == 's') good = trainer_save(&trainer, 1, 0, 1, 1000, &save);
        if (byte == 'b') good = trainer_bye(&trainer);
        if (byte == 'o') good = trainer_offer(&trainer, NULL, 0, false, NULL);
    }
    _exit(good ? 0 : 1);
}

static bool tell(struct child *child, char what) {
    char byte = 0;
    return write(child->told, &what, 1) == 1 && read(child->says, &byte, 1) == 1;
}

static bool child_start(struct child *child, const struct trainer_options *options) {
    int told[2], says[2];
    char byte = 0;
    if (pipe(told) || pipe(says)) return false;
    child->pid = fork();
    if (child->pid == 0) {
        close(told[1]);
        close(says[0]);
        live(options, told[0], says[1]);
    }
    close(told[0]);
    close(says[1]);
    child->told = told[1];
    child->says = says[0];
    return child->pid > 0 && read(child->says, &byte, 1) == 1;
}

static void child_end(struct child *child) {
    if (child->pid > 0) {
        kill(child->pid, SIGKILL);
        waitpid(child->pid, NULL, 0);
        close(child->told);
        close(child->says);
    }
    child->pid = 0;
}

static void expect_ended(struct cairn_up_world *world, const char *version) {
    world_expect_aborted(world, version, "rank 0 has ended", "node n1");
}

static uint64_t entries_after_stop(struct cairn_up_world *world) {
    EXPECT_EQ_U64(world_uploader_stop(world), 0);
    return world_open_entries(world);
}

/* ---- the tests ---- */

TEST(v41_a_rank_that_ends_alone_on_its_node_leaves_nothing_open) { /* Q56, P9 */
    WORLD();
    struct child child = {0};
    struct world_other other;
    char begun[48], later[48];
    REQUIRE(child_start(&child, opened(&world, 0)));
    REQUIRE(world_other_open(&world, &other));
    REQUIRE(world_other_begin(&other, 1, begun));
    EXPECT(world_stays_open(&world, begun));
    child_end(&child);
    expect_ended(&world, begun);
    REQUIRE(world_other_begin(&other, 2, later));
    expect_ended(&world, later);
    EXPECT_EQ_U64(entries_after_stop(&world), 0);
}

TEST(v41_an_end_is_reported_although_server_and_uploader_were_away_when_it_came) { /* Q56 */
    WORLD();
    struct child child = {0};
    struct world_other other;
    char begun[48];
    REQUIRE(child_start(&child, opened(&world, 0)));
    REQUIRE(world_other_open(&world, &other));
    REQUIRE(world_other_begin(&other, 1, begun));
    world_server_kill(&world);
    child_end(&child);
    REQUIRE_AWAIT(cairn_daemon_logged(&world.uploader, "session.lost")); /* nobody can be told */
    REQUIRE(world_uploader_restart(&world));
    REQUIRE(world_server_start(&world));
    expect_ended(&world, begun);
    EXPECT_EQ_U64(entries_after_stop(&world), 0);
}

TEST(v41_a_rank_that_ends_while_its_uploader_is_away_is_found_by_the_next_one) { /* Q56 */
    WORLD_WITH(.uploader_args = ARGS("--offer-wait=300ms"));
    struct child child = {0};
    struct world_other other;
    char begun[48];
    REQUIRE(child_start(&child, opened(&world, 0)));
    REQUIRE(world_other_open(&world, &other));
    REQUIRE(world_other_begin(&other, 1, begun));
    /* One that lives is not taken for dead, however long it stays away. */
    REQUIRE(world_uploader_restart(&world));
    EXPECT(world_stays_open(&world, begun));
    world_uploader_kill(&world);
    child_end(&child);
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    expect_ended(&world, begun);
    EXPECT_EQ_U64(entries_after_stop(&world), 0);
}

TEST(v41_a_rank_that_said_bye_is_watched_until_its_process_ends) { /* Q56 */
    WORLD();
    struct child child = {0};
    struct world_other other;
    char begun[48];
    REQUIRE(child_start(&child, opened(&world, 0)));
    REQUIRE(world_other_open(&world, &other));
    REQUIRE(tell(&child, 'b'));
    REQUIRE(world_other_begin(&other, 1, begun));
    EXPECT(world_stays_open(&world, begun)); /* it may come again */
    REQUIRE(tell(&child, 'o'));
    EXPECT(world_stays_open(&world, begun));
    REQUIRE(tell(&child, 'b'));
    REQUIRE(world_uploader_restart(&world));
    EXPECT(world_stays_open(&world, begun));
    child_end(&child);
    expect_ended(&world, begun);
    EXPECT_EQ_U64(entries_after_stop(&world), 0);
}

TEST(v38_a_process_that_ended_after_its_bye_keeps_strangers_out_too) { /* Q54 */
    WORLD();
    struct child child = {0};
    struct world_other stranger;
    REQUIRE(child_start(&child, opened(&world, 0)));
    REQUIRE(tell(&child, 'b'));
    child_end(&child);
    REQUIRE_AWAIT(cairn_daemon_logged(&world.uploader, "session.over"));
    REQUIRE(world_await_heartbeats(&world, 3)); /* it is reported */
    EXPECT(!world_other_open(&world, &stranger));
    EXPECT_EQ_U64(world.err.code, CAIRN_JOB_REUSED);
}

/* Some heartbeats pass between the begin's answer and the seal, which say nothing of the end. */
TEST(what_an_ended_rank_had_staged_is_told_before_its_end_and_is_committed) { /* Q3, Q16, Q56 */
    NEEDS_POINTS();
    WORLD_WITH(.uploader_args = ARGS("--heartbeat=100ms"),
               .crash_at = "uploader.begin.told:1:delay=1000");
    CAIRN_AUTO(trainer) trainer = {0};
    struct child child = {0};
    REQUIRE(child_start(&child, opened(&world, 0)));
    REQUIRE(trainer_open(&trainer, opened(&world, 1)));
    world_server_kill(&world);
    REQUIRE(tell(&child, 's'));
    child_end(&child);
    SAVE(one, &trainer, 1, 0, 1, 1000);
    REQUIRE_AWAIT(cairn_daemon_logged(&world.uploader, "session.lost"));
    REQUIRE(world_server_start(&world));
    EXPECT_VERDICT(&trainer, one.number, "committed");
    BEGUN(two, &trainer, 2, 1);
    EXPECT_VERDICT(&trainer, two.number, "aborted");
}

TEST(a_bye_lets_go_of_the_run_although_its_process_lives) { /* Q7 */
    WORLD();
    struct child child = {0};
    REQUIRE(child_start(&child, opened(&world, 0)));
    REQUIRE(tell(&child, 'b'));
    CAIRN_AUTO_JSON json_t *reply =
        world_post(&world, OTHER_RUN "/attempts",
                   json_pack("{s:s, s:i, s:s, s:i, s:i, s:[{s:i, s:s}], s:s}", "job", "put",
                             "world_size", 1, "resume", "keep", "after", 1, "wait_staged_ms", 2000,
                             "ranks", "rank", 0, "proc", "put", "node", "n2"));
    EXPECT(reply != NULL);
    child_end(&child);
}

static bool is_readable(int fd) {
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    return poll(&ended, 1, 0) > 0;
}

TEST(a_process_is_watched_by_what_the_kernel_says_else_by_its_own_descriptor) {
    int other[2];
    pid_t pid = fork();
    if (pid == 0)
        for (;;) pause();
    REQUIRE(pid > 0 && pipe(other) == 0);
    struct cairn_up_process_names names[] = {
        {pidfd_open(pid, 0), 0, pidfd_open(getpid(), 0)}, /* another one's, of its own account */
        {-1, pid, -1},
        {-1, 0, pidfd_open(pid, 0)}, /* of another namespace, and before Linux 6.5 */
        {-1, 0, dup(other[0])},      /* no process: it would be taken for one that ended */
        {-1, 0, -1},
    };
    int watched[CAIRN_COUNT(names)];
    for (size_t i = 0; i < CAIRN_COUNT(names); i++) {
        watched[i] = cairn_up_process_watch(&names[i]);
        EXPECT(names[i].peer == -1 && names[i].told == -1);
        EXPECT(i < 3 ? watched[i] >= 0 && !is_readable(watched[i]) : watched[i] == -1);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (size_t i = 0; i < 3; i++) EXPECT(is_readable(watched[i]) && close(watched[i]) == 0);
    EXPECT(close(other[0]) == 0 && close(other[1]) == 0);
}

TEST(a_process_is_told_apart_from_others_with_its_number) {
    char name[CAIRN_UP_PROCESS_BYTES], other[2 * CAIRN_UP_PROCESS_BYTES];
    int process = -1;
    pid_t pid = fork();
    if (pid == 0)
        for (;;) pause();
    REQUIRE(pid > 0);
    cairn_up_process_name(pid, name);
    EXPECT_EQ_U64(cairn_up_process_find(name, &process), CAIRN_UP_PROCESS_LIVES);
    EXPECT(process >= 0);
    close(process);
    snprintf(other, sizeof(other), "%s0", name); /* started later: the number is used again */
    EXPECT_EQ_U64(cairn_up_process_find(other, &process), CAIRN_UP_PROCESS_ENDED);
    snprintf(other, sizeof(other), "%s", name);
    other[0] = other[0] == 'a' ? 'b' : 'a'; /* of another boot */
    EXPECT_EQ_U64(cairn_up_process_find(other, &process), CAIRN_UP_PROCESS_ENDED);
    snprintf(other, sizeof(other), "%.36s 1%s", name, name + 37); /* numbers of another container */
    EXPECT_EQ_U64(cairn_up_process_find(other, &process), CAIRN_UP_PROCESS_UNSEEN);
    EXPECT_EQ_U64(cairn_up_process_find("", &process), CAIRN_UP_PROCESS_UNSEEN);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    EXPECT_EQ_U64(cairn_up_process_find(name, &process), CAIRN_UP_PROCESS_ENDED);
    EXPECT_EQ_U64(process, -1);
}
