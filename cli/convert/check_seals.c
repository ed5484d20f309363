/* SPDX-License-Identifier: Apache-2.0 */
/* One range after the other to whichever thread is free. */
#include "cli/convert/check_seals.h"

#include <stdlib.h>

#include "cli/shell/workers.h"
#include "common/utf8.h"

#define READ_BYTES (512 * 1024)

struct seal_job {
    const struct cairn_assembly *assembly;
    struct cairn_cli_workers workers;
    size_t next; /* by the lock of the workers */
};

static const struct cairn_seal *next_seal(struct seal_job *job) {
    CAIRN_HOLD(&job->workers.lock);
    const struct cairn_seals *seals = &job->assembly->seals;
    if (job->workers.locked.code != CAIRN_OK || job->next == seals->count) return NULL;
    return &seals->seals[job->next++];
}

static void *check_seals_work(void *argument) {
    struct seal_job *job = argument;
    const struct cairn_assembly *assembly = job->assembly;
    const struct cairn_seal *seal;
    struct cairn_error err = {0};
    CAIRN_AUTO_HEAP char *scratch = malloc(READ_BYTES);
    enum cairn_code code =
        scratch ? CAIRN_OK : cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for a part of a file");
    while (code == CAIRN_OK && (seal = next_seal(job))) {
        code = cairn_seal_check(seal, assembly->inputs[seal->input], scratch, READ_BYTES, &err);
        const char *tensor = NULL;
        if (code == CAIRN_CORRUPT) tensor = cairn_assembly_tensor_in(assembly, seal);
        if (tensor) code = cairn_within(&err, code, "tensor %s", cairn_short(tensor).text);
    }
    if (code != CAIRN_OK) cairn_cli_workers_failed(&job->workers, code, &err);
    return NULL;
}

enum cairn_code cairn_cli_check_seals(const struct cairn_cli *cli,
                                      const struct cairn_assembly *assembly,
                                      struct cairn_error *err) {
    struct seal_job job = {.assembly = assembly};
    if (!assembly->seals.count) return CAIRN_OK;
    return cairn_cli_workers_run(&job.workers, cli->workers, check_seals_work, &job, err);
}
