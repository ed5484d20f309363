/* SPDX-License-Identifier: Apache-2.0 */
/* A real server and saves made by hand; see world.h. */
#include "tests/server/world.h"

#include <ftw.h>

/* ---- the server ---- */

static bool start_server(struct cairn_world *world, const char *const *extra,
                         const char *const *env) {
    const char *store = TEXT("--store=%s", world->store_path);
    const char *data = TEXT("--data-dir=%s", world->data_path);
    const char *args[29] = {store, data, "--listen=127.0.0.1:0",
                            TEXT("--catalog=%s", world->catalog)};
    for (size_t i = 0; extra && extra[i] && i < 24; i++) args[4 + i] = extra[i];
    struct cairn_daemon_options options = {
        .program = "cairn-server", .folder = world->folder, .args = args, .env = env};
    if (cairn_daemon_start(&options, &world->server, &world->err)) return false;
    struct cairn_rest_options rest = {.url = world->server.url};
    return !cairn_rest_new(&rest, &world->rest, &world->err);
}

bool world_start(struct cairn_world *world, const char *const *extra, const char *const *env) {
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

const char *world_points(void) {
    static char variable[400];
    snprintf(variable, sizeof(variable), "CAIRN_CRASH_LIST=%s/points", cairn_test_folder());
    return variable;
}

unsigned world_passed(const char *point) {
    char line[128];
    unsigned times = 0;
    FILE *file = fopen(strchr(world_points(), '/'), "re");
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        times += !strcmp(line, point);
    }
    if (file) fclose(file);
    return times;
}

bool world_start_inside(struct cairn_world *world, const char *const *extra) {
    snprintf(world->folder, sizeof(world->folder), "%s", cairn_test_folder());
    snprintf(world->store_path, sizeof(world->store_path), "%s/store", world->folder);
    snprintf(world->data_path, sizeof(world->data_path), "%s/data", world->folder);
    world->is_inside = true;
    snprintf(world->inside.catalog, sizeof(world->inside.catalog), "%s", world->catalog);
    enum cairn_code code = inside_start(&world->inside, world->folder, extra);
    snprintf(world->catalog, sizeof(world->catalog), "%s", world->inside.catalog);
    world->err = world->inside.err;
    world->store = world->inside.server.store;
    world->worker = world->inside.worker;
    return !code;
}

bool world_restart(struct cairn_world *world, const char *const *extra, const char *const *env) {
    cairn_daemon_release(&world->server);
    cairn_rest_free(world->rest);
    world->rest = NULL;
    return start_server(world, extra, env);
}

bool world_lose_catalog(struct cairn_world *world) {
    if (world->catalog[0]) return cairn_postgres_empty(world->catalog);
    EACH_TEXT(text, "catalog.db", "catalog.db-wal", "catalog.db-shm") {
        const char *path = TEXT("%s/%s", world->data_path, text);
        if (unlink(path) && AT_OF(text) == 0) return false;
    }
    return true;
}

bool world_start_to_die(struct cairn_world *world, const char *const *extra, const char *point) {
    return world_start(world, extra, WORLD_ARGS(TEXT("CAIRN_CRASH_AT=%s", point)));
}

bool world_died(struct cairn_world *world) {
    return cairn_daemon_ended(&world->server, HANG_MS) && WIFSIGNALED(world->server.status) &&
           WTERMSIG(world->server.status) == SIGKILL;
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
    int status = cairn_daemon_stop(&world->server, SIGTERM, HANG_MS);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(!cairn_daemon_logged(&world->server, "Sanitizer"));
}

static int remove_entry(const char *path, const struct stat *status, int kind,
                        struct FTW *position) {
    (void)status, (void)kind;
    return position->level ? remove(path) : 0;
}

bool world_forget(const char *folder) {
    return !nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

bool world_end(struct cairn_world *world) {
    cairn_world_release(world);
    *world = (struct cairn_world){0};
    return world_forget(cairn_test_folder());
}

enum cairn_code world_call(struct cairn_world *world, const char *method, const char *path,
                           json_t *take_body, json_t **ret_reply) {
    CAIRN_AUTO_JSON json_t *body = take_body;
    if (world->is_inside) {
        enum cairn_code code =
            inside_call(&world->inside, method, path, CAIRN_TAKE(body), ret_reply);
        world->err = world->inside.err;
        return code;
    }
    world->err = (struct cairn_error){0};
    return cairn_rest_call(world->rest, method, path, body, 0, ret_reply, &world->err);
}

const char *world_text(const json_t *reply, const char *name) {
    const char *text = json_string_value(json_object_get(reply, name));
    return text ? text : "(none)";
}

uint64_t world_number(const json_t *reply, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(reply, name));
}

enum cairn_code cairn_say(struct cairn_world *world, const char *method, const char *path,
                          const char *body, json_t **ret_reply) {
    return world_call(world, method, path, body ? json_loads(body, 0, NULL) : NULL, ret_reply);
}

enum cairn_code cairn_change(struct cairn_world *world, const char *match, const char *method,
                             const char *path, const char *body, json_t **ret_reply) {
    CAIRN_TRY(cairn_rest_set_if_match(world->rest, match, &world->err));
    enum cairn_code code = cairn_say(world, method, path, body, ret_reply);
    return cairn_rest_set_if_match(world->rest, NULL, NULL) ? CAIRN_INTERNAL : code;
}

int world_raw(const struct cairn_world *world, const char *request, struct cairn_buf *ret) {
    CAIRN_AUTO(buf) ignored = {0};
    return cairn_raw_exchange(world->server.port, request, strlen(request), ret ? ret : &ignored);
}

int world_ask(const struct cairn_world *world, const char *method, const char *path,
              const char *headers, const char *body, struct cairn_buf *ret) {
    CAIRN_AUTO(buf) request = {.limit = CAIRN_GIB};
    const char *type = "Content-Type: application/json\r\nContent-Length: ";
    if (cairn_buf_printf(&request, NULL, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path,
                         headers) ||
        (body && cairn_buf_printf(&request, NULL, "%s%zu\r\n", type, strlen(body))) ||
        cairn_buf_append_text(&request, "\r\n", NULL) ||
        cairn_buf_append_text(&request, body ? body : "", NULL))
        return -1;
    return world_raw(world, request.data, ret);
}

const char *cairn_body_of(const struct cairn_buf *reply) {
    const char *end = reply->data ? strstr(reply->data, "\r\n\r\n") : NULL;
    return end ? end + 4 : "";
}

const char *world_check(struct cairn_world *world, const char *name) {
    CAIRN_AUTO_JSON json_t *said = NULL;
    bool ready = !world_call(world, "GET", "/readyz", NULL, &said);
    const json_t *problem =
        world->is_inside ? world->inside.extra : cairn_rest_problem(world->rest);
    return TEXT("%s", world_text(json_object_get(ready ? said : problem, "checks"), name));
}

static void *call_there(void *argument) {
    struct cairn_calling *calling = argument;
    struct cairn_rest_options options = {.url = calling->world->server.url};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    uint64_t from_ms = cairn_mono_ms();
    calling->id = gettid();
    enum cairn_code code = cairn_rest_new(&options, &rest, &calling->why);
    if (!code && calling->wait_ms)
        code =
            cairn_rest_wait(rest, calling->path, calling->wait_ms, &calling->reply, &calling->why);
    else if (!code)
        code = cairn_rest_call(rest, calling->method, calling->path, calling->body, 0,
                               &calling->reply, &calling->why);
    calling->answered_us = cairn_mono_us();
    calling->took_ms = cairn_mono_ms() - from_ms;
    calling->code = code;
    calling->done = true;
    return NULL;
}

bool calling_begin(struct cairn_calling *ret, const struct cairn_world *world, const char *method,
                   const char *path, json_t *take_body) {
    *ret = (struct cairn_calling){.world = world, .method = method, .body = take_body};
    ret->path = TEXT("%s", path);
    ret->begun = !pthread_create(&ret->thread, NULL, call_there, ret);
    return ret->begun;
}

bool calling_wait(struct cairn_calling *ret, const struct cairn_world *world, const char *path,
                  uint32_t wait_ms) {
    *ret = (struct cairn_calling){.world = world, .path = TEXT("%s", path), .wait_ms = wait_ms};
    ret->begun = !pthread_create(&ret->thread, NULL, call_there, ret);
    return ret->begun;
}

bool calling_is_held(const struct cairn_calling *calling) {
    return calling->id && cairn_test_thread_sleeps(calling->id) &&
           cairn_raw_all_read(calling->world->server.port);
}

enum cairn_code calling_end(struct cairn_calling *calling) {
    if (calling->begun) pthread_join(calling->thread, NULL);
    calling->begun = false;
    return calling->code;
}

void cairn_calling_release(struct cairn_calling *calling) {
    (void)calling_end(calling);
    json_decref(calling->body);
    json_decref(calling->reply);
    *calling = (struct cairn_calling){0};
}

const char *cairn_items(const json_t *page, const char *list, const char *member) {
    const char *text = "";
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach(json_object_get(page, list), index, item) {
        const json_t *found = json_object_get(item, member);
        text = json_is_integer(found)
                   ? TEXT("%s%s%lld", text, index ? " " : "", (long long)json_integer_value(found))
                   : TEXT("%s%s%s", text, index ? " " : "", world_text(item, member));
    }
    return text;
}

json_t *cairn_item(const json_t *page, const char *list, const char *member, const char *text) {
    size_t index = 0;
    json_t *item = NULL, *found = NULL;
    json_array_foreach(json_object_get(page, list), index, item)
        if (!strcmp(world_text(item, member), text)) found = item;
    return found;
}

/* ---- the store ---- */

uint64_t cairn_listed(struct cairn_store_worker *worker, enum cairn_store_op op,
                      const char *prefix) {
    CAIRN_AUTO(store_listing) listing = {0};
    struct cairn_store_request list = {.op = op, .key = prefix, .listing = &listing};
    return cairn_store_perform(worker, &list, NULL) ? 999 : listing.count;
}

bool world_holds(struct cairn_world *world, const struct cairn_key *key) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key->text};
    return !cairn_store_perform(world->worker, &head, NULL);
}

const char *world_file(const struct cairn_world *world, const struct cairn_key *key) {
    return TEXT("%s/%s", world->store_path, key->text);
}

bool cairn_flip_byte(const char *path, long offset) {
    uint8_t byte = 0;
    (void)chmod(path, 0600);
    CAIRN_AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    off_t at = fd < 0 ? -1 : lseek(fd, offset, offset < 0 ? SEEK_END : SEEK_SET);
    if (at < 0 || pread(fd, &byte, 1, at) != 1) return false;
    byte ^= 1;
    return pwrite(fd, &byte, 1, at) == 1;
}

/* ---- replies ---- */

/* The member that a name leads to, or NULL; ret_size: its size is meant. */
static const json_t *member_of(const json_t *json, const char *name, bool *ret_size) {
    const json_t *whole = json_object_get(json, name);
    if (whole) return whole;
    const char *dot = strchr(name, '.');
    *ret_size = !strcmp(name, "#");
    if (*ret_size) return json;
    const char *part = TEXT("%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
    json = json_is_array(json) ? json_array_get(json, strtoul(part, NULL, 10))
                               : json_object_get(json, part);
    return dot && json ? member_of(json, dot + 1, ret_size) : json;
}

bool world_shows(const char *file, int line, const json_t *json, const char *const *pairs) {
    bool all = true;
    for (; pairs[0]; pairs += 2) {
        bool size = false;
        const json_t *member = member_of(json, pairs[0], &size);
        CAIRN_AUTO_HEAP char *dumped =
            member && !json_is_string(member) ? json_dumps(member, JSON_ENCODE_ANY) : NULL;
        const char *text = dumped ? dumped : member ? json_string_value(member) : "(none)";
        if (size) text = cairn_test_text("%zu", json_array_size(member));
        all &= cairn_test_check(!strcmp(text, pairs[1]), file, line, "%s: %s, wanted %s", pairs[0],
                                text, pairs[1]);
    }
    return all;
}

/* ---- rows ---- */

struct row_query {
    const char *sql;
    int64_t number;
};

static enum cairn_code change_rows(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct row_query *query = argument;
    const struct srv_statement statement = {"test", "", query->sql};
    return srv_sql_run(tx, NULL, err, &statement);
}

static enum cairn_code count_rows(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    struct row_query *query = argument;
    bool found = false;
    const struct srv_statement statement = {"test", "", query->sql};
    return srv_sql_number(tx, &found, &query->number, err, &statement);
}

bool world_sql(struct cairn_world *world, const char *sql) {
    struct row_query query = {.sql = sql};
    return !srv_catalog_write(world->inside.server.catalog, change_rows, &query, &world->err);
}

uint64_t world_count(struct cairn_world *world, const char *sql) {
    struct row_query query = {.sql = sql, .number = -1};
    (void)!look_by(world->inside.server.catalog, count_rows, &query, &world->err);
    return (uint64_t)query.number;
}

uint64_t world_tick(struct cairn_world *world) {
    return world_count(world, "SELECT value FROM ticks");
}

/* ---- attempts ---- */

enum cairn_code hand_open(struct cairn_world *world, struct cairn_hand *ret, const char *job,
                          uint64_t after, const char *resume, uint32_t world_size) {
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < world_size; i++) {
        (void)!json_array_append_new(
            ranks, json_pack("{s:i, s:s}", "rank", i, "proc", TEXT("%s-%u", job, i)));
    }
    CAIRN_AUTO_JSON json_t *reply = NULL;
    CAIRN_TRY(world_call(world, "POST", WORLD_RUN "/attempts",
                         json_pack("{s:s, s:i, s:s, s:I, s:i, s:o, s:s}", "job", job, "world_size",
                                   world_size, "resume", resume, "after", (json_int_t)after,
                                   "wait_staged_ms", 2000, "ranks", ranks, "node", "node-a"),
                         &reply));
    *ret = (struct cairn_hand){.world = world, .world_size = world_size};
    ret->attempt = world_number(reply, "attempt");
    (void)cairn_text_copy(ret->grant, sizeof(ret->grant), world_text(reply, "grant"));
    (void)cairn_text_copy(ret->nonce, sizeof(ret->nonce), world_text(reply, "nonce"));
    (void)cairn_text_copy(ret->resumed, sizeof(ret->resumed), world_text(reply, "resume_version"));
    return CAIRN_OK;
}

/* ---- saves ---- */

json_t *hand_begin_body(const struct cairn_hand *hand, uint64_t step, uint32_t n, uint32_t rank,
                        const char *on_exists) {
    return json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:s, s:b, s:s, s:{s:s}, s:{s:i}}", "grant",
                     hand->grant, "node", "node-a", "step", (json_int_t)step, "n", n, "rank", rank,
                     "world_size", hand->world_size, "on_exists", on_exists, "skip", 0, "format",
                     "test-1", "labels", "kind", "test", "meta", "loss", 3);
}

enum cairn_code hand_begin_by(struct cairn_hand *hand, json_t *take_body,
                              struct cairn_hand_save *ret, json_t **ret_reply) {
    *ret = (struct cairn_hand_save){.hand = hand,
                                    .step = world_number(take_body, "step"),
                                    .n = (uint32_t)world_number(take_body, "n")};
    CAIRN_TRY(world_call(hand->world, "POST", WORLD_RUN "/checkpoints", take_body, ret_reply));
    (void)cairn_text_copy(ret->id.text, sizeof(ret->id.text), world_text(*ret_reply, "version"));
    snprintf(ret->path, sizeof(ret->path), WORLD_RUN "/checkpoints/%s", ret->id.text);
    return CAIRN_OK;
}

enum cairn_code hand_begin(struct cairn_hand *hand, uint64_t step, uint32_t n,
                           const char *on_exists, struct cairn_hand_save *ret) {
    for (uint32_t rank = 0; rank < hand->world_size; rank++) {
        CAIRN_AUTO_JSON json_t *reply = NULL;
        CAIRN_TRY(
            hand_begin_by(hand, hand_begin_body(hand, step, n, rank, on_exists), ret, &reply));
    }
    return CAIRN_OK;
}

struct cairn_version_place hand_place(const struct cairn_hand_save *save) {
    return (struct cairn_version_place){{"llm", "seven"}, save->step, save->id};
}

static bool put_object(const struct cairn_hand_save *save, const char *name,
                       struct cairn_view bytes, const char *token, uint32_t crc) {
    struct cairn_version_place place = hand_place(save);
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

json_t *hand_shard(const struct cairn_hand_save *save, const char *name, uint32_t rank,
                   struct cairn_view bytes) {
    CAIRN_AUTO(buf) blocks = {0}, text = {0};
    uint32_t crc = cairn_crc32c(0, bytes.data, bytes.size);
    for (size_t at = 0; at < bytes.size; at += CAIRN_BLOCK_BYTES) {
        size_t size = (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, bytes.size - at);
        uint32_t block = cairn_crc32c(0, (const uint8_t *)bytes.data + at, size);
        if (cairn_buf_append_u32le(&blocks, block, NULL)) return NULL;
    }
    if (cairn_base64_encode(cairn_buf_view(&blocks), &text, NULL)) return NULL;
    char token[CAIRN_UUID_TEXT_BYTES];
    cairn_uuid_random(token);
    const char *hex = TEXT("%08x", crc);
    if (!put_object(save, name, bytes, token, crc)) return NULL;
    return json_pack("{s:s, s:i, s:I, s:s, s:s, s:i, s:s}", "name", name, "rank", rank, "bytes",
                     (json_int_t)bytes.size, "crc32c", hex, "blocks", text.data ? text.data : "",
                     "part_bytes", 0, "token", token);
}

json_t *hand_seal(uint32_t rank, const char *table, const char *name, uint64_t size) {
    return json_pack("{s:i, s:s?, s:[{s:s, s:I}], s:I}", "rank", rank, "table", table, "shards",
                     "name", name, "bytes", (json_int_t)size, "bytes", (json_int_t)size);
}

static json_t *sent(const struct cairn_hand_save *save, json_t *take_shards, json_t *take_seals) {
    return json_pack("{s:s, s:s, s:o, s:o}", "grant", save->hand->grant, "node", "node-a", "shards",
                     take_shards ? take_shards : json_array(), "seals",
                     take_seals ? take_seals : json_array());
}

enum cairn_code hand_send(const struct cairn_hand_save *save, json_t *take_shards,
                          json_t *take_seals, json_t **ret_reply) {
    return hand_post(save, "shards", sent(save, take_shards, take_seals), ret_reply);
}

bool hand_send_begin(const struct cairn_hand_save *save, json_t *take_seals,
                     struct cairn_calling *ret) {
    return calling_begin(ret, save->hand->world, "POST", TEXT("%s/shards", save->path),
                         sent(save, NULL, take_seals));
}

enum cairn_code hand_put(const struct cairn_hand_save *save, const char *name, uint32_t rank,
                         struct cairn_view bytes) {
    return hand_send(save, json_pack("[o]", hand_shard(save, name, rank, bytes)),
                     json_pack("[o]", hand_seal(rank, NULL, name, bytes.size)), NULL);
}

enum cairn_code hand_register(const struct cairn_hand_save *save, const char *name, uint32_t rank,
                              struct cairn_view bytes) {
    return hand_send(save, json_pack("[o]", hand_shard(save, name, rank, bytes)), NULL, NULL);
}

enum cairn_code hand_seal_alone(const struct cairn_hand_save *save, uint32_t rank, const char *name,
                                uint64_t size) {
    return hand_send(save, NULL, json_pack("[o]", hand_seal(rank, NULL, name, size)), NULL);
}

void hand_fill(uint8_t *data, size_t size, uint64_t seed) {
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = cairn_test_random(&seed);
        memcpy(data + at, &word, cairn_min_u64(sizeof word, size - at));
    }
}

enum cairn_code hand_wait(const struct cairn_hand_save *save, json_t **ret_version) {
    const char *path = TEXT("%s?wait=20s&for=committed", save->path);
    return world_call(save->hand->world, "GET", path, NULL, ret_version);
}

enum cairn_code hand_save_all(struct cairn_hand *hand, uint64_t step, uint32_t n,
                              const char *on_exists, size_t size, struct cairn_hand_save *ret) {
    CAIRN_TRY(hand_begin(hand, step, n, on_exists, ret));
    CAIRN_AUTO_HEAP uint8_t *data = malloc(size + 1);
    for (uint32_t rank = 0; rank < hand->world_size; rank++) {
        const char *name = TEXT("rank-%05u/x", rank);
        hand_fill(data, size, step + rank);
        CAIRN_TRY(hand_put(ret, name, rank, (struct cairn_view){data, size}));
    }
    CAIRN_AUTO_JSON json_t *version = NULL;
    CAIRN_TRY(hand_wait(ret, &version));
    if (strcmp(world_text(version, "state"), "committed"))
        return cairn_fail(&hand->world->err, CAIRN_NOT_COMMITTED, "it is %s: %s",
                          world_text(version, "state"), world_text(version, "reason"));
    return CAIRN_OK;
}

enum cairn_code hand_saves(struct cairn_hand *hand, struct cairn_hand_save *ret_saves,
                           size_t count) {
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(hand_save_all(hand, i + 1, 1, "error", 10, &ret_saves[i]));
    return CAIRN_OK;
}

void hand_key(const struct cairn_hand_save *save,
              void (*make)(const struct cairn_version_place *place, struct cairn_key *ret),
              struct cairn_key *ret) {
    struct cairn_version_place place = hand_place(save);
    make(&place, ret);
}

void hand_shard_key(const struct cairn_hand_save *save, const char *name, struct cairn_key *ret) {
    struct cairn_version_place place = hand_place(save);
    cairn_key_shard(&place, cairn_view_of(name), ret);
}

const char *hand_state(const struct cairn_hand_save *save) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    enum cairn_code code = world_call(save->hand->world, "GET", save->path, NULL, &version);
    return code ? cairn_code_info(code)->slug : TEXT("%s", world_text(version, "state"));
}

enum cairn_code hand_post(const struct cairn_hand_save *save, const char *verb, json_t *take_body,
                          json_t **ret_reply) {
    return world_call(save->hand->world, "POST", TEXT("%s/%s", save->path, verb), take_body,
                      ret_reply);
}

uint64_t hand_objects(const struct cairn_hand_save *save) {
    KEY(prefix, version_prefix, save);
    return cairn_listed(save->hand->world->worker, CAIRN_STORE_LIST, prefix.text);
}

const char *hand_file(const struct cairn_hand_save *save) {
    SHARD_KEY(key, save, "rank-00000/x");
    return world_file(save->hand->world, &key);
}

const char *hand_download(const struct cairn_hand_save *save) {
    return TEXT("GET %s/shards/rank-00000%%2Fx/data HTTP/1.1\r\nHost: localhost\r\nConnection: "
                "close\r\n\r\n",
                save->path);
}

enum cairn_code hand_beat(const struct cairn_hand *hand, const char *node) {
    return hand_unsent(hand, node, 0, NULL);
}

enum cairn_code hand_unsent(const struct cairn_hand *hand, const char *node, int unsent,
                            json_t **ret_reply) {
    return world_call(hand->world, "PUT", TEXT("/v1/nodes/%s", node),
                      json_pack("{s:{s:s}, s:[{s:s, s:i}], s:[]}", "uploader", "version", "1",
                                "attempts", "grant", hand->grant, "unsent", unsent, "versions"),
                      ret_reply);
}

int hand_table(const struct cairn_hand *hand, struct cairn_view table, const char *hex) {
    struct cairn_world *world = hand->world;
    if (world->is_inside)
        return inside_bytes(&world->inside, "PUT", TEXT(WORLD_RUN "/tables/%s", hex), hand->grant,
                            table)
                   ? -1
                   : world->inside.status;
    CAIRN_AUTO(buf) request = {.limit = CAIRN_GIB};
    CAIRN_AUTO(buf) reply = {0};
    const char *head =
        TEXT("PUT " WORLD_RUN "/tables/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
             "application/octet-stream\r\nX-Cairn-Grant: %s\r\nContent-Length: %zu\r\n\r\n",
             hex, hand->grant, table.size);
    if (cairn_buf_append_text(&request, head, NULL) ||
        cairn_buf_append(&request, table.data, table.size, NULL))
        return -1;
    return cairn_raw_exchange(world->server.port, request.data, request.size, &reply);
}

bool hand_start(struct cairn_world *world, struct cairn_hand *ret,
                struct cairn_hand_save *ret_saves, size_t count) {
    if (!world_start(world, WORLD_ARGS("--sweep-interval=50ms"), NULL)) return false;
    if (hand_open(world, ret, "j1", 0, "latest", 1)) return false;
    for (size_t i = 0; i < count; i++)
        if (hand_save_all(ret, 100 * (i + 1), 1, "error", 10, &ret_saves[i])) return false;
    return true;
}
