/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on purpose, each of which has to fail its test: tests/planted/run plays them. Nothing else
 * runs this program. */
#include "tests/harness.h"

static volatile char *kept;
static int shared;
static void (*volatile give_back)(void *) = free; /* a compiler that sees through would refuse it */

TEST(nothing_is_wrong) {
    EXPECT(true);
}

TEST(a_check_fails) {
    EXPECT(shared == 1);
}

TEST(memory_is_lost) {
    kept = malloc(100);
    kept[0] = 1;
    kept = NULL;
}

TEST(a_byte_too_many_is_read) {
    char *bytes = malloc(10);
    memset(bytes, 'x', 10);
    kept = bytes + shared;
    EXPECT(kept[10] != 'x' || true);
    free(bytes);
}

TEST(a_number_overflows) {
    int number = 0x7fffffff - shared;
    number += (int)strlen("one more");
    EXPECT(number != 0);
}

static void *count(void *unused) {
    for (int i = 0; i < 1000; i++) shared++;
    return unused;
}

TEST(two_threads_write_without_a_lock) {
    pthread_t one, other;
    REQUIRE(!pthread_create(&one, NULL, count, NULL) && !pthread_create(&other, NULL, count, NULL));
    REQUIRE(!pthread_join(one, NULL) && !pthread_join(other, NULL));
    EXPECT(shared > 0);
}

#define CHILD "CAIRN_PLANTED_CHILD"

/* As a daemon does that ends wrongly after everybody heard what they wanted of it. */
__attribute__((constructor)) static void end_wrongly(void) {
    if (!getenv(CHILD)) return;
    char *bytes = malloc(10);
    kept = bytes;
    give_back(bytes);
    kept[0] = 1;
    _exit(0);
}

TEST(a_program_that_the_test_started_dies_at_its_exit) {
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (!pid) {
        (void)setenv(CHILD, "1", 1);
        (void)execl("/proc/self/exe", "planted", (char *)NULL);
        _exit(0);
    }
    int status = 0;
    EXPECT(waitpid(pid, &status, 0) == pid); /* and nobody looks at how */
}

TEST(it_is_left_out) {
    SKIP("nothing of it can run");
}
