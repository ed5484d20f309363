/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request: what a handler is given and what it answers, without the HTTP library.
 *
 * Why:     handlers are plain functions from a checked request to a reply; how bytes come in and go
 *          out, deadlines and caps are http's affair alone.
 * Promise: 1   a handler that returns another code than CAIRN_OK is answered with a problem+json
 *              body of that code, err->message as its detail and reply->extra as further members.
 *          2   a handler that sets reply->park is run again, from the start, when its key changes
 *              or at park_until_ms, whichever is first.
 *          3   params and query were checked against their rules; the body is whole and within the
 *              limit of its route.
 *          4   a reply with holds_for may be given again to whoever asks for the same path without
 *              a query, once he was judged, until the catalog changes (server/http/inside.h).
 * Limits:  8 reply headers of 511 bytes.
 * Threads: one pool thread at a time.
 * Next:    api/routes.def for which handler takes what; server/handle.c, which calls it.
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
    struct cairn_store_worker *store; /* of the thread that runs the handler */
    const struct cairn_route *route;
    struct cairn_route_params params;
    struct cairn_query query;
    bool head_only;
    char *path; /* raw, without the query; NULL before that is known */
    struct cairn_view body;
    char range[256], if_range[128], if_match[1024], if_none_match[1024];
    char accept[256], accept_encoding[128], prefer[128], last_event_id[24];
    char idempotency_key[CAIRN_SRV_IDEMPOTENCY_KEY_MAX + 1]; /* of a POST; "": it has none */
    char grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_trace trace; /* of the caller; none: it named none, or none that is one */
    char from[64];            /* address of the peer; "": not known */
    struct cairn_srv_credential credential;
    struct cairn_srv_caller caller;  /* as it was judged before the handler ran */
    uint64_t arrived_ms;             /* mono clock, when it was whole */
    uint64_t seen;                   /* of the waiters, from before the handler ran */
    struct cairn_version_id awaited; /* whose state it waits for, once it was found; "": none */
    uint64_t asked, asked_ms; /* Q3: nodes by their rows, with this number, since then; 0: not */
    bool wait_over;           /* the server stops: whatever it waits for is not there yet */
    bool node_said;           /* Q3: what the body says of the caller's node was taken */
};

/* The bytes of an answer, as they come: of a shard, or of events. */
struct cairn_srv_flow_hooks {
    void (*pause)(void *owner);
    void (*wake)(void *owner);
    void *owner;
};
struct cairn_srv_flow {
    void *owner; /* NULL: there is no flow */
    /* Copies up to capacity bytes from position (which only grows). 0: not there yet; pause() was
     * called before the answer, and wake() is called once, on another thread, when bytes are there
     * or the flow has ended. -1: it has ended; where its size is known, it has failed. */
    ssize_t (*take)(void *owner, uint64_t position, void *to, size_t capacity,
                    const struct cairn_srv_flow_hooks *hooks);
    void (*free)(void *owner);
    uint64_t size_bytes; /* UINT64_MAX: not known */
    size_t step_bytes;   /* to take at once */
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
    struct cairn_buf location; /* a URL for one reader; header Location */
    struct cairn_buf next;     /* the cursor of the next page; header Link */
    json_t *extra;             /* further members of a problem; dropped with the reply */
    char hint[200];
    uint32_t retry_s; /* Retry-After of CAIRN_CATALOG_BEHIND; 0: it does not end by itself */
    struct cairn_srv_flow flow; /* instead of body */
    uint64_t head_bytes;        /* of a HEAD: Content-Length without a body; 0 = the body's */
    bool park;
    bool rung;    /* what ends this wait rings its key: the timer is for who waits in vain ... */
    bool in_vain; /* ... which this answer says by no code and no 304 */
    uint64_t park_key, park_until_ms;
    /* Who may ask is told the same while the catalog has this number of changes; 0: not. */
    uint64_t holds_for;
};
void cairn_srv_reply_release(struct cairn_srv_reply *reply);

/* Every row of api/routes.def has its handler. */
#define ROUTE(id, handler, method, need, template_text, query, wait)                               \
    enum cairn_code cairn_srv_on_##handler(struct cairn_srv_request *request,                      \
                                           struct cairn_srv_reply *reply,                          \
                                           struct cairn_error *err);
#include "api/routes.def"
#undef ROUTE

/* ---- helpers of handlers ---- */

void cairn_srv_reply_header(struct cairn_srv_reply *reply, const char *name, const char *format,
                            ...) CAIRN_PRINTF(3, 4);
/* take_json is dropped, also on failure; NULL (no memory) fails. */
enum cairn_code cairn_srv_reply_json(struct cairn_srv_reply *reply, int status, json_t *take_json,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* A page of a list. Both are dropped, also on failure; items NULL (no memory) fails; next, a text
 * of cairn_srv_cursor_write, is NULL on the last page. */
enum cairn_code cairn_srv_reply_page(struct cairn_srv_reply *reply, json_t *take_items,
                                     json_t *take_next, struct cairn_error *err) CAIRN_MUST_USE;
/* Adds one member to a later problem; take_value is dropped when that cannot be done. */
void cairn_srv_reply_extra(struct cairn_srv_reply *reply, const char *name, json_t *take_value);
/* A problem document, for replies and for items of a batch. */
json_t *cairn_srv_problem(enum cairn_code code, const struct cairn_error *why,
                          const char *instance);
/* The body as a JSON object of at most `nodes` values. */
enum cairn_code cairn_srv_body(const struct cairn_srv_request *request, size_t nodes,
                               json_t **ret_body, struct cairn_error *err) CAIRN_MUST_USE;
/* ?limit= (1..1000, default 100). */
enum cairn_code cairn_srv_query_limit(const struct cairn_srv_request *request, uint64_t *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* ?wait=30s, else Prefer: wait=30: until when; untouched when that is over, or nothing is waited
 * for. */
enum cairn_code cairn_srv_query_wait(const struct cairn_srv_request *request,
                                     uint64_t *ret_until_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* RFC 9110, 13.1: does a list of entity tags, or "*", name this one? tag is strong, with its
 * quotes. Of If-None-Match a weak one (W/"...") counts, of If-Match it does not. */
bool cairn_srv_tag_listed(const char *list, const char *tag, bool weak_counts);
/* Cache-Control of bytes of a committed version: for good where its id names them; asked again each
 * time where `latest` or a step does, since another version may be meant then. */
void cairn_srv_reply_cached(const struct cairn_srv_request *request, struct cairn_srv_reply *reply);
/* If-Match of a change that needs it: it lists `tag` or `other` (NULL: there is none), or is "*".
 * CAIRN_PRECONDITION_MISSING without one, CAIRN_PRECONDITION where it lists neither. */
enum cairn_code cairn_srv_must_match(const struct cairn_srv_request *request, const char *tag,
                                     const char *other, struct cairn_error *err) CAIRN_MUST_USE;
/* Opaque cursors: of a text, which only a server of this catalog reads. "" when there is none. */
enum cairn_code cairn_srv_cursor_read(const struct cairn_srv_request *request, char *ret,
                                      size_t capacity, struct cairn_error *err) CAIRN_MUST_USE;
json_t *cairn_srv_cursor_write(const struct cairn_srv *server, const char *text);
/* Signed by us and of this store? */
enum cairn_code cairn_srv_grant_judge(const struct cairn_srv *server, const char *text,
                                      struct cairn_grant *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The grant of a write: that, and of the run in the path. */
enum cairn_code cairn_srv_grant_read(const struct cairn_srv_request *request, const char *text,
                                     struct cairn_grant *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
