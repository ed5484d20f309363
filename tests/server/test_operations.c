/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=again */
/* Whose operation runs next, and how many one token may have (operations.h#1). The work is the
 * test's own: it notes that it runs, and ends when the test lets it. */
#include "server/operations/operations.h"
#include "tests/server/world.h"

#define err world.err /* of the macros */

/* The letters of those that have begun, in that order. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char begun[200];
    size_t count, ended, may_end;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static enum cairn_code work(struct srv *server, struct cairn_store_worker *worker,
                            const json_t *arguments, void *owner, json_t **ret_result,
                            struct cairn_error *why) {
    const char *letter = json_string_value(json_object_get(arguments, "letter"));
    (void)server, (void)worker, (void)owner, (void)why;
    pthread_mutex_lock(&gate.lock);
    gate.begun[gate.count++] = letter[0];
    pthread_cond_broadcast(&gate.changed);
    while (letter[0] != '+' && gate.ended >= gate.may_end)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.ended += letter[0] != '+';
    pthread_mutex_unlock(&gate.lock);
    *ret_result = json_object();
    return CAIRN_OK;
}

static void wait_for_begun(size_t count) {
    pthread_mutex_lock(&gate.lock);
    while (gate.count < count) pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void let_end(size_t count) {
    pthread_mutex_lock(&gate.lock);
    gate.may_end += count;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void forget(void) {
    memset(gate.begun, 0, sizeof(gate.begun));
    gate.count = gate.ended = gate.may_end = 0;
}

static enum cairn_code begin(struct srv *server, const char *project, const char *letter,
                             bool reads, const char *token, struct cairn_error *why) {
    static unsigned number;
    struct cairn_run_name name = {.run = "r"};
    struct srv_caller caller = {.kind = SRV_TOKEN, .projects = "*", .who = "somebody"};
    char id[SRV_OPERATION_BYTES];
    bool made = false;
    CAIRN_AUTO_JSON json_t *request =
        json_pack("{s:s, s:i}", "letter", letter, "number", (int)number++);
    snprintf(name.project, sizeof(name.project), "%s", project);
    snprintf(caller.id, sizeof(caller.id), "%s", token);
    struct srv_operation_wish wish = {.kind = reads ? "verify" : "promote",
                                      .reads = reads,
                                      .work = work,
                                      .name = &name,
                                      .caller = &caller,
                                      .path = "x",
                                      .request = request,
                                      .arguments = request,
                                      .place.folder_fd = -1};
    return srv_operation_begin(server, &wish, id, &made, why);
}

/* A server with one place for operations; on disk, since threads use it. */
#define OPERATIONS(server)                                                                         \
    CAIRN_AUTO(world) world = {.inside = {.on_disk = true}};                                       \
    REQUIRE(world_start_inside(&world, WORLD_ARGS("--operations-at-once=1")));                     \
    struct srv *server = &world.inside.server;                                                     \
    REQUIRE_OK(srv_operations_new(server, &server->operations, &err));                             \
    forget()

TEST(projects_take_turns_at_the_places_for_operations) { /* operations.h#1 */
    OPERATIONS(server);
    REQUIRE_OK(begin(server, "a", "1", false, "", &err));
    wait_for_begun(1);
    REQUIRE_OK(begin(server, "a", "2", false, "", &err));
    REQUIRE_OK(begin(server, "a", "3", false, "", &err));
    REQUIRE_OK(begin(server, "b", "4", false, "", &err));
    REQUIRE_OK(begin(server, "b", "5", false, "", &err));
    REQUIRE_OK(begin(server, "c", "6", false, "", &err));
    let_end(6);
    wait_for_begun(6);
    EXPECT_EQ_TEXT(gate.begun, "146253");
    srv_operations_free(server->operations);
    server->operations = NULL;
}

TEST(what_only_reads_holds_up_no_change) { /* operations.h#1 */
    OPERATIONS(server);
    REQUIRE_OK(begin(server, "a", "v", true, "", &err));
    wait_for_begun(1);
    REQUIRE_OK(begin(server, "a", "w", true, "", &err)); /* it waits for the first */
    REQUIRE_OK(begin(server, "a", "+", false, "", &err));
    wait_for_begun(2);
    EXPECT_EQ_TEXT(gate.begun, "v+");
    let_end(2);
    wait_for_begun(3);
    EXPECT_EQ_TEXT(gate.begun, "v+w");
    srv_operations_free(server->operations);
    server->operations = NULL;
}

TEST(one_token_has_so_many_operations_and_leaves_others_room) { /* operations.h#1 */
    OPERATIONS(server);
    for (int i = 0; i < SRV_OPERATIONS_OF_TOKEN_MAX; i++)
        EXPECT_CODE(begin(server, "a", "1", i % 2, "one", &err), CAIRN_OK);
    EXPECT_FAILS(begin(server, "a", "1", false, "one", &err), CAIRN_BUSY, "somebody");
    EXPECT_CODE(begin(server, "a", "1", true, "one", &err), CAIRN_BUSY);
    EXPECT_CODE(begin(server, "a", "2", false, "two", &err), CAIRN_OK);
    let_end(SRV_OPERATIONS_OF_TOKEN_MAX + 1);
    wait_for_begun(SRV_OPERATIONS_OF_TOKEN_MAX + 1);
    srv_operations_free(server->operations);
    server->operations = NULL;
}
