/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_convert memcpy|bf16 --bytes N
 *
 * Converts N bytes of F32 to BF16 on one core, in windows of an export's size; memcpy only copies.
 * Afterwards, samples of each window are compared with independently rounded values.
 */
#include <stdio.h>
#include <string.h>

#include "api/table/dtype.h"
#include "bench/measure.h"
#include "common/clock.h"
#include "formats/convert.h"

#define WINDOW_BYTES (8 * CAIRN_MIB)
#define LOOK_EVERY 4099 /* elements */

struct convert {
    uint8_t *from, *into;
    uint64_t bytes;
    bool copies;
};

static bool is_rounded(const struct convert *convert, uint64_t element) {
    uint32_t bits;
    uint16_t got;
    memcpy(&bits, convert->from + element * 4, sizeof bits);
    memcpy(&got, convert->into + element * 2, sizeof got);
    if ((bits & 0x7fffffff) > 0x7f800000) return (got & 0x7fff) > 0x7f80;
    uint32_t below = bits >> 16, rest = bits & 0xffff;
    return got == (uint16_t)(below + (rest > 0x8000 || (rest == 0x8000 && below & 1)));
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct convert *convert = owner;
    uint64_t start_us = cairn_mono_us();
    for (uint64_t at = 0; at < convert->bytes; at += WINDOW_BYTES) {
        uint64_t size = cairn_min_u64(WINDOW_BYTES, convert->bytes - at);
        if (convert->copies)
            memcpy(convert->into + at, convert->from + at, size);
        else
            cairn_convert(CAIRN_DTYPE_F32, convert->from + at, CAIRN_DTYPE_BF16,
                          convert->into + at / 2, size / 4);
    }
    ret->took_us = cairn_mono_us() - start_us;
    ret->bytes = convert->bytes;
    for (uint64_t i = 0; i < convert->bytes / 4; i += LOOK_EVERY)
        if (convert->copies ? memcmp(convert->from + i * 4, convert->into + i * 4, 4) != 0
                            : !is_rounded(convert, i))
            return cairn_fail(err, CAIRN_CORRUPT, "element %llu is another", (unsigned long long)i);
    return CAIRN_OK;
}

int main(int count, char **values) {
    static struct convert convert;
    convert.copies = count > 1 && !strcmp(values[1], "memcpy");
    convert.bytes = bench_flag_number(count, values, "--bytes", CAIRN_GIB);
    convert.bytes -= convert.bytes % 4;
    convert.from = bench_memory(convert.bytes);
    convert.into = bench_memory(convert.copies ? convert.bytes : convert.bytes / 2);
    if (!convert.bytes || !convert.from || !convert.into) {
        fprintf(stderr, "bench_convert: no memory for %llu bytes\n",
                (unsigned long long)convert.bytes);
        return 2;
    }
    return bench_loop(once, &convert);
}
