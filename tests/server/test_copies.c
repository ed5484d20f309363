/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of versions in further stores: made, shown, removed, deleted with their versions, and what
 * a server that is killed in the middle leaves. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/documents/committed.h"
#include "common/hooks.h"
#include "server/copies/copies.h"
#include "server/ledger/copies.h"
#include "store/open.h"
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

static const char *slow_here(char ret[400]) {
    snprintf(ret, 400, "--stores=slow=%s/slow", cairn_test_folder());
    return ret;
}

static enum cairn_code slow_open(struct cairn_slow *ret, struct cairn_error *why) {
    char path[400];
    snprintf(path, sizeof(path), "%s/slow", cairn_test_folder());
    struct cairn_store_options options = {.url = path, .read_only = true};
    CAIRN_TRY(cairn_store_open(&options, &ret->store, why));
    return cairn_store_worker_new(ret->store, &ret->worker, why);
}

static struct cairn_version_place place_of(const struct cairn_hand_save *save) {
    return (struct cairn_version_place){{"llm", "seven"}, save->step, save->id};
}

static uint64_t count_objects(struct cairn_store_worker *worker,
                              const struct cairn_hand_save *save) {
    struct cairn_version_place place = place_of(save);
    struct cairn_key prefix;
    cairn_key_version_prefix(&place, &prefix);
    CAIRN_AUTO(store_listing) listing = {0};
    struct cairn_store_request list = {
        .op = CAIRN_STORE_LIST, .key = prefix.text, .listing = &listing};
    return cairn_store_perform(worker, &list, NULL) ? 999 : listing.count;
}

static bool has_record(struct cairn_store_worker *worker, const struct cairn_hand_save *save) {
    struct cairn_version_place place = place_of(save);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    return !cairn_store_perform(worker, &head, NULL);
}

/* By this store alone: documents proven, every shard there, nothing beside them, and its bytes. */
static bool is_whole(struct cairn_store_worker *worker, const struct cairn_hand_save *save) {
    CAIRN_AUTO(committed) committed = {.place = place_of(save)};
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
    char path[300];
    snprintf(path, sizeof(path), "%s/%s", save->path, verb);
    return cairn_world_call(world, "POST", path, json_pack("{s:s}", word, store), NULL);
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
    if (cairn_world_call(world, "GET", save->path, NULL, &version)) return;
    json_array_foreach(json_object_get(version, "copies"), index, copy) {
        if (strcmp(cairn_world_text(copy, "store"), store) != 0) continue;
        snprintf(ret, 16, "%s", cairn_world_text(copy, "state"));
    }
}
#define EXPECT_STATE(save, store, wanted)                                                          \
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

static void shard_path(const char *which, const struct cairn_hand_save *save, char ret[1500]) {
    struct cairn_version_place place = place_of(save);
    struct cairn_key key;
    cairn_key_shard(&place, CAIRN_VIEW("rank-00000/x"), &key);
    snprintf(ret, 1500, "%s/%s/%s", cairn_test_folder(), which, key.text);
}

/* A file of the same size under the same name, that no copy has made. */
static bool replace(const char *which, const struct cairn_hand_save *save) {
    char path[1500];
    shard_path(which, save, path);
    if (unlink(path)) return false;
    FILE *file = fopen(path, "wb");
    bool done = file && !fseek(file, SIZE - 1, SEEK_SET) && fputc('x', file) != EOF;
    return file && !fclose(file) && done;
}

/* One byte of a shard in FOLDER/<which> becomes another one. */
static bool flip(const char *which, const struct cairn_hand_save *save, long offset) {
    char path[1500];
    shard_path(which, save, path);
    FILE *file = fopen(path, "r+b");
    if (!file) return false;
    bool done = !fseek(file, offset, SEEK_SET);
    int byte = done ? fgetc(file) : EOF;
    done &= byte != EOF && !fseek(file, offset, SEEK_SET) && fputc(byte ^ 1, file) != EOF;
    return !fclose(file) && done;
}

static bool start_inside(struct cairn_world *world, struct cairn_hand *hand,
                         struct cairn_hand_save *save) {
    char slow[400];
    return cairn_world_start_inside(world, WORLD_ARGS(slow_here(slow), "--trash-grace=1h")) &&
           !cairn_hand_open(world, hand, "j1", 0, "latest", 1) &&
           !cairn_hand_save_all(hand, 1, 1, "error", SIZE, save);
}

#define err world.err /* of the macros */

TEST(a_promoted_version_is_whole_in_the_other_store_alone_with_its_id_and_its_keys) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(slow_open(&slow, &err));
    EXPECT_STATE(&save, "main", "whole");
    EXPECT_STATE(&save, "slow", "");
    REQUIRE_OK(promote(&world, &save, "slow"));
    EXPECT_STATE(&save, "slow", "making");
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    cairn_inside_round(&world.inside);
    EXPECT_STATE(&save, "slow", "whole");
    EXPECT(is_whole(slow.worker, &save));
    EXPECT(is_whole(world.worker, &save));
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM events WHERE event = 'copy.made'"
                                            " AND reason = 'slow'"),
                  1);
    REQUIRE_OK(promote(&world, &save, "slow")); /* it is there: nothing is done */
    cairn_inside_round(&world.inside);
    EXPECT_STATE(&save, "slow", "whole");
    EXPECT_CODE(promote(&world, &save, "nowhere"), CAIRN_INVALID);
}

TEST(damage_in_the_original_does_not_get_into_a_copy) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(slow_open(&slow, &err));
    REQUIRE(flip("store", &save, 2 * (long)CAIRN_MIB + 5));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    EXPECT_STATE(&save, "slow", "making");
    EXPECT(!has_record(slow.worker, &save));
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    REQUIRE(flip("store", &save, 2 * (long)CAIRN_MIB + 5)); /* mended */
    cairn_inside_round(&world.inside);
    EXPECT_STATE(&save, "slow", "making"); /* a pause after the failure */
    cairn_inside_pass(&world.inside, 20000);
    EXPECT_STATE(&save, "slow", "whole");
    EXPECT(is_whole(slow.worker, &save));
}

TEST(what_an_earlier_try_has_copied_is_known_and_not_sent_again) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(slow_open(&slow, &err));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    /* As after a death before the record. */
    char path[1500];
    struct cairn_version_place place = place_of(&save);
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    snprintf(path, sizeof(path), "%s/slow/%s", cairn_test_folder(), key.text);
    REQUIRE(!unlink(path));
    REQUIRE(cairn_world_sql(&world, "UPDATE copies SET phase = 0"));
    struct cairn_srv_promote again = {.server = &world.inside.server,
                                      .worker = world.worker,
                                      .version = save.id.text,
                                      .store = "slow"};
    REQUIRE_OK(cairn_srv_promote_run(&again, &err));
    EXPECT_EQ_U64(again.copied_bytes, 0);
    EXPECT(is_whole(slow.worker, &save));
    /* An object of somebody else's under our key is not ours, and stays. */
    REQUIRE(replace("slow", &save));
    REQUIRE(!unlink(path));
    REQUIRE(cairn_world_sql(&world, "UPDATE copies SET phase = 0"));
    EXPECT_CODE(cairn_srv_promote_run(&again, &err), CAIRN_CONFLICT);
    EXPECT(!has_record(slow.worker, &save));
}

TEST(a_copy_is_removed_record_first_and_the_last_one_never) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, next;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &next));
    REQUIRE_OK(slow_open(&slow, &err));
    EXPECT_CODE(demote(&world, &save, "main"), CAIRN_IN_USE); /* there is no other */
    EXPECT_CODE(demote(&world, &save, "slow"), CAIRN_NOT_FOUND);
    REQUIRE_OK(promote(&world, &save, "slow"));
    EXPECT_CODE(demote(&world, &save, "main"), CAIRN_IN_USE); /* the other is not whole yet */
    cairn_inside_round(&world.inside);
    REQUIRE_OK(demote(&world, &save, "main"));
    EXPECT_STATE(&save, "main", "removing");
    EXPECT_CODE(demote(&world, &save, "slow"), CAIRN_IN_USE);
    cairn_inside_round(&world.inside);
    EXPECT_STATE(&save, "main", "");
    EXPECT_EQ_U64(count_objects(world.worker, &save), 0);
    EXPECT(is_whole(slow.worker, &save));
    EXPECT_CODE(demote(&world, &save, "slow"), CAIRN_IN_USE);
    REQUIRE_OK(promote(&world, &save, "main")); /* and back */
    cairn_inside_round(&world.inside);
    EXPECT_STATE(&save, "main", "whole");
    EXPECT(is_whole(world.worker, &save));
    REQUIRE_OK(demote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    EXPECT_STATE(&save, "slow", "");
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    EXPECT_EQ_U64(
        cairn_world_count(&world, "SELECT count(*) FROM events WHERE event = 'copy.removed'"), 2);
}

TEST(a_reconcile_misses_nothing_in_the_main_store_that_was_removed_there_on_purpose) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, next;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &next));
    REQUIRE_OK(slow_open(&slow, &err));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    REQUIRE_OK(demote(&world, &save, "main"));
    cairn_inside_round(&world.inside);
    REQUIRE(cairn_inside_restart(&world.inside) == CAIRN_OK); /* the run is compared again */
    REQUIRE_OK(cairn_world_call(&world, "POST", WORLD_RUN "/reconcile", NULL, NULL));
    cairn_inside_pass(&world.inside, 3 * UINT64_C(3600000));
    EXPECT_STATE(&save, "slow", "whole");
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM versions WHERE trashed_tick IS "
                                            "NOT NULL OR state <> 1"),
                  0);
    EXPECT(is_whole(slow.worker, &save));
}

TEST(a_copy_stays_while_the_version_is_read_or_the_other_one_is_not_found_whole) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, next;
    char path[1500], moved[1600], lease[300];
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &next));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    shard_path("slow", &save, path);
    snprintf(moved, sizeof(moved), "%s.away", path);
    REQUIRE(!rename(path, moved));
    EXPECT_CODE(demote(&world, &save, "main"), CAIRN_IN_USE);
    EXPECT(strstr(err.message, "no other copy"));
    REQUIRE(!rename(moved, path));
    snprintf(lease, sizeof(lease), "%s/leases", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", lease, json_pack("{s:s}", "job", "reader"), NULL));
    EXPECT_CODE(demote(&world, &save, "main"), CAIRN_IN_USE);
    EXPECT(strstr(err.message, "is being read"));
    EXPECT_STATE(&save, "main", "whole");
}

TEST(the_deletion_of_a_version_deletes_all_its_copies_before_it_is_gone) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, next;
    char record[400], moved[420];
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &next));
    REQUIRE_OK(slow_open(&slow, &err));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    REQUIRE_OK(cairn_world_call(&world, "DELETE", save.path, NULL, NULL));
    EXPECT_CODE(promote(&world, &save, "slow"), CAIRN_NOT_COMMITTED); /* it is in the trash */
    snprintf(record, sizeof(record), "%s/slow/.cairn/store.json", cairn_test_folder());
    snprintf(moved, sizeof(moved), "%s.away", record);
    REQUIRE(!rename(record, moved)); /* as where the store is not mounted */
    cairn_inside_pass(&world.inside, 2 * UINT64_C(3600000));
    EXPECT(is_whole(slow.worker, &save));
    EXPECT(is_whole(world.worker, &save));
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM versions WHERE state = 4"), 0);
    REQUIRE(!rename(moved, record));
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM versions WHERE state = 4"), 1);
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    EXPECT_EQ_U64(count_objects(world.worker, &save), 0);
    EXPECT(is_whole(world.worker, &next));
}

/* Rounds until nothing changes any more: what a copy allows is done in the next one. */
static void settle(struct cairn_world *world) {
    for (int i = 0; i < 6; i++) cairn_inside_round(&world->inside);
}

TEST(a_policy_keeps_the_newest_in_main_and_every_second_step_in_the_slow_store) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, saves[6];
    REQUIRE(start_inside(&world, &hand, &save));
    json_t *policy = json_pack("{s:{}, s:[{s:s, s:i}, {s:s, s:i}]}", "keep", "copies", "store",
                               "slow", "every_steps", 20, "store", "main", "last", 2);
    REQUIRE_OK(cairn_world_call(&world, "PUT", WORLD_RUN "/retention", policy, NULL));
    for (uint64_t i = 0; i < 6; i++) {
        REQUIRE_OK(cairn_hand_save_all(&hand, 10 * (i + 1), 1, "error", 100, &saves[i]));
        settle(&world);
    }
    static const struct {
        const char *main, *slow;
    } wanted[] = {{"whole", ""}, {"", "whole"}, {"whole", ""}, /* 10 and 30 have no other copy */
                  {"", "whole"}, {"whole", ""}, {"whole", "whole"}};
    for (size_t i = 0; i < 6; i++) {
        EXPECT_STATE(&saves[i], "main", wanted[i].main);
        EXPECT_STATE(&saves[i], "slow", wanted[i].slow);
    }
    uint64_t events = cairn_world_count(&world, "SELECT count(*) FROM events");
    settle(&world); /* carried out again it changes nothing */
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM events"), events);
}

TEST(what_was_copied_by_hand_is_not_removed_by_a_policy_and_what_it_copied_is) {
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save, second, third;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(promote(&world, &save, "slow")); /* step 1 */
    settle(&world);
    json_t *policy =
        json_pack("{s:{}, s:[{s:s, s:i}]}", "keep", "copies", "store", "slow", "last", 1);
    REQUIRE_OK(cairn_world_call(&world, "PUT", WORLD_RUN "/retention", policy, NULL));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 100, &second));
    settle(&world);
    EXPECT_STATE(&second, "slow", "whole");
    REQUIRE_OK(cairn_hand_save_all(&hand, 3, 1, "error", 100, &third));
    settle(&world);
    EXPECT_STATE(&third, "slow", "whole");
    EXPECT_STATE(&second, "slow", "");
    EXPECT_STATE(&save, "slow", "whole");
}

static bool died(struct cairn_world *world) {
    return cairn_daemon_ended(&world->server, 20000) && WIFSIGNALED(world->server.status) &&
           WTERMSIG(world->server.status) == SIGKILL;
}

/* With step 3 of two ranks. */
static bool start_to_die(struct cairn_world *world, const char *point, struct cairn_hand *hand,
                         struct cairn_hand_save *save) {
    char slow[400], variable[128];
    snprintf(variable, sizeof(variable), "CAIRN_CRASH_AT=%s", point);
    return cairn_world_start(world, WORLD_ARGS(slow_here(slow), "--sweep-interval=50ms"),
                             WORLD_ARGS(variable)) &&
           cairn_hand_open(world, hand, "j1", 0, "latest", 2) == CAIRN_OK &&
           cairn_hand_save_all(hand, 3, 1, "error", SIZE, save) == CAIRN_OK;
}

static bool start_again(struct cairn_world *world) {
    char slow[400];
    return cairn_world_restart(world, WORLD_ARGS(slow_here(slow), "--sweep-interval=50ms"), NULL);
}

TEST(a_server_killed_at_any_point_of_a_promotion_leaves_no_copy_that_reads_as_whole_and_is_not) {
    static const struct {
        const char *name;
        bool record;
    } points[] = {{"server.promote.after_part", false},
                  {"server.promote.after_shard", false},
                  {"server.promote.after_checksums", false},
                  {"server.promote.after_manifest", false},
                  {"server.promote.after_record", true}};
    for (size_t i = 0; i < CAIRN_COUNT(points); i++) {
        printf("    %s\n", points[i].name);
        CAIRN_AUTO(world) world = {0};
        CAIRN_AUTO(slow) slow = {0};
        struct cairn_hand hand;
        struct cairn_hand_save save;
        REQUIRE(start_to_die(&world, points[i].name, &hand, &save));
        REQUIRE_OK(slow_open(&slow, &err));
        (void)!promote(&world, &save, "slow");
        REQUIRE(died(&world));
        EXPECT(has_record(slow.worker, &save) == points[i].record);
        EXPECT(!points[i].record || is_whole(slow.worker, &save));
        REQUIRE(start_again(&world)); /* it goes on by itself */
        EXPECT(becomes(&world, &save, "slow", "whole"));
        EXPECT(is_whole(slow.worker, &save));
        REQUIRE(cairn_world_end(&world));
    }
}

TEST(a_server_killed_while_it_removes_a_copy_removes_the_rest_after_its_restart) {
    static const char *const points[] = {"server.demote.after_record", "server.demote.before_gone"};
    for (size_t i = 0; i < CAIRN_COUNT(points); i++) {
        printf("    %s\n", points[i]);
        CAIRN_AUTO(world) world = {0};
        CAIRN_AUTO(slow) slow = {0};
        struct cairn_hand hand;
        struct cairn_hand_save save, next;
        REQUIRE(start_to_die(&world, points[i], &hand, &save));
        REQUIRE_OK(cairn_hand_save_all(&hand, 4, 1, "error", 10, &next));
        REQUIRE_OK(slow_open(&slow, &err));
        REQUIRE_OK(promote(&world, &save, "slow"));
        REQUIRE(becomes(&world, &save, "slow", "whole"));
        (void)!demote(&world, &save, "main");
        REQUIRE(died(&world));
        EXPECT(!has_record(world.worker, &save));
        EXPECT(is_whole(slow.worker, &save));
        REQUIRE(start_again(&world));
        EXPECT(becomes(&world, &save, "main", ""));
        EXPECT_EQ_U64(count_objects(world.worker, &save), 0);
        EXPECT(is_whole(slow.worker, &save));
        REQUIRE(cairn_world_end(&world));
    }
}

TEST(a_promotion_that_is_cancelled_leaves_nothing_and_is_not_begun_again) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    CAIRN_AUTO_JSON json_t *begun = NULL, *over = NULL;
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char here[400], path[300];
    REQUIRE(cairn_world_start(
        &world, WORLD_ARGS(slow_here(here), "--sweep-interval=50ms", "--operations-at-once=1"),
        WORLD_ARGS("CAIRN_CRASH_AT=server.promote.after_part:delay=1500")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 3));
    REQUIRE_OK(cairn_hand_save_all(&hand, 3, 1, "error", SIZE, &save));
    REQUIRE_OK(slow_open(&slow, &err));
    snprintf(path, sizeof(path), "%s/promote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), &begun));
    snprintf(path, sizeof(path), "/v1/operations/%s", cairn_world_text(begun, "id"));
    REQUIRE_AWAIT(count_objects(slow.worker, &save) > 0);
    REQUIRE_OK(cairn_world_call(&world, "DELETE", path, NULL, NULL));
    snprintf(path, sizeof(path), "/v1/operations/%s?wait=30s", cairn_world_text(begun, "id"));
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &over));
    EXPECT_EQ_TEXT(cairn_world_text(over, "state"), "cancelled");
    EXPECT(becomes(&world, &save, "slow", ""));
    EXPECT_EQ_U64(count_objects(slow.worker, &save), 0);
    EXPECT(is_whole(world.worker, &save));
}

TEST(a_promotion_is_an_operation_with_progress_that_can_be_waited_for) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO_JSON json_t *begun = NULL, *over = NULL;
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char slow[400], path[300];
    REQUIRE(cairn_world_start(&world, WORLD_ARGS(slow_here(slow)), NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 3, 1, "error", SIZE, &save));
    snprintf(path, sizeof(path), "%s/promote", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, json_pack("{s:s}", "to", "slow"), &begun));
    EXPECT_EQ_TEXT(cairn_world_text(begun, "kind"), "promote");
    snprintf(path, sizeof(path), "/v1/operations/%s?wait=30s", cairn_world_text(begun, "id"));
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &over));
    EXPECT_EQ_TEXT(cairn_world_text(over, "state"), "done");
    const json_t *result = json_object_get(over, "result");
    EXPECT_EQ_U64(cairn_world_number(result, "copied_bytes"), SIZE);
    const json_t *progress = json_object_get(over, "progress"); /* of what is done all is done */
    EXPECT(cairn_world_number(progress, "total") >= SIZE);
    EXPECT_EQ_U64(cairn_world_number(progress, "done"), cairn_world_number(progress, "total"));
    EXPECT_STATE(&save, "slow", "whole");
}

static enum cairn_code verify(struct cairn_world *world, const struct cairn_hand_save *save,
                              const char *how, json_t **ret) {
    char path[300];
    snprintf(path, sizeof(path), "%s/verify", save->path);
    return cairn_world_call(world, "POST", path, how ? json_pack("{s:b}", how, 1) : NULL, ret);
}

static uint64_t number_of_copy(const json_t *answer, size_t copy, const char *field) {
    return cairn_world_number(json_array_get(json_object_get(answer, "copies"), copy), field);
}

static ino_t inode_in(const char *which, const struct cairn_hand_save *save) {
    char path[1500];
    struct stat st = {0};
    shard_path(which, save, path);
    return stat(path, &st) ? 0 : st.st_ino;
}

TEST(a_repair_mends_two_copies_from_each_other_and_touches_nothing_that_is_right) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *look = NULL, *read = NULL, *repair = NULL, *again = NULL;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(slow_open(&slow, &err));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    REQUIRE(flip("store", &save, 5));
    REQUIRE(flip("slow", &save, 2 * (long)CAIRN_MIB + 5));
    REQUIRE_OK(verify(&world, &save, NULL, &look));
    EXPECT_EQ_U64(json_array_size(json_object_get(look, "copies")), 2);
    ino_t before = inode_in("slow", &save);
    REQUIRE_OK(verify(&world, &save, "read", &read)); /* it looks, and changes nothing */
    EXPECT(!json_is_true(json_object_get(read, "ok")));
    EXPECT_EQ_U64(number_of_copy(read, 0, "damaged"), 1);
    EXPECT_EQ_U64(number_of_copy(read, 1, "damaged"), 1);
    EXPECT(inode_in("slow", &save) == before);
    REQUIRE_OK(verify(&world, &save, "repair", &repair));
    EXPECT(json_is_true(json_object_get(repair, "ok")));
    EXPECT_EQ_U64(cairn_world_number(repair, "mended"), 2);
    EXPECT(inode_in("slow", &save) != before);
    EXPECT(is_whole(slow.worker, &save));
    EXPECT(is_whole(world.worker, &save));
    EXPECT_EQ_U64(
        cairn_world_count(&world, "SELECT count(*) FROM events WHERE event = 'copy.mended'"), 2);
    before = inode_in("slow", &save);
    REQUIRE_OK(verify(&world, &save, "repair", &again));
    EXPECT_EQ_U64(cairn_world_number(again, "mended"), 0);
    EXPECT(inode_in("slow", &save) == before);
}

TEST(a_repair_writes_nothing_where_no_copy_is_right_and_names_the_bytes_that_are_lost) {
    CAIRN_AUTO(world) world = {0};
    CAIRN_AUTO(slow) slow = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *repair = NULL;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(slow_open(&slow, &err));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    REQUIRE(flip("store", &save, (long)CAIRN_MIB + 5) && flip("store", &save, 7));
    REQUIRE(flip("slow", &save, (long)CAIRN_MIB + 9));
    REQUIRE(flip("store", &save, 3 * (long)CAIRN_MIB) && flip("slow", &save, SIZE - 1));
    ino_t before = inode_in("store", &save);
    REQUIRE_OK(verify(&world, &save, "repair", &repair));
    EXPECT(!json_is_true(json_object_get(repair, "ok")));
    EXPECT_EQ_U64(cairn_world_number(repair, "damaged"), 2);
    const json_t *first = json_array_get(json_object_get(repair, "findings"), 0);
    EXPECT(strstr(cairn_world_text(first, "detail"), "lost: 1048576-2097151, 3145728-3145744, "));
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
        middle->done = cairn_world_sql(middle->world, "DELETE FROM leases WHERE job LIKE 'copy/%'");
    return true;
}

#ifdef CAIRN_CRASHPOINTS
TEST(an_object_that_was_mended_is_read_again_before_it_is_called_right) /* copies/verify.c, 7 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *found = NULL;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    REQUIRE(flip("store", &save, 5));
    struct middle middle = {.save = &save, .before = inode_in("store", &save)};
    const struct cairn_srv_verify verify = {.server = &world.inside.server,
                                            .worker = world.worker,
                                            .version = save.id.text,
                                            .reads = true,
                                            .repairs = true};
    pthread_t thread;
    cairn_crashpoint_arm("server.repair.after_shard:delay=2000");
    REQUIRE(!pthread_create(&thread, NULL, flip_what_was_mended, &middle));
    enum cairn_code code = cairn_srv_verify_run(&verify, &found, &err);
    middle.over = true;
    pthread_join(thread, NULL);
    cairn_crashpoint_arm("");
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT(middle.done);
    EXPECT(json_is_false(json_object_get(found, "ok")));
    EXPECT_EQ_U64(cairn_world_number(found, "mended"), 0);
}
#endif

TEST(a_server_that_another_one_has_taken_a_repair_from_writes_no_object) /* O03 */
{
    if (!cairn_postgres_wanted()) SKIP("a catalog of SQLite has one server");
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    CAIRN_AUTO_JSON json_t *found = NULL;
    REQUIRE(start_inside(&world, &hand, &save));
    REQUIRE_OK(promote(&world, &save, "slow"));
    cairn_inside_round(&world.inside);
    REQUIRE(flip("slow", &save, 5)); /* the lease goes while the copy in main is read */
    ino_t before = inode_in("slow", &save);
    struct middle middle = {.world = &world};
    const struct cairn_srv_verify verify = {.server = &world.inside.server,
                                            .worker = world.worker,
                                            .version = save.id.text,
                                            .reads = true,
                                            .repairs = true,
                                            .tell = take_the_lease,
                                            .owner = &middle};
    (void)!cairn_srv_verify_run(&verify, &found, &err);
    EXPECT(middle.done);
    EXPECT(inode_in("slow", &save) == before);
}
