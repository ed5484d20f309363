/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes (counted in row-major order, proved by a sweep per dimension), seals and signs. */
#include "formats/assembly/pieces.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/crc.h"
#include "common/text.h"

#define STEPS_MAX (1ULL << 28)

uint64_t cairn_box_elements(const struct cairn_box *box, unsigned dimensions) {
    uint64_t elements = 1;
    for (unsigned d = 0; d < dimensions; d++) elements *= box->count[d];
    return elements;
}

bool cairn_box_fits(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape) {
    for (unsigned d = 0; d < dimensions; d++)
        if (!box->count[d] || box->start[d] > shape[d] || box->count[d] > shape[d] - box->start[d])
            return false;
    return true;
}

uint64_t cairn_box_before(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                          uint64_t element) {
    uint64_t stride = 1, own = cairn_box_elements(box, dimensions), before = 0;
    for (unsigned d = 0; d < dimensions; d++) stride *= shape[d];
    if (element >= stride) return own;
    for (unsigned d = 0; d < dimensions; d++) {
        stride /= shape[d];
        own /= box->count[d];
        uint64_t at = element / stride;
        element %= stride;
        if (at < box->start[d]) return before;
        if (at - box->start[d] >= box->count[d]) return before + box->count[d] * own;
        before += (at - box->start[d]) * own;
    }
    return before;
}

uint64_t cairn_box_place(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape,
                         uint64_t element) {
    uint64_t stride = 1, place = 0;
    for (unsigned d = dimensions; d-- > 0;) {
        place += (box->start[d] + element % box->count[d]) * stride;
        element /= box->count[d];
        stride *= shape[d];
    }
    return place;
}

uint64_t cairn_box_run(const struct cairn_box *box, unsigned dimensions, const uint64_t *shape) {
    uint64_t run = 1;
    for (unsigned d = dimensions; d-- > 0;) {
        run *= box->count[d];
        if (box->count[d] != shape[d]) break;
    }
    return run;
}

unsigned cairn_box_cut(const struct cairn_box *box, unsigned dimensions, uint64_t first,
                       uint64_t elements, struct cairn_box ret[2 * CAIRN_DIMENSIONS_MAX]) {
    unsigned count = 0;
    while (elements) {
        CAIRN_ASSERT(count < 2 * CAIRN_DIMENSIONS_MAX); /* pieces.h#3 */
        struct cairn_box *made = &ret[count++];
        uint64_t inner = 1, left = first;
        unsigned cut = dimensions;
        /* The outermost dimension where the range's begin and length allow a cut. */
        while (cut && inner * box->count[cut - 1] <= elements &&
               first % (inner * box->count[cut - 1]) == 0)
            inner *= box->count[--cut];
        *made = *box;
        for (unsigned d = dimensions; d-- > 0; left /= box->count[d]) {
            if (d >= cut) continue;
            made->start[d] = box->start[d] + left % box->count[d];
            made->count[d] = 1;
        }
        uint64_t taken = inner;
        if (cut) {
            unsigned d = cut - 1;
            uint64_t room = box->count[d] - (made->start[d] - box->start[d]);
            made->count[d] = elements / inner < room ? elements / inner : room;
            taken *= made->count[d];
        }
        first += taken;
        elements -= taken;
    }
    return count;
}

struct proof {
    const struct cairn_box *boxes;
    unsigned dimensions;
    const uint64_t *shape;
    uint64_t at[CAIRN_DIMENSIONS_MAX];
    uint64_t steps;
};
struct border {
    uint64_t start;
    size_t box;
};

static int by_start(const void *a, const void *b) {
    const struct border *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static enum cairn_code refuse_boxes(const struct proof *proof, unsigned known, const char *what,
                                    struct cairn_error *err) {
    uint64_t element = 0;
    for (unsigned d = 0; d < proof->dimensions; d++)
        element = element * proof->shape[d] + (d < known ? proof->at[d] : 0);
    return cairn_fail(err, CAIRN_INVALID, "its pieces %s at element %" PRIu64, what, element);
}

static enum cairn_code prove_dimension(struct proof *proof, unsigned dimension,
                                       const size_t *numbers, size_t count,
                                       struct cairn_error *err);

static enum cairn_code sweep_sorted(struct proof *proof, unsigned dimension,
                                    const struct border *sorted, size_t count, size_t *open,
                                    struct cairn_error *err) {
    size_t taken = 0, open_count = 0;
    for (uint64_t at = 0, size = proof->shape[dimension]; at < size;) {
        size_t kept = 0;
        for (size_t i = 0; i < open_count; i++) {
            const struct cairn_box *box = &proof->boxes[open[i]];
            if (box->start[dimension] + box->count[dimension] > at) open[kept++] = open[i];
        }
        while (taken < count && sorted[taken].start == at) open[kept++] = sorted[taken++].box;
        open_count = kept;
        proof->at[dimension] = at;
        if (!open_count) return refuse_boxes(proof, dimension + 1, "leave a hole", err);
        proof->steps += open_count;
        if (proof->steps > STEPS_MAX)
            return cairn_fail(err, CAIRN_TOO_LARGE,
                              "its pieces are cut in too many ways to be compared");
        CAIRN_TRY(prove_dimension(proof, dimension + 1, open, open_count, err));
        /* The next border after `at`: the first end of an open box, or the next start. */
        uint64_t next = taken < count ? sorted[taken].start : size;
        for (size_t k = 0; k < open_count; k++) {
            const struct cairn_box *box = &proof->boxes[open[k]];
            uint64_t end = box->start[dimension] + box->count[dimension];
            if (end < next) next = end;
        }
        CAIRN_ASSERT(next > at);
        at = next;
    }
    return CAIRN_OK;
}

static enum cairn_code prove_dimension(struct proof *proof, unsigned dimension,
                                       const size_t *numbers, size_t count,
                                       struct cairn_error *err) {
    if (dimension == proof->dimensions)
        return count == 1 ? CAIRN_OK
                          : refuse_boxes(proof, dimension, count ? "overlap" : "leave a hole", err);
    CAIRN_AUTO_HEAP struct border *sorted = calloc(count + 1, sizeof *sorted);
    CAIRN_AUTO_HEAP size_t *open = calloc(count + 1, sizeof *open);
    if (!sorted || !open) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare pieces");
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct border){proof->boxes[numbers[i]].start[dimension], numbers[i]};
    if (count) qsort(sorted, count, sizeof *sorted, by_start);
    return sweep_sorted(proof, dimension, sorted, count, open, err);
}

enum cairn_code cairn_boxes_prove(const struct cairn_box *boxes, size_t count, unsigned dimensions,
                                  const uint64_t *shape, struct cairn_error *err) {
    struct proof proof = {.boxes = boxes, .dimensions = dimensions, .shape = shape};
    CAIRN_AUTO_HEAP size_t *numbers = calloc(count + 1, sizeof *numbers);
    if (!numbers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare pieces");
    for (size_t i = 0; i < count; i++) numbers[i] = i;
    return prove_dimension(&proof, 0, numbers, count, err);
}

/* ---- seals: the noted bytes of a range, and the sum of their remainders ---- */

#define SEALS_MAX 16777216
#define PARTS_MAX 8192

void cairn_seals_release(struct cairn_seals *seals) {
    for (size_t i = 0; i < seals->count; i++) {
        free(seals->seals[i].name);
        free(seals->seals[i].parts);
    }
    free(seals->seals);
    if (seals->sorted) cairn_lock_release(&seals->lock);
    *seals = (struct cairn_seals){0};
}

enum cairn_code cairn_seals_add(struct cairn_seals *seals, const struct cairn_seal *seal,
                                struct cairn_view name, struct cairn_error *err) {
    if (!seal->crc32 || !seal->size_bytes) return CAIRN_OK;
    if (seals->sorted) cairn_lock_release(&seals->lock);
    seals->sorted = false;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(seals->seals, seals->count, seals->capacity, SEALS_MAX,
                               "checksums of files", err));
    struct cairn_seal *made = &seals->seals[seals->count];
    *made = *seal;
    made->name = strndup(name.data, name.size);
    if (!made->name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    seals->count++;
    return CAIRN_OK;
}

static int by_place(const void *a, const void *b) {
    const struct cairn_seal *x = a, *y = b;
    if (x->input != y->input) return x->input < y->input ? -1 : 1;
    return (x->offset_bytes > y->offset_bytes) - (x->offset_bytes < y->offset_bytes);
}

void cairn_seals_sort(struct cairn_seals *seals) {
    size_t kept = 0;
    CAIRN_ASSERT(!seals->sorted);
    if (seals->count) qsort(seals->seals, seals->count, sizeof *seals->seals, by_place);
    for (size_t i = 0; i < seals->count; i++) {
        if (kept && by_place(&seals->seals[kept - 1], &seals->seals[i]) == 0) {
            free(seals->seals[i].name);
            free(seals->seals[i].parts);
        } else
            seals->seals[kept++] = seals->seals[i];
    }
    seals->count = kept;
    cairn_lock_init(&seals->lock, CAIRN_LOCK_file_seals);
    seals->sorted = true;
}

/* Inserts the free range [begin, end) as a part before index `at`, joined to its neighbours. */
static void insert_part(struct cairn_seal *seal, size_t at, uint64_t begin, uint64_t end) {
    bool before = at < seal->part_count && seal->parts[at].end == begin;
    size_t next = at + before;
    bool behind = next < seal->part_count && seal->parts[next].begin == end;
    if (before && behind) {
        seal->parts[at].end = seal->parts[next].end;
        memmove(&seal->parts[next], &seal->parts[next + 1],
                (seal->part_count - next - 1) * sizeof *seal->parts);
        seal->part_count--;
    } else if (before) {
        seal->parts[at].end = end;
    } else if (behind) {
        seal->parts[next].begin = begin;
    } else {
        if (CAIRN_ARRAY_ROOM(seal->parts, seal->part_count, seal->part_capacity, PARTS_MAX,
                             "parts of a range", NULL) != CAIRN_OK) {
            seal->given_up = true;
            free(seal->parts);
            seal->parts = NULL;
            seal->part_count = 0;
            return;
        }
        memmove(&seal->parts[at + 1], &seal->parts[at],
                (seal->part_count - at) * sizeof *seal->parts);
        seal->parts[at] = (struct cairn_seal_part){begin, end};
        seal->part_count++;
    }
}

/* Takes the next unnoted bytes of [*begin, end); false: none. */
static bool next_unread_range(struct cairn_seals *seals, struct cairn_seal *seal, uint64_t *begin,
                              uint64_t end, uint64_t *ret_end) {
    CAIRN_HOLD(&seals->lock);
    if (seal->given_up) return false;
    /* The first part that ends at this byte or later. */
    size_t low = 0, high = seal->part_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (seal->parts[middle].end < *begin)
            low = middle + 1;
        else
            high = middle;
    }
    size_t at = low;
    if (at < seal->part_count && seal->parts[at].begin <= *begin && seal->parts[at].end > *begin)
        *begin = seal->parts[at].end;
    size_t next = at < seal->part_count && seal->parts[at].end <= *begin ? at + 1 : at;
    if (*begin >= end) return false;
    *ret_end = next < seal->part_count ? cairn_min_u64(end, seal->parts[next].begin) : end;
    insert_part(seal, at, *begin, *ret_end);
    return !seal->given_up;
}

static enum cairn_code refuse_seal(const struct cairn_seal *seal, const struct cairn_input *input,
                                   struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CORRUPT,
                      "%s%szip entry %s does not match its CRC-32: the file is damaged",
                      input->name ? cairn_short(input->name).text : "", input->name ? ": " : "",
                      cairn_short(seal->name).text);
}

/* Notes bytes [begin, end) of the file, which lie in the range. */
static enum cairn_code note_range(struct cairn_seals *seals, struct cairn_seal *seal,
                                  const struct cairn_input *input, uint64_t begin, uint64_t end,
                                  const char *bytes, struct cairn_error *err) {
    const uint64_t first = begin, seal_end = seal->offset_bytes + seal->size_bytes;
    for (uint64_t taken_end; next_unread_range(seals, seal, &begin, end, &taken_end);
         begin = taken_end) {
        uint32_t sum = cairn_crc32_shift(
            cairn_crc32_remainder(bytes + (begin - first), (size_t)(taken_end - begin)),
            seal_end - taken_end);
        CAIRN_HOLD(&seals->lock);
        seal->sum ^= sum;
        seal->noted_bytes += taken_end - begin;
        if (seal->noted_bytes == seal->size_bytes &&
            cairn_crc32_of_remainder(seal->sum, seal->size_bytes) != seal->crc32)
            return refuse_seal(seal, input, err);
    }
    return CAIRN_OK;
}

/* The first range of the file that ends after this byte. */
static size_t first_seal(const struct cairn_seals *seals, uint32_t input, uint64_t offset) {
    size_t low = 0, high = seals->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct cairn_seal *seal = &seals->seals[middle];
        if (seal->input < input ||
            (seal->input == input && seal->offset_bytes + seal->size_bytes <= offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum cairn_code cairn_seals_note(struct cairn_seals *seals, uint32_t number,
                                 const struct cairn_input *input, uint64_t offset_bytes,
                                 const void *bytes, size_t size, struct cairn_error *err) {
    uint64_t end = offset_bytes + size;
    if (!seals->sorted || !size) return CAIRN_OK;
    for (size_t i = first_seal(seals, number, offset_bytes); i < seals->count; i++) {
        struct cairn_seal *seal = &seals->seals[i];
        if (seal->input != number || seal->offset_bytes >= end) break;
        uint64_t seal_end = seal->offset_bytes + seal->size_bytes;
        uint64_t from = seal->offset_bytes > offset_bytes ? seal->offset_bytes : offset_bytes;
        CAIRN_TRY(note_range(seals, seal, input, from, cairn_min_u64(end, seal_end),
                             (const char *)bytes + (from - offset_bytes), err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_seal_check(const struct cairn_seal *seal, const struct cairn_input *input,
                                 void *scratch, size_t size, struct cairn_error *err) {
    uint32_t sum = 0;
    for (uint64_t done = 0; done < seal->size_bytes; done += size) {
        size_t some = (size_t)cairn_min_u64(size, seal->size_bytes - done);
        CAIRN_TRY(cairn_input_read(input, seal->offset_bytes + done, scratch, some, err));
        sum = cairn_crc32_shift(sum, some) ^ cairn_crc32_remainder(scratch, some);
    }
    if (cairn_crc32_of_remainder(sum, seal->size_bytes) == seal->crc32) return CAIRN_OK;
    return refuse_seal(seal, input, err);
}

/* ---- signs ---- */

/* Width of a sign-and-magnitude number, or of one part of a complex one; 0: neither. */
static unsigned float_bytes(unsigned dtype) {
    switch (dtype) {
    case CAIRN_DTYPE_F8_E5M2:
    case CAIRN_DTYPE_F8_E4M3:
        return 1;
    case CAIRN_DTYPE_F16:
    case CAIRN_DTYPE_BF16:
    case CAIRN_DTYPE_C32:
        return 2;
    case CAIRN_DTYPE_F32:
    case CAIRN_DTYPE_C64:
        return 4;
    case CAIRN_DTYPE_F64:
    case CAIRN_DTYPE_C128:
        return 8;
    default:
        return 0;
    }
}

static unsigned integer_bytes(unsigned dtype) {
    switch (dtype) {
    case CAIRN_DTYPE_I8:
    case CAIRN_DTYPE_U8:
        return 1;
    case CAIRN_DTYPE_I16:
    case CAIRN_DTYPE_U16:
        return 2;
    case CAIRN_DTYPE_I32:
    case CAIRN_DTYPE_U32:
        return 4;
    case CAIRN_DTYPE_I64:
    case CAIRN_DTYPE_U64:
        return 8;
    default:
        return 0;
    }
}

static bool is_complex(unsigned dtype) {
    return dtype == CAIRN_DTYPE_C32 || dtype == CAIRN_DTYPE_C64 || dtype == CAIRN_DTYPE_C128;
}

/* Little-endian: the last byte has the sign. */
static void flip_signs(uint8_t *bytes, size_t size, unsigned width, unsigned first, unsigned step) {
    for (size_t i = (size_t)first * width; i + width <= size; i += (size_t)step * width)
        bytes[i + width - 1] ^= 0x80;
}

/* 0x80 is the only NaN, and zero has no sign. */
static void flip_fnuz(uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] & 0x7f) bytes[i] ^= 0x80;
}

bool cairn_flip(unsigned dtype, void *bytes, size_t size, unsigned parts) {
    unsigned floats = float_bytes(dtype), integers = integer_bytes(dtype);
    bool fnuz = dtype == CAIRN_DTYPE_F8_E4M3FNUZ || dtype == CAIRN_DTYPE_F8_E5M2FNUZ;
    bool two = is_complex(dtype);
    if (!parts) return true;
    if (floats && parts & CAIRN_ASSEMBLY_FLIP_REAL) flip_signs(bytes, size, floats, 0, two ? 2 : 1);
    if (two && parts & CAIRN_ASSEMBLY_FLIP_IMAGINARY) flip_signs(bytes, size, floats, 1, 2);
    if (integers) {
        for (size_t i = 0; i + integers <= size; i += integers) {
            uint64_t number = 0;
            memcpy(&number, (uint8_t *)bytes + i, integers);
            number = 0 - number;
            memcpy((uint8_t *)bytes + i, &number, integers);
        }
    }
    if (fnuz) flip_fnuz(bytes, size);
    return floats || integers || fnuz;
}

enum cairn_code cairn_assembly_flips(unsigned dtype, bool conjugated, bool negated, unsigned *ret,
                                     struct cairn_error *err) {
    *ret = 0;
    if (is_complex(dtype)) {
        if (negated) *ret = CAIRN_ASSEMBLY_FLIP_REAL;
        if (negated != conjugated) *ret |= CAIRN_ASSEMBLY_FLIP_IMAGINARY;
        return CAIRN_OK;
    }
    if (!negated) return CAIRN_OK; /* a real number is its own conjugate */
    *ret = CAIRN_ASSEMBLY_FLIP_REAL;
    if (cairn_flip(dtype, NULL, 0, *ret)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED, "a negated view of %s, which has no sign",
                      cairn_dtype_text(dtype));
}
