/* SPDX-License-Identifier: Apache-2.0 */
/* The opcodes of a pickle, protocols 0 to 5: a table by byte, and what each does to the stack. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"
#include "formats/pickle_inside.h"

#define DIGITS_MAX 16384
#define UNKNOWN_MAX (CAIRN_PICKLE_UNKNOWN_FIRST - 1)
#define VALUE_OF(machine, ref) (&(machine)->out->values[ref])

static enum cairn_code push_kind(struct cairn_pickle_machine *machine, unsigned kind,
                                 struct cairn_error *err) {
    return cairn_pickle_push_new(machine, &(struct cairn_pickle_value){.kind = kind}, err);
}

/* ---- numbers ---- */

static enum cairn_code push_integer(struct cairn_pickle_machine *machine, int64_t integer,
                                    struct cairn_error *err) {
    return cairn_pickle_push_new(
        machine, &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_INTEGER, .integer = integer},
        err);
}

static enum cairn_code push_unsigned(struct cairn_pickle_machine *machine, unsigned width,
                                     struct cairn_error *err) {
    uint64_t number;
    CAIRN_TRY(cairn_pickle_take_number(machine, width, &number, err));
    return push_integer(machine, (int64_t)number, err);
}

static enum cairn_code op_binint(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    uint64_t number;
    CAIRN_TRY(cairn_pickle_take_number(machine, 4, &number, err));
    return push_integer(machine, (int32_t)(uint32_t)number, err);
}

static enum cairn_code push_long(struct cairn_pickle_machine *machine, unsigned width,
                                 struct cairn_error *err) {
    uint64_t size;
    struct cairn_view bytes;
    CAIRN_TRY(cairn_pickle_take_number(machine, width, &size, err));
    CAIRN_TRY(cairn_pickle_take(machine, size, &bytes, err));
    const uint8_t *digits = bytes.data;
    if (size > 8)
        return cairn_pickle_push_new(
            machine, &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_LONG, .text = bytes}, err);
    uint64_t number = size && digits[size - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)size; i > 0; i--) number = number << 8 | digits[i - 1];
    return push_integer(machine, (int64_t)number, err);
}

static enum cairn_code push_bool(struct cairn_pickle_machine *machine, unsigned truth,
                                 struct cairn_error *err) {
    return cairn_pickle_push_new(
        machine, &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_BOOL, .truth = truth != 0}, err);
}

static enum cairn_code take_line_text(struct cairn_pickle_machine *machine, char ret[64],
                                      struct cairn_error *err) {
    struct cairn_view line;
    CAIRN_TRY(cairn_pickle_take_line(machine, &line, err));
    if (line.size >= 64)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a number of %zu digits", line.size);
    memcpy(ret, line.data, line.size);
    ret[line.size] = '\0';
    return CAIRN_OK;
}

static enum cairn_code take_line_integer(struct cairn_pickle_machine *machine, int64_t *ret,
                                         struct cairn_error *err) {
    char text[64], *end;
    CAIRN_TRY(take_line_text(machine, text, err));
    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (*end == 'L' && end > text) end++;
    if (errno || end == text || *end)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "%s is not a number", text);
    return CAIRN_OK;
}

/* Protocol 0 writes True as the integer 01, False as 00. */
static enum cairn_code op_int(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    int64_t number;
    size_t from = machine->at;
    CAIRN_TRY(take_line_integer(machine, &number, err));
    const char *digits = (const char *)machine->bytes.data + from;
    bool is_bool = machine->at - from == 3 && digits[0] == '0' && (number == 0 || number == 1);
    return is_bool ? push_bool(machine, number == 1, err) : push_integer(machine, number, err);
}

/* bytes = bytes * 10 + digit, lowest byte first. */
static void append_digit(struct cairn_buf *bytes, unsigned digit) {
    unsigned carry = digit;
    for (size_t i = 0; i < bytes->size; i++) {
        carry += 10 * (uint8_t)bytes->data[i];
        bytes->data[i] = (char)carry;
        carry >>= 8;
    }
    CAIRN_ASSERT(!carry); /* there is room for all digits */
}

/* Decimal digits of a number of more than 64 bits become the bytes that LONG1 has of it. */
static enum cairn_code push_digits(struct cairn_pickle_machine *machine, struct cairn_view line,
                                   struct cairn_error *err) {
    const char *at = line.data, *end = at + line.size;
    CAIRN_AUTO(buf) made = {.limit = DIGITS_MAX};
    bool negative = at < end && *at == '-';
    if (end > at && end[-1] == 'L') end--;
    at += negative;
    if (at == end || line.size > DIGITS_MAX)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a number of %zu digits", line.size);
    CAIRN_TRY(cairn_buf_reserve(&made, (size_t)(end - at) / 2 + 2, err));
    made.size = (size_t)(end - at) / 2 + 2; /* a digit has less than four bits; one is the sign's */
    memset(made.data, 0, made.size);
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a number that is none");
        append_digit(&made, (unsigned)(*at - '0'));
    }
    unsigned carry = 1;
    for (size_t i = 0; negative && i < made.size; i++) {
        carry += (uint8_t)~made.data[i];
        made.data[i] = (char)carry;
        carry >>= 8;
    }
    return cairn_pickle_push_made(machine, CAIRN_PICKLE_LONG, &made, err);
}

static enum cairn_code op_long(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    struct cairn_view line;
    int64_t number;
    size_t from = machine->at;
    CAIRN_TRY(cairn_pickle_take_line(machine, &line, err));
    if (line.size > 19) return push_digits(machine, line, err); /* 19 digits fit into 64 bits */
    machine->at = from;
    CAIRN_TRY(take_line_integer(machine, &number, err));
    return push_integer(machine, number, err);
}

static enum cairn_code push_real(struct cairn_pickle_machine *machine, double real,
                                 struct cairn_error *err) {
    return cairn_pickle_push_new(
        machine, &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_REAL, .real = real}, err);
}
static enum cairn_code op_float(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    char text[64], *end;
    CAIRN_TRY(take_line_text(machine, text, err));
    double real = strtod(text, &end);
    if (end == text || *end)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "%s is not a number", text);
    return push_real(machine, real, err);
}
static enum cairn_code op_binfloat(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    struct cairn_view bytes;
    uint64_t bits = 0;
    double real;
    CAIRN_TRY(cairn_pickle_take(machine, 8, &bytes, err));
    for (int i = 0; i < 8; i++) bits = bits << 8 | ((const uint8_t *)bytes.data)[i];
    memcpy(&real, &bits, sizeof real);
    return push_real(machine, real, err);
}

/* ---- texts and bytes ---- */

/* A string of Python 2 is bytes or text, which the pickle does not tell; valid UTF-8 is text. */
static enum cairn_code push_string(struct cairn_pickle_machine *machine, struct cairn_view bytes,
                                   struct cairn_error *err) {
    struct cairn_pickle_value value = {
        .kind = cairn_utf8_valid(bytes) ? CAIRN_PICKLE_TEXT : CAIRN_PICKLE_BYTES, .text = bytes};
    return cairn_pickle_push_new(machine, &value, err);
}

/* Python writes a file's name that is no UTF-8 with half pairs of UTF-16 in it: a text that nothing
 * else has, but no damage. */
static bool has_surrogates_alone(struct cairn_view bytes) {
    const uint8_t *at = bytes.data;
    size_t from = 0;
    for (size_t i = 0; i + 2 < bytes.size; i++) {
        if (at[i] != 0xed || at[i + 1] < 0xa0 || (at[i + 2] & 0xc0) != 0x80) continue;
        if (!cairn_utf8_valid((struct cairn_view){at + from, i - from})) return false;
        from = i + 3;
        i += 2;
    }
    return from && cairn_utf8_valid((struct cairn_view){at + from, bytes.size - from});
}

static enum cairn_code push_global(struct cairn_pickle_machine *machine, struct cairn_view module,
                                   struct cairn_view name, struct cairn_error *err);

static enum cairn_code push_sized(struct cairn_pickle_machine *machine, unsigned width,
                                  enum cairn_pickle_kind kind, struct cairn_error *err) {
    uint64_t size;
    struct cairn_view bytes;
    CAIRN_TRY(cairn_pickle_take_number(machine, width, &size, err));
    CAIRN_TRY(cairn_pickle_take(machine, size, &bytes, err));
    if (kind == CAIRN_PICKLE_TEXT && !cairn_utf8_valid(bytes)) {
        if (!has_surrogates_alone(bytes))
            return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a text that is not UTF-8");
        return push_global(machine, CAIRN_VIEW("builtins"), CAIRN_VIEW("str (surrogates)"), err);
    }
    return cairn_pickle_push_new(machine, &(struct cairn_pickle_value){.kind = kind, .text = bytes},
                                 err);
}

static enum cairn_code take_text(struct cairn_pickle_machine *machine, unsigned width,
                                 struct cairn_error *err) {
    return push_sized(machine, width, CAIRN_PICKLE_TEXT, err);
}
static enum cairn_code take_bytes(struct cairn_pickle_machine *machine, unsigned width,
                                  struct cairn_error *err) {
    return push_sized(machine, width, CAIRN_PICKLE_BYTES, err);
}

static enum cairn_code take_string(struct cairn_pickle_machine *machine, unsigned width,
                                   struct cairn_error *err) {
    uint64_t size;
    struct cairn_view bytes;
    CAIRN_TRY(cairn_pickle_take_number(machine, width, &size, err));
    CAIRN_TRY(cairn_pickle_take(machine, size, &bytes, err));
    return push_string(machine, bytes, err);
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* `digits` hex digits at *at, which is stepped past them; UINT32_MAX: there are not so many. */
static uint32_t take_hex(const char **at, const char *end, unsigned digits) {
    uint32_t number = 0;
    for (unsigned i = 0; i < digits; i++) {
        int digit = *at < end ? digit_of(**at) : -1;
        if (digit < 0) return UINT32_MAX;
        number = number << 4 | (uint32_t)digit;
        (*at)++;
    }
    return number;
}

static size_t utf8_of(uint32_t point, char ret[4]) {
    if (point < 0x80) {
        ret[0] = (char)point;
        return 1;
    }
    size_t size = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = size - 1; i > 0; i--, point >>= 6) ret[i] = (char)(0x80 | (point & 0x3f));
    ret[0] = (char)(lead[size] | point);
    return size;
}

/* What repr() of Python 2 puts behind a backslash in a string. */
static enum cairn_code append_escaped(struct cairn_pickle_machine *machine, const char **at,
                                      const char *end, struct cairn_buf *ret,
                                      struct cairn_error *err) {
    static const char letters[] = "\\'\"abfnrtv", bytes[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *at < end ? *(*at)++ : '\0';
    const char *found = c ? strchr(letters, c) : NULL;
    uint32_t number = c == 'x' ? take_hex(at, end, 2) : UINT32_MAX;
    if (!found && number == UINT32_MAX)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a string with a wrong escape");
    char byte = found ? bytes[found - letters] : (char)number;
    return cairn_buf_append(ret, &byte, 1, err);
}

static enum cairn_code op_string(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    struct cairn_view line;
    CAIRN_AUTO(buf) made = {.limit = machine->bytes.size + 1};
    CAIRN_TRY(cairn_pickle_take_line(machine, &line, err));
    const char *at = line.data, *end = at + line.size;
    if (line.size < 2 || (*at != '\'' && *at != '"') || end[-1] != *at)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a string without quotes");
    for (at++, end--; at < end;) {
        if (*at++ == '\\')
            CAIRN_TRY(append_escaped(machine, &at, end, &made, err));
        else
            CAIRN_TRY(cairn_buf_append(&made, at - 1, 1, err));
    }
    bool text = cairn_utf8_valid(cairn_buf_view(&made));
    return cairn_pickle_push_made(machine, text ? CAIRN_PICKLE_TEXT : CAIRN_PICKLE_BYTES, &made,
                                  err);
}

/* Protocol 0: one byte a character of Latin-1, others as \uXXXX or \UXXXXXXXX. */
static enum cairn_code op_raw_unicode(struct cairn_pickle_machine *machine,
                                      struct cairn_error *err) {
    struct cairn_view line;
    CAIRN_AUTO(buf) made = {.limit = 2 * machine->bytes.size + 1};
    CAIRN_TRY(cairn_pickle_take_line(machine, &line, err));
    const char *at = line.data, *end = at + line.size;
    while (at < end) {
        char text[4];
        uint32_t point = (uint8_t)*at++;
        if (point == '\\' && at < end && (*at == 'u' || *at == 'U')) {
            unsigned digits = *at++ == 'u' ? 4 : 8;
            point = take_hex(&at, end, digits);
        }
        if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
            return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a text with a wrong escape");
        CAIRN_TRY(cairn_buf_append(&made, text, utf8_of(point, text), err));
    }
    return cairn_pickle_push_made(machine, CAIRN_PICKLE_TEXT, &made, err);
}

/* ---- collections ---- */

static enum cairn_code op_none(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    return cairn_pickle_push(machine, 0, err);
}

/* A new collection of these; they lie above the stack's end, which the push moves over them. */
static enum cairn_code push_of(struct cairn_pickle_machine *machine, enum cairn_pickle_kind kind,
                               const cairn_pickle_ref *items, size_t count,
                               struct cairn_error *err) {
    cairn_pickle_ref made, first = count ? items[0] : 0;
    CAIRN_TRY(push_kind(machine, kind, err));
    CAIRN_TRY(cairn_pickle_top(machine, &made, err));
    if (count == 0) return CAIRN_OK;
    CAIRN_TRY(cairn_pickle_add_items(machine, made, &first, 1, err));
    return cairn_pickle_add_items(machine, made, machine->stack + machine->stack_count, count - 1,
                                  err);
}

static enum cairn_code push_marked(struct cairn_pickle_machine *machine, unsigned kind,
                                   struct cairn_error *err) {
    const cairn_pickle_ref *items;
    size_t count;
    CAIRN_TRY(cairn_pickle_pop_mark(machine, &items, &count, err));
    if (kind == CAIRN_PICKLE_DICT && count % 2)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a key without a value");
    return push_of(machine, kind, items, count, err);
}

static enum cairn_code op_frozenset(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    CAIRN_TRY(push_marked(machine, CAIRN_PICKLE_SET, err));
    VALUE_OF(machine, machine->stack[machine->stack_count - 1])->state = 1;
    return CAIRN_OK;
}

static enum cairn_code push_tuple(struct cairn_pickle_machine *machine, unsigned count,
                                  struct cairn_error *err) {
    cairn_pickle_ref items[3];
    for (size_t i = count; i > 0; i--) CAIRN_TRY(cairn_pickle_pop(machine, &items[i - 1], err));
    CAIRN_TRY(push_kind(machine, CAIRN_PICKLE_TUPLE, err));
    cairn_pickle_ref made = machine->stack[machine->stack_count - 1];
    return cairn_pickle_add_items(machine, made, items, count, err);
}

/* Items go into what lies below them: a collection of that kind, or an object that is one. */
static enum cairn_code add(struct cairn_pickle_machine *machine, enum cairn_pickle_kind kind,
                           const cairn_pickle_ref *items, size_t count, struct cairn_error *err) {
    cairn_pickle_ref to;
    CAIRN_TRY(cairn_pickle_top(machine, &to, err));
    if (VALUE_OF(machine, to)->kind != kind && VALUE_OF(machine, to)->kind != CAIRN_PICKLE_OBJECT)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "adds items to what takes none");
    if (kind == CAIRN_PICKLE_DICT && count % 2)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a key without a value");
    return cairn_pickle_add_items(machine, to, items, count, err);
}
static enum cairn_code add_marked(struct cairn_pickle_machine *machine, unsigned kind,
                                  struct cairn_error *err) {
    const cairn_pickle_ref *items;
    size_t count;
    CAIRN_TRY(cairn_pickle_pop_mark(machine, &items, &count, err));
    return add(machine, kind, items, count, err);
}
static enum cairn_code op_append(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref item;
    CAIRN_TRY(cairn_pickle_pop(machine, &item, err));
    return add(machine, CAIRN_PICKLE_LIST, &item, 1, err);
}
static enum cairn_code op_setitem(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref pair[2];
    CAIRN_TRY(cairn_pickle_pop(machine, &pair[1], err));
    CAIRN_TRY(cairn_pickle_pop(machine, &pair[0], err));
    return add(machine, CAIRN_PICKLE_DICT, pair, 2, err);
}

/* ---- names of Python and what is made with them ---- */

static enum cairn_code push_global(struct cairn_pickle_machine *machine, struct cairn_view module,
                                   struct cairn_view name, struct cairn_error *err) {
    struct cairn_pickle_value value = {.kind = CAIRN_PICKLE_GLOBAL};
    struct cairn_pickle *out = machine->out;
    const char *why = "";
    char text[256];
    if (!cairn_utf8_valid(module) || !cairn_utf8_valid(name))
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a name that is not UTF-8");
    switch (machine->judge(module, name, &value.global, &why)) {
    case CAIRN_PICKLE_KNOWN:
        break;
    case CAIRN_PICKLE_UNKNOWN:
        CAIRN_TRY(CAIRN_ARRAY_ROOM(out->unknown, out->unknown_count, out->unknown_capacity,
                                   UNKNOWN_MAX, "names in a pickle", err));
        value.global = CAIRN_PICKLE_UNKNOWN_FIRST + (uint32_t)out->unknown_count;
        out->unknown[out->unknown_count++] = (struct cairn_pickle_unknown){module, name};
        break;
    case CAIRN_PICKLE_REFUSED:
        snprintf(text, sizeof text, "%.*s.%.*s", (int)(module.size < 120 ? module.size : 120),
                 (const char *)module.data, (int)(name.size < 120 ? name.size : 120),
                 (const char *)name.data);
        return cairn_pickle_wrong(machine, CAIRN_UNSUPPORTED, err, "asks for %s, %s",
                                  cairn_short(text).text, why);
    }
    return cairn_pickle_push_new(machine, &value, err);
}
static enum cairn_code op_global(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    struct cairn_view module, name;
    CAIRN_TRY(cairn_pickle_take_line(machine, &module, err));
    CAIRN_TRY(cairn_pickle_take_line(machine, &name, err));
    return push_global(machine, module, name, err);
}
static enum cairn_code op_stack_global(struct cairn_pickle_machine *machine,
                                       struct cairn_error *err) {
    cairn_pickle_ref name, module;
    CAIRN_TRY(cairn_pickle_pop(machine, &name, err));
    CAIRN_TRY(cairn_pickle_pop(machine, &module, err));
    if (VALUE_OF(machine, name)->kind != CAIRN_PICKLE_TEXT ||
        VALUE_OF(machine, module)->kind != CAIRN_PICKLE_TEXT)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "a name that is not text");
    return push_global(machine, VALUE_OF(machine, module)->text, VALUE_OF(machine, name)->text,
                       err);
}

static enum cairn_code push_object(struct cairn_pickle_machine *machine, cairn_pickle_ref callable,
                                   cairn_pickle_ref arguments, struct cairn_error *err) {
    enum cairn_pickle_kind kind = VALUE_OF(machine, callable)->kind;
    if (kind != CAIRN_PICKLE_GLOBAL && kind != CAIRN_PICKLE_OBJECT)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "calls what is not a name");
    if (VALUE_OF(machine, arguments)->kind != CAIRN_PICKLE_TUPLE)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "arguments that are no tuple");
    struct cairn_pickle_value value = {
        .kind = CAIRN_PICKLE_OBJECT, .callable = callable, .arguments = arguments};
    return cairn_pickle_push_new(machine, &value, err);
}
static enum cairn_code op_reduce(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref callable, arguments;
    CAIRN_TRY(cairn_pickle_pop(machine, &arguments, err));
    CAIRN_TRY(cairn_pickle_pop(machine, &callable, err));
    return push_object(machine, callable, arguments, err);
}
static enum cairn_code op_newobj_ex(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref named, callable, arguments, made;
    CAIRN_TRY(cairn_pickle_pop(machine, &named, err));
    CAIRN_TRY(cairn_pickle_pop(machine, &arguments, err));
    CAIRN_TRY(cairn_pickle_pop(machine, &callable, err));
    if (VALUE_OF(machine, named)->kind != CAIRN_PICKLE_DICT)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "named arguments that are no dict");
    CAIRN_TRY(push_object(machine, callable, arguments, err));
    CAIRN_TRY(cairn_pickle_top(machine, &made, err));
    VALUE_OF(machine, made)->state = named;
    return CAIRN_OK;
}

/* The old way to make an instance: a class, and arguments up to a mark. */
static enum cairn_code op_inst(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref callable, arguments;
    CAIRN_TRY(push_marked(machine, CAIRN_PICKLE_TUPLE, err));
    CAIRN_TRY(cairn_pickle_pop(machine, &arguments, err));
    CAIRN_TRY(op_global(machine, err));
    CAIRN_TRY(cairn_pickle_pop(machine, &callable, err));
    return push_object(machine, callable, arguments, err);
}
static enum cairn_code op_obj(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    const cairn_pickle_ref *items;
    size_t count;
    CAIRN_TRY(cairn_pickle_pop_mark(machine, &items, &count, err));
    if (count == 0)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "makes what of no class");
    cairn_pickle_ref callable = items[0], arguments;
    machine->stack_count++; /* the class stays below while its arguments become a tuple */
    CAIRN_TRY(push_of(machine, CAIRN_PICKLE_TUPLE, items + 1, count - 1, err));
    CAIRN_TRY(cairn_pickle_pop(machine, &arguments, err));
    machine->stack_count--;
    return push_object(machine, callable, arguments, err);
}
static enum cairn_code op_build(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref state, object;
    CAIRN_TRY(cairn_pickle_pop(machine, &state, err));
    CAIRN_TRY(cairn_pickle_top(machine, &object, err));
    if (VALUE_OF(machine, object)->kind != CAIRN_PICKLE_OBJECT)
        return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "state for what has none");
    VALUE_OF(machine, object)->state = state;
    return CAIRN_OK;
}

/* Before its zip form torch named the class of a module by the id ("module", class, file, text of
 * the file): it is that class. */
static bool is_class(const struct cairn_pickle_machine *machine,
                     const struct cairn_pickle_value *id) {
    if (id->kind != CAIRN_PICKLE_TUPLE || id->count < 2) return false;
    const struct cairn_pickle_value *first = VALUE_OF(machine, id->items[0]);
    return first->kind == CAIRN_PICKLE_TEXT && first->text.size == 6 &&
           !memcmp(first->text.data, "module", 6) &&
           VALUE_OF(machine, id->items[1])->kind == CAIRN_PICKLE_GLOBAL;
}

static enum cairn_code op_binpersid(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref id;
    CAIRN_TRY(cairn_pickle_pop(machine, &id, err));
    if (is_class(machine, VALUE_OF(machine, id)))
        return cairn_pickle_push(machine, VALUE_OF(machine, id)->items[1], err);
    return cairn_pickle_push_new(
        machine, &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_PERSISTENT, .arguments = id},
        err);
}
static enum cairn_code op_persid(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    struct cairn_view line;
    CAIRN_TRY(cairn_pickle_take_line(machine, &line, err));
    CAIRN_TRY(push_string(machine, line, err));
    return op_binpersid(machine, err);
}

/* ---- stack and memo ---- */

static enum cairn_code op_pop(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref ignored;
    const cairn_pickle_ref *items;
    size_t count;
    if (machine->mark_count && machine->marks[machine->mark_count - 1] == machine->stack_count)
        return cairn_pickle_pop_mark(machine, &items, &count, err);
    return cairn_pickle_pop(machine, &ignored, err);
}
static enum cairn_code op_pop_mark(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    const cairn_pickle_ref *items;
    size_t count;
    return cairn_pickle_pop_mark(machine, &items, &count, err);
}
static enum cairn_code op_dup(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    cairn_pickle_ref top;
    CAIRN_TRY(cairn_pickle_top(machine, &top, err));
    return cairn_pickle_push(machine, top, err);
}
static enum cairn_code op_memoize(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    return cairn_pickle_remember(machine, machine->memo_count, err);
}

/* width 0: a line of digits. A negative number becomes one that is out of bounds. */
static enum cairn_code take_memo_number(struct cairn_pickle_machine *machine, unsigned width,
                                        uint64_t *ret, struct cairn_error *err) {
    int64_t number = 0;
    if (width) return cairn_pickle_take_number(machine, width, ret, err);
    CAIRN_TRY(take_line_integer(machine, &number, err));
    *ret = (uint64_t)number;
    return CAIRN_OK;
}
static enum cairn_code remember(struct cairn_pickle_machine *machine, unsigned width,
                                struct cairn_error *err) {
    uint64_t number;
    CAIRN_TRY(take_memo_number(machine, width, &number, err));
    return cairn_pickle_remember(machine, number, err);
}
static enum cairn_code recall(struct cairn_pickle_machine *machine, unsigned width,
                              struct cairn_error *err) {
    uint64_t number;
    CAIRN_TRY(take_memo_number(machine, width, &number, err));
    return cairn_pickle_recall(machine, number, err);
}

static enum cairn_code op_proto(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    uint64_t protocol;
    CAIRN_TRY(cairn_pickle_take_number(machine, 1, &protocol, err));
    if (protocol <= 5) return CAIRN_OK;
    return cairn_pickle_wrong(machine, CAIRN_UNSUPPORTED, err, "protocol %u, 5 is the newest",
                              (unsigned)protocol);
}
static enum cairn_code op_frame(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    struct cairn_view ignored; /* a hint for readers that load a frame at once */
    return cairn_pickle_take(machine, 8, &ignored, err);
}
static enum cairn_code op_stop(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    (void)err;
    machine->stopped = true;
    return CAIRN_OK;
}
static enum cairn_code op_elsewhere(struct cairn_pickle_machine *machine, struct cairn_error *err) {
    return cairn_pickle_wrong(machine, CAIRN_UNSUPPORTED, err,
                              "refers to a registry or to bytes that lie elsewhere");
}

/* What an opcode does; most differ from another in a width or a kind alone. */
struct opcode {
    enum cairn_code (*plain)(struct cairn_pickle_machine *machine, struct cairn_error *err);
    enum cairn_code (*with)(struct cairn_pickle_machine *machine, unsigned argument,
                            struct cairn_error *err);
    unsigned argument;
};
#define PLAIN(function)                                                                            \
    { .plain = function }
#define WITH(function, value)                                                                      \
    { .with = function, .argument = value }
#define OF(function, kind) WITH(function, CAIRN_PICKLE_##kind)

/* clang-format off */
static const struct opcode opcodes[256] = {
    ['('] = PLAIN(cairn_pickle_mark),       ['.'] = PLAIN(op_stop),
    ['0'] = PLAIN(op_pop),                  ['1'] = PLAIN(op_pop_mark),
    ['2'] = PLAIN(op_dup),                  ['F'] = PLAIN(op_float),
    ['I'] = PLAIN(op_int),                  ['J'] = PLAIN(op_binint),
    ['K'] = WITH(push_unsigned, 1),         ['L'] = PLAIN(op_long),
    ['M'] = WITH(push_unsigned, 2),         ['N'] = PLAIN(op_none),
    ['P'] = PLAIN(op_persid),               ['Q'] = PLAIN(op_binpersid),
    ['R'] = PLAIN(op_reduce),               ['S'] = PLAIN(op_string),
    ['T'] = WITH(take_string, 4),           ['U'] = WITH(take_string, 1),
    ['V'] = PLAIN(op_raw_unicode),          ['X'] = WITH(take_text, 4),
    ['a'] = PLAIN(op_append),               ['b'] = PLAIN(op_build),
    ['c'] = PLAIN(op_global),               ['d'] = OF(push_marked, DICT),
    ['}'] = OF(push_kind, DICT),            ['e'] = OF(add_marked, LIST),
    ['g'] = WITH(recall, 0),                ['h'] = WITH(recall, 1),
    ['i'] = PLAIN(op_inst),                 ['j'] = WITH(recall, 4),
    ['l'] = OF(push_marked, LIST),          [']'] = OF(push_kind, LIST),
    ['o'] = PLAIN(op_obj),                  ['p'] = WITH(remember, 0),
    ['q'] = WITH(remember, 1),              ['r'] = WITH(remember, 4),
    ['s'] = PLAIN(op_setitem),              ['t'] = OF(push_marked, TUPLE),
    [')'] = OF(push_kind, TUPLE),           ['u'] = OF(add_marked, DICT),
    ['G'] = PLAIN(op_binfloat),             ['B'] = WITH(take_bytes, 4),
    ['C'] = WITH(take_bytes, 1),            [0x80] = PLAIN(op_proto),
    [0x81] = PLAIN(op_reduce),              [0x82] = PLAIN(op_elsewhere),
    [0x83] = PLAIN(op_elsewhere),           [0x84] = PLAIN(op_elsewhere),
    [0x85] = WITH(push_tuple, 1),           [0x86] = WITH(push_tuple, 2),
    [0x87] = WITH(push_tuple, 3),           [0x88] = WITH(push_bool, true),
    [0x89] = WITH(push_bool, false),        [0x8a] = WITH(push_long, 1),
    [0x8b] = WITH(push_long, 4),            [0x8c] = WITH(take_text, 1),
    [0x8d] = WITH(take_text, 8),            [0x8e] = WITH(take_bytes, 8),
    [0x8f] = OF(push_kind, SET),            [0x90] = OF(add_marked, SET),
    [0x91] = PLAIN(op_frozenset),           [0x92] = PLAIN(op_newobj_ex),
    [0x93] = PLAIN(op_stack_global),        [0x94] = PLAIN(op_memoize),
    [0x95] = PLAIN(op_frame),               [0x96] = WITH(take_bytes, 8),
    [0x97] = PLAIN(op_elsewhere),           [0x98] = PLAIN(op_elsewhere),
};
/* clang-format on */

enum cairn_code cairn_pickle_do(struct cairn_pickle_machine *machine, uint8_t opcode,
                                struct cairn_error *err) {
    const struct opcode *row = &opcodes[opcode];
    if (row->plain) return row->plain(machine, err);
    if (row->with) return row->with(machine, row->argument, err);
    return cairn_pickle_wrong(machine, CAIRN_INVALID, err, "0x%02x is no opcode", opcode);
}
