/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world: the processes of one seed, what they do and what befalls them.
 *
 * Why:     one place that says what a seed means.
 * Promise: 1   everything that differs between two seeds is in struct sim_plan or drawn from
 *              sim_random.
 *          2   faults end before the ranks stop waiting: what is then not committed and not told
 *              is a violation.
 * Limits:  SIM_NODES nodes, SIM_RANKS_MAX ranks.
 * Threads: one (tests/sim/kernel.h).
 * Next:    chaos.c, stories.h, trainer.c, check.h.
 */
#pragma once

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/bucket.h"
#include "tests/sim/check.h"
#include "tests/sim/net.h"

#define SIM_NODES 2
#define SIM_RANKS_MAX 4
#define SIM_JOBS_MAX 4
#define SIM_RUN "lab/run"

enum sim_fault {
#define FAULT(name, what) SIM_##name,
#include "tests/sim/faults.def"
#undef FAULT
    SIM_FAULTS
};
const char *sim_fault_name(enum sim_fault fault);
#define SIM_BIT(name) (UINT64_C(1) << SIM_##name)

struct sim_plan {
    uint64_t seed;
    uint64_t faults; /* bits of enum sim_fault that this seed may use */
    uint32_t ranks, jobs, steps;
    uint64_t tensor_bytes, raw_bytes;
    uint64_t pause_us_max;     /* between a rank's saves */
    uint64_t chaos_us;         /* how long faults happen */
    uint64_t chaos_pause_us;   /* between two faults */
    uint32_t keep_handles;     /* per mille of the saves whose handle waits for the end */
    uint32_t strikes;          /* per mille of the saves after which an uploader is killed */
    uint32_t cancels;          /* per mille of the saves that are given up after the seal */
    bool parts;                /* shards of several parts */
    bool supersede, same_step; /* on_exists=supersede, and steps saved twice */
    bool incarnations;         /* the launcher tells the ranks which life of the job they are of */
    uint32_t wait_staged_ms;   /* 0: libcairn's own */
    bool behind;               /* saves are copied beside the training */
};
extern struct sim_plan sim_plan;

static inline bool sim_has(enum sim_fault fault) {
    return sim_plan.faults >> fault & 1;
}

struct sim_world {
    char folder[256];
    struct sim_process *server, *uploaders[SIM_NODES], *ranks[SIM_RANKS_MAX];
    struct cairn_up *up[SIM_NODES];
    bool server_wanted, uploader_wanted[SIM_NODES]; /* a supervisor starts them again */
    uint64_t server_from_us, uploader_from_us[SIM_NODES];
    int failed_starts;
    int job;
    bool backup, chaos_over, job_killed, uploader_killed, server_killed, told_to_end;
    bool training[SIM_RANKS_MAX];
    size_t ranks_running, ranks_training;
    int job_string; /* of the present job: the number of the job that bore it first */
    uint64_t used;  /* faults that did happen */
};
extern struct sim_world sim_world;

void sim_plan_make(uint64_t seed, uint64_t only, uint64_t never, uint64_t always);
void *sim_world_play(void *unused); /* the first fiber; its process has pid 1 */
int sim_node_of(uint32_t rank);
void sim_world_kill_server(uint64_t away_us);
void sim_world_kill_uploader(int node, uint64_t away_us);
void sim_world_kill_job(void);
void sim_world_kill_rank(uint32_t rank); /* its job goes on */
void sim_world_trained(uint32_t rank);
void sim_world_keep_backup(void);
void sim_world_heal(void);
void *sim_chaos(void *unused);
void *sim_trainer(void *rank);
