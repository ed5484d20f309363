/* SPDX-License-Identifier: Apache-2.0 */
/* A server that fails at one save, for as long as it is asked about it. */

#include "tests/support/http_responder.h"
#include "tests/uploader/trainer.h"

/* Between uploader and server. A POST that has `poison` in it is answered 500; while `away`,
 * everything is answered 503. */
struct proxy {
    struct cairn_responder *responder;
    uint16_t server_port;
    pthread_mutex_t lock;
    char poison[128];
    bool away;
    _Atomic unsigned failed;
};

static void refuse(struct cairn_responder_request *request, int status, const char *code) {
    cairn_responder_reply(request, status, "Content-Type: application/problem+json\r\n",
                          TEXT("{\"code\":\"%s\",\"title\":\"no\",\"status\":%d}", code, status));
}

/* On a connection of its own, which the server ends. */
static void pass_on(struct proxy *proxy, struct cairn_responder_request *request) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(proxy->server_port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char bytes[16384];
    const char *line = strstr(request->head, "\r\n");
    request->close = true;
    if (connect(server, (struct sockaddr *)&at, sizeof(at)) == 0) {
        dprintf(server, "%.*s\r\nConnection: close%s%.*s", (int)(line - request->head),
                request->head, line, (int)request->body.size, (const char *)request->body.data);
        for (ssize_t got; (got = recv(server, bytes, sizeof(bytes), 0)) > 0;)
            cairn_responder_send(request, bytes, (size_t)got);
    }
    close(server);
}

static void answer(struct cairn_responder_request *request) {
    struct proxy *proxy = request->owner;
    pthread_mutex_lock(&proxy->lock);
    bool away = proxy->away;
    bool poisoned = *proxy->poison && !strcmp(request->method, "POST") && request->body.size &&
                    strstr(request->body.data, proxy->poison);
    pthread_mutex_unlock(&proxy->lock);
    if (poisoned) proxy->failed++;
    if (away) {
        refuse(request, 503, "unavailable");
    } else if (poisoned) {
        refuse(request, 500, "internal");
    } else {
        pass_on(proxy, request);
    }
}

static void cairn_proxy_release(struct proxy *proxy) {
    cairn_responder_stop(proxy->responder);
}

static void set(struct proxy *proxy, const char *poison, bool away) {
    pthread_mutex_lock(&proxy->lock);
    snprintf(proxy->poison, sizeof(proxy->poison), "%s", poison);
    proxy->away = away;
    pthread_mutex_unlock(&proxy->lock);
}

/* A world whose uploader asks the server through the proxy; the proxy ends after it. */
static bool open_behind(struct cairn_up_world *world, struct proxy *proxy) {
    static const char *args[2];
    proxy->responder =
        cairn_responder_start(&(struct cairn_responder_options){.answer = answer, .owner = proxy});
    if (!proxy->responder) return false;
    args[0] = TEXT("--server=%s", cairn_responder_url(proxy->responder));
    if (!world_open(world, &(struct world_options){.no_server = true, .uploader_args = args}))
        return false;
    if (!world_server_start(world)) return false;
    proxy->server_port = world->port;
    return true;
}

static struct trainer_options options_of(const struct cairn_up_world *world, uint32_t rank,
                                         uint32_t ranks) {
    return (struct trainer_options){.socket = world->socket_path,
                                    .job = "job-1",
                                    .rank = rank,
                                    .world_size = ranks,
                                    .local_world_size = ranks};
}

#define BEHIND                                                                                     \
    __attribute__((cleanup(cairn_proxy_release))) struct proxy proxy = {                           \
        .lock = PTHREAD_MUTEX_INITIALIZER};                                                        \
    CAIRN_AUTO(up_world) world = {0};                                                              \
    REQUIRE(open_behind(&world, &proxy))

/* ---- tests ---- */

TEST(a_save_that_the_server_fails_at_holds_up_no_other_and_its_rank_is_told) { /* Q6, Q9, Q43 */
    BEHIND;
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = options_of(&world, 0, 1);
    char state[32];
    REQUIRE(trainer_open(&trainer, &options));
    set(&proxy, "\"step\":77", false);
    SAVE(bad, &trainer, 77, 0, 1, 1000);
    COMMITTED(good, &trainer, 8, 1, 1, 1000);
    CAIRN_AUTO_JSON json_t *problem = trainer_event(&trainer, "problem", bad.number, HANG_MS);
    REQUIRE(problem != NULL);
    const char *text = json_string_value(json_object_get(problem, "message"));
    EXPECT(text && strstr(text, "the server has failed"));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(problem, "code")), "unavailable");
    unsigned tried = proxy.failed;
    EXPECT(tried >= 5 && tried < 40);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, bad.number, 100, state), "none"); /* not failed */
    set(&proxy, "", false);
    EXPECT_VERDICT(&trainer, bad.number, "committed");
    CAIRN_AUTO_JSON json_t *none = trainer_event(&trainer, "problem", UINT32_MAX, 10);
    EXPECT(none == NULL);
}

struct asked {
    struct cairn_up_world *world;
    const char *version;
};
static bool one_rank_is_sealed(void *owner) {
    struct asked *asked = owner;
    const char *path = TEXT("/v1/runs/llm/seven/checkpoints/%s", asked->version);
    CAIRN_AUTO_JSON json_t *version = world_get(asked->world, path);
    return json_integer_value(json_object_get(version, "ranks_sealed")) == 1;
}

TEST(what_is_told_with_a_save_that_the_server_fails_at_is_told_alone) { /* Q6 */
    BEHIND;
    CAIRN_AUTO(trainer) first = {0}, second = {0};
    struct cairn_trainer *trainers[] = {&first, &second};
    struct trainer_save saves[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct trainer_options options = options_of(&world, i, 2);
        REQUIRE(trainer_open(trainers[i], &options));
        REQUIRE(trainer_begin(trainers[i], 1, 1, &saves[i]));
    }
    REQUIRE(world_await_state(&world, saves[0].version, "open", HANG_MS));
    set(&proxy, "", true);
    for (uint32_t i = 0; i < 2; i++) {
        REQUIRE(trainer_stage(trainers[i], &saves[i], 0, 1, 1000));
        REQUIRE(trainer_seal(trainers[i], &saves[i]));
    }
    for (uint32_t i = 0; i < 2; i++) { /* both are due when the server is back */
        REQUIRE_EVENT(trainers[i], "durable", saves[i].number);
    }
    set(&proxy, "\"rank\":1", false);
    struct asked asked = {&world, saves[0].version};
    AWAIT(one_rank_is_sealed(&asked));
    EXPECT(proxy.failed > 0);
    set(&proxy, "", false);
    for (uint32_t i = 0; i < 2; i++) EXPECT_VERDICT(trainers[i], saves[i].number, "committed");
}

TEST(a_trainer_of_the_socket_before_hears_no_problem) { /* docs/socket.md */
    BEHIND;
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_options options = options_of(&world, 0, 1);
    options.socket_max = 2;
    REQUIRE(trainer_open(&trainer, &options));
    set(&proxy, "\"step\":77", false);
    SAVE(bad, &trainer, 77, 0, 1, 1000);
    COMMITTED(good, &trainer, 8, 1, 1, 1000);
    CAIRN_AUTO_JSON json_t *none = trainer_event(&trainer, "problem", UINT32_MAX, 3000);
    EXPECT(none == NULL);
}
