/* SPDX-License-Identifier: Apache-2.0 */
/* What a bucket's own settings mean for a store in it. */
#include "store/s3/bucket.h"

#include <stdlib.h>

#include "common/text.h"
#include "store/s3/inside.h"
#include "store/s3/query.h"
#include "store/s3/s3.h"
#include "store/xml/walk.h"

#define RULE "LifecycleConfiguration/Rule"

/* ---- life cycle ---- */

struct rule {
    bool enabled, filtered, aborts, expires, noncurrent, archives;
    uint64_t abort_days;
    char id[64], prefix[1024];
};
struct reading {
    const char *ours; /* "" or ends with '/' */
    bool tagged;      /* our objects have tags */
    struct rule rule;
    struct cairn_store_s3_lifecycle *ret;
};

static enum cairn_code rule_begins(void *owner, const char *path, struct cairn_error *err) {
    (void)err;
    struct reading *reading = owner;
    if (!strcmp(path, RULE)) reading->rule = (struct rule){0};
    return CAIRN_OK;
}

/* A rule holds for all of our objects where its prefix is a beginning of ours, and for some of them
 * where ours is a beginning of its prefix. */
static void rule_ends(struct reading *reading) {
    const struct rule *rule = &reading->rule;
    struct cairn_store_s3_lifecycle *ret = reading->ret;
    bool all = cairn_text_starts(reading->ours, rule->prefix);
    bool some = all || cairn_text_starts(rule->prefix, reading->ours);
    if (!rule->enabled || !some) return;
    if (all && !rule->filtered && rule->aborts) {
        ret->aborts = true;
        ret->abort_days = rule->abort_days;
    }
    if (all && !rule->filtered && rule->noncurrent) ret->removes_noncurrent = true;
    bool ours = !rule->filtered || reading->tagged;
    if (rule->archives && ours) {
        ret->archives = true;
        (void)cairn_text_copy(ret->archiving_rule, sizeof ret->archiving_rule, rule->id);
    }
    if (!rule->expires || !ours) return;
    ret->expires = true;
    (void)cairn_text_copy(ret->expiring_rule, sizeof ret->expiring_rule, rule->id);
}

static bool is_one_of(const char *path, const char *const *leaves, size_t count) {
    if (!cairn_text_starts(path, RULE "/")) return false;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(path + strlen(RULE "/"), leaves[i])) return true;
    return false;
}

static enum cairn_code rule_field(void *owner, const char *path, const char *text,
                                  struct cairn_error *err) {
    static const char *const prefixes[] = {"Prefix", "Filter/Prefix", "Filter/And/Prefix"};
    static const char *const filters[] = {"Filter/Tag", "Filter/And/Tag"};
    static const char *const expirations[] = {"Expiration/Days", "Expiration/Date"};
    (void)err;
    struct reading *reading = owner;
    struct rule *rule = &reading->rule;
    if (!strcmp(path, RULE)) rule_ends(reading);
    if (is_one_of(path, prefixes, CAIRN_COUNT(prefixes)))
        (void)cairn_text_copy(rule->prefix, sizeof rule->prefix, text);
    rule->filtered = rule->filtered || is_one_of(path, filters, CAIRN_COUNT(filters));
    rule->expires = rule->expires || is_one_of(path, expirations, CAIRN_COUNT(expirations));
    if (!strcmp(path, RULE "/ID")) (void)cairn_text_copy(rule->id, sizeof rule->id, text);
    if (!strcmp(path, RULE "/Status")) rule->enabled = !strcmp(text, "Enabled");
    if (!strcmp(path, RULE "/NoncurrentVersionExpiration")) rule->noncurrent = true;
    if (!strcmp(path, RULE "/Transition/StorageClass") && cairn_store_s3_class_is_cold(text))
        rule->archives = true;
    if (strcmp(path, RULE "/AbortIncompleteMultipartUpload/DaysAfterInitiation") != 0)
        return CAIRN_OK;
    rule->aborts = true;
    (void)!cairn_parse_u64(cairn_view_of(text), &rule->abort_days, NULL);
    return CAIRN_OK;
}

enum cairn_code cairn_store_s3_lifecycle(struct cairn_store *base, struct cairn_view document,
                                         struct cairn_store_s3_lifecycle *ret,
                                         struct cairn_error *err) {
    struct cairn_s3_store *store = NULL;
    CAIRN_TRY(cairn_s3_of(base, &store, err));
    const struct cairn_s3_config *config = &store->config;
    struct cairn_store_s3_lifecycle found = {0};
    struct reading reading = {
        .ours = config->prefix, .tagged = config->options.object_tags != NULL, .ret = &found};
    struct cairn_xml_walk walk = {.root = "LifecycleConfiguration",
                                  .started = rule_begins,
                                  .ended = rule_field,
                                  .owner = &reading};
    CAIRN_TRY(cairn_xml_walk_run(&walk, document, err));
    *ret = found;
    return CAIRN_OK;
}

bool cairn_store_s3_class_is_cold(const char *storage_class) {
    static const char *const cold[] = {"GLACIER", "DEEP_ARCHIVE", "ARCHIVE", "COLD_ARCHIVE",
                                       "DEEP_COLD_ARCHIVE"};
    for (size_t i = 0; storage_class && i < CAIRN_COUNT(cold); i++)
        if (!strcmp(storage_class, cold[i])) return true;
    return false;
}

bool cairn_store_s3_writes_cold(struct cairn_store *base) {
    struct cairn_s3_store *store = NULL;
    return cairn_s3_of(base, &store, NULL) == CAIRN_OK &&
           cairn_store_s3_class_is_cold(store->config.options.storage_class);
}

/* ---- one element ---- */

struct search {
    const char *path, *text;
    bool found;
};

static enum cairn_code compare(void *owner, const char *path, const char *text,
                               struct cairn_error *err) {
    (void)err;
    struct search *search = owner;
    if (!strcmp(path, search->path) && (!search->text || !strcmp(text, search->text)))
        search->found = true;
    return CAIRN_OK;
}

bool cairn_store_s3_answer_has(const struct cairn_store_s3_answer *answer, const char *path,
                               const char *text) {
    char root[64];
    size_t size = strcspn(path, "/");
    if (answer->status != 200 || !answer->document.size || size >= sizeof root) return false;
    memcpy(root, path, size);
    root[size] = '\0';
    struct search search = {.path = path, .text = text};
    struct cairn_xml_walk walk = {.root = root, .ended = compare, .owner = &search};
    return cairn_xml_walk_run(&walk, cairn_buf_view(&answer->document), NULL) == CAIRN_OK &&
           search.found;
}
