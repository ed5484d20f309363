/* SPDX-License-Identifier: Apache-2.0 */
/* rings: over the whole product, and over four sources that call each other. */
#include "tests/tidy/rings.h"

#include "tests/tidy/tree.h"

static bool is_product(const char *path) {
    EACH_TEXT(text, "tests/", "bench/", "examples/")
        if (!strncmp(path, text, strlen(text))) return false;
    return true;
}

static void gather(void *owner, const struct cairn_tidy_file *file) {
    if (is_product(file->path)) cairn_tidy_rings_add(owner, file);
}

TEST(sources_call_each_other_in_no_large_ring) {
    CAIRN_AUTO(buf) found = {0};
    struct cairn_tidy_rings *rings = cairn_tidy_rings_new();
    REQUIRE(rings != NULL);
    cairn_tidy_walk(CAIRN_TIDY_SOURCE, gather, rings);
    cairn_tidy_rings_close(rings);
    cairn_tidy_rings_find(rings, &found);
    if (!EXPECT(found.size == 0)) fputs(found.data, stderr);
    cairn_tidy_rings_free(rings);
}

/* Four sources, each of which calls the next; the last one does what `last` says. How many of them
 * are in a ring that is too large. */
static unsigned ring_of_four(const char *last) {
    static const char *const paths[] = {"plan/a.c", "plan/b.c", "plan/c.c", "plan/d.c"};
    const char *const bodies[] = {"cairn_b(1)", "cairn_c(1)", "cairn_d(1)", last};
    struct cairn_tidy_rings *rings = cairn_tidy_rings_new();
    if (!EXPECT(rings != NULL)) return 0;
    for (unsigned i = 0; i < 4; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "static int cairn_own(void) {\n}\nint cairn_%c(int a,\n    int b) {\n"
                 "    %s;\n    return cairn_own();\n}\n",
                 "abcd"[i], bodies[i]);
        struct cairn_tidy_file file = {paths[i], text, text};
        cairn_tidy_rings_add(rings, &file);
    }
    cairn_tidy_rings_close(rings);
    unsigned count = cairn_tidy_rings_count(rings, "plan/");
    CAIRN_AUTO(buf) found = {0};
    cairn_tidy_rings_find(rings, &found);
    bool told = found.size && strstr(found.data, "ring of 4 sources: plan/a.c plan/b.c");
    EXPECT(told == (count == 4));
    cairn_tidy_rings_free(rings);
    return count;
}

TEST(a_ring_of_sources_is_found) {
    EXPECT_ALL_U64(ring_of_four("return 0"), 0, ring_of_four("cairn_a(1, 2)"), 4,
                   ring_of_four("hand_down(cairn_a)"), 4);
    EXPECT_EQ_U64(ring_of_four("cairn_b(1, 2)"), 0); /* of three */
    EXPECT_EQ_U64(ring_of_four("cairn_abc(1, 2)"), 0);
}
