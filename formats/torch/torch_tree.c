/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the values of a torch file. */
#include "formats/torch/torch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/text.h"
#include "formats/torch/torch_ranks.h"

/* Dict-like and list-like objects count as maps and lists. */

#define DEPTH_MAX 64
#define LEAVES_MAX 4000000
/* Bounds the sum of leaf names: only malicious pickles exceed it. */
#define NAME_BYTES_MIN (8 * CAIRN_MIB)
#define NAME_BYTES_EACH 64 /* for each byte of the pickle */
#define LEAVES_MIN 65536
#define LEAVES_EACH 4 /* for each value of the pickle */
#define PATH_BYTES_MAX CAIRN_MIB

struct walk {
    const struct cairn_torch *file;
    cairn_torch_visit *visit;
    void *context;
    struct cairn_buf path;
    cairn_pickle_ref above[DEPTH_MAX]; /* the containers of the value, from the root */
    unsigned depth;
    uint64_t leaves, name_bytes;
    /* Items only: */
    uint8_t *holds; /* cached contents of each value, as flags */
    cairn_torch_take *take;
    bool inside; /* of a value that was taken */
};
/* ITEMS: of a list, a tensor, a map or a list with ITEMS: DCP goes into such a list. */
enum { HOLDS_KNOWN = 1, HOLDS_TENSOR = 2, HOLDS_ITEMS = 4 };

/* The container of a value's items; listed: each pair is a list or tuple. */
struct branch {
    const struct cairn_pickle_value *items;
    bool pairs, listed;
};

static const struct cairn_pickle_value *value_at(const struct walk *walk, cairn_pickle_ref ref) {
    return cairn_pickle_at(&walk->file->values, ref);
}

static bool is_sequence(const struct cairn_pickle_value *value) {
    return value->kind == CAIRN_PICKLE_TUPLE || value->kind == CAIRN_PICKLE_LIST ||
           value->kind == CAIRN_PICKLE_SET;
}

static bool find_branch_of_object(const struct walk *walk, const struct cairn_pickle_value *object,
                                  struct branch *ret) {
    const struct cairn_torch_name *name = cairn_torch_maker(&walk->file->values, object);
    const struct cairn_pickle_value *arguments = value_at(walk, object->arguments);
    const struct cairn_pickle_value *state = value_at(walk, object->state), *only;
    if (!name) return false;
    switch (name->meaning) {
    case CAIRN_TORCH_MAP:
        *ret = (struct branch){object, true, false};
        if (object->count || arguments->count != 1) return true;
        only = value_at(walk, arguments->items[0]);
        if (only->kind != CAIRN_PICKLE_DICT && !is_sequence(only)) return true; /* a default */
        /* A map with its items as argument: Counter(dict), and Python 2's OrderedDict, a list of
         * pairs. */
        *ret = (struct branch){only, true, only->kind != CAIRN_PICKLE_DICT};
        if (!ret->listed) return true;
        if (!is_sequence(only)) return false;
        for (uint32_t i = 0; i < only->count; i++) {
            const struct cairn_pickle_value *pair = value_at(walk, only->items[i]);
            if (!is_sequence(pair) || pair->count != 2) return false;
        }
        return true;
    case CAIRN_TORCH_RECORD:
        *ret = (struct branch){state, true, false};
        return state->kind == CAIRN_PICKLE_DICT;
    case CAIRN_TORCH_SEQUENCE:
        only = arguments->count == 1 ? value_at(walk, arguments->items[0]) : arguments;
        *ret = (struct branch){is_sequence(only) ? only : arguments, false, false};
        return true;
    default:
        return false;
    }
}

static bool find_branch(const struct walk *walk, const struct cairn_pickle_value *value,
                        struct branch *ret) {
    *ret = (struct branch){value, value->kind == CAIRN_PICKLE_DICT, false};
    if (value->kind == CAIRN_PICKLE_OBJECT) return find_branch_of_object(walk, value, ret);
    return ret->pairs || is_sequence(value);
}

static uint32_t count_of(const struct branch *branch) {
    return branch->items->count / (branch->pairs && !branch->listed ? 2 : 1);
}

/* The value; *ret_key: a pair's key. */
static cairn_pickle_ref item_at(const struct walk *walk, const struct branch *branch, uint32_t i,
                                cairn_pickle_ref *ret_key) {
    if (!branch->pairs) return branch->items->items[i];
    const cairn_pickle_ref *pair = branch->listed ? value_at(walk, branch->items->items[i])->items
                                                  : branch->items->items + 2 * (size_t)i;
    *ret_key = pair[0];
    return pair[1];
}

/* A key without text is named by its position. */
static enum cairn_code append_key(struct walk *walk, cairn_pickle_ref key, uint32_t position,
                                  struct cairn_error *err) {
    size_t before = walk->path.size;
    bool fits;
    CAIRN_TRY(cairn_torch_key_text(&walk->file->values, key, &walk->path, &fits, err));
    if (fits) return CAIRN_OK;
    walk->path.size = before;
    return cairn_buf_printf(&walk->path, err, "[%u]", position);
}

static bool is_map(const struct walk *walk, const struct cairn_pickle_value *value) {
    if (value->kind == CAIRN_PICKLE_DICT) return true;
    if (value->kind != CAIRN_PICKLE_OBJECT) return false;
    const struct cairn_torch_name *name = cairn_torch_maker(&walk->file->values, value);
    if (name && name->meaning == CAIRN_TORCH_RECORD && cairn_torch_is_foreign(name))
        return value_at(walk, value->state)->kind == CAIRN_PICKLE_DICT;
    return name && name->meaning == CAIRN_TORCH_MAP;
}

static bool is_list(const struct walk *walk, const struct cairn_pickle_value *value) {
    const struct cairn_torch_name *maker = cairn_torch_maker(&walk->file->values, value);
    return value->kind == CAIRN_PICKLE_LIST ||
           (maker && maker->meaning == CAIRN_TORCH_SEQUENCE && strcmp(maker->name, "list") == 0);
}

/* Visits each value once; a recursive or too deep value counts with what is known so far. */
static uint8_t holds_of(struct walk *walk, cairn_pickle_ref ref, unsigned depth) {
    const struct cairn_pickle_value *value = value_at(walk, ref);
    struct branch branch;
    uint8_t found = HOLDS_KNOWN;
    if (walk->holds[ref] & HOLDS_KNOWN || depth > DEPTH_MAX) return walk->holds[ref];
    walk->holds[ref] = found;
    if (cairn_torch_is_tensor(walk->file, ref) || cairn_torch_is_sharded(walk->file, ref))
        return walk->holds[ref] = found | HOLDS_TENSOR;
    if (find_branch(walk, value, &branch)) {
        for (uint32_t i = 0; i < count_of(&branch); i++) {
            cairn_pickle_ref key, item = item_at(walk, &branch, i, &key);
            uint8_t in_it = holds_of(walk, item, depth + 1);
            found |= in_it & HOLDS_TENSOR;
            if (is_list(walk, value_at(walk, item))) found |= in_it & HOLDS_ITEMS;
            if (is_map(walk, value_at(walk, item)) || cairn_torch_is_any_tensor(walk->file, item))
                found |= HOLDS_ITEMS;
        }
    }
    return walk->holds[ref] = found;
}

/* One object in DCP; *ret_tensors: with tensors. */
static bool is_item(struct walk *walk, cairn_pickle_ref ref, bool *ret_tensors) {
    const struct cairn_pickle_value *value = value_at(walk, ref);
    uint8_t found = holds_of(walk, ref, 0);
    *ret_tensors = found & HOLDS_TENSOR;
    return !is_map(walk, value) && !(is_list(walk, value) && found & HOLDS_ITEMS);
}

/* Names are texts of C: a NUL byte would cut one off, and so give the value another name. */
static enum cairn_code visit_nul(struct walk *walk, enum cairn_torch_kind kind,
                                 cairn_pickle_ref ref, struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    CAIRN_TRY(cairn_buf_append(&name, walk->path.data, walk->path.size, err));
    for (size_t i = 0; i < name.size; i++)
        if (!name.data[i]) name.data[i] = '?';
    if (kind == CAIRN_TORCH_LEAF_TENSOR)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "tensor %s: its name has a NUL byte, here a question mark, which no form "
                          "can hold",
                          cairn_short(name.data).text);
    return walk->visit(walk->context, name.data, CAIRN_TORCH_LEAF_NUL, ref, err);
}

static bool has_nul(const struct walk *walk) {
    return walk->path.size && memchr(walk->path.data, 0, walk->path.size);
}

static enum cairn_code visit_leaf(struct walk *walk, enum cairn_torch_kind kind,
                                  cairn_pickle_ref ref, struct cairn_error *err) {
    const struct cairn_pickle *values = &walk->file->values;
    uint64_t most = LEAVES_MIN + LEAVES_EACH * (uint64_t)values->count;
    most = cairn_min_u64(most, LEAVES_MAX);
    if (++walk->leaves > most)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "more than %" PRIu64 " values in a pickle of %zu bytes: they hold each "
                          "other",
                          most, values->read_bytes);
    walk->name_bytes += walk->path.size;
    most = NAME_BYTES_MIN + NAME_BYTES_EACH * (uint64_t)values->read_bytes;
    if (walk->name_bytes > most)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "more than %" PRIu64
                          " bytes of names in a pickle of %zu bytes: its values "
                          "hold each other",
                          most, values->read_bytes);
    if (walk->inside && (kind != CAIRN_TORCH_LEAF_TENSOR || has_nul(walk))) return CAIRN_OK;
    if (walk->inside) kind = CAIRN_TORCH_INSIDE;
    if (has_nul(walk)) return visit_nul(walk, kind, ref, err);
    return walk->visit(walk->context, walk->path.data ? walk->path.data : "", kind, ref, err);
}

static bool is_above(const struct walk *walk, cairn_pickle_ref ref) {
    for (unsigned i = 0; i < walk->depth; i++)
        if (walk->above[i] == ref) return true;
    return false;
}

static enum cairn_code walk_value(struct walk *walk, cairn_pickle_ref ref, struct cairn_error *err);

static enum cairn_code walk_branch(struct walk *walk, const struct branch *branch,
                                   cairn_pickle_ref ref, struct cairn_error *err) {
    if (branch->items->count == 0) return visit_leaf(walk, CAIRN_TORCH_LEAF_EMPTY, ref, err);
    if (is_above(walk, ref)) return visit_leaf(walk, CAIRN_TORCH_LEAF_AGAIN, ref, err);
    if (walk->depth == DEPTH_MAX) return visit_leaf(walk, CAIRN_TORCH_LEAF_DEEP, ref, err);
    walk->above[walk->depth++] = ref;
    size_t before = walk->path.size;
    for (uint32_t i = 0; i < count_of(branch); i++) {
        cairn_pickle_ref key = 0, item = item_at(walk, branch, i, &key);
        if (walk->depth > 1) CAIRN_TRY(cairn_buf_append(&walk->path, ".", 1, err));
        if (branch->pairs)
            CAIRN_TRY(append_key(walk, key, i, err));
        else
            CAIRN_TRY(cairn_buf_printf(&walk->path, err, "%" PRIu32, i));
        CAIRN_TRY(walk_value(walk, item, err));
        walk->path.size = before;
        walk->path.data[before] = '\0';
    }
    walk->depth--;
    return CAIRN_OK;
}

static enum cairn_code walk_value(struct walk *walk, cairn_pickle_ref ref,
                                  struct cairn_error *err) {
    const struct cairn_pickle_value *value = value_at(walk, ref);
    struct branch branch;
    bool tensors = false, item, taken = false;
    if (cairn_torch_is_tensor(walk->file, ref))
        return visit_leaf(walk, CAIRN_TORCH_LEAF_TENSOR, ref, err);
    item = walk->holds && !walk->inside && is_item(walk, ref, &tensors);
    if (item && !tensors) return visit_leaf(walk, CAIRN_TORCH_ITEM, ref, err);
    if (!find_branch(walk, value, &branch)) {
        bool opaque = value->kind == CAIRN_PICKLE_OBJECT ||
                      value->kind == CAIRN_PICKLE_PERSISTENT ||
                      cairn_pickle_unknown_at(&walk->file->values, value);
        return visit_leaf(walk, opaque ? CAIRN_TORCH_LEAF_OPAQUE : CAIRN_TORCH_LEAF_PLAIN, ref,
                          err);
    }
    /* The root is a state dict, whatever its class is. */
    if (item && walk->take && walk->depth && !has_nul(walk))
        CAIRN_TRY(walk->take(walk->context, walk->path.data, ref, &taken, err));
    walk->inside |= taken;
    enum cairn_code code = walk_branch(walk, &branch, ref, err);
    walk->inside &= !taken;
    return code;
}

static enum cairn_code walk_root(struct walk *walk, struct cairn_error *err) {
    walk->path.limit = PATH_BYTES_MAX;
    enum cairn_code code = walk_value(walk, walk->file->values.root, err);
    cairn_buf_release(&walk->path);
    free(walk->holds);
    return code;
}

enum cairn_code cairn_torch_walk(const struct cairn_torch *file, cairn_torch_visit *visit,
                                 void *context, struct cairn_error *err) {
    struct walk walk = {.file = file, .visit = visit, .context = context};
    return walk_root(&walk, err);
}

enum cairn_code cairn_torch_walk_items(const struct cairn_torch *file, cairn_torch_visit *visit,
                                       cairn_torch_take *take, void *context,
                                       struct cairn_error *err) {
    struct walk walk = {.file = file, .visit = visit, .take = take, .context = context};
    walk.holds = calloc(file->values.count, 1);
    if (!walk.holds) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the values of a file");
    return walk_root(&walk, err);
}
