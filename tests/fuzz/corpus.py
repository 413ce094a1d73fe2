"""Real frames: every version of every API with a table, encoded by Kafka's own message JSON."""

import random
from dataclasses import dataclass, field
from functools import cache

from kafka_protocol.apis import APIS
from kafka_protocol.schema import Api
from rlm_sandbox.kafka_dist import resolve_kafka
from tests.kafka_protocol.oracle import Oracle, load_messages

_VARIANTS = 8
_ALL = tuple(APIS.values())
REQUEST, RESPONSE = "Request", "Response"


@cache
def kafkas_oracle() -> Oracle:
    dist = resolve_kafka()
    (jar,) = [one for one in dist.jars if one.name.startswith(f"kafka-clients-{dist.version}")]
    return Oracle(load_messages(jar))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A frame without its length; its correlation id is 77."""

    api: Api
    kind: str
    version: int
    frame: bytes


@dataclass
class Corpus:
    """Frames are made when they are first asked for, and kept."""

    oracle: Oracle = field(default_factory=kafkas_oracle)
    _kept: dict[tuple[int, str, int, int], Sample] = field(default_factory=dict)
    _versions: dict[int, range] = field(default_factory=dict)

    def versions(self, api: Api) -> range:
        """Those of the table that Kafka's JSON has too."""
        if api.key not in self._versions:
            known = self.oracle.valid_versions(f"{api.name}Request")
            low, high = max(api.versions.low, known[0]), min(api.versions.high, known[-1])
            self._versions[api.key] = range(low, high + 1)
        return self._versions[api.key]

    def any(self, rng: random.Random, kind: str, *apis: Api) -> Sample:
        """Of one of these APIs, or of any."""
        api = rng.choice(apis or _ALL)
        return self.sample(api, kind, rng.choice(self.versions(api)), rng.randrange(_VARIANTS))

    def sample(self, api: Api, kind: str, version: int, variant: int) -> Sample:
        key = (api.key, kind, version, variant)
        if key not in self._kept:
            message = self.oracle.message(f"{api.name}{kind}", version)
            value = message.generate(random.Random(f"{api.name} {key}"))
            encode = self.oracle.request_frame if kind == REQUEST else self.oracle.response_frame
            frame = encode(api.name, version, value)
            self._kept[key] = Sample(api=api, kind=kind, version=version, frame=frame)
        return self._kept[key]
