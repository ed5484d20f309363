/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunks: memory for blocks that are being served, kept for a moment for the next read.
 *
 * Why:     a restore through the server is one request after another; memory that each of them
 *          takes from the kernel and gives back is cleared each time, which cost the server a third
 *          of its time.
 * Promise: 1   chunks in use and idle ones together are never more than the capacity because of an
 *              idle one: what is given back beyond it goes to the system.
 *          2   an idle chunk that was not needed between two looks goes to the system, so a server
 *              that serves nothing holds none.
 * Limits:  16 idle chunks.
 * Threads: any; a caller may hold the lock of read slots.
 * Next:    server/reads/stream.c, server/http/conns.c (who looks), common/pages.h.
 */
#pragma once

#include "common/error.h"

struct cairn_srv_chunks;
enum cairn_code cairn_srv_chunks_new(size_t bytes, size_t capacity, struct cairn_srv_chunks **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_chunks_free(struct cairn_srv_chunks *chunks); /* NULL is fine; none is in use */
/* NULL: no memory. What it holds is not zeros but what another read has left. */
void *cairn_srv_chunks_take(struct cairn_srv_chunks *chunks) CAIRN_MUST_USE;
void cairn_srv_chunks_give(struct cairn_srv_chunks *chunks, void *data);
/* To be called now and then. */
void cairn_srv_chunks_look(struct cairn_srv_chunks *chunks);
/* For tests and whoever asks: how many lie idle. */
size_t cairn_srv_chunks_idle(struct cairn_srv_chunks *chunks);
