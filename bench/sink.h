/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink: an S3-shaped server that costs as little as one can, for the speed figures.
 *
 * Why:     a client's speed shows only against a peer that is faster than it; real stores spend ten
 *          times more CPU per byte than the client that is measured.
 * Promise: 1   the CRC32C of every body is made as it arrives; an announced checksum that differs
 *              is answered with 400 and counted. The checksum of a whole object is combined from
 *              its parts in the order of Complete, so every byte of every run is checked.
 *          2   faults (a rate per connection, late answers, 503, resets) come by count, not by
 *              chance: the same number in each run.
 * Limits:  1024 connections, one thread each; 256 uploads and 1024 objects between two resets.
 *          Signatures are not looked at; bodies larger than 64 KiB are not kept.
 * Threads: struct sink_state is locked by its mutex; a struct sink_connection belongs to its
 *          thread.
 * Next:    sink.c (bytes), sink_s3.c (answers), bench/run.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "common/buf.h"
#include "common/slab.h"

#define SINK_CHUNK_BYTES (128 * CAIRN_KIB) /* stays in the L2 cache for its checksum */
#define SINK_KEPT_BYTES (64 * CAIRN_KIB)
#define SINK_UPLOADS_MAX 256
#define SINK_OBJECTS_MAX 1024
#define SINK_PARTS_MAX 10000

struct sink_faults {
    uint64_t bytes_per_second;        /* of each connection; 0: as fast as it goes */
    uint32_t late_every, late_ms;     /* each n-th part's answer */
    uint32_t busy_every, reset_every; /* each n-th part: 503 after the body; RST in its middle */
};
struct sink_part {
    uint64_t size_bytes;
    uint32_t crc32c;
    bool there;
};
struct sink_upload {
    char key[256], meta[512];
    struct sink_part *parts; /* SINK_PARTS_MAX, NULL: free */
};
struct sink_object {
    char key[256], meta[512];
    uint64_t size_bytes;
    uint32_t crc32c;
    struct cairn_buf kept;
};
struct sink_counters {
    atomic_uint_fast64_t body_bytes, parts, parts_again, objects, wrong, refused, late, busy, reset,
        connections, connected, connected_most, sent_bytes, requests;
};
struct sink_state {
    pthread_mutex_t lock;
    struct sink_faults faults;
    struct sink_upload uploads[SINK_UPLOADS_MAX];
    struct sink_object objects[SINK_OBJECTS_MAX];
    uint32_t upload_count, object_count;
    atomic_uint_fast64_t part_counter;
    struct sink_counters counters;
    struct cairn_slab served;
    uint64_t served_bytes;
    uint32_t served_crc32c;
};
extern struct sink_state sink;

struct sink_connection {
    int fd;
    void *tls;                   /* SSL, or NULL */
    char *head;                  /* SINK_KEPT_BYTES + 1 */
    size_t head_size, head_used; /* of it, one request's header */
    uint8_t *chunk;              /* SINK_CHUNK_BYTES */
    uint64_t next_us;            /* when the next byte may be taken */
    bool closing;
};
struct sink_request {
    char method[16], path[1024], query[2048], meta[512], range[64];
    uint64_t content_length;
    bool has_crc32c, expects_continue, unreadable;
    uint32_t crc32c;
};

/* ---- sink.c ---- */
/* The body; kept may be NULL. false: the connection is gone. */
bool sink_read_body(struct sink_connection *connection, const struct sink_request *request,
                    bool is_part, uint32_t *ret_crc32c, struct cairn_buf *kept);
bool sink_send(struct sink_connection *connection, const void *bytes, size_t size);

/* ---- sink_s3.c ---- */
/* Answer one request whose header was read; false: close. */
bool sink_answer(struct sink_connection *connection, const struct sink_request *request);
