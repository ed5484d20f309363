/* SPDX-License-Identifier: Apache-2.0 */
/* Sets rows of the table from text. Bounds and defaults use the parser of user input, so a wrong
 * table fails at start in every program and every test. */
#include "common/config.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "common/file.h"
#include "common/text.h"

#define CONFIG_FILE_BYTES_MAX (64 * CAIRN_KIB)
#define CONFIG_NAME_BYTES_MAX 64
#define CONFIG_TEXT_BYTES_MAX 4096

/* ---- names ---- */

/* Edit distance of two names, e.g. of "parts_size" and "part_size". */
static size_t distance(const char *a, const char *b) {
    size_t row[CONFIG_NAME_BYTES_MAX + 1], length = strlen(b);
    if (length > CONFIG_NAME_BYTES_MAX) return SIZE_MAX;
    for (size_t j = 0; j <= length; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t step = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            row[j] = change < step ? change : step;
        }
    }
    return row[length];
}

static const struct cairn_config_row *nearest(const struct cairn_config *config, const char *name) {
    const struct cairn_config_row *best = NULL;
    size_t least = 1 + strlen(name) / 3; /* beyond a third of the name it is a guess */
    for (size_t i = 0; i < config->row_count; i++) {
        size_t edits = distance(name, config->rows[i].name);
        if (edits > least || (best && edits == least)) continue;
        best = &config->rows[i];
        least = edits;
    }
    return best;
}

static const struct cairn_config_row *find(const struct cairn_config *config, const char *name) {
    for (size_t i = 0; i < config->row_count; i++)
        if (!strcmp(config->rows[i].name, name)) return &config->rows[i];
    return NULL;
}

static enum cairn_code find_or_suggest(const struct cairn_config *config, const char *name,
                                       const char *origin, const struct cairn_config_row **ret,
                                       struct cairn_error *err) {
    *ret = find(config, name);
    if (*ret) return CAIRN_OK;
    const struct cairn_config_row *near = nearest(config, name);
    return cairn_fail(err, CAIRN_INVALID, "unknown setting \"%.64s\" (%s)%s%s%s", name, origin,
                      near ? "; did you mean \"" : "", near ? near->name : "", near ? "\"?" : "");
}

/* part_size becomes part-size (a flag) or PART_SIZE (a variable). */
static void name_as(const char *name, bool flag, char ret[CONFIG_NAME_BYTES_MAX + 1]) {
    size_t i = 0;
    for (; name[i] && i < CONFIG_NAME_BYTES_MAX; i++)
        ret[i] = !flag ? (char)toupper((unsigned char)name[i]) : name[i] == '_' ? '-' : name[i];
    ret[i] = '\0';
}

static char *origin_of(const struct cairn_config *config, const struct cairn_config_row *row) {
    return config->origins[row - config->rows];
}

static void *value_of(const struct cairn_config *config, const struct cairn_config_row *row) {
    return (char *)config->values + row->offset;
}

/* ---- one value ---- */

static enum cairn_code parse_number(enum cairn_config_type type, const char *text, uint64_t *ret,
                                    struct cairn_error *err) {
    struct cairn_view view = cairn_view_of(text);
    if (type == CAIRN_CONFIG_SIZE) return cairn_parse_size(view, ret, err);
    if (type == CAIRN_CONFIG_TIME) return cairn_parse_duration(view, ret, err);
    return cairn_parse_u64(view, ret, err);
}

static enum cairn_code parse_bool(const char *text, bool *ret, struct cairn_error *err) {
    static const char *const words[] = {"false", "true", "no", "yes", "0", "1"};
    for (size_t i = 0; i < CAIRN_COUNT(words); i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *ret = i % 2 == 1;
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_INVALID, "wanted true, false, yes, no, 1 or 0");
}

static bool is_text(const struct cairn_config_row *row) {
    return row->type == CAIRN_CONFIG_TEXT || row->type == CAIRN_CONFIG_FLAG;
}

static bool has_bound(const char *bound) {
    return bound && *bound;
}

/* The bounds of a TEXT bound its length. */
static enum cairn_code check_bounds(const struct cairn_config_row *row, uint64_t value,
                                    struct cairn_error *err) {
    enum cairn_config_type type = is_text(row) ? CAIRN_CONFIG_COUNT : row->type;
    const char *of = is_text(row) ? " bytes of text" : "";
    uint64_t bound;
    if (has_bound(row->min)) {
        CAIRN_TRY(parse_number(type, row->min, &bound, err));
        if (value < bound)
            return cairn_fail(err, CAIRN_INVALID, "wanted at least %s%s", row->min, of);
    }
    if (has_bound(row->max)) {
        CAIRN_TRY(parse_number(type, row->max, &bound, err));
        if (value > bound)
            return cairn_fail(err, CAIRN_INVALID, "wanted at most %s%s", row->max, of);
    }
    return CAIRN_OK;
}

static enum cairn_code set_text(const struct cairn_config_row *row, const char *text, char **slot,
                                struct cairn_error *err) {
    size_t size = strlen(text);
    if (size > CONFIG_TEXT_BYTES_MAX)
        return cairn_fail(err, CAIRN_INVALID, "wanted at most %d bytes of text",
                          CONFIG_TEXT_BYTES_MAX);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return cairn_fail(err, CAIRN_INVALID, "the text holds a control byte");
    CAIRN_TRY(check_bounds(row, size, err));
    char *copy = strdup(text);
    if (!copy) return cairn_fail(err, CAIRN_NO_MEMORY, "out of memory");
    free(*slot);
    *slot = copy;
    return CAIRN_OK;
}

static enum cairn_code set_value(const struct cairn_config *config,
                                 const struct cairn_config_row *row, const char *text,
                                 struct cairn_error *err) {
    void *slot = value_of(config, row);
    if (is_text(row)) return set_text(row, text, slot, err);
    if (row->type == CAIRN_CONFIG_BOOL) return parse_bool(text, slot, err);
    uint64_t number;
    CAIRN_TRY(parse_number(row->type, text, &number, err));
    CAIRN_TRY(check_bounds(row, number, err));
    *(uint64_t *)slot = number;
    return CAIRN_OK;
}

static enum cairn_code set_row(struct cairn_config *config, const struct cairn_config_row *row,
                               const char *text, const char *origin, struct cairn_error *err) {
    enum cairn_code code = set_value(config, row, text, err);
    if (code != CAIRN_OK)
        return cairn_within(err, code, "setting %s = \"%.64s\" (%s)", row->name, text, origin);
    cairn_text_copy(origin_of(config, row), sizeof config->origins[0], origin);
    return CAIRN_OK;
}

enum cairn_code cairn_config_set(struct cairn_config *config, const char *name, const char *value,
                                 const char *origin, struct cairn_error *err) {
    const struct cairn_config_row *row;
    CAIRN_TRY(find_or_suggest(config, name, origin, &row, err));
    return set_row(config, row, value, origin, err);
}

bool cairn_config_is_default(const struct cairn_config *config, const char *name) {
    const struct cairn_config_row *row = find(config, name);
    return row && !strcmp(origin_of(config, row), "default");
}

/* ---- life ---- */

enum cairn_code cairn_config_init(struct cairn_config *config, const struct cairn_config_row *rows,
                                  size_t row_count, void *values, struct cairn_error *err) {
    *config = (struct cairn_config){.rows = rows, .row_count = row_count, .values = values};
    config->origins = calloc(row_count ? row_count : 1, sizeof config->origins[0]);
    if (!config->origins) return cairn_fail(err, CAIRN_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < row_count; i++)
        if (is_text(&rows[i])) *(char **)value_of(config, &rows[i]) = NULL;
    for (size_t i = 0; i < row_count; i++) {
        CAIRN_ASSERT(strlen(rows[i].name) <= CONFIG_NAME_BYTES_MAX);
        enum cairn_code code = set_row(config, &rows[i], rows[i].fallback, "default", err);
        if (code == CAIRN_OK) continue;
        cairn_config_release(config);
        return code;
    }
    return CAIRN_OK;
}

void cairn_config_release(struct cairn_config *config) {
    for (size_t i = 0; i < config->row_count; i++) {
        if (!is_text(&config->rows[i])) continue;
        char **slot = value_of(config, &config->rows[i]);
        free(*slot);
        *slot = NULL;
    }
    free(config->origins);
    *config = (struct cairn_config){0};
}

/* ---- file ---- */

static enum cairn_code read_line(struct cairn_config *config, char *line, const char *origin,
                                 unsigned *seen_at, unsigned number, struct cairn_error *err) {
    for (const char *c = line; *c; c++)
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f)
            return cairn_fail(err, CAIRN_INVALID, "%s: control byte 0x%02x", origin,
                              (unsigned)(unsigned char)*c);
    char *key = cairn_text_trim(line);
    if (*key == '\0' || *key == '#') return CAIRN_OK;
    char *equals = strchr(key, '=');
    if (!equals) return cairn_fail(err, CAIRN_INVALID, "%s: wanted `key = value`", origin);
    *equals = '\0';
    char *value = cairn_text_trim(equals + 1);
    key = cairn_text_trim(key);
    /* Double quotes around a value keep its leading and trailing spaces. */
    size_t size = strlen(value);
    if (*value == '"') {
        if (size < 2 || value[size - 1] != '"')
            return cairn_fail(err, CAIRN_INVALID, "%s: the closing quote is missing", origin);
        value[size - 1] = '\0';
        ++value;
    }
    const struct cairn_config_row *row;
    CAIRN_TRY(find_or_suggest(config, key, origin, &row, err));
    unsigned *earlier = &seen_at[row - config->rows];
    if (*earlier)
        return cairn_fail(err, CAIRN_INVALID, "%s: %s is given twice, first in line %u", origin,
                          row->name, *earlier);
    *earlier = number;
    return set_row(config, row, value, origin, err);
}

enum cairn_code cairn_config_file(struct cairn_config *config, const char *path,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CONFIG_FILE_BYTES_MAX};
    enum cairn_code code = cairn_file_load(path, &text, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "configuration file");
    if (text.size == 0) return CAIRN_OK;
    if (strlen(text.data) != text.size)
        return cairn_fail(err, CAIRN_INVALID, "configuration file %s holds a NUL byte", path);
    CAIRN_AUTO_HEAP unsigned *seen_at = calloc(config->row_count + 1, sizeof *seen_at);
    if (!seen_at) return cairn_fail(err, CAIRN_NO_MEMORY, "out of memory");
    char *line = text.data;
    for (unsigned number = 1; line; number++) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        char origin[96];
        /* "FILE:LINE"; a long path keeps its end, which distinguishes files. */
        size_t size = strlen(path);
        bool cut = size > 80;
        snprintf(origin, 96, "%s%s:%u", cut ? "..." : "", cut ? path + size - 77 : path, number);
        CAIRN_TRY(read_line(config, line, origin, seen_at, number, err));
        line = end ? end + 1 : NULL;
    }
    return CAIRN_OK;
}

/* ---- environment ---- */

enum cairn_code cairn_config_environment(struct cairn_config *config, struct cairn_error *err) {
    for (size_t i = 0; i < config->row_count; i++) {
        char name[CONFIG_NAME_BYTES_MAX + 1], variable[CONFIG_NAME_BYTES_MAX + 16];
        if (config->rows[i].type == CAIRN_CONFIG_FLAG) continue;
        name_as(config->rows[i].name, false, name);
        snprintf(variable, sizeof variable, "CAIRN_%s", name);
        const char *value = getenv(variable);
        if (!value) continue;
        enum cairn_code code = set_row(config, &config->rows[i], value, "environment", err);
        if (code != CAIRN_OK) return cairn_within(err, code, "%s", variable);
    }
    return CAIRN_OK;
}

/* ---- flags ---- */

struct flag {
    const struct cairn_config_row *row; /* NULL: --config, or no flag left */
    const char *value;                  /* NULL: no flag left */
};

static enum cairn_code unknown_flag(const struct cairn_config *config, const char *argument,
                                    const char *key, struct cairn_error *err) {
    const struct cairn_config_row *near = nearest(config, key);
    char name[CONFIG_NAME_BYTES_MAX + 1] = "";
    if (near) name_as(near->name, true, name);
    return cairn_fail(err, CAIRN_INVALID, "unknown flag \"%.64s\"%s%s%s", argument,
                      near ? "; did you mean \"--" : "", name, near ? "\"?" : "");
}

static enum cairn_code next_flag(const struct cairn_config *config, int argc, char **argv,
                                 int *index, struct flag *ret, struct cairn_error *err) {
    *ret = (struct flag){0};
    const char *argument = *index < argc ? argv[*index] : "";
    if (argument[0] != '-' || argument[1] == '\0') return CAIRN_OK;
    ++*index;
    if (!strcmp(argument, "--")) return CAIRN_OK;
    char key[CONFIG_NAME_BYTES_MAX + 1];
    /* "--part-size=64MiB": the key is part_size, the value follows '='. */
    const char *name = argument + 2, *equals = strchr(name, '=');
    size_t size = equals ? (size_t)(equals - name) : strlen(name);
    if (argument[1] != '-' || size == 0 || size > CONFIG_NAME_BYTES_MAX ||
        memchr(name, '_', size) != NULL)
        return cairn_fail(err, CAIRN_INVALID, "unknown flag \"%.64s\"", argument);
    for (size_t i = 0; i < size; i++) key[i] = name[i] == '-' ? '_' : name[i];
    key[size] = '\0';
    ret->value = equals ? equals + 1 : NULL;
    bool is_file = !strcmp(key, "config");
    ret->row = is_file ? NULL : find(config, key);
    if (!is_file && !ret->row && cairn_text_starts(key, "no_")) {
        ret->row = find(config, key + 3);
        bool negated = ret->row && ret->row->type == CAIRN_CONFIG_BOOL && !ret->value;
        if (!negated) return unknown_flag(config, argument, key, err);
        ret->value = "false";
    }
    if (!is_file && !ret->row) return unknown_flag(config, argument, key, err);
    if (ret->value) return CAIRN_OK;
    if (ret->row && ret->row->type == CAIRN_CONFIG_BOOL) {
        ret->value = "true";
        return CAIRN_OK;
    }
    if (*index >= argc) return cairn_fail(err, CAIRN_INVALID, "%s wants a value", argument);
    ret->value = argv[(*index)++];
    return CAIRN_OK;
}

/* Walks the flags twice: the first pass only looks for --config. */
static enum cairn_code walk_flags(struct cairn_config *config, int argc, char **argv,
                                  const char **ret_file, int *ret_used, struct cairn_error *err) {
    int index = 1;
    for (;;) {
        struct flag flag;
        CAIRN_TRY(next_flag(config, argc, argv, &index, &flag, err));
        if (!flag.value) break;
        if (ret_file && !flag.row) *ret_file = flag.value;
        if (!ret_file && flag.row) CAIRN_TRY(set_row(config, flag.row, flag.value, "flag", err));
    }
    if (ret_used) *ret_used = index - 1;
    return CAIRN_OK;
}

enum cairn_code cairn_config_load(struct cairn_config *config, int argc, char **argv, int *ret_used,
                                  struct cairn_error *err) {
    const char *file = NULL;
    CAIRN_TRY(walk_flags(config, argc, argv, &file, NULL, err));
    if (!file) file = getenv("CAIRN_CONFIG");
    if (file) CAIRN_TRY(cairn_config_file(config, file, err));
    CAIRN_TRY(cairn_config_environment(config, err));
    return walk_flags(config, argc, argv, NULL, ret_used, err);
}

bool cairn_config_take(int *argc, char **argv, const char *flag) {
    for (int i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], flag) != 0) continue;
        memmove(argv + i, argv + i + 1, sizeof *argv * (size_t)(*argc - i));
        --*argc;
        return true;
    }
    return false;
}

/* ---- print ---- */

struct unit {
    const char *name;
    uint64_t size;
};

/* Exact text that the parser accepts: the largest unit that divides the value. */
static void unit_text(const struct unit *units, size_t count, uint64_t value, char ret[40]) {
    size_t i = 0;
    while (i + 1 < count && (value == 0 || value % units[i].size != 0)) i++;
    snprintf(ret, 40, "%llu%s", (unsigned long long)(value / units[i].size), units[i].name);
}

static enum cairn_code print_value(const struct cairn_config *config,
                                   const struct cairn_config_row *row, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    const void *slot = value_of(config, row);
    if (row->type == CAIRN_CONFIG_BOOL)
        return cairn_buf_append_text(ret, *(const bool *)slot ? "true" : "false", err);
    if (is_text(row)) {
        const char *text = *(char *const *)slot;
        return cairn_buf_printf(ret, err, "\"%s\"", text);
    }
    char number[40];
    uint64_t value = *(const uint64_t *)slot;
    static const struct unit sizes[] = {{"TiB", 1024 * CAIRN_GIB},
                                        {"GiB", CAIRN_GIB},
                                        {"MiB", CAIRN_MIB},
                                        {"KiB", CAIRN_KIB},
                                        {"", 1}};
    static const struct unit times[] = {
        {"d", 86400000}, {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};
    static const struct unit counts[] = {{"", 1}};
    if (row->type == CAIRN_CONFIG_SIZE)
        unit_text(sizes, CAIRN_COUNT(sizes), value, number);
    else if (row->type == CAIRN_CONFIG_TIME)
        unit_text(times, CAIRN_COUNT(times), value, number);
    else
        unit_text(counts, CAIRN_COUNT(counts), value, number);
    return cairn_buf_append_text(ret, number, err);
}

/* The output is a valid --config file: origins are written as comments. */
enum cairn_code cairn_config_print(const struct cairn_config *config, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    for (size_t i = 0; i < config->row_count; i++) {
        const struct cairn_config_row *row = &config->rows[i];
        CAIRN_TRY(cairn_buf_printf(ret, err, "# from %s\n%s = ", config->origins[i], row->name));
        CAIRN_TRY(print_value(config, row, ret, err));
        CAIRN_TRY(cairn_buf_append_text(ret, "\n", err));
    }
    return CAIRN_OK;
}

static const char *const type_words[] = {
    [CAIRN_CONFIG_TEXT] = "TEXT", [CAIRN_CONFIG_FLAG] = "TEXT", [CAIRN_CONFIG_COUNT] = "COUNT",
    [CAIRN_CONFIG_SIZE] = "SIZE", [CAIRN_CONFIG_TIME] = "TIME", [CAIRN_CONFIG_BOOL] = ""};

/* "5MiB to 5GiB", "at least 1" or ""; "" for a TEXT, whose bounds are of its length. */
static void bounds_text(const struct cairn_config_row *row, char ret[96]) {
    bool low = has_bound(row->min), high = has_bound(row->max);
    *ret = '\0';
    if (is_text(row) || row->type == CAIRN_CONFIG_BOOL) return;
    if (low && high)
        snprintf(ret, 96, "%s to %s", row->min, row->max);
    else if (low)
        snprintf(ret, 96, "at least %s", row->min);
    else if (high)
        snprintf(ret, 96, "at most %s", row->max);
}

enum cairn_code cairn_config_help(const struct cairn_config *config, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_printf(ret, err, "  --config FILE\n        %s\n",
                               "Read settings from FILE, lines of `key = value`."));
    for (size_t i = 0; i < config->row_count; i++) {
        const struct cairn_config_row *row = &config->rows[i];
        char name[CONFIG_NAME_BYTES_MAX + 1], bounds[96];
        name_as(row->name, true, name);
        bounds_text(row, bounds);
        const char *word = type_words[row->type];
        CAIRN_TRY(cairn_buf_printf(
            ret, err, "  --%s%s%s%s\n        %s (default %s%s%s)\n",
            row->type == CAIRN_CONFIG_BOOL ? "[no-]" : "", name, *word ? " " : "", word, row->why,
            *row->fallback ? row->fallback : "none", *bounds ? "; " : "", bounds));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_config_docs(const struct cairn_config *config, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append_text(ret,
                                    "| key | flag | variable | default | bounds | meaning |\n"
                                    "|---|---|---|---|---|---|\n",
                                    err));
    for (size_t i = 0; i < config->row_count; i++) {
        const struct cairn_config_row *row = &config->rows[i];
        char flag[CONFIG_NAME_BYTES_MAX + 1], name[CONFIG_NAME_BYTES_MAX + 1], bounds[96];
        char variable[CONFIG_NAME_BYTES_MAX + 16] = "none";
        name_as(row->name, true, flag);
        name_as(row->name, false, name);
        if (row->type != CAIRN_CONFIG_FLAG) snprintf(variable, sizeof variable, "`CAIRN_%s`", name);
        bounds_text(row, bounds);
        CAIRN_TRY(cairn_buf_printf(ret, err, "| `%s` | `--%s` | %s | %s | %s | %s |\n", row->name,
                                   flag, variable, *row->fallback ? row->fallback : "none", bounds,
                                   row->why));
    }
    return CAIRN_OK;
}

/* ---- the start of a program ---- */

void cairn_start_signals(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* PR_SET_DUMPABLE, since RLIMIT_CORE 0 has no effect where the kernel pipes cores to a program. */
enum cairn_code cairn_start_hide_memory(struct cairn_error *err) {
    return prctl(PR_SET_DUMPABLE, 0) ? cairn_fail_errno(err, "PR_SET_DUMPABLE") : CAIRN_OK;
}

static enum cairn_code print(enum cairn_code (*write)(const struct cairn_config *config,
                                                      struct cairn_buf *ret,
                                                      struct cairn_error *err),
                             const struct cairn_config *config, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(write(config, &text, err));
    fputs(text.size ? text.data : "", stdout);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

enum cairn_code cairn_start_settings(const struct cairn_start *start, int argc, char **argv,
                                     struct cairn_config *config, bool *ret_done,
                                     struct cairn_error *err) {
    bool version = cairn_config_take(&argc, argv, "--version");
    bool help = cairn_config_take(&argc, argv, "--help");
    bool docs = cairn_config_take(&argc, argv, "--print-docs");
    bool shown = cairn_config_take(&argc, argv, "--print-config");
    int used = 0;
    *ret_done = true;
    CAIRN_TRY(cairn_config_init(config, start->rows, start->row_count, start->values, err));
    if (version)
        return puts(start->version) < 0 ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
    if (help) fputs(start->usage, stdout);
    if (help) return print(cairn_config_help, config, err);
    if (docs) return print(cairn_config_docs, config, err);
    CAIRN_TRY(cairn_config_load(config, argc, argv, &used, err));
    if (used + 1 < argc)
        return cairn_fail(err, CAIRN_INVALID, "unknown argument \"%s\"; see --help",
                          argv[used + 1]);
    if (shown) return print(cairn_config_print, config, err);
    *ret_done = false;
    return CAIRN_OK;
}
