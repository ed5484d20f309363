/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in a table has something behind it.
 *
 * Every setting is named by a test: its flag or its variable stands in one. What starts the
 * programs for other tests, and the simulation, name many and look at none. Every code is said by
 * the code. */

#include <ctype.h>

#include "tests/docs/page.h"

static const struct {
    const char *table, *name;
} settings[] = {
#define CONFIG(type, name, fallback, min, max, why) {"server", #name},
#include "server/settings.def"
#undef CONFIG
#define CONFIG(type, name, fallback, min, max, why) {"uploader", #name},
#include "uploader/settings.def"
#undef CONFIG
};

static bool is_helper(const char *path) {
    EACH_TEXT(text, "tests/sim/", "tests/support/", "tests/fuzz/", "tests/common/test_config.c",
              "/world.", "/s3world.", "/chaos")
        if (strstr(path, text)) return true;
    return false;
}

static void take(const char *path, void *owner) {
    CAIRN_AUTO(buf) text = {0};
    if (is_helper(path) || !cairn_docs_load(path, &text)) return;
    REQUIRE(cairn_buf_append(owner, text.data, text.size, NULL) == CAIRN_OK);
}

/* As a whole word: what follows is no part of a longer name. */
static bool stands(const char *text, const char *word) {
    for (const char *at = text; (at = strstr(at, word)); at++) {
        char after = at[strlen(word)];
        if (!isalnum((unsigned char)after) && after != '_' && after != '-') return true;
    }
    return false;
}

static bool is_named(const char *text, const char *name) {
    char flag[80] = "--", no_flag[80] = "--no-", variable[80] = "CAIRN_";
    size_t size = strlen(name);
    if (!EXPECT(size < 64)) return false;
    for (size_t i = 0; i <= size; i++) {
        char dashed = name[i] == '_' ? '-' : name[i];
        flag[2 + i] = no_flag[5 + i] = dashed;
        variable[6 + i] = (char)toupper((unsigned char)name[i]);
    }
    return stands(text, flag) || stands(text, no_flag) || stands(text, variable);
}

TEST(every_setting_is_named_by_a_test) {
    CAIRN_AUTO(buf) tests = {.limit = 64 * CAIRN_MIB};
    cairn_docs_walk("tests", ".c", take, &tests);
    cairn_docs_walk("tests", ".py", take, &tests);
    REQUIRE(tests.size > 0);
    for (size_t i = 0; i < CAIRN_COUNT(settings); i++)
        cairn_test_check(is_named(tests.data, settings[i].name), __FILE__, __LINE__,
                         "no test names %s of the %s", settings[i].name, settings[i].table);
    EXPECT(!is_named(tests.data, "nobodys_"
                                 "many"));
}

/* ---- variables ---- */

static void take_c(const char *path, void *owner) {
    CAIRN_AUTO(buf) text = {0};
    if (!cairn_docs_load(path, &text)) return;
    REQUIRE(cairn_buf_append(owner, text.data, text.size, NULL) == CAIRN_OK);
}

/* "AWS_REGION" and the like, as the code reads them; the tables' have a test above. */
TEST(every_variable_that_is_read_is_named_by_a_test) {
    CAIRN_AUTO(buf) source = {.limit = 64 * CAIRN_MIB}, tests = {.limit = 64 * CAIRN_MIB};
    EACH_TEXT(word, "common", "api", "store", "formats", "client", "uploader", "server", "cli")
        cairn_docs_walk(word, ".c", take_c, &source);
    cairn_docs_walk("tests", ".c", take, &tests);
    cairn_docs_walk("tests", ".py", take, &tests);
    REQUIRE(source.size > 0 && tests.size > 0);
    size_t found = 0;
    EACH_TEXT(one, "\"CAIRN_", "\"AWS_", "\"SLURM_", "\"TORCHELASTIC_", "\"PMIX_", "\"TMPDIR")
        for (const char *at = source.data; (at = strstr(at, one)); at++) {
            char name[80];
            size_t size = strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
            if (at[1 + size] != '"' || size >= sizeof name) continue; /* a part of a text */
            snprintf(name, sizeof name, "%.*s", (int)size, at + 1);
            found++;
            cairn_test_check(stands(tests.data, name), __FILE__, __LINE__, "no test names %s",
                             name);
        }
    EXPECT(found > 20);
}

/* ---- codes ---- */

static const struct {
    const char *name, *meaning;
} codes[] = {
#define CODE(name, slug, http, retry, exit, meaning) {"CAIRN_" #name, meaning},
    CAIRN_CODES(CODE)
#undef CODE
};

/* A case of a switch alone hears it; nobody says it. */
static bool is_said(const char *text, const char *name) {
    for (const char *at = text; (at = strstr(at, name)); at++) {
        char after = at[strlen(name)];
        bool whole = !isalnum((unsigned char)after) && after != '_';
        if (whole && (at - text < 5 || memcmp(at - 5, "case ", 5) != 0)) return true;
    }
    return false;
}

TEST(every_code_is_said_by_some_code_or_is_reserved) {
    CAIRN_AUTO(buf) source = {.limit = 64 * CAIRN_MIB};
    EACH_TEXT(text, "common", "api", "store", "plan", "formats", "client", "uploader", "server",
              "cli")
        cairn_docs_walk(text, ".c", take_c, &source);
    REQUIRE(source.size > 0);
    for (size_t i = 0; i < CAIRN_COUNT(codes); i++) {
        bool reserved = !strncmp(codes[i].meaning, "Reserved", 8);
        cairn_test_check(is_said(source.data, codes[i].name) != reserved, __FILE__, __LINE__,
                         "%s: %s", codes[i].name,
                         reserved ? "is reserved, and said" : "no code says it");
    }
}
