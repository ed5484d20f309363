/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_put --store URL --journal DIR --bytes N [--objects K] [--part N] [--workers N]
 *           [--connections N] [--staged 1] [--confirmed 0]
 *
 * The uploader's data plane (uploader/send*.c with its journal) over a real store, without socket,
 * server and trainer: queues K shards that lie in one collapsed slab and computes their block
 * checksums while they are sent (--staged 1: before, as after a staged save). The senders' calls
 * into uploader/saves/save.h end here, because there is no save.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/crc.h"
#include "common/memory.h"
#include "store/open.h"
#include "store/s3/s3.h"
#include "uploader/journal/journal.h"
#include "uploader/saves/save.h"
#include "uploader/send/send.h"

#define OBJECTS_MAX 256

struct put {
    struct cairn_up up;
    struct cairn_slab slab;
    uint64_t bytes, runs;
    uint32_t object_count, *crcs; /* crcs: per block, once computed */
    bool staged;
    char folder[3000];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t ended, failed;
    struct cairn_error why;
};
static struct put put = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- the senders' callbacks, linked in place of the save's functions (--wrap) ---- */

void __wrap_cairn_up_save_part_acked(struct cairn_up *, uint64_t, uint32_t,
                                     const struct cairn_up_acked *);
void __wrap_cairn_up_save_store_error(struct cairn_up *, uint64_t, const char *, uint32_t,
                                      const struct cairn_error *);
void __wrap_cairn_up_save_settle(struct cairn_up *, uint64_t);
void __wrap_cairn_up_save_shard_ended(struct cairn_up *, uint64_t, uint32_t,
                                      const struct cairn_error *);

void __wrap_cairn_up_save_part_acked(struct cairn_up *up, uint64_t entry, uint32_t index,
                                     const struct cairn_up_acked *acked) {
    (void)up, (void)entry, (void)index, (void)acked;
}
void __wrap_cairn_up_save_store_error(struct cairn_up *up, uint64_t entry, const char *shard,
                                      uint32_t part, const struct cairn_error *why) {
    (void)up, (void)entry, (void)shard, (void)part, (void)why;
}

void __wrap_cairn_up_save_settle(struct cairn_up *up, uint64_t entry) {
    (void)up, (void)entry;
}
void __wrap_cairn_up_save_shard_ended(struct cairn_up *up, uint64_t entry, uint32_t index,
                                      const struct cairn_error *why) {
    (void)up, (void)entry, (void)index;
    pthread_mutex_lock(&put.lock);
    put.ended++;
    if (why) {
        put.failed++;
        put.why = *why;
    }
    pthread_cond_signal(&put.changed);
    pthread_mutex_unlock(&put.lock);
}

/* Simulates staging: checksums of a few blocks at a time, in order. */
static enum cairn_code feed(struct cairn_up_shard *shard, uint32_t *ret_crc32c,
                            struct cairn_error *err) {
    uint64_t step = 16 * CAIRN_BLOCK_BYTES;
    uint32_t whole = 0;
    for (uint64_t at = 0; at < put.bytes; at += step) {
        uint64_t end = cairn_min_u64(at + step, put.bytes), count = 0;
        uint8_t crcs[16 * 4];
        for (uint64_t block = at; block < end; block += CAIRN_BLOCK_BYTES) {
            uint64_t size = cairn_min_u64(CAIRN_BLOCK_BYTES, end - block);
            uint32_t *made = &put.crcs[block / CAIRN_BLOCK_BYTES];
            if (!put.staged) *made = cairn_crc32c(0, put.slab.data + block, size);
            uint32_t crc32c = *made;
            whole = cairn_crc32c_combine(whole, crc32c, size);
            cairn_store_u32le(crcs + 4 * count++, crc32c);
        }
        CAIRN_TRY(cairn_up_shard_ready(put.up.queue, shard, end, crcs, count, err));
        cairn_up_queue_wake_due(put.up.queue); /* as the uploader's socket thread does */
    }
    *ret_crc32c = whole;
    return CAIRN_OK;
}

static enum cairn_code queue(uint64_t entry, uint32_t index, struct cairn_up_shard **ret,
                             struct cairn_error *err) {
    char name[64], key[128];
    snprintf(name, sizeof name, "shard-%u", index);
    snprintf(key, sizeof key, "run-%" PRIu64 "/%s", put.runs, name);
    struct cairn_up_shard_options options = {.entry = entry,
                                             .index = index,
                                             .name = name,
                                             .key = key,
                                             .size_bytes = put.bytes,
                                             .data = put.slab.data,
                                             .take_fd = -1};
    CAIRN_TRY(cairn_up_shard_new(put.up.queue, &options, ret, err));
    cairn_up_queue_add(put.up.queue, *ret);
    return CAIRN_OK;
}

static enum cairn_code close_entry(uint64_t entry, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s}", "t", "closed");
    struct cairn_up_record record = {.entry = entry, .closes = true, .message = message};
    return cairn_up_journal_append(put.up.journal, &record, 1, err);
}

static void wait_ended(struct cairn_up_shard *const *shards, uint32_t count) {
    pthread_mutex_lock(&put.lock);
    while (put.ended < count) pthread_cond_wait(&put.changed, &put.lock);
    pthread_mutex_unlock(&put.lock);
    /* The callback precedes the sender's release of the shard. */
    for (uint32_t i = 0; i < count; i++)
        while (!cairn_up_shard_has_ended(put.up.queue, shards[i])) sched_yield();
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    (void)owner;
    struct cairn_up_shard *shards[OBJECTS_MAX] = {NULL};
    uint64_t entry = cairn_up_journal_entry_new(put.up.journal);
    enum cairn_code code = CAIRN_OK;
    uint32_t crc32c = 0, queued = 0;
    put.ended = put.failed = 0;
    put.runs++;
    while (code == CAIRN_OK && queued < put.object_count) {
        code = queue(entry, queued, &shards[queued], err);
        if (code == CAIRN_OK) queued++;
    }
    for (uint32_t i = 0; code == CAIRN_OK && i < queued; i++) code = feed(shards[i], &crc32c, err);
    if (code != CAIRN_OK) return code; /* ends the program */
    wait_ended(shards, queued);
    for (uint32_t i = 0; i < queued; i++) cairn_up_shard_free(put.up.queue, shards[i]);
    CAIRN_TRY(close_entry(entry, err));
    if (put.failed) return cairn_fail(err, put.why.code, "%s", put.why.message);
    *ret = (struct bench_result){
        .bytes = put.bytes * queued, .crc32c = crc32c, .memory_bytes = bench_private_bytes()};
    return CAIRN_OK;
}

/* ---- setting up ---- */

static enum cairn_code replay(void *owner, const struct cairn_up_replayed *record,
                              struct cairn_error *err) {
    (void)owner, (void)record;
    return cairn_fail(err, CAIRN_CONFLICT, "the journal of a bench is not empty");
}

static enum cairn_code open_store(int count, char **values, struct cairn_error *err) {
    struct cairn_store_s3_options s3 = {
        .region = "us-east-1",
        .style = CAIRN_S3_STYLE_PATH,
        .endpoint = bench_flag(count, values, "--endpoint", NULL),
        .ca_bundle = bench_flag(count, values, "--ca", NULL),
        .congestion = "cubic",
        .connections_max = (uint32_t)bench_flag_number(count, values, "--connections", 0),
        .requests_max = (uint32_t)bench_flag_number(count, values, "--requests", 0),
        .no_hedge = bench_flag_number(count, values, "--hedge", 1) == 0,
    };
    struct cairn_store_options options = {.url = bench_flag(count, values, "--store", NULL),
                                          .s3 = &s3};
    if (!options.url) return cairn_fail(err, CAIRN_INVALID, "--store URL is needed");
    cairn_store_register(CAIRN_STORE_SCHEME_S3, cairn_store_s3_open);
    CAIRN_TRY(cairn_store_open(&options, &put.up.store, err));
    if (cairn_store_profile(put.up.store)->over_network)
        put.up.store->profile.part_checksum = bench_flag_number(count, values, "--confirmed", 1);
    return CAIRN_OK;
}

static enum cairn_code open_journal(int count, char **values, struct cairn_error *err) {
    char path[4200];
    const char *folder = bench_flag(count, values, "--journal", NULL);
    if (!folder) return cairn_fail(err, CAIRN_INVALID, "--journal DIR is needed");
    snprintf(path, sizeof path, "%.3000s/journal-%d", folder, (int)getpid());
    struct cairn_up_journal_options options = {.path = path, .node = "bench", .replay = replay};
    return cairn_up_journal_open(&options, &put.up.journal, err);
}

static enum cairn_code make_checksums(int count, char **values, struct cairn_error *err) {
    put.staged = bench_flag_number(count, values, "--staged", 0) != 0;
    put.crcs = calloc(cairn_div_up(put.bytes, CAIRN_BLOCK_BYTES), sizeof *put.crcs);
    if (!put.crcs) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for checksums");
    for (uint64_t at = 0; at < put.bytes; at += CAIRN_BLOCK_BYTES)
        put.crcs[at / CAIRN_BLOCK_BYTES] =
            cairn_crc32c(0, put.slab.data + at, cairn_min_u64(CAIRN_BLOCK_BYTES, put.bytes - at));
    return CAIRN_OK;
}

static enum cairn_code prepare(int count, char **values, struct cairn_error *err) {
    put.bytes = bench_flag_number(count, values, "--bytes", CAIRN_MIB * 1024);
    put.object_count =
        (uint32_t)cairn_min_u64(OBJECTS_MAX, bench_flag_number(count, values, "--objects", 1));
    put.up.settings.workers = bench_flag_number(count, values, "--workers", 2);
    put.up.settings.part_size_bytes = bench_flag_number(count, values, "--part", 64 * CAIRN_MIB);
    cairn_lock_init(&put.up.lock, CAIRN_LOCK_uploader_state);
    cairn_budget_init(&put.up.budget, 64 * CAIRN_MIB * 1024);
    CAIRN_TRY(open_store(count, values, err));
    CAIRN_TRY(open_journal(count, values, err));
    CAIRN_TRY(cairn_slab_create("bench-put", put.bytes, false, &put.slab, err));
    bench_pattern(put.slab.data, put.bytes);
    CAIRN_TRY(make_checksums(count, values, err));
    CAIRN_TRY(cairn_up_queue_new(&put.up, &put.up.queue, err));
    CAIRN_TRY(cairn_up_send_new(&put.up, &put.up.send, err));
    cairn_up_queue_admit(put.up.queue); /* no grants can name another store */
    return cairn_up_send_start(put.up.send, err);
}

int main(int count, char **values) {
    struct cairn_error error = {0};
    if (prepare(count, values, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_put: %s\n", error.message);
        return 2;
    }
    int status = bench_loop(once, NULL);
    cairn_up_send_free(put.up.send);
    cairn_up_queue_free(put.up.queue);
    cairn_up_journal_free(put.up.journal);
    cairn_store_free(put.up.store);
    cairn_slab_release(&put.slab);
    return status;
}
