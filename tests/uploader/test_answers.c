/* SPDX-License-Identifier: Apache-2.0 */
/* What a server, or something in its place, answers about saves that are under way. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/table/dtype.h"
#include "api/table/table.h"
#include "common/clock.h"
#include "tests/uploader/trainer.h"

static struct trainer_options options_of(const struct cairn_up_world *world) {
    return (struct trainer_options){.socket = world->socket_path, .job = "job-1"};
}

/* An ingress whose backend is gone: every request gets the same page. */
struct ingress {
    int fd;
    const char *status, *body;
    _Atomic bool stop;
    _Atomic unsigned answered;
    pthread_t thread;
};

static void *ingress_main(void *argument) {
    struct ingress *ingress = argument;
    char head[4096], page[600];
    snprintf(page, sizeof(page),
             "HTTP/1.1 %s\r\nContent-Type: %s\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             ingress->status, ingress->body[0] == '{' ? "application/json" : "text/html",
             strlen(ingress->body), ingress->body);
    while (!ingress->stop) {
        struct pollfd waiting = {.fd = ingress->fd, .events = POLLIN};
        if (poll(&waiting, 1, 50) <= 0) continue;
        int fd = accept4(ingress->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        if (read(fd, head, sizeof(head)) > 0 && write(fd, page, strlen(page)) > 0)
            ingress->answered++;
        shutdown(fd, SHUT_WR);
        while (read(fd, head, sizeof(head)) > 0) continue;
        close(fd);
    }
    return NULL;
}

static bool ingress_start(struct ingress *ingress, uint16_t port, const char *status,
                          const char *body) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    *ingress = (struct ingress){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    ingress->status = status;
    ingress->body = body;
    (void)setsockopt(ingress->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    return !bind(ingress->fd, (struct sockaddr *)&at, sizeof(at)) && !listen(ingress->fd, 16) &&
           !pthread_create(&ingress->thread, NULL, ingress_main, ingress);
}

static void ingress_stop(struct ingress *ingress) {
    ingress->stop = true;
    pthread_join(ingress->thread, NULL);
    close(ingress->fd);
}

static bool answered_some(void *owner) {
    return ((struct ingress *)owner)->answered >= 6;
}

static void outlive(const char *status) {
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct ingress ingress;
    struct trainer_save before, during;
    char state[32];
    REQUIRE(world_open(&world, &(struct world_options){0}));
    struct trainer_options options = options_of(&world);
    options.world_size = 2; /* the other rank comes at the end: the version stays open until then */
    options.local_world_size = 2;
    REQUIRE(trainer_open(&trainer, &options));
    REQUIRE(trainer_save(&trainer, 1, 0, 1, 1000, &before));
    CAIRN_AUTO_JSON json_t *durable = trainer_event(&trainer, "durable", before.number, 10000);
    REQUIRE(durable != NULL);
    world_server_kill(&world);
    REQUIRE(ingress_start(&ingress, world.port, status, "<html>"));
    REQUIRE(trainer_save(&trainer, 2, 1, 1, 1000, &during));
    EXPECT(world_await(answered_some, &ingress, 20000));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, UINT32_MAX, 200, state), "none");
    ingress_stop(&ingress);
    REQUIRE(world_server_start(&world));
    CAIRN_AUTO(trainer) other = {0};
    options.rank = 1;
    REQUIRE(trainer_open(&other, &options));
    struct trainer_save save;
    REQUIRE(trainer_save(&other, 1, 0, 1, 1000, &save));
    REQUIRE(trainer_save(&other, 2, 1, 1, 1000, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, before.number, 20000, state), "committed");
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, during.number, 20000, state), "committed");
}

TEST(v32_a_bare_404_of_a_proxy_ends_nothing) { /* Q48 */
    outlive("404 Not Found");
}
TEST(v32_a_bare_403_of_a_proxy_ends_nothing) { /* Q48 */
    outlive("403 Forbidden");
}
TEST(v32_a_bare_413_of_a_proxy_ends_nothing) { /* Q48 */
    outlive("413 Payload Too Large");
}

/* Its first shard is durable before the seal, when the catalog has another generation. */
TEST(v31_a_save_that_is_being_staged_outlives_a_restarted_server) /* Q47 */
{
    static const char *const often[] = {"--heartbeat=100ms", NULL};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    char state[32];
    REQUIRE(world_open(&world, &(struct world_options){.uploader_args = often}));
    struct trainer_options options = options_of(&world);
    REQUIRE(trainer_open(&trainer, &options));
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    REQUIRE(trainer_stage(&trainer, &save, 0, 2, 1000));
    for (int i = 0; i < 2; i++) {
        CAIRN_AUTO_JSON json_t *released = trainer_event(&trainer, "released", save.number, 5000);
        REQUIRE(released != NULL);
    }
    /* The begin is told. */
    REQUIRE(world_await_state(&world, save.version, "open", (uint32_t)cairn_test_hang_ms()));
    world_server_kill(&world);
    REQUIRE(world_server_start(&world));
    REQUIRE(world_await_heartbeats(&world, 3)); /* the generation is another one */
    EXPECT(trainer_seal(&trainer, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 10000, state), "committed");
}

/* The row of its version is lost, of which a heartbeat's answer speaks before the seal. */
TEST(v31_a_save_that_is_being_staged_outlives_a_server_that_does_not_know_it) /* Q47 */
{
    static const char *const often[] = {"--heartbeat=100ms", NULL};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    struct ingress ingress;
    char state[32], answer[400];
    REQUIRE(world_open(&world, &(struct world_options){.uploader_args = often}));
    struct trainer_options options = options_of(&world);
    REQUIRE(trainer_open(&trainer, &options));
    REQUIRE(trainer_begin(&trainer, 1, 1, &save));
    REQUIRE(trainer_stage(&trainer, &save, 0, 2, 1000));
    for (int i = 0; i < 2; i++) {
        CAIRN_AUTO_JSON json_t *released = trainer_event(&trainer, "released", save.number, 5000);
        REQUIRE(released != NULL);
    }
    REQUIRE(world_await_state(&world, save.version, "open", 5000));
    world_server_kill(&world);
    snprintf(answer, sizeof(answer),
             "{\"catalog\":\"c\",\"fenced\":[],\"foreign\":[],\"generation\":1,"
             "\"ended\":[],\"peers\":[],\"finish\":[],\"unknown\":[\"%s\"],\"versions\":[]}",
             save.version);
    REQUIRE(ingress_start(&ingress, world.port, "200 OK", answer));
    EXPECT(world_await(answered_some, &ingress, 20000));
    ingress_stop(&ingress);
    REQUIRE(world_server_start(&world));
    EXPECT(trainer_seal(&trainer, &save));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 20000, state), "committed");
}

/* The server lost its key: what it signed before is foreign to it. */
static bool never(void *owner) {
    (void)owner;
    return false;
}

TEST(v33_a_foreign_grant_ends_its_saves_loudly_and_the_others_go_on) /* Q49 */
{
    NEEDS_POINTS();
    static const char *const often[] = {"--heartbeat=100ms", NULL};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) old = {0};
    CAIRN_AUTO(trainer) fresh = {0};
    struct trainer_save save, next;
    char state[32], key[400];
    REQUIRE(world_open(&world, &(struct world_options){.fault = "put:*/runs/llm/seven/*:*:hang",
                                                       .uploader_args = often}));
    struct trainer_options options = options_of(&world);
    REQUIRE(trainer_open(&old, &options));
    REQUIRE(trainer_save(&old, 1, 0, 1, 1000, &save));
    world_server_kill(&world);
    snprintf(key, sizeof(key), "%s/server/grant.key", world.folder);
    REQUIRE(unlink(key) == 0);
    setenv("CAIRN_NEW_GRANT_KEY", "true", 1);
    bool started = world_server_start(&world);
    unsetenv("CAIRN_NEW_GRANT_KEY");
    REQUIRE(started);
    EXPECT_EQ_TEXT(trainer_verdict(&old, save.number, 10000, state), "aborted");
    struct trainer_options other = {
        .socket = world.socket_path, .job = "job-2", .run = "llm/eight"};
    REQUIRE(trainer_open(&fresh, &other));
    REQUIRE(trainer_save(&fresh, 1, 0, 1, 1000, &next));
    EXPECT_EQ_TEXT(trainer_verdict(&fresh, next.number, 10000, state), "committed");
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
TEST(v21_a_seal_whose_table_only_the_journal_has_is_committed_with_it) /* Q16, Q33 */
{
    CAIRN_AUTO(up_world) world = {0};
    struct trainer_save save;
    char path[200];
    REQUIRE(world_open(&world, &(struct world_options){0}));
    {
        CAIRN_AUTO(trainer) trainer = {0};
        struct trainer_options options = options_of(&world);
        REQUIRE(trainer_open(&trainer, &options));
        world_server_kill(&world);
        REQUIRE(trainer_begin(&trainer, 1, 1, &save));
        REQUIRE(trainer_stage(&trainer, &save, 0, 1, 4000));
        REQUIRE(seal_with_table(&trainer, &save));
        CAIRN_AUTO_JSON json_t *durable = trainer_event(&trainer, "durable", save.number, 10000);
        REQUIRE(durable != NULL);
        world_uploader_kill(&world);
    }
    REQUIRE(world_server_start(&world));
    REQUIRE(world_uploader_start(&world, NULL, NULL));
    EXPECT(world_await_state(&world, save.version, "committed", 20000));
    snprintf(path, sizeof(path), "/v1/runs/llm/seven/checkpoints/%s/tensors", save.version);
    CAIRN_AUTO_JSON json_t *tensors = world_get(&world, path);
    EXPECT_EQ_U64(json_array_size(json_object_get(tensors, "items")), 1);
}

/* What was deleted meanwhile must not be committed without its bytes. */
TEST(v16_what_another_catalog_generation_asks_for_and_is_gone_fails_its_save) /* Q19 */
{
    static const char *const often[] = {"--heartbeat=100ms", NULL};
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save save;
    char state[32], path[800];
    REQUIRE(world_open(&world, &(struct world_options){.uploader_args = often}));
    struct trainer_options options = options_of(&world);
    options.world_size = 2; /* the version stays open until the other rank comes */
    REQUIRE(trainer_open(&trainer, &options));
    REQUIRE(trainer_save(&trainer, 1, 0, 2, 1000, &save));
    CAIRN_AUTO_JSON json_t *durable = trainer_event(&trainer, "durable", save.number, 10000);
    REQUIRE(durable != NULL);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 500, state), "none");
    world_server_kill(&world);
    snprintf(path, sizeof(path), "%s/llm/seven/%012d/%s/data/%s", world.store_path, 1, save.version,
             save.shards[1].name);
    REQUIRE(unlink(path) == 0);
    REQUIRE(world_server_start(&world));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, save.number, 20000, state), "failed");
    EXPECT(world_await_state(&world, save.version, "aborting", 5000));
    snprintf(path, sizeof(path), "/v1/runs/llm/seven/checkpoints/%s", save.version);
    CAIRN_AUTO_JSON json_t *version = world_get(&world, path);
    const char *reason = json_string_value(json_object_get(version, "reason"));
    printf("  reason: %s\n", reason ? reason : "none");
    EXPECT(reason && strstr(reason, save.shards[1].name) && strstr(reason, "not in the store any"));
}
