/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest: the SHA-256 digests of keys, tables and layouts.
 *
 * Why:     libcairn needs keys and tables but has no SHA-256, so these functions stand apart.
 * Promise: 1   a version's id is a pure function of its origin.
 *          2   a layout's digest is the SHA-256 over the (rank u32 LE, table digest) pairs by rank.
 * Limits:  none of its own.
 * Threads: stateless.
 * Next:    api/documents/keys.h, api/table/table.h; docs/format.md.
 */
#pragma once

#include "api/documents/keys.h"

void cairn_version_id_make(const struct cairn_version_origin *origin, struct cairn_version_id *ret);

/* Key of a rank's probe: below a version id that no save has, since n counts from 1. A probe left
 * behind is collected as an orphan. */
void cairn_probe_key(const struct cairn_run_name *name, uint64_t attempt, const char *nonce,
                     uint32_t rank, struct cairn_key *ret);

void cairn_table_digest(struct cairn_view bytes, uint8_t ret_digest[32]);

void cairn_layout_digest(const uint32_t *ranks, const uint8_t (*digests)[32], size_t count,
                         uint8_t ret_digest[32]); /* ranks ascending */
