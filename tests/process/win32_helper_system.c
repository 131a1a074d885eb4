/* SPDX-License-Identifier: MIT */
/** @file The helper's commands that only one system has. Windows has neither fork() nor a process
 *  that becomes another user. */
#include "helper_commands.h"

const helper_command helper_system_commands[] = {{NULL, NULL}};
