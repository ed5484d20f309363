/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text: numbers, sizes and times as people write them.
 *
 * Why:     settings, the API and the cli must take and print the same forms.
 * Promise: 1   parsers take the whole text or nothing: no sign, space or tail is ignored.
 *          2   overflow is an error, never a wrap.
 * Limits:  sizes and counts up to 2^63-1.
 * Threads: stateless.
 * Next:    common/config.h.
 */
#pragma once

#include "common/error.h"

enum cairn_code cairn_parse_u64(struct cairn_view text, uint64_t *ret,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* "64MiB", "1.5GiB", "4096"; KiB MiB GiB TiB and KB MB GB TB. */
enum cairn_code cairn_parse_size(struct cairn_view text, uint64_t *ret_bytes,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* "250ms", "30s", "10min", "24h", "7d"; a bare number is refused. */
enum cairn_code cairn_parse_duration(struct cairn_view text, uint64_t *ret_ms,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* "12.1 GiB", "512 B"; ret_text holds 24 bytes. */
void cairn_size_text(uint64_t bytes, char ret_text[24]);
void cairn_size_text_si(uint64_t bytes, char ret_text[24]); /* "1.5 GB", of 10^9 bytes */
/* "0.41s", "2m05s", "3h12m"; ret_text holds 24 bytes. */
void cairn_duration_text(uint64_t ms, char ret_text[24]);
/* "1 rank", "2 ranks": whole within a printf's arguments, as cairn_short. */
struct cairn_counted {
    char text[48];
};
struct cairn_counted cairn_counted(uint64_t count, const char *thing);
/* "0.1", "3", "1e23": in the fewest digits that read back as the same number; used in the same way.
 */
struct cairn_real {
    char text[40]; /* as long as the compiler takes a number of 17 digits to be */
};
struct cairn_real cairn_real(double value);
bool cairn_text_starts(const char *text, const char *start);
/* Without the blanks and tabs in front, and the blanks, tabs and line ends behind. */
struct cairn_view cairn_text_trimmed(struct cairn_view text);
/* The same in place: the first byte that is left; what is behind the last one is cut off. */
char *cairn_text_trim(char *text);
/* Copy; what does not fit is cut off at the border of a character. False when it was cut. */
bool cairn_text_copy(char *to, size_t capacity, const char *from);
