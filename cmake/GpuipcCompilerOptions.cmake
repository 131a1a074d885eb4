# SPDX-License-Identifier: MIT
# gpuipc_compiler_options: how everything in this build is compiled. It is never installed.
add_library(gpuipc_compiler_options INTERFACE)

if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options(gpuipc_compiler_options INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
    # Assertion messages name files of the project, not of the machine that built it.
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  if(GPUIPC_WERROR)
    target_compile_options(gpuipc_compiler_options INTERFACE -Werror)
  endif()
endif()

if(GPUIPC_SANITIZE)
  set(flags -fsanitize=${GPUIPC_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(gpuipc_compiler_options INTERFACE ${flags})
  target_link_options(gpuipc_compiler_options INTERFACE ${flags})
endif()

if(GPUIPC_COVERAGE)
  # Atomic counters: the emulated driver's streams are threads.
  set(flags --coverage -fprofile-abs-path -fprofile-update=atomic)
  target_compile_options(gpuipc_compiler_options INTERFACE ${flags})
  target_link_options(gpuipc_compiler_options INTERFACE --coverage)
endif()
