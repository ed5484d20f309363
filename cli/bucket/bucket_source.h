/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket_source: objects of a bucket as the files of a folder, read by ranges.
 *
 * Why:     checkpoints lie in buckets; who looks into one, exports or compares it should not need
 *          a disk of its size first.
 * Promise: 1   an object costs one HEAD when it is opened, then ranges; nothing is written.
 *          2   each range is of the object that was opened (If-Match): one that was replaced or
 *              deleted meanwhile is CAIRN_SOURCE_CHANGED, and its URL is named.
 *          3   ranges of less than 32 KiB are widened to 64 KiB, so that short ranges that follow
 *              each other cost one request; larger ones are read as they are, by 8 MiB at most.
 *          4   memory is 64 KiB and a connection for each thread that reads at a time.
 * Limits:  1,048,576 objects below a prefix; --timeout bounds each request.
 * Threads: one owner opens and lists; inputs may be read by several, each over its own connection.
 * Next:    formats/input.h; cli/convert/weights.c, cli/convert/input.c.
 */
#pragma once

#include "cli/bucket/store.h"
#include "formats/input.h"

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
enum cairn_code cairn_cli_bucket_source_list(
    struct cairn_cli_bucket_source *source, const char *folder,
    enum cairn_code (*each)(void *owner, const char *name, struct cairn_error *err), void *owner,
    struct cairn_error *err) CAIRN_MUST_USE;
