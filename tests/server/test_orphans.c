/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* What lies in the store below versions that the catalog does not know is found, shown, and deleted
 * behind a row, when the store's own clock says that it is old (Q31, P8, P8b, V12). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/documents/digest.h"
#include "server/ledger/versions.h"
#include "tests/server/world.h"

#define MINUTE_MS UINT64_C(60000)
#define HOUR_MS (60 * MINUTE_MS)
#define LOOK_MS (6 * HOUR_MS)
#define NOBODYS "ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01"

/* A file as somebody wrote it that many hours ago. */
static bool write_file(const struct cairn_world *world, const char *key, int hours_ago) {
    char path[2048];
    snprintf(path, sizeof(path), "%s/%s", world->store_path, key);
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
    char path[2048];
    snprintf(path, sizeof(path), "%s/%s", world->store_path, key);
    return !access(path, F_OK);
}

/* A shard of a version of llm/seven; ret is its key. */
static bool write_shard(const struct cairn_world *world, const char *id, int hours_ago,
                        char ret[512]) {
    snprintf(ret, 512, "llm/seven/000000000007/%s/data/rank-00000/x", id);
    return write_file(world, ret, hours_ago);
}

/* What GET /v1/orphans says of it; "" where it names it not, "failed" without an answer. */
static void why_of(struct cairn_world *world, const char *version, char ret[200]) {
    CAIRN_AUTO_JSON json_t *page = NULL;
    size_t index = 0;
    json_t *item = NULL;
    snprintf(ret, 200, "failed");
    if (cairn_world_call(world, "GET", "/v1/orphans", NULL, &page)) return;
    ret[0] = '\0';
    json_array_foreach(json_object_get(page, "items"), index, item) {
        if (strcmp(cairn_world_text(item, "version"), version) != 0) continue;
        snprintf(ret, 200, "%s", cairn_world_text(item, "why"));
    }
}

#define EXPECT_WHY(version, words)                                                                 \
    do {                                                                                           \
        char why[200];                                                                             \
        why_of(&world, version, why);                                                              \
        if (!strstr(why, words)) EXPECT_EQ_TEXT(why, words);                                       \
        if (!(words)[0]) EXPECT_EQ_TEXT(why, "");                                                  \
    } while (0)

/* A look and the round that it ends in. */
static void look_now(struct cairn_world *world) {
    world->inside.clock.mono_ms += 3000; /* what has just ended is not begun again */
    EXPECT(!cairn_world_call(world, "POST", "/v1/gc", NULL, NULL));
    cairn_inside_round(&world->inside);
}

/* The clock goes on at once: looks are due by it, and no other rule of time matters here. */
static void pass(struct cairn_world *world, uint64_t ms) {
    world->inside.clock.mono_ms += ms;
    world->inside.clock.boot_ms += ms;
    world->inside.clock.wall_ms += (int64_t)ms;
    cairn_inside_round(&world->inside);
    cairn_inside_round(&world->inside);
}

/* An upload that its uploader has begun and will never end. */
static enum cairn_code begin_upload(struct cairn_world *world, uint64_t step, const char *id) {
    struct cairn_version_place place = {.name = {"llm", "seven"}, .step = step};
    snprintf(place.id.text, sizeof(place.id.text), "%s", id);
    struct cairn_key key;
    cairn_key_shard(&place, CAIRN_VIEW("rank-00007/late"), &key);
    struct cairn_store_request create = {.op = CAIRN_STORE_UPLOAD_CREATE,
                                         .key = key.text,
                                         .token = "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01",
                                         .length = 10 * CAIRN_MIB};
    return cairn_store_perform(world->worker, &create, &world->err);
}

static uint64_t uploads(struct cairn_world *world) {
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = {
        .op = CAIRN_STORE_UPLOADS, .key = "llm/seven/", .listing = &listing};
    uint64_t count = cairn_store_perform(world->worker, &list, NULL) ? 999 : listing.count;
    cairn_store_listing_release(&listing);
    return count;
}

#define err world.err /* of the macros */

TEST(what_an_unknown_version_left_goes_after_48_hours_at_the_second_look_and_not_before) /* Q31 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save kept;
    char old[512], young[512], state[16] = "";
    const char *other = "ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f02";
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 7, 1, "error", 10, &kept));
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
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/" NOBODYS, NULL, &version));
    snprintf(state, sizeof(state), "%s", cairn_world_text(version, "state"));
    EXPECT_EQ_TEXT(state, "gone");
    CAIRN_AUTO_JSON json_t *whole = NULL; /* what is committed is whole */
    char path[300];
    snprintf(path, sizeof(path), "%s/verify", kept.path);
    REQUIRE_OK(cairn_world_call(&world, "POST", path, NULL, &whole));
    look_now(&world);
    EXPECT_WHY(NOBODYS, "");
}

TEST(a_version_whose_objects_went_as_an_orphans_is_begun_by_nobody_any_more) /* Q31, V12 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_version_id id;
    char key[512];
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--gone-retention=1h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    struct cairn_version_origin origin = {
        .name = {"llm", "seven"}, .attempt = hand.attempt, .step = 7, .n = 1};
    snprintf(origin.nonce, sizeof(origin.nonce), "%s", hand.nonce);
    cairn_version_id_make(&origin, &id);
    REQUIRE(write_shard(&world, id.text, 60, key)); /* by a node that is cut off from the server */
    look_now(&world);
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(!is_there(&world, key));
    CAIRN_AUTO_JSON json_t *version = NULL; /* it joins what is over, as any late rank */
    EXPECT_CODE(cairn_hand_begin(&hand, 7, 1, "error", &save), CAIRN_OK);
    REQUIRE_OK(cairn_world_call(&world, "GET", save.path, NULL, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "gone");
    EXPECT_EQ_TEXT(cairn_world_text(version, "code"), "timeout");
    if (cairn_postgres_wanted()) SKIP("thousands of rounds, of rows that SQLite forgets, too");
    cairn_inside_pass(&world.inside, 100 * HOUR_MS); /* its row is forgotten, its id is not */
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM versions"), 0);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM tombstones"), 1);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT attempt FROM tombstones"), hand.attempt);
    EXPECT_CODE(cairn_hand_begin(&hand, 7, 1, "error", &save), CAIRN_DELETED);
    EXPECT_CODE(cairn_hand_begin(&hand, 8, 1, "error", &save), CAIRN_OK);
}

TEST(what_is_begun_between_two_looks_is_no_orphan_any_more) /* P8 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct cairn_version_id id;
    char key[512];
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--silence-max=20h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    struct cairn_version_origin origin = {
        .name = {"llm", "seven"}, .attempt = hand.attempt, .step = 7, .n = 1};
    snprintf(origin.nonce, sizeof(origin.nonce), "%s", hand.nonce);
    cairn_version_id_make(&origin, &id);
    REQUIRE(write_shard(&world, id.text, 60, key));
    look_now(&world);
    EXPECT_WHY(id.text, "for the first time");
    REQUIRE_OK(cairn_hand_begin(&hand, 7, 1, "error", &save));
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(is_there(&world, key));
    EXPECT_WHY(id.text, "");
}

TEST(what_changes_between_two_looks_is_seen_anew) /* T01 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    char key[512], more[512];
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE(write_shard(&world, NOBODYS, 70, key));
    look_now(&world);
    snprintf(more, sizeof(more), "llm/seven/000000000007/%s/data/rank-00001/x", NOBODYS);
    REQUIRE(write_file(&world, more, 60)); /* old by a clock that jumps, and new */
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT_WHY(NOBODYS, "for the first time");
    EXPECT(is_there(&world, key));
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(!is_there(&world, key));
    EXPECT(!is_there(&world, more));
}

TEST(a_record_and_a_run_that_is_not_known_keep_what_is_below_them) /* orphans.c, 1 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    char key[512];
    const char *record = "llm/seven/000000000007/" NOBODYS "/committed.json";
    const char *foreign = "llm/eight/000000000007/ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f03/data/x";
    const char *strange = "llm/seven/notes/readme.txt";
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
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
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    char key[512];
    const char *const marks[] = {"llm/seven/000000000007/" NOBODYS "/superseded-000000000001.json",
                                 "llm/seven/000000000007/" NOBODYS "/trashed.json"};
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
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

TEST(what_comes_to_a_gone_version_after_its_last_sweep_goes_too) /* Q30 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    char key[512];
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--trash-grace=1min")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 7, 1, "error", 10, &save));
    REQUIRE_OK(cairn_world_call(&world, "DELETE", save.path, NULL, NULL));
    if (cairn_postgres_wanted()) SKIP("thousands of rounds, of rows that SQLite has, too");
    cairn_inside_pass(&world.inside, 50 * HOUR_MS); /* gone, and swept for the last time */
    REQUIRE(write_shard(&world, save.id.text, 49, key));
    look_now(&world);
    EXPECT_WHY(save.id.text, "for the first time");
    pass(&world, LOOK_MS + MINUTE_MS);
    EXPECT(!is_there(&world, key));
}

/* The word itself, as between the look and the row. */
struct burial {
    struct cairn_srv_met met;
    bool done;
};
static enum cairn_code bury(struct cairn_srv_tx *tx, void *argument, struct cairn_error *why) {
    struct burial *burial = argument;
    return cairn_srv_met_bury(tx, &burial->met, "a test", 1, &burial->done, why);
}

TEST(a_version_gets_no_row_when_it_was_begun_meanwhile_or_its_run_is_frozen) /* Q27, Q36 */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save save;
    struct burial burial = {.met = {.name = {"llm", "seven"}, .step = 7}};
    struct cairn_srv *server = &world.inside.server;
    REQUIRE(cairn_world_start_inside(&world, NULL));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_begin(&hand, 7, 1, "error", &save));
    burial.met.id = save.id; /* found when it had no row */
    REQUIRE_OK(cairn_srv_catalog_write(server->catalog, bury, &burial, &err));
    EXPECT(!burial.done);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM versions WHERE state = 0"), 1);
    REQUIRE(cairn_world_sql(&world, "INSERT INTO frozen_runs(run_id, cause, since_ms) "
                                    "SELECT run_id, 'a test', 1 FROM runs"));
    burial.met = (struct cairn_srv_met){.name = {"llm", "seven"}, .step = 7};
    snprintf(burial.met.id.text, sizeof(burial.met.id.text), "%s", NOBODYS);
    EXPECT_CODE(cairn_srv_catalog_write(server->catalog, bury, &burial, &err),
                CAIRN_CATALOG_BEHIND);
    EXPECT_EQ_U64(cairn_world_count(&world, "SELECT count(*) FROM versions"), 1);
}

TEST(uploads_of_one_version_are_ended_by_hand_and_those_of_a_save_are_not) /* P8, P8b */
{
    CAIRN_AUTO(world) world = {0};
    struct cairn_hand hand;
    struct cairn_hand_save kept, open;
    char path[200];
    REQUIRE(cairn_world_start_inside(&world, WORLD_ARGS("--silence-max=20h")));
    REQUIRE_OK(cairn_hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_hand_save_all(&hand, 6, 1, "error", 10, &kept));
    REQUIRE_OK(cairn_hand_begin(&hand, 7, 1, "error", &open));
    EXPECT_CODE(cairn_world_call(&world, "DELETE", "/v1/uploads/" NOBODYS, NULL, NULL),
                CAIRN_NOT_FOUND);
    REQUIRE_OK(begin_upload(&world, 7, NOBODYS));
    pass(&world, HOUR_MS + MINUTE_MS); /* a look at uploads */
    snprintf(path, sizeof(path), "/v1/uploads/%s", open.id.text);
    EXPECT_CODE(cairn_world_call(&world, "DELETE", path, NULL, NULL), CAIRN_IN_USE);
    EXPECT_EQ_U64(uploads(&world), 1);
    EXPECT_CODE(cairn_world_call(&world, "DELETE", "/v1/uploads/latest", NULL, NULL),
                CAIRN_INVALID);
    REQUIRE_OK(cairn_world_call(&world, "DELETE", "/v1/uploads/" NOBODYS, NULL, NULL));
    cairn_inside_round(&world.inside);
    EXPECT_EQ_U64(uploads(&world), 0);
    CAIRN_AUTO_JSON json_t *version = NULL; /* and no begin joins it any more */
    REQUIRE_OK(cairn_world_call(&world, "GET", WORLD_RUN "/checkpoints/" NOBODYS, NULL, &version));
    EXPECT_EQ_TEXT(cairn_world_text(version, "state"), "gone");
    REQUIRE_OK(begin_upload(&world, 6, kept.id.text));
    snprintf(path, sizeof(path), "/v1/uploads/%s", kept.id.text);
    REQUIRE_OK(cairn_world_call(&world, "DELETE", path, NULL, NULL));
    EXPECT_EQ_U64(uploads(&world), 0);
}
