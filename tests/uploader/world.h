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

#include <arpa/inet.h>
#include <ftw.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "api/documents/manifest.h"
#include "api/wire/frame.h"
#include "api/wire/rest.h"
#include "common/memory.h"
#include "store/store.h"
#include "tests/harness.h"
#include "tests/support/daemon.h"
#include "tests/support/passing.h"
#include "uploader/journal/journal.h"
#include "uploader/settings.h"

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
/* `world` of this scope: WORLD(), or WORLD_WITH(.fault = "part:*:2+:hang"). */
#define WORLD() WORLD_WITH(0)
#define WORLD_WITH(...)                                                                            \
    CAIRN_AUTO(up_world) world = {0};                                                              \
    REQUIRE(world_open(&world, &(struct world_options){__VA_ARGS__}))
/* Arguments of a program: ARGS("--heartbeat=100ms"). */
#define ARGS(...)                                                                                  \
    ({                                                                                             \
        static const char *const args_given[] = {__VA_ARGS__, NULL};                               \
        args_given;                                                                                \
    })
/* FAULTY_WORLD("part:*:2+:hang", .s3_rules = ""): with faults of the store. */
#define FAULTY_WORLD(...)                                                                          \
    NEEDS_POINTS();                                                                                \
    WORLD_WITH(.fault = __VA_ARGS__)
void cairn_up_world_release(struct cairn_up_world *world);
/* Other rules for the S3 server; "" takes them away. */
bool world_s3_rules(struct cairn_up_world *world, const char *rules);
bool world_server_start(struct cairn_up_world *world);
void world_server_kill(struct cairn_up_world *world);
bool world_server_restart(struct cairn_up_world *world); /* SIGKILL, and start */
bool world_uploader_start(struct cairn_up_world *world, const char *crash_at, const char *fault);
void world_uploader_kill(struct cairn_up_world *world);
bool world_uploader_restart(struct cairn_up_world *world); /* the same, without point and fault */
/* SIGTERM; its exit status, or -1 when it had to be killed. */
int world_uploader_stop(struct cairn_up_world *world);
/* A call of the server; body and ret may be NULL. A refusal's words: world->err. */
enum cairn_code world_call(struct cairn_up_world *world, const char *method, const char *path,
                           const json_t *body, json_t **ret);
/* GET and POST; NULL when refused. The caller owns the answer. */
json_t *world_get(struct cairn_up_world *world, const char *path);
json_t *world_post(struct cairn_up_world *world, const char *path, json_t *take_body);
/* A page that is no JSON, of the server or the S3 server at `url`; false fails the test. */
bool world_page(struct cairn_up_world *world, const char *url, const char *path,
                struct cairn_buf *ret);
/* The state the server gives a version: "committed", "aborting", ... ret holds 32 bytes. */
const char *world_state(struct cairn_up_world *world, const char *version, char ret[32]);
bool world_await_state(struct cairn_up_world *world, const char *version, const char *state,
                       uint32_t ms);
/* It comes to that state. */
#define EXPECT_STATE(world, version, state)                                                        \
    cairn_test_check(world_await_state(world, version, state, HANG_MS), __FILE__, __LINE__,        \
                     "%s never was %s", #version, state)
/* Why it was given up; "": no reason is known. Until the next call. */
const char *world_reason(struct cairn_up_world *world, const char *version);
/* Live entries of the journal of an uploader that does not run; UINT64_MAX: unreadable. */
uint64_t world_open_entries(struct cairn_up_world *world);
/* Live entries of what a running uploader has written of its journal so far. */
uint64_t world_entries_written(struct cairn_up_world *world);
/* Ends the uploader: it drains, and leaves neither temporaries nor entries of its journal. */
void world_expect_drained(struct cairn_up_world *world);
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
