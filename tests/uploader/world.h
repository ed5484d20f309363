/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world: a real server, a folder store, a real uploader, and trainers that speak raw frames.
 *
 * Why:     what the uploader promises to a trainer is tested from the trainer's side of the socket,
 *          without libcairn, so that wrong messages can be sent too.
 * Promise: 1   everything lives in the test's folder and is killed at release.
 *          2   a restarted program has the same address, folders and settings as before.
 * Limits:  one server, one uploader; 8 saves' slabs of a trainer.
 * Threads: main thread only.
 * Next:    tests/uploader/test_save.c.
 */
#pragma once

#include "api/wire/frame.h"
#include "api/wire/rest.h"
#include "common/memory.h"
#include "store/store.h"
#include "tests/harness.h"
#include "tests/support/daemon.h"
#include "tests/support/passing.h"

/* Points and faults are compiled into dev builds only. */
#ifdef CAIRN_CRASHPOINTS
#define NEEDS_POINTS()                                                                             \
    do {                                                                                           \
    } while (0)
#else
#define NEEDS_POINTS() SKIP("this build has no crash points and no fault script")
#endif

struct world_options {
    bool no_server;
    const char *const *uploader_args; /* more, NULL-terminated; or NULL */
    const char *crash_at;             /* CAIRN_CRASH_AT of the uploader; or NULL */
    const char *fault;                /* CAIRN_STORE_FAULT of the uploader; or NULL */
    const char *s3_rules;             /* not NULL: the store is an S3 server with these rules */
    struct cairn_passing *passing;    /* opened: time of server and uploader passes with it */
};
struct cairn_up_world {
    char folder[256], store_path[300], socket_path[108], journal_path[400];
    uint16_t port;
    struct cairn_daemon server, uploader, s3;
    struct cairn_passing *passing; /* or NULL */
    const char *const *uploader_args;
    struct cairn_error err; /* of the last call */
};
bool world_open(struct cairn_up_world *world, const struct world_options *options);
void cairn_up_world_release(struct cairn_up_world *world);
/* Other rules for the S3 server; "" takes them away. */
bool world_s3_rules(struct cairn_up_world *world, const char *rules);
bool world_server_start(struct cairn_up_world *world);
void world_server_kill(struct cairn_up_world *world);
bool world_uploader_start(struct cairn_up_world *world, const char *crash_at, const char *fault);
void world_uploader_kill(struct cairn_up_world *world);
/* SIGTERM; its exit status, or -1 when it had to be killed. */
int world_uploader_stop(struct cairn_up_world *world);
/* GET of the server; NULL with world->err when refused. The caller owns it. */
json_t *world_get(struct cairn_up_world *world, const char *path);
/* The state the server gives a version: "committed", "aborting", ... ret holds 32 bytes. */
const char *world_state(struct cairn_up_world *world, const char *version, char ret[32]);
bool world_await_state(struct cairn_up_world *world, const char *version, const char *state,
                       uint32_t ms);
/* Live entries of the journal of an uploader that does not run; UINT64_MAX: unreadable. */
uint64_t world_open_entries(struct cairn_up_world *world);
/* Live entries of what a running uploader has written of its journal so far. */
uint64_t world_entries_written(struct cairn_up_world *world);
/* No file of the store looks like a temporary. The server, where it still runs, writes through some
 * of its own that live for moments (its generation, before it deletes), so what stays is said. */
bool world_await_no_temporaries(struct cairn_up_world *world);
/* How often the server has answered a request of that route (api/routes.def). */
uint64_t world_answered(struct cairn_up_world *world, const char *route);
/* Waits until the uploader has had answers to that many more heartbeats; the first may have been
 * written before this call. */
bool world_await_heartbeats(struct cairn_up_world *world, uint64_t count);
/* Wait until cond() or time is up. */
bool world_await(bool (*cond)(void *owner), void *owner, uint32_t ms);
