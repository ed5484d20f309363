/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir: a folder as a store.
 *
 * Why:     a checkpoint on a file system looks like one in S3 to the code above.
 * Promise: 1 to 6 of store/store.h.
 * Limits:  as store/dir/inside.h.
 * Threads: as store/store.h.
 * Next:    store/dir/inside.h, store/README.md.
 */
#pragma once

#include "store/store.h"

enum cairn_code cairn_store_dir_open(const struct cairn_store_options *options, const char *path,
                                     struct cairn_store **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
