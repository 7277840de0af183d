"""
The experiments of the papers. Each fit uses one thread; with one job this process is
the only one.
"""

import os

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
