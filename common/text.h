/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text: numbers, sizes and times as people write them; UTF-8, the encodings of bytes, and URLs.
 *
 * Why:     settings, the API and the cli must take and print the same forms; names come from
 *          trainers and messages from stores, and JSON takes valid UTF-8 only; keys and bodies go
 *          where the host of a URL ends, so one place alone cuts it.
 * Promise: 1   parsers take the whole text or nothing: no sign, space or tail is ignored.
 *          2   overflow is an error, never a wrap.
 *          3   a valid text stays valid when it is shortened, and a shortened name keeps its
 *              beginning and its end, with "..." between.
 *          4   decoders refuse what the encoder would not have written (wrong alphabet, wrong
 *              padding, upper-case hex, %2f for an unreserved byte is accepted, bad % is not).
 *          5   a host ends at the first '/', '?' or '#'; a user before it is kept in it, so that a
 *              caller who allows none sees the '@'. Without scheme or host there is no URL.
 * Limits:  sizes and counts up to 2^63-1; callers size fixed outputs.
 * Threads: stateless.
 * Next:    common/config.h, common/error.h.
 */
#pragma once

#include "common/buf.h"

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

/* ---- UTF-8 ---- */

/* Bytes of the well-formed character that starts at `at`, of at most left bytes; 0: there is none
 * (no surrogates, no overlong forms). */
size_t cairn_utf8_size(const char *at, size_t left);
bool cairn_utf8_valid(struct cairn_view text);
/* The last border of a character at or before byte `at` of text. */
size_t cairn_utf8_border(const char *text, size_t at);
/* Copy into capacity bytes; what does not fit is left out of the middle. from and to differ. */
void cairn_utf8_shorten(char *to, size_t capacity, const char *from);

/* A name for a message: cairn_short(shard->name).text lives until the end of the expression. */
#define CAIRN_SHORT_BYTES 96
struct cairn_short {
    char text[CAIRN_SHORT_BYTES + 1];
};
struct cairn_short cairn_short(const char *name);

/* ---- hexadecimal, base64, percent-encoding ---- */

/* ret_text holds 2 * size + 1 bytes. Lower case. */
void cairn_hex_encode(const void *data, size_t size, char *ret_text);
/* text holds exactly 2 * size lower-case digits. */
enum cairn_code cairn_hex_decode(struct cairn_view text, void *ret_data, size_t size,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Of either case; -1: it is none. */
int cairn_hex_digit(char digit);
enum cairn_code cairn_base64_encode(struct cairn_view data, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_base64_decode(struct cairn_view text, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Percent-encode all but A-Za-z0-9-._~ ; '/' too unless keep_slash. RFC 3986, upper-case hex. */
enum cairn_code cairn_percent_encode(struct cairn_view text, bool keep_slash, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* What the escape at text[at], a '%', stands for; -1: it is none. */
int cairn_percent_byte(struct cairn_view text, size_t at);
/* Refuses bad escapes, and NUL bytes in the result. '+' stays '+'. */
enum cairn_code cairn_percent_decode(struct cairn_view text, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- URLs: parts, nothing copied ---- */

struct cairn_url {
    struct cairn_view scheme; /* "https" */
    struct cairn_view host;   /* with its port, and with a user if one stands there */
    struct cairn_view origin; /* scheme://host */
    const char *path;         /* what follows the host, with query and fragment; may be "" */
};
bool cairn_url_split(const char *url, struct cairn_url *ret);
/* False also where the scheme is neither http nor https. */
bool cairn_url_split_http(const char *url, struct cairn_url *ret);
bool cairn_url_is(const struct cairn_url *url, const char *scheme);
/* The host without the port that http or https has anyway, as it stands in a Host header. */
struct cairn_view cairn_url_host(const struct cairn_url *url);
