# SPDX-License-Identifier: MIT
"""Whether the memory of a tensor has the kind of handle that can be shared between containers."""

import ctypes


def is_shareable(tensor) -> bool:
    """True for memory of cuMemCreate, which cudaMalloc gives only with libgpuipc-preload before it."""
    driver = ctypes.CDLL("libcuda.so.1")
    handle = ctypes.c_ulonglong()
    address = ctypes.c_void_p(tensor.untyped_storage().data_ptr())
    if driver.cuMemRetainAllocationHandle(ctypes.byref(handle), address) != 0:
        return False
    assert driver.cuMemRelease(handle) == 0
    return True
