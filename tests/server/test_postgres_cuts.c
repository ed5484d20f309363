/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=postgresql races="full: as server/notify and server/servers" */
/* The connection to PostgreSQL is cut at each message of a change, both ways, before it and within
 * it (D08): what was told is what is there, and what is repeated is not done twice. */
#include "tests/server/rows.h"
#include "tests/support/cut.h"

/* Where a connection is cut. */
static const struct way {
    const char *name;
    bool to_server, torn;
} ways[] = {
    {"before-answer", false, false}, /* a COMMIT that was sent is done, and nobody hears of it */
    {"within-answer", false, true},
    {"before-command", true, false}, /* a COMMIT that is not sent is not done */
    {"within-command", true, true},
};

/* The catalog's place, over the relay; false: said why. */
static bool start_relay(char *ret_url, size_t ret_size, char *ret_cut_url, size_t cut_size) {
    if (!cairn_postgres_catalog(ret_url, ret_size)) return false;
    snprintf(ret_cut_url, cut_size, "%s&port=5433&sslmode=disable&gssencmode=disable", ret_url);
    return cairn_cut_start(cairn_postgres_folder());
}

static bool end_sessions(const char *url) {
    return cairn_postgres_run(url, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                                   "WHERE pid <> pg_backend_pid() AND application_name = "
                                   "'cairn-server'");
}

/* ---- one change ---- */

/* A change over a new connection that ends at the count-th message that way: what was told is what
 * is there. *ret_over: that far it did not come any more. */
static void cut_at(struct srv_catalog *catalog, const char *url, const struct way *way,
                   unsigned count, bool *ret_over, unsigned *ret_settled) {
    struct cairn_error err = {0};
    char *name = TEXT("%s-%u", way->name, count);
    const char *sql = TEXT("SELECT count(*) FROM meta WHERE name = '%s'", name);
    EXPECT(end_sessions(url));
    cairn_cut_order(way->to_server, count, way->torn);
    enum cairn_code code = srv_catalog_write(catalog, add, name, &err);
    bool cut = cairn_cut_done();
    int64_t rows = cairn_postgres_number(url, sql);
    EXPECT(code == CAIRN_OK || code == CAIRN_UNAVAILABLE);
    if (!EXPECT(rows == (code == CAIRN_OK)))
        fprintf(stderr, "%s: %d rows, %s\n", name, (int)rows, err.message);
    *ret_settled += cut && code == CAIRN_OK;
    *ret_over = !cut;
}

TEST(d08_a_change_whose_connection_was_cut_at_any_message_is_there_when_it_was_told_so) { /* D08 */
    NEED_POSTGRES;
    char url[200], cut_url[260], first[] = "first";
    struct cairn_error err = {0};
    struct srv_catalog *catalog = NULL;
    unsigned settled = 0;
    REQUIRE(start_relay(url, sizeof(url), cut_url, sizeof(cut_url)));
    REQUIRE_OK(srv_catalog_open(cut_url, &catalog, &err));
    EXPECT_CODE(srv_catalog_write(catalog, add, first, &err), CAIRN_OK);
    for (size_t i = 0; i < CAIRN_COUNT(ways); i++) {
        bool over = false;
        unsigned count = 1;
        for (; count < 200 && !over; count++)
            cut_at(catalog, url, &ways[i], count, &over, &settled);
        EXPECT(over);
        EXPECT(count > 6); /* the messages of one change at least */
    }
    EXPECT(settled > 0); /* engine_postgres.h#3: COMMIT was done and its answer was lost */
    srv_catalog_free(catalog);
    cairn_cut_stop();
}

/* ---- a slow network ---- */

#define LARGE_BYTES (8 * CAIRN_MIB)
#define SLOW_MS 14 /* for 16 KiB: 7 s in all, and a session may be idle for 5 s */

static enum cairn_code look_and_add_much(struct srv_tx *tx, void *argument,
                                         struct cairn_error *err) {
    static const struct srv_statement count = {"count", "", "SELECT count(*) FROM meta"};
    static const struct srv_statement much = {"much", "tt",
                                              "INSERT INTO meta(name, value) VALUES(?1, ?2)"};
    bool found = false;
    int64_t rows = 0;
    CAIRN_TRY(srv_sql_number(tx, &found, &rows, err, &count));
    return srv_sql_run(tx, NULL, err, &much, SQL_T("much"), SQL_T((const char *)argument));
}

TEST(what_takes_longer_to_send_than_a_session_may_be_idle_is_kept, err) { /* engine_postgres.h#2 */
    NEED_POSTGRES;
    char url[200], cut_url[260], first[] = "first";
    struct srv_catalog *catalog = NULL;
    CAIRN_AUTO_HEAP char *text = malloc(LARGE_BYTES);
    REQUIRE(text);
    memset(text, 'x', LARGE_BYTES - 1);
    text[LARGE_BYTES - 1] = '\0';
    REQUIRE(start_relay(url, sizeof(url), cut_url, sizeof(cut_url)));
    REQUIRE_OK(srv_catalog_open(cut_url, &catalog, &err));
    EXPECT_CODE(srv_catalog_write(catalog, add, first, &err), CAIRN_OK);
    cairn_cut_slow(SLOW_MS);
    uint64_t from_ms = cairn_mono_ms();
    EXPECT_CODE(srv_catalog_write(catalog, look_and_add_much, text, &err), CAIRN_OK);
    EXPECT(cairn_mono_ms() - from_ms > 5000);
    cairn_cut_slow(0);
    EXPECT_EQ_U64(cairn_postgres_number(url, "SELECT length(value) FROM meta WHERE name = 'much'"),
                  LARGE_BYTES - 1);
    srv_catalog_free(catalog);
    cairn_cut_stop();
}

/* ---- whole saves ---- */

#define TRIES 40
#define STRIDE_MAX 30 /* of messages; CAIRN_TEST_SLOW=1 takes each */
#define SAVE_BYTES 64

static bool may_be_repeated(enum cairn_code code) {
    return code == CAIRN_UNAVAILABLE || code == CAIRN_BUSY || code == CAIRN_IO;
}

#define err world->err /* of the macros */

/* Each call as an uploader makes it: again, until it is answered. */
static void save_over(struct cairn_world *world, struct cairn_hand *hand, uint64_t step) {
    struct cairn_hand_save save = {0};
    uint8_t data[SAVE_BYTES];
    enum cairn_code code = CAIRN_UNAVAILABLE;
    for (int i = 0; i < TRIES && may_be_repeated(code); i++)
        code = hand_begin(hand, step, 1, "error", &save);
    REQUIRE_OK(code);
    hand_fill(data, sizeof(data), step);
    CAIRN_AUTO_JSON json_t *shard =
        hand_shard(&save, "rank-00000/x", 0, (struct cairn_view){data, sizeof(data)});
    REQUIRE(shard);
    code = CAIRN_UNAVAILABLE;
    for (int i = 0; i < TRIES && may_be_repeated(code); i++)
        code = hand_send(&save, json_pack("[O]", shard),
                         json_pack("[o]", hand_seal(0, NULL, "rank-00000/x", sizeof(data))), NULL);
    REQUIRE_OK(code);
    CAIRN_AUTO_JSON json_t *version = NULL;
    code = CAIRN_UNAVAILABLE;
    for (int i = 0; i < TRIES && may_be_repeated(code); i++) {
        json_decref(version);
        version = NULL;
        code = hand_wait(&save, &version);
    }
    REQUIRE_OK(code);
    EXPECT_EQ_TEXT(world_text(version, "state"), "committed");
}

/* One version of that step, with its one shard, committed and recorded; and no other row of it. */
static void look_at_rows(const char *url, uint64_t step) {
    if (!EXPECT(
            cairn_postgres_number(
                url,
                TEXT("SELECT count(*) * 10 + count(*) FILTER (WHERE state = 1 AND recorded = 1) "
                     "FROM versions WHERE step = %u",
                     (unsigned)step)) == 11))
        fprintf(stderr, "step %u\n", (unsigned)step);
}

static unsigned next(unsigned count, uint64_t *random) {
    const char *slow = getenv("CAIRN_TEST_SLOW");
    bool each = slow && !strcmp(slow, "1");
    return count + 1 + (each ? 0 : (unsigned)(cairn_test_random(random) % STRIDE_MAX));
}

TEST(d08_a_save_whose_servers_connection_was_cut_at_any_message_is_committed_once) { /* D08 */
    NEED_POSTGRES;
    char url[200];
    CAIRN_AUTO(world) scene = {0};
    struct cairn_world *world = &scene;
    REQUIRE(start_relay(url, sizeof(url), scene.catalog, sizeof(scene.catalog)));
    REQUIRE(world_start(world, WORLD_ARGS("--check-interval=1h"), NULL));
    struct cairn_hand hand;
    uint64_t step = 1, random = cairn_test_seed(), latest = 0;
    REQUIRE_OK(hand_open(world, &hand, "j1", 0, "latest", 1));
    save_over(world, &hand, step);
    for (size_t i = 0; i < CAIRN_COUNT(ways); i++) {
        bool over = false;
        unsigned cuts = 0;
        for (unsigned count = next(0, &random); count < 1000 && !over;
             count = next(count, &random)) {
            cairn_cut_order(ways[i].to_server, count, ways[i].torn);
            save_over(world, &hand, ++step);
            over = !cairn_cut_done();
            cuts += !over;
            look_at_rows(url, step);
            CAIRN_AUTO_JSON json_t *newest = NULL;
            REQUIRE_OK(world_call(world, "GET", WORLD_RUN "/checkpoints/latest", NULL, &newest));
            EXPECT(world_number(newest, "step") > latest);
            latest = world_number(newest, "step");
        }
        printf("    %s: %u cuts\n", ways[i].name, cuts);
        EXPECT(over);
        EXPECT(cuts >= 5);
    }
    EXPECT_EQ_U64(cairn_postgres_number(url, "SELECT count(*) FROM attempts"), 1);
    EXPECT_EQ_U64(cairn_postgres_number(url, "SELECT count(*) FROM versions"), step);
    cairn_world_release(world);
    scene = (struct cairn_world){0};
    cairn_cut_stop();
}
