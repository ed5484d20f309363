/* SPDX-License-Identifier: Apache-2.0 */
/* Known pieces are read as they were saved: they are of the room of saves, reads of the room of
 * restores, and neither knows the other. */
#include <stdlib.h>

#include "api/table/dtype.h"
#include "client/restore/restore.h"
#include "client/save/known.h"

/* Bytes in memory of the piece's region; elements of less than a byte fill whole ones. */
static uint64_t region_bytes(const struct cairn_tensor_piece *piece, size_t region) {
    unsigned dtype = 0;
    uint64_t elements = 1;
    const char *stored = piece->source_dtype ? piece->source_dtype : piece->dtype;
    bool flat = piece->form == CAIRN_FLAT;
    size_t places = flat ? 1 : piece->dimension_count;
    const uint64_t *count = piece->form == CAIRN_WHOLE || !piece->dimension_count
                                ? piece->shape
                                : piece->count + region * places;
    if (!cairn_dtype_parse(cairn_view_of(stored), &dtype)) return 0;
    for (size_t d = 0; d < places; d++) elements *= count[d];
    return elements * cairn_dtype_bits(dtype) / 8;
}

static size_t regions_of(const struct cairn_tensor_piece *piece) {
    return piece->region_count > 1 ? piece->region_count : 1;
}

static size_t count_reads(const struct cairn_pieces *known) {
    size_t count = 0;
    for (size_t i = 0; i < known->source_count; i++) count += regions_of(&known->described[i]);
    return count;
}

static void make_read(const struct cairn_tensor_piece *piece, size_t region, uint8_t *into,
                      struct cairn_read *ret) {
    size_t places = piece->form == CAIRN_FLAT ? 1 : piece->dimension_count;
    *ret = (struct cairn_read){.size = sizeof *ret,
                               .tensor = piece->name,
                               .form = piece->form,
                               .start = piece->start ? piece->start + region * places : NULL,
                               .count = piece->count ? piece->count + region * places : NULL,
                               .into = into,
                               .into_bytes = region_bytes(piece, region),
                               .memory = piece->memory,
                               .stream = piece->stream,
                               .into_dtype = piece->source_dtype,
                               .into_stride = piece->source_stride};
}

enum cairn_code cairn_restore_pieces(struct cairn_restore *restore,
                                     const struct cairn_pieces *known, void *const *into,
                                     size_t into_count, int optional, uint32_t timeout_ms,
                                     struct cairn_error *err) {
    if (!restore || !known || !into || into_count != known->source_count)
        return cairn_fail(err, CAIRN_INVALID, "no restore, no pieces, or %zu addresses for %u",
                          into_count, known ? known->source_count : 0);
    if (!restore->session)
        return cairn_fail(err, CAIRN_INVALID, "the session of the restore is closed");
    CAIRN_AUTO_HEAP struct cairn_read *reads = calloc(count_reads(known) + 1, sizeof *reads);
    size_t count = 0;
    if (!reads) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the reads");
    for (size_t i = 0; i < into_count; i++) {
        const struct cairn_tensor_piece *piece = &known->described[i];
        uint8_t *at = into[i];
        if (piece->kind == CAIRN_ALIAS) continue;
        for (size_t region = 0; region < regions_of(piece); region++) {
            struct cairn_read *read = &reads[count++];
            make_read(piece, region, at, read);
            read->optional = optional;
            if (piece->kind == CAIRN_LOCAL) read->local_rank_of = restore->session->rank;
            at = at ? at + read->into_bytes : NULL;
        }
    }
    return cairn_restore_read(restore, reads, count, timeout_ms, err);
}
