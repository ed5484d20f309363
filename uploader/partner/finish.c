/* SPDX-License-Identifier: Apache-2.0 */
/* A copy becomes a save of this node, as if its journal had had it: begin, seal and shards are told
 * and sent by the same code as any other's, under the tokens of the node that it is of. */
#include <inttypes.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/partner/inside.h"

static enum cairn_code no_memory(struct cairn_error *err) {
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to send a copy");
}

/* ---- the journal's records ---- */

/* table, begin, stage, an intent and checksums of each shard, seal */
struct notes {
    struct cairn_up_record *records;
    json_t **messages;
    size_t count;
};

static enum cairn_code note(struct notes *notes, uint64_t entry, json_t *take_message,
                            struct cairn_view blob, struct cairn_error *err) {
    if (!take_message) return no_memory(err);
    notes->messages[notes->count] = take_message;
    notes->records[notes->count++] =
        (struct cairn_up_record){.entry = entry, .message = take_message, .blob = blob};
    return CAIRN_OK;
}

static enum cairn_code note_stage(struct notes *notes, const struct cairn_up_copy *copy,
                                  uint64_t entry, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *shards = json_array();
    for (size_t i = 0; i < copy->shard_count; i++) {
        const struct cairn_up_copy_shard *shard = &copy->shards[i];
        json_t *item = CAIRN_PACK(stage_shard, .name = shard->name, .offset = shard->offset,
                                  .bytes = shard->bytes,
                                  .kind = shard->tensors ? "tensors" : "raw");
        if (json_array_append_new(shards, item)) return no_memory(err);
    }
    return note(notes, entry,
                CAIRN_PACK(record_stage, .owner = entry, .bytes = copy->data_bytes,
                           .shards = shards),
                (struct cairn_view){0}, err);
}

static enum cairn_code note_all(struct notes *notes, const struct cairn_up_copy *copy,
                                const struct cairn_up_save *save, struct cairn_error *err) {
    const struct cairn_view none = {0};
    uint64_t entry = save->entry;
    size_t room = 2 * copy->shard_count + 4;
    notes->records = calloc(room, sizeof(*notes->records));
    notes->messages = calloc(room, sizeof(json_t *));
    if (!notes->records || !notes->messages) return no_memory(err);
    if (save->table)
        CAIRN_TRY(note(notes, save->table->entry, cairn_up_table_record(save->table),
                       cairn_buf_view(&save->table->bytes), err));
    CAIRN_TRY(note(notes, entry, cairn_up_save_begin_record(save), none, err));
    CAIRN_TRY(note_stage(notes, copy, entry, err));
    for (size_t i = 0; i < copy->shard_count; i++) {
        const struct cairn_up_copy_shard *shard = &copy->shards[i];
        CAIRN_TRY(note(notes, entry,
                       CAIRN_PACK(record_intent, .s = i, .token = shard->token,
                                  .part_bytes = shard->part_bytes),
                       none, err));
        CAIRN_TRY(note(notes, entry, CAIRN_PACK(record_blocks, .s = i),
                       cairn_buf_view(&shard->blocks_le), err));
    }
    return note(notes, entry,
                CAIRN_PACK(record_seal, .replicated = copy->replicated,
                           .table = save->table ? save->table->hex : NULL, .labels = copy->labels,
                           .meta = copy->meta),
                none, err);
}

static void notes_release(struct notes *notes) {
    for (size_t i = 0; i < notes->count; i++) json_decref(notes->messages[i]);
    free(notes->records);
    free(notes->messages);
}

static enum cairn_code remember(struct cairn_up *up, const struct cairn_up_copy *copy,
                                struct cairn_up_save *save, struct cairn_error *err) {
    struct notes notes = {0};
    enum cairn_code code = note_all(&notes, copy, save, err);
    if (!code)
        code = cairn_up_journal_post(up->journal, notes.records, notes.count, NULL, NULL, err);
    if (!code) cairn_up_journal_hurry(up->journal); /* it is sent soon */
    if (!code && save->table) save->table->written = true;
    notes_release(&notes);
    return code;
}

/* ---- the save ---- */

static enum cairn_code add_shard(struct cairn_up *up, struct cairn_up_save *save,
                                 const struct cairn_up_copy_shard *from, struct cairn_error *err) {
    size_t count = from->blocks_le.size / 4;
    CAIRN_AUTO_HEAP uint32_t *blocks = calloc(count + 1, sizeof(*blocks));
    struct cairn_up_shard *shard = NULL;
    struct cairn_key key;
    if (!blocks) return no_memory(err);
    for (size_t i = 0; i < count; i++)
        blocks[i] = cairn_load_u32le((const uint8_t *)from->blocks_le.data + 4 * i);
    cairn_up_save_key(save, from->name, &key);
    struct cairn_up_shard_options options = {.entry = save->entry,
                                             .index = save->state.shard_count,
                                             .name = from->name,
                                             .key = key.text,
                                             .tensors = from->tensors,
                                             .slab_offset = from->offset,
                                             .size_bytes = from->bytes,
                                             .take_fd = -1,
                                             .token = from->token,
                                             .part_bytes = from->part_bytes};
    CAIRN_TRY(cairn_up_shard_new(up->queue, &options, &shard, err));
    const struct cairn_up_shard_past past = {
        .intent = true, .blocks = blocks, .source_wait = CAIRN_UP_SOURCE_FOREVER};
    enum cairn_code code = cairn_up_shard_recover(up->queue, shard, &past, err);
    if (code) {
        cairn_up_shard_free(up->queue, shard);
        return code;
    }
    return cairn_up_save_shard_add_locked(up, save, shard, err);
}

static enum cairn_code fill(struct cairn_up *up, const struct cairn_up_copy *copy,
                            struct cairn_up_save *save, struct cairn_error *err) {
    const struct cairn_up_save_past past = {.staged = true, .sealed = true, .sent = true};
    cairn_up_save_state_recover(save->entry, &past, &save->state);
    for (size_t i = 0; i < copy->shard_count; i++)
        CAIRN_TRY(add_shard(up, save, &copy->shards[i], err));
    save->stage_count = copy->shard_count;
    CAIRN_TRY(
        cairn_up_save_set_sealed(save, copy->replicated, copy->labels, copy->meta, err));
    if (copy->table.size)
        CAIRN_TRY(cairn_up_table_new_locked(up, cairn_buf_view(&copy->table),
                                            cairn_up_journal_entry_new(up->journal), &save->table,
                                            err));
    return remember(up, copy, save, err);
}

enum cairn_code cairn_up_copy_finish_locked(struct cairn_up *up, struct cairn_up_copy *copy,
                                            struct cairn_error *err) {
    struct cairn_up_begin begin = {0};
    struct cairn_up_save *save = NULL;
    CAIRN_TRY(cairn_up_copy_begin(copy, &begin, err));
    CAIRN_TRY(cairn_up_save_new_locked(up, cairn_up_journal_entry_new(up->journal), &begin, &save,
                                       err));
    enum cairn_code code = fill(up, copy, save, err);
    if (code) {
        cairn_up_save_drop_locked(up, save);
        return code;
    }
    copy->entry = save->entry;
    for (size_t i = 0; i < save->state.shard_count; i++) {
        cairn_up_queue_add(up->queue, save->shards[i]);
        static const uint8_t nothing[1];
        cairn_up_shard_source(up->queue, save->shards[i],
                              copy->data ? copy->data + copy->shards[i].offset : nothing);
    }
    cairn_log(WARN, "partner.finishes", "run=%s step=%" PRIu64 " rank=%u version=%s node=%s",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
              copy->node);
    cairn_up_wakeup_raise(&up->outbox_work);
    return CAIRN_OK;
}
