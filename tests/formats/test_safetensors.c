/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a tensors shard, written and read; and everything a strict reader must refuse. */
#include "api/documents/names.h"
#include "api/table/dtype.h"
#include "formats/safetensors.h"
#include "tests/harness.h"

static struct cairn_safetensors_entry entry(const char *name, unsigned dtype, uint64_t a,
                                            uint64_t b) {
    struct cairn_safetensors_entry made = {.name = cairn_view_of(name), .dtype = dtype};
    if (a != UINT64_MAX) made.shape[made.dimension_count++] = a;
    if (b != UINT64_MAX) made.shape[made.dimension_count++] = b;
    return made;
}
#define NONE UINT64_MAX

TEST(a_written_header_is_aligned_ordered_and_reads_back, err) {
    uint64_t file_bytes = 0;
    struct cairn_safetensors_entry entries[] = {
        entry("b.half", CAIRN_DTYPE_BF16, 3, 5),
        entry("z\"\\\n\xc3\xa9", CAIRN_DTYPE_F32, 7, NONE),
        entry("a.float", CAIRN_DTYPE_F32, 2, 2),
        entry("scalar", CAIRN_DTYPE_I64, NONE, NONE),
        entry("empty", CAIRN_DTYPE_F64, 0, 9),
        entry("byte", CAIRN_DTYPE_U8, 11, NONE),
        entry("quarter", CAIRN_DTYPE_F4, 6, NONE),
    };
    const char *order[] = {"empty",  "scalar", "a.float", "z\"\\\n\xc3\xa9",
                           "b.half", "byte",   "quarter"};
    WITH_OK(buf, head,
            cairn_safetensors_write(entries, CAIRN_COUNT(entries), NULL, &head, &file_bytes, &err));
    EXPECT_ALL_U64(head.size % 4096, 0, file_bytes, head.size + 0 + 8 + 16 + 28 + 30 + 11 + 3);
    uint64_t wanted = 0;
    REQUIRE_OK(cairn_safetensors_head_bytes(cairn_buf_view(&head), file_bytes, &wanted, &err));
    EXPECT_EQ_U64(wanted, head.size);
    WITH_OK(safetensors, file,
            cairn_safetensors_open(cairn_buf_view(&head), file_bytes, &file, &err));
    REQUIRE(file.count == CAIRN_COUNT(entries));
    uint64_t at = head.size;
    for (size_t i = 0; i < file.count; i++) {
        EXPECT(file.entries[i].name.size == strlen(order[i]) &&
               !memcmp(file.entries[i].name.data, order[i], strlen(order[i])));
        EXPECT_ALL_U64(file.entries[i].offset_bytes, at, entries[i].offset_bytes, at);
        at += file.entries[i].size_bytes;
    }
    EXPECT_EQ_U64(at, file_bytes);
}

TEST(the_order_of_adding_does_not_change_the_bytes, err) {
    CAIRN_AUTO(buf) first = {0}, second = {0};
    uint64_t bytes = 0;
    struct cairn_safetensors_entry one[] = {entry("x", CAIRN_DTYPE_F16, 4, NONE),
                                            entry("y", CAIRN_DTYPE_F16, 8, NONE),
                                            entry("w", CAIRN_DTYPE_F64, 2, NONE)};
    struct cairn_safetensors_entry two[] = {one[2], one[1], one[0]};
    REQUIRE_OK(cairn_safetensors_write(one, 3, NULL, &first, &bytes, &err));
    REQUIRE_OK(cairn_safetensors_write(two, 3, NULL, &second, &bytes, &err));
    REQUIRE(first.size == second.size);
    EXPECT(memcmp(first.data, second.data, first.size) == 0);
}

TEST(the_header_grows_by_whole_pages_and_the_entry_keeps_its_tag, err) {
    CAIRN_AUTO(buf) head = {0};
    static char names[300][16];
    static struct cairn_safetensors_entry entries[300];
    uint64_t bytes = 0;
    for (size_t i = 0; i < 300; i++) {
        snprintf(names[i], sizeof names[i], "layer.%03zu", 299 - i);
        entries[i] = entry(names[i], CAIRN_DTYPE_BF16, i, NONE);
        entries[i].tag = i;
    }
    REQUIRE_OK(cairn_safetensors_write(entries, 300, NULL, &head, &bytes, &err));
    EXPECT(head.size > 4096);
    EXPECT_EQ_U64(head.size % 4096, 0);
    for (size_t i = 0; i < 300; i++) EXPECT_EQ_U64(entries[i].tag, 299 - i);
}

TEST(writing_refuses_twins_foreign_bytes_reserved_names_and_impossible_sizes, err) {
    uint64_t bytes = 0;
    struct cairn_safetensors_entry twins[] = {entry("x", CAIRN_DTYPE_U8, 1, NONE),
                                              entry("x", CAIRN_DTYPE_U8, 2, NONE)};
    struct cairn_safetensors_entry bad[] = {
        entry("\xff", CAIRN_DTYPE_U8, 1, NONE),
        entry("__metadata__", CAIRN_DTYPE_U8, 1, NONE),
        entry("huge", CAIRN_DTYPE_F64, UINT64_C(1) << 40, UINT64_C(1) << 40),
        entry("odd", CAIRN_DTYPE_F4, 3, NONE),
    };
    CAIRN_AUTO(buf) head = {0};
    EXPECT_CODE(cairn_safetensors_write(twins, 2, NULL, &head, &bytes, &err), CAIRN_INVALID);
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        cairn_buf_clear(&head);
        EXPECT_CODE(cairn_safetensors_write(&bad[i], 1, NULL, &head, &bytes, &err), CAIRN_INVALID);
    }
}

/* A file of this JSON and that many data bytes. */
static enum cairn_code open_text(const char *json, uint64_t data_bytes, struct cairn_error *err) {
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    CAIRN_TRY(cairn_buf_append_u64le(&head, strlen(json), err));
    CAIRN_TRY(cairn_buf_append_text(&head, json, err));
    return cairn_safetensors_open(cairn_buf_view(&head), head.size + data_bytes, &file, err);
}
#define ONE(fields) "{\"w\":{" fields "}}"

TEST(reading_takes_what_the_official_readers_take, err) {
    EXPECT_CODE(open_text("{}", 0, &err), CAIRN_OK);
    EXPECT_CODE(open_text("{}      ", 0, &err), CAIRN_OK);
    EXPECT_CODE(open_text("{\"__metadata__\":{\"a\":\"b\"}}", 0, &err), CAIRN_OK);
    EXPECT_CODE(open_text(ONE("\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]"), 4, &err),
                CAIRN_OK);
    EXPECT_CODE(
        open_text(ONE("\"dtype\":\"I8\",\"shape\":[3,0,2],\"data_offsets\":[0,0]"), 0, &err),
        CAIRN_OK);
    EXPECT_CODE(open_text("{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
                          "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
                          5, &err),
                CAIRN_OK);
    const unsigned bits[] = {8,  4,  6,  6,  8,  8,  8,  8,  8,  16, 16,
                             16, 16, 32, 32, 32, 64, 64, 64, 64, 8,  8};
    EACH_TEXT(text, "BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0",
              "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64",
              "F8_E4M3FNUZ", "F8_E5M2FNUZ") {
        EXPECT_CODE(open_text(TEXT(ONE("\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%u]"),
                                   text, bits[AT_OF(text)]),
                              bits[AT_OF(text)], &err),
                    CAIRN_OK);
    }
}

TEST(reading_refuses_holes_overlaps_twins_and_lies_about_sizes, err) {
    EACH(one, FIELDS(const char *json; uint64_t data_bytes), {"[]", 0}, {" {}", 0}, {"{}x", 0},
         {"{\"w\":3}", 0}, {"{\"__metadata__\":{\"a\":1}}", 0}, {"{\"__metadata__\":3}", 0},
         {ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]"), 3}, /* tail unused */
         {ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]"), 1}, /* past the end */
         {ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]"), 3}, /* hole before */
         {ONE("\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,2]"), 2},
         {ONE("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2},
         {ONE("\"dtype\":\"X8\",\"shape\":[2],\"data_offsets\":[0,2]"), 2},
         {ONE("\"dtype\":\"U8\",\"shape\":[-2],\"data_offsets\":[0,2]"), 2},
         {ONE("\"dtype\":\"U8\",\"shape\":[2.0],\"data_offsets\":[0,2]"), 2},
         {ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]"), 2},
         {ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2,2]"), 2},
         {ONE("\"dtype\":\"U8\",\"shape\":[2]"), 2},
         {ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"more\":1"), 2},
         {ONE("\"dtype\":\"U8\",\"shape\":[4611686018427387904,8],\"data_offsets\":[0,0]"), 0},
         {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
          "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
          4},
         {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
          3},
         {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
          5}) {
        enum cairn_code code = open_text(one->json, one->data_bytes, &err);
        cairn_test_check(code == CAIRN_INVALID, __FILE__, __LINE__, "%s is %s", one->json,
                         cairn_code_info(code)->name);
    }
    EXPECT_CODE(
        open_text(ONE("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1,
                  &err),
        CAIRN_UNSUPPORTED);
}

/* ---- types that safetensors has no name for ---- */

static bool same_entry(const struct cairn_safetensors_entry *a,
                       const struct cairn_safetensors_entry *b) {
    return cairn_view_compare(a->name, b->name) == 0 && a->dtype == b->dtype &&
           a->dimension_count == b->dimension_count &&
           memcmp(a->shape, b->shape, a->dimension_count * sizeof *a->shape) == 0 &&
           a->offset_bytes == b->offset_bytes && a->size_bytes == b->size_bytes;
}

TEST(entries_of_every_type_and_shape_read_back_as_what_was_written, err) {
    enum { ENTRIES = 12 };
    static char names[ENTRIES][24];
    uint64_t state = cairn_test_seed(), bytes = 0;
    for (int round = 0; round < 500; round++) {
        CAIRN_AUTO(buf) head = {0};
        CAIRN_AUTO(safetensors) file = {0};
        struct cairn_safetensors_entry entries[ENTRIES];
        size_t count = 0, same = 0;
        while (count < ENTRIES) {
            struct cairn_safetensors_entry *made = &entries[count];
            uint64_t elements = 0;
            *made = entry("", 1 + (unsigned)(cairn_test_random(&state) % 61), NONE, NONE);
            made->dimension_count = (unsigned)(cairn_test_random(&state) % 9);
            for (unsigned d = 0; d < made->dimension_count; d++)
                made->shape[d] = cairn_test_random(&state) % 7;
            if (!cairn_tensor_size(made->dtype, made->dimension_count, made->shape, &elements,
                                   &bytes))
                continue;
            snprintf(names[count], sizeof names[count], "%s%zu", count % 2 ? "w\"\n\\" : "w",
                     count);
            made->name = cairn_view_of(names[count]);
            count++;
        }
        REQUIRE_OK(cairn_safetensors_write(entries, count, NULL, &head, &bytes, &err));
        REQUIRE_OK(cairn_safetensors_open(cairn_buf_view(&head), bytes, &file, &err));
        REQUIRE(file.count == count);
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < count; k++) same += same_entry(&entries[i], &file.entries[k]);
        EXPECT_EQ_U64(same, count);
    }
}

/* What becomes of the F64 tensor "w" of 2 x 3 x 2 under this tag. */
static unsigned tagged(const char *tag, struct cairn_safetensors_entry *ret) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    const char *json =
        TEXT("{\"w\":{\"dtype\":\"F64\",\"shape\":[2,3,2],\"data_offsets\":[0,96]},"
             "\"__metadata__\":{\"cairn.logical:v\":\"C128 [1]\",\"cairn.logical:w\":\"%s\"}}",
             tag);
    EXPECT_CODE(cairn_buf_append_u64le(&head, strlen(json), &err), CAIRN_OK);
    EXPECT_CODE(cairn_buf_append_text(&head, json, &err), CAIRN_OK);
    EXPECT_CODE(cairn_safetensors_open(cairn_buf_view(&head), head.size + 96, &file, &err),
                CAIRN_OK);
    if (file.count != 1) return 0;
    *ret = file.entries[0];
    return ret->dtype;
}

TEST(a_tag_counts_only_where_the_tensor_is_what_it_would_be_shown_as) {
    struct cairn_safetensors_entry found = {0};
    EXPECT_EQ_U64(tagged("C128 [2,3]", &found), CAIRN_DTYPE_C128);
    EXPECT_ALL_U64(found.dimension_count, 2, found.shape[0] * 10 + found.shape[1], 23,
                   found.size_bytes, 96);
    EACH_TEXT(text, "", "C128", "C128 ", "C128 [3,2]", "C128 [2,3", "C128 [2,3]x", "C128  [2,3]",
              "C128[2,3]", "C128 [2, 3]", "C128 [2,3,1]", "C32 [2,3]", "F128 [2,3]", "C999 [2,3]",
              "C128 []", "C128 [6]", "C128 [2,,3]", "C128 [-2,3]", "C128 [2,3,]",
              "C128 [2,3,1,1,1,1,1,1,1]", "C128 [99999999999999999999,3]", "F32 [2,3,4]", " [2,3]",
              "I64 [2,3,2]", "C128 [9223372036854775809,3]") {
        cairn_test_check(tagged(text, &found) == CAIRN_DTYPE_F64, __FILE__, __LINE__,
                         "it goes by %s", text);
        EXPECT_EQ_U64(found.dimension_count, 3);
    }
}

TEST(a_type_of_no_other_reader_is_refused_in_an_entry, err) {
    EXPECT_FAILS(
        open_text(ONE("\"dtype\":\"C128\",\"shape\":[1],\"data_offsets\":[0,16]"), 16, &err),
        CAIRN_INVALID, "unknown dtype C128");
}

TEST(reading_refuses_headers_that_do_not_fit_the_file, err) {
    uint64_t bytes = 0;
    EACH_OF(uint64_t, number, 0, 1, 93, 100000001, UINT64_MAX, UINT64_MAX - 7) {
        uint8_t first[8];
        cairn_store_u64le(first, number);
        EXPECT_CODE(cairn_safetensors_head_bytes((struct cairn_view){first, 8}, 100, &bytes, &err),
                    CAIRN_INVALID);
    }
    EXPECT_CODE(cairn_safetensors_head_bytes((struct cairn_view){"1234567", 7}, 100, &bytes, &err),
                CAIRN_INVALID);
}

/* So many that they are parsed in parts; more is what stands behind them. */
static enum cairn_code open_many(const char *more, struct cairn_safetensors *ret,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) head = {0};
    uint8_t size[8] = {0};
    CAIRN_TRY(cairn_buf_append(&head, size, sizeof size, err));
    for (int i = 0; i < 10000; i++)
        CAIRN_TRY(cairn_buf_printf(
            &head, err, "%c\"t%05d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
            i ? ',' : '{', i));
    CAIRN_TRY(cairn_buf_printf(&head, err, "%s}", more));
    cairn_store_u64le(head.data, head.size - 8);
    return cairn_safetensors_open(cairn_buf_view(&head), head.size, ret, err);
}

TEST(a_header_of_many_entries_is_read_as_one_of_a_few, err) {
    WITH_OK(safetensors, file, open_many(",\"__metadata__\":{\"format\":\"pt\"} ", &file, &err));
    EXPECT_EQ_U64(file.count, 10000);
    for (size_t i = 1; i < file.count; i++)
        EXPECT(strcmp(file.entries[i - 1].name.data, file.entries[i].name.data) < 0);
    EXPECT_EQ_TEXT(json_string_value(
                       json_object_get(json_object_get(file.document, "__metadata__"), "format")),
                   "pt");
    static const char entry_of_first[] =
        ",\"t00000\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    EACH_TEXT(text, entry_of_first, ",", ",,", "}", "]", " x", ",\"y\"",
              ",\"__metadata__\":{},\"__metadata__\":{}") {
        CAIRN_AUTO(safetensors) none = {0};
        EXPECT_CODE(open_many(text, &none, &err), CAIRN_INVALID);
    }
}

TEST(every_cut_and_every_changed_byte_of_a_header_is_refused_or_read_without_harm, err) {
    uint64_t bytes = 0, state = cairn_test_seed();
    struct cairn_safetensors_entry entries[] = {entry("a", CAIRN_DTYPE_F32, 2, 3),
                                                entry("b", CAIRN_DTYPE_U8, 5, NONE)};
    WITH_OK(buf, head, cairn_safetensors_write(entries, 2, NULL, &head, &bytes, &err));
    for (size_t size = 0; size < head.size; size += 7) {
        CAIRN_AUTO(safetensors) file = {0};
        struct cairn_view cut = {head.data, size};
        EXPECT_CODE(cairn_safetensors_open(cut, bytes, &file, &err), CAIRN_INVALID);
    }
    for (int i = 0; i < 2000; i++) {
        CAIRN_AUTO(safetensors) file = {0};
        size_t at = cairn_test_random(&state) % 200;
        char before = head.data[at];
        head.data[at] = (char)cairn_test_random(&state);
        enum cairn_code code = cairn_safetensors_open(cairn_buf_view(&head), bytes, &file, &err);
        EXPECT(code == CAIRN_OK || code == CAIRN_INVALID || code == CAIRN_UNSUPPORTED);
        head.data[at] = before;
    }
}
