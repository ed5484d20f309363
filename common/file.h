/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: files that are complete after a crash, and big writes that bypass the page cache.
 *
 * Why:     a checkpoint is lost when its name is visible before its bytes are on disk.
 * Promise: 1   publish: the bytes are fdatasync'ed, then link()ed to a name that must not exist,
 *              then the folder is fsync'ed. A reader sees nothing or the whole.
 *          2   a failed fsync is final: the file is abandoned, never fsync'ed again.
 *          3   a big write uses O_DIRECT for the aligned middle where the file system supports it;
 *              the odd tail is written buffered; the result says which way was used.
 *          4   reads return exactly what was asked for, or an error naming the file.
 *          5   only regular files are opened, and no open waits for a FIFO's writer. With
 *              CAIRN_LINKS_NONE no link is followed, not even one placed between a check and the
 *              open: the kernel resolves the whole name below the folder in one step, or, where
 *              it has no openat2, each component is opened as what is no link.
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
/* openat() for reading: a descriptor, or -1 and errno. flags: O_DIRECTORY, O_PATH or 0. */
int cairn_open_below(int dir_fd, const char *name, int flags, enum cairn_links links);
/* openat() below dir_fd that follows no link; path "" is dir_fd itself. -1 and errno: ELOOP for a
 * link, EXDEV where path leads out. By openat2; where a kernel before 5.6, an emulator or a
 * container's filter refuses that, by component: every ".." is EXDEV then. */
int cairn_open_beneath(int dir_fd, const char *path, int flags);
int cairn_open_by_component(int dir_fd, const char *path, int flags);
void cairn_file_release(struct cairn_file *file);
enum cairn_code cairn_file_write_at(const struct cairn_file *file, const void *data, size_t size,
                                    uint64_t offset, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_file_read_at(const struct cairn_file *file, void *data, size_t size,
                                   uint64_t offset, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_file_size(const struct cairn_file *file, uint64_t *ret_bytes,
                                struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_file_sync(const struct cairn_file *file,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* After a file or folder could not be made for lack of space: adds to *err whether inodes are
 * missing. fd: any file in that file system. Returns code. */
enum cairn_code cairn_file_tell_inodes(struct cairn_error *err, int fd, enum cairn_code code);
/* As cairn_file_write_at for a range nothing else uses: whole MiB of zeros become holes, where the
 * file system has them. */
enum cairn_code cairn_file_write_sparse_at(const struct cairn_file *file, const void *data,
                                           size_t size, uint64_t offset,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Can one syncfs of fd's file system replace the fsyncs of many files? Only on a local file system
 * that waits for all data, from Linux 5.8 on, where syncfs reports write errors. */
bool cairn_file_syncs_all(int fd);
/* syncfs. A write error is reported once to each open file of the file system, so success counts
 * only if fd was opened before the writes. */
enum cairn_code cairn_file_sync_all(int fd, struct cairn_error *err) CAIRN_MUST_USE;
/* link(temporary, name), then unlink(temporary), both in dir_fd, of a synced file. EEXIST is
 * CAIRN_PRECONDITION and keeps the temporary. */
enum cairn_code cairn_file_link(int dir_fd, const char *temporary, const char *name,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* cairn_file_link, then fsync(folder). */
enum cairn_code cairn_file_publish(int dir_fd, const char *temporary, const char *name,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_dir_sync(int dir_fd, struct cairn_error *err) CAIRN_MUST_USE;
/* mkdir -p with an fsync of every parent that got a new entry. umask does not apply to mode. */
enum cairn_code cairn_dir_make(const char *path, unsigned mode,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Checks a folder named by the setting `what`: CAIRN_FORBIDDEN, with owner, mode and advice, if it
 * belongs to another user or its group or everybody may write to it. */
enum cairn_code cairn_dir_check_own(const char *path, const char *what,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The same without a check of the owner. */
enum cairn_code cairn_dir_check_writers(const char *path, const char *what,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* "0640": an octal mode with read and write for the owner, and no execute bits. */
enum cairn_code cairn_file_mode_parse(const char *text, unsigned *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Mode of folders for such files: read permission also gives permission to enter and list. */
unsigned cairn_file_mode_folder(unsigned file_mode);
/* Reads a whole small file. Larger than ret's limit is CAIRN_TOO_LARGE. */
enum cairn_code cairn_file_load(const char *path, struct cairn_buf *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Reads a secret file: CAIRN_FORBIDDEN, with its mode and advice, if everybody can read or write
 * it. Its group is the operator's choice. Pipes and devices are not checked. */
enum cairn_code cairn_file_load_secret(const char *path, struct cairn_buf *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_file_is_shared(const char *path); /* can its group read or write it? */
/* Reads a token: a secret file without its line end and the white space before that. */
enum cairn_code cairn_file_load_secret_line(const char *path, struct cairn_buf *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* The same for values that are not secret, or secrets that a platform writes. */
enum cairn_code cairn_file_load_line(const char *path, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Replaces a small private file atomically (temporary, fsync, rename, fsync folder). */
enum cairn_code cairn_file_replace(const char *path, struct cairn_view data, unsigned mode,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* flock(LOCK_EX|LOCK_NB) on fd, which was opened as `name` in dir_fd. CAIRN_CONFLICT: another
 * process holds it. CAIRN_NOT_FOUND: its last holder has removed the name; open it again. */
enum cairn_code cairn_file_lock_entry(int dir_fd, const char *name, int fd,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* flock(LOCK_EX|LOCK_NB) on path, created if absent; held while ret_fd is open. CAIRN_CONFLICT:
 * another process holds it. */
enum cairn_code cairn_file_lock(const char *path, int *ret_fd,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* "nfs", "cifs", "lustre", ... for a network file system, else NULL. */
const char *cairn_file_network_fs(int fd);
