/* SPDX-License-Identifier: Apache-2.0 */
/* The few messages of FUSE that opening a file needs; READ is taken and not answered. */
#include "tests/support/hang_fs.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REQUEST_BYTES (1 << 20)
#define FILE_NODE 2

static void answer(int fd, uint64_t unique, int error, const void *body, size_t size) {
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof head + size), .error = -error, .unique = unique};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)(uintptr_t)body, size}};
    ssize_t ignored = writev(fd, parts, size ? 2 : 1);
    (void)ignored; /* the caller may have been interrupted */
}

static struct fuse_attr attributes_of(const struct cairn_hang_fs *fs, uint64_t node) {
    bool folder = node == FUSE_ROOT_ID;
    return (struct fuse_attr){.ino = node,
                              .size = folder ? 0 : fs->bytes,
                              .mode = folder ? S_IFDIR | 0755 : S_IFREG | 0644,
                              .nlink = 1,
                              .blksize = 4096};
}

static void serve(const struct cairn_hang_fs *fs, const struct fuse_in_header *in) {
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
                                 .minor = FUSE_KERNEL_MINOR_VERSION,
                                 .max_write = 4096,
                                 .max_background = 64};
    struct fuse_entry_out entry = {.nodeid = FILE_NODE,
                                   .entry_valid = 60,
                                   .attr_valid = 60,
                                   .attr = attributes_of(fs, FILE_NODE)};
    struct fuse_attr_out attributes = {.attr_valid = 60, .attr = attributes_of(fs, in->nodeid)};
    struct fuse_open_out open = {.open_flags = FOPEN_DIRECT_IO};
    switch (in->opcode) {
    case FUSE_INIT:
        answer(fs->fd, in->unique, 0, &init, sizeof init);
        return;
    case FUSE_LOOKUP:
        answer(fs->fd, in->unique, 0, &entry, sizeof entry);
        return;
    case FUSE_GETATTR:
        answer(fs->fd, in->unique, 0, &attributes, sizeof attributes);
        return;
    case FUSE_OPEN:
        answer(fs->fd, in->unique, 0, &open, sizeof open);
        return;
    case FUSE_READ: /* never */
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
        answer(fs->fd, in->unique, 0, NULL, 0);
        return;
    default:
        answer(fs->fd, in->unique, ENOSYS, NULL, 0);
    }
}

static void *hang_main(void *argument) {
    const struct cairn_hang_fs *fs = argument;
    char *request = malloc(REQUEST_BYTES);
    while (request) {
        ssize_t size = read(fs->fd, request, REQUEST_BYTES);
        if (size < 0 && (errno == EINTR || errno == ENOENT)) continue;
        if (size < (ssize_t)sizeof(struct fuse_in_header)) break; /* unmounted */
        serve(fs, (const struct fuse_in_header *)(const void *)request);
    }
    free(request);
    return NULL;
}

bool cairn_hang_fs_mount(const char *folder, uint64_t bytes, struct cairn_hang_fs *ret) {
    *ret = (struct cairn_hang_fs){.bytes = bytes};
    snprintf(ret->folder, sizeof ret->folder, "%s", folder);
    mkdir(folder, 0755);
    ret->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (ret->fd < 0) return false;
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other",
             ret->fd, geteuid(), getegid());
    if (mount("hang", folder, "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        close(ret->fd);
        return false;
    }
    ret->started = pthread_create(&ret->thread, NULL, hang_main, ret) == 0;
    return ret->started;
}

void cairn_hang_fs_release(struct cairn_hang_fs *fs) {
    if (!fs->started) return;
    umount2(fs->folder, MNT_FORCE | MNT_DETACH); /* aborts what waits */
    pthread_join(fs->thread, NULL);
    close(fs->fd);
    fs->started = false;
}
