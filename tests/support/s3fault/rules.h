/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: which request is treated how, as a text that a test or a person writes.
 *
 * Why:     a fault is only a test when it comes at a chosen request, every time it is run.
 * Promise: 1   the same rules, seed and order of requests give the same faults; p= draws from the
 *              seed, the rule's place and its own count, not from other rules.
 *          2   every rule counts the requests that match it; of those whose turn it is, the first
 *              rule written acts.
 *          3   a text with one bad word is refused whole, and the line is named.
 * Limits:  S3F_RULES_MAX rules of S3F_ACTIONS_MAX actions.
 * Threads: the server's lock.
 * Next:    README.md beside this file has the language and every action.
 *
 *     op=part|put key=*rank-0* part=3 nth=2-5 : status=503/SlowDown, header=Retry-After:1
 */
#pragma once

#include "common/error.h"

#define S3F_RULES_MAX 64
#define S3F_ACTIONS_MAX 8
#define S3F_ADDRESS_BYTES 48 /* of an address as text */

/* operation: name in rules and journal */
#define S3F_OPS(X)                                                                                 \
    X(CONNECT, "connect")                                                                          \
    X(PUT, "put")                                                                                  \
    X(GET, "get")                                                                                  \
    X(HEAD, "head")                                                                                \
    X(DELETE, "delete")                                                                            \
    X(DELETE_VERSION, "delete-version")                                                            \
    X(DELETE_MANY, "delete-many")                                                                  \
    X(CREATE, "create")                                                                            \
    X(PART, "part")                                                                                \
    X(COMPLETE, "complete")                                                                        \
    X(ABORT, "abort")                                                                              \
    X(PARTS, "parts")                                                                              \
    X(UPLOADS, "uploads")                                                                          \
    X(LIST, "list")                                                                                \
    X(VERSIONS, "versions")                                                                        \
    X(BUCKETS, "buckets")                                                                          \
    X(BUCKET_CREATE, "bucket-create")                                                              \
    X(BUCKET_HEAD, "bucket-head")                                                                  \
    X(BUCKET_DELETE, "bucket-delete")                                                              \
    X(LOCATION, "location")                                                                        \
    X(VERSIONING, "versioning")                                                                    \
    X(LIFECYCLE, "lifecycle")                                                                      \
    X(OBJECT_LOCK, "object-lock")                                                                  \
    X(LIFECYCLE_PUT, "lifecycle-put")                                                              \
    X(UNKNOWN, "unknown")

enum s3f_op {
#define S3F_OP_ENUM(name, text) S3F_##name,
    S3F_OPS(S3F_OP_ENUM)
#undef S3F_OP_ENUM
        S3F_OP_COUNT
};
const char *s3f_op_name(enum s3f_op op);

/* action: name, what stands behind it: none, number (=N), text (=...), place (@N) */
#define S3F_ACTIONS(X)                                                                             \
    X(STATUS, "status", TEXT)                                                                      \
    X(APPLY, "apply", NONE)                                                                        \
    X(DELAY, "delay", NUMBER)                                                                      \
    X(HELD, "held", NONE)                                                                          \
    X(STALL, "stall", PLACE)                                                                       \
    X(RST, "rst", PLACE)                                                                           \
    X(FIN, "fin", PLACE)                                                                           \
    X(TRUNCATE, "truncate", PLACE)                                                                 \
    X(FLIP, "flip", PLACE)                                                                         \
    X(SLOW, "slow", NUMBER)                                                                        \
    X(REQ_STALL, "req-stall", PLACE)                                                               \
    X(REQ_RST, "req-rst", PLACE)                                                                   \
    X(REQ_FIN, "req-fin", PLACE)                                                                   \
    X(REQ_FLIP, "req-flip", PLACE)                                                                 \
    X(REQ_SLOW, "req-slow", NUMBER)                                                                \
    X(EARLY, "early", PLACE)                                                                       \
    X(SHORT_LENGTH, "short-length", NUMBER)                                                        \
    X(LONG_BODY, "long-body", NUMBER)                                                              \
    X(WRONG_RANGE, "wrong-range", NONE)                                                            \
    X(IGNORE_RANGE, "ignore-range", NONE)                                                          \
    X(MULTIPART_RANGE, "multipart-range", NONE)                                                    \
    X(HEADER, "header", TEXT)                                                                      \
    X(DROP_HEADER, "drop-header", TEXT)                                                            \
    X(REDIRECT, "redirect", TEXT)                                                                  \
    X(LOSE_REPLY, "lose-reply", NONE)                                                              \
    X(APPLY_LATE, "apply-late", NUMBER)                                                            \
    X(COMPLETE_200_ERROR, "complete-200-error", TEXT)                                              \
    X(COMPLETE_WHITESPACE, "complete-whitespace", NUMBER)                                          \
    X(CUT, "cut", NONE)                                                                            \
    X(HTML, "html", NONE)                                                                          \
    X(EMPTY, "empty", NONE)                                                                        \
    X(BODY, "body", TEXT)                                                                          \
    X(STALE_LIST, "stale-list", NUMBER)                                                            \
    X(ENDLESS_LIST, "endless-list", NONE)                                                          \
    X(NO_UPLOADS_LISTED, "no-uploads-listed", NONE)                                                \
    X(IGNORE_PREFIX, "ignore-prefix", NONE)                                                        \
    X(REPEAT_PAGES, "repeat-pages", NONE)                                                          \
    X(NO_TOKEN, "no-token", NONE)                                                                  \
    X(CLOCK, "clock", NUMBER)                                                                      \
    X(EXPIRE_KEYS, "expire-keys", NONE)                                                            \
    X(HUGE_ERROR, "huge-error", NUMBER)                                                            \
    X(ENTITY_BOMB, "entity-bomb", NONE)                                                            \
    X(DEEP_XML, "deep-xml", NUMBER)                                                                \
    X(GZIP, "gzip", NONE)                                                                          \
    X(ETAG, "etag", TEXT)                                                                          \
    X(DROP_UPLOAD, "drop-upload", NONE)                                                            \
    X(DROP_OBJECT, "drop-object", NONE)                                                            \
    X(DELETE_ERROR, "delete-error", TEXT)                                                          \
    X(FLOOD_1XX, "flood-1xx", NUMBER)                                                              \
    X(NO_CONTINUE, "no-continue", NONE)                                                            \
    X(CLOSE, "close", NONE)                                                                        \
    X(PASS, "pass", NONE)

enum s3f_action_kind {
#define S3F_ACTION_ENUM(name, text, value) S3F_DO_##name,
    S3F_ACTIONS(S3F_ACTION_ENUM)
#undef S3F_ACTION_ENUM
        S3F_ACTION_COUNT
};

struct s3f_action {
    enum s3f_action_kind kind;
    int64_t number;
    bool in_head, percent, from_end; /* of a place: @h10, @50%, @-1 */
    uint32_t ms;                     /* @N/MS: a stall ends after so long; 0: never */
    char text[224];
};

/* What one request meets: a copy, since rules may be replaced while it is under way. */
struct s3f_plan {
    int rule; /* -1: none */
    size_t count;
    struct s3f_action actions[S3F_ACTIONS_MAX];
    char text[256]; /* the actions as they were written, for the journal */
};
const struct s3f_action *s3f_plan_find(const struct s3f_plan *plan, enum s3f_action_kind kind);
/* An action's place as a byte offset into `size` bytes; at most size. */
uint64_t s3f_place(const struct s3f_action *action, uint64_t size);

struct s3f_subject {
    enum s3f_op op;
    const char *key;
    uint32_t part_number;
    const char *local; /* the address of ours that it came to */
};
struct cairn_s3f_rules;
/* Rules are lines, or parted by ';'. '#' begins a comment. */
enum cairn_code s3f_rules_new(const char *text, uint64_t seed, struct cairn_s3f_rules **ret,
                              struct cairn_error *err) CAIRN_MUST_USE;
void cairn_s3f_rules_free(struct cairn_s3f_rules *rules);
CAIRN_DEFINE_AUTO_PTR(s3f_rules);
void s3f_rules_match(struct cairn_s3f_rules *rules, const struct s3f_subject *subject,
                     struct s3f_plan *ret);
size_t s3f_rules_count(const struct cairn_s3f_rules *rules);
/* How often a rule matched and how often it acted. */
void s3f_rules_told(const struct cairn_s3f_rules *rules, size_t index, uint64_t *ret_matched,
                    uint64_t *ret_acted);
