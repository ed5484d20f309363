/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of versions in further stores: made, shown, removed, deleted with their versions, and what
 * a server that is killed in the middle leaves. */
#include "api/documents/committed.h"
#include "common/hooks.h"
#include "store/range.h"
#include "store/whole.h"
#include "tests/server/world.h"

#define SIZE (3 * CAIRN_MIB + 17) /* four blocks */

/* FOLDER/slow, opened as a reader of that store alone would. */
struct cairn_slow {
    struct cairn_store *store;
    struct cairn_store_worker *worker;
};
static void cairn_slow_release(struct cairn_slow *slow) {
    cairn_store_worker_free(slow->worker);
    if (slow->store) cairn_store_free(slow->store);
}

static enum cairn_code slow_open(struct cairn_slow *ret, struct cairn_error *why) {
    struct cairn_store_options options = {.url = TEXT("%s/slow", cairn_test_folder()),
                                          .read_only = true};
    CAIRN_TRY(cairn_store_open(&options, &ret->store, why));
    return cairn_store_worker_new(ret->store, &ret->worker, why);
}

static uint64_t count_objects(struct cairn_store_worker *worker,
                              const struct cairn_hand_save *save) {
    KEY(prefix, version_prefix, save);
    return cairn_listed(worker, CAIRN_STORE_LIST, prefix.text);
}

static bool has_record(struct cairn_store_worker *worker, const struct cairn_hand_save *save) {
    KEY(key, committed, save);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    return !cairn_store_perform(worker, &head, NULL);
}

/* By this store alone: documents proven, every shard there, nothing beside them, and its bytes. */
static bool is_whole(struct cairn_store_worker *worker, const struct cairn_hand_save *save) {
    CAIRN_AUTO(committed) committed = {.place = hand_place(save)};
    struct cairn_store_audit audit = {.committed = &committed, .ask_each = true};
    if (cairn_store_audit_look(&audit, worker, NULL)) return false;
    if (audit.damaged || audit.strays || !committed.has_record) return false;
    for (size_t i = 0; i < committed.manifest.shard_count; i++) {
        const struct cairn_manifest_shard *shard = &committed.manifest.shards[i];
        struct cairn_key key;
        CAIRN_AUTO(buf) bytes = {.limit = 64 * CAIRN_MIB};
        cairn_key_shard(&committed.place, cairn_view_of(shard->name), &key);
        if (cairn_store_get_small(worker, key.text, &bytes, NULL)) return false;
        const char *checksums = committed.checksums.data + 4 * shard->first_block;
        if (cairn_store_blocks_check(checksums, 0, cairn_buf_view(&bytes), NULL)) return false;
    }
    return true;
}

static enum cairn_code ask(struct cairn_world *world, const struct cairn_hand_save *save,
                           const char *verb, const char *word, const char *store) {
    const char *path = TEXT("%s/%s", save->path, verb);
    return world_call(world, "POST", path, json_pack("{s:s}", word, store), NULL);
}
static enum cairn_code promote(struct cairn_world *world, const struct cairn_hand_save *save,
                               const char *store) {
    return ask(world, save, "promote", "to", store);
}
static enum cairn_code demote(struct cairn_world *world, const struct cairn_hand_save *save,
                              const char *store) {
    return ask(world, save, "demote", "from", store);
}

/* What GET says of a store: "whole", ...; "" where the version is not there. */
static void state_in(struct cairn_world *world, const struct cairn_hand_save *save,
                     const char *store, char ret[16]) {
    CAIRN_AUTO_JSON json_t *version = NULL;
    size_t index = 0;
    json_t *copy = NULL;
    ret[0] = '\0';
    if (world_call(world, "GET", save->path, NULL, &version)) return;
    json_array_foreach(json_object_get(version, "copies"), index, copy) {
        if (strcmp(world_text(copy, "store"), store) != 0) continue;
        snprintf(ret, 16, "%s", world_text(copy, "state"));
    }
}
#define EXPECT_COPY(save, store, wanted)                                                           \
    do {                                                                                           \
        char state[16];                                                                            \
        state_in(&world, save, store, state);                                                      \
        EXPECT_EQ_TEXT(state, wanted);                                                             \
    } while (0)

static bool becomes(struct cairn_world *world, const struct cairn_hand_save *save,
                    const char *store, const char *wanted) {
    char state[16];
    if (COMES((state_in(world, save, store, state), !strcmp(state, wanted)))) return true;
    fprintf(stderr, "in %s it is \"%s\", not \"%s\"\n", store, state, wanted);
    return false;
}

static const char *shard_in(const char *which, const struct cairn_hand_save *save) {
    SHARD_KEY(key, save, "rank-00000/x");
    return TEXT("%s/%s/%s", cairn_test_folder(), which, key.text);
}

/* A file of the same size under the same name, that no copy has made. */
static bool replace(const char *path) {
    if (unlink(path)) return false;
    FILE *file = fopen(path, "wb");
    bool done = file && !fseek(file, SIZE - 1, SEEK_SET) && fputc('x', file) != EOF;
    return file && !fclose(file) && done;
}

/* One byte of a shard in FOLDER/<which> becomes another one. */
static bool flip(const char *which, const struct cairn_hand_save *save, long offset) {
    return cairn_flip_byte(shard_in(which, save), offset);
}

static bool start_inside(struct cairn_world *world, struct cairn_hand *hand,
                         struct cairn_hand_save *save) {
    return world_start_inside(world, WORLD_ARGS(SLOW_STORE, "--trash-grace=1h")) &&
           !hand_open(world, hand, "j1", 0, "latest", 1) &&
           !hand_save_all(hand, 1, 1, "error", SIZE, save);
}

/* A server inside the test with the store `slow` beside it, and step 1 whole in the main store. */
#define STORY()                                                                                    \
    CAIRN_AUTO(world) world = {0};                                                                 \
    struct cairn_hand hand;                                                                        \
    struct cairn_hand_save save;                                                                   \
    REQUIRE(start_inside(&world, &hand, &save));                                                   \
    WITH_OK(slow, slow, slow_open(&slow, &err))
/* And whole in the slow one. */
#define PROMOTED()                                                                                 \
    REQUIRE_OK(promote(&world, &save, "slow"));                                                    \
    inside_round(&world.inside)

#define err world.err /* of the macros */

TEST(a_promoted_version_is_whole_in_the_other_store_alone_with_its_id_and_its_keys) {
    STORY();
    EXPECT_COPY(&save, "main", "whole");
    EXPECT_COPY(&save, "slow", "");
    REQUIRE_OK(promote(&world, &save, "slow"));
    EXPECT_COPY(&save, "slow", "making");
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    inside_round(&world.inside);
    EXPECT_COPY(&save, "slow", "whole");
    EXPECT(is_whole(slow.worker, &save));
    EXPECT(is_whole(world.worker, &save));
    EXPECT_ROWS(1, "events WHERE event = 'copy.made' AND reason = 'slow'");
    REQUIRE_OK(promote(&world, &save, "slow")); /* it is there: nothing is done */
    inside_round(&world.inside);
    EXPECT_COPY(&save, "slow", "whole");
    EXPECT_CODE(promote(&world, &save, "nowhere"), CAIRN_INVALID);
}

TEST(damage_in_the_original_does_not_get_into_a_copy) {
    STORY();
    REQUIRE(flip("store", &save, 2 * (long)CAIRN_MIB + 5));
    PROMOTED();
    EXPECT_COPY(&save, "slow", "making");
    EXPECT(!has_record(slow.worker, &save));
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    REQUIRE(flip("store", &save, 2 * (long)CAIRN_MIB + 5)); /* mended */
    inside_round(&world.inside);
    EXPECT_COPY(&save, "slow", "making"); /* a pause after the failure */
    inside_pass(&world.inside, 20000);
    EXPECT_COPY(&save, "slow", "whole");
    EXPECT(is_whole(slow.worker, &save));
}

TEST(what_an_earlier_try_has_copied_is_known_and_not_sent_again) {
    STORY();
    PROMOTED();
    /* As after a death before the record. */
    KEY(key, committed, &save);
    const char *path = TEXT("%s/slow/%s", cairn_test_folder(), key.text);
    REQUIRE(!unlink(path));
    REQUIRE(world_sql(&world, "UPDATE copies SET phase = 0"));
    struct srv_promote again = {.server = &world.inside.server,
                                .worker = world.worker,
                                .version = save.id.text,
                                .store = "slow"};
    REQUIRE_OK(srv_promote_run(&again, &err));
    EXPECT_EQ_U64(again.copied_bytes, 0);
    EXPECT(is_whole(slow.worker, &save));
    /* An object of somebody else's under our key is not ours, and stays. */
    REQUIRE(replace(shard_in("slow", &save)));
    REQUIRE(!unlink(path));
    REQUIRE(world_sql(&world, "UPDATE copies SET phase = 0"));
    EXPECT_CODE(srv_promote_run(&again, &err), CAIRN_CONFLICT);
    EXPECT(!has_record(slow.worker, &save));
}

TEST(a_copy_is_removed_record_first_and_the_last_one_never) {
    STORY();
    SAVED(next, 2);
    EXPECT_CODE(demote(&world, &save, "main"), CAIRN_IN_USE); /* there is no other */
    EXPECT_CODE(demote(&world, &save, "slow"), CAIRN_NOT_FOUND);
    REQUIRE_OK(promote(&world, &save, "slow"));
    EXPECT_CODE(demote(&world, &save, "main"), CAIRN_IN_USE); /* the other is not whole yet */
    inside_round(&world.inside);
    REQUIRE_OK(demote(&world, &save, "main"));
    EXPECT_COPY(&save, "main", "removing");
    EXPECT_CODE(demote(&world, &save, "slow"), CAIRN_IN_USE);
    inside_round(&world.inside);
    EXPECT_COPY(&save, "main", "");
    EXPECT_EQ_U64(count_objects(world.worker, &save), 0);
    EXPECT(is_whole(slow.worker, &save));
    EXPECT_CODE(demote(&world, &save, "slow"), CAIRN_IN_USE);
    REQUIRE_OK(promote(&world, &save, "main")); /* and back */
    inside_round(&world.inside);
    EXPECT_COPY(&save, "main", "whole");
    EXPECT(is_whole(world.worker, &save));
    REQUIRE_OK(demote(&world, &save, "slow"));
    inside_round(&world.inside);
    EXPECT_COPY(&save, "slow", "");
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    EXPECT_ROWS(2, "events WHERE event = 'copy.removed'");
}

TEST(a_reconcile_misses_nothing_in_the_main_store_that_was_removed_there_on_purpose) {
    STORY();
    SAVED(next, 2);
    PROMOTED();
    REQUIRE_OK(demote(&world, &save, "main"));
    inside_round(&world.inside);
    REQUIRE(inside_restart(&world.inside) == CAIRN_OK); /* the run is compared again */
    ASK("POST", WORLD_RUN "/reconcile", NULL);
    inside_pass(&world.inside, 3 * UINT64_C(3600000));
    EXPECT_COPY(&save, "slow", "whole");
    EXPECT_ROWS(0, "versions WHERE trashed_tick IS NOT NULL OR state <> 1");
    EXPECT(is_whole(slow.worker, &save));
}

TEST(a_copy_stays_while_the_version_is_read_or_the_other_one_is_not_found_whole) {
    STORY();
    SAVED(next, 2);
    PROMOTED();
    const char *path = shard_in("slow", &save);
    const char *moved = TEXT("%s.away", path);
    REQUIRE(!rename(path, moved));
    EXPECT_FAILS(demote(&world, &save, "main"), CAIRN_IN_USE, "no other copy");
    REQUIRE(!rename(moved, path));
    ASK("POST", TEXT("%s/leases", save.path), json_pack("{s:s}", "job", "reader"));
    EXPECT_FAILS(demote(&world, &save, "main"), CAIRN_IN_USE, "is being read");
    EXPECT_COPY(&save, "main", "whole");
}

TEST(the_deletion_of_a_version_deletes_all_its_copies_before_it_is_gone) {
    STORY();
    SAVED(next, 2);
    PROMOTED();
    ASK("DELETE", save.path, NULL);
    EXPECT_CODE(promote(&world, &save, "slow"), CAIRN_NOT_COMMITTED); /* it is in the trash */
    const char *record = TEXT("%s/slow/.cairn/store.json", cairn_test_folder());
    const char *moved = TEXT("%s.away", record);
    REQUIRE(!rename(record, moved)); /* as where the store is not mounted */
    inside_pass(&world.inside, 2 * UINT64_C(3600000));
    EXPECT(is_whole(slow.worker, &save));
    EXPECT(is_whole(world.worker, &save));
    EXPECT_ROWS(0, "versions WHERE state = 4");
    REQUIRE(!rename(moved, record));
    inside_round(&world.inside);
    EXPECT_ROWS(1, "versions WHERE state = 4");
    EXPECT_ALL_U64(count_objects(slow.worker, &save), 0, count_objects(world.worker, &save), 0);
    EXPECT(is_whole(world.worker, &next));
}

/* Rounds until nothing changes any more: what a copy allows is done in the next one. */
static void settle(struct cairn_world *world) {
    for (int i = 0; i < 6; i++) inside_round(&world->inside);
}

TEST(a_policy_keeps_the_newest_in_main_and_every_second_step_in_the_slow_store) {
    struct cairn_hand_save saves[6];
    STORY();
    json_t *policy = json_pack("{s:{}, s:[{s:s, s:i}, {s:s, s:i}]}", "keep", "copies", "store",
                               "slow", "every_steps", 20, "store", "main", "last", 2);
    ASK("PUT", WORLD_RUN "/retention", policy);
    for (uint64_t i = 0; i < 6; i++) {
        REQUIRE_OK(hand_save_all(&hand, 10 * (i + 1), 1, "error", 100, &saves[i]));
        settle(&world);
    }
    static const struct {
        const char *main, *slow;
    } wanted[] = {{"whole", ""}, {"", "whole"}, {"whole", ""}, /* 10 and 30 have no other copy */
                  {"", "whole"}, {"whole", ""}, {"whole", "whole"}};
    for (size_t i = 0; i < 6; i++) {
        EXPECT_COPY(&saves[i], "main", wanted[i].main);
        EXPECT_COPY(&saves[i], "slow", wanted[i].slow);
    }
    uint64_t events = world_count(&world, "SELECT count(*) FROM events");
    settle(&world); /* carried out again it changes nothing */
    EXPECT_ROWS(events, "events");
}

TEST(what_was_copied_by_hand_is_not_removed_by_a_policy_and_what_it_copied_is) {
    struct cairn_hand_save second, third;
    STORY();
    REQUIRE_OK(promote(&world, &save, "slow")); /* step 1 */
    settle(&world);
    json_t *policy =
        json_pack("{s:{}, s:[{s:s, s:i}]}", "keep", "copies", "store", "slow", "last", 1);
    ASK("PUT", WORLD_RUN "/retention", policy);
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 100, &second));
    settle(&world);
    EXPECT_COPY(&second, "slow", "whole");
    REQUIRE_OK(hand_save_all(&hand, 3, 1, "error", 100, &third));
    settle(&world);
    EXPECT_COPY(&third, "slow", "whole");
    EXPECT_COPY(&second, "slow", "");
    EXPECT_COPY(&save, "slow", "whole");
}

/* With step 3 of two ranks. */
static bool start_to_die(struct cairn_world *world, const char *point, struct cairn_hand *hand,
                         struct cairn_hand_save *save) {
    return world_start_to_die(world, WORLD_ARGS(SLOW_STORE, "--sweep-interval=50ms"), point) &&
           hand_open(world, hand, "j1", 0, "latest", 2) == CAIRN_OK &&
           hand_save_all(hand, 3, 1, "error", SIZE, save) == CAIRN_OK;
}

static bool start_again(struct cairn_world *world) {
    return world_restart(world, WORLD_ARGS(SLOW_STORE, "--sweep-interval=50ms"), NULL);
}

TEST(a_server_killed_at_any_point_of_a_promotion_leaves_no_copy_that_reads_as_whole_and_is_not) {
    EACH(one, FIELDS(const char *name; bool record), {"server.promote.after_part", false},
         {"server.promote.after_shard", false}, {"server.promote.after_checksums", false},
         {"server.promote.after_manifest", false}, {"server.promote.after_record", true}) {
        printf("    %s\n", one->name);
        struct cairn_hand hand;
        struct cairn_hand_save save;
        WITH(world, world, start_to_die(&world, one->name, &hand, &save));
        WITH_OK(slow, slow, slow_open(&slow, &err));
        (void)!promote(&world, &save, "slow");
        REQUIRE(world_died(&world));
        EXPECT(has_record(slow.worker, &save) == one->record);
        EXPECT(!one->record || is_whole(slow.worker, &save));
        REQUIRE(start_again(&world)); /* it goes on by itself */
        EXPECT(becomes(&world, &save, "slow", "whole"));
        EXPECT(is_whole(slow.worker, &save));
        REQUIRE(world_end(&world));
    }
}

TEST(a_server_killed_while_it_removes_a_copy_removes_the_rest_after_its_restart) {
    EACH_TEXT(text, "server.demote.after_record", "server.demote.before_gone") {
        printf("    %s\n", text);
        struct cairn_hand hand;
        struct cairn_hand_save save;
        WITH(world, world, start_to_die(&world, text, &hand, &save));
        WITH_OK(slow, slow, slow_open(&slow, &err));
        SAVED(next, 4);
        REQUIRE_OK(promote(&world, &save, "slow"));
        REQUIRE(becomes(&world, &save, "slow", "whole"));
        (void)!demote(&world, &save, "main");
        REQUIRE(world_died(&world));
        EXPECT(!has_record(world.worker, &save));
        EXPECT(is_whole(slow.worker, &save));
        REQUIRE(start_again(&world));
        EXPECT(becomes(&world, &save, "main", ""));
        EXPECT_EQ_U64(count_objects(world.worker, &save), 0);
        EXPECT(is_whole(slow.worker, &save));
        REQUIRE(world_end(&world));
    }
}

TEST(a_promotion_that_is_cancelled_leaves_nothing_and_is_not_begun_again) {
    struct cairn_hand_save save;
    WITH(world, world,
         world_start(&world,
                     WORLD_ARGS(SLOW_STORE, "--sweep-interval=50ms", "--operations-at-once=1"),
                     WORLD_ARGS("CAIRN_CRASH_AT=server.promote.after_part:delay=1500")));
    HAND(3);
    WITH_OK(slow, slow, slow_open(&slow, &err));
    REQUIRE_OK(hand_save_all(&hand, 3, 1, "error", SIZE, &save));
    ASKED(begun, "POST", TEXT("%s/promote", save.path), json_pack("{s:s}", "to", "slow"));
    const char *path = TEXT("/v1/operations/%s", world_text(begun, "id"));
    REQUIRE_AWAIT(count_objects(slow.worker, &save) > 0);
    ASK("DELETE", path, NULL);
    EXPECT_GET(TEXT("/v1/operations/%s?wait=30s", world_text(begun, "id")), "state", "cancelled");
    EXPECT(becomes(&world, &save, "slow", ""));
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    EXPECT(is_whole(world.worker, &save));
}

TEST(a_promotion_is_an_operation_with_progress_that_can_be_waited_for) {
    struct cairn_hand_save save;
    JOB(1, SLOW_STORE);
    REQUIRE_OK(hand_save_all(&hand, 3, 1, "error", SIZE, &save));
    ASKED(begun, "POST", TEXT("%s/promote", save.path), json_pack("{s:s}", "to", "slow"));
    EXPECT_EQ_TEXT(world_text(begun, "kind"), "promote");
    GOT(over, TEXT("/v1/operations/%s?wait=30s", world_text(begun, "id")));
    EXPECT_EQ_TEXT(world_text(over, "state"), "done");
    const json_t *result = json_object_get(over, "result");
    EXPECT_EQ_U64(world_number(result, "copied_bytes"), SIZE);
    const json_t *progress = json_object_get(over, "progress"); /* of what is done all is done */
    EXPECT(world_number(progress, "total") >= SIZE);
    EXPECT_EQ_U64(world_number(progress, "done"), world_number(progress, "total"));
    EXPECT_COPY(&save, "slow", "whole");
}

static enum cairn_code verify(struct cairn_world *world, const struct cairn_hand_save *save,
                              const char *how, json_t **ret) {
    const char *path = TEXT("%s/verify", save->path);
    return world_call(world, "POST", path, how ? json_pack("{s:b}", how, 1) : NULL, ret);
}

static uint64_t number_of_copy(const json_t *answer, size_t copy, const char *field) {
    return world_number(json_array_get(json_object_get(answer, "copies"), copy), field);
}

static ino_t inode_in(const char *which, const struct cairn_hand_save *save) {
    struct stat st = {0};
    return stat(shard_in(which, save), &st) ? 0 : st.st_ino;
}

TEST(a_repair_mends_two_copies_from_each_other_and_touches_nothing_that_is_right) {
    STORY();
    CAIRN_AUTO_JSON json_t *look = NULL, *read = NULL, *repair = NULL, *again = NULL;
    PROMOTED();
    REQUIRE(flip("store", &save, 5));
    REQUIRE(flip("slow", &save, 2 * (long)CAIRN_MIB + 5));
    REQUIRE_OK(verify(&world, &save, NULL, &look));
    EXPECT_EQ_U64(json_array_size(json_object_get(look, "copies")), 2);
    ino_t before = inode_in("slow", &save);
    REQUIRE_OK(verify(&world, &save, "read", &read)); /* it looks, and changes nothing */
    EXPECT(!json_is_true(json_object_get(read, "ok")));
    EXPECT_ALL_U64(number_of_copy(read, 0, "damaged"), 1, number_of_copy(read, 1, "damaged"), 1);
    EXPECT(inode_in("slow", &save) == before);
    REQUIRE_OK(verify(&world, &save, "repair", &repair));
    EXPECT_SHOWS(repair, "ok", "true", "mended", "2");
    EXPECT(inode_in("slow", &save) != before);
    EXPECT(is_whole(slow.worker, &save));
    EXPECT(is_whole(world.worker, &save));
    EXPECT_ROWS(2, "events WHERE event = 'copy.mended'");
    before = inode_in("slow", &save);
    REQUIRE_OK(verify(&world, &save, "repair", &again));
    EXPECT_EQ_U64(world_number(again, "mended"), 0);
    EXPECT(inode_in("slow", &save) == before);
}

TEST(a_repair_writes_nothing_where_no_copy_is_right_and_names_the_bytes_that_are_lost) {
    STORY();
    CAIRN_AUTO_JSON json_t *repair = NULL;
    PROMOTED();
    REQUIRE(flip("store", &save, (long)CAIRN_MIB + 5) && flip("store", &save, 7));
    REQUIRE(flip("slow", &save, (long)CAIRN_MIB + 9));
    REQUIRE(flip("store", &save, 3 * (long)CAIRN_MIB) && flip("slow", &save, SIZE - 1));
    ino_t before = inode_in("store", &save);
    REQUIRE_OK(verify(&world, &save, "repair", &repair));
    EXPECT(!json_is_true(json_object_get(repair, "ok")));
    EXPECT_EQ_U64(world_number(repair, "damaged"), 2);
    const json_t *first = json_array_get(json_object_get(repair, "findings"), 0);
    EXPECT(strstr(world_text(first, "detail"), "lost: 1048576-2097151, 3145728-3145744, "));
    EXPECT(inode_in("store", &save) == before);
    EXPECT_EQ_U64(count_objects(slow.worker, &save), count_objects(world.worker, &save));
}

/* What a test does in the middle of a repair. */
struct middle {
    struct cairn_world *world;
    const struct cairn_hand_save *save;
    ino_t before; /* of the object that is mended */
    _Atomic bool done, over;
};

#ifdef CAIRN_CRASHPOINTS
/* A thread of its own, while the repair stands behind the object that it has written. */
static void *flip_what_was_mended(void *argument) {
    struct middle *middle = argument;
    while (!middle->done && !middle->over) {
        ino_t now = inode_in("store", middle->save);
        if (now && now != middle->before) middle->done = flip("store", middle->save, SIZE - 1);
        cairn_test_pause_ms(1); /* step of a poll */
    }
    return NULL;
}
#endif

static bool take_the_lease(void *owner, uint64_t done, uint64_t total) {
    struct middle *middle = owner;
    (void)done, (void)total;
    if (!middle->done)
        middle->done = world_sql(middle->world, "DELETE FROM leases WHERE job LIKE 'copy/%'");
    return true;
}

#ifdef CAIRN_CRASHPOINTS
TEST(an_object_that_was_mended_is_read_again_before_it_is_called_right) { /* copies/verify.c, 7 */
    STORY();
    CAIRN_AUTO_JSON json_t *found = NULL;
    PROMOTED();
    REQUIRE(flip("store", &save, 5));
    struct middle middle = {.save = &save, .before = inode_in("store", &save)};
    const struct srv_verify verify = {.server = &world.inside.server,
                                      .worker = world.worker,
                                      .version = save.id.text,
                                      .reads = true,
                                      .repairs = true};
    pthread_t thread;
    cairn_crashpoint_arm("server.repair.after_shard:delay=2000");
    REQUIRE(!pthread_create(&thread, NULL, flip_what_was_mended, &middle));
    enum cairn_code code = srv_verify_run(&verify, &found, &err);
    middle.over = true;
    pthread_join(thread, NULL);
    cairn_crashpoint_arm("");
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT(middle.done);
    EXPECT_SHOWS(found, "ok", "false", "mended", "0");
}
#endif

TEST(a_server_that_another_one_has_taken_a_repair_from_writes_no_object) { /* O03 */
    if (!cairn_postgres_wanted()) SKIP("a catalog of SQLite has one server");
    STORY();
    CAIRN_AUTO_JSON json_t *found = NULL;
    PROMOTED();
    REQUIRE(flip("slow", &save, 5)); /* the lease goes while the copy in main is read */
    ino_t before = inode_in("slow", &save);
    struct middle middle = {.world = &world};
    const struct srv_verify verify = {.server = &world.inside.server,
                                      .worker = world.worker,
                                      .version = save.id.text,
                                      .reads = true,
                                      .repairs = true,
                                      .tell = take_the_lease,
                                      .owner = &middle};
    (void)!srv_verify_run(&verify, &found, &err);
    EXPECT(middle.done);
    EXPECT(inode_in("slow", &save) == before);
}
