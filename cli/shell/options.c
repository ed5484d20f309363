/* SPDX-License-Identifier: Apache-2.0 */
/* options: one parser for the flags of all verbs, help made from the tables, the profiles file. */
#include "cli/shell/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/shell/output.h"
#include "common/file.h"
#include "common/text.h"

#define FILE_URL "file://"

const struct cli_flag cli_common_flags[] = {
    {"server", 's', CLI_TEXT, CLI_AT(server), 0, "URL",
     "The server, or a comma list of servers; default $CAIRN_URL, else http://127.0.0.1:7420."},
    {"token-file", 0, CLI_TEXT, CLI_AT(token_file), 0, "FILE",
     "File that holds the bearer token; default $CAIRN_TOKEN, else $CAIRN_TOKEN_FILE."},
    {"ca-file", 0, CLI_TEXT, CLI_AT(ca_file), 0, "FILE",
     "Certificates that sign the server's; default $CAIRN_CA_FILE, else the system's."},
    {"socket", 0, CLI_TEXT, CLI_AT(socket), 0, "PATH",
     "The uploader's socket; default $CAIRN_SOCKET, else /run/cairn/uploader.sock."},
    {"profile", 0, CLI_TEXT, CLI_AT(profile), 0, "NAME",
     "The server, token and socket that cairn profile keeps by that name; before variables."},
    {"output", 'o', CLI_TEXT, CLI_AT(output_text), 0, "FORM",
     "table, wide, json, jsonl, yaml or name. Table text may change; JSON is stable."},
    {"fields", 0, CLI_TEXT, CLI_AT(fields), 0, "NAMES",
     "Of json, jsonl or yaml only these, with commas, dots for inner ones: step,labels.team."},
    {"json", 0, CLI_SWITCH, CLI_AT(json), 0, NULL, "The same as --output json."},
    {"si", 0, CLI_SWITCH, CLI_AT(si_sizes), 0, NULL,
     "Sizes of text in kB, MB, GB, of powers of ten; without it in KiB, MiB, GiB."},
    {"bytes", 0, CLI_SWITCH, CLI_AT(plain_sizes), 0, NULL, "Sizes of text in bytes."},
    {"progress", 0, CLI_TEXT, CLI_AT(progress_text), 0, "FORM",
     "auto, bar, plain, json or none; auto is a bar on a terminal, else a line every 5 s."},
    {"timeout", 0, CLI_TIME, CLI_AT(timeout_ms), 0, "TIME",
     "Give up after this long, e.g. 30s, 10min."},
    {"help", 'h', CLI_SWITCH, CLI_AT(help), 0, NULL, "Show this text."},
};
const size_t cli_common_flag_count = CAIRN_COUNT(cli_common_flags);

static size_t edit_distance(const char *a, const char *b) {
    enum { LONGEST = 32 };
    size_t rows = strlen(a), columns = strlen(b);
    if (rows > LONGEST || columns > LONGEST) return LONGEST;
    size_t line[LONGEST + 1];
    for (size_t j = 0; j <= columns; j++) line[j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t diagonal = line[0];
        line[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t above = line[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (line[j - 1] + 1 < best) best = line[j - 1] + 1;
            diagonal = above;
            line[j] = best;
        }
    }
    return line[columns];
}

const char *cli_nearest(const char *word, const char *const *candidates, size_t count) {
    const char *nearest = NULL;
    size_t best = strlen(word) / 2 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(word, candidates[i]);
        if (distance < best) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

/* A verb's own flag hides the common flag of that name: bench and quota have their own --bytes. */
static bool is_own(const struct cli_verb *verb, const char *name) {
    for (size_t i = 0; i < verb->flag_count; i++)
        if (!strcmp(verb->flags[i].name, name)) return true;
    return false;
}

const struct cli_flag *cli_flag_at(const struct cli_verb *verb, size_t index) {
    if (index < verb->flag_count) return &verb->flags[index];
    index -= verb->flag_count;
    for (size_t i = 0; i < cli_common_flag_count; i++) {
        const struct cli_flag *flag = &cli_common_flags[i];
        if (!is_own(verb, flag->name) && !index--) return flag;
    }
    return NULL;
}

static const struct cli_flag *find_flag(const struct cli_verb *verb, const char *name,
                                        size_t name_bytes, char letter) {
    const struct cli_flag *flag;
    for (size_t i = 0; (flag = cli_flag_at(verb, i)); i++) {
        if (letter ? flag->letter == letter
                   : strlen(flag->name) == name_bytes && !memcmp(flag->name, name, name_bytes))
            return flag;
    }
    return NULL;
}

static enum cairn_code unknown_flag(const struct cli_verb *verb, const char *word,
                                    struct cairn_error *err) {
    enum { FLAGS_MAX = 48 };
    const char *names[FLAGS_MAX];
    size_t count = 0;
    const struct cli_flag *flag;
    while (count < FLAGS_MAX && (flag = cli_flag_at(verb, count))) names[count++] = flag->name;
    const char *nearest = cli_nearest(word + strspn(word, "-"), names, count);
    return cairn_fail(err, CAIRN_INVALID, "there is no flag %s%s%s%s", word,
                      nearest ? "; did you mean --" : "", nearest ? nearest : "",
                      nearest ? "?" : "");
}

static enum cairn_code set_flag(const struct cli_flag *flag, const char *value, struct cli *cli,
                                struct cairn_error *err) {
    char *field = (char *)cli + flag->offset;
    struct cairn_view text = value ? cairn_view_of(value) : CAIRN_VIEW("");
    enum cairn_code code = CAIRN_OK;
    switch (flag->kind) {
    case CLI_SWITCH:
        *(bool *)field = true;
        break;
    case CLI_TEXT:
        *(const char **)field = value;
        break;
    case CLI_TEXTS: {
        struct cli_texts *texts = (struct cli_texts *)field;
        if (texts->count == CLI_TEXTS_MAX)
            code = cairn_fail(err, CAIRN_INVALID, "given more than %d times", CLI_TEXTS_MAX);
        else
            texts->items[texts->count++] = value;
        break;
    }
    case CLI_NUMBER:
        code = cairn_parse_u64(text, (uint64_t *)field, err);
        break;
    case CLI_COUNT:
        code = cairn_parse_u64(text, (uint64_t *)field, err);
        if (code == CAIRN_OK && !*(uint64_t *)field)
            code = cairn_fail(err, CAIRN_INVALID, "at least 1 is needed");
        break;
    case CLI_SIZE:
        code = cairn_parse_size(text, (uint64_t *)field, err);
        break;
    case CLI_TIME:
        code = cairn_parse_duration(text, (uint64_t *)field, err);
        break;
    }
    if (code != CAIRN_OK) return cairn_within(err, CAIRN_INVALID, "--%s", flag->name);
    if (flag->seen_offset) *(bool *)((char *)cli + flag->seen_offset) = true;
    return CAIRN_OK;
}

/* Parses the flag at argv[*at]; moves *at past its value. */
static enum cairn_code take_flag(const struct cli_verb *verb, int argc, char **argv, int *at,
                                 struct cli *cli, struct cairn_error *err) {
    const char *word = argv[*at];
    bool is_long = word[1] == '-';
    const char *name = word + 1 + is_long;
    const char *equals = is_long ? strchr(name, '=') : NULL;
    size_t name_bytes = equals ? (size_t)(equals - name) : strlen(name);
    if (!is_long && name_bytes != 1) return unknown_flag(verb, word, err);
    const struct cli_flag *flag = find_flag(verb, name, name_bytes, is_long ? 0 : name[0]);
    if (!flag) return unknown_flag(verb, word, err);
    if (flag->kind == CLI_SWITCH && equals)
        return cairn_fail(err, CAIRN_INVALID, "--%s takes no value", flag->name);
    const char *value = equals ? equals + 1 : NULL;
    if (flag->kind != CLI_SWITCH && !value) {
        if (*at + 1 >= argc)
            return cairn_fail(err, CAIRN_INVALID, "--%s needs a value: %s", flag->name,
                              flag->value);
        value = argv[++*at];
    }
    return set_flag(flag, value, cli, err);
}

static const struct {
    const char *word;
    enum cli_output output;
    bool wide, yaml;
} outputs[] = {{"table", CLI_TABLE, false, false}, {"wide", CLI_TABLE, true, false},
               {"json", CLI_JSON, false, false},   {"jsonl", CLI_JSONL, false, false},
               {"yaml", CLI_JSON, false, true},    {"name", CLI_NAME, false, false}};
static const char *const bars[] = {"auto", "bar", "plain", "json", "none"};

const char *cli_flag_word(const struct cli_flag *flag, size_t index) {
    if (flag->offset == CLI_AT(output_text))
        return index < CAIRN_COUNT(outputs) ? outputs[index].word : NULL;
    if (flag->offset == CLI_AT(progress_text))
        return index < CAIRN_COUNT(bars) ? bars[index] : NULL;
    return NULL;
}

size_t cli_word_index(const char *const *words, size_t count, const char *word) {
    size_t i = 0;
    while (i < count && strcmp(words[i], word) != 0) i++;
    return i;
}

/* The flag that `word` was probably meant for, as the end of an error. */
struct meant {
    char text[160];
};
static struct meant meant_flag(const char *flag, const char *word) {
    struct meant meant = {""};
    if (flag)
        snprintf(meant.text, sizeof meant.text, " (is --%s %s meant?)", flag,
                 cairn_short(word).text);
    return meant;
}

static enum cairn_code pick_output(const struct cli_verb *verb, struct cli *cli,
                                   struct cairn_error *err) {
    bool has_folder = verb->surplus && !strcmp(verb->surplus, "directory"); /* -o of other tools */
    size_t i = 0;
    cli->output = cli->json ? CLI_JSON : CLI_TABLE;
    while (cli->output_text && i < CAIRN_COUNT(outputs) &&
           strcmp(outputs[i].word, cli->output_text) != 0)
        i++;
    if (i == CAIRN_COUNT(outputs))
        return cairn_fail(
            err, CAIRN_INVALID, "--output is table, wide, json, jsonl, yaml or name, not %s%s",
            cli->output_text, meant_flag(has_folder ? verb->surplus : NULL, cli->output_text).text);
    if (cli->output_text) {
        cli->output = outputs[i].output;
        cli->wide = outputs[i].wide;
        cli->yaml = outputs[i].yaml;
    }
    if (cli->fields && cli->output != CLI_JSON && cli->output != CLI_JSONL)
        return cairn_fail(err, CAIRN_INVALID, "--fields is of --output json, jsonl or yaml");
    return CAIRN_OK;
}

/* Decodes a file:///path URL in place. */
static enum cairn_code take_file_url(char *word, struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    const char *from = word + strlen(FILE_URL);
    if (*from != '/')
        return cairn_fail(err, CAIRN_INVALID, "%s: a file URL has three slashes: file:///path",
                          word);
    enum cairn_code code = cairn_percent_decode(cairn_view_of(from), &path, err);
    if (code) return cairn_within(err, code, "%s", word);
    if (strlen(path.data) != path.size)
        return cairn_fail(err, CAIRN_INVALID, "%s: a path holds no NUL", word);
    memcpy(word, path.data, path.size + 1);
    return CAIRN_OK;
}

enum cairn_code cli_parse(const struct cli_verb *verb, int argc, char **argv, struct cli *cli,
                          struct cairn_error *err) {
    bool flags_over = false;
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
        if (!flags_over && !strcmp(word, "--")) {
            flags_over = true;
        } else if (!flags_over && word[0] == '-' && word[1]) {
            CAIRN_TRY(take_flag(verb, argc, argv, &at, cli, err));
        } else if (cli->argument_count == verb->arguments_max) {
            return cairn_fail(err, CAIRN_INVALID, "one argument too many: \"%s\"%s; usage: %s",
                              word, meant_flag(verb->surplus, word).text, verb->synopsis);
        } else {
            if (verb->takes_paths && cairn_text_starts(word, FILE_URL))
                CAIRN_TRY(take_file_url(argv[at], err));
            cli->arguments[cli->argument_count++] = word;
        }
    }
    CAIRN_TRY(pick_output(verb, cli, err));
    const char *progress = cli->progress_text ? cli->progress_text : getenv("CAIRN_PROGRESS");
    if (progress) {
        size_t i = cli_word_index(bars, CAIRN_COUNT(bars), progress);
        if (i == CAIRN_COUNT(bars))
            return cairn_fail(err, CAIRN_INVALID,
                              "--progress is auto, bar, plain, json or none, not %s", progress);
        cli->progress = (enum cli_progress)i;
    }
    if (!cli->help && cli->argument_count < verb->arguments_min)
        return cairn_fail(err, CAIRN_INVALID, "%s; usage: %s",
                          verb->arguments_min - cli->argument_count > 1 ? "arguments are missing"
                                                                        : "an argument is missing",
                          verb->synopsis);
    return CAIRN_OK;
}

enum cairn_code cli_help(const struct cli_verb *verb, struct cairn_error *err) {
    printf("%s\n\nExamples:\n%s\nUsage: %s\n\nFlags:\n", verb->purpose, verb->examples,
           verb->synopsis);
    const struct cli_flag *flag;
    for (size_t i = 0; (flag = cli_flag_at(verb, i)); i++) {
        char left[48];
        char letter[8] = "    ";
        if (flag->letter) snprintf(letter, sizeof letter, "-%c, ", flag->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, flag->name, flag->value ? " " : "",
                 flag->value ? flag->value : "");
        printf("  %-26s %s\n", left, flag->help);
    }
    return cli_flush(err);
}

const char *cli_server_url(const struct cli *cli) {
    struct cli_server server;
    cli_server_of(cli, &server);
    return server.url;
}

const char *cli_uploader_socket(const struct cli *cli) {
    struct cli_server server;
    cli_server_of(cli, &server);
    return server.socket;
}

enum cairn_code cli_connect(const struct cli *cli, struct cairn_rest **ret,
                            struct cairn_error *err) {
    struct cli_server server;
    cli_server_of(cli, &server);
    struct cairn_rest_options options = {
        .url = server.url,
        .token = server.token,
        .token_file = server.token_file,
        .ca_bundle = server.ca_file,
        .timeout_ms =
            cli->timeout_ms && cli->timeout_ms < UINT32_MAX ? (uint32_t)cli->timeout_ms : 0,
        .seen = cli->seen,
        .keys_posts = true,
    };
    return cairn_rest_new(&options, ret, err);
}

/* ---- profiles ---- */

#define URL_DEFAULT "http://127.0.0.1:7420"
#define SOCKET_DEFAULT "/run/cairn/uploader.sock"
#define FILE_BYTES_MAX (UINT64_C(512) * 1024)

static const struct {
    const char *key;
    size_t offset;
} keys[] = {
    {"server", offsetof(struct cli_profile, server)},
    {"token_file", offsetof(struct cli_profile, token_file)},
    {"ca_file", offsetof(struct cli_profile, ca_file)},
    {"socket", offsetof(struct cli_profile, socket)},
};

bool cli_profile_name_valid(const char *name) {
    static const char others[] = "0123456789.-_abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return *name && *name != '.' && *name != '-' && strlen(name) < CLI_PROFILE_NAME_BYTES &&
           !name[strspn(name, others)];
}

struct cli_profile *cli_profiles_find(struct cli_profiles *profiles, const char *name) {
    for (size_t i = 0; i < profiles->count; i++)
        if (!strcmp(profiles->items[i].name, name)) return &profiles->items[i];
    return NULL;
}

/* options.h#6: a writer of this file could redirect the user's tokens. */
static enum cairn_code check_file(const char *path, bool *ret_there, struct cairn_error *err) {
    struct stat status;
    *ret_there = !stat(path, &status);
    if (!*ret_there && (errno == ENOENT || errno == ENOTDIR || errno == EACCES)) return CAIRN_OK;
    if (!*ret_there) return cairn_fail_errno(err, "%s", path);
    if (status.st_uid == geteuid() && !(status.st_mode & 077)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%s is not this user's alone: chown it and chmod 600 it",
                      path);
}

static enum cairn_code take_section(struct cli_profiles *profiles, char *line,
                                    struct cairn_error *err) {
    size_t size = strlen(line);
    if (line[size - 1] != ']') return cairn_fail(err, CAIRN_INVALID, "%s: no ] at its end", line);
    line[size - 1] = '\0';
    const char *name = line + 1;
    if (!cli_profile_name_valid(name))
        return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no name of a profile", name);
    if (cli_profiles_find(profiles, name))
        return cairn_fail(err, CAIRN_INVALID, "%s is there twice", name);
    if (profiles->count == CLI_PROFILES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "more than %d profiles", CLI_PROFILES_MAX);
    struct cli_profile *profile = &profiles->items[profiles->count++];
    *profile = (struct cli_profile){0};
    (void)cairn_text_copy(profile->name, sizeof profile->name, name);
    return CAIRN_OK;
}

static enum cairn_code take_value(struct cli_profiles *profiles, char *line,
                                  struct cairn_error *err) {
    char *equals = strchr(line, '=');
    if (!equals) return cairn_fail(err, CAIRN_INVALID, "\"%.80s\" is no key = value", line);
    *equals = '\0';
    const char *key = cairn_text_trim(line), *value = cairn_text_trim(equals + 1);
    char *into = NULL;
    size_t capacity = CLI_PROFILE_VALUE_BYTES;
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

static enum cairn_code take_line(struct cli_profiles *profiles, char *line,
                                 struct cairn_error *err) {
    line = cairn_text_trim(line);
    if (!*line || *line == '#') return CAIRN_OK;
    return *line == '[' ? take_section(profiles, line, err) : take_value(profiles, line, err);
}

enum cairn_code cli_profiles_load(struct cli_profiles *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = FILE_BYTES_MAX};
    bool there = false;
    unsigned number = 0;
    ret->count = 0;
    ret->use[0] = '\0';
    const char *path = getenv("CAIRN_PROFILES"), *config = getenv("XDG_CONFIG_HOME"),
               *home = getenv("HOME");
    int size = 0;
    *ret->path = '\0';
    if (path && *path)
        size = snprintf(ret->path, CLI_PROFILE_VALUE_BYTES, "%s", path);
    else if (config && *config == '/') /* XDG: a relative path is ignored */
        size = snprintf(ret->path, CLI_PROFILE_VALUE_BYTES, "%s/cairn/profiles", config);
    else if (home && *home == '/')
        size = snprintf(ret->path, CLI_PROFILE_VALUE_BYTES, "%s/.config/cairn/profiles", home);
    if (size >= CLI_PROFILE_VALUE_BYTES) *ret->path = '\0';
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

static enum cairn_code write_profile(const struct cli_profile *profile, struct cairn_buf *text,
                                     struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_printf(text, err, "\n[%s]\n", profile->name));
    for (size_t i = 0; i < CAIRN_COUNT(keys); i++) {
        const char *value = (const char *)profile + keys[i].offset;
        if (*value) CAIRN_TRY(cairn_buf_printf(text, err, "%s = %s\n", keys[i].key, value));
    }
    return CAIRN_OK;
}

enum cairn_code cli_profiles_save(const struct cli_profiles *profiles, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = FILE_BYTES_MAX};
    CAIRN_TRY(
        cairn_buf_append_text(&text, "# Made by cairn profile; keys: cairn profile --help\n", err));
    if (profiles->use[0]) CAIRN_TRY(cairn_buf_printf(&text, err, "use = %s\n", profiles->use));
    for (size_t i = 0; i < profiles->count; i++)
        CAIRN_TRY(write_profile(&profiles->items[i], &text, err));
    return cairn_file_replace(profiles->path, cairn_buf_view(&text), 0600, err);
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

enum cairn_code cli_profile_choose(struct cli *cli, struct cairn_error *err) {
    static struct cli_profiles profiles; /* static: cli points into it */
    const char *name = cli->profile && *cli->profile ? cli->profile : variable("CAIRN_PROFILE");
    CAIRN_TRY(cli_profiles_load(&profiles, err));
    if (!name && profiles.use[0]) name = profiles.use;
    if (!name) return CAIRN_OK;
    cli->chosen = cli_profiles_find(&profiles, name);
    if (cli->chosen) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "there is no profile \"%.80s\"; cairn profile ls has them", name);
}

/* options.h#4 */
static const char *pick(const struct cli *cli, const char *flag, const char *of_profile,
                        const char *variable_name, const char *otherwise) {
    const char *of_variable = variable_name ? variable(variable_name) : NULL;
    bool has = of_profile && *of_profile, named = cli->profile && *cli->profile;
    if (flag && *flag) return flag;
    if (has && named) return of_profile;
    if (of_variable) return of_variable;
    return has ? of_profile : otherwise;
}

void cli_server_of(const struct cli *cli, struct cli_server *ret) {
    static const struct cli_profile none;
    const struct cli_profile *profile = cli->chosen ? cli->chosen : &none;
    *ret = (struct cli_server){
        .url = pick(cli, cli->server, profile->server, "CAIRN_URL", URL_DEFAULT),
        .socket = pick(cli, cli->socket, profile->socket, "CAIRN_SOCKET", SOCKET_DEFAULT)};
    if (ret->url != profile->server) profile = &none; /* options.h#5 */
    bool named = profile != &none && cli->profile && *cli->profile && profile->token_file[0];
    bool flag = cli->token_file && *cli->token_file;
    if (!flag && !named) ret->token = variable("CAIRN_TOKEN");
    if (!ret->token)
        ret->token_file = pick(cli, cli->token_file, profile->token_file, "CAIRN_TOKEN_FILE", NULL);
    ret->ca_file = pick(cli, cli->ca_file, profile->ca_file, "CAIRN_CA_FILE", NULL);
}
