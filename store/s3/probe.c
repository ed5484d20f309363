/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ignored header looks like success, so each check sends something to be refused.
 */
#include "store/s3/probe.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/crc.h"
#include "common/json.h"
#include "common/text.h"
#include "common/trace.h"
#include "store/keys/profile.h"
#include "store/time.h"

/* ---- the document, its fields, and the store's state ---- */

#define KIND "cairn_profile"
#define MAJOR 1

static const char *const methods[] = {"", "crc32c", "md5", "none"}; /* in the enum's order */
static const char *const conditions[] = {"honoured", "ignored", "refused"};

enum cairn_code cairn_s3_profile_encode(const struct cairn_s3_findings *findings,
                                        struct cairn_buf *ret, struct cairn_error *err) {
    char tested_at[32];
    const char *method =
        findings->method == CAIRN_S3_CHECKSUM_AUTO ? NULL : methods[findings->method];
    cairn_time_text(findings->tested_ms, false, tested_at);
    CAIRN_AUTO_JSON json_t *json = json_pack(
        "{si ss ss ss ss ss ss? ss sb sb sb sb sb sb sI sI sI}", KIND, MAJOR, "endpoint",
        findings->endpoint, "region", findings->region, "addressing", findings->addressing,
        "tested_at", tested_at, "tested_by", findings->by, "upload_check", method,
        "create_only_put", conditions[findings->create_put], "create_only_complete",
        findings->create_complete, "keeps_token", findings->keeps_token, "lists_uploads",
        findings->lists_uploads, "lists_part_checksums", findings->lists_part_checksums,
        "misstates_checksums", findings->misstates, "keeps_versions", findings->keeps_versions,
        "part_bytes_min", (json_int_t)findings->part_bytes_min, "part_bytes_max",
        (json_int_t)findings->part_bytes_max, "part_count_max",
        (json_int_t)findings->part_count_max);
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for profile.json");
    return cairn_json_dump(json, ret, err);
}

static enum cairn_code take_words(struct cairn_s3_findings *ret, const char *method,
                                  const char *create_put, const char *tested_at,
                                  struct cairn_error *err) {
    size_t which = method ? cairn_s3_place_of(method, methods, CAIRN_COUNT(methods)) : 0;
    size_t condition = cairn_s3_place_of(create_put, conditions, CAIRN_COUNT(conditions));
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

/* Writes the note for people from the profile's fields. */
static void write_note(struct cairn_store_profile *profile) {
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

/* The method to publish. With checksum = md5 or none CRC32C was never tested. */
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
    /* Holds only for parts sent with a checksum. */
    profile->lists_part_checksums = findings->lists_part_checksums &&
                                    wanted != CAIRN_S3_CHECKSUM_MD5 &&
                                    wanted != CAIRN_S3_CHECKSUM_NONE;
    profile->part_bytes_min = findings->part_bytes_min;
    profile->part_bytes_max = findings->part_bytes_max;
    profile->part_count_max = findings->part_count_max;
    write_note(profile);
}

#define TOKEN "00000000-0000-4000-8000-00000000d0c7"
#define CHECK_MS 30000
#define WRONG_MS 300 /* a store that checks refuses every try: the first tries end early */
#define PART_COUNT_SMALL 1000
#define LATE_MS 5000 /* longest pause before an object is looked for again */

struct check {
    struct cairn_s3_store *store;
    struct cairn_store_worker *worker;
    const struct cairn_store_s3_probe_options *options;
    struct cairn_store_profile *profile;
    bool may_list;
    bool misstates; /* the store stated a checksum that its bytes do not have */
    char key[96];
};

const char *cairn_store_s3_check_text(enum cairn_store_s3_check check) {
    static const char *const sentences[] = {
#define CHECK(id, name, sentence, no, hint) sentence,
#include "store/s3/checks.def"
#undef CHECK
    };
    CAIRN_ASSERT(check < CAIRN_S3_CHECK_COUNT);
    return sentences[check];
}

static void report_check(const struct check *check, enum cairn_store_s3_check what, bool holds) {
    if (check->options->found) check->options->found(check->options->owner, what, holds);
}

uint64_t cairn_s3_probe_deadline_ms(const struct cairn_s3_store *store, uint64_t wanted_ms) {
    uint64_t until_ms = store->config.options.probe_until_ms;
    uint64_t deadline_ms = cairn_s3_mono_ms(store) + wanted_ms;
    return until_ms ? cairn_min_u64(until_ms, deadline_ms) : deadline_ms;
}

static uint32_t limit_ms(const struct check *check) {
    uint32_t asked = check->store->config.options.probe_ms;
    return asked ? asked : CHECK_MS;
}

static struct cairn_store_request request_of(const struct check *check, enum cairn_store_op op) {
    return (struct cairn_store_request){
        .op = op,
        .key = check->key,
        .token = TOKEN,
        .deadline_ms = cairn_s3_probe_deadline_ms(check->store, limit_ms(check)),
    };
}

static struct cairn_store_request put_of(const struct check *check) {
    struct cairn_store_request put = request_of(check, CAIRN_STORE_PUT);
    put.body = CAIRN_VIEW("123456789");
    put.has_crc32c = true;
    put.crc32c = cairn_crc32c(0, put.body.data, put.body.size);
    return put;
}

/* Some stores state a checksum of another kind or of other bytes; then none is trusted any more. */
static void note_stated(struct check *check, bool stated, uint32_t crc32c) {
    struct cairn_store_request put = put_of(check);
    if (!stated || crc32c == put.crc32c) return;
    check->misstates = true;
    atomic_store(&check->store->misstates, true);
}

/* The store must be writable; all else is a finding. */
static enum cairn_code check_put(struct check *check, struct cairn_error *err) {
    struct cairn_store_request put = put_of(check);
    put.settles = true; /* check_range reads it back */
    CAIRN_TRY(cairn_store_perform(check->worker, &put, err));
    note_stated(check, put.disputed, ~put.crc32c);
    report_check(check, CAIRN_S3_CHECK_WRITES, true);
    put = put_of(check);
    put.create = true;
    enum cairn_code code = cairn_store_perform(check->worker, &put, err);
    if (code && code != CAIRN_PRECONDITION) return code;
    check->profile->create_only_put = code == CAIRN_PRECONDITION;
    report_check(check, CAIRN_S3_CHECK_CREATE_PUT, check->profile->create_only_put);
    return CAIRN_OK;
}

/* Some stores show an object seconds after they have taken it, and saves wait for it. */
static enum cairn_code head_late(struct check *check, struct cairn_store_request *head,
                                 struct cairn_error *err) {
    for (uint32_t pause_ms = LATE_MS / 64;; pause_ms *= 2) {
        struct cairn_error why = {0};
        enum cairn_code code = cairn_store_perform(check->worker, head, &why);
        bool last =
            pause_ms > LATE_MS || cairn_s3_mono_ms(check->store) + pause_ms >= head->deadline_ms;
        if (code != CAIRN_NOT_FOUND || last) return cairn_pass(err, code, &why);
        CAIRN_TRY(cairn_store_poll(check->worker, pause_ms, err));
    }
}

static enum cairn_code check_head(struct check *check, struct cairn_error *err) {
    struct cairn_store_request head = request_of(check, CAIRN_STORE_HEAD);
    CAIRN_TRY(head_late(check, &head, err));
    if (head.object_bytes != put_of(check).body.size)
        return cairn_fail(err, CAIRN_STORE,
                          "the store is broken: HEAD says that %zu bytes are %" PRIu64,
                          put_of(check).body.size, head.object_bytes);
    check->profile->head_has_token = !strcmp(head.object_token, TOKEN);
    report_check(check, CAIRN_S3_CHECK_KEEPS_TOKEN, check->profile->head_has_token);
    note_stated(check, head.object_has_crc32c, head.object_crc32c);
    report_check(check, CAIRN_S3_CHECK_HEAD_CRC32C, head.object_has_crc32c);
    return CAIRN_OK;
}

static enum cairn_code check_range(struct check *check, struct cairn_error *err) {
    char into[7] = "";
    struct cairn_store_request get = request_of(check, CAIRN_STORE_GET);
    get.offset = 2;
    get.length = sizeof into;
    get.into = into;
    CAIRN_TRY(cairn_store_perform(check->worker, &get, err));
    bool right = !memcmp(into, "3456789", sizeof into);
    if (!right) return cairn_fail(err, CAIRN_CORRUPT, "a range came back with other bytes");
    report_check(check, CAIRN_S3_CHECK_RANGES, right);
    return CAIRN_OK;
}

/* Puts with a wrong checksum. Without an answer *ret_status is 0: what was perhaps stored differs
 * from its checksum (CAIRN_SOURCE_CHANGED), or nothing was sent in time. */
static bool put_wrong(struct check *check, uint64_t deadline_ms, int *ret_status,
                      struct cairn_error *why) {
    static const uint8_t wrong_md5[CAIRN_MD5_BYTES] = {1};
    struct cairn_store_request put = put_of(check);
    put.crc32c ^= 1;
    put.md5 = wrong_md5;
    if (deadline_ms) put.deadline_ms = deadline_ms;
    *why = (struct cairn_error){0};
    enum cairn_code code = cairn_store_perform(check->worker, &put, why);
    *ret_status = why->http_status;
    return code == CAIRN_SOURCE_CHANGED || code == CAIRN_CORRUPT || code == CAIRN_TIMEOUT;
}

/* A store that takes a wrong checksum does not check it; only an answer of 4xx says that it does.
 * One that did not answer within WRONG_MS is asked again with a request's usual deadline; without
 * any answer it counts as one that does not check, and every body is summed here. */
static enum cairn_code check_checksum(struct check *check, struct cairn_error *err) {
    struct cairn_error why = {0};
    int status = 0;
    bool expected = put_wrong(check, cairn_s3_mono_ms(check->store) + WRONG_MS, &status, &why);
    if (expected && !status) expected = put_wrong(check, 0, &status, &why);
    if (!expected && why.code) return cairn_pass(err, why.code, &why);
    bool refused = expected && status >= 400 && status < 500;
    check->profile->part_checksum = refused;
    report_check(check, CAIRN_S3_CHECK_CHECKS_BODY, refused);
    return CAIRN_OK;
}

/* Lists a prefix without objects: any entry is wrong, CAIRN_STORE. */
static enum cairn_code list_nothing(struct check *check, enum cairn_store_op op,
                                    struct cairn_error *err) {
    char prefix[sizeof check->key + 8];
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = request_of(check, op);
    snprintf(prefix, sizeof prefix, "%s/none/", check->key);
    list.key = prefix;
    list.listing = &listing;
    enum cairn_code code = cairn_store_perform(check->worker, &list, err);
    cairn_store_listing_release(&listing);
    return code;
}

/* A sweep deletes listed keys, so a store with wrong listings is not used. */
static enum cairn_code check_listing(struct check *check, struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!check->may_list) return CAIRN_OK; /* a refusal would teach nothing */
    enum cairn_code code = list_nothing(check, CAIRN_STORE_LIST, &why);
    if (code != CAIRN_OK && code != CAIRN_STORE) return CAIRN_OK; /* doctor reports it */
    report_check(check, CAIRN_S3_CHECK_LISTS_RIGHT, code == CAIRN_OK);
    return cairn_pass(err, code, &why);
}

/* Lists two objects with one per page: a store that truncates a listing without a marker can
 * neither commit nor remove a version of more than 1,000 objects. */
static enum cairn_code check_pages(struct check *check, struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {0};
    size_t seen = 0;
    while (!pages.ended && pages.count < 4) {
        pages.list = request_of(check, CAIRN_STORE_LIST);
        pages.list.page_entries = 1;
        CAIRN_TRY(cairn_store_pages_next(&pages, check->worker, err));
        seen += pages.listing.count;
    }
    if (seen >= 2) return CAIRN_OK;
    return cairn_fail(err, CAIRN_STORE, "of two objects %zu are listed, a page each", seen);
}

/* Runs if the credentials may list; a second object makes a second page. */
static enum cairn_code check_paging(struct check *check, struct cairn_error *err) {
    struct cairn_error why = {0}, unused = {0};
    char first[sizeof check->key];
    if (!check->may_list) return CAIRN_OK;
    memcpy(first, check->key, sizeof first);
    snprintf(check->key, sizeof check->key, "%.90s-two", first);
    struct cairn_store_request put = put_of(check);
    put.settles = true;
    CAIRN_TRY(cairn_store_perform(check->worker, &put, err));
    memcpy(check->key, first, sizeof first);
    enum cairn_code code = check_pages(check, &why);
    snprintf(check->key, sizeof check->key, "%.90s-two", first);
    struct cairn_store_request remove = request_of(check, CAIRN_STORE_DELETE);
    (void)!cairn_store_perform(check->worker, &remove, &unused);
    memcpy(check->key, first, sizeof first);
    if (code == CAIRN_FORBIDDEN) return CAIRN_OK; /* doctor reports it */
    report_check(check, CAIRN_S3_CHECK_PAGES, code == CAIRN_OK);
    return cairn_pass(err, code, &why);
}

static void check_uploads_listed(struct check *check, const char *upload_id) {
    struct cairn_store_listing listing = {0};
    struct cairn_store_request list = request_of(check, CAIRN_STORE_UPLOADS);
    if (!check->may_list) return; /* a refusal would teach nothing */
    list.key = CAIRN_S3_TEST_PREFIX;
    list.listing = &listing;
    bool listed = false;
    struct cairn_error why = {0};
    if (cairn_store_perform(check->worker, &list, &why) == CAIRN_OK)
        for (size_t i = 0; i < listing.count; i++)
            listed = listed || !strcmp(listing.entries[i].upload_id, upload_id);
    cairn_store_listing_release(&listing);
    if (listed) listed = list_nothing(check, CAIRN_STORE_UPLOADS, &why) == CAIRN_OK;
    check->profile->lists_uploads = listed;
    report_check(check, CAIRN_S3_CHECK_LISTS_UPLOADS, listed);
}

/* Without part checksums a restart recognises a part only by its recorded ETag. */
static void check_parts_listed(struct check *check, const char *upload_id) {
    struct cairn_store_part found[1] = {{0}};
    struct cairn_store_request list = request_of(check, CAIRN_STORE_UPLOAD_PARTS);
    struct cairn_error why = {0};
    list.upload_id_in = upload_id;
    list.parts = found;
    list.part_count = CAIRN_COUNT(found);
    bool listed = cairn_store_perform(check->worker, &list, &why) == CAIRN_OK;
    bool stated = listed && list.part_count && found[0].has_crc32c;
    note_stated(check, stated, found[0].crc32c);
    check->profile->lists_part_checksums = stated && !check->misstates;
    report_check(check, CAIRN_S3_CHECK_PART_CRC32C, check->profile->lists_part_checksums);
}

/* Some stores refuse part numbers above 1,000. */
static enum cairn_code check_part_count(struct check *check, struct cairn_error *err) {
    struct cairn_error why = {0};
    struct cairn_store_request create = request_of(check, CAIRN_STORE_UPLOAD_CREATE);
    CAIRN_TRY(cairn_store_perform(check->worker, &create, err));
    struct cairn_store_request part = put_of(check);
    part.op = CAIRN_STORE_UPLOAD_PART;
    part.upload_id_in = create.upload_id;
    part.part_number = check->profile->part_count_max;
    enum cairn_code code = cairn_store_perform(check->worker, &part, &why);
    struct cairn_store_request abort_it = request_of(check, CAIRN_STORE_UPLOAD_ABORT);
    abort_it.upload_id_in = create.upload_id;
    CAIRN_TRY(cairn_store_perform(check->worker, &abort_it, err));
    bool refused = why.http_status >= 400 && why.http_status < 500;
    if (code && !refused) return cairn_pass(err, code, &why);
    if (refused) check->profile->part_count_max = PART_COUNT_SMALL;
    report_check(check, CAIRN_S3_CHECK_PART_COUNT, !refused);
    return CAIRN_OK;
}

/* Checks the checksum that HEAD states for a multipart object, since saves are compared with it. */
static enum cairn_code check_joined(struct check *check, struct cairn_error *err) {
    struct cairn_store_request head = request_of(check, CAIRN_STORE_HEAD);
    CAIRN_TRY(head_late(check, &head, err));
    note_stated(check, head.object_has_crc32c, head.object_crc32c);
    return CAIRN_OK;
}

/* Repeats a refused complete without `create`. Some stores have dropped the upload by then. */
static enum cairn_code complete_again(struct check *check, struct cairn_store_request *complete,
                                      struct cairn_error *err) {
    struct cairn_error ignored = {0};
    complete->create = false;
    if (cairn_store_perform(check->worker, complete, &ignored) == CAIRN_OK)
        return check_joined(check, err);
    struct cairn_store_request abort_it = request_of(check, CAIRN_STORE_UPLOAD_ABORT);
    abort_it.upload_id_in = complete->upload_id_in;
    return cairn_store_perform(check->worker, &abort_it, err);
}

/* Completes one part onto an existing key. */
static enum cairn_code check_multipart(struct check *check, struct cairn_error *err) {
    struct cairn_store_request create = request_of(check, CAIRN_STORE_UPLOAD_CREATE);
    CAIRN_TRY(cairn_store_perform(check->worker, &create, err));
    check_uploads_listed(check, create.upload_id);
    struct cairn_store_request part = put_of(check);
    part.op = CAIRN_STORE_UPLOAD_PART;
    part.upload_id_in = create.upload_id;
    part.part_number = 1;
    CAIRN_TRY(cairn_store_perform(check->worker, &part, err));
    check_parts_listed(check, create.upload_id);
    struct cairn_store_part parts[1] = {{1, part.body.size, true, part.crc32c, ""}};
    memcpy(parts[0].etag, part.etag, sizeof parts[0].etag);
    struct cairn_store_request complete = request_of(check, CAIRN_STORE_UPLOAD_COMPLETE);
    complete.upload_id_in = create.upload_id;
    complete.parts = parts;
    complete.part_count = 1;
    complete.length = part.body.size;
    complete.has_crc32c = true;
    complete.crc32c = part.crc32c;
    complete.create = true;
    enum cairn_code code = cairn_store_perform(check->worker, &complete, err);
    if (code && code != CAIRN_PRECONDITION) return code;
    check->profile->create_only_complete = code == CAIRN_PRECONDITION;
    CAIRN_TRY(code ? complete_again(check, &complete, err) : check_joined(check, err));
    report_check(check, CAIRN_S3_CHECK_CREATE_COMPLETE, check->profile->create_only_complete);
    return CAIRN_OK;
}

/* With wrong CRC32C statements Content-MD5 is tested instead. */
static enum cairn_code check_stated(struct check *check, struct cairn_error *err) {
    struct cairn_s3_store *store = check->store;
    bool choose = check->misstates && store->config.options.checksum == CAIRN_S3_CHECKSUM_AUTO;
    report_check(check, CAIRN_S3_CHECK_STATES_RIGHT, !check->misstates);
    if (check->misstates) check->profile->lists_part_checksums = false;
    if (choose) atomic_store(&store->checksum, CAIRN_S3_CHECKSUM_MD5);
    CAIRN_TRY(check_checksum(check, err));
    if (choose && !check->profile->part_checksum)
        atomic_store(&store->checksum, CAIRN_S3_CHECKSUM_NONE);
    return CAIRN_OK;
}

static enum cairn_code check_all(struct check *check, struct cairn_error *err) {
    CAIRN_TRY(check_put(check, err));
    CAIRN_TRY(check_head(check, err));
    CAIRN_TRY(check_range(check, err));
    CAIRN_TRY(check_listing(check, err));
    CAIRN_TRY(check_paging(check, err));
    CAIRN_TRY(check_multipart(check, err));
    CAIRN_TRY(check_part_count(check, err));
    CAIRN_TRY(check_stated(check, err));
    return CAIRN_OK;
}

struct probe_scope {
    bool may_list;    /* the credentials should be able to list uploads */
    bool check_alone; /* only the check of sent checksums is unknown */
    const struct cairn_store_s3_probe_options *options; /* receives the findings */
};
static enum cairn_code run_checks(struct cairn_s3_store *store, const struct probe_scope *how,
                                  struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(&store->base, &worker, err));
    struct cairn_store_profile found = store->base.profile;
    struct check check = {.store = store,
                          .worker = worker,
                          .options = how->options,
                          .profile = &found,
                          .may_list = how->may_list};
    char id[CAIRN_UUID_TEXT_BYTES];
    cairn_uuid_random(id);
    snprintf(check.key, sizeof check.key, CAIRN_S3_TEST_PREFIX "%s", id);
    enum cairn_code code = how->check_alone ? check_checksum(&check, err) : check_all(&check, err);
    /* Without delete permission the object stays; the server's sweep removes it. */
    struct cairn_store_request remove = request_of(&check, CAIRN_STORE_DELETE);
    report_check(&check, CAIRN_S3_CHECK_DELETES,
                 cairn_store_perform(worker, &remove, NULL) == CAIRN_OK);
    if (code) return cairn_within(err, code, "testing the store");
    write_note(&found);
    store->base.profile = found;
    return CAIRN_OK;
}

/* A start probes unless profile.json is recent and of this endpoint. */

#define READ_MS 30000
#define DOCUMENT_BYTES_MAX (64 * CAIRN_KIB)
#define AHEAD_MS_MAX 3600000 /* tolerance for a document dated in our future */
#define LEFT_OVER_MS 3600000 /* by the store's clock */
#define PAGES_MAX 10000

/* The wall clock, corrected by the `Date` of the store's replies. */
static int64_t now_ms(const struct cairn_s3_store *store) {
    return store->clock->wall_ms(store->clock) + atomic_load(&store->clock_offset_ms);
}

static uint64_t deadline_ms(const struct cairn_s3_store *store) {
    uint32_t asked = store->config.options.probe_ms;
    return cairn_s3_probe_deadline_ms(store, asked ? asked : READ_MS);
}

static enum cairn_code read_document(struct cairn_s3_store *store, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(&store->base, &worker, err));
    struct cairn_store_request head = {
        .op = CAIRN_STORE_HEAD, .key = CAIRN_S3_PROFILE_KEY, .deadline_ms = deadline_ms(store)};
    CAIRN_TRY(cairn_store_perform(worker, &head, err));
    if (!head.object_bytes || head.object_bytes > DOCUMENT_BYTES_MAX)
        return cairn_fail(err, CAIRN_CORRUPT, "profile.json has %" PRIu64 " bytes",
                          head.object_bytes);
    CAIRN_TRY(cairn_buf_reserve(ret, (size_t)head.object_bytes, err));
    struct cairn_store_request get = {.op = CAIRN_STORE_GET,
                                      .key = CAIRN_S3_PROFILE_KEY,
                                      .length = head.object_bytes,
                                      .into = ret->data,
                                      .deadline_ms = deadline_ms(store)};
    memcpy(get.etag, head.etag, sizeof get.etag);
    CAIRN_TRY(cairn_store_perform(worker, &get, err));
    ret->size = (size_t)head.object_bytes;
    ret->data[ret->size] = '\0';
    return CAIRN_OK;
}

static enum cairn_code check_trusted(const struct cairn_s3_store *store,
                                     const struct cairn_s3_findings *findings,
                                     const struct cairn_store_s3_place *place,
                                     struct cairn_error *err) {
    int64_t age_ms = now_ms(store) - findings->tested_ms;
    if (strcmp(findings->endpoint, place->endpoint) != 0)
        return cairn_fail(err, CAIRN_NOT_FOUND, "profile.json is of %.100s", findings->endpoint);
    if (age_ms > CAIRN_S3_PROFILE_AGE_MS_MAX || age_ms < -AHEAD_MS_MAX)
        return cairn_fail(err, CAIRN_NOT_FOUND, "profile.json is too old or from the future");
    return CAIRN_OK;
}

/* NOT_FOUND: none to trust. Without list permission 403 means absent, so FORBIDDEN does here. */
static enum cairn_code load_profile(struct cairn_s3_store *store, struct cairn_s3_findings *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = DOCUMENT_BYTES_MAX};
    struct cairn_store_s3_place place;
    struct cairn_error why = {0};
    enum cairn_code code = read_document(store, &text, &why);
    bool refused = code == CAIRN_FORBIDDEN && why.http_status == 403; /* not a certificate */
    if (code == CAIRN_NOT_FOUND || refused)
        return cairn_fail(err, CAIRN_NOT_FOUND, "there is no profile.json");
    if (code == CAIRN_OK) code = cairn_s3_profile_decode(cairn_buf_view(&text), ret, &why);
    store->findings_foreign = code == CAIRN_UNSUPPORTED;
    if (code == CAIRN_UNSUPPORTED || code == CAIRN_CORRUPT || code == CAIRN_PRECONDITION)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s", why.message);
    CAIRN_TRY(cairn_pass(err, code, &why));
    (void)cairn_store_s3_place(&store->base, &place); /* after any region correction */
    return check_trusted(store, ret, &place, err);
}

static enum cairn_code probe_store(struct cairn_s3_store *store,
                                   const struct cairn_store_s3_probe_options *options,
                                   bool check_alone, struct cairn_error *err) {
    struct probe_scope how = {
        .may_list = options->may_list, .check_alone = check_alone, .options = options};
    CAIRN_TRY(run_checks(store, &how, err));
    if (check_alone) return CAIRN_OK;
    store->findings = (struct cairn_s3_findings){.tested_ms = now_ms(store)};
    (void)cairn_text_copy(store->findings.by, sizeof store->findings.by, options->by);
    store->findings_stored = false;
    return CAIRN_OK;
}

enum cairn_code cairn_store_s3_probe(struct cairn_store *base,
                                     const struct cairn_store_s3_probe_options *options,
                                     char ret_from[160], struct cairn_error *err) {
    struct cairn_s3_store *store = NULL;
    struct cairn_s3_findings findings = {0};
    struct cairn_error why = {0};
    char unused[160], at[32], *from = ret_from ? ret_from : unused;
    CAIRN_TRY(cairn_s3_of(base, &store, err));
    /* Also before a full test: it must show what a daemon's first request would meet. */
    enum cairn_code code = load_profile(store, &findings, &why);
    if (!code && options->anew) code = cairn_fail(&why, CAIRN_NOT_FOUND, "asked for");
    if (code && code != CAIRN_NOT_FOUND) return cairn_pass(err, code, &why);
    if (code) {
        snprintf(from, 160, "a test now: %.120s", why.message);
        return probe_store(store, options, false, err);
    }
    bool check_known = false;
    cairn_s3_profile_adopt(store, &findings, &check_known);
    store->findings = findings;
    store->findings_stored = true;
    cairn_time_text(findings.tested_ms, false, at);
    snprintf(from, 160, "profile.json, tested by %s at %s", findings.by, at);
    return check_known ? CAIRN_OK : probe_store(store, options, true, err);
}

static void write_line(void *owner, enum cairn_store_s3_check check, bool holds) {
    (void)!cairn_buf_printf(owner, NULL, "%s: %s\n", cairn_store_s3_check_text(check),
                            holds ? "yes" : "no");
}

enum cairn_code cairn_store_s3_probe_all(struct cairn_store *base, struct cairn_buf *ret_report,
                                         struct cairn_error *err) {
    struct cairn_store_s3_probe_options all = {.by = "doctor", .may_list = true, .anew = true};
    if (ret_report) all.found = write_line;
    all.owner = ret_report;
    return cairn_store_s3_probe(base, &all, NULL, err);
}

/* Versioning may be switched on at any time, so a start queries it even with a trusted
 * profile.json. Without permission the replies to puts and deletes decide. */
static void ask_versioning(struct cairn_s3_store *store) {
    static const char status[] = "VersioningConfiguration/Status";
    struct cairn_store_s3_answer answer = {0};
    struct cairn_error unused = {0};
    enum cairn_code code = cairn_store_s3_query(&store->base, "versioning", &answer, &unused);
    if (code == CAIRN_OK && cairn_store_s3_answer_has(&answer, "VersioningConfiguration", NULL))
        atomic_store(&store->keeps_versions,
                     cairn_store_s3_answer_has(&answer, status, "Enabled") ||
                         cairn_store_s3_answer_has(&answer, status, "Suspended"));
    cairn_buf_release(&answer.document);
}

enum cairn_code cairn_s3_probe(struct cairn_store *base, const char *by, bool may_list,
                               char ret_from[160], struct cairn_error *err) {
    struct cairn_store_s3_probe_options options = {.by = by, .may_list = may_list};
    CAIRN_TRY(cairn_store_s3_probe(base, &options, ret_from, err));
    if (may_list) ask_versioning((struct cairn_s3_store *)base);
    return CAIRN_OK;
}

/* True if replies contradicted the findings. Unchecked checksums show in probes only. */
bool cairn_s3_profile_wrong(struct cairn_s3_store *store) {
    struct cairn_s3_findings now;
    if (!store->findings_stored) return false;
    cairn_s3_profile_take(store, &now);
    bool md5 = now.method == CAIRN_S3_CHECKSUM_MD5 && store->findings.method != now.method;
    bool refused =
        now.create_put == CAIRN_S3_REFUSED && store->findings.create_put != now.create_put;
    return md5 || refused || (now.misstates && !store->findings.misstates);
}

enum cairn_code cairn_s3_profile_save(struct cairn_store *base, bool *ret_written,
                                      struct cairn_error *err) {
    struct cairn_s3_store *store = (struct cairn_s3_store *)base;
    struct cairn_s3_findings findings;
    CAIRN_AUTO(buf) text = {0};
    *ret_written = false;
    bool versions = atomic_load(&store->keeps_versions) != store->findings.keeps_versions;
    bool worth = !store->findings_stored || versions || cairn_s3_profile_wrong(store);
    if (!worth || store->findings_foreign || !store->findings.tested_ms) return CAIRN_OK;
    cairn_s3_profile_take(store, &findings);
    /* A method that a setting kept from being tested stays as in profile.json. */
    if (store->findings_stored && findings.method == CAIRN_S3_CHECKSUM_AUTO)
        findings.method = store->findings.method;
    CAIRN_TRY(cairn_s3_profile_encode(&findings, &text, err));
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(&store->base, &worker, err));
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = CAIRN_S3_PROFILE_KEY,
                                      .body = cairn_buf_view(&text),
                                      .deadline_ms = deadline_ms(store)};
    CAIRN_TRY(cairn_store_perform(worker, &put, err));
    store->findings = findings;
    store->findings_stored = true;
    *ret_written = true;
    return CAIRN_OK;
}

/* ---- leftovers of interrupted probes ---- */

struct tidying {
    struct cairn_s3_store *store;
    struct cairn_store_worker *worker;
    int64_t before_ms;
};

static enum cairn_code remove_old(struct tidying *tidying,
                                  const struct cairn_store_listing *listing,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < listing->count; i++) {
        const struct cairn_store_entry *entry = &listing->entries[i];
        if (!entry->modified_ms || entry->modified_ms >= tidying->before_ms) continue;
        struct cairn_store_request remove = {.op = entry->upload_id ? CAIRN_STORE_UPLOAD_ABORT
                                                                    : CAIRN_STORE_DELETE,
                                             .key = entry->key,
                                             .upload_id_in = entry->upload_id,
                                             .deadline_ms = deadline_ms(tidying->store)};
        CAIRN_TRY(cairn_store_perform(tidying->worker, &remove, err));
    }
    return CAIRN_OK;
}

static enum cairn_code tidy_all(struct tidying *tidying, enum cairn_store_op op,
                                struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {.list = {.op = op, .key = CAIRN_S3_TEST_PREFIX}};
    while (!pages.ended && pages.count < PAGES_MAX) {
        pages.list.deadline_ms = deadline_ms(tidying->store);
        CAIRN_TRY(cairn_store_pages_next(&pages, tidying->worker, err));
        CAIRN_TRY(remove_old(tidying, &pages.listing, err));
    }
    if (pages.ended) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "%s has more than %d pages", CAIRN_S3_TEST_PREFIX,
                      PAGES_MAX);
}

enum cairn_code cairn_s3_tidy(struct cairn_store *base, struct cairn_error *err) {
    struct tidying tidying = {.store = (struct cairn_s3_store *)base};
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(base, &worker, err));
    tidying.worker = worker;
    tidying.before_ms = now_ms(tidying.store) - LEFT_OVER_MS;
    struct cairn_store_purge purge = {.prefix = CAIRN_S3_TEST_PREFIX,
                                      .before_ms = tidying.before_ms};
    CAIRN_TRY(tidy_all(&tidying, CAIRN_STORE_LIST, err));
    CAIRN_TRY(tidy_all(&tidying, CAIRN_STORE_UPLOADS, err));
    return cairn_store_purge(worker, &purge, err);
}
