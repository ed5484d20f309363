/* SPDX-License-Identifier: Apache-2.0 */
/* One rank: it saves its steps with libcairn, never waits for a save before the next one, and at
 * the end listens until it knows how each of them ended. */

#include <cairn/poll.h>
#include <cairn/stage.h>

#include "api/documents/digest.h"
#include "client/session/session.h"
#include "common/text.h"
#include "tests/sim/rest.h"
#include "tests/sim/world.h"

#define OPEN_TRIES 60
#define LISTEN_US UINT64_C(150000000)
#define LOOK_US 200000
#define NEVER_US UINT64_C(1000000000000)
#define STEP_US_MAX 60000     /* of training beside a copy */
#define LAST_WORDS_US 3000000 /* more than libcairn's longest pause between two tries */

struct kept {
    struct cairn_save *handle;
    struct sim_save *save;
    bool given_up; /* and no uploader has answered: only at the end the handle must know */
};
struct rank {
    uint32_t number;
    struct cairn_session *session;
    struct sim_save *own[64]; /* its saves of this job */
    size_t own_count;
    struct kept kept[64];
    size_t kept_count;
    uint8_t *tensor, *raw;
};

/* ---- what it is told ---- */

static void note_told(struct sim_save *save, const struct cairn_error *err) {
    save->told = true;
    snprintf(save->words, sizeof save->words, "%.190s", err->message);
    sim_note("rank %u is told of step %" PRIu64 ": %s", save->rank, save->step, save->words);
}

/* A background failure names its save: step, rank, and n from the step's second save on. */
static void note_words(struct rank *rank, const struct cairn_error *err) {
    for (size_t i = 0; i < rank->own_count; i++) {
        struct sim_save *save = rank->own[i];
        char name[60];
        uint32_t n = 0;
        for (size_t k = 0; k <= i; k++) n += rank->own[k]->step == save->step;
        int size = snprintf(name, sizeof name, "step %" PRIu64 " rank %u", save->step, save->rank);
        if (n > 1) snprintf(name + size, sizeof name - (size_t)size, " n %u", n);
        const char *at = strstr(err->message, name);
        if (!at || at[strlen(name)] != ':') continue;
        note_told(save, err);
        return;
    }
    sim_note("rank %u is told: %s", rank->number, err->message);
}

static void listen(struct rank *rank) {
    struct cairn_error err = {0};
    for (int i = 0; i < 64 && cairn_session_problem(rank->session, &err) != CAIRN_OK; i++) {
        note_words(rank, &err);
        memset(&err, 0, sizeof err);
    }
}

/* ---- one save ---- */

static enum cairn_code describe(struct rank *rank, struct cairn_save *handle,
                                struct cairn_error *err) {
    uint64_t count = sim_plan.tensor_bytes / 4;
    uint64_t shape[1] = {count * sim_plan.ranks}, start[1] = {count * rank->number};
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = "w",
                                       .dtype = "U32",
                                       .dimension_count = 1,
                                       .shape = shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_BOX,
                                       .start = start,
                                       .count = &count,
                                       .source = rank->tensor,
                                       .source_bytes = sim_plan.tensor_bytes};
    enum cairn_code code = cairn_save_tensor(handle, &piece, err);
    if (code) return code;
    return cairn_save_raw(handle, "state", rank->raw, sim_plan.raw_bytes, err);
}

static bool can_kill_uploader(void) {
    return !sim_world.chaos_over && sim_has(SIM_UPLOADER_KILL);
}

/* True: no uploader has answered yet. */
static bool give_up(struct rank *rank, struct cairn_save *handle, struct sim_save *save) {
    struct cairn_error err = {0};
    sim_sleep_us(sim_below(30000));
    if (can_kill_uploader() && sim_chance(500))
        sim_world_kill_uploader(sim_node_of(rank->number), sim_below(300000));
    enum cairn_code code = cairn_save_fail(handle, "the rank gives it up", &err);
    sim_note("rank %u gives step %" PRIu64 " up: %s", rank->number, save->step,
             code ? err.message : "ok");
    if (code == CAIRN_ALREADY_COMMITTED) sim_check_told_committed(save);
    save->gave_up = true;
    save->cancelled = code == CAIRN_OK;
    if (code != CAIRN_ALREADY_COMMITTED) save->told = true;
    return code != CAIRN_OK && code != CAIRN_ALREADY_COMMITTED;
}

static void end_of_stage(struct rank *rank, struct cairn_save *handle, struct sim_save *save,
                         enum cairn_code code, const struct cairn_error *err) {
    sim_note("rank %u staged step %" PRIu64 " %s: %s", rank->number, save->step, save->version,
             code ? err->message : "ok");
    if (code == CAIRN_UPLOADER_GONE)
        sim_violation("P4: step %" PRIu64 " was copied, and is told as gone", save->step);
    if (code) {
        note_told(save, err);
        cairn_save_free(handle);
        return;
    }
    struct cairn_save_status status;
    cairn_save_status(handle, &status);
    save->staged = true;
    save->sealed = status.reached >= CAIRN_STAGED;
    if (!sim_plan.behind && !save->sealed && !status.away && !cairn_save_over(handle, NULL))
        sim_violation("Q43: step %" PRIu64 " is neither sealed nor away", save->step);
    if (status.away && save->sealed)
        sim_violation("Q43: step %" PRIu64 " is sealed and away", save->step);
    if (can_kill_uploader() && sim_chance(sim_plan.strikes)) {
        sim_sleep_us(sim_below(60000)); /* sealed, being sent, not durable or not registered */
        sim_world_kill_uploader(sim_node_of(rank->number), sim_below(300000));
    }
    bool unanswered = sim_chance(sim_plan.cancels) && give_up(rank, handle, save);
    bool keep = sim_chance(sim_plan.keep_handles);
    if (keep || unanswered)
        rank->kept[rank->kept_count++] = (struct kept){handle, save, unanswered};
    else
        cairn_save_free(handle);
}

/* As every side derives it (Q1): where no uploader has named it yet, nobody else can say. */
static void name_version(const struct rank *rank, struct sim_save *save) {
    struct cairn_version_origin origin = {.attempt = rank->session->attempt, .step = save->step};
    struct cairn_version_id id;
    struct cairn_error err = {0};
    for (size_t i = 0; i < rank->own_count; i++) origin.n += rank->own[i]->step == save->step;
    if (!cairn_text_copy(origin.nonce, sizeof origin.nonce, rank->session->nonce)) return;
    if (cairn_run_name_parse(SIM_RUN, &origin.name, &err) != CAIRN_OK) return;
    cairn_version_id_make(&origin, &id);
    snprintf(save->version, sizeof save->version, "%s", id.text);
}

/* Training goes on until the fence, and overwrites the sources right behind it. The seal may be
 * told then, or be the session's to tell. */
static enum cairn_code stage_behind(struct rank *rank, struct cairn_save *handle,
                                    struct cairn_error *err) {
    enum cairn_code code = cairn_save_stage_begin(handle, err);
    if (code) return code;
    sim_sleep_us(sim_below(STEP_US_MAX));
    while ((code = cairn_save_fence(handle, 0, err)) == CAIRN_TIMEOUT) continue;
    memset(rank->tensor, 0xa5, sim_plan.tensor_bytes);
    memset(rank->raw, 0xa5, sim_plan.raw_bytes);
    if (code) return code;
    code = cairn_save_poll(handle, CAIRN_STAGED, err);
    return code == CAIRN_TIMEOUT || code == CAIRN_UPLOADER_GONE ? CAIRN_OK : code;
}

static enum cairn_code stage(struct rank *rank, struct cairn_save *handle,
                             struct cairn_error *err) {
    return sim_plan.behind ? stage_behind(rank, handle, err) : cairn_save_stage(handle, err);
}

static void save_step(struct rank *rank, uint64_t step) {
    struct sim_save *save = sim_save_new(sim_world.job, rank->number, step);
    if (!save || rank->own_count == CAIRN_COUNT(rank->own)) return;
    rank->own[rank->own_count++] = save;
    sim_content_fill(rank->tensor, sim_plan.tensor_bytes, save->content);
    sim_content_fill(rank->raw, sim_plan.raw_bytes, save->content + 1);
    struct cairn_save_options options = {.size = sizeof(struct cairn_save_options),
                                         .on_exists = sim_plan.supersede ? CAIRN_EXISTS_SUPERSEDE
                                                                         : CAIRN_EXISTS_ERROR};
    struct cairn_error err = {0};
    struct cairn_save *handle = NULL;
    enum cairn_code code = cairn_save_begin(rank->session, step, &options, &handle, &err);
    if (code) {
        note_told(save, &err);
        return;
    }
    struct cairn_save_status status;
    cairn_save_status(handle, &status);
    name_version(rank, save);
    if (status.version[0] && strcmp(status.version, save->version) != 0)
        sim_violation("Q1: step %" PRIu64 " is %s, and told as %s", step, save->version,
                      status.version);
    code = describe(rank, handle, &err);
    if (!code) code = stage(rank, handle, &err);
    end_of_stage(rank, handle, save, code, &err);
    memset(rank->tensor, 0xee, sim_plan.tensor_bytes); /* training goes on */
}

/* ---- the end ---- */

static bool knows_all(const struct rank *rank) {
    for (size_t i = 0; i < rank->own_count; i++)
        if (!rank->own[i]->told && !rank->own[i]->committed) return false;
    for (size_t i = 0; i < rank->kept_count; i++)
        if (rank->kept[i].given_up) return false;
    return true;
}

/* Q44: given up while no uploader answered; by now one has, and the handle says what holds. */
static void ask_given_up(struct rank *rank) {
    for (size_t i = 0; i < rank->kept_count; i++) {
        struct kept *kept = &rank->kept[i];
        if (!kept->given_up) continue;
        enum cairn_code code = cairn_save_wait(kept->handle, CAIRN_COMMITTED, 100, NULL);
        sim_note("rank %u gave step %" PRIu64 " up; in the end it is %s", rank->number,
                 kept->save->step, code ? "given up" : "committed");
        if (code == CAIRN_OK) sim_check_told_committed(kept->save);
        kept->save->cancelled = code != CAIRN_OK;
    }
}

static void ask_kept(struct rank *rank) {
    for (size_t i = 0; i < rank->kept_count; i++) {
        struct kept *kept = &rank->kept[i];
        struct cairn_error err = {0};
        if (!kept->handle || kept->given_up) continue;
        enum cairn_code code = cairn_save_wait(kept->handle, CAIRN_COMMITTED, 100, &err);
        if (code == CAIRN_TIMEOUT || code == CAIRN_UPLOADER_GONE) continue;
        sim_note("rank %u, step %" PRIu64 " ended: %s", rank->number, kept->save->step,
                 code ? err.message : "committed");
        if (code)
            note_told(kept->save, &err);
        else
            sim_check_told_committed(kept->save);
        cairn_save_free(kept->handle);
        kept->handle = NULL;
    }
}

/* Not told yet and no handle: the rank cannot know that it was committed, so it listens on. */
static void listen_to_the_end(struct rank *rank) {
    uint64_t until_us = sim_now_us() + LISTEN_US;
    while (sim_now_us() < until_us && !knows_all(rank)) {
        ask_kept(rank);
        listen(rank);
        if (sim_world.told_to_end) break;
        sim_sleep_us(LOOK_US);
    }
    sim_sleep_us(LAST_WORDS_US); /* the uploader has said it, the socket brings it */
    ask_kept(rank);
    ask_given_up(rank);
    listen(rank);
    for (size_t i = 0; i < rank->kept_count; i++) cairn_save_free(rank->kept[i].handle);
}

static enum cairn_code open_session(struct rank *rank, struct cairn_resume *resume) {
    char job[32], path[300];
    snprintf(job, sizeof job, "job-%d", sim_world.job_string);
    snprintf(path, sizeof path, "%s/node%d.sock", sim_world.folder, sim_node_of(rank->number));
    uint64_t bytes = sim_plan.tensor_bytes + sim_plan.raw_bytes + 16 * CAIRN_KIB;
    uint32_t node = (uint32_t)sim_node_of(rank->number);
    uint32_t local = (sim_plan.ranks + SIM_NODES - 1 - node) / SIM_NODES;
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = SIM_RUN,
                                         .job = job,
                                         .rank = rank->number,
                                         .world_size = sim_plan.ranks,
                                         .local_world_size = local,
                                         .local_rank = rank->number / SIM_NODES,
                                         .bytes = bytes,
                                         .socket = path,
                                         .wait_staged_ms = sim_plan.wait_staged_ms,
                                         .timeout_ms = 20000};
    enum cairn_code code = CAIRN_OK;
    for (int i = 0; i < OPEN_TRIES; i++) {
        struct cairn_error err = {0};
        code = cairn_open(&options, &rank->session, resume, &err);
        sim_note("rank %u opens: %s", rank->number, code ? err.message : "ok");
        if (!code || code == CAIRN_STALE_ATTEMPT || code == CAIRN_JOB_REUSED) return code;
        sim_sleep_us(500000);
    }
    return code;
}

static void train(struct rank *rank, const struct cairn_resume *resume) {
    uint64_t first = resume->found ? resume->step + 1 : 1;
    for (uint64_t i = 0; i < sim_plan.steps; i++) {
        uint64_t step = first + (sim_plan.same_step ? i / 2 : i);
        sim_sleep_us(sim_below(sim_plan.pause_us_max));
        listen(rank);
        save_step(rank, step);
    }
    sim_sleep_us(sim_below(sim_plan.pause_us_max));
}

/* Of an incarnation whose job string is used again one rank is never seen (V38). */
static uint64_t late_us(uint32_t rank) {
    if (rank + 1 != sim_plan.ranks) return 0;
    if (sim_has(SIM_REUSED_JOB) && !sim_world.job) return NEVER_US;
    return sim_has(SIM_LATE_RANK) ? sim_below(2000000) : 0;
}

void *sim_trainer(void *argument) {
    struct rank rank = {.number = (uint32_t)(uintptr_t)argument};
    struct cairn_resume resume = {0};
    rank.tensor = malloc(sim_plan.tensor_bytes + 1);
    rank.raw = malloc(sim_plan.raw_bytes + 1);
    sim_sleep_us(late_us(rank.number));
    if (rank.tensor && rank.raw && open_session(&rank, &resume) == CAIRN_OK) {
        train(&rank, &resume);
        sim_note("rank %u has saved its steps", rank.number);
        sim_world_trained(rank.number);
        while (!sim_world.chaos_over) {
            ask_kept(&rank);
            listen(&rank);
            sim_sleep_us(LOOK_US);
        }
        listen_to_the_end(&rank);
        struct cairn_error err = {0};
        sim_rest_check_session(rank.number, rank.session);
        if (cairn_close(rank.session, &err) != CAIRN_OK) note_words(&rank, &err);
    } else {
        sim_world_trained(rank.number);
    }
    sim_world.ranks_running--;
    sim_kill(sim_self());
    return NULL;
}
