/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* How tokens come, go and are told: the operator's first one, events, files, several servers. */
#include "tests/server/office.h"

#define say office_say
#define make office_make
static struct cairn_error err;

/* ---- the operator ---- */

TEST(the_first_token_is_in_a_file_of_the_operator_and_another_is_made_on_request_alone) {
    OFFICE();
    struct stat status;
    const char *path = TEXT("%s/admin.token", office.world.data_path);
    REQUIRE(!stat(path, &status));
    EXPECT_EQ_U64(status.st_mode & 0777, 0600);
    const char *first = TEXT("%s", office.admin);
    REQUIRE(!unlink(path));
    REQUIRE(world_restart(&office.world, WORLD_ARGS("--require-token"), NULL));
    EXPECT(stat(path, &status) && errno == ENOENT);
    EXPECT_SAID(200, &office, first, "GET", "/v1/tokens", NULL);
    bool again =
        world_restart(&office.world, WORLD_ARGS("--require-token", "--new-admin-token"), NULL);
    REQUIRE(cairn_test_check(again, __FILE__, __LINE__, "%s", office.world.err.message));
    REQUIRE(office_admin(&office));
    EXPECT(strcmp(first, office.admin) != 0);
    EXPECT_SAID(200, &office, office.admin, "GET", "/v1/tokens", NULL);
    EXPECT_SAID(200, &office, first, "GET", "/v1/tokens", NULL);
    REQUIRE(world_restart(&office.world, NULL, NULL));
    EXPECT_SAID(200, &office, NULL, "GET", "/v1/runs", NULL); /* nobody is asked */
}

TEST(what_a_token_changed_is_an_event_with_its_name) {
    OFFICE();
    const char *made = ANSWER(&office, office.admin,
                              "201 POST /v1/tokens {\"scopes\":[\"write\"],\"name\":\"ci\"}");
    const char *text = strstr(made, "\"token\":\"");
    REQUIRE(text != NULL);
    const char *token = TEXT("%.*s", CAIRN_TOKEN_TEXT_BYTES - 1, text + 9);
    EXPECT_SAID(201, &office, token, "PUT", WORLD_RUN, "{}");
    EXPECT_HAS(ANSWER(&office, office.admin, "200 GET /v1/events?since=0"), "run.created",
               TEXT("\"actor\":\"ci/%.16s\"", token + 6), "token.made", " ci may write in *",
               TEXT("!%s", token + 23));
}

TEST(a_client_takes_another_token_from_its_file_when_the_first_is_refused) { /* rest.h#6 */
    OFFICE();
    CAIRN_AUTO_PTR(rest) rest = NULL;
    MADE(one, "read", "*");
    MADE(two, "read", "*");
    const char *path = TEXT("%s/token", office.world.folder);
    REQUIRE_OK(cairn_file_replace(path, cairn_view_of(one.text), 0600, &err));
    struct cairn_rest_options options = {.url = office.world.server.url, .token_file = path};
    REQUIRE_OK(cairn_rest_new(&options, &rest, &err));
    EXPECT_CODE(cairn_rest_call(rest, "GET", "/v1/runs", NULL, 0, NULL, &err), CAIRN_OK);
    REQUIRE_OK(office_end(&office, &one));
    EXPECT_CODE(cairn_rest_call(rest, "GET", "/v1/runs", NULL, 0, NULL, &err), CAIRN_UNAUTHORIZED);
    REQUIRE_OK(cairn_file_replace(path, cairn_view_of(two.text), 0600, &err));
    EXPECT_CODE(cairn_rest_call(rest, "GET", "/v1/runs", NULL, 0, NULL, &err), CAIRN_OK);
}

/* Of a server inside: whoever has that text. */
static enum cairn_code identify(struct srv_access *access, const char *text,
                                struct srv_caller *ret) {
    struct srv_credential credential;
    srv_credential_read(TEXT("Bearer %s", text), &credential);
    return srv_access_identify(access, &credential, ret, &err);
}

#define FIRST_TOKEN(name)                                                                          \
    CAIRN_AUTO(buf) name = {.limit = 200};                                                         \
    REQUIRE_OK(srv_access_first(&world.inside.server, &err));                                      \
    REQUIRE_OK(                                                                                    \
        cairn_file_load_line(TEXT("%s/admin.token", world.inside.settings.data_dir), &name, &err))

TEST(a_token_that_is_lent_to_a_command_reads_and_writes_and_does_nothing_else) /* operations.h#2 */
{
    INSIDE("--require-token");
    struct srv_access *access = NULL;
    struct srv_caller lender, command;
    char text[CAIRN_TOKEN_TEXT_BYTES], id[CAIRN_TOKEN_ID_BYTES];
    FIRST_TOKEN(admin);
    REQUIRE_OK(srv_access_new(&world.inside.server, &access, &err));
    REQUIRE_OK(identify(access, admin.data, &lender));
    EXPECT_EQ_U64(lender.scopes, CAIRN_SCOPES_ALL);
    REQUIRE_OK(srv_access_lend(access, &lender, text, id, &err));
    REQUIRE_OK(identify(access, text, &command));
    EXPECT_EQ_U64(command.scopes, CAIRN_SCOPE_READ | CAIRN_SCOPE_WRITE);
    srv_access_return(access, id);
    EXPECT_CODE(identify(access, text, &command), CAIRN_UNAUTHORIZED);
    srv_access_free(access);
}

/* The store says so later than the catalog, which is a backup that was put back. */
TEST(a_token_that_the_store_calls_revoked_is_refused_at_once_when_that_is_read) { /* A02 */
    INSIDE("--require-token");
    struct srv_caller caller;
    struct srv *server = &world.inside.server;
    FIRST_TOKEN(admin);
    REQUIRE_OK(srv_access_new(server, &server->access, &err));
    REQUIRE_OK(identify(server->access, admin.data, &caller));
    REQUIRE_OK(srv_revoked_put(world.worker, caller.id, &err));
    server->revocations = SRV_REVOCATIONS_UNREAD;
    srv_revoked_look(server, world.worker);
    EXPECT_CODE(identify(server->access, admin.data, &caller), CAIRN_UNAUTHORIZED);
    srv_access_free(server->access);
    server->access = NULL;
}

static enum cairn_code put_child(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    return srv_token_put(tx, argument, why);
}

TEST(a_token_that_is_revoked_while_it_makes_another_makes_none) {
    struct srv_token token = {
        .key.id = "0123456789abcdef", .projects = "*", .who = "x", .parent = "fedcba9876543210"};
    INSIDE("--require-token");
    struct srv_catalog *catalog = world.inside.server.catalog;
    EXPECT_CODE(srv_catalog_write(catalog, put_child, &token, &err), CAIRN_UNAUTHORIZED);
    struct srv_token maker = {.key.id = "fedcba9876543210", .projects = "*", .who = "x"};
    EXPECT_CODE(srv_catalog_write(catalog, put_child, &maker, &err), CAIRN_OK);
    EXPECT_CODE(srv_catalog_write(catalog, put_child, &token, &err), CAIRN_OK);
}

/* ---- a year of tokens ---- */

struct many {
    size_t count, from; /* numbered by their ids */
    int64_t created_ms, expires_ms;
};

static void number_of(size_t number, struct srv_token *ret) {
    *ret = (struct srv_token){.projects = "*", .who = "ci", .scopes = CAIRN_SCOPE_READ};
    snprintf(ret->key.id, sizeof(ret->key.id), "%016zx", number);
}

static enum cairn_code put_many(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    const struct many *many = argument;
    for (size_t i = 0; i < many->count; i++) {
        struct srv_token token;
        number_of(many->from + i, &token);
        token.created_ms = many->created_ms;
        /* the last one ended first */
        if (many->expires_ms) token.expires_ms = many->expires_ms - (int64_t)i;
        CAIRN_TRY(srv_token_put(tx, &token, why));
    }
    return CAIRN_OK;
}

static bool fill(struct cairn_world *world, size_t from, size_t count, int64_t ends_ms) {
    int64_t now_ms = world->inside.clock.wall_ms;
    struct many many = {count, from, now_ms, ends_ms ? now_ms + ends_ms : 0};
    return !srv_catalog_write(world->inside.server.catalog, put_many, &many, &err);
}

static enum cairn_code get_one(struct srv_tx *tx, void *argument, struct cairn_error *why) {
    struct srv_token *token = argument, found;
    return srv_token_get(tx, token->key.id, &found, why);
}

static bool is_there(struct cairn_world *world, size_t number) {
    struct srv_token token;
    number_of(number, &token);
    return !look_by(world->inside.server.catalog, get_one, &token, NULL);
}

TEST(tokens_that_expired_make_room_for_new_ones_the_first_to_end_first) { /* tokens.h#3 */
    INSIDE();
    REQUIRE(fill(&world, 1, SRV_TOKENS_MAX, 3600 * 1000));
    EXPECT(!fill(&world, 20001, 1, 0)); /* all of them are good */
    EXPECT(err.code == CAIRN_CONFLICT && strstr(err.message, "10000 tokens that are good"));
    world.inside.clock.wall_ms += 3600 * 1000 + 1;
    REQUIRE(fill(&world, 20001, 3, 0));
    EXPECT_ROWS(SRV_TOKENS_MAX, "tokens");
    EXPECT(is_there(&world, 20001) && is_there(&world, 20003) && is_there(&world, 1));
    EXPECT(is_there(&world, SRV_TOKENS_MAX - 3) && !is_there(&world, SRV_TOKENS_MAX - 2));
}

TEST(the_operator_gets_a_token_also_where_all_places_are_taken_by_good_ones) { /* tokens.h#4 */
    INSIDE("--require-token", "--new-admin-token");
    struct srv_caller caller;
    CAIRN_AUTO(buf) first = {.limit = 200}, last = {.limit = 200};
    struct srv *server = &world.inside.server;
    REQUIRE(fill(&world, 1, SRV_TOKENS_MAX, 0));
    const char *path = TEXT("%s/admin.token", world.inside.settings.data_dir);
    for (int i = 0; i < SRV_TOKENS_OPERATOR + 3; i++) { /* a unit that always asks for one */
        world.inside.clock.wall_ms += 1000;
        REQUIRE_OK(srv_access_first(server, &err));
        cairn_buf_clear(&last);
        REQUIRE_OK(cairn_file_load_line(path, i ? &last : &first, &err));
    }
    EXPECT_ROWS(SRV_TOKENS_KEPT, "tokens");
    REQUIRE_OK(srv_access_new(server, &server->access, &err));
    EXPECT_CODE(identify(server->access, last.data, &caller), CAIRN_OK);
    EXPECT_CODE(identify(server->access, first.data, &caller), CAIRN_UNAUTHORIZED);
    EXPECT(!fill(&world, 20001, 1, 0));
    srv_access_free(server->access);
    server->access = NULL;
}

TEST(a_token_that_is_made_is_good_at_once_and_no_other_is_read_again) { /* access.h */
    struct srv_caller caller;
    INSIDE();
    struct srv *server = &world.inside.server;
    REQUIRE_OK(srv_access_new(server, &server->access, &err));
    uint64_t looks = srv_access_looks(server->access);
    for (int i = 0; i < 20; i++) {
        json_t *reply = NULL, *body = json_pack("{s:[s]}", "scopes", "read");
        REQUIRE_OK(inside_call(&world.inside, "POST", "/v1/tokens", body, &reply));
        EXPECT_CODE(identify(server->access, world_text(reply, "token"), &caller), CAIRN_OK);
        json_decref(reply);
    }
    EXPECT_EQ_U64(srv_access_looks(server->access), looks);
    /* what a look that began before the row was there would lose stays, and one that is revoked
     * between row and word is not brought back */
    struct srv_token token = {.projects = "*", .who = "x", .scopes = CAIRN_SCOPE_READ};
    char text[CAIRN_TOKEN_TEXT_BYTES];
    cairn_token_make(server->random, text, &token.key);
    srv_access_reload(server->access);
    srv_access_add(server->access, &token, looks);
    EXPECT_CODE(identify(server->access, text, &caller), CAIRN_UNAUTHORIZED);
    srv_access_free(server->access);
    server->access = NULL;
}

TEST(a_token_whose_thousands_of_children_expired_is_revoked_and_those_that_are_good_are_named) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    INSIDE();
    REQUIRE(fill(&world, 1, 1, 0) && fill(&world, 2, 3000, 1000) && fill(&world, 3002, 2, 0));
    REQUIRE(world_sql(&world, "UPDATE tokens SET parent = '0000000000000001' WHERE token <> "
                              "'0000000000000001'"));
    world.inside.clock.wall_ms += 1001;
    const char *path = "/v1/tokens/0000000000000001";
    EXPECT_CODE(inside_call(&world.inside, "DELETE", path, NULL, NULL), CAIRN_CONFLICT);
    EXPECT(strstr(world.inside.err.message, "2 tokens were made by it that are good"));
    path = "/v1/tokens/0000000000000001?children=revoke";
    REQUIRE_OK(inside_call(&world.inside, "DELETE", path, NULL, &reply));
    EXPECT_EQ_U64(json_array_size(json_object_get(reply, "children")), 2);
    EXPECT(!is_there(&world, 1) && !is_there(&world, 3002) && is_there(&world, 2));
}

/* ---- several servers, and a catalog that is away ---- */

TEST(a02_a_token_revoked_at_one_server_is_refused_by_each_other_within_a_minute) {
    if (!cairn_postgres_wanted()) SKIP("a catalog of SQLite has one server");
    OFFICE();
    CAIRN_AUTO(world) two = {0};
    snprintf(two.folder, sizeof(two.folder), "%.200s/two", office.world.folder);
    snprintf(two.store_path, sizeof(two.store_path), "%s", office.world.store_path);
    snprintf(two.data_path, sizeof(two.data_path), "%.250s/data", two.folder);
    snprintf(two.catalog, sizeof(two.catalog), "%s", office.world.catalog);
    REQUIRE_OK(cairn_dir_make(two.data_path, 0700, &err));
    const char *from = TEXT("%s/grant.key", office.world.data_path);
    const char *to = TEXT("%s/grant.key", two.data_path);
    WITH_OK(buf, key, cairn_file_load(from, &key, &err));
    REQUIRE_OK(cairn_file_replace(to, cairn_buf_view(&key), 0600, &err));
    REQUIRE(world_restart(&two, WORLD_ARGS("--require-token"), NULL));
    struct office other = {.world = two};
    EXPECT(access("/", F_OK) == 0);
    EXPECT(access(TEXT("%s/admin.token", two.data_path), F_OK) !=
           0); /* there is an operator's already */
    MADE(mine, "read", "*");
    int status = 0;
    AWAIT((status = say(&other, mine.text, "GET", "/v1/runs", NULL, NULL, NULL)) == 200);
    REQUIRE_OK(office_end(&office, &mine));
    uint64_t begun_ms = cairn_mono_ms();
    while (status != 401 && cairn_mono_ms() < begun_ms + 60000) {
        status = say(&other, mine.text, "GET", "/v1/runs", NULL, NULL, NULL);
        cairn_test_pause_ms(50); /* step of a poll */
    }
    EXPECT_EQ_U64((uint64_t)status, 401);
}

/* No thread looks here, as where the catalog does not answer; the clock is the test's. */
TEST(a02_a_server_that_could_not_read_its_catalog_for_a_minute_takes_no_token) {
    if (!cairn_postgres_wanted()) SKIP("a catalog of SQLite has one server");
    INSIDE("--require-token");
    CAIRN_AUTO(buf) header = {.limit = 300};
    struct srv_credential credential;
    struct srv_caller caller;
    struct srv_access *access = NULL;
    FIRST_TOKEN(text);
    REQUIRE_OK(cairn_buf_printf(&header, &err, "Bearer %s", text.data));
    srv_credential_read(header.data, &credential);
    REQUIRE_OK(srv_access_new(&world.inside.server, &access, &err));
    EXPECT_CODE(srv_access_identify(access, &credential, &caller, &err), CAIRN_OK);
    inside_pass(&world.inside, SRV_TOKENS_OLD_MS - 1000);
    EXPECT_CODE(srv_access_identify(access, &credential, &caller, &err), CAIRN_OK);
    inside_pass(&world.inside, 1000);
    EXPECT_CODE(srv_access_identify(access, &credential, &caller, &err), CAIRN_UNAVAILABLE);
    srv_access_reload(access); /* it answers again */
    EXPECT_CODE(srv_access_identify(access, &credential, &caller, &err), CAIRN_OK);
    srv_access_free(access);
}

TEST(a_token_that_has_expired_stays_so_when_the_clock_is_set_back) { /* tokens.h: over */
    struct srv_caller caller;
    char text[CAIRN_TOKEN_TEXT_BYTES];
    INSIDE("--require-token");
    struct srv *server = &world.inside.server;
    int64_t *wall_ms = &world.inside.clock.wall_ms;
    struct srv_token token = {.scopes = CAIRN_SCOPE_READ,
                              .projects = "*",
                              .created_ms = *wall_ms,
                              .expires_ms = *wall_ms + 1000};
    cairn_token_make(server->random, text, &token.key);
    REQUIRE_OK(srv_catalog_write(server->catalog, put_child, &token, &err));
    REQUIRE_OK(srv_access_new(server, &server->access, &err));
    EXPECT_CODE(identify(server->access, text, &caller), CAIRN_OK);
    *wall_ms += 5000;
    EXPECT_CODE(identify(server->access, text, &caller), CAIRN_UNAUTHORIZED);
    *wall_ms -= 5000;
    EXPECT_CODE(identify(server->access, text, &caller), CAIRN_UNAUTHORIZED);
    *wall_ms += 5000;
    inside_round(&world.inside); /* the sweep notes it: another server knows, too */
    *wall_ms -= 5000;
    srv_access_free(server->access);
    REQUIRE_OK(srv_access_new(server, &server->access, &err));
    EXPECT_CODE(identify(server->access, text, &caller), CAIRN_UNAUTHORIZED);
    srv_access_free(server->access);
    server->access = NULL;
}
