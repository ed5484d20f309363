/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hang_fs: a mounted folder whose files can be opened and never answer a read.
 *
 * Why:     a network file system that is away blocks whoever reads, for as long as it is away; a
 *          file of a test's own folder never does.
 * Promise: 1   every name is a regular file of `bytes` bytes that may be opened.
 *          2   release ends all reads with an error and takes the mount away.
 * Limits:  needs the right to mount, and /dev/fuse. 64 requests that wait.
 * Threads: one of its own answers the kernel.
 * Next:    tests/uploader/test_files.c.
 */
#pragma once

#include <pthread.h>

#include "common/base.h"

struct cairn_hang_fs {
    char folder[512];
    int fd; /* of /dev/fuse */
    uint64_t bytes;
    pthread_t thread;
    bool started;
};
/* False: this machine does not let us. The folder is made. */
bool cairn_hang_fs_mount(const char *folder, uint64_t bytes, struct cairn_hang_fs *ret);
void cairn_hang_fs_release(struct cairn_hang_fs *fs);
