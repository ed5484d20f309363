/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped with a huge page's worth of addresses more, which are given back around it. */
#include "common/pages.h"

#include <sys/mman.h>
#include <unistd.h>

static size_t whole_pages(size_t bytes) {
    size_t unit = (size_t)sysconf(_SC_PAGESIZE);
    return bytes / unit * unit + (bytes % unit ? unit : 0);
}

void *cairn_pages_map(size_t bytes) {
    size_t wanted = whole_pages(bytes), all = wanted + CAIRN_PAGES_HUGE_BYTES;
    if (!bytes || wanted < bytes || all < wanted) return NULL;
    uint8_t *start =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t lead = (size_t)(-(uintptr_t)start & (CAIRN_PAGES_HUGE_BYTES - 1));
    if (lead) munmap(start, lead);
    munmap(start + lead + wanted, CAIRN_PAGES_HUGE_BYTES - lead);
    size_t huge = wanted - wanted % CAIRN_PAGES_HUGE_BYTES;
    if (huge) (void)madvise(start + lead, huge, MADV_HUGEPAGE);
    return start + lead;
}

void cairn_pages_unmap(void *data, size_t bytes) {
    if (data) munmap(data, whole_pages(bytes));
}
