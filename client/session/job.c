/* SPDX-License-Identifier: Apache-2.0 */
/* Where the job string comes from, in order of preference. */
#include "client/session/job.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "common/trace.h"

static const char *from_environment(const char *name) {
    return getenv(name);
}

static const char *variable(const struct cairn_client_job_sources *sources, const char *name) {
    const char *value = (sources->variable ? sources->variable : from_environment)(name);
    return value && value[0] ? value : NULL;
}

static enum cairn_code take(const char *where, const char *job,
                            char ret_job[CAIRN_CLIENT_JOB_BYTES], struct cairn_error *err) {
    size_t size = strlen(job);
    if (size == 0 || size >= CAIRN_CLIENT_JOB_BYTES)
        return cairn_fail(err, CAIRN_INVALID, "job from %s has %zu bytes, allowed are 1 to %d",
                          where, size, CAIRN_CLIENT_JOB_BYTES - 1);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)job[i] < 0x20 || job[i] == 0x7f)
            return cairn_fail(err, CAIRN_INVALID, "job from %s holds a control byte", where);
    if (!cairn_utf8_valid(cairn_view_of(job)))
        return cairn_fail(err, CAIRN_INVALID, "job from %s is not UTF-8", where);
    memcpy(ret_job, job, size + 1);
    return CAIRN_OK;
}

static enum cairn_code take_counted(const char *where, const char *id, const char *restarts,
                                    char ret_job[CAIRN_CLIENT_JOB_BYTES], struct cairn_error *err) {
    char job[2 * CAIRN_CLIENT_JOB_BYTES];
    int size = snprintf(job, sizeof job, "%s:%s:%s", where, id, restarts ? restarts : "0");
    if (size < 0 || (size_t)size >= sizeof job)
        return cairn_fail(err, CAIRN_INVALID, "job from %s is too long", where);
    return take(where, job, ret_job, err);
}

enum cairn_code cairn_client_job(const struct cairn_client_job_sources *sources,
                                 char ret_job[CAIRN_CLIENT_JOB_BYTES], struct cairn_error *err) {
    if (sources->job) return take("the options", sources->job, ret_job, err);
    const char *id = variable(sources, "CAIRN_JOB");
    if (id) return take("CAIRN_JOB", id, ret_job, err);
    id = variable(sources, "TORCHELASTIC_RUN_ID");
    if (id && strcmp(id, "none") != 0)
        return take_counted("torchelastic", id, variable(sources, "TORCHELASTIC_RESTART_COUNT"),
                            ret_job, err);
    id = variable(sources, "SLURM_JOB_ID");
    if (id)
        return take_counted("slurm", id, variable(sources, "SLURM_RESTART_COUNT"), ret_job, err);
    if (sources->world_size > 1)
        return cairn_fail(err, CAIRN_INVALID,
                          "no job string for %s: set `job` or CAIRN_JOB to one that is the "
                          "same on all ranks and new at each start (or start by torchrun with a "
                          "--rdzv-id, or by Slurm)",
                          cairn_counted(sources->world_size, "rank").text);
    char uuid[CAIRN_UUID_TEXT_BYTES], job[CAIRN_CLIENT_JOB_BYTES];
    cairn_uuid_random(uuid);
    snprintf(job, sizeof job, "single:%s", uuid);
    return take("a random number", job, ret_job, err);
}

static enum cairn_code take_incarnation(const char *given, char ret[CAIRN_CLIENT_INCARNATION_BYTES],
                                        struct cairn_error *err) {
    char text[CAIRN_CLIENT_JOB_BYTES];
    CAIRN_TRY(take("CAIRN_INCARNATION", given, text, err));
    if (cairn_text_copy(ret, CAIRN_CLIENT_INCARNATION_BYTES, text)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "CAIRN_INCARNATION has %zu bytes, allowed are 1 to %d",
                      strlen(text), CAIRN_CLIENT_INCARNATION_BYTES - 1);
}

enum cairn_code cairn_client_incarnation(const struct cairn_client_job_sources *sources,
                                         char ret[CAIRN_CLIENT_INCARNATION_BYTES],
                                         struct cairn_error *err) {
    static const struct {
        const char *launcher, *id, *restarts;
    } known[] = {{"torchelastic", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
                 {"pmix", "PMIX_NAMESPACE", NULL},
                 {"slurm", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"}};
    ret[0] = '\0';
    const char *given = variable(sources, "CAIRN_INCARNATION");
    if (given) return take_incarnation(given, ret, err);
    for (size_t i = 0; i < CAIRN_COUNT(known); i++) {
        char text[CAIRN_CLIENT_JOB_BYTES];
        struct cairn_error ignored = {0};
        const char *id = variable(sources, known[i].id);
        if (!id || strcmp(id, "none") == 0) continue; /* job.h#4 */
        const char *restarts = known[i].restarts ? variable(sources, known[i].restarts) : NULL;
        if (take_counted(known[i].launcher, id, restarts, text, &ignored) != CAIRN_OK ||
            strlen(text) >= CAIRN_CLIENT_INCARNATION_BYTES)
            return CAIRN_OK; /* a part of it could be the same at the next start */
        memcpy(ret, text, strlen(text) + 1);
        return CAIRN_OK;
    }
    return CAIRN_OK;
}
