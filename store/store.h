/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store: objects by key, in a folder or in an S3 bucket, behind one interface.
 *
 * Why:     the code above (multipart, journal, commit, restore, sweep) is the same for a folder and
 *          for S3, and is tested with faults injected here.
 * Promise: 1   a put or complete with `create` set never replaces an object: CAIRN_PRECONDITION
 *              where the store supports it (cairn_store_profile); our keys never get other content
 *              anyway.
 *          2   a get returns exactly the requested range of one object, or fails; length and
 *              Content-Range are checked before CAIRN_OK. Block CRCs are the caller's.
 *          3   CAIRN_OK from put or complete means the bytes are durable and readable.
 *          4   done() is called exactly once per submitted request, on the thread that polls.
 *          5   the body and the destination memory are not touched after done().
 *          6   an unknown outcome (lost reply) sets `ambiguous`.
 *          7   a listing holds only keys below its prefix, and its pages end; a store that answers
 *              otherwise is broken: CAIRN_STORE.
 *          8   a PUT or PART with has_crc32c is CAIRN_OK only when the sent bytes have that
 *              checksum: stated by a store known to compare it, or summed here after sending.
 *              CAIRN_SOURCE_CHANGED: the memory has changed meanwhile.
 *          9   a purge deletes only versions below the given prefix, or of exactly the given key,
 *              that a listing of that prefix has named. No delete marker goes while a version is
 *              left: a deleted object never reappears, in whatever order the store works and
 *              wherever the purge stops.
 *          10  what a purge reports as left was listed after the deletions; a store's own "deleted"
 *              is not trusted. A version that may not be deleted (object lock, legal hold, no
 *              permission) does not keep the others from being deleted.
 * Limits:  parts 1..10,000; sizes as the profile says; keys of api/documents/keys.h.
 * Threads: struct cairn_store is immutable after open and shared (its renewals are locked inside);
 *          a struct cairn_store_worker belongs to one thread; any thread may call _wake.
 * Next:    store/dir/dir.c (folder), store/s3/s3.c, tests/support/fault/fault.c, store/multipart.h.
 */
#pragma once

#include "api/documents/keys.h"
#include "common/buf.h"
#include "store/retry.h"

struct cairn_store;
struct cairn_store_worker;
struct cairn_store_ready;

/* A store's abilities: set at open (folder), or from .cairn/profile.json or a probe of the endpoint
 * (S3: store/s3/probe.h), and corrected by later replies. */
/* A worker gets up to profile.together_max objects of this size, beyond its appetite. */
#define CAIRN_STORE_SMALL_BYTES (256 * CAIRN_KIB)
struct cairn_store_profile {
    bool over_network;       /* requests wait for the network: many at once pay */
    bool read_is_durable;    /* readable means durable; else HEAD with a token syncs */
    bool leaves_temporaries; /* a small put cut short leaves a file that UPLOADS lists */
    bool presigns;
    bool create_only_put; /* If-None-Match: * (or link()) is honoured */
    bool create_only_complete;
    bool part_checksum;  /* the store compares our CRC32C of each part */
    bool head_has_token; /* head returns the upload token */
    bool lists_uploads;
    bool lists_part_checksums; /* UPLOAD_PARTS says each part's CRC32C */
    uint64_t part_bytes_min;   /* of every part but the last */
    uint64_t part_bytes_max;
    uint32_t part_count_max;
    uint64_t object_bytes_max;
    uint32_t together_max; /* small puts that one worker syncs together; 0: none */
    char note[256];        /* what is degraded and why, for people */
};

enum cairn_store_op {
#define OP(name, word, verb, writes) CAIRN_STORE_##name,
#include "store/ops.def"
#undef OP
};
#define CAIRN_STORE_OP_COUNT (CAIRN_STORE_VERSIONS + 1)
const char *cairn_store_op_word(enum cairn_store_op op); /* "put", for logs and scripts */
const char *cairn_store_op_verb(enum cairn_store_op op); /* "begin upload of", before a key */
bool cairn_store_op_writes(enum cairn_store_op op);
/* True if the operation's key is a prefix and its answer a page of a listing. */
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
    int64_t modified_ms; /* by the store's clock; 0: unknown, never "old" */
};
struct cairn_store_listing {
    struct cairn_store_entry *entries;
    size_t count, capacity;
    char *next_page; /* NULL: last page */
};
void cairn_store_listing_release(struct cairn_store_listing *listing);
/* For implementations: checks an entry before it is returned (store.h#7). */
enum cairn_code cairn_store_listed_check(const char *prefix, const struct cairn_store_entry *entry,
                                         struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_STORE_DELETIONS_MAX 1000 /* S3's bound for one request */
/* The caller zeroes all but the key. Neither deleted nor refused: undecided; the request's error
 * says why, and the same deletions may be submitted again. */
struct cairn_store_deletion {
    const char *key;
    const char *version_id; /* NULL: the current version (versioning keeps its bytes) */
    bool deleted;           /* or was never there */
    bool refused;           /* permanently; the other deletions continue */
    enum cairn_code code;   /* the last answer for this key */
    char reason[120];
};

#define CAIRN_UPLOAD_ID_BYTES_MAX 1024

struct cairn_store_request {
    /* set by the caller; valid until done() */
    enum cairn_store_op op;
    const char *key;
    bool create;
    bool makes_room;   /* PUT, small: precedes a deletion; a full folder spends its ballast on it */
    const char *token; /* our upload token (UUID text), kept with the object */
    struct cairn_view body;
    bool has_crc32c;
    uint32_t crc32c;         /* of body (PUT, PART) or of the whole object (COMPLETE) */
    const uint8_t *md5;      /* 16 bytes or NULL: for stores that check only MD5 */
    uint64_t offset, length; /* GET with up_to: done() finds the shorter length */
    void *into;              /* GET destination, length bytes */
    bool up_to;              /* GET: an object shorter than `length` is no error */
    bool wants_crc32c;       /* GET: compute the checksum while the bytes are in the cache */
    const char *upload_id_in;
    uint32_t part_number;
    struct cairn_store_part *parts; /* COMPLETE: in; UPLOAD_PARTS: out, capacity in part_count */
    size_t part_count;
    struct cairn_store_deletion *deletions; /* DELETE_MANY: in and out */
    size_t deletion_count;                  /* up to CAIRN_STORE_DELETIONS_MAX */
    /* PART without a body: the store copies `length` bytes from `offset` on out of this object,
     * while its ETag is copy_etag. copy_store must satisfy cairn_store_copies_from. */
    struct cairn_store *copy_store;
    const char *copy_key, *copy_etag;
    const char *page;      /* LIST, UPLOADS: NULL = first */
    uint32_t page_entries; /* LIST in S3: bound of a page; 0: the store's */
    struct cairn_store_listing *listing;
    /* LIST: the only_count keys of interest, sorted, all below the prefix; NULL: all. A store may
     * leave others out of the listing. */
    const char *(*only)(const void *owner, size_t at);
    const void *only_owner;
    size_t only_count;
    uint64_t deadline_ms;  /* mono clock; 0 = the store's own default */
    bool settles;          /* PUT, PART: repeated wrong checksums make it `disputed`: read back */
    bool fresh_connection; /* use no kept connection: one has delivered wrong bytes (S17) */
    void (*done)(struct cairn_store_request *request);
    void *owner;
    /* set before done() */
    enum cairn_code code;
    bool disputed;  /* OK, but the store states another checksum than ours */
    bool ambiguous; /* may have been applied: settle by HEAD (rule R3) */
    char etag[128];
    char upload_id[CAIRN_UPLOAD_ID_BYTES_MAX];
    uint64_t object_bytes;  /* HEAD, GET: size of the whole object */
    uint32_t got_crc32c;    /* GET with wants_crc32c */
    char object_token[64];  /* HEAD: "" when the store keeps no token */
    bool object_has_crc32c; /* HEAD; copied PART: the store's CRC32C of the copy */
    uint32_t object_crc32c;
    /* PUT, PART over a network: time to send the body; the store's own time. 0 both: unknown. */
    uint64_t link_us, store_us;
    uint32_t tries;                         /* requests sent */
    uint32_t retried[CAIRN_RETRY_OUTCOMES]; /* retries, by cause */
    struct cairn_error error;
    void *worker_private;
};

#define CAIRN_STORE_FILE_MODE 0640
struct cairn_store_options {
    const char *url; /* store/schemes.def */
    bool read_only;
    unsigned file_mode;                      /* of a folder's files; 0: CAIRN_STORE_FILE_MODE */
    const struct cairn_clock *clock;         /* NULL: real */
    const struct cairn_store_s3_options *s3; /* NULL: from the environment; store/s3/s3.h */
};
void cairn_store_free(struct cairn_store *store); /* all workers must be gone */
CAIRN_DEFINE_AUTO_PTR(store);
const struct cairn_store_profile *cairn_store_profile(const struct cairn_store *store);
const char *cairn_store_url(const struct cairn_store *store); /* without secrets */

/* True if the URL now leads to another folder (by device and inode) than was opened: a mount came
 * or went. Requests stay in the opened folder. Any thread. */
bool cairn_store_moved(const struct cairn_store *store);
/* True if cairn_store_moved can become true: then a check must precede writes. */
bool cairn_store_may_move(const struct cairn_store *store);
/* True for an error of a missing mount; the file may return, without its unsynced bytes. */
bool cairn_store_is_away(int os_errno);
/* Reopens the URL, for all requests submitted from now on. One thread at a time. */
enum cairn_code cairn_store_follow(struct cairn_store *store,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- a store's condition; any thread, but for _probe and _profile_save ---- */

/* Origin of the credentials, for an operator: "environment", "container endpoint, until ...";
 * fetches them if there are none yet. "" for a store without credentials. */
enum cairn_code cairn_store_keys(struct cairn_store *store, char ret_text[224],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* True if others on this machine may read the credentials' file: "FILE has mode 0644". */
bool cairn_store_keys_exposed(struct cairn_store *store, char ret_text[540]);
/* Expiry of the credentials in use, by their source's wall clock; 0: never, or none used yet. */
int64_t cairn_store_keys_until_ms(struct cairn_store *store);
/* Sets the profile from known findings or by tests; before other threads use the store. ret_from:
 * their origin, "" if none was needed. may_list: listing should be permitted. */
enum cairn_code cairn_store_probe(struct cairn_store *store, const char *by, bool may_list,
                                  char ret_from[160], struct cairn_error *err) CAIRN_MUST_USE;
/* Writes the findings into the store, for others, if they differ. One thread. */
enum cairn_code cairn_store_profile_save(struct cairn_store *store, bool *ret_written,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Shortcomings of the store found while running. */
struct cairn_store_health {
    bool degraded, profile_wrong; /* profile_wrong: the stored profile is out of date */
    char text[400];
    uint64_t failing_ms; /* time without a successful request, from 5 s on; 0: works */
    char failing[200];   /* the last error */
};
void cairn_store_health(struct cairn_store *store, struct cairn_store_health *ret);
/* Records that the bytes read back were right though the store states another checksum: its
 * checksums are ignored from now on. True: this is new. */
bool cairn_store_misstates(struct cairn_store *store);
/* True if a delete keeps the bytes under a version id until that version is deleted too. Known from
 * a probe with list permission, and from replies. Any thread. cairn_store_purge frees the bytes. */
bool cairn_store_keeps_versions(struct cairn_store *store);
/* Removes test objects at least an hour old, left by a process that died or may not delete. */
enum cairn_code cairn_store_tidy(struct cairn_store *store, struct cairn_error *err) CAIRN_MUST_USE;
/* A presigned URL to GET this one key; never valid longer than the credentials. ret_expires_s may
 * be NULL. CAIRN_UNSUPPORTED where the profile has no presigning. */
enum cairn_code cairn_store_presign(struct cairn_store *store, const char *key, uint32_t expires_s,
                                    struct cairn_buf *ret_url, uint32_t *ret_expires_s,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* Patience with a store while another has the same data: its own default is minutes. */
#define CAIRN_STORE_ELSEWHERE_MS 10000
/* True if the store can copy from source by itself (PART with copy_store) and state the CRC32C:
 * buckets or prefixes of one S3 with the same credentials. Any thread. */
bool cairn_store_copies_from(struct cairn_store *store, struct cairn_store *source);

enum cairn_code cairn_store_worker_new(struct cairn_store *store, struct cairn_store_worker **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_store_worker_free(struct cairn_store_worker *worker); /* cancels requests under way */
CAIRN_DEFINE_AUTO_PTR(store_worker);
/* Never blocks and never calls done(). */
void cairn_store_submit(struct cairn_store_worker *worker, struct cairn_store_request *request);
/* Calls done() before it returns, with CAIRN_CANCELLED unless the request has just finished. */
void cairn_store_cancel(struct cairn_store_worker *worker, struct cairn_store_request *request);
/* Works until a completion, a wake, or timeout_ms. A folder checks its queue every 4 MiB of I/O. */
enum cairn_code cairn_store_poll(struct cairn_store_worker *worker, uint32_t timeout_ms,
                                 struct cairn_error *err) CAIRN_MUST_USE;
void cairn_store_wake(struct cairn_store_worker *worker);
/* How many requests this worker should have under way now (adaptive for S3). */
uint32_t cairn_store_appetite(const struct cairn_store_worker *worker);

/* A listing, page by page:
 *
 *     CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST, .key = prefix}};
 *     while (!pages.ended) {
 *         CAIRN_TRY(cairn_store_pages_next(&pages, worker, err));
 *         ... pages.listing ...
 *     }
 * A store may list without end: whoever can say how much there is at most looks at count. */
struct cairn_store_pages {
    struct cairn_store_request list;    /* set by the caller but for page and listing */
    struct cairn_store_listing listing; /* the page that was read last */
    size_t count;
    bool ended; /* it was the last one */
};
enum cairn_code cairn_store_pages_next(struct cairn_store_pages *pages,
                                       struct cairn_store_worker *worker,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_store_pages_release(struct cairn_store_pages *pages);

typedef void cairn_store_failed(void *owner, const struct cairn_error *why);
/* failed() runs after each failed cairn_store_perform, on its thread; set once; must only wake. */
void cairn_store_set_failed(struct cairn_store *store, cairn_store_failed *failed, void *owner);

/* ---- blocking helpers over a worker, for small objects ---- */
enum cairn_code cairn_store_perform(struct cairn_store_worker *worker,
                                    struct cairn_store_request *request,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_put_small(struct cairn_store_worker *worker, const char *key,
                                      struct cairn_view body, bool create,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Creates the object; an existing one must have equal bytes, else CAIRN_CONFLICT (rule Q22). */
enum cairn_code cairn_store_put_same(struct cairn_store_worker *worker, const char *key,
                                     struct cairn_view body,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* For what must be in the store before bytes can be deleted from it: a full folder spends its
 * ballast on it (store/dir/inside.h#7). As _put_same, or, with replaces, as _put_small without
 * create. */
enum cairn_code cairn_store_put_to_free(struct cairn_store_worker *worker, const char *key,
                                        struct cairn_view body, bool replaces,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The whole object; larger than ret's limit is CAIRN_TOO_LARGE. */
enum cairn_code cairn_store_get_small(struct cairn_store_worker *worker, const char *key,
                                      struct cairn_buf *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* With a deadline for all its requests (mono clock; 0: the store's default for each). */
enum cairn_code cairn_store_get_small_by(struct cairn_store_worker *worker, const char *key,
                                         uint64_t deadline_ms, struct cairn_buf *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_store_delete(struct cairn_store_worker *worker, const char *key,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* 0 to CAIRN_STORE_DELETIONS_MAX deletions. common: their common prefix. */
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
    bool (*moved)(const struct cairn_store *store); /* NULL, with follow: the store cannot move */
    enum cairn_code (*follow)(struct cairn_store *store, struct cairn_error *err);
    /* A store's condition; NULL where unsupported. */
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
                       struct cairn_store_ready *ret); /* NULL: no ready reads (range.h) */
};
struct cairn_store {
    const struct cairn_store_vtable *vtable;
    struct cairn_store_profile profile;
    char url[1024];
    cairn_store_failed *_Atomic failed; /* set after failed_owner */
    void *failed_owner;
};
struct cairn_store_worker {
    struct cairn_store *store;
    uint32_t patience_ms; /* for requests without a deadline; 0 = the store's own default */
};
/* For builds with CAIRN_CRASHPOINTS: wraps a daemon's store in one that fails on request
 * (tests/support/fault/hook.c). */
enum cairn_code cairn_store_test_wrap(struct cairn_store *take_store, struct cairn_store **ret,
                                      struct cairn_error *err) __attribute__((weak));

/* ---- deleted bytes in a bucket with versioning ---- */

/* With versioning a delete adds a marker; the object costs money until its version is deleted. */

struct cairn_store_purge {
    const char *prefix; /* or, with is_key, one whole key */
    bool is_key;
    bool (*spares)(const char *key); /* true: this key keeps all versions; NULL: no key does */
    int64_t before_ms;               /* only older versions, by the store's clock; 0: all */
    /* results */
    uint64_t freed_objects, freed_bytes;
    uint64_t left_objects, left_bytes; /* without markers */
    bool uncounted;      /* no permission to list or delete versions: amount unknown */
    enum cairn_code why; /* first reason for a version left; CAIRN_OK: none left */
    char reason[160];    /* in the store's words */
};
/* CAIRN_OK even if versions are left. Sends nothing unless cairn_store_keeps_versions. */
enum cairn_code cairn_store_purge(struct cairn_store_worker *worker,
                                  struct cairn_store_purge *purge,
                                  struct cairn_error *err) CAIRN_MUST_USE;
