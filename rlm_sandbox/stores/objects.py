"""The objects of a sandbox's store by the store's own means, past plugin and service.

The demo shows them; tests count, read, damage and delete them. Names are below the root or bucket.
Each call asks the store again. Libraries of a store are imported when that store is asked.
"""

import configparser
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

TEMPORARY_FOLDER = "~rlm-tmp"
"""The folder in which the HDFS plugin writes files before it renames them."""


class StoreObjects(Protocol):
    """The objects of a store; errors are those of its own library."""

    @property
    def means(self) -> str:
        """The call or command that lists the objects, for people."""
        ...

    def sizes(self) -> dict[str, int]:
        """Every object's name and size in bytes, in the order of names."""
        ...

    def unfinished(self) -> list[str]:
        """Names of uploads that were begun and neither finished nor aborted, if they are not
        objects.
        """
        ...

    def read(self, name: str) -> bytes:
        """An object whole."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects behind the service's back."""
        ...


def store_objects(store: Mapping[str, Any]) -> StoreObjects:
    """The objects of the `store` of a sandbox.json."""
    if store["kind"] == "s3":
        return S3Objects(client=s3_client(store), bucket=str(store["bucket"]))
    if store["kind"] == "hdfs":
        return HdfsObjects.at(str(store["uri"]))
    return LocalObjects(root=Path(unquote(urlsplit(str(store["uri"])).path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalObjects:
    """Files below a directory."""

    root: Path
    means: str = "ls"

    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for folder, _, files in os.walk(self.root):  # leaves out folders that go while it looks
            for path in (Path(folder, name) for name in files):
                with suppress(FileNotFoundError):  # renamed or removed while we look
                    found = path.stat()
                    if S_ISREG(found.st_mode):
                        sizes[path.relative_to(self.root).as_posix()] = found.st_size
        return dict(sorted(sizes.items()))

    def unfinished(self) -> list[str]:
        return []

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self.root / name).unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Objects:
    """Objects of a bucket, by an S3 client of AWS's own."""

    client: Any
    bucket: str
    means: str = "ListObjectsV2"

    def sizes(self) -> dict[str, int]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {row["Key"]: row["Size"] for page in pages for row in page.get("Contents", ())}

    def unfinished(self) -> list[str]:
        pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket)
        return [row["Key"] for page in pages for row in page.get("Uploads", ())]

    def read(self, name: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=self.bucket, Key=name)["Body"].read()
        return body

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.client.delete_object(Bucket=self.bucket, Key=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsObjects:
    """Files below a directory of HDFS."""

    client: Any
    root: str
    means: str = "listStatus"

    @classmethod
    def at(cls, uri: str) -> "HdfsObjects":
        """The directory that `hdfs://host:port/path` names."""
        from hdfs_native import Client

        split = urlsplit(uri)
        return cls(client=Client(f"{split.scheme}://{split.netloc}"), root=split.path)

    def sizes(self) -> dict[str, int]:
        below = len(self.root) + 1
        files = sorted(self._files(self.root), key=lambda row: row.path)
        return {
            name: row.length
            for row in files
            if not (name := row.path[below:]).startswith(f"{TEMPORARY_FOLDER}/")
        }

    def unfinished(self) -> list[str]:
        return [row.path for row in self._files(f"{self.root}/{TEMPORARY_FOLDER}")]

    def _files(self, folder: str) -> Iterator[Any]:
        """Files below a folder; those that go while we look are left out."""
        try:
            rows = list(self.client.list_status(folder, False))
        except FileNotFoundError:
            return
        for row in rows:
            if row.isdir:
                yield from self._files(row.path)
            else:
                yield row

    def read(self, name: str) -> bytes:
        with self.client.read(f"{self.root}/{name}") as file:
            content: bytes = file.read()
        return content

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.client.delete(f"{self.root}/{name}", False)


def s3_client(store: Mapping[str, Any]) -> Any:
    """A botocore client for the store of a sandbox.json."""
    from botocore.config import Config
    from botocore.session import Session

    keys = configparser.ConfigParser(interpolation=None)
    keys.read(store["credentials_file"], encoding="utf-8")
    return Session().create_client(
        "s3",
        region_name=store["region"],
        endpoint_url=store["endpoint"],
        config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"),
        **dict(keys["default"]),
    )
