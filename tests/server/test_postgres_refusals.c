/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=postgresql */
/* What PostgreSQL refuses while a change is under way: by its state, in our codes, and undone. */
#include <stdio.h>

#include "server/db/engine_postgres.h"
#include "tests/harness.h"
#include "tests/server/rows.h"
#include "tests/support/postgres.h"

static const struct cairn_srv_statement raising = {"raise", "t", "SELECT raise_state(?1)"};

static enum cairn_code add_and_raise(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    bool found = false;
    int64_t none = 0;
    CAIRN_TRY(add(tx, argument, err));
    return cairn_srv_sql_number(tx, &found, &none, err, &raising, SQL_T((const char *)argument));
}

TEST(d09_a_change_that_the_database_refuses_is_undone_whole_and_says_whether_to_try_again) {
    NEED_POSTGRES;
    static const struct {
        char state[8];
        enum cairn_code code;
        bool again;
    } cases[] = {
        {"40001", CAIRN_BUSY, true},        {"40P01", CAIRN_BUSY, true}, /* others' changes */
        {"55P03", CAIRN_BUSY, true},        {"57014", CAIRN_BUSY, true}, /* its time is over */
        {"57P01", CAIRN_UNAVAILABLE, true}, {"53300", CAIRN_UNAVAILABLE, true},
        {"25006", CAIRN_UNAVAILABLE, true}, {"53100", CAIRN_NO_SPACE, false},
        {"42501", CAIRN_FORBIDDEN, false},  {"22012", CAIRN_INTERNAL, false},
    };
    char url[200];
    struct cairn_error err = {0};
    struct cairn_srv_catalog *catalog = NULL;
    REQUIRE(cairn_postgres_catalog(url, sizeof(url)));
    REQUIRE_OK(cairn_srv_catalog_open(url, &catalog, &err));
    REQUIRE(cairn_postgres_run(
        url, "CREATE FUNCTION raise_state(state text) RETURNS bigint LANGUAGE plpgsql AS "
             "$$ BEGIN RAISE EXCEPTION 'as it was asked' USING ERRCODE = state; END $$"));
    int64_t before = rows_of(catalog);
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        char state[8], later[8];
        memcpy(state, cases[i].state, sizeof(state));
        snprintf(later, sizeof(later), "ok-%zu", i);
        EXPECT_CODE(cairn_srv_catalog_write(catalog, add_and_raise, state, &err), cases[i].code);
        EXPECT(strstr(err.message, "as it was asked"));
        EXPECT(cairn_code_info(cases[i].code)->retryable == cases[i].again);
        EXPECT_EQ_U64(rows_of(catalog), before + (int64_t)i); /* nothing of it is there */
        EXPECT_CODE(cairn_srv_catalog_write(catalog, add, later, &err), CAIRN_OK);
    }
    cairn_srv_catalog_free(catalog);
}

TEST(a_database_that_was_killed_and_is_back_goes_on_with_all_that_was_acknowledged) /* D08 */
{
    NEED_POSTGRES;
    char url[200], one[] = "one", two[] = "two", three[] = "three";
    struct cairn_error err = {0};
    struct cairn_srv_catalog *catalog = NULL;
    REQUIRE(cairn_postgres_catalog(url, sizeof(url)));
    REQUIRE_OK(cairn_srv_catalog_open(url, &catalog, &err));
    int64_t before = rows_of(catalog);
    EXPECT_CODE(cairn_srv_catalog_write(catalog, add, one, &err), CAIRN_OK);
    REQUIRE(cairn_postgres_kill());
    EXPECT_CODE(cairn_srv_catalog_write(catalog, add, two, &err), CAIRN_UNAVAILABLE);
    EXPECT_CODE(cairn_srv_catalog_writable(catalog, &err), CAIRN_UNAVAILABLE);
    REQUIRE(cairn_postgres_start_again());
    EXPECT_CODE(cairn_srv_catalog_write(catalog, add, three, &err), CAIRN_OK);
    EXPECT_CODE(cairn_srv_catalog_writable(catalog, &err), CAIRN_OK);
    EXPECT_EQ_U64(rows_of(catalog), before + 2);
    cairn_srv_catalog_free(catalog);
}

/* As an older server in a rolling upgrade. */
TEST(a_catalog_that_a_newer_release_has_migrated_says_so_and_speaks_of_no_disk) {
    NEED_POSTGRES;
    char url[200], one[] = "one";
    struct cairn_error err = {0};
    struct cairn_srv_catalog *catalog = NULL;
    REQUIRE(cairn_postgres_catalog(url, sizeof(url)));
    REQUIRE_OK(cairn_srv_catalog_open(url, &catalog, &err));
    REQUIRE(cairn_postgres_run(url, "UPDATE cairn_catalog SET schema = 9999"));
    EXPECT_CODE(cairn_srv_catalog_write(catalog, add, one, &err), CAIRN_UNAVAILABLE);
    EXPECT_CODE(cairn_srv_catalog_writable(catalog, &err), CAIRN_UNAVAILABLE);
    EXPECT(strstr(err.message, "a server of another release has migrated it, so start that"));
    EXPECT(!strstr(err.message, "disk"));
    cairn_srv_catalog_free(catalog);
}
