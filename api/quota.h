/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota: how a quota, and a save that does not fit into one, are put into words.
 *
 * Why:     why a save was refused is a row's text, the same for every rank and for ever; the
 *          numbers in it are members of the problem as well.
 * Promise: 1   what cairn_quota_excess_text wrote is read again as the same numbers, and no other
 *              text is.
 * Limits:  none of its own.
 * Threads: stateless; structs belong to their caller.
 * Next:    server/ledger/policies.h.
 */
#pragma once

#include "common/json.h"

#define CAIRN_QUOTA_NONE UINT64_MAX /* no bound; as CAIRN_MESSAGE_NONE */
#define CAIRN_QUOTA_MAX ((uint64_t)INT64_MAX)

/* What there was no room for. asked: of versions 1; of bytes 0, since a save says how large it is
 * as its ranks seal. */
struct cairn_quota_excess {
    const char *resource; /* "versions" or "bytes" */
    uint64_t limit, used, asked;
};
void cairn_quota_excess_text(const struct cairn_quota_excess *excess, const char *project,
                             char *ret, size_t capacity);
bool cairn_quota_excess_read(const char *text, struct cairn_quota_excess *ret);
/* The numbers as members "resource", "limit", "used" and "asked". */
bool cairn_quota_excess_put(json_t *object,
                            const struct cairn_quota_excess *excess) CAIRN_MUST_USE;
/* "10 versions, 4096 bytes"; "no bound". */
void cairn_quota_text(uint64_t versions, uint64_t bytes, char *ret, size_t capacity);
