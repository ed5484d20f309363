/* SPDX-License-Identifier: Apache-2.0 */
/* Written by one function and read by one; see pack.h. */
#include "server/db/pack.h"

#include <endian.h>

void cairn_srv_pack_release(struct cairn_srv_pack *pack) {
    cairn_buf_release(&pack->bytes);
    pack->rows = 0;
}

void cairn_srv_pack_clear(struct cairn_srv_pack *pack) {
    cairn_buf_clear(&pack->bytes);
    pack->rows = 0;
}

static enum cairn_code add_value(struct cairn_srv_pack *pack, const void *data, size_t size,
                                 struct cairn_error *err) {
    uint32_t length = htobe32((uint32_t)size);
    CAIRN_TRY(cairn_buf_append(&pack->bytes, &length, sizeof(length), err));
    return size ? cairn_buf_append(&pack->bytes, data, size, err) : CAIRN_OK;
}

static enum cairn_code add_null(struct cairn_srv_pack *pack, struct cairn_error *err) {
    uint32_t null = UINT32_MAX;
    return cairn_buf_append(&pack->bytes, &null, sizeof(null), err);
}

static enum cairn_code add_column(struct cairn_srv_pack *pack, char type,
                                  const struct cairn_srv_rows *row, int column,
                                  struct cairn_error *err) {
    if (cairn_srv_rows_null(row, column)) return add_null(pack, err);
    if (type == 'i') {
        uint64_t number = htobe64((uint64_t)cairn_srv_rows_i64(row, column));
        return add_value(pack, &number, sizeof(number), err);
    }
    struct cairn_view value = type == 't' ? cairn_view_of(cairn_srv_rows_text(row, column))
                                          : cairn_srv_rows_blob(row, column);
    return add_value(pack, value.data, value.size, err);
}

static enum cairn_code begin_row(struct cairn_srv_pack *pack, const struct cairn_srv_table *table,
                                 struct cairn_error *err) {
    uint16_t count = htobe16((uint16_t)table->column_count);
    pack->bytes.limit = CAIRN_SRV_PACK_BYTES_MAX;
    return cairn_buf_append(&pack->bytes, &count, sizeof(count), err);
}

enum cairn_code cairn_srv_pack_add(struct cairn_srv_pack *pack, const struct cairn_srv_table *table,
                                   const struct cairn_srv_rows *row, struct cairn_error *err) {
    CAIRN_TRY(begin_row(pack, table, err));
    for (size_t i = 0; i < table->column_count; i++)
        CAIRN_TRY(add_column(pack, table->types[i], row, (int)i, err));
    pack->rows++;
    return CAIRN_OK;
}

enum cairn_code cairn_srv_pack_add_key(struct cairn_srv_pack *pack,
                                       const struct cairn_srv_table *table, const char *key,
                                       struct cairn_error *err) {
    CAIRN_TRY(begin_row(pack, table, err));
    for (size_t i = 0; i < table->column_count; i++) {
        bool is_key = i == table->key[0];
        CAIRN_TRY(is_key ? add_value(pack, key, strlen(key), err) : add_null(pack, err));
    }
    pack->rows++;
    return CAIRN_OK;
}

static const void *take(struct cairn_srv_unpacked *at, size_t size) {
    const char *taken = at->left.data;
    CAIRN_ASSERT(size <= at->left.size); /* they are our own bytes */
    at->left = (struct cairn_view){taken + size, at->left.size - size};
    return taken;
}

bool cairn_srv_unpack(struct cairn_srv_unpacked *at) {
    if (!at->left.size) return false;
    uint16_t count;
    const char *begin = at->left.data;
    memcpy(&count, take(at, sizeof(count)), sizeof(count));
    at->column_count = be16toh(count);
    CAIRN_ASSERT(at->column_count <= CAIRN_SRV_COLUMNS_MAX);
    for (size_t i = 0; i < at->column_count; i++) {
        uint32_t size;
        memcpy(&size, take(at, sizeof(size)), sizeof(size));
        size = be32toh(size);
        bool null = size == UINT32_MAX;
        at->columns[i] = (struct cairn_view){0};
        if (!null) at->columns[i] = (struct cairn_view){take(at, size), size};
    }
    at->row = (struct cairn_view){begin, (size_t)((const char *)at->left.data - begin)};
    return true;
}

int64_t cairn_srv_unpacked_number(const struct cairn_srv_unpacked *at, size_t column) {
    uint64_t number;
    CAIRN_ASSERT(at->columns[column].size == sizeof(number));
    memcpy(&number, at->columns[column].data, sizeof(number));
    return (int64_t)be64toh(number);
}

static int compare_bytes(struct cairn_view a, struct cairn_view b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

int cairn_srv_unpacked_compare(const struct cairn_srv_table *table,
                               const struct cairn_srv_unpacked *a,
                               const struct cairn_srv_unpacked *b) {
    for (size_t i = 0; i < table->key_count; i++) {
        size_t column = table->key[i];
        int order = 0;
        if (table->types[column] == 'i') {
            int64_t left = cairn_srv_unpacked_number(a, column);
            int64_t right = cairn_srv_unpacked_number(b, column);
            order = (left > right) - (left < right);
        } else {
            order = compare_bytes(a->columns[column], b->columns[column]);
        }
        if (order) return order;
    }
    return 0;
}
