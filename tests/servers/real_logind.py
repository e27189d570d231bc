"""The real systemd of the tests with a message bus, logind and managers of users."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.servers import real_systemd

_UNITS = Path("/lib/systemd/system")
_BUS_CONFIG = Path("/usr/share/dbus-1/system.conf")
_OF_USERS = ("user@.service", "user-runtime-dir@.service")
_BUS_SOCKET = """[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/dbus/system_bus_socket
"""
_BUS = """[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
NotifyAccess=main
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation
"""
_LOGIND = """[Unit]
DefaultDependencies=no
After=dbus.socket
[Service]
Type=notify
ExecStart=/lib/systemd/systemd-logind
BusName=org.freedesktop.login1
RuntimeDirectory=systemd/sessions systemd/seats systemd/users systemd/inhibit
RuntimeDirectoryPreserve=yes
"""


def find_hindrance() -> str:
    """Why no real logind can be started here; empty where one can."""
    if not Path("/usr/bin/dbus-daemon").exists() or not _BUS_CONFIG.exists():
        return "dbus is not installed"
    if not [*Path("/usr/lib").glob("*/security/pam_systemd.so")]:
        return "libpam-systemd is not installed"
    return real_systemd.find_hindrance()


class RealLogind(real_systemd.RealSystemd):
    """With logins: whatever opens a PAM session inside has one.

    `kill` says whether the end of a login ends all that it left (`KillUserProcesses`).
    """

    def __init__(self, kill: bool) -> None:
        self._kill = "yes" if kill else "no"
        super().__init__()

    def _write_units(self) -> None:
        super()._write_units()
        units = self._folder / "units"
        for name in _OF_USERS:
            shutil.copy(_UNITS / name, units / name)
        (units / "dbus.socket").write_text(_BUS_SOCKET)
        (units / "dbus.service").write_text(_BUS)
        (units / "systemd-logind.service").write_text(_LOGIND)
        with open(units / "sgldbg.target", "a") as file:
            file.write("Wants=dbus.socket dbus.service systemd-logind.service\n")
        config = f"[Login]\nKillUserProcesses={self._kill}\nUserStopDelaySec=0\n"
        (self._folder / "etc" / "logind.conf").write_text(config)
