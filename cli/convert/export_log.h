/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_log: which windows of an export's files are written, kept beside the files.
 *
 * Why:     an export of terabytes that was killed must not begin anew, and must not believe what
 *          it finds either.
 * Promise: 1   the log `.cairn-export` names source and files by digests. One of another source, or
 *              of other arguments, is CAIRN_CONFLICT with the way out, and nothing is changed.
 *          2   a window is noted after it was written, with its CRC32C; _has compares the bytes
 *              that are there.
 *          3   a log that is cut or of another form counts as none.
 * Limits:  one export into a folder at a time, by a lock of the log.
 * Threads: _has and _note from any, of different windows; the others one owner.
 * Next:    cli/convert/export.c.
 */
#pragma once

#include "common/error.h"
#include "common/hash.h"

#define CAIRN_CLI_EXPORT_LOG ".cairn-export"

struct cairn_cli_export_log {
    int fd;                                  /* -1: not open */
    bool resumed;                            /* an earlier export left it */
    struct cairn_cli_export_window *windows; /* as the earlier export noted them */
};
/* Of the same source and the same plan, an export goes on. */
struct cairn_cli_export_identity {
    uint8_t source[CAIRN_SHA256_BYTES], plan[CAIRN_SHA256_BYTES];
};
/* CAIRN_CONFLICT: what an earlier export left in `place` is of another one. way_out: what there is
 * to remove beside its log. */
enum cairn_code cairn_cli_export_identity_check(const struct cairn_cli_export_identity *found,
                                                const struct cairn_cli_export_identity *wanted,
                                                const char *place, const char *way_out,
                                                struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_export_log_open(int folder_fd, const char *folder,
                                          const struct cairn_cli_export_identity *identity,
                                          uint64_t window_count, struct cairn_cli_export_log *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Was this window written before? Then these are the bytes that were found in its place. */
bool cairn_cli_export_log_noted(const struct cairn_cli_export_log *log, uint64_t window);
bool cairn_cli_export_log_has(const struct cairn_cli_export_log *log, uint64_t window,
                              const void *data, size_t size);
enum cairn_code cairn_cli_export_log_note(const struct cairn_cli_export_log *log, uint64_t window,
                                          const void *data, size_t size,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* remove: nothing is left to go on with. */
void cairn_cli_export_log_close(struct cairn_cli_export_log *log, int folder_fd, bool remove);
