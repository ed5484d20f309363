/* SPDX-License-Identifier: Apache-2.0 */
/* profile.json: what is written is read again, what makes no sense is refused, and a setting is
 * stronger than what another process found under its own. */
#include "store/keys/profile.h"
#include "store/s3/probe.h"
#include "store/s3/s3.h"
#include "tests/harness.h"

struct cairn_rig {
    struct cairn_store *store;
    struct cairn_s3_store *s3;
};
static void cairn_rig_release(struct cairn_rig *rig) {
    if (rig->store) cairn_store_free(rig->store);
}
static bool open_rig(struct cairn_rig *rig, enum cairn_store_s3_checksum checksum) {
    struct cairn_error err = {0};
    struct cairn_store_s3_options s3 = {.endpoint = "https://s3.example.com", .checksum = checksum};
    struct cairn_store_options options = {.url = "s3://lab/prod", .s3 = &s3};
    enum cairn_code code = cairn_store_s3_open(&options, &rig->store, &err);
    rig->s3 = (struct cairn_s3_store *)rig->store;
    return cairn_test_check(code == CAIRN_OK, __FILE__, __LINE__, "open: %s", err.message);
}

static const struct cairn_s3_findings sample = {
    .endpoint = "https://s3.example.com",
    .region = "us-east-1",
    .addressing = "path",
    .by = "doctor",
    .tested_ms = INT64_C(1795169000000),
    .method = CAIRN_S3_CHECKSUM_CRC32C,
    .create_put = CAIRN_S3_HONOURED,
    .create_complete = true,
    .keeps_token = true,
    .lists_uploads = true,
    .lists_part_checksums = true,
    .part_bytes_min = 5 * CAIRN_MIB,
    .part_bytes_max = 5 * CAIRN_GIB,
    .part_count_max = 1000,
};

TEST(a_profile_is_read_as_it_was_written, err) {
    EACH_OF(enum cairn_store_s3_checksum, number, CAIRN_S3_CHECKSUM_AUTO, CAIRN_S3_CHECKSUM_CRC32C,
            CAIRN_S3_CHECKSUM_MD5, CAIRN_S3_CHECKSUM_NONE) {
        struct cairn_s3_findings there = sample, back = {0};
        there.method = number;
        there.create_put = (enum cairn_s3_condition)(AT_OF(number) % 3);
        WITH_OK(buf, text, cairn_s3_profile_encode(&there, &text, &err));
        REQUIRE_OK(cairn_s3_profile_decode(cairn_buf_view(&text), &back, &err));
        EXPECT_ALL_TEXT(back.endpoint, there.endpoint, back.by, "doctor");
        EXPECT_ALL_U64((uint64_t)back.tested_ms, (uint64_t)there.tested_ms, back.method,
                       there.method, back.create_put, there.create_put);
        EXPECT(back.lists_uploads && back.lists_part_checksums && back.create_complete);
        EXPECT_ALL_U64(back.part_count_max, 1000, back.part_bytes_max, 5 * CAIRN_GIB);
    }
}

/* The sample as text, with `old` replaced. */
static void edited(const char *old, const char *new, struct cairn_buf *ret) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {0};
    REQUIRE_OK(cairn_s3_profile_encode(&sample, &text, &err));
    const char *at = strstr(text.data, old);
    REQUIRE(at != NULL);
    REQUIRE_OK(cairn_buf_printf(ret, &err, "%.*s%s%s", (int)(at - text.data), text.data, new,
                                at + strlen(old)));
}

TEST(a_profile_that_makes_no_sense_is_refused) { /* P15a */
    EACH(one, FIELDS(const char *old, *new; enum cairn_code code),
         {"\"cairn_profile\":1", "\"cairn_profile\":2", CAIRN_UNSUPPORTED},
         {"\"cairn_profile\":1", "\"cairn_profile\":\"1\"", CAIRN_CORRUPT},
         {"\"cairn_profile\":1,", "", CAIRN_CORRUPT}, {"\"crc32c\"", "\"sha1\"", CAIRN_CORRUPT},
         {"\"honoured\"", "\"perhaps\"", CAIRN_CORRUPT},
         {"\"part_count_max\":1000", "\"part_count_max\":0", CAIRN_CORRUPT},
         {"\"part_count_max\":1000", "\"part_count_max\":10001", CAIRN_CORRUPT},
         {"\"part_bytes_min\":5242880", "\"part_bytes_min\":9000000000", CAIRN_CORRUPT},
         {"\"part_bytes_max\":5368709120", "\"part_bytes_max\":1", CAIRN_CORRUPT},
         {"\"tested_at\":\"20", "\"tested_at\":\"xx", CAIRN_CORRUPT},
         {"\"keeps_token\":true", "\"keeps_token\":1", CAIRN_CORRUPT}, {"}", "} ,", CAIRN_CORRUPT},
         {"\"region\"", "\"later_field\":[1],\"region\"", CAIRN_OK}) {
        CAIRN_AUTO(buf) text = {0};
        struct cairn_s3_findings back = {0};
        struct cairn_error err = {0};
        edited(one->old, one->new, &text);
        EXPECT_CODE(cairn_s3_profile_decode(cairn_buf_view(&text), &back, &err), one->code);
        EXPECT_EQ_U64(back.part_count_max, one->code ? 0 : 1000);
    }
}

TEST(what_a_profile_says_becomes_what_the_store_is_known_for) {
    WITH(rig, rig, open_rig(&rig, CAIRN_S3_CHECKSUM_AUTO));
    struct cairn_s3_findings findings = sample, now;
    const struct cairn_store_profile *profile = cairn_store_profile(rig.store);
    bool known = false;
    EXPECT(!profile->create_only_put && !profile->part_checksum);
    cairn_s3_profile_adopt(rig.s3, &findings, &known);
    EXPECT(known && profile->create_only_put && profile->part_checksum);
    EXPECT(profile->lists_part_checksums);
    EXPECT_EQ_U64(profile->part_count_max, 1000);
    EXPECT_EQ_TEXT(profile->note, "");
    cairn_s3_profile_take(rig.s3, &now);
    EXPECT_EQ_U64(now.method, CAIRN_S3_CHECKSUM_CRC32C);
    EXPECT_ALL_TEXT(now.endpoint, "https://s3.example.com", now.addressing, "path");
}

TEST(a_store_that_was_found_to_refuse_is_not_asked_again_and_that_is_told) { /* S21 */
    WITH(rig, rig, open_rig(&rig, CAIRN_S3_CHECKSUM_AUTO));
    struct cairn_s3_findings findings = sample, now;
    struct cairn_store_health health;
    bool known = false;
    findings.method = CAIRN_S3_CHECKSUM_MD5;
    findings.create_put = CAIRN_S3_REFUSED;
    cairn_store_health(rig.store, &health);
    EXPECT(!health.degraded);
    cairn_s3_profile_adopt(rig.s3, &findings, &known);
    EXPECT(known && cairn_store_profile(rig.store)->part_checksum);
    cairn_store_health(rig.store, &health);
    EXPECT(health.degraded);
    EXPECT(strstr(health.text, "Content-MD5") && strstr(health.text, "If-None-Match"));
    cairn_s3_profile_take(rig.s3, &now);
    EXPECT_ALL_U64(now.method, CAIRN_S3_CHECKSUM_MD5, now.create_put, CAIRN_S3_REFUSED);
}

TEST(a_setting_is_stronger_than_a_profile) {
    EACH(one, FIELDS(enum cairn_store_s3_checksum wanted, found; bool known, checked, listed),
         {CAIRN_S3_CHECKSUM_CRC32C, CAIRN_S3_CHECKSUM_CRC32C, true, true, true},
         {CAIRN_S3_CHECKSUM_CRC32C, CAIRN_S3_CHECKSUM_MD5, false, false, true},
         {CAIRN_S3_CHECKSUM_MD5, CAIRN_S3_CHECKSUM_MD5, true, true, false},
         {CAIRN_S3_CHECKSUM_NONE, CAIRN_S3_CHECKSUM_CRC32C, true, false, false},
         {CAIRN_S3_CHECKSUM_AUTO, CAIRN_S3_CHECKSUM_NONE, true, false, true},
         {CAIRN_S3_CHECKSUM_AUTO, CAIRN_S3_CHECKSUM_AUTO, false, false, true}) {
        WITH(rig, rig, open_rig(&rig, one->wanted));
        struct cairn_s3_findings findings = sample, now;
        bool known = !one->known;
        findings.method = one->found;
        cairn_s3_profile_adopt(rig.s3, &findings, &known);
        EXPECT(known == one->known);
        if (known) EXPECT(cairn_store_profile(rig.store)->part_checksum == one->checked);
        EXPECT(cairn_store_profile(rig.store)->lists_part_checksums == one->listed);
        /* Nor is what a setting asks for told to others as what the store does. */
        cairn_s3_profile_take(rig.s3, &now);
        if (one->wanted == CAIRN_S3_CHECKSUM_MD5 || one->wanted == CAIRN_S3_CHECKSUM_NONE)
            EXPECT_EQ_U64(now.method, CAIRN_S3_CHECKSUM_AUTO);
    }
}
