/* SPDX-License-Identifier: Apache-2.0 */
/* json: what is refused, what is read, and that equal values give equal bytes. */
#include "common/json.h"

#include <math.h>

#include "tests/harness.h"

static enum cairn_code parse_with(const char *text, struct cairn_json_limits limits,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    return cairn_json_parse(cairn_view_of(text), limits, &json, err);
}

static enum cairn_code parse(const char *text, struct cairn_error *err) {
    return parse_with(text, (struct cairn_json_limits){0}, err);
}

/* `depth` open brackets and as many closed ones. */
static void nested(char *ret, size_t depth) {
    memset(ret, '[', depth);
    memset(ret + depth, ']', depth);
    ret[2 * depth] = '\0';
}

TEST(m01_a_document_may_nest_16_deep_and_no_deeper, err) { /* json.h#1 */
    char text[4097];
    nested(text, 16);
    EXPECT_CODE(parse(text, &err), CAIRN_OK);
    nested(text, 17);
    EXPECT_FAILS(parse(text, &err), CAIRN_INVALID, "deeper than 16");
    nested(text, 2000);
    EXPECT_CODE(parse(text, &err), CAIRN_INVALID);
}

TEST(values_are_counted_before_they_are_allocated_and_keys_do_not_count, err) { /* json.h#1 */
    struct cairn_json_limits five = {.nodes = 5};
    EXPECT_CODE(parse_with("[1,\"a:b\",true,{}]", five, &err), CAIRN_OK);
    EXPECT_CODE(parse_with("[1,\"a:b\",true,{},null]", five, &err), CAIRN_TOO_LARGE);
    EXPECT_CODE(parse_with("{\"a\":1,\"b\":2,\"c\":3,\"d\":4}", five, &err), CAIRN_OK);
    EXPECT_CODE(parse_with("{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5}", five, &err),
                CAIRN_TOO_LARGE);
    EXPECT_CODE(parse_with("[[],[],[],[]]", five, &err), CAIRN_OK);
    EXPECT_CODE(parse_with("[[],[],[],[],[]]", five, &err), CAIRN_TOO_LARGE);
    EXPECT_CODE(parse_with("[\"\\\"\",\"\\\\\",\"[,,,,\",1]", five, &err), CAIRN_OK);
}

TEST(m01_a_mebibyte_of_empty_objects_is_refused_by_the_default_limits, err) { /* json.h#1 */
    WITH_OK(buf, text, cairn_buf_append_text(&text, "[{}", &err));
    while (text.size + 4 < CAIRN_MIB) REQUIRE_OK(cairn_buf_append_text(&text, ",{}", &err));
    REQUIRE_OK(cairn_buf_append_text(&text, "]", &err));
    EXPECT_FAILS(parse(text.data, &err), CAIRN_TOO_LARGE, "100000 values");
    REQUIRE_OK(cairn_buf_append_text(&text, "    ", &err));
    EXPECT_FAILS(parse(text.data, &err), CAIRN_TOO_LARGE, "bytes");
}

TEST(malformed_documents_are_invalid) { /* json.h#1 */
    EACH_TEXT(one, "", " ", "{\"a\":1,\"a\":2}", "{} {}", "[1]x", "\xef\xbb\xbf{}", "[\"\xff\"]",
              "[\"\\ud800\"]", "[\"\\u0000\"]", "{\"a\"}", "[1,]", "{a:1}", "[1e400]",
              "[9223372036854775808]", "[-0]", "[01]", "[+1]", "[1", "\"text\"", "12", "null",
              "]]]]", "{::::}", "[\"a", "[\"\\", "[NaN]", "[Infinity]", "['a']", "[1]\x01",
              "[\"\x01\"]") {
        struct cairn_error err = {0};
        EXPECT_CODE(parse(one, &err), CAIRN_INVALID);
        EXPECT(err.message[0] != '\0');
    }
}

static void expect_invalid(const char *text) {
    struct cairn_error err = {0};
    enum cairn_code code = parse(text, &err);
    cairn_test_check(code == CAIRN_INVALID, __FILE__, __LINE__, "%s: %s", text,
                     cairn_code_info(code)->slug);
}

TEST(m02_a_key_that_comes_twice_is_refused_wherever_it_stands, err) {
    expect_invalid("{\"a\":1,\"a\":1}");
    expect_invalid("{\"a\":1,\"b\":2,\"a\":null}");
    expect_invalid("[{\"b\":{\"a\":{},\"a\":[]}}]");
    expect_invalid("{\"a\":1,\"\\u0061\":2}"); /* the same name, written otherwise */
    REQUIRE_OK(parse("{\"a\":{\"a\":1},\"A\":[{\"a\":1},{\"a\":1}]}", &err));
}

TEST(m04_text_that_is_none_is_refused) {
    expect_invalid("[\"\\u0000\"]");
    expect_invalid("{\"\\u0000\":1}");
    expect_invalid("[\"\\ud800\"]");
    expect_invalid("[\"\\udc00\\ud800\"]");
    expect_invalid("[\"\xff\"]");
    expect_invalid("[\"\xc0\xaf\"]");     /* longer than it needs to be */
    expect_invalid("[\"\xed\xa0\x80\"]"); /* half of a pair, as UTF-8 */
    expect_invalid("\xef\xbb\xbf{}");
    expect_invalid("{} {}");
    expect_invalid("[1]\x01");
}

TEST(m04_a_nul_byte_inside_the_text_is_invalid, err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    EXPECT_CODE(
        cairn_json_parse(CAIRN_VIEW("[1]\0[2]"), (struct cairn_json_limits){0}, &json, &err),
        CAIRN_INVALID);
    EXPECT(json == NULL);
}

TEST(b07_messages_about_hostile_text_are_plain_ascii, err) {
    EXPECT_CODE(parse("{\"a\x1b\r\n\xc3\xa9\": \x80}", &err), CAIRN_INVALID);
    for (const char *c = err.message; *c; c++) EXPECT(*c >= 0x20 && *c < 0x7f);
}

struct body {
    uint64_t size;
    uint32_t rank;
    bool skip;
    const char *name;
    json_t *labels, *shards, *any;
};

static enum cairn_code read_body(const char *text, bool open, struct body *ret,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_json_parse(cairn_view_of(text), (struct cairn_json_limits){0}, &json, err));
    const struct cairn_json_field fields[] = {
        {"size", CAIRN_JSON_U64, true, &ret->size, 0},
        {"rank", CAIRN_JSON_U32, false, &ret->rank, 0},
        {"skip", CAIRN_JSON_BOOL, false, &ret->skip, 0},
        {"name", CAIRN_JSON_TEXT, false, &ret->name, 8},
        {"labels", CAIRN_JSON_OBJECT, false, &ret->labels, 0},
        {"shards", CAIRN_JSON_ARRAY, false, &ret->shards, 0},
        {"any", CAIRN_JSON_ANY, false, &ret->any, 0},
    };
    enum cairn_code code =
        cairn_json_read(json, "/ranks/3", fields, CAIRN_COUNT(fields), open, err);
    /* Borrowed values end with the document, so only their presence is looked at. */
    if (ret->name && strcmp(ret->name, "llm") != 0) ret->name = NULL;
    return code;
}

TEST(a_body_is_read_into_its_fields, err) {
    struct body body = {0};
    REQUIRE_OK(read_body("{\"size\":4611686018427387904,\"rank\":4294967295,\"skip\":true,"
                         "\"name\":\"llm\",\"labels\":{},\"shards\":[],\"any\":1.5}",
                         false, &body, &err));
    EXPECT_ALL_U64(body.size, UINT64_C(1) << 62, body.rank, UINT32_MAX);
    EXPECT(body.skip && body.name && body.labels && body.shards && body.any);
}

TEST(absent_and_null_fields_keep_what_the_caller_set, err) {
    struct body body = {.rank = 7, .skip = true};
    REQUIRE_OK(read_body("{\"size\":0,\"rank\":null}", false, &body, &err));
    EXPECT_EQ_U64(body.rank, 7);
    EXPECT(body.skip);
}

/* As size, which is at most 2^62, and in a document that is only parsed. */
TEST(m03_only_integers_within_their_limit_are_numbers) {
    EACH_TEXT(text, "-1", "1.0", "1e3", "1E0", "\"12\"", "4611686018427387905",
              "9223372036854775807", "true", "[1]", "0.5") {
        struct cairn_error err = {0};
        struct body body = {.size = 7};
        EXPECT_CODE(read_body(TEXT("{\"size\":%s}", text), false, &body, &err), CAIRN_INVALID);
        EXPECT(strstr(err.message, "/ranks/3/size: wanted an integer") == err.message);
    }
    EACH_TEXT(one, "9223372036854775808", "18446744073709551616", "-9223372036854775809", "-0",
              "1e400", "-1e400", "01", "0x1", "1_000", "NaN", "Infinity") {
        expect_invalid(TEXT("{\"size\":%s}", one));
    }
}

TEST(a_wrong_field_is_named_by_its_pointer) { /* json.h#2 json.h#3 M06 */
    EACH(
        one, FIELDS(const char *text, *message), {"{}", "/ranks/3/size: missing"},
        {"{\"size\":null}", "/ranks/3/size: missing"},
        {"{\"size\":-1}", "/ranks/3/size: wanted an integer from 0 to 4611686018427387904, got -1"},
        {"{\"size\":4611686018427387905}", "/ranks/3/size: wanted an integer from 0"},
        {"{\"size\":1.0}", "/ranks/3/size: wanted an integer, got a number with"},
        {"{\"size\":1e3}", "/ranks/3/size: wanted an integer, got a number with"},
        {"{\"size\":\"12\"}", "/ranks/3/size: wanted an integer, got text"},
        {"{\"size\":1,\"rank\":4294967296}",
         "/ranks/3/rank: wanted an integer from 0 to 4294967295"},
        {"{\"size\":1,\"skip\":1}", "/ranks/3/skip: wanted true or false, got an integer"},
        {"{\"size\":1,\"name\":\"nine byte\"}", "/ranks/3/name: wanted at most 8 bytes"},
        {"{\"size\":1,\"name\":[]}", "/ranks/3/name: wanted text, got an array"},
        {"{\"size\":1,\"labels\":[]}", "/ranks/3/labels: wanted an object, got an array"},
        {"{\"size\":1,\"shards\":{}}", "/ranks/3/shards: wanted an array, got an object"},
        {"{\"size\":1,\"sizes\":2}", "/ranks/3/sizes: unknown field"},
        {"{\"size\":1,\"a\\u0007\\\"b\":2}", "/ranks/3/a??b: unknown field"},
        {"[]", "/ranks/3: wanted an object, got an array"}) {
        struct cairn_error err = {0};
        struct body body = {0};
        EXPECT_CODE(read_body(one->text, false, &body, &err), CAIRN_INVALID);
        if (!EXPECT(strstr(err.message, one->message) == err.message))
            printf("    %s gave: %s\n", one->text, err.message);
    }
}

TEST(an_open_object_may_hold_unknown_fields, err) {
    struct body body = {0};
    EXPECT_CODE(read_body("{\"size\":1,\"later\":2}", true, &body, &err), CAIRN_OK);
}

TEST(equal_values_are_dumped_as_equal_bytes) { /* json.h#4 */
    static const char *const texts[] = {
        "{ \"b\" : [1, 2.5, \"\\u00e9\"],\n \"a\":{\"z\":null,\"y\":true} }",
        "{\"a\":{\"y\":true,\"z\":null},\"b\":[1,2.5,\"\xc3\xa9\"]}",
    };
    for (size_t i = 0; i < CAIRN_COUNT(texts); i++) {
        struct cairn_error err = {0};
        CAIRN_AUTO_JSON json_t *json = NULL;
        REQUIRE_OK(
            cairn_json_parse(cairn_view_of(texts[i]), (struct cairn_json_limits){0}, &json, &err));
        WITH_OK(buf, out, cairn_json_dump(json, &out, &err));
        EXPECT_EQ_TEXT(out.data, texts[1]);
    }
}

TEST(a_dump_that_does_not_fit_leaves_the_buffer_as_it_was, err) {
    CAIRN_AUTO_JSON json_t *json = json_pack("{s:s}", "key", "a value that is too long");
    CAIRN_AUTO(buf) out = {.limit = 16};
    REQUIRE_OK(cairn_buf_append_text(&out, "before", &err));
    EXPECT_CODE(cairn_json_dump(json, &out, &err), CAIRN_TOO_LARGE);
    EXPECT_EQ_U64(out.size, 6);
    EXPECT_EQ_TEXT(out.data, "before");
}

TEST(the_form_for_people_keeps_the_order_of_the_keys, err) {
    CAIRN_AUTO_JSON json_t *json = json_pack("{s:i,s:i}", "z", 1, "a", 2);
    WITH_OK(buf, out, cairn_json_dump_pretty(json, &out, &err));
    EXPECT_EQ_TEXT(out.data, "{\n  \"z\": 1,\n  \"a\": 2\n}");
}

TEST(what_is_shown_has_few_digits_and_is_the_same_document, err) { /* json.h#5 */
    static const char text[] =
        "{\"b\":[0.10000000000000001,-0.0,1.0000000000000001e300,3.0,7,"
        "true,false,null],\"a\":{\"1.0000000000000001e5\":\"\\\"0.10000000000000001"
        "\\\\\",\"z\":-5}}";
    CAIRN_AUTO_JSON json_t *json = NULL, *back = NULL;
    json = json_loads(text, 0, NULL);
    WITH_OK(buf, out, cairn_buf_append_text(&out, "before ", &err));
    REQUIRE_OK(cairn_json_show(json, &out, &err));
    EXPECT_EQ_TEXT(out.data, "before {\"a\":{\"1.0000000000000001e5\":\"\\\"0.10000000000000001"
                             "\\\\\",\"z\":-5},\"b\":[0.1,-0.0,1e300,3.0,7,true,false,null]}");
    WITH_OK(buf, pretty, cairn_json_dump_pretty(json, &pretty, &err));
    EXPECT(strstr(pretty.data, "\n    0.1,\n    -0.0,\n    1e300,\n    3.0,\n    7,\n") != NULL);
    back = json_loads(out.data + 7, 0, NULL);
    EXPECT(json_equal(json, back));
    cairn_buf_clear(&out);
    REQUIRE_OK(cairn_json_dump(json, &out, &err)); /* what is stored stays as it was */
    EXPECT(strstr(out.data, "[0.10000000000000001,-0.0,1.0000000000000001e300,3.0,7,") != NULL);
}

TEST(random_doubles_are_shown_as_reals_that_read_back, err) { /* json.h#5 */
    uint64_t state = cairn_test_seed();
    CAIRN_AUTO_JSON json_t *all = json_array(), *back = NULL;
    CAIRN_AUTO(buf) out = {0};
    while (json_array_size(all) < 20000) {
        uint64_t bits = cairn_test_random(&state);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) json_array_append_new(all, json_real(value));
    }
    REQUIRE_OK(cairn_json_show(all, &out, &err));
    back = json_loads(out.data, 0, NULL);
    REQUIRE(json_array_size(back) == json_array_size(all));
    for (size_t i = 0; i < json_array_size(all); i++) {
        double value = json_real_value(json_array_get(all, i));
        double found = json_real_value(json_array_get(back, i));
        REQUIRE(json_is_real(json_array_get(back, i)));
        REQUIRE(memcmp(&value, &found, sizeof value) == 0);
    }
}

TEST(what_does_not_fit_is_not_shown_and_leaves_the_buffer_as_it_was, err) {
    CAIRN_AUTO_JSON json_t *json = json_pack("[f,f]", 0.5, 0.25);
    CAIRN_AUTO(buf) out = {.limit = 15};
    REQUIRE_OK(cairn_buf_append_text(&out, "before", &err));
    EXPECT_CODE(cairn_json_show(json, &out, &err), CAIRN_TOO_LARGE);
    EXPECT_EQ_U64(out.size, 6);
    EXPECT_EQ_TEXT(out.data, "before");
}
