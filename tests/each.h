/* SPDX-License-Identifier: Apache-2.0 */
/*
 * each: loops over rows, texts and numbers that stand in the loop's head.
 *
 * Why:     a table of cases that one loop walks needs neither a name nor an index.
 * Promise: 1   rows are walked in their order, once; `continue` and `break` are those of a `for`.
 * Limits:  a name once in a scope.
 * Threads: any.
 * Next:    tests/harness.h.
 */
#pragma once

#include <stddef.h>

#include "common/base.h"

/* Loops over what stands in them: EACH(one, FIELDS(const char *text; int want), {"a", 1}, {"b", 2})
 * EXPECT(f(one->text) == one->want); EACH_TEXT(text, "a", "b") and EACH_OF(int, number, 1, 2).
 * AT(one), AT_OF(text): from 0, how many came before. */
#define FIELDS(...)                                                                                \
    struct {                                                                                       \
        __VA_ARGS__;                                                                               \
    }
#define EACH(name, fields, ...)                                                                    \
    const fields name##_rows[] = {__VA_ARGS__};                                                    \
    for (const __typeof__(*name##_rows) *name = name##_rows;                                       \
         name < name##_rows + CAIRN_COUNT(name##_rows); name++)
#define EACH_TEXT(name, ...)                                                                       \
    const char *name##_rows[] = {__VA_ARGS__};                                                     \
    for (const char **name##_at = name##_rows, *name;                                              \
         name##_at < name##_rows + CAIRN_COUNT(name##_rows) && (name = *name##_at, true);          \
         name##_at++)
#define EACH_OF(type, name, ...)                                                                   \
    type name##_rows[] = {__VA_ARGS__};                                                            \
    for (type *name##_at = name##_rows, name;                                                      \
         name##_at < name##_rows + CAIRN_COUNT(name##_rows) && (name = *name##_at, true);          \
         name##_at++)
#define AT(name) ((size_t)(name - name##_rows))
#define AT_OF(name) ((size_t)(name##_at - name##_rows))
