/* SPDX-License-Identifier: Apache-2.0 */
/* One rank that saves what it is told of, and waits for the commit:
 *   tensor_writer RUN RANK WORLD STEP
 * Lines of standard input, words apart by one space:
 *   tensor NAME DTYPE KIND FORM SHAPE START COUNT FILE     numbers as 2,3; "-" for none
 *   item NAME KIND FILE
 * KIND and FORM are numbers of cairn/cairn.h; FILE holds the bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cairn/items.h>

#define LINE_BYTES 4096
#define BYTES_MOST (UINT64_C(64) << 20)
#define SOURCES_MOST 256

static void *sources[SOURCES_MOST];
static int source_count;

static int failed(const char *what, const struct cairn_error *err) {
    fprintf(stderr, "%s: %s: %s\n", what, cairn_code_info(err->code)->slug, err->message);
    return 1;
}

static uint32_t number_of(const char *text) {
    return (uint32_t)strtoul(text, NULL, 10);
}

static uint32_t numbers_of(const char *text, uint64_t *ret) {
    uint32_t count = 0;
    if (!strcmp(text, "-")) return 0;
    for (char *end = NULL; count < 8; text = end + 1) {
        ret[count++] = strtoull(text, &end, 10);
        if (*end != ',') break;
    }
    return count;
}

/* They are read when the save is staged. */
static void *load(const char *path, uint64_t *ret_bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) || source_count == SOURCES_MOST) exit(1);
    long size = ftell(file);
    void *bytes = malloc((size_t)size + 1);
    rewind(file);
    if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size) exit(1);
    fclose(file);
    sources[source_count++] = bytes;
    *ret_bytes = (uint64_t)size;
    return bytes;
}

static enum cairn_code add_tensor(struct cairn_save *save, char **words, struct cairn_error *err) {
    uint64_t shape[8], start[8], count[8], bytes;
    void *source = load(words[7], &bytes);
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = words[0],
                                             .dtype = words[1],
                                             .kind = (enum cairn_kind)number_of(words[2]),
                                             .form = (enum cairn_form)number_of(words[3]),
                                             .dimension_count = numbers_of(words[4], shape),
                                             .shape = shape,
                                             .start = numbers_of(words[5], start) ? start : NULL,
                                             .count = numbers_of(words[6], count) ? count : NULL,
                                             .source = bytes ? source : NULL,
                                             .source_bytes = bytes};
    return cairn_save_tensor(save, &piece, err);
}

static enum cairn_code add_item(struct cairn_save *save, char **words, struct cairn_error *err) {
    struct cairn_item item = {
        .size = sizeof item, .name = words[0], .kind = (enum cairn_kind)number_of(words[1])};
    item.source = load(words[2], &item.bytes);
    return cairn_save_item(save, &item, err);
}

static enum cairn_code add_all(struct cairn_save *save, struct cairn_error *err) {
    static char line[LINE_BYTES];
    enum cairn_code code = CAIRN_OK;
    while (code == CAIRN_OK && fgets(line, sizeof line, stdin)) {
        char *words[9] = {0}, *rest = NULL;
        int count = 0;
        for (char *word = strtok_r(line, " \n", &rest); word && count < 9;
             word = strtok_r(NULL, " \n", &rest))
            words[count++] = word;
        if (count == 9 && !strcmp(words[0], "tensor"))
            code = add_tensor(save, words + 1, err);
        else if (count == 4 && !strcmp(words[0], "item"))
            code = add_item(save, words + 1, err);
        else
            exit(2);
    }
    return code;
}

int main(int argc, char **argv) {
    struct cairn_error err;
    struct cairn_session *session = NULL;
    struct cairn_save *save = NULL;
    memset(&err, 0, sizeof err);
    if (argc != 5) return 2;
    const struct cairn_open_options options = {.size = sizeof options,
                                               .run = argv[1],
                                               .rank = number_of(argv[2]),
                                               .world_size = number_of(argv[3]),
                                               .local_world_size = number_of(argv[3]),
                                               .bytes = BYTES_MOST};
    if (cairn_open(&options, &session, NULL, &err)) return failed("open", &err);
    enum cairn_code code =
        cairn_save_begin(session, strtoull(argv[4], NULL, 10), NULL, &save, &err);
    if (!code) code = add_all(save, &err);
    if (!code) code = cairn_save_stage(save, &err);
    if (!code) code = cairn_save_wait(save, CAIRN_COMMITTED, 0, &err);
    if (code) failed("save", &err);
    cairn_save_free(save);
    while (source_count) free(sources[--source_count]);
    if (cairn_close(session, code ? NULL : &err) && !code) return failed("close", &err);
    return code != CAIRN_OK;
}
