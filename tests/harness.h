/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness: tests that register themselves, over CUnit.
 *
 * Why:     adding a test is one edit; a failed check shows both values; CUnit's FATAL asserts jump
 *          past clean-up attributes and leak, so they are not used.
 * Promise: a test's name is a sentence that states behaviour. REQUIRE leaves the test function by
 *          return. Checks run on the main thread only.
 *          `tests_store store/multipart` runs the tests of one file; `--list` lists them; a second
 *          argument picks one test by name.
 * Limits:  1,024 tests a program.
 * Threads: main thread only.
 * Next:    style page, section Tests.
 */
#pragma once

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

typedef void cairn_test_function(void);
void cairn_test_register(const char *file, const char *name, cairn_test_function *function);
/* Records one check; prints file:line and text when it failed; returns ok. */
bool cairn_test_check(bool ok, const char *file, int line, const char *format, ...)
    CAIRN_PRINTF(4, 5);
/* Seed of this run: CAIRN_TEST_SEED or drawn once and printed on failure. */
uint64_t cairn_test_seed(void);
/* Random numbers from that seed (splitmix64). */
uint64_t cairn_test_random(uint64_t *state);
/* The source tree: CAIRN_SOURCE_DIR, or the nearest folder above this program with an
 * api/openapi.yaml. */
const char *cairn_test_tree(void);
/* The full path of a file of the tree, until the next call. */
const char *cairn_test_file(const char *path);
/* A folder of this test alone, removed at its end. */
const char *cairn_test_folder(void);
/* Run function(argument) in a forked child, which exits with 0 when it returns; returns the status
 * as waitpid tells it. ret_text (may be NULL) gets what the child wrote to standard error. */
int cairn_test_in_child(void (*function)(void *argument), void *argument, char *ret_text,
                        size_t capacity);
/* A state that is not there after this long never comes: no busy machine reaches it. Five minutes,
 * or CAIRN_TEST_WAIT_S. */
uint64_t cairn_test_hang_ms(void);
uint64_t cairn_test_now_ms(void);
/* A step of a poll that AWAIT cannot be, or the pause that a stand-in or chaos is about. Its line
 * says which (tests/tidy): a test waits for a state. */
void cairn_test_pause_ms(unsigned ms);
/* Does this thread of ours sleep, in whatever call it is? By its number of gettid. */
bool cairn_test_thread_sleeps(int thread);
/* Says why a test cannot run here, and ends it as skipped: `if (...) { SKIP("no root"); }` */
void cairn_test_skip(const char *why);

#define TEST(test_name)                                                                            \
    static void test_##test_name(void);                                                            \
    __attribute__((constructor)) static void register_##test_name(void) {                          \
        cairn_test_register(__FILE__, #test_name, test_##test_name);                               \
    }                                                                                              \
    static void test_##test_name(void)
#define SKIP(why)                                                                                  \
    do {                                                                                           \
        cairn_test_skip(why);                                                                      \
        return;                                                                                    \
    } while (0)

#define EXPECT(condition) cairn_test_check(!!(condition), __FILE__, __LINE__, "%s", #condition)
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!cairn_test_check(!!(condition), __FILE__, __LINE__, "%s", #condition)) return;        \
    } while (0)
#define EXPECT_EQ_U64(a, b)                                                                        \
    do {                                                                                           \
        uint64_t expect_a = (uint64_t)(a), expect_b = (uint64_t)(b);                               \
        cairn_test_check(expect_a == expect_b, __FILE__, __LINE__,                                 \
                         "%s == %s: %" PRIu64 " and %" PRIu64, #a, #b, expect_a, expect_b);        \
    } while (0)
#define EXPECT_EQ_TEXT(a, b)                                                                       \
    do {                                                                                           \
        const char *expect_a = (a), *expect_b = (b);                                               \
        cairn_test_check(expect_a &&expect_b && !strcmp(expect_a, expect_b), __FILE__, __LINE__,   \
                         "%s == %s: \"%s\" and \"%s\"", #a, #b, expect_a ? expect_a : "(null)",    \
                         expect_b ? expect_b : "(null)");                                          \
    } while (0)
/* The call must end with this code; prints the error otherwise. `err` must be in scope. */
#define EXPECT_CODE(call, wanted)                                                                  \
    do {                                                                                           \
        enum cairn_code expect_code = (call);                                                      \
        cairn_test_check(expect_code == (wanted), __FILE__, __LINE__, "%s is %s, wanted %s: %s",   \
                         #call, cairn_code_info(expect_code)->name, cairn_code_info(wanted)->name, \
                         err.message);                                                             \
    } while (0)
/* Waits for a state that must come, however long a busy machine takes. Fails, and is false, when
 * it is not there after cairn_test_hang_ms. The condition is evaluated again and again. */
#define AWAIT(condition)                                                                           \
    cairn_test_check(COMES(condition), __FILE__, __LINE__, "never came: %s", #condition)
/* The same for other threads, which check nothing. */
#define COMES(condition)                                                                           \
    ({                                                                                             \
        uint64_t await_since = cairn_test_now_ms();                                                \
        bool await_met;                                                                            \
        while (!(await_met = !!(condition)) &&                                                     \
               cairn_test_now_ms() - await_since < cairn_test_hang_ms())                           \
            cairn_test_pause_ms(3); /* step of a poll */                                           \
        await_met;                                                                                 \
    })
#define REQUIRE_AWAIT(condition)                                                                   \
    do {                                                                                           \
        if (!AWAIT(condition)) return;                                                             \
    } while (0)
#define REQUIRE_OK(call)                                                                           \
    do {                                                                                           \
        enum cairn_code require_code = (call);                                                     \
        if (!cairn_test_check(require_code == CAIRN_OK, __FILE__, __LINE__, "%s is %s: %s", #call, \
                              cairn_code_info(require_code)->name, err.message))                   \
            return;                                                                                \
    } while (0)
