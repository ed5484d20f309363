/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xml: reads the XML that S3 and STS answer with (owner of expat.h).
 *
 * Why:     a store's answer comes from outside: it may be cut, be a login page, or be meant to
 *          hurt. Only what was fully read and has the right root is trusted.
 * Promise: 1   an answer that ends early, has another root, a DTD, more than 16 levels, 200,000
 *              elements or 16 KiB of text in one element is CAIRN_PROTOCOL; outputs stay empty, and
 *              a walk tells of no element.
 *          2   an <Error> document where a result is due is told apart, also under status 200.
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
    char code[64]; /* "NoSuchUpload"; "" when there is none */
    char message[200];
    char region[64];    /* what the store says is right, "" mostly */
    char endpoint[128]; /* the same */
    char request_id[64];
};

/* Is it an error document, of S3 or of STS? false for anything else, also for no XML. */
bool cairn_xml_problem_read(struct cairn_view text, struct cairn_xml_problem *ret);
enum cairn_code cairn_xml_upload_id(struct cairn_view text, char ret_id[CAIRN_UPLOAD_ID_BYTES_MAX],
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* CopyPartResult; the checksum in base64, "" where none is stated. */
enum cairn_code cairn_xml_copied(struct cairn_view text, char ret_etag[128], char ret_crc32c[24],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* CompleteMultipartUploadResult. */
enum cairn_code cairn_xml_completed(struct cairn_view text, char ret_etag[128],
                                    struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_xml_parts {
    struct cairn_store_part *parts; /* the caller's; appended to */
    size_t count, capacity;
    uint32_t next_marker; /* 0: this was the last page */
};
enum cairn_code cairn_xml_parts_read(struct cairn_view text, struct cairn_xml_parts *parts,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* What was asked for: all keys must begin with it, else CAIRN_STORE; then they lose cut_bytes. */
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

/* DeleteObjects: each() hears of each key that begins with prefix, without it; version "": the
 * answer names none; code NULL: deleted, else why not. */
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
/* The credentials in an answer of STS. root: "AssumeRoleResponse" and the like. */
enum cairn_code cairn_xml_session_read(struct cairn_view text, const char *root,
                                       struct cairn_xml_session *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Text for an element's content: & < > and quotes escaped. */
enum cairn_code cairn_xml_escape(const char *text, struct cairn_buf *ret,
                                 struct cairn_error *err) CAIRN_MUST_USE;

/* ---- any document: each element by its path ---- */

#define CAIRN_XML_ELEMENTS_MAX 200000 /* of one document */

struct cairn_xml_walk {
    const char *root; /* wanted name of the outermost element */
    /* path: "Root/Child/Leaf". A code other than CAIRN_OK ends the walk. Either may be NULL. */
    enum cairn_code (*started)(void *owner, const char *path, struct cairn_error *err);
    enum cairn_code (*ended)(void *owner, const char *path, const char *text,
                             struct cairn_error *err);
    void *owner;
};
enum cairn_code cairn_xml_walk_run(const struct cairn_xml_walk *walk, struct cairn_view text,
                                   struct cairn_error *err) CAIRN_MUST_USE;
