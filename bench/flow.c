/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_flow direct|buffered --out FILE --part N FILE...
 *
 * An export's minimal disk cost: reads 4 MiB pieces, writes each one's first Nth to a synced file.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/memory.h"

#define PIECE_BYTES (4 * CAIRN_MIB)
#define ALIGN 4096

struct flow {
    const char *out;
    char **files; /* NULL-terminated */
    uint64_t part;
    char *piece;
    bool direct;
};

/* An unaligned end is read as it is and written padded to whole blocks. */
static enum cairn_code move_file(const struct flow *flow, int from, int into, uint64_t *written,
                                 struct bench_result *ret, struct cairn_error *err) {
    for (;;) {
        ssize_t got = read(from, flow->piece, PIECE_BYTES);
        if (got < 0) return cairn_fail_errno(err, "read");
        if (got == 0) return CAIRN_OK;
        size_t size = cairn_round_up((uint64_t)got / flow->part, ALIGN);
        for (size_t done = 0; done < size;) {
            ssize_t put = pwrite(into, flow->piece + done, size - done, (off_t)*written);
            if (put <= 0) return cairn_fail_errno(err, "write");
            done += (size_t)put;
            *written += (uint64_t)put;
        }
        ret->bytes += (uint64_t)got;
        if ((size_t)got % ALIGN) return CAIRN_OK; /* end of the file */
    }
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    const struct flow *flow = owner;
    int way = O_CLOEXEC | (flow->direct ? O_DIRECT : 0);
    uint64_t expected = 0, written = 0;
    CAIRN_AUTO_FD into = open(flow->out, O_WRONLY | O_CREAT | O_EXCL | way, 0644);
    if (into < 0) return cairn_fail_errno(err, "create %s", flow->out);
    for (char **name = flow->files; *name; name++) {
        struct stat status;
        CAIRN_AUTO_FD from = open(*name, O_RDONLY | way);
        if (from < 0 || fstat(from, &status) != 0) return cairn_fail_errno(err, "%s", *name);
        CAIRN_TRY(move_file(flow, from, into, &written, ret, err));
        expected += (uint64_t)status.st_size;
    }
    if (ret->bytes != expected)
        return cairn_fail(err, CAIRN_CORRUPT, "%llu of %llu bytes were read",
                          (unsigned long long)ret->bytes, (unsigned long long)expected);
    return fdatasync(into) ? cairn_fail_errno(err, "sync") : CAIRN_OK;
}

int main(int count, char **values) {
    static struct flow flow;
    flow.direct = count > 1 && !strcmp(values[1], "direct");
    flow.out = bench_flag(count, values, "--out", "flow.out");
    flow.part = bench_flag_number(count, values, "--part", 1);
    flow.files = values + 6;
    flow.piece = cairn_pages_map(PIECE_BYTES);
    if (count < 7 || !flow.part || !flow.piece) {
        fprintf(stderr, "usage: bench_flow direct|buffered --out FILE --part N FILE...\n");
        return 2;
    }
    memset(flow.piece, 1, PIECE_BYTES);
    return bench_loop(once, &flow);
}
