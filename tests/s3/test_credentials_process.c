/* SPDX-License-Identifier: Apache-2.0 */
/* credential_process: real programs that print keys or nonsense, hang, and leave others behind. */
#include "tests/support/key_stage.h"

#define err (stage.error)
#define JSON "{\"Version\":1,\"AccessKeyId\":\"ASIAP\",\"SecretAccessKey\":\"canary-secret\"}"

/* A profile "p" whose program is this command. */
static void set_command(const char *command) {
    setenv("AWS_CONFIG_FILE",
           cairn_stage_file("config", TEXT("[profile p]\ncredential_process = %s\n", command)), 1);
}
static const struct cairn_credentials_options named = {.profile = "p", .process_ms = 300000};

/* A shell script as the program, without arguments. */
static enum cairn_code run_script(struct cairn_stage *stage, const char *script) {
    const char *text = TEXT("#!/bin/sh\n%s\n", script);
    cairn_stage_clear();
    set_command(cairn_stage_program("program", text));
    return cairn_stage_get(stage, &named);
}

TEST(a_program_prints_keys_and_gets_its_words) {
    cairn_stage_clear();
    const char *program = cairn_stage_program(
        "my tool", "#!/bin/sh\n[ $# = 6 ] && [ \"$1\" = 'a b' ] && [ \"$2\" = 'c d' ] && "
                   "[ \"$3\" = \"e'f\" ] && [ \"$4\" = '' ] && [ \"$5\" = 'g\"h\\i' ] && "
                   "[ \"$6\" = '$HOME~*' ] || exit 9\n"
                   "printf '{\"Version\": 1, \"AccessKeyId\": \"ASIAP\", \"SecretAccessKey\": "
                   "\"p-secret\",\\n \"SessionToken\": \"p-token\", \"Expiration\": "
                   "\"2030-01-01T00:00:00Z\", \"Other\": [1]}\\n'\n");
    set_command(TEXT("\"%s\"  'a b' c\\ d \"e'f\" '' \"g\\\"h\\i\" $HOME~*", program));
    WITH_OK(stage, stage, cairn_stage_get(&stage, &named));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAP");
    EXPECT_EQ_TEXT(cairn_stage_secret(&stage), "p-secret");
    EXPECT_EQ_TEXT(cairn_stage_token(&stage), "p-token");
    char text[224];
    cairn_credentials_describe(&stage.keys, text);
    EXPECT_EQ_TEXT(text, "credential_process of profile p, until 2030-01-01T00:00:00Z");
}

TEST(keys_without_an_end_and_without_a_token_are_kept) {
    WITH_OK(stage, stage, run_script(&stage, "printf '%s' '" JSON "'"));
    EXPECT_EQ_TEXT(cairn_stage_token(&stage), "");
    EXPECT(stage.keys.expires_ms == 0);
}

/* What a program says is its secret: neither its output nor its errors are told or inherited. */
TEST(a_program_that_fails_is_named_without_what_it_said) { /* P16 */
    EACH(
        one, FIELDS(const char *script, *told; enum cairn_code code),
        {"echo canary >&2; exit 3", "status 3", CAIRN_UNAUTHORIZED},
        {"printf '%s' '" JSON "'; exit 1", "status 1", CAIRN_UNAUTHORIZED},
        {"kill -9 $$", "signal 9", CAIRN_UNAUTHORIZED}, {"exit 0", "no JSON", CAIRN_INVALID},
        {"echo canary is no document", "no JSON", CAIRN_INVALID},
        {"echo '{\"SecretAccessKey\": canary}'", "no JSON", CAIRN_INVALID},
        {"echo '{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"canary\"}'", "Version", CAIRN_INVALID},
        {"echo '{\"Version\":2,\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"canary\"}'", "version 2",
         CAIRN_UNSUPPORTED},
        {"echo '{\"Version\":1,\"SecretAccessKey\":\"canary\"}'", "AccessKeyId", CAIRN_INVALID},
        {"echo '{\"Version\":1,\"AccessKeyId\":\"a\"}'", "SecretAccessKey", CAIRN_INVALID},
        {"head -c 70000 /dev/zero | tr '\\0' ' '; printf '%s' '" JSON "'", "64 KiB",
         CAIRN_TOO_LARGE}) {
        CAIRN_AUTO(stage) stage = {0};
        EXPECT_CODE(run_script(&stage, one->script), one->code);
        if (!EXPECT(strstr(err.message, one->told)))
            fprintf(stderr, "%s: %s\n", one->script, err.message);
        EXPECT_HAS(err.message, "credential_process of profile \"p\"", "!canary");
    }
}

TEST(commands_that_name_nothing_are_refused) {
    EACH(one, FIELDS(const char *command; enum cairn_code code), {"/nowhere/at-all x", CAIRN_IO},
         {"\"open", CAIRN_INVALID}, {"'open x", CAIRN_INVALID}, {"\"\" x", CAIRN_INVALID}) {
        CAIRN_AUTO(stage) stage = {0};
        cairn_stage_clear();
        set_command(one->command);
        EXPECT_FAILS(cairn_stage_get(&stage, &named), one->code,
                     "credential_process of profile \"p\"");
    }
}

/* 0: it has not said so. */
static long process_of(const char *pid_file) {
    long pid = 0;
    FILE *file = fopen(TEXT("%s/%s", cairn_test_folder(), pid_file), "r");
    if (!file) return 0;
    bool is_number = fscanf(file, "%ld", &pid) == 1;
    fclose(file);
    return is_number ? pid : 0;
}

/* Whoever adopts it has to reap it. */
static bool has_ended(long pid) {
    char path[64], state[64] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (file) EXPECT(fscanf(file, "%*d %*s %8s", state) == 1 || !state[0]);
    if (file) fclose(file);
    return !file || !strcmp(state, "Z");
}

TEST(a_program_that_hangs_is_ended_with_all_that_it_started) { /* P9 */
    CAIRN_AUTO(stage) stage = {0};
    cairn_stage_clear();
    set_command(cairn_stage_program(
        "hang", "#!/bin/sh\ncd \"$HOME\"\nsleep 300 &\necho $! >child\necho $$ >self\nwait\n"));
    struct cairn_credentials_options options = {.profile = "p", .process_ms = 500};
    long self = 0, child = 0;
    while (self <= 1 && options.process_ms < HANG_MS) { /* a busy machine starts it late */
        uint64_t began = cairn_mono_ms();
        EXPECT_CODE(cairn_stage_get(&stage, &options), CAIRN_TIMEOUT);
        EXPECT(cairn_mono_ms() - began >= options.process_ms);
        self = process_of("self");
        child = process_of("child");
        options.process_ms *= 2;
    }
    REQUIRE(self > 1 && child > 1);
    AWAIT(has_ended(self));
    AWAIT(has_ended(child));
}

TEST(a_program_that_leaves_an_agent_behind_is_not_waited_for) {
    uint64_t began = cairn_mono_ms();
    WITH_OK(stage, stage,
            run_script(&stage, "sleep 300 &\necho $! >\"$HOME/agent\"\nprintf '%s' '" JSON "'"));
    EXPECT(cairn_mono_ms() - began < 60000);
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIAP");
    FILE *file = fopen(TEXT("%s/agent", cairn_test_folder()), "r");
    int pid = 0;
    REQUIRE(file && fscanf(file, "%d", &pid) == 1 && pid > 1);
    fclose(file);
    EXPECT(kill(pid, SIGKILL) == 0); /* it was left alone */
}

/* Lines of a file in the test's folder that hold this text. */
static unsigned lines_with(const char *name, const char *text) {
    char line[512];
    unsigned count = 0;
    FILE *file = fopen(TEXT("%s/%s", cairn_test_folder(), name), "r");
    EXPECT(file != NULL);
    while (file && fgets(line, sizeof line, file)) count += strstr(line, text) != NULL;
    if (file) fclose(file);
    return count;
}

TEST(a_program_inherits_nothing_of_ours) { /* R8 */
    CAIRN_AUTO(stage) stage = {0};
    for (int fd = 3; fd < 256; fd++) { /* what the test runner left open is not ours to judge */
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0) fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
    }
    CAIRN_AUTO_FD ours = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(ours >= 0);
    signal(SIGPIPE, SIG_IGN);
    REQUIRE_OK(run_script(&stage, "readlink /proc/$$/fd/* >\"$HOME/open\"\n"
                                  "(trap - PIPE; sh -c 'kill -PIPE $$'; kill -l $?) "
                                  ">\"$HOME/caught\" 2>&1\n"
                                  "printf '%s' '" JSON "'"));
    signal(SIGPIPE, SIG_DFL);
    EXPECT(lines_with("open", "/dev/null") >= 2); /* else the list is not what it seems */
    EXPECT(lines_with("open", "pipe:") <= 1);     /* its output */
    EXPECT_EQ_U64(lines_with("open", "socket:"), 0);
    EXPECT_EQ_U64(lines_with("caught", "PIPE"), 1);
}

TEST(a_program_is_asked_again_before_its_keys_end) { /* credentials.h#2 */
    struct cairn_clock_virtual clock;
    cairn_stage_clear();
    cairn_clock_virtual_init(&clock, CAIRN_STAGE_NOON);
    set_command(cairn_stage_program(
        "counts", "#!/bin/sh\necho x >>\"$HOME/count\"\nn=$(wc -l <\"$HOME/count\")\n"
                  "printf '{\"Version\":1,\"AccessKeyId\":\"ASIA%d\",\"SecretAccessKey\":\"s\","
                  "\"Expiration\":\"2030-01-01T1%d:00:00Z\"}' $n $((n + 2))\n"));
    struct cairn_credentials_options options = {.profile = "p", .clock = &clock.clock};
    WITH_OK(stage, stage, cairn_stage_get(&stage, &options));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA1");
    cairn_clock_virtual_advance(&clock, 50 * 60 * 1000);
    EXPECT(cairn_credentials_current(stage.provider, stage.keys.generation));
    cairn_clock_virtual_advance(&clock, 6 * 60 * 1000);
    REQUIRE_OK(cairn_credentials_get(stage.provider, 0, &stage.keys, &err));
    EXPECT_EQ_TEXT(stage.keys.access_key, "ASIA2");
}
