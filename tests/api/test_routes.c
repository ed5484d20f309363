/* SPDX-License-Identifier: Apache-2.0 */

#include "tests/api/mutate.h"
#include "tests/support/route_path.h"

#define R "/v1/runs/llm/7b"
#define C R "/checkpoints/1200"
#define DIGEST "abababababababababababababababababababababababababababababababab"

static enum cairn_code match(const char *method, const char *path, struct cairn_route_params *ret,
                             const char **ret_name) {
    const struct cairn_route *route = NULL;
    struct cairn_error err = {0};
    enum cairn_code code = cairn_route_match(method, cairn_view_of(path), &route, ret, &err);
    *ret_name = route ? route->name : "";
    return code;
}

TEST(each_route_is_found_by_its_own_template) {
    for (int id = 0; id < CAIRN_ROUTE_COUNT; id++) {
        const struct cairn_route *wanted = cairn_route_at((enum cairn_route_id)id);
        char path[512];
        cairn_route_path(wanted, path);
        struct cairn_route_params params;
        const char *name;
        EXPECT(match(wanted->method, path, &params, &name) == CAIRN_OK);
        EXPECT_EQ_TEXT(name, wanted->name);
    }
}

TEST(parameters_are_decoded_and_named) {
    struct cairn_route_params params;
    const char *name;
    EXPECT(match("GET", C "/shards/a%2Fb/c%20d/data", &params, &name) == CAIRN_OK);
    EXPECT_ALL_TEXT(name, "shard_data", params.shard, "a/b/c d", params.ref, "1200",
                    params.run_name.project, "llm", params.run_name.run, "7b");
    EXPECT(match("GET", C "/shards/data", &params, &name) == CAIRN_OK);
    EXPECT_ALL_TEXT(name, "shard_get", params.shard, "data");
    EXPECT(match("GET", C "/shards/data/data", &params, &name) == CAIRN_OK);
    EXPECT_ALL_TEXT(name, "shard_data", params.shard, "data");
    EXPECT(match("GET", C "/shards/x%2Fdata", &params, &name) == CAIRN_OK);
    EXPECT_ALL_TEXT(name, "shard_get", params.shard, "x/data");
    EXPECT(match("HEAD", R "/tables/" DIGEST, &params, &name) == CAIRN_OK);
    EXPECT_EQ_TEXT(params.digest, DIGEST);
    EXPECT(match("PUT", "/v1/nodes/gpu-07.cluster", &params, &name) == CAIRN_OK);
    EXPECT_EQ_TEXT(params.node, "gpu-07.cluster");
    EXPECT(match("GET", R "/%63heckpoints", &params, &name) == CAIRN_OK);
    EXPECT_EQ_TEXT(name, "checkpoint_list");
}

TEST(a_last_data_of_a_tensors_path_is_the_word_and_one_behind_2f_is_of_the_name) {
    EACH(one, FIELDS(const char *path, *route, *tensor), {"", "tensor_list", ""},
         {"/w", "tensor_named", "w"},
         {"/layers/0/attn.weight", "tensor_named", "layers/0/attn.weight"},
         {"/layers%2F0%2fattn.weight", "tensor_named", "layers/0/attn.weight"},
         {"/layers/0%2Fattn.weight/data", "tensor_named_data", "layers/0/attn.weight"},
         {"/data", "tensor_named", "data"}, {"/data/data", "tensor_named_data", "data"},
         {"/data/data/data", "tensor_named_data", "data/data"},
         {"/data%2Fdata", "tensor_named", "data/data"}, {"/x/data", "tensor_named_data", "x"},
         {"/x/%64ata", "tensor_named_data", "x"}, /* RFC 3986, 6.2.2.2: the same path */
         {"/x%2Fdata", "tensor_named", "x/data"}, {"/x%2Fdata/data", "tensor_named_data", "x/data"},
         {"/x/data/y", "tensor_named", "x/data/y"}, {"/a%252Fb", "tensor_named", "a%2Fb"},
         {"/a%25b", "tensor_named", "a%b"}, {"/a%2F%2Fb", "tensor_named", "a//b"},
         {"/%2Fa%2F", "tensor_named", "/a/"}, {"/..%2Fa%2F.", "tensor_named", "../a/."},
         {"/%3F%23%20+&=;%26", "tensor_named", "?# +&=;&"},
         {"/%C3%A4%F0%9F%A7%AE", "tensor_named", "\xc3\xa4\xf0\x9f\xa7\xae"},
         {"/a%5Cb%0A%7F", "tensor_named", "a\\b\n\x7f"}) {
        struct cairn_route_params params;
        const char *name;
        EXPECT(match("GET", TEXT(C "/tensors%s", one->path), &params, &name) == CAIRN_OK);
        EXPECT_ALL_TEXT(name, one->route, params.tensor, one->tensor, params.shard, "");
    }
}

TEST(what_is_wrong_with_a_tensors_path_is_told) {
    static const char *const cases[][2] = {
        {"/", "an empty segment: a '/' that belongs to a name is written %2F"},
        {"/a/", "an empty segment"},
        {"/a//b", "an empty segment"},
        {"//data", "an empty segment"},
        {"/a/../b", "a segment \".\" or \"..\""},
        {"/%2e%2E", "comes by ?name="},
        {"/a%00b", "%00"},
        {"/a%b", "a bad percent-escape: a '%' itself is written %25"},
        {"/a%", "a bad percent-escape"},
        {"/a%2", "a bad percent-escape"},
        {"/a\\b", "must be percent-encoded"},
        {"/\xc3\xa4", "must be percent-encoded"},
        {"/%c0%af", "no UTF-8"},
        {"/%ED%A0%80", "no UTF-8"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        const struct cairn_route *route = NULL;
        struct cairn_route_params params;
        struct cairn_error err = {0};
        const char *path = TEXT(C "/tensors%s", cases[i][0]);
        EXPECT(cairn_route_match("GET", cairn_view_of(path), &route, &params, &err) ==
               CAIRN_INVALID);
        if (!EXPECT(strstr(err.message, cases[i][1]) != NULL))
            printf("  %s: %s\n", path, err.message);
    }
}

/* Each byte is written as three, which is the longest that a name can be written. */
static size_t tensor_path(char to[CAIRN_ROUTE_PATH_BYTES_MAX], size_t name_bytes,
                          const char *behind) {
    size_t used = (size_t)snprintf(to, CAIRN_ROUTE_PATH_BYTES_MAX, C "/tensors/");
    for (size_t i = 0; i < name_bytes; i++, used += 3) memcpy(to + used, i % 2 ? "%2F" : "%61", 3);
    memcpy(to + used, behind, strlen(behind) + 1);
    return used + strlen(behind);
}

TEST(a_tensors_name_has_1024_bytes_in_a_path_and_no_more, err) {
    static char path[CAIRN_ROUTE_PATH_BYTES_MAX];
    struct cairn_route_params params;
    const struct cairn_route *route = NULL;
    struct cairn_view view = {path, tensor_path(path, CAIRN_TENSOR_NAME_BYTES_MAX, "/data")};
    EXPECT_CODE(cairn_route_match("GET", view, &route, &params, &err), CAIRN_OK);
    EXPECT_EQ_U64(strlen(params.tensor), CAIRN_TENSOR_NAME_BYTES_MAX);
    view.size = tensor_path(path, CAIRN_TENSOR_NAME_BYTES_MAX + 1, "");
    EXPECT_FAILS(cairn_route_match("GET", view, &route, &params, &err), CAIRN_INVALID,
                 "tensor name of more than 1024 bytes");
    view.size = tensor_path(path, CAIRN_TENSOR_NAME_BYTES_MAX, "/a"); /* two bytes too many */
    EXPECT(cairn_route_match("GET", view, &route, &params, &err) == CAIRN_INVALID);
    snprintf(path, sizeof path, C "/tensors");
    for (size_t i = 0; i < 60; i++) memcpy(path + strlen(path), "/a", 3);
    EXPECT_FAILS(cairn_route_match("GET", cairn_view_of(path), &route, &params, &err),
                 CAIRN_INVALID, "too many segments");
}

TEST(only_tensors_have_control_bytes_and_backslashes_in_their_names) {
    struct cairn_route_params params;
    const char *name;
    EXPECT(match("GET", C "/tensors/%5C%0A/data", &params, &name) == CAIRN_OK);
    EXPECT(match("GET", R "/checkpoints/%0A/tensors/a", &params, &name) == CAIRN_INVALID);
    EXPECT(match("GET", C "/tensors%5C/a", &params, &name) == CAIRN_INVALID);
    EXPECT(match("GET", C "/shards/a%5Cb", &params, &name) == CAIRN_INVALID);
    EXPECT(match("GET", C "/hf/a%09b", &params, &name) == CAIRN_INVALID);
    EXPECT(match("GET", "/nothing%0A", &params, &name) == CAIRN_INVALID);
}

TEST(paths_that_lie_about_their_segments_are_refused) {
    static const char *const methods[] = {"GET", "PUT"};
    EACH_TEXT(text, "", "v1/runs", "/v1//runs", "/v1/runs/", "//", R "%00b", "/v1/runs/%",
              "/v1/runs/%4", "/v1/runs/%zz", "/v1/runs/../nodes", "/v1/./runs", "/v1/runs/%2e%2e/x",
              R "/checkpoints/a\\b", R "/checkpoints/%5c", C "/shards/%2e%2e", C "/shards/a%2F%2Fb",
              C "/shards/a%2F..%2Fb", C "/shards/%2Fa", C "/shards/%c0%af", C "/shards/\xc3\xa4",
              C "/shards/%ff", C "/shards/a%0ab", "/v1/runs/a%2Fb/c", "/v1/runs/a%252fb/c",
              "/v1/runs/-a/c", "/v1/runs/a..b/c", R "/checkpoints/007", R "/checkpoints/-1",
              R "/checkpoints/1e3", R "/checkpoints/Latest", R "/checkpoints/ckpt_1",
              R "/checkpoints/1000000000000", R "/checkpoints/99999999999999999999",
              "/v1/nodes/a%2fb", "/v1/runs/ a/b", "/v1/runs/a#b") {
        struct cairn_route_params params;
        const char *name;
        enum cairn_code code = CAIRN_OK;
        for (size_t k = 0; k < 2 && code != CAIRN_INVALID; k++) {
            code = match(methods[k], text, &params, &name);
        }
        if (!EXPECT(code == CAIRN_INVALID)) printf("  path: %s\n", text);
    }
}

TEST(a_slash_behind_the_model_folder_means_the_folder_and_behind_anything_else_is_refused) {
    struct cairn_route_params params;
    const char *name;
    char allow[CAIRN_ROUTE_ALLOW_BYTES];
    EXPECT(match("GET", C "/hf/", &params, &name) == CAIRN_OK);
    EXPECT_EQ_TEXT(name, "hf_list");
    EXPECT(match("PUT", C "/hf/", &params, &name) == CAIRN_METHOD);
    cairn_route_allow(CAIRN_VIEW(C "/hf/"), allow);
    EXPECT_EQ_TEXT(allow, "GET, HEAD");
    EXPECT(match("GET", "/ui/", &params, &name) == CAIRN_OK);
    EXPECT_EQ_TEXT(name, "ui");
    EXPECT(match("GET", "/ui/0a1b2c3d/vendor/uplot.js", &params, &name) == CAIRN_OK);
    EXPECT_EQ_TEXT(params.shard, "0a1b2c3d/vendor/uplot.js");
    EACH_TEXT(text, "/ui//", "/ui/a/", C "/hf//", C "/hf/a/", C "/hf/a/hf/", C "/shards/hf/",
              C "/shards/a/hf/", C "/", C "/tensors/", "/v1/runs/", "/hf/")
        EXPECT(match("GET", text, &params, &name) != CAIRN_OK);
}

TEST(a_bad_name_is_told_as_what_it_is_of) {
    EACH(one, FIELDS(const char *path, *is), {"/v1/operations/a%2Fb", "operation name: "},
         {"/v1/tokens/a..b", "token name: "}, {"/v1/nodes/-a", "node name: "},
         {C "/leases/.x", "lease name: "}, {"/v1/webhooks/a%20b/redeliver", "webhook name: "}) {
        const struct cairn_route *route;
        struct cairn_route_params params;
        struct cairn_error err = {0};
        static const char *const methods[] = {"GET", "DELETE", "POST"};
        enum cairn_code code = CAIRN_METHOD;
        for (size_t m = 0; code == CAIRN_METHOD && m < CAIRN_COUNT(methods); m++) {
            err = (struct cairn_error){0};
            code = cairn_route_match(methods[m], cairn_view_of(one->path), &route, &params, &err);
        }
        EXPECT(code == CAIRN_INVALID);
        if (!EXPECT(cairn_text_starts(err.message, one->is)))
            printf("  %s: %s\n", one->path, err.message);
    }
}

TEST(long_paths_names_and_many_segments_are_refused) {
    static char path[10240];
    struct cairn_route_params params;
    const char *name;
    memset(path, 'a', sizeof path - 1);
    memcpy(path, C "/shards/", strlen(C "/shards/"));
    EXPECT(match("GET", path, &params, &name) == CAIRN_INVALID);
    path[2000] = '\0';
    EXPECT(match("GET", path, &params, &name) == CAIRN_INVALID); /* a name of 2 KB */
    for (size_t i = strlen(C "/shards/"); i < 1000; i++) path[i] = i % 2 ? 'a' : '/';
    path[1000] = '\0';
    EXPECT(match("GET", path, &params, &name) == CAIRN_INVALID);
    memset(path, '/', 4096);
    path[4096] = '\0';
    EXPECT(match("GET", path, &params, &name) == CAIRN_INVALID);
}

TEST(an_unknown_path_is_404_and_a_known_one_with_another_method_is_405) {
    EACH(one, FIELDS(const char *method, *path, *allow; enum cairn_code code),
         {"GET", "/", "", CAIRN_NOT_FOUND}, {"GET", "/v1", "", CAIRN_NOT_FOUND},
         {"GET", "/v1/runs/llm", "", CAIRN_NOT_FOUND}, {"GET", R "/attempt", "", CAIRN_NOT_FOUND},
         {"GET", C "/manifest/x", "", CAIRN_NOT_FOUND},
         {"POST", R, "PUT, GET, PATCH, DELETE, HEAD", CAIRN_METHOD},
         {"TRACE", R "/checkpoints", "POST, GET, HEAD", CAIRN_METHOD},
         {"GET", R "/attempts", "POST", CAIRN_METHOD}, {"get", "/livez", "GET, HEAD", CAIRN_METHOD},
         {"DELETE", C "/shards/x/data", "GET, HEAD", CAIRN_METHOD},
         {"DELETE", C "/shards/x", "GET, HEAD", CAIRN_METHOD},
         {"PUT", C "/tensors/x", "GET, HEAD", CAIRN_METHOD},
         {"PUT", C "/tensors/x/data", "GET, HEAD", CAIRN_METHOD},
         {"", "/livez", "GET, HEAD", CAIRN_METHOD}) {
        struct cairn_route_params params;
        const char *name;
        char allow[CAIRN_ROUTE_ALLOW_BYTES];
        EXPECT(match(one->method, one->path, &params, &name) == one->code);
        cairn_route_allow(cairn_view_of(one->path), allow);
        EXPECT_EQ_TEXT(allow, one->allow);
    }
}

TEST(a_target_splits_at_its_first_question_mark) {
    struct cairn_view path, query;
    cairn_route_split(CAIRN_VIEW("/a/b?x=1?y"), &path, &query);
    EXPECT_ALL_U64(path.size, 4, query.size, 5);
    cairn_route_split(CAIRN_VIEW("/a"), &path, &query);
    EXPECT_EQ_U64(path.size, 2);
    EXPECT(query.data == NULL);
}

static enum cairn_code parse(const char *text, struct cairn_query *ret) {
    return cairn_query_parse(cairn_view_of(text), ret, NULL);
}

TEST(a_query_gives_each_name_once_and_decoded) {
    struct cairn_query query;
    EXPECT(parse("wait=30s&q=a%20b%26c&verbose&x=a+b=c&e=", &query) == CAIRN_OK);
    EXPECT_EQ_U64(query.count, 5);
    EXPECT_EQ_TEXT(cairn_query_get(&query, "wait"), "30s");
    EXPECT_EQ_TEXT(cairn_query_get(&query, "q"), "a b&c");
    EXPECT_EQ_TEXT(cairn_query_get(&query, "verbose"), "");
    EXPECT_EQ_TEXT(cairn_query_get(&query, "x"), "a+b=c");
    EXPECT_EQ_TEXT(cairn_query_get(&query, "e"), "");
    EXPECT(cairn_query_get(&query, "y") == NULL);
    EXPECT(parse("", &query) == CAIRN_OK);
    EXPECT_EQ_U64(query.count, 0);
}

TEST(a_tensors_name_in_a_query_is_any_text) {
    struct cairn_query query;
    EXPECT(parse("name=a%5Cb%0A%252F%26", &query) == CAIRN_OK);
    EXPECT_EQ_TEXT(cairn_query_get(&query, "name"), "a\\b\n%2F&");
    EXPECT(parse("slice=%0A", &query) == CAIRN_INVALID);
    EXPECT(parse("na%0Ame=x", &query) == CAIRN_INVALID);
    EXPECT(parse("name=a%00b", &query) == CAIRN_INVALID);
}

TEST(a_query_that_is_ambiguous_is_refused) {
    struct cairn_query query;
    EACH_TEXT(text, "a=1&a=2", "a=1&%61=2", "=1", "&", "a=1&", "a=1&&b=2", "a=%", "a=%0", "a=%00",
              "a=\n", "a=%ff", "a=%5c")
        EXPECT(parse(text, &query) == CAIRN_INVALID);
    char many[512] = "";
    for (int i = 0; i < 33; i++) {
        size_t used = strlen(many);
        snprintf(many + used, sizeof many - used, "%sp%d=1", i ? "&" : "", i);
        EXPECT(parse(many, &query) == (i < 32 ? CAIRN_OK : CAIRN_INVALID));
    }
    static char longest[CAIRN_QUERY_BYTES_MAX + 2];
    memset(longest, 'a', CAIRN_QUERY_BYTES_MAX + 1);
    EXPECT(parse(longest, &query) == CAIRN_INVALID);
    longest[CAIRN_QUERY_BYTES_MAX] = '\0';
    EXPECT(parse(longest, &query) == CAIRN_OK);
}

TEST(unknown_query_names_are_refused_by_name, err) {
    static const char known[] = "limit, cursor";
    struct cairn_query query;
    EXPECT(parse("limit=3&cursor=x", &query) == CAIRN_OK);
    EXPECT_CODE(cairn_query_only(&query, known, &err), CAIRN_OK);
    EXPECT(parse("limit=3&cursr=x", &query) == CAIRN_OK);
    EXPECT_FAILS(cairn_query_only(&query, known, &err), CAIRN_INVALID,
                 "\"cursr\": there are limit, cursor");
    EXPECT_FAILS(cairn_query_only(&query, "", &err), CAIRN_INVALID,
                 "\"limit\": this path has none");
    EXPECT(parse("limit,%20cursor", &query) == CAIRN_OK);
    EXPECT_CODE(cairn_query_only(&query, known, &err), CAIRN_INVALID);
    EXPECT_FAILS(cairn_query_parse(CAIRN_VIEW("a=1&b=2&a=1"), &query, &err), CAIRN_INVALID,
                 "\"a\" twice");
}

/* Whatever is taken, is taken in a form that keys and handlers can trust. */
static void judge_path(struct cairn_view input, void *context) {
    const struct cairn_route *route;
    struct cairn_route_params params;
    uint32_t *good = context;
    char allow[CAIRN_ROUTE_ALLOW_BYTES];
    cairn_route_allow(input, allow);
    if (cairn_route_match("GET", input, &route, &params, NULL) != CAIRN_OK) return;
    (*good)++;
    if (params.run_name.run[0]) EXPECT(cairn_name_valid(cairn_view_of(params.run_name.run)));
    if (params.shard[0]) {
        EXPECT(cairn_shard_name_check(cairn_view_of(params.shard), NULL) == CAIRN_OK);
    }
    EXPECT(cairn_utf8_valid(cairn_view_of(params.tensor)));
}

static void judge_query(struct cairn_view input, void *context) {
    struct cairn_query query;
    uint32_t *good = context;
    if (cairn_query_parse(input, &query, NULL) != CAIRN_OK) return;
    (*good)++;
    for (size_t i = 0; i < query.count; i++) {
        EXPECT(cairn_query_get(&query, query.params[i].name) == query.params[i].value);
    }
}

TEST(damaged_paths_and_queries_never_read_outside) {
    uint32_t good = 0;
    struct cairn_view path = CAIRN_VIEW(C "/shards/a%2Fb/c%20d/data");
    cairn_mutate_cut(path, judge_path, &good);
    cairn_mutate_many(path, 10000, judge_path, &good);
    EXPECT(good > 100);
    struct cairn_view tensor = CAIRN_VIEW(C "/tensors/a%2Fb/c%0A%C3%A4/data");
    good = 0;
    cairn_mutate_cut(tensor, judge_path, &good);
    cairn_mutate_many(tensor, 10000, judge_path, &good);
    EXPECT(good > 100);
    struct cairn_view query = CAIRN_VIEW("wait=30s&q=a%20b%26c&verbose&limit=100");
    good = 0;
    cairn_mutate_cut(query, judge_query, &good);
    cairn_mutate_many(query, 10000, judge_query, &good);
    EXPECT(good > 100);
}
