/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: files that are whole after a crash, and big writes that go past the page cache.
 *
 * Why:     a name that appears before its bytes are on disk is how checkpoints are lost.
 * Promise: 1   publish: the bytes are fdatasync'ed, then link()ed to a name that must not exist,
 *              then the folder is fsync'ed. A reader sees nothing or the whole.
 *          2   a failed fsync is final: the file is given up, never fsync'ed again.
 *          3   a big write uses O_DIRECT where the file system takes it, for the aligned middle;
 *              the odd tail is written buffered; the answer says which way was taken.
 *          4   reads return exactly what was asked for, or an error naming the file.
 *          5   a file is opened only if it is a regular one, and no open waits for a FIFO's writer.
 *              With CAIRN_LINKS_NONE the kernel resolves the whole name below the folder in one
 *              step, so no link is followed, nor one that is put there between a look and the open.
 * Limits:  paths as the system's; O_DIRECT needs 4 KiB-aligned address, offset and length.
 * Threads: stateless; a struct cairn_file belongs to one thread at a time, but cairn_file_write_at
 *          on disjoint ranges may run on several.
 * Next:    store/dir/inside.h.
 */
#pragma once

#include "common/buf.h"

#define CAIRN_FILE_ALIGN 4096

struct cairn_file {
    int fd;        /* buffered */
    int direct_fd; /* -1 where O_DIRECT is refused */
    bool open;
};
/* Create exclusively, mode 0644 less umask. expected_bytes > 0 asks for fallocate (best effort). */
enum cairn_code cairn_file_create(int dir_fd, const char *name, uint64_t expected_bytes,
                                  struct cairn_file *ret, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_file_open_write(int dir_fd, const char *name, struct cairn_file *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_file_open_read(int dir_fd, const char *name, struct cairn_file *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* How far a name below a folder may lead. */
enum cairn_links {
    CAIRN_LINKS_FOLLOWED, /* anywhere */
    CAIRN_LINKS_NONE      /* no component may be a link; CAIRN_INVALID where one is */
};
enum cairn_code cairn_file_open_below(int dir_fd, const char *name, enum cairn_links links,
                                      struct cairn_file *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* To read, like openat(): a descriptor, or -1 and errno. flags: O_DIRECTORY, O_PATH or 0. */
int cairn_open_below(int dir_fd, const char *name, int flags, enum cairn_links links);
void cairn_file_release(struct cairn_file *file);
enum cairn_code cairn_file_write_at(const struct cairn_file *file, const void *data, size_t size,
                                    uint64_t offset, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_file_read_at(const struct cairn_file *file, void *data, size_t size,
                                   uint64_t offset, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_file_size(const struct cairn_file *file, uint64_t *ret_bytes,
                                struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_file_sync(const struct cairn_file *file,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* After a file or folder could not be made for want of space: where it is inodes that lack, that is
 * said. fd: anything in that file system. Returns code. */
enum cairn_code cairn_file_tell_inodes(struct cairn_error *err, int fd, enum cairn_code code);
/* The same in a file of which these bytes are not used otherwise: whole MiB of zeros become a hole,
 * where the file system has holes. */
enum cairn_code cairn_file_write_sparse_at(const struct cairn_file *file, const void *data,
                                           size_t size, uint64_t offset,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Can one sync of the file system that fd lies in stand for those of many files in it? A local one
 * whose sync waits for all of it, from Linux 5.8 on, where it tells what could not be written. */
bool cairn_file_syncs_all(int fd);
/* That sync. A failure is told to each open file of the file system once, so whoever believes a
 * success has had fd open since before it wrote. */
enum cairn_code cairn_file_sync_all(int fd, struct cairn_error *err) CAIRN_MUST_USE;
/* link(temporary, name), unlink(temporary). EEXIST is CAIRN_PRECONDITION and keeps the temporary.
 * Both names are in dir_fd. The file itself must have been synced. */
enum cairn_code cairn_file_link(int dir_fd, const char *temporary, const char *name,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* The same, and fsync(folder). */
enum cairn_code cairn_file_publish(int dir_fd, const char *temporary, const char *name,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_dir_sync(int dir_fd, struct cairn_error *err) CAIRN_MUST_USE;
/* mkdir -p with an fsync of every parent that got a new entry. mode as given. */
enum cairn_code cairn_dir_make(const char *path, unsigned mode,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* What the setting `what` names: CAIRN_FORBIDDEN, with owner, mode and what to do, where anybody
 * but this user and root could put files there: it is another user's, or its group or everybody may
 * write to it. */
enum cairn_code cairn_dir_check_own(const char *path, const char *what,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The same, whoever owns it. */
enum cairn_code cairn_dir_check_writers(const char *path, const char *what,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* "0640": octal, of what owner, group and others may do with a file; the owner reads and writes it,
 * and nobody executes it. */
enum cairn_code cairn_file_mode_parse(const char *text, unsigned *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Of folders in which such files lie: whoever may read one may also enter and list. */
unsigned cairn_file_mode_folder(unsigned file_mode);
/* Whole small files. Larger than ret's limit is CAIRN_TOO_LARGE. */
enum cairn_code cairn_file_load(const char *path, struct cairn_buf *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Of a file that holds a secret: CAIRN_FORBIDDEN, with its mode and what to do, where everybody can
 * read or write it. What its group can is the operator's choice. Pipes and devices are not judged.
 */
enum cairn_code cairn_file_load_secret(const char *path, struct cairn_buf *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_file_is_shared(const char *path); /* its group can read or write it */
/* What a file holds of a token: without the line's end and the white space before it. */
enum cairn_code cairn_file_load_secret_line(const char *path, struct cairn_buf *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Likewise, of what is no secret, or of one that a platform writes. */
enum cairn_code cairn_file_load_line(const char *path, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Replace a small private file atomically (temporary, fsync, rename, fsync folder). */
enum cairn_code cairn_file_replace(const char *path, struct cairn_view data, unsigned mode,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* flock(LOCK_EX|LOCK_NB) on fd, which was opened as `name` in dir_fd. CAIRN_CONFLICT: another
 * process holds it. CAIRN_NOT_FOUND: its last holder has removed that name; open it again. */
enum cairn_code cairn_file_lock_entry(int dir_fd, const char *name, int fd,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* flock(LOCK_EX|LOCK_NB) on path, created if absent. Held while ret_fd is open. Taken by another:
 * CAIRN_CONFLICT. */
enum cairn_code cairn_file_lock(const char *path, int *ret_fd,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Name of the file system when it is a network one ("nfs", "cifs", "lustre", ...), else NULL. */
const char *cairn_file_network_fs(int fd);
