/* SPDX-License-Identifier: Apache-2.0 */
/* Each form's rows are in a function of its own, which names the form's struct for them. */
#include "api/wire/messages.h"

#include <math.h>
#include <stdio.h>

#include "api/wire/policy.h"

#define FIELDS_MAX 40 /* of one form */

/* Bound and form given by `last`. */
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

/* null is accepted only where the schema has it: elsewhere the client made a mistake and would
 * believe that something was changed. */
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

/* A field that every server of /v1 sends must not be absent from an answer: 0 in its place would be
 * wrong. null means unknown. */
static enum cairn_code refuse_absent(const struct cairn_message_form *form,
                                     enum cairn_message_presence presence, const json_t *json,
                                     const char *pointer, struct cairn_error *err) {
    for (const struct cairn_message_field *field = form->fields(); field->name; field++)
        if (field->presence == presence && json_is_object(json) &&
            !json_object_get(json, field->name))
            return cairn_fail(err, CAIRN_PROTOCOL, "%s/%s: missing", pointer, field->name);
    return CAIRN_OK;
}

/* Bodies read by the server's handlers are closed lists; everything else accepts unknown fields, so
 * that programs of two versions work together. */
static enum cairn_code read_form(enum cairn_message message, const json_t *json, bool own,
                                 const char *pointer, void *ret, struct cairn_error *err) {
    const struct cairn_message_form *form = cairn_message_form(message);
    struct cairn_json_field wanted[FIELDS_MAX];
    bool reply = !own && (form->group == CAIRN_MESSAGE_REPLY || form->group == CAIRN_MESSAGE_WHOLE);
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

/* The field's value as a new reference. *ret_none: the field is NULL or none; a value is returned
 * all the same (0, false, ""). NULL: no memory, or a NULL pointer. */
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

/* ---- errors: only members that are meaningful to another process ---- */

#define STATUS_MAX 999

bool cairn_failure_put(json_t *object, const char *text_key, const struct cairn_error *why) {
    int refused =
        json_object_set_new(object, "code", json_string(cairn_code_info(why->code)->slug)) |
        json_object_set_new(object, text_key, json_string(why->message));
    if (why->http_status)
        refused |= json_object_set_new(object, "http_status", json_integer(why->http_status));
    if (why->request_id[0])
        refused |= json_object_set_new(object, "request_id", json_string(why->request_id));
    return !refused;
}

void cairn_failure_get(const json_t *object, const char *text_key, struct cairn_error *ret) {
    const char *slug = json_string_value(json_object_get(object, "code"));
    const char *text = json_string_value(json_object_get(object, text_key));
    const char *request_id = json_string_value(json_object_get(object, "request_id"));
    json_int_t status = json_integer_value(json_object_get(object, "http_status"));
    struct cairn_error made = {0};
    cairn_fail(&made, slug ? cairn_code_from_slug(slug) : CAIRN_OK, "%s", text ? text : "");
    if (status > 0 && status <= STATUS_MAX) made.http_status = (int)status;
    if (request_id) cairn_error_request_id(&made, request_id);
    *ret = made;
}

/* ---- labels and meta ---- */

#define SHOWN 64 /* bytes of a name to quote */

/* The first control byte of the text; 0: none. */
static unsigned control_byte(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return (unsigned char)*text;
    return 0;
}

#define PLACE_BYTES 256
/* If `what` is a pointer (RFC 6901), the pointer of its member `key`, with a name cut to SHOWN. */
static void place_of(const char *what, const char *key, char ret[PLACE_BYTES]) {
    int size = snprintf(ret, PLACE_BYTES, "%s", what);
    if (what[0] != '/' || size < 0 || size + 2 * SHOWN >= PLACE_BYTES) return;
    ret[size++] = '/';
    for (size_t i = 0; key[i] && i < SHOWN; i++) {
        bool escaped = key[i] == '~' || key[i] == '/';
        ret[size++] = escaped ? '~' : key[i];
        if (escaped) ret[size++] = key[i] == '~' ? '0' : '1';
    }
    ret[size] = '\0';
}

/* Labels are matched by selectors, shown in tables and logged, hence the rules. */
static enum cairn_code check_label(const char *what, const char *key, const json_t *value,
                                   struct cairn_error *err) {
    char place[PLACE_BYTES];
    place_of(what, key, place);
    if (!*key) return cairn_fail(err, CAIRN_INVALID, "%s: a label needs a name", place);
    if (control_byte(key))
        return cairn_fail(err, CAIRN_INVALID, "%s: the name of a label has the control byte 0x%02x",
                          what, control_byte(key));
    if (!json_is_string(value))
        return cairn_fail(err, CAIRN_INVALID, "%s: the value of %.64s must be a text", place, key);
    const char *text = json_string_value(value);
    if (!control_byte(text)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s: the value of %.64s has the control byte 0x%02x",
                      place, key, control_byte(text));
}

enum cairn_code cairn_label_changes_check(const json_t *changes, const char *what,
                                          struct cairn_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)changes, key, value) {
        if (!json_is_null(value)) CAIRN_TRY(check_label(what, key, value, err));
    }
    return CAIRN_OK;
}

static enum cairn_code check_values(const json_t *json, const char *what, bool of_texts,
                                    struct cairn_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(json)) return cairn_fail(err, CAIRN_INVALID, "%s must be an object", what);
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        if (of_texts) CAIRN_TRY(check_label(what, key, value, err));
    }
    if (cairn_json_depth(json) > CAIRN_META_DEPTH_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s is nested deeper than %d", what,
                          CAIRN_META_DEPTH_MAX);
    return CAIRN_OK;
}

enum cairn_code cairn_meta_check(const json_t *json, const char *what, bool of_texts,
                                 struct cairn_buf *ret_canonical, struct cairn_error *err) {
    CAIRN_AUTO(buf) own = {0};
    struct cairn_buf *text = ret_canonical ? ret_canonical : &own;
    if (!json) return cairn_buf_append_text(text, "{}", err);
    CAIRN_TRY(check_values(json, what, of_texts, err));
    text->limit = CAIRN_META_BYTES_MAX;
    enum cairn_code code = cairn_json_dump(json, text, err);
    if (code == CAIRN_TOO_LARGE)
        return cairn_fail(err, code, "%s has more than %zu bytes as canonical JSON", what,
                          (size_t)CAIRN_META_BYTES_MAX);
    return code;
}
