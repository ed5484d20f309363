/* SPDX-License-Identifier: Apache-2.0 */
/* What answers to heartbeats do to saves; the server is scripted, so that nothing else tells it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/uploader/trainer.h"

#define CATALOG "00000000-0000-4000-8000-000000000001"

struct script {
    int fd;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic unsigned begins, listings, fails, generation;
    _Atomic unsigned heartbeats;        /* so many have come */
    _Atomic unsigned opens;             /* so many answers more call the version open */
    _Atomic bool over;                  /* they call it given up */
    _Atomic bool unknown, fenced, deaf; /* deaf: to heartbeats */
    char version[48];
};

static void say(int fd, const char *body) {
    dprintf(fd,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            strlen(body), body);
}

static void answer_heartbeat(struct script *script, int fd) {
    char body[512], unknown[64] = "", fenced[80] = "", versions[160] = "";
    bool opens = script->opens > 0;
    script->heartbeats++;
    if (opens) script->opens--;
    if (opens || script->over)
        snprintf(versions, sizeof(versions),
                 "{\"version\":\"%s\",\"step\":1,\"n\":1,\"state\":\"%s\",\"recorded\":false}",
                 script->version, opens ? "open" : "aborting");
    if (script->unknown) snprintf(unknown, sizeof(unknown), "\"%s\"", script->version);
    if (script->fenced)
        snprintf(fenced, sizeof(fenced), "%s",
                 "{\"project\":\"llm\",\"run\":\"seven\",\"attempt\":1}");
    if (script->deaf) {
        dprintf(fd, "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                    "Content-Length: 0\r\n\r\n");
        return;
    }
    script->unknown = false; /* said once */
    snprintf(body, sizeof(body),
             "{\"catalog\":\"%s\",\"generation\":%u,\"fenced\":[%s],\"versions\":[%s],"
             "\"unknown\":[%s],\"foreign\":[],\"ended\":[],\"peers\":[],\"finish\":[]}",
             CATALOG, script->generation, fenced, versions, unknown);
    say(fd, body);
}

static void answer(struct script *script, int fd, const char *request) {
    if (!strncmp(request, "PUT /v1/nodes/", 14)) {
        answer_heartbeat(script, fd);
    } else if (!strncmp(request, "POST", 4) && strstr(request, "/checkpoints HTTP")) {
        script->begins++;
        say(fd, "{\"results\":[{\"status\":200,\"state\":\"open\",\"recorded\":false}]}");
    } else if (!strncmp(request, "POST", 4) && strstr(request, "/shards HTTP")) {
        script->listings++;
        say(fd, "{\"state\":\"open\"}");
    } else if (!strncmp(request, "POST", 4) && strstr(request, "/fail HTTP")) {
        script->fails++;
        say(fd, "{\"state\":\"aborting\"}");
    } else {
        cairn_test_pause_ms(100); /* pause of a stand-in: it is slow */
        say(fd, "{\"state\":\"open\"}");
    }
}

/* Head and body of one request; enough for what an uploader sends here. */
static bool read_request(int fd, char *ret, size_t size) {
    size_t got = 0;
    for (;;) {
        ssize_t more = read(fd, ret + got, size - 1 - got);
        if (more <= 0) return false;
        got += (size_t)more;
        ret[got] = '\0';
        const char *end = strstr(ret, "\r\n\r\n"), *length = strcasestr(ret, "content-length:");
        if (!end) continue;
        size_t body = length && length < end ? strtoul(length + 15, NULL, 10) : 0;
        if (got >= (size_t)(end + 4 - ret) + body) return true;
    }
}

static void *script_main(void *argument) {
    struct script *script = argument;
    char request[16384];
    while (!script->stop) {
        struct pollfd waiting = {.fd = script->fd, .events = POLLIN};
        if (poll(&waiting, 1, 50) <= 0) continue;
        int fd = accept4(script->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        if (read_request(fd, request, sizeof(request))) answer(script, fd, request);
        close(fd);
    }
    return NULL;
}

static bool script_start(struct script *script, uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1;
    script->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(script->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    return !bind(script->fd, (struct sockaddr *)&at, sizeof(at)) && !listen(script->fd, 64) &&
           !pthread_create(&script->thread, NULL, script_main, script);
}

static void script_stop(struct script *script) {
    script->stop = true;
    pthread_join(script->thread, NULL);
    close(script->fd);
}

static bool told_once(void *owner) {
    const struct script *script = owner;
    return script->begins >= 1 && script->listings >= 1;
}

static bool told_twice(void *owner) {
    const struct script *script = owner;
    return script->begins >= 2 && script->listings >= 2;
}

/* That many more heartbeats have come. */
static bool await_heartbeats(const struct script *script, unsigned count) {
    unsigned before = script->heartbeats;
    return AWAIT(script->heartbeats >= before + count);
}

/* A save of one of two ranks, sealed with a real server; then the scripted one takes its place.
 * fault: of the uploader's store in its second life, or NULL. */
static bool set_up(struct cairn_up_world *world, struct cairn_trainer *trainer,
                   struct script *script, const char *fault, char ret_state[32]) {
    static const char *const often[] = {"--heartbeat=100ms", NULL};
    struct trainer_options options = {
        .socket = world->socket_path, .job = "job-1", .world_size = 2};
    struct trainer_save save;
    char states[1][32];
    bool ok = world_open(world, &(struct world_options){.uploader_args = often, .fault = fault}) &&
              trainer_open(trainer, &options) && trainer_save(trainer, 1, 0, 1, 1000, &save);
    if (!ok) return false;
    world_uploader_kill(world);
    world_server_kill(world);
    snprintf(script->version, sizeof(script->version), "%s", save.version);
    script->generation = 7;
    ok = script_start(script, world->port) && world_uploader_start(world, NULL, fault) &&
         trainer_offer(trainer, &options, &save, 1, true, states);
    snprintf(ret_state, 32, "%s", ok ? states[0] : "none");
    return ok;
}

TEST(a_version_that_the_server_calls_unknown_is_told_again) /* Q19 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct script script = {0};
    char state[32];
    REQUIRE(set_up(&world, &trainer, &script, NULL, state));
    EXPECT(world_await(told_once, &script, 10000));
    REQUIRE(await_heartbeats(&script, 3));
    EXPECT_EQ_U64(script.begins, 1);
    script.unknown = true;
    EXPECT(world_await(told_twice, &script, 10000));
    script_stop(&script);
}

TEST(a_catalog_of_another_generation_is_told_everything_sealed_again) /* Q19, UV3, Q47 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct script script = {0};
    char state[32];
    REQUIRE(set_up(&world, &trainer, &script, NULL, state));
    EXPECT(world_await(told_once, &script, 10000));
    REQUIRE(await_heartbeats(&script, 3)); /* it has heard of this generation */
    script.generation = 8;
    EXPECT(world_await(told_twice, &script, 10000));
    script_stop(&script);
}

/* It cannot know to which catalog that was told: a backup may have been put back since. */
TEST(what_was_told_before_the_first_answer_to_a_heartbeat_is_told_again) /* Q19, Q43 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct script script = {.deaf = true};
    char state[32];
    REQUIRE(set_up(&world, &trainer, &script, NULL, state));
    EXPECT(world_await(told_once, &script, 10000));
    REQUIRE(await_heartbeats(&script, 3));
    EXPECT_EQ_U64(script.begins, 1);
    script.deaf = false;
    EXPECT(world_await(told_twice, &script, 10000));
    script_stop(&script);
}

TEST(a_fence_in_a_heartbeat_ends_what_was_not_told) /* Q6, UV1 */
{
    NEEDS_POINTS();
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct script script = {0};
    char state[32];
    REQUIRE(set_up(&world, &trainer, &script, "put:*part-0*:*:hang", state));
    EXPECT_EQ_TEXT(state, "continues");
    script.fenced = true;
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, UINT32_MAX, 10000, state), "aborted");
    script_stop(&script);
}

static bool has_failed(void *owner) {
    const struct script *script = owner;
    return script->fails >= 1;
}

static bool is_over(void *owner) {
    struct cairn_up_world *world = owner;
    return cairn_daemon_logged(&world->uploader, "save.over");
}

/* An answer that calls a version open may have been written before the end that came since. */
TEST(an_end_is_told_again_when_two_answers_in_a_row_call_the_version_open) /* Q12 */
{
    CAIRN_AUTO(up_world) world = {0};
    CAIRN_AUTO(trainer) trainer = {0};
    struct script script = {0};
    char state[32];
    REQUIRE(set_up(&world, &trainer, &script, NULL, state));
    EXPECT(world_await(told_once, &script, 10000));
    script.over = true;
    EXPECT(world_await(is_over, &world, 10000));
    script.over = false;
    for (int i = 0; i < 3; i++) {
        script.opens = 1; /* the answer after it names nothing */
        REQUIRE(await_heartbeats(&script, 4));
    }
    EXPECT_EQ_U64(script.fails, 0);
    script.opens = 2;
    EXPECT(world_await(has_failed, &script, 10000));
    EXPECT_EQ_U64(script.begins, 1); /* of a version that it has just named */
    script_stop(&script);
}
