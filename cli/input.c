/* SPDX-License-Identifier: Apache-2.0 */
/* A file or an object behind one struct cairn_input. */
#include "cli/input.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "common/text.h"

#define OBJECT "s3://"

static enum cairn_code open_file(const char *path, struct cairn_cli_input *ret,
                                 struct cairn_error *err) {
    struct stat status;
    if (stat(path, &status) != 0)
        return errno == ENOENT ? cairn_fail(err, CAIRN_NOT_FOUND, "no such file")
                               : cairn_fail_errno(err, "cannot be looked at");
    if (!S_ISREG(status.st_mode))
        return cairn_fail(err, CAIRN_INVALID, "it is not a file");
    CAIRN_TRY(cairn_file_open_read(AT_FDCWD, path, &ret->file, err));
    return cairn_input_of_file(&ret->file, &ret->input, err);
}

static enum cairn_code read_object(void *context, uint64_t offset, void *into, size_t size,
                                   struct cairn_error *err) {
    struct cairn_cli_input *input = context;
    struct cairn_store_request get = {
        .op = CAIRN_STORE_GET, .key = input->key, .offset = offset, .length = size, .into = into};
    return cairn_store_perform(input->worker, &get, err);
}

static enum cairn_code open_object(const struct cairn_cli *cli, const char *url,
                                   struct cairn_cli_input *ret, struct cairn_error *err) {
    CAIRN_AUTO(buf) folder = {0};
    const char *slash = strrchr(url + strlen(OBJECT), '/');
    if (!slash || slash == url + strlen(OBJECT) || !slash[1])
        return cairn_fail(err, CAIRN_INVALID, "it names no object: write s3://bucket/path/file");
    if (!cairn_text_copy(ret->key, sizeof ret->key, slash + 1))
        return cairn_fail(err, CAIRN_INVALID, "its last part is longer than 1,024 bytes");
    CAIRN_TRY(cairn_buf_append(&folder, url, (size_t)(slash - url), err));
    struct cairn_cli as = *cli;
    as.store = folder.data;
    CAIRN_TRY(cairn_cli_store_open(&as, &ret->store, err));
    CAIRN_TRY(cairn_store_worker_new(ret->store, &ret->worker, err));
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = ret->key};
    CAIRN_TRY(cairn_store_perform(ret->worker, &head, err));
    ret->input =
        (struct cairn_input){.size_bytes = head.object_bytes, .context = ret, .read = read_object};
    return CAIRN_OK;
}

enum cairn_code cairn_cli_input_open(const struct cairn_cli *cli, const char *name,
                                     struct cairn_cli_input *ret, struct cairn_error *err) {
    *ret = (struct cairn_cli_input){0};
    bool object = cairn_text_starts(name, OBJECT);
    enum cairn_code code = object ? open_object(cli, name, ret, err) : open_file(name, ret, err);
    if (code != CAIRN_OK) cairn_cli_input_release(ret);
    return code;
}

void cairn_cli_input_release(struct cairn_cli_input *input) {
    cairn_file_release(&input->file);
    if (input->worker) cairn_store_worker_free(input->worker);
    if (input->store) cairn_store_free(input->store);
    *input = (struct cairn_cli_input){0};
}
