/* SPDX-License-Identifier: MIT */
/** @file See wrap.h. */
#include "wrap.h"

#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "program.h"

/* Where the columns of a line end, at the latest: "    legacy  yes  " and "doctor     D01                ". */
#define HEAD_COLUMNS 32
/* A text that is narrower than that is read worse than one that begins further left. */
#define COLUMNS_LEAST 24
#define INDENT        2
#define HEAD_NARROW   6
/* The longest line that is broken; a longer one is printed in parts. */
#define LINE_MAX_BYTES 8192
/* More than the longest text of an error, and what is around it. */
#define COMPLAINT_MAX 4096

static struct {
    unsigned columns;
    bool is_ascii;
    size_t used;
    char line[LINE_MAX_BYTES];
} now;

void wrap_begin(unsigned columns, bool is_ascii) {
    now.columns = columns;
    now.is_ascii = is_ascii;
}

/* ECMA-48: ESC [ up to a letter. */
static size_t escape_length(const char *text) {
    size_t length = 0;
    if (text[0] == '\x1b' && text[1] == '[') {
        length = 2 + strspn(text + 2, "0123456789;");
        length += text[length] != '\0';
    }
    return length;
}

/* Columns that so many bytes take: of UTF-8 the first byte of each character. */
static size_t width_of(const char *text, size_t length) {
    size_t width = 0;
    for (size_t i = 0; i < length; i++) {
        const size_t escape = escape_length(text + i);
        if (escape > 0) {
            i += escape - 1;
        } else {
            width += ((unsigned char)text[i] & 0xC0u) != 0x80u;
        }
    }
    return width;
}

/* Behind the last two blanks among the first columns: there the text begins. */
static size_t indent_of(const char *line, unsigned columns) {
    const size_t leading = strspn(line, " ");
    size_t head = leading;
    for (const char *at = strstr(line + leading, "  "); at != NULL; at = strstr(at, "  ")) {
        at += strspn(at, " ");
        const size_t width = width_of(line, (size_t)(at - line));
        if (width > HEAD_COLUMNS) {
            break;
        }
        head = width;
    }
    head = head > 0 ? head : INDENT;
    return head + COLUMNS_LEAST <= columns ? head
           : leading < HEAD_NARROW         ? leading + INDENT
                                           : HEAD_NARROW;
}

void wrap_print(FILE *into, const char *line, unsigned columns) {
    const size_t indent = indent_of(line, columns);
    size_t column = 0;
    while (*line != '\0') {
        const size_t blanks = strspn(line, " ");
        const size_t length = strcspn(line + blanks, " ");
        const size_t width = width_of(line + blanks, length);
        if (columns > 0 && column > indent && column + blanks + width > columns) {
            (void)fprintf(into, "\n%*s", (int)indent, "");
            column = indent;
        } else {
            (void)fprintf(into, "%*s", (int)blanks, "");
            column += blanks;
        }
        (void)fwrite(line + blanks, 1, length, into);
        column += width;
        line += blanks + length;
    }
}

/* In its own place: no character becomes longer. */
static void to_ascii(char *text) {
    char *into = text;
    for (; *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;
        if (byte < 0x80) {
            *into++ = *text;
        } else if ((byte & 0xC0u) != 0x80u) {
            *into++ = '?';
        }
    }
    *into = '\0';
}

static void print_lines(void) {
    char *line = now.line;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        wrap_print(stdout, line, now.columns);
        (void)fputc('\n', stdout);
    }
    now.used = strlen(line);
    memmove(now.line, line, now.used + 1);
}

/* Nobody's terminal has lines of that length: as it comes.
 *  @param length of what the format makes */
static void print_long(const char *format, va_list arguments, size_t length) {
    char *text = malloc(length + 1);
    wrap_end();
    if (text == NULL) { /* the tool has nothing to tell any more */
        wrap_complain("FAIL: no memory for a line");
        program_end_now(EXIT_FAIL);
    }
    (void)vsnprintf(text, length + 1, format, arguments);
    if (now.is_ascii) {
        to_ascii(text);
    }
    (void)fputs(text, stdout);
    free(text);
}

void wrap_say_list(const char *format, va_list arguments) {
    const size_t room = sizeof(now.line) - now.used;
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(now.line + now.used, room, format, arguments);
    if (length >= 0 && (size_t)length < room) {
        if (now.is_ascii) {
            to_ascii(now.line);
        }
        print_lines();
    } else if (length >= 0) {
        print_long(format, again, (size_t)length);
    }
    va_end(again);
    (void)fflush(stdout);
}

void wrap_end(void) {
    now.line[now.used] = '\0'; /* behind it may be the begin of what had no room */
    wrap_print(stdout, now.line, now.columns);
    now.used = 0;
    now.line[0] = '\0';
    (void)fflush(stdout);
}

bool wrap_is_written(void) {
    return fflush(stdout) == 0 && !ferror(stdout);
}

void wrap_complain_list(const char *format, va_list arguments) {
    char line[COMPLAINT_MAX] = "gpuipc-selftest: ";
    const size_t used = strlen(line);
    (void)vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
    if (now.is_ascii) {
        to_ascii(line);
    }
    const unsigned columns = program_error_columns();
    if (columns > 0) {
        wrap_print(stderr, line, columns);
        (void)fputc('\n', stderr);
    } else { /* at once: other programs of this one's write there, too */
        line[strlen(line) + 1] = '\0';
        line[strlen(line)] = '\n';
        (void)fputs(line, stderr);
    }
}

void wrap_complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    wrap_complain_list(format, arguments);
    va_end(arguments);
}

void wrap_say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    wrap_say_list(format, arguments);
    va_end(arguments);
}
