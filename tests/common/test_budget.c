/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* budget: the sum never passes the total, also with many threads and with sums that would wrap. */
#include "common/process.h"
#include "tests/harness.h"

static void put(const char *root, const char *path, const char *text) {
    char *name = TEXT("%s%s", root, path);
    (void)mkdir(root, 0755);
    for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        (void)mkdir(name, 0755);
    }
    FILE *file = fopen(name, "we");
    REQUIRE(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

TEST(the_smallest_limit_of_a_control_group_and_those_above_it_counts) {
#define V1 "/sys/fs/cgroup/memory"
#define V2 "/sys/fs/cgroup"
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    EACH(one, FIELDS(const char *cgroup, *mounts, *files[4][2]; uint64_t wanted /* 0: the RAM */),
         {"0::/pods/mine\n",
          "31 23 0:28 / " V2 " rw - cgroup2 cgroup rw\n",
          {{V2 "/pods/mine/memory.max", "max\n"}, {V2 "/pods/memory.max", "1048576\n"}},
          1048576},
         {"0::/pods/mine\n",
          "31 23 0:28 / " V2 " rw shared:4 - cgroup2 cgroup rw\n",
          {{V2 "/pods/mine/memory.max", "2097152\n"}, {V2 "/pods/memory.max", "4194304\n"}},
          2097152},
         {"0::/\n",
          "31 23 0:28 / " V2 " rw - cgroup2 cgroup rw\n",
          {{V2 "/memory.max", "max\n"}},
          0},
         /* A container with the host's names of groups: what is mounted is its own. */
         {"5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n",
          "31 23 0:28 / " V2 " rw - tmpfs tmpfs rw\n33 31 0:30 /docker/abc " V2 "/cpu rw - cgroup "
          "cgroup rw,cpu,cpuacct\n35 31 0:32 /docker/abc " V1 " rw - cgroup cgroup rw,memory\n",
          {{V1 "/memory.limit_in_bytes", "3145728\n"}},
          3145728},
         {"4:memory:/job/1\n",
          "35 31 0:32 / " V1 " rw - cgroup cgroup rw,memory\n",
          {{V1 "/job/1/memory.limit_in_bytes", "9223372036854771712\n"},
           {V1 "/job/memory.limit_in_bytes", "5242880\n"},
           {V1 "/memory.limit_in_bytes", "9223372036854771712\n"}},
          5242880},
         {"0::/../elsewhere\n",
          "31 23 0:28 /mine " V2 " rw - cgroup2 cgroup rw\n",
          {{V2 "/memory.max", "6291456\n"}},
          6291456},
         {"", "", {{NULL, NULL}}, 0}) {
        const char *root = TEXT("%s/%zu", cairn_test_folder(), AT(one));
        put(root, "/proc/self/cgroup", one->cgroup);
        put(root, "/proc/self/mountinfo", one->mounts);
        for (size_t k = 0; k < 4 && one->files[k][0]; k++)
            put(root, one->files[k][0], one->files[k][1]);
        EXPECT_EQ_U64(cairn_memory_limit(root), one->wanted ? one->wanted : ram);
    }
    EXPECT(cairn_memory_limit("") <= ram && cairn_memory_limit("") > 0);
}

TEST(a_reservation_that_does_not_fit_is_refused_with_the_numbers) /* process.h#7 process.h#8, P11 */
{
    struct cairn_error err = {0};
    CAIRN_AUTO(budget) budget = {0};
    cairn_budget_init(&budget, 10 * CAIRN_GIB);
    REQUIRE_OK(cairn_budget_take(&budget, 8 * CAIRN_GIB, "slabs of llm/7b rank 0", &err));
    EXPECT_FAILS(cairn_budget_take(&budget, 3 * CAIRN_GIB, "slabs of llm/7b rank 3", &err),
                 CAIRN_NO_MEMORY, "slabs of llm/7b rank 3");
    EXPECT_HAS(err.message, "3.0 GiB", "8.0 GiB", "10.0 GiB");
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), 2 * CAIRN_GIB);
    EXPECT_CODE(cairn_budget_take(&budget, 2 * CAIRN_GIB, "the rest", &err), CAIRN_OK);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), 0);
    cairn_budget_give(&budget, 8 * CAIRN_GIB);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), 8 * CAIRN_GIB);
    EXPECT_EQ_U64(budget.locked.highest_bytes, 10 * CAIRN_GIB);
}

TEST(a_request_near_the_end_of_the_number_range_does_not_wrap, err) { /* process.h#7 */
    CAIRN_AUTO(budget) budget = {0};
    cairn_budget_init(&budget, UINT64_MAX);
    REQUIRE_OK(cairn_budget_take(&budget, CAIRN_GIB, "first", &err));
    EXPECT_CODE(cairn_budget_take(&budget, UINT64_MAX, "second", &err), CAIRN_NO_MEMORY);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), (UINT64_C(1) << 62) - CAIRN_GIB);
}

struct taker {
    struct cairn_budget *budget;
    unsigned refused;
};

static void *take_and_give(void *context) {
    struct taker *taker = context;
    for (int i = 0; i < 5000; i++) {
        if (cairn_budget_take(taker->budget, 3, "thread", NULL) == CAIRN_OK)
            cairn_budget_give(taker->budget, 3);
        else
            taker->refused++;
    }
    return NULL;
}

TEST(threads_that_take_and_give_leave_nothing_behind) { /* process.h#7 */
    CAIRN_AUTO(budget) budget = {0};
    cairn_budget_init(&budget, 7); /* room for two of the four */
    pthread_t threads[4];
    struct taker takers[4];
    for (size_t i = 0; i < 4; i++) {
        takers[i] = (struct taker){&budget, 0};
        REQUIRE(pthread_create(&threads[i], NULL, take_and_give, &takers[i]) == 0);
    }
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    EXPECT_EQ_U64(cairn_budget_free_bytes(&budget), 7);
    EXPECT(budget.locked.highest_bytes <= 7);
}
