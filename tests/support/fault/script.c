/* SPDX-License-Identifier: Apache-2.0 */
/* See tests/support/fault/fault.h for the language. */
#include "tests/support/fault/script.h"

#include <fnmatch.h>

#include "common/text.h"

static const struct {
    const char *name;
    enum cairn_store_fault_action action;
    bool has_argument;
} action_names[] = {
    {"lose_reply", CAIRN_STORE_FAULT_LOSE_REPLY, false},
    {"delay", CAIRN_STORE_FAULT_DELAY, true},
    {"hang", CAIRN_STORE_FAULT_HANG, false},
    {"flip", CAIRN_STORE_FAULT_FLIP, true},
    {"short", CAIRN_STORE_FAULT_SHORT, true},
};

static bool equals(struct cairn_view view, const char *text) {
    return view.size == strlen(text) && memcmp(view.data, text, view.size) == 0;
}

static struct cairn_view trimmed(const char *start, const char *end) {
    while (start < end && *start == ' ') start++;
    while (end > start && end[-1] == ' ') end--;
    return (struct cairn_view){start, (size_t)(end - start)};
}

/* Cuts text at the first separator; what is behind it stays in *rest. */
static struct cairn_view cut(struct cairn_view *rest, char separator) {
    const char *start = rest->data, *end = start + rest->size;
    const char *at = memchr(start, separator, rest->size);
    *rest = at ? (struct cairn_view){at + 1, (size_t)(end - at - 1)} : (struct cairn_view){end, 0};
    return trimmed(start, at ? at : end);
}

/* ---- fields ---- */

static bool parse_op(struct cairn_view text, int *ret) {
    *ret = -1;
    if (equals(text, "*")) return true;
    for (int op = 0; op < CAIRN_STORE_OP_COUNT; op++) {
        if (!equals(text, cairn_store_op_word((enum cairn_store_op)op))) continue;
        *ret = op;
        return true;
    }
    return false;
}

static bool parse_number(struct cairn_view text, uint64_t *ret) {
    return cairn_parse_u64(text, ret, NULL) == CAIRN_OK;
}

static bool parse_which(struct cairn_view text, struct cairn_store_fault_rule *rule) {
    const char *data = text.data;
    rule->first = 1;
    rule->last = UINT64_MAX;
    if (equals(text, "*")) return true;
    if (text.size == 0) return false;
    struct cairn_view head = {data, text.size - 1};
    uint64_t percent;
    if (data[text.size - 1] == '%') {
        if (!parse_number(head, &percent) || percent == 0 || percent > 100) return false;
        rule->percent = (uint32_t)percent;
        return true;
    }
    if (data[text.size - 1] == '+') return parse_number(head, &rule->first);
    if (!memchr(data, '-', text.size)) {
        if (!parse_number(text, &rule->first)) return false;
        rule->last = rule->first;
        return rule->first > 0;
    }
    struct cairn_view rest = text, first = cut(&rest, '-');
    return parse_number(first, &rule->first) && parse_number(rest, &rule->last) &&
           rule->first > 0 && rule->first <= rule->last;
}

/* A code by its slug, with '_' for '-'. */
static bool parse_code(struct cairn_view text, enum cairn_code *ret) {
    char slug[64];
    if (text.size >= sizeof slug) return false;
    for (size_t i = 0; i < text.size; i++) {
        char c = ((const char *)text.data)[i];
        slug[i] = c == '_' ? '-' : c;
    }
    slug[text.size] = '\0';
    *ret = cairn_code_from_slug(slug);
    return *ret != CAIRN_OK && (*ret != CAIRN_INTERNAL || strcmp(slug, "internal") == 0);
}

static bool parse_action(struct cairn_view text, struct cairn_store_fault_rule *rule) {
    struct cairn_view rest = text, name = cut(&rest, '@');
    for (size_t i = 0; i < CAIRN_COUNT(action_names); i++) {
        if (!equals(name, action_names[i].name)) continue;
        rule->action = action_names[i].action;
        if (!action_names[i].has_argument) return name.size == text.size;
        return parse_number(rest, &rule->argument);
    }
    rule->action = CAIRN_STORE_FAULT_FAIL;
    return parse_code(text, &rule->code);
}

static enum cairn_code parse_rule(struct cairn_view text, struct cairn_store_fault_rule *rule,
                                  struct cairn_error *err) {
    struct cairn_view rest = text;
    struct cairn_view op = cut(&rest, ':'), glob = cut(&rest, ':'), which = cut(&rest, ':');
    struct cairn_view action = trimmed(rest.data, (const char *)rest.data + rest.size);
    const char *wrong = NULL;
    if (!parse_op(op, &rule->op))
        wrong = "operation";
    else if (glob.size == 0 || glob.size >= sizeof rule->glob)
        wrong = "key";
    else if (!parse_which(which, rule))
        wrong = "count";
    else if (!parse_action(action, rule))
        wrong = "action";
    if (wrong) {
        return cairn_fail(err, CAIRN_INVALID, "fault rule \"%.*s\": its %s is not understood",
                          (int)text.size, (const char *)text.data, wrong);
    }
    memcpy(rule->glob, glob.data, glob.size);
    return CAIRN_OK;
}

enum cairn_code cairn_store_fault_script_parse(const char *text,
                                               struct cairn_store_fault_script *ret,
                                               struct cairn_error *err) {
    struct cairn_view rest = cairn_view_of(text);
    ret->count = 0;
    while (rest.size > 0) {
        struct cairn_view rule = cut(&rest, ';');
        if (rule.size == 0) continue;
        if (ret->count == CAIRN_STORE_FAULT_RULES_MAX) {
            return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d fault rules",
                              CAIRN_STORE_FAULT_RULES_MAX);
        }
        CAIRN_TRY(parse_rule(rule, &ret->rules[ret->count], err));
        ret->count++;
    }
    return CAIRN_OK;
}

/* ---- matching ---- */

/* The n-th draw of a rule (splitmix64 of all three). */
static uint64_t chance(uint64_t seed, uint64_t rule_index, uint64_t nth) {
    uint64_t z =
        seed + (rule_index + 1) * UINT64_C(0xd1342543de82ef95) + nth * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

const struct cairn_store_fault_rule *
cairn_store_fault_rule_for(struct cairn_store_fault_script *script, uint64_t seed,
                           const struct cairn_store_request *request) {
    const struct cairn_store_fault_rule *found = NULL;
    for (unsigned i = 0; i < script->count; i++) {
        struct cairn_store_fault_rule *rule = &script->rules[i];
        if (rule->op >= 0 && rule->op != (int)request->op) continue;
        if (fnmatch(rule->glob, request->key, 0) != 0) continue;
        uint64_t nth = atomic_fetch_add(&rule->matched, 1) + 1;
        bool hit = rule->percent ? chance(seed, i, nth) % 100 < rule->percent
                                 : nth >= rule->first && nth <= rule->last;
        if (!hit || found) continue; /* every rule counts, the first one acts */
        atomic_fetch_add(&rule->acted, 1);
        found = rule;
    }
    return found;
}
