/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_reply --listen-port PORT --file FILE
 *
 * libmicrohttpd's minimum: answers each GET with one buffer, from one event loop per CPU. Prints
 * {"ready":true}; ends with its input.
 */
#include <microhttpd.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/measure.h"
#include "common/buf.h"
#include "common/file.h"

static enum MHD_Result answer(void *owner, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *body,
                              size_t *body_bytes, void **request) {
    static int begun;
    (void)url;
    (void)method;
    (void)version;
    (void)body;
    (void)body_bytes;
    if (!*request) {
        *request = &begun;
        return MHD_YES;
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, owner);
}

int main(int count, char **values) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB};
    struct cairn_error error = {0};
    uint64_t port = bench_flag_number(count, values, "--listen-port", 7491);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (cairn_file_load(bench_flag(count, values, "--file", "/dev/null"), &text, &error)) {
        fprintf(stderr, "bench_reply: %s\n", error.message);
        return 2;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text.size, text.data, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Content-Type", "application/json");
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, (uint16_t)port, NULL, NULL, answer, response,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)(cpus > 1 ? cpus : 1), MHD_OPTION_END);
    if (!daemon) return 2;
    printf("{\"ready\":true}\n");
    fflush(stdout);
    while (getchar() != EOF) continue;
    MHD_stop_daemon(daemon);
    MHD_destroy_response(response);
    return 0;
}
