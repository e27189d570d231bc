"""`sgldbg status`: what it advises about the sessions that it finds."""

from __future__ import annotations

import pytest

from orchestrator.cli.status import hints

ENDS = "`sgldbg revert --all` ends what is left"
LIVE = "a session that is at work ends by itself; `sgldbg revert --all` passes it over"
AWAY = "a session of another machine is ended there"


@pytest.mark.parametrize(
    ("controllers", "said"),
    [
        ([], []),
        (["alive"], [LIVE]),
        (["gone"], [ENDS]),
        (["detached", "kept"], [ENDS]),
        (["elsewhere"], [AWAY]),
        (["gone", "elsewhere", "alive"], [LIVE, AWAY, ENDS]),
    ],
)
def test_the_advice_is_true_of_what_is_there(controllers: list[str], said: list[str]) -> None:
    """Nobody is told to end what `revert --all` does not end."""
    assert hints([{"controller": controller} for controller in controllers]) == said
