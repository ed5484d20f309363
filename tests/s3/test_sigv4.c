/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signer against text that is not ours: examples from AWS's S3 documentation, cases signed by
 * botocore (stored, and random ones through tests/python/sigv4_oracle.py), and AWS's own suite
 * where CAIRN_SIGV4_VECTORS names its folder.
 */
#include "store/keys/sigv4.h"

#include <dirent.h>
#include <strings.h>

#include "common/json.h"
#include "tests/harness.h"

#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void set_signer(struct cairn_sigv4_signer *signer, const char *access_key,
                       const char *secret, const char *token) {
    snprintf(signer->access_key, sizeof signer->access_key, "%s", access_key);
    EXPECT(cairn_secret_set(&signer->secret, cairn_view_of(secret), NULL) == CAIRN_OK);
    EXPECT(cairn_secret_set(&signer->token, cairn_view_of(token ? token : ""), NULL) == CAIRN_OK);
}

static void set_scope(struct cairn_sigv4_signer *signer, const char *region, const char *service) {
    snprintf(signer->region, sizeof signer->region, "%s", region);
    snprintf(signer->service, sizeof signer->service, "%s", service);
}

static void set_example_signer(struct cairn_sigv4_signer *signer) {
    set_signer(signer, "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL);
    set_scope(signer, "us-east-1", "s3");
}

#define EXAMPLE_TIME "20130524T000000Z"
#define EXAMPLE_HOST                                                                               \
    { "Host", "examplebucket.s3.amazonaws.com" }

TEST(examples_of_the_s3_documentation_give_the_printed_signatures) {
    static const struct cairn_sigv4_pair get[] = {EXAMPLE_HOST,
                                                  {"Range", "bytes=0-9"},
                                                  {"x-amz-content-sha256", EMPTY_HASH},
                                                  {"x-amz-date", EXAMPLE_TIME}};
    static const char put_hash[] =
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    static const struct cairn_sigv4_pair put[] = {EXAMPLE_HOST,
                                                  {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                                                  {"x-amz-content-sha256", put_hash},
                                                  {"x-amz-date", EXAMPLE_TIME},
                                                  {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    static const struct cairn_sigv4_pair plain[] = {
        EXAMPLE_HOST, {"x-amz-content-sha256", EMPTY_HASH}, {"x-amz-date", EXAMPLE_TIME}};
    static const struct cairn_sigv4_pair lifecycle[] = {{"lifecycle", ""}};
    static const struct cairn_sigv4_pair list[] = {{"prefix", "J"}, {"max-keys", "2"}};
    CAIRN_AUTO(sigv4_signer) signer = {0};
    set_example_signer(&signer);
    EACH(one, FIELDS(struct cairn_sigv4_request request; const char *signature),
         {{"GET", "/test.txt", NULL, 0, get, 4, EMPTY_HASH},
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
         {{"PUT", "/test$file.text", NULL, 0, put, 5, put_hash},
          "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
         {{"GET", "/", lifecycle, 1, plain, 3, EMPTY_HASH},
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
         {{"GET", "/", list, 2, plain, 3, EMPTY_HASH},
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"}) {
        struct cairn_error err = {0};
        WITH_OK(buf, line,
                cairn_sigv4_authorize(&signer, EXAMPLE_TIME, &one->request, &line, &err));
        const char *signature = strstr(line.data, "Signature=");
        EXPECT_EQ_TEXT(signature ? signature + 10 : NULL, one->signature);
    }
}

TEST(the_documented_presigned_url_comes_out, err) {
    static const struct cairn_sigv4_pair host[] = {EXAMPLE_HOST};
    struct cairn_sigv4_request request = {"GET", "/test.txt",         NULL, 0, host,
                                          1,     CAIRN_SIGV4_UNSIGNED};
    CAIRN_AUTO(sigv4_signer) signer = {0};
    set_example_signer(&signer);
    WITH_OK(buf, query, cairn_sigv4_presign(&signer, EXAMPLE_TIME, 86400, &request, &query, &err));
    EXPECT_EQ_TEXT(query.data,
                   "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F"
                   "20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-"
                   "Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
                   "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

TEST(the_signing_key_is_kept_for_its_day_only, err) { /* sigv4.h#3 */
    CAIRN_AUTO(sigv4_signer) signer = {0};
    static const struct cairn_sigv4_pair host[] = {EXAMPLE_HOST};
    struct cairn_sigv4_request request = {"GET", "/", NULL, 0, host, 1, EMPTY_HASH};
    set_example_signer(&signer);
    WITH_OK(buf, line, cairn_sigv4_authorize(&signer, EXAMPLE_TIME, &request, &line, &err));
    EXPECT_EQ_TEXT(signer.day, "20130524");
    uint8_t first[CAIRN_SHA256_BYTES];
    memcpy(first, signer.key, sizeof first);
    REQUIRE_OK(cairn_sigv4_authorize(&signer, "20130525T000000Z", &request, &line, &err));
    EXPECT_EQ_TEXT(signer.day, "20130525");
    EXPECT(memcmp(first, signer.key, sizeof first) != 0);
}

TEST(times_and_too_many_pairs, err) {
    char text[CAIRN_SIGV4_TIME_BYTES];
    cairn_sigv4_time(INT64_C(1369353600000), text);
    EXPECT_EQ_TEXT(text, EXAMPLE_TIME);
    static const struct cairn_sigv4_pair many[CAIRN_SIGV4_PAIRS_MAX + 1] = {{"a", "b"}};
    CAIRN_AUTO(buf) query = {0};
    EXPECT_CODE(cairn_sigv4_query(many, CAIRN_COUNT(many), &query, &err), CAIRN_INVALID);
}

/* ---- cases of botocore ---- */

#define PAIRS_MAX CAIRN_SIGV4_PAIRS_MAX

static const char *text_of(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

static size_t read_pairs(const json_t *array, struct cairn_sigv4_pair *pairs) {
    size_t count = json_array_size(array);
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(array, i);
        pairs[i].name = json_string_value(json_array_get(pair, 0));
        pairs[i].value = json_string_value(json_array_get(pair, 1));
    }
    return count;
}

static void add_pair(struct cairn_sigv4_pair *pairs, size_t *count, const char *name,
                     const char *value) {
    if (value) pairs[(*count)++] = (struct cairn_sigv4_pair){name, value};
}

/* All three stages of a header signature. */
static void check_stages(const json_t *c, const struct cairn_sigv4_request *request) {
    CAIRN_AUTO(buf) canonical = {0}, names = {0}, to_sign = {0};
    struct cairn_error err = {0};
    struct cairn_sigv4_scope scope = {.region = text_of(c, "region"),
                                      .service = text_of(c, "service")};
    snprintf(scope.time, sizeof scope.time, "%s", text_of(c, "time"));
    REQUIRE_OK(cairn_sigv4_canonical(request, &canonical, &names, &err));
    EXPECT_EQ_TEXT(canonical.data, text_of(c, "canonical"));
    REQUIRE_OK(cairn_sigv4_string_to_sign(&scope, cairn_buf_view(&canonical), &to_sign, &err));
    EXPECT_EQ_TEXT(to_sign.data, text_of(c, "string_to_sign"));
    uint8_t key[CAIRN_SHA256_BYTES];
    char hex[2 * CAIRN_SHA256_BYTES + 1];
    cairn_sigv4_key(&scope, cairn_view_of(text_of(c, "secret")), key);
    cairn_sigv4_signature(key, cairn_buf_view(&to_sign), hex);
    EXPECT_EQ_TEXT(hex, text_of(c, "signature"));
}

/* A presigned query is the canonical one and the signature. */
static void check_presigned(const json_t *c, const struct cairn_sigv4_request *request) {
    CAIRN_AUTO(sigv4_signer) signer = {0};
    CAIRN_AUTO(buf) query = {0};
    struct cairn_error err = {0};
    set_signer(&signer, text_of(c, "access_key"), text_of(c, "secret"), text_of(c, "token"));
    set_scope(&signer, text_of(c, "region"), text_of(c, "service"));
    uint32_t expires = (uint32_t)json_integer_value(json_object_get(c, "expires"));
    REQUIRE_OK(cairn_sigv4_presign(&signer, text_of(c, "time"), expires, request, &query, &err));
    char *mark = strstr(query.data, "&X-Amz-Signature=");
    REQUIRE(mark);
    EXPECT_EQ_TEXT(mark + 17, text_of(c, "signature"));
    *mark = '\0';
    EXPECT(strstr(text_of(c, "canonical"), query.data));
}

static void check_case(const json_t *c) {
    struct cairn_sigv4_pair headers[PAIRS_MAX], query[PAIRS_MAX];
    struct cairn_sigv4_request request = {.method = text_of(c, "method"),
                                          .path = text_of(c, "path"),
                                          .headers = headers,
                                          .query = query,
                                          .payload = text_of(c, "payload")};
    request.query_count = read_pairs(json_object_get(c, "query"), query);
    size_t count = read_pairs(json_object_get(c, "headers"), headers);
    bool presigned = json_is_integer(json_object_get(c, "expires"));
    if (!presigned) {
        add_pair(headers, &count, "X-Amz-Content-SHA256", request.payload);
        add_pair(headers, &count, "X-Amz-Date", text_of(c, "time"));
        add_pair(headers, &count, "X-Amz-Security-Token", text_of(c, "token"));
    }
    request.header_count = count;
    if (presigned) {
        request.payload = CAIRN_SIGV4_UNSIGNED;
        check_presigned(c, &request);
    } else {
        check_stages(c, &request);
    }
}

static size_t check_file(const char *path) {
    CAIRN_AUTO(buf) text = {.limit = 64 * CAIRN_MIB};
    struct cairn_error err = {0};
    json_error_t where;
    EXPECT_CODE(cairn_file_load(path, &text, &err), CAIRN_OK);
    CAIRN_AUTO_JSON json_t *cases = json_loadb(text.data ? text.data : "", text.size, 0, &where);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(json_array_get(cases, i));
    return json_array_size(cases);
}

TEST(stored_cases_of_botocore_agree_in_every_stage) {
    EXPECT_EQ_U64(check_file(cairn_test_file("tests/vectors/sigv4/botocore.json")), 48);
}

TEST(random_cases_of_botocore_agree_in_every_stage) {
    const char *path = getenv("CAIRN_SIGV4_CASES");
    if (!path) SKIP("run by tests/python/sigv4_oracle.py, which sets CAIRN_SIGV4_CASES");
    EXPECT(check_file(path) >= 500);
}

/* ---- AWS's suite ---- */

/* One parsed request.txt. All text is inside the buffers. */
struct cairn_vector {
    struct cairn_buf text, path, decoded;
    struct cairn_sigv4_pair headers[PAIRS_MAX], query[PAIRS_MAX];
    size_t header_count, query_count;
    const char *method, *body;
};
static void cairn_vector_release(struct cairn_vector *vector) {
    cairn_buf_release(&vector->text);
    cairn_buf_release(&vector->path);
    cairn_buf_release(&vector->decoded);
}

static char *take_until(char **at, const char *stops) {
    char *from = *at;
    *at += strcspn(*at, stops);
    if (**at) *(*at)++ = '\0';
    return from;
}

/* Generic services normalise paths, S3 does not, so the signer does not: done here instead. */
static void normalise(char *path) {
    char *kept[64], copy[1024];
    size_t count = 0, size = strlen(path);
    snprintf(copy, sizeof copy, "%s", path);
    bool slash = size && path[size - 1] == '/';
    for (char *at = copy; *at;) {
        char *piece = take_until(&at, "/");
        if (!strcmp(piece, ".."))
            count -= count > 0;
        else if (*piece && strcmp(piece, ".") != 0)
            kept[count++] = piece;
    }
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(path + used, size + 2 - used, "/%s", kept[i]);
    if (!count || slash) snprintf(path + used, size + 2 - used, "/");
}

/* Decoded, into the vector's buffer; offsets would survive growth, so the buffer never grows. */
static const char *decode(struct cairn_vector *vector, const char *text) {
    size_t from = vector->decoded.size;
    EXPECT(cairn_percent_decode(cairn_view_of(text), &vector->decoded, NULL) == CAIRN_OK);
    EXPECT(cairn_buf_append(&vector->decoded, "", 1, NULL) == CAIRN_OK);
    return vector->decoded.data + from;
}

static void parse_query(struct cairn_vector *vector, char *query) {
    while (query && *query) {
        char *pair = take_until(&query, "&"), *value = pair;
        char *name = take_until(&value, "=");
        add_pair(vector->query, &vector->query_count, decode(vector, name), decode(vector, value));
    }
}

static void parse_headers(struct cairn_vector *vector, char *at) {
    while (*at && *at != '\n') {
        char *line = at;
        do {
            at += strcspn(at, "\n");
            if (*at) *at++ = ' '; /* a folded line goes on */
        } while (*at == ' ');
        if (at[-1] == ' ') at[-1] = '\0';
        char *name = take_until(&line, ":");
        if (strcasecmp(name, "X-Amz-Security-Token") != 0)
            add_pair(vector->headers, &vector->header_count, name, line);
    }
    vector->body = *at == '\n' ? at + 1 : "";
}

static bool parse_vector(struct cairn_vector *vector, const char *file, bool normal) {
    if (cairn_file_load(file, &vector->text, NULL) != CAIRN_OK) return false;
    if (cairn_buf_reserve(&vector->decoded, 65536, NULL) != CAIRN_OK) return false;
    char *at = vector->text.data;
    vector->method = take_until(&at, " ");
    char *target = at, *end = strstr(at, " HTTP/1.1");
    if (!end) return false;
    *end = '\0';
    at = end + strcspn(end + 1, "\n") + 2;
    char *path = take_until(&target, "?");
    if (cairn_buf_reserve(&vector->path, strlen(path) + 2, NULL) != CAIRN_OK) return false;
    if (cairn_percent_decode(cairn_view_of(path), &vector->path, NULL) != CAIRN_OK) return false;
    if (normal) normalise(vector->path.data);
    parse_query(vector, target);
    parse_headers(vector, at);
    return true;
}

/* A file of the case without white space at its end; "" when it is not there. */
static void load_expected(const char *folder, const char *name, struct cairn_buf *ret) {
    const char *path = TEXT("%s/%s", folder, name);
    cairn_buf_clear(ret);
    EXPECT(cairn_file_load(path, ret, NULL) == CAIRN_OK);
    while (ret->size && strchr(" \n", ret->data[ret->size - 1])) ret->data[--ret->size] = '\0';
}

struct cairn_suite_case {
    const json_t *context, *credentials;
    const char *folder;
    struct cairn_vector vector;
    struct cairn_sigv4_request request;
    char time[CAIRN_SIGV4_TIME_BYTES], hash[2 * CAIRN_SHA256_BYTES + 1];
};

static void check_vector_headers(struct cairn_suite_case *c) {
    struct cairn_vector *v = &c->vector;
    CAIRN_AUTO(buf) expected = {0}, canonical = {0}, names = {0}, to_sign = {0};
    struct cairn_error err = {0};
    size_t count = v->header_count;
    add_pair(v->headers, &count, "X-Amz-Date", c->time);
    if (json_is_true(json_object_get(c->context, "sign_body")))
        add_pair(v->headers, &count, "X-Amz-Content-SHA256", c->hash);
    if (!json_is_true(json_object_get(c->context, "omit_session_token")))
        add_pair(v->headers, &count, "X-Amz-Security-Token", text_of(c->credentials, "token"));
    c->request.header_count = count;
    REQUIRE_OK(cairn_sigv4_canonical(&c->request, &canonical, &names, &err));
    load_expected(c->folder, "header-canonical-request.txt", &expected);
    EXPECT_EQ_TEXT(canonical.data, expected.data);
    struct cairn_sigv4_scope scope = {.region = text_of(c->context, "region"),
                                      .service = text_of(c->context, "service")};
    memcpy(scope.time, c->time, sizeof scope.time);
    REQUIRE_OK(cairn_sigv4_string_to_sign(&scope, cairn_buf_view(&canonical), &to_sign, &err));
    load_expected(c->folder, "header-string-to-sign.txt", &expected);
    EXPECT_EQ_TEXT(to_sign.data, expected.data);
    uint8_t key[CAIRN_SHA256_BYTES];
    char hex[2 * CAIRN_SHA256_BYTES + 1];
    cairn_sigv4_key(&scope, cairn_view_of(text_of(c->credentials, "secret_access_key")), key);
    cairn_sigv4_signature(key, cairn_buf_view(&to_sign), hex);
    load_expected(c->folder, "header-signature.txt", &expected);
    EXPECT_EQ_TEXT(hex, expected.data);
}

static void check_vector_query(struct cairn_suite_case *c) {
    CAIRN_AUTO(buf) expected = {0}, query = {0};
    CAIRN_AUTO(sigv4_signer) signer = {0};
    struct cairn_error err = {0};
    bool omit = json_is_true(json_object_get(c->context, "omit_session_token"));
    set_signer(&signer, text_of(c->credentials, "access_key_id"),
               text_of(c->credentials, "secret_access_key"),
               omit ? NULL : text_of(c->credentials, "token"));
    set_scope(&signer, text_of(c->context, "region"), text_of(c->context, "service"));
    c->request.header_count = c->vector.header_count;
    REQUIRE_OK(cairn_sigv4_presign(&signer, c->time, 3600, &c->request, &query, &err));
    const char *mark = strstr(query.data, "X-Amz-Signature=");
    load_expected(c->folder, "query-signature.txt", &expected);
    EXPECT_EQ_TEXT(mark ? mark + 16 : NULL, expected.data);
}

static void check_vector(const char *folder) {
    struct cairn_suite_case c = {.folder = folder};
    json_error_t where;
    CAIRN_AUTO_JSON json_t *context = json_load_file(TEXT("%s/context.json", folder), 0, &where);
    REQUIRE(context);
    c.context = context;
    c.credentials = json_object_get(context, "credentials");
    REQUIRE(parse_vector(&c.vector, TEXT("%s/request.txt", folder),
                         json_is_true(json_object_get(context, "normalize"))));
    size_t size = 0;
    for (const char *at = text_of(context, "timestamp"); *at; at++)
        if (*at != '-' && *at != ':') c.time[size++] = *at;
    uint8_t digest[CAIRN_SHA256_BYTES];
    bool sign_body = json_is_true(json_object_get(context, "sign_body"));
    cairn_sha256_of(cairn_view_of(sign_body ? c.vector.body : ""), digest);
    cairn_hex_encode(digest, sizeof digest, c.hash);
    c.request = (struct cairn_sigv4_request){.method = c.vector.method,
                                             .path = c.vector.path.data,
                                             .query = c.vector.query,
                                             .query_count = c.vector.query_count,
                                             .headers = c.vector.headers,
                                             .payload = c.hash};
    check_vector_headers(&c);
    check_vector_query(&c);
    cairn_vector_release(&c.vector);
}

TEST(every_case_of_awss_own_suite_agrees_in_every_stage) {
    const char *root = getenv("CAIRN_SIGV4_VECTORS");
    if (!root) SKIP("CAIRN_SIGV4_VECTORS does not name the folder of AWS's test suite");
    DIR *folder = opendir(root);
    REQUIRE(folder);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        check_vector(TEXT("%s/%s", root, entry->d_name));
        count++;
    }
    closedir(folder);
    EXPECT(count >= 30);
}
