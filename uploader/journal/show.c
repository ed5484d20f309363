/* SPDX-License-Identifier: Apache-2.0 */
/* The journal as text. */
#include "uploader/journal/show.h"

#include <stdio.h>

#include "uploader/journal/journal.h"

/* Grants are rights: they do not belong on a terminal. */
static enum cairn_code show_record(void *owner, const struct cairn_up_replayed *record,
                                   struct cairn_error *err) {
    (void)owner;
    json_t *message = record->message; /* borrowed, and nobody reads it afterwards */
    CAIRN_AUTO(buf) text = {0};
    json_object_del(message, "grant");
    json_object_set_new(message, "entry", json_integer((json_int_t)record->entry));
    json_object_set_new(message, "blob_bytes", json_integer((json_int_t)record->blob.size));
    CAIRN_TRY(cairn_json_show(message, &text, err));
    puts(text.data);
    return CAIRN_OK;
}

enum cairn_code cairn_up_show_journal(const struct cairn_up_places *places,
                                      struct cairn_error *err) {
    struct cairn_up_journal *journal = NULL;
    struct cairn_up_journal_options options = {
        .path = places->journal_path, .node = places->node, .replay = show_record};
    CAIRN_TRY(cairn_up_journal_open(&options, &journal, err));
    cairn_up_journal_free(journal);
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}
