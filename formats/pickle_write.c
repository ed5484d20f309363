/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a pickle; see pickle_write.h. */
#include "formats/pickle_write.h"

#include "common/text.h"

#define DEPTH_MAX 64

enum cairn_code cairn_pickle_put_text(struct cairn_buf *ret, struct cairn_view text,
                                      struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "X", 1, err));
    CAIRN_TRY(cairn_buf_append_u32le(ret, (uint32_t)text.size, err));
    return cairn_buf_append(ret, text.data, text.size, err);
}

enum cairn_code cairn_pickle_put_number(struct cairn_buf *ret, uint64_t number,
                                        struct cairn_error *err) {
    if (number <= INT32_MAX) {
        CAIRN_TRY(cairn_buf_append(ret, "J", 1, err));
        return cairn_buf_append_u32le(ret, (uint32_t)number, err);
    }
    CAIRN_TRY(cairn_buf_append(ret, "\x8a\x09", 2, err)); /* nine bytes: it is never negative */
    CAIRN_TRY(cairn_buf_append_u64le(ret, number, err));
    return cairn_buf_append(ret, "", 1, err);
}

enum cairn_code cairn_pickle_put_numbers(struct cairn_buf *ret, const uint64_t *numbers,
                                         unsigned count, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "(", 1, err));
    for (unsigned i = 0; i < count; i++) CAIRN_TRY(cairn_pickle_put_number(ret, numbers[i], err));
    return cairn_buf_append(ret, "t", 1, err);
}

/* ---- a value that was read ---- */

struct writer {
    struct cairn_buf *ret;
    const struct cairn_pickle *from;
    cairn_pickle_global_of *global_of;
    unsigned depth;
};

static enum cairn_code put(struct writer *writer, cairn_pickle_ref ref, struct cairn_error *err);

static enum cairn_code put_op(struct writer *writer, const char *op, struct cairn_error *err) {
    return cairn_buf_append_text(writer->ret, op, err);
}

static enum cairn_code put_integer(struct writer *writer, int64_t number, struct cairn_error *err) {
    if (number >= INT32_MIN && number <= INT32_MAX) {
        CAIRN_TRY(put_op(writer, "J", err));
        return cairn_buf_append_u32le(writer->ret, (uint32_t)number, err);
    }
    CAIRN_TRY(put_op(writer, "\x8a\x08", err));
    return cairn_buf_append_u64le(writer->ret, (uint64_t)number, err);
}

/* In two's complement, lowest byte first. */
static enum cairn_code put_long(struct writer *writer, struct cairn_view bytes,
                                struct cairn_error *err) {
    CAIRN_TRY(put_op(writer, "\x8b", err));
    CAIRN_TRY(cairn_buf_append_u32le(writer->ret, (uint32_t)bytes.size, err));
    return cairn_buf_append(writer->ret, bytes.data, bytes.size, err);
}

static enum cairn_code put_real(struct writer *writer, double number, struct cairn_error *err) {
    uint64_t bits;
    char text[9] = "G";
    memcpy(&bits, &number, sizeof bits);
    for (unsigned i = 0; i < 8; i++) text[1 + i] = (char)(bits >> (56 - 8 * i));
    return cairn_buf_append(writer->ret, text, sizeof text, err);
}

/* As Python writes them where a pickle has no bytes of its own: a text of as many characters. */
static enum cairn_code put_bytes(struct writer *writer, struct cairn_view bytes,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = writer->ret->limit};
    const uint8_t *at = bytes.data;
    for (size_t i = 0; i < bytes.size; i++) {
        const char two[2] = {(char)(0xc0 | at[i] >> 6), (char)(0x80 | (at[i] & 0x3f))};
        if (at[i] < 0x80)
            CAIRN_TRY(cairn_buf_append(&text, &at[i], 1, err));
        else
            CAIRN_TRY(cairn_buf_append(&text, two, 2, err));
    }
    CAIRN_TRY(put_op(writer, "c_codecs\nencode\n(", err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, cairn_buf_view(&text), err));
    CAIRN_TRY(cairn_pickle_put_text(writer->ret, CAIRN_VIEW("latin1"), err));
    return put_op(writer, "tR", err);
}

static enum cairn_code put_items(struct writer *writer, const struct cairn_pickle_value *value,
                                 const char *before, const char *after, struct cairn_error *err) {
    CAIRN_TRY(put_op(writer, before, err));
    for (uint32_t i = 0; i < value->count; i++) CAIRN_TRY(put(writer, value->items[i], err));
    return put_op(writer, after, err);
}

static enum cairn_code refuse_unknown(const struct writer *writer,
                                      const struct cairn_pickle_value *name,
                                      struct cairn_error *err) {
    const struct cairn_pickle_unknown *unknown = cairn_pickle_unknown_at(writer->from, name);
    if (!unknown) return cairn_fail(err, CAIRN_UNSUPPORTED, "it is made by what is no name");
    return cairn_fail(
        err, CAIRN_UNSUPPORTED, "it needs %.*s.%.*s", (int)cairn_min_u64(unknown->module.size, 100),
        (const char *)unknown->module.data, (int)cairn_min_u64(unknown->name.size, 100),
        (const char *)unknown->name.data);
}

static enum cairn_code put_object(struct writer *writer, const struct cairn_pickle_value *object,
                                  struct cairn_error *err) {
    const struct cairn_pickle_value *callable = cairn_pickle_at(writer->from, object->callable);
    if (callable->kind != CAIRN_PICKLE_GLOBAL || cairn_pickle_unknown_at(writer->from, callable))
        return refuse_unknown(writer, callable, err);
    const struct cairn_pickle_global global = writer->global_of(callable->global);
    if (object->count && !global.pairs)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "items are put into a %s", global.name);
    CAIRN_TRY(put(writer, object->callable, err));
    CAIRN_TRY(put(writer, object->arguments, err));
    CAIRN_TRY(put_op(writer, global.bare ? "\x81" : "R", err));
    if (object->count) CAIRN_TRY(put_items(writer, object, "(", "u", err));
    if (cairn_pickle_at(writer->from, object->state)->kind == CAIRN_PICKLE_NONE) return CAIRN_OK;
    CAIRN_TRY(put(writer, object->state, err));
    return put_op(writer, "b", err);
}

static enum cairn_code put_kind(struct writer *writer, const struct cairn_pickle_value *value,
                                struct cairn_error *err) {
    struct cairn_pickle_global global;
    switch (value->kind) {
    case CAIRN_PICKLE_NONE:
        return put_op(writer, "N", err);
    case CAIRN_PICKLE_BOOL:
        return put_op(writer, value->truth ? "\x88" : "\x89", err);
    case CAIRN_PICKLE_INTEGER:
        return put_integer(writer, value->integer, err);
    case CAIRN_PICKLE_LONG:
        return put_long(writer, value->text, err);
    case CAIRN_PICKLE_REAL:
        return put_real(writer, value->real, err);
    case CAIRN_PICKLE_TEXT:
        return cairn_pickle_put_text(writer->ret, value->text, err);
    case CAIRN_PICKLE_BYTES:
        return put_bytes(writer, value->text, err);
    case CAIRN_PICKLE_TUPLE:
        return put_items(writer, value, "(", "t", err);
    case CAIRN_PICKLE_LIST:
        return put_items(writer, value, "](", "e", err);
    case CAIRN_PICKLE_SET:
        return put_items(writer, value,
                         value->state ? "c__builtin__\nfrozenset\n](" : "c__builtin__\nset\n](",
                         "e\x85R", err);
    case CAIRN_PICKLE_DICT:
        return put_items(writer, value, "}(", "u", err);
    case CAIRN_PICKLE_GLOBAL:
        if (cairn_pickle_unknown_at(writer->from, value)) return refuse_unknown(writer, value, err);
        global = writer->global_of(value->global);
        if (global.refused)
            return cairn_fail(err, CAIRN_UNSUPPORTED, "it needs %s.%s", global.module, global.name);
        return cairn_buf_printf(writer->ret, err, "c%s\n%s\n", global.module, global.name);
    case CAIRN_PICKLE_OBJECT:
        return put_object(writer, value, err);
    case CAIRN_PICKLE_PERSISTENT:
        break;
    }
    return cairn_fail(err, CAIRN_UNSUPPORTED, "it holds a storage");
}

static enum cairn_code put(struct writer *writer, cairn_pickle_ref ref, struct cairn_error *err) {
    if (writer->depth == DEPTH_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d levels deep, or it holds itself",
                          DEPTH_MAX);
    writer->depth++;
    CAIRN_TRY(put_kind(writer, cairn_pickle_at(writer->from, ref), err));
    writer->depth--;
    return CAIRN_OK;
}

enum cairn_code cairn_pickle_put_value(struct cairn_buf *ret, const struct cairn_pickle *from,
                                       cairn_pickle_ref value, cairn_pickle_global_of *global_of,
                                       struct cairn_error *err) {
    struct writer writer = {.ret = ret, .from = from, .global_of = global_of};
    return put(&writer, value, err);
}
