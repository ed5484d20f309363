/* SPDX-License-Identifier: Apache-2.0 */
/* A file or an object behind one struct cairn_input. */
#include "cli/convert/input.h"

#include <fcntl.h>
#include <sys/stat.h>

static enum cairn_code open_file(const char *path, struct cairn_cli_input *ret,
                                 struct cairn_error *err) {
    struct stat status;
    if (stat(path, &status) != 0)
        return errno == ENOENT ? cairn_fail(err, CAIRN_NOT_FOUND, "no such file")
                               : cairn_fail_errno(err, "cannot be looked at");
    if (!S_ISREG(status.st_mode))
        return cairn_fail(err, CAIRN_INVALID, "it is not a file");
    CAIRN_TRY(cairn_file_open_below(AT_FDCWD, path, CAIRN_LINKS_FOLLOWED, &ret->file, err));
    return cairn_input_of_file(&ret->file, &ret->input, err);
}

static enum cairn_code open_object(const struct cairn_cli *cli, const char *url,
                                   struct cairn_cli_input *ret, struct cairn_error *err) {
    struct cairn_cli_object object;
    CAIRN_TRY(cairn_cli_bucket_source_open(cli, url, &ret->bucket, err));
    CAIRN_TRY(cairn_cli_bucket_source_object(ret->bucket, "", &object, err));
    ret->input = object.input;
    return CAIRN_OK;
}

enum cairn_code cairn_cli_input_open(const struct cairn_cli *cli, const char *name,
                                     struct cairn_cli_input *ret, struct cairn_error *err) {
    *ret = (struct cairn_cli_input){0};
    bool object = cairn_cli_is_bucket(name);
    enum cairn_code code = object ? open_object(cli, name, ret, err) : open_file(name, ret, err);
    if (code != CAIRN_OK) cairn_cli_input_release(ret);
    return code;
}

void cairn_cli_input_release(struct cairn_cli_input *input) {
    cairn_file_release(&input->file);
    cairn_cli_bucket_source_free(input->bucket);
    *input = (struct cairn_cli_input){0};
}
