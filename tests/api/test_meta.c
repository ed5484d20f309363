/* SPDX-License-Identifier: Apache-2.0 */
/* Labels and meta are measured on their canonical bytes, by one function for all (Q50, V34). */
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "tests/harness.h"

static json_t *parsed(const char *text) {
    const struct cairn_json_limits limits = {.bytes = CAIRN_MIB};
    json_t *json = NULL;
    return cairn_json_parse(cairn_view_of(text), limits, &json, NULL) ? NULL : json;
}

/* {"a": [0.1, 0.1, ...]} in few bytes as written, more in canonical form. */
static json_t *numbers(size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) (void)!json_array_append_new(list, json_real(0.1));
    return json_pack("{s:o}", "a", list);
}

TEST(meta_is_measured_as_it_will_be_stored) /* V34 */
{
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) canonical = {0};
    CAIRN_AUTO_JSON json_t *spaced = parsed("{ \"b\" : 1 ,\n \"a\" : [ ] }");
    EXPECT_CODE(cairn_meta_check(spaced, "meta", false, &canonical, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(canonical.data, "{\"a\":[],\"b\":1}");
    CAIRN_AUTO_JSON json_t *few = numbers(3000), *many = numbers(40000);
    EXPECT_CODE(cairn_meta_check(few, "meta", false, NULL, &err), CAIRN_OK);
    EXPECT_CODE(cairn_meta_check(many, "/begins/3/meta", false, NULL, &err), CAIRN_TOO_LARGE);
    EXPECT(strstr(err.message, "/begins/3/meta"));
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

TEST(labels_are_texts_and_both_are_objects_of_bounded_depth) /* V34 */
{
    struct cairn_error err = {0};
    CAIRN_AUTO_JSON json_t *list = parsed("[1]"), *number = parsed("{\"k\":1}");
    EXPECT_CODE(cairn_meta_check(NULL, "labels", true, NULL, &err), CAIRN_OK);
    EXPECT_CODE(cairn_meta_check(list, "meta", false, NULL, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_meta_check(number, "meta", false, NULL, &err), CAIRN_OK);
    EXPECT_CODE(cairn_meta_check(number, "labels", true, NULL, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "labels: the value of k"));
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
