/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3world: a running s3fault, a store opened on it, and one shard sent through both.
 *
 * Why:     what a fault of the store does to a save is seen only with the real client, the real
 *          state machine and a real connection in between.
 * Promise: 1   the whole run is logged at trace level; release fails the test when a key, a token
 *              or a signature stands in the log (A04).
 *          2   send ends by its limit, whatever the store does.
 * Limits:  one world at a time, since keys are told by the environment.
 * Threads: main thread only; a shard is sent by threads that end before send returns.
 * Next:    tests/support/s3fault/README.md for the rules; tests/s3faults.
 */
#pragma once

#include "common/clock.h"
#include "store/multipart.h"
#include "store/s3/s3.h"
#include "tests/support/daemon.h"

#define CAIRN_S3WORLD_ACCESS "CANARYACCESSKEY"
#define CAIRN_S3WORLD_SECRET "canary+secret/key=of+the+tests"
#define CAIRN_S3WORLD_TOKEN "canary/session+token=="
#define CAIRN_S3WORLD_PART (5 * CAIRN_MIB)

struct cairn_s3world_options {
    const char *rules, *profile, *region;
    const char *tls_certificate, *tls_key; /* then the store is opened at https://HOST:port */
    const char *host;                      /* of the endpoint; NULL: 127.0.0.1 */
    bool token;                            /* a session token belongs to the keys */
    bool own_keys;                         /* the caller says where keys come from */
    bool no_store;                         /* the caller opens it */
    bool virtual_clock;                    /* the store's time is world->clock */
    uint64_t seed;                         /* of the rules' p=; 0: the run's */
    uint32_t page_max;
    const char *receive_buffer; /* of the server's sockets */
    struct cairn_store_s3_options s3;
};
struct cairn_s3world {
    struct cairn_daemon daemon;
    struct cairn_store *store;
    struct cairn_store_worker *worker;
    struct cairn_clock_virtual clock;
    char endpoint[128], ca_bundle[600];
    bool elsewhere; /* the store's endpoint is not the server */
    struct cairn_error error;
};
enum cairn_code cairn_s3world_start(struct cairn_s3world *world,
                                    const struct cairn_s3world_options *options) CAIRN_MUST_USE;
/* The store alone, anew: as after a restart of the client. */
enum cairn_code cairn_s3world_open(struct cairn_s3world *world,
                                   const struct cairn_s3world_options *options) CAIRN_MUST_USE;
void cairn_s3world_release(struct cairn_s3world *world);

/* ---- asking and steering the server ---- */
void cairn_s3world_rules(struct cairn_s3world *world, const char *rules);
void cairn_s3world_post(struct cairn_s3world *world, const char *what, const char *body);
/* "op_part", "requests", "connections", "pending", "bytes_in", ... 0 when it is not there. */
uint64_t cairn_s3world_counter(struct cairn_s3world *world, const char *name);
uint64_t cairn_s3world_acted(struct cairn_s3world *world, unsigned rule_index);
/* Uploads that were begun and neither completed nor aborted. */
uint64_t cairn_s3world_open_uploads(struct cairn_s3world *world);
struct cairn_s3world_object {
    uint64_t size;
    uint32_t crc32c;
    char token[64];
};
bool cairn_s3world_object(struct cairn_s3world *world, const char *key,
                          struct cairn_s3world_object *ret);
/* Lines of the journal with this operation and, unless 0, this status. */
uint64_t cairn_s3world_journaled(struct cairn_s3world *world, const char *op, int status);
/* Value of a field of the newest line with this operation, as text; "" when there is none. */
void cairn_s3world_last(struct cairn_s3world *world, const char *op, const char *field,
                        char ret_text[256]);

/* ---- one shard ---- */
struct cairn_s3run {
    const char *key;     /* NULL: "shard" */
    uint64_t size_bytes; /* of pattern bytes */
    uint64_t part_bytes; /* 0: CAIRN_S3WORLD_PART */
    const char *token;   /* NULL: drawn */
    uint32_t advance_ms; /* of a virtual clock, after each poll: step by step */
    const char
        *recover; /* as after a restart: this upload id is in the journal, no bytes are there */
    bool recover_blocks; /* the checksums are in the journal, too */
    bool (*stop)(struct cairn_s3world *world, const struct cairn_multipart_action *action,
                 struct cairn_s3run *run); /* true: the process ends before this action */
    /* Step by step as with stop. Called with each action before it is sent; may be NULL. */
    void (*before)(struct cairn_s3world *world, const struct cairn_multipart_action *action,
                   struct cairn_s3run *run);
    uint8_t *bytes; /* owned; made by the first send, kept for comparing */
    /* set by send */
    bool durable;
    uint32_t rounds;
    uint32_t actions, count_of[CAIRN_MULTIPART_FAILED + 1]; /* step by step */
    uint32_t crc32c;
    char used_token[CAIRN_UUID_TEXT_BYTES];
    char upload_id[CAIRN_UPLOAD_ID_BYTES_MAX]; /* the last one */
    struct cairn_error error;
};
void cairn_s3run_release(struct cairn_s3run *run);
/* By the uploader's own senders on a thread of theirs, with hedges unless the store's options say
 * no; where a field above says so, step by step on this thread, without a journal.
 * CAIRN_OK: durable; otherwise why the shard failed. CAIRN_TIMEOUT: it had no end.
 * CAIRN_INTERRUPTED: stop() ended it. Bytes that are needed and not there: CAIRN_SOURCE_GONE. */
enum cairn_code cairn_s3run_send(struct cairn_s3world *world,
                                 struct cairn_s3run *run) CAIRN_MUST_USE;
/* s3send.c: what send does after staging. */
enum cairn_code cairn_s3run_by_uploader(struct cairn_s3world *world, struct cairn_s3run *run,
                                        const uint32_t *blocks) CAIRN_MUST_USE;
/* Durable, and the server holds exactly these bytes under this run's token. */
bool cairn_s3run_is_whole(struct cairn_s3world *world, const struct cairn_s3run *run);
void cairn_s3world_pattern(uint8_t *bytes, uint64_t size);
/* A plain object, put without rules acting on it by someone else: no token of ours. */
enum cairn_code cairn_s3world_put(struct cairn_s3world *world, const char *key,
                                  struct cairn_view bytes) CAIRN_MUST_USE;
/* Bytes [offset, offset + length) of key; etag "" or to be matched. */
enum cairn_code cairn_s3world_get(struct cairn_s3world *world, const char *key, uint64_t offset,
                                  uint64_t length, void *into, char etag[128]) CAIRN_MUST_USE;
