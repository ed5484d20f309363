/* SPDX-License-Identifier: Apache-2.0 */
/* config: where each value comes from, and how a wrong one is named. */

#include "common/config.h"
#include "tests/harness.h"

#define SETTINGS                                                                                   \
    CONFIG(TEXT, store, "", "0", "100", "Where bytes live.")                                       \
    CONFIG(SIZE, part_size, "64MiB", "5MiB", "5GiB", "Larger parts need fewer requests.")          \
    CONFIG(COUNT, parts_in_flight, "16", "1", "1024", "Raise until the link is full.")             \
    CONFIG(TIME, request_timeout, "30s", "100ms", "10min", "Lower finds a dead endpoint sooner.")  \
    CONFIG(BOOL, verify, "true", "", "", "Check every block that is served.")                      \
    CONFIG(FLAG, socket, "", "0", "20", "Where it listens.")

struct settings {
#define CONFIG(type, name, ...) CAIRN_CONFIG_FIELD_##type(name)
    SETTINGS
#undef CONFIG
};
static const struct cairn_config_row rows[] = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_CONFIG_ROW(settings, type, name, fallback, min, max, why)
    SETTINGS
#undef CONFIG
};
enum { STORE, PART_SIZE, PARTS_IN_FLIGHT, REQUEST_TIMEOUT, VERIFY, SOCKET };

static void clear_environment(void) {
    EACH_TEXT(text, "CAIRN_STORE", "CAIRN_PART_SIZE", "CAIRN_PARTS_IN_FLIGHT",
              "CAIRN_REQUEST_TIMEOUT", "CAIRN_VERIFY", "CAIRN_CONFIG")
        unsetenv(text);
}

#define WORLD                                                                                      \
    struct cairn_error err = {0};                                                                  \
    struct settings values = {0};                                                                  \
    CAIRN_AUTO(config) config = {0};                                                               \
    clear_environment();                                                                           \
    REQUIRE_OK(cairn_config_init(&config, rows, CAIRN_COUNT(rows), &values, &err))

static const char *file_with(const char *text) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/cairn.conf", cairn_test_folder());
    struct cairn_error err = {0};
    if (cairn_file_replace(path, cairn_view_of(text), 0600, &err) != CAIRN_OK) return NULL;
    return path;
}

static enum cairn_code flags_of(struct cairn_config *config, char **argv, int *used,
                                struct cairn_error *err) {
    int argc = 0;
    while (argv[argc]) argc++;
    return cairn_config_load(config, argc, argv, used, err);
}
#define FLAGS(...) ((char *[]){(char[]){"cairn"}, __VA_ARGS__, NULL})

TEST(defaults_are_parsed_like_user_input) { /* config.h#3 */
    WORLD;
    EXPECT_EQ_TEXT(values.store, "");
    EXPECT_ALL_U64(values.part_size_bytes, 64 * CAIRN_MIB, values.parts_in_flight, 16,
                   values.request_timeout_ms, 30000);
    EXPECT(values.verify);
    for (size_t i = 0; i < CAIRN_COUNT(rows); i++) EXPECT_EQ_TEXT(config.origins[i], "default");
}

TEST(a_default_outside_its_own_bounds_is_found_at_start, err) { /* config.h#3 */
    struct settings values = {0};
    struct cairn_config config = {0};
    struct cairn_config_row wrong = rows[PART_SIZE];
    wrong.fallback = "4MiB";
    EXPECT_CODE(cairn_config_init(&config, &wrong, 1, &values, &err), CAIRN_INVALID);
    wrong = rows[PART_SIZE];
    wrong.max = "5 GiB";
    EXPECT_CODE(cairn_config_init(&config, &wrong, 1, &values, &err), CAIRN_INVALID);
}

TEST(a_flag_wins_over_the_environment_which_wins_over_the_file) { /* config.h#2 */
    WORLD;
    char *file = (char *)(uintptr_t)file_with("# the site's file\n"
                                              "\n"
                                              "parts_in_flight = 1\n"
                                              "  part_size\t=  10MiB  \n"
                                              "request_timeout = 1s\n"
                                              "store = \" a = b # c \"\n");
    setenv("CAIRN_CONFIG", file, 1);
    setenv("CAIRN_PARTS_IN_FLIGHT", "2", 1);
    setenv("CAIRN_PART_SIZE", "20MiB", 1);
    int used = -1;
    char **argv = FLAGS((char[]){"--parts-in-flight"}, (char[]){"3"}, (char[]){"rest"});
    REQUIRE_OK(cairn_config_load(&config, 4, argv, &used, &err));
    EXPECT_ALL_U64((uint64_t)used, 2, values.parts_in_flight, 3, values.part_size_bytes,
                   20 * CAIRN_MIB, values.request_timeout_ms, 1000);
    EXPECT_ALL_TEXT(values.store, " a = b # c ", config.origins[PARTS_IN_FLIGHT], "flag",
                    config.origins[PART_SIZE], "environment", config.origins[VERIFY], "default");
    const char *line = TEXT("%s:5", file);
    size_t all = strlen(line), kept = strlen(config.origins[REQUEST_TIMEOUT]);
    EXPECT(all < kept || !strcmp(line + all - 12, config.origins[REQUEST_TIMEOUT] + kept - 12));
    clear_environment();
}

TEST(the_config_flag_wins_over_its_variable_and_stands_anywhere) {
    WORLD;
    char *file = (char *)(uintptr_t)file_with("parts_in_flight = 5\n");
    setenv("CAIRN_CONFIG", "/nonexistent", 1);
    char **argv = FLAGS((char[]){"--part-size=6MiB"}, (char[]){"--config"}, file);
    int used = 0;
    REQUIRE_OK(cairn_config_load(&config, 4, argv, &used, &err));
    EXPECT_ALL_U64(values.parts_in_flight, 5, values.part_size_bytes, 6 * CAIRN_MIB, (uint64_t)used,
                   3);
    EXPECT_CODE(cairn_config_load(&config, 1, argv, &used, &err), CAIRN_NOT_FOUND);
    clear_environment();
}

TEST(flags_of_both_spellings_and_booleans_are_taken_up_to_the_first_word) {
    WORLD;
    int used = 0;
    REQUIRE_OK(flags_of(&config,
                        FLAGS((char[]){"--no-verify"}, (char[]){"--store="},
                              (char[]){"--parts-in-flight=9"}, (char[]){"put"}, (char[]){"--x"}),
                        &used, &err));
    EXPECT_EQ_U64(used, 3);
    EXPECT(!values.verify);
    EXPECT_EQ_U64(values.parts_in_flight, 9);
    REQUIRE_OK(flags_of(&config, FLAGS((char[]){"--verify"}, (char[]){"--"}, (char[]){"--x"}),
                        &used, &err));
    EXPECT_EQ_U64(used, 2);
    EXPECT(values.verify);
    REQUIRE_OK(flags_of(&config, FLAGS((char[]){"--verify=no"}, (char[]){"-"}), &used, &err));
    EXPECT_EQ_U64(used, 1);
    EXPECT(!values.verify);
    REQUIRE_OK(flags_of(&config, FLAGS((char[]){"--store"}, (char[]){"--odd"}), &used, &err));
    EXPECT_EQ_TEXT(values.store, "--odd");
}

TEST(g01_wrong_flags_are_refused_with_a_hint) { /* config.h#1 */
    EACH(
        one, FIELDS(const char *flag, *message),
        {"--parts-size=6MiB", "unknown flag \"--parts-size=6MiB\"; did you mean \"--part-size\"?"},
        {"--part_size=6MiB", "unknown flag"}, {"--no-part-size", "unknown flag"},
        {"--no-verify=true", "unknown flag"}, {"-v", "unknown flag \"-v\""},
        {"--=1", "unknown flag"}, {"--frobnicate", "unknown flag \"--frobnicate\""},
        {"--part-size", "--part-size wants a value"},
        {"--part-size=4MiB", "setting part_size = \"4MiB\" (flag): wanted at least 5MiB"},
        {"--part-size=6GiB", "setting part_size = \"6GiB\" (flag): wanted at most 5GiB"},
        {"--parts-in-flight=1000000000", "setting parts_in_flight = \"1000000000\" (flag): wanted"},
        {"--parts-in-flight=-1", "setting parts_in_flight = \"-1\" (flag): "},
        {"--request-timeout=30", "setting request_timeout = \"30\" (flag): "},
        {"--verify=maybe", "setting verify = \"maybe\" (flag): wanted true, false"}) {
        WORLD;
        char *flag = TEXT("%s", one->flag);
        int used = 0;
        EXPECT_CODE(flags_of(&config, FLAGS(flag), &used, &err), CAIRN_INVALID);
        if (!EXPECT(strstr(err.message, one->message) == err.message))
            printf("    %s gave: %s\n", flag, err.message);
    }
}

TEST(g01_wrong_files_are_refused_with_file_and_line) { /* config.h#1 */
    EACH(
        one, FIELDS(const char *text, *message),
        {"part_size = 6MiB\npart_sise = 7MiB\n", ":2); did you mean \"part_size\"?"},
        {"part-size = 6MiB\n", ":1); did you mean \"part_size\"?"},
        {"nothing_like_it = 1\n", "unknown setting \"nothing_like_it\""},
        {"part_size\n", ":1: wanted `key = value`"},
        {"part_size = 6MiB # why\n", "part_size = \"6MiB # why\""},
        {"part_size = 6MiB\n\npart_size = 6MiB\n", ":3: part_size is given twice, first in line 1"},
        {"store = a\r\n", ":1: control byte 0x0d"},
        {"store = \"a\n", ":1: the closing quote is missing"},
        {"part_size =\n", "part_size = \"\""}) {
        WORLD;
        EXPECT_CODE(cairn_config_file(&config, file_with(one->text), &err), CAIRN_INVALID);
        if (!EXPECT(strstr(err.message, one->message) != NULL))
            printf("    case %zu gave: %s\n", AT(one), err.message);
    }
}

TEST(a_file_over_64_kib_is_refused) {
    WORLD;
    CAIRN_AUTO(buf) text = {0};
    while (text.size <= 64 * CAIRN_KIB)
        REQUIRE_OK(cairn_buf_append_text(&text, "# a line of comment\n", &err));
    EXPECT_CODE(cairn_config_file(&config, file_with(text.data), &err), CAIRN_TOO_LARGE);
}

TEST(a_wrong_variable_is_named) { /* config.h#1 */
    WORLD;
    setenv("CAIRN_PART_SIZE", "huge", 1);
    setenv("CAIRN_UNRELATED", "x", 1);
    EXPECT_CODE(cairn_config_environment(&config, &err), CAIRN_INVALID);
    EXPECT(strstr(err.message, "CAIRN_PART_SIZE: setting part_size = \"huge\"") == err.message);
    clear_environment();
    EXPECT_CODE(cairn_config_environment(&config, &err), CAIRN_OK);
    unsetenv("CAIRN_UNRELATED");
}

TEST(a_setting_whose_variable_is_another_program_s_is_set_by_flag_and_file_alone) {
    WORLD;
    setenv("CAIRN_SOCKET", "/run/of/a/trainer.sock", 1); /* too long for it, too */
    EXPECT_CODE(cairn_config_environment(&config, &err), CAIRN_OK);
    unsetenv("CAIRN_SOCKET");
    EXPECT_ALL_TEXT(values.socket, "", config.origins[SOCKET], "default");
    REQUIRE_OK(cairn_config_file(&config, file_with("socket = a.sock\n"), &err));
    EXPECT_EQ_TEXT(values.socket, "a.sock");
    char **argv = FLAGS((char[]){"--socket"}, (char[]){"b.sock"});
    REQUIRE_OK(flags_of(&config, argv, NULL, &err));
    EXPECT_EQ_TEXT(values.socket, "b.sock");
}

TEST(what_is_printed_is_a_file_that_gives_the_same_values) { /* config.h#2 */
    WORLD;
    REQUIRE_OK(cairn_config_set(&config, "part_size", "1.5GiB", "flag", &err));
    REQUIRE_OK(cairn_config_set(&config, "request_timeout", "1500ms", "environment", &err));
    REQUIRE_OK(cairn_config_set(&config, "store", "say \"hi\" ", "/etc/cairn.conf:3", &err));
    REQUIRE_OK(cairn_config_set(&config, "verify", "0", "flag", &err));
    WITH_OK(buf, text, cairn_config_print(&config, &text, &err));
    EXPECT_EQ_TEXT(text.data, "# from /etc/cairn.conf:3\nstore = \"say \"hi\" \"\n"
                              "# from flag\npart_size = 1536MiB\n"
                              "# from default\nparts_in_flight = 16\n"
                              "# from environment\nrequest_timeout = 1500ms\n"
                              "# from flag\nverify = false\n"
                              "# from default\nsocket = \"\"\n");
    struct settings again = {0};
    WITH_OK(config, second, cairn_config_init(&second, rows, CAIRN_COUNT(rows), &again, &err));
    REQUIRE_OK(cairn_config_file(&second, file_with(text.data), &err));
    EXPECT_EQ_U64(again.part_size_bytes, values.part_size_bytes);
    EXPECT_EQ_U64(again.request_timeout_ms, values.request_timeout_ms);
    EXPECT_EQ_TEXT(again.store, values.store);
    EXPECT_EQ_U64(again.verify, values.verify);
}

TEST(help_and_docs_come_from_the_table) {
    WORLD;
    WITH_OK(buf, help, cairn_config_help(&config, &help, &err));
    WITH_OK(buf, docs, cairn_config_docs(&config, &docs, &err));
    EXPECT_HAS(help.data,
               "--part-size SIZE\n        Larger parts need fewer requests. (default 64MiB; 5MiB "
               "to 5GiB)\n",
               "--[no-]verify\n");
    EXPECT(strstr(docs.data, "| `part_size` | `--part-size` | `CAIRN_PART_SIZE` | 64MiB | "
                             "5MiB to 5GiB | Larger parts need fewer requests. |\n") != NULL);
    EXPECT(strstr(docs.data, "| `socket` | `--socket` | none | none |") != NULL);
}

TEST(a_verb_is_taken_out_of_the_arguments_wherever_it_stands) {
    char **argv = FLAGS((char[]){"--store"}, (char[]){"x"}, (char[]){"--print-config"},
                        (char[]){"--"}, (char[]){"--help"});
    int argc = 6;
    EXPECT(!cairn_config_take(&argc, argv, "--help"));
    EXPECT(cairn_config_take(&argc, argv, "--print-config"));
    EXPECT_EQ_U64(argc, 5);
    EXPECT_EQ_TEXT(argv[3], "--");
    EXPECT(argv[5] == NULL);
}

TEST(text_with_control_bytes_or_over_its_bound_is_refused) {
    WORLD;
    EXPECT_CODE(cairn_config_set(&config, "store", "a\nb", "flag", &err), CAIRN_INVALID);
    char text[102];
    memset(text, 'a', 101);
    text[101] = '\0';
    EXPECT_FAILS(cairn_config_set(&config, "store", text, "flag", &err), CAIRN_INVALID,
                 "at most 100 bytes");
    EXPECT_CODE(cairn_config_set(&config, "store", text + 1, "flag", &err), CAIRN_OK);
}
