/* SPDX-License-Identifier: Apache-2.0 */
/* Policies as JSON and text; selectors as comma-separated terms. */
#include "api/wire/policy.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/text.h"

#define SECONDS_MAX (UINT64_C(100) * 366 * 24 * 3600)
#define POINTER_BYTES 256

static const struct {
    const char *name;
    uint64_t most;
} keeps[] = {
#define KEEP_NUMBER(id, key, most, what) {#key, most},
#define KEEP_OTHER(id, key, what) {#key, 0},
#define KEEP_HOLD(id, slug, what) {slug, 0},
#include "api/policy.def"
#undef KEEP_NUMBER
#undef KEEP_OTHER
#undef KEEP_HOLD
};

const char *cairn_keep_name(enum cairn_keep keep) {
    return keeps[keep].name;
}

bool cairn_policy_empty(const struct cairn_policy *policy) {
    for (size_t i = 0; i < CAIRN_KEEP_NUMBERS; i++)
        if (policy->numbers[i]) return false;
    return !policy->within_ms && !policy->best_count && !policy->labels_count;
}

/* ---- reading ---- */

enum cairn_code cairn_metric_name_check(struct cairn_view name, struct cairn_error *err) {
    const char *text = name.data;
    bool good = name.size && name.size <= CAIRN_METRIC_NAME_MAX;
    for (size_t i = 0; good && i < name.size; i++) {
        char c = text[i];
        bool word =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        good = word || (i && c && strchr(".-/@:+", c));
    }
    if (good) return CAIRN_OK;
    return cairn_fail(
        err, CAIRN_INVALID, "\"%.*s\" names no metric: letters, digits and ._-/@:+, at most %d",
        (int)(name.size < 64 ? name.size : 64), name.size ? text : "", CAIRN_METRIC_NAME_MAX);
}

static enum cairn_code read_number(const json_t *keep, const char *pointer, enum cairn_keep which,
                                   uint64_t *ret, struct cairn_error *err) {
    const json_t *value = json_object_get(keep, keeps[which].name);
    if (!value || json_is_null(value)) return CAIRN_OK;
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || (uint64_t)number > keeps[which].most)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s/%s: wanted a whole number from 1 to %" PRIu64
                          "; without the rule, leave it out",
                          pointer, keeps[which].name, keeps[which].most);
    *ret = (uint64_t)number;
    return CAIRN_OK;
}

/* An absent number of seconds leaves *ret_ms and *ret_said unchanged. */
static enum cairn_code read_seconds(const json_t *value, const char *pointer, const char *name,
                                    uint64_t least, bool *ret_said, uint64_t *ret_ms,
                                    struct cairn_error *err) {
    if (!value || json_is_null(value)) return CAIRN_OK;
    json_int_t seconds = json_integer_value(value);
    if (!json_is_integer(value) || seconds < (json_int_t)least || (uint64_t)seconds > SECONDS_MAX)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s/%s: wanted whole seconds from %" PRIu64 " on, of at most 100 years",
                          pointer, name, least);
    if (ret_said) *ret_said = true;
    *ret_ms = (uint64_t)seconds * 1000;
    return CAIRN_OK;
}

/* Parses "6h" and the like; policies have whole seconds. */
static enum cairn_code parse_seconds(struct cairn_view text, uint64_t least_ms, uint64_t *ret_ms,
                                     struct cairn_error *err) {
    uint64_t ms = 0;
    if (cairn_parse_duration(text, &ms, NULL) || ms < least_ms || ms % 1000 ||
        ms > SECONDS_MAX * 1000)
        return cairn_fail(err, CAIRN_INVALID,
                          "wanted a duration in whole seconds, as \"6h\" or \"7d\", of at most 100 "
                          "years%s",
                          least_ms ? "" : "; \"0s\" is none");
    *ret_ms = ms;
    return CAIRN_OK;
}

enum cairn_code cairn_policy_within_parse(struct cairn_view text, struct cairn_policy *policy,
                                          struct cairn_error *err) {
    return parse_seconds(text, 1000, &policy->within_ms, err);
}

static enum cairn_code read_best(const json_t *json, const char *pointer, struct cairn_policy *ret,
                                 struct cairn_error *err) {
    struct cairn_policy_best *best = &ret->best[ret->best_count];
    const char *metric = NULL, *order = NULL;
    const struct cairn_json_field fields[] = {
        {"count", CAIRN_JSON_U64, true, &best->count, keeps[CAIRN_KEEP_LAST].most},
        {"metric", CAIRN_JSON_TEXT, true, &metric, CAIRN_METRIC_NAME_MAX},
        {"order", CAIRN_JSON_TEXT, true, &order, 8},
    };
    CAIRN_TRY(cairn_json_read(json, pointer, fields, CAIRN_COUNT(fields), false, err));
    if (!best->count) return cairn_fail(err, CAIRN_INVALID, "%s/count: wanted at least 1", pointer);
    enum cairn_code code = cairn_metric_name_check(cairn_view_of(metric), err);
    if (code) return cairn_within(err, code, "%s/metric", pointer);
    best->largest = !strcmp(order, "max");
    if (!best->largest && strcmp(order, "min"))
        return cairn_fail(err, CAIRN_INVALID, "%s/order: wanted \"min\" or \"max\"", pointer);
    (void)cairn_text_copy(best->metric, sizeof(best->metric), metric);
    ret->best_count++;
    return CAIRN_OK;
}

static enum cairn_code read_label(const json_t *json, const char *pointer, struct cairn_policy *ret,
                                  struct cairn_error *err) {
    struct cairn_view text = {json_string_value(json), json_string_length(json)};
    if (!text.size)
        return cairn_fail(err, CAIRN_INVALID, "%s: wanted a label selector as \"team=nlp\"",
                          pointer);
    enum cairn_code code = cairn_selector_parse(text, &ret->labels[ret->labels_count], err);
    if (code) return cairn_within(err, code, "%s", pointer);
    ret->labels_count++;
    return CAIRN_OK;
}

static enum cairn_code
read_array(const json_t *array, const char *pointer, const char *items, size_t most,
           enum cairn_code (*read)(const json_t *json, const char *pointer,
                                   struct cairn_policy *ret, struct cairn_error *err),
           struct cairn_policy *ret, struct cairn_error *err) {
    if (json_array_size(array) > most)
        return cairn_fail(err, CAIRN_INVALID, "%s: more than %zu %s", pointer, most, items);
    size_t index = 0;
    json_t *value = NULL;
    json_array_foreach(array, index, value) {
        char place[POINTER_BYTES];
        snprintf(place, sizeof(place), "%.200s/%zu", pointer, index);
        CAIRN_TRY(read(value, place, ret, err));
    }
    return CAIRN_OK;
}

/* ---- copies ---- */

/* The entry of the store, created if absent. */
static enum cairn_code copies_of(struct cairn_policy *policy, struct cairn_view store,
                                 struct cairn_policy_copies **ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_store_name_check(store, err));
    for (uint32_t i = 0; i < policy->copies_count; i++) {
        *ret = &policy->copies[i];
        if (strlen((*ret)->store) == store.size && !memcmp((*ret)->store, store.data, store.size))
            return CAIRN_OK;
    }
    if (policy->copies_count == CAIRN_POLICY_COPIES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d stores", CAIRN_POLICY_COPIES_MAX);
    *ret = &policy->copies[policy->copies_count++];
    memcpy((*ret)->store, store.data, store.size);
    return CAIRN_OK;
}

static enum cairn_code read_copies(const json_t *json, const char *pointer,
                                   struct cairn_policy *ret, struct cairn_error *err) {
    const char *store = NULL;
    uint64_t last = 0, every = 0;
    struct cairn_policy_copies *copies = NULL;
    uint32_t before = ret->copies_count;
    const struct cairn_json_field fields[] = {
        {"store", CAIRN_JSON_TEXT, true, &store, CAIRN_STORE_NAME_BYTES - 1},
        {"last", CAIRN_JSON_U64, false, &last, keeps[CAIRN_KEEP_LAST].most},
        {"every_steps", CAIRN_JSON_U64, false, &every, keeps[CAIRN_KEEP_EVERY_STEPS].most},
    };
    CAIRN_TRY(cairn_json_read(json, pointer, fields, CAIRN_COUNT(fields), false, err));
    enum cairn_code code = copies_of(ret, cairn_view_of(store), &copies, err);
    if (code) return cairn_within(err, code, "%s/store", pointer);
    if (ret->copies_count == before)
        return cairn_fail(err, CAIRN_INVALID, "%s: %s is named twice", pointer, store);
    if (!last && !every)
        return cairn_fail(err, CAIRN_INVALID, "%s: wanted last or every_steps, from 1", pointer);
    copies->last = last;
    copies->every_steps = every;
    return CAIRN_OK;
}

static enum cairn_code parse_copies(struct cairn_view text, struct cairn_policy *policy,
                                    struct cairn_error *err) {
    const char *from = text.data;
    const char *first = text.size ? memchr(from, ':', text.size) : NULL;
    const char *last = text.size ? memrchr(from, ':', text.size) : NULL;
    struct cairn_policy_copies *copies = NULL;
    uint64_t number = 0;
    if (!first || first == last)
        return cairn_fail(err, CAIRN_INVALID, "wanted STORE:last:N or STORE:every:N");
    struct cairn_view rule = {first + 1, (size_t)(last - first - 1)};
    struct cairn_view count = {last + 1, (size_t)(from + text.size - last - 1)};
    bool newest = rule.size == 4 && !memcmp(rule.data, "last", 4);
    if (cairn_parse_u64(count, &number, NULL) || !number ||
        number > keeps[newest ? CAIRN_KEEP_LAST : CAIRN_KEEP_EVERY_STEPS].most ||
        (!newest && (rule.size != 5 || memcmp(rule.data, "every", 5) != 0)))
        return cairn_fail(err, CAIRN_INVALID, "wanted STORE:last:N or STORE:every:N, N from 1");
    CAIRN_TRY(copies_of(policy, (struct cairn_view){from, (size_t)(first - from)}, &copies, err));
    *(newest ? &copies->last : &copies->every_steps) = number;
    return CAIRN_OK;
}

enum cairn_code cairn_policy_copies_parse(struct cairn_view text, struct cairn_policy *policy,
                                          struct cairn_error *err) {
    const char *at = text.data, *end = at + text.size;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        struct cairn_view one = {at, (size_t)((comma ? comma : end) - at)};
        CAIRN_TRY(parse_copies(one, policy, err));
        at = comma ? comma + 1 : end;
    }
    return CAIRN_OK;
}

/* ---- copies on other nodes ---- */

static enum cairn_code take_partner_copies(uint64_t number, struct cairn_policy *ret,
                                           struct cairn_error *err) {
    if (number > CAIRN_PARTNER_COPIES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "wanted a whole number from 0 to %d",
                          CAIRN_PARTNER_COPIES_MAX);
    ret->says_partner_copies = true;
    ret->partner_copies = (uint32_t)number;
    return CAIRN_OK;
}

/* 0 is a value, distinct from absent. */
static enum cairn_code read_partner_copies(const json_t *value, const char *pointer,
                                           struct cairn_policy *ret, struct cairn_error *err) {
    if (!value || json_is_null(value)) return CAIRN_OK;
    json_int_t number = json_integer_value(value);
    bool whole = json_is_integer(value) && number >= 0;
    enum cairn_code code = take_partner_copies(whole ? (uint64_t)number : UINT64_MAX, ret, err);
    return code ? cairn_within(err, code, "%s/partner_copies", pointer) : CAIRN_OK;
}

enum cairn_code cairn_policy_partner_copies_parse(struct cairn_view text,
                                                  struct cairn_policy *policy,
                                                  struct cairn_error *err) {
    uint64_t number = 0;
    if (cairn_parse_u64(text, &number, NULL)) number = UINT64_MAX;
    return take_partner_copies(number, policy, err);
}

uint64_t cairn_policy_unmeasured_grace_ms(const struct cairn_policy *policy) {
    return policy->says_unmeasured_grace ? policy->unmeasured_grace_ms : CAIRN_UNMEASURED_GRACE_MS;
}

enum cairn_code cairn_policy_unmeasured_grace_parse(struct cairn_view text,
                                                    struct cairn_policy *policy,
                                                    struct cairn_error *err) {
    CAIRN_TRY(parse_seconds(text, 0, &policy->unmeasured_grace_ms, err));
    policy->says_unmeasured_grace = true;
    return CAIRN_OK;
}

enum cairn_code cairn_policy_read(const json_t *json, const char *pointer, struct cairn_policy *ret,
                                  struct cairn_error *err) {
    struct cairn_policy policy = {0};
    json_t *keep = NULL, *best = NULL, *labels = NULL, *within = NULL;
    json_t *copies = NULL, *partner = NULL, *grace = NULL;
    json_t *numbers[CAIRN_KEEP_NUMBERS] = {0};
    char place[POINTER_BYTES];
    const struct cairn_json_field root[] = {
        {"keep", CAIRN_JSON_OBJECT, true, (void *)&keep, 0},
        {"copies", CAIRN_JSON_ARRAY, false, (void *)&copies, 0},
        {"partner_copies", CAIRN_JSON_ANY, false, (void *)&partner, 0}};
    CAIRN_TRY(cairn_json_read(json, pointer, root, CAIRN_COUNT(root), false, err));
    struct cairn_json_field fields[CAIRN_KEEP_NUMBERS + 4] = {
        {"within_s", CAIRN_JSON_ANY, false, (void *)&within, 0},
        {"best", CAIRN_JSON_ARRAY, false, (void *)&best, 0},
        {"labels", CAIRN_JSON_ARRAY, false, (void *)&labels, 0},
        {"unmeasured_grace_s", CAIRN_JSON_ANY, false, (void *)&grace, 0},
    };
    for (size_t i = 0; i < CAIRN_KEEP_NUMBERS; i++)
        fields[i + 4] =
            (struct cairn_json_field){keeps[i].name, CAIRN_JSON_ANY, false, (void *)&numbers[i], 0};
    snprintf(place, sizeof(place), "%.128s/keep", pointer);
    CAIRN_TRY(cairn_json_read(keep, place, fields, CAIRN_COUNT(fields), false, err));
    for (size_t i = 0; i < CAIRN_KEEP_NUMBERS; i++)
        CAIRN_TRY(read_number(keep, place, (enum cairn_keep)i, &policy.numbers[i], err));
    CAIRN_TRY(read_seconds(within, place, "within_s", 1, NULL, &policy.within_ms, err));
    CAIRN_TRY(read_seconds(grace, place, "unmeasured_grace_s", 0, &policy.says_unmeasured_grace,
                           &policy.unmeasured_grace_ms, err));
    snprintf(place, sizeof(place), "%.128s/keep/best", pointer);
    CAIRN_TRY(read_array(best, place, "metrics", CAIRN_POLICY_BEST_MAX, read_best, &policy, err));
    snprintf(place, sizeof(place), "%.128s/keep/labels", pointer);
    CAIRN_TRY(
        read_array(labels, place, "selectors", CAIRN_POLICY_LABELS_MAX, read_label, &policy, err));
    snprintf(place, sizeof(place), "%.128s/copies", pointer);
    CAIRN_TRY(
        read_array(copies, place, "stores", CAIRN_POLICY_COPIES_MAX, read_copies, &policy, err));
    CAIRN_TRY(read_partner_copies(partner, pointer, &policy, err));
    *ret = policy;
    return CAIRN_OK;
}

/* Renames a member; a duration that is not whole seconds is rounded up. */
static enum cairn_code rename_seconds(json_t *keep, const char *old, const char *name,
                                      struct cairn_error *err) {
    const json_t *value = json_object_get(keep, old);
    uint64_t ms = 0;
    if (!json_is_string(value)) return CAIRN_OK;
    enum cairn_code code = cairn_parse_duration(cairn_view_of(json_string_value(value)), &ms, err);
    if (code) return cairn_within(err, code, "/keep/%s", old);
    if (json_object_set_new(keep, name, json_integer((json_int_t)((ms + 999) / 1000))) ||
        json_object_del(keep, old))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a policy");
    return CAIRN_OK;
}

enum cairn_code cairn_policy_read_stored(json_t *json, struct cairn_policy *ret,
                                         struct cairn_error *err) {
    json_t *keep = json_object_get(json, "keep");
    CAIRN_TRY(rename_seconds(keep, "within", "within_s", err));
    CAIRN_TRY(rename_seconds(keep, "unmeasured_grace", "unmeasured_grace_s", err));
    return cairn_policy_read(json, "", ret, err);
}

enum cairn_code cairn_policy_best_parse(struct cairn_view text, struct cairn_policy_best *ret,
                                        struct cairn_error *err) {
    const char *from = text.data;
    const char *first = text.size ? memchr(from, ':', text.size) : NULL;
    const char *last = text.size ? memrchr(from, ':', text.size) : NULL;
    struct cairn_policy_best best = {0};
    if (!first || first == last)
        return cairn_fail(err, CAIRN_INVALID, "wanted N:metric:min or N:metric:max");
    struct cairn_view order = {last + 1, (size_t)(from + text.size - last - 1)};
    struct cairn_view metric = {first + 1, (size_t)(last - first - 1)};
    best.largest = order.size == 3 && !memcmp(order.data, "max", 3);
    if (cairn_parse_u64((struct cairn_view){from, (size_t)(first - from)}, &best.count, err) ||
        !best.count || best.count > keeps[CAIRN_KEEP_LAST].most ||
        (!best.largest && (order.size != 3 || memcmp(order.data, "min", 3) != 0)))
        return cairn_fail(err, CAIRN_INVALID, "wanted N:metric:min or N:metric:max, N from 1");
    CAIRN_TRY(cairn_metric_name_check(metric, err));
    memcpy(best.metric, metric.data, metric.size);
    *ret = best;
    return CAIRN_OK;
}

/* ---- writing ---- */

/* Exact, unlike cairn_duration_text. */
static void within_text(uint64_t ms, char ret_text[32]) {
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"d", 86400000}, {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};
    size_t i = ms ? 0 : 3; /* "0s" */
    while (ms % units[i].ms) i++;
    snprintf(ret_text, 32, "%" PRIu64 "%s", ms / units[i].ms, units[i].unit);
}

static int put_best(const struct cairn_policy *policy, json_t *keep) {
    if (!policy->best_count) return 0;
    json_t *array = json_array();
    if (json_object_set_new(keep, "best", array)) return -1;
    for (uint32_t i = 0; i < policy->best_count; i++) {
        const struct cairn_policy_best *best = &policy->best[i];
        if (json_array_append_new(array, json_pack("{s:I, s:s, s:s}", "count",
                                                   (json_int_t)best->count, "metric", best->metric,
                                                   "order", best->largest ? "max" : "min")))
            return -1;
    }
    return 0;
}

static int put_labels(const struct cairn_policy *policy, json_t *keep) {
    if (!policy->labels_count) return 0;
    json_t *array = json_array();
    if (json_object_set_new(keep, "labels", array)) return -1;
    for (uint32_t i = 0; i < policy->labels_count; i++)
        if (json_array_append_new(array, json_string(policy->labels[i].text))) return -1;
    return 0;
}

static int put_copies(const struct cairn_policy *policy, json_t *root) {
    if (!policy->copies_count) return 0;
    json_t *array = json_array();
    if (json_object_set_new(root, "copies", array)) return -1;
    for (uint32_t i = 0; i < policy->copies_count; i++) {
        const struct cairn_policy_copies *copies = &policy->copies[i];
        json_t *item = json_pack("{s:s}", "store", copies->store);
        if (item && copies->last)
            json_object_set_new(item, "last", json_integer((json_int_t)copies->last));
        if (item && copies->every_steps)
            json_object_set_new(item, "every_steps", json_integer((json_int_t)copies->every_steps));
        if (json_array_append_new(array, item)) return -1;
    }
    return 0;
}

enum cairn_code cairn_policy_json(const struct cairn_policy *policy, json_t **ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *root = json_object();
    json_t *keep = json_object();
    int failed = json_object_set_new(root, "keep", keep);
    for (size_t i = 0; !failed && i < CAIRN_KEEP_NUMBERS; i++)
        if (policy->numbers[i])
            failed = json_object_set_new(keep, keeps[i].name,
                                         json_integer((json_int_t)policy->numbers[i]));
    if (!failed && policy->within_ms)
        failed = json_object_set_new(keep, "within_s",
                                     json_integer((json_int_t)(policy->within_ms / 1000)));
    if (!failed && policy->says_unmeasured_grace)
        failed =
            json_object_set_new(keep, "unmeasured_grace_s",
                                json_integer((json_int_t)(policy->unmeasured_grace_ms / 1000)));
    if (!failed && policy->says_partner_copies)
        failed = json_object_set_new(root, "partner_copies", json_integer(policy->partner_copies));
    if (failed || put_best(policy, keep) || put_labels(policy, keep) || put_copies(policy, root))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a policy");
    *ret = CAIRN_TAKE(root);
    return CAIRN_OK;
}

/* "; in archive every 1000 steps; in main last 3; partner copies 1" */
static enum cairn_code copies_text(const struct cairn_policy *policy, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    for (uint32_t i = 0; i < policy->copies_count; i++) {
        const struct cairn_policy_copies *copies = &policy->copies[i];
        CAIRN_TRY(cairn_buf_printf(ret, err, "; in %s", copies->store));
        if (copies->last) CAIRN_TRY(cairn_buf_printf(ret, err, " last %" PRIu64, copies->last));
        if (copies->every_steps)
            CAIRN_TRY(cairn_buf_printf(ret, err, "%s every %" PRIu64 " steps",
                                       copies->last ? " OR" : "", copies->every_steps));
    }
    if (!policy->says_partner_copies) return CAIRN_OK;
    return cairn_buf_printf(ret, err, "; partner copies %" PRIu32, policy->partner_copies);
}

enum cairn_code cairn_policy_text(const struct cairn_policy *policy, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    const char *between = "";
    for (size_t i = 0; i < CAIRN_KEEP_NUMBERS; i++) {
        if (!policy->numbers[i]) continue;
        bool every = i == CAIRN_KEEP_EVERY_STEPS;
        CAIRN_TRY(cairn_buf_printf(ret, err, "%s%s %" PRIu64 "%s", between,
                                   every ? "every" : keeps[i].name, policy->numbers[i],
                                   every ? " steps" : ""));
        between = " OR ";
    }
    for (uint32_t i = 0; i < policy->best_count; i++) {
        const struct cairn_policy_best *best = &policy->best[i];
        CAIRN_TRY(cairn_buf_printf(ret, err, "%sbest %" PRIu64 " by %s (%s)", between, best->count,
                                   best->metric, best->largest ? "max" : "min"));
        between = " OR ";
    }
    if (policy->within_ms) {
        char text[32];
        within_text(policy->within_ms, text);
        CAIRN_TRY(cairn_buf_printf(ret, err, "%swithin %s of the newest", between, text));
        between = " OR ";
    }
    for (uint32_t i = 0; i < policy->labels_count; i++) {
        CAIRN_TRY(cairn_buf_printf(ret, err, "%slabels %s", between, policy->labels[i].text));
        between = " OR ";
    }
    if (!*between) CAIRN_TRY(cairn_buf_append_text(ret, "no rule: removes nothing", err));
    if (policy->says_unmeasured_grace) {
        char text[32];
        within_text(policy->unmeasured_grace_ms, text);
        CAIRN_TRY(cairn_buf_printf(ret, err, "; unmeasured for %s", text));
    }
    return copies_text(policy, ret, err);
}

/* ---- selectors ---- */

static enum cairn_code refuse(struct cairn_view term, const char *why, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_INVALID, "label selector: \"%.*s\" %s", (int)term.size,
                      (const char *)term.data, why);
}

static bool holds(struct cairn_view text, char wanted) {
    return text.size && memchr(text.data, wanted, text.size);
}

static uint16_t put_part(struct cairn_selector *selector, size_t *at, struct cairn_view part) {
    size_t begin = *at;
    if (part.size) memcpy(selector->parts + begin, part.data, part.size);
    selector->parts[begin + part.size] = '\0';
    *at = begin + part.size + 1;
    return (uint16_t)begin;
}

struct term {
    struct cairn_view text, key, value; /* value.data NULL: the term has no '=' */
    enum cairn_selector_kind kind;
};

static struct term split_term(struct cairn_view text) {
    const char *from = text.data, *equals = text.size ? memchr(from, '=', text.size) : NULL;
    if (!equals) {
        bool not_there = text.size && *from == '!';
        return (struct term){.text = text,
                             .key = {from + not_there, text.size - not_there},
                             .kind = not_there ? CAIRN_SELECTOR_HAS_NOT : CAIRN_SELECTOR_HAS};
    }
    size_t at = (size_t)(equals - from);
    bool is_not = at && from[at - 1] == '!';
    return (struct term){.text = text,
                         .key = {from, at - is_not},
                         .value = {equals + 1, text.size - at - 1},
                         .kind = is_not ? CAIRN_SELECTOR_IS_NOT : CAIRN_SELECTOR_IS};
}

/* policy.h#6 */
static enum cairn_code check_term(const struct term *term, struct cairn_error *err) {
    if (!term->text.size)
        return cairn_fail(err, CAIRN_INVALID,
                          "label selector: a term is empty; write it as team=nlp,tier!=tmp");
    if (term->value.size && *(const char *)term->value.data == '=')
        return refuse(term->text, "has two '='; write key=value", err);
    if (!term->key.size) return refuse(term->text, "has no key", err);
    if (holds(term->key, '!')) return refuse(term->text, "has a '!' in its key", err);
    return CAIRN_OK;
}

enum cairn_code cairn_selector_parse(struct cairn_view text, struct cairn_selector *ret,
                                     struct cairn_error *err) {
    struct cairn_selector selector = {0};
    if (text.size > CAIRN_SELECTOR_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "label selector: more than %d bytes",
                          CAIRN_SELECTOR_BYTES_MAX);
    const char *from = text.data;
    for (size_t i = 0; i < text.size; i++) {
        if ((unsigned char)from[i] < 0x20 || from[i] == 0x7f)
            return cairn_fail(err, CAIRN_INVALID, "label selector: a control character");
    }
    if (!cairn_utf8_valid(text)) return cairn_fail(err, CAIRN_INVALID, "label selector: not UTF-8");
    if (text.size) memcpy(selector.text, text.data, text.size);
    /* Copies each term with a NUL at its end; in key=value '=' becomes a NUL, too. */
    size_t at = 0;
    const char *end = text.size ? from + text.size : from;
    while (text.size) {
        const char *comma = memchr(from, ',', (size_t)(end - from));
        const struct cairn_view text_of_term = {from, (size_t)((comma ? comma : end) - from)};
        const struct term term = split_term(text_of_term);
        if (selector.count == CAIRN_SELECTOR_TERMS_MAX)
            return cairn_fail(err, CAIRN_INVALID, "label selector: more than %d terms",
                              CAIRN_SELECTOR_TERMS_MAX);
        CAIRN_TRY(check_term(&term, err));
        selector.terms[selector.count].kind = term.kind;
        selector.terms[selector.count].key = put_part(&selector, &at, term.key);
        if (term.value.data)
            selector.terms[selector.count].value = put_part(&selector, &at, term.value);
        selector.count++;
        if (!comma) break;
        from = comma + 1;
    }
    *ret = selector;
    return CAIRN_OK;
}

bool cairn_selector_matches(const struct cairn_selector *selector, const json_t *labels) {
    for (uint32_t i = 0; i < selector->count; i++) {
        const char *key = selector->parts + selector->terms[i].key;
        const char *value = selector->parts + selector->terms[i].value;
        const char *there = json_string_value(json_object_get(labels, key));
        bool is = there && !strcmp(there, value);
        switch (selector->terms[i].kind) {
        case CAIRN_SELECTOR_IS:
            if (!is) return false;
            break;
        case CAIRN_SELECTOR_IS_NOT:
            if (is) return false;
            break;
        case CAIRN_SELECTOR_HAS:
            if (!there) return false;
            break;
        case CAIRN_SELECTOR_HAS_NOT:
            if (there) return false;
            break;
        }
    }
    return true;
}
