/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the structs that the parts of the S3 store share; for this room alone.
 *
 * Why:     building a request, judging its reply and running many of them are three subjects.
 * Promise: 1   a task belongs to one worker from submit to done().
 *          2   what all workers share is atomic, or in `locked`, or immutable after open.
 * Limits:  none of its own.
 * Threads: struct cairn_s3_store any, the others their worker's.
 * Next:    store/s3/request.c, store/s3/reply.c, store/s3/worker.c, store/s3/s3.c.
 *
 *   waiting --start()--> active --judged: again--> waiting
 *      |                    |
 *      +----- finish() -----+--> done(), freed
 */
#pragma once

#include <stdatomic.h>
#include <sys/queue.h>

#include "common/base.h"
#include "common/http/http.h"
#include "common/lock.h"
#include "store/keys/sigv4.h"
#include "store/retry.h"
#include "store/s3/config.h"
#include "store/xml/xml.h"

#define CAIRN_S3_PAIRS_MAX 24
#define CAIRN_S3_DOCUMENT_BYTES_MAX (16 * CAIRN_MIB)

/* What the store does with the checksum that an upload was created with. */
enum cairn_s3_upload_checksum {
    CAIRN_S3_UPLOAD_IGNORED,   /* or not known: nothing is said at Complete        */
    CAIRN_S3_UPLOAD_COMPOSITE, /* each part's is repeated at Complete              */
    CAIRN_S3_UPLOAD_FULL,      /* the whole object's is given at Complete          */
};

enum cairn_s3_condition { CAIRN_S3_HONOURED, CAIRN_S3_IGNORED, CAIRN_S3_REFUSED };

/* What profile.json says; see store/s3/probe.h. */
struct cairn_s3_findings {
    char endpoint[700], region[64], addressing[8], by[16];
    int64_t tested_ms;                   /* wall clock of who tested; 0: nobody has */
    enum cairn_store_s3_checksum method; /* auto: not tested */
    enum cairn_s3_condition create_put;
    bool create_complete, keeps_token, lists_uploads, lists_part_checksums, misstates;
    bool keeps_versions;
    uint64_t part_bytes_min, part_bytes_max;
    uint32_t part_count_max;
};

struct cairn_s3_store {
    struct cairn_store base;
    struct cairn_s3_config config;
    struct cairn_credentials_provider *credentials;
    const struct cairn_clock *clock;
    bool read_only;
    struct cairn_s3_findings findings;      /* as it stands in the store, or would */
    bool findings_stored, findings_foreign; /* foreign: of a later version, not to be replaced */
    atomic_uint workers;                    /* made so far */
    atomic_int sharing[2], busy[2]; /* of them: that ask for a share; [1]: those that read */
    atomic_int checksum;            /* enum cairn_store_s3_checksum in use */
    atomic_int upload_checksum;
    atomic_bool no_create_only;   /* If-None-Match was refused with 501 */
    atomic_int tls_fault;         /* enum cairn_http_tls_fault, of the last request */
    atomic_bool signs_payload;    /* as the setting says, or since a store asked for it */
    atomic_bool keys_work;        /* a signed request was taken */
    atomic_bool no_checksum_mode; /* a HEAD that asked for the checksum was refused for that */
    atomic_bool misstates;        /* checksums that it states are wrong: none is trusted */
    atomic_bool no_delete_many;   /* DeleteObjects is not there */
    atomic_bool keeps_versions;   /* a delete leaves the bytes under a version id */
    _Atomic int64_t clock_offset_ms;
    struct cairn_lock lock; /* store_state */
    struct {
        struct cairn_retry retry;
        char region[64];
        uint64_t line_free_at_us; /* bandwidth cap */
        uint64_t told_ms;         /* mono clock: when its failing was last told */
        uint64_t failed_ms;       /* mono clock: when a request last failed, and how */
        char failed[200];
    } locked;
};

/* How a HEAD is asked. A refused HEAD has no body that could name the cause, so it is asked again
 * with less, and at last as a GET of one byte, whose refusal has one. */
enum cairn_s3_head { CAIRN_S3_HEAD_FULL, CAIRN_S3_HEAD_PLAIN, CAIRN_S3_HEAD_BY_GET };

#define CAIRN_S3_TROUBLE_MS 5000 /* a store that fails for so long is named */

/* What the headers of one reply said. */
struct cairn_s3_seen {
    char etag[128], content_range[96], request_id[48], retry_after[64], date[64];
    char bucket_region[64], crc32c[24], checksum_type[24], checksum_algorithm[24], token[64];
    char version_id[64], delete_marker[8];
    bool has_age;
};

struct cairn_s3_task {
    TAILQ_ENTRY(cairn_s3_task) place; /* in one of the worker's lists */
    struct cairn_s3_worker *worker;
    struct cairn_store_request *request;
    struct cairn_http_request http;
    struct cairn_retry_ticket ticket;
    bool is_active;
    uint64_t deadline_ms, wait_until_ms; /* mono clock */
    /* One try. */
    struct cairn_buf url, lines, document, reply, prefix;
    const char *line[CAIRN_HTTP_HEADERS_MAX];
    struct cairn_sigv4_pair headers[CAIRN_S3_PAIRS_MAX], query[CAIRN_S3_PAIRS_MAX];
    size_t header_count, query_count;
    char range[64], number[16], marker[16], size_text[24], crc32c[16], md5[32];
    char time[CAIRN_SIGV4_TIME_BYTES], hash[2 * CAIRN_SHA256_BYTES + 1], region[64];
    int64_t sent_wall_ms, signed_offset_ms;
    uint64_t sent_mono_ms;
    uint64_t keys_generation;
    bool used_create_only, used_checksum, used_md5;
    const char *payload; /* what is signed of the body: a hash, or that there is none */
    bool confirmed;      /* the store said the CRC32C of the body, and is known to compare it */
    struct cairn_s3_seen seen;
    /* Over all tries. */
    struct cairn_xml_parts parts;
    uint32_t hedges, renewals, redirects, pages, tries, clock_fixes;
    uint32_t retried[CAIRN_RETRY_OUTCOMES];
    bool hedging, cancelling; /* why its HTTP request is being cancelled */
    bool may_be_applied;
    uint32_t signatures_refused, altered;          /* how often the store answered so */
    uint32_t malformed, disputes, disputed_crc32c; /* the last: what was stated how often */
    bool own_crc32c; /* the caller gave none: it was made of the body here */
    enum cairn_s3_head head;
    int head_refused; /* status of the HEAD that asked for the checksum; 0: it was not refused */
    bool one_by_one;  /* DELETE_MANY: by one DELETE a key; `deletion` is the one of this try */
    size_t deletion;
    uint32_t deletion_rounds;
    struct cairn_error last; /* of the last try that failed */
};

/* How long a part that was sent whole may wait for its answer before it is sent again: S3 answers a
 * part in 0.2 s, and one in a thousand in 5 s. No limit before 10 answers are known; then the 90th
 * percentile of those, 1 s at least; from then on the running mean of the waiting time plus a
 * margin. The margin starts at 0.7 s, grows by 0.1 s when more than 0.1 % of parts were sent again,
 * by 1 s when more than 1 % were, and at a limit of 5 s hedging stops: then the store is slow and
 * not unlucky. The numbers are those of AWS's own client (aws-c-s3). */
#define CAIRN_S3_HEDGE_FIRST 10

struct cairn_s3_hedge {
    uint64_t first_us[CAIRN_S3_HEDGE_FIRST];
    uint32_t answers; /* of the first ones, then it stays */
    uint64_t limit_first_us, mean_us, margin_us;
    uint64_t parts, resent; /* of the present margin */
    bool stopped;
};

TAILQ_HEAD(cairn_s3_tasks, cairn_s3_task);

/* How a worker is counted in its store. */
struct cairn_s3_share {
    bool counts, reads, busy;
};

struct cairn_s3_worker {
    struct cairn_store_worker base;
    struct cairn_s3_store *store;
    struct cairn_http_engine *engine;
    struct cairn_s3_tasks waiting, active;
    struct cairn_store_request *without_task; /* no memory for a task; linked by worker_private */
    struct cairn_sigv4_signer signer;
    uint64_t signer_generation, refused_generation;
    bool keys_expire;
    struct cairn_s3_hedge hedge;
    atomic_bool woken;
    struct cairn_s3_share share;
    bool reads; /* its last request was a GET */
    uint64_t finished_count;
    uint64_t fresh_wait_until_ms; /* requests that were never sent need not ask before */
};

static inline struct cairn_s3_store *cairn_s3_store_of(const struct cairn_s3_task *task) {
    return task->worker->store;
}
static inline uint64_t cairn_s3_mono_ms(const struct cairn_s3_store *store) {
    return store->clock->mono_ms(store->clock);
}

/* ---- probe.c ---- */

enum cairn_code cairn_s3_probe(struct cairn_store *base, const char *by, bool may_list,
                               char ret_from[160], struct cairn_error *err);
enum cairn_code cairn_s3_profile_save(struct cairn_store *base, bool *ret_written,
                                      struct cairn_error *err);
enum cairn_code cairn_s3_tidy(struct cairn_store *base, struct cairn_error *err);
/* Is what profile.json says no longer so? Found while running. */
bool cairn_s3_profile_wrong(struct cairn_s3_store *store);

/* ---- request.c ---- */

/* Keys and region that the signer uses, renewed where due; may wait for the network. */
enum cairn_code cairn_s3_signer_update(struct cairn_s3_store *store,
                                       struct cairn_sigv4_signer *signer, uint64_t *generation,
                                       uint64_t refused_generation, bool *ret_expires,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Everything of task->http for the next try: URL, headers, signature, body, destination. */
enum cairn_code cairn_s3_request_build(struct cairn_s3_task *task,
                                       struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_s3_presigned {
    const char *key;         /* NULL: the bucket itself */
    const char *subresource; /* "versioning"; NULL: none */
    uint32_t expires_s;
};
/* A URL for one GET, appended to ret; the signer is up to date. */
enum cairn_code cairn_s3_presign_get(struct cairn_s3_store *store,
                                     struct cairn_sigv4_signer *signer,
                                     const struct cairn_s3_presigned *what, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- reply.c ---- */

/* What an error code of a store means; an unknown one is judged by its HTTP status. */
enum cairn_s3_policy {
    CAIRN_S3_FINAL,     /* repeating changes nothing                    */
    CAIRN_S3_REPEAT,    /* the store failed                             */
    CAIRN_S3_ALTERED,   /* the body, or its checksum, arrived altered   */
    CAIRN_S3_SLOW_DOWN, /* the store wants less                         */
    CAIRN_S3_KEYS,      /* the keys have ended                          */
    CAIRN_S3_CLOCK,     /* our clock is off                             */
    CAIRN_S3_REGION,    /* the bucket is in another region              */
    CAIRN_S3_FEATURE,   /* it does not know something that was asked for */
};
struct cairn_s3_meaning {
    const char *name; /* of the store's code; NULL when judged by status */
    enum cairn_code code;
    enum cairn_s3_policy policy;
};
/* name may be "". */
struct cairn_s3_meaning cairn_s3_meaning_of(const char *name, int status);

enum cairn_s3_judgement {
    CAIRN_S3_DONE,      /* request->code and its outputs are final           */
    CAIRN_S3_FAILURE,   /* worth another try, if the retry policy agrees     */
    CAIRN_S3_SLOW,      /* the same, and the store asked for less            */
    CAIRN_S3_CORRECTED, /* something of ours was wrong; send again at once   */
    CAIRN_S3_MORE,      /* the next page of a list                           */
    CAIRN_S3_RESEND,    /* the body arrived altered: send again after a pause */
};
void cairn_s3_reply_header(struct cairn_http_request *http, struct cairn_view name,
                           struct cairn_view value);
/* For GET: refuses what is not exactly the asked range, before a byte is written. */
enum cairn_code cairn_s3_reply_check(struct cairn_http_request *http, struct cairn_error *err);
/* For GET with wants_crc32c: bytes that lie in `into` now. */
void cairn_s3_reply_bytes(struct cairn_http_request *http, const void *bytes, size_t size);
/* FAILURE and SLOW leave the code for the case that it was the last try. */
enum cairn_s3_judgement cairn_s3_reply_judge(struct cairn_s3_task *task);
/* Before the end of a PUT or PART that may have been applied: where the store has not confirmed the
 * checksum, the bytes are summed here, after they were sent (O8). */
void cairn_s3_reply_compare_sent(struct cairn_s3_task *task);
/* What Retry-After said, 0: nothing. */
uint64_t cairn_s3_reply_retry_after_ms(const struct cairn_s3_task *task);

/* The store's own token in the name of a page; NULL of NULL. */
const char *cairn_s3_page_token(const char *name);
/* Of a page that was just read, with its entries from `first` on: does the listing go on? Makes the
 * name of the next page out of the store's token. */
enum cairn_code cairn_s3_page_take(struct cairn_store_request *request, size_t first,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- request.c: many keys in one request ---- */

/* Is nothing left to ask for? Then *ret_error has the first refusal, or no code. */
bool cairn_s3_delete_decided(const struct cairn_store_request *request,
                             struct cairn_error *ret_error);
/* What a good answer said. CAIRN_OK in *ret_error: all are gone. */
enum cairn_s3_judgement cairn_s3_delete_take(struct cairn_s3_task *task,
                                             struct cairn_error *ret_error);
/* A refusal of the one key of this try is its own; true: it is noted, and *ret_judgement is what is
 * next, with *ret_error as above. */
bool cairn_s3_delete_refused(struct cairn_s3_task *task, const struct cairn_error *why,
                             bool is_final, enum cairn_s3_judgement *ret_judgement,
                             struct cairn_error *ret_error);
/* Is it DeleteObjects itself that the store does not do? Then the keys go one by one. */
bool cairn_s3_delete_split(struct cairn_s3_task *task, const char *code, bool is_final);

/* ---- worker.c ---- */

/* CAIRN_UNSUPPORTED: it is another kind of store. */
enum cairn_code cairn_s3_of(struct cairn_store *base, struct cairn_s3_store **ret,
                            struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_s3_worker_new(struct cairn_store *store, struct cairn_store_worker **ret,
                                    struct cairn_error *err);
void cairn_s3_worker_free(struct cairn_store_worker *worker);
void cairn_s3_submit(struct cairn_store_worker *worker, struct cairn_store_request *request);
void cairn_s3_cancel(struct cairn_store_worker *worker, struct cairn_store_request *request);
enum cairn_code cairn_s3_poll(struct cairn_store_worker *worker, uint32_t timeout_ms,
                              struct cairn_error *err);
void cairn_s3_wake(struct cairn_store_worker *worker);
uint32_t cairn_s3_appetite(const struct cairn_store_worker *worker);
/* An answer came this long after the last byte of its part was sent. */
void cairn_s3_hedge_answer(struct cairn_s3_hedge *hedge, uint64_t waited_us);
/* A part was given up and sent again. */
void cairn_s3_hedge_resent(struct cairn_s3_hedge *hedge);
/* UINT64_MAX: wait for ever. */
uint64_t cairn_s3_hedge_limit_us(const struct cairn_s3_hedge *hedge);
