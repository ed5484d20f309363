/* SPDX-License-Identifier: Apache-2.0 */
/* threads: machines of many kinds, whose copies take what a curve of rates says, and how soon the
 * right number of threads is found. */
#include "client/save/threads.h"
#include "tests/harness.h"

struct machine {
    const char *name;
    uint32_t first, limit;
    double alone;     /* GB/s of one thread */
    uint32_t enough;  /* so many reach the memory's speed ... */
    double lost_each; /* ... and each one beyond loses this part of it */
    uint64_t shard_bytes;
    bool whole;
};

static const struct machine machines[] = {
    {"one thread is enough", 4, 16, 10, 1, 0, 8 * CAIRN_GIB, false},
    {"one is enough, more harm", 4, 16, 10, 1, 0.1, 8 * CAIRN_GIB, false},
    {"two of two cores help", 1, 2, 7, 2, 0, 2 * CAIRN_GIB, false},
    {"two of two cores harm", 1, 2, 9, 1, 0.4, 2 * CAIRN_GIB, false},
    {"four help", 4, 16, 8, 4, 0, 8 * CAIRN_GIB, false},
    {"four help, more harm", 4, 16, 8, 4, 0.06, 8 * CAIRN_GIB, false},
    {"six of ten help, more harm", 4, 10, 8, 6, 0.05, 8 * CAIRN_GIB, false},
    {"sixteen help", 4, 32, 3, 16, 0, 16 * CAIRN_GIB, false},
    {"all of five help", 2, 5, 6, 5, 0, 4 * CAIRN_GIB, false},
    {"sixty-four help", 4, 64, 2, 64, 0, 64 * CAIRN_GIB, false},
    {"two help, small shards", 1, 8, 8, 2, 0.05, 512 * CAIRN_MIB, false},
    {"eight help a conversion", 4, 16, 2, 8, 0, 8 * CAIRN_GIB, true},
};

/* A copy takes longer by up to `slower`, or less by up to `faster`, parts of its time; one in ten
 * takes `disturbed` of it more. */
struct noise {
    const char *name;
    double slower, faster, disturbed;
    unsigned wrong; /* percent of the searches that may end far from the best */
};

struct world {
    struct machine machine;
    struct noise noise;
    uint64_t seed;
    struct cairn_client_threads threads;
    double seconds, ideal_seconds; /* of all copies; with the best number */
    double lost_seconds;           /* by the tries: over what the kept number would have taken */
    unsigned legs, tries;
};

/* GB/s */
static double rate_of(const struct machine *machine, uint32_t threads) {
    uint32_t used = threads < machine->enough ? threads : machine->enough;
    double rate = machine->alone * used;
    for (uint32_t i = machine->enough; i < threads; i++) rate *= 1 - machine->lost_each;
    return rate;
}

static double best_rate(const struct machine *machine) {
    double ret = 0;
    for (uint32_t i = 1; i <= machine->limit; i++)
        if (rate_of(machine, i) > ret) ret = rate_of(machine, i);
    return ret;
}

static double chance(struct world *world) {
    return (double)(cairn_test_random(&world->seed) >> 11) / (double)(UINT64_C(1) << 53);
}

static struct world world_of(const struct machine *machine, const struct noise *noise,
                             uint64_t seed) {
    struct world ret = {.machine = *machine, .seed = seed};
    if (noise) ret.noise = *noise;
    cairn_client_threads_init(&ret.threads, machine->first, machine->limit);
    return ret;
}

static void save(struct world *world) {
    const struct machine *machine = &world->machine;
    for (uint64_t left = machine->shard_bytes; left;) {
        struct cairn_client_leg leg =
            cairn_client_threads_next(&world->threads, left, machine->whole);
        bool counted = leg.threads >= 1 && leg.threads <= machine->limit && leg.bytes &&
                       leg.bytes <= left &&
                       (leg.bytes == left || leg.bytes % (16 * CAIRN_MIB) == 0);
        if (!EXPECT(counted)) return;
        double us = (double)leg.bytes / (rate_of(machine, leg.threads) * 1000);
        uint32_t kept = world->threads.kept;
        double usual = (double)leg.bytes / (rate_of(machine, kept) * 1000);
        world->legs++;
        world->tries += leg.threads != kept;
        if (leg.threads != kept && us > usual) world->lost_seconds += (us - usual) / 1e6;
        world->seconds += us / 1e6;
        world->ideal_seconds += (double)leg.bytes / (best_rate(machine) * 1e9);
        const struct noise *noise = &world->noise;
        us *= 1 - noise->faster + (noise->slower + noise->faster) * chance(world);
        if (noise->disturbed > 0 && chance(world) < 0.1) us *= 1 + noise->disturbed;
        cairn_client_threads_learn(&world->threads, &leg, (uint64_t)us);
        left -= leg.bytes;
    }
}

static double share_of_best(const struct world *world) {
    return rate_of(&world->machine, world->threads.kept) / best_rate(&world->machine);
}

/* Saves until the search has ended; at most `most`. */
static unsigned saves_until_settled(struct world *world, unsigned most) {
    unsigned saves = 0;
    do {
        save(world);
        saves++;
    } while (!world->threads.settled && saves < most);
    return saves;
}

TEST(the_best_number_is_found_within_a_handful_of_saves_on_every_machine) { /* threads.h#1 */
    for (size_t i = 0; i < CAIRN_COUNT(machines); i++) {
        struct world world = world_of(&machines[i], NULL, 1);
        unsigned good = 0, saves = 0;
        do {
            save(&world);
            saves++;
            if (share_of_best(&world) < 0.9) good = saves;
        } while (!world.threads.settled && saves < 100);
        printf("  %-28s %u -> %2u threads, %3.0f %% of the best, good after %u, settled after %2u "
               "saves; %2u tries cost %.2f s\n",
               machines[i].name, machines[i].first, world.threads.kept, 100 * share_of_best(&world),
               good + 1, saves, world.tries, world.lost_seconds);
        cairn_test_check(share_of_best(&world) >= 0.93, __FILE__, __LINE__, "%s: %u threads",
                         machines[i].name, world.threads.kept);
        cairn_test_check(good < 6, __FILE__, __LINE__, "%s: after %u saves", machines[i].name,
                         good);
        cairn_test_check(saves <= (machines[i].whole ? 24 : 6), __FILE__, __LINE__, "%s: %u saves",
                         machines[i].name, saves);
    }
}

TEST(no_thread_is_kept_that_gains_nothing) { /* threads.h#1 */
    struct world one = world_of(&machines[0], NULL, 1), four = world_of(&machines[4], NULL, 1);
    (void)saves_until_settled(&one, 100);
    (void)saves_until_settled(&four, 100);
    EXPECT_ALL_U64(one.threads.kept, 1, four.threads.kept, 4);
}

static const struct noise noises[] = {
    {"up to 5 % slower", 0.05, 0, 0, 0},
    {"up to 5 % slower, one in ten takes twice as long", 0.05, 0, 1, 0},
    {"up to 30 % slower", 0.3, 0, 0, 0},
    {"up to 30 % slower, one in ten takes twice as long", 0.3, 0, 1, 1},
    {"up to 30 % slower or faster", 0.3, 0.3, 0, 5},
};

/* 200 searches on each machine: how often what was settled on is far from the best. */
static void search_disturbed(const struct noise *noise) {
    unsigned far = 0, searches = 0, most = 0;
    double least = 1;
    for (size_t i = 0; i < CAIRN_COUNT(machines); i++)
        for (uint64_t seed = 1; seed <= 200; seed++, searches++) {
            struct world world = world_of(&machines[i], noise, seed * 7919);
            unsigned saves = saves_until_settled(&world, 200);
            double share = share_of_best(&world);
            far += share < 0.9;
            if (share < least) least = share;
            if (saves > most) most = saves;
            EXPECT(world.threads.settled);
        }
    printf("  %s: %u of %u are below 90 %% of the best, the worst %.0f %%; at most %u saves\n",
           noise->name, far, searches, 100 * least, most);
    cairn_test_check(far * 100 <= noise->wrong * searches, __FILE__, __LINE__, "%s: %u of %u",
                     noise->name, far, searches);
}

TEST(noise_of_thirty_percent_and_disturbed_saves_settle_nothing_wrong) { /* threads.h#2 */
    for (size_t i = 0; i < CAIRN_COUNT(noises); i++) search_disturbed(&noises[i]);
}

TEST(tries_cost_little_in_the_long_run) { /* threads.h#4 */
    for (size_t i = 0; i < CAIRN_COUNT(machines); i++) {
        struct world world = world_of(&machines[i], &noises[3], cairn_test_seed());
        for (unsigned saves = 0; saves < 500; saves++) save(&world);
        double over = world.seconds / world.ideal_seconds - 1;
        printf("  %-28s 500 saves: %5u tries of %6u legs, which cost %.2f %% of the time; %.1f %% "
               "over the best\n",
               machines[i].name, world.tries, world.legs, 100 * world.lost_seconds / world.seconds,
               100 * over);
        cairn_test_check(world.tries > 0, __FILE__, __LINE__, "%s: none", machines[i].name);
        cairn_test_check(world.lost_seconds < 0.04 * world.seconds, __FILE__, __LINE__,
                         "%s: %.2f of %.2f s", machines[i].name, world.lost_seconds, world.seconds);
        cairn_test_check(over < 0.15, __FILE__, __LINE__, "%s: %.3f over the best",
                         machines[i].name, over);
    }
}

/* The machine becomes another one, as where another job comes or goes. */
static void become(struct world *world, const struct machine *other, unsigned most) {
    unsigned saves = 0;
    world->machine.alone = other->alone;
    world->machine.enough = other->enough;
    world->machine.lost_each = other->lost_each;
    world->lost_seconds = 0;
    while (share_of_best(world) < 0.9 && saves < 200) {
        save(world);
        saves++;
    }
    printf("  now \"%s\": %u threads after %u saves\n", other->name, world->threads.kept, saves);
    cairn_test_check(saves <= most, __FILE__, __LINE__, "%s: after %u saves", other->name, saves);
    for (unsigned i = 0; i < 20; i++) save(world);
    EXPECT(share_of_best(world) >= 0.9);
}

TEST(a_load_that_changes_is_followed) { /* threads.h#4 */
    struct machine slower = machines[4], harmed = machines[5];
    struct world world = world_of(&machines[5], &noises[0], 3);
    harmed.name = "32 GB/s by one, more harm", harmed.alone = 32, harmed.enough = 1;
    slower.name = "2 GB/s each, all of them help", slower.alone = 2, slower.enough = 16;
    for (unsigned i = 0; i < 12; i++) save(&world);
    EXPECT_EQ_U64(world.threads.kept, 4);
    become(&world, &slower, 8);      /* four copy at a quarter: it is seen at once */
    become(&world, &machines[5], 8); /* sixteen at half */
    become(&world, &harmed, 30);     /* four are as fast as before, nearly */
    become(&world, &machines[4], 8); /* one does 8 instead of 32 */
    slower.alone = 8;
    slower.name = "8 GB/s each, which four cannot see";
    become(&world, &slower, 30); /* by a later search */
}

TEST(no_count_is_above_its_limit_and_small_copies_teach_nothing) { /* threads.h#3 */
    struct cairn_client_threads threads;
    cairn_client_threads_init(&threads, 1, 1);
    for (unsigned i = 0; i < 100; i++) {
        struct cairn_client_leg leg = cairn_client_threads_next(&threads, 64 * CAIRN_GIB, false);
        EXPECT_ALL_U64(leg.threads, 1, leg.bytes, 64 * CAIRN_GIB);
        cairn_client_threads_learn(&threads, &leg, 1000000);
    }
    cairn_client_threads_init(&threads, 4, 16);
    for (unsigned i = 0; i < 100; i++) {
        static const uint64_t sizes[] = {0, 1, 31, 64, 100, 128, 255};
        static const uint32_t wanted[] = {1, 1, 1, 2, 3, 4, 4};
        uint64_t bytes = sizes[i % CAIRN_COUNT(sizes)] * CAIRN_MIB;
        struct cairn_client_leg leg = cairn_client_threads_next(&threads, bytes, false);
        EXPECT_ALL_U64(leg.threads, wanted[i % CAIRN_COUNT(sizes)], leg.bytes, bytes);
        cairn_client_threads_learn(&threads, &leg, i); /* twice as fast, or as slow */
        EXPECT(threads.settled);
    }
    EXPECT_EQ_U64(threads.copies, 0);
}

TEST(the_same_copies_make_the_same_decisions) { /* threads.h#5 */
    struct world one = world_of(&machines[6], &noises[3], 11), other = one;
    for (unsigned i = 0; i < 50; i++) {
        save(&one);
        save(&other);
        EXPECT_ALL_U64(one.legs, other.legs, one.threads.kept, other.threads.kept,
                       one.threads.tried, other.threads.tried);
    }
}

TEST(copies_of_several_sessions_at_once_find_it_too) {
    struct machine half = machines[7];
    struct cairn_client_threads threads;
    uint64_t seed = 5;
    cairn_client_threads_init(&threads, half.first, half.limit);
    for (unsigned i = 0; i < 400; i++) {
        struct cairn_client_leg legs[4];
        for (size_t k = 0; k < CAIRN_COUNT(legs); k++)
            legs[k] = cairn_client_threads_next(&threads, half.shard_bytes, false);
        for (size_t k = CAIRN_COUNT(legs); k-- > 0;) { /* they end in any order */
            size_t at = (size_t)(cairn_test_random(&seed) % (k + 1));
            struct cairn_client_leg leg = legs[at];
            legs[at] = legs[k];
            EXPECT(leg.threads >= 1 && leg.threads <= half.limit);
            double us = (double)leg.bytes / (rate_of(&half, leg.threads) * 1000);
            cairn_client_threads_learn(&threads, &leg, (uint64_t)us);
        }
    }
    EXPECT_EQ_U64(threads.kept, 16);
}
