/* SPDX-License-Identifier: Apache-2.0 */
/* POST {C}/restore-plans: the ranges of objects that a restore needs, and one URL per object. The
 * same body gives the same ranges with new URLs; a job's call also takes or renews its lease.
 *
 * {C}/leases: a lease keeps a version from deletion while it is read, so that a plan's ranges and
 * URLs stay good (Q29). One transaction finds, judges and leases it, up to CAIRN_LEASE_S_MAX. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "plan/reads.h"
#include "server/guard/jobs.h"
#include "server/reads/shard_calls.h"
#include "server/reads/tier_reads.h"

#define NAMES_MAX 4096 /* shards or tensors per body */
#define OBJECTS_MAX 4096
#define RANGES_MAX 65536
#define PIECES_MAX (UINT32_C(1) << 20) /* before joining */
#define BODY_NODES_MAX 100000
#define LEASE_S 300 /* default */

/* ---- leases ---- */

struct leased {
    const char *ref, *job;
    uint64_t ttl_s; /* 0: LEASE_S */
    bool made;
    struct cairn_version_id version;
    uint64_t step;
    char id[SRV_READ_LEASE_BYTES];
};
struct lease_call {
    struct srv_request *request;
    struct leased leased;
    bool drop;
};

static json_t *leased_json(const struct leased *leased) {
    return CAIRN_PACK(lease_row, .lease = leased->id, .version = leased->version.text,
                      .step = leased->step, .job = leased->job, .expires_s = leased->ttl_s);
}

static enum cairn_code find_leasable(struct srv_tx *tx, struct lease_call *call, const char *ref,
                                     struct cairn_error *err) {
    struct srv_ref place = {&call->request->params.run_name, ref, false};
    SRV_GET(version, version, srv_version_find(tx, &place, &version, err));
    CAIRN_TRY(srv_version_there(&version, err));
    if (srv_version_shown(&version) != CAIRN_STATE_COMMITTED)
        return cairn_fail(err, CAIRN_NOT_COMMITTED,
                          "%s (step %" PRIu64 ") is %s: what is committed can be leased",
                          version.id.text, version.step,
                          cairn_state_text(srv_version_shown(&version)));
    call->leased.version = version.id;
    call->leased.step = version.step;
    return CAIRN_OK;
}

/* Advances catalog time first, since an old tick would shorten the lease by its age. */
static enum cairn_code lease_end(struct srv_tx *tx, struct lease_call *call, uint64_t *ret_tick,
                                 struct cairn_error *err) {
    struct srv *server = call->request->server;
    CAIRN_TRY(srv_ticks_advance(tx, server, err));
    *ret_tick = srv_ticks_after(server, call->leased.ttl_s * 1000);
    return CAIRN_OK;
}

SRV_CHANGE(take_lease, struct lease_call *call) {
    struct leased *leased = &call->leased;
    CAIRN_TRY(find_leasable(tx, call, leased->ref, err));
    struct srv_read_lease lease = {.version = leased->version.text,
                                   .job = leased->job,
                                   .wall_ms = srv_wall_ms(call->request->server)};
    srv_read_lease_name(lease.version, lease.job, lease.id);
    (void)cairn_text_copy(leased->id, sizeof(leased->id), lease.id);
    CAIRN_TRY(lease_end(tx, call, &lease.until_tick, err));
    return srv_read_lease_take(tx, &lease, &leased->made, err);
}

/* The caller sets ref, job and ttl_s. */
static enum cairn_code lease_version(struct srv_request *request, struct leased *leased,
                                     struct cairn_error *err) {
    struct lease_call call = {.request = request, .leased = *leased};
    CAIRN_TRY(srv_thawed(request->server, err));
    if (!call.leased.ttl_s) call.leased.ttl_s = LEASE_S;
    CAIRN_TRY(srv_catalog_write(request->server->catalog, take_lease, &call, err));
    *leased = call.leased;
    if (leased->made)
        cairn_log(INFO, "lease.taken", "version=%s lease=%s job=%s ttl_s=%" PRIu64,
                  leased->version.text, leased->id, leased->job, leased->ttl_s);
    return CAIRN_OK;
}

/* ---- plans ---- */

struct span { /* whole blocks of a shard; begin = end: an empty shard */
    uint32_t shard;
    uint64_t begin, end;
};
struct plan {
    struct srv_request *request;
    json_t *body, *shards, *tensors; /* the lists borrow from body */
    struct srv_version version;
    struct srv_held *manifest, *layout; /* layout: only for tensors */
    struct span *spans;
    size_t span_count, span_capacity;
    bool leased;
    struct leased lease;
    struct cairn_store *signs; /* the store of the URLs; NULL: none */
    uint32_t life_s;           /* of the URL that ends first; 0: no URLs */
    json_t *objects;
};
struct want_numbers {
    uint64_t start[CAIRN_DIMENSIONS_MAX], count[CAIRN_DIMENSIONS_MAX];
};

/* ---- the body ---- */

/* An empty list counts as none: generated clients send one when their caller names nothing. */
static enum cairn_code check_list(json_t **list, const char *name, struct cairn_error *err) {
    size_t count = json_array_size(*list);
    if (!count) *list = NULL;
    if (count <= NAMES_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "/%s: %zu of them, a plan takes %d", name, count,
                      NAMES_MAX);
}

/* No body, like {}, plans all shards. */
static enum cairn_code read_body(struct plan *plan, struct cairn_error *err) {
    struct cairn_msg_restore_plan wanted = {0};
    if (!plan->request->body.size) return CAIRN_OK;
    CAIRN_TRY(srv_body(plan->request, BODY_NODES_MAX, &plan->body, err));
    CAIRN_TRY(cairn_msg_restore_plan_read(plan->body, "", &wanted, err));
    plan->shards = wanted.shards;
    plan->tensors = wanted.tensors;
    plan->leased = wanted.job != NULL;
    plan->lease = (struct leased){plan->request->params.ref, wanted.job, .ttl_s = wanted.ttl_s};
    if (wanted.job && !wanted.job[0])
        return cairn_fail(err, CAIRN_INVALID, "/job: who reads is not empty");
    CAIRN_TRY(check_list(&plan->shards, "shards", err));
    return check_list(&plan->tensors, "tensors", err);
}

static enum cairn_code open_version(struct plan *plan, struct cairn_error *err) {
    struct srv_request *request = plan->request;
    if (plan->leased) {
        CAIRN_TRY(lease_version(request, &plan->lease, err));
        plan->lease.ref = plan->lease.version.text; /* `latest` may have moved since */
        (void)cairn_text_copy(request->params.ref, sizeof(request->params.ref), plan->lease.ref);
    }
    CAIRN_TRY(srv_readable(request, &plan->version, err));
    CAIRN_TRY(
        srv_cache_manifest(request->server, request->store, &plan->version, &plan->manifest, err));
    if (!plan->tensors || !plan->version.has_layout) return CAIRN_OK;
    return srv_cache_layout(request->server, request->store, &plan->version, &plan->layout, err);
}

/* ---- the wanted ranges ---- */

static enum cairn_code add_span(struct plan *plan, uint32_t shard, uint64_t begin, uint64_t end,
                                struct cairn_error *err) {
    struct span *last = plan->span_count ? &plan->spans[plan->span_count - 1] : NULL;
    if (last && last->shard == shard && begin >= last->begin && begin <= last->end) {
        last->end = cairn_max_u64(last->end, end);
        return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(plan->spans, plan->span_count, plan->span_capacity, PIECES_MAX,
                               "pieces of a plan", err));
    plan->spans[plan->span_count++] = (struct span){shard, begin, end};
    return CAIRN_OK;
}

static enum cairn_code add_all_shards(struct plan *plan, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &plan->manifest->manifest;
    for (size_t i = 0; i < manifest->shard_count; i++)
        CAIRN_TRY(add_span(plan, (uint32_t)i, 0, manifest->shards[i].size_bytes, err));
    return CAIRN_OK;
}

static enum cairn_code add_shards(struct plan *plan, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &plan->manifest->manifest;
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach(plan->shards, index, item) {
        if (!json_is_string(item))
            return cairn_fail(err, CAIRN_INVALID, "/shards/%zu: wanted a shard's name", index);
        const char *name = json_string_value(item);
        const struct cairn_manifest_shard *shard =
            cairn_manifest_find(manifest, cairn_view_of(name));
        if (!shard)
            return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no shard \"%s\"", plan->version.id.text,
                              cairn_short(name).text);
        uint32_t number = (uint32_t)(shard - manifest->shards);
        CAIRN_TRY(add_span(plan, number, 0, shard->size_bytes, err));
    }
    return CAIRN_OK;
}

/* The planner reads one number per dimension of the tensor. */
static enum cairn_code read_numbers(const json_t *list, const char *pointer, unsigned wanted,
                                    uint64_t *ret, struct cairn_error *err) {
    if (json_array_size(list) != wanted)
        return cairn_fail(err, CAIRN_INVALID, "%s: %zu numbers, the tensor has %u dimensions",
                          pointer, json_array_size(list), wanted);
    for (unsigned i = 0; i < wanted; i++) {
        const json_t *number = json_array_get(list, i);
        if (!json_is_integer(number))
            return cairn_fail(err, CAIRN_INVALID, "%s/%u: wanted an integer", pointer, i);
        ret[i] = (uint64_t)json_integer_value(number);
    }
    return CAIRN_OK;
}

static enum cairn_code read_box(const struct cairn_layout *layout, const json_t *start,
                                const json_t *count, const char *pointer,
                                struct want_numbers *numbers, struct cairn_plan_want *want,
                                struct cairn_error *err) {
    char place[48];
    uint32_t index = 0;
    struct cairn_plan_fragments fragments = {0};
    CAIRN_TRY(cairn_plan_resolve(layout, want->tensor, &index, err));
    CAIRN_TRY(cairn_plan_fragments_choose(&fragments, layout, index, want->local_rank, err));
    unsigned dimensions = fragments.tensor.dimension_count;
    snprintf(place, sizeof(place), "%s/start", pointer);
    CAIRN_TRY(read_numbers(start, place, dimensions, numbers->start, err));
    snprintf(place, sizeof(place), "%s/count", pointer);
    CAIRN_TRY(read_numbers(count, place, dimensions, numbers->count, err));
    want->form = CAIRN_PLAN_BOX;
    want->start = numbers->start;
    want->count = numbers->count;
    return CAIRN_OK;
}

/* item: "name", or {name, start, count, rank}. */
static enum cairn_code read_want(const struct cairn_layout *layout, const json_t *item,
                                 size_t index, struct want_numbers *numbers,
                                 struct cairn_plan_want *ret, struct cairn_error *err) {
    struct cairn_msg_tensor_want want = {.name = json_string_value(item)};
    char pointer[32];
    snprintf(pointer, sizeof(pointer), "/tensors/%zu", index);
    if (!want.name && !json_is_object(item))
        return cairn_fail(err, CAIRN_INVALID, "%s: wanted a tensor's name or an object", pointer);
    if (!want.name) CAIRN_TRY(cairn_msg_tensor_want_read(item, pointer, &want, err));
    ret->tensor = cairn_view_of(want.name);
    ret->local_rank = want.rank;
    if (!want.start && !want.count) return CAIRN_OK;
    if (!want.start || !want.count)
        return cairn_fail(err, CAIRN_INVALID, "%s: start and count come together", pointer);
    return read_box(layout, want.start, want.count, pointer, numbers, ret, err);
}

/* Widens to whole blocks, so that the reader can verify their checksums. */
static enum cairn_code add_pieces(struct plan *plan, const struct cairn_plan_pieces *pieces,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < pieces->count; i++) {
        const struct cairn_plan_piece *piece = &pieces->pieces[i];
        uint64_t size = plan->manifest->manifest.shards[piece->shard].size_bytes;
        struct cairn_plan_range wide = cairn_plan_range_widen(
            (struct cairn_plan_range){piece->offset, piece->offset + piece->bytes}, size);
        CAIRN_TRY(add_span(plan, piece->shard, wide.begin, wide.end, err));
    }
    return CAIRN_OK;
}

static enum cairn_code add_tensors(struct plan *plan, struct cairn_error *err) {
    const struct cairn_layout *layout = plan->layout ? &plan->layout->layout : NULL;
    size_t count = json_array_size(plan->tensors);
    CAIRN_AUTO_HEAP struct cairn_plan_want *wants = calloc(count, sizeof(*wants));
    CAIRN_AUTO_HEAP struct want_numbers *numbers = calloc(count, sizeof(*numbers));
    if (!wants || !numbers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a plan");
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(
            read_want(layout, json_array_get(plan->tensors, i), i, &numbers[i], &wants[i], err));
    struct cairn_plan_pieces pieces = {0};
    CAIRN_TRY(cairn_plan_reads_most(&plan->manifest->manifest, layout, wants, count, PIECES_MAX,
                                    &pieces, err));
    enum cairn_code code = add_pieces(plan, &pieces, err);
    cairn_plan_pieces_release(&pieces);
    return code;
}

/* ---- sorting and joining ---- */

static int compare_spans(const void *a, const void *b) {
    const struct span *span_a = a, *span_b = b;
    if (span_a->shard != span_b->shard) return span_a->shard < span_b->shard ? -1 : 1;
    return span_a->begin < span_b->begin ? -1 : span_a->begin > span_b->begin;
}

static enum cairn_code join_spans(struct plan *plan, struct cairn_error *err) {
    size_t count = plan->span_count, objects = 0;
    if (count) qsort(plan->spans, count, sizeof(*plan->spans), compare_spans);
    plan->span_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct span span = plan->spans[i];
        CAIRN_TRY(add_span(plan, span.shard, span.begin, span.end, err));
    }
    for (size_t i = 0; i < plan->span_count; i++)
        objects += i == 0 || plan->spans[i].shard != plan->spans[i - 1].shard;
    if (objects > OBJECTS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a plan of %zu shards, at most %d are given",
                          objects, OBJECTS_MAX);
    if (plan->span_count > RANGES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a plan of %zu ranges, at most %d are given",
                          plan->span_count, RANGES_MAX);
    return CAIRN_OK;
}

/* ---- the answer ---- */

/* The store's URL, or the path of the shard's data on this server. */
static enum cairn_code write_place(struct plan *plan, const char *shard, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    if (plan->signs) {
        uint32_t life_s = 0;
        CAIRN_TRY(
            srv_urls_sign(plan->signs, &plan->version, shard, plan->life_s, ret, &life_s, err));
        plan->life_s = (uint32_t)cairn_min_u64(plan->life_s, life_s);
        return CAIRN_OK;
    }
    const struct cairn_run_name *name = &plan->version.name;
    CAIRN_TRY(cairn_buf_printf(ret, err, "%s/v1/runs/%s/%s/checkpoints/%s/shards/",
                               srv_public_path(plan->request->server->settings), name->project,
                               name->run, plan->version.id.text));
    /* Slashes stay unescaped: proxies refuse %2F, decode it, or encode its % again. */
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(shard), true, ret, err));
    return cairn_buf_append_text(ret, "/data", err);
}

/* Writes the spans of one shard from `first` on; *ret_next is the first span of the next shard. */
static enum cairn_code write_object(struct plan *plan, size_t first, size_t *ret_next,
                                    struct cairn_error *err) {
    uint32_t number = plan->spans[first].shard;
    const struct cairn_manifest_shard *shard = &plan->manifest->manifest.shards[number];
    bool signs = plan->signs != NULL;
    char crc[16];
    snprintf(crc, sizeof(crc), "%08x", shard->crc32c);
    CAIRN_AUTO(buf) place = {0};
    CAIRN_AUTO_JSON json_t *ranges = json_array();
    for (*ret_next = first; *ret_next < plan->span_count; (*ret_next)++) {
        const struct span *span = &plan->spans[*ret_next];
        if (span->shard != number) break;
        if (span->begin == span->end) continue;
        /* A pair without field names: no row of messages.def. */
        CAIRN_TRY(cairn_json_append(
            ranges,
            json_pack("[I, I]", (json_int_t)span->begin, (json_int_t)(span->end - span->begin)),
            "the answer", err));
    }
    CAIRN_TRY(write_place(plan, shard->name, &place, err));
    json_t *object = CAIRN_PACK(restore_object, .shard = shard->name, .bytes = shard->size_bytes,
                                .crc32c = crc, .url = signs ? place.data : NULL,
                                .path = signs ? NULL : place.data, .ranges = ranges);
    CAIRN_TRY(cairn_json_append(plan->objects, object, "the answer", err));
    return CAIRN_OK;
}

static enum cairn_code write_reply(struct plan *plan, struct srv_reply *reply,
                                   struct cairn_error *err) {
    struct srv *server = plan->request->server;
    CAIRN_TRY(srv_urls_find(server, &plan->version, &plan->signs, err));
    if (plan->signs)
        CAIRN_TRY(
            srv_urls_life(server, &plan->version, plan->lease.ttl_s * 1000, &plan->life_s, err));
    plan->objects = json_array();
    for (size_t i = 0; i < plan->span_count;) CAIRN_TRY(write_object(plan, i, &i, err));
    CAIRN_AUTO_JSON json_t *lease = plan->leased ? leased_json(&plan->lease) : NULL;
    if (plan->leased && !lease) return srv_no_memory(err);
    CAIRN_TRY(
        srv_reply_json(reply, 201,
                       CAIRN_PACK(restore_planned, .version = plan->version.id.text,
                                  .expires_s = plan->life_s ? plan->life_s : CAIRN_MESSAGE_NONE,
                                  .lease = lease, .objects = plan->objects),
                       err));
    srv_reply_header(reply, "Cache-Control", "no-store");
    return CAIRN_OK;
}

static enum cairn_code make_plan(struct plan *plan, struct srv_reply *reply,
                                 struct cairn_error *err) {
    CAIRN_TRY(read_body(plan, err));
    CAIRN_TRY(open_version(plan, err));
    if (!plan->shards && !plan->tensors) CAIRN_TRY(add_all_shards(plan, err));
    if (plan->shards) CAIRN_TRY(add_shards(plan, err));
    if (plan->tensors) CAIRN_TRY(add_tensors(plan, err));
    CAIRN_TRY(join_spans(plan, err));
    return write_reply(plan, reply, err);
}

SRV_HANDLER(restore_plan) {
    struct plan plan = {.request = request};
    enum cairn_code code = make_plan(&plan, reply, err);
    if (code == CAIRN_TOO_LARGE)
        snprintf(reply->hint, sizeof(reply->hint),
                 "Plan in several calls: name some of the shards or tensors in each.");
    srv_cache_give(request->server, plan.manifest);
    srv_cache_give(request->server, plan.layout);
    srv_version_release(&plan.version);
    json_decref(plan.body);
    json_decref(plan.objects);
    free(plan.spans);
    return code;
}

/* ---- the calls of {C}/leases ---- */

SRV_HANDLER(lease_take) {
    SRV_BODY(body, lease_take, said, 100);
    struct leased leased = {request->params.ref, said.job, .ttl_s = said.ttl_s};
    if (!said.job[0]) return cairn_fail(err, CAIRN_INVALID, "/job: who reads is not empty");
    CAIRN_TRY(lease_version(request, &leased, err));
    return srv_reply_json(reply, leased.made ? 201 : 200, leased_json(&leased), err);
}

SRV_CHANGE(change_lease, struct lease_call *call) {
    struct leased *leased = &call->leased;
    const char *id = call->request->params.node;
    bool found = false;
    uint64_t until_tick = 0;
    CAIRN_TRY(find_leasable(tx, call, call->request->params.ref, err));
    if (call->drop) {
        CAIRN_TRY(srv_read_lease_drop(tx, id, leased->version.text, &found, err));
    } else {
        CAIRN_TRY(lease_end(tx, call, &until_tick, err));
        CAIRN_TRY(srv_read_lease_renew(tx, id, leased->version.text, until_tick, &found, err));
    }
    if (found) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s has no lease %s: it has ended, or was given back",
                      leased->version.text, id);
}

static enum cairn_code serve_change(struct lease_call *call, struct srv_reply *reply,
                                    struct cairn_error *err) {
    struct srv *server = call->request->server;
    const char *id = call->request->params.node;
    CAIRN_TRY(srv_thawed(server, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, change_lease, call, err));
    if (call->drop)
        cairn_log(INFO, "lease.given_back", "version=%s lease=%s", call->leased.version.text, id);
    (void)cairn_text_copy(call->leased.id, sizeof(call->leased.id), id);
    return srv_reply_json(reply, 200, leased_json(&call->leased), err);
}

SRV_HANDLER(lease_renew) {
    CAIRN_AUTO_JSON json_t *body = NULL;
    struct cairn_msg_lease_renew said = {0};
    if (request->body.size) CAIRN_TRY(srv_body(request, 100, &body, err));
    if (body) CAIRN_TRY(cairn_msg_lease_renew_read(body, "", &said, err));
    struct lease_call call = {.request = request};
    call.leased.ttl_s = said.ttl_s ? said.ttl_s : LEASE_S;
    return serve_change(&call, reply, err);
}

SRV_HANDLER(lease_drop) {
    struct lease_call call = {.request = request, .drop = true};
    return serve_change(&call, reply, err);
}

SRV_HANDLER(lease_list) {
    struct lease_call call = {.request = request};
    json_t *items = NULL;
    CAIRN_TRY(srv_thawed(request->server, err));
    {
        SRV_LOOK(look, request->server->catalog, err);
        CAIRN_TRY(find_leasable(look.tx, &call, request->params.ref, err));
        CAIRN_TRY(
            srv_read_leases_of(look.tx, call.leased.version.text, call.leased.step, &items, err));
    }
    return srv_reply_page(reply, items, NULL, err);
}
