/* SPDX-License-Identifier: Apache-2.0 */
/* What the store puts right by itself (checksum, region, clock, keys), and what stays secret. */
#include "common/log.h"
#include "tests/support/s3_script.h"

/* ---- things of ours that are put right ---- */

TEST(a_refused_checksum_header_gives_way_to_md5_and_that_is_told) { /* S21 */
    RIG(plain, {501, "", ERROR_BODY("NotImplemented")}, {501, "", ERROR_BODY("NotImplemented")},
        {200, STORED, ""});
    struct cairn_store_request put = PUT_REQUEST;
    struct cairn_store_health health;
    cairn_store_health(rig.store, &health);
    EXPECT(!health.degraded);
    REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err));
    EXPECT(!strstr(rig.heads[1], "If-None-Match")); /* first suspect */
    EXPECT_HAS(rig.heads[2], "Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==\r\n", "!x-amz-checksum");
    cairn_store_health(rig.store, &health);
    EXPECT(health.degraded);
    EXPECT_HAS(health.text, "Content-MD5", "If-None-Match");
}

TEST(a_store_that_asks_for_md5_by_a_code_of_its_own_gets_it) { /* MinIO */
    RIG(plain, {400, "", ERROR_BODY("MissingContentMD5")}, {200, STORED, ""}, {200, STORED, ""});
    struct cairn_store_request put = PUT_REQUEST;
    for (int i = 1; i <= 2; i++) {
        REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err));
        EXPECT(strstr(rig.heads[i], "Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==\r\n"));
    }
}

/* ---- a HEAD, which is refused without a body ---- */

#define HEAD_REQUEST                                                                               \
    { .op = CAIRN_STORE_HEAD, .key = "k" }

TEST(a_head_that_is_refused_for_asking_for_the_checksum_is_asked_without_it_from_then_on) {
    RIG(plain, {400, "", ""}, {404, "", ""}, {200, "Content-Length: 0\r\n" STORED, ""});
    EXPECT_PERFORMED(CAIRN_NOT_FOUND, head, rig.worker, HEAD_REQUEST);
    EXPECT_HAS(rig.heads[0], "HEAD /", "x-amz-checksum-mode: ENABLED\r\n");
    EXPECT_HAS(rig.heads[1], "HEAD /", "!x-amz-checksum");
    REQUIRE_OK(cairn_store_perform(rig.worker, &head, &err));
    EXPECT(!strstr(rig.heads[2], "x-amz-checksum"));
    EXPECT_EQ_U64(requests(&rig), 3);
}

TEST(a_403_for_the_checksum_of_one_object_says_nothing_of_the_next_one) {
    RIG(plain, {403, "", ""}, {200, "Content-Length: 0\r\n" STORED, ""});
    PERFORMED(head, rig.worker, HEAD_REQUEST);
    REQUIRE_OK(cairn_store_perform(rig.worker, &head, &err));
    EXPECT(strstr(rig.heads[2], "x-amz-checksum-mode: ENABLED\r\n"));
}

TEST(a_get_of_one_byte_names_why_a_head_is_refused) {
    EACH(one, FIELDS(int status; const char *body; enum cairn_code code; const char *named),
         {403, ERROR_BODY("AccessDenied"), CAIRN_FORBIDDEN, "AccessDenied"},
         {403, ERROR_BODY("InvalidAccessKeyId"), CAIRN_UNAUTHORIZED, "InvalidAccessKeyId"},
         {400, ERROR_BODY("ExpiredToken"), CAIRN_UNAUTHORIZED, "ended"},
         {404, ERROR_BODY("NoSuchBucket"), CAIRN_STORE, "NoSuchBucket"},
         {404, ERROR_BODY("NoSuchKey"), CAIRN_NOT_FOUND, "NoSuchKey"},
         {403, "<html>blocked by the firewall</html>", CAIRN_FORBIDDEN, "403"}) {
        struct cairn_s3_line script[] = {{one->status == 404 ? 403 : one->status, "", ""},
                                         {one->status == 404 ? 403 : one->status, "", ""},
                                         {one->status, "", one->body}};
        WITH_OK(rig, rig, cairn_rig_open(&rig, script, CAIRN_COUNT(script), plain));
        EXPECT_PERFORMED(one->code, head, rig.worker, HEAD_REQUEST);
        EXPECT_HAS(rig.heads[2], "GET /", "Range: bytes=0-0\r\n");
        if (!EXPECT(strstr(err.message, one->named))) fprintf(stderr, "%s\n", err.message);
        EXPECT_EQ_U64(requests(&rig), 3);
    }
}

TEST(what_a_get_says_of_the_region_is_put_right_and_the_head_goes_on) {
    RIG(plain, {400, "", ""}, {400, "", ""},
        {400, "",
         "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-x-1</Region></Error>"},
        {200, "Content-Length: 0\r\n" STORED, ""});
    PERFORMED(head, rig.worker, HEAD_REQUEST);
    EXPECT_HAS(rig.heads[3], "HEAD /", "/eu-x-1/s3/aws4_request");
}

TEST(where_heads_are_refused_a_get_of_one_byte_tells_length_and_token) {
    RIG(plain, {405, "", ""}, {405, "", ""},
        {206, "Content-Range: bytes 0-0/1234\r\nx-amz-meta-cairn-upload: tok\r\n" STORED, "x"},
        {405, "", ""}, {416, "Content-Range: bytes */0\r\n" STORED, ""});
    struct cairn_store_request head = HEAD_REQUEST, empty = HEAD_REQUEST;
    REQUIRE_OK(cairn_store_perform(rig.worker, &head, &err));
    EXPECT_EQ_U64(head.object_bytes, 1234);
    EXPECT_EQ_TEXT(head.object_token, "tok");
    empty.object_bytes = 7;
    REQUIRE_OK(cairn_store_perform(rig.worker, &empty, &err));
    EXPECT_EQ_U64(empty.object_bytes, 0);
}

/* ---- checksums of small objects ---- */

TEST(every_put_carries_a_checksum_though_its_caller_gives_none) { /* a bucket with Object Lock */
    RIG(plain, {200, STORED, ""}, {400, "", ERROR_BODY("InvalidArgument")}, {200, STORED, ""});
    PERFORMED(put, rig.worker,
              {.op = CAIRN_STORE_PUT, .key = "k", .body = CAIRN_VIEW("123456789")});
    EXPECT(strstr(rig.heads[0], "x-amz-checksum-crc32c: 4waSgw==\r\n"));
    put.has_crc32c = false;
    REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err)); /* a store that knows MD5 only */
    EXPECT(strstr(rig.heads[2], "Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==\r\n"));
}

#define REQUIRED                                                                                   \
    "<Error><Code>InvalidRequest</Code><Message>Content-MD5 OR x-amz-checksum- HTTP header is "    \
    "required for Put requests with Object Lock parameters</Message></Error>"

TEST(with_when_required_a_checksum_is_sent_once_the_bucket_asks_for_one) {
    setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required", 1);
    RIG(plain, {400, "", REQUIRED}, {200, STORED, ""});
    unsetenv("AWS_REQUEST_CHECKSUM_CALCULATION");
    PERFORMED(put, rig.worker,
              {.op = CAIRN_STORE_PUT, .key = "k", .body = CAIRN_VIEW("123456789")});
    EXPECT(!strstr(rig.heads[0], "x-amz-checksum"));
    EXPECT(strstr(rig.heads[1], "x-amz-checksum-crc32c: 4waSgw==\r\n"));
    struct cairn_store_s3_options none = {.checksum = CAIRN_S3_CHECKSUM_NONE};
    static const struct cairn_s3_line lines[] = {{400, "", REQUIRED}};
    WITH_OK(rig, second, cairn_rig_open(&second, lines, 1, none));
    EXPECT_CODE(cairn_store_perform(second.worker, &put, &err), CAIRN_STORE);
    EXPECT_EQ_U64(requests(&second), 1); /* what a setting says is kept */
}

/* ---- ways and policies ---- */

static const char big[100 * 1000];
#define BIG_PUT                                                                                    \
    {                                                                                              \
        .op = CAIRN_STORE_PUT, .key = "k", .body = { big, sizeof big }                             \
    }

TEST(a_store_that_refuses_unsigned_bodies_by_name_gets_signed_ones_and_that_is_told) {
    RIG(plain,
        {400, "",
         "<Error><Code>InvalidRequest</Code><Message>UNSIGNED-PAYLOAD is not supported</Message>"
         "</Error>"},
        {200, STORED, ""});
    struct cairn_store_request put = BIG_PUT;
    struct cairn_store_health health;
    REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err));
    EXPECT(strstr(rig.heads[0], "x-amz-content-sha256: UNSIGNED-PAYLOAD"));
    EXPECT_HAS(rig.heads[1], "!UNSIGNED-PAYLOAD", "x-amz-checksum-crc32c");
    cairn_store_health(rig.store, &health);
    EXPECT(strstr(health.text, "SHA-256"));
}

TEST(a_refused_unsigned_body_names_the_setting_that_signs_it) {
    RIG(plain, {403, "", ERROR_BODY("AccessDenied")});
    struct cairn_store_request put = BIG_PUT;
    EXPECT_FAILS(cairn_store_perform(rig.worker, &put, &err), CAIRN_FORBIDDEN,
                 "sign_payload = true");
    struct cairn_store_request small = PUT_REQUEST;
    EXPECT_FAILS(cairn_store_perform(rig.worker, &small, &err), CAIRN_FORBIDDEN, "acl");
    EXPECT(strstr(err.message, "sse"));
}

TEST(a_signature_that_a_way_breaks_now_and_then_is_sent_again_but_a_wrong_key_is_told_at_once) {
    RIG(plain, {403, "", ERROR_BODY("SignatureDoesNotMatch")}, {200, STORED, ""},
        {403, "", ERROR_BODY("SignatureDoesNotMatch")}, {200, STORED, ""},
        {403, "", ERROR_BODY("SignatureDoesNotMatch")});
    EXPECT_PERFORMED(CAIRN_UNAUTHORIZED, put, rig.worker, PUT_REQUEST);
    EXPECT_EQ_U64(requests(&rig), 1); /* nothing has shown yet that the key is right */
    REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err));
    REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err));
    EXPECT_EQ_U64(requests(&rig), 4);
    EXPECT_CODE(cairn_store_perform(rig.worker, &put, &err), CAIRN_UNAUTHORIZED);
    EXPECT_EQ_U64(requests(&rig), 7);
    EXPECT(strstr(err.message, "on the way"));
}

TEST(a_body_that_a_proxy_finds_too_large_names_what_to_set_there) {
    RIG(plain, {413, "", "<html>413 Request Entity Too Large</html>"});
    struct cairn_store_request put = BIG_PUT;
    EXPECT_FAILS(cairn_store_perform(rig.worker, &put, &err), CAIRN_TOO_LARGE,
                 "client_max_body_size");
}

TEST(a_page_that_something_before_the_store_shows_is_not_taken_for_the_store_s_word) {
    RIG(plain, {403, "Content-Type: text/html\r\n", "<!DOCTYPE html><HTML>Request blocked</HTML>"},
        {403, "", ERROR_BODY("AccessDenied")}, {403, "", ""});
    struct cairn_store_request put = BIG_PUT;
    EXPECT_FAILS(cairn_store_perform(rig.worker, &put, &err), CAIRN_FORBIDDEN,
                 "something before the store, such as a firewall");
    for (int i = 0; i < 2; i++) {
        EXPECT_CODE(cairn_store_perform(rig.worker, &put, &err), CAIRN_FORBIDDEN);
        EXPECT(!strstr(err.message, "something before the store"));
    }
}

TEST(what_is_said_without_a_code_is_quoted_in_one_line) {
    EACH(one, FIELDS(struct cairn_s3_line line; const char *said),
         {{403, "", "{\"message\":\"Bucket is in maintenance\",\n\t\"status\":403}"},
          "answered 403 and says: {\"message\":\"Bucket is in maintenance\", \"status\":403}"},
         {{403, "", "\r\n policy 42:\x01uploads need approval\n"},
          "answered 403 and says: policy 42: uploads need approval"},
         {{403, "", "\xff\xfe"}, "answered 403"}, {{403, "", " \n"}, "answered 403"}) {
        CAIRN_AUTO(rig) rig = {0};
        REQUIRE_OK(cairn_rig_open(&rig, &one->line, 1, plain));
        struct cairn_store_request put = PUT_REQUEST;
        EXPECT_FAILS(cairn_store_perform(rig.worker, &put, &err), CAIRN_FORBIDDEN, one->said);
        EXPECT(strstr(err.message, "says") || !strstr(one->said, "says"));
    }
}

TEST(an_account_beyond_its_cap_has_no_space_whatever_the_store_calls_it) {
    RIG(plain,
        {403, "",
         "<Error><Code>AccessDenied</Code><Message>Cannot upload files, storage cap exceeded. See "
         "the Caps &amp; Alerts page.</Message></Error>"}, /* Backblaze B2 */
        {400, "", ERROR_BODY("XMinioAdminBucketQuotaExceeded")});
    struct cairn_store_request put = PUT_REQUEST;
    EXPECT_FAILS(cairn_store_perform(rig.worker, &put, &err), CAIRN_NO_SPACE, "Alerts page.");
    EXPECT(!strstr(err.message, "policy"));
    EXPECT_CODE(cairn_store_perform(rig.worker, &put, &err), CAIRN_NO_SPACE);
}

TEST(a_put_may_be_answered_with_201) {
    RIG(plain, {201, "", ""}, {201, STORED, ""});
    PERFORMED(put, rig.worker, PUT_REQUEST);
    EXPECT_EQ_TEXT(put.etag, "\"e\"");
    EXPECT_EQ_U64(requests(&rig), 2); /* without an ETag it proves nothing */
}

TEST(an_archived_object_is_called_that) {
    RIG(plain, {403, "", ERROR_BODY("InvalidObjectState")});
    char into[1];
    struct cairn_store_request get = {.op = CAIRN_STORE_GET, .key = "k", .length = 1, .into = into};
    EXPECT_FAILS(cairn_store_perform(rig.worker, &get, &err), CAIRN_FORBIDDEN,
                 "archived: restore it first");
    EXPECT_EQ_U64(requests(&rig), 1);
}

TEST(a_canned_acl_goes_with_what_is_written_and_the_payer_with_every_request) {
    struct cairn_store_s3_options options = {.acl = "bucket-owner-full-control",
                                             .request_payer = "requester"};
    RIG(options, {200, STORED, ""}, {404, "", ""});
    struct cairn_store_request put = PUT_REQUEST, head = HEAD_REQUEST;
    REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err));
    EXPECT(strstr(rig.heads[0], "x-amz-acl: bucket-owner-full-control\r\n"));
    EXPECT(strstr(rig.heads[0], "x-amz-request-payer: requester\r\n"));
    EXPECT_CODE(cairn_store_perform(rig.worker, &head, &err), CAIRN_NOT_FOUND);
    EXPECT_HAS(rig.heads[1], "!x-amz-acl", "x-amz-request-payer: requester\r\n");
    WITH_OK(buf, url, cairn_store_presign(rig.store, "k", 60, &url, NULL, &err));
    EXPECT(strstr(url.data, "x-amz-request-payer=requester"));
}

TEST(a_redirect_that_is_not_followed_names_region_and_endpoint) {
    RIG(plain, {301, "",
                "<Error><Code>PermanentRedirect</Code><Endpoint>b.s3-eu.example.com</Endpoint>"
                "</Error>"});
    struct cairn_store_request put = PUT_REQUEST;
    EXPECT_FAILS(cairn_store_perform(rig.worker, &put, &err), CAIRN_STORE,
                 "at endpoint b.s3-eu.example.com");
    EXPECT_EQ_U64(requests(&rig), 1);
}

TEST(an_etag_that_a_proxy_has_weakened_is_the_store_s_own) {
    RIG(plain, {200, "ETag: W/\"abc\"\r\n", ""},
        {206, "Content-Range: bytes 0-2/3\r\nETag: \"abc\"\r\n", "xyz"});
    char into[3];
    PERFORMED(put, rig.worker, PUT_REQUEST);
    EXPECT_EQ_TEXT(put.etag, "\"abc\"");
    struct cairn_store_request get = {.op = CAIRN_STORE_GET, .key = "k", .length = 3, .into = into};
    memcpy(get.etag, put.etag, sizeof get.etag);
    REQUIRE_OK(cairn_store_perform(rig.worker, &get, &err));
    EXPECT(strstr(rig.heads[1], "If-Match: \"abc\"\r\n"));
}

TEST(a_removal_may_be_answered_with_202_or_a_document_but_not_with_a_page) {
    RIG(plain, {202, "", ""}, {200, "", "<DeleteObjectResult/>"}, {200, "", "{}"},
        {200, "", "<html>please log in</html>"}, {204, "", ""});
    struct cairn_store_request remove = {.op = CAIRN_STORE_DELETE, .key = "k"};
    for (int i = 0; i < 4; i++) REQUIRE_OK(cairn_store_perform(rig.worker, &remove, &err));
    EXPECT_EQ_U64(requests(&rig), 5);
}

TEST(many_keys_go_one_by_one_where_their_post_is_refused_by_411_or_412) {
    for (int status = 411; status <= 412; status++) {
        struct cairn_s3_line script[] = {{status, "", ""}, {204, "", ""}};
        WITH_OK(rig, rig, cairn_rig_open(&rig, script, CAIRN_COUNT(script), plain));
        struct cairn_store_deletion two[2] = {{.key = "a"}, {.key = "b"}};
        REQUIRE_OK(cairn_store_delete_many(rig.worker, "", two, 2, &err));
        EXPECT(two[0].deleted && two[1].deleted);
        EXPECT_EQ_U64(requests(&rig), 3);
    }
}

/* ---- what was asked for ---- */

TEST(a_checksum_that_was_asked_for_never_gives_way) { /* S21 */
    struct cairn_store_s3_options options = {.checksum = CAIRN_S3_CHECKSUM_CRC32C};
    RIG(options, {501, "", ERROR_BODY("NotImplemented")});
    struct cairn_store_request put = PUT_REQUEST;
    put.create = false;
    EXPECT_CODE(cairn_store_perform(rig.worker, &put, &err), CAIRN_UNSUPPORTED);
    EXPECT_EQ_U64(requests(&rig), 1);
}

TEST(regions_that_lead_in_a_circle_or_nowhere_end) { /* S12 */
    RIG(plain, {301, "x-amz-bucket-region: a-1\r\n", ""}, {301, "x-amz-bucket-region: b-1\r\n", ""},
        {301, "x-amz-bucket-region: a-1\r\n", ""});
    EXPECT_PERFORMED(CAIRN_STORE, put, rig.worker, PUT_REQUEST);
    EXPECT_EQ_U64(requests(&rig), 3);
    static const struct cairn_s3_line evil[] = {
        {301, "x-amz-bucket-region: evil.example/\r\n", ""}};
    WITH_OK(rig, second, cairn_rig_open(&second, evil, 1, plain));
    EXPECT_CODE(cairn_store_perform(second.worker, &put, &err), CAIRN_STORE);
    EXPECT_EQ_U64(requests(&second), 1);
}

/* A wall clock that is set while requests are under way. */
#define HOUR_MS INT64_C(3600000)
static _Atomic int64_t ahead_ms;
static int64_t jumping_wall_ms(const struct cairn_clock *clock) {
    (void)clock;
    return cairn_clock_real.wall_ms(&cairn_clock_real) + atomic_load(&ahead_ms);
}

/* As S3 does; the clock jumps before the first answer is out. owner: to where, in ms. */
static void judge_date(struct cairn_responder_request *request) {
    char sent[512] = "", headers[64];
    struct tm parts = {0}, today = {0};
    if (request->index == 0) atomic_store(&ahead_ms, *(const int64_t *)request->owner);
    bool read = cairn_responder_header(request, "x-amz-date", sent) &&
                strptime(sent, "%Y%m%dT%H%M%SZ", &parts);
    time_t now = time(NULL), signed_at = read ? timegm(&parts) : 0;
    strftime(headers, sizeof headers, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n",
             gmtime_r(&now, &today));
    if (labs(now - signed_at) > 15 * 60)
        cairn_responder_reply(request, 403, headers, ERROR_BODY("RequestTimeTooSkewed"));
    else
        cairn_responder_reply(request, 200, STORED, "");
}

TEST(a_clock_that_jumps_while_a_request_is_under_way_loses_it_not) { /* P12, S11 */
    struct cairn_clock clock = cairn_clock_real;
    clock.wall_ms = jumping_wall_ms;
    setenv("AWS_ACCESS_KEY_ID", "AKIDCANARY", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "canary-of-a-secret", 1);
    EACH(row, FIELDS(int64_t signed_ms, answered_ms), {2 * HOUR_MS, 0}, {2 * HOUR_MS, -3 * HOUR_MS},
         {-30 * HOUR_MS, 5 * HOUR_MS}, {0, 7 * HOUR_MS}) {
        CAIRN_AUTO(rig) rig = {0};
        int64_t to_ms = row->answered_ms;
        struct cairn_responder_options serve = {.answer = judge_date, .owner = &to_ms};
        rig.server = cairn_responder_start(&serve);
        REQUIRE(rig.server);
        const struct cairn_store_s3_options options = {.endpoint = cairn_responder_url(rig.server),
                                                       .region = "us-east-1"};
        const struct cairn_store_options open = {
            .url = "s3://bucket/pre/fix", .s3 = &options, .clock = &clock};
        struct cairn_store_request put = PUT_REQUEST;
        atomic_store(&ahead_ms, row->signed_ms);
        REQUIRE_OK(cairn_store_s3_open(&open, &rig.store, &err));
        REQUIRE_OK(cairn_store_worker_new(rig.store, &rig.worker, &err));
        EXPECT_CODE(cairn_store_perform(rig.worker, &put, &err), CAIRN_OK);
        EXPECT_EQ_U64(requests(&rig), row->signed_ms ? 2 : 1);
        EXPECT_CODE(cairn_store_perform(rig.worker, &put, &err), CAIRN_OK); /* the next one, too */
    }
}

static atomic_uint keys_served;
static void serve_keys(struct cairn_responder_request *request) {
    cairn_responder_reply(
        request, 200, "",
        TEXT("{\"AccessKeyId\":\"ASIA%u\",\"SecretAccessKey\":\"s\",\"Token\":\"t\","
             "\"Expiration\":\"2035-01-01T00:00:00Z\"}",
             atomic_fetch_add(&keys_served, 1) + 1));
}

/* ---- secrets ---- */

TEST(a04_no_secret_is_in_a_trace_or_an_error) { /* A04, s3.h#5 */
    struct cairn_store_s3_options options = {.verbose_trace = true};
    const char *path = TEXT("%s/trace", cairn_test_folder());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    RIG(options, {403, "Location: http://h/?X-Amz-Signature=canary\r\n",
                  ERROR_BODY("SignatureDoesNotMatch")});
    setenv("AWS_SESSION_TOKEN", "canary-of-a-token", 1);
    cairn_log_start("test", CAIRN_LOG_DEBUG, fd);
    EXPECT_PERFORMED(CAIRN_UNAUTHORIZED, put, rig.worker, PUT_REQUEST);
    cairn_log_start("test", CAIRN_LOG_ERROR, STDERR_FILENO);
    unsetenv("AWS_SESSION_TOKEN");
    EXPECT(strstr(rig.heads[0], "x-amz-security-token: canary-of-a-token\r\n"));
    close(fd);
    WITH_OK(buf, trace, cairn_file_load(path, &trace, &err));
    EXPECT_HAS(trace.data, "PUT /bucket/pre/fix/k HTTP/1.1", "Authorization: <hidden>", "!canary",
               "!Signature=");
    EXPECT(!strstr(err.message, "canary"));
}

TEST(a03_a_presigned_url_does_not_outlive_its_keys) { /* A03 */
    RIG(plain, {200, "", ""});
    struct cairn_clock_virtual clock;
    cairn_clock_virtual_init(&clock, INT64_C(2051222400000) - 100000); /* 2035, less 100 s */
    struct cairn_responder_options serve = {.answer = serve_keys};
    struct cairn_responder *keys = cairn_responder_start(&serve);
    REQUIRE(keys);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    setenv("HOME", cairn_test_folder(), 1);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", cairn_responder_url(keys), 1);
    struct cairn_store_options open = {.url = "s3://bucket", .clock = &clock.clock};
    struct cairn_store *store = NULL;
    CAIRN_AUTO(buf) url = {0};
    uint32_t life = 0;
    EXPECT_CODE(cairn_store_s3_open(&open, &store, &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_presign(store, "k", 300, &url, &life, &err), CAIRN_OK);
    EXPECT_EQ_U64(life, 100);
    EXPECT_HAS(url.data, "https://bucket.s3.us-east-1.amazonaws.com/k?", "X-Amz-Expires=100&");
    char text[224];
    EXPECT_CODE(cairn_store_keys(store, text, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(text, "container endpoint, until 2035-01-01T00:00:00Z");
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    cairn_store_free(store);
    cairn_responder_stop(keys);
}
