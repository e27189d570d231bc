import pytest

# Not test modules, but what they assert fails tests: the values must be shown.
for _name in ("traces", "byhand", "bystanders", "library_answers"):
    pytest.register_assert_rewrite(f"tests.real_sglang.{_name}")
