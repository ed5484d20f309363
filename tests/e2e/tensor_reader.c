/* SPDX-License-Identifier: Apache-2.0 */
/* One tensor of a checkpoint, or a box of it, as libcairn restores it for a job, on standard
 * output:  tensor_reader RUN REF NAME [START COUNT]...      a pair for each dimension */
#include <stdio.h>
#include <stdlib.h>

#include <cairn/cairn.h>

static int failed(const char *what, const struct cairn_error *err) {
    fprintf(stderr, "%s: %s\n", what, err->message);
    return 1;
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
    uint64_t bytes = elements ? info.bytes / elements * box : 0;
    void *into = malloc(bytes + 1);
    if (!into) return 1;
    const struct cairn_read read = {.size = sizeof read,
                                    .tensor = argv[3],
                                    .form = info.dimension_count ? CAIRN_BOX : CAIRN_WHOLE,
                                    .start = start,
                                    .count = count,
                                    .into = into,
                                    .into_bytes = bytes};
    if (cairn_restore_read(restore, &read, 1, 0, &err)) return failed("read", &err);
    size_t written = fwrite(into, 1, bytes, stdout);
    free(into);
    cairn_restore_free(restore);
    return written != bytes;
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
