/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: private memory and shared slabs (memfds) for big transfers, of huge pages where the
 * kernel has them.
 *
 * Why:     a disk request holds a limited number of memory segments, whatever their size (254 of
 *          4 KiB are 1 MiB): with huge pages O_DIRECT reads of 4 MiB were three times as fast on a
 *          virtual disk, and faults of small pages cost a third of a read through the server.
 *          The uploader sends bytes from the slab in which the trainer staged them, without a
 *          copy, and they outlive the trainer.
 * Promise: 1   private memory begins at a huge page's border, and reads as zeros.
 *          2   a kernel without huge pages for it silently provides small ones.
 *          3   a slab is populated and, where the kernel can, collapsed into huge pages by its
 *              maker, so no page fault falls into a save.
 *          4   it is sealed against shrinking and growing from the start: reading it can never
 *              raise SIGBUS. cairn_slab_freeze adds FUTURE_WRITE once the other side has mapped.
 *          5   a received fd is trusted only after seals (SHRINK and GROW) and the exact size
 *              were checked; anything else is CAIRN_PROTOCOL and the fd is closed.
 *          6   attach_sealed also requires WRITE, and a page for every byte: what was checked once
 *              stays as it was, and reading it allocates nothing.
 * Limits:  private memory is unmapped at release: use it for many transfers, or for one of MiB.
 *          Sizes of slabs are rounded up to 2 MiB.
 * Threads: any; a struct cairn_slab has one owner, its memory is shared by design.
 * Next:    uploader/README.md, rules on generations.
 */
#pragma once

#include "common/base.h"
#include "common/error.h"

#define CAIRN_PAGES_HUGE_BYTES (2 * CAIRN_MIB)

/* NULL: no memory. */
void *cairn_pages_map(size_t bytes) CAIRN_MUST_USE;
void cairn_pages_unmap(void *data, size_t bytes); /* bytes as mapped; takes NULL */

/* ---- slabs ---- */

#define CAIRN_SLAB_UNIT_BYTES (2 * CAIRN_MIB)

struct cairn_slab {
    int fd;
    uint8_t *data;
    uint64_t size_bytes;
    uint64_t device; /* st_dev and st_ino identify it after a restart */
    uint64_t inode;
    bool huge;     /* every chunk was collapsed */
    bool writable; /* whether this process maps it writable */
    uint32_t numa; /* 1 + the NUMA node that its pages come from; 0: any */
};
/* read_only_peers: seals FUTURE_WRITE at once (restore slabs: only the maker writes). */
enum cairn_code cairn_slab_create(const char *name, uint64_t bytes, bool read_only_peers,
                                  struct cairn_slab *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* The same for peers that write; its pages come from this NUMA node while it has some. The kernel
 * may refuse that (a node that is not there, a container): then ret->numa is 0. -1: any node. */
enum cairn_code cairn_slab_create_at(const char *name, uint64_t bytes, int numa_node,
                                     struct cairn_slab *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_NUMA_FOLDER "/sys/devices/system/node"
#define CAIRN_NUMA_NODES_MAX 1024
/* The NUMA node that has all CPUs on which this thread may run, by the lists in that folder; -1:
 * several have, or it is unknown. */
int cairn_numa_node(const char *folder);
/* Takes take_fd, also on failure. expected_bytes: the exact size announced by the peer. */
enum cairn_code cairn_slab_attach(int take_fd, uint64_t expected_bytes, bool writable,
                                  struct cairn_slab *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Memory that nobody can change any more: also sealed against writing, every page present. Mapped
 * read-only, not populated; ret->fd is -1, since the mapping alone holds the memory. */
enum cairn_code cairn_slab_attach_sealed(int take_fd, uint64_t expected_bytes,
                                         struct cairn_slab *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_slab_freeze(struct cairn_slab *slab, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_slab_release(struct cairn_slab *slab);
