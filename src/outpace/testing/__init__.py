"""What tests, examples and users' own tests stand on: oracles and the simulator.

- `simulate_operator`: run a query or an operator of your own as hosts do, with faults;
- `SimulationError`: what it raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outpace.testing.simulation.simulated_run import simulate_operator
    from outpace.testing.simulation.trace import SimulationError

__all__ = ["SimulationError", "simulate_operator"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # Loaded when it is used: the simulator knows all parts of the engine, the oracle none.
        if name == "simulate_operator":
            from outpace.testing.simulation.simulated_run import simulate_operator

            return simulate_operator
        if name == "SimulationError":
            from outpace.testing.simulation.trace import SimulationError

            return SimulationError
        raise AttributeError(f"module 'outpace.testing' has no attribute '{name}'")
