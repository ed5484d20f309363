/* SPDX-License-Identifier: Apache-2.0 */
#include "api/wire/messages.h"

#include <math.h>

#include "tests/harness.h"

static const struct cairn_message_form *form_at(int i) {
    return cairn_message_form((enum cairn_message)i);
}

static void expect_text(json_t *take_json, const char *wanted) {
    CAIRN_AUTO_JSON json_t *json = take_json;
    CAIRN_AUTO(buf) text = {0};
    REQUIRE(json != NULL);
    REQUIRE(cairn_json_dump(json, &text, NULL) == CAIRN_OK);
    EXPECT_EQ_TEXT(text.data, wanted);
}

/* ---- the table ---- */

TEST(a_request_is_answered_by_an_answer_and_nothing_else_is_answered) {
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++) {
        const struct cairn_message_form *form = form_at(i);
        EXPECT((form->answer != CAIRN_MESSAGE_none) == (form->group == CAIRN_MESSAGE_REQUEST));
        if (form->answer) EXPECT(form_at((int)form->answer)->group == CAIRN_MESSAGE_ANSWER);
        if (form->group <= CAIRN_MESSAGE_NOTICE) EXPECT_EQ_U64(cairn_message_of(form->text), i);
    }
    EXPECT_EQ_U64(cairn_message_of("welcome"), CAIRN_MESSAGE_none);
    EXPECT_EQ_U64(cairn_message_of(""), CAIRN_MESSAGE_none);
}

union any_form { /* room for every form's struct */
    uint64_t words[32];
    char bytes[48 * sizeof(uint64_t)];
};

/* Every field has a value of its own, or its bound. */
static void fill(const struct cairn_message_form *form, json_t *object, json_t *array,
                 union any_form *ret) {
    uint32_t place = 0;
    for (const struct cairn_message_field *field = form->fields(); field->name; field++) {
        bool bound = field->kind != CAIRN_JSON_TEXT && field->max && field->max <= place;
        uint32_t number = ++place;
        if (bound) number = (uint32_t)field->max;
        REQUIRE(field->offset + sizeof(uint64_t) <= sizeof(ret->bytes));
        void *at = ret->bytes + field->offset;
        if (field->kind == CAIRN_JSON_U64) *(uint64_t *)at = number;
        if (field->kind == CAIRN_JSON_U32) *(uint32_t *)at = number;
        if (field->kind == CAIRN_JSON_REAL) *(double *)at = number + 0.5;
        if (field->kind == CAIRN_JSON_BOOL) *(bool *)at = true;
        if (field->kind == CAIRN_JSON_TEXT) *(const char **)at = field->name;
        if (field->kind == CAIRN_JSON_OBJECT) *(json_t **)at = object;
        if (field->kind == CAIRN_JSON_ARRAY) *(json_t **)at = array;
    }
}

static void expect_same(const struct cairn_message_form *form, const union any_form *a,
                        const union any_form *b) {
    for (const struct cairn_message_field *field = form->fields(); field->name; field++) {
        size_t size = field->kind == CAIRN_JSON_BOOL  ? sizeof(bool)
                      : field->kind == CAIRN_JSON_U32 ? sizeof(uint32_t)
                                                      : sizeof(uint64_t);
        const void *left = a->bytes + field->offset, *right = b->bytes + field->offset;
        bool same = field->kind == CAIRN_JSON_TEXT
                        ? !strcmp(*(const char *const *)left, *(const char *const *)right)
                        : !memcmp(left, right, size);
        cairn_test_check(same, __FILE__, __LINE__, "%s.%s is the same", form->name, field->name);
    }
}

TEST(what_is_packed_is_read_as_it_was_in_every_form) {
    CAIRN_AUTO_JSON json_t *object = json_object(), *array = json_array();
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++) {
        const struct cairn_message_form *form = form_at(i);
        union any_form from = {0}, back = {0};
        struct cairn_error error = {0};
        fill(form, object, array, &from);
        CAIRN_AUTO_JSON json_t *json = cairn_message_pack((enum cairn_message)i, &from);
        REQUIRE(json != NULL);
        const char *name = json_string_value(json_object_get(json, "t"));
        bool named = form->group <= CAIRN_MESSAGE_RECORD;
        EXPECT(named ? name && !strcmp(name, form->text) : !name);
        size_t count = 0;
        while (form->fields()[count].name) count++;
        EXPECT_EQ_U64(json_object_size(json), count + (named ? 1 : 0));
        enum cairn_code code = cairn_message_read((enum cairn_message)i, json, "", &back, &error);
        cairn_test_check(code == CAIRN_OK, __FILE__, __LINE__, "%s is read: %s", form->name,
                         error.message);
        if (code == CAIRN_OK) expect_same(form, &from, &back);
    }
}

/* ---- presence ---- */

TEST(a_may_field_that_is_none_is_left_out_and_a_said_one_is_written) {
    expect_text(CAIRN_PACK(fail, .save = 3, .reason = "", .code = "cancelled", .request_id = ""),
                "{\"code\":\"cancelled\",\"reason\":\"\",\"save\":3,\"t\":\"fail\"}");
    expect_text(CAIRN_PACK(record_over, 0), "{\"t\":\"over\"}");
    expect_text(CAIRN_PACK(record_over, .end = "failed"), "{\"end\":\"failed\",\"t\":\"over\"}");
    expect_text(CAIRN_PACK(problem, .code = "ok", .message = ""),
                "{\"code\":\"ok\",\"message\":\"\",\"t\":\"problem\"}");
}

TEST(an_answer_without_a_field_that_is_due_is_an_error_of_the_protocol, err) {
    struct cairn_msg_verified verified = {0};
    CAIRN_AUTO_JSON json_t *list = json_array();
    CAIRN_AUTO_JSON json_t *answer =
        CAIRN_PACK(verified, .version = "v", .newer = 5, .copies = list, .findings = list);
    json_object_del(answer, "newer"); /* as of a server of the release before */
    REQUIRE_OK(cairn_msg_verified_read(answer, "", &verified, &err));
    EXPECT_EQ_U64(verified.newer, 0);
    json_object_del(answer, "read_bytes"); /* one that a reader of a request would take for 0 */
    EXPECT_FAILS(cairn_msg_verified_read(answer, "", &verified, &err), CAIRN_PROTOCOL,
                 "/read_bytes");
    json_object_set_new(answer, "read_bytes", json_integer(1));
    json_object_del(answer, "damaged");
    EXPECT_FAILS(cairn_msg_verified_read(answer, "", &verified, &err), CAIRN_PROTOCOL, "/damaged");
}

/* As socket versions 2 and 3 have always been spoken. */
TEST(a_nulls_field_that_is_none_is_null_on_the_wire) {
    expect_text(CAIRN_PACK(begin, .step = 7, .n = 1, .on_exists = "error"),
                "{\"format\":null,\"labels\":null,\"meta\":null,\"n\":1,\"on_exists\":\"error\","
                "\"skip\":false,\"step\":7,\"t\":\"begin\"}");
    expect_text(CAIRN_PACK(restore, .ref = "latest"),
                "{\"format\":null,\"ref\":\"latest\",\"t\":\"restore\",\"timeout_ms\":0}");
    expect_text(CAIRN_PACK(list, .limit = 500),
                "{\"cursor\":null,\"limit\":500,\"t\":\"list\",\"timeout_ms\":0}");
    expect_text(CAIRN_PACK(offer_save, .save = 1, .slab = (uint32_t)CAIRN_MESSAGE_NONE,
                           .version = "v", .step = 0, .n = 1),
                "{\"n\":1,\"save\":1,\"sealed\":false,\"slab\":null,\"step\":0,\"version\":\"v\"}");
    expect_text(CAIRN_PACK(offer_save, .save = 1, .slab = 0, .version = "v", .n = 1),
                "{\"n\":1,\"save\":1,\"sealed\":false,\"slab\":0,\"step\":0,\"version\":\"v\"}");
    expect_text(CAIRN_PACK(record_seal, 0), "{\"replicated\":null,\"t\":\"seal\"}");
}

TEST(an_omits_field_is_left_out_where_a_nulls_field_is_null_and_written_where_it_is_0) {
    expect_text(CAIRN_PACK(alias_row, .alias = "a", .version = "v", .step = 0),
                "{\"alias\":\"a\",\"step\":0,\"version\":\"v\"}");
    expect_text(CAIRN_PACK(alias_row, .alias = "a", .version = "v", .step = CAIRN_MESSAGE_NONE),
                "{\"alias\":\"a\",\"version\":\"v\"}");
}

TEST(a_real_number_that_is_not_there_is_nan) {
    CAIRN_AUTO_JSON json_t *open = json_array();
    expect_text(CAIRN_PACK(retention_reason, .rule = "best", .metric = "loss", .value = 0),
                "{\"metric\":\"loss\",\"rule\":\"best\",\"value\":0.0}");
    expect_text(CAIRN_PACK(retention_reason, .rule = "last", .value = NAN), "{\"rule\":\"last\"}");
    expect_text(CAIRN_PACK(liveness, .last_commit_age_s = 2.5, .interval_s = NAN, .open = open),
                "{\"interval_s\":null,\"last_commit_age_s\":2.5,\"last_commit_at\":null,"
                "\"open\":[]}");
}

TEST(an_error_travels_as_four_fields) {
    struct cairn_error why = {0};
    (void)cairn_fail(&why, CAIRN_NO_SPACE, "the bucket is full");
    why.http_status = 507;
    cairn_error_request_id(&why, "r-1");
    expect_text(CAIRN_PACK(verdict, .save = 2, .state = "failed", CAIRN_PACK_WHY(&why, message)),
                "{\"code\":\"no-space\",\"http_status\":507,\"message\":\"the bucket is full\","
                "\"request_id\":\"r-1\",\"save\":2,\"state\":\"failed\",\"t\":\"verdict\"}");
}

TEST(a_list_that_could_not_be_made_makes_no_message) {
    EXPECT(CAIRN_PACK(read, .restore = 1, .ranges = NULL) == NULL);
}

/* ---- reading ---- */

static json_t *parsed(const char *text) {
    json_t *json = NULL;
    EXPECT(cairn_json_parse(cairn_view_of(text), (struct cairn_json_limits){0}, &json, NULL) ==
           CAIRN_OK);
    return json;
}

TEST(a_default_stays_where_a_field_is_absent_or_null) {
    CAIRN_AUTO_JSON json_t *json = parsed("{\"t\":\"restore\",\"id\":4,\"format\":null}");
    struct cairn_msg_restore restore = {.ref = "latest"};
    REQUIRE(cairn_msg_restore_read(json, "", &restore, NULL) == CAIRN_OK);
    EXPECT_EQ_TEXT(restore.ref, "latest");
    EXPECT(restore.format == NULL);
}

TEST(a_real_number_is_read_with_and_without_a_fraction_and_text_is_refused_by_name) {
    CAIRN_AUTO_JSON json_t *good = parsed("{\"rule\":\"best\",\"value\":-3}");
    CAIRN_AUTO_JSON json_t *bad = parsed("{\"rule\":\"best\",\"value\":\"1.5\"}");
    struct cairn_msg_retention_reason reason = {0};
    struct cairn_error error = {0};
    REQUIRE(cairn_msg_retention_reason_read(good, "", &reason, NULL) == CAIRN_OK);
    EXPECT(reason.value > -3.5 && reason.value < -2.5);
    EXPECT(cairn_msg_retention_reason_read(bad, "/reasons/0", &reason, &error) == CAIRN_INVALID);
    EXPECT_EQ_TEXT(error.message, "/reasons/0/value: wanted a number, got text");
}

TEST(a_must_field_that_is_absent_is_refused_by_name) {
    CAIRN_AUTO_JSON json_t *json = parsed("{\"t\":\"window\",\"id\":4}");
    struct cairn_msg_window window = {0};
    struct cairn_error error = {0};
    EXPECT(cairn_msg_window_read(json, "", &window, &error) == CAIRN_INVALID);
    EXPECT_EQ_TEXT(error.message, "/bytes: missing");
}

TEST(a_number_above_its_bound_is_refused_by_name) {
    CAIRN_AUTO_JSON json_t *json = parsed("{\"limit\":1001}");
    struct cairn_msg_list list = {.limit = 100};
    struct cairn_error error = {0};
    EXPECT(cairn_msg_list_read(json, "", &list, &error) == CAIRN_INVALID);
    EXPECT_EQ_TEXT(error.message, "/limit: wanted an integer from 0 to 1000, got 1001");
    EXPECT_EQ_U64(list.limit, 100);
}

TEST(a_body_is_a_closed_list_and_a_frame_takes_unknown_fields) {
    CAIRN_AUTO_JSON json_t *json = parsed("{\"grant\":\"g\",\"bytes\":1,\"later\":2}");
    struct cairn_msg_commit commit = {0};
    struct cairn_msg_window window = {0};
    struct cairn_error error = {0};
    EXPECT(cairn_msg_commit_read(json, "", &commit, &error) == CAIRN_INVALID);
    EXPECT(strstr(error.message, "unknown field") != NULL);
    EXPECT(cairn_msg_window_read(json, "", &window, NULL) == CAIRN_OK);
}

/* Labels and meta are measured on their canonical bytes, by one function for all (Q50, V34). */
/* {"a": [0.1, 0.1, ...]} in few bytes as written, more in canonical form. */
static json_t *numbers(size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) (void)!json_array_append_new(list, json_real(0.1));
    return json_pack("{s:o}", "a", list);
}

TEST(meta_is_measured_as_it_will_be_stored, err) { /* V34 */
    CAIRN_AUTO(buf) canonical = {0};
    CAIRN_AUTO_JSON json_t *spaced = parsed("{ \"b\" : 1 ,\n \"a\" : [ ] }");
    EXPECT_CODE(cairn_meta_check(spaced, "meta", false, &canonical, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(canonical.data, "{\"a\":[],\"b\":1}");
    CAIRN_AUTO_JSON json_t *few = numbers(3000), *many = numbers(40000);
    EXPECT_CODE(cairn_meta_check(few, "meta", false, NULL, &err), CAIRN_OK);
    EXPECT_FAILS(cairn_meta_check(many, "/begins/3/meta", false, NULL, &err), CAIRN_TOO_LARGE,
                 "/begins/3/meta");
    /* At the border: {"a":"xxx"} has 8 bytes beside the text. */
    char *text = malloc(CAIRN_META_BYTES_MAX);
    REQUIRE(text != NULL);
    memset(text, 'x', CAIRN_META_BYTES_MAX);
    for (size_t more = 0; more < 2; more++) {
        text[CAIRN_META_BYTES_MAX - 8 + more] = 0;
        CAIRN_AUTO_JSON json_t *object = json_pack("{s:s}", "a", text);
        EXPECT_CODE(cairn_meta_check(object, "meta", false, NULL, &err),
                    more ? CAIRN_TOO_LARGE : CAIRN_OK);
        text[CAIRN_META_BYTES_MAX - 8 + more] = 'x';
    }
    free(text);
}

TEST(labels_are_texts_and_both_are_objects_of_bounded_depth, err) { /* V34 */
    CAIRN_AUTO_JSON json_t *list = parsed("[1]"), *number = parsed("{\"k\":1}");
    EXPECT_CODE(cairn_meta_check(NULL, "labels", true, NULL, &err), CAIRN_OK);
    EXPECT_CODE(cairn_meta_check(list, "meta", false, NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_meta_check(number, "meta", false, NULL, &err), CAIRN_OK);
    EXPECT_FAILS(cairn_meta_check(number, "labels", true, NULL, &err), CAIRN_INVALID,
                 "labels: the value of k");
    static const char *const slips[][2] = {
        {"{\"\":\"v\"}", "labels: a label needs a name"},
        {"{\"a\\tb\":\"v\"}", "labels: the name of a label has the control byte 0x09"},
        {"{\"k\":\"a\\u001bb\"}", "labels: the value of k has the control byte 0x1b"},
        {"{\"k\":\"\\u007f\"}", "labels: the value of k has the control byte 0x7f"}};
    for (size_t i = 0; i < CAIRN_COUNT(slips); i++) {
        CAIRN_AUTO_JSON json_t *labels = parsed(slips[i][0]);
        EXPECT_CODE(cairn_meta_check(labels, "labels", true, NULL, &err), CAIRN_INVALID);
        EXPECT_EQ_TEXT(err.message, slips[i][1]);
        EXPECT_CODE(cairn_label_changes_check(labels, "labels", &err), CAIRN_INVALID);
        EXPECT_CODE(cairn_meta_check(labels, "meta", false, NULL, &err), CAIRN_OK);
    }
    CAIRN_AUTO_JSON json_t *removed = parsed("{\"\":null,\"a\\nb\":null,\"k\":\"\"}");
    EXPECT_CODE(cairn_label_changes_check(removed, "labels", &err), CAIRN_OK);
    for (unsigned depth = CAIRN_META_DEPTH_MAX; depth <= CAIRN_META_DEPTH_MAX + 1; depth++) {
        CAIRN_AUTO_JSON json_t *deep = json_pack("{s:i}", "a", 1);
        for (unsigned i = 1; i < depth; i++) deep = json_pack("{s:o}", "a", deep);
        EXPECT_CODE(cairn_meta_check(deep, "meta", false, NULL, &err),
                    depth > CAIRN_META_DEPTH_MAX ? CAIRN_INVALID : CAIRN_OK);
    }
}
