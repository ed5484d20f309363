/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that are tried in their order on each name. */
#include "cli/rename.h"

#include <stdlib.h>

#include "api/documents/names.h"
#include "common/text.h"

#define RULES_MAX 256
#define RULE_BYTES_MAX 1024

struct rule {
    char text[RULE_BYTES_MAX + 1]; /* OLD and NEW, each with a NUL behind it */
    const char *old, *new;
    bool used;
};
struct renaming {
    const struct cairn_assembly *assembly;
    const char *prefix;
    struct rule *rules;
    size_t count;
    bool prefix_used;
};

void cairn_cli_names_release(struct cairn_cli_names *names) {
    for (size_t i = 0; i < names->count; i++) free(names->names[i]);
    free(names->names);
    *names = (struct cairn_cli_names){0};
}

/* ---- rules ---- */

static unsigned stars(const char *text) {
    unsigned count = 0;
    for (; *text; text++) count += *text == '*';
    return count;
}

static enum cairn_code read_rule(const char *begin, size_t size, struct rule *ret,
                                 struct cairn_error *err) {
    if (size > RULE_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "--rename: a rule of more than %d bytes",
                          RULE_BYTES_MAX);
    memcpy(ret->text, begin, size);
    ret->text[size] = '\0';
    char *equals = strchr(ret->text, '=');
    bool sound = equals && equals != ret->text && equals[1];
    if (sound) {
        *equals = '\0';
        ret->old = ret->text;
        ret->new = equals + 1;
        sound = stars(ret->old) <= 1 && stars(ret->new) == stars(ret->old);
        if (!sound) *equals = '=';
    }
    if (sound) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "--rename \"%s\": it is OLD=NEW, each with one * or both without",
                      cairn_short(ret->text).text);
}

static enum cairn_code read_rules(struct renaming *renaming, const char *text,
                                  struct cairn_error *err) {
    renaming->rules = calloc(RULES_MAX, sizeof *renaming->rules);
    if (!renaming->rules) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for rules");
    for (const char *at = text; at;) {
        const char *comma = strchr(at, ',');
        if (renaming->count == RULES_MAX)
            return cairn_fail(err, CAIRN_INVALID, "--rename: more than %d rules", RULES_MAX);
        CAIRN_TRY(read_rule(at, comma ? (size_t)(comma - at) : strlen(at),
                            &renaming->rules[renaming->count++], err));
        at = comma ? comma + 1 : NULL;
    }
    return CAIRN_OK;
}

/* What stands for the star; false: the rule is not like the name. */
static bool match(const struct rule *rule, struct cairn_view name, struct cairn_view *ret) {
    const char *star = strchr(rule->old, '*'), *text = name.data;
    size_t before = star ? (size_t)(star - rule->old) : strlen(rule->old);
    size_t behind = star ? strlen(star + 1) : 0;
    if (name.size < before + behind || (!star && name.size != before)) return false;
    *ret = (struct cairn_view){text + before, name.size - before - behind};
    return memcmp(text, rule->old, before) == 0 &&
           (!star || memcmp(text + name.size - behind, star + 1, behind) == 0);
}

/* ---- one name ---- */

static enum cairn_code put_new(struct renaming *renaming, struct cairn_view name,
                               struct cairn_buf *ret, struct cairn_error *err) {
    size_t prefix = renaming->prefix ? strlen(renaming->prefix) : 0;
    struct cairn_view middle;
    if (prefix && name.size >= prefix && memcmp(name.data, renaming->prefix, prefix) == 0) {
        name = (struct cairn_view){(const char *)name.data + prefix, name.size - prefix};
        renaming->prefix_used = true;
    }
    for (size_t r = 0; r < renaming->count; r++) {
        struct rule *rule = &renaming->rules[r];
        if (!match(rule, name, &middle)) continue;
        rule->used = true;
        const char *star = strchr(rule->new, '*');
        if (!star) return cairn_buf_append_text(ret, rule->new, err);
        CAIRN_TRY(cairn_buf_append(ret, rule->new, (size_t)(star - rule->new), err));
        CAIRN_TRY(cairn_buf_append(ret, middle.data, middle.size, err));
        return cairn_buf_append_text(ret, star + 1, err);
    }
    return cairn_buf_append(ret, name.data, name.size, err);
}

static enum cairn_code rename_one(struct renaming *renaming, const char *name, char **ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) made = {0};
    struct cairn_view own = cairn_view_of(name);
    const char *what = NULL;
    if (cairn_text_starts(name, CAIRN_ASSEMBLY_OPTIMIZER)) {
        size_t head = strlen(CAIRN_ASSEMBLY_OPTIMIZER);
        what = strrchr(name + head, '.');
        if (what) own = (struct cairn_view){name + head, (size_t)(what - name) - head};
        if (what) CAIRN_TRY(cairn_buf_append_text(&made, CAIRN_ASSEMBLY_OPTIMIZER, err));
    }
    size_t before = made.size;
    CAIRN_TRY(put_new(renaming, own, &made, err));
    if (made.size == before)
        return cairn_fail(err, CAIRN_INVALID, "%s would have no name left", cairn_short(name).text);
    if (what) CAIRN_TRY(cairn_buf_append_text(&made, what, err));
    *ret = strdup(made.data);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
}

/* ---- all ---- */

static const char *old_name(const struct cairn_assembly *assembly, size_t number) {
    return number < assembly->tensor_count
               ? assembly->tensors[number].name
               : assembly->objects[number - assembly->tensor_count].name;
}

static enum cairn_code rename_all(struct renaming *renaming,
                                  bool (*wanted)(const void *owner, size_t number),
                                  const void *owner, struct cairn_cli_names *ret,
                                  struct cairn_error *err) {
    const struct cairn_assembly *assembly = renaming->assembly;
    struct cairn_names taken = {0};
    CAIRN_AUTO_HEAP size_t *numbers = calloc(ret->count + 1, sizeof *numbers); /* by their order */
    enum cairn_code code =
        numbers ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    uint32_t count = 0;
    for (size_t i = 0; code == CAIRN_OK && i < ret->count; i++) {
        code = rename_one(renaming, old_name(assembly, i), &ret->names[i], err);
        if (code || !wanted(owner, i)) continue;
        uint32_t number = count;
        code = cairn_names_add(&taken, cairn_view_of(ret->names[i]), &number, err);
        if (code == CAIRN_OK && number < count)
            code = cairn_fail(err, CAIRN_INVALID, "%s and %s would both be %s",
                              cairn_short(old_name(assembly, numbers[number])).text,
                              cairn_short(old_name(assembly, i)).text,
                              cairn_short(ret->names[i]).text);
        numbers[count++] = i;
    }
    cairn_names_release(&taken);
    return code;
}

static enum cairn_code check_used(const struct renaming *renaming, struct cairn_error *err) {
    if (renaming->prefix && !renaming->prefix_used)
        return cairn_fail(err, CAIRN_INVALID, "--strip-prefix %s: no name begins so",
                          cairn_short(renaming->prefix).text);
    for (size_t r = 0; r < renaming->count; r++)
        if (!renaming->rules[r].used)
            return cairn_fail(err, CAIRN_INVALID, "--rename %s=%s: no name is like it",
                              renaming->rules[r].old, renaming->rules[r].new);
    return CAIRN_OK;
}

enum cairn_code cairn_cli_names_make(const struct cairn_assembly *assembly, const char *prefix,
                                     const char *rules,
                                     bool (*wanted)(const void *owner, size_t number),
                                     const void *owner, struct cairn_cli_names *ret,
                                     struct cairn_error *err) {
    struct renaming renaming = {.assembly = assembly, .prefix = prefix};
    *ret = (struct cairn_cli_names){0};
    if (!prefix && !rules) return CAIRN_OK;
    ret->count = assembly->tensor_count + assembly->object_count;
    ret->names = calloc(ret->count + 1, sizeof *ret->names);
    if (!ret->names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    enum cairn_code code = rules ? read_rules(&renaming, rules, err) : CAIRN_OK;
    if (code == CAIRN_OK) code = rename_all(&renaming, wanted, owner, ret, err);
    if (code == CAIRN_OK) code = check_used(&renaming, err);
    free(renaming.rules);
    if (code) cairn_cli_names_release(ret);
    return code;
}
