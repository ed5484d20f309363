/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8: which bytes are text, and how a name is made shorter without breaking a character.
 *
 * Why:     names come from trainers and messages from stores; JSON takes valid UTF-8 only, so one
 *          character cut in half makes a whole message impossible to send.
 * Promise: 1   a text that was valid stays valid when it is shortened.
 *          2   a shortened name keeps its beginning and its end, with "..." between.
 * Limits:  none.
 * Threads: stateless.
 * Next:    common/error.h for messages.
 */
#pragma once

#include "common/base.h"

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
