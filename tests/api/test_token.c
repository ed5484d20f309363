/* SPDX-License-Identifier: Apache-2.0 */
#include "api/wire/rights.h"

#include <ctype.h>
#include <stdio.h>

#include "api/wire/routes.h"
#include "common/trace.h"
#include "tests/harness.h"

TEST(a_token_is_known_again_by_its_digest_and_every_other_text_is_none) /* A01 */
{
    char text[CAIRN_TOKEN_TEXT_BYTES], other[CAIRN_TOKEN_TEXT_BYTES + 8];
    struct cairn_token_key made, read;
    cairn_token_make(cairn_random, text, &made);
    REQUIRE(cairn_token_read(cairn_view_of(text), &read));
    EXPECT_EQ_TEXT(read.id, made.id);
    EXPECT(!memcmp(read.digest, made.digest, sizeof(read.digest)));
    EXPECT(strstr(text, made.id) == text + 6);
    for (size_t i = 0; text[i]; i++) {
        snprintf(other, sizeof(other), "%s", text);
        other[i] = i < 6 || text[i] == '_' ? 'x' : (char)(text[i] == '0' ? '1' : '0');
        bool same = cairn_token_read(cairn_view_of(other), &read) &&
                    !memcmp(read.digest, made.digest, sizeof(read.digest));
        cairn_test_check(!same, __FILE__, __LINE__, "byte %zu changes nothing", i);
    }
    for (char *at = text; *at; at++) *at = (char)toupper((unsigned char)*at);
    EXPECT(!cairn_token_read(cairn_view_of(text), &read));
    cairn_token_make(cairn_random, text, &made);
    snprintf(other, sizeof(other), "%s0", text);
    EXPECT(!cairn_token_read(cairn_view_of(other), &read));
    EXPECT(!cairn_token_read((struct cairn_view){text, strlen(text) - 1}, &read));
    EXPECT(!cairn_token_read((struct cairn_view){text, 0}, &read));
}

TEST(a_pattern_fits_whole_names_only) /* A02 */
{
    static const struct {
        const char *pattern, *project;
        bool fits;
    } cases[] = {
        {"run1", "run1", true},
        {"run1", "run10", false},
        {"run1", "run", false},
        {"run1", "Run1", false},
        {"run?", "run1", true},
        {"run?", "run10", false},
        {"run?", "run", false},
        {"*", "x", true},
        {"nlp-*", "nlp-", true},
        {"nlp-*", "nlp", false},
        {"nlp-*", "x-nlp-1", false},
        {"*-prod", "a-prod", true},
        {"*-prod", "a-prod2", false},
        {"a*b*c", "a1b2c", true},
        {"a*b*c", "a1c2b", false},
        {"a*b*c", "abcbc", true},
        {"**", "x", true},
        {"", "x", false},
    };
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++)
        cairn_test_check(cairn_project_pattern_fits(cases[i].pattern, cases[i].project) ==
                             cases[i].fits,
                         __FILE__, __LINE__, "%s and %s", cases[i].pattern, cases[i].project);
    EXPECT(cairn_project_pattern_covers("*", "a*"));
    EXPECT(cairn_project_pattern_covers("a*", "a*"));
    EXPECT(cairn_project_pattern_covers("a*", "ab"));
    EXPECT(!cairn_project_pattern_covers("a*", "*"));
    EXPECT(!cairn_project_pattern_covers("a*", "b"));
    EXPECT(!cairn_project_pattern_covers("a*", "ab*")); /* it would, but is not plain to see */
    EXPECT(!cairn_project_pattern_covers("ab", "a?"));
    static const char *const bad[] = {"", "a/b", "a b", "..", "a\n", "-a", "[a]", "a..b"};
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++)
        cairn_test_check(!cairn_project_pattern_valid(bad[i]), __FILE__, __LINE__, "%s", bad[i]);
    EXPECT(cairn_project_pattern_valid("*") && cairn_project_pattern_valid("nlp-?*"));
}

TEST(scopes_are_written_as_they_are_read_and_none_stands_for_another) {
    char text[CAIRN_SCOPES_TEXT_BYTES];
    unsigned scopes = 0;
    struct cairn_error err = {0};
    REQUIRE_OK(cairn_scopes_parse("admin,read", &scopes, &err));
    EXPECT_EQ_U64(scopes, CAIRN_SCOPE_READ | CAIRN_SCOPE_ADMIN);
    cairn_scopes_text(scopes, text);
    EXPECT_EQ_TEXT(text, "read,admin");
    cairn_scopes_text(CAIRN_SCOPES_ALL, text);
    EXPECT_EQ_TEXT(text, "read,write,retain,admin");
    static const char *const bad[] = {"",     "read,",      ",read", "read,read",
                                      "Read", "read write", "all"};
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++)
        cairn_test_check(cairn_scopes_parse(bad[i], &scopes, &err) == CAIRN_INVALID, __FILE__,
                         __LINE__, "%s", bad[i]);
}

TEST(every_route_says_what_it_needs_and_those_of_a_project_are_judged_by_it) /* A02 */
{
    for (int id = 0; id < CAIRN_ROUTE_COUNT; id++) {
        const struct cairn_route *route = cairn_route_at((enum cairn_route_id)id);
        const struct cairn_route_need *need = &route->need;
        /* What the server counts says how much is kept. */
        bool of_api = !strncmp(route->template_text, "/v1/", 4) || !strcmp(route->name, "metrics");
        bool of_project = strstr(route->template_text, "{project}") != NULL;
        bool reads = !strcmp(route->method, "GET") || !strcmp(route->method, "HEAD");
        bool ok = need->token == of_api && need->project == of_project &&
                  (!need->all || !need->project) && (!need->grant || need->scope);
        /* What changes something is never open to a scope that only looks, but for these. */
        static const char *const looks[] = {"verify",      "restore_plan", "lease_take",
                                            "lease_renew", "lease_drop",   "retention_preview"};
        bool only_looks = reads;
        for (size_t i = 0; i < CAIRN_COUNT(looks); i++)
            only_looks = only_looks || !strcmp(route->name, looks[i]);
        ok = ok && (only_looks || need->scope != CAIRN_SCOPE_READ);
        cairn_test_check(ok, __FILE__, __LINE__, "%s", route->name);
    }
}
