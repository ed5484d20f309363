/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_folder: an export's files in a folder.
 *
 * Promise: 1   a file is written as NAME.part and gets its name by link() when all files are on
 *              disk, so an incomplete file never has its final name.
 *          2   the log `.cairn-export` has digests of source and plan. Another source or other
 *              arguments are CAIRN_CONFLICT with the way out, and nothing changes. A truncated log
 *              or one of another format counts as none.
 *          3   a window is logged with its CRC32C after its write, and compared before reuse.
 * Limits:  one export into a folder at a time, by a lock of the log.
 * Threads: has_window and note_window from any, of different windows; the others one owner.
 */
#include "cli/convert/inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "common/crc.h"
#include "common/file.h"

#define NAME CLI_EXPORT_LOG
#define LOCK_TRIES_MAX 100 /* each lost to an export that began and ended meanwhile */

struct head {
    char form[16];
    struct cli_export_identity identity;
    uint64_t window_count;
};
static const char form[16] = "cairn-export 1\n";

/* Zeros: not logged. */
struct window_note {
    uint32_t crc32c, inverse;
};
struct export_log {
    int fd;                      /* -1: not open */
    bool resumed;                /* an earlier export left it */
    struct window_note *windows; /* as logged by the earlier export */
};

static off_t place_of(uint64_t window) {
    return (off_t)(sizeof(struct head) + window * sizeof(struct window_note));
}

/* At the file's end fewer bytes; the rest stays zero. */
static bool read_all(int fd, void *into, size_t size, off_t offset, size_t *ret_size) {
    for (*ret_size = 0; *ret_size < size;) {
        ssize_t got =
            pread(fd, (char *)into + *ret_size, size - *ret_size, offset + (off_t)*ret_size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return false;
        if (got == 0) return true;
        *ret_size += (size_t)got;
    }
    return true;
}

static enum cairn_code write_all(int fd, const void *from, size_t size, off_t offset,
                                 struct cairn_error *err) {
    while (size) {
        ssize_t put = pwrite(fd, from, size, offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return cairn_fail_errno(err, NAME);
        from = (const char *)from + put;
        size -= (size_t)put;
        offset += put;
    }
    return CAIRN_OK;
}

enum cairn_code cli_export_identity_check(const struct cli_export_identity *found,
                                          const struct cli_export_identity *wanted,
                                          const char *place, const char *way_out,
                                          struct cairn_error *err) {
    const char *what = NULL;
    if (memcmp(found->source, wanted->source, sizeof found->source) != 0)
        what = "from another source";
    else if (memcmp(found->plan, wanted->plan, sizeof found->plan) != 0)
        what = "with other arguments";
    if (!what) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "%s holds an export %s that was interrupted: give its command again to go "
                      "on, name another folder, or remove %s/" NAME " and %s",
                      place, what, place, way_out);
}

static enum cairn_code load(struct export_log *log, const struct head *wanted, const char *folder,
                            struct cairn_error *err) {
    struct head found = {0};
    size_t size, bytes = (size_t)wanted->window_count * sizeof *log->windows;
    if (!read_all(log->fd, &found, sizeof found, 0, &size)) return cairn_fail_errno(err, NAME);
    if (size == sizeof found && memcmp(found.form, form, sizeof form) == 0) {
        log->resumed = true;
        CAIRN_TRY(cli_export_identity_check(&found.identity, &wanted->identity, folder,
                                            "the files that end in .part", err));
        if (found.window_count != wanted->window_count)
            return cairn_fail(err, CAIRN_CORRUPT, "%s/" NAME ": its windows are not the plan's",
                              folder);
        log->windows = calloc(wanted->window_count + 1, sizeof *log->windows);
        if (!log->windows) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for " NAME);
        if (!read_all(log->fd, log->windows, bytes, place_of(0), &size))
            return cairn_fail_errno(err, NAME);
        return CAIRN_OK;
    }
    if (ftruncate(log->fd, 0) != 0) return cairn_fail_errno(err, NAME);
    return write_all(log->fd, wanted, sizeof *wanted, 0, err);
}

/* CAIRN_NOT_FOUND: the export that held it ended and removed it. */
static enum cairn_code open_once(int folder_fd, const char *folder, struct export_log *log,
                                 struct cairn_error *err) {
    CAIRN_AUTO_FD fd = openat(folder_fd, NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status;
    if (fd < 0) return cairn_fail_errno(err, "%s/" NAME, folder);
    CAIRN_TRY(cairn_file_lock_entry(folder_fd, NAME, fd, err));
    /* The log is truncated and rewritten: a second name would destroy another file. */
    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_nlink != 1)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s/" NAME " is no regular file of one name: remove it", folder);
    log->fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* log->fd is set only with the lock held, so no other export's files are removed. */
static enum cairn_code open_locked(int folder_fd, const char *folder, struct export_log *log,
                                   struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_NOT_FOUND;
    for (int tries = 0; tries < LOCK_TRIES_MAX && code == CAIRN_NOT_FOUND; tries++)
        code = open_once(folder_fd, folder, log, &why);
    if (code == CAIRN_CONFLICT || code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_CONFLICT, "another cairn export writes to %s", folder);
    return cairn_pass(err, code, &why);
}

/* remove: nothing can be resumed. */
static void close_log(struct export_log *log, int folder_fd, bool remove) {
    if (log->fd < 0) return;
    if (remove) (void)unlinkat(folder_fd, NAME, 0);
    close(log->fd);
    free(log->windows);
    *log = (struct export_log){.fd = -1};
}

static enum cairn_code open_log(int folder_fd, const char *folder,
                                const struct cli_export_identity *identity, uint64_t window_count,
                                struct export_log *ret, struct cairn_error *err) {
    struct head wanted = {.identity = *identity, .window_count = window_count};
    memcpy(wanted.form, form, sizeof form);
    struct export_log log = {.fd = -1};
    enum cairn_code code = open_locked(folder_fd, folder, &log, err);
    if (code == CAIRN_OK) code = load(&log, &wanted, folder, err);
    if (code != CAIRN_OK) {
        bool own = code != CAIRN_CONFLICT && !log.resumed;
        close_log(&log, folder_fd, own);
        return code;
    }
    *ret = log;
    return CAIRN_OK;
}

/* Whether the log has the window. crc32c and its inverse must agree. */
static bool is_noted(const struct export_log *log, uint64_t window) {
    return log->resumed && log->windows[window].inverse == ~log->windows[window].crc32c;
}

#define PART "%s.part"

struct folder {
    struct cli_export_sink sink;
    int fd;
    struct export_log log;
};

static struct folder *folder_of(struct cli_export_sink *sink) {
    return (struct folder *)(void *)sink;
}

static bool is_there(const struct folder *folder, const char *name) {
    return faccessat(folder->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static enum cairn_code already(const struct folder *folder, const char *name,
                               struct cairn_error *err) {
    return cli_export_already(folder->sink.place, name, err);
}

/* Existing names are a conflict, unless a killed export was just naming its complete files. */
static enum cairn_code check_names(struct folder *folder, struct cairn_error *err) {
    struct cli_export_plan *plan = folder->sink.plan;
    const char *index = cli_export_naming(plan->export)->index;
    bool all = true;
    for (size_t i = 0; i < plan->count; i++) {
        struct cli_export_shard *shard = &plan->shards[i];
        shard->in_place = is_there(folder, shard->name);
        all &= shard->in_place;
        if (shard->in_place && !folder->log.resumed && !plan->export->same)
            return already(folder, shard->name, err);
    }
    bool has_index = is_there(folder, index);
    /* A complete export without a log: every byte is compared, nothing is written. */
    folder->sink.compares = !folder->log.resumed && all && has_index == cli_export_has_index(plan);
    for (size_t i = 0; !folder->log.resumed && !folder->sink.compares && i < plan->count; i++)
        if (plan->shards[i].in_place) return already(folder, plan->shards[i].name, err);
    bool in_the_way = has_index && !(all && (folder->log.resumed || folder->sink.compares));
    return in_the_way ? already(folder, index, err) : CAIRN_OK;
}

static enum cairn_code open_shard(const struct folder *folder, struct cli_export_shard *shard,
                                  struct cairn_error *err) {
    struct cairn_error why = {0};
    char part[96];
    snprintf(part, sizeof part, PART, shard->name);
    if (shard->in_place) {
        uint64_t bytes;
        CAIRN_TRY(cairn_file_open_read(folder->fd, shard->name, &shard->file, err));
        CAIRN_TRY(cairn_file_size(&shard->file, &bytes, err));
        return bytes == shard->bytes ? CAIRN_OK : already(folder, shard->name, err);
    }
    if (!folder->log.resumed) unlinkat(folder->fd, part, 0); /* left by an export without a log */
    enum cairn_code code = cairn_file_open_write(folder->fd, part, &shard->file, &why);
    struct stat status;
    if (code == CAIRN_NOT_FOUND)
        return cairn_file_create(folder->fd, part, shard->bytes, &shard->file, err);
    if (code == CAIRN_OK && (fstat(shard->file.fd, &status) || status.st_nlink != 1))
        code = cairn_fail(&why, CAIRN_CONFLICT,
                          "%s/%s has a second name, whose bytes would be overwritten: remove it",
                          folder->sink.place, part);
    if (code == CAIRN_OK && ftruncate(shard->file.fd, (off_t)shard->bytes) != 0)
        code = cairn_fail_errno(&why, "%s", part);
    return cairn_pass(err, code, &why);
}

static enum cairn_code open_files(struct folder *folder, const struct cli_export_identity *identity,
                                  struct cairn_error *err) {
    struct cli_export_plan *plan = folder->sink.plan;
    const char *place = folder->sink.place;
    if (mkdir(place, 0777) != 0 && errno != EEXIST) return cairn_fail_errno(err, "%s", place);
    folder->fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0) return cairn_fail_errno(err, "%s", place);
    CAIRN_TRY(open_log(folder->fd, place, identity, plan->window_count, &folder->log, err));
    folder->sink.resumed = folder->log.resumed;
    folder->sink.kept = true;
    CAIRN_TRY(check_names(folder, err));
    for (size_t i = 0; i < plan->count; i++) CAIRN_TRY(open_shard(folder, &plan->shards[i], err));
    return CAIRN_OK;
}

/* An earlier export wrote the window, and it is unchanged. */
static bool there(struct cli_export_sink *sink, void *hand, const struct cli_export_span *span,
                  void *memory) {
    struct folder *folder = folder_of(sink);
    uint64_t number = cli_export_window_of(span);
    (void)hand;
    return is_noted(&folder->log, number) &&
           cairn_file_read_at(&span->shard->file, memory, span->size, span->begin, NULL) ==
               CAIRN_OK &&
           cairn_crc32c(0, memory, span->size) == folder->log.windows[number].crc32c;
}

static enum cairn_code write_span(struct cli_export_sink *sink, void *hand,
                                  const struct cli_export_span *span, const void *memory,
                                  struct cairn_error *err) {
    struct folder *folder = folder_of(sink);
    (void)hand;
    if (span->shard->in_place) {
        CAIRN_AUTO_HEAP char *found = malloc(span->size);
        if (!found) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a window");
        CAIRN_TRY(cairn_file_read_at(&span->shard->file, found, span->size, span->begin, err));
        return memcmp(found, memory, span->size) ? already(folder, span->shard->name, err)
                                                 : CAIRN_OK;
    }
    CAIRN_TRY(cairn_file_write_at(&span->shard->file, memory, span->size, span->begin, err));
    uint32_t crc = cairn_crc32c(0, memory, span->size);
    const struct window_note noted = {crc, ~crc};
    return write_all(folder->log.fd, &noted, sizeof noted, place_of(cli_export_window_of(span)),
                     err);
}

/* The existing index may be the resumed export's or foreign. */
static enum cairn_code compare_index(const struct folder *folder, const char *name,
                                     const struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_AUTO(file) file = {0};
    uint64_t size;
    CAIRN_TRY(cairn_file_open_read(folder->fd, name, &file, err)); /* no link */
    CAIRN_TRY(cairn_file_size(&file, &size, err));
    if (size != text->size) return already(folder, name, err);
    CAIRN_AUTO_HEAP char *found = malloc(text->size + 1);
    if (!found) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %s", name);
    CAIRN_TRY(cairn_file_read_at(&file, found, text->size, 0, err));
    return memcmp(found, text->data, text->size) ? already(folder, name, err) : CAIRN_OK;
}

static enum cairn_code write_index(const struct folder *folder, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB};
    const char *name = cli_export_naming(folder->sink.plan->export)->index;
    struct cairn_file file = {.fd = -1, .direct_fd = -1};
    char part[96];
    snprintf(part, sizeof part, PART, name);
    unlinkat(folder->fd, part, 0); /* left by a killed export */
    CAIRN_TRY(cli_export_plan_index(folder->sink.plan, &text, err));
    if (is_there(folder, name)) return compare_index(folder, name, &text, err);
    CAIRN_TRY(cairn_file_create(folder->fd, part, text.size, &file, err));
    enum cairn_code code = cairn_file_write_at(&file, text.data, text.size, 0, err);
    if (code == CAIRN_OK) code = cairn_file_sync(&file, err);
    cairn_file_release(&file);
    if (code == CAIRN_OK) code = cairn_file_publish(folder->fd, part, name, err);
    if (code != CAIRN_OK) unlinkat(folder->fd, part, 0);
    return code;
}

static enum cairn_code publish(struct cli_export_sink *sink, struct cairn_error *err) {
    struct folder *folder = folder_of(sink);
    struct cli_export_plan *plan = sink->plan;
    for (size_t i = 0; i < plan->count; i++)
        if (!plan->shards[i].in_place) CAIRN_TRY(cairn_file_sync(&plan->shards[i].file, err));
    for (size_t i = 0; i < plan->count; i++) {
        char part[96];
        snprintf(part, sizeof part, PART, plan->shards[i].name);
        if (plan->shards[i].in_place) {
            (void)unlinkat(folder->fd, part, 0); /* killed between link() and unlink() */
            continue;
        }
        CAIRN_TRY(cairn_file_publish(folder->fd, part, plan->shards[i].name, err));
        plan->shards[i].published = true;
    }
    return cli_export_has_index(plan) ? write_index(folder, err) : CAIRN_OK;
}

static void close_folder(struct cli_export_sink *sink, bool published, bool keep) {
    struct folder *folder = folder_of(sink);
    bool failed = !published && !keep;
    for (size_t i = 0; failed && i < sink->plan->count; i++) {
        struct cli_export_shard *shard = &sink->plan->shards[i];
        char part[96];
        snprintf(part, sizeof part, PART, shard->name);
        if (shard->file.open && !shard->in_place) unlinkat(folder->fd, part, 0);
        if (shard->published) unlinkat(folder->fd, shard->name, 0);
    }
    /* The lock is dropped last: an export that then begins finds none of these files. */
    close_log(&folder->log, folder->fd, !keep);
    if (folder->fd >= 0) close(folder->fd);
    free(folder);
}

static const struct cli_export_sink_vtable vtable = {
    .fills = true, .there = there, .write = write_span, .publish = publish, .close = close_folder};

enum cairn_code cli_export_folder_open(struct cli_export_plan *plan,
                                       const struct cli_export_identity *identity,
                                       struct cli_export_sink **ret, struct cairn_error *err) {
    struct folder *folder = calloc(1, sizeof *folder);
    if (!folder) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a folder");
    *folder =
        (struct folder){.sink = {.vtable = &vtable, .plan = plan, .place = plan->export->folder},
                        .fd = -1,
                        .log.fd = -1};
    *ret = &folder->sink;
    return open_files(folder, identity, err);
}
