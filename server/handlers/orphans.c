/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/orphans and /v1/gc: what lies in the store and is nobody's, and what is about to go. */
#include "server/jobs/orphans.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/catalog/version_lists.h"
#include "server/handlers/request.h"
#include "server/jobs/jobs.h"

static enum cairn_code orphans_of(struct cairn_srv *server, struct cairn_srv_orphans **ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(server, err));
    *ret = server->orphans;
    if (*ret) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "the server is starting");
}

enum cairn_code cairn_srv_on_orphan_list(struct cairn_srv_request *request,
                                         struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv_orphans *orphans = NULL;
    uint64_t limit = 0, from = 0;
    char place[24] = "";
    bool more = false;
    CAIRN_TRY(cairn_srv_query_limit(request, &limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, place, sizeof(place), err));
    if (place[0]) CAIRN_TRY(cairn_parse_u64(cairn_view_of(place), &from, err));
    CAIRN_TRY(orphans_of(request->server, &orphans, err));
    json_t *items = cairn_srv_orphans_page(orphans, from, limit, &more);
    if (more) snprintf(place, sizeof(place), "%" PRIu64, from + limit);
    return cairn_srv_reply_page(reply, items, more ? cairn_srv_cursor_write(place) : NULL, err);
}

static enum cairn_code count(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    return cairn_srv_kinds_count(tx, argument, err);
}

static enum cairn_code answer(struct cairn_srv_request *request, struct cairn_srv_orphans *orphans,
                              struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv_kind_count counts[CAIRN_SRV_KINDS];
    struct cairn_srv_orphans_status status;
    char looked[32];
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, count, counts, err));
    cairn_srv_orphans_status(orphans, &status);
    cairn_time_text(status.looked_ms, true, looked);
    const struct cairn_srv_kind_count *trash = &counts[CAIRN_SRV_KINDS - 1];
    uint64_t ended = counts[CAIRN_STATE_ABORTING].versions + counts[CAIRN_STATE_DELETING].versions;
    return cairn_srv_reply_json(
        reply, 200,
        CAIRN_PACK(gc, .looking = status.looking, .objects = status.objects, .bytes = status.bytes,
                   .looked_at = status.looked_ms ? looked : NULL,
                   .trouble = status.trouble[0] ? status.trouble : NULL, .orphans = status.versions,
                   .orphan_bytes = status.orphan_bytes, .ended = ended, .trash = trash->versions,
                   .trash_bytes = trash->bytes),
        err);
}

enum cairn_code cairn_srv_on_gc_get(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv_orphans *orphans = NULL;
    CAIRN_TRY(orphans_of(request->server, &orphans, err));
    return answer(request, orphans, reply, err);
}

/* May be repeated until nothing is under way: what has just ended is not begun again. */
enum cairn_code cairn_srv_on_gc(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                struct cairn_error *err) {
    struct cairn_srv_orphans *orphans = NULL;
    CAIRN_TRY(orphans_of(request->server, &orphans, err));
    cairn_srv_orphans_ask(orphans);
    cairn_srv_jobs_sweep(request->server);
    return answer(request, orphans, reply, err);
}
