/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives as other writers make them: comments, zip64, any order; and such as lie. */
#include "formats/torch/zip.h"
#include "tests/harness.h"

static void put16(struct cairn_buf *buf, unsigned value) {
    char bytes[2] = {(char)value, (char)(value >> 8)};
    if (cairn_buf_append(buf, bytes, 2, NULL)) abort();
}
static void put32(struct cairn_buf *buf, uint32_t value) {
    if (cairn_buf_append_u32le(buf, value, NULL)) abort();
}
static void put64(struct cairn_buf *buf, uint64_t value) {
    if (cairn_buf_append_u64le(buf, value, NULL)) abort();
}
static void put_text(struct cairn_buf *buf, const char *text) {
    if (cairn_buf_append_text(buf, text, NULL)) abort();
}

struct made {
    struct cairn_buf bytes, directory;
    unsigned count;
};
struct entry {
    const char *name, *content;
    unsigned flags, method;
    uint32_t crc32, header_offset, size; /* the last two: lies, when not 0 */
    bool zip64;
};

/* The entry with 3 bytes of padding in its own header, as an aligning writer does. */
static void add(struct made *made, const struct entry *entry) {
    uint32_t at = (uint32_t)made->bytes.size, size = (uint32_t)strlen(entry->content);
    struct cairn_buf *local = &made->bytes, *central = &made->directory;
    put32(local, 0x04034b50);
    for (int i = 0; i < 11; i++) put16(local, 0); /* sizes stand in the directory alone */
    put16(local, (unsigned)strlen(entry->name));
    put16(local, 3);
    put_text(local, entry->name);
    put_text(local, "FBx");
    put_text(local, entry->content);
    uint32_t said = entry->size ? entry->size : size;
    uint32_t offset = entry->header_offset ? entry->header_offset : at;
    put32(central, 0x02014b50);
    put16(central, 0), put16(central, 0);
    put16(central, entry->flags), put16(central, entry->method);
    put32(central, 0), put32(central, entry->crc32);
    put32(central, entry->zip64 ? UINT32_MAX : said);
    put32(central, entry->zip64 ? UINT32_MAX : said);
    put16(central, (unsigned)strlen(entry->name)), put16(central, entry->zip64 ? 28 : 0);
    put16(central, 0), put16(central, 0), put16(central, 0), put32(central, 0);
    put32(central, entry->zip64 ? UINT32_MAX : offset);
    put_text(central, entry->name);
    if (entry->zip64) {
        put16(central, 1), put16(central, 24);
        put64(central, said), put64(central, said), put64(central, offset);
    }
    made->count++;
}

static void finish(struct made *made, const char *comment, bool zip64) {
    uint64_t at = made->bytes.size, size = made->directory.size;
    struct cairn_buf *bytes = &made->bytes;
    if (cairn_buf_append(bytes, made->directory.data ? made->directory.data : "", (size_t)size,
                         NULL))
        abort();
    if (zip64) {
        uint64_t end = bytes->size;
        put32(bytes, 0x06064b50), put64(bytes, 44), put32(bytes, 0), put32(bytes, 0);
        put32(bytes, 0), put64(bytes, made->count), put64(bytes, made->count);
        put64(bytes, size), put64(bytes, at);
        put32(bytes, 0x07064b50), put32(bytes, 0), put64(bytes, end), put32(bytes, 1);
    }
    put32(bytes, 0x06054b50), put32(bytes, 0);
    put16(bytes, zip64 ? 0xffff : made->count), put16(bytes, zip64 ? 0xffff : made->count);
    put32(bytes, zip64 ? UINT32_MAX : (uint32_t)size);
    put32(bytes, zip64 ? UINT32_MAX : (uint32_t)at);
    put16(bytes, (unsigned)strlen(comment));
    put_text(bytes, comment);
}

static void release(struct made *made) {
    cairn_buf_release(&made->bytes);
    cairn_buf_release(&made->directory);
}

static void expect_content(const struct cairn_input *input, const struct cairn_zip *zip,
                           const char *name, const char *content) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) bytes = {0};
    const struct cairn_zip_entry *entry = cairn_zip_find(zip, cairn_view_of(name));
    REQUIRE(entry != NULL);
    REQUIRE_OK(cairn_zip_load(input, entry, &bytes, &err));
    EXPECT(bytes.size == strlen(content) && !memcmp(bytes.data, content, bytes.size));
}

TEST(entries_are_found_by_name_whatever_the_writer_did) {
    for (int form = 0; form < 8; form++) {
        struct cairn_error err = {0};
        struct made made = {0};
        CAIRN_AUTO(zip) zip = {0};
        bool zip64 = form & 1, order = form & 2;
        const struct entry first = {
            .name = "a/data.pkl", .content = "123456789", .crc32 = 0xcbf43926, .zip64 = zip64};
        const struct entry second = {.name = "a/data/10", .content = "", .zip64 = zip64};
        add(&made, order ? &second : &first);
        add(&made, order ? &first : &second);
        /* a comment that holds what an end of a directory begins with */
        finish(&made, form & 4 ? "made by PK\x05\x06 and others, at length" : "", zip64);
        struct cairn_view view = cairn_buf_view(&made.bytes);
        struct cairn_input input = cairn_input_of_view(&view);
        EXPECT(cairn_zip_begins(view));
        enum cairn_code code = cairn_zip_open(&input, &zip, &err);
        EXPECT_CODE(code, CAIRN_OK);
        EXPECT_EQ_U64(zip.count, 2);
        expect_content(&input, &zip, "a/data.pkl", "123456789");
        expect_content(&input, &zip, "a/data/10", "");
        EXPECT(cairn_zip_find(&zip, CAIRN_VIEW("a/data/1")) == NULL);
        release(&made);
    }
}

static enum cairn_code open_one(const struct entry *entry, struct cairn_error *err) {
    struct made made = {0};
    CAIRN_AUTO(zip) zip = {0};
    CAIRN_AUTO(buf) content = {0};
    add(&made, entry);
    finish(&made, "", false);
    struct cairn_view view = cairn_buf_view(&made.bytes);
    struct cairn_input input = cairn_input_of_view(&view);
    enum cairn_code code = cairn_zip_open(&input, &zip, err);
    if (code == CAIRN_OK) code = cairn_zip_load(&input, zip.entries, &content, err);
    release(&made);
    return code;
}

TEST(entries_whose_bytes_are_no_range_of_the_file_are_refused_by_name, err) {
    EXPECT_CODE(open_one(&(struct entry){.name = "x", .content = "abc"}, &err), CAIRN_OK);
    EXPECT_CODE(open_one(&(struct entry){.name = "packed", .content = "abc", .method = 12}, &err),
                CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "packed") && strstr(err.message, "compressed"));
    /* The last block, of three bytes that are no text of it. */
    EXPECT_FAILS(open_one(&(struct entry){.name = "deflated", .content = "abc", .method = 8}, &err),
                 CAIRN_CORRUPT, "deflated");
    EXPECT_CODE(open_one(&(struct entry){.name = "secret", .content = "abc", .flags = 1}, &err),
                CAIRN_UNSUPPORTED);
    EXPECT(strstr(err.message, "secret") && strstr(err.message, "encrypted"));
    EXPECT_CODE(open_one(&(struct entry){.name = "long", .content = "abc", .size = 4000}, &err),
                CAIRN_INVALID);
    EXPECT_CODE(
        open_one(&(struct entry){.name = "far", .content = "abc", .header_offset = 1 << 30}, &err),
        CAIRN_INVALID);
    EXPECT_CODE(
        open_one(&(struct entry){.name = "beside", .content = "abc", .header_offset = 4}, &err),
        CAIRN_INVALID);
    EXPECT_FAILS(open_one(&(struct entry){.name = "changed", .content = "abc", .crc32 = 1}, &err),
                 CAIRN_CORRUPT, "changed");
    EXPECT_CODE(open_one(&(struct entry){.name = "\xff\xfe", .content = "abc"}, &err),
                CAIRN_INVALID);
}

TEST(two_entries_of_one_name_or_of_another_number_are_refused, err) {
    for (int form = 0; form < 2; form++) {
        struct made made = {0};
        CAIRN_AUTO(zip) zip = {0};
        add(&made, &(struct entry){.name = "twice", .content = "a"});
        add(&made, &(struct entry){.name = form ? "twice" : "other", .content = "b"});
        if (!form) made.count = 3;
        finish(&made, "", false);
        struct cairn_view view = cairn_buf_view(&made.bytes);
        struct cairn_input input = cairn_input_of_view(&view);
        EXPECT_CODE(cairn_zip_open(&input, &zip, &err), CAIRN_INVALID);
        release(&made);
    }
}
