/* SPDX-License-Identifier: Apache-2.0 */
/* What cairn_session_problem says of saves that have not failed. */
#include <poll.h>

#include "tests/client/rank.h"

static bool problem_comes(struct cairn_session *session, struct cairn_error *err) {
    for (int i = 0; i < 500; i++) {
        if (cairn_session_problem(session, err) != CAIRN_OK) return true;
        (void)poll(NULL, 0, 10);
    }
    return false;
}

static json_t *node_problem(const char *code) {
    return json_pack("{s:s, s:s, s:s}", "t", "problem", "code", code, "message", "no store");
}

TEST(what_does_not_get_on_is_told_once_and_fails_nothing) /* Q43, Q55 */
{
    CAIRN_AUTO(rank) rank = {0};
    struct cairn_error err = {0};
    struct cairn_save *save = NULL;
    REQUIRE_OK(rank_open(&rank, 2, &err));
    REQUIRE_OK(rank_save(rank.session, 9, &save, &err));
    cairn_fake_uploader_event(rank.fake,
                              json_pack("{s:s, s:i, s:s, s:s}", "t", "problem", "save", 1, "code",
                                        "unavailable", "message", "it fails"));
    REQUIRE(problem_comes(rank.session, &err));
    EXPECT_CODE(err.code, CAIRN_UNAVAILABLE);
    EXPECT(strstr(err.message, "llm/7b step 9 rank 3: it fails") != NULL);
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK);
    cairn_fake_uploader_event(rank.fake, node_problem("unavailable"));
    REQUIRE(problem_comes(rank.session, &err));
    EXPECT(strstr(err.message, "llm/7b rank 3: no store") != NULL);
    cairn_fake_uploader_event(rank.fake, node_problem("unavailable"));
    cairn_fake_uploader_event(rank.fake, node_problem("ok"));
    cairn_fake_uploader_event(rank.fake, rank_verdict(1, "committed", ""));
    EXPECT_CODE(cairn_save_wait(save, CAIRN_COMMITTED, 5000, &err), CAIRN_OK);
    EXPECT_CODE(cairn_session_problem(rank.session, &err), CAIRN_OK); /* it was over by then */
    cairn_save_free(save);
}
