/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page: the pages of this tree, and the blocks in them that a program writes.
 *
 * Why:     a table that people copy from the code by hand is wrong after the second change.
 * Promise: 1   block_check compares what stands between the lines `<!-- begin NAME -->` and
 *              `<!-- end NAME -->` with the text that is given; a difference fails the test and
 *              names the command that writes the page anew.
 *          2   with CAIRN_DOCS_WRITE=1 in the environment it writes that block instead.
 * Limits:  files of 4 MiB; paths of 1,000 bytes.
 * Threads: main thread only.
 * Next:    test_generated.c, test_runbook.c, test_links.c.
 */
#pragma once

#include "common/buf.h"
#include "tests/harness.h"

/* A file of the source tree; false (and a failed check) when it cannot be read. */
bool cairn_docs_load(const char *path, struct cairn_buf *ret);
/* Every regular file below a folder ("" is the root) whose name ends so; hidden ones and build
 * results are left out. Paths are from the root of the tree. */
void cairn_docs_walk(const char *folder, const char *end,
                     void (*visit)(const char *path, void *owner), void *owner);
void cairn_docs_block_check(const char *page, const char *block, struct cairn_view wanted);
/* The text without its generated blocks, same places: their bytes are blanked. */
void cairn_docs_blank_blocks(char *text);
/* Text that is added without a code to look at: running out of memory fails the test. */
void cairn_docs_add(struct cairn_buf *buf, const char *format, ...) CAIRN_PRINTF(2, 3);
