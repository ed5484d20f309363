/* SPDX-License-Identifier: Apache-2.0 */
/* yaml_json: what is taken is read as YAML reads it, the rest is refused with its line. That
 * api/openapi.yaml is read as PyYAML reads it: tests/python/check_openapi.py. */
#include "common/json.h"

#include "tests/harness.h"

static struct cairn_error err;

TEST(what_is_taken_is_read_as_yaml_reads_it) { /* json.h#6 */
    static const char *const cases[][2] = {
        {"a: 1\nb: text of words # and a comment\n", "{\"a\":1,\"b\":\"text of words\"}"},
        {"# first\n\na:\n  b: true\n  c: null\nd: false\n",
         "{\"a\":{\"b\":true,\"c\":null},\"d\":false}"},
        {"a:\n- 1\n- b: 2\n  c: 3\n-\n  d: 4\n", "{\"a\":[1,{\"b\":2,\"c\":3},{\"d\":4}]}"},
        {"a: {b: [1, 'it''s', \"x: y\"], 'c': , d: e}\n", ""},
        {"a: {b: [1, 'it''s', \"x: y\"], '200': ''}\n",
         "{\"a\":{\"200\":\"\",\"b\":[1,\"it's\",\"x: y\"]}}"},
        {"a: [1,\n  2, 3]\nb: 3.1.0\n", "{\"a\":[1,2,3],\"b\":\"3.1.0\"}"},
        {"a: |\n  one\n  two\n\n  three\nb: >-\n  one\n  two\n\n  three\n",
         "{\"a\":\"one\\ntwo\\n\\nthree\\n\",\"b\":\"one two\\nthree\"}"},
        {"a:\n", "{\"a\":null}"},
        {"", "null"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        enum cairn_code code = cairn_yaml_json(cairn_view_of(cases[i][0]), &json, &err);
        if (!cases[i][1][0]) {
            EXPECT_CODE(code, CAIRN_UNSUPPORTED);
            continue;
        }
        REQUIRE_OK(code);
        char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        EXPECT_EQ_TEXT(text, cases[i][1]);
        free(text);
    }
}

TEST(what_is_not_taken_is_refused_with_its_line) { /* json.h#6 */
    static const char *const cases[][2] = {
        {"a: 1\na: 2\n", "line 2: a name twice"},
        {"a: &x 1\n", "line 1: an indicator that is not taken"},
        {"a: {description: with one, and another}\n", "line 1: a member is name: value"},
        {"a: \"with \\n\"\n", "line 1: no escapes in \"\""},
        {"a: 'open\n", "line 1: a quoted text ends on its line"},
        {"a: 1\n  b: 2\n", "line 2: a line that belongs to nothing"},
        {"a: [1, 2\n", "wanted a comma or the end"},
        {"a: 1.5\n", "line 1: numbers are whole"},
        {"a: [-1]\n", "line 1: numbers are whole"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        EXPECT_CODE(cairn_yaml_json(cairn_view_of(cases[i][0]), &json, &err), CAIRN_UNSUPPORTED);
        cairn_test_check(strstr(err.message, cases[i][1]) != NULL, __FILE__, __LINE__, "\"%s\": %s",
                         cases[i][0], err.message);
    }
    CAIRN_AUTO(buf) deep = {0};
    for (int i = 0; i < 100; i++) EXPECT(!cairn_buf_append_text(&deep, "[", &err));
    CAIRN_AUTO_JSON json_t *json = NULL;
    EXPECT_CODE(cairn_yaml_json(cairn_buf_view(&deep), &json, &err), CAIRN_UNSUPPORTED);
}
