"""How long the windows of time are that figures are told by, where nobody says."""

WINDOWS_WANTED = 120
WINDOW_SIZES_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 86_400)


def window_that_fits(span_s: float) -> int:
    """The shortest of the usual sizes with which plots over that span are not crowded, in seconds."""
    return next((size for size in WINDOW_SIZES_S if size * WINDOWS_WANTED >= span_s), WINDOW_SIZES_S[-1])
