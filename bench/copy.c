/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_copy memcpy|staged|summed --bytes N [--crc32c NAME]
 *
 * The least that a save costs a trainer: copying its bytes into a slab. memcpy only copies; staged
 * also computes each block's checksum, as libcairn does; summed only computes checksums.
 * --crc32c selects an implementation of common/crc.c instead of the one measured as fastest.
 */
#include <stdio.h>
#include <string.h>

#include "bench/measure.h"
#include "common/crc.h"
#include "common/memory.h"

struct copy {
    struct cairn_slab slab;
    uint8_t *source;
    uint64_t bytes;
    bool staged, summed;
};

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct copy *copy = owner;
    (void)err;
    ret->bytes = copy->bytes;
    ret->note = copy->summed ? cairn_crc32c_implementation() : cairn_crc32c_copier();
    if (copy->summed) {
        ret->crc32c = cairn_crc32c(0, copy->source, copy->bytes);
        return CAIRN_OK;
    }
    if (!copy->staged) {
        memcpy(copy->slab.data, copy->source, copy->bytes);
        return CAIRN_OK;
    }
    for (uint64_t at = 0; at < copy->bytes; at += CAIRN_BLOCK_BYTES) {
        uint64_t size = cairn_min_u64(CAIRN_BLOCK_BYTES, copy->bytes - at);
        uint32_t block = cairn_crc32c_copy(0, copy->slab.data + at, copy->source + at, size);
        ret->crc32c = cairn_crc32c_combine(ret->crc32c, block, size);
    }
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct copy copy;
    struct cairn_error error = {0};
    const char *by = bench_flag(count, values, "--crc32c", NULL);
    copy.staged = count > 1 && !strcmp(values[1], "staged");
    copy.summed = count > 1 && !strcmp(values[1], "summed");
    if (by && !cairn_crc32c_choose(by)) {
        fprintf(stderr, "bench_copy: this CPU has no %s\n", by);
        return 2;
    }
    copy.bytes = bench_flag_number(count, values, "--bytes", CAIRN_MIB * 1024);
    copy.source = bench_memory(copy.bytes);
    if (!copy.source ||
        cairn_slab_create("bench-copy", copy.bytes, false, &copy.slab, &error) != CAIRN_OK) {
        fprintf(stderr, "bench_copy: %s\n", error.message);
        return 2;
    }
    bench_pattern(copy.slab.data, copy.bytes);
    return bench_loop(once, &copy);
}
