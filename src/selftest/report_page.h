/* SPDX-License-Identifier: MIT */
/** @file The page of --html, report_page.html, as text with its end; CMake makes report_page.c of it. */
#ifndef GPUIPC_SELFTEST_REPORT_PAGE_H
#define GPUIPC_SELFTEST_REPORT_PAGE_H

extern const unsigned char report_page[];

#endif
