/* SPDX-License-Identifier: MIT */
/** @file What a raw peer of Linux can do with its socket. posix_raw_peer.c */
#ifndef GPUIPC_TEST_POSIX_RAW_SOCKET_H
#define GPUIPC_TEST_POSIX_RAW_SOCKET_H

#include "raw_peer.h"

/** Its descriptor, which stays its own. */
int raw_socket(const raw_peer *of);

#endif
