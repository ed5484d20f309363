/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: what was found out about a store, as the document .cairn/profile.json in it.
 *
 * Why:     without it each start of each node would probe with some 20 requests, and a node whose
 *          keys may do less would find less: the findings of one probe serve all.
 * Promise: 1   only a document of this endpoint, of a major version that is known, with sound
 *              values and not older than a week is trusted.
 *          2   what a setting overrules is not taken from it.
 * Limits:  64 KiB. For this room alone.
 * Threads: before other threads use the store; saving: one thread.
 * Next:    docs/format.md has the fields; store/s3/probe.c finds out.
 */
#pragma once

#include "store/s3/inside.h"

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
/* The note for people, from the profile's fields. */
void cairn_s3_profile_note(struct cairn_store_profile *profile);
