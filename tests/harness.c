/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUnit keeps the registry and the counts; what it cannot do (skip, choose by file, remove folders,
 * name the seed) stands here. Only the standard library is used, so that a test of the lowest part
 * does not rest on that part.
 */
#include "tests/harness.h"

#include <CUnit/CUnit.h>
#include <CUnit/TestDB.h>
#include <CUnit/TestRun.h>
#include <ftw.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/resource.h>

#include "tests/reports.h"

#define TESTS_MAX 1024
#define LOG_SHOWN_BYTES 2000
#define EXIT_SKIPPED 77 /* CTest shows it as skipped */

struct test {
    char module[96]; /* "part/module" */
    const char *name;
    cairn_test_function *function;
};

static struct test tests[TESTS_MAX];
static size_t test_count;

/* What cairn_test_text made for the test that runs. */
struct text {
    struct text *next;
    char bytes[];
};

static pthread_mutex_t text_lock = PTHREAD_MUTEX_INITIALIZER;
static struct text *texts;

/* What happens now, for the handlers that CUnit calls without context. */
static struct {
    pthread_t main_thread;
    pid_t main_process;
    char folder[256];
    char *skipped; /* why; its text may be of the test, which is over when it is told */
    double started;
    unsigned ran, skips, reported;
    uint64_t seed;
    bool seeded;
} run;

/* tests/<part>/test_<module>.c becomes <part>/<module>. */
static void module_of_file(const char *file, char *ret_module, size_t capacity) {
    const char *base = strrchr(file, '/');
    base = base ? base + 1 : file;
    const char *part = base;
    if (part > file) {
        part--;
        while (part > file && part[-1] != '/') part--;
    }
    int part_size = base > part ? (int)(base - part - 1) : 0;
    if (!strncmp(base, "test_", 5)) base += 5;
    snprintf(ret_module, capacity, "%.*s/%.*s", part_size, part, (int)strcspn(base, "."), base);
}

void cairn_test_register(const char *file, const char *name, cairn_test_function *function) {
    if (test_count == TESTS_MAX) {
        fprintf(stderr, "more than %d tests in one program\n", TESTS_MAX);
        abort();
    }
    struct test *test = &tests[test_count++];
    module_of_file(file, test->module, sizeof(test->module));
    test->name = name;
    test->function = function;
}

bool cairn_test_check(bool ok, const char *file, int line, const char *format, ...) {
    char text[1024] = "";
    if (!ok) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        fflush(stdout);
        fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
    }
    if (getpid() != run.main_process) return ok; /* a child tells by its exit status */
    if (!pthread_equal(pthread_self(), run.main_thread)) {
        fprintf(stderr, "%s:%d: checks run on the main thread only\n", file, line);
        abort();
    }
    CU_assertImplementation(ok, (unsigned)line, text, file, "", CU_FALSE);
    return ok;
}

uint64_t cairn_test_seed(void) {
    if (!run.seeded) {
        const char *text = getenv("CAIRN_TEST_SEED");
        if (text && *text) {
            run.seed = strtoull(text, NULL, 0);
        } else if (getrandom(&run.seed, sizeof(run.seed), 0) != sizeof(run.seed)) {
            run.seed = (uint64_t)time(NULL);
        }
        run.seeded = true;
    }
    return run.seed;
}

uint64_t cairn_test_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

const char *cairn_test_tree(void) {
    static char tree[1024];
    if (tree[0]) return tree;
    const char *given = getenv("CAIRN_SOURCE_DIR");
    ssize_t size = readlink("/proc/self/exe", tree, sizeof tree - 32);
    if (given && *given) {
        snprintf(tree, sizeof tree, "%s", given);
        return tree;
    }
    tree[size < 0 ? 0 : size] = '\0';
    for (char *slash; (slash = strrchr(tree, '/'));) {
        *slash = '\0';
        char page[sizeof tree + 32];
        snprintf(page, sizeof page, "%s/api/openapi.yaml", tree);
        if (access(page, R_OK) == 0) return tree;
    }
    fprintf(stderr, "the source tree is not above this program: set CAIRN_SOURCE_DIR\n");
    abort();
}

const char *cairn_test_file(const char *path) {
    static char full[2048];
    snprintf(full, sizeof full, "%s/%s", cairn_test_tree(), path);
    return full;
}

char *cairn_test_text(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    struct text *text = malloc(sizeof(*text) + (size_t)size + 1);
    if (!text) abort();
    va_start(arguments, format);
    vsnprintf(text->bytes, (size_t)size + 1, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&text_lock);
    text->next = texts;
    texts = text;
    pthread_mutex_unlock(&text_lock);
    return text->bytes;
}

static void forget_texts(void) {
    while (texts) {
        struct text *next = texts->next;
        free(texts);
        texts = next;
    }
}

const char *cairn_test_folder(void) {
    if (!run.folder[0]) {
        const char *parent = getenv("TMPDIR");
        snprintf(run.folder, sizeof(run.folder), "%s/cairn-test-XXXXXX",
                 parent && *parent ? parent : "/tmp");
        if (!mkdtemp(run.folder)) {
            perror(run.folder);
            abort();
        }
    }
    return run.folder;
}

static int remove_entry(const char *path, const struct stat *entry, int kind, struct FTW *place) {
    (void)entry;
    (void)kind;
    (void)place;
    if (remove(path) != 0) fprintf(stderr, "%s stays: %s\n", path, strerror(errno));
    return 0;
}

/* The end of each log of a daemon that this test started. */
static int show_log(const char *path, const struct stat *entry, int kind, struct FTW *place) {
    (void)place;
    size_t size = strlen(path);
    if (kind != FTW_F || size < 4 || strcmp(path + size - 4, ".log") != 0) return 0;
    FILE *file = fopen(path, "re");
    char text[LOG_SHOWN_BYTES + 1];
    if (!file) return 0;
    if (entry->st_size > LOG_SHOWN_BYTES) fseek(file, -LOG_SHOWN_BYTES, SEEK_END);
    text[fread(text, 1, LOG_SHOWN_BYTES, file)] = '\0';
    fclose(file);
    printf("--- the end of %s\n%s\n", path, text);
    return 0;
}

static void show_logs(void) {
    if (run.folder[0]) nftw(run.folder, show_log, 16, FTW_PHYS | FTW_MOUNT);
}

static void remove_folder(void) {
    if (run.folder[0]) nftw(run.folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    run.folder[0] = '\0';
}

void cairn_test_skip(const char *why) {
    free(run.skipped);
    run.skipped = strdup(why);
}

static _Noreturn void be_child(void (*function)(void *argument), void *argument, int fd) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* it may be meant to abort */
    dup2(fd, STDERR_FILENO);
    function(argument);
    fflush(NULL);
    _exit(0);
}

int cairn_test_in_child(void (*function)(void *argument), void *argument, char *ret_text,
                        size_t capacity) {
    int ends[2];
    if (pipe(ends) != 0) abort();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        close(ends[0]);
        be_child(function, argument, ends[1]);
    }
    close(ends[1]);
    size_t size = 0;
    char piece[512];
    for (ssize_t got; (got = read(ends[0], piece, sizeof(piece))) > 0;) {
        size_t room = ret_text ? capacity - 1 - size : 0;
        size_t kept = (size_t)got < room ? (size_t)got : room;
        if (kept) memcpy(ret_text + size, piece, kept);
        size += kept;
    }
    if (ret_text) ret_text[size] = '\0';
    close(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

uint64_t cairn_test_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t cairn_test_hang_ms(void) {
    const char *chosen = getenv("CAIRN_TEST_WAIT_S");
    return chosen ? 1000 * strtoull(chosen, NULL, 10) : 300000;
}

void cairn_test_pause_ms(unsigned ms) {
    struct timespec wait = {ms / 1000, (long)(ms % 1000) * 1000000L};
    nanosleep(&wait, NULL); /* step of a poll, or what its caller says */
}

/* What is asked is often a daemon, and a look costs both more than 3 ms: a wait of seconds would
 * keep a processor busy. A sixteenth of the wait is all that it becomes longer. */
void cairn_test_poll_step(uint64_t since_ms) {
    uint64_t waited_ms = cairn_test_now_ms() - since_ms;
    cairn_test_pause_ms(waited_ms < 768 ? 3 + (unsigned)waited_ms / 16 : 50); /* step of a poll */
}

bool cairn_test_thread_sleeps(int thread) {
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "re");
    size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file) fclose(file);
    const char *state = size ? strrchr(text, ')') : NULL;
    return state && state[1] == ' ' && state[2] == 'S';
}

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void test_starts(const CU_pTest test, const CU_pSuite suite) {
    (void)test;
    (void)suite;
    free(run.skipped);
    run.skipped = NULL;
    run.started = now_seconds();
}

static void test_ends(const CU_pTest test, const CU_pSuite suite,
                      const CU_pFailureRecord failures) {
    if (failures) show_logs();
    remove_folder();
    forget_texts();
    run.ran++;
    bool reported = cairn_reports_check() > 0;
    run.reported += reported && !failures;
    if (failures || reported) {
        printf("FAILED  %s %s\n", suite->pName, test->pName);
    } else if (run.skipped) {
        run.skips++;
        printf("skipped: %s %s: %s\n", suite->pName, test->pName, run.skipped);
    } else {
        printf("ok      %s %s (%.0f ms)\n", suite->pName, test->pName,
               (now_seconds() - run.started) * 1e3);
    }
    fflush(stdout);
}

/* "store/multipart" chooses one file, "store" a folder, NULL everything. */
static bool is_chosen(const struct test *test, const char *module, const char *name) {
    if (module && strcmp(test->module, module) != 0) {
        size_t size = strlen(module);
        if (strncmp(test->module, module, size) != 0 || test->module[size] != '/') return false;
    }
    return !name || !strcmp(test->name, name);
}

static void add_to_registry(const struct test *test) {
    CU_pSuite suite = CU_get_suite(test->module);
    if (!suite) suite = CU_add_suite(test->module, NULL, NULL);
    if (!suite || !CU_add_test(suite, test->name, test->function)) {
        fprintf(stderr, "%s %s: %s\n", test->module, test->name, CU_get_error_msg());
        abort();
    }
}

static int report(void) {
    unsigned failed = CU_get_number_of_tests_failed() + run.reported;
    printf("%u tests, %u failed, %u skipped, %u checks\n", run.ran, failed, run.skips,
           CU_get_number_of_asserts());
    if (failed && run.seeded) {
        printf("repeat with CAIRN_TEST_SEED=%" PRIu64 "\n", run.seed);
    }
    if (failed) return 1;
    return run.skips == run.ran ? EXIT_SKIPPED : 0;
}

static int run_chosen(const char *module, const char *name) {
    if (CU_initialize_registry() != CUE_SUCCESS) abort();
    size_t count = 0;
    for (size_t i = 0; i < test_count; i++) {
        if (!is_chosen(&tests[i], module, name)) continue;
        add_to_registry(&tests[i]);
        count++;
    }
    int status = 2;
    if (count == 0) {
        fprintf(stderr, "no test is called \"%s%s%s\"\n", module ? module : "", name ? " " : "",
                name ? name : "");
    } else {
        CU_set_test_start_handler(test_starts);
        CU_set_test_complete_handler(test_ends);
        CU_run_all_tests();
        status = report();
    }
    CU_cleanup_registry();
    return status;
}

int main(int argc, char **argv) {
    run.main_thread = pthread_self();
    run.main_process = getpid();
    if (argc > 3 || (argc > 1 && argv[1][0] == '-' && strcmp(argv[1], "--list") != 0)) {
        fprintf(stderr, "usage: %s [--list | part[/module] [test]]\n", argv[0]);
        return 2;
    }
    if (argc > 1 && !strcmp(argv[1], "--list")) {
        for (size_t i = 0; i < test_count; i++) printf("%s %s\n", tests[i].module, tests[i].name);
        return 0;
    }
    cairn_reports_begin();
    int status = run_chosen(argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : NULL);
    cairn_reports_end();
    return status;
}
