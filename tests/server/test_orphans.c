/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What lies in the store below versions that the catalog does not know is found, shown, and deleted
 * behind a row, when the store's own clock says that it is old (Q31, P8, P8b, V12). */
#include "tests/server/world.h"

#define LOOK_MS (6 * HOUR_MS)
#define NOBODYS "ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01"

/* A file as somebody wrote it that many hours ago. */
static bool write_file(const struct cairn_world *world, const char *key, int hours_ago) {
    const char *path = TEXT("%s/%s", world->store_path, key);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) && errno != EEXIST) return false;
        *slash = '/';
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    struct timespec then = {.tv_sec = time(NULL) - hours_ago * 3600};
    bool written =
        write(fd, "bytes", 5) == 5 && !futimens(fd, (const struct timespec[]){then, then});
    return !close(fd) && written;
}

static bool is_there(const struct cairn_world *world, const char *key) {
    const char *path = TEXT("%s/%s", world->store_path, key);
    return !access(path, F_OK);
}

/* A shard of a version of llm/seven; ret is its key. */
static bool write_shard(const struct cairn_world *world, const char *id, int hours_ago,
                        char ret[512]) {
    snprintf(ret, 512, "llm/seven/000000000007/%s/data/rank-00000/x", id);
    return write_file(world, ret, hours_ago);
}

/* What is listed of that version; "": it is not there. */
#define EXPECT_WHY(id, words)                                                                      \
    do {                                                                                           \
        GOT(page, "/v1/orphans");                                                                  \
        const json_t *orphan = cairn_item(page, "items", "version", id);                           \
        const char *why = orphan ? world_text(orphan, "why") : "";                                 \
        if (!strstr(why, words)) EXPECT_EQ_TEXT(why, words);                                       \
        if (!(words)[0]) EXPECT_EQ_TEXT(why, "");                                                  \
    } while (0)

/* A look and the round that it ends in. */
static void look_now(struct cairn_world *world) {
    world->inside.clock.mono_ms += 3000; /* what has just ended is not begun again */
    EXPECT(!world_call(world, "POST", "/v1/gc", NULL, NULL));
    inside_round(&world->inside);
}

/* The clock goes on at once: looks are due by it, and no other rule of time matters here. */
static void pass(struct cairn_world *world, uint64_t ms) {
    world->inside.clock.mono_ms += ms;
    world->inside.clock.boot_ms += ms;
    world->inside.clock.wall_ms += (int64_t)ms;
    inside_round(&world->inside);
    inside_round(&world->inside);
}

/* An upload that its uploader has begun and will never end. */
static enum cairn_code begin_upload(struct cairn_world *world,
                                    const struct cairn_version_place *place) {
    struct cairn_key key;
    cairn_key_shard(place, CAIRN_VIEW("rank-00007/late"), &key);
    struct cairn_store_request create = {.op = CAIRN_STORE_UPLOAD_CREATE,
                                         .key = key.text,
                                         .token = "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01",
                                         .length = 10 * CAIRN_MIB};
    return cairn_store_perform(world->worker, &create, &world->err);
}

static uint64_t uploads_under(struct cairn_world *world, const struct cairn_version_place *place) {
    struct cairn_key prefix;
    cairn_key_version_prefix(place, &prefix);
    return cairn_listed(world->worker, CAIRN_STORE_UPLOADS, prefix.text);
}

/* What GET /v1/uploads says the version is; "" where it names none, "failed" without an answer. */
static void shown_as(struct cairn_world *world, const char *version, char ret[32]) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    snprintf(ret, 32, "failed");
    if (world_call(world, "GET", "/v1/uploads", NULL, &page)) return;
    const json_t *upload = cairn_item(page, "items", "version", version);
    snprintf(ret, 32, "%s", upload ? world_text(upload, "state") : "");
}

/* The same of a version that the catalog does not know. */
static enum cairn_code begin_unknown(struct cairn_world *world, uint64_t step, const char *id) {
    struct cairn_version_place place = {.name = {"llm", "seven"}, .step = step};
    snprintf(place.id.text, sizeof(place.id.text), "%s", id);
    return begin_upload(world, &place);
}

#define err world.err /* of the macros */

TEST(what_an_unknown_version_left_goes_after_48_hours_at_the_second_look_and_not_before) { /* Q31 */
    char old[512], young[512], state[16] = "";
    const char *other = "ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f02";
    JOB_INSIDE(1);
    SAVED(kept, 7);
    REQUIRE(write_shard(&world, NOBODYS, 49, old));
    REQUIRE(write_shard(&world, other, 47, young));
    pass(&world, 50 * MINUTE_MS); /* the first look is an hour after the start */
    EXPECT_WHY(NOBODYS, "");
    pass(&world, 20 * MINUTE_MS);
    EXPECT_WHY(NOBODYS, "for the first time");
    EXPECT_WHY(other, "less than 48 hours ago");
    EXPECT(is_there(&world, old));
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(!is_there(&world, old));
    EXPECT(is_there(&world, young));
    CAIRN_AUTO_JSON json_t *version = NULL; /* it has a row, and is over */
    REQUIRE_OK(world_call(&world, "GET", WORLD_RUN "/checkpoints/" NOBODYS, NULL, &version));
    snprintf(state, sizeof(state), "%s", world_text(version, "state"));
    EXPECT_EQ_TEXT(state, "gone");
    CAIRN_AUTO_JSON json_t *whole = NULL; /* what is committed is whole */
    REQUIRE_OK(world_call(&world, "POST", TEXT("%s/verify", kept.path), NULL, &whole));
    look_now(&world);
    EXPECT_WHY(NOBODYS, "");
}

TEST(a_version_whose_objects_went_as_an_orphans_is_begun_by_nobody_any_more) { /* Q31, V12 */
    struct cairn_hand_save save;
    struct cairn_version_id id;
    char key[512];
    JOB_INSIDE(1, "--gone-retention=1h");
    struct cairn_version_origin origin = {
        .name = {"llm", "seven"}, .attempt = hand.attempt, .step = 7, .n = 1};
    snprintf(origin.nonce, sizeof(origin.nonce), "%s", hand.nonce);
    cairn_version_id_make(&origin, &id);
    REQUIRE(write_shard(&world, id.text, 60, key)); /* by a node that is cut off from the server */
    look_now(&world);
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(!is_there(&world, key));
    CAIRN_AUTO_JSON json_t *version = NULL; /* it joins what is over, as any late rank */
    EXPECT_CODE(hand_begin(&hand, 7, 1, "error", &save), CAIRN_OK);
    REQUIRE_OK(world_call(&world, "GET", save.path, NULL, &version));
    EXPECT_SHOWS(version, "state", "gone", "code", "timeout");
    if (cairn_postgres_wanted()) SKIP("thousands of rounds, of rows that SQLite forgets, too");
    inside_pass(&world.inside, 100 * HOUR_MS); /* its row is forgotten, its id is not */
    EXPECT_ROWS(0, "versions");
    EXPECT_ROWS(1, "tombstones");
    EXPECT_EQ_U64(world_count(&world, "SELECT attempt FROM tombstones"), hand.attempt);
    EXPECT_CODE(hand_begin(&hand, 7, 1, "error", &save), CAIRN_DELETED);
    EXPECT_CODE(hand_begin(&hand, 8, 1, "error", &save), CAIRN_OK);
}

TEST(what_is_begun_between_two_looks_is_no_orphan_any_more) { /* P8 */
    struct cairn_version_id id;
    char key[512];
    JOB_INSIDE(1, "--silence-max=20h");
    struct cairn_version_origin origin = {
        .name = {"llm", "seven"}, .attempt = hand.attempt, .step = 7, .n = 1};
    snprintf(origin.nonce, sizeof(origin.nonce), "%s", hand.nonce);
    cairn_version_id_make(&origin, &id);
    REQUIRE(write_shard(&world, id.text, 60, key));
    look_now(&world);
    EXPECT_WHY(id.text, "for the first time");
    BEGUN(save, 7);
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(is_there(&world, key));
    EXPECT_WHY(id.text, "");
}

TEST(what_changes_between_two_looks_is_seen_anew) { /* T01 */
    char key[512];
    JOB_INSIDE(1);
    REQUIRE(write_shard(&world, NOBODYS, 70, key));
    look_now(&world);
    const char *more = TEXT("llm/seven/000000000007/%s/data/rank-00001/x", NOBODYS);
    REQUIRE(write_file(&world, more, 60)); /* old by a clock that jumps, and new */
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT_WHY(NOBODYS, "for the first time");
    EXPECT(is_there(&world, key));
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(!is_there(&world, key));
    EXPECT(!is_there(&world, more));
}

TEST(a_record_and_a_run_that_is_not_known_keep_what_is_below_them) { /* orphans.c, 1 */
    char key[512];
    const char *record = "llm/seven/000000000007/" NOBODYS "/committed.json";
    const char *foreign = "llm/eight/000000000007/ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f03/data/x";
    const char *strange = "llm/seven/notes/readme.txt";
    JOB_INSIDE(1);
    REQUIRE(write_shard(&world, NOBODYS, 100, key));
    REQUIRE(write_file(&world, record, 100));
    REQUIRE(write_file(&world, foreign, 100));
    REQUIRE(write_file(&world, strange, 100));
    look_now(&world);
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT_WHY(NOBODYS, "committed.json");
    EXPECT_WHY("ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f03", "does not know its run");
    EXPECT(is_there(&world, key) && is_there(&world, record));
    EXPECT(is_there(&world, foreign) && is_there(&world, strange));
}

/* Of a version in a store of copies that was not read when this catalog was made. */
TEST(marks_alone_keep_themselves_and_anything_beside_them_goes_with_them) { /* orphans.c, 3 */
    char key[512];
    const char *const marks[] = {"llm/seven/000000000007/" NOBODYS "/superseded-000000000001.json",
                                 "llm/seven/000000000007/" NOBODYS "/trashed.json"};
    JOB_INSIDE(1);
    for (size_t i = 0; i < CAIRN_COUNT(marks); i++) REQUIRE(write_file(&world, marks[i], 100));
    look_now(&world);
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT_WHY(NOBODYS, "nothing but marks");
    EXPECT(is_there(&world, marks[0]) && is_there(&world, marks[1]));
    REQUIRE(write_shard(&world, NOBODYS, 100, key));
    look_now(&world);
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(!is_there(&world, key));
    EXPECT(!is_there(&world, marks[0]) && !is_there(&world, marks[1]));
}

TEST(what_comes_to_a_gone_version_after_its_last_sweep_goes_too) { /* Q30 */
    char key[512];
    JOB_INSIDE(1, "--trash-grace=1min");
    SAVED(save, 7);
    ASK("DELETE", save.path, NULL);
    if (cairn_postgres_wanted()) SKIP("thousands of rounds, of rows that SQLite has, too");
    inside_pass(&world.inside, 50 * HOUR_MS); /* gone, and swept for the last time */
    REQUIRE(write_shard(&world, save.id.text, 49, key));
    look_now(&world);
    EXPECT_WHY(save.id.text, "for the first time");
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(!is_there(&world, key));
}

/* The word itself, as between the look and the row. */
struct burial {
    struct srv_met met;
    bool done;
};
static enum cairn_code bury(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    struct burial *burial = argument;
    return srv_met_bury(tx, &burial->met, "a test", 1, &burial->done, why);
}

TEST(a_version_gets_no_row_when_it_was_begun_meanwhile_or_its_run_is_frozen) { /* Q27, Q36 */
    CAIRN_AUTO(world) world = {0};
    struct burial burial = {.met = {.name = {"llm", "seven"}, .step = 7}};
    struct srv *server = &world.inside.server;
    REQUIRE(world_start_inside(&world, NULL));
    HAND(1);
    BEGUN(save, 7);
    burial.met.id = save.id; /* found when it had no row */
    REQUIRE_OK(srv_catalog_write(server->catalog, bury, &burial, &err));
    EXPECT(!burial.done);
    EXPECT_ROWS(1, "versions WHERE state = 0");
    REQUIRE(world_sql(&world, "INSERT INTO frozen_runs(run_id, cause, since_ms) "
                              "SELECT run_id, 'a test', 1 FROM runs"));
    burial.met = (struct srv_met){.name = {"llm", "seven"}, .step = 7};
    snprintf(burial.met.id.text, sizeof(burial.met.id.text), "%s", NOBODYS);
    EXPECT_CODE(srv_catalog_write(server->catalog, bury, &burial, &err), CAIRN_CATALOG_BEHIND);
    EXPECT_ROWS(1, "versions");
}

TEST(uploads_of_one_version_are_ended_by_hand_and_those_of_a_save_are_not) { /* P8, P8b */
    JOB_INSIDE(1, "--silence-max=20h");
    SAVED(kept, 6);
    BEGUN(open, 7);
    EXPECT_REFUSED(CAIRN_NOT_FOUND, "DELETE", "/v1/uploads/" NOBODYS, NULL);
    REQUIRE_OK(begin_unknown(&world, 7, NOBODYS));
    pass(&world, HOUR_MS + MINUTE_MS); /* a look at uploads */
    EXPECT_REFUSED(CAIRN_IN_USE, "DELETE", TEXT("/v1/uploads/%s", open.id.text), NULL);
    EXPECT_EQ_U64(cairn_listed(world.worker, CAIRN_STORE_UPLOADS, "llm/seven/"), 1);
    EXPECT_REFUSED(CAIRN_INVALID, "DELETE", "/v1/uploads/latest", NULL);
    ASK("DELETE", "/v1/uploads/" NOBODYS, NULL);
    inside_round(&world.inside);
    EXPECT_EQ_U64(cairn_listed(world.worker, CAIRN_STORE_UPLOADS, "llm/seven/"), 0);
    CAIRN_AUTO_JSON json_t *version = NULL; /* and no begin joins it any more */
    REQUIRE_OK(world_call(&world, "GET", WORLD_RUN "/checkpoints/" NOBODYS, NULL, &version));
    EXPECT_EQ_TEXT(world_text(version, "state"), "gone");
    REQUIRE_OK(begin_unknown(&world, 6, kept.id.text));
    ASK("DELETE", TEXT("/v1/uploads/%s", kept.id.text), NULL);
    EXPECT_EQ_U64(cairn_listed(world.worker, CAIRN_STORE_UPLOADS, "llm/seven/"), 0);
}

/* ---- uploads that no save will end are shown, and ended where none needs them (P8, P8b) ---- */

TEST(uploads_below_what_is_committed_or_gone_are_shown_and_ended_at_the_second_look) { /* P8b */
    char state[32];
    JOB_INSIDE(1, "--trash-grace=1min");
    SAVED(lost, 1);
    SAVED(kept, 2);
    ASK("DELETE", lost.path, NULL);
    inside_pass(&world.inside, 50 * HOUR_MS); /* gone, and swept for the last time */
    struct cairn_version_place of_kept = hand_place(&kept), of_lost = hand_place(&lost);
    REQUIRE_OK(begin_upload(&world, &of_kept));
    REQUIRE_OK(begin_upload(&world, &of_lost));
    state[0] = '\0';
    for (int i = 0; i < 62 && !state[0]; i++) { /* until the next look, and not the one behind it */
        inside_pass(&world.inside, HOUR_MS / 60);
        shown_as(&world, kept.id.text, state);
    }
    EXPECT_EQ_TEXT(state, "committed");
    shown_as(&world, lost.id.text, state);
    EXPECT_EQ_TEXT(state, "gone");
    EXPECT_EQ_U64(uploads_under(&world, &of_kept), 1); /* seen once: nothing is ended */
    EXPECT_EQ_U64(uploads_under(&world, &of_lost), 1);
    inside_pass(&world.inside, HOUR_MS + HOUR_MS / 60);
    EXPECT_ALL_U64(uploads_under(&world, &of_kept), 0, uploads_under(&world, &of_lost), 0);
    inside_pass(&world.inside, HOUR_MS + HOUR_MS / 60);
    shown_as(&world, kept.id.text, state);
    EXPECT_EQ_TEXT(state, "");
    CAIRN_AUTO_JSON json_t *version = NULL; /* and what is committed is whole */
    REQUIRE_OK(world_call(&world, "GET", kept.path, NULL, &version));
    EXPECT_EQ_TEXT(world_text(version, "state"), "committed");
}

TEST(looks_that_were_asked_for_show_an_upload_and_end_none) { /* uploads.c, 2 */
    char state[32];
    JOB_INSIDE(1);
    SAVED(kept, 1);
    inside_pass(&world.inside, HOUR_MS / 60); /* the first hourly look is over */
    struct cairn_version_place place = hand_place(&kept);
    REQUIRE_OK(begin_upload(&world, &place));
    for (int i = 0; i < 5; i++) {
        inside_pass(&world.inside, 5000); /* one that has just ended is not begun again */
        ASKED(asked, "POST", "/v1/uploads", NULL);
        EXPECT(json_is_true(json_object_get(asked, "looking")));
        inside_pass(&world.inside, HOUR_MS / 60);
        shown_as(&world, kept.id.text, state);
        EXPECT_EQ_TEXT(state, "committed");
        EXPECT_EQ_U64(uploads_under(&world, &place), 1);
    }
    inside_pass(&world.inside, HOUR_MS); /* found by one hourly look */
    EXPECT_EQ_U64(uploads_under(&world, &place), 1);
    inside_pass(&world.inside, HOUR_MS + HOUR_MS / 60); /* and by another one */
    EXPECT_EQ_U64(uploads_under(&world, &place), 0);
}

TEST(an_upload_of_a_copy_that_is_being_made_or_mended_is_no_orphan) { /* P8 */
    struct srv_copy_hold hold;
    JOB_INSIDE(1, SLOW_STORE);
    struct srv *server = &world.inside.server;
    SAVED(save, 1);
    struct cairn_version_place place = hand_place(&save);
    REQUIRE_OK(begin_upload(&world, &place)); /* as a repair has, or a promotion to main */
    REQUIRE_OK(srv_copy_hold_take(&hold, server, save.id.text, &err));
    EXPECT_REFUSED(CAIRN_IN_USE, "DELETE", TEXT("/v1/uploads/%s", save.id.text), NULL);
    inside_pass(&world.inside, 4 * HOUR_MS);
    EXPECT_EQ_U64(uploads_under(&world, &place), 1);
    srv_copy_hold_end(&hold);
    inside_pass(&world.inside, 2 * HOUR_MS);
    EXPECT_EQ_U64(uploads_under(&world, &place), 0);
}

TEST(an_upload_of_an_open_save_is_no_orphan_and_one_of_an_unknown_version_is_left_alone) { /* P8 */
    char state[32];
    JOB_INSIDE(1, "--silence-max=20h");
    BEGUN(save, 5);
    struct cairn_version_place open = hand_place(&save), unknown = open;
    snprintf(unknown.id.text, sizeof(unknown.id.text), "%s", NOBODYS);
    REQUIRE_OK(begin_upload(&world, &open));
    REQUIRE_OK(begin_upload(&world, &unknown));
    inside_pass(&world.inside, 5 * HOUR_MS);
    shown_as(&world, save.id.text, state);
    EXPECT_EQ_TEXT(state, "");
    shown_as(&world, NOBODYS, state);
    EXPECT_EQ_TEXT(state, "unknown");
    EXPECT_EQ_U64(uploads_under(&world, &open), 1);
    EXPECT_EQ_U64(uploads_under(&world, &unknown), 1);
}
