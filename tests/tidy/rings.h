/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rings: sources that call each other in a ring.
 *
 * Why:     of a dozen sources that all reach each other none can be read, tested or replaced alone,
 *          and includes do not show it: every header looks innocent.
 * Promise: a source has an arrow to each other source that defines a function of a name beginning
 *          with cairn_ that it mentions; sources with a way there and back are one ring. A ring of
 *          up to CAIRN_TIDY_RING_MAX sources is none of this rule's business.
 * Limits:  CAIRN_TIDY_SOURCES_MAX sources. A name that a macro puts together is not seen. Who hands
 *          a function down as a pointer has an arrow to it; who calls the pointer has none.
 * Threads: one owner.
 * Next:    the table of folders in rings.c; test_rings.c.
 */
#pragma once

#include "tests/tidy/rules.h"

#define CAIRN_TIDY_RING_MAX 3
#define CAIRN_TIDY_SOURCES_MAX 1024

struct cairn_tidy_rings;
struct cairn_tidy_rings *cairn_tidy_rings_new(void);
void cairn_tidy_rings_free(struct cairn_tidy_rings *rings);
/* A source of the product; its code is copied. */
void cairn_tidy_rings_add(struct cairn_tidy_rings *rings, const struct cairn_tidy_file *file);
/* How many sources of that folder are in a ring that is too large. */
unsigned cairn_tidy_rings_count(const struct cairn_tidy_rings *rings, const char *folder);
/* Of all sources that were added: rings that are too large. Then the rings can be counted. */
void cairn_tidy_rings_close(struct cairn_tidy_rings *rings);
/* Each folder whose count is not the one of the table, with its rings. */
void cairn_tidy_rings_find(const struct cairn_tidy_rings *rings, struct cairn_buf *found);
