/* SPDX-License-Identifier: Apache-2.0 */
/* rules: the text becomes a table; each request is held against it once. */
#include "tests/support/s3fault/rules.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"

#define SEEN_SLOTS 4096 /* of each=, per rule; a power of two */

struct rule {
    uint64_t ops;                         /* one bit per operation */
    char key[512], at[S3F_ADDRESS_BYTES]; /* at "": any address */
    uint32_t part_first, part_last;
    uint64_t nth_first, nth_last; /* 0, 0: all */
    bool nth_each;                /* counted per key and part */
    uint64_t every;
    double chance; /* negative: always */
    struct s3f_plan plan;
    uint64_t matched, acted;
    struct {
        uint64_t hash, count;
    } * seen; /* of nth_each */
};
struct cairn_s3f_rules {
    uint64_t seed;
    size_t count;
    struct rule rules[S3F_RULES_MAX];
};

static const char *const op_names[] = {
#define NAME(name, text) text,
    S3F_OPS(NAME)
#undef NAME
};

enum value { NONE, NUMBER, TEXT, PLACE };
static const struct {
    const char *name;
    enum value value;
} action_names[] = {
#define ROW(name, text, value) {text, value},
    S3F_ACTIONS(ROW)
#undef ROW
};

const char *s3f_op_name(enum s3f_op op) {
    return op_names[op];
}

const struct s3f_action *s3f_plan_find(const struct s3f_plan *plan, enum s3f_action_kind kind) {
    for (size_t i = 0; i < plan->count; i++)
        if (plan->actions[i].kind == kind) return &plan->actions[i];
    return NULL;
}

uint64_t s3f_place(const struct s3f_action *action, uint64_t size) {
    uint64_t number = (uint64_t)action->number;
    if (action->percent)
        number = number >= 100 ? size : size / 100 * number + size % 100 * number / 100;
    if (number > size) number = size;
    return action->from_end ? size - number : number;
}

/* ---- parsing ---- */

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t size = strlen(text);
    while (size && isspace((unsigned char)text[size - 1])) text[--size] = '\0';
    return text;
}

/* "7", "2-5", "3+" */
static bool parse_span(const char *text, uint64_t *ret_first, uint64_t *ret_last) {
    char *end;
    *ret_first = *ret_last = strtoull(text, &end, 10);
    if (end == text) return false;
    if (!strcmp(end, "+")) {
        *ret_last = UINT64_MAX;
        return true;
    }
    if (*end == '-') {
        text = end + 1;
        *ret_last = strtoull(text, &end, 10);
        if (end == text) return false;
    }
    return *end == '\0' && *ret_first <= *ret_last;
}

static bool parse_ops(char *text, uint64_t *ret) {
    *ret = 0;
    char *rest = text;
    for (char *name = strsep(&rest, "|"); name; name = strsep(&rest, "|")) {
        bool known = false;
        for (unsigned i = 0; i < S3F_OP_COUNT; i++)
            if (!strcmp(name, op_names[i])) {
                *ret |= UINT64_C(1) << i;
                known = true;
            }
        /* Every operation, but not the making of connections, which is no request. */
        if (!strcmp(name, "*"))
            *ret |= ~(UINT64_C(1) << S3F_CONNECT);
        else if (!known)
            return false;
    }
    return *ret != 0;
}

static bool parse_selector(struct rule *rule, char *word) {
    char *value = strchr(word, '=');
    if (!value) return false;
    *value++ = '\0';
    uint64_t first, last;
    if (!strcmp(word, "op")) return parse_ops(value, &rule->ops);
    if (!strcmp(word, "key")) return cairn_text_copy(rule->key, sizeof rule->key, value);
    if (!strcmp(word, "at")) return cairn_text_copy(rule->at, sizeof rule->at, value);
    if (!strcmp(word, "p")) {
        char *end;
        rule->chance = strtod(value, &end);
        return end != value && !*end && rule->chance >= 0 && rule->chance <= 1;
    }
    if (!parse_span(value, &first, &last)) return false;
    if (!strcmp(word, "part")) {
        rule->part_first = (uint32_t)first;
        rule->part_last = last > UINT32_MAX ? UINT32_MAX : (uint32_t)last;
        return first <= 10000;
    }
    if (!strcmp(word, "every")) {
        rule->every = first;
        return first > 0;
    }
    rule->nth_each = !strcmp(word, "each");
    rule->nth_first = first;
    rule->nth_last = last;
    return first > 0 && (rule->nth_each || !strcmp(word, "nth"));
}

/* "h10", "-1", "50%", "7/250" */
static bool parse_place(const char *text, struct s3f_action *ret) {
    if (*text == 'h') {
        ret->in_head = true;
        text++;
    }
    if (*text == '-') {
        ret->from_end = true;
        text++;
    }
    char *end;
    ret->number = strtoll(text, &end, 10);
    if (end == text || ret->number < 0) return false;
    if (*end == '%') {
        ret->percent = true;
        end++;
    }
    if (*end == '/') {
        text = end + 1;
        ret->ms = (uint32_t)strtoul(text, &end, 10);
        if (end == text) return false;
    }
    return *end == '\0';
}

static bool parse_action(char *word, struct s3f_action *ret) {
    size_t size = strcspn(word, "=@");
    char sign = word[size];
    char *value = word + size + (sign ? 1 : 0);
    word[size] = '\0';
    for (unsigned i = 0; i < S3F_ACTION_COUNT; i++) {
        if (strcmp(word, action_names[i].name) != 0) continue;
        *ret = (struct s3f_action){.kind = (enum s3f_action_kind)i};
        if (!cairn_text_copy(ret->text, sizeof ret->text, value)) return false;
        char *end;
        ret->number = strtoll(value, &end, 10);
        switch (action_names[i].value) {
        case NONE:
            return sign == '\0';
        case TEXT:
            return sign == '=';
        case PLACE:
            return sign == '@' && parse_place(value, ret);
        case NUMBER:
            return sign == '\0' || (sign == '=' && end != value && !*end);
        }
    }
    return false;
}

/* The ':' between selectors and actions stands after white space, or first. */
static char *find_colon(char *line) {
    for (char *at = line; *at; at++)
        if (*at == ':' && (at == line || isspace((unsigned char)at[-1]))) return at;
    return NULL;
}

static enum cairn_code parse_rule(struct rule *rule, char *line, struct cairn_error *err) {
    char *colon = find_colon(line);
    if (!colon) return cairn_fail(err, CAIRN_INVALID, "no \" : \" before the actions: %s", line);
    *colon = '\0';
    *rule = (struct rule){.ops = ~(UINT64_C(1) << S3F_CONNECT), .key = "*", .chance = -1};
    char *rest = trimmed(line);
    for (char *word = strsep(&rest, " \t"); word; word = strsep(&rest, " \t"))
        if (*word && strcmp(word, "*") != 0 && !parse_selector(rule, word))
            return cairn_fail(err, CAIRN_INVALID, "\"%s\" selects nothing", word);
    rest = trimmed(colon + 1);
    cairn_text_copy(rule->plan.text, sizeof rule->plan.text, rest);
    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ",")) {
        if (rule->plan.count == S3F_ACTIONS_MAX)
            return cairn_fail(err, CAIRN_INVALID, "more than %d actions", S3F_ACTIONS_MAX);
        word = trimmed(word);
        if (!parse_action(word, &rule->plan.actions[rule->plan.count++]))
            return cairn_fail(err, CAIRN_INVALID, "\"%s\" is no action, or its value is wrong",
                              word);
    }
    if (!rule->nth_each) return CAIRN_OK;
    rule->seen = calloc(SEEN_SLOTS, sizeof *rule->seen);
    return rule->seen ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a rule");
}

enum cairn_code s3f_rules_new(const char *text, uint64_t seed, struct cairn_s3f_rules **ret,
                              struct cairn_error *err) {
    CAIRN_AUTO_PTR(s3f_rules) rules = calloc(1, sizeof *rules);
    CAIRN_AUTO_HEAP char *copy = strdup(text);
    if (!rules || !copy) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for rules");
    rules->seed = seed;
    char *rest = copy;
    unsigned number = 0;
    for (char *line = strsep(&rest, "\n;"); line; line = strsep(&rest, "\n;")) {
        number++;
        line[strcspn(line, "#")] = '\0';
        line = trimmed(line);
        if (!*line) continue;
        if (rules->count == S3F_RULES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "more than %d rules", S3F_RULES_MAX);
        enum cairn_code code = parse_rule(&rules->rules[rules->count++], line, err);
        if (code) return cairn_within(err, code, "rule %u", number);
    }
    *ret = CAIRN_TAKE(rules);
    return CAIRN_OK;
}

void cairn_s3f_rules_free(struct cairn_s3f_rules *rules) {
    if (!rules) return;
    for (size_t i = 0; i < rules->count; i++) free(rules->rules[i].seen);
    free(rules);
}

/* ---- matching ---- */

static uint64_t mixed(uint64_t z) {
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* How often this rule has met that key and part, with this time; a full table counts as one. */
static uint64_t count_each(struct rule *rule, const struct s3f_subject *subject) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ subject->part_number;
    for (const char *c = subject->key; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    hash = mixed(hash ^ (uint64_t)subject->op << 56) | 1;
    for (size_t i = 0; i < SEEN_SLOTS; i++) {
        size_t slot = (hash + i) & (SEEN_SLOTS - 1);
        if (rule->seen[slot].hash == 0) rule->seen[slot].hash = hash;
        if (rule->seen[slot].hash == hash) return ++rule->seen[slot].count;
    }
    return 1;
}

static bool selects(const struct rule *rule, const struct s3f_subject *subject) {
    if (!(rule->ops >> subject->op & 1)) return false;
    if (rule->part_last &&
        (subject->part_number < rule->part_first || subject->part_number > rule->part_last))
        return false;
    if (rule->at[0] && strcmp(rule->at, subject->local) != 0) return false;
    return fnmatch(rule->key, subject->key, 0) == 0;
}

static bool is_its_turn(struct rule *rule, const struct s3f_subject *subject, uint64_t seed) {
    uint64_t count = rule->nth_each ? count_each(rule, subject) : rule->matched;
    if (rule->nth_last && (count < rule->nth_first || count > rule->nth_last)) return false;
    if (rule->every && count % rule->every != 0) return false;
    if (rule->chance < 0) return true;
    double drawn = (double)(mixed(seed ^ mixed(rule->matched)) >> 11) * 0x1p-53;
    return drawn < rule->chance;
}

void s3f_rules_match(struct cairn_s3f_rules *rules, const struct s3f_subject *subject,
                     struct s3f_plan *ret) {
    ret->rule = -1;
    ret->count = 0;
    ret->text[0] = '\0';
    for (size_t i = 0; i < rules->count; i++) {
        struct rule *rule = &rules->rules[i];
        if (!selects(rule, subject)) continue;
        rule->matched++;
        if (!is_its_turn(rule, subject, mixed(rules->seed + i)) || ret->rule >= 0) continue;
        rule->acted++;
        *ret = rule->plan;
        ret->rule = (int)i;
    }
}

size_t s3f_rules_count(const struct cairn_s3f_rules *rules) {
    return rules->count;
}

void s3f_rules_told(const struct cairn_s3f_rules *rules, size_t index, uint64_t *ret_matched,
                    uint64_t *ret_acted) {
    *ret_matched = rules->rules[index].matched;
    *ret_acted = rules->rules[index].acted;
}
