/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: the small documents that say what the catalog decided: committed.json, an attempt's
 *          record, store.json.
 *
 * Why:     without the server they tell which versions count, and whose store it is.
 * Promise: 1   decode trusts nothing: names, numbers and digests are checked, an unknown major
 *              version is refused by its number.
 * Limits:  as the documents' fields; the versions that an attempt superseded are not bounded here.
 * Threads: one owner.
 * Next:    docs/format.md; api/manifest.h for what a record proves.
 */
#pragma once

#include "api/keys.h"
#include "common/buf.h"

/* committed.json: the record that a version is committed. */
struct cairn_record {
    struct cairn_version_id id;
    uint8_t manifest_sha256[32];
    uint64_t attempt, step;
    uint32_t n;
    uint64_t line; /* the attempt in whose line it counts (Q25); 0: its own */
    char committed_at[32]; /* RFC 3339, for people */
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
    bool joins; /* it was opened with `keep`: older steps that it saves are not the newest (Q25) */
    bool has_resume;
    struct cairn_version_id resume_version;
    struct cairn_version_id *superseded; /* owned */
    size_t superseded_count;
    char *weights; /* owned: of its ranks, a digit each; NULL or "": equal */
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
    char copies_of[CAIRN_UUID_TEXT_BYTES]; /* that it has copies for; "": saves go to it */
};
enum cairn_code cairn_store_record_encode(const struct cairn_store_record *record,
                                          struct cairn_buf *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_record_decode(struct cairn_view text, struct cairn_store_record *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
