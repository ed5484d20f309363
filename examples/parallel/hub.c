/* SPDX-License-Identifier: Apache-2.0 */
/* hub: ranks write all before they read; the hub reads from a whole group before it answers. */
#include "examples/parallel/hub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int put(int fd, const void *data, size_t size) {
    for (const char *at = data; size;) {
        ssize_t done = write(fd, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return -1;
        at += done;
        size -= (size_t)done;
    }
    return 0;
}

static int take(int fd, void *data, size_t size) {
    for (char *at = data; size;) {
        ssize_t done = read(fd, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return -1;
        at += done;
        size -= (size_t)done;
    }
    return 0;
}

int hub_reduce(const struct hub_rank *hub, float *values, uint64_t count) {
    return put(hub->out, values, count * sizeof *values) ||
           take(hub->in, values, count * sizeof *values);
}

int hub_gather(const struct hub_rank *hub, float *all, uint64_t total, uint64_t start,
               uint64_t count) {
    const uint64_t part[2] = {start, count};
    return put(hub->out, part, sizeof part) || put(hub->out, all + start, count * sizeof *all) ||
           take(hub->in, all, total * sizeof *all);
}

/* ---- the hub's side ---- */

static int answer_group(const struct hub_member *ranks, uint32_t rank_count, uint32_t group,
                        const float *values, uint64_t count) {
    for (uint32_t i = 0; i < rank_count; i++)
        if (ranks[i].group == group && put(ranks[i].out, values, count * sizeof *values)) return -1;
    return 0;
}

static int serve_reduce(const struct hub_member *ranks, uint32_t rank_count, uint32_t group,
                        float *sums, float *one, uint64_t count) {
    memset(sums, 0, count * sizeof *sums);
    for (uint32_t i = 0; i < rank_count; i++) {
        if (ranks[i].group != group) continue;
        if (take(ranks[i].in, one, count * sizeof *one)) return -1;
        for (uint64_t k = 0; k < count; k++) sums[k] += one[k];
    }
    return answer_group(ranks, rank_count, group, sums, count);
}

static int serve_gather(const struct hub_member *ranks, uint32_t rank_count, uint32_t group,
                        float *all, uint64_t count) {
    for (uint32_t i = 0; i < rank_count; i++) {
        uint64_t part[2];
        if (ranks[i].group != group) continue;
        if (take(ranks[i].in, part, sizeof part) || part[0] > count || part[1] > count - part[0] ||
            take(ranks[i].in, all + part[0], part[1] * sizeof *all))
            return -1;
    }
    return answer_group(ranks, rank_count, group, all, count);
}

int hub_serve(const struct hub_member *ranks, uint32_t rank_count, uint64_t rounds,
              uint64_t elements) {
    float *all = malloc(elements * sizeof *all), *one = malloc(elements * sizeof *one);
    uint32_t groups = 0;
    int status = all && one ? 0 : -1;
    for (uint32_t i = 0; i < rank_count; i++)
        if (ranks[i].group >= groups) groups = ranks[i].group + 1;
    for (uint64_t round = 0; !status && round < rounds; round++) {
        for (uint32_t g = 0; !status && g < groups; g++)
            status = serve_reduce(ranks, rank_count, g, all, one, elements);
        for (uint32_t g = 0; !status && g < groups; g++)
            status = serve_gather(ranks, rank_count, g, all, elements);
    }
    free(all);
    free(one);
    return status;
}
