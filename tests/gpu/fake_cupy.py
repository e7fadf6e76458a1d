"""A stand-in for cupy that computes with numpy and refuses what cupy refuses.

Its arrays hold numpy arrays but are none: they do not turn into numpy arrays by themselves, do not mix with them, and
have no float8. Its functions are those of `cupy_names`, without ufunc `where=`, reductions' `where=` and `initial=`,
and `take`'s mode. Reductions and indexing give arrays without axes, never numpy scalars. What is not imitated: the
order of sums, exponentials that differ in the last place, float32 subnormals (cupy's kernels flush them to zero).
"""

import types

import numpy as np
from cupy_names import NAMES

REFUSED = {"take": {"mode"}, "put": {"mode"}, "choose": {"mode"}}
DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "bool_", "int8", "int16", "int32", "int64")
DTYPES += ("uint8", "uint16", "uint32", "uint64")
CREATES = {"array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray"}


class ndarray:
    """An array "on the GPU"."""

    __array_priority__ = 100

    def __init__(self, values):
        if values.dtype.kind not in "biufc" or values.dtype.type.__module__ != "numpy":
            raise ValueError(f"Unsupported dtype {values.dtype}")
        self._values = values

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if method != "__call__" or ufunc.__name__ not in NAMES:
            return NotImplemented
        return _call(ufunc, inputs, options if out is None else {"out": out[0], **options})

    def __array_function__(self, function, kinds, arguments, options):
        if function.__name__ not in NAMES:
            return NotImplemented
        return _call(function, arguments, options)

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)
    ndim = property(lambda self: self._values.ndim)
    size = property(lambda self: self._values.size)
    nbytes = property(lambda self: self._values.nbytes)
    itemsize = property(lambda self: self._values.itemsize)
    T = property(lambda self: ndarray(self._values.T))
    real = property(lambda self: ndarray(self._values.real))
    imag = property(lambda self: ndarray(self._values.imag))

    def get(self):
        return self._values.copy()

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        return _wrap(self._values[_key(key)])

    def __setitem__(self, key, value):
        self._values[_key(key)] = _unwrap(value)

    def __bool__(self):
        return bool(self._values)

    def __int__(self):
        return int(self._values)

    def __float__(self):
        return float(self._values)

    def __repr__(self):
        return f"fake {self._values!r}"

    __hash__ = None

    def item(self):
        return self._values.item()

    def tolist(self):
        return self._values.tolist()

    def fill(self, value):
        self._values.fill(_unwrap(value))


def _key(key):
    """Unwrap an index; index arrays must be on the GPU, too."""
    return tuple(map(_unwrap, key)) if isinstance(key, tuple) else _unwrap(key)


def _unwrap(value):
    if isinstance(value, ndarray):
        return value._values
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_unwrap, value))
    return value


def _wrap(result):
    if isinstance(result, (np.ndarray, np.generic)):
        return ndarray(np.asarray(result))
    return tuple(map(_wrap, result)) if isinstance(result, tuple) else result


def _call(function, arguments, options):
    """Call a numpy function on unwrapped arrays; what it writes `out` to is returned as it was given."""
    name = function.__name__
    if isinstance(function, np.ufunc):
        refused = options.keys() - {"out", "dtype", "casting"}
    else:
        refused = options.keys() & ({"where", "initial", "like"} | REFUSED.get(name, set()))
    if refused:
        raise TypeError(f"cupy.{name}: wrong arguments {sorted(refused)}")
    result = function(*map(_unwrap, arguments), **{key: _unwrap(value) for key, value in options.items()})
    return _wrap(result) if options.get("out") is None else options["out"]


def _method(name):
    def method(self, *arguments, **options):
        function = getattr(type(self._values), name)
        if options.keys() & ({"where", "initial"} | REFUSED.get(name, set())):
            raise TypeError(f"cupy.ndarray.{name}: wrong arguments {sorted(options)}")
        result = function(self._values, *map(_unwrap, arguments), **{k: _unwrap(v) for k, v in options.items()})
        return _wrap(result) if options.get("out") is None else options["out"]

    return method


_METHODS = "all any argmax argmin argsort astype clip copy cumsum diagonal dot max mean min nonzero prod ravel repeat"
_METHODS += " reshape round sort squeeze std sum swapaxes take trace transpose var view"
for _name in _METHODS.split():
    setattr(ndarray, _name, _method(_name))

_OPERATORS = {
    **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide},
    **{"mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or},
    **{"xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift},
}
_COMPARISONS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_COMPARISONS |= {"eq": np.equal, "ne": np.not_equal}
for _name, _ufunc in _OPERATORS.items():
    setattr(ndarray, f"__{_name}__", lambda self, other, f=_ufunc: _call(f, (self, other), {}))
    setattr(ndarray, f"__r{_name}__", lambda self, other, f=_ufunc: _call(f, (other, self), {}))
    setattr(ndarray, f"__i{_name}__", lambda self, other, f=_ufunc: _call(f, (self, other), {"out": self}))
for _name, _ufunc in _COMPARISONS.items():
    setattr(ndarray, f"__{_name}__", lambda self, other, f=_ufunc: _call(f, (self, other), {}))
for _name, _ufunc in {"neg": np.negative, "abs": np.absolute, "invert": np.invert, "pos": np.positive}.items():
    setattr(ndarray, f"__{_name}__", lambda self, f=_ufunc: _call(f, (self,), {}))


def _from_host(function):
    """Return a function that takes numpy arrays, too: the only way onto the GPU."""

    def create(values, dtype=None, **options):
        held = values._values if isinstance(values, ndarray) else values
        if isinstance(values, (list, tuple)):
            held = _unwrap(values)
        made = function(held, dtype=dtype, **options)
        same = isinstance(values, ndarray) and made is held
        return values if same else ndarray(np.array(made) if isinstance(values, np.ndarray) else made)

    return create


def _garbage(function):
    """Return `empty` with contents that show when they are read."""

    def create(*arguments, **options):
        made = function(*map(_unwrap, arguments), **options)
        made.reshape(-1).view(np.uint8)[...] = 0xA5
        return ndarray(made)

    return create


def make_module():
    """Return the module to be installed as `cupy`."""
    module = types.ModuleType("cupy")
    for name in NAMES:
        function = getattr(np, name)
        if name in CREATES:
            made = _from_host(function)
        elif name in ("empty", "empty_like"):
            made = _garbage(function)
        else:
            made = lambda *a, _f=function, **o: _call(_f, a, o)  # noqa: E731
        setattr(module, name, made)
    for name in DTYPES:
        setattr(module, name, getattr(np, name))
    module.ndarray, module.inf, module.nan, module.pi, module.newaxis = ndarray, np.inf, np.nan, np.pi, None
    module.asnumpy = lambda x: x.get() if isinstance(x, ndarray) else np.asarray(x)
    module.cuda = types.ModuleType("cupy.cuda")
    module.cuda.is_available = lambda: True
    module.__version__ = "fake"
    return module
