/* SPDX-License-Identifier: Apache-2.0 */
/* cases: sends, asks the server, says what was wrong. */
#include "store/s3/inside.h"

#include "tests/s3faults/cases.h"

#undef err

bool cairn_case_is_durable(struct cairn_s3world *world, const char *rules, const char *key) {
    CAIRN_AUTO(s3run) run = {.key = key, .size_bytes = SHARD_BYTES};
    cairn_s3world_rules(world, rules);
    enum cairn_code code = cairn_s3run_send(world, &run);
    uint64_t left = cairn_s3world_open_uploads(world);
    bool whole = code == CAIRN_OK && cairn_s3run_is_whole(world, &run);
    if (!whole || left)
        fprintf(stderr, "%s: %s: %s; %" PRIu64 " uploads left\n", rules,
                cairn_code_info(code)->name, run.error.message, left);
    return whole && left == 0;
}

void cairn_case_all_durable(struct cairn_s3world *world,
                            const struct cairn_s3world_options *options, const char *const *rules,
                            size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *key = TEXT("shard-%zu", i);
        if (!EXPECT(cairn_s3world_open(world, options) == CAIRN_OK)) return;
        EXPECT(cairn_case_is_durable(world, rules[i], key));
        if (!EXPECT(cairn_s3world_acted(world, 0) >= 1)) fprintf(stderr, "%s\n", rules[i]);
    }
}

bool cairn_case_is_refused(const struct cairn_s3world *world) {
    struct cairn_s3_store *store = (struct cairn_s3_store *)world->store;
    CAIRN_HOLD(&store->lock);
    return store->locked.retry.failing;
}

bool cairn_case_fails(struct cairn_s3world *world, const char *rules, enum cairn_code wanted) {
    CAIRN_AUTO(s3run) run = {.size_bytes = SHARD_BYTES};
    cairn_s3world_rules(world, rules);
    enum cairn_code code = cairn_s3run_send(world, &run);
    uint64_t left = cairn_s3world_open_uploads(world);
    if (code != wanted || left)
        fprintf(stderr, "%s: %s: %s; %" PRIu64 " uploads left\n", rules,
                cairn_code_info(code)->name, run.error.message, left);
    return code == wanted && left == 0;
}

enum cairn_code cairn_case_send(struct cairn_s3world *world, const char *rules,
                                struct cairn_s3run *run) {
    if (rules) cairn_s3world_rules(world, rules);
    return cairn_s3run_send(world, run);
}

void cairn_case_counted(struct cairn_s3world *world, const char *file, int line,
                        const char *wanted) {
    char name[64];
    unsigned long long count;
    for (int size; sscanf(wanted, " %63[^=]=%llu%n", name, &count, &size) == 2; wanted += size) {
        uint64_t got = cairn_s3world_counter(world, name);
        cairn_test_check(got == count, file, line, "%s: %" PRIu64 ", wanted %llu", name, got,
                         count);
    }
    cairn_test_check(!*wanted, file, line, "not understood: \"%s\"", wanted);
}
