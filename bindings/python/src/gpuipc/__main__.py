# SPDX-License-Identifier: MIT
"""python -m gpuipc: gpuipc-selftest, which shares memory between two processes and proves it."""

import os
import sys
from pathlib import Path

_program = str(Path(__file__).parent / "bin" / "gpuipc-selftest")
os.execv(_program, [_program, *sys.argv[1:]])
