"""Which hosts hold a release that a patch is meant for."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from orchestrator.errors import PatchError
from orchestrator.model.patch import Patch
from orchestrator.planning.view import HostView


def check_versions(patch: Patch, views: Sequence[HostView]) -> tuple[str, ...]:
    """Warnings about hosts whose release is not known; no `versions` in the patch: none.

    Raises `PatchError` with state `out of range` where a known release lies outside the range,
    pre-releases counting as what they are, or where the range cannot be read.
    """
    if not patch.versions:
        return ()
    try:
        wanted = SpecifierSet(patch.versions)
    except InvalidSpecifier:
        raise PatchError(
            f"`{patch.versions}` is not a range of versions",
            state="out of range",
            span=patch.spans.get("versions") or patch.span,
            hints=("write it like `>=0.4.5,<0.6`",),
        ) from None
    outside: dict[str, list[str]] = {}
    unknown: dict[str, list[str]] = {}
    for view in views:
        version = _version(view.package_version)
        if version is None:
            unknown.setdefault(view.package_version or "", []).append(view.host)
        elif not wanted.contains(version, prereleases=True):
            outside.setdefault(view.package_version or "", []).append(view.host)
    if outside:
        raise PatchError(
            f"patch `{patch.name}` is for {patch.package} {patch.versions}",
            state="out of range",
            span=patch.spans.get("versions") or patch.span,
            notes=[f"found {version} on {', '.join(hosts)}" for version, hosts in outside.items()],
            hints=("if its code is the same there, widen `versions`",),
            hosts=[host for hosts in outside.values() for host in hosts],
        )
    return tuple(
        f"the version of {patch.package} on {', '.join(hosts)} is "
        f"{f'`{text}`, which cannot be compared' if text else 'not known'}: "
        f"`versions` of `{patch.name}` was not checked"
        for text, hosts in unknown.items()
    )


def _version(text: str | None) -> Version | None:
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None
