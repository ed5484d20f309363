/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codes: every error code of Cairn, once.
 *
 * Why:     the C enum, the HTTP status, the retry policy, the exit status of `cairn` and the
 *          `code` of a problem body must never disagree.
 * Promise: 1   codes keep their number for a major version; new ones are added at the end.
 * Limits:  at most 255 codes.
 * Threads: constants.
 * Next:    cairn/error.h for the struct that carries them.
 */
#ifndef CAIRN_CODES_H
#define CAIRN_CODES_H

/* name, slug, HTTP status, retryable, exit status, meaning as the user reads it */
/* clang-format off */
#define CAIRN_CODES(X)                                                                             \
    X(OK,                "ok",                    200, 0, 0, "Done.")                              \
    X(INVALID,           "invalid",               400, 0, 2, "The request is wrong; do not repeat it.") \
    X(UNAUTHORIZED,      "unauthorized",          401, 0, 4, "No valid credential came with the request.") \
    X(FORBIDDEN,         "forbidden",             403, 0, 4, "The credential does not allow this.") \
    X(NOT_FOUND,         "not-found",             404, 0, 3, "No such run, checkpoint, shard or object.") \
    X(METHOD,            "method-not-allowed",    405, 0, 2, "This path does not take that method.") \
    X(CONFLICT,          "conflict",              409, 0, 6, "Another state of things got in the way.") \
    X(STALE_ATTEMPT,     "stale-attempt",         409, 0, 6, "A newer attempt of this run has taken over; this one may not write any more.") \
    X(JOB_REUSED,        "job-reused",            409, 0, 6, "This job string was already used by another incarnation of the job.") \
    X(ATTEMPT_DIFFERS,   "attempt-differs",       409, 0, 6, "The attempt was opened with another world size or resume choice.") \
    X(ATTEMPT_MOVED,     "attempt-moved",         409, 1, 6, "Another attempt was opened in between; read the newest one and call again.") \
    X(RUN_BUSY,          "run-busy",              409, 1, 6, "A training job is writing to this run.") \
    X(STEP_EXISTS,       "step-exists",           409, 0, 6, "A version of this step is already there.") \
    X(BEGIN_DIFFERS,     "begin-differs",         409, 0, 6, "The ranks of one save described it differently.") \
    X(SKIPPED,           "skipped",               409, 0, 6, "The save was skipped because an earlier one was still being sent.") \
    X(NOT_OPEN,          "not-open",              409, 0, 6, "Reserved: this version never says it.") \
    X(SHARD_CONFLICT,    "shard-conflict",        409, 0, 6, "A shard of that name is there with other content.") \
    X(TABLE_UNKNOWN,     "table-unknown",         409, 1, 6, "The server does not hold that rank table; send it and seal again.") \
    X(TABLE_INVALID,     "table-invalid",         422, 0, 2, "The rank table is malformed.")        \
    X(INCOMPLETE,        "checkpoint-incomplete", 409, 1, 6, "The checkpoint is not complete.")     \
    X(NOT_COMMITTED,     "not-committed",         409, 1, 6, "The version is not committed, so its bytes are not served.") \
    X(ALREADY_COMMITTED, "already-committed",     409, 0, 6, "The version is committed; it can no longer fail or be aborted.") \
    X(ABORTED,           "checkpoint-aborted",    410, 0, 6, "The version was given up.")           \
    X(DELETED,           "checkpoint-deleted",    410, 0, 3, "The version was deleted.")            \
    X(LENGTH_REQUIRED,   "length-required",       411, 0, 2, "Send Content-Length; Transfer-Encoding is not taken.") \
    X(PRECONDITION,      "precondition-failed",   412, 0, 6, "The precondition does not hold.")     \
    X(TOO_LARGE,         "too-large",             413, 0, 2, "The request is larger than the limit.") \
    X(MEDIA_TYPE,        "media-type",            415, 0, 2, "This content type or encoding is not taken.") \
    X(RANGE,             "range",                 416, 0, 2, "The range cannot be served.")         \
    X(IN_USE,            "in-use",                409, 1, 6, "It is pinned, leased or needed, so it was not removed.") \
    X(TIMEOUT,           "timeout",               504, 1, 8, "The deadline passed.")                \
    X(BUSY,              "busy",                  503, 1, 5, "The service asked us to slow down.")  \
    X(UNAVAILABLE,       "unavailable",           503, 1, 5, "The service cannot be reached or is not ready.") \
    X(CATALOG_BEHIND,    "catalog-behind",        503, 0, 5, "The catalog is older than the store; an operator must reconcile it.") \
    X(NO_SPACE,          "no-space",              507, 0, 1, "No space is left.")                   \
    X(NO_MEMORY,         "no-memory",             503, 0, 1, "The memory budget does not allow this.") \
    X(CORRUPT,           "store-corrupt",         502, 0, 7, "Bytes do not match their checksum, or are missing.") \
    X(STORE,             "store-error",           502, 0, 1, "The store refused the request.")      \
    X(IO,                "io-error",              500, 0, 1, "The operating system reported an error.") \
    X(PROTOCOL,          "protocol",              400, 0, 1, "The peer broke the protocol.")        \
    X(UPLOADER_GONE,     "uploader-gone",         503, 1, 5, "The uploader of this node went away.") \
    X(SOURCE_GONE,       "source-gone",           409, 0, 1, "The bytes to be sent are no longer there.") \
    X(SOURCE_CHANGED,    "source-changed",        409, 0, 7, "The bytes changed after they were staged.") \
    X(CANCELLED,         "cancelled",             409, 0, 1, "The caller gave the save up.")        \
    X(BROKEN,            "broken",                500, 0, 1, "An internal promise was broken; the handle refuses further work.") \
    X(INTERRUPTED,       "interrupted",           500, 0, 130, "Interrupted; what was begun can be resumed.") \
    X(UNSUPPORTED,       "unsupported",           501, 0, 1, "This build, store or file system cannot do that.") \
    X(INTERNAL,          "internal",              500, 0, 1, "A bug of Cairn; please report it.")   \
    X(PRECONDITION_MISSING, "precondition-required", 428, 0, 2, "Say with If-Match which state is to be changed.") \
    X(CURSOR_EXPIRED,    "cursor-expired",        410, 0, 6, "What came after that event is no longer kept.") \
    X(QUOTA_EXCEEDED,    "quota-exceeded",        507, 0, 6, "The project has used up its quota; delete versions or have it raised.") \
    X(RATE_LIMITED,      "rate-limited",          429, 1, 5, "More requests than this caller may make; Retry-After says when to come again.") \
    X(NOT_YET,           "not-yet",               404, 1, 3, "The run is there and has not come to that yet; ask again.") \
    X(KEY_REUSED,        "key-reused",            422, 0, 2, "That Idempotency-Key was sent with another call; make a new one.")
/* clang-format on */

enum cairn_code {
#define CAIRN_CODE_ENUM(name, slug, http, retry, exit, meaning) CAIRN_##name,
    CAIRN_CODES(CAIRN_CODE_ENUM)
#undef CAIRN_CODE_ENUM
        CAIRN_CODE_COUNT
};

#endif
