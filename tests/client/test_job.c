/* SPDX-License-Identifier: Apache-2.0 */
/* Which incarnation of a job a process belongs to: the rules, with an environment of their own. */
#include "client/session/options.h"
#include "tests/harness.h"

static const char *const *environment; /* name, value, ..., NULL */

static const char *variable(const char *name) {
    for (size_t i = 0; environment && environment[i]; i += 2)
        if (strcmp(environment[i], name) == 0) return environment[i + 1];
    return NULL;
}

static enum cairn_code job_of(const char *const *variables, const char *option, uint32_t world_size,
                              char ret_job[CAIRN_CLIENT_JOB_BYTES], struct cairn_error *err) {
    const struct cairn_client_job_sources sources = {option, world_size, variable};
    environment = variables;
    return cairn_client_job(&sources, ret_job, err);
}
#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(the_option_wins_over_every_variable, err) {
    char job[CAIRN_CLIENT_JOB_BYTES];
    REQUIRE_OK(job_of(ENV("CAIRN_JOB", "env", "SLURM_JOB_ID", "5"), "mine", 8, job, &err));
    EXPECT_EQ_TEXT(job, "mine");
}

TEST(the_sources_are_tried_in_order_and_restarts_count, err) {
    char job[CAIRN_CLIENT_JOB_BYTES];
    REQUIRE_OK(job_of(ENV("SLURM_JOB_ID", "5", "CAIRN_JOB", "env", "TORCHELASTIC_RUN_ID", "r"),
                      NULL, 8, job, &err));
    EXPECT_EQ_TEXT(job, "env");
    REQUIRE_OK(job_of(
        ENV("SLURM_JOB_ID", "5", "TORCHELASTIC_RUN_ID", "r", "TORCHELASTIC_RESTART_COUNT", "3"),
        NULL, 8, job, &err));
    EXPECT_EQ_TEXT(job, "torchelastic:r:3");
    REQUIRE_OK(job_of(ENV("SLURM_JOB_ID", "5", "SLURM_RESTART_COUNT", "2"), NULL, 8, job, &err));
    EXPECT_EQ_TEXT(job, "slurm:5:2");
    REQUIRE_OK(job_of(ENV("SLURM_JOB_ID", "5"), NULL, 8, job, &err));
    EXPECT_EQ_TEXT(job, "slurm:5:0");
}

TEST(empty_variables_and_torchruns_placeholder_are_no_source, err) {
    char job[CAIRN_CLIENT_JOB_BYTES];
    REQUIRE_OK(job_of(ENV("CAIRN_JOB", "", "TORCHELASTIC_RUN_ID", "none", "SLURM_JOB_ID", "9"),
                      NULL, 2, job, &err));
    EXPECT_EQ_TEXT(job, "slurm:9:0");
    EXPECT_CODE(job_of(ENV("TORCHELASTIC_RUN_ID", "none"), NULL, 2, job, &err), CAIRN_INVALID);
}

TEST(many_ranks_without_a_source_are_told_every_way_out, err) {
    char job[CAIRN_CLIENT_JOB_BYTES];
    EXPECT_FAILS(job_of(NULL, NULL, 2, job, &err), CAIRN_INVALID, "CAIRN_JOB");
    EXPECT(strstr(err.message, "rdzv-id") != NULL);
    EXPECT(strstr(err.message, "Slurm") != NULL);
}

TEST(one_rank_without_a_source_gets_a_new_string_each_time, err) {
    char first[CAIRN_CLIENT_JOB_BYTES], second[CAIRN_CLIENT_JOB_BYTES];
    REQUIRE_OK(job_of(NULL, NULL, 1, first, &err));
    REQUIRE_OK(job_of(NULL, NULL, 1, second, &err));
    EXPECT(strcmp(first, second) != 0);
}

TEST(strings_that_cannot_travel_are_refused, err) {
    char job[CAIRN_CLIENT_JOB_BYTES], longest[300];
    memset(longest, 'x', sizeof longest);
    longest[255] = 0;
    EXPECT_CODE(job_of(NULL, longest, 1, job, &err), CAIRN_OK);
    longest[255] = 'x';
    longest[256] = 0;
    EXPECT_CODE(job_of(NULL, longest, 1, job, &err), CAIRN_INVALID);
    EXPECT_CODE(job_of(NULL, "", 1, job, &err), CAIRN_INVALID);
    EXPECT_CODE(job_of(NULL, "a\nb", 1, job, &err), CAIRN_INVALID);
    EXPECT_CODE(job_of(NULL, "\xc3", 1, job, &err), CAIRN_INVALID);
    EXPECT_CODE(
        job_of(ENV("SLURM_JOB_ID", longest, "SLURM_RESTART_COUNT", longest), NULL, 1, job, &err),
        CAIRN_INVALID);
}

TEST(the_incarnation_is_what_the_launcher_says_also_with_a_job_given_by_hand, err) { /* Q54 */
    const struct cairn_client_job_sources sources = {"mine", 8, variable};
    char text[CAIRN_CLIENT_INCARNATION_BYTES];
    environment = ENV("TORCHELASTIC_RUN_ID", "r", "TORCHELASTIC_RESTART_COUNT", "3",
                      "PMIX_NAMESPACE", "ns", "SLURM_JOB_ID", "5");
    REQUIRE_OK(cairn_client_incarnation(&sources, text, &err));
    EXPECT_EQ_TEXT(text, "torchelastic:r:3");
    environment =
        ENV("TORCHELASTIC_RUN_ID", "none", "PMIX_NAMESPACE", "prte-1@1", "SLURM_JOB_ID", "5");
    REQUIRE_OK(cairn_client_incarnation(&sources, text, &err));
    EXPECT_EQ_TEXT(text, "pmix:prte-1@1:0");
    environment = ENV("SLURM_JOB_ID", "5", "SLURM_RESTART_COUNT", "2");
    REQUIRE_OK(cairn_client_incarnation(&sources, text, &err));
    EXPECT_EQ_TEXT(text, "slurm:5:2");
    environment = ENV("CAIRN_INCARNATION", "start-7", "SLURM_JOB_ID", "5");
    REQUIRE_OK(cairn_client_incarnation(&sources, text, &err));
    EXPECT_EQ_TEXT(text, "start-7");
    environment = ENV("CAIRN_INCARNATION", "a\nb");
    EXPECT_CODE(cairn_client_incarnation(&sources, text, &err), CAIRN_INVALID);
    environment = NULL;
    REQUIRE_OK(cairn_client_incarnation(&sources, text, &err));
    EXPECT_EQ_TEXT(text, "");
}
