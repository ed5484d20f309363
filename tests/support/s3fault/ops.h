/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops: what each operation of S3 does to the state, and what it answers.
 *
 * Why:     the same code serves a plain request, one whose reply is lost, and one that is applied
 *          long after it was answered.
 * Promise: 1   an operation that is refused has changed nothing.
 * Limits:  pages of at most 1,000 entries; one range.
 * Threads: called with the server's lock held.
 * Next:    exchange.c, which calls s3f_apply.
 */
#pragma once

#include "tests/support/s3fault/intake.h"

struct s3f_call {
    struct s3f_server *server;
    const struct s3f_request *request;
    const struct s3f_plan *plan;
    struct s3f_body *body; /* NULL: none */
    struct s3f_reply *reply;
};
/* Takes the server's lock. */
void s3f_apply(const struct s3f_call *call);

typedef void s3f_operation(const struct s3f_call *call);
s3f_operation s3f_do_put, s3f_do_get, s3f_do_delete, s3f_do_delete_many;
s3f_operation s3f_do_create, s3f_do_part, s3f_do_complete, s3f_do_abort, s3f_do_parts,
    s3f_do_uploads;
s3f_operation s3f_do_list, s3f_do_versions, s3f_do_bucket;

/* ---- used by several of them ---- */

/* May this write make (request's key)? False: reply says why not. */
bool s3f_may_create(const struct s3f_call *call, bool honoured);
/* The header lines that are kept with an object. */
void s3f_metadata_of(const struct s3f_request *request, struct cairn_buf *ret);
/* ETag header of an answer, as a rule may want it. */
void s3f_say_etag(const struct s3f_call *call, const char *etag);
void s3f_name_etag(const struct s3f_call *call, struct s3f_body *body);
void s3f_time_iso(int64_t wall_ms, char ret_text[32]);
void s3f_time_http(int64_t wall_ms, char ret_text[32]);
/* Header of an answer that is of this version; none where versioning was never on. */
void s3f_say_version(const struct s3f_call *call, const char *id);
/* A number in the query, or `otherwise`; at most `max`. False: refused. */
bool s3f_take_number(const struct s3f_call *call, const char *name, uint64_t otherwise,
                     uint64_t max, uint64_t *ret);
/* A key in a listing: escaped for XML, or as encoding-type=url wants it. */
void s3f_say_key(const struct s3f_call *call, const char *name, const char *key);
/* Does this listing show all of the bucket, whatever prefix was asked for? */
bool s3f_ignores_prefix(const struct s3f_call *call, bool uploads);
/* Does it begin anew on each page? */
bool s3f_repeats_pages(const struct s3f_call *call);
void s3f_begin_xml(struct s3f_reply *reply, const char *root);

/* ---- XML that a client sends ---- */

/* path: "Delete/Object/Key"; value: its text, NULL when an element with children begins. False
 * refuses the document. */
typedef bool s3f_on_element(void *owner, const char *path, const char *value);
/* One root, no attribute but xmlns, no DTD, comment or CDATA, no text between elements. */
bool s3f_xml_read(const char *text, size_t size, s3f_on_element *on_element, void *owner);
