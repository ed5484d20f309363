/* SPDX-License-Identifier: Apache-2.0 */
/* The document, its fields, and what they make of an opened store. */
#include "store/s3/profile.h"

#include <stdio.h>

#include "common/json.h"
#include "common/text.h"
#include "store/keys/profile.h"
#include "store/s3/place.h"
#include "store/time.h"

#define KIND "cairn_profile"
#define MAJOR 1

static const char *const methods[] = {"", "crc32c", "md5", "none"}; /* enum's order */
static const char *const conditions[] = {"honoured", "ignored", "refused"};

/* The place of word in words; count when it is none of them. */
static size_t place_of(const char *word, const char *const *words, size_t count) {
    size_t i = 0;
    while (i < count && strcmp(word, words[i]) != 0) i++;
    return i;
}

/* ---- as text ---- */

enum cairn_code cairn_s3_profile_encode(const struct cairn_s3_findings *findings,
                                        struct cairn_buf *ret, struct cairn_error *err) {
    char tested_at[32];
    const char *method =
        findings->method == CAIRN_S3_CHECKSUM_AUTO ? NULL : methods[findings->method];
    cairn_time_text(findings->tested_ms, false, tested_at);
    CAIRN_AUTO_JSON json_t *json =
        json_pack("{si ss ss ss ss ss ss? ss sb sb sb sb sb sb sI sI sI}", KIND, MAJOR, "endpoint",
                  findings->endpoint, "region", findings->region, "addressing",
                  findings->addressing, "tested_at", tested_at, "tested_by", findings->by,
                  "upload_check", method, "create_only_put", conditions[findings->create_put],
                  "create_only_complete", findings->create_complete, "keeps_token",
                  findings->keeps_token, "lists_uploads", findings->lists_uploads,
                  "lists_part_checksums", findings->lists_part_checksums, "misstates_checksums",
                  findings->misstates, "keeps_versions", findings->keeps_versions,
                  "part_bytes_min", (json_int_t)findings->part_bytes_min, "part_bytes_max",
                  (json_int_t)findings->part_bytes_max, "part_count_max",
                  (json_int_t)findings->part_count_max);
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for profile.json");
    return cairn_json_dump(json, ret, err);
}

static enum cairn_code take_words(struct cairn_s3_findings *ret, const char *method,
                                  const char *create_put, const char *tested_at,
                                  struct cairn_error *err) {
    size_t which = method ? place_of(method, methods, CAIRN_COUNT(methods)) : 0;
    size_t condition = place_of(create_put, conditions, CAIRN_COUNT(conditions));
    if (which == CAIRN_COUNT(methods) || condition == CAIRN_COUNT(conditions))
        return cairn_fail(err, CAIRN_CORRUPT, "\"%.32s\" or \"%.32s\" is no known word",
                          method ? method : "", create_put);
    ret->method = (enum cairn_store_s3_checksum)which;
    ret->create_put = (enum cairn_s3_condition)condition;
    return cairn_s3_time_iso(tested_at, &ret->tested_ms, err);
}

static enum cairn_code read_fields(const json_t *json, struct cairn_s3_findings *ret,
                                   struct cairn_error *err) {
    const char *endpoint = "", *region = "", *by = "", *at = "", *method = NULL, *create_put = "";
    const struct cairn_json_field fields[] = {
        {"endpoint", CAIRN_JSON_TEXT, true, &endpoint, sizeof ret->endpoint - 1},
        {"region", CAIRN_JSON_TEXT, true, &region, sizeof ret->region - 1},
        {"tested_at", CAIRN_JSON_TEXT, true, &at, 32},
        {"tested_by", CAIRN_JSON_TEXT, true, &by, sizeof ret->by - 1},
        {"upload_check", CAIRN_JSON_TEXT, false, &method, 16},
        {"create_only_put", CAIRN_JSON_TEXT, true, &create_put, 16},
        {"create_only_complete", CAIRN_JSON_BOOL, true, &ret->create_complete, 0},
        {"keeps_token", CAIRN_JSON_BOOL, true, &ret->keeps_token, 0},
        {"lists_uploads", CAIRN_JSON_BOOL, true, &ret->lists_uploads, 0},
        {"lists_part_checksums", CAIRN_JSON_BOOL, true, &ret->lists_part_checksums, 0},
        {"misstates_checksums", CAIRN_JSON_BOOL, false, &ret->misstates, 0},
        {"keeps_versions", CAIRN_JSON_BOOL, false, &ret->keeps_versions, 0},
        {"part_bytes_min", CAIRN_JSON_U64, true, &ret->part_bytes_min, 5 * CAIRN_GIB},
        {"part_bytes_max", CAIRN_JSON_U64, true, &ret->part_bytes_max, 0},
        {"part_count_max", CAIRN_JSON_U32, true, &ret->part_count_max, 10000},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    if (!ret->part_count_max || ret->part_bytes_max < CAIRN_MIB ||
        ret->part_bytes_max < ret->part_bytes_min)
        return cairn_fail(err, CAIRN_CORRUPT, "the limits of parts make no sense");
    (void)cairn_text_copy(ret->endpoint, sizeof ret->endpoint, endpoint);
    (void)cairn_text_copy(ret->region, sizeof ret->region, region);
    (void)cairn_text_copy(ret->by, sizeof ret->by, by);
    return take_words(ret, method, create_put, at, err);
}

enum cairn_code cairn_s3_profile_decode(struct cairn_view text, struct cairn_s3_findings *ret,
                                        struct cairn_error *err) {
    struct cairn_s3_findings findings = {0};
    CAIRN_AUTO_JSON json_t *json = NULL;
    enum cairn_code code = cairn_json_parse(text, (struct cairn_json_limits){0}, &json, err);
    const json_t *major = code ? NULL : json_object_get(json, KIND);
    if (!code && json_is_integer(major) && json_integer_value(major) != MAJOR)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "profile.json has version %lld, this knows %d",
                          (long long)json_integer_value(major), MAJOR);
    if (!code && !json_is_integer(major))
        code = cairn_fail(err, CAIRN_CORRUPT, "it does not say " KIND);
    if (!code) code = read_fields(json, &findings, err);
    if (code) return cairn_within(err, CAIRN_CORRUPT, "profile.json");
    *ret = findings;
    return CAIRN_OK;
}

/* ---- to and from the opened store ---- */

void cairn_s3_profile_note(struct cairn_store_profile *profile) {
    snprintf(profile->note, sizeof profile->note, "%s%s%s%s",
             profile->create_only_put ? "" : "puts may replace; ",
             profile->part_checksum ? "" : "sent checksums are not checked by the store; ",
             profile->lists_uploads ? ""
                                    : "open uploads cannot be listed, so set a life cycle "
                                      "rule that aborts incomplete ones; ",
             profile->head_has_token ? "" : "upload tokens are not kept; ");
    size_t size = strlen(profile->note);
    if (size) profile->note[size - 2] = '\0';
}

/* What was found to be in force is told to others only where they would come to the same: under
 * checksum = md5 or none nobody has asked what the store makes of CRC32C. */
static enum cairn_store_s3_checksum method_of(struct cairn_s3_store *store) {
    enum cairn_store_s3_checksum wanted = store->config.options.checksum;
    bool checked = store->base.profile.part_checksum;
    bool md5 = atomic_load(&store->checksum) == CAIRN_S3_CHECKSUM_MD5;
    if (wanted == CAIRN_S3_CHECKSUM_CRC32C && checked) return CAIRN_S3_CHECKSUM_CRC32C;
    if (wanted != CAIRN_S3_CHECKSUM_AUTO) return CAIRN_S3_CHECKSUM_AUTO;
    if (!checked) return CAIRN_S3_CHECKSUM_NONE;
    return md5 ? CAIRN_S3_CHECKSUM_MD5 : CAIRN_S3_CHECKSUM_CRC32C;
}

void cairn_s3_profile_take(struct cairn_s3_store *store, struct cairn_s3_findings *ret) {
    const struct cairn_store_profile *profile = &store->base.profile;
    struct cairn_store_s3_place place;
    (void)cairn_store_s3_place(&store->base, &place);
    *ret = (struct cairn_s3_findings){
        .tested_ms = store->findings.tested_ms,
        .method = method_of(store),
        .create_put = atomic_load(&store->no_create_only) ? CAIRN_S3_REFUSED
                      : profile->create_only_put          ? CAIRN_S3_HONOURED
                                                          : CAIRN_S3_IGNORED,
        .create_complete = profile->create_only_complete,
        .keeps_token = profile->head_has_token,
        .lists_uploads = profile->lists_uploads,
        .lists_part_checksums = profile->lists_part_checksums,
        .misstates = atomic_load(&store->misstates),
        .keeps_versions = atomic_load(&store->keeps_versions),
        .part_bytes_min = profile->part_bytes_min,
        .part_bytes_max = profile->part_bytes_max,
        .part_count_max = profile->part_count_max,
    };
    memcpy(ret->endpoint, place.endpoint, sizeof ret->endpoint);
    memcpy(ret->region, place.region, sizeof ret->region);
    memcpy(ret->by, store->findings.by, sizeof ret->by);
    (void)cairn_text_copy(ret->addressing, sizeof ret->addressing, place.addressing);
}

void cairn_s3_profile_adopt(struct cairn_s3_store *store, const struct cairn_s3_findings *findings,
                            bool *ret_check_known) {
    struct cairn_store_profile *profile = &store->base.profile;
    enum cairn_store_s3_checksum wanted = store->config.options.checksum, found = findings->method;
    bool automatic = wanted == CAIRN_S3_CHECKSUM_AUTO;
    *ret_check_known = found != CAIRN_S3_CHECKSUM_AUTO && (automatic || wanted == found);
    if (wanted == CAIRN_S3_CHECKSUM_NONE) *ret_check_known = true;
    if (*ret_check_known)
        profile->part_checksum =
            found != CAIRN_S3_CHECKSUM_NONE && wanted != CAIRN_S3_CHECKSUM_NONE;
    if (automatic && found == CAIRN_S3_CHECKSUM_MD5)
        atomic_store(&store->checksum, CAIRN_S3_CHECKSUM_MD5);
    if (findings->misstates) atomic_store(&store->misstates, true);
    if (findings->keeps_versions) atomic_store(&store->keeps_versions, true);
    if (findings->misstates && automatic && found == CAIRN_S3_CHECKSUM_NONE)
        atomic_store(&store->checksum, CAIRN_S3_CHECKSUM_NONE);
    profile->create_only_put = findings->create_put == CAIRN_S3_HONOURED;
    if (findings->create_put == CAIRN_S3_REFUSED) atomic_store(&store->no_create_only, true);
    profile->create_only_complete = findings->create_complete;
    profile->head_has_token = findings->keeps_token;
    profile->lists_uploads = findings->lists_uploads;
    /* Only of parts that were sent with one. */
    profile->lists_part_checksums = findings->lists_part_checksums &&
                                    wanted != CAIRN_S3_CHECKSUM_MD5 &&
                                    wanted != CAIRN_S3_CHECKSUM_NONE;
    profile->part_bytes_min = findings->part_bytes_min;
    profile->part_bytes_max = findings->part_bytes_max;
    profile->part_count_max = findings->part_count_max;
    cairn_s3_profile_note(profile);
}
