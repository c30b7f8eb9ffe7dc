"""Object stores: a directory, or a bucket of an S3-compatible service. Objects are created once, and never changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from hubbub.files.private_file import make_private_directory, open_private
from hubbub.text import install_hint
from hubbub.wire.urls import mask_url, mask_urls
from hubbub_aggregator.database.failpoints import reach
from hubbub_aggregator.errors import StoreError

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
    from obstore.store import LocalStore, S3Store
except ImportError:
    raise StoreError(f"segments need obstore: {install_hint('segments')}") from None

if TYPE_CHECKING:
    from obstore.store import ClientConfig

_MOST_DELETED_AT_ONCE = 1_000
_MAX_RETRIES = 4
_CLIENT_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
)
"""Options of obstore's HTTP client that it reads from variables; AWS_ is before the name of each."""
_PROBE = "write-probe"
_MOST_FOLDERS = 5
"""Of a name, with the store's own: metric, digest, period and kind of the object."""
_MISSING = (NotFoundError, FileNotFoundError)


class ObjectStore:
    """Objects by name, with `/` between the parts of a name.

    A put is atomic: an object is visible completely or not at all. Raises StoreError where a method fails.
    """

    def __init__(self, store: LocalStore | S3Store, place: str) -> None:
        self._store = store
        self._directory = Path(place).absolute() if isinstance(store, LocalStore) else None
        self.place = place

    @classmethod
    def open(cls, place: str, timeout: timedelta | None = None) -> Self:
        """Open a directory, created with mode 0700 if it does not exist, or s3://bucket/prefix.

        timeout : S3: longest time of a method. A request may take three quarters of it, and is repeated during the first quarter.
                  None: the limits of obstore, 30 seconds for a request and three minutes of repetitions

        Keys, region, endpoint and proxy of S3 are those of the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
        AWS_ENDPOINT_URL, AWS_ALLOW_HTTP and AWS_PROXY_URL, or of the machine's role.
        """
        with _store_errors(place):
            if "://" not in place:
                make_private_directory(Path(place).absolute())
                return cls(LocalStore(Path(place).absolute()), place)
            if not place.startswith("s3://"):
                raise StoreError(f"{mask_url(place)} is no place for segments: name a directory, or s3://bucket/prefix")
            if timeout is None:
                return cls(S3Store.from_url(place), place)
            limited = S3Store.from_url(
                place,
                client_options=_client_options(os.environ, 3 * timeout / 4),  # replaces those of the environment
                retry_config={"retry_timeout": timeout / 4, "max_retries": _MAX_RETRIES},
            )
            return cls(limited, place)

    def __reduce__(self) -> tuple[Callable[[str], ObjectStore], tuple[str]]:
        """Another process, perhaps in another working directory, opens the same place with its own client."""
        return ObjectStore.open, (self.place if self._directory is None else str(self._directory),)

    def create(self, name: str, data: bytes) -> bool:
        """Write a new object; return False, without a change, if the name exists.

        S3 also returns False where a put was repeated, because its response was lost, and the first put had created the object.
        """
        folder = name.rpartition("/")[0].rpartition("/")[2]
        reach(f"before an object of {folder}")
        with _store_errors(self.place):
            if self._directory is not None:
                is_new = _write_file(self._directory / name, data)
            else:
                is_new = self._put_new(name, data)
        if not is_new:
            return False
        reach(f"after an object of {folder}")
        return True

    def _put_new(self, name: str, data: bytes) -> bool:
        try:
            obstore.put(self._store, name, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def probe(self) -> None:
        """Write an object that `hubbub fold` ignores, to find out whether the store accepts objects."""
        with _store_errors(self.place):
            if self._directory is not None:
                _write_file(self._directory / _PROBE, b"", replaces=True)
            else:
                obstore.put(self._store, _PROBE, b"")

    def read(self, name: str) -> bytes:
        """Return an object; raises MissingObjectError if there is none."""
        with _store_errors(self.place):
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except _MISSING:
                raise MissingObjectError(f"{mask_url(self.place)}: there is no object {name}") from None

    def names(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all objects in the folder `prefix` and below it; in no order."""
        with _store_errors(self.place):
            for page in obstore.list(self._store, prefix):
                yield from (about["path"] for about in page)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; a name without an object is ignored."""
        paths = list(names)
        reach("before a deletion of objects")
        with _store_errors(self.place):
            for start in range(0, len(paths), _MOST_DELETED_AT_ONCE):
                some = paths[start : start + _MOST_DELETED_AT_ONCE]
                try:
                    obstore.delete(self._store, some)
                except _MISSING:  # which of them is not known
                    for path in some:
                        with suppress(*_MISSING):
                            obstore.delete(self._store, path)
        reach("after a deletion of objects")


def _write_file(file: Path, data: bytes, *, replaces: bool = False) -> bool:
    """Write a file of mode 0600 at once and durably, in directories of mode 0700.

    Returns False, without a change, if it exists and `replaces` is False. obstore would give it the mode of the process's umask, and would not
    fsync it. obstore ignores names that end in # and digits.
    """
    make_private_directory(file.parent)
    staged = file.with_name(f"{file.name}#{int.from_bytes(os.urandom(8))}")
    try:
        with open_private(staged) as target:
            target.write(data)
            target.flush()
            os.fsync(target.fileno())
        if replaces:
            staged.replace(file)
        else:
            file.hardlink_to(staged)
    except FileExistsError:
        return False
    finally:
        staged.unlink(missing_ok=True)
    for directory in file.parents[:_MOST_FOLDERS]:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return True


def _client_options(environment: Mapping[str, str], timeout: timedelta) -> ClientConfig:
    """Return the options of obstore's HTTP client: a time limit, and those that variables such as AWS_PROXY_URL set."""
    given = {name: environment.get(f"AWS_{name.upper()}") for name in _CLIENT_OPTIONS}
    options = {name: value for name, value in given.items() if value is not None}
    return cast("ClientConfig", {**options, "timeout": timeout})


class MissingObjectError(StoreError):
    """There is no object with this name, any more or yet."""


@contextmanager
def _store_errors(place: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError, ValueError) as problem:
        first_line = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise StoreError(f"{mask_url(place)}: {mask_urls(first_line)}") from None
