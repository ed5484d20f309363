/* SPDX-License-Identifier: Apache-2.0 */
/* How many commits run side by side: many, but few of those that need much memory. */
#include "server/guard/jobs.h"

#include "tests/server/world.h"

#define PAUSE_MS 20

static struct {
    _Atomic int running, most, done;
    uint64_t bytes;
} seen;

static enum cairn_code count_commit(struct srv *server, struct cairn_store_worker *worker,
                                    const char *version_id, struct cairn_error *err) {
    (void)worker, (void)version_id, (void)err;
    bool room = srv_jobs_take_room(server, seen.bytes);
    int now = ++seen.running, most = seen.most;
    while (most < now && !atomic_compare_exchange_weak(&seen.most, &most, now)) {
    }
    cairn_test_pause_ms(PAUSE_MS); /* pause of a stand-in: a commit that takes its time */
    seen.running--;
    seen.done++;
    if (room) srv_jobs_give_room(server);
    return CAIRN_OK;
}

static bool no_sweep(struct srv_sweep *sweep, struct cairn_store_worker *worker) {
    (void)sweep, (void)worker;
    return false;
}

/* The most that ran at once. */
static int run_commits(struct cairn_world *world, int count, uint64_t bytes) {
    struct srv server = {.store = world->inside.server.store,
                         .settings = world->inside.server.settings};
    const struct srv_work work = {count_commit, no_sweep, NULL};
    struct srv_jobs *jobs = NULL;
    seen.running = seen.most = seen.done = 0;
    seen.bytes = bytes;
    if (srv_jobs_new(&server, &work, &jobs, &world->err)) return -1;
    for (int i = 0; i < count; i++) {
        srv_jobs_commit(&server, TEXT("ckpt_%d", i));
    }
    AWAIT(seen.done >= count);
    srv_jobs_free(jobs);
    return seen.done == count ? seen.most : -1;
}

TEST(small_commits_run_side_by_side_and_of_large_ones_two) { /* jobs.h#3 */
    INSIDE();
    int small = run_commits(&world, 48, CAIRN_MIB);
    EXPECT(small > 4);
    EXPECT(small <= 16);
    EXPECT(run_commits(&world, 12, CAIRN_GIB) == 2);
}
