/* SPDX-License-Identifier: MIT */
/** @file One pipe for standard output and standard error, on Windows: the driver's DLL has the same C
 *  library as this program, which keeps both. */
#include <io.h>
#include <stdio.h>

#include "emulated_helper.h"

bool outputs_join(void) {
    return _dup2(_fileno(stdout), _fileno(stderr)) == 0;
}
