/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of a person, and the table of Megatron's names. */
#include "formats/zero_told.h"

#include <fnmatch.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"

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

static enum cairn_code add_rule(struct cairn_zero_told *told, const char *text, size_t size,
                                struct cairn_error *err) {
    char own[RULE_BYTES_MAX + 1];
    if (size > RULE_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "--tp-rule: a rule of more than %d bytes",
                          RULE_BYTES_MAX);
    memcpy(own, text, size);
    own[size] = '\0';
    CAIRN_TRY(CAIRN_ARRAY_ROOM(told->rules, told->count, told->capacity, RULES_MAX, "rules", err));
    struct cairn_zero_told_rule *rule = &told->rules[told->count];
    *rule = (struct cairn_zero_told_rule){0};
    char *equal = strrchr(own, '=');
    if (!equal || equal == own || !read_cut(equal + 1, &rule->cut))
        return cairn_fail(err, CAIRN_INVALID, SAYS, cairn_short(own).text);
    memcpy(rule->glob, own, (size_t)(equal - own));
    told->count++;
    return CAIRN_OK;
}

enum cairn_code cairn_zero_told_parse(const char *text, struct cairn_zero_told *ret,
                                      struct cairn_error *err) {
    while (text) {
        const char *end = strchr(text, ',');
        CAIRN_TRY(add_rule(ret, text, end ? (size_t)(end - text) : strlen(text), err));
        text = end ? end + 1 : NULL;
    }
    return CAIRN_OK;
}

bool cairn_zero_told_find(struct cairn_zero_told *told, const char *name,
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

/* ---- Megatron ---- */

/* Ends of names, of whole words. Rows of a matrix are what ColumnParallelLinear cuts, which is
 * named for the transposed one; columns are what RowParallelLinear cuts. */
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

bool cairn_zero_megatron_find(const char *name, struct cairn_zero_cut *ret,
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
