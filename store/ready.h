/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ready: blocks of an object that this machine's memory holds already, read without waiting.
 *
 * Why:     a thread that may never wait for a store can serve by itself what the page cache has.
 *          Handing each chunk over from a thread that reads it costs more than the reading: the
 *          other core's cache has to be emptied of it.
 * Promise: P3  read() says true only where each block that came is equal to its checksum.
 *          1   nothing waits for a device or another machine: what is not there at once is not
 *              ready. Of a tmpfs all is ready, also what was swapped out, as any memory may be.
 *          2   what is not ready, shorter than wanted or wrong is no error: the caller reads it in
 *              the usual way, which tells what is the matter.
 *          3   the object that was opened is read to the end, whatever becomes of its name.
 * Limits:  a folder's objects alone, and a descriptor for each. Ranges begin with a block.
 * Threads: open() any; one owner.
 * Next:    store/dir/ready.c, server/reads/source.c.
 */
#pragma once

#include "store/store.h"

struct cairn_store_ready {
    int fd;
    int flags; /* of preadv2() */
    bool open;
};
/* Where the first and the last byte of that range, which is not empty, are ready now. */
bool cairn_store_ready_open(struct cairn_store *store, const char *key, uint64_t begin,
                            uint64_t end, struct cairn_store_ready *ret) CAIRN_MUST_USE;
void cairn_store_ready_release(struct cairn_store_ready *ready);
/* checksums: CRC32C of the range's blocks, 4 bytes each, little-endian. */
bool cairn_store_ready_read(const struct cairn_store_ready *ready, uint64_t offset, void *into,
                            size_t size, const void *checksums) CAIRN_MUST_USE;
