/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capabilities: what an endpoint does, found out by trying, and the profile in the bucket.
 *
 * Why:     what S3-compatible stores do differs, and a fleet that tried it at every start would
 *          cost a thousand tests.
 * Promise: 1   what .cairn/profile.json says of this endpoint is trusted for a week; what it does
 *              not say is tried, under keys that begin with .cairn/doctor/.
 * Limits:  as store/s3/probe.h.
 * Threads: before other threads use the store.
 * Next:    store/s3/probe.h, store/s3/profile.h; docs/s3.md.
 */
#pragma once

#include "store/s3/s3.h"

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
