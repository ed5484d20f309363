/* SPDX-License-Identifier: Apache-2.0 */
/* Saves of what was described before: of known pieces, or of a save. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/save/arrange.h"
#include "client/save/fail.h"
#include "client/save/known.h"
#include "client/save/pieces.h"
#include "client/save/share.h"
#include "client/session/devices.h"
#include "client/session/options.h"

/* ---- addresses ---- */

static enum cairn_code check_count(const struct cairn_pieces *known, const void *const *sources,
                                   size_t count, struct cairn_error *err) {
    if (sources ? count == known->source_count : !count) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "%zu sources of what has %" PRIu32, count,
                      known->source_count);
}

static enum cairn_code set_source(struct cairn_save *save, struct cairn_client_piece *piece,
                                  const void *const *sources, struct cairn_error *err) {
    piece->crc32c = 0;
    piece->written = false;
    if (!sources || !piece->source) return CAIRN_OK;
    const uint8_t *source = sources[piece->source_index];
    if (!source)
        return cairn_fail(err, CAIRN_INVALID, "source %" PRIu32 ", of tensor %s, is NULL",
                          piece->source_index, piece->name);
    piece->source = source + piece->source_offset;
    if (!piece->on_device) return CAIRN_OK;
    return cairn_client_device_need(save->session, piece->source, err);
}

static enum cairn_code set_sources(struct cairn_save *save, const struct cairn_pieces *known,
                                   const void *const *sources, struct cairn_error *err) {
    for (size_t i = 0; i < known->count; i++) {
        save->pieces[i].source = known->pieces[i].source;
        CAIRN_TRY(set_source(save, &save->pieces[i], sources, err));
    }
    return CAIRN_OK;
}

/* For cairn_save_again, which may name none. */
static enum cairn_code keep_sources(struct cairn_save *save, const void *const *sources,
                                    size_t count, struct cairn_error *err) {
    if (!sources) return CAIRN_OK;
    save->sources = malloc((count + 1) * sizeof *save->sources);
    if (!save->sources) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the sources");
    memcpy((void *)(uintptr_t)save->sources, sources, count * sizeof *save->sources);
    return CAIRN_OK;
}

/* ---- known pieces become a save's ---- */

/* The save's first: the array changes its owner. */
static enum cairn_code adopt(struct cairn_save *save, struct cairn_pieces *known,
                             const void *const *sources, struct cairn_error *err) {
    struct cairn_client_piece *pieces = cairn_client_known_take(known);
    if (!pieces) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the pieces");
    free(save->pieces);
    save->pieces = pieces;
    save->piece_count = save->piece_capacity = known->count;
    save->known = known;
    cairn_client_known_hold(known);
    return set_sources(save, known, sources, err);
}

static enum cairn_code append(struct cairn_save *save, const struct cairn_pieces *known,
                              const void *const *sources, struct cairn_error *err) {
    for (size_t i = 0; i < known->count; i++) {
        struct cairn_client_piece piece = known->pieces[i];
        CAIRN_TRY(set_source(save, &piece, sources, err));
        piece.source_index += save->source_count;
        CAIRN_TRY(cairn_client_pieces_append(save, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code add_raws(struct cairn_save *save, const struct cairn_pieces *known,
                                const void *const *sources, struct cairn_error *err) {
    for (size_t i = 0; i < known->raw_count; i++) {
        struct cairn_client_raw raw = known->raws[i];
        uint32_t index = save->source_count;
        if (sources) raw.source = sources[raw.source_index];
        if (raw.bytes && !raw.source)
            return cairn_fail(err, CAIRN_INVALID, "the source of shard %s is NULL", raw.name);
        CAIRN_TRY(cairn_client_raws_append(save, &raw, err));
        save->raws[save->raw_count - 1].source_index = index + known->raws[i].source_index;
        save->source_count = index;
    }
    return CAIRN_OK;
}

/* The save consists of what is known, and of what it has already. */
static enum cairn_code use(struct cairn_save *save, struct cairn_pieces *known,
                           const void *const *sources, size_t source_count,
                           struct cairn_error *err) {
    CAIRN_TRY(check_count(known, sources, source_count, err));
    CAIRN_TRY(cairn_client_shares_join(&save->shares, &known->shares, err));
    bool first = !save->piece_count && !save->raw_count && !save->known && !save->kept;
    size_t before = save->piece_count;
    enum cairn_code code = first ? adopt(save, known, sources, err)
                                 : append(save, known, sources, err);
    if (!code) code = add_raws(save, known, sources, err);
    if (!code && first) code = keep_sources(save, sources, source_count, err);
    if (!code) save->source_count += known->source_count;
    if (code && first) cairn_client_save_drop_pieces(save);
    while (code && !first && save->piece_count > before)
        free(save->pieces[--save->piece_count].strided);
    if (code) cairn_client_shares_part(&save->shares, &known->shares);
    return code;
}

enum cairn_code cairn_save_pieces(struct cairn_save *save, struct cairn_pieces *known,
                                  const void *const *sources, size_t source_count,
                                  struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!known)
        return cairn_fail(err, cairn_client_save_misused(save, CAIRN_INVALID), "no known pieces");
    enum cairn_code code = cairn_client_save_extensible(save, known->early_only, err);
    if (!code) code = use(save, known, sources, source_count, err);
    return code ? cairn_client_save_misused(save, code) : CAIRN_OK;
}

/* ---- pieces become known ---- */

static enum cairn_code describe(struct cairn_save *of, const struct cairn_tensor_piece *pieces,
                                size_t count, const struct cairn_pieces_options *options,
                                size_t *ret_bad, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *said = NULL; /* by each begin */
    CAIRN_TRY(cairn_client_shares_open(&of->shares, options->splits, options->split_count, false,
                                       &said, err));
    return cairn_client_pieces_add(of, pieces, count, ret_bad, err);
}

/* Where everything will lie; the session's next save of it finds that done. */
static enum cairn_code place(struct cairn_save *of, uint64_t *ret_bytes, struct cairn_error *err) {
    struct cairn_client_arrangement arrangement = {0};
    CAIRN_TRY(cairn_client_shares_complete(&of->shares, err));
    CAIRN_TRY(cairn_client_arrange(of, of->session->rank, &arrangement, err));
    *ret_bytes = arrangement.slab_bytes;
    cairn_client_arrangement_keep(of->session, &arrangement);
    return CAIRN_OK;
}

static bool keep_numbers(struct cairn_client_texts *texts, const void **numbers, size_t count) {
    if (!*numbers || !count) return true;
    *numbers = cairn_client_texts_keep_bytes(texts, *numbers, count * sizeof(uint64_t));
    return *numbers != NULL;
}

static bool keep_text(struct cairn_client_texts *texts, const char **text) {
    if (!*text) return true;
    *text = cairn_client_texts_keep(texts, *text);
    return *text != NULL;
}

/* What was said of a piece, for restores. */
static bool keep_described(struct cairn_client_texts *texts, struct cairn_tensor_piece *piece) {
    size_t regions = piece->region_count > 1 ? piece->region_count : 1;
    size_t places = (piece->form == CAIRN_FLAT ? 1 : piece->dimension_count) * regions;
    bool formed = piece->form == CAIRN_FLAT || piece->form == CAIRN_BOX;
    if (!formed) piece->start = piece->count = NULL;
    size_t strides = piece->form == CAIRN_FLAT ? 1 : piece->dimension_count;
    return keep_text(texts, &piece->name) && keep_text(texts, &piece->dtype) &&
           keep_text(texts, &piece->source_dtype) &&
           keep_numbers(texts, (const void **)&piece->shape, piece->dimension_count) &&
           keep_numbers(texts, (const void **)&piece->start, places) &&
           keep_numbers(texts, (const void **)&piece->count, places) &&
           keep_numbers(texts, (const void **)&piece->source_stride, strides);
}

static enum cairn_code keep_all(struct cairn_pieces *known,
                                const struct cairn_tensor_piece *pieces, size_t count,
                                struct cairn_error *err) {
    const uint8_t *at = (const uint8_t *)pieces;
    CAIRN_AUTO_HEAP struct cairn_tensor_piece *own = calloc(count + 1, sizeof *own);
    bool whole = own != NULL;
    for (size_t i = 0; i < count && whole; i++, at += pieces->size) {
        CAIRN_TRY(cairn_client_options(at, &own[i], sizeof own[i], "piece", err));
        known->early_only = known->early_only || own[i].by_caller || own[i].in_file;
        whole = keep_described(&known->texts, &own[i]);
    }
    if (whole)
        known->described =
            cairn_client_texts_keep_bytes(&known->texts, own, (count + 1) * sizeof *own);
    if (known->described) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for known pieces");
}

static enum cairn_code make(struct cairn_save *of, const struct cairn_tensor_piece *pieces,
                            size_t count, const struct cairn_pieces_options *options,
                            size_t *ret_bad, struct cairn_pieces **ret, struct cairn_error *err) {
    uint64_t bytes = 0;
    CAIRN_TRY(describe(of, pieces, count, options, ret_bad, err));
    *ret_bad = count;
    CAIRN_TRY(place(of, &bytes, err));
    struct cairn_pieces *made = cairn_client_known_of(of);
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for known pieces");
    made->bytes = bytes;
    enum cairn_code code = keep_all(made, pieces, count, err);
    if (code)
        cairn_pieces_free(made);
    else
        *ret = made;
    return code;
}

enum cairn_code cairn_pieces_new(struct cairn_session *session,
                                 const struct cairn_tensor_piece *pieces, size_t count,
                                 const struct cairn_pieces_options *options, size_t *ret_bad,
                                 struct cairn_pieces **ret, struct cairn_error *err) {
    struct cairn_pieces_options own;
    size_t bad = 0;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (!count || !pieces) return cairn_fail(err, CAIRN_INVALID, "there are no pieces");
    struct cairn_save *of = calloc(1, sizeof *of); /* in the form that saves have; none is begun */
    if (!of) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for known pieces");
    of->session = session;
    of->generation = of->fd = -1;
    of->number = cairn_client_known_number();
    enum cairn_code code = make(of, pieces, count, &own, &bad, ret, err);
    cairn_client_save_drop_pieces(of);
    free(of);
    if (code && ret_bad) *ret_bad = bad;
    return code;
}

enum cairn_code cairn_pieces_bytes(const struct cairn_pieces *known, uint64_t item_bytes,
                                   uint64_t *ret, struct cairn_error *err) {
    CAIRN_CLIENT_RET(ret, err);
    if (!known) return cairn_fail(err, CAIRN_INVALID, "no known pieces");
    if (cairn_add_overflows(known->bytes, item_bytes, ret))
        return cairn_fail(err, CAIRN_TOO_LARGE, "%" PRIu64 " bytes of items", item_bytes);
    return CAIRN_OK;
}

/* ---- again ---- */

/* What `previous` consisted of, once no thread needs it any more. */
static enum cairn_code take_last(struct cairn_save *previous, uint64_t deadline_ms,
                                 struct cairn_pieces **ret, struct cairn_error *err) {
    struct cairn_session *session = previous->session;
    CAIRN_HOLD(&session->lock);
    while (previous->behind.busy) {
        enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
        if (code == CAIRN_TIMEOUT)
            return cairn_fail(err, code, "step %" PRIu64 " is not sealed yet", previous->step);
        CAIRN_TRY(code);
    }
    if (!previous->last)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s step %" PRIu64 ": what it consisted of is not known: it was not "
                          "staged, or had files, streams, or known pieces and more",
                          session->run, previous->step);
    *ret = previous->last;
    cairn_client_known_hold(*ret);
    return CAIRN_OK;
}

enum cairn_code cairn_save_again(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options,
                                 struct cairn_save *previous, const void *const *sources,
                                 size_t source_count, struct cairn_save **ret,
                                 struct cairn_error *err) {
    struct cairn_pieces *known = NULL;
    struct cairn_save_options own;
    struct cairn_save *save = NULL;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (!previous || previous->session != session)
        return cairn_fail(err, CAIRN_INVALID, "no save of this session before it");
    CAIRN_TRY(take_last(previous, cairn_client_deadline(session, own.timeout_ms), &known, err));
    enum cairn_code code = check_count(known, sources, source_count, err);
    if (!sources && previous->last_sources) {
        sources = previous->last_sources;
        source_count = known->source_count;
    }
    if (!code) code = cairn_save_begin(session, step, options, &save, err);
    if (!code) code = use(save, known, sources, source_count, err);
    cairn_pieces_free(known);
    if (code && save) {
        code = cairn_client_save_fail(save, code, err);
        cairn_save_free(save);
    }
    if (!code) *ret = save;
    return code;
}
