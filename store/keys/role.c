/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a profile to keys: its own, those of a role that other keys assume, or those that a program
 * prints. What the keys of a role come from may be another profile, and so on.
 */
#include <stdio.h>

#include "common/text.h"
#include "store/keys/inside.h"
#include "store/keys/keys.h"
#include "store/keys/profile.h"

#define CHAIN_MAX 8

struct chain {
    const struct cairn_credentials_options *options;
    const struct cairn_profile *profiles[CHAIN_MAX]; /* outermost first */
    size_t count;
};

static enum cairn_code keys_of(struct chain *chain, struct cairn_credentials *ret, bool *ret_found,
                               struct cairn_error *err);

static const struct cairn_profile *last_of(const struct chain *chain) {
    return chain->profiles[chain->count - 1];
}

static bool has_keys(const struct cairn_profile *profile) {
    return cairn_profile_get(profile, "aws_access_key_id") ||
           cairn_profile_get(profile, "aws_secret_access_key");
}

static enum cairn_code take_keys(const struct cairn_profile *profile, struct cairn_credentials *ret,
                                 struct cairn_error *err) {
    const char *access_key = cairn_profile_get(profile, "aws_access_key_id");
    const char *secret = cairn_profile_get(profile, "aws_secret_access_key");
    if (!access_key || !secret)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "profile \"%s\" has one of its two keys only",
                          profile->name);
    CAIRN_TRY(cairn_credentials_set(ret, access_key, secret,
                                    cairn_profile_get(profile, "aws_session_token"), err));
    snprintf(ret->source, sizeof ret->source, "profile %.100s", profile->name);
    return CAIRN_OK;
}

/* ---- roles ---- */

/* "a -> b -> a" */
static enum cairn_code refuse_circle(const struct chain *chain, const char *next,
                                     struct cairn_error *err) {
    char names[200] = "";
    size_t used = 0;
    for (size_t i = 0; i < chain->count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%.40s -> ",
                                 chain->profiles[i]->name);
    return cairn_fail(err, CAIRN_INVALID, "source_profile leads in a circle: %s%.40s", names, next);
}

static enum cairn_code keys_of_source(struct chain *chain, const char *name,
                                      struct cairn_credentials *ret, struct cairn_error *err) {
    const struct cairn_profile *profile = last_of(chain);
    CAIRN_AUTO(profile) source = {0};
    bool found = false;
    /* A profile may be its own source: its keys then assume its role. */
    if (!strcmp(name, profile->name) && has_keys(profile)) return take_keys(profile, ret, err);
    for (size_t i = 0; i < chain->count; i++)
        if (!strcmp(name, chain->profiles[i]->name)) return refuse_circle(chain, name, err);
    if (chain->count == CHAIN_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d profiles, each the source of the next",
                          CHAIN_MAX);
    CAIRN_TRY(cairn_profile_load(name, &source, err));
    if (!source.found)
        return cairn_fail(
            err, CAIRN_INVALID,
            "profile \"%s\" names source_profile \"%s\", which is in neither %s nor %s",
            profile->name, name, source.credentials_path, source.config_path);
    chain->profiles[chain->count++] = &source;
    enum cairn_code code = keys_of(chain, ret, &found, err);
    chain->count--;
    if (!code && !found)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "profile \"%s\" holds no keys", name);
    return code;
}

static enum cairn_code keys_of_named(const struct chain *chain, const char *name,
                                     struct cairn_credentials *ret, struct cairn_error *err) {
    static const struct {
        const char *name;
        enum cairn_code (*load)(const struct cairn_credentials_options *options,
                                struct cairn_credentials *ret, bool *ret_found,
                                struct cairn_error *err);
    } known[] = {{"Environment", cairn_credentials_environment},
                 {"Ec2InstanceMetadata", cairn_credentials_metadata},
                 {"EcsContainer", cairn_credentials_container}};
    for (size_t i = 0; i < CAIRN_COUNT(known); i++) {
        bool found = false;
        if (strcmp(name, known[i].name) != 0) continue;
        CAIRN_TRY(known[i].load(chain->options, ret, &found, err));
        if (found) return CAIRN_OK;
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "credential_source is %s, which has no keys",
                          name);
    }
    return cairn_fail(err, CAIRN_INVALID,
                      "credential_source is \"%.40s\"; it is Environment, Ec2InstanceMetadata or "
                      "EcsContainer",
                      name);
}

static enum cairn_code keys_of_origin(struct chain *chain, struct cairn_credentials *ret,
                                      struct cairn_error *err) {
    const char *source = cairn_profile_get(last_of(chain), "source_profile");
    const char *named = cairn_profile_get(last_of(chain), "credential_source");
    if (source && named)
        return cairn_fail(err, CAIRN_INVALID,
                          "both source_profile and credential_source are given; it can be one");
    if (source) return keys_of_source(chain, source, ret, err);
    if (named) return keys_of_named(chain, named, ret, err);
    return cairn_fail(err, CAIRN_INVALID,
                      "role_arn is given, but neither source_profile, credential_source nor "
                      "web_identity_token_file, whose keys would assume it");
}

static enum cairn_code assume(struct chain *chain, struct cairn_credentials *ret,
                              struct cairn_error *err) {
    const struct cairn_profile *profile = last_of(chain);
    struct cairn_credentials by = {0};
    struct cairn_role role = {
        cairn_profile_get(profile, "role_arn"), cairn_profile_get(profile, "role_session_name"),
        cairn_profile_get(profile, "external_id"), cairn_profile_get(profile, "duration_seconds")};
    if (cairn_profile_get(profile, "mfa_serial"))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "mfa_serial asks a person for a code at each renewal, which a daemon "
                          "cannot; use a role without it");
    enum cairn_code code = keys_of_origin(chain, &by, err);
    if (!code) code = cairn_credentials_assume_role(chain->options, &role, &by, ret, err);
    cairn_credentials_release(&by);
    if (code) return code;
    snprintf(ret->source, sizeof ret->source, "role of profile %.100s", profile->name);
    return CAIRN_OK;
}

static enum cairn_code take_role(struct chain *chain, struct cairn_credentials *ret,
                                 struct cairn_error *err) {
    const struct cairn_profile *profile = last_of(chain);
    struct cairn_web_identity identity = {cairn_profile_get(profile, "role_arn"),
                                          cairn_profile_get(profile, "web_identity_token_file"),
                                          cairn_profile_get(profile, "role_session_name")};
    if (identity.token_file) {
        CAIRN_TRY(cairn_credentials_assume(chain->options, &identity, ret, err));
        snprintf(ret->source, sizeof ret->source, "web identity of profile %.100s", profile->name);
        return CAIRN_OK;
    }
    enum cairn_code code = assume(chain, ret, err);
    return code ? cairn_within(err, code, "profile \"%s\"", profile->name) : CAIRN_OK;
}

/* ---- the rest ---- */

static enum cairn_code take_process(const struct chain *chain, const char *command,
                                    struct cairn_credentials *ret, struct cairn_error *err) {
    const char *name = last_of(chain)->name;
    enum cairn_code code = cairn_credentials_process(command, chain->options->process_ms, ret, err);
    if (code) return cairn_within(err, code, "credential_process of profile \"%s\"", name);
    snprintf(ret->source, sizeof ret->source, "credential_process of profile %.90s", name);
    return CAIRN_OK;
}

/* NULL: without a browser. */
static const char *browser_of(const struct cairn_profile *profile) {
    if (cairn_profile_get(profile, "sso_session") || cairn_profile_get(profile, "sso_start_url"))
        return "SSO";
    return cairn_profile_get(profile, "login_session") ? "`aws login`" : NULL;
}

static enum cairn_code refuse_browser(const struct cairn_profile *profile,
                                      struct cairn_error *err) {
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "profile \"%.60s\" signs in by %s, which needs a browser; write "
                      "credential_process = aws configure export-credentials --profile %.60s "
                      "into another profile and use that",
                      profile->name, browser_of(profile), profile->name);
}

/* Of the last profile of the chain. In the AWS SDKs' order: a role comes before keys where it was
 * asked for, and after them where only keys are wanted, which ends the chain. */
static enum cairn_code keys_of(struct chain *chain, struct cairn_credentials *ret, bool *ret_found,
                               struct cairn_error *err) {
    const struct cairn_profile *profile = last_of(chain);
    const char *command = cairn_profile_get(profile, "credential_process");
    bool is_source = chain->count > 1;
    *ret_found = true;
    if (is_source && has_keys(profile)) return take_keys(profile, ret, err);
    if (cairn_profile_get(profile, "role_arn")) return take_role(chain, ret, err);
    if (has_keys(profile)) return take_keys(profile, ret, err);
    if (command) return take_process(chain, command, ret, err);
    if (browser_of(profile)) return refuse_browser(profile, err);
    *ret_found = false;
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_profile(const struct cairn_credentials_options *options,
                                          struct cairn_credentials *ret, bool *ret_found,
                                          struct cairn_error *err) {
    CAIRN_AUTO(profile) profile = {0};
    CAIRN_TRY(cairn_profile_load(options->profile, &profile, err));
    CAIRN_TRY(cairn_profile_require(&profile, err));
    struct chain chain = {.options = options, .profiles = {&profile}, .count = 1};
    return keys_of(&chain, ret, ret_found, err);
}
