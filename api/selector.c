/* SPDX-License-Identifier: Apache-2.0 */
/* Terms with commas between them; see selector.h. */
#include "api/selector.h"

#include "common/text.h"

static enum cairn_code refuse(struct cairn_view term, const char *why, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_INVALID, "label selector: \"%.*s\" %s", (int)term.size,
                      (const char *)term.data, why);
}

static bool holds(struct cairn_view text, char wanted) {
    return text.size && memchr(text.data, wanted, text.size);
}

static uint16_t put_part(struct cairn_selector *selector, size_t *at, struct cairn_view part) {
    size_t begin = *at;
    if (part.size) memcpy(selector->parts + begin, part.data, part.size);
    selector->parts[begin + part.size] = '\0';
    *at = begin + part.size + 1;
    return (uint16_t)begin;
}

/* Splits a term; selector.h#2 for what is none. */
static enum cairn_code read_term(struct cairn_view term, enum cairn_selector_kind *ret_kind,
                                 struct cairn_view *ret_key, struct cairn_view *ret_value,
                                 struct cairn_error *err) {
    const char *text = term.data;
    if (!term.size)
        return cairn_fail(err, CAIRN_INVALID,
                          "label selector: a term is empty; write it as team=nlp,tier!=tmp");
    const char *equals = memchr(text, '=', term.size);
    *ret_value = (struct cairn_view){0};
    if (!equals) {
        bool not_there = *text == '!';
        *ret_kind = not_there ? CAIRN_SELECTOR_HAS_NOT : CAIRN_SELECTOR_HAS;
        *ret_key = (struct cairn_view){text + not_there, term.size - not_there};
    } else {
        size_t at = (size_t)(equals - text);
        bool is_not = at && text[at - 1] == '!';
        *ret_kind = is_not ? CAIRN_SELECTOR_IS_NOT : CAIRN_SELECTOR_IS;
        *ret_key = (struct cairn_view){text, at - is_not};
        *ret_value = (struct cairn_view){equals + 1, term.size - at - 1};
        if (ret_value->size && equals[1] == '=')
            return refuse(term, "has two '='; write key=value", err);
    }
    if (!ret_key->size) return refuse(term, "has no key", err);
    if (holds(*ret_key, '!')) return refuse(term, "has a '!' in its key", err);
    return CAIRN_OK;
}

enum cairn_code cairn_selector_parse(struct cairn_view text, struct cairn_selector *ret,
                                     struct cairn_error *err) {
    struct cairn_selector selector = {0};
    if (text.size > CAIRN_SELECTOR_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "label selector: more than %d bytes",
                          CAIRN_SELECTOR_BYTES_MAX);
    const char *from = text.data;
    for (size_t i = 0; i < text.size; i++) {
        if ((unsigned char)from[i] < 0x20 || from[i] == 0x7f)
            return cairn_fail(err, CAIRN_INVALID, "label selector: a control character");
    }
    if (!cairn_utf8_valid(text)) return cairn_fail(err, CAIRN_INVALID, "label selector: not UTF-8");
    if (text.size) memcpy(selector.text, text.data, text.size);
    /* Every term takes the place of its text and of the comma or the end behind it, and where it
     * has a value, '=' is the NUL between both. */
    size_t at = 0;
    const char *end = text.size ? from + text.size : from;
    while (text.size) {
        const char *comma = memchr(from, ',', (size_t)(end - from));
        struct cairn_view term = {from, (size_t)((comma ? comma : end) - from)}, key, value;
        enum cairn_selector_kind kind = CAIRN_SELECTOR_IS;
        if (selector.count == CAIRN_SELECTOR_TERMS_MAX)
            return cairn_fail(err, CAIRN_INVALID, "label selector: more than %d terms",
                              CAIRN_SELECTOR_TERMS_MAX);
        CAIRN_TRY(read_term(term, &kind, &key, &value, err));
        selector.terms[selector.count].kind = kind;
        selector.terms[selector.count].key = put_part(&selector, &at, key);
        if (value.data) selector.terms[selector.count].value = put_part(&selector, &at, value);
        selector.count++;
        if (!comma) break;
        from = comma + 1;
    }
    *ret = selector;
    return CAIRN_OK;
}

bool cairn_selector_matches(const struct cairn_selector *selector, const json_t *labels) {
    for (uint32_t i = 0; i < selector->count; i++) {
        const char *key = selector->parts + selector->terms[i].key;
        const char *value = selector->parts + selector->terms[i].value;
        const char *there = json_string_value(json_object_get(labels, key));
        bool is = there && !strcmp(there, value);
        switch (selector->terms[i].kind) {
        case CAIRN_SELECTOR_IS:
            if (!is) return false;
            break;
        case CAIRN_SELECTOR_IS_NOT:
            if (is) return false;
            break;
        case CAIRN_SELECTOR_HAS:
            if (!there) return false;
            break;
        case CAIRN_SELECTOR_HAS_NOT:
            if (there) return false;
            break;
        }
    }
    return true;
}
