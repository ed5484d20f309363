/* SPDX-License-Identifier: Apache-2.0 */
/* print_routes: the route table and the codes as text, for tests/python/check_openapi.py. */
#include <stdio.h>

#include "api/routes.h"
#include "common/error.h"

int main(void) {
    for (int i = 0; i < CAIRN_ROUTE_COUNT; i++) {
        const struct cairn_route *route = cairn_route_at((enum cairn_route_id)i);
        printf("route %s %s %s\n", route->method, route->template_text, route->name);
    }
    for (int i = CAIRN_OK + 1; i < CAIRN_CODE_COUNT; i++) {
        printf("code %s\n", cairn_code_info((enum cairn_code)i)->slug);
    }
    return 0;
}
