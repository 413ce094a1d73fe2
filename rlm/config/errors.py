"""The one error of a configuration."""


class ConfigError(Exception):
    """One line that names the setting and what is allowed."""
