/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences. The catalog is read as the server's file, the store as it lies in memory. */
#include "tests/sim/check.h"

#include <stdarg.h>

#include <sqlite3.h>

#include "api/wire/rest.h"
#include "api/wire/words.h"
#include "tests/sim/stories.h"
#include "tests/sim/world.h"
#include "uploader/up.h"

#define VERSIONS_MAX 256

struct sim_save sim_saves[SIM_SAVES_MAX];
size_t sim_save_count;
static size_t violations;
static char first_violation[400];

struct version {
    char id[48], reason[160];
    uint64_t attempt, step, n;
    int state;
    bool recorded, superseded;
};
static uint32_t ended[SIM_JOBS_MAX]; /* ranks whose process was killed */
static bool frozen; /* the server says that its catalog is behind its store (Q36) */
static struct version versions[VERSIONS_MAX];
static size_t version_count;

void sim_violation(const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!violations++) memcpy(first_violation, text, sizeof text);
    sim_note("VIOLATION %s", text);
}

/* The product counts it and goes on; here each is a wake that somebody forgot. */
void __wrap_cairn_up_metrics_late(struct cairn_metrics *metrics, enum cairn_up_wait wait);
void __wrap_cairn_up_metrics_late(struct cairn_metrics *metrics, enum cairn_up_wait wait) {
    (void)metrics;
    sim_violation("a wait of the uploader's thread %d was ended by its timer, and work was due",
                  (int)wait);
}

size_t sim_violation_count(void) {
    return violations;
}

const char *sim_violation_first(void) {
    return first_violation;
}

/* ---- what ranks have ---- */

void sim_content_fill(uint8_t *bytes, uint64_t size, uint64_t content) {
    uint64_t state = content * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint64_t i = 0; i < size; i++) {
        if (i % 8 == 0) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        bytes[i] = (uint8_t)(state >> (i % 8 * 8));
    }
}

struct sim_save *sim_save_new(int job, uint32_t rank, uint64_t step) {
    if (sim_save_count == SIM_SAVES_MAX) return NULL;
    struct sim_save *save = &sim_saves[sim_save_count++];
    *save = (struct sim_save){
        .job = job, .rank = rank, .step = step, .content = 1000 + 2 * sim_save_count};
    return save;
}

/* ---- the catalog ---- */

static sqlite3 *open_catalog(void) {
    char path[400];
    sqlite3 *database = NULL;
    snprintf(path, sizeof path, "%s/server/catalog.db", sim_world.folder);
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK) return database;
    sqlite3_close(database);
    return NULL;
}

static bool read_versions(void) {
    static const char sql[] = "SELECT version, attempt, step, n, state, recorded, superseded, "
                              "coalesce(reason, '') FROM versions ORDER BY attempt, step, n";
    sqlite3 *database = open_catalog();
    sqlite3_stmt *rows = NULL;
    version_count = 0;
    if (!database) return false;
    if (sqlite3_prepare_v2(database, sql, -1, &rows, NULL) == SQLITE_OK)
        while (sqlite3_step(rows) == SQLITE_ROW && version_count < VERSIONS_MAX) {
            struct version *at = &versions[version_count++];
            *at = (struct version){.attempt = (uint64_t)sqlite3_column_int64(rows, 1),
                                   .step = (uint64_t)sqlite3_column_int64(rows, 2),
                                   .n = (uint64_t)sqlite3_column_int64(rows, 3),
                                   .state = sqlite3_column_int(rows, 4),
                                   .recorded = sqlite3_column_int(rows, 5),
                                   .superseded = sqlite3_column_int(rows, 6)};
            snprintf(at->id, sizeof at->id, "%s", (const char *)sqlite3_column_text(rows, 0));
            snprintf(at->reason, sizeof at->reason, "%s",
                     (const char *)sqlite3_column_text(rows, 7));
        }
    sqlite3_finalize(rows);
    sqlite3_close(database);
    return true;
}

static const struct version *version_of(const char *id) {
    for (size_t i = 0; i < version_count; i++)
        if (!strcmp(versions[i].id, id)) return &versions[i];
    return NULL;
}

bool sim_check_is_frozen(void) {
    return frozen;
}

bool sim_check_is_quiet(void) {
    if (!sim_world.server || !sim_world.server->alive) return false;
    if (frozen) return true; /* until an operator comes */
    for (int i = 0; i < SIM_NODES; i++)
        if (!sim_world.up[i] || sim_world.up[i]->locked.save_count) return false;
    if (!read_versions()) return false;
    for (size_t i = 0; i < version_count; i++)
        if (versions[i].state == CAIRN_STATE_OPEN ||
            (versions[i].state == CAIRN_STATE_COMMITTED && !versions[i].recorded))
            return false;
    return true;
}

static bool has_object(const char *id, const char *name) {
    char end[80];
    snprintf(end, sizeof end, "/%s/%s", id, name);
    for (size_t i = 0; i < sim_bucket.object_count; i++)
        if (strstr(sim_bucket.objects[i].key, end)) return true;
    return false;
}

bool sim_check_is_open(const char *id) {
    const struct version *version = read_versions() ? version_of(id) : NULL;
    return version && version->state == CAIRN_STATE_OPEN && !has_object(id, "committed.json");
}

int sim_check_ended_ranks(void) {
    static const char sql[] =
        "SELECT count(*) FROM attempt_ranks JOIN runs USING(run_id) WHERE run = 'run' AND "
        "attempt_ranks.attempt = runs.attempt AND ended > 0";
    sqlite3 *database = open_catalog();
    sqlite3_stmt *rows = NULL;
    int count = 0;
    if (!database) return 0;
    if (sqlite3_prepare_v2(database, sql, -1, &rows, NULL) == SQLITE_OK &&
        sqlite3_step(rows) == SQLITE_ROW)
        count = sqlite3_column_int(rows, 0);
    sqlite3_finalize(rows);
    sqlite3_close(database);
    return count;
}

/* ---- latest ---- */

static struct {
    uint64_t attempt, step, n;
    char id[48];
} shown;

static bool is_behind(uint64_t attempt, uint64_t step, uint64_t n) {
    if (attempt != shown.attempt) return attempt < shown.attempt;
    if (step != shown.step) return step < shown.step;
    return n < shown.n;
}

/* Q24: who sees a version sees what a rebuilt catalog would have. */
static void check_recorded(const char *who, const char *version) {
    if (!has_object(version, "committed.json"))
        sim_violation("V9: %s is told that %s is committed, and the store has no committed.json "
                      "of it",
                      who, version);
}

void sim_check_told_committed(struct sim_save *save) {
    char who[24];
    snprintf(who, sizeof who, "rank %u", save->rank);
    save->committed = true;
    check_recorded(who, save->version);
}

static void judge_latest(const json_t *answer) {
    uint64_t attempt = (uint64_t)json_integer_value(json_object_get(answer, "attempt"));
    uint64_t step = (uint64_t)json_integer_value(json_object_get(answer, "step"));
    uint64_t n = (uint64_t)json_integer_value(json_object_get(answer, "n"));
    if (is_behind(attempt, step, n))
        sim_violation("P7: latest went back from attempt %" PRIu64 " step %" PRIu64 " n %" PRIu64
                      " to attempt %" PRIu64 " step %" PRIu64 " n %" PRIu64,
                      shown.attempt, shown.step, shown.n, attempt, step, n);
    shown.attempt = attempt;
    shown.step = step;
    shown.n = n;
    const char *id = json_string_value(json_object_get(answer, "version"));
    snprintf(shown.id, sizeof shown.id, "%s", id ? id : "");
    check_recorded("a reader", shown.id);
}

void sim_check_latest(void) {
    static struct cairn_rest *rest;
    struct cairn_rest_options options = {.url = "http://server"};
    struct cairn_error err = {0};
    json_t *answer = NULL;
    if (!rest && cairn_rest_new(&options, &rest, &err) != CAIRN_OK) return;
    enum cairn_code code = cairn_rest_call(rest, "GET", "/v1/runs/" SIM_RUN "/checkpoints/latest",
                                           NULL, 3000, &answer, &err);
    if (code == CAIRN_OK) judge_latest(answer);
    if (code != CAIRN_UNAVAILABLE && code != CAIRN_TIMEOUT) frozen = code == CAIRN_CATALOG_BEHIND;
    if (frozen && !sim_has(SIM_BACKUP))
        sim_violation("V40: the run is frozen, and nothing of it is behind: %.100s", err.message);
    if (code == CAIRN_NOT_FOUND && shown.attempt)
        sim_violation("P7: latest was %s, now there is none: %.100s", shown.id, err.message);
    json_decref(answer);
}

/* ---- bytes ---- */

static bool holds(const struct sim_object *object, uint64_t size, uint64_t content) {
    uint8_t *wanted = malloc(size + 1);
    sim_content_fill(wanted, size, content);
    bool found = memmem(object->bytes, object->size, wanted, size) != NULL;
    free(wanted);
    return found;
}

/* Both shards of a rank in one version; NULL, or what is wrong. */
static const char *bytes_wrong(const struct sim_save *save) {
    char place[64], own[24];
    bool tensor = false, raw = false;
    snprintf(place, sizeof place, "/%s/", save->version);
    snprintf(own, sizeof own, "rank-%05u", save->rank);
    for (size_t i = 0; i < sim_bucket.object_count; i++) {
        const struct sim_object *object = &sim_bucket.objects[i];
        if (!strstr(object->key, place) || !strstr(object->key, own)) continue;
        if (holds(object, sim_plan.tensor_bytes, save->content)) tensor = true;
        if (holds(object, sim_plan.raw_bytes, save->content + 1)) raw = true;
    }
    if (!tensor && !raw) return "both shards are missing or hold other bytes";
    if (!tensor) return "the tensors are missing or other bytes";
    return raw ? NULL : "the raw shard is missing or other bytes";
}

static void check_committed(const struct version *version) {
    uint32_t ranks = 0;
    int job = -1;
    if (!has_object(version->id, "manifest.json") || !has_object(version->id, "committed.json"))
        sim_violation("P13: %s step %" PRIu64 " is committed and its manifest or record is not "
                      "there",
                      version->id, version->step);
    for (size_t i = 0; i < sim_save_count; i++) {
        const struct sim_save *save = &sim_saves[i];
        if (strcmp(save->version, version->id) != 0) continue;
        const char *wrong = bytes_wrong(save);
        if (wrong)
            sim_violation("P3: committed step %" PRIu64 " rank %u of %s: %s", save->step,
                          save->rank, version->id, wrong);
        if (save->cancelled)
            sim_violation("Q44: step %" PRIu64 " was given up by rank %u and is committed",
                          save->step, save->rank);
        if (job >= 0 && job != save->job)
            sim_violation("P6: %s holds saves of two jobs", version->id);
        job = save->job;
        ranks++;
    }
    if (ranks != sim_plan.ranks)
        sim_violation("P2: %s is committed with %u of %u ranks", version->id, ranks,
                      sim_plan.ranks);
}

void sim_check_deleted(const char *key) {
    for (size_t i = 0; i < sim_save_count; i++) {
        const struct sim_save *save = &sim_saves[i];
        if (!save->committed || !save->version[0] || !strstr(key, save->version)) continue;
        sim_violation("P2: %s of an acknowledged checkpoint is deleted", key);
        return;
    }
}

/* ---- saves ---- */

/* P9, V1: what all ranks staged before their job was killed is not thrown away by the next one,
 * when every uploader lives and reaches the store. */
static bool only_gentle(void) {
    const uint64_t gentle = SIM_BIT(SERVER_KILL) | SIM_BIT(JOB_KILL) | SIM_BIT(SLOW_HEAD) |
                            SIM_BIT(RECORD_LAG) | SIM_BIT(NO_CRC) | SIM_BIT(NO_TOKEN) |
                            SIM_BIT(CLOCK) | SIM_BIT(LATE_RANK) | SIM_BIT(LOST) |
                            SIM_BIT(SLOW_COPY) | SIM_BIT(LONG_AWAY) | SIM_BIT(STRAY_RECORD);
    return !(sim_plan.faults & ~gentle) && !sim_plan.same_step;
}

/* What a killed rank had sealed goes on as long as its uploader has the memory. */
static bool outlives_its_rank(const struct sim_save *save) {
    bool deaths = sim_world.used & SIM_BIT(UPLOADER_KILL) || sim_has(SIM_CRASH_POINT);
    return save->sealed && (!deaths || only_gentle());
}

/* Every rank of its version staged it. */
static bool all_staged(const struct sim_save *save) {
    uint32_t count = 0;
    for (size_t i = 0; i < sim_save_count; i++) {
        const struct sim_save *at = &sim_saves[i];
        if (strcmp(at->version, save->version) != 0) continue;
        if (!at->staged || at->gave_up || (at->orphaned && !outlives_its_rank(at))) return false;
        count++;
    }
    return count == sim_plan.ranks;
}

/* Q43: deaths of uploaders and servers, pauses and bad ways cost no staged save of living ranks. */
static bool only_deaths(void) {
    const uint64_t harmless =
        SIM_BIT(UPLOADER_KILL) | SIM_BIT(SERVER_KILL) | SIM_BIT(CRASH_POINT) | SIM_BIT(STOP) |
        SIM_BIT(CUT) | SIM_BIT(FOREIGN) | SIM_BIT(LOST) | SIM_BIT(LATE) | SIM_BIT(STORE_AWAY) |
        SIM_BIT(SLOW_HEAD) | SIM_BIT(RECORD_LAG) | SIM_BIT(NO_CRC) | SIM_BIT(CLOCK) |
        SIM_BIT(CANCEL) | SIM_BIT(LATE_RANK) | SIM_BIT(JOB_KILL) | SIM_BIT(NO_TOKEN) |
        SIM_BIT(SLOW_COPY) | SIM_BIT(REUSED_JOB) | SIM_BIT(LONG_AWAY) | SIM_BIT(UPGRADE) |
        SIM_BIT(STRAY_RECORD) | SIM_BIT(RANK_KILL) | SIM_BIT(BUSY);
    return !(sim_plan.faults & ~harmless);
}

/* V31: a server that is away for seconds costs no save that is being staged. */
static bool must_stage(void) {
    return only_gentle() && !sim_has(SIM_LONG_AWAY);
}

static void check_save(const struct sim_save *save) {
    const struct version *version = save->version[0] ? version_of(save->version) : NULL;
    bool committed = version && version->state == CAIRN_STATE_COMMITTED && version->recorded;
    bool lives = save->job == sim_world.job && !save->orphaned; /* it was not killed */
    if (save->committed && !committed)
        sim_violation("P2: rank %u was told that step %" PRIu64 " is committed, it is %s",
                      save->rank, save->step, version ? "not" : "unknown");
    if (!lives && !committed && save->sealed && only_gentle() && all_staged(save))
        sim_violation("%s: step %" PRIu64 " was staged by all ranks of job %d and was thrown away "
                      "(%s)",
                      sim_has(SIM_LONG_AWAY) ? "V35" : "V1", save->step, save->job,
                      version ? version->reason : "unknown");
    if (lives && !save->staged && must_stage())
        sim_violation("V31: step %" PRIu64 " of rank %u could not be staged: %s", save->step,
                      save->rank, save->words);
    if (!lives || !save->staged || committed) return;
    if (!save->told)
        sim_violation("Q43: step %" PRIu64 " of rank %u was staged, is not committed (%s) and "
                      "nobody was told",
                      save->step, save->rank, version ? version->reason : "unknown");
    else if (only_deaths() && all_staged(save) && !sim_plan.same_step)
        sim_violation("Q43: step %" PRIu64 " was staged by all ranks and is lost; rank %u was "
                      "told: %s",
                      save->step, save->rank, save->words);
}

/* ---- ranks that have ended ---- */

void sim_check_rank_ended(int job, uint32_t rank) {
    ended[job] |= 1u << rank;
    for (size_t i = 0; i < sim_save_count; i++)
        if (sim_saves[i].job == job && sim_saves[i].rank == rank) sim_saves[i].orphaned = true;
}

bool sim_check_all_began(void) {
    uint32_t began = 0;
    for (size_t i = 0; i < sim_save_count; i++)
        if (sim_saves[i].job == sim_world.job && sim_saves[i].version[0])
            began |= 1u << sim_saves[i].rank;
    return began + 1 == 1u << sim_plan.ranks;
}

/* The job of a version, and which of its ranks were told that they have sealed it. */
static int job_of(const char *version, uint32_t *ret_sealed) {
    int job = -1;
    *ret_sealed = 0;
    for (size_t i = 0; i < sim_save_count; i++) {
        if (strcmp(sim_saves[i].version, version) != 0) continue;
        job = sim_saves[i].job;
        if (sim_saves[i].staged) *ret_sealed |= 1u << sim_saves[i].rank;
    }
    return job;
}

/* Longer than a restarted uploader waits for its trainers. */
#define ENDED_US UINT64_C(60000000)

/* The end of a rank that holds another key's grant is nobody's; the resume gives its saves up. */
void *sim_check_ended(void *unused) {
    (void)unused;
    sim_sleep_us(ENDED_US);
    if (frozen || sim_has(SIM_KEY_CHANGED) || !read_versions()) return NULL;
    for (size_t i = 0; i < version_count; i++) {
        uint32_t sealed = 0;
        int job = versions[i].state == CAIRN_STATE_OPEN ? job_of(versions[i].id, &sealed) : -1;
        if (job >= 0 && ended[job] & ~sealed)
            sim_violation("V41: step %" PRIu64 " of attempt %" PRIu64 " stays open, although ranks "
                          "%#x that it needs have ended",
                          versions[i].step, versions[i].attempt, ended[job] & ~sealed);
    }
    return NULL;
}

/* ---- what is left over ---- */

static void check_leaks(void) {
    for (int i = 0; i < SIM_NODES; i++) {
        const struct cairn_up *up = sim_world.up[i];
        if (!up)
            sim_violation("P8b: the uploader of node %d does not run", i);
        else if (up->locked.save_count)
            sim_violation("P8b: %zu journal entries of node %d stay open", up->locked.save_count,
                          i);
    }
    for (size_t i = 0; i < version_count; i++)
        if (versions[i].state == CAIRN_STATE_OPEN)
            sim_violation("P8b: step %" PRIu64 " of attempt %" PRIu64 " stays open",
                          versions[i].step, versions[i].attempt);
}

/* The faults are over and the ranks live: nothing may wait for their end. */
void sim_check_unrest(void) {
    (void)read_versions();
    sim_violation("P8b: it does not come to rest while the ranks live");
    for (size_t i = 0; i < version_count; i++)
        if (versions[i].state == CAIRN_STATE_OPEN)
            sim_violation("P8b: step %" PRIu64 " of attempt %" PRIu64 " waits for the ranks' end",
                          versions[i].step, versions[i].attempt);
}

/* Q50: all ranks hear why, and not from what comes to the same in the end (Q12). */
static void check_refused(const struct version *version) {
    uint32_t sealed = 0;
    if (sim_plan.faults != SIM_BIT(BAD_META) || !sim_stories_refuses(version->step) ||
        job_of(version->id, &sealed) != sim_world.job)
        return;
    /* Of two saves of one step the second is refused for the first, if a rank whose begin is taken
     * comes before the one whose is not: all ranks hear of that refusal, and as early. */
    if (sim_plan.same_step && strstr(version->reason, "is already there as")) return;
    if (!strstr(version->reason, "begin was refused"))
        sim_violation("V34: the begin of one rank of step %" PRIu64 " was refused, and the others "
                      "hear of that: %s",
                      version->step, version->reason);
}

/* A frozen server has lost nothing: what was acknowledged lies in the store as it was. */
static void check_frozen(void) {
    for (size_t i = 0; i < sim_save_count; i++) {
        const struct sim_save *save = &sim_saves[i];
        const char *wrong = save->committed ? bytes_wrong(save) : NULL;
        if (wrong)
            sim_violation("V39: step %" PRIu64 " rank %u was acknowledged, the catalog is behind, "
                          "and in the store %s",
                          save->step, save->rank, wrong);
    }
}

void sim_check_end(void) {
    sim_check_latest(); /* nobody may have asked since the catalog was put back */
    if (frozen) {
        sim_note("the catalog is behind; only the store is looked at");
        check_frozen();
        return;
    }
    if (!read_versions()) {
        sim_violation("the catalog cannot be read");
        return;
    }
    for (size_t i = 0; i < version_count; i++) {
        sim_note("version %s attempt %" PRIu64 " step %" PRIu64 " n %" PRIu64 ": %s%s%s %s",
                 versions[i].id, versions[i].attempt, versions[i].step, versions[i].n,
                 cairn_state_text((enum cairn_state)versions[i].state),
                 versions[i].recorded ? " recorded" : "",
                 versions[i].superseded ? " superseded" : "", versions[i].reason);
        if (versions[i].state == CAIRN_STATE_COMMITTED) check_committed(&versions[i]);
        check_refused(&versions[i]);
    }
    for (size_t i = 0; i < sim_save_count; i++) check_save(&sim_saves[i]);
    check_leaks();
}
