"""Numba kernels over arrays; each has a plain Python twin that is the oracle in the tests."""
