/* SPDX-License-Identifier: Apache-2.0 */
/* cairn profile add|ls|use|rm: servers by name. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "cli/shell/profile.h"
#include "common/file.h"
#include "common/text.h"

#define TOKEN_BYTES_MAX 4096

static enum cairn_code flush(struct cairn_error *err) {
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static bool wants_json(const struct cairn_cli *cli) {
    return cli->output == CAIRN_CLI_JSON || cli->output == CAIRN_CLI_JSONL;
}

/* ---- what is there ---- */

static json_t *as_json(const struct cairn_cli_profiles *profiles,
                       const struct cairn_cli_profile *profile) {
    return json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:b}", "name", profile->name, "server",
                     profile->server[0] ? profile->server : NULL, "token_file",
                     profile->token_file[0] ? profile->token_file : NULL, "ca_file",
                     profile->ca_file[0] ? profile->ca_file : NULL, "socket",
                     profile->socket[0] ? profile->socket : NULL, "in_use",
                     !strcmp(profiles->use, profile->name));
}

static void print_line(const struct cairn_cli_profiles *profiles,
                       const struct cairn_cli_profile *profile) {
    char line[3 * CAIRN_CLI_PROFILE_VALUE_BYTES];
    snprintf(line, sizeof line, "%s %-16s  %s  %s",
             strcmp(profiles->use, profile->name) ? " " : "*", profile->name,
             profile->server[0] ? profile->server : "-",
             profile->token_file[0] ? profile->token_file : "-");
    cairn_cli_clean(line);
    puts(line);
}

static enum cairn_code list_profiles(const struct cairn_cli *cli,
                                     const struct cairn_cli_profiles *profiles,
                                     struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    if (cli->output == CAIRN_CLI_TABLE) printf("  %-16s  SERVER  TOKEN FILE\n", "PROFILE");
    for (size_t i = 0; i < profiles->count; i++) {
        const struct cairn_cli_profile *profile = &profiles->items[i];
        if (json_array_append_new(items, as_json(profiles, profile)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
        if (cli->output == CAIRN_CLI_JSONL)
            CAIRN_TRY(cairn_cli_print_json(json_array_get(items, i), false, err));
        else if (cli->output == CAIRN_CLI_NAME)
            puts(profile->name);
        else if (cli->output == CAIRN_CLI_TABLE)
            print_line(profiles, profile);
    }
    if (cli->output == CAIRN_CLI_JSON) return cairn_cli_print_json(items, true, err);
    return flush(err);
}

static enum cairn_code tell_profile(const struct cairn_cli *cli,
                                    const struct cairn_cli_profiles *profiles,
                                    const struct cairn_cli_profile *profile, const char *what,
                                    struct cairn_error *err) {
    if (wants_json(cli)) {
        CAIRN_AUTO_JSON json_t *json = as_json(profiles, profile);
        return cairn_cli_print_json(json, cli->output == CAIRN_CLI_JSON, err);
    }
    printf("%s%s%s\n", profile->name, cli->output == CAIRN_CLI_NAME ? "" : " ",
           cli->output == CAIRN_CLI_NAME ? "" : what);
    return flush(err);
}

/* ---- changes ---- */

static enum cairn_code absolute(const char *path, char ret[CAIRN_CLI_PROFILE_VALUE_BYTES],
                                struct cairn_error *err) {
    char here[CAIRN_CLI_PROFILE_VALUE_BYTES];
    int size = 0;
    *ret = '\0';
    if (!path || !*path) return CAIRN_OK;
    if (strchr(path, '\n')) return cairn_fail(err, CAIRN_INVALID, "a path with a line's end");
    if (*path == '/')
        size = snprintf(ret, CAIRN_CLI_PROFILE_VALUE_BYTES, "%s", path);
    else if (getcwd(here, sizeof here))
        size = snprintf(ret, CAIRN_CLI_PROFILE_VALUE_BYTES, "%s/%s", here, path);
    else
        return cairn_fail_errno(err, "this folder");
    if (size < CAIRN_CLI_PROFILE_VALUE_BYTES) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%.80s...: the path is too long", path);
}

/* The file of the token that `add` has read itself; beside the profiles, of this user alone. */
static enum cairn_code own_token_file(const struct cairn_cli_profiles *profiles, const char *name,
                                      char ret[CAIRN_CLI_PROFILE_VALUE_BYTES],
                                      struct cairn_error *err) {
    int size = snprintf(ret, CAIRN_CLI_PROFILE_VALUE_BYTES, "%s.%s.token", profiles->path, name);
    if (size < CAIRN_CLI_PROFILE_VALUE_BYTES) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s: the path is too long", profiles->path);
}

/* --token-file -: the token comes by standard input, and never stands in a list of processes. */
static enum cairn_code keep_token(const struct cairn_cli_profiles *profiles, const char *name,
                                  char ret[CAIRN_CLI_PROFILE_VALUE_BYTES],
                                  struct cairn_error *err) {
    char token[TOKEN_BYTES_MAX + 2] = "";
    size_t size = fread(token, 1, sizeof token - 1, stdin);
    CAIRN_TRY(own_token_file(profiles, name, ret, err));
    enum cairn_code code = CAIRN_OK;
    if (size > TOKEN_BYTES_MAX || !size || strlen(cairn_text_trim(token)) == 0)
        code = cairn_fail(err, CAIRN_INVALID, "standard input holds no token");
    if (!code)
        code = cairn_file_replace(ret, (struct cairn_view){token, size}, 0600, err);
    explicit_bzero(token, sizeof token);
    return code;
}

static int by_name(const void *a, const void *b) {
    const struct cairn_cli_profile *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static enum cairn_code add_profile(const struct cairn_cli *cli, struct cairn_cli_profiles *profiles,
                                   struct cairn_error *err) {
    const char *name = cli->arguments[1];
    struct cairn_cli_profile profile = {0}, *old = cairn_cli_profiles_find(profiles, name);
    if (!cli->server || !*cli->server)
        return cairn_fail(err, CAIRN_INVALID, "--server says where it is");
    if (strchr(cli->server, '\n') || !cairn_text_copy(profile.server, sizeof profile.server,
                                                      cli->server))
        return cairn_fail(err, CAIRN_INVALID, "--server is no address");
    if (old && !cli->force)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is there already; --force replaces it", name);
    if (!old && profiles->count == CAIRN_CLI_PROFILES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "there are %d profiles already",
                          CAIRN_CLI_PROFILES_MAX);
    (void)cairn_text_copy(profile.name, sizeof profile.name, name);
    CAIRN_TRY(absolute(cli->ca_file, profile.ca_file, err));
    CAIRN_TRY(absolute(cli->socket, profile.socket, err));
    if (cli->token_file && !strcmp(cli->token_file, "-"))
        CAIRN_TRY(keep_token(profiles, name, profile.token_file, err));
    else
        CAIRN_TRY(absolute(cli->token_file, profile.token_file, err));
    if (!old) old = &profiles->items[profiles->count++];
    *old = profile;
    qsort(profiles->items, profiles->count, sizeof profiles->items[0], by_name);
    CAIRN_TRY(cairn_cli_profiles_save(profiles, err));
    return tell_profile(cli, profiles, &profile, "is kept; --profile or cairn profile use takes it",
                        err);
}

static enum cairn_code there_is(struct cairn_cli_profiles *profiles, const char *name,
                                struct cairn_cli_profile **ret, struct cairn_error *err) {
    *ret = cairn_cli_profiles_find(profiles, name);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NOT_FOUND, "there is no profile %s", name);
}

static enum cairn_code use_profile(const struct cairn_cli *cli, struct cairn_cli_profiles *profiles,
                                   struct cairn_error *err) {
    struct cairn_cli_profile *profile = NULL;
    if (cli->argument_count < 2) { /* none from now on */
        profiles->use[0] = '\0';
        return cairn_cli_profiles_save(profiles, err);
    }
    CAIRN_TRY(there_is(profiles, cli->arguments[1], &profile, err));
    (void)cairn_text_copy(profiles->use, sizeof profiles->use, profile->name);
    CAIRN_TRY(cairn_cli_profiles_save(profiles, err));
    return tell_profile(cli, profiles, profile, "is used where nothing else is said", err);
}

static enum cairn_code drop_profile(const struct cairn_cli *cli,
                                    struct cairn_cli_profiles *profiles, struct cairn_error *err) {
    struct cairn_cli_profile *profile = NULL, gone;
    char token[CAIRN_CLI_PROFILE_VALUE_BYTES];
    CAIRN_TRY(there_is(profiles, cli->arguments[1], &profile, err));
    gone = *profile;
    size_t index = (size_t)(profile - profiles->items);
    memmove(profile, profile + 1, (--profiles->count - index) * sizeof *profile);
    if (!strcmp(profiles->use, gone.name)) profiles->use[0] = '\0';
    CAIRN_TRY(cairn_cli_profiles_save(profiles, err));
    CAIRN_TRY(own_token_file(profiles, gone.name, token, err));
    if (!strcmp(token, gone.token_file)) (void)unlink(token);
    return tell_profile(cli, profiles, &gone, "is no more", err);
}

/* ---- the verb ---- */

/* Two commands that change the file do it one after the other. */
static enum cairn_code open_folder(const struct cairn_cli_profiles *profiles, int *ret_lock_fd,
                                   struct cairn_error *err) {
    char path[CAIRN_CLI_PROFILE_VALUE_BYTES + 8];
    if (!profiles->path[0])
        return cairn_fail(err, CAIRN_INVALID, "neither HOME nor CAIRN_PROFILES says where to");
    (void)cairn_text_copy(path, sizeof path, profiles->path);
    char *slash = strrchr(path, '/');
    if (slash && slash != path) {
        *slash = '\0';
        CAIRN_TRY(cairn_dir_make(path, 0700, err));
    }
    snprintf(path, sizeof path, "%s.lock", profiles->path);
    return cairn_file_lock(path, ret_lock_fd, err);
}

static enum cairn_code run_profile(struct cairn_cli *cli, struct cairn_error *err) {
    static struct cairn_cli_profiles profiles;
    CAIRN_AUTO_FD lock_fd = -1;
    const char *what = cli->arguments[0];
    CAIRN_TRY(cairn_cli_profiles_load(&profiles, err));
    if (!strcmp(what, "ls") && cli->argument_count == 1) return list_profiles(cli, &profiles, err);
    bool is_use = !strcmp(what, "use"), is_add = !strcmp(what, "add");
    if ((!is_use && !is_add && strcmp(what, "rm") != 0) || (!is_use && cli->argument_count < 2))
        return cairn_fail(err, CAIRN_INVALID, "profile takes ls, add NAME, use [NAME] or rm NAME");
    if (cli->argument_count > 1 && !cairn_cli_profile_name_valid(cli->arguments[1]))
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no name of a profile",
                          cli->arguments[1]);
    CAIRN_TRY(open_folder(&profiles, &lock_fd, err));
    CAIRN_TRY(cairn_cli_profiles_load(&profiles, err)); /* as it is now */
    if (is_add) return add_profile(cli, &profiles, err);
    return is_use ? use_profile(cli, &profiles, err) : drop_profile(cli, &profiles, err);
}

static const struct cairn_cli_flag profile_flags[] = {
    {"force", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(force), 0, NULL,
     "Of add: replace one of that name."},
};

const struct cairn_cli_verb cairn_cli_verb_profile = {
    .name = "profile",
    .synopsis = "cairn profile add|ls|use|rm [flags] [name]",
    .purpose = "Name servers and tokens, and say which are meant.",
    .examples = "  cairn profile add lab --server https://cairn.lab:7420 --token-file lab.token\n"
                "  cairn profile use lab\n  cairn profile ls --json\n",
    .flags = profile_flags,
    .flag_count = CAIRN_COUNT(profile_flags),
    .arguments_min = 1,
    .arguments_max = 2,
    .run = run_profile,
};
