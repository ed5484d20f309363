/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader makes of documents that came wrong once, or each time. */
#include "api/committed.h"

#include "api/digest.h"
#include "api/records.h"
#include "common/hash.h"
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
        EXPECT_CODE(load(&shelf, &err), CAIRN_CORRUPT);
        EXPECT(strstr(err.message, "manifest.json") != NULL);
    }
}
