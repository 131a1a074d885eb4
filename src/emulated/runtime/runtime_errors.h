/* SPDX-License-Identifier: MIT */
/** @file The results of the CUDA runtime that can come up here. It declares nothing, as runtime_entry_points.h. */
#ifndef GPUIPC_RUNTIME_ERRORS_H
#define GPUIPC_RUNTIME_ERRORS_H

/** X(name, code, text): NVIDIA's names and codes, our words. From 100 on, and mostly below, a code is the driver's. */
/* clang-format off */
#define RUNTIME_ERROR_LIST(X) \
    X(cudaSuccess, 0, "no error") \
    X(cudaErrorInvalidValue, 1, "invalid argument") \
    X(cudaErrorMemoryAllocation, 2, "out of memory") \
    X(cudaErrorInitializationError, 3, "initialization error") \
    X(cudaErrorCudartUnloading, 4, "driver shutting down") \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument") \
    X(cudaErrorInvalidPitchValue, 12, "invalid pitch argument") \
    X(cudaErrorInvalidSymbol, 13, "invalid device symbol") \
    X(cudaErrorInvalidHostPointer, 16, "invalid host pointer") \
    X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer") \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid direction of a copy") \
    X(cudaErrorStubLibrary, 34, "stub library in place of a driver") \
    X(cudaErrorInsufficientDriver, 35, "no driver, or one older than the runtime") \
    X(cudaErrorCallRequiresNewerDriver, 36, "the call needs a newer driver") \
    X(cudaErrorDevicesUnavailable, 46, "device busy or unavailable") \
    X(cudaErrorMissingConfiguration, 52, "a launch without a configuration") \
    X(cudaErrorInvalidDeviceFunction, 98, "invalid device function") \
    X(cudaErrorNoDevice, 100, "no device found") \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
    X(cudaErrorSoftwareValidityNotEstablished, 103, "a self-test of driver and runtime failed") \
    X(cudaErrorInvalidKernelImage, 200, "invalid device image") \
    X(cudaErrorDeviceUninitialized, 201, "invalid device context") \
    X(cudaErrorMapBufferObjectFailed, 205, "mapping failed") \
    X(cudaErrorNoKernelImageForDevice, 209, "no kernel image for this device") \
    X(cudaErrorPeerAccessUnsupported, 217, "no peer access between these devices") \
    X(cudaErrorOperatingSystem, 304, "a call of the operating system failed") \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") \
    X(cudaErrorIllegalState, 401, "not permitted in this state") \
    X(cudaErrorSymbolNotFound, 500, "not found") \
    X(cudaErrorNotReady, 600, "not ready") \
    X(cudaErrorIllegalAddress, 700, "illegal memory access") \
    X(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled") \
    X(cudaErrorPeerAccessNotEnabled, 705, "peer access is not enabled") \
    X(cudaErrorSetOnActiveProcess, 708, "the primary context is active") \
    X(cudaErrorContextIsDestroyed, 709, "context is destroyed") \
    X(cudaErrorTooManyPeers, 711, "too many peers") \
    X(cudaErrorHostMemoryAlreadyRegistered, 712, "part of the memory is registered already") \
    X(cudaErrorHostMemoryNotRegistered, 713, "the memory is not registered") \
    X(cudaErrorLaunchFailure, 719, "a kernel failed") \
    X(cudaErrorNotPermitted, 800, "operation not permitted") \
    X(cudaErrorNotSupported, 801, "operation not supported") \
    X(cudaErrorSystemDriverMismatch, 803, "driver and library do not match") \
    X(cudaErrorStreamCaptureUnsupported, 900, "not permitted while a stream is capturing") \
    X(cudaErrorStreamCaptureInvalidated, 901, "an earlier call has made the capture invalid") \
    X(cudaErrorStreamCaptureMerge, 902, "two captures would become one") \
    X(cudaErrorStreamCaptureUnmatched, 903, "the capture did not begin in this stream") \
    X(cudaErrorStreamCaptureUnjoined, 904, "the capture has a branch that does not lead back to the stream where it began") \
    X(cudaErrorStreamCaptureIsolation, 905, "what is captured would depend on what is not") \
    X(cudaErrorStreamCaptureImplicit, 906, "the legacy stream would depend on a blocking stream that is capturing") \
    X(cudaErrorCapturedEvent, 907, "not permitted on an event of a stream that was capturing") \
    X(cudaErrorStreamCaptureWrongThread, 908, "the capture was begun by another thread") \
    X(cudaErrorUnknown, 999, "unknown error")
/* clang-format on */

#endif
