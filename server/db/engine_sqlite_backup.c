/* SPDX-License-Identifier: Apache-2.0 */
/* A catalog of SQLite while its server changes it, as of one moment, into a file; see engine.h.
 *
 * SQLite's own backup call copies page by page and begins anew whenever another connection has
 * changed the database, so under a server it never ends. VACUUM INTO reads in one transaction. The
 * log cannot shrink meanwhile; the server bounds it afterwards (engine_sqlite_open.c). */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "server/db/copy.h"
#include "server/db/engine_sqlite.h"

#define PART ".part"

bool cairn_srv_sqlite_is_there(const char *where) {
    char path[1024];
    snprintf(path, sizeof(path), "%.900s/catalog.db", where);
    return access(path, F_OK) == 0;
}

/* One state of the catalog, over a connection that can neither write nor checkpoint (S1). */
static enum cairn_code copy_into(const char *path, const char *part, struct cairn_error *err) {
    struct cairn_srv_tx *tx = NULL;
    CAIRN_TRY(cairn_srv_sqlite_open(path, true, &tx, err));
    sqlite3_stmt *statement = NULL;
    sqlite3 *db = cairn_srv_sqlite_of(tx)->db;
    int result = sqlite3_prepare_v2(db, "VACUUM INTO ?1", -1, &statement, NULL);
    if (result == SQLITE_OK) result = sqlite3_bind_text(statement, 1, part, -1, SQLITE_STATIC);
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    enum cairn_code code = CAIRN_OK;
    if (result != SQLITE_DONE) code = cairn_srv_sqlite_fail(tx, result, part, err);
    sqlite3_finalize(statement);
    cairn_srv_sqlite_free(tx);
    return code;
}

/* A backup that nobody has read is a hope. */
static enum cairn_code look_at(const char *part, struct cairn_srv_backup *ret,
                               struct cairn_error *err) {
    struct cairn_srv_tx *tx = NULL;
    char text[32] = "";
    CAIRN_TRY(cairn_srv_sqlite_open(part, true, &tx, err));
    enum cairn_code code = cairn_srv_sqlite_demand(tx, "PRAGMA quick_check(1)", "ok", err);
    if (code) code = cairn_within(err, CAIRN_CORRUPT, "the copy");
    if (!code) code = cairn_srv_sqlite_ask(tx, "PRAGMA user_version", text, err);
    ret->schema = (unsigned)strtoul(text, NULL, 10);
    cairn_srv_sqlite_free(tx);
    return code;
}

/* What a backup that was ended left is written over; one that runs is left alone. */
static enum cairn_code take_part(int dir_fd, const char *part, int *ret_fd,
                                 struct cairn_error *err) {
    CAIRN_AUTO_FD fd = openat(dir_fd, part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return cairn_fail_errno(err, "open %s", part);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return cairn_fail(err, CAIRN_CONFLICT, "%s: another backup is writing there", part);
    if (ftruncate(fd, 0) != 0) return cairn_fail_errno(err, "empty %s", part);
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

static enum cairn_code write_part(const char *path, int fd, const char *part,
                                  struct cairn_srv_backup *ret, struct cairn_error *err) {
    struct stat status;
    CAIRN_TRY(copy_into(path, part, err));
    CAIRN_TRY(look_at(part, ret, err));
    if (fsync(fd) != 0 || fstat(fd, &status) != 0) return cairn_fail_errno(err, "sync %s", part);
    ret->bytes = (uint64_t)status.st_size;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_sqlite_backup(const char *where, const char *file,
                                        struct cairn_srv_backup *ret, struct cairn_error *err) {
    char path[1024], part[PATH_MAX], folder[PATH_MAX];
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    size_t folder_size = slash ? (size_t)(slash - file) + 1 : 1;
    snprintf(path, sizeof(path), "%.900s/catalog.db", where);
    if (!cairn_srv_sqlite_is_there(where))
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no catalog in %s", where);
    if (!*name || folder_size >= sizeof(folder) ||
        (size_t)snprintf(part, sizeof(part), "%s" PART, file) >= sizeof(part))
        return cairn_fail(err, CAIRN_INVALID, "FILE: want the name of a file, not %.200s", file);
    snprintf(folder, sizeof(folder), "%.*s", (int)folder_size, slash ? file : ".");
    CAIRN_AUTO_FD dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) return cairn_fail_errno(err, "%s", folder);
    if (!faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW))
        return cairn_fail(err, CAIRN_CONFLICT, "%s is already there: name another file", file);
    CAIRN_AUTO_FD fd = -1;
    const char *part_name = part + (name - file);
    CAIRN_TRY(take_part(dir_fd, part_name, &fd, err));
    enum cairn_code code = write_part(path, fd, part, ret, err);
    if (!code) code = cairn_file_publish(dir_fd, part_name, name, err);
    if (code) (void)unlinkat(dir_fd, part_name, 0);
    return code;
}
