/* SPDX-License-Identifier: Apache-2.0 */
/* Many ranks that open at once, while the memory that they need is still another's. */
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/uploader/trainer.h"

#define RANKS 56 /* more than the uploader has helper threads */

static struct trainer_options options_of(const struct cairn_up_world *world, const char *job) {
    return (struct trainer_options){.socket = world->socket_path,
                                    .job = job,
                                    .world_size = RANKS,
                                    .local_world_size = RANKS,
                                    .bytes = 2 * CAIRN_MIB,
                                    .slabs_wait_ms = 40000};
}

static pid_t open_in_child(const struct cairn_up_world *world, const char *job, uint32_t rank,
                           int not_its_own) {
    pid_t pid = fork();
    if (pid) return pid;
    close(not_its_own);
    struct cairn_trainer trainer = {0};
    struct trainer_options options = options_of(world, job);
    options.rank = rank;
    bool opened = trainer_open(&trainer, &options);
    if (opened) (void)poll(NULL, 0, 1000); /* the others want theirs meanwhile */
    _exit(opened ? 0 : 1);
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
TEST(g_56_ranks_that_wait_get_the_memory_that_an_older_attempt_gives_back) /* Q13 */
{
    static const char *const budget[] = {"--memory-budget=512MiB", NULL};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) old = {0};
    pid_t children[RANKS];
    uint32_t failed = 0;
    REQUIRE(world_open(&world, &(struct world_options){.uploader_args = budget}));
    struct trainer_options options = options_of(&world, "job-1");
    options.world_size = options.local_world_size = 1;
    options.bytes = 230 * CAIRN_MIB; /* without these there is not enough for one generation each */
    REQUIRE(trainer_open(&old, &options));
    EXPECT_EQ_U64(old.slab_count, 2);
    for (uint32_t i = 0; i < RANKS; i++) children[i] = open_in_child(&world, "job-2", i, old.fd);
    (void)poll(NULL, 0, 1500);
    trainer_hang_up(&old);
    uint64_t freed_ms = cairn_mono_ms();
    end_children(children, RANKS, &failed);
    EXPECT_EQ_U64(failed, 0);
    EXPECT(cairn_mono_ms() - freed_ms < 20000); /* not at the end of their patience */
}
