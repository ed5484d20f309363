/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: one HTTP request as it was sent, and the reply that is made for it.
 *
 * Why:     a client that is a little wrong passes against a lenient server and fails in the field;
 *          so requests are read by the letter and nothing is guessed.
 * Promise: 1   a head with bare line feeds, white space before a colon, doubled or bad
 *              Content-Length, Transfer-Encoding, or a bad escape is refused.
 *          2   names and values of the query and the path are decoded once.
 * Limits:  heads of S3F_HEAD_BYTES_MAX, S3F_PAIRS_MAX headers and as many parameters.
 * Threads: one owner.
 * Next:    route.c for what is asked.
 */
#pragma once

#include "common/buf.h"
#include "tests/support/s3fault/rules.h"
#include "tests/support/s3fault/wire.h"

#define S3F_PAIRS_MAX 64

struct s3f_pair {
    const char *name, *value; /* a header's name in lower case */
};
struct s3f_request {
    char *head;    /* the text that the pointers below stand in; changed by parsing */
    char *decoded; /* path and query, decoded */
    const char *method;
    const char *path; /* decoded, begins with '/' */
    struct s3f_pair headers[S3F_PAIRS_MAX];
    size_t header_count;
    struct s3f_pair query[S3F_PAIRS_MAX];
    size_t query_count;
    uint64_t content_length;
    bool has_length, keep_alive;
    /* by s3f_route */
    enum s3f_op op;
    char bucket[64];
    const char *key; /* "" when there is none */
    const char *upload_id;
    uint32_t part_number;
    /* by s3f_authenticate */
    const char *payload; /* SHA-256 that the client signed, or "UNSIGNED-PAYLOAD" */
    char access_key[128];
    const char *etag_mode; /* of a rule: "opaque", "none", "bare"; NULL mostly */
};
void s3f_request_release(struct s3f_request *request);
/* CAIRN_OK, CAIRN_UNAVAILABLE (no further request came), or what is wrong with it. */
enum cairn_code s3f_request_read(struct s3f_wire *wire, struct s3f_request *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* NULL when absent. */
const char *s3f_header(const struct s3f_request *request, const char *name);
const char *s3f_query(const struct s3f_request *request, const char *name);

struct s3f_object;
struct s3f_reply {
    uint64_t serial; /* of the request */
    int status;
    char code[64];            /* of an error; for the journal too */
    struct cairn_buf headers; /* lines that end in CRLF */
    struct cairn_buf body;
    struct s3f_object *object; /* instead of body: its bytes from offset on; a reference */
    uint64_t offset, length;
    bool no_body; /* HEAD: length is told, nothing is sent */
};
/* Appends; memory that is not there ends the program. */
void s3f_say(struct cairn_buf *buf, const char *format, ...) CAIRN_PRINTF(2, 3);
void s3f_say_xml(struct cairn_buf *buf, const char *text);
void s3f_say_json(struct cairn_buf *buf, const char *text);
/* Replaces what was there by an <Error> document. */
void s3f_refuse(struct s3f_reply *reply, int status, const char *code, const char *format, ...)
    CAIRN_PRINTF(4, 5);
const char *s3f_status_text(int status);
/* In a function without a result: refuses and leaves it. */
#define REFUSE_IF(condition, ...)                                                                  \
    do {                                                                                           \
        if (condition) {                                                                           \
            s3f_refuse(__VA_ARGS__);                                                               \
            return;                                                                                \
        }                                                                                          \
    } while (0)
