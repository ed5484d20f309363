/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/uploads: multipart uploads that no save will end, as the last look found them. */
#include "server/jobs/uploads.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"
#include "server/handlers/request.h"

enum cairn_code cairn_srv_on_upload_list(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv *server = request->server;
    uint64_t limit = 0, from = 0;
    char place[24] = "";
    bool more = false;
    CAIRN_TRY(cairn_srv_query_limit(request, &limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, place, sizeof(place), err));
    if (place[0]) CAIRN_TRY(cairn_parse_u64(cairn_view_of(place), &from, err));
    CAIRN_TRY(cairn_srv_thawed(server, err));
    if (!server->uploads || !cairn_store_profile(server->store)->lists_uploads)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "the store does not list the uploads below a prefix: a lifecycle rule of "
                          "the bucket has to end them, as cairn doctor says");
    json_t *items = cairn_srv_uploads_page(server->uploads, from, limit, &more);
    if (more) snprintf(place, sizeof(place), "%" PRIu64, from + limit);
    return cairn_srv_reply_page(reply, items, more ? cairn_srv_cursor_write(place) : NULL, err);
}
