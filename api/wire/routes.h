/* SPDX-License-Identifier: Apache-2.0 */
/*
 * routes: selects the handler of a request line from its raw, percent-encoded path.
 *
 * Why:     the HTTP library truncates paths at %00 and decodes "%2F" before Cairn sees them; names
 *          of runs and shards are untrusted and must never change the structure of a path.
 * Promise: B01  the path is split on '/' first, then each segment is decoded strictly: bad escapes,
 *               NUL, bad UTF-8, empty, "." and ".." segments are CAIRN_INVALID.
 *          B02  only a shard's and a tensor's name may hold '/' (raw or as %2F), only a tensor's
 *               control bytes and '\'; every parameter is checked by the rule of its kind before
 *               it is returned.
 *          1    an unknown path is CAIRN_NOT_FOUND; a path with other methods is CAIRN_METHOD.
 *          2    a query with a name twice, more than 32 names, or a bad escape is CAIRN_INVALID.
 * Limits:  paths and queries of 4,096 bytes each.
 * Threads: stateless.
 * Next:    api/routes.def, api/openapi.yaml.
 */
#pragma once

#include "api/table/table.h"
#include "api/wire/words.h"

#define CAIRN_ROUTE_PATH_BYTES_MAX 4096
#define CAIRN_QUERY_BYTES_MAX 4096
#define CAIRN_WAIT_MS_MAX 60000 /* Q51: no call waits longer; repeat it to wait on */
#define CAIRN_QUERY_PARAMS_MAX 32
#define CAIRN_REF_BYTES_MAX 128
#define CAIRN_NAME_WANTED /* cairn_name_valid, for people */                                       \
    "want [A-Za-z0-9][A-Za-z0-9._-]*, at most 128 bytes, without \"..\""

enum cairn_route_id {
#define ROUTE(id, handler, method, need, template_text, query, ...) CAIRN_ROUTE_##id,
#include "api/routes.def"
#undef ROUTE
    CAIRN_ROUTE_COUNT
};
/* Rights that a caller needs; see routes.def. */
struct cairn_route_need {
    unsigned scope; /* enum cairn_scope; 0: none */
    bool token, project, all, grant;
};
enum cairn_route_wait {
    CAIRN_WAIT_NO,
    CAIRN_WAIT_OWN,
    CAIRN_WAIT_EVENT,
    CAIRN_WAIT_LOOK,
    CAIRN_WAIT_END
};
enum cairn_route_frozen { CAIRN_FROZEN_NO, CAIRN_FROZEN_BY_ID, CAIRN_FROZEN_OPEN };
struct cairn_route {
    enum cairn_route_id id;
    const char *method;
    struct cairn_route_need need;
    const char *template_text;
    const char *query;          /* comma-separated names */
    const char *name;           /* of the handler, in logs and metrics too */
    enum cairn_route_wait wait; /* this and all below: see routes.def */
    enum cairn_route_frozen frozen;
    unsigned body_mib;
    bool on_loop, kept, plans, bytes, of_save, unbounded, unrated, folder, all_runs;
};
/* "" for parameters that the route does not have. */
struct cairn_route_params {
    struct cairn_run_name run_name;
    char ref[CAIRN_REF_BYTES_MAX + 1]; /* step, version id, or a word such as "latest" */
    char shard[CAIRN_SHARD_NAME_BYTES_MAX + 1];
    char tensor[CAIRN_TENSOR_NAME_BYTES_MAX + 1]; /* any UTF-8 text */
    char digest[65];
    char node[CAIRN_NAME_BYTES_MAX + 1];
};
const struct cairn_route *cairn_route_at(enum cairn_route_id id);
/* A ref: a step without leading zeros, a version id, or a word [a-z][a-z0-9-]*. `what` names it in
 * the refusal. */
enum cairn_code cairn_ref_check(const char *ref, const char *what,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* Splits a raw request target into path and query (without '?'; data NULL if there is none). */
void cairn_route_split(struct cairn_view target, struct cairn_view *ret_path,
                       struct cairn_view *ret_query);
enum cairn_code cairn_route_match(const char *method, struct cairn_view raw_path,
                                  const struct cairn_route **ret_route,
                                  struct cairn_route_params *ret_params,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* The methods of a path for the Allow header ("GET, PUT"); "" for an unknown path. */
#define CAIRN_ROUTE_ALLOW_BYTES 64
void cairn_route_allow(struct cairn_view raw_path, char ret_allow[CAIRN_ROUTE_ALLOW_BYTES]);

struct cairn_query {
    char text[CAIRN_QUERY_BYTES_MAX + CAIRN_QUERY_PARAMS_MAX + 1]; /* decoded, a NUL after each */
    struct {
        const char *name, *value; /* pointers into text: do not copy the struct */
    } params[CAIRN_QUERY_PARAMS_MAX];
    size_t count;
};
/* "a=1&b=x%20y"; a name without '=' has the value "". '+' stays '+'. Control bytes and '\' are
 * allowed only in the value of "name", a tensor's name. */
enum cairn_code cairn_query_parse(struct cairn_view raw_query, struct cairn_query *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* NULL if absent. */
const char *cairn_query_get(const struct cairn_query *query, const char *name);
/* Refuses names that are not in the comma-separated list ("limit, cursor"). */
enum cairn_code cairn_query_only(const struct cairn_query *query, const char *names,
                                 struct cairn_error *err) CAIRN_MUST_USE;
