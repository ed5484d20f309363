/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool: buffers for the bytes of files.
 *
 * Why:     a file may be larger than the memory budget, and is sent part by part.
 * Promise: 1   all buffers are reserved in the budget at start; none is made later.
 * Limits:  two buffers a sender, a quarter of the budget at most.
 * Threads: take and give: locked by upload_queue; the rest before and after all threads.
 * Next:    uploader/send/source.c fills them.
 */
#pragma once

#include "uploader/up.h"

struct cairn_up_buffer {
    struct cairn_up_buffer *next;
    uint8_t *data;
    uint32_t users; /* pieces of it that are in use: a part, or each of several small files */
};
struct cairn_up_pool {
    uint8_t *data;
    uint64_t bytes, buffer_bytes; /* bytes: reserved in the budget */
    struct cairn_up_buffer *buffers;
    size_t buffer_count;
    struct cairn_up_buffer *free;
};
enum cairn_code cairn_up_pool_init(struct cairn_up_pool *pool, struct cairn_up *up,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_pool_release(struct cairn_up_pool *pool, struct cairn_up *up);
/* With the lock held; NULL: all are in use. It has one user; give takes one away, and with the last
 * one the buffer is free. */
struct cairn_up_buffer *cairn_up_pool_take(struct cairn_up_pool *pool);
void cairn_up_pool_give(struct cairn_up_pool *pool, struct cairn_up_buffer *buffer);
