/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options: what a program and its environment say when they call: structs of options, the job
 * string, where the session runs.
 *
 * Why:     libcairn.so is replaced under programs that stay; a struct that grew must not be read
 *          past the end of the one that they have, and no option may be ignored in silence. All
 *          ranks of one start must give the same job string and no two starts may share one, or the
 *          bytes of two incarnations would meet in one attempt. Who finds a checkpoint a year later
 *          asks which code made it, and where.
 * Promise: 1   what the caller's struct is too short for is zero, which is each option's default.
 *          2   what it has beyond this library's must be zero, or it is CAIRN_UNSUPPORTED.
 *          3   a struct that does not say its size is CAIRN_INVALID.
 *          4   so is a call that has nowhere to write its answer, before it does anything.
 *          5   job: the option wins over CAIRN_JOB, that over torchelastic, that over Slurm; a
 *              restart count is part of the string. With more than one rank and no source it fails
 *              and names every way out; a single rank gets a random one. torchrun's placeholder run
 *              id "none" is no source: every start would share it.
 *          6   the incarnation is what the launcher itself says of this start, also where the job
 *              string was given by hand: torchelastic's run id and restart count, else the PMIx
 *              name space of an MPI launch, else Slurm's job id and restart count (Q54).
 *              CAIRN_INCARNATION says it where no launcher does, and wins.
 *          7   the origin becomes the member "origin" of the meta that rank 0 gives; where the
 *              caller has one of that name, also null, the caller's stays. What cannot be found out
 *              is left out; nothing is run, and nothing fails for want of it. A meta that would be
 *              too large with it goes without it.
 * Limits:  the size is the first member of each struct; jobs of 255 bytes of printable UTF-8; texts
 *          of an origin of 200 bytes.
 * Threads: stateless; reads the environment.
 * Next:    include/cairn/cairn.h; protocol rule Q2 in docs/protocol.md; docs/http.md.
 */
#pragma once

#include "api/wire/messages.h"
#include "common/error.h"
#include "common/json.h"

/* Copies `given` into the ret_bytes at ret. NULL: all defaults, ret->size included. */
enum cairn_code cairn_client_options(const void *given, void *ret, size_t ret_bytes,
                                     const char *what, struct cairn_error *err) CAIRN_MUST_USE;
/* ret is a pointer to a struct of the same kind as given's. */
#define CAIRN_CLIENT_OPTIONS(given, ret, err)                                                      \
    cairn_client_options(1 ? (given) : (ret), (ret), sizeof *(ret), #given, (err))
#define CAIRN_CLIENT_RET(ret, err)                                                                 \
    do {                                                                                           \
        if (!(ret))                                                                                \
            return cairn_fail((err), CAIRN_INVALID,                                                \
                              "%s is NULL; the call needs a place for its answer", #ret);          \
    } while (0)

/* ---- the job string ---- */

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

/* ---- where the session runs ---- */

/* NULL: no memory. */
json_t *cairn_client_origin(void);
