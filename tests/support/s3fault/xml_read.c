/* SPDX-License-Identifier: Apache-2.0 */
/* xml_read: the strict subset of XML in which S3's requests can be written. */

#include "tests/each.h"
#include "tests/support/s3fault/ops.h"

#define DEPTH_MAX 8
#define VALUE_MAX 4096

struct reader {
    const char *at, *end;
    char path[512];
    s3f_on_element *on_element;
    void *owner;
};

static void skip_blanks(struct reader *reader) {
    while (reader->at < reader->end && isspace((unsigned char)*reader->at)) reader->at++;
}

static bool takes(struct reader *reader, const char *text) {
    size_t size = strlen(text);
    if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, text, size) != 0)
        return false;
    reader->at += size;
    return true;
}

static bool read_name(struct reader *reader, char ret[64]) {
    size_t size = 0;
    while (reader->at < reader->end && isalnum((unsigned char)*reader->at) && size < 63)
        ret[size++] = *reader->at++;
    ret[size] = '\0';
    return size > 0;
}

static bool read_entity(struct reader *reader, char *ret) {
    EACH(one, FIELDS(const char *text; char value), {"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'},
         {"quot;", '"'}, {"apos;", '\''})
        if (takes(reader, one->text)) {
            *ret = one->value;
            return true;
        }
    if (!takes(reader, "#")) return false;
    int base = takes(reader, "x") ? 16 : 10;
    char *end;
    unsigned long value = strtoul(reader->at, &end, base);
    if (end == reader->at || end >= reader->end || *end != ';' || value == 0 || value > 127)
        return false;
    reader->at = end + 1;
    *ret = (char)value;
    return true;
}

/* Text up to the next '<'. */
static bool read_value(struct reader *reader, char ret[VALUE_MAX]) {
    size_t size = 0;
    while (reader->at < reader->end && *reader->at != '<') {
        char c = *reader->at++;
        if (c == '&' && !read_entity(reader, &c)) return false;
        if (size == VALUE_MAX - 1) return false;
        ret[size++] = c;
    }
    ret[size] = '\0';
    return reader->at < reader->end;
}

static bool read_children(struct reader *reader, const char *name, int depth);

/* At '<' of an element. */
static bool read_element(struct reader *reader, int depth) {
    char name[64], value[VALUE_MAX];
    if (depth > DEPTH_MAX || !takes(reader, "<") || !read_name(reader, name)) return false;
    if (depth == 1 && takes(reader, " xmlns=\"")) {
        while (reader->at < reader->end && *reader->at != '"') reader->at++;
        if (!takes(reader, "\"")) return false;
    }
    size_t parent = strlen(reader->path);
    int written = snprintf(reader->path + parent, sizeof reader->path - parent, "%s%s",
                           parent ? "/" : "", name);
    if (written < 0 || (size_t)written >= sizeof reader->path - parent) return false;
    bool good;
    if (takes(reader, "/>")) {
        good = reader->on_element(reader->owner, reader->path, "");
    } else {
        if (!takes(reader, ">") || !read_value(reader, value)) return false;
        bool leaf = reader->at + 1 < reader->end && reader->at[1] == '/';
        bool blank = value[strspn(value, " \t\r\n")] == '\0';
        good = (leaf || blank) &&
               reader->on_element(reader->owner, reader->path, leaf ? value : NULL) &&
               read_children(reader, name, depth);
    }
    reader->path[parent] = '\0';
    return good;
}

/* Up to and with the closing tag of `name`. */
static bool read_children(struct reader *reader, const char *name, int depth) {
    while (!takes(reader, "</")) {
        if (!read_element(reader, depth + 1)) return false;
        skip_blanks(reader);
    }
    return takes(reader, name) && takes(reader, ">");
}

bool s3f_xml_read(const char *text, size_t size, s3f_on_element *on_element, void *owner) {
    struct reader reader = {
        .at = text, .end = text + size, .on_element = on_element, .owner = owner};
    if (memchr(text, '\0', size)) return false;
    if (takes(&reader, "<?xml ")) {
        while (reader.at < reader.end && *reader.at != '?') reader.at++;
        if (!takes(&reader, "?>")) return false;
    }
    skip_blanks(&reader);
    if (!read_element(&reader, 1)) return false;
    skip_blanks(&reader);
    return reader.at == reader.end;
}
