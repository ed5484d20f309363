/* SPDX-License-Identifier: Apache-2.0 */
/* docs/socket.md and uploader/README.md say of each message what api/messages.def says. */
#include "api/wire/messages.h"
#include "tests/docs/page.h"

static void add_fields(const struct cairn_message_form *form, bool *first, struct cairn_buf *ret);

static void add_item(const struct cairn_message_field *field, struct cairn_buf *ret) {
    bool array = field->kind == CAIRN_JSON_ARRAY, first = true;
    if (field->item == CAIRN_MESSAGE_none) return;
    cairn_docs_add(ret, array ? ":[{" : ":{");
    add_fields(cairn_message_form(field->item), &first, ret);
    cairn_docs_add(ret, array ? "}]" : "}");
}

/* Neighbours that may be absent share their brackets. */
static void add_fields(const struct cairn_message_form *form, bool *first, struct cairn_buf *ret) {
    bool inside = false;
    for (const struct cairn_message_field *field = form->fields(); field->name; field++) {
        bool may = field->presence != CAIRN_MESSAGE_MUST;
        if (inside && !may) cairn_docs_add(ret, "]");
        cairn_docs_add(ret, "%s%s%s", *first ? "" : ", ", may && !inside ? "[" : "", field->name);
        add_item(field, ret);
        inside = may;
        *first = false;
    }
    if (inside) cairn_docs_add(ret, "]");
}

/* "hello {id, min, max, run, [rank, ...]}" */
static void add_form(const struct cairn_message_form *form, struct cairn_buf *ret) {
    bool numbered = form->group == CAIRN_MESSAGE_REQUEST || form->group == CAIRN_MESSAGE_ANSWER;
    bool first = !numbered;
    cairn_docs_add(ret, "`%s {%s", form->text, numbered ? "id" : "");
    add_fields(form, &first, ret);
    cairn_docs_add(ret, "}`");
}

static size_t count_of(const char *text, const char *what) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) count++;
    return count;
}

/* Each message of the groups stands on the page, behind its mark; how many there are. */
static size_t expect_forms(const char *page, unsigned groups, const char *mark) {
    size_t count = 0;
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++) {
        const struct cairn_message_form *form = cairn_message_form((enum cairn_message)i);
        if (!(groups >> form->group & 1)) continue;
        CAIRN_AUTO(buf) wanted = {0};
        cairn_docs_add(&wanted, "%s", mark);
        add_form(form, &wanted);
        cairn_test_check(strstr(page, wanted.data) != NULL, __FILE__, __LINE__, "the page has %s",
                         wanted.data);
        count++;
    }
    return count;
}

#define GROUP(name) (1U << CAIRN_MESSAGE_##name)

TEST(the_page_of_the_socket_has_every_frame_with_its_fields_and_no_other) {
    CAIRN_AUTO(buf) page = {0};
    if (!cairn_docs_load("docs/socket.md", &page)) return;
    size_t trainers = expect_forms(page.data, GROUP(REQUEST) | GROUP(NOTICE), "| client | ");
    size_t uploaders = expect_forms(page.data, GROUP(EVENT), "| uploader | ");
    EXPECT_EQ_U64(count_of(page.data, "| client | `"), trainers);
    EXPECT_EQ_U64(count_of(page.data, "| uploader | `"), uploaders);
    (void)expect_forms(page.data, GROUP(ANSWER), "");
}

TEST(the_answer_of_a_request_stands_in_its_row) {
    CAIRN_AUTO(buf) page = {0};
    if (!cairn_docs_load("docs/socket.md", &page)) return;
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++) {
        const struct cairn_message_form *form = cairn_message_form((enum cairn_message)i);
        if (form->group != CAIRN_MESSAGE_REQUEST) continue;
        CAIRN_AUTO(buf) row = {0}, answer = {0};
        cairn_docs_add(&row, "| client | ");
        add_form(form, &row);
        add_form(cairn_message_form(form->answer), &answer);
        const char *at = strstr(page.data, row.data);
        REQUIRE(at != NULL);
        const char *found = strstr(at + row.size, answer.data), *end = strchr(at, '\n');
        cairn_test_check(found && found < end, __FILE__, __LINE__, "the row of %s has %s",
                         form->text, answer.data);
    }
}

TEST(the_page_of_the_uploader_has_every_record_of_the_journal_with_its_fields_and_no_other) {
    CAIRN_AUTO(buf) page = {0};
    if (!cairn_docs_load("uploader/README.md", &page)) return;
    const char *table = strstr(page.data, "| record | what it says |");
    REQUIRE(table != NULL);
    size_t records = expect_forms(table, GROUP(RECORD), "\n| ");
    const char *end = strstr(table, "\n\n");
    REQUIRE(end != NULL);
    page.data[(uint8_t *)(uintptr_t)end - (uint8_t *)page.data] = 0;
    EXPECT_EQ_U64(count_of(table, "\n| `"), records);
}
