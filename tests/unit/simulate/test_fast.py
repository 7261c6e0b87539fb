"""The compiled engine gives the twin's numbers, to the last bit."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import given, settings
from simulated import scenarios

from outpace.simulate import Scenario
from outpace.simulate.fast import run_fast
from outpace.simulate.layout import lay_out
from outpace.simulate.metrics import Recording
from outpace.simulate.twin import run_twin


def assert_equal(found: Recording, expected: Recording) -> None:
    for field in fields(Recording):
        np.testing.assert_array_equal(
            getattr(found, field.name), getattr(expected, field.name), err_msg=field.name
        )


@settings(max_examples=300)
@given(scenarios())
def test_both_engines_record_the_same(scenario: Scenario) -> None:
    assert_equal(run_fast(lay_out(scenario)), run_twin(scenario))
