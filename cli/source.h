/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source: a committed version as a reader sees it, from the server or from the store alone.
 *
 * Why:     `get` and `verify` must work with the server down; what they check may not depend on
 *          where the bytes came from.
 * Promise: P3  every block that is handed out was compared with checksums.bin, which is proven as
 *              api/documents/committed.h says. A difference is
 *              CAIRN_CORRUPT naming run, step, shard, byte range, expected and found, after the
 *              bytes were read once more over another connection (S17).
 *          P4  after 5 s of waiting for a store a line on standard error says so.
 *          P14  what belongs to the version and is missing or wrong is CAIRN_CORRUPT. Whole shards
 *              need record, manifest and checksums.bin, and nothing else.
 *          Q29 through the server: the version is leased from open to release.
 * Limits:  manifests 64 MiB.
 * Threads: immutable after open; each reader has one owner.
 * Next:    cli/fetch.h reads whole versions in parallel.
 */
#pragma once

#include "api/documents/committed.h"
#include "cli/held.h"
#include "cli/ref.h"
#include "cli/verb.h"
#include "store/range.h"

struct cairn_cli_source {
    const struct cairn_cli *cli;
    struct cairn_store *store; /* NULL: through the server */
    struct cairn_committed version;
    struct cairn_store_tags *tags; /* by shard; with a store only */
    struct cairn_cli_held *held;   /* the lease; with a server only */
};
/* Which version is meant; with --store cli/history.h says so. No document is read yet, so one of
 * which some are damaged is found, too. */
enum cairn_code cairn_cli_source_find(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                      struct cairn_cli_source *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* What is needed to read its shards; what was read already stays. */
enum cairn_code cairn_cli_source_load(struct cairn_cli_source *source,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The layout, which names tensors; of a version without one nothing. */
enum cairn_code cairn_cli_source_load_layout(struct cairn_cli_source *source,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Find and load: a version that can be read. */
enum cairn_code cairn_cli_source_open(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                      struct cairn_cli_source *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_source_release(struct cairn_cli_source *source);
/* work() on the version that the command's first argument names, opened as by `open` (_find or
 * _open), and released after it. */
enum cairn_code cairn_cli_source_use(
    const struct cairn_cli *cli,
    enum cairn_code (*open)(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                            struct cairn_cli_source *ret, struct cairn_error *err),
    enum cairn_code (*work)(struct cairn_cli_source *source, struct cairn_error *err),
    struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_cli_reader; /* one connection or store worker */
enum cairn_code cairn_cli_reader_new(const struct cairn_cli_source *source,
                                     struct cairn_cli_reader **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_reader_free(struct cairn_cli_reader *reader);
CAIRN_DEFINE_AUTO_PTR(cli_reader);
/* offset and size on block borders (size may end at the shard's end). Verified. */
enum cairn_code cairn_cli_read(struct cairn_cli_reader *reader,
                               const struct cairn_manifest_shard *shard, uint64_t offset,
                               void *into, size_t size, struct cairn_error *err) CAIRN_MUST_USE;
/* Length of the stored object, without reading it (HEAD). */
enum cairn_code cairn_cli_stat(struct cairn_cli_reader *reader,
                               const struct cairn_manifest_shard *shard, uint64_t *ret_bytes,
                               struct cairn_error *err) CAIRN_MUST_USE;
