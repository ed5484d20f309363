/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that open while the memory that they need is still another's: who waits, for how much, and
 * who comes first (Q13). */
#include "tests/uploader/restored.h"

#define RANKS 56 /* more than the uploader has helper threads */

static struct trainer_options options_of(const struct cairn_up_world *world, const char *job) {
    return (struct trainer_options){.socket = world->socket_path,
                                    .job = job,
                                    .world_size = RANKS,
                                    .local_world_size = RANKS,
                                    .bytes = 2 * CAIRN_MIB,
                                    .slabs_wait_ms = 2 * HANG_MS};
}

/* What the children say, a byte each time: 'a' has asked for memory, 'g' was given some. They hold
 * it until the other pipe is closed: the others want theirs meanwhile. */
struct words {
    int says[2], over[2];
};

static pid_t open_in_child(const struct cairn_up_world *world, const char *job, uint32_t rank,
                           int not_its_own, const struct words *words) {
    pid_t pid = fork();
    if (pid) return pid;
    close(not_its_own);
    close(words->over[1]);
    struct cairn_trainer trainer = {0};
    struct trainer_options options = options_of(world, job);
    options.rank = rank;
    options.no_slabs = true;
    char end;
    bool asked = trainer_open(&trainer, &options) &&
                 trainer_request_slabs(&trainer, options.slabs_wait_ms) &&
                 write(words->says[1], "a", 1) == 1;
    bool given = asked && trainer_take_slabs(&trainer);
    if (write(words->says[1], given ? "g" : "-", 1) == 1) (void)!read(words->over[0], &end, 1);
    _exit(given ? 0 : 1);
}

/* That many more words, whatever they are; `given` counts the "g" among them. */
static bool await_words(const struct words *words, unsigned count, unsigned *given) {
    for (char word; count; count--) {
        struct pollfd says = {.fd = words->says[0], .events = POLLIN};
        if (poll(&says, 1, (int)cairn_test_hang_ms()) != 1 || read(words->says[0], &word, 1) != 1)
            return false;
        *given += word == 'g';
    }
    return true;
}

static void end_children(const pid_t *children, uint32_t count, uint32_t *ret_failed) {
    for (uint32_t i = 0; i < count; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) (*ret_failed)++;
    }
}

/* The older attempt holds most of the budget until its trainer goes; then its pages are given back
 * by a helper while everybody waits. */
TEST(g_56_ranks_that_wait_get_the_memory_that_an_older_attempt_gives_back) { /* Q13 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) old = {0};
    pid_t children[RANKS];
    struct words words;
    uint32_t failed = 0, given = 0;
    REQUIRE(pipe2(words.says, O_CLOEXEC) == 0 && pipe2(words.over, O_CLOEXEC) == 0);
    REQUIRE(world_open(&world,
                       &(struct world_options){.uploader_args = ARGS("--memory-budget=512MiB")}));
    struct trainer_options options = options_of(&world, "job-1");
    options.world_size = options.local_world_size = 1;
    options.bytes = 230 * CAIRN_MIB; /* without these there is not enough for one generation each */
    REQUIRE(trainer_open(&old, &options));
    EXPECT_EQ_U64(old.slab_count, 2);
    for (uint32_t i = 0; i < RANKS; i++)
        children[i] = open_in_child(&world, "job-2", i, old.fd, &words);
    REQUIRE(await_words(&words, RANKS, &given)); /* each has asked */
    trainer_hang_up(&old);
    REQUIRE(await_words(&words, RANKS, &given));
    EXPECT_EQ_U64(given, RANKS);
    close(words.over[1]);
    end_children(children, RANKS, &failed);
    EXPECT_EQ_U64(failed, 0);
}

/* ---- memory that is on its way back ---- */

#define MIB(n) ((n)*CAIRN_MIB)
#define PATIENT_MS (2 * HANG_MS) /* a test does not see its end */

static struct trainer_options rank_of(const struct cairn_up_world *world, const char *run,
                                      uint64_t bytes) {
    return (struct trainer_options){
        .socket = world->socket_path, .run = run, .job = "job-1", .bytes = bytes};
}

/* 96 MiB for slabs: the buffers for files take 4. */
static const char *const budget_of_100[] = {"--memory-budget=100MiB", NULL};

/* A store that takes nothing until it is let go. */
static bool open_world_with_a_store_to_hold(struct cairn_up_world *world) {
    return world_open(world,
                      &(struct world_options){.s3_rules = "", .uploader_args = budget_of_100});
}

static void hold_store(struct cairn_up_world *world) {
    kill(world->s3.pid, SIGSTOP);
}

static void let_store_go(struct cairn_up_world *world) {
    kill(world->s3.pid, SIGCONT);
}

/* Opens an attempt, for which the server needs the store, and asks for no memory yet. */
static bool enter(struct cairn_trainer *trainer, const struct trainer_options *options) {
    struct trainer_options opening = *options;
    opening.no_slabs = true;
    return trainer_open(trainer, &opening);
}

/* What the uploader has to give, by a connection that asks just this. */
static uint64_t free_bytes(const struct cairn_up_world *world) {
    CAIRN_AUTO(trainer) eye = {0};
    if (cairn_net_connect_unix(world->socket_path, &eye.fd, &eye.err) != CAIRN_OK) return 0;
    CAIRN_AUTO_JSON json_t *report = trainer_call(&eye, json_pack("{s:s}", "t", "status"));
    return (uint64_t)json_integer_value(json_object_get(report, "budget_free_bytes"));
}

/* A trainer that saves into a store that is held, and goes: one of its generations is still to be
 * sent, the other is given back at once. */
static bool leave_a_save_behind(struct cairn_up_world *world, struct cairn_trainer *gone) {
    struct trainer_save save;
    hold_store(world);
    if (!trainer_save(gone, 1, 0, 1, 100000, &save)) return false;
    uint64_t before = free_bytes(world);
    trainer_hang_up(gone);
    return AWAIT(free_bytes(world) > before); /* a helper has released the other one */
}

/* Asked, and nobody has answered yet. */
static bool waits(struct cairn_trainer *trainer, uint32_t wait_ms) {
    if (!trainer_request_slabs(trainer, wait_ms)) return false;
    struct pollfd answer = {.fd = trainer->fd, .events = POLLIN};
    return poll(&answer, 1, 300) == 0;
}

/* Refused, and not at the end of its patience. */
static bool is_refused_at_once(struct cairn_trainer *trainer) {
    if (!trainer_request_slabs(trainer, PATIENT_MS) || trainer_take_slabs(trainer)) return false;
    return trainer->err.code == CAIRN_NO_MEMORY;
}

TEST(g_a_new_rank_waits_for_memory_whose_bytes_are_still_being_sent_for_another_run) { /* Q13 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) gone = {0}, young = {0};
    REQUIRE(open_world_with_a_store_to_hold(&world));
    struct trainer_options old = rank_of(&world, "llm/gone", MIB(40));
    struct trainer_options options = rank_of(&world, "llm/young", MIB(60));
    REQUIRE(trainer_open(&gone, &old) && enter(&young, &options));
    REQUIRE(leave_a_save_behind(&world, &gone));
    EXPECT(waits(&young, PATIENT_MS)); /* 56 MiB are free */
    let_store_go(&world);
    EXPECT(trainer_take_slabs(&young));
    EXPECT_EQ_U64(young.slab_count, 1);
}

TEST(g_a_rank_for_which_too_little_comes_back_is_refused_at_once) { /* Q13 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) alive = {0}, gone = {0}, young = {0};
    REQUIRE(open_world_with_a_store_to_hold(&world));
    struct trainer_options living = rank_of(&world, "llm/alive", MIB(20));
    struct trainer_options old = rank_of(&world, "llm/gone", MIB(20));
    struct trainer_options options = rank_of(&world, "llm/young", MIB(60));
    REQUIRE(trainer_open(&alive, &living)); /* 40 MiB for as long as it lives */
    REQUIRE(trainer_open(&gone, &old) && enter(&young, &options));
    REQUIRE(leave_a_save_behind(&world, &gone));
    EXPECT(is_refused_at_once(&young)); /* 36 MiB are free, 20 come back */
    EXPECT(strstr(young.err.message, "37748736 are free") != NULL);
    let_store_go(&world);
}

TEST(g_a_rank_that_needs_more_than_the_budget_does_not_wait_for_an_older_attempt) { /* Q13 */
    WORLD_WITH(.uploader_args = budget_of_100);
    CAIRN_AUTO(trainer) old = {0}, young = {0};
    struct trainer_options older = rank_of(&world, "llm/seven", MIB(20));
    struct trainer_options newer = rank_of(&world, "llm/seven", MIB(102));
    newer.job = "job-2";
    REQUIRE(trainer_open(&old, &older) && enter(&young, &newer));
    EXPECT(is_refused_at_once(&young));
}

TEST(g_a_small_request_is_served_after_the_large_one_that_came_first) { /* Q13 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) gone = {0}, large = {0}, hasty = {0}, small = {0};
    REQUIRE(open_world_with_a_store_to_hold(&world));
    struct trainer_options old = rank_of(&world, "llm/gone", MIB(20));
    struct trainer_options first = rank_of(&world, "llm/large", MIB(80));
    struct trainer_options second = rank_of(&world, "llm/hasty", MIB(12));
    struct trainer_options third = rank_of(&world, "llm/small", MIB(12));
    REQUIRE(trainer_open(&gone, &old) && enter(&large, &first));
    REQUIRE(enter(&hasty, &second) && enter(&small, &third));
    REQUIRE(leave_a_save_behind(&world, &gone));
    EXPECT(waits(&large, PATIENT_MS)); /* 76 MiB are free */
    uint64_t asked_ms = cairn_mono_ms();
    REQUIRE(trainer_request_slabs(&hasty, 1000));
    EXPECT(waits(&small, PATIENT_MS));
    EXPECT(!trainer_take_slabs(&hasty)); /* its limit changes nothing about who came first */
    EXPECT_EQ_U64(hasty.err.code, CAIRN_NO_MEMORY);
    EXPECT(cairn_mono_ms() - asked_ms >= 900);
    EXPECT(strstr(hasty.err.message, "for ranks that asked before") != NULL);
    let_store_go(&world);
    EXPECT(trainer_take_slabs(&large));
    EXPECT_EQ_U64(large.slab_count, 1);
    EXPECT(trainer_take_slabs(&small));
    EXPECT_EQ_U64(small.slab_count, 1); /* of the 16 MiB that are left */
}

TEST(g_a_rank_that_opens_again_waits_for_both_of_its_generations) { /* Q13 */
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) gone = {0}, again = {0}, other = {0};
    REQUIRE(open_world_with_a_store_to_hold(&world));
    struct trainer_options options = rank_of(&world, "llm/again", MIB(40));
    struct trainer_options small = rank_of(&world, "llm/other", MIB(8));
    REQUIRE(trainer_open(&gone, &options) && enter(&other, &small));
    memcpy(again.proc, gone.proc, sizeof(again.proc)); /* the same process, the same attempt */
    REQUIRE(enter(&again, &options));
    EXPECT_EQ_U64(again.attempt, gone.attempt);
    REQUIRE(leave_a_save_behind(&world, &gone));
    EXPECT(waits(&again, PATIENT_MS)); /* one fits into the 56 MiB that are free */
    EXPECT(waits(&other, PATIENT_MS)); /* it is behind */
    let_store_go(&world);
    EXPECT(trainer_take_slabs(&again));
    EXPECT_EQ_U64(again.slab_count, 2);
    EXPECT(trainer_take_slabs(&other));
    EXPECT_EQ_U64(other.slab_count, 1); /* a second one would leave too little for restores */
}

TEST(g_a_second_generation_leaves_to_each_rank_the_memory_that_a_restore_needs) { /* Q13 */
    WORLD_WITH(.uploader_args = budget_of_100);
    CAIRN_AUTO(trainer) alone = {0}, first = {0}, second = {0};
    struct trainer_options options = rank_of(&world, "llm/alone", MIB(20));
    REQUIRE(trainer_open(&alone, &options));
    EXPECT_EQ_U64(alone.slab_count, 2);
    trainer_hang_up(&alone);
    REQUIRE_AWAIT(free_bytes(&world) >= MIB(90));
    options = rank_of(&world, "llm/two", MIB(20));
    options.world_size = options.local_world_size = 2;
    REQUIRE(trainer_open(&first, &options));
    options.rank = 1;
    REQUIRE(trainer_open(&second, &options));
    EXPECT_EQ_U64(first.slab_count, 1);
    EXPECT_EQ_U64(second.slab_count, 1);
    EXPECT(open_window(&first, MIB(64)) && open_window(&second, MIB(64)));
}

/* 40 of the 96 MiB are an older attempt's, whose successor wants 70: 30 of the rest are its own. */
TEST(g_a_rank_that_waits_for_an_older_attempt_leaves_to_other_runs_what_it_will_not_need) /* Q13 */
{
    WORLD_WITH(.uploader_args = budget_of_100);
    CAIRN_AUTO(trainer) old = {0}, young = {0}, modest = {0}, greedy = {0};
    struct trainer_options older = rank_of(&world, "llm/seven", MIB(20));
    struct trainer_options newer = rank_of(&world, "llm/seven", MIB(70));
    struct trainer_options other = rank_of(&world, "llm/modest", MIB(20));
    struct trainer_options third = rank_of(&world, "llm/greedy", MIB(10));
    newer.job = "job-2";
    REQUIRE(trainer_open(&old, &older) && enter(&young, &newer));
    REQUIRE(enter(&modest, &other) && enter(&greedy, &third));
    EXPECT(waits(&young, PATIENT_MS));
    REQUIRE(trainer_request_slabs(&modest, PATIENT_MS));
    EXPECT(trainer_take_slabs(&modest));
    EXPECT_EQ_U64(modest.slab_count, 1);
    uint64_t asked_ms = cairn_mono_ms();
    REQUIRE(trainer_request_slabs(&greedy, 1000)); /* 36 MiB are free */
    EXPECT(!trainer_take_slabs(&greedy));
    EXPECT_EQ_U64(greedy.err.code, CAIRN_NO_MEMORY);
    EXPECT(cairn_mono_ms() - asked_ms >= 900);
    trainer_hang_up(&old);
    EXPECT(trainer_take_slabs(&young));
    EXPECT_EQ_U64(young.slab_count, 1);
}

/* ---- restores: 88 of the 100 MiB are for slabs and windows once their readers have 8 ---- */

static bool give_window_back(struct cairn_trainer *trainer) {
    CAIRN_AUTO(frame) frame = {0};
    const struct cairn_view none = {NULL, 0};
    return trainer_ask(trainer, json_pack("{s:s, s:i}", "t", "window", "bytes", 0), none, NULL, 0,
                       &frame) == CAIRN_OK &&
           frame.fd_count == 0;
}

TEST(g_a_rank_waits_for_the_window_of_a_restore_and_has_its_memory_once_it_goes_back) { /* Q13 */
    WORLD_WITH(.uploader_args = budget_of_100);
    CAIRN_AUTO(trainer) reader = {0}, hasty = {0}, young = {0};
    struct trainer_options first = rank_of(&world, "llm/reader", MIB(4));
    struct trainer_options second = rank_of(&world, "llm/hasty", MIB(60));
    struct trainer_options third = rank_of(&world, "llm/young", MIB(60));
    REQUIRE(enter(&reader, &first) && enter(&hasty, &second) && enter(&young, &third));
    uint64_t before = free_bytes(&world);
    REQUIRE(open_window(&reader, MIB(48)));
    REQUIRE(trainer_request_slabs(&hasty, 500));
    EXPECT(!trainer_take_slabs(&hasty));
    EXPECT_EQ_U64(hasty.err.code, CAIRN_NO_MEMORY);
    EXPECT(strstr(hasty.err.message, "50331648 serve restores that are open") != NULL);
    EXPECT(waits(&young, PATIENT_MS));
    EXPECT(give_window_back(&reader));
    EXPECT(trainer_take_slabs(&young));
    EXPECT_EQ_U64(young.slab_count, 1);
    EXPECT(give_window_back(&reader)); /* it has none */
    EXPECT_EQ_U64(free_bytes(&world), before - MIB(8) - MIB(60));
}

TEST(g_the_window_of_the_first_rank_of_a_node_leaves_room_for_the_others) { /* Q13 */
    WORLD_WITH(.uploader_args = budget_of_100);
    CAIRN_AUTO(trainer) first = {0}, second = {0}, third = {0}, fourth = {0};
    struct cairn_trainer *const ranks[] = {&first, &second, &third, &fourth};
    struct trainer_options options = rank_of(&world, "llm/seven", MIB(2));
    options.world_size = options.local_world_size = CAIRN_COUNT(ranks);
    for (uint32_t i = 0; i < CAIRN_COUNT(ranks); i++) {
        options.rank = i;
        REQUIRE(enter(ranks[i], &options));
        EXPECT(open_window(ranks[i], MIB(64)));
        EXPECT(ranks[i]->window.size_bytes >= MIB(8));
    }
    EXPECT_EQ_U64(first.window.size_bytes, MIB(22));
}
