/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named: the setting `stores`: further stores by name, in the order in which they are read.
 *
 * Why:     server and uploader must mean the same stores by the same text.
 * Promise: 1   main is one of them: where the text says, else the first.
 * Limits:  CAIRN_STORES_MAX with main.
 * Threads: immutable after parse.
 * Next:    server/guard/tiers.h, uploader/fetch/fetch.h; docs/tiers.md.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/error.h"

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
