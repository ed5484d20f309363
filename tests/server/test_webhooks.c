/* SPDX-License-Identifier: Apache-2.0 */
/* Webhooks whose threads do not run: before their start, and where a thread could not be had. */
#include "server/events/deliver.h"
#include "tests/server/world.h"

#define HOOKS                                                                                      \
    "{\"webhooks\":[{\"name\":\"chat\",\"url\":\"http://127.0.0.1:9/\",\"secret\":"                \
    "\"a secret of more than sixteen bytes\"}]}"

static struct cairn_error err;

static enum cairn_code redeliver(struct cairn_world *world) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    enum cairn_code code =
        inside_call(&world->inside, "POST", "/v1/webhooks/chat/redeliver", NULL, &reply);
    EXPECT(code || world_number(reply, "dead_letters") == 0);
    EXPECT_EQ_U64((uint64_t)world->inside.status, 202);
    return code;
}

/* A lock that is not there ends the process (lock.h#2). */
TEST(a_redelivery_wakes_no_thread_that_was_never_started) {
    const char *file = TEXT("%s/webhooks.json", cairn_test_folder());
    REQUIRE_OK(cairn_file_replace(file, cairn_view_of(HOOKS), 0600, &err));
    CAIRN_AUTO(world) world = {0};
    REQUIRE(world_start_inside(&world, WORLD_ARGS(TEXT("--webhooks-file=%s", file))));
    struct srv *server = &world.inside.server;
    REQUIRE_OK(srv_webhooks_new(server, &server->webhooks, &err));
    EXPECT_CODE(redeliver(&world), CAIRN_OK); /* it listens before webhooks start */
    srv_webhooks_free(server->webhooks);
    server->webhooks = NULL;
}
