/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3: objects in an S3 bucket, behind store/store.h.
 *
 * Why:     a run's bytes live in some S3: AWS, Ceph, MinIO, Swift. The profile has their
 *          differences.
 * Promise: 1 to 6 of store/store.h, and
 *          1   success is a whole, well-formed answer with its required parts (ETag, upload id,
 *              result document); 200 with an <Error> or other content is a failure.
 *          2   each send is signed anew; expired keys are renewed, a wrong region and a wrong clock
 *              are corrected once each, and the same request continues. Redirects to another host
 *              are never followed, and get no key.
 *          3   store/retry.h decides retries, which use a new connection; a Complete whose reply
 *              was lost is not repeated, HEAD settles it (rule R3).
 *          4   a part whose reply is overdue is sent again on a new connection (store/s3/inside.h).
 *          5   no key, token, signature or presigned query is in an error or a trace.
 * Limits:  keys of CAIRN_KEY_BYTES_MAX with the prefix; one Range a GET; a response document of 16
 *          MiB; a request without a deadline ends after deadline_ms.
 * Threads: as store/store.h. One HTTP engine a worker.
 * Next:    store/s3/inside.h has the drawing; tests/s3/test_s3.c.
 */
#pragma once

#include "common/http/http.h"
#include "store/store.h"

enum cairn_store_s3_style { CAIRN_S3_STYLE_AUTO, CAIRN_S3_STYLE_PATH, CAIRN_S3_STYLE_VIRTUAL };
enum cairn_store_s3_checksum {
    CAIRN_S3_CHECKSUM_AUTO, /* CRC32C, MD5 after its refusal; none if "when_required" */
    CAIRN_S3_CHECKSUM_CRC32C,
    CAIRN_S3_CHECKSUM_MD5,
    CAIRN_S3_CHECKSUM_NONE,
};

/* Zero means AWS's usual variables and files. NULL and "" count as not given. All is copied. The
 * store's URL wins, and with a profile there the first four are ignored (store/s3/config.h#3). */
struct cairn_store_s3_options {
    const char *endpoint;  /* AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, AWS itself */
    const char *region;    /* AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1 */
    const char *profile;   /* AWS_PROFILE, default */
    const char *ca_bundle; /* AWS_CA_BUNDLE, the profile's, the system's */
    enum cairn_store_s3_style style; /* auto: path style where an endpoint is given */
    enum cairn_store_s3_checksum checksum;
    bool sign_payload;     /* SHA-256 of every body: five times the CPU of sending */
    bool allow_plain_http; /* to other machines */
    bool no_hedge;
    bool verbose_trace;
    const char *sse, *sse_kms_key_id; /* "AES256", "aws:kms" */
    const char *storage_class;
    const char *object_tags; /* "team=nlp&kind=checkpoint" */
    const char *bucket_owner;
    const char *acl;               /* canned; no public one */
    const char *request_payer;     /* "requester" */
    const char *const *interfaces; /* used by workers in turn */
    size_t interface_count;
    const char *congestion;         /* TCP_CONGESTION, benches only */
    uint32_t connections_max;       /* per worker; 0 = 64 */
    uint32_t requests_max;          /* of all workers; 0 = 64 */
    uint64_t bandwidth_bytes_per_s; /* sent by all workers; 0 = no cap */
    uint32_t connect_ms, stall_ms;  /* 0 = 5 s, 30 s */
    uint32_t deadline_ms;           /* 0 = 5 min: default for requests */
    uint32_t probe_ms;              /* 0 = 30 s: per request of cairn_store_s3_probe_all */
    uint64_t probe_until_ms;        /* mono clock; 0: none: end of all test requests */
};

/* For cairn_store_register (store/open.h). */
enum cairn_code cairn_store_s3_open(const struct cairn_store_options *options,
                                    struct cairn_store **ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_store_s3_check {
#define CHECK(id, name, sentence, no, hint) CAIRN_S3_CHECK_##id,
#include "store/s3/checks.def"
#undef CHECK
    CAIRN_S3_CHECK_COUNT
};

/* The current target of requests, after any region correction. "virtual": bucket in the host. Any
 * thread. */
struct cairn_store_s3_place {
    char endpoint[700], region[64];
    const char *addressing; /* "path", "virtual" */
};
bool cairn_store_s3_place(struct cairn_store *store, struct cairn_store_s3_place *ret);
/* Of the last request without a reply. */
enum cairn_http_tls_fault cairn_store_s3_tls_fault(struct cairn_store *store);

/* A bucket's settings: GET of its "lifecycle", "versioning" or "object-lock", tried once. CAIRN_OK:
 * an answer of any status; only a lost one fails. Any thread. */
struct cairn_store_s3_answer {
    int status;
    bool has_clock;
    int64_t clock_ahead_ms; /* the store's Date minus our clock, to a second */
    struct cairn_buf document;
};
enum cairn_code cairn_store_s3_query(struct cairn_store *store, const char *subresource,
                                     struct cairn_store_s3_answer *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* True if the answer has this element ("Root/Child/Leaf"), with this text unless NULL. */
bool cairn_store_s3_answer_has(const struct cairn_store_s3_answer *answer, const char *path,
                               const char *text);
/* Effect of a "lifecycle" document's enabled rules on this store's objects. */
struct cairn_store_s3_lifecycle {
    bool aborts;             /* incomplete uploads of all of the store's keys */
    bool removes_noncurrent; /* older versions of all keys */
    bool expires;            /* some objects */
    uint64_t abort_days;
    bool archives; /* some objects, which must be restored before a read */
    char expiring_rule[64], archiving_rule[64]; /* their IDs */
};
/* True if this store's objects are written in an archive class. */
bool cairn_store_s3_writes_cold(struct cairn_store *store);
enum cairn_code cairn_store_s3_lifecycle(struct cairn_store *store, struct cairn_view document,
                                         struct cairn_store_s3_lifecycle *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
