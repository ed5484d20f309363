/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn-man FOLDER
 * cairn-man --daemon HELP PAGE
 *
 * Writes cairn.1 and cairn-VERB.1 for each verb into FOLDER, in man(7) macros, from the table that
 * --help prints. --daemon turns HELP, a daemon's --help output, into PAGE. Run by the build only.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cairn/cairn.h>

#include "cli/shell/options.h"

/* Escapes text so that no line is a troff request and dashes can be copied. */
static void put_text(FILE *to, const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", to);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", to);
        else if (*text == '-')
            fputs("\\-", to);
        else
            putc(*text, to);
        if (*text == '\n' && (text[1] == '.' || text[1] == '\'')) fputs("\\&", to);
    }
}

static void put_line(FILE *to, const char *text) {
    put_text(to, text);
    putc('\n', to);
}

static void put_title(FILE *to, const char *name, char section) {
    fputs(".TH \"", to);
    for (; *name; name++) putc(*name >= 'a' && *name <= 'z' ? *name - 32 : *name, to);
    fprintf(to, "\" \"%c\" \"\" \"cairn %s\" \"Cairn\"\n", section, cairn_version());
}

static void put_flag(FILE *to, const struct cli_flag *flag) {
    fputs(".TP\n", to);
    if (flag->letter) fprintf(to, "\\fB\\-%c\\fR, ", flag->letter);
    fputs("\\fB\\-\\-", to);
    put_text(to, flag->name);
    fputs("\\fR", to);
    if (flag->value) fprintf(to, " \\fI%s\\fR", flag->value);
    putc('\n', to);
    put_line(to, flag->help);
}

static void write_verb(FILE *to, const struct cli_verb *verb) {
    char name[64];
    const struct cli_flag *flag;
    snprintf(name, sizeof name, "cairn-%s", verb->name);
    put_title(to, name, '1');
    fputs(".SH NAME\n", to);
    put_text(to, name);
    fputs(" \\- ", to);
    put_line(to, verb->purpose);
    fputs(".SH SYNOPSIS\n", to);
    put_line(to, verb->synopsis);
    fputs(".SH EXAMPLES\n.nf\n", to); /* .nf: lines keep their breaks */
    put_line(to, verb->examples);
    fputs(".fi\n.SH OPTIONS\n", to);
    for (size_t i = 0; (flag = cli_flag_at(verb, i)); i++) put_flag(to, flag);
    fputs(".SH SEE ALSO\n\\fBcairn\\fR(1)\n", to);
}

static FILE *opened(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (file) return file;
    fprintf(stderr, "cairn-man: %s: %s\n", path, strerror(errno));
    exit(1);
}

static FILE *open_page(const char *folder, const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s.1", folder, name);
    return opened(path, "we");
}

static void close_page(FILE *file) {
    bool wrong = ferror(file);
    if (fclose(file) == 0 && !wrong) return;
    fprintf(stderr, "cairn-man: a page could not be written: %s\n", strerror(errno));
    exit(1);
}

/* Input: "NAME: purpose", free text, then " --flag VALUE" lines, each followed by indented help. */
static void write_daemon(FILE *from, FILE *to) {
    char line[4096], name[64] = "";
    bool flags = false;
    const char *purpose = NULL;
    if (!fgets(line, sizeof line, from) || !(purpose = strstr(line, ": "))) {
        fputs("cairn-man: --help does not begin with a name and a purpose\n", stderr);
        exit(1);
    }
    snprintf(name, sizeof name, "%.*s", (int)(purpose - line), line);
    put_title(to, name, '8');
    fprintf(to, ".SH NAME\n");
    put_text(to, name);
    fputs(" \\- ", to);
    put_text(to, purpose + 2);
    fputs(".SH SYNOPSIS\n.nf\n", to);
    while (fgets(line, sizeof line, from)) {
        bool flag = !strncmp(line, "  --", 4);
        line[strcspn(line, "\n")] = '\0';
        if (flag && !flags) fputs(".fi\n.SH OPTIONS\n", to);
        flags |= flag;
        if (flag) fputs(".TP\n.B ", to);
        if (flags || *line) put_line(to, flags ? line + strspn(line, " ") : line);
        if (!flags && !*line) fputs(".sp\n", to);
    }
    if (!flags) fputs(".fi\n", to);
    fprintf(to,
            ".SH FILES\n/etc/cairn/%s.conf: settings, a line each: key = value. "
            "A package's unit reads it.\n.SH SEE ALSO\n"
            "\\fBcairn\\fR(1), \\fBcairn\\-health\\fR(1), \\fBcairn\\-doctor\\fR(1)\n",
            strchr(name, '-') ? strchr(name, '-') + 1 : name);
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "--daemon")) {
        FILE *help = opened(argv[2], "re"), *of_daemon = opened(argv[3], "we");
        write_daemon(help, of_daemon);
        fclose(help);
        close_page(of_daemon);
        return 0;
    }
    if (argc != 2) {
        fputs("usage: cairn-man FOLDER | cairn-man --daemon HELP PAGE\n", stderr);
        return 2;
    }
    FILE *page = open_page(argv[1], "cairn");
    put_title(page, "cairn", '1');
    fputs(".SH NAME\ncairn \\- keeps the checkpoints of training jobs\n"
          ".SH SYNOPSIS\n\\fBcairn\\fR \\fIVERB\\fR [flags] [arguments]\n.SH VERBS\n",
          page);
    for (size_t i = 0; i < cli_verb_count; i++) {
        const char *chapter = cli_verbs[i]->chapter;
        if (chapter) fputs(".SS ", page);
        if (chapter) put_line(page, chapter);
        fputs(".TP\n\\fBcairn\\-", page);
        put_text(page, cli_verbs[i]->name);
        fputs("\\fR(1)\n", page);
        put_line(page, cli_verbs[i]->purpose);
    }
    fputs(".SH EXIT STATUS\n"
          "0 ok, 1 error, 2 usage, 3 not found, 4 not allowed, 5 unavailable, 6 refused,\n"
          "7 integrity failure, 8 timeout, 130 interrupted.\n",
          page);
    close_page(page);
    for (size_t i = 0; i < cli_verb_count; i++) {
        char name[64];
        snprintf(name, sizeof name, "cairn-%s", cli_verbs[i]->name);
        page = open_page(argv[1], name);
        write_verb(page, cli_verbs[i]);
        close_page(page);
    }
    return 0;
}
