/* SPDX-License-Identifier: Apache-2.0 */
/* A program of somebody else: the version, and an open that finds no uploader. */
#include <cairn/cairn.h>

#include <stdio.h>

int main(void) {
    struct cairn_open_options options = {.size = sizeof(struct cairn_open_options),
                                         .run = "p/r",
                                         .socket = "/nonexistent/cairn.sock",
                                         .world_size = 1,
                                         .bytes = 1};
    struct cairn_session *session = NULL;
    struct cairn_resume resume;
    struct cairn_error err = {0};
    enum cairn_code code = cairn_open(&options, &session, &resume, &err);
    printf("%s\n", cairn_version());
    if (code == CAIRN_OK) (void)cairn_close(session, &err);
    return code == CAIRN_OK || !err.message[0];
}
