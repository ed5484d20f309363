/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request: what a handler receives and answers, without the HTTP library.
 *
 * Why:     handlers are plain functions from a checked request to a reply, without transport.
 * Promise: 1   a handler that returns another code than CAIRN_OK is answered with a problem+json
 *              body of that code, err->message as its detail and reply->extra as further members.
 *          2   a handler that sets reply->park runs again from its start when its key changes or at
 *              park_until_ms.
 *          3   params and query passed their rules; the body is whole and within its route's limit.
 *          4   a reply with holds_for may be reused for every authorized caller of the same path
 *              without a query, until the catalog changes (server/http/inside.h).
 * Limits:  8 reply headers of 511 bytes.
 * Threads: one pool thread at a time.
 * Next:    api/routes.def lists routes and handlers; server/handle.c calls the handlers.
 */
#pragma once

#include <sys/types.h>

#include "api/wire/routes.h"
#include "common/json.h"
#include "common/trace.h"
#include "server/access/access.h"
#include "server/ledger/tokens.h"

struct cairn_srv_request {
    struct cairn_srv *server;
    struct cairn_store_worker *store; /* of the handler's thread */
    const struct cairn_route *route;
    struct cairn_route_params params;
    struct cairn_query query;
    bool head_only;
    char *path; /* raw, without the query; NULL until parsed */
    struct cairn_view body;
    char range[256], if_range[128], if_match[1024], if_none_match[1024];
    char accept[256], accept_encoding[128], prefer[128], last_event_id[24];
    char idempotency_key[CAIRN_SRV_IDEMPOTENCY_KEY_MAX + 1]; /* of a POST; "": none */
    char grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_trace trace; /* the caller's; empty: none or malformed */
    char from[64];            /* peer address; "": unknown */
    struct cairn_srv_credential credential;
    struct cairn_srv_caller caller;  /* as authorized before the handler ran */
    uint64_t arrived_ms;             /* mono clock, when it was complete */
    uint64_t seen;                   /* the waiters' change count from before the handler ran */
    struct cairn_version_id awaited; /* the version it waits for, once found; "": none */
    uint64_t asked, asked_ms; /* Q3: nodes were asked, with this number, at this time; 0: not */
    bool wait_over;           /* the server stops: answer as if the wait timed out */
    bool node_said;           /* Q3: the body's report about the caller's node was stored */
};

/* A reply body streamed as it becomes available: of a shard, or of events. */
struct cairn_srv_flow_hooks {
    void (*pause)(void *owner);
    void (*wake)(void *owner);
    void *owner;
};
struct cairn_srv_flow {
    void *owner; /* NULL: no flow */
    /* Copies up to capacity bytes from position, which only grows. 0: none available yet; take has
     * called pause(), and calls wake() once, on another thread, when bytes arrive or the flow ends.
     * -1: the flow has ended; with a known size this is a failure. */
    ssize_t (*take)(void *owner, uint64_t position, void *to, size_t capacity,
                    const struct cairn_srv_flow_hooks *hooks);
    void (*free)(void *owner);
    uint64_t size_bytes; /* UINT64_MAX: unknown */
    size_t step_bytes;   /* size of one take */
};

struct cairn_srv_reply {
    int status; /* 0 = 200 */
    struct cairn_buf body;
    const char *content_type; /* NULL = application/json */
    struct cairn_srv_header {
        const char *name;
        char value[512];
    } headers[8];
    size_t header_count;
    struct cairn_buf location; /* header Location: a presigned URL */
    struct cairn_buf next;     /* header Link: cursor of the next page */
    json_t *extra;             /* more members of a problem; freed with the reply */
    char hint[200];
    uint32_t retry_s;           /* Retry-After of CAIRN_CATALOG_BEHIND; 0: needs an operator */
    struct cairn_srv_flow flow; /* instead of body */
    uint64_t head_bytes;        /* HEAD: Content-Length without a body; 0: the body's size */
    bool park;
    bool rung;    /* a met condition notifies park_key: a time-out should be in vain ... */
    bool in_vain; /* ... as this answer is, although its code does not show it */
    uint64_t park_key, park_until_ms;
    /* Every authorized caller gets this answer at this change count of the catalog; 0: no reuse. */
    uint64_t holds_for;
};
void cairn_srv_reply_release(struct cairn_srv_reply *reply);

#define ROUTE(id, handler, method, need, template_text, query, wait)                               \
    enum cairn_code cairn_srv_on_##handler(struct cairn_srv_request *request,                      \
                                           struct cairn_srv_reply *reply,                          \
                                           struct cairn_error *err);
#include "api/routes.def"
#undef ROUTE

/* ---- helpers of handlers ---- */

void cairn_srv_reply_header(struct cairn_srv_reply *reply, const char *name, const char *format,
                            ...) CAIRN_PRINTF(3, 4);
/* Frees take_json, also on failure; NULL (no memory) fails. */
enum cairn_code cairn_srv_reply_json(struct cairn_srv_reply *reply, int status, json_t *take_json,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* One page of a list. Frees take_items and take_next, also on failure; take_items NULL (no memory)
 * fails; take_next, a text of cairn_srv_cursor_write, is NULL on the last page. */
enum cairn_code cairn_srv_reply_page(struct cairn_srv_reply *reply, json_t *take_items,
                                     json_t *take_next, struct cairn_error *err) CAIRN_MUST_USE;
/* Adds one member to a later problem; frees take_value on failure. */
void cairn_srv_reply_extra(struct cairn_srv_reply *reply, const char *name, json_t *take_value);
/* A problem document, for replies and for items of a batch. */
json_t *cairn_srv_problem(enum cairn_code code, const struct cairn_error *why,
                          const char *instance);
/* Parses the body as a JSON object of at most `nodes` values. */
enum cairn_code cairn_srv_body(const struct cairn_srv_request *request, size_t nodes,
                               json_t **ret_body, struct cairn_error *err) CAIRN_MUST_USE;
/* ?limit= (1..1000, default 100). */
enum cairn_code cairn_srv_query_limit(const struct cairn_srv_request *request, uint64_t *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Deadline from ?wait=30s, else Prefer: wait=30; unchanged without a wait or after its end. */
enum cairn_code cairn_srv_query_wait(const struct cairn_srv_request *request,
                                     uint64_t *ret_until_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* RFC 9110, 13.1: true when a list of entity tags, or "*", contains tag, which is strong and
 * quoted. Weak tags (W/"...") match in If-None-Match but not in If-Match. */
bool cairn_srv_tag_listed(const char *list, const char *tag, bool weak_counts);
/* Cache-Control for bytes of a committed version: immutable when the path has the version's id;
 * revalidated when it has `latest` or a step, which may later mean another version. */
void cairn_srv_reply_cached(const struct cairn_srv_request *request, struct cairn_srv_reply *reply);
/* If-Match of a change that requires one: "*", or a list with `tag` or `other` (NULL: no other).
 * CAIRN_PRECONDITION_MISSING without the header, CAIRN_PRECONDITION when neither is listed. */
enum cairn_code cairn_srv_must_match(const struct cairn_srv_request *request, const char *tag,
                                     const char *other, struct cairn_error *err) CAIRN_MUST_USE;
/* Cursors: an encrypted text that only servers of this catalog can read. "" without a cursor. */
enum cairn_code cairn_srv_cursor_read(const struct cairn_srv_request *request, char *ret,
                                      size_t capacity, struct cairn_error *err) CAIRN_MUST_USE;
json_t *cairn_srv_cursor_write(const struct cairn_srv *server, const char *text);
/* Checks that this deployment signed the grant for this store. */
enum cairn_code cairn_srv_grant_judge(const struct cairn_srv *server, const char *text,
                                      struct cairn_grant *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The grant of a write: cairn_srv_grant_judge, and it must be for the run in the path. */
enum cairn_code cairn_srv_grant_read(const struct cairn_srv_request *request, const char *text,
                                     struct cairn_grant *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
