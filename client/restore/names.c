/* SPDX-License-Identifier: Apache-2.0 */
/* All names are made once, when the version is opened, so that what collides is known at once. */
#include "client/restore/names.h"

#include <stdlib.h>

#include "client/session/options.h"
#include "common/text.h"

void cairn_client_names_release(struct cairn_client_names *names) {
    for (size_t i = 0; i < names->rule_count; i++) {
        free(names->rules[i].stored);
        free(names->rules[i].known);
    }
    for (size_t i = 0; i < names->count; i++) free(names->all[i].known);
    free(names->rules);
    free(names->all);
    *names = (struct cairn_client_names){0};
}

/* ---- rules ---- */

static bool fits(const struct cairn_client_rule *rule, struct cairn_view stored) {
    size_t size = strlen(rule->stored);
    bool sized = rule->whole ? stored.size == size : stored.size >= size;
    return sized && memcmp(stored.data, rule->stored, size) == 0;
}

bool cairn_client_names_known(const struct cairn_client_names *names, struct cairn_view stored,
                              char ret[CAIRN_TENSOR_NAME_BYTES_MAX + 1]) {
    struct cairn_view before = {0}, rest = stored;
    for (size_t i = 0; i < names->rule_count; i++) {
        const struct cairn_client_rule *rule = &names->rules[i];
        if (!fits(rule, stored)) continue;
        size_t cut = strlen(rule->stored);
        before = cairn_view_of(rule->known);
        rest = (struct cairn_view){(const char *)stored.data + cut, stored.size - cut};
        break;
    }
    size_t size = before.size + rest.size;
    if (!size || size > CAIRN_TENSOR_NAME_BYTES_MAX) return false;
    if (before.size) memcpy(ret, before.data, before.size);
    if (rest.size) memcpy(ret + before.size, rest.data, rest.size);
    ret[size] = '\0';
    return true;
}

static enum cairn_code copy_rules(const struct cairn_rename *renames, size_t count,
                                  struct cairn_client_names *ret, struct cairn_error *err) {
    ret->rules = calloc(count, sizeof *ret->rules);
    if (!ret->rules) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the renames");
    for (size_t i = 0; i < count; i++) {
        struct cairn_client_rule *rule = &ret->rules[ret->rule_count++];
        struct cairn_rename own;
        CAIRN_TRY(cairn_client_options((const uint8_t *)renames + i * renames->size, &own,
                                       sizeof own, "rename", err));
        if (!own.stored || !own.known || !cairn_utf8_valid(cairn_view_of(own.known)))
            return cairn_fail(err, CAIRN_INVALID, "rename %zu: stored or known is missing", i);
        rule->stored = strdup(own.stored);
        rule->known = strdup(own.known);
        rule->whole = own.whole != 0;
        if (!rule->stored || !rule->known)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the renames");
    }
    return CAIRN_OK;
}

/* ---- names ---- */

static int by_known(const void *a, const void *b) {
    const struct cairn_client_name *x = a, *y = b;
    return strcmp(x->known, y->known);
}

static enum cairn_code add_name(const struct cairn_layout *layout, uint32_t index,
                                struct cairn_client_names *ret, struct cairn_error *err) {
    char known[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    struct cairn_view stored;
    uint32_t first, count;
    cairn_layout_name_at(layout, index, &stored, &first, &count);
    if (!cairn_client_names_known(ret, stored, known))
        return cairn_fail(err, CAIRN_INVALID,
                          "a rename makes of tensor \"%.*s\" a name that none can have",
                          (int)cairn_min_u64(stored.size, 200), (const char *)stored.data);
    ret->all[index] = (struct cairn_client_name){strdup(known), index};
    ret->count++;
    return ret->all[index].known ? CAIRN_OK
                                 : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names");
}

static enum cairn_code make(const struct cairn_layout *layout, const struct cairn_rename *renames,
                            size_t count, struct cairn_client_names *ret, struct cairn_error *err) {
    CAIRN_TRY(copy_rules(renames, count, ret, err));
    ret->all = calloc((size_t)layout->name_count + 1, sizeof *ret->all);
    if (!ret->all) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names");
    for (uint32_t i = 0; i < layout->name_count; i++) CAIRN_TRY(add_name(layout, i, ret, err));
    qsort(ret->all, ret->count, sizeof *ret->all, by_known);
    for (size_t i = 1; i < ret->count; i++)
        if (strcmp(ret->all[i - 1].known, ret->all[i].known) == 0)
            return cairn_fail(err, CAIRN_INVALID, "the renames give two tensors the name %s",
                              cairn_short(ret->all[i].known).text);
    return CAIRN_OK;
}

enum cairn_code cairn_client_names_make(const struct cairn_layout *layout,
                                        const struct cairn_rename *renames, size_t count,
                                        struct cairn_client_names *ret, struct cairn_error *err) {
    struct cairn_client_names made = {0};
    if (!count) return CAIRN_OK;
    if (!renames) return cairn_fail(err, CAIRN_INVALID, "the renames are missing");
    enum cairn_code code = make(layout, renames, count, &made, err);
    if (code)
        cairn_client_names_release(&made);
    else
        *ret = made;
    return code;
}

static const struct cairn_client_name *find(const struct cairn_client_names *names,
                                            struct cairn_view known) {
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *at = names->all[middle].known;
        size_t size = strlen(at);
        int order = memcmp(at, known.data, size < known.size ? size : known.size);
        if (!order && size == known.size) return &names->all[middle];
        if (order < 0 || (!order && size < known.size))
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool cairn_client_names_find(const struct cairn_client_names *names,
                             const struct cairn_layout *layout, struct cairn_view known,
                             uint32_t *ret_index) {
    if (!names->rule_count) return cairn_layout_find(layout, known, ret_index);
    const struct cairn_client_name *found = find(names, known);
    if (found) *ret_index = found->index;
    return found != NULL;
}

const char *cairn_client_names_kept(const struct cairn_client_names *names,
                                    struct cairn_view known) {
    const struct cairn_client_name *found = find(names, known);
    return found ? found->known : NULL;
}

uint32_t cairn_client_names_at(const struct cairn_client_names *names, uint32_t place) {
    CAIRN_PROMISE(!names->rule_count || place < names->count, return 0);
    return names->rule_count ? names->all[place].index : place;
}
