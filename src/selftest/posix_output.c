/* SPDX-License-Identifier: MIT */
/** @file See output.h. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os.h"

struct output {
    FILE *file;
    char target[PATH_MAX];
    char beside[PATH_MAX + 32]; /* empty: the target itself is written */
    bool is_in_place;           /* the target is a plain file, and may become shorter */
};

/* Links are followed: what they lead to is replaced, and not the link. One that leads nowhere is itself replaced.
 *  @param out_found of mode 0: there is nothing yet */
static bool find_target(const char *path, char target[PATH_MAX], struct stat *out_found) {
    *out_found = (struct stat){0};
    if (realpath(path, target) != NULL) {
        return stat(target, out_found) == 0;
    }
    if (errno == ENOENT && strlen(path) < PATH_MAX) {
        (void)strcpy(target,
                     path); /* NOLINT(clang-analyzer-security.insecureAPI.strcpy): it fits */
        return true;
    }
    return false;
}

static FILE *open_beside(output *self, mode_t mode) {
    uint64_t random = 0;
    if (os_random(&random, sizeof(random)) != GPUIPC_OK) {
        errno = EAGAIN;
        return NULL;
    }
    (void)snprintf(self->beside, sizeof(self->beside), "%s.%016llx", self->target,
                   (unsigned long long)random);
    const int fd = open(self->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        return NULL;
    }
    if (mode != 0) {
        (void)fchmod(fd, mode & 0777); /* as it was, where that may be */
    }
    FILE *file = fdopen(fd, "wb");
    if (file == NULL) {
        (void)close(fd);
        (void)unlink(self->beside);
    }
    return file;
}

/* The directory may not be written: a file that is there already may be all the same. It is not emptied yet.
 *  @return NULL, with errno of the file beside */
static FILE *open_in_place(output *self) {
    const int error = errno;
    FILE *file = fopen(self->target, "r+b");
    self->beside[0] = '\0';
    self->is_in_place = file != NULL;
    errno = error;
    return file;
}

static FILE *open_plain(output *self, mode_t mode) {
    FILE *file = open_beside(self, mode);
    return file != NULL ? file : open_in_place(self);
}

output *output_open(const char *path, char why[OUTPUT_WHY_MAX]) {
    struct stat found;
    output *self = calloc(1, sizeof(*self));
    if (self == NULL || !find_target(path, self->target, &found) ||
        (found.st_mode != 0 && access(self->target, W_OK) != 0)) {
        goto fail;
    }
    if (S_ISDIR(found.st_mode)) {
        errno = EISDIR;
        goto fail;
    }
    self->file = found.st_mode == 0 || S_ISREG(found.st_mode) ? open_plain(self, found.st_mode)
                                                              : fopen(self->target, "wb");
    if (self->file != NULL) {
        return self;
    }
fail:
    (void)snprintf(why, OUTPUT_WHY_MAX, "%s", strerror(errno));
    free(self);
    return NULL;
}

FILE *output_file(const output *self) {
    return self->file;
}

/* What was there may have been longer. */
static bool cut(FILE *file) {
    const long size = ftell(file);
    return size >= 0 && fflush(file) == 0 && ftruncate(fileno(file), size) == 0;
}

/* A target on which something is mounted, as a container's one file is, cannot be replaced: rename(2), EBUSY.
 *  @return false with errno: of the renaming, where the target cannot be written either */
static bool copy_over(const output *self) {
    char part[BUFSIZ];
    size_t size;
    const int error = errno;
    FILE *from = fopen(self->beside, "rb");
    FILE *into = from != NULL ? fopen(self->target, "r+b") : NULL;
    bool is_good = into != NULL;
    if (!is_good) {
        errno = error;
    }
    while (is_good && (size = fread(part, 1, sizeof(part), from)) > 0) {
        is_good = fwrite(part, 1, size, into) == size;
    }
    is_good = is_good && ferror(from) == 0 && cut(into);
    if (from != NULL) {
        (void)fclose(from);
    }
    return into != NULL && fclose(into) == 0 && is_good;
}

bool output_end(output *self, bool is_good, char why[OUTPUT_WHY_MAX]) {
    errno = 0;
    is_good = is_good && (!self->is_in_place || cut(self->file));
    is_good = fclose(self->file) == 0 && is_good;
    const bool is_moved =
        is_good && self->beside[0] != '\0' && rename(self->beside, self->target) == 0;
    if (is_good && self->beside[0] != '\0' && !is_moved) {
        is_good = copy_over(self);
    }
    if (!is_good && errno != 0) {
        (void)snprintf(why, OUTPUT_WHY_MAX, "%s", strerror(errno));
    }
    if (self->beside[0] != '\0' && !is_moved) {
        (void)unlink(self->beside);
    }
    free(self);
    return is_good;
}

bool output_check(const char *path, char why[OUTPUT_WHY_MAX]) {
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode) &&
        access(path, W_OK) == 0) {
        return true; /* opening a pipe would wait for its reader */
    }
    output *self = output_open(path, why);
    if (self == NULL) {
        return false;
    }
    (void)output_end(self, false, why);
    return true;
}
