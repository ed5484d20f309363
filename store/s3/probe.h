/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: the capabilities of an endpoint, found by requests, and kept as a document in the bucket.
 *
 * Why:     S3-compatible stores differ in what they check, and a header that a store ignores looks
 *          like success. A fleet that tried that at every start would cost a thousand tests, and a
 *          node whose keys may do less would find less: the findings of one probe serve all.
 * Promise: 1   each test sends something that a store which keeps its word must refuse.
 *          2   nothing is written outside of CAIRN_S3_TEST_PREFIX; what was written is removed, by
 *              who may.
 *          3   what .cairn/profile.json says of this endpoint is trusted for a week; what it does
 *              not say is tried.
 *          4   only a document of this endpoint, of a major version that is known, with sound
 *              values and not older than a week is trusted; what a setting overrules is not taken
 *              from it.
 * Limits:  some 20 requests; documents of 64 KiB.
 * Threads: before other threads use the store; saving: one thread.
 * Next:    docs/s3.md; docs/format.md has the fields of the document.
 */
#pragma once

#include "store/s3/inside.h"
#include "store/s3/s3.h"

const char *cairn_store_s3_check_text(enum cairn_store_s3_check check); /* its sentence */

#define CAIRN_S3_TEST_PREFIX ".cairn/doctor/"

/* When a request that tests the store is given up: `wanted_ms` from now, or with all tests. */
uint64_t cairn_s3_probe_deadline_ms(const struct cairn_s3_store *store, uint64_t wanted_ms);

/* ---- what is known, and what must be tested ---- */

struct cairn_store_s3_probe_options {
    const char *by; /* who tests: "server", "uploader", "doctor" */
    bool may_list;  /* keys that should be able to list; others are not tested for it */
    bool anew;      /* whatever is known already */
    /* Hears each finding; may be NULL. */
    void (*found)(void *owner, enum cairn_store_s3_check check, bool holds);
    void *owner;
};
/* Sets the store's profile: call it before other threads use the store. What .cairn/profile.json
 * says of this endpoint is trusted for a week; what it does not say is tried, under keys that
 * begin with .cairn/doctor/ and are deleted again by who may. ret_from, which may be NULL: where it
 * is known from. Fails when the store cannot be read, or had to be tested and cannot be written. */
enum cairn_code cairn_store_s3_probe(struct cairn_store *store,
                                     const struct cairn_store_s3_probe_options *options,
                                     char ret_from[160], struct cairn_error *err) CAIRN_MUST_USE;
/* The same, all anew and with all rights; ret_report, which may be NULL: "SENTENCE: yes" a line. */
enum cairn_code cairn_store_s3_probe_all(struct cairn_store *store, struct cairn_buf *ret_report,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the document .cairn/profile.json; for this room alone ---- */

#define CAIRN_S3_PROFILE_KEY ".cairn/profile.json"
#define CAIRN_S3_PROFILE_AGE_MS_MAX (INT64_C(7) * 24 * 3600 * 1000)

/* The store as it is known here and now. */
void cairn_s3_profile_take(struct cairn_s3_store *store, struct cairn_s3_findings *ret);
enum cairn_code cairn_s3_profile_encode(const struct cairn_s3_findings *findings,
                                        struct cairn_buf *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: another major version. CAIRN_CORRUPT: no sound document. */
enum cairn_code cairn_s3_profile_decode(struct cairn_view text, struct cairn_s3_findings *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Sets profile and method; *ret_check_known: whether a store checks what it is sent as the settings
 * want it sent is among the findings. */
void cairn_s3_profile_adopt(struct cairn_s3_store *store, const struct cairn_s3_findings *findings,
                            bool *ret_check_known);
