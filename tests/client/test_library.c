/* SPDX-License-Identifier: Apache-2.0 */
/* libcairn.so as it is shipped: what it shows, what it needs, and who can compile its headers. */
#include <ctype.h>
#include <spawn.h>

#include "tests/harness.h"

extern char **environ;

/* Run a program, standard output into the file `output`; its exit status, 127: there is none. */
static int run(const char *const *arguments, const char *output) {
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    int status = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int failed = posix_spawnp(&child, arguments[0], &actions, NULL,
                              (char *const *)(uintptr_t)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return 127;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 126;
    return WEXITSTATUS(status);
}
#define RUN(output, ...) run((const char *const[]){__VA_ARGS__, NULL}, (output))

static const char *in_folder(const char *name, char ret[600]) {
    snprintf(ret, 600, "%s/%s", cairn_test_folder(), name);
    return ret;
}

static const char *library(char ret[600]) {
    const char *folder = getenv("CAIRN_BIN_DIR");
    snprintf(ret, 600, "%s/libcairn.so", folder ? folder : ".");
    return ret;
}

/* ---- a set of names ---- */

struct names {
    char names[200][64];
    size_t count;
};

static bool has(const struct names *set, const char *name) {
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->names[i], name) == 0) return true;
    return false;
}

static void add(struct names *set, const char *name, size_t size) {
    char copy[64];
    snprintf(copy, sizeof copy, "%.*s", (int)size, name);
    if (!has(set, copy) && set->count < 200) memcpy(set->names[set->count++], copy, sizeof copy);
}

static void blank_comments(char *text) {
    for (char *at = strstr(text, "/*"); at; at = strstr(at, "/*")) {
        char *end = strstr(at, "*/");
        for (; at < (end ? end + 2 : text + strlen(text)); at++) *at = ' ';
    }
}

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* cairn_x( outside of comments. */
static bool declared(const char *header, struct names *ret) {
    CAIRN_AUTO(buf) text = {0};
    const char *path = TEXT("%s/include/cairn/%s", cairn_test_tree(), header);
    if (cairn_file_load(path, &text, NULL) != CAIRN_OK) return false;
    blank_comments(text.data);
    for (char *at = strstr(text.data, "cairn_"); at; at = strstr(at + 1, "cairn_")) {
        char *end = at;
        while (is_name(*end)) end++;
        if (*end == '(' && !is_name(at[-1])) add(ret, at, (size_t)(end - at));
    }
    return true;
}

TEST(the_library_shows_exactly_what_the_public_headers_declare) {
    struct names wanted = {0}, shown = {0};
    CAIRN_AUTO(buf) listing = {0};
    char path[600], output[600];
    REQUIRE(declared("cairn.h", &wanted));
    REQUIRE(declared("error.h", &wanted));
    REQUIRE(declared("find.h", &wanted));
    REQUIRE(declared("inspect.h", &wanted));
    REQUIRE(declared("items.h", &wanted));
    REQUIRE(declared("pieces.h", &wanted));
    REQUIRE(declared("poll.h", &wanted));
    REQUIRE(declared("reads.h", &wanted));
    REQUIRE(declared("runs.h", &wanted));
    REQUIRE(declared("stage.h", &wanted));
    REQUIRE(wanted.count > 20);
    if (RUN(in_folder("nm", output), "nm", "-D", "--defined-only", library(path)) != 0)
        SKIP("nm is not installed, or there is no libcairn.so in CAIRN_BIN_DIR");
    REQUIRE(cairn_file_load(output, &listing, NULL) == CAIRN_OK);
    char *rest = NULL;
    for (char *line = strtok_r(listing.data, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char *name = strrchr(line, ' ') + 1;
        if (strncmp(name, "CAIRN_0", 7) != 0) add(&shown, name, strcspn(name, "@"));
    }
    for (size_t i = 0; i < wanted.count; i++)
        cairn_test_check(has(&shown, wanted.names[i]), __FILE__, __LINE__, "%s is not exported",
                         wanted.names[i]);
    for (size_t i = 0; i < shown.count; i++)
        cairn_test_check(has(&wanted, shown.names[i]), __FILE__, __LINE__, "%s is not declared",
                         shown.names[i]);
}

TEST(the_library_needs_libc_and_jansson_only) {
    static const char *const allowed[] = {"libc.so.",    "libjansson.so.", "libpthread.so.",
                                          "ld-linux",    "libasan.so.",    "libubsan.so.",
                                          "libtsan.so.", "libm.so.",       "libgcc_s.so."};
    CAIRN_AUTO(buf) listing = {0};
    char path[600], output[600];
    if (RUN(in_folder("needed", output), "readelf", "-d", library(path)) != 0)
        SKIP("readelf is not installed, or there is no libcairn.so in CAIRN_BIN_DIR");
    REQUIRE(cairn_file_load(output, &listing, NULL) == CAIRN_OK);
    size_t seen = 0;
    for (char *at = strstr(listing.data, "(NEEDED)"); at; at = strstr(at + 1, "(NEEDED)")) {
        char *name = strchr(at, '[') + 1;
        bool fine = false;
        for (size_t i = 0; i < CAIRN_COUNT(allowed); i++)
            fine |= strncmp(name, allowed[i], strlen(allowed[i])) == 0;
        cairn_test_check(fine, __FILE__, __LINE__, "needs %.40s", name);
        seen++;
    }
    EXPECT(seen >= 2);
    EXPECT(strstr(listing.data, "[libcairn.so.1]") != NULL);
}

/* Every public header alone, as the strictest users compile it. */
static void compile(const char *compiler, const char *language, const char *standard) {
    char source[600], output[600], include[600];
    const char *probe[] = {compiler, "--version", NULL};
    if (run(probe, in_folder("version", output)) != 0) return;
    snprintf(include, sizeof include, "-I%s/include", cairn_test_tree());
    EACH_TEXT(one, "cairn.h", "error.h", "codes.h", "find.h", "inspect.h", "items.h", "pieces.h",
              "poll.h", "reads.h", "runs.h", "stage.h") {
        const char *text = TEXT("#include <cairn/%s>\nint main(void) { return 0; }\n", one);
        if (cairn_file_replace(in_folder("source", source), cairn_view_of(text), 0600, NULL))
            return;
        EXPECT_EQ_U64(RUN(output, compiler, "-x", language, standard, "-pedantic", "-Wall",
                          "-Wextra", "-Werror", "-fsyntax-only", include, source),
                      0);
    }
}

TEST(the_public_headers_are_plain_c11_and_compile_as_cpp) {
    compile("cc", "c", "-std=c11");
    compile("clang", "c", "-std=c11");
    compile("c++", "c++", "-std=c++11");
    compile("clang++", "c++", "-std=c++17");
}
