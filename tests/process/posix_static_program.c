/* SPDX-License-Identifier: MIT */
/** @file A program that is linked with -static, C library and all: it is told why it can use no driver. */
#include <stdio.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

static int check(const char *driver) {
    const gpuipc_context_config config = {.struct_size = sizeof(config), .driver = driver};
    gpuipc_context *context = NULL;
    const gpuipc_status status = gpuipc_context_create(&config, &context);
    const char *sentence = gpuipc_error_get()->sentence;
    if (status == GPUIPC_ERR_NOT_SUPPORTED && context == NULL &&
        strstr(sentence, "-static") != NULL) {
        return 0;
    }
    fprintf(stderr, "%s: %s: %s\n", driver, gpuipc_status_name(status), sentence);
    return 1;
}

int main(void) {
    const int failures = check("emulated") + check("auto");
    return failures == 0 ? 0 : 1;
}
