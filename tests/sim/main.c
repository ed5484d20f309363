/* SPDX-License-Identifier: Apache-2.0 */
/* sim: seeds, one after the other, each in a child that begins as the others did.
 *
 *   sim --seeds 300 [--first 1]            a line for each seed that fails; ends with 1 if one did
 *   sim --seed 17 [--trace]                one seed; with everything that happened in it
 *   sim ... --without Q41[,Q42]            with rules of common/rules.def taken out
 *   sim ... --only UPLOADER_KILL,NO_CRC    with no other faults than these
 *   sim ... --never DISK_FULL              without these
 *   sim ... --always TORN,NO_CRC           with these in every seed
 *   sim ... --behind                       ranks whose saves are copied beside their training
 *   sim ... --at-once 2                    so many seeds at a time
 *   sim ... --until-found                  ends at the first seed that fails and says which */
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "common/hooks.h"
#include "tests/sim/world.h"

#define SEED_US UINT64_C(3000000000)
#define SEED_WORK_S 60 /* on a processor: how busy the machine is ends no seed */

struct options {
    uint64_t seeds, first, at_once;
    bool trace, until_found, behind;
    const char *without;
    uint64_t only, never, always;
};
struct totals {
    uint64_t seeds, faults[SIM_FAULTS], saves, staged, committed, told, steps, sim_us, failed;
};
#define AT_ONCE_MAX 64
static struct totals *all_totals, *totals; /* shared with the children; this worker's */
static _Atomic uint64_t *found;            /* shared: the lowest seed that failed */
static char base[64];

#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
/* A killed process leaves its memory as it is; fibers have stacks of their own. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0:detect_stack_use_after_return=0";
}
#endif

/* ---- a seed ---- */

static void count_saves(void) {
    totals->steps += sim_steps();
    totals->sim_us += sim_now_us();
    totals->saves += sim_save_count;
    for (size_t i = 0; i < sim_save_count; i++) {
        totals->staged += sim_saves[i].staged;
        totals->committed += sim_saves[i].committed;
        totals->told += sim_saves[i].told;
    }
    for (int i = 0; i < SIM_FAULTS; i++) {
        const uint64_t always = SIM_BIT(LOST) | SIM_BIT(LATE) | SIM_BIT(REFUSED) |
                                SIM_BIT(SLOW_HEAD) | SIM_BIT(RECORD_LAG) | SIM_BIT(NO_CRC) |
                                SIM_BIT(NO_TOKEN) | SIM_BIT(CANCEL) | SIM_BIT(LATE_RANK) |
                                SIM_BIT(CRASH_POINT) | SIM_BIT(WRONG_MOUNT) | SIM_BIT(SLOW_COPY) |
                                SIM_BIT(BUSY);
        totals->faults[i] += ((sim_world.used | (sim_plan.faults & always)) >> i) & 1;
    }
}

static int play(uint64_t seed, const struct options *options) {
    if (!cairn_rule_take_out(options->without)) return 2;
    const struct itimerval most = {.it_value.tv_sec = SEED_WORK_S};
    (void)setitimer(ITIMER_PROF, &most, NULL);
    sim_kernel_start(seed, options->trace);
    sim_plan_make(seed, options->only, options->never, options->always);
    sim_plan.behind = options->behind;
    snprintf(sim_world.folder, sizeof sim_world.folder, "%s/seed", base);
    sim_spawn(sim_process_new(SIM_WORLD, 0, "world"), sim_world_play, NULL);
    if (!sim_kernel_run(SEED_US)) sim_violation("P9: the seed does not come to its end");
    count_saves();
    if (!sim_violation_count()) return 0;
    printf("seed %" PRIu64 ": %zu violations, first: %s\n", seed, sim_violation_count(),
           sim_violation_first());
    return 1;
}

/* ---- seeds ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

static void fresh_folder(void) {
    char path[80];
    snprintf(path, sizeof path, "%s/seed", base);
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (mkdir(path, 0700)) perror(path);
}

static bool run_seed(uint64_t seed, const struct options *options) {
    fresh_folder();
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int status = play(seed, options);
        fflush(stdout);
        _exit(status);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    totals->failed++;
    if (WIFSIGNALED(status))
        printf("seed %" PRIu64 ": ended by signal %d (%s)\n", seed, WTERMSIG(status),
               WTERMSIG(status) == SIGPROF ? "it took too long" : strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 1)
        printf("seed %" PRIu64 ": ended with status %d\n", seed, WEXITSTATUS(status));
    return false;
}

static void add_up(uint64_t workers) {
    totals = &all_totals[AT_ONCE_MAX];
    for (uint64_t i = 0; i < workers; i++)
        for (size_t k = 0; k < sizeof *totals / sizeof(uint64_t); k++)
            ((uint64_t *)totals)[k] += ((const uint64_t *)&all_totals[i])[k];
}

static void say_totals(void) {
    uint64_t seeds = totals->seeds;
    printf("%" PRIu64 " seeds, %" PRIu64 " failed; %" PRIu64 " saves of ranks, %" PRIu64
           " staged, %" PRIu64 " told committed, %" PRIu64 " told otherwise; %" PRIu64
           " turns, %.0f simulated seconds\nseeds with:",
           seeds, totals->failed, totals->saves, totals->staged, totals->committed, totals->told,
           totals->steps, (double)totals->sim_us / 1e6 - 1000.0 * (double)seeds);
    for (int i = 0; i < SIM_FAULTS; i++)
        printf(" %s %" PRIu64, sim_fault_name((enum sim_fault)i), totals->faults[i]);
    printf("\n");
}

/* ---- options ---- */

static bool fault_bits(const char *text, uint64_t *ret) {
    while (*text) {
        size_t size = strcspn(text, ",");
        int i = 0;
        while (i < SIM_FAULTS && (strlen(sim_fault_name((enum sim_fault)i)) != size ||
                                  strncmp(sim_fault_name((enum sim_fault)i), text, size) != 0))
            i++;
        if (i == SIM_FAULTS) return false;
        *ret |= UINT64_C(1) << i;
        text += size + (text[size] == ',');
    }
    return true;
}

static bool read_option(int argc, char **argv, int *at, struct options *ret) {
    const char *name = argv[*at];
    if (!strcmp(name, "--trace")) return ret->trace = true;
    if (!strcmp(name, "--until-found")) return ret->until_found = true;
    if (!strcmp(name, "--behind")) return ret->behind = true;
    if (++*at == argc) return false;
    const char *value = argv[*at];
    if (!strcmp(name, "--seeds")) ret->seeds = strtoull(value, NULL, 10);
    if (!strcmp(name, "--first") || !strcmp(name, "--seed")) ret->first = strtoull(value, NULL, 10);
    if (!strcmp(name, "--at-once")) {
        ret->at_once = strtoull(value, NULL, 10);
        return ret->at_once && ret->at_once <= AT_ONCE_MAX;
    }
    if (!strcmp(name, "--without")) ret->without = value;
    if (!strcmp(name, "--only")) return fault_bits(value, &ret->only);
    if (!strcmp(name, "--never")) return fault_bits(value, &ret->never);
    if (!strcmp(name, "--always")) return fault_bits(value, &ret->always);
    return !strcmp(name, "--seeds") || !strcmp(name, "--first") || !strcmp(name, "--seed") ||
           !strcmp(name, "--without");
}

/* Every at_once-th seed. */
static void work(uint64_t number, const struct options *options) {
    totals = &all_totals[number];
    snprintf(base, sizeof base, "%s/cairn-sim-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(base)) {
        perror(base);
        totals->failed++;
        return;
    }
    for (uint64_t i = number; i < options->seeds; i += options->at_once) {
        uint64_t seed = options->first + i;
        if (options->until_found && seed > *found) break;
        if (!run_seed(seed, options) && seed < *found) *found = seed;
        totals->seeds++;
    }
    (void)nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv) {
    struct options options = {.seeds = 1, .first = 1, .at_once = 1, .without = ""};
    for (int i = 1; i < argc; i++) {
        if (read_option(argc, argv, &i, &options)) continue;
        fprintf(stderr, "sim: no such option or value: %s\n", argv[i < argc ? i : argc - 1]);
        return 2;
    }
    all_totals = mmap(NULL, sizeof *totals * (AT_ONCE_MAX + 2), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all_totals == MAP_FAILED) return 2;
    found = (_Atomic uint64_t *)&all_totals[AT_ONCE_MAX + 1];
    *found = UINT64_MAX;
    for (uint64_t i = 1; i < options.at_once; i++) {
        if (fork()) continue;
        work(i, &options);
        fflush(stdout);
        _exit(0);
    }
    work(0, &options);
    while (wait(NULL) > 0) continue;
    add_up(options.at_once);
    say_totals();
    if (*found != UINT64_MAX) printf("the first that failed: %" PRIu64 "\n", *found);
    return totals->failed || totals->seeds < (options.until_found ? 1 : options.seeds);
}
