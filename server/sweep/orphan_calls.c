/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/orphans, /v1/not-freed and /v1/gc: what lies in the store and is nobody's, what the store
 * keeps of what was deleted, and what is about to go. */
#include "server/sweep/orphans.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/text.h"
#include "server/guard/jobs.h"
#include "server/http/request.h"
#include "server/ledger/events.h"
#include "server/ledger/version_lists.h"
#include "server/versions/versions_json.h"

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
    json_t *next = more ? cairn_srv_cursor_write(request->server, place) : NULL;
    return cairn_srv_reply_page(reply, items, next, err);
}

/* ---- /v1/not-freed ---- */

struct page {
    char after[CAIRN_VERSION_ID_BYTES];
    uint64_t limit, count;
    json_t *items;
};

static enum cairn_code take_row(const struct cairn_srv_not_freed_row *row, void *owner,
                                struct cairn_error *err) {
    struct page *page = owner;
    if (page->count++ == page->limit) return CAIRN_OK; /* there is another page */
    (void)cairn_text_copy(page->after, sizeof(page->after), row->version.text);
    CAIRN_AUTO_JSON json_t *kept = cairn_srv_not_freed_json(&row->not_freed);
    json_t *item = json_pack("{s:s, s:s, s:s, s:I, s:s}", "project", row->name.project, "run",
                             row->name.run, "version", row->version.text, "step",
                             (json_int_t)row->step, "state", cairn_state_text(row->state));
    if (!json_object_update(item, kept) && !json_array_append_new(page->items, item))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of what is not freed");
}

static enum cairn_code read_page(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct page *page = argument;
    char after[CAIRN_VERSION_ID_BYTES];
    memcpy(after, page->after, sizeof(after));
    return cairn_srv_not_freed_each(tx, after, page->limit + 1, take_row, page, err);
}

enum cairn_code cairn_srv_on_not_freed_list(struct cairn_srv_request *request,
                                            struct cairn_srv_reply *reply,
                                            struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    struct page page = {.items = items};
    CAIRN_TRY(cairn_srv_thawed(request->server, err));
    CAIRN_TRY(cairn_srv_query_limit(request, &page.limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, page.after, sizeof(page.after), err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, read_page, &page, err));
    bool more = page.count > page.limit;
    json_t *next = more ? cairn_srv_cursor_write(request->server, page.after) : NULL;
    return cairn_srv_reply_page(reply, CAIRN_TAKE(items), next, err);
}

/* ---- /v1/gc ---- */

struct counts {
    struct cairn_srv_kind_count kinds[CAIRN_SRV_KINDS];
    struct cairn_srv_not_freed_sum not_freed;
};

static enum cairn_code count(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct counts *counts = argument;
    CAIRN_TRY(cairn_srv_not_freed_sum(tx, &counts->not_freed, err));
    return cairn_srv_kinds_count(tx, counts->kinds, err);
}

static enum cairn_code answer(struct cairn_srv_request *request, struct cairn_srv_orphans *orphans,
                              struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct counts counts;
    struct cairn_srv_orphans_status status;
    char looked[32];
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, count, &counts, err));
    cairn_srv_orphans_status(orphans, &status);
    cairn_time_text(status.looked_ms, true, looked);
    const struct cairn_srv_kind_count *kinds = counts.kinds, *trash = &kinds[CAIRN_SRV_KINDS - 1];
    uint64_t ended = kinds[CAIRN_STATE_ABORTING].versions + kinds[CAIRN_STATE_DELETING].versions;
    return cairn_srv_reply_json(
        reply, 200,
        CAIRN_PACK(gc, .looking = status.looking, .objects = status.objects, .bytes = status.bytes,
                   .looked_at = status.looked_ms ? looked : NULL,
                   .trouble = status.trouble[0] ? status.trouble : NULL, .orphans = status.versions,
                   .orphan_bytes = status.orphan_bytes, .ended = ended, .trash = trash->versions,
                   .trash_bytes = trash->bytes, .not_freed = counts.not_freed.versions,
                   .not_freed_bytes = counts.not_freed.bytes),
        err);
}

enum cairn_code cairn_srv_on_gc_get(struct cairn_srv_request *request,
                                    struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct cairn_srv_orphans *orphans = NULL;
    CAIRN_TRY(orphans_of(request->server, &orphans, err));
    return answer(request, orphans, reply, err);
}

/* What the store has kept so far is tried again, too. */
static enum cairn_code begin(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct cairn_run_name all = {0};
    (void)argument;
    CAIRN_TRY(cairn_srv_not_freed_hurry(tx, err));
    return cairn_srv_event_of_name(tx, CAIRN_SRV_EVENT_GC_ASKED, &all, NULL, err);
}

/* May be repeated until nothing is under way: what has just ended is not begun again. */
enum cairn_code cairn_srv_on_gc(struct cairn_srv_request *request, struct cairn_srv_reply *reply,
                                struct cairn_error *err) {
    struct cairn_srv_orphans *orphans = NULL;
    CAIRN_TRY(orphans_of(request->server, &orphans, err));
    if (cairn_srv_orphans_ask(orphans))
        CAIRN_TRY(cairn_srv_catalog_write(request->server->catalog, begin, NULL, err));
    cairn_srv_jobs_sweep(request->server);
    return answer(request, orphans, reply, err);
}
