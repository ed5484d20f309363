/* SPDX-License-Identifier: Apache-2.0 */
/* GET and DELETE /v1/nodes; heartbeats and restores in memory. */
#include "server/nodes/nodes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "api/wire/messages.h"
#include "common/crc.h"
#include "common/lock.h"
#include "common/log.h"
#include "server/http/request.h"
#include "server/http/waiters.h"

#define NODES_MAX 65536
#define STRANGERS_MAX 1024
#define WITHOUT_ROW_MAX (2 * STRANGERS_MAX) /* includes nodes whose first row is being written */
#define ROW_EVERY_MS 60000
#define TICKS_LATE_MS 60000 /* added to tick silence by one sweep round (Q34) */
#define TWINS_LOG_MS 60000
#define AWAITED_MAX 8

struct node {
    char name[CAIRN_NAME_BYTES_MAX + 1];
    bool known;
    char *uploader; /* the JSON of the row that it does not have yet; owned */
    char uuid[CAIRN_UUID_TEXT_BYTES], uuid_before[CAIRN_UUID_TEXT_BYTES];
    uint64_t
        twins_ms; /* when an earlier uuid last came back under this name (nodes.h#4); 0: never */
    char trouble[320];
    TAILQ_ENTRY(node) later; /* by kind, longest silent first */
    uint64_t heard_ms, row_ms;
    uint32_t row_crc32c; /* of the uploader's JSON */
    bool left;           /* it said goodbye: not waited for until its next heartbeat */
    size_t version_count;
    struct srv_run_report *reports; /* owned */
    size_t report_count;
    struct srv_version_report *versions; /* owned; known nodes only */
    size_t version_report_count;
    struct srv_kept *kept; /* owned; likewise */
    size_t kept_count;
    /* Keys of runs whose attempt calls wait for the next heartbeat, which may omit the run. Calls
     * beyond AWAITED_MAX wake by their own timer. */
    uint64_t awaited[AWAITED_MAX];
    size_t awaited_count;
    LIST_ENTRY(node) place; /* in its bucket */
};
#define BUCKETS 4096
struct srv_nodes {
    struct cairn_lock lock;
    struct {
        LIST_HEAD(, node) buckets[BUCKETS];
        struct kind {
            TAILQ_HEAD(, node) nodes;
            size_t count;
        } kinds[2];        /* strangers, known */
        uint64_t awake_ms; /* when this process last ran; 0: not yet */
    } locked;
};

enum cairn_code srv_nodes_new(struct srv_nodes **ret, struct cairn_error *err) {
    struct srv_nodes *nodes = calloc(1, sizeof(*nodes));
    if (!nodes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for nodes");
    cairn_lock_init(&nodes->lock, CAIRN_LOCK_server_nodes);
    for (size_t i = 0; i < 2; i++) TAILQ_INIT(&nodes->locked.kinds[i].nodes);
    *ret = nodes;
    return CAIRN_OK;
}

static void free_node(struct node *node) {
    free(node->uploader);
    free(node->reports);
    free(node->versions);
    free(node->kept);
    free(node);
}

/* Needs the lock. */
static struct node *find_node(struct srv_nodes *nodes, const char *name) {
    struct node *node = NULL;
    LIST_FOREACH(node, &nodes->locked.buckets[srv_key_of(name) % BUCKETS], place)
        if (!strcmp(node->name, name)) break;
    return node;
}

static void unlink_kind(struct srv_nodes *nodes, struct node *node) {
    TAILQ_REMOVE(&nodes->locked.kinds[node->known].nodes, node, later);
    nodes->locked.kinds[node->known].count--;
}

static void link_kind(struct srv_nodes *nodes, struct node *node, bool known) {
    node->known = known;
    TAILQ_INSERT_TAIL(&nodes->locked.kinds[known].nodes, node, later);
    nodes->locked.kinds[known].count++;
}

static void drop_node(struct srv_nodes *nodes, struct node *node) {
    LIST_REMOVE(node, place);
    unlink_kind(nodes, node);
    free_node(node);
}

void srv_nodes_free(struct srv_nodes *nodes) {
    if (!nodes) return;
    for (size_t i = 0; i < CAIRN_COUNT(nodes->locked.kinds); i++)
        while (!TAILQ_EMPTY(&nodes->locked.kinds[i].nodes))
            drop_node(nodes, TAILQ_FIRST(&nodes->locked.kinds[i].nodes));
    cairn_lock_release(&nodes->lock);
    free(nodes);
}

void srv_nodes_forget(struct srv *server, uint64_t silent_ms) {
    struct srv_nodes *nodes = server->nodes;
    uint64_t now_ms = srv_mono_ms(server);
    if (!nodes) return;
    CAIRN_HOLD(&nodes->lock);
    for (size_t known = 0; known < CAIRN_COUNT(nodes->locked.kinds); known++) {
        struct kind *kind = &nodes->locked.kinds[known];
        for (struct node *first; (first = TAILQ_FIRST(&kind->nodes)) &&
                                 cairn_passed_ms(now_ms, first->heard_ms) > silent_ms;)
            drop_node(nodes, first);
    }
}

/* nodes.h#3: false when no node of that kind is silent. */
static bool make_room(struct srv_nodes *nodes, bool known, uint64_t now_ms) {
    struct kind *kind = &nodes->locked.kinds[known];
    if (kind->count < (known ? NODES_MAX : STRANGERS_MAX)) return true;
    struct node *first = TAILQ_FIRST(&kind->nodes);
    if (cairn_passed_ms(now_ms, first->heard_ms) < SRV_SILENT_MS) return false;
    drop_node(nodes, first);
    return true;
}

/* Finds or makes a node; a known node stays known. */
static struct node *make_node(struct srv_nodes *nodes, const char *name, bool known,
                              uint64_t now_ms) {
    struct node *node = find_node(nodes, name);
    if (node && (node->known || !known)) return node;
    if (!make_room(nodes, known, now_ms)) return NULL;
    if (node) { /* a stranger that has shown a grant */
        unlink_kind(nodes, node);
        link_kind(nodes, node, known);
        return node;
    }
    node = calloc(1, sizeof(*node));
    if (!node) return NULL;
    (void)cairn_text_copy(node->name, sizeof(node->name), name);
    LIST_INSERT_HEAD(&nodes->locked.buckets[srv_key_of(name) % BUCKETS], node, place);
    link_kind(nodes, node, known);
    return node;
}

/* nodes.h#4: a restarted uploader has a new uuid, and its old uuid never returns. */
static bool is_twin(struct node *node, const char *uuid, uint64_t now_ms) {
    if (!uuid[0] || !strcmp(uuid, node->uuid)) return false;
    bool back = !strcmp(uuid, node->uuid_before);
    bool logged = node->twins_ms && cairn_passed_ms(now_ms, node->twins_ms) < TWINS_LOG_MS;
    memcpy(node->uuid_before, node->uuid, sizeof(node->uuid));
    (void)cairn_text_copy(node->uuid, sizeof(node->uuid), uuid);
    if (back) node->twins_ms = now_ms;
    return back && !logged;
}

static void take_words(struct node *node, const struct srv_heartbeat *beat) {
    (void)cairn_text_copy(node->trouble, sizeof(node->trouble), beat->trouble);
    free(node->uploader);
    node->uploader = beat->has_row ? NULL : strndup(beat->uploader.data, beat->uploader.size);
}

static void take_versions(struct node *node, struct srv_heartbeat *beat) {
    free(node->versions);
    free(node->kept);
    node->versions = NULL;
    node->kept = NULL;
    node->version_report_count = node->kept_count = 0;
    if (!node->known) return;
    node->versions = CAIRN_TAKE(beat->take_versions);
    node->version_report_count = beat->version_report_count;
    node->kept = CAIRN_TAKE(beat->take_kept);
    node->kept_count = beat->kept_count;
}

/* Rows are all that other servers see: four per silence_max keep a node from seeming silent. */
static uint64_t row_every_ms(const struct srv *server) {
    return cairn_min_u64(ROW_EVERY_MS, server->settings->silence_max_ms / 4);
}

static bool row_is_due(struct node *node, const struct srv_heartbeat *beat, uint64_t now_ms,
                       uint64_t every_ms) {
    uint32_t crc32c = cairn_crc32c(0, beat->uploader.data, beat->uploader.size);
    bool due = !node->row_ms || cairn_passed_ms(now_ms, node->row_ms) >= every_ms ||
               crc32c != node->row_crc32c;
    if (!node->known) return false;
    if (due) node->row_ms = now_ms;
    node->row_crc32c = crc32c;
    return due;
}

/* Needs the lock. */
static void await_beat(struct node *node, const struct cairn_run_name *run) {
    uint64_t key = srv_key_of_run(run);
    for (size_t i = 0; i < node->awaited_count; i++)
        if (node->awaited[i] == key) return;
    if (node->awaited_count < AWAITED_MAX) node->awaited[node->awaited_count++] = key;
}

bool srv_nodes_hear(struct srv *server, struct srv_heartbeat *beat) {
    struct srv_run_report *old = NULL;
    bool write_row = false, twins = false;
    uint64_t awaited[AWAITED_MAX];
    size_t awaited_count = 0;
    {
        CAIRN_HOLD(&server->nodes->lock);
        uint64_t now_ms = srv_mono_ms(server);
        struct node *node = make_node(server->nodes, beat->node, beat->known, now_ms);
        if (!node) return false;
        write_row = row_is_due(node, beat, now_ms, row_every_ms(server));
        twins = is_twin(node, beat->uuid, now_ms);
        take_words(node, beat);
        node->heard_ms = now_ms;
        node->left = beat->leaving;
        node->version_count = beat->version_count;
        old = node->reports;
        node->reports = CAIRN_TAKE(beat->take_reports);
        node->report_count = beat->report_count;
        take_versions(node, beat);
        memcpy(awaited, node->awaited, sizeof(awaited));
        awaited_count = node->awaited_count;
        node->awaited_count = 0;
        unlink_kind(server->nodes, node);
        link_kind(server->nodes, node, node->known);
    }
    free(old);
    for (size_t i = 0; i < awaited_count; i++) srv_waiters_wake_key(server->waiters, awaited[i]);
    if (twins)
        cairn_log(WARN, "node.twins", "node=%s uuid=%s two uploaders call themselves so",
                  beat->node, beat->uuid);
    return write_row;
}

/* ---- trouble ---- */

/* False: no trouble, or no recent heartbeat. Needs the lock. */
static bool describe(const struct node *node, uint64_t now_ms, char *ret, size_t capacity) {
    bool twins = node->twins_ms && cairn_passed_ms(now_ms, node->twins_ms) < TWINS_LOG_MS;
    ret[0] = '\0';
    if (node->left || cairn_passed_ms(now_ms, node->heard_ms) >= SRV_SILENT_MS) return false;
    if (!twins && !node->trouble[0]) return false;
    snprintf(ret, capacity, "%s%s%.40s%s%.40s%s", node->trouble,
             twins && node->trouble[0] ? "; " : "", twins ? "two uploaders have this name: " : "",
             twins ? node->uuid : "", twins ? " and " : "", twins ? node->uuid_before : "");
    return true;
}

size_t srv_nodes_trouble(struct srv *server, char ret[SRV_TROUBLE_BYTES]) {
    char text[400];
    size_t count = 0;
    ret[0] = '\0';
    CAIRN_HOLD(&server->nodes->lock);
    uint64_t now_ms = srv_mono_ms(server);
    const struct node *node = NULL;
    TAILQ_FOREACH(node, &server->nodes->locked.kinds[true].nodes, later) {
        if (!describe(node, now_ms, text, sizeof(text)) || count++) continue;
        snprintf(ret, SRV_TROUBLE_BYTES, "%s: %s", node->name, text);
    }
    if (count < 2) return count;
    size_t used = strlen(ret);
    snprintf(ret + used, SRV_TROUBLE_BYTES - used, " (and %zu more)", count - 1);
    return count;
}

void srv_node_trouble(struct srv *server, const char *name, char ret[SRV_TROUBLE_BYTES]) {
    ret[0] = '\0';
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    if (node) (void)describe(node, srv_mono_ms(server), ret, SRV_TROUBLE_BYTES);
}

bool srv_node_said_of(struct srv *server, const char *name, const char *version,
                      struct srv_version_report *ret) {
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    for (size_t i = 0; node && i < node->version_report_count; i++) {
        if (strcmp(node->versions[i].id.text, version) != 0) continue;
        *ret = node->versions[i];
        uint64_t since_ms = srv_mono_ms(server) - node->heard_ms;
        for (size_t k = 0; k < ret->error_count; k++) ret->errors[k].age_ms += since_ms;
        return true;
    }
    return false;
}

size_t srv_node_keeps(struct srv *server, const char *name, const char *version,
                      struct srv_kept ret[SRV_KEPT_MAX]) {
    size_t count = 0;
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    for (size_t i = 0; node && i < node->kept_count && count < SRV_KEPT_MAX; i++)
        if (!strcmp(node->kept[i].version.text, version)) ret[count++] = node->kept[i];
    return count;
}

void srv_node_row_failed(struct srv *server, const char *name) {
    CAIRN_HOLD(&server->nodes->lock);
    struct node *node = find_node(server->nodes, name);
    if (node) node->row_ms = 0;
}

bool srv_node_joins(struct srv *server, const char *name, char **ret_uploader) {
    CAIRN_HOLD(&server->nodes->lock);
    uint64_t now_ms = srv_mono_ms(server);
    struct node *node = find_node(server->nodes, name);
    if (!node || node->known || !node->uploader) return false;
    char *uploader = strdup(node->uploader); /* a copy: the node keeps its own until it has a row */
    if (!uploader || !make_node(server->nodes, name, true, now_ms)) {
        free(uploader);
        return false;
    }
    node->row_ms = now_ms;
    *ret_uploader = uploader;
    return true;
}

bool srv_node_last_heard(struct srv *server, const char *name, uint64_t *ret_ms,
                         size_t *ret_versions) {
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    if (!node || !node->heard_ms) return false;
    *ret_ms = node->heard_ms;
    *ret_versions = node->version_count;
    return true;
}

uint64_t srv_node_silence_ms(struct srv *server, const char *name) {
    uint64_t since_ms = server->listening_ms;
    {
        CAIRN_HOLD(&server->nodes->lock);
        const struct node *node = find_node(server->nodes, name);
        if (node) since_ms = cairn_max_u64(since_ms, node->heard_ms);
    }
    return cairn_passed_ms(srv_mono_ms(server), since_ms);
}

uint64_t srv_node_silent_ms(struct srv *server, const struct srv_node_mark *node, uint64_t tick) {
    uint64_t row_ms = cairn_passed_ms(tick, node->last_tick);
    uint64_t silence_ms = srv_node_silence_ms(server, node->node);
    uint64_t late_ms =
        row_every_ms(server) + cairn_min_u64(server->settings->sweep_interval_ms, TICKS_LATE_MS);
    row_ms -= cairn_min_u64(row_ms, late_ms);
    /* Ticks stand still while a sweep round waits: only needed where other servers hear nodes. */
    return srv_catalog_is_shared(server->catalog) ? cairn_min_u64(silence_ms, row_ms) : silence_ms;
}

void srv_nodes_awake(struct srv *server) {
    uint64_t now_ms, gap_ms = 0;
    {
        CAIRN_HOLD(&server->nodes->lock); /* two threads call this: read the clock under the lock */
        uint64_t awake_ms = server->nodes->locked.awake_ms;
        now_ms = srv_mono_ms(server);
        if (awake_ms) gap_ms = cairn_passed_ms(now_ms, awake_ms);
        server->nodes->locked.awake_ms = cairn_max_u64(awake_ms, now_ms);
    }
    if (gap_ms <= server->settings->silence_max_ms / 2) return;
    server->listening_ms = now_ms;
    cairn_log(WARN, "server.paused", "ms=%" PRIu64, gap_ms);
}

/* The newest report about a run, from heartbeats and attempt calls. Needs the lock. */
static uint64_t heard_of(const struct node *node, const struct cairn_run_name *run,
                         uint64_t *ret_unsent) {
    uint64_t heard_ms = node->heard_ms;
    *ret_unsent = 0;
    for (size_t i = 0; i < node->report_count; i++) {
        if (!cairn_run_name_same(&node->reports[i].run, run)) continue;
        *ret_unsent += node->reports[i].unsent;
        heard_ms = cairn_max_u64(heard_ms, node->reports[i].said_ms);
    }
    return heard_ms;
}

bool srv_node_says(struct srv *server, const char *name, const struct srv_run_report *report) {
    CAIRN_HOLD(&server->nodes->lock);
    struct node *node = find_node(server->nodes, name);
    if (!node || node->left) return false;
    size_t kept = 0;
    for (size_t i = 0; i < node->report_count; i++)
        if (!cairn_run_name_same(&node->reports[i].run, &report->run))
            node->reports[kept++] = node->reports[i];
    node->report_count = kept;
    struct srv_run_report *more = realloc(node->reports, (kept + 1) * sizeof(*more));
    if (!more) return false; /* the next heartbeat reports it */
    node->reports = more;
    more[kept] = *report;
    more[kept].said_ms = srv_mono_ms(server);
    node->report_count = kept + 1;
    return true;
}

bool srv_node_unsent(struct srv *server, const char *name, const struct cairn_run_name *run,
                     uint64_t arrived_ms) {
    uint64_t heard_ms = 0, unsent = 0;
    bool left = false;
    {
        CAIRN_HOLD(&server->nodes->lock);
        struct node *node = find_node(server->nodes, name);
        left = node && node->left;
        if (node) heard_ms = heard_of(node, run, &unsent);
        if (node && heard_ms < arrived_ms) await_beat(node, run);
    }
    uint64_t now_ms = srv_mono_ms(server);
    uint64_t since_ms = cairn_max_u64(server->listening_ms, heard_ms);
    if (left || cairn_passed_ms(now_ms, since_ms) >= server->settings->resume_silence_ms)
        return false;
    return heard_ms < arrived_ms || unsent > 0;
}

bool srv_node_heard_since(struct srv *server, const char *name, uint64_t since_ms) {
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    return node && !node->left && node->heard_ms >= since_ms;
}

bool srv_node_writes(struct srv *server, const char *name, const struct cairn_run_name *run,
                     uint64_t attempt) {
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    for (size_t i = 0; node && !node->left && i < node->report_count; i++) {
        const struct srv_run_report *report = &node->reports[i];
        if (report->attempt == attempt && !report->released &&
            cairn_run_name_same(&report->run, run))
            return true;
    }
    return false;
}

/* ---- reports for other servers ---- */

bool srv_node_sent_all(struct srv *server, const char *name, const struct cairn_run_name *run,
                       uint64_t arrived_ms) {
    uint64_t unsent = 0, heard_ms = 0;
    CAIRN_HOLD(&server->nodes->lock);
    struct node *node = find_node(server->nodes, name);
    if (node) heard_ms = heard_of(node, run, &unsent);
    if (node && heard_ms < arrived_ms) await_beat(node, run);
    return node && heard_ms >= arrived_ms && (node->left || !unsent);
}

json_t *srv_node_said(struct srv *server, const char *name) {
    json_t *said = json_array();
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    /* Only this file reads and writes this column's JSON, so it is not in messages.def. */
    for (size_t i = 0; node && i < node->report_count; i++) {
        const struct srv_run_report *report = &node->reports[i];
        json_int_t attempt = report->released ? 0 : (json_int_t)report->attempt;
        if (json_array_append_new(said,
                                  json_pack("[s, s, I, I]", report->run.project, report->run.run,
                                            attempt, (json_int_t)report->unsent)))
            break;
    }
    return said;
}

void srv_node_read_said(const char *text, const struct cairn_run_name *run, uint64_t attempt,
                        bool *ret_unsent, bool *ret_writes) {
    CAIRN_AUTO_JSON json_t *said = json_loads(text, 0, NULL);
    *ret_unsent = *ret_writes = false;
    CAIRN_JSON_EACH(item, said) {
        const char *project = NULL, *name = NULL;
        json_int_t number = 0, unsent = 0;
        if (json_unpack(item, "[s, s, I, I]", &project, &name, &number, &unsent)) continue;
        if (strcmp(project, run->project) || strcmp(name, run->run)) continue;
        *ret_unsent |= unsent > 0;
        *ret_writes |= (uint64_t)number == attempt;
    }
}

/* ---- restores: rare, so they are scanned and not hashed ---- */

struct srv_restores {
    struct cairn_lock lock;
    struct {
        struct srv_restore items[SRV_RESTORES_MAX];
        uint64_t heard;
    } locked;
};

enum cairn_code srv_restores_new(struct srv_restores **ret, struct cairn_error *err) {
    struct srv_restores *restores = calloc(1, sizeof(*restores));
    if (!restores) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for restores");
    cairn_lock_init(&restores->lock, CAIRN_LOCK_server_restores);
    *ret = restores;
    return CAIRN_OK;
}

void srv_restores_free(struct srv_restores *restores) {
    if (!restores) return;
    cairn_lock_release(&restores->lock);
    free(restores);
}

void srv_restores_hear(struct srv_restores *restores, const struct srv_restore *restore) {
    CAIRN_HOLD(&restores->lock);
    struct srv_restore *place = restores->locked.items;
    for (size_t i = 0; i < SRV_RESTORES_MAX; i++) {
        struct srv_restore *at = &restores->locked.items[i];
        bool same = !strcmp(at->node, restore->node) &&
                    cairn_run_name_same(&at->run, &restore->run) &&
                    !strcmp(at->version.text, restore->version.text);
        if (same || at->heard < place->heard) place = at;
        if (same) break;
    }
    *place = *restore;
    place->heard = ++restores->locked.heard;
}

json_t *srv_restores_json(struct srv_restores *restores, const struct cairn_run_name *run,
                          const char *version) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    CAIRN_HOLD(&restores->lock);
    for (size_t i = 0; items && i < SRV_RESTORES_MAX; i++) {
        const struct srv_restore *at = &restores->locked.items[i];
        if (!at->heard || strcmp(at->version.text, version) != 0 ||
            !cairn_run_name_same(&at->run, run))
            continue;
        json_t *item = CAIRN_PACK(why_restore, .node = at->node, .choice = at->choice,
                                  .store_bytes = at->store_bytes, .shared_bytes = at->shared_bytes,
                                  .peer_bytes = at->peer_bytes, .memory_bytes = at->memory_bytes);
        if (json_array_append_new(items, item)) return NULL;
    }
    return CAIRN_TAKE(items);
}

/* ---- GET /v1/nodes: rows merged with nodes that have none ---- */

struct stranger {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    char *uploader; /* JSON; owned by the list */
};
struct strangers {
    struct stranger *items; /* by name */
    size_t count;
};

static int compare_strangers(const void *a, const void *b) {
    const struct stranger *one = a, *other = b;
    return strcmp(one->node, other->node);
}

static void add_without_row(struct strangers *found, const struct node *first, const char *after) {
    for (const struct node *node = first; node && found->count < WITHOUT_ROW_MAX;
         node = TAILQ_NEXT(node, later)) {
        struct stranger *one = &found->items[found->count];
        if (!node->uploader || strcmp(node->name, after) <= 0) continue;
        (void)cairn_text_copy(one->node, sizeof(one->node), node->name);
        one->uploader = strdup(node->uploader);
        found->count += one->uploader != NULL;
    }
}

/* Nodes without a row whose names follow `after`, sorted. */
static enum cairn_code find_strangers(struct srv *server, const char *after, struct strangers *ret,
                                      struct cairn_error *err) {
    struct strangers found = {calloc(WITHOUT_ROW_MAX, sizeof(*found.items)), 0};
    if (!found.items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    {
        CAIRN_HOLD(&server->nodes->lock);
        add_without_row(&found, TAILQ_FIRST(&server->nodes->locked.kinds[false].nodes), after);
        add_without_row(&found, TAILQ_FIRST(&server->nodes->locked.kinds[true].nodes), after);
    }
    qsort(found.items, found.count, sizeof(*found.items), compare_strangers);
    *ret = found;
    return CAIRN_OK;
}

static void release_strangers(struct strangers *strangers) {
    for (size_t i = 0; i < strangers->count; i++) free(strangers->items[i].uploader);
    free(strangers->items);
    *strangers = (struct strangers){0};
}

struct list {
    struct srv_list page;
    struct strangers strangers;
    size_t stranger; /* index of the next stranger to list */
};

static json_t *node_json(struct srv *server, const struct srv_node_row *row) {
    uint64_t heard_ms = 0;
    size_t versions = 0;
    int64_t wall_ms = row->wall_ms;
    if (srv_node_last_heard(server, row->node, &heard_ms, &versions)) {
        int64_t here_ms = srv_wall_ms(server) - (int64_t)(srv_mono_ms(server) - heard_ms);
        wall_ms = here_ms > wall_ms ? here_ms : wall_ms;
    }
    char heard_at[32], trouble[SRV_TROUBLE_BYTES];
    cairn_time_text(wall_ms, true, heard_at);
    srv_node_trouble(server, row->node, trouble);
    CAIRN_AUTO_JSON json_t *uploader = json_loads(row->uploader, JSON_DECODE_ANY, NULL);
    return CAIRN_PACK(node_row, .node = row->node, .heard_at = heard_at,
                      .uploader = json_is_null(uploader) ? NULL : uploader, .versions = versions,
                      .trouble = trouble[0] ? trouble : NULL);
}

static enum cairn_code add_item(struct list *list, const struct srv_node_row *row,
                                struct cairn_error *err) {
    if (!srv_list_takes(&list->page, row->node)) return CAIRN_OK;
    return srv_list_add(&list->page, node_json(list->page.request->server, row), err);
}

/* Adds nodes without a row whose names precede `before`; NULL: all. */
static enum cairn_code add_strangers(struct list *list, const char *before,
                                     struct cairn_error *err) {
    for (; list->stranger < list->strangers.count; list->stranger++) {
        const struct stranger *one = &list->strangers.items[list->stranger];
        if (before && strcmp(one->node, before) >= 0) return CAIRN_OK;
        if (!strcmp(one->node, list->page.place)) continue; /* its row was written in between */
        struct srv_node_row row = {.node = one->node, .uploader = one->uploader};
        CAIRN_TRY(add_item(list, &row, err));
    }
    return CAIRN_OK;
}

static void release_list(struct list *list) {
    srv_list_release(&list->page);
    release_strangers(&list->strangers);
}

SRV_HANDLER(node_list) {
    CAIRN_RELEASED(release_list) struct list list = {0};
    CAIRN_TRY(srv_list_open(request, &list.page, err));
    CAIRN_TRY(find_strangers(request->server, list.page.after, &list.strangers, err));
    SRV_LOOK(look, request->server->catalog, err);
    SRV_GET(rows, rows, srv_nodes_open(look.tx, list.page.after, list.page.limit + 1, &rows, err));
    SQL_EACH(&rows, err) {
        const struct srv_node_row row = srv_row_node(&rows);
        CAIRN_TRY(add_strangers(&list, row.node, err));
        CAIRN_TRY(add_item(&list, &row, err));
    }
    CAIRN_TRY(add_strangers(&list, NULL, err));
    return srv_list_reply(&list.page, reply, err);
}

/* ---- DELETE /v1/nodes/{node} ---- */

bool srv_node_forget(struct srv *server, const char *name, bool *ret_there) {
    CAIRN_HOLD(&server->nodes->lock);
    struct node *node = find_node(server->nodes, name);
    *ret_there = node != NULL;
    if (!node) return true;
    if (!node->left && cairn_passed_ms(srv_mono_ms(server), node->heard_ms) < SRV_SILENT_MS)
        return false;
    drop_node(server->nodes, node);
    return true;
}

struct drop {
    const char *node;
    bool there;
};

SRV_CHANGE(drop_row, struct drop *drop) {
    return srv_node_drop(tx, drop->node, &drop->there, err);
}

SRV_HANDLER(node_delete) {
    struct drop drop = {.node = request->params.node};
    bool heard = false;
    if (!srv_node_forget(request->server, drop.node, &heard))
        return cairn_fail(err, CAIRN_IN_USE, "node %s was heard a moment ago: stop its uploader",
                          drop.node);
    CAIRN_TRY(srv_catalog_write(request->server->catalog, drop_row, &drop, err));
    if (!drop.there && !heard)
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no node %s", drop.node);
    return srv_reply_json(reply, 200, CAIRN_PACK(node_dropped, .node = drop.node), err);
}
