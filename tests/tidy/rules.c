/* SPDX-License-Identifier: Apache-2.0 */
/* rules: line scanners. They keep to what clang-format leaves in place, so they can stay simple. */
#include "tests/tidy/rules.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define FUNCTION_LINES_MAX 70
#define FILE_LINES_MAX 1000
#define COLUMNS_MAX 100

/* ---- text ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static bool starts(const char *text, const char *start) {
    return !strncmp(text, start, strlen(start));
}

static bool ends(const char *text, const char *end) {
    size_t size = strlen(text), tail = strlen(end);
    return size >= tail && !strcmp(text + size - tail, end);
}

static size_t line_size(const char *line) {
    return strcspn(line, "\n");
}

static const char *next_line(const char *line) {
    line += line_size(line);
    return *line ? line + 1 : NULL;
}

static unsigned line_number(const char *text, const char *at) {
    unsigned number = 1;
    for (; text < at; text++) number += *text == '\n';
    return number;
}

static void report(const struct cairn_tidy_file *file, const char *at, struct cairn_buf *found,
                   const char *what, const char *detail) {
    enum cairn_code code = cairn_buf_printf(found, NULL, "%s:%u: %s%s\n", file->path,
                                            line_number(file->text, at), what, detail);
    if (code != CAIRN_OK) abort();
}

/* The end of a comment or literal that begins at `at`, or `at` where none does. */
static const char *skip_opaque(const char *at) {
    if (starts(at, "//")) return at + line_size(at);
    if (starts(at, "/*")) {
        const char *end = strstr(at + 2, "*/");
        return end ? end + 2 : at + strlen(at);
    }
    if (*at != '"' && *at != '\'') return at;
    char quote = *at++;
    while (*at && *at != quote && *at != '\n') at += *at == '\\' && at[1] ? 2 : 1;
    return *at == quote ? at + 1 : at;
}

void cairn_tidy_blank(const char *text, char *ret) {
    const char *at = text;
    while (*at) {
        const char *end = skip_opaque(at);
        if (end == at) {
            *ret++ = *at++;
            continue;
        }
        for (const char *c = at; c < end; c++) {
            bool quote = *at != '/' && *c == *at && (c == at || c + 1 == end);
            *ret++ = *c == '\n' || quote ? *c : ' ';
        }
        at = end;
    }
    *ret = '\0';
}

/* ---- includes ---- */

struct include {
    const char *line;
    char name[256]; /* what stands between the quotes or brackets */
    bool quoted;
};

/* The next #include at or after *line, which is stepped past it. */
static bool next_include(const struct cairn_tidy_file *file, const char **line,
                         struct include *ret) {
    while (*line) {
        const char *raw = *line, *code = file->code + (raw - file->text);
        *line = next_line(raw);
        if (*code != '#') continue;
        const char *word = code + 1 + strspn(code + 1, " ");
        if (!starts(word, "include")) continue;
        const char *open = raw + strcspn(raw, "\"<\n");
        size_t size = *open == '\n' || !*open ? 0 : strcspn(open + 1, "\">\n");
        if (size == 0 || size >= sizeof ret->name) continue;
        ret->line = raw;
        ret->quoted = *open == '"';
        memcpy(ret->name, open + 1, size);
        ret->name[size] = '\0';
        return true;
    }
    return false;
}

/* A folder may include itself and the folders of levels below `sees`. Nothing that is shipped
 * may use tests, bench or examples, and an example shows what a user has: include/ alone. */
#define NEVER 100
static const struct {
    const char *folder;
    int level, sees;
} levels[] = {
    {"include/", -1, -1},
    {"common/", 0, 0},
    {"api/", 1, 1},
    {"store/", 2, 2},
    {"plan/", 2, 2},
    {"formats/", 2, 2},
    {"client/", 3, 3},
    {"uploader/state/", 2, 0}, /* a room that speaks to nobody: itself and common/base.h */
    {"uploader/", 3, 3},
    {"server/", 3, 3},
    {"cli/", 4, 4},
    {"examples/", NEVER, 0},
    {"tests/", NEVER, NEVER + 1},
    {"bench/", NEVER, NEVER + 1}};

static int folder_of(const char *path) {
    for (size_t i = 0; i < CAIRN_COUNT(levels); i++)
        if (starts(path, levels[i].folder)) return (int)i;
    return -1;
}

void cairn_tidy_layers(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    int own = folder_of(file->path);
    struct include include;
    for (const char *line = file->text; next_include(file, &line, &include);) {
        if (!include.quoted) continue;
        int other = folder_of(include.name);
        if (other < 0)
            report(file, include.line, found, "not written from the root: ", include.name);
        else if (own >= 0 && own != other && levels[other].level >= levels[own].sees &&
                 !(starts(file->path, "uploader/state/") && !strcmp(include.name, "common/base.h")))
            report(file, include.line, found, "this folder may not include ", include.name);
    }
}

/* The rooms inside a folder stand on floors of their own: a file may include its own room and those
 * of lower floors of its folder. The longest name that a path begins with is its row; a file of no
 * row is on the ground floor. A room's inside.h is its own business.
 *
 * Rooms of the server that need each other: the lower one includes a header of the higher one, and
 * that header has a row of its own, on a floor below both. Why each has one is said there. */
static const struct {
    const char *room;
    int floor;
} rooms[] = {
    {"common/hash/", 1},
    {"common/http/", 1},

    {"store/dir/", 1},
    {"store/xml/", 1},
    {"store/keys/", 2},
    {"store/s3/", 3},
    {"store/open", 4},
    {"store/s3/start", 5},

    {"cli/verbs/", 5},
    {"cli/shell/", 1},
    {"cli/bucket/", 2},
    {"cli/tree/", 3},
    {"cli/convert/", 4},
    {"cli/main", 6},
    {"cli/man", 6},

    {"client/device/", 0},
    {"client/stage_cuda/", 1},
    {"client/session/", 1},
    {"client/save/", 2},
    {"client/restore/", 2},
    {"client/cairn", 3},

    {"uploader/state/", 1},
    {"uploader/", 2},
    {"uploader/journal/", 3},
    {"uploader/saves/", 4},
    {"uploader/send/", 5},
    {"uploader/fetch/", 5},
    {"uploader/partner/", 5},
    {"uploader/server/", 6},
    {"uploader/trainers/", 7},
    {"uploader/daemon", 8},
    {"uploader/main", 9},
    {"uploader/port/", 3},
    {"uploader/send/shards", 3},
    {"uploader/journal/recover", 5},

    {"server/db/", 1},
    {"server/settings", 2},
    {"server/ledger/", 3},
    {"server/server.h", 4},
    {"server/metrics.h", 4},
    {"server/metrics.def", 3},
    {"server/http/", 7},
    {"server/access/", 9},
    {"server/guard/", 10},
    {"server/events/", 11},
    {"server/versions/", 12},
    {"server/reads/", 13},
    {"server/operations/", 14},
    {"server/copies/", 15},
    {"server/recovery/", 16},
    {"server/intake/", 17},
    {"server/nodes/", 18},
    {"server/sweep/", 19},
    {"server/retention/", 20},
    {"server/commit/", 21},
    {"server/", 22},
    {"server/main", 23},
    {"server/access/access.h", 5},        /* http: a request carries who asks */
    {"server/nodes/nodes.h", 5},          /* versions, intake: which nodes are alive */
    {"server/copies/damage.h", 5},        /* reads: an object that was read is damaged */
    {"server/sweep/sweep_objects.h", 5},  /* guard, copies: uploads and objects to delete */
    {"server/health.h", 5},               /* recovery: is another server alive on this store? */
    {"server/intake/intake.h", 8},        /* versions: into the trash, one by one */
    {"server/retention/remove_run.h", 8}, /* versions, operations: a whole run goes */
};

/* The row with the longest name that path begins with; -1: none. */
static int room_of(const char *path) {
    int ret = -1;
    for (size_t i = 0; i < CAIRN_COUNT(rooms); i++)
        if (starts(path, rooms[i].room) &&
            (ret < 0 || strlen(rooms[ret].room) < strlen(rooms[i].room)))
            ret = (int)i;
    return ret;
}

static bool same_folder(const char *one, const char *other) {
    size_t size = strcspn(one, "/") + 1;
    return strlen(one) >= size && !strncmp(one, other, size);
}

void cairn_tidy_rooms(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    int own = room_of(file->path);
    int own_floor = own < 0 ? 0 : rooms[own].floor;
    struct include include;
    for (const char *line = file->text; next_include(file, &line, &include);) {
        if (!include.quoted) continue;
        const char *slash = strrchr(include.name, '/');
        size_t room = slash ? (size_t)(slash - include.name) + 1 : 0;
        bool inside = slash && !strcmp(slash, "/inside.h");
        if (inside && strncmp(file->path, include.name, room) && !starts(file->path, "tests/"))
            report(file, include.line, found, "the inside of another room: ", include.name);
        int other = room_of(include.name);
        if (other == own || !same_folder(file->path, include.name)) continue;
        if ((other < 0 ? 0 : rooms[other].floor) >= own_floor)
            report(file, include.line, found, "this room may not include ", include.name);
    }
}

/* One owner each. Tests may fake or drive the foreign library itself. */
static const struct {
    const char *header;
    const char *owners[2];
} foreign[] = {{"curl/", {"common/http/"}},
               {"jansson.h", {"common/json"}},
               {"microhttpd.h", {"server/http/"}},
               {"gnutls/", {"server/http/tls"}},
               {"openssl/", {"common/hash", "common/http/link"}},
               {"sqlite3.h", {"server/db/"}},
               {"libpq-fe.h", {"server/db/"}},
               {"expat.h", {"store/xml/"}},
               {"cuda", {"client/stage_cuda"}},
               {"CUnit/", {"tests/harness"}}};

void cairn_tidy_owners(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    bool test = starts(file->path, "tests/") || starts(file->path, "bench/");
    struct include include;
    for (const char *line = file->text; next_include(file, &line, &include);)
        for (size_t i = 0; i < CAIRN_COUNT(foreign); i++) {
            if (!starts(include.name, foreign[i].header)) continue;
            const char *first = foreign[i].owners[0], *second = foreign[i].owners[1];
            bool fakes = test && !starts(first, "tests/");
            if (fakes || starts(file->path, first) || (second && starts(file->path, second)))
                continue;
            report(file, include.line, found, "not the owner of ", include.name);
        }
}

/* ---- introduction ---- */

static const char licence[] = "/* SPDX-License-Identifier: Apache-2.0 */\n";

/* " * slab: ..." where the file is slab.h. */
static bool names_itself(const char *path, const char *line) {
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t size = strcspn(base, ".");
    return starts(line, " * ") && !strncmp(line + 3, base, size) && starts(line + 3 + size, ": ");
}

static void check_answers(const struct cairn_tidy_file *file, const char *intro,
                          struct cairn_buf *found) {
    const char *end = strstr(intro, "\n */");
    const char *at = intro;
    EACH_TEXT(text, "\n * Why:     ", "\n * Promise: ", "\n * Limits:  ", "\n * Threads: ",
              "\n * Next:    ") {
        const char *here = strstr(at, text);
        if (here && end && here < end) {
            at = here + 1;
            if (!strncmp(here + strlen(text), "none of its own; see", 20))
                report(file, here + 1, found, "an answer that says nothing:", text + 2);
            continue;
        }
        report(file, intro, found, "the introduction lacks, or has out of order:", text + 2);
        return;
    }
}

void cairn_tidy_introduction(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    if (!starts(file->text, licence)) {
        report(file, file->text, found, "the first line is not the licence line", "");
        return;
    }
    const char *intro = file->text + strlen(licence);
    /* A test's name and its sentences are its introduction. */
    if (starts(file->path, "tests/")) return;
    if (!starts(intro, "/*"))
        report(file, intro, found, "no introduction after the licence line", "");
    if (!ends(file->path, ".h")) return;
    if (!starts(intro, "/*\n") || !names_itself(file->path, intro + 3))
        report(file, intro, found, "the introduction does not begin with the file's name", "");
    check_answers(file, intro, found);
}

/* ---- sizes ---- */

/* A function starts at the last line that begins with a word before an opening brace, and ends at
 * a line that is one closing brace; types and tables end in "};" and are no functions. */
void cairn_tidy_function_lines(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    const char *start = NULL;
    bool inside = false;
    for (const char *code = file->code; code; code = next_line(code)) {
        size_t size = line_size(code);
        while (size && code[size - 1] == ' ') size--;
        if (inside && *code == '}') {
            unsigned lines = line_number(start, code);
            if (size == 1 && lines > FUNCTION_LINES_MAX)
                report(file, file->text + (start - file->code), found,
                       "a function of more than 70 lines", "");
            inside = false;
            start = NULL;
        }
        if (inside || size == 0) continue;
        if (is_word(*code) && !starts(code, "extern \"")) start = code;
        inside = start && code[size - 1] == '{';
    }
}

void cairn_tidy_file_lines(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    const char *end = file->text + strlen(file->text);
    if (end > file->text && end[-1] == '\n') end--;
    if (line_number(file->text, end) > FILE_LINES_MAX)
        report(file, end, found, "a file of more than 1000 lines", "");
}

static size_t columns(const char *line) {
    size_t count = 0, size = line_size(line);
    for (size_t i = 0; i < size; i++) count += ((unsigned char)line[i] & 0xc0) != 0x80;
    return count;
}

void cairn_tidy_columns(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    bool off = false; /* a table that is laid out by hand */
    for (const char *line = file->text; line; line = next_line(line)) {
        const char *text = line + strspn(line, " ");
        if (starts(text, "/* clang-format off */")) off = true;
        if (starts(text, "/* clang-format on */")) off = false;
        if (!off && columns(line) > COLUMNS_MAX)
            report(file, line, found, "a line of more than 100 columns", "");
    }
}

/* ---- words ---- */

/* The next place at or after `at` where `word` stands alone. */
static const char *find_word(const char *text, const char *at, const char *word) {
    size_t size = strlen(word);
    for (at = strstr(at, word); at; at = strstr(at + 1, word))
        if ((at == text || !is_word(at[-1])) && !is_word(at[size])) return at;
    return NULL;
}

static void find_call(const struct cairn_tidy_file *file, const char *name,
                      struct cairn_buf *found) {
    const char *at = file->code;
    while ((at = find_word(file->code, at, name))) {
        const char *place = at;
        at += strlen(name);
        bool member = place > file->code && (place[-1] == '.' || place[-1] == '>');
        if (!member && at[strspn(at, " ")] == '(')
            report(file, file->text + (place - file->code), found, "banned call: ", name);
    }
}

void cairn_tidy_calls(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    EACH_TEXT(text, "strcpy", "strcat", "sprintf", "vsprintf", "gets", "atoi", "atol", "strtok",
              "localtime", "gmtime", "ctime", "rand", "srand", "system", "popen", "alloca",
              "mktemp", "tmpnam")
        find_call(file, text, found);
    /* Waiting has a deadline and a clock that can be faked; both live in these two files. */
    if (starts(file->path, "common/clock") || starts(file->path, "store/retry") ||
        starts(file->path, "tests/"))
        return;
    EACH_TEXT(one, "sleep", "usleep") find_call(file, one, found);
}

/* Its line, or the one above it, says whose pause it is. */
static bool says_whose(const struct cairn_tidy_file *file, const char *at) {
    const char *from = at, *end = at + line_size(at);
    for (unsigned lines = 0; from > file->text && lines < 2; from--) lines += from[-1] == '\n';
    EACH_TEXT(name, "pause of a stand-in", "pause of chaos", "pause of a measurement",
              "step of a poll") {
        const char *mark = strstr(from, name);
        if (mark && mark < end) return true;
    }
    return false;
}

/* A poll of no descriptor is a sleep. */
static bool sleeps(const char *call, const char *name) {
    if (strcmp(name, "poll") != 0) return true;
    EACH_TEXT(text, "(NULL, 0,", "(0, 0,")
        if (starts(call + strlen(name), text)) return true;
    return false;
}

/* What waits for a time in a test is wrong on a busy machine and slow on a quiet one. */
void cairn_tidy_pauses(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    bool python = ends(file->path, ".py");
    if (!starts(file->path, "tests/")) return;
    EACH_TEXT(name, "sleep", "usleep", "nanosleep", "poll", "cairn_test_pause_ms") {
        for (const char *at = file->code; (at = find_word(file->code, at, name)); at++) {
            const char *call = file->text + (at - file->code), *next = at + strlen(name);
            bool declared = at >= file->code + 5 && starts(at - 5, "void ");
            if (*next != '(' || declared || !sleeps(at, name)) continue;
            if (says_whose(file, call)) continue;
            if (python && !(at >= file->code + 5 && starts(at - 5, "time."))) continue;
            report(file, call, found, "a fixed pause where a state is waited for: ", name);
        }
    }
}

/* The number behind `than`, and 0 where there is none. */
static uint64_t number_behind(const char *text, const char *than) {
    return starts(text, than) ? strtoull(text + strlen(than), NULL, 10) : 0;
}

/* How long something took says how busy the machine was. From a bound on that no machine reaches it
 * is the other end of what is waited for. */
void cairn_tidy_bounds(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    if (!starts(file->path, "tests/")) return;
    EACH(one, FIELDS(const char *begin, *less; uint64_t from), {"cairn_mono_ms() - ", " < ", 50000},
         {"cairn_mono_ms() - ", " <= ", 50000}, {"took_ms", " < ", 50000},
         {"assertLess(time.monotonic() - ", ", ", 50}) {
        for (const char *at = file->code; (at = strstr(at, one->begin)); at++) {
            const char *behind = at + strlen(one->begin);
            behind += strspn(behind, "abcdefghijklmnopqrstuvwxyz_0123456789.");
            uint64_t bound = number_behind(behind, one->less);
            if (bound && bound < one->from)
                report(file, file->text + (at - file->code), found,
                       "an elapsed time is compared with a bound: ", "wait for a state");
        }
    }
}

/* Every move is checked against api/lifecycle.def where it is written: one statement of the table,
 * which srv_version_move runs. */
void cairn_tidy_states(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    bool table = !strcmp(file->path, "server/db/statements.def");
    if (!starts(file->path, "server/")) return;
    EACH_TEXT(name, "SET state =", "SET state=") {
        const char *at = strstr(file->text, name);
        if (at && table) at = strstr(at + 1, name);
        if (at)
            report(file, at, found, "versions.state is written by one statement, version_move", "");
    }
}

/* A literal that begins as a statement does: SQL stands in server/db/, most of it in one table. And
 * a use of that table: the words of server/ledger/, so that no other room knows a statement. */
void cairn_tidy_sql(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    static const char *const verbs[] = {
        "SELECT ", "INSERT INTO ",    "UPDATE ",   "DELETE FROM ", "CREATE ",        "ALTER TABLE ",
        "PRAGMA ", "WITH RECURSIVE ", "SAVEPOINT", "DROP TABLE ",  "BEGIN IMMEDIATE"};
    bool db = starts(file->path, "server/db/"), ledger = starts(file->path, "server/ledger/");
    if (db || starts(file->path, "tests/")) return;
    for (const char *code = file->code; (code = strchr(code, '"')); code++) {
        const char *text = file->text + (code - file->code) + 1;
        for (size_t i = 0; i < CAIRN_COUNT(verbs); i++)
            if (starts(text, verbs[i]))
                report(file, text, found, "SQL outside server/db/: ", verbs[i]);
    }
    if (ledger || !starts(file->path, "server/")) return;
    EACH_TEXT(name, "SQL(", "srv_sql_", "srv_rows_") {
        const char *at = strstr(file->code, name);
        if (at)
            report(file, file->text + (at - file->code), found,
                   "a statement is run outside server/ledger/: ", name);
    }
}

/* A sentence is for people; what a program decides by is the code. */
void cairn_tidy_sentences(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    if (starts(file->path, "tests/")) return;
    for (const char *at = file->code; (at = find_word(file->code, at, "strstr")); at++) {
        const char *argument = strstr(at, "message");
        if (argument && argument < at + strcspn(at, ",;"))
            report(file, file->text + (at - file->code), found, "an error is told by its sentence",
                   "");
    }
}

void cairn_tidy_typedefs(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    static const char *const kinds[] = {"struct", "enum", "union"};
    const char *at = file->code;
    while ((at = find_word(file->code, at, "typedef"))) {
        const char *place = at;
        at += strlen("typedef");
        const char *next = at + strspn(at, " \n");
        size_t end = strcspn(next, ";(");
        for (size_t i = 0; i < CAIRN_COUNT(kinds); i++)
            if (starts(next, kinds[i]) && !is_word(next[strlen(kinds[i])]) && next[end] != '(')
                report(file, file->text + (place - file->code), found, "a typedef of a ", kinds[i]);
    }
}

/* A row "NAME(...)" with its comment; the row ends where its parentheses do. */
static const char *row_end(const char *code) {
    int depth = 0;
    for (; *code; code++) {
        depth += *code == '(' ? 1 : *code == ')' ? -1 : 0;
        if (depth == 0 && *code == ')') break;
    }
    return code + line_size(code);
}

/* A comment, or a literal of several words. */
static bool says_something(const char *text, const char *end) {
    for (const char *at = text; at < end;) {
        const char *next = skip_opaque(at);
        if (next - at > 12 && (*at == '/' || memchr(at, ' ', (size_t)(next - at)))) return true;
        at = next > at ? next : at + 1;
    }
    return false;
}

void cairn_tidy_tables(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    if (!starts(file->text, licence))
        report(file, file->text, found, "the first line is not the licence line", "");
    for (const char *code = file->code; code; code = next_line(code)) {
        if (!is_word(*code) || !memchr(code, '(', line_size(code))) continue;
        const char *row = file->text + (code - file->code), *end = row_end(code);
        if (!says_something(row, file->text + (end - file->code)))
            report(file, row, found, "a row that does not say what it means", "");
        code = end;
    }
}

void cairn_tidy_words(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    /* In halves, so that this file may be read by its own rule. */
    EACH_TEXT(one,
              "TO"
              "DO",
              "FIX"
              "ME",
              "XX"
              "X",
              "HA"
              "CK")
        for (const char *at = file->text; (at = find_word(file->text, at, one)); at++)
            report(file, at, found, "unfinished: ", one);
}

void cairn_tidy_paths(const struct cairn_tidy_file *file, struct cairn_buf *found) {
    EACH_TEXT(word,
              "/ro"
              "ot",
              "/ho"
              "me",
              "/wo"
              "rk") {
        size_t size = strlen(word);
        for (const char *at = file->text; (at = strstr(at, word)); at++) {
            /* In the middle of a path or URL it is somebody else's name. */
            char before = at == file->text ? '\n' : at[-1];
            if (is_word(before) || strchr(".-}*$)]", before) || is_word(at[size]) ||
                at[size] == '-')
                continue;
            report(file, at, found, "a path of one machine: ", word);
        }
    }
}
