/* SPDX-License-Identifier: Apache-2.0 */
/* K07: what parses and writes, with each allocation failing once. */
#include "api/documents/records.h"
#include "api/wire/frame.h"
#include "common/config.h"
#include "formats/safetensors.h"
#include "plan/cover.h"
#include "plan/reads.h"
#include "store/keys/credentials.h"
#include "store/keys/profile.h"
#include "store/keys/sigv4.h"
#include "store/xml/xml.h"
#include "tests/fuzz/fuzz.h"
#include "tests/plan/stored.h"
#include "tests/torture/torture.h"
#include "uploader/settings.h"

/* ---- documents ---- */

static enum cairn_code json_there_and_back(void *context, struct cairn_error *err) {
    (void)context;
    CAIRN_AUTO_JSON json_t *value = NULL;
    CAIRN_AUTO(buf) text = {0}, pretty = {0};
    const struct cairn_json_limits limits = {CAIRN_MIB, 1000};
    CAIRN_TRY(
        cairn_json_parse(CAIRN_VIEW("{\"a\":[1,2,{\"b\":null}],\"c\":\"text\",\"d\":{\"e\":1.5}}"),
                         limits, &value, err));
    CAIRN_TRY(cairn_json_dump(value, &text, err));
    return cairn_json_dump_pretty(value, &pretty, err);
}

TEST(k07_json_ends_each_failed_allocation_with_an_error) {
    json_malloc_t library_malloc;
    json_free_t library_free;
    json_get_alloc_funcs(&library_malloc, &library_free);
    cairn_json_watch_memory(); /* jansson's allocations are Cairn's from now on, so they fail */
    cairn_torture("json", json_there_and_back, NULL);
    json_set_alloc_funcs(library_malloc, library_free);
}

static enum cairn_code manifest_there_and_back(void *context, struct cairn_error *err) {
    CAIRN_AUTO(manifest) manifest = {0};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_manifest_decode(*(struct cairn_view *)context, &manifest, err));
    return cairn_manifest_encode(&manifest, &text, err);
}

static enum cairn_code attempt_there_and_back(void *context, struct cairn_error *err) {
    CAIRN_AUTO(attempt_record) record = {0};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_attempt_record_decode(*(struct cairn_view *)context, &record, err));
    return cairn_attempt_record_encode(&record, &text, err);
}

static enum cairn_code record_there_and_back(void *context, struct cairn_error *err) {
    struct cairn_record record;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_record_decode(*(struct cairn_view *)context, &record, err));
    return cairn_record_encode(&record, &text, err);
}

static enum cairn_code store_there_and_back(void *context, struct cairn_error *err) {
    struct cairn_store_record record;
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(cairn_store_record_decode(*(struct cairn_view *)context, &record, err));
    return cairn_store_record_encode(&record, &text, err);
}

/* The seeds come in the order manifest, record, attempt, store. */
static void torture_document(struct cairn_view seed, void *owner) {
    static cairn_torture_operation *const operations[] = {
        manifest_there_and_back, record_there_and_back, attempt_there_and_back,
        store_there_and_back};
    static const char *const names[] = {"manifest", "record", "attempt record", "store record"};
    size_t at = (*(size_t *)owner)++;
    cairn_torture(names[at], operations[at], &seed);
}

TEST(k07_stored_documents_end_each_failed_allocation_with_an_error) {
    size_t at = 0;
    cairn_fuzz_seeds("manifest", torture_document, &at);
    EXPECT_EQ_U64(at, 4);
}

static enum cairn_code frames_there_and_back(void *context, struct cairn_error *err) {
    (void)context;
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_AUTO(frame_reader) reader = {0};
    CAIRN_AUTO(frame) frame = {0};
    CAIRN_AUTO_JSON json_t *hello = json_pack("{s:s, s:i}", "t", "hello", "id", 1);
    if (!hello) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the test's message");
    CAIRN_TRY(cairn_frame_encode(hello, CAIRN_VIEW("blob"), &bytes, err));
    CAIRN_TRY(cairn_buf_append(&reader.bytes, bytes.data, bytes.size, err));
    bool ready = false;
    return cairn_frame_next(&reader, &frame, &ready, err);
}

TEST(k07_frames_end_each_failed_allocation_with_an_error) {
    cairn_torture("frame", frames_there_and_back, NULL);
}

static enum cairn_code head_there_and_back(void *context, struct cairn_error *err) {
    (void)context;
    struct cairn_safetensors_entry entries[] = {
        {.name = CAIRN_VIEW("b"), .dtype = CAIRN_DTYPE_F32, .dimension_count = 1, .shape = {4}},
        {.name = CAIRN_VIEW("a"), .dtype = CAIRN_DTYPE_U8, .dimension_count = 1, .shape = {5}}};
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    uint64_t bytes = 0;
    CAIRN_TRY(cairn_safetensors_write(entries, 2, NULL, &head, &bytes, err));
    return cairn_safetensors_open(cairn_buf_view(&head), bytes, &file, err);
}

TEST(k07_safetensors_heads_end_each_failed_allocation_with_an_error) {
    cairn_torture("safetensors", head_there_and_back, NULL);
}

/* ---- tables, layouts and what is planned from them ---- */

static enum cairn_code table_and_layout(void *context, struct cairn_error *err) {
    const struct cairn_stored *stored = context;
    struct cairn_table tables[2];
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_AUTO(layout) layout = {0};
    for (uint32_t i = 0; i < 2; i++)
        CAIRN_TRY(cairn_table_open(cairn_buf_view(&stored->tables[i]), &tables[i], err));
    CAIRN_TRY(cairn_layout_build(tables, 2, &bytes, err));
    return cairn_layout_open(cairn_buf_view(&bytes), &layout, err);
}

static enum cairn_code cover(void *context, struct cairn_error *err) {
    const struct cairn_stored *stored = context;
    return cairn_plan_cover_prove(&stored->layout, NULL, err);
}

static enum cairn_code reads(void *context, struct cairn_error *err) {
    const struct cairn_stored *stored = context;
    const uint64_t start[] = {0, 1}, count[] = {4, 3};
    const struct cairn_plan_want wants[] = {
        {.tensor = CAIRN_VIEW("w")},
        {.tensor = CAIRN_VIEW("w"), .form = CAIRN_PLAN_BOX, .start = start, .count = count}};
    CAIRN_AUTO(plan_pieces) pieces = {0};
    return cairn_plan_reads(&stored->manifest, &stored->layout, wants, 2, &pieces, err);
}

static enum cairn_code build_table(void *context, struct cairn_error *err) {
    (void)context;
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    CAIRN_AUTO(buf) bytes = {0};
    uint32_t shard = 0;
    const struct cairn_table_shard file = {CAIRN_VIEW("rank"), 8192, true};
    const struct cairn_tensor tensor = {.name = CAIRN_VIEW("w"),
                                        .dtype = CAIRN_DTYPE_U8,
                                        .dimension_count = 1,
                                        .shape = {64},
                                        .kind = CAIRN_TENSOR_SHARDED};
    CAIRN_TRY(cairn_table_builder_new(3, &builder, err));
    CAIRN_TRY(cairn_table_add_shard(builder, &file, &shard, err));
    const struct cairn_fragment all = {.form = CAIRN_FRAGMENT_FLAT,
                                       .count = {64},
                                       .shard = shard,
                                       .offset_bytes = 4096,
                                       .size_bytes = 64};
    CAIRN_TRY(cairn_table_add_tensor(builder, &tensor, &all, 1, err));
    return cairn_table_finish(builder, &bytes, err);
}

TEST(k07_tables_layouts_and_plans_end_each_failed_allocation_with_an_error) {
    CAIRN_AUTO(stored) stored = {0};
    cairn_stored_init(&stored, 1, 2);
    const uint64_t shape[] = {4, 6};
    struct stored_tensor *w =
        cairn_stored_tensor(&stored, "w", CAIRN_DTYPE_U8, CAIRN_TENSOR_SHARDED, 2, shape);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct cairn_fragment half = {
            .form = CAIRN_FRAGMENT_BOX, .start = {2 * rank, 0}, .count = {2, 6}};
        cairn_stored_place(&stored, w, rank, &half);
        cairn_stored_list(&stored, w, rank, &half, 1);
    }
    REQUIRE(cairn_stored_finish(&stored));
    cairn_torture("table builder", build_table, NULL);
    cairn_torture("layout", table_and_layout, &stored);
    cairn_torture("cover", cover, &stored);
    cairn_torture("reads", reads, &stored);
}

/* ---- settings, credentials, signatures, replies ---- */

static enum cairn_code settings(void *context, struct cairn_error *err) {
    const struct cairn_fuzz_file *file = context;
    struct cairn_up_settings values = {0};
    struct cairn_config config = {0};
    CAIRN_AUTO(buf) text = {0};
    enum cairn_code code = cairn_config_init(&config, cairn_up_settings_rows,
                                             cairn_up_settings_row_count, &values, err);
    if (!code) code = cairn_config_file(&config, file->path, err);
    if (!code) code = cairn_config_print(&config, &text, err);
    if (!code) code = cairn_config_help(&config, &text, err);
    cairn_config_release(&config);
    return code;
}

TEST(k07_settings_end_each_failed_allocation_with_an_error) {
    struct cairn_fuzz_file file;
    cairn_fuzz_file_begin(CAIRN_VIEW("node = n1\nmemory_budget = 1GiB\n"), &file);
    cairn_torture("settings", settings, &file);
    cairn_fuzz_file_end(&file);
}

static enum cairn_code profile(void *context, struct cairn_error *err) {
    (void)context;
    CAIRN_AUTO(profile) values = {0};
    return cairn_profile_load("job", &values, err);
}

TEST(k07_credential_files_end_each_failed_allocation_with_an_error) {
    struct cairn_fuzz_file file;
    cairn_fuzz_file_begin(CAIRN_VIEW("[job]\naws_access_key_id = A\naws_secret_access_key = S\n"
                                     "s3 =\n  addressing_style = path\n"),
                          &file);
    setenv("AWS_SHARED_CREDENTIALS_FILE", file.path, 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    cairn_torture("profile", profile, NULL);
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    unsetenv("AWS_CONFIG_FILE");
    cairn_fuzz_file_end(&file);
}

static enum cairn_code signature(void *context, struct cairn_error *err) {
    (void)context;
    CAIRN_AUTO(sigv4_signer)
    signer = {.access_key = "AKIDEXAMPLE", .region = "us-east-1", .service = "s3"};
    CAIRN_AUTO(buf) header = {0}, url = {0};
    const struct cairn_sigv4_pair query = {"prefix", "a b"};
    const struct cairn_sigv4_pair headers[] = {{"host", "s3.example"},
                                               {"x-amz-date", "20130524T000000Z"}};
    const struct cairn_sigv4_request request = {.method = "GET",
                                                .path = "/bucket/a key",
                                                .query = &query,
                                                .query_count = 1,
                                                .headers = headers,
                                                .header_count = 2,
                                                .payload = CAIRN_SIGV4_UNSIGNED};
    CAIRN_TRY(cairn_secret_set(&signer.secret, CAIRN_VIEW("secret"), err));
    CAIRN_TRY(cairn_sigv4_authorize(&signer, "20130524T000000Z", &request, &header, err));
    return cairn_sigv4_presign(&signer, "20130524T000000Z", 300, &request, &url, err);
}

TEST(k07_signatures_end_each_failed_allocation_with_an_error) {
    cairn_torture("signature", signature, NULL);
}

static enum cairn_code listing(void *context, struct cairn_error *err) {
    (void)context;
    CAIRN_AUTO(store_listing) found = {0};
    const struct cairn_xml_listed listed = {"p/", 2};
    return cairn_xml_objects(
        CAIRN_VIEW("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
                   "</NextContinuationToken><Contents><Key>p/a</Key><Size>5</Size></Contents>"
                   "<Contents><Key>p/b</Key><Size>6</Size></Contents></ListBucketResult>"),
        &listed, &found, err);
}

TEST(k07_listings_end_each_failed_allocation_with_an_error) {
    cairn_torture("listing", listing, NULL);
}
