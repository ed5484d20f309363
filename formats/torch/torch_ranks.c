/* SPDX-License-Identifier: Apache-2.0 */
/* Places of DTensors' and ShardedTensors' pieces, and the files of all ranks. */
#include "formats/torch/torch_ranks.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"

struct sharded {
    unsigned dtype, dimension_count; /* of the whole */
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    cairn_pickle_ref members; /* a DTensor's dict, a ShardedTensor's list of pieces */
    bool listed;              /* a ShardedTensor */
    uint32_t count;           /* of pieces */
};

#define MESH_DIMENSIONS_MAX 8

/* A mesh of ranks, and the place of the file's rank. */
struct mesh {
    unsigned count;
    uint64_t size[MESH_DIMENSIONS_MAX], place[MESH_DIMENSIONS_MAX];
    bool outside; /* the rank is not in the mesh */
};
/* The mesh dimensions that cut each dimension of the tensor, in order. */
struct cuts {
    unsigned count[CAIRN_DIMENSIONS_MAX];
    unsigned order[CAIRN_DIMENSIONS_MAX][MESH_DIMENSIONS_MAX]; /* dimensions of the mesh */
    bool elsewhere; /* an earlier rank has the same piece */
};

static const struct cairn_pickle_value *value_at(const struct cairn_torch *file,
                                                 cairn_pickle_ref ref) {
    return cairn_pickle_at(&file->values, ref);
}

static bool is_list(const struct cairn_pickle_value *value) {
    return value->kind == CAIRN_PICKLE_TUPLE || value->kind == CAIRN_PICKLE_LIST;
}

/* An item of a tuple or list; false: too short. */
static bool item_at(const struct cairn_torch *file, cairn_pickle_ref of, uint32_t index,
                    cairn_pickle_ref *ret) {
    const struct cairn_pickle_value *list = value_at(file, of);
    if (!is_list(list) || index >= list->count) return false;
    *ret = list->items[index];
    return true;
}

static bool number_of(const struct cairn_torch *file, cairn_pickle_ref ref, int64_t *ret) {
    const struct cairn_pickle_value *value = value_at(file, ref);
    *ret = value->kind == CAIRN_PICKLE_INTEGER ? value->integer : -1;
    return value->kind == CAIRN_PICKLE_INTEGER;
}

/* A state is a dict, or for a class with slots a dict and the slots. */
static bool in_state(const struct cairn_torch *file, cairn_pickle_ref state, const char *name,
                     cairn_pickle_ref *ret) {
    cairn_pickle_ref part;
    for (uint32_t i = 0; i < 2; i++)
        if (item_at(file, state, i, &part) && value_at(file, part)->kind == CAIRN_PICKLE_DICT &&
            cairn_pickle_find(&file->values, part, name, ret))
            return true;
    return value_at(file, state)->kind == CAIRN_PICKLE_DICT &&
           cairn_pickle_find(&file->values, state, name, ret);
}

static bool member(const struct cairn_torch *file, cairn_pickle_ref of, const char *name,
                   cairn_pickle_ref *ret) {
    const struct cairn_pickle_value *object = value_at(file, of);
    return object->kind == CAIRN_PICKLE_OBJECT && in_state(file, object->state, name, ret);
}

/* True for an instance of a class of this name in any module. */
static bool is_class(const struct cairn_torch *file, cairn_pickle_ref of, const char *name) {
    char text[CAIRN_TORCH_CLASS_BYTES];
    if (value_at(file, of)->kind != CAIRN_PICKLE_OBJECT) return false;
    cairn_torch_class_text(&file->values, of, text);
    const char *dot = strrchr(text, '.');
    return strcmp(dot ? dot + 1 : text, name) == 0;
}

#define WRAPPERS_MAX 8 /* nested parameters */
/* Class, arguments and state of a _rebuild_from_type_v2 call, also within parameters. */
static bool find_wrapper(const struct cairn_torch *file, cairn_pickle_ref ref,
                         cairn_pickle_ref *ret_class, cairn_pickle_ref *ret_arguments,
                         cairn_pickle_ref *ret_state) {
    const struct cairn_pickle_value *object = value_at(file, ref);
    const struct cairn_torch_name *maker = cairn_torch_maker(&file->values, object);
    for (int i = 0; i < WRAPPERS_MAX && maker && maker->meaning == CAIRN_TORCH_PARAMETER; i++) {
        if (!item_at(file, object->arguments, 0, &ref)) return false;
        object = value_at(file, ref);
        maker = cairn_torch_maker(&file->values, object);
    }
    return maker && maker->meaning == CAIRN_TORCH_FROM_TYPE &&
           item_at(file, object->arguments, 1, ret_class) &&
           item_at(file, object->arguments, 2, ret_arguments) &&
           item_at(file, object->arguments, 3, ret_state);
}

bool cairn_torch_is_sharded(const struct cairn_torch *file, cairn_pickle_ref ref) {
    cairn_pickle_ref class, arguments, state;
    if (!find_wrapper(file, ref, &class, &arguments, &state)) return false;
    const struct cairn_torch_name *name = cairn_torch_name_of(&file->values, class);
    return name && name->meaning == CAIRN_TORCH_SHARDED;
}

static enum cairn_code read_sharded(const struct cairn_torch *file, cairn_pickle_ref ref,
                                    struct sharded *ret, struct cairn_error *err) {
    cairn_pickle_ref class, arguments, state, dtype, sizes;
    *ret = (struct sharded){.count = 1};
    if (!find_wrapper(file, ref, &class, &arguments, &state) ||
        !item_at(file, arguments, 1, &dtype) || !item_at(file, arguments, 2, &sizes))
        return cairn_fail(err, CAIRN_INVALID, "not a tensor of several ranks");
    const struct cairn_torch_name *type = cairn_torch_name_of(&file->values, dtype);
    if (!type || type->meaning != CAIRN_TORCH_DTYPE)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "its element type is not known");
    ret->dtype = type->dtype;
    ret->members = state;
    CAIRN_TRY(cairn_torch_sizes(file, sizes, ret->shape, &ret->dimension_count, err));
    ret->listed = strcmp(cairn_torch_name_of(&file->values, class)->name, "ShardedTensor") == 0;
    if (!ret->listed) return CAIRN_OK;
    if (!item_at(file, state, 0, &ret->members) || !is_list(value_at(file, ret->members)))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a ShardedTensor without a list of its pieces");
    ret->count = value_at(file, ret->members)->count;
    return CAIRN_OK;
}

/* The number of places in a nested tuple of sizes. */
static bool mesh_size(const struct cairn_torch *file, cairn_pickle_ref ref, unsigned depth,
                      uint64_t *ret) {
    int64_t number;
    if (number_of(file, ref, &number)) {
        *ret = (uint64_t)number;
        return number > 0;
    }
    *ret = 1;
    if (depth > 4 || !is_list(value_at(file, ref))) return false;
    for (uint32_t i = 0; i < value_at(file, ref)->count; i++) {
        uint64_t part;
        if (!mesh_size(file, value_at(file, ref)->items[i], depth + 1, &part) ||
            cairn_mul_overflows(*ret, part, ret))
            return false;
    }
    return true;
}

/* Reads _layout: one size per dimension, or an object per dimension. */
static bool read_layout(const struct cairn_torch *file, cairn_pickle_ref layout, struct mesh *ret) {
    cairn_pickle_ref list, at, size;
    bool axes = member(file, layout, "axes", &list);
    if (!axes && !member(file, layout, "shape", &list)) return false;
    if (!axes && !is_list(value_at(file, list))) { /* one dimension */
        ret->count = 1;
        return mesh_size(file, list, 0, &ret->size[0]);
    }
    for (ret->count = 0; item_at(file, list, ret->count, &at); ret->count++) {
        if (ret->count == MESH_DIMENSIONS_MAX) return false;
        size = at;
        if (axes && !member(file, at, "shape", &size)) return false;
        if (!mesh_size(file, size, 0, &ret->size[ret->count])) return false;
    }
    return ret->count > 0;
}

/* Before torch 2.9 a mesh is a tensor of ranks; only its shape counts. */
static bool read_tensor_of_ranks(const struct cairn_torch *file, cairn_pickle_ref ref,
                                 struct mesh *ret) {
    struct cairn_torch_tensor tensor;
    if (!cairn_torch_is_plain_tensor(file, ref) || cairn_torch_tensor(file, ref, &tensor, NULL))
        return false;
    ret->count = tensor.dimension_count;
    memcpy(ret->size, tensor.shape, sizeof ret->size);
    return ret->count > 0;
}

static enum cairn_code read_mesh(const struct cairn_torch *file, cairn_pickle_ref spec,
                                 struct mesh *ret, struct cairn_error *err) {
    cairn_pickle_ref mesh, sizes, places, at;
    *ret = (struct mesh){0};
    bool known = member(file, spec, "mesh", &mesh) &&
                 ((member(file, mesh, "_layout", &sizes) && read_layout(file, sizes, ret)) ||
                  (member(file, mesh, "mesh", &sizes) && read_tensor_of_ranks(file, sizes, ret)));
    if (!known || !member(file, mesh, "_coordinate_on_dim", &places))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "its mesh is not described in a way that is known");
    ret->outside = value_at(file, places)->kind == CAIRN_PICKLE_NONE;
    for (unsigned m = 0; !ret->outside && m < ret->count; m++) {
        int64_t place;
        if (!item_at(file, places, m, &at) || !number_of(file, at, &place) || place < 0 ||
            (uint64_t)place >= ret->size[m])
            return cairn_fail(err, CAIRN_INVALID, "its rank's place is not in its mesh");
        ret->place[m] = (uint64_t)place;
    }
    return CAIRN_OK;
}

/* A _StridedShard is cut after those later mesh dimensions whose product is split_factor. */
static bool find_turn(const struct cuts *cuts, const struct mesh *mesh, unsigned dimension,
                      int64_t split_factor, unsigned *ret) {
    uint64_t before = 1;
    for (*ret = 0; *ret < cuts->count[dimension] && before < (uint64_t)split_factor; ++*ret)
        before *= mesh->size[cuts->order[dimension][*ret]];
    return before == (uint64_t)split_factor;
}

/* Adds the placement on one mesh dimension, after those on later dimensions. */
static enum cairn_code add_placement(const struct cairn_torch *file, cairn_pickle_ref placement,
                                     unsigned at, const struct mesh *mesh, unsigned dimensions,
                                     struct cuts *cuts, struct cairn_error *err) {
    bool strided = is_class(file, placement, "_StridedShard");
    cairn_pickle_ref ref;
    int64_t dimension, factor = 1;
    unsigned turn = 0;
    if (is_class(file, placement, "Replicate")) {
        cuts->elsewhere |= mesh->place[at] > 0;
        return CAIRN_OK;
    }
    if (is_class(file, placement, "Partial") || is_class(file, placement, "_Partial"))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "its ranks have sums that were not added up (Partial)");
    if (!(strided || is_class(file, placement, "Shard")) || !member(file, placement, "dim", &ref) ||
        !number_of(file, ref, &dimension))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a placement of it is not known");
    if (dimension < 0) dimension += dimensions;
    if (dimension < 0 || dimension >= (int64_t)dimensions)
        return cairn_fail(err, CAIRN_INVALID, "it is cut in a dimension that it lacks");
    unsigned d = (unsigned)dimension;
    if (strided &&
        !(member(file, placement, "split_factor", &ref) && number_of(file, ref, &factor) &&
          factor > 0 && find_turn(cuts, mesh, d, factor, &turn)))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a split_factor of it is no size of its mesh");
    memmove(&cuts->order[d][turn + 1], &cuts->order[d][turn],
            (cuts->count[d] - turn) * sizeof cuts->order[d][0]);
    cuts->order[d][turn] = at;
    cuts->count[d]++;
    return CAIRN_OK;
}

/* shard_order lists a dimension's mesh dimensions in order, which must fit the placements. */
static enum cairn_code follow_order(const struct cairn_torch *file, cairn_pickle_ref spec,
                                    unsigned dimensions, struct cuts *cuts,
                                    struct cairn_error *err) {
    cairn_pickle_ref list, by_strides, entry, tensor, mesh, at;
    if (!member(file, spec, "shard_order", &list) || !is_list(value_at(file, list)))
        return CAIRN_OK;
    if (member(file, spec, "use_strided_shard_as_shard_order", &by_strides) &&
        value_at(file, by_strides)->kind == CAIRN_PICKLE_BOOL && value_at(file, by_strides)->truth)
        return CAIRN_OK;
    for (uint32_t i = 0; item_at(file, list, i, &entry); i++) {
        const struct cairn_pickle_value *object = value_at(file, entry);
        cairn_pickle_ref of = object->kind == CAIRN_PICKLE_OBJECT ? object->arguments : entry;
        unsigned order[MESH_DIMENSIONS_MAX], named = 0, count = 0;
        int64_t d, m;
        bool known = item_at(file, of, 0, &tensor) && number_of(file, tensor, &d) && d >= 0 &&
                     d < (int64_t)dimensions && item_at(file, of, 1, &mesh) &&
                     value_at(file, mesh)->count == cuts->count[d];
        for (; known && item_at(file, mesh, count, &at); count++) {
            known = number_of(file, at, &m) && m >= 0 && m < MESH_DIMENSIONS_MAX;
            if (known) order[count] = (unsigned)m;
            for (unsigned k = 0; known && k < cuts->count[d]; k++)
                if (cuts->order[d][k] == order[count]) named |= 1u << order[count];
        }
        if (!known || (unsigned)__builtin_popcount(named) != count)
            return cairn_fail(err, CAIRN_UNSUPPORTED, "its shard_order is not that of its mesh");
        memcpy(cuts->order[d], order, count * sizeof *order);
    }
    return CAIRN_OK;
}

/* As torch.chunk: pieces of one size, then a shorter one, then empty ones. */
static void cut_chunk(uint64_t *start, uint64_t *count, uint64_t parts, uint64_t place) {
    uint64_t each = cairn_div_up(*count, parts), begin;
    if (cairn_mul_overflows(each, place, &begin)) begin = *count;
    begin = cairn_min_u64(begin, *count);
    *start += begin;
    *count = cairn_min_u64(each, *count - begin);
}

/* *ret_elsewhere: another rank's piece counts instead. *ret_local 0: the rank has none. */
static enum cairn_code box_of(const struct cairn_torch *file, const struct sharded *sharded,
                              struct cairn_box *ret, cairn_pickle_ref *ret_local,
                              bool *ret_elsewhere, struct cairn_error *err) {
    cairn_pickle_ref spec;
    struct mesh mesh;
    struct cuts cuts = {0};
    *ret = (struct cairn_box){0};
    *ret_local = 0;
    if (!in_state(file, sharded->members, "_spec", &spec))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a DTensor without its _spec");
    CAIRN_TRY(read_mesh(file, spec, &mesh, err));
    *ret_elsewhere = mesh.outside;
    if (mesh.outside) return CAIRN_OK;
    cairn_pickle_ref placements, at;
    if (!member(file, spec, "placements", &placements) || !is_list(value_at(file, placements)) ||
        value_at(file, placements)->count != mesh.count)
        return cairn_fail(err, CAIRN_INVALID,
                          "it has not one placement for each dimension of "
                          "its mesh");
    for (unsigned m = mesh.count; m-- > 0;) {
        if (!item_at(file, placements, m, &at)) continue;
        CAIRN_TRY(add_placement(file, at, m, &mesh, sharded->dimension_count, &cuts, err));
    }
    CAIRN_TRY(follow_order(file, spec, sharded->dimension_count, &cuts, err));
    memcpy(ret->count, sharded->shape, sizeof ret->count);
    for (unsigned d = 0; d < sharded->dimension_count; d++)
        for (unsigned k = 0; k < cuts.count[d]; k++)
            cut_chunk(&ret->start[d], &ret->count[d], mesh.size[cuts.order[d][k]],
                      mesh.place[cuts.order[d][k]]);
    *ret_elsewhere = cuts.elsewhere;
    return in_state(file, sharded->members, "_local_tensor", ret_local)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_UNSUPPORTED, "a DTensor without its _local_tensor");
}

/* The box in a ShardedTensor's metadata. */
static enum cairn_code box_of_listed(const struct cairn_torch *file, const struct sharded *sharded,
                                     uint32_t index, struct cairn_box *ret,
                                     cairn_pickle_ref *ret_tensor, struct cairn_error *err) {
    cairn_pickle_ref piece, metadata, start, count;
    unsigned starts, counts;
    *ret = (struct cairn_box){0};
    if (!item_at(file, sharded->members, index, &piece) ||
        !member(file, piece, "tensor", ret_tensor) || !member(file, piece, "metadata", &metadata) ||
        !member(file, metadata, "shard_offsets", &start) ||
        !member(file, metadata, "shard_sizes", &count))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a piece without its place");
    CAIRN_TRY(cairn_torch_sizes(file, start, ret->start, &starts, err));
    CAIRN_TRY(cairn_torch_sizes(file, count, ret->count, &counts, err));
    if (starts != sharded->dimension_count || counts != sharded->dimension_count)
        return cairn_fail(err, CAIRN_INVALID, "a piece of another number of dimensions");
    return CAIRN_OK;
}

static enum cairn_code check_piece(const struct sharded *sharded, const struct cairn_box *box,
                                   const struct cairn_torch_tensor *piece, bool *has,
                                   struct cairn_error *err) {
    unsigned dimensions = sharded->dimension_count;
    for (unsigned d = 0; d < dimensions; d++) *has &= box->count[d] > 0;
    if (!*has && !piece->elements) return CAIRN_OK;
    if (piece->dtype != sharded->dtype || piece->dimension_count != dimensions ||
        memcmp(piece->shape, box->count, dimensions * sizeof *box->count) != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "its rank's piece has another shape or element type than its place says");
    return !*has || cairn_box_fits(box, dimensions, sharded->shape)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_INVALID, "a piece leaves the tensor");
}

bool cairn_torch_sharded_whole(const struct cairn_torch *file, cairn_pickle_ref ref,
                               cairn_pickle_ref *ret) {
    struct sharded sharded;
    struct cairn_torch_tensor piece;
    struct cairn_box box;
    bool elsewhere, has = true;
    if (!cairn_torch_is_sharded(file, ref) || read_sharded(file, ref, &sharded, NULL) != CAIRN_OK ||
        sharded.count != 1)
        return false;
    enum cairn_code code = sharded.listed ? box_of_listed(file, &sharded, 0, &box, ret, NULL)
                                          : box_of(file, &sharded, &box, ret, &elsewhere, NULL);
    if (code != CAIRN_OK || !cairn_torch_is_plain_tensor(file, *ret) ||
        memcmp(box.count, sharded.shape, sharded.dimension_count * sizeof *box.count) != 0)
        return false;
    return cairn_torch_tensor(file, *ret, &piece, NULL) == CAIRN_OK &&
           check_piece(&sharded, &box, &piece, &has, NULL) == CAIRN_OK;
}

/* Piece `index`. *ret_has: it has elements, and no other rank's counts instead. */
static enum cairn_code sharded_piece(const struct cairn_torch *file, const struct sharded *sharded,
                                     uint32_t index, struct cairn_box *ret_box,
                                     struct cairn_torch_tensor *ret_piece, bool *ret_has,
                                     struct cairn_error *err) {
    cairn_pickle_ref tensor = 0;
    bool elsewhere = false;
    if (sharded->listed)
        CAIRN_TRY(box_of_listed(file, sharded, index, ret_box, &tensor, err));
    else
        CAIRN_TRY(box_of(file, sharded, ret_box, &tensor, &elsewhere, err));
    *ret_has = !elsewhere;
    if (elsewhere) return CAIRN_OK;
    if (!cairn_torch_is_plain_tensor(file, tensor))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "its rank's piece is no plain tensor");
    CAIRN_TRY(cairn_torch_tensor(file, tensor, ret_piece, err));
    return check_piece(sharded, ret_box, ret_piece, ret_has, err);
}

/* ---- file names, then the pieces of all ranks, then tensors ---- */

#define RANKS_MAX 65536
#define PIECES_MAX 4194304
#define COMPARED_BYTES CAIRN_MIB /* at once */

/* A name's parts before and after its rank number, and the number. */
struct rank_name {
    const char *name;
    size_t stem, tail; /* bytes before the number; end of the number */
    uint64_t rank;
    size_t number; /* index in the folder */
};
struct sets {
    const struct cairn_zero_folder *folder;
    struct rank_name *names; /* set by set, by rank */
    size_t count;
};
/* One tensor over all ranks. */
struct whole {
    unsigned dtype, dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    bool sharded;
    char *why;                 /* reason for leaving it out; owned */
    size_t first, piece_count; /* the first rank's, and the sum of all */
};
struct piece {
    uint32_t tensor, input;
    unsigned flip;
    uint64_t offset_bytes, size_bytes, span_bytes; /* span: up to the end of the last element */
    uint64_t stride[CAIRN_DIMENSIONS_MAX];
    struct cairn_box box;
    struct cairn_seal seal; /* of its storage; size 0: none */
    size_t index;           /* in reading order */
};
struct gather {
    const struct cairn_zero_folder *folder;
    struct cairn_assembly *assembly;
    const char *prefix;
    struct cairn_torch file; /* the present rank's */
    uint32_t input;
    struct cairn_names names;
    struct whole *wholes; /* by index of their names */
    size_t whole_count, whole_capacity;
    struct piece *pieces;
    size_t piece_count, piece_capacity;
};

/* Splits a name at "rank" and its number; only a torch file's extension may follow. */
static bool read_rank_name(const char *name, struct rank_name *ret) {
    static const char *const ends[] = {".pt", ".pth", ".ckpt", ".bin"};
    const char *last = NULL;
    for (const char *at = name; (at = strstr(at, "rank")); at++) {
        char c = at == name ? '_' : at[-1];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) last = at;
    }
    if (!last) return false;
    const char *digits = last + strlen("rank");
    if (*digits == '_' || *digits == '-' || *digits == '=') digits++;
    size_t size = strspn(digits, "0123456789");
    *ret = (struct rank_name){
        .name = name, .stem = (size_t)(digits - name), .tail = (size_t)(digits - name) + size};
    if (!size || size > 9 ||
        cairn_parse_u64((struct cairn_view){digits, size}, &ret->rank, NULL) != CAIRN_OK)
        return false;
    for (size_t i = 0; i < CAIRN_COUNT(ends); i++)
        if (strcmp(name + ret->tail, ends[i]) == 0) return true;
    return false;
}

bool cairn_torch_ranks_is(const struct cairn_zero_folder *folder) {
    struct rank_name name;
    for (size_t i = 0; i < folder->count; i++)
        if (read_rank_name(folder->names[i], &name)) return true;
    return false;
}

/* Sorts sets by the text before the number, then after it. */
static int by_set(const struct rank_name *a, const struct rank_name *b) {
    size_t size = a->stem < b->stem ? a->stem : b->stem;
    int order = memcmp(a->name, b->name, size);
    if (!order) order = (a->stem > b->stem) - (a->stem < b->stem);
    return order ? order : strcmp(a->name + a->tail, b->name + b->tail);
}

static int by_set_then_rank(const void *a, const void *b) {
    const struct rank_name *x = a, *y = b;
    int order = by_set(x, y);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static size_t set_count(const struct sets *sets, size_t first) {
    size_t end = first;
    while (end < sets->count && by_set(&sets->names[first], &sets->names[end]) == 0) end++;
    return end - first;
}

/* "world_size" in the name, or the number of files. */
static uint64_t expected_count(const struct rank_name *last, size_t count) {
    const char *at = strstr(last->name, "world_size");
    uint64_t expected = 0;
    if (at && (size_t)(at - last->name) < last->stem) {
        at += strlen("world_size");
        if (*at == '_' || *at == '-' || *at == '=') at++;
        size_t size = strspn(at, "0123456789");
        if (size && cairn_parse_u64((struct cairn_view){at, size}, &expected, NULL) == CAIRN_OK)
            return expected;
    }
    return last->rank >= count ? last->rank + 1 : count;
}

static enum cairn_code check_set(const struct sets *sets, size_t first, size_t count,
                                 struct cairn_error *err) {
    const struct rank_name *names = &sets->names[first];
    uint64_t expected = expected_count(&names[count - 1], count);
    if (expected > RANKS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%s: more than %d ranks",
                          cairn_short(names->name).text, RANKS_MAX);
    for (uint64_t rank = 0; rank < expected; rank++) {
        if (rank < count && names[rank].rank == rank) continue;
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "%.*s%" PRIu64 "%s is not there: there is %s, and each rank's file has "
                          "a part of the tensors",
                          (int)cairn_min_u64(names->stem, 200), names->name, rank,
                          names->name + names->tail, cairn_short(names->name).text);
    }
    if (count == expected) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s is one of more files than the %" PRIu64 " that its name tells of",
                      cairn_short(names[count - 1].name).text, expected);
}

static enum cairn_code list_sets(struct sets *sets, struct cairn_error *err) {
    sets->names = calloc(sets->folder->count + 1, sizeof *sets->names);
    if (!sets->names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a folder's files");
    for (size_t i = 0; i < sets->folder->count; i++) {
        struct rank_name *name = &sets->names[sets->count];
        if (!read_rank_name(sets->folder->names[i], name)) continue;
        name->number = i;
        sets->count++;
    }
    if (sets->count) qsort(sets->names, sets->count, sizeof *sets->names, by_set_then_rank);
    return CAIRN_OK;
}

static bool is_optimizers(const struct rank_name *name) {
    return cairn_text_starts(name->name, "optim");
}

/* *ret: the first file of the model's set. */
static enum cairn_code choose_model_set(const struct sets *sets, size_t *ret,
                                        struct cairn_error *err) {
    size_t named = 0, others = 0, first[2] = {0}, other[2] = {0};
    for (size_t i = 0; i < sets->count; i += set_count(sets, i)) {
        const char *name = sets->names[i].name;
        bool models = cairn_text_starts(name, "model") || cairn_text_starts(name, "pytorch_model");
        if (models && named < 2) first[named++] = i;
        if (!models && others < 2) other[others++] = i;
    }
    size_t *chosen = named ? first : other, count = named ? named : others;
    *ret = chosen[0];
    if (count == 1) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s and %s: two sets of files, one for each rank, and none or both by the "
                      "name of a model: give a folder with the one that is meant",
                      cairn_short(sets->names[chosen[0]].name).text,
                      cairn_short(sets->names[chosen[1]].name).text);
}

static enum cairn_code same_bytes(const struct gather *gather, const struct piece *a,
                                  const struct piece *b, bool *ret, struct cairn_error *err) {
    const struct cairn_input *const *inputs = gather->assembly->inputs;
    *ret = a->flip == b->flip && memcmp(a->stride, b->stride, sizeof a->stride) == 0;
    if (!*ret ||
        (a->seal.size_bytes && a->seal.size_bytes == b->seal.size_bytes && a->seal.crc32 &&
         a->seal.crc32 == b->seal.crc32 &&
         a->offset_bytes - a->seal.offset_bytes == b->offset_bytes - b->seal.offset_bytes &&
         memcmp(a->stride, b->stride, sizeof a->stride) == 0))
        return CAIRN_OK;
    CAIRN_AUTO_HEAP char *memory = malloc(2 * COMPARED_BYTES);
    if (!memory) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare ranks");
    for (uint64_t done = 0; *ret && done < a->span_bytes; done += COMPARED_BYTES) {
        size_t size = (size_t)cairn_min_u64(COMPARED_BYTES, a->span_bytes - done);
        CAIRN_TRY(cairn_input_read(inputs[a->input], a->offset_bytes + done, memory, size, err));
        CAIRN_TRY(cairn_input_read(inputs[b->input], b->offset_bytes + done,
                                   memory + COMPARED_BYTES, size, err));
        *ret = memcmp(memory, memory + COMPARED_BYTES, size) == 0;
    }
    return CAIRN_OK;
}

static enum cairn_code leave_out(struct whole *whole, const char *why, struct cairn_error *err) {
    if (whole->why) return CAIRN_OK;
    whole->why = strdup(why);
    return whole->why ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a reason");
}

/* *ret: the name's earlier entry. */
static enum cairn_code find_whole(struct gather *gather, const char *path, const struct whole *new,
                                  struct whole **ret, uint32_t *ret_number, bool *ret_known,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s%s", gather->prefix, path));
    if (name.size > CAIRN_TENSOR_NAME_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "a name of more than %d bytes",
                          CAIRN_TENSOR_NAME_BYTES_MAX);
    CAIRN_TRY(cairn_names_add(&gather->names, cairn_buf_view(&name), ret_number, err));
    *ret_known = *ret_number < gather->whole_count;
    if (!*ret_known) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(gather->wholes, gather->whole_count, gather->whole_capacity,
                                   UINT32_MAX / 2, "tensors of several ranks", err));
        gather->wholes[gather->whole_count++] = *new;
    }
    *ret = &gather->wholes[*ret_number];
    bool same = (*ret)->sharded == new->sharded && (*ret)->dtype == new->dtype &&
                (*ret)->dimension_count ==
                    new->dimension_count &&memcmp((*ret)->shape, new->shape, sizeof new->shape) ==
                    0;
    return same ? CAIRN_OK
                : cairn_fail(err, CAIRN_INVALID,
                             "a rank before has it with another shape or "
                             "element type");
}

static enum cairn_code make_piece(const struct gather *gather,
                                  const struct cairn_torch_tensor *tensor,
                                  const struct cairn_box *box, struct piece *ret,
                                  struct cairn_error *err) {
    struct cairn_view name;
    uint64_t storage = 0, last = 0;
    *ret = (struct piece){.input = gather->input, .box = *box, .size_bytes = tensor->size_bytes};
    for (unsigned d = 0; tensor->elements && d < tensor->dimension_count; d++)
        last += (tensor->shape[d] - 1) * tensor->stride[d]; /* it lies in its storage */
    if (tensor->elements) ret->span_bytes = (last + 1) * (tensor->size_bytes / tensor->elements);
    if (tensor->elements) CAIRN_TRY(cairn_torch_storage_at(&gather->file, tensor, &storage, err));
    ret->offset_bytes = storage + tensor->offset_bytes;
    memcpy(ret->stride, tensor->stride, sizeof ret->stride);
    if (tensor->elements && cairn_torch_seal(&gather->file, tensor, storage, &ret->seal, &name)) {
        ret->seal.input = gather->input;
        CAIRN_TRY(cairn_seals_add(&gather->assembly->seals, &ret->seal, name, err));
    }
    return cairn_assembly_flips(tensor->dtype, tensor->conjugated, tensor->negated, &ret->flip,
                                err);
}

static enum cairn_code keep_piece(struct gather *gather, uint32_t number, struct piece *piece,
                                  struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(gather->pieces, gather->piece_count, gather->piece_capacity,
                               PIECES_MAX, "pieces of tensors", err));
    struct whole *whole = &gather->wholes[number];
    piece->tensor = number;
    piece->index = gather->piece_count;
    if (!whole->piece_count++) whole->first = piece->index;
    gather->pieces[gather->piece_count++] = *piece;
    return CAIRN_OK;
}

static enum cairn_code add_plain(struct gather *gather, const char *path, cairn_pickle_ref ref,
                                 struct cairn_error *err) {
    struct cairn_torch_tensor tensor;
    struct whole new = {0}, *whole;
    struct piece piece;
    struct cairn_box box = {0};
    uint32_t number;
    bool known, same = true;
    CAIRN_TRY(cairn_torch_tensor(&gather->file, ref, &tensor, err));
    new.dtype = tensor.dtype;
    new.dimension_count = tensor.dimension_count;
    memcpy(new.shape, tensor.shape, sizeof new.shape);
    memcpy(box.count, tensor.shape, sizeof box.count);
    CAIRN_TRY(make_piece(gather, &tensor, &box, &piece, err));
    struct cairn_error why = {0};
    enum cairn_code code = find_whole(gather, path, &new, &whole, &number, &known, &why);
    if (code && known && !whole->sharded)
        return leave_out(whole, "ranks have it with shapes or element types that differ", err);
    CAIRN_TRY(cairn_pass(err, code, &why));
    if (!known) return keep_piece(gather, number, &piece, err);
    if (whole->why || !tensor.elements) return CAIRN_OK;
    CAIRN_TRY(same_bytes(gather, &gather->pieces[whole->first], &piece, &same, err));
    return same ? CAIRN_OK : leave_out(whole, "each rank has its own, and they differ", err);
}

static enum cairn_code add_sharded(struct gather *gather, const char *path, cairn_pickle_ref ref,
                                   struct cairn_error *err) {
    struct sharded sharded;
    struct whole new = {.sharded = true}, *whole;
    struct cairn_error why = {0};
    uint32_t number;
    bool known;
    CAIRN_TRY(read_sharded(&gather->file, ref, &sharded, err));
    new.dtype = sharded.dtype;
    new.dimension_count = sharded.dimension_count;
    memcpy(new.shape, sharded.shape, sizeof new.shape);
    CAIRN_TRY(find_whole(gather, path, &new, &whole, &number, &known, err));
    for (uint32_t i = 0; i < sharded.count; i++) {
        struct cairn_torch_tensor tensor;
        struct cairn_box box;
        struct piece piece;
        bool has;
        enum cairn_code code = sharded_piece(&gather->file, &sharded, i, &box, &tensor, &has, &why);
        if (code == CAIRN_UNSUPPORTED) return leave_out(whole, why.message, err);
        CAIRN_TRY(cairn_pass(err, code, &why));
        if (!has) continue;
        CAIRN_TRY(make_piece(gather, &tensor, &box, &piece, err));
        CAIRN_TRY(keep_piece(gather, number, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code visit(void *context, const char *path, enum cairn_torch_kind kind,
                             cairn_pickle_ref ref, struct cairn_error *err) {
    struct gather *gather = context;
    enum cairn_code code = CAIRN_OK;
    if (cairn_torch_is_sharded(&gather->file, ref))
        code = add_sharded(gather, path, ref, err);
    else if (kind == CAIRN_TORCH_LEAF_TENSOR)
        code = add_plain(gather, path, ref, err);
    return cairn_within(err, code, "tensor %s", cairn_short(path).text);
}

static enum cairn_code read_file(struct gather *gather, const char *name, struct cairn_error *err) {
    const struct cairn_input *input;
    CAIRN_TRY(gather->folder->open(gather->folder->context, name, &input, err));
    CAIRN_TRY(cairn_torch_open(input, gather->folder->strict, &gather->file, err));
    enum cairn_code code = cairn_torch_need_ranges(&gather->file, err);
    if (code == CAIRN_OK)
        code = cairn_assembly_add_input(gather->assembly, input, &gather->input, err);
    if (code == CAIRN_OK) code = cairn_torch_walk(&gather->file, visit, gather, err);
    cairn_torch_release(&gather->file);
    gather->file = (struct cairn_torch){0};
    return code;
}

static int by_number(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int by_box(const struct piece *x, const struct piece *y) {
    int order = by_number(x->tensor, y->tensor);
    for (unsigned d = 0; !order && d < CAIRN_DIMENSIONS_MAX; d++)
        order = by_number(x->box.start[d], y->box.start[d]);
    for (unsigned d = 0; !order && d < CAIRN_DIMENSIONS_MAX; d++)
        order = by_number(x->box.count[d], y->box.count[d]);
    return order;
}

static int by_box_then_rank(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    int order = by_box(x, y);
    return order ? order : by_number(x->index, y->index);
}

/* Pieces are sorted by tensor. A box that several ranks have (HSDP) counts once. */
static enum cairn_code put_together(struct gather *gather, uint32_t number, size_t *at,
                                    struct cairn_error *err) {
    const struct whole *whole = &gather->wholes[number];
    struct cairn_view view = gather->names.views[number];
    char name[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    size_t end = *at + whole->piece_count, first = *at;
    memcpy(name, view.data, view.size);
    name[view.size] = '\0';
    *at = end;
    if (whole->why) return cairn_assembly_leave_out(gather->assembly, name, whole->why, err);
    CAIRN_TRY(cairn_assembly_add_tensor(gather->assembly, name, whole->dtype,
                                        whole->dimension_count, whole->shape, err));
    for (size_t i = first; i < end; i++) {
        const struct piece *piece = &gather->pieces[i];
        struct cairn_assembly_piece into = {.input = piece->input,
                                            .flip = piece->flip & 3u,
                                            .offset_bytes = piece->offset_bytes,
                                            .size_bytes = piece->size_bytes};
        if (!piece->size_bytes || (i > first && by_box(piece - 1, piece) == 0)) continue;
        CAIRN_TRY(
            cairn_assembly_add_view(gather->assembly, &into, piece->stride, &piece->box, err));
    }
    return CAIRN_OK;
}

static enum cairn_code use_set(struct gather *gather, const struct sets *sets, size_t first,
                               struct cairn_error *err) {
    size_t count = set_count(sets, first), at = 0;
    CAIRN_TRY(check_set(sets, first, count, err));
    gather->names.copy = true;
    for (size_t i = first; i < first + count; i++) {
        enum cairn_code code = read_file(gather, sets->names[i].name, err);
        if (code) return cairn_within(err, code, "%s", cairn_short(sets->names[i].name).text);
    }
    if (gather->piece_count)
        qsort(gather->pieces, gather->piece_count, sizeof *gather->pieces, by_box_then_rank);
    for (uint32_t i = 0; i < gather->whole_count; i++) CAIRN_TRY(put_together(gather, i, &at, err));
    return CAIRN_OK;
}

static enum cairn_code add_set(const struct sets *sets, size_t first, const char *prefix,
                               struct cairn_assembly *assembly, struct cairn_error *err) {
    struct gather gather = {.folder = sets->folder, .assembly = assembly, .prefix = prefix};
    enum cairn_code code = use_set(&gather, sets, first, err);
    for (size_t i = 0; i < gather.whole_count; i++) free(gather.wholes[i].why);
    cairn_names_release(&gather.names);
    free(gather.wholes);
    free(gather.pieces);
    return code;
}

static enum cairn_code leave_out_set(const struct sets *sets, size_t first, size_t chosen,
                                     struct cairn_assembly *assembly, struct cairn_error *err) {
    CAIRN_AUTO(buf) why = {0};
    const struct rank_name *name = &sets->names[first];
    if (is_optimizers(name))
        CAIRN_TRY(cairn_buf_append_text(&why, CAIRN_ASSEMBLY_WITHOUT_OPTIMIZER, err));
    else
        CAIRN_TRY(cairn_buf_printf(&why, err,
                                   "a file beside the model, which is in %s and those "
                                   "of the other ranks",
                                   sets->names[chosen].name));
    for (size_t i = first; i < first + set_count(sets, first); i++)
        CAIRN_TRY(cairn_assembly_leave_out_file(assembly, sets->names[i].name, why.data, err));
    return CAIRN_OK;
}

static enum cairn_code assemble_sets(struct sets *sets, bool optimizer,
                                     struct cairn_assembly *assembly, struct cairn_error *err) {
    size_t chosen;
    CAIRN_TRY(list_sets(sets, err));
    CAIRN_TRY(choose_model_set(sets, &chosen, err));
    CAIRN_TRY(add_set(sets, chosen, "", assembly, err));
    for (size_t i = 0; i < sets->count; i += set_count(sets, i)) {
        if (i == chosen) continue;
        if (optimizer && is_optimizers(&sets->names[i]))
            CAIRN_TRY(add_set(sets, i, CAIRN_TORCH_RANKS_OPTIMIZER, assembly, err));
        else
            CAIRN_TRY(leave_out_set(sets, i, chosen, assembly, err));
    }
    CAIRN_TRY(cairn_assembly_check(assembly, err));
    return cairn_assembly_join_same(assembly, err);
}

enum cairn_code cairn_torch_ranks_assemble(const struct cairn_zero_folder *folder, bool optimizer,
                                           struct cairn_assembly *assembly,
                                           struct cairn_error *err) {
    struct sets sets = {.folder = folder};
    enum cairn_code code = assemble_sets(&sets, optimizer, assembly, err);
    free(sets.names);
    return code;
}

enum cairn_code cairn_torch_ranks_first(const struct cairn_zero_folder *folder, size_t *ret_model,
                                        size_t *ret_optimizer, struct cairn_error *err) {
    struct sets sets = {.folder = folder};
    size_t chosen = 0;
    *ret_optimizer = SIZE_MAX;
    enum cairn_code code = list_sets(&sets, err);
    if (code == CAIRN_OK) code = choose_model_set(&sets, &chosen, err);
    if (code == CAIRN_OK) *ret_model = sets.names[chosen].number;
    for (size_t i = 0; code == CAIRN_OK && i < sets.count; i += set_count(&sets, i))
        if (i != chosen && is_optimizers(&sets.names[i])) *ret_optimizer = sets.names[i].number;
    free(sets.names);
    return code;
}
