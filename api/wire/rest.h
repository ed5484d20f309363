/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest: calls to the server's HTTP API, for the uploader, the cli and libcairn_http; lists of
 * servers in settings, and a reader's lease.
 *
 * Why:     problem bodies must become the same codes and messages everywhere; command, uploader and
 *          the check of settings accept the same lists of servers; uploader and command read for
 *          minutes, and the version they read must not be deleted.
 * Promise: 1   a problem+json answer becomes its code, with detail, hint and title in the message,
 *              the cause first (no title for CAIRN_INVALID and CAIRN_NOT_FOUND); an answer that is
 *              not JSON where JSON is expected is CAIRN_PROTOCOL.
 *          10  an answer that is not of this API is never "not found" or "too large": its 403, 404,
 *              408, 410 and 5xx are CAIRN_UNAVAILABLE, 401 and 429 keep their meaning, all else is
 *              CAIRN_PROTOCOL; the message names the URL, the status, a redirect's target and, for
 *              413, the body's size.
 *          2   no answer is CAIRN_UNAVAILABLE (or CAIRN_TIMEOUT) and names the server.
 *          3   the bearer token is never in an error or a log line.
 *          6   a token that a server refuses is read again from its file; if that holds another
 *              token, the call is repeated once with it: tokens change while programs run.
 *          4   of several servers the one that answered last is called. A call without an answer,
 *              or answered `unavailable` (rest.h#10 included), goes to the next server at once,
 *              within the call's own time: to each once, and to all again if one has held it for
 *              200 ms or longer, as a wait that ends with a server's stop. Every call of this API
 *              may be repeated: the answer is the same, or that it is already done.
 *          5   a server that accepts a call and is silent is probed with GET /livez; if that stays
 *              silent, too, the call goes to the next server as above, and back if no other one
 *              answers: the first may only be slow. While /livez is answered the call waits.
 *          8   a call answered `rate-limited` is repeated after the time that the server gave,
 *              within the call's own time; if that is too short, the refusal is returned at once.
 *          9   with keys_posts each POST has an Idempotency-Key of its own, the same for each
 *              server tried, so that an object is created once.
 *          7   calls of a thread that works for a trace have its traceparent (common/trace.h).
 *          11  a list of servers is http(s)://HOST[:PORT][/PATH] entries, commas between, of one
 *              scheme and one path, none twice; unix:PATH stands alone, since a path may hold
 *              commas.
 *          12  a refused list is reported by the entry's number and the fault, without the entry,
 *              which may hold a password.
 *          Q29  while a lease's renewal answers CAIRN_OK in time, nothing of the version is
 *          deleted.
 *          13  renewing takes the lease again if the server has forgotten it; CAIRN_DELETED and
 *              CAIRN_ABORTED mean too late, any other failure leaves the state unknown.
 * Limits:  reply bodies 64 MiB; CAIRN_SERVERS_MAX servers; a lease's job of CAIRN_JOB_BYTES_MAX,
 *          one reader each unless shared on purpose. Any other refusal, also `busy` and
 *          `catalog-behind`, is final: all servers have one catalog.
 * Threads: one owner per struct cairn_rest; struct cairn_rest_seen by any.
 * Next:    api/openapi.yaml, api/routes.def.
 */
#pragma once

#include <stdatomic.h>

#include "api/wire/messages.h"
#include "common/http/http.h"

/* The server of a list that answered last, and when; starts zeroed. Connections with the same list
 * may share it, so that a server that is down is detected once. */
struct cairn_rest_seen {
    atomic_uint at;
    atomic_ullong heard_us; /* mono clock */
};

#define CAIRN_REST_TIMEOUT_MS 30000
#define CAIRN_REST_TOKEN_BYTES_MAX 4096

struct cairn_rest; /* servers, token, one http engine */
struct cairn_rest_options {
    const char *url;              /* "http://127.0.0.1:7420", "unix:/path", or a list (rest.h#11) */
    const char *token;            /* NULL: none; copied, wiped on free */
    const char *token_file;       /* NULL: none; read at once if `token` is NULL (rest.h#6) */
    uint32_t timeout_ms;          /* 0 = CAIRN_REST_TIMEOUT_MS */
    const char *ca_bundle;        /* NULL: the system's bundle */
    struct cairn_rest_seen *seen; /* NULL: a private one */
    bool keys_posts;              /* rest.h#9 */
};
enum cairn_code cairn_rest_new(const struct cairn_rest_options *options, struct cairn_rest **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_rest_free(struct cairn_rest *rest);
CAIRN_DEFINE_AUTO_PTR(rest);
/* Sent as X-Cairn-Grant with every later call; NULL: none. Copied, wiped on free. */
enum cairn_code cairn_rest_set_grant(struct cairn_rest *rest, const char *grant,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Sent as If-Match with every later call: "*" or a quoted tag; NULL: none. Copied. */
enum cairn_code cairn_rest_set_if_match(struct cairn_rest *rest, const char *tags,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* path begins with "/", percent-encoded. body and ret_reply may be NULL; *ret_reply is NULL if the
 * answer has no body. timeout_ms 0: the default. */
enum cairn_code cairn_rest_call(struct cairn_rest *rest, const char *method, const char *path,
                                const json_t *body, uint32_t timeout_ms, json_t **ret_reply,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* GET with `wait`, which lets the server hold it for wait_ms; the next server of a list gets the
 * rest. The answer may take 10 s more. */
enum cairn_code cairn_rest_wait(struct cairn_rest *rest, const char *path, uint32_t wait_ms,
                                json_t **ret_reply, struct cairn_error *err) CAIRN_MUST_USE;
/* Bytes instead of JSON; content_type NULL: no body; range such as "bytes=0-99", or NULL.
 * ret_reply may be NULL, is unchanged on failure and bounded by its limit. */
enum cairn_code cairn_rest_bytes(struct cairn_rest *rest, const char *method, const char *path,
                                 const char *content_type, struct cairn_view body,
                                 const char *range, struct cairn_buf *ret_reply,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* GET of a byte range straight into the caller's memory, without a copy. A shorter answer is
 * CAIRN_CORRUPT, a longer one CAIRN_PROTOCOL; on failure the memory may hold anything. */
enum cairn_code cairn_rest_range(struct cairn_rest *rest, const char *path, uint64_t offset,
                                 void *into, size_t size, struct cairn_error *err) CAIRN_MUST_USE;
/* Was the last call refused by this API, with a problem body and a known code? A bare 404, 403 or
 * 413 comes from a proxy (Q48). */
bool cairn_rest_spoke(const struct cairn_rest *rest);
/* After a refused call: if GET /version reports a release before `version`, that of `program`, adds
 * that to the message, since older servers refuse unknown requests. */
void cairn_rest_name_older(struct cairn_rest *rest, const char *program, const char *version,
                           struct cairn_error *err);
/* The problem body of the last failed call, or NULL; valid until the next call. */
const json_t *cairn_rest_problem(const struct cairn_rest *rest);

/* ---- the servers of a setting ---- */

#define CAIRN_SERVERS_MAX 16

struct cairn_server_place {
    char *name;        /* as written in the setting */
    char *base;        /* "http://host:port", no slash at the end */
    char *unix_socket; /* NULL: TCP */
};
struct cairn_servers {
    struct cairn_server_place places[CAIRN_SERVERS_MAX];
    uint32_t count; /* at least 1 after parsing */
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
    char id[CAIRN_NAME_BYTES_MAX + 1]; /* "": no lease taken */
};
/* Renewal interval: two failures in a row are still in time. */
static inline uint64_t cairn_read_lease_every_ms(const struct cairn_read_lease *lease) {
    return (uint64_t)lease->ttl_s * 1000 / 3;
}
/* Takes the lease, or renews it. */
enum cairn_code cairn_read_lease_keep(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the lease; does nothing if there is none. */
enum cairn_code cairn_read_lease_give(struct cairn_read_lease *lease, struct cairn_rest *rest,
                                      struct cairn_error *err) CAIRN_MUST_USE;
