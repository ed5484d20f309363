/* SPDX-License-Identifier: Apache-2.0 */
/* routes: the path is split into decoded segments once, then compared with each template.
 * Decoding comes first, so that "%63heckpoints" matches its route; '/' written as %2F separates no
 * segments. */
#include "api/wire/routes.h"

#include <pthread.h>

#include "common/text.h"

#define SEGMENTS_MAX 64

#define NEED_NONE                                                                                  \
    { 0 }
#define NEED_TOKEN                                                                                 \
    { .token = true }
#define NEED_OF(name, ...)                                                                         \
    { .token = true, .scope = CAIRN_SCOPE_##name, __VA_ARGS__ }
#define NEED_READ NEED_OF(READ, .project = true)
#define NEED_WRITE NEED_OF(WRITE, .project = true)
#define NEED_RETAIN NEED_OF(RETAIN, .project = true)
#define NEED_ADMIN NEED_OF(ADMIN, .project = true)
#define NEED_READ_GRANT NEED_OF(READ, .project = true, .grant = true)
#define NEED_WRITE_GRANT NEED_OF(WRITE, .project = true, .grant = true)
#define NEED_WRITE_ANY NEED_OF(WRITE, .grant = true)
#define NEED_READ_ANY NEED_OF(READ, .all = false)
#define NEED_ADMIN_ANY NEED_OF(ADMIN, .all = false)
#define NEED_WRITE_SOME NEED_OF(WRITE, .all = false)
#define NEED_READ_ALL NEED_OF(READ, .all = true)
#define NEED_RETAIN_ALL NEED_OF(RETAIN, .all = true)
#define NEED_ADMIN_ALL NEED_OF(ADMIN, .all = true)

#define WAIT_NO
#define WAIT_OWN ", wait"
#define WAIT_EVENT ", wait"
#define WAIT_LOOK ", wait"
#define WAIT_END ", wait"

#define ROW(route_id, handler, route_method, route_need, text, names, route_wait, ...)             \
    [CAIRN_ROUTE_##route_id] = {.id = CAIRN_ROUTE_##route_id,                                      \
                                .method = route_method,                                            \
                                .need = NEED_##route_need,                                         \
                                .template_text = text,                                             \
                                .query = names WAIT_##route_wait,                                  \
                                .name = #handler,                                                  \
                                .wait = CAIRN_WAIT_##route_wait,                                   \
                                __VA_ARGS__},
static const struct cairn_route routes[] = {
#define ROUTE(...) ROW(__VA_ARGS__, )
#include "api/routes.def"
#undef ROUTE
};

/* Properties of a template that exclude it before its words are compared. */
static struct shape {
    size_t size;     /* of the template's text */
    size_t segments; /* the minimum, if open */
    size_t first;    /* first route with the same template */
    bool open;       /* has a {name} or a {tensor}, which match one or more segments */
} shapes[CAIRN_COUNT(routes)];
static pthread_once_t shapes_once = PTHREAD_ONCE_INIT;

static void make_shapes(void) {
    for (size_t i = 0; i < CAIRN_COUNT(routes); i++) {
        const char *text = routes[i].template_text;
        struct shape *shape = &shapes[i];
        *shape = (struct shape){.size = strlen(text),
                                .open = strstr(text, "{name}") || strstr(text, "{tensor}")};
        for (const char *at = text; *at; at++) shape->segments += *at == '/';
        while (strcmp(routes[shape->first].template_text, text) != 0) shape->first++;
    }
}

/* The decoded segments of a path without its first '/'. */
struct segments {
    char text[CAIRN_ROUTE_PATH_BYTES_MAX + SEGMENTS_MAX + 1]; /* a NUL after each segment */
    const char *at[SEGMENTS_MAX];
    bool rare[SEGMENTS_MAX]; /* has characters that only a tensor's name may have */
    size_t count;
};
#define RARE "a control byte or a backslash"
#define EMPTY_SEGMENT "an empty segment: a '/' that belongs to a name is written %2F"

const struct cairn_route *cairn_route_at(enum cairn_route_id id) {
    CAIRN_ASSERT((size_t)id < CAIRN_COUNT(routes));
    return &routes[id];
}

void cairn_route_split(struct cairn_view target, struct cairn_view *ret_path,
                       struct cairn_view *ret_query) {
    const char *mark = target.size ? memchr(target.data, '?', target.size) : NULL;
    *ret_path = target;
    *ret_query = (struct cairn_view){0};
    if (!mark) return;
    size_t path_size = (size_t)(mark - (const char *)target.data);
    ret_path->size = path_size;
    *ret_query = (struct cairn_view){mark + 1, target.size - path_size - 1};
}

/* Decodes raw into to (room for raw.size + 1 bytes); what is wrong, or NULL. */
static const char *decode(struct cairn_view raw, char *to, size_t *ret_size, bool *ret_rare) {
    const char *from = raw.data;
    size_t size = 0;
    *ret_rare = false;
    for (size_t i = 0; i < raw.size; i++) {
        unsigned char c = (unsigned char)from[i];
        if (c <= 0x20 || c >= 0x7f || c == '#' || c == '\\')
            return "a byte that must be percent-encoded";
        if (c == '%') {
            int byte = cairn_percent_byte(raw, i);
            if (byte < 0) return "a bad percent-escape: a '%' itself is written %25";
            c = (unsigned char)byte;
            i += 2;
        }
        if (!c) return "%00, which is in no name";
        if (c < 0x20 || c == 0x7f || c == '\\') *ret_rare = true;
        to[size++] = (char)c;
    }
    to[size] = '\0';
    if (!cairn_utf8_valid((struct cairn_view){to, size})) return "bytes that are no UTF-8";
    *ret_size = size;
    return NULL;
}

static const char *segment_decode(struct segments *segments, size_t *used, struct cairn_view raw) {
    if (segments->count == SEGMENTS_MAX)
        return "too many segments: a '/' that belongs to a name is written %2F";
    char *to = segments->text + *used;
    size_t size;
    const char *problem = decode(raw, to, &size, &segments->rare[segments->count]);
    if (problem) return problem;
    if (size == 0) return EMPTY_SEGMENT;
    if (!strcmp(to, ".") || !strcmp(to, ".."))
        return "a segment \".\" or \"..\": part of a name beside %2F; a tensor of that name alone "
               "comes by ?name=";
    segments->at[segments->count++] = to;
    *used += size + 1;
    return NULL;
}

static enum cairn_code path_decode(struct cairn_view path, struct segments *ret,
                                   struct cairn_error *err) {
    const char *from = path.data, *end = from + path.size;
    const char *problem = NULL;
    size_t used = 0;
    ret->count = 0;
    if (path.size == 0 || *from != '/') return cairn_fail(err, CAIRN_INVALID, "path without '/'");
    if (path.size > CAIRN_ROUTE_PATH_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "path of %zu bytes, at most %d", path.size,
                          CAIRN_ROUTE_PATH_BYTES_MAX);
    if (path.size == 1) return CAIRN_OK;
    while (from < end && !problem) {
        from++;
        const char *to = from < end ? memchr(from, '/', (size_t)(end - from)) : NULL;
        if (!to) to = end;
        problem = segment_decode(ret, &used, (struct cairn_view){from, (size_t)(to - from)});
        from = to;
    }
    if (problem) return cairn_fail(err, CAIRN_INVALID, "the path has %s", problem);
    return CAIRN_OK;
}

/* A folder of files is also written with a trailing slash, by clients that append names to it;
 * other paths never are. */
static bool drop_slash(struct cairn_view *path) {
    static const char *const folders[] = {"/hf/", "/ui/"};
    const char *end = (const char *)path->data + path->size;
    bool slash = false;
    for (size_t i = 0; i < CAIRN_COUNT(folders); i++) {
        size_t size = strlen(folders[i]);
        slash |= path->size >= size && !memcmp(end - size, folders[i], size);
    }
    if (!slash) return false;
    path->size--;
    return true;
}

/* Segments matched by the parameters of a template. */
struct places {
    const char *project, *run, *ref, *alias, *digest, *node;
    const char *node_is;       /* what the node's name is called in messages */
    size_t name_from, name_to; /* range of segments of the shard's or the tensor's name */
    bool tensor;
};

static void place(struct places *places, struct cairn_view name, const char *segment) {
    const struct {
        const char *name;
        const char **ret;
        const char *is; /* kind of name, for messages */
    } known[] = {
        {"{project}", &places->project, NULL},
        {"{run}", &places->run, NULL},
        {"{ref}", &places->ref, NULL},
        {"{alias}", &places->alias, NULL},
        {"{digest}", &places->digest, NULL},
        {"{node}", &places->node, "node"},
        {"{lease}", &places->node, "lease"},
        {"{token}", &places->node, "token"},
        {"{operation}", &places->node, "operation"},
        {"{webhook}", &places->node, "webhook"},
    };
    for (size_t i = 0; i < CAIRN_COUNT(known); i++) {
        if (strlen(known[i].name) != name.size) continue;
        if (memcmp(known[i].name, name.data, name.size) != 0) continue;
        *known[i].ret = segment;
        if (known[i].is) places->node_is = known[i].is;
    }
}

static bool word_is(struct cairn_view word, const char *text) {
    return strlen(text) == word.size && !memcmp(word.data, text, word.size);
}

/* Does the path match the template? "{name}" and "{tensor}" match all remaining segments except
 * those that the rest of the template needs. */
static bool fits(const char *template_text, const struct segments *segments, struct places *ret) {
    size_t next = 0;
    *ret = (struct places){0};
    for (const char *from = template_text; *from;) {
        from++;
        const char *to = strchr(from, '/');
        struct cairn_view word = {from, to ? (size_t)(to - from) : strlen(from)};
        from += word.size;
        ret->tensor = ret->tensor || word_is(word, "{tensor}");
        if (word_is(word, "{name}") || word_is(word, "{tensor}")) {
            size_t behind = *from ? 1 : 0;
            if (segments->count < next + 1 + behind) return false;
            ret->name_from = next;
            next = ret->name_to = segments->count - behind;
            continue;
        }
        if (next == segments->count) return false;
        const char *segment = segments->at[next++];
        if (*(const char *)word.data == '{')
            place(ret, word, segment);
        else if (!word_is(word, segment))
            return false;
    }
    return next == segments->count;
}

/* The most specific template wins, whatever the method; its first route. So a name that ends in
 * "data" must be written with %2F. */
static size_t best_fit(const struct segments *segments, struct places *ret) {
    size_t best = CAIRN_ROUTE_COUNT;
    struct places places;
    *ret = (struct places){0};
    (void)pthread_once(&shapes_once, make_shapes);
    for (size_t i = 0; i < CAIRN_ROUTE_COUNT; i++) {
        const struct shape *shape = &shapes[i];
        if (shape->first != i || segments->count < shape->segments) continue;
        if (segments->count > shape->segments && !shape->open) continue;
        if (best != CAIRN_ROUTE_COUNT && shape->size <= shapes[best].size) continue;
        if (!fits(routes[i].template_text, segments, &places)) continue;
        best = i;
        *ret = places;
    }
    return best;
}

void cairn_route_allow(struct cairn_view raw_path, char ret_allow[CAIRN_ROUTE_ALLOW_BYTES]) {
    struct segments segments;
    struct places places;
    size_t used = 0;
    ret_allow[0] = '\0';
    bool slash = drop_slash(&raw_path);
    if (path_decode(raw_path, &segments, NULL) != CAIRN_OK) return;
    size_t best = best_fit(&segments, &places);
    if (best == CAIRN_ROUTE_COUNT || (slash && !routes[best].folder)) return;
    for (size_t i = 0; i < CAIRN_ROUTE_COUNT; i++) {
        if (shapes[i].first != best) continue;
        size_t size = strlen(routes[i].method);
        if (used + size + 3 > CAIRN_ROUTE_ALLOW_BYTES) return;
        if (used) {
            memcpy(ret_allow + used, ", ", 2);
            used += 2;
        }
        memcpy(ret_allow + used, routes[i].method, size + 1);
        used += size;
    }
    /* HEAD is answered wherever GET is; the table lists HEAD only for routes of its own. */
    if (strstr(ret_allow, "GET") && !strstr(ret_allow, "HEAD") &&
        used + sizeof(", HEAD") <= CAIRN_ROUTE_ALLOW_BYTES)
        memcpy(ret_allow + used, ", HEAD", sizeof(", HEAD"));
}

static enum cairn_code name_read(const char *what, const char *segment,
                                 char ret[CAIRN_NAME_BYTES_MAX + 1], struct cairn_error *err) {
    if (!segment) return CAIRN_OK;
    if (!cairn_name_valid(cairn_view_of(segment)))
        return cairn_fail(err, CAIRN_INVALID, "%s name: " CAIRN_NAME_WANTED, what);
    cairn_text_copy(ret, CAIRN_NAME_BYTES_MAX + 1, segment);
    return CAIRN_OK;
}

enum cairn_code cairn_ref_check(const char *ref, const char *what, struct cairn_error *err) {
    struct cairn_view text = cairn_view_of(ref);
    bool good = text.size <= CAIRN_REF_BYTES_MAX;
    if (ref[0] >= '0' && ref[0] <= '9') {
        uint64_t step = 0;
        good = good && (ref[0] != '0' || text.size == 1) &&
               cairn_parse_u64(text, &step, NULL) == CAIRN_OK && step <= CAIRN_STEP_MAX;
    } else if (cairn_text_starts(ref, "ckpt_")) {
        good = good && cairn_version_id_valid(text);
    } else {
        good = good && ref[0] >= 'a' && ref[0] <= 'z';
        for (const char *c = ref; good && *c; c++)
            good = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-';
    }
    if (good) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s: want a step number, a version id or a word such as latest", what);
}

static enum cairn_code ref_read(const char *segment, char ret[CAIRN_REF_BYTES_MAX + 1],
                                struct cairn_error *err) {
    if (!segment) return CAIRN_OK;
    CAIRN_TRY(cairn_ref_check(segment, "checkpoint", err));
    cairn_text_copy(ret, CAIRN_REF_BYTES_MAX + 1, segment);
    return CAIRN_OK;
}

/* A word, which has the form of a ref. */
static enum cairn_code alias_read(const char *segment, char ret[CAIRN_REF_BYTES_MAX + 1],
                                  struct cairn_error *err) {
    if (!segment) return CAIRN_OK;
    if (cairn_ref_check(segment, "alias", NULL))
        return cairn_fail(err, CAIRN_INVALID, "alias: want [a-z][a-z0-9-]*, at most 63 bytes");
    cairn_text_copy(ret, CAIRN_REF_BYTES_MAX + 1, segment);
    return CAIRN_OK;
}

static enum cairn_code digest_read(const char *segment, char ret[65], struct cairn_error *err) {
    uint8_t digest[32];
    if (!segment) return CAIRN_OK;
    if (cairn_hex_decode(cairn_view_of(segment), digest, sizeof digest, NULL) != CAIRN_OK)
        return cairn_fail(err, CAIRN_INVALID, "digest: want 64 lower-case hex digits");
    cairn_text_copy(ret, 65, segment);
    return CAIRN_OK;
}

/* Joins the segments of a name with '/'; "" if the path has none. */
static enum cairn_code join(const struct segments *segments, const struct places *places,
                            const char *what, size_t bytes_max, char *ret,
                            struct cairn_error *err) {
    size_t used = 0;
    for (size_t i = places->name_from; i < places->name_to; i++) {
        size_t size = strlen(segments->at[i]);
        if (used + size + (used > 0) > bytes_max)
            return cairn_fail(err, CAIRN_INVALID, "%s name of more than %zu bytes", what,
                              bytes_max);
        if (used) ret[used++] = '/';
        memcpy(ret + used, segments->at[i], size + 1);
        used += size;
    }
    return CAIRN_OK;
}

static enum cairn_code names_read(const struct segments *segments, const struct places *places,
                                  struct cairn_route_params *ret, struct cairn_error *err) {
    if (places->tensor)
        return join(segments, places, "tensor", CAIRN_TENSOR_NAME_BYTES_MAX, ret->tensor, err);
    CAIRN_TRY(join(segments, places, "shard", CAIRN_SHARD_NAME_BYTES_MAX, ret->shard, err));
    if (!ret->shard[0]) return CAIRN_OK;
    return cairn_shard_name_check(cairn_view_of(ret->shard), err);
}

/* Refuses these characters in all segments but a tensor's name. */
static enum cairn_code check_rare(const struct segments *segments, const struct places *places,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < segments->count; i++) {
        bool tensor = places->tensor && i >= places->name_from && i < places->name_to;
        if (segments->rare[i] && !tensor)
            return cairn_fail(err, CAIRN_INVALID, "the path has " RARE);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_route_match(const char *method, struct cairn_view raw_path,
                                  const struct cairn_route **ret_route,
                                  struct cairn_route_params *ret_params, struct cairn_error *err) {
    struct segments segments;
    struct places places;
    bool slash = drop_slash(&raw_path);
    CAIRN_TRY(path_decode(raw_path, &segments, err));
    size_t best = best_fit(&segments, &places), found = CAIRN_ROUTE_COUNT;
    CAIRN_TRY(check_rare(&segments, &places, err));
    if (slash && (best == CAIRN_ROUTE_COUNT || !routes[best].folder))
        return cairn_fail(err, CAIRN_INVALID, "the path has %s", EMPTY_SEGMENT);
    if (best == CAIRN_ROUTE_COUNT)
        return cairn_fail(err, CAIRN_NOT_FOUND, "no such path: GET /openapi.yaml lists them");
    for (size_t i = 0; i < CAIRN_ROUTE_COUNT; i++) {
        if (shapes[i].first != best) continue;
        if (!strcmp(routes[i].method, method)) found = i;
    }
    if (found == CAIRN_ROUTE_COUNT) {
        char allow[CAIRN_ROUTE_ALLOW_BYTES];
        cairn_route_allow(raw_path, allow);
        return cairn_fail(err, CAIRN_METHOD, "this path takes %s", allow);
    }
    struct cairn_route_params params = {0};
    CAIRN_TRY(name_read("project", places.project, params.run_name.project, err));
    CAIRN_TRY(name_read("run", places.run, params.run_name.run, err));
    CAIRN_TRY(name_read(places.node_is, places.node, params.node, err));
    CAIRN_TRY(ref_read(places.ref, params.ref, err));
    CAIRN_TRY(alias_read(places.alias, params.ref, err));
    CAIRN_TRY(digest_read(places.digest, params.digest, err));
    CAIRN_TRY(names_read(&segments, &places, &params, err));
    *ret_route = &routes[found];
    *ret_params = params;
    return CAIRN_OK;
}

/* ---- query ---- */

static const char *param_read(struct cairn_query *query, size_t *used, struct cairn_view raw) {
    if (query->count == CAIRN_QUERY_PARAMS_MAX) return "too many names";
    const char *equals = raw.size ? memchr(raw.data, '=', raw.size) : NULL;
    size_t name_size = equals ? (size_t)(equals - (const char *)raw.data) : raw.size;
    size_t value_at = equals ? name_size + 1 : raw.size, size;
    char *name = query->text + *used;
    bool rare = false;
    const char *problem = decode((struct cairn_view){raw.data, name_size}, name, &size, &rare);
    if (problem) return problem;
    if (rare) return RARE;
    if (size == 0) return "an empty name";
    char *value = name + size + 1;
    *used += size + 1;
    struct cairn_view rest = {(const char *)raw.data + value_at, raw.size - value_at};
    problem = decode(rest, value, &size, &rare);
    if (problem) return problem;
    if (rare && strcmp(name, "name") != 0) return RARE; /* ?name= is a tensor's name */
    *used += size + 1;
    query->params[query->count].name = name;
    query->params[query->count++].value = value;
    return NULL;
}

static enum cairn_code check_twice(const struct cairn_query *query, struct cairn_error *err) {
    for (size_t i = 1; i < query->count; i++) {
        const char *name = query->params[i].name;
        if (cairn_query_get(query, name) != query->params[i].value)
            return cairn_fail(err, CAIRN_INVALID, "the query has \"%.64s\" twice", name);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_query_parse(struct cairn_view raw_query, struct cairn_query *ret,
                                  struct cairn_error *err) {
    const char *problem = NULL;
    size_t used = 0;
    ret->count = 0;
    if (raw_query.size > CAIRN_QUERY_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "query of %zu bytes, at most %d", raw_query.size,
                          CAIRN_QUERY_BYTES_MAX);
    if (raw_query.size == 0) return CAIRN_OK;
    const char *from = raw_query.data, *end = from + raw_query.size;
    for (;;) {
        const char *to = memchr(from, '&', (size_t)(end - from));
        if (!to) to = end;
        problem = param_read(ret, &used, (struct cairn_view){from, (size_t)(to - from)});
        if (problem || to == end) break;
        from = to + 1;
    }
    if (problem) return cairn_fail(err, CAIRN_INVALID, "the query has %s", problem);
    return check_twice(ret, err);
}

const char *cairn_query_get(const struct cairn_query *query, const char *name) {
    for (size_t i = 0; i < query->count; i++) {
        if (!strcmp(query->params[i].name, name)) return query->params[i].value;
    }
    return NULL;
}

static bool is_listed(const char *names, const char *name) {
    for (const char *at = names; *at; at += strspn(at, ", ")) {
        size_t size = strcspn(at, ",");
        if (size == strlen(name) && !memcmp(at, name, size)) return true;
        at += size;
    }
    return false;
}

enum cairn_code cairn_query_only(const struct cairn_query *query, const char *names,
                                 struct cairn_error *err) {
    for (size_t i = 0; i < query->count; i++) {
        const char *name = query->params[i].name;
        if (is_listed(names, name)) continue;
        return cairn_fail(err, CAIRN_INVALID, "unknown query parameter \"%.64s\": %s%s", name,
                          names[0] ? "there are " : "this path has none",
                          names + strspn(names, ", "));
    }
    return CAIRN_OK;
}
