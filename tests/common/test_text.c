/* SPDX-License-Identifier: Apache-2.0 */

#include <ctype.h>
#include <float.h>
#include <math.h>

#include "tests/harness.h"

TEST(whole_numbers_up_to_2_63_minus_1_are_taken, err) {
    EACH(one, FIELDS(const char *text; uint64_t value), {"0", 0}, {"12", 12}, {"000000000900", 900},
         {"9223372036854775807", INT64_MAX}) {
        uint64_t value = 77;
        REQUIRE_OK(cairn_parse_u64(cairn_view_of(one->text), &value, &err));
        EXPECT_EQ_U64(value, one->value);
    }
}

TEST(anything_else_is_no_number_and_leaves_the_result_alone, err) { /* text.h#1, text.h#2 */
    EACH_TEXT(one, "", " ", " 1", "1 ", "-1", "-0", "+1", "1e3", "1e400", "1.0", "\"12\"", "0x10",
              "1,000", "1_0", "\t1", "1\n", "NaN", "inf", "1a", "9223372036854775808",
              "18446744073709551615", "18446744073709551616",
              "99999999999999999999999999999999999999") {
        uint64_t value = 77;
        EXPECT_CODE(cairn_parse_u64(cairn_view_of(one), &value, &err), CAIRN_INVALID);
        EXPECT_EQ_U64(value, 77);
    }
    uint64_t value = 77;
    EXPECT_CODE(cairn_parse_u64((struct cairn_view){"1\0", 2}, &value, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_parse_u64((struct cairn_view){NULL, 0}, &value, &err), CAIRN_INVALID);
    REQUIRE_OK(cairn_parse_u64((struct cairn_view){"123", 2}, &value, &err));
    EXPECT_EQ_U64(value, 12);
}

TEST(one_thing_is_no_plural) {
    EXPECT_EQ_TEXT(cairn_counted(1, "rank").text, "1 rank");
    EXPECT_EQ_TEXT(cairn_counted(0, "rank").text, "0 ranks");
    EXPECT_EQ_TEXT(cairn_counted(UINT64_MAX, "shard").text, "18446744073709551615 shards");
}

TEST(sizes_take_binary_and_decimal_units, err) {
    EACH(one, FIELDS(const char *text; uint64_t value), {"0", 0}, {"4096", 4096}, {"512B", 512},
         {"1KiB", 1024}, {"64MiB", 64 * CAIRN_MIB}, {"1.5GiB", 3 * CAIRN_GIB / 2},
         {"0.000001TiB", 1099511}, {"2TiB", UINT64_C(2) << 40}, {"1KB", 1000}, {"2.25MB", 2250000},
         {"3GB", 3000000000}, {"4TB", 4000000000000}, {"8388607TiB", UINT64_C(8388607) << 40},
         {"9223372036854775807", INT64_MAX}) {
        uint64_t value = 77;
        REQUIRE_OK(cairn_parse_size(cairn_view_of(one->text), &value, &err));
        EXPECT_EQ_U64(value, one->value);
    }
}

TEST(what_is_no_size_is_refused, err) { /* text.h#1, text.h#2 */
    EACH_TEXT(one, "", "MiB", "1.5", "1.MiB", ".5MiB", "1 MiB", "1MiB ", "-1MiB", "1mib", "1M",
              "1PiB", "1.5B5", "1.0000001GiB", "8388608TiB", "1e3", "1..5GiB", "1.5.5GiB",
              "9223372036854775808", "16777216TiB", "99999999999999999999KiB") {
        uint64_t value = 77;
        EXPECT_CODE(cairn_parse_size(cairn_view_of(one), &value, &err), CAIRN_INVALID);
        EXPECT_EQ_U64(value, 77);
    }
}

TEST(durations_need_a_unit, err) {
    EACH(one, FIELDS(const char *text; uint64_t value), {"250ms", 250}, {"0s", 0}, {"30s", 30000},
         {"1.5s", 1500}, {"10min", 600000}, {"24h", 86400000}, {"7d", 604800000},
         {"0.25h", 900000}) {
        uint64_t value = 77;
        REQUIRE_OK(cairn_parse_duration(cairn_view_of(one->text), &value, &err));
        EXPECT_EQ_U64(value, one->value);
    }
    EACH_TEXT(name, "", "0", "30", "30S", "30 s", "s", "-1s", "1m", "1w", "1.5", "0.5ms", "0.0001s",
              "1h30min", "106751991168d") {
        uint64_t value = 77;
        EXPECT_CODE(cairn_parse_duration(cairn_view_of(name), &value, &err), CAIRN_INVALID);
        EXPECT_EQ_U64(value, 77);
    }
}

TEST(a_wrong_text_is_quoted_but_not_whole, err) {
    char text[1000];
    uint64_t value;
    memset(text, 'z', sizeof(text));
    EXPECT_CODE(cairn_parse_size((struct cairn_view){text, sizeof(text)}, &value, &err),
                CAIRN_INVALID);
    EXPECT(strlen(err.message) < 200);
    EXPECT_FAILS(cairn_parse_size(CAIRN_VIEW("64 MB"), &value, &err), CAIRN_INVALID, "\"64 MB\"");
}

TEST(sizes_are_printed_with_one_decimal) {
    EACH(one, FIELDS(uint64_t bytes; const char *text), {0, "0 B"}, {512, "512 B"},
         {1023, "1023 B"}, {1024, "1.0 KiB"}, {1536, "1.5 KiB"}, {1048525, "1.0 MiB"},
         {1048524, "1023.9 KiB"}, {12992276070, "12.1 GiB"}, {UINT64_C(1) << 60, "1.0 EiB"},
         {UINT64_MAX, "16.0 EiB"}) {
        char text[24];
        cairn_size_text(one->bytes, text);
        EXPECT_EQ_TEXT(text, one->text);
    }
}

TEST(durations_are_printed_in_two_units_at_most) {
    EACH(one, FIELDS(uint64_t ms; const char *text), {0, "0.00s"}, {4, "0.00s"}, {414, "0.41s"},
         {59994, "59.99s"}, {59995, "1m00s"}, {125000, "2m05s"}, {3599499, "59m59s"},
         {3599500, "1h00m"}, {11520000, "3h12m"}, {360000000, "100h00m"},
         {UINT64_MAX, "5124095576030h26m"}) {
        char text[24];
        cairn_duration_text(one->ms, text);
        EXPECT_EQ_TEXT(text, one->text);
    }
}

TEST(a_copy_that_is_cut_says_so_and_is_still_text) {
    char to[6] = "zzzzz";
    EXPECT(cairn_text_copy(to, sizeof(to), "12345"));
    EXPECT_EQ_TEXT(to, "12345");
    EXPECT(!cairn_text_copy(to, sizeof(to), "123456"));
    EXPECT_EQ_TEXT(to, "12345");
    EXPECT(!cairn_text_copy(to, 0, ""));
    EXPECT(cairn_text_copy(to, 1, ""));
    EXPECT_EQ_TEXT(to, "");
    EXPECT(cairn_text_starts("run-7", "run-") && cairn_text_starts("x", ""));
    EXPECT(!cairn_text_starts("ru", "run-"));
}

TEST(trimmed_text_has_no_blank_in_front_and_no_white_space_behind_and_keeps_what_is_within) {
    EACH(one, FIELDS(const char *text, *left), {"", ""}, {" \t ", ""}, {"a", "a"},
         {"  a b\t", "a b"}, {"\tkey\r\n", "key"}, {"\na ", "\na"}) {
        char text[16];
        struct cairn_view view = cairn_text_trimmed(cairn_view_of(one->text));
        EXPECT_EQ_U64(view.size, strlen(one->left));
        EXPECT(!memcmp(view.data, one->left, view.size));
        REQUIRE(cairn_text_copy(text, sizeof text, one->text));
        EXPECT_EQ_TEXT(cairn_text_trim(text), one->left);
    }
}

TEST(sizes_of_powers_of_ten_are_rounded_to_their_next_unit_too) {
    EACH(one, FIELDS(uint64_t bytes; const char *text), {0, "0 B"}, {999, "999 B"},
         {1000, "1.0 kB"}, {1049, "1.0 kB"}, {1050, "1.1 kB"}, {999949, "999.9 kB"},
         {999950, "1.0 MB"}, {1610612736, "1.6 GB"}, {UINT64_MAX, "18.4 EB"}) {
        char text[24];
        cairn_size_text_si(one->bytes, text);
        EXPECT_EQ_TEXT(text, one->text);
    }
}

/* Significant ones. */
static int digits_of(const char *text) {
    int count = 0, zeros = 0;
    for (; *text && *text != 'e'; text++) {
        if (!isdigit((unsigned char)*text) || (*text == '0' && !count)) continue;
        count++;
        zeros = *text == '0' ? zeros + 1 : 0;
    }
    return count - zeros;
}

static double any_double(uint64_t *state) {
    double value;
    do {
        uint64_t bits = cairn_test_random(state), kind = cairn_test_random(state) % 4;
        if (kind == 0) bits &= UINT64_C(0x801fffffffffffff); /* the smallest */
        memcpy(&value, &bits, sizeof value);
        if (kind == 1) value = (double)(int64_t)bits / 1e4; /* as people write them */
        if (kind == 2) value = (double)(bits % 1000000) / 1e6;
    } while (!isfinite(value));
    return value;
}

TEST(a_real_is_printed_in_the_fewest_digits_that_read_back) {
    uint64_t state = cairn_test_seed();
    for (int i = 0; i < 100000; i++) {
        double value = any_double(&state);
        struct cairn_real real = cairn_real(value);
        char *end = NULL, fewer[40];
        double back = strtod(real.text, &end);
        int digits = digits_of(real.text);
        bool same = !*end && memcmp(&back, &value, sizeof value) == 0;
        snprintf(fewer, sizeof fewer, "%.*e", digits > 1 ? digits - 2 : 0, value);
        if (same && digits <= DBL_DECIMAL_DIG && (digits < 2 || strtod(fewer, NULL) != value))
            continue;
        EXPECT_ALL_TEXT(real.text, "", real.text, fewer);
        return;
    }
}

TEST(reals_are_printed_as_people_write_them) {
    EACH(one, FIELDS(double value; const char *text), {0.1, "0.1"},
         {0.1 + 0.2, "0.30000000000000004"}, {1.931, "1.931"}, {3, "3"}, {0, "0"}, {-0.0, "-0"},
         {100000, "100000"}, {1e-5, "1e-5"}, {1e23, "1e23"}, {1e300, "1e300"}, {2.5e-10, "2.5e-10"},
         {5e-324, "5e-324"}, {DBL_MIN, "2.2250738585072014e-308"},
         {DBL_MAX, "1.7976931348623157e308"}, {NAN, "nan"}, {-INFINITY, "-inf"})
        EXPECT_EQ_TEXT(cairn_real(one->value).text, one->text);
}
