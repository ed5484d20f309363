/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text: parsing and printing of numbers, sizes and times; UTF-8, encodings of bytes, and URLs.
 *
 * Why:     settings, the API and the cli accept and print the same forms; names come from trainers
 *          and messages from stores, but JSON takes valid UTF-8 only; keys and bodies are sent to
 *          the host of a URL, so only one function decides where it ends.
 * Promise: 1   parsers accept the whole text or nothing: no sign, space or tail is ignored.
 *          2   overflow is an error, never a wrap.
 *          3   a valid text stays valid when it is shortened, and a shortened name keeps its
 *              beginning and its end, with "..." between.
 *          4   decoders refuse what the encoder would not have written (wrong alphabet, wrong
 *              padding, upper-case hex, %2f for an unreserved byte is accepted, bad % is not).
 *          5   a host ends at the first '/', '?' or '#'; it includes "user@", so that a caller who
 *              allows no user sees the '@'. Without scheme or host there is no URL.
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
/* "1 rank", "2 ranks"; use within a printf's arguments, like cairn_short. */
struct cairn_counted {
    char text[48];
};
struct cairn_counted cairn_counted(uint64_t count, const char *thing);
/* "0.1", "1e23": the fewest digits that read back as the same number; use like cairn_counted. */
struct cairn_real {
    char text[40]; /* the compiler's upper bound for a number of 17 digits */
};
struct cairn_real cairn_real(double value);
bool cairn_text_starts(const char *text, const char *start);
/* Longer than end, and ends with it; uncased: in whatever case. */
bool cairn_text_ends(const char *text, const char *end);
bool cairn_text_ends_uncased(const char *text, const char *end);
/* Text without leading blanks and tabs and trailing blanks, tabs and line ends. */
struct cairn_view cairn_text_trimmed(struct cairn_view text);
/* The same in place: returns the first byte left and puts a NUL after the last. */
char *cairn_text_trim(char *text);
/* Copies, cutting at the border of a character; false if it was cut. */
bool cairn_text_copy(char *to, size_t capacity, const char *from);

/* ---- UTF-8 ---- */

/* Size of the well-formed character at `at`, of at most left bytes; 0: malformed. */
size_t cairn_utf8_size(const char *at, size_t left);
bool cairn_utf8_valid(struct cairn_view text);
/* The last border of a character at or before byte `at` of text. */
size_t cairn_utf8_border(const char *text, size_t at);
/* Copies into capacity bytes, replacing the middle by "..." if needed. from and to differ. */
void cairn_utf8_shorten(char *to, size_t capacity, const char *from);

/* A shortened name for a message; cairn_short(name).text lives until the end of the expression. */
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
/* Value of a digit of either case; -1: not a digit. */
int cairn_hex_digit(char digit);
enum cairn_code cairn_base64_encode(struct cairn_view data, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_base64_decode(struct cairn_view text, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Percent-encode all but A-Za-z0-9-._~ ; '/' too unless keep_slash. RFC 3986, upper-case hex. */
enum cairn_code cairn_percent_encode(struct cairn_view text, bool keep_slash, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Byte encoded by the escape at text[at], a '%'; -1: malformed. */
int cairn_percent_byte(struct cairn_view text, size_t at);
/* Refuses bad escapes, and NUL bytes in the result. '+' stays '+'. */
enum cairn_code cairn_percent_decode(struct cairn_view text, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- URLs: views into the text ---- */

struct cairn_url {
    struct cairn_view scheme; /* "https" */
    struct cairn_view host;   /* with port, and with "user@" if given */
    struct cairn_view origin; /* scheme://host */
    const char *path;         /* what follows the host, with query and fragment; may be "" */
};
bool cairn_url_split(const char *url, struct cairn_url *ret);
/* Also false unless the scheme is http or https. */
bool cairn_url_split_http(const char *url, struct cairn_url *ret);
bool cairn_url_is(const struct cairn_url *url, const char *scheme);
/* The host without a default port of http or https, as in a Host header. */
struct cairn_view cairn_url_host(const struct cairn_url *url);
