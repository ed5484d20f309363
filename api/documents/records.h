/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: the small documents that keep the catalog's decisions (committed.json, an attempt's
 * record, store.json), and functions shared by readers and writers of stored JSON.
 *
 * Why:     without the server they tell which versions count, and to which server a store belongs.
 *          Four kinds of documents share the form of version numbers, digests, checksums and ids.
 * Promise: 1   decode trusts nothing: names, numbers and digests are checked.
 *          2   the first field says kind and major version; another version is CAIRN_UNSUPPORTED
 *              with its number, another kind is CAIRN_CORRUPT.
 *          3   content that only a newer release can have written (a higher number, an unknown
 *              element type) is CAIRN_UNSUPPORTED and says so; it never counts as damage.
 * Limits:  as the documents' fields; the versions that an attempt superseded are not bounded here.
 * Threads: one owner.
 * Next:    docs/format.md; api/documents/manifest.h for the manifest that a record proves.
 */
#pragma once

#include "api/documents/manifest.h"

/* committed.json: a version is committed. */
struct cairn_record {
    struct cairn_version_id id;
    uint8_t manifest_sha256[32];
    uint64_t attempt, step;
    uint32_t n;
    uint64_t line;         /* the attempt whose line the version belongs to (Q25); 0: its own */
    char committed_at[32]; /* RFC 3339, for display */
};
enum cairn_code cairn_record_encode(const struct cairn_record *record, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_record_decode(struct cairn_view text, struct cairn_record *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* attempts/<number>.json */
struct cairn_attempt_record {
    struct cairn_run_name name;
    uint64_t attempt;
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    char job[256];
    uint32_t world_size;
    bool joins; /* opened with `keep`: older steps that it saves do not become the newest (Q25) */
    bool has_resume;
    struct cairn_version_id resume_version;
    struct cairn_version_id *superseded; /* owned */
    size_t superseded_count;
    char *weights; /* owned: weights of its ranks, a digit each; NULL or "": equal */
};
void cairn_attempt_record_release(struct cairn_attempt_record *record);
enum cairn_code cairn_attempt_record_encode(const struct cairn_attempt_record *record,
                                            struct cairn_buf *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_attempt_record_decode(struct cairn_view text,
                                            struct cairn_attempt_record *ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;

/* .cairn/store.json */
struct cairn_store_record {
    char uuid[CAIRN_UUID_TEXT_BYTES];
    char owner[128];
    uint32_t format; /* 1 */
    uint64_t generation;
    char copies_of[CAIRN_UUID_TEXT_BYTES]; /* the store whose copies it holds; "": a main store */
};
enum cairn_code cairn_store_record_encode(const struct cairn_store_record *record,
                                          struct cairn_buf *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_record_decode(struct cairn_view text, struct cairn_store_record *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what stored documents share ---- */

#define DOCUMENT_MAJOR 1
#define DOCUMENT_BYTES_MAX CAIRN_MIB /* limit of committed.json and store.json */

/* kind: "cairn_manifest", "cairn_committed", ...: the field that holds the major version. */
enum cairn_code cairn_document_parse(struct cairn_view text, const char *kind,
                                     struct cairn_json_limits limits, json_t **ret_json,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Dumps and drops take_json; NULL (building it failed) is CAIRN_NO_MEMORY. */
enum cairn_code cairn_document_dump(json_t *take_json, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: "written by a newer release, needs ...", for all unknown stored content. */
CAIRN_PRINTF(2, 3)
enum cairn_code cairn_newer(struct cairn_error *err, const char *format, ...);
/* Turns any error of a stored document into CAIRN_CORRUPT. */
enum cairn_code cairn_document_bad(struct cairn_error *err, enum cairn_code code, const char *kind);

json_t *cairn_document_hex(const uint8_t *data, size_t size);
enum cairn_code cairn_document_digest(const char *text, uint8_t ret_digest[32],
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_document_id(const char *text, struct cairn_version_id *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_document_run(const char *project, const char *run, struct cairn_run_name *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_document_nonce(const char *text, char ret[CAIRN_NONCE_TEXT_BYTES],
                                     struct cairn_error *err) CAIRN_MUST_USE;
