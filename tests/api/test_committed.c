/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader makes of documents that came wrong once, or each time. */
#include "api/documents/committed.h"

#include "api/documents/digest.h"
#include "api/documents/records.h"
#include "api/table/dtype.h"
#include "common/hash/hash.h"
#include "tests/harness.h"

/* Three documents in memory, of which one byte comes wrong in the first or in every reading. */
struct cairn_shelf {
    struct cairn_version_place place;
    struct cairn_buf text[CAIRN_DOCUMENT_COUNT];
    enum cairn_document flipped;
    size_t at;
    bool always;
    unsigned reads[CAIRN_DOCUMENT_COUNT];
};
static void cairn_shelf_release(struct cairn_shelf *shelf) {
    for (size_t i = 0; i < CAIRN_DOCUMENT_COUNT; i++) cairn_buf_release(&shelf->text[i]);
}

static enum cairn_code get(void *owner, enum cairn_document document, const char *key, bool again,
                           struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_shelf *shelf = owner;
    struct cairn_buf *text = &shelf->text[document];
    (void)key;
    (void)again;
    shelf->reads[document]++;
    CAIRN_TRY(cairn_buf_append(ret, text->data, text->size, err));
    if (document == shelf->flipped && (shelf->always || shelf->reads[document] == 1))
        ret->data[shelf->at] ^= 1;
    return CAIRN_OK;
}

static void fill(struct cairn_shelf *ret) {
    struct cairn_error err = {0};
    CAIRN_AUTO(manifest) manifest = {0};
    manifest.origin = (struct cairn_version_origin){
        {"llm", "7b"}, 3, "00112233445566778899aabbccddeeff", 1200, 1};
    cairn_version_id_make(&manifest.origin, &manifest.id);
    manifest.world_size = 1;
    manifest.format_tag = strdup("");
    manifest.meta_json = strdup("{}");
    manifest.labels_json = strdup("{}");
    manifest.shards = calloc(1, sizeof *manifest.shards);
    cairn_sha256_of((struct cairn_view){"", 0}, manifest.checksums_sha256);
    struct cairn_record record = {.id = manifest.id,
                                  .attempt = 3,
                                  .step = 1200,
                                  .n = 1,
                                  .committed_at = "2026-03-02T10:14:07Z"};
    ret->place = (struct cairn_version_place){manifest.origin.name, 1200, manifest.id};
    struct cairn_buf *text = ret->text;
    REQUIRE_OK(cairn_manifest_encode(&manifest, &text[CAIRN_DOCUMENT_MANIFEST], &err));
    cairn_sha256_of(cairn_buf_view(&text[CAIRN_DOCUMENT_MANIFEST]), record.manifest_sha256);
    REQUIRE_OK(cairn_record_encode(&record, &text[CAIRN_DOCUMENT_RECORD], &err));
}

static enum cairn_code load(struct cairn_shelf *shelf, struct cairn_error *err) {
    const struct cairn_document_source source = {.get = get, .owner = shelf};
    struct cairn_committed committed = {.place = shelf->place};
    memset(shelf->reads, 0, sizeof shelf->reads);
    enum cairn_code code = cairn_committed_load(
        &committed, &source, CAIRN_DOCUMENT_BIT(RECORD) | CAIRN_DOCUMENT_BIT(MANIFEST), err);
    cairn_committed_release(&committed);
    return code;
}

TEST(a_byte_that_comes_wrong_once_is_read_again_whichever_it_is) { /* S17 */
    CAIRN_AUTO(shelf) shelf = {0};
    fill(&shelf);
    for (int document = 0; document <= CAIRN_DOCUMENT_MANIFEST; document++)
        for (size_t at = 0; at < shelf.text[document].size; at++) {
            struct cairn_error err = {0};
            shelf.flipped = (enum cairn_document)document;
            shelf.at = at;
            if (load(&shelf, &err) != CAIRN_OK)
                cairn_test_check(false, __FILE__, __LINE__, "document %d, byte %zu: %s", document,
                                 at, err.message);
            EXPECT(shelf.reads[CAIRN_DOCUMENT_RECORD] <= 2);
            EXPECT(shelf.reads[CAIRN_DOCUMENT_MANIFEST] <= 2);
        }
}

TEST(a_byte_of_a_manifest_that_is_wrong_each_time_is_damage) { /* committed.h#1 */
    CAIRN_AUTO(shelf) shelf = {.flipped = CAIRN_DOCUMENT_MANIFEST, .always = true};
    fill(&shelf);
    for (; shelf.at < shelf.text[CAIRN_DOCUMENT_MANIFEST].size; shelf.at++) {
        struct cairn_error err = {0};
        EXPECT_FAILS(load(&shelf, &err), CAIRN_CORRUPT, "manifest.json");
    }
}

/* ---- a layout that this release cannot read ---- */

static void build_table(struct cairn_buf *ret) {
    struct cairn_error err = {0};
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    uint32_t shard = 0;
    struct cairn_table_shard row = {CAIRN_VIEW("a.safetensors"), 100, true};
    struct cairn_tensor tensor = {.name = CAIRN_VIEW("w"),
                                  .dtype = CAIRN_DTYPE_U8,
                                  .dimension_count = 1,
                                  .shape = {10},
                                  .kind = CAIRN_TENSOR_SHARDED};
    struct cairn_fragment all = {.form = CAIRN_FRAGMENT_FLAT, .count = {10}, .size_bytes = 10};
    REQUIRE_OK(cairn_table_builder_new(0, &builder, &err));
    REQUIRE_OK(cairn_table_add_shard(builder, &row, &shard, &err));
    REQUIRE_OK(cairn_table_add_tensor(builder, &tensor, &all, 1, &err));
    REQUIRE_OK(cairn_table_finish(builder, ret, &err));
}

#define TABLE_AT 56 /* behind header, one row of the directory, one name, one reference */
#define DTYPE_AT (TABLE_AT + 40 + 16 + 9)

/* Its one table begins where the index ends; digest: of the layout as it is now. */
static void digest_of(const struct cairn_buf *layout, size_t table_bytes, uint8_t ret[32]) {
    uint8_t digests[1][32];
    const uint32_t ranks[1] = {0};
    cairn_table_digest((struct cairn_view){layout->data + TABLE_AT, table_bytes}, digests[0]);
    cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, 1, ret);
}

static enum cairn_code read_layout(struct cairn_shelf *shelf, const uint8_t digest[32],
                                   struct cairn_error *err) {
    const struct cairn_document_source source = {.get = get, .owner = shelf};
    struct cairn_committed committed = {.place = shelf->place, .manifest.has_layout = true};
    memcpy(committed.manifest.layout_digest, digest, 32);
    committed.manifest.layout_writer = shelf->place.id;
    enum cairn_code code = cairn_committed_read(&committed, &source, CAIRN_DOCUMENT_LAYOUT, err);
    cairn_committed_release(&committed);
    return code;
}

TEST(a_layout_with_something_new_is_of_a_newer_release_when_it_is_proven_and_damaged_when_not) {
    CAIRN_AUTO(shelf) shelf = {.flipped = CAIRN_DOCUMENT_COUNT};
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_buf *layout = &shelf.text[CAIRN_DOCUMENT_LAYOUT];
    struct cairn_table table;
    struct cairn_error err = {0};
    uint8_t digest[32], changed[32];
    fill(&shelf);
    build_table(&bytes);
    REQUIRE_OK(cairn_table_open(cairn_buf_view(&bytes), &table, &err));
    REQUIRE_OK(cairn_layout_build(&table, 1, layout, &err));
    digest_of(layout, bytes.size, digest);
    EXPECT_CODE(read_layout(&shelf, digest, &err), CAIRN_OK);
    layout->data[DTYPE_AT] = (char)200; /* an element type of later */
    digest_of(layout, bytes.size, changed);
    EXPECT_CODE(read_layout(&shelf, changed, &err), CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "newer release") && strstr(err.message, "element type 200"));
    EXPECT_CODE(read_layout(&shelf, digest, &err), CAIRN_CORRUPT); /* nobody wrote that */
    layout->data[DTYPE_AT] = (char)CAIRN_DTYPE_U8;
    layout->data[20] = 1; /* a flag; the digest is that of the tables */
    EXPECT_CODE(read_layout(&shelf, digest, &err), CAIRN_UNSUPPORTED);
    EXPECT_CODE(read_layout(&shelf, changed, &err), CAIRN_CORRUPT);
    layout->data[20] = 0;
    for (const char *version = "2468"; *version; version++) {
        layout->data[7] = *version;
        EXPECT_CODE(read_layout(&shelf, digest, &err), CAIRN_UNSUPPORTED);
    }
    for (const char *bit = "0359q"; *bit; bit++) { /* one bit from 1 */
        layout->data[7] = *bit;
        EXPECT_CODE(read_layout(&shelf, digest, &err), CAIRN_CORRUPT);
    }
}
