/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mutate: feed a parser with damaged copies of something good.
 *
 * Why:     every parser takes bytes from outside; none may crash or read outside for any of them.
 * Promise: each copy lies in a heap block of exactly its size, so that the address sanitizer sees
 *          the first byte that is read too much.
 * Limits:  inputs of a few KiB.
 * Threads: main thread only.
 * Next:    tests/api/test_table.c.
 */
#pragma once

#include "api/documents/digest.h"
#include "api/table/dtype.h"
#include "common/base.h"
#include "tests/harness.h"

/* Judge one input; called once for each damaged copy. */
typedef void cairn_mutate_judge(struct cairn_view input, void *context);
/* The input cut at each byte, 0 to its size - 1. */
void cairn_mutate_cut(struct cairn_view good, cairn_mutate_judge *judge, void *context);
/* `count` copies with 1 to 4 changes each: bits, bytes, words, insertions, deletions, copies. */
void cairn_mutate_many(struct cairn_view good, uint32_t count, cairn_mutate_judge *judge,
                       void *context);
