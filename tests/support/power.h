/* SPDX-License-Identifier: Apache-2.0 */
/*
 * power: what of a folder would be there after a power cut at this moment.
 *
 * Why:     a store, journal or catalog that never syncs passes every other test; only a power cut
 *          tells, and machines of tests are not unplugged.
 * Promise: 1   an image holds what was synced and nothing else: of a file its bytes at its last
 *              fsync or fdatasync, of a folder its names at its last fsync; after a syncfs of a
 *              folder all below it. Real file systems may keep more, never less.
 *          2   fsync, fdatasync and syncfs of this process are still carried out, but for one that
 *              a test wants to fail.
 *          3   nothing is recorded after the scope that began it: other suites of the process sync
 *              more than this holds.
 * Limits:  files of this process alone; 1,024 files and folders; content of up to 64 MiB each.
 * Threads: fsync and fdatasync may be called by any thread.
 * Next:    tests/store/test_power.c, tests/uploader/test_power.c, tests/server/test_power.c.
 */
#pragma once

#include <stdbool.h>

/* Records until the end of this scope; what was synced before counts as never synced. */
#define POWER_RECORDED()                                                                           \
    __attribute__((cleanup(cairn_power_stop), unused)) int power_recorded = 0;                     \
    cairn_power_start()
void cairn_power_start(void);
void cairn_power_stop(int *recorded);
/* So many syncs pass from now on, then one fails with EIO and syncs nothing, and all later ones
 * pass: as Linux does when it could not write a page. */
void cairn_power_fail_once(unsigned after);
/* The same with another errno. */
void cairn_power_fail_once_with(unsigned after, int os_errno);
/* The folder as a power cut would leave it, copied to a place that is not there yet. */
bool cairn_power_cut(const char *folder, const char *to);
