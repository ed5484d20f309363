/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrape: GET /metrics of an uploader, over TCP.
 *
 * Why:     the trainers' socket is for trainers; what scrapes a node comes over the network.
 * Promise: 1   nothing but GET /metrics is answered with more than a status, and nothing that is
 *              sent here is kept: a caller changes nothing.
 *          2   a caller has CAIRN_UP_SCRAPE_MS for its request and as long to take the answer; one
 *              that needs longer is cut, and no trainer, sender or report waits for it.
 *          3   no caller waits for another one: where CAIRN_UP_SCRAPE_CALLERS_MAX are there, the
 *              one goes for the next whose head has not come whole for longest.
 * Limits:  heads of 8 KiB; off unless metrics_listen is set.
 * Threads: one of its own; the functions below are the main thread's.
 * Next:    uploader/metrics.def; docs/metrics.md.
 */
#pragma once

#include "uploader/up.h"

#define CAIRN_UP_SCRAPE_MS 2000
#define CAIRN_UP_SCRAPE_CALLERS_MAX 32

struct cairn_up_scrape;
/* *ret stays NULL where metrics_listen is empty. */
enum cairn_code cairn_up_scrape_start(struct cairn_up *up, struct cairn_up_scrape **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_scrape_stop(struct cairn_up_scrape *scrape); /* and free it; NULL is fine */
