/* SPDX-License-Identifier: Apache-2.0 */
/* repr() of dict keys, and walks over the values of a torch file. */
#include "formats/torch/torch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "formats/torch/torch_ranks.h"

#define KEY_DEPTH_MAX 16
#define NUMBER_BYTES_MAX 4096 /* of a number; printing its digits takes quadratic time */

struct printer {
    const struct cairn_pickle *values;
    struct cairn_buf *into;
    unsigned depth;
    bool fits;
};

static enum cairn_code print_key(struct printer *printer, cairn_pickle_ref ref,
                                 struct cairn_error *err);

/* Two's complement, lowest byte first, as decimal digits: divides by 10^9 until zero. */
static enum cairn_code print_long(struct printer *printer, struct cairn_view bytes,
                                  struct cairn_error *err) {
    uint32_t words[NUMBER_BYTES_MAX / 4 + 1] = {0}, parts[NUMBER_BYTES_MAX / 3 + 1];
    const uint8_t *at = bytes.data;
    size_t count = (bytes.size + 3) / 4, part_count = 0;
    if (bytes.size == 0) return cairn_buf_append(printer->into, "0", 1, err);
    if (bytes.size > NUMBER_BYTES_MAX) {
        printer->fits = false;
        return CAIRN_OK;
    }
    bool negative = at[bytes.size - 1] & 0x80;
    for (size_t i = 0; i < 4 * count; i++) {
        uint8_t byte = i < bytes.size ? at[i] : negative ? 0xff : 0;
        words[i / 4] |= (uint32_t)(negative ? (uint8_t)~byte : byte) << 8 * (i % 4);
    }
    for (size_t i = 0; negative && i < count && ++words[i] == 0; i++) {
    }
    while (count && !words[count - 1]) count--;
    do {
        uint64_t rest = 0;
        for (size_t i = count; i-- > 0;) {
            rest = rest << 32 | words[i];
            words[i] = (uint32_t)(rest / 1000000000);
            rest %= 1000000000;
        }
        parts[part_count++] = (uint32_t)rest;
        while (count && !words[count - 1]) count--;
    } while (count);
    CAIRN_TRY(cairn_buf_printf(printer->into, err, "%s%" PRIu32, negative ? "-" : "",
                               parts[--part_count]));
    while (part_count)
        CAIRN_TRY(cairn_buf_printf(printer->into, err, "%09" PRIu32, parts[--part_count]));
    return CAIRN_OK;
}

/* The shortest digits that round-trip; an exponent below 1e-4 and from 1e16 on. */
static enum cairn_code print_real(struct printer *printer, double number, struct cairn_error *err) {
    char text[40], digits[40];
    if (isnan(number)) return cairn_buf_append_text(printer->into, "nan", err);
    if (isinf(number))
        return cairn_buf_append_text(printer->into, number > 0 ? "inf" : "-inf", err);
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, number);
        if (strtod(text, NULL) == number) break;
    }
    int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10), count = 0;
    for (const char *at = text; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9') digits[count++] = *at;
    digits[count] = '\0';
    if (signbit(number)) CAIRN_TRY(cairn_buf_append(printer->into, "-", 1, err));
    if (exponent < -4 || exponent >= 16)
        return cairn_buf_printf(printer->into, err, "%.1s%s%se%c%02d", digits, count > 1 ? "." : "",
                                digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    if (exponent < 0)
        return cairn_buf_printf(printer->into, err, "0.%.*s%s", -exponent - 1, "000", digits);
    int whole = exponent + 1 < count ? exponent + 1 : count;
    return cairn_buf_printf(printer->into, err, "%.*s%.*s.%s", whole, digits, exponent + 1 - whole,
                            "0000000000000000", count > whole ? digits + whole : "0");
}

/* A part of a complex number: without ".0". */
static enum cairn_code print_part(struct printer *printer, double part, struct cairn_error *err) {
    CAIRN_TRY(print_real(printer, part, err));
    struct cairn_buf *into = printer->into;
    if (into->size > 2 && memcmp(into->data + into->size - 2, ".0", 2) == 0) into->size -= 2;
    return CAIRN_OK;
}

static enum cairn_code print_complex(struct printer *printer, double real, double imaginary,
                                     struct cairn_error *err) {
    bool alone = real == 0 && !signbit(real);
    if (!alone) {
        CAIRN_TRY(cairn_buf_append(printer->into, "(", 1, err));
        CAIRN_TRY(print_part(printer, real, err));
        if (isnan(imaginary) || !signbit(imaginary))
            CAIRN_TRY(cairn_buf_append(printer->into, "+", 1, err));
    }
    CAIRN_TRY(print_part(printer, imaginary, err));
    return cairn_buf_append_text(printer->into, alone ? "j" : "j)", err);
}

/* Non-ASCII ranges that are not printable by Python's str.isprintable. */
static bool is_printable(uint32_t point) {
    static const uint32_t ranges[][2] = {
        {0x80, 0xa0},     {0xad, 0xad},       {0x600, 0x605},   {0x61c, 0x61c},   {0x6dd, 0x6dd},
        {0x70f, 0x70f},   {0x1680, 0x1680},   {0x180e, 0x180e}, {0x2000, 0x200f}, {0x2028, 0x202f},
        {0x205f, 0x206f}, {0x3000, 0x3000},   {0xd800, 0xf8ff}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
        {0xfffe, 0xffff}, {0xe0000, 0x10ffff}};
    for (size_t i = 0; i < CAIRN_COUNT(ranges); i++)
        if (point >= ranges[i][0] && point <= ranges[i][1]) return false;
    return true;
}

static enum cairn_code print_point(struct printer *printer, uint32_t point, char quote,
                                   struct cairn_error *err) {
    struct cairn_buf *into = printer->into;
    static const char plain[] = "\\\t\n\r", escaped[] = "\\tnr";
    const char *at = point && point < 0x80 ? strchr(plain, (int)point) : NULL;
    if (at) return cairn_buf_printf(into, err, "\\%c", escaped[at - plain]);
    if (point == (uint32_t)quote) return cairn_buf_printf(into, err, "\\%c", quote);
    if (point < 0x100) return cairn_buf_printf(into, err, "\\x%02" PRIx32, point);
    return point < 0x10000 ? cairn_buf_printf(into, err, "\\u%04" PRIx32, point)
                           : cairn_buf_printf(into, err, "\\U%08" PRIx32, point);
}

static char quote_of(struct cairn_view text) {
    return memchr(text.data, '\'', text.size) && !memchr(text.data, '"', text.size) ? '"' : '\'';
}

static uint32_t point_at(const uint8_t *at, size_t left, size_t *ret_size) {
    *ret_size = *at < 0x80 ? 1 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
    if (*ret_size > left) *ret_size = left;
    uint32_t point = *ret_size == 1 ? *at : *at & (0xffu >> (*ret_size + 1));
    for (size_t i = 1; i < *ret_size; i++) point = point << 6 | (at[i] & 0x3f);
    return point;
}

static enum cairn_code print_text(struct printer *printer, struct cairn_view text,
                                  struct cairn_error *err) {
    const uint8_t *bytes = text.data;
    char quote = quote_of(text);
    CAIRN_TRY(cairn_buf_append(printer->into, &quote, 1, err));
    for (size_t i = 0, size; i < text.size; i += size) {
        uint32_t point = point_at(bytes + i, text.size - i, &size);
        bool plain = point < 0x80 ? point >= 0x20 && point != 0x7f && point != '\\' &&
                                        point != (uint32_t)quote
                                  : is_printable(point);
        if (plain)
            CAIRN_TRY(cairn_buf_append(printer->into, bytes + i, size, err));
        else
            CAIRN_TRY(print_point(printer, point, quote, err));
    }
    return cairn_buf_append(printer->into, &quote, 1, err);
}

/* latin1: the text's characters are the bytes. */
static enum cairn_code print_bytes(struct printer *printer, struct cairn_view text, bool latin1,
                                   struct cairn_error *err) {
    const uint8_t *bytes = text.data;
    char quote = quote_of(text);
    CAIRN_TRY(cairn_buf_printf(printer->into, err, "b%c", quote));
    for (size_t i = 0, size = 1; i < text.size; i += size) {
        uint32_t point = latin1 ? point_at(bytes + i, text.size - i, &size) : bytes[i];
        if (point >= 0x20 && point < 0x7f && point != '\\' && point != (uint32_t)quote)
            CAIRN_TRY(cairn_buf_append(printer->into, bytes + i, 1, err));
        else
            CAIRN_TRY(print_point(printer, point, quote, err));
    }
    return cairn_buf_append(printer->into, &quote, 1, err);
}

static enum cairn_code print_items(struct printer *printer, const struct cairn_pickle_value *value,
                                   const char *before, const char *after, struct cairn_error *err) {
    bool tuple = value->kind == CAIRN_PICKLE_TUPLE && *before == '(';
    CAIRN_TRY(cairn_buf_append_text(printer->into, before, err));
    for (uint32_t i = 0; i < value->count; i++) {
        if (i) CAIRN_TRY(cairn_buf_append(printer->into, ", ", 2, err));
        CAIRN_TRY(print_key(printer, value->items[i], err));
    }
    if (tuple && value->count == 1) CAIRN_TRY(cairn_buf_append(printer->into, ",", 1, err));
    return cairn_buf_append_text(printer->into, after, err);
}

/* complex(real, imaginary) */
static bool is_complex(const struct printer *printer, const struct cairn_torch_name *name,
                       const struct cairn_pickle_value *arguments, double ret[2]) {
    if (!name || strcmp(name->name, "complex") != 0 || arguments->count != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        const struct cairn_pickle_value *part =
            cairn_pickle_at(printer->values, arguments->items[i]);
        if (part->kind != CAIRN_PICKLE_REAL) return false;
        ret[i] = part->real;
    }
    return true;
}

/* torch.Size, bytes, complex numbers and frozensets are made by calls. */
static enum cairn_code print_object(struct printer *printer,
                                    const struct cairn_pickle_value *object,
                                    struct cairn_error *err) {
    const struct cairn_pickle_value *callable = cairn_pickle_at(printer->values, object->callable);
    const struct cairn_torch_name *name =
        callable->kind == CAIRN_PICKLE_GLOBAL ? cairn_torch_name_at(callable->global) : NULL;
    const struct cairn_pickle_value *arguments =
        cairn_pickle_at(printer->values, object->arguments);
    const struct cairn_pickle_value *first =
        arguments->count ? cairn_pickle_at(printer->values, arguments->items[0]) : NULL;
    double parts[2];
    if (is_complex(printer, name, arguments, parts))
        return print_complex(printer, parts[0], parts[1], err);
    bool list = first && (first->kind == CAIRN_PICKLE_TUPLE || first->kind == CAIRN_PICKLE_LIST);
    if (name && strcmp(name->name, "Size") == 0 && list)
        return print_items(printer, first, "torch.Size([", "])", err);
    if (name && strcmp(name->name, "frozenset") == 0 && !arguments->count)
        return cairn_buf_append_text(printer->into, "frozenset()", err);
    if (name && strcmp(name->name, "frozenset") == 0 && list)
        return print_items(printer, first, first->count ? "frozenset({" : "frozenset(",
                           first->count ? "})" : ")", err);
    if (name && strcmp(name->name, "encode") == 0 && first && first->kind == CAIRN_PICKLE_TEXT)
        return print_bytes(printer, first->text, true, err);
    if (name && strcmp(name->name, "bytes") == 0 && !arguments->count)
        return cairn_buf_append_text(printer->into, "b''", err);
    printer->fits = false;
    return CAIRN_OK;
}

static enum cairn_code print_kind(struct printer *printer, const struct cairn_pickle_value *value,
                                  struct cairn_error *err) {
    struct cairn_buf *into = printer->into;
    const struct cairn_torch_name *name;
    switch (value->kind) {
    case CAIRN_PICKLE_NONE:
        return cairn_buf_append_text(into, "None", err);
    case CAIRN_PICKLE_BOOL:
        return cairn_buf_append_text(into, value->truth ? "True" : "False", err);
    case CAIRN_PICKLE_INTEGER:
        return cairn_buf_printf(into, err, "%" PRId64, value->integer);
    case CAIRN_PICKLE_LONG:
        return print_long(printer, value->text, err);
    case CAIRN_PICKLE_REAL:
        return print_real(printer, value->real, err);
    case CAIRN_PICKLE_TEXT:
        return print_text(printer, value->text, err);
    case CAIRN_PICKLE_BYTES:
        return print_bytes(printer, value->text, false, err);
    case CAIRN_PICKLE_TUPLE:
        return print_items(printer, value, "(", ")", err);
    case CAIRN_PICKLE_LIST:
        return print_items(printer, value, "[", "]", err);
    case CAIRN_PICKLE_SET: /* a key's set is a frozenset */
        return print_items(printer, value, value->count ? "frozenset({" : "frozenset(",
                           value->count ? "})" : ")", err);
    case CAIRN_PICKLE_GLOBAL:
        name = cairn_torch_name_at(value->global);
        if (name && name->meaning == CAIRN_TORCH_DTYPE)
            return cairn_buf_printf(into, err, "%s.%s", name->module, name->name);
        break;
    case CAIRN_PICKLE_OBJECT:
        return print_object(printer, value, err);
    case CAIRN_PICKLE_DICT:
    case CAIRN_PICKLE_PERSISTENT:
        break;
    }
    printer->fits = false;
    return CAIRN_OK;
}

static enum cairn_code print_key(struct printer *printer, cairn_pickle_ref ref,
                                 struct cairn_error *err) {
    if (printer->depth == KEY_DEPTH_MAX) {
        printer->fits = false;
        return CAIRN_OK;
    }
    printer->depth++;
    CAIRN_TRY(print_kind(printer, cairn_pickle_at(printer->values, ref), err));
    printer->depth--;
    return CAIRN_OK;
}

/* Appends the key's text; *ret false: it has none, and the appended bytes are meaningless. */
static enum cairn_code key_text(const struct cairn_pickle *values, cairn_pickle_ref key,
                                struct cairn_buf *into, bool *ret, struct cairn_error *err) {
    struct printer printer = {.values = values, .into = into, .fits = true};
    const struct cairn_pickle_value *value = cairn_pickle_at(values, key);
    *ret = true;
    if (value->kind == CAIRN_PICKLE_TEXT)
        return cairn_buf_append(into, value->text.data, value->text.size, err);
    CAIRN_TRY(print_key(&printer, key, err));
    *ret = printer.fits;
    return CAIRN_OK;
}

/* ---- walks: dict-like and list-like objects count as maps and lists ---- */

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
    uint8_t *holds; /* items only: cached contents of each value, as flags */
};
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
    CAIRN_TRY(key_text(&walk->file->values, key, &walk->path, &fits, err));
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
            bool list = value_at(walk, item)->kind == CAIRN_PICKLE_LIST;
            found |= in_it & HOLDS_TENSOR;
            if (list) found |= in_it & HOLDS_ITEMS;
            if (is_map(walk, value_at(walk, item))) found |= HOLDS_ITEMS;
        }
    }
    return walk->holds[ref] = found;
}

static bool is_item(struct walk *walk, cairn_pickle_ref ref) {
    const struct cairn_pickle_value *value = value_at(walk, ref);
    uint8_t found = holds_of(walk, ref, 0);
    if (is_map(walk, value) || found & HOLDS_TENSOR) return false;
    return value->kind != CAIRN_PICKLE_LIST || !(found & HOLDS_ITEMS);
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
    if (memchr(walk->path.data ? walk->path.data : "", 0, walk->path.size))
        return visit_nul(walk, kind, ref, err);
    return walk->visit(walk->context, walk->path.data ? walk->path.data : "", kind, ref, err);
}

static bool is_above(const struct walk *walk, cairn_pickle_ref ref) {
    for (unsigned i = 0; i < walk->depth; i++)
        if (walk->above[i] == ref) return true;
    return false;
}

static enum cairn_code walk_value(struct walk *walk, cairn_pickle_ref ref,
                                  struct cairn_error *err) {
    const struct cairn_pickle_value *value = value_at(walk, ref);
    struct branch branch;
    if (cairn_torch_is_tensor(walk->file, ref))
        return visit_leaf(walk, CAIRN_TORCH_LEAF_TENSOR, ref, err);
    if (walk->holds && is_item(walk, ref)) return visit_leaf(walk, CAIRN_TORCH_ITEM, ref, err);
    if (!find_branch(walk, value, &branch)) {
        bool opaque = value->kind == CAIRN_PICKLE_OBJECT ||
                      value->kind == CAIRN_PICKLE_PERSISTENT ||
                      cairn_pickle_unknown_at(&walk->file->values, value);
        return visit_leaf(walk, opaque ? CAIRN_TORCH_LEAF_OPAQUE : CAIRN_TORCH_LEAF_PLAIN, ref,
                          err);
    }
    if (branch.items->count == 0) return visit_leaf(walk, CAIRN_TORCH_LEAF_EMPTY, ref, err);
    if (is_above(walk, ref)) return visit_leaf(walk, CAIRN_TORCH_LEAF_AGAIN, ref, err);
    if (walk->depth == DEPTH_MAX) return visit_leaf(walk, CAIRN_TORCH_LEAF_DEEP, ref, err);
    walk->above[walk->depth++] = ref;
    size_t before = walk->path.size;
    for (uint32_t i = 0; i < count_of(&branch); i++) {
        cairn_pickle_ref key = 0, item = item_at(walk, &branch, i, &key);
        if (walk->depth > 1) CAIRN_TRY(cairn_buf_append(&walk->path, ".", 1, err));
        if (branch.pairs)
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
                                       void *context, struct cairn_error *err) {
    struct walk walk = {.file = file, .visit = visit, .context = context};
    walk.holds = calloc(file->values.count, 1);
    if (!walk.holds) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the values of a file");
    return walk_root(&walk, err);
}
