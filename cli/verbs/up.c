/* SPDX-License-Identifier: Apache-2.0 */
/* cairn up: server and uploader on one folder in the foreground; cairn bench: measures a site. */

#include <cairn/cairn.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/shell/daemons.h"
#include "cli/shell/output.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"

#define READY_MS 30000
#define LOOK_EVERY_MS 200
#define SOCKET_PATH_MAX 107

static const struct cli_flag up_flags[] = {
    {"listen", 'l', CLI_TEXT, CLI_AT(listen), 0, "ADDRESS",
     "Where the server listens; default 127.0.0.1:7420; port 0 picks one."},
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "Keep the bytes there instead of in DIR/store: another folder or s3://bucket/prefix."},
    {"memory", 'm', CLI_SIZE, CLI_AT(bytes), 0, "SIZE",
     "The uploader's memory budget; default a quarter of this machine's."},
};

struct up {
    char folder[PATH_MAX - 64];
    char store[PATH_MAX], data_dir[PATH_MAX], state_dir[PATH_MAX];
    char port_file[PATH_MAX], ready_file[PATH_MAX], socket[PATH_MAX];
    char url[64], memory[32];
    struct cli_daemon server, uploader;
};

/* If the folder's path is too long for a socket: a short path below a folder only this user can
 * write to, because others could create a socket in $TMPDIR or /tmp. */
static enum cairn_code place_socket_elsewhere(struct up *up, struct cairn_error *err) {
    char folder[64];
    struct stat status;
    const char *given = getenv("TMPDIR");
    const char *above = given && *given && strlen(given) < 40 ? given : "/tmp";
    snprintf(folder, sizeof folder, "%s/cairn-%u", above, (unsigned)geteuid());
    if (mkdir(folder, 0700) && errno != EEXIST) return cairn_fail_errno(err, "make %s", folder);
    if (lstat(folder, &status)) return cairn_fail_errno(err, "%s", folder);
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "%s must be a folder of this user that nobody else may enter, for the "
                          "uploader's socket, since the path of %s is too long for one: remove it, "
                          "or give a folder with a shorter path",
                          folder, up->folder);
    /* Device and inode of the folder distinguish concurrent instances. */
    if (stat(up->folder, &status)) return cairn_fail_errno(err, "%s", up->folder);
    snprintf(up->socket, sizeof up->socket, "%s/%llx-%llx.sock", folder,
             (unsigned long long)status.st_dev, (unsigned long long)status.st_ino);
    return CAIRN_OK;
}

static enum cairn_code place(const struct cli *cli, struct up *up, struct cairn_error *err) {
    CAIRN_TRY(cairn_dir_make(cli->arguments[0], 0755, err));
    char *real = realpath(cli->arguments[0], NULL);
    if (!real) return cairn_fail_errno(err, "%s", cli->arguments[0]);
    bool fits = cairn_text_copy(up->folder, sizeof up->folder, real);
    free(real);
    if (!fits)
        return cairn_fail(err, CAIRN_INVALID, "the path of %s is too long", cli->arguments[0]);
    snprintf(up->store, sizeof up->store, "%s/store", up->folder);
    snprintf(up->data_dir, sizeof up->data_dir, "%s/server", up->folder);
    snprintf(up->state_dir, sizeof up->state_dir, "%s/uploader", up->folder);
    snprintf(up->port_file, sizeof up->port_file, "%s/server.port", up->folder);
    snprintf(up->ready_file, sizeof up->ready_file, "%s/uploader.ready", up->folder);
    snprintf(up->socket, sizeof up->socket, "%s/uploader.sock", up->folder);
    if (strlen(up->socket) > SOCKET_PATH_MAX) CAIRN_TRY(place_socket_elsewhere(up, err));
    if (cli->store) {
        if (!cairn_text_copy(up->store, sizeof up->store, cli->store))
            return cairn_fail(err, CAIRN_INVALID, "--store is too long");
    } else {
        CAIRN_TRY(cairn_dir_make(up->store, 0755, err));
    }
    CAIRN_TRY(cairn_dir_make(up->data_dir, 0700, err));
    return cairn_dir_make(up->state_dir, 0700, err);
}

static enum cairn_code start_server(const struct cli *cli, struct up *up, struct cairn_error *err) {
    const char *const settings[][2] = {
        {"--listen", cli->listen ? cli->listen : "127.0.0.1:7420"},
        {"--store", up->store},
        {"--data-dir", up->data_dir},
        {"--port-file", up->port_file},
        {NULL, NULL},
    };
    CAIRN_TRY(cli_daemon_start(&up->server, cli->program_folder, "cairn-server", settings,
                               up->port_file, READY_MS, err));
    CAIRN_AUTO(buf) text = {.limit = 64};
    uint64_t port = 0;
    CAIRN_TRY(cairn_file_load(up->port_file, &text, err));
    struct cairn_view digits = {text.data, strcspn(text.data, "\n")};
    CAIRN_TRY(cairn_parse_u64(digits, &port, err));
    snprintf(up->url, sizeof up->url, "http://127.0.0.1:%llu", (unsigned long long)port);
    return CAIRN_OK;
}

static enum cairn_code start_uploader(const struct cli *cli, struct up *up,
                                      struct cairn_error *err) {
    snprintf(up->memory, sizeof up->memory, "%llu", (unsigned long long)cli->bytes);
    const char *const settings[][2] = {
        {"--server", up->url},
        {"--store", up->store},
        {"--socket", up->socket},
        {"--state-dir", up->state_dir},
        {"--ready-file", up->ready_file},
        {cli->bytes ? "--memory-budget" : NULL, up->memory},
        {NULL, NULL},
    };
    return cli_daemon_start(&up->uploader, cli->program_folder, "cairn-uploader", settings,
                            up->ready_file, READY_MS, err);
}

static enum cairn_code tell_up(const struct cli *cli, const struct up *up,
                               struct cairn_error *err) {
    if (cli->output != CLI_TABLE) {
        CAIRN_AUTO_JSON json_t *answer =
            json_pack("{s:s, s:s, s:s}", "url", up->url, "socket", up->socket, "store", up->store);
        if (!answer) return cairn_fail(err, CAIRN_INVALID, "the folder's name is not UTF-8");
        return cli_print_json(answer, false, err);
    }
    printf("Cairn is up on %s\n\n"
           "  export CAIRN_URL=%s\n"
           "  export CAIRN_SOCKET=%s\n\n"
           "  cairn put ./model demo/first@1     keep a directory\n"
           "  cairn ls demo/first                see it\n"
           "  curl -s %s/v1/runs                 the same over HTTP\n\n"
           "Ctrl-C stops both.\n",
           up->folder, up->url, up->socket, up->url);
    return cli_flush(err);
}

/* Returns on a signal (CAIRN_OK) or when a daemon ends. */
static enum cairn_code watch_daemons(struct up *up, int signals, struct cairn_error *err) {
    struct pollfd wait = {.fd = signals, .events = POLLIN};
    for (;;) {
        int status = 0;
        if (poll(&wait, 1, LOOK_EVERY_MS) > 0) return CAIRN_OK;
        const char *ended = cli_daemon_ended(&up->server, &status)     ? "server"
                            : cli_daemon_ended(&up->uploader, &status) ? "uploader"
                                                                       : NULL;
        if (ended)
            return cairn_fail(err, CAIRN_UNAVAILABLE, "the %s ended by itself (status %d)", ended,
                              WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
}

static enum cairn_code run_up(struct cli *cli, struct cairn_error *err) {
    static struct up up; /* static: several long paths */
    sigset_t stop;
    cli_interrupt_block(&stop);
    CAIRN_AUTO_FD signals = signalfd(-1, &stop, SFD_CLOEXEC);
    if (signals < 0) return cairn_fail_errno(err, "signals");
    CAIRN_TRY(place(cli, &up, err));
    enum cairn_code code = start_server(cli, &up, err);
    if (code == CAIRN_OK) code = start_uploader(cli, &up, err);
    if (code == CAIRN_OK) code = tell_up(cli, &up, err);
    if (code == CAIRN_OK) code = watch_daemons(&up, signals, err);
    /* The uploader stops first: the server can then still commit what is staged. */
    if (up.uploader.pid || up.server.pid) fprintf(stderr, "stopping\n");
    cli_daemon_stop(&up.uploader);
    cli_daemon_stop(&up.server);
    return code;
}

const struct cli_verb cli_verb_up = {
    CLI_VERB(up),
    .chapter = "Save and restore",
    .synopsis = "cairn up [flags] DIR",
    .purpose = "Run server and uploader on a folder, in the foreground.",
    .examples = "  cairn up ./cairn\n"
                "  cairn up ./cairn --listen 127.0.0.1:0 --json\n"
                "  cairn up ./cairn --store s3://bucket/cairn\n",
    CLI_TAKES(up_flags, 1, 1),
    .surplus = "store",
};

/* ---- bench: saves and restores synthetic checkpoints ---- */

#define RANKS_MAX 64
#define BYTES_DEFAULT (256 * CAIRN_MIB)
#define TENSOR_ELEMENTS (CAIRN_MIB) /* F32: 4 MiB a tensor */
#define WAIT_MS 600000

static const struct cli_flag bench_flags[] = {
    {"ranks", 'n', CLI_COUNT, CLI_AT(ranks), 0, "N", "Ranks at once; default 4."},
    {"bytes", 'b', CLI_SIZE, CLI_AT(bytes), 0, "SIZE", "Per rank; default 256MiB."},
    {"steps", 0, CLI_COUNT, CLI_AT(steps), 0, "N", "Saves to make; default 5."},
};

enum mark { STALL, DURABLE, COMMITTED, MARKS };
struct rank {
    const struct cli *cli;
    const char *run;
    uint32_t index, count;
    uint64_t bytes, first_step, steps;
    bool restore;
    pthread_barrier_t *together;
    /* results */
    uint64_t *marks_us[MARKS]; /* by enum mark, then by save */
    enum cairn_code code;
    struct cairn_error error;
};

static uint32_t word_at(uint64_t rank, uint64_t at) {
    uint64_t x = (rank << 48 ^ at) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(x >> 32);
}

static enum cairn_code describe_blocks(struct cairn_save *save, const struct rank *rank,
                                       const uint32_t *memory, struct cairn_error *err) {
    uint64_t elements = rank->bytes / 4;
    for (uint64_t at = 0, t = 0; at < elements; at += TENSOR_ELEMENTS, t++) {
        char name[64];
        uint64_t count = cairn_min_u64(TENSOR_ELEMENTS, elements - at);
        snprintf(name, sizeof name, "rank%u.block%llu", rank->index, (unsigned long long)t);
        struct cairn_tensor_piece piece = {.size = sizeof piece,
                                           .name = name,
                                           .dtype = "U32",
                                           .dimension_count = 1,
                                           .shape = &count,
                                           .kind = CAIRN_SHARDED,
                                           .source = memory + at,
                                           .source_bytes = count * 4};
        CAIRN_TRY(cairn_save_tensor(save, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code save_once(struct rank *rank, struct cairn_session *session, uint64_t number,
                                 const uint32_t *memory, struct cairn_error *err) {
    struct cairn_save_options options = {.size = sizeof options, .timeout_ms = WAIT_MS};
    struct cairn_save *save = NULL;
    struct cairn_save_status status;
    pthread_barrier_wait(rank->together);
    uint64_t start = cairn_mono_us();
    CAIRN_TRY(cairn_save_begin(session, rank->first_step + number, &options, &save, err));
    enum cairn_code code = describe_blocks(save, rank, memory, err);
    if (code == CAIRN_OK) code = cairn_save_stage(save, err);
    rank->marks_us[STALL][number] = cairn_mono_us() - start;
    if (code == CAIRN_OK) code = cairn_save_wait(save, CAIRN_DURABLE, WAIT_MS, err);
    rank->marks_us[DURABLE][number] = cairn_mono_us() - start;
    if (code == CAIRN_OK) code = cairn_save_wait(save, CAIRN_COMMITTED, WAIT_MS, err);
    rank->marks_us[COMMITTED][number] = cairn_mono_us() - start;
    cairn_save_status(save, &status);
    cairn_save_free(save);
    return code;
}

static enum cairn_code read_once(struct rank *rank, struct cairn_session *session, uint64_t number,
                                 uint32_t *memory, struct cairn_error *err) {
    struct cairn_restore_options options = {.size = sizeof options, .timeout_ms = WAIT_MS};
    struct cairn_restore *restore = NULL;
    struct cairn_restore_info info;
    char shard[64];
    snprintf(shard, sizeof shard, "rank-%05u.safetensors", rank->index);
    pthread_barrier_wait(rank->together);
    uint64_t start = cairn_mono_us();
    CAIRN_TRY(cairn_restore_open(session, &options, &restore, &info, err));
    enum cairn_code code = CAIRN_OK;
    uint64_t elements = rank->bytes / 4, count = cairn_div_up(elements, TENSOR_ELEMENTS);
    struct cairn_read *reads = calloc(count, sizeof *reads);
    char(*names)[64] = calloc(count, sizeof *names);
    if (!reads || !names) code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for reads");
    for (uint64_t t = 0; code == CAIRN_OK && t < count; t++) {
        uint64_t at = t * TENSOR_ELEMENTS;
        snprintf(names[t], sizeof names[t], "rank%u.block%llu", rank->index, (unsigned long long)t);
        reads[t] =
            (struct cairn_read){.size = sizeof(struct cairn_read),
                                .tensor = names[t],
                                .into = memory + at,
                                .into_bytes = 4 * cairn_min_u64(TENSOR_ELEMENTS, elements - at)};
    }
    if (code == CAIRN_OK) code = cairn_restore_read(restore, reads, count, WAIT_MS, err);
    rank->marks_us[COMMITTED][number] = cairn_mono_us() - start;
    for (uint64_t i = 0; code == CAIRN_OK && i < elements; i++)
        if (memory[i] != word_at(rank->index, i))
            code = cairn_fail(err, CAIRN_CORRUPT, "rank %u element %llu differs", rank->index,
                              (unsigned long long)i);
    free(reads);
    free(names);
    cairn_restore_free(restore);
    return code;
}

static enum cairn_code play_rank(struct rank *rank, uint32_t *memory, struct cairn_error *err) {
    struct cairn_session *session = NULL;
    struct cairn_resume resume;
    char job[64];
    snprintf(job, sizeof job, "bench-%d", (int)getpid());
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = rank->run,
                                         .job = job,
                                         .rank = rank->index,
                                         .world_size = rank->count,
                                         .local_rank = rank->index,
                                         .local_world_size = rank->count,
                                         .bytes = rank->restore ? 0 : rank->bytes + 4 * CAIRN_MIB,
                                         .read_only = rank->restore,
                                         .socket = cli_uploader_socket(rank->cli)};
    enum cairn_code code = cairn_open(&options, &session, &resume, err);
    rank->code = code;
    /* A failed rank still passes every barrier, so that the others do not hang. */
    for (uint64_t number = 0; number < rank->steps; number++) {
        if (code != CAIRN_OK) {
            pthread_barrier_wait(rank->together);
            continue;
        }
        code = rank->restore ? read_once(rank, session, number, memory, err)
                             : save_once(rank, session, number, memory, err);
    }
    (void)cairn_close(session, NULL);
    return code;
}

static void *rank_main(void *argument) {
    struct rank *rank = argument;
    size_t bytes = (size_t)cairn_round_up(rank->bytes, 2 * CAIRN_MIB);
    uint32_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        rank->code = cairn_fail(&rank->error, CAIRN_NO_MEMORY, "no memory for %llu bytes",
                                (unsigned long long)bytes);
        for (uint64_t i = 0; i < rank->steps; i++) pthread_barrier_wait(rank->together);
        return NULL;
    }
    if (!rank->restore)
        for (uint64_t i = 0; i < rank->bytes / 4; i++) memory[i] = word_at(rank->index, i);
    rank->code = play_rank(rank, memory, &rank->error);
    munmap(memory, bytes);
    return NULL;
}

static double slowest_s(const struct rank *ranks, uint64_t count, uint64_t number, enum mark mark) {
    uint64_t worst_us = 0;
    for (uint64_t r = 0; r < count; r++)
        worst_us = cairn_max_u64(worst_us, ranks[r].marks_us[mark][number]);
    return (double)worst_us / 1e6;
}

static void report_rounds(const struct rank *ranks, uint64_t count, bool restore) {
    for (uint64_t number = 0; number < ranks[0].steps; number++) {
        double bytes = (double)ranks[0].bytes * (double)count;
        double end_s = slowest_s(ranks, count, number, COMMITTED);
        if (restore)
            printf("{\"bench\":\"restore\",\"round\":%llu,\"ranks\":%llu,\"bytes\":%.0f,"
                   "\"seconds\":%.4f,\"gb_per_s\":%.3f,\"checked\":true}\n",
                   (unsigned long long)number, (unsigned long long)count, bytes, end_s,
                   bytes / 1e9 / end_s);
        else
            printf("{\"bench\":\"save\",\"step\":%llu,\"ranks\":%llu,\"bytes\":%.0f,"
                   "\"stall_s\":%.4f,\"durable_s\":%.4f,\"committed_s\":%.4f,\"gb_per_s\":%.3f}\n",
                   (unsigned long long)(ranks[0].first_step + number), (unsigned long long)count,
                   bytes, slowest_s(ranks, count, number, STALL),
                   slowest_s(ranks, count, number, DURABLE), end_s, bytes / 1e9 / end_s);
    }
}

static enum cairn_code run_ranks(struct rank *ranks, uint64_t count, struct cairn_error *err) {
    pthread_t threads[RANKS_MAX];
    for (uint64_t r = 0; r < count; r++)
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no thread for rank %llu",
                              (unsigned long long)r);
    for (uint64_t r = 0; r < count; r++) pthread_join(threads[r], NULL);
    for (uint64_t r = 0; r < count; r++) {
        if (ranks[r].code == CAIRN_OK) continue;
        if (err) *err = ranks[r].error;
        return cairn_within(err, ranks[r].code, "rank %llu", (unsigned long long)r);
    }
    return CAIRN_OK;
}

static enum cairn_code run_bench(struct cli *cli, struct cairn_error *err) {
    static struct rank ranks[RANKS_MAX];
    pthread_barrier_t together;
    struct cli_ref ref;
    char name[2 * CAIRN_NAME_BYTES_MAX + 2];
    bool restore = !strcmp(cli->arguments[0], "restore");
    if (!restore && strcmp(cli->arguments[0], "save"))
        return cairn_fail(err, CAIRN_INVALID, "bench takes save or restore, not %s",
                          cli->arguments[0]);
    uint64_t count = cli->ranks ? cli->ranks : 4, steps = cli->steps ? cli->steps : 5;
    if (count > RANKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "--ranks is at most %d", RANKS_MAX);
    const char *run_text = cli->argument_count > 1 ? cli->arguments[1] : "bench/synthetic";
    CAIRN_TRY(cli_ref_run("bench", run_text, &ref, err));
    uint64_t bytes = (cli->bytes ? cli->bytes : BYTES_DEFAULT) & ~UINT64_C(3);
    if (!bytes) return cairn_fail(err, CAIRN_INVALID, "--bytes is at least 4");
    snprintf(name, sizeof name, "%s/%s", ref.name.project, ref.name.run);
    uint64_t first = (uint64_t)(cairn_clock_real.wall_ms(&cairn_clock_real) / 1000);
    CAIRN_AUTO_HEAP uint64_t *times = calloc(count * steps * 3, sizeof *times);
    if (!times) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the figures");
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (uint64_t r = 0; r < count; r++) {
        uint64_t *mine = times + r * steps * 3;
        ranks[r] = (struct rank){.cli = cli,
                                 .run = name,
                                 .index = (uint32_t)r,
                                 .count = (uint32_t)count,
                                 .bytes = bytes,
                                 .first_step = first,
                                 .steps = steps,
                                 .restore = restore,
                                 .together = &together,
                                 .marks_us = {mine, mine + steps, mine + 2 * steps}};
    }
    enum cairn_code code = run_ranks(ranks, count, err);
    pthread_barrier_destroy(&together);
    if (code == CAIRN_OK) report_rounds(ranks, count, restore);
    return code;
}

const struct cli_verb cli_verb_bench = {
    CLI_VERB(bench),
    .synopsis = "cairn bench [flags] save|restore [project/run]",
    .purpose = "Save or restore synthetic checkpoints and print the figures as JSON lines.",
    .examples = "  cairn bench save\n"
                "  cairn bench save --ranks 8 --bytes 1GiB --steps 10\n"
                "  cairn bench restore --ranks 8 --bytes 1GiB\n",
    CLI_TAKES(bench_flags, 1, 2),
    .surplus = "bytes",
};
