"""The few tensor operations that the miniature needs, backed by lists of lists."""

from __future__ import annotations

from operator import add, mul
from typing import Any


class Tensor:
    """One- or two-dimensional numbers with the attributes that debuggers ask tensors for."""

    __slots__ = ("_data", "device", "dtype", "shape")

    def __init__(self, data: list[Any], dtype: str = "float32", width: int | None = None) -> None:
        """`width` is needed only for a matrix that may have no rows."""
        self._data = data
        self.dtype = dtype
        self.device = "cpu"
        if data and isinstance(data[0], list):
            width = len(data[0])
        self.shape: tuple[int, ...] = (len(data),) if width is None else (len(data), width)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: Any) -> Any:
        """Rows by number or slice, and `[rows, columns]`; a slice gives a tensor."""
        if not isinstance(index, tuple):
            found = self._data[index]
            if not isinstance(found, list):
                return found
            width = self.shape[1] if isinstance(index, slice) and len(self.shape) == 2 else None
            return Tensor(found, self.dtype, width)
        rows, columns = index
        if isinstance(rows, int):
            found = self._data[rows][columns]
            return Tensor(found, self.dtype) if isinstance(columns, slice) else found
        picked = [row[columns] for row in self._data[rows]]
        return Tensor(picked, self.dtype)

    def __repr__(self) -> str:
        return f"tensor(shape={list(self.shape)}, dtype={self.dtype})"

    def numel(self) -> int:
        """The number of elements."""
        return self.shape[0] * (self.shape[1] if len(self.shape) == 2 else 1)

    def tolist(self) -> list[Any]:
        """A copy as plain lists."""
        return [list(row) if isinstance(row, list) else row for row in self._data]

    def flatten(self) -> list[Any]:
        """All elements, row after row."""
        if len(self.shape) == 1:
            return list(self._data)
        return [value for row in self._data for value in row]

    def mean(self) -> float:
        """The mean of all elements; not a number for an empty tensor, as in torch."""
        values = self.flatten()
        return sum(values) / len(values) if values else float("nan")

    def min(self) -> Any:
        """The least element."""
        return min(self.flatten())

    def max(self) -> Any:
        """The greatest element."""
        return max(self.flatten())

    def argmax(self) -> list[int]:
        """For each row the column of its greatest element."""
        return [row.index(max(row)) for row in self._data]


def cat(tensors: list[Tensor]) -> Tensor:
    """Matrices of equally many rows, side by side."""
    height, width = len(tensors[0]), sum(t.shape[1] for t in tensors)
    rows: list[list[float]] = [[] for _ in range(height)]
    for tensor in tensors:
        rows = list(map(add, rows, tensor.tolist()))
    return Tensor(rows, tensors[0].dtype, width)


class Linear:
    """A matrix without bias, as `weight` of shape (out, in)."""

    def __init__(self, weight: list[list[float]]) -> None:
        self.weight = Tensor(weight)

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.weight.shape[-1]:
            raise RuntimeError(f"shapes {x.shape} and {self.weight.shape} cannot be multiplied")
        weight = self.weight.tolist()
        rows = [[sum(map(mul, row, w)) for w in weight] for row in x.tolist()]
        return Tensor(rows, x.dtype, len(weight))


class Embedding:
    """A row of `weight` for each token."""

    def __init__(self, weight: list[list[float]]) -> None:
        self.weight = Tensor(weight)

    def __call__(self, input_ids: Tensor) -> Tensor:
        rows = [list(self.weight[i].tolist()) for i in input_ids.tolist()]
        return Tensor(rows, self.weight.dtype, self.weight.shape[1])


def one_hot(index: int, width: int) -> list[float]:
    """A row of zeros with a one at `index`."""
    row = [0.0] * width
    row[index] = 1.0
    return row
