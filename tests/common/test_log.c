/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
#include "common/log.h"

#include "common/json.h"
#include "tests/harness.h"

/* The log goes into a file of the test's folder; what stands in it is given back as text. */
struct recorder {
    int fd;
    char path[300];
    char text[65536];
};

static bool recorder_start(struct recorder *recorder, enum cairn_log_level level) {
    snprintf(recorder->path, sizeof(recorder->path), "%s/log", cairn_test_folder());
    recorder->fd = open(recorder->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    cairn_log_start("test", level, recorder->fd);
    return recorder->fd >= 0;
}

static const char *recorder_stop(struct recorder *recorder) {
    cairn_log_start("test", CAIRN_LOG_ERROR, -1);
    ssize_t size = pread(recorder->fd, recorder->text, sizeof(recorder->text) - 1, 0);
    recorder->text[size > 0 ? size : 0] = '\0';
    close(recorder->fd);
    return recorder->text;
}

static struct recorder recorder;

TEST(a_line_is_time_level_event_and_pairs) { /* log.h#1 */
    REQUIRE(recorder_start(&recorder, CAIRN_LOG_INFO));
    cairn_log(INFO, "save.durable", "step=%d bytes=%d", 900, 17);
    const char *line = recorder_stop(&recorder);
    EXPECT_EQ_U64(strspn(line, "0123456789-T:.Z"), 24);
    EXPECT(line[4] == '-' && line[10] == 'T' && line[19] == '.' && line[23] == 'Z');
    EXPECT_EQ_TEXT(line + 24, " INFO save.durable step=900 bytes=17\n");
}

TEST(only_lines_of_the_chosen_level_are_written) {
    REQUIRE(recorder_start(&recorder, CAIRN_LOG_WARN));
    EXPECT(cairn_log_enabled(CAIRN_LOG_WARN) && !cairn_log_enabled(CAIRN_LOG_INFO));
    cairn_log(ERROR, "a", "k=%d", 1);
    cairn_log(WARN, "b", "k=%d", 2);
    cairn_log(INFO, "c", "k=%d", 3);
    cairn_log_write(CAIRN_LOG_DEBUG, "d", "k=%d", 4);
    const char *text = recorder_stop(&recorder);
    EXPECT_HAS(text, " ERROR a k=1\n", " WARN b k=2\n", "!k=3", "!k=4");
    EXPECT(!cairn_log_enabled(CAIRN_LOG_ERROR));
}

TEST(control_bytes_cannot_forge_a_line_or_move_a_terminal) { /* log.h#2 */
    REQUIRE(recorder_start(&recorder, CAIRN_LOG_INFO));
    cairn_log(INFO, "e", "cause=\"%s\"", "a\nb\rc\td\x1b[2J\x01\x7f\xc2\x9b!");
    cairn_log(INFO, "e", "cause=\"%s\"", "caf\xc3\xa9");
    cairn_log(INFO, "e", "cause=\"%s\"", "\xff\xc3");
    const char *text = recorder_stop(&recorder);
    EXPECT_HAS(text, "cause=\"a\\nb\\rc\\td\\x1b[2J\\x01\\x7f\\u009b!\"\n",
               "cause=\"caf\xc3\xa9\"\n", "cause=\"\\xff\\xc3\"\n");
}

TEST(no_value_ends_before_its_end) { /* log.h#2 */
    REQUIRE(recorder_start(&recorder, CAIRN_LOG_INFO));
    cairn_log(INFO, "e", "cause=\"%s\" n=%d", "a \"b\" level=ERROR", 3);
    cairn_log(INFO, "e", "cause=\"shard %s: %.3s\" n=%llu", "c:\\d", "e\"fgh", 7ull);
    cairn_log(INFO, "e", "path=%s node=%s left=%zu", "/a b\"\n=", "n-1", (size_t)5);
    cairn_log(INFO, "e", "run=%s/%s part=%.*s%%", "p", "r", 2, "abc");
    const char *text = recorder_stop(&recorder);
    EXPECT_HAS(text, " e cause=\"a \\\"b\\\" level=ERROR\" n=3\n",
               " e cause=\"shard c:\\\\d: e\\\"f\" n=7\n",
               " e path=\"/a b\\\"\\n=\" node=n-1 left=5\n", " e run=p/r part=ab%\n");
}

static size_t size_of_last_line(const char *text) {
    size_t size = strlen(text), start = size - 1;
    while (start > 0 && text[start - 1] != '\n') start--;
    return size - start;
}

TEST(a_long_line_is_cut_with_dots_at_2048_bytes) {
    static char value[3000];
    for (unsigned kind = 0; kind < 3; kind++) {
        static const char *const fillings[] = {"xxxx", "\n\n\n\n", "\xf0\x9f\x90\xa2"};
        for (size_t i = 0; i + 4 < sizeof(value); i += 4) memcpy(value + i, fillings[kind], 4);
        REQUIRE(recorder_start(&recorder, CAIRN_LOG_INFO));
        for (int pad = 0; pad < 5; pad++) cairn_log(INFO, "e", "v=%.*s%s", pad, "yyyy", value);
        const char *text = recorder_stop(&recorder);
        size_t size = size_of_last_line(text);
        EXPECT(size <= 2048 && size > 2030);
        EXPECT_EQ_TEXT(text + strlen(text) - 4, "...\n");
        EXPECT(cairn_utf8_valid(cairn_view_of(text))); /* no torn character ... */
        EXPECT(!strstr(text, "\\x"));                  /* ... at either cut */
        unlink(recorder.path);
    }
}

/* ---- as JSON ---- */

/* The lines that were written, each read as JSON. */
static json_t *recorder_stop_json(void) {
    char *text = (char *)(uintptr_t)recorder_stop(&recorder);
    json_t *lines = json_array();
    cairn_log_write_as(CAIRN_LOG_TEXT);
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1)
        json_array_append_new(lines, json_loadb(text, (size_t)(end - text), 0, NULL));
    return lines;
}

static const char *member(const json_t *lines, size_t at, const char *key) {
    return json_string_value(json_object_get(json_array_get(lines, at), key));
}

TEST(a_line_of_json_has_a_member_for_each_key_of_its_format) { /* log.h#4 */
    REQUIRE(recorder_start(&recorder, CAIRN_LOG_INFO));
    cairn_log_write_as(CAIRN_LOG_JSON);
    cairn_log(WARN, "save.late", "step=%d run=%s cause=\"%s\" left=%s", -900, "llm/7b",
              "no \"room\"", "0012");
    CAIRN_AUTO_JSON json_t *lines = recorder_stop_json();
    const json_t *line = json_array_get(lines, 0);
    EXPECT_ALL_U64(json_object_size(line), 7, strlen(member(lines, 0, "time")), 24);
    EXPECT_ALL_TEXT(member(lines, 0, "level"), "warn", member(lines, 0, "event"), "save.late");
    EXPECT(json_integer_value(json_object_get(line, "step")) == -900);
    EXPECT_ALL_TEXT(member(lines, 0, "run"), "llm/7b", member(lines, 0, "cause"), "no \"room\"");
    EXPECT_EQ_TEXT(member(lines, 0, "left"), "0012"); /* no number of JSON */
}

TEST(no_value_passes_for_a_key_and_any_bytes_stay_json) { /* log.h#4 */
    static const char *const values[] = {"a\" node=\"evil", "b node=evil", "\x1fnode=evil",
                                         "\xff\n\\\"", "caf\xc3\xa9"};
    REQUIRE(recorder_start(&recorder, CAIRN_LOG_INFO));
    cairn_log_write_as(CAIRN_LOG_JSON);
    for (size_t i = 0; i < CAIRN_COUNT(values); i++)
        cairn_log(INFO, "e", "cause=\"%s\" step=%d", values[i], 7);
    CAIRN_AUTO_JSON json_t *lines = recorder_stop_json();
    EXPECT_EQ_U64(json_array_size(lines), CAIRN_COUNT(values));
    for (size_t i = 0; i < CAIRN_COUNT(values); i++)
        EXPECT(!json_object_get(json_array_get(lines, i), "node"));
    EXPECT_ALL_TEXT(member(lines, 0, "cause"), values[0], member(lines, 1, "cause"), values[1],
                    member(lines, 2, "cause"), values[2], member(lines, 3, "cause"),
                    "\xc3\xbf\n\\\"", member(lines, 4, "cause"), values[4]);
}

TEST(a_long_line_of_json_is_cut_and_is_json_all_the_same) { /* log.h#4 */
    static char value[6000];
    EACH_TEXT(one, "xxxx", "\n\n\n\n", "\xf0\x9f\x90\xa2", "\"\"\"\"") {
        for (size_t size = 1900; size < sizeof(value); size += 333) {
            for (size_t i = 0; i + 4 < size; i += 4) memcpy(value + i, one, 4);
            value[size / 4 * 4 - 4] = '\0';
            REQUIRE(recorder_start(&recorder, CAIRN_LOG_INFO));
            cairn_log_write_as(CAIRN_LOG_JSON);
            cairn_log(INFO, "e", "first=%d cause=\"%s\" last=%d", 1, value, 2);
            CAIRN_AUTO_JSON json_t *lines = recorder_stop_json();
            EXPECT_EQ_U64(json_array_size(lines), 1);
            EXPECT_EQ_TEXT(member(lines, 0, "event"), "e");
            EXPECT(size_of_last_line(recorder.text) <= 4096);
            unlink(recorder.path);
        }
    }
}

TEST(a_format_of_a_log_is_text_or_json, err) {
    enum cairn_log_format format = CAIRN_LOG_TEXT;
    EXPECT(cairn_log_format_parse("json", &format, &err) == CAIRN_OK && format == CAIRN_LOG_JSON);
    EXPECT_FAILS(cairn_log_format_parse("yaml", &format, &err), CAIRN_INVALID, "text or json");
}

static void *write_many(void *argument) {
    for (unsigned i = 0; i < 100; i++) cairn_log(INFO, "t", "thread=%s tail=end", (char *)argument);
    return NULL;
}

TEST(lines_of_many_threads_are_never_torn) { /* log.h#1 */
    static char names[4][32];
    pthread_t threads[4];
    REQUIRE(recorder_start(&recorder, CAIRN_LOG_INFO));
    for (size_t i = 0; i < 4; i++) {
        memset(names[i], 'a' + (int)i, sizeof(names[i]) - 1);
        REQUIRE(pthread_create(&threads[i], NULL, write_many, names[i]) == 0);
    }
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    char *text = (char *)(uintptr_t)recorder_stop(&recorder);
    unsigned lines = 0;
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1, lines++) {
        *end = '\0';
        const char *name = strstr(text, "thread=");
        REQUIRE(name != NULL && name[7] >= 'a' && name[7] <= 'd');
        EXPECT_EQ_TEXT(text + 24, TEXT(" INFO t thread=%s tail=end", names[name[7] - 'a']));
    }
    EXPECT_EQ_U64(lines, 400);
}

static void log_into_a_closed_pipe(void *argument) {
    int ends[2];
    (void)argument;
    if (pipe(ends) != 0) abort();
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    cairn_log_start("test", CAIRN_LOG_INFO, ends[1]);
    cairn_log(INFO, "e", "k=%d", 1);
    cairn_log(INFO, "e", "k=%d", 2);
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE)) abort();
    fputs("went on\n", stderr);
}

TEST(a_reader_that_went_away_does_not_kill_the_program) { /* log.h#3 */
    char text[64];
    int status = cairn_test_in_child(log_into_a_closed_pipe, NULL, text, sizeof(text));
    EXPECT(WIFEXITED(status));
    EXPECT_EQ_TEXT(text, "went on\n");
}

TEST(a_full_pipe_that_does_not_block_loses_lines_and_not_the_program) { /* log.h#3 */
    int ends[2];
    REQUIRE(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    cairn_log_start("test", CAIRN_LOG_INFO, ends[1]);
    errno = EXDEV;
    for (unsigned i = 0; i < 5000; i++) cairn_log(INFO, "e", "filler=%040u", i);
    EXPECT_EQ_U64(errno, EXDEV); /* logging while failing must not change the cause */
    cairn_log_start("test", CAIRN_LOG_ERROR, -1);
    close(ends[0]);
    close(ends[1]);
}

TEST(levels_are_parsed_by_name, err) {
    enum cairn_log_level level = CAIRN_LOG_ERROR;
    REQUIRE_OK(cairn_log_level_parse("debug", &level, &err));
    EXPECT_EQ_U64(level, CAIRN_LOG_DEBUG);
    REQUIRE_OK(cairn_log_level_parse("warn", &level, &err));
    EXPECT_EQ_U64(level, CAIRN_LOG_WARN);
    EXPECT_CODE(cairn_log_level_parse("WARN", &level, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_log_level_parse("", &level, &err), CAIRN_INVALID);
    EXPECT_CODE(cairn_log_level_parse("warning", &level, &err), CAIRN_INVALID);
    EXPECT_EQ_U64(level, CAIRN_LOG_WARN);
}
