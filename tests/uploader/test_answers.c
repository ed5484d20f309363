/* SPDX-License-Identifier: Apache-2.0 */
/* What a server, or something in its place, answers about saves that are under way. */

#include "tests/support/http_responder.h"
#include "tests/uploader/trainer.h"

static struct trainer_options options_of(const struct cairn_up_world *world) {
    return (struct trainer_options){.socket = world->socket_path, .job = "job-1"};
}

/* An ingress whose backend is gone: every request gets the same page. */
struct ingress {
    int status;
    const char *body;
    struct cairn_responder *responder;
};

static void page(struct cairn_responder_request *request) {
    const struct ingress *ingress = request->owner;
    const char *type = ingress->body[0] == '{' ? "application/json" : "text/html";
    cairn_responder_reply(request, ingress->status, TEXT("Content-Type: %s\r\n", type),
                          ingress->body);
}

static void ingress_stop(struct ingress *ingress) {
    cairn_responder_stop(ingress->responder);
    ingress->responder = NULL;
}

/* On the port of the server, which is down. */
#define INGRESS(name, ...)                                                                         \
    __attribute__((cleanup(ingress_stop))) struct ingress name = {__VA_ARGS__};                    \
    (name).responder = cairn_responder_start(                                                      \
        &(struct cairn_responder_options){.answer = page, .owner = &(name), .port = world.port});  \
    REQUIRE((name).responder != NULL)

static void outlive(int status) {
    WORLD();
    CAIRN_AUTO(trainer) trainer = {0};
    char state[32];
    struct trainer_options options = options_of(&world);
    options.world_size = 2; /* the other rank comes at the end: the version stays open until then */
    options.local_world_size = 2;
    REQUIRE(trainer_open(&trainer, &options));
    SAVE(before, &trainer, 1, 0, 1, 1000);
    REQUIRE_EVENT(&trainer, "durable", before.number);
    world_server_kill(&world);
    INGRESS(ingress, .status = status, .body = "<html>");
    SAVE(during, &trainer, 2, 1, 1, 1000);
    AWAIT(cairn_responder_requests(ingress.responder) >= 6);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, UINT32_MAX, 200, state), "none");
    ingress_stop(&ingress);
    REQUIRE(world_server_start(&world));
    CAIRN_AUTO(trainer) other = {0};
    options.rank = 1;
    REQUIRE(trainer_open(&other, &options));
    SAVE(save, &other, 1, 0, 1, 1000);
    REQUIRE(trainer_save(&other, 2, 1, 1, 1000, &save));
    EXPECT_VERDICT(&trainer, before.number, "committed");
    EXPECT_VERDICT(&trainer, during.number, "committed");
}

CASE(v32_a_bare_404_of_a_proxy_ends_nothing, outlive(404)); /* Q48 */
CASE(v32_a_bare_403_of_a_proxy_ends_nothing, outlive(403)); /* Q48 */
CASE(v32_a_bare_413_of_a_proxy_ends_nothing, outlive(413)); /* Q48 */

/* Its first shard is durable before the seal, when the catalog has another generation. */
TEST(v31_a_save_that_is_being_staged_outlives_a_restarted_server) { /* Q47 */
    WORLD_WITH(.uploader_args = ARGS("--heartbeat=100ms"));
    TRAINER_AS(trainer, options_of(&world));
    BEGUN(save, &trainer, 1, 1);
    REQUIRE(trainer_stage(&trainer, &save, 0, 2, 1000));
    for (int i = 0; i < 2; i++) {
        REQUIRE_EVENT(&trainer, "released", save.number);
    }
    /* The begin is told. */
    REQUIRE(world_await_state(&world, save.version, "open", HANG_MS));
    REQUIRE(world_server_restart(&world));
    REQUIRE(world_await_heartbeats(&world, 3)); /* the generation is another one */
    SEAL_AND_COMMIT(save, &trainer);
}

/* The row of its version is lost, of which a heartbeat's answer speaks before the seal. */
TEST(v31_a_save_that_is_being_staged_outlives_a_server_that_does_not_know_it) { /* Q47 */
    WORLD_WITH(.uploader_args = ARGS("--heartbeat=100ms"));
    TRAINER_AS(trainer, options_of(&world));
    BEGUN(save, &trainer, 1, 1);
    REQUIRE(trainer_stage(&trainer, &save, 0, 2, 1000));
    for (int i = 0; i < 2; i++) {
        REQUIRE_EVENT(&trainer, "released", save.number);
    }
    REQUIRE(world_await_state(&world, save.version, "open", HANG_MS));
    world_server_kill(&world);
    INGRESS(ingress, .status = 200,
            .body = TEXT(
                "{\"catalog\":\"c\",\"fenced\":[],\"foreign\":[],\"generation\":1,"
                "\"ended\":[],\"peers\":[],\"finish\":[],\"unknown\":[\"%s\"],\"versions\":[]}",
                save.version));
    AWAIT(cairn_responder_requests(ingress.responder) >= 6);
    ingress_stop(&ingress);
    REQUIRE(world_server_start(&world));
    SEAL_AND_COMMIT(save, &trainer);
}

/* The server lost its key: what it signed before is foreign to it. */
static bool never(void *owner) {
    (void)owner;
    return false;
}

TEST(v33_a_foreign_grant_ends_its_saves_loudly_and_the_others_go_on) { /* Q49 */
    FAULTY_WORLD("put:*/runs/llm/seven/*:*:hang", .uploader_args = ARGS("--heartbeat=100ms"));
    TRAINER_AS(old, options_of(&world));
    SAVE(save, &old, 1, 0, 1, 1000);
    world_server_kill(&world);
    const char *key = TEXT("%s/server/grant.key", world.folder);
    REQUIRE(unlink(key) == 0);
    setenv("CAIRN_NEW_GRANT_KEY", "true", 1);
    bool started = world_server_start(&world);
    unsetenv("CAIRN_NEW_GRANT_KEY");
    REQUIRE(started);
    EXPECT_VERDICT(&old, save.number, "aborted");
    TRAINER(fresh, .job = "job-2", .run = "llm/eight");
    COMMITTED(next, &fresh, 1, 0, 1, 1000);
    /* What is counted under the foreign grant later ends like what was there. */
    CAIRN_AUTO_JSON json_t *counted = trainer_call(
        &old, json_pack("{s:s, s:i, s:i, s:s}", "t", "count", "step", 2, "n", 1, "reason", "none"));
    EXPECT(counted != NULL);
    (void)world_await(never, NULL, 1000);
    world_uploader_kill(&world);
    EXPECT_EQ_U64(world_open_entries(&world), 2); /* the two sessions */
}

static bool seal_with_table(struct cairn_trainer *trainer, const struct trainer_save *save) {
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    CAIRN_AUTO(buf) table = {0};
    CAIRN_AUTO(frame) frame = {0};
    uint64_t count = save->shards[0].bytes / 4;
    struct cairn_table_shard shard = {cairn_view_of(save->shards[0].name), count * 4, false};
    struct cairn_tensor tensor = {.name = CAIRN_VIEW("w"),
                                  .dtype = CAIRN_DTYPE_F32,
                                  .dimension_count = 1,
                                  .shape = {count},
                                  .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment whole = {
        .form = CAIRN_FRAGMENT_FLAT, .count = {count}, .size_bytes = count * 4};
    return !cairn_table_builder_new(trainer->rank, &builder, &trainer->err) &&
           !cairn_table_add_shard(builder, &shard, &whole.shard, &trainer->err) &&
           !cairn_table_add_tensor(builder, &tensor, &whole, 1, &trainer->err) &&
           !cairn_table_finish(builder, &table, &trainer->err) &&
           !trainer_ask(trainer,
                        json_pack("{s:s, s:I, s:[]}", "t", "seal", "save", (json_int_t)save->number,
                                  "replicated"),
                        cairn_buf_view(&table), NULL, 0, &frame);
}

/* The server was never told of the table, and its trainer is gone. */
TEST(v21_a_seal_whose_table_only_the_journal_has_is_committed_with_it) { /* Q16, Q33 */
    WORLD();
    struct trainer_save save;
    {
        TRAINER_AS(trainer, options_of(&world));
        world_server_kill(&world);
        REQUIRE(trainer_begin(&trainer, 1, 1, &save));
        REQUIRE(trainer_stage(&trainer, &save, 0, 1, 4000));
        REQUIRE(seal_with_table(&trainer, &save));
        REQUIRE_EVENT(&trainer, "durable", save.number);
        world_uploader_kill(&world);
    }
    REQUIRE(world_server_start(&world));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT_STATE(&world, save.version, "committed");
    const char *path = TEXT("/v1/runs/llm/seven/checkpoints/%s/tensors", save.version);
    CAIRN_AUTO_JSON json_t *tensors = world_get(&world, path);
    EXPECT_EQ_U64(json_array_size(json_object_get(tensors, "items")), 1);
}

/* What was deleted meanwhile must not be committed without its bytes. */
TEST(v16_what_another_catalog_generation_asks_for_and_is_gone_fails_its_save) { /* Q19 */
    WORLD_WITH(.uploader_args = ARGS("--heartbeat=100ms"));
    CAIRN_AUTO(trainer) trainer = {0};
    char state[32], path[800];
    struct trainer_options options = options_of(&world);
    options.world_size = 2; /* the version stays open until the other rank comes */
    REQUIRE(trainer_open(&trainer, &options));
    SAVE(save, &trainer, 1, 0, 2, 1000);
    REQUIRE_EVENT(&trainer, "durable", save.number);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 500, state), "none");
    world_server_kill(&world);
    snprintf(path, sizeof(path), "%s/llm/seven/%012d/%s/data/%s", world.store_path, 1, save.version,
             save.shards[1].name);
    REQUIRE(unlink(path) == 0);
    REQUIRE(world_server_start(&world));
    EXPECT_VERDICT(&trainer, save.number, "failed");
    EXPECT_STATE(&world, save.version, "aborting");
    const char *reason = world_reason(&world, save.version);
    printf("  reason: %s\n", reason ? reason : "none");
    EXPECT(reason && strstr(reason, save.shards[1].name) && strstr(reason, "not in the store any"));
}
