/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, presigned URLs, a bucket's settings. Requests: worker.c, request.c, reply.c. */
#include "store/s3/s3.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "common/trace.h"
#include "store/keys/credentials.h"
#include "store/s3/probe.h"
#include "store/time.h"

#define GIB CAIRN_GIB
#define FAILING_STALE_MS 120000

static void s3_free(struct cairn_store *base) {
    struct cairn_s3_store *store = (struct cairn_s3_store *)base;
    CAIRN_ASSERT(atomic_load(&store->workers) == 0);
    cairn_credentials_provider_free(store->credentials);
    cairn_s3_config_release(&store->config);
    cairn_lock_release(&store->lock);
    free(store);
}

static enum cairn_code keys(struct cairn_store *base, char ret_text[224], struct cairn_error *err) {
    struct cairn_s3_store *store = (struct cairn_s3_store *)base;
    struct cairn_credentials found = {0};
    CAIRN_TRY(cairn_credentials_get(store->credentials, 0, &found, err));
    cairn_credentials_describe(&found, ret_text);
    cairn_credentials_release(&found);
    return CAIRN_OK;
}

_Static_assert(CAIRN_CREDENTIALS_EXPOSED_BYTES == 540, "as store/store.h says");
static bool keys_exposed(struct cairn_store *base, char ret_text[540]) {
    return cairn_credentials_exposed(((struct cairn_s3_store *)base)->credentials, ret_text);
}

static int64_t keys_until_ms(struct cairn_store *base) {
    return cairn_credentials_until_ms(((struct cairn_s3_store *)base)->credentials);
}

static bool keeps_versions_now(struct cairn_store *base) {
    return atomic_load(&((struct cairn_s3_store *)base)->keeps_versions);
}

static bool misstates_now(struct cairn_store *base) {
    return !atomic_exchange(&((struct cairn_s3_store *)base)->misstates, true);
}

static bool same_text(const char *a, const char *b) {
    return !strcmp(a ? a : "", b ? b : "");
}

/* Stores with unproven checksums may not copy: nothing else would compare the bytes. */
static bool copies_from(struct cairn_store *base, struct cairn_store *source) {
    struct cairn_s3_store *to = (struct cairn_s3_store *)base, *from = NULL;
    if (cairn_s3_of(source, &from, NULL)) return false;
    const struct cairn_s3_config *a = &to->config, *b = &from->config;
    bool one_place = a->is_aws == b->is_aws && !strcmp(a->scheme, b->scheme) &&
                     !strcmp(a->host, b->host) && !strcmp(a->base_path, b->base_path) &&
                     !strcmp(a->region, b->region);
    /* A settings profile falls back to other keys, a URL's profile never. */
    bool one_key =
        a->profile_alone == b->profile_alone && same_text(a->options.profile, b->options.profile);
    int checksum = atomic_load(&to->checksum);
    bool sums = checksum == CAIRN_S3_CHECKSUM_AUTO || checksum == CAIRN_S3_CHECKSUM_CRC32C;
    return one_place && one_key && sums && to->base.profile.part_checksum &&
           !atomic_load(&to->misstates);
}

/* A store without recent requests may have recovered. */
static void note_failing(struct cairn_s3_store *store, struct cairn_store_health *ret) {
    uint64_t now_ms = cairn_s3_mono_ms(store);
    CAIRN_HOLD(&store->lock);
    const struct cairn_retry *retry = &store->locked.retry;
    uint64_t failing_ms = retry->failing ? cairn_passed_ms(now_ms, retry->failing_since_ms) : 0;
    if (failing_ms < CAIRN_S3_TROUBLE_MS ||
        cairn_passed_ms(now_ms, store->locked.failed_ms) >= FAILING_STALE_MS)
        return;
    ret->failing_ms = failing_ms;
    (void)cairn_text_copy(ret->failing, sizeof(ret->failing), store->locked.failed);
}

static void health(struct cairn_store *base, struct cairn_store_health *ret) {
    struct cairn_s3_store *store = (struct cairn_s3_store *)base;
    bool automatic = store->config.options.checksum == CAIRN_S3_CHECKSUM_AUTO;
    bool asked_to_sign = store->config.options.sign_payload;
    const struct {
        bool holds;
        const char *text;
    } less[] = {
        {automatic && atomic_load(&store->checksum) == CAIRN_S3_CHECKSUM_MD5,
         "the store refused x-amz-checksum-crc32c, so Content-MD5 is sent instead"},
        {atomic_load(&store->no_create_only),
         "the store refused If-None-Match, so it does not guard against two writers of one key"},
        {atomic_load(&store->misstates),
         "the checksums that the store states are wrong, so none is believed"},
        {atomic_load(&store->signs_payload) && !asked_to_sign,
         "the store refused UNSIGNED-PAYLOAD, so each body is hashed with SHA-256"},
    };
    size_t size = 0;
    ret->text[0] = '\0';
    for (size_t i = 0; i < CAIRN_COUNT(less); i++)
        if (less[i].holds && size < sizeof ret->text)
            size += (size_t)snprintf(ret->text + size, sizeof ret->text - size, "%s%s",
                                     size ? "; " : "", less[i].text);
    ret->degraded = size > 0;
    ret->profile_wrong = cairn_s3_profile_wrong(store);
    note_failing(store, ret);
}

/* A03: a URL expires with the keys that signed it. */
static uint32_t life_left_s(const struct cairn_s3_store *store, int64_t expires_ms,
                            uint32_t wanted_s) {
    if (!expires_ms) return wanted_s;
    int64_t left_ms = expires_ms - store->clock->wall_ms(store->clock);
    if (left_ms < 1000) return 1;
    return (uint32_t)cairn_min_u64(wanted_s, (uint64_t)left_ms / 1000);
}

static enum cairn_code presign(struct cairn_store *base, const char *key, uint32_t expires_s,
                               struct cairn_buf *ret_url, uint32_t *ret_expires_s,
                               struct cairn_error *err) {
    struct cairn_s3_store *store = (struct cairn_s3_store *)base;
    if (!expires_s || expires_s > CAIRN_SIGV4_EXPIRES_S_MAX)
        return cairn_fail(err, CAIRN_INVALID, "a presigned URL lives 1 s to 7 days");
    CAIRN_AUTO(sigv4_signer) signer = {0};
    struct cairn_credentials keys = {0};
    uint64_t generation = 0;
    bool expires = false;
    CAIRN_TRY(cairn_s3_signer_update(store, &signer, &generation, 0, &expires, err));
    if (expires) {
        CAIRN_TRY(cairn_credentials_get(store->credentials, 0, &keys, err));
        expires_s = life_left_s(store, keys.expires_ms, expires_s);
        cairn_credentials_release(&keys);
    }
    CAIRN_AUTO(buf) url = {0};
    const struct cairn_s3_presigned what = {.key = key, .expires_s = expires_s};
    CAIRN_TRY(cairn_s3_presign_get(store, &signer, &what, &url, err));
    CAIRN_TRY(cairn_buf_append(ret_url, url.data, url.size, err));
    if (ret_expires_s) *ret_expires_s = expires_s;
    return CAIRN_OK;
}

static const struct cairn_store_vtable s3_vtable = {
    .free = s3_free,
    .worker_new = cairn_s3_worker_new,
    .worker_free = cairn_s3_worker_free,
    .submit = cairn_s3_submit,
    .cancel = cairn_s3_cancel,
    .poll = cairn_s3_poll,
    .wake = cairn_s3_wake,
    .appetite = cairn_s3_appetite,
    .keys = keys,
    .keys_exposed = keys_exposed,
    .keys_until_ms = keys_until_ms,
    .probe = cairn_s3_probe,
    .profile_save = cairn_s3_profile_save,
    .health = health,
    .misstates = misstates_now,
    .keeps_versions = keeps_versions_now,
    .copies_from = copies_from,
    .tidy = cairn_s3_tidy,
    .presign = presign,
};

/* The profile without tests. AWS is known; others get cautious values, at an extra request. */
static void set_profile(struct cairn_s3_store *store) {
    bool aws = store->config.is_aws;
    enum cairn_store_s3_checksum checksum = store->config.options.checksum;
    bool crc32c = checksum == CAIRN_S3_CHECKSUM_AUTO || checksum == CAIRN_S3_CHECKSUM_CRC32C;
    store->base.profile = (struct cairn_store_profile){
        .over_network = true,
        .read_is_durable = true,
        .presigns = true,
        .create_only_put = aws,
        .create_only_complete = aws,
        .part_checksum = (aws && crc32c) || checksum == CAIRN_S3_CHECKSUM_MD5,
        .head_has_token = true,
        .lists_uploads = true,
        .lists_part_checksums = aws && crc32c,
        .part_bytes_min = 5 * CAIRN_MIB,
        .part_bytes_max = 5 * GIB,
        .part_count_max = 10000,
        .object_bytes_max = 5 * 1024 * GIB,
    };
    atomic_store(&store->upload_checksum, aws ? CAIRN_S3_UPLOAD_FULL : CAIRN_S3_UPLOAD_IGNORED);
    if (!aws)
        snprintf(store->base.profile.note, sizeof store->base.profile.note,
                 "endpoint %s://%.150s: what it verifies is not known until it was tested",
                 store->config.scheme, store->config.host);
}

static enum cairn_code start_parts(struct cairn_s3_store *store,
                                   const struct cairn_store_options *options,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_s3_config_init(&store->config, options->url, options->s3, err));
    struct cairn_credentials_options keys = {.profile = store->config.options.profile,
                                             .profile_alone = store->config.profile_alone,
                                             .sts_url = store->config.sts_endpoint,
                                             .region = store->config.region,
                                             .ca_bundle = store->config.options.ca_bundle,
                                             .allow_plain_http =
                                                 store->config.options.allow_plain_http,
                                             .fips = store->config.switches.fips,
                                             .clock = store->clock};
    CAIRN_TRY(cairn_credentials_provider_new(&keys, &store->credentials, err));
    struct cairn_retry_options retry = {.clock = store->clock,
                                        .concurrency_max = store->config.options.requests_max};
    cairn_random(&retry.seed, sizeof retry.seed);
    cairn_retry_init(&store->locked.retry, &retry);
    memcpy(store->locked.region, store->config.region, sizeof store->locked.region);
    atomic_store(&store->checksum, (int)store->config.options.checksum);
    atomic_store(&store->signs_payload, store->config.options.sign_payload);
    const char *query = store->config.query;
    snprintf(store->base.url, sizeof store->base.url, "s3://%s/%s%s%s", store->config.bucket,
             store->config.prefix, query ? "?" : "", query ? query : "");
    set_profile(store);
    return CAIRN_OK;
}

enum cairn_code cairn_store_s3_open(const struct cairn_store_options *options,
                                    struct cairn_store **ret, struct cairn_error *err) {
    struct cairn_s3_store *store = calloc(1, sizeof *store);
    if (!store) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a store");
    cairn_lock_init(&store->lock, CAIRN_LOCK_store_state);
    store->base.vtable = &s3_vtable;
    store->clock = options->clock ? options->clock : &cairn_clock_real;
    store->read_only = options->read_only;
    enum cairn_code code = start_parts(store, options, err);
    if (code) {
        s3_free(&store->base);
        return code;
    }
    *ret = &store->base;
    return CAIRN_OK;
}

bool cairn_store_s3_place(struct cairn_store *base, struct cairn_store_s3_place *ret) {
    struct cairn_s3_store *store = NULL;
    struct cairn_s3_host host;
    if (cairn_s3_of(base, &store, NULL) != CAIRN_OK) return false;
    cairn_lock_take(&store->lock);
    memcpy(ret->region, store->locked.region, sizeof ret->region);
    cairn_lock_give(&store->lock);
    cairn_s3_config_host(&store->config, ret->region, &host);
    snprintf(ret->endpoint, sizeof ret->endpoint, "%s://%s%s", store->config.scheme, host.text,
             store->config.base_path);
    ret->addressing = store->config.by_path ? "path" : "virtual";
    return true;
}

enum cairn_http_tls_fault cairn_store_s3_tls_fault(struct cairn_store *base) {
    struct cairn_s3_store *store = NULL;
    if (cairn_s3_of(base, &store, NULL) != CAIRN_OK) return CAIRN_HTTP_TLS_FINE;
    return (enum cairn_http_tls_fault)atomic_load(&store->tls_fault);
}

/* ---- a bucket's lifecycle rules and the store's objects ---- */

#define RULE "LifecycleConfiguration/Rule"

/* True for a storage class whose objects must be restored before a read. NULL: false. */
static bool is_cold_class(const char *storage_class) {
    static const char *const cold[] = {"GLACIER", "DEEP_ARCHIVE", "ARCHIVE", "COLD_ARCHIVE",
                                       "DEEP_COLD_ARCHIVE"};
    for (size_t i = 0; storage_class && i < CAIRN_COUNT(cold); i++)
        if (!strcmp(storage_class, cold[i])) return true;
    return false;
}

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

/* A rule covers all our objects if its prefix begins ours, and some if ours begins its prefix. */
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
    if (!strcmp(path, RULE "/Transition/StorageClass") && is_cold_class(text))
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

bool cairn_store_s3_writes_cold(struct cairn_store *base) {
    struct cairn_s3_store *store = NULL;
    return cairn_s3_of(base, &store, NULL) == CAIRN_OK &&
           is_cold_class(store->config.options.storage_class);
}

struct search {
    const char *path, *text;
    bool found;
};

static enum cairn_code match_element(void *owner, const char *path, const char *text,
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
    struct cairn_xml_walk walk = {.root = root, .ended = match_element, .owner = &search};
    return cairn_xml_walk_run(&walk, cairn_buf_view(&answer->document), NULL) == CAIRN_OK &&
           search.found;
}

/* Rare and small, so it is sent as a presigned URL over an engine of its own. */
#define ASK_MS 10000
#define ASK_BYTES_MAX (256 * CAIRN_KIB)

static void keep_date(struct cairn_http_request *http, struct cairn_view name,
                      struct cairn_view value) {
    char *date = http->owner;
    if (name.size == 4 && !strncasecmp(name.data, "date", 4) && value.size < 64) {
        memcpy(date, value.data, value.size);
        date[value.size] = '\0';
    }
}

static uint32_t ask_ms(const struct cairn_s3_store *store) {
    uint64_t now_ms = cairn_s3_mono_ms(store);
    uint64_t deadline_ms = cairn_s3_probe_deadline_ms(store, ASK_MS);
    return deadline_ms > now_ms ? (uint32_t)(deadline_ms - now_ms) : 1;
}

enum cairn_code cairn_store_s3_query(struct cairn_store *base, const char *subresource,
                                     struct cairn_store_s3_answer *ret, struct cairn_error *err) {
    struct cairn_s3_store *store = NULL;
    CAIRN_TRY(cairn_s3_of(base, &store, err));
    const struct cairn_store_s3_options *options = &store->config.options;
    struct cairn_http_options http = {.ca_bundle = options->ca_bundle,
                                      .connect_ms = options->connect_ms,
                                      .interface_name =
                                          options->interface_count ? options->interfaces[0] : NULL};
    CAIRN_AUTO(buf) url = {0};
    char date[64] = "";
    CAIRN_AUTO(sigv4_signer) signer = {0};
    uint64_t generation = 0;
    bool expires = false;
    CAIRN_TRY(cairn_s3_signer_update(store, &signer, &generation, 0, &expires, err));
    const struct cairn_s3_presigned what = {.subresource = subresource, .expires_s = ASK_MS / 1000};
    CAIRN_TRY(cairn_s3_presign_get(store, &signer, &what, &url, err));
    struct cairn_http_engine *engine = NULL;
    CAIRN_TRY(cairn_http_engine_new(&http, &engine, err));
    cairn_buf_clear(&ret->document);
    ret->document.limit = ASK_BYTES_MAX;
    struct cairn_http_request request = {.method = "GET",
                                         .url = url.data,
                                         .reply_buf = &ret->document,
                                         .total_ms = ask_ms(store),
                                         .on_header = keep_date,
                                         .owner = date};
    int64_t sent_ms = store->clock->wall_ms(store->clock);
    enum cairn_code code = cairn_http_perform(engine, &request, err);
    ret->status = request.status;
    int64_t theirs = 0;
    if (*date && cairn_s3_time_http(date, &theirs, NULL) == CAIRN_OK) {
        int64_t middle_ms = (sent_ms + store->clock->wall_ms(store->clock)) / 2;
        ret->has_clock = true;
        ret->clock_ahead_ms = (theirs - middle_ms) / 1000 * 1000;
    }
    cairn_http_engine_free(engine);
    return code;
}
