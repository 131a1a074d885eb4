/* SPDX-License-Identifier: MIT */
/** @file What the files of the helper process share: the driver, and how a command is answered. */
#ifndef GPUIPC_TEST_CONFORMANCE_HELPER_H
#define GPUIPC_TEST_CONFORMANCE_HELPER_H

#include "conformance_link.h"
#include "driver.h"

/** Open from the first command on that names a device. */
extern driver drv;

/** Opens the driver, retains the primary context of a device and makes it current. */
CUresult use_device(int device);

/** Sends an answer; ends the program when the test is gone. */
void answer(const char *line, os_handle handle);
void answer_result(CUresult result);
/** "RESULT WORD": what cuMemcpyDtoH finds there. */
void answer_word(CUdeviceptr address);
/** The word is there when this returns: cuMemcpyHtoD alone may return before that. */
CUresult write_word(CUdeviceptr address, uint32_t word);

/** One command of the other files. @return false when it is none of theirs */
bool obey_export(const char *line);
bool obey_order(const char *line, os_handle handle);

#endif
