/* SPDX-License-Identifier: Apache-2.0 */
/* What DTensors and ShardedTensors say of the place of their pieces. */
#include "formats/torch_sharded.h"

#include "api/table/dtype.h"
#include "formats/torch_inside.h"

#define MESH_DIMENSIONS_MAX 8

/* A mesh of ranks, and the place of the file's rank in it. */
struct mesh {
    unsigned count;
    uint64_t size[MESH_DIMENSIONS_MAX], place[MESH_DIMENSIONS_MAX];
    bool outside; /* the rank is not in it */
};
/* What the mesh's dimensions do to the tensor's, those of one dimension in their order. */
struct cuts {
    unsigned count[CAIRN_DIMENSIONS_MAX];
    unsigned order[CAIRN_DIMENSIONS_MAX][MESH_DIMENSIONS_MAX]; /* dimensions of the mesh */
    bool elsewhere; /* a rank before this one has the same piece */
};

/* ---- values ---- */

static const struct cairn_pickle_value *value_at(const struct cairn_torch *file,
                                                 cairn_pickle_ref ref) {
    return cairn_pickle_at(&file->values, ref);
}

static bool is_list(const struct cairn_pickle_value *value) {
    return value->kind == CAIRN_PICKLE_TUPLE || value->kind == CAIRN_PICKLE_LIST;
}

/* The items of a tuple or a list; false: it has fewer. */
static bool item(const struct cairn_torch *file, cairn_pickle_ref of, uint32_t index,
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

/* A state is a dict, or where a class has slots a dict and those. */
static bool in_state(const struct cairn_torch *file, cairn_pickle_ref state, const char *name,
                     cairn_pickle_ref *ret) {
    cairn_pickle_ref part;
    for (uint32_t i = 0; i < 2; i++)
        if (item(file, state, i, &part) && value_at(file, part)->kind == CAIRN_PICKLE_DICT &&
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

/* Is it an instance of a class of this name, whatever its module? */
static bool is_class(const struct cairn_torch *file, cairn_pickle_ref of, const char *name) {
    char text[CAIRN_TORCH_CLASS_BYTES];
    if (value_at(file, of)->kind != CAIRN_PICKLE_OBJECT) return false;
    cairn_torch_class_text(&file->values, of, text);
    const char *dot = strrchr(text, '.');
    return strcmp(dot ? dot + 1 : text, name) == 0;
}

/* ---- the whole ---- */

#define WRAPPERS_MAX 8 /* a parameter of a parameter of one */
/* Of _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, arguments, state), or a parameter. */
static bool find_wrapper(const struct cairn_torch *file, cairn_pickle_ref ref,
                         cairn_pickle_ref *ret_class, cairn_pickle_ref *ret_arguments,
                         cairn_pickle_ref *ret_state) {
    const struct cairn_pickle_value *object = value_at(file, ref);
    const struct cairn_torch_name *maker = cairn_torch_maker(&file->values, object);
    for (int i = 0; i < WRAPPERS_MAX && maker && maker->meaning == CAIRN_TORCH_PARAMETER; i++) {
        if (!item(file, object->arguments, 0, &ref)) return false;
        object = value_at(file, ref);
        maker = cairn_torch_maker(&file->values, object);
    }
    return maker && maker->meaning == CAIRN_TORCH_FROM_TYPE &&
           item(file, object->arguments, 1, ret_class) &&
           item(file, object->arguments, 2, ret_arguments) &&
           item(file, object->arguments, 3, ret_state);
}

bool cairn_torch_is_sharded(const struct cairn_torch *file, cairn_pickle_ref ref) {
    cairn_pickle_ref class, arguments, state;
    if (!find_wrapper(file, ref, &class, &arguments, &state)) return false;
    const struct cairn_torch_name *name = cairn_torch_name_of(&file->values, class);
    return name && name->meaning == CAIRN_TORCH_SHARDED;
}

enum cairn_code cairn_torch_sharded(const struct cairn_torch *file, cairn_pickle_ref ref,
                                    struct cairn_torch_sharded *ret, struct cairn_error *err) {
    cairn_pickle_ref class, arguments, state, dtype, sizes;
    *ret = (struct cairn_torch_sharded){.count = 1};
    if (!find_wrapper(file, ref, &class, &arguments, &state) ||
        !item(file, arguments, 1, &dtype) || !item(file, arguments, 2, &sizes))
        return cairn_fail(err, CAIRN_INVALID, "not a tensor of several ranks");
    const struct cairn_torch_name *type = cairn_torch_name_of(&file->values, dtype);
    if (!type || type->meaning != CAIRN_TORCH_DTYPE)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "its element type is not known");
    ret->dtype = type->dtype;
    ret->members = state;
    CAIRN_TRY(cairn_torch_sizes(file, sizes, ret->shape, &ret->dimension_count, err));
    ret->listed = strcmp(cairn_torch_name_of(&file->values, class)->name, "ShardedTensor") == 0;
    if (!ret->listed) return CAIRN_OK;
    if (!item(file, state, 0, &ret->members) || !is_list(value_at(file, ret->members)))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a ShardedTensor without a list of its pieces");
    ret->count = value_at(file, ret->members)->count;
    return CAIRN_OK;
}

/* ---- the mesh ---- */

/* How many places a nested tuple of sizes has. */
static bool product_of(const struct cairn_torch *file, cairn_pickle_ref ref, unsigned depth,
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
        if (!product_of(file, value_at(file, ref)->items[i], depth + 1, &part) ||
            cairn_mul_overflows(*ret, part, ret))
            return false;
    }
    return true;
}

/* Of its _layout: one size for each dimension, or each in an object of its own. */
static bool read_layout(const struct cairn_torch *file, cairn_pickle_ref layout,
                        struct mesh *ret) {
    cairn_pickle_ref list, at, size;
    bool axes = member(file, layout, "axes", &list);
    if (!axes && !member(file, layout, "shape", &list)) return false;
    if (!axes && !is_list(value_at(file, list))) { /* one dimension */
        ret->count = 1;
        return product_of(file, list, 0, &ret->size[0]);
    }
    for (ret->count = 0; item(file, list, ret->count, &at); ret->count++) {
        if (ret->count == MESH_DIMENSIONS_MAX) return false;
        size = at;
        if (axes && !member(file, at, "shape", &size)) return false;
        if (!product_of(file, size, 0, &ret->size[ret->count])) return false;
    }
    return ret->count > 0;
}

/* Before torch 2.9 a mesh is a tensor of ranks; its shape is what counts. */
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
        if (!item(file, places, m, &at) || !number_of(file, at, &place) || place < 0 ||
            (uint64_t)place >= ret->size[m])
            return cairn_fail(err, CAIRN_INVALID, "its rank's place is not in its mesh");
        ret->place[m] = (uint64_t)place;
    }
    return CAIRN_OK;
}

/* ---- placements ---- */

/* A _StridedShard is cut after those dimensions of the mesh behind it that make split_factor. */
static bool find_turn(const struct cuts *cuts, const struct mesh *mesh, unsigned dimension,
                      int64_t split_factor, unsigned *ret) {
    uint64_t before = 1;
    for (*ret = 0; *ret < cuts->count[dimension] && before < (uint64_t)split_factor; ++*ret)
        before *= mesh->size[cuts->order[dimension][*ret]];
    return before == (uint64_t)split_factor;
}

/* The placement on one dimension of the mesh; those on the dimensions behind it came before. */
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
    if (strided && !(member(file, placement, "split_factor", &ref) &&
                     number_of(file, ref, &factor) && factor > 0 &&
                     find_turn(cuts, mesh, d, factor, &turn)))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a split_factor of it is no size of its mesh");
    memmove(&cuts->order[d][turn + 1], &cuts->order[d][turn],
            (cuts->count[d] - turn) * sizeof cuts->order[d][0]);
    cuts->order[d][turn] = at;
    cuts->count[d]++;
    return CAIRN_OK;
}

/* shard_order says of some dimensions by which ones of the mesh they are cut, in their order: it
 * must name those that the placements name. */
static enum cairn_code follow_order(const struct cairn_torch *file, cairn_pickle_ref spec,
                                    unsigned dimensions, struct cuts *cuts,
                                    struct cairn_error *err) {
    cairn_pickle_ref list, by_strides, entry, tensor, mesh, at;
    if (!member(file, spec, "shard_order", &list) || !is_list(value_at(file, list)))
        return CAIRN_OK;
    if (member(file, spec, "use_strided_shard_as_shard_order", &by_strides) &&
        value_at(file, by_strides)->kind == CAIRN_PICKLE_BOOL && value_at(file, by_strides)->truth)
        return CAIRN_OK;
    for (uint32_t i = 0; item(file, list, i, &entry); i++) {
        const struct cairn_pickle_value *object = value_at(file, entry);
        cairn_pickle_ref of = object->kind == CAIRN_PICKLE_OBJECT ? object->arguments : entry;
        unsigned order[MESH_DIMENSIONS_MAX], named = 0, count = 0;
        int64_t d, m;
        bool known = item(file, of, 0, &tensor) && number_of(file, tensor, &d) && d >= 0 &&
                     d < (int64_t)dimensions && item(file, of, 1, &mesh) &&
                     value_at(file, mesh)->count == cuts->count[d];
        for (; known && item(file, mesh, count, &at); count++) {
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

static enum cairn_code read_cuts(const struct cairn_torch *file, cairn_pickle_ref spec,
                                 const struct mesh *mesh, unsigned dimensions, struct cuts *ret,
                                 struct cairn_error *err) {
    cairn_pickle_ref placements, at;
    *ret = (struct cuts){0};
    if (!member(file, spec, "placements", &placements) || !is_list(value_at(file, placements)) ||
        value_at(file, placements)->count != mesh->count)
        return cairn_fail(err, CAIRN_INVALID, "it has not one placement for each dimension of "
                                              "its mesh");
    for (unsigned m = mesh->count; m-- > 0;) {
        if (!item(file, placements, m, &at)) continue;
        CAIRN_TRY(add_placement(file, at, m, mesh, dimensions, ret, err));
    }
    return follow_order(file, spec, dimensions, ret, err);
}

/* ---- pieces ---- */

/* As torch.chunk cuts: pieces of one size, then a shorter one, then none. */
static void cut(uint64_t *start, uint64_t *count, uint64_t parts, uint64_t place) {
    uint64_t each = cairn_div_up(*count, parts), begin;
    if (cairn_mul_overflows(each, place, &begin)) begin = *count;
    begin = cairn_min_u64(begin, *count);
    *start += begin;
    *count = cairn_min_u64(each, *count - begin);
}

/* *ret_elsewhere: another rank's piece counts instead. *ret_local 0: the rank has none. */
static enum cairn_code box_of(const struct cairn_torch *file,
                              const struct cairn_torch_sharded *sharded, struct cairn_box *ret,
                              cairn_pickle_ref *ret_local, bool *ret_elsewhere,
                              struct cairn_error *err) {
    cairn_pickle_ref spec;
    struct mesh mesh;
    struct cuts cuts;
    *ret = (struct cairn_box){0};
    *ret_local = 0;
    if (!in_state(file, sharded->members, "_spec", &spec))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a DTensor without its _spec");
    CAIRN_TRY(read_mesh(file, spec, &mesh, err));
    *ret_elsewhere = mesh.outside;
    if (mesh.outside) return CAIRN_OK;
    CAIRN_TRY(read_cuts(file, spec, &mesh, sharded->dimension_count, &cuts, err));
    memcpy(ret->count, sharded->shape, sizeof ret->count);
    for (unsigned d = 0; d < sharded->dimension_count; d++)
        for (unsigned k = 0; k < cuts.count[d]; k++)
            cut(&ret->start[d], &ret->count[d], mesh.size[cuts.order[d][k]],
                mesh.place[cuts.order[d][k]]);
    *ret_elsewhere = cuts.elsewhere;
    return in_state(file, sharded->members, "_local_tensor", ret_local)
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_UNSUPPORTED, "a DTensor without its _local_tensor");
}

/* Of a ShardedTensor: what its metadata says. */
static enum cairn_code box_of_listed(const struct cairn_torch *file,
                                     const struct cairn_torch_sharded *sharded, uint32_t index,
                                     struct cairn_box *ret, cairn_pickle_ref *ret_tensor,
                                     struct cairn_error *err) {
    cairn_pickle_ref piece, metadata, start, count;
    unsigned starts, counts;
    *ret = (struct cairn_box){0};
    if (!item(file, sharded->members, index, &piece) ||
        !member(file, piece, "tensor", ret_tensor) ||
        !member(file, piece, "metadata", &metadata) ||
        !member(file, metadata, "shard_offsets", &start) ||
        !member(file, metadata, "shard_sizes", &count))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a piece without its place");
    CAIRN_TRY(cairn_torch_sizes(file, start, ret->start, &starts, err));
    CAIRN_TRY(cairn_torch_sizes(file, count, ret->count, &counts, err));
    if (starts != sharded->dimension_count || counts != sharded->dimension_count)
        return cairn_fail(err, CAIRN_INVALID, "a piece of another number of dimensions");
    return CAIRN_OK;
}

static enum cairn_code check_piece(const struct cairn_torch_sharded *sharded,
                                   const struct cairn_box *box,
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
    struct cairn_torch_sharded sharded;
    struct cairn_torch_tensor piece;
    struct cairn_box box;
    bool elsewhere, has = true;
    if (!cairn_torch_is_sharded(file, ref) ||
        cairn_torch_sharded(file, ref, &sharded, NULL) != CAIRN_OK || sharded.count != 1)
        return false;
    enum cairn_code code = sharded.listed
                               ? box_of_listed(file, &sharded, 0, &box, ret, NULL)
                               : box_of(file, &sharded, &box, ret, &elsewhere, NULL);
    if (code != CAIRN_OK || !cairn_torch_is_plain_tensor(file, *ret) ||
        memcmp(box.count, sharded.shape, sharded.dimension_count * sizeof *box.count) != 0)
        return false;
    return cairn_torch_tensor(file, *ret, &piece, NULL) == CAIRN_OK &&
           check_piece(&sharded, &box, &piece, &has, NULL) == CAIRN_OK;
}

enum cairn_code cairn_torch_sharded_piece(const struct cairn_torch *file,
                                          const struct cairn_torch_sharded *sharded,
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
