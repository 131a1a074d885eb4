/* SPDX-License-Identifier: MIT */
/** @file Modules and kernels: nothing is loaded, and the refusal says why. */
#include <stdio.h>

#include "emulated_test.h"

#define NO_BINARY_FOR_GPU      ((CUresult)209)
#define JIT_COMPILER_NOT_FOUND ((CUresult)221)
#define FILE_NOT_FOUND         ((CUresult)301)

static CUresult (*load_file)(CUmodule *, const char *);
static CUresult (*load_with_options)(CUmodule *, const void *, unsigned, void *, void **);
static CUresult (*load_library)(void **, const void *, void *, void **, unsigned, void *, void **,
                                unsigned);
static CUresult (*pop_context)(CUcontext *);

static void start(void) {
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuModuleLoad", &load_file);
    emulated_symbol(drv.library, "cuModuleLoadDataEx", &load_with_options);
    emulated_symbol(drv.library, "cuLibraryLoadData", &load_library);
    emulated_symbol(drv.library, "cuCtxPopCurrent_v2", &pop_context);
}

TestSuite(emulated_module, .init = start, .timeout = 60);

static const unsigned char cubin[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
static const unsigned char fat_binary[] = {0x50, 0xed, 0x55, 0xba, 1, 0};
static const unsigned char wrapper[] = {0xb1, 0x43, 0x62, 0x46, 1, 0};

static const struct {
    const void *image;
    CUresult expected;
} images[] = {
    {cubin, NO_BINARY_FOR_GPU},
    {fat_binary, NO_BINARY_FOR_GPU},
    {wrapper, NO_BINARY_FOR_GPU},
    {".version 8.0\n.target sm_90\n", JIT_COMPILER_NOT_FOUND},
    {"// generated\n.version 8.0\n", JIT_COMPILER_NOT_FOUND},
    {"no image", CUDA_ERROR_INVALID_IMAGE},
    {"", CUDA_ERROR_INVALID_IMAGE},
    {NULL, CUDA_ERROR_INVALID_VALUE},
};

Test(emulated_module, an_image_is_refused_for_what_it_is) {
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        CUmodule module = NULL;
        void *library = NULL;
        cr_log_info("image %u", (unsigned)i);
        check_result(images[i].expected, drv.cuModuleLoadData(&module, images[i].image));
        check_result(images[i].expected,
                     load_with_options(&module, images[i].image, 0, NULL, NULL));
        check_result(images[i].expected,
                     load_library(&library, images[i].image, NULL, NULL, 0, NULL, NULL, 0));
        cr_assert_null(module);
        cr_assert_null(library);
    }
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuModuleLoadData(NULL, cubin));
}

Test(emulated_module, a_file_is_refused_for_what_is_in_it) {
    char name[64];
    CUmodule module = NULL;
    snprintf(name, sizeof name, "emulated-module-%llu", (unsigned long long)os_process_id());
    check_result(FILE_NOT_FOUND, load_file(&module, name));
    FILE *const file = fopen(name, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(cubin, 1, sizeof cubin, file), sizeof cubin);
    cr_assert_eq(fclose(file), 0);
    const CUresult result = load_file(&module, name);
    cr_assert_eq(remove(name), 0);
    cr_assert_eq(result, NO_BINARY_FOR_GPU);
    check_result(CUDA_ERROR_INVALID_VALUE, load_file(&module, NULL));
}

Test(emulated_module, needs_a_context) {
    CUmodule module = NULL;
    CUcontext popped = NULL;
    check_success(pop_context(&popped));
    check_result(CUDA_ERROR_INVALID_CONTEXT, drv.cuModuleLoadData(&module, cubin));
}

Test(emulated_module, no_function_exists) {
    CUfunction function = NULL;
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuModuleGetFunction(&function, NULL, "kernel"));
    check_result(CUDA_ERROR_INVALID_HANDLE,
                 drv.cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuModuleUnload(NULL));
}
