/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: copies, and what the files of this room share.
 *
 * Why:     describing, giving, keeping and sending a save all use one description.
 * Promise: 1   a listed copy has a checked description, enough to send present bytes.
 * Limits:  see uploader/partner/partner.h.
 * Threads: copies, but for fixed fields: uploader_state. Bytes: the request that claimed them.
 * Next:    partner.c (life, giving), keep.c (copies of others).
 */
#pragma once

#include "api/wire/messages.h"
#include "uploader/partner/partner.h"
#include "uploader/port/ask.h"
#include "uploader/port/port.h"
#include "uploader/saves/slabs.h"

#define CAIRN_UP_COPY_PATH "/v1/copies/"
#define CAIRN_UP_COPY_BYTES_MAX (UINT64_C(1) << 50) /* of one copy; keeps sums in range */

struct cairn_up_copy_shard {          /* fixed */
    struct cairn_msg_copy_shard told; /* in the description */
    uint64_t offset;                  /* in the copy's data */
    struct cairn_buf blocks_le;
    uint64_t first_piece;
};
enum cairn_up_piece_state { CAIRN_UP_PIECE_MISSING, CAIRN_UP_PIECE_COMES, CAIRN_UP_PIECE_THERE };
struct cairn_up_copy {
    struct cairn_up_copy *next;
    /* fixed */
    struct cairn_version_id version;
    uint64_t step;
    uint32_t n, rank;
    char node[CAIRN_NAME_BYTES_MAX + 1]; /* the node that owns the save */
    char digest[2 * CAIRN_SHA256_BYTES + 1];
    json_t *head;               /* owned */
    struct cairn_msg_copy told; /* in head */
    struct cairn_buf table;
    struct cairn_up_copy_shard *shards;
    size_t shard_count;
    uint64_t reserved_bytes; /* of partner_memory */
    uint8_t *data;
    uint64_t data_bytes;
    /* locked by uploader_state */
    struct cairn_up_attempt *attempt; /* one use of it; NULL: over, kept for restores */
    struct cairn_up_kept *kept;       /* set once whole, if there is a memory tier */
    uint8_t *pieces;                  /* enum cairn_up_piece_state of each piece */
    uint64_t piece_count, missing;
    uint64_t heard_ms; /* mono clock: last request of its node */
    uint32_t users;    /* requests writing into it */
    bool over;         /* not to be sent: freed once unused and unread */
    uint64_t entry;    /* of the save that sends it; 0: none */
};
struct cairn_up_partner {
    struct cairn_up *up;
    uint64_t reserved_bytes; /* of the budget */
    struct cairn_up_thread thread;
    uint8_t *buffer;        /* the giving thread's, one piece */
    struct cairn_late late; /* the giving thread's, of up->partner_work */
    struct cairn_lock lock; /* uploader_partner */
    struct cairn_condition changed;
    struct {
        bool stopping;
        bool answered;                    /* to the giving thread's request */
        struct cairn_log_limit log_limit; /* for refusals to other nodes */
    } locked;
    /* locked by uploader_state */
    struct cairn_up_copy *copies;
    uint64_t free_bytes;
};

void cairn_up_copies_serve(struct cairn_up_call *call, void *partner);
struct cairn_up_copy *cairn_up_copy_find_locked(struct cairn_up_partner *partner,
                                                const char *version, uint32_t rank);
void cairn_up_copies_sweep_locked(struct cairn_up_partner *partner);

enum cairn_code cairn_up_copy_finish_locked(struct cairn_up *up, struct cairn_up_copy *copy,
                                            struct cairn_error *err) CAIRN_MUST_USE;
