/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/uploader/other.h"

#include <stdio.h>
#include <string.h>

#define ABORTED_MS 5000
#define SOME_HEARTBEATS_MS 1500

json_t *world_post(struct cairn_up_world *world, const char *path, json_t *take_body) {
    struct cairn_rest_options options = {.url = world->server.url, .timeout_ms = 5000};
    CAIRN_AUTO_PTR(rest) rest = NULL;
    json_t *reply = NULL;
    if (!cairn_rest_new(&options, &rest, &world->err))
        (void)!cairn_rest_call(rest, "POST", path, take_body, 0, &reply, &world->err);
    json_decref(take_body);
    return reply;
}

bool world_other_open(struct cairn_up_world *world, struct world_other *ret) {
    CAIRN_AUTO_JSON json_t *reply =
        world_post(world, OTHER_RUN "/attempts",
                   json_pack("{s:s, s:i, s:s, s:i, s:i, s:[{s:i, s:s}], s:s}", "job", "job-1",
                             "world_size", 2, "resume", "latest", "after", 1, "wait_staged_ms", 0,
                             "ranks", "rank", 1, "proc", "other", "node", "n2"));
    const char *grant = json_string_value(json_object_get(reply, "grant"));
    ret->world = world;
    snprintf(ret->grant, sizeof(ret->grant), "%s", grant ? grant : "");
    return grant != NULL;
}

bool world_other_begin(const struct world_other *other, uint64_t step, char ret_version[48]) {
    CAIRN_AUTO_JSON json_t *reply =
        world_post(other->world, OTHER_RUN "/checkpoints",
                   json_pack("{s:s, s:s, s:I, s:i, s:i, s:i}", "grant", other->grant, "node", "n2",
                             "step", (json_int_t)step, "n", 1, "rank", 1, "world_size", 2));
    const char *version = json_string_value(json_object_get(reply, "version"));
    snprintf(ret_version, 48, "%s", version ? version : "");
    return version != NULL;
}

bool world_stays_open(struct cairn_up_world *world, const char *version) {
    return !world_await_state(world, version, "aborting", SOME_HEARTBEATS_MS);
}

void world_expect_aborted(struct cairn_up_world *world, const char *version, const char *reason,
                          const char *where) {
    char path[200];
    EXPECT(world_await_state(world, version, "aborting", ABORTED_MS));
    snprintf(path, sizeof(path), OTHER_RUN "/checkpoints/%s", version);
    CAIRN_AUTO_JSON json_t *shown = world_get(world, path);
    const char *said = json_string_value(json_object_get(shown, "reason"));
    printf("  reason: %s\n", said ? said : "none");
    EXPECT(said && strstr(said, reason) && strstr(said, where));
}
