"""The functions of numpy that cupy has too, as its reference lists them (cupy 13; files and printing left out)."""

NAMES = frozenset(
    """
    abs absolute add all allclose amax amin angle any append apply_along_axis apply_over_axes arange arccos
    arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argpartition argsort argwhere around array
    array2string array_equal array_equiv array_repr array_split array_str asanyarray asarray asarray_chkfinite
    ascontiguousarray asfortranarray atleast_1d atleast_2d atleast_3d average bartlett base_repr binary_repr
    bincount bitwise_and bitwise_not bitwise_or bitwise_xor blackman broadcast_arrays broadcast_shapes
    broadcast_to can_cast cbrt ceil choose clip column_stack common_type compress concatenate conj conjugate
    convolve copy copysign copyto corrcoef correlate cos cosh count_nonzero cov cross cumprod cumsum deg2rad
    degrees delete diag diag_indices diag_indices_from diagflat diagonal diff digitize divide divmod dot dsplit
    dstack ediff1d einsum empty empty_like equal exp exp2 expand_dims expm1 extract eye fabs fill_diagonal fix
    flatnonzero flip fliplr flipud float_power floor floor_divide fmax fmin fmod format_float_positional
    format_float_scientific frexp from_dlpack frombuffer fromfunction fromiter full full_like gcd gradient greater
    greater_equal hamming hanning heaviside histogram histogram2d histogramdd hsplit hstack hypot i0 identity imag
    indices inner interp intersect1d invert isclose iscomplex iscomplexobj isfinite isfortran isin isinf isnan
    isneginf isposinf isreal isrealobj isscalar issubdtype iterable ix_ kaiser kron lcm ldexp left_shift less
    less_equal lexsort linspace log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or
    logical_xor logspace mask_indices matmul max maximum may_share_memory mean median meshgrid min min_scalar_type
    minimum mintypecode mod modf moveaxis multiply nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax
    nanmean nanmedian nanmin nanprod nanstd nansum nanvar ndim negative nextafter nonzero not_equal ones ones_like
    outer packbits pad partition percentile piecewise place poly polyadd polyfit polymul polysub polyval positive
    power prod promote_types ptp put put_along_axis putmask quantile rad2deg radians ravel ravel_multi_index real
    real_if_close reciprocal remainder repeat require reshape resize result_type right_shift rint roll rollaxis
    roots rot90 round row_stack searchsorted select setdiff1d setxor1d shape shares_memory sign signbit sin sinc
    sinh size sort sort_complex split sqrt square squeeze stack std subtract sum swapaxes take take_along_axis tan
    tanh tensordot tile trace transpose trapezoid tri tril tril_indices tril_indices_from trim_zeros triu
    triu_indices triu_indices_from true_divide trunc typename union1d unique unpackbits unravel_index unwrap
    vander var vdot vsplit vstack where zeros zeros_like
    """.split()  # noqa: SIM905
)
