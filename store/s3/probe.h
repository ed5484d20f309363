/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe: the capabilities of an endpoint, found by requests; for this room alone.
 *
 * Why:     S3-compatible stores differ in what they check, and a header that a store ignores looks
 *          like success.
 * Promise: 1   each test sends something that a store which keeps its word must refuse.
 *          2   nothing is written outside of CAIRN_S3_TEST_PREFIX; what was written is removed, by
 *              who may.
 * Limits:  some 20 requests.
 * Threads: before other threads use the store.
 * Next:    store/s3/capabilities.c decides whether anything must be tested.
 */
#pragma once

#include "store/s3/capabilities.h"
#include "store/s3/profile.h"

const char *cairn_store_s3_check_text(enum cairn_store_s3_check check); /* its sentence */

#define CAIRN_S3_TEST_PREFIX ".cairn/doctor/"

/* When a request that tests the store is given up: `wanted_ms` from now, or with all tests. */
uint64_t cairn_s3_probe_deadline_ms(const struct cairn_s3_store *store, uint64_t wanted_ms);

struct cairn_s3_probe_scope {
    bool may_list;    /* these keys should be able to list uploads */
    bool check_alone; /* all is known but whether sent checksums are checked */
    const struct cairn_store_s3_probe_options *options; /* hears what is found */
};
enum cairn_code cairn_s3_probe_run(struct cairn_s3_store *store,
                                   const struct cairn_s3_probe_scope *how,
                                   struct cairn_error *err) CAIRN_MUST_USE;
