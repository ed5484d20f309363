/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket: stored versions, found and read, from the server or from a store alone; objects of a
 *         bucket.
 *
 * Why:     with the server down the same version must come back that the server would give, and one
 *          must see what there is to get back; what is checked may not depend on where bytes came
 *          from. Who looks into a bucket should not need a disk of its size first.
 * Promise: 1   a store is opened to be read, and nothing is written or made, unless `writes` says
 *              so; one whose store.json has another number is refused by name. --timeout bounds
 *              each request.
 *          2   latest and a step mean what the server means (Q25): superseded and revived versions
 *              by replaying the attempts, what is in the trash left out. A version id needs its own
 *              objects alone. Damage of what would be the answer is CAIRN_CORRUPT, never an older
 *              answer. An attempt's record that is lost is read from its copy; where both are lost,
 *              that is said on standard error, with what may be wrong about the answer.
 *          P3  every block that is handed out was compared with checksums.bin, which is proven as
 *              api/documents/committed.h says. A difference is CAIRN_CORRUPT naming run, step,
 *              shard, byte range, expected and found, after the bytes were read once more over
 *              another connection (S17).
 *          P4  after 5 s of waiting for a store a line on standard error says so.
 *          P14 what belongs to the version and is missing or wrong is CAIRN_CORRUPT. Whole shards
 *              need record, manifest and checksums.bin, and nothing else.
 *          Q29 through the server: the version is leased from open to release.
 *          3   of a fetch bad shards are all named, not only the first, whose code is returned; a
 *              shard's bytes are handed to the sink only after they were checked.
 *          4   what a store alone lists has the fields of the API's; what only a catalog knows is
 *              null, what is damaged is listed as `damaged` with the reason and hides nothing else.
 *          5   an object of a bucket costs one HEAD when it is opened, then ranges, each of the
 *              object that was opened (If-Match): one that was replaced or deleted meanwhile is
 *              CAIRN_SOURCE_CHANGED, and its URL is named. Ranges of less than 32 KiB are widened
 *              to 64 KiB; larger ones are read as they are, by 8 MiB at most.
 * Limits:  1,000,000 versions and attempts of a run; manifests 64 MiB; a fetch takes workers *
 *          CAIRN_CLI_PIECE_BYTES; 1,048,576 objects below a prefix.
 * Threads: one owner of a store's worker; a source is immutable after open, each reader has one
 *          owner. A fetch starts its threads and joins them; the sink is called from any. Inputs
 *          of objects may be read by several, each over its own connection.
 * Next:    docs/format.md; cli/bucket/history.c, cli/bucket/source.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "api/documents/records.h"
#include "cli/shell/call.h"
#include "formats/input.h"
#include "store/range.h"
#include "store/store.h"

enum cairn_code cairn_cli_store_open(const struct cairn_cli *cli, struct cairn_store **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* What `url` names; writes: an export's files go there. */
enum cairn_code cairn_cli_store_open_url(const struct cairn_cli *cli, const char *url, bool writes,
                                         struct cairn_store **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* For a store in which nothing was found: CAIRN_UNAVAILABLE where it is none of Cairn's. */
enum cairn_code cairn_cli_store_check(struct cairn_store_worker *worker,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- which version a reference means ---- */

/* damaged_too: also a version whose record or manifest is damaged or missing, to look at it; else
 * that is CAIRN_CORRUPT, or CAIRN_NOT_COMMITTED where a version id has no record. */
enum cairn_code cairn_cli_history_find(struct cairn_store_worker *worker,
                                       const struct cairn_cli_ref *ref, bool damaged_too,
                                       struct cairn_version_place *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* One committed version of a run. */
struct cairn_cli_history_item {
    struct cairn_version_place place;
    struct cairn_record record; /* of a damaged one what is known of it */
    uint64_t bytes;             /* of its shards, as they are listed */
    bool latest, superseded, trashed;
    bool damaged; /* its committed.json is no record of it */
    bool newer;   /* a newer release wrote its committed.json */
};
/* All of them, by attempt, step and n, the highest first; *ret is the caller's to free.
 * CAIRN_NOT_FOUND: there is no such run in the store. *ret_attempt: the newest attempt that the
 * store knows. */
enum cairn_code cairn_cli_history_list(struct cairn_store_worker *worker,
                                       const struct cairn_run_name *name,
                                       struct cairn_cli_history_item **ret, size_t *ret_count,
                                       uint64_t *ret_attempt,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- a version that is read ---- */

struct cairn_cli_source {
    const struct cairn_cli *cli;
    struct cairn_store *store; /* NULL: through the server */
    struct cairn_committed version;
    struct cairn_store_tags *tags; /* by shard; with a store only */
    struct cairn_cli_held *held;   /* the lease; with a server only */
};
/* Which version is meant; with --store cli/bucket/bucket.h says so. No document is read yet, so
 * one of which some are damaged is found, too. */
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

/* ---- runs, checkpoints, shards and tensors as a store alone tells them ---- */

/* Each appends at most `limit` items. */
enum cairn_code cairn_cli_stored_runs(const struct cairn_cli *cli, uint64_t limit, json_t *items,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_stored_versions(const struct cairn_cli *cli,
                                          const struct cairn_run_name *name, uint64_t limit,
                                          json_t *items, struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_cli_stored {
    json_t *version, *shards, *tensors; /* owned; the lists are arrays */
};
/* Of a list of shards, as the server gives it too. */
size_t cairn_cli_opaque_count(const json_t *shards);
void cairn_cli_stored_release(struct cairn_cli_stored *stored);
enum cairn_code cairn_cli_stored_version(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref *ref,
                                         struct cairn_cli_stored *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- every block of some shards, by several threads, with progress ---- */

#define CAIRN_CLI_PIECE_BYTES (8 * CAIRN_MIB)

struct cairn_cli_fetch {
    const struct cairn_cli_source *source;
    const char *verb; /* in the progress: "get llm/7b@1000" */
    bool one_worker;  /* pieces come in their order; else --workers, or 8 */
    bool stat_only;   /* compare lengths, read nothing */
    /* NULL: bytes are only checked. */
    enum cairn_code (*sink)(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                            size_t size, struct cairn_error *err);
    /* NULL, or: are these bytes there already? memory is room for them. */
    bool (*have)(void *owner, uint32_t shard, uint64_t offset, void *memory, size_t size);
    /* NULL, or called once for each bad shard, under a lock, from any thread. */
    void (*bad)(void *owner, uint32_t shard, const char *why);
    void *owner;
    /* By _choose; owned. */
    uint32_t *shards; /* indexes into the manifest */
    size_t shard_count;
    uint64_t total_bytes; /* of these shards */
    /* By _run. */
    uint64_t bad_shards;
    struct cairn_cli_meter meter;
};
/* The shards of which wants() is true; the fields before it are set. */
enum cairn_code cairn_cli_fetch_choose(struct cairn_cli_fetch *fetch,
                                       bool (*wants)(const void *owner, uint32_t index,
                                                     const struct cairn_manifest_shard *shard),
                                       const void *owner, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_fetch_run(struct cairn_cli_fetch *fetch,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_fetch_release(struct cairn_cli_fetch *fetch);

/* ---- objects of a bucket as the files of a folder ---- */

struct cairn_cli_bucket_source;
struct cairn_cli_object {
    struct cairn_input input; /* may be copied; good as long as the bucket's source is */
    char etag[128];
};

bool cairn_cli_is_bucket(const char *place);
/* url: s3://bucket, or s3://bucket/PATH, with the options of store/s3/url.def behind a '?'; what it
 * is, an object or a prefix, is not looked at. */
enum cairn_code cairn_cli_bucket_source_open(const struct cairn_cli *cli, const char *url,
                                             struct cairn_cli_bucket_source **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_bucket_source_free(struct cairn_cli_bucket_source *source);
CAIRN_DEFINE_AUTO_PTR(cli_bucket_source);
/* The last part of the URL's path; "": it names a bucket. */
const char *cairn_cli_bucket_source_base(const struct cairn_cli_bucket_source *source);
/* name: below the URL; "" is the object of just that URL. CAIRN_NOT_FOUND: there is none. */
enum cairn_code cairn_cli_bucket_source_object(struct cairn_cli_bucket_source *source,
                                               const char *name, struct cairn_cli_object *ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
/* Each object whose name below the URL begins with `folder` ("" or with a slash at its end), by the
 * rest of its name, until one call fails. */
enum cairn_code cairn_cli_bucket_source_list(struct cairn_cli_bucket_source *source,
                                             const char *folder,
                                             enum cairn_code (*each)(void *owner, const char *name,
                                                                     struct cairn_error *err),
                                             void *owner, struct cairn_error *err) CAIRN_MUST_USE;
