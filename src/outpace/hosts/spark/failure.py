"""What Spark says when a job fails, in one error of Outpace.

An error that Outpace raised inside a task comes back word for word, without the traces that Spark
wraps around it. For anything else Spark's own first words are kept.
"""

from __future__ import annotations

import re
from typing import Final

from outpace import errors
from outpace.errors import DataError, OutpaceError

#: An error of Outpace as Python prints it at the end of a trace, up to where Spark goes on.
_OWN: Final = re.compile(
    r"^(?:.*\s)?outpace\.errors\.(?P<kind>\w+): (?P<text>\[\w+\] .*?)"
    r"(?=\s*\Z|\s*SQLSTATE: |\n\s*at [\w.$]+\(|\n\s*\n|\nDriver stacktrace)",
    re.MULTILINE | re.DOTALL,
)
#: A trace of Python: its frames are indented, its error is not.
_TRACE: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n)+)(?P<error>\w.*)"
)
#: What stands between a trace of Python and the error of Java, or of a task, that it passes on.
_PASSED_ON: Final = re.compile(
    r"^(?:py4j\.protocol\.Py4JJavaError: .*\n: |pyspark\.[\w.]*PythonException: .*\n)", re.MULTILINE
)
_HINT: Final = "  hint: "
#: How an error of Spark begins: its condition.
_CONDITION: Final = re.compile(r"^\s*(?:\[[A-Z0-9_.]+\]\s*)+")
#: Where what Spark says ends: after it come a code and traces.
_END: Final = re.compile(r"\s*SQLSTATE:|\s*== SQL|\n\s*JVM stacktrace|\n\s*at [\w.$]+\(")
#: How the name of a Java exception stands in front of its message.
_JAVA: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error): ")
#: How Spark wraps the error of a streaming query.
_ENDED: Final = re.compile(r"^Query [^\[]*\[id = .*?\] terminated with exception: ")
#: How Spark wraps the error of a task.
_LOST: Final = re.compile(r"Lost task [\d.]+ in stage [\d.]+ \(.*?\): ")

#: What gRPC says of a call that did not reach its server, among its own words.
_CALL: Final = re.compile(
    r'of RPC that terminated with:.*?\n\s*details = "(?P<said>.*?)"\n', re.DOTALL
)

#: Words of Spark that are kept.
_CHARACTERS_MAX: Final = 600


def spark_error(error: BaseException) -> OutpaceError:
    r"""Return what made a Spark job fail.

    Parameters
    ----------
    error
        What PySpark raised: a PySparkException of classic Spark or of Connect, or py4j's error.

    Examples
    --------
    >>> print(spark_error(RuntimeError('''Job aborted: org.apache.spark.api.python.PythonException:
    ... Traceback (most recent call last):
    ...   File "rows.py", line 7, in read
    ... outpace.errors.DataError: [data] 'x' is not a double
    ...   ticks.csv, line 4, column price
    ...   hint: name the types
    ...  SQLSTATE: 38000
    ...     at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)''')))
    [data] 'x' is not a double
      ticks.csv, line 4, column price
      hint: name the types
    >>> print(spark_error(RuntimeError("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")))
    [data] Spark: division by zero
    >>> print(spark_error(RuntimeError("[STREAM_FAILED] Query [id = 7, runId = 9] terminated with "
    ...                                "exception: [DIVIDE_BY_ZERO] Division by zero.")))
    [data] Spark: division by zero
    >>> print(spark_error(RuntimeError('''Traceback (most recent call last):
    ...   File "protocol.py", line 327, in get_return_value
    ... py4j.protocol.Py4JJavaError: An error occurred while calling o557.save.
    ... : org.apache.spark.SparkException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012''')))
    [data] Spark: division by zero
    >>> print(spark_error(RuntimeError('''<_InactiveRpcError of RPC that terminated with:
    ...     status = StatusCode.UNAVAILABLE
    ...     details = "failed to connect to all addresses"
    ...     debug_error_string = "UNAVAILABLE:failed to connect to all addresses"
    ... >''')))
    [error] the Spark server does not answer
      failed to connect to all addresses
      hint: see whether Spark Connect runs at that address, and can be reached from here

    Another error of Python is told with the line that it comes from:

    >>> print(spark_error(RuntimeError('''Traceback (most recent call last):
    ...   File "worker.py", line 7, in main
    ...     process()
    ...   File "operator.py", line 3, in step
    ...     return 1 / 0
    ... ZeroDivisionError: division by zero
    ...  SQLSTATE: 38000''')))
    [error] a task failed: ZeroDivisionError: division by zero
      File "operator.py", line 3, in step
    >>> print(spark_error(RuntimeError('''Traceback (most recent call last):
    ...   File "captured.py", line 262, in deco
    ...     raise converted from None
    ... pyspark.errors.exceptions.captured.PythonException: An exception was thrown:
    ... Traceback (most recent call last):
    ...   File "operator.py", line 3, in step
    ...     return 1 / 0
    ... ZeroDivisionError: division by zero
    ...  SQLSTATE: 38000''')))
    [error] a task failed: ZeroDivisionError: division by zero
      File "operator.py", line 3, in step
    """
    if isinstance(error, OutpaceError):
        return error
    text = str(error)
    call = call_details(text)
    if call is not None:
        return OutpaceError(
            "the Spark server does not answer",
            detail=call,
            hint="see whether Spark Connect runs at that address, and can be reached from here",
        )
    found = _OWN.search(text)
    if found:
        return _as_raised(found["kind"], found["text"])
    # What a function for `foreachBatch` raises may itself come from Java, or from a task.
    text = _PASSED_ON.split(text)[-1]
    trace = _TRACE.search(text)
    if trace:
        frames = re.findall(r"^ +(File .*)$", trace["frames"], re.MULTILINE)
        return OutpaceError(f"a task failed: {trace['error']}", detail=(frames or [None])[-1])
    return _in_spark_words(text)


def call_details(text: str) -> str | None:
    """Return what gRPC says of a call that failed, without its own words; None if it is no call."""
    call = _CALL.search(text)
    return None if call is None else call["said"][:_CHARACTERS_MAX]


def comes_from_spark(error: Exception) -> bool:
    """Say whether PySpark or py4j raised an error.

    Examples
    --------
    >>> comes_from_spark(ValueError())
    False
    """
    return any(kind.__module__.split(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__)


def _as_raised(kind: str, text: str) -> OutpaceError:
    """Return the error that prints as a text."""
    first, *rest = text.splitlines()
    hint = None
    if rest and rest[-1].startswith(_HINT):
        hint = rest.pop().removeprefix(_HINT)
    found = getattr(errors, kind, OutpaceError)
    made: type[OutpaceError] = found if issubclass(found, OutpaceError) else OutpaceError
    return made(
        first.partition("] ")[2],
        detail="\n".join(line.removeprefix("  ") for line in rest) or None,
        hint=hint,
    )


def _in_spark_words(text: str) -> OutpaceError:
    lost = _LOST.search(text)
    message = text[lost.end() :] if lost else _ENDED.sub("", _CONDITION.sub("", text.strip()))
    message = _END.split(_CONDITION.sub("", _JAVA.sub("", message.strip())), maxsplit=1)[0]
    message = _CONDITION.sub("", message).strip()[:_CHARACTERS_MAX]
    first, *rest = message.splitlines() or ["unknown error"]
    head, _, tail = first.partition(". ")
    lines = [tail, *rest] if tail else rest
    return DataError(
        f"Spark: {head[:1].lower()}{head[1:].rstrip('.')}",
        detail="\n".join(line.strip() for line in lines if line.strip()) or None,
    )
