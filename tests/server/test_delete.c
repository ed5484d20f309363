/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=again */
/* Trash, undelete, sweep, lists and waiting (Q25, Q26, Q29, Q30). */
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/server/world.h"
#include "tests/support/raw.h"

static size_t objects_under(struct cairn_world *world, const struct cairn_hand_save *save) {
    struct cairn_version_place place = {{"llm", "seven"}, save->step, save->id};
    struct cairn_key prefix;
    cairn_key_version_prefix(&place, &prefix);
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = {
        .op = CAIRN_STORE_LIST, .key = prefix.text, .listing = &listing};
    size_t count = cairn_store_perform(world->worker, &list, &world->err) ? 999 : listing.count;
    cairn_store_listing_release(&listing);
    return count;
}

/* Until the version's objects are gone, at most 5 s. */
static bool swept(struct cairn_world *world, const struct cairn_hand_save *save) {
    return AWAIT(!objects_under(world, save));
}

#define err world.err /* of the macros */

TEST(a_deleted_checkpoint_is_in_the_trash_until_the_grace_is_over) { /* P8, P12 */
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, WORLD_ARGS("--sweep-interval=50ms"), NULL));
    struct cairn_hand hand;
    struct cairn_hand_save one, two;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &one));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &two));
    CAIRN_AUTO_JSON json_t *trashed = NULL, *latest = NULL, *back = NULL;
    REQUIRE_OK(cairn_world_call(&world, "DELETE", WORLD_RUN "/checkpoints/2", NULL, &trashed));
    EXPECT(json_is_true(json_object_get(trashed, "trashed")));
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), one.id.text); /* V6 */
    EXPECT_EQ_U64(objects_under(&world, &two), 5);
    REQUIRE_OK(cairn_world_call(&world, "POST", WORLD_RUN "/checkpoints/2/undelete", NULL, &back));
    EXPECT(json_is_true(json_object_get(back, "latest")));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", two.path, NULL, NULL));
    REQUIRE(cairn_world_restart(&world, WORLD_ARGS("--sweep-interval=50ms", "--trash-grace=0ms"),
                                NULL));
    EXPECT(swept(&world, &two));
    EXPECT_EQ_U64(objects_under(&world, &one), 4);
    EXPECT_CODE(cairn_world_call(&world, "POST", two.path, NULL, NULL), CAIRN_METHOD);
    char path[256];
    snprintf(path, sizeof(path), "%s/undelete", two.path);
    EXPECT_CODE(cairn_world_call(&world, "POST", path, NULL, NULL), CAIRN_DELETED);
}

static int delete_latest(struct cairn_world *world, const char *header, const char *id) {
    char request[400];
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
    snprintf(request, sizeof(request),
             "DELETE " WORLD_RUN "/checkpoints/latest HTTP/1.1\r\nHost: localhost\r\n"
             "Connection: close\r\n%s%s%s\r\n",
             header, id, id[0] ? "\"\r\n" : "");
    return cairn_raw_exchange(world->server.port, request, strlen(request), &reply);
}

TEST(latest_is_deleted_only_by_who_says_which_version_that_is) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save one, two;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &one));
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &two));
    CAIRN_AUTO_JSON json_t *latest = NULL, *after = NULL;
    EXPECT(delete_latest(&world, "", "") == 400);
    EXPECT(delete_latest(&world, "If-Match: \"", one.id.text) == 412);
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &latest));
    EXPECT_EQ_TEXT(cairn_world_text(latest, "version"), two.id.text);
    EXPECT(delete_latest(&world, "If-Match: \"", two.id.text) == 202);
    EXPECT(delete_latest(&world, "If-Match: \"", two.id.text) ==
           412); /* requested twice, done once */
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &after));
    EXPECT_EQ_TEXT(cairn_world_text(after, "version"), one.id.text);
}

TEST(what_the_newest_attempt_resumed_from_stays_until_it_has_committed) /* Q29 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save one, two;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &one));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j2", 1, "latest", 1));
    EXPECT_CODE(cairn_world_call(&world, "DELETE", one.path, NULL, NULL), CAIRN_IN_USE);
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &two));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", one.path, NULL, NULL));
}

TEST(an_aborted_versions_objects_are_swept_at_once) { /* P8 */
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    json_t *shard = cairn_hand_shard(&save, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&save, json_pack("[o]", shard), NULL, NULL));
    EXPECT_EQ_U64(objects_under(&world, &save), 1);
    char path[256];
    snprintf(path, sizeof(path), "%s/abort", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, NULL, NULL));
    EXPECT(swept(&world, &save));
    CAIRN_AUTO_JSON json_t *version = NULL;
    REQUIRE_OK(cairn_hand_wait(&save, &version)); /* its end is still answered */
    EXPECT_EQ_TEXT(cairn_world_text(version, "reason"), "aborted: given up by hand");
}

TEST(a_version_that_stays_open_too_long_is_aborted) /* Q26, P12 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, WORLD_ARGS("--sweep-interval=50ms", "--open-max=1s"), NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    CAIRN_AUTO_JSON json_t *version = NULL;
    REQUIRE_OK(cairn_hand_wait(&save, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "code"), "timeout");
}

/* Q32, Q36, P8, V17 */
TEST(a_committed_record_under_an_aborting_version_freezes_instead_of_deleting) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save, kept;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 9, 1, "error", 10, &kept));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    struct cairn_version_place place = {{"llm", "seven"}, 1, save.id};
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, CAIRN_VIEW("{}"), true, &err));
    char path[256];
    snprintf(path, sizeof(path), "%s/abort", save.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, NULL, NULL));
    AWAIT(cairn_daemon_logged(&world.server, "run.frozen"));
    EXPECT_EQ_U64(objects_under(&world, &save), 1);
    EXPECT_CODE(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, NULL),
                CAIRN_CATALOG_BEHIND);
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, NULL)); /* by id it goes on */
    snprintf(path, sizeof(path), "%s/shards/rank-00000/x/data", kept.path);
    CAIRN_AUTO(buf) bytes = {0};
    REQUIRE_OK(cairn_rest_bytes(world.rest, "GET", path, NULL, (struct cairn_view){0}, NULL, &bytes,
                                &err));
    struct cairn_version_place kept_place = {{"llm", "seven"}, 9, kept.id};
    cairn_key_committed(&kept_place, &key);
    REQUIRE_OK(cairn_store_delete(world.worker, key.text, &err));
    EXPECT_CODE(
        cairn_rest_bytes(world.rest, "GET", path, NULL, (struct cairn_view){0}, NULL, &bytes, &err),
        CAIRN_CATALOG_BEHIND);
}

static bool leave_file(const char *folder, const char *name, char ret_path[500]) {
    snprintf(ret_path, 500, "%s/%s", folder, name);
    FILE *file = fopen(ret_path, "w");
    return file && fputs("half", file) >= 0 && !fclose(file);
}

TEST(what_a_put_left_that_died_beside_the_versions_is_swept_after_an_hour_P8b) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--silence-max=20h")));
    struct cairn_hand hand;
    struct cairn_hand_save save, open;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 1, 1, "error", 10, &save));
    REQUIRE_OK(cairn_hand_begin(&hand, 2, 1, "error", &open));
    REQUIRE_OK(cairn_hand_send(
        &open, json_pack("[o]", cairn_hand_shard(&open, "x", 0, CAIRN_VIEW("abc"))), NULL, NULL));
    static const char *const folders[] = {"llm/seven/layouts", "llm/seven/attempts",
                                          ".cairn/generations"};
    char paths[3][500], kept[500], folder[400], version[400];
    for (size_t i = 0; i < 3; i++) {
        snprintf(folder, sizeof(folder), "%s/%s", world.store_path, folders[i]);
        (void)mkdir(folder, 0755);
        REQUIRE(leave_file(folder, ".01234567-89ab-4def-8123-456789abcdef.tmp", paths[i]));
    }
    snprintf(version, sizeof(version), "%s/llm/seven/000000000002/%s/data", world.store_path,
             open.id.text);
    REQUIRE(leave_file(version, ".01234567-89ab-4def-8123-456789abcdee.tmp", kept));
    cairn_inside_pass(&world.inside, 30 * UINT64_C(60000));
    for (size_t i = 0; i < 3; i++) EXPECT(!access(paths[i], F_OK));
    cairn_inside_pass(&world.inside, 100 * UINT64_C(60000));
    for (size_t i = 0; i < 3; i++) EXPECT(access(paths[i], F_OK));
    EXPECT(!access(kept, F_OK)); /* an upload of a save is the save's affair */
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/latest", NULL, NULL));
}

TEST(an_upload_that_is_still_open_goes_with_its_version_and_after_a_commit_P8b) /* Q21 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save given_up, done;
    char version[400], path[256], lost[500], late[500];
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &given_up));
    json_t *shard = cairn_hand_shard(&given_up, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(cairn_hand_send(&given_up, json_pack("[o]", shard), NULL, NULL));
    snprintf(version, sizeof(version), "%s/llm/seven/000000000001/%s/data", world.store_path,
             given_up.id.text);
    REQUIRE(leave_file(version, ".01234567-89ab-4def-8123-456789abcdef.tmp", lost));
    snprintf(path, sizeof(path), "%s/abort", given_up.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, NULL, NULL));
    cairn_inside_pass(&world.inside, 1000);
    EXPECT(access(lost, F_OK));
    /* Begun, its reply lost, begun again: the first one is no part of the version that commits. */
    REQUIRE_OK(cairn_hand_begin(&hand, 2, 1, "error", &done));
    shard = cairn_hand_shard(&done, "x", 0, CAIRN_VIEW("abc"));
    snprintf(version, sizeof(version), "%s/llm/seven/000000000002/%s/data", world.store_path,
             done.id.text);
    REQUIRE(leave_file(version, ".01234567-89ab-4def-8123-456789abcdee.tmp", late));
    REQUIRE_OK(cairn_hand_send(&done, json_pack("[o]", shard),
                               json_pack("[o]", cairn_hand_seal(0, NULL, "x", 3)), NULL));
    CAIRN_AUTO_JSON json_t *ended = NULL;
    REQUIRE_OK(cairn_hand_wait(&done, &ended));
    EXPECT_EQ_TEXT(cairn_world_text(ended, "state"), "committed");
    EXPECT(access(late, F_OK));
}

TEST(lists_are_paged_in_the_order_of_attempt_step_and_n) /* Q25 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    static const uint64_t steps[] = {30, 10, 20, 50, 40};
    for (size_t i = 0; i < 5; i++) REQUIRE_OK(cairn_hand_begin(&hand, steps[i], 1, "error", &save));
    char path[300] = WORLD_RUN "/checkpoints?limit=2";
    uint64_t wanted = 50, pages = 0;
    for (; path[0]; pages++) {
        CAIRN_AUTO_JSON json_t *page = NULL;
        REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &page));
        for (size_t i = 0; i < json_array_size(json_object_get(page, "items")); i++, wanted -= 10)
            EXPECT_EQ_U64(
                cairn_world_number(json_array_get(json_object_get(page, "items"), i), "step"),
                wanted);
        const char *next = json_string_value(json_object_get(page, "next_cursor"));
        snprintf(path, sizeof(path), next ? WORLD_RUN "/checkpoints?limit=2&cursor=%s" : "%s",
                 next ? next : "");
    }
    EXPECT_EQ_U64(pages, 3);
    EXPECT_EQ_U64(wanted, 0);
    CAIRN_AUTO_JSON json_t *rising = NULL, *none = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints?order=step&limit=1", NULL,
                                &rising));
    EXPECT_EQ_U64(cairn_world_number(json_array_get(json_object_get(rising, "items"), 0), "step"),
                  10);
    REQUIRE_OK(
        cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints?state=committed", NULL, &none));
    EXPECT_EQ_U64(json_array_size(json_object_get(none, "items")), 0);
}

TEST(shards_are_listed_from_rows_while_open_and_from_the_manifest_afterwards) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char path[300];
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 2));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    REQUIRE_OK(
        cairn_hand_send(&save, NULL, json_pack("[o]", cairn_hand_seal(0, NULL, "a/b c", 3)), NULL));
    snprintf(path, sizeof(path), "%s/shards/a%%2Fb%%20c", save.path);
    CAIRN_AUTO_JSON json_t *open_one = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &open_one));
    EXPECT_EQ_TEXT(cairn_world_text(open_one, "state"), "sealed");
    REQUIRE_OK(cairn_hand_save_all(&hand, 2, 1, "error", 10, &save));
    CAIRN_AUTO_JSON json_t *all = NULL, *of_one = NULL, *one = NULL;
    snprintf(path, sizeof(path), "%s/shards", save.path);
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &all));
    EXPECT_EQ_U64(json_array_size(json_object_get(all, "items")), 2);
    snprintf(path, sizeof(path), "%s/shards?rank=1", save.path);
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &of_one));
    EXPECT_EQ_U64(json_array_size(json_object_get(of_one, "items")), 1);
    snprintf(path, sizeof(path), "%s/shards/rank-00001/x", save.path);
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &one));
    EXPECT_EQ_TEXT(cairn_world_text(one, "state"), "committed");
}

struct late {
    struct cairn_hand_save *save;
};
static void *abort_later(void *argument) {
    const struct cairn_hand_save *save = ((struct late *)argument)->save;
    /* The one that waits sleeps, and the server has read its request. */
    (void)COMES(cairn_test_thread_sleeps(getpid()) &&
                cairn_raw_all_read(save->hand->world->server.port));
    struct cairn_rest_options options = {.url = save->hand->world->server.url};
    struct cairn_rest *rest = NULL;
    char path[256];
    snprintf(path, sizeof(path), "%s/abort", save->path);
    CAIRN_AUTO_JSON json_t *body = json_object();
    if (!cairn_rest_new(&options, &rest, NULL))
        (void)!cairn_rest_call(rest, "POST", path, body, 0, NULL, NULL);
    if (rest) cairn_rest_free(rest);
    return NULL;
}

TEST(a_waiting_client_hears_of_the_end_when_it_comes_and_of_the_deadline_otherwise) /* Q39 */
{
    CAIRN_AUTO(world) world = {0};
    REQUIRE(cairn_world_start(&world, NULL, NULL));
    struct cairn_hand hand;
    struct cairn_hand_save save;
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 1, 1, "error", &save));
    char path[300];
    snprintf(path, sizeof(path), "%s?wait=200ms&for=committed", save.path);
    uint64_t from_ms = cairn_mono_ms();
    CAIRN_AUTO_JSON json_t *still_open = NULL, *ended = NULL;
    REQUIRE_OK(cairn_world_call(&world, "GET", path, NULL, &still_open));
    EXPECT_EQ_TEXT(cairn_world_text(still_open, "state"), "open");
    EXPECT(cairn_mono_ms() - from_ms >= 200);
    struct late late = {&save};
    pthread_t thread;
    REQUIRE(!pthread_create(&thread, NULL, abort_later, &late));
    from_ms = cairn_mono_ms();
    REQUIRE_OK(cairn_hand_wait(&save, &ended));
    pthread_join(thread, NULL);
    EXPECT(strcmp(cairn_world_text(ended, "state"), "open"));
    EXPECT(cairn_mono_ms() - from_ms < 5000);
}
