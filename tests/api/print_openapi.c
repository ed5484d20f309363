/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print_openapi: api/openapi.yaml, from api/routes.def, api/messages.def and a file of prose.
 *
 *   print_openapi api/openapi.prose.yaml > api/openapi.yaml
 *
 * A line of the prose is printed as it stands, but for these:
 *   a path          is followed by its parameters, unless the prose has them
 *   a method        is followed by its operationId. Of a route that waits the parameters end with
 *                   `wait`, unless the prose has it, and If-None-Match; 304 is among the responses
 *   problems: 409   refusals besides those that all calls of the kind have, by status. All of them
 *                   are printed among the responses
 *   form: NAME      an object with the fields of that form: its type, whether it is closed, what is
 *                   required, and in their order the properties that the prose leaves out
 */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "api/wire/messages.h"
#include "api/wire/routes.h"
#include "common/file.h"
#include "common/text.h"
#include "tests/each.h"

#define DEPTH_MAX 8
#define DEFAULT_STATUS 999 /* behind all others */

/* An object of a form, whose keys are indented by `indent`. */
struct object {
    const struct cairn_message_form *form;
    size_t indent;
    bool in_properties, had_properties;
    const struct cairn_message_field *next; /* that was not printed yet */
};
static struct {
    struct object objects[DEPTH_MAX];
    size_t depth, blanks;
    bool in_paths, path_begun;
    char path[256];
    const struct cairn_route *route; /* of the operation; NULL: outside of one */
    bool in_parameters, in_responses, has_body, own_wait, conditions_printed;
    bool due[DEFAULT_STATUS + 1]; /* responses that the prose leaves out */
    bool printed[CAIRN_ROUTE_COUNT];
    unsigned line;
} at;

static _Noreturn void refuse(const char *what, const char *name) {
    fprintf(stderr, "print_openapi: line %u: %s: %s\n", at.line, what, name);
    exit(1);
}

/* ---- objects of a form ---- */

static const struct cairn_message_form *form_of(const char *name) {
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++)
        if (!strcmp(cairn_message_form((enum cairn_message)i)->name, name))
            return cairn_message_form((enum cairn_message)i);
    refuse("no such form", name);
}

static bool is_required(const struct cairn_message_form *form,
                        const struct cairn_message_field *field) {
    if (form->group != CAIRN_MESSAGE_WHOLE) return field->presence == CAIRN_MESSAGE_MUST;
    return field->presence != CAIRN_MESSAGE_OMITS && field->presence != CAIRN_MESSAGE_MAY;
}

static void begin_object(const char *name, size_t indent) {
    if (at.depth == DEPTH_MAX) refuse("too deep", name);
    const struct cairn_message_form *form = form_of(name);
    const char *between = "required: [";
    at.objects[at.depth++] =
        (struct object){.form = form, .indent = indent, .next = form->fields()};
    printf("%*stype: object\n", (int)indent, "");
    if (form->group == CAIRN_MESSAGE_BODY)
        printf("%*sadditionalProperties: false\n", (int)indent, "");
    for (const struct cairn_message_field *field = form->fields(); field->name; field++) {
        if (!is_required(form, field)) continue;
        if (*between == 'r') printf("%*s", (int)indent, "");
        printf("%s%s", between, field->name);
        between = ", ";
    }
    if (*between == ',') puts("]");
}

static void print_field(const struct cairn_message_field *field, size_t indent) {
    static const char *const types[] = {[CAIRN_JSON_U64] = "integer",
                                        [CAIRN_JSON_U32] = "integer",
                                        [CAIRN_JSON_REAL] = "number",
                                        [CAIRN_JSON_BOOL] = "boolean",
                                        [CAIRN_JSON_TEXT] = "string"};
    if (field->kind > CAIRN_JSON_TEXT)
        refuse("a field that the prose has to describe", field->name);
    bool nulls = field->presence == CAIRN_MESSAGE_NULLS, real = field->kind == CAIRN_JSON_REAL;
    bool whole = field->kind == CAIRN_JSON_U64 || field->kind == CAIRN_JSON_U32;
    printf("%*s%s: {type: %s%s%s%s}\n", (int)indent, "", field->name, nulls ? "[" : "",
           types[field->kind], nulls ? ", 'null']" : "",
           whole  ? ", format: int64"
           : real ? ", format: double"
                  : "");
}

/* Up to the one of this name; NULL: all. */
static void print_left_out(struct object *object, const char *name) {
    for (; object->next->name && (!name || strcmp(object->next->name, name) != 0); object->next++) {
        if (!object->had_properties) printf("%*sproperties:\n", (int)object->indent, "");
        object->had_properties = true;
        print_field(object->next, object->indent + 2);
    }
}

/* Before a line of this indent. */
static void end_objects(size_t indent) {
    while (at.depth) {
        struct object *object = &at.objects[at.depth - 1];
        if (object->in_properties && indent <= object->indent) {
            print_left_out(object, NULL);
            object->in_properties = false;
        }
        if (indent >= object->indent) return;
        if (!object->had_properties) print_left_out(object, NULL);
        at.depth--;
    }
}

static void look_at_object(const char *text, size_t indent) {
    struct object *object = at.depth ? &at.objects[at.depth - 1] : NULL;
    if (object && indent == object->indent && cairn_text_starts(text, "properties:")) {
        object->had_properties = true;
        object->in_properties = !strcmp(text, "properties:"); /* else all stand in that line */
    } else if (object && object->in_properties && indent == object->indent + 2) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
        print_left_out(object, name);
        if (!object->next->name) refuse("no field of its form behind those before it", name);
        object->next++;
    }
}

/* ---- operations ---- */

static void print_due(unsigned below) {
    for (unsigned status = 0; status < below; status++) {
        if (!at.due[status]) continue;
        at.due[status] = false;
        if (status == DEFAULT_STATUS)
            printf("        default: ");
        else
            printf("        '%u': ", status);
        printf("{$ref: '#/components/responses/%s'}\n", status == 304 ? "NotChanged" : "Problem");
    }
}

static void end_operation(void) {
    if (at.route && !at.in_responses) refuse("no responses", at.route->name);
    print_due(DEFAULT_STATUS + 1);
    at.route = NULL;
    at.in_parameters = at.in_responses = at.has_body = at.own_wait = at.conditions_printed = false;
}

static void print_path_parameters(void) {
    const char *name = strchr(at.path, '{');
    if (name) puts("    parameters:");
    for (; name; name = strchr(name, '{')) {
        name++;
        printf("      - $ref: '#/components/parameters/%.*s'\n", (int)strcspn(name, "}"), name);
    }
}

static bool waits(void) {
    return at.route->wait >= CAIRN_WAIT_EVENT;
}

static void print_conditions(void) {
    if (!at.own_wait) puts("        - $ref: '#/components/parameters/wait_change'");
    puts("        - $ref: '#/components/parameters/if_none_match'");
    at.conditions_printed = true;
}

static void begin_operation(const char *text) {
    for (int i = 0; i < CAIRN_ROUTE_COUNT && !at.route; i++) {
        const struct cairn_route *route = cairn_route_at((enum cairn_route_id)i);
        size_t size = strlen(route->method);
        if (strncasecmp(text, route->method, size) != 0 || strcmp(text + size, ":") != 0 ||
            strcmp(route->template_text, at.path) != 0)
            continue;
        at.route = route;
        at.printed[i] = true;
    }
    if (!at.route) refuse("no such route", at.path);
    printf("    %s\n      operationId: %s\n", text, at.route->name);
}

/* What every call of its kind may be refused with. */
static void begin_responses(void) {
    at.in_responses = true;
    at.due[304] = waits();
    if (!cairn_text_starts(at.path, "/v1") || !strcmp(at.route->method, "HEAD")) return;
    EACH_OF(unsigned, number, 400, 401, 403, 500, 503, DEFAULT_STATUS) at.due[number] = true;
    if (strstr(at.path, "{project}")) at.due[404] = true;
    if (at.has_body) at.due[411] = at.due[413] = at.due[415] = true;
}

/* A member of an operation; false: the line is not printed. */
static bool look_at_member(const char *text) {
    if (at.in_parameters && waits()) print_conditions();
    at.in_parameters = !strcmp(text, "parameters:");
    if (cairn_text_starts(text, "problems: ")) {
        for (const char *from = text + 9; *from; from += strcspn(from, " ")) {
            from += strspn(from, " ");
            unsigned long status = strtoul(from, NULL, 10);
            at.due[status && status < DEFAULT_STATUS ? status : DEFAULT_STATUS] = true;
        }
        return false;
    }
    bool body = cairn_text_starts(text, "requestBody:"), responses = !strcmp(text, "responses:");
    if ((body || responses) && waits() && !at.conditions_printed) {
        puts("      parameters:");
        print_conditions();
    }
    at.has_body |= body;
    if (responses) begin_responses();
    return true;
}

/* ---- lines ---- */

/* What the tables add around a line of `paths:`; false: it is not printed. */
static bool look_at_path(const char *text, size_t indent) {
    if (at.path_begun && strcmp(text, "parameters:") != 0) print_path_parameters();
    at.path_begun = indent == 2 && *text == '/';
    if (at.path_begun) snprintf(at.path, sizeof at.path, "%.*s", (int)strlen(text) - 1, text);
    if (indent == 0) at.in_paths = false;
    if (indent == 4 && strcmp(text, "parameters:") != 0) {
        begin_operation(text);
        return false;
    }
    if (!at.route) return true;
    if (at.in_parameters && strstr(text, "name: wait,")) at.own_wait = true;
    if (indent == 6) return look_at_member(text);
    if (indent == 8 && at.in_responses) {
        unsigned long status = *text == '\'' ? strtoul(text + 1, NULL, 10) : DEFAULT_STATUS;
        print_due((unsigned)status);
        at.due[status] = false; /* the prose has it */
    }
    return true;
}

static void print_line(const char *line) {
    size_t indent = strspn(line, " ");
    const char *text = line + indent;
    at.line++;
    if (!*text) {
        at.blanks++;
        return;
    }
    end_objects(indent);
    if (at.in_paths && indent <= 4) end_operation();
    for (; at.blanks; at.blanks--) puts("");
    if (at.in_paths && !look_at_path(text, indent)) return;
    if (!strcmp(line, "paths:")) at.in_paths = true;
    if (cairn_text_starts(text, "form: ") && !strpbrk(text + 6, "{ ")) {
        begin_object(text + 6, indent);
        return;
    }
    look_at_object(text, indent);
    puts(line);
}

int main(int argc, char **argv) {
    CAIRN_AUTO(buf) prose = {0};
    struct cairn_error err = {0};
    if (argc != 2 || cairn_file_load(argv[1], &prose, &err)) {
        fprintf(stderr, "print_openapi: %s\n", argc == 2 ? err.message : "wanted a file of prose");
        return 1;
    }
    for (char *line = prose.data, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end) refuse("no line end", line);
        *end = '\0';
        print_line(line);
    }
    end_objects(0);
    for (int i = 0; i < CAIRN_ROUTE_COUNT; i++)
        if (!at.printed[i])
            refuse("no path of the prose", cairn_route_at((enum cairn_route_id)i)->name);
    return fflush(stdout) ? 1 : 0;
}
