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
 *              again on a new connection (store/s3/hedge.h).
 *          5   no key, token, signature or presigned query is in an error or a trace.
 * Limits:  keys of CAIRN_KEY_BYTES_MAX with the prefix; one Range a GET; a response document of
 *          16 MiB; a request without a deadline ends after deadline_ms.
 * Threads: as store/store.h. One HTTP engine a worker.
 * Next:    store/s3/inside.h has the drawing; tests/s3/test_s3.c.
 */
#pragma once

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
    const char *acl;           /* canned; none that shows objects to everybody */
    const char *request_payer; /* "requester" */
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
