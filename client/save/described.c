/* SPDX-License-Identifier: Apache-2.0 */
/* One way through pieces and raws, which writes their bytes down or compares them. */
#include "client/save/described.h"

/* Written to `keep`, or compared with what is left of `known`. */
struct tape {
    struct cairn_buf *keep;
    struct cairn_view known;
    bool whole; /* all was kept, or all was the same */
};

static void put(struct tape *tape, const void *data, size_t size) {
    if (!tape->whole || !size) return;
    if (tape->keep) {
        tape->whole = cairn_buf_append(tape->keep, data, size, NULL) == CAIRN_OK;
        return;
    }
    tape->whole = size <= tape->known.size && !memcmp(tape->known.data, data, size);
    if (!tape->whole) return;
    tape->known.data = (const char *)tape->known.data + size;
    tape->known.size -= size;
}

/* Its end is part of it, so that no two texts run together; NULL is none. */
static void put_text(struct tape *tape, const char *text) {
    const char there = text != NULL;
    put(tape, &there, 1);
    if (text) put(tape, text, strlen(text) + 1);
}

static void put_piece(struct tape *tape, const struct cairn_client_piece *piece) {
    const uint32_t head[] = {piece->dtype, piece->dimension_count, (uint32_t)piece->kind,
                             (uint32_t)piece->form, (uint32_t)piece->fragment.form};
    const uint64_t sizes[] = {piece->bytes, piece->tensor_bytes, piece->file_offset};
    size_t places = piece->dimension_count ? piece->dimension_count : 1; /* FLAT has one */
    CAIRN_PROMISE(places <= CAIRN_DIMENSIONS_MAX, tape->whole = false; return);
    put_text(tape, piece->name);
    put(tape, head, sizeof head);
    put(tape, sizes, sizeof sizes);
    put(tape, piece->shape, piece->dimension_count * sizeof *piece->shape);
    put(tape, piece->fragment.start, places * sizeof *piece->fragment.start);
    put(tape, piece->fragment.count, places * sizeof *piece->fragment.count);
    put_text(tape, piece->alias_of);
    put_text(tape, piece->in_file);
}

static void put_all(struct tape *tape, const struct cairn_save *save) {
    const uint64_t counts[] = {save->piece_count, save->raw_count};
    put(tape, counts, sizeof counts);
    for (size_t i = 0; i < save->piece_count && tape->whole; i++)
        put_piece(tape, &save->pieces[i]);
    for (size_t i = 0; i < save->raw_count && tape->whole; i++) {
        const uint64_t raw[] = {save->raws[i].bytes, save->raws[i].file};
        put_text(tape, save->raws[i].name);
        put(tape, raw, sizeof raw);
    }
}

void cairn_client_described(const struct cairn_save *save, struct cairn_buf *ret) {
    struct tape tape = {.keep = ret, .whole = true};
    cairn_buf_clear(ret);
    ret->limit = CAIRN_CLIENT_DESCRIBED_BYTES_MAX;
    put_all(&tape, save);
    if (!tape.whole) cairn_buf_release(ret);
}

bool cairn_client_described_is(const struct cairn_save *save, struct cairn_view known) {
    struct tape tape = {.known = known, .whole = known.size > 0};
    put_all(&tape, save);
    return tape.whole && !tape.known.size;
}
