/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: shared memory that one process fills and another sends from (memfd).
 *
 * Why:     the bytes a trainer stages are the bytes that are sent; no copy in between, and they
 *          outlive the trainer.
 * Promise: 1   a slab is populated and, where the kernel can, collapsed into huge pages by its
 *              maker, so no page fault falls into a save.
 *          2   it is sealed against shrinking and growing from the start: reading it can never
 *              raise SIGBUS. cairn_slab_freeze adds FUTURE_WRITE once the other side has mapped.
 *          3   a received fd is trusted only after seals (SHRINK and GROW) and the exact size
 *              were checked; anything else is CAIRN_PROTOCOL and the fd is closed.
 * Limits:  sizes are rounded up to 2 MiB.
 * Threads: the struct has one owner; the memory is shared by design.
 * Next:    uploader/README.md, rules on generations.
 */
#pragma once

#include "common/error.h"

#define CAIRN_SLAB_UNIT_BYTES (2 * CAIRN_MIB)

struct cairn_slab {
    int fd;
    uint8_t *data;
    uint64_t size_bytes;
    uint64_t device; /* st_dev and st_ino recognise it after a restart */
    uint64_t inode;
    bool huge;     /* every chunk was collapsed */
    bool writable; /* this process' mapping */
};
/* read_only_peers: seal FUTURE_WRITE at once (restore slabs: only the maker writes). */
enum cairn_code cairn_slab_create(const char *name, uint64_t bytes, bool read_only_peers,
                                  struct cairn_slab *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Takes take_fd also on failure. expected_bytes is the exact size that was promised. */
enum cairn_code cairn_slab_attach(int take_fd, uint64_t expected_bytes, bool writable,
                                  struct cairn_slab *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_slab_freeze(struct cairn_slab *slab, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_slab_release(struct cairn_slab *slab);
