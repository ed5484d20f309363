/* SPDX-License-Identifier: Apache-2.0 */
/* A table of responses by their path; see kept.h. */
#include "server/http/kept.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "server/http/waiters.h"

#define BODY_BYTES_MAX (16 * CAIRN_KIB)

struct answer {
    char *path; /* owned; NULL: none */
    uint64_t holds_for, body_bytes;
    struct MHD_Response *response; /* a reference of ours */
};
struct cairn_srv_kept {
    struct cairn_lock lock;
    struct {
        struct answer answers[CAIRN_SRV_KEPT_MAX];
    } locked;
};

static void release(struct answer *answer) {
    if (answer->response) MHD_destroy_response(answer->response);
    free(answer->path);
    *answer = (struct answer){0};
}

enum cairn_code cairn_srv_kept_new(struct cairn_srv_kept **ret, struct cairn_error *err) {
    *ret = calloc(1, sizeof(**ret));
    if (!*ret) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for answers");
    cairn_lock_init(&(*ret)->lock, CAIRN_LOCK_server_kept);
    return CAIRN_OK;
}

void cairn_srv_kept_free(struct cairn_srv_kept *kept) {
    if (!kept) return;
    for (size_t i = 0; i < CAIRN_SRV_KEPT_MAX; i++) release(&kept->locked.answers[i]);
    cairn_lock_release(&kept->lock);
    free(kept);
}

static bool may_be_kept(const struct cairn_srv_exchange *exchange) {
    const struct cairn_srv *server = exchange->http->server;
    const struct cairn_srv_request *request = &exchange->request;
    return request->route->id == CAIRN_ROUTE_CHECKPOINT_GET && !request->head_only &&
           !request->query.count && !exchange->origin[0] && !request->if_none_match[0] &&
           !server->frozen && !server->frozen_runs && !cairn_srv_catalog_is_shared(server->catalog);
}

static struct answer *place_of(struct cairn_srv_kept *kept, const char *path) {
    return &kept->locked.answers[cairn_srv_key_of(path) % CAIRN_SRV_KEPT_MAX];
}

bool cairn_srv_kept_keep(const struct cairn_srv_exchange *exchange, struct MHD_Response *response,
                         uint64_t body_bytes) {
    const struct cairn_srv_reply *reply = &exchange->reply;
    struct cairn_srv_kept *kept = exchange->http->kept;
    if (!reply->holds_for || exchange->code || body_bytes > BODY_BYTES_MAX) return false;
    if ((reply->status && reply->status != 200) || !may_be_kept(exchange)) return false;
    char *path = strdup(exchange->request.path);
    if (!path) return false;
    CAIRN_HOLD(&kept->lock);
    struct answer *answer = place_of(kept, path);
    release(answer);
    *answer = (struct answer){path, reply->holds_for, body_bytes, response};
    return true;
}

bool cairn_srv_kept_give(const struct cairn_srv_exchange *exchange, enum MHD_Result *ret,
                         uint64_t *ret_body_bytes) {
    struct cairn_srv_kept *kept = exchange->http->kept;
    if (!may_be_kept(exchange)) return false;
    uint64_t changes = cairn_srv_catalog_changes(exchange->http->server->catalog);
    CAIRN_HOLD(&kept->lock);
    const struct answer *answer = place_of(kept, exchange->request.path);
    if (!answer->path || answer->holds_for != changes ||
        strcmp(answer->path, exchange->request.path) != 0)
        return false;
    *ret_body_bytes = answer->body_bytes;
    *ret = MHD_queue_response(exchange->connection, MHD_HTTP_OK, answer->response);
    return true;
}
