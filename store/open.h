/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open: opens a store by its URL; parses the setting `stores`; reads and writes a store's record.
 *
 * Why:     a store's URL alone determines its kind, and server and uploader must derive the same
 *          stores from the same text. The server compares a store's record with its catalog, an
 *          uploader with its grants (Q55): both must agree on records and damage.
 * Promise: 1   a scheme of store/schemes.def that is not registered is CAIRN_UNSUPPORTED.
 *          2   main is one of `stores`: at its place in the text, else the first.
 *          3   a record is returned on CAIRN_OK only. An invalid object (empty, too large,
 *              truncated, another kind) is CAIRN_CORRUPT, a later format CAIRN_UNSUPPORTED, an
 *              absent object CAIRN_NOT_FOUND. One put writes a record whole.
 * Limits:  URLs of 1,023 bytes; in S3 1,000. CAIRN_STORES_MAX with main. Records of 1 MiB.
 * Threads: register before the first open; open from any thread; stores are immutable after parse.
 * Next:    store/s3/start.h (a daemon's start); server/guard/identity.c, server/guard/stores.h,
 *          uploader/send/send.c; docs/tiers.md, docs/format.md.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "common/error.h"
#include "store/store.h"

enum cairn_store_scheme {
#define SCHEME(name, beginning, folder, shown) CAIRN_STORE_SCHEME_##name,
#include "store/schemes.def"
#undef SCHEME
    CAIRN_STORE_SCHEME_COUNT
};
/* Registers the opener of a scheme other than folders (store_s3, which needs curl and expat),
 * before the first open. An unregistered scheme is CAIRN_UNSUPPORTED. */
void cairn_store_register(enum cairn_store_scheme scheme,
                          enum cairn_code (*open)(const struct cairn_store_options *options,
                                                  struct cairn_store **ret,
                                                  struct cairn_error *err));
/* The path of the folder in a URL; CAIRN_UNSUPPORTED: the URL names no folder. */
enum cairn_code cairn_store_folder_of(const char *url, struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_open(const struct cairn_store_options *options,
                                 struct cairn_store **ret, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- further stores by name, in the order of reading ---- */

#define CAIRN_STORES_MAX 8
#define CAIRN_STORE_MAIN "main"

struct cairn_stores {
    struct {
        char name[CAIRN_STORE_NAME_BYTES];
        char *url; /* owned; NULL for main, which has a setting of its own */
    } items[CAIRN_STORES_MAX];
    size_t count, main; /* main: index of the main store */
};
/* Parses "NAME=URL" items separated by commas; "main" alone sets the main store's place in the
 * order. A comma within a URL's options is written %2C. */
enum cairn_code cairn_stores_parse(const char *text, struct cairn_stores *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_stores_release(struct cairn_stores *stores);

/* ---- .cairn/store.json ---- */

/* deadline_ms: mono clock; 0: the store's own default for each request. */
enum cairn_code cairn_store_record_get(struct cairn_store_worker *worker, uint64_t deadline_ms,
                                       struct cairn_store_record *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* create: CAIRN_PRECONDITION if a record exists; otherwise it is replaced, as each sweep does
 * before it deletes (cairn_store_put_to_free). */
enum cairn_code cairn_store_record_put(struct cairn_store_worker *worker,
                                       const struct cairn_store_record *record, bool create,
                                       struct cairn_error *err) CAIRN_MUST_USE;
