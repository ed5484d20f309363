/* SPDX-License-Identifier: Apache-2.0 */
/* E: a listing whose pages come again ends, however long the loop is; one that goes on does not. */
#include "store/s3/inside.h"
#include "tests/harness.h"

struct pages {
    char page[256]; /* its name; "": the first */
    unsigned asked;
};

/* A page that holds this key alone, or nothing, and says that there is more. */
static enum cairn_code turn(struct pages *pages, const char *key, const char *token,
                            struct cairn_error *err) {
    struct cairn_store_entry entry = {0};
    struct cairn_store_listing listing = {.entries = &entry, .count = key != NULL};
    struct cairn_store_request request = {.op = CAIRN_STORE_LIST,
                                          .key = "p/",
                                          .listing = &listing,
                                          .page = pages->page[0] ? pages->page : NULL};
    entry.key = TEXT("%s", key ? key : "");
    listing.next_page = strdup(token);
    enum cairn_code code = cairn_s3_page_take(&request, 0, err);
    EXPECT(code != CAIRN_OK || !strcmp(cairn_s3_page_token(listing.next_page), token));
    snprintf(pages->page, sizeof pages->page, "%s", listing.next_page);
    free(listing.next_page);
    pages->asked++;
    return code;
}

static unsigned pages_until_refused(unsigned before_loop, unsigned loop, unsigned most) {
    struct pages pages = {0};
    struct cairn_error err = {0};
    for (unsigned i = 0; i < most; i++) {
        unsigned place = i < before_loop ? i : before_loop + (i - before_loop) % loop;
        const char *key = TEXT("p/%u", place);
        enum cairn_code code = turn(&pages, key, TEXT("token %u\n/", i), &err);
        if (code == CAIRN_OK) continue;
        EXPECT_FAILS(code, CAIRN_STORE, "\"p/\"");
        return pages.asked;
    }
    return 0;
}

TEST(e_a_loop_of_pages_is_found_whatever_its_length) {
    for (unsigned before = 0; before < 40; before += 3)
        for (unsigned loop = 1; loop < 40; loop += 2) {
            unsigned asked = pages_until_refused(before, loop, 400);
            EXPECT(asked > before + loop - 1 && asked <= 4 * (before + loop) + 4);
        }
}

TEST(e_a_long_listing_is_no_loop) {
    EXPECT_EQ_U64(pages_until_refused(5000, 1, 5000), 0);
}

TEST(e_empty_pages_are_taken_but_not_for_ever, err) {
    struct pages pages = {0};
    enum cairn_code code = CAIRN_OK;
    for (unsigned i = 0; i < 900; i++) {
        REQUIRE_OK(turn(&pages, NULL, TEXT("%u", i), &err));
    }
    REQUIRE_OK(turn(&pages, "p/a", "x", &err));
    for (unsigned i = 0; i < 2000 && !code; i++) {
        code = turn(&pages, NULL, TEXT("%u", i), &err);
    }
    EXPECT_CODE(code, CAIRN_STORE);
    EXPECT(pages.asked > 1800);
}
