/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3: objects in an S3 bucket, behind store/store.h.
 *
 * Why:     the bytes of a run live in some S3: AWS, Ceph, MinIO, Swift. What differs between
 *          them is settled here and told in the profile.
 * Promise: 1 to 6 of store/store.h, and
 *          1   success is a whole, well-formed answer with what is due in it (ETag, upload id,
 *              result document); 200 with an <Error> or with anything else is none.
 *          2   a request is signed anew each time it is sent; keys that ended are renewed, a
 *              wrong region is corrected once and a wrong clock once, and the same request goes
 *              on. Redirects to another host are never followed, and no key is sent there.
 *          3   a request is repeated as store/retry.h says, on a new connection; Complete is not
 *              repeated when its answer was lost, that is settled by HEAD (rule R3).
 *          4   a part that was sent whole and gets no answer for much longer than usual is sent
 *              again on a new connection (store/s3/inside.h).
 *          5   no key, token, signature or presigned query is in an error or a trace.
 * Limits:  keys of CAIRN_KEY_BYTES_MAX with the prefix; one Range a GET; a response document of
 *          16 MiB; a request without a deadline ends after deadline_ms.
 * Threads: as store/store.h. One HTTP engine a worker.
 * Next:    store/s3/inside.h has the drawing; tests/s3/test_s3.c.
 */
#pragma once

#include "common/http/http.h"
#include "store/store.h"

enum cairn_store_s3_style { CAIRN_S3_STYLE_AUTO, CAIRN_S3_STYLE_PATH, CAIRN_S3_STYLE_VIRTUAL };
enum cairn_store_s3_checksum {
    CAIRN_S3_CHECKSUM_AUTO, /* CRC32C, or MD5 once the store has refused that; none where AWS's
                               own switch says "when_required" */
    CAIRN_S3_CHECKSUM_CRC32C,
    CAIRN_S3_CHECKSUM_MD5,
    CAIRN_S3_CHECKSUM_NONE,
};

/* Zero is a good default: everything from AWS's usual variables and files. NULL or "" texts count
 * as not given. All is copied. What a store's URL says wins, and with a profile there the first
 * four count for nothing (store/s3/config.h#3). */
struct cairn_store_s3_options {
    const char *endpoint;  /* AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, AWS itself */
    const char *region;    /* AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1 */
    const char *profile;   /* AWS_PROFILE, default */
    const char *ca_bundle; /* AWS_CA_BUNDLE, the profile's, the system's */
    enum cairn_store_s3_style style; /* auto: by path where an endpoint is given */
    enum cairn_store_s3_checksum checksum;
    bool sign_payload;     /* SHA-256 of every body: five times the CPU of sending */
    bool allow_plain_http; /* to other machines than this one */
    bool no_hedge;
    bool verbose_trace;
    const char *sse, *sse_kms_key_id; /* "AES256", "aws:kms" */
    const char *storage_class;
    const char *object_tags; /* "team=nlp&kind=checkpoint" */
    const char *bucket_owner;
    const char *acl;               /* canned; none that shows objects to everybody */
    const char *request_payer;     /* "requester" */
    const char *const *interfaces; /* workers take them in turn */
    size_t interface_count;
    const char *congestion;         /* TCP_CONGESTION, benches only */
    uint32_t connections_max;       /* a worker; 0 = 64 */
    uint32_t requests_max;          /* all workers together; 0 = 64 */
    uint64_t bandwidth_bytes_per_s; /* sent, all workers together; 0 = no cap */
    uint32_t connect_ms, stall_ms;  /* 0 = 5 s, 30 s */
    uint32_t deadline_ms;           /* 0 = 5 min: of requests that bring none */
    uint32_t probe_ms;              /* 0 = 30 s: of each request of cairn_store_s3_probe_all */
    uint64_t probe_until_ms;        /* mono clock; 0: no end: of all requests that test the store */
};

/* For cairn_store_register (store/open.h). */
enum cairn_code cairn_store_s3_open(const struct cairn_store_options *options,
                                    struct cairn_store **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what the store does, found out by trying ---- */

enum cairn_store_s3_check {
#define CHECK(id, name, sentence, no, hint) CAIRN_S3_CHECK_##id,
#include "store/s3/checks.def"
#undef CHECK
    CAIRN_S3_CHECK_COUNT
};

/* ---- where requests go ---- */

/* As requests use it now, after a region was corrected. A bucket's name is in the host where
 * addressing is "virtual". Any thread. */
struct cairn_store_s3_place {
    char endpoint[700], region[64];
    const char *addressing; /* "path", "virtual" */
};
bool cairn_store_s3_place(struct cairn_store *store, struct cairn_store_s3_place *ret);
/* Of the last request that got no reply. */
enum cairn_http_tls_fault cairn_store_s3_tls_fault(struct cairn_store *store);

/* ---- what a bucket says of itself ---- */

/* What a bucket says of itself: GET of its "lifecycle", "versioning" or "object-lock", tried once.
 * CAIRN_OK: there was an answer, of any status; only a lost one fails. Any thread. */
struct cairn_store_s3_answer {
    int status;
    bool has_clock;
    int64_t clock_ahead_ms; /* the store's Date before ours, to a second */
    struct cairn_buf document;
};
enum cairn_code cairn_store_s3_query(struct cairn_store *store, const char *subresource,
                                     struct cairn_store_s3_answer *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* Is the answer a document with this element ("Root/Child/Leaf"), of this text where not NULL? */
bool cairn_store_s3_answer_has(const struct cairn_store_s3_answer *answer, const char *path,
                               const char *text);
/* What the rules of a "lifecycle" document that are switched on do to this store's objects. */
struct cairn_store_s3_lifecycle {
    bool aborts;             /* incomplete uploads, of all of the store's keys */
    bool removes_noncurrent; /* older versions of all of them */
    bool expires;            /* some of them */
    uint64_t abort_days;
    bool archives; /* some of them: they must be restored before they are read */
    char expiring_rule[64], archiving_rule[64]; /* their IDs */
};
/* Are objects of this store written in such a class? */
bool cairn_store_s3_writes_cold(struct cairn_store *store);
enum cairn_code cairn_store_s3_lifecycle(struct cairn_store *store, struct cairn_view document,
                                         struct cairn_store_s3_lifecycle *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
