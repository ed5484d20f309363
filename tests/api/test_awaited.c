/* SPDX-License-Identifier: Apache-2.0 */
/* The words of what can be waited for. */
#include "api/wire/words.h"

#include <string.h>

#include "tests/harness.h"

TEST(every_state_is_read_back_and_only_promoted_has_a_store) {
    for (int i = 0; i < CAIRN_AWAITED_COUNT; i++) {
        struct cairn_awaited what = {0};
        struct cairn_error err = {0};
        char text[64];
        struct cairn_view word = cairn_awaited_word((enum cairn_awaited_state)i);
        bool of_store = i == CAIRN_AWAITED_PROMOTED;
        snprintf(text, sizeof(text), "%.*s%s", (int)word.size, (const char *)word.data,
                 of_store ? ":a-1" : "");
        EXPECT_CODE(cairn_awaited_parse(text, &what, &err), CAIRN_OK);
        EXPECT_EQ_U64(what.state, (uint64_t)i);
        EXPECT_EQ_TEXT(what.store, of_store ? "a-1" : "");
        snprintf(text, sizeof(text), "%.*s%s", (int)word.size, (const char *)word.data,
                 of_store ? "" : ":a-1");
        EXPECT_CODE(cairn_awaited_parse(text, &what, &err), CAIRN_INVALID);
    }
}

TEST(a_word_that_is_none_is_refused_with_all_that_are) {
    static const char *const wrong[] = {
        "",       ":",         "Begun",      "begu",         "begunn",
        "begun ", "promoted:", "promoted:-", "promoted:a:b", "promoted:A"};
    for (size_t i = 0; i < CAIRN_COUNT(wrong); i++) {
        struct cairn_awaited what = {0};
        struct cairn_error err = {0};
        EXPECT_CODE(cairn_awaited_parse(wrong[i], &what, &err), CAIRN_INVALID);
        EXPECT(strchr(wrong[i], ':') || strstr(err.message, "begun, decided, staged, durable"));
    }
}

TEST(outcomes_are_read_back_and_others_are_no_answer) {
    static const enum cairn_outcome all[] = {CAIRN_OUTCOME_NOT_YET, CAIRN_OUTCOME_REACHED,
                                             CAIRN_OUTCOME_NEVER};
    enum cairn_outcome found = CAIRN_OUTCOME_NOT_YET;
    struct cairn_error err = {0};
    for (size_t i = 0; i < CAIRN_COUNT(all); i++) {
        EXPECT_CODE(cairn_outcome_parse(cairn_outcome_text(all[i]), &found, &err), CAIRN_OK);
        EXPECT_EQ_U64(found, all[i]);
    }
    EXPECT_CODE(cairn_outcome_parse("", &found, &err), CAIRN_PROTOCOL);
}
