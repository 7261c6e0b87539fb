"""A sink that keeps the present matches of a stream in a folder of Parquet files, always whole.

Each batch with changes writes a version of the folder anew, beside the last one. Then the name of
the folder, which is a link, is made to mean the new version: at once, as the file system replaces
names. So whoever opens the folder finds all matches of one batch and nothing of another. The number
of the batch lies with them: one that Spark runs again, after whatever crash, is not written twice.

A batch costs as much as all matches that are there. The last version but one stays for those who
read it; older ones are deleted.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpace.errors import DataError, StateError
from outpace.files.small_file import read_small
from outpace.hosts.local.current import check_changes
from outpace.hosts.spark.batch import query_id
from outpace.pattern.argument import shown
from outpace.pattern.bound import DIFF, MATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CurrentFolder", "writer"]

#: Where a version says which batch of which stream it is; readers of Parquet leave it out.
_NOTE: Final = "_outpace.json"
_NOTE_BYTES_MAX: Final = 1 << 16
#: How many versions are kept.
_KEPT: Final = 2

_PLACE: Final = "outpace place"
_LAST: Final = "outpace last"
_OTHER: Final = "outpace other"


def writer(folder: str | os.PathLike[str], *, stream: str | None = None) -> CurrentFolder:
    """Return the function for `foreachBatch` that keeps the present matches in a folder.

    Parameters
    ----------
    folder
        A path that driver and tasks share, on a file system with links. It is made where it is
        missing. Read it as any folder of Parquet files; it has the columns of the stream without
        `diff`.
    stream
        The name of the stream, one for each checkpoint folder; by default the query's id, which is
        in the checkpoint. Spark Connect does not tell it to the function.

    Returns
    -------
    CurrentFolder
        Call `foreachBatch` with it.

    Examples
    --------
    >>> dips = op.match(ticks, dip.disorder(op.Speculative("2 s", alpha=0)))  # doctest: +SKIP
    >>> sink = op.spark.current.writer("dips")  # doctest: +SKIP
    >>> dips.writeStream.foreachBatch(sink).option("checkpointLocation", "…")  # doctest: +SKIP
    """
    text = os.fspath(folder)
    if "://" in text:
        raise DataError(
            f"the address '{text}' has no links, so a reader would see half a batch",
            hint="name a path of a file system, or write into PostgreSQL",
        )
    return CurrentFolder(Path(text).expanduser().absolute(), stream)


@dataclass(frozen=True)
class CurrentFolder:
    """Writes the present matches of a stream; see `writer`.

    Parameters
    ----------
    path, stream
        The folder, and the name of the stream, as for `writer`.
    """

    path: Path
    stream: str | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Let the folder follow the changes of a batch, unless it did already.

        Raises
        ------
        StateError
            The folder was written from another checkpoint.
        DataError
            The rows do not say what becomes of matches, or the folder is something else.
        """
        check_changes(frame.columns)
        stream = self.stream or query_id(frame)
        last = self._last(stream, batch)
        frame.persist()
        try:
            # All of it runs in any case: Spark's own state has to follow the batch.
            rows = frame.count()
            if batch != last and (rows or last is None):
                self._write(frame, stream, batch)
        finally:
            frame.unpersist()

    @property
    def versions(self) -> Path:
        """Where the versions lie."""
        return self.path.with_name(f".{self.path.name}.versions")

    def _last(self, stream: str, batch: int) -> int | None:
        """Return the number of the batch that the folder shows; None where there is none yet."""
        if not self.path.is_symlink():
            if self.path.exists():
                raise DataError(
                    f"'{self.path}' holds something else than present matches",
                    hint="name a new folder",
                )
            return None
        try:
            note = json.loads(read_small(self.path / _NOTE, _NOTE_BYTES_MAX))
            last, owner = int(note["batch"]), note["stream"]
        except (ValueError, TypeError, LookupError, RecursionError, OSError) as error:
            raise StateError(
                f"'{self.path}' is not whole",
                detail=str(error),
                hint="name a new folder and a new checkpoint folder: all matches come again",
            ) from error
        if owner != stream or batch < last:
            message = f"batch {batch} cannot be written after batch {last}, which was the last one"
            if owner != stream:
                message = f"the folder is that of the stream {shown(owner)}"
            raise StateError(
                message,
                where=f"stream '{stream}' into the folder '{self.path}'",
                detail="the checkpoint folder is not the one that the folder was written from",
                hint="go on with the old checkpoint folder, or name another folder",
            )
        return last

    def _write(self, frame: DataFrame, stream: str, batch: int) -> None:
        """Write the next version, and let the name of the folder mean it."""
        present = _last_rows(frame)
        if self.path.is_symlink():
            before = frame.sparkSession.read.parquet(self.path.resolve().as_uri())
            ids = frame.select(MATCH).distinct()
            present = before.join(ids, MATCH, "left_anti").unionByName(present)
        version = self.versions / f"{batch:012}"
        present.write.mode("overwrite").parquet(version.as_uri())
        note = json.dumps({"stream": stream, "batch": batch})
        (version / _NOTE).write_text(note, encoding="utf-8")
        link = self.versions / "next"
        link.unlink(missing_ok=True)
        link.symlink_to(Path(self.versions.name) / version.name)
        link.replace(self.path)
        for old in sorted(self.versions.iterdir())[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def _last_rows(frame: DataFrame) -> DataFrame:
    """Return the rows of the matches that are there after all changes, as they are then.

    What is said last of a match counts, and its rows lie in one partition, in their order: those
    behind which nothing else is said of it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    def of_match(value: Any) -> Any:
        return value.over(Window.partitionBy(MATCH))

    last = sf.max_by(sf.col(DIFF), sf.col(_PLACE))
    other = sf.max(sf.when(sf.col(DIFF) != sf.col(_LAST), sf.col(_PLACE)))
    return (
        frame.withColumn(_PLACE, sf.monotonically_increasing_id())
        .withColumn(_LAST, of_match(last))
        .withColumn(_OTHER, of_match(other))
        .filter((sf.col(_LAST) >= 0) & (sf.coalesce(_OTHER, sf.lit(-1)) < sf.col(_PLACE)))
        .drop(_PLACE, _LAST, _OTHER, DIFF)
    )
