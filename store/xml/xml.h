/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xml: reads the XML replies of S3 and STS (owner of expat.h).
 *
 * Why:     a reply comes from outside: it may be truncated, a login page or malicious. Only a
 *          document that was fully read and has the right root is trusted.
 * Promise: 1   a reply that ends early, has another root, a DTD, more than 16 levels, 200,000
 *              elements or 16 KiB of text in one element is CAIRN_PROTOCOL; outputs stay empty,
 *              walks report nothing.
 *          2   an <Error> document in place of a result is recognised, also under status 200.
 *          3   white space before the document is skipped (a slow Complete sends it).
 * Limits:  the caller bounds the bytes; paths of 255 bytes.
 * Threads: stateless.
 * Next:    store/s3/reply.c.
 */
#pragma once

#include "common/buf.h"
#include "store/secret.h"
#include "store/store.h"

struct cairn_xml_problem {
    char code[64]; /* "NoSuchUpload"; "" for none */
    char message[200];
    char region[64];    /* the right region according to the store; mostly "" */
    char endpoint[128]; /* the right endpoint, likewise */
    char request_id[64];
};

/* True for an error document of S3 or STS; false for anything else, also if not XML. */
bool cairn_xml_problem_read(struct cairn_view text, struct cairn_xml_problem *ret);
enum cairn_code cairn_xml_upload_id(struct cairn_view text, char ret_id[CAIRN_UPLOAD_ID_BYTES_MAX],
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* CopyPartResult; the checksum in base64, "" for none. */
enum cairn_code cairn_xml_copied(struct cairn_view text, char ret_etag[128], char ret_crc32c[24],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* CompleteMultipartUploadResult. */
enum cairn_code cairn_xml_completed(struct cairn_view text, char ret_etag[128],
                                    struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_xml_parts {
    struct cairn_store_part *parts; /* the caller's; appended to */
    size_t count, capacity;
    uint32_t next_marker; /* 0: last page */
};
enum cairn_code cairn_xml_parts_read(struct cairn_view text, struct cairn_xml_parts *parts,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Expected prefix: all keys must begin with it, else CAIRN_STORE; then they lose cut_bytes. */
struct cairn_xml_listed {
    const char *prefix;
    size_t cut_bytes; /* at most the prefix */
};
/* ListObjectsV2 or ListMultipartUploads, appended to listing. ret->next_page of uploads:
 * "key-marker\nupload-id-marker". */
enum cairn_code cairn_xml_objects(struct cairn_view text, const struct cairn_xml_listed *listed,
                                  struct cairn_store_listing *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* ListObjectVersions; next_page: "key-marker\nversion-id-marker". */
enum cairn_code cairn_xml_versions(struct cairn_view text, const struct cairn_xml_listed *listed,
                                   struct cairn_store_listing *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_xml_uploads(struct cairn_view text, const struct cairn_xml_listed *listed,
                                  struct cairn_store_listing *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;

/* DeleteObjects: each() gets each key without prefix; version "": none; code NULL: deleted. */
struct cairn_xml_deletions {
    const char *prefix;
    void (*each)(void *owner, const char *key, const char *version, const char *code,
                 const char *message);
    void *owner;
};
enum cairn_code cairn_xml_deletions_read(struct cairn_view text,
                                         const struct cairn_xml_deletions *deletions,
                                         struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_xml_session {
    char access_key[256];
    struct cairn_secret secret, token;
    char expiration[64];
};
void cairn_xml_session_release(struct cairn_xml_session *session);
/* The credentials in a reply of STS. root: "AssumeRoleResponse" and the like. */
enum cairn_code cairn_xml_session_read(struct cairn_view text, const char *root,
                                       struct cairn_xml_session *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Escapes & < > and quotes for an element's content. */
enum cairn_code cairn_xml_escape(const char *text, struct cairn_buf *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* ---- any document: each element by its path ---- */

#define CAIRN_XML_ELEMENTS_MAX 200000 /* per document */

struct cairn_xml_walk {
    const char *root; /* expected name of the outermost element */
    /* path: "Root/Child/Leaf". A code other than CAIRN_OK ends the walk. Either may be NULL. */
    enum cairn_code (*started)(void *owner, const char *path, struct cairn_error *err);
    enum cairn_code (*ended)(void *owner, const char *path, const char *text,
                             struct cairn_error *err);
    void *owner;
};
enum cairn_code cairn_xml_walk_run(const struct cairn_xml_walk *walk, struct cairn_view text,
                                   struct cairn_error *err) CAIRN_MUST_USE;
