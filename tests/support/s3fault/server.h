/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server: what all connections of s3fault share.
 *
 * Why:     a store that is stricter than any real one and fails on request is the only way to see
 *          every fault of the catalogue in a test.
 * Promise: 1   a request is journaled before the last byte of its reply is sent.
 *          2   without a matching rule the server does what its profile says, and nothing else.
 * Limits:  S3F_CONNECTIONS_MAX connections, memory as the options say.
 * Threads: one per connection; everything below `lock` in the struct is guarded by it.
 * Next:    README.md beside this file; rules.h, ops.h.
 */
#pragma once

#include <ctype.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/lock.h"
#include "common/text.h"
#include "tests/support/s3fault/message.h"
#include "tests/support/s3fault/state.h"
#include "tests/support/s3fault/versions.h"

#define S3F_CONNECTIONS_MAX 512
#define S3F_KEYS_MAX 8
#define S3F_DOORS_MAX 16

/* How one make of store differs from another, as far as a client can see. */
struct s3f_profile {
    const char *name;
    uint64_t part_bytes_min;
    uint32_t part_count_max;
    bool checksums;       /* x-amz-checksum-crc32c is checked, kept and told */
    int checksum_refused; /* status for any x-amz-checksum-* header, 0: taken or ignored */
    bool checksum_full;   /* FULL_OBJECT for multipart uploads */
    bool create_put;      /* If-None-Match: * on Put; where not: create_refused, or ignored */
    bool create_complete;
    int create_refused;   /* status for If-None-Match on a write */
    bool complete_again;  /* a second Complete is answered as the first was */
    bool complete_subset; /* parts may be left out */
    bool lists_by_prefix; /* ListMultipartUploads; where not: by exact key only */
    bool objects_ignore_prefix, uploads_ignore_prefix; /* broken: listed whatever was asked for */
    bool pages_repeat;                                 /* broken: a listing begins anew for ever */
    bool equal_parts;                                  /* all but the last must have one size */
    bool region_checked;
    bool tells_crc32;       /* broken: CRC32 as the CRC32C of an object made of parts */
    const char *parts_root; /* broken: the name around a list of parts; "": the right one */
    const char *gone;       /* code of ListParts after an abort */
};
const struct s3f_profile *s3f_profile_find(const char *name); /* or NULL */

struct s3f_key {
    char access[128], secret[128], token[1024];
    bool expired;
};
struct s3f_options {
    const struct s3f_profile *profile;
    const char *region, *tls_certificate, *tls_key, *journal, *congestion;
    uint64_t seed, cap_bytes_per_s;
    struct s3f_cap cap_all;
    bool discard; /* bodies above 1 MiB: length and checksum only */
    bool md5_etags;
    uint64_t page_max; /* of every listing */
};

/* One address that is listened on; all have the same port. */
struct s3f_door {
    struct s3f_server *server;
    char address[S3F_ADDRESS_BYTES];
    int listener;
    atomic_bool left; /* asked to listen no more */
};

struct s3f_server {
    struct s3f_options options;
    struct s3f_door doors[S3F_DOORS_MAX];
    size_t door_count;
    SSL_CTX *tls; /* NULL: plain */
    FILE *journal_file;
    struct cairn_lock lock;
    /* guarded by lock */
    struct s3f_state state;
    struct cairn_s3f_rules *rules;
    uint64_t rules_set; /* how often they were replaced */
    struct s3f_key keys[S3F_KEYS_MAX];
    size_t key_count;
    struct cairn_buf journal; /* the newest 16 MiB */
    uint64_t journal_dropped, requests, connections, connections_now, pending;
    uint64_t op_count[S3F_OP_COUNT], errors, bytes_in, bytes_out, bytes_sent;
};

/* Takes the door's socket; returns when the door was left, or accept fails for good. */
void s3f_serve(struct s3f_door *door);
/* Nobody listens on this address any more: callers are refused. False: no such door. */
bool s3f_leave(struct s3f_server *server, const char *address);
/* One request from its head to its end, on the thread of its connection. */
struct s3f_connection {
    struct s3f_server *server;
    struct s3f_wire wire;
    uint64_t serial; /* of the connection */
    char local[S3F_ADDRESS_BYTES];
    uint8_t *scrap; /* S3F_SCRAP_BYTES, for bytes that are not kept */
};
#define S3F_SCRAP_BYTES CAIRN_MIB
/* False: the connection is over. */
bool s3f_exchange(struct s3f_connection *connection);

struct s3f_entry {
    const struct s3f_connection *connection;
    const struct s3f_request *request;
    const struct s3f_plan *plan;
    const struct s3f_reply *reply; /* NULL: none was made */
    uint64_t received;
    uint32_t crc32c;
    uint64_t started_us;
    const char *note;
};
void s3f_journal(struct s3f_server *server, const struct s3f_entry *entry);
/* Paths under /-/. */
void s3f_control(struct s3f_server *server, const struct s3f_request *request,
                 struct cairn_view body, struct s3f_reply *reply);

/* True: the request is signed as it must be. False: reply says why it is refused. */
bool s3f_authenticate(struct s3f_server *server, struct s3f_request *request,
                      struct s3f_reply *reply);
/* What is asked; false: reply says what is wrong. */
bool s3f_route(struct s3f_server *server, struct s3f_request *request, struct s3f_reply *reply);
