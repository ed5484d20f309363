/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what recover.c collects and build.c makes saves of.
 *
 * Why:     reading records and judging what they come to are different work.
 * Promise: 1   an entry with a record that cannot be read is kept, with the reason (`bad`), so
 *              that the server hears of its save.
 * Limits:  see uploader/recover/recover.h.
 * Threads: one owner, before any thread runs.
 * Next:    uploader/recover/recover.c, uploader/recover/build.c.
 */
#pragma once

#include "api/documents/keys.h"
#include "store/store.h"
#include "uploader/recover/recover.h"

struct cairn_up_past_shard {
    char *name; /* owned */
    bool tensors, is_file;
    uint64_t offset, bytes;
    bool intent, durable;
    char token[CAIRN_UUID_TEXT_BYTES];
    uint64_t part_bytes;
    char *upload_id;                /* owned; NULL: none */
    uint32_t *blocks;               /* owned; NULL: unknown */
    struct cairn_store_part *parts; /* owned: acknowledged under upload_id */
    size_t part_count, part_capacity;
};
/* One live entry. */
struct cairn_up_past {
    struct cairn_up_past *next;
    uint64_t entry;
    json_t *begin, *session, *seal, *fail; /* owned; NULL: no such record */
    char table_hex[65];                    /* of an entry of a table; "" */
    uint64_t device, inode, slab_bytes;    /* of stage; slab_bytes 0: none */
    uint64_t owner;                        /* of stage; 0: an older journal's */
    char partner[CAIRN_NAME_BYTES_MAX + 1]; /* the node that has all of it, too; "" */
    struct cairn_up_past_shard *shards;    /* owned */
    size_t shard_count, shard_capacity, stage_first;
    struct cairn_buf table; /* of the entry of one, or of an older journal's seal */
    struct cairn_error bad; /* the first record that could not be read, or CAIRN_OK */
    bool damaged;           /* it is that records are lost where the journal is damaged */
};
struct cairn_up_recovery {
    struct cairn_up_past *first, **last;
};
