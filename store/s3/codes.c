/* SPDX-License-Identifier: Apache-2.0 */
/* The table, and the fallback by status. */
#include "store/s3/codes.h"

/* clang-format off */
static const struct cairn_s3_meaning meanings[] = {
    {"AccessDenied",                   CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {"AllAccessDisabled",              CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {"AuthorizationHeaderMalformed",   CAIRN_STORE,        CAIRN_S3_REGION},
    {"BadDigest",                      CAIRN_CORRUPT,      CAIRN_S3_ALTERED},
    {"ConditionalRequestConflict",     CAIRN_CONFLICT,     CAIRN_S3_REPEAT},
    {"EntityTooLarge",                 CAIRN_TOO_LARGE,    CAIRN_S3_FINAL},
    {"EntityTooSmall",                 CAIRN_INVALID,      CAIRN_S3_FINAL},
    {"ExpiredToken",                   CAIRN_UNAUTHORIZED, CAIRN_S3_KEYS},
    {"IllegalLocationConstraintException", CAIRN_STORE,    CAIRN_S3_REGION},
    {"IncompleteBody",                 CAIRN_UNAVAILABLE,  CAIRN_S3_REPEAT},
    {"InternalError",                  CAIRN_UNAVAILABLE,  CAIRN_S3_REPEAT},
    {"InvalidAccessKeyId",             CAIRN_UNAUTHORIZED, CAIRN_S3_FINAL},
    {"InvalidArgument",                CAIRN_STORE,        CAIRN_S3_FEATURE},
    {"InvalidObjectState",             CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {"InvalidPart",                    CAIRN_INCOMPLETE,   CAIRN_S3_FINAL},
    {"InvalidPartOrder",               CAIRN_INVALID,      CAIRN_S3_FINAL},
    {"InvalidRange",                   CAIRN_RANGE,        CAIRN_S3_FINAL},
    {"InvalidRequest",                 CAIRN_STORE,        CAIRN_S3_FEATURE},
    {"InvalidToken",                   CAIRN_UNAUTHORIZED, CAIRN_S3_KEYS},
    {"MethodNotAllowed",               CAIRN_UNSUPPORTED,  CAIRN_S3_FINAL},
    {"MissingContentLength",           CAIRN_UNSUPPORTED,  CAIRN_S3_FEATURE},
    {"MissingContentMD5",              CAIRN_STORE,        CAIRN_S3_FEATURE},
    {"NoSuchBucket",                   CAIRN_STORE,        CAIRN_S3_FINAL},
    {"NoSuchKey",                      CAIRN_NOT_FOUND,    CAIRN_S3_FINAL},
    {"NoSuchUpload",                   CAIRN_NOT_FOUND,    CAIRN_S3_FINAL},
    {"NotImplemented",                 CAIRN_UNSUPPORTED,  CAIRN_S3_FEATURE},
    {"OperationAborted",               CAIRN_CONFLICT,     CAIRN_S3_REPEAT},
    {"PermanentRedirect",              CAIRN_STORE,        CAIRN_S3_REGION},
    {"PreconditionFailed",             CAIRN_PRECONDITION, CAIRN_S3_FINAL},
    {"QuotaExceeded",                  CAIRN_NO_SPACE,     CAIRN_S3_FINAL},
    {"RequestExpired",                 CAIRN_UNAUTHORIZED, CAIRN_S3_CLOCK},
    {"RequestLimitExceeded",           CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"RequestTimeTooSkewed",           CAIRN_UNAUTHORIZED, CAIRN_S3_CLOCK},
    {"RequestTimeout",                 CAIRN_TIMEOUT,      CAIRN_S3_REPEAT},
    {"ServiceUnavailable",             CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"RestoreAlreadyInProgress",       CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {"SignatureDoesNotMatch",          CAIRN_UNAUTHORIZED, CAIRN_S3_FINAL},
    {"SlowDown",                       CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"SlowDownRead",                   CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"SlowDownWrite",                  CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"TemporaryRedirect",              CAIRN_STORE,        CAIRN_S3_REGION},
    {"Throttling",                     CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"ThrottlingException",            CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"TokenRefreshRequired",           CAIRN_UNAUTHORIZED, CAIRN_S3_KEYS},
    {"TooManyRequests",                CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {"XAmzContentChecksumMismatch",    CAIRN_CORRUPT,      CAIRN_S3_ALTERED},
    {"XAmzContentSHA256Mismatch",      CAIRN_CORRUPT,      CAIRN_S3_ALTERED},
    {"XMinioStorageFull",              CAIRN_NO_SPACE,     CAIRN_S3_FINAL},
};
static const struct {
    int status;
    enum cairn_code code;
    enum cairn_s3_policy policy;
} statuses[] = {
    {301, CAIRN_STORE,        CAIRN_S3_REGION},
    {302, CAIRN_STORE,        CAIRN_S3_REGION},
    {307, CAIRN_STORE,        CAIRN_S3_REGION},
    {308, CAIRN_STORE,        CAIRN_S3_REGION},
    {400, CAIRN_STORE,        CAIRN_S3_FINAL},
    {401, CAIRN_UNAUTHORIZED, CAIRN_S3_FINAL},
    {403, CAIRN_FORBIDDEN,    CAIRN_S3_FINAL},
    {404, CAIRN_NOT_FOUND,    CAIRN_S3_FINAL},
    {405, CAIRN_UNSUPPORTED,  CAIRN_S3_FINAL},
    {408, CAIRN_TIMEOUT,      CAIRN_S3_REPEAT},
    {409, CAIRN_CONFLICT,     CAIRN_S3_REPEAT},
    {411, CAIRN_UNSUPPORTED,  CAIRN_S3_FEATURE},
    {412, CAIRN_PRECONDITION, CAIRN_S3_FINAL},
    {413, CAIRN_TOO_LARGE,    CAIRN_S3_FINAL},
    {416, CAIRN_RANGE,        CAIRN_S3_FINAL},
    {429, CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {501, CAIRN_UNSUPPORTED,  CAIRN_S3_FEATURE},
    {503, CAIRN_BUSY,         CAIRN_S3_SLOW_DOWN},
    {507, CAIRN_NO_SPACE,     CAIRN_S3_FINAL},
};
/* clang-format on */

struct cairn_s3_meaning cairn_s3_meaning_of(const char *name, int status) {
    for (size_t i = 0; i < CAIRN_COUNT(meanings); i++)
        if (!strcmp(meanings[i].name, name)) return meanings[i];
    for (size_t i = 0; i < CAIRN_COUNT(statuses); i++)
        if (statuses[i].status == status)
            return (struct cairn_s3_meaning){NULL, statuses[i].code, statuses[i].policy};
    if (status >= 500) return (struct cairn_s3_meaning){NULL, CAIRN_UNAVAILABLE, CAIRN_S3_REPEAT};
    if (status >= 400) return (struct cairn_s3_meaning){NULL, CAIRN_STORE, CAIRN_S3_FINAL};
    /* A success that is none: S04. */
    return (struct cairn_s3_meaning){NULL, CAIRN_PROTOCOL, CAIRN_S3_REPEAT};
}
