/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S27: many deletions in one request, each with an outcome of its own. */
#include "tests/s3faults/cases.h"

#define KEYS 5
static const char *const keys[KEYS] = {"v/a", "v/b", "v/c & <d>\"'", "v/e f+g%20", "v/\xc3\xa9"};

struct deletions {
    struct cairn_store_deletion all[KEYS];
};

static void prepare(struct deletions *deletions) {
    *deletions = (struct deletions){0};
    for (size_t i = 0; i < KEYS; i++) deletions->all[i].key = keys[i];
}

static bool put_all(struct cairn_s3world *world) {
    for (size_t i = 0; i < KEYS; i++)
        if (cairn_s3world_put(world, keys[i], CAIRN_VIEW("x")) != CAIRN_OK) return false;
    return true;
}

static size_t left(struct cairn_s3world *world) {
    struct cairn_s3world_object object;
    size_t count = 0;
    for (size_t i = 0; i < KEYS; i++) count += cairn_s3world_object(world, keys[i], &object);
    return count;
}

static enum cairn_code delete_all(struct cairn_s3world *world, struct deletions *deletions) {
    return cairn_store_delete_many(world->worker, "v/", deletions->all, KEYS, &world->error);
}

static size_t deleted(const struct deletions *deletions) {
    size_t count = 0;
    for (size_t i = 0; i < KEYS; i++) count += deletions->all[i].deleted;
    return count;
}

/* A world with all keys in it, and the request for them. */
#define KEPT(...)                                                                                  \
    WORLD(__VA_ARGS__);                                                                            \
    struct deletions deletions;                                                                    \
    REQUIRE(put_all(&world));                                                                      \
    prepare(&deletions)

TEST(s27_many_keys_are_deleted_in_one_request_and_gone_ones_are_done) {
    KEPT(0);
    REQUIRE_OK(delete_all(&world, &deletions));
    EXPECT_ALL_U64(deleted(&deletions), KEYS, left(&world), 0,
                   cairn_s3world_counter(&world, "op_delete-many"), 1,
                   cairn_s3world_counter(&world, "op_delete"), 0);
    prepare(&deletions); /* none of them is there any more */
    REQUIRE_OK(delete_all(&world, &deletions));
    EXPECT_EQ_U64(deleted(&deletions), KEYS);
    cairn_s3world_rules(&world, "op=delete-many : delete-error=NoSuchKey@*/b");
    prepare(&deletions); /* some stores call that an error */
    REQUIRE_OK(delete_all(&world, &deletions));
    EXPECT_EQ_U64(deleted(&deletions), KEYS);
}

TEST(s27_a_refused_key_keeps_none_of_the_others_and_is_named) {
    KEPT(0);
    cairn_s3world_rules(&world, "op=delete-many : delete-error=AccessDenied@*/b");
    EXPECT_FAILS(delete_all(&world, &deletions), CAIRN_FORBIDDEN, "v/b: AccessDenied");
    EXPECT_EQ_U64(deleted(&deletions), KEYS - 1);
    EXPECT(deletions.all[1].refused);
    EXPECT_CODE(deletions.all[1].code, CAIRN_FORBIDDEN);
    EXPECT_EQ_U64(left(&world), 1);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_delete-many"), 1); /* not asked again */
    cairn_s3world_rules(&world, "");
    prepare(&deletions); /* the next round */
    REQUIRE_OK(delete_all(&world, &deletions));
    EXPECT_EQ_U64(left(&world), 0);
}

TEST(s27_a_key_that_failed_for_now_is_asked_for_again_alone) {
    KEPT(0);
    cairn_s3world_rules(&world, "op=delete-many nth=1 : delete-error=InternalError@*/c*; "
                                "op=delete-many nth=2 : delete-error=SlowDown@*/c*");
    REQUIRE_OK(delete_all(&world, &deletions));
    EXPECT_ALL_U64(deleted(&deletions), KEYS, left(&world), 0,
                   cairn_s3world_counter(&world, "op_delete-many"), 3);
    char size[256];
    cairn_s3world_last(&world, "delete-many", "bytes_in", size);
    EXPECT(strtoul(size, NULL, 10) > 0);
    EXPECT(strtoul(size, NULL, 10) < 160); /* one key */
}

TEST(s27_a_key_that_always_fails_ends_the_request_and_leaves_the_state) {
    KEPT(0);
    cairn_s3world_rules(&world, "op=delete-many : delete-error=InternalError@*/b");
    uint64_t began = cairn_mono_ms();
    EXPECT_CODE(delete_all(&world, &deletions), CAIRN_UNAVAILABLE);
    EXPECT(cairn_mono_ms() - began < 60000); /* and not until the deadline, 5 min */
    EXPECT_EQ_U64(cairn_s3world_acted(&world, 0), 5);
    EXPECT_FAILS(deletions.all[1].code, CAIRN_UNAVAILABLE, "InternalError");
    EXPECT(strstr(err.message, "v/b"));
    EXPECT_EQ_U64(deleted(&deletions), KEYS - 1);
    EXPECT(!deletions.all[1].deleted);
    EXPECT(!deletions.all[1].refused); /* it may go well later */
    cairn_s3world_rules(&world, "");
    REQUIRE_OK(delete_all(&world, &deletions)); /* the same ones again */
    EXPECT_EQ_U64(left(&world), 0);
}

TEST(s27_where_there_is_no_such_operation_keys_go_one_by_one) {
    WORLD(0);
    EACH_TEXT(text, "501/NotImplemented", "405/MethodNotAllowed", "404/NoSuchKey",
              "400/MalformedXML", "400/InvalidRequest") {
        struct deletions deletions;
        cairn_s3world_post(&world, "reset", "");
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        REQUIRE(put_all(&world));
        prepare(&deletions);
        cairn_s3world_rules(
            &world,
            TEXT(
                "op=delete-many : status=%s; op=delete key=*/b nth=1 : status=404/NoSuchKey, apply",
                text));
        REQUIRE_OK(delete_all(&world, &deletions));
        EXPECT_ALL_U64(deleted(&deletions), KEYS, left(&world), 0,
                       cairn_s3world_counter(&world, "op_delete"), KEYS);
        prepare(&deletions);
        REQUIRE_OK(delete_all(&world, &deletions));
        /* What the store does not know it is not asked again. */
        bool absent = text[0] == '5' || !strncmp(text, "40", 2);
        absent = absent && strncmp(text, "400", 3) != 0;
        EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_delete-many"), absent ? 1 : 2);
    }
}

TEST(s27_one_by_one_a_key_fails_alone_too) {
    KEPT(.s3 = {.deadline_ms = 8000});
    cairn_s3world_rules(&world, "op=delete-many : status=501/NotImplemented; "
                                "op=delete key=*/a : status=403/AccessDenied; "
                                "op=delete key=*/b : status=500/InternalError");
    EXPECT(delete_all(&world, &deletions) != CAIRN_OK);
    EXPECT_EQ_U64(deleted(&deletions), KEYS - 2);
    EXPECT(deletions.all[0].refused);
    EXPECT_CODE(deletions.all[0].code, CAIRN_FORBIDDEN);
    EXPECT(!deletions.all[1].refused);
    EXPECT_EQ_U64(left(&world), 2);
}

TEST(s27_a_whole_refusal_deletes_nothing_and_is_final) {
    WORLD(0);
    EACH(one, FIELDS(const char *rule; enum cairn_code code),
         {"op=delete-many : status=403/AccessDenied", CAIRN_FORBIDDEN},
         {"op=delete-many : status=404/NoSuchBucket", CAIRN_STORE},
         {"op=delete-many : complete-200-error=AccessDenied", CAIRN_FORBIDDEN}) {
        struct deletions deletions;
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        REQUIRE(put_all(&world));
        prepare(&deletions);
        cairn_s3world_rules(&world, one->rule);
        EXPECT_CODE(delete_all(&world, &deletions), one->code);
        EXPECT_ALL_U64(deleted(&deletions), 0, cairn_s3world_acted(&world, 0), 1, left(&world),
                       KEYS);
    }
}

TEST(s27_lost_cut_and_empty_answers_are_no_deletion_and_asked_again) {
    WORLD(0);
    EACH_TEXT(text, "lose-reply", "rst@50%", "status=503/SlowDown",
              "complete-200-error=InternalError", "html", "empty") {
        struct deletions deletions;
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        REQUIRE(put_all(&world));
        prepare(&deletions);
        cairn_s3world_rules(&world, TEXT("op=delete-many nth=1 : %s", text));
        REQUIRE_OK(delete_all(&world, &deletions));
        EXPECT_ALL_U64(deleted(&deletions), KEYS, left(&world), 0, cairn_s3world_acted(&world, 0),
                       1);
    }
}

/* A result that tells of no key: they are not believed to be gone. */
TEST(s27_keys_that_the_answer_does_not_mention_go_one_by_one) {
    KEPT(0);
    cairn_s3world_rules(&world, "op=delete-many : body=<DeleteResult></DeleteResult>");
    REQUIRE_OK(delete_all(&world, &deletions));
    EXPECT_ALL_U64(cairn_s3world_counter(&world, "op_delete"), KEYS, left(&world), 0);
}

TEST(s27_a_thousand_keys_are_one_request_and_no_more_are_taken_by_s3fault) {
    WORLD(0);
    static char names[CAIRN_STORE_DELETIONS_MAX][64];
    static struct cairn_store_deletion many[CAIRN_STORE_DELETIONS_MAX];
    memset(many, 0, sizeof many);
    for (size_t i = 0; i < CAIRN_STORE_DELETIONS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "run/000000000001/0123456789abcdef/data/rank-%05zu", i);
        many[i].key = names[i];
    }
    REQUIRE(cairn_s3world_put(&world, names[777], CAIRN_VIEW("x")) == CAIRN_OK);
    REQUIRE_OK(
        cairn_store_delete_many(world.worker, "run/", many, CAIRN_STORE_DELETIONS_MAX, &err));
    struct cairn_s3world_object object;
    EXPECT(!cairn_s3world_object(&world, names[777], &object));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_delete-many"), 1);
    for (size_t i = 0; i < CAIRN_STORE_DELETIONS_MAX; i++) EXPECT(many[i].deleted);
}
