/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_sink: where the files of an export are written: a folder, or a bucket.
 *
 * Why:     which bytes a file has is known by its plan; how they get a name only when all of them
 *          are whole, and what of an interrupted export is there still, each place has its own way.
 * Promise: 1   no file has its name before _publish, and the index comes last.
 *          2   what is there already and is not of this export is never replaced: CAIRN_CONFLICT.
 *          3   an export of the same source and plan goes on: `resumed`, and _there says which
 *              windows need not be made again. One of another source or plan is CAIRN_CONFLICT
 *              with the way out, and nothing is changed.
 *          4   _close without keep leaves nothing of an export that did not end well.
 * Limits:  one export into a place at a time.
 * Threads: _hand, _there and _write from any, of different windows; the others one owner.
 * Next:    cli/convert/export_folder.h, cli/convert/export_bucket.h; cli/convert/export.c.
 */
#pragma once

#include "cli/convert/export_log.h"
#include "cli/convert/export_plan.h"

/* One window of a file: its bytes are [begin, begin + size). */
struct cairn_cli_export_span {
    struct cairn_cli_export_shard *shard;
    uint64_t begin;
    size_t size;
};
static inline uint64_t cairn_cli_export_window_of(const struct cairn_cli_export_span *span) {
    return span->shard->first_window + span->begin / CAIRN_CLI_EXPORT_WINDOW_BYTES;
}

struct cairn_cli_export_sink;
struct cairn_cli_export_sink_vtable {
    bool fills; /* _there leaves the window's bytes in memory where it is true */
    /* What one thread needs for itself; NULL where it needs nothing. */
    enum cairn_code (*hand)(struct cairn_cli_export_sink *sink, void **ret,
                            struct cairn_error *err);
    void (*hand_free)(void *hand);
    /* memory: of the span's size. */
    bool (*there)(struct cairn_cli_export_sink *sink, void *hand,
                  const struct cairn_cli_export_span *span, void *memory);
    enum cairn_code (*write)(struct cairn_cli_export_sink *sink, void *hand,
                             const struct cairn_cli_export_span *span, const void *memory,
                             struct cairn_error *err);
    enum cairn_code (*publish)(struct cairn_cli_export_sink *sink, struct cairn_error *err);
    /* published: it ended well. keep: what was written stays for the same command. */
    void (*close)(struct cairn_cli_export_sink *sink, bool published, bool keep);
};
struct cairn_cli_export_sink {
    const struct cairn_cli_export_sink_vtable *vtable;
    struct cairn_cli_export_plan *plan;
    const char *place; /* as a person wrote it */
    bool resumed;      /* an earlier export was ended here */
    bool compares;     /* all files are there, and each byte is compared: nothing is written */
    bool kept;         /* something is there that the same command would go on from */
};
