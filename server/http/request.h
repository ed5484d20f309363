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
#include "server/access/access.h"

struct srv_request {
    struct srv *server;
    struct cairn_store_worker *store; /* of the handler's thread */
    const struct cairn_route *route;
    struct cairn_route_params params;
    struct cairn_query query;
    bool head_only;
    char *path; /* raw, without the query; NULL until parsed */
    struct cairn_view body;
    char range[256], if_range[128], if_match[1024], if_none_match[1024];
    char accept[256], accept_encoding[128], prefer[128], last_event_id[24];
    char idempotency_key[SRV_IDEMPOTENCY_KEY_MAX + 1]; /* of a POST; "": none */
    char grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_trace trace; /* the caller's; empty: none or malformed */
    char from[64];            /* peer address; "": unknown */
    struct srv_credential credential;
    struct srv_caller caller;        /* as authorized before the handler ran */
    uint64_t arrived_ms;             /* mono clock, when it was complete */
    uint64_t seen;                   /* the waiters' change count from before the handler ran */
    struct cairn_version_id awaited; /* the version it waits for, once found; "": none */
    uint64_t asked, asked_ms; /* Q3: nodes were asked, with this number, at this time; 0: not */
    bool wait_over;           /* the server stops: answer as if the wait timed out */
    bool node_said;           /* Q3: the body's report about the caller's node was stored */
};

/* A reply body streamed as it becomes available: of a shard, or of events. */
struct srv_flow_hooks {
    void (*pause)(void *owner);
    void (*wake)(void *owner);
    void *owner;
};
struct srv_flow {
    void *owner; /* NULL: no flow */
    /* Copies up to capacity bytes from position, which only grows. 0: none available yet; take has
     * called pause(), and calls wake() once, on another thread, when bytes arrive or the flow ends.
     * -1: the flow has ended; with a known size this is a failure. */
    ssize_t (*take)(void *owner, uint64_t position, void *to, size_t capacity,
                    const struct srv_flow_hooks *hooks);
    void (*free)(void *owner);
    uint64_t size_bytes; /* UINT64_MAX: unknown */
    size_t step_bytes;   /* size of one take */
};

struct srv_reply {
    int status; /* 0 = 200 */
    struct cairn_buf body;
    const char *content_type; /* NULL = application/json */
    struct srv_header {
        const char *name;
        char value[512];
    } headers[8];
    size_t header_count;
    struct cairn_buf location; /* header Location: a presigned URL */
    struct cairn_buf next;     /* header Link: cursor of the next page */
    json_t *extra;             /* more members of a problem; freed with the reply */
    char hint[200];
    uint32_t retry_s;     /* Retry-After of CAIRN_CATALOG_BEHIND; 0: needs an operator */
    struct srv_flow flow; /* instead of body */
    uint64_t head_bytes;  /* HEAD: Content-Length without a body; 0: the body's size */
    bool park;
    bool rung;    /* a met condition notifies park_key: a time-out should be in vain ... */
    bool in_vain; /* ... as this answer is, although its code does not show it */
    uint64_t park_key, park_until_ms;
    /* Every authorized caller gets this answer at this change count of the catalog; 0: no reuse. */
    uint64_t holds_for;
};
void srv_reply_release(struct srv_reply *reply);

/* The function of a route of api/routes.def, and that of one that differs from another only in its
 * path or method. */
#define SRV_HANDLER(name)                                                                          \
    enum cairn_code srv_on_##name(struct srv_request *request, struct srv_reply *reply,            \
                                  struct cairn_error *err)
#define SRV_HANDLED_AS(name, other)                                                                \
    SRV_HANDLER(name) {                                                                            \
        return srv_on_##other(request, reply, err);                                                \
    }
#define ROUTE(id, handler, method, need, template_text, query, ...) SRV_HANDLER(handler);
#include "api/routes.def"
#undef ROUTE

/* ---- helpers of handlers ---- */

void srv_reply_header(struct srv_reply *reply, const char *name, const char *format, ...)
    CAIRN_PRINTF(3, 4);
#define srv_no_memory(err) cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer")
/* Frees take_json, also on failure; NULL (no memory) fails. */
enum cairn_code srv_reply_json(struct srv_reply *reply, int status, json_t *take_json,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* One page of a list. Frees take_items and take_next, also on failure; take_items NULL (no memory)
 * fails; take_next, an encrypted cursor, is NULL on the last page. */
enum cairn_code srv_reply_page(struct srv_reply *reply, json_t *take_items, json_t *take_next,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Adds one member to a later problem; frees take_value on failure. */
void srv_reply_extra(struct srv_reply *reply, const char *name, json_t *take_value);
/* A problem document, for replies and for items of a batch. pointer_bytes: as below, or 0. */
json_t *srv_problem(enum cairn_code code, const struct cairn_error *why, const char *instance,
                    size_t pointer_bytes);
/* Size of the JSON pointer with which the message of a refusal begins. A member's name may hold
 * ": ", too; then the longest pointer counts that names a member of the body. 0: its first colon
 * ends it. */
size_t srv_pointer_bytes(const char *detail, struct cairn_view body);
/* Parses the body as a JSON object of at most `nodes` values. */
enum cairn_code srv_body(const struct srv_request *request, size_t nodes, json_t **ret_body,
                         struct cairn_error *err) CAIRN_MUST_USE;
/* In a handler: declares the body, of at most `nodes` values, and what it says as a message of
 * api/messages.def, and reads them. */
#define SRV_BODY(body, message, said, nodes)                                                       \
    CAIRN_AUTO_JSON json_t *body = NULL;                                                           \
    struct cairn_msg_##message said = {0};                                                         \
    CAIRN_TRY(srv_body(request, nodes, &body, err));                                               \
    CAIRN_TRY(cairn_msg_##message##_read(body, "", &said, err))
/* ?limit= (1..1000, default 100). */
enum cairn_code srv_query_limit(const struct srv_request *request, uint64_t *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Deadline from ?wait=30s, else Prefer: wait=30; unchanged without a wait or after its end. */
enum cairn_code srv_query_wait(const struct srv_request *request, uint64_t *ret_until_ms,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* RFC 9110, 13.1: true when a list of entity tags, or "*", contains tag, which is strong and
 * quoted. Weak tags (W/"...") match in If-None-Match but not in If-Match. */
bool srv_tag_listed(const char *list, const char *tag, bool weak_counts);
/* Cache-Control for bytes of a committed version: immutable when the path has the version's id;
 * revalidated when it has `latest` or a step, which may later mean another version. */
void srv_reply_cached(const struct srv_request *request, struct srv_reply *reply);
/* If-Match of a change that requires one: "*", or a list with `tag` or `other` (NULL: no other).
 * CAIRN_PRECONDITION_MISSING without the header, CAIRN_PRECONDITION when neither is listed. */
enum cairn_code srv_must_match(const struct srv_request *request, const char *tag,
                               const char *other, struct cairn_error *err) CAIRN_MUST_USE;
/* A page of a list, by ?limit and the cursor:
 *
 *     SRV_AUTO(list) list = {0};
 *     CAIRN_TRY(srv_list_open(request, &list, err));
 *     for each row after list.after
 *         if (srv_list_takes(&list, row.name))
 *             CAIRN_TRY(srv_list_add(&list, row_json(&row), err));
 *     return srv_list_reply(&list, reply, err);
 *
 * A list that reads limit + 1 rows learns by the last one that there is a next page; one that reads
 * limit rows sets `more` where it got as many. */
#define SRV_CURSOR_BYTES_MAX 1100
struct srv_list {
    const struct srv_request *request;
    uint64_t limit, count;                /* rows taken, also those that were not added */
    char after[SRV_CURSOR_BYTES_MAX + 1]; /* from the cursor; "": from the beginning on */
    char place[SRV_CURSOR_BYTES_MAX + 1]; /* of the last row taken: the next cursor */
    bool more;                            /* there is a next page */
    json_t *items;
};
enum cairn_code srv_list_open(const struct srv_request *request, struct srv_list *ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
/* `after` as a number; unchanged from the beginning on. */
enum cairn_code srv_list_after(const struct srv_list *list, uint64_t *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* False, and more is set, where the page is full. */
bool srv_list_takes(struct srv_list *list, const char *place);
/* take_item NULL: no memory. */
enum cairn_code srv_list_add(struct srv_list *list, json_t *take_item,
                             struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code srv_list_reply(struct srv_list *list, struct srv_reply *reply,
                               struct cairn_error *err) CAIRN_MUST_USE;
void srv_list_release(struct srv_list *list);
/* Checks that this deployment signed the grant for this store. */
enum cairn_code srv_grant_judge(const struct srv *server, const char *text, struct cairn_grant *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* The grant of a write: srv_grant_judge, and it must be for the run in the path. */
enum cairn_code srv_grant_read(const struct srv_request *request, const char *text,
                               struct cairn_grant *ret, struct cairn_error *err) CAIRN_MUST_USE;
