/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and ends the parts; see peers.h. */
#include "uploader/peers/peers.h"

#include <stdlib.h>

enum cairn_code cairn_up_peers_new(struct cairn_up *up, struct cairn_up_peers **ret,
                                   struct cairn_error *err) {
    if (!*up->settings.peer_listen) return CAIRN_OK;
    struct cairn_up_peers *peers = calloc(1, sizeof(*peers));
    if (!peers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for peers");
    cairn_up_members_init(&peers->members);
    struct cairn_up_port_options options = {.listen = up->settings.peer_listen,
                                            .advertise = up->settings.peer_advertise,
                                            .node = up->places.node,
                                            .connections_max = up->settings.peer_connections,
                                            .members = &peers->members};
    enum cairn_code code = cairn_up_port_new(&options, &peers->port, err);
    if (!code) code = cairn_up_asks_new(up->places.node, up->metrics, &peers->asks, err);
    if (code) {
        cairn_up_peers_free(peers);
        return code;
    }
    *ret = peers;
    return CAIRN_OK;
}

enum cairn_code cairn_up_peers_start(struct cairn_up_peers *peers, struct cairn_error *err) {
    return peers ? cairn_up_port_start(peers->port, err) : CAIRN_OK;
}

void cairn_up_peers_stop(struct cairn_up_peers *peers) {
    if (!peers) return;
    cairn_up_port_stop(peers->port);
    cairn_up_asks_stop(peers->asks);
}

void cairn_up_peers_free(struct cairn_up_peers *peers) {
    if (!peers) return;
    cairn_up_peers_stop(peers);
    cairn_up_asks_free(peers->asks);
    cairn_up_port_free(peers->port);
    cairn_up_members_release(&peers->members);
    free(peers);
}
