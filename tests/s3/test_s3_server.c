/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: as=s3_server lacks=server */
/* ctest: as=s3_server_like_aws under=s3fault:aws labels=s3 */
/* ctest: as=s3_server_like_minio under=s3fault:minio labels=s3 */
/* ctest: as=s3_server_like_r2 under=s3fault:r2 labels=s3 */
/* ctest: as=s3_server_like_b2 under=s3fault:b2 labels=s3 */
/* ctest: as=s3_server_like_parts1000 under=s3fault:parts1000 labels=s3 */
/* ctest: as=s3_server_like_radosgw under=s3fault:radosgw labels=s3 */
/*
 * The store against a real S3 server, named by CAIRN_TEST_S3_URL (s3://bucket/prefix) and AWS's
 * usual variables. Each test works under a prefix of its own.
 */
#include "store/s3/s3.h"

#include "common/http/http.h"
#include "common/trace.h"
#include "store/multipart.h"
#include "store/s3/probe.h"
#include "tests/harness.h"

#define PART (5 * CAIRN_MIB)

struct cairn_lab {
    struct cairn_store *store;
    struct cairn_store_worker *worker;
    char url[512];
    struct cairn_error error;
};
static void cairn_lab_release(struct cairn_lab *lab) {
    cairn_store_worker_free(lab->worker);
    cairn_store_free(lab->store);
}
#define err (lab.error)

static enum cairn_code open_lab(struct cairn_lab *lab,
                                const struct cairn_store_s3_options *options) {
    char id[CAIRN_UUID_TEXT_BYTES];
    cairn_uuid_random(id);
    const char *base = getenv("CAIRN_TEST_S3_URL");
    snprintf(lab->url, sizeof lab->url, "%s/%s", base ? base : "", id);
    struct cairn_store_options open = {.url = lab->url, .s3 = options};
    CAIRN_TRY(cairn_store_s3_open(&open, &lab->store, &lab->error));
    return cairn_store_worker_new(lab->store, &lab->worker, &lab->error);
}
#define LAB(lab_name, options)                                                                     \
    if (!getenv("CAIRN_TEST_S3_URL")) SKIP("CAIRN_TEST_S3_URL names no real server");              \
    CAIRN_AUTO(lab) lab_name = {0};                                                                \
    REQUIRE_OK(open_lab(&lab_name, options))

static const char *bytes_of(uint8_t seed, size_t size) {
    char *bytes = malloc(size);
    for (size_t i = 0; bytes && i < size; i++) bytes[i] = (char)(seed + i * 7 + (i >> 12));
    return bytes;
}

TEST(small_objects_come_back_as_they_went_and_go_away) {
    LAB(lab, NULL);
    EACH_TEXT(text, "plain", "a b+c%2F=&?#é日.bin", "deep/er/..x/~tilde'()*!") {
        REQUIRE_OK(cairn_store_put_small(lab.worker, text, CAIRN_VIEW("hello"), true, &err));
        WITH_OK(buf, back, cairn_store_get_small(lab.worker, text, &back, &err));
        EXPECT_EQ_TEXT(back.data, "hello");
        REQUIRE_OK(cairn_store_put_same(lab.worker, text, CAIRN_VIEW("hello"), &err));
        EXPECT_CODE(cairn_store_put_same(lab.worker, text, CAIRN_VIEW("other"), &err),
                    CAIRN_CONFLICT);
        REQUIRE_OK(cairn_store_delete(lab.worker, text, &err));
        REQUIRE_OK(cairn_store_delete(lab.worker, text, &err)); /* again: still fine */
        EXPECT_CODE(cairn_store_get_small(lab.worker, text, &back, &err), CAIRN_NOT_FOUND);
    }
}

TEST(many_objects_go_away_in_one_request) { /* S27 */
    LAB(lab, NULL);
    static const char *const keys[] = {"m/plain", "m/a b+c%2F=&<>\"'é日", "m/never", "m/z"};
    struct cairn_store_deletion deletions[CAIRN_COUNT(keys)] = {{0}};
    CAIRN_AUTO(buf) back = {0};
    for (size_t i = 0; i < CAIRN_COUNT(keys); i++) {
        deletions[i].key = keys[i];
        if (i == 2) continue;
        REQUIRE_OK(cairn_store_put_small(lab.worker, keys[i], CAIRN_VIEW("x"), false, &err));
    }
    REQUIRE_OK(cairn_store_delete_many(lab.worker, "m/", deletions, CAIRN_COUNT(keys), &err));
    for (size_t i = 0; i < CAIRN_COUNT(keys); i++) {
        EXPECT(deletions[i].deleted);
        EXPECT_CODE(cairn_store_get_small(lab.worker, keys[i], &back, &err), CAIRN_NOT_FOUND);
    }
}

TEST(a_put_that_may_only_create_does_not_replace) {
    LAB(lab, NULL);
    REQUIRE_OK(cairn_store_put_small(lab.worker, "k", CAIRN_VIEW("first"), true, &err));
    struct cairn_store_request again = {
        .op = CAIRN_STORE_PUT, .key = "k", .body = CAIRN_VIEW("second"), .create = true};
    enum cairn_code code = cairn_store_perform(lab.worker, &again, &err);
    struct cairn_store_health health;
    cairn_store_health(lab.store, &health);
    if (health.degraded) SKIP("this server knows no If-None-Match");
    EXPECT_CODE(code, CAIRN_PRECONDITION);
    EXPECT(!again.ambiguous);
}

TEST(ranges_are_exact_and_tell_size_and_etag) {
    LAB(lab, NULL);
    CAIRN_AUTO_HEAP char *bytes = (char *)bytes_of(1, 100000);
    REQUIRE_OK(
        cairn_store_put_small(lab.worker, "r", (struct cairn_view){bytes, 100000}, false, &err));
    char into[1000];
    PERFORMED(get, lab.worker,
              {.op = CAIRN_STORE_GET, .key = "r", .offset = 54321, .length = 1000, .into = into});
    EXPECT(!memcmp(into, bytes + 54321, 1000));
    EXPECT_EQ_U64(get.object_bytes, 100000);
    EXPECT(get.etag[0]);
    REQUIRE_OK(cairn_store_perform(lab.worker, &get, &err)); /* now with If-Match */
    get.offset = 99999;
    EXPECT_CODE(cairn_store_perform(lab.worker, &get, &err), CAIRN_RANGE);
    get.offset = 100000;
    EXPECT_CODE(cairn_store_perform(lab.worker, &get, &err), CAIRN_RANGE);
    get.offset = 0;
    snprintf(get.etag, sizeof get.etag, "\"00000000000000000000000000000000\"");
    EXPECT_CODE(cairn_store_perform(lab.worker, &get, &err), CAIRN_PRECONDITION);
}

TEST(a_head_tells_length_and_upload_token) {
    LAB(lab, NULL);
    PERFORMED(put, lab.worker,
              {.op = CAIRN_STORE_PUT,
               .key = "h",
               .body = CAIRN_VIEW("123456789"),
               .has_crc32c = true,
               .crc32c = 0xe3069283,
               .token = "9f1c7a52-0000-4000-8000-000000000001"});
    PERFORMED(head, lab.worker, {.op = CAIRN_STORE_HEAD, .key = "h"});
    EXPECT_EQ_U64(head.object_bytes, 9);
    EXPECT_ALL_TEXT(head.object_token, put.token, head.etag, put.etag);
    if (head.object_has_crc32c) EXPECT_EQ_U64(head.object_crc32c, 0xe3069283);
}

/* Creates an upload and sends parts; the caller completes or aborts. */
static enum cairn_code send_parts(struct cairn_lab *lab, struct cairn_store_request *create,
                                  struct cairn_view bytes, struct cairn_store_part *parts,
                                  size_t *ret_count) {
    *create = (struct cairn_store_request){.op = CAIRN_STORE_UPLOAD_CREATE,
                                           .key = "m",
                                           .length = bytes.size,
                                           .token = "9f1c7a52-0000-4000-8000-000000000002"};
    CAIRN_TRY(cairn_store_perform(lab->worker, create, &lab->error));
    for (size_t at = 0; at < bytes.size; at += PART) {
        struct cairn_view body = {(const char *)bytes.data + at,
                                  cairn_min_u64(PART, bytes.size - at)};
        struct cairn_store_request part = {.op = CAIRN_STORE_UPLOAD_PART,
                                           .key = "m",
                                           .upload_id_in = create->upload_id,
                                           .part_number = (uint32_t)*ret_count + 1,
                                           .offset = at,
                                           .body = body,
                                           .has_crc32c = true,
                                           .crc32c = cairn_crc32c(0, body.data, body.size)};
        CAIRN_TRY(cairn_store_perform(lab->worker, &part, &lab->error));
        struct cairn_store_part *to = &parts[(*ret_count)++];
        *to = (struct cairn_store_part){part.part_number, body.size, true, part.crc32c, ""};
        memcpy(to->etag, part.etag, sizeof to->etag);
    }
    return CAIRN_OK;
}

TEST(a_multipart_upload_is_listed_completed_and_read_back) {
    LAB(lab, NULL);
    size_t size = 2 * PART + 12345, count = 0;
    CAIRN_AUTO_HEAP char *bytes = (char *)bytes_of(3, size);
    CAIRN_AUTO_HEAP char *back = malloc(size);
    struct cairn_store_part parts[3], found[8];
    struct cairn_store_request create;
    REQUIRE_OK(send_parts(&lab, &create, (struct cairn_view){bytes, size}, parts, &count));
    PERFORMED(list, lab.worker,
              {.op = CAIRN_STORE_UPLOAD_PARTS,
               .key = "m",
               .upload_id_in = create.upload_id,
               .parts = found,
               .part_count = 8});
    REQUIRE(list.part_count == 3);
    EXPECT_EQ_U64(found[2].size_bytes, 12345);
    CAIRN_AUTO(store_listing) listing = {0};
    PERFORMED(uploads, lab.worker, {.op = CAIRN_STORE_UPLOADS, .key = "", .listing = &listing});
    if (!listing.count) { /* MinIO lists them by the whole key only */
        uploads.key = "m";
        REQUIRE_OK(cairn_store_perform(lab.worker, &uploads, &err));
    }
    REQUIRE(listing.count == 1);
    EXPECT_ALL_TEXT(listing.entries[0].key, "m", listing.entries[0].upload_id, create.upload_id);
    PERFORMED(complete, lab.worker,
              {.op = CAIRN_STORE_UPLOAD_COMPLETE,
               .key = "m",
               .upload_id_in = create.upload_id,
               .parts = parts,
               .part_count = count,
               .length = size,
               .has_crc32c = true,
               .crc32c = cairn_crc32c(0, bytes, size),
               .token = create.token,
               .create = true});
    PERFORMED(head, lab.worker, {.op = CAIRN_STORE_HEAD, .key = "m"});
    EXPECT_EQ_U64(head.object_bytes, size);
    EXPECT_EQ_TEXT(head.object_token, create.token);
    struct cairn_store_request get = {
        .op = CAIRN_STORE_GET, .key = "m", .length = size, .into = back};
    memcpy(get.etag, head.etag, sizeof get.etag);
    REQUIRE_OK(cairn_store_perform(lab.worker, &get, &err));
    EXPECT(!memcmp(bytes, back, size));
}

TEST(a_wrong_part_is_incomplete_and_an_aborted_upload_is_gone) {
    LAB(lab, NULL);
    size_t count = 0;
    CAIRN_AUTO_HEAP char *bytes = (char *)bytes_of(5, PART + 10);
    struct cairn_store_part parts[2];
    struct cairn_store_request create;
    REQUIRE_OK(send_parts(&lab, &create, (struct cairn_view){bytes, PART + 10}, parts, &count));
    snprintf(parts[1].etag, sizeof parts[1].etag, "\"00000000000000000000000000000000\"");
    EXPECT_PERFORMED(CAIRN_INCOMPLETE, complete, lab.worker,
                     {.op = CAIRN_STORE_UPLOAD_COMPLETE,
                      .key = "m",
                      .upload_id_in = create.upload_id,
                      .parts = parts,
                      .part_count = count,
                      .length = PART + 10});
    EXPECT(!complete.ambiguous);
    EXPECT(complete.error.request_id[0]);
    PERFORMED(abort_it, lab.worker,
              {.op = CAIRN_STORE_UPLOAD_ABORT, .key = "m", .upload_id_in = create.upload_id});
    REQUIRE_OK(cairn_store_perform(lab.worker, &abort_it, &err));
    complete.part_count = 1;
    enum cairn_code code = cairn_store_perform(lab.worker, &complete, &err);
    EXPECT(code == CAIRN_NOT_FOUND || (code == CAIRN_UNAVAILABLE && complete.ambiguous)); /* Ceph */
    struct cairn_store_part found[4];
    EXPECT_PERFORMED(CAIRN_NOT_FOUND, list, lab.worker,
                     {.op = CAIRN_STORE_UPLOAD_PARTS,
                      .key = "m",
                      .upload_id_in = create.upload_id,
                      .parts = found,
                      .part_count = 4});
}

TEST(listings_give_keys_without_the_prefix_page_by_page) {
    LAB(lab, NULL);
    for (int i = 0; i < 12; i++) {
        REQUIRE_OK(cairn_store_put_small(lab.worker, TEXT("%s/é %02d+", i % 2 ? "odd" : "even", i),
                                         CAIRN_VIEW("x"), false, &err));
    }
    CAIRN_AUTO(store_listing) listing = {0};
    PERFORMED(list, lab.worker, {.op = CAIRN_STORE_LIST, .key = "odd/", .listing = &listing});
    EXPECT_EQ_U64(listing.count, 6);
    REQUIRE(listing.count == 6);
    EXPECT_EQ_TEXT(listing.entries[0].key, "odd/é 01+");
    EXPECT_EQ_U64(listing.entries[0].size_bytes, 1);
    EXPECT(listing.entries[0].modified_ms > INT64_C(1600000000000));
    EXPECT(!listing.next_page);
}

TEST(a_presigned_url_gives_its_key_to_anyone_by_range) {
    LAB(lab, NULL);
    static const char key[] = "pre signed/é+";
    REQUIRE_OK(cairn_store_put_small(lab.worker, key, CAIRN_VIEW("0123456789"), false, &err));
    CAIRN_AUTO(buf) url = {0}, body = {0};
    uint32_t life = 0;
    REQUIRE_OK(cairn_store_presign(lab.store, key, 60, &url, &life, &err));
    EXPECT_EQ_U64(life, 60);
    struct cairn_http_engine *engine = NULL;
    REQUIRE_OK(cairn_http_engine_new(NULL, &engine, &err));
    static const char *const headers[] = {"Range: bytes=2-4"};
    struct cairn_http_request get = {.method = "GET",
                                     .url = url.data,
                                     .headers = headers,
                                     .header_count = 1,
                                     .reply_buf = &body};
    EXPECT_CODE(cairn_http_perform(engine, &get, &err), CAIRN_OK);
    EXPECT_EQ_U64(get.status, 206);
    EXPECT_EQ_TEXT(body.data, "234");
    url.data[url.size - 1] = url.data[url.size - 1] == '0' ? '1' : '0';
    EXPECT_CODE(cairn_http_perform(engine, &get, &err), CAIRN_OK);
    EXPECT_EQ_U64(get.status, 403);
    cairn_http_engine_free(engine);
}

TEST(wrong_keys_and_absent_buckets_fail_at_once_and_by_name) { /* S10 */
    LAB(lab, NULL);
    struct cairn_store_options absent = {.url = "s3://no-such-bucket-here"};
    struct cairn_store *store = NULL;
    struct cairn_store_worker *worker = NULL;
    REQUIRE_OK(cairn_store_s3_open(&absent, &store, &err));
    REQUIRE_OK(cairn_store_worker_new(store, &worker, &err));
    uint64_t start = cairn_mono_ms();
    EXPECT_FAILS(cairn_store_put_small(worker, "k", CAIRN_VIEW("x"), false, &err), CAIRN_STORE,
                 "NoSuchBucket");
    EXPECT(cairn_mono_ms() - start < 60000); /* and not at the deadline, 5 min */
    cairn_store_worker_free(worker);
    cairn_store_free(store);
    const char *secret = TEXT("%s", getenv("AWS_SECRET_ACCESS_KEY"));
    setenv("AWS_SECRET_ACCESS_KEY", "canary-of-a-secret", 1);
    CAIRN_AUTO(lab) other = {0};
    enum cairn_code code = open_lab(&other, NULL);
    if (!code) code = cairn_store_put_small(other.worker, "k", CAIRN_VIEW("x"), false, &err);
    setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
    EXPECT_EQ_U64(code, CAIRN_UNAUTHORIZED);
    EXPECT(!strstr(err.message, "canary"));
}

TEST(md5_is_checked_by_the_server) { /* S20 */
    struct cairn_store_s3_options options = {.checksum = CAIRN_S3_CHECKSUM_MD5};
    LAB(lab, &options);
    REQUIRE_OK(cairn_store_put_small(lab.worker, "k", CAIRN_VIEW("x"), false, &err));
    static const uint8_t wrong[16] = {1};
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = "k2",
                                      .body = CAIRN_VIEW("x"),
                                      .md5 = wrong,
                                      .deadline_ms = cairn_mono_ms() + HANG_MS};
    EXPECT_CODE(cairn_store_perform(lab.worker, &put, &err), CAIRN_CORRUPT);
    EXPECT(strstr(err.message, "BadDigest"));
}

TEST(what_the_store_does_is_found_out_and_nothing_is_left_behind) { /* H10 */
    LAB(lab, NULL);
    WITH_OK(buf, report, cairn_store_s3_probe_all(lab.store, &report, &err));
    const struct cairn_store_profile *profile = cairn_store_profile(lab.store);
    EXPECT(profile->head_has_token);
    EXPECT(strstr(report.data, "ranges are exact: yes\n"));
    CAIRN_AUTO(store_listing) listing = {0};
    PERFORMED(list, lab.worker, {.op = CAIRN_STORE_LIST, .key = "", .listing = &listing});
    EXPECT_EQ_U64(listing.count, 0);
    if (getenv("CAIRN_TEST_S3_REPORT")) printf("%s(%s)\n", report.data, profile->note);
}
