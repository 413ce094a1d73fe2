"""How a call names its principal, in the metadata of gRPC."""

PRINCIPAL_KEY = "rlm-principal"
PRINCIPAL_MAX = 256


def can_be_named(principal: str) -> bool:
    """Whether a call can name this principal: the metadata of gRPC has printable ASCII only."""
    return 0 < len(principal) <= PRINCIPAL_MAX and principal.isascii() and principal.isprintable()
