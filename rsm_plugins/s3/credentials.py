"""The credentials of the S3 store: given, from a file that may change, a role, or botocore's chain.

A botocore session asks the provider when it creates a client, and asks its answer for frozen
credentials at every request, so that renewed credentials are used at once.
"""

import configparser
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from aiobotocore.credentials import (
    AioAssumeRoleCredentialFetcher,
    AioAssumeRoleWithWebIdentityCredentialFetcher,
    AioCredentials,
    AioDeferredRefreshableCredentials,
)
from aiobotocore.session import AioSession
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import CredentialRetrievalError
from botocore.utils import FileWebIdentityTokenLoader

from rsm_plugins.event_log import EventLog
from rsm_plugins.s3.settings import CredentialSettings

_METHOD_FILE = "rlm-credentials-file"
_DEFAULT_PROFILE = "default"
log = EventLog(__name__)


class CredentialProvider(Protocol):
    """The part of botocore's credential resolver that a session uses."""

    async def load_credentials(self) -> Any:
        """Credentials, or None where there are none."""
        ...


class FileCredentials(AioCredentials):  # type: ignore[misc] # published without types
    """Credentials of one profile of a shared credentials file, which is read again when it changes.

    If the file cannot be used while it is being replaced, the former credentials stay in force.
    """

    def __init__(self, path: Path, profile: str | None) -> None:
        super().__init__("", "", method=_METHOD_FILE)
        self._path = path
        self._profile = profile or _DEFAULT_PROFILE
        self._seen: tuple[int, int, int] | None = None
        self._frozen: ReadOnlyCredentials | None = None

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """The file's credentials as they are now."""
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen or self._frozen is None:
                self._frozen = read_credentials(self._path, self._profile)
                self._seen = seen
                log.info("s3_credentials_read", file=str(self._path), profile=self._profile)
        except (OSError, ValueError, configparser.Error) as error:
            if self._frozen is None:
                reason = f"{self._path}, profile {self._profile}: {type(error).__name__}"
                raise CredentialRetrievalError(
                    provider=self.method, error_msg=reason
                ) from None  # a parser's message may quote the file
            log.warning("s3_credentials_file_unusable", file=str(self._path))
        return self._frozen


def read_credentials(path: Path, profile: str) -> ReadOnlyCredentials:
    """One profile; OSError, ValueError or configparser.Error if it cannot be read."""
    parser = configparser.RawConfigParser()
    parser.read_string(path.read_text(encoding="utf-8"))
    for name in (profile, f"profile {profile}"):
        if parser.has_section(name):
            section = parser[name]
            key, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
            if not key or not secret:
                raise ValueError("a key is missing")
            return ReadOnlyCredentials(key, secret, section.get("aws_session_token"))
    raise ValueError("the profile is missing")


class GivenProvider:
    """Always the same credentials."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    async def load_credentials(self) -> Any:
        """See CredentialProvider."""
        return self._credentials


class RoleProvider:
    """Credentials of a role, requested when they are first needed and renewed in time."""

    def __init__(
        self,
        settings: CredentialSettings,
        source: CredentialProvider | None,
        client_creator: Callable[..., Any],
    ) -> None:
        self._settings = settings
        self._source = source
        self._client_creator = client_creator

    async def load_credentials(self) -> Any:
        """See CredentialProvider."""
        refresh = self._by_token() if self._settings.token_file else await self._by_source()
        return AioDeferredRefreshableCredentials(refresh_using=refresh, method="assume-role")

    def _by_token(self) -> Callable[[], Awaitable[Any]]:
        fetcher = AioAssumeRoleWithWebIdentityCredentialFetcher(
            client_creator=self._client_creator,
            web_identity_token_loader=FileWebIdentityTokenLoader(str(self._settings.token_file)),
            role_arn=self._settings.role,
            extra_args={"RoleSessionName": self._settings.role_session},
        )
        return self._telling(fetcher.fetch_credentials)

    async def _by_source(self) -> Callable[[], Awaitable[Any]]:
        source = await self._source.load_credentials() if self._source else None
        if source is None:
            raise CredentialRetrievalError(
                provider="assume-role", error_msg="there are no credentials to assume the role with"
            )
        arguments = {"RoleSessionName": self._settings.role_session}
        if self._settings.external_id:
            arguments["ExternalId"] = self._settings.external_id
        fetcher = AioAssumeRoleCredentialFetcher(
            client_creator=self._client_creator,
            source_credentials=source,
            role_arn=self._settings.role,
            extra_args=arguments,
        )
        return self._telling(fetcher.fetch_credentials)

    def _telling(self, fetch: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        async def fetch_and_report() -> Any:
            found = await fetch()
            log.info("s3_role_assumed", role=self._settings.role)
            return found

        return fetch_and_report


def give_credentials(session: AioSession, settings: CredentialSettings, region: str) -> None:
    """Make a session use the credentials of the settings; `region` is where roles are requested."""
    source: CredentialProvider
    if settings.access_key is not None:
        given = AioCredentials(settings.access_key, settings.secret_key, settings.session_token)
        source = GivenProvider(given)
    elif settings.file is not None:
        source = GivenProvider(FileCredentials(settings.file, settings.profile))
    else:
        source = session.get_component("credential_provider")
    if settings.role is None:
        session.register_component("credential_provider", source)
        return

    def create_client(service: str, **options: Any) -> Any:
        return session.create_client(
            service, region_name=region, endpoint_url=settings.sts_endpoint, **options
        )

    role = RoleProvider(settings, source, create_client)
    session.register_component("credential_provider", role)


def profile_of(settings: CredentialSettings) -> str | None:
    """The profile that botocore itself finds; a profile of `credentials.file` does not concern
    it.
    """
    return None if settings.file is not None else settings.profile
