/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the user, of Megatron's names and of the checkpoint, and the join by rule. */
#include "formats/zero/inside.h"

#include <fnmatch.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"

enum cairn_zero_rule {
    CAIRN_ZERO_UNKNOWN,
    CAIRN_ZERO_CAT,     /* slices are concatenated in a dimension */
    CAIRN_ZERO_HALVES,  /* two tensors stacked, each cut in dimension 0 */
    CAIRN_ZERO_SAME,    /* each rank has the whole */
    CAIRN_ZERO_AVERAGE, /* as SAME, but ranks may have diverged */
};
struct cairn_zero_cut {
    enum cairn_zero_rule rule;
    unsigned dimension; /* of CAIRN_ZERO_CAT */
    uint64_t rows;      /* rows of the whole, if fewer than the slices'; else 0 */
};
enum cairn_zero_need {
    CAIRN_ZERO_NEEDS_NOTHING,
    CAIRN_ZERO_NEEDS_VERSION, /* checkpoint_version 2 or later: earlier ones interleave rows */
    CAIRN_ZERO_NEEDS_MATE,    /* as many rows as dense_4h_to_h has columns: it has no gate */
};
struct cairn_zero_rules;

#define RULES_MAX 256
#define RULE_BYTES_MAX 1024
#define SAYS                                                                                       \
    "--tp-rule %s: it is GLOB=RULE, RULE a dimension (0 to 7), 0:ROWS, halves or replicated"

struct cairn_zero_told_rule {
    char glob[RULE_BYTES_MAX + 1];
    struct cairn_zero_cut cut;
    bool used;
};

void cairn_zero_told_release(struct cairn_zero_told *told) {
    free(told->rules);
    *told = (struct cairn_zero_told){0};
}

static bool read_cut(const char *text, struct cairn_zero_cut *ret) {
    *ret = (struct cairn_zero_cut){0};
    if (strcmp(text, "replicated") == 0) ret->rule = CAIRN_ZERO_SAME;
    if (strcmp(text, "halves") == 0) ret->rule = CAIRN_ZERO_HALVES;
    if (ret->rule) return true;
    if (text[0] < '0' || text[0] > '7') return false;
    ret->rule = CAIRN_ZERO_CAT;
    ret->dimension = (unsigned)(text[0] - '0');
    if (!text[1]) return true;
    return strncmp(text, "0:", 2) == 0 &&
           cairn_parse_u64(cairn_view_of(text + 2), &ret->rows, NULL) == CAIRN_OK && ret->rows;
}

enum cairn_code cairn_zero_told_parse(const char *text, struct cairn_zero_told *ret,
                                      struct cairn_error *err) {
    while (text) {
        const char *end = strchr(text, ',');
        size_t size = end ? (size_t)(end - text) : strlen(text);
        char own[RULE_BYTES_MAX + 1];
        if (size > RULE_BYTES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "--tp-rule: a rule of more than %d bytes",
                              RULE_BYTES_MAX);
        memcpy(own, text, size);
        own[size] = '\0';
        CAIRN_TRY(CAIRN_ARRAY_ROOM(ret->rules, ret->count, ret->capacity, RULES_MAX, "rules", err));
        struct cairn_zero_told_rule *rule = &ret->rules[ret->count];
        *rule = (struct cairn_zero_told_rule){0};
        char *equal = strrchr(own, '=');
        if (!equal || equal == own || !read_cut(equal + 1, &rule->cut))
            return cairn_fail(err, CAIRN_INVALID, SAYS, cairn_short(own).text);
        memcpy(rule->glob, own, (size_t)(equal - own));
        ret->count++;
        text = end ? end + 1 : NULL;
    }
    return CAIRN_OK;
}

static bool find_told_rule(struct cairn_zero_told *told, const char *name,
                           struct cairn_zero_cut *ret) {
    for (size_t i = 0; i < told->count; i++) {
        struct cairn_zero_told_rule *rule = &told->rules[i];
        if (fnmatch(rule->glob, name, 0) != 0) continue;
        rule->used = true;
        *ret = rule->cut;
        return true;
    }
    return false;
}

enum cairn_code cairn_zero_told_check(const struct cairn_zero_told *told, struct cairn_error *err) {
    for (size_t i = 0; i < told->count; i++)
        if (!told->rules[i].used)
            return cairn_fail(err, CAIRN_INVALID,
                              "--tp-rule %s: no parameter has such a name, or an earlier rule is "
                              "like all that have",
                              cairn_short(told->rules[i].glob).text);
    return CAIRN_OK;
}

/* Name endings, in whole words. ColumnParallelLinear, named for the transposed matrix, cuts rows;
 * RowParallelLinear cuts columns. */
static const struct {
    const char *end;
    enum cairn_zero_rule rule;
    unsigned dimension;
    enum cairn_zero_need need;
} megatron[] = {
    {"word_embeddings.weight", CAIRN_ZERO_CAT, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"query_key_value.weight", CAIRN_ZERO_CAT, 0, CAIRN_ZERO_NEEDS_VERSION},
    {"query_key_value.bias", CAIRN_ZERO_CAT, 0, CAIRN_ZERO_NEEDS_VERSION},
    {"mlp.dense_h_to_4h.weight", CAIRN_ZERO_CAT, 0, CAIRN_ZERO_NEEDS_MATE},
    {"mlp.dense_h_to_4h.bias", CAIRN_ZERO_CAT, 0, CAIRN_ZERO_NEEDS_MATE},
    {"self_attention.dense.weight", CAIRN_ZERO_CAT, 1, CAIRN_ZERO_NEEDS_NOTHING},
    {"attention.dense.weight", CAIRN_ZERO_CAT, 1, CAIRN_ZERO_NEEDS_NOTHING},
    {"mlp.dense_4h_to_h.weight", CAIRN_ZERO_CAT, 1, CAIRN_ZERO_NEEDS_NOTHING},
    {"self_attention.dense.bias", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"attention.dense.bias", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"mlp.dense_4h_to_h.bias", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"input_layernorm.weight", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"input_layernorm.bias", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"post_attention_layernorm.weight", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"post_attention_layernorm.bias", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"final_layernorm.weight", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"final_layernorm.bias", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
    {"position_embeddings.weight", CAIRN_ZERO_SAME, 0, CAIRN_ZERO_NEEDS_NOTHING},
};

static bool find_megatron_rule(const char *name, struct cairn_zero_cut *ret,
                               enum cairn_zero_need *ret_need) {
    size_t size = strlen(name);
    for (size_t i = 0; i < CAIRN_COUNT(megatron); i++) {
        size_t end = strlen(megatron[i].end);
        if (size < end || strcmp(name + size - end, megatron[i].end) != 0) continue;
        if (size > end && name[size - end - 1] != '.') continue;
        *ret = (struct cairn_zero_cut){megatron[i].rule, megatron[i].dimension, 0};
        *ret_need = megatron[i].need;
        return true;
    }
    return false;
}

/* ---- the checkpoint's patterns, as POSIX expressions ---- */

#define PATTERNS_MAX 4096
#define PATTERN_BYTES_MAX 1024
#define INFO "universal_checkpoint_info"
#define VOCABULARY "vocabulary_parameter_patterns"

/* In the order in which DeepSpeed tries them. */
static const struct {
    const char *key;
    bool unsupported;
    enum cairn_zero_rule rule;
    unsigned dimension;
} lists[] = {
    {"autotp_unsupported_parameter_patterns", true, 0, 0},
    {"tp_replicated_parameter_patterns", false, CAIRN_ZERO_SAME, 0},
    {"parameter_to_average_patterns", false, CAIRN_ZERO_AVERAGE, 0},
    {"parameter_with_2_sub_params_cat_dim_0", false, CAIRN_ZERO_HALVES, 0},
    {"parameter_with_sub_params", true, 0, 0},
    {"parameter_with_row_parallelism_patterns", false, CAIRN_ZERO_CAT, 1},
    {VOCABULARY, false, CAIRN_ZERO_CAT, 0},
};
struct pattern {
    size_t list;
    bool compiled;
    regex_t expression;
};
struct cairn_zero_rules {
    struct pattern *patterns;
    size_t count, capacity;
    uint64_t vocabulary_rows; /* 0: not stated */
};

static void free_rules(struct cairn_zero_rules *rules) {
    if (!rules) return;
    for (size_t i = 0; i < rules->count; i++)
        if (rules->patterns[i].compiled) regfree(&rules->patterns[i].expression);
    free(rules->patterns);
    free(rules);
}

static enum cairn_code refuse(struct cairn_view text, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      INFO ": the pattern %.*s says more than this reader understands",
                      (int)cairn_min_u64(text.size, 100), (const char *)text.data);
}

static enum cairn_code translate(struct cairn_view text, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    static const char *const classes[] = {"d[0-9]",         "D[^0-9]",      "w[A-Za-z0-9_]",
                                          "W[^A-Za-z0-9_]", "s[[:space:]]", "S[^[:space:]]"};
    const char *data = text.data;
    if (text.size > PATTERN_BYTES_MAX || memchr(data, 0, text.size)) return refuse(text, err);
    CAIRN_TRY(cairn_buf_append_text(ret, "^(", err));
    for (size_t i = 0; i < text.size; i++) {
        char next = i + 1 < text.size ? data[i + 1] : '\0';
        if ((strchr("*+?}", data[i]) && next && strchr("?+", next)) ||
            (data[i] == '(' && next == '?') || data[i] == '{')
            return refuse(text, err);
        if (data[i] != '\\') {
            CAIRN_TRY(cairn_buf_append(ret, &data[i], 1, err));
            continue;
        }
        const char *class = NULL;
        for (size_t c = 0; c < CAIRN_COUNT(classes); c++)
            if (classes[c][0] == next) class = classes[c] + 1;
        bool letter = (next | 32) >= 'a' && (next | 32) <= 'z';
        if (!next || (!class && (letter || (next >= '0' && next <= '9')))) return refuse(text, err);
        if (class)
            CAIRN_TRY(cairn_buf_append_text(ret, class, err));
        else
            CAIRN_TRY(cairn_buf_append(ret, &data[i], 2, err));
        i++;
    }
    return cairn_buf_append_text(ret, ")", err);
}

static enum cairn_code add_pattern(struct cairn_zero_rules *rules, size_t list,
                                   const struct cairn_pickle_value *value,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    if (value->kind != CAIRN_PICKLE_TEXT)
        return cairn_fail(err, CAIRN_INVALID, INFO ": %s has an entry that is no text",
                          lists[list].key);
    CAIRN_TRY(translate(value->text, &text, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(rules->patterns, rules->count, rules->capacity, PATTERNS_MAX,
                               "patterns of parameters", err));
    struct pattern *pattern = &rules->patterns[rules->count++];
    *pattern = (struct pattern){.list = list};
    pattern->compiled = regcomp(&pattern->expression, text.data, REG_EXTENDED | REG_NOSUB) == 0;
    return pattern->compiled ? CAIRN_OK : refuse(value->text, err);
}

/* An item of sub-parameters is a record with its own patterns. */
static enum cairn_code add_item(struct cairn_zero_rules *rules, const struct cairn_zero_file *file,
                                size_t list, cairn_pickle_ref item, struct cairn_error *err) {
    cairn_pickle_ref patterns;
    if (!cairn_pickle_find(&file->torch.values, item, "patterns", &patterns))
        return add_pattern(rules, list, cairn_zero_value(file, item), err);
    const struct cairn_pickle_value *texts = cairn_zero_value(file, patterns);
    if (texts->kind != CAIRN_PICKLE_LIST)
        return cairn_fail(err, CAIRN_INVALID, INFO ": patterns of %s are no list", lists[list].key);
    for (uint32_t i = 0; i < texts->count; i++)
        CAIRN_TRY(add_pattern(rules, list, cairn_zero_value(file, texts->items[i]), err));
    return CAIRN_OK;
}

static enum cairn_code add_list(struct cairn_zero_rules *rules, const struct cairn_zero_file *file,
                                cairn_pickle_ref info, size_t list, struct cairn_error *err) {
    cairn_pickle_ref ref;
    if (!cairn_pickle_find(&file->torch.values, info, lists[list].key, &ref)) return CAIRN_OK;
    const struct cairn_pickle_value *items = cairn_zero_value(file, ref);
    if (items->kind == CAIRN_PICKLE_NONE) return CAIRN_OK;
    if (items->kind != CAIRN_PICKLE_LIST && items->kind != CAIRN_PICKLE_TUPLE)
        return cairn_fail(err, CAIRN_INVALID, INFO ": %s is no list", lists[list].key);
    for (uint32_t i = 0; i < items->count; i++)
        CAIRN_TRY(add_item(rules, file, list, items->items[i], err));
    return CAIRN_OK;
}

static bool find_info(const struct cairn_zero *zero, const struct cairn_zero_file **ret_file,
                      cairn_pickle_ref *ret) {
    const struct cairn_pickle *values = &zero->models[0].torch.values;
    cairn_pickle_ref optimizer;
    *ret_file = &zero->models[0];
    if (cairn_pickle_find(values, values->root, INFO, ret)) return true;
    if (!zero->rank_count) return false;
    *ret_file = &zero->optimizers[0];
    values = &zero->optimizers[0].torch.values;
    return cairn_pickle_find(values, values->root, "optimizer_state_dict", &optimizer) &&
           cairn_pickle_find(values, optimizer, INFO, ret);
}

static enum cairn_code read_rules(const struct cairn_zero_file *file, cairn_pickle_ref info,
                                  struct cairn_zero_rules *rules, struct cairn_error *err) {
    cairn_pickle_ref ref;
    if (cairn_pickle_find(&file->torch.values, info, "affine_map", &ref) &&
        cairn_zero_value(file, ref)->count)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "%s: " INFO " has an affine_map", file->name);
    for (size_t i = 0; i < CAIRN_COUNT(lists); i++) {
        enum cairn_code code = add_list(rules, file, info, i, err);
        if (code) return cairn_within(err, code, "%s", file->name);
    }
    if (!cairn_pickle_find(&file->torch.values, info, "original_vocab_size", &ref)) return CAIRN_OK;
    const struct cairn_pickle_value *rows = cairn_zero_value(file, ref);
    if (rows->kind != CAIRN_PICKLE_INTEGER || rows->integer <= 0)
        return cairn_fail(err, CAIRN_INVALID, "%s: original_vocab_size is no size", file->name);
    rules->vocabulary_rows = (uint64_t)rows->integer;
    return CAIRN_OK;
}

static enum cairn_code rules_of(const struct cairn_zero *zero, struct cairn_zero_rules **ret,
                                struct cairn_error *err) {
    const struct cairn_zero_file *file;
    cairn_pickle_ref info;
    *ret = NULL;
    if (!find_info(zero, &file, &info)) return CAIRN_OK;
    struct cairn_zero_rules *rules = calloc(1, sizeof *rules);
    if (!rules) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for patterns");
    enum cairn_code code = read_rules(file, info, rules, err);
    if (code == CAIRN_OK)
        *ret = rules;
    else
        free_rules(rules);
    return code;
}

static bool matches(const struct cairn_zero_rules *rules, size_t list, const char *name) {
    for (size_t i = 0; i < rules->count; i++)
        if (rules->patterns[i].list == list &&
            regexec(&rules->patterns[i].expression, name, 0, NULL, 0) == 0)
            return true;
    return false;
}

static enum cairn_code find_pattern_rule(const struct cairn_zero_rules *rules, const char *name,
                                         struct cairn_zero_cut *ret, struct cairn_error *err) {
    size_t list = 0;
    *ret = (struct cairn_zero_cut){.rule = CAIRN_ZERO_CAT};
    while (list < CAIRN_COUNT(lists) && !matches(rules, list, name)) list++;
    if (list < CAIRN_COUNT(lists) && lists[list].unsupported)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%s: it is cut as %s, which this reader does not put together",
                          cairn_short(name).text, lists[list].key);
    if (list < CAIRN_COUNT(lists))
        *ret = (struct cairn_zero_cut){lists[list].rule, lists[list].dimension, 0};
    if (matches(rules, CAIRN_COUNT(lists) - 1, name)) {
        if (!rules->vocabulary_rows)
            return cairn_fail(err, CAIRN_INVALID, "%s: of its rows no original_vocab_size is told",
                              cairn_short(name).text);
        ret->rows = rules->vocabulary_rows;
    }
    return CAIRN_OK;
}

/* ---- joining: each tensor once, with its slices as boxes ---- */

#define COMPARED_BYTES (64 * 1024)

struct join {
    const struct cairn_zero_part *parts;
    size_t count;
    struct cairn_zero_rules *rules; /* NULL: the checkpoint has none */
    struct cairn_zero_told *told;
    struct cairn_zero_cut *cuts; /* found so far, by index of the parameter in rank 0 */
    struct cairn_assembly *assembly;
    const struct cairn_assembly_tensor **slices; /* of one tensor, by rank */
};

enum cairn_code cairn_zero_same(const struct cairn_assembly *a,
                                const struct cairn_assembly_tensor *of_a,
                                const struct cairn_assembly *b,
                                const struct cairn_assembly_tensor *of_b, bool *ret,
                                struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *bytes = malloc(2 * COMPARED_BYTES);
    if (!bytes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare tensors");
    *ret = of_a->dtype == of_b->dtype && of_a->dimension_count == of_b->dimension_count &&
           memcmp(of_a->shape, of_b->shape, sizeof of_a->shape) == 0;
    for (uint64_t at = 0; *ret && at < of_a->size_bytes; at += COMPARED_BYTES) {
        uint64_t some = cairn_min_u64(of_a->size_bytes - at, COMPARED_BYTES);
        CAIRN_TRY(cairn_assembly_read(a, of_a, at, bytes, some, err));
        CAIRN_TRY(cairn_assembly_read(b, of_b, at, bytes + COMPARED_BYTES, some, err));
        *ret = memcmp(bytes, bytes + COMPARED_BYTES, some) == 0;
    }
    return CAIRN_OK;
}

/* Maps elements [from, from + elements of the box) of a slice to the box of the whole. */
static enum cairn_code add_box(struct join *join, size_t rank, uint64_t from,
                               const struct cairn_box *box, struct cairn_error *err) {
    const struct cairn_assembly_tensor *slice = join->slices[rank];
    const struct cairn_assembly *assembly = &join->parts[rank].assembly;
    uint64_t width = cairn_dtype_bits(slice->dtype) / 8, first = 0, skip = from * width;
    uint64_t left = cairn_box_elements(box, slice->dimension_count) * width;
    CAIRN_ASSERT(!slice->boxed);
    for (size_t p = 0; p < slice->piece_count && left; p++) {
        struct cairn_assembly_piece piece = assembly->pieces[slice->piece_first + p];
        if (skip >= piece.size_bytes) {
            skip -= piece.size_bytes;
            continue;
        }
        CAIRN_TRY(cairn_assembly_add_input(join->assembly, assembly->inputs[piece.input],
                                           &piece.input, err));
        piece.offset_bytes += skip;
        piece.size_bytes = cairn_min_u64(piece.size_bytes - skip, left);
        CAIRN_TRY(cairn_assembly_add_box(join->assembly, &piece, box, first / width, err));
        first += piece.size_bytes;
        left -= piece.size_bytes;
        skip = 0;
    }
    return CAIRN_OK;
}

/* Sums the sizes along the cut dimension; all others must agree. */
static enum cairn_code sum_sizes(const struct join *join, unsigned dimension, unsigned layers,
                                 uint64_t *whole, struct cairn_error *err) {
    const struct cairn_assembly_tensor *first = join->slices[0];
    if (dimension >= first->dimension_count)
        return cairn_fail(err, CAIRN_INVALID, "it has no dimension %u to be cut in", dimension);
    memcpy(whole, first->shape, sizeof first->shape);
    whole[dimension] = 0;
    for (size_t r = 0; r < join->count; r++) {
        const struct cairn_assembly_tensor *slice = join->slices[r];
        bool fits = slice->dtype == first->dtype &&
                    slice->dimension_count == first->dimension_count &&
                    slice->shape[dimension] % layers == 0 &&
                    slice->shape[dimension] <= UINT64_MAX - whole[dimension];
        for (unsigned d = 0; fits && d < first->dimension_count; d++)
            fits = d == dimension || slice->shape[d] == first->shape[d];
        if (!fits)
            return cairn_fail(err, CAIRN_INVALID, "tensor parallel rank %zu has another form of it",
                              r);
        whole[dimension] += slice->shape[dimension];
    }
    return CAIRN_OK;
}

/* *ret: the first rank whose bytes differ from rank 0's; 0: none. */
static enum cairn_code find_other(const struct join *join, size_t *ret, struct cairn_error *err) {
    bool same = true;
    for (*ret = 1; *ret < join->count; (*ret)++) {
        CAIRN_TRY(cairn_zero_same(&join->parts[0].assembly, join->slices[0],
                                  &join->parts[*ret].assembly, join->slices[*ret], &same, err));
        if (!same) return CAIRN_OK;
    }
    *ret = 0;
    return CAIRN_OK;
}

static enum cairn_code take_first(struct join *join, struct cairn_error *err) {
    const struct cairn_assembly_tensor *first = join->slices[0];
    CAIRN_TRY(cairn_assembly_add_tensor(join->assembly, first->name, first->dtype,
                                        first->dimension_count, first->shape, err));
    return cairn_assembly_copy_pieces(&join->parts[0].assembly, first, join->assembly, err);
}

static enum cairn_code take_one(struct join *join, const char *what, struct cairn_error *err) {
    size_t other;
    CAIRN_TRY(find_other(join, &other, err));
    if (!other) return take_first(join, err);
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "tensor parallel ranks 0 and %zu differ in it, and it is %s", other, what);
}

/* True if all elements are equal. */
static enum cairn_code is_constant(const struct cairn_assembly *assembly,
                                   const struct cairn_assembly_tensor *tensor, bool *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *bytes = malloc(COMPARED_BYTES);
    size_t width = cairn_dtype_bits(tensor->dtype) / 8;
    char value[16];
    if (!bytes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to compare tensors");
    *ret = width > 0 && width <= sizeof value;
    for (uint64_t at = 0; *ret && at < tensor->size_bytes; at += COMPARED_BYTES) {
        uint64_t some = cairn_min_u64(tensor->size_bytes - at, COMPARED_BYTES);
        CAIRN_TRY(cairn_assembly_read(assembly, tensor, at, bytes, some, err));
        if (at == 0) memcpy(value, bytes, width);
        for (uint64_t i = 0; *ret && i < some; i += width)
            *ret = memcmp(bytes + i, value, width) == 0;
    }
    return CAIRN_OK;
}

/* ---- rules from names and contents ---- */

static enum cairn_code not_told(const char *why, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "without universal_checkpoint_info nobody says how tensor ranks cut it: %s. "
                      "--tp-rule NAME=RULE does: RULE is the dimension, halves or replicated",
                      why);
}

/* A gated layer stacks two matrices: twice as many rows as the next layer has columns. */
static bool has_no_gate(const struct join *join, const char *parameter) {
    static const char word[] = "dense_h_to_4h.";
    const struct cairn_assembly *assembly = &join->parts[0].assembly;
    const char *at = strstr(parameter, word);
    char mate[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    size_t own, next;
    snprintf(mate, sizeof mate, "%.*sdense_4h_to_h.weight", (int)(at - parameter), parameter);
    return cairn_assembly_find(assembly, parameter, &own) &&
           cairn_assembly_find(assembly, mate, &next) &&
           assembly->tensors[next].dimension_count == 2 &&
           assembly->tensors[next].shape[1] == assembly->tensors[own].shape[0];
}

static bool has_version_2(const struct join *join) {
    const struct cairn_pickle *values = &join->parts[0].zero->models[0].torch.values;
    cairn_pickle_ref ref;
    if (!cairn_pickle_find(values, values->root, "checkpoint_version", &ref)) return false;
    const struct cairn_pickle_value *version = cairn_pickle_at(values, ref);
    return version->kind == CAIRN_PICKLE_REAL      ? version->real >= 2
           : version->kind == CAIRN_PICKLE_INTEGER ? version->integer >= 2
                                                   : false;
}

/* Derives a parameter's rule from its name and its ranks' contents. */
static enum cairn_code learn(struct join *join, const char *parameter, struct cairn_zero_cut *ret,
                             struct cairn_error *err) {
    enum cairn_zero_need need = CAIRN_ZERO_NEEDS_NOTHING;
    size_t other = 0;
    bool constant = false;
    if (find_megatron_rule(parameter, ret, &need)) {
        if (need == CAIRN_ZERO_NEEDS_VERSION && !has_version_2(join))
            return not_told("no checkpoint_version of 2 or more says in which order its "
                            "rows are",
                            err);
        if (need == CAIRN_ZERO_NEEDS_MATE && !has_no_gate(join, parameter))
            return not_told("it may be two matrices of a gated layer", err);
        return CAIRN_OK;
    }
    CAIRN_TRY(find_other(join, &other, err));
    if (other) return not_told("the ranks differ in it", err);
    CAIRN_TRY(is_constant(&join->parts[0].assembly, join->slices[0], &constant, err));
    if (constant)
        return not_told("all its elements are one value, so equal slices say nothing", err);
    *ret = (struct cairn_zero_cut){.rule = CAIRN_ZERO_SAME};
    return CAIRN_OK;
}

/* Optimizer state follows its parameter and uses its rule. */
static enum cairn_code learn_once(struct join *join, const char *parameter,
                                  struct cairn_zero_cut *ret, struct cairn_error *err) {
    size_t at;
    bool found = cairn_assembly_find(&join->parts[0].assembly, parameter, &at);
    if (found && join->cuts[at].rule) {
        *ret = join->cuts[at];
        return CAIRN_OK;
    }
    CAIRN_TRY(learn(join, parameter, ret, err));
    if (found) join->cuts[at] = *ret;
    return CAIRN_OK;
}

static enum cairn_code join_slices(struct join *join, struct cairn_error *err) {
    const struct cairn_assembly_tensor *first = join->slices[0];
    char parameter[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    uint64_t whole[CAIRN_DIMENSIONS_MAX];
    struct cairn_zero_cut cut = {0};
    /* Optimizer state is cut like its parameter. */
    size_t size = strlen(CAIRN_ASSEMBLY_OPTIMIZER);
    bool state = strncmp(first->name, CAIRN_ASSEMBLY_OPTIMIZER, size) == 0;
    snprintf(parameter, sizeof parameter, "%s", state ? first->name + size : first->name);
    char *dot = state ? strrchr(parameter, '.') : NULL;
    if (dot) *dot = '\0';
    if (first->dimension_count == 0) return take_one(join, "a number that is not cut", err);
    bool told = find_told_rule(join->told, parameter, &cut);
    if (!told && cairn_zero_is_buffer(&join->parts[0].zero->models[0], parameter))
        return take_one(join, "a buffer, of which no rule says how it is cut", err);
    if (!told && join->rules) CAIRN_TRY(find_pattern_rule(join->rules, parameter, &cut, err));
    if (!told && !join->rules) CAIRN_TRY(learn_once(join, parameter, &cut, err));
    if (cut.rule == CAIRN_ZERO_SAME) return take_one(join, "told to be the same", err);
    if (cut.rule == CAIRN_ZERO_AVERAGE) return take_one(join, "told to be averaged", err);
    unsigned dimension = cut.dimension, layers = 1 + (cut.rule == CAIRN_ZERO_HALVES);
    CAIRN_TRY(sum_sizes(join, dimension, layers, whole, err));
    if (cut.rows && (dimension || layers > 1))
        return cairn_fail(err, CAIRN_UNSUPPORTED, "a vocabulary that is not cut in its rows");
    if (cut.rows && cut.rows < whole[0]) whole[0] = cut.rows;
    CAIRN_TRY(cairn_assembly_add_tensor(join->assembly, first->name, first->dtype,
                                        first->dimension_count, whole, err));
    /* Slices are concatenated in one dimension, in each of `layers` layers. */
    uint64_t at = 0;
    for (unsigned layer = 0; layer < layers; layer++) {
        for (size_t r = 0; r < join->count && at < whole[dimension]; r++) {
            const struct cairn_assembly_tensor *slice = join->slices[r];
            struct cairn_box box = {0};
            memcpy(box.count, slice->shape, sizeof box.count);
            box.count[dimension] /= layers;
            uint64_t from = layer * cairn_box_elements(&box, slice->dimension_count);
            box.start[dimension] = at;
            at += box.count[dimension];
            if (at > whole[dimension]) box.count[dimension] -= at - whole[dimension];
            if (slice->size_bytes) CAIRN_TRY(add_box(join, r, from, &box, err));
        }
    }
    return CAIRN_OK;
}

/* Finds the name in every rank's assembly, mostly at the same index. */
static enum cairn_code find_slices(struct join *join, size_t index, struct cairn_error *err) {
    const char *name = join->parts[0].assembly.tensors[index].name;
    for (size_t r = 0; r < join->count; r++) {
        const struct cairn_assembly *assembly = &join->parts[r].assembly;
        size_t at = index;
        if ((at >= assembly->tensor_count || strcmp(assembly->tensors[at].name, name) != 0) &&
            !cairn_assembly_find(assembly, name, &at))
            return cairn_fail(err, CAIRN_INVALID, "tensor parallel rank %zu has none", r);
        join->slices[r] = &assembly->tensors[at];
        bool alias = join->slices[r]->alias_of != CAIRN_ASSEMBLY_NO_ALIAS;
        if (alias != (join->slices[0]->alias_of != CAIRN_ASSEMBLY_NO_ALIAS))
            return cairn_fail(err, CAIRN_INVALID, "tensor parallel rank %zu shares it otherwise",
                              r);
    }
    return CAIRN_OK;
}

static enum cairn_code join_all(struct join *join, struct cairn_error *err) {
    const struct cairn_assembly *first = &join->parts[0].assembly;
    for (size_t r = 1; r < join->count; r++)
        if (join->parts[r].assembly.tensor_count != first->tensor_count)
            return cairn_fail(err, CAIRN_INVALID,
                              "tensor parallel rank %zu has %zu tensors, rank 0 has %zu", r,
                              join->parts[r].assembly.tensor_count, first->tensor_count);
    for (size_t i = 0; i < first->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &first->tensors[i];
        enum cairn_code code = find_slices(join, i, err);
        if (code == CAIRN_OK)
            code =
                tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS
                    ? join_slices(join, err)
                    : cairn_assembly_add_alias(join->assembly, tensor->name, tensor->alias_of, err);
        if (code) return cairn_within(err, code, "%s", cairn_short(tensor->name).text);
        join->assembly->tensors[join->assembly->tensor_count - 1].frozen = tensor->frozen;
    }
    join->assembly->knows_frozen = first->knows_frozen;
    for (size_t i = 0; i < first->left_out_count; i++)
        CAIRN_TRY(cairn_assembly_leave_out(join->assembly, first->left_out[i].name,
                                           first->left_out[i].why, err));
    return CAIRN_OK;
}

enum cairn_code cairn_zero_parallel_join(const struct cairn_zero_part *parts, size_t count,
                                         struct cairn_zero_told *told,
                                         struct cairn_assembly *assembly, struct cairn_error *err) {
    struct join join = {.parts = parts, .count = count, .told = told, .assembly = assembly};
    CAIRN_AUTO_HEAP const struct cairn_assembly_tensor **slices = calloc(count, sizeof *slices);
    if (!slices) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for ranks");
    join.slices = slices;
    CAIRN_AUTO_HEAP struct cairn_zero_cut *cuts =
        calloc(parts[0].assembly.tensor_count + 1, sizeof *cuts);
    if (!cuts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for tensors");
    join.cuts = cuts;
    for (size_t r = 0; r < count; r++)
        CAIRN_TRY(cairn_assembly_copy_seals(assembly, &parts[r].assembly, err));
    enum cairn_code code = rules_of(parts[0].zero, &join.rules, err);
    if (code == CAIRN_OK) code = join_all(&join, err);
    free_rules(join.rules);
    return code;
}
