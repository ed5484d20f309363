/* SPDX-License-Identifier: Apache-2.0 */
/* Tail, directory and local headers of a zip archive; every number is checked before it is used. */
#include "formats/zip.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/crc.h"
#include "common/text.h"
#include "formats/inflate.h"

#define DIRECTORY_BYTES_MAX (256 * CAIRN_MIB)
#define NAME_BYTES_MAX 1024
#define LOCAL_BYTES 30
#define CENTRAL_BYTES 46
#define END_BYTES 22
#define END64_BYTES 56
#define LOCATOR_BYTES 20
#define COMMENT_BYTES_MAX 65535

#define MAGIC_LOCAL 0x04034b50u
#define MAGIC_CENTRAL 0x02014b50u
#define MAGIC_END 0x06054b50u
#define MAGIC_END64 0x06064b50u
#define MAGIC_LOCATOR 0x07064b50u

#define FLAG_ENCRYPTED 0x2041u /* also strong encryption, and a directory that is encrypted */
#define EXTRA_ZIP64 0x0001u
#define METHOD_DEFLATE 8
#define DEFLATE_MOST 1032 /* bytes that one packed byte makes */

static uint16_t load16(const char *at) {
    return (uint16_t)((uint8_t)at[0] | (uint8_t)at[1] << 8);
}

bool cairn_zip_begins(struct cairn_view first) {
    return first.size >= 4 && cairn_load_u32le(first.data) == MAGIC_LOCAL;
}

void cairn_zip_release(struct cairn_zip *zip) {
    cairn_buf_release(&zip->directory);
    free(zip->entries);
    *zip = (struct cairn_zip){0};
}

/* ---- the end of the archive, which tells where its directory is ---- */

struct end {
    uint64_t entries, directory_bytes, directory_offset;
    uint64_t at; /* of the record that the directory lies before */
};

/* The end record is the last thing but for a comment, which may look like one: the right one's
 * comment reaches the file's end exactly. */
static enum cairn_code find_end(const struct cairn_input *input, struct cairn_buf *tail,
                                size_t *ret_at, struct cairn_error *err) {
    uint64_t most = END_BYTES + COMMENT_BYTES_MAX + LOCATOR_BYTES;
    size_t size = (size_t)(input->size_bytes < most ? input->size_bytes : most);
    if (size < END_BYTES)
        return cairn_fail(err, CAIRN_INVALID, "%zu bytes are no zip archive", size);
    CAIRN_TRY(cairn_buf_reserve(tail, size, err));
    CAIRN_TRY(cairn_input_read(input, input->size_bytes - size, tail->data, size, err));
    tail->size = size;
    for (size_t at = size - END_BYTES + 1; at-- > 0;) {
        if (cairn_load_u32le(tail->data + at) != MAGIC_END) continue;
        if (load16(tail->data + at + 20) != size - at - END_BYTES) continue;
        *ret_at = at;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_INVALID,
                      "the directory that ends a zip archive is not there: the file is cut short");
}

static enum cairn_code read_end64(const struct cairn_input *input, const char *locator,
                                  struct end *ret, struct cairn_error *err) {
    char record[END64_BYTES];
    uint64_t at = cairn_load_u64le(locator + 8);
    if (cairn_load_u32le(locator + 4) != 0 || cairn_load_u32le(locator + 16) > 1)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a zip archive of several disks");
    CAIRN_TRY(cairn_input_read(input, at, record, sizeof record, err));
    if (cairn_load_u32le(record) != MAGIC_END64)
        return cairn_fail(err, CAIRN_INVALID, "no zip64 record at byte %" PRIu64, at);
    if (cairn_load_u32le(record + 16) != 0 || cairn_load_u32le(record + 20) != 0)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a zip archive of several disks");
    *ret = (struct end){.entries = cairn_load_u64le(record + 32),
                        .directory_bytes = cairn_load_u64le(record + 40),
                        .directory_offset = cairn_load_u64le(record + 48),
                        .at = at};
    return CAIRN_OK;
}

static enum cairn_code read_end(const struct cairn_input *input, struct end *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) tail = {0};
    size_t at = 0;
    CAIRN_TRY(find_end(input, &tail, &at, err));
    const char *record = tail.data + at;
    *ret = (struct end){.entries = load16(record + 10),
                        .directory_bytes = cairn_load_u32le(record + 12),
                        .directory_offset = cairn_load_u32le(record + 16),
                        .at = input->size_bytes - tail.size + at};
    if (load16(record + 4) != load16(record + 6) || load16(record + 8) != load16(record + 10))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a zip archive of several disks");
    if (at >= LOCATOR_BYTES && cairn_load_u32le(record - LOCATOR_BYTES) == MAGIC_LOCATOR)
        CAIRN_TRY(read_end64(input, record - LOCATOR_BYTES, ret, err));
    if (ret->directory_bytes > DIRECTORY_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a zip directory of %" PRIu64 " bytes",
                          ret->directory_bytes);
    if (ret->directory_offset > ret->at || ret->directory_bytes > ret->at - ret->directory_offset)
        return cairn_fail(err, CAIRN_INVALID,
                          "the zip directory at byte %" PRIu64 " reaches past its own end",
                          ret->directory_offset);
    return CAIRN_OK;
}

/* ---- the directory ---- */

/* Sizes that need 64 bits stand in an extra field, in this order, and only those that do. */
static enum cairn_code read_zip64(struct cairn_view extra, struct cairn_zip_entry *entry,
                                  uint64_t *packed_bytes, struct cairn_error *err) {
    const char *at = extra.data, *end = at + extra.size;
    while (end - at >= 4) {
        unsigned kind = load16(at), size = load16(at + 2);
        at += 4;
        if (size > (size_t)(end - at)) break;
        if (kind != EXTRA_ZIP64) {
            at += size;
            continue;
        }
        uint64_t *wanted[] = {&entry->size_bytes, packed_bytes, &entry->header_offset};
        for (size_t i = 0; i < CAIRN_COUNT(wanted); i++) {
            if (*wanted[i] != UINT32_MAX) continue;
            if (size < 8) return cairn_fail(err, CAIRN_INVALID, "its zip64 sizes are cut short");
            *wanted[i] = cairn_load_u64le(at);
            at += 8;
            size -= 8;
        }
        return CAIRN_OK;
    }
    return CAIRN_OK;
}

/* One entry at `record`, of `left` bytes of directory; *ret_bytes: how many are its own. */
static enum cairn_code read_entry(const struct cairn_input *input, const char *record, size_t left,
                                  struct cairn_zip_entry *ret, size_t *ret_bytes,
                                  struct cairn_error *err) {
    if (left < CENTRAL_BYTES || cairn_load_u32le(record) != MAGIC_CENTRAL)
        return cairn_fail(err, CAIRN_INVALID, "not an entry of a zip directory");
    size_t name = load16(record + 28), extra = load16(record + 30), note = load16(record + 32);
    *ret_bytes = CENTRAL_BYTES + name + extra + note;
    if (*ret_bytes > left || name > NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "an entry with a name of %zu bytes", name);
    uint64_t packed_bytes = cairn_load_u32le(record + 20);
    *ret = (struct cairn_zip_entry){.name = {record + CENTRAL_BYTES, name},
                                    .crc32 = cairn_load_u32le(record + 16),
                                    .size_bytes = cairn_load_u32le(record + 24),
                                    .header_offset = cairn_load_u32le(record + 42)};
    if (!cairn_utf8_valid(ret->name) || memchr(ret->name.data, 0, name))
        return cairn_fail(err, CAIRN_INVALID, "an entry whose name is not UTF-8 text");
    struct cairn_view fields = {record + CENTRAL_BYTES + name, extra};
    CAIRN_TRY(read_zip64(fields, ret, &packed_bytes, err));
    if (load16(record + 8) & FLAG_ENCRYPTED)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it is encrypted");
    unsigned method = load16(record + 10);
    ret->deflated = method == METHOD_DEFLATE;
    ret->packed_bytes = packed_bytes;
    if ((method && !ret->deflated) || (!method && packed_bytes != ret->size_bytes))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "it is compressed by method %u, not by deflate",
                          method);
    if (ret->size_bytes / DEFLATE_MOST > packed_bytes + 1)
        return cairn_fail(err, CAIRN_INVALID, "%" PRIu64 " packed bytes never make %" PRIu64,
                          packed_bytes, ret->size_bytes);
    if (ret->header_offset > input->size_bytes ||
        packed_bytes > input->size_bytes - ret->header_offset)
        return cairn_fail(err, CAIRN_INVALID,
                          "%" PRIu64 " bytes from %" PRIu64 " leave the file of %" PRIu64,
                          packed_bytes, ret->header_offset, input->size_bytes);
    return CAIRN_OK;
}

static int by_name(const void *a, const void *b) {
    const struct cairn_view x = ((const struct cairn_zip_entry *)a)->name,
                            y = ((const struct cairn_zip_entry *)b)->name;
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

static enum cairn_code read_entries(const struct cairn_input *input, uint64_t wanted,
                                    struct cairn_zip *zip, struct cairn_error *err) {
    const char *at = zip->directory.data, *end = at + zip->directory.size;
    size_t capacity = 0, bytes = 0;
    while (at < end) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(zip->entries, zip->count, capacity,
                                   DIRECTORY_BYTES_MAX / CENTRAL_BYTES, "entries of a zip", err));
        struct cairn_zip_entry *entry = &zip->entries[zip->count];
        *entry = (struct cairn_zip_entry){.name = {"", 0}};
        enum cairn_code code = read_entry(input, at, (size_t)(end - at), entry, &bytes, err);
        if (code)
            return cairn_within(err, code, "zip entry %zu %.*s", zip->count,
                                (int)(entry->name.size < 64 ? entry->name.size : 64),
                                (const char *)entry->name.data);
        at += bytes;
        zip->count++;
    }
    if (zip->count != wanted)
        return cairn_fail(err, CAIRN_INVALID,
                          "a zip directory of %zu entries where %" PRIu64 " are announced",
                          zip->count, wanted);
    if (zip->count) qsort(zip->entries, zip->count, sizeof *zip->entries, by_name);
    for (size_t i = 1; i < zip->count; i++)
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return cairn_fail(err, CAIRN_INVALID, "the zip has two entries %.*s",
                              (int)zip->entries[i].name.size,
                              (const char *)zip->entries[i].name.data);
    return CAIRN_OK;
}

enum cairn_code cairn_zip_open(const struct cairn_input *input, struct cairn_zip *ret,
                               struct cairn_error *err) {
    struct end end;
    *ret = (struct cairn_zip){.directory.limit = DIRECTORY_BYTES_MAX + 1};
    CAIRN_TRY(read_end(input, &end, err));
    enum cairn_code code = cairn_buf_reserve(&ret->directory, (size_t)end.directory_bytes + 1, err);
    if (code == CAIRN_OK)
        code = cairn_input_read(input, end.directory_offset, ret->directory.data,
                                (size_t)end.directory_bytes, err);
    if (code == CAIRN_OK) {
        ret->directory.size = (size_t)end.directory_bytes;
        code = read_entries(input, end.entries, ret, err);
    }
    if (code != CAIRN_OK) cairn_zip_release(ret);
    return code;
}

const struct cairn_zip_entry *cairn_zip_find(const struct cairn_zip *zip, struct cairn_view name) {
    const struct cairn_zip_entry wanted = {.name = name};
    if (zip->count == 0) return NULL;
    return bsearch(&wanted, zip->entries, zip->count, sizeof *zip->entries, by_name);
}

/* ---- one entry ---- */

enum cairn_code cairn_zip_data_at(const struct cairn_input *input,
                                  const struct cairn_zip_entry *entry, uint64_t *ret_offset,
                                  struct cairn_error *err) {
    char header[LOCAL_BYTES];
    enum cairn_code code =
        cairn_input_read(input, entry->header_offset, header, sizeof header, err);
    if (code == CAIRN_OK && cairn_load_u32le(header) != MAGIC_LOCAL)
        code =
            cairn_fail(err, CAIRN_INVALID, "no zip header at byte %" PRIu64, entry->header_offset);
    if (code == CAIRN_OK) {
        *ret_offset =
            entry->header_offset + LOCAL_BYTES + load16(header + 26) + load16(header + 28);
        if (*ret_offset > input->size_bytes ||
            entry->packed_bytes > input->size_bytes - *ret_offset)
            code = cairn_fail(err, CAIRN_INVALID, "its bytes leave the file");
    }
    if (code == CAIRN_OK) return CAIRN_OK;
    return cairn_within(err, code, "zip entry %.*s", (int)entry->name.size,
                        (const char *)entry->name.data);
}

static enum cairn_code inflate_all(const struct cairn_input *input,
                                   const struct cairn_zip_entry *entry, uint64_t offset, char *into,
                                   struct cairn_error *err) {
    struct cairn_inflate *inflate;
    CAIRN_TRY(cairn_inflate_new(input, offset, entry->packed_bytes, &inflate, err));
    enum cairn_code code = cairn_inflate_read(inflate, into, (size_t)entry->size_bytes, err);
    cairn_inflate_free(inflate);
    return code ? cairn_within(err, code, "zip entry %.*s", (int)entry->name.size,
                               (const char *)entry->name.data)
                : CAIRN_OK;
}

enum cairn_code cairn_zip_load(const struct cairn_input *input, const struct cairn_zip_entry *entry,
                               struct cairn_buf *ret, struct cairn_error *err) {
    uint64_t offset = 0;
    CAIRN_TRY(cairn_zip_data_at(input, entry, &offset, err));
    if (entry->size_bytes >= SIZE_MAX / 2)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a zip entry of %" PRIu64 " bytes",
                          entry->size_bytes);
    CAIRN_TRY(cairn_buf_reserve(ret, (size_t)entry->size_bytes + 1, err));
    if (entry->deflated)
        CAIRN_TRY(inflate_all(input, entry, offset, ret->data, err));
    else
        CAIRN_TRY(cairn_input_read(input, offset, ret->data, (size_t)entry->size_bytes, err));
    ret->size = (size_t)entry->size_bytes;
    if (entry->crc32 && cairn_crc32(ret->data, ret->size) != entry->crc32)
        return cairn_fail(err, CAIRN_CORRUPT, "zip entry %.*s does not match its CRC-32",
                          (int)entry->name.size, (const char *)entry->name.data);
    return CAIRN_OK;
}
