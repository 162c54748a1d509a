# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The database of a journal: the runs with their leases, and the entries recorded in them.

Every write is a single statement, so a killed process never leaves one half done. The writes of a run are fenced: they
take effect only under the latest lease of the run.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, Literal
from weakref import WeakSet

import sqlalchemy as sql
from cryptography.fernet import Fernet, InvalidToken
from sqlalchemy import event
from sqlalchemy.dialects.postgresql import insert as insert_into_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_into_sqlite
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from haystack_integrations.tools.mcp.errors import MCPRunError

# How long a process waits for others that use the database, in seconds.
_LOCK_TIMEOUT: Final = 30.0

# Other processes may create the tables of a new database or set SQLite's journal mode at the same time, and SQLite does
# not wait for them.
_ATTEMPTS: Final = 8
_PAUSE: Final = 0.05

# How many runs one statement deletes.
_DELETED_AT_ONCE: Final = 20

# Journals of other formats are refused.
FORMAT: Final = 5

# The columns that identify an entry within its run: the fields of a Place.
PLACE: Final = ("scope", "kind", "step", "name", "fingerprint", "occurrence")

_tables = sql.MetaData()
_RUNS: Final = sql.Table(
    "mcp_runs",
    _tables,
    sql.Column("name", sql.String(255), primary_key=True),
    sql.Column("id", sql.String(32), nullable=False, unique=True),
    sql.Column("format", sql.Integer, nullable=False),
    sql.Column("state", sql.String(16), nullable=False),  # open, done
    sql.Column("owner", sql.String(255)),
    sql.Column("epoch", sql.Integer, nullable=False),
    sql.Column("lease_until", sql.Float, nullable=False),
    sql.Column("boot", sql.String(64), nullable=False),
    sql.Column("created", sql.Float, nullable=False),
    sql.Column("changed", sql.Float, nullable=False),
    sql.Column("error", sql.Text),
)
_ENTRIES: Final = sql.Table(
    "mcp_entries",
    _tables,
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=True),
    # The run's id, not its name: a new run may have the name of a deleted one.
    sql.Column("run", sql.String(32), nullable=False),
    sql.Column("scope", sql.String(1000), nullable=False),
    sql.Column("kind", sql.String(16), nullable=False),  # call, reply, decision, value
    sql.Column("step", sql.Integer, nullable=False),
    sql.Column("name", sql.String(255), nullable=False),
    sql.Column("fingerprint", sql.String(64), nullable=False),
    sql.Column("occurrence", sql.Integer, nullable=False),
    sql.Column("state", sql.String(16), nullable=False),  # started, done, failed, pending
    sql.Column("attempt", sql.Integer, nullable=False),
    sql.Column("epoch", sql.Integer, nullable=False),
    sql.Column("request", sql.LargeBinary, nullable=False),
    sql.Column("result", sql.LargeBinary),
    sql.Column("started", sql.Float, nullable=False),
    sql.Column("ended", sql.Float),
    sql.UniqueConstraint("run", *PLACE),
)

# The states of calls without a result.
_OPEN_STATES: Final = ("started", "pending")


class _Statements:
    """
    The SQL statements, built once: building one takes ten times as long as executing it in SQLite.
    """

    def __init__(self, *, is_sqlite: bool) -> None:
        parameter = sql.bindparam

        def new(*names: str) -> dict[str, Any]:
            return {name: parameter(f"new_{name}") for name in names}

        runs, entries = _RUNS.c, _ENTRIES.c
        # PostgreSQL's clock counts there, as the clocks of its clients differ. One machine alone uses an SQLite file.
        now: Any = parameter("now", type_=sql.Float)
        insert: Any = insert_into_sqlite
        if not is_sqlite:
            now = sql.cast(sql.extract("epoch", sql.func.clock_timestamp()), sql.Float)
            insert = insert_into_postgresql
        until = now + parameter("seconds", type_=sql.Float)
        is_free = sql.or_(runs.owner.is_(None), runs.lease_until < now, runs.boot != parameter("boot"))
        is_leased = sql.and_(runs.id == parameter("run"), runs.epoch == parameter("epoch"))
        is_latest = sql.select(sql.literal(1)).where(is_leased).exists()

        self.format = sql.select(runs.format).where(runs.name == parameter("name"))
        fresh = {each.name: parameter(each.name, type_=each.type) for each in _RUNS.c}
        self.claim = (
            insert(_RUNS)
            .values(**{**fresh, "lease_until": until})
            .on_conflict_do_update(
                index_elements=[runs.name],
                set_={
                    "state": parameter("state"),
                    "owner": parameter("owner"),
                    "epoch": runs.epoch + 1,
                    "lease_until": until,
                    "boot": parameter("boot"),
                    "changed": parameter("changed"),
                    "error": None,
                },
                where=sql.and_(is_free, runs.format == parameter("format")),
            )
            # They are read in the same statement, because another process may take the next lease right after it.
            .returning(runs.id, runs.epoch)
        )
        self.renew = sql.update(_RUNS).where(is_leased, runs.owner.is_not(None)).values(lease_until=until)
        self.release = sql.update(_RUNS).where(is_leased).values(owner=None, **new("state", "error", "changed"))
        names, is_done = sql.select(runs.name).where(is_free).order_by(runs.created), runs.state == "done"
        state = sql.case((sql.not_(is_free), "running"), (is_done, "done"), else_="unfinished")
        # The fields of a RecordedRun.
        of_run = (runs.name, state, runs.created, runs.changed, runs.epoch, runs.owner, runs.error)
        self.runs = sql.select(*of_run).order_by(runs.created)
        self.unfinished = names.where(sql.not_(is_done))
        is_old = sql.and_(is_free, is_done, runs.changed < parameter("before", type_=sql.Float))
        some = sql.select(runs.name).where(is_old).limit(_DELETED_AT_ONCE)
        self.prune = sql.delete(_RUNS).where(is_old, runs.name.in_(some)).returning(runs.id)
        self.delete = sql.delete(_RUNS).where(runs.name == parameter("name"), is_free).returning(runs.id)
        deleted: list[sql.BindParameter[Any]] = [parameter(f"run_{number}") for number in range(_DELETED_AT_ONCE)]
        self.delete_entries = sql.delete(_ENTRIES).where(entries.run.in_(deleted))
        self.orphans = sql.except_(sql.select(entries.run), sql.select(runs.id))

        is_of = entries.run == sql.select(runs.id).where(runs.name == parameter("name")).scalar_subquery()
        self.entries = sql.select(_ENTRIES).where(is_of).order_by(entries.number)
        written = [column for column in _ENTRIES.c if column.name != "number"]
        values = sql.select(*(parameter(each.name, type_=each.type) for each in written)).where(is_latest)
        inserted = insert(_ENTRIES).from_select(written, values)
        new_one = inserted.excluded
        self.insert = inserted.on_conflict_do_update(
            index_elements=["run", *PLACE],
            set_={"result": new_one.result},
            # The connection was lost after this write, so that it is made again.
            where=sql.and_(entries.epoch == new_one.epoch, entries.state == new_one.state),
        ).returning(entries.number)
        is_open = sql.or_(*(entries.state == each for each in _OPEN_STATES))
        # The run must match as well, because SQLite reuses the numbers of deleted entries.
        is_entry = sql.and_(
            entries.number == parameter("own_number"),
            entries.epoch == parameter("own_epoch"),
            entries.run == parameter("run"),
        )
        is_again = entries.ended == parameter("new_ended", type_=sql.Float)  # likewise
        self.finish = (
            sql.update(_ENTRIES).where(is_entry, sql.or_(is_open, is_again)).values(new("state", "result", "ended"))
        )
        again = new("epoch", "attempt", "started", "state", "result")
        self.begin_again = sql.update(_ENTRIES).where(is_entry, entries.state != "done", is_latest).values(again)
        is_free_one = sql.and_(runs.name == parameter("name"), is_free)
        self.disown = sql.update(_RUNS).where(is_free_one).values(owner=None)
        free = sql.select(sql.literal(1)).where(is_free_one).exists()
        is_in_doubt = sql.and_(is_of, entries.number == parameter("own_number"), is_open, free)
        self.settle = sql.update(_ENTRIES).where(is_in_doubt).values(new("state", "result", "ended"))


_statements: Final = lru_cache(_Statements)


@lru_cache(maxsize=64)  # bounded, because each engine has its own dialect object
def _compiled(statement: Any, dialect: sql.Dialect) -> tuple[str, dict[str, Any], list[str] | None]:
    compiled = statement.compile(dialect=dialect)
    return compiled.string, dict(compiled.params), compiled.positiontup  # None if parameters have names


@dataclass(frozen=True)
class Place:
    """
    Identifies a recorded call, reply, decision or value within its run.

    :param scope: The path of the calls and branches that it is in.
    :param kind: "call", "reply", "decision" or "value".
    :param step: The number of replies before it by the generator that replied last in its context; 0 if none did.
    :param name: Name of the tool, generator, decision or value.
    :param fingerprint: A hash: of a call's arguments, or of the name of the generator whose call a decision is about.
    :param occurrence: The number of equal calls or values before it.
    """

    scope: str
    kind: str
    step: int
    name: str
    fingerprint: str = ""
    occurrence: int = 0


@dataclass(kw_only=True)
class Entry:
    """
    A recorded call, reply, decision or value.

    :param number: Its number in the journal.
    :param place: Identifies it within its run.
    :param state: "started", "done", "failed" or "pending".
    :param attempt: How often it was sent.
    :param epoch: The lease under which it was written.
    :param request: The request, redacted.
    :param result: The result; None if it is not known.
    :param started: When it was written, in seconds since 1970.
    :param ended: When its result was written.
    """

    number: int
    place: Place
    state: str
    attempt: int
    epoch: int
    request: Any
    result: Any
    started: float
    ended: float | None


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """
    A run in a journal.

    :param name: Its name.
    :param state: "done", "running" in some process, or "unfinished".
    :param created: When it was started, in seconds since 1970.
    :param changed: When it was last started, continued or ended.
    :param attempts: How often it was started or continued.
    :param worker: The process that leased it last; None once that process has released it.
    :param error: The error that ended it, if any: its type and, in a journal without a key, its text.
    """

    name: str
    state: Literal["done", "running", "unfinished"]
    created: float
    changed: float
    attempts: int
    worker: str | None
    error: str | None


@dataclass(frozen=True, kw_only=True)
class Lease:
    """
    Entitles this process to a run.

    :param run: The id of the run. A deleted run of the same name had another one.
    :param epoch: How often the run was started or continued. Writes under an earlier lease have no effect.
    """

    run: str
    epoch: int


def _fernet(key: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        msg = (
            "RunJournal: `encryption_key` must be 32 bytes in URL-safe base64, as "
            "`cryptography.fernet.Fernet.generate_key()` makes one"
        )
        raise ValueError(msg) from None


def boot_clock() -> float:
    """
    Return a time in seconds that also advances while the machine is suspended.

    :returns: The seconds since the machine was started, or since 1970 where that clock is missing.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _prepare(synchronous: str, connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")


class Store:
    """
    A database. Thread-safe; after a fork, the child opens new connections.
    """

    def __init__(self, url: str, *, power_loss_safe: bool = False, key: str | None = None) -> None:
        """
        Initialize the Store. It connects at the first use.

        :param url: A URL for SQLAlchemy.
        :param power_loss_safe: Whether SQLite waits until the disk has each write.
        :param key: A Fernet key that encrypts requests and results. Default: they are not encrypted.
        :raises ValueError: If the URL or the key is invalid.
        """
        self._fernet = None if key is None else _fernet(key)
        try:
            self._url = sql.make_url(url)
            dialect = self._url.get_dialect()
        except SQLAlchemyError:
            dialect = None
        if (
            dialect is None
            or dialect.name not in ("sqlite", "postgresql")
            or dialect.is_async
            or (dialect.name == "sqlite" and self._url.host)  # a file after two slashes instead of three
        ):
            msg = (
                "RunJournal: `url` must be a URL of SQLAlchemy for SQLite or PostgreSQL, without an async driver, such "
                'as "sqlite:///runs.db" or "postgresql+psycopg://…"'
            )
            raise ValueError(msg)
        self._is_sqlite = dialect.name == "sqlite"
        self._synchronous = "FULL" if power_loss_safe else "NORMAL"
        self._boot = _boot_id() if self._is_sqlite else ""
        self._statements = _statements(is_sqlite=self._is_sqlite)
        self._engine: sql.Engine | None = None
        self._sqlite_connection: sql.PoolProxiedConnection | None = None
        self._lock = threading.RLock()
        # The functions that renew the leases of the open runs, and whether the thread that calls them is running.
        self._renewals: list[Callable[[], None]] = []
        self._is_renewing = False
        _stores.add(self)

    def _reset_after_fork(self) -> None:
        # A thread of the parent may have held the lock. The parent's connection must not be closed here.
        self._lock = threading.RLock()
        self._renewals, self._is_renewing = [], False
        if self._engine is not None:
            _inherited.append((self._engine, self._sqlite_connection))
            self._engine = self._sqlite_connection = None

    def _engine_in_use(self) -> sql.Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._connect()
                self._sqlite_connection = self._engine.raw_connection() if self._is_sqlite else None
            return self._engine

    def _connect(self) -> sql.Engine:
        # A pooled connection may be broken, for example after a restart of the database.
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT", "pool_pre_ping": not self._is_sqlite}
        if self._is_sqlite:
            # One connection is kept open, because a pool costs more than the writes.
            options |= {"poolclass": StaticPool, "connect_args": {"check_same_thread": False, "timeout": _LOCK_TIMEOUT}}
        elif self._url.get_driver_name() == "psycopg":
            # A pooler such as PgBouncer may hand each statement to another server, which has not prepared it.
            options["connect_args"] = {"prepare_threshold": None}
        engine = sql.create_engine(self._url, **options)
        if self._is_sqlite:
            # Not a method of the store: a pool in use is never collected, and would keep the store and itself in use.
            event.listen(engine, "connect", partial(_prepare, self._synchronous))
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _tables.create_all(engine)
                break
            except SQLAlchemyError:
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(_PAUSE * attempt)
        return engine

    def _execute(self, statement: Any, **values: Any) -> tuple[Sequence[Any], int]:
        """
        Execute a statement.

        :param statement: One of `_statements`.
        :param values: Its parameters.
        :returns: The rows, and how many were changed.
        :raises MCPRunError: If the journal cannot be used.
        """
        try:
            with self._lock if self._is_sqlite else nullcontext():
                engine = self._engine_in_use()
                text, constants, order = _compiled(statement, engine.dialect)
                given = {**constants, "now": boot_clock(), "boot": self._boot, **values}
                if self._sqlite_connection is None:
                    with engine.connect() as connection:
                        parameters = given if order is None else tuple(given[name] for name in order)
                        result = connection.exec_driver_sql(text, parameters)
                        return result.fetchall() if result.returns_rows else [], result.rowcount
                cursor = self._sqlite_connection.cursor()  # SQLAlchemy's own connection would take twice as long
                cursor.execute(text, [given[name] for name in order or ()])
                return cursor.fetchall(), cursor.rowcount
        except (SQLAlchemyError, sqlite3.Error) as error:
            reason = error if isinstance(error, sqlite3.Error) else getattr(error, "orig", None) or type(error).__name__
            msg = f"The journal {self.describe()} cannot be used: {reason}"
            if "unable to open" in msg:
                msg += ". Its folder must exist, and this process must be allowed to write to it."
            raise MCPRunError(msg) from error

    def _changes(self, statement: Any, **values: Any) -> bool:
        """
        Execute a statement, and return whether it changed something.
        """
        return self._execute(statement, **values)[1] > 0

    def _dumps(self, value: Any) -> bytes:
        # JSON in ASCII escapes NUL characters and lone surrogates, which databases refuse.
        data = json.dumps(value, separators=(",", ":")).encode("ascii")
        return data if self._fernet is None else self._fernet.encrypt(data)

    def _loads(self, data: bytes) -> Any:
        try:
            data = bytes(data) if isinstance(data, memoryview) else data  # psycopg2 returns one
            return json.loads(data if self._fernet is None else self._fernet.decrypt(data))
        except (InvalidToken, ValueError):
            msg = (
                "The journal cannot be read: it is damaged, or `encryption_key` is not the one with "
                "which it was written. Nothing was run."
            )
            raise MCPRunError(msg) from None

    def begin_renewing(self, renew: Callable[[], None], *, every: float) -> None:
        """
        Renew a lease periodically, in one thread for all leases.

        :param renew: Renews the lease. It must not raise.
        :param every: The interval in seconds.
        """
        with self._lock:
            if not self._is_renewing:
                threading.Thread(
                    target=self._keep_renewing, args=(every,), name="mcp-haystack-journal", daemon=True
                ).start()
                self._is_renewing = True
            self._renewals.append(renew)

    def stop_renewing(self, renew: Callable[[], None]) -> None:
        """
        Stop renewing a lease.

        :param renew: The function that renews it.
        """
        with self._lock:
            self._renewals = [each for each in self._renewals if each != renew]

    def _keep_renewing(self, every: float) -> None:
        while True:
            time.sleep(every)
            with self._lock:
                renewals = list(self._renewals)
                self._is_renewing = bool(renewals)
            if not renewals:
                return
            for renew in renewals:
                renew()

    def describe(self) -> str:
        """
        Name the database without its passwords.

        :returns: The URL.
        """
        return self._url.difference_update_query(["password", "sslpassword"]).render_as_string(hide_password=True)

    def close(self) -> None:
        """
        Close the connections.
        """
        with self._lock:
            if self._sqlite_connection is not None:
                self._sqlite_connection.close()
            if self._engine is not None:
                self._engine.dispose()
            self._engine = self._sqlite_connection = None

    def claim(self, name: str, owner: str, seconds: float) -> Lease | None:
        """
        Lease a run, which is created if there is no run of this name.

        :param name: The name.
        :param owner: The process that leases it.
        :param seconds: The duration of the lease.
        :returns: The lease; None if another process has the run.
        :raises MCPRunError: If the run was written in another format.
        """
        at = time.time()
        new: dict[str, Any] = {"name": name, "format": FORMAT, "state": "open", "epoch": 1, "error": None}
        new["id"] = uuid.uuid4().hex
        given = {**new, "owner": owner, "seconds": seconds, "created": at, "changed": at}
        taken, _ = self._execute(self._statements.claim, **given)
        if taken:
            run, epoch = taken[0]
            return Lease(run=run, epoch=epoch)
        known, _ = self._execute(self._statements.format, name=name)
        if known and known[0][0] != FORMAT:
            msg = (
                f"The run '{name}' was written in format {known[0][0]}; this version reads format {FORMAT}. Finish it "
                "with the version of mcp-haystack that began it, or delete the run."
            )
            raise MCPRunError(msg)
        return None

    def renew(self, lease: Lease, seconds: float) -> bool:
        """
        Renew a lease.

        :param lease: The lease.
        :param seconds: Its duration from now.
        :returns: Whether it is still the latest one.
        """
        return self._changes(self._statements.renew, run=lease.run, epoch=lease.epoch, seconds=seconds)

    def release(self, lease: Lease, *, state: str, error: str | None = None) -> None:
        """
        End a lease.

        :param lease: The lease. If it is not the latest one, nothing happens.
        :param state: "done", or "open" if the run is to be continued.
        :param error: The error that ended the run: its type, and a text that may quote arguments.
        """
        if error is not None and self._fernet is not None:
            error = error.partition(":")[0]
        if error is not None:  # databases refuse lone surrogates, and PostgreSQL NUL characters
            error = error.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
        changes = {"new_state": state, "new_error": error, "new_changed": time.time()}
        self._changes(self._statements.release, run=lease.run, epoch=lease.epoch, **changes)

    def entries(self, name: str, *, with_values: bool = True) -> list[Entry]:
        """
        Read the entries of a run.

        :param name: Its name.
        :param with_values: Whether to read requests and results.
        :returns: The entries in their order.
        :raises MCPRunError: If one cannot be read.
        """
        rows, _ = self._execute(self._statements.entries, name=name)
        return [self._entry(row, with_values=with_values) for row in rows]

    def _entry(self, columns: Any, *, with_values: bool) -> Entry:
        row = dict(zip(_ENTRIES.c.keys(), columns, strict=True))
        place = Place(**{name: row[name] for name in PLACE})
        fields = {name: row[name] for name in ("number", "state", "attempt", "epoch", "started", "ended")}
        request = self._loads(row["request"]) if with_values else None
        result = self._loads(row["result"]) if with_values and row["result"] is not None else None
        return Entry(**fields, place=place, request=request, result=result)

    def insert(
        self, lease: Lease, place: Place, request: Any, *, state: str = "started", result: Any = None
    ) -> Entry | None:
        """
        Insert an entry, if the lease is the latest one. An insertion may be repeated under the same lease.

        :param lease: The lease.
        :param place: Identifies the entry within the run.
        :param request: The request.
        :param state: Its state.
        :param result: Its result, if it is known already.
        :returns: The entry; None if another process has the run.
        """
        at = time.time()
        ended = None if state == "started" else at
        fields: dict[str, Any] = {"state": state, "attempt": 1, "epoch": lease.epoch, "started": at, "ended": ended}
        values: dict[str, Any] = {
            "run": lease.run,
            "request": self._dumps(request),
            "result": self._stored(state, result),
        }
        done, _ = self._execute(self._statements.insert, **vars(place), **fields, **values)
        if not done:
            return None
        return Entry(**fields, number=done[0][0], place=place, request=request, result=result)

    def _stored(self, state: str, result: Any) -> bytes | None:
        return None if state == "started" else self._dumps(result)

    def begin_again(self, lease: Lease, entry: Entry) -> bool:
        """
        Record that a call is sent once more or taken up again, if the lease is the latest one.

        :param lease: The lease.
        :param entry: The call as it is now: "started", or "pending" with its handle.
        :returns: Whether it was recorded.
        """
        changes = {
            "new_epoch": lease.epoch,
            "new_attempt": entry.attempt + 1,
            "new_started": time.time(),
            "new_state": entry.state,
            "new_result": self._stored(entry.state, entry.result),
        }
        condition = {"run": lease.run, "epoch": lease.epoch, "own_number": entry.number, "own_epoch": entry.epoch}
        return self._changes(self._statements.begin_again, **condition, **changes)

    def finish(self, lease: Lease, entry: Entry, *, state: str, result: Any, ended: float) -> bool:
        """
        Record the outcome of a call. A later lease of the run does not prevent that, unless the call was sent again.

        :param lease: The lease.
        :param entry: The call.
        :param state: "done", "failed", "pending", or "started" if only the handle is to be forgotten.
        :param result: The result, the error or the handle; None without one.
        :param ended: When it ended. The same time shows that this write is repeated.
        :returns: Whether it was recorded.
        """
        changes = {"new_state": state, "new_result": self._dumps(result), "new_ended": ended}
        condition = {"run": lease.run, "own_number": entry.number, "own_epoch": entry.epoch}
        return self._changes(self._statements.finish, **condition, **changes)

    def settle(self, name: str, number: int, result: Any, *, state: str) -> bool:
        """
        Set the result of a call without one, for when the run is continued.

        :param name: Name of the run, which no process may have leased.
        :param number: Number of the call.
        :param result: The result or the error.
        :param state: "done" or "failed".
        :returns: Whether there was such a call.
        """
        # Otherwise, a process that stood still could renew its lease, and send the call.
        self._execute(self._statements.disown, name=name)
        changes = {"new_state": state, "new_result": self._dumps(result), "new_ended": time.time()}
        return self._changes(self._statements.settle, name=name, own_number=number, **changes)

    def runs(self) -> list[RecordedRun]:
        """
        List runs.

        :returns: The runs, the oldest first.
        """
        names = [each.name for each in fields(RecordedRun)]
        rows, _ = self._execute(self._statements.runs)
        return [RecordedRun(**dict(zip(names, row, strict=True))) for row in rows]

    def unfinished(self) -> list[str]:
        """
        List the runs that are not done and that no process has leased.

        :returns: Their names, the oldest first.
        """
        return [name for (name,) in self._execute(self._statements.unfinished)[0]]

    def prune(self, before: float) -> int:
        """
        Delete the runs that ended successfully before a time.

        :param before: The time, in seconds since 1970.
        :returns: How many runs were deleted.
        """
        count = 0
        # In many short statements: a long one would hold up all writers of SQLite, perhaps until their leases end.
        while deleted := self._execute(self._statements.prune, before=before)[0]:
            count += len(deleted)
            self._delete_entries(deleted)
        self._delete_entries(self._execute(self._statements.orphans)[0])  # of a process that was killed before this
        return count

    def _delete_entries(self, runs: Sequence[Any]) -> None:
        for start in range(0, len(runs), _DELETED_AT_ONCE):
            ids = [run for (run,) in runs[start : start + _DELETED_AT_ONCE]]
            ids += [None] * (_DELETED_AT_ONCE - len(ids))
            self._execute(self._statements.delete_entries, **{f"run_{number}": run for number, run in enumerate(ids)})

    def delete(self, name: str) -> bool:
        """
        Delete a run that no process has leased.

        :param name: Its name.
        :returns: Whether it was deleted.
        """
        deleted, _ = self._execute(self._statements.delete, name=name)
        self._delete_entries(deleted)
        return bool(deleted)


# All stores of the process, and the connections inherited from a parent process, which must stay open.
_stores: Final[WeakSet[Store]] = WeakSet()
_inherited: Final[list[tuple[sql.Engine, sql.PoolProxiedConnection | None]]] = []


def _after_fork() -> None:
    for store in _stores:
        store._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
