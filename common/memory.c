/* SPDX-License-Identifier: Apache-2.0 */
/* Private memory is mapped with one extra huge page of addresses, unmapped again around it. Slabs
 * are memfds; each page of a chunk is touched before the chunk is collapsed: an untouched chunk
 * is EINVAL, and populating it by 4 KiB pages first makes the kernel copy instead of clear. */
#include "common/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
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

/* ---- slabs ---- */

/* Constants that glibc 2.36 lacks. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
/* A machine without free huge pages refuses slowly; stop trying after this many refusals. */
#define COLLAPSE_REFUSALS_MAX 8
#define SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW)

static uint64_t page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Maps at a 2 MiB boundary; an unaligned mapping cannot have huge pages. */
static enum cairn_code map_aligned(int fd, uint64_t bytes, bool writable, uint8_t **ret,
                                   struct cairn_error *err) {
    uint64_t unit = CAIRN_SLAB_UNIT_BYTES, reserve_bytes;
    if (cairn_add_overflows(bytes, 2 * unit, &reserve_bytes) || reserve_bytes > SIZE_MAX / 2)
        return cairn_fail(err, CAIRN_INVALID, "a slab of %llu bytes is too large",
                          (unsigned long long)bytes);
    int quiet = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint8_t *reserve = mmap(NULL, reserve_bytes, PROT_NONE, quiet, -1, 0);
    if (reserve == MAP_FAILED) return cairn_fail_errno(err, "address space for a slab");
    uint64_t lead = cairn_round_up((uintptr_t)reserve, unit) - (uintptr_t)reserve;
    uint64_t mapped = cairn_round_up(bytes, page_bytes());
    uint8_t *start = reserve + lead;
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mmap(start, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int saved = errno;
        munmap(reserve, reserve_bytes);
        errno = saved;
        return cairn_fail_errno(err, "map a slab of %llu bytes%s", (unsigned long long)bytes,
                                writable ? "" : " read-only");
    }
    if (lead) munmap(reserve, lead);
    munmap(start + mapped, reserve_bytes - lead - mapped);
    /* Keeps the node's checkpoint memory out of core files. */
    madvise(start, mapped, MADV_DONTDUMP);
    *ret = start;
    return CAIRN_OK;
}

static enum cairn_code identify(struct cairn_slab *slab, struct cairn_error *err) {
    struct stat status;
    if (fstat(slab->fd, &status) != 0) return cairn_fail_errno(err, "stat a slab");
    slab->device = status.st_dev;
    slab->inode = status.st_ino;
    return CAIRN_OK;
}

/* Faults pages in. madvise reports a lack of memory as an error, a plain touch as a signal; kernels
 * before 5.14 lack the call, so pages are touched one by one. */
static enum cairn_code fault_in(uint8_t *data, uint64_t bytes, struct cairn_error *err) {
    if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return CAIRN_OK;
    if (errno == ENOMEM) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to populate a slab");
    volatile uint8_t *touched = data;
    for (uint64_t at = 0; at < bytes; at += page_bytes()) touched[at] = 0;
    return CAIRN_OK;
}

/* ---- NUMA nodes ---- */

#define BITS (8 * sizeof(unsigned long))
#ifndef MPOL_PREFERRED
#define MPOL_PREFERRED 1
#endif

/* Before the pages are touched. The policy is the memfd's, whoever touches them. */
static bool bind_to(const struct cairn_slab *slab, int numa_node) {
    unsigned long nodes[CAIRN_NUMA_NODES_MAX / BITS] = {0};
    if (numa_node < 0 || numa_node >= CAIRN_NUMA_NODES_MAX) return false;
    nodes[(size_t)numa_node / BITS] = 1ul << ((size_t)numa_node % BITS);
    return syscall(SYS_mbind, slab->data, slab->size_bytes, MPOL_PREFERRED, nodes,
                   CAIRN_NUMA_NODES_MAX + 1, 0) == 0;
}

/* True: the list ("0-3,8") names every CPU of the set. */
static bool names_every_cpu(const char *list, const cpu_set_t *set) {
    cpu_set_t left = *set;
    while (*list) {
        char *end = NULL;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (end == list) break;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
            CPU_CLR(cpu, &left);
        list = *end == ',' ? end + 1 : end + strlen(end);
    }
    return CPU_COUNT(&left) == 0;
}

int cairn_numa_node(const char *folder) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return -1;
    for (int node = 0; node < CAIRN_NUMA_NODES_MAX; node++) {
        char path[512], list[4096];
        snprintf(path, sizeof(path), "%s/node%d/cpulist", folder, node);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && !node) return -1; /* numbers may have gaps, but the first is 0 */
        if (fd < 0) continue;
        ssize_t size = read(fd, list, sizeof(list) - 1);
        close(fd);
        list[size > 0 ? size : 0] = '\0';
        if (names_every_cpu(list, &set)) return node;
    }
    return -1;
}

static enum cairn_code make(struct cairn_slab *slab, const char *name, bool read_only_peers,
                            int numa_node, struct cairn_error *err) {
    slab->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (slab->fd < 0) return cairn_fail_errno(err, "memfd \"%s\"", name);
    if (ftruncate(slab->fd, (off_t)slab->size_bytes) != 0)
        return cairn_fail_errno(err, "size a slab of %llu bytes",
                                (unsigned long long)slab->size_bytes);
    if (fcntl(slab->fd, F_ADD_SEALS, SEALS_NEEDED) != 0)
        return cairn_fail_errno(err, "seal the slab \"%s\"", name);
    CAIRN_TRY(identify(slab, err));
    CAIRN_TRY(map_aligned(slab->fd, slab->size_bytes, true, &slab->data, err));
    if (bind_to(slab, numa_node)) slab->numa = (uint32_t)numa_node + 1;
    unsigned refusals = 0;
    slab->huge = true;
    for (uint64_t at = 0; at < slab->size_bytes; at += CAIRN_SLAB_UNIT_BYTES) {
        uint8_t *chunk = slab->data + at;
        if (refusals < COLLAPSE_REFUSALS_MAX) {
            CAIRN_TRY(fault_in(chunk, page_bytes(), err));
            if (madvise(chunk, CAIRN_SLAB_UNIT_BYTES, MADV_COLLAPSE) == 0) continue;
            /* EINVAL: this kernel cannot collapse shared memory at all. */
            refusals = errno == EINVAL ? COLLAPSE_REFUSALS_MAX : refusals + 1;
        }
        slab->huge = false;
        CAIRN_TRY(fault_in(chunk, CAIRN_SLAB_UNIT_BYTES, err));
    }
    return read_only_peers ? cairn_slab_freeze(slab, err) : CAIRN_OK;
}

/* Releases a partly made slab; its fd is open even if nothing is mapped yet. */
static void drop(struct cairn_slab *slab) {
    if (slab->data) munmap(slab->data, cairn_round_up(slab->size_bytes, page_bytes()));
    if (slab->fd >= 0) close(slab->fd);
    *slab = (struct cairn_slab){0};
}

static enum cairn_code create(const char *name, uint64_t bytes, bool read_only_peers, int numa_node,
                              struct cairn_slab *ret, struct cairn_error *err) {
    if (bytes == 0 || bytes > (UINT64_C(1) << 62))
        return cairn_fail(err, CAIRN_INVALID, "a slab cannot have %llu bytes",
                          (unsigned long long)bytes);
    struct cairn_slab slab = {.fd = -1, .writable = true};
    slab.size_bytes = cairn_round_up(bytes, CAIRN_SLAB_UNIT_BYTES);
    enum cairn_code code = make(&slab, name, read_only_peers, numa_node, err);
    if (code != CAIRN_OK)
        drop(&slab);
    else
        *ret = slab;
    return code;
}

enum cairn_code cairn_slab_create(const char *name, uint64_t bytes, bool read_only_peers,
                                  struct cairn_slab *ret, struct cairn_error *err) {
    return create(name, bytes, read_only_peers, -1, ret, err);
}

enum cairn_code cairn_slab_create_at(const char *name, uint64_t bytes, int numa_node,
                                     struct cairn_slab *ret, struct cairn_error *err) {
    return create(name, bytes, false, numa_node, ret, err);
}

/* The pages exist already; this fills our page table, so that no fault comes later. Without the
 * madvise call pages are read, which changes nothing that a peer wrote. */
static enum cairn_code populate_mapping(const struct cairn_slab *slab, struct cairn_error *err) {
    int advice = slab->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    uint64_t mapped = cairn_round_up(slab->size_bytes, page_bytes());
    if (madvise(slab->data, mapped, advice) == 0) return CAIRN_OK;
    /* Touching pages after these errors would raise a signal. */
    if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON)
        return cairn_fail_errno(err, "the pages of a slab that was received");
    const volatile uint8_t *data = slab->data;
    for (uint64_t at = 0; at < slab->size_bytes; at += page_bytes()) (void)data[at];
    return CAIRN_OK;
}

/* memory.h#5: checks the fd's seals and size before anything is mapped. */
static enum cairn_code trust(int fd, uint64_t expected_bytes, struct cairn_error *err) {
    struct stat status;
    struct statfs system;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || fstatfs(fd, &system) != 0)
        return cairn_fail(err, CAIRN_PROTOCOL, "the descriptor received is no memory file");
    /* Touching a page that hugetlbfs has not reserved would raise a signal. */
    if (system.f_type != TMPFS_MAGIC)
        return cairn_fail(
            err, CAIRN_PROTOCOL,
            "the descriptor received is no memory of ordinary pages (file system %lx)",
            (unsigned long)system.f_type);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED)
        return cairn_fail(err, CAIRN_PROTOCOL,
                          "the descriptor received is not sealed against shrinking and growing");
    if (expected_bytes == 0 || status.st_size < 0 || (uint64_t)status.st_size != expected_bytes)
        return cairn_fail(err, CAIRN_PROTOCOL, "the memory received has %lld bytes, promised: %llu",
                          (long long)status.st_size, (unsigned long long)expected_bytes);
    return CAIRN_OK;
}

enum cairn_code cairn_slab_attach(int take_fd, uint64_t expected_bytes, bool writable,
                                  struct cairn_slab *ret, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = take_fd;
    CAIRN_TRY(trust(fd, expected_bytes, err));
    struct cairn_slab slab = {.fd = fd, .size_bytes = expected_bytes, .writable = writable};
    CAIRN_TRY(identify(&slab, err));
    CAIRN_TRY(map_aligned(fd, expected_bytes, writable, &slab.data, err));
    fd = -1;
    enum cairn_code code = populate_mapping(&slab, err);
    if (code != CAIRN_OK)
        drop(&slab);
    else
        *ret = slab;
    return code;
}

enum cairn_code cairn_slab_attach_sealed(int take_fd, uint64_t expected_bytes,
                                         struct cairn_slab *ret, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = take_fd;
    /* memory.h#6 */
    struct stat status;
    CAIRN_TRY(trust(fd, expected_bytes, err));
    if (!(fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE))
        return cairn_fail(err, CAIRN_PROTOCOL, "the memory received is not sealed against writing");
    if (fstat(fd, &status) != 0) return cairn_fail_errno(err, "stat the memory received");
    if ((uint64_t)status.st_blocks * 512 < expected_bytes)
        return cairn_fail(
            err, CAIRN_PROTOCOL, "the memory received has pages for %llu of its %llu bytes",
            (unsigned long long)status.st_blocks * 512, (unsigned long long)expected_bytes);
    struct cairn_slab slab = {.fd = fd, .size_bytes = expected_bytes};
    CAIRN_TRY(identify(&slab, err));
    CAIRN_TRY(map_aligned(fd, expected_bytes, false, &slab.data, err));
    slab.fd = -1; /* closed at the end of this scope */
    *ret = slab;
    return CAIRN_OK;
}

enum cairn_code cairn_slab_freeze(struct cairn_slab *slab, struct cairn_error *err) {
    int seals = fcntl(slab->fd, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_FUTURE_WRITE)) return CAIRN_OK;
    if (fcntl(slab->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0)
        return cairn_fail_errno(err, "seal a slab against new writers");
    return CAIRN_OK;
}

void cairn_slab_release(struct cairn_slab *slab) {
    /* A zeroed struct has fd 0, which is not ours: only a mapped slab has an open fd. */
    if (slab->data) drop(slab);
    *slab = (struct cairn_slab){0};
}
