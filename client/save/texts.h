/* SPDX-License-Identifier: Apache-2.0 */
/*
 * texts: the names of many pieces, in few pieces of memory.
 *
 * Why:     a job describes 100,000 pieces while training stands still; to allocate and to free each
 *          of their names takes longer than all that is checked of them.
 * Promise: 1   what was kept stays where it is until `release`.
 * Limits:  a kept piece of memory is aligned to 8 bytes.
 * Threads: one owner.
 * Next:    client/save/pieces.c, client/save/known.c.
 */
#pragma once

#include "common/base.h"

struct cairn_client_texts {
    struct cairn_client_text *newest; /* a chunk; NULL: none */
};
/* A copy; NULL: there is no memory. */
char *cairn_client_texts_keep(struct cairn_client_texts *texts, const char *text);
void *cairn_client_texts_keep_bytes(struct cairn_client_texts *texts, const void *data,
                                    size_t bytes);
void cairn_client_texts_release(struct cairn_client_texts *texts);
