/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world: a server, a folder store and the uploaders of several nodes, as real processes.
 *
 * Why:     what a save promises is kept by three programs together; it is tested on them.
 * Promise: 1   everything lives in the test's folder and is killed at release.
 *          2   a restarted program has the same address, folders and settings as before.
 * Limits:  CAIRN_WORLD_NODES_MAX nodes.
 * Threads: main thread only.
 * Next:    tests/client/test_world.c; tests/support/daemon.h.
 */
#pragma once

#include "tests/support/daemon.h"

#define CAIRN_WORLD_NODES_MAX 4

struct cairn_world_options {
    uint32_t nodes;        /* 0 = 1 */
    const char *store;     /* NULL: a folder of the test */
    const char *budget;    /* of each uploader; NULL: "512MiB" */
    const char *part_size; /* NULL: "1MiB", so that small shards have several parts */
};
struct cairn_world {
    char folder[256];
    char store[1024];
    char budget[32], part_size[32];
    uint32_t nodes;
    struct cairn_daemon server;
    struct cairn_daemon uploaders[CAIRN_WORLD_NODES_MAX];
    char sockets[CAIRN_WORLD_NODES_MAX][108];
};
/* False where this build has no server and uploader: the test is skipped. */
bool cairn_world_possible(void);
enum cairn_code cairn_world_open(const struct cairn_world_options *options, struct cairn_world *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void cairn_world_release(struct cairn_world *world);
/* `err` and `world` of this scope: OPEN_WORLD(.nodes = 2). For tests/harness.h. */
#define OPEN_WORLD(...)                                                                            \
    struct cairn_error err = {0};                                                                  \
    CAIRN_AUTO(world) world = {0};                                                                 \
    if (!cairn_world_possible()) SKIP("cairn-server and cairn-uploader are not built here");       \
    REQUIRE_OK(cairn_world_open(&(struct cairn_world_options){__VA_ARGS__}, &world, &err))

void cairn_world_server_kill(struct cairn_world *world);
enum cairn_code cairn_world_server_start(struct cairn_world *world,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_world_uploader_kill(struct cairn_world *world, uint32_t node);
/* crash_at: value of CAIRN_CRASH_AT, or NULL. */
enum cairn_code cairn_world_uploader_start(struct cairn_world *world, uint32_t node,
                                           const char *crash_at,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Kill and start. */
static inline enum cairn_code cairn_world_server_again(struct cairn_world *world,
                                                       struct cairn_error *err) {
    cairn_world_server_kill(world);
    return cairn_world_server_start(world, err);
}
static inline enum cairn_code cairn_world_uploader_again(struct cairn_world *world, uint32_t node,
                                                         struct cairn_error *err) {
    cairn_world_uploader_kill(world, node);
    return cairn_world_uploader_start(world, node, NULL, err);
}
