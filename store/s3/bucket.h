/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bucket: what an answer of store/s3/query.h says.
 *
 * Why:     rules of a bucket may remove a checkpoint's objects, or leave uploads that cost money.
 * Promise: 1   only rules that are switched on and reach this store's keys count.
 * Limits:  as store/xml/xml.h.
 * Threads: stateless.
 * Next:    cli/verbs/doctor_store.c.
 */
#pragma once

#include "store/s3/query.h"

/* Is the answer a document with this element ("Root/Child/Leaf"), of this text where not NULL? */
bool cairn_store_s3_answer_has(const struct cairn_store_s3_answer *answer, const char *path,
                               const char *text);
/* What the rules of a "lifecycle" document that are switched on do to this store's objects. */
struct cairn_store_s3_lifecycle {
    bool aborts;             /* incomplete uploads, of all of the store's keys */
    bool removes_noncurrent; /* older versions of all of them */
    bool expires;            /* some of them */
    uint64_t abort_days;
    bool archives;           /* some of them: they must be restored before they are read */
    char expiring_rule[64], archiving_rule[64]; /* their IDs */
};
/* Is it a storage class whose objects must be restored before they are read? NULL: no. */
bool cairn_store_s3_class_is_cold(const char *storage_class);
/* Are objects of this store written in such a class? */
bool cairn_store_s3_writes_cold(struct cairn_store *store);
enum cairn_code cairn_store_s3_lifecycle(struct cairn_store *store, struct cairn_view document,
                                         struct cairn_store_s3_lifecycle *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
