"""versitygw as the store: a real S3 server on a loopback port, its buckets in the sandbox.

The credentials are made once, lie in a file of their own that only the owner can read, and reach
the plugin by that file's path.
"""

import configparser
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlm.clock import new_uuid
from rlm_sandbox.files import write_atomically
from rlm_sandbox.spec import Layout
from rlm_sandbox.store_servers import versitygw
from rlm_sandbox.stores.contract import Progress, check_installed

BUCKET = "rlm-sandbox"
_ACCESS_KEY_ID = "rlm-sandbox"
_PROFILE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Store:
    """One bucket of one server, process `store:s3`; see SandboxStore."""

    layout: Layout
    ports: Mapping[str, int]

    def resolve(self, progress: Progress) -> None:
        check_installed("s3")
        versitygw.resolve(progress)

    def prepare(self) -> None:
        self.layout.store.mkdir(exist_ok=True)
        if not self.layout.store_credentials.exists():
            text = _credentials_text(_ACCESS_KEY_ID, new_uuid().raw.hex())
            write_atomically(self.layout.store_credentials, text, private=True)

    def command(self, name: str) -> list[str]:
        binary = versitygw.resolve(lambda _line: None)
        return versitygw.command(binary, port=self._port, folder=self.layout.store)

    def environ(self, name: str) -> dict[str, str]:
        return versitygw.environ(*self._credentials())

    def ports_of(self, name: str) -> tuple[int, ...]:
        return (self._port,)

    def is_ready(self, name: str) -> bool:
        return versitygw.is_ready(self._port)

    def create(self) -> None:
        versitygw.create_bucket(self._port, BUCKET, *self._credentials())

    def plugin_settings(self) -> dict[str, Any]:
        return {
            "rsm.config.s3.bucket.name": BUCKET,
            "rsm.config.s3.region": versitygw.REGION,
            "rsm.config.s3.endpoint.url": versitygw.endpoint(self._port),
            "rsm.config.s3.path.style.access.enabled": True,
            "rsm.config.aws.credentials.file": str(self.layout.store_credentials),
        }

    def document(self) -> dict[str, Any]:
        return {
            "uri": f"s3://{BUCKET}",
            "endpoint": versitygw.endpoint(self._port),
            "bucket": BUCKET,
            "region": versitygw.REGION,
            "path_style": True,
            "access_key_id": _ACCESS_KEY_ID,
            "credentials_file": str(self.layout.store_credentials),
        }

    @property
    def _port(self) -> int:
        return self.ports["s3"]

    def _credentials(self) -> tuple[str, str]:
        """Access key id and secret key of the file."""
        parsed = configparser.ConfigParser(interpolation=None)
        parsed.read(self.layout.store_credentials, encoding="utf-8")
        section = parsed[_PROFILE]
        return section["aws_access_key_id"], section["aws_secret_access_key"]


def _credentials_text(access_key_id: str, secret_key: str) -> str:
    content = configparser.ConfigParser(interpolation=None)
    content[_PROFILE] = {
        "aws_access_key_id": access_key_id,
        "aws_secret_access_key": secret_key,
    }
    text = io.StringIO()
    content.write(text)
    return text.getvalue()
