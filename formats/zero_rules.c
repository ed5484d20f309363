/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of patterns, each pattern as a POSIX expression. */
#include "formats/zero_rules.h"

#include <regex.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"

#define PATTERNS_MAX 4096
#define PATTERN_BYTES_MAX 1024
#define INFO "universal_checkpoint_info"
#define VOCABULARY "vocabulary_parameter_patterns"

/* In the order in which DeepSpeed asks for them. */
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
    uint64_t vocabulary_rows; /* 0: the files do not say it */
};

void cairn_zero_rules_free(struct cairn_zero_rules *rules) {
    if (!rules) return;
    for (size_t i = 0; i < rules->count; i++)
        if (rules->patterns[i].compiled) regfree(&rules->patterns[i].expression);
    free(rules->patterns);
    free(rules);
}

/* ---- a pattern of Python as one of POSIX ---- */

static enum cairn_code refuse(struct cairn_view text, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      INFO ": the pattern %.*s says more than this reader understands",
                      (int)cairn_min_u64(text.size, 100), (const char *)text.data);
}

static enum cairn_code translate(struct cairn_view text, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    static const char *const classes[] = {"d[0-9]", "D[^0-9]", "w[A-Za-z0-9_]", "W[^A-Za-z0-9_]",
                                          "s[[:space:]]", "S[^[:space:]]"};
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
        if (!next || (!class && (letter || (next >= '0' && next <= '9'))))
            return refuse(text, err);
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
        return cairn_fail(err, CAIRN_INVALID, INFO ": %s has what is no text", lists[list].key);
    CAIRN_TRY(translate(value->text, &text, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(rules->patterns, rules->count, rules->capacity, PATTERNS_MAX,
                               "patterns of parameters", err));
    struct pattern *pattern = &rules->patterns[rules->count++];
    *pattern = (struct pattern){.list = list};
    pattern->compiled = regcomp(&pattern->expression, text.data, REG_EXTENDED | REG_NOSUB) == 0;
    return pattern->compiled ? CAIRN_OK : refuse(value->text, err);
}

/* ---- the lists ---- */

/* Of sub-parameters each item is a record with patterns of its own. */
static enum cairn_code add_item(struct cairn_zero_rules *rules, const struct cairn_zero_file *file,
                                size_t list, cairn_pickle_ref item, struct cairn_error *err) {
    cairn_pickle_ref patterns;
    if (!cairn_pickle_find(&file->torch.values, item, "patterns", &patterns))
        return add_pattern(rules, list, cairn_zero_value(file, item), err);
    const struct cairn_pickle_value *texts = cairn_zero_value(file, patterns);
    if (texts->kind != CAIRN_PICKLE_LIST)
        return cairn_fail(err, CAIRN_INVALID, INFO ": patterns of %s are no list",
                          lists[list].key);
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

enum cairn_code cairn_zero_rules_read(const struct cairn_zero *zero, struct cairn_zero_rules **ret,
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
        cairn_zero_rules_free(rules);
    return code;
}

static bool matches(const struct cairn_zero_rules *rules, size_t list, const char *name) {
    for (size_t i = 0; i < rules->count; i++)
        if (rules->patterns[i].list == list &&
            regexec(&rules->patterns[i].expression, name, 0, NULL, 0) == 0)
            return true;
    return false;
}

enum cairn_code cairn_zero_rules_find(const struct cairn_zero_rules *rules, const char *name,
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
