/* SPDX-License-Identifier: MIT */
/**
 * @file What the emulated driver's tests need another process for on Linux alone:
 *   system          loads the driver by the system's name and says whether it is emulated
 *   fork            calls the driver in a forked child
 *   leave-forked    exits with a context live, after a forked child has exited likewise
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulated_helper.h"
#include "helper_role.h"

static int role_system(char **arguments) {
    (void)arguments;
    emulated_helper_open("auto");
    helper_say("emulated %d", drv.is_emulated);
    return 0;
}

static int role_fork(char **arguments) {
    int count;
    CUdeviceptr address;
    (void)arguments;
    emulated_helper_open("emulated");
    const pid_t child = fork();
    if (child == 0) {
        helper_say("child %d %d %d", (int)drv.cuInit(0), (int)drv.cuDeviceGetCount(&count),
                   (int)drv.cuMemAlloc(&address, 4));
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child) {
        return 1;
    }
    helper_say("parent %d", (int)drv.cuMemAlloc(&address, 4));
    return 0;
}

static int role_leave_forked(char **arguments) {
    (void)arguments;
    if (!outputs_join()) {
        return 8;
    }
    emulated_helper_open("emulated");
    const pid_t child = fork();
    if (child == 0) {
        exit(0); /* with exit handlers, unlike _exit */
    }
    if (child < 0 || waitpid(child, NULL, 0) != child) {
        return 1;
    }
    helper_say("the child has ended");
    return 0;
}

static const helper_role roles[] = {
    {"system", 0, role_system},
    {"fork", 0, role_fork},
    {"leave-forked", 0, role_leave_forked},
};

int main(int argc, char **argv) {
    return helper_role_run(roles, sizeof(roles) / sizeof(roles[0]), argc, argv);
}
