/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink: an S3-like server of minimal cost, for the speed figures.
 *
 * Why:     a client's speed shows only against a faster peer; stores use ten times its CPU.
 * Promise: 1   every body's CRC32C is computed as it arrives; a differing announced checksum is a
 *              counted 400. An object's checksum combines its parts in the order of Complete, so
 *              every byte of every run is checked.
 *          2   faults (pace, late replies, 503s, resets) come by count, the same in each run.
 *          3   with --keep bodies stay in memory until their object is replaced or deleted, and are
 *              served unchanged; a running GET keeps the bytes that it began with.
 * Limits:  1024 connections, one thread each; 256 open uploads and 1024 objects. Signatures are not
 *          verified; without --keep, bodies larger than 64 KiB are dropped.
 * Threads: struct sink_state is locked by its mutex; each thread owns its sink_connection.
 * Next:    sink.c (bytes), sink_s3.c (answers), sink_table.c, sink_list.c, bench/run.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "common/buf.h"
#include "common/memory.h"

#define SINK_CHUNK_BYTES (128 * CAIRN_KIB) /* fits the L2 cache */
#define SINK_KEPT_BYTES (64 * CAIRN_KIB)
#define SINK_UPLOADS_MAX 256
#define SINK_OBJECTS_MAX 1024
#define SINK_PARTS_MAX 10000

struct sink_faults {
    uint64_t bytes_per_second;        /* per connection; 0: unlimited */
    uint32_t late_every, late_ms;     /* every n-th part's reply */
    uint32_t busy_every, reset_every; /* every n-th part: 503 after the body; RST in its middle */
    uint32_t wait_ms;                 /* before each reply, like a distant store */
};
struct sink_part {
    uint64_t size_bytes;
    uint32_t crc32c;
    bool there;
    uint8_t *data; /* NULL: dropped */
};
struct sink_upload {
    char key[256], meta[512];
    uint64_t id;
    struct sink_part *parts; /* SINK_PARTS_MAX, NULL: free */
};
struct sink_body {  /* an object's bytes, in pieces as received */
    uint32_t users; /* the object and running GETs */
    size_t piece_count;
    struct sink_piece {
        uint64_t size_bytes;
        uint8_t *data;
    } pieces[];
};
struct sink_object {
    char key[256], meta[512];
    uint64_t size_bytes;
    uint32_t crc32c;
    struct sink_body *body; /* NULL: dropped */
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
    uint32_t object_count;
    uint64_t upload_ids; /* given so far */
    bool keeps_all;
    atomic_uint_fast64_t part_counter;
    struct sink_counters counters;
    struct cairn_slab served;
    uint64_t served_bytes;
    uint32_t served_crc32c;
    struct sink_body *served_body; /* one piece: the slab */
};
extern struct sink_state sink;

struct sink_connection {
    int fd;
    void *tls;                   /* SSL, or NULL */
    char *head;                  /* SINK_KEPT_BYTES + 1 */
    size_t head_size, head_used; /* of one request's header */
    uint8_t *chunk;              /* SINK_CHUNK_BYTES */
    uint64_t next_us;            /* pacing: time of the next byte */
    bool closing;
};
struct sink_request {
    char method[16], path[1024], query[2048], meta[512], range[64], copied[1024], if_match[128];
    uint64_t content_length, decoded_length; /* content_length includes chunk heads */
    bool has_crc32c, expects_continue, chunked, unreadable, only_new;
    uint32_t crc32c;
};

/* ---- sink.c ---- */
/* Reads the body; into: NULL or large enough. False: the connection is gone. */
bool sink_read_body(struct sink_connection *connection, const struct sink_request *request,
                    bool is_part, uint32_t *ret_crc32c, uint8_t *into);
bool sink_send(struct sink_connection *connection, const void *bytes, size_t size);

/* ---- sink_table.c: all but the first with the lock held ---- */
/* Memory for a kept body, with huge pages if large. */
uint8_t *sink_room(uint64_t bytes);
struct sink_body *sink_body_new(size_t piece_count);
void sink_body_leave(struct sink_body *body); /* NULL is allowed */
struct sink_object *sink_object_find(const char *key);
struct sink_object *sink_object_make(const char *key); /* empty; NULL: table full */
void sink_object_drop(struct sink_object *object);
struct sink_upload *sink_upload_find(uint64_t id);
struct sink_upload *sink_upload_make(void);
void sink_upload_drop(struct sink_upload *upload);

/* ---- sink_list.c: pages of a listing, as XML ---- */
enum cairn_code sink_list_objects(const struct sink_request *request, struct cairn_buf *ret);
enum cairn_code sink_list_uploads(const struct sink_request *request, struct cairn_buf *ret);
enum cairn_code sink_list_parts(const struct sink_upload *upload, struct cairn_buf *ret);

/* ---- sink_s3.c ---- */
#define SINK_XML "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
uint64_t sink_query_number(const struct sink_request *request, const char *name, uint64_t fallback);
bool sink_query_has(const struct sink_request *request, const char *name);
void sink_crc_text(uint32_t crc32c, char ret_text[16]); /* base64, as in S3 */
/* Answers a request whose header was read; false: close. */
bool sink_answer(struct sink_connection *connection, const struct sink_request *request);
