/* SPDX-License-Identifier: Apache-2.0 */
/* What answers to heartbeats do to saves; the server is scripted, so that nothing else tells it. */

#include "tests/support/http_responder.h"
#include "tests/uploader/trainer.h"

#define CATALOG "00000000-0000-4000-8000-000000000001"

struct script {
    struct cairn_responder *responder;
    _Atomic unsigned begins, listings, fails, generation;
    _Atomic unsigned heartbeats;        /* so many have come */
    _Atomic unsigned opens;             /* so many answers more call the version open */
    _Atomic bool over;                  /* they call it given up */
    _Atomic bool unknown, fenced, deaf; /* deaf: to heartbeats */
    char version[48];
};

static void say(struct cairn_responder_request *request, const char *body) {
    cairn_responder_reply(request, 200, "Content-Type: application/json\r\n", body);
}

static void answer_heartbeat(struct script *script, struct cairn_responder_request *request) {
    const char *versions = "", *unknown = "";
    bool opens = script->opens > 0;
    script->heartbeats++;
    if (opens) script->opens--;
    if (opens || script->over)
        versions =
            TEXT("{\"version\":\"%s\",\"step\":1,\"n\":1,\"state\":\"%s\",\"recorded\":false}",
                 script->version, opens ? "open" : "aborting");
    if (script->deaf) {
        cairn_responder_reply(request, 503, "", "");
        return;
    }
    if (atomic_exchange(&script->unknown, false)) unknown = TEXT("\"%s\"", script->version);
    say(request, TEXT("{\"catalog\":\"%s\",\"generation\":%u,\"fenced\":[%s],\"versions\":[%s],"
                      "\"unknown\":[%s],\"foreign\":[],\"ended\":[],\"peers\":[],\"finish\":[]}",
                      CATALOG, script->generation,
                      script->fenced ? "{\"project\":\"llm\",\"run\":\"seven\",\"attempt\":1}" : "",
                      versions, unknown));
}

static bool ends_in(const char *target, const char *end) {
    const char *at = strstr(target, end);
    return at && !at[strlen(end)];
}

static void answer(struct cairn_responder_request *request) {
    struct script *script = request->owner;
    bool post = !strcmp(request->method, "POST");
    if (!strcmp(request->method, "PUT") && !strncmp(request->target, "/v1/nodes/", 10)) {
        answer_heartbeat(script, request);
    } else if (post && ends_in(request->target, "/checkpoints")) {
        script->begins++;
        say(request, "{\"results\":[{\"status\":200,\"state\":\"open\",\"recorded\":false}]}");
    } else if (post && ends_in(request->target, "/shards")) {
        script->listings++;
        say(request, "{\"state\":\"open\"}");
    } else if (post && ends_in(request->target, "/fail")) {
        script->fails++;
        say(request, "{\"state\":\"aborting\"}");
    } else {
        cairn_test_pause_ms(100); /* pause of a stand-in: it is slow */
        say(request, "{\"state\":\"open\"}");
    }
}

static bool script_start(struct script *script, uint16_t port) {
    script->responder = cairn_responder_start(
        &(struct cairn_responder_options){.answer = answer, .owner = script, .port = port});
    return script->responder != NULL;
}

static void script_stop(struct script *script) {
    cairn_responder_stop(script->responder);
}

/* The begin and the shards of the save have been told that often. */
#define TOLD(times) AWAIT(script.begins >= (times) && script.listings >= (times))

/* That many more heartbeats have come. */
static bool await_heartbeats(const struct script *script, unsigned count) {
    unsigned before = script->heartbeats;
    return AWAIT(script->heartbeats >= before + count);
}

/* A save of one of two ranks, sealed with a real server; then the scripted one takes its place.
 * fault: of the uploader's store in its second life, or NULL. */
static bool set_up(struct cairn_up_world *world, struct cairn_trainer *trainer,
                   struct script *script, const char *fault, char ret_state[32]) {
    struct trainer_options options = {
        .socket = world->socket_path, .job = "job-1", .world_size = 2};
    struct trainer_save save;
    char states[1][32];
    bool ok = world_open(world, &(struct world_options){.uploader_args = ARGS("--heartbeat=100ms"),
                                                        .fault = fault}) &&
              trainer_open(trainer, &options) && trainer_save(trainer, 1, 0, 1, 1000, &save);
    if (!ok) return false;
    world_uploader_kill(world);
    world_server_kill(world);
    snprintf(script->version, sizeof(script->version), "%s", save.version);
    script->generation = 7;
    ok = script_start(script, world->port) && world_uploader_start(world, NULL, fault) &&
         trainer_offer(trainer, &save, 1, true, states);
    snprintf(ret_state, 32, "%s", ok ? states[0] : "none");
    return ok;
}

/* In place of the server, with these first answers; `state` is what became of step 1's save. */
#define SCRIPT(fault, ...)                                                                         \
    CAIRN_AUTO(up_world) world = {0};                                                              \
    CAIRN_AUTO(trainer) trainer = {0};                                                             \
    __attribute__((cleanup(script_stop))) struct script script = {__VA_ARGS__};                    \
    char state[32];                                                                                \
    REQUIRE(set_up(&world, &trainer, &script, fault, state))

TEST(a_version_that_the_server_calls_unknown_is_told_again) { /* Q19 */
    SCRIPT(NULL, 0);
    TOLD(1);
    REQUIRE(await_heartbeats(&script, 3));
    EXPECT_EQ_U64(script.begins, 1);
    script.unknown = true;
    TOLD(2);
}

TEST(a_catalog_of_another_generation_is_told_everything_sealed_again) { /* Q19, UV3, Q47 */
    SCRIPT(NULL, 0);
    TOLD(1);
    REQUIRE(await_heartbeats(&script, 3)); /* it has heard of this generation */
    script.generation = 8;
    TOLD(2);
}

/* It cannot know to which catalog that was told: a backup may have been put back since. */
TEST(what_was_told_before_the_first_answer_to_a_heartbeat_is_told_again) { /* Q19, Q43 */
    SCRIPT(NULL, .deaf = true);
    TOLD(1);
    REQUIRE(await_heartbeats(&script, 3));
    EXPECT_EQ_U64(script.begins, 1);
    script.deaf = false;
    TOLD(2);
}

TEST(a_fence_in_a_heartbeat_ends_what_was_not_told) { /* Q6, UV1 */
    NEEDS_POINTS();
    SCRIPT("put:*part-0*:*:hang", 0);
    EXPECT_EQ_TEXT(state, "continues");
    script.fenced = true;
    EXPECT_VERDICT(&trainer, UINT32_MAX, "aborted");
}

/* An answer that calls a version open may have been written before the end that came since. */
TEST(an_end_is_told_again_when_two_answers_in_a_row_call_the_version_open) { /* Q12 */
    SCRIPT(NULL, 0);
    TOLD(1);
    script.over = true;
    AWAIT(cairn_daemon_logged(&world.uploader, "save.over"));
    script.over = false;
    for (int i = 0; i < 3; i++) {
        script.opens = 1; /* the answer after it names nothing */
        REQUIRE(await_heartbeats(&script, 4));
    }
    EXPECT_EQ_U64(script.fails, 0);
    script.opens = 2;
    AWAIT(script.fails >= 1);
    EXPECT_EQ_U64(script.begins, 1); /* of a version that it has just named */
}
