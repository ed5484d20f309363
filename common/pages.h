/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages: memory for big transfers, of huge pages where the kernel has them.
 *
 * Why:     a disk takes a request of so many pieces of memory, whatever their size (254 of 4 KiB
 *          are 1 MiB): out of huge pages O_DIRECT reads of 4 MiB had three times the speed on a
 *          virtual disk, and the faults of small pages cost a third of a read through the server.
 * Promise: 1   the memory begins at a huge page's border, and reads as zeros.
 *          2   a kernel that has no huge pages for it gives small ones, silently.
 * Limits:  what is given back goes to the system at once; it is for memory that lives for many
 *          transfers, or for one of MiB.
 * Threads: any.
 * Next:    common/slab.h for memory that is shared.
 */
#pragma once

#include "common/base.h"

#define CAIRN_PAGES_HUGE_BYTES (2 * CAIRN_MIB)

/* NULL: no memory. */
void *cairn_pages_map(size_t bytes) CAIRN_MUST_USE;
void cairn_pages_unmap(void *data, size_t bytes); /* bytes as mapped; NULL is fine */
