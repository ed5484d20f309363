/* SPDX-License-Identifier: Apache-2.0 */
/* preadv2() that does not wait, and checksums while the bytes are in the cache; see ready.h. */
#include "store/ready.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/crc.h"

#ifndef __GLIBC__ /* musl has it from 1.2.5 on; a 64-bit offset is the lower one of two words */
static ssize_t preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    return syscall(SYS_preadv2, fd, pieces, (long)count, offset, 0L, (long)flags);
}
#endif

/* A signal is no reason to wait: what it cut short counts as not ready. */
static bool take(const struct cairn_store_ready *ready, uint64_t offset, void *into, size_t size) {
    struct iovec piece = {.iov_base = into, .iov_len = size};
    return preadv2(ready->fd, &piece, 1, (off_t)offset, ready->flags) == (ssize_t)size;
}

bool cairn_store_ready_open(struct cairn_store *store, const char *key, uint64_t begin,
                            uint64_t end, struct cairn_store_ready *ret) {
    struct cairn_store_ready ready = {0};
    uint8_t first, last;
    if (!store->vtable->ready_open || !store->vtable->ready_open(store, key, &ready)) return false;
    if (take(&ready, begin, &first, 1) && take(&ready, end - 1, &last, 1))
        *ret = ready;
    else
        cairn_store_ready_release(&ready);
    return ret->open;
}

void cairn_store_ready_release(struct cairn_store_ready *ready) {
    if (ready->open) close(ready->fd);
    *ready = (struct cairn_store_ready){0};
}

bool cairn_store_ready_read(const struct cairn_store_ready *ready, uint64_t offset, void *into,
                            size_t size, const void *checksums) {
    uint8_t *to = into;
    const uint8_t *wanted = checksums;
    for (size_t at = 0; at < size; at += CAIRN_BLOCK_BYTES, wanted += 4) {
        size_t bytes = (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, size - at);
        if (!take(ready, offset + at, to + at, bytes)) return false;
        if (cairn_crc32c(0, to + at, bytes) != cairn_load_u32le(wanted)) return false;
    }
    return true;
}
