/* SPDX-License-Identifier: Apache-2.0 */
/* pages: where the memory lies, and what the kernel was asked for it. */
#include <sys/mman.h>

#include "common/memory.h"
#include "tests/harness.h"

/* The flags of the mapping that holds this address ("rd wr mr mw me ac hg"), from smaps. */
static bool has_flag(const void *data, const char *flag) {
    char line[512];
    bool here = false, found = false;
    FILE *maps = fopen("/proc/self/smaps", "re");
    if (!maps) return false;
    while (fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            here = (uintptr_t)data >= begin && (uintptr_t)data < end;
        else if (here && !strncmp(line, "VmFlags:", 8))
            found = strstr(line, flag) != NULL;
    }
    fclose(maps);
    return found;
}

static bool is_mapped(const void *address) {
    unsigned char resident;
    uintptr_t page = (uintptr_t)address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    return mincore((void *)page, 1, &resident) == 0; /* ENOMEM: nothing is there */
}

TEST(memory_for_transfers_begins_at_a_huge_page_and_asks_for_them) { /* memory.h#1 */
    size_t bytes = 8 * CAIRN_MIB;
    uint8_t *data = cairn_pages_map(bytes);
    REQUIRE(data);
    EXPECT_EQ_U64((uintptr_t)data % CAIRN_PAGES_HUGE_BYTES, 0);
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i += 512) sum += data[i];
    EXPECT_EQ_U64(sum, 0);
    memset(data, 1, bytes);
    bool offered = access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0;
    EXPECT(!offered || has_flag(data, " hg"));
    cairn_pages_unmap(data, bytes);
    EXPECT(!is_mapped(data) && !is_mapped(data + bytes - 1));
}

TEST(memory_of_an_odd_size_is_given_back_whole) {
    size_t bytes = 2 * CAIRN_MIB + 1;
    uint8_t *data = cairn_pages_map(bytes);
    REQUIRE(data);
    data[bytes - 1] = 1;
    cairn_pages_unmap(data, bytes);
    EXPECT(!is_mapped(data + bytes - 1));
    EXPECT(!cairn_pages_map(0) && !cairn_pages_map(SIZE_MAX) && !cairn_pages_map(SIZE_MAX / 4));
    cairn_pages_unmap(NULL, 1);
}
