/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn get: restores a version, one rank's shards or one shard, verified, into a folder or a pipe.
 *
 * Promise: 1   a file gets its name when all its blocks are verified and on disk; until then it is
 *              in `.cairn-get-<version>` in the folder, named by its number.
 *          2   files found there or under their final names are compared by block, and correct
 *              blocks are not fetched again. Different content under a final name is not replaced.
 *          3   no symbolic link below the folder is followed; links are created last.
 *          4   only the holder of the lock of `.cairn-get-<version>` writes, removes and checks
 *              names. A second get of the version into the folder is CAIRN_CONFLICT.
 * Threads: _have and _write from any, of different pieces; the others one owner.
 */

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "cli/bucket/bucket.h"
#include "cli/shell/output.h"
#include "cli/tree/tree.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

struct target {
    const struct cli_source *source;
    const uint32_t *shards; /* indexes into the manifest */
    size_t shard_count;
    bool whole; /* with links and empty folders */
    int root_fd, part_fd;
    char part_name[64];
    bool locked;    /* this get holds the lock of the parts' folder */
    bool resumed;   /* an earlier get left parts */
    bool moved;     /* all files have their names */
    bool *in_place; /* by manifest index: the final name exists with these bytes */
    bool *written;  /* by manifest index: written whole by this get, mode set */
    unsigned mask;
    struct cli_tree_meta meta;
};

#define EARLY_BYTES_MIN CAIRN_MIB         /* pieces from this size on start writeback at once */
#define SYNCED_TOGETHER_MIN 64            /* files; from here on one syncfs instead of fsyncs */
#define SMALL_BYTES_MAX (256 * CAIRN_KIB) /* smaller files gain nothing from direct I/O */
#define LOCK_TRIES_MAX 100                /* each lost to a get that began and ended meanwhile */

static const struct cairn_manifest_shard *shard_at(const struct target *target, uint32_t index) {
    return &target->source->version.manifest.shards[index];
}

/* Opens the folder of name below the root; *ret_last: name's last component. */
static enum cairn_code open_parent(const struct target *target, const char *name, bool make,
                                   int *ret_fd, const char **ret_last, struct cairn_error *err) {
    char component[NAME_MAX + 1];
    CAIRN_AUTO_FD fd = fcntl(target->root_fd, F_DUPFD_CLOEXEC, 0);
    const char *at = name;
    for (const char *slash; (slash = strchr(at, '/')); at = slash + 1) {
        CAIRN_ASSERT((size_t)(slash - at) < sizeof component);
        memcpy(component, at, (size_t)(slash - at));
        component[slash - at] = '\0';
        if (make && mkdirat(fd, component, 0777) && errno != EEXIST)
            return cairn_file_tell_inodes(err, fd, cairn_fail_errno(err, "folder of %s", name));
        int next = openat(fd, component, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0 && !make && errno == ENOENT)
            return cairn_fail(err, CAIRN_NOT_FOUND, "%s is not there", name);
        if (next < 0 && (errno == ELOOP || errno == ENOTDIR))
            return cairn_fail(err, CAIRN_CONFLICT,
                              "%s: %s is a link or no folder; it is not followed", name, component);
        if (next < 0) return cairn_fail_errno(err, "folder of %s", name);
        close(fd);
        fd = next;
    }
    *ret_last = at;
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

static const uint8_t *checksums_of(const struct target *target, uint32_t index, uint64_t offset) {
    uint64_t block = shard_at(target, index)->first_block + offset / CAIRN_BLOCK_BYTES;
    return (const uint8_t *)target->source->version.checksums.data + 4 * block;
}

static bool matches_checksums(const struct target *target, int fd, uint32_t index, uint64_t offset,
                              void *memory, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (char *)memory + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    struct cairn_view bytes = {memory, size};
    return cairn_store_blocks_check(checksums_of(target, index, offset), offset, bytes, NULL) ==
           CAIRN_OK;
}

static bool same_file(const struct target *target, int fd, uint32_t index) {
    uint64_t size = shard_at(target, index)->size_bytes;
    struct stat status;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || (uint64_t)status.st_size != size)
        return false;
    CAIRN_AUTO_HEAP void *memory = malloc(CAIRN_BLOCK_BYTES);
    for (uint64_t at = 0; at < size; at += CAIRN_BLOCK_BYTES) {
        size_t some = (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, size - at);
        if (!memory || !matches_checksums(target, fd, index, at, memory, some)) return false;
    }
    return true;
}

static enum cairn_code look_at_name(struct target *target, uint32_t index,
                                    struct cairn_error *err) {
    const char *name = shard_at(target, index)->name, *last = NULL;
    CAIRN_AUTO_FD parent_fd = -1;
    struct cairn_error why = {0};
    enum cairn_code code = open_parent(target, name, false, &parent_fd, &last, &why);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    CAIRN_TRY(cairn_pass(err, code, &why));
    CAIRN_AUTO_FD fd = openat(parent_fd, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return CAIRN_OK;
    target->in_place[index] = fd >= 0 && same_file(target, fd, index);
    if (target->in_place[index]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "%s is already there with other content; give an empty folder with -d", name);
}

/* If the folder holds only the parts, no final name needs a check. */
static enum cairn_code has_entries(const struct target *target, bool *ret,
                                   struct cairn_error *err) {
    int fd = openat(target->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        enum cairn_code code = cairn_fail_errno(err, "the folder to get into");
        if (fd >= 0) close(fd);
        return code;
    }
    *ret = false;
    for (struct dirent *entry; !*ret && (entry = readdir(folder));)
        *ret = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
               strcmp(entry->d_name, target->part_name) != 0;
    closedir(folder);
    return CAIRN_OK;
}

/* ---- writing parts ---- */

static void part_name(uint32_t index, char ret[16]) {
    snprintf(ret, 16, "%u", index);
}

static bool have_piece(void *owner, uint32_t shard, uint64_t offset, void *memory, size_t size) {
    const struct target *target = owner;
    char name[16];
    if (target->in_place[shard]) return true;
    if (!target->resumed) return false;
    part_name(shard, name);
    CAIRN_AUTO_FD fd = openat(target->part_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && matches_checksums(target, fd, shard, offset, memory, size);
}

/* Sets the whole length at once, because the kernel serializes writes beyond a file's end. */
static enum cairn_code create_part(const struct target *target, uint32_t shard, const char *name,
                                   struct cairn_file *ret, struct cairn_error *err) {
    uint64_t size = shard_at(target, shard)->size_bytes;
    struct cairn_file file = {0};
    CAIRN_TRY(cairn_file_create(target->part_fd, name, size, &file, err));
    if (ftruncate(file.fd, (off_t)size)) {
        enum cairn_code code = cairn_fail_errno(err, "%s", name);
        cairn_file_release(&file);
        return code;
    }
    *ret = file;
    return CAIRN_OK;
}

/* Several threads may write a shard's first piece. */
static enum cairn_code open_or_create_part(const struct target *target, uint32_t shard,
                                           const char *name, struct cairn_file *ret,
                                           struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = cairn_file_open_write(target->part_fd, name, ret, &why);
    if (code == CAIRN_NOT_FOUND) {
        code = create_part(target, shard, name, ret, &why);
        if (code == CAIRN_PRECONDITION)
            code = cairn_file_open_write(target->part_fd, name, ret, &why);
    }
    return cairn_pass(err, code, &why);
}

static unsigned mode_of(const struct target *target, const char *name) {
    return cli_tree_meta_mode(&target->meta, name, false) & ~target->mask;
}

/* Creates, writes and sets the mode at once. A mode without owner write is set at the end, because
 * a resumed get may have to rewrite the part. */
static enum cairn_code write_small(const struct target *target, uint32_t shard, const char *name,
                                   const void *bytes, size_t size, struct cairn_error *err) {
    const mode_t own = S_IRUSR | S_IWUSR;
    unsigned mode = mode_of(target, shard_at(target, shard)->name);
    CAIRN_AUTO_FD fd =
        openat(target->part_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, own);
    if (fd < 0)
        return cairn_file_tell_inodes(err, target->part_fd, cairn_fail_errno(err, "%s", name));
    const struct cairn_file file = {.fd = fd, .direct_fd = -1, .open = true};
    CAIRN_TRY(cairn_file_write_at(&file, bytes, size, 0, err));
    if ((mode & own) != own || fchmod(fd, mode)) return CAIRN_OK;
    target->written[shard] = true;
    return CAIRN_OK;
}

/* Direct I/O if possible; else starts writeback, so that the final sync is short. */
static enum cairn_code write_piece(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                                   size_t size, struct cairn_error *err) {
    const struct target *target = owner;
    struct cairn_file file = {0};
    char name[16];
    if (target->in_place[shard]) return CAIRN_OK;
    part_name(shard, name);
    bool small = size <= SMALL_BYTES_MAX && size == shard_at(target, shard)->size_bytes;
    if (small && !target->resumed) {
        enum cairn_code code = write_small(target, shard, name, bytes, size, err);
        return cairn_within(err, code, "%s", shard_at(target, shard)->name);
    }
    enum cairn_code code = open_or_create_part(target, shard, name, &file, err);
    if (code == CAIRN_OK) code = cairn_file_write_sparse_at(&file, bytes, size, offset, err);
    if (code == CAIRN_OK && file.direct_fd < 0 && size >= EARLY_BYTES_MIN)
        (void)sync_file_range(file.fd, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
    cairn_file_release(&file);
    return cairn_within(err, code, "%s", shard_at(target, shard)->name);
}

/* CAIRN_NOT_FOUND: the get that held it ended and removed it. */
static enum cairn_code lock_part(struct target *target, struct cairn_error *err) {
    target->resumed = mkdirat(target->root_fd, target->part_name, 0700) != 0;
    if (target->resumed && errno != EEXIST) return cairn_fail_errno(err, "%s", target->part_name);
    CAIRN_AUTO_FD fd =
        openat(target->root_fd, target->part_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s was removed", target->part_name);
    if (fd < 0) return cairn_fail_errno(err, "%s", target->part_name);
    CAIRN_TRY(cairn_file_lock_entry(target->root_fd, target->part_name, fd, err));
    target->part_fd = fd;
    target->locked = true;
    fd = -1;
    return CAIRN_OK;
}

/* Reads the tree description from meta or from the shard that meta names. */
static enum cairn_code load_description(const struct cli_source *source, struct cli_tree_meta *ret,
                                        struct cairn_error *err) {
    const struct cairn_manifest *manifest = &source->version.manifest;
    CAIRN_AUTO(buf) bytes = {.limit = CLI_TREE_BYTES_MAX};
    if (!cli_tree_meta_is_apart(manifest->meta_json))
        return cli_tree_meta_read(cairn_view_of(manifest->meta_json), ret, err);
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        if (strcmp(manifest->shards[i].name, CAIRN_TREE_SHARD) != 0) continue;
        const struct cairn_manifest_shard *shard = &manifest->shards[i];
        CAIRN_AUTO_PTR(cli_reader) reader = NULL;
        if (shard->size_bytes > CLI_TREE_BYTES_MAX)
            return cairn_fail(err, CAIRN_TOO_LARGE, "%s has %llu bytes", shard->name,
                              (unsigned long long)shard->size_bytes);
        CAIRN_TRY(cairn_buf_reserve(&bytes, (size_t)shard->size_bytes, err));
        CAIRN_TRY(cli_reader_new(source, &reader, err));
        for (uint64_t at = 0; at < shard->size_bytes; at += CLI_PIECE_BYTES) {
            size_t size = (size_t)cairn_min_u64(CLI_PIECE_BYTES, shard->size_bytes - at);
            CAIRN_TRY(cli_read(reader, shard, at, bytes.data + at, size, err));
        }
        bytes.size = (size_t)shard->size_bytes;
        return cli_tree_meta_read(cairn_buf_view(&bytes), ret, err);
    }
    return cairn_fail(err, CAIRN_CORRUPT, "the description of the tree, shard %s, is missing",
                      CAIRN_TREE_SHARD);
}

static enum cairn_code open_target(struct target *target, const char *folder,
                                   struct cairn_error *err) {
    const struct cairn_manifest *manifest = &target->source->version.manifest;
    target->root_fd = target->part_fd = -1;
    CAIRN_TRY(load_description(target->source, &target->meta, err));
    target->in_place = calloc(manifest->shard_count + 1, sizeof *target->in_place);
    target->written = calloc(manifest->shard_count + 1, sizeof *target->written);
    if (!target->in_place || !target->written)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list of files");
    mode_t mask = umask(0);
    (void)umask(mask);
    target->mask = mask;
    CAIRN_TRY(cairn_dir_make(folder, 0777, err));
    target->root_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (target->root_fd < 0) return cairn_fail_errno(err, "%s", folder);
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_NOT_FOUND;
    snprintf(target->part_name, sizeof target->part_name, ".cairn-get-%s",
             target->source->version.manifest.id.text);
    for (int tries = 0; tries < LOCK_TRIES_MAX && code == CAIRN_NOT_FOUND; tries++)
        code = lock_part(target, &why);
    if (code == CAIRN_CONFLICT || code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_CONFLICT, "another cairn get writes to this folder");
    CAIRN_TRY(cairn_pass(err, code, &why));
    bool looks = false;
    CAIRN_TRY(has_entries(target, &looks, err));
    for (size_t i = 0; looks && i < target->shard_count; i++)
        CAIRN_TRY(look_at_name(target, target->shards[i], err));
    return CAIRN_OK;
}

/* ---- final names ---- */

/* An existing correct file gets the saved mode; a version without modes leaves it. */
static enum cairn_code mend_mode(struct target *target, const char *name, unsigned mode,
                                 struct cairn_error *err) {
    const char *last = NULL;
    struct stat status;
    CAIRN_AUTO_FD parent_fd = -1;
    if (!target->meta.there) return CAIRN_OK;
    CAIRN_TRY(open_parent(target, name, false, &parent_fd, &last, err));
    if (!fstatat(parent_fd, last, &status, AT_SYMLINK_NOFOLLOW) &&
        ((status.st_mode & 07777) == mode || !fchmodat(parent_fd, last, mode, 0)))
        return CAIRN_OK;
    return cairn_fail_errno(err, "%s has the right bytes and another mode, which cannot be set",
                            name);
}

/* Cache of the last parent folder: the next file is mostly in the same one. */
struct parent {
    char name[CAIRN_SHARD_NAME_BYTES_MAX + 1]; /* with trailing slash; "": the root */
    int fd;                                    /* -1: none */
};

/* Sets length and mode and syncs a part that was written in pieces. */
static enum cairn_code complete_part(const struct target *target, uint32_t index, const char *part,
                                     bool synced, struct cairn_error *err) {
    const char *name = shard_at(target, index)->name;
    CAIRN_AUTO_FD fd = openat(target->part_fd, part, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return cairn_fail_errno(err, "%s", name);
    if (ftruncate(fd, (off_t)shard_at(target, index)->size_bytes) ||
        fchmod(fd, mode_of(target, name)))
        return cairn_fail_errno(err, "%s", name);
    if (!synced && fdatasync(fd) && errno != EINVAL) return cairn_fail_errno(err, "%s", name);
    return CAIRN_OK;
}

/* Renames the part without replacing anything. */
static int rename_part(const struct target *target, const char *part, int parent_fd,
                       const char *last) {
    if (!syscall(SYS_renameat2, target->part_fd, part, parent_fd, last, RENAME_NOREPLACE)) return 0;
    if (errno == EEXIST) return -1;
    if (!linkat(target->part_fd, part, parent_fd, last, 0)) {
        (void)unlinkat(target->part_fd, part, 0);
        return 0;
    }
    if (errno == EEXIST) return -1;
    /* Without RENAME_NOREPLACE and hard links: the name was free a moment ago. */
    return renameat(target->part_fd, part, parent_fd, last);
}

static enum cairn_code move_file(struct target *target, uint32_t index, struct parent *parent,
                                 bool synced, struct cairn_error *err) {
    const char *name = shard_at(target, index)->name, *last = NULL;
    char part[16];
    if (target->in_place[index]) return mend_mode(target, name, mode_of(target, name), err);
    part_name(index, part);
    if (!synced || !target->written[index])
        CAIRN_TRY(complete_part(target, index, part, synced, err));
    const char *slash = strrchr(name, '/');
    size_t size = slash ? (size_t)(slash - name) + 1 : 0;
    CAIRN_ASSERT(size < sizeof parent->name);
    if (parent->fd < 0 || strlen(parent->name) != size || memcmp(parent->name, name, size) != 0) {
        if (parent->fd >= 0) close(parent->fd);
        parent->fd = -1;
        CAIRN_TRY(open_parent(target, name, true, &parent->fd, &last, err));
        memcpy(parent->name, name, size);
        parent->name[size] = '\0';
    }
    last = name + size;
    if (!rename_part(target, part, parent->fd, last)) return CAIRN_OK;
    if (errno == EEXIST) return cairn_fail(err, CAIRN_CONFLICT, "%s is there now", name);
    return cairn_fail_errno(err, "%s", name);
}

static enum cairn_code make_folder(struct target *target, const char *name,
                                   struct cairn_error *err) {
    const char *last = NULL;
    CAIRN_AUTO_FD parent_fd = -1;
    CAIRN_TRY(open_parent(target, name, true, &parent_fd, &last, err));
    if (mkdirat(parent_fd, last, 0777) && errno != EEXIST)
        return cairn_file_tell_inodes(err, parent_fd, cairn_fail_errno(err, "folder %s", name));
    return CAIRN_OK;
}

static enum cairn_code make_link(struct target *target, const char *name, const char *to,
                                 struct cairn_error *err) {
    const char *last = NULL;
    char there[PATH_MAX];
    CAIRN_AUTO_FD parent_fd = -1;
    CAIRN_TRY(open_parent(target, name, true, &parent_fd, &last, err));
    if (!symlinkat(to, parent_fd, last)) return CAIRN_OK;
    if (errno != EEXIST) return cairn_fail_errno(err, "link %s", name);
    ssize_t size = readlinkat(parent_fd, last, there, sizeof there);
    if (size == (ssize_t)strlen(to) && !memcmp(there, to, (size_t)size)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT, "%s is already there and is another", name);
}

/* Sets parent folders' modes last and deepest first: a mode may forbid entering. */
static enum cairn_code set_folder_modes(struct target *target, const char *name, bool itself,
                                        struct cairn_error *err) {
    char path[CAIRN_SHARD_NAME_BYTES_MAX + 1];
    size_t size = strlen(name);
    CAIRN_ASSERT(size < sizeof path);
    memcpy(path, name, size + 1);
    for (bool first = itself;; first = false) {
        char *slash = first ? path + size : strrchr(path, '/');
        const char *last = NULL;
        if (!slash) return CAIRN_OK;
        *slash = '\0';
        if (!json_object_get(target->meta.modes, path)) continue;
        CAIRN_AUTO_FD parent_fd = -1;
        CAIRN_TRY(open_parent(target, path, false, &parent_fd, &last, err));
        unsigned mode = cli_tree_meta_mode(&target->meta, path, true) & ~target->mask;
        if (fchmodat(parent_fd, last, mode, 0)) return cairn_fail_errno(err, "folder %s", path);
    }
}

static bool same_parent(const char *a, const char *b) {
    const char *slash = strrchr(a, '/'), *other = strrchr(b, '/');
    if (!slash || !other) return !slash && !other;
    return slash - a == other - b && memcmp(a, b, (size_t)(slash - a)) == 0;
}

static enum cairn_code make_rest(struct target *target, struct cairn_error *err) {
    json_t *value = NULL;
    const char *name = NULL;
    if (!target->whole || !target->meta.there) return CAIRN_OK;
    for (size_t index = 0; (value = json_array_get(target->meta.folders, index)); index++)
        CAIRN_TRY(make_folder(target, json_string_value(value), err));
    json_object_foreach(target->meta.links, name, value)
        CAIRN_TRY(make_link(target, name, json_string_value(value), err));
    const char *before = NULL;
    for (size_t i = target->shard_count; i > 0; i--) {
        name = shard_at(target, target->shards[i - 1])->name;
        if (!before || !same_parent(before, name))
            CAIRN_TRY(set_folder_modes(target, name, false, err));
        before = name;
    }
    for (size_t index = 0; (value = json_array_get(target->meta.folders, index)); index++)
        CAIRN_TRY(set_folder_modes(target, json_string_value(value), true, err));
    return CAIRN_OK;
}

static enum cairn_code finish_target(struct target *target, struct cairn_error *err) {
    bool synced =
        target->shard_count >= SYNCED_TOGETHER_MIN && cairn_file_syncs_all(target->part_fd);
    if (synced) CAIRN_TRY(cairn_file_sync_all(target->part_fd, err));
    struct parent parent = {.fd = -1};
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; code == CAIRN_OK && i < target->shard_count; i++)
        code = move_file(target, target->shards[i], &parent, synced, err);
    if (parent.fd >= 0) close(parent.fd);
    CAIRN_TRY(code);
    target->moved = true;
    CAIRN_TRY(make_rest(target, err));
    return synced ? cairn_file_sync_all(target->root_fd, err)
                  : cairn_dir_sync(target->root_fd, err);
}

static const struct cli_flag get_flags[] = {
    {"directory", 'd', CLI_TEXT, CLI_AT(directory), 0, "DIR",
     "Where the tree is written; default ./RUN-STEP. - is standard output, for one shard."},
    {"shard", 0, CLI_TEXTS, CLI_AT(shards), 0, "NAME|PATTERN",
     "Only this shard, or those that match: *.safetensors, unet/**. Again for others."},
    {"rank", 'r', CLI_NUMBER, CLI_AT(rank), CLI_AT(rank_given), "N",
     "Only the shards that rank N wrote."},
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "Read the store itself, without a server: a folder or s3://bucket/prefix."},
    {"workers", 'j', CLI_COUNT, CLI_AT(workers), 0, "N", "Readers at work at once; default 8."},
};

/* Message of an interrupted get; prepared before the first write. */
static char interrupted[3 * PATH_MAX] = "cairn get: interrupted; nothing was written\n";

struct wanted {
    const struct cli *cli;
    struct cli_patterns patterns; /* of --shard */
    bool described_apart;         /* the tree description is a shard of its own, not a file */
};

static bool is_shard(const struct cairn_manifest *manifest, const char *name) {
    for (uint32_t i = 0; i < manifest->shard_count; i++)
        if (!strcmp(manifest->shards[i].name, name)) return true;
    return false;
}

/* A --shard without * ? [ is a literal name, and so is one that equals a shard's name. */
static enum cairn_code add_patterns(const struct cairn_manifest *manifest, struct wanted *wanted,
                                    struct cairn_error *err) {
    const struct cli_texts *texts = &wanted->cli->shards;
    for (size_t i = 0; i < texts->count; i++)
        if (strpbrk(texts->items[i], "*?[") && !is_shard(manifest, texts->items[i]))
            CAIRN_TRY(cli_patterns_add(&wanted->patterns, texts->items[i], err));
    return CAIRN_OK;
}

static bool wants_shard(const void *owner, uint32_t index,
                        const struct cairn_manifest_shard *shard) {
    const struct wanted *wanted = owner;
    const struct cli *cli = wanted->cli;
    (void)index;
    for (size_t i = 0; i < cli->shards.count; i++)
        if (!strcmp(cli->shards.items[i], shard->name)) return true;
    if (cli->shards.count) return cli_patterns_match(&wanted->patterns, shard->name, false);
    if (wanted->described_apart && !strcmp(shard->name, CAIRN_TREE_SHARD)) return false;
    return !cli->rank_given || shard->rank == cli->rank;
}

/* Writes one shard to standard output in order, with one worker. */
static enum cairn_code write_stream(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                                    size_t size, struct cairn_error *err) {
    (void)owner, (void)shard, (void)offset;
    if (fwrite(bytes, 1, size, stdout) != size) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

static enum cairn_code get_tree(const struct cli *cli, struct cli_fetch *fetch, const char *folder,
                                struct cairn_error *err) {
    struct target target = {.source = fetch->source,
                            .shards = fetch->shards,
                            .shard_count = fetch->shard_count,
                            .whole = !cli->shards.count && !cli->rank_given};
    enum cairn_code code = open_target(&target, folder, err);
    bool begun = code == CAIRN_OK;
    if (begun) {
        fetch->sink = write_piece;
        fetch->have = have_piece;
        fetch->owner = &target;
        code = cli_fetch_run(fetch, err);
    }
    if (code == CAIRN_OK) code = finish_target(&target, err);
    /* After damage or a conflict the parts are useless; a get that never began keeps them. */
    bool useless = code == CAIRN_CORRUPT || code == CAIRN_CONFLICT;
    bool keep = code != CAIRN_OK && (!begun || !useless);
    /* Only the holder of the lock removes parts. */
    CAIRN_ASSERT(target.locked == (target.part_fd >= 0));
    bool clears = !keep && target.locked && (!target.moved || target.resumed);
    for (size_t i = 0; clears && i < target.shard_count; i++) {
        char name[16];
        part_name(target.shards[i], name);
        (void)unlinkat(target.part_fd, name, 0);
    }
    if (target.locked) (void)unlinkat(target.root_fd, target.part_name, AT_REMOVEDIR);
    if (target.part_fd >= 0) close(target.part_fd);
    if (target.root_fd >= 0) close(target.root_fd);
    free(target.in_place);
    free(target.written);
    cli_tree_meta_release(&target.meta);
    if (code != CAIRN_NO_SPACE) return code;
    return cli_no_space(folder, fetch->total_bytes,
                        "the same command goes on where this one stopped", err);
}

static enum cairn_code check_chosen(const struct cli *cli, const struct cli_fetch *fetch,
                                    struct cairn_error *err) {
    const struct cairn_committed *version = &fetch->source->version;
    unsigned long long step = version->place.step;
    if (fetch->shard_count || (!cli->shards.count && !cli->rank_given)) return CAIRN_OK;
    if (cli->shards.count)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "step %llu has no shard %s; cairn show %s lists the shards", step,
                          cli->shards.items[0], cli->arguments[0]);
    return cairn_fail(err, CAIRN_NOT_FOUND, "rank %llu wrote no shard of step %llu (world size %u)",
                      (unsigned long long)cli->rank, step, version->manifest.world_size);
}

static enum cairn_code get_source(struct cli_source *source, struct cairn_error *err) {
    CAIRN_RELEASED(cli_fetch_release) struct cli_fetch fetch = {.source = source, .verb = "get"};
    const struct cairn_version_place *place = &fetch.source->version.place;
    uint64_t started_ms = cairn_mono_ms();
    char folder[PATH_MAX];
    const char *meta = fetch.source->version.manifest.meta_json;
    struct wanted wanted = {.cli = source->cli, .described_apart = cli_tree_meta_is_apart(meta)};
    enum cairn_code code = add_patterns(&fetch.source->version.manifest, &wanted, err);
    if (code == CAIRN_OK) code = cli_fetch_choose(&fetch, wants_shard, &wanted, err);
    cli_patterns_release(&wanted.patterns);
    CAIRN_TRY(code);
    CAIRN_TRY(check_chosen(source->cli, &fetch, err));
    if (source->cli->directory && !strcmp(source->cli->directory, "-")) {
        if (fetch.shard_count != 1)
            return cairn_fail(err, CAIRN_INVALID,
                              "standard output takes one shard: name it with --shard");
        fetch.sink = write_stream;
        fetch.one_worker = true;
        CAIRN_TRY(cli_fetch_run(&fetch, err));
        return cli_flush(err);
    }
    int size = source->cli->directory
                   ? snprintf(folder, sizeof folder, "%s", source->cli->directory)
                   : snprintf(folder, sizeof folder, "%s-%llu", place->name.run,
                              (unsigned long long)place->step);
    if (size < 0 || (size_t)size >= sizeof folder)
        return cairn_fail(err, CAIRN_INVALID, "the path after --directory is too long");
    snprintf(interrupted, sizeof interrupted,
             "\ncairn get: interrupted; what was read is kept in %s, and no file has its name "
             "before it is verified. To go on: cairn get %s/%s@%s -d %s\n",
             folder, place->name.project, place->name.run, place->id.text, folder);
    CAIRN_TRY(get_tree(source->cli, &fetch, folder, err));
    if (source->cli->output == CLI_TABLE) {
        printf("restored %s/%s step %llu into %s: %s, %s, every block verified, %.1fs\n",
               place->name.project, place->name.run, (unsigned long long)place->step, folder,
               cairn_counted(fetch.shard_count, "shard").text, cli_size(fetch.total_bytes).text,
               (double)(cairn_mono_ms() - started_ms) / 1000);
        return cli_flush(err);
    }
    CAIRN_AUTO_JSON json_t *answer =
        json_pack("{s:s, s:I, s:I, s:I, s:s, s:b}", "version", place->id.text, "step",
                  (json_int_t)place->step, "shards", (json_int_t)fetch.shard_count, "bytes",
                  (json_int_t)fetch.total_bytes, "folder", folder, "verified", 1);
    if (!answer) return cairn_fail(err, CAIRN_INVALID, "the folder's name is not UTF-8");
    return cli_print_json(answer, false, err);
}

static enum cairn_code run_get(struct cli *cli, struct cairn_error *err) {
    CAIRN_TRY(cli_interrupt_says(interrupted, err));
    return cli_source_use(cli, cli_source_open, get_source, err);
}

const struct cli_verb cli_verb_get = {
    CLI_VERB(get),
    .synopsis = "cairn get [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Get a checkpoint back, every block verified.",
    .examples =
        "  cairn get llm/7b@latest -d ./restored\n"
        "  cairn get llm/7b@1200 --rank 3 -d /scratch/resume\n"
        "  cairn get llm/7b@1200 --store s3://bucket/cairn -d ./restored   (no server needed)\n",
    CLI_TAKES(get_flags, 1, 1),
    .surplus = "directory",
};
