/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* How the requests that may be under way at once are shared out among a store's workers. */
#include "tests/s3faults/cases.h"

struct cairn_three_workers {
    struct cairn_store_worker *helper, *other, *reader;
};
static void cairn_three_workers_release(struct cairn_three_workers *workers) {
    cairn_store_worker_free(workers->helper);
    cairn_store_worker_free(workers->other);
    cairn_store_worker_free(workers->reader);
}

static void mark_done(struct cairn_store_request *request) {
    *(bool *)request->owner = true;
}

TEST(who_never_asks_gets_no_share_and_who_rests_takes_none_from_the_other_kind) {
    WORLD(0);
    WITH_OK(three_workers, more, cairn_store_worker_new(world.store, &more.helper, &err));
    REQUIRE_OK(cairn_store_worker_new(world.store, &more.other, &err));
    REQUIRE_OK(cairn_store_worker_new(world.store, &more.reader, &err));
    EXPECT_ALL_U64(cairn_store_appetite(world.worker), 64, cairn_store_appetite(more.other), 32,
                   cairn_store_appetite(world.worker), 32);
    /* Single requests of one that does not ask. */
    REQUIRE_OK(cairn_store_put_small(more.helper, "read", CAIRN_VIEW("bytes"), false, &err));
    EXPECT_EQ_U64(cairn_store_appetite(world.worker), 32);
    /* A reader that reads is one more; when it rests it is none. */
    char into[5];
    bool done = false;
    struct cairn_store_request get = {.op = CAIRN_STORE_GET,
                                      .key = "read",
                                      .length = sizeof into,
                                      .into = (uint8_t *)into,
                                      .done = mark_done,
                                      .owner = &done};
    cairn_store_submit(more.reader, &get);
    EXPECT_ALL_U64(cairn_store_appetite(more.reader), 64, cairn_store_appetite(world.worker), 22);
    while (!done) REQUIRE_OK(cairn_store_poll(more.reader, 100, &err));
    EXPECT_ALL_U64(cairn_store_appetite(more.reader), 64, cairn_store_appetite(world.worker), 32);
    cairn_store_worker_free(CAIRN_TAKE(more.other));
    EXPECT_EQ_U64(cairn_store_appetite(world.worker), 64);
}
