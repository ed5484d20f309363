/* SPDX-License-Identifier: Apache-2.0 */
/* s3_settings: what is said in settings is in the requests; what means nothing is refused. */
#include "store/s3/start.h"

#include "tests/support/s3_script.h"

static const struct {
    const char *variable, *value;
} said[] = {
    {"CAIRN_SSE", "aws:kms"},
    {"CAIRN_SSE_KMS_KEY_ID", "arn:aws:kms:eu-west-1:1:key/k"},
    {"CAIRN_STORAGE_CLASS", "STANDARD_IA"},
    {"CAIRN_OBJECT_TAGS", "team=nlp&kind=checkpoint"},
    {"CAIRN_BUCKET_OWNER", "123456789012"},
    {"CAIRN_CHECKSUM", "md5"},
    {"CAIRN_REGION", "eu-west-1"},
};

static void forget_variables(void) {
    for (size_t i = 0; i < CAIRN_COUNT(said); i++) unsetenv(said[i].variable);
    EACH_TEXT(text, "CAIRN_INTERFACES", "CAIRN_ADDRESSING", "CAIRN_BANDWIDTH_MAX", "CAIRN_HEDGE",
              "CAIRN_ENDPOINT", "CAIRN_ALLOW_PLAIN_HTTP")
        unsetenv(text);
}

/* The environment is what a test can set without a program around it; flags and files go through
 * the same table. */
TEST(encryption_class_tags_and_owner_are_in_the_requests_that_make_objects) {
    struct cairn_store_s3_environment environment;
    struct cairn_error failure = {0};
    forget_variables();
    for (size_t i = 0; i < CAIRN_COUNT(said); i++) setenv(said[i].variable, said[i].value, 1);
    enum cairn_code code = cairn_store_s3_environment_load(&environment, &failure);
    forget_variables();
    REQUIRE(code == CAIRN_OK);
    static const char created[] = "<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                                  "</InitiateMultipartUploadResult>";
    RIG(environment.choice.options, {200, STORED, ""}, {200, "", created}, {200, STORED, ""});
    cairn_store_s3_environment_release(&environment);
    struct cairn_store_request put = PUT_REQUEST;
    struct cairn_store_request create = {.op = CAIRN_STORE_UPLOAD_CREATE, .key = "k", .token = "t"};
    struct cairn_store_request part = {.op = CAIRN_STORE_UPLOAD_PART,
                                       .key = "k",
                                       .upload_id_in = "u",
                                       .part_number = 1,
                                       .body = CAIRN_VIEW("123456789")};
    REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err));
    REQUIRE_OK(cairn_store_perform(rig.worker, &create, &err));
    REQUIRE_OK(cairn_store_perform(rig.worker, &part, &err));
    for (size_t i = 0; i < 2; i++) {
        EXPECT_HAS(rig.heads[i], "x-amz-server-side-encryption: aws:kms\r\n",
                   "x-amz-server-side-encryption-aws-kms-key-id: arn:aws:kms:eu-west-1:1:key/k\r\n",
                   "x-amz-storage-class: STANDARD_IA\r\n",
                   "x-amz-tagging: team=nlp&kind=checkpoint\r\n");
    }
    EXPECT(!strstr(rig.heads[2], "x-amz-server-side-encryption"));
    for (size_t i = 0; i < 3; i++)
        EXPECT(strstr(rig.heads[i], "x-amz-expected-bucket-owner: 123456789012\r\n"));
    EXPECT(strstr(rig.heads[0], "Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==\r\n"));
}

static enum cairn_code choose(const char *variable, const char *value,
                              struct cairn_store_s3_environment *ret, struct cairn_error *ret_err) {
    forget_variables();
    setenv(variable, value, 1);
    enum cairn_code code = cairn_store_s3_environment_load(ret, ret_err);
    forget_variables();
    return code;
}

TEST(words_that_mean_nothing_are_refused_by_name) { /* store/s3/start.h#1 */
    EACH(one, FIELDS(const char *variable, *value, *named),
         {"CAIRN_ADDRESSING", "host", "addressing"}, {"CAIRN_CHECKSUM", "sha1", "checksum"},
         {"CAIRN_SSE", "AES-256", "sse"}, {"CAIRN_SSE_KMS_KEY_ID", "k", "sse_kms_key_id"},
         {"CAIRN_INTERFACES", "eth2,,eth3", "interfaces"},
         {"CAIRN_INTERFACES", "eth2,", "interfaces"},
         {"CAIRN_INTERFACES", "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", "interfaces"},
         {"CAIRN_HEDGE", "perhaps", "hedge"}, {"CAIRN_BANDWIDTH_MAX", "-1", "bandwidth_max"},
         {"CAIRN_STORE_CONNECTIONS", "0", "store_connections"}) {
        struct cairn_store_s3_environment environment;
        CAIRN_AUTO(rig) rig = {0};
        EXPECT_FAILS(choose(one->variable, one->value, &environment, &err), CAIRN_INVALID,
                     one->named);
        unsetenv(one->variable);
    }
}

TEST(interfaces_cap_and_hedge_become_options) {
    struct cairn_store_s3_environment environment;
    CAIRN_AUTO(rig) rig = {0};
    REQUIRE_OK(choose("CAIRN_INTERFACES", "eth2,eth3", &environment, &err));
    EXPECT_EQ_U64(environment.choice.options.interface_count, 2);
    EXPECT_EQ_TEXT(environment.choice.options.interfaces[1], "eth3");
    cairn_store_s3_environment_release(&environment);
    REQUIRE_OK(choose("CAIRN_BANDWIDTH_MAX", "10MiB", &environment, &err));
    EXPECT_EQ_U64(environment.choice.options.bandwidth_bytes_per_s, 10 * CAIRN_MIB);
    EXPECT(!environment.choice.options.no_hedge);
    cairn_store_s3_environment_release(&environment);
    REQUIRE_OK(choose("CAIRN_HEDGE", "false", &environment, &err));
    EXPECT(environment.choice.options.no_hedge);
    cairn_store_s3_environment_release(&environment);
}

/* The switch of AWS's SDKs, by variable or profile: no checksum, unless Cairn's setting has one. */
TEST(awss_switch_for_checksums_is_heard_and_cairns_setting_wins) { /* S21 */
    const char *path = TEXT("%s/config", cairn_test_folder());
    EACH(row,
         FIELDS(const char *variable, *in_profile; enum cairn_store_s3_checksum setting;
                bool crc32c, md5),
         {NULL, NULL, CAIRN_S3_CHECKSUM_AUTO, true, false},
         {"when_supported", NULL, CAIRN_S3_CHECKSUM_AUTO, true, false},
         {"when_required", NULL, CAIRN_S3_CHECKSUM_AUTO, false, false},
         {"WHEN_REQUIRED", NULL, CAIRN_S3_CHECKSUM_AUTO, false, false},
         {NULL, "when_required", CAIRN_S3_CHECKSUM_AUTO, false, false},
         {"when_supported", "when_required", CAIRN_S3_CHECKSUM_AUTO, true, false},
         {"when_required", NULL, CAIRN_S3_CHECKSUM_CRC32C, true, false},
         {"when_required", NULL, CAIRN_S3_CHECKSUM_MD5, false, true}) {
        FILE *file = fopen(path, "w");
        REQUIRE(file != NULL);
        if (row->in_profile)
            fprintf(file, "[default]\nrequest_checksum_calculation = %s\n", row->in_profile);
        REQUIRE(fclose(file) == 0);
        setenv("AWS_CONFIG_FILE", path, 1);
        if (row->variable) setenv("AWS_REQUEST_CHECKSUM_CALCULATION", row->variable, 1);
        struct cairn_store_s3_options options = {.checksum = row->setting};
        static const char gone[] = "<DeleteResult><Deleted><Key>pre/fix/k</Key></Deleted>"
                                   "</DeleteResult>";
        RIG(options, {200, STORED, ""}, {200, "", gone});
        unsetenv("AWS_CONFIG_FILE");
        unsetenv("AWS_REQUEST_CHECKSUM_CALCULATION");
        struct cairn_store_request put = PUT_REQUEST;
        struct cairn_store_deletion deletion = {.key = "k"};
        REQUIRE_OK(cairn_store_perform(rig.worker, &put, &err));
        const char *head = rig.heads[0];
        EXPECT_EQ_U64(strstr(head, "x-amz-checksum-crc32c: 4waSgw==") != NULL, row->crc32c);
        EXPECT_EQ_U64(strstr(head, "Content-MD5: ") != NULL, row->md5);
        /* S3 asks for one here, whatever is set. */
        REQUIRE_OK(cairn_store_delete_many(rig.worker, "k", &deletion, 1, &err));
        EXPECT_HAS(rig.heads[1], "POST /bucket?delete= HTTP/1.1\r\n", "Content-MD5: ");
    }
}

TEST(a_switch_for_checksums_that_means_nothing_is_refused_by_name) { /* store/s3/start.h#1 */
    CAIRN_AUTO(rig) rig = {0};
    static const struct cairn_s3_line script[] = {{200, STORED, ""}};
    setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "sometimes", 1);
    EXPECT_CODE(cairn_rig_open(&rig, script, 1, plain), CAIRN_INVALID);
    unsetenv("AWS_REQUEST_CHECKSUM_CALCULATION");
    EXPECT_HAS(err.message, "AWS_REQUEST_CHECKSUM_CALCULATION", "sometimes");
}

TEST(g02_an_endpoint_in_the_clear_on_another_machine_must_be_allowed) { /* G02 */
    for (int allowed = 0; allowed < 2; allowed++) {
        struct cairn_store_s3_environment environment;
        CAIRN_AUTO(rig) rig = {0};
        struct cairn_store *store = NULL;
        setenv("CAIRN_ALLOW_PLAIN_HTTP", allowed ? "true" : "false", 1);
        setenv("CAIRN_ENDPOINT", "http://192.0.2.1:9000", 1);
        REQUIRE_OK(cairn_store_s3_environment_load(&environment, &err));
        forget_variables();
        struct cairn_store_options open = {.url = "s3://bucket", .s3 = &environment.choice.options};
        EXPECT_CODE(cairn_store_s3_open(&open, &store, &err), allowed ? CAIRN_OK : CAIRN_INVALID);
        if (store) cairn_store_free(store);
        cairn_store_s3_environment_release(&environment);
    }
}
