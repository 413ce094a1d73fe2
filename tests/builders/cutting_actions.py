"""What the cutting proxy can do to a request or its answer, and to which requests it does it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The proxy answers with an error; the server never hears of the request."""

    status: int = 503
    code: str = "SlowDown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLost:
    """The server does as asked, and the client gets an error instead."""

    status: int = 500
    code: str = "InternalError"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """The connection is reset after so many bytes of the request's body; with 0 the server hears
    nothing of it.
    """

    after_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetAnswer:
    """The connection is reset after so many bytes of the answer's body."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRequest:
    """After so many bytes of its body the server hears no more, and the client no answer; with 0
    the server hears nothing of it.
    """

    after_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StallAnswer:
    """After so many bytes of the answer's body nothing more comes; the connection stays."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortBody:
    """The answer ends, orderly, before the length it declared."""

    missing_bytes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongLength:
    """The answer declares fewer bytes than there are, and has no more than it declares."""

    missing_bytes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRequest:
    """One bit of the request's body is another when it reaches the server."""

    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipAnswer:
    """One bit of the answer's body; with `mended` its checksum headers are those of the damage."""

    position: int = 0
    mended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """The request waits before it goes on."""

    seconds: float


Action = (
    Answer
    | AnswerLost
    | ResetRequest
    | ResetAnswer
    | StallRequest
    | StallAnswer
    | ShortBody
    | WrongLength
    | FlipRequest
    | FlipAnswer
    | Delay
)


@dataclass(slots=True, kw_only=True)
class Fault:
    """An action on the next `times` requests (None: all) of these operations (none: of any), after
    `skip` of them passed. `hits` counts.
    """

    action: Action
    operations: tuple[str, ...] = ()
    times: int | None = 1
    skip: int = 0
    hits: int = 0

    def applies(self, name: str) -> bool:
        """Whether this request is one of them; counts it if so."""
        if self.operations and name not in self.operations:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True
