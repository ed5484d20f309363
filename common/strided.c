/* SPDX-License-Identifier: Apache-2.0 */
/* A range is cut into planes of the two innermost dimensions, and each plane into a part of a row,
 * whole rows, and a part of a row. */
#include "common/strided.h"

#define PLACE_BYTES_MAX ((int64_t)1 << 62)
/* A tile has 64 rows, of a cache line each on the dense side. */
#define TILE_ROWS 64
#define TILE_LINE_BYTES 64

/* ---- making ---- */

static bool spans(uint64_t count, int64_t stride_bytes, int64_t *sum) {
    int64_t span;
    if (count > INT64_MAX || cairn_mul_overflows((int64_t)count - 1, stride_bytes, &span))
        return false;
    if (span == INT64_MIN) return false;
    return !cairn_add_overflows(*sum, span < 0 ? -span : span, sum) && *sum <= PLACE_BYTES_MAX;
}

static void add_dimension(struct cairn_strided *ret, uint64_t count, int64_t stride_bytes) {
    unsigned last = ret->dimension_count - 1;
    int64_t joined;
    if (count == 1) return;
    if (ret->dimension_count && !cairn_mul_overflows((int64_t)count, stride_bytes, &joined) &&
        ret->stride_bytes[last] == joined) {
        ret->count[last] *= count;
        ret->stride_bytes[last] = stride_bytes;
        return;
    }
    ret->count[ret->dimension_count] = count;
    ret->stride_bytes[ret->dimension_count++] = stride_bytes;
}

bool cairn_strided_make(size_t element_bytes, unsigned dimension_count, const uint64_t *count,
                        const int64_t *stride, struct cairn_strided *ret) {
    struct cairn_strided made = {.element_bytes = element_bytes};
    int64_t width = (int64_t)element_bytes, sum = width;
    if (dimension_count > CAIRN_STRIDED_DIMENSIONS_MAX || element_bytes < 1 || element_bytes > 16 ||
        (element_bytes & (element_bytes - 1)))
        return false;
    for (unsigned d = 0; d < dimension_count; d++)
        if (!count[d]) { /* no elements */
            *ret = (struct cairn_strided){.dimension_count = 1, .element_bytes = element_bytes};
            return true;
        }
    for (unsigned d = 0; d < dimension_count; d++) {
        int64_t stride_bytes;
        if (count[d] == 1) continue;
        if (cairn_mul_overflows(stride[d], width, &stride_bytes) ||
            !spans(count[d], stride_bytes, &sum))
            return false;
        add_dimension(&made, count[d], stride_bytes);
    }
    *ret = made;
    return true;
}

bool cairn_strided_has_rows(const struct cairn_strided *strided) {
    unsigned n = strided->dimension_count;
    return n == 0 || strided->stride_bytes[n - 1] == (int64_t)strided->element_bytes;
}

bool cairn_strided_is_contiguous(const struct cairn_strided *strided) {
    return strided->dimension_count <= 1 && cairn_strided_has_rows(strided);
}

/* Addresses are distinct if, sorted by stride, each dimension steps over all inner ones. */
bool cairn_strided_may_overlap(const struct cairn_strided *strided) {
    bool used[CAIRN_STRIDED_DIMENSIONS_MAX] = {false};
    uint64_t inside = strided->element_bytes;
    for (unsigned step = 0; step < strided->dimension_count; step++) {
        unsigned least = 0;
        uint64_t least_bytes = UINT64_MAX;
        for (unsigned d = 0; d < strided->dimension_count; d++) {
            int64_t stride = strided->stride_bytes[d];
            uint64_t bytes = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
            if (used[d] || bytes >= least_bytes) continue;
            least = d;
            least_bytes = bytes;
        }
        if (least_bytes < inside) return true;
        used[least] = true;
        inside += least_bytes * (strided->count[least] - 1);
    }
    return false;
}

/* ---- moving ---- */

/* Rows of one plane: dense on one side, strided (`apart`) on the other. */
struct rows {
    char *apart, *dense;
    uint64_t rows, columns;
    int64_t row_bytes, column_bytes; /* of `apart` */
    uint64_t dense_row_bytes;
};

/* packed: elements may be unaligned. */
#define DEFINE_MOVE(bits, type)                                                                    \
    struct __attribute__((packed, may_alias)) element_##bits {                                     \
        type value;                                                                                \
    };                                                                                             \
    static void move_##bits(const struct rows *part, bool out) {                                   \
        for (uint64_t row = 0; row < part->rows; row++) {                                          \
            char *apart = part->apart + (int64_t)row * part->row_bytes;                            \
            struct element_##bits *dense =                                                         \
                (struct element_##bits *)(void *)(part->dense + row * part->dense_row_bytes);      \
            for (uint64_t i = 0; i < part->columns; i++, apart += part->column_bytes) {            \
                struct element_##bits *one = (struct element_##bits *)(void *)apart;               \
                if (out)                                                                           \
                    *one = dense[i];                                                               \
                else                                                                               \
                    dense[i] = *one;                                                               \
            }                                                                                      \
        }                                                                                          \
    }
struct wide {
    uint64_t half[2];
};
DEFINE_MOVE(8, uint8_t)
DEFINE_MOVE(16, uint16_t)
DEFINE_MOVE(32, uint32_t)
DEFINE_MOVE(64, uint64_t)
DEFINE_MOVE(128, struct wide)

/* Moves a tile of a transposed plane by way of 4 KiB on the stack, so that each line of memory is
 * met once: lines that are a power of two apart share a set of the cache and would evict each
 * other. On the stack the places of a column are a line apart, and a column more is skipped after
 * each, so that they do not share a set either. */
#define DEFINE_TURN(bits, type)                                                                    \
    static void turn_##bits(const struct rows *tile, bool out) {                                   \
        type held[512 / bits][TILE_ROWS + TILE_LINE_BYTES * 8 / bits];                             \
        const size_t column_size = (size_t)tile->rows * sizeof(type);                              \
        for (uint64_t i = 0; !out && i < tile->columns; i++)                                       \
            memcpy(held[i], tile->apart + (int64_t)i * tile->column_bytes, column_size);           \
        for (uint64_t row = 0; row < tile->rows; row++) {                                          \
            struct element_##bits *dense =                                                         \
                (struct element_##bits *)(void *)(tile->dense + row * tile->dense_row_bytes);      \
            for (uint64_t i = 0; i < tile->columns; i++) {                                         \
                if (out)                                                                           \
                    held[i][row] = dense[i].value;                                                 \
                else                                                                               \
                    dense[i].value = held[i][row];                                                 \
            }                                                                                      \
        }                                                                                          \
        for (uint64_t i = 0; out && i < tile->columns; i++)                                        \
            memcpy(tile->apart + (int64_t)i * tile->column_bytes, held[i], column_size);           \
    }
DEFINE_TURN(8, uint8_t)
DEFINE_TURN(16, uint16_t)
DEFINE_TURN(32, uint32_t)
DEFINE_TURN(64, uint64_t)
DEFINE_TURN(128, struct wide)

static void turn_elements(const struct rows *tile, size_t element_bytes, bool out) {
    if (element_bytes == 1) turn_8(tile, out);
    if (element_bytes == 2) turn_16(tile, out);
    if (element_bytes == 4) turn_32(tile, out);
    if (element_bytes == 8) turn_64(tile, out);
    if (element_bytes == 16) turn_128(tile, out);
}

static void move_elements(const struct rows *part, size_t element_bytes, bool out) {
    if (element_bytes == 1) move_8(part, out);
    if (element_bytes == 2) move_16(part, out);
    if (element_bytes == 4) move_32(part, out);
    if (element_bytes == 8) move_64(part, out);
    if (element_bytes == 16) move_128(part, out);
}

static void move_whole_rows(const struct rows *part, size_t row_size, bool out) {
    for (uint64_t row = 0; row < part->rows; row++) {
        char *apart = part->apart + (int64_t)row * part->row_bytes;
        char *dense = part->dense + row * part->dense_row_bytes;
        memcpy(out ? apart : dense, out ? dense : apart, row_size);
    }
}

static void move_tiles(const struct rows *part, size_t element_bytes, bool out) {
    const uint64_t columns = TILE_LINE_BYTES / element_bytes;
    const bool turned = part->row_bytes == (int64_t)element_bytes;
    for (uint64_t row = 0; row < part->rows; row += TILE_ROWS)
        for (uint64_t column = 0; column < part->columns; column += columns) {
            struct rows tile = *part;
            tile.apart += (int64_t)row * part->row_bytes + (int64_t)column * part->column_bytes;
            tile.dense += row * part->dense_row_bytes + column * element_bytes;
            tile.rows = cairn_min_u64(part->rows - row, TILE_ROWS);
            tile.columns = cairn_min_u64(part->columns - column, columns);
            if (turned)
                turn_elements(&tile, element_bytes, out);
            else
                move_elements(&tile, element_bytes, out);
        }
}

/* ---- cutting ---- */

static int64_t plane_at(const struct cairn_strided *strided, uint64_t plane) {
    int64_t place = 0;
    for (unsigned d = strided->dimension_count > 2 ? strided->dimension_count - 2 : 0; d-- > 0;) {
        place += (int64_t)(plane % strided->count[d]) * strided->stride_bytes[d];
        plane /= strided->count[d];
    }
    return place;
}

/* The first rows of the elements [from, end) that lie in one plane. */
static struct cairn_strided_rows first_rows(const struct cairn_strided *strided, uint64_t from,
                                            uint64_t end) {
    unsigned n = strided->dimension_count;
    uint64_t columns = n ? strided->count[n - 1] : 1, rows = n > 1 ? strided->count[n - 2] : 1;
    struct cairn_strided_rows ret = {.row_bytes = n > 1 ? strided->stride_bytes[n - 2] : 0,
                                     .column_bytes = n ? strided->stride_bytes[n - 1]
                                                       : (int64_t)strided->element_bytes};
    uint64_t row = from / columns, column = from % columns, in_plane = row % rows;
    bool whole = column == 0 && end - from >= columns;
    ret.rows = whole ? cairn_min_u64((end - from) / columns, rows - in_plane) : 1;
    ret.columns = whole ? columns : cairn_min_u64(columns - column, end - from);
    ret.place = plane_at(strided, row / rows) + (int64_t)in_plane * ret.row_bytes +
                (int64_t)column * ret.column_bytes;
    return ret;
}

bool cairn_strided_cut(const struct cairn_strided *strided, uint64_t at, size_t size,
                       bool (*each)(void *owner, const struct cairn_strided_rows *rows),
                       void *owner) {
    size_t width = strided->element_bytes;
    uint64_t dense = 0;
    CAIRN_PROMISE(at % width == 0, return false);
    CAIRN_PROMISE(size % width == 0, return false);
    for (uint64_t from = at / width, end = from + size / width; from < end;) {
        struct cairn_strided_rows rows = first_rows(strided, from, end);
        rows.dense = dense;
        if (!each(owner, &rows)) return false;
        from += rows.rows * rows.columns;
        dense += rows.rows * rows.columns * width;
    }
    return true;
}

struct moving {
    size_t element_bytes;
    char *apart, *dense;
    bool out;
};

static bool move_part(void *owner, const struct cairn_strided_rows *rows) {
    const struct moving *moving = owner;
    const struct rows part = {.apart = moving->apart + rows->place,
                              .dense = moving->dense + rows->dense,
                              .rows = rows->rows,
                              .columns = rows->columns,
                              .row_bytes = rows->row_bytes,
                              .column_bytes = rows->column_bytes,
                              .dense_row_bytes = rows->columns * moving->element_bytes};
    if (part.column_bytes == (int64_t)moving->element_bytes)
        move_whole_rows(&part, (size_t)part.columns * moving->element_bytes, moving->out);
    else if (part.rows > 1 && part.columns > 1)
        move_tiles(&part, moving->element_bytes, moving->out);
    else
        move_elements(&part, moving->element_bytes, moving->out);
    return true;
}

static void move(const struct cairn_strided *strided, char *first, uint64_t at, char *dense,
                 size_t size, bool out) {
    struct moving moving = {strided->element_bytes, first, dense, out};
    (void)cairn_strided_cut(strided, at, size, move_part, &moving);
}

void cairn_strided_gather(const struct cairn_strided *strided, const void *first, uint64_t at,
                          void *to, size_t size) {
    move(strided, (char *)(uintptr_t)first, at, to, size, false);
}

void cairn_strided_scatter(const struct cairn_strided *strided, void *first, uint64_t at,
                           const void *from, size_t size) {
    move(strided, first, at, (char *)(uintptr_t)from, size, true);
}
