/* SPDX-License-Identifier: Apache-2.0 */
/* One tensor of a checkpoint, or a box of it, as libcairn restores it for a job, on standard
 * output:  tensor_reader RUN REF NAME [START COUNT]...      a pair for each dimension
 * TENSOR_READER_STEP: the box is read in slices of so many of its first dimension, each after a
 * line of standard input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cairn/cairn.h>

static int failed(const char *what, const struct cairn_error *err) {
    fprintf(stderr, "%s: %s\n", what, err->message);
    return 1;
}

static int read_box(struct cairn_restore *restore, const struct cairn_read *read) {
    struct cairn_error err = {0};
    if (cairn_restore_read(restore, read, 1, 0, &err)) return failed("read", &err);
    size_t written = fwrite(read->into, 1, read->into_bytes, stdout);
    return written != read->into_bytes || fflush(stdout) != 0;
}

static int read_slices(struct cairn_restore *restore, const struct cairn_read *box, uint64_t step) {
    char line[16];
    uint64_t start[8], count[8], rows = box->count[0], row_bytes = box->into_bytes / rows;
    struct cairn_read slice = *box;
    memcpy(start, box->start, sizeof start);
    memcpy(count, box->count, sizeof count);
    slice.start = start;
    slice.count = count;
    for (uint64_t row = 0; row < rows; row += step) {
        if (!fgets(line, sizeof line, stdin)) return 1;
        start[0] = box->start[0] + row;
        count[0] = rows - row < step ? rows - row : step;
        slice.into_bytes = row_bytes * count[0];
        if (read_box(restore, &slice)) return 1;
    }
    return 0;
}

static int read_tensor(struct cairn_session *session, int argc, char **argv) {
    struct cairn_error err = {0};
    struct cairn_restore *restore = NULL;
    struct cairn_tensor_info info = {0};
    struct cairn_restore_options options = {.size = sizeof options, .ref = argv[2]};
    uint64_t start[8] = {0}, count[8] = {0}, elements = 1, box = 1;
    if (cairn_restore_open(session, &options, &restore, NULL, &err))
        return failed("restore_open", &err);
    if (cairn_restore_tensor_find(restore, argv[3], &info, &err)) return failed("find", &err);
    for (uint32_t d = 0; d < info.dimension_count; d++) {
        elements *= info.shape[d];
        count[d] = info.shape[d];
        if (4 + 2 * (int)d + 1 < argc) {
            start[d] = strtoull(argv[4 + 2 * d], NULL, 10);
            count[d] = strtoull(argv[5 + 2 * d], NULL, 10);
        }
        box *= count[d];
    }
    uint64_t bytes = elements ? info.bytes * box / elements : 0;
    void *into = malloc(bytes + 1);
    if (!into) return 1;
    const struct cairn_read read = {.size = sizeof read,
                                    .tensor = argv[3],
                                    .form = info.dimension_count ? CAIRN_BOX : CAIRN_WHOLE,
                                    .start = start,
                                    .count = count,
                                    .into = into,
                                    .into_bytes = bytes};
    const char *step = getenv("TENSOR_READER_STEP");
    int status = step && bytes ? read_slices(restore, &read, strtoull(step, NULL, 10))
                               : read_box(restore, &read);
    free(into);
    cairn_restore_free(restore);
    return status;
}

int main(int argc, char **argv) {
    struct cairn_error err = {0};
    struct cairn_session *session = NULL;
    if (argc < 4) return 2;
    struct cairn_open_options options = {.size = sizeof options, .run = argv[1], .read_only = 1};
    if (cairn_open(&options, &session, NULL, &err)) return failed("open", &err);
    int status = read_tensor(session, argc, argv);
    if (cairn_close(session, &err)) return failed("close", &err);
    return status;
}
