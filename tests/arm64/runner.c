/* SPDX-License-Identifier: Apache-2.0 */
/* Runs tests of tests/arm64/run and tests/musl/run without CUnit, which is not there for them. */
#include <stdarg.h>

#include "tests/harness.h"

#define TESTS_MAX 256

static struct {
    const char *name;
    cairn_test_function *function;
} tests[TESTS_MAX];
static unsigned test_count, check_count, failed_count;
static uint64_t seed;

void cairn_test_register(const char *file, const char *name, cairn_test_function *function) {
    (void)file;
    if (test_count == TESTS_MAX) abort();
    tests[test_count].name = name;
    tests[test_count++].function = function;
}

bool cairn_test_check(bool ok, const char *file, int line, const char *format, ...) {
    check_count++;
    if (ok) return true;
    failed_count++;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: failed: ", file, line);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    return false;
}

void cairn_test_skip(const char *why) {
    printf("skipped: %s\n", why);
}

uint64_t cairn_test_seed(void) {
    const char *text = getenv("CAIRN_TEST_SEED");
    if (!seed) seed = text && *text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    return seed;
}

uint64_t cairn_test_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int main(void) {
#ifdef __aarch64__ /* else the tests would pass over the table alone */
    EXPECT(cairn_crc32c_choose("pmull") && cairn_crc32c_choose("armv8"));
#endif
    (void)cairn_crc32c_choose(NULL);
    for (unsigned i = 0; i < test_count; i++) {
        unsigned before = failed_count;
        tests[i].function();
        printf("%s %s\n", failed_count == before ? "ok     " : "FAILED ", tests[i].name);
    }
    printf("%u tests, %u checks, %u failed\n", test_count, check_count, failed_count);
    if (failed_count) printf("seed: CAIRN_TEST_SEED=%llu\n", (unsigned long long)cairn_test_seed());
    return failed_count || !test_count ? 1 : 0;
}
