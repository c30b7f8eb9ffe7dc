"""The JSON of a recorded decoding, from either database."""

from __future__ import annotations

from hubbub_decoder.errors import OutputError
from hubbub_decoder.results_store.database import PostgresResults, ResultsDatabase
from hubbub_decoder.results_store.store import SELECT_DECODING, PeriodKey, ResultsStore


def recorded_document(database: ResultsDatabase, key: PeriodKey) -> str:
    """JSON of the decoding of a period. Raises OutputError if the database cannot be read, or has none."""
    match database:
        case PostgresResults():
            with database._translated_errors():
                rows = database._connection.execute(SELECT_DECODING.replace("?", "%s").encode(), key).fetchall()
        case ResultsStore():
            rows = database._select(SELECT_DECODING, key)
        case _:
            raise TypeError(f"{type(database).__name__} is no database of results")
    for (document,) in rows:
        return str(document)
    raise OutputError(f"the result of {key.period} was removed from the database meanwhile. Run the command again.")
