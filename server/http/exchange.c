/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an exchange: by the library's word that its request is over, or with its connection
 * where the library has refused it without one. */
#include <stdlib.h>

#include "server/events/feed.h"
#include "server/http/inside.h"
#include "server/reads/stream.h"

void cairn_srv_exchange_free(struct cairn_srv_exchange *exchange) {
    if (!exchange) return;
    cairn_buf_release(&exchange->body);
    cairn_srv_stream_free(exchange->reply.stream);
    cairn_srv_follower_free(exchange->reply.follower);
    cairn_srv_trim_later(exchange->reply.body.size);
    cairn_srv_reply_release(&exchange->reply);
    free(exchange->request.path);
    free(exchange->target);
    free(exchange);
}

void cairn_srv_exchange_finish(struct cairn_srv_exchange *exchange) {
    exchange->ready = true;
    MHD_resume_connection(exchange->connection);
}
