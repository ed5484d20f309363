/* SPDX-License-Identifier: Apache-2.0 */
/* cores: lists of cores are read by the letter, and the process keeps to them. */
#include "uploader/settings.h"

#include <sys/resource.h>

#include "tests/harness.h"

TEST(a_list_of_cores_holds_numbers_and_ranges, err) {
    cpu_set_t set;
    REQUIRE_OK(cairn_up_cores_parse("0-2,7", &set, &err));
    EXPECT_EQ_U64((unsigned)CPU_COUNT(&set), 4);
    EXPECT(CPU_ISSET(0, &set) && CPU_ISSET(1, &set) && CPU_ISSET(2, &set) && CPU_ISSET(7, &set));
}

TEST(what_is_no_list_of_cores_is_refused_by_name) { /* uploader/settings.h#1 */
    EACH_TEXT(text, "", ",", "1,", "3-1", "-1", "1-", "a", "0 1", "1--2", "99999") {
        struct cairn_error err = {0};
        cpu_set_t set;
        EXPECT_CODE(cairn_up_cores_parse(text, &set, &err), CAIRN_INVALID);
        EXPECT(strstr(err.message, "cpu_list"));
    }
}

static bool child_keeps_to_core_0(void) {
    struct cairn_up_settings settings = {.cpu_list = (char[]){"0"}, .nice = 3};
    struct cairn_error err = {0};
    cpu_set_t now;
    if (cairn_up_cores_apply(&settings, &err) != CAIRN_OK) return false;
    if (sched_getaffinity(0, sizeof now, &now)) return false;
    return CPU_COUNT(&now) == 1 && CPU_ISSET(0, &now) && getpriority(PRIO_PROCESS, 0) >= 3;
}

TEST(a_process_keeps_to_its_cores_and_steps_back) {
    cpu_set_t mine;
    REQUIRE(!sched_getaffinity(0, sizeof mine, &mine));
    if (!CPU_ISSET(0, &mine)) SKIP("core 0 is not this process's");
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (!pid) _exit(child_keeps_to_core_0() ? 0 : 1);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
