/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest: calls to the server's HTTP API, for the uploader, the cli and libcairn_http; the servers
 * that a setting names, and a reader's lease.
 *
 * Why:     problem bodies must turn into the same codes and sentences everywhere; the command, the
 *          uploader and the settings' check take and refuse the same lists of servers; the uploader
 *          and the command both read for minutes, and what they read must stay.
 * Promise: 1   a problem+json answer becomes its code, with detail, hint and title in the message,
 *              the cause first (of CAIRN_INVALID and CAIRN_NOT_FOUND no title); an answer that is
 *              no JSON where JSON is due is CAIRN_PROTOCOL.
 *          10  an answer that is not one of this API is never "not found" or "too large": 403, 404,
 *              408, 410 and 5xx of a stranger are CAIRN_UNAVAILABLE, 401 and 429 mean what they
 *              say, all else is CAIRN_PROTOCOL; the message names the URL, the status, where a
 *              redirect leads and, of a 413, the body's size.
 *          2   no answer is CAIRN_UNAVAILABLE (or CAIRN_TIMEOUT) and names the server.
 *          3   the bearer token is never in an error or a log line.
 *          6   a token that a server refuses is read anew from its file; where another one is there
 *              by then, the call is made once more with that: tokens change while programs run.
 *          4   of several servers the one that answered last is called. A call that it does not
 *              answer, or answers `unavailable` (as a stranger does, rest.h#10), goes to the next
 *              at once, within the call's own time: to each once, and to all again where one has
 *              held it for 200 ms or longer, as a wait that ends with a server's stop. Every call
 *              of this API may be repeated: it says the same again, or finds itself done.
 *          5   a server that takes a call and is silent is asked GET /livez beside it; where that
 *              stays silent, too, the call goes on as above, and comes back to it when no other one
 *              answers: it may only be slow. While /livez is answered the call waits.
 *          8   a call that is answered `rate-limited` is made again when the server has said,
 *              within the call's own time; where that is too short, that is the answer, at once.
 *          9   with keys_posts each POST bears an Idempotency-Key of its own, the same to each
 *              server that it goes on to, so that what is made is made once.
 *          7   a call of a thread that works for a trace bears its traceparent (common/trace.h).
 *          11  a list of servers is http(s)://HOST[:PORT][/PATH] entries, commas between, of one
 *              scheme and one path, none twice; unix:PATH stands alone, since a path may hold
 *              commas.
 *          12  a list that is refused is told which entry is wrong and why, without the entry: it
 *              may hold a password.
 *          Q29  while a lease's renewal answers CAIRN_OK in time, nothing of the version is
 *          deleted.
 *          13  renewing takes the lease again where the server has forgotten it; CAIRN_DELETED and
 *              CAIRN_ABORTED say that it came too late, any other failure that nothing is known.
 * Limits:  reply bodies 64 MiB; CAIRN_SERVERS_MAX servers; a lease's job of
 *          CAIRN_JOB_BYTES_MAX, one reader each, or one that shares it on purpose. Any other
 *          refusal, `busy` and `catalog-behind` too, is an answer: all servers have one catalog.
 * Threads: one owner per struct cairn_rest; struct cairn_rest_seen by any.
 * Next:    api/openapi.yaml, api/routes.def.
 */
#pragma once

#include <stdatomic.h>

#include "api/documents/keys.h"
#include "api/wire/messages.h"
#include "common/http/http.h"
#include "common/json.h"

/* Which server of a list answered last, and when; zero at first. Connections with the same list may
 * share one, so that a server that is away is found out once. */
struct cairn_rest_seen {
    atomic_uint at;
    atomic_ullong heard_us; /* mono clock */
};

#define CAIRN_REST_TIMEOUT_MS 30000
#define CAIRN_REST_TOKEN_BYTES_MAX 4096

struct cairn_rest; /* servers, token, one http engine */
struct cairn_rest_options {
    const char *url;        /* "http://127.0.0.1:7420", "unix:/path", or a list (rest.h#11) */
    const char *token;      /* NULL: none; copied, wiped on free */
    const char *token_file; /* NULL: none; where `token` is NULL it is read at once (rest.h#6) */
    uint32_t timeout_ms;    /* 0 = CAIRN_REST_TIMEOUT_MS */
    const char *ca_bundle;  /* NULL: the system's */
    struct cairn_rest_seen *seen; /* NULL: one of its own */
    bool keys_posts;              /* rest.h#9 */
};
enum cairn_code cairn_rest_new(const struct cairn_rest_options *options, struct cairn_rest **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_rest_free(struct cairn_rest *rest);
CAIRN_DEFINE_AUTO_PTR(rest);
/* The grant that goes as X-Cairn-Grant with every later call; NULL: none. Copied, wiped on free. */
enum cairn_code cairn_rest_set_grant(struct cairn_rest *rest, const char *grant,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* If-Match of every later call, as "*" or a tag with its quotes; NULL: none. Copied. */
enum cairn_code cairn_rest_set_if_match(struct cairn_rest *rest, const char *tags,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* path begins with "/", already percent-encoded. body may be NULL. *ret_reply may be NULL when the
 * answer has no body; ret_reply itself may be NULL. timeout_ms 0 = the default. */
enum cairn_code cairn_rest_call(struct cairn_rest *rest, const char *method, const char *path,
                                const json_t *body, uint32_t timeout_ms, json_t **ret_reply,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* GET that the server may hold for wait_ms, which it is told as the parameter `wait`; a call that
 * goes on to another server tells that one what is left. The answer may take 10 s more. */
enum cairn_code cairn_rest_wait(struct cairn_rest *rest, const char *path, uint32_t wait_ms,
                                json_t **ret_reply, struct cairn_error *err) CAIRN_MUST_USE;
/* Bytes instead of JSON, either way; content_type NULL = no body; range as in "bytes=0-99" or
 * NULL. ret_reply may be NULL and is untouched on failure; its limit holds. */
enum cairn_code cairn_rest_bytes(struct cairn_rest *rest, const char *method, const char *path,
                                 const char *content_type, struct cairn_view body,
                                 const char *range, struct cairn_buf *ret_reply,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* GET of exactly these bytes of a body, into memory that is there already: no copy is made on the
 * way. A shorter answer is CAIRN_CORRUPT, a longer one CAIRN_PROTOCOL; on failure the memory may
 * hold anything. */
enum cairn_code cairn_rest_range(struct cairn_rest *rest, const char *path, uint64_t offset,
                                 void *into, size_t size, struct cairn_error *err) CAIRN_MUST_USE;
/* Was the last call refused by this API, in its own words: a problem body with a code of the table?
 * A bare 404, 403 or 413 is a proxy's (Q48). */
bool cairn_rest_spoke(const struct cairn_rest *rest);
/* Of a call that was refused: where GET /version tells of a release before `version`, that of
 * `program`, the message says so, since a server refuses what it does not know. */
void cairn_rest_name_older(struct cairn_rest *rest, const char *program, const char *version,
                           struct cairn_error *err);
/* The problem body of the last failed call, or NULL; valid until the next call. */
const json_t *cairn_rest_problem(const struct cairn_rest *rest);

/* ---- the servers that a setting names ---- */

#define CAIRN_SERVERS_MAX 16

struct cairn_server_place {
    char *name;        /* as it was written */
    char *base;        /* "http://host:port", no slash at the end */
    char *unix_socket; /* or NULL */
};
struct cairn_servers {
    struct cairn_server_place places[CAIRN_SERVERS_MAX];
    uint32_t count; /* at least 1 once parsed */
};
enum cairn_code cairn_servers_parse(const char *text, struct cairn_servers *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_servers_release(struct cairn_servers *servers);

/* ---- a reader's lease ---- */

struct cairn_read_lease {
    struct cairn_run_name name;
    struct cairn_version_id version;
    char job[CAIRN_JOB_BYTES_MAX + 1];
    uint32_t ttl_s;
    char id[CAIRN_NAME_BYTES_MAX + 1]; /* "": not taken */
};
/* How often to renew: two that fail in a row are still in time. */
static inline uint64_t cairn_read_lease_every_ms(const struct cairn_read_lease *lease) {
    return (uint64_t)lease->ttl_s * 1000 / 3;
}
/* Take it, or renew it where it is taken. */
enum cairn_code cairn_read_lease_keep(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Nothing where it was not taken, or has ended. */
enum cairn_code cairn_read_lease_give(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) CAIRN_MUST_USE;
