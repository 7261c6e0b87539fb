"""Where an operator that may go back notes how it stands: models for `op.Speculative`.

The result is the same with each of them. `Every` and `EverySpeculative` count events, `Adaptive`
compares what an event takes with what a checkpoint does; `LeastWork`, the default, knows how often
the operator goes back, too; a subclass of `CheckpointModel` decides by itself.

Examples
--------
>>> import outpace as op
>>> op.Speculative("2 s", checkpoints=op.checkpoints.Adaptive()).checkpoints
Adaptive()
"""

from outpace.pattern.checkpoints import (
    Adaptive,
    CheckpointModel,
    CheckpointWork,
    Every,
    EverySpeculative,
    LeastWork,
)

__all__ = [
    "Adaptive",
    "CheckpointModel",
    "CheckpointWork",
    "Every",
    "EverySpeculative",
    "LeastWork",
]
