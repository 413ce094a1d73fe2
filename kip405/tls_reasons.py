"""What TLS has to do with a gRPC connection that was never made, out of gRPC's own text.

Must not know who called whom.
"""

_REFUSALS = (
    ("certificate has expired", "its certificate has expired"),
    ("certificate is not yet valid", "its certificate is not valid yet"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is of no authority that is trusted here"),
    ("Hostname Verification Check failed", "its certificate does not have the name dialled"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("CERTIFICATE_REQUIRED", "it wants a certificate that it trusts"),
)
_CLOSED_AT_ONCE = "it closed the connection at once: it may want TLS, or a certificate it trusts"
_REASONS = (
    *_REFUSALS,
    ("Socket closed", _CLOSED_AT_ONCE),
    ("onnection reset", _CLOSED_AT_ONCE),
)


def is_tls_refusal(details: str) -> bool:
    """Whether certificates, or TLS on one side only, forbid the connection: no wait mends that."""
    return any(mark in details for mark, _ in _REFUSALS)


def tls_reason(details: str | None) -> str | None:
    """For people, why a connection was never made, if TLS is or may be why."""
    if not details or "failed to connect" not in details:
        return None
    return next((reason for mark, reason in _REASONS if mark in details), None)
