/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world: a real cairn-server over a folder store, or the same inside the test, and saves by hand.
 *
 * Why:     server tests speak as uploaders do: begin, bytes into the store, shards and seals.
 * Promise: 1   one server, one folder, all gone at the end of the scope.
 * Limits:  one server at a time in a world.
 * Threads: main thread only.
 * Next:    tests/support/daemon.h.
 */
#pragma once

#include "api/documents/keys.h"
#include "api/wire/rest.h"
#include "store/store.h"
#include "tests/harness.h"
#include "tests/support/daemon.h"
#include "tests/support/passing.h"
#include "tests/support/postgres.h"
#include "tests/support/server_inside.h"

struct cairn_world {
    char folder[256], store_path[300], data_path[300];
    char catalog[300]; /* as the setting; empty: SQLite */
    struct cairn_daemon server;
    struct cairn_rest *rest;
    struct cairn_store *store;
    struct cairn_store_worker *worker;
    struct cairn_error err; /* of the last call */
    bool is_inside;         /* no daemon: the server's code on this thread, under a clock of ours */
    struct cairn_inside inside;
};
#define WORLD_ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})
/* Of a test that looks into the files of SQLite. */
#define NEED_SQLITE                                                                                \
    do {                                                                                           \
        if (cairn_postgres_wanted()) SKIP("it looks into files of SQLite");                        \
    } while (0)
/* extra: more arguments, NULL-terminated, or NULL. env likewise. */
bool cairn_world_start(struct cairn_world *world, const char *const *extra, const char *const *env);
/* For env: the server lists each point that it passes; and how often it has passed one. */
const char *cairn_world_points(void);
unsigned cairn_world_passed(const char *point);
/* The same calls, answered without a daemon; see tests/support/server_inside.h. With the catalog of
 * another world it is a further server of that one, in the same folder. */
bool cairn_world_start_inside(struct cairn_world *world, const char *const *extra);
/* SIGKILL (if it still runs), then start again on the same folders. */
bool cairn_world_restart(struct cairn_world *world, const char *const *extra,
                         const char *const *env);
/* Of a stopped server: all of its catalog, as an operator loses it; grant.key stays. */
bool cairn_world_lose_catalog(struct cairn_world *world);
void cairn_world_release(struct cairn_world *world);
/* Empty the folder of a released world, for the next one of the same test. */
bool cairn_world_forget(const char *folder);
/* Both, for the next world of the same test. */
bool cairn_world_end(struct cairn_world *world);

/* take_body may be NULL. *ret_reply may be NULL. Failures are kept in world->err. */
enum cairn_code cairn_world_call(struct cairn_world *world, const char *method, const char *path,
                                 json_t *take_body, json_t **ret_reply);
/* The reply's members of interest, in the order of the names. */
const char *cairn_world_text(const json_t *reply, const char *name);
uint64_t cairn_world_number(const json_t *reply, const char *name);

/* Of a world inside: one statement that changes rows, one that counts, and catalog time. sql is a
 * literal. */
bool cairn_world_sql(struct cairn_world *world, const char *sql);
uint64_t cairn_world_count(struct cairn_world *world, const char *sql);
uint64_t cairn_world_tick(struct cairn_world *world);

#define WORLD_RUN "/v1/runs/llm/seven"

/* One attempt of run llm/seven, by one node. */
struct cairn_hand {
    struct cairn_world *world;
    char grant[600], nonce[CAIRN_NONCE_TEXT_BYTES], resumed[64];
    uint64_t attempt;
    uint32_t world_size;
};
/* after and resume as in the call; ranks 0..world_size-1 with proc = job + rank. */
enum cairn_code cairn_hand_open(struct cairn_world *world, struct cairn_hand *ret, const char *job,
                                uint64_t after, const char *resume, uint32_t world_size);
/* One save of one step. */
struct cairn_hand_save {
    struct cairn_hand *hand;
    uint64_t step;
    uint32_t n;
    struct cairn_version_id id;
    char path[200]; /* of {C} */
};
json_t *cairn_hand_begin_body(const struct cairn_hand *hand, uint64_t step, uint32_t n,
                              uint32_t rank, const char *on_exists);
/* All ranks begin; ret->id is what the server named. */
enum cairn_code cairn_hand_begin(struct cairn_hand *hand, uint64_t step, uint32_t n,
                                 const char *on_exists, struct cairn_hand_save *ret);
/* Put the bytes into the store and return the shard's registration ({name, rank, ...}). */
json_t *cairn_hand_shard(const struct cairn_hand_save *save, const char *name, uint32_t rank,
                         struct cairn_view bytes);
/* {rank, table, shards:[one], bytes} */
json_t *cairn_hand_seal(uint32_t rank, const char *table, const char *name, uint64_t size);
enum cairn_code cairn_hand_send(const struct cairn_hand_save *save, json_t *take_shards,
                                json_t *take_seals, json_t **ret_reply);
/* A whole save of `size` bytes a rank (raw shards "rank-NNNNN/x"), up to recorded. */
enum cairn_code cairn_hand_save_all(struct cairn_hand *hand, uint64_t step, uint32_t n,
                                    const char *on_exists, size_t size,
                                    struct cairn_hand_save *ret);
/* A server that sweeps often, its only rank's attempt, and steps 100, 200, ... saved by it. */
bool cairn_hand_start(struct cairn_world *world, struct cairn_hand *ret,
                      struct cairn_hand_save *ret_saves, size_t count);
/* Wait until the version is no longer open; its state. */
enum cairn_code cairn_hand_wait(const struct cairn_hand_save *save, json_t **ret_version);
/* Bytes of a shard as save_all makes them. */
void cairn_hand_fill(uint8_t *data, size_t size, uint64_t seed);
