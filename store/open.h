/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open: what a URL names, and who opens it; the setting `stores`; the record that names a store.
 *
 * Why:     nobody above asks what kind a store is, so its kind is told by its URL alone. Server and
 *          uploader must mean the same stores by the same text. The server compares a store's
 *          record with its catalog, an uploader with its grants (Q55): both must take the same
 *          bytes for the same store, and the same damage for damage.
 * Promise: 1   a scheme of store/schemes.def that nobody registered is CAIRN_UNSUPPORTED.
 *          2   main is one of `stores`: where the text says, else the first.
 *          3   a record is read on CAIRN_OK alone. An object that is there and is no such record
 *              (empty, too large, cut off, another kind) is CAIRN_CORRUPT; one of a later format is
 *              CAIRN_UNSUPPORTED; CAIRN_NOT_FOUND means that no object is there. No reader sees
 *              half a record: put is one request.
 * Limits:  URLs of 1,023 bytes; in S3 1,000. CAIRN_STORES_MAX with main. Records of 1 MiB.
 * Threads: register before the first open; open from any thread; stores are immutable after parse.
 * Next:    store/s3/start.h for how a daemon comes to its store; server/guard/identity.c,
 *          server/guard/stores.h, uploader/send/send.c; docs/tiers.md, docs/format.md.
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
/* A scheme that is no folder is opened by a part of its own (store_s3, which needs curl and expat).
 * A program that links it says so once, before the first open; without that such a URL is
 * CAIRN_UNSUPPORTED. */
void cairn_store_register(enum cairn_store_scheme scheme,
                          enum cairn_code (*open)(const struct cairn_store_options *options,
                                                  struct cairn_store **ret,
                                                  struct cairn_error *err));
/* The path of the folder that a URL names; CAIRN_UNSUPPORTED: it names none. */
enum cairn_code cairn_store_folder_of(const char *url, struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_open(const struct cairn_store_options *options,
                                 struct cairn_store **ret, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- further stores by name, in the order in which they are read ---- */

#define CAIRN_STORES_MAX 8
#define CAIRN_STORE_MAIN "main"

struct cairn_stores {
    struct {
        char name[CAIRN_STORE_NAME_BYTES];
        char *url; /* owned; NULL: main's, which is a setting of its own */
    } items[CAIRN_STORES_MAX];
    size_t count, main; /* main: its index */
};
/* "NAME=URL", with commas between; "main" alone says where the main store stands in the order. A
 * URL holds no comma: within the options of one in S3 it is %2C. */
enum cairn_code cairn_stores_parse(const char *text, struct cairn_stores *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_stores_release(struct cairn_stores *stores);

/* ---- .cairn/store.json ---- */

/* deadline_ms: mono clock; 0: the store's own default for each request. */
enum cairn_code cairn_store_record_get(struct cairn_store_worker *worker, uint64_t deadline_ms,
                                       struct cairn_store_record *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* create: CAIRN_PRECONDITION where another is there; else it is replaced. */
enum cairn_code cairn_store_record_put(struct cairn_store_worker *worker,
                                       const struct cairn_store_record *record, bool create,
                                       struct cairn_error *err) CAIRN_MUST_USE;
