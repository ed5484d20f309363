/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrange: where every byte of one rank's save will stand, before any is copied.
 *
 * Why:     header, rank table and offsets depend on the descriptions alone; so the copy goes
 *          straight to its final place and the uploader can send parts while later ones are staged.
 * Promise: 1   shards lie in the slab in ascending offsets, each at a multiple of 4 KiB; the
 *              tensors shard comes first and is a valid safetensors file.
 *          2   the same descriptions give the same table and header, in whatever order they came.
 *          3   pieces of one name agree about dtype, shape and kind, or it fails and names it.
 * Limits:  as formats/safetensors.h and api/table.h.
 * Threads: stateless; an arrangement belongs to its caller.
 * Next:    client/save/stage.c.
 */
#pragma once

#include "client/save/save.h"

struct cairn_client_run { /* bytes that go into a shard, in the order of their offsets */
    const void *source;
    uint64_t offset, bytes;           /* in the shard */
    struct cairn_client_piece *piece; /* NULL: header or raw bytes */
};
struct cairn_client_shard {
    const char *name; /* borrowed from the save, or tensors_name */
    bool tensors;
    uint64_t offset, bytes; /* in the slab */
    size_t first_run, run_count;
};
struct cairn_client_arrangement {
    char tensors_name[32]; /* "rank-00003.safetensors" */
    struct cairn_buf header;
    struct cairn_buf table;             /* empty: the rank has no tensors */
    struct cairn_client_shard *shards;  /* staged ones only; owned */
    struct cairn_client_run *runs;      /* owned */
    struct cairn_client_piece **sorted; /* all pieces by name, then place; owned */
    size_t shard_count, run_count;
    uint64_t slab_bytes;  /* end of the last shard */
    uint64_t total_bytes; /* staged shards and files together */
};
void cairn_client_arrangement_release(struct cairn_client_arrangement *arrangement);
/* The result points into the save's pieces. */
enum cairn_code cairn_client_arrange(struct cairn_save *save, uint32_t rank,
                                     struct cairn_client_arrangement *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
