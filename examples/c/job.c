/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training job in one file: trains, saves, and resumes where an earlier process stopped, with
 * bit-identical results.
 *
 *   job RUN [--steps N] [--every N] [--step-ms N] [--elements N]
 *
 * One process per rank; a launcher (torchrun, mpirun, srun, or RANK and WORLD_SIZE by hand) says
 * which, else it is the only one. Weights are split flat over the ranks, so that another number of
 * ranks can resume. On SIGTERM or SIGUSR1 it saves and exits with EXIT_STOPPED, which tells a batch
 * script to restart it: a single rank at once, several at the next step that all of them save,
 * because a checkpoint needs all ranks.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cairn/cairn.h>

#define EXIT_STOPPED 75 /* sysexits.h: try again later */
#define COMMIT_MS 120000
#define GRACE_MS 30000

struct job {
    const char *run;
    uint64_t steps, every, step_ms, elements;
    uint32_t rank, ranks, local_rank, local_ranks;
    uint64_t first, count; /* this rank's elements */
    float *weights, *momentum;
    uint64_t saves, failed;
};

static uint32_t variable(const char *const *names, uint32_t otherwise) {
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text && *text) return (uint32_t)strtoul(text, NULL, 10);
    }
    return otherwise;
}

static void read_launcher(struct job *job) {
    static const char *const rank[] = {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", NULL};
    static const char *const ranks[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", NULL};
    static const char *const local[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
                                        NULL};
    static const char *const locals[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "SLURM_NTASKS_PER_NODE", NULL};
    job->rank = variable(rank, 0);
    job->ranks = variable(ranks, 1);
    job->local_rank = variable(local, 0);
    job->local_ranks = variable(locals, 1);
}

/* ---- training: each weight approaches its own target ---- */

static float goal_of(uint64_t index) {
    uint64_t hash = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (float)((hash >> 40) & 0xffff) / 65536.0f;
}

static double train(struct job *job) {
    double loss = 0;
    for (uint64_t i = 0; i < job->count; i++) {
        float gradient = job->weights[i] - goal_of(job->first + i);
        job->momentum[i] = 0.9f * job->momentum[i] + gradient;
        job->weights[i] -= 0.01f * job->momentum[i];
        loss += (double)gradient * gradient;
    }
    struct timespec pause = {(time_t)(job->step_ms / 1000), (long)(job->step_ms % 1000) * 1000000L};
    if (job->step_ms) nanosleep(&pause, NULL);
    return job->count ? loss / (double)job->count : 0;
}

/* FNV-1a over the bits: runs that print the same digest have the same weights. */
static uint64_t digest(const struct job *job) {
    const unsigned char *bytes = (const unsigned char *)job->weights;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < job->count * sizeof *job->weights; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* ---- saving ---- */

static enum cairn_code describe(const struct job *job, struct cairn_save *save, const char *name,
                                const float *source, struct cairn_error *err) {
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = name,
                                       .dtype = "F32",
                                       .dimension_count = 1,
                                       .shape = &job->elements,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_FLAT,
                                       .start = &job->first,
                                       .count = &job->count,
                                       .source = source,
                                       .source_bytes = job->count * sizeof *source};
    return job->count ? cairn_save_tensor(save, &piece, err) : CAIRN_OK;
}

/* An absent uploader is no failure: the bytes are copied, and the next uploader sends them. */
static enum cairn_code stage(const struct job *job, struct cairn_save *save,
                             struct cairn_error *err) {
    struct cairn_save_status status;
    enum cairn_code code = cairn_save_stage(save, err);
    if (code) return code;
    cairn_save_status(save, &status);
    if (status.away) fprintf(stderr, "rank %u: the uploader is away\n", job->rank);
    return CAIRN_OK;
}

/* A failed save is printed and training continues; only the last must be committed. */
static enum cairn_code save_step(struct job *job, struct cairn_session *session, uint64_t step,
                                 uint32_t wait_ms) {
    struct cairn_error err = {0};
    struct cairn_save *save = NULL;
    struct cairn_save_options options = {.size = sizeof options, .format = "example-job-1"};
    enum cairn_code code = cairn_session_problem(session, &err);
    if (code) {
        fprintf(stderr, "rank %u: an earlier save: %s\n", job->rank, err.message);
        job->failed += code != CAIRN_UNAVAILABLE; /* not failed, only delayed */
    }
    code = cairn_save_begin(session, step, &options, &save, &err);
    if (!code) code = describe(job, save, "weights", job->weights, &err);
    if (!code) code = describe(job, save, "momentum", job->momentum, &err);
    if (!code) code = stage(job, save, &err);
    if (!code && wait_ms) code = cairn_save_wait(save, CAIRN_COMMITTED, wait_ms, &err);
    cairn_save_free(save);
    job->saves++;
    if (code) {
        job->failed++;
        fprintf(stderr, "rank %u: the save of step %llu: %s (%s)\n", job->rank,
                (unsigned long long)step, err.message, cairn_code_info(code)->slug);
    } else {
        printf("rank %u: step %llu %s\n", job->rank, (unsigned long long)step,
               wait_ms ? "committed" : "staged");
    }
    return code;
}

/* ---- resuming ---- */

static enum cairn_code restore(struct job *job, struct cairn_session *session,
                               struct cairn_error *err) {
    struct cairn_restore *from = NULL;
    struct cairn_restore_options options = {.size = sizeof options, .format = "example-job-1"};
    const uint64_t bytes = job->count * sizeof *job->weights;
    struct cairn_read reads[2] = {{.size = sizeof reads[0], .tensor = "weights"},
                                  {.size = sizeof reads[0], .tensor = "momentum"}};
    void *const into[2] = {job->weights, job->momentum};
    enum cairn_code code = cairn_restore_open(session, &options, &from, NULL, err);
    for (size_t i = 0; i < 2; i++) {
        reads[i].form = CAIRN_FLAT;
        reads[i].start = &job->first;
        reads[i].count = &job->count;
        reads[i].into = into[i];
        reads[i].into_bytes = bytes;
    }
    if (!code && job->count) code = cairn_restore_read(from, reads, 2, 0, err);
    cairn_restore_free(from);
    return code;
}

/* ---- the job ---- */

static int usage(void) {
    fprintf(stderr, "usage: job RUN [--steps N] [--every N] [--step-ms N] [--elements N]\n"
                    "RUN is project/run; every --every steps and at the end it is saved\n");
    return 2;
}

static int read_arguments(struct job *job, int argc, char **argv) {
    static const struct option options[] = {{"steps", required_argument, NULL, 's'},
                                            {"every", required_argument, NULL, 'e'},
                                            {"step-ms", required_argument, NULL, 'm'},
                                            {"elements", required_argument, NULL, 'n'},
                                            {NULL, 0, NULL, 0}};
    *job = (struct job){.steps = 100, .every = 10, .step_ms = 50, .elements = 1 << 20};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        uint64_t value = strtoull(optarg ? optarg : "", NULL, 10);
        if (option == 's') job->steps = value;
        if (option == 'e') job->every = value;
        if (option == 'm') job->step_ms = value;
        if (option == 'n') job->elements = value;
        if (option == '?') return 0;
    }
    if (optind + 1 != argc || !job->every || !job->elements) return 0;
    job->run = argv[optind];
    return 1;
}

static int run(struct job *job, struct cairn_session *session, uint64_t step) {
    enum cairn_code last = CAIRN_OK;
    double loss = 0;
    int stopped = 0;
    while (step < job->steps && !stopped) {
        uint32_t left_ms = COMMIT_MS;
        loss = train(job);
        step++;
        int asked = cairn_last_chance(&left_ms);
        int due = step % job->every == 0 || step == job->steps;
        stopped = asked && (due || job->ranks == 1);
        int waits = stopped || step == job->steps;
        if (due || stopped) last = save_step(job, session, step, waits ? left_ms + !left_ms : 0);
    }
    printf("rank %u: %s at step %llu, loss %.6f, digest %016llx, %llu saves of which %llu failed\n",
           job->rank, stopped ? "stopped" : "done", (unsigned long long)step, loss,
           (unsigned long long)digest(job), (unsigned long long)job->saves,
           (unsigned long long)job->failed);
    if (stopped) return EXIT_STOPPED; /* if that save was too late, the previous one remains */
    return last ? cairn_code_info(last)->exit_status : 0;
}

int main(int argc, char **argv) {
    static struct job job;
    struct cairn_session *session = NULL;
    struct cairn_resume resume;
    struct cairn_error err = {0};
    if (!read_arguments(&job, argc, argv)) return usage();
    setvbuf(stdout, NULL, _IOLBF, 0);
    read_launcher(&job);
    job.first = job.elements * job.rank / job.ranks;
    job.count = job.elements * (job.rank + 1) / job.ranks - job.first;
    job.weights = calloc(job.count + 1, sizeof *job.weights);
    job.momentum = calloc(job.count + 1, sizeof *job.momentum);
    if (!job.weights || !job.momentum) {
        perror("memory");
        return 1;
    }
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = job.run,
                                         .rank = job.rank,
                                         .world_size = job.ranks,
                                         .local_rank = job.local_rank,
                                         .local_world_size = job.local_ranks,
                                         .bytes = 2 * job.count * sizeof *job.weights +
                                                  (UINT64_C(1) << 20)};
    struct cairn_last_chance_options chance = {.size = sizeof chance, .grace_ms = GRACE_MS};
    enum cairn_code code = cairn_last_chance_watch(&chance, &err);
    if (!code) code = cairn_open(&options, &session, &resume, &err);
    if (!code && resume.found) code = restore(&job, session, &err);
    int status = cairn_code_info(code)->exit_status;
    if (code)
        fprintf(stderr, "rank %u: %s (%s)\n", job.rank, err.message, cairn_code_info(code)->slug);
    if (!code && resume.found)
        printf("rank %u: resumed from step %llu\n", job.rank, (unsigned long long)resume.step);
    if (!code) status = run(&job, session, resume.found ? resume.step : 0);
    (void)cairn_close(session, NULL);
    free(job.weights);
    free(job.momentum);
    return status;
}
