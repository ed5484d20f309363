/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S24, S27, S29 and A04: listings that lie, deletions that fail, answers that are meant to hurt. */
#include "store/s3/probe.h"
#include "tests/s3faults/cases.h"

/* ---- S24 ---- */

static uint64_t list_all(struct cairn_s3world *world, enum cairn_store_op op, const char *prefix,
                         enum cairn_code *ret_code) {
    struct cairn_store_listing listing = {0};
    char *page = NULL;
    uint64_t pages = 0, seen = 0;
    do {
        struct cairn_store_request list = {
            .op = op, .key = prefix, .page = page, .listing = &listing};
        *ret_code = cairn_store_perform(world->worker, &list, &world->error);
        free(page);
        page = *ret_code == CAIRN_OK && listing.next_page ? strdup(listing.next_page) : NULL;
        seen += listing.count;
        cairn_store_listing_release(&listing);
        listing = (struct cairn_store_listing){0};
    } while (page && ++pages < 100);
    free(page);
    EXPECT(pages < 100);
    return seen;
}

static void put_many(struct cairn_s3world *world, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        EXPECT(cairn_s3world_put(world, TEXT("many/%03u &<+é>", i), CAIRN_VIEW("x")) == CAIRN_OK);
    }
}

TEST(s24_pages_are_followed_and_late_listings_only_show_less) {
    WORLD(.page_max = 7);
    enum cairn_code code;
    put_many(&world, 30);
    EXPECT_EQ_U64(list_all(&world, CAIRN_STORE_LIST, "many/", &code), 30);
    EXPECT_CODE(code, CAIRN_OK);
    EXPECT_EQ_U64(list_all(&world, CAIRN_STORE_LIST, "none/", &code), 0);
    cairn_s3world_rules(&world, "op=list : stale-list=60000");
    EXPECT_EQ_U64(list_all(&world, CAIRN_STORE_LIST, "many/", &code), 0);
    EXPECT_CODE(code, CAIRN_OK);
    cairn_s3world_rules(&world, "op=list nth=2 : rst@50%; op=list nth=4 : truncate@-9");
    EXPECT_EQ_U64(list_all(&world, CAIRN_STORE_LIST, "many/", &code), 30); /* none twice */
    EXPECT_CODE(code, CAIRN_OK);
}

TEST(s24_a_listing_without_end_is_refused) {
    WORLD(.page_max = 7);
    enum cairn_code code;
    put_many(&world, 3);
    cairn_s3world_rules(&world, "op=list : endless-list");
    (void)list_all(&world, CAIRN_STORE_LIST, "many/", &code);
    EXPECT_CODE(code, CAIRN_STORE);
    EXPECT(cairn_s3world_counter(&world, "op_list") <= 3);
}

/* Callers delete what was listed: a foreign key is a fault of the store, not a finding. */
static void nothing_foreign_is_listed(struct cairn_s3world *world, enum cairn_store_op op) {
    enum cairn_code code;
    EXPECT_EQ_U64(list_all(world, op, "one/", &code), 0);
    EXPECT(code == CAIRN_STORE);
    EXPECT(strstr(world->error.message, "one/") && strstr(world->error.message, "two/shard"));
    EXPECT(cairn_s3world_counter(world, op == CAIRN_STORE_LIST ? "op_list" : "op_uploads") <= 1);
}

TEST(e_objects_that_were_not_asked_for_are_an_error_that_names_them) {
    WORLD(.profile = "noprefix");
    REQUIRE_OK(cairn_s3world_put(&world, "two/shard", CAIRN_VIEW("x")));
    nothing_foreign_is_listed(&world, CAIRN_STORE_LIST);
}

TEST(e_uploads_that_were_not_asked_for_are_an_error_that_names_them) {
    WORLD(.profile = "alluploads");
    PERFORMED(create, world.worker,
              {.op = CAIRN_STORE_UPLOAD_CREATE, .key = "two/shard", .token = "t", .length = 1});
    nothing_foreign_is_listed(&world, CAIRN_STORE_UPLOADS);
}

/* Each page brings another token, so only what is on the pages tells. */
TEST(e_pages_that_come_again_are_an_error_after_a_few) {
    WORLD(.profile = "repeatpages", .page_max = 2);
    enum cairn_code code;
    put_many(&world, 5);
    (void)list_all(&world, CAIRN_STORE_LIST, "many/", &code);
    EXPECT_CODE(code, CAIRN_STORE);
    EXPECT(strstr(err.message, "does not go on") && strstr(err.message, "many/"));
    EXPECT(cairn_s3world_counter(&world, "op_list") <= 3);
    PERFORMED(create, world.worker,
              {.op = CAIRN_STORE_UPLOAD_CREATE, .key = "many/u", .token = "t", .length = 1});
    (void)list_all(&world, CAIRN_STORE_UPLOADS, "many/", &code);
    EXPECT_CODE(code, CAIRN_STORE);
}

TEST(e_a_probe_finds_out_whether_a_listing_holds_only_what_was_asked_for) {
    EACH(one,
         FIELDS(const char *profile; enum cairn_code code; bool lists_uploads; const char *told),
         {"aws", CAIRN_OK, true, "listings hold only what was asked for: yes"},
         {"noprefix", CAIRN_STORE, false, "listings hold only what was asked for: no"},
         {"alluploads", CAIRN_OK, false, "open uploads can be listed by prefix: no"}) {
        WORLD(.profile = one->profile);
        CAIRN_AUTO(buf) report = {0};
        EXPECT_CODE(cairn_store_s3_probe_all(world.store, &report, &err), one->code);
        EXPECT(strstr(report.data, one->told) != NULL);
        if (one->code) continue;
        EXPECT(cairn_store_profile(world.store)->lists_uploads == one->lists_uploads);
        EXPECT(!cairn_store_profile(world.store)->note[0] == one->lists_uploads);
    }
}

TEST(a_probe_waits_for_an_object_that_is_shown_late_and_names_a_head_that_tells_another_length) {
    EACH(one, FIELDS(const char *rules; enum cairn_code code; const char *said),
         {"op=head nth=1-3 : status=404/NoSuchKey", CAIRN_OK, ""},
         {"op=head nth=2-4 : status=404/NoSuchKey", CAIRN_OK, ""},
         {"op=head : drop-header=Content-Length", CAIRN_OK, ""},
         {"op=head : drop-header=Content-Length, header=Content-Length:0", CAIRN_STORE,
          "HEAD says that 9 bytes are 0"}) {
        WORLD(.rules = one->rules);
        enum cairn_code code = cairn_store_s3_probe_all(world.store, NULL, &err);
        cairn_test_check(code == one->code && strstr(err.message, one->said), __FILE__, __LINE__,
                         "%s: %s", one->rules, err.message);
    }
}

TEST(s24_saves_need_no_listing) {
    WORLD(.page_max = 1);
    ALL_BECOME_DURABLE("op=part : pass; op=list|uploads : status=500/InternalError",
                       "op=part : pass; op=uploads : no-uploads-listed");
}

TEST(s24_parts_are_listed_page_by_page_and_not_for_ever) {
    WORLD(.page_max = 1);
    ALL_BECOME_DURABLE("op=complete nth=1 : status=400/InvalidPart");
    EXPECT(cairn_s3world_counter(&world, "op_parts") >= 3);
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    CAIRN_AUTO(s3run) run = {.size_bytes = SHARD_BYTES, .key = "endless"};
    cairn_s3world_rules(&world,
                        "op=complete nth=1 : status=400/InvalidPart; op=parts : endless-list");
    EXPECT_FAILS(cairn_s3run_send(&world, &run), CAIRN_STORE, "does not end");
    EXPECT(cairn_s3world_acted(&world, 1) <= 5);
    EXPECT_EQ_U64(cairn_s3world_open_uploads(&world), 0);
}

TEST(s24_where_no_upload_is_listed_nothing_is_found_and_nothing_breaks) {
    WORLD(.profile = "minio");
    enum cairn_code code;
    PERFORMED(create, world.worker,
              {.op = CAIRN_STORE_UPLOAD_CREATE, .key = "deep/shard", .token = "t", .length = 1});
    EXPECT_EQ_U64(list_all(&world, CAIRN_STORE_UPLOADS, "deep/", &code), 0); /* by exact key only */
    EXPECT_EQ_U64(list_all(&world, CAIRN_STORE_UPLOADS, "deep/shard", &code), 1);
    cairn_s3world_rules(&world, "op=uploads : no-uploads-listed");
    EXPECT_EQ_U64(list_all(&world, CAIRN_STORE_UPLOADS, "deep/shard", &code), 0);
    EXPECT_CODE(code, CAIRN_OK);
}

/* ---- S27 ---- */

TEST(s27_deleting_what_is_gone_is_done_and_a_refused_key_fails_alone) {
    WORLD(0);
    REQUIRE_OK(cairn_s3world_put(&world, "a", CAIRN_VIEW("x")));
    REQUIRE_OK(cairn_s3world_put(&world, "b", CAIRN_VIEW("x")));
    EXPECT_CODE(cairn_store_delete(world.worker, "never", &err), CAIRN_OK);
    cairn_s3world_rules(&world, "op=delete key=*/a : status=403/AccessDenied; "
                                "op=delete nth=1 : status=404/NoSuchKey");
    EXPECT_CODE(cairn_store_delete(world.worker, "a", &err), CAIRN_FORBIDDEN);
    EXPECT_CODE(cairn_store_delete(world.worker, "b", &err), CAIRN_OK);
    cairn_s3world_rules(&world, "op=delete nth=1 : status=500/InternalError; "
                                "op=delete nth=2 : lose-reply");
    EXPECT_CODE(cairn_store_delete(world.worker, "b", &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_delete(world.worker, "a", &err), CAIRN_OK);
    struct cairn_s3world_object object;
    EXPECT(!cairn_s3world_object(&world, "a", &object));
    EXPECT(!cairn_s3world_object(&world, "b", &object));
}

TEST(s27_a_200_with_an_error_is_no_deletion) {
    WORLD(0);
    REQUIRE_OK(cairn_s3world_put(&world, "a", CAIRN_VIEW("x")));
    cairn_s3world_rules(&world, "op=delete : complete-200-error=AccessDenied");
    EXPECT_CODE(cairn_store_delete(world.worker, "a", &err), CAIRN_FORBIDDEN);
    cairn_s3world_rules(&world, "op=delete nth=1 : complete-200-error=InternalError");
    EXPECT_CODE(cairn_store_delete(world.worker, "a", &err), CAIRN_OK);
    struct cairn_s3world_object object;
    EXPECT(!cairn_s3world_object(&world, "a", &object));
}

/* ---- S29 ---- */

TEST(s29_a_huge_error_is_not_read_to_its_end) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=part nth=1 : huge-error=1024", "op=complete nth=1 : huge-error=1024",
                       "op=create nth=1 : huge-error=1024", "op=head nth=1 : huge-error=1024");
    char into[100], etag[128] = "";
    cairn_s3world_rules(&world, "op=get nth=1 : huge-error=1024");
    REQUIRE_OK(cairn_s3world_get(&world, "shard-0", 5, 100, into, etag));
    /* Of each a megabyte is read, and a few lie in the sockets' buffers. */
    EXPECT(cairn_s3world_counter(&world, "bytes_sent") < 60 * CAIRN_MIB);
}

/* A HEAD is answered with a body: what follows its head is not the next reply. */
TEST(s29_bytes_behind_a_reply_are_not_taken_for_the_next_one) {
    WORLD(0);
    CAIRN_AUTO(s3run) run = {.size_bytes = 1000};
    REQUIRE_OK(cairn_s3run_send(&world, &run));
    for (int i = 0; i < 10; i++) {
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = "shard"};
        cairn_s3world_rules(&world, "op=head nth=1 : huge-error=8");
        REQUIRE_OK(cairn_store_perform(world.worker, &head, &err));
        EXPECT_EQ_U64(head.object_bytes, 1000);
        EXPECT_EQ_TEXT(head.object_token, run.used_token);
    }
}

TEST(s29_documents_that_are_meant_to_hurt_are_refused) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=complete nth=1 : entity-bomb", "op=complete nth=1 : entity-bomb, apply",
                       "op=complete nth=1 : deep-xml=200000", "op=create nth=1 : entity-bomb",
                       "op=create nth=1 : deep-xml=200000",
                       "op=part nth=1 : status=500/InternalError, entity-bomb",
                       "op=part nth=1 : status=500/InternalError, deep-xml=100000");
}

TEST(s29_a_flood_of_1xx_answers_is_cut_off) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=part nth=1 : flood-1xx=100000", "op=complete nth=1 : flood-1xx=100000",
                       "op=head nth=1 : flood-1xx=5");
}

TEST(s29_gzip_is_not_undone_and_100_is_not_waited_for) {
    WORLD(0);
    ALL_BECOME_DURABLE("op=part nth=1 : gzip", "op=head : gzip", "op=* : no-continue");
    char into[100], etag[128] = "";
    cairn_s3world_rules(&world, "op=get : gzip");
    REQUIRE_OK(cairn_s3world_get(&world, "shard-0", 5, 100, into, etag));
}

/* ---- A04 ---- */

TEST(a04_no_key_token_or_signature_is_in_an_error_a_url_or_the_log) {
    WORLD(.token = true);
    CAIRN_AUTO(s3run) run = {.size_bytes = 1000};
    REQUIRE_OK(cairn_s3run_send(&world, &run));
    WITH_OK(buf, url, cairn_store_presign(world.store, "shard", 60, &url, NULL, &err));
    EXPECT(strstr(url.data, "X-Amz-Signature=") != NULL);
    struct cairn_http_options options = {.verbose_trace = true};
    struct cairn_http_engine *engine = NULL;
    REQUIRE_OK(cairn_http_engine_new(&options, &engine, &err));
    CAIRN_AUTO(buf) body = {0};
    struct cairn_http_request get = {.method = "GET", .url = url.data, .reply_buf = &body};
    REQUIRE_OK(cairn_http_perform(engine, &get, &err));
    EXPECT_ALL_U64((uint64_t)get.status, 200, body.size, 1000);
    cairn_s3world_rules(&world, "op=get : rst@h5");
    cairn_buf_clear(&body);
    EXPECT(cairn_http_perform(engine, &get, &err) != CAIRN_OK);
    EXPECT_HAS(err.message, "!Signature", "!X-Amz");
    cairn_http_engine_free(engine);
    /* A store that repeats what it was sent: its words reach an error. */
    cairn_s3world_rules(&world, "op=head|get : status=403/AccessDenied");
    EXPECT(cairn_s3run_send(&world, &run) != CAIRN_OK);
    EXPECT(!strstr(run.error.message, CAIRN_S3WORLD_SECRET));
    EXPECT(!strstr(run.error.message, CAIRN_S3WORLD_TOKEN));
} /* the log is read when the world ends */
