/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Idempotency-Key: what is made is made once, and a repeat is answered with it; tokens.h. */
#include "tests/server/office.h"

#define say office_say
#define HEADER "Idempotency-Key: %s\r\n"

static struct cairn_error err;

/* The member of the body, as a text; "" for none. */
static void member_of(const struct cairn_buf *reply, const char *name, char *ret, size_t size) {
    const char *body = reply->size ? strstr(reply->data, "\r\n\r\n") : NULL;
    CAIRN_AUTO_JSON json_t *json = body ? json_loads(body + 4, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(json, name));
    snprintf(ret, size, "%s", text ? text : "");
}

/* POST with a key; ret: the member that names what was made. */
static int post(struct office *office, const char *token, const char *key, const char *path,
                const char *body, const char *member, char *ret, size_t size) {
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_MIB};
    int status = say(office, token, "POST", path, TEXT(HEADER, key), body, &reply);
    member_of(&reply, member, ret, size);
    return status;
}

static size_t tokens_of(struct office *office) {
    const char *body = strstr(ANSWER(office, office->admin, "200 GET /v1/tokens"), "\r\n\r\n");
    CAIRN_AUTO_JSON json_t *json = body ? json_loads(body + 4, 0, NULL) : NULL;
    return json_array_size(json_object_get(json, "items"));
}

#define TOKEN "{\"scopes\":[\"read\"],\"project\":\"llm\"}"

TEST(a_token_is_made_once_by_its_key_and_a_repeat_is_told_the_same_text) {
    OFFICE();
    char first[200], second[200], other[200], id[40], code[40];
    size_t before = tokens_of(&office);
    EXPECT(post(&office, office.admin, "k-1", "/v1/tokens", TOKEN, "token", first, 200) == 201);
    EXPECT(post(&office, office.admin, "k-1", "/v1/tokens", TOKEN, "token", second, 200) == 201);
    EXPECT(first[0] && !strcmp(first, second));
    EXPECT_EQ_U64(tokens_of(&office), before + 1);
    EXPECT(say(&office, first, "GET", "/v1/runs/llm/none", NULL, NULL, NULL) == 404); /* good */
    EXPECT(post(&office, office.admin, "k-2", "/v1/tokens", TOKEN, "token", other, 200) == 201);
    EXPECT(strcmp(first, other) != 0);
    /* Another call with the same key makes nothing (tokens.h#6). */
    EXPECT(post(&office, office.admin, "k-1", "/v1/tokens",
                "{\"scopes\":[\"write\"],\"project\":\"llm\"}", "code", code, 40) == 422);
    EXPECT_EQ_TEXT(code, "key-reused");
    EXPECT_EQ_U64(tokens_of(&office), before + 2);
    /* One that was revoked is not made again. */
    EXPECT(post(&office, office.admin, "k-1", "/v1/tokens", TOKEN, "id", id, 40) == 201);
    SAYS(&office, office.admin, TEXT("200 DELETE /v1/tokens/%s", id));
    EXPECT(post(&office, office.admin, "k-1", "/v1/tokens", TOKEN, "code", code, 40) == 409);
    EXPECT_EQ_U64(tokens_of(&office), before + 1);
}

TEST(a_key_means_the_same_after_a_restart_of_the_server) {
    OFFICE();
    char first[200], second[200], code[40];
    EXPECT(post(&office, office.admin, "k-1", "/v1/tokens", TOKEN, "token", first, 200) == 201);
    size_t before = tokens_of(&office);
    REQUIRE(world_restart(&office.world, NULL, NULL));
    EXPECT(post(&office, office.admin, "k-1", "/v1/tokens", TOKEN, "token", second, 200) == 201);
    EXPECT(first[0] && !strcmp(first, second));
    EXPECT_EQ_U64(tokens_of(&office), before);
    EXPECT(post(&office, office.admin, "k-1", "/v1/tokens",
                "{\"scopes\":[\"write\"],\"project\":\"llm\"}", "code", code, 40) == 422);
}

TEST(one_callers_keys_are_nothing_to_another_one) { /* tokens.h#7 */
    OFFICE();
    char first[200], second[200];
    MADE(chief, "admin", "llm");
    EXPECT(post(&office, office.admin, "same", "/v1/tokens", TOKEN, "token", first, 200) == 201);
    EXPECT(post(&office, chief.text, "same", "/v1/tokens", TOKEN, "token", second, 200) == 201);
    EXPECT(first[0] && second[0] && strcmp(first, second) != 0);
}

TEST(an_operation_that_has_ended_is_the_answer_of_its_repeat) {
    OFFICE();
    struct cairn_hand hand;
    char first[64], again[64], other[64];
    REQUIRE_OK(hand_open(&office.world, &hand, "j1", 0, "latest", 1));
    SAVED(save, 100);
    const char *verify = TEXT("%s/verify", save.path);
    int begun = post(&office, office.admin, "v-1", verify, "{\"read\":true}", "id", first, 64);
    EXPECT(begun == 202 || begun == 200);
    SAYS(&office, office.admin, TEXT("200 GET /v1/operations/%s?wait=60s", first)); /* ended */
    EXPECT(post(&office, office.admin, "v-1", verify, "{\"read\":true}", "id", again, 64) == 200);
    EXPECT_EQ_TEXT(again, first);
    (void)post(&office, office.admin, "v-2", verify, "{\"read\":true}", "id", other, 64);
    EXPECT(other[0] && strcmp(other, first) != 0);
    EXPECT(post(&office, office.admin, "v-1", verify, "{\"repair\":true}", "id", again, 64) == 422);
}

TEST(a_key_of_more_than_255_bytes_is_refused) {
    OFFICE();
    char text[64], key[SRV_IDEMPOTENCY_KEY_MAX + 2];
    memset(key, 'k', sizeof(key));
    key[SRV_IDEMPOTENCY_KEY_MAX + 1] = '\0';
    EXPECT(post(&office, office.admin, key, "/v1/tokens", TOKEN, "code", text, 64) == 400);
    key[SRV_IDEMPOTENCY_KEY_MAX] = '\0';
    EXPECT(post(&office, office.admin, key, "/v1/tokens", TOKEN, "code", text, 64) == 201);
}

struct keeping {
    char subject[SRV_SUBJECT_BYTES];
    bool finds;
};

static enum cairn_code keep(struct srv_tx *tx, void *argument, struct cairn_error *ret) {
    struct keeping *keeping = argument;
    return keeping->finds ? srv_idempotency_find(tx, keeping->subject, ret)
                          : srv_idempotency_keep(tx, "made", ret);
}

static const char *keyed(struct cairn_world *world, const char *caller, int number, bool finds) {
    static struct keeping keeping;
    const struct srv_idempotency call = {.caller = caller, .key = TEXT("key-%d", number)};
    keeping = (struct keeping){.finds = finds};
    inside_pass(&world->inside, 1);
    srv_actor_set(&(struct srv_actor){"who", "", &call});
    EXPECT_CODE(srv_catalog_write(world->inside.server.catalog, keep, &keeping, &err), CAIRN_OK);
    srv_actor_set(NULL);
    return keeping.subject;
}

TEST(a_caller_has_its_newest_1000_keys_for_24_hours) {
    INSIDE();
    for (int i = 0; i <= SRV_IDEMPOTENCY_MAX; i++) (void)keyed(&world, "a", i, false);
    (void)keyed(&world, "b", 0, false);
    EXPECT_EQ_TEXT(keyed(&world, "a", 0, true), "");
    EXPECT_EQ_TEXT(keyed(&world, "a", 1, true), "made");
    EXPECT_EQ_TEXT(keyed(&world, "a", SRV_IDEMPOTENCY_MAX, true), "made");
    EXPECT_EQ_TEXT(keyed(&world, "b", 0, true), "made"); /* another caller's */
    inside_pass(&world.inside, SRV_IDEMPOTENCY_KEPT_MS);
    EXPECT_EQ_TEXT(keyed(&world, "a", SRV_IDEMPOTENCY_MAX, true), "");
}
