"""What requests that only pass say of their client: software, and the group that it is in. Pure.

ApiVersions has the software's name and version since v3 (KIP-511). The requests of a member of a
group, and those that commit offsets, begin with the group's id, in every version. Both are read
where they pass, which changes and delays nothing: a request that cannot be read says nothing.
Clients say what they like, so these names are shown and never trusted, and of a stranger they are
not even shown.
"""

from dataclasses import dataclass
from typing import Protocol

from kafka_protocol.apis import API_VERSIONS, APIS
from kafka_protocol.frames import parse_request_header
from kafka_protocol.primitives import Buffer, Reader, WireError
from kafka_protocol.schema import decode

MOST_SHOWN_BYTES = 1_024
"""So many bytes of a request are waited for; most requests are shorter."""

_FIRST_WITH_SOFTWARE = 3
_FIRST_FLEXIBLE = {
    8: 8,  # OffsetCommit
    11: 6,  # JoinGroup
    68: 0,  # ConsumerGroupHeartbeat
    88: 0,  # StreamsGroupHeartbeat
}
_MOST_CHARACTERS = 249


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """Empty = the request does not say it, or nothing that may be shown."""

    client_id: str = ""
    software: str = ""
    group: str = ""


class Introduced(Protocol):
    """Gets what the requests of one connection say."""

    def introduced(self, said: Introduction) -> None: ...

    def admitted(self) -> None:
        """The broker has answered a request that needs authentication; called once. SessionError:
        there are too many such clients.
        """
        ...


def introduces(api_key: int) -> bool:
    """Whether requests of this API say anything."""
    return api_key == API_VERSIONS.key or api_key in _FIRST_FLEXIBLE


def introduction(frame: Buffer) -> Introduction | None:
    """What a request says; `frame` has no length, and may end early."""
    try:
        header = parse_request_header(frame)
        client_id = shown(header.client_id)
        if header.api_key == API_VERSIONS.key:
            software = ""
            if header.api_version >= _FIRST_WITH_SOFTWARE:
                body, _ = decode(
                    API_VERSIONS.request, header.api_version, frame, header.body_offset
                )
                names = body["client_software_name"], body["client_software_version"]
                software = shown(" ".join(names).strip())
            return Introduction(client_id=client_id, software=software)
        flexible = header.api_version >= _FIRST_FLEXIBLE[header.api_key]
        reader = Reader(frame, header.body_offset, what="a group's request")
        if flexible and header.api_key not in APIS:  # else they were skipped with the header
            reader.skip_tags()
        return Introduction(client_id=client_id, group=shown(reader.string(flexible=flexible)))
    except (WireError, UnicodeError, KeyError):
        return None


def shown(name: str | None) -> str:
    """A name that may be logged, else empty."""
    is_fit = name is not None and name.isprintable() and len(name) <= _MOST_CHARACTERS
    return name if name is not None and is_fit else ""
