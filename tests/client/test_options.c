/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* options: structs of programs that were compiled with another release of the header. */
#include "client/session/options.h"
#include "tests/client/rank.h"

struct longer {
    struct cairn_save_options known;
    uint64_t later; /* an option of a release to come */
};

TEST(a_shorter_struct_has_defaults_for_what_it_lacks, err) { /* options.h#1 */
    struct cairn_open_options own;
    /* Of exactly its bytes on the heap: a read past its end is found by AddressSanitizer. */
    size_t size = offsetof(struct cairn_open_options, rank);
    CAIRN_AUTO_HEAP struct cairn_open_options *shorter = calloc(1, size);
    REQUIRE(shorter != NULL);
    memcpy(shorter, &size, sizeof size);
    const char *run = "llm/7b";
    memcpy((char *)shorter + offsetof(struct cairn_open_options, run), &run, sizeof run);
    memset(&own, 0xff, sizeof own);
    REQUIRE_OK(CAIRN_CLIENT_OPTIONS(shorter, &own, &err));
    EXPECT(own.run == run);
    EXPECT_ALL_U64(own.size, sizeof own, own.timeout_ms, 0, own.world_size, 0);
}

TEST(an_option_that_this_release_does_not_have_is_refused_and_never_ignored) { /* options.h#2 */
    struct cairn_error err = {0};
    struct cairn_save_options own;
    struct longer given = {.known = {.size = sizeof given, .timeout_ms = 7}};
    REQUIRE_OK(CAIRN_CLIENT_OPTIONS(&given.known, &own, &err));
    EXPECT_EQ_U64(own.timeout_ms, 7);
    given.later = 1;
    EXPECT_FAILS(CAIRN_CLIENT_OPTIONS(&given.known, &own, &err), CAIRN_UNSUPPORTED,
                 "older than the header");
}

TEST(a_struct_without_its_size_is_refused_by_every_call) { /* options.h#3 */
    RANK(1);
    struct cairn_session *session = NULL;
    struct cairn_restore *restore = NULL;
    AUTO_SAVE *save = NULL;
    const struct cairn_open_options open = {.run = "llm/7b"};
    const struct cairn_save_options begin = {.timeout_ms = 5};
    const struct cairn_restore_options options = {.ref = "7"};
    const struct cairn_tensor_piece piece = {.name = "w"};
    EXPECT_FAILS(cairn_open(&open, &session, NULL, &err), CAIRN_INVALID, "sizeof");
    EXPECT_CODE(cairn_save_begin(rank.session, 1, &begin, &save, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_restore_open(rank.session, &options, &restore, NULL, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_INVALID);
}

TEST(defaults_are_taken_for_no_struct_at_all, err) {
    struct cairn_save_options own;
    REQUIRE_OK(CAIRN_CLIENT_OPTIONS((const struct cairn_save_options *)NULL, &own, &err));
    EXPECT_EQ_U64(own.size, sizeof own);
    EXPECT(own.labels_json == NULL);
}
