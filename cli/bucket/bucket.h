/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket: finds and reads stored versions, from the server or a store alone; a bucket's objects.
 *
 * Why:     without the server a restore must return the same version as with it, and users must see
 *          what can be restored; checks must not depend on where bytes came from. Inspecting a
 *          bucket must not need a disk of its size.
 * Promise: 1   a store is opened read-only unless `writes` is set; a store.json of another number
 *              is refused, naming it. --timeout bounds each request.
 *          2   latest and a step mean what the server means (Q25): attempts are replayed for
 *              superseded and revived versions, trashed ones are left out. A version id needs only
 *              its own objects. A damaged answer is CAIRN_CORRUPT, never an older version. An
 *              attempt's lost record is read from its copy; if both are lost, standard error says
 *              so and what may be wrong with the answer.
 *          P3  every block returned was compared with checksums.bin, proven as
 *              api/documents/committed.h says. A difference is CAIRN_CORRUPT naming run, step,
 *              shard, byte range, expected and found, after a re-read over a new connection (S17).
 *          P4  after 5 s of waiting for a store, standard error says so.
 *          P14 a missing or wrong document of the version is CAIRN_CORRUPT. Reading whole shards
 *              needs record, manifest and checksums.bin only.
 *          Q29 through the server: the version is leased from open to release.
 *          3   a fetch names every bad shard and returns the first one's code; the sink gets
 *              verified bytes only.
 *          4   lists made from a store have the API's fields; values known only to the catalog are
 *              null; damaged versions are listed as `damaged` with the reason and hide no others.
 *          5   an object costs one HEAD at open, then ranged GETs with If-Match: if it was replaced
 *              or deleted meanwhile, the read is CAIRN_SOURCE_CHANGED naming its URL. Ranges below
 *              32 KiB are widened to 64 KiB, one request reads at most 8 MiB.
 * Limits:  1,000,000 versions and attempts of a run; manifests 64 MiB; a fetch takes workers *
 *          CLI_PIECE_BYTES; 1,048,576 objects below a prefix.
 * Threads: a store's worker has one owner; a source is immutable after open, each reader has one
 *          owner. A fetch starts and joins its threads, which call the sink. Several threads may
 *          read an object's input, each over its own connection.
 * Next:    docs/format.md; cli/bucket/history.c, cli/bucket/source.c.
 */
#pragma once

#include "api/documents/committed.h"
#include "api/documents/records.h"
#include "cli/shell/call.h"
#include "formats/input.h"
#include "store/range.h"
#include "store/store.h"

enum cairn_code cli_store_open(const struct cli *cli, struct cairn_store **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
/* Opens the store at url; writes: for an export's files. */
enum cairn_code cli_store_open_url(const struct cli *cli, const char *url, bool writes,
                                   struct cairn_store **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* After an empty result: CAIRN_UNAVAILABLE if the store is no Cairn store. */
enum cairn_code cli_store_check(struct cairn_store_worker *worker,
                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- which version a reference means ---- */

/* damaged_too: also finds versions with a damaged or missing record or manifest; else these are
 * CAIRN_CORRUPT, or CAIRN_NOT_COMMITTED for a version id without a record. */
enum cairn_code cli_history_find(struct cairn_store_worker *worker, const struct cli_ref *ref,
                                 bool damaged_too, struct cairn_version_place *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* ---- reading a version ---- */

struct cli_source {
    const struct cli *cli;
    struct cairn_store *store; /* NULL: read through the server */
    struct cairn_committed version;
    struct cairn_store_tags *tags; /* indexed by shard; with a store only */
    struct cli_held *held;         /* the lease; with a server only */
};
/* Resolves the reference; with --store by promise 2. Reads no document: damaged versions pass. */
enum cairn_code cli_source_find(const struct cli *cli, const struct cli_ref *ref,
                                struct cli_source *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Reads manifest and checksums, unless they are loaded. */
enum cairn_code cli_source_load(struct cli_source *source, struct cairn_error *err) CAIRN_MUST_USE;
/* Reads the layout, if the version has one. */
enum cairn_code cli_source_load_layout(struct cli_source *source,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Find and load. */
enum cairn_code cli_source_open(const struct cli *cli, const struct cli_ref *ref,
                                struct cli_source *ret, struct cairn_error *err) CAIRN_MUST_USE;
void cli_source_release(struct cli_source *source);
/* Opens the first argument's version by `open` (_find or _open), calls work() and releases it. */
enum cairn_code
cli_source_use(const struct cli *cli,
               enum cairn_code (*open)(const struct cli *cli, const struct cli_ref *ref,
                                       struct cli_source *ret, struct cairn_error *err),
               enum cairn_code (*work)(struct cli_source *source, struct cairn_error *err),
               struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_cli_reader; /* one connection or one store worker */
enum cairn_code cli_reader_new(const struct cli_source *source, struct cairn_cli_reader **ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_reader_free(struct cairn_cli_reader *reader);
CAIRN_DEFINE_AUTO_PTR(cli_reader);
/* Reads verified bytes; offset and size are block-aligned, size may end at the shard's end. */
enum cairn_code cli_read(struct cairn_cli_reader *reader, const struct cairn_manifest_shard *shard,
                         uint64_t offset, void *into, size_t size,
                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- lists made from a store alone ---- */

enum cairn_code cli_stored_runs(const struct cli *cli, uint64_t limit, json_t *items,
                                struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cli_stored_versions(const struct cli *cli, const struct cairn_run_name *name,
                                    uint64_t limit, json_t *items,
                                    struct cairn_error *err) CAIRN_MUST_USE;

struct cli_stored {
    json_t *version, *shards, *tensors; /* owned; shards and tensors are arrays */
};
size_t cli_opaque_count(const json_t *shards);
void cli_stored_release(struct cli_stored *stored);
enum cairn_code cli_stored_version(const struct cli *cli, const struct cli_ref *ref,
                                   struct cli_stored *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- fetch: reads and verifies shards with several threads and a progress meter ---- */

#define CLI_PIECE_BYTES (8 * CAIRN_MIB)

struct cli_fetch {
    const struct cli_source *source;
    const char *verb; /* for the meter: "get llm/7b@1000" */
    bool one_worker;  /* pieces arrive in order; else --workers, or 8 */
    bool stat_only;   /* only compare lengths */
    /* NULL: verify only. */
    enum cairn_code (*sink)(void *owner, uint32_t shard, uint64_t offset, const void *bytes,
                            size_t size, struct cairn_error *err);
    /* NULL, or whether these bytes are already in place; memory: scratch of `size` bytes. */
    bool (*have)(void *owner, uint32_t shard, uint64_t offset, void *memory, size_t size);
    /* NULL, or called once per bad shard, under a lock, from any thread. */
    void (*bad)(void *owner, uint32_t shard, const char *why);
    void *owner;
    /* Set by _choose; owned. Indexes into the manifest. */
    uint32_t *shards;
    size_t shard_count;
    uint64_t total_bytes;
    /* Set by _run. */
    uint64_t bad_shards;
    struct cli_meter meter;
};
/* Chooses the shards for which wants() is true; needs the fields above `shards`. */
enum cairn_code cli_fetch_choose(struct cli_fetch *fetch,
                                 bool (*wants)(const void *owner, uint32_t index,
                                               const struct cairn_manifest_shard *shard),
                                 const void *owner, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cli_fetch_run(struct cli_fetch *fetch, struct cairn_error *err) CAIRN_MUST_USE;
void cli_fetch_release(struct cli_fetch *fetch);

/* ---- objects of a bucket as files ---- */

struct cairn_cli_bucket_source;
struct cli_object {
    struct cairn_input input; /* may be copied; valid as long as the bucket source */
    char etag[128];
};

bool cli_is_bucket(const char *place);
/* url: s3://bucket[/PATH][?OPTIONS], options of store/s3/url.def; sends no request. */
enum cairn_code cli_bucket_source_open(const struct cli *cli, const char *url,
                                       struct cairn_cli_bucket_source **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_bucket_source_free(struct cairn_cli_bucket_source *source);
CAIRN_DEFINE_AUTO_PTR(cli_bucket_source);
/* Last component of the URL's path; "": the URL names a bucket. */
const char *cli_bucket_source_base(const struct cairn_cli_bucket_source *source);
/* name: relative to the URL; "": the object at the URL itself. CAIRN_NOT_FOUND: no such object. */
enum cairn_code cli_bucket_source_object(struct cairn_cli_bucket_source *source, const char *name,
                                         struct cli_object *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Calls each() with the rest of the name of every object below URL + folder ("" or with a final
 * slash), until a call fails. */
enum cairn_code cli_bucket_source_list(struct cairn_cli_bucket_source *source, const char *folder,
                                       enum cairn_code (*each)(void *owner, const char *name,
                                                               struct cairn_error *err),
                                       void *owner, struct cairn_error *err) CAIRN_MUST_USE;
