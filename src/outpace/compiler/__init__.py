"""How functions over arrays are compiled for this machine, and where what was compiled is kept.

The engine and the simulator write kernels; all that knows of Numba's cache on
disk and of settings in the environment is here.
"""
