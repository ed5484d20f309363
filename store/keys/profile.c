/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads environment and shared files as botocore does. A line of an ini file is a section, a
 * setting, a nested setting (indented, below one without a value), or nothing.
 */
#include "store/keys/profile.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/file.h"
#include "common/text.h"
#include "store/keys/inside.h"

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
        found = value->value; /* the credentials file comes second and wins */
    }
    return found && *found ? found : NULL;
}

enum cairn_code cairn_profile_require(const struct cairn_profile *profile,
                                      struct cairn_error *err) {
    if (profile->found || !profile->asked_for) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "there is no profile \"%s\" in %s or %s", profile->name,
                      profile->credentials_path, profile->config_path);
}

/* One pass over a file, for sections of one kind. */
enum pass {
    CONFIG,   /* [default] or [profile NAME]; the last of several wins */
    SECRETS,  /* [NAME], in the credentials file */
    SERVICES, /* [services NAME]: its settings become "services.NAME" */
};
struct reader {
    struct cairn_profile *profile;
    const char *path, *section; /* section: name only */
    enum pass pass;
    bool inside;
    /* As in Python's configparser: a deeper indented line belongs to the setting above. */
    bool has_setting;
    size_t indent;   /* of the setting above */
    char parent[64]; /* "s3" below "s3 =", else "" */
};

/* The name after a word in a section's head, without quotes; NULL: another word. */
static char *name_behind(const char *word, char *head) {
    size_t size = strlen(word);
    if (strncmp(head, word, size) != 0 || !head[size] || !strchr(" \t", head[size])) return NULL;
    char *name = cairn_text_trim(head + size), *end = name + strlen(name) - 1;
    if ((*name != '"' && *name != '\'') || end == name || *end != *name) return name;
    *end = '\0';
    return name + 1;
}

/* Ignores sections of other kinds ("sso-session x", "plugins"). */
static void enter_section(struct reader *reader, char *line) {
    char *end = strrchr(line, ']');
    if (end) *end = '\0';
    char *head = cairn_text_trim(line + 1), *name = head;
    if (reader->pass == CONFIG && strcmp(head, "default") != 0) name = name_behind("profile", head);
    if (reader->pass == SERVICES) name = name_behind("services", head);
    reader->has_setting = false;
    reader->parent[0] = '\0';
    reader->inside = end && name && !strcmp(name, reader->section);
    if (!reader->inside) return;
    struct cairn_profile *profile = reader->profile;
    while (reader->pass == CONFIG && profile->count) free_value(&profile->values[--profile->count]);
    if (reader->pass == SERVICES)
        profile->services_found = true;
    else
        profile->found = true;
}

static enum cairn_code add_value(struct reader *reader, const char *parent, const char *name,
                                 const char *value, struct cairn_error *err) {
    struct cairn_profile *profile = reader->profile;
    enum cairn_code code = CAIRN_ARRAY_ROOM(profile->values, profile->count, profile->capacity,
                                            VALUES_MAX, "settings", err);
    if (code) return cairn_within(err, code, "%s: profile \"%s\"", reader->path, profile->name);
    struct cairn_profile_value *to = &profile->values[profile->count++];
    *to = (struct cairn_profile_value){.secret_file = reader->pass == SECRETS};
    const char *kind = reader->pass == SERVICES ? "services." : "";
    size_t size = strlen(kind) + strlen(parent) + strlen(name) + 2;
    to->name = malloc(size);
    to->value = strdup(value);
    if (!to->name || !to->value) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a profile");
    snprintf(to->name, size, "%s%s%s%s", kind, parent, *parent ? "." : "", name);
    for (char *at = to->name; *at; at++) *at = (char)tolower((unsigned char)*at);
    return CAIRN_OK;
}

/* A setting of the credentials file replaces the config file's with its nested settings. */
static void forget_below(struct cairn_profile *profile, const char *name) {
    size_t kept = 0, size = strlen(name);
    for (size_t i = 0; i < profile->count; i++) {
        struct cairn_profile_value *value = &profile->values[i];
        bool below = !strncasecmp(value->name, name, size) && value->name[size] == '.';
        if (below && !value->secret_file)
            free_value(value);
        else
            profile->values[kept++] = *value;
    }
    profile->count = kept;
}

static enum cairn_code take_line(struct reader *reader, char *line, struct cairn_error *err) {
    size_t indent = strspn(line, " \t");
    char *text = cairn_text_trim(line);
    if (!*text || *text == '#' || *text == ';') return CAIRN_OK;
    bool below = reader->has_setting && indent > reader->indent;
    if (!below && *text == '[') {
        enter_section(reader, text);
        return CAIRN_OK;
    }
    if (!reader->inside) return CAIRN_OK;
    if (below && !reader->parent[0]) {
        /* A continued value contains a line feed, which none of our settings accepts. */
        struct cairn_profile_value *last = &reader->profile->values[reader->profile->count - 1];
        size_t size = strlen(last->value) + strlen(text) + 2;
        char *longer = malloc(size);
        if (!longer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a profile");
        snprintf(longer, size, "%s\n%s", last->value, text);
        explicit_bzero(last->value, strlen(last->value));
        free(last->value);
        last->value = longer;
        return CAIRN_OK;
    }
    char *equals = strpbrk(text, below ? "=" : "=:");
    if (!equals) return CAIRN_OK;
    *equals = '\0';
    char *name = cairn_text_trim(text), *value = cairn_text_trim(equals + 1);
    if (below) return add_value(reader, reader->parent, name, value, err);
    reader->has_setting = true;
    reader->indent = indent;
    reader->parent[0] = '\0';
    if (reader->pass == SECRETS) forget_below(reader->profile, name);
    if (!*value) (void)cairn_text_copy(reader->parent, sizeof reader->parent, name);
    return add_value(reader, "", name, value, err);
}

static enum cairn_code read_file(struct cairn_profile *profile, enum pass pass, const char *section,
                                 struct cairn_error *err) {
    struct reader reader = {.profile = profile,
                            .path =
                                pass == SECRETS ? profile->credentials_path : profile->config_path,
                            .section = section,
                            .pass = pass};
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_file_load(reader.path, &text, &why);
    if (code && why.os_errno == ENOENT) return CAIRN_OK;
    CAIRN_TRY(cairn_pass(err, code, &why));
    for (char *at = text.data; at && *at && !code;) {
        size_t size = strcspn(at, "\n");
        char *next = at[size] ? at + size + 1 : at + size;
        at[size] = '\0';
        code = take_line(&reader, at, err);
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

/* Programs pass "" for an absent name. */
enum cairn_code cairn_profile_load(const char *name, struct cairn_profile *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO(profile) profile = {0};
    if (!name || !*name) name = cairn_credentials_variable("AWS_PROFILE");
    if (!name) name = cairn_credentials_variable("AWS_DEFAULT_PROFILE");
    profile.asked_for = name != NULL;
    if (!cairn_text_copy(profile.name, sizeof profile.name, name ? name : "default"))
        return cairn_fail(err, CAIRN_INVALID, "the profile's name is longer than 127 bytes");
    find_path("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile.credentials_path);
    find_path("AWS_CONFIG_FILE", "config", profile.config_path);
    CAIRN_TRY(read_file(&profile, CONFIG, profile.name, err));
    CAIRN_TRY(read_file(&profile, SECRETS, profile.name, err));
    const char *services = cairn_profile_get(&profile, "services");
    if (services) CAIRN_TRY(read_file(&profile, SERVICES, services, err));
    cairn_profile_release(ret);
    *ret = profile;
    profile = (struct cairn_profile){0};
    return CAIRN_OK;
}

static void mix_stamp(uint64_t *stamp, uint64_t value) {
    *stamp = (*stamp ^ value) * UINT64_C(0x100000001b3);
}

uint64_t cairn_profile_stamp(void) {
    char paths[2][512];
    uint64_t stamp = UINT64_C(0xcbf29ce484222325);
    find_path("AWS_SHARED_CREDENTIALS_FILE", "credentials", paths[0]);
    find_path("AWS_CONFIG_FILE", "config", paths[1]);
    for (size_t i = 0; i < CAIRN_COUNT(paths); i++) {
        struct stat file = {0};
        mix_stamp(&stamp, stat(paths[i], &file) == 0);
        mix_stamp(&stamp, (uint64_t)file.st_dev);
        mix_stamp(&stamp, (uint64_t)file.st_ino);
        mix_stamp(&stamp, (uint64_t)file.st_size);
        mix_stamp(&stamp, (uint64_t)file.st_mtim.tv_sec);
        mix_stamp(&stamp, (uint64_t)file.st_mtim.tv_nsec);
        mix_stamp(&stamp, (uint64_t)file.st_ctim.tv_nsec);
    }
    return stamp ? stamp : 1;
}

static bool is_exposed(const char *path, char ret_text[CAIRN_CREDENTIALS_EXPOSED_BYTES]) {
    struct stat file;
    if (stat(path, &file) != 0 || !S_ISREG(file.st_mode) || !(file.st_mode & 077)) return false;
    snprintf(ret_text, CAIRN_CREDENTIALS_EXPOSED_BYTES, "%.500s has mode %04o", path,
             (unsigned)file.st_mode & 07777);
    return true;
}

/* The config file mostly holds no secret, and is customarily readable by all. */
bool cairn_profile_exposed(const char *name, char ret_text[CAIRN_CREDENTIALS_EXPOSED_BYTES]) {
    CAIRN_AUTO(profile) profile = {0};
    if (cairn_profile_load(name, &profile, NULL) != CAIRN_OK) return false;
    if (is_exposed(profile.credentials_path, ret_text)) return true;
    for (size_t i = 0; i < profile.count; i++)
        if (!profile.values[i].secret_file &&
            !strcmp(profile.values[i].name, "aws_secret_access_key"))
            return is_exposed(profile.config_path, ret_text);
    return false;
}
