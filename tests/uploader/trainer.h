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
    int numa;               /* 1 + the NUMA node that it says it runs on; 0: it says none */
};
struct cairn_trainer {
    int fd;
    struct trainer_options opened; /* as it was opened, for offers */
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
bool trainer_open(struct cairn_trainer *trainer, const struct trainer_options *options);
/* A trainer of this scope in its `world`: TRAINER(first, .job = "job-1"), or, of two ranks of one
 * node, TRAINER(first, RANK_OF_TWO(0)). */
#define TRAINER(name, ...)                                                                         \
    CAIRN_AUTO(trainer) name = {0};                                                                \
    REQUIRE(                                                                                       \
        trainer_open(&name, &(struct trainer_options){.socket = world.socket_path, __VA_ARGS__}))
#define TRAINER_AS(name, options)                                                                  \
    CAIRN_AUTO(trainer) name = {0};                                                                \
    const struct trainer_options options_of_##name = options;                                      \
    REQUIRE(trainer_open(&name, &options_of_##name))
/* Both: a world, and `trainer`, its only rank: JOB(), JOB_WITH(.uploader_args = ARGS("--node=n2")),
 * FAULTY_JOB("part:*:2+:hang"). */
#define JOB() JOB_WITH(0)
#define JOB_WITH(...)                                                                              \
    WORLD_WITH(__VA_ARGS__);                                                                       \
    TRAINER(trainer, .job = "job-1")
#define FAULTY_JOB(...)                                                                            \
    FAULTY_WORLD(__VA_ARGS__);                                                                     \
    TRAINER(trainer, .job = "job-1")
#define RANK_OF_TWO(number) .job = "job-1", .world_size = 2, .local_world_size = 2, .rank = (number)
/* After an opening with no_slabs, in two steps: ask for memory, and wait for what is given. */
bool trainer_request_slabs(struct cairn_trainer *trainer, uint32_t wait_ms);
bool trainer_take_slabs(struct cairn_trainer *trainer);
bool trainer_hello(struct cairn_trainer *trainer, const struct trainer_options *options);
void cairn_trainer_release(struct cairn_trainer *trainer);
void trainer_hang_up(struct cairn_trainer *trainer); /* keeps its memory */
void trainer_drop(struct cairn_trainer *trainer);    /* as its death does */
bool trainer_bye(struct cairn_trainer *trainer);     /* the uploader then hangs up */
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
/* A sealed save of this scope: SAVE(save, &trainer, step, first slab, shards, bytes). */
#define SAVE(name, trainer, ...)                                                                   \
    struct trainer_save name;                                                                      \
    REQUIRE(trainer_save(trainer, __VA_ARGS__, &name))
/* A save that is only begun: BEGUN(save, &trainer, step, n). */
#define BEGUN(name, trainer, ...)                                                                  \
    struct trainer_save name;                                                                      \
    REQUIRE(trainer_begin(trainer, __VA_ARGS__, &name))
/* As SAVE, and it is committed; the same of a save that is there; and of one that was staged. */
#define COMMITTED(name, trainer, ...)                                                              \
    SAVE(name, trainer, __VA_ARGS__);                                                              \
    EXPECT_VERDICT(trainer, (name).number, "committed")
#define COMMIT(save, trainer, ...)                                                                 \
    REQUIRE(trainer_save(trainer, __VA_ARGS__, &(save)));                                          \
    EXPECT_VERDICT(trainer, (save).number, "committed")
#define SEAL_AND_COMMIT(save, trainer)                                                             \
    REQUIRE(trainer_seal(trainer, &(save)));                                                       \
    EXPECT_VERDICT(trainer, (save).number, "committed")
/* The next uploader takes the offer of one save, and says what becomes of it. */
#define EXPECT_OFFER(trainer, save, sealed, wanted)                                                \
    do {                                                                                           \
        char offer_states[1][32];                                                                  \
        REQUIRE(trainer_offer(trainer, save, 1, sealed, offer_states));                            \
        EXPECT_EQ_TEXT(offer_states[0], wanted);                                                   \
    } while (0)
/* It comes: EXPECT_VERDICT(&trainer, save.number, "committed"),
 * EXPECT_EVENT(&trainer, "free", UINT32_MAX). */
#define EXPECT_VERDICT(trainer, save, wanted)                                                      \
    do {                                                                                           \
        char verdict_state[32];                                                                    \
        EXPECT_EQ_TEXT(trainer_verdict(trainer, save, HANG_MS, verdict_state), wanted);            \
    } while (0)
#define EXPECT_EVENT(trainer, name, save)                                                          \
    cairn_test_check(trainer_comes(trainer, name, save), __FILE__, __LINE__,                       \
                     "%s of %s never came", name, #save)
#define REQUIRE_EVENT(trainer, name, save)                                                         \
    do {                                                                                           \
        if (!EXPECT_EVENT(trainer, name, save)) return;                                            \
    } while (0)
bool trainer_comes(struct cairn_trainer *trainer, const char *name, uint32_t save);
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
/* Gives it up; false: refused, as trainer->err says. */
bool trainer_fail(struct cairn_trainer *trainer, uint32_t save, const char *reason);
/* A whole file as a shard. */
enum cairn_code trainer_file(struct cairn_trainer *trainer, uint32_t save, const char *name, int fd,
                             uint64_t bytes);
/* begin, stage, seal */
bool trainer_save(struct cairn_trainer *trainer, uint64_t step, uint32_t slab, size_t shard_count,
                  uint64_t bytes, struct trainer_save *ret);
/* Connect again and offer the slabs; the state of each given save, 32 bytes each. */
bool trainer_offer(struct cairn_trainer *trainer, const struct trainer_save *saves, size_t count,
                   bool sealed, char states[][32]);
uint8_t trainer_byte(uint64_t seed, uint64_t offset);
