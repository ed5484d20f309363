/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of keys for all threads. Loading happens outside the lock, by the thread that set
 * `loading`; everyone else takes what is there or waits for it.
 */
#include "store/keys/credentials.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/lock.h"
#include "common/text.h"
#include "store/keys/inside.h"
#include "store/keys/keys.h"
#include "store/keys/profile.h"

#define RENEW_BEFORE_MS (5 * 60 * 1000)
/* However our clock stands to the source's: new keys are used at least this long. */
#define LIFE_MS_MIN (60 * 1000)
#define RETRY_AFTER_MS (10 * 1000)
#define WAIT_MS 90000 /* a program may take 60 s */
/* How often the shared files are looked at: two calls of stat. */
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
/* In which they are tried (credentials.h#1); the second where the profile was named, of which only
 * the first counts where it is alone (credentials.h#6). */
static const int orders[2][CAIRN_COUNT(sources)] = {
    {ENVIRONMENT, PROFILE, WEB_IDENTITY, CONTAINER, METADATA},
    {PROFILE, ENVIRONMENT, WEB_IDENTITY, CONTAINER, METADATA},
};

struct cairn_credentials_provider {
    struct cairn_credentials_options options;
    char *profile, *region, *ca_bundle, *container_url, *metadata_url, *sts_url;
    _Atomic uint64_t generation, renew_at_ms; /* copies, so that a look needs no lock */
    /* Of the shared files, when they were read last; 0: the keys are not from there. */
    _Atomic uint64_t stamp, look_at_ms;
    struct cairn_lock lock;
    struct cairn_condition changed;
    struct {
        struct cairn_credentials keys;
        uint64_t ends_at_ms; /* mono clock; UINT64_MAX: never */
        const struct cairn_credentials_source *winner;
        bool loading;
        /* A source that took seconds to fail is left alone for as long: all who need keys until
         * then are told the same, else they would wait for it one after the other. */
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

/* ---- life ---- */

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

/* ---- loading ---- */

static enum cairn_code load_first(const struct cairn_credentials_options *options,
                                  struct cairn_credentials *ret,
                                  const struct cairn_credentials_source **ret_winner,
                                  struct cairn_error *err) {
    const int *order = orders[options->profile != NULL];
    size_t count = options->profile_alone ? 1 : CAIRN_COUNT(sources);
    for (size_t i = 0; i < count; i++) {
        const struct cairn_credentials_source *source = &sources[order[i]];
        bool found = false;
        CAIRN_TRY(source->load(options, ret, &found, err));
        if (!found) continue;
        *ret_winner = source;
        return CAIRN_OK;
    }
    if (options->profile_alone)
        return cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "no credentials: the store's URL names profile \"%.60s\", which holds no "
                          "key, and keys of elsewhere are not for it",
                          options->profile);
    return cairn_fail(err, CAIRN_UNAUTHORIZED,
                      "no credentials: AWS_ACCESS_KEY_ID is not set, the profile holds no key, "
                      "and there is no web identity, container endpoint or instance metadata");
}

static enum cairn_code load(const struct cairn_credentials_options *options,
                            const struct cairn_credentials_source **winner,
                            struct cairn_credentials *ret, struct cairn_error *err) {
    if (!*winner) return load_first(options, ret, winner, err);
    bool found = false;
    CAIRN_TRY((*winner)->load(options, ret, &found, err));
    if (!found) return cairn_fail(err, CAIRN_UNAUTHORIZED, "the source of the credentials is gone");
    return CAIRN_OK;
}

static uint64_t mono_ms(const struct cairn_credentials_provider *provider) {
    return provider->options.clock->mono_ms(provider->options.clock);
}

/* Under the lock. Takes *taken's secrets over. */
static void publish(struct cairn_credentials_provider *provider, struct cairn_credentials *taken) {
    uint64_t generation = provider->locked.keys.generation + 1, now = mono_ms(provider);
    cairn_credentials_release(&provider->locked.keys);
    provider->locked.keys = *taken;
    *taken = (struct cairn_credentials){0};
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

static bool same_keys(const struct cairn_credentials *a, const struct cairn_credentials *b) {
    return !strcmp(a->access_key, b->access_key) && cairn_secret_equal(&a->secret, &b->secret) &&
           cairn_secret_equal(&a->token, &b->token);
}

/* With the lock held on entry and return; not while loading. */
static enum cairn_code renew(struct cairn_credentials_provider *provider, bool refused,
                             struct cairn_error *err) {
    struct cairn_credentials fresh = {0};
    const struct cairn_credentials_source *winner = provider->locked.winner;
    provider->locked.loading = true;
    cairn_lock_give(&provider->lock);
    uint64_t began = mono_ms(provider);
    uint64_t stamp = cairn_profile_stamp(); /* before they are read: a change after it is seen */
    enum cairn_code code = load(&provider->options, &winner, &fresh, err);
    cairn_lock_take(&provider->lock);
    provider->locked.loading = false;
    provider->locked.winner = winner;
    atomic_store(&provider->stamp, winner == &sources[PROFILE] ? stamp : 0);
    if (!code && refused && same_keys(&fresh, &provider->locked.keys))
        code = cairn_fail(err, CAIRN_UNAUTHORIZED,
                          "the store calls the credentials ended and %s has no others%s",
                          fresh.source, winner->advice);
    if (!code) publish(provider, &fresh);
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
        enum cairn_code code = quiet ? why.code : renew(provider, refused, &why);
        if (code && !usable) {
            if (err) *err = why;
            return code;
        }
        /* The old ones hold still: what went wrong is tried again later. */
        return copy_keys(&provider->locked.keys, ret, err);
    }
}

int64_t cairn_credentials_until_ms(struct cairn_credentials_provider *provider) {
    CAIRN_HOLD(&provider->lock);
    return provider->locked.keys.expires_ms;
}

/* Looks at the shared files now and then; when they were changed, a renewal is due. */
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
