/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket: a store in memory behind store/store.h, with the faults that stores have.
 *
 * Why:     a store that answers late, applies what was given up, loses answers, keeps no tokens or
 *          checks no checksums decides which saves survive; a real one cannot be told to.
 * Promise: 1   a body is read from its sender's memory at two moments of its way and never after
 *              its request was answered, cancelled or its process was killed.
 *          2   what had arrived whole may be applied although its sender is gone.
 *          3   an object that is written again with other bytes, and bytes that change on the way,
 *              are violations; both are told at once.
 * Limits:  OBJECTS_MAX objects; lists are walked.
 * Threads: one (tests/sim/kernel.h).
 * Next:    bucket.c travels, objects.c applies.
 */
#pragma once

#include "store/store.h"
#include "tests/sim/kernel.h"

struct sim_object {
    char *key, token[64];
    uint8_t *bytes;
    uint64_t size;
    uint32_t crc32c;
    int64_t modified_ms;
};
struct sim_part {
    uint8_t *bytes;
    uint64_t size;
    uint32_t number, crc32c;
};
struct sim_upload {
    char *key, id[48], token[64];
    struct sim_part *parts;
    size_t part_count;
    int64_t modified_ms;
};
struct sim_bucket {
    struct sim_object *objects; /* by key */
    size_t object_count, object_capacity;
    struct sim_upload *uploads;
    size_t upload_count, upload_capacity;
    uint64_t upload_last;
    size_t page_entries;
};

#define SIM_BUCKET_NODES 2

/* What the seed does to all stores. */
struct sim_store_faults {
    uint64_t us_min, us_max; /* one way */
    uint64_t record_us_max;  /* on top for committed.json */
    uint64_t head_us_max;    /* on top for HEAD */
    uint32_t lost;           /* per mille: applied, answer lost */
    uint32_t refused;        /* per mille: not applied, and the answer says so */
    uint32_t late;           /* per mille: applied long after its sender has gone */
    uint64_t away_until_us;  /* nothing moves */
    uint64_t node_away_until_us[SIM_BUCKET_NODES]; /* nothing of that node's uploader */
    bool keeps_tokens, checks_crc, create_only, lists_uploads;
};
extern struct sim_store_faults sim_store_faults;
extern struct sim_bucket sim_bucket;       /* everybody's */
extern struct sim_bucket sim_bucket_wrong; /* of a node without the mount */
extern int sim_bucket_wrong_node;          /* -1: none */

const struct sim_object *sim_bucket_find(const struct sim_bucket *bucket, const char *key);

/* What somebody else does to the store, beside all rules. bytes NULL: the object goes. */
void sim_bucket_meddle(const char *key, const void *bytes, uint64_t size);

/* objects.c: what a request does when it arrives; the answer is filled in. */
struct sim_answer {
    enum cairn_code code;
    bool ambiguous;
    char why[160], etag[128], upload_id[64], token[64];
    uint64_t object_bytes;
    bool has_crc32c;
    uint32_t crc32c;
    uint8_t *bytes; /* GET */
    struct cairn_store_part *parts;
    size_t part_count;
    struct cairn_store_listing listing;
};
/* A request as it lies on the wire: nothing of its sender's memory. */
struct sim_sent {
    enum cairn_store_op op;
    char *key, token[64], upload_id[64], etag[128], *page;
    bool create, has_crc32c, up_to;
    uint32_t crc32c, part_number;
    uint64_t offset, length;
    uint8_t *body;
    uint64_t body_bytes;
    struct cairn_store_part *parts;
    size_t part_count;
    char **deletions;
    size_t deletion_count;
};
void sim_bucket_apply(struct sim_bucket *bucket, const struct sim_sent *sent,
                      struct sim_answer *ret);
