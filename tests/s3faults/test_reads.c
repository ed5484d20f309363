/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=s3 */
/* S13 (reads), S14-S18: ranges that come late, short, wrong, changed or not at all. */
#include <netinet/in.h>

#include "tests/s3faults/cases.h"
#include "tests/support/certificate.h"

#define OBJECT_BYTES (CAIRN_MIB)
#define RANGE_FROM 70001
#define RANGE_BYTES 300000
#define UNTOUCHED 0xa5

/* An object of pattern bytes under "read", and where a range of it goes. */
struct cairn_reading {
    uint8_t *bytes, *into;
    char etag[128];
};
static void cairn_reading_release(struct cairn_reading *reading) {
    free(reading->bytes);
    free(reading->into);
}

static bool make_object(struct cairn_s3world *world, struct cairn_reading *reading) {
    if (!reading->bytes) reading->bytes = malloc(OBJECT_BYTES);
    if (!reading->into) reading->into = malloc(RANGE_BYTES);
    cairn_s3world_pattern(reading->bytes, OBJECT_BYTES);
    return cairn_s3world_put(world, "read", (struct cairn_view){reading->bytes, OBJECT_BYTES}) ==
           CAIRN_OK;
}
#define READING                                                                                    \
    CAIRN_AUTO(reading) reading = {0};                                                             \
    REQUIRE(make_object(&world, &reading))

static enum cairn_code read_range(struct cairn_s3world *world, struct cairn_reading *reading,
                                  const char *rules) {
    cairn_s3world_rules(world, rules);
    memset(reading->into, UNTOUCHED, RANGE_BYTES);
    return cairn_s3world_get(world, "read", RANGE_FROM, RANGE_BYTES, reading->into, reading->etag);
}

/* Under each rule the range comes, and is right. */
static void all_read(struct cairn_s3world *world, const struct cairn_s3world_options *options,
                     struct cairn_reading *reading, const char *const *rules, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!EXPECT(cairn_s3world_open(world, options) == CAIRN_OK)) return;
        enum cairn_code code = read_range(world, reading, rules[i]);
        bool same = !memcmp(reading->into, reading->bytes + RANGE_FROM, RANGE_BYTES);
        if (!EXPECT(code == CAIRN_OK && same && cairn_s3world_acted(world, 0) >= 1))
            fprintf(stderr, "%s: %s, %s\n", rules[i], world->error.message,
                    same ? "same bytes" : "other bytes");
    }
}
#define ALL_READ(...)                                                                              \
    all_read(&world, &world_options, &reading, (const char *const[]){__VA_ARGS__},                 \
             CAIRN_COUNT(((const char *const[]){__VA_ARGS__})))

static bool is_untouched(const struct cairn_reading *reading) {
    for (size_t i = 0; i < RANGE_BYTES; i++)
        if (reading->into[i] != UNTOUCHED) return false;
    return true;
}

TEST(s14_a_stall_ends_at_its_timeout_and_the_rest_goes_on) {
    WORLD(.s3 = {.stall_ms = 300});
    ALL_BECOME_DURABLE("op=part nth=2 : req-stall@0", "op=part nth=1 : req-stall@50%",
                       "op=part nth=3 : stall@h0", "op=part nth=1 : stall@h-1",
                       "op=complete nth=1 : stall@50%", "op=head nth=1 : stall@h0",
                       "op=connect nth=1 : stall@0");
    READING;
    ALL_READ("op=get nth=1 : stall@h0", "op=get nth=1 : stall@0", "op=get nth=1 : stall@50%",
             "op=get nth=1 : stall@-1");
}

/* A small receive buffer, so that what is handed over moves on about as slowly as it arrives. The
 * last 5 MiB may lie in the sender's buffers: they take less than the stall time. */
TEST(s14_a_slow_link_that_is_alive_is_not_killed) {
    WORLD(.receive_buffer = "64KiB", .s3 = {.stall_ms = 900});
    CAIRN_AUTO(s3run) run = {.size_bytes = 17 * CAIRN_MIB, .part_bytes = 16 * CAIRN_MIB};
    cairn_s3world_rules(&world, "op=part part=1 : req-slow=8000000");
    uint64_t began = cairn_mono_ms();
    REQUIRE_OK(cairn_s3run_send(&world, &run));
    EXPECT(cairn_mono_ms() - began > 1800);
    EXPECT(cairn_s3run_is_whole(&world, &run));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_part"), 2);
    READING;
    ALL_READ("op=get : slow=250000");
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_get"), 1);
}

TEST(s14_a_stalled_handshake_is_given_up_and_made_anew) {
    struct cairn_certificate tls;
    cairn_certificate_make("good", "IP:127.0.0.1", -3600, 3600, &tls);
    WORLD(.tls_certificate = tls.certificate, .tls_key = tls.key,
          .s3 = {.ca_bundle = tls.certificate, .stall_ms = 400, .connect_ms = 400});
    CAIRN_AUTO(s3run) run = {.size_bytes = 1000};
    cairn_s3world_rules(&world, "op=connect nth=1 : stall@1");
    REQUIRE_OK(cairn_s3run_send(&world, &run));
    cairn_s3world_rules(&world, "");
    EXPECT(cairn_s3run_is_whole(&world, &run));
}

/* A port whose queue of connections is full: SYNs are left without an answer. */
TEST(s14_a_connection_that_is_never_made_is_given_up) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fillers[8];
    REQUIRE(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 0) == 0);
    REQUIRE(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    for (size_t i = 0; i < CAIRN_COUNT(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)!connect(fillers[i], (struct sockaddr *)&address, size);
    }
    WORLD(.s3 = {.endpoint = TEXT("http://127.0.0.1:%u", ntohs(address.sin_port)),
                 .connect_ms = 200,
                 .deadline_ms = 1000});
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = "k"};
    uint64_t began = cairn_mono_ms();
    EXPECT_CODE(cairn_store_perform(world.worker, &head, &err), CAIRN_TIMEOUT);
    EXPECT(cairn_mono_ms() - began < 60000); /* a kernel tries for two minutes */
    for (size_t i = 0; i < CAIRN_COUNT(fillers); i++) close(fillers[i]);
    close(listener);
}

TEST(s15_a_clean_end_before_the_last_byte_is_a_short_read_and_tried_again) {
    WORLD(0);
    READING;
    ALL_READ("op=get nth=1 : drop-header=Content-Length, fin@50%",
             "op=get nth=1 : drop-header=Content-Length, fin@0",
             "op=get nth=1 : drop-header=Content-Length, fin@-1",
             "op=get nth=1 : drop-header=Content-Length, truncate@10");
    REQUIRE_OK(cairn_s3world_open(&world, &world_options));
    ALL_READ("op=get : drop-header=Content-Length"); /* without a length, but whole */
}

TEST(s16_another_range_than_asked_for_never_reaches_the_destination) {
    WORLD(.s3 = {.deadline_ms = 300});
    struct cairn_s3world_options patient = {0};
    READING;
    EACH_TEXT(text, "ignore-range", "wrong-range", "multipart-range", "short-length=1",
              "long-body=1", "header=Content-Range:bytes 0-9/10",
              "header=Content-Range:bytes 70001-370000/*", "drop-header=Content-Range",
              "header=Content-Range:bytes 70001-370001/1048576") {
        char once[200];
        const char *rules = once;
        const char *always = TEXT("op=get : %s", text);
        snprintf(once, sizeof once, "op=get nth=1 : %s", text);
        REQUIRE_OK(cairn_s3world_open(&world, &world_options));
        EXPECT(read_range(&world, &reading, always) != CAIRN_OK);
        if (!EXPECT(is_untouched(&reading))) fprintf(stderr, "%s\n", text);
        all_read(&world, &patient, &reading, &rules, 1);
    }
}

TEST(s17_a_flipped_byte_is_the_callers_to_find_and_a_second_read_is_good) {
    WORLD(0);
    READING;
    REQUIRE_OK(read_range(&world, &reading, "op=get nth=1 : flip@1000"));
    EXPECT(memcmp(reading.into, reading.bytes + RANGE_FROM, RANGE_BYTES) != 0);
    REQUIRE_OK(
        cairn_s3world_get(&world, "read", RANGE_FROM, RANGE_BYTES, reading.into, reading.etag));
    EXPECT(!memcmp(reading.into, reading.bytes + RANGE_FROM, RANGE_BYTES));
}

TEST(s17_an_object_that_was_replaced_between_two_ranges_is_not_mixed) {
    WORLD(0);
    READING;
    REQUIRE_OK(read_range(&world, &reading, ""));
    EXPECT(reading.etag[0]);
    reading.bytes[0] ^= 1;
    REQUIRE_OK(cairn_s3world_put(&world, "read", (struct cairn_view){reading.bytes, OBJECT_BYTES}));
    EXPECT_CODE(read_range(&world, &reading, ""), CAIRN_PRECONDITION);
    EXPECT(is_untouched(&reading));
}

TEST(s17_a_range_with_another_etag_is_refused) { /* its reader asks once more: store/range.h */
    WORLD(0);
    READING;
    REQUIRE_OK(read_range(&world, &reading, ""));
    EXPECT_CODE(read_range(&world, &reading, "op=get nth=1 : header=ETag:\"of another\""),
                CAIRN_PRECONDITION);
    EXPECT(is_untouched(&reading));
    EXPECT_EQ_U64(err.http_status, 206);
}

TEST(s18_what_is_missing_or_forbidden_is_said_at_once) {
    WORLD(0);
    READING;
    EXPECT_FAILS(read_range(&world, &reading, "op=get : drop-object"), CAIRN_NOT_FOUND,
                 "NoSuchKey");
    EXPECT(err.request_id[0]);
    REQUIRE(make_object(&world, &reading));
    EXPECT_CODE(read_range(&world, &reading, "op=get : status=403/AccessDenied"), CAIRN_FORBIDDEN);
    EXPECT(is_untouched(&reading));
    EXPECT_EQ_U64(cairn_s3world_counter(&world, "op_get"), 2);
}
