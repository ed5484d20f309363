/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of both, which are equal as a whole but for the one where they are not. */
#include "server/db/copy_compare.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"

#define SHOWN_BYTES 48

/* ---- what is said ---- */

struct shown {
    char text[2 * SHOWN_BYTES + 16];
};
static struct shown show(const struct cairn_srv_table *table, const struct cairn_srv_unpacked *row,
                         size_t column) {
    struct shown ret = {"null"};
    struct cairn_view value = row->columns[column];
    if (!value.data) return ret;
    size_t size = value.size < SHOWN_BYTES ? value.size : SHOWN_BYTES;
    const char *cut = size < value.size ? "..." : "";
    char hex[2 * SHOWN_BYTES + 1];
    if (table->types[column] == 'i') {
        snprintf(ret.text, sizeof(ret.text), "%" PRId64, cairn_srv_unpacked_number(row, column));
    } else if (table->types[column] == 't') {
        snprintf(ret.text, sizeof(ret.text), "\"%.*s%s\"", (int)size, (const char *)value.data,
                 cut);
    } else {
        cairn_hex_encode(value.data, size, hex);
        snprintf(ret.text, sizeof(ret.text), "x'%s%s'", hex, cut);
    }
    return ret;
}

struct named {
    char text[256];
};
static struct named name(const struct cairn_srv_table *table,
                         const struct cairn_srv_unpacked *row) {
    struct named ret = {""};
    for (size_t i = 0, size = 0; i < table->key_count && size < sizeof(ret.text); i++) {
        size_t column = table->key[i];
        struct shown value = show(table, row, column);
        size += (size_t)snprintf(ret.text + size, sizeof(ret.text) - size, "%s%s %s", i ? ", " : "",
                                 table->columns[column], value.text);
    }
    return ret;
}

static enum cairn_code fail_alone(const struct cairn_srv_copy_end *has,
                                  const struct cairn_srv_copy_end *lacks,
                                  const struct cairn_srv_table *table,
                                  const struct cairn_srv_unpacked *row, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CORRUPT, "table %s: the row with %s is in %s and not in %s",
                      table->name, name(table, row).text, has->called, lacks->called);
}

static enum cairn_code fail_column(const struct cairn_srv_table *table,
                                   const struct cairn_srv_unpacked *a,
                                   const struct cairn_srv_unpacked *b, struct cairn_error *err) {
    for (size_t i = 0; i < table->column_count; i++) {
        struct cairn_view left = a->columns[i], right = b->columns[i];
        if (!left.data == !right.data && left.size == right.size &&
            (!left.size || !memcmp(left.data, right.data, left.size)))
            continue;
        return cairn_fail(err, CAIRN_CORRUPT,
                          "table %s, row with %s: %s is %s in the source and %s in the target",
                          table->name, name(table, a).text, table->columns[i],
                          show(table, a, i).text, show(table, b, i).text);
    }
    return cairn_fail(err, CAIRN_INTERNAL, "table %s: rows differ in no column", table->name);
}

/* ---- rows ---- */

static enum cairn_code
find_difference(const struct cairn_srv_copy_end *from, const struct cairn_srv_copy_end *to,
                const struct cairn_srv_table *table, const struct cairn_srv_pack *left,
                const struct cairn_srv_pack *right, struct cairn_error *err) {
    struct cairn_srv_unpacked a = {.left = cairn_buf_view(&left->bytes)};
    struct cairn_srv_unpacked b = {.left = cairn_buf_view(&right->bytes)};
    for (;;) {
        bool is_a = cairn_srv_unpack(&a), is_b = cairn_srv_unpack(&b);
        if (!is_a && !is_b) return CAIRN_OK;
        int order = !is_a ? 1 : !is_b ? -1 : cairn_srv_unpacked_compare(table, &a, &b);
        if (order < 0) return fail_alone(from, to, table, &a, err);
        if (order > 0) return fail_alone(to, from, table, &b, err);
        if (a.row.size != b.row.size || memcmp(a.row.data, b.row.data, a.row.size) != 0)
            return fail_column(table, &a, &b, err);
    }
}

static enum cairn_code compare_pages(struct cairn_srv_copy_end *from, struct cairn_srv_copy_end *to,
                                     size_t table, struct cairn_srv_copy_cursor *left,
                                     struct cairn_srv_copy_cursor *right, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_copy_page(from, table, left, err));
    CAIRN_TRY(cairn_srv_copy_page(to, table, right, err));
    size_t size = left->page.bytes.size;
    if (size == right->page.bytes.size &&
        (!size || !memcmp(left->page.bytes.data, right->page.bytes.data, size)))
        return CAIRN_OK;
    return find_difference(from, to, &from->tables->at[table], &left->page, &right->page, err);
}

enum cairn_code cairn_srv_copy_compare(struct cairn_srv_copy_end *from,
                                       struct cairn_srv_copy_end *to, size_t table,
                                       const char *behind, struct cairn_srv_copy_compared *ret,
                                       struct cairn_error *err) {
    CAIRN_AUTO(srv_copy_cursor) left = {0}, right = {0};
    CAIRN_AUTO(sha256) read_left, read_right;
    uint8_t digest[CAIRN_SHA256_BYTES];
    cairn_sha256_init(&read_left);
    cairn_sha256_init(&read_right);
    ret->rows = 0;
    if (behind) CAIRN_TRY(cairn_srv_copy_behind(from, table, behind, &left, err));
    if (behind) CAIRN_TRY(cairn_srv_copy_behind(to, table, behind, &right, err));
    for (;;) {
        CAIRN_TRY(compare_pages(from, to, table, &left, &right, err));
        if (!left.page.rows) break;
        cairn_sha256_update(&read_left, left.page.bytes.data, left.page.bytes.size);
        cairn_sha256_update(&read_right, right.page.bytes.data, right.page.bytes.size);
        ret->rows += left.page.rows;
        if (ret->counted) ret->counted(ret->owner, left.page.rows);
    }
    cairn_sha256_final(&read_left, ret->sha256);
    cairn_sha256_final(&read_right, digest);
    if (!memcmp(digest, ret->sha256, sizeof(digest))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "table %s differs", from->tables->at[table].name);
}
