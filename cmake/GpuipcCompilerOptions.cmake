# SPDX-License-Identifier: MIT
# gpuipc_compiler_options: how everything in this build is compiled. It is never installed.
add_library(gpuipc_compiler_options INTERFACE)

if(MSVC)
  # Microsoft's compiler, and clang-cl, which takes its options.
  target_compile_options(gpuipc_compiler_options INTERFACE /W4 /utf-8)
  # fopen and strncpy are what C has.
  target_compile_definitions(gpuipc_compiler_options INTERFACE _CRT_SECURE_NO_WARNINGS)
  if(CMAKE_C_COMPILER_ID STREQUAL "MSVC")
    if(CMAKE_C_COMPILER_VERSION VERSION_LESS 19.35)
      message(FATAL_ERROR "gpuipc needs C11's atomics: Visual Studio 2022 17.5 or later (cl 19.35)")
    endif()
    target_compile_options(gpuipc_compiler_options INTERFACE /experimental:c11atomics)
  else()
    target_compile_options(gpuipc_compiler_options INTERFACE /clang:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  endif()
  if(GPUIPC_WERROR)
    target_compile_options(gpuipc_compiler_options INTERFACE /WX)
  endif()
elseif(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(gpuipc_compiler_options INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
    # Assertion messages name files of the project, not of the machine that built it.
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  if(GPUIPC_WERROR)
    target_compile_options(gpuipc_compiler_options INTERFACE -Werror)
  endif()
endif()

if(MINGW)
  # printf and its kin as C has them (%zu, %lld); msvcrt.dll's own are older.
  target_compile_definitions(gpuipc_compiler_options INTERFACE __USE_MINGW_ANSI_STDIO=1)
endif()

if(GPUIPC_SANITIZE)
  set(flags -fsanitize=${GPUIPC_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(gpuipc_compiler_options INTERFACE ${flags})
  target_link_options(gpuipc_compiler_options INTERFACE ${flags})
endif()
# The preload library needs a shared runtime, which gcc links unless told otherwise and clang only when told. A fuzzer
# has clang's static one.
if(CMAKE_C_COMPILER_ID STREQUAL "Clang" AND GPUIPC_SANITIZE MATCHES "address" AND NOT GPUIPC_SANITIZE MATCHES "fuzzer")
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so
                  OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  cmake_path(GET runtime PARENT_PATH runtime_folder)
  target_link_options(gpuipc_compiler_options INTERFACE -shared-libasan -Wl,-rpath,${runtime_folder})
endif()
if(GPUIPC_SANITIZE STREQUAL "memory")
  # It knows only what it has instrumented; see there.
  set(folder ${PROJECT_SOURCE_DIR}/tests/sanitizer)
  add_library(gpuipc_msan STATIC ${folder}/msan_calls.c ${folder}/msan_criterion.c)
  target_compile_definitions(gpuipc_msan PRIVATE _GNU_SOURCE)
  target_compile_options(gpuipc_compiler_options INTERFACE -fsanitize-memory-track-origins)
  target_link_options(gpuipc_compiler_options INTERFACE
    LINKER:--wrap=malloc,--wrap=realloc,--wrap=free,--wrap=syscall,--wrap=statx,--wrap=mallinfo2
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:--undefined=nn_send>)
  target_link_libraries(gpuipc_compiler_options INTERFACE gpuipc_msan)
endif()

if(GPUIPC_COVERAGE)
  # Atomic counters: the emulated driver's streams are threads.
  set(flags --coverage -fprofile-abs-path -fprofile-update=atomic)
  target_compile_options(gpuipc_compiler_options INTERFACE ${flags})
  target_link_options(gpuipc_compiler_options INTERFACE --coverage)
  if(NOT WIN32)
    # A process that ends by _exit(2), as forked children do, has run what it ran all the same.
    add_library(gpuipc_coverage STATIC ${PROJECT_SOURCE_DIR}/tests/support/posix_coverage.c)
    target_compile_definitions(gpuipc_coverage PRIVATE _GNU_SOURCE)
    target_link_options(gpuipc_compiler_options INTERFACE
      $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:LINKER:--wrap=_exit,--undefined=__wrap__exit>)
    target_link_libraries(gpuipc_compiler_options INTERFACE gpuipc_coverage)
  endif()
endif()
