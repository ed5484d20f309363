/* SPDX-License-Identifier: Apache-2.0 */
/* Names, paths, ranges, settings, dates. */
#include "api/documents/keys.h"
#include "api/wire/rest.h"
#include "api/wire/routes.h"
#include "common/config.h"
#include "server/reads/send.h"
#include "store/time.h"
#include "tests/fuzz/fuzz.h"
#include "uploader/settings.h"

void cairn_fuzz_names(struct cairn_view input) {
    struct cairn_error err = {0};
    struct cairn_run_name name;
    CAIRN_AUTO(buf) plain = {0}, coded = {0}, again = {0};
    char *text = cairn_fuzz_text(input);
    if (!cairn_run_name_parse(text, &name, &err))
        FUZZ_HOLDS(cairn_name_valid(cairn_view_of(name.project)) &&
                   cairn_name_valid(cairn_view_of(name.run)));
    free(text);
    if (!cairn_shard_name_check(input, &err)) {
        struct cairn_version_place place = {
            .name = {"p", "r"}, .step = 1, .id = {"ckpt_00000000-0000-8000-8000-000000000000"}};
        struct cairn_key key;
        cairn_key_shard(&place, input, &key);
        FUZZ_HOLDS(!strstr(key.text, "/../") && !strstr(key.text, "//") &&
                   cairn_text_starts(key.text, "p/r/000000000001/ckpt_"));
    }
    (void)cairn_version_id_valid(input);
    if (cairn_percent_decode(input, &plain, &err)) return;
    FUZZ_HOLDS(!cairn_percent_encode(cairn_buf_view(&plain), true, &coded, &err));
    FUZZ_HOLDS(!cairn_percent_decode(cairn_buf_view(&coded), &again, &err));
    FUZZ_HOLDS(again.size == plain.size &&
               (!plain.size || !memcmp(again.data, plain.data, plain.size)));
}

/* What was taken is taken again, written with commas between, and means the same. */
void cairn_fuzz_servers(struct cairn_view input) {
    struct cairn_error err = {0};
    CAIRN_AUTO(servers) servers = {0}, again = {0};
    CAIRN_AUTO(buf) list = {0};
    char *text = cairn_fuzz_text(input);
    enum cairn_code code = cairn_servers_parse(text, &servers, &err);
    free(text);
    FUZZ_SAYS_WHY(code, err);
    if (code) FUZZ_HOLDS(!servers.count);
    if (code) return;
    FUZZ_HOLDS(servers.count >= 1 && servers.count <= CAIRN_SERVERS_MAX);
    for (uint32_t i = 0; i < servers.count; i++)
        FUZZ_HOLDS(!cairn_buf_printf(&list, &err, "%s%s", i ? "," : "", servers.places[i].name));
    FUZZ_HOLDS(!cairn_servers_parse(list.data, &again, &err) && again.count == servers.count);
    for (uint32_t i = 0; i < servers.count; i++)
        FUZZ_HOLDS(!strcmp(servers.places[i].base, again.places[i].base));
}

/* Written as one segment, a name is found again as it is, and its bytes likewise. */
static void written_whole(const char *tensor) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) coded = {0};
    FUZZ_HOLDS(!cairn_percent_encode(cairn_view_of(tensor), false, &coded, &err));
    EACH(row, FIELDS(const char *behind; enum cairn_route_id id), {"", CAIRN_ROUTE_TENSOR_NAMED},
         {"/data", CAIRN_ROUTE_TENSOR_NAMED_DATA}) {
        const struct cairn_route *route = NULL;
        struct cairn_route_params params;
        CAIRN_AUTO(buf) path = {0};
        FUZZ_HOLDS(!cairn_buf_printf(&path, &err, "/v1/runs/p/r/checkpoints/1/tensors/%s%s",
                                     coded.data, row->behind));
        FUZZ_HOLDS(!cairn_route_match("GET", cairn_buf_view(&path), &route, &params, &err));
        FUZZ_HOLDS(route->id == row->id && !strcmp(params.tensor, tensor));
    }
}

void cairn_fuzz_route(struct cairn_view input) {
    struct cairn_error err = {0};
    struct cairn_view path, query_text;
    struct cairn_route_params params;
    struct cairn_query query;
    char allow[CAIRN_ROUTE_ALLOW_BYTES];
    cairn_route_split(input, &path, &query_text);
    FUZZ_HOLDS(path.size <= input.size && query_text.size <= input.size);
    cairn_route_allow(path, allow);
    EACH_TEXT(text, "GET", "PUT", "POST", "DELETE", "HEAD") {
        const struct cairn_route *route = NULL;
        enum cairn_code code = cairn_route_match(text, path, &route, &params, &err);
        FUZZ_SAYS_WHY(code, err);
        if (code) continue;
        FUZZ_HOLDS(route && strstr(allow, text));
        if (params.shard[0]) FUZZ_HOLDS(!cairn_shard_name_check(cairn_view_of(params.shard), &err));
        if (params.run_name.run[0])
            FUZZ_HOLDS(cairn_name_valid(cairn_view_of(params.run_name.run)));
        FUZZ_HOLDS(strlen(params.tensor) <= CAIRN_TENSOR_NAME_BYTES_MAX &&
                   cairn_utf8_valid(cairn_view_of(params.tensor)));
        if (params.tensor[0]) written_whole(params.tensor);
    }
    enum cairn_code code = query_text.data ? cairn_query_parse(query_text, &query, &err) : CAIRN_OK;
    FUZZ_SAYS_WHY(code, err);
}

void cairn_fuzz_range(struct cairn_view input) {
    char *text = cairn_fuzz_text(input);
    EACH_OF(uint64_t, number, 0, 1, 5, 1000, (UINT64_C(1) << 62) - 1) {
        struct cairn_error err = {0};
        uint64_t begin = 0, end = 0;
        enum cairn_code code = srv_range_parse(text, number, &begin, &end, &err);
        FUZZ_SAYS_WHY(code, err);
        FUZZ_HOLDS(code || (begin <= end && end <= number));
    }
    free(text);
}

void cairn_fuzz_times(struct cairn_view input) {
    char *text = cairn_fuzz_text(input);
    struct cairn_error err = {0};
    int64_t wall_ms = 0;
    const int64_t last_ms = INT64_C(253402300799999); /* the end of the year 9999 */
    enum cairn_code code = cairn_s3_time_iso(text, &wall_ms, &err);
    FUZZ_SAYS_WHY(code, err);
    FUZZ_HOLDS(code || (wall_ms >= 0 && wall_ms <= last_ms));
    code = cairn_s3_time_http(text, &wall_ms, &err);
    FUZZ_SAYS_WHY(code, err);
    FUZZ_HOLDS(code || (wall_ms >= 0 && wall_ms <= last_ms));
    free(text);
}

void cairn_fuzz_config(struct cairn_view input) {
    struct cairn_error err = {0};
    uint64_t number = 0;
    enum cairn_code code = cairn_parse_size(input, &number, &err);
    FUZZ_SAYS_WHY(code, err);
    code = cairn_parse_duration(input, &number, &err);
    FUZZ_SAYS_WHY(code, err);
    struct cairn_fuzz_file file;
    struct cairn_up_settings settings = {0};
    struct cairn_config config = {0};
    FUZZ_HOLDS(!cairn_config_init(&config, cairn_up_settings_rows, cairn_up_settings_row_count,
                                  &settings, &err));
    cairn_fuzz_file_begin(input, &file);
    code = cairn_config_file(&config, file.path, &err);
    FUZZ_SAYS_WHY(code, err);
    CAIRN_AUTO(buf) text = {0};
    if (!code) FUZZ_HOLDS(!cairn_config_print(&config, &text, &err));
    cairn_fuzz_file_end(&file);
    cairn_config_release(&config);
}
