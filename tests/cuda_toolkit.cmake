# SPDX-License-Identifier: MIT
# Where NVIDIA's own headers and the stub of its library are, if they are: two tests use them, and
# nothing else does. The directory given by hand, what CUDA's own tools read, the usual places.
# Linux has another cuda.h (linux/cuda.h), so it is cudaTypedefs.h that is looked for.
find_path(GPUIPC_CUDA_INCLUDE_DIR cudaTypedefs.h
          HINTS $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include
          PATHS /usr/local/cuda/include /usr/include
          DOC "Where cuda.h and cudaTypedefs.h are; only tests use them")
# The stub is what a toolkit has for machines without a driver; its SONAME is libcuda.so.1.
find_library(GPUIPC_CUDA_STUB NAMES cuda NO_DEFAULT_PATH
             HINTS ${GPUIPC_CUDA_INCLUDE_DIR}/../lib64/stubs ${GPUIPC_CUDA_INCLUDE_DIR}/../lib/stubs
             PATHS /usr/local/cuda/lib64/stubs /usr/local/cuda/lib/stubs
             DOC "The toolkit's stub of libcuda.so; only tests use it")
