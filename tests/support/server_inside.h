/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_inside: handlers, commits and sweeps of the server on one thread, under a test's clock.
 *
 * Why:     rules of hours and days (grace, silence, sweeps, a suspended machine, a wall clock that
 *          jumps) are tested as rules, in milliseconds, and the same way each time.
 * Promise: 1   what runs is the server's own code, from the request's route to the rows; left out
 *              are HTTP, threads and, unless on_disk is set, the disk under the catalog.
 *          2   time stands still but for inside_pass and for a request that waits.
 * Limits:  one thread; a folder store; no streamed reads.
 * Threads: the test's thread only.
 * Next:    tests/server/test_time.c; server/http/request.h.
 */
#pragma once

#include "common/json.h"
#include "server/http/request.h"

struct cairn_inside_clock {
    struct cairn_clock clock; /* first */
    uint64_t mono_ms, boot_ms;
    int64_t wall_ms;
};

struct cairn_inside {
    struct srv server;
    struct cairn_config config;
    struct srv_settings settings;
    struct cairn_inside_clock clock;
    struct cairn_store_worker *worker;
    char catalog[300];      /* set before the start: another one's, in PostgreSQL; else its own */
    bool on_disk;           /* set before the start: the catalog is a file, with its own thread */
    struct cairn_error err; /* of the last call */
    json_t *extra;          /* further members of the last call's problem; NULL: none */
    int status;             /* of the last call that was answered with CAIRN_OK */
};
/* extra: more settings ("--trash-grace=1h"), NULL-terminated, or NULL. */
enum cairn_code inside_start(struct cairn_inside *inside, const char *folder,
                             const char *const *extra) CAIRN_MUST_USE;
/* What memory held is lost, the catalog stays; the generation is raised. */
enum cairn_code inside_restart(struct cairn_inside *inside) CAIRN_MUST_USE;
void cairn_inside_release(struct cairn_inside *inside);

/* The clock goes on by ms, in sweep rounds of at most 60 s; then what can be committed is. Over
 * PostgreSQL, where each round is several commits, many hours have one round an hour but for the
 * first half hour and the last hour and a half. */
void inside_pass(struct cairn_inside *inside, uint64_t ms);
/* One sweep round and the commits that are due, at this moment. */
void inside_round(struct cairn_inside *inside);
/* The commits that are due. */
void inside_commit(struct cairn_inside *inside);

/* take_body may be NULL; *ret_reply may be NULL. A request that waits lets the clock go on. */
enum cairn_code inside_call(struct cairn_inside *inside, const char *method, const char *target,
                            json_t *take_body, json_t **ret_reply);
/* The same with bytes as the body and the grant as a header. */
enum cairn_code inside_bytes(struct cairn_inside *inside, const char *method, const char *target,
                             const char *grant, struct cairn_view body);
