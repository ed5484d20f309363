/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an exchange: by the library's word that its request is over, or with its connection
 * where the library has refused it without one. */
#include <stdlib.h>

#include "server/http/inside.h"

void cairn_srv_exchange_free(struct cairn_srv_exchange *exchange) {
    if (!exchange) return;
    cairn_buf_release(&exchange->body);
    if (exchange->reply.flow.owner) exchange->reply.flow.free(exchange->reply.flow.owner);
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
