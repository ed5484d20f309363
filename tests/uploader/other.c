/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/uploader/other.h"

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
    char state[32];
    return world_await_heartbeats(world, 7) &&
           strcmp(world_state(world, version, state), "aborting") != 0;
}

void world_expect_aborted(struct cairn_up_world *world, const char *version, const char *reason,
                          const char *where) {
    EXPECT_STATE(world, version, "aborting");
    const char *said = world_reason(world, version);
    printf("  reason: %s\n", said);
    EXPECT(strstr(said, reason) && strstr(said, where));
}
