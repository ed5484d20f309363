/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trainer: one rank that speaks raw frames with the uploader.
 *
 * Why:     libcairn sends only right messages; this sends any, and sees every answer and event.
 * Promise: 1   answers are found by id, events are kept in their order until they are asked for.
 *          2   bytes are patterned by (seed, offset), so that a restore can be compared.
 * Limits:  2 generations; one connection.
 * Threads: main thread only.
 * Next:    docs/socket.md.
 */
#pragma once

#include "tests/uploader/world.h"

struct cairn_trainer {
    int fd;
    struct cairn_frame_reader reader;
    int64_t request;
    json_t *events; /* array of messages */
    struct cairn_error err;
    uint32_t rank, world_size;
    char resumed[48]; /* the version that the attempt resumes from; "" = none */
    char proc[CAIRN_UUID_TEXT_BYTES], session[CAIRN_UUID_TEXT_BYTES], job[64], nonce[40];
    uint64_t attempt;
    struct cairn_slab slabs[2];
    uint32_t slab_count;
    struct cairn_slab window;
    json_t *counts; /* "counts" of the attempt and of offers, borrowed; NULL: none are told */
    const char *shard_name; /* of a save's only shard; NULL: rank-00000/part-0.bin ... */
    size_t copies_later;    /* so many last shards trainer_stage leaves to trainer_staged */
};
struct trainer_options {
    const char *socket;
    const char *run;                             /* NULL: llm/seven */
    const char *job;                             /* NULL: no attempt is opened */
    const char *resume;                          /* NULL: latest */
    const char *incarnation;                     /* NULL: none is told */
    uint32_t rank, world_size, local_world_size; /* 0 = 1 */
    uint64_t bytes;                              /* of one save; 0 = 4 MiB */
    uint32_t wait_staged_ms;                     /* of the attempt; 0 = 10,000 */
    bool no_slabs;
    uint32_t slabs_wait_ms; /* 0 = 1,000 */
    int socket_max;         /* highest version of the socket that it speaks; 0: this build's */
};
bool trainer_open(struct cairn_trainer *trainer, const struct trainer_options *options);
/* After an opening with no_slabs, in two steps: ask for memory, and wait for what is given. */
bool trainer_request_slabs(struct cairn_trainer *trainer, uint32_t wait_ms);
bool trainer_take_slabs(struct cairn_trainer *trainer);
bool trainer_hello(struct cairn_trainer *trainer, const struct trainer_options *options);
void cairn_trainer_release(struct cairn_trainer *trainer);
void trainer_hang_up(struct cairn_trainer *trainer); /* keeps its memory */
/* Send only. */
bool trainer_send(struct cairn_trainer *trainer, json_t *take_message, struct cairn_view blob,
                  const int *fds, size_t fd_count);
/* Send with an id and wait for its answer; an `error` answer is its code. */
enum cairn_code trainer_ask(struct cairn_trainer *trainer, json_t *take_message,
                            struct cairn_view blob, const int *fds, size_t fd_count,
                            struct cairn_frame *ret);
/* trainer_ask without blob and descriptors; the answer's fields, or NULL. */
json_t *trainer_call(struct cairn_trainer *trainer, json_t *take_message);
/* The first event of that name about that save (any: UINT32_MAX); the caller owns it. NULL: none in
 * time. */
json_t *trainer_event(struct cairn_trainer *trainer, const char *name, uint32_t save, uint32_t ms);
/* Its verdict; ret holds 32 bytes; "none" when none came in time. */
const char *trainer_verdict(struct cairn_trainer *trainer, uint32_t save, uint32_t ms,
                            char ret[32]);
/* Is the connection closed by the other side within that time? */
bool trainer_is_cut(struct cairn_trainer *trainer, uint32_t ms);

struct trainer_save {
    uint32_t number, n;
    uint64_t step, owner;
    char version[48];
    uint32_t slab;
    size_t shard_count;
    struct {
        char name[256];
        uint64_t offset, bytes;
    } shards[4];
};
bool trainer_begin(struct cairn_trainer *trainer, uint64_t step, uint32_t n,
                   struct trainer_save *ret);
/* shard_count shards of `bytes` each, patterned, described and staged. */
bool trainer_stage(struct cairn_trainer *trainer, struct trainer_save *save, uint32_t slab,
                   size_t shard_count, uint64_t bytes);
/* This shard, too. */
bool trainer_staged(struct cairn_trainer *trainer, const struct trainer_save *save, size_t shard);
bool trainer_seal(struct cairn_trainer *trainer, const struct trainer_save *save);
/* begin, stage, seal */
bool trainer_save(struct cairn_trainer *trainer, uint64_t step, uint32_t slab, size_t shard_count,
                  uint64_t bytes, struct trainer_save *ret);
/* Connect again and offer the slabs; the state of each given save, 32 bytes each. */
bool trainer_offer(struct cairn_trainer *trainer, const struct trainer_options *options,
                   const struct trainer_save *saves, size_t count, bool sealed, char states[][32]);
uint8_t trainer_byte(uint64_t seed, uint64_t offset);
