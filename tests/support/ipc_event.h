/* SPDX-License-Identifier: MIT */
/** @file Legacy IPC events. The library does not use them, so they are not in its table of the driver. */
#ifndef GPUIPC_TEST_IPC_EVENT_H
#define GPUIPC_TEST_IPC_EVENT_H

#include "driver.h"

/** cuIpcGetEventHandle of this driver, and cuIpcOpenEventHandle. CUDA_ERROR_NOT_FOUND: it has none. */
CUresult ipc_event_get(const driver *drv, CUipcEventHandle *out_handle, CUevent event);
CUresult ipc_event_open(const driver *drv, CUevent *out_event, CUipcEventHandle handle);

#endif
