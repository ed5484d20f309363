/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items are sorted by name. SLICE lays them end to end and cuts this line by the weights; LAYER and
 * TENSOR assign units, largest first, to the member with the least load relative to its weight.
 */
#include "plan/split.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/documents/names.h"
#include "api/table/dtype.h"
#include "common/buf.h"

#define BYTES_MAX (UINT64_C(1) << 62)
/* Half a block in whole bytes and whole elements: four six-bit elements take three bytes. */
#define STEP_BYTES (CAIRN_PLAN_SPLIT_BLOCK_BYTES / 2)
#define STEP_BYTES_OF_SIX_BITS 1536
#define LANES 4

__extension__ typedef unsigned __int128 wide;

struct row { /* an item, in order of names */
    uint32_t item;
    uint64_t elements, bytes;
};
struct unit { /* rows assigned to one member */
    uint32_t first, end;
    uint64_t bytes;
};
struct splitting {
    const struct cairn_plan_group *group;
    struct row *rows;   /* owned */
    struct unit *units; /* owned; NULL: SLICE */
    uint32_t *heap;     /* owned: members; the root gets the next unit */
    uint32_t *owners;   /* owned: each row's member */
    size_t unit_count, heap_count;
    uint64_t total, total_weight;
    size_t capacity;
    struct cairn_plan_split *ret;
    struct cairn_error *err;
};

static void cairn_splitting_release(struct splitting *splitting) {
    free(splitting->rows);
    free(splitting->units);
    free(splitting->heap);
    free(splitting->owners);
}

void cairn_plan_split_release(struct cairn_plan_split *split) {
    free(split->shares);
    free(split->first);
    free(split->bytes);
    *split = (struct cairn_plan_split){0};
}

static uint64_t weight_of(const struct cairn_plan_group *group, uint32_t member) {
    if (group->by == CAIRN_PLAN_SPLIT_FIRST) return member == 0;
    return group->weights ? group->weights[member] : 1;
}

static const struct cairn_plan_split_item *item_of(const struct splitting *splitting, size_t row) {
    return &splitting->group->items[splitting->rows[row].item];
}

/* ---- items ---- */

static enum cairn_code region_elements(const struct cairn_plan_split_item *item,
                                       uint64_t *ret_elements, struct cairn_error *err) {
    uint64_t all, bytes, elements = 1;
    if (!cairn_tensor_size(item->dtype, item->dimension_count, item->shape, &all, &bytes))
        return cairn_fail(err, CAIRN_INVALID, "tensor \"%.*s\": no such dtype, or too large",
                          CAIRN_PLAN_SHOWN(item->name));
    *ret_elements = all;
    if (item->form == CAIRN_PLAN_WHOLE) return CAIRN_OK;
    bool flat = item->form == CAIRN_PLAN_FLAT;
    for (unsigned d = 0; d < (flat ? 1 : item->dimension_count); d++) {
        uint64_t extent = flat ? all : item->shape[d];
        if (item->start[d] > extent || item->count[d] > extent - item->start[d])
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor \"%.*s\": %" PRIu64 " elements from %" PRIu64
                              " on are not in the %" PRIu64 " that there are",
                              CAIRN_PLAN_SHOWN(item->name), item->count[d], item->start[d], extent);
        elements *= item->count[d];
    }
    *ret_elements = elements;
    return CAIRN_OK;
}

static int by_name(const void *a, const void *b, void *items) {
    const struct cairn_plan_split_item *all = items;
    const struct row *left = a, *right = b;
    return cairn_view_compare(all[left->item].name, all[right->item].name);
}

static enum cairn_code make_rows(struct splitting *splitting) {
    const struct cairn_plan_group *group = splitting->group;
    for (size_t i = 0; i < group->item_count; i++) {
        struct row *row = &splitting->rows[i];
        row->item = (uint32_t)i;
        CAIRN_TRY(region_elements(&group->items[i], &row->elements, splitting->err));
        uint64_t bits = row->elements * cairn_dtype_bits(group->items[i].dtype);
        if (bits % 8)
            return cairn_fail(splitting->err, CAIRN_INVALID,
                              "tensor \"%.*s\": its part does not fill whole bytes",
                              CAIRN_PLAN_SHOWN(group->items[i].name));
        row->bytes = bits / 8;
        if (cairn_add_overflows(splitting->total, row->bytes, &splitting->total) ||
            splitting->total > BYTES_MAX)
            return cairn_fail(splitting->err, CAIRN_INVALID,
                              "the group holds more than 2^62 bytes");
    }
    qsort_r(splitting->rows, group->item_count, sizeof *splitting->rows, by_name,
            (void *)(uintptr_t)group->items);
    for (size_t i = 1; i < group->item_count; i++)
        if (!cairn_view_compare(item_of(splitting, i - 1)->name, item_of(splitting, i)->name))
            return cairn_fail(splitting->err, CAIRN_INVALID,
                              "tensor \"%.*s\" is listed twice in the group",
                              CAIRN_PLAN_SHOWN(item_of(splitting, i)->name));
    return CAIRN_OK;
}

/* ---- the digest ---- */

struct digester {
    uint64_t lanes[LANES];
};

static uint64_t mix(uint64_t x) { /* the finaliser of MurmurHash3 */
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static void take_number(struct digester *digester, uint64_t number) {
    for (unsigned i = 0; i < LANES; i++)
        digester->lanes[i] =
            mix(digester->lanes[i] + number + (i + 1) * UINT64_C(0x9e3779b97f4a7c15)) * (2 * i + 3);
}

static void take_view(struct digester *digester, struct cairn_view view) {
    const uint8_t *bytes = view.data;
    take_number(digester, view.size);
    for (size_t i = 0; i < view.size; i += 8) {
        uint64_t word = 0;
        for (size_t k = i; k < view.size && k < i + 8; k++) word = word << 8 | bytes[k];
        take_number(digester, word);
    }
}

static void take_item(struct digester *digester, const struct cairn_plan_split_item *item) {
    take_view(digester, item->name);
    take_number(digester, (uint64_t)item->dtype << 32 | item->dimension_count << 8 | item->form);
    for (unsigned d = 0; d < item->dimension_count; d++) take_number(digester, item->shape[d]);
    unsigned numbers = item->form == CAIRN_PLAN_WHOLE  ? 0
                       : item->form == CAIRN_PLAN_FLAT ? 1
                                                       : item->dimension_count;
    for (unsigned d = 0; d < numbers; d++) {
        take_number(digester, item->start[d]);
        take_number(digester, item->count[d]);
    }
}

struct candidate {
    uint64_t order; /* derived from the name only */
    size_t row;
    uint64_t digest;
};

/* Keeps the CAIRN_PLAN_SPLIT_MARKS candidates of lowest order, in row order. */
static void take_candidate(struct candidate *kept, size_t *count, struct candidate next) {
    size_t worst = 0;
    if (*count == CAIRN_PLAN_SPLIT_MARKS) {
        for (size_t i = 1; i < *count; i++)
            if (kept[i].order > kept[worst].order) worst = i;
        if (next.order >= kept[worst].order) return;
        memmove(&kept[worst], &kept[worst + 1], (*count - worst - 1) * sizeof *kept);
        (*count)--;
    }
    kept[(*count)++] = next;
}

static void digest(const struct splitting *splitting) {
    const struct cairn_plan_group *group = splitting->group;
    struct cairn_plan_split *ret = splitting->ret;
    struct candidate kept[CAIRN_PLAN_SPLIT_MARKS];
    struct digester how = {{1, 2, 3, 4}}, items = {{5, 6, 7, 8}};
    size_t count = 0;
    take_number(&how, group->by);
    take_number(&how, group->members);
    for (uint32_t m = 0; m < group->members; m++) take_number(&how, weight_of(group, m));
    ret->how = how.lanes[0];
    for (size_t row = 0; row < group->item_count; row++) {
        struct digester name = {{9, 10, 11, 12}};
        take_view(&name, item_of(splitting, row)->name);
        take_item(&items, item_of(splitting, row));
        take_candidate(kept, &count, (struct candidate){name.lanes[0], row, items.lanes[0]});
    }
    for (size_t i = 0; i < count; i++)
        ret->marks[i] = (struct cairn_plan_mark){splitting->rows[kept[i].row].item, kept[i].digest};
    ret->mark_count = (uint32_t)count;
    for (unsigned i = 0; i < LANES; i++) take_number(&how, items.lanes[i]);
    for (unsigned i = 0; i < sizeof ret->digest; i++)
        ret->digest[i] = (uint8_t)(how.lanes[i / 8] >> i % 8 * 8);
}

uint32_t cairn_plan_split_part(uint32_t from, uint32_t to) {
    CAIRN_PROMISE(from < to, return 1);
    return (to - from + CAIRN_PLAN_SPLIT_PARTS - 1) / CAIRN_PLAN_SPLIT_PARTS;
}

unsigned cairn_plan_split_look(const struct cairn_plan_split_list *list, uint32_t from, uint32_t to,
                               uint64_t ret[CAIRN_PLAN_SPLIT_PARTS]) {
    struct digester items = {{13, 14, 15, 16}};
    uint32_t part = cairn_plan_split_part(from, to);
    unsigned count = 0;
    for (uint64_t begin = from; begin < to; begin += part) {
        uint64_t end = cairn_min_u64(cairn_min_u64(begin + part, to), list->count);
        for (uint64_t place = begin; place < end; place++) {
            struct cairn_plan_split_item item = list->at(list->owner, (size_t)place);
            take_item(&items, &item);
        }
        ret[count++] = items.lanes[0];
    }
    return count;
}

/* ---- shares ---- */

static enum cairn_code put_share(struct splitting *splitting, uint32_t member, size_t row,
                                 uint64_t from_byte, uint64_t to_byte) {
    struct cairn_plan_split *ret = splitting->ret;
    const struct row *of = &splitting->rows[row];
    uint64_t bits = cairn_dtype_bits(item_of(splitting, row)->dtype);
    uint32_t count = ret->first[member + 1];
    CAIRN_TRY(CAIRN_ARRAY_ROOM(ret->shares, count, splitting->capacity,
                               CAIRN_PLAN_SPLIT_ITEMS_MAX + CAIRN_PLAN_SPLIT_MEMBERS_MAX,
                               "shares of a group", splitting->err));
    ret->shares[count] =
        (struct cairn_plan_share){of->item, (uint64_t)((wide)from_byte * 8 / bits),
                                  (uint64_t)((wide)(to_byte - from_byte) * 8 / bits)};
    ret->first[member + 1]++;
    ret->bytes[member] += to_byte - from_byte;
    return CAIRN_OK;
}

/* The cut nearest to `ideal` on the line of all items: at most half a block away. */
static uint64_t cut_near(const struct splitting *splitting, size_t row, uint64_t row_begin,
                         uint64_t ideal) {
    const struct row *of = &splitting->rows[row];
    const struct cairn_plan_split_item *item = item_of(splitting, row);
    unsigned bits = cairn_dtype_bits(item->dtype);
    uint64_t step = bits == 6 ? STEP_BYTES_OF_SIX_BITS : STEP_BYTES, within = ideal - row_begin;
    /* A slice of a box may begin inside one of its rows, and so inside a byte. */
    if (bits < 8 && item->form == CAIRN_PLAN_BOX) step = of->bytes;
    if (!step) return row_begin;
    uint64_t below = within / step * step, above = cairn_min_u64(below + step, of->bytes);
    return row_begin + (within - below <= above - within ? below : above);
}

/* Position up to which the line of all items is assigned. */
struct line {
    size_t row;
    uint64_t row_begin, at;
};

/* Assigns the line up to `ideal`, or to its end, to the member. */
static enum cairn_code fill(struct splitting *splitting, uint32_t member, uint64_t ideal,
                            struct line *line) {
    bool last = ideal == splitting->total;
    for (; line->row < splitting->group->item_count && (last || ideal > line->row_begin);
         line->row++) {
        uint64_t bytes = splitting->rows[line->row].bytes, row_end = line->row_begin + bytes;
        uint64_t end =
            ideal >= row_end ? row_end : cut_near(splitting, line->row, line->row_begin, ideal);
        if (end > line->at || !bytes)
            CAIRN_TRY(put_share(splitting, member, line->row, line->at - line->row_begin,
                                end - line->row_begin));
        line->at = end;
        if (end < row_end) return CAIRN_OK;
        line->row_begin = row_end;
    }
    return CAIRN_OK;
}

static enum cairn_code slice(struct splitting *splitting) {
    const struct cairn_plan_group *group = splitting->group;
    struct line line = {0};
    uint64_t weight = 0;
    for (uint32_t m = 0; m < group->members; m++) {
        splitting->ret->first[m + 1] = splitting->ret->first[m];
        if (!weight_of(group, m)) continue;
        weight += weight_of(group, m);
        uint64_t ideal = (uint64_t)((wide)splitting->total * weight / splitting->total_weight);
        CAIRN_TRY(fill(splitting, m, ideal, &line));
    }
    return CAIRN_OK;
}

/* ---- assigning units to members ---- */

/* The name up to its first all-digit component, else up to its last dot. */
static struct cairn_view layer_of(struct cairn_view name) {
    const char *text = name.data;
    size_t begin = 0, last = 0;
    for (size_t i = 0; i <= name.size; i++) {
        if (i < name.size && text[i] != '.') continue;
        bool digits = i > begin;
        for (size_t k = begin; k < i; k++) digits = digits && text[k] >= '0' && text[k] <= '9';
        if (digits) return (struct cairn_view){text, i};
        if (i < name.size) last = i;
        begin = i + 1;
    }
    return (struct cairn_view){text, last ? last : name.size};
}

static int by_size(const void *a, const void *b) {
    const struct unit *left = a, *right = b;
    if (left->bytes != right->bytes) return left->bytes > right->bytes ? -1 : 1;
    return left->first < right->first ? -1 : 1;
}

/* True: member a gets the next unit before member b. */
static bool comes_before(const struct splitting *splitting, uint32_t a, uint32_t b) {
    wide left = (wide)splitting->ret->bytes[a] * weight_of(splitting->group, b);
    wide right = (wide)splitting->ret->bytes[b] * weight_of(splitting->group, a);
    return left != right ? left < right : a < b;
}

static void sift_down(struct splitting *splitting, size_t at) {
    uint32_t *heap = splitting->heap;
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < splitting->heap_count;
             child++)
            if (comes_before(splitting, heap[child], heap[least])) least = child;
        if (least == at) return;
        uint32_t moved = heap[at];
        heap[at] = heap[least];
        heap[least] = moved;
        at = least;
    }
}

static enum cairn_code give_units(struct splitting *splitting) {
    const struct cairn_plan_group *group = splitting->group;
    struct cairn_plan_split *ret = splitting->ret;
    struct cairn_view before = {0};
    for (uint32_t row = 0; row < group->item_count; row++) {
        struct cairn_view name = item_of(splitting, row)->name;
        struct cairn_view of = group->by == CAIRN_PLAN_SPLIT_LAYER ? layer_of(name) : name;
        if (!row || cairn_view_compare(before, of))
            splitting->units[splitting->unit_count++] = (struct unit){.first = row};
        struct unit *unit = &splitting->units[splitting->unit_count - 1];
        unit->end = row + 1;
        unit->bytes += splitting->rows[row].bytes;
        before = of;
    }
    qsort(splitting->units, splitting->unit_count, sizeof *splitting->units, by_size);
    for (uint32_t m = 0; m < group->members; m++) /* ascending indexes form a heap */
        if (weight_of(group, m)) splitting->heap[splitting->heap_count++] = m;
    for (size_t u = 0; u < splitting->unit_count; u++) {
        const struct unit *unit = &splitting->units[u];
        for (uint32_t row = unit->first; row < unit->end; row++)
            splitting->owners[row] = splitting->heap[0];
        ret->bytes[splitting->heap[0]] += unit->bytes;
        sift_down(splitting, 0);
    }
    /* Counts, then fills in order of names. */
    for (size_t row = 0; row < group->item_count; row++) ret->first[splitting->owners[row] + 1]++;
    for (uint32_t m = 0; m < group->members; m++) ret->first[m + 1] += ret->first[m];
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(ret->shares, 0, group->item_count, splitting->capacity,
                                   CAIRN_PLAN_SPLIT_ITEMS_MAX, "shares of a group",
                                   splitting->err));
    for (size_t row = group->item_count; row-- > 0;) {
        const struct row *of = &splitting->rows[row];
        uint32_t place = --ret->first[splitting->owners[row] + 1];
        ret->shares[place] = (struct cairn_plan_share){of->item, 0, of->elements};
    }
    for (uint32_t m = 0; m < group->members; m++) ret->first[m] = ret->first[m + 1];
    ret->first[group->members] = (uint32_t)group->item_count;
    return CAIRN_OK;
}

/* ---- the call ---- */

static enum cairn_code check_group(struct splitting *splitting) {
    const struct cairn_plan_group *group = splitting->group;
    if (!group->members || group->members > CAIRN_PLAN_SPLIT_MEMBERS_MAX)
        return cairn_fail(splitting->err, CAIRN_INVALID, "a group has 1 to %u members, not %u",
                          CAIRN_PLAN_SPLIT_MEMBERS_MAX, group->members);
    if (group->item_count > CAIRN_PLAN_SPLIT_ITEMS_MAX)
        return cairn_fail(splitting->err, CAIRN_INVALID, "a group has at most %u tensors, not %zu",
                          CAIRN_PLAN_SPLIT_ITEMS_MAX, group->item_count);
    if (group->by > CAIRN_PLAN_SPLIT_SLICE)
        return cairn_fail(splitting->err, CAIRN_INVALID, "no way to split has the number %d",
                          (int)group->by);
    for (uint32_t m = 0; m < group->members; m++) splitting->total_weight += weight_of(group, m);
    if (!splitting->total_weight)
        return cairn_fail(splitting->err, CAIRN_INVALID,
                          "the weights of all %u members are 0: nobody would save anything",
                          group->members);
    return CAIRN_OK;
}

static enum cairn_code make_room(struct splitting *splitting) {
    const struct cairn_plan_group *group = splitting->group;
    struct cairn_plan_split *ret = splitting->ret;
    bool units = group->by != CAIRN_PLAN_SPLIT_SLICE;
    splitting->rows = calloc(group->item_count + 1, sizeof *splitting->rows);
    ret->first = calloc((size_t)group->members + 1, sizeof *ret->first);
    ret->bytes = calloc(group->members, sizeof *ret->bytes);
    if (units) {
        splitting->units = calloc(group->item_count + 1, sizeof *splitting->units);
        splitting->owners = calloc(group->item_count + 1, sizeof *splitting->owners);
        splitting->heap = calloc(group->members, sizeof *splitting->heap);
    }
    bool missing = units && (!splitting->units || !splitting->owners || !splitting->heap);
    if (!splitting->rows || !ret->first || !ret->bytes || missing)
        return cairn_fail(splitting->err, CAIRN_NO_MEMORY, "no memory to split %zu tensors",
                          group->item_count);
    return CAIRN_OK;
}

enum cairn_code cairn_plan_split(const struct cairn_plan_group *group, struct cairn_plan_split *ret,
                                 struct cairn_error *err) {
    __attribute__((cleanup(cairn_splitting_release))) struct splitting splitting = {
        .group = group, .ret = ret, .err = err};
    *ret = (struct cairn_plan_split){.members = group->members};
    enum cairn_code code = check_group(&splitting);
    if (!code) code = make_room(&splitting);
    if (!code) code = make_rows(&splitting);
    if (!code) {
        digest(&splitting);
        code = group->by == CAIRN_PLAN_SPLIT_SLICE ? slice(&splitting) : give_units(&splitting);
    }
    if (code) cairn_plan_split_release(ret);
    return code;
}

unsigned cairn_plan_share_fragments(const struct cairn_plan_split_item *item,
                                    const struct cairn_plan_share *share,
                                    struct cairn_fragment ret[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX]) {
    struct cairn_plan_box boxes[CAIRN_PLAN_SPLIT_MAX];
    if (!share->count) return 0;
    if (item->form != CAIRN_PLAN_BOX || !item->dimension_count) {
        uint64_t base = item->form == CAIRN_PLAN_FLAT ? item->start[0] : 0;
        ret[0] = (struct cairn_fragment){.form = CAIRN_FRAGMENT_FLAT};
        ret[0].start[0] = base + share->start;
        ret[0].count[0] = share->count;
        return 1;
    }
    unsigned count = cairn_plan_flat_split(item->count, item->dimension_count, share->start,
                                           share->start + share->count, boxes);
    for (unsigned i = 0; i < count; i++) {
        ret[i] = (struct cairn_fragment){.form = CAIRN_FRAGMENT_BOX};
        for (unsigned d = 0; d < item->dimension_count; d++) {
            ret[i].start[d] = item->start[d] + boxes[i].low[d];
            ret[i].count[d] = boxes[i].high[d] - boxes[i].low[d];
        }
    }
    return count;
}
