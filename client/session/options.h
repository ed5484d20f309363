/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options: option structs, the job string, and where the session runs.
 *
 * Why:     libcairn.so is replaced under existing programs: it must not read past the end of an
 *          older, shorter struct, and must not silently ignore an option. All ranks of one start
 *          must derive the same job string and no two starts may share one, or the bytes of two
 *          incarnations would mix in one attempt. The origin tells later readers of a checkpoint
 *          which code made it, and where.
 * Promise: 1   fields beyond the caller's struct are zero, which is each option's default.
 *          2   bytes beyond this library's struct must be zero, or the call is CAIRN_UNSUPPORTED.
 *          3   a struct without its size is CAIRN_INVALID.
 *          4   a call without a place for its result is CAIRN_INVALID before it does anything.
 *          5   job: the option wins over CAIRN_JOB, that over torchelastic, that over Slurm; a
 *              restart count is part of the string. Without a source, several ranks get an error
 *              that names every remedy, and a single rank gets a random string. torchrun's
 *              placeholder run id "none" is no source: every start would share it.
 *          6   the incarnation is the launcher's name for this start, even if the job string is
 *              given: torchelastic's run id and restart count, else the PMIx name space of an MPI
 *              launch, else Slurm's job id and restart count (Q54). CAIRN_INCARNATION overrides
 *              them.
 *          7   the origin becomes the member "origin" of rank 0's meta, unless the caller's meta
 *              has that member, even as null. Unknown facts are omitted; collecting them runs no
 *              program and never fails the save. If the origin would make the meta too large, it is
 *              omitted.
 * Limits:  the size is the first member of each struct; jobs of 255 bytes of printable UTF-8;
 *          origin texts of 200 bytes.
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
/* ret points to a struct of the same type as given. */
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
    const char *job; /* the option; NULL: use the environment */
    uint32_t world_size;
    const char *(*variable)(const char *name); /* reads a variable; NULL: getenv */
};
enum cairn_code cairn_client_job(const struct cairn_client_job_sources *sources,
                                 char ret_job[CAIRN_CLIENT_JOB_BYTES],
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* "" if no launcher names the start, or its name does not fit. */
enum cairn_code cairn_client_incarnation(const struct cairn_client_job_sources *sources,
                                         char ret[CAIRN_CLIENT_INCARNATION_BYTES],
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- where the session runs ---- */

/* NULL: no memory. */
json_t *cairn_client_origin(void);
