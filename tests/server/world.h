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

#include <netinet/in.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include "api/documents/digest.h"
#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "api/wire/rest.h"
#include "server/copies/copies.h"
#include "server/db/engine_sqlite.h"
#include "server/guard/said_copy.h"
#include "server/ledger/copies.h"
#include "server/ledger/versions.h"
#include "server/nodes/nodes.h"
#include "store/open.h"
#include "tests/harness.h"
#include "tests/server/look.h"
#include "tests/support/daemon.h"
#include "tests/support/passing.h"
#include "tests/support/postgres.h"
#include "tests/support/raw.h"
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
/* A catalog without a server, open until the end of the scope. */
static inline void free_catalog_at(struct srv_catalog **catalog) {
    if (*catalog) srv_catalog_free(*catalog);
}
#define AUTO_CATALOG CAIRN_RELEASED(free_catalog_at) struct srv_catalog *
#define CATALOG(catalog, where)                                                                    \
    AUTO_CATALOG catalog = NULL;                                                                   \
    REQUIRE_OK(srv_catalog_open(where, &catalog, &err))
/* Of a test that looks into the files of SQLite. */
#define NEED_SQLITE                                                                                \
    do {                                                                                           \
        if (cairn_postgres_wanted()) SKIP("it looks into files of SQLite");                        \
    } while (0)
/* extra: more arguments, NULL-terminated, or NULL. env likewise. */
bool world_start(struct cairn_world *world, const char *const *extra, const char *const *env);
/* For env: the server lists each point that it passes; and how often it has passed one. */
const char *world_points(void);
unsigned world_passed(const char *point);
/* The same calls, answered without a daemon; see tests/support/server_inside.h. With the catalog of
 * another world it is a further server of that one, in the same folder. */
bool world_start_inside(struct cairn_world *world, const char *const *extra);
/* SIGKILL (if it still runs), then start again on the same folders. */
bool world_restart(struct cairn_world *world, const char *const *extra, const char *const *env);
/* Of a stopped server: all of its catalog, as an operator loses it; grant.key stays. */
bool world_lose_catalog(struct cairn_world *world);
/* A server that dies by itself at that point, and whether it has. */
bool world_start_to_die(struct cairn_world *world, const char *const *extra, const char *point);
bool world_died(struct cairn_world *world);
void cairn_world_release(struct cairn_world *world);
/* Empty the folder of a released world, for the next one of the same test. */
bool world_forget(const char *folder);
/* Both, for the next world of the same test. */
bool world_end(struct cairn_world *world);

/* take_body may be NULL. *ret_reply may be NULL. Failures are kept in world->err. */
enum cairn_code world_call(struct cairn_world *world, const char *method, const char *path,
                           json_t *take_body, json_t **ret_reply);
/* The reply's members of interest, in the order of the names. */
const char *world_text(const json_t *reply, const char *name);
uint64_t world_number(const json_t *reply, const char *name);

/* Of a world inside: one statement that changes rows, one that counts, and catalog time. sql is a
 * literal. */
bool world_sql(struct cairn_world *world, const char *sql);
uint64_t world_count(struct cairn_world *world, const char *sql);
uint64_t world_tick(struct cairn_world *world);

/* The same, of a body that is text (NULL: none); of a change, with If-Match. */
enum cairn_code cairn_say(struct cairn_world *world, const char *method, const char *path,
                          const char *body, json_t **ret_reply);
enum cairn_code cairn_change(struct cairn_world *world, const char *match, const char *method,
                             const char *path, const char *body, json_t **ret_reply);
/* One request as it is written, on a connection of its own; its status. ret may be NULL. */
int world_raw(const struct cairn_world *world, const char *request, struct cairn_buf *ret);
/* The same with header lines ("": none) and a body of JSON (NULL: none). */
int world_ask(const struct cairn_world *world, const char *method, const char *path,
              const char *headers, const char *body, struct cairn_buf *ret);
/* What stands behind the head of a reply; "": nothing. */
const char *cairn_body_of(const struct cairn_buf *reply);
/* What readyz says of that check, whether it is ready or not. */
const char *world_check(struct cairn_world *world, const char *name);
/* A call on a thread and a connection of its own; wait_ms: it is a GET that waits so long. */
struct cairn_calling {
    const struct cairn_world *world;
    const char *method, *path;
    json_t *body, *reply;
    uint32_t wait_ms;
    uint64_t took_ms, answered_us;
    struct cairn_error why;
    enum cairn_code code;
    pthread_t thread;
    bool begun;
    _Atomic int id;
    _Atomic bool done;
};
bool calling_begin(struct cairn_calling *ret, const struct cairn_world *world, const char *method,
                   const char *path, json_t *take_body);
bool calling_wait(struct cairn_calling *ret, const struct cairn_world *world, const char *path,
                  uint32_t wait_ms);
/* It sleeps, and the server has read all that was asked. */
bool calling_is_held(const struct cairn_calling *calling);
/* Waits for its end, if that was not done before; what it ended with. */
enum cairn_code calling_end(struct cairn_calling *calling);
void cairn_calling_release(struct cairn_calling *calling);
/* That member of each item of a list, in its order: "3 2 1". */
const char *cairn_items(const json_t *page, const char *list, const char *member);
/* The last item whose member has that text, or NULL. */
json_t *cairn_item(const json_t *page, const char *list, const char *member, const char *text);

/* ---- the store, and what stands in its folder ---- */
uint64_t cairn_listed(struct cairn_store_worker *worker, enum cairn_store_op op,
                      const char *prefix);
bool world_holds(struct cairn_world *world, const struct cairn_key *key);
const char *world_file(const struct cairn_world *world, const struct cairn_key *key);
/* Changes one byte of a file; an offset below 0 counts from its end. */
bool cairn_flip_byte(const char *path, long offset);

#define WORLD_RUN "/v1/runs/llm/seven"
#define MINUTE_MS UINT64_C(60000)
#define HOUR_MS (60 * MINUTE_MS)

/* One attempt of run llm/seven, by one node. */
struct cairn_hand {
    struct cairn_world *world;
    char grant[600], nonce[CAIRN_NONCE_TEXT_BYTES], resumed[64];
    uint64_t attempt;
    uint32_t world_size;
};
/* after and resume as in the call; ranks 0..world_size-1 with proc = job + rank. */
enum cairn_code hand_open(struct cairn_world *world, struct cairn_hand *ret, const char *job,
                          uint64_t after, const char *resume, uint32_t world_size);
/* One save of one step. */
struct cairn_hand_save {
    struct cairn_hand *hand;
    uint64_t step;
    uint32_t n;
    struct cairn_version_id id;
    char path[200]; /* of {C} */
};
json_t *hand_begin_body(const struct cairn_hand *hand, uint64_t step, uint32_t n, uint32_t rank,
                        const char *on_exists);
/* One rank begins; its answer. */
enum cairn_code hand_begin_by(struct cairn_hand *hand, json_t *take_body,
                              struct cairn_hand_save *ret, json_t **ret_reply);
/* All ranks begin; ret->id is what the server named. */
enum cairn_code hand_begin(struct cairn_hand *hand, uint64_t step, uint32_t n,
                           const char *on_exists, struct cairn_hand_save *ret);
/* Put the bytes into the store and return the shard's registration ({name, rank, ...}). */
json_t *hand_shard(const struct cairn_hand_save *save, const char *name, uint32_t rank,
                   struct cairn_view bytes);
/* {rank, table, shards:[one], bytes} */
json_t *hand_seal(uint32_t rank, const char *table, const char *name, uint64_t size);
enum cairn_code hand_send(const struct cairn_hand_save *save, json_t *take_shards,
                          json_t *take_seals, json_t **ret_reply);
/* The same on a thread of its own. */
bool hand_send_begin(const struct cairn_hand_save *save, json_t *take_seals,
                     struct cairn_calling *ret);
/* One shard and its seal; the shard alone; the seal alone. */
enum cairn_code hand_put(const struct cairn_hand_save *save, const char *name, uint32_t rank,
                         struct cairn_view bytes);
enum cairn_code hand_register(const struct cairn_hand_save *save, const char *name, uint32_t rank,
                              struct cairn_view bytes);
enum cairn_code hand_seal_alone(const struct cairn_hand_save *save, uint32_t rank, const char *name,
                                uint64_t size);
/* A whole save of `size` bytes a rank (raw shards "rank-NNNNN/x"), up to recorded. */
enum cairn_code hand_save_all(struct cairn_hand *hand, uint64_t step, uint32_t n,
                              const char *on_exists, size_t size, struct cairn_hand_save *ret);
/* A server that sweeps often, its only rank's attempt, and steps 100, 200, ... saved by it. */
bool hand_start(struct cairn_world *world, struct cairn_hand *ret,
                struct cairn_hand_save *ret_saves, size_t count);
/* Wait until the version is no longer open; its state. */
enum cairn_code hand_wait(const struct cairn_hand_save *save, json_t **ret_version);
/* Steps 1, 2, ... by an open attempt. */
enum cairn_code hand_saves(struct cairn_hand *hand, struct cairn_hand_save *ret_saves,
                           size_t count);
struct cairn_version_place hand_place(const struct cairn_hand_save *save);
/* Keys of its objects: KEY(record, committed, &save); SHARD_KEY(key, &save, "x"). */
#define KEY(key, kind, save)                                                                       \
    struct cairn_key key;                                                                          \
    hand_key(save, cairn_key_##kind, &key)
#define SHARD_KEY(key, save, name)                                                                 \
    struct cairn_key key;                                                                          \
    hand_shard_key(save, name, &key)
void hand_key(const struct cairn_hand_save *save,
              void (*make)(const struct cairn_version_place *place, struct cairn_key *ret),
              struct cairn_key *ret);
void hand_shard_key(const struct cairn_hand_save *save, const char *name, struct cairn_key *ret);
/* What GET says of it: its state, or the code of the refusal. */
const char *hand_state(const struct cairn_hand_save *save);
/* POST {C}/verb. */
enum cairn_code hand_post(const struct cairn_hand_save *save, const char *verb, json_t *take_body,
                          json_t **ret_reply);
/* Its objects in the main store; the file of its first rank's shard. */
uint64_t hand_objects(const struct cairn_hand_save *save);
const char *hand_file(const struct cairn_hand_save *save);
/* A GET of that shard's bytes, over a connection that is closed behind it. */
const char *hand_download(const struct cairn_hand_save *save);
/* A heartbeat of a node that knows of this attempt alone, and of which so much is not yet sent. */
enum cairn_code hand_beat(const struct cairn_hand *hand, const char *node);
enum cairn_code hand_unsent(const struct cairn_hand *hand, const char *node, int unsent,
                            json_t **ret_reply);
/* Sends a table under that digest (or with "DIGEST?part=1&of=2"); the status. */
int hand_table(const struct cairn_hand *hand, struct cairn_view table, const char *hex);
/* Bytes of a shard as save_all makes them. */
void hand_fill(uint8_t *data, size_t size, uint64_t seed);

/* ---- the words of a story: each declares what it names, and leaves the test when it fails ---- */
/* A server with these settings, all of them literals: WORLD(), WORLD("--trash-grace=1h"). INSIDE:
 * the same inside the test. */
#define WORLD_LITERALS(...) (WORLD_ARGS("" __VA_ARGS__) + (sizeof(#__VA_ARGS__) == 1))
#define WORLD(...)                                                                                 \
    CAIRN_AUTO(world) world = {0};                                                                 \
    REQUIRE(world_start(&world, WORLD_LITERALS(__VA_ARGS__), NULL))
#define INSIDE(...)                                                                                \
    CAIRN_AUTO(world) world = {0};                                                                 \
    REQUIRE(world_start_inside(&world, WORLD_LITERALS(__VA_ARGS__)))
/* With these variables of its environment. */
#define WORLD_IN(...)                                                                              \
    CAIRN_AUTO(world) world = {0};                                                                 \
    REQUIRE(world_start(&world, NULL, WORLD_ARGS(__VA_ARGS__)))
/* A setting: a second store beside the main one. */
#define SLOW_STORE TEXT("--stores=slow=%s/slow", cairn_test_folder())
/* Not the member itself: files of tests may define the word err. */
static inline struct cairn_error *world_why(struct cairn_world *world) {
    return &world->err;
}
#define WORLD_OK(call) CAIRN_REQUIRE_OK(call, #call, *world_why(&world))
/* The first attempt, of job j1, with so many ranks. */
#define HAND(ranks)                                                                                \
    struct cairn_hand hand;                                                                        \
    WORLD_OK(hand_open(&world, &hand, "j1", 0, "latest", ranks))
/* Both: JOB(2), JOB_INSIDE(1, "--trash-grace=1h"). */
#define JOB(...)                                                                                   \
    CAIRN_AUTO(world) world = {0};                                                                 \
    REQUIRE(world_start(&world, JOB_SETTINGS(__VA_ARGS__, NULL), NULL));                           \
    HAND(JOB_RANKS(__VA_ARGS__, NULL))
#define JOB_INSIDE(...)                                                                            \
    CAIRN_AUTO(world) world = {0};                                                                 \
    REQUIRE(world_start_inside(&world, JOB_SETTINGS(__VA_ARGS__, NULL)));                          \
    HAND(JOB_RANKS(__VA_ARGS__, NULL))
#define JOB_SETTINGS(ranks, ...) ((const char *const[]){__VA_ARGS__})
#define JOB_RANKS(ranks, ...) ranks
#define HAND_OK(call) CAIRN_REQUIRE_OK(call, #call, *world_why(hand.world))
/* A save by `hand`: whole, 10 bytes a rank; or only begun. */
#define SAVED(save, step)                                                                          \
    struct cairn_hand_save save;                                                                   \
    HAND_OK(hand_save_all(&hand, step, 1, "error", 10, &save))
#define BEGUN(save, step)                                                                          \
    struct cairn_hand_save save;                                                                   \
    HAND_OK(hand_begin(&hand, step, 1, "error", &save))
#define SAVES(saves, count)                                                                        \
    struct cairn_hand_save saves[count];                                                           \
    HAND_OK(hand_saves(&hand, saves, count))
/* A server that sweeps often, `hand`, and steps 100, 200, ... by it. */
#define STARTED(saves, count)                                                                      \
    CAIRN_AUTO(world) world = {0};                                                                 \
    struct cairn_hand hand;                                                                        \
    struct cairn_hand_save saves[count];                                                           \
    REQUIRE(hand_start(&world, &hand, saves, count))
#define EXPECT_STATE(save, wanted) EXPECT_EQ_TEXT(hand_state(save), wanted)
/* What the server answers; body is taken. */
#define ASKED(reply, method, path, body)                                                           \
    CAIRN_AUTO_JSON json_t *reply = NULL;                                                          \
    WORLD_OK(world_call(&world, method, path, body, &reply))
#define GOT(reply, path) ASKED(reply, "GET", path, NULL)
#define ASK(method, path, body) WORLD_OK(world_call(&world, method, path, body, NULL))
/* The same of bodies that are text; CHANGE of what If-Match: * may change. */
#define SAID(reply, method, path, text)                                                            \
    CAIRN_AUTO_JSON json_t *reply = NULL;                                                          \
    WORLD_OK(cairn_say(&world, method, path, text, &reply))
#define SAY(method, path, text) WORLD_OK(cairn_say(&world, method, path, text, NULL))
#define CHANGE(method, path, text) WORLD_OK(cairn_change(&world, "*", method, path, text, NULL))
#define EXPECT_SAY(wanted, method, path, text)                                                     \
    CAIRN_EXPECT_CODE(cairn_say(&world, method, path, text, NULL), method " " #path, wanted,       \
                      *world_why(&world))
#define EXPECT_CHANGE(wanted, method, path, text)                                                  \
    CAIRN_EXPECT_CODE(cairn_change(&world, "*", method, path, text, NULL), method " " #path,       \
                      wanted, *world_why(&world))
#define EXPECT_REFUSED(wanted, method, path, body)                                                 \
    CAIRN_EXPECT_CODE(world_call(&world, method, path, body, NULL), method " " #path, wanted,      \
                      *world_why(&world))
/* The version when it is no longer open. */
#define WAITED(version, save)                                                                      \
    CAIRN_AUTO_JSON json_t *version = NULL;                                                        \
    CAIRN_REQUIRE_OK(hand_wait(save, &version), "wait", *world_why((save)->hand->world))
/* Of a world inside: so many rows, EXPECT_ROWS(2, "versions WHERE state = 1"). */
#define EXPECT_ROWS(wanted, from)                                                                  \
    EXPECT_EQ_U64(world_count(&world, "SELECT count(*) FROM " from), wanted)
/* The same of the version when it is no longer open. */
#define EXPECT_WAITED(save, ...)                                                                   \
    do {                                                                                           \
        WAITED(expect_version, save);                                                              \
        EXPECT_SHOWS(expect_version, __VA_ARGS__);                                                 \
    } while (0)
/* Pairs of names and texts: EXPECT_SHOWS(reply, "state", "open", "items.#", "2", "items.0.step",
 * "7"). A name leads through objects and arrays, # is an array's size; what is no text is compared
 * as its JSON; "(none)" is what is not there. */
#define EXPECT_SHOWS(json, ...)                                                                    \
    world_shows(__FILE__, __LINE__, json, ((const char *const[]){__VA_ARGS__, NULL}))
bool world_shows(const char *file, int line, const json_t *json, const char *const *pairs);
/* The same of what the server answers to GET. */
#define EXPECT_GET(path, ...)                                                                      \
    do {                                                                                           \
        GOT(expect_reply, path);                                                                   \
        EXPECT_SHOWS(expect_reply, __VA_ARGS__);                                                   \
    } while (0)
