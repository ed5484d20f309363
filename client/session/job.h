/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job: the string that says which incarnation of a training job a process belongs to.
 *
 * Why:     all ranks of one start must give the same string and no two starts may share one, or
 *          the bytes of two incarnations would meet in one attempt.
 * Promise: 1   the option wins over CAIRN_JOB, that over torchelastic, that over Slurm; a restart
 *              count is part of the string.
 *          2   with more than one rank and no source it fails and names every way out; a single
 *              rank gets a random one.
 *          3   the incarnation is what the launcher itself says of this start, also where the job
 *              string was given by hand: torchelastic's run id and restart count, else the PMIx
 *              name space of an MPI launch, else Slurm's job id and restart count (Q54).
 *              CAIRN_INCARNATION says it where no launcher does, and wins.
 *          4   torchrun's placeholder run id "none" is no source: every start would share it.
 * Limits:  255 bytes of printable UTF-8.
 * Threads: stateless; reads the environment.
 * Next:    protocol rule Q2 in docs/protocol.md.
 */
#pragma once

#include "api/wire/messages.h"

#define CAIRN_CLIENT_JOB_BYTES (CAIRN_JOB_BYTES_MAX + 1)
#define CAIRN_CLIENT_INCARNATION_BYTES (CAIRN_INCARNATION_BYTES_MAX + 1)

struct cairn_client_job_sources {
    const char *job; /* of the options; NULL: look further */
    uint32_t world_size;
    const char *(*variable)(const char *name); /* NULL: the environment */
};
enum cairn_code cairn_client_job(const struct cairn_client_job_sources *sources,
                                 char ret_job[CAIRN_CLIENT_JOB_BYTES],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* "" where nothing says it, or a launcher what does not fit. */
enum cairn_code cairn_client_incarnation(const struct cairn_client_job_sources *sources,
                                         char ret[CAIRN_CLIENT_INCARNATION_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;
