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

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/crc.h"
#include "common/error.h"
#include "common/file.h"
#include "common/text.h"
#include "tests/each.h"

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
/* A text made as printf makes it; it lives until the test ends. Any thread. */
char *cairn_test_text(const char *format, ...) CAIRN_PRINTF(1, 2);
#define TEXT(...) cairn_test_text(__VA_ARGS__)
/* A folder of this test alone, removed at its end. */
const char *cairn_test_folder(void);
/* Run function(argument) in a forked child, which exits with 0 when it returns; returns the status
 * as waitpid tells it. ret_text (may be NULL) gets what the child wrote to standard error. */
int cairn_test_in_child(void (*function)(void *argument), void *argument, char *ret_text,
                        size_t capacity);
/* A state that is not there after this long never comes: no busy machine reaches it. Five minutes,
 * or CAIRN_TEST_WAIT_S. */
uint64_t cairn_test_hang_ms(void);
#define HANG_MS ((uint32_t)cairn_test_hang_ms())
uint64_t cairn_test_now_ms(void);
/* A step of a poll that AWAIT cannot be, or the pause that a stand-in or chaos is about. Its line
 * says which (tests/tidy): a test waits for a state. */
void cairn_test_pause_ms(unsigned ms);
/* The step of a poll that began then: the longer it has taken, the more seldom it looks. */
void cairn_test_poll_step(uint64_t since_ms);
/* Does this thread of ours sleep, in whatever call it is? By its number of gettid. */
bool cairn_test_thread_sleeps(int thread);
/* Says why a test cannot run here, and ends it as skipped: `if (...) { SKIP("no root"); }` */
void cairn_test_skip(const char *why);

/* TEST(name), or TEST(name, err) for a test with an empty struct cairn_error of that name. */
#define TEST(...) CAIRN_TEST_KIND(__VA_ARGS__, WITH_ERROR, PLAIN, )(__VA_ARGS__)
#define CAIRN_TEST_KIND(first, second, kind, ...) CAIRN_TEST_##kind
#define CAIRN_TEST_PLAIN(test_name)                                                                \
    static void test_##test_name(void);                                                            \
    __attribute__((constructor)) static void register_##test_name(void) {                          \
        cairn_test_register(__FILE__, #test_name, test_##test_name);                               \
    }                                                                                              \
    static void test_##test_name(void)
#define CAIRN_TEST_WITH_ERROR(test_name, error)                                                    \
    static void test_of_##test_name(struct cairn_error);                                           \
    CAIRN_TEST_PLAIN(test_name) {                                                                  \
        test_of_##test_name((struct cairn_error){0});                                              \
    }                                                                                              \
    static void test_of_##test_name(struct cairn_error error)
/* A test that is one call; several of one helper stand below each other:
 * CASE(a_cut_shard_is_refused, refuses("cut")); */
#define CASE(test_name, call)                                                                      \
    TEST(test_name) {                                                                              \
        call;                                                                                      \
    }                                                                                              \
    _Static_assert(sizeof(#call), "a test")
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
#define EXPECT_CODE(call, wanted) CAIRN_EXPECT_CODE(call, #call, wanted, err)
#define CAIRN_EXPECT_CODE(call, text, wanted, error)                                               \
    do {                                                                                           \
        enum cairn_code expect_code = (call);                                                      \
        cairn_test_check(expect_code == (wanted), __FILE__, __LINE__, "%s is %s, wanted %s: %s",   \
                         text, cairn_code_info(expect_code)->name, cairn_code_info(wanted)->name,  \
                         (error).message);                                                         \
    } while (0)
/* It ends with this code, and err.message has these words. */
#define EXPECT_FAILS(call, wanted, words)                                                          \
    do {                                                                                           \
        CAIRN_EXPECT_CODE(call, #call, wanted, err);                                               \
        cairn_test_check(strstr(err.message, words) != NULL, __FILE__, __LINE__,                   \
                         "%s says \"%s\", wanted \"%s\"", #call, err.message, words);              \
    } while (0)
/* Pairs of what is and what is wanted: EXPECT_ALL_U64(left, 2, right, 3). */
#define EXPECT_ALL_U64(...)                                                                        \
    cairn_test_all_u64(__FILE__, __LINE__, #__VA_ARGS__, (const uint64_t[]){__VA_ARGS__},          \
                       CAIRN_COUNT(((const uint64_t[]){__VA_ARGS__})))
void cairn_test_all_u64(const char *file, int line, const char *text, const uint64_t *pairs,
                        size_t count);
#define EXPECT_ALL_TEXT(...)                                                                       \
    cairn_test_all_text(__FILE__, __LINE__, #__VA_ARGS__, (const char *const[]){__VA_ARGS__},      \
                        CAIRN_COUNT(((const char *const[]){__VA_ARGS__})))
void cairn_test_all_text(const char *file, int line, const char *text, const char *const *pairs,
                         size_t count);
/* The text has each of these words, and not what stands behind a "!". */
#define EXPECT_HAS(text, ...)                                                                      \
    cairn_test_has(__FILE__, __LINE__, text, (const char *const[]){__VA_ARGS__, NULL})
bool cairn_test_has(const char *file, int line, const char *text, const char *const *words);
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
            cairn_test_poll_step(await_since);                                                     \
        await_met;                                                                                 \
    })
#define REQUIRE_AWAIT(condition)                                                                   \
    do {                                                                                           \
        if (!AWAIT(condition)) return;                                                             \
    } while (0)
#define REQUIRE_OK(call) CAIRN_REQUIRE_OK(call, #call, err)
#define CAIRN_REQUIRE_OK(call, text, error)                                                        \
    do {                                                                                           \
        enum cairn_code require_code = (call);                                                     \
        if (!cairn_test_check(require_code == CAIRN_OK, __FILE__, __LINE__, "%s is %s: %s", text,  \
                              cairn_code_info(require_code)->name, (error).message))               \
            return;                                                                                \
    } while (0)
/* A struct cairn_<type> that is opened here and released at the end of its scope:
 * WITH(raw, raw, cairn_raw_open(&raw, port)). */
#define WITH(type, name, call)                                                                     \
    CAIRN_AUTO(type) name = {0};                                                                   \
    REQUIRE(call)
#define WITH_OK(type, name, call)                                                                  \
    CAIRN_AUTO(type) name = {0};                                                                   \
    CAIRN_REQUIRE_OK(call, #call, err)
/* One request of a store: PERFORMED(head, place.worker, {.op = CAIRN_STORE_HEAD, .key = "a"}). */
#define PERFORMED(request, worker, ...)                                                            \
    struct cairn_store_request request = __VA_ARGS__;                                              \
    CAIRN_REQUIRE_OK(cairn_store_perform(worker, &request, &err), #request, err)
#define EXPECT_PERFORMED(wanted, request, worker, ...)                                             \
    struct cairn_store_request request = __VA_ARGS__;                                              \
    CAIRN_EXPECT_CODE(cairn_store_perform(worker, &request, &err), #request, wanted, err)
