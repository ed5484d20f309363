/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=again */
/* Trash, undelete, sweep, lists and waiting (Q25, Q26, Q29, Q30). */
#include "tests/server/world.h"

#define err world.err /* of the macros */

TEST(a_deleted_checkpoint_is_in_the_trash_until_the_grace_is_over) { /* P8, P12 */
    JOB(1, "--sweep-interval=50ms");
    SAVED(one, 1);
    SAVED(two, 2);
    ASKED(trashed, "DELETE", WORLD_RUN "/checkpoints/2", NULL);
    EXPECT(json_is_true(json_object_get(trashed, "trashed")));
    GOT(latest, WORLD_RUN "/checkpoints/latest");
    EXPECT_EQ_TEXT(world_text(latest, "version"), one.id.text); /* V6 */
    EXPECT_EQ_U64(hand_objects(&two), 5);
    ASKED(back, "POST", WORLD_RUN "/checkpoints/2/undelete", NULL);
    EXPECT(json_is_true(json_object_get(back, "latest")));
    ASK("DELETE", two.path, NULL);
    REQUIRE(world_restart(&world, WORLD_ARGS("--sweep-interval=50ms", "--trash-grace=0ms"), NULL));
    EXPECT(AWAIT(!hand_objects(&two)));
    EXPECT_EQ_U64(hand_objects(&one), 4);
    EXPECT_REFUSED(CAIRN_METHOD, "POST", two.path, NULL);
    EXPECT_REFUSED(CAIRN_DELETED, "POST", TEXT("%s/undelete", two.path), NULL);
}

static int delete_latest(struct cairn_world *world, const char *header) {
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
    return world_ask(world, "DELETE", WORLD_RUN "/checkpoints/latest", header, NULL, &reply);
}

TEST(latest_is_deleted_only_by_who_says_which_version_that_is) {
    JOB(1);
    SAVED(one, 1);
    SAVED(two, 2);
    const char *first = TEXT("If-Match: \"%s\"\r\n", one.id.text);
    const char *second = TEXT("If-Match: \"%s\"\r\n", two.id.text);
    EXPECT(delete_latest(&world, "") == 400);
    EXPECT(delete_latest(&world, first) == 412);
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", two.id.text);
    EXPECT(delete_latest(&world, second) == 202);
    EXPECT(delete_latest(&world, second) == 412); /* requested twice, done once */
    EXPECT_GET(WORLD_RUN "/checkpoints/latest", "version", one.id.text);
}

TEST(what_the_newest_attempt_resumed_from_stays_until_it_has_committed) { /* Q29 */
    JOB(1);
    SAVED(one, 1);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
    EXPECT_REFUSED(CAIRN_IN_USE, "DELETE", one.path, NULL);
    SAVED(two, 2);
    ASK("DELETE", one.path, NULL);
}

TEST(an_aborted_versions_objects_are_swept_at_once) { /* P8 */
    JOB(1);
    BEGUN(save, 1);
    REQUIRE_OK(hand_register(&save, "x", 0, CAIRN_VIEW("abc")));
    EXPECT_EQ_U64(hand_objects(&save), 1);
    ASK("POST", TEXT("%s/abort", save.path), NULL);
    EXPECT(AWAIT(!hand_objects(&save)));
    WAITED(version, &save); /* its end is still answered */
    EXPECT_EQ_TEXT(world_text(version, "reason"), "aborted: given up by hand");
}

TEST(a_version_that_stays_open_too_long_is_aborted) { /* Q26, P12 */
    JOB(1, "--sweep-interval=50ms", "--open-max=1s");
    BEGUN(save, 1);
    EXPECT_WAITED(&save, "code", "timeout");
}

/* Q32, Q36, P8, V17 */
TEST(a_committed_record_under_an_aborting_version_freezes_instead_of_deleting) {
    JOB(1);
    SAVED(kept, 9);
    BEGUN(save, 1);
    struct cairn_version_place place = {{"llm", "seven"}, 1, save.id};
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, CAIRN_VIEW("{}"), true, &err));
    ASK("POST", TEXT("%s/abort", save.path), NULL);
    AWAIT(cairn_daemon_logged(&world.server, "run.frozen"));
    EXPECT_EQ_U64(hand_objects(&save), 1);
    EXPECT_REFUSED(CAIRN_CATALOG_BEHIND, "GET", WORLD_RUN "/checkpoints/latest", NULL);
    ASK("GET", save.path, NULL); /* by id it goes on */
    const char *path = TEXT("%s/shards/rank-00000/x/data", kept.path);
    WITH_OK(buf, bytes,
            cairn_rest_bytes(world.rest, "GET", path, NULL, (struct cairn_view){0}, NULL, &bytes,
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
    JOB_INSIDE(1, "--silence-max=20h");
    SAVED(save, 1);
    BEGUN(open, 2);
    REQUIRE_OK(hand_register(&open, "x", 0, CAIRN_VIEW("abc")));
    static const char *const folders[] = {"llm/seven/layouts", "llm/seven/attempts",
                                          ".cairn/generations"};
    char paths[3][500], kept[500], folder[400];
    for (size_t i = 0; i < 3; i++) {
        snprintf(folder, sizeof(folder), "%s/%s", world.store_path, folders[i]);
        (void)mkdir(folder, 0755);
        REQUIRE(leave_file(folder, ".01234567-89ab-4def-8123-456789abcdef.tmp", paths[i]));
    }
    const char *version = TEXT("%s/llm/seven/000000000002/%s/data", world.store_path, open.id.text);
    REQUIRE(leave_file(version, ".01234567-89ab-4def-8123-456789abcdee.tmp", kept));
    inside_pass(&world.inside, 30 * UINT64_C(60000));
    for (size_t i = 0; i < 3; i++) EXPECT(!access(paths[i], F_OK));
    inside_pass(&world.inside, 100 * UINT64_C(60000));
    for (size_t i = 0; i < 3; i++) EXPECT(access(paths[i], F_OK));
    EXPECT(!access(kept, F_OK)); /* an upload of a save is the save's affair */
    ASK("GET", WORLD_RUN "/checkpoints/latest", NULL);
}

TEST(an_upload_that_is_still_open_goes_with_its_version_and_after_a_commit_P8b) { /* Q21 */
    char lost[500], late[500];
    JOB_INSIDE(1);
    BEGUN(given_up, 1);
    json_t *shard = hand_shard(&given_up, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE_OK(hand_send(&given_up, json_pack("[o]", shard), NULL, NULL));
    REQUIRE(
        leave_file(TEXT("%s/llm/seven/000000000001/%s/data", world.store_path, given_up.id.text),
                   ".01234567-89ab-4def-8123-456789abcdef.tmp", lost));
    ASK("POST", TEXT("%s/abort", given_up.path), NULL);
    inside_pass(&world.inside, 1000);
    EXPECT(access(lost, F_OK));
    /* Begun, its reply lost, begun again: the first one is no part of the version that commits. */
    BEGUN(done, 2);
    shard = hand_shard(&done, "x", 0, CAIRN_VIEW("abc"));
    REQUIRE(leave_file(TEXT("%s/llm/seven/000000000002/%s/data", world.store_path, done.id.text),
                       ".01234567-89ab-4def-8123-456789abcdee.tmp", late));
    REQUIRE_OK(hand_send(&done, json_pack("[o]", shard),
                         json_pack("[o]", hand_seal(0, NULL, "x", 3)), NULL));
    EXPECT_WAITED(&done, "state", "committed");
    EXPECT(access(late, F_OK));
}

TEST(lists_are_paged_in_the_order_of_attempt_step_and_n) { /* Q25 */
    struct cairn_hand_save save;
    JOB(1);
    static const uint64_t steps[] = {30, 10, 20, 50, 40};
    for (size_t i = 0; i < 5; i++) REQUIRE_OK(hand_begin(&hand, steps[i], 1, "error", &save));
    char path[300] = WORLD_RUN "/checkpoints?limit=2";
    uint64_t wanted = 50, pages = 0;
    for (; path[0]; pages++) {
        GOT(page, path);
        for (size_t i = 0; i < json_array_size(json_object_get(page, "items")); i++, wanted -= 10)
            EXPECT_EQ_U64(world_number(json_array_get(json_object_get(page, "items"), i), "step"),
                          wanted);
        const char *next = json_string_value(json_object_get(page, "next_cursor"));
        snprintf(path, sizeof(path), next ? WORLD_RUN "/checkpoints?limit=2&cursor=%s" : "%s",
                 next ? next : "");
    }
    EXPECT_ALL_U64(pages, 3, wanted, 0);
    EXPECT_GET(WORLD_RUN "/checkpoints?order=step&limit=1", "items.0.step", "10");
    GOT(none, WORLD_RUN "/checkpoints?state=committed");
    EXPECT_EQ_U64(json_array_size(json_object_get(none, "items")), 0);
}

TEST(shards_are_listed_from_rows_while_open_and_from_the_manifest_afterwards) {
    JOB(2);
    BEGUN(save, 1);
    REQUIRE_OK(hand_seal_alone(&save, 0, "a/b c", 3));
    EXPECT_GET(TEXT("%s/shards/a%%2Fb%%20c", save.path), "state", "sealed");
    REQUIRE_OK(hand_save_all(&hand, 2, 1, "error", 10, &save));
    EXPECT_GET(TEXT("%s/shards", save.path), "items.#", "2");
    EXPECT_GET(TEXT("%s/shards?rank=1", save.path), "items.#", "1");
    EXPECT_GET(TEXT("%s/shards/rank-00001/x", save.path), "state", "committed");
}

TEST(a_waiting_client_hears_of_the_end_when_it_comes_and_of_the_deadline_otherwise) { /* Q39 */
    JOB(1);
    BEGUN(save, 1);
    const char *path = TEXT("%s?wait=200ms&for=committed", save.path);
    uint64_t from_ms = cairn_mono_ms();
    EXPECT_GET(path, "state", "open");
    EXPECT(cairn_mono_ms() - from_ms >= 200);
    CAIRN_AUTO(calling) waiting = {0};
    REQUIRE(calling_wait(&waiting, &world, TEXT("%s?for=committed", save.path), 60000));
    REQUIRE_AWAIT(calling_is_held(&waiting));
    ASK("POST", TEXT("%s/abort", save.path), json_object());
    REQUIRE_OK(calling_end(&waiting));
    EXPECT(strcmp(world_text(waiting.reply, "state"), "open"));
    EXPECT(waiting.took_ms < 55000); /* and not when its time is over */
}
