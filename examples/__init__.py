"""
Experiments and benchmarks, as ``python -m examples NAME``.

The environment is set here, before TensorFlow is imported: it logs errors only, and the
threads of SciPy's linear algebra, which wait for more work by keeping the cores from
TensorFlow, are one.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
