/* SPDX-License-Identifier: Apache-2.0 */
/* A claim's name holds the user, the node and a digest of what the node is a name in. */
#include "uploader/alone.h"

#include <stdio.h>
#include <unistd.h>

#include "common/hash/hash.h"
#include "common/log.h"
#include "common/net.h"
#include "common/text.h"
#include "uploader/up.h"

#define SCOPE_DIGEST_BYTES 8

static void drop(int *claim) {
    if (*claim) close(*claim - 1);
    *claim = 0;
}

enum cairn_code cairn_up_claim(struct cairn_up *up, enum cairn_up_claim kind, const char *scope,
                               struct cairn_error *err) {
    uint8_t digest[CAIRN_SHA256_BYTES];
    char hex[2 * SCOPE_DIGEST_BYTES + 1], name[128];
    struct cairn_error why = {0};
    int fd = -1;
    cairn_sha256_of(cairn_view_of(scope), digest);
    cairn_hex_encode(digest, SCOPE_DIGEST_BYTES, hex);
    snprintf(name, sizeof(name), "cairn/%u/%s/%s", geteuid(), up->places.node, hex);
    enum cairn_code code = cairn_net_claim(name, &fd, &why);
    if (code == CAIRN_OK) {
        drop(&up->claims.fds[kind]);
        up->claims.fds[kind] = fd + 1;
        return CAIRN_OK;
    }
    if (code == CAIRN_CONFLICT)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "another uploader of node %s runs on this machine (%s); give this one "
                          "another node name",
                          up->places.node, why.message);
    cairn_log(WARN, "node.unclaimed", "node=%s cause=\"%s\"", up->places.node, why.message);
    return CAIRN_OK;
}

void cairn_up_claims_tick(struct cairn_up *up) {
    for (size_t i = 0; i < CAIRN_COUNT(up->claims.fds); i++)
        if (up->claims.fds[i]) cairn_net_claim_clear(up->claims.fds[i] - 1);
}

void cairn_up_claims_release(struct cairn_up *up) {
    for (size_t i = 0; i < CAIRN_COUNT(up->claims.fds); i++) drop(&up->claims.fds[i]);
}
