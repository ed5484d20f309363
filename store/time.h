/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time: parses the two forms of time in S3 replies.
 *
 * Why:     the store's clock, sent as text, gives an object's age and our clock's skew.
 * Promise: 1   the whole text is understood or refused; a day that its month lacks is refused.
 *          2   cairn_s3_time_any also accepts the non-standard forms of some stores: another zone,
 *              no zone, a blank for the T, HTTP's forms; a year before 1970 is refused.
 * Limits:  years 1970 to 9999; fractions beyond ms are cut; otherwise UTC only.
 * Threads: stateless.
 * Next:    store/s3/s3.h.
 */
#pragma once

#include "common/error.h"

/* "2026-11-20T08:00:00.000Z" or "...+00:00" */
enum cairn_code cairn_s3_time_iso(const char *text, int64_t *ret_wall_ms,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* "Fri, 24 May 2013 00:00:00 GMT", and the two older forms that RFC 9110 requires. */
enum cairn_code cairn_s3_time_http(const char *text, int64_t *ret_wall_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* False: the text is empty or not understood. */
bool cairn_s3_time_any(const char *text, int64_t *ret_wall_ms);
