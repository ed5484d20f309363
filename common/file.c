/* SPDX-License-Identifier: Apache-2.0 */
/* file: file system calls in the order that survives a power cut.
 *
 * O_DIRECT needs an open file of its own: one descriptor writes through the page cache, the other
 * past it, and fdatasync on the first flushes the device for both. */
#include "common/file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/text.h"
#include "common/trace.h"

/* Past the page cache 1, 4 and 16 MiB wrote 3.4, 4.5 and 4.9 GB/s on one NVMe-backed machine; the
 * last step is not worth the longer time until an error or a signal is noticed. */
#define PIECE_BYTES (4 * CAIRN_MIB)
/* Below this, copying into the page cache is cheaper than a round trip to the device. */
#define DIRECT_BYTES_MIN (256 * CAIRN_KIB)

/* The path behind a descriptor, for messages; a struct cairn_file keeps none. */
static const char *path_of(int fd, char ret[256]) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, ret, 255);
    if (size < 0)
        snprintf(ret, 256, "descriptor %d", fd);
    else
        ret[size] = '\0';
    return ret;
}

static enum cairn_code open_failed(const char *verb, const char *name, struct cairn_error *err) {
    if (errno == ENOENT)
        return cairn_fail_at(err, CAIRN_NOT_FOUND, errno, CAIRN_ORIGIN, "%s %s", verb, name);
    if (errno == EEXIST)
        return cairn_fail_at(err, CAIRN_PRECONDITION, errno, CAIRN_ORIGIN, "%s %s", verb, name);
    return cairn_fail_errno(err, "%s %s", verb, name);
}

enum cairn_code cairn_file_tell_inodes(struct cairn_error *err, int fd, enum cairn_code code) {
    struct statvfs room;
    if (!err || code != CAIRN_NO_SPACE || err->os_errno != ENOSPC) return code;
    if ((fd == AT_FDCWD ? statvfs(".", &room) : fstatvfs(fd, &room)) || !room.f_files ||
        room.f_favail)
        return code;
    (void)cairn_fail(err, code, "%.220s: no inode is left for a file more (df -i)", err->message);
    err->os_errno = ENOSPC;
    return code;
}

/* ---- open ---- */

/* Does the file accept our alignment? Kernels before 6.1 do not say: the first write decides. */
static bool alignment_fits(int fd) {
#ifdef STATX_DIOALIGN
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
        (status.stx_mask & STATX_DIOALIGN))
        return status.stx_dio_mem_align && status.stx_dio_mem_align <= CAIRN_FILE_ALIGN &&
               status.stx_dio_offset_align <= CAIRN_FILE_ALIGN;
#endif
    return fd >= 0;
}

static bool same_file(int a, int b) {
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* openat() of one component that is no link. Also returned for a link: ENOTDIR where a folder is
 * asked for, and with O_PATH a descriptor of the link itself. */
static int open_component(int dir_fd, const char *name, int flags) {
    struct stat status;
    int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno != ENOTDIR) return fd;
    int looked = fd < 0 ? fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) : fstat(fd, &status);
    bool link = looked == 0 && S_ISLNK(status.st_mode);
    if (fd >= 0 && !link) return fd;
    if (fd >= 0) close(fd);
    errno = link ? ELOOP : ENOTDIR;
    return -1;
}

int cairn_open_by_component(int dir_fd, const char *path, int flags) {
    CAIRN_AUTO_FD at = -1;
    errno = EXDEV;
    if (*path == '/') return -1;
    for (;;) {
        char name[NAME_MAX + 1] = ".";
        size_t length = strcspn(path, "/");
        errno = ENAMETOOLONG;
        if (length >= sizeof name) return -1;
        if (length) snprintf(name, sizeof name, "%.*s", (int)length, path);
        errno = EXDEV;
        if (strcmp(name, "..") == 0) return -1;
        path += length;
        bool last = *path == '\0';
        int fd = open_component(at >= 0 ? at : dir_fd, name, last ? flags : O_RDONLY | O_DIRECTORY);
        if (fd < 0 || last) return fd;
        if (at >= 0) close(at);
        at = fd;
        path += strspn(path, "/");
    }
}

int cairn_open_beneath(int dir_fd, const char *path, int flags) {
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, dir_fd, *path ? path : ".", &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
    return cairn_open_by_component(dir_fd, path, flags);
}

int cairn_open_below(int dir_fd, const char *name, int flags, enum cairn_links links) {
    if (!(flags & O_PATH)) flags |= O_NONBLOCK;
    if (links == CAIRN_LINKS_FOLLOWED) return openat(dir_fd, name, flags | O_CLOEXEC);
    if (*name != '/') return cairn_open_beneath(dir_fd, name, flags);
    CAIRN_AUTO_FD root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? -1 : cairn_open_beneath(root, name + strspn(name, "/"), flags);
}

/* A second descriptor of the same file that goes past the page cache, or -1. */
static int open_direct(int dir_fd, const char *name, int access, int buffered_fd) {
    int fd = openat(dir_fd, name, access | O_DIRECT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return -1;
    if (alignment_fits(fd) && same_file(fd, buffered_fd)) return fd;
    close(fd);
    return -1;
}

static enum cairn_code check_regular(int fd, const char *name, struct cairn_error *err) {
    struct stat status;
    if (fstat(fd, &status) != 0) return cairn_fail_errno(err, "stat %s", name);
    if (S_ISREG(status.st_mode)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s is no regular file", name);
}

static enum cairn_code open_pair(int dir_fd, const char *name, int flags, struct cairn_file *ret,
                                 struct cairn_error *err) {
    const char *verb = flags & O_CREAT ? "create" : "open";
    CAIRN_AUTO_FD fd = openat(dir_fd, name, flags | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0) return cairn_file_tell_inodes(err, dir_fd, open_failed(verb, name, err));
    CAIRN_TRY(check_regular(fd, name, err));
    int direct_fd = open_direct(dir_fd, name, flags & O_ACCMODE, fd);
    *ret = (struct cairn_file){.fd = fd, .direct_fd = direct_fd, .open = true};
    fd = -1;
    return CAIRN_OK;
}

enum cairn_code cairn_file_create(int dir_fd, const char *name, uint64_t expected_bytes,
                                  struct cairn_file *ret, struct cairn_error *err) {
    struct cairn_file file = {0};
    CAIRN_TRY(open_pair(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, &file, err));
    /* Reports missing space now, not after an hour; not every file system has fallocate. */
    if (expected_bytes > 0 && expected_bytes <= INT64_MAX &&
        fallocate(file.fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)expected_bytes) != 0 &&
        cairn_code_from_errno(errno) == CAIRN_NO_SPACE) {
        enum cairn_code code = cairn_fail_errno(err, "%s: reserve %llu bytes", name,
                                                (unsigned long long)expected_bytes);
        cairn_file_release(&file);
        unlinkat(dir_fd, name, 0);
        return code;
    }
    *ret = file;
    return CAIRN_OK;
}

enum cairn_code cairn_file_open_write(int dir_fd, const char *name, struct cairn_file *ret,
                                      struct cairn_error *err) {
    return open_pair(dir_fd, name, O_RDWR | O_NOFOLLOW, ret, err);
}

enum cairn_code cairn_file_open_read(int dir_fd, const char *name, struct cairn_file *ret,
                                     struct cairn_error *err) {
    return open_pair(dir_fd, name, O_RDONLY | O_NOFOLLOW, ret, err);
}

enum cairn_code cairn_file_open_below(int dir_fd, const char *name, enum cairn_links links,
                                      struct cairn_file *ret, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = cairn_open_below(dir_fd, name, 0, links);
    if (fd < 0 && links == CAIRN_LINKS_NONE && errno == ELOOP)
        return cairn_fail(err, CAIRN_INVALID, "%s is a link or lies behind one: none is followed",
                          name);
    if (fd < 0) return open_failed("open", name, err);
    CAIRN_TRY(check_regular(fd, name, err));
    /* Opens the descriptor, not the name, which may be another file's by now. */
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int direct_fd = open(self, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);
    if (direct_fd >= 0 && !alignment_fits(direct_fd)) {
        close(direct_fd);
        direct_fd = -1;
    }
    *ret = (struct cairn_file){.fd = fd, .direct_fd = direct_fd, .open = true};
    fd = -1;
    return CAIRN_OK;
}

void cairn_file_release(struct cairn_file *file) {
    if (file->open) {
        close(file->fd);
        if (file->direct_fd >= 0) close(file->direct_fd);
    }
    *file = (struct cairn_file){0};
}

/* ---- read and write ---- */

/* Next piece of a transfer (file.h#3): buffered up to an aligned address, then the aligned middle
 * direct, then the odd tail buffered. */
struct piece {
    size_t size;
    bool direct;
};

static struct piece next_piece(const struct cairn_file *file, uintptr_t address, size_t left,
                               uint64_t offset) {
    struct piece piece = {.size = (size_t)cairn_min_u64(left, PIECE_BYTES)};
    bool possible = file->direct_fd >= 0 && left >= DIRECT_BYTES_MIN &&
                    address % CAIRN_FILE_ALIGN == offset % CAIRN_FILE_ALIGN;
    if (!possible) return piece;
    size_t odd = (size_t)(offset % CAIRN_FILE_ALIGN);
    piece.direct = odd == 0;
    piece.size = odd ? CAIRN_FILE_ALIGN - odd : piece.size - piece.size % CAIRN_FILE_ALIGN;
    return piece;
}

static enum cairn_code check_range(size_t size, uint64_t offset, struct cairn_error *err) {
    uint64_t end;
    if (cairn_add_overflows((uint64_t)size, offset, &end) || end > INT64_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%zu bytes at %llu lie past every file's end", size,
                          (unsigned long long)offset);
    return CAIRN_OK;
}

enum cairn_code cairn_file_write_at(const struct cairn_file *file, const void *data, size_t size,
                                    uint64_t offset, struct cairn_error *err) {
    CAIRN_TRY(check_range(size, offset, err));
    struct cairn_file way = *file; /* a refused first write drops its direct_fd */
    const char *from = data;
    while (size > 0) {
        struct piece piece = next_piece(&way, (uintptr_t)from, size, offset);
        int fd = piece.direct ? way.direct_fd : way.fd;
        ssize_t n = pwrite(fd, from, piece.size, (off_t)offset);
        if (n <= 0) {
            if (n < 0 && errno == EINTR) continue;
            bool refused = n < 0 && errno == EINVAL && piece.direct;
            if (n == 0) errno = EIO;
            char path[256];
            if (!refused)
                return cairn_fail_errno(err, "write %zu bytes at %llu of %s", piece.size,
                                        (unsigned long long)offset, path_of(file->fd, path));
            way.direct_fd = -1;
            continue;
        }
        from += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_file_write_sparse_at(const struct cairn_file *file, const void *data,
                                           size_t size, uint64_t offset, struct cairn_error *err) {
    struct stat status;
    size_t unwritten = 0, at = 0;
    const char *bytes = data;
    /* A hole frees the space reserved for its bytes and does not make a file longer. */
    bool within = !fstat(file->fd, &status) && (uint64_t)status.st_size >= offset + size;
    for (; within && at + CAIRN_MIB <= size; at += CAIRN_MIB) {
        const char *zeros = bytes + at;
        if (zeros[0] || zeros[CAIRN_MIB - 1] || memcmp(zeros, zeros + 1, CAIRN_MIB - 1) != 0 ||
            fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(offset + at),
                      (off_t)CAIRN_MIB) != 0)
            continue;
        CAIRN_TRY(
            cairn_file_write_at(file, bytes + unwritten, at - unwritten, offset + unwritten, err));
        unwritten = at + CAIRN_MIB;
    }
    return cairn_file_write_at(file, bytes + unwritten, size - unwritten, offset + unwritten, err);
}

enum cairn_code cairn_file_read_at(const struct cairn_file *file, void *data, size_t size,
                                   uint64_t offset, struct cairn_error *err) {
    CAIRN_TRY(check_range(size, offset, err));
    struct cairn_file way = *file;
    char *to = data, path[256];
    while (size > 0) {
        struct piece piece = next_piece(&way, (uintptr_t)to, size, offset);
        ssize_t n = pread(piece.direct ? way.direct_fd : way.fd, to, piece.size, (off_t)offset);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno != EINVAL || !piece.direct)
                return cairn_fail_errno(err, "read %zu bytes at %llu of %s", piece.size,
                                        (unsigned long long)offset, path_of(file->fd, path));
            way.direct_fd = -1;
            continue;
        }
        if (n == 0)
            return cairn_fail(err, CAIRN_CORRUPT, "%s ends at byte %llu, %zu bytes too early",
                              path_of(file->fd, path), (unsigned long long)offset, size);
        to += n;
        size -= (size_t)n;
        offset += (uint64_t)n;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_file_size(const struct cairn_file *file, uint64_t *ret_bytes,
                                struct cairn_error *err) {
    struct stat status;
    char path[256];
    if (fstat(file->fd, &status) != 0)
        return cairn_fail_errno(err, "stat %s", path_of(file->fd, path));
    *ret_bytes = (uint64_t)status.st_size;
    return CAIRN_OK;
}

/* file.h#2: a second fsync may report success for pages that the first one dropped. So there is no
 * retry, not even after a signal, and callers abandon the file. */
enum cairn_code cairn_file_sync(const struct cairn_file *file, struct cairn_error *err) {
    char path[256];
    if (fdatasync(file->fd) != 0) return cairn_fail_errno(err, "sync %s", path_of(file->fd, path));
    return CAIRN_OK;
}

#define XFS_MAGIC 0x58465342

static bool kernel_tells(void) {
    struct utsname system;
    unsigned major = 0, minor = 0;
    if (uname(&system) || sscanf(system.release, "%u.%u", &major, &minor) != 2) return false;
    return major > 5 || (major == 5 && minor >= 8);
}

bool cairn_file_syncs_all(int fd) {
    struct statfs system;
    if (!kernel_tells() || fstatfs(fd, &system) != 0) return false;
    return system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_MAGIC ||
           system.f_type == BTRFS_SUPER_MAGIC || system.f_type == TMPFS_MAGIC;
}

enum cairn_code cairn_file_sync_all(int fd, struct cairn_error *err) {
    char path[256];
    if (syncfs(fd) == 0) return CAIRN_OK;
    return cairn_fail_errno(err, "sync the file system of %s", path_of(fd, path));
}

/* ---- names ---- */

enum cairn_code cairn_dir_sync(int dir_fd, struct cairn_error *err) {
    CAIRN_AUTO_FD here = -1;
    if (dir_fd == AT_FDCWD) {
        here = dir_fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (here < 0) return cairn_fail_errno(err, "open the current folder");
    }
    char path[256];
    /* EINVAL: this file system cannot fsync folders and offers nothing better. */
    if (fsync(dir_fd) != 0 && errno != EINVAL)
        return cairn_fail_errno(err, "sync the folder %s", path_of(dir_fd, path));
    return CAIRN_OK;
}

/* Over NFS the kernel repeats a link whose reply was lost and gets EEXIST; a crash between link and
 * unlink looks the same. The name is then already this file's. */
static bool is_same_entry(int dir_fd, const char *a, const char *b) {
    struct stat first, second;
    return fstatat(dir_fd, a, &first, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(dir_fd, b, &second, AT_SYMLINK_NOFOLLOW) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

enum cairn_code cairn_file_link(int dir_fd, const char *temporary, const char *name,
                                struct cairn_error *err) {
    if (linkat(dir_fd, temporary, dir_fd, name, 0) != 0) {
        if (errno == EEXIST && !is_same_entry(dir_fd, temporary, name))
            return cairn_fail(err, CAIRN_PRECONDITION, "%s is already there", name);
        if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)
            return cairn_fail_at(err, CAIRN_UNSUPPORTED, errno, CAIRN_ORIGIN,
                                 "publish %s: this file system has no hard links", name);
        if (errno != EEXIST) /* tmpfs also needs an inode per name */
            return cairn_file_tell_inodes(err, dir_fd, open_failed("publish", name, err));
    }
    if (unlinkat(dir_fd, temporary, 0) != 0 && errno != ENOENT)
        return cairn_fail_errno(err, "remove %s", temporary);
    return CAIRN_OK;
}

enum cairn_code cairn_file_publish(int dir_fd, const char *temporary, const char *name,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_file_link(dir_fd, temporary, name, err));
    return cairn_dir_sync(dir_fd, err);
}

/* Opens one component of a path below parent, creating it if absent; *ret_fd is an O_PATH. */
static enum cairn_code enter(int parent, const char *name, unsigned mode, int *ret_fd,
                             struct cairn_error *err) {
    int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    int fd = openat(parent, name, flags);
    if (fd < 0 && errno == ENOENT) {
        bool made = mkdirat(parent, name, (mode_t)mode) == 0;
        /* fchmodat applies the mode without umask. A folder another process made keeps its mode. */
        if ((!made && errno != EEXIST) || (made && fchmodat(parent, name, (mode_t)mode, 0) != 0))
            return cairn_fail_errno(err, "make the folder %s", name);
        CAIRN_AUTO_FD readable = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (readable < 0) return cairn_fail_errno(err, "open the folder of %s", name);
        CAIRN_TRY(cairn_dir_sync(readable, err));
        fd = openat(parent, name, flags);
    }
    if (fd < 0) return cairn_fail_errno(err, "open the folder %s", name);
    *ret_fd = fd;
    return CAIRN_OK;
}

enum cairn_code cairn_dir_check_own(const char *path, const char *what, struct cairn_error *err) {
    struct stat status;
    if (stat(path, &status)) return cairn_fail_errno(err, "%s %s", what, path);
    if (status.st_uid != geteuid() && status.st_uid != 0)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "%s %s belongs to user %u, and this program runs as user %u: who owns "
                          "the folder can replace what is in it; chown it, or name another one",
                          what, path, (unsigned)status.st_uid, (unsigned)geteuid());
    return cairn_dir_check_writers(path, what, err);
}

enum cairn_code cairn_dir_check_writers(const char *path, const char *what,
                                        struct cairn_error *err) {
    struct stat status;
    if (stat(path, &status)) return cairn_fail_errno(err, "%s %s", what, path);
    if (!(status.st_mode & (S_IWGRP | S_IWOTH))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "%s %s may be written to by %s (its mode is %04o), who could replace what is "
                      "in it: chmod go-w it",
                      what, path, status.st_mode & S_IWOTH ? "everybody" : "its group",
                      status.st_mode & 07777);
}

enum cairn_code cairn_file_mode_parse(const char *text, unsigned *ret, struct cairn_error *err) {
    char *end = NULL;
    unsigned long mode = strspn(text, "01234567") ? strtoul(text, &end, 8) : 0;
    if (!end || *end || (mode & ~0666UL) || (mode & 0600) != 0600)
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.16s\" is no mode of files: octal, such as 0640; the owner reads and "
                          "writes (0600), nobody executes",
                          text);
    *ret = (unsigned)mode;
    return CAIRN_OK;
}

unsigned cairn_file_mode_folder(unsigned file_mode) {
    return file_mode | (file_mode & 0444) >> 2;
}

enum cairn_code cairn_dir_make(const char *path, unsigned mode, struct cairn_error *err) {
    char copy[PATH_MAX];
    if (*path == '\0' || !cairn_text_copy(copy, sizeof copy, path))
        return cairn_fail(err, CAIRN_INVALID, "\"%.64s\" is no path of a folder", path);
    CAIRN_AUTO_FD parent = open(*copy == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return cairn_fail_errno(err, "open %s", *copy == '/' ? "/" : ".");
    char *rest = copy + strspn(copy, "/");
    while (*rest) {
        char *end = rest + strcspn(rest, "/");
        char *next = end + strspn(end, "/");
        *end = '\0';
        int fd = -1;
        enum cairn_code code = enter(parent, rest, mode, &fd, err);
        if (code != CAIRN_OK) return cairn_within(err, code, "%s", path);
        close(parent);
        parent = fd;
        rest = next;
    }
    return CAIRN_OK;
}

/* ---- small files ---- */

static enum cairn_code load_opened(int fd, const char *path, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    size_t before = ret->size;
    for (;;) {
        char piece[16384];
        ssize_t n = read(fd, piece, sizeof piece);
        if (n == 0) break;
        if (n < 0 && errno == EINTR) continue;
        enum cairn_code code = n < 0 ? cairn_fail_errno(err, "read %s", path)
                                     : cairn_buf_append(ret, piece, (size_t)n, err);
        if (code == CAIRN_OK) continue;
        ret->size = before;
        if (ret->data) ret->data[before] = '\0';
        return n < 0 ? code : cairn_within(err, code, "%s", path);
    }
    /* An empty file is an empty text, not NULL. */
    return ret->data ? CAIRN_OK : cairn_buf_append(ret, "", 0, err);
}

enum cairn_code cairn_file_load(const char *path, struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return open_failed("open", path, err);
    return load_opened(fd, path, ret, err);
}

static enum cairn_code judge_mode(int fd, const char *path, struct cairn_error *err) {
    struct stat status;
    if (fstat(fd, &status)) return cairn_fail_errno(err, "%s", path);
    if (!S_ISREG(status.st_mode) || !(status.st_mode & (S_IROTH | S_IWOTH))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "%s holds a secret, and everybody can %s it (mode %04o): chmod 600 it", path,
                      status.st_mode & S_IROTH ? "read" : "write", status.st_mode & 07777);
}

/* Checks the opened descriptor: the name may be another file's a moment later. */
enum cairn_code cairn_file_load_secret(const char *path, struct cairn_buf *ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return open_failed("open", path, err);
    CAIRN_TRY(judge_mode(fd, path, err));
    return load_opened(fd, path, ret, err);
}

bool cairn_file_is_shared(const char *path) {
    struct stat status;
    return !stat(path, &status) && S_ISREG(status.st_mode) && status.st_mode & (S_IRGRP | S_IWGRP);
}

static void trim_line(struct cairn_buf *line) {
    while (line->size && strchr(" \t\r\n", line->data[line->size - 1])) line->size--;
    line->data[line->size] = '\0';
}

enum cairn_code cairn_file_load_secret_line(const char *path, struct cairn_buf *ret,
                                            struct cairn_error *err) {
    CAIRN_TRY(cairn_file_load_secret(path, ret, err));
    trim_line(ret);
    return CAIRN_OK;
}

enum cairn_code cairn_file_load_line(const char *path, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_file_load(path, ret, err));
    trim_line(ret);
    return CAIRN_OK;
}

/* Splits a path into an open folder and a name, as openat takes them. */
static enum cairn_code open_folder_of(const char *path, int *ret_fd, const char **ret_name,
                                      struct cairn_error *err) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    if (**ret_name == '\0' || !cairn_text_copy(folder, sizeof folder, path))
        return cairn_fail(err, CAIRN_INVALID, "\"%.64s\" is no path of a file", path);
    if (slash) folder[slash == path ? 1 : slash - path] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return open_failed("open the folder of", path, err);
    *ret_fd = fd;
    return CAIRN_OK;
}

static enum cairn_code write_whole(int fd, struct cairn_view data, unsigned mode,
                                   struct cairn_error *err) {
    struct cairn_file file = {.fd = fd, .direct_fd = -1, .open = true};
    /* Sets the requested mode whatever umask says: these files hold keys and journals. */
    if (fchmod(fd, (mode_t)mode) != 0) return cairn_fail_errno(err, "set its mode");
    CAIRN_TRY(cairn_file_write_at(&file, data.data, data.size, 0, err));
    return cairn_file_sync(&file, err);
}

enum cairn_code cairn_file_replace(const char *path, struct cairn_view data, unsigned mode,
                                   struct cairn_error *err) {
    CAIRN_AUTO_FD folder = -1;
    const char *name;
    CAIRN_TRY(open_folder_of(path, &folder, &name, err));
    char unique[CAIRN_UUID_TEXT_BYTES], temporary[CAIRN_UUID_TEXT_BYTES + 8];
    cairn_uuid_random(unique);
    snprintf(temporary, sizeof temporary, ".%s.tmp", unique);
    CAIRN_AUTO_FD fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return open_failed("create a file beside", path, err);
    enum cairn_code code = write_whole(fd, data, mode, err);
    if (code == CAIRN_OK && renameat(folder, temporary, folder, name) != 0)
        code = cairn_fail_errno(err, "rename");
    if (code != CAIRN_OK) {
        unlinkat(folder, temporary, 0);
        return cairn_within(err, code, "replace %s", path);
    }
    return cairn_dir_sync(folder, err);
}

enum cairn_code cairn_file_lock_entry(int dir_fd, const char *name, int fd,
                                      struct cairn_error *err) {
    struct stat named, locked;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? cairn_fail(err, CAIRN_CONFLICT, "%s is locked", name)
                                    : cairn_fail_errno(err, "lock %s", name);
    if (fstat(fd, &locked) != 0) return cairn_fail_errno(err, "%s", name);
    bool there = fstatat(dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there && errno != ENOENT) return cairn_fail_errno(err, "%s", name);
    if (there && named.st_dev == locked.st_dev && named.st_ino == locked.st_ino) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s was removed by the process that held it", name);
}

/* The holder writes its process id, so that a refused process can name it. */
enum cairn_code cairn_file_lock(const char *path, int *ret_fd, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return open_failed("open the lock", path, err);
    char holder[24] = "";
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return cairn_fail_errno(err, "lock %s", path);
        ssize_t size = pread(fd, holder, sizeof holder - 1, 0);
        holder[size > 0 ? strspn(holder, "0123456789") : 0] = '\0';
        return cairn_fail(err, CAIRN_CONFLICT, "%s is held by process %s", path,
                          *holder ? holder : "(unknown)");
    }
    int size = snprintf(holder, sizeof holder, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, holder, (size_t)size, 0) != size)
        return cairn_fail_errno(err, "write %s", path);
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

const char *cairn_file_network_fs(int fd) {
    static const struct {
        uint32_t magic;
        const char *name;
    } known[] = {
        {0x6969, "nfs"},       {0x517b, "smb"},        {0xff534d42, "cifs"},
        {0xfe534d42, "smb2"},  {0x0bd00bd0, "lustre"}, {0x00c36400, "ceph"},
        {0x5346414f, "afs"},   {0x01021997, "9p"},     {0x65735546, "fuse"},
        {0x47504653, "gpfs"},  {0x19830326, "beegfs"}, {0x01161970, "gfs2"},
        {0x7461636f, "ocfs2"}, {0x20030528, "pvfs2"},  {0x6a656a63, "virtiofs"},
    };
    struct statfs status;
    if (fstatfs(fd, &status) != 0) return NULL;
    for (size_t i = 0; i < CAIRN_COUNT(known); i++)
        if (known[i].magic == (uint32_t)status.f_type) return known[i].name;
    return NULL;
}
