/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay: `tests_fuzz NAME` feeds one target with its corpus, with the seeds that code makes, and
 * with seeded mutations of both: the same inputs every time, in every build and with any compiler.
 *
 *   CAIRN_FUZZ_MUTATIONS=N   mutations of each good input (default: what fits into a second or two)
 *   CAIRN_TEST_SEED=N        other mutations
 *   tests_fuzz NAME FILE...  those files alone, as they are: to look at a finding
 *   tests_fuzz NAME --write-seeds DIR  the seeds that code makes, as files for libFuzzer
 */
#include <dirent.h>

#include "tests/api/mutate.h"
#include "tests/fuzz/fuzz.h"
#include "tests/harness.h"

#define MUTATIONS_DEFAULT 1500
#define MUTATIONS_FOLDER 300 /* each opens a dozen files */
#define MUTATIONS_SESSION 25 /* each starts and ends the parts of an uploader */

struct target {
    const char *name;
    void (*run)(struct cairn_view input);
};
static const struct target targets[] = {
#define FUZZ(name, surface) {#name, cairn_fuzz_##name},
#include "tests/fuzz/targets.def"
#undef FUZZ
};

/* The harness draws a seed per run; a replay is the same unless it is asked to differ. */
uint64_t cairn_test_seed(void) {
    const char *text = getenv("CAIRN_TEST_SEED");
    return text ? strtoull(text, NULL, 0) : 1;
}

uint64_t cairn_test_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

struct replay {
    const struct target *target;
    uint32_t mutations;
    uint64_t inputs, good;
    const char *seed_folder;
};

static void judge(struct cairn_view input, void *owner) {
    struct replay *replay = owner;
    replay->inputs++;
    replay->target->run(input);
}

static void feed(struct cairn_view good, void *owner) {
    struct replay *replay = owner;
    replay->good++;
    judge(good, replay);
    if (good.size <= 512) cairn_mutate_cut(good, judge, replay);
    cairn_mutate_many(good, replay->mutations, judge, replay);
}

static char *read_file(const char *path, size_t *ret_size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *bytes = malloc(64 * CAIRN_KIB);
    *ret_size = bytes ? fread(bytes, 1, 64 * CAIRN_KIB, file) : 0;
    fclose(file);
    return bytes;
}

static void feed_corpus(struct replay *replay) {
    char folder[512], path[1024];
    const char *tree = getenv("CAIRN_SOURCE_DIR"); /* ctest sets it */
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", tree ? tree : ".",
             replay->target->name);
    struct dirent **names = NULL;
    int count = scandir(folder, &names, NULL, alphasort); /* sorted: the same order everywhere */
    for (int i = 0; i < count; i++) {
        size_t size = 0;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        char *bytes = names[i]->d_name[0] == '.' ? NULL : read_file(path, &size);
        if (bytes) feed((struct cairn_view){bytes, size}, replay);
        free(bytes);
        free(names[i]);
    }
    free(names);
}

static void write_seed(struct cairn_view seed, void *owner) {
    struct replay *replay = owner;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s-%" PRIu64, replay->seed_folder, replay->target->name,
             replay->good++);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(seed.data, 1, seed.size, file) != seed.size) perror(path);
    if (file) fclose(file);
}

static int replay_files(struct replay *replay, int argc, char **argv) {
    if (argc == 4 && strcmp(argv[2], "--write-seeds") == 0) {
        replay->seed_folder = argv[3];
        cairn_fuzz_seeds(replay->target->name, write_seed, replay);
        return 0;
    }
    for (int i = 2; i < argc; i++) {
        size_t size = 0;
        char *bytes = read_file(argv[i], &size);
        if (!bytes) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 1;
        }
        judge((struct cairn_view){bytes, size}, replay);
        free(bytes);
    }
    return 0;
}

static int replay_one(const struct target *target, int argc, char **argv) {
    const char *mutations = getenv("CAIRN_FUZZ_MUTATIONS");
    struct replay replay = {.target = target, .mutations = MUTATIONS_DEFAULT};
    if (!strcmp(target->name, "session")) replay.mutations = MUTATIONS_SESSION;
    if (!strcmp(target->name, "folder")) replay.mutations = MUTATIONS_FOLDER;
    if (mutations) replay.mutations = (uint32_t)strtoul(mutations, NULL, 10);
    if (argc > 2) return replay_files(&replay, argc, argv);
    uint64_t started_ms = cairn_mono_ms();
    feed_corpus(&replay);
    cairn_fuzz_seeds(target->name, feed, &replay);
    printf("%s: %" PRIu64 " inputs from %" PRIu64 " good ones in %" PRIu64 " ms\n", target->name,
           replay.inputs, replay.good, cairn_mono_ms() - started_ms);
    if (replay.good) return 0;
    fprintf(stderr, "%s: no good input, so nothing was tried\n", target->name);
    return 1;
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < CAIRN_COUNT(targets); i++)
        if (strcmp(argv[1], targets[i].name) == 0) return replay_one(&targets[i], argc, argv);
    fprintf(stderr, "usage: %s NAME [FILE...]; names:", argv[0]);
    for (size_t i = 0; i < CAIRN_COUNT(targets); i++) fprintf(stderr, " %s", targets[i].name);
    fprintf(stderr, "\n");
    return 2;
}
