/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time: the two forms of time that S3 answers with.
 *
 * Why:     a store's own clock decides how old a forgotten object is and how far ours is off;
 *          both come as text.
 * Promise: 1   the whole text is understood or it is refused, and so is a day that no month has.
 *          2   cairn_s3_time_any takes what stores write beside the standard: another zone, none, a
 *              blank for the T, HTTP's forms; a year before 1970 is no time.
 * Limits:  years 1970 to 9999; fractions of a second beyond ms are cut; else UTC only.
 * Threads: stateless.
 * Next:    store/s3/s3.h.
 */
#pragma once

#include "common/error.h"

/* "2026-11-20T08:00:00.000Z" or "...+00:00" */
enum cairn_code cairn_s3_time_iso(const char *text, int64_t *ret_wall_ms,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* "Fri, 24 May 2013 00:00:00 GMT", and the two older forms that RFC 9110 wants understood. */
enum cairn_code cairn_s3_time_http(const char *text, int64_t *ret_wall_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* false: no time is meant, or none that is understood. */
bool cairn_s3_time_any(const char *text, int64_t *ret_wall_ms);
