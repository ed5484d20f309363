/* SPDX-License-Identifier: Apache-2.0 */
/* What heartbeats said, in memory; see nodes.h. */
#include "server/nodes.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/crc32c.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/text.h"
#include "server/waiters.h"

#define NODES_MAX 65536
#define ROW_EVERY_MS 60000

struct node {
    char name[CAIRN_NAME_BYTES_MAX + 1];
    uint64_t heard_ms, row_ms;
    uint32_t row_crc32c; /* of what the row says of the uploader */
    bool left;           /* it said good-bye: nothing of it is waited for until it is heard again */
    size_t version_count;
    struct cairn_srv_told *told; /* owned */
    size_t told_count;
    struct node *next;
};
#define BUCKETS 4096
struct cairn_srv_nodes {
    struct cairn_lock lock;
    struct {
        struct node *buckets[BUCKETS];
        size_t count;
        uint64_t awake_ms; /* when this process was last seen to run; 0: not yet */
    } locked;
};

enum cairn_code cairn_srv_nodes_new(struct cairn_srv_nodes **ret, struct cairn_error *err) {
    struct cairn_srv_nodes *nodes = calloc(1, sizeof(*nodes));
    if (!nodes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for nodes");
    cairn_lock_init(&nodes->lock, CAIRN_LOCK_server_nodes);
    *ret = nodes;
    return CAIRN_OK;
}

void cairn_srv_nodes_free(struct cairn_srv_nodes *nodes) {
    if (!nodes) return;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (nodes->locked.buckets[i]) {
            struct node *node = nodes->locked.buckets[i];
            nodes->locked.buckets[i] = node->next;
            free(node->told);
            free(node);
        }
    }
    cairn_lock_release(&nodes->lock);
    free(nodes);
}

/* The lock is held. */
static struct node *find_node(struct cairn_srv_nodes *nodes, const char *name) {
    struct node *node = nodes->locked.buckets[cairn_srv_key_of(name) % BUCKETS];
    while (node && strcmp(node->name, name)) node = node->next;
    return node;
}

static struct node *make_node(struct cairn_srv_nodes *nodes, const char *name) {
    struct node *node = find_node(nodes, name);
    if (node || nodes->locked.count >= NODES_MAX) return node;
    node = calloc(1, sizeof(*node));
    if (!node) return NULL;
    (void)cairn_text_copy(node->name, sizeof(node->name), name);
    size_t bucket = cairn_srv_key_of(name) % BUCKETS;
    node->next = nodes->locked.buckets[bucket];
    nodes->locked.buckets[bucket] = node;
    nodes->locked.count++;
    return node;
}

static bool is_run(const struct cairn_run_name *one, const struct cairn_run_name *other) {
    return !strcmp(one->run, other->run) && !strcmp(one->project, other->project);
}

bool cairn_srv_nodes_hear(struct cairn_srv *server, struct cairn_srv_heartbeat *beat) {
    struct cairn_srv_told *old = NULL;
    bool write_row = false;
    {
        CAIRN_HOLD(&server->nodes->lock);
        struct node *node = make_node(server->nodes, beat->node);
        if (!node) return false;
        uint64_t now_ms = cairn_srv_mono_ms(server);
        uint32_t crc32c = cairn_crc32c(0, beat->uploader.data, beat->uploader.size);
        write_row =
            !node->row_ms || now_ms - node->row_ms >= ROW_EVERY_MS || crc32c != node->row_crc32c;
        if (write_row) node->row_ms = now_ms;
        node->row_crc32c = crc32c;
        node->heard_ms = now_ms;
        node->left = beat->leaving;
        node->version_count = beat->version_count;
        old = node->told;
        node->told = CAIRN_TAKE(beat->take_told);
        node->told_count = beat->told_count;
    }
    free(old);
    return write_row;
}

bool cairn_srv_node_last_heard(struct cairn_srv *server, const char *name, uint64_t *ret_ms,
                               size_t *ret_versions) {
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    if (!node || !node->heard_ms) return false;
    *ret_ms = node->heard_ms;
    *ret_versions = node->version_count;
    return true;
}

uint64_t cairn_srv_node_silence_ms(struct cairn_srv *server, const char *name) {
    uint64_t since_ms = server->listening_ms;
    {
        CAIRN_HOLD(&server->nodes->lock);
        const struct node *node = find_node(server->nodes, name);
        if (node) since_ms = cairn_max_u64(since_ms, node->heard_ms);
    }
    return cairn_srv_mono_ms(server) - since_ms;
}

void cairn_srv_nodes_awake(struct cairn_srv *server) {
    uint64_t now_ms = cairn_srv_mono_ms(server), gap_ms = 0;
    {
        CAIRN_HOLD(&server->nodes->lock);
        if (server->nodes->locked.awake_ms) gap_ms = now_ms - server->nodes->locked.awake_ms;
        server->nodes->locked.awake_ms = now_ms;
    }
    if (gap_ms <= server->settings->silence_max_ms / 2) return;
    server->listening_ms = now_ms;
    cairn_log(WARN, "server.paused", "ms=%" PRIu64, gap_ms);
}

bool cairn_srv_node_unsent(struct cairn_srv *server, const char *name,
                           const struct cairn_run_name *run, uint64_t arrived_ms) {
    uint64_t heard_ms = 0, unsent = 0;
    bool left = false;
    {
        CAIRN_HOLD(&server->nodes->lock);
        const struct node *node = find_node(server->nodes, name);
        left = node && node->left;
        for (size_t i = 0; node && i < node->told_count; i++) {
            if (is_run(&node->told[i].run, run)) unsent += node->told[i].unsent;
        }
        if (node) heard_ms = node->heard_ms;
    }
    uint64_t now_ms = cairn_srv_mono_ms(server);
    if (left || now_ms - cairn_max_u64(server->listening_ms, heard_ms) >= CAIRN_SRV_SILENT_MS)
        return false;
    return heard_ms < arrived_ms || unsent > 0;
}

bool cairn_srv_node_writes(struct cairn_srv *server, const char *name,
                           const struct cairn_run_name *run, uint64_t attempt) {
    CAIRN_HOLD(&server->nodes->lock);
    const struct node *node = find_node(server->nodes, name);
    for (size_t i = 0; node && !node->left && i < node->told_count; i++) {
        if (node->told[i].attempt == attempt && is_run(&node->told[i].run, run)) return true;
    }
    return false;
}
