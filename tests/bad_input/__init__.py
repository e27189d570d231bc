"""Bad input from the command line. The texts of failed comparisons are shown in full."""

import pytest

pytest.register_assert_rewrite("tests.bad_input.project")
