/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: objects by key, in a folder or in an S3 bucket, behind one interface.
 *
 * Why:     everything above this line (multipart, journal, commit, restore, sweep) is the same for
 *          a folder and for S3, and is tested with faults injected here.
 * Promise: 1   a put or complete with `create` set never replaces an object: CAIRN_PRECONDITION
 *              where the store can say so (cairn_store_profile tells), and no key of ours is ever
 *              written with other content anyway.
 *          2   a get returns exactly the asked range of exactly one object, or fails; length and
 *              Content-Range are checked before done() is called with CAIRN_OK. Checksums are the
 *              caller's (block CRCs), since only it knows them.
 *          3   CAIRN_OK from put or complete means the bytes are durable and readable.
 *          4   done() is called exactly once per submitted request, on the thread that polls.
 *          5   the body and the destination memory are not touched after done().
 *          6   an unknown outcome (lost reply) is reported as such: `ambiguous` is set.
 *          7   a listing holds nothing but what begins with the prefix that was asked for, and its
 *              pages come to an end; a store that answers anything else is broken: CAIRN_STORE.
 *          8   a PUT or PART with has_crc32c is CAIRN_OK only when the bytes that went out have
 *              that checksum: by the word of a store that is known to compare it, or summed here
 *              after they were sent. CAIRN_SOURCE_CHANGED: the memory holds other bytes by now.
 *          9   a purge deletes only versions below the given prefix, or of exactly the given key,
 *              and only after a listing of that prefix alone has named them. No delete marker goes
 *              while a version is left there: what a delete has hidden is never seen again,
 *              whatever order the store works in and wherever this ends.
 *          10  what a purge tells to be left was listed after the deletions; a store that only
 *              says it has deleted is not believed. A version that may not be deleted (object lock,
 *              legal hold, no such right) keeps none of the others from going.
 * Limits:  parts 1..10,000; sizes as the profile says; keys of api/documents/keys.h.
 * Threads: struct cairn_store is immutable after open and shared (its renewals are locked inside);
 *          a struct cairn_store_worker belongs to one thread. _wake may be called by any.
 * Next:    store/dir/dir.c (folder), store/s3/s3.c, tests/support/fault/fault.c, store/multipart.h.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/buf.h"
#include "store/retry.h"

struct cairn_store;
struct cairn_store_worker;
struct cairn_store_ready;

/* What this store was found to do: set at open (folder), or from .cairn/profile.json or a probe of
 * the endpoint (S3: store/s3/probe.h), and corrected by what requests find later. */
/* Objects of which a worker is given up to profile.together_max at once, beyond its appetite. */
#define CAIRN_STORE_SMALL_BYTES (256 * CAIRN_KIB)
struct cairn_store_profile {
    bool over_network;       /* requests wait for it: many at once are worth having */
    bool read_is_durable;    /* what can be read is durable; else a HEAD with a token makes it so */
    bool leaves_temporaries; /* a small put that dies leaves a file, which UPLOADS lists */
    bool presigns;
    bool create_only_put; /* If-None-Match: * (or link()) is honoured */
    bool create_only_complete;
    bool part_checksum;  /* the store checks our CRC32C of each part */
    bool head_has_token; /* head returns the upload token */
    bool lists_uploads;
    bool lists_part_checksums; /* UPLOAD_PARTS says each part's CRC32C */
    uint64_t part_bytes_min;   /* of every part but the last */
    uint64_t part_bytes_max;
    uint32_t part_count_max;
    uint64_t object_bytes_max;
    uint32_t together_max; /* puts of small objects that one worker syncs together; 0: none */
    char note[256];        /* what is degraded and why, for people */
};

enum cairn_store_op {
#define OP(name, word, verb, writes) CAIRN_STORE_##name,
#include "store/ops.def"
#undef OP
};
#define CAIRN_STORE_OP_COUNT (CAIRN_STORE_VERSIONS + 1)
const char *cairn_store_op_word(enum cairn_store_op op); /* "put": for logs and scripts */
const char *cairn_store_op_verb(enum cairn_store_op op); /* "begin upload of": before a key */
bool cairn_store_op_writes(enum cairn_store_op op);
/* Is its key a prefix, and its answer a page of a listing? */
static inline bool cairn_store_op_lists(enum cairn_store_op op) {
    return op == CAIRN_STORE_LIST || op == CAIRN_STORE_UPLOADS || op == CAIRN_STORE_VERSIONS;
}

struct cairn_store_part {
    uint32_t number;
    uint64_t size_bytes;
    bool has_crc32c;
    uint32_t crc32c;
    char etag[128]; /* opaque */
};
struct cairn_store_entry {
    char *key;        /* owned by the listing */
    char *upload_id;  /* UPLOADS only */
    char *version_id; /* VERSIONS only */
    bool is_marker;   /* VERSIONS: a delete marker, which has no bytes */
    uint64_t size_bytes;
    int64_t modified_ms; /* the store's own clock; 0: not known, which is never "old" */
};
struct cairn_store_listing {
    struct cairn_store_entry *entries;
    size_t count, capacity;
    char *next_page; /* NULL: this was the last */
};
void cairn_store_listing_release(struct cairn_store_listing *listing);
/* For implementations, of each entry before it is handed out (store.h#7). */
enum cairn_code cairn_store_listed_check(const char *prefix, const struct cairn_store_entry *entry,
                                         struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_STORE_DELETIONS_MAX 1000 /* of one request: S3's bound */
/* Zeroed by the caller but for its key. One that is neither was not decided: the request says why,
 * and the same deletions may be submitted again. */
struct cairn_store_deletion {
    const char *key;
    const char *version_id; /* NULL: what a GET finds, which a bucket with versioning keeps */
    bool deleted;           /* or was never there */
    bool refused;           /* for good; it keeps none of the others */
    enum cairn_code code;   /* what was last said of this key, if anything was */
    char reason[120];
};

#define CAIRN_UPLOAD_ID_BYTES_MAX 1024

struct cairn_store_request {
    /* set by the caller; valid until done() */
    enum cairn_store_op op;
    const char *key;
    bool create;
    const char *token; /* our upload token (UUID text), kept with the object */
    struct cairn_view body;
    bool has_crc32c;
    uint32_t crc32c;         /* of body (PUT, PART) or of the whole object (COMPLETE) */
    const uint8_t *md5;      /* 16 bytes or NULL: for stores that check only that */
    uint64_t offset, length; /* length with up_to: afterwards what there was, if that is less */
    void *into;              /* GET destination, length bytes */
    bool up_to;              /* GET: an object that ends before `length` is no error */
    bool wants_crc32c; /* GET: also the checksum of these bytes, made while they are in the cache */
    const char *upload_id_in;
    uint32_t part_number;
    struct cairn_store_part *parts; /* COMPLETE: in; UPLOAD_PARTS: out, capacity in part_count */
    size_t part_count;
    struct cairn_store_deletion *deletions; /* DELETE_MANY: in and out */
    size_t deletion_count;                  /* up to CAIRN_STORE_DELETIONS_MAX */
    /* PART without a body: the store takes the bytes itself, `length` from `offset` on, out of this
     * object, while it has this ETag. copy_store: one that cairn_store_copies_from names. */
    struct cairn_store *copy_store;
    const char *copy_key, *copy_etag;
    const char *page;      /* LIST, UPLOADS: NULL = first */
    uint32_t page_entries; /* LIST in S3: on a page at most; 0: as many as the store gives */
    struct cairn_store_listing *listing;
    uint64_t deadline_ms;  /* mono clock; 0 = the store's own default */
    bool settles;          /* PUT, PART: an answer that states another checksum again and again is
                     `disputed`, and the caller reads the object back */
    bool fresh_connection; /* never over a kept connection: bytes came wrong over one (S17) */
    void (*done)(struct cairn_store_request *request);
    void *owner;
    /* set before done() */
    enum cairn_code code;
    bool disputed;  /* OK, but the store states another checksum than our memory has */
    bool ambiguous; /* it may have been applied: settle by HEAD (rule R3) */
    char etag[128];
    char upload_id[CAIRN_UPLOAD_ID_BYTES_MAX];
    uint64_t object_bytes;  /* HEAD, GET: size of the whole object */
    uint32_t got_crc32c;    /* GET with wants_crc32c */
    char object_token[64];  /* HEAD: "" when the store keeps none */
    bool object_has_crc32c; /* HEAD; of a copied PART what the store has made of its bytes */
    uint32_t object_crc32c;
    /* PUT, PART over a network, of the request that was answered well: how long its body was on the
     * way, and how long the store took beside that, to take it and to answer. 0 both: not known. */
    uint64_t link_us, store_us;
    uint32_t tries;                         /* requests that were sent for this one */
    uint32_t retried[CAIRN_RETRY_OUTCOMES]; /* those beyond the first, by what made each */
    struct cairn_error error;
    void *worker_private;
};

#define CAIRN_STORE_FILE_MODE 0640
struct cairn_store_options {
    const char *url; /* store/schemes.def */
    bool read_only;
    unsigned file_mode;                      /* of a folder's files; 0: CAIRN_STORE_FILE_MODE */
    const struct cairn_clock *clock;         /* NULL: real */
    const struct cairn_store_s3_options *s3; /* NULL: from the environment alone; store/s3/s3.h */
};
void cairn_store_free(struct cairn_store *store); /* all workers must be gone */
CAIRN_DEFINE_AUTO_PTR(store);
const struct cairn_store_profile *cairn_store_profile(const struct cairn_store *store);
const char *cairn_store_url(const struct cairn_store *store); /* no secret in it */

/* Is what the URL names no longer what was opened? A folder whose path is another folder by device
 * and inode: a mount came or went. Requests keep to what was opened. Any thread. */
bool cairn_store_moved(const struct cairn_store *store);
/* Can that ever be? Then a write may land in another store, and a look comes before it. */
bool cairn_store_may_move(const struct cairn_store *store);
/* Is it an error of a mount that is away, not of the file? The same file may be good again, or gone
 * with all that was not synced. */
bool cairn_store_is_away(int os_errno);
/* Opens what the URL names now, for all that is submitted from now on. One thread at a time. */
enum cairn_code cairn_store_follow(struct cairn_store *store,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what a store says of itself; any thread, but for _probe and _profile_save ---- */

/* Where its keys come from, for an operator: "environment", "container endpoint, until ..."; asks
 * for them when there are none yet. "" where it has none. */
enum cairn_code cairn_store_keys(struct cairn_store *store, char ret_text[224],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Do they come from a file that others on this machine may read? "FILE has mode 0644" */
bool cairn_store_keys_exposed(struct cairn_store *store, char ret_text[540]);
/* When the keys in use end, by the wall clock of their source; 0: never, or none were used yet. */
int64_t cairn_store_keys_until_ms(struct cairn_store *store);
/* Sets the profile by what is known of it or by trying; before other threads use the store.
 * ret_from: where it is known from, "" where nothing had to be asked. may_list: keys that should be
 * able to. */
enum cairn_code cairn_store_probe(struct cairn_store *store, const char *by, bool may_list,
                                  char ret_from[160], struct cairn_error *err) CAIRN_MUST_USE;
/* Writes what is known into the store, for others, if that says anything else. One thread. */
enum cairn_code cairn_store_profile_save(struct cairn_store *store, bool *ret_written,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* What the store turned out not to do, found while running. */
struct cairn_store_health {
    bool degraded, profile_wrong; /* the last: what was written for others is no longer so */
    char text[400];
    uint64_t failing_ms; /* for how long no request has worked, 5 s or longer; 0: it works */
    char failing[200];   /* what the last one was answered */
};
void cairn_store_health(struct cairn_store *store, struct cairn_store_health *ret);
/* What was read back was right though the store states another checksum: from now on none of its
 * checksums is trusted. true: it was not known before. */
bool cairn_store_misstates(struct cairn_store *store);
/* Does a delete leave the bytes under a version id, until that is deleted too? Known from the probe
 * by keys that may list, and from what replies say. Any thread. store/store.h frees them. */
bool cairn_store_keeps_versions(struct cairn_store *store);
/* Removes what tests of the store left behind an hour ago or earlier: of a process that died or may
 * not delete. */
enum cairn_code cairn_store_tidy(struct cairn_store *store, struct cairn_error *err) CAIRN_MUST_USE;
/* A URL that lets its holder GET this one key until it ends; never longer than the keys live.
 * ret_expires_s may be NULL. CAIRN_UNSUPPORTED where the profile does not say that it presigns. */
enum cairn_code cairn_store_presign(struct cairn_store *store, const char *key, uint32_t expires_s,
                                    struct cairn_buf *ret_url, uint32_t *ret_expires_s,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* How long a store is waited for that has what another one has, too: its own default is minutes. */
#define CAIRN_STORE_ELSEWHERE_MS 10000
/* Can it copy out of the other one without this process (PART with copy_store), and say the CRC32C
 * of what it copied? Two buckets, or prefixes, of one S3 by the same keys. Any thread. */
bool cairn_store_copies_from(struct cairn_store *store, struct cairn_store *source);

enum cairn_code cairn_store_worker_new(struct cairn_store *store, struct cairn_store_worker **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_store_worker_free(struct cairn_store_worker *worker); /* cancels what is under way */
CAIRN_DEFINE_AUTO_PTR(store_worker);
/* Never blocks and never calls done() itself. */
void cairn_store_submit(struct cairn_store_worker *worker, struct cairn_store_request *request);
/* done() is called before this returns, with CAIRN_CANCELLED unless it was just finished. */
void cairn_store_cancel(struct cairn_store_worker *worker, struct cairn_store_request *request);
/* Do some work; returns after at least one completion, a wake, or timeout_ms. A folder store does
 * at most 4 MiB of I/O between two looks at its queue. */
enum cairn_code cairn_store_poll(struct cairn_store_worker *worker, uint32_t timeout_ms,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void cairn_store_wake(struct cairn_store_worker *worker);
/* How many requests are worth having under way at once on this worker now (adaptive for S3). */
uint32_t cairn_store_appetite(const struct cairn_store_worker *worker);

typedef void cairn_store_failed(void *owner, const struct cairn_error *why);
/* failed() is called after each cairn_store_perform that failed, by its thread; it is set once, and
 * only wakes somebody. */
void cairn_store_set_failed(struct cairn_store *store, cairn_store_failed *failed, void *owner);

/* ---- blocking helpers over a worker, for small objects ---- */
enum cairn_code cairn_store_perform(struct cairn_store_worker *worker,
                                    struct cairn_store_request *request,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_put_small(struct cairn_store_worker *worker, const char *key,
                                      struct cairn_view body, bool create,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Create if absent; if present it must be equal byte for byte, else CAIRN_CONFLICT (rule Q22). */
enum cairn_code cairn_store_put_same(struct cairn_store_worker *worker, const char *key,
                                     struct cairn_view body,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Whole object; larger than ret's limit is CAIRN_TOO_LARGE. */
enum cairn_code cairn_store_get_small(struct cairn_store_worker *worker, const char *key,
                                      struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The same with a deadline for all its requests (mono clock; 0: the store's default for each). */
enum cairn_code cairn_store_get_small_by(struct cairn_store_worker *worker, const char *key,
                                         uint64_t deadline_ms, struct cairn_buf *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_delete(struct cairn_store_worker *worker, const char *key,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Any number from 0 to CAIRN_STORE_DELETIONS_MAX. common: what the keys begin with. */
enum cairn_code cairn_store_delete_many(struct cairn_store_worker *worker, const char *common,
                                        struct cairn_store_deletion *deletions, size_t count,
                                        struct cairn_error *err) CAIRN_MUST_USE;

/* ---- for implementations (dir, s3, fault) ---- */
struct cairn_store_vtable {
    void (*free)(struct cairn_store *store);
    enum cairn_code (*worker_new)(struct cairn_store *store, struct cairn_store_worker **ret,
                                  struct cairn_error *err);
    void (*worker_free)(struct cairn_store_worker *worker);
    void (*submit)(struct cairn_store_worker *worker, struct cairn_store_request *request);
    void (*cancel)(struct cairn_store_worker *worker, struct cairn_store_request *request);
    enum cairn_code (*poll)(struct cairn_store_worker *worker, uint32_t timeout_ms,
                            struct cairn_error *err);
    void (*wake)(struct cairn_store_worker *worker);
    uint32_t (*appetite)(const struct cairn_store_worker *worker);
    bool (*moved)(const struct cairn_store *store); /* both NULL: it cannot move */
    enum cairn_code (*follow)(struct cairn_store *store, struct cairn_error *err);
    /* What a store says of itself; each NULL where it has nothing to say. */
    enum cairn_code (*keys)(struct cairn_store *store, char ret_text[224], struct cairn_error *err);
    bool (*keys_exposed)(struct cairn_store *store, char ret_text[540]);
    int64_t (*keys_until_ms)(struct cairn_store *store);
    enum cairn_code (*probe)(struct cairn_store *store, const char *by, bool may_list,
                             char ret_from[160], struct cairn_error *err);
    enum cairn_code (*profile_save)(struct cairn_store *store, bool *ret_written,
                                    struct cairn_error *err);
    void (*health)(struct cairn_store *store, struct cairn_store_health *ret);
    bool (*misstates)(struct cairn_store *store);
    bool (*keeps_versions)(struct cairn_store *store);
    bool (*copies_from)(struct cairn_store *store, struct cairn_store *source);
    enum cairn_code (*tidy)(struct cairn_store *store, struct cairn_error *err);
    enum cairn_code (*presign)(struct cairn_store *store, const char *key, uint32_t expires_s,
                               struct cairn_buf *ret_url, uint32_t *ret_expires_s,
                               struct cairn_error *err);
    bool (*ready_open)(struct cairn_store *store, const char *key,
                       struct cairn_store_ready *ret); /* NULL: nothing is ready (range.h) */
};
struct cairn_store {
    const struct cairn_store_vtable *vtable;
    struct cairn_store_profile profile;
    char url[1024];
    cairn_store_failed *_Atomic failed; /* after failed_owner is set */
    void *failed_owner;
};
struct cairn_store_worker {
    struct cairn_store *store;
    uint32_t patience_ms; /* for requests without a deadline; 0 = the store's own default */
};
#ifdef CAIRN_CRASHPOINTS
/* A build for tests may link it: what a daemon has opened is wrapped in a store that fails on
 * request (tests/support/fault/hook.c). */
enum cairn_code cairn_store_test_wrap(struct cairn_store *take_store, struct cairn_store **ret,
                                      struct cairn_error *err) __attribute__((weak));
#endif

/* ---- the bytes that deletes have left in a bucket with versioning ---- */

/* There a delete puts a marker before an object, and the object goes on costing money until it is
 * deleted by its version id. */

struct cairn_store_purge {
    const char *prefix; /* or, with is_key, one whole key */
    bool is_key;
    bool (*spares)(const char *key); /* these keep all their versions; NULL: none does */
    int64_t before_ms;               /* only what is older, by the store's clock; 0: all */
    /* set by the purge */
    uint64_t freed_objects, freed_bytes;
    uint64_t left_objects, left_bytes; /* markers are none */
    bool uncounted; /* these keys may not list versions, or delete none: how much is not known */
    enum cairn_code why; /* of the first that was left; CAIRN_OK: nothing was */
    char reason[160];    /* as the store worded it */
};
/* Left or not, CAIRN_OK: the store has answered. Nothing is asked where cairn_store_keeps_versions
 * is false. */
enum cairn_code cairn_store_purge(struct cairn_store_worker *worker,
                                  struct cairn_store_purge *purge,
                                  struct cairn_error *err) CAIRN_MUST_USE;
