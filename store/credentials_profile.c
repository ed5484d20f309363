/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment and the shared files. A line of an ini file is a section, a setting, a nested
 * setting (indented, below one without a value), or nothing.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/file.h"
#include "common/text.h"
#include "store/credentials_source.h"

#define VALUES_MAX 256

enum cairn_code cairn_credentials_environment(const struct cairn_credentials_options *options,
                                              struct cairn_credentials *ret, bool *ret_found,
                                              struct cairn_error *err) {
    (void)options;
    const char *access_key = cairn_credentials_variable("AWS_ACCESS_KEY_ID");
    const char *secret = cairn_credentials_variable("AWS_SECRET_ACCESS_KEY");
    if (!access_key && !secret) return CAIRN_OK;
    if (!access_key || !secret)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "%s is set but %s is not",
                          access_key ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                          access_key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    CAIRN_TRY(cairn_credentials_set(ret, access_key, secret,
                                    cairn_credentials_variable("AWS_SESSION_TOKEN"), err));
    snprintf(ret->source, sizeof ret->source, "environment");
    *ret_found = true;
    return CAIRN_OK;
}

/* ---- files ---- */

static void free_value(struct cairn_profile_value *value) {
    if (value->value) explicit_bzero(value->value, strlen(value->value));
    free(value->value);
    free(value->name);
    *value = (struct cairn_profile_value){0};
}

void cairn_profile_release(struct cairn_profile *profile) {
    for (size_t i = 0; i < profile->count; i++) free_value(&profile->values[i]);
    free(profile->values);
    *profile = (struct cairn_profile){0};
}

const char *cairn_profile_get(const struct cairn_profile *profile, const char *name) {
    const char *found = NULL;
    for (size_t i = 0; i < profile->count; i++) {
        const struct cairn_profile_value *value = &profile->values[i];
        if (strcmp(value->name, name) != 0) continue;
        if (value->secret_file) return value->value;
        found = value->value;
    }
    return found && *found ? found : NULL;
}

struct reader {
    struct cairn_profile *profile;
    const char *path;
    bool secret_file; /* sections are [name], not [profile name] */
    bool inside;
    char parent[64]; /* "s3" below "s3 =", else "" */
};

static char *trim(char *text) {
    text += strspn(text, " \t");
    size_t size = strlen(text);
    while (size && isspace((unsigned char)text[size - 1])) text[--size] = '\0';
    return text;
}

static void enter_section(struct reader *reader, char *line) {
    char *end = strchr(line, ']');
    if (end) *end = '\0';
    char *name = trim(line + 1);
    bool is_default = !strcmp(reader->profile->name, "default");
    if (!reader->secret_file && !strncmp(name, "profile", 7) && strchr(" \t", name[7]) && name[7])
        name = trim(name + 7);
    else if (!reader->secret_file && !(is_default && !strcmp(name, "default")))
        name = ""; /* sso-session, services, or a profile without the word */
    reader->inside = end && !strcmp(name, reader->profile->name);
    if (reader->inside) reader->profile->found = true;
    reader->parent[0] = '\0';
}

static enum cairn_code add_value(struct reader *reader, const char *parent, const char *name,
                                 const char *value, struct cairn_error *err) {
    struct cairn_profile *profile = reader->profile;
    if (profile->count == VALUES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "%s: more than %d settings in profile \"%s\"",
                          reader->path, VALUES_MAX, profile->name);
    void *grown = realloc(profile->values, (profile->count + 1) * sizeof profile->values[0]);
    if (!grown) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a profile");
    profile->values = grown;
    struct cairn_profile_value *to = &profile->values[profile->count++];
    *to = (struct cairn_profile_value){.secret_file = reader->secret_file};
    size_t size = strlen(parent) + strlen(name) + 2;
    to->name = malloc(size);
    to->value = strdup(value);
    if (!to->name || !to->value) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a profile");
    snprintf(to->name, size, "%s%s%s", parent, *parent ? "." : "", name);
    for (char *at = to->name; *at; at++) *at = (char)tolower((unsigned char)*at);
    return CAIRN_OK;
}

static enum cairn_code take_line(struct reader *reader, char *line, struct cairn_error *err) {
    bool indented = *line == ' ' || *line == '\t';
    char *text = trim(line);
    if (!*text || *text == '#' || *text == ';') return CAIRN_OK;
    if (*text == '[') {
        enter_section(reader, text);
        return CAIRN_OK;
    }
    char *equals = strchr(text, '=');
    if (!reader->inside || !equals) return CAIRN_OK;
    *equals = '\0';
    char *name = trim(text), *value = trim(equals + 1);
    bool nested = indented && reader->parent[0];
    if (!nested) reader->parent[0] = '\0';
    if (!*value) (void)cairn_text_copy(reader->parent, sizeof reader->parent, name);
    return add_value(reader, nested ? reader->parent : "", name, value, err);
}

static enum cairn_code read_file(struct reader *reader, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_file_load(reader->path, &text, &why);
    if (code && why.os_errno == ENOENT) return CAIRN_OK;
    if (code) {
        if (err) *err = why;
        return code;
    }
    for (char *at = text.data; at && *at && !code;) {
        size_t size = strcspn(at, "\n");
        char *next = at[size] ? at + size + 1 : at + size;
        at[size] = '\0';
        code = take_line(reader, at, err);
        at = next;
    }
    if (text.data) explicit_bzero(text.data, text.size);
    return code;
}

static void find_path(const char *variable, const char *base, char ret_path[512]) {
    const char *named = cairn_credentials_variable(variable);
    const char *home = cairn_credentials_variable("HOME");
    if (named && named[0] == '~' && named[1] == '/' && home)
        snprintf(ret_path, 512, "%s%s", home, named + 1);
    else if (named)
        snprintf(ret_path, 512, "%s", named);
    else
        snprintf(ret_path, 512, "%s/.aws/%s", home ? home : "", base);
}

enum cairn_code cairn_profile_load(const char *name, struct cairn_profile *ret,
                                   struct cairn_error *err) {
    struct cairn_profile profile = {0};
    if (!name) name = cairn_credentials_variable("AWS_PROFILE");
    if (!name) name = cairn_credentials_variable("AWS_DEFAULT_PROFILE");
    profile.asked_for = name != NULL;
    if (!cairn_text_copy(profile.name, sizeof profile.name, name ? name : "default"))
        return cairn_fail(err, CAIRN_INVALID, "the profile's name is longer than 127 bytes");
    find_path("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile.credentials_path);
    find_path("AWS_CONFIG_FILE", "config", profile.config_path);
    struct reader reader = {&profile, profile.config_path, false, false, ""};
    enum cairn_code code = read_file(&reader, err);
    reader = (struct reader){&profile, profile.credentials_path, true, false, ""};
    if (!code) code = read_file(&reader, err);
    if (code) {
        cairn_profile_release(&profile);
        return code;
    }
    cairn_profile_release(ret);
    *ret = profile;
    return CAIRN_OK;
}

/* ---- keys of a profile ---- */

static enum cairn_code refuse_profile(const struct cairn_profile *profile, bool *ret_found,
                                      struct cairn_error *err) {
    static const char *const unsupported[] = {"source_profile", "credential_source",
                                              "credential_process", "sso_session", "sso_start_url"};
    for (size_t i = 0; i < CAIRN_COUNT(unsupported); i++)
        if (cairn_profile_get(profile, unsupported[i]))
            return cairn_fail(err, CAIRN_UNSUPPORTED,
                              "profile \"%s\" uses %s, which Cairn does not follow; give it keys, "
                              "a web identity or a container endpoint",
                              profile->name, unsupported[i]);
    *ret_found = false;
    return CAIRN_OK;
}

static enum cairn_code take_profile(const struct cairn_credentials_options *options,
                                    const struct cairn_profile *profile,
                                    struct cairn_credentials *ret, bool *ret_found,
                                    struct cairn_error *err) {
    const char *access_key = cairn_profile_get(profile, "aws_access_key_id");
    const char *secret = cairn_profile_get(profile, "aws_secret_access_key");
    struct cairn_web_identity identity = {cairn_profile_get(profile, "role_arn"),
                                          cairn_profile_get(profile, "web_identity_token_file"),
                                          cairn_profile_get(profile, "role_session_name")};
    *ret_found = true;
    if (identity.role_arn && identity.token_file) {
        CAIRN_TRY(cairn_credentials_assume(options, &identity, ret, err));
        snprintf(ret->source, sizeof ret->source, "web identity of profile %.100s", profile->name);
        return CAIRN_OK;
    }
    if (identity.role_arn || (!access_key && !secret))
        return refuse_profile(profile, ret_found, err);
    if (!access_key || !secret)
        return cairn_fail(err, CAIRN_UNAUTHORIZED, "profile \"%s\" has one of its two keys only",
                          profile->name);
    CAIRN_TRY(cairn_credentials_set(ret, access_key, secret,
                                    cairn_profile_get(profile, "aws_session_token"), err));
    snprintf(ret->source, sizeof ret->source, "profile %.100s", profile->name);
    return CAIRN_OK;
}

enum cairn_code cairn_credentials_profile(const struct cairn_credentials_options *options,
                                          struct cairn_credentials *ret, bool *ret_found,
                                          struct cairn_error *err) {
    CAIRN_AUTO(profile) profile = {0};
    CAIRN_TRY(cairn_profile_load(options->profile, &profile, err));
    if (!profile.found && profile.asked_for)
        return cairn_fail(err, CAIRN_INVALID, "there is no profile \"%s\" in %s or %s",
                          profile.name, profile.credentials_path, profile.config_path);
    return take_profile(options, &profile, ret, ret_found, err);
}
