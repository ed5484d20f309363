/* SPDX-License-Identifier: Apache-2.0 */
/* The file of profiles, and the order of precedence; see profile.h. */
#include "cli/shell/profile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/text.h"

#define URL_DEFAULT "http://127.0.0.1:7420"
#define SOCKET_DEFAULT "/run/cairn/uploader.sock"
#define FILE_BYTES_MAX (UINT64_C(512) * 1024)

static const struct {
    const char *key;
    size_t offset;
} keys[] = {
    {"server", offsetof(struct cairn_cli_profile, server)},
    {"token_file", offsetof(struct cairn_cli_profile, token_file)},
    {"ca_file", offsetof(struct cairn_cli_profile, ca_file)},
    {"socket", offsetof(struct cairn_cli_profile, socket)},
};

bool cairn_cli_profile_name_valid(const char *name) {
    static const char others[] = "0123456789.-_abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return *name && *name != '.' && *name != '-' && strlen(name) < CAIRN_CLI_PROFILE_NAME_BYTES &&
           !name[strspn(name, others)];
}

struct cairn_cli_profile *cairn_cli_profiles_find(struct cairn_cli_profiles *profiles,
                                                  const char *name) {
    for (size_t i = 0; i < profiles->count; i++)
        if (!strcmp(profiles->items[i].name, name)) return &profiles->items[i];
    return NULL;
}

/* ---- the file ---- */

static void find_path(char ret[CAIRN_CLI_PROFILE_VALUE_BYTES]) {
    const char *path = getenv("CAIRN_PROFILES"), *config = getenv("XDG_CONFIG_HOME"),
               *home = getenv("HOME");
    int size = 0;
    *ret = '\0';
    if (path && *path)
        size = snprintf(ret, CAIRN_CLI_PROFILE_VALUE_BYTES, "%s", path);
    else if (config && *config == '/') /* a relative one counts as none (XDG) */
        size = snprintf(ret, CAIRN_CLI_PROFILE_VALUE_BYTES, "%s/cairn/profiles", config);
    else if (home && *home == '/')
        size = snprintf(ret, CAIRN_CLI_PROFILE_VALUE_BYTES, "%s/.config/cairn/profiles", home);
    if (size >= CAIRN_CLI_PROFILE_VALUE_BYTES) *ret = '\0';
}

/* profile.h#3: who could write it could send this user's tokens anywhere. */
static enum cairn_code check_file(const char *path, bool *ret_there, struct cairn_error *err) {
    struct stat status;
    *ret_there = !stat(path, &status);
    if (!*ret_there && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) return CAIRN_OK;
    if (!*ret_there) return cairn_fail_errno(err, "%s", path);
    if (status.st_uid == geteuid() && !(status.st_mode & 077)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s is not this user's alone: chown it and chmod 600 it", path);
}

static enum cairn_code take_section(struct cairn_cli_profiles *profiles, char *line,
                                    struct cairn_error *err) {
    size_t size = strlen(line);
    if (line[size - 1] != ']') return cairn_fail(err, CAIRN_INVALID, "%s: no ] at its end", line);
    line[size - 1] = '\0';
    const char *name = line + 1;
    if (!cairn_cli_profile_name_valid(name))
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no name of a profile", name);
    if (cairn_cli_profiles_find(profiles, name))
        return cairn_fail(err, CAIRN_INVALID, "%s is there twice", name);
    if (profiles->count == CAIRN_CLI_PROFILES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d profiles", CAIRN_CLI_PROFILES_MAX);
    struct cairn_cli_profile *profile = &profiles->items[profiles->count++];
    *profile = (struct cairn_cli_profile){0};
    (void)cairn_text_copy(profile->name, sizeof profile->name, name);
    return CAIRN_OK;
}

static enum cairn_code take_value(struct cairn_cli_profiles *profiles, char *line,
                                  struct cairn_error *err) {
    char *equals = strchr(line, '=');
    if (!equals) return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no key = value", line);
    *equals = '\0';
    const char *key = cairn_text_trim(line), *value = cairn_text_trim(equals + 1);
    char *into = NULL;
    size_t capacity = CAIRN_CLI_PROFILE_VALUE_BYTES;
    if (!profiles->count && !strcmp(key, "use")) {
        into = profiles->use;
        capacity = sizeof profiles->use;
    }
    for (size_t i = 0; profiles->count && i < CAIRN_COUNT(keys); i++)
        if (!strcmp(keys[i].key, key))
            into = (char *)&profiles->items[profiles->count - 1] + keys[i].offset;
    if (!into) return cairn_fail(err, CAIRN_INVALID, "there is no key %s", key);
    if (!cairn_text_copy(into, capacity, value))
        return cairn_fail(err, CAIRN_INVALID, "%s is too long", key);
    return CAIRN_OK;
}

static enum cairn_code take_line(struct cairn_cli_profiles *profiles, char *line,
                                 struct cairn_error *err) {
    line = cairn_text_trim(line);
    if (!*line || *line == '#') return CAIRN_OK;
    return *line == '[' ? take_section(profiles, line, err) : take_value(profiles, line, err);
}

enum cairn_code cairn_cli_profiles_load(struct cairn_cli_profiles *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = FILE_BYTES_MAX};
    bool there = false;
    unsigned number = 0;
    ret->count = 0;
    ret->use[0] = '\0';
    find_path(ret->path);
    if (!ret->path[0]) return CAIRN_OK;
    CAIRN_TRY(check_file(ret->path, &there, err));
    if (!there) return CAIRN_OK;
    CAIRN_TRY(cairn_file_load(ret->path, &text, err));
    char *rest = text.data ? text.data : NULL, *line = NULL;
    while (rest && (line = strsep(&rest, "\n"))) {
        number++;
        enum cairn_code code = take_line(ret, line, err);
        if (code) return cairn_within(err, code, "%s: line %u", ret->path, number);
    }
    return CAIRN_OK;
}

static enum cairn_code write_profile(const struct cairn_cli_profile *profile,
                                     struct cairn_buf *text, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_printf(text, err, "\n[%s]\n", profile->name));
    for (size_t i = 0; i < CAIRN_COUNT(keys); i++) {
        const char *value = (const char *)profile + keys[i].offset;
        if (*value) CAIRN_TRY(cairn_buf_printf(text, err, "%s = %s\n", keys[i].key, value));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_cli_profiles_save(const struct cairn_cli_profiles *profiles,
                                        struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = FILE_BYTES_MAX};
    CAIRN_TRY(cairn_buf_append_text(&text, "# Made by cairn profile; keys: cairn profile --help\n",
                                    err));
    if (profiles->use[0]) CAIRN_TRY(cairn_buf_printf(&text, err, "use = %s\n", profiles->use));
    for (size_t i = 0; i < profiles->count; i++)
        CAIRN_TRY(write_profile(&profiles->items[i], &text, err));
    return cairn_file_replace(profiles->path, cairn_buf_view(&text), 0600, err);
}

/* ---- which one ---- */

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

enum cairn_code cairn_cli_profile_choose(struct cairn_cli *cli, struct cairn_error *err) {
    static struct cairn_cli_profiles profiles; /* its values live as long as the command */
    const char *name = cli->profile && *cli->profile ? cli->profile : variable("CAIRN_PROFILE");
    CAIRN_TRY(cairn_cli_profiles_load(&profiles, err));
    if (!name && profiles.use[0]) name = profiles.use;
    if (!name) return CAIRN_OK;
    cli->chosen = cairn_cli_profiles_find(&profiles, name);
    if (cli->chosen) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "there is no profile \"%.80s\"; cairn profile ls has them", name);
}

/* profile.h#1 */
static const char *pick(const struct cairn_cli *cli, const char *flag, const char *of_profile,
                        const char *variable_name, const char *otherwise) {
    const char *of_variable = variable_name ? variable(variable_name) : NULL;
    bool has = of_profile && *of_profile, named = cli->profile && *cli->profile;
    if (flag && *flag) return flag;
    if (has && named) return of_profile;
    if (of_variable) return of_variable;
    return has ? of_profile : otherwise;
}

void cairn_cli_server_of(const struct cairn_cli *cli, struct cairn_cli_server *ret) {
    static const struct cairn_cli_profile none;
    const struct cairn_cli_profile *profile = cli->chosen ? cli->chosen : &none;
    *ret = (struct cairn_cli_server){
        .url = pick(cli, cli->server, profile->server, "CAIRN_URL", URL_DEFAULT),
        .socket = pick(cli, cli->socket, profile->socket, "CAIRN_SOCKET", SOCKET_DEFAULT)};
    if (ret->url != profile->server) profile = &none; /* profile.h#2 */
    bool named = profile != &none && cli->profile && *cli->profile && profile->token_file[0];
    bool flag = cli->token_file && *cli->token_file;
    if (!flag && !named) ret->token = variable("CAIRN_TOKEN");
    if (!ret->token)
        ret->token_file =
            pick(cli, cli->token_file, profile->token_file, "CAIRN_TOKEN_FILE", NULL);
    ret->ca_file = pick(cli, cli->ca_file, profile->ca_file, "CAIRN_CA_FILE", NULL);
}
