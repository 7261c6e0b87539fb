"""The compiled engine of the simulator: records over arrays, and loops over them."""
