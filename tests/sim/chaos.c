/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls the processes, one thing after the other. */

#include "tests/sim/world.h"

#define AWAY_US_MAX UINT64_C(3000000)
#define TRIES_US UINT64_C(2100000) /* how long a journal tries to write a group, and more */
#define YEARS_MS (INT64_C(10) * 365 * 86400000)

static uint64_t away_us(void) {
    return sim_chance(500) ? sim_below(100000) : sim_below(AWAY_US_MAX);
}

static struct sim_process *any_process(void) {
    struct sim_process *all[1 + SIM_NODES + SIM_RANKS_MAX];
    size_t count = 0;
    all[count++] = sim_world.server;
    for (int i = 0; i < SIM_NODES; i++) all[count++] = sim_world.uploaders[i];
    for (uint32_t i = 0; i < sim_plan.ranks; i++) all[count++] = sim_world.ranks[i];
    struct sim_process *chosen = all[sim_below(count)];
    return chosen && chosen->alive ? chosen : NULL;
}

/* Something that is over by itself. */
struct spell {
    enum sim_fault fault;
    int node;
    struct sim_process *process;
};

static void set(const struct spell *spell, bool on) {
    if (spell->fault == SIM_CUT) sim_ways[spell->node].cut = on;
    if (spell->fault == SIM_FOREIGN) sim_ways[spell->node].foreign = on;
    bool disk = spell->fault == SIM_DISK_FULL || spell->fault == SIM_DISK_FULL_LONG;
    if (disk && spell->process) spell->process->disk_full = on;
    sim_note("%s of node %d %s", sim_fault_name(spell->fault), spell->node,
             on ? "begins" : "is over");
}

static void for_a_while(enum sim_fault fault) {
    int node = (int)sim_below(SIM_NODES);
    struct spell spell = {fault, node, sim_world.uploaders[node]};
    set(&spell, true);
    if (fault == SIM_DISK_FULL_LONG)
        sim_sleep_us(sim_between(TRIES_US, 2 * TRIES_US));
    else
        sim_sleep_us(fault == SIM_DISK_FULL ? sim_below(500000) : sim_below(2 * AWAY_US_MAX));
    set(&spell, false);
}

static void jump(struct sim_process *process) {
    if (!process) return;
    process->wall_offset_ms += (int64_t)sim_below(2 * (uint64_t)YEARS_MS) - YEARS_MS;
    sim_note("the clock of %s jumps", process->name);
}

static void happen(enum sim_fault fault) {
    struct sim_process *process = any_process();
    switch (fault) {
    case SIM_UPLOADER_KILL:
        sim_world_kill_uploader((int)sim_below(SIM_NODES), away_us());
        return;
    case SIM_BACKUP:
        sim_world_keep_backup();
        sim_sleep_us(sim_below(AWAY_US_MAX));
        sim_world_kill_server(away_us());
        return;
    case SIM_SERVER_KILL:
        sim_world_kill_server(away_us());
        return;
    case SIM_STOP:
        if (process) sim_stop(process, away_us());
        return;
    case SIM_CUT:
    case SIM_FOREIGN:
    case SIM_DISK_FULL:
    case SIM_DISK_FULL_LONG:
        for_a_while(fault);
        return;
    case SIM_STORE_AWAY:
        sim_store_faults.away_until_us = sim_now_us() + away_us();
        sim_note("the store is away");
        return;
    case SIM_CLOCK:
        jump(process);
        return;
    default:
        return; /* it is there all the time, or the jobs' own */
    }
}

void *sim_chaos(void *unused) {
    (void)unused;
    uint64_t until_us = sim_now_us() + sim_plan.chaos_us;
    while (sim_now_us() < until_us) {
        sim_sleep_us(sim_below(sim_plan.chaos_pause_us));
        enum sim_fault fault = (enum sim_fault)sim_below(SIM_FAULTS);
        for (int i = 0; i < SIM_FAULTS && !sim_has(fault); i++) fault = (fault + 1) % SIM_FAULTS;
        if (!sim_has(fault)) continue;
        sim_world.used |= UINT64_C(1) << fault;
        happen(fault);
    }
    return NULL;
}
