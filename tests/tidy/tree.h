/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree: every file of the source tree that somebody wrote, one after the other.
 *
 * Why:     the rules about one file and those about names that stand once in the whole tree
 *          read the same files.
 * Promise: 1  build results, hidden folders and what interpreters leave are not visited.
 *          2  a file that goes away meanwhile is left out. The tree is read once a program.
 * Limits:  paths of 1,023 bytes.
 * Threads: main thread only.
 * Next:    tests/tidy/rules.h for what is looked for.
 */
#pragma once

#include "tests/harness.h"
#include "tests/tidy/rules.h"

enum cairn_tidy_kind {
    CAIRN_TIDY_SOURCE = 1,
    CAIRN_TIDY_HEADER = 2,
    CAIRN_TIDY_TABLE = 4,
    CAIRN_TIDY_PYTHON = 8,
    CAIRN_TIDY_OTHER = 16,
    CAIRN_TIDY_CODE = CAIRN_TIDY_SOURCE | CAIRN_TIDY_HEADER,
    CAIRN_TIDY_ALL = 31
};

/* Calls visit for each file of these kinds; the file stays until the program ends. */
void cairn_tidy_walk(unsigned kinds, void (*visit)(void *owner, const struct cairn_tidy_file *file),
                     void *owner);
