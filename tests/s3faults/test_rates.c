/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* H1: a store that fails by chance, often, in many ways, by seed: 15 % 500, 20 % 503, 10 % late
 * answers, 0.5 % of bodies with a flipped bit. */
#include "tests/s3faults/cases.h"

#define SEEDS 20
#define SHARDS 5
#define RANGE_BYTES (CAIRN_MIB + 5)
#define RATES                                                                                      \
    "op=part|put p=0.005 : req-flip@50%; op=* p=0.15 : status=500/InternalError; "                 \
    "op=* p=0.2 : status=503/SlowDown; op=* p=0.1 : delay=30"

struct tally {
    unsigned durable, failed, read, unread;
    uint64_t acted[4];
};

/* Whole under its token, or failed by a name and nothing of it is readable as a shard. */
static bool send_one(struct cairn_s3world *world, const char *key, uint64_t size,
                     struct tally *tally) {
    CAIRN_AUTO(s3run) run = {.key = key, .size_bytes = size, .advance_ms = 50};
    enum cairn_code code = cairn_s3run_send(world, &run);
    if (code == CAIRN_OK) tally->durable++;
    if (code == CAIRN_OK) return cairn_s3run_is_whole(world, &run);
    tally->failed++;
    if (code != CAIRN_TIMEOUT && run.error.message[0] && !run.durable) return true;
    fprintf(stderr, "%s: %s: %s\n", key, cairn_code_info(code)->name, run.error.message);
    return false;
}

static void mark_done(struct cairn_store_request *request) {
    *(bool *)request->owner = true;
}

/* With time that passes many times as fast as it does. */
static enum cairn_code perform(struct cairn_s3world *world, struct cairn_store_request *request) {
    bool done = false;
    request->done = mark_done;
    request->owner = &done;
    cairn_store_submit(world->worker, request);
    while (!done) {
        if (cairn_store_poll(world->worker, 2, &world->error) != CAIRN_OK) break;
        cairn_clock_virtual_advance(&world->clock, 50);
    }
    if (!done) cairn_store_cancel(world->worker, request);
    world->error = request->error;
    return request->code;
}

/* The right bytes, or an error; nobody flips what is read here, since a range bears no checksum. */
static bool read_one(struct cairn_s3world *world, const char *key, struct tally *tally) {
    static uint8_t wanted[2 * CAIRN_MIB], got[RANGE_BYTES];
    struct cairn_s3world_object object;
    struct cairn_store_request get = {
        .op = CAIRN_STORE_GET, .key = key, .offset = 77, .length = RANGE_BYTES, .into = got};
    if (!cairn_s3world_object(world, key, &object) || object.size < 2 * CAIRN_MIB) return true;
    cairn_s3world_pattern(wanted, sizeof wanted);
    memset(got, 0, sizeof got);
    enum cairn_code code = perform(world, &get);
    *(code == CAIRN_OK ? &tally->read : &tally->unread) += 1;
    if (code == CAIRN_OK) return !memcmp(got, wanted + 77, RANGE_BYTES);
    return world->error.message[0];
}

static void play(uint64_t seed, struct tally *tally) {
    WORLD(.virtual_clock = true, .seed = seed, .s3 = {.deadline_ms = 600000, .no_hedge = true});
    cairn_s3world_rules(&world, RATES);
    for (unsigned i = 0; i < SHARDS; i++) {
        EXPECT(send_one(&world, TEXT("shard-%u", i), i % 2 ? 4321 : SHARD_BYTES, tally));
    }
    for (unsigned i = 0; i < 4; i++) tally->acted[i] += cairn_s3world_acted(&world, i);
    cairn_s3world_rules(&world, RATES);
    for (unsigned i = 0; i < SHARDS; i++) {
        EXPECT(read_one(&world, TEXT("shard-%u", i), tally));
    }
    cairn_s3world_rules(&world, "");
    if (!EXPECT(cairn_s3world_open_uploads(&world) == 0))
        fprintf(stderr, "seed %" PRIu64 ": %" PRIu64 " uploads left\n", seed,
                cairn_s3world_open_uploads(&world));
}

TEST(h1_whatever_a_seed_brings_each_object_is_right_or_failed_by_name) {
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) play(cairn_test_seed() + 2 * seed, &tally);
    fprintf(stderr,
            "%u durable, %u failed; %u read, %u not; flips %" PRIu64 ", 500s %" PRIu64
            ", 503s %" PRIu64 ", late %" PRIu64 "\n",
            tally.durable, tally.failed, tally.read, tally.unread, tally.acted[0], tally.acted[1],
            tally.acted[2], tally.acted[3]);
    EXPECT_EQ_U64(tally.durable + tally.failed, SEEDS * SHARDS);
    EXPECT(tally.durable > SEEDS * SHARDS / 2);
    for (unsigned i = 1; i < 4; i++) EXPECT(tally.acted[i] > SEEDS);
}
