/* SPDX-License-Identifier: Apache-2.0 */
/*
 * id: random bytes and UUID text.
 *
 * Why:     nonces, upload tokens, node and store ids must never repeat, also not after a fork or
 *          a restored snapshot of a machine: they come from the kernel each time.
 * Promise: 1   cairn_random never returns short or predictable bytes; it aborts when the kernel
 *              has none to give.
 * Limits:  none.
 * Threads: stateless.
 * Next:    api/keys.h for version ids.
 */
#pragma once

#include "common/base.h"

#define CAIRN_UUID_TEXT_BYTES 37 /* 36 and the NUL */

void cairn_random(void *ret_data, size_t size);
/* Version 4, random. */
void cairn_uuid_random(char ret_text[CAIRN_UUID_TEXT_BYTES]);
/* Version 8 from the first 16 bytes of a digest (RFC 9562: our own bits, version and variant set).
 */
void cairn_uuid_from_digest(const uint8_t digest[16], char ret_text[CAIRN_UUID_TEXT_BYTES]);
bool cairn_uuid_text_valid(struct cairn_view text);
