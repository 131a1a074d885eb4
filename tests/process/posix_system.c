/* SPDX-License-Identifier: MIT */
/** @file See system.h and posix_system.h. */
#include "system.h"

#include <dirent.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "posix_system.h"

uint64_t system_raise_handle_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

static unsigned highest_descriptor(void) {
    unsigned highest = 0;
    unsigned number;
    struct dirent *entry;
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (sscanf(entry->d_name, "%u", &number) == 1 && number > highest &&
            (int)number != dirfd(directory)) {
            highest = number;
        }
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return highest;
}

/* Descriptors are the lowest numbers that are free: below the limit there must be none but those
 * that are meant. The gaps are few and are not counted, so a test asks for more than fit in them. */
uint64_t system_limit_descriptors(unsigned more) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    uint64_t former = limit.rlim_cur;
    limit.rlim_cur = (rlim_t)highest_descriptor() + 1 + more;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? former : 0;
}

void system_set_descriptor_limit(uint64_t value) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = value;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

bool system_own_folder(char *path, size_t capacity) {
    ssize_t length = readlink("/proc/self/exe", path, capacity - 1);
    if (length <= 0) {
        return false;
    }
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    return true;
}

static bool copy_all(FILE *in, FILE *out) {
    char bytes[1 << 16];
    size_t got;
    while ((got = fread(bytes, 1, sizeof(bytes), in)) > 0) {
        if (fwrite(bytes, 1, got, out) != got) {
            return false;
        }
    }
    return ferror(in) == 0;
}

bool system_copy_file(const char *from, const char *to) {
    FILE *in = fopen(from, "rbe");
    FILE *out = in == NULL ? NULL : fopen(to, "wbe");
    bool copied = out != NULL && copy_all(in, out);
    if (out != NULL) {
        copied = fclose(out) == 0 && copied;
    }
    if (in != NULL) {
        fclose(in);
    }
    return copied;
}

void system_become(char **arguments) {
    char path[4096];
    const size_t room = sizeof(path);
    if (arguments[0] != NULL && arguments[0][0] == '/') {
        (void)execv(arguments[0], arguments);
    } else if (arguments[0] != NULL && system_own_folder(path, room)) {
        const size_t length = strlen(path);
        (void)snprintf(path + length, room - length, "/%s", arguments[0]);
        (void)execv(path, arguments);
    }
}

void system_remove_file(const char *path) {
    (void)unlink(path);
}

bool system_is_root(void) {
    return geteuid() == 0;
}

bool system_become_user(unsigned user) {
    return setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 &&
           setresuid(user, user, user) == 0;
}

void system_become_as(const char *user, char **arguments) {
    unsigned number;
    if (sscanf(user, "%u", &number) == 1 && system_become_user(number)) {
        system_become(arguments);
    }
}

bool system_set_rights(const char *path, unsigned mode, unsigned group) {
    return chown(path, (uid_t)-1, group) == 0 && chmod(path, mode) == 0;
}

bool system_share_directory(const char *path, unsigned group) {
    /* The set-group-ID bit of a directory hands its group on to new files: inode(7). */
    return system_set_rights(path, S_ISGID | 0770, group);
}
