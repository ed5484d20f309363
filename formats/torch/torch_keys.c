/* SPDX-License-Identifier: Apache-2.0 */
/* str() of dict keys, and repr() of what is in them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "formats/torch/torch.h"

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

/* ---- values that calls make: ranges, dates, paths, numbers of NumPy ---- */

#define NAME_BYTES 96
#define MADE_BYTES_MAX 64

/* "module.name" of a global; "": none, or a long one. Python 3 writes its names for Python 2. */
static void full_name(const struct cairn_pickle *values, cairn_pickle_ref ref,
                      char ret[NAME_BYTES]) {
    static const char *const renamed[][2] = {{"__builtin__.xrange", "builtins.range"},
                                             {"__builtin__.unicode", "builtins.str"},
                                             {"__builtin__.long", "builtins.int"}};
    static const char old[] = "__builtin__.";
    const struct cairn_pickle_value *value = cairn_pickle_at(values, ref);
    const struct cairn_pickle_unknown *unknown = cairn_pickle_unknown_at(values, value);
    const struct cairn_torch_name *known = cairn_torch_name_of(values, ref);
    char text[NAME_BYTES - sizeof "builtins."] = "";
    if (known) snprintf(text, sizeof text, "%s.%s", known->module, known->name);
    if (unknown && unknown->module.size + unknown->name.size + 2 <= sizeof text)
        snprintf(text, sizeof text, "%.*s.%.*s", (int)unknown->module.size,
                 (const char *)unknown->module.data, (int)unknown->name.size,
                 (const char *)unknown->name.data);
    for (size_t i = 0; i < CAIRN_COUNT(renamed); i++)
        if (strcmp(text, renamed[i][0]) == 0) snprintf(text, sizeof text, "%s", renamed[i][1]);
    bool builtin = strncmp(text, old, sizeof old - 1) == 0;
    snprintf(ret, NAME_BYTES, "%s%s", builtin ? "builtins." : "",
             text + (builtin ? sizeof old - 1 : 0));
}

/* A class, or Ellipsis. Of a function, whose text has its address, nobody knows the name. */
static enum cairn_code print_global(struct printer *printer, cairn_pickle_ref ref,
                                    struct cairn_error *err) {
    static const char builtins[] = "builtins.";
    char name[NAME_BYTES];
    full_name(printer->values, ref, name);
    const char *own =
        strncmp(name, builtins, sizeof builtins - 1) == 0 ? name + sizeof builtins - 1 : name;
    printer->fits &= *name != '\0';
    /* torch.per_tensor_affine and its like are values of their own names. */
    bool value =
        strncmp(own, "torch.", 6) == 0 && own[6] >= 'a' && own[6] <= 'z' && !strchr(own + 6, '.');
    if (value || strcmp(own, "Ellipsis") == 0 || strcmp(own, "NotImplemented") == 0)
        return cairn_buf_append_text(printer->into, own, err);
    return cairn_buf_printf(printer->into, err, "<class '%s'>", own);
}

/* The bytes of a value, as they are or as Python 3 writes them for Python 2; false: none. */
static bool bytes_of(const struct cairn_pickle *values, const struct cairn_pickle_value *value,
                     uint8_t ret[MADE_BYTES_MAX], size_t *ret_size) {
    const struct cairn_torch_name *maker = cairn_torch_maker(values, value);
    bool encoded = maker && strcmp(maker->name, "encode") == 0;
    if (encoded) {
        const struct cairn_pickle_value *arguments = cairn_pickle_at(values, value->arguments);
        if (!arguments->count) return false;
        value = cairn_pickle_at(values, arguments->items[0]);
    }
    if (value->kind != (encoded ? CAIRN_PICKLE_TEXT : CAIRN_PICKLE_BYTES)) return false;
    const uint8_t *bytes = value->text.data;
    *ret_size = 0;
    for (size_t i = 0, size = 1; i < value->text.size; i += size) {
        uint32_t point = encoded ? point_at(bytes + i, value->text.size - i, &size) : bytes[i];
        if (*ret_size == MADE_BYTES_MAX || point > 0xff) return false;
        ret[(*ret_size)++] = (uint8_t)point;
    }
    return true;
}

/* HH:MM:SS with microseconds, if any. */
static enum cairn_code print_time(struct printer *printer, const uint8_t *at,
                                  struct cairn_error *err) {
    unsigned micro = (unsigned)at[3] << 16 | (unsigned)at[4] << 8 | at[5];
    CAIRN_TRY(cairn_buf_printf(printer->into, err, "%02u:%02u:%02u", at[0], at[1], at[2]));
    return micro ? cairn_buf_printf(printer->into, err, ".%06u", micro) : CAIRN_OK;
}

/* date, time and datetime without a time zone, as their bytes. */
static enum cairn_code print_date(struct printer *printer, const char *name,
                                  const struct cairn_pickle_value *arguments,
                                  struct cairn_error *err) {
    uint8_t at[MADE_BYTES_MAX];
    size_t size = 0, date = strcmp(name, "datetime.time") ? 4 : 0;
    size_t wanted = date + (strcmp(name, "datetime.date") ? 6 : 0);
    printer->fits = printer->fits && arguments->count == 1 && printer->depth == 1 &&
                    bytes_of(printer->values, cairn_pickle_at(printer->values, arguments->items[0]),
                             at, &size) &&
                    size == wanted;
    if (!printer->fits) return CAIRN_OK;
    if (date)
        CAIRN_TRY(cairn_buf_printf(printer->into, err, "%04u-%02u-%02u",
                                   (unsigned)at[0] << 8 | at[1], at[2], at[3]));
    if (date && wanted > date) CAIRN_TRY(cairn_buf_append(printer->into, " ", 1, err));
    return wanted > date ? print_time(printer, at + date, err) : CAIRN_OK;
}

static enum cairn_code print_numbers(struct printer *printer, const char *name,
                                     const struct cairn_pickle_value *arguments,
                                     struct cairn_error *err) {
    int64_t of[3] = {0};
    printer->fits &= arguments->count == 3;
    for (uint32_t i = 0; printer->fits && i < 3; i++) {
        const struct cairn_pickle_value *number =
            cairn_pickle_at(printer->values, arguments->items[i]);
        printer->fits = number->kind == CAIRN_PICKLE_INTEGER;
        of[i] = number->integer;
    }
    if (strcmp(name, "builtins.range") == 0) {
        CAIRN_TRY(
            cairn_buf_printf(printer->into, err, "range(%" PRId64 ", %" PRId64, of[0], of[1]));
        if (of[2] != 1) CAIRN_TRY(cairn_buf_printf(printer->into, err, ", %" PRId64, of[2]));
        return cairn_buf_append(printer->into, ")", 1, err);
    }
    /* timedelta: days, seconds, microseconds */
    printer->fits &= printer->depth == 1 && of[1] >= 0 && of[1] < 86400 && of[2] >= 0;
    if (of[0])
        CAIRN_TRY(cairn_buf_printf(printer->into, err, "%" PRId64 " day%s, ", of[0],
                                   of[0] == 1 || of[0] == -1 ? "" : "s"));
    CAIRN_TRY(cairn_buf_printf(printer->into, err, "%" PRId64 ":%02" PRId64 ":%02" PRId64,
                               of[1] / 3600, of[1] / 60 % 60, of[1] % 60));
    return of[2] ? cairn_buf_printf(printer->into, err, ".%06" PRId64, of[2]) : CAIRN_OK;
}

/* Texts joined, as a path or a device has them: ("/", "a", "b"), ("cuda", 1). */
static enum cairn_code print_joined(struct printer *printer, bool device,
                                    const struct cairn_pickle_value *arguments,
                                    struct cairn_error *err) {
    struct cairn_buf *into = printer->into;
    size_t before = into->size;
    printer->fits &= printer->depth == 1 && (!device || arguments->count);
    for (uint32_t i = 0; i < arguments->count; i++) {
        const struct cairn_pickle_value *part =
            cairn_pickle_at(printer->values, arguments->items[i]);
        bool number = device && i && part->kind == CAIRN_PICKLE_INTEGER;
        bool root = into->size > before && into->data[into->size - 1] == '/';
        if (number) CAIRN_TRY(cairn_buf_printf(into, err, ":%" PRId64, part->integer));
        if (number) continue;
        printer->fits &= part->kind == CAIRN_PICKLE_TEXT;
        if (!printer->fits) return CAIRN_OK;
        if (i && !root) CAIRN_TRY(cairn_buf_append(into, "/", 1, err));
        CAIRN_TRY(cairn_buf_append(into, part->text.data, part->text.size, err));
    }
    return into->size > before ? CAIRN_OK : cairn_buf_append(into, ".", 1, err);
}

/* numpy's scalar(dtype("i8", ...), bytes): integers, booleans and float64. */
static enum cairn_code print_scalar(struct printer *printer,
                                    const struct cairn_pickle_value *arguments,
                                    struct cairn_error *err) {
    const struct cairn_pickle *values = printer->values;
    uint8_t at[MADE_BYTES_MAX];
    size_t size = 0;
    const struct cairn_pickle_value *type =
        cairn_pickle_at(values, arguments->count == 2 ? arguments->items[0] : 0);
    const struct cairn_torch_name *maker = cairn_torch_maker(values, type);
    const struct cairn_pickle_value *of =
        cairn_pickle_at(values, maker && strcmp(maker->name, "dtype") == 0 ? type->arguments : 0);
    if (of->kind == CAIRN_PICKLE_TUPLE && of->count) of = cairn_pickle_at(values, of->items[0]);
    bool read = printer->depth == 1 && of->kind == CAIRN_PICKLE_TEXT && of->text.size == 2 &&
                bytes_of(values, cairn_pickle_at(values, arguments->items[1]), at, &size);
    const char *code = read ? of->text.data : "  ";
    uint64_t bits = 0;
    printer->fits &= read && size && size <= 8 && code[1] == (char)('0' + size);
    if (!printer->fits) return CAIRN_OK;
    for (size_t i = size; i-- > 0;) bits = bits << 8 | at[i];
    unsigned unused = 64 - 8 * (unsigned)size;
    double real;
    memcpy(&real, &bits, sizeof real);
    if (code[0] == 'i')
        return cairn_buf_printf(printer->into, err, "%" PRId64,
                                (int64_t)(bits << unused) >> unused);
    if (code[0] == 'u') return cairn_buf_printf(printer->into, err, "%" PRIu64, bits);
    if (code[0] == 'b') return cairn_buf_append_text(printer->into, bits ? "True" : "False", err);
    if (code[0] == 'f' && size == 8) return print_real(printer, real, err);
    printer->fits = false;
    return CAIRN_OK;
}

static enum cairn_code print_made(struct printer *printer, const struct cairn_pickle_value *object,
                                  struct cairn_error *err) {
    const struct cairn_pickle_value *arguments =
        cairn_pickle_at(printer->values, object->arguments);
    char name[NAME_BYTES];
    full_name(printer->values, object->callable, name);
    const struct cairn_pickle_value *first = cairn_pickle_at(
        printer->values,
        arguments->kind == CAIRN_PICKLE_TUPLE && arguments->count ? arguments->items[0] : 0);
    if (arguments->kind != CAIRN_PICKLE_TUPLE) *name = '\0';
    if (strcmp(name, "builtins.range") == 0 || strcmp(name, "datetime.timedelta") == 0)
        return print_numbers(printer, name, arguments, err);
    if (strncmp(name, "datetime.", 9) == 0) return print_date(printer, name, arguments, err);
    if (strcmp(name, "pathlib.PosixPath") == 0 || strcmp(name, "pathlib.PurePosixPath") == 0)
        return print_joined(printer, false, arguments, err);
    if (strcmp(name, "torch.device") == 0) return print_joined(printer, true, arguments, err);
    if (strncmp(name, "numpy.", 6) == 0 && strstr(name, ".multiarray.scalar"))
        return print_scalar(printer, arguments, err);
    if (strcmp(name, "builtins.type") == 0 && arguments->count == 1 &&
        first->kind == CAIRN_PICKLE_NONE)
        return cairn_buf_append_text(printer->into, "<class 'NoneType'>", err);
    const struct cairn_pickle_value *second =
        cairn_pickle_at(printer->values, arguments->count == 2 ? arguments->items[1] : 0);
    if (!strcmp(name, "fractions.Fraction") && printer->depth == 1 &&
        first->kind == CAIRN_PICKLE_INTEGER && second->kind == CAIRN_PICKLE_INTEGER) {
        CAIRN_TRY(cairn_buf_printf(printer->into, err, "%" PRId64, first->integer));
        if (second->integer == 1) return CAIRN_OK;
        return cairn_buf_printf(printer->into, err, "/%" PRId64, second->integer);
    }
    bool text = !strcmp(name, "decimal.Decimal") || !strcmp(name, "fractions.Fraction") ||
                !strcmp(name, "torch.serialization._get_layout");
    if (text && printer->depth == 1 && arguments->count == 1 && first->kind == CAIRN_PICKLE_TEXT)
        return cairn_buf_append(printer->into, first->text.data, first->text.size, err);
    printer->fits = false;
    return CAIRN_OK;
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
    return print_made(printer, object, err);
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
        return print_global(printer, (cairn_pickle_ref)(value - printer->values->values), err);
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

enum cairn_code cairn_torch_key_text(const struct cairn_pickle *values, cairn_pickle_ref key,
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
