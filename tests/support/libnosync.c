/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: a disk on which every sync is done at once.
 *
 * For the PostgreSQL that tests start. What a process has written outlives its death also unsynced,
 * and no test cuts the power of a database, so all that a sync adds is its milliseconds: for tests
 * of hours of catalog time, minutes. PostgreSQL still says that fsync is on, without which Cairn
 * refuses it. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int fsync(int fd) {
    (void)fd;
    return 0;
}

int fdatasync(int fd) {
    (void)fd;
    return 0;
}

int sync_file_range(int fd, off64_t offset, off64_t size, unsigned flags) {
    (void)fd, (void)offset, (void)size, (void)flags;
    return 0;
}

int msync(void *address, size_t size, int flags) {
    (void)address, (void)size, (void)flags;
    return 0;
}
