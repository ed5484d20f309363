/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* A bucket with versioning: what a delete leaves there, and what frees it. */
#include "tests/s3faults/cases.h"

#define ENABLED "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
#define SUSPENDED "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>"
#define KEYS 5
static const char *const keys[KEYS] = {"v/a", "v/b", "v/c & <d>\"'", "v/e f+g%20", "v/\xc3\xa9"};

/* Two versions of each key, hidden by a marker each, and another prefix beside them. */
static bool put_and_delete(struct cairn_s3world *world) {
    cairn_s3world_post(world, "versioning", ENABLED);
    for (size_t i = 0; i < 2 * KEYS; i++)
        if (cairn_s3world_put(world, keys[i % KEYS], CAIRN_VIEW("0123456789"))) return false;
    if (cairn_s3world_put(world, "va", CAIRN_VIEW("x"))) return false;
    for (size_t i = 0; i < KEYS; i++)
        if (cairn_store_delete(world->worker, keys[i], &world->error)) return false;
    return cairn_s3world_counter(world, "version_bytes") == 2 * KEYS * 10 + 1;
}

static bool is_seen(struct cairn_s3world *world, const char *key) {
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key};
    return cairn_store_perform(world->worker, &head, &world->error) == CAIRN_OK;
}

static enum cairn_code purge(struct cairn_s3world *world, const char *prefix,
                             struct cairn_store_purge *ret) {
    *ret = (struct cairn_store_purge){.prefix = prefix};
    return cairn_store_purge(world->worker, ret, &world->error);
}

#define PURGED(code)                                                                               \
    REQUIRE_OK(purge(&world, "v/", &purged));                                                      \
    EXPECT_CODE(purged.why, code)
#define VERSIONS(wanted) EXPECT_EQ_U64(cairn_s3world_counter(&world, "versions"), wanted)

#define DELETED(...)                                                                               \
    WORLD(__VA_ARGS__);                                                                            \
    struct cairn_store_purge purged;                                                               \
    REQUIRE(put_and_delete(&world))

TEST(a_delete_leaves_the_bytes_in_a_bucket_with_versioning_and_a_purge_frees_them) {
    WORLD(.page_max = 3);
    struct cairn_store_purge purged;
    EXPECT(!cairn_store_keeps_versions(world.store));
    REQUIRE(put_and_delete(&world));
    EXPECT(cairn_store_keeps_versions(world.store)); /* the replies to the puts said so */
    PURGED(CAIRN_OK);
    EXPECT_ALL_U64(purged.freed_objects, 2 * KEYS, purged.freed_bytes, 2 * KEYS * 10,
                   purged.left_objects, 0);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "versions"), 1); /* no marker of them either */
    EXPECT(is_seen(&world, "va"));
    REQUIRE_OK(purge(&world, "v/", &purged)); /* nothing is there any more */
    EXPECT_EQ_U64(purged.freed_objects, 0);
}

TEST(a_purge_of_a_key_leaves_those_that_begin_with_it) {
    WORLD(0);
    cairn_s3world_post(&world, "versioning", ENABLED);
    REQUIRE_OK(cairn_s3world_put(&world, "k", CAIRN_VIEW("1")));
    REQUIRE_OK(cairn_s3world_put(&world, "k2", CAIRN_VIEW("22")));
    REQUIRE_OK(cairn_store_delete(world.worker, "k", &err));
    struct cairn_store_purge purged = {.prefix = "k", .is_key = true};
    REQUIRE_OK(cairn_store_purge(world.worker, &purged, &err));
    EXPECT_ALL_U64(purged.freed_bytes, 1, cairn_s3world_counter(&world, "versions"), 1);
    EXPECT(is_seen(&world, "k2"));
}

static bool is_spared(const char *key) {
    return strcmp(key, "v/mark") == 0;
}

TEST(a_purge_leaves_the_key_that_it_is_to_spare_with_all_its_versions) {
    WORLD(0);
    cairn_s3world_post(&world, "versioning", ENABLED);
    REQUIRE_OK(cairn_s3world_put(&world, "v/a", CAIRN_VIEW("1")));
    REQUIRE_OK(cairn_s3world_put(&world, "v/mark", CAIRN_VIEW("22")));
    REQUIRE_OK(cairn_s3world_put(&world, "v/mark", CAIRN_VIEW("333")));
    REQUIRE_OK(cairn_s3world_put(&world, "v/marks", CAIRN_VIEW("4444")));
    struct cairn_store_purge purged = {.prefix = "v/", .spares = is_spared};
    REQUIRE_OK(cairn_store_purge(world.worker, &purged, &err));
    EXPECT_ALL_U64(purged.freed_bytes, 5, purged.left_objects, 0);
    EXPECT_CODE(purged.why, CAIRN_OK);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "versions"), 2);
    EXPECT(is_seen(&world, "v/mark"));
}

TEST(nothing_is_asked_where_deletes_free) {
    WORLD(0);
    struct cairn_store_purge purged;
    REQUIRE_OK(cairn_s3world_put(&world, "v/a", CAIRN_VIEW("1")));
    REQUIRE_OK(cairn_store_delete(world.worker, "v/a", &err));
    REQUIRE_OK(purge(&world, "v/", &purged));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_versions"), 0);
}

TEST(what_is_under_legal_hold_keeps_none_of_the_others_and_is_never_seen_again) {
    DELETED(0);
    cairn_s3world_post(&world, "hold", "*v/b");
    for (size_t i = 0; i < 3; i++) {
        PURGED(CAIRN_FORBIDDEN);
        EXPECT_ALL_U64(purged.left_objects, 2, purged.left_bytes, 20);
        EXPECT_HAS(purged.reason, "AccessDenied", "object lock");
        EXPECT_EQ_U64(cairn_s3world_counter(&world, "version_bytes"), 21);
        EXPECT_EQ_U64(cairn_s3world_counter(&world, "markers"), KEYS);
        EXPECT(!is_seen(&world, "v/b")); /* its marker stays before it */
    }
    cairn_s3world_post(&world, "hold", "");
    PURGED(CAIRN_OK);
    VERSIONS(1);
}

TEST(keys_that_may_not_list_versions_are_told_so) {
    DELETED(0);
    cairn_s3world_rules(&world, "op=versions : status=403/AccessDenied");
    PURGED(CAIRN_FORBIDDEN);
    EXPECT(purged.uncounted);
    EXPECT(strstr(purged.reason, "AccessDenied"));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "version_bytes"), 2 * KEYS * 10 + 1);
    cairn_s3world_rules(&world, "op=versions : status=404/NoSuchBucket");
    EXPECT_CODE(purge(&world, "v/", &purged), CAIRN_STORE); /* that is no right that is missing */
}

TEST(a_version_that_fails_for_now_is_asked_for_again) {
    DELETED(0);
    cairn_s3world_rules(&world, "op=delete-many nth=1 : delete-error=InternalError@*/b; "
                                "op=delete-many nth=2 : delete-error=SlowDown@*/b");
    PURGED(CAIRN_OK);
    VERSIONS(1);
}

TEST(versions_go_one_by_one_where_the_store_has_no_multi_delete) {
    DELETED(0);
    cairn_s3world_rules(&world, "op=delete-many : status=501/NotImplemented");
    cairn_s3world_post(&world, "hold", "*v/b");
    PURGED(CAIRN_FORBIDDEN);
    EXPECT_EQ_U64(purged.left_objects, 2);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_delete-version"), 2 * KEYS);
    cairn_s3world_post(&world, "hold", "");
    PURGED(CAIRN_OK);
    VERSIONS(1);
}

TEST(a_store_that_says_it_deleted_what_it_lists_still_is_not_believed) {
    WORLD(0);
    struct cairn_store_purge purged;
    cairn_s3world_post(&world, "versioning", ENABLED);
    REQUIRE_OK(cairn_s3world_put(&world, "v/a", CAIRN_VIEW("1")));
    REQUIRE_OK(cairn_store_delete(world.worker, "v/a", &err));
    char key[256];
    cairn_s3world_last(&world, "delete", "key", key);
    cairn_s3world_rules(
        &world,
        TEXT("op=delete-many : body=<DeleteResult><Deleted><Key>%s</Key></Deleted></DeleteResult>",
             key));
    PURGED(CAIRN_STORE);
    EXPECT_ALL_U64(cairn_s3world_acted(&world, 0), 1, purged.left_objects, 1);
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "markers"), 1);
}

/* Both are told of in another order than they were asked for. */
TEST(a_version_that_is_locked_is_not_taken_for_the_one_beside_it) {
    WORLD(0);
    char key[256];
    cairn_s3world_post(&world, "versioning", ENABLED);
    REQUIRE_OK(cairn_s3world_put(&world, "v/a", CAIRN_VIEW("1")));
    REQUIRE_OK(cairn_s3world_put(&world, "v/a", CAIRN_VIEW("2")));
    cairn_s3world_last(&world, "put", "key", key);
    CAIRN_AUTO(store_listing) listing = {0};
    PERFORMED(list, world.worker, {.op = CAIRN_STORE_VERSIONS, .key = "v/", .listing = &listing});
    REQUIRE(listing.count == 2);
    struct cairn_store_deletion both[2] = {{.key = "v/a"}, {.key = "v/a"}};
    for (size_t i = 0; i < 2; i++) both[i].version_id = listing.entries[i].version_id;
    cairn_s3world_rules(
        &world,
        TEXT("op=delete-many : body=<DeleteResult><Error><Key>%s</Key><VersionId>%s</VersionId>"
             "<Code>AccessDenied</Code></Error><Deleted><Key>%s</Key><VersionId>%s</VersionId>"
             "</Deleted></DeleteResult>",
             key, both[1].version_id, key, both[0].version_id));
    EXPECT_CODE(cairn_store_delete_many(world.worker, "v/", both, 2, &err), CAIRN_FORBIDDEN);
    EXPECT(both[0].deleted && !both[0].refused);
    EXPECT(both[1].refused && !both[1].deleted);
}

TEST(a_start_finds_out_by_asking_what_no_reply_has_said_yet) {
    WORLD(0);
    EACH(one, FIELDS(const char *document; bool keeps), {ENABLED, true}, {"", false},
         {SUSPENDED, true}, {"", false}) {
        char from[160];
        cairn_s3world_post(&world, "versioning", one->document);
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        REQUIRE_OK(cairn_store_probe(world.store, "server", true, from, &err));
        EXPECT_EQ_U64(cairn_store_keeps_versions(world.store), one->keeps);
    }
}

TEST(keys_that_may_not_ask_learn_it_from_the_store_s_profile_and_from_replies) {
    WORLD(0);
    char from[160];
    bool written = false;
    cairn_s3world_post(&world, "versioning", ENABLED);
    cairn_s3world_rules(&world, "op=versioning : status=403/AccessDenied");
    REQUIRE_OK(cairn_store_probe(world.store, "server", true, from, &err));
    EXPECT(cairn_store_keeps_versions(world.store)); /* the probe's put was answered with an id */
    REQUIRE_OK(cairn_store_profile_save(world.store, &written, &err));
    EXPECT(written);
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    REQUIRE_OK(cairn_store_probe(world.store, "server", true, from, &err));
    EXPECT(strstr(from, "profile.json"));
    EXPECT(cairn_store_keeps_versions(world.store));
}
