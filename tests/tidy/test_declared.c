/* SPDX-License-Identifier: Apache-2.0 */
/* declared: over the whole product, and over small files that break the rule. */
#include "tests/tidy/declared.h"
#include "tests/tidy/tree.h"

static void gather(void *owner, const struct cairn_tidy_file *file) {
    EACH_TEXT(text, "tests/", "bench/", "examples/", "include/")
        if (cairn_text_starts(file->path, text)) return;
    cairn_tidy_declared_add(owner, file);
}

TEST(a_function_is_declared_in_the_header_named_after_its_source) {
    CAIRN_AUTO(buf) found = {0};
    struct cairn_tidy_declared *declared = cairn_tidy_declared_new();
    REQUIRE(declared != NULL);
    cairn_tidy_walk(CAIRN_TIDY_CODE, gather, declared);
    size_t count = cairn_tidy_declared_find(declared, &found);
    EXPECT(count > 1000);
    if (!EXPECT(found.size == 0)) fputs(found.data, stderr);
    cairn_tidy_declared_free(declared);
}

/* Is cairn_a, which this header declares, looked for in this source? */
static bool accepted(const char *header, const char *source) {
    static const char declares[] = "struct cairn_b {\n    int (*c)(void);\n};\n"
                                   "static inline int cairn_own(int a) {\n    return a;\n}\n"
                                   "enum cairn_code cairn_a(struct cairn_b *b,\n"
                                   "                        int c) CAIRN_MUST_USE;\n";
    static const char defines[] = "static int cairn_d(void) {\n}\n"
                                  "enum cairn_code cairn_a(struct cairn_b *b,\n    int c) {\n}\n";
    CAIRN_AUTO(buf) found = {0};
    struct cairn_tidy_declared *declared = cairn_tidy_declared_new();
    if (!EXPECT(declared != NULL)) return false;
    cairn_tidy_declared_add(declared, &(struct cairn_tidy_file){header, declares, declares});
    cairn_tidy_declared_add(declared, &(struct cairn_tidy_file){source, defines, defines});
    EXPECT_EQ_U64(cairn_tidy_declared_find(declared, &found), 1);
    cairn_tidy_declared_free(declared);
    return found.size == 0;
}

TEST(a_function_that_is_declared_elsewhere_is_found) {
    EXPECT(accepted("api/table/table.h", "api/table/table.c"));
    EXPECT(accepted("api/table/table.h", "api/table/table_build.c"));
    EXPECT(accepted("store/dir/inside.h", "store/dir/write.c"));
    EXPECT(accepted("store/machine_inside.h", "store/machine_proof.c"));
    EXPECT(accepted("store/machine_inside.h", "store/machine.c"));
    EXPECT(accepted("server/http/http.h", "server/http/tls.c"));
    EXPECT(accepted("server/http/above.h", "server/handle.c"));
    EXPECT(!accepted("server/http/above.h", "server/http/tls.c"));
    EXPECT(!accepted("server/http/http.h", "server/handle.c"));
    EXPECT(!accepted("server/http/htt.h", "server/http/tls.c"));
    EXPECT(!accepted("api/table/table.h", "api/tables.c"));
    EXPECT(!accepted("api/table/table.h", "api/documents/digest.c"));
    EXPECT(!accepted("api/table/table.h", "plan/table.c"));
    EXPECT(!accepted("api/table_build.h", "api/table/table.c"));
    EXPECT(!accepted("store/dir/inside.h", "store/keys/write.c"));
    EXPECT(!accepted("store/machine_inside.h", "store/retry.c"));
}
