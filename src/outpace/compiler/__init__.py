"""How functions over arrays are compiled for this machine, and where what was compiled is kept.

The engine and the simulator write kernels; this is all that knows of Numba, its cache on disk and
the settings of the environment that concern them.
"""
