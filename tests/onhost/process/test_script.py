"""What the text of a script says of the one command that it waits for: started once, or again."""

from __future__ import annotations

import pytest

from orchestrator.onhost.agent.proc.above.script import judge

ARGV = ["/usr/bin/python3", "-m", "sglang.launch_server", "--port", "30000"]
# `S` in these is that command line as a script says it.
S = "python3 -m sglang.launch_server --port 30000"

ONCE = [
    "S",
    "S\necho over",
    "source env.sh; conda activate $E; pip install -r $R\nS $MORE\nrc=$?; exit $rc\nS",
    'numactl -N 0 $PYTHON -m sglang.launch_server "$@" >log 2>&1; true',
    "$COMMAND",
    '"${COMMAND[@]}"\necho over',
    "declare -a X=(a 'b c')\nS \"${X[@]}\"",
    "if [ $R = 0 ]; then S; elif :; then S --node-rank 1; else exec S; fi",
    "case $R in 0|a) S;; *) S --node-rank 1;; esac",
    "[[ $a =~ ^(x|y)$ && -n $b ]] && S || echo failed",
    "while ! curl -s $URL; do sleep 1; done; S",
    "n=0; while (( n < 3 )); do n=$((n+1)); done\nS",
    "S &\npid=$!\ntrap 'kill $pid' TERM INT\nwait $pid",
    "S & while kill -0 $!; do sleep 1; done",
    "for p in 1 2; do python3 -m sglang.launch_server --port $p & done; wait",
    "other & S & wait",
    "main() { S; }\nmain",
    "trap cleanup EXIT; cleanup() { rm -f x; }; S",
    "exec > >(tee -a log) 2>&1\nS 2>&1 | tee more",
    "answer=$(S); echo $answer",
    "( S; echo over ) & wait",
    "cat <<END\nwhile :; do\n  $(x\nEND\nS",
    "S # while :; do S; done\n: it\\'s",
    "./start.sh\necho over",
    "chpst -u x S\nulimit -n",
    ". ./env.sh\nS",
    "X=(  # it's\n  a\n)\nS",
    "# not \\\nexport A=1 \\\n  B=2\nS >log \\\n  2>&1",
    "S | while read -r line; do echo $line; done",
    'run() { "$@"; echo over; }\nrun S\n:',
]
AGAIN = [
    "while :; do S; done",
    "until S; do sleep 5; done",
    "while ! S\ndo :; done",
    "for i in 1 2 3; do S; done",
    "for ((;;)); do S; done",
    "for ((i = 0; i < 3; i++)) { S; }",
    "for p in 1 2; do S & wait; done",
    "( for p in 1 2; do S; done ) &",
    "run() { while :; do S; done; }\nrun",
    "run() { S; }\nuntil run; do :; done",
    'while :; do "$@"; done',
    "while $COMMAND; do :; done",
    "while :; do nohup env A=1 S >log 2>&1; done",
    "while :; do { S; }; break; done",
    "select x in a b; do S; done",
    'again() { while :; do "$@"; done; }\nagain S',
    'again() { once "$@"; again "$@"; }\nonce() { "$@"; }\nwhile :; do again S; done',
]
UNSURE = [
    'S\nexec "$0" "$@"',
    "S\n./again.sh",
    "S || S --safe",
    'S; bash "$0"',
    "S\n$NEXT",
    'S\neval "$NEXT"',
    "S\n. ./next.sh",
    "S; echo $(S)",
    "run() { S; }\nrun\nrun",
    "run() { S; run; }\nrun",
    'run() { S; }\n"$1"',
    "echo() { S; }\nS\necho over",
    "trap 'S' EXIT\nS",
    "trap restart EXIT\nrestart() { exec $0; }\nS",
    "alias echo=S\nS\necho over",
    "S; pkill -f sglang",
    "if S; then :; else S; fi",
    "case $R in 0) S;& *) S;; esac",
    'eval "$COMMAND"',
    "source run.sh",
    "prepare; ./start.sh",
    "coproc S\nwait",
    ". ./lib.sh\nagain S",
    "repeat 5 S",
    "if $X; then while :; do $COMMAND; done; else S; fi",
    "S | (cat; ./again.sh)",
    "S\n# not \\\n./again.sh",
    "S; (",
    "S; echo 'it",
    "cat <<END\nS",
    "echo over",
    "",
]


@pytest.mark.parametrize(
    ("text", "found"),
    [(text, None) for text in ONCE]
    + [(text, "loop") for text in AGAIN]
    + [(text, "unsure") for text in UNSURE],
)
def test_what_a_script_does_after_a_command(text: str, found: str | None):
    """It must be seen to end; what cannot be followed may start the command again."""
    assert judge(text.replace("S", S), ARGV, True) == found


def test_a_program_that_runs_another_one():
    """What a script has read in cannot make a function of the program that runs now."""
    text = f"source venv/bin/activate\nuv run {S}\necho over"
    assert judge(text, ["uv", "run", *ARGV], True) == "unsure"  # as another one's command line
    assert judge(text, ["uv", "run", "python3", *ARGV[1:]], True) is None


@pytest.mark.parametrize(("is_alone", "found"), [(True, None), (False, "unsure")])
def test_whom_a_script_may_end(is_alone: bool, found: str | None):
    """`kill` can hurt nobody where the command was the script's only child."""
    assert judge(f"{S} & wait $!; kill $others", ARGV, is_alone) == found
