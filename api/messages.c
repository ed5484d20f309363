/* SPDX-License-Identifier: Apache-2.0 */
/* A form's rows stand in a function of its own, where its struct has a name that they can use. */
#include "api/messages.h"

#include <math.h>

#include "api/policy.h"

#define FIELDS_MAX 40 /* of one form */

/* What `last` says of a field: its bound and its form. */
#define LAST_U64(last) last, CAIRN_MESSAGE_none
#define LAST_U32(last) last, CAIRN_MESSAGE_none
#define LAST_REAL(last) 0, CAIRN_MESSAGE_none
#define LAST_TEXT(last) last, CAIRN_MESSAGE_none
#define LAST_BOOL(last) 0, CAIRN_MESSAGE_none
#define LAST_OBJECT(last) 0, CAIRN_MESSAGE_##last
#define LAST_ARRAY(last) 0, CAIRN_MESSAGE_##last

/* clang-format off */
#define FORM(form, group, text, answer)                                                            \
    static const struct cairn_message_field *fields_of_##form(void) {                              \
        const struct cairn_msg_##form *self = NULL;                                                \
        (void)self;                                                                                \
        static const struct cairn_message_field rows[] = {
#define FIELD(presence, kind, field, last)                                                         \
    {#field, CAIRN_JSON_##kind, CAIRN_MESSAGE_##presence, LAST_##kind(last),                       \
     offsetof(__typeof__(*self), field)},
#define END {.name = NULL}}; return rows; }
#include "api/messages.def"

static const struct cairn_message_form forms[CAIRN_MESSAGE_COUNT] = {
#define FORM(form, group, text, answer)                                                            \
    [CAIRN_MESSAGE_##form] = {#form, text, CAIRN_MESSAGE_##group, CAIRN_MESSAGE_##answer,          \
                              fields_of_##form},
#include "api/messages.def"
};
/* clang-format on */

const struct cairn_message_form *cairn_message_form(enum cairn_message message) {
    CAIRN_PROMISE(message > CAIRN_MESSAGE_none && message < CAIRN_MESSAGE_COUNT,
                  message = CAIRN_MESSAGE_ok);
    return &forms[message];
}

enum cairn_message cairn_message_of(const char *text) {
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++)
        if (forms[i].group <= CAIRN_MESSAGE_NOTICE && !strcmp(forms[i].text, text))
            return (enum cairn_message)i;
    return CAIRN_MESSAGE_none;
}

/* A body may say null where its schema does; where it does not, a client that sends null has a
 * mistake, and would think that something was changed. */
static enum cairn_code refuse_nulls(const struct cairn_message_form *form, const json_t *json,
                                    const char *pointer, struct cairn_error *err) {
    if (form->group != CAIRN_MESSAGE_BODY) return CAIRN_OK;
    for (const struct cairn_message_field *field = form->fields(); field->name; field++) {
        bool taken =
            field->presence == CAIRN_MESSAGE_MUST || field->presence == CAIRN_MESSAGE_NULLS;
        if (!taken && json_is_null(json_object_get(json, field->name)))
            return cairn_fail(err, CAIRN_INVALID, "%s/%s: null is not taken here: leave it out",
                              pointer, field->name);
    }
    return CAIRN_OK;
}

/* Of an answer of the server nothing may be missing that every server of /v1 says: 0 in its place
 * would be an untrue answer. null is said of what nobody knows. */
static enum cairn_code refuse_absent(const struct cairn_message_form *form,
                                     enum cairn_message_presence presence, const json_t *json,
                                     const char *pointer, struct cairn_error *err) {
    for (const struct cairn_message_field *field = form->fields(); field->name; field++)
        if (field->presence == presence && json_is_object(json) &&
            !json_object_get(json, field->name))
            return cairn_fail(err, CAIRN_PROTOCOL, "%s/%s: missing", pointer, field->name);
    return CAIRN_OK;
}

/* What the server's handlers read is a closed list; everything else takes unknown fields, so that
 * programs of two versions understand each other. */
static enum cairn_code read_form(enum cairn_message message, const json_t *json, bool own,
                                 const char *pointer, void *ret, struct cairn_error *err) {
    const struct cairn_message_form *form = cairn_message_form(message);
    struct cairn_json_field wanted[FIELDS_MAX];
    bool reply =
        !own && (form->group == CAIRN_MESSAGE_REPLY || form->group == CAIRN_MESSAGE_WHOLE);
    size_t count = 0;
    if (reply) CAIRN_TRY(refuse_absent(form, CAIRN_MESSAGE_MUST, json, pointer, err));
    for (const struct cairn_message_field *field = form->fields(); field->name; field++) {
        CAIRN_PROMISE(count < FIELDS_MAX,
                      return cairn_fail(err, CAIRN_INTERNAL, "%s has too many fields", form->text));
        wanted[count++] = (struct cairn_json_field){field->name, field->kind,
                                                    field->presence == CAIRN_MESSAGE_MUST,
                                                    (char *)ret + field->offset, field->max};
    }
    CAIRN_TRY(refuse_nulls(form, json, pointer, err));
    bool open = form->group != CAIRN_MESSAGE_BODY;
    CAIRN_TRY(cairn_json_read(json, pointer, wanted, count, open, err));
    return reply ? refuse_absent(form, CAIRN_MESSAGE_SENT, json, pointer, err) : CAIRN_OK;
}

enum cairn_code cairn_message_read(enum cairn_message message, const json_t *json,
                                   const char *pointer, void *ret, struct cairn_error *err) {
    return read_form(message, json, false, pointer, ret, err);
}

enum cairn_code cairn_message_read_own(enum cairn_message message, const json_t *json,
                                       const char *pointer, void *ret, struct cairn_error *err) {
    return read_form(message, json, true, pointer, ret, err);
}

/* ---- writing ---- */

/* The field's value as a new reference. *ret_none: there is none; a value may be there all the same
 * (0, false, ""). NULL: no memory, or a pointer that is none. */
static json_t *value_of(const struct cairn_message_field *field, const void *at, bool *ret_none) {
    switch (field->kind) {
    case CAIRN_JSON_U64:
    case CAIRN_JSON_U32: {
        bool small = field->kind == CAIRN_JSON_U32;
        uint64_t value = small ? *(const uint32_t *)at : *(const uint64_t *)at;
        uint64_t none = small ? UINT32_MAX : CAIRN_MESSAGE_NONE;
        *ret_none = value == (field->presence == CAIRN_MESSAGE_MAY ? 0 : none);
        return json_integer((json_int_t)value);
    }
    case CAIRN_JSON_REAL:
        *ret_none = isnan(*(const double *)at);
        return json_real(*(const double *)at);
    case CAIRN_JSON_BOOL:
        *ret_none = !*(const bool *)at;
        return json_boolean(!*ret_none);
    case CAIRN_JSON_TEXT: {
        const char *text = *(const char *const *)at;
        bool empty_is_none = field->presence == CAIRN_MESSAGE_MAY;
        *ret_none = !text || (empty_is_none && !*text);
        CAIRN_PROMISE(text || field->presence >= CAIRN_MESSAGE_NULLS, return NULL);
        return text ? json_string(text) : NULL;
    }
    default:
        *ret_none = !*(json_t *const *)at;
        return json_incref(*(json_t *const *)at);
    }
}

static bool put(json_t *object, const struct cairn_message_field *field, const void *at) {
    bool none = false;
    json_t *value = value_of(field, at, &none);
    if (none && field->presence >= CAIRN_MESSAGE_NULLS) {
        json_decref(value);
        if (field->presence != CAIRN_MESSAGE_NULLS) return true;
        value = json_null();
    }
    return !json_object_set_new(object, field->name, value);
}

json_t *cairn_message_pack(enum cairn_message message, const void *from) {
    const struct cairn_message_form *form = cairn_message_form(message);
    bool named = form->group <= CAIRN_MESSAGE_RECORD;
    json_t *object = json_object();
    bool whole = object && (!named || !json_object_set_new(object, "t", json_string(form->text)));
    for (const struct cairn_message_field *at = form->fields(); at->name && whole; at++)
        whole = put(object, at, (const char *)from + at->offset);
    if (whole) return object;
    json_decref(object);
    return NULL;
}
