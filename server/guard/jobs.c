/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules commits and sweeps, and keeps the leases of jobs; see jobs.h. */
#include "server/guard/jobs.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/process.h"
#include "server/http/waiters.h"

/* Commits share transactions of the catalog and wait for the store in parallel. */
#define COMMITS_AT_ONCE 16
#define LARGE_AT_ONCE 2
#define LARGE_BYTES (8 * CAIRN_MIB)
#define IN_WORK_MAX 65536
#define RETRY_MS_MIN 500
#define RETRY_MS_MAX 30000
#define AGAIN_MS 500 /* after a round that met a comparison: after a start, commits wait for it */
#define ROUND_MS_MAX 30000 /* catalog ticks add at most 60 s at a time (Q34) */
#define DELAYED "its commit is tried again: "

struct job {
    struct srv_task task; /* must be first */
    struct srv *server;
    char id[CAIRN_VERSION_ID_BYTES];
    bool again;
    uint64_t pause_ms;
    enum cairn_code last;
    char stuck[400];   /* Q53: why an operator must act, or ""; under the lock */
    char delayed[400]; /* why it is retried, or ""; under the lock */
    struct job *next;
};
struct srv_jobs {
    struct srv *server;
    struct srv_pool *commits;
    struct cairn_store_worker *sweeper;
    struct srv_work work;
    struct cairn_thread thread;
    struct cairn_lock lock;
    struct cairn_condition room;
    struct {
        struct job *jobs;
        size_t count;
        unsigned large;
    } locked;
};

static void run_job(struct srv_task *task, struct cairn_store_worker *worker);
static void drop_job(struct srv_task *task);

static void forget_job(struct srv_jobs *jobs, struct job *job) {
    struct job **at = &jobs->locked.jobs;
    while (*at && *at != job) at = &(*at)->next;
    CAIRN_ASSERT(*at);
    CAIRN_ASSERT(jobs->locked.count > 0);
    *at = job->next;
    jobs->locked.count--;
}

static void drop_job(struct srv_task *task) {
    struct job *job = (struct job *)task;
    struct srv_jobs *jobs = job->server->jobs;
    {
        CAIRN_HOLD(&jobs->lock);
        forget_job(jobs, job);
    }
    free(job);
}

/* After a run: frees the job, or queues it again, at once or after a pause. */
static void settle(struct job *job, enum cairn_code code) {
    struct srv_jobs *jobs = job->server->jobs;
    bool over = false;
    {
        CAIRN_HOLD(&jobs->lock);
        over = !code && !job->again;
        if (over) forget_job(jobs, job);
        if (!code) job->pause_ms = 0;
        job->again = false;
    }
    if (over) {
        free(job);
        return;
    }
    if (code) job->pause_ms = job->pause_ms ? 2 * job->pause_ms : RETRY_MS_MIN;
    job->pause_ms = cairn_min_u64(job->pause_ms, RETRY_MS_MAX);
    uint64_t now_ms = jobs->commits ? cairn_mono_ms() : srv_mono_ms(job->server);
    job->task.due_ms = code ? now_ms + job->pause_ms : 0;
    if (!jobs->commits) return; /* idle: it stays in the list */
    if (!srv_pool_push(jobs->commits, &job->task)) drop_job(&job->task);
}

static void run_job(struct srv_task *task, struct cairn_store_worker *worker) {
    struct job *job = (struct job *)task;
    struct cairn_error err = {0};
    enum cairn_code code = job->server->jobs->work.commit(job->server, worker, job->id, &err);
    if (code == CAIRN_CONFLICT && code != job->last)
        cairn_log(ERROR, "commit.manifest_differs", "version=%s cause=\"%s\"", job->id,
                  err.message);
    else if (code && code != job->last && code != CAIRN_CANCELLED)
        cairn_log(WARN, "commit.delayed", "version=%s cause=\"%s\"", job->id, err.message);
    job->last = code;
    {
        CAIRN_HOLD(&job->server->jobs->lock);
        bool again = code && code != CAIRN_CANCELLED && code != CAIRN_NOT_FOUND;
        snprintf(job->stuck, sizeof(job->stuck), "%s", code == CAIRN_CONFLICT ? err.message : "");
        snprintf(job->delayed, sizeof(job->delayed), "%s", again ? err.message : "");
    }
    settle(job, code == CAIRN_NOT_FOUND || code == CAIRN_CATALOG_BEHIND ? CAIRN_OK : code);
}

void srv_jobs_commit(struct srv *server, const char *version_id) {
    struct srv_jobs *jobs = server->jobs;
    struct job *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) return; /* the next sweep finds the version */
    fresh->server = server;
    fresh->task.run = run_job;
    fresh->task.drop = drop_job;
    snprintf(fresh->id, sizeof(fresh->id), "%s", version_id);
    {
        CAIRN_HOLD(&jobs->lock);
        struct job *known = jobs->locked.jobs;
        while (known && strcmp(known->id, version_id)) known = known->next;
        if (known) known->again = true;
        if (known || jobs->locked.count >= IN_WORK_MAX) {
            free(fresh);
            return;
        }
        fresh->next = jobs->locked.jobs;
        jobs->locked.jobs = fresh;
        jobs->locked.count++;
    }
    if (!jobs->commits) return; /* idle */
    if (!srv_pool_push(jobs->commits, &fresh->task)) drop_job(&fresh->task);
}

size_t srv_jobs_step(struct srv_jobs *jobs, struct cairn_store_worker *worker) {
    CAIRN_ASSERT(!jobs->commits);
    size_t count = 0;
    uint64_t now_ms = srv_mono_ms(jobs->server);
    struct job *next = NULL;
    for (struct job *job = jobs->locked.jobs; job; job = next) {
        next = job->next;
        if (job->task.due_ms > now_ms) continue;
        run_job(&job->task, worker);
        count++;
    }
    return count;
}

size_t srv_jobs_stuck(struct srv *server, char ret[SRV_STUCK_BYTES]) {
    struct srv_jobs *jobs = server->jobs;
    size_t count = 0;
    ret[0] = '\0';
    CAIRN_HOLD(&jobs->lock);
    for (const struct job *job = jobs->locked.jobs; job; job = job->next) {
        if (!job->stuck[0]) continue;
        if (!count++)
            snprintf(ret, SRV_STUCK_BYTES, "%s cannot be committed: %s", job->id, job->stuck);
    }
    return count;
}

bool srv_jobs_stuck_of(struct srv *server, const char *version, char ret[SRV_STUCK_BYTES]) {
    struct srv_jobs *jobs = server->jobs;
    CAIRN_HOLD(&jobs->lock);
    for (const struct job *job = jobs->locked.jobs; job; job = job->next) {
        if (strcmp(job->id, version) != 0) continue;
        const char *why = job->stuck[0] ? job->stuck : job->delayed;
        snprintf(ret, SRV_STUCK_BYTES, "%s%s", job->stuck[0] || !*why ? "" : DELAYED, why);
        return *why != '\0';
    }
    return false;
}

bool srv_jobs_take_room(struct srv *server, uint64_t bytes) {
    struct srv_jobs *jobs = server->jobs;
    if (bytes < LARGE_BYTES || !jobs->commits) return false; /* an idle one has one thread */
    CAIRN_HOLD(&jobs->lock);
    while (jobs->locked.large == LARGE_AT_ONCE)
        (void)cairn_condition_wait(&jobs->room, &jobs->lock, UINT64_MAX);
    CAIRN_ASSERT(jobs->locked.large < LARGE_AT_ONCE);
    jobs->locked.large++;
    return true;
}

void srv_jobs_give_room(struct srv *server) {
    struct srv_jobs *jobs = server->jobs;
    CAIRN_HOLD(&jobs->lock);
    CAIRN_ASSERT(jobs->locked.large > 0);
    jobs->locked.large--;
    cairn_condition_signal(&jobs->room);
}

void srv_jobs_sweep(struct srv *server) {
    if (server->jobs->thread.started) cairn_thread_wake(&server->jobs->thread);
}

static void sweep_loop(struct cairn_thread *thread, void *owner) {
    struct srv_jobs *jobs = owner;
    uint64_t round_ms = cairn_min_u64(jobs->server->settings->sweep_interval_ms, ROUND_MS_MAX);
    bool soon = false;
    do {
        soon = jobs->work.sweep(jobs->server->sweep, jobs->sweeper);
    } while (cairn_thread_wait(thread, cairn_mono_ms() + (soon ? AGAIN_MS : round_ms)));
    if (jobs->work.leave) jobs->work.leave(jobs->server->sweep, jobs->sweeper);
}

enum cairn_code srv_jobs_new_idle(struct srv *server, const struct srv_work *work,
                                  struct srv_jobs **ret, struct cairn_error *err) {
    struct srv_jobs *jobs = calloc(1, sizeof(*jobs));
    if (!jobs) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for jobs");
    jobs->server = server;
    jobs->work = *work;
    cairn_lock_init(&jobs->lock, CAIRN_LOCK_server_jobs);
    cairn_condition_init(&jobs->room);
    *ret = jobs;
    return CAIRN_OK;
}

enum cairn_code srv_jobs_new(struct srv *server, const struct srv_work *work, struct srv_jobs **ret,
                             struct cairn_error *err) {
    struct srv_jobs *jobs = NULL;
    CAIRN_TRY(srv_jobs_new_idle(server, work, &jobs, err));
    struct srv_pool_options options = {server->store, COMMITS_AT_ONCE, "commit", 0};
    enum cairn_code code = srv_pool_new(&options, &jobs->commits, err);
    if (!code) code = cairn_store_worker_new(server->store, &jobs->sweeper, err);
    *ret = jobs;
    server->jobs = jobs;
    jobs->thread = (struct cairn_thread){.name = "cairn-sweep", .run = sweep_loop, .owner = jobs};
    if (!code) code = cairn_thread_start(&jobs->thread, err);
    if (!code) return CAIRN_OK;
    srv_jobs_free(jobs);
    *ret = server->jobs = NULL;
    return code;
}

void srv_jobs_free(struct srv_jobs *jobs) {
    if (!jobs) return;
    cairn_thread_stop(&jobs->thread);
    srv_pool_free(jobs->commits);
    while (jobs->locked.jobs) { /* of an idle one; the pool dropped the others */
        struct job *job = jobs->locked.jobs;
        forget_job(jobs, job);
        free(job);
    }
    if (jobs->sweeper) cairn_store_worker_free(jobs->sweeper);
    cairn_condition_release(&jobs->room);
    cairn_lock_release(&jobs->lock);
    free(jobs);
}

struct srv_leases {
    struct srv *server;
    struct cairn_thread thread;
    _Atomic uint64_t held;
};

static bool is_needed(const struct srv *server) {
    return srv_catalog_is_shareable(server->catalog);
}

static struct srv_holder holder_of(const struct srv_lease *lease) {
    return (struct srv_holder){.job = lease->job,
                               .server = srv_catalog_server(lease->server->catalog),
                               .fence = lease->fence};
}

SRV_CHANGE(renew, struct srv *server) {
    CAIRN_TRY(srv_ticks_advance(tx, server, err));
    uint64_t until = srv_ticks_after(server, server->settings->job_lease_ms);
    return srv_lease_rows_renew(tx, srv_catalog_server(server->catalog), until, err);
}

static void renew_loop(struct cairn_thread *thread, void *owner) {
    struct srv_leases *leases = owner;
    uint64_t every_ms = leases->server->settings->job_lease_ms / 3;
    while (cairn_thread_wait(thread, cairn_mono_ms() + every_ms)) {
        struct cairn_error why = {0};
        if (!leases->held) continue;
        if (srv_catalog_write(leases->server->catalog, renew, leases->server, &why))
            cairn_log(WARN, "lease.not_renewed", "cause=\"%s\"", why.message);
    }
}

enum cairn_code srv_leases_new(struct srv *server, struct srv_leases **ret,
                               struct cairn_error *err) {
    struct srv_leases *leases = calloc(1, sizeof(*leases));
    if (!leases) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for leases");
    leases->server = server;
    leases->thread =
        (struct cairn_thread){.name = "cairn-leases", .run = renew_loop, .owner = leases};
    enum cairn_code code = is_needed(server) ? cairn_thread_start(&leases->thread, err) : CAIRN_OK;
    if (code)
        free(leases);
    else
        *ret = leases;
    return code;
}

void srv_leases_free(struct srv_leases *leases) {
    if (!leases) return;
    if (leases->thread.started) cairn_thread_stop(&leases->thread);
    free(leases);
}

void srv_lease_init(struct srv_lease *lease, struct srv *server, const char *kind, const char *id) {
    *lease = (struct srv_lease){.server = server};
    snprintf(lease->job, sizeof(lease->job), "%s/%s", kind, id);
}

static void count(const struct srv_lease *lease, int64_t more) {
    if (!lease->server->leases) return;
    uint64_t before = atomic_fetch_add(&lease->server->leases->held, (uint64_t)more);
    CAIRN_ASSERT(more > 0 || before > 0); /* renewed while any is held */
}

SRV_CHANGE(try_to_take, struct srv_lease *lease) {
    struct srv_holder holder = holder_of(lease);
    struct srv_lease_row found;
    bool taken = false;
    /* srv_lease_take_expect announced this read */
    CAIRN_TRY(srv_lease_row_find(tx, lease->job, &found, err));
    CAIRN_TRY(srv_ticks_advance(tx, lease->server, err));
    uint64_t now = srv_ticks_now(lease->server);
    uint64_t until = srv_ticks_after(lease->server, lease->server->settings->job_lease_ms);
    CAIRN_TRY(srv_lease_row_take(tx, &holder, &found, now, until, &taken, err));
    if (taken && !lease->held) count(lease, 1);
    lease->held |= taken;
    lease->fence = holder.fence;
    return CAIRN_OK;
}

static enum cairn_code taken_by_another(const struct srv_lease *lease, struct cairn_error *err) {
    return cairn_fail(err, CAIRN_BUSY, "another server works on %s", lease->job);
}

enum cairn_code srv_lease_check_expect(struct srv_tx *tx, const struct srv_lease *lease,
                                       struct cairn_error *err) {
    if (!lease || !lease->held || !is_needed(lease->server)) return CAIRN_OK;
    struct srv_holder holder = holder_of(lease);
    return srv_lease_row_is_expect(tx, &holder, err);
}

enum cairn_code srv_lease_take_expect(struct srv_tx *tx, const struct srv_lease *lease,
                                      struct cairn_error *err) {
    if (!is_needed(lease->server)) return CAIRN_OK;
    CAIRN_TRY(srv_lease_row_expect(tx, lease->job, err));
    return srv_tick_expect(tx, err);
}

enum cairn_code srv_lease_take_in(struct srv_tx *tx, struct srv_lease *lease,
                                  struct cairn_error *err) {
    if (!is_needed(lease->server)) return CAIRN_OK;
    return try_to_take(tx, lease, err);
}

enum cairn_code srv_lease_take(struct srv_lease *lease, struct cairn_error *err) {
    if (!is_needed(lease->server) || lease->held) return CAIRN_OK;
    CAIRN_TRY(srv_catalog_write(lease->server->catalog, try_to_take, lease, err));
    return lease->held ? CAIRN_OK : taken_by_another(lease, err);
}

enum cairn_code srv_lease_check(struct srv_tx *tx, const struct srv_lease *lease,
                                struct cairn_error *err) {
    if (!lease || !is_needed(lease->server)) return CAIRN_OK;
    struct srv_holder holder = holder_of(lease);
    bool ours = false;
    if (lease->held) CAIRN_TRY(srv_lease_row_is(tx, &holder, &ours, err));
    return ours ? CAIRN_OK : taken_by_another(lease, err);
}

enum cairn_code srv_lease_still(const struct srv_lease *lease, struct cairn_error *err) {
    if (!lease || !is_needed(lease->server)) return CAIRN_OK;
    SRV_LOOK(look, lease->server->catalog, err);
    return srv_lease_check(look.tx, lease, err);
}

SRV_CHANGE(drop, const struct srv_lease *lease) {
    struct srv_holder holder = holder_of(lease);
    return srv_lease_row_drop(tx, &holder, err);
}

enum cairn_code srv_lease_drop_in(struct srv_tx *tx, struct srv_lease *lease,
                                  struct cairn_error *err) {
    if (!lease || !lease->held) return CAIRN_OK;
    return drop(tx, lease, err);
}

void srv_lease_end(struct srv_lease *lease) {
    if (!lease->held) return;
    lease->held = false;
    count(lease, -1);
    if (lease->dropped) return;
    /* If this fails, the lease expires. */
    (void)!srv_catalog_write(lease->server->catalog, drop, lease, NULL);
}

/* ---- catalog time ---- */

#define TICK_STEP_MS_MAX 60000

enum cairn_code srv_ticks_advance(struct srv_tx *tx, struct srv *server, struct cairn_error *err) {
    struct srv_ticks *found = &server->ticks;
    uint64_t tick = srv_tick(tx);
    const struct cairn_clock *clock = server->clock;
    uint64_t boot_ms = clock->boot_ms(clock);
    uint64_t step_ms = cairn_min_u64(boot_ms - found->seen_boot_ms, TICK_STEP_MS_MAX);
    if (found->seen_tick != tick) {
        found->uncounted_ms = is_needed(server) ? step_ms : 0;
        found->seen_tick = tick;
        found->seen_boot_ms = boot_ms;
        return CAIRN_OK;
    }
    CAIRN_TRY(srv_tick_raise(tx, tick, step_ms, err)); /* no concurrent transaction (E1) */
    found->seen_tick = tick + step_ms;
    found->seen_boot_ms = boot_ms;
    if (step_ms) found->uncounted_ms = 0; /* the others see that the value has changed */
    return CAIRN_OK;
}

uint64_t srv_ticks_now(const struct srv *server) {
    return server->ticks.seen_tick;
}

/* Another server has raised the value since this one saw it, at a moment that this one does not
 * know, and adds the time since then when it looks next. */
uint64_t srv_ticks_after(const struct srv *server, uint64_t ms) {
    return server->ticks.seen_tick + ms + server->ticks.uncounted_ms;
}
