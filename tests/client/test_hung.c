/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* A server that hangs: it holds its port, takes connections and answers nothing. */
#include "tests/client/model.h"
#include "tests/client/stage.h"
#include "tests/support/world.h"

#define CALL_MS 2000

static struct cairn_model model;

static struct cairn_open_options options_of(const struct cairn_world *world, const char *job) {
    return SIZED(cairn_open_options, .run = "llm/7b", .job = job, .bytes = MODEL_RANK_BYTES,
                 .socket = world->sockets[0], .wait_staged_ms = 500, .timeout_ms = CALL_MS);
}

/* The uploader ended it, and named the server. */
static bool names_server(const struct cairn_world *world, enum cairn_code code,
                         const struct cairn_error *err) {
    const char *port = TEXT(":%u", world->server.port);
    bool right = (code == CAIRN_TIMEOUT || code == CAIRN_UNAVAILABLE) &&
                 strstr(err->message, "server") && strstr(err->message, port) &&
                 !strstr(err->message, "the uploader at");
    if (!right) printf("%s: %s\n", cairn_code_info(code)->slug, err->message);
    return right;
}

TEST(a_server_that_hangs_is_named_within_the_deadline_of_each_call) {
    OPEN_WORLD(.nodes = 1);
    cairn_model_fill(&model, 5);
    struct cairn_session *session = NULL, *second = NULL, *reader = NULL;
    struct cairn_save *save = NULL;
    struct cairn_restore *restore = NULL;
    struct cairn_checkpoint *list = NULL;
    size_t count = 0;
    const struct cairn_open_options first = options_of(&world, "job-1");
    struct cairn_open_options other = options_of(&world, "job-2"), reads = first;
    other.run = "llm/8b";
    reads.read_only = 1;
    REQUIRE_OK(cairn_open(&first, &session, NULL, &err));
    REQUIRE_OK(cairn_open(&reads, &reader, NULL, &err));
    kill(world.server.pid, SIGSTOP);
    EXPECT(names_server(&world, cairn_open(&other, &second, NULL, &err), &err));
    EXPECT(names_server(&world, cairn_list(reader, &list, &count, &err), &err));
    EXPECT(names_server(&world, cairn_restore_open(reader, NULL, &restore, NULL, &err), &err));
    /* A save stalls for nothing; its wait says whose answer is missing. */
    REQUIRE_OK(cairn_model_save(&model, session, 5, 0, 1, &save, &err));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 3 * CALL_MS, &err), CAIRN_TIMEOUT);
    EXPECT(strstr(err.message, "the server is away for") && strstr(err.message, "127.0.0.1"));
    kill(world.server.pid, SIGCONT);
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, HANG_MS, &err), CAIRN_OK);
    cairn_save_free(save);
    EXPECT_CODE(cairn_close(reader, &err), CAIRN_OK);
    EXPECT_CODE(cairn_close(session, &err), CAIRN_OK);
}
