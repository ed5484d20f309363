/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of several values, made of cairn_test_check: they need no CUnit, so the runner of other
 * machines (tests/arm64/runner.c) has them, too. */
#include "tests/harness.h"

void cairn_test_all_u64(const char *file, int line, const char *text, const uint64_t *pairs,
                        size_t count) {
    for (size_t i = 0; i + 1 < count; i += 2)
        cairn_test_check(pairs[i] == pairs[i + 1], file, line,
                         "pair %zu of %s: %" PRIu64 " and %" PRIu64, i / 2 + 1, text, pairs[i],
                         pairs[i + 1]);
}

void cairn_test_all_text(const char *file, int line, const char *text, const char *const *pairs,
                         size_t count) {
    for (size_t i = 0; i + 1 < count; i += 2)
        cairn_test_check(pairs[i] && pairs[i + 1] && !strcmp(pairs[i], pairs[i + 1]), file, line,
                         "pair %zu of %s: \"%s\" and \"%s\"", i / 2 + 1, text,
                         pairs[i] ? pairs[i] : "(null)", pairs[i + 1] ? pairs[i + 1] : "(null)");
}

bool cairn_test_has(const char *file, int line, const char *text, const char *const *words) {
    bool all = true;
    for (; *words; words++) {
        bool lacks = **words == '!';
        bool good = text && !strstr(text, *words + lacks) == lacks;
        all &= cairn_test_check(good, file, line, "%s \"%s\" in \"%.600s\"",
                                lacks ? "there is" : "there is no", *words + lacks,
                                text ? text : "(null)");
    }
    return all;
}
