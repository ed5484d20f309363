/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the structs that the parts of the S3 store share; for this room alone.
 *
 * Why:     building a request, judging its reply and scheduling requests are three subjects.
 * Promise: 1   a task belongs to one worker from submit to done().
 *          2   state shared by workers is atomic, in `locked`, or immutable after open.
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

/* How the store uses the checksum algorithm of an upload. */
enum cairn_s3_upload_checksum {
    CAIRN_S3_UPLOAD_IGNORED,   /* or unknown: Complete carries no checksum */
    CAIRN_S3_UPLOAD_COMPOSITE, /* Complete repeats each part's */
    CAIRN_S3_UPLOAD_FULL,      /* Complete carries the whole object's */
};

enum cairn_s3_condition { CAIRN_S3_HONOURED, CAIRN_S3_IGNORED, CAIRN_S3_REFUSED };

/* Contents of profile.json; see store/s3/probe.h. */
struct cairn_s3_findings {
    char endpoint[700], region[64], addressing[8], by[16];
    int64_t tested_ms;                   /* wall clock of the tester; 0: never tested */
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
    struct cairn_s3_findings findings;      /* as stored, or to be stored */
    bool findings_stored, findings_foreign; /* foreign: of a later version, must not be replaced */
    atomic_uint workers;                    /* created so far */
    atomic_int sharing[2], busy[2];         /* workers that need a share; [1]: readers */
    atomic_int checksum;                    /* enum cairn_store_s3_checksum in use */
    atomic_int upload_checksum;
    atomic_bool no_create_only;   /* If-None-Match was refused with 501 */
    atomic_int tls_fault;         /* enum cairn_http_tls_fault of the last request */
    atomic_bool signs_payload;    /* by the setting, or because a store required it */
    atomic_bool keys_work;        /* a signed request succeeded */
    atomic_bool no_checksum_mode; /* a HEAD was refused for requesting the checksum */
    atomic_bool misstates;        /* states wrong checksums: ignore them */
    atomic_bool no_delete_many;   /* DeleteObjects is not supported */
    atomic_bool keeps_versions;   /* a delete keeps the bytes under a version id */
    _Atomic int64_t clock_offset_ms;
    struct cairn_lock lock; /* store_state */
    struct {
        struct cairn_retry retry;
        char region[64];
        uint64_t line_free_at_us; /* bandwidth cap */
        uint64_t told_ms;         /* mono clock: when its trouble was last reported */
        uint64_t failed_ms;       /* mono clock: last failed request, and its error */
        char failed[200];
    } locked;
};

/* Forms of a HEAD. A refused HEAD has no body to name the cause, so it is retried with less, and
 * finally as a GET of one byte, whose refusal has a body. */
enum cairn_s3_head { CAIRN_S3_HEAD_FULL, CAIRN_S3_HEAD_PLAIN, CAIRN_S3_HEAD_BY_GET };

#define CAIRN_S3_TROUBLE_MS 5000 /* trouble for this long is reported */

/* Contents of one reply's headers. */
struct cairn_s3_seen {
    char etag[128], content_range[96], request_id[48], retry_after[64], date[64];
    char bucket_region[64], crc32c[24], checksum_type[24], checksum_algorithm[24], token[64];
    char version_id[64], delete_marker[8];
    bool has_age;
};

struct cairn_s3_task {
    TAILQ_ENTRY(cairn_s3_task) place;
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
    const char *payload; /* the signed payload: a hash, or UNSIGNED */
    bool confirmed;      /* the store, which is known to compare it, stated the body's CRC32C */
    struct cairn_s3_seen seen;
    /* Over all tries. */
    struct cairn_xml_parts parts;
    uint32_t hedges, renewals, redirects, pages, tries, clock_fixes;
    uint32_t retried[CAIRN_RETRY_OUTCOMES];
    bool hedging, cancelling; /* why its HTTP request is being cancelled */
    bool may_be_applied;
    uint32_t signatures_refused, altered;          /* number of such answers */
    uint32_t malformed, disputes, disputed_crc32c; /* the last: stated `disputes` times */
    bool own_crc32c; /* the caller gave none: summed here from the body */
    enum cairn_s3_head head;
    int head_refused; /* status of a refused HEAD for the checksum; 0: none */
    bool one_by_one;  /* DELETE_MANY: one DELETE per key; `deletion` is this try's */
    size_t deletion;
    uint32_t deletion_rounds;
    struct cairn_error last; /* of the last failed try */
};

/* Limit of the wait for the reply to a sent part before the part is sent again: S3 answers a part
 * in 0.2 s, and one in a thousand in 5 s. No limit before 10 answers are known; then their 90th
 * percentile, at least 1 s; from then on the running mean plus a margin. The margin starts at 0.7
 * s, grows by 0.1 s when more than 0.1 % of parts were sent again, by 1 s when more than 1 % were;
 * at a limit of 5 s hedging stops, since the store itself is slow. The numbers are those of AWS's
 * own client (aws-c-s3). */
#define CAIRN_S3_HEDGE_FIRST 10

struct cairn_s3_hedge {
    uint64_t first_us[CAIRN_S3_HEDGE_FIRST];
    uint32_t answers; /* up to CAIRN_S3_HEDGE_FIRST */
    uint64_t limit_first_us, mean_us, margin_us;
    uint64_t parts, resent; /* under the present margin */
    bool stopped;
};

TAILQ_HEAD(cairn_s3_tasks, cairn_s3_task);

/* How a worker counts in its store. */
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
    uint64_t fresh_wait_until_ms; /* requests never sent need not call _admit before */
};

static inline struct cairn_s3_store *cairn_s3_store_of(const struct cairn_s3_task *task) {
    return task->worker->store;
}
static inline uint64_t cairn_s3_mono_ms(const struct cairn_s3_store *store) {
    return store->clock->mono_ms(store->clock);
}

enum cairn_code cairn_s3_probe(struct cairn_store *base, const char *by, bool may_list,
                               char ret_from[160], struct cairn_error *err);
enum cairn_code cairn_s3_profile_save(struct cairn_store *base, bool *ret_written,
                                      struct cairn_error *err);
enum cairn_code cairn_s3_tidy(struct cairn_store *base, struct cairn_error *err);
/* True if profile.json is out of date. Found while running. */
bool cairn_s3_profile_wrong(struct cairn_s3_store *store);

/* Updates the signer's keys and region where due; may wait for the network. */
enum cairn_code cairn_s3_signer_update(struct cairn_s3_store *store,
                                       struct cairn_sigv4_signer *signer, uint64_t *generation,
                                       uint64_t refused_generation, bool *ret_expires,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Fills task->http for the next try: URL, headers, signature, body, destination. */
enum cairn_code cairn_s3_request_build(struct cairn_s3_task *task,
                                       struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_s3_presigned {
    const char *key;         /* NULL: the bucket itself */
    const char *subresource; /* "versioning"; NULL: none */
    uint32_t expires_s;
};
/* Appends a URL for one GET to ret; the signer must be up to date. */
enum cairn_code cairn_s3_presign_get(struct cairn_s3_store *store,
                                     struct cairn_sigv4_signer *signer,
                                     const struct cairn_s3_presigned *what, struct cairn_buf *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* What to do about a store's error code; an unknown code is judged by its HTTP status. */
enum cairn_s3_policy {
    CAIRN_S3_FINAL,     /* a repeat changes nothing */
    CAIRN_S3_REPEAT,    /* the store failed */
    CAIRN_S3_ALTERED,   /* the body or its checksum arrived altered */
    CAIRN_S3_SLOW_DOWN, /* the store asks for less load */
    CAIRN_S3_KEYS,      /* the keys have expired */
    CAIRN_S3_CLOCK,     /* our clock is off */
    CAIRN_S3_REGION,    /* the bucket is in another region */
    CAIRN_S3_FEATURE,   /* the store lacks a requested feature */
};
struct cairn_s3_meaning {
    const char *name; /* the store's code; NULL when judged by status */
    enum cairn_code code;
    enum cairn_s3_policy policy;
};
/* name may be "". */
struct cairn_s3_meaning cairn_s3_meaning_of(const char *name, int status);

enum cairn_s3_judgement {
    CAIRN_S3_DONE,      /* request->code and its outputs are final */
    CAIRN_S3_FAILURE,   /* retry, if the retry policy agrees */
    CAIRN_S3_SLOW,      /* as FAILURE, and the store asked for less load */
    CAIRN_S3_CORRECTED, /* a mistake of ours was corrected: send again at once */
    CAIRN_S3_MORE,      /* the next page of a list */
    CAIRN_S3_RESEND,    /* the body arrived altered: send again after a pause */
};
void cairn_s3_reply_header(struct cairn_http_request *http, struct cairn_view name,
                           struct cairn_view value);
/* For GET: refuses any other range than requested, before a byte is written. */
enum cairn_code cairn_s3_reply_check(struct cairn_http_request *http, struct cairn_error *err);
/* For GET with wants_crc32c: sums bytes that were written to `into`. */
void cairn_s3_reply_bytes(struct cairn_http_request *http, const void *bytes, size_t size);
/* FAILURE and SLOW set the code for the case that no try is left. */
enum cairn_s3_judgement cairn_s3_reply_judge(struct cairn_s3_task *task);
/* Call before a PUT or PART ends: sums the sent bytes unless the store has confirmed them (O8). */
void cairn_s3_reply_compare_sent(struct cairn_s3_task *task);
/* The reply's Retry-After; 0: none. */
uint64_t cairn_s3_reply_retry_after_ms(const struct cairn_s3_task *task);

/* The store's own token in the name of a page; NULL of NULL. */
const char *cairn_s3_page_token(const char *name);
/* Ends a page with entries from `first` on: names the next page by the store's token. */
enum cairn_code cairn_s3_page_take(struct cairn_store_request *request, size_t first,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- request.c: many keys in one request ---- */

/* True if no deletion is undecided; *ret_error has the first refusal, or no code. */
bool cairn_s3_delete_decided(const struct cairn_store_request *request,
                             struct cairn_error *ret_error);
/* Judges a good answer. CAIRN_OK in *ret_error: all are gone. */
enum cairn_s3_judgement cairn_s3_delete_take(struct cairn_s3_task *task,
                                             struct cairn_error *ret_error);
/* True: the refusal concerns this try's key and is recorded; *ret_judgement is the next step. */
bool cairn_s3_delete_refused(struct cairn_s3_task *task, const struct cairn_error *why,
                             bool is_final, enum cairn_s3_judgement *ret_judgement,
                             struct cairn_error *ret_error);
/* True if the store lacks DeleteObjects itself: the keys are then deleted one by one. */
bool cairn_s3_delete_split(struct cairn_s3_task *task, const char *code, bool is_final);

/* CAIRN_UNSUPPORTED: another kind of store. */
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
/* Records how long after its last byte a part was answered. */
void cairn_s3_hedge_answer(struct cairn_s3_hedge *hedge, uint64_t waited_us);
/* Records that a part was abandoned and sent again. */
void cairn_s3_hedge_resent(struct cairn_s3_hedge *hedge);
/* UINT64_MAX: no limit. */
uint64_t cairn_s3_hedge_limit_us(const struct cairn_s3_hedge *hedge);
