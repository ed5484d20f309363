/* SPDX-License-Identifier: Apache-2.0 */
/* expat with every bound that an answer from outside needs. */
#include "store/xml/walk.h"

#include <expat.h>
#include <limits.h>

#define DEPTH_MAX 16
#define TEXT_BYTES_MAX (16 * CAIRN_KIB)
#define PATH_BYTES 256

struct state {
    const struct cairn_xml_walk *walk;
    XML_Parser parser;
    char path[PATH_BYTES];
    size_t path_size, starts[DEPTH_MAX];
    unsigned depth, elements;
    struct cairn_buf text;
    enum cairn_code code;
    struct cairn_error error;
};

static void stop(struct state *state, enum cairn_code code) {
    state->code = code;
    XML_StopParser(state->parser, XML_FALSE);
}

static void stop_for(struct state *state, const char *why) {
    stop(state, cairn_fail(&state->error, CAIRN_PROTOCOL, "the XML answer %s", why));
}

static bool push(struct state *state, const char *name) {
    size_t size = strlen(name), more = size + (state->depth > 0);
    if (state->depth == DEPTH_MAX || state->path_size + more >= PATH_BYTES) return false;
    state->starts[state->depth++] = state->path_size;
    if (state->depth > 1) state->path[state->path_size++] = '/';
    memcpy(state->path + state->path_size, name, size + 1);
    state->path_size += size;
    return true;
}

static void on_start(void *owner, const XML_Char *name, const XML_Char **attributes) {
    (void)attributes;
    struct state *state = owner;
    if (state->code) return;
    if (!state->depth && strcmp(name, state->walk->root) != 0) {
        stop(state, cairn_fail(&state->error, CAIRN_PROTOCOL,
                               "the answer is <%.40s> where <%s> is due", name, state->walk->root));
        return;
    }
    if (++state->elements > CAIRN_XML_ELEMENTS_MAX || !push(state, name)) {
        stop_for(state, "is deeper or longer than any real one");
        return;
    }
    cairn_buf_clear(&state->text);
    if (!state->walk->started) return;
    enum cairn_code code = state->walk->started(state->walk->owner, state->path, &state->error);
    if (code) stop(state, code);
}

static void on_end(void *owner, const XML_Char *name) {
    (void)name;
    struct state *state = owner;
    if (state->code) return;
    CAIRN_ASSERT(state->depth);
    if (state->walk->ended) {
        const char *text = state->text.data ? state->text.data : "";
        enum cairn_code code =
            state->walk->ended(state->walk->owner, state->path, text, &state->error);
        if (code) stop(state, code);
    }
    state->path_size = state->starts[--state->depth];
    state->path[state->path_size] = '\0';
    cairn_buf_clear(&state->text);
}

static void on_text(void *owner, const XML_Char *text, int size) {
    struct state *state = owner;
    if (state->code) return;
    enum cairn_code code = cairn_buf_append(&state->text, text, (size_t)size, &state->error);
    if (code == CAIRN_TOO_LARGE) stop_for(state, "holds an element of more than 16 KiB");
    if (code && code != CAIRN_TOO_LARGE) stop(state, code);
}

static void on_doctype(void *owner, const XML_Char *name, const XML_Char *system,
                       const XML_Char *public, int internal) {
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    stop_for(owner, "declares a document type, which S3 never does");
}

static struct cairn_view skip_blanks(struct cairn_view text) {
    const char *at = text.data;
    size_t size = text.size;
    while (size && strchr(" \t\r\n", *at) && *at) at++, size--;
    return (struct cairn_view){at, size};
}

enum cairn_code cairn_xml_walk_run(const struct cairn_xml_walk *walk, struct cairn_view text,
                                   struct cairn_error *err) {
    struct cairn_view whole = skip_blanks(text);
    if (!whole.size) return cairn_fail(err, CAIRN_PROTOCOL, "the answer is empty");
    if (whole.size > INT_MAX) return cairn_fail(err, CAIRN_PROTOCOL, "the answer is too long");
    struct state state = {.walk = walk, .text.limit = TEXT_BYTES_MAX};
    state.parser = XML_ParserCreate("UTF-8");
    if (!state.parser) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an XML parser");
    XML_SetUserData(state.parser, &state);
    XML_SetElementHandler(state.parser, on_start, on_end);
    XML_SetCharacterDataHandler(state.parser, on_text);
    XML_SetStartDoctypeDeclHandler(state.parser, on_doctype);
    enum XML_Status status = XML_Parse(state.parser, whole.data, (int)whole.size, XML_TRUE);
    XML_ParserFree(state.parser);
    if (state.text.data) explicit_bzero(state.text.data, state.text.capacity); /* keys of STS */
    cairn_buf_release(&state.text);
    if (state.code) {
        if (err) *err = state.error;
        return state.code;
    }
    if (status != XML_STATUS_OK)
        return cairn_fail(err, CAIRN_PROTOCOL, "the answer is no whole XML document");
    return CAIRN_OK;
}
