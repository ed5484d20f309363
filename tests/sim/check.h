/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check: what ranks staged and were told, and what the promises say about it.
 *
 * Why:     a simulation is as good as what it notices; each check is a sentence of
 *          docs/promises.md or docs/protocol.md.
 * Promise: 1   a violation ends the seed as failed, whatever else happens.
 *          2   what is compared are the bytes in the store with the bytes in the ranks' memory.
 * Limits:  SAVES_MAX saves a seed.
 * Threads: one (tests/sim/kernel.h).
 * Next:    check.c, the sentences; world.h.
 */
#pragma once

#include "tests/sim/kernel.h"

#define SIM_SAVES_MAX 512

/* One save of one rank. */
struct sim_save {
    int job;
    uint32_t rank;
    uint64_t step;
    uint64_t content; /* the seed of its bytes */
    char version[48]; /* "" when its begin failed */
    bool staged;      /* stage said OK, or that the session seals it */
    bool sealed;      /* stage said OK */
    bool gave_up;     /* the rank gave it up after the seal ... */
    bool cancelled;   /* ... and was told that it worked */
    bool committed;   /* the rank was told so */
    bool told;        /* the rank was told that it failed */
    bool orphaned;    /* its rank was killed while the others of the job went on, or with them */
    char words[200];  /* what it was told */
};
extern struct sim_save sim_saves[SIM_SAVES_MAX];
extern size_t sim_save_count;

void sim_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
size_t sim_violation_count(void);
const char *sim_violation_first(void);

void sim_content_fill(uint8_t *bytes, uint64_t size, uint64_t content);
struct sim_save *sim_save_new(int job, uint32_t rank, uint64_t step);

/* A rank is told that its save is committed. */
void sim_check_told_committed(struct sim_save *save);
/* Its process is killed. */
void sim_check_rank_ended(int job, uint32_t rank);
/* Each rank of the present job has begun a save. */
bool sim_check_all_began(void);
/* Some time after the faults: nothing waits for a rank that has ended. */
void *sim_check_ended(void *unused);
/* Does the catalog say that the version of an id is open, and the store nothing else? */
bool sim_check_is_open(const char *version);
/* How many processes of the newest attempt of the run the catalog calls ended. */
int sim_check_ended_ranks(void);
/* An object is about to be deleted. */
void sim_check_deleted(const char *key);
/* A reader asks for `latest`; called again and again. */
void sim_check_latest(void);
/* Is anything still under way? */
bool sim_check_is_quiet(void);
/* It was waited for that in vain, with all faults over. */
void sim_check_unrest(void);
/* The server says that its catalog is behind its store (Q36). */
bool sim_check_is_frozen(void);
/* After everything has come to rest. */
void sim_check_end(void);
