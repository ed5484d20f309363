/* SPDX-License-Identifier: Apache-2.0 */
/* print_api: routes, codes and messages as text, for tests/python/check_openapi.py; of a file in
 * YAML its JSON, as the server serves it. */
#include <inttypes.h>
#include <stdio.h>

#include "api/wire/messages.h"
#include "api/wire/routes.h"
#include "common/error.h"
#include "common/file.h"
#include "common/json.h"

static void print_form(enum cairn_message message) {
    static const char *const groups[] = {"REQUEST", "NOTICE", "ANSWER", "EVENT", "RECORD",
                                         "BODY",    "REPLY",  "WHOLE",  "ITEM"};
    static const char *const presences[] = {"MUST", "SENT", "ADDED", "NULLS", "OMITS", "MAY"};
    static const char *const kinds[] = {"integer", "integer", "number", "boolean",
                                        "string",  "object",  "array",  "any"};
    const struct cairn_message_form *form = cairn_message_form(message);
    printf("form %s %s %s\n", form->name, groups[form->group], form->text);
    for (const struct cairn_message_field *field = form->fields(); field->name; field++) {
        uint64_t most = field->kind == CAIRN_JSON_U32 && !field->max ? UINT32_MAX : field->max;
        printf("field %s %s %s %s %" PRIu64 " %s\n", form->name, field->name,
               presences[field->presence], kinds[field->kind], most,
               field->item ? cairn_message_form(field->item)->name : "none");
    }
}

static int print_json(const char *path) {
    struct cairn_error err = {0};
    CAIRN_AUTO(buf) text = {.limit = 16 * CAIRN_MIB}, shown = {.limit = 16 * CAIRN_MIB};
    CAIRN_AUTO_JSON json_t *json = NULL;
    if (cairn_file_load(path, &text, &err) || cairn_yaml_json(cairn_buf_view(&text), &json, &err) ||
        cairn_json_show(json, &shown, &err)) {
        fprintf(stderr, "%s: %s\n", path, err.message);
        return 1;
    }
    return puts(shown.data) < 0;
}

int main(int argc, char **argv) {
    if (argc == 2) return print_json(argv[1]);
    for (int i = 0; i < CAIRN_ROUTE_COUNT; i++) {
        const struct cairn_route *route = cairn_route_at((enum cairn_route_id)i);
        printf("route %s %s %s %s\n", route->method, route->template_text, route->name,
               route->query + strspn(route->query, ", "));
    }
    for (int i = CAIRN_OK + 1; i < CAIRN_CODE_COUNT; i++) {
        printf("code %s\n", cairn_code_info((enum cairn_code)i)->slug);
    }
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++)
        print_form((enum cairn_message)i);
    return 0;
}
