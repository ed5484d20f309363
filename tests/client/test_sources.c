/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Sources of pieces that are no contiguous memory, through the public calls. */
#include "tests/client/rank.h"

#define ROWS 300
#define COLUMNS 200

static const uint64_t shape[2] = {ROWS, COLUMNS};
static const int64_t turned[2] = {1, ROWS};

/* Where the tensor's only fragment lies in the slab of the last `stage`; NULL: nowhere. */
static const uint8_t *find_staged(struct cairn_rank *rank, const char *name) {
    struct cairn_fake_message stage, seal;
    struct cairn_table table;
    struct cairn_tensor tensor;
    struct cairn_fragment fragment;
    uint32_t index = 0;
    if (!cairn_fake_uploader_saw(rank->fake, "stage", 1, &stage) ||
        !cairn_fake_uploader_saw(rank->fake, "seal", 1, &seal) ||
        cairn_table_open(seal.blob, &table, NULL) != CAIRN_OK ||
        !cairn_table_find(&table, cairn_view_of(name), &index))
        return NULL;
    cairn_table_tensor_at(&table, index, &tensor);
    cairn_table_fragment_at(&table, tensor.fragment_first, &fragment);
    uint32_t slab = (uint32_t)json_integer_value(json_object_get(stage.message, "slab"));
    return cairn_fake_uploader_slab(rank->fake, slab) + fragment.offset_bytes;
}

static struct cairn_tensor_piece whole(const char *name) {
    return SIZED(cairn_tensor_piece, .name = name, .dtype = "F32", .dimension_count = 2,
                 .shape = shape, .kind = CAIRN_LOCAL,
                 .source_bytes = sizeof(float) * ROWS * COLUMNS);
}

TEST(a_transposed_tensor_is_staged_row_major_from_where_it_lies, err) {
    CAIRN_AUTO(rank) rank = {0};
    static float source[ROWS * COLUMNS], wanted[ROWS * COLUMNS];
    for (size_t i = 0; i < ROWS * COLUMNS; i++) source[i] = (float)i;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        wanted[i] = source[i % COLUMNS * ROWS + i / COLUMNS];
    REQUIRE_OK(rank_open(&rank, 2, &err));
    BEGUN(save, 1);
    struct cairn_tensor_piece piece = whole("w");
    piece.source = source;
    piece.source_stride = turned;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
    const uint8_t *staged = find_staged(&rank, "w");
    EXPECT(staged && memcmp(staged, wanted, sizeof wanted) == 0);
}

TEST(a_box_that_is_a_view_of_columns_and_a_flat_piece_with_a_step_are_staged, err) {
    CAIRN_AUTO(rank) rank = {0};
    static const uint64_t start[2] = {0, 50}, count[2] = {ROWS, 3}, flat[1] = {10}, one[1] = {7};
    static const int64_t rows[2] = {COLUMNS, 1}, step[1] = {-2};
    static float source[ROWS * COLUMNS], box[ROWS * 3], seven[7];
    for (size_t i = 0; i < ROWS * COLUMNS; i++) source[i] = (float)i;
    for (size_t i = 0; i < ROWS * 3; i++) box[i] = source[i / 3 * COLUMNS + 50 + i % 3];
    for (size_t i = 0; i < 7; i++) seven[i] = source[100 - 2 * i];
    REQUIRE_OK(rank_open(&rank, 2, &err));
    BEGUN(save, 1);
    struct cairn_tensor_piece piece = whole("box");
    piece.form = CAIRN_BOX, piece.start = start, piece.count = count;
    piece.source = source + 50, piece.source_stride = rows, piece.source_bytes = sizeof box;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    piece = whole("flat");
    piece.form = CAIRN_FLAT, piece.start = flat, piece.count = one;
    piece.source = source + 100, piece.source_stride = step, piece.source_bytes = sizeof seven;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
    const uint8_t *staged = find_staged(&rank, "box");
    EXPECT(staged && memcmp(staged, box, sizeof box) == 0);
    staged = find_staged(&rank, "flat");
    EXPECT(staged && memcmp(staged, seven, sizeof seven) == 0);
}

struct lazy {
    pthread_t caller;
    uint64_t next;
    bool in_order;
};

static int fill(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    struct lazy *lazy = owner;
    lazy->in_order =
        lazy->in_order && offset == lazy->next && pthread_equal(pthread_self(), lazy->caller);
    memset(to, 0x5a, bytes);
    lazy->next = offset + bytes;
    return 0;
}

TEST(a_piece_may_be_written_by_a_function_and_one_copy_thread_is_the_callers_own) {
    RANK_UPLOADER(2);
    struct lazy lazy = {.caller = pthread_self(), .in_order = true};
    RANK_OPENS(options.copy_threads = 1);
    BEGUN(save, 1);
    struct cairn_tensor_piece piece = whole("lazy");
    piece.fill = fill;
    piece.fill_owner = &lazy;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_OK);
    EXPECT(lazy.in_order);
    EXPECT_EQ_U64(lazy.next, piece.source_bytes);
    const uint8_t *staged = find_staged(&rank, "lazy");
    EXPECT(staged && staged[0] == 0x5a && staged[piece.source_bytes - 1] == 0x5a);
}

static int refuse(void *owner, uint64_t offset, void *to, uint64_t bytes) {
    CAIRN_UNUSED void *none[] = {owner, to};
    return offset + bytes ? 12 : 0;
}

TEST(a_function_that_fails_ends_the_save_and_the_next_save_is_whole) {
    RANK(2);
    struct cairn_save *save = NULL;
    REQUIRE_OK(cairn_save_begin(rank.session, 1, NULL, &save, &err));
    struct cairn_tensor_piece piece = whole("lazy");
    piece.fill = refuse;
    EXPECT_CODE(cairn_save_tensor(save, &piece, &err), CAIRN_OK);
    EXPECT_CODE(cairn_save_stage(save, &err), CAIRN_SOURCE_GONE);
    EXPECT(strstr(err.message, "tensor lazy") && strstr(err.message, "12"));
    cairn_save_free(save);
    EXPECT_CODE(rank_save(rank.session, 2, &save, &err), CAIRN_OK);
    cairn_save_free(save);
}

TEST(sources_that_contradict_themselves_are_refused) {
    RANK(2);
    static float source[ROWS * COLUMNS];
    static const int64_t huge[2] = {INT64_MAX, 1};
    BEGUN(save, 1);
    struct cairn_tensor_piece bad[4];
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) bad[i] = whole("w"), bad[i].source = source;
    bad[0].fill = fill; /* and a source */
    bad[1].source_stride = huge;
    bad[2].source = NULL, bad[2].fill = fill, bad[2].source_stride = turned;
    bad[3].dtype = "F4", bad[3].source_bytes = ROWS * COLUMNS / 2, bad[3].source_stride = turned;
    for (size_t i = 0; i < CAIRN_COUNT(bad); i++) {
        enum cairn_code code = cairn_save_tensor(save, &bad[i], &err);
        cairn_test_check(code == CAIRN_INVALID, __FILE__, __LINE__, "source %zu: %s", i,
                         cairn_code_info(code)->name);
    }
}

TEST(cairn_copy_threads_is_read_and_bounded) {
    RANK_UPLOADER(2);
    struct cairn_session *session = NULL;
    struct cairn_open_options options = rank_options(&rank);
    setenv("CAIRN_COPY_THREADS", "none", 1);
    EXPECT_FAILS(cairn_open(&options, &session, NULL, &err), CAIRN_INVALID, "CAIRN_COPY_THREADS");
    options.copy_threads = 65;
    EXPECT_CODE(cairn_open(&options, &session, NULL, &err), CAIRN_INVALID);
    options.copy_threads = 2; /* wins over the variable */
    EXPECT_CODE(cairn_open(&options, &rank.session, NULL, &err), CAIRN_OK);
    unsetenv("CAIRN_COPY_THREADS");
}

/* As an uploader that has sent the first save's bytes after a while. */
static void *free_later(void *argument) {
    cairn_test_pause_ms(200); /* pause of a stand-in: as long as it sends */
    cairn_fake_uploader_event(argument,
                              json_pack("{s:s, s:i, s:i}", "t", "free", "slab", 0, "owner", 1));
    return NULL;
}

TEST(the_wait_for_memory_is_counted_as_stall_and_shown) {
    RANK(1);
    AUTO_SAVE *second = NULL;
    struct cairn_save_status status = {0};
    pthread_t thread;
    SAVED(first, 1);
    cairn_save_status(first, &status);
    EXPECT(status.wait_us < 100000);
    REQUIRE(!pthread_create(&thread, NULL, free_later, rank.fake));
    EXPECT_CODE(cairn_save_begin(rank.session, 2, NULL, &second, &err), CAIRN_OK);
    pthread_join(thread, NULL);
    cairn_save_status(second, &status);
    EXPECT(status.wait_us >= 150000);
    EXPECT(status.stall_us >= status.wait_us);
}
