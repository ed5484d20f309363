/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts and names the pieces, lays out every byte, and builds the header and rank table. */
#include "client/save/arrange.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/save/save.h"
#include "client/save/split.h"
#include "formats/safetensors.h"

#define DESCRIBED_BYTES_MAX (2 * CAIRN_TABLE_BYTES_MAX)
#define CHUNK_BYTES (64 * CAIRN_KIB)

/* ---- names: a list of chunks; a text larger than a chunk gets its own ---- */

struct cairn_client_text {
    struct cairn_client_text *before;
    size_t used, capacity;
    uint64_t data[]; /* for its alignment */
};

static struct cairn_client_text *chunk_with(struct cairn_client_texts *texts, size_t bytes) {
    struct cairn_client_text *newest = texts->newest;
    if (newest && bytes <= newest->capacity - newest->used) return newest;
    size_t capacity = (size_t)cairn_max_u64(CHUNK_BYTES, bytes);
    struct cairn_client_text *made = malloc(sizeof *made + capacity);
    if (!made) return NULL;
    *made = (struct cairn_client_text){.before = newest, .capacity = capacity};
    return texts->newest = made;
}

void *cairn_client_texts_keep_bytes(struct cairn_client_texts *texts, const void *data,
                                    size_t bytes) {
    size_t room = (size_t)cairn_round_up(bytes, sizeof(uint64_t));
    struct cairn_client_text *chunk = chunk_with(texts, room);
    if (!chunk) return NULL;
    uint8_t *at = (uint8_t *)chunk->data + chunk->used;
    chunk->used += room;
    memcpy(at, data, bytes);
    return at;
}

char *cairn_client_texts_keep(struct cairn_client_texts *texts, const char *text) {
    return cairn_client_texts_keep_bytes(texts, text, strlen(text) + 1);
}

void cairn_client_texts_release(struct cairn_client_texts *texts) {
    while (texts->newest) {
        struct cairn_client_text *before = texts->newest->before;
        free(texts->newest);
        texts->newest = before;
    }
}

/* ---- arrays of pieces, kept for later saves ---- */

#define HUGE_PAGE_BYTES (2 * CAIRN_MIB)
#define KEPT_BYTES_MIN (64 * CAIRN_KIB) /* smaller ones come from the heap, without fresh pages */

/* An array that waits has its capacity in its first piece's tensor_bytes. */
static struct cairn_client_piece *_Atomic arrays[CAIRN_CLIENT_SPARES];

static struct cairn_client_piece *new_array(size_t count, size_t *ret_capacity) {
    size_t bytes = 0;
    if (cairn_mul_overflows(count, sizeof(struct cairn_client_piece), &bytes)) return NULL;
    bool large = bytes >= 2 * HUGE_PAGE_BYTES && bytes < SIZE_MAX - HUGE_PAGE_BYTES;
    if (large) bytes = (size_t)cairn_round_up(bytes, HUGE_PAGE_BYTES);
    struct cairn_client_piece *made = large ? aligned_alloc(HUGE_PAGE_BYTES, bytes) : malloc(bytes);
    if (!made) return NULL;
    if (large) (void)madvise(made, bytes, MADV_HUGEPAGE); /* else small pages serve */
    *ret_capacity = bytes / sizeof *made;
    return made;
}

struct cairn_client_piece *cairn_client_array_take(size_t count, size_t *ret_capacity) {
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES; i++) {
        struct cairn_client_piece *found = atomic_exchange(&arrays[i], NULL);
        if (!found) continue;
        if (found->tensor_bytes >= count) {
            *ret_capacity = (size_t)found->tensor_bytes;
            return found;
        }
        cairn_client_array_give(found, (size_t)found->tensor_bytes);
    }
    return new_array(count, ret_capacity);
}

void cairn_client_array_give(struct cairn_client_piece *take_array, size_t capacity) {
    if (!take_array) return;
    take_array->tensor_bytes = capacity;
    bool kept = capacity * sizeof *take_array >= KEPT_BYTES_MIN;
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES && kept && take_array; i++) {
        struct cairn_client_piece *there = NULL;
        if (atomic_compare_exchange_strong(&arrays[i], &there, take_array)) return;
    }
    free(take_array);
}

void cairn_client_array_forget(void) {
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES; i++) free(atomic_exchange(&arrays[i], NULL));
}

/* ---- known pieces, and their arrays ---- */

uint64_t cairn_client_known_number(void) {
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

void cairn_client_known_hold(struct cairn_pieces *known) {
    atomic_fetch_add(&known->users, 1);
}

void cairn_pieces_free(struct cairn_pieces *known) {
    if (!known || atomic_fetch_sub(&known->users, 1) > 1) return;
    for (size_t i = 0; i < known->count; i++) free(known->pieces[i].strided);
    for (size_t i = 0; i < known->raw_count; i++) free(known->raws[i].name);
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES; i++)
        cairn_client_array_give(known->spares[i], known->count);
    cairn_client_texts_release(&known->texts);
    struct cairn_split *const *splits = known->shares.splits;
    for (size_t i = 0; i < known->shares.count; i++) cairn_split_free(splits[i]);
    cairn_client_shares_release(&known->shares);
    free((void *)(uintptr_t)splits);
    cairn_client_array_give(known->pieces, known->count);
    free(known->raws);
    free(known);
}

void cairn_client_known_give(struct cairn_pieces *known, struct cairn_client_piece *take_pieces) {
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES && take_pieces; i++) {
        struct cairn_client_piece *none = NULL;
        if (atomic_compare_exchange_strong(&known->spares[i], &none, take_pieces)) return;
    }
    cairn_client_array_give(take_pieces, known->count);
}

struct cairn_client_piece *cairn_client_known_take(struct cairn_pieces *known) {
    for (size_t i = 0; i < CAIRN_CLIENT_SPARES; i++) {
        struct cairn_client_piece *found = atomic_exchange(&known->spares[i], NULL);
        if (found) return found;
    }
    size_t capacity = 0;
    struct cairn_client_piece *made = cairn_client_array_take(known->count + 1, &capacity);
    if (made && known->count) memcpy(made, known->pieces, known->count * sizeof *made);
    return made;
}

/* ---- known pieces made from a save ---- */

/* Takes users of the splits, because the caller may free its own. */
static bool take_shares(struct cairn_client_shares *shares, struct cairn_client_shares *ret) {
    if (!shares->count) return true;
    struct cairn_split **splits = malloc(shares->count * sizeof *splits);
    if (!splits) return false;
    for (size_t i = 0; i < shares->count; i++) {
        splits[i] = shares->splits[i];
        atomic_fetch_add(&splits[i]->users, 1);
    }
    *ret = (struct cairn_client_shares){splits, shares->count, CAIRN_TAKE(shares->seen), 0};
    return true;
}

struct cairn_pieces *cairn_client_known_of(struct cairn_save *save) {
    struct cairn_pieces *known = save->known;
    if (save->owned_count) return NULL;
    for (size_t i = 0; i < save->raw_count; i++)
        if (save->raws[i].file) return NULL;
    if (known) {
        if (save->piece_count != known->count || save->raw_count != known->raw_count) return NULL;
        cairn_client_known_hold(known);
        return known;
    }
    struct cairn_pieces *made = calloc(1, sizeof *made);
    if (!made || !take_shares(&save->shares, &made->shares)) {
        free(made);
        return NULL;
    }
    made->users = 1;
    made->number = save->number;
    made->count = save->piece_count;
    made->raw_count = save->raw_count;
    made->source_count = save->source_count;
    made->texts = save->texts;
    made->pieces = CAIRN_TAKE(save->pieces);
    made->raws = CAIRN_TAKE(save->raws);
    for (size_t i = 0; i < made->count; i++) made->pieces[i].late = false;
    save->texts = (struct cairn_client_texts){0};
    save->piece_count = save->piece_capacity = save->raw_count = save->raw_capacity = 0;
    return made;
}

/* ---- the description: one walk over pieces and raws, either recorded or compared ---- */

/* Appends to `keep`, or compares with the rest of `known`. */
struct tape {
    struct cairn_buf *keep;
    struct cairn_view known;
    bool whole; /* everything was appended, or was equal */
};

static void put(struct tape *tape, const void *data, size_t size) {
    if (!tape->whole || !size) return;
    if (tape->keep) {
        tape->whole = cairn_buf_append(tape->keep, data, size, NULL) == CAIRN_OK;
        return;
    }
    tape->whole = size <= tape->known.size && !memcmp(tape->known.data, data, size);
    if (!tape->whole) return;
    tape->known.data = (const char *)tape->known.data + size;
    tape->known.size -= size;
}

/* Includes the terminating NUL, so that texts do not run together; NULL differs from "". */
static void put_text(struct tape *tape, const char *text) {
    const char there = text != NULL;
    put(tape, &there, 1);
    if (text) put(tape, text, strlen(text) + 1);
}

static void put_piece(struct tape *tape, const struct cairn_client_piece *piece) {
    const uint32_t head[] = {piece->dtype, piece->dimension_count, (uint32_t)piece->kind,
                             (uint32_t)piece->form, (uint32_t)piece->fragment.form};
    const uint64_t sizes[] = {piece->bytes, piece->tensor_bytes, piece->file_offset};
    size_t places = piece->dimension_count ? piece->dimension_count : 1; /* FLAT has one */
    CAIRN_PROMISE(places <= CAIRN_DIMENSIONS_MAX, tape->whole = false; return );
    put_text(tape, piece->name);
    put(tape, head, sizeof head);
    put(tape, sizes, sizeof sizes);
    put(tape, piece->shape, piece->dimension_count * sizeof *piece->shape);
    put(tape, piece->fragment.start, places * sizeof *piece->fragment.start);
    put(tape, piece->fragment.count, places * sizeof *piece->fragment.count);
    put_text(tape, piece->alias_of);
    put_text(tape, piece->in_file);
}

static void put_all(struct tape *tape, const struct cairn_save *save) {
    const uint64_t counts[] = {save->piece_count, save->raw_count};
    put(tape, counts, sizeof counts);
    for (size_t i = 0; i < save->piece_count && tape->whole; i++) put_piece(tape, &save->pieces[i]);
    for (size_t i = 0; i < save->raw_count && tape->whole; i++) {
        const uint64_t raw[] = {save->raws[i].bytes, save->raws[i].file};
        put_text(tape, save->raws[i].name);
        put(tape, raw, sizeof raw);
    }
}

/* Describes the save in bytes that are equal if the layouts are; empty: too large, or no memory. */
static void describe_layout(const struct cairn_save *save, struct cairn_buf *ret) {
    struct tape tape = {.keep = ret, .whole = true};
    cairn_buf_clear(ret);
    ret->limit = DESCRIBED_BYTES_MAX;
    put_all(&tape, save);
    if (!tape.whole) cairn_buf_release(ret);
}

static bool has_layout_of(const struct cairn_save *save, struct cairn_view known) {
    struct tape tape = {.known = known, .whole = known.size > 0};
    put_all(&tape, save);
    return tape.whole && !tape.known.size;
}

void cairn_client_arrangement_release(struct cairn_client_arrangement *arrangement) {
    cairn_buf_release(&arrangement->header);
    cairn_buf_release(&arrangement->table);
    free(arrangement->shards);
    free(arrangement->runs);
    free(arrangement->sorted);
    free(arrangement->pieces);
    cairn_buf_release(&arrangement->described);
    *arrangement = (struct cairn_client_arrangement){0};
}

/* ---- groups: all pieces of one name ---- */

static int piece_order(const void *a, const void *b) {
    const struct cairn_client_piece *x = *(struct cairn_client_piece *const *)a;
    const struct cairn_client_piece *y = *(struct cairn_client_piece *const *)b;
    int order = strcmp(x->name, y->name);
    if (order) return order;
    if (x->fragment.form != y->fragment.form) return x->fragment.form < y->fragment.form ? -1 : 1;
    for (unsigned d = 0; d < CAIRN_DIMENSIONS_MAX; d++) {
        uint64_t p = x->fragment.start[d], q = y->fragment.start[d];
        if (p != q) return p < q ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool same_tensor(const struct cairn_client_piece *a, const struct cairn_client_piece *b) {
    return a->dtype == b->dtype && a->dimension_count == b->dimension_count &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0 && a->kind == b->kind;
}

static enum cairn_code sort_pieces(struct cairn_save *save, struct cairn_client_arrangement *ret,
                                   struct cairn_error *err) {
    ret->sorted = calloc(save->piece_count + 1, sizeof(struct cairn_client_piece *));
    if (!ret->sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the rank's table");
    for (size_t i = 0; i < save->piece_count; i++) ret->sorted[i] = &save->pieces[i];
    if (save->piece_count)
        qsort(ret->sorted, save->piece_count, sizeof(struct cairn_client_piece *), piece_order);
    for (size_t i = 1; i < save->piece_count; i++) {
        const struct cairn_client_piece *a = ret->sorted[i - 1], *b = ret->sorted[i];
        if (strcmp(a->name, b->name) != 0) continue;
        if (!same_tensor(a, b))
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor %s: two pieces disagree about its dtype, shape or kind",
                              a->name);
        if (a->kind == CAIRN_TENSOR_ALIAS || a->kind == CAIRN_TENSOR_REPLICATED)
            return cairn_fail(err, CAIRN_INVALID, "tensor %s is described twice", a->name);
    }
    return CAIRN_OK;
}

static size_t group_end(const struct cairn_client_arrangement *arrangement, size_t first,
                        size_t count) {
    size_t end = first + 1;
    while (end < count &&
           strcmp(arrangement->sorted[first]->name, arrangement->sorted[end]->name) == 0)
        end++;
    return end;
}

/* ---- the tensors shard ---- */

struct naming {
    struct cairn_safetensors_entry *entries;
    size_t count;
    char **made; /* names like "w@2", owned */
    size_t made_count;
};
static void naming_release_at(struct naming *naming) {
    for (size_t i = 0; i < naming->made_count; i++) free(naming->made[i]);
    free(naming->made);
    free(naming->entries);
}

static int name_order(const void *name, const void *piece) {
    return strcmp(name, (*(struct cairn_client_piece *const *)piece)->name);
}

static bool in_tensors_shard(const struct cairn_client_piece *piece) {
    return piece->kind != CAIRN_TENSOR_ALIAS && !piece->in_file &&
           (piece->bytes || !piece->tensor_bytes);
}

static bool is_placed(const struct cairn_client_arrangement *arrangement,
                      const struct cairn_client_piece *piece) {
    CAIRN_PROMISE(arrangement->placed || !piece->late, return true);
    return arrangement->placed && !piece->late;
}

/* "w", then "w@2", "w@3", ...; skips a number if the result is another tensor's name. */
static enum cairn_code name_group(const struct cairn_client_arrangement *arrangement, size_t first,
                                  size_t end, size_t count, struct naming *naming,
                                  struct cairn_error *err) {
    uint64_t number = 1;
    for (size_t i = first; i < end; i++) {
        const struct cairn_client_piece *piece = arrangement->sorted[i];
        if (!in_tensors_shard(piece) || is_placed(arrangement, piece)) continue;
        struct cairn_safetensors_entry *entry = &naming->entries[naming->count];
        *entry = (struct cairn_safetensors_entry){.name = cairn_view_of(piece->name), .tag = i};
        entry->dtype = piece->dtype;
        entry->dimension_count = piece->form == CAIRN_FLAT ? 1 : piece->dimension_count;
        memcpy(entry->shape, piece->form == CAIRN_WHOLE ? piece->shape : piece->fragment.count,
               entry->dimension_count * sizeof entry->shape[0]);
        char *made = NULL;
        while (number > 1) {
            if (asprintf(&made, "%s@%" PRIu64, piece->name, number) < 0)
                return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
            if (!bsearch(made, arrangement->sorted, count, sizeof *arrangement->sorted, name_order))
                break;
            free(made);
            number++;
        }
        if (number > 1) {
            naming->made[naming->made_count++] = made;
            entry->name = cairn_view_of(made);
        }
        naming->count++;
        number++;
    }
    return CAIRN_OK;
}

/* Appends a run to the last shard. */
static void add_run(struct cairn_client_arrangement *arrangement, const void *source,
                    uint64_t bytes, struct cairn_client_piece *piece) {
    CAIRN_PROMISE(arrangement->shard_count > 0, return );
    struct cairn_client_shard *shard = &arrangement->shards[arrangement->shard_count - 1];
    struct cairn_client_run *run = &arrangement->runs[arrangement->run_count++];
    uint64_t offset = shard->run_count++ ? run[-1].offset + run[-1].bytes : 0;
    *run = (struct cairn_client_run){source, offset, bytes, piece};
}

static enum cairn_code place_tensors(struct cairn_save *save, bool late,
                                     struct cairn_client_arrangement *ret,
                                     struct cairn_error *err) {
    __attribute__((cleanup(naming_release_at))) struct naming naming = {
        .entries = calloc(save->piece_count + 1, sizeof *naming.entries),
        .made = calloc(save->piece_count + 1, sizeof *naming.made)};
    if (!naming.entries || !naming.made)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the tensors header");
    for (size_t first = 0, end; first < save->piece_count; first = end) {
        end = group_end(ret, first, save->piece_count);
        CAIRN_TRY(name_group(ret, first, end, save->piece_count, &naming, err));
    }
    if (!naming.count) return CAIRN_OK;
    struct cairn_client_shard *shard = &ret->shards[ret->shard_count++];
    *shard = (struct cairn_client_shard){
        .name = late ? ret->more_name : ret->tensors_name,
        .tensors = true,
        .late = late,
        .offset = cairn_round_up(ret->slab_bytes, CAIRN_SAFETENSORS_ALIGN)};
    cairn_buf_clear(&ret->header);
    CAIRN_TRY(cairn_safetensors_write(naming.entries, naming.count, NULL, &ret->header,
                                      &shard->bytes, err));
    add_run(ret, ret->header.data, ret->header.size, NULL);
    for (size_t i = 0; i < naming.count; i++) {
        struct cairn_client_piece *piece = ret->sorted[naming.entries[i].tag];
        piece->fragment.offset_bytes = naming.entries[i].offset_bytes;
        piece->fragment.size_bytes = piece->bytes;
        if (piece->bytes) add_run(ret, piece->source, piece->bytes, piece);
    }
    const struct cairn_client_run *last = &ret->runs[ret->run_count - 1];
    CAIRN_PROMISE(last->offset + last->bytes == shard->bytes,
                  return cairn_fail(err, CAIRN_BROKEN, "runs that are not the whole of a shard"));
    ret->slab_bytes = shard->offset + shard->bytes;
    ret->total_bytes += shard->bytes;
    return CAIRN_OK;
}

/* ---- raw shards and files ---- */

static enum cairn_code place_raws(struct cairn_save *save, struct cairn_client_arrangement *ret,
                                  struct cairn_error *err) {
    for (size_t i = ret->placed_raws; i < save->raw_count; i++) {
        const struct cairn_client_raw *raw = &save->raws[i];
        if (cairn_add_overflows(ret->total_bytes, raw->bytes, &ret->total_bytes) ||
            ret->total_bytes > UINT64_MAX / 4)
            return cairn_fail(err, CAIRN_TOO_LARGE, "the sizes of the shards do not add up");
        if (raw->file) continue;
        struct cairn_client_shard *shard = &ret->shards[ret->shard_count++];
        *shard = (struct cairn_client_shard){
            .name = raw->name,
            .offset = cairn_round_up(ret->slab_bytes, CAIRN_SAFETENSORS_ALIGN),
            .bytes = raw->bytes,
            .first_run = ret->run_count};
        add_run(ret, raw->source, raw->bytes, NULL);
        ret->slab_bytes = shard->offset + shard->bytes;
    }
    return CAIRN_OK;
}

static int text_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool has_late_tensors(const struct cairn_save *save) {
    for (size_t i = save->piece_count; i-- > 0;)
        if (save->pieces[i].late) return true;
    return false;
}

static enum cairn_code check_names(const struct cairn_save *save,
                                   const struct cairn_client_arrangement *arrangement,
                                   struct cairn_error *err) {
    CAIRN_AUTO_HEAP const char **names = calloc(save->raw_count + 2, sizeof *names);
    if (!names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the shard names");
    size_t count = 0;
    for (; count < save->raw_count; count++) names[count] = save->raws[count].name;
    names[count++] = arrangement->tensors_name;
    if (has_late_tensors(save)) names[count++] = arrangement->more_name;
    CAIRN_AUTO(shard_names) set = {0};
    for (size_t i = 0; i < count; i++)
        CAIRN_TRY(cairn_shard_names_add(&set, cairn_view_of(names[i]), err));
    qsort(names, count, sizeof *names, text_order);
    for (size_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return cairn_fail(err, CAIRN_INVALID, "two shards are named %s", names[i]);
    return CAIRN_OK;
}

/* ---- the rank table ---- */

struct table_shards {
    uint32_t tensors, more; /* more: for late tensors */
    uint32_t *files;        /* by raw; CAIRN_CLIENT_NO_FILE: not in the table */
};

static enum cairn_code find_file(struct cairn_save *save, struct cairn_table_builder *builder,
                                 struct table_shards *shards, struct cairn_client_piece *piece,
                                 struct cairn_error *err) {
    for (size_t i = 0; i < save->raw_count; i++) {
        const struct cairn_client_raw *raw = &save->raws[i];
        if (!raw->file || strcmp(raw->name, piece->in_file) != 0) continue;
        if (piece->file_offset > raw->bytes || piece->bytes > raw->bytes - piece->file_offset)
            return cairn_fail(err, CAIRN_INVALID,
                              "bytes %" PRIu64 " + %" PRIu64 " of file %s, which has %" PRIu64,
                              piece->file_offset, piece->bytes, raw->name, raw->bytes);
        const struct cairn_table_shard row = {cairn_view_of(raw->name), raw->bytes, false};
        if (shards->files[i] == CAIRN_CLIENT_NO_FILE)
            CAIRN_TRY(cairn_table_add_shard(builder, &row, &shards->files[i], err));
        piece->fragment.shard = shards->files[i];
        piece->fragment.offset_bytes = piece->file_offset;
        piece->fragment.size_bytes = piece->bytes;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_INVALID, "no file %s was given to cairn_save_file",
                      piece->in_file);
}

static enum cairn_code add_group(struct cairn_save *save, struct cairn_table_builder *builder,
                                 struct table_shards *shards, struct cairn_client_piece **group,
                                 size_t count, struct cairn_error *err) {
    const struct cairn_client_piece *first = group[0];
    struct cairn_tensor tensor = {.name = cairn_view_of(first->name),
                                  .dtype = first->dtype,
                                  .dimension_count = first->dimension_count,
                                  .kind = first->kind};
    memcpy(tensor.shape, first->shape, sizeof tensor.shape);
    if (first->alias_of) tensor.alias_of = cairn_view_of(first->alias_of);
    CAIRN_AUTO_HEAP struct cairn_fragment *fragments = calloc(count, sizeof *fragments);
    if (!fragments) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the fragments");
    size_t held = 0;
    for (size_t i = 0; i < count; i++) {
        struct cairn_client_piece *piece = group[i];
        if (!piece->bytes) continue;
        if (piece->in_file)
            CAIRN_TRY(find_file(save, builder, shards, piece, err));
        else
            piece->fragment.shard = piece->late ? shards->more : shards->tensors;
        fragments[held++] = piece->fragment;
    }
    return cairn_table_add_tensor(builder, &tensor, fragments, held, err);
}

static enum cairn_code build_table(struct cairn_save *save, uint32_t rank,
                                   struct cairn_client_arrangement *ret, struct cairn_error *err) {
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    CAIRN_AUTO_HEAP uint32_t *files = malloc((save->raw_count + 1) * sizeof *files);
    struct table_shards shards = {.files = files};
    if (!save->piece_count) return CAIRN_OK;
    if (!files) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the table");
    for (size_t i = 0; i < save->raw_count; i++) files[i] = CAIRN_CLIENT_NO_FILE;
    CAIRN_TRY(cairn_table_builder_new(rank, &builder, err));
    for (size_t i = 0; i < ret->shard_count; i++) {
        const struct cairn_client_shard *shard = &ret->shards[i];
        const struct cairn_table_shard row = {cairn_view_of(shard->name), shard->bytes, true};
        if (!shard->tensors) continue;
        CAIRN_TRY(cairn_table_add_shard(builder, &row, shard->late ? &shards.more : &shards.tensors,
                                        err));
    }
    for (size_t first = 0, end; first < save->piece_count; first = end) {
        end = group_end(ret, first, save->piece_count);
        enum cairn_code code =
            add_group(save, builder, &shards, ret->sorted + first, end - first, err);
        if (code) return cairn_within(err, code, "tensor %s", ret->sorted[first]->name);
    }
    cairn_buf_clear(&ret->table);
    ret->table.limit = CAIRN_TABLE_BYTES_MAX;
    return cairn_table_finish(builder, &ret->table, err);
}

/* ---- reuse by later saves ---- */

/* Reuses the layout; only the sources are new. */
static void bind(struct cairn_save *save, struct cairn_client_arrangement *arrangement) {
    size_t raw = 0;
    for (size_t i = 0; i < arrangement->shard_count; i++) {
        struct cairn_client_shard *shard = &arrangement->shards[i];
        struct cairn_client_run *runs = arrangement->runs + shard->first_run;
        if (shard->tensors) {
            shard->name = arrangement->tensors_name;
            continue;
        }
        while (save->raws[raw].file) raw++;
        shard->name = save->raws[raw].name;
        runs->source = save->raws[raw++].source;
    }
    for (size_t i = 0; i < arrangement->run_count; i++) {
        struct cairn_client_run *run = &arrangement->runs[i];
        if (arrangement->pieces[i] == CAIRN_CLIENT_NO_PIECE) continue;
        run->piece = &save->pieces[arrangement->pieces[i]];
        run->source = run->piece->source;
        run->piece->fragment.offset_bytes = run->offset;
        run->piece->fragment.size_bytes = run->bytes;
        CAIRN_PROMISE(run->bytes == run->piece->bytes, return );
    }
}

/* Keeps the description for the next save; not without memory, nor with late tensors, whose save
 * was arranged twice. The next save is then arranged anew. */
static void remember(const struct cairn_save *save, bool late,
                     struct cairn_client_arrangement *arrangement) {
    arrangement->told_epoch = 0; /* the table changed */
    cairn_buf_clear(&arrangement->described);
    free(arrangement->pieces);
    arrangement->pieces =
        late ? NULL : calloc(arrangement->run_count + 1, sizeof *arrangement->pieces);
    if (!arrangement->pieces) return;
    for (size_t i = 0; i < arrangement->run_count; i++) {
        const struct cairn_client_piece *piece = arrangement->runs[i].piece;
        arrangement->pieces[i] = piece ? (uint32_t)(piece - save->pieces) : CAIRN_CLIENT_NO_PIECE;
    }
    describe_layout(save, &arrangement->described);
}

void cairn_client_arrangement_take(struct cairn_session *session,
                                   struct cairn_client_arrangement *ret) {
    cairn_lock_take(&session->lock);
    struct cairn_client_arrangement *kept = CAIRN_TAKE(session->saves->kept);
    cairn_lock_give(&session->lock);
    *ret = kept ? *kept : (struct cairn_client_arrangement){0};
    free(kept);
}

void cairn_client_arrangement_keep(struct cairn_session *session,
                                   struct cairn_client_arrangement *take_arrangement) {
    struct cairn_client_arrangement *kept =
        take_arrangement->described.size ? malloc(sizeof *kept) : NULL;
    struct cairn_client_arrangement *other = NULL; /* from a save that another thread staged */
    if (kept) {
        *kept = *take_arrangement;
        kept->placed = false;
        *take_arrangement = (struct cairn_client_arrangement){0};
        cairn_lock_take(&session->lock);
        other = session->saves->kept;
        session->saves->kept = kept;
        cairn_lock_give(&session->lock);
    }
    if (other) cairn_client_arrangement_release(other);
    free(other);
    cairn_client_arrangement_release(take_arrangement);
}

/* Makes room for further shards; placed shards stay. */
static enum cairn_code make_room(const struct cairn_save *save,
                                 struct cairn_client_arrangement *arrangement,
                                 struct cairn_error *err) {
    size_t shard_room = arrangement->shard_count + save->raw_count + 1;
    size_t run_room = save->piece_count + save->raw_count + 1;
    struct cairn_client_shard *shards =
        realloc(arrangement->shards, shard_room * sizeof *arrangement->shards);
    if (shards) arrangement->shards = shards;
    free(arrangement->runs);
    arrangement->runs = calloc(run_room, sizeof *arrangement->runs);
    arrangement->run_count = 0;
    if (shards && arrangement->runs) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the rank's shards");
}

static enum cairn_code arrange(struct cairn_save *save, uint32_t rank,
                               struct cairn_client_arrangement *arrangement,
                               struct cairn_error *err) {
    bool late = arrangement->placed;
    snprintf(arrangement->tensors_name, sizeof arrangement->tensors_name,
             "rank-%05" PRIu32 ".safetensors", rank);
    snprintf(arrangement->more_name, sizeof arrangement->more_name,
             "rank-%05" PRIu32 ".more.safetensors", rank);
    CAIRN_TRY(make_room(save, arrangement, err));
    CAIRN_TRY(check_names(save, arrangement, err));
    CAIRN_TRY(sort_pieces(save, arrangement, err));
    CAIRN_TRY(place_tensors(save, late, arrangement, err));
    CAIRN_TRY(place_raws(save, arrangement, err));
    CAIRN_TRY(build_table(save, rank, arrangement, err));
    CAIRN_PROMISE(arrangement->run_count <= save->piece_count + save->raw_count + 1,
                  return cairn_fail(err, CAIRN_BROKEN, "more runs than pieces"));
    free(arrangement->sorted);
    arrangement->sorted = NULL;
    remember(save, late, arrangement);
    return CAIRN_OK;
}

enum cairn_code cairn_client_arrange(struct cairn_save *save, uint32_t rank,
                                     struct cairn_client_arrangement *in_arrangement,
                                     struct cairn_error *err) {
    bool first = !in_arrangement->placed;
    struct cairn_view before = cairn_buf_view(&in_arrangement->described);
    const struct cairn_pieces *known_pieces = save->known;
    bool alone = known_pieces && save->piece_count == known_pieces->count &&
                 save->raw_count == known_pieces->raw_count;
    uint64_t number = alone ? known_pieces->number : save->number;
    bool same = before.size && in_arrangement->number == number;
    bool known = first && (same || has_layout_of(save, before));
    if (first && !known) cairn_client_arrangement_release(in_arrangement);
    enum cairn_code code = known ? CAIRN_OK : arrange(save, rank, in_arrangement, err);
    if (code) { /* a partial arrangement is useless, also for the next save */
        cairn_client_arrangement_release(in_arrangement);
        return code;
    }
    if (known) bind(save, in_arrangement);
    in_arrangement->number = number;
    in_arrangement->placed = true;
    in_arrangement->placed_raws = save->raw_count;
    return CAIRN_OK;
}
