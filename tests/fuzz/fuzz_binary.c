/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and layouts, frames of the socket, the journal. */
#include <fcntl.h>
#include <sys/socket.h>

#include "api/documents/names.h"
#include "api/table/layout.h"
#include "api/table/table.h"
#include "common/log.h"
#include "tests/fuzz/fuzz.h"

static void walk_table(const struct cairn_table *table) {
    struct cairn_table_shard shard;
    struct cairn_tensor tensor;
    struct cairn_fragment fragment;
    for (uint32_t i = 0; i < table->shard_count; i++) cairn_table_shard_at(table, i, &shard);
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        uint32_t found = UINT32_MAX;
        cairn_table_tensor_at(table, i, &tensor);
        FUZZ_HOLDS(cairn_table_find(table, tensor.name, &found) && found == i);
        FUZZ_HOLDS(tensor.fragment_first <= table->fragment_count &&
                   tensor.fragment_count <= table->fragment_count - tensor.fragment_first);
    }
    for (uint32_t i = 0; i < table->fragment_count; i++) {
        cairn_table_fragment_at(table, i, &fragment);
        FUZZ_HOLDS(fragment.shard < table->shard_count);
        cairn_table_shard_at(table, fragment.shard, &shard);
        FUZZ_HOLDS(fragment.offset_bytes <= shard.size_bytes &&
                   fragment.size_bytes <= shard.size_bytes - fragment.offset_bytes);
    }
}

void cairn_fuzz_table(struct cairn_view input) {
    struct cairn_error err = {0};
    struct cairn_table table;
    enum cairn_code code = cairn_table_open(input, &table, &err);
    FUZZ_SAYS_WHY(code, err);
    if (!code) walk_table(&table);
    struct cairn_layout layout = {0};
    code = cairn_layout_open(input, &layout, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code) return;
    for (uint32_t i = 0; i < layout.name_count; i++) {
        struct cairn_view name;
        uint32_t first, count, found = UINT32_MAX;
        cairn_layout_name_at(&layout, i, &name, &first, &count);
        FUZZ_HOLDS(cairn_layout_find(&layout, name, &found) && found == i);
        for (uint32_t j = 0; j < count; j++) {
            struct cairn_tensor tensor;
            size_t owner =
                (size_t)(cairn_layout_tensor_at(&layout, first + j, &tensor) - layout.tables);
            FUZZ_HOLDS(owner < layout.table_count && !cairn_view_compare(tensor.name, name));
        }
    }
    for (uint32_t i = 0; i < layout.table_count; i++) walk_table(&layout.tables[i]);
    cairn_layout_release(&layout);
}

/* The bytes come over a real socket in pieces of one size; the frames must not depend on it. */
static uint64_t read_frames(struct cairn_view input, size_t piece) {
    struct cairn_frame_reader reader = {0};
    struct cairn_error err = {0};
    uint64_t digest = 0;
    enum cairn_code code = CAIRN_OK;
    int ends[2];
    FUZZ_HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    for (size_t at = 0; !code && at < input.size; at += piece) {
        size_t size = input.size - at < piece ? input.size - at : piece;
        FUZZ_HOLDS(write(ends[0], (const char *)input.data + at, size) == (ssize_t)size);
        for (bool ready = true; !code && ready;) {
            struct cairn_frame frame = {0};
            bool closed = false;
            ready = false;
            code = cairn_frame_fill(&reader, ends[1], &closed, &err);
            if (!code) code = cairn_frame_next(&reader, &frame, &ready, &err);
            FUZZ_SAYS_WHY(code, err);
            if (!code && ready) {
                FUZZ_HOLDS(frame.name && json_is_object(frame.message));
                digest = digest * 31 + frame.blob.size + strlen(frame.name);
            }
            cairn_frame_release(&frame);
        }
    }
    cairn_frame_reader_release(&reader);
    close(ends[0]);
    close(ends[1]);
    return digest * 4 + (code != CAIRN_OK);
}

void cairn_fuzz_frame(struct cairn_view input) {
    uint64_t whole = read_frames(input, 64 * CAIRN_KIB);
    FUZZ_HOLDS(read_frames(input, 1) == whole);
    FUZZ_HOLDS(read_frames(input, 7) == whole);
}

static enum cairn_code check_record(void *owner, const struct cairn_up_replayed *record,
                                    struct cairn_error *err) {
    (void)err;
    ++*(uint64_t *)owner;
    FUZZ_HOLDS(record->name && json_is_object(record->message));
    return CAIRN_OK;
}

/* Opened twice: what the first open kept (it may cut a torn tail) the second finds again. */
void cairn_fuzz_journal(struct cairn_view input) {
    static char path[64];
    if (!path[0]) {
        cairn_log_start("fuzz", CAIRN_LOG_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC));
        snprintf(path, sizeof path, "/dev/shm/cairn-fuzz-%d", (int)getpid());
    }
    uint64_t seen[2] = {0};
    enum cairn_code codes[2];
    FILE *file = fopen(path, "wb");
    FUZZ_HOLDS(file && fwrite(input.data, 1, input.size, file) == input.size);
    FUZZ_HOLDS(fclose(file) == 0 && chmod(path, 0600) == 0);
    for (int i = 0; i < 2; i++) {
        struct cairn_error err = {0};
        struct cairn_up_journal *journal = NULL;
        const struct cairn_up_journal_options options = {.path = path,
                                                         .node = "n1",
                                                         .replay = check_record,
                                                         .owner = &seen[i],
                                                         .rewrite_bytes = CAIRN_MIB};
        codes[i] = cairn_up_journal_open(&options, &journal, &err);
        FUZZ_SAYS_WHY(codes[i], err);
        cairn_up_journal_free(journal);
    }
    FUZZ_HOLDS(codes[0] == codes[1] && (codes[0] || seen[0] == seen[1]));
    unlink(path);
}
