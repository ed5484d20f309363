/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: finds the capabilities of an endpoint by requests, and keeps them in the bucket.
 *
 * Why:     S3-compatible stores differ in what they check, and an ignored header looks like
 *          success. Tests at every start of a fleet would be a thousand, and a node with fewer
 *          permissions would find less: the findings of one probe serve all.
 * Promise: 1   each test sends something that a correct store must refuse.
 *          2   nothing is written outside of CAIRN_S3_TEST_PREFIX; objects are removed if
 *              permitted.
 *          3   findings in .cairn/profile.json hold for a week; missing ones are tested.
 *          4   only a document of this endpoint, of a known major version, with sound values and at
 *              most a week old is trusted; settings override it.
 * Limits:  some 20 requests; documents of 64 KiB.
 * Threads: before other threads use the store; saving: one thread.
 * Next:    docs/s3.md; docs/format.md has the fields of the document.
 */
#pragma once

#include "store/s3/inside.h"
#include "store/s3/s3.h"

const char *cairn_store_s3_check_text(enum cairn_store_s3_check check); /* its sentence */

#define CAIRN_S3_TEST_PREFIX ".cairn/doctor/"

/* Deadline of a test request: `wanted_ms` from now, or that of all tests. */
uint64_t cairn_s3_probe_deadline_ms(const struct cairn_s3_store *store, uint64_t wanted_ms);

struct cairn_store_s3_probe_options {
    const char *by; /* the tester: "server", "uploader", "doctor" */
    bool may_list;  /* the credentials should be able to list; otherwise not tested */
    bool anew;      /* ignore known findings */
    /* Called for each finding; may be NULL. */
    void (*found)(void *owner, enum cairn_store_s3_check check, bool holds);
    void *owner;
};
/* Sets the store's profile; call before other threads use the store. Findings in
 * .cairn/profile.json are trusted for a week; missing ones are tested, with keys below
 * .cairn/doctor/, deleted afterwards if permitted. ret_from (or NULL): origin of the findings.
 * Fails when the store cannot be read, or is to be tested and cannot be written. */
enum cairn_code cairn_store_s3_probe(struct cairn_store *store,
                                     const struct cairn_store_s3_probe_options *options,
                                     char ret_from[160], struct cairn_error *err) CAIRN_MUST_USE;
/* Tests everything anew, with all permissions; ret_report (or NULL): lines "SENTENCE: yes". */
enum cairn_code cairn_store_s3_probe_all(struct cairn_store *store, struct cairn_buf *ret_report,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the document .cairn/profile.json; for this room alone ---- */

#define CAIRN_S3_PROFILE_KEY ".cairn/profile.json"
#define CAIRN_S3_PROFILE_AGE_MS_MAX (INT64_C(7) * 24 * 3600 * 1000)

/* Takes the store's present findings. */
void cairn_s3_profile_take(struct cairn_s3_store *store, struct cairn_s3_findings *ret);
enum cairn_code cairn_s3_profile_encode(const struct cairn_s3_findings *findings,
                                        struct cairn_buf *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: another major version. CAIRN_CORRUPT: no valid document. */
enum cairn_code cairn_s3_profile_decode(struct cairn_view text, struct cairn_s3_findings *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Sets profile and method; *ret_check_known: the check of uploads, as configured, is known. */
void cairn_s3_profile_adopt(struct cairn_s3_store *store, const struct cairn_s3_findings *findings,
                            bool *ret_check_known);
