"""What compiled conditions compute by more than an operator, as `pattern.functions` says."""

from __future__ import annotations

from math import inf, isfinite, isinf, log, nan, pow

from numpy import fmod

from outpace.compiler.kernel import compiled


@compiled
def remainder(left: float, right: float) -> float:
    """Return what is left of a division, with the sign of what is divided."""
    return nan if isinf(left) else fmod(left, right)


@compiled
def power(base: float, exponent: float) -> float:
    """Return a power; where it is out of range, what IEEE 754 gives."""
    if base == 0.0 and exponent < 0.0:
        return inf
    # Of a square that it knows LLVM makes `x * x`, whose last bit is not always that of `pow`.
    unknown_zero = base - base if isfinite(base) else 0.0
    return pow(base, exponent + unknown_zero)


@compiled
def log_of_base(base: float, value: float) -> float:
    """Return the logarithm of a value to a base."""
    divisor = log(base)
    return nan if divisor == 0.0 else log(value) / divisor


@compiled
def round_to(value: float, power: float) -> float:
    """Round a double to the digits that ten to their power stands for, halves away from zero.

    It is rounded as it is written, with as few digits as tell it from other doubles. A number that
    is written with its last digit a 5 is the double next to that number, so it is enough to know
    on which side of that double a value lies.
    """
    if not isfinite(value):
        return value
    size = abs(value)
    whole = int(size * power)
    # The product may have been rounded up or down past a half.
    for near in range(max(whole - 1, 0), whole + 2):
        if size < float(10 * near + 5) / (10.0 * power):
            rounded = float(near) / power
            return rounded if value > 0.0 else -rounded
    rounded = float(whole + 2) / power
    return rounded if value > 0.0 else -rounded


@compiled
def times_so_many(count: int, number: float) -> int:
    """Return a whole number times another one, rounded to the nearest, of two as near to the even.

    Both parts of the exact product count: what a double holds of it, and what that leaves out.
    """
    first = float(count)
    product = first * number
    split = 134217729.0
    upper = split * first - (split * first - first)
    lower = first - upper
    other = split * number - (split * number - number)
    rest = number - other
    left_out = ((upper * other - product) + upper * rest + lower * other) + lower * rest
    whole = int(product // 1.0)
    fraction = product - float(whole)
    if fraction > 0.5 or (fraction == 0.5 and (left_out > 0.0 or (left_out == 0.0 and whole % 2))):
        return whole + 1
    return whole
