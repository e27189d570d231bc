import pytest

# Not test modules, but what they assert fails tests: the values must be shown.
pytest.register_assert_rewrite("tests.real_sglang.traces", "tests.real_sglang.byhand")
