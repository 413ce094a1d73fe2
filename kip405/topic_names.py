"""Names of topics, as Kafka allows them. Pure, and without other imports: commands need it."""

from kip405.errors import Invalid


def checked_name(name: str) -> str:
    """Invalid for a name that no topic can have (Kafka's Topic.validate)."""
    legal = all(one.isascii() and (one.isalnum() or one in "._-") for one in name)
    if not legal or not 0 < len(name) <= 249 or name in (".", ".."):
        raise Invalid(
            f"{name!r} is no topic name: 1 to 249 of letters, digits, dot, underscore, hyphen"
        )
    return name
