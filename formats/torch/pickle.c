/* SPDX-License-Identifier: Apache-2.0 */
/* Stack, marks, memo and values of a pickle, all bounded, and the opcodes that work on them. */
#include "formats/torch/pickle.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"

#define VALUES_MAX (UINT32_MAX / 2)
#define MEMO_NONE UINT32_MAX

/* An opcode that reaches below the last mark or pops a missing value is CAIRN_INVALID. */
struct machine {
    struct cairn_pickle *out;
    cairn_pickle_judge *judge;
    struct cairn_view bytes;
    size_t at; /* offset of the next byte */
    size_t opcode_at;
    cairn_pickle_ref *stack, *memo;
    size_t stack_count, stack_capacity, memo_count, memo_capacity;
    uint32_t *marks; /* heights of the stack */
    size_t mark_count, mark_capacity;
    bool stopped;
};
static enum cairn_code do_opcode(struct machine *machine, uint8_t opcode, struct cairn_error *err);

/* Unescaped texts. */
struct cairn_pickle_own {
    char **texts;
    size_t count, capacity;
};

void cairn_pickle_release(struct cairn_pickle *pickle) {
    for (size_t i = 0; i < pickle->count; i++) {
        struct cairn_pickle_value *value = &pickle->values[i];
        if (value->kind >= CAIRN_PICKLE_TUPLE && value->kind != CAIRN_PICKLE_GLOBAL)
            free(value->items);
    }
    free(pickle->values);
    free(pickle->unknown);
    if (pickle->own) {
        for (size_t i = 0; i < pickle->own->count; i++) free(pickle->own->texts[i]);
        free(pickle->own->texts);
        free(pickle->own);
    }
    *pickle = (struct cairn_pickle){0};
}

/* Fails with CAIRN_INVALID or another code, and the opcode's place. */
CAIRN_PRINTF(4, 5)
static enum cairn_code fail_opcode(struct machine *machine, enum cairn_code code,
                                   struct cairn_error *err, const char *format, ...) {
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return cairn_fail(err, code, "pickle, byte %zu: %s", machine->opcode_at, what);
}

static enum cairn_code take_view(struct machine *machine, uint64_t size, struct cairn_view *ret,
                                 struct cairn_error *err) {
    if (size > machine->bytes.size - machine->at)
        return fail_opcode(machine, CAIRN_INVALID, err, "cut short at %zu bytes",
                           machine->bytes.size);
    *ret = (struct cairn_view){(const char *)machine->bytes.data + machine->at, (size_t)size};
    machine->at += (size_t)size;
    return CAIRN_OK;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static enum cairn_code take_number(struct machine *machine, unsigned width, uint64_t *ret,
                                   struct cairn_error *err) {
    struct cairn_view bytes = {0};
    CAIRN_TRY(take_view(machine, width, &bytes, err));
    *ret = 0;
    for (unsigned i = width; i > 0; i--) *ret = *ret << 8 | ((const uint8_t *)bytes.data)[i - 1];
    return CAIRN_OK;
}

/* Takes a line, including its end. */
static enum cairn_code take_line(struct machine *machine, struct cairn_view *ret,
                                 struct cairn_error *err) {
    const char *from = (const char *)machine->bytes.data + machine->at;
    const char *end = memchr(from, '\n', machine->bytes.size - machine->at);
    if (!end) return fail_opcode(machine, CAIRN_INVALID, err, "a line without an end");
    CAIRN_TRY(take_view(machine, (uint64_t)(end - from), ret, err));
    machine->at++;
    return CAIRN_OK;
}

static enum cairn_code new_value(struct cairn_pickle *pickle,
                                 const struct cairn_pickle_value *value, cairn_pickle_ref *ret,
                                 struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(pickle->values, pickle->count, pickle->capacity, VALUES_MAX,
                               "values of a pickle", err));
    *ret = (cairn_pickle_ref)pickle->count;
    pickle->values[pickle->count++] = *value;
    return CAIRN_OK;
}

static enum cairn_code push_ref(struct machine *machine, cairn_pickle_ref ref,
                                struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(machine->stack, machine->stack_count, machine->stack_capacity,
                               VALUES_MAX, "values on a pickle's stack", err));
    machine->stack[machine->stack_count++] = ref;
    return CAIRN_OK;
}

/* Adds a value to the pickle and pushes it. */
static enum cairn_code push_new(struct machine *machine, const struct cairn_pickle_value *value,
                                struct cairn_error *err) {
    cairn_pickle_ref ref = 0;
    CAIRN_TRY(new_value(machine->out, value, &ref, err));
    return push_ref(machine, ref, err);
}

/* Likewise for a text made here: takes over the bytes of `made`. */
static enum cairn_code push_made(struct machine *machine, enum cairn_pickle_kind kind,
                                 struct cairn_buf *made, struct cairn_error *err) {
    struct cairn_pickle_own *own = machine->out->own;
    struct cairn_pickle_value value = {.kind = kind, .text = {"", 0}};
    if (made->data) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(own->texts, own->count, own->capacity, VALUES_MAX,
                                   "texts of a pickle", err));
        own->texts[own->count++] = made->data;
        value.text = (struct cairn_view){made->data, made->size};
        *made = (struct cairn_buf){0};
    }
    return push_new(machine, &value, err);
}

static enum cairn_code top_ref(struct machine *machine, cairn_pickle_ref *ret,
                               struct cairn_error *err) {
    if (machine->stack_count <= (machine->mark_count ? machine->marks[machine->mark_count - 1] : 0))
        return fail_opcode(machine, CAIRN_INVALID, err, "takes a value where none is on the stack");
    *ret = machine->stack[machine->stack_count - 1];
    return CAIRN_OK;
}

static enum cairn_code pop_ref(struct machine *machine, cairn_pickle_ref *ret,
                               struct cairn_error *err) {
    CAIRN_TRY(top_ref(machine, ret, err));
    machine->stack_count--;
    return CAIRN_OK;
}

static enum cairn_code put_mark(struct machine *machine, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(machine->marks, machine->mark_count, machine->mark_capacity,
                               VALUES_MAX, "marks of a pickle", err));
    machine->marks[machine->mark_count++] = (uint32_t)machine->stack_count;
    return CAIRN_OK;
}

/* Pops all values above the last mark, and the mark; `*ret` is valid until the next push. */
static enum cairn_code pop_mark(struct machine *machine, const cairn_pickle_ref **ret,
                                size_t *ret_count, struct cairn_error *err) {
    if (machine->mark_count == 0)
        return fail_opcode(machine, CAIRN_INVALID, err, "takes up to a mark that is not set");
    size_t from = machine->marks[--machine->mark_count];
    *ret = machine->stack ? machine->stack + from : NULL;
    *ret_count = machine->stack_count - from;
    machine->stack_count = from;
    return CAIRN_OK;
}

static enum cairn_code put_items(struct machine *machine, cairn_pickle_ref to,
                                 const cairn_pickle_ref *items, size_t count,
                                 struct cairn_error *err) {
    struct cairn_pickle_value *value = &machine->out->values[to];
    size_t capacity = value->capacity;
    if (count == 0) return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(value->items, value->count, count, capacity, VALUES_MAX,
                                   "items of a pickled value", err));
    value->capacity = (uint32_t)capacity;
    memcpy(value->items + value->count, items, count * sizeof *items);
    value->count += (uint32_t)count;
    return CAIRN_OK;
}

/* Each memo entry takes at least two bytes, so no valid number exceeds the pickle's size. */
static enum cairn_code memo_put(struct machine *machine, uint64_t number, struct cairn_error *err) {
    cairn_pickle_ref top = 0;
    CAIRN_TRY(top_ref(machine, &top, err));
    if (number > machine->bytes.size)
        return fail_opcode(machine, CAIRN_INVALID, err, "keeps a value under number %llu",
                           (unsigned long long)number);
    while (machine->memo_count <= number) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(machine->memo, machine->memo_count, machine->memo_capacity,
                                   VALUES_MAX, "kept values of a pickle", err));
        machine->memo[machine->memo_count++] = MEMO_NONE;
    }
    machine->memo[number] = top;
    return CAIRN_OK;
}

static enum cairn_code run_opcodes(struct machine *machine, struct cairn_error *err) {
    while (!machine->stopped) {
        struct cairn_view opcode = {0};
        machine->opcode_at = machine->at;
        CAIRN_TRY(take_view(machine, 1, &opcode, err));
        CAIRN_TRY(do_opcode(machine, *(const uint8_t *)opcode.data, err));
    }
    return pop_ref(machine, &machine->out->root, err);
}

enum cairn_code cairn_pickle_read(struct cairn_view bytes, cairn_pickle_judge *judge,
                                  struct cairn_pickle *ret, struct cairn_error *err) {
    struct machine machine = {.out = ret, .judge = judge, .bytes = bytes};
    const struct cairn_pickle_value none = {.kind = CAIRN_PICKLE_NONE};
    cairn_pickle_ref ref = 0;
    *ret = (struct cairn_pickle){.bytes = bytes};
    if (bytes.size > CAIRN_PICKLE_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "a pickle of %zu bytes, at most %llu are read",
                          bytes.size, (unsigned long long)CAIRN_PICKLE_BYTES_MAX);
    ret->own = calloc(1, sizeof *ret->own);
    enum cairn_code code =
        ret->own ? new_value(ret, &none, &ref, err)
                 : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the values of a pickle");
    if (code == CAIRN_OK) code = run_opcodes(&machine, err);
    ret->read_bytes = machine.at;
    free(machine.stack);
    free(machine.memo);
    free(machine.marks);
    if (code != CAIRN_OK) cairn_pickle_release(ret);
    return code;
}

const struct cairn_pickle_unknown *cairn_pickle_unknown_at(const struct cairn_pickle *pickle,
                                                           const struct cairn_pickle_value *value) {
    if (value->kind != CAIRN_PICKLE_GLOBAL || value->global < CAIRN_PICKLE_UNKNOWN_FIRST)
        return NULL;
    CAIRN_ASSERT(value->global - CAIRN_PICKLE_UNKNOWN_FIRST < pickle->unknown_count);
    return &pickle->unknown[value->global - CAIRN_PICKLE_UNKNOWN_FIRST];
}

bool cairn_pickle_find(const struct cairn_pickle *pickle, cairn_pickle_ref dict, const char *key,
                       cairn_pickle_ref *ret_value) {
    const struct cairn_pickle_value *value = cairn_pickle_at(pickle, dict);
    size_t size = strlen(key);
    if (value->kind != CAIRN_PICKLE_DICT && value->kind != CAIRN_PICKLE_OBJECT) return false;
    for (uint32_t i = value->count & ~1u; i >= 2; i -= 2) {
        const struct cairn_pickle_value *name = cairn_pickle_at(pickle, value->items[i - 2]);
        if (name->kind != CAIRN_PICKLE_TEXT || name->text.size != size ||
            memcmp(name->text.data, key, size) != 0)
            continue;
        *ret_value = value->items[i - 1];
        return true;
    }
    return false;
}

/* ---- opcodes of protocols 0 to 5: a table by byte ---- */

#define DIGITS_MAX 16384
#define UNKNOWN_MAX (CAIRN_PICKLE_UNKNOWN_FIRST - 1)
#define VALUE_OF(machine, ref) (&(machine)->out->values[ref])

static enum cairn_code push_kind(struct machine *machine, unsigned kind, struct cairn_error *err) {
    return push_new(machine, &(struct cairn_pickle_value){.kind = kind}, err);
}

static enum cairn_code push_integer(struct machine *machine, int64_t integer,
                                    struct cairn_error *err) {
    return push_new(machine,
                    &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_INTEGER, .integer = integer},
                    err);
}

static enum cairn_code push_unsigned(struct machine *machine, unsigned width,
                                     struct cairn_error *err) {
    uint64_t number;
    CAIRN_TRY(take_number(machine, width, &number, err));
    return push_integer(machine, (int64_t)number, err);
}

static enum cairn_code op_binint(struct machine *machine, struct cairn_error *err) {
    uint64_t number;
    CAIRN_TRY(take_number(machine, 4, &number, err));
    return push_integer(machine, (int32_t)(uint32_t)number, err);
}

static enum cairn_code push_long(struct machine *machine, unsigned width, struct cairn_error *err) {
    uint64_t size;
    struct cairn_view bytes = {0};
    CAIRN_TRY(take_number(machine, width, &size, err));
    CAIRN_TRY(take_view(machine, size, &bytes, err));
    const uint8_t *digits = bytes.data;
    if (size > 8)
        return push_new(
            machine, &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_LONG, .text = bytes}, err);
    uint64_t number = size && digits[size - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)size; i > 0; i--) number = number << 8 | digits[i - 1];
    return push_integer(machine, (int64_t)number, err);
}

static enum cairn_code push_bool(struct machine *machine, unsigned truth, struct cairn_error *err) {
    return push_new(
        machine, &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_BOOL, .truth = truth != 0}, err);
}

static enum cairn_code take_line_text(struct machine *machine, char ret[64],
                                      struct cairn_error *err) {
    struct cairn_view line = {0};
    CAIRN_TRY(take_line(machine, &line, err));
    if (line.size >= 64)
        return fail_opcode(machine, CAIRN_INVALID, err, "a number of %zu digits", line.size);
    memcpy(ret, line.data, line.size);
    ret[line.size] = '\0';
    return CAIRN_OK;
}

static enum cairn_code take_line_integer(struct machine *machine, int64_t *ret,
                                         struct cairn_error *err) {
    char text[64], *end;
    CAIRN_TRY(take_line_text(machine, text, err));
    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (*end == 'L' && end > text) end++;
    if (errno || end == text || *end)
        return fail_opcode(machine, CAIRN_INVALID, err, "%s is not a number", text);
    return CAIRN_OK;
}

/* Protocol 0 writes True as the integer 01, False as 00. */
static enum cairn_code op_int(struct machine *machine, struct cairn_error *err) {
    int64_t number;
    size_t from = machine->at;
    CAIRN_TRY(take_line_integer(machine, &number, err));
    const char *digits = (const char *)machine->bytes.data + from;
    bool is_bool = machine->at - from == 3 && digits[0] == '0' && (number == 0 || number == 1);
    return is_bool ? push_bool(machine, number == 1, err) : push_integer(machine, number, err);
}

/* Converts decimal digits of more than 64 bits to the bytes of LONG1. */
static enum cairn_code push_digits(struct machine *machine, struct cairn_view line,
                                   struct cairn_error *err) {
    const char *at = line.data, *end = at + line.size;
    CAIRN_AUTO(buf) made = {.limit = DIGITS_MAX};
    bool negative = at < end && *at == '-';
    if (end > at && end[-1] == 'L') end--;
    at += negative;
    if (at == end || line.size > DIGITS_MAX)
        return fail_opcode(machine, CAIRN_INVALID, err, "a number of %zu digits", line.size);
    CAIRN_TRY(cairn_buf_reserve(&made, (size_t)(end - at) / 2 + 2, err));
    made.size = (size_t)(end - at) / 2 + 2; /* a digit has less than four bits; sign */
    memset(made.data, 0, made.size);
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return fail_opcode(machine, CAIRN_INVALID, err, "a number that is none");
        /* bytes = bytes * 10 + digit, lowest byte first. */
        unsigned carry = (unsigned)(*at - '0');
        for (size_t i = 0; i < made.size; i++) {
            carry += 10 * (uint8_t)made.data[i];
            made.data[i] = (char)carry;
            carry >>= 8;
        }
        CAIRN_ASSERT(!carry); /* there is room for all digits */
    }
    unsigned carry = 1;
    for (size_t i = 0; negative && i < made.size; i++) {
        carry += (uint8_t)~made.data[i];
        made.data[i] = (char)carry;
        carry >>= 8;
    }
    return push_made(machine, CAIRN_PICKLE_LONG, &made, err);
}

static enum cairn_code op_long(struct machine *machine, struct cairn_error *err) {
    struct cairn_view line = {0};
    int64_t number;
    size_t from = machine->at;
    CAIRN_TRY(take_line(machine, &line, err));
    if (line.size > 19) return push_digits(machine, line, err); /* 19 digits fit into 64 bits */
    machine->at = from;
    CAIRN_TRY(take_line_integer(machine, &number, err));
    return push_integer(machine, number, err);
}

static enum cairn_code push_real(struct machine *machine, double real, struct cairn_error *err) {
    return push_new(machine, &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_REAL, .real = real},
                    err);
}
static enum cairn_code op_float(struct machine *machine, struct cairn_error *err) {
    char text[64], *end;
    CAIRN_TRY(take_line_text(machine, text, err));
    double real = strtod(text, &end);
    if (end == text || *end)
        return fail_opcode(machine, CAIRN_INVALID, err, "%s is not a number", text);
    return push_real(machine, real, err);
}
static enum cairn_code op_binfloat(struct machine *machine, struct cairn_error *err) {
    struct cairn_view bytes = {0};
    uint64_t bits = 0;
    double real;
    CAIRN_TRY(take_view(machine, 8, &bytes, err));
    for (int i = 0; i < 8; i++) bits = bits << 8 | ((const uint8_t *)bytes.data)[i];
    memcpy(&real, &bits, sizeof real);
    return push_real(machine, real, err);
}

/* Python 2's string is bytes or text, undeclared; valid UTF-8 counts as text. */
static enum cairn_code push_string(struct machine *machine, struct cairn_view bytes,
                                   struct cairn_error *err) {
    struct cairn_pickle_value value = {
        .kind = cairn_utf8_valid(bytes) ? CAIRN_PICKLE_TEXT : CAIRN_PICKLE_BYTES, .text = bytes};
    return push_new(machine, &value, err);
}

/* Python writes a file name that is no UTF-8 with unpaired surrogates: such a text is no damage. */
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

static enum cairn_code push_global(struct machine *machine, struct cairn_view module,
                                   struct cairn_view name, struct cairn_error *err);

static enum cairn_code push_sized(struct machine *machine, unsigned width,
                                  enum cairn_pickle_kind kind, struct cairn_error *err) {
    uint64_t size;
    struct cairn_view bytes = {0};
    CAIRN_TRY(take_number(machine, width, &size, err));
    CAIRN_TRY(take_view(machine, size, &bytes, err));
    if (kind == CAIRN_PICKLE_TEXT && !cairn_utf8_valid(bytes)) {
        if (!has_surrogates_alone(bytes))
            return fail_opcode(machine, CAIRN_INVALID, err, "a text that is not UTF-8");
        return push_global(machine, CAIRN_VIEW("builtins"), CAIRN_VIEW("str (surrogates)"), err);
    }
    return push_new(machine, &(struct cairn_pickle_value){.kind = kind, .text = bytes}, err);
}

static enum cairn_code take_text(struct machine *machine, unsigned width, struct cairn_error *err) {
    return push_sized(machine, width, CAIRN_PICKLE_TEXT, err);
}
static enum cairn_code take_bytes(struct machine *machine, unsigned width,
                                  struct cairn_error *err) {
    return push_sized(machine, width, CAIRN_PICKLE_BYTES, err);
}

static enum cairn_code take_string(struct machine *machine, unsigned width,
                                   struct cairn_error *err) {
    uint64_t size;
    struct cairn_view bytes = {0};
    CAIRN_TRY(take_number(machine, width, &size, err));
    CAIRN_TRY(take_view(machine, size, &bytes, err));
    return push_string(machine, bytes, err);
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Parses `digits` hex digits and advances *at past them; UINT32_MAX: too few. */
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

/* Decodes an escape of Python 2's string repr(). */
static enum cairn_code append_escaped(struct machine *machine, const char **at, const char *end,
                                      struct cairn_buf *ret, struct cairn_error *err) {
    static const char letters[] = "\\'\"abfnrtv", bytes[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *at < end ? *(*at)++ : '\0';
    const char *found = c ? strchr(letters, c) : NULL;
    uint32_t number = c == 'x' ? take_hex(at, end, 2) : UINT32_MAX;
    if (!found && number == UINT32_MAX)
        return fail_opcode(machine, CAIRN_INVALID, err, "a string with a wrong escape");
    char byte = found ? bytes[found - letters] : (char)number;
    return cairn_buf_append(ret, &byte, 1, err);
}

static enum cairn_code op_string(struct machine *machine, struct cairn_error *err) {
    struct cairn_view line = {0};
    CAIRN_AUTO(buf) made = {.limit = machine->bytes.size + 1};
    CAIRN_TRY(take_line(machine, &line, err));
    const char *at = line.data, *end = at + line.size;
    if (line.size < 2 || (*at != '\'' && *at != '"') || end[-1] != *at)
        return fail_opcode(machine, CAIRN_INVALID, err, "a string without quotes");
    for (at++, end--; at < end;) {
        if (*at++ == '\\')
            CAIRN_TRY(append_escaped(machine, &at, end, &made, err));
        else
            CAIRN_TRY(cairn_buf_append(&made, at - 1, 1, err));
    }
    bool text = cairn_utf8_valid(cairn_buf_view(&made));
    return push_made(machine, text ? CAIRN_PICKLE_TEXT : CAIRN_PICKLE_BYTES, &made, err);
}

/* Protocol 0: Latin-1 bytes, other characters as \uXXXX or \UXXXXXXXX. */
static enum cairn_code op_raw_unicode(struct machine *machine, struct cairn_error *err) {
    struct cairn_view line = {0};
    CAIRN_AUTO(buf) made = {.limit = 2 * machine->bytes.size + 1};
    CAIRN_TRY(take_line(machine, &line, err));
    const char *at = line.data, *end = at + line.size;
    while (at < end) {
        char text[4];
        uint32_t point = (uint8_t)*at++;
        if (point == '\\' && at < end && (*at == 'u' || *at == 'U')) {
            unsigned digits = *at++ == 'u' ? 4 : 8;
            point = take_hex(&at, end, digits);
        }
        if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
            return fail_opcode(machine, CAIRN_INVALID, err, "a text with a wrong escape");
        CAIRN_TRY(cairn_buf_append(&made, text, utf8_of(point, text), err));
    }
    return push_made(machine, CAIRN_PICKLE_TEXT, &made, err);
}

static enum cairn_code op_none(struct machine *machine, struct cairn_error *err) {
    return push_ref(machine, 0, err);
}

/* Pushes a new collection of items that lie just above the stack, which the push moves. */
static enum cairn_code push_of(struct machine *machine, enum cairn_pickle_kind kind,
                               const cairn_pickle_ref *items, size_t count,
                               struct cairn_error *err) {
    cairn_pickle_ref made, first = count ? items[0] : 0;
    CAIRN_TRY(push_kind(machine, kind, err));
    CAIRN_TRY(top_ref(machine, &made, err));
    if (count == 0) return CAIRN_OK;
    CAIRN_TRY(put_items(machine, made, &first, 1, err));
    return put_items(machine, made, machine->stack + machine->stack_count, count - 1, err);
}

static enum cairn_code push_marked(struct machine *machine, unsigned kind,
                                   struct cairn_error *err) {
    const cairn_pickle_ref *items = NULL;
    size_t count = 0;
    CAIRN_TRY(pop_mark(machine, &items, &count, err));
    if (kind == CAIRN_PICKLE_DICT && count % 2)
        return fail_opcode(machine, CAIRN_INVALID, err, "a key without a value");
    return push_of(machine, kind, items, count, err);
}

static enum cairn_code op_frozenset(struct machine *machine, struct cairn_error *err) {
    CAIRN_TRY(push_marked(machine, CAIRN_PICKLE_SET, err));
    VALUE_OF(machine, machine->stack[machine->stack_count - 1])->state = 1;
    return CAIRN_OK;
}

static enum cairn_code push_tuple(struct machine *machine, unsigned count,
                                  struct cairn_error *err) {
    cairn_pickle_ref items[3];
    for (size_t i = count; i > 0; i--) CAIRN_TRY(pop_ref(machine, &items[i - 1], err));
    CAIRN_TRY(push_kind(machine, CAIRN_PICKLE_TUPLE, err));
    cairn_pickle_ref made = machine->stack[machine->stack_count - 1];
    return put_items(machine, made, items, count, err);
}

/* Adds items to the value below them: a collection of that kind, or an object derived from one. */
static enum cairn_code add_to_top(struct machine *machine, enum cairn_pickle_kind kind,
                                  const cairn_pickle_ref *items, size_t count,
                                  struct cairn_error *err) {
    cairn_pickle_ref to = 0;
    CAIRN_TRY(top_ref(machine, &to, err));
    if (VALUE_OF(machine, to)->kind != kind && VALUE_OF(machine, to)->kind != CAIRN_PICKLE_OBJECT)
        return fail_opcode(machine, CAIRN_INVALID, err, "adds items to what takes none");
    if (kind == CAIRN_PICKLE_DICT && count % 2)
        return fail_opcode(machine, CAIRN_INVALID, err, "a key without a value");
    return put_items(machine, to, items, count, err);
}
static enum cairn_code add_marked(struct machine *machine, unsigned kind, struct cairn_error *err) {
    const cairn_pickle_ref *items = NULL;
    size_t count = 0;
    CAIRN_TRY(pop_mark(machine, &items, &count, err));
    return add_to_top(machine, kind, items, count, err);
}
static enum cairn_code op_append(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref item = 0;
    CAIRN_TRY(pop_ref(machine, &item, err));
    return add_to_top(machine, CAIRN_PICKLE_LIST, &item, 1, err);
}
static enum cairn_code op_setitem(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref pair[2];
    CAIRN_TRY(pop_ref(machine, &pair[1], err));
    CAIRN_TRY(pop_ref(machine, &pair[0], err));
    return add_to_top(machine, CAIRN_PICKLE_DICT, pair, 2, err);
}

static enum cairn_code push_global(struct machine *machine, struct cairn_view module,
                                   struct cairn_view name, struct cairn_error *err) {
    struct cairn_pickle_value value = {.kind = CAIRN_PICKLE_GLOBAL};
    struct cairn_pickle *out = machine->out;
    const char *why = "";
    char text[256];
    if (!cairn_utf8_valid(module) || !cairn_utf8_valid(name))
        return fail_opcode(machine, CAIRN_INVALID, err, "a name that is not UTF-8");
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
        return fail_opcode(machine, CAIRN_UNSUPPORTED, err, "asks for %s, %s",
                           cairn_short(text).text, why);
    }
    return push_new(machine, &value, err);
}
static enum cairn_code op_global(struct machine *machine, struct cairn_error *err) {
    struct cairn_view module, name;
    CAIRN_TRY(take_line(machine, &module, err));
    CAIRN_TRY(take_line(machine, &name, err));
    return push_global(machine, module, name, err);
}
static enum cairn_code op_stack_global(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref name = 0, module = 0;
    CAIRN_TRY(pop_ref(machine, &name, err));
    CAIRN_TRY(pop_ref(machine, &module, err));
    if (VALUE_OF(machine, name)->kind != CAIRN_PICKLE_TEXT ||
        VALUE_OF(machine, module)->kind != CAIRN_PICKLE_TEXT)
        return fail_opcode(machine, CAIRN_INVALID, err, "a name that is not text");
    return push_global(machine, VALUE_OF(machine, module)->text, VALUE_OF(machine, name)->text,
                       err);
}

static enum cairn_code push_object(struct machine *machine, cairn_pickle_ref callable,
                                   cairn_pickle_ref arguments, struct cairn_error *err) {
    enum cairn_pickle_kind kind = VALUE_OF(machine, callable)->kind;
    if (kind != CAIRN_PICKLE_GLOBAL && kind != CAIRN_PICKLE_OBJECT)
        return fail_opcode(machine, CAIRN_INVALID, err, "calls what is not a name");
    if (VALUE_OF(machine, arguments)->kind != CAIRN_PICKLE_TUPLE)
        return fail_opcode(machine, CAIRN_INVALID, err, "arguments that are no tuple");
    struct cairn_pickle_value value = {
        .kind = CAIRN_PICKLE_OBJECT, .callable = callable, .arguments = arguments};
    return push_new(machine, &value, err);
}
static enum cairn_code op_reduce(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref callable = 0, arguments = 0;
    CAIRN_TRY(pop_ref(machine, &arguments, err));
    CAIRN_TRY(pop_ref(machine, &callable, err));
    return push_object(machine, callable, arguments, err);
}
static enum cairn_code op_newobj_ex(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref named = 0, callable = 0, arguments = 0, made = 0;
    CAIRN_TRY(pop_ref(machine, &named, err));
    CAIRN_TRY(pop_ref(machine, &arguments, err));
    CAIRN_TRY(pop_ref(machine, &callable, err));
    if (VALUE_OF(machine, named)->kind != CAIRN_PICKLE_DICT)
        return fail_opcode(machine, CAIRN_INVALID, err, "named arguments that are no dict");
    CAIRN_TRY(push_object(machine, callable, arguments, err));
    CAIRN_TRY(top_ref(machine, &made, err));
    VALUE_OF(machine, made)->state = named;
    return CAIRN_OK;
}

/* The old instance creation: a class, and arguments up to a mark. */
static enum cairn_code op_inst(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref callable = 0, arguments = 0;
    CAIRN_TRY(push_marked(machine, CAIRN_PICKLE_TUPLE, err));
    CAIRN_TRY(pop_ref(machine, &arguments, err));
    CAIRN_TRY(op_global(machine, err));
    CAIRN_TRY(pop_ref(machine, &callable, err));
    return push_object(machine, callable, arguments, err);
}
static enum cairn_code op_obj(struct machine *machine, struct cairn_error *err) {
    const cairn_pickle_ref *items = NULL;
    size_t count = 0;
    CAIRN_TRY(pop_mark(machine, &items, &count, err));
    if (count == 0) return fail_opcode(machine, CAIRN_INVALID, err, "makes what of no class");
    cairn_pickle_ref callable = items[0], arguments;
    machine->stack_count++; /* the class stays below while its arguments become a tuple */
    CAIRN_TRY(push_of(machine, CAIRN_PICKLE_TUPLE, items + 1, count - 1, err));
    CAIRN_TRY(pop_ref(machine, &arguments, err));
    machine->stack_count--;
    return push_object(machine, callable, arguments, err);
}
static enum cairn_code op_build(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref state = 0, object = 0;
    CAIRN_TRY(pop_ref(machine, &state, err));
    CAIRN_TRY(top_ref(machine, &object, err));
    if (VALUE_OF(machine, object)->kind != CAIRN_PICKLE_OBJECT)
        return fail_opcode(machine, CAIRN_INVALID, err, "state for what has none");
    VALUE_OF(machine, object)->state = state;
    return CAIRN_OK;
}

/* torch before its zip form refers to a class by the id ("module", class, file, text). */
static bool is_class(const struct machine *machine, const struct cairn_pickle_value *id) {
    if (id->kind != CAIRN_PICKLE_TUPLE || id->count < 2) return false;
    const struct cairn_pickle_value *first = VALUE_OF(machine, id->items[0]);
    return first->kind == CAIRN_PICKLE_TEXT && first->text.size == 6 &&
           !memcmp(first->text.data, "module", 6) &&
           VALUE_OF(machine, id->items[1])->kind == CAIRN_PICKLE_GLOBAL;
}

static enum cairn_code op_binpersid(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref id = 0;
    CAIRN_TRY(pop_ref(machine, &id, err));
    if (is_class(machine, VALUE_OF(machine, id)))
        return push_ref(machine, VALUE_OF(machine, id)->items[1], err);
    return push_new(machine,
                    &(struct cairn_pickle_value){.kind = CAIRN_PICKLE_PERSISTENT, .arguments = id},
                    err);
}
static enum cairn_code op_persid(struct machine *machine, struct cairn_error *err) {
    struct cairn_view line = {0};
    CAIRN_TRY(take_line(machine, &line, err));
    CAIRN_TRY(push_string(machine, line, err));
    return op_binpersid(machine, err);
}

static enum cairn_code op_pop(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref ignored = 0;
    const cairn_pickle_ref *items = NULL;
    size_t count = 0;
    if (machine->mark_count && machine->marks[machine->mark_count - 1] == machine->stack_count)
        return pop_mark(machine, &items, &count, err);
    return pop_ref(machine, &ignored, err);
}
static enum cairn_code op_pop_mark(struct machine *machine, struct cairn_error *err) {
    const cairn_pickle_ref *items = NULL;
    size_t count = 0;
    return pop_mark(machine, &items, &count, err);
}
static enum cairn_code op_dup(struct machine *machine, struct cairn_error *err) {
    cairn_pickle_ref top = 0;
    CAIRN_TRY(top_ref(machine, &top, err));
    return push_ref(machine, top, err);
}
static enum cairn_code op_memoize(struct machine *machine, struct cairn_error *err) {
    return memo_put(machine, machine->memo_count, err);
}

/* width 0: a line of digits. A negative number becomes one out of bounds. */
static enum cairn_code take_memo_number(struct machine *machine, unsigned width, uint64_t *ret,
                                        struct cairn_error *err) {
    int64_t number = 0;
    if (width) return take_number(machine, width, ret, err);
    CAIRN_TRY(take_line_integer(machine, &number, err));
    *ret = (uint64_t)number;
    return CAIRN_OK;
}
static enum cairn_code op_put(struct machine *machine, unsigned width, struct cairn_error *err) {
    uint64_t number;
    CAIRN_TRY(take_memo_number(machine, width, &number, err));
    return memo_put(machine, number, err);
}
static enum cairn_code op_get(struct machine *machine, unsigned width, struct cairn_error *err) {
    uint64_t number;
    CAIRN_TRY(take_memo_number(machine, width, &number, err));
    if (number >= machine->memo_count || machine->memo[number] == MEMO_NONE)
        return fail_opcode(machine, CAIRN_INVALID, err,
                           "asks for kept value %llu, which was never kept",
                           (unsigned long long)number);
    return push_ref(machine, machine->memo[number], err);
}

static enum cairn_code op_proto(struct machine *machine, struct cairn_error *err) {
    uint64_t protocol;
    CAIRN_TRY(take_number(machine, 1, &protocol, err));
    if (protocol <= 5) return CAIRN_OK;
    return fail_opcode(machine, CAIRN_UNSUPPORTED, err, "protocol %u, 5 is the newest",
                       (unsigned)protocol);
}
static enum cairn_code op_frame(struct machine *machine, struct cairn_error *err) {
    struct cairn_view ignored; /* a hint to load a frame at once */
    return take_view(machine, 8, &ignored, err);
}
static enum cairn_code op_stop(struct machine *machine, struct cairn_error *err) {
    (void)err;
    machine->stopped = true;
    return CAIRN_OK;
}
static enum cairn_code op_elsewhere(struct machine *machine, struct cairn_error *err) {
    return fail_opcode(machine, CAIRN_UNSUPPORTED, err,
                       "refers to a registry or to bytes that lie elsewhere");
}

/* An opcode's action; most differ only in a width or a kind. */
struct opcode {
    enum cairn_code (*plain)(struct machine *machine, struct cairn_error *err);
    enum cairn_code (*with)(struct machine *machine, unsigned argument, struct cairn_error *err);
    unsigned argument;
};
#define PLAIN(function)                                                                            \
    { .plain = function }
#define WITH(function, value)                                                                      \
    { .with = function, .argument = value }
#define OF(function, kind) WITH(function, CAIRN_PICKLE_##kind)

/* clang-format off */
static const struct opcode opcodes[256] = {
    ['('] = PLAIN(put_mark),       ['.'] = PLAIN(op_stop),
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
    ['g'] = WITH(op_get, 0),                ['h'] = WITH(op_get, 1),
    ['i'] = PLAIN(op_inst),                 ['j'] = WITH(op_get, 4),
    ['l'] = OF(push_marked, LIST),          [']'] = OF(push_kind, LIST),
    ['o'] = PLAIN(op_obj),                  ['p'] = WITH(op_put, 0),
    ['q'] = WITH(op_put, 1),                ['r'] = WITH(op_put, 4),
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

/* Executes the opcode at machine->at - 1. */
static enum cairn_code do_opcode(struct machine *machine, uint8_t opcode, struct cairn_error *err) {
    const struct opcode *row = &opcodes[opcode];
    if (row->plain) return row->plain(machine, err);
    if (row->with) return row->with(machine, row->argument, err);
    return fail_opcode(machine, CAIRN_INVALID, err, "0x%02x is no opcode", opcode);
}
