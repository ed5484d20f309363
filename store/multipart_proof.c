/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an object that is there proves (R3). Ours it is by its token, by a plain OK of our own PUT
 * or COMPLETE, or by the journal's word that it was durable. Where none of these can be had, its
 * bytes are read and compared: equal length and checksum are as good as a token. The same where the
 * store states another checksum than ours: some state wrong ones of bytes that are right.
 */
#include "common/hooks.h"
#include "store/multipart_inside.h"

static uint64_t read_length(const struct cairn_multipart *mp) {
    return cairn_min_u64(CAIRN_MULTIPART_READ_BYTES, mp->size_bytes - mp->read_bytes);
}

static void refuse(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    FAIL(mp, CAIRN_CONFLICT,
         "an object of %" PRIu64 " bytes with token \"%s\" is there; ours has %" PRIu64
         " bytes and token \"%s\"",
         request->object_bytes, request->object_token, mp->size_bytes, mp->token);
}

static void something_there(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    bool stated = request->object_token[0] != '\0';
    bool foreign = stated && strcmp(request->object_token, mp->token) != 0;
    if (foreign || request->object_bytes != mp->size_bytes) {
        refuse(mp, request);
        return;
    }
    mp->found_has_crc32c = request->object_has_crc32c;
    mp->found_crc32c = request->object_crc32c;
    mp->found_token = stated;
    bool known = mp->certain || (mp->proven && CAIRN_RULE(Q46));
    if (!stated && !known && !CAIRN_RULE(Q46)) {
        refuse(mp, request);
        return;
    }
    /* The death of a process that had put it at once may have come before the bytes that went out
     * were compared with those that were staged (O8); parts are completed after that alone. */
    bool uncompared = mp->recovered && !mp->parts && CAIRN_RULE(Q42);
    mp->reads = mp->disputed || (!known && !mp->found_has_crc32c && (!stated || uncompared));
    mp->read_bytes = 0;
    cairn_multipart_enter(mp, STATE_CHECK);
}

/* Without the right to list a bucket 403 stands for "not there", too (multipart.h#6). */
static void refused_head(struct cairn_multipart *mp, const struct cairn_store_request *request) {
    mp->head_refused = true;
    if (!mp->certain && !mp->taken)
        cairn_multipart_nothing_there(mp);
    else if (!cairn_multipart_look_again(mp))
        cairn_multipart_again_or_fail(mp, request, "look at the object");
}

void cairn_multipart_head_result(struct cairn_multipart *mp,
                                 const struct cairn_store_request *request) {
    if (request->code == CAIRN_OK)
        something_there(mp, request);
    else if (request->code == CAIRN_NOT_FOUND)
        cairn_multipart_nothing_there(mp);
    else if (request->code == CAIRN_FORBIDDEN && request->error.http_status == 403)
        refused_head(mp, request);
    else
        cairn_multipart_again_or_fail(mp, request, "look at the object");
}

void cairn_multipart_read_result(struct cairn_multipart *mp,
                                 const struct cairn_multipart_action *action,
                                 const struct cairn_store_request *request) {
    if (request->code != CAIRN_OK) {
        cairn_multipart_again_or_fail(mp, request, "read the object that is there");
        return;
    }
    if (request->got_crc32c == action->crc32c) {
        mp->read_bytes += action->length;
        mp->tries = 0;
        return;
    }
    bool ours = mp->found_token || mp->disputed;
    FAIL(mp, ours ? CAIRN_CORRUPT : CAIRN_CONFLICT,
         "an object of our length is there with other bytes: from %" PRIu64 " on, %" PRIu64
         " of them have checksum %08" PRIx32 ", ours have %08" PRIx32,
         action->offset, action->length, request->got_crc32c, action->crc32c);
}

static void take_read(struct cairn_multipart *mp, struct cairn_multipart_action *ret) {
    cairn_multipart_take(mp, CAIRN_MULTIPART_READ, ret);
    ret->offset = mp->read_bytes;
    ret->length = read_length(mp);
    ret->crc32c = cairn_multipart_range_crc32c(mp, ret->offset, ret->length);
}

/* Where the journal held no checksums they come with the source (Q17). */
void cairn_multipart_next_check(struct cairn_multipart *mp, struct cairn_multipart_action *ret) {
    if (!cairn_multipart_whole_known(mp)) {
        if (!mp->has_source) ret->kind = CAIRN_MULTIPART_NEED_SOURCE;
        return;
    }
    if (mp->found_has_crc32c && mp->found_crc32c != mp->crc32c) mp->disputed = true;
    if ((mp->reads || mp->disputed) && mp->read_bytes < mp->size_bytes) {
        take_read(mp, ret);
        return;
    }
    mp->misstated = mp->disputed;
    cairn_multipart_enter(mp, STATE_DURABLE);
    cairn_multipart_next(mp, ret);
}
