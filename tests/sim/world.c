/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, killing and settling the processes of a seed. */
#include "tests/sim/world.h"

#include <sys/eventfd.h>

#include "common/file.h"
#include "common/log.h"
#include "tests/sim/rest.h"
#include "tests/sim/stories.h"
#include "uploader/daemon.h"

#define SUPERVISOR_US 50000
#define START_AGAIN_US 500000
#define STARTS_FAILED_MAX 40
#define SETTLE_US UINT64_C(240000000)
#define REST_US UINT64_C(120000000)
#define JOB_US UINT64_C(400000000)

struct sim_world sim_world;
int sim_server_main(int argc, char **argv);

int sim_node_of(uint32_t rank) {
    return (int)(rank % SIM_NODES);
}

static const char *log_level(void) {
    return sim_tracing() ? "debug" : "error";
}

/* ---- the server ---- */

static void *server_run(void *argument) {
    char folder[300];
    (void)argument;
    snprintf(folder, sizeof folder, "%s/server", sim_world.folder);
    char *arguments[] = {"cairn-server",
                         "--store",
                         "/sim",
                         "--data-dir",
                         folder,
                         "--listen",
                         "127.0.0.1:0",
                         "--request-workers",
                         "4",
                         "--sweep-interval",
                         "2s",
                         "--log-level",
                         (char *)(uintptr_t)log_level(),
                         NULL};
    int status = sim_server_main((int)CAIRN_COUNT(arguments) - 1, arguments);
    sim_note("the server ended with status %d", status);
    sim_world.failed_starts++;
    sim_mhd_killed(sim_self());
    sim_kill(sim_self());
    return NULL;
}

static void start_server(void) {
    sim_world.server = sim_process_new(SIM_SERVER, 0, "server");
    sim_world.server->kill_chance = 3;
    sim_spawn(sim_world.server, server_run, NULL);
}

static void copy_file(const char *from_name, const char *to_name) {
    char from[400], to[400];
    CAIRN_AUTO(buf) bytes = {.limit = 64 * CAIRN_MIB};
    snprintf(from, sizeof from, "%s/%s", sim_world.folder, from_name);
    snprintf(to, sizeof to, "%s/%s", sim_world.folder, to_name);
    if (cairn_file_load(from, &bytes, NULL) != CAIRN_OK)
        (void)unlink(to);
    else if (cairn_file_replace(to, cairn_buf_view(&bytes), 0600, NULL) != CAIRN_OK)
        sim_violation("the simulation cannot copy %s", from);
}

/* No fiber is inside SQLite when another runs, so the two files are what a snapshot of the disk
 * would be. It is of the same life of the server when that is not killed before it comes back. */
void sim_world_keep_backup(void) {
    copy_file("server/catalog.db", "backup.db");
    copy_file("server/catalog.db-wal", "backup.db-wal");
    sim_world.backup = true;
    sim_note("a backup of the catalog is taken");
}

static void put_backup_back(void) {
    copy_file("backup.db", "server/catalog.db");
    copy_file("backup.db-wal", "server/catalog.db-wal");
    copy_file("there is none", "server/catalog.db-shm"); /* made anew from the two */
    sim_world.backup = false;
    sim_world.used |= SIM_BIT(BACKUP);
    sim_note("the catalog is put back from the backup");
}

void sim_world_kill_server(uint64_t away_us) {
    struct sim_process *server = sim_world.server;
    sim_world.server_from_us = sim_now_us() + away_us;
    if (!server || !server->alive) return;
    sim_world.used |= SIM_BIT(SERVER_KILL);
    sim_mhd_killed(server);
    sim_kill(server);
    if (sim_world.backup && sim_chance(500)) put_backup_back();
}

/* ---- uploaders ---- */

static enum cairn_code configure(struct cairn_up *up, int node, struct cairn_error *err) {
    char state[300], socket[300], name[8];
    snprintf(state, sizeof state, "%s/state", sim_world.folder);
    snprintf(socket, sizeof socket, "%s/node%d.sock", sim_world.folder, node);
    snprintf(name, sizeof name, "node%d", node);
    char *arguments[] = {"cairn-uploader",
                         "--node",
                         name,
                         "--store",
                         "/sim",
                         "--server",
                         "http://server",
                         "--socket",
                         socket,
                         "--state-dir",
                         state,
                         "--memory-tier-time",
                         "2s", /* what is kept is gone when all is at rest */
                         "--memory-budget",
                         "64MiB",
                         "--log-level",
                         (char *)(uintptr_t)log_level(),
                         NULL};
    struct cairn_config *config = calloc(1, sizeof *config); /* its texts live with the process */
    int used = 0;
    CAIRN_TRY(cairn_config_init(config, cairn_up_settings_rows, cairn_up_settings_row_count,
                                &up->settings, err));
    CAIRN_TRY(cairn_config_load(config, (int)CAIRN_COUNT(arguments) - 1, arguments, &used, err));
    return cairn_up_settings_derive(&up->settings, &up->places, err);
}

static void *uploader_run(void *argument) {
    int node = (int)(intptr_t)argument;
    struct cairn_error err = {0};
    struct cairn_up *up = calloc(1, sizeof *up);
    enum cairn_code code = configure(up, node, &err);
    if (!code) code = cairn_up_start(up, &err);
    if (!code) {
        sim_world.up[node] = up;
        code = cairn_up_run(up, eventfd(0, EFD_CLOEXEC), &err);
    }
    sim_note("the uploader ended: %s", code ? err.message : "ok");
    sim_world.failed_starts++;
    sim_world.up[node] = NULL;
    sim_kill(sim_self());
    return NULL;
}

static void start_uploader(int node) {
    char name[24];
    snprintf(name, sizeof name, "node%d", node);
    sim_world.uploaders[node] = sim_process_new(SIM_UPLOADER, node, name);
    sim_world.uploaders[node]->kill_chance = 3;
    sim_world.up[node] = NULL;
    sim_spawn(sim_world.uploaders[node], uploader_run, (void *)(intptr_t)node);
}

void sim_world_kill_uploader(int node, uint64_t away_us) {
    sim_world.uploader_from_us[node] = sim_now_us() + away_us;
    sim_world.up[node] = NULL;
    struct sim_process *uploader = sim_world.uploaders[node];
    if (!uploader || !uploader->alive) return;
    sim_world.used |= SIM_BIT(UPLOADER_KILL);
    sim_kill(uploader);
}

/* ---- the supervisor ---- */

static void again(struct sim_process *process, uint64_t *from_us) {
    if (!process || process->alive || *from_us > sim_now_us()) return;
    *from_us = sim_now_us() + START_AGAIN_US;
    if (process->kind == SIM_SERVER) {
        sim_mhd_killed(process); /* it may have died by itself, at a crash point */
        start_server();
    } else {
        start_uploader(process->number);
    }
    sim_note("%s starts", process->name);
}

static void *supervise(void *unused) {
    (void)unused;
    for (;;) {
        if (sim_world.server && !sim_world.server->alive) sim_mhd_killed(sim_world.server);
        again(sim_world.server, &sim_world.server_from_us);
        for (int i = 0; i < SIM_NODES; i++)
            again(sim_world.uploaders[i], &sim_world.uploader_from_us[i]);
        if (sim_world.failed_starts > STARTS_FAILED_MAX) {
            sim_violation("V29: a process was started %d times and ended each time",
                          sim_world.failed_starts);
            sim_kernel_stop();
        }
        sim_sleep_us(SUPERVISOR_US);
    }
    return NULL;
}

void sim_world_heal(void) {
    for (int i = 0; i < SIM_NODES_MAX; i++) sim_ways[i] = (struct sim_way){.us_max = 300};
    sim_store_faults.lost = sim_store_faults.late = sim_store_faults.refused = 0;
    sim_store_faults.away_until_us = 0;
    sim_calls.crash_points = false;
    sim_kernel_stall(0, 0);
    sim_continue_all();
    for (int i = 0; i < SIM_NODES; i++)
        if (sim_world.uploaders[i]) sim_world.uploaders[i]->disk_full = false;
    sim_note("all faults are over");
    sim_spawn_alone(sim_self(), sim_check_ended, NULL);
}

/* ---- jobs ---- */

static void start_job(void) {
    if (sim_has(SIM_SERVER_KILL) && !sim_world.chaos_over && sim_chance(400))
        sim_world_kill_server(sim_between(100000, 1500000)); /* its ranks find nobody to ask */
    for (uint32_t i = 0; i < sim_plan.ranks; i++) {
        char name[24];
        snprintf(name, sizeof name, "rank%u", i);
        sim_world.ranks[i] = sim_process_new(SIM_TRAINER, (int)i, name);
        sim_world.ranks_running++;
        sim_world.ranks_training++;
        sim_world.training[i] = true;
        sim_spawn(sim_world.ranks[i], sim_trainer, (void *)(uintptr_t)i);
    }
}

void sim_world_kill_job(void) {
    if (sim_world.job + 1 >= (int)sim_plan.jobs) return; /* the last one lives */
    sim_world.used |= SIM_BIT(JOB_KILL);
    for (uint32_t i = 0; i < sim_plan.ranks; i++) sim_world_kill_rank(i);
}

void sim_world_trained(uint32_t rank) {
    if (!sim_world.training[rank]) return;
    sim_world.training[rank] = false;
    sim_world.ranks_training--;
}

void sim_world_kill_rank(uint32_t rank) {
    struct sim_process *process = sim_world.ranks[rank];
    if (!process || !process->alive) return;
    sim_world_trained(rank);
    sim_world.ranks_running--;
    sim_check_rank_ended(sim_world.job, rank);
    sim_kill(process);
}

/* Jobs but the last end by being killed. */
static void play_jobs(void) {
    for (sim_world.job = 0; sim_world.job + 1 < (int)sim_plan.jobs; sim_world.job++) {
        sim_stories_name_job();
        start_job();
        /* Some die while their ranks still open the attempt. */
        sim_sleep_us(sim_chance(400) ? sim_below(700000) : sim_between(200000, 6000000));
        sim_world_kill_job();
        sim_sleep_us(sim_below(sim_chance(500) ? 20000 : 500000));
    }
    sim_stories_name_job();
    start_job();
}

static bool await(bool (*is)(void), uint64_t within_us) {
    uint64_t until_us = sim_now_us() + within_us;
    while (!is()) {
        if (sim_now_us() > until_us) return false;
        sim_sleep_us(200000);
    }
    return true;
}

static bool all_is_done(void) {
    return !sim_world.ranks_training && sim_check_is_quiet();
}

static bool ranks_ended(void) {
    return !sim_world.ranks_running;
}

static void *read_latest(void *unused) {
    (void)unused;
    for (;;) {
        sim_sleep_us(300000);
        sim_check_latest();
    }
    return NULL;
}

/* Its mount is away, and comes back with the uploader's next start. */
static void *mount_comes_back(void *unused) {
    (void)unused;
    sim_sleep_us(sim_between(1000000, 5000000));
    sim_bucket_wrong_node = -1;
    sim_note("the mount is there");
    for (int i = 0; i < SIM_NODES; i++) sim_world_kill_uploader(i, 100000);
    return NULL;
}

static void make_folders(void) {
    char path[300];
    snprintf(path, sizeof path, "%s/state", sim_world.folder);
    if (cairn_dir_make(path, 0700, NULL) != CAIRN_OK) sim_violation("no folder %s", path);
}

void *sim_world_play(void *unused) {
    (void)unused;
    struct cairn_error err = {0};
    enum cairn_log_level level = CAIRN_LOG_ERROR;
    if (cairn_log_level_parse(log_level(), &level, &err) == CAIRN_OK)
        cairn_log_start("sim", level, STDERR_FILENO);
    make_folders();
    if (sim_has(SIM_WRONG_MOUNT)) {
        sim_bucket_wrong_node = (int)sim_below(SIM_NODES);
        sim_spawn_alone(sim_self(), mount_comes_back, NULL);
    }
    start_server();
    for (int i = 0; i < SIM_NODES; i++) start_uploader(i);
    sim_spawn(sim_self(), supervise, NULL);
    sim_spawn(sim_self(), read_latest, NULL);
    struct sim_fiber *chaos = sim_spawn(sim_self(), sim_chaos, NULL);
    sim_stories_start();
    play_jobs();
    (void)sim_join(chaos);
    sim_stories_end();
    sim_world_heal();
    sim_world.chaos_over = true;
    /* A resume may wait for as long as it was told to for a save that can no longer come. */
    uint64_t asked_us = sim_plan.wait_staged_ms * UINT64_C(1000);
    if (!await(all_is_done, SETTLE_US + asked_us)) sim_check_unrest();
    sim_world.told_to_end = true;
    if (!await(ranks_ended, JOB_US)) sim_violation("P9: ranks wait for ever");
    (void)await(sim_check_is_quiet, SETTLE_US);
    sim_check_end();
    (void)await(sim_rest_is_reached, REST_US);
    sim_rest_check();
    return NULL;
}
