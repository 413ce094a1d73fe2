"""What the S3 store finds out about its bucket."""

import pytest

from kip405.contracts import FindingKind, StoreFinding
from tests.rsm_plugins.s3.recording import Answer, Asked, failed, recording_server, xml
from tests.rsm_plugins.s3.stores import open_store, s3_store
from tests.store_servers import S3Server

VERSIONING = xml("<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
LOCK = xml(
    "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>"
    "<DefaultRetention><Mode>COMPLIANCE</Mode><Years>2</Years></DefaultRetention></Rule>"
    "</ObjectLockConfiguration>"
)
RULES = """
<Rule><Status>Enabled</Status><Filter><Prefix>pre/fix/old</Prefix></Filter>
  <Expiration><Days>7</Days></Expiration></Rule>
<Rule><Status>Enabled</Status><Filter><And><Prefix>pre</Prefix><ObjectSizeGreaterThan>1
  </ObjectSizeGreaterThan></And></Filter><Expiration><Date>2030-01-02T00:00:00Z</Date></Expiration>
  <NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays></NoncurrentVersionExpiration>
</Rule>
<Rule><Status>Enabled</Status><Prefix></Prefix>
  <AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation>
  </AbortIncompleteMultipartUpload></Rule>
<Rule><Status>Disabled</Status><Filter><Prefix></Prefix></Filter>
  <Expiration><Days>1</Days></Expiration></Rule>
<Rule><Status>Enabled</Status><Filter><Prefix>other</Prefix></Filter>
  <Expiration><Days>1</Days></Expiration></Rule>
<Rule><Status>Enabled</Status><Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>
  <Expiration><Days>1</Days></Expiration></Rule>
<Rule><Status>Enabled</Status><Filter></Filter>
  <Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule>
"""
LIFECYCLE = xml(f"<LifecycleConfiguration>{RULES}</LifecycleConfiguration>")
EXPIRY, ABORT = FindingKind.LIFECYCLE_EXPIRY, FindingKind.MULTIPART_ABORT


async def found(answers: dict[str, Answer], **others: object) -> tuple[StoreFinding, ...]:
    async def answer(asked: Asked) -> Answer:
        if asked.method == "PUT":
            return failed(412, "PreconditionFailed")
        (what,) = asked.query
        return answers[what]

    settings = {
        "aws_access_key_id": "k",
        "aws_secret_access_key": "s",
        "prefix": "pre/fix",
        **others,
    }
    async with recording_server(answer) as server, open_store(server.settings(**settings)) as store:
        return await store.inspect()


async def test_everything_is_set_up() -> None:
    findings = await found({"versioning": VERSIONING, "object-lock": LOCK, "lifecycle": LIFECYCLE})
    assert findings == (
        StoreFinding(kind=FindingKind.VERSIONING, state="Enabled"),
        StoreFinding(kind=FindingKind.OBJECT_LOCK, state="COMPLIANCE", days=730),
        StoreFinding(kind=EXPIRY, state="Expiration", days=7, applies_to="pre/fix/old"),
        StoreFinding(kind=EXPIRY, state="Expiration on 2030-01-02", applies_to="pre"),
        StoreFinding(kind=EXPIRY, state="NoncurrentVersionExpiration", days=3, applies_to="pre"),
        StoreFinding(kind=ABORT, state="AbortIncompleteMultipartUpload", days=2),
    )


async def test_h25_a_transition_to_an_archive_is_reported_like_an_expiry() -> None:
    """An archived object stalls its readers without a sign; classes that can be read are fine."""
    moves = "".join(
        f"<Transition><Days>{days}</Days><StorageClass>{name}</StorageClass></Transition>"
        for days, name in ((1, "STANDARD_IA"), (2, "GLACIER_IR"), (3, "GLACIER"))
    )
    dated = (
        "<Transition><Date>2030-01-02T00:00:00Z</Date>"
        "<StorageClass>DEEP_ARCHIVE</StorageClass></Transition>"
    )
    rules = "".join(
        f"<Rule><Status>Enabled</Status><Filter></Filter>{one}</Rule>" for one in (moves, dated)
    )
    lifecycle = xml(f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>")
    findings = await found({"versioning": VERSIONING, "object-lock": LOCK, "lifecycle": lifecycle})
    assert [one for one in findings if one.kind is EXPIRY] == [
        StoreFinding(kind=EXPIRY, state="Transition to GLACIER", days=3),
        StoreFinding(kind=EXPIRY, state="Transition to DEEP_ARCHIVE on 2030-01-02"),
    ]


async def test_h25_rules_for_keys_of_pinterests_form_are_reported_too() -> None:
    """The logs of the layout `pinterest` are below a prefix of their own."""
    rule = "<Transition><Days>3</Days><StorageClass>GLACIER</StorageClass></Transition>"
    filters = "<Filter><Prefix>theirs/</Prefix></Filter>"
    rules = f"<Rule><Status>Enabled</Status>{filters}{rule}</Rule>"
    lifecycle = xml(f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>")
    answers = {"versioning": VERSIONING, "object-lock": LOCK, "lifecycle": lifecycle}
    others = {"pinterest_cluster": "c", "pinterest_prefix": "theirs"}
    for rows, state in ((others, "Transition to GLACIER"), ({}, "absent")):
        findings = await found(answers, **rows)
        assert [one.state for one in findings if one.kind is EXPIRY] == [state]


async def test_nothing_is_set_up() -> None:
    findings = await found(
        {
            "versioning": xml("<VersioningConfiguration/>"),
            "object-lock": failed(404, "ObjectLockConfigurationNotFoundError"),
            "lifecycle": failed(404, "NoSuchLifecycleConfiguration"),
        }
    )
    assert {finding.state for finding in findings} == {"absent"}
    assert len(findings) == 4


@pytest.mark.parametrize("code", ["NotImplemented", "AccessDenied"])
async def test_one_unknown_hides_no_other(code: str) -> None:
    status = 501 if code == "NotImplemented" else 403
    findings = await found(
        {"versioning": VERSIONING, "object-lock": failed(status, code), "lifecycle": LIFECYCLE}
    )
    assert findings[0].state == "Enabled"
    assert findings[1].state == f"unknown: {code}"
    assert findings[2].days == 7


async def test_a_real_server(s3_server: S3Server) -> None:
    async with s3_store(s3_server, s3_server.bucket()) as store:
        findings = {finding.kind: finding.state for finding in await store.inspect()}
    assert findings[FindingKind.VERSIONING] == "absent"
    assert findings[FindingKind.OBJECT_LOCK] == "absent"
