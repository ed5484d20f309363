/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* What a commit asks the bucket before it believes that its shards are there (Q55). */
#include "store/whole.h"
#include "tests/s3faults/cases.h"

#define COUNT 20
#define MANY 500

struct look {
    struct cairn_store_presence presence;
    struct cairn_store_object objects[COUNT];
    char keys[COUNT][32];
};

static void look_init(struct look *look) {
    *look = (struct look){.presence = {.prefix = "v/data/", .count = COUNT}};
    look->presence.objects = look->objects;
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(look->keys[i], sizeof look->keys[i], "v/data/%03u", i);
        look->objects[i].key = look->keys[i];
        look->objects[i].size_bytes = 4;
    }
}

static enum cairn_code put_all(struct cairn_s3world *world, const struct look *look) {
    for (unsigned i = 0; i < COUNT; i++) {
        enum cairn_code code = cairn_s3world_put(world, look->keys[i], CAIRN_VIEW("1234"));
        if (code) return code;
    }
    return CAIRN_OK;
}

/* One is gone and one is shorter; all others are as they were. */
static void spoil_two(struct cairn_s3world *world, const struct look *look) {
    EXPECT(cairn_store_delete(world->worker, look->keys[3], &world->error) == CAIRN_OK);
    EXPECT(cairn_s3world_put(world, look->keys[COUNT - 1], CAIRN_VIEW("12")) == CAIRN_OK);
}

static void expect_two_are_told(const struct look *look) {
    EXPECT_EQ_U64(look->presence.there_count, COUNT - 2);
    EXPECT(!look->objects[3].there && !look->objects[3].found);
    EXPECT(!look->objects[COUNT - 1].there && look->objects[COUNT - 1].found);
    EXPECT_EQ_U64(look->objects[COUNT - 1].found_bytes, 2);
}

#define LOOK(...)                                                                                  \
    WORLD(__VA_ARGS__);                                                                            \
    struct look look;                                                                              \
    look_init(&look);                                                                              \
    REQUIRE_OK(put_all(&world, &look))

TEST(a_a_look_is_one_listing_of_its_own_prefix_and_asks_only_for_what_is_not_there) {
    LOOK(.page_max = 7);
    REQUIRE_OK(cairn_s3world_put(&world, "w/data/000", CAIRN_VIEW("another version's")));
    REQUIRE_OK(cairn_store_presence_look(&look.presence, world.worker, &err));
    EXPECT_EQ_U64(look.presence.there_count, COUNT);
    EXPECT(look.presence.listed);
    EXPECT_ALL_U64(look.presence.requests, 3, cairn_s3world_counter(&world, "op_list"), 3,
                   cairn_s3world_counter(&world, "op_head"), 0);
    spoil_two(&world, &look);
    REQUIRE_OK(cairn_store_presence_look(&look.presence, world.worker, &err));
    expect_two_are_told(&look);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_head"), 2);
}

TEST(a_what_a_late_listing_does_not_show_is_not_called_missing) {
    LOOK(.rules = "op=list : stale-list=60000");
    REQUIRE_OK(cairn_store_presence_look(&look.presence, world.worker, &err));
    EXPECT_EQ_U64(look.presence.there_count, COUNT);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_head"), COUNT);
}

TEST(a_where_keys_may_not_be_listed_each_object_is_asked_for) {
    LOOK(.rules = "op=list : status=403/AccessDenied");
    REQUIRE_OK(cairn_store_presence_look(&look.presence, world.worker, &err));
    EXPECT_EQ_U64(look.presence.there_count, COUNT);
    EXPECT(!look.presence.listed);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_head"), COUNT);
    spoil_two(&world, &look);
    REQUIRE_OK(cairn_store_presence_look(&look.presence, world.worker, &err));
    expect_two_are_told(&look);
}

TEST(a_a_bucket_that_does_not_answer_says_nothing_about_its_objects) {
    LOOK(.rules = "op=list : status=500/InternalError", .s3 = {.deadline_ms = 1000});
    EXPECT(cairn_store_presence_look(&look.presence, world.worker, &err) != CAIRN_OK);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_head"), 0);
}

static void *be_busy(void *argument) {
    while (!atomic_load((atomic_bool *)argument)) {
    }
    return NULL;
}

/* Busy threads delay this one, so that many answers are there when it polls. */
TEST(a_every_one_of_500_objects_is_asked_for_beside_busy_threads) {
    WORLD(.rules = "op=list : status=403/AccessDenied");
    atomic_bool over = false;
    pthread_t busy[4];
    char keys[MANY][32];
    CAIRN_AUTO_HEAP struct cairn_store_object *objects = calloc(MANY, sizeof *objects);
    struct cairn_store_presence presence = {.prefix = "v/data/", .count = MANY, .objects = objects};
    REQUIRE(objects);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "v/data/%03u", i);
        objects[i] = (struct cairn_store_object){.key = keys[i], .size_bytes = 4};
        REQUIRE_OK(cairn_s3world_put(&world, keys[i], CAIRN_VIEW("1234")));
    }
    for (size_t i = 0; i < CAIRN_COUNT(busy); i++)
        REQUIRE(!pthread_create(&busy[i], NULL, be_busy, &over));
    enum cairn_code code = cairn_store_presence_look(&presence, world.worker, &err);
    atomic_store(&over, true);
    for (size_t i = 0; i < CAIRN_COUNT(busy); i++) pthread_join(busy[i], NULL);
    REQUIRE_OK(code);
    EXPECT_ALL_U64(presence.there_count, MANY, cairn_s3world_counter(&world, "op_head"), MANY);
}
