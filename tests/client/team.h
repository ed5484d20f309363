/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team: the ranks of one job on one node, in this process, over a real uploader and server.
 *
 * Why:     tests of what libcairn offers should say what they describe and read, and nothing else.
 * Promise: everything is released at the scope's end, sessions before the world.
 * Limits:  TEAM_MAX ranks on one node.
 * Threads: main thread.
 * Next:    tests/client/test_meta.c; tests/support/world.h.
 */
#pragma once

#include "tests/client/stage.h"
#include "tests/support/world.h"

#define TEAM_MAX 3
#define TEAM_BYTES (4 * CAIRN_MIB)

struct cairn_team {
    struct cairn_world world;
    struct cairn_session *sessions[TEAM_MAX];
    struct cairn_save *saves[TEAM_MAX];
    struct cairn_restore *restore;
    uint32_t ranks;
};

static inline void cairn_team_leave(struct cairn_team *team) {
    cairn_restore_free(team->restore);
    team->restore = NULL;
    for (uint32_t i = 0; i < TEAM_MAX; i++) {
        cairn_save_free(team->saves[i]);
        (void)cairn_close(team->sessions[i], NULL);
        team->saves[i] = NULL;
        team->sessions[i] = NULL;
    }
}

static inline void cairn_team_release(struct cairn_team *team) {
    cairn_team_leave(team);
    cairn_world_release(&team->world);
}

/* Of rank `rank`; the job's name is "job-1". */
static inline struct cairn_open_options team_options(const struct cairn_team *team, uint32_t rank) {
    return SIZED(cairn_open_options, .run = "llm/7b", .job = "job-1", .rank = rank,
                 .world_size = team->ranks, .local_rank = rank, .local_world_size = team->ranks,
                 .bytes = TEAM_BYTES, .socket = team->world.sockets[0], .wait_staged_ms = 2000,
                 .timeout_ms = HANG_MS);
}

static inline enum cairn_code team_world(struct cairn_team *ret, uint32_t ranks,
                                         struct cairn_error *err) {
    const struct cairn_world_options options = {.nodes = 1};
    ret->ranks = ranks;
    return cairn_world_open(&options, &ret->world, err);
}

static inline enum cairn_code team_open(struct cairn_team *ret, uint32_t ranks,
                                        struct cairn_error *err) {
    CAIRN_TRY(team_world(ret, ranks, err));
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const struct cairn_open_options options = team_options(ret, rank);
        CAIRN_TRY(cairn_open(&options, &ret->sessions[rank], NULL, err));
    }
    return CAIRN_OK;
}
#define TEAM(count)                                                                                \
    struct cairn_error err = {0};                                                                  \
    CAIRN_AUTO(team) team = {0};                                                                   \
    if (!cairn_world_possible()) SKIP("cairn-server and cairn-uploader are not built here");       \
    REQUIRE_OK(team_open(&team, (count), &err))

/* All of them have begun a save of that step. */
#define TEAM_BEGUN(count, step)                                                                    \
    TEAM(count);                                                                                   \
    REQUIRE_OK(team_begin(&team, (step), NULL, &err))

static inline enum cairn_code team_begin(struct cairn_team *team, uint64_t step,
                                         const struct cairn_save_options *options,
                                         struct cairn_error *err) {
    for (uint32_t rank = 0; rank < team->ranks; rank++) {
        cairn_save_free(team->saves[rank]);
        team->saves[rank] = NULL;
        CAIRN_TRY(cairn_save_begin(team->sessions[rank], step, options, &team->saves[rank], err));
    }
    return CAIRN_OK;
}

static inline enum cairn_code team_commit(struct cairn_team *team, struct cairn_error *err) {
    for (uint32_t rank = 0; rank < team->ranks; rank++)
        CAIRN_TRY(cairn_test_reach(team->saves[rank], CAIRN_COMMITTED, err));
    return CAIRN_OK;
}

/* Every rank has described its own: stage and commit. */
static inline enum cairn_code team_finish(struct cairn_team *team, struct cairn_error *err) {
    for (uint32_t rank = 0; rank < team->ranks; rank++)
        CAIRN_TRY(cairn_test_stage(team->saves[rank], err));
    return team_commit(team, err);
}

/* By rank 0. ref NULL: "latest". */
static inline enum cairn_code team_restore(struct cairn_team *team, const char *ref,
                                           struct cairn_error *err) {
    const struct cairn_restore_options options =
        SIZED(cairn_restore_options, .ref = ref ? ref : "latest");
    cairn_restore_free(team->restore);
    team->restore = NULL;
    return cairn_restore_open(team->sessions[0], &options, &team->restore, NULL, err);
}

/* The latest one, once it is committed; once it is staged, too. */
static inline enum cairn_code team_commit_and_restore(struct cairn_team *team,
                                                      struct cairn_error *err) {
    CAIRN_TRY(team_commit(team, err));
    return team_restore(team, NULL, err);
}

static inline enum cairn_code team_finish_and_restore(struct cairn_team *team,
                                                      struct cairn_error *err) {
    CAIRN_TRY(team_finish(team, err));
    return team_restore(team, NULL, err);
}
