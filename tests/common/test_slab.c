/* SPDX-License-Identifier: Apache-2.0 */
/* slab: real memfds, real seals, and what a stranger may try to pass off as one. */
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "common/memory.h"
#include "tests/harness.h"

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

static int memfd(uint64_t bytes, int seals) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0)
        return fd;
    return -1;
}

/* Pages of [data, data + bytes) that need no fault in this process, from its page table. */
static bool is_mapped(const void *data, uint64_t bytes) {
    CAIRN_AUTO_FD map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < bytes; at += page) {
        uint64_t entry = 0;
        off_t slot = (off_t)(((uintptr_t)data + at) / page * sizeof entry);
        if (pread(map, &entry, sizeof entry, slot) != sizeof entry) return false;
        if (!(entry >> 63)) return false;
    }
    return true;
}

TEST(a_slab_is_rounded_up_aligned_zeroed_and_populated, err) { /* memory.h#3 */
    WITH_OK(slab, slab, cairn_slab_create("test", 3 * CAIRN_MIB, false, &slab, &err));
    EXPECT_ALL_U64(slab.size_bytes, 4 * CAIRN_MIB, (uintptr_t)slab.data % CAIRN_SLAB_UNIT_BYTES, 0);
    EXPECT(slab.writable);
    EXPECT(is_mapped(slab.data, slab.size_bytes));
    uint64_t sum = 0;
    for (uint64_t i = 0; i < slab.size_bytes; i++) sum += slab.data[i];
    EXPECT_EQ_U64(sum, 0);
    EXPECT(fcntl(slab.fd, F_GETFD) & FD_CLOEXEC);
}

TEST(a_slab_of_a_node_is_whole_and_one_of_a_node_that_is_not_there_comes_from_any, err) {
    EACH_OF(int, number, 0, 999, CAIRN_NUMA_NODES_MAX, -1) {
        CAIRN_AUTO(slab) slab = {0};
        REQUIRE_OK(cairn_slab_create_at("test", CAIRN_MIB, number, &slab, &err));
        EXPECT(is_mapped(slab.data, slab.size_bytes));
        if (AT_OF(number)) EXPECT_EQ_U64(slab.numa, 0);
        if (!AT_OF(number)) EXPECT(slab.numa <= 1); /* a container may refuse it */
    }
}

static void write_list(const char *folder, int node, const char *list) {
    char path[600];
    struct cairn_error err = {0};
    snprintf(path, sizeof path, "%s/node%d", folder, node);
    EXPECT(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/node%d/cpulist", folder, node);
    EXPECT_CODE(cairn_file_replace(path, cairn_view_of(list), 0600, &err), CAIRN_OK);
}

/* A machine of two nodes, numbered with a gap. */
TEST(the_numa_node_of_a_thread_has_all_cpus_on_which_it_may_run) {
    const char *folder = cairn_test_folder();
    cpu_set_t before, one;
    unsigned cpu = 0;
    char own[32], others[64];
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    while (!CPU_ISSET(cpu, &before)) cpu++;
    EXPECT(cairn_numa_node("/nowhere") == -1);
    snprintf(own, sizeof own, "%u\n", cpu);
    snprintf(others, sizeof others, "%u-%u,%u-1023\n", cpu + 1, cpu + 2, cpu + 3);
    write_list(folder, 0, others);
    write_list(folder, 2, own);
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    EXPECT(cairn_numa_node(folder) == 2);
    REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
    if (CPU_COUNT(&before) > 1) EXPECT(cairn_numa_node(folder) == -1);
    write_list(folder, 0, "0-1023\n");
    EXPECT(cairn_numa_node(folder) == 0);
    write_list(folder, 0, "\n");
    write_list(folder, 2, "0-100000000000,x\n");
    EXPECT(cairn_numa_node(folder) == 2);
}

TEST(a_slab_can_neither_shrink_nor_grow, err) { /* memory.h#4 */
    WITH_OK(slab, slab, cairn_slab_create("test", CAIRN_MIB, false, &slab, &err));
    EXPECT(ftruncate(slab.fd, 4096) != 0 && errno == EPERM);
    EXPECT(ftruncate(slab.fd, 64 * (off_t)CAIRN_MIB) != 0 && errno == EPERM);
}

TEST(the_other_side_sees_the_same_bytes, err) {
    WITH_OK(slab, ours, cairn_slab_create("test", 2 * CAIRN_MIB, false, &ours, &err));
    WITH_OK(slab, theirs, cairn_slab_attach(dup(ours.fd), ours.size_bytes, true, &theirs, &err));
    EXPECT(is_mapped(theirs.data, theirs.size_bytes));
    EXPECT_ALL_U64(theirs.device, ours.device, theirs.inode, ours.inode);
    theirs.data[CAIRN_MIB] = 42;
    EXPECT_EQ_U64(ours.data[CAIRN_MIB], 42);
}

TEST(after_freeze_old_writers_go_on_and_new_ones_are_refused, err) { /* memory.h#4 */
    CAIRN_AUTO(slab) ours = {0}, theirs = {0}, late = {0};
    REQUIRE_OK(cairn_slab_create("test", 2 * CAIRN_MIB, false, &ours, &err));
    REQUIRE_OK(cairn_slab_attach(dup(ours.fd), ours.size_bytes, true, &theirs, &err));
    REQUIRE_OK(cairn_slab_freeze(&ours, &err));
    EXPECT_CODE(cairn_slab_freeze(&ours, &err), CAIRN_OK);
    theirs.data[0] = 7;
    EXPECT_EQ_U64(ours.data[0], 7);
    EXPECT(cairn_slab_attach(dup(ours.fd), ours.size_bytes, true, &late, &err) != CAIRN_OK);
    EXPECT(late.data == NULL);
    EXPECT_CODE(cairn_slab_attach(dup(ours.fd), ours.size_bytes, false, &late, &err), CAIRN_OK);
    EXPECT(late.data && late.data[0] == 7);
}

TEST(a_slab_for_readers_is_frozen_from_the_start, err) { /* memory.h#4 */
    CAIRN_AUTO(slab) ours = {0}, theirs = {0};
    REQUIRE_OK(cairn_slab_create("test", 2 * CAIRN_MIB, true, &ours, &err));
    ours.data[9] = 9;
    EXPECT(cairn_slab_attach(dup(ours.fd), ours.size_bytes, true, &theirs, &err) != CAIRN_OK);
    REQUIRE_OK(cairn_slab_attach(dup(ours.fd), ours.size_bytes, false, &theirs, &err));
    EXPECT_EQ_U64(theirs.data[9], 9);
    EXPECT(pwrite(theirs.fd, "x", 1, 0) < 0 && errno == EPERM);
}

TEST(a_descriptor_that_is_no_sealed_memory_of_that_size_is_refused_and_closed, err) /* memory.h#5 */
{
    uint64_t size = 2 * CAIRN_MIB;
    int both = F_SEAL_SHRINK | F_SEAL_GROW, pipes[2];
    REQUIRE(pipe2(pipes, O_CLOEXEC) == 0);
    int file = open(TEXT("%s/file", cairn_test_folder()), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(file >= 0 && ftruncate(file, (off_t)size) == 0);
    EACH_OF(int, number, memfd(size, 0), memfd(size, F_SEAL_SHRINK), memfd(size, F_SEAL_GROW),
            memfd(size + 4096, both), memfd(size - 1, both), memfd(0, both), pipes[0], pipes[1],
            file, open("/dev/zero", O_RDWR | O_CLOEXEC),
            open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), open("/", O_PATH | O_CLOEXEC)) {
        REQUIRE(number >= 0);
        struct cairn_slab slab = {0};
        EXPECT_CODE(cairn_slab_attach(number, size, false, &slab, &err), CAIRN_PROTOCOL);
        EXPECT(slab.data == NULL);
        EXPECT(!is_open(number));
    }
    struct cairn_slab slab = {0};
    EXPECT_CODE(cairn_slab_attach(-1, size, false, &slab, &err), CAIRN_PROTOCOL);
}

TEST(memory_on_reserved_huge_pages_is_refused, err) { /* memory.h#5 */
    struct cairn_slab slab = {0};
    uint64_t size = 2 * CAIRN_MIB;
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0) SKIP("this kernel has no memory files on reserved huge pages");
    REQUIRE(ftruncate(fd, (off_t)size) == 0);
    REQUIRE(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    EXPECT_CODE(cairn_slab_attach(fd, size, false, &slab, &err), CAIRN_PROTOCOL);
    EXPECT(slab.data == NULL);
    EXPECT(!is_open(fd));
}

TEST(memory_of_an_odd_size_can_be_attached, err) {
    int fd = memfd(12345, F_SEAL_SHRINK | F_SEAL_GROW);
    REQUIRE(pwrite(fd, "end", 3, 12342) == 3);
    WITH_OK(slab, slab, cairn_slab_attach(fd, 12345, false, &slab, &err));
    EXPECT(!memcmp(slab.data + 12342, "end", 3));
}

/* Pages for all bytes, as a trainer's stream has them. */
static int written_memfd(uint64_t bytes, int seals) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CAIRN_AUTO_HEAP uint8_t *data = malloc((size_t)bytes);
    memset(data, 'x', (size_t)bytes);
    bool made = fd >= 0 && pwrite(fd, data, (size_t)bytes, 0) == (ssize_t)bytes &&
                fcntl(fd, F_ADD_SEALS, seals) == 0;
    return made ? fd : -1;
}

TEST(memory_that_nobody_can_change_is_held_by_its_mapping_alone, err) { /* memory.h#6 */
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    int fd = written_memfd(12345, seals);
    WITH_OK(slab, slab, cairn_slab_attach_sealed(fd, 12345, &slab, &err));
    EXPECT(!is_open(fd));
    EXPECT(slab.fd == -1 && slab.data[12344] == 'x' && !slab.writable);
    struct cairn_slab other = {0};
    EXPECT_FAILS(cairn_slab_attach_sealed(written_memfd(12345, F_SEAL_SHRINK | F_SEAL_GROW), 12345,
                                          &other, &err),
                 CAIRN_PROTOCOL, "not sealed against writing");
    EXPECT_FAILS(cairn_slab_attach_sealed(memfd(12345, seals), 12345, &other, &err), CAIRN_PROTOCOL,
                 "pages for 0 of its 12345 bytes");
    EXPECT_CODE(cairn_slab_attach_sealed(written_memfd(12345, seals), 12346, &other, &err),
                CAIRN_PROTOCOL);
}

TEST(a_slab_outlives_the_process_that_filled_it, err) {
    WITH_OK(slab, slab, cairn_slab_create("test", 2 * CAIRN_MIB, false, &slab, &err));
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        memset(slab.data, 0x5a, slab.size_bytes);
        raise(SIGKILL);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < slab.size_bytes; i++) wrong += slab.data[i] != 0x5a;
    EXPECT_EQ_U64(wrong, 0);
}

TEST(impossible_sizes_are_refused, err) {
    struct cairn_slab slab = {0};
    EXPECT_CODE(cairn_slab_create("test", 0, false, &slab, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_slab_create("test", UINT64_MAX, false, &slab, &err), CAIRN_INVALID);
    EXPECT(cairn_slab_create("test", UINT64_C(1) << 60, false, &slab, &err) != CAIRN_OK);
    EXPECT(slab.data == NULL);
}

TEST(releasing_a_zeroed_slab_closes_nothing) {
    int marker = dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    REQUIRE(marker == 0);
    struct cairn_slab slab = {0};
    cairn_slab_release(&slab);
    cairn_slab_release(&slab);
    EXPECT(is_open(0));
}
