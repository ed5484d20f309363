/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed means. */
#include "tests/sim/world.h"

struct sim_plan sim_plan;

static const char *const fault_names[] = {
#define FAULT(name, what) #name,
#include "tests/sim/faults.def"
#undef FAULT
};

const char *sim_fault_name(enum sim_fault fault) {
    return fault_names[fault];
}

/* Half of the seeds have a few kinds of faults only, so that one kind is seen alone. */
static uint64_t draw_faults(void) {
    uint64_t faults = 0;
    uint64_t chance = sim_chance(500) ? 120 : 350;
    for (int i = 0; i < SIM_FAULTS; i++)
        if (sim_chance(chance)) faults |= UINT64_C(1) << i;
    return faults;
}

static void plan_store(void) {
    struct sim_store_faults *faults = &sim_store_faults;
    *faults = (struct sim_store_faults){.us_min = 50,
                                        .us_max = sim_chance(500) ? 2000 : 30000,
                                        .record_us_max = sim_has(SIM_RECORD_LAG) ? 2000000 : 0,
                                        .head_us_max = sim_has(SIM_SLOW_HEAD) ? 60000 : 0,
                                        .lost = sim_has(SIM_LOST) ? 20 : 0,
                                        .late = sim_has(SIM_LATE) ? 10 : 0,
                                        .refused = sim_has(SIM_REFUSED) ? 20 : 0,
                                        .keeps_tokens = !sim_has(SIM_NO_TOKEN),
                                        .checks_crc = !sim_has(SIM_NO_CRC),
                                        .create_only = sim_chance(700) || sim_has(SIM_UPGRADE),
                                        .lists_uploads = true};
    sim_bucket.page_entries = sim_chance(300) ? 3 : 1000;
}

static void plan_ways(void) {
    for (int i = 0; i < SIM_NODES_MAX; i++)
        sim_ways[i] = (struct sim_way){.us_max = sim_chance(500) ? 300 : 5000,
                                       .lost = sim_has(SIM_LOST) && i < SIM_NODES ? 20 : 0,
                                       .late = sim_has(SIM_LATE) && i < SIM_NODES ? 10 : 0};
    sim_calls = (struct sim_calls){.fsync_us_max = sim_chance(500) ? 500 : 10000,
                                   .copy_us_max = sim_has(SIM_SLOW_COPY) ? 3000000 : 0,
                                   .crash_points = sim_has(SIM_CRASH_POINT)};
}

/* What befalls a job that is followed by another, or the other, needs both. */
static void plan_jobs(struct sim_plan *plan) {
    if (sim_has(SIM_JOB_KILL)) plan->jobs = (uint32_t)sim_between(2, 3);
    if (sim_has(SIM_KEY_CHANGED) && plan->jobs < 2) plan->jobs = 2;
    if (sim_has(SIM_LONG_AWAY)) {
        plan->jobs = 2;
        plan->wait_staged_ms = 600000;
    }
    if (sim_has(SIM_REUSED_JOB)) {
        plan->jobs = 3;
        plan->incarnations = sim_has(SIM_BACKUP) || sim_chance(500);
    }
}

static void plan_threads(void) {
    if (sim_has(SIM_BUSY)) sim_kernel_stall(sim_chance(500) ? 10 : 200, 100000);
}

void sim_plan_make(uint64_t seed, uint64_t only, uint64_t never, uint64_t always) {
    struct sim_plan *plan = &sim_plan;
    *plan = (struct sim_plan){.seed = seed,
                              .ranks = sim_chance(700)   ? 4
                                       : sim_chance(500) ? 2
                                                         : 3,
                              .jobs = (uint32_t)sim_between(1, 2),
                              .steps = (uint32_t)sim_between(3, 7)};
    plan->faults = ((only ? only & draw_faults() : draw_faults()) | always) & ~never;
    plan_jobs(plan);
    plan->parts = sim_chance(60);
    plan->tensor_bytes = plan->parts ? CAIRN_MIB * 5 / 2 : sim_between(1, 3000) * 4;
    plan->tensor_bytes -= plan->tensor_bytes % 4;
    plan->raw_bytes = sim_between(1, 9000);
    plan->pause_us_max = sim_chance(500) ? 50000 : 800000;
    plan->chaos_us = sim_between(1000000, 8000000);
    plan->chaos_pause_us = sim_between(50000, 1500000);
    plan->keep_handles = sim_chance(500) ? 0 : sim_chance(500) ? 1000 : 400;
    plan->strikes = sim_chance(500) ? 150 : 0;
    plan->cancels = sim_has(SIM_CANCEL) ? 150 : 0;
    plan->same_step = sim_chance(150);
    plan->supersede = plan->same_step && sim_chance(700);
    plan_store();
    plan_ways();
    plan_threads();
}
