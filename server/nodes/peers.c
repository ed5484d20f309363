/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of nodes into an item of an answer; see peers.h. */
#include "server/nodes/peers.h"

#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "plan/partner.h"
#include "server/ledger/members.h"
#include "server/ledger/policies.h"
#include "server/nodes/nodes.h"

struct peers {
    struct cairn_srv *server;
    json_t *nodes;
    struct cairn_plan_node partners[CAIRN_SRV_PEERS_MAX]; /* those that keep copies; texts owned */
    size_t partner_count;
    char silent[CAIRN_SRV_PEERS_MAX][CAIRN_NAME_BYTES_MAX + 1]; /* they are nobody's partner */
    size_t silent_count;
    uint64_t tick;
};

static void note_silent(void *argument, const struct cairn_srv_node_mark *mark) {
    struct peers *peers = argument;
    if (peers->silent_count == CAIRN_SRV_PEERS_MAX ||
        cairn_srv_node_silent_ms(peers->server, mark, peers->tick) < CAIRN_SRV_SILENT_MS)
        return;
    (void)cairn_text_copy(peers->silent[peers->silent_count++], CAIRN_NAME_BYTES_MAX + 1,
                          mark->node);
}

static bool is_silent(const struct peers *peers, const char *node) {
    for (size_t i = 0; i < peers->silent_count; i++)
        if (!strcmp(peers->silent[i], node)) return true;
    return false;
}

static enum cairn_code add_partner(struct peers *peers, const char *node, const char *domain,
                                   struct cairn_error *err) {
    char *name = strdup(node), *within = strdup(domain ? domain : "");
    struct cairn_plan_node *partner = &peers->partners[peers->partner_count++];
    *partner = (struct cairn_plan_node){name, within};
    return name && within ? CAIRN_OK
                          : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

/* What an uploader says of itself is kept as it came; without an address it has no port. */
static enum cairn_code add(void *argument, const char *node, const char *uploader,
                           struct cairn_error *err) {
    struct peers *peers = argument;
    struct cairn_msg_attempt_uploader said = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    if (cairn_json_parse(cairn_view_of(uploader), (struct cairn_json_limits){0}, &json, NULL) ||
        cairn_msg_attempt_uploader_read(json, "", &said, NULL) || !said.peer || !*said.peer)
        return CAIRN_OK;
    json_t *item = CAIRN_PACK(node_peer, .node = node, .address = said.peer, .kept = said.kept);
    if (json_array_append_new(peers->nodes, item))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    if (!said.partner_memory_bytes || is_silent(peers, node)) return CAIRN_OK;
    return add_partner(peers, node, said.failure_domain, err);
}

static void release(struct peers *peers) {
    for (size_t i = 0; i < peers->partner_count; i++) {
        free((char *)peers->partners[i].name);
        free((char *)peers->partners[i].domain);
    }
    json_decref(peers->nodes);
    free(peers);
}

/* As the policy of the run has it, else the setting. */
static enum cairn_code wants_copies(struct cairn_srv_tx *tx, const struct cairn_srv_peers_ask *ask,
                                    bool *ret, struct cairn_error *err) {
    struct cairn_policy policy;
    enum cairn_srv_scope scope;
    CAIRN_TRY(cairn_srv_policy_get(tx, &ask->run->name, &policy, &scope, err));
    *ret = (policy.says_partner_copies ? policy.partner_copies
                                       : ask->server->settings->partner_copies) > 0;
    return CAIRN_OK;
}

static enum cairn_code list(struct cairn_srv_tx *tx, const struct cairn_srv_peers_ask *ask,
                            struct peers *peers, json_t **ret, struct cairn_error *err) {
    bool complete = false, copies = false;
    CAIRN_TRY(wants_copies(tx, ask, &copies, err));
    if (copies)
        CAIRN_TRY(cairn_srv_attempt_nodes(tx, ask->run->id, ask->run->attempt, note_silent, peers,
                                          err));
    CAIRN_TRY(cairn_srv_attempt_peers(tx, ask->run, CAIRN_SRV_PEERS_MAX, &complete, add, peers,
                                      err));
    const char *partner = NULL;
    if (copies && complete)
        partner = cairn_plan_partner(peers->partners, peers->partner_count, ask->node);
    *ret = CAIRN_PACK(node_peers, .index = ask->index, .complete = complete, .nodes = peers->nodes,
                      .partner = partner);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
}

enum cairn_code cairn_srv_peers_json(struct cairn_srv_tx *tx,
                                     const struct cairn_srv_peers_ask *ask, json_t **ret,
                                     struct cairn_error *err) {
    struct peers *peers = calloc(1, sizeof(*peers));
    if (!peers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    peers->server = ask->server;
    peers->tick = cairn_srv_tick(tx);
    peers->nodes = json_array();
    enum cairn_code code = peers->nodes
                               ? list(tx, ask, peers, ret, err)
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    release(peers);
    return code;
}
