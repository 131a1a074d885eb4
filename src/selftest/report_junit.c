/* SPDX-License-Identifier: MIT */
/** @file JUnit's XML of what a run found, by Mini-XML: as Ant and Jenkins read it, one suite with a case for each check and
 *  finding. (github.com/windyroad/JUnit-Schema, which asks for all the attributes that are here.) */
#include <mxml.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "options.h"
#include "program.h"
#include "report.h"
#include "wrap.h"

const bool report_has_junit = true;

/* What XML 1.0 has no way to say, 2.2 "Characters", and what is no UTF-8, becomes a question mark. */
static const char *clean(char *text) {
    for (char *at = text; *at != '\0'; at++) {
        const unsigned char byte = (unsigned char)*at;
        const size_t more = byte < 0x80 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
        size_t found = 0;
        while (found < more && ((unsigned char)at[found + 1] & 0xC0u) == 0x80u) {
            found++;
        }
        if ((byte < 0x20 && strchr("\t\n\r", byte) == NULL) || byte == 0x7F || found < more ||
            (byte >= 0x80 && byte < 0xC2) || byte > 0xF4) {
            *at = '?';
        } else {
            at += more;
        }
    }
    return text;
}

static mxml_node_t *must(mxml_node_t *made) {
    if (made == NULL) {
        wrap_complain("FAIL: no memory for XML");
        program_end_now(EXIT_FAIL);
    }
    return made;
}

/* On a line of its own. */
static mxml_node_t *add(mxml_node_t *into, const char *name) {
    (void)must(mxmlNewOpaque(into, "\n"));
    return must(mxmlNewElement(into, name));
}

static void set(mxml_node_t *element, const char *name, const char *text) {
    char copy[1100];
    (void)snprintf(copy, sizeof(copy), "%s", text);
    mxmlElementSetAttr(element, name, clean(copy));
}

/* Not by mxmlElementSetAttrf: on Windows that knows other formats than the rest of this program. */
static void set_count(mxml_node_t *element, const char *name, size_t count) {
    char text[32];
    (void)snprintf(text, sizeof(text), "%zu", count);
    mxmlElementSetAttr(element, name, text);
}

static void set_seconds(mxml_node_t *element, double seconds) {
    char text[32];
    (void)snprintf(text, sizeof(text), "%.6f", seconds);
    mxmlElementSetAttr(element, "time", text);
}

static mxml_node_t *add_case(mxml_node_t *suite, const report *self, const char *name,
                             double seconds) {
    mxml_node_t *made = add(suite, "testcase");
    char of[64];
    (void)snprintf(of, sizeof(of), "gpuipc-selftest.%s", self->command);
    set(made, "name", name);
    set(made, "classname", of);
    set_seconds(made, seconds);
    return made;
}

static void add_outcome(mxml_node_t *into, const char *element, const char *type,
                        const char *message) {
    mxml_node_t *made = must(mxmlNewElement(into, element));
    set(made, "message", message);
    if (type != NULL) {
        set(made, "type", type);
    }
}

static void add_check(mxml_node_t *suite, const report *self, const report_check *one) {
    mxml_node_t *made = add_case(suite, self, one->id, one->seconds);
    if (one->status == REPORT_FAIL) {
        add_outcome(made, "failure", "check", one->text);
    } else if (one->status == REPORT_SKIP) {
        add_outcome(made, "skipped", NULL, one->text);
    }
}

static void add_finding(mxml_node_t *suite, const report *self, const gpuipc_finding *one) {
    char name[64];
    (void)snprintf(name, sizeof(name), "%s %s", one->id, one->name);
    mxml_node_t *made = add_case(suite, self, name, 0);
    if (one->severity == GPUIPC_SEVERITY_BLOCKS) {
        add_outcome(made, "failure", gpuipc_severity_name(one->severity), one->evidence);
    }
}

static void add_property(mxml_node_t *into, const char *name, const char *value) {
    mxml_node_t *made = must(mxmlNewElement(into, "property"));
    set(made, "name", name);
    set(made, "value", value);
}

static void add_properties(mxml_node_t *suite, const report *self) {
    mxml_node_t *list = add(suite, "properties");
    for (platform_fact i = 0; i < PLATFORM_COUNT; i++) {
        add_property(list, platform_name(i), platform_text(&self->platform, i));
    }
    if (self->driver.device_count > 0) {
        add_property(list, "driver", self->driver.is_emulated ? "emulated, no GPU" : "real");
    }
    for (size_t i = 0; i < self->device_count; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "device %zu", i);
        add_property(list, name, self->devices[i].name);
    }
    for (size_t i = 0; !report_judges_findings(self) && i < self->finding_count; i++) {
        const gpuipc_finding *one = &self->findings[i];
        char name[64];
        (void)snprintf(name, sizeof(name), "finding %s %s", one->id, one->name);
        add_property(list, name, one->evidence);
    }
}

/* What did not come to its end, or not to a beginning; NULL: all was tried, or there was nothing to try. */
static const char *broken_by(const report *self, int exit_code) {
    return self->is_interrupted                                  ? "interrupted"
           : self->error[0] != '\0' && exit_code != EXIT_NOTHING ? self->error
           : exit_code == EXIT_USAGE                             ? "wrong usage"
                                                                 : NULL;
}

static void set_counts(mxml_node_t *suite, const report *self, bool is_broken) {
    size_t blocks = 0;
    const size_t judged = report_judges_findings(self) ? self->finding_count : 0;
    for (size_t i = 0; i < judged; i++) {
        blocks += self->findings[i].severity == GPUIPC_SEVERITY_BLOCKS;
    }
    set_count(suite, "tests", self->check_count + judged + is_broken);
    set_count(suite, "failures", report_count(self, REPORT_FAIL) + blocks);
    set_count(suite, "errors", is_broken);
    set_count(suite, "skipped", report_count(self, REPORT_SKIP));
}

/* No name of a machine, as Ant writes it where it is not known; the time in UTC. */
static void set_origin(mxml_node_t *suite, const report *self) {
    char text[64] = "1970-01-01T00:00:00";
    const time_t now = time(NULL);
    const struct tm *parts = gmtime(&now);
    if (parts != NULL) {
        (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", parts);
    }
    set(suite, "timestamp", text);
    (void)snprintf(text, sizeof(text), "gpuipc-selftest.%s", self->command);
    set(suite, "name", text);
    set(suite, "hostname", "localhost");
    set_seconds(suite, (double)(os_clock_ns() - self->started_ns) / 1e9);
}

/* Mini-XML 4 (vcpkg, Debian unstable) has the margin at which it would break lines, and all else, in an object. */
static bool save(mxml_node_t *root, FILE *into) {
#if MXML_MAJOR_VERSION >= 4
    mxml_options_t *options = mxmlOptionsNew();
    if (options == NULL) {
        return false;
    }
    mxmlOptionsSetWrapMargin(options, 0);
    const bool is_good = mxmlSaveFile(root, options, into);
    mxmlOptionsDelete(options);
    return is_good;
#else
    mxmlSetWrapMargin(0);
    return mxmlSaveFile(root, into, MXML_NO_CALLBACK) == 0;
#endif
}

bool report_print_junit(const report *self, FILE *into, int exit_code) {
    const char *broken = broken_by(self, exit_code);
    mxml_node_t *root = must(mxmlNewXML("1.0"));
    mxml_node_t *suite = add(add(root, "testsuites"), "testsuite");
    set_origin(suite, self);
    set_counts(suite, self, broken != NULL);
    add_properties(suite, self);
    for (size_t i = 0; i < self->check_count; i++) {
        add_check(suite, self, &self->checks[i]);
    }
    for (size_t i = 0; report_judges_findings(self) && i < self->finding_count; i++) {
        add_finding(suite, self, &self->findings[i]);
    }
    if (broken != NULL) {
        add_outcome(add_case(suite, self, "whole run", 0), "error", "run", broken);
    }
    (void)add(suite, "system-out");
    (void)add(suite, "system-err");
    const bool is_good = save(root, into);
    mxmlDelete(root);
    return fflush(into) == 0 && !ferror(into) && is_good;
}
