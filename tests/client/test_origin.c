/* SPDX-License-Identifier: Apache-2.0 */
/* What a session says of its machine and its libraries. */
#include "client/session/options.h"

#include "tests/harness.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "89abcdef0123456789abcdef0123456789abcdef"

static const char *version_of(const json_t *origin, const char *library) {
    return json_string_value(json_object_get(json_object_get(origin, "versions"), library));
}

TEST(origin_names_the_versions_that_the_environment_tells_and_no_other) {
    setenv("PYTORCH_VERSION", "2.4.0", 1);
    setenv("CUDA_VERSION", "13.0.1", 1);
    setenv("NVIDIA_PYTORCH_VERSION", "", 1);
    unsetenv("NCCL_VERSION");
    CAIRN_AUTO_JSON json_t *origin = cairn_client_origin();
    EXPECT(version_of(origin, "cairn") != NULL);
    EXPECT_EQ_TEXT(version_of(origin, "torch"), "2.4.0");
    EXPECT_EQ_TEXT(version_of(origin, "cuda"), "13.0.1");
    EXPECT(!version_of(origin, "nccl"));
    EXPECT(!version_of(origin, "nvidia_torch"));
    EXPECT(!version_of(origin, "python")); /* this program is none */
    unsetenv("PYTORCH_VERSION");
    unsetenv("CUDA_VERSION");
}

TEST(origin_names_the_user_also_where_no_variable_does) {
    setenv("USER", "ann", 1);
    CAIRN_AUTO_JSON json_t *told = cairn_client_origin();
    EXPECT_EQ_TEXT(json_string_value(json_object_get(told, "user")), "ann");
    unsetenv("USER");
    unsetenv("LOGNAME");
    CAIRN_AUTO_JSON json_t *found = cairn_client_origin();
    if (!geteuid()) EXPECT_EQ_TEXT(json_string_value(json_object_get(found, "user")), "root");
}

static bool write_line(const char *name, const char *line) {
    FILE *file = fopen(name, "w");
    bool well = file && fputs(line, file) >= 0;
    return file && !fclose(file) && well;
}

/* What the origin says of the checkout around the working directory; NULL: nothing. */
static const char *of_git(const char *member, char ret[64]) {
    CAIRN_AUTO_JSON json_t *origin = cairn_client_origin();
    const char *text = json_string_value(json_object_get(origin, member));
    return text ? (snprintf(ret, 64, "%s", text), ret) : NULL;
}

static void look_at_each_form(void) {
    char said[64];
    REQUIRE(!mkdir(".git", 0700) && !mkdir(".git/refs", 0700) && !mkdir(".git/refs/heads", 0700));
    REQUIRE(!mkdir("src", 0700) && write_line(".git/HEAD", COMMIT "\n"));
    EXPECT_EQ_TEXT(of_git("git_commit", said), COMMIT); /* no branch */
    EXPECT(!of_git("git_branch", said));
    REQUIRE(write_line(".git/HEAD", "ref: refs/heads/main\n"));
    EXPECT_EQ_TEXT(of_git("git_branch", said), "main");
    EXPECT(!of_git("git_commit", said)); /* a branch without a commit yet */
    REQUIRE(write_line(".git/packed-refs", "# pack-refs with: peeled fully-peeled sorted \n" OTHER
                                           " refs/heads/main2\n" OTHER " refs/tags/v1\n^" OTHER
                                           "\n" COMMIT " refs/heads/main\n"));
    EXPECT_EQ_TEXT(of_git("git_commit", said), COMMIT); /* after git gc */
    REQUIRE(write_line(".git/refs/heads/main", OTHER "\n"));
    EXPECT_EQ_TEXT(of_git("git_commit", said), OTHER); /* a later commit */
    REQUIRE(!chdir("src"));
    EXPECT_EQ_TEXT(of_git("git_commit", said), OTHER);
}

TEST(origin_names_the_commit_of_the_checkout_in_each_form_that_git_keeps_it) {
    char before[4096];
    REQUIRE(getcwd(before, sizeof before) && !chdir(cairn_test_folder()));
    look_at_each_form();
    EXPECT(!chdir(before));
}
