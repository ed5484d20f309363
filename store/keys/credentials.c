/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of keys for all threads. One thread sets `loading` and loads, unlocked; others use
 * present keys or wait.
 */
#include "store/keys/credentials.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/file.h"
#include "common/http/http.h"
#include "common/lock.h"
#include "common/text.h"
#include "store/keys/inside.h"
#include "store/keys/profile.h"
#include "store/time.h"
#include "store/xml/xml.h"

#define RENEW_BEFORE_MS (5 * 60 * 1000)
/* New keys are used at least this long, however our clock and the source's differ. */
#define LIFE_MS_MIN (60 * 1000)
#define RETRY_AFTER_MS (10 * 1000)
#define WAIT_MS 90000 /* a program may take 60 s */
/* Interval between checks of the shared files: two calls of stat. */
#define LOOK_EVERY_MS 1000

enum { ENVIRONMENT, PROFILE, WEB_IDENTITY, CONTAINER, METADATA };
static const struct cairn_credentials_source sources[] = {
    [ENVIRONMENT] = {"; a token in AWS_SESSION_TOKEN ends, and a running process gets no new "
                     "variables: restart it with new keys, or keep "
                     "them in a credentials file, which is read again",
                     cairn_credentials_environment},
    [PROFILE] = {"; the files are read again as soon as they change", cairn_credentials_profile},
    [WEB_IDENTITY] = {"", cairn_credentials_web_identity},
    [CONTAINER] = {"", cairn_credentials_container},
    [METADATA] = {"", cairn_credentials_metadata},
};
/* Order of trying (credentials.h#1). The second applies if the profile was named; with
 * profile_alone only its first source (credentials.h#6). */
static const int orders[2][CAIRN_COUNT(sources)] = {
    {ENVIRONMENT, PROFILE, WEB_IDENTITY, CONTAINER, METADATA},
    {PROFILE, ENVIRONMENT, WEB_IDENTITY, CONTAINER, METADATA},
};

struct cairn_credentials_provider {
    struct cairn_credentials_options options;
    char *profile, *region, *ca_bundle, *container_url, *metadata_url, *sts_url;
    _Atomic uint64_t generation, renew_at_ms; /* copies that are read without the lock */
    /* Stamp of the shared files when last read; 0: the keys are not from there. */
    _Atomic uint64_t stamp, look_at_ms;
    struct cairn_lock lock;
    struct cairn_condition changed;
    struct {
        struct cairn_credentials keys;
        uint64_t ends_at_ms; /* mono clock; UINT64_MAX: never */
        const struct cairn_credentials_source *winner;
        bool loading;
        /* A source that took seconds to fail is not called for as long: callers get this error. */
        struct cairn_error failure;
        uint64_t quiet_until_ms; /* mono clock */
    } locked;
};

void cairn_credentials_describe(const struct cairn_credentials *credentials, char ret_text[224]) {
    char until[32];
    if (!credentials->expires_ms) {
        snprintf(ret_text, 224, "%s", credentials->source);
        return;
    }
    cairn_time_text(credentials->expires_ms, false, until);
    snprintf(ret_text, 224, "%s, until %s", credentials->source, until);
}

static enum cairn_code copy_text(const char *text, char **ret, struct cairn_error *err) {
    *ret = text && *text ? strdup(text) : NULL;
    if (text && *text && !*ret) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for settings");
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_provider_new(const struct cairn_credentials_options *options,
                                               struct cairn_credentials_provider **ret,
                                               struct cairn_error *err) {
    struct cairn_credentials_provider *provider = calloc(1, sizeof *provider);
    if (!provider) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for credentials");
    cairn_lock_init(&provider->lock, CAIRN_LOCK_store_credentials);
    cairn_condition_init(&provider->changed);
    CAIRN_AUTO_PTR(credentials_provider) owned = provider;
    CAIRN_TRY(copy_text(options->profile, &provider->profile, err));
    CAIRN_TRY(copy_text(options->region, &provider->region, err));
    CAIRN_TRY(copy_text(options->ca_bundle, &provider->ca_bundle, err));
    CAIRN_TRY(copy_text(options->container_url, &provider->container_url, err));
    CAIRN_TRY(copy_text(options->metadata_url, &provider->metadata_url, err));
    CAIRN_TRY(copy_text(options->sts_url, &provider->sts_url, err));
    CAIRN_ASSERT(!options->profile_alone || provider->profile);
    provider->options = (struct cairn_credentials_options){
        .profile = provider->profile,
        .region = provider->region,
        .ca_bundle = provider->ca_bundle,
        .container_url = provider->container_url,
        .metadata_url = provider->metadata_url,
        .sts_url = provider->sts_url,
        .profile_alone = options->profile_alone,
        .allow_plain_http = options->allow_plain_http,
        .fips = options->fips,
        .process_ms = options->process_ms,
        .clock = options->clock ? options->clock : &cairn_clock_real,
    };
    *ret = CAIRN_TAKE(owned);
    return CAIRN_OK;
}

void cairn_credentials_provider_free(struct cairn_credentials_provider *provider) {
    if (!provider) return;
    cairn_credentials_release(&provider->locked.keys);
    cairn_condition_release(&provider->changed);
    cairn_lock_release(&provider->lock);
    free(provider->profile);
    free(provider->region);
    free(provider->ca_bundle);
    free(provider->container_url);
    free(provider->metadata_url);
    free(provider->sts_url);
    free(provider);
}

static enum cairn_code load_keys(const struct cairn_credentials_options *options,
                                 const struct cairn_credentials_source **winner,
                                 struct cairn_credentials *ret, struct cairn_error *err) {
    if (!*winner) {
        const int *order = orders[options->profile != NULL];
        size_t count = options->profile_alone ? 1 : CAIRN_COUNT(sources);
        for (size_t i = 0; i < count; i++) {
            const struct cairn_credentials_source *source = &sources[order[i]];
            bool found = false;
            CAIRN_TRY(source->load(options, ret, &found, err));
            if (!found) continue;
            *winner = source;
            return CAIRN_OK;
        }
        if (options->profile_alone)
            return cairn_fail(
                err, CAIRN_UNAUTHORIZED,
                "no credentials: the store's URL names profile \"%.60s\", which holds no "
                "key, and keys of elsewhere are not for it",
                options->profile);
        return cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "no credentials: AWS_ACCESS_KEY_ID is not set, the profile holds no key, "
                          "and there is no web identity, container endpoint or instance metadata");
    }
    bool found = false;
    CAIRN_TRY((*winner)->load(options, ret, &found, err));
    if (!found) return cairn_fail(err, CAIRN_UNAUTHORIZED, "the source of the credentials is gone");
    return CAIRN_OK;
}

static uint64_t mono_ms(const struct cairn_credentials_provider *provider) {
    return provider->options.clock->mono_ms(provider->options.clock);
}

static bool same_keys(const struct cairn_credentials *a, const struct cairn_credentials *b) {
    return !strcmp(a->access_key, b->access_key) && cairn_secret_equal(&a->secret, &b->secret) &&
           cairn_secret_equal(&a->token, &b->token);
}

/* Lock held on entry and return, but not while loading. */
static enum cairn_code renew_keys(struct cairn_credentials_provider *provider, bool refused,
                                  struct cairn_error *err) {
    struct cairn_credentials fresh = {0};
    const struct cairn_credentials_source *winner = provider->locked.winner;
    provider->locked.loading = true;
    cairn_lock_give(&provider->lock);
    uint64_t began = mono_ms(provider);
    uint64_t stamp = cairn_profile_stamp(); /* before reading, to see later changes */
    enum cairn_code code = load_keys(&provider->options, &winner, &fresh, err);
    cairn_lock_take(&provider->lock);
    provider->locked.loading = false;
    provider->locked.winner = winner;
    atomic_store(&provider->stamp, winner == &sources[PROFILE] ? stamp : 0);
    if (!code && refused && same_keys(&fresh, &provider->locked.keys))
        code = cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "the store calls the credentials ended and %s has no others%s",
                          fresh.source, winner->advice);
    if (!code) {
        uint64_t generation = provider->locked.keys.generation + 1, now = mono_ms(provider);
        cairn_credentials_release(&provider->locked.keys);
        provider->locked.keys = fresh;
        fresh = (struct cairn_credentials){0};
        provider->locked.keys.generation = generation;
        uint64_t renew_at = UINT64_MAX;
        provider->locked.ends_at_ms = UINT64_MAX;
        if (provider->locked.keys.expires_ms) {
            int64_t wall = provider->options.clock->wall_ms(provider->options.clock);
            int64_t left = provider->locked.keys.expires_ms - wall;
            uint64_t life = left > LIFE_MS_MIN ? (uint64_t)left : LIFE_MS_MIN;
            provider->locked.ends_at_ms = now + life;
            renew_at = now + (life > 2 * RENEW_BEFORE_MS ? life - RENEW_BEFORE_MS : life / 2);
        }
        atomic_store(&provider->renew_at_ms, renew_at);
        atomic_store(&provider->generation, generation);
    }
    if (code) {
        uint64_t now = mono_ms(provider);
        atomic_store(&provider->renew_at_ms, now + RETRY_AFTER_MS);
        provider->locked.quiet_until_ms = now + (now - began);
        provider->locked.failure = *err;
    }
    cairn_credentials_release(&fresh);
    cairn_condition_broadcast(&provider->changed);
    return code;
}

static enum cairn_code copy_keys(const struct cairn_credentials *from,
                                 struct cairn_credentials *ret, struct cairn_error *err) {
    cairn_credentials_release(ret);
    CAIRN_TRY(cairn_secret_copy(&ret->secret, &from->secret, err));
    CAIRN_TRY(cairn_secret_copy(&ret->token, &from->token, err));
    memcpy(ret->access_key, from->access_key, sizeof ret->access_key);
    memcpy(ret->source, from->source, sizeof ret->source);
    ret->expires_ms = from->expires_ms;
    ret->generation = from->generation;
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_get(struct cairn_credentials_provider *provider,
                                      uint64_t refused_generation, struct cairn_credentials *ret,
                                      struct cairn_error *err) {
    uint64_t deadline = cairn_mono_ms() + WAIT_MS;
    CAIRN_HOLD(&provider->lock);
    for (;;) {
        const struct cairn_credentials *keys = &provider->locked.keys;
        uint64_t now = mono_ms(provider);
        bool refused = refused_generation && keys->generation == refused_generation;
        bool usable = keys->generation && !refused && now < provider->locked.ends_at_ms;
        bool due = now >= atomic_load(&provider->renew_at_ms);
        if (usable && (!due || provider->locked.loading)) return copy_keys(keys, ret, err);
        if (provider->locked.loading) {
            if (!cairn_condition_wait(&provider->changed, &provider->lock, deadline))
                return cairn_fail(err, CAIRN_UNAVAILABLE, "no credentials within %d s",
                                  WAIT_MS / 1000);
            continue;
        }
        bool quiet = now < provider->locked.quiet_until_ms;
        struct cairn_error why = {0};
        if (quiet) why = provider->locked.failure;
        enum cairn_code code = quiet ? why.code : renew_keys(provider, refused, &why);
        if (code && !usable) return cairn_pass(err, code, &why);
        /* The old keys are still valid: retry later. */
        return copy_keys(&provider->locked.keys, ret, err);
    }
}

int64_t cairn_credentials_until_ms(struct cairn_credentials_provider *provider) {
    CAIRN_HOLD(&provider->lock);
    return provider->locked.keys.expires_ms;
}

/* Checks the shared files now and then; a change makes a renewal due. */
static bool files_changed(struct cairn_credentials_provider *provider, uint64_t now) {
    uint64_t stamp = atomic_load(&provider->stamp), look_at = atomic_load(&provider->look_at_ms);
    if (!stamp || now < look_at) return false;
    atomic_store(&provider->look_at_ms, now + LOOK_EVERY_MS);
    if (cairn_profile_stamp() == stamp) return false;
    atomic_store(&provider->renew_at_ms, 0);
    return true;
}

bool cairn_credentials_current(struct cairn_credentials_provider *provider, uint64_t generation) {
    uint64_t now = mono_ms(provider);
    return generation && atomic_load(&provider->generation) == generation &&
           now < atomic_load(&provider->renew_at_ms) && !files_changed(provider, now);
}

bool cairn_credentials_exposed(struct cairn_credentials_provider *provider,
                               char ret_text[CAIRN_CREDENTIALS_EXPOSED_BYTES]) {
    if (!atomic_load(&provider->stamp)) return false;
    return cairn_profile_exposed(provider->options.profile, ret_text);
}

void cairn_credentials_release(struct cairn_credentials *credentials) {
    cairn_secret_release(&credentials->secret);
    cairn_secret_release(&credentials->token);
    *credentials = (struct cairn_credentials){0};
}

const char *cairn_credentials_variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

enum cairn_code cairn_credentials_set(struct cairn_credentials *ret, const char *access_key,
                                      const char *secret, const char *token,
                                      struct cairn_error *err) {
    if (!cairn_text_copy(ret->access_key, sizeof ret->access_key, access_key))
        return cairn_fail(err, CAIRN_INVALID, "the access key id is longer than 255 bytes");
    for (const char *at = access_key; *at; at++)
        if (*at <= ' ' || *at > '~' || *at == '/' || *at == ',')
            return cairn_fail(err, CAIRN_INVALID, "the access key id holds a byte it cannot hold");
    for (const char *at = token ? token : ""; *at; at++)
        if (*at <= ' ' || *at > '~')
            return cairn_fail(err, CAIRN_INVALID, "the session token holds a byte it cannot hold");
    if (strlen(secret) > 256)
        return cairn_fail(err, CAIRN_INVALID, "the secret access key is longer than 256 bytes");
    CAIRN_TRY(cairn_secret_set(&ret->secret, cairn_view_of(secret), err));
    return cairn_secret_set(&ret->token, cairn_view_of(token ? token : ""), err);
}

/* ---- partitions by prefixes of region names ---- */

static const struct partition {
    const char *begins, *domain;
    bool dual_stack;
} partitions[] = {
    {"cn-", "amazonaws.com.cn", true},     {"us-isob-", "sc2s.sgov.gov", false},
    {"us-isof-", "csp.hci.ic.gov", false}, {"us-iso-", "c2s.ic.gov", false},
    {"eu-isoe-", "cloud.adc-e.uk", false}, {"eusc-", "amazonaws.eu", true},
    {"", "amazonaws.com", true},
};

static const struct partition *partition_of(const char *region) {
    size_t at = 0;
    while (strncmp(region, partitions[at].begins, strlen(partitions[at].begins)) != 0) at++;
    return &partitions[at];
}

const char *cairn_aws_domain(const char *region) {
    return partition_of(region)->domain;
}

bool cairn_aws_has_dual_stack(const char *region) {
    return partition_of(region)->dual_stack;
}

void cairn_credentials_wipe(struct cairn_buf *buf) {
    if (buf->data) explicit_bzero(buf->data, buf->capacity);
    cairn_buf_release(buf);
}

static void keep_date(struct cairn_http_request *request, struct cairn_view name,
                      struct cairn_view value) {
    struct cairn_credentials_call *call = request->owner;
    if (name.size != 4 || strncasecmp(name.data, "Date", 4) != 0 || value.size >= sizeof call->date)
        return;
    memcpy(call->date, value.data, value.size);
    call->date[value.size] = '\0';
}

enum cairn_code cairn_credentials_fetch(struct cairn_credentials_call *call, struct cairn_buf *ret,
                                        struct cairn_error *err) {
    struct cairn_http_engine *engine = NULL;
    struct cairn_http_options options = {
        .connections_max = 1, .connect_ms = call->ms, .ca_bundle = call->ca_bundle};
    CAIRN_TRY(cairn_http_engine_new(&options, &engine, err));
    struct cairn_http_request request = {
        .method = call->method,
        .url = call->url,
        .headers = call->headers,
        .header_count = call->header_count,
        .body = call->body,
        .has_body = !strcmp(call->method, "POST") || !strcmp(call->method, "PUT"),
        .reply_buf = ret,
        .total_ms = call->ms,
        .stall_ms = call->ms,
        .on_header = keep_date,
        .owner = call,
    };
    enum cairn_code code = cairn_http_perform(engine, &request, err);
    cairn_http_engine_free(engine);
    call->status = request.status;
    call->reached = request.reached;
    if (code) return cairn_within(err, code, "%s", call->source);
    if (request.status == 200) return CAIRN_OK;
    struct cairn_xml_problem problem = {0};
    if (!cairn_xml_problem_read(cairn_buf_view(ret), &problem)) problem.code[0] = '\0';
    bool later = request.status >= 500 || request.status == 429;
    code = cairn_fail(err, later ? CAIRN_UNAVAILABLE : CAIRN_UNAUTHORIZED, "%s answered %d%s%s",
                      call->source, request.status, problem.code[0] ? " " : "", problem.code);
    if (err) err->http_status = request.status;
    return code;
}

enum cairn_code cairn_credentials_add_header(struct cairn_credentials_call *call,
                                             struct cairn_buf *line, const char *name,
                                             const char *value, struct cairn_error *err) {
    CAIRN_ASSERT(call->header_count < CAIRN_CREDENTIALS_HEADERS_MAX);
    if (strpbrk(value, "\r\n"))
        return cairn_fail(err, CAIRN_INVALID, "the value for %s holds a line break", name);
    CAIRN_TRY(cairn_buf_printf(line, err, "%s: %s", name, value));
    call->headers[call->header_count++] = line->data;
    return CAIRN_OK;
}

bool cairn_credentials_may_go_to(const char *url) {
    static const char *const hosts[] = {"127.",          "localhost",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    struct cairn_url parts;
    if (!cairn_url_split(url, &parts)) return false;
    if (!cairn_url_is(&parts, "http")) return cairn_url_is(&parts, "https");
    const char *host = parts.host.data;
    if (memchr(host, '@', parts.host.size)) return false;
    for (size_t i = 0; i < CAIRN_COUNT(hosts); i++) {
        size_t wanted = strlen(hosts[i]);
        if (strncmp(host, hosts[i], wanted) != 0) continue;
        if (!i) return strspn(host, "0123456789.") == strcspn(host, ":/?#");
        if (!host[wanted] || strchr(":/?#", host[wanted])) return true;
    }
    return false;
}

enum cairn_code cairn_credentials_load_token(const char *path, struct cairn_buf *ret,
                                             struct cairn_error *err) {
    CAIRN_TRY(cairn_file_load_line(path, ret, err));
    if (!ret->size) return cairn_fail(err, CAIRN_UNAUTHORIZED, "%s is empty", path);
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_parse(struct cairn_view text, json_t **ret_json,
                                        struct cairn_error *err) {
    if (cairn_json_parse(text, (struct cairn_json_limits){0}, ret_json, NULL) == CAIRN_OK)
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "what it answered is no JSON document");
}

enum cairn_code cairn_credentials_take_json(const json_t *json, const char *token_name,
                                            struct cairn_credentials *ret,
                                            struct cairn_error *err) {
    const char *access_key = NULL, *secret = NULL, *token = NULL, *expiration = NULL;
    struct cairn_json_field fields[] = {
        {"AccessKeyId", CAIRN_JSON_TEXT, true, &access_key, 0},
        {"SecretAccessKey", CAIRN_JSON_TEXT, true, &secret, 0},
        {token_name, CAIRN_JSON_TEXT, false, &token, CAIRN_SECRET_BYTES_MAX},
        {"Expiration", CAIRN_JSON_TEXT, false, &expiration, 0},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    CAIRN_TRY(cairn_credentials_set(ret, access_key, secret, token, err));
    if (!expiration || cairn_s3_time_any(expiration, &ret->expires_ms)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_PROTOCOL, "\"%.40s\" is no time", expiration);
}

/* ---- container endpoint and instance metadata ---- */

/* Timeouts of the tries of instance metadata. Outside of AWS the address is a black hole, to be
 * noticed soon: only an address that accepts connections gets the longer ones. */
static const uint32_t metadata_ms[] = {1000, 2000, 4000};

static enum cairn_code ask_metadata(struct cairn_credentials_call *call, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < CAIRN_COUNT(metadata_ms); i++) {
        call->ms = metadata_ms[call->reached ? i : 0];
        cairn_buf_clear(ret);
        code = cairn_credentials_fetch(call, ret, err);
        bool passes = !call->status || call->status == 429 || call->status >= 500;
        if (!code || !passes) break;
    }
    return code;
}

static enum cairn_code container_url(const struct cairn_credentials_options *options,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    const char *relative = cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *base = options->container_url ? options->container_url : "http://169.254.170.2";
    if (relative && relative[0] != '/')
        return cairn_fail(err, CAIRN_INVALID,
                          "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with /");
    if (relative) return cairn_buf_printf(ret, err, "%s%s", base, relative);
    if (!cairn_credentials_may_go_to(full))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of "
                          "this machine");
    return cairn_buf_printf(ret, err, "%s", full);
}

static enum cairn_code container_token(struct cairn_buf *ret, struct cairn_error *err) {
    const char *file = cairn_credentials_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = cairn_credentials_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (file) return cairn_credentials_load_token(file, ret, err);
    return token ? cairn_buf_append_text(ret, token, err) : CAIRN_OK;
}

static enum cairn_code ask_container(const struct cairn_credentials_options *options,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_SECRET_BUF token = {.limit = CAIRN_SECRET_BYTES_MAX};
    CAIRN_SECRET_BUF line = {.limit = CAIRN_SECRET_BYTES_MAX};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    CAIRN_TRY(container_url(options, &url, err));
    CAIRN_TRY(container_token(&token, err));
    struct cairn_credentials_call call = {.source = "its server",
                                          .method = "GET",
                                          .url = url.data,
                                          .ms = CAIRN_CREDENTIALS_ANSWER_MS,
                                          .ca_bundle = options->ca_bundle};
    if (token.size)
        CAIRN_TRY(cairn_credentials_add_header(&call, &line, "Authorization", token.data, err));
    CAIRN_TRY(cairn_credentials_fetch(&call, &answer, err));
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_credentials_parse(cairn_buf_view(&answer), &json, err));
    return cairn_credentials_take_json(json, "Token", ret, err);
}

enum cairn_code cairn_credentials_container(const struct cairn_credentials_options *options,
                                            struct cairn_credentials *ret, bool *ret_found,
                                            struct cairn_error *err) {
    if (!cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") &&
        !cairn_credentials_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
        return CAIRN_OK;
    *ret_found = true;
    enum cairn_code code = ask_container(options, ret, err);
    if (code) return cairn_within(err, code, "container endpoint");
    snprintf(ret->source, sizeof ret->source, "container endpoint");
    return CAIRN_OK;
}

#define ROLES_PATH "/latest/meta-data/iam/security-credentials/"

/* Gets a session token (version 2). Any other answer is an error, since a user sees only that there
 * are no keys; *ret_there false: the address accepts no connections. */
static enum cairn_code ask_session(const char *base, struct cairn_buf *ret_token, bool *ret_there,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s/latest/api/token", base));
    struct cairn_credentials_call call = {
        .source = "instance metadata",
        .method = "PUT",
        .url = url.data,
        .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
        .header_count = 1,
    };
    enum cairn_code code = ask_metadata(&call, ret_token, &why);
    *ret_there = call.reached || call.status;
    if (!code && ret_token->size) return CAIRN_OK;
    if (!call.status)
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "%.100s takes connections and does not answer, %zu times: in a container "
                          "its hop limit must be 2 (aws ec2 modify-instance-metadata-options "
                          "--http-put-response-hop-limit 2), and no proxy may stand before it",
                          base, CAIRN_COUNT(metadata_ms));
    return cairn_fail(err, CAIRN_UNAUTHORIZED,
                      "%.100s answered %d where a session token was asked for (PUT "
                      "/latest/api/token); only version 2 of the service is used",
                      base, call.status);
}

static enum cairn_code ask_role(const char *base, const char *token_line,
                                struct cairn_buf *ret_role, struct cairn_error *err) {
    CAIRN_AUTO(buf) url = {0};
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s" ROLES_PATH, base));
    struct cairn_credentials_call call = {.source = "it",
                                          .method = "GET",
                                          .url = url.data,
                                          .headers = {token_line},
                                          .header_count = 1};
    enum cairn_code code = ask_metadata(&call, ret_role, err);
    if (code && call.status == 404)
        return cairn_fail(err, code, "it answered 404: this instance has no role");
    CAIRN_TRY(code);
    if (ret_role->data) ret_role->data[strcspn(ret_role->data, "\r\n")] = '\0';
    return CAIRN_OK;
}

static enum cairn_code ask_role_keys(const char *base, const char *token_line,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) role = {.limit = 1024};
    CAIRN_AUTO(buf) url = {0};
    CAIRN_SECRET_BUF answer = {.limit = CAIRN_CREDENTIALS_ANSWER_BYTES_MAX};
    CAIRN_TRY(ask_role(base, token_line, &role, err));
    const char *name = role.data ? role.data : "";
    CAIRN_TRY(cairn_buf_printf(&url, err, "%s" ROLES_PATH, base));
    CAIRN_TRY(cairn_percent_encode(cairn_view_of(name), false, &url, err));
    struct cairn_credentials_call call = {.source = "it",
                                          .method = "GET",
                                          .url = url.data,
                                          .headers = {token_line},
                                          .header_count = 1};
    CAIRN_TRY(ask_metadata(&call, &answer, err));
    /* Also with status 200: {"Code": "AssumeRoleUnauthorizedAccess", "Message": ...}, without a
     * key. */
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_credentials_parse(cairn_buf_view(&answer), &json, err));
    const char *code = json_string_value(json_object_get(json, "Code"));
    const char *message = json_string_value(json_object_get(json, "Message"));
    if (code && strcmp(code, "Success") != 0)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "role %.80s: %.80s%s%.200s", name, code,
                          message ? ": " : "", message ? message : "");
    CAIRN_TRY(cairn_credentials_take_json(json, "Token", ret, err));
    snprintf(ret->source, sizeof ret->source, "instance metadata, role %.80s", name);
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_metadata(const struct cairn_credentials_options *options,
                                           struct cairn_credentials *ret, bool *ret_found,
                                           struct cairn_error *err) {
    const char *disabled = cairn_credentials_variable("AWS_EC2_METADATA_DISABLED");
    if (disabled && (!strcmp(disabled, "true") || !strcmp(disabled, "1"))) return CAIRN_OK;
    const char *base = options->metadata_url;
    if (!base) base = cairn_credentials_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (!base) base = "http://169.254.169.254";
    CAIRN_SECRET_BUF token = {.limit = 8192};
    CAIRN_SECRET_BUF line = {.limit = 8192};
    struct cairn_error why = {0};
    enum cairn_code code = ask_session(base, &token, ret_found, &why);
    /* Outside of AWS no metadata service is normal. */
    if (!*ret_found) return CAIRN_OK;
    if (code && err) *err = why;
    if (code) return cairn_within(err, code, "instance metadata");
    struct cairn_credentials_call call = {0};
    CAIRN_TRY(
        cairn_credentials_add_header(&call, &line, "X-aws-ec2-metadata-token", token.data, err));
    code = ask_role_keys(base, line.data, ret, err);
    return cairn_within(err, code, "instance metadata");
}
