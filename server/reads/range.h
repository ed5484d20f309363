/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range: the one byte range that a request may name.
 *
 * Why:     every server that got Range wrong got it wrong in arithmetic (B06).
 * Promise: B06  exactly one range, "bytes=a-b", "bytes=a-" or "bytes=-n"; several, none that can be
 *               served, and every malformed one are CAIRN_RANGE. Nothing is added before it was
 *               compared.
 * Limits:  objects below 2^62 bytes; longer digit strings count as "to the end".
 * Threads: stateless.
 * Next:    server/reads/reads.c.
 */
#pragma once

#include "common/error.h"

/* [*ret_begin, *ret_end) of an object of size bytes. */
enum cairn_code cairn_srv_range_parse(const char *text, uint64_t size, uint64_t *ret_begin,
                                      uint64_t *ret_end, struct cairn_error *err) CAIRN_MUST_USE;
