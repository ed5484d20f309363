/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state: buckets, objects and uploads in memory.
 *
 * Why:     what was applied must be seen exactly, also when its reply was never sent.
 * Promise: 1   an object is a list of the bodies that were received; completing copies nothing.
 *          2   a body that would pass the memory bound is refused before it is received.
 *          3   objects stand in order of bucket and key, uploads of bucket, key and age.
 * Limits:  as the options say; 16 buckets.
 * Threads: the server's lock; a body's and an object's bytes never change once they are stored.
 * Next:    ops.h.
 */
#pragma once

#include "common/buf.h"

struct s3f_body {
    uint8_t *bytes; /* NULL: only length and checksum were kept */
    uint64_t size, mapped;
    uint32_t crc32c;
    char etag[80]; /* without quotes */
    uint8_t md5[16];
    bool has_md5;
    unsigned references;
};
struct s3f_object {
    char *bucket, *key;
    struct s3f_body **bodies;
    size_t body_count;
    uint64_t size;
    uint32_t crc32c;   /* of the whole, always known here */
    char checksum[32]; /* as told: base64, of a composite with "-N"; "" when none was sent */
    const char *checksum_type; /* "FULL_OBJECT" or "COMPOSITE" */
    char etag[80];
    char *metadata; /* header lines */
    char version_id[48];
    int64_t modified_ms;
    unsigned references;
};
struct s3f_part {
    uint32_t number;
    struct s3f_body *body;
    bool has_checksum;
    int64_t modified_ms;
};
struct s3f_upload {
    char id[64];
    char *bucket, *key, *metadata;
    bool checksums;     /* CRC32C was asked for */
    bool checksum_full; /* of the whole object, not of the parts' checksums */
    struct s3f_part *parts;
    size_t part_count, part_capacity;
    int64_t begun_ms;
    bool completed; /* remembered, so that a second Complete can be answered */
    char etag[80];
};
struct s3f_version; /* versions.h */
struct s3f_state {
    struct s3f_object **objects; /* those that a GET finds */
    size_t object_count, object_capacity;
    struct s3f_version **versions;
    size_t version_count, version_capacity;
    struct s3f_upload **uploads;
    size_t upload_count, upload_capacity, completed_count;
    char buckets[16][64];
    size_t bucket_count;
    uint64_t memory_bytes, memory_max;
    uint64_t seed, serial, pages_told;
    int64_t clock_offset_ms;
    struct cairn_buf lifecycle, versioning, object_lock; /* documents; empty: none */
    struct cairn_buf policy; /* what it denies, by the words of README.md; empty: nothing */
    struct cairn_buf hold;   /* glob of keys whose versions are under legal hold; empty: none */
};
void s3f_state_clear(struct s3f_state *state); /* all but buckets, seed and clock */
int64_t s3f_now_ms(const struct s3f_state *state);
bool s3f_has_bucket(const struct s3f_state *state, const char *bucket);

/* NULL when the memory is not there. `keep`: with the bytes. */
struct s3f_body *s3f_body_new(struct s3f_state *state, uint64_t size, bool keep);
void s3f_body_drop(struct s3f_state *state, struct s3f_body *body);

struct s3f_object *s3f_object_new(const char *bucket, const char *key, const char *metadata,
                                  size_t body_count);
void s3f_object_drop(struct s3f_state *state, struct s3f_object *object);
struct s3f_object *s3f_object_find(const struct s3f_state *state, const char *bucket,
                                   const char *key);
/* The first object at or after (bucket, key). */
size_t s3f_object_place(const struct s3f_state *state, const char *bucket, const char *key);
/* What a GET finds from now on; takes a reference. For versions.c alone, as the next. */
void s3f_object_show(struct s3f_state *state, struct s3f_object *take_object);
void s3f_object_hide(struct s3f_state *state, const char *bucket, const char *key);

struct s3f_upload *s3f_upload_new(struct s3f_state *state, const char *bucket, const char *key,
                                  const char *metadata);
/* Also a completed one. */
struct s3f_upload *s3f_upload_find(const struct s3f_state *state, const char *bucket,
                                   const char *key, const char *id);
void s3f_upload_remove(struct s3f_state *state, struct s3f_upload *upload);
/* Its bodies went elsewhere or are dropped here; it stays known by its id for a while. */
void s3f_upload_complete(struct s3f_state *state, struct s3f_upload *upload);
/* Takes the body; replaces an earlier one of that number. */
void s3f_part_store(struct s3f_state *state, struct s3f_upload *upload, uint32_t number,
                    struct s3f_body *take_body, bool has_checksum);
struct s3f_part *s3f_part_find(const struct s3f_upload *upload, uint32_t number);
