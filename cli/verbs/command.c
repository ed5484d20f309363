/* SPDX-License-Identifier: Apache-2.0 */
/* The table of verbs; cairn profile: servers by name; cairn completion. */

#include <cairn/cairn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "common/file.h"
#include "common/text.h"

#define LISTED(id) &cli_verb_##id,
const struct cli_verb *const cli_verbs[] = {CLI_VERBS(LISTED)};
const size_t cli_verb_count = CAIRN_COUNT(cli_verbs);

/* ---- profile add|ls|use|rm ---- */

#define TOKEN_BYTES_MAX 4096

static json_t *profile_json(const struct cli_profiles *profiles,
                            const struct cli_profile *profile) {
    return json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:b}", "name", profile->name, "server",
                     profile->server[0] ? profile->server : NULL, "token_file",
                     profile->token_file[0] ? profile->token_file : NULL, "ca_file",
                     profile->ca_file[0] ? profile->ca_file : NULL, "socket",
                     profile->socket[0] ? profile->socket : NULL, "in_use",
                     !strcmp(profiles->use, profile->name));
}

static enum cairn_code tell_profile(const struct cli *cli, const struct cli_profiles *profiles,
                                    const struct cli_profile *profile, const char *what,
                                    struct cairn_error *err) {
    if (cli_wants_json(cli)) {
        CAIRN_AUTO_JSON json_t *json = profile_json(profiles, profile);
        return cli_print_reply(cli, json, err);
    }
    printf("%s%s%s\n", profile->name, cli->output == CLI_NAME ? "" : " ",
           cli->output == CLI_NAME ? "" : what);
    return cli_flush(err);
}

static enum cairn_code absolute_path(const char *path, char ret[CLI_PROFILE_VALUE_BYTES],
                                     struct cairn_error *err) {
    char here[CLI_PROFILE_VALUE_BYTES];
    int size = 0;
    *ret = '\0';
    if (!path || !*path) return CAIRN_OK;
    if (strchr(path, '\n')) return cairn_fail(err, CAIRN_INVALID, "a path with a line's end");
    if (*path == '/')
        size = snprintf(ret, CLI_PROFILE_VALUE_BYTES, "%s", path);
    else if (getcwd(here, sizeof here))
        size = snprintf(ret, CLI_PROFILE_VALUE_BYTES, "%s/%s", here, path);
    else
        return cairn_fail_errno(err, "this folder");
    if (size < CLI_PROFILE_VALUE_BYTES) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%.80s...: the path is too long", path);
}

/* Where `add` stores a token from standard input: beside the profiles, for this user only. */
static enum cairn_code own_token_file(const struct cli_profiles *profiles, const char *name,
                                      char ret[CLI_PROFILE_VALUE_BYTES], struct cairn_error *err) {
    int size = snprintf(ret, CLI_PROFILE_VALUE_BYTES, "%s.%s.token", profiles->path, name);
    if (size < CLI_PROFILE_VALUE_BYTES) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s: the path is too long", profiles->path);
}

/* --token-file -: the token comes from standard input, so no process list shows it. */
static enum cairn_code keep_token(const struct cli_profiles *profiles, const char *name,
                                  char ret[CLI_PROFILE_VALUE_BYTES], struct cairn_error *err) {
    char token[TOKEN_BYTES_MAX + 2] = "";
    size_t size = fread(token, 1, sizeof token - 1, stdin);
    CAIRN_TRY(own_token_file(profiles, name, ret, err));
    enum cairn_code code = CAIRN_OK;
    char *text = cairn_text_trim(token);
    size_t length = strlen(text);
    if (size > TOKEN_BYTES_MAX || !length)
        code = cairn_fail(err, CAIRN_INVALID, "standard input holds no token");
    text[length++] = '\n';
    if (!code) code = cairn_file_replace(ret, (struct cairn_view){text, length}, 0600, err);
    explicit_bzero(token, sizeof token);
    return code;
}

static int by_name(const void *a, const void *b) {
    const struct cli_profile *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static enum cairn_code add_profile(const struct cli *cli, struct cli_profiles *profiles,
                                   struct cairn_error *err) {
    const char *name = cli->arguments[1];
    struct cli_profile profile = {0}, *old = cli_profiles_find(profiles, name);
    if (!cli->server || !*cli->server)
        return cairn_fail(err, CAIRN_INVALID, "--server says where it is");
    if (strchr(cli->server, '\n') ||
        !cairn_text_copy(profile.server, sizeof profile.server, cli->server))
        return cairn_fail(err, CAIRN_INVALID, "--server is no address");
    if (old && !cli->force)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is there already; --force replaces it", name);
    if (!old && profiles->count == CLI_PROFILES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "there are %d profiles already", CLI_PROFILES_MAX);
    (void)cairn_text_copy(profile.name, sizeof profile.name, name);
    CAIRN_TRY(absolute_path(cli->ca_file, profile.ca_file, err));
    CAIRN_TRY(absolute_path(cli->socket, profile.socket, err));
    if (cli->token_file && !strcmp(cli->token_file, "-"))
        CAIRN_TRY(keep_token(profiles, name, profile.token_file, err));
    else
        CAIRN_TRY(absolute_path(cli->token_file, profile.token_file, err));
    if (!old) old = &profiles->items[profiles->count++];
    *old = profile;
    qsort(profiles->items, profiles->count, sizeof profiles->items[0], by_name);
    CAIRN_TRY(cli_profiles_save(profiles, err));
    return tell_profile(cli, profiles, &profile, "is kept; --profile or cairn profile use takes it",
                        err);
}

static enum cairn_code find_named(struct cli_profiles *profiles, const char *name,
                                  struct cli_profile **ret, struct cairn_error *err) {
    *ret = cli_profiles_find(profiles, name);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NOT_FOUND, "there is no profile %s", name);
}

static enum cairn_code use_profile(const struct cli *cli, struct cli_profiles *profiles,
                                   struct cairn_error *err) {
    struct cli_profile *profile = NULL;
    if (cli->argument_count < 2) { /* clears the default profile */
        profiles->use[0] = '\0';
        return cli_profiles_save(profiles, err);
    }
    CAIRN_TRY(find_named(profiles, cli->arguments[1], &profile, err));
    (void)cairn_text_copy(profiles->use, sizeof profiles->use, profile->name);
    CAIRN_TRY(cli_profiles_save(profiles, err));
    return tell_profile(cli, profiles, profile, "is used where nothing else is said", err);
}

static enum cairn_code drop_profile(const struct cli *cli, struct cli_profiles *profiles,
                                    struct cairn_error *err) {
    struct cli_profile *profile = NULL, gone;
    char token[CLI_PROFILE_VALUE_BYTES];
    CAIRN_TRY(find_named(profiles, cli->arguments[1], &profile, err));
    gone = *profile;
    size_t index = (size_t)(profile - profiles->items);
    memmove(profile, profile + 1, (--profiles->count - index) * sizeof *profile);
    if (!strcmp(profiles->use, gone.name)) profiles->use[0] = '\0';
    CAIRN_TRY(cli_profiles_save(profiles, err));
    CAIRN_TRY(own_token_file(profiles, gone.name, token, err));
    if (!strcmp(token, gone.token_file)) (void)unlink(token);
    return tell_profile(cli, profiles, &gone, "is no more", err);
}

/* Locks the profiles' folder, so that commands change the file one after the other. */
static enum cairn_code open_folder(const struct cli_profiles *profiles, int *ret_lock_fd,
                                   struct cairn_error *err) {
    char path[CLI_PROFILE_VALUE_BYTES + 8];
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

static enum cairn_code run_profile(struct cli *cli, struct cairn_error *err) {
    static struct cli_profiles profiles;
    CAIRN_AUTO_FD lock_fd = -1;
    const char *what = cli->arguments[0];
    CAIRN_TRY(cli_profiles_load(&profiles, err));
    if (!strcmp(what, "ls") && cli->argument_count == 1) {
        static const struct cli_table table = {
            .name = "{name}",
            .line = "{in_use?*|= } {name<16}  {server|=-}  {token_file|=-}",
        };
        CAIRN_AUTO_JSON json_t *items = json_array();
        for (size_t i = 0; i < profiles.count; i++)
            CAIRN_TRY(cli_list_add(items, profile_json(&profiles, &profiles.items[i]), err));
        if (cli->output == CLI_TABLE) printf("  %-16s  SERVER  TOKEN FILE\n", "PROFILE");
        return cli_print(cli, items, &table, err);
    }
    bool is_use = !strcmp(what, "use"), is_add = !strcmp(what, "add");
    if ((!is_use && !is_add && strcmp(what, "rm") != 0) || (!is_use && cli->argument_count < 2))
        return cairn_fail(err, CAIRN_INVALID, "profile takes ls, add NAME, use [NAME] or rm NAME");
    if (cli->argument_count > 1 && !cli_profile_name_valid(cli->arguments[1]))
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no name of a profile",
                          cli->arguments[1]);
    CAIRN_TRY(open_folder(&profiles, &lock_fd, err));
    CAIRN_TRY(cli_profiles_load(&profiles, err)); /* reloaded under the lock */
    if (is_add) return add_profile(cli, &profiles, err);
    return is_use ? use_profile(cli, &profiles, err) : drop_profile(cli, &profiles, err);
}

static const struct cli_flag profile_flags[] = {
    {"force", 0, CLI_SWITCH, CLI_AT(force), 0, NULL, "Of add: replace one of that name."},
};

const struct cli_verb cli_verb_profile = {
    CLI_VERB(profile),
    .chapter = "This command",
    .synopsis = "cairn profile add|ls|use|rm [flags] [name]",
    .purpose = "Manage profiles: named servers with their tokens.",
    .examples = "  cairn profile add lab --server https://cairn.lab:7420 --token-file lab.token\n"
                "  cairn profile use lab\n  cairn profile ls --json\n",
    CLI_TAKES(profile_flags, 1, 2),
};

/* Completion scripts for bash, zsh and fish, made from the help's tables; for names of runs and
 * checkpoints the scripts call this command. */

/* Timeout of the server during completion. */
#define ASK_MS_DEFAULT 1000
#define PAGE "limit=1000" /* one request, newest first */

/* Finds the first argument's choices, as "ls|set|rm"; other arguments have other characters. */
static size_t find_words(const struct cli_verb *verb, const char **ret) {
    static const char flags_text[] = "[flags] ";
    const char *at = verb->synopsis + strlen("cairn ") + strlen(verb->name);
    at += strspn(at, " ");
    if (!strncmp(at, flags_text, sizeof flags_text - 1)) at += sizeof flags_text - 1;
    size_t size = strspn(at, "abcdefghijklmnopqrstuvwxyz|");
    *ret = at;
    return at[size] && at[size] != ' ' ? 0 : size;
}

static void print_words(const struct cli_verb *verb) {
    const char *words;
    size_t size = find_words(verb, &words);
    for (size_t i = 0; i < size; i++) putchar(words[i] == '|' ? ' ' : words[i]);
}

static void print_verb(const struct cli_verb *verb) {
    printf("    %s) ", verb->name);
    const struct cli_flag *flag;
    fputs("flags='", stdout);
    for (size_t i = 0; (flag = cli_flag_at(verb, i)); i++)
        printf("%s--%s", i ? " " : "", flag->name);
    fputs("' valued=' ", stdout);
    for (size_t i = 0; (flag = cli_flag_at(verb, i)); i++) {
        if (flag->kind == CLI_SWITCH) continue;
        printf("--%s ", flag->name);
        if (flag->letter) printf("-%c ", flag->letter);
    }
    fputs("'", stdout);
    fputs(" words='", stdout);
    print_words(verb);
    printf("' refs='%s' ;;\n", strstr(verb->synopsis, "project") ? "yes" : "");
}

static void print_choices(void) {
    for (size_t i = 0; i < cli_common_flag_count; i++) {
        const struct cli_flag *flag = &cli_common_flags[i];
        const char *word;
        if (!cli_flag_word(flag, 0)) continue;
        printf("    --%s", flag->name);
        if (flag->letter) printf(" | -%c", flag->letter);
        fputs(") choices='", stdout);
        for (size_t w = 0; (word = cli_flag_word(flag, w)); w++) printf("%s%s", w ? " " : "", word);
        fputs("' ;;\n", stdout);
    }
}

/* Names from the server are compared and offered, never expanded or run. Readline splits words at
 * COMP_WORDBREAKS, so offers omit the text before the last break. */
static const char bash_script[] =
    "_cairn_offer() { # those that begin with $cur, as readline wants them\n"
    "    local word head='' breaks=\"${COMP_WORDBREAKS//[^@=:]/}\"\n"
    "    [[ -n $breaks ]] && head=${cur%\"${cur##*[$breaks]}\"}\n"
    "    for word in \"$@\"; do\n"
    "        [[ $word == \"$cur\"* ]] && COMPREPLY+=(\"${word#\"$head\"}\")\n"
    "    done\n"
    "}\n"
    "_cairn_offer_words() {\n"
    "    local -a list\n"
    "    read -ra list <<<\"$1\"\n"
    "    _cairn_offer \"${list[@]}\"\n"
    "}\n"
    "_cairn() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} cur='' before='' verb='' word='' plain=0 at\n"
    "    local flags='' valued='' words='' refs='' choices='' verbs='' over=''\n"
    "    local -a typed=() server=() found=()\n"
    "    COMPREPLY=()\n"
    "    read -ra typed <<<\"$line\"\n"
    "    while ((${#typed[@]})) && [[ ${typed[0]} != \"${COMP_WORDS[0]}\" ]]; do\n"
    "        typed=(\"${typed[@]:1}\")\n"
    "    done\n"
    "    ((${#typed[@]})) || return 0\n"
    "    if [[ $line != *[[:space:]] ]]; then\n"
    "        cur=${typed[-1]}\n"
    "        unset 'typed[-1]'\n"
    "    fi\n"
    "    for ((at = 1; at < ${#typed[@]}; at++)); do\n"
    "        word=${typed[at]}\n"
    "        if [[ -z $verb || $verb == help ]]; then\n"
    "            [[ $verb == help ]] && return 0\n"
    "            verb=$word\n"
    "            _cairn_of \"$verb\"\n"
    "        elif [[ -n $over || $word != -?* ]]; then\n"
    "            ((plain += 1))\n"
    "        elif [[ $word == -- ]]; then\n"
    "            over=yes\n"
    "        elif [[ $valued == *\" $word \"* ]]; then\n"
    "            before=$word\n"
    "            ((at + 1 < ${#typed[@]})) || break\n"
    "            case $word in\n"
    "            -s | --server | --token-file | --ca-file | --profile)\n"
    "                server+=(\"$word\" \"${typed[at + 1]/#\\~\\//$HOME/}\") ;;\n"
    "            esac\n"
    "            before=''\n"
    "            ((at += 1))\n"
    "        else\n"
    "            case $word in\n"
    "            --server=* | --token-file=* | --ca-file=* | --profile=*) server+=(\"$word\") ;;\n"
    "            esac\n"
    "        fi\n"
    "    done\n"
    "    if [[ -n $before ]]; then\n"
    "        _cairn_choices \"$before\"\n"
    "        _cairn_offer_words \"$choices\"\n"
    "    elif [[ -z $verb || $verb == help ]]; then\n"
    "        _cairn_verbs\n"
    "        _cairn_offer_words \"$verbs\"\n"
    "    elif [[ -z $over && $cur == --*=* ]]; then\n"
    "        _cairn_choices \"${cur%%=*}\"\n"
    "        for word in $choices; do _cairn_offer \"${cur%%=*}=$word\"; done\n"
    "    elif [[ -z $over && $cur == -* ]]; then\n"
    "        _cairn_offer_words \"$flags\"\n"
    "    else\n"
    "        ((plain)) || _cairn_offer_words \"$words\"\n"
    "        [[ -n $refs && $cur != [./~]* && $cur != *://* ]] || return 0\n"
    "        [[ -z $words || ${#COMPREPLY[@]} -eq 0 ]] || return 0\n"
    "        mapfile -t found < <(\"${COMP_WORDS[0]/#\\~\\//$HOME/}\" completion refs "
    "\"${server[@]}\" -- \"$cur\" 2>/dev/null)\n"
    "        _cairn_offer \"${found[@]}\"\n"
    "        [[ $cur == *@* ]] || compopt -o nospace 2>/dev/null # an @ may follow\n"
    "    fi\n"
    "    return 0\n"
    "}\n"
    "COMP_WORDBREAKS=${COMP_WORDBREAKS//@/} # readline treats an @ in its own way\n"
    "complete -o default -F _cairn cairn\n";

/* ---- fish ---- */

/* Helpers that test the verb and count the words before the cursor. */
static const char fish_functions[] =
    "function __cairn_is\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
    "end\n"
    "function __cairn_begins\n"
    "    test (count (commandline -opc)) -eq $argv[1]\n"
    "end\n"
    "function __cairn_refs # of the server that the line or the environment names\n"
    "    set -l words (commandline -opc)\n"
    "    set -l server\n"
    "    for at in (seq 2 (count $words))\n"
    "        switch $words[$at]\n"
    "            case -s --server --token-file --ca-file --profile\n"
    "                test $at -lt (count $words); and set -a server $words[$at] "
    "$words[(math $at + 1)]\n"
    "            case '--server=*' '--token-file=*' '--ca-file=*' '--profile=*'\n"
    "                set -a server $words[$at]\n"
    "        end\n"
    "    end\n"
    "    command $words[1] completion refs $server -- (commandline -ct) 2>/dev/null\n"
    "end\n";

static void print_quoted(const char *text) {
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void print_fish_flag(const struct cli_verb *verb, const struct cli_flag *flag) {
    const char *word;
    printf("complete -c cairn -n '__cairn_is %s' -l %s", verb->name, flag->name);
    if (flag->letter) printf(" -s %c", flag->letter);
    if (flag->kind != CLI_SWITCH) fputs(cli_flag_word(flag, 0) ? " -x" : " -r", stdout);
    if (cli_flag_word(flag, 0)) {
        fputs(" -a '", stdout);
        for (size_t w = 0; (word = cli_flag_word(flag, w)); w++) printf("%s%s", w ? " " : "", word);
        putchar('\'');
    }
    fputs(" -d ", stdout);
    print_quoted(flag->help);
    putchar('\n');
}

static void print_fish_verb(const struct cli_verb *verb) {
    const struct cli_flag *flag;
    printf("complete -c cairn -n '__cairn_begins 1' -f -a %s -d ", verb->name);
    print_quoted(verb->purpose);
    putchar('\n');
    for (size_t i = 0; (flag = cli_flag_at(verb, i)); i++) print_fish_flag(verb, flag);
    const char *words;
    bool chosen = find_words(verb, &words) > 0;
    if (chosen) {
        printf("complete -c cairn -n '__cairn_is %s; and __cairn_begins 2' -f -a '", verb->name);
        print_words(verb);
        fputs("'\n", stdout);
    }
    if (strstr(verb->synopsis, "project"))
        printf("complete -c cairn -n '__cairn_is %s%s' -a '(__cairn_refs)'\n", verb->name,
               chosen ? "; and not __cairn_begins 2" : "");
}

/* ---- zsh ---- */

static const char zsh_functions[] =
    "_cairn_refs() { # of the server that the line or the environment names\n"
    "    local -a server found\n"
    "    local at\n"
    "    for ((at = 2; at < $#words; at++)); do\n"
    "        case $words[at] in\n"
    "        (-s|--server|--token-file|--ca-file|--profile)\n"
    "            server+=($words[at] ${(Q)words[at + 1]}) ;;\n"
    "        (--server=*|--token-file=*|--ca-file=*|--profile=*) server+=(${(Q)words[at]}) ;;\n"
    "        esac\n"
    "    done\n"
    "    found=(${(f)\"$(command $_cairn_command completion refs $server -- $PREFIX "
    "2>/dev/null)\"})\n"
    "    (($#found)) || { _files; return }\n"
    "    compadd -S '' -- $found # an @ may follow\n"
    "}\n"
    "_cairn() {\n"
    "    local _cairn_command=${(Q)words[1]}\n"
    "    if ((CURRENT == 2)); then\n"
    "        _cairn_verbs\n"
    "        return\n"
    "    fi\n"
    "    local verb=$words[2]\n"
    "    shift words\n"
    "    ((CURRENT--))\n"
    "    _cairn_of $verb\n"
    "}\n";

/* Escapes text for a single-quoted zsh specification, where colons and brackets are special. */
static void print_zsh_text(const char *text) {
    for (; *text; text++) {
        if (strchr(":[]\\", *text)) putchar('\\');
        fputs(*text == '\'' ? "'\\''" : (const char[]){*text, '\0'}, stdout);
    }
}

/* Long and short form exclude each other. */
static void print_zsh_flag(const struct cli_flag *flag) {
    const char *word;
    bool valued = flag->kind != CLI_SWITCH;
    for (int letter = 0; letter <= (flag->letter != 0); letter++) {
        fputs(" \\\n        '", stdout);
        if (flag->letter) printf("(-%c --%s)", flag->letter, flag->name);
        if (letter)
            printf("-%c%s", flag->letter, valued ? "+" : "");
        else
            printf("--%s%s", flag->name, valued ? "=" : "");
        putchar('[');
        print_zsh_text(flag->help);
        putchar(']');
        if (valued) fputs(": :", stdout);
        if (valued && !cli_flag_word(flag, 0)) fputs("_files", stdout);
        for (size_t w = 0; valued && (word = cli_flag_word(flag, w)); w++)
            printf("%s%s", w ? " " : "(", word);
        if (valued && cli_flag_word(flag, 0)) putchar(')');
        putchar('\'');
    }
}

static void print_zsh_verb(const struct cli_verb *verb) {
    const struct cli_flag *flag;
    const char *words;
    bool chosen = find_words(verb, &words) > 0;
    printf("    (%s) _arguments -s", verb->name);
    for (size_t i = 0; (flag = cli_flag_at(verb, i)); i++) print_zsh_flag(flag);
    if (chosen) {
        fputs(" \\\n        '1: :(", stdout);
        print_words(verb);
        fputs(")'", stdout);
    }
    printf(" \\\n        '*: :%s' ;;\n",
           strstr(verb->synopsis, "project") ? "_cairn_refs" : "_files");
}

static void print_zsh(void) {
    printf("#compdef cairn\n"
           "# zsh completion of cairn %s, made by `cairn completion zsh`; zsh 5.1 or later.\n"
           "_cairn_verbs() {\n    local -a verbs=(\n        'help:Help of all verbs.'\n"
           "        'version:The release.'\n",
           cairn_version());
    for (size_t i = 0; i < cli_verb_count; i++) {
        printf("        '%s:", cli_verbs[i]->name);
        print_zsh_text(cli_verbs[i]->purpose);
        puts("'");
    }
    fputs("    )\n    _describe verb verbs\n}\n_cairn_of() {\n    case $1 in\n", stdout);
    for (size_t i = 0; i < cli_verb_count; i++) print_zsh_verb(cli_verbs[i]);
    fputs("    esac\n}\n", stdout);
    fputs(zsh_functions, stdout);
    fputs("if [[ $funcstack[1] == _cairn ]]; then\n    _cairn \"$@\"\nelse\n"
          "    compdef _cairn cairn\nfi\n",
          stdout);
}

/* ---- names from the server ---- */

static void print_name(const char *project, const char *run, const char *version) {
    char text[512];
    snprintf(text, sizeof text, "%s/%s%s%s", project, run, *version ? "@" : "", version);
    cli_clean(text);
    puts(text);
}

static enum cairn_code ask_page(const struct cli *cli, const struct cli_ref *run, const char *tail,
                                json_t **ret, struct cairn_msg_page *ret_page,
                                struct cairn_error *err) {
    uint64_t ms = cli->timeout_ms ? cairn_min_u64(cli->timeout_ms, UINT32_MAX) : ASK_MS_DEFAULT;
    struct cli_call call = {.tail = tail, .timeout_ms = (uint32_t)ms};
    return cli_ask(cli, run, call, CAIRN_MESSAGE_page, ret, ret_page, err);
}

static enum cairn_code print_versions(const struct cli *cli, const struct cli_ref *run,
                                      struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_page page = {0};
    CAIRN_TRY(ask_page(cli, run, "/checkpoints?state=committed&" PAGE, &reply, &page, err));
    if (json_array_size(page.items)) print_name(run->name.project, run->name.run, "latest");
    CAIRN_JSON_EACH(item, page.items) {
        char step[24];
        CLI_READ(version_row, row, item, err);
        snprintf(step, sizeof step, "%llu", (unsigned long long)row.step);
        if (!row.superseded) print_name(row.project, row.run, step);
        CAIRN_JSON_EACH(alias, row.aliases) {
            const char *name = json_string_value(alias);
            if (name) print_name(row.project, row.run, name);
        }
    }
    return CAIRN_OK;
}

static enum cairn_code print_refs(const struct cli *cli, const char *word,
                                  struct cairn_error *err) {
    const char *mark = strchr(word, '@');
    struct cli_ref run;
    char name[512];
    if (!mark) {
        CAIRN_AUTO_JSON json_t *reply = NULL;
        struct cairn_msg_page page = {0};
        CAIRN_TRY(ask_page(cli, NULL, "/runs?" PAGE, &reply, &page, err));
        CAIRN_JSON_EACH(item, page.items) {
            CLI_READ(run_row, row, item, err);
            print_name(row.project, row.run, "");
        }
        return CAIRN_OK;
    }
    if ((size_t)(mark - word) >= sizeof name)
        return cairn_fail(err, CAIRN_INVALID, "no run has so long a name");
    snprintf(name, sizeof name, "%.*s", (int)(mark - word), word);
    CAIRN_TRY(cli_ref_parse(name, &run, err));
    return print_versions(cli, &run, err);
}

static enum cairn_code run_completion(struct cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "refs")) {
        CAIRN_TRY(print_refs(cli, cli->argument_count > 1 ? cli->arguments[1] : "", err));
    } else if (!strcmp(what, "bash")) {
        printf(
            "# bash completion of cairn %s, made by `cairn completion bash`; bash 4.3 or later.\n"
            "_cairn_of() {\n    case $1 in\n",
            cairn_version());
        for (size_t i = 0; i < cli_verb_count; i++) print_verb(cli_verbs[i]);
        fputs("    esac\n}\n_cairn_choices() {\n    case $1 in\n", stdout);
        print_choices();
        fputs("    esac\n}\n_cairn_verbs() {\n    verbs='help version", stdout);
        for (size_t i = 0; i < cli_verb_count; i++) printf(" %s", cli_verbs[i]->name);
        fputs("'\n}\n", stdout);
        fputs(bash_script, stdout);
    } else if (!strcmp(what, "fish")) {
        printf(
            "# fish completion of cairn %s, made by `cairn completion fish`; fish 3.4 or later.\n",
            cairn_version());
        fputs(fish_functions, stdout);
        fputs("complete -c cairn -n '__cairn_begins 1' -f -a 'help version'\n", stdout);
        for (size_t k = 0; k < cli_verb_count; k++) print_fish_verb(cli_verbs[k]);
    } else if (!strcmp(what, "zsh")) {
        print_zsh();
    } else {
        return cairn_fail(err, CAIRN_INVALID,
                          "completion is made for bash, zsh and fish, not for %s", what);
    }
    return cli_flush(err);
}

const struct cli_verb cli_verb_completion = {
    CLI_VERB(completion),
    .synopsis = "cairn completion bash|zsh|fish|refs [flags] [WORD]",
    .purpose = "Print the completion script for bash, zsh or fish.",
    .examples = "  source <(cairn completion bash)       in this shell; or:\n"
                "  cairn completion fish > ~/.config/fish/completions/cairn.fish\n"
                "  cairn completion refs llm/7b@         what completes this word\n",
    CLI_ARGUMENTS(1, 2),
};
