/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_disk direct|buffered --folder DIR --bytes N
 *
 * References for a save into a folder, from a collapsed slab: pwrite with O_DIRECT in 4 MiB pieces,
 * or buffered write and fsync. Both end with a rename and an fsync of the folder.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/crc.h"
#include "common/memory.h"

#define PIECE_BYTES (4 * CAIRN_MIB)

struct disk {
    struct cairn_slab slab;
    const char *folder;
    uint64_t bytes, runs;
    bool direct;
};

static enum cairn_code write_all(struct disk *disk, int fd, struct cairn_error *err) {
    if (disk->direct && fallocate(fd, 0, 0, (off_t)disk->bytes))
        return cairn_fail_errno(err, "allocate");
    for (uint64_t at = 0; at < disk->bytes;) {
        size_t size = cairn_min_u64(PIECE_BYTES, disk->bytes - at);
        ssize_t wrote = pwrite(fd, disk->slab.data + at, size, (off_t)at);
        if (wrote <= 0) return cairn_fail_errno(err, "write");
        at += (uint64_t)wrote;
    }
    if (disk->direct ? fdatasync(fd) : fsync(fd)) return cairn_fail_errno(err, "sync");
    return CAIRN_OK;
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct disk *disk = owner;
    char path[4096], part[4200];
    int folder = open(disk->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return cairn_fail_errno(err, "open %s", disk->folder);
    snprintf(path, sizeof path, "%.4000s/reference-%llu", disk->folder,
             (unsigned long long)disk->runs++);
    snprintf(part, sizeof part, "%s.part", path);
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (disk->direct ? O_DIRECT : 0);
    int fd = open(part, flags, 0644);
    enum cairn_code code =
        fd < 0 ? cairn_fail_errno(err, "create %s", part) : write_all(disk, fd, err);
    if (code == CAIRN_OK && (rename(part, path) || fsync(folder)))
        code = cairn_fail_errno(err, "rename %s", part);
    if (fd >= 0) close(fd);
    close(folder);
    ret->bytes = disk->bytes;
    return code;
}

int main(int count, char **values) {
    static struct disk disk;
    struct cairn_error error = {0};
    disk.direct = count > 1 && !strcmp(values[1], "direct");
    disk.folder = bench_flag(count, values, "--folder", ".");
    disk.bytes = bench_flag_number(count, values, "--bytes", CAIRN_MIB * 1024);
    if (cairn_slab_create("bench-disk", disk.bytes, false, &disk.slab, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_disk: %s\n", error.message);
        return 2;
    }
    bench_pattern(disk.slab.data, disk.bytes);
    return bench_loop(once, &disk);
}
