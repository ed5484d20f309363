/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open: what a URL names, and who opens it.
 *
 * Why:     nobody above asks what kind a store is, so its kind is told by its URL alone.
 * Promise: 1   a scheme of store/schemes.def that nobody registered is CAIRN_UNSUPPORTED.
 * Limits:  URLs of 1,023 bytes; in S3 1,000.
 * Threads: register before the first open; open from any thread.
 * Next:    store/start.h for how a daemon comes to its store.
 */
#pragma once

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
