/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode: hexadecimal, base64 and percent-encoding, strict in what they take back.
 *
 * Why:     digests, grants, block checksums and keys all travel as text.
 * Promise: 1   decoders refuse what the encoder would not have written (wrong alphabet, wrong
 *              padding, upper-case hex, %2f for an unreserved byte is accepted, bad % is not).
 * Limits:  callers size fixed outputs; growable ones are bounded by their buf.
 * Threads: stateless.
 * Next:    common/hash.h.
 */
#pragma once

#include "common/buf.h"
#include "common/utf8.h"

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
