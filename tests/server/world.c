/* SPDX-License-Identifier: Apache-2.0 */
/* A real server and saves made by hand; see world.h. */
#include "tests/server/world.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/crc.h"
#include "common/text.h"
#include "server/db/sql.h"
#include "store/open.h"

/* ---- the server ---- */

static bool start_server(struct cairn_world *world, const char *const *extra,
                         const char *const *env) {
    char store[340], data[340];
    snprintf(store, sizeof(store), "--store=%s", world->store_path);
    snprintf(data, sizeof(data), "--data-dir=%s", world->data_path);
    char catalog[340];
    snprintf(catalog, sizeof(catalog), "--catalog=%s", world->catalog);
    const char *args[29] = {store, data, "--listen=127.0.0.1:0", catalog};
    for (size_t i = 0; extra && extra[i] && i < 24; i++) args[4 + i] = extra[i];
    struct cairn_daemon_options options = {
        .program = "cairn-server", .folder = world->folder, .args = args, .env = env};
    if (cairn_daemon_start(&options, &world->server, &world->err)) return false;
    struct cairn_rest_options rest = {.url = world->server.url};
    return !cairn_rest_new(&rest, &world->rest, &world->err);
}

bool cairn_world_start(struct cairn_world *world, const char *const *extra,
                       const char *const *env) {
    snprintf(world->folder, sizeof(world->folder), "%s", cairn_test_folder());
    snprintf(world->store_path, sizeof(world->store_path), "%s/store", world->folder);
    snprintf(world->data_path, sizeof(world->data_path), "%s/data", world->folder);
    if (cairn_postgres_wanted() && !cairn_postgres_catalog(world->catalog, sizeof(world->catalog)))
        return false;
    if (!start_server(world, extra, env)) return false;
    struct cairn_store_options store = {.url = world->store_path};
    return !cairn_store_open(&store, &world->store, &world->err) &&
           !cairn_store_worker_new(world->store, &world->worker, &world->err);
}

const char *cairn_world_points(void) {
    static char variable[400];
    snprintf(variable, sizeof(variable), "CAIRN_CRASH_LIST=%s/points", cairn_test_folder());
    return variable;
}

unsigned cairn_world_passed(const char *point) {
    char line[128];
    unsigned times = 0;
    FILE *file = fopen(strchr(cairn_world_points(), '/'), "re");
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        times += !strcmp(line, point);
    }
    if (file) fclose(file);
    return times;
}

bool cairn_world_start_inside(struct cairn_world *world, const char *const *extra) {
    snprintf(world->folder, sizeof(world->folder), "%s", cairn_test_folder());
    snprintf(world->store_path, sizeof(world->store_path), "%s/store", world->folder);
    snprintf(world->data_path, sizeof(world->data_path), "%s/data", world->folder);
    world->is_inside = true;
    snprintf(world->inside.catalog, sizeof(world->inside.catalog), "%s", world->catalog);
    enum cairn_code code = cairn_inside_start(&world->inside, world->folder, extra);
    snprintf(world->catalog, sizeof(world->catalog), "%s", world->inside.catalog);
    world->err = world->inside.err;
    world->store = world->inside.server.store;
    world->worker = world->inside.worker;
    return !code;
}

bool cairn_world_restart(struct cairn_world *world, const char *const *extra,
                         const char *const *env) {
    cairn_daemon_release(&world->server);
    cairn_rest_free(world->rest);
    world->rest = NULL;
    return start_server(world, extra, env);
}

bool cairn_world_lose_catalog(struct cairn_world *world) {
    static const char *const names[] = {"catalog.db", "catalog.db-wal", "catalog.db-shm"};
    if (world->catalog[0]) return cairn_postgres_empty(world->catalog);
    for (size_t i = 0; i < CAIRN_COUNT(names); i++) {
        char path[400];
        snprintf(path, sizeof(path), "%s/%s", world->data_path, names[i]);
        if (unlink(path) && i == 0) return false;
    }
    return true;
}

void cairn_world_release(struct cairn_world *world) {
    if (world->is_inside) {
        cairn_inside_release(&world->inside);
        return;
    }
    if (world->worker) cairn_store_worker_free(world->worker);
    if (world->store) cairn_store_free(world->store);
    if (world->rest) cairn_rest_free(world->rest);
    if (!world->server.pid) return;
    int status = cairn_daemon_stop(&world->server, SIGTERM, 20000);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(!cairn_daemon_logged(&world->server, "Sanitizer"));
}

static int remove_entry(const char *path, const struct stat *status, int kind,
                        struct FTW *position) {
    (void)status, (void)kind;
    return position->level ? remove(path) : 0;
}

bool cairn_world_forget(const char *folder) {
    return !nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

bool cairn_world_end(struct cairn_world *world) {
    cairn_world_release(world);
    *world = (struct cairn_world){0};
    return cairn_world_forget(cairn_test_folder());
}

enum cairn_code cairn_world_call(struct cairn_world *world, const char *method, const char *path,
                                 json_t *take_body, json_t **ret_reply) {
    CAIRN_AUTO_JSON json_t *body = take_body;
    if (world->is_inside) {
        enum cairn_code code =
            cairn_inside_call(&world->inside, method, path, CAIRN_TAKE(body), ret_reply);
        world->err = world->inside.err;
        return code;
    }
    world->err = (struct cairn_error){0};
    return cairn_rest_call(world->rest, method, path, body, 0, ret_reply, &world->err);
}

const char *cairn_world_text(const json_t *reply, const char *name) {
    const char *text = json_string_value(json_object_get(reply, name));
    return text ? text : "(none)";
}

uint64_t cairn_world_number(const json_t *reply, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(reply, name));
}

/* ---- rows ---- */

struct row_query {
    const char *sql;
    int64_t number;
};

static enum cairn_code change_rows(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    const struct row_query *query = argument;
    const struct cairn_srv_statement statement = {"test", "", query->sql};
    return cairn_srv_sql_run(tx, NULL, err, &statement);
}

static enum cairn_code count_rows(struct cairn_srv_tx *tx, void *argument,
                                  struct cairn_error *err) {
    struct row_query *query = argument;
    bool found = false;
    const struct cairn_srv_statement statement = {"test", "", query->sql};
    return cairn_srv_sql_number(tx, &found, &query->number, err, &statement);
}

bool cairn_world_sql(struct cairn_world *world, const char *sql) {
    struct row_query query = {.sql = sql};
    return !cairn_srv_catalog_write(world->inside.server.catalog, change_rows, &query, &world->err);
}

uint64_t cairn_world_count(struct cairn_world *world, const char *sql) {
    struct row_query query = {.sql = sql, .number = -1};
    (void)!cairn_srv_catalog_read(world->inside.server.catalog, count_rows, &query, &world->err);
    return (uint64_t)query.number;
}

uint64_t cairn_world_tick(struct cairn_world *world) {
    return cairn_world_count(world, "SELECT value FROM ticks");
}

/* ---- attempts ---- */

enum cairn_code cairn_hand_open(struct cairn_world *world, struct cairn_hand *ret, const char *job,
                                uint64_t after, const char *resume, uint32_t world_size) {
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < world_size; i++) {
        char proc[80];
        snprintf(proc, sizeof(proc), "%s-%u", job, i);
        (void)!json_array_append_new(ranks, json_pack("{s:i, s:s}", "rank", i, "proc", proc));
    }
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_TRY(
        cairn_world_call(world, "POST", WORLD_RUN "/attempts",
                         json_pack("{s:s, s:i, s:s, s:I, s:i, s:o, s:s}", "job", job, "world_size",
                                   world_size, "resume", resume, "after", (json_int_t)after,
                                   "wait_staged_ms", 2000, "ranks", ranks, "node", "node-a"),
                         &reply));
    *ret = (struct cairn_hand){.world = world, .world_size = world_size};
    ret->attempt = cairn_world_number(reply, "attempt");
    (void)cairn_text_copy(ret->grant, sizeof(ret->grant), cairn_world_text(reply, "grant"));
    (void)cairn_text_copy(ret->nonce, sizeof(ret->nonce), cairn_world_text(reply, "nonce"));
    (void)cairn_text_copy(ret->resumed, sizeof(ret->resumed),
                          cairn_world_text(reply, "resume_version"));
    return CAIRN_OK;
}

/* ---- saves ---- */

json_t *cairn_hand_begin_body(const struct cairn_hand *hand, uint64_t step, uint32_t n,
                              uint32_t rank, const char *on_exists) {
    return json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:s, s:b, s:s, s:{s:s}, s:{s:i}}", "grant",
                     hand->grant, "node", "node-a", "step", (json_int_t)step, "n", n, "rank", rank,
                     "world_size", hand->world_size, "on_exists", on_exists, "skip", 0, "format",
                     "test-1", "labels", "kind", "test", "meta", "loss", 3);
}

enum cairn_code cairn_hand_begin(struct cairn_hand *hand, uint64_t step, uint32_t n,
                                 const char *on_exists, struct cairn_hand_save *ret) {
    *ret = (struct cairn_hand_save){.hand = hand, .step = step, .n = n};
    for (uint32_t rank = 0; rank < hand->world_size; rank++) {
        CAIRN_AUTO_JSON json_t *reply = NULL;
        CAIRN_TRY(cairn_world_call(hand->world, "POST", WORLD_RUN "/checkpoints",
                                   cairn_hand_begin_body(hand, step, n, rank, on_exists), &reply));
        (void)cairn_text_copy(ret->id.text, sizeof(ret->id.text),
                              cairn_world_text(reply, "version"));
    }
    snprintf(ret->path, sizeof(ret->path), WORLD_RUN "/checkpoints/%s", ret->id.text);
    return CAIRN_OK;
}

static struct cairn_version_place place_of(const struct cairn_hand_save *save) {
    return (struct cairn_version_place){{"llm", "seven"}, save->step, save->id};
}

static bool put_object(const struct cairn_hand_save *save, const char *name,
                       struct cairn_view bytes, const char *token, uint32_t crc) {
    struct cairn_version_place place = place_of(save);
    struct cairn_key key;
    cairn_key_shard(&place, cairn_view_of(name), &key);
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = key.text,
                                      .create = true,
                                      .token = token,
                                      .body = bytes,
                                      .has_crc32c = true,
                                      .crc32c = crc};
    struct cairn_world *world = save->hand->world;
    return !cairn_store_perform(world->worker, &put, &world->err);
}

json_t *cairn_hand_shard(const struct cairn_hand_save *save, const char *name, uint32_t rank,
                         struct cairn_view bytes) {
    CAIRN_AUTO(buf) blocks = {0};
    CAIRN_AUTO(buf) text = {0};
    uint32_t crc = cairn_crc32c(0, bytes.data, bytes.size);
    for (size_t at = 0; at < bytes.size; at += CAIRN_BLOCK_BYTES) {
        size_t size = (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, bytes.size - at);
        uint32_t block = cairn_crc32c(0, (const uint8_t *)bytes.data + at, size);
        if (cairn_buf_append_u32le(&blocks, block, NULL)) return NULL;
    }
    if (cairn_base64_encode(cairn_buf_view(&blocks), &text, NULL)) return NULL;
    char token[CAIRN_UUID_TEXT_BYTES], hex[16];
    cairn_uuid_random(token);
    snprintf(hex, sizeof(hex), "%08x", crc);
    if (!put_object(save, name, bytes, token, crc)) return NULL;
    return json_pack("{s:s, s:i, s:I, s:s, s:s, s:i, s:s}", "name", name, "rank", rank, "bytes",
                     (json_int_t)bytes.size, "crc32c", hex, "blocks", text.data ? text.data : "",
                     "part_bytes", 0, "token", token);
}

json_t *cairn_hand_seal(uint32_t rank, const char *table, const char *name, uint64_t size) {
    return json_pack("{s:i, s:s?, s:[{s:s, s:I}], s:I}", "rank", rank, "table", table, "shards",
                     "name", name, "bytes", (json_int_t)size, "bytes", (json_int_t)size);
}

enum cairn_code cairn_hand_send(const struct cairn_hand_save *save, json_t *take_shards,
                                json_t *take_seals, json_t **ret_reply) {
    char path[256];
    snprintf(path, sizeof(path), "%s/shards", save->path);
    return cairn_world_call(save->hand->world, "POST", path,
                            json_pack("{s:s, s:s, s:o, s:o}", "grant", save->hand->grant, "node",
                                      "node-a", "shards", take_shards ? take_shards : json_array(),
                                      "seals", take_seals ? take_seals : json_array()),
                            ret_reply);
}

void cairn_hand_fill(uint8_t *data, size_t size, uint64_t seed) {
    for (size_t i = 0; i < size; i++) data[i] = (uint8_t)cairn_test_random(&seed);
}

enum cairn_code cairn_hand_wait(const struct cairn_hand_save *save, json_t **ret_version) {
    char path[256];
    snprintf(path, sizeof(path), "%s?wait=20s&for=committed", save->path);
    return cairn_world_call(save->hand->world, "GET", path, NULL, ret_version);
}

enum cairn_code cairn_hand_save_all(struct cairn_hand *hand, uint64_t step, uint32_t n,
                                    const char *on_exists, size_t size,
                                    struct cairn_hand_save *ret) {
    CAIRN_TRY(cairn_hand_begin(hand, step, n, on_exists, ret));
    CAIRN_AUTO_HEAP uint8_t *data = malloc(size + 1);
    for (uint32_t rank = 0; rank < hand->world_size; rank++) {
        char name[32];
        snprintf(name, sizeof(name), "rank-%05u/x", rank);
        cairn_hand_fill(data, size, step + rank);
        json_t *shard = cairn_hand_shard(ret, name, rank, (struct cairn_view){data, size});
        CAIRN_TRY(cairn_hand_send(ret, json_pack("[o]", shard),
                                  json_pack("[o]", cairn_hand_seal(rank, NULL, name, size)), NULL));
    }
    CAIRN_AUTO_JSON json_t *version = NULL;
    CAIRN_TRY(cairn_hand_wait(ret, &version));
    if (strcmp(cairn_world_text(version, "state"), "committed"))
        return cairn_fail(&hand->world->err, CAIRN_NOT_COMMITTED, "it is %s: %s",
                          cairn_world_text(version, "state"), cairn_world_text(version, "reason"));
    return CAIRN_OK;
}

bool cairn_hand_start(struct cairn_world *world, struct cairn_hand *ret,
                      struct cairn_hand_save *ret_saves, size_t count) {
    if (!cairn_world_start(world, WORLD_ARGS("--sweep-interval=50ms"), NULL)) return false;
    if (cairn_hand_open(world, ret, "j1", 0, "latest", 1)) return false;
    for (size_t i = 0; i < count; i++)
        if (cairn_hand_save_all(ret, 100 * (i + 1), 1, "error", 10, &ret_saves[i])) return false;
    return true;
}
