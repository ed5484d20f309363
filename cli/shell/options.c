/* SPDX-License-Identifier: Apache-2.0 */
/* Flags of all verbs: one parser over tables, and the help made from them. */
#include "cli/shell/options.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/shell/profile.h"
#include "cli/shell/verb.h"
#include "common/encode.h"
#include "common/text.h"

#define FILE_URL "file://"

const struct cairn_cli_flag cairn_cli_common_flags[] = {
    {"server", 's', CAIRN_CLI_TEXT, CAIRN_CLI_AT(server), 0, "URL",
     "The server, or a comma list of servers; default $CAIRN_URL, else http://127.0.0.1:7420."},
    {"token-file", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(token_file), 0, "FILE",
     "File that holds the bearer token; default $CAIRN_TOKEN, else $CAIRN_TOKEN_FILE."},
    {"ca-file", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(ca_file), 0, "FILE",
     "Certificates that sign the server's; default $CAIRN_CA_FILE, else the system's."},
    {"socket", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(socket), 0, "PATH",
     "The uploader's socket; default $CAIRN_SOCKET, else /run/cairn/uploader.sock."},
    {"profile", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(profile), 0, "NAME",
     "The server, token and socket that cairn profile keeps by that name; before variables."},
    {"output", 'o', CAIRN_CLI_TEXT, CAIRN_CLI_AT(output_text), 0, "FORM",
     "table, wide, json, jsonl, yaml or name. Table text may change; JSON is stable."},
    {"fields", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(fields), 0, "NAMES",
     "Of json, jsonl or yaml only these, with commas, dots for inner ones: step,labels.team."},
    {"json", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(json), 0, NULL, "The same as --output json."},
    {"si", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(si_sizes), 0, NULL,
     "Sizes of text in kB, MB, GB, of powers of ten; without it in KiB, MiB, GiB."},
    {"bytes", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(plain_sizes), 0, NULL,
     "Sizes of text in bytes."},
    {"progress", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(progress_text), 0, "FORM",
     "auto, bar, plain, json or none; auto is a bar on a terminal, else a line every 5 s."},
    {"timeout", 0, CAIRN_CLI_TIME, CAIRN_CLI_AT(timeout_ms), 0, "TIME",
     "Give up after this long, e.g. 30s, 10min."},
    {"help", 'h', CAIRN_CLI_SWITCH, CAIRN_CLI_AT(help), 0, NULL, "Show this text."},
};
const size_t cairn_cli_common_flag_count = CAIRN_COUNT(cairn_cli_common_flags);

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

const char *cairn_cli_nearest(const char *word, const char *const *candidates, size_t count) {
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

/* A verb's flag counts for a common one of its name: bench and quota have bytes of their own. */
static bool is_own(const struct cairn_cli_verb *verb, const char *name) {
    for (size_t i = 0; i < verb->flag_count; i++)
        if (!strcmp(verb->flags[i].name, name)) return true;
    return false;
}

const struct cairn_cli_flag *cairn_cli_flag_at(const struct cairn_cli_verb *verb,
                                               size_t index) {
    if (index < verb->flag_count) return &verb->flags[index];
    index -= verb->flag_count;
    for (size_t i = 0; i < cairn_cli_common_flag_count; i++) {
        const struct cairn_cli_flag *flag = &cairn_cli_common_flags[i];
        if (!is_own(verb, flag->name) && !index--) return flag;
    }
    return NULL;
}

static const struct cairn_cli_flag *find_flag(const struct cairn_cli_verb *verb, const char *name,
                                              size_t name_bytes, char letter) {
    const struct cairn_cli_flag *flag;
    for (size_t i = 0; (flag = cairn_cli_flag_at(verb, i)); i++) {
        if (letter ? flag->letter == letter
                   : strlen(flag->name) == name_bytes && !memcmp(flag->name, name, name_bytes))
            return flag;
    }
    return NULL;
}

static enum cairn_code unknown_flag(const struct cairn_cli_verb *verb, const char *word,
                                    struct cairn_error *err) {
    enum { FLAGS_MAX = 48 };
    const char *names[FLAGS_MAX];
    size_t count = 0;
    const struct cairn_cli_flag *flag;
    while (count < FLAGS_MAX && (flag = cairn_cli_flag_at(verb, count)))
        names[count++] = flag->name;
    const char *nearest = cairn_cli_nearest(word + strspn(word, "-"), names, count);
    return cairn_fail(err, CAIRN_INVALID, "there is no flag %s%s%s%s", word,
                      nearest ? "; did you mean --" : "", nearest ? nearest : "",
                      nearest ? "?" : "");
}

static enum cairn_code set_flag(const struct cairn_cli_flag *flag, const char *value,
                                struct cairn_cli *cli, struct cairn_error *err) {
    char *field = (char *)cli + flag->offset;
    struct cairn_view text = value ? cairn_view_of(value) : CAIRN_VIEW("");
    enum cairn_code code = CAIRN_OK;
    switch (flag->kind) {
    case CAIRN_CLI_SWITCH:
        *(bool *)field = true;
        break;
    case CAIRN_CLI_TEXT:
        *(const char **)field = value;
        break;
    case CAIRN_CLI_TEXTS: {
        struct cairn_cli_texts *texts = (struct cairn_cli_texts *)field;
        if (texts->count == CAIRN_CLI_TEXTS_MAX)
            code = cairn_fail(err, CAIRN_INVALID, "given more than %d times", CAIRN_CLI_TEXTS_MAX);
        else
            texts->items[texts->count++] = value;
        break;
    }
    case CAIRN_CLI_NUMBER:
        code = cairn_parse_u64(text, (uint64_t *)field, err);
        break;
    case CAIRN_CLI_COUNT:
        code = cairn_parse_u64(text, (uint64_t *)field, err);
        if (code == CAIRN_OK && !*(uint64_t *)field)
            code = cairn_fail(err, CAIRN_INVALID, "at least 1 is needed");
        break;
    case CAIRN_CLI_SIZE:
        code = cairn_parse_size(text, (uint64_t *)field, err);
        break;
    case CAIRN_CLI_TIME:
        code = cairn_parse_duration(text, (uint64_t *)field, err);
        break;
    }
    if (code != CAIRN_OK) return cairn_within(err, CAIRN_INVALID, "--%s", flag->name);
    if (flag->seen_offset) *(bool *)((char *)cli + flag->seen_offset) = true;
    return CAIRN_OK;
}

/* One flag at argv[*at]; moves *at past its value. */
static enum cairn_code take_flag(const struct cairn_cli_verb *verb, int argc, char **argv, int *at,
                                 struct cairn_cli *cli, struct cairn_error *err) {
    const char *word = argv[*at];
    bool is_long = word[1] == '-';
    const char *name = word + 1 + is_long;
    const char *equals = is_long ? strchr(name, '=') : NULL;
    size_t name_bytes = equals ? (size_t)(equals - name) : strlen(name);
    if (!is_long && name_bytes != 1) return unknown_flag(verb, word, err);
    const struct cairn_cli_flag *flag = find_flag(verb, name, name_bytes, is_long ? 0 : name[0]);
    if (!flag) return unknown_flag(verb, word, err);
    if (flag->kind == CAIRN_CLI_SWITCH && equals)
        return cairn_fail(err, CAIRN_INVALID, "--%s takes no value", flag->name);
    const char *value = equals ? equals + 1 : NULL;
    if (flag->kind != CAIRN_CLI_SWITCH && !value) {
        if (*at + 1 >= argc)
            return cairn_fail(err, CAIRN_INVALID, "--%s needs a value: %s", flag->name,
                              flag->value);
        value = argv[++*at];
    }
    return set_flag(flag, value, cli, err);
}

static const struct {
    const char *word;
    enum cairn_cli_output output;
    bool wide, yaml;
} outputs[] = {{"table", CAIRN_CLI_TABLE, false, false}, {"wide", CAIRN_CLI_TABLE, true, false},
               {"json", CAIRN_CLI_JSON, false, false},   {"jsonl", CAIRN_CLI_JSONL, false, false},
               {"yaml", CAIRN_CLI_JSON, false, true},    {"name", CAIRN_CLI_NAME, false, false}};
static const char *const bars[] = {"auto", "bar", "plain", "json", "none"};

const char *cairn_cli_flag_word(const struct cairn_cli_flag *flag, size_t index) {
    if (flag->offset == CAIRN_CLI_AT(output_text))
        return index < CAIRN_COUNT(outputs) ? outputs[index].word : NULL;
    if (flag->offset == CAIRN_CLI_AT(progress_text))
        return index < CAIRN_COUNT(bars) ? bars[index] : NULL;
    return NULL;
}

static enum cairn_code pick_output(struct cairn_cli *cli, struct cairn_error *err) {
    size_t i = 0;
    cli->output = cli->json ? CAIRN_CLI_JSON : CAIRN_CLI_TABLE;
    while (cli->output_text && i < CAIRN_COUNT(outputs) &&
           strcmp(outputs[i].word, cli->output_text) != 0)
        i++;
    if (i == CAIRN_COUNT(outputs))
        return cairn_fail(err, CAIRN_INVALID,
                          "--output is table, wide, json, jsonl, yaml or name, not %s",
                          cli->output_text);
    if (cli->output_text) {
        cli->output = outputs[i].output;
        cli->wide = outputs[i].wide;
        cli->yaml = outputs[i].yaml;
    }
    if (cli->fields && cli->output != CAIRN_CLI_JSON && cli->output != CAIRN_CLI_JSONL)
        return cairn_fail(err, CAIRN_INVALID, "--fields is of --output json, jsonl or yaml");
    return CAIRN_OK;
}

static enum cairn_code pick_forms(struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_TRY(pick_output(cli, err));
    const char *progress = cli->progress_text ? cli->progress_text : getenv("CAIRN_PROGRESS");
    if (progress) {
        size_t i = 0;
        while (i < CAIRN_COUNT(bars) && strcmp(bars[i], progress)) i++;
        if (i == CAIRN_COUNT(bars))
            return cairn_fail(err, CAIRN_INVALID,
                              "--progress is auto, bar, plain, json or none, not %s", progress);
        cli->progress = (enum cairn_cli_progress)i;
    }
    return CAIRN_OK;
}

/* file:///path, percent-encoded, becomes the path, in its place. */
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

enum cairn_code cairn_cli_parse(const struct cairn_cli_verb *verb, int argc, char **argv,
                                struct cairn_cli *cli, struct cairn_error *err) {
    bool flags_over = false;
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
        if (!flags_over && !strcmp(word, "--")) {
            flags_over = true;
        } else if (!flags_over && word[0] == '-' && word[1]) {
            CAIRN_TRY(take_flag(verb, argc, argv, &at, cli, err));
        } else if (cli->argument_count == verb->arguments_max) {
            return cairn_fail(err, CAIRN_INVALID, "one argument too many: \"%s\"; usage: %s", word,
                              verb->synopsis);
        } else {
            if (verb->takes_paths && cairn_text_starts(word, FILE_URL))
                CAIRN_TRY(take_file_url(argv[at], err));
            cli->arguments[cli->argument_count++] = word;
        }
    }
    CAIRN_TRY(pick_forms(cli, err));
    if (!cli->help && cli->argument_count < verb->arguments_min)
        return cairn_fail(err, CAIRN_INVALID, "%s; usage: %s",
                          verb->arguments_min - cli->argument_count > 1 ? "arguments are missing"
                                                                        : "an argument is missing",
                          verb->synopsis);
    return CAIRN_OK;
}

enum cairn_code cairn_cli_help(const struct cairn_cli_verb *verb, struct cairn_error *err) {
    printf("%s\n\nExamples:\n%s\nUsage: %s\n\nFlags:\n", verb->purpose, verb->examples,
           verb->synopsis);
    const struct cairn_cli_flag *flag;
    for (size_t i = 0; (flag = cairn_cli_flag_at(verb, i)); i++) {
        char left[48];
        char letter[8] = "    ";
        if (flag->letter) snprintf(letter, sizeof letter, "-%c, ", flag->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, flag->name, flag->value ? " " : "",
                 flag->value ? flag->value : "");
        printf("  %-26s %s\n", left, flag->help);
    }
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}

const char *cairn_cli_server_url(const struct cairn_cli *cli) {
    struct cairn_cli_server server;
    cairn_cli_server_of(cli, &server);
    return server.url;
}

const char *cairn_cli_uploader_socket(const struct cairn_cli *cli) {
    struct cairn_cli_server server;
    cairn_cli_server_of(cli, &server);
    return server.socket;
}

enum cairn_code cairn_cli_connect(const struct cairn_cli *cli, struct cairn_rest **ret,
                                  struct cairn_error *err) {
    struct cairn_cli_server server;
    cairn_cli_server_of(cli, &server);
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
