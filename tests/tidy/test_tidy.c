/* SPDX-License-Identifier: Apache-2.0 */
/* tidy: every rule over the whole tree, and every rule over a small file that breaks it. */
#include "tests/tidy/tree.h"

/* ---- the tree ---- */

#define CODE CAIRN_TIDY_CODE
#define TABLE CAIRN_TIDY_TABLE
#define PYTHON CAIRN_TIDY_PYTHON
#define ALL CAIRN_TIDY_ALL

struct run {
    cairn_tidy_rule *rule;
    unsigned files;
    struct cairn_buf found;
};
static void cairn_run_release(struct run *run) {
    cairn_buf_release(&run->found);
}

static void look_at(void *owner, const struct cairn_tidy_file *file) {
    struct run *run = owner;
    run->rule(file, &run->found);
    run->files++;
}

/* Some rule, all files that it is for. That files were seen is checked too. */
static void expect_tidy(cairn_tidy_rule *rule, unsigned kinds, unsigned files_min) {
    __attribute__((cleanup(cairn_run_release))) struct run run = {.rule = rule};
    cairn_tidy_walk(kinds, look_at, &run);
    EXPECT(run.files >= files_min);
    if (!EXPECT(run.found.size == 0)) fputs(run.found.data, stderr);
}

CASE(includes_point_down_and_are_written_from_the_root, expect_tidy(cairn_tidy_layers, CODE, 20));
CASE(rooms_inside_a_folder_include_downwards, expect_tidy(cairn_tidy_rooms, CODE, 20));
CASE(foreign_headers_have_one_owner, expect_tidy(cairn_tidy_owners, CODE, 20));
CASE(files_introduce_themselves, expect_tidy(cairn_tidy_introduction, CODE, 20));
CASE(functions_have_at_most_70_lines, expect_tidy(cairn_tidy_function_lines, CODE, 20));
CASE(files_have_at_most_1000_lines, expect_tidy(cairn_tidy_file_lines, CODE | PYTHON, 20));
CASE(lines_have_at_most_100_columns, expect_tidy(cairn_tidy_columns, CODE, 20));
CASE(banned_calls_are_not_made, expect_tidy(cairn_tidy_calls, CODE, 20));
CASE(no_test_waits_for_a_fixed_time, expect_tidy(cairn_tidy_pauses, CODE | PYTHON, 20));
CASE(no_elapsed_time_is_compared_with_a_bound, expect_tidy(cairn_tidy_bounds, CODE | PYTHON, 20));
CASE(the_state_of_a_version_has_one_writer, expect_tidy(cairn_tidy_states, CODE | TABLE, 20));
CASE(sql_stands_in_the_rooms_db_and_ledger, expect_tidy(cairn_tidy_sql, CODE, 20));
CASE(errors_are_told_apart_by_their_codes, expect_tidy(cairn_tidy_sentences, CODE, 20));
CASE(structs_and_enums_have_no_typedefs, expect_tidy(cairn_tidy_typedefs, CODE, 20));
CASE(every_row_of_a_table_says_what_it_means, expect_tidy(cairn_tidy_tables, TABLE, 1));
CASE(nothing_is_marked_unfinished, expect_tidy(cairn_tidy_words, ALL, 20));
CASE(no_path_of_one_machine_is_named, expect_tidy(cairn_tidy_paths, ALL, 20));

/* ---- the rules themselves ---- */

/* How many findings `rule` has in a file of that path and text. */
static size_t findings(cairn_tidy_rule *rule, const char *path, const char *text) {
    CAIRN_AUTO(buf) found = {0};
    CAIRN_AUTO_HEAP char *code = malloc(strlen(text) + 1);
    if (!code) return 0;
    cairn_tidy_blank(text, code);
    struct cairn_tidy_file file = {path, text, code};
    rule(&file, &found);
    size_t count = 0;
    for (size_t i = 0; i < found.size; i++) count += found.data[i] == '\n';
    return count;
}

struct sample {
    const char *path, *text;
    size_t findings;
};

static void expect_samples(cairn_tidy_rule *rule, const struct sample *samples, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t seen = findings(rule, samples[i].path, samples[i].text);
        if (!EXPECT(seen == samples[i].findings))
            fprintf(stderr, "sample %zu: %zu findings in %s: %s\n", i, seen, samples[i].path,
                    samples[i].text);
    }
}
#define SAMPLES(rule, ...)                                                                         \
    expect_samples(rule, (const struct sample[]){__VA_ARGS__},                                     \
                   CAIRN_COUNT(((const struct sample[]){__VA_ARGS__})))

TEST(comments_and_literals_are_blanked_in_place) {
    static const char text[] = "a /* b\n\"c */ d(\"e\\\"/*f\", '\"') // g\nh\n";
    char code[sizeof text];
    cairn_tidy_blank(text, code);
    EXPECT_EQ_TEXT(code, "a     \n      d(\"      \", ' ')     \nh\n");
    cairn_tidy_blank("open \"literal\nnext /* open", code);
    EXPECT_EQ_TEXT(code, "open \"       \nnext        ");
}

TEST(a_wrong_include_is_found) {
    SAMPLES(
        cairn_tidy_layers, {"common/a.c", "#include \"common/b.h\"\n", 0},
        {"store/a.c", "#include \"api/b.h\"\n#include <stdio.h>\n", 0},
        {"common/a.c", "#include \"api/b.h\"\n", 1}, {"store/a.c", "#include \"plan/b.h\"\n", 1},
        {"client/a.c", "#  include \"uploader/b.h\"\n", 1},
        {"server/a.c", "#include \"tests/b.h\"\n", 1}, {"cli/a.c", "#include \"server/b.h\"\n", 0},
        {"cli/a.c", "#include \"bench/b.h\"\n", 1},
        {"include/cairn/a.h", "#include \"common/b.h\"\n", 1},
        {"store/a.c", "#include \"retry.h\"\n#include \"../api/b.h\"\n", 2},
        {"tests/s/a.c", "#include \"cli/b.h\"\n#include \"bench/c.h\"\n", 0},
        {"examples/a.c", "#include \"examples/b.h\"\n#include <cairn/cairn.h>\n", 0},
        {"examples/a.c", "#include \"common/b.h\"\n", 1},
        {"uploader/state/a.c", "#include \"common/base.h\"\n#include \"uploader/state/b.h\"\n", 0},
        {"uploader/state/a.c", "#include \"uploader/b.h\"\n#include \"common/lock.h\"\n", 2},
        {"uploader/a.c", "#include \"uploader/state/b.h\"\n", 0},
        {"store/a.c", "/*\n#include \"server/b.h\"\n*/\n", 0});
}

TEST(a_wrong_include_between_rooms_is_found) {
    SAMPLES(cairn_tidy_rooms, {"store/s3/a.c", "#include \"store/keys/b.h\"\n", 0},
            {"store/s3/a.c", "#include \"store/b.h\"\n#include \"store/s3/inside.h\"\n", 0},
            {"store/a.c", "#include \"store/s3/b.h\"\n", 1},
            {"store/keys/a.c", "#include \"store/s3/b.h\"\n", 1},
            {"store/dir/a.c", "#include \"store/xml/b.h\"\n", 1},
            {"uploader/a.c", "#include \"store/s3/b.h\"\n", 0},
            {"uploader/a.c", "#include \"uploader/state/b.h\"\n", 0},
            {"uploader/a.c", "#include \"uploader/saves/b.h\"\n", 1},
            {"uploader/saves/a.c", "#include \"uploader/send/shards.h\"\n", 0},
            {"uploader/saves/a.c", "#include \"uploader/send/b.h\"\n", 1},
            {"uploader/send/a.c", "#include \"uploader/server/b.h\"\n", 1},
            {"uploader/trainers/a.c", "#include \"uploader/server/b.h\"\n", 0},
            {"uploader/trainers/a.c", "#include \"uploader/daemon.h\"\n", 1},
            {"uploader/a.c", "#include \"store/s3/inside.h\"\n", 1},
            {"tests/s3/a.c", "#include \"store/s3/inside.h\"\n", 0},
            {"server/http/a.c", "#include \"server/guard/b.h\"\n", 1},
            {"server/http/a.c", "#include \"server/access/access.h\"\n", 0},
            {"server/http/a.c", "#include \"server/access/limits.h\"\n", 1},
            {"client/session/a.c", "#include \"client/save/b.h\"\n", 1},
            {"client/save/a.c", "#include \"client/restore/b.h\"\n", 1},
            {"client/restore/a.c", "#include \"client/save/b.h\"\n", 1},
            {"client/cairn.c", "#include \"client/save/b.h\"\n", 0});
}

TEST(a_second_writer_of_a_versions_state_is_found) {
    SAMPLES(cairn_tidy_states,
            {"server/db/statements.def", "S(a, \"UPDATE versions SET state = ?2\")\n", 0},
            {"server/db/statements.def",
             "S(a, \"UPDATE versions SET state = ?2\")\nS(b, \"UPDATE v SET state = 1\")\n", 1},
            {"server/sweep/sweep.c", "run(\"UPDATE versions SET state = 1\");\n", 1},
            {"server/sweep/sweep.c", "run(\"SELECT state FROM versions\");\n", 0});
}

TEST(a_statement_outside_db_and_ledger_is_found) {
    SAMPLES(cairn_tidy_sentences, {"cli/a.c", "strstr(err.message, \"Too\");", 1},
            {"cli/a.c", "strstr(text, err.message);", 0},
            {"tests/a.c", "strstr(err.message, \"Too\");", 0});
    SAMPLES(cairn_tidy_sql, {"server/db/engine_sqlite.c", "ask(\"PRAGMA synchronous\");\n", 0},
            {"server/sweep/sweep.c", "run(\"SELECT state FROM versions\");\n", 1},
            {"server/versions/run_calls.c", "run(\"a\",\n    \"DELETE FROM runs\");\n", 1},
            {"cli/verbs/ls.c", "say(\"to SELECT one\"); /* \"UPDATE it\" */\n", 0},
            {"tests/server/world.c", "run(\"SELECT 1\");\n", 0},
            {"server/sweep/sweep.c", "    srv_sql_run(tx, NULL, err, SQL(tick));\n", 2},
            {"server/ledger/runs.c", "    srv_sql_run(tx, NULL, err, SQL(tick));\n", 0},
            {"server/ledger/runs.c", "run(\"SELECT name FROM runs\");\n", 1},
            {"server/db/sql.c", "    srv_sql_run(tx, NULL, err, SQL(tick));\n", 0});
}

TEST(a_foreign_header_outside_its_owner_is_found) {
    SAMPLES(cairn_tidy_owners, {"common/http/setup.c", "#include <curl/curl.h>\n", 0},
            {"store/s3/s3.c", "#include <curl/curl.h>\n", 1},
            {"api/a.c", "#include <jansson.h>\n", 1},
            {"common/json.h", "#include <jansson.h>\n", 0},
            {"server/http/loop.c", "#include <microhttpd.h>\n", 0},
            {"uploader/status.c", "#include <microhttpd.h>\n", 1},
            {"store/keys/sigv4.c", "#include <openssl/evp.h>\n", 1},
            {"server/guard/jobs.c", "#include <sqlite3.h>\n", 1},
            {"store/xml/xml.c", "#include <expat.h>\n", 0},
            {"client/a.c", "#include <cuda_runtime.h>\n", 1},
            {"client/stage_cuda.c", "#include <cuda_runtime.h>\n", 0},
            {"tests/support/fake.c", "#include <microhttpd.h>\n", 0},
            {"tests/api/a.c", "#include <CUnit/CUnit.h>\n", 1});
}

#define LICENCE "/* SPDX-License-Identifier: Apache-2.0 */\n"
#define INTRO(why, promise)                                                                        \
    "/*\n * a: what it is.\n *\n" why promise " * Limits:  l\n * Threads: t\n * Next:    n\n */\n"

TEST(a_missing_introduction_is_found) {
    SAMPLES(
        cairn_tidy_introduction,
        {"api/a.h", LICENCE INTRO(" * Why:     w\n", " * Promise: p\n"), 0},
        {"api/a.h", LICENCE INTRO(" * Promise: p\n", " * Why:     w\n"), 1},
        {"api/a.h", LICENCE INTRO(" * Why:     w\n", ""), 1},
        {"api/a.h", LICENCE INTRO(" * Why:     w\n", " * Promise: none of its own; see b.\n"), 1},
        {"api/b.h", LICENCE INTRO(" * Why:     w\n", " * Promise: p\n"), 1},
        {"api/a.h", INTRO(" * Why:     w\n", " * Promise: p\n"), 1},
        {"api/a.h", LICENCE "#pragma once\n/* * Why: */\n", 3},
        {"tests/a.c", LICENCE "#include \"a/b.h\"\n", 0}, {"tests/a.c", "int a;\n", 1},
        {"api/a.c", LICENCE "/* a: what it is. */\n", 0},
        {"api/a.c", LICENCE "#include \"api/a.h\"\n", 1}, {"api/a.c", "int a;\n", 1});
}

/* A function, or a table, of so many lines. */
static const char *block(const char *head, unsigned lines, const char *tail) {
    static char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "#include <a.h>\n\n%s\n", head);
    for (unsigned i = 2; i < lines; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "    if (a) {\n");
    snprintf(text + used, sizeof text - used, "%s\nint after;\n", tail);
    return text;
}

TEST(a_long_function_is_found) {
    SAMPLES(cairn_tidy_function_lines, {"api/a.c", block("int f(void) {", 70, "}"), 0});
    SAMPLES(cairn_tidy_function_lines, {"api/a.c", block("int f(void) {", 71, "}"), 1});
    SAMPLES(cairn_tidy_function_lines,
            {"api/a.c", block("int f(int a,\n      int b) {", 70, "}"), 1});
    SAMPLES(cairn_tidy_function_lines, {"api/a.c", block("TEST(a) /* b */\n{", 69, "}"), 0});
    SAMPLES(cairn_tidy_function_lines, {"api/a.c", block("TEST(a) /* b */\n{", 70, "}"), 1});
    SAMPLES(cairn_tidy_function_lines, {"api/a.c", block("static int t[] = {", 99, "};"), 0});
    SAMPLES(cairn_tidy_function_lines, {"api/a.h", block("extern \"C\" {", 99, "}"), 0});
}

TEST(a_long_file_or_line_is_found) {
    char text[1400];
    memset(text, '\n', sizeof text);
    text[1000] = '\0';
    SAMPLES(cairn_tidy_file_lines, {"api/a.c", text, 0});
    text[1000] = '\n';
    text[1001] = '\0';
    SAMPLES(cairn_tidy_file_lines, {"api/a.c", text, 1});
    memset(text, 'a', 100);
    text[100] = '\0';
    SAMPLES(cairn_tidy_columns, {"api/a.c", text, 0});
    memcpy(text + 98, "\xc3\xa9\xc3\xa9", 5); /* two letters in four bytes */
    SAMPLES(cairn_tidy_columns, {"api/a.c", text, 0});
    memcpy(text + 98, "aaa", 4);
    SAMPLES(cairn_tidy_columns, {"api/a.c", text, 1});
    const char *off = TEXT("/* clang-format off */\n%s\n/* clang-format on */\n%s\n", text, text);
    SAMPLES(cairn_tidy_columns, {"api/a.h", off, 1});
}

TEST(a_banned_call_is_found) {
    SAMPLES(cairn_tidy_calls, {"api/a.c", "strcpy(a, b);\n x = sprintf (a, b);\n", 2},
            {"api/a.c", "snprintf(a); my_strcpy(a); a->gets(b); a.system(b); atoi_all(a);\n", 0},
            {"api/a.c", "/* strcpy(a) */ \"strcpy(a)\"; int rand;\n", 0},
            {"api/a.c", "sleep(1);\nusleep(1);\n", 2}, {"store/retry.c", "sleep(1);\n", 0},
            {"tests/api/a.c", "sleep(1); gmtime(a);\n", 1},
            {"api/a.c", "if(!localtime(a)) return system(popen(mktemp(tmpnam(a))));\n", 5});
}

TEST(a_fixed_pause_is_found) {
    SAMPLES(cairn_tidy_pauses, {"tests/api/a.c", "usleep(5);\ncairn_test_pause_ms(5);\n", 2},
            {"tests/api/a.c", "sleep(1); nanosleep(&time, NULL);\n", 2},
            {"tests/api/a.c", "(void)poll(NULL, 0, 300);\npoll(&waiting, 1, 300);\n", 1},
            {"tests/e2e/a.py", "    time.sleep(3)\n    self.sleep(3)\n", 1},
            {"tests/e2e/a.py", "time.sleep(3)  # longer than a lease\n", 1},
            {"tests/e2e/a.py", "time.sleep(3)  # step of a poll\n", 0},
            {"tests/api/a.c", "usleep(5); /* pause of a stand-in: slow */\n", 0},
            {"tests/api/a.c", "/* pause of chaos */\nusleep(5);\n", 0},
            {"tests/api/a.c", "/* pause of chaos */\n\nusleep(5);\n", 1},
            {"tests/harness.h", "void cairn_test_pause_ms(unsigned ms);\n", 0},
            {"api/a.c", "usleep(5);\n", 0});
}

TEST(a_bound_of_an_elapsed_time_is_found) {
    SAMPLES(cairn_tidy_bounds, {"tests/api/a.c", "EXPECT(cairn_mono_ms() - from_ms < 3000);\n", 1},
            {"tests/api/a.c", "EXPECT(cairn_mono_ms() - from_ms <= 9);\n", 1},
            {"tests/api/a.c", "EXPECT(call.took_ms < 15000);\n", 1},
            {"tests/api/a.c", "EXPECT(call.took_ms < 55000);\n", 0},
            {"tests/api/a.c", "EXPECT(cairn_mono_ms() - from_ms >= 900);\n", 0},
            {"tests/api/a.c", "EXPECT(cairn_mono_ms() - from_ms < HANG_MS);\n", 0},
            {"tests/e2e/a.py", "self.assertLess(time.monotonic() - began, 30)\n", 1},
            {"tests/e2e/a.py", "self.assertLess(time.monotonic() - began, 300)\n", 0},
            {"api/a.c", "if (cairn_mono_ms() - from_ms < 3000) return;\n", 0});
}

TEST(a_typedef_of_a_struct_is_found) {
    SAMPLES(cairn_tidy_typedefs, {"api/a.h", "typedef struct a a;\ntypedef enum { B } b;\n", 2},
            {"api/a.h", "typedef struct a *make(int b);\ntypedef int number;\n", 0},
            {"api/a.h", "/* typedef struct a a; */\ntypedef structure a;\n", 0});
}

TEST(a_row_without_a_word_is_found) {
    SAMPLES(cairn_tidy_tables, {"api/a.def", LICENCE "ROW(a) /* why it is there */\n", 0},
            {"api/a.def", LICENCE "/* all rows */\nROW(a)\nROW(b, \"short\")\n", 2},
            {"api/a.def", LICENCE "ROW(a, \"1\", 2,\n    \"Why you would (not).\")\n", 0},
            {"api/a.def", "ROW(a) /* why it is there */\n", 1});
}

TEST(a_mark_of_unfinished_work_is_found) {
    SAMPLES(cairn_tidy_words,
            {"a.md",
             "now TO"
             "DO: this\n(FIX"
             "ME)\nXX"
             "X\n",
             3},
            {"a.c",
             "\"name-XXXXXX\" TO"
             "DOS HA"
             "CKERS\n",
             0},
            {"a.py",
             "# HA"
             "CK\n",
             1});
}

TEST(a_path_of_one_machine_is_found) {
    SAMPLES(cairn_tidy_paths,
            {"a.sh",
             "cd /ho"
             "me/you\nx=\"/ro"
             "ot\"\n/wo"
             "rk/main\n",
             3},
            {"a.md",
             "a/wo"
             "rk/b https://c/ho"
             "me/ $HOME/ro"
             "ot /ho"
             "mepage\n",
             0});
}
