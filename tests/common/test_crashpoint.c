/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hooks.h"

#include "tests/harness.h"

#ifdef CAIRN_CRASHPOINTS
/* Passes the other point, then the tested one three times, and says how far it came. */
static void pass_points(void *argument) {
    if (argument) setenv("CAIRN_CRASH_AT", argument, 1);
    CAIRN_CRASHPOINT("test.other");
    for (int i = 1; i <= 3; i++) {
        fprintf(stderr, "%d%s ", i, cairn_crashpoint_fails("test.point") ? "!" : "");
    }
}

struct outcome {
    int status;
    char text[512];
};

static struct outcome outcome_of(const char *chosen) {
    struct outcome outcome;
    outcome.status =
        cairn_test_in_child(pass_points, chosen ? TEXT("%s", chosen ? chosen : "") : NULL,
                            outcome.text, sizeof(outcome.text));
    return outcome;
}

static bool killed_by(int status, int number) {
    return WIFSIGNALED(status) && WTERMSIG(status) == number;
}

TEST(nothing_happens_where_nothing_was_chosen) {
    struct outcome outcome = outcome_of("");
    EXPECT(WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 0);
    EXPECT_EQ_TEXT(outcome.text, "1 2 3 ");
}

TEST(the_chosen_point_kills_at_its_first_pass) { /* hooks.h#3 */
    struct outcome outcome = outcome_of("test.point");
    EXPECT(killed_by(outcome.status, SIGKILL));
    EXPECT_EQ_TEXT(outcome.text, "");
}

TEST(the_chosen_pass_kills_and_no_earlier_one) { /* hooks.h#3 */
    struct outcome outcome = outcome_of("test.point:3");
    EXPECT(killed_by(outcome.status, SIGKILL));
    EXPECT_EQ_TEXT(outcome.text, "1 2 ");
    outcome = outcome_of("test.point:4:kill");
    EXPECT(WIFEXITED(outcome.status));
}

TEST(a_point_ends_the_process_with_status_70) { /* hooks.h#3 */
    struct outcome outcome = outcome_of("test.point:2:exit");
    EXPECT(WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 70);
    EXPECT_EQ_TEXT(outcome.text, "1 ");
}

TEST(a_point_fails_once_or_at_every_pass) { /* hooks.h#3 */
    EXPECT_EQ_TEXT(outcome_of("test.point:fail").text, "1! 2 3 ");
    EXPECT_EQ_TEXT(outcome_of("test.point:2:fail").text, "1 2! 3 ");
    EXPECT_EQ_TEXT(outcome_of("test.point:0:fail").text, "1! 2! 3! ");
}

TEST(a_point_delays_for_as_long_as_was_asked) { /* hooks.h#3 */
    uint64_t start = cairn_mono_ms();
    cairn_crashpoint_arm("test.point:1:delay=40");
    CAIRN_CRASHPOINT("test.point");
    EXPECT(cairn_mono_ms() - start >= 40);
    cairn_crashpoint_arm(NULL);
}

static atomic_int held_thread;
static atomic_bool went_on;
static void *pass_and_say(void *argument) {
    (void)argument;
    atomic_store(&held_thread, (int)gettid());
    CAIRN_CRASHPOINT("test.point");
    atomic_store(&went_on, true);
    return NULL;
}

TEST(a_point_holds_its_caller_until_a_file_exists) { /* hooks.h#3 */
    char path[300], chosen[340];
    pthread_t thread;
    snprintf(path, sizeof(path), "%s/go-on", cairn_test_folder());
    snprintf(chosen, sizeof(chosen), "test.point:1:until=%s", path);
    cairn_crashpoint_arm(chosen);
    REQUIRE(!pthread_create(&thread, NULL, pass_and_say, NULL));
    AWAIT(atomic_load(&went_on) || cairn_test_thread_sleeps(atomic_load(&held_thread)));
    EXPECT(!atomic_load(&went_on));
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fclose(file);
    EXPECT(!pthread_join(thread, NULL) && atomic_load(&went_on));
    cairn_crashpoint_arm(NULL);
}

TEST(a_point_stops_the_process_until_it_is_continued) { /* hooks.h#3 */
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        cairn_crashpoint_arm("test.point:stop");
        CAIRN_CRASHPOINT("test.point");
        _exit(9);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    kill(child, SIGCONT);
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

TEST(every_passed_name_is_listed) { /* hooks.h#4 */
    char path[300], text[256] = "";
    snprintf(path, sizeof(path), "%s/list", cairn_test_folder());
    setenv("CAIRN_CRASH_LIST", path, 1);
    outcome_of("test.point:2");
    unsetenv("CAIRN_CRASH_LIST");
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    EXPECT_EQ_TEXT(text, "test.other\ntest.point\ntest.point\n");
}

static void pass_an_unlisted_point(void *argument) {
    (void)argument;
    CAIRN_CRASHPOINT("test.no_such_point");
}

TEST(names_that_are_not_listed_abort) { /* hooks.h#2 */
    char text[256];
    int status = cairn_test_in_child(pass_an_unlisted_point, NULL, text, sizeof(text));
    EXPECT(killed_by(status, SIGABRT));
    EXPECT(strstr(text, "\"test.no_such_point\"") != NULL);
    EXPECT(killed_by(outcome_of("test.no_such_point").status, SIGABRT));
}

TEST(a_choice_that_is_not_understood_aborts) { /* hooks.h#2 */
    EACH_TEXT(text, "test.point:", "test.point:die", "test.point:-1",
              "test.point:1:delay=", "test.point:1:delay=x", "test.point:1:kill:", ":1") {
        EXPECT(killed_by(outcome_of(text).status, SIGABRT));
    }
}
#else
TEST(points_are_nothing_in_builds_without_them) { /* hooks.h#1 */
    setenv("CAIRN_CRASH_AT", "test.point:0:kill", 1);
    CAIRN_CRASHPOINT("test.point");
    EXPECT(!cairn_crashpoint_fails("test.point"));
    unsetenv("CAIRN_CRASH_AT");
}
#endif
