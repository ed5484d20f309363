/* SPDX-License-Identifier: Apache-2.0 */
/* A head, and for each window its checksum; see export_log.h. */
#include "cli/convert/export_log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "common/file.h"

#define NAME CAIRN_CLI_EXPORT_LOG
#define LOCK_TRIES_MAX 100 /* each is lost to another export that began and ended meanwhile */

struct head {
    char form[16];
    struct cairn_cli_export_identity identity;
    uint64_t window_count;
};
static const char form[16] = "cairn-export 1\n";

/* Zeros where nothing was noted. */
struct cairn_cli_export_window {
    uint32_t crc32c, inverse;
};

static off_t place_of(uint64_t window) {
    return (off_t)(sizeof(struct head) + window * sizeof(struct cairn_cli_export_window));
}

/* Fewer bytes at the file's end; the rest stays zeros. */
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

enum cairn_code cairn_cli_export_identity_check(const struct cairn_cli_export_identity *found,
                                                const struct cairn_cli_export_identity *wanted,
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

static enum cairn_code load(struct cairn_cli_export_log *log, const struct head *wanted,
                            const char *folder, struct cairn_error *err) {
    struct head found = {0};
    size_t size, bytes = (size_t)wanted->window_count * sizeof *log->windows;
    if (!read_all(log->fd, &found, sizeof found, 0, &size)) return cairn_fail_errno(err, NAME);
    if (size == sizeof found && memcmp(found.form, form, sizeof form) == 0) {
        log->resumed = true;
        CAIRN_TRY(cairn_cli_export_identity_check(&found.identity, &wanted->identity, folder,
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

/* CAIRN_NOT_FOUND: the export that held it has ended meanwhile, and removed it. */
static enum cairn_code open_once(int folder_fd, const char *folder,
                                 struct cairn_cli_export_log *log, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = openat(folder_fd, NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat status;
    if (fd < 0) return cairn_fail_errno(err, "%s/" NAME, folder);
    CAIRN_TRY(cairn_file_lock_entry(folder_fd, NAME, fd, err));
    /* It is cut and written below: with a second name it would be another file's end. */
    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_nlink != 1)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s/" NAME " is no regular file of one name: remove it", folder);
    log->fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* log->fd is set only with the lock: without it nothing of another export's is removed. */
static enum cairn_code open_locked(int folder_fd, const char *folder,
                                   struct cairn_cli_export_log *log, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_NOT_FOUND;
    for (int tries = 0; tries < LOCK_TRIES_MAX && code == CAIRN_NOT_FOUND; tries++)
        code = open_once(folder_fd, folder, log, &why);
    if (code == CAIRN_CONFLICT || code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_CONFLICT, "another cairn export writes to %s", folder);
    if (code && err) *err = why;
    return code;
}

enum cairn_code cairn_cli_export_log_open(int folder_fd, const char *folder,
                                          const struct cairn_cli_export_identity *identity,
                                          uint64_t window_count, struct cairn_cli_export_log *ret,
                                          struct cairn_error *err) {
    struct head wanted = {.identity = *identity, .window_count = window_count};
    memcpy(wanted.form, form, sizeof form);
    struct cairn_cli_export_log log = {.fd = -1};
    enum cairn_code code = open_locked(folder_fd, folder, &log, err);
    if (code == CAIRN_OK) code = load(&log, &wanted, folder, err);
    if (code != CAIRN_OK) {
        bool own = code != CAIRN_CONFLICT && !log.resumed;
        cairn_cli_export_log_close(&log, folder_fd, own);
        return code;
    }
    *ret = log;
    return CAIRN_OK;
}

bool cairn_cli_export_log_noted(const struct cairn_cli_export_log *log, uint64_t window) {
    return log->resumed && log->windows[window].inverse == ~log->windows[window].crc32c;
}

bool cairn_cli_export_log_has(const struct cairn_cli_export_log *log, uint64_t window,
                              const void *data, size_t size) {
    return cairn_cli_export_log_noted(log, window) &&
           cairn_crc32c(0, data, size) == log->windows[window].crc32c;
}

enum cairn_code cairn_cli_export_log_note(const struct cairn_cli_export_log *log, uint64_t window,
                                          const void *data, size_t size, struct cairn_error *err) {
    uint32_t crc = cairn_crc32c(0, data, size);
    const struct cairn_cli_export_window noted = {crc, ~crc};
    return write_all(log->fd, &noted, sizeof noted, place_of(window), err);
}

void cairn_cli_export_log_close(struct cairn_cli_export_log *log, int folder_fd, bool remove) {
    if (log->fd < 0) return;
    if (remove) (void)unlinkat(folder_fd, NAME, 0);
    close(log->fd);
    free(log->windows);
    *log = (struct cairn_cli_export_log){.fd = -1};
}
