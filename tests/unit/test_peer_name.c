/* SPDX-License-Identifier: MIT */
/** @file Which names an endpoint may have. */
#include <criterion/criterion.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "check.h"
#include "message/peer.h"

TestSuite(peer_name, .timeout = 30);

Test(peer_name, good_names_pass) {
    static const char *const names[] = {
        "a", "Z", "0", "_", "-", "a.b", "camera-0", "A-Z_a-z.0-9", "a.", "a..", "@a", "@-.",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        check_ok(peer_check_name(names[i]));
    }
}

Test(peer_name, bad_names_are_refused) {
    static const char *const names[] = {
        ".",   "..",    "...", ".hidden",     "@.",    "@.a",  "@@a",  "a@b",
        "a/b", "../up", "/",   "a b",         " a",    "a\n",  "\t",   "a\\b",
        "a:b", "a*",    "a\"", "caf\xC3\xA9", "a\x7F", "\x01", "\xFF",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        check_refused(GPUIPC_ERR_NAME_INVALID, "A-Z a-z 0-9", peer_check_name(names[i]));
    }
    check_refused(GPUIPC_ERR_NAME_INVALID, "the name is empty", peer_check_name(""));
    check_refused(GPUIPC_ERR_NAME_INVALID, "the name is empty", peer_check_name("@"));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, peer_check_name(NULL));
}

Test(peer_name, only_the_bytes_of_the_list_are_allowed) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    for (unsigned byte = 1; byte < 256; byte++) {
        const char name[] = {'a', (char)byte, 'b', '\0'};
        bool good = strchr(allowed, (char)byte) != NULL;
        check_status(good ? GPUIPC_OK : GPUIPC_ERR_NAME_INVALID, peer_check_name(name));
    }
}

Test(peer_name, the_position_of_the_bad_character_is_told) {
    check_refused(GPUIPC_ERR_NAME_INVALID, "character 4 ", peer_check_name("abc/d"));
    check_refused(GPUIPC_ERR_NAME_INVALID, "character 1 ", peer_check_name(".abc"));
}

Test(peer_name, the_length_has_a_limit) {
    char name[GPUIPC_NAME_MAX + 3] = "@";
    memset(name + 1, 'x', GPUIPC_NAME_MAX);
    check_ok(peer_check_name(name + 1));
    check_ok(peer_check_name(name)); /* the mark is not counted */
    name[1 + GPUIPC_NAME_MAX] = 'x';
    check_refused(GPUIPC_ERR_NAME_TOO_LONG, "65 characters", peer_check_name(name + 1));
    check_status(GPUIPC_ERR_NAME_TOO_LONG, peer_check_name(name));
}
