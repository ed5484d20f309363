/* SPDX-License-Identifier: Apache-2.0 */
/* Each story is a fiber of the world; docs/protocol.md section 4 tells what follows from it. */
#include "tests/sim/stories.h"

#include "api/wire/rest.h"
#include "api/wire/rights.h"
#include "common/file.h"
#include "common/text.h"
#include "tests/sim/world.h"
#include "uploader/saves/save.h"
#include "uploader/send/shards.h"

#define STORIES_MAX 8
#define SECOND_US UINT64_C(1000000)
#define MANIFESTS_MAX 64
#define STRAY_PROJECT "lab"
#define STRAY_RUN "other"
#define STRAY_PATH "/v1/runs/" STRAY_PROJECT "/" STRAY_RUN

static struct sim_fiber *stories[STORIES_MAX];
static size_t story_count;
static bool ending; /* the chaos is over: stories without an end of their own end */

static void used(enum sim_fault fault) {
    sim_world.used |= UINT64_C(1) << fault;
}

/* ---- KEY_CHANGED (V33) ---- */

/* Not over the last job: its ranks would be told that nothing of theirs can be saved any more. */
static void *key_changed(void *unused) {
    (void)unused;
    char path[300];
    uint8_t key[CAIRN_GRANT_KEY_BYTES];
    sim_sleep_us(sim_between(SECOND_US / 10, 3 * SECOND_US));
    if (sim_world.job + 1 >= (int)sim_plan.jobs) return NULL;
    sim_world_kill_server(sim_below(SECOND_US / 2));
    for (size_t i = 0; i < sizeof key; i++) key[i] = (uint8_t)sim_random();
    snprintf(path, sizeof path, "%s/server/grant.key", sim_world.folder);
    if (cairn_file_replace(path, (struct cairn_view){key, sizeof key}, 0600, NULL) != CAIRN_OK)
        return NULL; /* the server was never there */
    sim_note("the grant key is another one");
    used(SIM_KEY_CHANGED);
    return NULL;
}

/* ---- BAD_META (V34) ---- */

/* What another release of the server would not take, in every save of which the hash says so. */
bool sim_stories_refuses(uint64_t step) {
    return sim_has(SIM_BAD_META) && (step + sim_plan.seed) % 3 == 0;
}

static bool is_refused(const json_t *begin) {
    uint64_t step = (uint64_t)json_integer_value(json_object_get(begin, "step"));
    uint64_t rank = (uint64_t)json_integer_value(json_object_get(begin, "rank"));
    return rank == sim_plan.seed % sim_plan.ranks && sim_stories_refuses(step);
}

static bool spoil_begins(json_t *body) {
    json_t *begins = json_object_get(body, "begins");
    bool spoiled = false;
    for (size_t i = 0; i < json_array_size(begins); i++) {
        json_t *begin = json_array_get(begins, i);
        if (!is_refused(begin)) continue;
        json_object_set_new(begin, "on_exists", json_string("as-it-pleases"));
        spoiled = true;
    }
    return spoiled;
}

void sim_stories_spoil(struct sim_exchange *exchange) {
    static const char end[] = "/checkpoints";
    size_t size = strlen(exchange->target);
    if (!sim_has(SIM_BAD_META) || strcmp(exchange->method, "POST") != 0 || size < sizeof end ||
        strcmp(exchange->target + size - (sizeof end - 1), end) != 0)
        return;
    json_t *body = json_loadb((const char *)exchange->body, exchange->body_bytes, 0, NULL);
    if (body && spoil_begins(body)) {
        free(exchange->body);
        exchange->body = (uint8_t *)json_dumps(body, JSON_COMPACT);
        exchange->body_bytes = strlen((const char *)exchange->body);
        used(SIM_BAD_META);
    }
    json_decref(body);
}

/* ---- LONG_AWAY (V35) ---- */

static void *long_away(void *unused) {
    (void)unused;
    int node = (int)sim_below(SIM_NODES);
    sim_sleep_us(sim_between(SECOND_US / 10, 3 * SECOND_US));
    uint64_t us = sim_between(65 * SECOND_US, 200 * SECOND_US);
    sim_store_faults.node_away_until_us[node] = sim_now_us() + us;
    sim_note("node %d does not reach the store for %.0f s", node, (double)us / 1e6);
    used(SIM_LONG_AWAY);
    sim_sleep_us(us);
    return NULL;
}

/* ---- UPGRADE (V37) ---- */

static char *foreign[MANIFESTS_MAX]; /* keys of manifests that say something else */
static size_t foreign_count;

static bool version_in(const char *key, char ret[CAIRN_VERSION_ID_BYTES]) {
    static const char end[] = "/manifest.json";
    size_t size = strlen(key);
    if (size < sizeof end || strcmp(key + size - (sizeof end - 1), end) != 0) return false;
    const char *last = key + size - (sizeof end - 1), *first = last;
    while (first > key && first[-1] != '/') first--;
    if ((size_t)(last - first) >= CAIRN_VERSION_ID_BYTES) return false;
    memcpy(ret, first, (size_t)(last - first));
    ret[last - first] = '\0';
    return true;
}

/* Another release writes the same in other bytes; a faulty one writes something else. */
static void write_otherwise(const char *key) {
    const struct sim_object *object = sim_bucket_find(&sim_bucket, key);
    json_t *manifest = json_loadb((const char *)object->bytes, object->size, 0, NULL);
    bool same = sim_chance(700) || foreign_count == MANIFESTS_MAX;
    if (!same) {
        json_object_set_new(manifest, "format", json_string("of-another"));
        foreign[foreign_count++] = strdup(key);
    }
    char *text = json_dumps(manifest, JSON_INDENT(1));
    char *copy = strdup(key);
    sim_bucket_meddle(copy, text, strlen(text));
    free(copy);
    free(text);
    json_decref(manifest);
    used(SIM_UPGRADE);
}

static void *upgrade(void *unused) {
    (void)unused;
    for (size_t i = 0; i < sim_bucket.object_count; i++) {
        char id[CAIRN_VERSION_ID_BYTES];
        const char *key = sim_bucket.objects[i].key;
        if (version_in(key, id) && sim_check_is_open(id)) write_otherwise(key);
    }
    return NULL;
}

static bool dies_for_upgrade(const char *point) {
    if (!sim_has(SIM_UPGRADE) || strcmp(point, "server.commit.after_manifest") != 0 ||
        !sim_chance(150))
        return false;
    sim_world.server_from_us = sim_now_us() + sim_between(SECOND_US / 100, SECOND_US);
    sim_spawn_alone(sim_process_of(1), upgrade, NULL);
    return true;
}

/* The operator that readyz called takes what is wrong away. */
static void remove_foreign(void) {
    for (size_t i = 0; i < foreign_count; i++)
        if (sim_bucket_find(&sim_bucket, foreign[i])) sim_bucket_meddle(foreign[i], NULL, 0);
}

/* ---- TORN (V26) ---- */

static struct cairn_up_save *being_sent(int node, size_t *ret_shard) {
    const struct sim_process *process = sim_world.uploaders[node];
    struct cairn_up *up = process && process->alive ? sim_world.up[node] : NULL;
    for (size_t i = 0; up && i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        for (size_t k = 0; save->slab && k < save->state.shard_count; k++) {
            *ret_shard = k;
            const struct cairn_up_shard *shard = save->shards[k];
            bool sent = shard->queue.bodies_in_flight && shard->queue.data && shard->size_bytes;
            /* What is offered to it an uploader maps to read only. */
            if (sent && save->slab->memory.writable) return save;
        }
    }
    return NULL;
}

static void *torn(void *unused) {
    (void)unused;
    for (int written = 0; written < 3 && !ending;) {
        size_t index = 0;
        sim_sleep_us(sim_between(500, 20000));
        struct cairn_up_save *save = being_sent((int)sim_below(SIM_NODES), &index);
        if (!save || !sim_chance(100)) continue;
        const struct cairn_up_shard *shard = save->shards[index];
        ((uint8_t *)(uintptr_t)shard->queue.data)[sim_below(shard->size_bytes)] ^= 0x10;
        sim_note("somebody writes to %s of %s", shard->name, save->place.id.text);
        used(SIM_TORN);
        written++;
    }
    return NULL;
}

/* ---- STRAY_RECORD (V40) ---- */

static bool stray_frozen;

static enum cairn_code ask(struct cairn_rest *rest, const char *method, const char *path,
                           const json_t *body) {
    struct cairn_error err = {0};
    json_t *answer = NULL;
    enum cairn_code code = cairn_rest_call(rest, method, path, body, 3000, &answer, &err);
    json_decref(answer);
    return code;
}

static bool open_stray(struct cairn_rest *rest) {
    json_t *body = json_pack("{s:s, s:I, s:s, s:I, s:[{s:I, s:s}], s:s}", "job", "stray",
                             "world_size", (json_int_t)1, "resume", "none", "after", (json_int_t)0,
                             "ranks", "rank", (json_int_t)0, "proc", "nobody", "node", "elsewhere");
    enum cairn_code code = CAIRN_UNAVAILABLE;
    for (int i = 0; i < 100 && code && !ending; i++) {
        code = ask(rest, "POST", STRAY_PATH "/attempts", body);
        if (code) sim_sleep_us(SECOND_US / 5);
    }
    json_decref(body);
    return !code;
}

static void write_stray(void) {
    static const char text[] = "{\"attempt\":2,\"job\":\"of another catalog\"}";
    struct cairn_run_name name = {0};
    struct cairn_key key;
    (void)cairn_text_copy(name.project, sizeof name.project, STRAY_PROJECT);
    (void)cairn_text_copy(name.run, sizeof name.run, STRAY_RUN);
    cairn_key_attempt(&name, 2, &key);
    sim_bucket_meddle(key.text, text, sizeof text - 1);
}

/* From the server's next life on that run is frozen, and stays so over any other. */
static void look_at_stray(struct cairn_rest *rest) {
    enum cairn_code code = ask(rest, "GET", STRAY_PATH "/checkpoints/latest", NULL);
    if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT || code == CAIRN_BUSY) return;
    if (stray_frozen && code != CAIRN_CATALOG_BEHIND)
        sim_violation("V40: the run with the stray record was frozen and is thawed (%s)",
                      cairn_code_info(code)->slug);
    stray_frozen |= code == CAIRN_CATALOG_BEHIND;
}

static void *stray_record(void *unused) {
    (void)unused;
    struct cairn_rest_options options = {.url = "http://server"};
    struct cairn_rest *rest = NULL;
    if (cairn_rest_new(&options, &rest, NULL) != CAIRN_OK || !open_stray(rest)) return NULL;
    sim_sleep_us(sim_below(2 * SECOND_US));
    write_stray();
    used(SIM_STRAY_RECORD);
    sim_world_kill_server(sim_below(SECOND_US));
    for (int patience = 60; patience; sim_sleep_us(SECOND_US / 2)) {
        look_at_stray(rest);
        if (ending) patience = stray_frozen ? 0 : patience - 1;
    }
    if (!stray_frozen) sim_violation("V40: the run with the stray record is not frozen");
    return NULL;
}

/* ---- RANK_KILL (V41) ---- */

/* stories.h#2: one that nobody knew yet, and one whose end a backup makes the catalog forget, leave
 * versions open until open_max. */
static void *rank_kill(void *unused) {
    (void)unused;
    uint32_t rank = (uint32_t)sim_below(sim_plan.ranks);
    sim_sleep_us(sim_between(SECOND_US / 5, sim_plan.chaos_us));
    while (!ending && !sim_check_all_began()) sim_sleep_us(sim_between(1000, SECOND_US / 5));
    if (ending || !sim_world.training[rank] || sim_has(SIM_BACKUP)) return NULL;
    used(SIM_RANK_KILL);
    if (sim_chance(300)) sim_world_kill_uploader(sim_node_of(rank), sim_below(2 * SECOND_US));
    sim_world_kill_rank(rank);
    return NULL;
}

/* ---- REUSED_JOB (V38) ---- */

/* stories.h#2 */
static bool is_reported(void) {
    for (int i = 0; i < 50; i++) {
        if (sim_check_ended_ranks()) return true;
        sim_sleep_us(SECOND_US / 10);
    }
    return false;
}

void sim_stories_name_job(void) {
    char number[16];
    sim_world.job_string = sim_world.job;
    if (!sim_has(SIM_REUSED_JOB)) return;
    snprintf(number, sizeof number, "%d", sim_world.job);
    if (sim_plan.incarnations) {
        (void)setenv("TORCHELASTIC_RUN_ID", "sim", 1);
        (void)setenv("TORCHELASTIC_RESTART_COUNT", number, 1);
    }
    if (sim_world.job != 1 || (!sim_plan.incarnations && !is_reported())) return;
    sim_world.job_string = 0;
    used(SIM_REUSED_JOB);
    sim_note("the job string of the job before is used again");
}

/* ---- DISK_FULL_LONG (V29) ---- */

static void *disk_has_room(void *process) {
    sim_sleep_us(sim_between(21 * SECOND_US / 10, 42 * SECOND_US / 10));
    ((struct sim_process *)process)->disk_full = false;
    sim_note("the disk of %s has room again", ((struct sim_process *)process)->name);
    return NULL;
}

/* When the save has begun: the next record of it is one that no answer waits for. */
static void fill_disk(const char *point) {
    struct sim_process *self = sim_self();
    if (!sim_has(SIM_DISK_FULL_LONG) || strcmp(point, "uploader.begin.journaled") != 0 ||
        self->disk_full || !sim_chance(100))
        return;
    self->disk_full = true;
    sim_note("the disk of %s is full", self->name);
    used(SIM_DISK_FULL_LONG);
    sim_spawn_alone(sim_process_of(1), disk_has_room, self);
}

static bool at_point(const char *point) {
    if (ending) return false;
    fill_disk(point);
    return dies_for_upgrade(point);
}

/* ---- all of them ---- */

static void start(enum sim_fault fault, void *(*story)(void *)) {
    if (!sim_has(fault)) return;
    CAIRN_ASSERT(story_count < STORIES_MAX);
    stories[story_count++] = sim_spawn(sim_self(), story, NULL);
}

void sim_stories_start(void) {
    start(SIM_KEY_CHANGED, key_changed);
    start(SIM_LONG_AWAY, long_away);
    start(SIM_TORN, torn);
    start(SIM_STRAY_RECORD, stray_record);
    start(SIM_RANK_KILL, rank_kill);
    sim_calls.dies_at = at_point;
}

void sim_stories_end(void) {
    ending = true;
    sim_calls.dies_at = NULL;
    for (size_t i = 0; i < story_count; i++) (void)sim_join(stories[i]);
    remove_foreign();
}
