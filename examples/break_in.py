"""Watch logins as they come: three failures, then a success, within five minutes.

The state is saved after every event and the stream is resumed from it, as a service would after a
restart. Run it with `python examples/break_in.py`.
"""

from datetime import datetime, timedelta

import outpace as op

break_in = (
    op.Query("break-in")
    .partition_by("user")
    .order_by("ts")
    .pattern("FAIL{3} -> OK")
    .define(FAIL="result = 'fail'", OK="result = 'ok'")
    .measures(since="FIRST(FAIL.ts)", until="OK.ts")
    .within("5 minutes")
)

START = datetime(2024, 1, 2, 9, 0)
LOGINS = [
    (0, "eve", "fail"),
    (10, "bob", "fail"),
    (20, "eve", "fail"),
    (25, "bob", "ok"),
    (40, "eve", "fail"),
    (55, "eve", "ok"),
]


def main() -> None:
    state = op.open(break_in).state()
    for seconds, user, result in LOGINS:
        stream = op.resume(break_in, state)
        event = {"user": [user], "ts": [START + timedelta(seconds=seconds)], "result": [result]}
        for match in stream.push(event).to_pylist():
            print(f"{match['user']} broke in between {match['since']} and {match['until']}")
        state = stream.state()


if __name__ == "__main__":
    main()
