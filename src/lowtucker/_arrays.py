"""The only module that knows array back ends.

Everything else takes its namespace ``xp`` from its arguments by :func:`namespace` and calls the
functions of the array API standard. NumPy 2 follows the standard itself; torch, JAX and CuPy
are reached through ``array_api_compat``. Nothing here imports any of them.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "Array",
    "Deferred",
    "IntArray",
    "Rows",
    "adjoint",
    "all_finite",
    "as_array",
    "as_array_shape",
    "as_choice",
    "as_flag",
    "as_float",
    "as_float_dtype",
    "as_float_on",
    "as_integer",
    "as_number",
    "as_shape",
    "as_tensor",
    "conj",
    "eps",
    "in_precision_of",
    "is_array",
    "is_complex",
    "is_jax",
    "is_numpy",
    "kind",
    "like",
    "namespace",
    "one_blas_thread",
    "pad_and_stack",
    "per_trial",
    "put",
    "real",
    "real_dtype",
    "same_kind",
    "size",
    "to_numpy",
    "without_gradients",
]

Array: TypeAlias = Any
IntArray: TypeAlias = Any
# Which measurements: any index set, not only "block i". For a stack: one index set a trial.
Rows: TypeAlias = slice | IntArray | tuple[slice | IntArray, ...]
# The dtypes that the package computes in, in the order real, complex; single, double.
FLOATS = ("float32", "float64", "complex64", "complex128")


class Deferred(np.lib.mixins.NDArrayOperatorsMixin):
    """Vector of measurements that is elsewhere: its norm is known, its numbers are fetched.

    Anything but its shape and its norm makes it a NumPy array, which may cost a pass over A.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
    norm : array, shape (*batch,)
        With the weights below.
    weights : array or None
    fetch : callable
        Gives the numbers.

    Examples
    --------
    >>> v = Deferred((2,), np.dtype(float), 5.0, None, lambda: np.array([3.0, 4.0]))
    >>> v.norm
    5.0
    >>> 2 * v
    array([6., 8.])
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, norm: Any, weights: Any, fetch: Callable[[], Any]
    ) -> None:
        self.shape, self.dtype, self.norm, self.weights = shape, dtype, norm, weights
        self._fetch = fetch

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @cached_property
    def numbers(self) -> np.ndarray[Any, Any]:
        """The vector itself."""
        return np.asarray(self._fetch(), dtype=self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self.numbers[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numbers, dtype=dtype) if copy else np.asarray(self.numbers, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        given = [x.numbers if isinstance(x, Deferred) else x for x in inputs]
        return getattr(ufunc, method)(*given, **options)


def namespace(*arrays: Array) -> Any:
    """Array-API namespace of the arguments; plain ``numpy`` for NumPy arrays.

    Examples
    --------
    >>> namespace(np.zeros(3)).__name__
    'numpy'
    """
    for a in arrays:  # a plain loop: this runs thousands of times a second
        if not isinstance(a, np.ndarray):
            break
    else:
        return np
    if any(isinstance(a, Deferred) for a in arrays):
        return np
    import array_api_compat

    return array_api_compat.array_namespace(*arrays)


def is_numpy(x: Array) -> bool:
    """Whether ``x`` is a NumPy array, or becomes one."""
    return isinstance(x, np.ndarray | Deferred)


def is_jax(x: Array) -> bool:
    """Whether ``x`` is a JAX array (its elements cannot be assigned)."""
    import array_api_compat

    return bool(array_api_compat.is_jax_array(x))


def kind(x: Array) -> str:
    """Name of the array kind and its device, for messages."""
    if is_numpy(x):
        return "NumPy"
    import array_api_compat

    return f"{type(x).__module__.split('.')[0]} on {array_api_compat.device(x)}"


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array of some kind; lists and numbers have no kind."""
    return (
        isinstance(value, np.ndarray | np.generic | Deferred)
        or hasattr(value, "__array_namespace__")
        or _is_torch(value)
    )


def as_array(value: Any, name: str) -> Array:
    """Turn ``value`` into a numeric array; an array keeps its kind, dtype and device.

    Lists, numbers and subclasses of NumPy arrays become plain NumPy arrays. Anything that is
    not numeric raises ``TypeError``, and so do masked elements.
    """
    if isinstance(value, Deferred):
        return value.numbers
    if isinstance(value, np.ndarray | np.generic) or not is_array(value):
        if value is None or isinstance(value, str | bytes | dict | set):
            raise TypeError(
                f"{name} must be an array of numbers, got {type(value).__name__}. "
                "Give numbers, or a list of them."
            )
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise TypeError(
                f"{name} must be an array of numbers, got a masked array. Fill its masked "
                "elements with numpy.ma.filled(..., value), or leave out what they belong to."
            )
        if not isinstance(value, np.ndarray) and hasattr(value, "full"):  # not silently formed
            raise TypeError(
                f"{name} must be an array of numbers, got {type(value).__name__}. Try X.full()."
            )
        given = value
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise ValueError(
                f"{name} must be an array of numbers, got a ragged {type(value).__name__}: "
                f"make all its rows equally long."
            ) from error
        if value.dtype.kind == "O" and value.ndim == 0:
            raise TypeError(
                f"{name} must be an array of numbers, got {type(given).__name__}. "
                "Give numbers, or a list of them."
            )
    if is_numpy(value) and value.dtype.kind not in "biufc":
        raise TypeError(
            f"{name} must be an array of numbers, got dtype {value.dtype}. "
            "Try numpy.asarray(..., dtype=float)."
        )
    if _is_torch(value):
        _check_torch(value, name)
    return value


def _check_torch(value: Any, name: str) -> None:
    """Refuse torch tensors that cannot be computed with as others can."""
    if value.is_meta:
        raise TypeError(
            f"{name} must hold numbers, got a torch tensor on the device meta, which has none. "
            "Make it on a device such as cpu or cuda."
        )
    if str(value.layout) != "torch.strided":
        raise TypeError(
            f"{name} must be a dense torch tensor, got the layout {value.layout}. Try "
            "value.to_dense(), or a SciPy sparse matrix, which is not made dense."
        )


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")  # a torch tensor exists only once torch is imported
    return torch is not None and isinstance(value, torch.Tensor)


def as_float(value: Any, name: str) -> Array:
    """Turn ``value`` into an array of real or complex floating point numbers.

    float32, float64 and complex stay as they are; integers, booleans and half precision
    become float64 (float32 where the back end has no float64); extended precision is refused.
    """
    x = as_array(value, name)
    if (x.dtype.char in "fdFD") if is_numpy(x) else _dtype_name(x.dtype) in FLOATS:
        return x
    if is_numpy(x) and x.dtype.kind in "fc" and x.dtype.itemsize > 8:
        raise TypeError(
            f"{name} must be of single or double precision, got dtype {x.dtype}. "
            "Try numpy.asarray(..., dtype=float)."
        )
    xp = namespace(x)
    if is_jax(x):  # float64 only where it is switched on
        return xp.astype(x, xp.asarray(0.5).dtype)
    return xp.astype(x, xp.complex128 if is_complex(x) else xp.float64)


def as_float_on(value: Any, prototype: Array | None, name: str, owner: str) -> Array:
    """:func:`as_float` of the kind of ``prototype``: lists are moved there, others refused."""
    x = as_float(value, name)
    if is_array(value):
        return same_kind(x, prototype, name, owner)
    return x if prototype is None or is_numpy(prototype) else like(x, prototype)


def as_tensor(value: Any, name: str) -> Array:
    """:func:`as_array` with at least one mode, and elements."""
    x = as_array(value, name)
    if x.ndim == 0:
        raise ValueError(
            f"{name} must be a tensor with at least one mode, got a number. Try [number]."
        )
    if not size(x.shape):
        raise ValueError(
            f"{name} must have entries in every mode, got shape {tuple(x.shape)}. Leave out the "
            "modes without entries."
        )
    return x


def as_float_dtype(dtype: Any, prototype: Array | None = None) -> Any:
    """Check a floating point dtype and give it as one of ``prototype``'s kind (NumPy's).

    Examples
    --------
    >>> as_float_dtype(complex), as_float_dtype("float32")
    (dtype('complex128'), dtype('float32'))
    """
    name = _dtype_name(dtype)
    if name not in FLOATS:
        raise TypeError(
            "dtype must be float32, float64, complex64 or complex128, got "
            f"{repr(dtype) if isinstance(dtype, str) else name}."
        )
    if prototype is None or isinstance(prototype.dtype, np.dtype):
        return np.dtype(name)
    return getattr(namespace(prototype), name)


def in_precision_of(dtype: Any, prototype: Array | None, *, is_complex: bool) -> Any:
    """Real or complex dtype of the precision of ``dtype``, of ``prototype``'s kind."""
    single = _dtype_name(as_float_dtype(dtype, prototype)) in ("float32", "complex64")
    wanted = FLOATS[2 * is_complex + (not single)]
    return as_float_dtype(wanted, prototype)


def _dtype_name(dtype: Any) -> str:
    """Name of a dtype of any kind: "float64" for torch.float64 or float."""
    if type(dtype).__module__.partition(".")[0] not in ("torch", "array_api_strict"):
        try:
            return str(np.dtype(dtype).name)
        except TypeError:
            pass
    return str(dtype).rsplit(".", maxsplit=1)[-1]


def as_shape(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """Check a tensor shape: a non-empty sequence of positive integers."""
    if isinstance(shape, numbers.Integral):
        raise TypeError(
            f"{name} must have one entry a mode, got the number {shape}. "
            f"For a vector write {name}=({shape},)."
        )
    try:  # bytes are integers too, and sets have no order
        entries = None if isinstance(shape, bytes | bytearray | set | dict) else tuple(shape)
    except TypeError:
        entries = None
    if entries is None:
        raise TypeError(
            f"{name} must be a tuple of positive integers, got {type(shape).__name__}. "
            f"Try {name}=(30, 30, 10)."
        )
    if not entries or not all(
        isinstance(n, numbers.Integral) and not isinstance(n, bool) and int(n) >= 1 for n in entries
    ):
        raise ValueError(
            f"{name} must be a tuple of positive integers, got {shape!r}. Try {name}=(30, 30, 10)."
        )
    return tuple(int(n) for n in entries)


def as_array_shape(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """:func:`as_shape` of a tensor that an array can hold; entries may be of larger ones."""
    checked = as_shape(shape, name)
    if size(checked) > sys.maxsize // 16:
        raise ValueError(
            f"{name} must be that of an array, with at most {sys.maxsize // 16} entries, got "
            f"{checked!s:.80}. Are these the sizes of the modes?"
        )
    return checked


def as_integer(value: Any, name: str, low: int = 1, high: int | None = None) -> int:
    """Check an integer argument between ``low`` and ``high``, both included.

    Without a ``high`` it is the largest size of an array.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r:.80}. Try int(...).")
    number = int(value)
    most = sys.maxsize if high is None else high
    if not low <= number <= most:
        is_open = high is None and number < low
        bounds = f"at least {low}" if is_open else f"between {low} and {most}"
        raise ValueError(f"{name} must be {bounds}, got {number}.")
    return number


def as_number(value: Any, name: str, low: float = -math.inf, *, positive: bool = False) -> float:
    """Check a finite real argument, at least ``low`` or positive."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r:.80}. Try float(...).")
    try:
        number = float(value)
    except OverflowError:  # an integer, or a fraction
        number = math.inf if value > 0 else -math.inf  # type: ignore[operator]
    if positive and not 0 < number < math.inf:
        raise ValueError(f"{name} must be positive, got {number:g}.")
    if not (math.isfinite(number) and number >= low):
        bound = "" if low == -math.inf else f", at least {low:g}"
        raise ValueError(f"{name} must be a finite number{bound}, got {number:g}.")
    return number


def as_choice(value: Any, name: str, choices: Sequence[str | None]) -> Any:
    """Check an argument that is one of some words, or None where that is one of them."""
    is_word = value is None or isinstance(value, str)
    if is_word and value in choices:
        return value
    *others, last = ["None" if choice is None else f'"{choice}"' for choice in choices]
    raise (ValueError if is_word else TypeError)(
        f"{name} must be {', '.join(others)} or {last}, got {value!r:.80}."
    )


def as_flag(value: Any, name: str) -> bool:
    """Check a yes or no: anything else, such as "no", would count as yes."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r:.80}. Try {name}=False.")
    return bool(value)


def is_complex(x: Array) -> bool:
    """Whether ``x`` has a complex dtype."""
    if isinstance(x, np.ndarray):  # numpy.isdtype takes microseconds
        return bool(x.dtype.kind == "c")
    return bool(namespace(x).isdtype(x.dtype, "complex floating"))


def conj(x: Array) -> Array:
    """Complex conjugate; a real array is returned as it is."""
    return namespace(x).conj(x) if is_complex(x) else x


def real(x: Array) -> Array:
    """Real part; a real array is returned as it is."""
    return namespace(x).real(x) if is_complex(x) else x


def adjoint(x: Array) -> Array:
    """Conjugate transpose of the last two axes."""
    return conj(namespace(x).matrix_transpose(x))


def real_dtype(x: Array) -> Any:
    """Dtype of the modulus of ``x``'s elements."""
    xp = namespace(x)
    return xp.real(xp.empty((0,), dtype=x.dtype)).dtype if is_complex(x) else x.dtype


def eps(x: Array) -> float:
    """Machine epsilon of ``x``'s dtype."""
    return float(namespace(x).finfo(x.dtype).eps)


def all_finite(x: Array) -> bool:
    """Whether ``x`` has neither NaN nor infinity: one reading, no copy when it is so."""
    xp = namespace(x)
    with np.errstate(all="ignore"):
        total = xp.sum(x)
    if bool(xp.isfinite(total)):
        return True
    # the sum itself may have overflowed
    return bool(xp.all(xp.isfinite(x)))


def like(value: Any, prototype: Array | None, dtype: Any = None) -> Array:
    """Make an array of the kind and device of ``prototype`` (NumPy where it is None)."""
    if prototype is None or is_numpy(prototype):
        return np.asarray(value, dtype=dtype)
    import array_api_compat

    xp = namespace(prototype)
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        value = value.copy()  # torch warns about read-only memory
    return xp.asarray(value, dtype=dtype, device=array_api_compat.device(prototype))


def same_kind(x: Array, prototype: Array | None, name: str, owner: str) -> Array:
    """Check that ``x`` is of the kind of ``prototype`` (NumPy where that is None)."""
    if type(x) is type(prototype):
        return x
    mine = np if prototype is None else namespace(prototype)
    if namespace(x) is not mine:
        theirs = "NumPy" if mine is np else kind(prototype)
        raise TypeError(
            f"{name} is a {kind(x)} array, but {owner} holds {theirs} arrays. "
            f"Convert one of them to the kind of the other."
        )
    return x


def to_numpy(x: Array) -> np.ndarray[Any, Any]:
    """Copy ``x`` to the host as a NumPy array (no copy for NumPy)."""
    if is_numpy(x):
        return np.asarray(x)
    if _is_torch(x):
        return np.asarray(x.detach().cpu().resolve_conj().numpy())
    if hasattr(x, "get"):  # CuPy
        return np.asarray(x.get())
    return np.asarray(x)


def put(x: Array, where: IntArray, values: Array) -> Array:
    """Copy of ``x`` whose items ``where`` along the first axis are replaced by ``values``."""
    xp = namespace(x)
    index = np.arange(x.shape[0])
    index[to_numpy(where)] = x.shape[0] + np.arange(values.shape[0])
    return xp.take(xp.concat([x, values], axis=0), like(index, x), axis=0)


def pad_and_stack(parts: Sequence[Array]) -> Array:
    """Stack vectors, the shorter ones filled up with zeros."""
    xp = namespace(*parts)
    length = max(part.shape[0] for part in parts)
    if min(part.shape[0] for part in parts) == length:
        return xp.reshape(xp.concat(list(parts)), (len(parts), length))  # faster than stack
    zeros = like(np.zeros(length), parts[0], parts[0].dtype)
    return xp.stack([xp.concat([part, zeros[part.shape[0] :]]) for part in parts])


def per_trial(value: Any, x: Array) -> Any:
    """Give one number a trial the axes it needs to multiply the stack ``x``; a number stays."""
    if not hasattr(value, "ndim") or value.ndim == 0:
        return value
    return namespace(x).reshape(value, (*value.shape, *(1,) * (x.ndim - value.ndim)))


def size(shape: Sequence[int]) -> int:
    """Count the elements of a tensor of that shape."""
    return math.prod(shape)


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread: workers share the cores, and sums keep their order."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


def without_gradients() -> AbstractContextManager[Any]:
    """Keep torch from recording: what a run computes is not differentiated, only remembered."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()
