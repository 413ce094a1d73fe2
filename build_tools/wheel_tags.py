"""The platform tag of a built wheel, by what is in it: setuptools does not know that.

setuptools says linux_x86_64 of everything that has an extension in pyproject.toml. A package index
takes such wheels from nobody, and one without a compiled decoder fits every platform. Here the tag
follows from the libraries and the symbols of glibc that the extension asks for.
"""

import base64
import hashlib
import re
import zipfile
from pathlib import Path

# What every glibc system has; PEP 600 allows these, and the extension needs no others.
_LIBRARIES = re.compile(rb"(?<=\x00)(?:lib[\w+-]+|ld-[\w-]+)\.so[.\d]*(?=\x00)")
_ALLOWED = re.compile(rb"lib(c|m|pthread|dl|rt)\.so\.\d+|ld-linux[\w-]*\.so\.\d+")
_LIBC = b"libc.so.6"
_GLIBC = re.compile(rb"(?<=\x00)GLIBC_2\.(\d+)(?:\.\d+)?(?=\x00)")
_LEAST_GLIBC_MINOR = 17  # manylinux2014, the oldest that pip still knows everywhere


def tagged(wheel: Path) -> Path:
    """The wheel under the tag that its content has; the file is replaced where that differs."""
    with zipfile.ZipFile(wheel) as archive:
        files = {info: archive.read(info) for info in archive.infolist()}
    compiled = [body for info, body in files.items() if info.filename.endswith((".so", ".pyd"))]
    name, version, python, abi, platform = wheel.stem.split("-")
    tag = (python, abi, platform_of(platform, compiled)) if compiled else ("py3", "none", "any")
    if tag == (python, abi, platform):
        return wheel
    target = wheel.with_name(f"{name}-{version}-{'-'.join(tag)}.whl")
    _write(target, files, "-".join(tag), is_pure=not compiled)
    wheel.unlink()
    return target


def platform_of(platform: str, compiled: list[bytes]) -> str:
    """manylinux_2_N of a Linux extension that asks for no more than that glibc, else `platform`."""
    system, _, machine = platform.partition("_")
    libraries = {name for body in compiled for name in _LIBRARIES.findall(body)}
    is_glibc = _LIBC in libraries  # musl's has another name
    if system != "linux" or not is_glibc or not all(map(_ALLOWED.fullmatch, libraries)):
        return platform
    asked = [int(minor) for body in compiled for minor in _GLIBC.findall(body)]
    return f"manylinux_2_{max([_LEAST_GLIBC_MINOR, *asked])}_{machine}"


def _write(target: Path, files: dict[zipfile.ZipInfo, bytes], tag: str, *, is_pure: bool) -> None:
    """The same files with another WHEEL, and its line in RECORD."""
    record = next(info for info in files if info.filename.endswith(".dist-info/RECORD"))
    head = next(info for info in files if info.filename.endswith(".dist-info/WHEEL"))
    said = files[head].decode()
    said = re.sub(r"^Tag: .*$", f"Tag: {tag}", said, flags=re.MULTILINE)
    purity = f"Root-Is-Purelib: {'true' if is_pure else 'false'}"
    body = re.sub(r"^Root-Is-Purelib: .*$", purity, said, flags=re.MULTILINE).encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
    line = f"{head.filename},sha256={digest},{len(body)}"
    lines = files[record].decode().splitlines()
    rewritten = [line if old.startswith(f"{head.filename},") else old for old in lines]
    changed = {head: body, record: ("\n".join(rewritten) + "\n").encode()}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in (files | changed).items():
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
