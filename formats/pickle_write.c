/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a pickle; see pickle_write.h. */
#include "formats/pickle_write.h"

#include "common/encode.h"

enum cairn_code cairn_pickle_put_text(struct cairn_buf *ret, struct cairn_view text,
                                      struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "X", 1, err));
    CAIRN_TRY(cairn_buf_append_u32le(ret, (uint32_t)text.size, err));
    return cairn_buf_append(ret, text.data, text.size, err);
}

enum cairn_code cairn_pickle_put_number(struct cairn_buf *ret, uint64_t number,
                                        struct cairn_error *err) {
    if (number <= INT32_MAX) {
        CAIRN_TRY(cairn_buf_append(ret, "J", 1, err));
        return cairn_buf_append_u32le(ret, (uint32_t)number, err);
    }
    CAIRN_TRY(cairn_buf_append(ret, "\x8a\x09", 2, err)); /* nine bytes: it is never negative */
    CAIRN_TRY(cairn_buf_append_u64le(ret, number, err));
    return cairn_buf_append(ret, "", 1, err);
}

enum cairn_code cairn_pickle_put_numbers(struct cairn_buf *ret, const uint64_t *numbers,
                                         unsigned count, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append(ret, "(", 1, err));
    for (unsigned i = 0; i < count; i++) CAIRN_TRY(cairn_pickle_put_number(ret, numbers[i], err));
    return cairn_buf_append(ret, "t", 1, err);
}
